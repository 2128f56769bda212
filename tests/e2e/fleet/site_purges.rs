//! Purges in a fleet of two sites: afterwards no node and no Redis of either site has anything of the links.

use serde_json::{Value, json};

use crate::support::fleet::known;
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::purges::{MARKER, marked_files, marked_keys, purge, wait_for_purge};
use crate::support::sites::{Sites, all_have, are_apart};

/// Creates a link with the marker, and waits until all nodes have it.
fn leave_traces(nodes: &[Node]) {
    let target = format!("https://a.example/{MARKER}");
    let texts = json!({"longUrl": target, "customSlug": "gone", "title": MARKER, "tags": [MARKER]});
    assert_eq!(nodes[0].wire().create_named(&texts).status, 200);
    all_have(nodes, "gone", &target);
}

/// Deletes and purges the link. Returns the number of the purge.
fn begin(node: &Node) -> String {
    let reply = known(|| node.wire().ask("DELETE", &format!("{SHORT_URLS}/gone?purge=true"), "", b""));
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.json()["id"].as_str().unwrap().to_owned()
}

fn assert_clean(sites: &Sites) {
    for number in 0..4 {
        assert_eq!(marked_files(&sites.folder.path().join(format!("{number}"))), Vec::<String>::new());
    }
    for server in &sites.servers {
        assert_eq!(marked_keys(server), Vec::<String>::new());
    }
}

fn sites_of(purge: &Value) -> Vec<(&str, bool)> {
    let all = purge["sites"].as_array().unwrap().iter();
    all.map(|site| (site["site"].as_str().unwrap(), site["complete"] == true)).collect()
}

#[test]
fn purge_reaches_both_sites() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    leave_traces(&nodes);
    assert_ne!(marked_files(&sites.folder.path().join("0")), Vec::<String>::new(), "the test would prove nothing");
    // Not the site that created it.
    let id = begin(&nodes[3]);
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_eq!(sites_of(&purge(&nodes[0], &id).unwrap()), [("berlin", true), ("lisbon", true)]);
    assert_eq!(sites_of(&purge(&nodes[3], &id).unwrap()), [("lisbon", true), ("berlin", true)]);
    assert_clean(&sites);
}

#[test]
fn purge_waits_for_a_site_that_is_apart() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    leave_traces(&nodes);
    sites.part();
    are_apart(&nodes);
    let id = begin(&nodes[0]);
    let expected = [("berlin", true), ("lisbon", false)];
    let waits = wait_for("the purge at its site", || purge(&nodes[1], &id).filter(|purge| sites_of(purge) == expected));
    assert_eq!(waits["complete"], false, "{waits}");
    assert_eq!(purge(&nodes[2], &id), None, "the other site cannot know it");
    sites.join();
    wait_until("the purge at the other site", || purge(&nodes[2], &id).is_some());
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&sites);
}
