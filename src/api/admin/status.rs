//! The status of the node as JSON, gathered from the counters of all cores and services. `page` renders it
//! for people, and `plot` draws its graphs.

mod cores;
mod fleet;
mod page;
mod plot;
mod sentences;
mod values;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use self::sentences::AlarmSentences;
use crate::api::uptime::uptime;
use crate::bridge::handle::ServiceHandle;
use carom_model::access::usage::App;
use carom_model::formats::dates;
use carom_net::DropReason;
use carom_telemetry::activity::CoreSample;
use carom_telemetry::alarms::Raised;
use carom_telemetry::bypass::BypassStats;
use carom_telemetry::durations::Spread;
use carom_telemetry::readable;
use carom_telemetry::stats::{
    CertificateStats, CoreStats, DataDirStats, HostListStats, LatencySummary, NodeStats, TlsStats,
};

/// Time within which a core reports its latencies. A slower core is shown without them.
const REPORT_TIME_MAX: Duration = Duration::from_millis(500);

pub(in crate::api) use fleet::{missing_nodes, sources};
pub(in crate::api) use page::{POLICY, SCRIPT, STYLE, page};
pub(in crate::api) use sentences::sentence;

/// Gathers the whole status. Waits up to [`REPORT_TIME_MAX`] for the cores.
pub(in crate::api) async fn gather(services: &ServiceHandle) -> Value {
    describe(services, &services.latencies(REPORT_TIME_MAX).await)
}

/// Gathers the status with the number of requests of each latency, by core and since the start. A client computes the
/// quantiles of an interval from two of them. Waits up to [`REPORT_TIME_MAX`] for the cores.
pub(in crate::api) async fn gather_with_steps(services: &ServiceHandle) -> Value {
    let latencies = services.latencies(REPORT_TIME_MAX).await;
    let mut status = describe(services, &latencies);
    let cores = status["cores"].as_array_mut().into_iter().flatten();
    for (core, latency) in cores.zip(latencies.iter()) {
        if let Some(latency) = latency {
            core["latencyMicros"]["stepsNanos"] = json!(latency.steps);
        }
    }
    status
}

/// Describes the status, given the latencies that the cores have reported.
pub(in crate::api) fn describe(services: &ServiceHandle, latencies: &[Option<LatencySummary>]) -> Value {
    let context = services.context();
    let node = &context.node;
    let lasts = lasts_seconds(node);
    let cores: Vec<&CoreStats> = context.cores.iter().take(latencies.len()).map(|core| &**core).collect();
    let sum = |of: fn(&CoreStats) -> u64| cores.iter().map(|core| of(core)).sum::<u64>();
    let per_core: Vec<Value> = cores
        .iter()
        .zip(latencies)
        .enumerate()
        .map(|(index, (core, latency))| describe_core(index, core, latency.as_ref()))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": uptime().as_secs(),
        "ready": node.is_ready(),
        "draining": node.draining.load(Ordering::Relaxed),
        "links": sum(|core| core.links.get()),
        "cores": per_core,
        "cache": {
            "hit": sum(|core| core.redirects.get().saturating_sub(core.fetched.get())),
            "miss": sum(|core| core.misses.get() + core.fetched.get()),
            "error": node.store_damaged.get(),
        },
        "residency": describe_residency(node, sum(|core| core.map_bytes.get()), sum(|core| core.fetched.get())),
        "store": describe_store(node),
        "dataDir": describe_data_dir(&node.data_dir),
        "visits": {"dropped": node.visits_dropped.get()},
        "accessLog": node.access_log.is_on.load(Ordering::Relaxed).then(|| json!({
            "lines": node.access_log.lines.get(),
            "dropped": node.access_log.dropped.get(),
        })),
        "expiry": {
            "expired": node.expiry.expired.get(),
            "waiting": node.expiry.due.get(),
            "oldestWaitsSeconds": (node.expiry.due.get() > 0).then(|| node.expiry.late_ms.get() / 1_000),
            "recycled": node.expiry.recycled.get(),
            "recyclingWaitsFor": *node.expiry.recycling_waits_for.lock().unwrap_or_else(PoisonError::into_inner),
        },
        "lock": {"get": sum(|core| core.code_waits.get()), "error": sum(|core| core.code_wait_errors.get())},
        "issuer": {
            "codeLength": node.issuer_length.get(),
            "current": node.issuer_current.get(),
            "remaining": node.issuer_remaining.get(),
            "lastsSeconds": lasts,
            "lasts": lasts.map(readable::at_most_century),
            "error": node.issuer_errors.get(),
        },
        "redis": {
            "configured": node.fleet.configured.load(Ordering::Relaxed),
            "connected": node.fleet.connected.load(Ordering::Relaxed),
            "error": node.fleet.errors.get(),
        },
        "fleet": fleet::describe(node, services.unix_ms()),
        "allowList": describe_hosts(&node.allow_list),
        "blockList": describe_hosts(&node.block_list),
        "destinationRules": {"saved": rules_saved(node)},
        "tls": describe_tls(&node.tls),
        "bypass": describe_node_bypass(node),
        "apps": describe_apps(services),
        "pulse": describe_activity(node),
        "alarms": node.alarms.list().iter().map(describe_alarm).collect::<Vec<_>>(),
    })
}

