//! Counters of cores and services, which the status reads without a lock on either side.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::activity::Activity;
use crate::alarms::{Alarm, Alarms};
use crate::bypass::{BypassState, BypassStats};
use crate::counter::Counter;
use crate::durations::{DurationStats, Spread};
use crate::grants::GrantStats;
use crate::sites::SiteStats;

/// The counters of one core, which is the only writer except where a field names another.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreStats {
    /// The CPU that the core is pinned to. Written once, before the core starts.
    pub cpu: Counter,
    /// Links in memory.
    pub links: Counter,
    /// Bytes of the codes and targets of the links in memory.
    pub link_bytes: Counter,
    /// Bytes that the link map occupies in memory.
    pub map_bytes: Counter,
    /// Open connections.
    pub connections: Counter,
    /// Connections accepted since the start.
    pub accepted: Counter,
    /// Requests answered with a redirect.
    pub redirects: Counter,
    /// Requests without a redirect to a link: 404, 410, 421, or the redirect of a domain in their place.
    pub misses: Counter,
    /// 1 while the core cannot rule out any code, because its filter of existing codes is incomplete.
    pub lacks_filter: Counter,
    /// 1 if the core needs the codes of the store again, because most codes of its filter are of removed links.
    pub wants_codes: Counter,
    /// Codes whose links were removed during loading, and which are remembered until it ends.
    pub removed_while_loading: Counter,
    /// Requests for links that are damaged or could not be looked up in time. They count neither as redirects nor as
    /// misses.
    pub unavailable: Counter,
    /// Durations of requests for a code without link, for which the store or Redis was asked, or that came through hyper.
    /// The latencies of the core leave them out.
    pub absent_waits: DurationStats,
    /// Requests refused with 429, because their address missed too often.
    pub throttled: Counter,
    /// Connections closed because their peer may not send a PROXY header.
    pub untrusted: Counter,
    /// Connections closed on arrival, because too many were open.
    pub shed: Counter,
    /// Idle connections closed to make room for others.
    pub connections_evicted: Counter,
    /// Completed TLS handshakes.
    pub handshakes: Counter,
    /// Completed TLS handshakes that resumed an earlier session.
    pub resumptions: Counter,
    /// Failed TLS handshakes.
    pub handshake_failures: Counter,
    /// Look-ups sent to other cores.
    pub forwarded_out: Counter,
    /// Redirects to links of other cores, from the core's own copies of them.
    pub hot_hits: Counter,
    /// Unknown codes that were looked up in Redis.
    pub looked_up: Counter,
    /// Codes that were not in memory and were requested from the store.
    pub fetches: Counter,
    /// Redirects whose link came from the store or from Redis rather than memory.
    pub fetched: Counter,
    /// Look-ups answered for other cores.
    pub forwarded_in: Counter,
    /// Doorbells rung at other cores, to wake them.
    pub doorbells: Counter,
    /// Requests refused with a 4xx before they reached a handler.
    pub bad_requests: Counter,
    /// Requests refused because they took too long to arrive.
    pub timed_out: Counter,
    /// Requests refused because their head or body was too long.
    pub too_long: Counter,
    /// Requests that hyper handled (the API, pages).
    pub handed_over: Counter,
    /// Iterations of the core's loop: several a second even without load, as each tick of its timer is one.
    pub turns: Counter,
    /// True once the core has ended its loop in order.
    pub has_ended: AtomicBool,
    /// Sleeps in which the core gathered requests instead of waking up for the first one.
    pub gathered: Counter,
    /// Longest time for which a task (a request that is not a redirect) occupied the core without a pause, in
    /// microseconds.
    pub task_micros_max: Counter,
    /// Codes left in the queue of the core.
    pub codes_remaining: Counter,
    /// Times that a create had to wait for a fresh code.
    pub code_waits: Counter,
    /// Waits for a fresh code that ended without one.
    pub code_wait_errors: Counter,
    /// Segments that this core received. Written by the replenisher.
    pub refills: Counter,
    /// Codes in the current segment. Written by the replenisher.
    pub segment_len: Counter,
    /// Failures to prepare a segment. Written by the replenisher.
    pub refill_errors: Counter,
    /// The datapath past the kernel's TCP.
    pub bypass: BypassStats,
}

