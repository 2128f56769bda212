//! Purges in a fleet: afterwards no node and no key of Redis has anything of the links.

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::bulk::{IMPORT, send_all};
use crate::support::fleet::{Fleet, assert_redirects, changed, known, settle, stored_members};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::purges::{
    MARKER, PURGES, assert_clean, fails_with, hold_back, marked_files, marked_keys, purge, wait_for_purge,
};
use crate::support::redis::{Reply, Server, Setup as RedisSetup};

const KEPT: &str = "https://example.org/kept";

fn keeping(fleet: &Fleet, number: usize) -> Setup {
    let setup = fleet.setup(number).env("CAROM_VISITS_LOG", "on").env("CAROM_EVENTS_LOG", "on");
    setup.env("CAROM_BASE_URL", "http://s.test")
}

/// Makes a link with the marker in all of its texts, changes it on another node, and follows it on all of them.
fn leave_traces(nodes: &[Node]) {
    let target = format!("https://a.example/{MARKER}");
    let mut first = nodes[0].wire();
    let texts = json!({"longUrl": target, "customSlug": "gone", "title": MARKER, "tags": [MARKER], "maxVisits": 100});
    assert_eq!(first.create_named(&texts).status, 200);
    first.shorten_as("kept", KEPT);
    let path = format!("{SHORT_URLS}/gone");
    wait_until("the link on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
    let last = &nodes[nodes.len() - 1];
    assert_eq!(changed(last, "gone", &json!({"title": format!("New {MARKER}")})).status, 200);
    for node in nodes {
        // Redis grants each visit of a link with a limit.
        let visit = || Some(node.wire().get("/gone")).filter(|reply| reply.status == 302);
        assert_eq!(wait_for("a visit", visit).location(), target);
    }
    let visits = format!("{path}/visits");
    let counted = |node: &Node| node.wire().get(&visits).json()["visits"]["pagination"]["totalItems"].clone();
    wait_until("all visits on every node", || nodes.iter().all(|node| counted(node) == json!(nodes.len())));
}

fn begin(node: &Node) -> String {
    // A node whose Redis is too slow says 503.
    let reply = known(|| node.wire().ask("DELETE", &format!("{SHORT_URLS}/gone?purge=true"), "", b""));
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// Imports the link `gone`, always with the same date.
fn import(node: &Node, target: &str, end: Option<&str>) {
    let (date, meta) = ("2025-06-01T12:00:00.123Z", json!({"validUntil": end}));
    let line = json!({"shortCode": "gone", "longUrl": target, "dateCreated": date, "meta": meta});
    wait_until("a line that Redis confirms in time", || {
        send_all(node, IMPORT, format!("{line}\n").as_bytes())[0]["status"] == 200
    });
}

#[test]
fn purge_reaches_all_nodes_and_redis() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes: Vec<Node> = (0..3).map(|number| keeping(&fleet, number).start()).collect();
    nodes.iter().for_each(settle);
    leave_traces(&nodes);
    for number in 0..3 {
        assert_ne!(marked_files(fleet.setup(number).data_dir()), Vec::<String>::new(), "the test would prove nothing");
    }
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    let grants = || server.command(&["KEYS", "*:v:gone:*"]).list().len();
    assert_eq!(grants(), 1, "the test would prove nothing");
    let id = begin(&nodes[1]);
    for node in &nodes {
        wait_for_purge(node, &id);
    }
    let parts = purge(&nodes[2], &id).unwrap()["nodes"].clone();
    let done = |name: &str| json!({"node": name, "complete": true, "silentSince": null});
    assert_eq!(parts, json!([done("n0"), done("n1"), done("n2")]));
    assert_clean(&fleet, 3, &server);
    assert_eq!(grants(), 0, "the number of granted visits is left");
    for node in &nodes {
        assert_redirects(node, "kept", KEPT);
        // A node that waits for a confirmation of the others says 503.
        let answer = || Some(node.wire().get("/gone").status).filter(|status| *status != 503);
        assert_eq!(wait_for("an answer", answer), 404);
    }
    // The streams continue: changes and visits still reach all nodes.
    nodes[0].wire().shorten_as("later", KEPT);
    wait_until("the next link", || nodes.iter().all(|node| node.wire().get("/later").status == 302));
    for node in nodes {
        node.terminate();
    }
    assert_clean(&fleet, 3, &server);
}

#[test]
fn links_that_ended_before_leave_every_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let start = |number| keeping(&fleet, number).env("CAROM_LINKS_KEEP_EXPIRED", "1s").start();
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    let target = |path: &str| format!("https://a.example/{MARKER}/{path}");
    let mut wire = nodes[0].wire();
    let end = dates::format((unix_ms() / 1_000 + 3) * 1_000);
    let expired = json!({"longUrl": target("expired"), "customSlug": "expired", "validUntil": end});
    assert_eq!(wire.create_named(&expired).status, 200);
    wire.shorten_as("slug", &target("deleted"));
    wait_until("a visit on the other node", || nodes[1].wire().get("/slug").status == 302);
    assert_eq!(wire.delete("slug").status, 204);
    wire.shorten_as("slug", KEPT);
    wait_until("the next link everywhere", || nodes.iter().all(|node| node.status()["links"] == 1));
    wait_until("its visit", || {
        let reply = nodes[1].wire().get("/slug");
        reply.status == 302 && reply.location() == KEPT
    });
    let path = format!("{SHORT_URLS}/slug/visits");
    let visits = |node: &Node| node.wire().get(&path).json()["visits"]["pagination"]["totalItems"].as_u64();
    wait_until("its visit everywhere", || nodes.iter().all(|node| visits(node) == Some(1)));
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    let fields = json!({"destination": target(""), "confirm": 0}).to_string();
    let reply = known(|| wire.ask("POST", PURGES, "Content-Type: application/json\r\n", fields.as_bytes()));
    assert_eq!((reply.status, &reply.json()["deletedBefore"]), (202, &json!(2)), "{}", reply.text());
    let id = reply.json()["purge"]["id"].as_str().unwrap().to_owned();
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&fleet, 2, &server);
    for node in &nodes {
        assert_eq!(visits(node), Some(1), "the next link keeps its visits");
        assert_redirects(node, "slug", KEPT);
    }
}

