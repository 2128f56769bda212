//! Exports: the same lines as the command writes, while the node serves, and an incomplete export says so.

use std::process::Command;

use carom_shards::Code;
use rustix::process::Signal;
use serde_json::json;

use crate::support::api_client::{ApiClient, new_key};
use crate::support::bulk::{BULK, Session, TARGET, many, send_all};
use crate::support::http::SHORT_URLS;
use crate::support::links::on_every_kind;
use crate::support::node::{CAROM, Setup, wait_until};
use crate::support::store::open_store;

const EXPORT: &str = "/rest/v3/short-urls/export";

/// Exports all links with `carom export`.
fn by_command(setup: &Setup) -> Vec<u8> {
    let run = Command::new(CAROM).arg("export").arg("--data-dir").arg(setup.data_dir()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    run.stdout
}

#[test]
fn equals_the_command_and_can_be_imported() {
    on_every_kind(|setup| {
        let node = setup.start();
        assert_eq!(node.wire().get(EXPORT).text(), "");
        send_all(&node, BULK, many(5_000).as_bytes());
        let mut wire = node.wire();
        wire.shorten_as("export", TARGET);
        wire.shorten_as("-", TARGET);
        wire.shorten_as(&"z".repeat(64), TARGET);
        wire.shorten_as("gone", TARGET);
        wire.delete("gone");
        let issued = wire.shorten(TARGET);
        wire.delete(&issued);
        let fields = json!({"longUrl": TARGET, "title": "a \"title\"", "tags": ["x", "é"], "validUntil": "2099-01-01T00:00:00Z"});
        let noted = wire.create(&fields).code();
        let reply = wire.get(EXPORT);
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/x-ndjson")));
        assert_eq!(reply.text().lines().count(), 5_004);
        let head = wire.ask("HEAD", EXPORT, "", b"");
        assert_eq!((head.status, head.field("content-type")), (200, Some("application/x-ndjson")));
        for method in ["POST", "PATCH", "DELETE"] {
            let refused = wire.ask(method, EXPORT, "Content-Type: application/json\r\n", b"{}");
            refused.problem(405, "method-not-allowed");
            assert_eq!(refused.field("allow"), Some("GET, HEAD"), "{method}");
        }
        // The link of that name has another way to write it.
        assert_eq!(wire.get(&format!("{SHORT_URLS}/%65xport")).code(), "export");
        assert_eq!(wire.get("/export").location(), TARGET);
        drop(wire);
        let setup = node.terminate();
        assert!(by_command(&setup) == reply.body, "it is another export than that of the command");
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join("links.ndjson");
        std::fs::write(&file, &reply.body).unwrap();
        let data = other.path().join("data");
        let status = Command::new(CAROM).args(["import", "--data-dir"]).arg(&data).arg(&file).status().unwrap();
        assert!(status.success());
        let node = Setup::new(&data).start();
        assert_eq!(node.wire().get(&format!("{SHORT_URLS}/{noted}")).json()["tags"], json!(["x", "é"]));
        assert!(node.wire().get(EXPORT).body == reply.body);
        node.terminate();
    });
}

#[test]
fn slow_reader_gets_everything() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let made = send_all(&node, BULK, many(60_000).as_bytes());
    let before = node.anonymous_bytes();
    let mut slow: Vec<Session> = (0..4)
        .map(|_| {
            let mut session = Session::open(node.public, &format!("GET {EXPORT} HTTP/1.1\r\n"));
            assert_eq!(session.begin(), 200);
            session
        })
        .collect();
    for result in &made[..500] {
        let code = result["shortUrl"]["shortCode"].as_str().unwrap();
        assert!(node.wire().get(&format!("/{code}")).location().starts_with(TARGET));
    }
    // What is made meanwhile may be told or not; what is there is told once.
    send_all(&node, BULK, many(1_000).as_bytes());
    let grown = node.anonymous_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{} KiB for clients that do not read", grown / 1024);
    for session in &mut slow {
        let mut codes: Vec<String> = Vec::new();
        while let Some(link) = session.line().unwrap() {
            codes.push(link["shortCode"].as_str().unwrap().to_owned());
        }
        assert!((60_000..=61_000).contains(&codes.len()), "{}", codes.len());
        assert!(codes.is_sorted_by(|a, b| a < b), "each once and in order");
        let missing = made.iter().filter(|result| {
            let code = result["shortUrl"]["shortCode"].as_str().unwrap();
            codes.binary_search_by(|known| known.as_str().cmp(code)).is_err()
        });
        assert_eq!(missing.count(), 0);
    }
    node.terminate();
}

