//! Links of other shorteners, imported into a running node.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::api_client::{new_key, run_app};
use crate::support::bulk::{IMPORT, send_all};
use crate::support::domains::{leads, setup};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, wait_until};

/// Returns the import of a file into a node, through its admin listener.
fn command(node: &Node, key: Option<&str>, arguments: &[&str]) -> Command {
    let mut command = Command::new(CAROM);
    command.args(["import", "--to"]).arg(format!("http://{}", node.admin)).args(arguments);
    command.env("CAROM_IMPORT_KEY", "the-key").env_remove("CAROM_IMPORT_TO_KEY");
    if let Some(key) = key {
        command.env("CAROM_IMPORT_TO_KEY", key);
    }
    command
}

fn import(node: &Node, key: Option<&str>, arguments: &[&str]) -> Output {
    command(node, key, arguments).output().unwrap()
}

fn ended(output: &Output, code: i32, text: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(code), "{:?} {text}: {told}", output.status);
    assert!(told.contains(text), "{:?} {text}: {told}", output.status);
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The link of a slug, as the admin listener shows it to a key.
fn link(node: &Node, key: &str, path: &str) -> Value {
    let path = format!("{SHORT_URLS}/{path}");
    let reply = Wire::open(node.admin).ask("GET", &path, &format!("X-Api-Key: {key}\r\n"), b"");
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

fn total_of_all(node: &Node, key: &str) -> u64 {
    let reply = Wire::open(node.admin).ask("GET", "/rest/v3/visits", &format!("X-Api-Key: {key}\r\n"), b"");
    reply.json()["visits"]["nonOrphanVisits"]["total"].as_u64().unwrap()
}

/// The exports of all shorteners: the arguments for each, and the numbers of links and visits.
fn exports(dir: &Path) -> Vec<(Vec<String>, u64, u64)> {
    let shlink = json!([{"shortCode": "sh", "longUrl": "https://example.org/sh", "dateCreated": "2025-06-01T12:00:00+02:00",
        "visitsSummary": {"total": 12, "nonBots": 9, "bots": 3}, "tags": ["a"], "title": "Sale", "domain": "go.test",
        "meta": {"validSince": null, "validUntil": null, "maxVisits": 14}}]);
    let kutt = json!({"data": [{"id": "k", "address": "ku", "target": "https://example.org/ku", "password": false,
        "banned": false, "created_at": "2025-06-01T10:00:00.123Z", "visit_count": 3, "domain": null}]});
    let bitly = json!({"links": [{"id": "bit.ly/bi", "link": "https://bit.ly/bi", "custom_bitlinks": [], "title": "B",
        "long_url": "https://example.org/bi", "created_at": "2025-06-01T10:00:00+0000", "archived": false, "tags": []}]});
    let sql =
        "INSERT INTO `yourls_url` VALUES ('yo','https://example.org/yo','It\\'s','2025-06-01 10:00:00','::1',4);\n";
    let table = "slug;url;tags;clicks;created\ncs;https://example.org/cs;a|b;6;2025-06-01\n";
    let named = |shortener: &str, name: &str, text: &str, more: &[&str]| {
        let mut arguments = vec!["--from".to_owned(), shortener.to_owned(), file(dir, name, text)];
        arguments.extend(more.iter().map(|&one| one.to_owned()));
        arguments
    };
    vec![
        (named("shlink", "shlink.json", &shlink.to_string(), &[]), 1, 12),
        (named("kutt", "kutt.json", &kutt.to_string(), &[]), 1, 3),
        (named("bitly", "bitly.json", &bitly.to_string(), &["--map-domain", "bit.ly=DEFAULT"]), 1, 0),
        (named("yourls", "yourls.sql", sql, &[]), 1, 4),
        (named("csv", "links.csv", table, &[]), 1, 6),
    ]
}

#[test]
fn every_format_moves_into_a_running_node() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 2);
    let key = new_key(&setup, "ops", "admin");
    let node = setup.start();
    let mut visits = 0;
    for (arguments, links, of_source) in exports(dir.path()) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let dry = import(&node, Some(&key), &[&arguments[..], &["--dry-run"]].concat());
        ended(&dry, 0, &format!("dry run: would import {links} link"));
        assert_eq!(total_of_all(&node, &key), visits, "{arguments:?}");
        ended(&import(&node, Some(&key), &arguments), 0, &format!("imported {links} link"));
        visits += of_source;
        ended(&import(&node, Some(&key), &arguments), 0, &format!("imported 0 links, {links} unchanged"));
        assert_eq!(total_of_all(&node, &key), visits, "{arguments:?}");
    }
    let moved = link(&node, &key, "sh?domain=go.test");
    assert_eq!((&moved["title"], &moved["tags"]), (&json!("Sale"), &json!(["a"])));
    assert_eq!(moved["dateCreated"], "2025-06-01T10:00:00+00:00");
    assert_eq!(moved["visitsSummary"], json!({"total": 12, "nonBots": 9, "bots": 3}));
    assert_eq!(leads(&node, "s.test", "/bi"), "https://example.org/bi");
    // Twelve of its fourteen visits were at the other shortener.
    let statuses: Vec<u16> = (0..3).map(|_| node.wire().get_at("go.test", "/sh").status).collect();
    assert_eq!(statuses, [302, 302, 410]);
    // Counts survive a crash, and are gone with their link.
    let node = node.kill().start();
    assert_eq!(link(&node, &key, "cs")["visitsSummary"]["total"], json!(6));
    let fields = format!("X-Api-Key: {key}\r\n");
    assert_eq!(Wire::open(node.admin).ask("DELETE", &format!("{SHORT_URLS}/cs"), &fields, b"").status, 204);
    let lines = file(dir.path(), "again.ndjson", "{\"shortCode\":\"cs\",\"longUrl\":\"https://example.org/new\"}\n");
    ended(&import(&node, Some(&key), &[&lines]), 0, "imported 1 link,");
    assert_eq!(link(&node, &key, "cs")["visitsSummary"]["total"], json!(0));
    node.terminate();
}

