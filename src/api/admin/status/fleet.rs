//! The fleet in the status: its nodes, the totals of all, and what a total lacks.
//!
//! A total has the counts of all nodes that this node hears of. It lacks those of a *silent* node since its last
//! heartbeat, those that a node cannot send, and those that this node cannot store or read, or has not got. A node that
//! has said that it stops counts nothing any more, so no total lacks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::uptime::uptime;
use carom_model::formats::dates;
use carom_model::replication::formats;
use carom_model::visits::count_exchange::CountsLack;
use carom_telemetry::stats::{FleetStats, LogOriginStats, MemberStats, NodeStats, VisitLogStats, VisitOriginStats};

/// Time without a heartbeat after which a node counts as silent. Nodes send one each second.
pub(super) const SILENT_TIME: Duration = Duration::from_secs(5);

/// Describes the fleet as this node sees it; `null` if the node is alone.
pub(super) fn describe(node: &NodeStats, now_ms: u64) -> Value {
    let fleet = &node.fleet;
    if !fleet.configured.load(Ordering::Relaxed) {
        return Value::Null;
    }
    let (name, servers) = fleet.about.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let view = FleetSnapshot::of(fleet, now_ms);
    let members: Vec<Value> = view
        .members
        .iter()
        .map(|member| {
            json!({
                "node": member.stats.node,
                "heartbeat": dates::format(member.stats.beat_ms),
                "silentMillis": member.silent.as_millis() as u64,
                "about": member.about,
            })
        })
        .collect();
    let visits: Vec<Value> = view
        .origins
        .iter()
        .map(|of| {
            json!({
                "node": of.node,
                "origin": of.origin,
                "counted": of.counted,
                "published": of.published,
                "missing": of.lack.is_some(),
            })
        })
        .collect();
    json!({
        "node": name,
        "servers": servers,
        "nodes": members,
        "totals": view.totals(),
        "visits": visits,
        "visitLog": visit_log(&node.visit_log),
        "outbox": fleet.outbox.get(),
        "settling": fleet.settling.get(),
        "formats": {"reads": formats::newest(), "writes": fleet.format.get().max(u64::from(formats::FIRST))},
        "unread": fleet.unread.get(),
        "conflicts": fleet.conflicts.get(),
        "collisions": fleet.collisions.get(),
        "followed": fleet.followed.get(),
        "delivered": fleet.delivered.get(),
        "lagMillis": fleet.lag_ms.get(),
        "gaps": fleet.gaps.get(),
        "comparing": fleet.comparing.get(),
        "retention": retention(fleet),
        "site": site(fleet),
        "lookUps": fleet.look_ups.get(),
        "lookUpHits": fleet.look_up_hits.get(),
        "lookUpsLeftOut": fleet.look_ups_left_out.get(),
        "regressions": fleet.regressions.get(),
    })
}

/// Describes whether this node has all changes that Redis no longer has; `null` if Redis keeps all states forever.
fn retention(fleet: &FleetStats) -> Value {
    let retention_ms = fleet.retention_ms.get();
    if retention_ms == 0 {
        return Value::Null;
    }
    let state = match (fleet.is_behind.load(Ordering::Acquire), fleet.needs_copy.load(Ordering::Acquire)) {
        (false, _) => "current",
        (true, false) => "behind",
        (true, true) => "needsCopy",
    };
    json!({"millis": retention_ms, "lagMillis": fleet.unfollowed_ms.get(), "state": state})
}

/// Describes what this site hears of the other one; `null` for a fleet of one site.
fn site(fleet: &FleetStats) -> Value {
    let site = &fleet.site;
    let Some((name, other)) = site.names.get() else { return Value::Null };
    json!({
        "name": name,
        "other": other,
        "current": site.is_current.load(Ordering::Acquire),
        "mayLack": site.may_lack.load(Ordering::Acquire),
        "lagMillis": site.lag().map(|lag| lag.as_millis() as u64),
        "relay": site.is_relay.load(Ordering::Acquire),
        "relayed": site.relayed.get(),
        "replaced": site.replaced.get(),
        "gaps": site.gaps.get(),
        "visitEntries": site.visits.get(),
    })
}

