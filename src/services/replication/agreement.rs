//! The description of a node in its heartbeat ([`about`]). From the descriptions, nodes agree on the format that they
//! write ([`compare`]), and find settings that differ.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::groups::fingerprints;
use self::groups::{GROUPS, RETENTION_GROUP, crosses_sites};
use super::context::{FleetContext, FleetSetup, SettingFingerprints};
use super::redis::HeartbeatReply;
use super::retention::NodeRetention;
use carom_model::replication::confirmations::DeliveryReport;
use carom_model::replication::formats;
use carom_model::replication::members::NodeId;
use carom_telemetry::activity::CoreSample;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// The parts of a heartbeat that acknowledge heartbeats of the other nodes. One part has those that this node has heard
/// of (see [`carom_model::replication::confirmations`]). The other part has those after which it has read all streams
/// (see [`carom_model::replication::passing`]).
#[derive(Debug)]
pub(super) struct HeartbeatAcks<'a> {
    /// The number of this heartbeat.
    pub number: u64,
    /// The numbers of the last heartbeats of the other nodes.
    pub heard: &'a BTreeMap<NodeId, u64>,
    /// The numbers of their last heartbeats after which this node has read all streams to their ends.
    pub passed: BTreeMap<NodeId, u64>,
    /// True if this node waits for heartbeats of the others: for confirmations, or until they have heard of it.
    pub is_asking: bool,
}

/// Returns the description of this node in its heartbeat, as JSON. `restoring` is the number of partitions in which
/// Redis may lack links of this node. `stopped` is true in the last heartbeat before an ordered stop. `instance` describes
/// this process.
pub(super) fn about(
    setup: &FleetSetup,
    stats: &NodeStats,
    (restoring, stopped): (u64, bool),
    acks: &HeartbeatAcks<'_>,
    instance: &Value,
) -> String {
    let last = stats.activity.last().unwrap_or_default();
    let of_cores = |of: fn(&CoreSample) -> u32| last.cores.iter().map(|core| u64::from(of(core))).sum::<u64>();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": instance,
        "formats": {"reads": formats::newest(), "writes": stats.fleet.format.get().max(u64::from(formats::FIRST))},
        "settings": setup.agreed,
        "retentionMillis": setup.retention.map(|retention| retention.as_millis() as u64),
        "ready": stats.is_ready(),
        "draining": stats.draining.load(Ordering::Relaxed),
        "stopped": stopped,
        "redirectsPerSecond": of_cores(|core| core.redirects),
        "missesPerSecond": of_cores(|core| core.misses),
        "changesPerSecond": last.changes,
        "outbox": stats.fleet.outbox.get(),
        "unread": stats.fleet.unread.get(),
        "lagMillis": stats.fleet.lag_ms.get(),
        // Age of the oldest counts that other nodes cannot have; 0 if they can have all.
        "unsentVisitsMillis": stats.fleet.visits_unsent_ms.get(),
        "restoring": restoring,
        // Null in a fleet of one site.
        "relay": stats.fleet.site.names.get().map(|_| !stopped && stats.fleet.site.is_relay.load(Ordering::Acquire)),
        "beat": acks.number,
        "asking": acks.is_asking,
        // Counted after the other heartbeats were heard.
        "heard": acks.heard,
        "undelivered": stats.fleet.undelivered.get(),
        "passed": acks.passed,
        // A node whose heartbeat lacks this reports no grants.
        "awaitsGrants": stats.fleet.grants.is_waiting.load(Ordering::Acquire),
        // In a last heartbeat: Redis has what this node knows of grants.
        "leftGrants": stopped && stats.fleet.grants.handover.is_left.load(Ordering::Acquire),
        // Age of the oldest logged visit that other nodes cannot have; null if the log is not shared.
        "visitLog": stats.visit_log.is_shared.load(Ordering::Acquire).then(|| stats.visit_log.lag_ms.get()),
    })
    .to_string()
}