#[test]
fn rejected_lines_and_keys_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let (admin, other) = (new_key(&setup, "ops", "admin"), new_key(&setup, "shop", "write-all"));
    let node = setup.start();
    let lines = [
        json!({"shortCode": "a", "longUrl": "https://example.org/a", "visitsSummary": {"total": 5}}),
        json!({"shortCode": "a", "longUrl": "https://example.org/other", "visitsSummary": {"total": 7}}),
        json!({"shortCode": "b", "longUrl": "ftp://example.org/"}),
        json!({"longUrl": "https://example.org/c"}),
        json!({"shortCode": "d", "longUrl": "https://example.org/d", "domain": "not-ours.test"}),
        json!({"shortCode": "e", "longUrl": "https://example.org/e", "dateCreated": "2100-01-01T00:00:00Z"}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (lines, report) = (file(dir.path(), "links.ndjson", &text), dir.path().join("report.ndjson"));
    for (key, told) in [(Some(&*other), "requires admin"), (Some("wrong"), "401"), (None, "--to-key-file")] {
        let refused = import(&node, key, &[&lines]);
        ended(&refused, 1, told);
        assert!(!String::from_utf8_lossy(&refused.stderr).contains(&other), "the key is in the message");
    }
    for (arguments, text) in [(&["--dry-run"][..], "would import 1 link"), (&[], "imported 1 link with 5 visits")] {
        let arguments = [&[&*lines, "--report", report.to_str().unwrap()][..], arguments].concat();
        let output = import(&node, Some(&admin), &arguments);
        ended(&output, 1, text);
        ended(&output, 1, "line 2 (a): shortCode already leads to another destination");
        let findings = std::fs::read_to_string(&report).unwrap();
        let findings: Vec<Value> = findings.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = findings.iter().map(|one| one["line"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6], "{findings:?}");
        assert!(findings[3]["reason"].as_str().unwrap().contains("domain is not a domain"), "{findings:?}");
        assert_eq!(findings[3]["shortUrl"], "not-ours.test/d");
    }
    // The public listener takes an import as well. Over bypass, only clients of the test reach it.
    if !node.is_over_bypass() {
        let mut public = Command::new(CAROM);
        public.args(["import", "--to", &node.url("/"), &lines]).env("CAROM_IMPORT_TO_KEY", &admin);
        ended(&public.output().unwrap(), 1, "imported 0 links, 1 unchanged, 5 rejected");
    }
    node.terminate();
}

#[test]
fn interrupted_import_is_resumed() {
    const LINKS: u64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 2);
    let key = new_key(&setup, "ops", "admin");
    let node = setup.start();
    let line = |number| {
        let link = json!({"shortCode": format!("n{number}"), "longUrl": format!("https://example.org/{number}"),
            "visitsSummary": {"total": number}});
        format!("{link}\n")
    };
    let lines = file(dir.path(), "links.ndjson", &(0..LINKS).map(line).collect::<String>());
    let mut slow = command(&node, Some(&key), &["--rate", "200", &lines]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("some links", || node.status()["links"].as_u64() >= Some(200));
    slow.kill().unwrap();
    slow.wait().unwrap();
    // The node stops as well, without a last word.
    let node = node.kill().start();
    let before = node.status()["links"].as_u64().unwrap();
    assert!(before < LINKS, "{before}");
    let resumed = import(&node, Some(&key), &[&lines]);
    ended(&resumed, 0, &format!("{before} unchanged, 0 rejected"));
    ended(&import(&node, Some(&key), &[&lines]), 0, "imported 0 links, 2000 unchanged");
    assert_eq!(total_of_all(&node, &key), LINKS * (LINKS - 1) / 2);
    assert_eq!(link(&node, &key, "n7")["visitsSummary"]["total"], json!(7));
    node.terminate();
}

#[test]
fn import_waits_for_a_slow_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let key = run_app(&setup, &["add", "ops", "--role", "admin", "--creates-per-second", "100"]);
    let node = setup.start();
    let line = |number| format!("{{\"shortCode\":\"n{number}\",\"longUrl\":\"https://example.org/{number}\"}}\n");
    let lines = file(dir.path(), "links.ndjson", &(0..300).map(line).collect::<String>());
    ended(&import(&node, Some(&key), &[&lines]), 0, "0 rejected");
    assert_eq!(node.status()["links"], json!(300));
    node.terminate();
}

