//! Disks that stall or fail during a commit: the client learns that its change is unconfirmed, and whether it may
//! retry.

#![cfg(feature = "faults")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire, create_request, request};
use crate::support::links::{codes, codes_left, create};
use crate::support::node::{Node, Setup, sum, wait_until};

const TARGET: &str = "https://example.org/target";

/// Some way to ask for a change that a test can look for afterwards.
const WAYS: &[&str] = &["create", "delete", "change", "bulk", "bitly", "yourls"];

/// A node whose syncs do as they are told.
fn setup(folder: &Path) -> Setup {
    Setup::new(folder)
        .cores(1)
        .all_interfaces()
        .env("CAROM_FAULT", "sync-on-order")
        .expect("CAROM_FAULT is not a setting")
}

fn order(node_data: &Path, name: &str) {
    fs::write(node_data.join(name), "").expect("the data directory is there");
}

/// Asks for a change. Returns what the client is told of it.
fn ask(wire: &mut Wire, way: &str) -> String {
    let json = "Content-Type: application/json\r\n";
    let told = match way {
        "create" => wire.create(&json!({"longUrl": TARGET, "customSlug": "create"})),
        "delete" => wire.delete("delete"),
        "change" => wire.ask(
            "PATCH",
            &format!("{SHORT_URLS}/change"),
            json,
            json!({"longUrl": format!("{TARGET}/changed")}).to_string().as_bytes(),
        ),
        "bulk" => {
            let line = json!({"longUrl": TARGET, "customSlug": "bulk"}).to_string();
            let kind = "Content-Type: application/x-ndjson\r\n";
            let reply = wire.ask("POST", &format!("{SHORT_URLS}/bulk"), kind, line.as_bytes());
            assert_eq!(reply.status, 200, "{reply:?}");
            let result: Value = reply.json();
            assert_eq!(result["status"], json!(503), "{result}");
            return result["error"]["detail"].as_str().unwrap().to_owned();
        }
        "bitly" => {
            wire.ask("POST", "/v4/shorten", json, json!({"long_url": format!("{TARGET}/bitly")}).to_string().as_bytes())
        }
        _ => {
            let form = format!("action=shorturl&format=json&keyword=yourls&url={TARGET}");
            wire.ask("POST", "/yourls-api.php", "Content-Type: application/x-www-form-urlencoded\r\n", form.as_bytes())
        }
    };
    assert_eq!(told.status, 503, "{way}: {told:?}");
    let told = told.json();
    let text = ["detail", "description", "message"]
        .iter()
        .find_map(|name| told[name].as_str().filter(|text| text.contains(' ')));
    text.unwrap_or_else(|| panic!("{way} is told nothing: {told}")).to_owned()
}

/// True if a change was carried out.
fn is_done(node: &Node, way: &str) -> bool {
    let mut wire = node.wire();
    let mut has_one =
        |query: &str| wire.get(&format!("{SHORT_URLS}?{query}")).json()["shortUrls"]["data"][0].is_object();
    match way {
        "delete" => node.wire().get("/delete").status == 404,
        "change" => node.wire().get("/change").location().ends_with("/changed"),
        "bitly" => has_one("searchTerm=target%2Fbitly"),
        _ => node.wire().get(&format!("/{way}")).status == 302,
    }
}

fn is_unconfirmed(way: &str, text: &str) {
    assert!(text.contains("cannot be confirmed"), "{way}: {text}");
    assert!(!text.contains("Nothing was changed"), "{way}: {text}");
}

#[test]
fn stalled_sync_completes_later() {
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path()).start();
    ["delete", "change"].iter().for_each(|slug| node.wire().shorten_as(slug, TARGET));
    order(folder.path(), "stall-sync");
    let told: Vec<(&str, String)> = std::thread::scope(|scope| {
        let asked: Vec<_> = WAYS.iter().map(|way| (*way, scope.spawn(|| ask(&mut node.wire(), way)))).collect();
        asked.into_iter().map(|(way, asked)| (way, asked.join().unwrap())).collect()
    });
    fs::remove_file(folder.path().join("stall-sync")).unwrap();
    for (way, text) in told {
        is_unconfirmed(way, &text);
        wait_until(way, || is_done(&node, way));
    }
    node.terminate();
}

