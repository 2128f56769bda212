//! Plain words: a list of phrases that no text for people may use, and short commit subjects.
//!
//! The surfaces are the rendered help of every command, settings, alarms, metrics and exit reasons; the texts in the
//! sources of server, load generator, console and pages; the description of the API; and the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use carom::api::admin::metrics;
use carom::commands::cli::Cli;
use carom_settings::exit::Reason;
use carom_settings::keys::SETTINGS;
use carom_telemetry::alarms::Alarm;
use clap::CommandFactory;

/// Phrases that come from literal translation, each with a plain equivalent. A phrase matches in any case and across
/// line breaks.
const DENIED: &[(&str, &str)] = &[
    ("holds no more", "is expired, is revoked"),
    ("anew", "again; restart"),
    ("is none", "is invalid; does not exist"),
    ("are none", "are invalid; do not exist"),
    ("that there are", "existing"),
    ("nobody in particular", "without an API key"),
    ("from where you are", "your network"),
    ("what stands", "the content of"),
    ("goes on to", "continues to"),
    ("is told", "gets, is notified"),
    ("whoever", "anyone who"),
    ("put away", "archived"),
    ("brought back", "restored"),
];

/// Nouns that `is no` must not precede, except after `there`: `is not a` is plain.
const NOUNS: &[&str] = &[
    "host", "json", "size", "number", "text", "name", "url", "address", "code", "key", "domain", "picture", "colour",
    "template", "file", "time", "date", "whole", "role",
];

/// The longest subject of a commit, in characters.
const SUBJECT_CHARS_MAX: usize = 72;

/// A text that people read: where it is from, and for files the line on which it begins.
struct Text {
    place: String,
    line: Option<usize>,
    text: String,
}

// What is checked.

#[test]
fn rendered_texts_are_plain() {
    let mut texts = help();
    let rendered = |place: &str, text: &str| Text { place: place.to_owned(), line: None, text: text.to_owned() };
    for setting in &SETTINGS {
        texts.push(rendered(&format!("setting {}", setting.name), &format!("{} ({})", setting.doc, setting.kind)));
    }
    texts.extend(Alarm::ALL.map(|alarm| rendered(&format!("alarm {}", alarm.name()), alarm.meaning())));
    for reason in Reason::ALL {
        let text = format!("{}. {}", reason.meaning(), reason.remedy());
        texts.push(rendered(&format!("exit code {}", reason.code()), &text));
    }
    let metrics = metrics::sample_page();
    texts.extend(metrics.lines().filter(|line| line.starts_with("# HELP")).map(|line| rendered("metric", line)));
    check(&texts);
}

#[test]
fn program_texts_are_plain() {
    check(&below(&["src", "crates", "shards/src", "loadgen/src"], &["rs"]));
}

#[test]
fn console_and_page_texts_are_plain() {
    check(&below(&["src/api/console/web", "src/pages"], &["js", "html"]));
}

#[test]
fn api_description_is_plain() {
    check(&below(&["src/api/rest/openapi.json"], &["json"]));
}

#[test]
fn search_description_states_index_and_limits() {
    let text = std::fs::read_to_string(root().join("src/api/rest/openapi.json")).expect("there is a description");
    let api: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let list = api["paths"]["/rest/v3/short-urls"]["get"]["description"].as_str().expect("lists are described");
    let millis = |time: std::time::Duration| format!("{} ms", time.as_millis());
    let times = [carom_limits::SEARCH_TIME_MAX, carom_limits::LIST_TIME_MAX].map(millis);
    for part in ["index", "`links.search_memory`", &times[0], &times[1]] {
        assert!(list.contains(part), "{part} is missing: {list}");
    }
    assert!(list.replace(',', "").contains(&carom_limits::LIST_LOOKED_MAX.to_string()), "{list}");
}

#[test]
fn documentation_is_plain() {
    check(&below(&["docs", "README.md", "CHANGELOG.md", "deploy"], &[]));
}

