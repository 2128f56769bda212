//! The documentation: reference pages match the code, and links and anchors resolve. `tests/words.rs` checks its words.
//!
//! `make docs` sets `CAROM_WRITE_DOCS` and runs the two tests of generated text, which then write it instead of comparing it.

mod alerts;
mod benchmark;
mod bypass;
mod fleet;
mod http_api;
mod markdown;
mod reference;
mod scale;
mod statements;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use carom_telemetry::alarms::Alarm;

use markdown::{anchors, links};

/// Set to any value, this variable makes the tests of generated text write it.
const WRITE: &str = "CAROM_WRITE_DOCS";

/// Parts of the shape that every alarm in the runbook has, in order.
const ALARM_PARTS: &[&str] =
    &["**Severity:**", "**Users see:**", "**Check:**", "**Fix:**", "**Over when:**", "**Prevent:**"];

#[test]
fn reference_pages_are_current() {
    let mut stale = Vec::new();
    for (name, text) in reference::pages() {
        let path = root().join("docs/src/reference").join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &text).expect("the page can be written");
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "stale pages in docs/src/reference: {stale:?}; run `make docs` and commit the result");
}

#[test]
fn benchmark_tables_are_current() {
    for name in ["docs/src/performance/results.md", "README.md"] {
        let path = root().join(name);
        // A source package may come without it.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let new = benchmark::updated(&text).unwrap_or_else(|| panic!("{name} lacks the markers of the benchmark"));
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, new).expect("the page can be written");
        } else {
            assert!(new == text, "{name}: the benchmark table is stale; run `make docs` and commit the result");
        }
    }
    let (path, chart) = (root().join(benchmark::CHART), benchmark::chart());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, chart).expect("the chart can be written");
    } else {
        let current = std::fs::read_to_string(&path).is_ok_and(|text| text == chart);
        assert!(current, "{}: the chart is stale; run `make docs` and commit the result", benchmark::CHART);
    }
}

#[test]
fn links_and_anchors_resolve() {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        broken.extend(broken_links(path, text, &pages, &|target| root().join(target).exists()));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn summary_lists_every_page() {
    let pages = pages();
    let summary = pages.get(Path::new("docs/src/SUMMARY.md")).expect("the book has a summary");
    let listed: Vec<PathBuf> =
        links(summary).iter().map(|target| Path::new("docs/src").join(target.trim_start_matches("./"))).collect();
    let book = pages.keys().filter(|path| path.starts_with("docs/src") && !path.ends_with("SUMMARY.md"));
    let unlisted: Vec<&PathBuf> = book.filter(|path| !listed.contains(path)).collect();
    assert!(unlisted.is_empty(), "SUMMARY.md does not list {unlisted:?}");
    let missing: Vec<&PathBuf> = listed.iter().filter(|path| !pages.contains_key(*path)).collect();
    assert!(missing.is_empty(), "SUMMARY.md lists pages that do not exist: {missing:?}");
}

#[test]
fn book_links_stay_within_the_book() {
    // mdBook and the Debian package ship docs/src alone.
    let book = pages().into_iter().filter(|(path, _)| path.starts_with("docs/src"));
    let outside: Vec<String> = book
        .flat_map(|(path, text)| {
            let local = links(&text).into_iter().filter(|target| !is_external(target) && !target.starts_with('#'));
            local.map(|target| (path.clone(), target)).collect::<Vec<_>>()
        })
        .filter(|(path, target)| !resolve(path, target).starts_with("docs/src"))
        .map(|(path, target)| format!("{}: links to {target}", path.display()))
        .collect();
    assert!(outside.is_empty(), "\n{}", outside.join("\n"));
}

#[test]
fn runbook_covers_every_alarm() {
    let runbook = std::fs::read_to_string(root().join("docs/src/operate/runbook.md")).expect("there is a runbook");
    let problems: Vec<String> = Alarm::ALL.iter().flat_map(|alarm| alarm_problems(&runbook, *alarm)).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

// The rules.

fn broken_links(
    path: &Path,
    text: &str,
    pages: &BTreeMap<PathBuf, String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let mut broken = Vec::new();
    for target in links(text).iter().filter(|target| !is_external(target)) {
        let (file, anchor) = target.split_once('#').map_or((target.as_str(), None), |(file, at)| (file, Some(at)));
        let file = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
        if !exists(&file) {
            broken.push(format!("{}: links to {target}, which does not exist", path.display()));
        } else if let (Some(anchor), Some(page)) = (anchor, pages.get(&file))
            && !anchors(page).iter().any(|known| known == anchor)
        {
            broken.push(format!("{}: links to {target}, but the page has no such heading", path.display()));
        }
    }
    broken
}

fn alarm_problems(runbook: &str, alarm: Alarm) -> Vec<String> {
    let name = alarm.name();
    let Some((_, section)) = runbook.split_once(&format!("\n### {name}\n")) else {
        return vec![format!("the runbook has no section {name}")];
    };
    let section = section.split("\n#").next().unwrap_or_default();
    let mut problems = Vec::new();
    let mut last = 0;
    for part in ALARM_PARTS {
        match section.find(part) {
            Some(at) if at >= last => last = at,
            Some(_) => problems.push(format!("{name}: {part} is out of order")),
            None => problems.push(format!("{name}: lacks {part}")),
        }
    }
    let severity = format!("**Severity:** {}", alarm.severity().name());
    if !section.contains(&severity) {
        problems.push(format!("{name}: the section does not say \"{severity}\", which is what the code says"));
    }
    problems
}

// Reading files.

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, by path from the root.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// README.md and every Markdown page below docs/ and deploy/, by path from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = ["README.md", "docs", "deploy"].map(|name| root().join(name)).to_vec();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder of the repository can be read");
            waiting.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "md")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            found.insert(path.strip_prefix(root()).expect("it is below the root").to_owned(), text);
        }
    }
    found
}

fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The path of a relative link from the root, without `..`.
fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(target.split('#').next().unwrap_or_default()).components() {
        match part {
            std::path::Component::ParentDir => _ = path.pop(),
            std::path::Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

// The rules bite.

#[test]
fn planted_violations_are_found() {
    let page = Path::new("docs/src/a.md");
    let pages = BTreeMap::from([(page.to_owned(), "# A\n\n## Of two words\n".to_owned())]);
    let check = |text: &str| broken_links(page, text, &pages, &|path| path == page).len();
    assert_eq!(check("[x](b.md)"), 1);
    assert_eq!(check("[x](#of-three-words)"), 1);
    assert_eq!(check("[x](../src/a.md#nothing)"), 1);
    assert_eq!(check("[x](#of-two-words) [y](a.md#a) `[z](b.md)` [w](https://example.com/#x)"), 0);
    let full = ALARM_PARTS.join(" x\n").replace("Severity:** x", "Severity:** critical");
    assert!(alarm_problems(&format!("\n### disk_full\n{full}"), Alarm::DiskFull).is_empty());
    assert_eq!(alarm_problems("\n### disk_full\n**Severity:** critical", Alarm::DiskFull).len(), 5);
    assert_eq!(
        alarm_problems(&format!("\n### disk_full\n{full}").replace("critical", "notice"), Alarm::DiskFull).len(),
        1
    );
    assert_eq!(alarm_problems("", Alarm::DiskFull).len(), 1);
}
