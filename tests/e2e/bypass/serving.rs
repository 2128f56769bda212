//! Requests and answers over bypass.

use serde_json::{Value, json};

use crate::support::bulk::{BULK, KIND};
use crate::support::bypass::{Pair, counter};
use crate::support::http::{SHORT_URLS, request};
use crate::support::node::wait_for;

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn redirect_never_reaches_the_kernel() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    let link = json!({"longUrl": "https://example.org/here", "customSlug": "abc"}).to_string();
    let before = pair.kernel_segments();
    pair.ask(|mut wire| {
        assert_eq!(wire.ask("POST", SHORT_URLS, JSON, link.as_bytes()).status, 200);
        for _ in 0..50 {
            assert_eq!(wire.get("/abc").location(), "https://example.org/here");
        }
    });
    assert_eq!(pair.kernel_segments(), before);
    let status = wait_for("published counters", || {
        let status = pair.status(&node);
        (counter(&status, "framesIn") >= 51).then_some(status)
    });
    assert_eq!(counter(&status, "opened"), 1, "{status}");
    // A node of a busy machine may answer so late that the client sends a segment again.
    assert!(counter(&status, "dropped") <= pair.client_repeats(), "{status}");
    assert!(counter(&status, "framesOut") >= 51, "{status}");
    node.terminate();
}

#[test]
fn busy_polled_queues_are_served() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).env("CAROM_BYPASS_BUSY_POLL", "20"));
    let before = pair.kernel_segments();
    pair.ask(|mut wire| {
        wire.shorten_as("abc", "https://example.org/here");
        for _ in 0..50 {
            assert_eq!(wire.get("/abc").location(), "https://example.org/here");
        }
    });
    assert_eq!(pair.kernel_segments(), before);
    node.terminate();
}

#[test]
fn pipelined_burst_is_answered_in_order() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| {
        let codes: Vec<String> = (0..20).map(|number| format!("code-{number}")).collect();
        for code in &codes {
            wire.shorten_as(code, &format!("https://example.org/{code}"));
        }
        let burst: Vec<u8> = (0..200).flat_map(|at| request("GET", &format!("/{}", codes[at % 20]), "", b"")).collect();
        wire.send(&burst);
        for at in 0..200 {
            assert_eq!(wire.reply().location(), format!("https://example.org/{}", codes[at % 20]));
        }
    });
    node.terminate();
}

#[test]
fn body_of_many_frames_arrives_whole() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).env("CAROM_LIMITS_BODY_BYTES", "200000"));
    let link = json!({"longUrl": "https://example.org/long", "customSlug": "long"}).to_string();
    let padded = format!("{}{link}", " ".repeat(100_000));
    pair.ask(|mut wire| {
        assert_eq!(wire.ask("POST", SHORT_URLS, JSON, padded.as_bytes()).status, 200);
        assert_eq!(wire.get("/long").location(), "https://example.org/long");
    });
    node.terminate();
}

#[test]
fn export_of_megabytes_arrives_whole() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| {
        // In parts, because this client does not read while it sends.
        for part in 0..LINKS / PART {
            let of_part = part * PART..(part + 1) * PART;
            let links: String = of_part.map(|at| json!({"longUrl": long_url(at)}).to_string() + "\n").collect();
            let made = wire.ask("POST", BULK, KIND, links.as_bytes());
            assert_eq!((made.status, made.text().lines().count()), (200, PART), "{}", made.line);
        }
        let export = wire.get(&format!("{SHORT_URLS}/export"));
        assert!(export.body.len() > 4_000_000, "{} bytes", export.body.len());
        let mut found: Vec<String> = export.text().lines().map(destination).collect();
        let mut wanted: Vec<String> = (0..LINKS).map(long_url).collect();
        found.sort();
        wanted.sort();
        assert!(found == wanted, "{} of {LINKS} links", found.len());
    });
    node.terminate();
}

/// Links of the large export.
const LINKS: usize = 12_000;

/// Links of one request that creates many.
const PART: usize = 200;

fn long_url(at: usize) -> String {
    format!("https://example.org/{at:05}/{}", "x".repeat(300))
}

fn destination(line: &str) -> String {
    let link: Value = serde_json::from_str(line).unwrap();
    link["longUrl"].as_str().expect("a link has a destination").to_owned()
}
