//! Links with a visit limit in a fleet: all nodes together never exceed it, and together they reach it.

use serde_json::json;

use crate::support::fleet::{Fleet, settle};
use crate::support::http::Wire;
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/once";

/// Makes a link on one node and waits until all have it.
fn limited(nodes: &[Node], visits: u32) -> String {
    let code = nodes[0].wire().create(&json!({"longUrl": TARGET, "maxVisits": visits})).code();
    // The API would answer from Redis as well.
    let links = nodes[0].status()["links"].clone();
    wait_until("the link on every node", || nodes.iter().all(|node| node.status()["links"] == links));
    code
}

/// Asks over all connections at once, and returns how many were redirected.
fn redirected(wires: &mut [Wire], code: &str) -> usize {
    wires.iter_mut().for_each(|wire| wire.send(format!("GET /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()));
    let statuses: Vec<u16> = wires.iter_mut().map(|wire| wire.reply().status).collect();
    assert!(statuses.iter().all(|status| [302, 410].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 302).count()
}

#[test]
fn limit_holds_across_nodes() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    nodes.iter().for_each(settle);
    let mut wires: Vec<Wire> = (0..20).flat_map(|_| nodes.iter().map(Node::wire)).collect();
    for visits in [1, 1, 1, 1, 1, 2, 7, 50, 200] {
        let code = limited(&nodes, visits);
        let mut made = 0;
        loop {
            match redirected(&mut wires, &code) {
                // Each node has used up what it had: a share of one node is of no use to another.
                0 => break,
                more => made += more,
            }
            assert!(made <= visits as usize, "{made} of {visits}");
        }
        assert_eq!(made, visits as usize);
    }
}

#[test]
fn limited_link_elsewhere_is_never_missing() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    for _ in 0..40 {
        let code = here.create(&json!({"longUrl": TARGET, "maxVisits": 9})).code();
        // Redis has the link, and the store of this node gets it in the same moment. A Redis that takes too long makes the
        // link unavailable.
        let status = there.get(&format!("/{code}")).status;
        assert!(status == 302 || status == 503, "{status}");
    }
}

#[test]
fn restart_keeps_the_remainder() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes: Vec<Node> = (0..2).map(|number| fleet.setup(number).expect("redis_away").start()).collect();
    nodes.iter().for_each(settle);
    let code = limited(&nodes, 100);
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    let mut made = 0;
    for round in 0..40 {
        made += usize::from(ask(&nodes[round % 2]) == 302);
        if round % 10 == 9 {
            let restarted = nodes.remove(0).restart();
            settle(&restarted);
            nodes.insert(0, restarted);
        }
    }
    assert_eq!(made, 40);
    drop(server);
    // What a node has in its share it gives; then nobody can say.
    let end = (0..200).map(|_| ask(&nodes[0])).find(|status| *status != 302);
    assert_eq!(end, Some(503));
}