#[test]
fn commit_subjects_are_short() {
    // A source package has no history, and a shallow clone only a part of it.
    let Some(log) = subjects() else { return };
    let long = long_subjects(&log);
    assert!(long.is_empty(), "subjects of more than {SUBJECT_CHARS_MAX} characters:\n{}", long.join("\n"));
}

// The rules.

fn check(texts: &[Text]) {
    assert!(!texts.is_empty(), "no texts found");
    let found: Vec<String> = texts.iter().flat_map(denied).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The denied phrases in a text, each with its place and what to say instead.
fn denied(text: &Text) -> Vec<String> {
    let words = words(&text.text);
    let mut found = Vec::new();
    let mut report = |at: usize, phrase: &str, instead: &str| {
        let line = text.line.map_or(String::new(), |line| format!(":{}", line + words[at].1));
        found.push(format!("{}{line}: says \"{phrase}\"; write \"{instead}\"", text.place));
    };
    for at in 0..words.len() {
        let says = |phrase: &str| {
            let mut rest = words[at..].iter().map(|(word, _)| word.as_str());
            phrase.split(' ').all(|word| rest.next() == Some(word))
        };
        // "There is none" is plain.
        let follows_there = at > 0 && words[at - 1].0 == "there";
        let is_plain = |phrase: &str| follows_there && phrase.ends_with(" none");
        for (phrase, instead) in DENIED.iter().filter(|(phrase, _)| says(phrase) && !is_plain(phrase)) {
            report(at, phrase, instead);
        }
        for noun in NOUNS.iter().filter(|noun| !follows_there && says(&format!("is no {noun}"))) {
            report(at, &format!("is no {noun}"), &format!("is not a {noun}"));
        }
    }
    found
}

/// The words of a text in small letters, each with the number of line breaks before it. Marks of comments at the start
/// of a line do not part a phrase, any other punctuation does.
fn words(text: &str) -> Vec<(String, usize)> {
    let mut words = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let content = content.trim_start().trim_start_matches(['#', '/', '*', '>', '!']);
        for part in content.split_whitespace() {
            let is_word = |c: char| c.is_alphanumeric() || c == '\'' || c == '_' || c == '-';
            let mut rest = part;
            while !rest.is_empty() {
                let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
                let end = if end == 0 { rest.find(is_word).unwrap_or(rest.len()) } else { end };
                words.push((rest[..end].to_lowercase(), line));
                rest = &rest[end..];
            }
        }
    }
    words
}

/// Subjects that are too long, of a log with a subject per line.
fn long_subjects(log: &str) -> Vec<String> {
    log.lines().filter(|subject| subject.chars().count() > SUBJECT_CHARS_MAX).map(str::to_owned).collect()
}

// Reading texts.

/// The short and the long help of every command.
fn help() -> Vec<Text> {
    let mut root = Cli::command();
    root.build();
    let mut waiting = vec![("carom".to_owned(), root)];
    let mut texts = Vec::new();
    while let Some((name, mut command)) = waiting.pop() {
        let pages = [("-h", command.render_help()), ("--help", command.render_long_help())];
        for (flag, page) in pages {
            texts.push(Text { place: format!("{name} {flag}"), line: None, text: page.to_string() });
        }
        waiting.extend(command.get_subcommands().map(|one| (format!("{name} {}", one.get_name()), one.clone())));
    }
    texts
}

/// The texts of all files below some paths whose names end with one of `endings`, or of all files without endings.
fn below(paths: &[&str], endings: &[&str]) -> Vec<Text> {
    let mut waiting: Vec<PathBuf> = paths.iter().map(|path| root().join(path)).collect();
    let mut texts = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder of the repository can be read");
            waiting.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !endings.is_empty() && !endings.contains(&ending) {
            continue;
        }
        let place = path.strip_prefix(root()).expect("it is below the root").to_string_lossy().into_owned();
        // Pictures are no texts, and a source package may come without some files.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        texts.extend(texts_of(&place, &text));
    }
    texts
}