/// The counters of the services, for the whole node.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Links created and deleted.
    pub store_updates: Counter,
    /// Links created with generated codes, also on other nodes if this node stores their links.
    pub links_issued: Counter,
    /// Records read.
    pub store_selects: Counter,
    /// Failed reads and writes.
    pub store_errors: Counter,
    /// Records that could not be decoded.
    pub store_damaged: Counter,
    /// Records that only a later version can decode, each time one is loaded or fetched.
    pub store_newer: Counter,
    /// Codes that were not requested from the store, because too many requests waited.
    pub fetches_left_out: Counter,
    /// Upper limit of the memory of links, in bytes; 0 without a limit.
    pub memory_limit: Counter,
    /// Visits that were not counted: their ring was full, or they could not be stored.
    pub visits_dropped: Counter,
    /// Visits counted without their referring host, for lack of memory.
    pub referrers_dropped: Counter,
    /// The counters of the access log.
    pub access_log: AccessLogStats,
    /// Counts of the visit log.
    pub visit_log: VisitLogStats,
    /// The event log and its sinks.
    pub events: EventStats,
    /// Durations of group commits, from the first decision until they are durable. Written by the writer.
    pub commits: DurationStats,
    /// Durations of the syncs of group commits. Written by the writer.
    pub syncs: DurationStats,
    /// Writes in the present commit; 0 between commits. Orders that still wait in the queue are not counted.
    pub write_queue: Counter,
    /// Requests in progress that create many links.
    pub bulks: AtomicUsize,
    /// The replication state of the node.
    pub fleet: FleetStats,
    /// The counters of expired links.
    pub expiry: ExpiryStats,
    /// The certificates in use.
    pub tls: TlsStats,
    /// The data directory.
    pub data_dir: DataDirStats,
    /// Kernel bypass; `None` if the settings name no interface. Written once, before the cores start.
    pub bypass: OnceLock<BypassState>,
    /// The state of the allow list of destination hosts.
    pub allow_list: HostListStats,
    /// The state of the block list of destination hosts.
    pub block_list: HostListStats,
    /// The time at which the destination rules were saved that apply, in milliseconds since 1970 UTC; 0 if the settings apply.
    pub rules_saved_ms: Counter,
    /// Length of the codes that are issued now, in characters.
    pub issuer_length: Counter,
    /// Next counter value of the codes that are issued now.
    pub issuer_current: Counter,
    /// Remaining counter values of the codes that are issued now.
    pub issuer_remaining: Counter,
    /// Failures of the issuer.
    pub issuer_errors: Counter,
    /// True while writes are refused.
    pub writes_refused: AtomicBool,
    /// True once all links are in memory. See [`NodeStats::is_ready`].
    pub ready: AtomicBool,
    /// True while the node drains before its end.
    pub draining: AtomicBool,
    /// The activity of the last seconds.
    pub activity: Activity,
    /// The alarms of the node, newest last.
    pub alarms: Alarms,
}

/// The counters of the access log.
#[derive(Debug, Default)]
pub struct AccessLogStats {
    /// True if the access log is enabled.
    pub is_on: AtomicBool,
    /// Lines written. Written by the writer of the access log.
    pub lines: Counter,
    /// Lines dropped: their ring was full, or they could not be written.
    pub dropped: Counter,
}

/// The counters of the visit log.
#[derive(Debug, Default)]
pub struct VisitLogStats {
    /// Visits written. Written by the log's thread.
    pub visits: Counter,
    /// Visits dropped: their ring was full, or they could not be written.
    pub dropped: Counter,
    /// Bytes of the log on disk.
    pub bytes: Counter,
    /// True once the log is shared with the other nodes of a fleet.
    pub is_shared: AtomicBool,
    /// Visits of other nodes that were written. Written by the log's thread.
    pub received: Counter,
    /// Blocks of this node that Redis has received since the start. Written by the exchange.
    pub published: Counter,
    /// Age of the oldest block of this node that Redis lacks, in milliseconds; 0 if it has all.
    pub lag_ms: Counter,
    /// Spans of time in which visits of other nodes may be missing.
    pub gaps: Counter,
    /// Blocks of other nodes that could not be read.
    pub unread: Counter,
    /// The logs of all nodes, for the status.
    pub origins: Mutex<Vec<LogOriginStats>>,
}

