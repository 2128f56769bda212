//! The fleet in `carom status`: a line for this node and one for its site, a table of all nodes, and what the totals lack.

use std::fmt::Write as _;

use serde_json::Value;

use super::text::{contact, count, grouped, number, plain, write_table};
use carom_telemetry::readable;

/// Columns of the table. Rates are those of the last second.
const TITLES: [&str; 7] =
    ["node", "version", "state", "redirects/s", "unsynced changes", "lag (ms)", "last heartbeat (s ago)"];

/// Time without a heartbeat after which a node counts as silent, as in the totals of `/status`, in milliseconds.
const SILENT_MS: f64 = 5_000.0;

/// Writes the state of Redis and of the fleet; nothing for a single node.
pub(super) fn render(page: &mut String, now: &Value, width: Option<usize>) {
    if now["redis"]["configured"] != true {
        return;
    }
    let fleet = &now["fleet"];
    let state = if now["redis"]["connected"] == true { "connected" } else { "UNAVAILABLE" };
    let nodes = fleet["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let _ = writeln!(
        page,
        "fleet   Redis {state}, {}, {}, lag {} ms, {} redirects/s",
        readable::count(nodes.len() as u64, "node"),
        count(number(fleet, "/outbox"), "unsynced change"),
        grouped(number(fleet, "/lagMillis")),
        grouped(number(fleet, "/totals/redirectsPerSecond")),
    );
    if let Some(site) = site(fleet) {
        let _ = writeln!(page, "site    {site}");
    }
    let _ = writeln!(page, "visits  {}", sources(&fleet["totals"]));
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(|node| row(node, &fleet["node"], now["redis"]["connected"] == true)));
    if rows.len() > 1 {
        write_table(page, &rows, width);
    }
}

