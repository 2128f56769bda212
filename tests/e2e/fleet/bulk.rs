//! Bulk requests to a node of a fleet, which asks Redis about each link.

use std::collections::HashSet;

use serde_json::json;

use crate::support::bulk::{BULK, TARGET, code_of, many, send_all};
use crate::support::fleet::{Fleet, assert_redirects, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::redis::Server;

#[test]
fn bulk_links_reach_every_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    nodes[1].wire().shorten_as("theirs", TARGET);
    let mut tried = 0;
    let found = wait_for("results that Redis confirms in time", || {
        tried += 1;
        let ours = format!("ours-{tried}");
        let slugs = [
            json!({"longUrl": "https://example.org/x", "customSlug": "theirs"}),
            json!({"longUrl": TARGET, "customSlug": "theirs", "findIfExists": true}),
            json!({"longUrl": TARGET, "customSlug": ours}),
            json!({"longUrl": "https://example.org/y", "customSlug": ours}),
            json!({"longUrl": "https://example.org/same", "findIfExists": true}),
            json!({"longUrl": "https://example.org/same", "findIfExists": true}),
        ];
        let body: String = slugs.iter().map(|line| format!("{line}\n")).collect();
        let found = send_all(&nodes[0], BULK, body.as_bytes());
        found.iter().all(|result| result["status"] != 503).then_some(found)
    });
    let statuses: Vec<u64> = found.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [400, 200, 200, 400, 200, 200], "{found:?}");
    assert_eq!(code_of(&found[4]), code_of(&found[5]));
    assert_redirects(&nodes[1], code_of(&found[2]), TARGET);
    let found = send_all(&nodes[0], BULK, many(10_000).as_bytes());
    let codes: HashSet<&str> = found.iter().map(code_of).collect();
    assert_eq!(codes.len(), 10_000);
    nodes.iter().for_each(settle);
    // Each attempt may have made a link.
    let links = |node: &Node| node.status()["links"].as_u64().unwrap();
    let is_right = |links: u64| links == 10_003 || tried > 1 && (10_003..10_003 + tried).contains(&links);
    wait_until("links in the memory of both", || is_right(links(&nodes[0])) && links(&nodes[0]) == links(&nodes[1]));
    for number in (0..10_000).step_by(500) {
        let code = code_of(&found[number]);
        assert_eq!(nodes[1].wire().get(&format!("/{code}")).location(), format!("{TARGET}/{number}"));
        assert_eq!(nodes[1].wire().get(&format!("{SHORT_URLS}/{code}")).code(), code);
    }
    assert!(nodes.iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}
