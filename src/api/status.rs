//! The status of the node: gathered from the counters of all cores and control threads, as JSON for programs and as a page
//! for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header;
use serde_json::{Value, json};

use super::{Answer, answer, page, with};
use crate::apps::usage::App;
use crate::dates;
use crate::desk::Desk;
use crate::durations::Spread;
use crate::stats::{CertificateStats, CoreStats, HostListStats, LatencySummary, NodeStats, TlsStats};

/// How long a core may take to report its latencies; one that does not is shown without.
const REPORT_TIME_MAX: Duration = Duration::from_millis(500);

/// The style of the page.
pub(super) const STYLE: &str = include_str!("status.css");

/// When the node began, for its uptime. Set with the first use, at start.
pub(super) fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

/// Everything there is to tell.
pub(super) async fn gather(desk: &Desk) -> Value {
    let latencies = desk.latencies(REPORT_TIME_MAX).await;
    let counters = desk.counters();
    let node = &counters.node;
    let cores: Vec<&CoreStats> = counters.cores.iter().take(latencies.len()).map(|core| &**core).collect();
    let sum = |of: fn(&CoreStats) -> u64| cores.iter().map(|core| of(core)).sum::<u64>();
    let per_core: Vec<Value> = cores
        .iter()
        .zip(&latencies)
        .enumerate()
        .map(|(index, (core, latency))| describe_core(index, core, latency.as_ref()))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": started().elapsed().as_secs(),
        "ready": node.ready.load(Ordering::Relaxed) && !node.draining.load(Ordering::Relaxed),
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
        "visits": {"dropped": node.visits_dropped.get()},
        "expiry": {
            "expired": node.expiry.expired.get(),
            "waiting": node.expiry.due.get(),
            "oldestWaitsSeconds": (node.expiry.due.get() > 0).then(|| node.expiry.late_ms.get() / 1_000),
            "recycled": node.expiry.recycled.get(),
        },
        "lock": {"get": sum(|core| core.code_waits.get()), "error": sum(|core| core.code_wait_errors.get())},
        "issuer": {
            "codeLength": node.issuer_length.get(),
            "current": node.issuer_current.get(),
            "remaining": node.issuer_remaining.get(),
            "error": node.issuer_errors.get(),
        },
        "redis": {
            "configured": node.fleet.configured.load(Ordering::Relaxed),
            "connected": node.fleet.connected.load(Ordering::Relaxed),
            "error": node.fleet.errors.get(),
        },
        "fleet": describe_fleet(node),
        "allowList": describe_hosts(&node.allow_list),
        "blockList": describe_hosts(&node.block_list),
        "tls": describe_tls(&node.tls),
        "apps": describe_apps(desk),
        "alarms": node.alarms.list().iter().map(|alarm| json!({
            "name": alarm.alarm.name(),
            "text": alarm.text,
            "since": dates::format(alarm.since_ms),
            "cleared": alarm.cleared_ms.map(dates::format),
        })).collect::<Vec<_>>(),
    })
}

/// For how long the node has been up: the clock of rates.
pub(super) fn uptime() -> Duration {
    started().elapsed()
}

/// What is known of a list of hosts; nothing where there is none.
fn describe_hosts(list: &HostListStats) -> Option<Value> {
    let read_ms = Some(list.read_ms.get()).filter(|ms| *ms > 0);
    list.configured
        .load(Ordering::Relaxed)
        .then(|| json!({"static": list.fixed.get(), "dynamic": list.dynamic.get(), "read": read_ms.map(dates::format)}))
}

/// The certificates in use; nothing where no TLS is spoken.
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

/// What each app has done.
fn describe_apps(desk: &Desk) -> Vec<Value> {
    let keys = desk.keys();
    let apps: BTreeMap<&str, &Arc<App>> = keys.all().into_iter().map(|(_, app)| (app.name.as_str(), app)).collect();
    apps.into_values().map(|app| super::apps::describe(app)).collect()
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
        "evicted": core.evicted.get(),
        "handshakes": core.handshakes.get(),
        "resumptions": core.resumptions.get(),
        "handshakeFailures": core.handshake_failures.get(),
        "redirects": core.redirects.get(),
        "misses": core.misses.get(),
        "unavailable": core.unavailable.get(),
        "throttled": core.throttled.get(),
        "untrusted": core.untrusted.get(),
        "badRequests": core.bad_requests.get(),
        "handedOver": core.handed_over.get(),
        "forwardedOut": core.forwarded_out.get(),
        "hotHits": core.hot_hits.get(),
        "lookedUp": core.looked_up.get(),
        "fetches": core.fetches.get(),
        "forwardedIn": core.forwarded_in.get(),
        "doorbells": core.doorbells.get(),
        "turns": core.turns.get(),
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
    })
}

