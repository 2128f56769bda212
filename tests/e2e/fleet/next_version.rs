//! Fleets of this version and of a build that stands for the next one: a new field of records, a new kind of state, a new
//! field of stream entries that a reader must understand, a new version of records, and a new form of visit counts. They are
//! upgraded and go back.

#![cfg(feature = "next-format")]

use std::collections::BTreeMap;
use std::time::Duration;

use carom_model::link::record::HEAD_LEN;
use carom_model::link::record::next::{RECORD_TAG, VERSION_NEXT};
use carom_model::link::record::unknown::UnknownFields;
use carom_model::replication::formats::NEWEST;
use carom_model::replication::formats::next::{ENTRY_TAG, FIELD, KIND_TAG};
use carom_model::replication::{Partition, State};
use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::fleet::{Fleet, HOT_LIMIT, changed, delete, is_marked, known, open_links, redirects, settle};
use crate::support::fleet_clients::{self, Made};
use crate::support::http::SHORT_URLS;
use crate::support::links::change;
use crate::support::memory::keeping;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{Reply, Server};
use crate::support::store::{open_store, parse};
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

/// Creates a link of each new sort that this version reads from its disk, and changes it.
fn create(node: &Node, name: &str, made: &mut Vec<Made>) {
    create_with(&[KIND_TAG, ENTRY_TAG, "plain"], node, name, made);
}

/// Creates a link with each of these tags, and changes it.
fn create_with(tags: &[&str], node: &Node, name: &str, made: &mut Vec<Made>) {
    for tag in tags {
        let (code, target) = (format!("{name}-{tag}"), format!("https://example.org/{name}/{tag}"));
        let body = json!({"longUrl": "https://example.org/first", "customSlug": code, "tags": [tag]});
        assert_eq!(node.wire().create_named(&body).status, 200);
        assert_eq!(changed(node, &code, &json!({"longUrl": target, "title": name})).status, 200);
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
        assert!(seen.refused.is_empty(), "{seen:?}");
        assert!(seen.made.len() > 20, "{seen:?}");
        made.extend(seen.made);
        deleted.extend(seen.deleted);
        nodes.insert(number, upgraded);
    }
    write(&nodes.iter().collect::<Vec<_>>(), NEWEST + 1);
    create(&nodes[0], "after", &mut made);
    assert_eq!(kind(&server, &format!("after-{KIND_TAG}")), 'X');
    // An earlier link is written in the new form once it changes, and may be deleted in it.
    let (old, gone) = (format!("before-{KIND_TAG}"), format!("during-0-{KIND_TAG}"));
    assert_eq!(changed(&nodes[1], &old, &json!({"title": "changed"})).status, 200);
    assert_eq!(changed(&nodes[1], &gone, &json!({"title": "changed"})).status, 200);
    assert_eq!((kind(&server, &old), kind(&server, &gone)), ('X', 'X'));
    delete(&nodes[0], &gone);
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
        let mut is_gone = |code: &String| wire.get(&format!("/{code}")).status == 404;
        wait_until("no deleted link", || deleted.iter().chain([&gone]).all(&mut is_gone));
        assert_eq!(wire.get(&format!("{SHORT_URLS}/{old}")).json()["title"], "changed");
    }
    nodes.into_iter().for_each(|node| _ = node.terminate());
    let all: Vec<_> = setups.iter().map(records).collect();
    assert!(all[0] == all[1], "a link differs between two nodes");
    assert!(all[1] == all[2], "a link differs between two nodes");
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
    assert_eq!(changed(&newer, "changed", &fields).status, 200);
    let body = json!({"longUrl": "https://example.org/new", "customSlug": "fresh", "tags": [KIND_TAG]});
    assert_eq!(newer.wire().create_named(&body).status, 200);
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
    // Until it hears of the older node, the newer one writes what only its version reads.
    write(&[&newer, &older], NEWEST);
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

/// The links of clients.
#[derive(Default)]
struct Load {
    made: Vec<Made>,
    deleted: Vec<String>,
}