/// The log of a node, as far as its visits are in the log of this one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogOriginStats {
    /// The identity of the log.
    pub origin: String,
    /// The name of the node.
    pub node: String,
    /// The number of the last block that is here.
    pub logged: u64,
    /// The number of the last block that any node is known to have.
    pub published: u64,
}

/// The counters of the event log.
#[derive(Debug, Default)]
pub struct EventStats {
    /// True if the node keeps an event log.
    pub is_on: AtomicBool,
    /// The number of the last event.
    pub last: Counter,
    /// Bytes of the log on disk.
    pub bytes: Counter,
    /// Visits that could not be added to the log.
    pub dropped: Counter,
    /// Counts of the sink that posts to a webhook.
    pub webhook: SinkStats,
    /// The Redis stream.
    pub redis: SinkStats,
    /// The exchange of RabbitMQ.
    pub rabbitmq: SinkStats,
    /// The Mercure hub.
    pub mercure: SinkStats,
}

impl EventStats {
    /// Returns the sinks that are configured, by name.
    pub fn sinks(&self) -> Vec<(&'static str, &SinkStats)> {
        let all = [
            ("mercure", &self.mercure),
            ("rabbitmq", &self.rabbitmq),
            ("redis", &self.redis),
            ("webhook", &self.webhook),
        ];
        all.into_iter().filter(|(_, sink)| sink.is_on.load(Ordering::Relaxed)).collect()
    }
}

/// The counters of a sink. Written by the thread of the sink.
#[derive(Debug, Default)]
pub struct SinkStats {
    /// True if the sink is configured.
    pub is_on: AtomicBool,
    /// Events that wait for the sink.
    pub lag: Counter,
    /// Events delivered since the start. One that was sent twice counts twice.
    pub delivered: Counter,
    /// Attempts that failed.
    pub failed: Counter,
    /// Events that became dead letters.
    pub dead: Counter,
    /// Events that were removed before the sink accepted them.
    pub lost: Counter,
}

/// The counters of expired links.
#[derive(Debug, Default)]
pub struct ExpiryStats {
    /// Links that this node has removed.
    pub expired: Counter,
    /// Approximate number of links that are due for removal now.
    pub due: Counter,
    /// Lag of the removals: time since the first of them became due, in milliseconds; 0 if none is due.
    pub late_ms: Counter,
    /// Codes of removed links that were prepared for reuse. Written by the replenisher.
    pub recycled: Counter,
    /// Codes prepared for reuse that no core has received yet. Written by the replenisher.
    pub recycled_left: Counter,
    /// The nodes of the fleet for which codes wait before they are recycled. Written by the heartbeat thread.
    pub recycling_waits_for: Mutex<Vec<String>>,
}

/// The state of the data directory. Written by the thread that looks at it every few seconds.
#[derive(Debug, Default)]
pub struct DataDirStats {
    /// Absolute path; set once at the start.
    pub path: OnceLock<PathBuf>,
    /// Bytes of its disk that are free for the node; 0 before the first look.
    pub free_bytes: Counter,
    /// Size of its disk in bytes; 0 before the first look.
    pub size_bytes: Counter,
    /// The state that the last complete backup contains, in milliseconds since 1970 UTC; 0 if there was no backup.
    pub last_backup_ms: Counter,
}

/// The certificates in use; empty without TLS.
#[derive(Debug, Default)]
pub struct TlsStats {
    /// Every certificate in use.
    pub certificates: Mutex<Vec<CertificateStats>>,
    /// Certificate renewals since the start.
    pub renewed: Counter,
}

/// A certificate in use.
#[derive(Clone, Debug)]
pub struct CertificateStats {
    /// The file of the certificate.
    pub file: String,
    /// The names that the certificate is for.
    pub names: Vec<String>,
    /// The end of its validity, in milliseconds since 1970 UTC.
    pub until_ms: u64,
}

/// The state of a list of hosts.
#[derive(Debug, Default)]
pub struct HostListStats {
    /// True if the list is configured.
    pub configured: AtomicBool,
    /// Entries from the settings.
    pub fixed: Counter,
    /// Valid entries of the dynamic part.
    pub dynamic: Counter,
    /// The last successful read of the dynamic part, in milliseconds since 1970 UTC; 0 before the first.
    pub read_ms: Counter,
}

