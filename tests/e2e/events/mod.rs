//! Events: each acknowledged change of a link and each logged visit is in the log, and sinks deliver it at least once.

mod fleet;
mod log;
mod rabbitmq;
mod sinks;

use std::path::Path;

use serde_json::Value;

use crate::support::http::Wire;
use crate::support::node::{Node, Setup};

/// A node that keeps events. Receivers of tests are on loopback, so it serves over the kernel.
fn keeping(dir: &Path) -> Setup {
    Setup::new(dir).over_kernel().env("CAROM_EVENTS_LOG", "on")
}

/// Returns all events.
fn all_events(node: &Node) -> Vec<Value> {
    events_after(node, None, 1_000)
}

/// Returns the events after a cursor, read in pages of at most `limit` events.
fn events_after(node: &Node, after: Option<&str>, limit: usize) -> Vec<Value> {
    let (mut wire, mut events, mut after) = (node.wire(), Vec::new(), after.map(str::to_owned));
    loop {
        let cursor = after.map_or(String::new(), |after| format!("&after={after}"));
        let reply = wire.get(&format!("/rest/v3/events?limit={limit}{cursor}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let page = reply.json()["events"].clone();
        events.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["next"] == page["latest"] {
            return events;
        }
        after = Some(page["next"].as_str().unwrap().to_owned());
    }
}

/// The types and short codes of events.
fn types_and_codes(events: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| (text(&event["type"]), text(&event["data"]["shortUrl"]["shortCode"]))).collect()
}

/// The number in the ID of an event.
fn number(event: &Value) -> u64 {
    event["id"].as_str().unwrap().split_once('-').unwrap().1.parse().unwrap()
}

/// A metric of a sink.
fn metric(node: &Node, name: &str, sink: &str) -> u64 {
    let text = Wire::open(node.admin).get("/metrics").text().to_owned();
    let start = format!("carom_events_sink_{name}{{sink=\"{sink}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {start}"));
    line.parse().unwrap()
}
