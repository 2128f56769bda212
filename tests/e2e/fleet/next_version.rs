//! Fleets of this version and of a build that stands for the next one: a new field of records, a new kind of state, a
//! new field of stream entries that a reader must understand, and a new form of visit counts.

#![cfg(feature = "next-format")]

use std::collections::BTreeMap;
use std::time::Duration;

use carom_model::link::record::unknown::UnknownFields;
use carom_model::replication::formats::NEWEST;
use carom_model::replication::formats::next::{ENTRY_TAG, FIELD, KIND_TAG};
use carom_model::replication::{Partition, State};
use serde_json::json;

use crate::support::alarms::is_seen;
use crate::support::fleet::{Fleet, is_marked, open_links, redirects, settle};
use crate::support::fleet_clients::{self, Made};
use crate::support::http::SHORT_URLS;
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{Reply, Server};
use crate::support::store::parse;
use crate::support::visits::counted;

/// A node of the next version.
fn next(setup: Setup) -> Setup {
    setup.env("CAROM_NEXT_FORMAT", "1").expect("CAROM_NEXT_FORMAT is not a setting")
}

/// The letter for the kind of a state in Redis.
fn kind(server: &Server, slug: &str) -> char {
    let key = format!("{{carom:{:02x}}}:l:{slug}", Partition::of(&parse(slug)).0);
    let Reply::Text(text) = server.command(&["GET", &key]) else { panic!("no state of {slug}") };
    char::from(text[0])
}

/// Waits until nodes write a format.
fn write(nodes: &[&Node], format: u32) {
    for node in nodes {
        wait_until("a format", || node.status()["fleet"]["formats"]["writes"] == format);
    }
}

/// Creates a link of each new sort, and changes it.
fn create(node: &Node, name: &str, made: &mut Vec<Made>) {
    for tag in [KIND_TAG, ENTRY_TAG, "plain"] {
        let (code, target) = (format!("{name}-{tag}"), format!("https://example.org/{name}/{tag}"));
        let body = json!({"longUrl": "https://example.org/first", "customSlug": code, "tags": [tag]});
        assert_eq!(node.wire().create(&body).status, 200);
        assert_eq!(change(&mut node.wire(), &code, &json!({"longUrl": target, "title": name})).status, 200);
        made.push(Made { code, target });
    }
}

/// All records of a node that does not run.
fn records(setup: &Setup) -> BTreeMap<Vec<u8>, Vec<u8>> {
    open_links(setup).page(b"", 1_000_000).unwrap().into_iter().collect()
}

#[test]
fn fleet_is_upgraded_under_load() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let setups: Vec<Setup> = (0..3).map(|number| fleet.setup(number)).collect();
    let mut nodes = vec![setups[0].start(), setups[1].start(), next(setups[2].clone()).start()];
    nodes.iter().for_each(settle);
    wait_until("the format of the next version", || {
        nodes[2].status()["fleet"]["formats"] == json!({"reads": NEWEST + 1, "writes": NEWEST})
    });
    let (mut made, mut deleted) = (Vec::new(), Vec::new());
    create(&nodes[2], "before", &mut made);
    assert_eq!(kind(&server, &format!("before-{KIND_TAG}")), 'C', "other nodes could not read the new kind");
    for (number, setup) in setups.iter().enumerate().take(2) {
        let old = nodes.remove(number);
        let others: Vec<_> = nodes.iter().map(|node| node.public).collect();
        let (seen, upgraded) = fleet_clients::run(&others, 2, Duration::from_millis(5), &[], || {
            old.terminate();
            let upgraded = next(setup.clone()).start();
            settle(&upgraded);
            create(&upgraded, &format!("during-{number}"), &mut made);
            upgraded
        });
        assert_eq!(seen.twice(), Vec::<&str>::new());
        assert!(seen.refused.is_empty() && seen.made.len() > 20, "{seen:?}");
        made.extend(seen.made);
        deleted.extend(seen.deleted);
        nodes.insert(number, upgraded);
    }
    write(&nodes.iter().collect::<Vec<_>>(), NEWEST + 1);
    create(&nodes[0], "after", &mut made);
    assert_eq!(kind(&server, &format!("after-{KIND_TAG}")), 'X');
    // An earlier link is written in the new form once it changes, and may be deleted in it.
    let (old, gone) = (format!("before-{KIND_TAG}"), format!("during-0-{KIND_TAG}"));
    assert_eq!(change(&mut nodes[1].wire(), &old, &json!({"title": "changed"})).status, 200);
    assert_eq!(change(&mut nodes[1].wire(), &gone, &json!({"title": "changed"})).status, 200);
    assert_eq!((kind(&server, &old), kind(&server, &gone)), ('X', 'X'));
    assert_eq!(nodes[0].wire().delete(&gone).status, 204);
    made.retain(|link| link.code != gone);
    nodes.iter().for_each(settle);
    for node in &nodes {
        wait_until("all links", || fleet_clients::check(node.public, &made).is_empty());
        wait_until("no other link", || node.status()["links"] == made.len());
        assert_eq!(
            (node.status()["fleet"]["unread"].as_u64(), node.status()["fleet"]["conflicts"].as_u64()),
            (Some(0), Some(0))
        );
        let mut wire = node.wire();
        assert!(deleted.iter().chain([&gone]).all(|code| wire.get(&format!("/{code}")).status == 404));
        assert_eq!(wire.get(&format!("{SHORT_URLS}/{old}")).json()["title"], "changed");
    }
    nodes.into_iter().for_each(|node| _ = node.terminate());
    let all: Vec<_> = setups.iter().map(records).collect();
    assert!(all[0] == all[1] && all[1] == all[2], "a link differs between two nodes");
    let code = parse("after-plain");
    let Some(State::Link(link)) = State::from_value(code, &all[0][code.to_string().as_bytes()]) else {
        panic!("no link")
    };
    assert_eq!(link.labels.unknown, UnknownFields::of(FIELD, b"of the next version"));
}

