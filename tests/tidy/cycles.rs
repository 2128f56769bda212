//! Modules of one room or crate import each other in one direction, so that each can be read after those that it uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{first, paths, product};
use crate::{ROOMS, rust_files};

/// The modules of a room or crate: their paths from the root of the crate, each with its text. The root itself has an
/// empty path.
type Modules<'f> = BTreeMap<String, &'f str>;

#[test]
fn modules_of_a_room_import_in_one_direction() {
    let files = rust_files();
    for (room, _) in ROOMS {
        let circle = circle(&modules_of_room(room, &files));
        assert!(circle.is_empty(), "modules that import each other in circles: {circle:?}");
    }
}

#[test]
fn modules_of_a_crate_import_in_one_direction() {
    let files = rust_files();
    let crates = crates(&files);
    assert!(crates.contains("shards"), "crates are missing: {crates:?}");
    assert!(crates.contains("crates/model"), "crates are missing: {crates:?}");
    for name in crates {
        let circle = circle(&modules_of_crate(name, &files));
        assert!(circle.is_empty(), "modules of {name} that import each other in circles: {circle:?}");
    }
}

#[test]
fn planted_circles_are_found() {
    let circle_of_three = texts(&[
        ("src/api.rs", "mod a;\nmod b;"),
        ("src/api/a.rs", "use super::b::B;"),
        ("src/api/b.rs", "fn b() { crate::api::c::C::new() }"),
        ("src/api/c.rs", "use crate::{api::a::A, bridge};"),
        ("src/api/d.rs", "use super::a;"),
    ]);
    assert_eq!(circle(&modules_of_room("api", &circle_of_three)), ["api::a", "api::b", "api::c"]);
    let parent_and_child = texts(&[("src/api.rs", "fn a() { a::b() }"), ("src/api/a.rs", "use super::A;")]);
    assert_eq!(circle(&modules_of_room("api", &parent_and_child)), ["api", "api::a"]);
    let right = texts(&[
        ("src/api.rs", "mod a;\npub use a::A;"),
        ("src/api/a.rs", "use super::b::B;\npub(in crate::api) struct A;"),
        ("src/api/b.rs", "use crate::bridge;\n#[cfg(test)]\nmod tests { use crate::api::a; }"),
        ("src/api/b/tests.rs", "use crate::api::a;"),
    ]);
    assert!(circle(&modules_of_room("api", &right)).is_empty());
}

#[test]
fn planted_circles_through_a_root_are_found() {
    let through_the_root = texts(&[
        ("crates/a/src/lib.rs", "mod b;\npub use self::b::B;\npub struct A;"),
        ("crates/a/src/b.rs", "use super::A;"),
        ("crates/a/src/c.rs", "use crate::b::B;"),
    ]);
    assert_eq!(circle(&modules_of_crate("crates/a", &through_the_root)), ["", "b"]);
    let by_the_name_of_the_crate =
        texts(&[("loadgen/src/main.rs", "mod b;\nfn a() { b::c() }"), ("loadgen/src/b.rs", "use crate::Arguments;")]);
    assert_eq!(circle(&modules_of_crate("loadgen", &by_the_name_of_the_crate)), ["", "b"]);
    let right = texts(&[
        ("crates/a/src/lib.rs", "mod b;\npub use b::B;"),
        ("crates/a/src/b.rs", "use crate::c::C;\n#[cfg(test)]\npub(crate) mod tests { use crate::B; }"),
        ("crates/a/src/c.rs", "use a_b::B;"),
    ]);
    assert!(circle(&modules_of_crate("crates/a", &right)).is_empty());
}

fn texts(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Returns the modules that import each other in circles, and those between two circles.
fn circle(modules: &Modules<'_>) -> Vec<String> {
    let mut all: BTreeMap<&String, BTreeSet<String>> =
        modules.iter().map(|(module, text)| (module, imports(module, text, modules))).collect();
    // A module that nothing left imports, or that imports nothing left, is in no circle.
    loop {
        let before = all.len();
        let left: BTreeSet<String> = all.keys().map(|module| (*module).clone()).collect();
        let imported: BTreeSet<String> = all.values().flatten().cloned().collect();
        all.retain(|module, used| imported.contains(*module) && !used.is_disjoint(&left));
        if all.len() == before {
            return all.into_keys().cloned().collect();
        }
    }
}

/// Returns the folders of the crates of the workspace, except the server.
fn crates(files: &[(String, String)]) -> BTreeSet<&str> {
    let roots = files
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/src/lib.rs").or_else(|| path.strip_suffix("/src/main.rs")));
    roots.collect()
}

fn modules_of_room<'f>(room: &str, files: &'f [(String, String)]) -> Modules<'f> {
    let mut modules = modules_below("src/", files);
    modules.retain(|module, _| first(module) == room);
    modules
}

fn modules_of_crate<'f>(name: &str, files: &'f [(String, String)]) -> Modules<'f> {
    modules_below(&format!("{name}/src/"), files)
}

fn modules_below<'f>(folder: &str, files: &'f [(String, String)]) -> Modules<'f> {
    files.iter().filter_map(|(path, text)| Some((module_of(path.strip_prefix(folder)?)?, text.as_str()))).collect()
}

/// Returns the module of a file, whose path is that from the root of the crate; `None` for tests.
fn module_of(path: &str) -> Option<String> {
    let module = path.strip_suffix(".rs")?.replace('/', "::");
    let module = if ["lib", "main"].contains(&module.as_str()) { "" } else { module.trim_end_matches("::mod") };
    (!module.split("::").any(|name| ["tests", "testing"].contains(&name))).then(|| module.to_owned())
}

/// Returns the other modules that a module uses.
fn imports(module: &str, text: &str, modules: &Modules<'_>) -> BTreeSet<String> {
    // `pub(in crate::api)` says who may use an item, and uses nothing.
    let code: String = product(text)
        .split("pub(in ")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once(')').map_or("", |(_, after)| after) })
        .collect();
    let used = paths(&code).into_iter().filter_map(|path| resolved(module, &path, modules));
    used.filter(|used| used != module).collect()
}

/// Returns the module that a path within a module leads to.
fn resolved(module: &str, path: &str, modules: &Modules<'_>) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let mut names = path.split("::").peekable();
    match names.peek().copied()? {
        "crate" => {
            at.clear();
            names.next();
        }
        "self" => _ = names.next(),
        "super" => {
            while names.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        child if modules.contains_key(&[&at[..], &[child]].concat().join("::")) => {}
        _ => return None,
    }
    at.extend(names);
    while !at.is_empty() && !modules.contains_key(&at.join("::")) {
        at.pop();
    }
    let found = at.join("::");
    modules.contains_key(&found).then_some(found)
}