/// Describes an alarm, with its text as a whole and as sentences.
fn describe_alarm(alarm: &Raised) -> Value {
    let AlarmSentences { message, cause, remedy } = AlarmSentences::of(&alarm.text);
    json!({
        "name": alarm.alarm.name(),
        "text": alarm.text,
        "message": message,
        "cause": cause,
        "remedy": remedy,
        "since": dates::format(alarm.since_ms),
        "cleared": alarm.cleared_ms.map(dates::format),
    })
}

/// Describes the state of a host list; `None` if the list is not configured.
fn describe_hosts(list: &HostListStats) -> Option<Value> {
    let read_ms = Some(list.read_ms.get()).filter(|ms| *ms > 0);
    list.configured
        .load(Ordering::Relaxed)
        .then(|| json!({"static": list.fixed.get(), "dynamic": list.dynamic.get(), "read": read_ms.map(dates::format)}))
}

/// Returns the time at which the destination rules were saved that apply; `None` if those of the settings do.
fn rules_saved(node: &NodeStats) -> Option<String> {
    Some(node.rules_saved_ms.get()).filter(|ms| *ms > 0).map(dates::format)
}

/// Describes the disk of the data directory and the last backup.
fn describe_data_dir(data_dir: &DataDirStats) -> Value {
    let last_backup_ms = Some(data_dir.last_backup_ms.get()).filter(|ms| *ms > 0);
    json!({
        "path": data_dir.path.get().map(|path| path.display().to_string()),
        "freeBytes": data_dir.free_bytes.get(),
        "sizeBytes": data_dir.size_bytes.get(),
        "lastBackup": last_backup_ms.map(dates::format),
    })
}

/// Describes the certificates in use; `None` if TLS is not configured.
fn describe_tls(tls: &TlsStats) -> Option<Value> {
    let certificates = tls.certificates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let shown = |certificate: &CertificateStats| {
        json!({
            "file": certificate.file,
            "names": certificate.names,
            "validUntil": dates::format(certificate.until_ms),
        })
    };
    let all: Vec<Value> = certificates.iter().map(shown).collect();
    (!all.is_empty()).then(|| json!({"certificates": all, "renewed": tls.renewed.get()}))
}

/// Describes the use of each app.
fn describe_apps(services: &ServiceHandle) -> Vec<Value> {
    let keys = services.keys();
    let apps: BTreeMap<&str, &Arc<App>> = keys.each().map(|(_, app)| (app.name.as_str(), app)).collect();
    apps.into_values().map(|app| crate::api::rest::apps::describe(app)).collect()
}

fn describe_core(index: usize, core: &CoreStats, latency: Option<&LatencySummary>) -> Value {
    json!({
        "core": index,
        "cpu": core.cpu.get(),
        "links": core.links.get(),
        "linkBytes": core.link_bytes.get(),
        "mapBytes": core.map_bytes.get(),
        "connections": core.connections.get(),
        "accepted": core.accepted.get(),
        "shed": core.shed.get(),
        "evicted": core.connections_evicted.get(),
        "handshakes": core.handshakes.get(),
        "resumptions": core.resumptions.get(),
        "handshakeFailures": core.handshake_failures.get(),
        "redirects": core.redirects.get(),
        "misses": core.misses.get(),
        "unavailable": core.unavailable.get(),
        "throttled": core.throttled.get(),
        "untrusted": core.untrusted.get(),
        "badRequests": core.bad_requests.get(),
        "timedOut": core.timed_out.get(),
        "tooLong": core.too_long.get(),
        "handedOver": core.handed_over.get(),
        "forwardedOut": core.forwarded_out.get(),
        "hotHits": core.hot_hits.get(),
        "lookedUp": core.looked_up.get(),
        "fetches": core.fetches.get(),
        "forwardedIn": core.forwarded_in.get(),
        "doorbells": core.doorbells.get(),
        "turns": core.turns.get(),
        "gathered": core.gathered.get(),
        "longestTaskMicros": core.task_micros_max.get(),
        "codes": {
            "remaining": core.codes_remaining.get(),
            "capacity": core.segment_len.get(),
            "refills": core.refills.get(),
            "errors": core.refill_errors.get(),
        },
        "latencyMicros": latency.map(|latency| json!({
            "count": latency.count, "p50": latency.p50, "p80": latency.p80, "p99": latency.p99, "p999": latency.p999,
            "max": latency.max,
        })),
        "bypass": describe_bypass(&core.bypass),
    })
}

