//! Nodes of several versions in one fleet: what a node does with fields, states and entries that it does not know.

use std::sync::Arc;

use carom::services::replication::redis::{CodeChange, Redis};
use carom_model::link::record::unknown::UnknownFields;
use carom_model::link::{Link, Origin, Version};
use carom_model::replication::formats;
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Partition, State};
use carom_model::testing;
use carom_shards::Code;
use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::fleet::{Fleet, KEY, WITHIN, connect_as, is_marked, known, open_links, redirects, settle};
use crate::support::links::change;
use crate::support::node::{Node, wait_until};
use crate::support::redis::{Client, Reply, Server};
use crate::support::store::parse;

const TARGET: &str = "https://example.org/old";

/// A field that no version has.
const FIELD: (u8, &[u8]) = (200, b"of a later version");

/// The first state of a link with a field of a later version.
fn with_a_field(slug: &str) -> Link {
    let mut link = Link { version: Version { rev: 1, claim: 7, edit: 0 }, ..testing::link(slug, Origin::Custom) };
    link.labels.unknown = UnknownFields::of(FIELD.0, FIELD.1);
    link
}

/// Stores a link in Redis, as a node of a later version does.
fn offer(redis: &mut Redis, link: Link) {
    let code = link.code;
    let changed = redis.change(&[(code, CodeChange::Offer(State::Link(Arc::new(link))))], WITHIN).remove(0).unwrap();
    assert!(matches!(changed.verdict, Verdict::Accepted(_)), "{changed:?}");
}

/// The link that Redis has.
fn in_redis(redis: &mut Redis, slug: &str) -> Arc<Link> {
    match redis.states(&[parse(slug)], WITHIN).remove(0) {
        Ok(Some(ReceivedState::Known(State::Link(link)))) => link,
        other => panic!("no link: {other:?}"),
    }
}

/// The text of a state of a kind that this version does not know.
fn of_kind(kind: u8, link: &Link) -> Vec<u8> {
    let mut text = State::Link(Arc::new(link.clone())).to_text(&link.code);
    text[0] = kind;
    text
}

/// Sets the state of a code in Redis, and appends a state to the stream.
fn publish(server: &Server, code: &Code, text: &[u8], entry: &[u8]) {
    let tag = format!("{{carom:{:02x}}}", Partition::of(code).0);
    let (key, stream, name) = (format!("{tag}:l:{code}"), format!("{tag}:s"), code.to_string());
    let mut client = Client::open(server.address(), WITHIN).unwrap();
    assert_eq!(client.ask(&[b"SET", key.as_bytes(), text]).unwrap(), "OK");
    let add: [&[u8]; 7] = [b"XADD", stream.as_bytes(), b"*", b"c", name.as_bytes(), b"v", entry];
    client.ask(&add).unwrap().text();
}

/// A link of Redis, changed to another destination.
fn changed(redis: &mut Redis, slug: &str, target: &str) -> Link {
    let link = in_redis(redis, slug);
    Link { version: link.version.edited(), target: target.to_owned(), ..Link::clone(&link) }
}

fn unread(node: &Node) -> u64 {
    node.status()["fleet"]["unread"].as_u64().expect("a number")
}

#[test]
fn unknown_fields_survive_a_change() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let mut redis = connect_as("carom", &server);
    offer(&mut redis, with_a_field("slug"));
    for node in &nodes {
        wait_until("the link everywhere", || redirects(node, "slug", "https://example.org/slug"));
    }
    // Redis may have made a change that it did not confirm in time, and makes it once more then.
    let fields = json!({"longUrl": "https://example.org/changed"});
    let changed = known(|| change(&mut nodes[0].wire(), "slug", &fields));
    assert_eq!(changed.status, 200, "{changed:?}");
    for node in &nodes {
        wait_until("the change everywhere", || redirects(node, "slug", "https://example.org/changed"));
        settle(node);
    }
    let now = in_redis(&mut redis, "slug");
    assert_eq!(&*now.target, "https://example.org/changed");
    assert!(now.version.edit >= 1, "{:?}", now.version);
    assert_eq!(now.labels.unknown, UnknownFields::of(FIELD.0, FIELD.1));
    // The fields are on the disk of each node too, from where a node that has lost its Redis brings them back.
    nodes.into_iter().for_each(|node| _ = node.terminate());
    for number in 0..2 {
        let value = open_links(&fleet.setup(number)).get(&parse("slug")).unwrap().expect("a record");
        assert_eq!(State::from_value(parse("slug"), &value), Some(State::Link(Arc::clone(&now))), "node {number}");
    }
}