#[test]
fn link_imported_again_holds_no_node_back() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| fleet.setup(number).env("CAROM_LINKS_KEEP_EXPIRED", "1s");
    let start = |number| setup(number).expect("a purge could not be carried out").start();
    let mut nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    let target = format!("https://a.example/{MARKER}");
    // Only the search index still has a link that expired without a change, and it has no claims.
    let end = dates::format((unix_ms() / 1_000 + 9) * 1_000);
    import(&nodes[0], &target, Some(&end));
    // A store without links keeps no search index.
    nodes[0].wire().shorten_as("kept", KEPT);
    let count = |node: &Node| node.status()["links"].clone();
    wait_until("both links everywhere", || nodes.iter().all(|node| count(node) == 2));
    wait_until("the end of one everywhere", || nodes.iter().all(|node| count(node) == 1));
    // A restart writes the files of the search index, which still have its texts.
    let restarted = nodes.remove(0).restart();
    nodes.insert(0, restarted);
    settle(&nodes[0]);
    let ask = |fields: Value| {
        let body = fields.to_string();
        nodes[0].wire().ask("POST", PURGES, "Content-Type: application/json\r\n", body.as_bytes())
    };
    wait_until("the search index", || {
        let counted = ask(json!({"destination": target}));
        counted.status == 200 && counted.json()["deletedBefore"] == 1
    });
    let folder = hold_back(&fleet, 1);
    let reply = known(|| ask(json!({"destination": target, "confirm": 0})));
    assert_eq!((reply.status, &reply.json()["deletedBefore"]), (202, &json!(1)), "{}", reply.text());
    let id = reply.json()["purge"]["id"].as_str().unwrap().to_owned();
    wait_until("a purge that is held back", || fails_with(&nodes[1], &id, "visit-log"));
    import(&nodes[0], KEPT, None);
    let redirects = |node: &Node| {
        let reply = node.wire().get("/gone");
        reply.status == 302 && reply.location() == KEPT
    };
    wait_until("the next link everywhere", || nodes.iter().all(redirects));
    std::fs::remove_dir_all(&folder).unwrap();
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&fleet, 2, &server);
    for node in &nodes {
        assert_redirects(node, "gone", KEPT);
    }
}

#[test]
fn purge_says_that_it_waits_for_redis() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).expect("redis_away").expect("a purge could not be carried out").start();
    settle(&node);
    node.wire().shorten_as("gone", &format!("https://a.example/{MARKER}"));
    settle(&node);
    let id = begin(&node);
    // No purge of a fleet ends within the five seconds that the nodes have for the streams of visits.
    server.pause();
    let waits = wait_for("a purge that waits", || {
        purge(&node, &id).filter(|purge| purge["error"].as_str().is_some_and(|why| why.contains("waits for it")))
    });
    assert_eq!(waits["complete"], false, "{waits}");
    server.resume();
    wait_for_purge(&node, &id);
    assert_eq!(purge(&node, &id).unwrap()["error"], Value::Null);
    assert_clean(&fleet, 1, &server);
}