/// The counters of a node that shares its code space with others.
#[derive(Debug, Default)]
pub struct FleetStats {
    /// True if Redis is configured.
    pub configured: AtomicBool,
    /// True if Redis answered the last heartbeat.
    pub connected: AtomicBool,
    /// Requests to Redis without an answer.
    pub errors: Counter,
    /// The instant since boot at which Redis last rejected a command, in milliseconds; 0 before the first time.
    pub refused_ms: AtomicU64,
    /// Outbox: codes whose state Redis may not have.
    pub outbox: Counter,
    /// Codes of the outbox whose state Redis has not accepted. Written before the clients hear of their changes.
    pub undelivered: Counter,
    /// States that Redis has, and that this node stores for some seconds longer, in a shared home of links.
    pub settling: Counter,
    /// Links that this node gave up, because another node had claimed their codes.
    pub conflicts: Counter,
    /// Issued codes that another node had already claimed, so that the next one was tried.
    pub collisions: Counter,
    /// Changes received through the streams.
    pub followed: Counter,
    /// States delivered to Redis from the outbox.
    pub delivered: Counter,
    /// Replication lag, from the acceptance of the last change to its arrival here, in milliseconds, by the clocks of
    /// Redis and this machine.
    pub lag_ms: Counter,
    /// Median round trip of the last heartbeats in microseconds; 0 before the first.
    pub round_trip_us: Counter,
    /// Positions in streams that were lost.
    pub gaps: Counter,
    /// Partitions that remain to be compared with Redis.
    pub comparing: Counter,
    /// Changes of other nodes that the writer has processed, applied or not.
    pub orders_taken: Counter,
    /// True if the fleet is known to have the code secret of this node.
    pub same_code_secret: AtomicBool,
    /// Changes of other nodes that the writer refused, so that the streams must be read again.
    pub orders_dropped: Counter,
    /// Unknown codes that were looked up in Redis.
    pub look_ups: Counter,
    /// Unknown codes that Redis had.
    pub look_up_hits: Counter,
    /// Unknown codes that were not looked up, because too many were.
    pub look_ups_left_out: Counter,
    /// Times that the code counter of the fleet had gone backwards.
    pub regressions: Counter,
    /// Codes with a state that only a later version can decode. Written by the writer.
    pub unread: Counter,
    /// The format that this node writes: the newest that all live nodes read; 0 before the first heartbeat.
    pub format: Counter,
    /// The shortest retention of the nodes that count, in milliseconds; 0 if Redis keeps all states forever. Written by
    /// the heartbeat thread, like the next four.
    pub retention_ms: Counter,
    /// True if a state may have expired in Redis, also before all nodes kept states forever.
    pub may_have_expired: AtomicBool,
    /// The time for which this node may lack changes, in milliseconds by the clock of Redis.
    pub unfollowed_ms: Counter,
    /// True if that is more than half the retention, so that the node refuses writes.
    pub is_behind: AtomicBool,
    /// True if only a copy of another node can help.
    pub needs_copy: AtomicBool,
    /// True if another process has the name of this node, and this one refuses writes. Written by the heartbeat thread.
    pub gives_way: AtomicBool,
    /// True if the fleet recycles the codes of expired links. Set at the start.
    pub recycles: AtomicBool,
    /// The time for which expired links are kept then, in milliseconds. Set at the start.
    pub keep_expired_ms: Counter,
    /// Origins whose visit counts have been missing here for a minute or longer.
    pub visits_missing: Counter,
    /// Age of the oldest visit counts of this node that it could not send, in milliseconds; 0 if it can.
    pub visits_unsent_ms: Counter,
    /// The origins of visit counts, for the status.
    pub visits: Mutex<Vec<VisitOriginStats>>,
    /// Granted visits of limited links, for the threads of this node.
    pub grants: GrantStats,
    /// The sites of the fleet. Written by the relay thread.
    pub site: SiteStats,
    /// The nodes of the fleet, for the status.
    pub members: Mutex<Vec<MemberStats>>,
    /// The names of all nodes that this node knows, also of those whose heartbeats Redis has lost. They are on disk. Written by
    /// the heartbeat thread.
    pub known: Mutex<Vec<String>>,
    /// True once the cores have every change that was in the streams at the start, or the node does not wait for that.
    pub has_caught_up: AtomicBool,
    /// True once the node has exchanged the API keys with Redis since its start and every core has the result, or the node
    /// does not wait for that.
    pub has_keys: AtomicBool,
    /// True once the node has exchanged the saved destination rules with Redis since its start and every core has the
    /// result, or the node does not wait for that.
    pub has_rules: AtomicBool,
    /// The name of this node, and the addresses of its Redis servers.
    pub about: Mutex<(String, Vec<String>)>,
}