/// A node of the fleet besides this one, by its last heartbeat.
#[derive(Debug)]
pub(super) struct OtherNode {
    pub node: NodeId,
    /// The time of the heartbeat by the clock of Redis.
    pub beat: u64,
    /// The number of the heartbeat; `None` for versions that do not number them.
    pub number: Option<u64>,
    /// The report on the delivery of its links; `None` from a version that makes none.
    pub report: Option<DeliveryReport>,
    /// The number of the last heartbeat of this node after which it has read all streams to their ends; `None` for versions
    /// that do not say so.
    pub passed: Option<u64>,
    /// True if that node waits for heartbeats of the others.
    pub is_asking: bool,
    /// True if Redis may lack some of its links, which it restores.
    pub is_restoring: bool,
    /// True if a visit waits there for reports of granted visits; `None` for versions that make none.
    pub awaits_grants: Option<bool>,
    /// True if the node was stopped, and has left its grants to the others.
    pub has_left_grants: bool,
}

/// Returns all nodes but `me`, by their last heartbeats.
pub(super) fn others(heard: &HeartbeatReply, me: &str) -> Vec<OtherNode> {
    let about: BTreeMap<&str, Value> = heard
        .about
        .iter()
        .map(|(node, about)| (node.as_str(), serde_json::from_str(about).unwrap_or_default()))
        .collect();
    let beats: BTreeMap<&str, u64> = heard.beats.iter().map(|(node, beat)| (node.as_str(), *beat)).collect();
    let names: BTreeSet<&str> = about.keys().chain(beats.keys()).copied().filter(|node| *node != me).collect();
    let other = |node: &str| {
        let about = about.get(node).unwrap_or(&Value::Null);
        let report = || {
            let (undelivered, heard) = (about["undelivered"].as_u64()?, about["heard"][me].as_u64()?);
            Some(DeliveryReport { undelivered, heard })
        };
        OtherNode {
            node: node.to_owned(),
            beat: beats.get(node).copied().unwrap_or_default(),
            number: about["beat"].as_u64(),
            report: report(),
            passed: about["passed"][me].as_u64(),
            is_asking: about["asking"].as_bool() == Some(true),
            is_restoring: about["restoring"].as_u64().is_some_and(|partitions| partitions > 0),
            awaits_grants: about["awaitsGrants"].as_bool(),
            has_left_grants: about["leftGrants"].as_bool() == Some(true),
        }
    };
    names.into_iter().map(other).collect()
}

/// Marks the awaited nodes among the `others` as nodes that restore links, and adds those without a heartbeat in Redis, as
/// nodes that report nothing.
pub(super) fn add_awaited(others: &mut Vec<OtherNode>, awaited: BTreeSet<NodeId>) {
    for node in awaited {
        if let Some(other) = others.iter_mut().find(|other| other.node == node) {
            other.is_restoring = true;
            continue;
        }
        others.push(OtherNode {
            node,
            beat: 0,
            number: None,
            report: None,
            passed: None,
            is_asking: false,
            is_restoring: true,
            awaits_grants: None,
            has_left_grants: false,
        });
    }
}

/// Returns the retentions of all nodes, also of silent ones, without those that keep states forever.
pub(super) fn retentions(heard: &HeartbeatReply) -> Vec<NodeRetention> {
    let kept = |about: &str| serde_json::from_str::<Value>(about).ok()?["retentionMillis"].as_u64();
    let beat = |node: &str| heard.beats.iter().find(|(name, _)| name == node).map_or(u64::MAX, |(_, beat)| *beat);
    let of = |(node, about): &(String, String)| {
        let kept = Duration::from_millis(kept(about).filter(|ms| *ms > 0)?);
        Some(NodeRetention { kept, beat_ms: beat(node) })
    };
    heard.about.iter().filter_map(of).collect()
}

/// Returns the other live nodes with their retentions; `None` for forever, also if a node does not say it.
pub(super) fn retentions_of_live(heard: &HeartbeatReply, me: &str) -> Vec<(NodeId, Option<Duration>)> {
    let kept = |about: &Value| about["retentionMillis"].as_u64().filter(|ms| *ms > 0).map(Duration::from_millis);
    let others = live(heard, me).into_iter().filter(|(node, _)| *node != me);
    others.map(|(node, about)| (node.to_owned(), kept(&about))).collect()
}

