//! Nodes of a fleet that keep only the links in use in memory.

use crate::support::fleet::{settle, setup};
use crate::support::memory::{keeping, map_bytes};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

const LIMIT: u64 = 1 << 20;

fn target_of(node: &Node, number: u64) -> Option<String> {
    node.wire().get(&format!("/s{number}")).field("location").map(str::to_owned)
}

#[test]
fn links_outside_memory_are_found() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let setup = |number: usize| setup(&folder.path().join(format!("{number}")), number, &server.url());
    let start = |number| keeping(setup(number), LIMIT).expect("redis_away").start();
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    let mut wire = nodes[0].wire();
    let path = "x".repeat(500);
    let target = |number: u64| format!("https://example.org/{path}/{number}");
    for number in 0..4_000 {
        wire.shorten_as(&format!("s{number}"), &target(number));
        if number % 100 == 0 {
            // It is looked up where it has not arrived. On a busy machine the node may not know in time, but never denies it.
            wait_until("the link on the other node", || {
                let reply = nodes[1].wire().get(&format!("/s{number}"));
                assert!(matches!(reply.status, 302 | 503), "{}: {}", reply.status, reply.text());
                reply.field("location") == Some(target(number).as_str())
            });
        }
    }
    wait_until("all links on the other node", || nodes[1].status()["store"]["update"].as_u64() >= Some(4_000));
    nodes.iter().for_each(settle);
    for number in (0..4_000).step_by(3) {
        nodes.iter().for_each(|node| assert_eq!(target_of(node, number), Some(target(number)), "{number}"));
    }
    for node in &nodes {
        let status = node.status();
        assert!(map_bytes(&status) <= LIMIT, "{status}");
        assert!(status["links"].as_u64() < Some(3_000), "{status}");
    }
    for number in 0..50 {
        assert_eq!(nodes[1].wire().delete(&format!("s{number}")).status, 204);
        assert_eq!(target_of(&nodes[1], number), None);
        wait_until("the delete on the other node", || target_of(&nodes[0], number).is_none());
    }
    // What is in the store needs no Redis.
    server.kill();
    for number in (100..4_000).step_by(7) {
        nodes.iter().for_each(|node| assert_eq!(target_of(node, number), Some(target(number)), "{number}"));
    }
}
