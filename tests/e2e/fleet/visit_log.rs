//! Single visits of a fleet: every node lists those of all nodes, whatever happens to nodes and to Redis.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::support::fleet::{Fleet, WITHIN, connect, known, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{self, Server};

const TARGET: &str = "https://example.org/logged";

/// All visits of links.
const ALL: &str = "/rest/v3/visits/non-orphan";

/// A node of that number, which logs visits.
fn logging(fleet: &Fleet, number: usize) -> Setup {
    let setup = fleet.setup(number).env("CAROM_VISITS_LOG", "on").env("CAROM_BASE_URL", "http://s.test");
    // A kill may cut off a block.
    setup.expect("redis_away").expect("cut off the end of the visit log")
}

fn start(fleet: &Fleet, nodes: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|number| logging(fleet, number).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

/// Makes a link with this slug on one node and waits until all have it.
fn link(nodes: &[Node], slug: &str) {
    nodes[0].wire().shorten_as(slug, TARGET);
    let path = format!("{SHORT_URLS}/{slug}");
    wait_until("the link on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
}

/// Follows a link so many times, each with a user agent of its own.
fn follow(node: &Node, slug: &str, agent: &str, times: usize) {
    let mut wire = node.wire();
    for number in 0..times {
        let fields = format!("User-Agent: {agent}-{number}\r\nReferer: https://{agent}.example/\r\n");
        // A node that has not read of the link yet asks Redis.
        assert_eq!(known(|| wire.ask("GET", &format!("/{slug}"), &fields, b"")).status, 302);
    }
}

/// Requests a code that no node has: one visit, once Redis has answered in time.
fn miss(node: &Node) {
    wait_until("an answer that no node has the code", || node.wire().get("/never-made").status == 404);
}

fn listed(wire: &mut Wire, path: &str) -> Value {
    wire.get(path).json()["visits"].clone()
}

fn of_link(slug: &str) -> String {
    format!("{SHORT_URLS}/{slug}/visits")
}

/// The number of visits in a list, and whether it is complete.
fn counted(node: &Node, path: &str) -> (u64, bool) {
    let visits = listed(&mut node.wire(), path);
    (visits["pagination"]["totalItems"].as_u64().unwrap_or_default(), visits["pagination"]["complete"] == true)
}

/// Waits until every node lists so many visits, and says so much of its list.
fn all_list(nodes: &[Node], path: &str, expected: (u64, bool)) {
    let shown = || nodes.iter().map(|node| counted(node, path)).collect::<Vec<_>>();
    wait_until(&format!("{expected:?} visits on every node"), || shown() == vec![expected; nodes.len()]);
}

/// The visits of a list, in its order.
fn visits(node: &Node, path: &str) -> Value {
    listed(&mut node.wire(), path)["data"].clone()
}

#[test]
fn every_node_lists_the_visits_of_all() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let mut nodes = start(&fleet, 3);
    link(&nodes, "one");
    link(&nodes, "two");
    for (at, node) in nodes.iter().enumerate() {
        follow(node, "one", &format!("agent{at}"), 3 + at);
        follow(node, "two", &format!("agent{at}"), 1);
        miss(node);
    }
    let lists = [(of_link("one"), 12), (of_link("two"), 3), (ALL.to_owned(), 15), ("/rest/v3/visits/orphan".into(), 3)];
    for (path, count) in &lists {
        all_list(&nodes, path, (*count, true));
        let first = visits(&nodes[0], path);
        assert!(nodes.iter().all(|node| visits(node, path) == first), "{path}");
    }
    let shown = |node: &Node| node.wire().get("/rest/v3/visits/stats").json()["visitStats"].clone();
    wait_until("complete statistics", || nodes.iter().all(|node| shown(node)["complete"] == true));
    // A late heartbeat on a busy machine makes them incomplete for a moment.
    let stats = |node: &Node| {
        let mut shown = shown(node);
        shown["complete"] = Value::Null;
        shown
    };
    let of_first = stats(&nodes[0]);
    assert_eq!(of_first["total"], 15, "{of_first}");
    assert_eq!(of_first["referrers"][0], json!({"value": "agent2.example", "visits": 6}));
    let metrics = Wire::open(nodes[0].admin).get("/metrics");
    assert!(metrics.text().contains("carom_visit_log_gaps 0\n"), "{}", metrics.text());
    // A node that dies leaves its visits to the others, and so does a restart of those.
    let before: Vec<Value> = lists.iter().map(|(path, _)| visits(&nodes[0], path)).collect();
    let killed = nodes.pop().unwrap().kill();
    let mut nodes: Vec<Node> = nodes.into_iter().map(Node::restart).collect();
    nodes.iter().for_each(settle);
    for ((path, _), before) in lists.iter().zip(&before) {
        assert!(nodes.iter().all(|node| visits(node, path) == *before), "{path}");
    }
    nodes.push(killed.start());
    nodes.iter().for_each(settle);
    lists.iter().for_each(|(path, count)| all_list(&nodes, path, (*count, true)));
}

#[test]
fn visits_of_a_killed_node_are_listed_once() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    link(&nodes, "kept");
    let mut made = 0;
    for round in 0..4 {
        for node in &nodes {
            follow(node, "kept", &format!("round{round}"), 20);
            made += 20;
        }
        // A kill may take the visits of the last second, so these are with the other node already.
        all_list(&nodes, &of_link("kept"), (made, true));
        let killed = nodes.remove(0).kill();
        nodes.push(killed.start());
        settle(&nodes[1]);
    }
    all_list(&nodes, &of_link("kept"), (made, true));
}

