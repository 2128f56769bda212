//! Rules with a list of today's exceptions: each list may only shrink.
//!
//! An entry that no longer breaks its rule fails the test as well, so the lists stay true. What a list holds today is
//! work to do, and no reason to add to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most lines of a file.
const FILE_LINES_MAX: usize = 600;

/// Files with more lines, each with its number of lines rounded up to the next ten.
const LONG_FILES: &[(&str, usize)] = &[];

/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions with more lines.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Least number of assertions outside of tests: it may only grow.
const ASSERTIONS_MIN: usize = 540;

/// Most assertions that join facts with `&&`: if one fails, its message does not say which fact is wrong. Those that are
/// left relate two sides of one invariant.
const JOINED_ASSERTIONS_MAX: usize = 18;

/// Names that several types of the workspace have. `Error` and `Result` of a crate would be no exceptions.
const SHARED_NAMES: &[&str] = &[];

/// Words that leave the reader of a doc comment without its subject.
const DANGLING: [&str; 25] = [
    "Who ",
    "Whoever ",
    "Whose ",
    "Whom ",
    "What ",
    "Whatever ",
    "Where ",
    "The same",
    "Its ",
    "That of ",
    "Those of ",
    "Those ",
    "These ",
    "It ",
    "They ",
    "Their ",
    "Which ",
    "Whether ",
    "How ",
    "When ",
    "Since when ",
    "So ",
    "Such ",
    "All of ",
    "Further ",
];

/// Files and folders of product code that may read a clock: the clock itself, the loops of threads, and commands. All
/// other code is given the time, so that tests need not wait.
const CLOCK_READERS: &[&str] = &[
    "crates/redis/src/",
    "crates/store/src/ids.rs",
    "crates/store/src/journal/repair.rs",
    "crates/store/src/links/changes.rs",
    "crates/telemetry/src/clock.rs",
    "src/api/uptime.rs",
    "src/bridge/handle.rs",
    "src/bridge/handle/batches.rs",
    "src/bridge/handle/lending.rs",
    "src/bridge/handle/recording.rs",
    "src/bridge/reply.rs",
    "src/commands/",
    "src/core/hyper_bridge.rs",
    "src/core/hyper_bridge/stream.rs",
    "src/core/late_answers.rs",
    "src/core/run_loop.rs",
    "src/core/tasks.rs",
    "src/core/tls.rs",
    "src/node.rs",
    "src/node/",
    "src/services/",
    "src/startup/joining.rs",
];

/// Calls that read a clock.
const CLOCK_READS: &[&str] = &["Instant::now", "SystemTime::now", "unix_ms()", "unix_nanos()", "monotonic_micros"];

/// The doc comments of clap are texts of `--help`, and are checked as such.
const HELP_TEXTS: &[&str] = &["src/commands/cli.rs", "loadgen/src/command_line/cli.rs", "bench/src/main.rs"];