/// Compares this node with the other live ones: decides which format it writes from now on, and raises an alarm if a
/// setting differs.
pub(super) fn compare(fleet: &FleetContext, heard: &HeartbeatReply) {
    let live = live(heard, &fleet.settings.node);
    let reads = |about: &Value| about["formats"]["reads"].as_u64().and_then(|reads| u32::try_from(reads).ok());
    let format = formats::agreed(live.iter().map(|(_, about)| reads(about)));
    #[cfg(feature = "next-format")]
    carom_model::replication::formats::next::agree(format);
    let before = fleet.stats.fleet.format.get();
    fleet.stats.fleet.format.set(u64::from(format));
    if before != u64::from(format) {
        tracing::info!(format, newest = formats::newest(), "the format in which this node writes to Redis");
    }
    let across = fleet.stats.fleet.site.differing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let within = difference(&fleet.settings.agreed, &fleet.settings.node, &live);
    let texts: Vec<String> = within.into_iter().chain(across).collect();
    if texts.is_empty() {
        fleet.stats.alarms.clear(Alarm::SettingsDiffer);
    } else {
        fleet.stats.alarms.raise(Alarm::SettingsDiffer, texts.join("; "));
    }
}

/// Returns the live nodes, this one among them, with the descriptions in their heartbeats. A node is live if its last
/// heartbeat was at most ten minutes before that of this node.
fn live<'h>(heard: &'h HeartbeatReply, me: &str) -> Vec<(&'h str, Value)> {
    live_at(heard, heard.beats.iter().find(|(node, _)| node == me).map_or(0, |(_, beat)| *beat))
}

/// Returns the nodes with a heartbeat in the ten minutes before `now`, by the clock of Redis, with their descriptions.
fn live_at(heard: &HeartbeatReply, now: u64) -> Vec<(&str, Value)> {
    let counts_for = formats::COUNTS_FOR.as_millis() as u64;
    let live = heard.beats.iter().filter(|(_, beat)| now.saturating_sub(*beat) < counts_for);
    let about = |node: &str| heard.about.iter().find(|(of, _)| of == node).map(|(_, about)| about.as_str());
    let parsed = |node: &str| about(node).and_then(|about| serde_json::from_str(about).ok()).unwrap_or(Value::Null);
    live.map(|(node, _)| (node.as_str(), parsed(node))).collect()
}

/// Names the settings that differ, and the nodes.
fn difference(ours: &SettingFingerprints, me: &str, live: &[(&str, Value)]) -> Option<String> {
    let others: Vec<(&str, &Value)> =
        live.iter().filter(|(node, _)| *node != me).map(|(node, about)| (*node, about)).collect();
    let described = |(_, keys, nodes): (&str, &str, String)| format!("{keys} (here, on {me}, not as on {nodes})");
    let found = differing(ours, &others);
    let is_retention = found.iter().any(|(group, ..)| *group == RETENTION_GROUP);
    let applies = if is_retention { "; until then, the longest fleet.retention of all nodes applies" } else { "" };
    let parts: Vec<String> = found.into_iter().map(described).collect();
    let text = || format!("settings that must be the same on all nodes differ: {}{applies}", parts.join("; "));
    (!parts.is_empty()).then(text)
}

/// Names the settings of this site that differ from those of the other one, and the nodes there. `now` is the present time
/// by the clock of the other site's Redis, in milliseconds since 1970 UTC.
pub(super) fn difference_of_sites(
    ours: &SettingFingerprints,
    (site, other): (&str, &str),
    heard: &HeartbeatReply,
    now: u64,
) -> Option<String> {
    let live = live_at(heard, now);
    let others: Vec<(&str, &Value)> = live.iter().map(|(node, about)| (*node, about)).collect();
    let crossing = differing(ours, &others).into_iter().filter(|(group, ..)| crosses_sites(group));
    let described = |(_, keys, nodes): (&str, &str, String)| format!("{keys} (not as on {nodes})");
    let parts: Vec<String> = crossing.map(described).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join("; ");
        format!("settings of this site, {site}, that must be the same at the site {other} differ: {parts}")
    })
}

