//! The state of a node at a moment: numbers of one status document, and rates since the one before.

use std::time::Duration;

use serde_json::Value;

use super::latency::{self, LatencyCounts, Quantiles};
use crate::commands::status::text::{alarm_texts, contact, cores, number, rate};
use crate::commands::terminal::plain;
use carom_telemetry::alarms::{Alarm, Severity};

/// The stage of a node between its start and its stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeState {
    Starting,
    Ready,
    Draining,
}

/// The state of a node. Rates are per second, and `None` without an earlier document of the same process.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Snapshot {
    pub(super) version: String,
    pub(super) state: NodeState,
    pub(super) uptime_seconds: f64,
    pub(super) links: f64,
    /// Memory of the links, in bytes.
    pub(super) memory: f64,
    pub(super) memory_limit: Option<f64>,
    pub(super) is_writable: bool,
    /// Writes that wait for the store.
    pub(super) write_queue: f64,
    /// Free bytes of the disk of the data directory, and its size.
    pub(super) disk: Option<(f64, f64)>,
    pub(super) fleet: Option<FleetState>,
    pub(super) bypass: Option<BypassSummary>,
    /// Active alarms, the most severe first, and among those the newest.
    pub(super) alarms: Vec<ActiveAlarm>,
    pub(super) totals: NodeTotals,
    pub(super) cores: Vec<CoreLoad>,
    /// Requests in each of the last seconds, oldest first.
    pub(super) history: Vec<u64>,
}

/// Redis and the fleet.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FleetState {
    pub(super) is_connected: bool,
    pub(super) nodes: usize,
    pub(super) lag_ms: f64,
    /// Changes that have not reached Redis.
    pub(super) unsynced: f64,
    /// The contact to the other site; `None` for a fleet of one site.
    pub(super) site: Option<SiteState>,
}

/// The contact of the site of this node to the other one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SiteState {
    pub(super) other: String,
    /// True if this site has all changes of the other one.
    pub(super) is_current: bool,
    pub(super) contact: String,
}

/// Kernel bypass of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BypassSummary {
    pub(super) interface: String,
    pub(super) obstacle: Option<String>,
}

/// An active alarm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ActiveAlarm {
    pub(super) severity: Severity,
    pub(super) name: String,
    pub(super) since: String,
    /// The problem, its cause and its remedy, in sentences.
    pub(super) text: String,
}

/// Numbers of the whole node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct NodeTotals {
    pub(super) traffic: Option<Traffic>,
    /// Links created, changed or deleted.
    pub(super) writes: Option<f64>,
    /// Requests of the API and of pages.
    pub(super) api: Option<f64>,
    pub(super) latency: Option<Quantiles>,
    pub(super) connections: f64,
}

/// Requests per second. Those of the API and of pages are not among them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Traffic {
    pub(super) requests: f64,
    /// Answered with 404.
    pub(super) not_found: f64,
    /// Answered with 503.
    pub(super) errors: f64,
    /// Answered with another status from 400 to 499: malformed, too long, too slow, or over a rate limit.
    pub(super) refused: f64,
}

/// Numbers of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CoreLoad {
    pub(super) core: f64,
    pub(super) cpu: f64,
    pub(super) traffic: Option<Traffic>,
    pub(super) latency: Option<Quantiles>,
    pub(super) connections: f64,
    pub(super) links: f64,
    /// Lookups sent to other cores, per second.
    pub(super) lookups: Option<f64>,
    /// Short codes in the queue of the core.
    pub(super) codes: f64,
    pub(super) bypass: Option<BypassLoad>,
}

/// Kernel bypass of a core. Rates are per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BypassLoad {
    pub(super) frames_in: Option<f64>,
    pub(super) frames_out: Option<f64>,
    pub(super) retransmitted: Option<f64>,
    /// Frames that the stack or the kernel dropped.
    pub(super) dropped: Option<f64>,
    /// Frames that wait for their acknowledgement.
    pub(super) held: f64,
}