/// Stops each node in turn and starts it as a `version`, while clients create, change and delete on the others.
fn replace_each(nodes: &mut Vec<Node>, setups: &[Setup], version: fn(Setup) -> Setup, load: &mut Load) {
    for (number, setup) in setups.iter().enumerate() {
        let old = nodes.remove(number);
        let others: Vec<_> = nodes.iter().map(|node| node.public).collect();
        let (seen, replaced) = fleet_clients::run(&others, 1, Duration::from_millis(5), &[], || {
            old.terminate();
            let replaced = version(setup.clone()).start();
            for (node, made) in nodes.iter().cycle().zip(load.made.iter().filter(|made| made.code.ends_with("plain"))) {
                let title = json!({"title": format!("{number}")});
                assert_eq!(changed(node, &made.code, &title).status, 200);
            }
            settle(&replaced);
            replaced
        });
        assert_eq!(seen.twice(), Vec::<&str>::new());
        assert!(seen.refused.is_empty(), "{seen:?}");
        assert!(seen.wrong.is_empty(), "{seen:?}");
        assert!(seen.made.len() > 10, "{seen:?}");
        load.made.extend(seen.made);
        load.deleted.extend(seen.deleted);
        nodes.insert(number, replaced);
    }
}

/// Checks that a node has these links and no other, and none of the deleted ones.
fn has_all(node: &Node, made: &[Made], deleted: &[String]) {
    wait_until("all links", || fleet_clients::check(node.public, made).is_empty());
    wait_until("no other link", || node.status()["links"] == made.len());
    let mut wire = node.wire();
    wait_until("no deleted link", || deleted.iter().all(|code| wire.get(&format!("/{code}")).status == 404));
    let status = node.status();
    assert_eq!((&status["store"]["damaged"], &status["fleet"]["conflicts"]), (&json!(0), &json!(0)));
}

/// Checks that a node keeps a record that only the next version can decode, and says so.
fn is_kept(node: &Node, slug: &str) {
    is_marked(node, slug);
    is_seen(node, "newer_format");
    let status = node.status();
    assert!(!alarms(&status).contains(&"store_damaged"), "{status}");
    assert!(status["store"]["newer"].as_u64() >= Some(1), "{status}");
    assert!(status["store"]["damaged"] == 0, "{status}");
}

/// The fields of all records of a node that does not run. Nodes hear at different times that they may write the next
/// version of a record, which has these fields as well.
fn fields(setup: &Setup) -> BTreeMap<Vec<u8>, Vec<u8>> {
    records(setup).into_iter().map(|(key, record)| (key, record[HEAD_LEN..].to_vec())).collect()
}

#[test]
fn fleet_goes_back_and_forth_under_load() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let setups: Vec<Setup> = (0..3).map(|number| fleet.setup(number).expect("newer_format")).collect();
    let mut nodes: Vec<Node> = setups.iter().map(Setup::start).collect();
    nodes.iter().for_each(settle);
    let mut load = Load::default();
    create(&nodes[0], "old", &mut load.made);
    replace_each(&mut nodes, &setups, next, &mut load);
    write(&nodes.iter().collect::<Vec<_>>(), NEWEST + 1);
    create_with(&[KIND_TAG, ENTRY_TAG, RECORD_TAG, "plain"], &nodes[0], "new", &mut load.made);
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| has_all(node, &load.made, &load.deleted));

    replace_each(&mut nodes, &setups, std::convert::identity, &mut load);
    write(&nodes.iter().collect::<Vec<_>>(), NEWEST);
    nodes.iter().for_each(settle);
    let kept = format!("new-{RECORD_TAG}");
    let (unread, read): (Vec<Made>, Vec<Made>) = load.made.iter().cloned().partition(|made| made.code == kept);
    assert_eq!(unread.len(), 1);
    for node in &nodes {
        has_all(node, &read, &load.deleted);
        is_kept(node, &kept);
    }

    nodes.into_iter().for_each(|node| _ = node.terminate());
    let nodes: Vec<Node> = setups.iter().map(|setup| next(setup.clone()).start()).collect();
    nodes.iter().for_each(settle);
    for node in &nodes {
        has_all(node, &load.made, &load.deleted);
        let status = node.status();
        assert_eq!((&status["store"]["newer"], &status["fleet"]["unread"]), (&json!(0), &json!(0)));
    }
    nodes.into_iter().for_each(|node| _ = node.terminate());
    let all: Vec<_> = setups.iter().map(fields).collect();
    assert!(all[0] == all[1], "a link differs between two nodes");
    assert!(all[1] == all[2], "a link differs between two nodes");
}