/// Describes how far the visit log has the visits of each node; `null` if the logs are not shared.
fn visit_log(log: &VisitLogStats) -> Value {
    if !log.is_shared.load(Ordering::Acquire) {
        return Value::Null;
    }
    let origins = log.origins.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let described = |of: &LogOriginStats| json!({"node": of.node, "origin": of.origin, "logged": of.logged, "published": of.published});
    json!({
        "lagMillis": log.lag_ms.get(),
        "published": log.published.get(),
        "received": log.received.get(),
        "gaps": log.gaps.get(),
        "unread": log.unread.get(),
        "logs": origins.iter().map(described).collect::<Vec<_>>(),
    })
}

/// Describes which nodes are in the counts of visits, and which are missing since when; `null` if the node is alone.
pub(in crate::api) fn sources(node: &NodeStats, now_ms: u64) -> Value {
    if node.fleet.configured.load(Ordering::Relaxed) {
        FleetSnapshot::of(&node.fleet, now_ms).sources()
    } else {
        Value::Null
    }
}

/// Returns the number of nodes whose visits are missing in the totals of this node.
pub(in crate::api) fn missing_nodes(fleet: &FleetStats) -> usize {
    FleetSnapshot::of(fleet, 0).lacking().len()
}

/// A node of the fleet, by its last heartbeat.
struct Member {
    stats: MemberStats,
    silent: Duration,
    about: Value,
}

/// The fleet at a moment.
struct FleetSnapshot {
    now_ms: u64,
    me: String,
    is_connected: bool,
    members: Vec<Member>,
    origins: Vec<VisitOriginStats>,
}

