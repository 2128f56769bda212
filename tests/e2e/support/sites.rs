//! Two sites of two nodes each, with a Redis each and a proxy between them.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::support::fleet::{redirects, settle, setup};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::Server;

/// Delay of each direction between the sites.
const DELAY: Mode = Mode::Delay(Duration::from_millis(75));

/// Two sites of two nodes each: nodes 0 and 1 are those of the first one.
pub(crate) struct Sites {
    pub(crate) folder: TempDir,
    pub(crate) servers: [Server; 2],
    /// The way of the other site to the server with the same number.
    pub(crate) proxies: [Proxy; 2],
}

impl Sites {
    pub(crate) fn new() -> Sites {
        let servers = [Server::start(), Server::start()];
        let proxies = [Proxy::start(servers[0].address()), Proxy::start(servers[1].address())];
        let sites = Sites { folder: tempfile::tempdir().unwrap(), servers, proxies };
        sites.join();
        sites
    }

    pub(crate) fn setup(&self, number: usize) -> Setup {
        let (site, name) = (number / 2, ["berlin", "lisbon"]);
        let other = format!("redis://{}", self.proxies[1 - site].address());
        setup(&self.folder.path().join(format!("{number}")), number, &self.servers[site].url())
            .env("CAROM_FLEET_SITE", name[site])
            .env("CAROM_FLEET_OTHER_SITE", name[1 - site])
            .env("CAROM_FLEET_OTHER_REDIS", &other)
            // The first codes wait until the sites have heard of each other.
            .expect("codes_failed")
            .expect("site_away")
    }

    /// Starts all nodes, and waits until both sites have heard of each other.
    pub(crate) fn start(&self, of: impl Fn(Setup) -> Setup) -> Vec<Node> {
        let nodes: Vec<Node> = (0..4).map(|number| of(self.setup(number)).start()).collect();
        nodes.iter().for_each(settle);
        are_current(&nodes);
        // Every core has codes.
        for node in &nodes {
            wait_until("codes", || node.wire().create(&json!({"longUrl": "https://example.org/warm"})).status == 200);
        }
        nodes
    }

    pub(crate) fn part(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::Cut));
    }

    pub(crate) fn join(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set(DELAY));
    }
}

/// Waits until nodes have heard of the other site.
pub(crate) fn are_current(nodes: &[Node]) {
    wait_until("both sites hear of each other", || {
        nodes.iter().all(|node| node.status()["fleet"]["site"]["current"] == true)
    });
}

/// Waits until nodes have not heard of the other site for some seconds.
pub(crate) fn are_apart(nodes: &[Node]) {
    wait_until("the sites are apart", || nodes.iter().all(|node| node.status()["fleet"]["site"]["current"] == false));
}

/// Waits until a link is on all nodes.
pub(crate) fn all_have(nodes: &[Node], slug: &str, target: &str) {
    wait_until(&format!("{slug} on all nodes"), || nodes.iter().all(|node| redirects(node, slug, target)));
}
