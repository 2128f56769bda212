//! Rules of the source tree: the shape of files, the direction of dependencies, and links that resolve.
//!
//! Each rule is a function of a path and a text, so that planted violations can show that it bites. The tables at the
//! top are the architecture; a change of them is a decision.

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/rust.rs"]
mod rust;

use std::path::{Path, PathBuf};

use carom_telemetry::alarms::Alarm;

use rust::{code_only, first, has_word, paths, product, room_of};

/// The only files with `unsafe`: each proves at its top that it is safe as a whole.
const UNSAFE_FILES: &[&str] = &[
    // The kernel's io_uring reads and writes memory of ours.
    "crates/ring/src/lib.rs",
    // The rings and frames of AF_XDP are memory shared with the kernel.
    "crates/xdp/src/socket.rs",
    // Requests to the kernel that take pointers, and for which rustix has no safe function.
    "crates/xdp/src/sys.rs",
];

/// Files and folders of the server that may start threads without a priority: the functions that ask for one, and commands.
/// All others call `services::threads::start`.
const THREAD_STARTERS: &[&str] = &["src/services/threads.rs", "src/commands/"];

/// Lines of the README: what somebody reads before deciding to try it. The rest is in `docs/`.
const README_LINES_MAX: usize = 260;

/// Entries of a release in the changelog.
const RELEASE_ENTRIES_MAX: usize = 25;

/// The rooms of `src/`, each with those that it may use, which come after it: the reverse of the code map in
/// ARCHITECTURE.md. Cargo orders the crates; these rooms are one crate, so that the compiler can inline across them.
const ROOMS: &[(&str, &[&str])] = &[
    ("main", &["commands", "node", "startup"]),
    ("node", &["api", "bridge", "core", "pages", "services", "startup"]),
    ("commands", &["bridge", "pages", "services", "startup"]),
    ("startup", &["pages", "services"]),
    ("core", &["bridge", "pages"]),
    ("api", &["bridge", "pages"]),
    ("services", &["bridge"]),
    ("bridge", &["pages"]),
    ("pages", &[]),
];

/// Most modules at the root of `src/`.
const ROOT_MODULES_MAX: usize = 8;

/// Most modules at the root of another crate. Beyond it, nobody finds a file by the names of the others.
const CRATE_MODULES_MAX: usize = 13;

