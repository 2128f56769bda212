//! Slugs with slashes and in any case, on nodes that share them.

use serde_json::json;

use crate::support::fleet::{Fleet, assert_redirects, known, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/";

fn start(fleet: &Fleet) -> Vec<Node> {
    let setup = |number| {
        let setup = fleet.setup(number).env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "true");
        setup.env("CAROM_LINKS_SLUG_CASE", "insensitive")
    };
    let nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

/// Creates a link, as soon as the nodes have agreed on a format that has slashes in slugs.
fn create(node: &Node, slug: &str) {
    let body = json!({"longUrl": TARGET, "customSlug": slug});
    wait_until("a link", || node.wire().create(&body).status == 200);
}

#[test]
fn slugs_with_slashes_are_shared() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    create(&nodes[0], "Docs/2026/Start");
    // The other node may not have heard of it yet, and asks Redis.
    assert_redirects(&nodes[1], "docs/2026/start", TARGET);
    assert_redirects(&nodes[1], "DOCS/2026/start", TARGET);
    create(&nodes[1], "docs/other");
    assert_redirects(&nodes[0], "docs/other", TARGET);
    let listed = |node: &Node| node.wire().get(&format!("{SHORT_URLS}?searchTerm=docs%2F")).json();
    for node in &nodes {
        wait_until("both links", || listed(node)["shortUrls"]["pagination"]["totalItems"] == 2);
        let again = json!({"longUrl": TARGET, "customSlug": "DOCS/other"});
        known(|| node.wire().create(&again)).problem(400, "/non-unique-slug");
    }
    assert_eq!(nodes[0].wire().ask("DELETE", &format!("{SHORT_URLS}/docs%2Fother"), "", b"").status, 204);
    wait_until("the delete", || nodes[1].wire().get("/docs/other").status == 404);
}
