//! Pictures of a fleet: three nodes that share a Redis, with steady traffic on each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::look;
use crate::support::api_client::{ApiClient, new_key};
use crate::support::browser::Browser;
use crate::support::console::{at, enter_key};
use crate::support::fleet::{Fleet, known, redirects, settle};
use crate::support::http::Wire;
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;
use crate::support::stop::StopOnDrop;

const NODES: usize = 3;

const DESTINATION: &str = "https://www.example.com/summer";

/// Time between two visits of a node. Without it, clients and nodes would leave the browser no CPU on a machine with two.
const PAUSE: Duration = Duration::from_millis(5);

/// Script: how many nodes of the map are ready and have traffic.
const BUSY_NODES: &str = "[...document.querySelectorAll('.map-node[data-kind=good]')].filter((one) => /[1-9]/.test(one.lastChild.textContent)).length";

/// Starts the nodes of a fleet whose keys include one with the role admin. Returns this key, too.
fn start(fleet: &Fleet) -> (Vec<Node>, String) {
    let key = new_key(&fleet.setup(0), "ops", "admin");
    let titled = |number: usize| fleet.setup(number).env("CAROM_PAGES_TITLE", "Acme links");
    let nodes: Vec<Node> = (0..NODES).map(|number| titled(number).start()).collect();
    nodes.iter().for_each(settle);
    (nodes, key)
}

/// Visits a link on all nodes in turn, until the flag is set.
fn visit_all(nodes: &[Node], code: &str, is_over: &AtomicBool) {
    let mut wires: Vec<Wire> = nodes.iter().map(Node::wire).collect();
    while !is_over.load(Ordering::Relaxed) {
        wires.iter_mut().for_each(|wire| assert_eq!(known(|| wire.get(&format!("/{code}"))).status, 302));
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn fleet_is_pictured() {
    let server = Server::start();
    let fleet = Fleet::new(NODES, &server.url());
    let (nodes, key) = start(&fleet);
    let mut caller = ApiClient::new(&nodes[0], &key);
    wait_until("the key", || caller.is_known(&nodes[0]));
    let code = caller.shorten(DESTINATION);
    wait_until("the link on all nodes", || nodes.iter().all(|node| redirects(node, &code, DESTINATION)));
    let browser = Browser::open();
    browser.go(&at(&nodes[0], "fleet"));
    enter_key(&browser, &key);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        scope.spawn(|| visit_all(&nodes, &code, &is_over));
        look(&browser, "fleet-nodes", || {
            browser.go(&at(&nodes[0], "fleet"));
            wait_until("nodes with traffic", || browser.value(BUSY_NODES) == NODES);
        });
    });
    browser.close();
    nodes.into_iter().for_each(|node| _ = node.terminate());
}