/// The door of each third-party crate: files, or folders with a slash at the end. A crate of the workspace that a
/// library enters has no other door for it.
const DOORS: &[(&str, &[&str])] = &[
    ("glommio", &["src/core/executor.rs"]),
    (
        "carom_ring",
        &[
            "src/core/",
            "src/services/map_image/",
            "src/services/map_image.rs",
            "bench/",
            "loadgen/",
            "crates/xdp/tests/",
        ],
    ),
    ("aya", &["crates/xdp/src/program.rs"]),
    ("netlink_packet_route", &["crates/xdp/src/"]),
    ("io_uring", &["src/startup/preflight.rs", "crates/ring/"]),
    ("hyper", &["src/api.rs", "src/api/", "src/core/"]),
    ("http_body_util", &["src/api.rs", "src/api/", "src/core/"]),
    ("fjall", &["crates/store/src/links.rs", "crates/store/src/links/"]),
    ("lsm_tree", &["crates/store/src/links/rewriting.rs"]),
    ("flate2", &["src/pages/gzip.rs"]),
    ("lz4_flex", &["src/services/visit_log/segment.rs"]),
    ("maxminddb", &["src/bridge/geo.rs"]),
    ("sled", &["crates/store/src/ids.rs"]),
    ("httparse", &["crates/http/src/head/tests.rs", "loadgen/"]),
    ("toml", &["crates/settings/src/sources/file.rs", "crates/settings/src/registry/shown.rs"]),
    ("clap", &["src/commands/cli.rs", "src/commands/cli/", "loadgen/", "bench/"]),
    ("clap_complete", &["src/commands/cli/manual.rs"]),
    ("clap_mangen", &["src/commands/cli/manual.rs", "loadgen/src/command_line/manual.rs"]),
    ("ratatui", &["src/commands/top/", "src/commands/terminal.rs"]),
    ("url", &["crates/model/src/destination/", "crates/settings/src/value/"]),
    ("dashmap", &["crates/model/src/access/idempotency.rs", "src/services/search/query_workers.rs"]),
    (
        "data_encoding",
        &[
            "shards/src/space.rs",
            "crates/model/src/access/key.rs",
            "crates/model/src/query.rs",
            "crates/settings/src/value/colour.rs",
            "src/api/console/session.rs",
            "src/services/host_lists/apollo.rs",
            "crates/tls/src/lib.rs",
            "src/services/events/webhook.rs",
        ],
    ),
    ("form_urlencoded", &["src/api/query.rs", "src/services/events/mercure.rs"]),
    (
        "percent_encoding",
        &[
            "src/api/query.rs",
            "src/services/host_lists/notifications.rs",
            "crates/settings/src/value/redis_url.rs",
            "crates/settings/src/value/urls.rs",
            "crates/model/src/destination/long_url.rs",
        ],
    ),
    ("siphasher", &["crates/net/src/stack/keys.rs"]),
    ("redis", &["crates/redis/"]),
    ("aws_lc_rs", &["crates/tls/src/lib.rs"]),
    ("rustls", &["crates/tls/", "crates/http/src/tls.rs", "crates/redis/", "src/services/events/broker.rs"]),
    ("x509_parser", &["crates/tls/src/identity.rs"]),
    ("rustls_native_certs", &["crates/tls/src/trust.rs"]),
    (
        "ureq",
        &[
            "src/services/http.rs",
            "src/services/host_lists/http_text.rs",
            "src/commands/moving/http.rs",
            "src/commands/node_api.rs",
            "src/services/events/http_client.rs",
            "src/services/joins/peer.rs",
        ],
    ),
    ("jiff", &["crates/model/src/formats/dates.rs"]),
    ("socket2", &["src/core/listen.rs", "crates/ring/", "loadgen/"]),
    ("listenfd", &["src/core/listen.rs"]),
    ("sd_notify", &["src/node/announce.rs"]),
];

/// Crates that come in through one file, whichever it is.
const ONE_FILE_CRATES: &[&str] = &[
    "crc32fast",
    "hdrhistogram",
    "idna",
    "minijinja",
    "png",
    "pulldown_cmark",
    "qrcodegen",
    "rtrb",
    "signal_hook",
    "strsim",
];

/// Pure code: its input holds everything that it needs, so that a test needs nothing else.
const PURE: &[&str] = &["crates/http/src/", "crates/model/src/", "crates/net/src/", "shards/src/"];

/// Paths that pure code must not use.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Words that mark unfinished work, taken apart so that this file does not hold them.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Macros and attributes that must not stay.
const LEFTOVERS: &[&str] = &["dbg!", "todo!", "unimplemented!", "#[ignore"];

/// The crate whose examples in doc comments are tests. All other crates have `doctest = false`: to look for examples,
/// rustdoc reads and expands a whole crate.
const TESTED_EXAMPLES: &str = "crates/xdp/";

/// Places that exist on the machine of one person only.
const FOREIGN_PLACES: &[&str] = &[concat!("../", "shared"), concat!("/wo", "rk/")];