/// Returns the groups of settings that differ on some of the nodes, each with its keys and these nodes. A node of a version
/// that says nothing of a setting is left out.
fn differing(ours: &SettingFingerprints, others: &[(&str, &Value)]) -> Vec<(&'static str, &'static str, String)> {
    let mut found = Vec::new();
    for (group, keys) in GROUPS {
        let differs = |about: &Value| {
            about["settings"][group].as_str().is_some_and(|theirs| Some(theirs) != ours.get(group).map(String::as_str))
        };
        let nodes: Vec<&str> = others.iter().filter(|(_, about)| differs(about)).map(|(node, _)| *node).collect();
        if !nodes.is_empty() {
            found.push((group, keys, nodes.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_and_the_nodes_are_named() {
        let ours: SettingFingerprints = [("dedupe", "a".to_owned()), ("expiry", "b".to_owned())].into();
        let node = |dedupe: &str| json!({"settings": {"dedupe": dedupe, "expiry": "b"}});
        let live = [("n0", node("x")), ("n1", node("a")), ("n2", node("c")), ("n3", Value::Null), ("n4", node("d"))];
        let text = difference(&ours, "n0", &live).unwrap();
        assert!(text.contains("links.dedupe (here, on n0, not as on n2, n4)"), "{text}");
        assert!(!text.contains("keep_expired"), "{text}");
        assert!(!text.contains("fleet.retention"), "{text}");
        assert_eq!(difference(&ours, "n0", &live[..2]), None);
        let ours: SettingFingerprints = [("retention", "a".to_owned())].into();
        let text = difference(&ours, "n0", &[("n1", json!({"settings": {"retention": "b"}}))]).unwrap();
        assert!(
            text.ends_with("(here, on n0, not as on n1); until then, the longest fleet.retention of all nodes applies")
        );
    }

    #[test]
    fn other_site_is_named_with_its_nodes() {
        let texts = |dedupe: &str, site: &str| [("dedupe", dedupe.to_owned()), ("site", site.to_owned())];
        let ours: SettingFingerprints = texts("a", "x").into();
        let heard = |all: &[(&str, u64, &str)]| HeartbeatReply {
            beats: all.iter().map(|(node, beat, _)| ((*node).to_owned(), *beat)).collect(),
            about: all
                .iter()
                .map(|(node, _, dedupe)| {
                    let settings: SettingFingerprints = texts(dedupe, "y").into();
                    ((*node).to_owned(), json!({"settings": settings}).to_string())
                })
                .collect(),
            ..HeartbeatReply::default()
        };
        let now = formats::COUNTS_FOR.as_millis() as u64 + 5;
        let difference = |all: &[(&str, u64, &str)]| difference_of_sites(&ours, ("berlin", "lisbon"), &heard(all), now);
        let text = difference(&[("n2", now, "b"), ("n3", now, "a"), ("n4", now, "c"), ("n5", 5, "d")]).unwrap();
        assert!(text.contains("this site, berlin, that must be the same at the site lisbon differ"), "{text}");
        assert!(text.ends_with("links.dedupe (not as on n2, n4)"), "{text}");
        assert_eq!(difference(&[("n2", now, "a")]), None, "a site has its own name");
        assert_eq!(difference(&[("n2", 5, "b")]), None, "the node was not heard of lately");
        assert_eq!(difference(&[]), None);
    }

    #[test]
    fn a_heartbeat_without_report_confirms_nothing() {
        let about = [
            ("n0", json!({"beat": 9})),
            ("n1", json!({"beat": 4, "undelivered": 2, "heard": {"n0": 8}, "passed": {"n0": 7}, "asking": true})),
            ("n2", json!({"outbox": 0, "restoring": 1, "awaitsGrants": true, "leftGrants": true})),
            ("n3", json!({"undelivered": 0, "heard": {"n1": 8}})),
        ];
        let about = about.map(|(node, about)| (node.to_owned(), about.to_string())).to_vec();
        let beats = vec![("n1".to_owned(), 70), ("n4".to_owned(), 71)];
        let others = others(&HeartbeatReply { beats, about, ..HeartbeatReply::default() }, "n0");
        let names: Vec<(&str, u64)> = others.iter().map(|other| (other.node.as_str(), other.beat)).collect();
        assert_eq!(names, [("n1", 70), ("n2", 0), ("n3", 0), ("n4", 71)]);
        assert_eq!(others[0].report, Some(DeliveryReport { undelivered: 2, heard: 8 }));
        assert!(others[0].number == Some(4));
        assert!(others[0].is_asking);
        assert!(!others[0].is_restoring);
        assert_eq!(others[0].passed, Some(7));
        assert!(others[1].report.is_none(), "an older version");
        assert!(others[1].is_restoring, "an older version");
        assert_eq!((others[0].awaits_grants, others[1].awaits_grants), (None, Some(true)));
        assert!(!others[0].has_left_grants);
        assert!(others[1].has_left_grants);
        assert!(others[1..].iter().all(|other| other.passed.is_none()));
        assert!(others[2].report.is_none(), "it has not heard of this node");
        assert!(others[3].report.is_none());
        assert!(!others[3].is_asking);
    }

    #[test]
    fn retentions_come_with_their_heartbeats() {
        let about = |texts: &[&str]| HeartbeatReply {
            beats: vec![("n0".to_owned(), 70), ("n7".to_owned(), 71)],
            about: texts.iter().enumerate().map(|(at, text)| (format!("n{at}"), (*text).to_owned())).collect(),
            ..HeartbeatReply::default()
        };
        assert_eq!(retentions(&about(&[r#"{"retentionMillis":null}"#, "{}", "?"])), []);
        let some = about(&[r#"{"retentionMillis":9000}"#, r#"{"retentionMillis":7000}"#, r#"{"retentionMillis":0}"#]);
        let of = |kept: u64, beat_ms: u64| NodeRetention { kept: Duration::from_secs(kept), beat_ms };
        assert_eq!(retentions(&some), [of(9, 70), of(7, u64::MAX)]);
    }

    #[test]
    fn only_live_nodes_keep_states() {
        let counts_for = formats::COUNTS_FOR.as_millis() as u64;
        let about = [
            ("n0", r#"{"retentionMillis":9000}"#),
            ("n1", r#"{"retentionMillis":7000}"#),
            ("n2", r#"{"retentionMillis":null}"#),
            ("n3", r#"{"retentionMillis":null}"#),
        ];
        let beats = [("n0", counts_for + 5), ("n1", 6), ("n2", 7), ("n3", 5), ("n4", 8)];
        let heard = HeartbeatReply {
            beats: beats.map(|(node, beat)| (node.to_owned(), beat)).to_vec(),
            about: about.map(|(node, about)| (node.to_owned(), about.to_owned())).to_vec(),
            ..HeartbeatReply::default()
        };
        let expected = [("n1", Some(Duration::from_secs(7))), ("n2", None), ("n4", None)];
        assert_eq!(retentions_of_live(&heard, "n0"), expected.map(|(node, kept)| (node.to_owned(), kept)));
    }

    #[test]
    fn awaited_nodes_count_as_restoring() {
        let about = ["n1", "n3"].map(|node| (node.to_owned(), r#"{"heard":{"n0":7},"undelivered":0}"#.to_owned()));
        let mut all = others(&HeartbeatReply { about: about.to_vec(), ..HeartbeatReply::default() }, "n0");
        add_awaited(&mut all, ["n1", "n2"].map(str::to_owned).into());
        let found: Vec<_> = all.iter().map(|of| (of.node.as_str(), of.is_restoring, of.report.is_some())).collect();
        assert_eq!(found, [("n1", true, true), ("n3", false, true), ("n2", true, false)]);
    }

    #[test]
    fn silent_nodes_do_not_count() {
        let counts_for = formats::COUNTS_FOR.as_millis() as u64;
        let beats = [("n0", counts_for + 5), ("n1", 5), ("n2", 6)].map(|(node, beat)| (node.to_owned(), beat));
        let heard = HeartbeatReply { beats: beats.to_vec(), ..HeartbeatReply::default() };
        let live: Vec<&str> = live(&heard, "n0").into_iter().map(|(node, _)| node).collect();
        assert_eq!(live, ["n0", "n2"]);
    }
}
