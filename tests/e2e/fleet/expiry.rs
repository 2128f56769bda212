//! Expiry in a fleet: any node may remove an expired link, none removes a link that another has changed, and an outage
//! of Redis removes nothing.

use std::time::Duration;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::fleet::{Fleet, changed, known, settle};
use crate::support::http::SHORT_URLS;
use crate::support::links::{create_many, race_removal};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/target";

/// Links that are changed before the first one is removed.
const CHANGED_EARLY: usize = 20;

/// Nodes that remove links soon after their end, so many a second.
fn start(fleet: &Fleet, nodes: usize, per_second: &str) -> Vec<Node> {
    let setup = |number| {
        fleet
            .setup(number)
            .env("CAROM_LINKS_KEEP_EXPIRED", "1s")
            .env("CAROM_LINKS_EXPIRE_PER_SECOND", per_second)
            .expect("redis_away")
            .expect("counter_regressed")
    };
    let nodes: Vec<Node> = (0..nodes).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

fn expired(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.status()["expiry"]["expired"].as_u64().expect("a number")).sum()
}

fn ended(seconds: u64) -> Value {
    json!({"longUrl": TARGET, "validUntil": dates::format(unix_ms() - seconds * 1_000)})
}

fn get(node: &Node, code: &str) -> u16 {
    known(|| node.wire().get(&format!("/{code}"))).status
}

#[test]
fn expired_link_leaves_all_nodes_once() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start(&fleet, 3, "10000");
    let mut codes = Vec::new();
    for node in &nodes {
        let mut wire = node.wire();
        codes.extend((0..100).map(|_| wire.create(&ended(0)).code()));
    }
    let mut slug = ended(0);
    slug["customSlug"] = json!("slug");
    assert_eq!(nodes[0].wire().create_named(&slug).status, 200);
    nodes[1].wire().shorten_as("kept", TARGET);
    // A node that has not read of all links yet may have one of them, too.
    wait_until("the removal", || expired(&nodes) >= 301 && nodes.iter().all(|node| node.status()["links"] == 1));
    nodes.iter().for_each(settle);
    assert_eq!(expired(&nodes), 301, "each by one node");
    for node in &nodes {
        assert!(codes.iter().step_by(10).all(|code| get(node, code) == 404));
        assert_eq!(get(node, "slug"), 404);
        assert_eq!(get(node, "kept"), 302);
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    // A slug is free again, on every node.
    nodes[2].wire().shorten_as("slug", TARGET);
    wait_until("the slug everywhere", || nodes.iter().all(|node| get(node, "slug") == 302));
}

#[test]
fn changed_link_is_not_removed() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start(&fleet, 3, "60");
    // They end once some of them are changed.
    let ending = json!({"longUrl": TARGET, "validUntil": dates::format(unix_ms() + 4_000)});
    let codes = create_many(&nodes[0], &ending, 300);
    let later = json!({"validUntil": dates::format(unix_ms() + 1_000_000)});
    let (kept, gone) = race_removal(&codes, Duration::from_millis(5), |code, number| {
        if number == CHANGED_EARLY {
            wait_until("the first removal", || expired(&nodes) > 0);
        }
        changed(&nodes[number % 3], code, &later).status
    });
    wait_until("the others gone", || nodes.iter().all(|node| node.status()["links"] == json!(kept.len())));
    wait_until("counted removals", || expired(&nodes) >= gone.len() as u64);
    assert_eq!(expired(&nodes), gone.len() as u64);
    for node in &nodes {
        assert!(kept.iter().all(|code| get(node, code) == 302));
        assert!(gone.iter().all(|code| get(node, code) == 404));
    }
}

#[test]
fn outage_removes_nothing() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2, "10000");
    let mut wire = nodes[0].wire();
    let made = unix_ms();
    let end = json!({"longUrl": TARGET, "validUntil": dates::format((made / 1_000 + 13) * 1_000)});
    let code = wire.create(&end).code();
    wait_until("the link everywhere", || nodes.iter().all(|node| node.status()["links"] == 1));
    nodes.iter().for_each(settle);
    server.kill();
    assert!(unix_ms() < made + 12_000, "the machine stood still");
    wait_until("the time of its removal, long over", || unix_ms() > made + 16_000);
    assert!(nodes.iter().all(|node| get(node, &code) == 410));
    assert_eq!(expired(&nodes), 0);
    let read = wire.get(&format!("{SHORT_URLS}/{code}"));
    assert_eq!(read.json()["shortCode"], json!(code));
    // It has come back empty: it gets the link, and then its end.
    server.start_again();
    wait_until("the removal", || nodes.iter().all(|node| node.status()["links"] == 0));
    assert!(nodes.iter().all(|node| get(node, &code) == 404));
    wait_until("a counted removal", || expired(&nodes) > 0);
    assert_eq!(expired(&nodes), 1);
}