/// Which links are in memory.
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
    let syncs = node.syncs.spread();
    json!({
        "update": node.store_updates.get(),
        "select": node.store_selects.get(),
        "error": node.store_errors.get(),
        "damaged": node.store_damaged.get(),
        "commits": syncs.count(),
        "syncMicrosMean": mean_micros(&syncs),
        "commitMicrosMean": mean_micros(&node.commits.spread()),
        "queue": node.write_queue.get(),
        "writable": !node.writes_refused.load(Ordering::Relaxed),
    })
}

/// The mean of some durations, in microseconds; 0 where there are none.
fn mean_micros(spread: &Spread) -> f64 {
    if spread.count() == 0 { 0.0 } else { spread.sum().as_secs_f64() * 1e6 / spread.count() as f64 }
}

/// What the node knows of its fleet; null where it is alone.
fn describe_fleet(node: &NodeStats) -> Value {
    let fleet = &node.fleet;
    if !fleet.configured.load(Ordering::Relaxed) {
        return Value::Null;
    }
    let (name, servers) = fleet.about.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let members = fleet.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let members: Vec<Value> = members
        .into_iter()
        .map(|member| {
            json!({
                "node": member.node,
                "heartbeat": dates::format(member.beat_ms),
                "silentMillis": member.silent_ms,
                "about": serde_json::from_str(&member.about).unwrap_or(Value::Null),
            })
        })
        .collect();
    json!({
        "node": name,
        "servers": servers,
        "nodes": members,
        "outbox": fleet.outbox.get(),
        "conflicts": fleet.conflicts.get(),
        "collisions": fleet.collisions.get(),
        "followed": fleet.followed.get(),
        "delivered": fleet.delivered.get(),
        "lagMillis": fleet.lag_ms.get(),
        "gaps": fleet.gaps.get(),
        "comparing": fleet.comparing.get(),
        "lookUps": fleet.look_ups.get(),
        "lookUpHits": fleet.look_up_hits.get(),
        "lookUpsLeftOut": fleet.look_ups_left_out.get(),
        "regressions": fleet.regressions.get(),
    })
}

/// The status as a page that renews itself.
pub(super) fn page(status: &Value) -> Answer {
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", render(status));
    with(
        answer,
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    )
}

fn render(status: &Value) -> String {
    let mut page = String::from(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"2\"><title>carom: status</title><link rel=\"stylesheet\" href=\"/status.css\"></head><body>",
    );
    let (state, class) = match (status["ready"].as_bool(), status["draining"].as_bool()) {
        (_, Some(true)) => ("draining", "bad"),
        (Some(true), _) => ("ready", "good"),
        _ => ("starting", "bad"),
    };
    let uptime = shown_time(status["uptimeSeconds"].as_u64().unwrap_or(0));
    let _ = write!(
        page,
        "<header><h1>carom</h1><strong class=\"{class}\">{state}</strong><span class=\"soft\">version {}, up {uptime}</span></header>",
        escaped(&status["version"])
    );
    render_cards(&mut page, status);
    render_cores(&mut page, status);
    if status["fleet"].is_object() {
        render_fleet(&mut page, status);
    }
    render_alarms(&mut page, status);
    page.push_str("</body></html>\n");
    page
}

fn render_cards(page: &mut String, status: &Value) {
    let writable = if status["store"]["writable"] == true { "writable" } else { "takes no writes" };
    let is_hot = status["residency"]["mode"] == "hot";
    let cards = [
        (grouped(&status["links"]), if is_hot { "links in memory" } else { "links" }),
        (grouped(&status["cache"]["hit"]), if is_hot { "redirects from memory" } else { "redirects" }),
        (grouped(&status["cache"]["miss"]), if is_hot { "not in memory" } else { "misses" }),
        (grouped(&status["store"]["update"]), "creates and deletes"),
        (grouped(&status["expiry"]["expired"]), "expired"),
        (format!("{:.0} µs", status["store"]["syncMicrosMean"].as_f64().unwrap_or(0.0)), "mean sync"),
        (writable.to_owned(), "store"),
        (rounded(&status["issuer"]["remaining"]), "codes never given out"),
    ];
    page.push_str("<div class=\"cards\">");
    for (number, label) in cards {
        let _ = write!(page, "<div class=\"card\"><b>{number}</b><span>{label}</span></div>");
    }
    page.push_str("</div>");
}