#[test]
fn no_purge_begins_before_redis_was_reached() {
    let server = RedisSetup::new().append_only(true).start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).expect("redis_away").expect("codes_failed").start();
    settle(&node);
    node.wire().shorten_as("gone", &format!("https://a.example/{MARKER}"));
    settle(&node);
    let stopped = node.terminate();
    server.kill();
    let node = stopped.start();
    let path = format!("{SHORT_URLS}/gone");
    let refused = node.wire().ask("DELETE", &format!("{path}?purge=true"), "", b"");
    refused.problem(503, ":unavailable");
    assert!(refused.text().contains("its clock gives a purge its date"), "{}", refused.text());
    assert_eq!(node.wire().get(&path).status, 200, "a link was deleted that no purge removes");
    server.start_again();
    settle(&node);
    // The thread of purges has a connection of its own, which notices later that Redis is back.
    let ask = || node.wire().ask("DELETE", &format!("{path}?purge=true"), "", b"");
    let begun = wait_for("a purge that begins", || Some(ask()).filter(|reply| reply.status != 503));
    assert_eq!(begun.status, 202, "{}", begun.text());
    wait_for_purge(&node, begun.json()["id"].as_str().unwrap());
    assert_clean(&fleet, 1, &server);
}

#[test]
fn node_that_was_away_carries_the_purge_out() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes: Vec<Node> = (0..2).map(|number| fleet.setup(number).start()).collect();
    nodes.iter().for_each(settle);
    let target = format!("https://a.example/{MARKER}");
    nodes[0].wire().shorten_as("gone", &target);
    wait_until("the link on both", || nodes.iter().all(|node| node.wire().get("/gone").status == 302));
    let away = nodes.pop().unwrap().terminate();
    let id = begin(&nodes[0]);
    let parts = wait_for("the purge here", || {
        let parts = purge(&nodes[0], &id)?["nodes"].clone();
        let is_here = parts.as_array()?.iter().any(|part| part["node"] == "n0" && part["complete"] == true);
        is_here.then_some(parts)
    });
    let part = |parts: &Value, name: &str| {
        parts.as_array().unwrap().iter().find(|part| part["node"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(part(&parts, "n1")["complete"], false, "{parts}");
    let waits = wait_for("the silence of the other node", || {
        purge(&nodes[0], &id).filter(|purge| part(&purge["nodes"], "n1")["silentSince"].is_string())
    });
    assert_eq!(waits["complete"], Value::Bool(false));
    assert_eq!(part(&waits["nodes"], "n0")["silentSince"], Value::Null, "{waits}");
    assert_ne!(marked_files(fleet.setup(1).data_dir()), Vec::<String>::new());
    let back = away.start();
    settle(&back);
    wait_for_purge(&back, &id);
    wait_for_purge(&nodes[0], &id);
    assert_clean(&fleet, 2, &server);
}

/// Begins the purge of a link while the second of two nodes is away. Returns the first node, the setup of the second one, and
/// the number of the purge.
fn begin_while_one_is_away(fleet: &Fleet, of: impl Fn(Setup) -> Setup) -> (Node, Setup, String) {
    let [first, second] = [0, 1].map(|number| of(fleet.setup(number)).start());
    [&first, &second].into_iter().for_each(settle);
    first.wire().shorten_as("gone", &format!("https://a.example/{MARKER}"));
    wait_until("the link on both", || [&first, &second].iter().all(|node| node.wire().get("/gone").status == 302));
    let away = second.terminate();
    let id = begin(&first);
    (first, away, id)
}

/// Waits until the first of two nodes has carried a purge out and the second one has not. Returns what [`parts`] says then.
fn wait_for_one_of_two(node: &Node, id: &str) -> [(String, bool); 2] {
    let expected = [("n0".to_owned(), true), ("n1".to_owned(), false)];
    wait_until("the purge on one node", || purge(node, id).is_some_and(|purge| parts(&purge) == expected));
    expected
}

#[test]
fn list_that_redis_has_lost_comes_back() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let (first, away, id) = begin_while_one_is_away(&fleet, |setup| setup);
    let list = format!("{{carom}}:purge:{id}");
    // The number stays in the hash of purges.
    wait_until("the loss of the list", || server.command(&["DEL", &list]) == Reply::Int(1));
    let back = away.start();
    settle(&back);
    wait_for_purge(&back, &id);
    wait_for_purge(&first, &id);
    assert_clean(&fleet, 2, &server);
}

/// Returns the nodes of a purge, each with true if it has carried the purge out.
fn parts(purge: &Value) -> Vec<(String, bool)> {
    let nodes = purge["nodes"].as_array().unwrap().iter();
    nodes.map(|part| (part["node"].as_str().unwrap().to_owned(), part["complete"] == true)).collect()
}

#[test]
fn restart_forgets_no_node_of_a_purge() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let (here, away, id) = begin_while_one_is_away(&fleet, |setup| setup.expect("counter_regressed"));
    let expected = wait_for_one_of_two(&here, &id);
    let stopped = here.terminate();
    server.command(&["FLUSHALL"]);
    let first = stopped.start();
    settle(&first);
    wait_until("a fleet of one node", || first.status()["fleet"]["nodes"].as_array().unwrap().len() == 1);
    wait_until("the purge here again", || purge(&first, &id).is_some_and(|purge| parts(&purge) == expected));
    assert_eq!(purge(&first, &id).unwrap()["complete"], false);
    let back = away.start();
    settle(&back);
    wait_for_purge(&back, &id);
    wait_for_purge(&first, &id);
    assert_clean(&fleet, 2, &server);
}

