//! Codes of expired links that get other links in a fleet, once every node has read of their removal.

use std::collections::HashSet;
use std::time::Duration;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::fleet::{Fleet, assert_redirects, known, settle};
use crate::support::http::SHORT_URLS;
use crate::support::links::create_many;
use crate::support::memory::keeping;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;
use crate::support::visits::BROWSER;

const FORMER: &str = "https://example.org/former";
const NEXT: &str = "https://example.org/next";

/// Most links that are made before the codes must have come back: more than the queues of all cores hold.
const MADE_MAX: usize = 200_000;

/// A node on one core that gives codes again after two seconds. In a build with the feature `faults`, its core has few codes in
/// advance: otherwise some 16,000 links would have to be made first, on each node.
fn recycling(fleet: &Fleet, number: usize) -> Setup {
    let setup = fleet.setup(number).cores(1).expect("redis_away").expect("codes_failed").expect("counter_regressed");
    let setup = setup.env("CAROM_LINKS_KEEP_EXPIRED", "1s").env("CAROM_LINKS_RECYCLE_AFTER", "2s");
    setup.env("CAROM_FAULT", "small-queues").expect("CAROM_FAULT is not a setting")
}

fn start(fleet: &Fleet, nodes: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|number| recycling(fleet, number).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

fn recycled(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.status()["expiry"]["recycled"].as_u64().expect("a number")).sum()
}

/// Makes links on all nodes that end in so many seconds. Returns their codes.
fn ending(nodes: &[Node], seconds: u64, count: usize) -> HashSet<String> {
    let end = dates::format(unix_ms() + seconds * 1_000);
    let fields = json!({"longUrl": FORMER, "validUntil": end});
    nodes.iter().flat_map(|node| create_many(node, &fields, count)).collect()
}

fn wait_until_removed(nodes: &[Node]) {
    wait_until("the removal everywhere", || nodes.iter().all(|node| node.status()["links"] == 0));
}

/// Makes links on all nodes until all of these codes have one again. No code has two.
fn give_again(nodes: &[Node], former: &HashSet<String>) {
    let fields = json!({"longUrl": NEXT});
    let mut made = HashSet::new();
    while !former.is_subset(&made) {
        for code in nodes.iter().flat_map(|node| create_many(node, &fields, 1_000)) {
            assert!(made.insert(code.clone()), "{code} was given twice");
        }
        assert!(made.len() < MADE_MAX, "they do not come back");
    }
}

/// Follows a link as a person does. Returns the status.
fn follow(node: &Node, code: &str) -> u16 {
    node.wire().ask("GET", &format!("/{code}"), BROWSER, b"").status
}

/// Returns the number of counted visits of a link; `None` if the node does not have the link yet.
fn visits(node: &Node, code: &str) -> Option<u64> {
    let reply = node.wire().get(&format!("{SHORT_URLS}/{code}/visits"));
    if reply.status == 200 { reply.json()["visits"]["summary"]["total"].as_u64() } else { None }
}

#[test]
fn expired_code_gets_a_new_link_on_all_nodes() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    // The second one has hardly any link in memory, and a filter of all codes.
    let nodes = [recycling(&fleet, 0).start(), keeping(recycling(&fleet, 1), 512 << 10).start()];
    nodes.iter().for_each(settle);
    let former = ending(&nodes, 0, 50);
    wait_until_removed(&nodes);
    wait_until("codes that come back", || recycled(&nodes) == 100);
    give_again(&nodes, &former);
    for code in &former {
        wait_until("the next link everywhere", || nodes.iter().all(|node| follow(node, code) == 302));
        nodes.iter().for_each(|node| assert_redirects(node, code, NEXT));
    }
    assert!(nodes.iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}

#[test]
fn visits_of_a_recycled_code_begin_at_zero() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let former = ending(&nodes, 18, 20);
    for code in &former {
        wait_until("the link everywhere", || nodes.iter().all(|node| follow(node, code) == 302));
    }
    let counted = |node: &Node| former.iter().all(|code| visits(node, code) >= Some(2));
    wait_until("visits of both nodes on both", || nodes.iter().all(counted));
    wait_until_removed(&nodes);
    wait_until("codes that come back", || recycled(&nodes) == 40);
    give_again(&nodes, &former);
    nodes.iter().for_each(settle);
    let shown = |node: &Node| former.iter().map(|code| visits(node, code)).collect::<Vec<_>>();
    wait_until("the next links everywhere", || nodes.iter().all(|node| !shown(node).contains(&None)));
    for node in &nodes {
        assert_eq!(shown(node), vec![Some(0); former.len()]);
    }
}

/// Stops one of three nodes after a removal, and lets some time pass. Returns the nodes that run, the one that stands
/// still, and the codes.
fn pause_one(start: impl Fn(&Fleet, usize) -> Node, fleet: &Fleet) -> (Vec<Node>, Node, HashSet<String>) {
    let mut nodes: Vec<Node> = (0..3).map(|number| start(fleet, number)).collect();
    nodes.iter().for_each(settle);
    let former = ending(&nodes, 0, 10);
    wait_until_removed(&nodes);
    let paused = nodes.pop().expect("there are three");
    paused.signal(Signal::STOP);
    (nodes, paused, former)
}

fn waits_for(node: &Node) -> Value {
    node.status()["expiry"]["recyclingWaitsFor"].clone()
}

#[test]
fn node_that_stands_still_holds_codes_back() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let (mut nodes, paused, former) = pause_one(|fleet, number| recycling(fleet, number).start(), &fleet);
    for node in &nodes {
        wait_until("the name of the node", || waits_for(node) == json!(["n2"]));
    }
    // Codes would be back by then.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(recycled(&nodes), 0);
    let code = former.iter().next().expect("there are some");
    let taken = known(|| nodes[0].wire().create(&json!({"longUrl": NEXT, "customSlug": code})));
    assert_eq!(taken.status, 400, "{}", taken.text());
    paused.signal(Signal::CONT);
    nodes.push(paused);
    wait_until("codes that come back", || recycled(&nodes) == 30);
    for node in &nodes {
        wait_until("the end of the wait", || waits_for(node) == json!([]));
    }
}

#[test]
fn restarts_give_no_code_twice() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let former = ending(&nodes, 0, 100);
    wait_until_removed(&nodes);
    wait_until("codes that come back", || recycled(&nodes) == 200);
    let nodes: Vec<Node> = nodes.into_iter().map(Node::restart).collect();
    server.save();
    server.kill();
    server.start_again();
    nodes.iter().for_each(settle);
    give_again(&nodes, &former);
    let nodes: Vec<Node> = nodes.into_iter().map(|node| node.kill().start()).collect();
    nodes.iter().for_each(settle);
    for code in &former {
        wait_until("the next link everywhere", || nodes.iter().all(|node| follow(node, code) == 302));
    }
    assert!(nodes.iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}

/// The control: nodes that do not wait for the others are caught by the same check.
#[cfg(feature = "faults")]
mod fault_tests {
    use super::*;

    #[test]
    fn paused_node_is_left_out() {
        let server = Server::start();
        let fleet = Fleet::new(3, &server.url());
        let start =
            |fleet: &Fleet, number: usize| recycling(fleet, number).env("CAROM_FAULT", "recycle-at-once").start();
        let (nodes, paused, _) = pause_one(start, &fleet);
        wait_until("codes that come back", || recycled(&nodes) > 0);
        paused.signal(Signal::CONT);
    }
}