#[test]
fn one_app_uses_half_the_slots() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path());
    let node = setup.start();
    send_all(&node, BULK, many(60_000).as_bytes());
    let [shop, mail] = ["shop", "mail"].map(|name| new_key(&setup, name, "write-all"));
    // Until the node knows of keys, it answers any.
    wait_until("keys", || node.wire().get("/rest/v3/tags").status == 401);
    [&shop, &mail].into_iter().for_each(|key| wait_until("the key", || ApiClient::new(&node, key).is_known(&node)));
    // Nobody reads what is sent.
    let begin = |key: &str| {
        let mut session = Session::open_unread(node.public, &format!("GET {EXPORT} HTTP/1.1\r\nX-Api-Key: {key}\r\n"));
        (session.begin(), session)
    };
    let begun = |key: &str| {
        let (status, session) = begin(key);
        assert_eq!(status, 200);
        session
    };
    let of_shop: Vec<Session> = (0..4).map(|_| begun(&shop)).collect();
    let problem = ApiClient::new(&node, &shop).get(EXPORT).problem(503, ":unavailable");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("This app already has 4 exports in progress"), "{detail}");
    let of_mail: Vec<Session> = (0..4).map(|_| begun(&mail)).collect();
    drop((of_shop, of_mail));
    wait_until("a slot", || begin(&shop).0 == 200);
    node.terminate();
}

#[test]
fn drain_marks_the_export_incomplete() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    send_all(&node, BULK, many(100_000).as_bytes());
    let mut session = Session::open(node.public, &format!("GET {EXPORT} HTTP/1.1\r\n"));
    assert_eq!(session.begin(), 200);
    assert!(session.line().unwrap().unwrap()["shortCode"].is_string());
    node.signal(Signal::TERM);
    wait_until("the drain", || crate::support::http::Wire::open(node.admin).get("/readyz").status == 503);
    let (mut links, mut last) = (1, None);
    while let Some(line) = session.line().unwrap() {
        if line["error"].is_null() { links += 1 } else { last = Some(line) }
    }
    let last = last.expect("a last line that says so");
    assert_eq!(last["status"], json!(503), "{last}");
    assert!(last["error"]["detail"].as_str().unwrap().contains("incomplete"), "{last}");
    assert!((1..100_000).contains(&links), "{links}");
    node.drained();
}

#[test]
fn damage_is_reported_at_the_end() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path()).expect("a stored record is damaged").expect("store_damaged");
    let node = setup.start();
    let made = send_all(&node, BULK, many(50).as_bytes());
    node.terminate();
    let damaged = made[20]["shortUrl"]["shortCode"].as_str().unwrap();
    let store = open_store(&setup);
    let mut batch = store.batch();
    batch.put(&Code::parse(damaged.as_bytes()).unwrap(), b"no record");
    store.commit(batch).unwrap();
    store.sync().unwrap();
    drop(store);
    let node = setup.start();
    let reply = node.wire().get(EXPORT);
    let lines: Vec<&str> = reply.text().lines().collect();
    assert_eq!(lines.len(), 50);
    assert!(lines[..49].iter().all(|line| line.contains("shortCode")), "{lines:?}");
    let last: serde_json::Value = serde_json::from_str(lines[49]).unwrap();
    assert_eq!(last["status"], json!(500), "{last}");
    assert!(last["error"]["damaged"][0].as_str().unwrap().starts_with(damaged), "{last}");
    node.terminate();
}