/// Folders with nothing that we wrote.
const SKIPPED: &[&str] = &[
    "target",
    "dist",
    ".git",
    "carom-data",
    "tests/data",
    "tests/npm/lighthouse/node_modules",
    "tests/npm/node_modules",
    "tests/npm/web-client/node_modules",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

// What is checked.

#[test]
fn every_module_opens_with_a_doc() {
    check_rust(opens_with_doc);
}

#[test]
fn no_unfinished_work_is_left() {
    check_rust(leftovers);
    check_texts(unfinished);
}

#[test]
fn examples_are_tested() {
    check_rust(untested_examples);
}

#[test]
fn unsafe_stays_in_its_files() {
    check_rust(unsafe_elsewhere);
}

#[test]
fn threads_name_their_priority() {
    check_rust(threads_without_priority);
}

#[test]
fn dependencies_point_one_way() {
    check_rust(rooms);
    check_rust(purity);
    check_rust(uses_of_bench);
}

#[test]
fn crate_roots_have_few_modules() {
    check_rust(root_modules);
}

#[test]
fn third_party_crates_have_one_door() {
    check_rust(doors);
    for name in ONE_FILE_CRATES {
        let files = rust_files();
        let users: Vec<&String> =
            files.iter().filter(|(path, text)| enters(path, text, name)).map(|(path, _)| path).collect();
        assert!(users.len() <= 1, "{name} has several doors: {users:?}");
    }
}

#[test]
fn links_resolve() {
    check_texts(|path, text| broken_links(path, text, &|target| root().join(target).exists()));
}

#[test]
fn no_file_refers_outside_the_repository() {
    check_texts(foreign_places);
}

#[test]
fn every_alarm_is_raised_in_a_test() {
    let mut missing: Vec<&str> = Alarm::ALL.iter().map(|alarm| alarm.name()).collect();
    for (_, text) in rust_files().iter().filter(|(path, _)| path.starts_with("tests/e2e/")) {
        let calls: Vec<&str> = text.split("is_seen(").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        missing.retain(|name| !calls.iter().any(|call| call.contains(&format!("\"{name}\""))));
    }
    assert!(missing.is_empty(), "no test causes {missing:?} and looks at it with `is_seen`");
}

#[test]
fn readme_and_changelog_are_short() {
    check_texts(short_enough);
}

// The rules.

fn opens_with_doc(_: &str, text: &str) -> Vec<String> {
    let opens = text.trim_start().starts_with("//! ");
    if opens { vec![] } else { vec!["does not open with `//!`".into()] }
}

fn leftovers(_: &str, text: &str) -> Vec<String> {
    let code = code_only(text);
    LEFTOVERS.iter().filter(|word| has_word(&code, word)).map(|word| format!("holds `{word}`")).collect()
}

fn unfinished(path: &str, text: &str) -> Vec<String> {
    // A library of others, kept as it is.
    if path == "src/api/console/web/uplot.js" {
        return vec![];
    }
    UNFINISHED.iter().filter(|word| has_word(text, word)).map(|word| format!("holds {word}")).collect()
}

fn unsafe_elsewhere(path: &str, text: &str) -> Vec<String> {
    let allowed = UNSAFE_FILES.contains(&path) || !has_word(&code_only(text), "unsafe");
    if allowed { vec![] } else { vec!["uses unsafe, and is not one of the files for it".into()] }
}

fn untested_examples(path: &str, text: &str) -> Vec<String> {
    if path.starts_with(TESTED_EXAMPLES) {
        return vec![];
    }
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    // Every second fence closes what the one before has opened.
    let opened = comments.filter_map(|line| line.trim().strip_prefix("```")).step_by(2).filter(|info| *info != "text");
    opened.map(|info| format!("has an example that no test runs (```{info}); mark it as text")).collect()
}

fn threads_without_priority(path: &str, text: &str) -> Vec<String> {
    let may_start = |place: &str| path == place || place.ends_with('/') && path.starts_with(place);
    let is_server = path.starts_with("src/") && !path.contains("/tests");
    if !is_server || THREAD_STARTERS.iter().any(|place| may_start(place)) {
        return vec![];
    }
    let starts = |path: &String| path.contains("thread::Builder") || path.ends_with("thread::spawn");
    let started = paths(&product(text)).into_iter().filter(starts);
    started.map(|call| format!("starts a thread with {call}; call services::threads::start")).collect()
}

fn rooms(path: &str, text: &str) -> Vec<String> {
    let Some(room) = room_of(path) else { return vec![] };
    let allowed: &[&str] = match ROOMS.iter().find(|(name, _)| *name == room) {
        Some((_, allowed)) => allowed,
        None => return vec![format!("{room} is in no table of tests/tidy.rs: say what it may use")],
    };
    let own = if room == "main" { "carom::" } else { "crate::" };
    let mut used: Vec<String> = paths(&product(text))
        .iter()
        .filter_map(|path| path.strip_prefix(own))
        .map(|path| first(path).to_owned())
        // A name with a capital is an item of the root, not a room.
        .filter(|used| used.starts_with(|c: char| c.is_lowercase() || c == '*'))
        .filter(|used| used != room && !allowed.contains(&used.as_str()))
        .collect();
    used.sort();
    used.dedup();
    used.iter().map(|used| format!("{room} must not use {used}")).collect()
}

fn purity(path: &str, text: &str) -> Vec<String> {
    let Some(pure) = PURE.iter().find(|room| path.starts_with(**room)) else { return vec![] };
    let paths = paths(&product(text));
    let below = |path: &String, room: &str| path == room || path.starts_with(&format!("{room}::"));
    let used = IMPURE.iter().filter(|impure| paths.iter().any(|path| below(path, impure)));
    let mut found: Vec<String> = used.map(|impure| format!("{pure} must not use {impure}")).collect();
    if paths
        .iter()
        .any(|path| ["std::time", "std::time::*", "std::net", "std::net::*", "std::*"].contains(&path.as_str()))
    {
        found.push(format!("{pure} must name what it uses of std"));
    }
    found
}

fn uses_of_bench(path: &str, text: &str) -> Vec<String> {
    let used = !path.starts_with("bench/") && paths(&code_only(text)).iter().any(|path| first(path) == "carom_bench");
    if used { vec!["uses carom_bench, which nothing may depend on".into()] } else { vec![] }
}

fn root_modules(path: &str, text: &str) -> Vec<String> {
    let most = match path {
        "src/lib.rs" => ROOT_MODULES_MAX,
        _ if path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") => CRATE_MODULES_MAX,
        _ => return vec![],
    };
    let declares = |line: &&str| line.ends_with(';') && (line.starts_with("mod ") || line.starts_with("pub mod "));
    let modules = text.lines().filter(declares).count();
    if modules > most { vec![format!("has {modules} modules; at most {most}, in folders by meaning")] } else { vec![] }
}

fn doors(path: &str, text: &str) -> Vec<String> {
    let through = |door: &&str| path == *door || door.ends_with('/') && path.starts_with(*door);
    let closed = DOORS.iter().filter(|(name, doors)| !doors.iter().any(through) && enters(path, text, name));
    closed.map(|(name, doors)| format!("uses {name}, whose door is {doors:?}")).collect()
}

/// True if a file of the server uses a crate, tests aside.
fn enters(path: &str, text: &str, name: &str) -> bool {
    (path.starts_with("src/") || path.starts_with("crates/") || path.starts_with("shards/src/"))
        && paths(&product(text)).iter().any(|path| first(path) == name)
}

fn short_enough(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    match path {
        "README.md" if lines > README_LINES_MAX => vec![format!("has {lines} lines; more than {README_LINES_MAX}")],
        "CHANGELOG.md" => text
            .split("\n## ")
            .skip(1)
            .map(|release| (release.lines().next().unwrap_or_default(), release.matches("\n* ").count()))
            .filter(|(_, entries)| *entries > RELEASE_ENTRIES_MAX)
            .map(|(title, entries)| format!("{title} has {entries} entries; more than {RELEASE_ENTRIES_MAX}"))
            .collect(),
        _ => vec![],
    }
}

fn foreign_places(_: &str, text: &str) -> Vec<String> {
    FOREIGN_PLACES.iter().filter(|place| text.contains(*place)).map(|place| format!("refers to {place}")).collect()
}

fn broken_links(path: &str, text: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    if !path.ends_with(".md") {
        return vec![];
    }
    // Every other piece is between fences, then between backticks: code, where brackets mean something else.
    let prose: String = text.split("```").step_by(2).flat_map(|prose| prose.split('`').step_by(2)).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let elsewhere =
        |target: &str| target.contains("://") || target.starts_with(['#', '<']) || target.starts_with("mailto:");
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let file = |target: &str| folder.join(target.split('#').next().unwrap_or_default());
    targets
        .filter(|target| !elsewhere(target) && !exists(&file(target)))
        .map(|target| format!("links to {target}, which is not there"))
        .collect()
}

// Reading files.

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn check_rust(rule: impl Fn(&str, &str) -> Vec<String>) {
    check(&rust_files(), rule);
}

fn check_texts(rule: impl Fn(&str, &str) -> Vec<String>) {
    check(&files(), rule);
}

fn check(files: &[(String, String)], rule: impl Fn(&str, &str) -> Vec<String>) {
    assert!(!files.is_empty(), "no files found below {}", root().display());
    let mut broken = Vec::new();
    for (path, text) in files {
        broken.extend(rule(path, text).iter().map(|what| format!("{path}: {what}")));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn rust_files() -> Vec<(String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// Every text file of ours, with its path from the root.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("an entry of the repository can be read").path();
            let name = path.strip_prefix(root()).expect("it is below the root").to_string_lossy().into_owned();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && !SKIPPED.contains(&name.as_str()) && name != "Cargo.lock" {
                // What is no text is no concern of these rules.
                found.extend(std::fs::read_to_string(&path).ok().map(|text| (name, text)));
            }
        }
    }
    found.sort();
    found
}

// The rules bite.

type Rule = fn(&str, &str) -> Vec<String>;

#[test]
fn planted_violations_are_found() {
    let unfinished_comment = format!("//! A.\n// {}: later\n", UNFINISHED[0]);
    let foreign = format!("see {}/page.md", FOREIGN_PLACES[0]);
    let wide_root = "mod a;\n".repeat(ROOT_MODULES_MAX + 1);
    let wide_crate = "pub mod a;\n".repeat(CRATE_MODULES_MAX + 1);
    let long_readme = "\n".repeat(README_LINES_MAX + 1);
    let long_release = format!("# Changelog\n\n## 0.1.0\n{}", "\n* An entry.".repeat(RELEASE_ENTRIES_MAX + 1));
    let planted: &[(Rule, &str, &str)] = &[
        (opens_with_doc, "src/a.rs", "// A comment.\nfn a() {}"),
        (leftovers, "src/a.rs", "fn a() { dbg!(1); }"),
        (leftovers, "src/a.rs", "fn a() { todo!() }"),
        (untested_examples, "src/a.rs", "//! A.\n//!\n//! ```\n//! a();\n//! ```\n"),
        (
            untested_examples,
            "src/a.rs",
            "/// ```text\n/// a\n/// ```\nfn a() {}\n    /// ```no_run\n    /// a();\n    /// ```\n",
        ),
        (leftovers, "src/a.rs", "#[ignore = \"slow\"]\nfn a() {}"),
        (leftovers, "src/a.rs", "const A: &[u8] = br#\"x\"#; fn a<'a>() { let b = '\"'; dbg!(b); }"),
        (unfinished, "README.md", &unfinished_comment),
        (unsafe_elsewhere, "src/api/mod.rs", "fn a() { unsafe { b() } }"),
        (threads_without_priority, "src/services/geo.rs", "fn a() { std::thread::Builder::new().spawn(b); }"),
        (threads_without_priority, "src/node/cores.rs", "use std::thread;\nfn a() { thread::spawn(b); }"),
        (threads_without_priority, "src/node/cores.rs", "use std::thread::{self, Builder};"),
        (rooms, "src/pages/qr.rs", "use crate::services::writer;"),
        (rooms, "src/bridge/load.rs", "use crate::{pages, core::{ring, mesh}};"),
        (rooms, "src/pages/qr.rs", "use crate::*;"),
        (rooms, "src/services/writer.rs", "fn a() { crate::api::b() }"),
        (rooms, "src/commands/app.rs", "use crate::node::serve;"),
        (rooms, "src/attic/a.rs", ""),
        (purity, "shards/src/map.rs", "use std::{collections::HashMap, fs::File};"),
        (purity, "shards/src/map.rs", "fn a() { std::time::Instant::now(); }"),
        (purity, "shards/src/map.rs", "use std::time;"),
        (uses_of_bench, "src/a.rs", "use carom_bench::run;"),
        (root_modules, "src/lib.rs", &wide_root),
        (root_modules, "crates/net/src/lib.rs", &wide_crate),
        (root_modules, "loadgen/src/main.rs", &wide_crate),
        (doors, "src/api/mod.rs", "use glommio::Task;"),
        (doors, "src/core/serve.rs", "use ::io_uring::IoUring;"),
        (doors, "crates/store/src/ids.rs", "fn a(b: fjall::Database) {}"),
        (doors, "src/main.rs", "use clap::Parser;"),
        (foreign_places, "README.md", &foreign),
        (short_enough, "README.md", &long_readme),
        (short_enough, "CHANGELOG.md", &long_release),
    ];
    for (rule, path, text) in planted {
        assert!(!rule(path, text).is_empty(), "not found in {path}: {text}");
    }
}

#[test]
fn correct_code_passes_every_rule() {
    let wide_folder = "mod a;\n".repeat(CRATE_MODULES_MAX + 1);
    let right: &[(Rule, &str, &str)] = &[
        (opens_with_doc, "src/a.rs", "//! What it is for.\n"),
        (leftovers, "src/a.rs", "// no dbg!() here\nconst A: &str = r#\"todo!() \"dbg!()\"#;"),
        (
            unsafe_elsewhere,
            "src/a.rs",
            "#![forbid(unsafe_code)]\n/* unsafe /* twice */ unsafe */ const A: &str = \"unsafe\";",
        ),
        (untested_examples, "src/a.rs", "//! ```text\n//! a\n//! ```\nconst A: &str = \"```\";"),
        (untested_examples, "crates/xdp/src/lib.rs", "//! ```no_run\n//! a();\n//! ```\n"),
        (unsafe_elsewhere, "crates/ring/src/lib.rs", "unsafe fn a() {}"),
        (threads_without_priority, "src/commands/top.rs", "fn a() { std::thread::spawn(b); }"),
        (threads_without_priority, "src/services/geo.rs", "fn a() { threads::start(Priority::Long, \"geo\", b); }"),
        (
            threads_without_priority,
            "src/services/geo.rs",
            "fn a() {}\n#[cfg(test)]\nmod tests { use std::thread::Builder; }",
        ),
        (rooms, "src/core/work.rs", "use carom_limits::HEAD_LEN_MAX;\nuse crate::core::mesh;"),
        (rooms, "src/main.rs", "use carom::{commands::cli, node};"),
        (rooms, "src/pages/qr.rs", "fn a() {}\n#[cfg(test)]\nmod tests { use crate::services::writer; }"),
        (purity, "shards/src/map.rs", "use std::time::Duration;\n#[cfg(test)]\nmod tests { use std::time::Instant; }"),
        (purity, "src/a.rs", "use std::fs;"),
        (root_modules, "crates/net/src/stack.rs", &wide_folder),
        (short_enough, "CHANGELOG.md", "# Changelog\n\n## 0.2.0\n\n* An entry.\n\n## 0.1.0\n\n* An entry.\n"),
        (doors, "crates/settings/src/sources/file.rs", "use toml::Spanned;"),
        (doors, "src/a.rs", "fn a(url: &str) { b(url, ':', 'x'); crate::url::c(); }"),
        (doors, "loadgen/src/main.rs", "use clap::Parser;"),
    ];
    for (rule, path, text) in right {
        assert_eq!(rule(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn links_resolve_from_their_page() {
    let exists = |path: &Path| path == Path::new("docs/there.md");
    let text = "[a](there.md#part) [b](https://example.org/x) [c](#here) `[d](code.md)`\n```\n[e](fenced.md)\n```\n[f](gone.md)";
    assert_eq!(broken_links("docs/page.md", text, &exists), ["links to gone.md, which is not there"]);
    assert_eq!(broken_links("page.md", "[a](there.md)", &exists).len(), 1);
}

#[test]
fn test_module_file_hides_no_code() {
    let text = "#[cfg(test)]\nmod tests;\nuse glommio::Task;\nfn a() {}\n";
    assert_eq!(doors("src/api/mod.rs", text).len(), 1);
}