/// Counters of an earlier document, and the time since then.
type Earlier<'v> = Option<(&'v Value, Duration)>;

impl Snapshot {
    /// Describes a node, given its status and an earlier one.
    pub(super) fn new(before: Earlier<'_>, now: &Value) -> Snapshot {
        // The counters of a node that has restarted begin at zero.
        let is_same = |before: &Value| number(before, "/uptimeSeconds") <= number(now, "/uptimeSeconds");
        let before = before.filter(|(before, _)| is_same(before));
        let mut all = LatencyCounts::new();
        let loads: Vec<CoreLoad> = cores(now)
            .iter()
            .enumerate()
            .map(|(index, core)| {
                let before = before.and_then(|(before, time)| Some((cores(before).get(index)?, time)));
                CoreLoad::new(before, core, &mut all)
            })
            .collect();
        Snapshot {
            version: plain(now["version"].as_str().unwrap_or("?")),
            state: match (now["draining"].as_bool(), now["ready"].as_bool()) {
                (Some(true), _) => NodeState::Draining,
                (_, Some(true)) => NodeState::Ready,
                _ => NodeState::Starting,
            },
            uptime_seconds: number(now, "/uptimeSeconds"),
            links: number(now, "/links"),
            memory: number(now, "/residency/memoryBytes"),
            memory_limit: now.pointer("/residency/memoryLimitBytes").and_then(Value::as_f64),
            is_writable: now["store"]["writable"] == true,
            write_queue: number(now, "/store/queue"),
            disk: now["dataDir"]
                .is_object()
                .then(|| (number(now, "/dataDir/freeBytes"), number(now, "/dataDir/sizeBytes"))),
            fleet: fleet(now),
            bypass: bypass(now),
            alarms: alarms(now),
            totals: totals(before, now, &loads, &all),
            cores: loads,
            history: history(now),
        }
    }

    /// Returns the number of active alarms of a severity.
    pub(super) fn count_of(&self, severity: Severity) -> usize {
        self.alarms.iter().filter(|alarm| alarm.severity == severity).count()
    }
}

impl CoreLoad {
    /// Describes a core, and adds its latencies to those of `all` cores.
    fn new(before: Earlier<'_>, now: &Value, all: &mut LatencyCounts) -> CoreLoad {
        let latency = before.map(|(before, _)| latency::between(before, now)).unwrap_or_default();
        latency::add(all, &latency);
        CoreLoad {
            core: number(now, "/core"),
            cpu: number(now, "/cpu"),
            traffic: before.map(|(before, time)| Traffic::between(before, now, time)),
            latency: Quantiles::of(&latency),
            connections: number(now, "/connections"),
            links: number(now, "/links"),
            lookups: per_second(before, now, "/forwardedOut"),
            codes: number(now, "/codes/remaining"),
            bypass: now["bypass"].is_object().then(|| BypassLoad::new(before, now)),
        }
    }
}

impl Traffic {
    fn between(before: &Value, now: &Value, time: Duration) -> Traffic {
        let sum = |names: &[&str]| {
            let rates = names.iter().map(|name| rate(number(before, name), number(now, name), time));
            rates.sum::<f64>()
        };
        let (not_found, errors) = (sum(&["/misses"]), sum(&["/unavailable"]));
        let refused = sum(&["/throttled", "/badRequests", "/timedOut", "/tooLong"]);
        Traffic { requests: sum(&["/redirects"]) + not_found + errors + refused, not_found, errors, refused }
    }

    fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            requests: self.requests + other.requests,
            not_found: self.not_found + other.not_found,
            errors: self.errors + other.errors,
            refused: self.refused + other.refused,
        }
    }
}