#[test]
fn deletions_apply_on_every_node() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let mut nodes = start(&fleet, 3);
    link(&nodes, "cleared");
    for (at, node) in nodes.iter().enumerate() {
        follow(node, "cleared", &format!("agent{at}"), 4);
        miss(node);
    }
    all_list(&nodes, &of_link("cleared"), (12, true));
    all_list(&nodes, "/rest/v3/visits/orphan", (3, true));
    let away = nodes.pop().unwrap().terminate();
    let deleted = nodes[1].wire().ask("DELETE", &of_link("cleared"), "", b"").json();
    assert_eq!(deleted, json!({"deletedVisits": 12}));
    assert_eq!(nodes[0].wire().ask("DELETE", "/rest/v3/visits/orphan", "", b"").json(), json!({"deletedVisits": 3}));
    nodes.push(away.start());
    nodes.iter().for_each(settle);
    all_list(&nodes, &of_link("cleared"), (0, true));
    all_list(&nodes, "/rest/v3/visits/orphan", (0, true));
    // A node that joins later reads blocks from before the deletions.
    follow(&nodes[0], "cleared", "later", 2);
    all_list(&nodes, &of_link("cleared"), (2, true));
    let late = Fleet::new(4, &server.url());
    let joined = [logging(&late, 3).start()];
    settle(&joined[0]);
    all_list(&joined, &of_link("cleared"), (2, true));
    assert_eq!(counted(&joined[0], "/rest/v3/visits/orphan").0, 0);
}

#[test]
fn later_deletion_is_not_replaced() {
    let server = Server::start();
    let mut redis = connect(&server);
    // Two nodes read the list before either changes it.
    let read = redis.deleted_visits(WITHIN).unwrap();
    let first = [read.change("abc", Some(200)), read.change("old", Some(7))];
    assert_eq!(redis.change_deleted_visits(&first, WITHIN).unwrap(), ("1".to_owned(), true));
    let second = [read.change("abc", Some(100)), read.change("def", Some(50))];
    let changed = redis.change_deleted_visits(&second, WITHIN).unwrap();
    assert_eq!(changed, ("2".to_owned(), false), "the second node must read the list again");
    let held = redis.deleted_visits(WITHIN).unwrap();
    let expected = [("abc", 200), ("def", 50), ("old", 7)].map(|(name, until_ms)| (name.to_owned(), until_ms));
    assert_eq!(held.all(), HashMap::from(expected));
    assert!(redis.change_deleted_visits(&[held.change("old", None)], WITHIN).unwrap().1);
    assert!(!redis.deleted_visits(WITHIN).unwrap().all().contains_key("old"));
}

