//! Deduplication: a create returns an existing link, within a window or on request.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carom_store::links::{Index, Links};
use serde_json::{Value, json};

use crate::support::http::{Reply, Wire};
use crate::support::links::{change, codes_left};
use crate::support::node::{CAROM, Node, Setup, sum, wait_until};

const TARGET: &str = "https://example.org/target";

/// A window that no test outlasts.
const LONG: (&str, &str) = ("CAROM_LINKS_DEDUPE", "1d");

fn find(target: &str) -> Value {
    json!({"longUrl": target, "findIfExists": true})
}

/// Creates at once over so many connections, all of them the same.
fn at_once(node: &Node, count: usize, fields: &Value) -> Vec<Reply> {
    let mut wires: Vec<Wire> = (0..count).map(|_| node.wire()).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = wires.iter_mut().map(|wire| scope.spawn(|| wire.create(fields))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn codes(replies: &[Reply]) -> HashSet<String> {
    replies.iter().map(Reply::code).collect()
}

#[test]
fn find_if_exists_returns_the_link() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let mut wire = node.wire();
    let first = wire.create(&find(TARGET));
    let code = first.code();
    let again = wire.create(&find(TARGET));
    assert_eq!((again.status, again.json()), (first.status, first.json()), "the very same answer");
    assert_eq!(again.lasting_fields(), first.lasting_fields());
    // A create that names another property gets a new link.
    let mut kinds = HashSet::from([code]);
    for (name, value) in
        [("redirectStatus", json!(301)), ("cacheSeconds", json!(5)), ("validUntil", json!("2099-01-01T00:00:00+00:00"))]
    {
        let mut fields = find(TARGET);
        fields[name] = value;
        let other = wire.create(&fields).code();
        assert!(kinds.insert(other.clone()), "{name} was not looked at");
        assert_eq!(wire.create(&fields).code(), other);
    }
    // When a link was made is known by the second.
    let second_of = || carom_telemetry::clock::unix_ms() / 1_000;
    let made = second_of();
    wait_until("another second", || second_of() > made);
    let second = wire.shorten(TARGET);
    assert!(kinds.insert(second.clone()));
    let made = second_of();
    wait_until("one more second", || second_of() > made);
    let newest = wire.create(&json!({"longUrl": TARGET, "findIfExists": false})).code();
    assert!(kinds.insert(newest.clone()));
    // The newest of several is the one, also after a restart and after a kill.
    assert_eq!(wire.create(&find(TARGET)).code(), newest);
    let node = node.restart();
    assert_eq!(node.wire().create(&find(TARGET)).code(), newest);
    let node = node.kill().start();
    let mut wire = node.wire();
    assert_eq!(wire.create(&find(TARGET)).code(), newest);
    // What was deleted is not.
    assert_eq!(wire.delete(&newest).status, 204);
    let next = wire.create(&find(TARGET)).code();
    assert_eq!(next, second);
    assert_eq!(wire.get(&format!("/{next}")).location(), TARGET);
    wire.create(&json!({"longUrl": TARGET, "findIfExists": "yes"})).problem(400, "invalid-data");
    node.terminate();
}

#[test]
fn find_if_exists_compares_what_is_named() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let full = json!({"longUrl": TARGET, "tags": ["b", "a"], "maxVisits": 9, "validUntil": "2099-01-01T00:00:00Z",
        "redirectStatus": 301, "crawlable": true, "forwardQuery": false, "title": "T"});
    let code = wire.create(&full).code();
    let mut finding = |fields: Value| {
        let mut asked = find(TARGET);
        asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        wire.create(&asked).code()
    };
    for named in [
        json!({}),
        json!({"title": "Another", "tags": [], "maxVisits": null}),
        json!({"tags": ["a", "b"]}),
        json!({"maxVisits": 9, "redirectStatus": 301}),
        json!({"validUntil": "2099-01-01T01:00:00+01:00", "crawlable": true, "forwardQuery": false}),
    ] {
        assert_eq!(finding(named.clone()), code, "{named}");
    }
    let mut codes = HashSet::from([code]);
    for named in [json!({"tags": ["a"]}), json!({"maxVisits": 8}), json!({"tags": ["a", "b"], "maxVisits": 8})] {
        assert!(codes.insert(finding(named.clone())), "{named}");
    }
    // Archived links redirect nobody.
    for code in &codes {
        change(&mut wire, code, &json!({"archived": true}));
    }
    let fresh = wire.create(&find(TARGET)).code();
    assert!(codes.insert(fresh.clone()), "{fresh} is archived");
    assert_eq!(wire.get(&format!("/{fresh}")).location(), TARGET);
    node.terminate();
}

#[test]
fn find_if_exists_matches_the_slug() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let issued = wire.shorten(TARGET);
    let fields = json!({"longUrl": TARGET, "customSlug": "mine", "findIfExists": true});
    let first = wire.create(&fields);
    assert_eq!(first.code(), "mine", "not the link that was issued");
    assert_eq!(wire.create(&fields).json(), first.json());
    let mut other = fields.clone();
    other["longUrl"] = json!("https://example.org/other");
    assert_eq!(wire.create(&other).status, 400, "the slug leads elsewhere");
    other = fields.clone();
    other["redirectStatus"] = json!(301);
    assert_eq!(wire.create(&other).status, 400, "the slug leads there in another way");
    other = fields.clone();
    other["findIfExists"] = json!(false);
    assert_eq!(wire.create(&other).status, 400, "nobody has asked for what exists");
    assert_eq!(wire.delete(&issued).status, 204);
    assert_eq!(wire.create(&find(TARGET)).code(), "mine", "without a slug any link will do");
    assert_eq!(wire.delete("mine").status, 204);
    assert_eq!(wire.create(&fields).code(), "mine");
    node.terminate();
}