#[test]
fn purge_waits_for_a_node_from_before_a_restart() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let of = |number: usize| fleet.setup(number).expect("counter_regressed");
    let [here, other] = [0, 1].map(|number| of(number).start());
    [&here, &other].into_iter().for_each(settle);
    here.wire().shorten_as("gone", &format!("https://a.example/{MARKER}"));
    wait_until("the link on both", || [&here, &other].iter().all(|node| node.wire().get("/gone").status == 302));
    wait_until("the names on disk", || stored_members(&fleet.setup(0)) == ["n0", "n1"]);
    let away = other.terminate();
    let stopped = here.terminate();
    server.command(&["FLUSHALL"]);
    let first = stopped.start();
    settle(&first);
    wait_until("a fleet of one node", || first.status()["fleet"]["nodes"].as_array().unwrap().len() == 1);
    let is_back = || matches!(server.command(&["KEYS", "*:l:gone"]), Reply::List(found) if !found.is_empty());
    wait_until("the link in Redis again", is_back);
    let id = begin(&first);
    wait_for_one_of_two(&first, &id);
    assert_eq!(purge(&first, &id).unwrap()["complete"], false);
    let back = away.start();
    settle(&back);
    wait_for_purge(&back, &id);
    wait_for_purge(&first, &id);
    assert_clean(&fleet, 2, &server);
}

#[test]
fn redis_with_older_data_is_purged_again() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let expected = ["counter_regressed", "redis_away", "codes_failed"];
    let start = |number: usize| expected.iter().fold(fleet.setup(number), |setup, text| setup.expect(text)).start();
    let nodes = [0, 1].map(start);
    nodes.iter().for_each(settle);
    nodes[0].wire().shorten_as("gone", &format!("https://a.example/{MARKER}"));
    wait_until("the link on both", || nodes.iter().all(|node| node.wire().get("/gone").status == 302));
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    let dump = server.copy_dump();
    let id = begin(&nodes[0]);
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&fleet, 2, &server);
    server.restore_dump(&dump);
    nodes.iter().for_each(settle);
    wait_until("a Redis without the link", || marked_keys(&server).is_empty());
    // A node that has not read a stream again says 503.
    let answer = |node: &Node| Some(node.wire().get("/gone").status).filter(|status| *status != 503);
    nodes.iter().for_each(|node| assert_eq!(wait_for("an answer", || answer(node)), 404));
}

#[test]
fn empty_redis_ends_no_purge_early() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let (first, away, id) = begin_while_one_is_away(&fleet, |setup| setup.expect("counter_regressed"));
    let expected = wait_for_one_of_two(&first, &id);
    server.command(&["FLUSHALL"]);
    // Redis has only the heartbeats since then.
    let known = |node: &Node| node.status()["fleet"]["nodes"].as_array().unwrap().len();
    wait_until("a fleet of one node", || known(&first) == 1);
    wait_until(
        "the purge in Redis again",
        || matches!(server.command(&["KEYS", "*purge*"]), Reply::List(found) if !found.is_empty()),
    );
    let waits = purge(&first, &id).unwrap();
    assert_eq!((parts(&waits).as_slice(), &waits["complete"]), (expected.as_slice(), &json!(false)), "{waits}");
    let back = away.start();
    settle(&back);
    wait_for_purge(&back, &id);
    wait_for_purge(&first, &id);
    assert_clean(&fleet, 2, &server);
}
