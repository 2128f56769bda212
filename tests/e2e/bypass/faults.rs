//! Faults while a node serves: an interface that goes down, an MTU and a neighbour that change, a node that stops.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::alarms::is_seen;
use crate::support::bypass::{FILLED, Pair, SERVER, counter, open};
use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::node::{Node, wait_until};

const TARGET: &str = "https://example.org/";

/// Connections with a request in flight while a node is stopped.
const WAITING: usize = 16;

/// Exports all links over a connection that was open before, and visits one over a new one, all of it over bypass.
fn serves(pair: &Pair, node: &Node, wire: &mut Wire) {
    let before = (pair.kernel_segments(), counter(&pair.status(node), "framesIn"));
    let lines = wire.get(&format!("{SHORT_URLS}/export")).text().lines().count();
    assert_eq!(lines, FILLED + 1);
    pair.client.run(|| assert_eq!(open().get("/abc").location(), TARGET));
    assert_eq!(pair.kernel_segments(), before.0);
    wait_until("counted frames", || counter(&pair.status(node), "framesIn") > before.1);
    assert_eq!(pair.alarms(node), Vec::<String>::new());
}

#[test]
fn interface_down_delays_a_request() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let setup = pair.setup(&dir.path().join("data")).expect("alarm=\"bypass_interface_down\"");
    let node = pair.start(&setup);
    let mut wire = pair.fill(TARGET);
    pair.server.command("ip", "link set s0 down").unwrap();
    wire.send(&request("GET", "/abc", "", b""));
    pair.server.run(|| is_seen(&node, "bypass_interface_down"));
    pair.server.command("ip", "link set s0 up").unwrap();
    assert_eq!(wire.reply().location(), TARGET);
    wait_until("a cleared alarm", || pair.alarms(&node).is_empty());
    serves(&pair, &node, &mut wire);
    node.terminate();
}

#[test]
fn mtu_that_changes_is_followed() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    let mut wire = pair.fill(TARGET);
    for mtu in [1_300, 1_500] {
        // The client's end drops longer packets.
        for (namespace, name) in [(&*pair.client, "c0"), (&pair.server, "s0")] {
            namespace.command("ip", &format!("link set {name} mtu {mtu}")).unwrap();
        }
        serves(&pair, &node, &mut wire);
    }
    node.terminate();
}

#[test]
fn neighbour_that_changes_is_followed() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    let mut wire = pair.fill(TARGET);
    for mac in ["02:00:00:00:00:98", "02:00:00:00:00:99"] {
        pair.client.command("ip", &format!("link set c0 address {mac}")).unwrap();
        // The kernel would learn it from ARP after a while.
        let known = format!("neigh replace 10.78.0.1 lladdr {mac} nud reachable dev s0");
        pair.server.command("ip", &known).unwrap();
        serves(&pair, &node, &mut wire);
    }
    node.terminate();
}

#[test]
fn policy_rules_are_followed() {
    let Some(pair) = Pair::new() else { return };
    let ip = |arguments: &str| pair.server.command("ip", arguments).unwrap();
    ip("rule add from 10.78.0.2 table 100");
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    // Without a route in its table the next rule is asked.
    let mut wire = pair.fill(TARGET);
    serves(&pair, &node, &mut wire);
    // A gateway that nobody has: answers to new clients do not arrive until the rule is gone.
    let connects = || {
        let address = SERVER.parse().expect("an address");
        pair.client.run(|| TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok())
    };
    ip("neigh add 10.78.0.9 lladdr 02:00:00:00:00:09 dev s0 nud permanent");
    ip("route add 10.78.0.0/24 via 10.78.0.9 dev s0 onlink table 100");
    wait_until("another next hop", || !connects());
    ip("rule del from 10.78.0.2 table 100");
    wait_until("the next hop as before", connects);
    serves(&pair, &node, &mut wire);
    node.terminate();
}

#[test]
fn ignored_policy_rules_are_warned_of() {
    let Some(pair) = Pair::new() else { return };
    pair.server.command("ip", "rule add sport 8080 table 100").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).expect("bypass ignores 1 policy rule of this machine"));
    node.terminate();
}

#[test]
fn stopped_node_keeps_its_connections() {
    let Some(pair) = Pair::new() else { return };
    pair.set_queues("2");
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).cores(2));
    let mut wires: Vec<Wire> = pair.client.run(|| (0..WAITING).map(|_| open()).collect());
    wires[0].shorten_as("abc", TARGET);
    for wire in &mut wires {
        assert_eq!(wire.get("/abc").location(), TARGET);
    }
    node.signal(Signal::STOP);
    let before = pair.client_timeouts();
    for wire in &mut wires {
        wire.send(&request("GET", "/abc", "", b""));
    }
    // Two for each client. After a timeout, Linux may send to another queue.
    wait_until("timeouts of the clients", || pair.client_timeouts() >= before + 2 * WAITING as u64);
    node.signal(Signal::CONT);
    for wire in &mut wires {
        assert_eq!(wire.reply().location(), TARGET);
    }
    node.terminate();
}