#[test]
fn newer_nodes_change_kept_links() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setups: Vec<Setup> = (0..2).map(|number| fleet.setup(number).expect("newer_format")).collect();
    let [newer, older] = [0, 1].map(|number: usize| next(setups[number].clone()).start());
    [&newer, &older].into_iter().for_each(settle);
    write(&[&newer, &older], NEWEST + 1);
    for slug in ["kept", "changed", "gone"] {
        let body = json!({"longUrl": "https://example.org/first", "customSlug": slug, "tags": [RECORD_TAG]});
        assert_eq!(newer.wire().create_named(&body).status, 200);
        wait_until("the link", || redirects(&older, slug, "https://example.org/first"));
    }
    [&newer, &older].into_iter().for_each(settle);
    older.terminate();
    let older = setups[1].start();
    settle(&older);
    ["kept", "changed", "gone"].iter().for_each(|slug| is_kept(&older, slug));
    assert_eq!(older.status()["store"]["newer"], 3);
    // From now on the newer node writes what both read.
    write(&[&newer], NEWEST);
    let fields = json!({"longUrl": "https://example.org/second"});
    assert_eq!(changed(&newer, "changed", &fields).status, 200);
    assert_eq!(newer.wire().delete("gone").status, 204);
    wait_until("the change", || redirects(&older, "changed", "https://example.org/second"));
    wait_until("the delete", || older.wire().get("/gone").status == 404);
    is_kept(&older, "kept");

    older.terminate();
    let upgraded = next(setups[1].clone()).start();
    settle(&upgraded);
    assert!(redirects(&upgraded, "kept", "https://example.org/first"));
    assert!(redirects(&upgraded, "changed", "https://example.org/second"));
    assert_eq!(known(|| upgraded.wire().get("/gone")).status, 404);
    wait_until("no alarm", || alarms(&upgraded.status()).is_empty());
}

#[test]
fn single_node_goes_back_and_forth() {
    for is_hot in [false, true] {
        let data = tempfile::tempdir().unwrap();
        let this = Setup::new(data.path()).cores(2).expect("newer_format");
        let this = if is_hot { keeping(this, HOT_LIMIT) } else { this };
        let node = next(this.clone()).start();
        for (slug, tag) in [("new", RECORD_TAG), ("old", "plain")] {
            let body = json!({"longUrl": format!("https://example.org/{slug}"), "customSlug": slug, "tags": [tag]});
            assert_eq!(node.wire().create(&body).status, 200);
        }
        node.terminate();
        let record = |slug: &str| open_store(&this).get(&parse(slug)).unwrap().expect("a record").to_vec();
        let written = record("new");
        assert_eq!(written[0], VERSION_NEXT);

        let node = this.start();
        assert!(redirects(&node, "old", "https://example.org/old"));
        is_kept(&node, "new");
        assert_eq!(change(&mut node.wire(), "old", &json!({"title": "changed"})).status, 200);
        let node = node.restart();
        is_kept(&node, "new");
        node.terminate();
        assert_eq!(record("new"), written, "an upgraded node would not read what the next version wrote");

        let node = next(this).start();
        for slug in ["new", "old"] {
            wait_until("the link", || redirects(&node, slug, &format!("https://example.org/{slug}")));
        }
        assert_eq!(node.status()["store"]["newer"], 0);
        assert_eq!(change(&mut node.wire(), "new", &json!({"title": "changed"})).status, 200);
    }
}