#[test]
fn marked_codes_are_read_after_the_upgrade() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let newer = next(fleet.setup(0)).expect("redis_away").start();
    let older = fleet.setup(1).expect("newer_format").start();
    [&newer, &older].into_iter().for_each(settle);
    newer.wire().shorten_as("changed", "https://example.org/old");
    wait_until("the link", || redirects(&older, "changed", "https://example.org/old"));
    let older = older.terminate();
    // The fleet has forgotten the older node when it comes back.
    server.command(&["ZREM", "{carom}:beats", "n1"]);
    server.command(&["HDEL", "{carom}:nodes", "n1"]);
    write(&[&newer], NEWEST + 1);
    let fields = json!({"longUrl": "https://example.org/new", "tags": [KIND_TAG]});
    assert_eq!(change(&mut newer.wire(), "changed", &fields).status, 200);
    let body = json!({"longUrl": "https://example.org/new", "customSlug": "fresh", "tags": [KIND_TAG]});
    assert_eq!(newer.wire().create(&body).status, 200);
    assert_eq!((kind(&server, "changed"), kind(&server, "fresh")), ('X', 'X'));

    let older = older.start();
    settle(&older);
    wait_until("both marks", || older.status()["fleet"]["unread"] == 2);
    ["changed", "fresh"].iter().for_each(|slug| is_marked(&older, slug));
    is_seen(&older, "newer_format");
    // From now on the newer node writes what both read.
    write(&[&newer], NEWEST);
    newer.wire().shorten_as("both", "https://example.org/both");
    wait_until("the link", || redirects(&older, "both", "https://example.org/both"));
    older.terminate();
    server.pause();
    let upgraded = next(fleet.setup(1)).expect("redis_away").expect("codes_failed").start();
    // From the kept texts, without Redis.
    for slug in ["changed", "fresh"] {
        wait_until("the new destination", || redirects(&upgraded, slug, "https://example.org/new"));
    }
    server.resume();
    settle(&upgraded);
    assert_eq!(upgraded.status()["fleet"]["unread"], 0);
    for slug in ["changed", "fresh"] {
        assert!(redirects(&newer, slug, "https://example.org/new"));
    }
}

#[test]
fn newer_counts_are_read_after_the_upgrade() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let (newer, older) = (next(fleet.setup(0)).start(), fleet.setup(1).start());
    [&newer, &older].into_iter().for_each(settle);
    newer.wire().shorten_as("kept", "https://example.org/kept");
    let path = format!("{SHORT_URLS}/kept");
    wait_until("the link", || older.wire().get(&path).status == 200);
    let visit = |node: &Node| assert_eq!(node.wire().get("/kept").status, 302);
    visit(&newer);
    wait_until("a visit in the format of both", || counted(&older, "kept") == 1);
    let older = older.terminate();
    // The fleet has forgotten the older node when it comes back.
    server.command(&["ZREM", "{carom}:beats", "n1"]);
    server.command(&["HDEL", "{carom}:nodes", "n1"]);
    write(&[&newer], NEWEST + 1);
    let published = || newer.status()["fleet"]["visits"][0]["published"].as_u64();
    let before = published();
    visit(&newer);
    wait_until("a visit in the next format", || published() > before);

    let older = older.start();
    settle(&older);
    let lacks = |node: &Node| node.status()["fleet"]["totals"]["lacks"].clone();
    wait_until("counts that cannot be read", || lacks(&older)[0]["reason"] == "newer");
    assert_eq!(lacks(&older)[0]["node"], "n0");
    // Later batches are in the format of both, and wait for the one before them.
    write(&[&newer], NEWEST);
    [&newer, &older].into_iter().for_each(visit);
    wait_until("the visit of the older node", || counted(&newer, "kept") == 4);
    assert_eq!(counted(&older, "kept"), 2);
    let upgraded = next(older.terminate()).start();
    wait_until("all visits", || counted(&upgraded, "kept") == 4);
    wait_until("counts of both", || [&newer, &upgraded].into_iter().all(|node| lacks(node) == json!([])));
}