impl FleetStats {
    /// True if this node may exchange keys or rules with Redis, because Redis is known to be that of its fleet. Otherwise sets
    /// `has_exchanged` if the node no longer waits for missed changes: Redis does not answer.
    pub fn may_exchange(&self, has_exchanged: &AtomicBool) -> bool {
        let may = self.same_code_secret.load(Ordering::Acquire);
        if !may && self.has_caught_up.load(Ordering::Acquire) {
            has_exchanged.store(true, Ordering::Release);
        }
        may
    }

    /// Lets the node become ready without the changes, keys and rules that it has missed.
    pub fn end_waits(&self) {
        for has_it in [&self.has_caught_up, &self.has_keys, &self.has_rules] {
            has_it.store(true, Ordering::Release);
        }
    }
}

/// An origin of visit counts: a node, as far as its counts are known here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisitOriginStats {
    /// The identity of the origin.
    pub origin: String,
    /// The name of the node.
    pub node: String,
    /// The number of the last batch that counts here.
    pub counted: u64,
    /// The number of the last batch that any node is known to have.
    pub published: u64,
    /// The reason why batches in between do not count, so that totals lack visits, and since when; `None` if they do.
    pub lack: Option<(&'static str, Instant)>,
}

/// The last known state of a node of the fleet.
#[derive(Clone, Debug)]
pub struct MemberStats {
    /// The name of the node.
    pub node: String,
    /// The node's own description, as JSON.
    pub about: String,
    /// The instant at which this node last saw the heartbeat change.
    pub heard: Instant,
    /// The last heartbeat of the node, in milliseconds since 1970 UTC by the clock of Redis.
    pub beat_ms: u64,
}

impl NodeStats {
    /// True if clients should use this node: it has its links, and in a fleet the changes, API keys and destination rules that
    /// it had missed, and does not drain.
    pub fn is_ready(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let FleetStats { configured, has_caught_up, has_keys, has_rules, .. } = &self.fleet;
        let has_missed = || [has_caught_up, has_keys, has_rules].into_iter().all(is);
        is(&self.ready) && !is(&self.draining) && (!is(configured) || has_missed())
    }

    /// Reports a stored record that cannot be decoded: counts it, logs it with its key, raises the alarm.
    pub fn report_damaged(&self, key: &[u8], error: &dyn std::fmt::Display) {
        let key = key.escape_ascii();
        self.store_damaged.add_shared(1);
        tracing::error!(%key, %error, "a stored record is damaged");
        self.alarms
            .raise(Alarm::StoreDamaged, format!("the record of {key} is damaged ({error}); see the log for others"));
    }

    /// Reports a stored record that only a later version can decode: counts it, and raises the alarm for the first one.
    pub fn report_newer(&self, key: &[u8], error: &dyn std::fmt::Display) {
        let is_first = self.store_newer.get() == 0;
        self.store_newer.add_shared(1);
        if is_first {
            let key = key.escape_ascii();
            let text = format!("the record of {key}, and perhaps others, get 503 until this node is upgraded: {error}");
            self.alarms.raise(Alarm::NewerFormat, text);
        }
    }
}

/// Latency quantiles of one core, in microseconds, from the receipt of a request to the queueing of its response.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LatencySummary {
    /// Number of measured requests.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// The 80th percentile.
    pub p80: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
    /// Distinct latencies of the histogram in nanoseconds, shortest first, each with its number of requests.
    pub steps: Vec<(u64, u64)>,
}

impl LatencySummary {
    /// Returns all latencies by bucket.
    pub fn spread(&self) -> Spread {
        let mut spread = Spread::default();
        self.steps.iter().for_each(|(nanos, count)| spread.add(Duration::from_nanos(*nanos), *count));
        spread
    }
}
