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
    let is_unchanged = |results: Vec<Value>| {
        assert!(results.iter().all(|result| result["status"] == 200), "{results:?}");
        results.iter().filter(|result| result["unchanged"] == true).count()
    };
    assert_eq!(is_unchanged(send_all(&nodes[0], IMPORT, lines.as_bytes())), 0);
    assert_eq!(is_unchanged(send_all(&nodes[1], IMPORT, lines.as_bytes())), 100);
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
    assert_eq!(is_unchanged(send_all(&nodes[1], IMPORT, lines.as_bytes())), 100);
    wait_until("the same visits", || all_show(&nodes, "n7", 7, 5_052));
    // A link that is gone takes its earlier visits along, on both nodes.
    assert_eq!(nodes[0].wire().delete("n7").status, 204);
    let other = "{\"shortCode\":\"n7\",\"longUrl\":\"https://example.org/other\"}\n";
    assert_eq!(is_unchanged(send_all(&nodes[1], IMPORT, other.as_bytes())), 0);
    wait_until("no visits of the new link", || all_show(&nodes, "n7", 0, 5_052));
    // If the first one is imported again, the sums have its visits once.
    assert_eq!(nodes[0].wire().delete("n7").status, 204);
    let again = format!("{}\n", lines.lines().nth(6).unwrap());
    assert_eq!(is_unchanged(send_all(&nodes[1], IMPORT, again.as_bytes())), 0);
    wait_until("the visits of the first link", || all_show(&nodes, "n7", 7, 5_052));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}
