//! The metrics of the node in the text format of Prometheus (`/metrics` of the admin listener).
//!
//! Counters of a core carry the label `core`, those of an app the label `app`. Other labels have few values, and
//! the node chooses all of them. Counters start at zero with the process. `families` is the table of metrics, and
//! `process` reads those of the operating system.

mod families;
mod process;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::api::response::ApiResponse;
use crate::api::response::answer;
use crate::api::uptime::uptime;
use crate::bridge::handle::ServiceHandle;
use carom_model::access::AppName;
use carom_model::access::usage::App;
use carom_net::DropReason;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::bypass::{BypassState, BypassStats};
use carom_telemetry::exposition::{Exposition, MetricKind, MetricLabels};
use carom_telemetry::stats::{CertificateStats, CoreStats, HostListStats, LatencySummary, NodeStats};
use hyper::StatusCode;

/// Content type of the metrics (version 0.0.4 of the format).
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Time within which a core reports its latencies. The histogram omits a slower core.
const REPORT_TIME_MAX: Duration = Duration::from_millis(500);

/// Returns all metrics of the node. Waits up to [`REPORT_TIME_MAX`] for the cores.
pub(in crate::api) async fn page(services: &ServiceHandle) -> ApiResponse {
    let latencies = services.latencies(REPORT_TIME_MAX).await;
    let context = services.context();
    let cores: Vec<&CoreStats> = context.cores.iter().take(latencies.len()).map(|core| &**core).collect();
    let mut out = Exposition::default();
    write_node(&mut out, &context.node);
    write_cores(&mut out, &cores, &latencies);
    write_bypass(&mut out, &context.node, &cores);
    write_lists(&mut out, &context.node);
    write_certificates(&mut out, &context.node);
    let keys = services.keys();
    write_events(&mut out, &context.node);
    write_apps(&mut out, &keys.each().map(|(_, app)| (app.name.as_str(), &**app)).collect());
    write_alarms(&mut out, &context.node);
    process::write(&mut out);
    answer(StatusCode::OK, CONTENT_TYPE, out.into_text())
}

/// Returns the metrics of an idle node with one core on which every optional part is configured: a fleet of two sites,
/// lists of hosts, TLS, apps and bypass. The reference page of the documentation is generated from it.
pub fn sample_page() -> String {
    let (node, core) = (NodeStats::default(), CoreStats::default());
    let lists = [&node.allow_list.configured, &node.block_list.configured];
    for configured in lists.into_iter().chain([&node.fleet.configured, &core.bypass.is_on]) {
        configured.store(true, Ordering::Relaxed);
    }
    let _ = node.fleet.site.names.set(("berlin".to_owned(), "lisbon".to_owned()));
    let _ = node.bypass.set(BypassState::attached("eth0", 2, 1));
    let certificate = CertificateStats { file: "cert.pem".to_owned(), names: Vec::new(), until_ms: 0 };
    node.tls.certificates.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(certificate);
    for configured in [&node.events.is_on, &node.events.webhook.is_on] {
        configured.store(true, Ordering::Relaxed);
    }
    let app = AppName::parse("app").map(App::new).ok();
    let mut out = Exposition::default();
    write_node(&mut out, &node);
    write_cores(&mut out, &[&core], &[Some(LatencySummary::default())]);
    write_bypass(&mut out, &node, &[&core]);
    write_lists(&mut out, &node);
    write_certificates(&mut out, &node);
    write_events(&mut out, &node);
    write_apps(&mut out, &app.iter().map(|app| (app.name.as_str(), app)).collect());
    write_alarms(&mut out, &node);
    process::write(&mut out);
    out.into_text()
}

fn write_node(out: &mut Exposition, node: &NodeStats) {
    out.family("carom_build_info", MetricKind::Gauge, "Version of carom, as a label; the value is always 1.");
    out.sample(&MetricLabels::one("version", env!("CARGO_PKG_VERSION")), 1);
    out.family("carom_uptime_seconds", MetricKind::Gauge, "Time since the node started.");
    out.sample(&MetricLabels::none(), uptime().as_secs());
    for family in families::NODE {
        out.family(family.name, family.kind, family.help);
        out.sample(&MetricLabels::none(), (family.value)(node));
    }
    if node.fleet.configured.load(Ordering::Relaxed) {
        for family in families::FLEET {
            out.family(family.name, family.kind, family.help);
            out.sample(&MetricLabels::none(), (family.value)(&node.fleet));
        }
    }
    if node.fleet.site.names.get().is_some() {
        for family in families::SITE {
            out.family(family.name, family.kind, family.help);
            out.sample(&MetricLabels::none(), (family.value)(&node.fleet.site));
        }
    }
    let help = "Duration of group commits, from the first write of the group until all are on disk.";
    out.family("carom_store_commit_duration_seconds", MetricKind::Histogram, help);
    out.histogram(&MetricLabels::none(), &node.commits.spread());
    out.family(
        "carom_store_sync_duration_seconds",
        MetricKind::Histogram,
        "Duration of the disk syncs of group commits.",
    );
    out.histogram(&MetricLabels::none(), &node.syncs.spread());
}