fn render_cores(page: &mut String, status: &Value) {
    page.push_str(
        "<h2>Cores</h2><div class=\"wide\"><table><thead><tr><th>core</th><th>CPU</th><th>links</th><th>MiB</th><th>connections</th>\
         <th>redirects</th><th>misses</th><th>asked others</th><th>from copies</th><th>answered others</th><th>codes ready</th><th>p50 µs</th><th>p99 µs</th><th>max µs</th></tr></thead><tbody>",
    );
    for core in status["cores"].as_array().into_iter().flatten() {
        let latency =
            |name: &str| core["latencyMicros"][name].as_f64().map_or("–".to_owned(), |micros| format!("{micros:.1}"));
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            core["core"],
            core["cpu"],
            grouped(&core["links"]),
            core["mapBytes"].as_f64().unwrap_or(0.0) / 1_048_576.0,
            grouped(&core["connections"]),
            grouped(&core["redirects"]),
            grouped(&core["misses"]),
            grouped(&core["forwardedOut"]),
            grouped(&core["hotHits"]),
            grouped(&core["forwardedIn"]),
            grouped(&core["codes"]["remaining"]),
            latency("p50"),
            latency("p99"),
            latency("max"),
        );
    }
    page.push_str("</tbody></table></div>");
}

fn render_fleet(page: &mut String, status: &Value) {
    let (fleet, redis) = (&status["fleet"], &status["redis"]);
    let connected = redis["connected"] == true;
    let cards = [
        (if connected { "connected" } else { "away" }.to_owned(), "Redis"),
        (grouped(&fleet["outbox"]), "changes to bring to Redis"),
        (grouped(&fleet["followed"]), "changes of all nodes"),
        (grouped(&fleet["comparing"]), "partitions to compare"),
        (grouped(&fleet["lookUpHits"]), "found by looking up"),
        (grouped(&fleet["conflicts"]), "conflicts"),
    ];
    page.push_str("<h2>Fleet</h2><div class=\"cards\">");
    for (number, label) in cards {
        let _ = write!(page, "<div class=\"card\"><b>{number}</b><span>{label}</span></div>");
    }
    page.push_str(
        "</div><div class=\"wide below\"><table><thead><tr><th>node</th><th>version</th><th>state</th><th>to bring</th>\
         <th>behind, ms</th><th>silent, s</th></tr></thead><tbody>",
    );
    for node in fleet["nodes"].as_array().into_iter().flatten() {
        let about = &node["about"];
        let state = match (about["draining"].as_bool(), about["ready"].as_bool()) {
            (Some(true), _) => "draining",
            (_, Some(true)) => "ready",
            _ => "starting",
        };
        let me = if node["node"] == fleet["node"] { " (this one)" } else { "" };
        let _ = write!(
            page,
            "<tr><td>{}{me}</td><td>{}</td><td>{state}</td><td>{}</td><td>{}</td><td>{:.1}</td></tr>",
            escaped(&node["node"]),
            escaped(&about["version"]),
            grouped(&about["outbox"]),
            grouped(&about["lagMillis"]),
            node["silentMillis"].as_f64().unwrap_or(0.0) / 1_000.0,
        );
    }
    page.push_str("</tbody></table></div>");
}

fn render_alarms(page: &mut String, status: &Value) {
    let alarms = status["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    page.push_str("<h2>Alarms</h2>");
    if alarms.is_empty() {
        page.push_str("<p class=\"soft\">None since the start.</p>");
        return;
    }
    page.push_str("<ul>");
    for alarm in alarms.iter().rev() {
        let over = alarm["cleared"].is_string();
        let _ = write!(
            page,
            "<li><strong class=\"{}\">{}</strong> <span class=\"soft\">since {}{}</span><br>{}</li>",
            if over { "soft" } else { "bad" },
            escaped(&alarm["name"]),
            escaped(&alarm["since"]),
            if over { format!(", over since {}", escaped(&alarm["cleared"])) } else { String::new() },
            escaped(&alarm["text"]),
        );
    }
    page.push_str("</ul>");
}

/// A text of the status, fit for HTML.
fn escaped(value: &Value) -> String {
    page::escaped(value.as_str().unwrap_or_default())
}

/// A number with its thousands apart.
fn grouped(value: &Value) -> String {
    let digits = value.as_u64().unwrap_or(0).to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number that may be too long for its place: three digits and a word.
fn rounded(value: &Value) -> String {
    let number = value.as_u64().unwrap_or(0) as f64;
    match number {
        1e15.. => format!("{:.1} quadrillion", number / 1e15),
        1e12.. => format!("{:.2} trillion", number / 1e12),
        1e9.. => format!("{:.1} billion", number / 1e9),
        _ => grouped(value),
    }
}

fn shown_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_fit_for_people_and_browsers() {
        assert_eq!(grouped(&json!(1_234_567)), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(&json!(999)), "999");
        assert_eq!(rounded(&json!(3_521_614_586_208_u64)), "3.52 trillion");
        assert_eq!(escaped(&json!("<b>\"&")), "&lt;b&gt;&quot;&amp;");
        assert_eq!(shown_time(90_000), "1 d 1 h");
    }
}
