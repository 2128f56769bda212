//! Modules of one room import each other in one direction, so that each can be read after those that it uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust::{first, paths, product};
use crate::{ROOMS, rust_files};

/// Rooms with modules that import each other in circles today. The list may only shrink.
const CYCLIC_ROOMS: &[&str] = &["services"];

#[test]
fn modules_import_in_one_direction() {
    let files = rust_files();
    for (room, _) in ROOMS {
        let circle = circle(room, &files);
        if CYCLIC_ROOMS.contains(room) {
            assert!(!circle.is_empty(), "{room} has no cycle any more: remove its entry");
        } else {
            assert!(circle.is_empty(), "modules that import each other in circles: {circle:?}");
        }
    }
}

#[test]
fn planted_circles_are_found() {
    let files = |texts: &[(&str, &str)]| -> Vec<(String, String)> {
        texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let circle_of_three = files(&[
        ("src/api.rs", "mod a;\nmod b;"),
        ("src/api/a.rs", "use super::b::B;"),
        ("src/api/b.rs", "fn b() { crate::api::c::C::new() }"),
        ("src/api/c.rs", "use crate::{api::a::A, bridge};"),
        ("src/api/d.rs", "use super::a;"),
    ]);
    assert_eq!(circle("api", &circle_of_three), ["api::a", "api::b", "api::c"]);
    let parent_and_child = files(&[("src/api.rs", "fn a() { a::b() }"), ("src/api/a.rs", "use super::A;")]);
    assert_eq!(circle("api", &parent_and_child), ["api", "api::a"]);
    let right = files(&[
        ("src/api.rs", "mod a;\npub use a::A;"),
        ("src/api/a.rs", "use super::b::B;\npub(in crate::api) struct A;"),
        ("src/api/b.rs", "use crate::bridge;\n#[cfg(test)]\nmod tests { use crate::api::a; }"),
        ("src/api/b/tests.rs", "use crate::api::a;"),
    ]);
    assert!(circle("api", &right).is_empty());
}

/// Returns the modules of a room that import each other in circles, and those between two circles.
fn circle(room: &str, files: &[(String, String)]) -> Vec<String> {
    let of_room = files.iter().filter_map(|(path, text)| Some((module_of(path)?, text)));
    let modules: BTreeMap<String, &String> = of_room.filter(|(module, _)| first(module) == room).collect();
    let mut all: BTreeMap<&String, BTreeSet<String>> =
        modules.iter().map(|(module, text)| (module, imports(module, text, &modules))).collect();
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

/// Returns the module of a file of the server, as a path from the root; `None` for tests.
fn module_of(path: &str) -> Option<String> {
    let module = path.strip_prefix("src/")?.strip_suffix(".rs")?.replace('/', "::");
    let module = module.trim_end_matches("::mod");
    (!module.split("::").any(|name| ["tests", "testing"].contains(&name))).then(|| module.to_owned())
}

/// Returns the other modules of the room that a module uses.
fn imports(module: &str, text: &str, modules: &BTreeMap<String, &String>) -> BTreeSet<String> {
    // `pub(in crate::api)` says who may use an item, and uses nothing.
    let code: String = product(text)
        .split("pub(in ")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once(')').map_or("", |(_, after)| after) })
        .collect();
    let used = paths(&code).into_iter().filter_map(|path| resolved(module, &path, modules));
    used.filter(|used| used != module).collect()
}

/// Returns the module of the room that a path within a module leads to.
fn resolved(module: &str, path: &str, modules: &BTreeMap<String, &String>) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").collect();
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
        child if modules.contains_key(&format!("{module}::{child}")) => {}
        _ => return None,
    }
    at.extend(names);
    while !at.is_empty() && !modules.contains_key(&at.join("::")) {
        at.pop();
    }
    (!at.is_empty()).then(|| at.join("::"))
}
