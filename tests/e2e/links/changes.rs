//! Changes of links: an acknowledged change holds on every core, and no visitor gets the old destination any more.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::links::{change, everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{Node, Setup, wait_until};

const TARGET: &str = "https://example.org/first";

/// Changes of one link while others follow it.
const CHANGES: usize = 300;

/// Redirects beside them at least, all together.
const REDIRECTS: usize = 10_000;

/// A number that a longer run sets in its environment.
fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Readers, half of which hyper answers.
const READERS: usize = 6;

fn read(node: &Node, code: &str) -> Value {
    said(&node.wire().get(&format!("{SHORT_URLS}/{code}")))
}

/// The link in a response, without its short URL, which has another port after a restart, and without its visits, which
/// increase.
fn said(reply: &Reply) -> Value {
    let mut link = reply.json();
    for field in ["shortUrl", "visitsSummary"] {
        link.as_object_mut().unwrap().remove(field).unwrap();
    }
    link
}

#[test]
fn later_deletes_can_be_undone() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).start();
    for code in ["soon", "restored", "kept"] {
        node.wire().shorten_as(code, TARGET);
    }
    let status = |code: &str| node.wire().get(&format!("/{code}")).status;
    let delete = |code: &str, query: &str| node.wire().ask("DELETE", &format!("{SHORT_URLS}/{code}?{query}"), "", b"");
    let reply = delete("restored", "after=3600");
    assert_eq!((reply.status, &reply.json()["archived"]), (200, &json!(true)), "{reply:?}");
    assert!(reply.json()["deletesAt"].is_string(), "{reply:?}");
    assert_eq!(status("restored"), 410);
    let reply = node.wire().ask("PATCH", &format!("{SHORT_URLS}/restored"), JSON, br#"{"archived": false}"#);
    assert_eq!((reply.status, &reply.json()["deletesAt"]), (200, &Value::Null), "{reply:?}");
    assert_eq!(status("restored"), 302);
    assert_eq!(delete("soon", "after=1").status, 200);
    wait_until("a deleted link", || status("soon") == 404);
    // An empty delay deletes nothing, and a purge cannot wait.
    for wrong in ["after=", "after=0", "after=%2B5", "after=3601", "after=5&purge=true"] {
        let problem = delete("kept", wrong).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["after"]), "{wrong}");
    }
    assert_eq!(status("kept"), 302);
    delete("none", "after=1").problem(404, "/short-url-not-found");
    // Until the deletion, the slug is taken. A delete without a delay does not wait.
    assert_eq!(delete("kept", "after=3600").status, 200);
    let again = json!({"longUrl": TARGET, "customSlug": "kept"});
    node.wire().create(&again).problem(400, "/non-unique-slug");
    assert_eq!(delete("kept", "").status, 204);
    assert_eq!(status("kept"), 404);
    assert_eq!(node.wire().create(&again).status, 200);
    node.terminate();
}

#[test]
fn every_field_can_be_set_and_cleared() {
    on_every_kind(|setup| {
        // A link that expired long ago would be removed within seconds, and get 404.
        let mut node = setup.clone().env("CAROM_LINKS_KEEP_EXPIRED", "forever").start();
        let made = json!({"longUrl": TARGET, "customSlug": "it", "title": "T", "tags": ["a"], "cacheSeconds": 5,
            "validUntil": "2100-01-01T00:00:00+00:00"});
        let first = node.wire().create(&made).json();
        let path = "/it?q=1";
        for (change_of, shown, location) in [
            (json!({}), json!({}), "https://example.org/first?q=1"),
            (
                json!({"longUrl": "https://example.org/2"}),
                json!({"longUrl": "https://example.org/2"}),
                "https://example.org/2?q=1",
            ),
            (json!({"forwardQuery": false}), json!({"forwardQuery": false}), "https://example.org/2"),
            (
                json!({"title": "Other", "tags": ["b", "C"]}),
                json!({"title": "Other", "tags": ["b", "c"]}),
                "https://example.org/2",
            ),
            (json!({"title": null, "tags": []}), json!({"title": null, "tags": []}), "https://example.org/2"),
            (json!({"longUrl": null, "crawlable": true}), json!({"crawlable": true}), "https://example.org/2"),
            (json!({"cacheSeconds": null, "maxVisits": null}), json!({"cacheSeconds": null}), "https://example.org/2"),
            (
                json!({"crawlable": null, "forwardQuery": null}),
                json!({"crawlable": false, "forwardQuery": true}),
                "https://example.org/2?q=1",
            ),
        ] {
            let mut expected = read(&node, "it");
            for (field, value) in shown.as_object().unwrap() {
                expected[field] = value.clone();
            }
            let answer = change(&mut node.wire(), "it", &change_of);
            assert_eq!((answer.status, said(&answer)), (200, expected.clone()), "{change_of}");
            assert_eq!(everybody_gets(&mut wires(&node), path), moved_to(location), "{change_of}");
            assert_eq!(read(&node, "it"), expected);
            node = node.restart();
            assert_eq!(read(&node, "it"), expected);
        }
        assert_eq!(read(&node, "it")["dateCreated"], first["dateCreated"]);
        // The way to redirect, put away and taken out again, ended and endless, too early.
        for (change_of, status) in [
            (json!({"redirectStatus": 308}), 308),
            (json!({"archived": true}), 410),
            (json!({"archived": null, "redirectStatus": null}), 302),
            (json!({"validUntil": "2001-01-01T00:00:00Z"}), 410),
            (json!({"validUntil": null, "validSince": "2100-01-01T00:00:00Z"}), 404),
            (json!({"validSince": null}), 302),
        ] {
            assert_eq!(change(&mut node.wire(), "it", &change_of).status, 200, "{change_of}");
            assert_eq!(everybody_gets(&mut wires(&node), path).0, status, "{change_of}");
        }
    });
}