#[test]
fn files_are_short() {
    let long: BTreeMap<&str, usize> = LONG_FILES.iter().copied().collect();
    let mut broken = Vec::new();
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        match long.get(path.as_str()) {
            Some(most) if lines > *most => broken.push(format!("{path} has grown to {lines} lines from {most}")),
            Some(_) if lines <= FILE_LINES_MAX => broken.push(format!("{path} is short now: remove its entry")),
            None if lines > FILE_LINES_MAX => broken.push(format!("{path} has {lines} lines; split it by meaning")),
            _ => {}
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn functions_are_short() {
    let mut found: Vec<(String, String)> = Vec::new();
    for (path, text) in rust_files() {
        let long = functions(&text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        found.extend(long.map(|(name, _)| (path.clone(), name)));
    }
    found.sort();
    let found: Vec<(&str, &str)> = found.iter().map(|(path, name)| (path.as_str(), name.as_str())).collect();
    assert_eq!(found, LONG_FUNCTIONS, "left: functions over {FUNCTION_LINES_MAX} lines; right: the list");
}

#[test]
fn assertions_stay() {
    let count: usize = rust_files().iter().filter(|(path, _)| is_product(path)).map(|(_, text)| assertions(text)).sum();
    assert!(count >= ASSERTIONS_MIN, "{count} assertions outside of tests are fewer than {ASSERTIONS_MIN}");
}

#[test]
fn assertions_have_one_fact() {
    let joined: Vec<(String, usize)> =
        rust_files().into_iter().map(|(path, text)| (path, joined(&text))).filter(|(_, count)| *count > 0).collect();
    let count: usize = joined.iter().map(|(_, count)| count).sum();
    assert!(count <= JOINED_ASSERTIONS_MAX, "{count} are more than {JOINED_ASSERTIONS_MAX}; split them: {joined:?}");
}

#[test]
fn types_have_names_of_their_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in rust_files().into_iter().filter(|(path, _)| !path.contains("tests")) {
        for name in product_lines(&text).into_iter().filter_map(declared_type) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    places.retain(|name, places| places.len() > 1 && name != "Error" && name != "Result");
    let names: Vec<&str> = places.keys().map(String::as_str).collect();
    assert_eq!(names, SHARED_NAMES, "left: names of several types; right: the list. {places:#?}");
}

#[test]
fn doc_comments_name_their_subject() {
    let mut found = Vec::new();
    for (path, text) in rust_files().into_iter().filter(|(path, _)| !HELP_TEXTS.contains(&path.as_str())) {
        found.extend(dangling(&text).into_iter().map(|line| format!("{path}: {line}")));
    }
    assert!(found.is_empty(), "begin with a noun or a verb in the third person:\n{}", found.join("\n"));
}

#[test]
fn clocks_are_read_in_few_places() {
    let is_product = |path: &str| ["src/", "crates/", "shards/src/"].iter().any(|root| path.starts_with(root));
    let mut readers: Vec<String> = Vec::new();
    let is_other = |path: &str| path.contains("test") || path.contains("/examples/");
    for (path, text) in rust_files().into_iter().filter(|(path, _)| is_product(path) && !is_other(path)) {
        if reads_clock(&text) {
            readers.push(path);
        }
    }
    let is_in = |place: &str, path: &str| path == place || place.ends_with('/') && path.starts_with(place);
    let is_known = |path: &String| CLOCK_READERS.iter().any(|place| is_in(place, path));
    let new: Vec<&String> = readers.iter().filter(|path| !is_known(path)).collect();
    assert!(new.is_empty(), "pass the time in: {new:?}");
    let is_used = |place: &&&str| readers.iter().any(|path| is_in(place, path));
    let unused: Vec<&&str> = CLOCK_READERS.iter().filter(|place| !is_used(place)).collect();
    assert!(unused.is_empty(), "these read no clock any more: {unused:?}");
}

#[test]
fn planted_violations_are_found() {
    assert!(reads_clock("let now = Instant::now();"));
    assert!(reads_clock("    let now_ms = unix_ms();"));
    let long = format!("pub fn long() {{\n{}}}\nfn short() {{}}\n", "    a();\n".repeat(FUNCTION_LINES_MAX));
    assert_eq!(functions(&long), [("long".to_owned(), FUNCTION_LINES_MAX + 2)]);
    assert_eq!(declared_type("pub struct Place(u32);"), Some("Place"));
    assert_eq!(declared_type("    pub(in crate::api) type Place = u32;"), Some("Place"));
    assert_eq!(declared_type("    enum Place {"), Some("Place"));
    assert_eq!(declared_type("unsafe trait Place {}"), Some("Place"));
    assert_eq!(declared_type("type Place<'a> = &'a str;"), Some("Place"));
    assert_eq!(dangling("/// What it is.\nfn a() {}\n//! Who it is.\n").len(), 2);
    assert_eq!(dangling("    // Whoever asks.\n/// A link of whoever asks.\nlet a = \"Whoever \";\n").len(), 2);
    let asserting = "fn a() {\n    assert!(b());\n    debug_assert_eq!(c, d);\n    // assert!(e)\n}\n";
    assert_eq!(assertions(asserting), 2);
    assert_eq!(assertions(&format!("#[cfg(test)]\nmod tests {{\n    {asserting}}}\n")), 0);
}

#[test]
fn right_code_is_left_alone() {
    assert!(!reads_clock("let now_ms = services.unix_ms();"));
    assert!(!reads_clock("fn a() {}\n#[cfg(test)]\nmod tests {\n    let now = Instant::now();\n}\n"));
    assert_eq!(declared_type("    pub struct_of: u32,"), None);
    assert_eq!(declared_type("    type Item = u32;"), None, "an associated type");
    assert_eq!(product_lines("a();\n#[cfg(test)]\nmod tests {\n    struct Place;\n}\nb();\n"), ["a();", "b();"]);
    assert!(dangling("/// First line.\n/// What follows is the second line.\nfn a() {}\n").is_empty());
}

/// True for a file of the product, and false for one of tests.
fn is_product(path: &str) -> bool {
    let is_of_tests = path.split('/').any(|part| ["tests", "tests.rs", "testing.rs", "benches"].contains(&part));
    ["src/", "crates/", "shards/src/"].iter().any(|root| path.starts_with(root)) && !is_of_tests
}

/// Returns the number of assertions in a file, without its items for tests.
fn assertions(text: &str) -> usize {
    let code = product_lines(text).into_iter().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| ["assert!(", "assert_eq!(", "assert_ne!("].map(|name| line.matches(name).count())).sum()
}

/// Returns the lines of a file, without its items for tests.
fn product_lines(text: &str) -> Vec<&str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut lines, mut kept) = (text.lines(), Vec::new());
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let ends = |next: &&str| indent(next) == indent(line) && next.ends_with(['}', ';']);
            lines.by_ref().find(ends);
        } else {
            kept.push(line);
        }
    }
    kept
}