/// The texts of a file that people read: of Rust the strings outside tests, of scripts in the console everything but
/// comments.
fn texts_of(place: &str, text: &str) -> Vec<Text> {
    let whole = |text: String| vec![Text { place: place.to_owned(), line: Some(1), text }];
    if place.ends_with("uplot.js") || place.ends_with("tests.rs") {
        return vec![];
    }
    if place.ends_with(".rs") {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let literals = strings(text).into_iter();
        return literals.map(|(line, text)| Text { place: place.to_owned(), line: Some(line), text }).collect();
    }
    if place.ends_with(".js") {
        let is_comment = |line: &&str| ["//", "/*", "*"].iter().any(|mark| line.trim_start().starts_with(mark));
        return whole(
            text.lines().map(|line| if is_comment(&line) { "" } else { line }).collect::<Vec<_>>().join("\n"),
        );
    }
    whole(text.to_owned())
}

/// The string literals of Rust code, each with its line. A line break after a backslash is left out, as the compiler
/// does.
fn strings(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(c) = rest.chars().next() {
        let (len, literal) = match c {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            '\'' => (character(rest), None),
            'r' if rest.starts_with("r#\"") => {
                let end = rest.find("\"#").map_or(rest.len(), |end| end + 2);
                (end, Some(rest[3..end].to_owned()))
            }
            '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                let end = end.map_or(rest.len(), |end| end + 2);
                (end, Some(rest[1..end].trim_end_matches('"').replace("\\n", " ").replace("\\\n", "\n")))
            }
            _ => (c.len_utf8(), None),
        };
        found.extend(literal.map(|literal| (line, literal)));
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => text[3..].find('\'').map_or(1, |end| end + 4),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// The subjects of the commits after the one that brought this file; `None` without a history.
fn subjects() -> Option<String> {
    let git = |arguments: &[&str]| {
        let made = Command::new("git").current_dir(root()).args(arguments).output().ok()?;
        made.status.success().then(|| String::from_utf8_lossy(&made.stdout).into_owned())
    };
    if !root().join(".git").exists() {
        return None;
    }
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", "tests/words.rs"])?;
    let first = added.lines().last()?;
    git(&["log", "--no-merges", "--format=%s", &format!("{first}..HEAD")])
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

// The rules bite.

#[test]
fn planted_phrases_are_found() {
    let of = |place: &str, text: &str| texts_of(place, text).iter().flat_map(denied).collect::<Vec<_>>();
    let rust = of("src/a.rs", "fn a() {\n    b('\"', \"x\");\n    c(\"a key that\\nholds \\\n        no more\");\n}");
    assert_eq!(rust, ["src/a.rs:3: says \"holds no more\"; write \"is expired, is revoked\""]);
    assert_eq!(
        of("src/a.rs", "// anew\nfn a<'a>(b: &'a str) {}\n#[cfg(test)]\nmod tests {\n const A: &str = \"anew\";\n}")
            .len(),
        0
    );
    assert_eq!(
        of("src/api/console/web/a.js", "// anew\nsay(`Whoever asks`);")[0],
        "src/api/console/web/a.js:2: says \"whoever\"; write \"anyone who\""
    );
    assert_eq!(of("src/pages/a.html", "<p>It is\nno host.</p>").len(), 1);
    assert_eq!(of("src/api/rest/openapi.json", "{\"description\": \"Starts anew.\"}").len(), 1);
    assert_eq!(of("deploy/a.conf", "# those that\n# there are").len(), 1);
    assert_eq!(of("docs/a.md", "> What\n> stands. It is none.").len(), 2);
    assert_eq!(of("docs/a.md", "A manewver. That. There are. If there is no host.").len(), 0);
    assert_eq!(long_subjects(&format!("docs: short\n{}\n{}", "x".repeat(72), "ü".repeat(73))).len(), 1);
}