/// Describes the site of this node and its contact to the other one; `None` for a fleet of one site.
fn site(fleet: &Value) -> Option<String> {
    let site = &fleet["site"];
    let (name, other) = (plain(site["name"].as_str()?), plain(site["other"].as_str()?));
    let nodes = fleet["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_relay = |node: &&Value| node["about"]["relay"] == true && number(node, "/silentMillis") < SILENT_MS;
    let relays: Vec<String> =
        nodes.iter().filter(is_relay).map(|node| plain(node["node"].as_str().unwrap_or_default())).collect();
    Some(format!(
        "{name}; other site {other}: {}; relay {}; {}, {} replaced",
        contact(site),
        if relays.is_empty() { "unknown".to_owned() } else { relays.join(", ") },
        count(number(fleet, "/conflicts"), "conflict"),
        count(number(site, "/replaced"), "link"),
    ))
}

/// Names the nodes that are in the counts of visits, and those that are missing.
fn sources(totals: &Value) -> String {
    let items = |name: &str| totals[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let nodes = items("nodes").iter().map(text).collect::<Vec<_>>().join(", ");
    if items("lacks").is_empty() {
        return format!("of all nodes: {nodes}");
    }
    let lack = |of: &Value| format!("{} since {} ({})", text(&of["node"]), text(&of["since"]), text(&of["reason"]));
    let lacks = items("lacks").iter().map(lack);
    format!("of {nodes}; MISSING: {}", lacks.collect::<Vec<_>>().join(", "))
}

/// Returns the row of a node. Nodes hear of each other through Redis, so `is_connected` decides what is known of others.
fn row(node: &Value, me: &Value, is_connected: bool) -> Vec<String> {
    let about = &node["about"];
    let is_silent = number(node, "/silentMillis") >= SILENT_MS;
    let state = if !is_connected && node["node"] != *me {
        "unknown"
    } else if about["stopped"] == true {
        "stopped"
    } else if is_connected && is_silent {
        "SILENT"
    } else if about["draining"] == true {
        "draining"
    } else if about["ready"] == true {
        "ready"
    } else {
        "starting"
    };
    let name = plain(node["node"].as_str().unwrap_or_default());
    vec![
        if node["node"] == *me { format!("{name} (this node)") } else { name },
        plain(about["version"].as_str().unwrap_or("?")),
        state.to_owned(),
        if is_silent { "-".to_owned() } else { grouped(number(about, "/redirectsPerSecond")) },
        grouped(number(about, "/outbox")),
        grouped(number(about, "/lagMillis")),
        format!("{:.1}", number(node, "/silentMillis") / 1_000.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_and_missing_counts_are_named() {
        let about =
            json!({"version": "9.9.9", "ready": true, "redirectsPerSecond": 1_234, "outbox": 3, "lagMillis": 17});
        let lacks = json!([{"node": "n\u{1b}1", "since": "2026-01-01T00:00:00Z", "reason": "silent"}]);
        let now = json!({
            "redis": {"configured": true, "connected": true},
            "fleet": {
                "node": "n0", "outbox": 1, "lagMillis": 5,
                "nodes": [{"node": "n0", "silentMillis": 400, "about": about}],
                "totals": {"nodes": ["n0"], "lacks": lacks, "redirectsPerSecond": 1_234},
            },
        });
        let mut page = String::new();
        render(&mut page, &now, None);
        for part in [
            "fleet   Redis connected, 1 node, 1 unsynced change, lag 5 ms, 1,234 redirects/s\n",
            "visits  of n0; MISSING: n1 since 2026-01-01T00:00:00Z (silent)\n",
            "n0 (this node)",
            "9.9.9",
            "ready",
            "0.4",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let cells = |node: &str, silent: u64, stopped: bool, is_connected: bool| {
            let about = json!({"ready": true, "redirectsPerSecond": 5, "stopped": stopped});
            let node = json!({"node": node, "silentMillis": silent, "about": about});
            let row = row(&node, &json!("n0"), is_connected);
            (row[2].clone(), row[3].clone())
        };
        let shown = |state: &str, rate: &str| (state.to_owned(), rate.to_owned());
        assert_eq!(cells("n1", 4_900, false, true), shown("ready", "5"));
        assert_eq!(cells("n1", 5_000, false, true), shown("SILENT", "-"));
        assert_eq!(cells("n1", 5_000, true, true), shown("stopped", "-"));
        assert_eq!(cells("n1", 9_000, false, false), shown("unknown", "-"), "only this node is known without Redis");
        assert_eq!(cells("n0", 9_000, false, false).0, "ready");
        assert_eq!(sources(&json!({"nodes": ["n0", "n1"], "lacks": []})), "of all nodes: n0, n1");
        assert!(!page.contains("site "), "a fleet of one site: {page}");
        let mut alone = String::new();
        render(&mut alone, &json!({"redis": {"configured": false}}), None);
        assert_eq!(alone, "");
    }

    #[test]
    fn sites_and_their_relay_are_named() {
        let node = |node: &str, silent: u64, relay: bool| json!({"node": node, "silentMillis": silent, "about": {"relay": relay}});
        let fleet = |site: Value| {
            let nodes = [node("n0", 400, false), node("n1", 300, true), node("n2", 9_000, true)];
            json!({"node": "n0", "nodes": nodes, "conflicts": 2, "site": site})
        };
        let site = |current: bool, may_lack: bool, lag: Value| {
            let site = json!({
                "name": "berlin", "other": "lis\u{1b}bon", "current": current, "mayLack": may_lack, "lagMillis": lag,
                "replaced": 1,
            });
            super::site(&fleet(site)).unwrap()
        };
        let shown =
            |contact: &str| format!("berlin; other site lisbon: {contact}; relay n1; 2 conflicts, 1 link replaced");
        assert_eq!(site(true, false, json!(1_250)), shown("current, lag 1,250 ms"));
        assert_eq!(site(false, false, json!(61_900)), shown("NO CONTACT for 1 min 1 s"));
        assert_eq!(site(false, false, Value::Null), shown("NO CONTACT since the start"));
        assert_eq!(site(false, true, json!(5)), shown("MAY LACK LINKS"));
        assert_eq!(super::site(&fleet(Value::Null)), None);
        let mut page = String::new();
        let names = json!({"name": "berlin", "other": "lisbon", "current": true});
        render(&mut page, &json!({"redis": {"configured": true}, "fleet": {"site": names}}), None);
        assert!(page.contains("\nsite    berlin; other site lisbon: current; relay unknown; "), "{page}");
    }
}
