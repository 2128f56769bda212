//! Bulk requests to a node of a fleet, which asks Redis about each link.

use std::collections::HashSet;

use serde_json::json;

use crate::support::bulk::{BULK, TARGET, code_of, many, send_all};
use crate::support::fleet::{Fleet, assert_redirects, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::wait_until;
use crate::support::redis::Server;

#[test]
fn bulk_links_reach_every_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    nodes[1].wire().shorten_as("theirs", TARGET);
    let slugs = [
        json!({"longUrl": "https://example.org/x", "customSlug": "theirs"}),
        json!({"longUrl": TARGET, "customSlug": "theirs", "findIfExists": true}),
        json!({"longUrl": TARGET, "customSlug": "ours"}),
        json!({"longUrl": "https://example.org/y", "customSlug": "ours"}),
        json!({"longUrl": "https://example.org/same", "findIfExists": true}),
        json!({"longUrl": "https://example.org/same", "findIfExists": true}),
    ];
    let body: String = slugs.iter().map(|line| format!("{line}\n")).collect();
    let found = send_all(&nodes[0], BULK, body.as_bytes());
    let statuses: Vec<u64> = found.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [400, 200, 200, 400, 200, 200], "{found:?}");
    assert_eq!(code_of(&found[4]), code_of(&found[5]));
    assert_redirects(&nodes[1], "ours", TARGET);
    let found = send_all(&nodes[0], BULK, many(10_000).as_bytes());
    let codes: HashSet<&str> = found.iter().map(code_of).collect();
    assert_eq!(codes.len(), 10_000);
    nodes.iter().for_each(settle);
    let links = json!(10_003);
    wait_until("links in the memory of both", || nodes.iter().all(|node| node.status()["links"] == links));
    for number in (0..10_000).step_by(500) {
        let code = code_of(&found[number]);
        assert_eq!(nodes[1].wire().get(&format!("/{code}")).location(), format!("{TARGET}/{number}"));
        assert_eq!(nodes[1].wire().get(&format!("{SHORT_URLS}/{code}")).code(), code);
    }
    assert!(nodes.iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}