impl BypassLoad {
    fn new(before: Earlier<'_>, now: &Value) -> BypassLoad {
        let rate = |name: &str| per_second(before, now, &format!("/bypass/{name}"));
        BypassLoad {
            frames_in: rate("framesIn"),
            frames_out: rate("framesOut"),
            retransmitted: rate("retransmissions"),
            dropped: rate("dropped").zip(rate("kernelDrops")).map(|(own, kernel)| own + kernel),
            held: number(now, "/bypass/framesHeld"),
        }
    }
}

fn per_second(before: Earlier<'_>, now: &Value, pointer: &str) -> Option<f64> {
    before.map(|(before, time)| rate(number(before, pointer), number(now, pointer), time))
}

fn totals(before: Earlier<'_>, now: &Value, loads: &[CoreLoad], all: &LatencyCounts) -> NodeTotals {
    let sum = |status: &Value, name: &str| cores(status).iter().map(|core| number(core, name)).sum::<f64>();
    let traffic = loads.iter().filter_map(|core| core.traffic).fold(Traffic::default(), Traffic::plus);
    NodeTotals {
        traffic: before.map(|_| traffic),
        writes: per_second(before, now, "/store/update"),
        api: before.map(|(before, time)| rate(sum(before, "/handedOver"), sum(now, "/handedOver"), time)),
        latency: Quantiles::of(all),
        connections: loads.iter().map(|core| core.connections).sum(),
    }
}

fn fleet(now: &Value) -> Option<FleetState> {
    (now["redis"]["configured"] == true).then(|| FleetState {
        is_connected: now["redis"]["connected"] == true,
        nodes: now["fleet"]["nodes"].as_array().map_or(0, Vec::len),
        lag_ms: number(now, "/fleet/lagMillis"),
        unsynced: number(now, "/fleet/outbox"),
        site: site(&now["fleet"]["site"]),
    })
}

fn site(site: &Value) -> Option<SiteState> {
    let other = plain(site["other"].as_str()?);
    let is_current = site["current"] == true && site["mayLack"] != true;
    Some(SiteState { other, is_current, contact: contact(site) })
}

fn bypass(now: &Value) -> Option<BypassSummary> {
    let interface = plain(now["bypass"]["interface"].as_str()?);
    Some(BypassSummary { interface, obstacle: now["bypass"]["obstacle"].as_str().map(plain) })
}

