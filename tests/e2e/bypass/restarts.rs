//! Two nodes over bypass behind a balancer, which restart again and again while clients go on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use carom_netns::Namespace;
use serde_json::json;

use crate::support::balancer::{Balancer, check};
use crate::support::bypass::Pair;
use crate::support::http::Wire;
use crate::support::node::{Node, SLOW, Setup, sum, wait_until};
use crate::support::steady_client::{EndsClients, TARGET, ask_until};

/// Clients at once.
const CLIENTS: usize = 4;

/// Restarts, in turns.
const RESTARTS: usize = 4;

/// Returns the settings of a node behind a link, with its data in that directory. It serves plain HTTP at two ports,
/// because the configuration of the balancer has two.
fn setup(pair: &Pair, addresses: (SocketAddr, SocketAddr), data: &std::path::Path) -> Setup {
    let setup = Setup::new(data).over_kernel().expect(SLOW).argument("--open");
    let setup = setup.argument("--listen").argument(addresses.0.to_string());
    let setup = setup.argument("--listen").argument(addresses.1.to_string());
    let setup = setup.env("CAROM_BYPASS_INTERFACE", "s0").env("CAROM_BYPASS_REQUIRED", "true");
    let setup = setup.env("CAROM_PROXY_PROTOCOL", "require").env("CAROM_TRUSTED_PROXIES", &pair.client_address());
    setup.env("CAROM_DRAIN_DELAY", "1s")
}

/// Restarts the nodes in turns, each time once the one before has clients again.
fn restart_in_turns(pairs: &[Pair; 2], mut nodes: [Node; 2], answered: &AtomicU64) -> [Node; 2] {
    for number in 0..RESTARTS {
        let [first, second] = nodes;
        let (at, stays, goes) = if number % 2 == 0 { (0, second, first) } else { (1, first, second) };
        let node = pairs[at].start(&goes.terminate());
        wait_until("clients of the new node", || sum(&pairs[at].status(&node), "/redirects") > 50);
        println!("restart {number}: {} answers", answered.load(Ordering::Relaxed));
        nodes = if at == 0 { [node, stays] } else { [stays, node] };
    }
    nodes
}

#[test]
fn rolling_restart_loses_no_request() {
    if let Some(reason) = carom_netns::reason_to_skip() {
        println!("skipped: {reason}");
        return;
    }
    let client = Arc::new(Namespace::new().expect("root may make namespaces"));
    let pairs = [1, 2].map(|subnet| Pair::link(Arc::clone(&client), subnet));
    let addresses = [0, 1].map(|at: usize| {
        let address = |port: u16| SocketAddr::new(pairs[at].address().parse().expect("an address"), port);
        (address(8080), address(8443))
    });
    let dir = tempfile::tempdir().unwrap();
    let links = dir.path().join("links");
    std::fs::write(&links, json!({"shortCode": "shared", "longUrl": TARGET}).to_string() + "\n").unwrap();
    let nodes = [0, 1].map(|at: usize| {
        pairs[at].set_queues("1");
        let data = dir.path().join(format!("data-{at}"));
        check(crate::support::node::CAROM, &["import", "--data-dir", data.to_str().unwrap(), links.to_str().unwrap()]);
        pairs[at].start(&setup(&pairs[at], addresses[at], &data))
    });
    let before = pairs.each_ref().map(Pair::kernel_segments);
    let balancer = client.run(|| Balancer::start(dir.path(), &addresses));
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let nodes = std::thread::scope(|scope| {
        let ends = EndsClients(&is_over);
        let ask = || client.run(|| ask_until(|| Wire::open(balancer.http), "/shared", &is_over, &answered));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        wait_until("answers", || answered.load(Ordering::Relaxed) > 100);
        assert_eq!(pairs.each_ref().map(Pair::kernel_segments), before, "all of it is over bypass");
        let nodes = restart_in_turns(&pairs, nodes, &answered);
        drop(ends);
        clients.into_iter().for_each(|client| client.join().unwrap());
        nodes
    });
    drop(balancer);
    nodes.into_iter().for_each(|node| drop(node.terminate()));
}