#[test]
fn old_target_is_never_served_afterwards() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(3).start();
    let target = |number: usize| format!("https://example.org/{number}");
    node.wire().shorten_as("moving", &target(0));
    let (changes, redirects) = (number("CAROM_CHANGES", CHANGES), number("CAROM_REDIRECTS", REDIRECTS));
    let (acknowledged, followed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let follow = |wires: &mut Vec<Wire>| {
        let mut seen = 0;
        let is_done = || acknowledged.load(Ordering::SeqCst) == changes && followed.load(Ordering::SeqCst) >= redirects;
        while !is_done() {
            let before = acknowledged.load(Ordering::SeqCst);
            wires.iter_mut().for_each(|wire| wire.send(b"GET /moving HTTP/1.1\r\nHost: a\r\n\r\n"));
            for wire in wires.iter_mut() {
                let location = wire.reply().location().to_owned();
                let number: usize = location.rsplit('/').next().unwrap().parse().unwrap();
                assert!(number >= before, "{number} was served after {before} had been answered");
                seen += 1;
            }
            followed.fetch_add(wires.len(), Ordering::SeqCst);
        }
        seen
    };
    let seen: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let mut wires = wires(&node);
                scope.spawn(move || follow(&mut wires))
            })
            .collect();
        let mut writers: Vec<Wire> = (0..4).map(|_| node.wire()).collect();
        for number in 1..=changes {
            let answer = change(&mut writers[number % 4], "moving", &json!({"longUrl": target(number)}));
            assert_eq!(answer.status, 200);
            acknowledged.store(number, Ordering::SeqCst);
            wait_until("redirects between changes", || followed.load(Ordering::SeqCst) >= number * redirects / changes);
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(seen >= redirects, "{seen} redirects");
}

#[test]
fn invalid_changes_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let mut wire = node.wire();
    let code = wire.create(&json!({"longUrl": TARGET, "validUntil": "2100-01-01T00:00:00Z"})).code();
    let before = read(&node, &code);
    for (field, wrong) in [
        ("longUrl", json!("")),
        ("longUrl", json!("ftp://a/")),
        ("longUrl", json!(node.url("/x"))),
        ("customSlug", json!("other")),
        ("private", json!(true)),
        ("title", json!("x".repeat(65_536))),
        ("tags", json!([["a"]])),
        ("archived", json!("no")),
        ("validSince", json!("2100-01-01T00:00:00Z")),
        ("validUntil", json!("1960-01-01T00:00:00Z")),
        ("maxVisits", json!(1e300)),
        ("colour", json!("red")),
    ] {
        let mut fields = json!({"title": "changed"});
        fields[field] = wrong;
        let problem = change(&mut wire, &code, &fields).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!([field]), "{problem}");
        assert_eq!(read(&node, &code), before, "nothing of it was done");
    }
    for absent in ["nowhere", "a%20b", "%00", &"x".repeat(100)] {
        change(&mut wire, absent, &json!({"title": "a"})).problem(404, "/short-url-not-found");
    }
    assert_eq!(wire.delete(&code).status, 204);
    change(&mut wire, &code, &json!({"title": "a"})).problem(404, "/short-url-not-found");
    assert_eq!(node.wire().get(&format!("/{code}")).status, 404);
    let put = wire.ask("PUT", &format!("{SHORT_URLS}/{code}"), "", b"");
    assert_eq!((put.status, put.field("allow")), (405, Some("GET, HEAD, PATCH, DELETE")));
}
