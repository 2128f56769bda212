//! Rate limits of apps: all nodes of a fleet together keep them, wherever the creates arrive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::api_client::{ApiClient, run_app};
use crate::support::fleet::{Fleet, settle};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

/// Creates that the app may make per second.
const RATE: u64 = 30;

/// Time after which the nodes know of each other's creates.
const KNOWN_AFTER: Duration = Duration::from_secs(4);

/// Creates as fast as these nodes allow. Returns the creates per second once the nodes know of each other's.
fn rate_over(nodes: &[Node], key: &str) -> f64 {
    let (made, begun) = (AtomicU64::new(0), Instant::now());
    let until = KNOWN_AFTER + Duration::from_secs(6);
    let mut before = (0, begun);
    std::thread::scope(|scope| {
        for node in nodes {
            let made = &made;
            scope.spawn(move || {
                let mut client = ApiClient::new(node, key);
                while begun.elapsed() < until {
                    let reply = client.create(&json!({"longUrl": "https://example.org/"}));
                    assert!([200, 429].contains(&reply.status), "{reply:?}");
                    made.fetch_add(u64::from(reply.status == 200), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        std::thread::sleep(KNOWN_AFTER);
        before = (made.load(Ordering::Relaxed), Instant::now());
    });
    (made.load(Ordering::Relaxed) - before.0) as f64 / before.1.elapsed().as_secs_f64()
}

#[test]
fn creates_per_second_hold_for_the_fleet() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let key = run_app(&fleet.setup(0), &["add", "shop", "--creates-per-second", &RATE.to_string()]);
    let nodes: Vec<Node> = (0..3).map(|number| fleet.setup(number).all_interfaces().start()).collect();
    nodes.iter().for_each(settle);
    wait_until("the key on every node", || nodes.iter().all(|node| ApiClient::new(node, &key).is_known(node)));
    let everywhere = rate_over(&nodes, &key);
    // A machine that stands still for two of six seconds makes fewer. One node alone would have a third.
    assert!((0.5..=1.15).contains(&(everywhere / RATE as f64)), "{everywhere} a second over three nodes");
    // The rate follows the creates.
    let alone = rate_over(&nodes[1..2], &key);
    assert!((0.5..=1.1).contains(&(alone / RATE as f64)), "{alone} a second over one node");
}