impl FleetSnapshot {
    fn of(fleet: &FleetStats, now_ms: u64) -> FleetSnapshot {
        let members = fleet.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let member = |stats: MemberStats| Member {
            silent: stats.heard.elapsed(),
            about: serde_json::from_str(&stats.about).unwrap_or(Value::Null),
            stats,
        };
        FleetSnapshot {
            now_ms,
            me: fleet.about.lock().unwrap_or_else(PoisonError::into_inner).0.clone(),
            is_connected: fleet.connected.load(Ordering::Acquire),
            members: members.into_iter().map(member).collect(),
            origins: fleet.visits.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Returns the nodes whose counts are missing, each with the reason and for how long.
    fn lacking(&self) -> BTreeMap<&str, (&'static str, Duration)> {
        let mut lacking = BTreeMap::new();
        // This node has its own counts, whether it can send them or not.
        for Member { stats, silent, about } in self.members.iter().filter(|member| member.stats.node != self.me) {
            let is_behind = self.origins.iter().any(|of| of.node == stats.node && of.counted < of.published);
            let has_stopped = about["stopped"] == true && !is_behind;
            let unsent_ms = about["unsentVisitsMillis"].as_u64().unwrap_or_default();
            if *silent >= SILENT_TIME && !has_stopped {
                lacking.insert(stats.node.as_str(), (CountsLack::Silent.as_str(), *silent));
            } else if unsent_ms > 0 && about["stopped"] != true {
                let time = *silent + Duration::from_millis(unsent_ms);
                lacking.insert(stats.node.as_str(), (CountsLack::Unsent.as_str(), time));
            }
        }
        for of in &self.origins {
            if let Some((reason, since)) = of.lack {
                let name = if of.node.is_empty() { &of.origin } else { &of.node };
                lacking.insert(name, (reason, since.elapsed()));
            }
            // Not heard of since the start: a node that has left the fleet is forgotten only while Redis answers.
            let is_known = self.members.iter().any(|member| member.stats.node == of.node);
            if !of.node.is_empty() && of.node != self.me && !is_known && !self.is_connected {
                lacking.entry(&of.node).or_insert((CountsLack::Silent.as_str(), uptime()));
            }
        }
        lacking
    }

    /// Returns the nodes whose counts a total has up to now, and those that it lacks.
    fn sources(&self) -> Value {
        let lacking = self.lacking();
        let named = self.members.iter().map(|member| member.stats.node.as_str());
        let named = named.chain(self.origins.iter().map(|of| of.node.as_str())).chain([self.me.as_str()]);
        let nodes: BTreeSet<&str> = named.filter(|node| !node.is_empty() && !lacking.contains_key(node)).collect();
        let lacks = lacking.iter().map(|(node, (reason, time))| {
            let since_ms = self.now_ms.saturating_sub(time.as_millis() as u64);
            json!({"node": node, "since": dates::format(since_ms), "reason": reason})
        });
        json!({"nodes": nodes, "lacks": lacks.collect::<Vec<_>>()})
    }

    /// Adds up what the nodes that are heard of did in their last second.
    fn totals(&self) -> Value {
        let mut totals = self.sources();
        let heard = || self.members.iter().filter(|member| member.silent < SILENT_TIME);
        for rate in ["redirectsPerSecond", "missesPerSecond", "changesPerSecond"] {
            totals[rate] = heard().filter_map(|member| member.about[rate].as_u64()).sum::<u64>().into();
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn member(node: &str, silent: u64, about: Value) -> Member {
        let stats = MemberStats { node: node.to_owned(), about: String::new(), heard: Instant::now(), beat_ms: 0 };
        Member { stats, silent: Duration::from_secs(silent), about }
    }

    fn origin(node: &str, (counted, published): (u64, u64)) -> VisitOriginStats {
        let node = node.to_owned();
        VisitOriginStats { origin: "0a".to_owned(), node, counted, published, lack: None }
    }

    fn view(members: Vec<Member>, origins: Vec<VisitOriginStats>) -> FleetSnapshot {
        FleetSnapshot { now_ms: 60_000, me: "n0".to_owned(), is_connected: true, members, origins }
    }

    #[test]
    fn silent_nodes_are_not_in_the_totals() {
        let rates = json!({"redirectsPerSecond": 5, "missesPerSecond": 1, "changesPerSecond": 0});
        let members = vec![member("n0", 0, rates.clone()), member("n1", 4, rates.clone()), member("n2", 9, rates)];
        let totals = view(members, vec![origin("gone", (3, 3))]).totals();
        assert_eq!(totals["nodes"], json!(["gone", "n0", "n1"]));
        let since = dates::format(51_000);
        assert_eq!(totals["lacks"], json!([{"node": "n2", "since": since, "reason": "silent"}]));
        assert_eq!((&totals["redirectsPerSecond"], &totals["missesPerSecond"]), (&json!(10), &json!(2)));
    }

    #[test]
    fn stopped_node_lacks_only_what_has_not_come() {
        let nodes = |counted: u64| {
            let members = vec![member("n0", 0, Value::Null), member("n1", 99, json!({"stopped": true}))];
            view(members, vec![origin("n0", (7, 7)), origin("n1", (counted, 8))]).sources()["nodes"].clone()
        };
        assert_eq!((nodes(8), nodes(7)), (json!(["n0", "n1"]), json!(["n0"])));
    }

    #[test]
    fn missing_batches_and_unheard_nodes_are_named() {
        let lack = |reason: &'static str| Some((reason, Instant::now()));
        let missing = VisitOriginStats { lack: lack("missing"), ..origin("n1", (2, 9)) };
        let nameless = VisitOriginStats { lack: lack("noSlot"), ..origin("", (0, 9)) };
        let mut view = view(vec![member("n0", 0, Value::Null)], vec![missing, nameless, origin("n2", (4, 4))]);
        let lacking = |view: &FleetSnapshot| {
            view.lacking().iter().map(|(node, (why, _))| format!("{node} {why}")).collect::<Vec<_>>()
        };
        assert_eq!(lacking(&view), ["0a noSlot", "n1 missing"]);
        assert_eq!(view.sources()["nodes"], json!(["n0", "n2"]));
        view.is_connected = false;
        assert_eq!(lacking(&view), ["0a noSlot", "n1 missing", "n2 silent"]);
    }

    #[test]
    fn node_that_cannot_send_its_counts_is_named() {
        let about = |unsent_ms: u64, stopped: bool| json!({"unsentVisitsMillis": unsent_ms, "stopped": stopped});
        let members = vec![
            member("n0", 0, about(7_000, false)),
            member("n1", 1, about(7_000, false)),
            member("n2", 0, about(0, false)),
            member("n3", 9, about(7_000, false)),
            member("n4", 9, about(7_000, true)),
        ];
        let view = view(members, Vec::new());
        let seconds = |seconds| Duration::from_secs(seconds);
        let expected = [("n1", ("unsent", seconds(8))), ("n3", ("silent", seconds(9)))];
        assert_eq!(view.lacking(), BTreeMap::from(expected));
        assert_eq!(view.sources()["nodes"], json!(["n0", "n2", "n4"]));
    }
}
