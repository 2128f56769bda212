//! Links with a visit limit: it is never exceeded, with any number of clients, on every core, over both HTTP paths, and
//! after a kill.

use serde_json::json;

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{Node, Setup};

const TARGET: &str = "https://example.org/once";

/// Lets all of them ask at once, and returns how many were redirected. The others were told that it is over.
fn redirected(wires: &mut [Wire], code: &str) -> usize {
    wires.iter_mut().for_each(|wire| wire.send(format!("GET /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()));
    let statuses: Vec<u16> = wires.iter_mut().map(|wire| wire.reply().status).collect();
    assert!(statuses.iter().all(|status| [302, 410].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 302).count()
}

fn limited(wire: &mut Wire, visits: u32) -> String {
    wire.create(&json!({"longUrl": TARGET, "maxVisits": visits})).code()
}

fn patch(wire: &mut Wire, code: &str, fields: &serde_json::Value) {
    let fields = fields.to_string();
    let kind = "Content-Type: application/json\r\n";
    assert_eq!(wire.ask("PATCH", &format!("{SHORT_URLS}/{code}"), kind, fields.as_bytes()).status, 200);
}

#[test]
fn one_of_two_hundred_gets_through() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires: Vec<Wire> = (0..200).map(|_| node.wire()).collect();
        wires.iter_mut().step_by(4).for_each(|wire| assert_eq!(wire.get("/rest/health").status, 200));
        let codes: Vec<String> = (0..100).map(|_| limited(&mut wires[0], 1)).collect();
        for code in &codes {
            assert_eq!(redirected(&mut wires, code), 1);
        }
        assert_eq!(redirected(&mut wires, &codes[0]), 0);
        node.kill();
        // What was used up stays so.
        let node = setup.start();
        let mut wire = node.wire();
        assert!(codes.iter().all(|code| wire.get(&format!("/{code}")).status == 410));
    });
}

#[test]
fn limit_is_exact_over_restarts() {
    on_every_kind(|setup| {
        let mut made = 0;
        let mut code = String::new();
        for round in 0..4 {
            let node = setup.start();
            let mut wires: Vec<Wire> = (0..30).map(|_| node.wire()).collect();
            if round == 0 {
                code = limited(&mut wires[0], 100);
                assert_eq!(wires[0].get(&format!("{SHORT_URLS}/{code}")).json()["meta"]["maxVisits"], 100);
            }
            made += redirected(&mut wires, &code);
            drop(wires);
            node.terminate();
        }
        assert_eq!(made, 100, "what a process had in its share is there for the next one");
    });
}

#[test]
fn changed_limit_applies_at_once() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        let (last, count) = (wires.len() - 1, wires.len());
        let code = limited(&mut wires[last], 5);
        assert_eq!(redirected(&mut wires, &code), 5);
        patch(&mut wires[last], &code, &json!({"maxVisits": 7}));
        assert_eq!(redirected(&mut wires, &code), 2);
        patch(&mut wires[last], &code, &json!({"maxVisits": 100, "longUrl": "https://example.org/other"}));
        assert_eq!(everybody_gets(&mut wires, &format!("/{code}")), moved_to("https://example.org/other"));
        patch(&mut wires[last], &code, &json!({"maxVisits": 10, "title": "x"}));
        assert_eq!(redirected(&mut wires, &code), 0, "{} have been made", 7 + count);
        patch(&mut wires[last], &code, &json!({"maxVisits": null}));
        assert_eq!(redirected(&mut wires, &code), count);
        // They are counted, also while there is no maximum.
        patch(&mut wires[last], &code, &json!({"maxVisits": 7 + 2 * count + 1}));
        assert_eq!(redirected(&mut wires, &code), 1);
    });
}

#[test]
fn new_link_of_a_slug_starts_at_zero() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        for target in ["https://example.org/1", "https://example.org/2"] {
            wires[6].create(&json!({"longUrl": target, "customSlug": "again", "maxVisits": 3})).code();
            for _ in 0..3 {
                let reply = wires[0].get("/again");
                assert_eq!((reply.status, reply.field("location")), (302, Some(target)));
            }
            assert_eq!(redirected(&mut wires, "again"), 0);
            assert_eq!(wires[6].ask("DELETE", &format!("{SHORT_URLS}/again"), "", b"").status, 204);
            assert_eq!(wires[0].get("/again").status, 404);
        }
    });
}

/// Follows a link with a large maximum, kills the node again and again, and returns how often it was redirected.
fn followed_over_kills(setup: &Setup, max: u32) -> usize {
    let mut made = 0;
    let mut code = String::new();
    for round in 0..8 {
        let node: Node = setup.start();
        let mut wires: Vec<Wire> = (0..20).map(|_| node.wire()).collect();
        if round == 0 {
            code = limited(&mut wires[0], max);
        }
        made += (0..3).map(|_| redirected(&mut wires, &code)).sum::<usize>();
        node.kill();
    }
    made
}

#[test]
fn kill_loses_visits_but_repeats_none() {
    for cores in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let made = followed_over_kills(&Setup::new(data.path()).cores(cores), 200);
        assert!((60..=200).contains(&made), "{made}");
    }
}