#[test]
fn node_that_was_stopped_catches_up() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", "before", 5));
    all_list(&nodes, &of_link("kept"), (10, true));
    let away = nodes.pop().unwrap().terminate();
    follow(&nodes[0], "kept", "meanwhile", 7);
    // A node that has stopped logs nothing, so the others are complete without it.
    all_list(&nodes, &of_link("kept"), (17, true));
    nodes.push(away.start());
    nodes.iter().for_each(settle);
    all_list(&nodes, &of_link("kept"), (17, true));
    assert_eq!(visits(&nodes[0], ALL), visits(&nodes[1], ALL));
}

#[test]
fn lost_blocks_make_lists_incomplete() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let mut nodes = start(&fleet, 3);
    link(&nodes, "kept");
    follow(&nodes[0], "kept", "before", 3);
    all_list(&nodes, &of_link("kept"), (3, true));
    let away = nodes.pop().unwrap().terminate();
    follow(&nodes[0], "kept", "lost", 4);
    all_list(&nodes, &of_link("kept"), (7, true));
    // Redis removes the oldest blocks beyond its bound.
    for stream in server.command(&["KEYS", "*:vl:*"]).list() {
        server.command(&["DEL", &stream.text()]);
    }
    nodes.push(away.expect("missing in Redis").start());
    nodes.iter().for_each(settle);
    wait_until("a gap", || nodes[2].status()["fleet"]["visitLog"]["gaps"] == 1);
    assert_eq!(counted(&nodes[2], &of_link("kept")), (3, false));
    all_list(&nodes[..2], &of_link("kept"), (7, true));
    // Visits from long before the gap are all there, and so are later ones.
    let past = format!("{}?endDate=2020-01-01", of_link("kept"));
    all_list(&nodes, &past, (0, true));
    follow(&nodes[0], "kept", "later", 2);
    all_list(&nodes[..2], &of_link("kept"), (9, true));
    all_list(&nodes[2..], &of_link("kept"), (5, false));
}

/// Follows links on all nodes before, during and after an outage of Redis, and sees that nothing is lost or doubled.
fn survive(back: impl Fn(&Server)) {
    let server = redis::Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = [0, 1].map(|number| logging(&fleet, number).expect("counter_regressed").start());
    nodes.iter().for_each(settle);
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", "before", 10));
    all_list(&nodes, &of_link("kept"), (20, true));
    server.kill();
    nodes.iter().for_each(|node| follow(node, "kept", "meanwhile", 5));
    // A visit that another node has logged cannot be here.
    wait_until("an incomplete list", || nodes.iter().all(|node| counted(node, &of_link("kept")) == (25, false)));
    back(&server);
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| follow(node, "kept", "after", 1));
    all_list(&nodes, &of_link("kept"), (32, true));
}

#[test]
fn outage_of_redis_delays_visits() {
    survive(Server::start_again);
}

#[test]
fn emptied_redis_loses_no_visits() {
    survive(Server::start_again_empty);
}

#[test]
fn logs_that_are_not_shared_are_incomplete() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let apart = |number| logging(&fleet, number).env("CAROM_VISITS_SHARE_LOG", "off").expect("settings_differ");
    let nodes: Vec<Node> = (0..2).map(|number| apart(number).start()).collect();
    nodes.iter().for_each(settle);
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", "alone", 2));
    all_list(&nodes, &of_link("kept"), (2, false));
    assert_eq!(nodes[0].status()["fleet"]["visitLog"], Value::Null);
    assert!(server.command(&["KEYS", "*:vl:*"]).list().is_empty());
    // Once they are shared, visits from before are not.
    let shared = |node: Node| node.terminate().env("CAROM_VISITS_SHARE_LOG", "on");
    let setups: Vec<Setup> = nodes.into_iter().map(shared).collect();
    let nodes: Vec<Node> = setups.iter().map(Setup::start).collect();
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| follow(node, "kept", "shared", 1));
    all_list(&nodes, &of_link("kept"), (4, false));
}
