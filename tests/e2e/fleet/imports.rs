//! An import into a fleet: every node gets the links, and counts their earlier visits once.

use carom_model::replication::formats;
use serde_json::{Value, json};

use crate::support::bulk::{IMPORT, send_all};
use crate::support::fleet::{Fleet, known, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

fn total(node: &Node, slug: &str) -> Value {
    node.wire().get(&format!("{SHORT_URLS}/{slug}")).json()["visitsSummary"]["total"].clone()
}

fn of_all(node: &Node) -> Value {
    node.wire().get("/rest/v3/visits").json()["visits"]["nonOrphanVisits"]["total"].clone()
}

/// Returns true once every node shows these visits of a link and of all links.
fn all_show(nodes: &[Node], slug: &str, visits: u64, sum: u64) -> bool {
    nodes.iter().all(|node| total(node, slug) == json!(visits) && of_all(node) == json!(sum))
}

/// Imports lines into a node. Those that Redis does not confirm in time are sent again. Returns the number of unchanged ones.
fn import(node: &Node, lines: &str) -> usize {
    let (mut left, mut unchanged) = (lines.lines().collect::<Vec<_>>(), 0);
    wait_until("lines that Redis confirms in time", || {
        let body: String = left.iter().map(|line| format!("{line}\n")).collect();
        let results = send_all(node, IMPORT, body.as_bytes());
        assert_eq!(results.len(), left.len());
        let is_known = |result: &Value| result["status"] == 200 || result["status"] == 503;
        assert!(results.iter().all(is_known), "{results:?}");
        unchanged += results.iter().filter(|result| result["unchanged"] == true).count();
        let mut are_unsure = results.iter().map(|result| result["status"] == 503);
        left.retain(|_| are_unsure.next() == Some(true));
        left.is_empty()
    });
    unchanged
}

/// Waits until each node knows that all of them can count earlier visits.
fn agree(nodes: &[Node]) {
    wait_until("one format", || {
        let writes = |node: &Node| node.status()["fleet"]["formats"]["writes"].as_u64();
        nodes.iter().all(|node| writes(node) >= Some(formats::EARLIER_VISITS.into()))
    });
}

#[test]
fn earlier_visits_count_once_on_every_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    agree(&nodes);
    let lines: String = (1..=100)
        .map(|number| {
            let link = json!({"shortCode": format!("n{number}"), "longUrl": format!("https://example.org/{number}"),
                "dateCreated": "2025-06-01T12:00:00.123Z", "visitsSummary": {"total": number, "bots": 1}, "maxVisits": 102});
            format!("{link}\n")
        })
        .collect();
    // Both nodes get the import: the second one finds what the first one has stored.
    assert_eq!(import(&nodes[0], &lines), 0);
    assert_eq!(import(&nodes[1], &lines), 100);
    nodes.iter().for_each(settle);
    wait_until("the visits on both nodes", || all_show(&nodes, "n7", 7, 5_050));
    // Two of its visits are left, whichever node grants them.
    wait_until("the link on the second node", || nodes[1].wire().get("/n100").status == 302);
    wait_until("the last visit", || nodes[0].wire().get("/n100").status == 302);
    let statuses: Vec<u16> = nodes.iter().map(|node| known(|| node.wire().get("/n100")).status).collect();
    assert_eq!(statuses, [410, 410]);
    wait_until("new visits on both nodes", || all_show(&nodes, "n100", 102, 5_052));
    // A node that starts again, and one that was killed, count nothing again.
    let mut nodes = nodes.into_iter();
    let (first, second) = (nodes.next().unwrap(), nodes.next().unwrap());
    let nodes = [first.restart(), second.kill().start()];
    nodes.iter().for_each(settle);
    agree(&nodes);
    assert_eq!(import(&nodes[1], &lines), 100);
    wait_until("the same visits", || all_show(&nodes, "n7", 7, 5_052));
    // A link that is gone takes its earlier visits along, on both nodes.
    assert_eq!(nodes[0].wire().delete("n7").status, 204);
    let other = "{\"shortCode\":\"n7\",\"longUrl\":\"https://example.org/other\"}\n";
    assert_eq!(import(&nodes[1], other), 0);
    wait_until("no visits of the new link", || all_show(&nodes, "n7", 0, 5_052));
    // If the first one is imported again, the sums have its visits once.
    assert_eq!(nodes[0].wire().delete("n7").status, 204);
    assert_eq!(import(&nodes[1], lines.lines().nth(6).unwrap()), 0);
    wait_until("the visits of the first link", || all_show(&nodes, "n7", 7, 5_052));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}
