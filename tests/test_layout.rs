//! The layout of the tests: short names that begin with the feature, and functions that fit on a screen.

use std::path::{Path, PathBuf};

/// Longest path of a test without its crate, in characters, as CI prints it: `theme::feature::case`.
const NAME_LEN_MAX: usize = 60;

/// Most lines of a function: a longer scenario is several tests.
const FUNCTION_LINES_MAX: usize = 70;

/// A function of a test file.
struct Function {
    name: String,
    lines: usize,
    is_test: bool,
}

#[test]
fn test_names_are_short() {
    let mut long = Vec::new();
    for (path, text) in test_files() {
        let module = module_of(&path);
        let tests = functions(&text).into_iter().filter(|function| function.is_test);
        long.extend(
            tests.map(|test| format!("{module}{}", test.name)).filter(|name| name.chars().count() > NAME_LEN_MAX),
        );
    }
    assert!(long.is_empty(), "longer than {NAME_LEN_MAX} characters:\n{}", long.join("\n"));
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for (path, text) in test_files() {
        let all = functions(&text).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
        long.extend(all.map(|function| format!("{}: {} has {} lines", path.display(), function.name, function.lines)));
    }
    assert!(long.is_empty(), "longer than {FUNCTION_LINES_MAX} lines:\n{}", long.join("\n"));
}

#[test]
fn themes_export_nothing() {
    let theme_files = test_files().into_iter().filter(|(path, _)| path.starts_with("e2e"));
    for (path, text) in theme_files.filter(|(path, _)| !path.starts_with("e2e/support")) {
        let exported: Vec<&str> = text.lines().filter(|line| is_public(line)).collect();
        assert!(exported.is_empty(), "{} exports what belongs in e2e/support: {exported:?}", path.display());
    }
}

/// True if a line makes something public.
fn is_public(line: &str) -> bool {
    ["pub ", "pub("].iter().any(|start| line.trim_start().starts_with(start))
}

/// The files below `tests/`, with their paths from there.
fn test_files() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of tests can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("a test file can be read");
                found.push((path.strip_prefix(&root).expect("it is below the root").to_owned(), text));
            }
        }
    }
    assert!(found.len() > 50, "only {} files of tests", found.len());
    found
}

/// The module path of a file within its test binary, with `::` at the end.
fn module_of(path: &Path) -> String {
    // A file at the top is a binary of its own, and the first folder of the others is one.
    let modules = path.with_extension("");
    let modules = modules.iter().skip(1).map(|part| part.to_string_lossy());
    modules.filter(|part| part != "mod" && part != "main").map(|part| format!("{part}::")).collect()
}

/// The functions of a file that `rustfmt` has formatted. A test in an inner module bears the name of that, too.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut inner = String::new();
    let mut is_test = false;
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        if let Some(module) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            inner = format!("{module}::");
        } else if *line == "}" {
            inner.clear();
        }
        is_test |= code == "#[test]";
        let Some((before, rest)) = code.split_once("fn ") else { continue };
        let is_function = before.split_whitespace().all(|word| word.starts_with("pub") || word == "const");
        if !is_function || code.starts_with("//") {
            continue;
        }
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let end = format!("{indent}}}");
        let one_line = line.ends_with('}') || line.ends_with(';');
        let count = if one_line { 1 } else { 1 + lines[at..].iter().take_while(|line| **line != end).count() };
        found.push(Function { name: format!("{inner}{name}"), lines: count, is_test });
        is_test = false;
    }
    found
}

#[test]
fn planted_functions_are_found() {
    let long = format!("mod tests {{\n    #[test]\n    fn a_b() {{\n{}    }}\n}}\n", "        c();\n".repeat(80));
    let found = functions(&format!("{long}pub(crate) fn d(e: fn()) {{}}\n"));
    assert_eq!(found[0].name, "tests::a_b");
    assert_eq!(found[0].lines, 82);
    assert!(found[0].is_test);
    assert_eq!(found[1].name, "d");
    assert_eq!(found[1].lines, 1);
    assert!(!found[1].is_test);
    assert_eq!(module_of(Path::new("e2e/edge/tls.rs")), "edge::tls::");
    assert_eq!(module_of(Path::new("fleet_sim/main.rs")), "");
    assert_eq!(module_of(Path::new("tidy.rs")), "");
}
