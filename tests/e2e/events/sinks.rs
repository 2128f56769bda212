//! Sinks against real receivers: an HTTP server of the test's own, and Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{all_events, keeping, metric, types_and_codes};
use crate::support::alarms::{alarms, is_seen};
use crate::support::links::change;
use crate::support::node::{Setup, wait_for, wait_until};
use crate::support::openapi::is_described;
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis;

const TARGET: &str = "https://example.org/a";
const SECRET: &str = "a secret of webhooks";

/// A node with a webhook at this address, which may be on loopback.
fn with_webhook(dir: &Path, url: &str) -> Setup {
    keeping(dir)
        .env("CAROM_EVENTS_WEBHOOK_URL", url)
        .env("CAROM_EVENTS_WEBHOOK_SECRET", SECRET)
        .env("CAROM_EVENTS_WEBHOOK_PRIVATE", "true")
}

/// The events that a webhook has accepted, in the order in which they came first.
fn delivered(receiver: &Receiver) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    for request in receiver.accepted() {
        for event in request.json()["events"].as_array().unwrap() {
            match events.iter().find(|before| before["id"] == event["id"]) {
                Some(before) => assert_eq!(before, event, "two events have one ID"),
                None => events.push(event.clone()),
            }
        }
    }
    events
}

/// The HMAC of a message, by another program than the one under test.
fn hmac(secret: &str, message: &[u8]) -> String {
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", secret, "-r"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    openssl.stdin.take().unwrap().write_all(message).unwrap();
    let text = String::from_utf8(openssl.wait_with_output().unwrap().stdout).unwrap();
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn webhook_gets_signed_batches_in_order() {
    let (data, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let node = with_webhook(data.path(), &receiver.url("/hook?x=1")).start();
    let mut wire = node.wire();
    wire.shorten_as("one", TARGET);
    change(&mut wire, "one", &json!({"title": "Second"}));
    wire.delete("one");
    wait_until("all events", || delivered(&receiver).len() >= 3);
    assert_eq!(delivered(&receiver), all_events(&node));
    for request in receiver.received() {
        assert_eq!((request.line.as_str(), request.field("content-type")), ("POST /hook?x=1", "application/json"));
        let (time, signature) = request.field("carom-signature").split_once(",v1=").unwrap();
        let time = time.strip_prefix("t=").unwrap();
        let signed = [time.as_bytes(), b".", &request.body].concat();
        assert_eq!(signature, hmac(SECRET, &signed));
        assert!(time.parse::<u64>().unwrap().abs_diff(carom_telemetry::clock::unix_ms() / 1_000) < 60);
    }
    wait_until("the counts", || {
        (metric(&node, "delivered_total", "webhook"), metric(&node, "lag", "webhook")) == (3, 0)
    });
    // The place of the sink outlives a restart, and only new events follow.
    let node = node.restart();
    node.wire().shorten_as("two", TARGET);
    wait_until("the new event", || delivered(&receiver).len() >= 4);
    assert_eq!(types_and_codes(&delivered(&receiver))[3], ("link.created".to_owned(), "two".to_owned()));
    node.terminate();
}

#[test]
fn failing_webhook_raises_an_alarm() {
    let (data, receiver, elsewhere) = (tempfile::tempdir().unwrap(), Receiver::start(), Receiver::start());
    let node = with_webhook(data.path(), &receiver.url("/")).expect("events_sink_failed").start();
    let to = elsewhere.url("/");
    receiver.answer(move |_| Answer::Redirect(to.clone()));
    let mut wire = node.wire();
    (0..250).for_each(|_| _ = wire.shorten(TARGET));
    is_seen(&node, "events_sink_failed");
    let status = node.status();
    let text = status["alarms"].as_array().unwrap().iter().find(|alarm| alarm["name"] == "events_sink_failed");
    assert!(text.unwrap()["text"].as_str().unwrap().contains("redirects are not followed"), "{status}");
    assert!(metric(&node, "failed_total", "webhook") >= 3);
    assert!(metric(&node, "lag", "webhook") >= 250);
    assert!(elsewhere.received().is_empty(), "a redirect was followed");
    receiver.answer(|_| Answer::Status(204));
    wait_until("the backlog", || metric(&node, "lag", "webhook") == 0);
    wait_until("the end of the alarm", || !alarms(&node.status()).contains(&"events_sink_failed"));
    assert_eq!(delivered(&receiver), all_events(&node));
    node.terminate();
}

#[test]
fn silent_webhook_holds_up_nobody() {
    let (data, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let node = with_webhook(data.path(), &receiver.url("/")).start();
    receiver.answer(|_| Answer::Silence);
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    wait_until("a request that hangs", || !receiver.received().is_empty());
    wire.shorten(TARGET);
    assert_eq!(wire.get(&format!("/{code}")).status, 302);
    let begun = Instant::now();
    let setup = node.terminate();
    // Far less than the timeout of the request, and with room for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    // What was not accepted comes again.
    receiver.answer(|_| Answer::Status(200));
    let node = setup.start();
    wait_until("both events", || delivered(&receiver).len() == 2);
    node.terminate();
}

#[test]
fn webhook_into_the_own_network_is_refused() {
    let receiver = Receiver::start();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let data = tempfile::tempdir().unwrap();
        let url = format!("http://{host}:{}/", receiver.port());
        let setup =
            keeping(data.path()).env("CAROM_EVENTS_WEBHOOK_URL", &url).env("CAROM_EVENTS_WEBHOOK_SECRET", SECRET);
        let node = setup.expect("events_sink_failed").start();
        node.wire().shorten(TARGET);
        is_seen(&node, "events_sink_failed");
        let status = node.status().to_string();
        assert!(status.contains("on this machine or in a private network"), "{status}");
        assert!(!status.contains(SECRET));
        assert!(!node.log().contains(SECRET));
        node.terminate();
    }
    assert!(receiver.received().is_empty());
}

#[test]
fn refused_event_becomes_a_dead_letter() {
    let (data, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let node = with_webhook(data.path(), &receiver.url("/")).expect("an event became a dead letter").start();
    receiver.answer(|request| {
        let is_refused = String::from_utf8_lossy(&request.body).contains("\"poison\"");
        Answer::Status(if is_refused { 422 } else { 200 })
    });
    let mut wire = node.wire();
    for slug in ["one", "poison", "three", "four"] {
        wire.shorten_as(slug, TARGET);
    }
    let letters = wait_for("the dead letter", || {
        let reply = node.wire().get("/rest/v3/events/dead-letters");
        is_described(&node, "get", "/rest/v3/events/dead-letters", &reply);
        let letters = reply.json()["deadLetters"]["data"].clone();
        (!letters.as_array().unwrap().is_empty()).then_some(letters)
    });
    assert_eq!((letters.as_array().unwrap().len(), &letters[0]["sink"]), (1, &json!("webhook")));
    assert_eq!(letters[0]["event"]["data"]["shortUrl"]["shortCode"], "poison");
    assert!(letters[0]["reason"].as_str().unwrap().contains("422"), "{letters}");
    let counts = || (metric(&node, "dead_total", "webhook"), metric(&node, "delivered_total", "webhook"));
    wait_until("the others", || counts() == (1, 3));
    let node = node.kill().start();
    assert_eq!(node.wire().get("/rest/v3/events/dead-letters").json()["deadLetters"]["data"], letters);
    node.terminate();
}

#[test]
fn kill_repeats_events_and_loses_none() {
    let (data, receiver) = (tempfile::tempdir().unwrap(), Receiver::start());
    let setup = with_webhook(data.path(), &receiver.url("/")).env("CAROM_BASE_URL", "https://s.example");
    let mut acknowledged = BTreeSet::new();
    for _ in 0..3 {
        let node = setup.start();
        let mut wire = node.wire();
        acknowledged.extend((0..40).map(|_| wire.shorten(TARGET)));
        // Some events are delivered, and others are not.
        wait_until("a delivery", || !receiver.received().is_empty());
        node.kill();
    }
    let node = setup.start();
    let created =
        || -> BTreeSet<String> { types_and_codes(&delivered(&receiver)).into_iter().map(|(_, code)| code).collect() };
    wait_until("all events", || acknowledged.is_subset(&created()));
    node.terminate();
}

/// The entries of the stream, each with its fields.
fn entries(server: &redis::Server) -> Vec<BTreeMap<String, String>> {
    let reply = server.command(&["XRANGE", "carom:events", "-", "+"]);
    let fields = |entry: &redis::Reply| {
        let texts: Vec<String> = entry.list()[1].list().iter().map(redis::Reply::text).collect();
        texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    };
    reply.list().iter().map(fields).collect()
}

#[test]
fn redis_stream_outlives_an_outage() {
    let (data, server) = (tempfile::tempdir().unwrap(), redis::Setup::new().append_only(true).start());
    let node = keeping(data.path())
        .env("CAROM_EVENTS_REDIS_URL", &server.url())
        .env("CAROM_VISITS_LOG", "on")
        .env("CAROM_EVENTS_VISITS", "on")
        .expect("events_sink_failed")
        .start();
    let mut wire = node.wire();
    wire.shorten_as("one", TARGET);
    wire.get("/one");
    wait_until("both entries", || entries(&server).len() == 2);
    let found = entries(&server);
    let events = all_events(&node);
    for (entry, event) in found.iter().zip(&events) {
        assert_eq!((&json!(entry["id"]), &json!(entry["type"])), (&event["id"], &event["type"]));
        let payload: Value = serde_json::from_str(&entry["payload"]).unwrap();
        assert_eq!(payload["shortUrl"]["shortCode"], "one");
    }
    assert_eq!(found[0]["topic"], "https://shlink.io/new-short-url");
    assert_eq!(found[1]["topic"], "https://shlink.io/new-visit");
    server.kill();
    wire.shorten_as("two", TARGET);
    is_seen(&node, "events_sink_failed");
    server.start_again();
    wait_until("the entry", || {
        server.is_up() && entries(&server).iter().any(|entry| entry["payload"].contains("\"two\""))
    });
    wait_until("the end of the alarm", || !alarms(&node.status()).contains(&"events_sink_failed"));
    node.terminate();
}

/// The fields of a form.
fn form(request: &Received) -> Vec<(String, String)> {
    url::form_urlencoded::parse(&request.body).into_owned().collect()
}

/// The claims of a token that is signed with this secret.
fn claims(token: &str, secret: &str) -> Value {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let hex: String =
        BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, hmac(secret, signed.as_bytes()));
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap()).unwrap()
}

#[test]
fn mercure_hub_gets_updates_and_clients_a_token() {
    let (data, hub) = (tempfile::tempdir().unwrap(), Receiver::start());
    let file = data.path().join("hub.secret");
    std::fs::write(&file, "a secret of the hub\n").unwrap();
    let node = keeping(&data.path().join("data"))
        .env("CAROM_EVENTS_MERCURE_URL", &hub.url("/.well-known/mercure"))
        .env("CAROM_EVENTS_MERCURE_PUBLIC_URL", "https://hub.example/.well-known/mercure")
        .env("CAROM_EVENTS_MERCURE_SECRET_FILE", &file.display().to_string())
        .env("CAROM_VISITS_LOG", "on")
        .env("CAROM_EVENTS_VISITS", "on")
        .start();
    let mut wire = node.wire();
    wire.shorten_as("one", TARGET);
    wire.get("/one");
    wire.get("/none");
    wait_until("all updates", || hub.received().len() == 3);
    let events = all_events(&node);
    let topics = [
        vec!["https://shlink.io/new-short-url"],
        vec!["https://shlink.io/new-visit", "https://shlink.io/new-visit/one"],
        vec!["https://shlink.io/new-orphan-visit"],
    ];
    for ((request, event), topics) in hub.received().iter().zip(&events).zip(topics) {
        assert_eq!(request.line, "POST /.well-known/mercure");
        let fields = form(request);
        let named = |name: &str| -> Vec<String> {
            fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
        };
        assert_eq!(named("topic"), topics);
        assert_eq!(named("id"), [format!("urn:carom:event:{}", event["id"].as_str().unwrap())]);
        assert!(named("type").is_empty(), "browsers would pass the update to no onmessage handler");
        let data: Value = serde_json::from_str(&named("data")[0]).unwrap();
        assert_eq!(data.get("visit"), event["data"].get("visit"));
        let token = request.field("authorization").strip_prefix("Bearer ").unwrap();
        assert_eq!(claims(token, "a secret of the hub")["mercure"], json!({"publish": ["*"]}));
    }
    let reply = wire.get("/rest/v3/mercure-info");
    is_described(&node, "get", "/rest/v3/mercure-info", &reply);
    let info = reply.json();
    assert_eq!(info["mercureHubUrl"], "https://hub.example/.well-known/mercure");
    let claims = claims(info["token"].as_str().unwrap(), "a secret of the hub");
    assert_eq!(claims["mercure"], json!({"subscribe": ["*"]}));
    assert_eq!(
        carom_model::formats::dates::parse(info["jwtExpiration"].as_str().unwrap()).unwrap() / 1_000,
        claims["exp"].as_u64().unwrap()
    );
    node.terminate();
}
