//! The event log, read through the API.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{all_events, events_after, keeping, number, types_and_codes};
use crate::support::api_client::new_key;
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::change;
use crate::support::node::{Dice, Setup, wait_for, wait_until};
use crate::support::openapi::is_described;
use crate::support::stop::StopOnDrop;
use crate::support::visits::BROWSER;

const TARGET: &str = "https://example.org/a";

#[test]
fn each_change_is_one_event_that_stays() {
    let data = tempfile::tempdir().unwrap();
    // Each start has another port, and descriptions have it.
    let node = keeping(data.path()).env("CAROM_BASE_URL", "https://s.example").start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": TARGET, "customSlug": "one", "tags": ["news"], "title": "First"}));
    change(&mut wire, "one", &json!({"title": "Second", "tags": ["news", "old"]}));
    wire.shorten_as("two", TARGET);
    // No change, and so no event.
    assert_eq!(wire.create(&json!({"longUrl": TARGET, "customSlug": "one"})).status, 400);
    let existing = wire.create(&json!({"longUrl": TARGET, "findIfExists": true}));
    assert_eq!(existing.status, 200, "{}", existing.text());
    assert_eq!(wire.delete("none").status, 404);
    assert_eq!(wire.delete("one").status, 204);
    let events = all_events(&node);
    let expected = [("link.created", "one"), ("link.changed", "one"), ("link.created", "two"), ("link.deleted", "one")];
    assert_eq!(types_and_codes(&events), expected.map(|(of, code)| (of.to_owned(), code.to_owned())));
    assert_eq!(events.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(events[0]["data"]["shortUrl"]["title"], "First");
    assert_eq!(events[0]["data"]["shortUrl"]["shortUrl"], "https://s.example/one");
    assert_eq!(events[1]["data"]["shortUrl"]["title"], "Second");
    let changes = json!([
        {"field": "tags", "from": ["news"], "to": ["news", "old"]},
        {"field": "title", "from": "First", "to": "Second"},
    ]);
    assert_eq!(events[1]["data"]["changes"], changes);
    assert_eq!(
        (&events[3]["data"]["cause"], &events[3]["data"]["shortUrl"]["title"]),
        (&json!("request"), &json!("Second"))
    );
    let first = events[0]["id"].as_str().unwrap();
    assert_eq!(events_after(&node, Some(first), 1), events[1..]);
    is_described(&node, "get", "/rest/v3/events", &wire.get("/rest/v3/events"));
    let deleted = wire.get("/rest/v3/events?type=link.deleted").json()["events"].clone();
    assert_eq!((&deleted["data"], &deleted["next"]), (&json!([events[3]]), &events[3]["id"]));
    let node = node.kill().start();
    assert_eq!(all_events(&node), events);
    node.wire().shorten_as("three", TARGET);
    assert_eq!(
        types_and_codes(&events_after(&node, events[3]["id"].as_str(), 10)),
        [("link.created".to_owned(), "three".to_owned())]
    );
    node.terminate();
}

#[test]
fn kill_loses_no_event_of_an_acknowledged_change() {
    let data = tempfile::tempdir().unwrap();
    let setup = keeping(data.path());
    let mut dice = Dice::new();
    let mut acknowledged = BTreeSet::new();
    for _ in 0..3 {
        let node = setup.start();
        let (is_over, pid) = (AtomicBool::new(false), Pid::from_raw(node.pid() as i32).unwrap());
        let answers = AtomicU64::new(0);
        let wires: Vec<Wire> = (0..3).map(|_| node.wire()).collect();
        let create = &|mut wire: Wire| {
            let mut codes = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let Ok(reply) = wire.try_create(&json!({"longUrl": TARGET})) else { break };
                codes.push(reply.code());
                answers.fetch_add(1, Ordering::Relaxed);
            }
            codes
        };
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&is_over);
            let clients: Vec<_> = wires.into_iter().map(|wire| scope.spawn(move || create(wire))).collect();
            wait_until("an answer", || answers.load(Ordering::Relaxed) > 0);
            std::thread::sleep(Duration::from_millis(dice.below(300)));
            // The node goes while its clients wait for answers.
            kill_process(pid, Signal::KILL).unwrap();
            drop(stop);
            clients.into_iter().for_each(|client| acknowledged.extend(client.join().unwrap()));
        });
        node.kill();
    }
    let node = setup.start();
    let events = all_events(&node);
    let created: Vec<String> = types_and_codes(&events).into_iter().map(|(_, code)| code).collect();
    let distinct: BTreeSet<String> = created.iter().cloned().collect();
    assert_eq!(created.len(), distinct.len(), "an event is there twice");
    assert!(!acknowledged.is_empty());
    assert!(acknowledged.is_subset(&distinct));
    assert!(events.windows(2).all(|pair| number(&pair[0]) + 1 == number(&pair[1])), "a number is missing");
    // Each event is true.
    let mut wire = node.wire();
    assert!(distinct.iter().all(|code| wire.get(&format!("{SHORT_URLS}/{code}")).status == 200));
    node.terminate();
}