fn write_cores(out: &mut Exposition, cores: &[&CoreStats], latencies: &[Option<LatencySummary>]) {
    for family in families::CORE {
        out.family(family.name, family.kind, family.help);
        for (number, core) in cores.iter().enumerate() {
            out.sample(&MetricLabels::one("core", number), (family.value)(core));
        }
    }
    let help = "Time from receiving a request to queuing its response, for requests answered from memory.";
    out.family("carom_request_duration_seconds", MetricKind::Histogram, help);
    for (number, latency) in latencies.iter().enumerate() {
        if let Some(latency) = latency {
            out.histogram(&MetricLabels::one("core", number), &latency.spread());
        }
    }
    let help = "Time from receiving a request to queuing its 404 or 503, for codes without link for which the store or Redis was asked. carom_request_duration_seconds leaves these requests out.";
    out.family("carom_absent_duration_seconds", MetricKind::Histogram, help);
    for (number, core) in cores.iter().enumerate() {
        out.histogram(&MetricLabels::one("core", number), &core.absent_waits.spread());
    }
}

/// Writes the metrics of bypass: of the node, if its settings name an interface, and of each core that has it.
fn write_bypass(out: &mut Exposition, node: &NodeStats, cores: &[&CoreStats]) {
    let Some(state) = node.bypass.get() else { return };
    let help = "1 while frames take the way past the kernel, 0 while the kernel serves instead.";
    out.family("carom_bypass_active", MetricKind::Gauge, help);
    out.sample(&MetricLabels::none(), u8::from(state.obstacle().is_none()));
    let is_on = |(_, core): &(usize, &&CoreStats)| core.bypass.is_on.load(Ordering::Relaxed);
    let cores: Vec<(String, &BypassStats)> =
        cores.iter().enumerate().filter(is_on).map(|(number, core)| (number.to_string(), &core.bypass)).collect();
    if cores.is_empty() {
        return;
    }
    for family in families::BYPASS {
        out.family(family.name, family.kind, family.help);
        for (number, bypass) in &cores {
            out.sample(&MetricLabels::one("core", number), (family.value)(bypass));
        }
    }
    let help =
        "Resets sent over bypass: for a segment of an unknown connection, or because carom ended the connection.";
    out.family("carom_bypass_resets_sent_total", MetricKind::Counter, help);
    for (number, bypass) in &cores {
        for (reason, count) in [("unknown_connection", &bypass.resets_unknown), ("abort", &bypass.resets_abort)] {
            out.sample(&MetricLabels::two(("core", number), ("reason", reason)), count.get());
        }
    }
    let help = "Received frames that the TCP/IP stack of bypass dropped as invalid or unexpected.";
    out.family("carom_bypass_dropped_total", MetricKind::Counter, help);
    for (number, bypass) in &cores {
        for (reason, count) in DropReason::ALL.iter().zip(&bypass.dropped) {
            out.sample(&MetricLabels::two(("core", number), ("reason", reason.name())), count.get());
        }
    }
}

/// Writes the metrics of the event log and of its sinks, if the node has them.
fn write_events(out: &mut Exposition, node: &NodeStats) {
    if !node.events.is_on.load(Ordering::Relaxed) {
        return;
    }
    for family in families::EVENTS {
        out.family(family.name, family.kind, family.help);
        out.sample(&MetricLabels::none(), (family.value)(&node.events));
    }
    let sinks = node.events.sinks();
    for family in families::SINK.iter().filter(|_| !sinks.is_empty()) {
        out.family(family.name, family.kind, family.help);
        for (name, sink) in &sinks {
            out.sample(&MetricLabels::one("sink", name), (family.value)(sink));
        }
    }
}

fn write_lists(out: &mut Exposition, node: &NodeStats) {
    let lists = [("allow", &node.allow_list), ("block", &node.block_list)];
    let there: Vec<(&str, &HostListStats)> =
        lists.into_iter().filter(|(_, list)| list.configured.load(Ordering::Relaxed)).collect();
    if there.is_empty() {
        return;
    }
    out.family("carom_host_list_entries", MetricKind::Gauge, "Entries of the allow list and the block list.");
    for (name, list) in &there {
        out.sample(&MetricLabels::two(("list", name), ("part", "static")), list.fixed.get());
        out.sample(&MetricLabels::two(("list", name), ("part", "dynamic")), list.dynamic.get());
    }
    let help = "Time of the last successful read of the list's source; 0 if never.";
    out.family("carom_host_list_read_timestamp_seconds", MetricKind::Gauge, help);
    for (name, list) in &there {
        out.sample(&MetricLabels::one("list", name), seconds(list.read_ms.get()));
    }
}

fn write_certificates(out: &mut Exposition, node: &NodeStats) {
    let certificates = node.tls.certificates.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    if certificates.is_empty() {
        return;
    }
    out.family("carom_tls_certificate_expiry_timestamp_seconds", MetricKind::Gauge, "Expiry of a certificate in use.");
    for certificate in certificates {
        out.sample(&MetricLabels::one("file", &certificate.file), seconds(certificate.until_ms));
    }
    out.family("carom_tls_renewals_total", MetricKind::Counter, "Certificate reloads.");
    out.sample(&MetricLabels::none(), node.tls.renewed.get());
}

fn write_apps(out: &mut Exposition, apps: &BTreeMap<&str, &App>) {
    if apps.is_empty() {
        return;
    }
    for family in families::APP {
        out.family(family.name, family.kind, family.help);
        for (name, app) in apps {
            out.sample(&MetricLabels::one("app", name), (family.value)(app));
        }
    }
}

fn write_alarms(out: &mut Exposition, node: &NodeStats) {
    out.family("carom_alarm_active", MetricKind::Gauge, "1 while the alarm is active, else 0.");
    for alarm in Alarm::ALL {
        out.sample(&MetricLabels::one("alarm", alarm.name()), u64::from(node.alarms.is_on(alarm)));
    }
}

/// Converts milliseconds to seconds, the unit of metrics.
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
