//! Events of a fleet: each change is an event of one node, its origin.

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::json;

use super::{all_events, types_and_codes};
use crate::support::fleet::{Fleet, changed, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/a";

fn reads(node: &Node, slug: &str, title: &str) -> bool {
    node.wire().get(&format!("{SHORT_URLS}/{slug}")).text().contains(title)
}

#[test]
fn each_change_is_an_event_of_its_origin() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| {
        fleet.setup(number).env("CAROM_EVENTS_LOG", "on").env("CAROM_LINKS_KEEP_EXPIRED", "1s").expect("redis_away")
    };
    let nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    let (mut one, mut two) = (nodes[0].wire(), nodes[1].wire());
    let made = one.create_named(&json!({"longUrl": TARGET, "customSlug": "slug", "title": "First"}));
    assert_eq!(made.status, 200, "{}", made.text());
    wait_until("the link on the other node", || reads(&nodes[1], "slug", "First"));
    assert_eq!(changed(&nodes[1], "slug", &json!({"title": "Second"})).status, 200);
    wait_until("the change on the first node", || reads(&nodes[0], "slug", "Second"));
    assert_eq!(one.delete("slug").status, 204);
    let ended = dates::format(unix_ms() - 2_000);
    let made = two.create_named(&json!({"longUrl": TARGET, "customSlug": "old", "validUntil": ended}));
    assert_eq!(made.status, 200, "{}", made.text());
    let of = |node: &Node| types_and_codes(&all_events(node));
    let is_removed = |(kind, code): &(String, String)| kind == "link.deleted" && code == "old";
    wait_until("the removal", || nodes.iter().any(|node| of(node).iter().any(is_removed)));
    nodes.iter().for_each(settle);
    let removals = nodes.iter().map(|node| of(node).iter().filter(|event| is_removed(event)).count()).sum::<usize>();
    assert_eq!(removals, 1, "the removal is an event of one node");
    let of_requests =
        |node: &Node| -> Vec<(String, String)> { of(node).into_iter().filter(|event| !is_removed(event)).collect() };
    let expected = |events: &[(&str, &str)]| -> Vec<(String, String)> {
        events.iter().map(|(kind, code)| ((*kind).to_owned(), (*code).to_owned())).collect()
    };
    assert_eq!(of_requests(&nodes[0]), expected(&[("link.created", "slug"), ("link.deleted", "slug")]));
    assert_eq!(of_requests(&nodes[1]), expected(&[("link.changed", "slug"), ("link.created", "old")]));
}