/// Returns the number of assertions that join facts with `&&`.
fn joined(text: &str) -> usize {
    text.split("assert!(").skip(1).filter(|rest| is_joined(rest)).count()
}

/// True if an argument has `&&` outside of its brackets and texts. `rest` begins with the argument.
fn is_joined(rest: &str) -> bool {
    let (mut depth, mut is_text, mut before) = (0_usize, false, ' ');
    for c in rest.chars() {
        match c {
            '"' if before != '\\' => is_text = !is_text,
            _ if is_text => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ')' | ']' | '}' | ',' if depth == 0 => return false,
            '&' if depth == 0 && before == '&' => return true,
            _ => {}
        }
        before = c;
    }
    false
}

#[test]
fn planted_joined_assertions_are_found() {
    let text = "!(a && b);!(a(b && c), \"d && e\");!(a == \"(\" && b, \"c\");!(a, b && c);".replace('!', "assert!");
    assert_eq!(joined(&text), 2);
}

/// True if code outside of test modules reads a clock. A method of that name belongs to a clock that was passed in.
fn reads_clock(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let is_of_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ");
    let end = lines.windows(2).position(is_of_tests).unwrap_or(lines.len());
    lines[..end].iter().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        CLOCK_READS.iter().any(|read| code.match_indices(read).any(|(at, _)| !code[..at].ends_with('.')))
    })
}

/// A pronoun without an actor, which no comment may have.
const WITHOUT_ACTOR: &str = "hoever ";

/// Returns the first lines of doc comments that begin with a dangling word, and the comments with a pronoun that names no
/// actor.
fn dangling(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_within = false;
    for line in text.lines().map(str::trim_start) {
        found.extend((line.starts_with("//") && line.contains(WITHOUT_ACTOR)).then(|| line.to_owned()));
        let doc = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        if let Some(doc) = doc.filter(|_| !is_within)
            && DANGLING.iter().any(|word| doc.starts_with(word))
        {
            found.push(doc.to_owned());
        }
        is_within = line.starts_with("///") || line.starts_with("//!");
    }
    found
}

/// Returns the name of a type that a line declares. An indented `type` without `pub` belongs to a trait.
fn declared_type(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let rest = without_visibility(trimmed);
    let is_associated = rest.len() < line.len() && rest.len() == trimmed.len();
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let kinds = ["struct ", "enum ", "trait ", if is_associated { "trait " } else { "type " }];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Returns a declaration without `pub` or `pub(…)`.
fn without_visibility(declaration: &str) -> &str {
    let Some(after) = declaration.strip_prefix("pub") else { return declaration };
    let after = after.strip_prefix('(').and_then(|inner| inner.split_once(')')).map_or(after, |(_, after)| after);
    after.strip_prefix(' ').unwrap_or(declaration)
}

/// Returns the name and the number of lines of each function of more than one line, as rustfmt lays it out.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else { continue };
        let closes = |line: &str| line.len() == indent + 1 && line.ends_with('}');
        let end = lines[start..].iter().position(|line| closes(line) && line[..indent].trim().is_empty());
        found.extend(end.filter(|end| *end > 0).map(|end| (name.to_owned(), end + 1)));
    }
    // A one-line function ends at the brace of what follows it: only the shortest reading counts.
    found.retain(|(_, lines)| *lines > 1);
    found
}

/// Returns the name of a function that begins on a line and does not end there.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = without_visibility(line);
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    let ends_here = line.ends_with('}') || line.ends_with(';');
    rest.split(['(', '<']).next().filter(|_| !ends_here)
}

/// Returns every Rust file of ours, with its path from the root.
fn rust_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> =
        ["src", "crates", "shards", "loadgen", "bench", "tests", "fuzz"].map(|name| root.join(name)).to_vec();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("an entry of the repository can be read").path();
            let name = path.strip_prefix(root).expect("it is below the root").to_string_lossy().into_owned();
            if path.is_dir() && !name.ends_with("target") && !name.contains("node_modules") {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push((name, std::fs::read_to_string(&path).expect("sources are UTF-8")));
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "no sources below {}", root.display());
    files
}