#[test]
fn undecodable_state_replaces_the_old_one() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes: Vec<Node> = (0..2).map(|number| fleet.setup(number).expect("newer_format").start()).collect();
    nodes.iter().for_each(settle);
    let mut redis = connect_as("carom", &server);
    nodes[0].wire().shorten_as("slug", TARGET);
    nodes.iter().for_each(|node| wait_until("the link everywhere", || redirects(node, "slug", TARGET)));
    nodes.iter().for_each(settle);
    let newer = changed(&mut redis, "slug", "https://example.org/newer");
    publish(&server, &newer.code, &of_kind(b'Z', &newer), &of_kind(b'Z', &newer));
    for node in &nodes {
        wait_until("an end of the old destination", || node.wire().get("/slug").status == 503);
        wait_until("a mark", || unread(node) == 1);
        is_marked(node, "slug");
        is_seen(node, "newer_format");
    }
    // The mark is on disk, and so is nothing else of the code.
    let nodes: Vec<Node> = nodes.into_iter().map(Node::restart).collect();
    for node in &nodes {
        is_marked(node, "slug");
        settle(node);
        is_marked(node, "slug");
        assert_eq!((unread(node), node.status()["links"].as_u64()), (1, Some(0)));
    }
    // A later state that this version knows ends it.
    let last = Link { version: newer.version.edited(), target: "https://example.org/last".to_owned(), ..newer };
    publish(&server, &last.code, &of_kind(b'C', &last), &of_kind(b'C', &last));
    for node in &nodes {
        wait_until("the last state", || redirects(node, "slug", "https://example.org/last"));
        wait_until("no mark", || unread(node) == 0);
        wait_until("no alarm", || alarms(&node.status()).is_empty());
    }
}

#[test]
fn lost_undecodable_state_is_not_missing() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).expect("newer_format").start();
    settle(&node);
    let mut redis = connect_as("carom", &server);
    node.wire().shorten_as("slug", TARGET);
    settle(&node);
    let first = in_redis(&mut redis, "slug");
    let newer = changed(&mut redis, "slug", "https://example.org/newer");
    publish(&server, &newer.code, &of_kind(b'Z', &newer), &of_kind(b'Z', &newer));
    wait_until("a mark", || unread(&node) == 1);
    // Redis loses the state, and no other node has it.
    let key = format!("{{carom:{:02x}}}:l:slug", Partition::of(&newer.code).0);
    server.command(&["DEL", &key]);
    wait_until("404 for a slug that nobody has", || node.wire().get("/nobody-s").status == 404);
    is_marked(&node, "slug");
    // The state before comes back, as from a dump.
    publish(&server, &first.code, &of_kind(b'C', &first), &of_kind(b'C', &first));
    settle(&node);
    is_marked(&node, "slug");
    assert_eq!(unread(&node), 1);
    // The node cannot decode the lost state, but has its text.
    let kept = of_kind(b'Z', &newer);
    wait_until("the restored state", || matches!(server.command(&["GET", &key]), Reply::Text(text) if text == kept));
    is_marked(&node, "slug");
}

#[test]
fn undecodable_entry_is_answered_from_redis() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).start();
    settle(&node);
    let mut redis = connect_as("carom", &server);
    node.wire().shorten_as("slug", TARGET);
    settle(&node);
    let newer = changed(&mut redis, "slug", "https://example.org/newer");
    // The state in Redis is one that this version knows.
    publish(&server, &newer.code, &of_kind(b'C', &newer), &of_kind(b'Z', &newer));
    wait_until("the new destination", || redirects(&node, "slug", "https://example.org/newer"));
    wait_until("no mark", || unread(&node) == 0);
}

#[test]
fn heartbeats_tell_versions_and_formats() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    wait_until("both nodes in the status", || {
        let status = nodes[0].status();
        let others = status["fleet"]["nodes"].as_array().unwrap().clone();
        others.len() == 2 && others.iter().all(|node| node["about"]["formats"]["writes"] == formats::NEWEST)
    });
    let status = nodes[0].status();
    assert_eq!(status["fleet"]["formats"], json!({"reads": formats::NEWEST, "writes": formats::NEWEST}));
    for node in status["fleet"]["nodes"].as_array().unwrap() {
        assert_eq!(node["about"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(node["about"]["formats"]["reads"], formats::NEWEST);
        assert!(node["silentMillis"].is_u64(), "{node}");
        assert!(node["about"]["lagMillis"].is_u64(), "{node}");
    }
}

#[test]
fn differing_settings_are_named() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = fleet.setup(0).expect("settings_differ").start();
    let second = fleet.setup(1).env("CAROM_LINKS_DEDUPE", "1h").env("CAROM_LINKS_SLUG_CASE", "insensitive");
    let second = second.env("CAROM_FLEET_RECLAIM_SECONDS", "3600").expect("settings_differ").start();
    for (node, other) in [(&first, "n1"), (&second, "n0")] {
        is_seen(node, "settings_differ");
        let told = node.status()["alarms"].to_string();
        assert!(told.contains("fleet.reclaim_seconds"), "{told}");
        assert!(told.contains("links.dedupe"), "{told}");
        assert!(told.contains("links.slug_case"), "{told}");
        assert!(told.contains(other), "{told}");
        assert!(!told.contains("domains.serve"), "{told}");
        assert!(!told.contains("keep_expired"), "{told}");
        assert!(!told.contains(KEY), "{told}");
    }
    second.terminate();
    let second = fleet.setup(1).start();
    for node in [&first, &second] {
        wait_until("no alarm", || alarms(&node.status()).is_empty());
    }
}