#[test]
fn logged_visits_are_events() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).env("CAROM_VISITS_LOG", "on").env("CAROM_EVENTS_VISITS", "on").start();
    let mut wire = node.wire();
    wire.shorten_as("one", TARGET);
    for path in ["/one?x=1", "/never-made"] {
        wire.ask("GET", path, BROWSER, b"");
    }
    let visits = wait_for("both visits", || {
        let events = all_events(&node);
        (events.len() == 3).then(|| events[1..].to_vec())
    });
    is_described(&node, "get", "/rest/v3/events", &wire.get("/rest/v3/events"));
    assert!(visits.iter().all(|visit| visit["type"] == "visit"));
    let (link, orphan) = (&visits[0]["data"], &visits[1]["data"]);
    assert_eq!((&link["shortUrl"]["shortCode"], &link["visit"]["potentialBot"]), (&json!("one"), &json!(false)));
    assert!(link["visit"]["visitedUrl"].as_str().unwrap().ends_with("/one?x=1"), "{link}");
    assert_eq!((&orphan["visit"]["type"], orphan.get("shortUrl")), (&json!("invalid_short_url"), None));
    let (id, event) = (visits[0]["id"].clone(), visits[0].clone());
    wire.delete("one");
    let node = node.kill().start();
    let events = all_events(&node);
    let again = events.iter().find(|event| event["id"] == id).unwrap();
    // The restarted node has another port, and so have its short URLs.
    let mut visit = again["data"]["visit"].clone();
    visit["visitedUrl"] = event["data"]["visit"]["visitedUrl"].clone();
    assert_eq!((&visit, &again["data"]["shortUrl"]), (&event["data"]["visit"], &Value::Null));
    node.terminate();
}

#[test]
fn removals_that_were_due_are_events() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).env("CAROM_LINKS_KEEP_EXPIRED", "1s").start();
    let ended = dates::format(unix_ms() - 2_000);
    node.wire().create(&json!({"longUrl": TARGET, "customSlug": "old", "validUntil": ended}));
    let event = wait_for("the removal", || all_events(&node).into_iter().find(|event| event["type"] == "link.deleted"));
    assert_eq!((&event["data"]["cause"], &event["data"]["shortUrl"]["shortCode"]), (&json!("expiry"), &json!("old")));
    node.terminate();
}

#[test]
fn cursor_of_removed_events_is_gone() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).env("CAROM_EVENTS_KEEP", "1s").start();
    let mut wire = node.wire();
    wire.shorten_as("first", TARGET);
    let page = wire.get("/rest/v3/events").json()["events"].clone();
    let (id, restart) = (page["next"].as_str().unwrap().to_owned(), page["restart"].as_str().unwrap().to_owned());
    assert!(id.ends_with("-1"), "{page}");
    assert!(restart.ends_with("-0"), "{page}");
    let name = id.split_once('-').unwrap().0;
    // Events leave the disk by tables of some megabytes.
    let long = format!("{TARGET}?{}", "x".repeat(2_000));
    let line = json!({"longUrl": long}).to_string() + "\n";
    let mut more = || {
        let fields = "Content-Type: application/x-ndjson\r\n";
        let reply = wire.ask("POST", "/rest/v3/short-urls/bulk", fields, line.repeat(1_000).as_bytes());
        assert_eq!(reply.status, 200);
    };
    let after = |cursor: &str| node.wire().get(&format!("/rest/v3/events?limit=1&after={cursor}"));
    let (oldest, page) = wait_for("the removal of old events", || {
        more();
        let gone = after(&restart);
        is_described(&node, "get", "/rest/v3/events", &gone);
        if gone.status != 410 {
            return None;
        }
        let oldest = gone.problem(410, ":events-gone");
        let page = after(oldest["restart"].as_str().unwrap());
        // More may have been removed meanwhile.
        (page.status == 200).then(|| (oldest, page.json()["events"].clone()))
    });
    let seq = |id: &Value| id.as_str().unwrap().split_once('-').unwrap().1.parse::<u64>().unwrap();
    let (first, last) = (seq(&oldest["restart"]) + 1, seq(&oldest["latest"]));
    assert_eq!(page["data"][0]["id"], format!("{name}-{first}"), "the first event that is kept");
    // Another log, and numbers that no event has yet.
    let other = if name == "00000001" { "00000002" } else { "00000001" };
    after(&format!("{other}-1")).problem(410, ":events-gone");
    let ahead = after(&format!("{name}-{}", last + 1_000_000)).problem(400, "/invalid-data");
    assert!(ahead["detail"].as_str().unwrap().contains("is ahead of the last event"), "{ahead}");
    node.terminate();
}

#[test]
fn off_by_default_and_for_keys_of_one_app() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path());
    let node = setup.start();
    node.wire().shorten_as("one", TARGET);
    for path in ["/rest/v3/events", "/rest/v3/events/dead-letters"] {
        let reply = node.wire().get(path);
        reply.problem(404, ":events-off");
        is_described(&node, "get", path, &reply);
    }
    node.terminate();
    // Turning them on later begins an empty log.
    let setup = keeping(data.path());
    let key = new_key(&setup, "shop", "write-own");
    let node = setup.start();
    let mut wire = node.wire();
    let fields = format!("X-Api-Key: {key}\r\n");
    wait_until("the key", || wire.ask("GET", SHORT_URLS, &fields, b"").status == 200);
    wire.ask("GET", "/rest/v3/events", &fields, b"").problem(403, ":forbidden");
    node.terminate();
    let invalid = [
        ("CAROM_EVENTS_VISITS", "on"),
        ("CAROM_EVENTS_WEBHOOK_URL", "https://me:pw@a.example/"),
        ("CAROM_EVENTS_WEBHOOK_URL", "https://a.example/"),
    ];
    for (name, value) in invalid {
        let (code, said) = keeping(data.path()).env(name, value).fail();
        assert!(code != 0, "{name}: {code} {said}");
        assert!(said.contains(name), "{name}: {code} {said}");
    }
}