#[test]
fn exports_keep_milliseconds_of_creation() {
    const LINE: &str =
        "{\"shortCode\":\"ms\",\"longUrl\":\"https://example.org/\",\"dateCreated\":\"2025-06-01T12:00:00.123Z\"}\n";
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let node = setup.start();
    let results = send_all(&node, IMPORT, LINE.as_bytes());
    assert_eq!(results, [json!({"line": 1, "status": 200, "shortCode": "ms"})]);
    let again = send_all(&node, &format!("{IMPORT}?dryRun=true"), LINE.as_bytes());
    assert_eq!(again, [json!({"line": 1, "status": 200, "shortCode": "ms", "unchanged": true})]);
    let by_api = node.wire().get(&format!("{SHORT_URLS}/export")).json();
    assert_eq!(by_api["dateCreated"], "2025-06-01T12:00:00.123+00:00");
    // A create of now has milliseconds, too: they are those of the stored record.
    node.wire().shorten_as("now", "https://example.org/");
    let setup = node.terminate();
    let export = |data_dir: &Path| {
        let run = Command::new(CAROM).arg("export").arg("--data-dir").arg(data_dir).output().unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    let exported = export(setup.data_dir());
    assert!(exported.contains("\"dateCreated\":\"2025-06-01T12:00:00.123+00:00\""), "{exported}");
    let (lines, other) = (file(dir.path(), "links.ndjson", &exported), dir.path().join("other"));
    let run = Command::new(CAROM).args(["import", "--data-dir"]).arg(&other).arg(&lines).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(export(&other), exported);
}