/// Describes the datapath of a core past the kernel's TCP; `None` if it has none.
fn describe_bypass(bypass: &BypassStats) -> Option<Value> {
    bypass.is_on.load(Ordering::Relaxed).then(|| {
        json!({
            "queue": bypass.queue.get(),
            "mode": if bypass.is_native.load(Ordering::Relaxed) { "native" } else { "generic" },
            "zeroCopy": bypass.is_zero_copy.load(Ordering::Relaxed),
            "framesIn": bypass.frames_in.get(),
            "framesOut": bypass.frames_out.get(),
            "bytesIn": bypass.bytes_in.get(),
            "bytesOut": bypass.bytes_out.get(),
            "opened": bypass.opened.get(),
            "open": bypass.open.get(),
            "halfOpen": bypass.half_open.get(),
            "timeWait": bypass.time_wait.get(),
            "framesHeld": bypass.frames_held.get(),
            "retransmissions": bypass.retransmissions.get(),
            "timeouts": bypass.timeouts.get(),
            "timedOut": bypass.timed_out.get(),
            "shed": bypass.shed.get(),
            "cookiesSent": bypass.cookies_sent.get(),
            "cookiesAccepted": bypass.cookies_accepted.get(),
            "resetsSentUnknown": bypass.resets_unknown.get(),
            "resetsSentAbort": bypass.resets_abort.get(),
            "resetsReceived": bypass.resets_received.get(),
            "outOfOrder": bypass.out_of_order.get(),
            "dropped": bypass.all_dropped(),
            "droppedBy": describe_drops(bypass),
            "noFrame": bypass.no_frame.get(),
            "ringFull": bypass.ring_full.get(),
            "kernelDrops": bypass.kernel_drops.get(),
            "receiveRingFull": bypass.receive_ring_full.get(),
            "fillRingEmpty": bypass.fill_ring_empty.get(),
        })
    })
}

/// Describes the frames that the stack dropped: the reasons that occurred.
fn describe_drops(bypass: &BypassStats) -> BTreeMap<&'static str, u64> {
    let counts = DropReason::ALL.iter().zip(&bypass.dropped).map(|(reason, count)| (reason.name(), count.get()));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Describes kernel bypass of the node; `None` if the settings name no interface.
fn describe_node_bypass(node: &NodeStats) -> Option<Value> {
    let bypass = node.bypass.get()?;
    let obstacle = bypass.obstacle();
    Some(json!({"interface": bypass.interface, "active": obstacle.is_none(), "obstacle": obstacle}))
}

/// Describes the links that are in memory, and the memory limit.
fn describe_residency(node: &NodeStats, memory_bytes: u64, fetched: u64) -> Value {
    let limit = node.memory_limit.get();
    json!({
        "mode": if limit > 0 { "hot" } else { "all" },
        "memoryBytes": memory_bytes,
        "memoryLimitBytes": (limit > 0).then_some(limit),
        "fetched": fetched,
        "fetchesLeftOut": node.fetches_left_out.get(),
    })
}

fn describe_store(node: &NodeStats) -> Value {
    let (syncs, commits) = (node.syncs.spread(), node.commits.spread());
    json!({
        "update": node.store_updates.get(),
        "select": node.store_selects.get(),
        "error": node.store_errors.get(),
        "damaged": node.store_damaged.get(),
        "newer": node.store_newer.get(),
        "commits": syncs.count(),
        "syncMicrosMean": mean_micros(&syncs),
        "commitMicrosMean": mean_micros(&commits),
        "commitMicrosMax": node.commits.longest().as_micros() as u64,
        "commitsSlow": commits.above(SLOW_COMMIT),
        "queue": node.write_queue.get(),
        "writable": !node.writes_refused.load(Ordering::Relaxed),
    })
}

/// Duration from which a commit counts as slow: a bound of the histogram.
const SLOW_COMMIT: Duration = Duration::from_millis(100);

/// Returns the mean of some durations, in microseconds; 0 if there are none.
fn mean_micros(spread: &Spread) -> f64 {
    if spread.count() == 0 { 0.0 } else { spread.sum().as_secs_f64() * 1e6 / spread.count() as f64 }
}

/// Returns for how many seconds the codes of this length last at the rate at which links with generated codes were
/// created in the last minute; `None` at a rate of zero.
fn lasts_seconds(node: &NodeStats) -> Option<u64> {
    let rate = node.activity.issued_per_second();
    (rate > 0.0).then(|| (node.issuer_remaining.get() as f64 / rate) as u64)
}

/// Describes the last two minutes, second by second: redirects and misses of each core, changes and new connections
/// of the node.
fn describe_activity(node: &NodeStats) -> Value {
    let samples = node.activity.samples();
    let cores = samples.iter().map(|sample| sample.cores.len()).max().unwrap_or(0);
    let of_core = |core: usize, of: fn(&CoreSample) -> u32| -> Vec<u32> {
        samples.iter().map(|sample| sample.cores.get(core).map_or(0, of)).collect()
    };
    let of_cores = |of: fn(&CoreSample) -> u32| (0..cores).map(|core| of_core(core, of)).collect::<Vec<_>>();
    json!({
        "redirects": of_cores(|core| core.redirects),
        "misses": of_cores(|core| core.misses),
        "changes": samples.iter().map(|sample| sample.changes).collect::<Vec<_>>(),
        "accepted": samples.iter().map(|sample| sample.accepted).collect::<Vec<_>>(),
    })
}