fn alarms(now: &Value) -> Vec<ActiveAlarm> {
    let list = now["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |alarm: &Value, name: &str| plain(alarm[name].as_str().unwrap_or_default());
    // The newest is the last one.
    let active = list.iter().rev().filter(|alarm| alarm["cleared"].is_null()).map(|alarm| {
        let name = text(alarm, "name");
        // A newer node may have alarms that this version does not know.
        let severity = Alarm::ALL.iter().find(|known| known.name() == name).map_or(Severity::Warning, |a| a.severity());
        ActiveAlarm { severity, name, since: text(alarm, "since"), text: alarm_texts(alarm).join(" ") }
    });
    let mut active: Vec<ActiveAlarm> = active.collect();
    active.sort_by_key(|alarm| match alarm.severity {
        Severity::Critical => 0,
        Severity::Warning => 1,
        Severity::Notice => 2,
    });
    active
}

/// Adds up the requests of all cores, second by second.
fn history(now: &Value) -> Vec<u64> {
    let mut seconds: Vec<u64> = Vec::new();
    for name in ["redirects", "misses"] {
        let by_core = now["pulse"][name].as_array().map(Vec::as_slice).unwrap_or_default();
        for counts in by_core.iter().filter_map(Value::as_array) {
            seconds.resize(seconds.len().max(counts.len()), 0);
            seconds.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.as_u64().unwrap_or(0));
        }
    }
    seconds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn core(redirects: u64) -> Value {
        json!({
            "core": 0, "cpu": 2, "links": 1_500, "connections": 7, "redirects": redirects, "misses": redirects / 10,
            "unavailable": redirects / 100, "throttled": 3, "forwardedOut": redirects / 2, "codes": {"remaining": 60},
            "latencyMicros": {"stepsNanos": [[20_000, redirects]]},
        })
    }

    #[test]
    fn rates_are_those_between_two_documents() {
        let before = json!({"uptimeSeconds": 10, "cores": [core(1_000)], "store": {"update": 10}});
        let now = json!({"uptimeSeconds": 12, "cores": [core(21_000)], "store": {"update": 30}});
        let snapshot = Snapshot::new(Some((&before, Duration::from_secs(2))), &now);
        let traffic = snapshot.totals.traffic.unwrap();
        assert_eq!((traffic.requests, traffic.not_found, traffic.errors), (11_100.0, 1_000.0, 100.0));
        assert_eq!((traffic.refused, snapshot.totals.writes), (0.0, Some(10.0)));
        assert_eq!(snapshot.totals.latency, snapshot.cores[0].latency);
        assert_eq!(snapshot.totals.latency.map(|latency| latency.p99), Some(20.0));
        assert_eq!((snapshot.cores[0].lookups, snapshot.cores[0].codes), (Some(5_000.0), 60.0));
    }

    #[test]
    fn restarted_nodes_have_no_rates_yet() {
        let before = json!({"uptimeSeconds": 10, "cores": [core(1_000)]});
        let now = json!({"uptimeSeconds": 1, "cores": [core(50)]});
        let earlier = Some((&before, Duration::from_secs(1)));
        for snapshot in [Snapshot::new(earlier, &now), Snapshot::new(None, &before)] {
            assert_eq!((snapshot.totals.traffic, snapshot.totals.writes, snapshot.totals.latency), (None, None, None));
            assert_eq!((snapshot.cores[0].traffic, snapshot.cores[0].links), (None, 1_500.0));
        }
        assert!(Snapshot::new(earlier, &json!({})).cores.is_empty());
    }

    #[test]
    fn active_alarms_are_ordered_by_severity() {
        let alarm = |name: &str, cleared: Value| json!({"name": name, "since": "t", "cleared": cleared, "message": "\u{1b}x.", "cause": "c.", "remedy": "Do y."});
        let now = json!({"alarms": [
            alarm("codes_used_up", Value::Null), alarm("redis_away", Value::Null), alarm("disk_full", json!("t")),
            alarm("of_tomorrow", Value::Null), alarm("store_failed", Value::Null),
        ]});
        let snapshot = Snapshot::new(None, &now);
        let names: Vec<&str> = snapshot.alarms.iter().map(|alarm| alarm.name.as_str()).collect();
        assert_eq!(names, ["store_failed", "of_tomorrow", "redis_away", "codes_used_up"]);
        assert_eq!((snapshot.count_of(Severity::Warning), &*snapshot.alarms[0].text), (2, "x. c. Do y."));
    }

    #[test]
    fn history_is_the_sum_of_all_cores() {
        let now = json!({"pulse": {"redirects": [[1, 2, 3], [10, 20, 30]], "misses": [[0, 0, 100], []]}});
        assert_eq!(Snapshot::new(None, &now).history, [11, 22, 133]);
        assert!(Snapshot::new(None, &json!({})).history.is_empty());
    }

    #[test]
    fn bypass_of_cores_and_node_is_read() {
        let of =
            |frames: u64| json!({"bypass": {"framesIn": frames, "dropped": 1, "kernelDrops": frames, "framesHeld": 4}});
        let before = json!({"cores": [of(0), {}]});
        let now = json!({"cores": [of(10), {}], "bypass": {"interface": "eth0", "obstacle": null}});
        let snapshot = Snapshot::new(Some((&before, Duration::from_secs(1))), &now);
        let bypass = snapshot.cores[0].bypass.unwrap();
        assert_eq!((bypass.frames_in, bypass.dropped, bypass.held), (Some(10.0), Some(10.0), 4.0));
        assert_eq!((snapshot.cores[1].bypass, snapshot.bypass.unwrap().obstacle), (None, None));
    }
}