#[test]
fn failed_sync_refuses_later_writes() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let node = setup(folder.path()).expect("a write to the store failed").expect("store_failed").start();
        ["delete", "change"].iter().for_each(|slug| node.wire().shorten_as(slug, TARGET));
        order(folder.path(), "fail-sync");
        is_unconfirmed(way, &ask(&mut node.wire(), way));
        let refused =
            node.wire().create(&json!({"longUrl": TARGET, "customSlug": "behind"})).problem(503, ":unavailable");
        assert!(refused["detail"].as_str().unwrap().contains("Nothing was changed: the store failed"), "{refused}");
        let bulk = ask(&mut node.wire(), "bulk");
        assert!(bulk.contains("Nothing was changed"), "{bulk}");
        node.kill();
    }
}

#[test]
fn refused_creates_cost_no_codes() {
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path()).expect("a write to the store failed").expect("store_failed").start();
    let left = |node: &Node| sum(&node.status(), "/codes/remaining");
    wait_until("codes", || left(&node) > 1_000);
    let full = codes_left(&node);
    order(folder.path(), "fail-sync");
    let mut wire = node.wire();
    assert_eq!(wire.create(&json!({"longUrl": TARGET})).status, 503);
    // The code of a link that may exist stays in use. What the status tells lags behind a little.
    let before = full - 1;
    wait_until("the code that is in use", || left(&node) == before);
    let mut slow = 0;
    for _ in 0..before + 100 {
        let begin = Instant::now();
        let refused = wire.create(&json!({"longUrl": TARGET})).problem(503, ":unavailable");
        assert!(refused["detail"].as_str().unwrap().contains("the store failed"), "{refused}");
        slow += usize::from(begin.elapsed() > Duration::from_millis(1_500));
    }
    // A create that waits for a code takes two seconds, and if they were lost, a hundred would.
    assert!(slow < 20, "{slow} creates were slow");
    wait_until("the codes of refused creates", || left(&node) == before);
    node.kill();
}

/// Nothing else would do the work of a thread that has panicked.
#[test]
fn panic_of_a_thread_ends_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path()).start();
    order(folder.path(), "panic-sync");
    let mut wire = node.wire();
    wire.send(&create_request(&json!({"longUrl": TARGET})));
    let (status, log) = node.ends_by_itself();
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{log}");
    assert!(log.contains("a sync panics by order"), "{log}");
}

/// The very case that keys of clients are for: a create whose answer is lost with the process.
#[test]
fn repeat_after_crash_reuses_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path()).start();
    order(folder.path(), "stall-sync");
    let body = json!({"longUrl": TARGET});
    let fields = "Content-Type: application/json\r\nIdempotency-Key: one\r\n";
    let mut first = node.wire();
    first.send(&request("POST", SHORT_URLS, fields, body.to_string().as_bytes()));
    wait_until("a link that is written and not synced", || codes(&node).len() == 1);
    for _ in 0..3 {
        create(&mut node.wire(), "one", "", &body).problem(409, ":request-under-way");
    }
    let made = codes(&node);
    let setup = node.kill();
    fs::remove_file(folder.path().join("stall-sync")).unwrap();
    let node = setup.start();
    let again = create(&mut node.wire(), "one", "", &body);
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
    assert_eq!(vec![again.code()], made);
    assert_eq!(node.wire().get(&format!("/{}", made[0])).location(), TARGET);
    assert_eq!(codes(&node), made);
    node.terminate();
}

/// A client that gives up waiting does not make its key free.
#[test]
fn idempotency_key_waits_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path()).start();
    order(folder.path(), "stall-sync");
    let body = json!({"longUrl": TARGET});
    let late = create(&mut node.wire(), "one", "", &body).problem(503, ":unconfirmed");
    assert!(late["detail"].as_str().unwrap().contains("Idempotency-Key"), "{late}");
    create(&mut node.wire(), "one", "", &body).problem(409, ":request-under-way");
    fs::remove_file(folder.path().join("stall-sync")).unwrap();
    wait_until("the link", || create(&mut node.wire(), "one", "", &body).status == 200);
    assert_eq!(codes(&node).len(), 1);
    node.terminate();
}