#[test]
fn concurrent_creates_get_one_code() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).env(LONG.0, LONG.1).start();
    wait_until("codes for both cores", || sum(&node.status(), "/codes/remaining") > 10_000);
    let (before, mut links) = (codes_left(&node), 0);
    for round in 0..5 {
        for fields in [json!({"longUrl": format!("{TARGET}/{round}")}), find(&format!("{TARGET}/find/{round}"))] {
            let replies = at_once(&node, 64, &fields);
            let codes = codes(&replies);
            assert_eq!(codes.len(), 1, "{codes:?}");
            let code = codes.into_iter().next().unwrap();
            // It is served by whichever core is asked.
            for mut wire in (0..8).map(|_| node.wire()) {
                assert_eq!(wire.get(&format!("/{code}")).location(), fields["longUrl"]);
            }
            links += 1;
        }
    }
    assert_eq!(sum(&node.status(), "/links"), links);
    // Codes that were not needed are given to the next links.
    assert_eq!(codes_left(&node) + links, before);
    node.terminate();
}

#[test]
fn window_is_renewed_by_each_use() {
    // Longer than a machine stands still between two uses.
    const WINDOW: Duration = Duration::from_secs(6);
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_LINKS_DEDUPE", "6s").start();
    let mut wire = node.wire();
    let (begin, mut used) = (Instant::now(), Instant::now());
    let code = wire.shorten(TARGET);
    // Used again and again, for longer than the window lasts.
    while begin.elapsed() < WINDOW + Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(200));
        let asked = Instant::now();
        let again = wire.shorten(TARGET);
        assert!(again == code || used.elapsed() >= WINDOW, "another code {:?} after the last use", used.elapsed());
        assert_eq!(again, code, "the machine stood still");
        used = asked;
    }
    // A restart does not begin or end it: the last use is on disk.
    let node = node.restart();
    let mut wire = node.wire();
    let again = wire.shorten(TARGET);
    assert!(again == code || used.elapsed() >= WINDOW);
    // A slug is what was asked for, whatever the window has; other ways are other links.
    wire.shorten_as("slug", TARGET);
    assert_ne!(wire.create(&json!({"longUrl": TARGET, "redirectStatus": 301})).code(), again);
    let last = Instant::now();
    wait_until("the end of the window", || last.elapsed() > WINDOW);
    let next = wire.shorten(TARGET);
    assert!(next != again);
    assert!(next != "slug");
    assert!(next != code);
    assert_eq!(wire.create(&find(TARGET)).code(), next, "the newest, without a window");
    // Deleted within the window.
    assert_eq!(wire.delete(&next).status, 204);
    let after = wire.shorten(TARGET);
    assert!(after != next, "it was deleted");
    node.terminate();
}

#[test]
fn window_survives_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env(LONG.0, LONG.1).start();
    let code = node.wire().shorten(TARGET);
    assert_eq!(node.wire().shorten(TARGET), code);
    let node = node.kill().start();
    assert_eq!(node.wire().shorten(TARGET), code);
    node.terminate();
}

fn import(data: &Path, lines: &str) {
    let mut command = Command::new(CAROM);
    command.args(["import", "--data-dir"]).arg(data).arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn imported_links_are_found() {
    let data = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for (code, year) in [("newer", 2026), ("older", 2025)] {
        lines += &format!(
            "{{\"shortCode\":\"{code}\",\"longUrl\":\"{TARGET}\",\"dateCreated\":\"{year}-01-02T03:04:05+00:00\"}}\n"
        );
    }
    import(data.path(), &lines);
    // The same again changes nothing.
    import(data.path(), &lines);
    let node = Setup::new(data.path()).env(LONG.0, LONG.1).start();
    let mut wire = node.wire();
    assert_eq!(wire.create(&find(TARGET)).code(), "newer");
    let made = wire.shorten(TARGET);
    assert!(made != "older", "they were not used within the window");
    assert!(made != "newer", "they were not used within the window");
    assert_eq!(wire.create(&find(TARGET)).code(), made);
    node.terminate();
}

#[test]
fn earlier_store_gets_the_index() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    wire.shorten_as("slug", "https://example.org/slug");
    let gone = wire.shorten("https://example.org/gone");
    assert_eq!(wire.delete(&gone).status, 204);
    let setup = node.terminate();
    let key = std::fs::read_to_string(data.path().join("space.key")).unwrap();
    let key = carom_shards::CodeSecret::from_hex(key.trim()).unwrap();
    let (links, _) = Links::open(&data.path().join("links"), &key.fingerprint()).unwrap();
    links.forget_index(Index::Urls).unwrap();
    assert!(!links.has_index(Index::Urls).unwrap());
    drop(links);
    let node = setup.start();
    assert!(node.log().contains("building the index of destinations"), "{}", node.log());
    let mut wire = node.wire();
    assert_eq!(wire.create(&find(TARGET)).code(), code);
    assert_eq!(wire.create(&find("https://example.org/slug")).code(), "slug");
    assert_ne!(wire.create(&find("https://example.org/gone")).code(), gone);
    let node = node.restart();
    assert!(!node.log().contains("building the index of destinations"), "once is enough");
    assert_eq!(node.wire().create(&find(TARGET)).code(), code);
    node.terminate();
}
