//! Nodes of several versions in one fleet: what a node does with fields, states and entries that it does not know.

use std::sync::Arc;

use carom::services::replication::redis::{CodeChange, Redis};
use carom_model::link::record::unknown::UnknownFields;
use carom_model::link::{Link, Origin, Version};
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;
use carom_model::testing;
use carom_shards::CodeSecret;
use carom_store::links::Links;
use serde_json::json;

use crate::support::fleet::{Fleet, KEY, WITHIN, connect_as, settle};
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;
use crate::support::store::parse;

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
        Ok(Some(State::Link(link))) => link,
        other => panic!("no link: {other:?}"),
    }
}

/// The record of a code in the store of a node that does not run.
fn stored(setup: &Setup, slug: &str) -> Option<Vec<u8>> {
    let secret = CodeSecret::from_hex(KEY).expect("a secret");
    let (links, _) = Links::open(&setup.data_dir().join("links"), &secret.fingerprint()).expect("the store opens");
    links.get(&parse(slug)).unwrap().map(|value| value.to_vec())
}

fn redirects(node: &Node, slug: &str, target: &str) -> bool {
    let reply = node.wire().get(&format!("/{slug}"));
    reply.status == 302 && reply.location() == target
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
    let changed = change(&mut nodes[0].wire(), "slug", &json!({"longUrl": "https://example.org/changed"}));
    assert_eq!(changed.status, 200, "{changed:?}");
    for node in &nodes {
        wait_until("the change everywhere", || redirects(node, "slug", "https://example.org/changed"));
        settle(node);
    }
    let now = in_redis(&mut redis, "slug");
    assert_eq!((&*now.target, now.version.edit), ("https://example.org/changed", 1));
    assert_eq!(now.labels.unknown, UnknownFields::of(FIELD.0, FIELD.1));
    // The fields are on the disk of each node too, from where a node that has lost its Redis brings them back.
    nodes.into_iter().for_each(|node| _ = node.terminate());
    for number in 0..2 {
        let value = stored(&fleet.setup(number), "slug").expect("a record");
        assert_eq!(State::from_value(parse("slug"), &value), Some(State::Link(Arc::clone(&now))), "node {number}");
    }
}
