//! Counters that cores and control threads keep and that status reads, without a lock on either side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::alarms::{Alarm, Alarms};
use crate::durations::{DurationStats, Spread};
use crate::pages::Notice;
use crate::pulse::Pulse;
use crate::redirect::Response;

/// A counter with one writer: a plain load and store, no locked instruction. Readers may see it a moment late.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the one owning thread may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Sets it. Only the one owning thread may call this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to it from any thread.
    pub fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one core counts. The core is the one writer of all of it but `refills` and `refill_errors`.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreStats {
    /// The CPU it is pinned to. Written once, before the core starts.
    pub cpu: Counter,
    /// Links in memory.
    pub links: Counter,
    /// Bytes of their codes and targets.
    pub link_bytes: Counter,
    /// Bytes that the map takes for them.
    pub map_bytes: Counter,
    /// Open connections.
    pub connections: Counter,
    /// Connections accepted since the start.
    pub accepted: Counter,
    /// Requests answered with a redirect.
    pub redirects: Counter,
    /// Requests for codes that do not exist or are gone.
    pub misses: Counter,
    /// 1 where it is not known which codes exist nowhere.
    pub in_doubt: Counter,
    /// 1 where the codes of the store should be sent again, because most of those that are known are of removed links.
    pub wants_codes: Counter,
    /// Codes that are remembered because their links were removed while links are loaded.
    pub removed_while_loading: Counter,
    /// Requests for links that could not be read, or not in time: neither a redirect nor a miss.
    pub unavailable: Counter,
    /// Requests that were told nothing, because too much was asked for from there that does not exist.
    pub throttled: Counter,
    /// Connections closed because a PROXY header may not come from there.
    pub untrusted: Counter,
    /// Connections closed as they arrived, because there were too many.
    pub shed: Counter,
    /// Idle connections closed to make room for others.
    pub evicted: Counter,
    /// TLS handshakes that came to an end as they should.
    pub handshakes: Counter,
    /// Those of them that went on with a session of before.
    pub resumptions: Counter,
    /// TLS handshakes that came to nothing.
    pub handshake_failures: Counter,
    /// Look-ups sent to other cores.
    pub forwarded_out: Counter,
    /// Redirects to other cores' links from the core's own copies of them.
    pub hot_hits: Counter,
    /// Unknown codes that were looked up in Redis.
    pub looked_up: Counter,
    /// Codes that were not in memory and were asked of the store.
    pub fetches: Counter,
    /// Redirects whose link was not in memory, but in the store or in Redis.
    pub fetched: Counter,
    /// Look-ups answered for other cores.
    pub forwarded_in: Counter,
    /// Doorbells rung at other cores.
    pub doorbells: Counter,
    /// Requests refused with a 4xx before they reached a handler.
    pub bad_requests: Counter,
    /// Those of them that took too long to come.
    pub timed_out: Counter,
    /// Those of them whose head or body was too long.
    pub too_long: Counter,
    /// Requests driven by the slow way (the API, pages).
    pub handed_over: Counter,
    /// Turns of the core's loop.
    pub turns: Counter,
    /// The longest time that a task (a request that is not a redirect) kept the core at once, microseconds.
    pub task_micros_max: Counter,
    /// Codes left in the queue.
    pub codes_remaining: Counter,
    /// Times that a create had to wait for a fresh code.
    pub code_waits: Counter,
    /// Times that such a wait ended without a code.
    pub code_wait_errors: Counter,
    /// Segments that the replenisher gave to this core. Written by the replenisher.
    pub refills: Counter,
    /// Codes in the segment in use. Written by the replenisher.
    pub segment_len: Counter,
    /// Segments that could not be prepared. Written by the replenisher.
    pub refill_errors: Counter,
}

impl CoreStats {
    /// Counts the response to a request for a short code.
    #[inline]
    pub fn count_response(&self, response: &Response<'_>) {
        match response {
            Response::Redirect(_) => self.redirects.add(1),
            Response::DomainFallback(_)
            | Response::Notice(Notice::NotFound | Notice::Gone | Notice::Blocked | Notice::Misdirected) => {
                self.misses.add(1);
            }
            Response::Notice(Notice::TooMany) => self.throttled.add(1),
            Response::Notice(Notice::Damaged | Notice::Unavailable) => self.unavailable.add(1),
        }
    }
}

/// What the control threads count for the whole node.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Links created and deleted.
    pub store_updates: Counter,
    /// Records read.
    pub store_selects: Counter,
    /// Failed reads and writes.
    pub store_errors: Counter,
    /// Records that could not be decoded.
    pub store_damaged: Counter,
    /// Codes that could not be asked of the store, because too many waited.
    pub fetches_left_out: Counter,
    /// Bytes that links may take in memory; 0 where all are kept.
    pub memory_limit: Counter,
    /// Visits that could not be counted: told by cores that found no room, or not to be kept.
    pub visits_dropped: Counter,
    /// Visits that were counted without the host that sent them, because there was no memory for it.
    pub referrers_dropped: Counter,
    /// What became of the access log.
    pub access_log: AccessLogStats,
    /// What group commits took, from the first decision to the word that they are durable. Written by the writer.
    pub commits: DurationStats,
    /// What their syncs took. Written by the writer.
    pub syncs: DurationStats,
    /// Writes waiting for the writer.
    pub write_queue: Counter,
    /// Requests under way that make many links.
    pub bulks: AtomicUsize,
    /// What the node knows of its fleet.
    pub fleet: FleetStats,
    /// What became of links whose time is over.
    pub expiry: ExpiryStats,
    /// How TLS is spoken.
    pub tls: TlsStats,
    /// The list of hosts that new links may lead to.
    pub allow_list: HostListStats,
    /// The list of hosts that no link leads to.
    pub block_list: HostListStats,
    /// Length of the codes that are issued now, characters.
    pub issuer_length: Counter,
    /// Next counter value of that length.
    pub issuer_current: Counter,
    /// Counter values of that length that are left.
    pub issuer_remaining: Counter,
    /// Times that the issuer failed.
    pub issuer_errors: Counter,
    /// Whether writes are refused at present.
    pub writes_refused: AtomicBool,
    /// Whether all links are in memory.
    pub ready: AtomicBool,
    /// Whether the node is on its way out.
    pub draining: AtomicBool,
    /// What it did in the last seconds.
    pub pulse: Pulse,
    /// What went wrong lately, newest last.
    pub alarms: Alarms,
}

/// What is counted of the access log.
#[derive(Debug, Default)]
pub struct AccessLogStats {
    /// Whether there is one.
    pub is_on: AtomicBool,
    /// Lines that were written. Written by the thread that does.
    pub lines: Counter,
    /// Lines that were not: told by cores that found no room, or not to be written.
    pub dropped: Counter,
}

/// What is counted of links whose time is over.
#[derive(Debug, Default)]
pub struct ExpiryStats {
    /// Links that this node has removed.
    pub expired: Counter,
    /// Links that are to be removed now, about.
    pub due: Counter,
    /// For how long the first of them has waited for that, in milliseconds; 0 where there is none.
    pub late_ms: Counter,
    /// Codes of removed links that were made ready for others. Written by the replenisher.
    pub recycled: Counter,
    /// Those of them that no core has been given yet. Written by the replenisher.
    pub recycled_left: Counter,
}

/// What is known of the certificates in use; none where no TLS is spoken.
#[derive(Debug, Default)]
pub struct TlsStats {
    /// Each of them.
    pub certificates: Mutex<Vec<CertificateStats>>,
    /// Times that new ones came into use since the start.
    pub renewed: Counter,
}

/// A certificate in use.
#[derive(Clone, Debug)]
pub struct CertificateStats {
    /// Where it was read.
    pub file: String,
    /// The names that it is for.
    pub names: Vec<String>,
    /// Until when it holds, in milliseconds since 1970 UTC.
    pub until_ms: u64,
}

/// What is known of a list of hosts.
#[derive(Debug, Default)]
pub struct HostListStats {
    /// Whether there is one.
    pub configured: AtomicBool,
    /// Entries of the settings.
    pub fixed: Counter,
    /// Entries of the dynamic part that hold now.
    pub dynamic: Counter,
    /// When that was last read as it should be, in milliseconds since 1970 UTC; 0 where it never was.
    pub read_ms: Counter,
}

/// What a node counts that shares its code space with others.
#[derive(Debug, Default)]
pub struct FleetStats {
    /// Whether there is a Redis to speak to.
    pub configured: AtomicBool,
    /// Whether the last heartbeat was answered.
    pub connected: AtomicBool,
    /// Questions that got no answer.
    pub errors: Counter,
    /// Codes whose state Redis may not have.
    pub outbox: Counter,
    /// Links that were given up because another node had their codes.
    pub conflicts: Counter,
    /// Issued codes that somebody else had already, so that the next one was tried.
    pub collisions: Counter,
    /// Changes that came through the streams.
    pub followed: Counter,
    /// States that were brought to Redis from the outbox.
    pub delivered: Counter,
    /// Milliseconds from the last change being accepted to its being read here, by the clocks of Redis and this machine.
    pub lag_ms: Counter,
    /// Places in streams that were lost.
    pub gaps: Counter,
    /// Partitions that are still to be compared with Redis.
    pub comparing: Counter,
    /// What the writer was told about other nodes, and has done or left out.
    pub orders_taken: Counter,
    /// Whether the fleet is known to have this node's secret key.
    pub same_key: AtomicBool,
    /// What the writer did not take, so that the streams must be read again.
    pub orders_dropped: Counter,
    /// Unknown codes that were looked up in Redis, and those that were found.
    pub look_ups: Counter,
    /// Unknown codes that were found there.
    pub look_up_hits: Counter,
    /// Unknown codes that were not looked up, because too many were.
    pub look_ups_left_out: Counter,
    /// Times that the counter of codes had been set back.
    pub regressions: Counter,
    /// Who is there, for status.
    pub members: Mutex<Vec<MemberStats>>,
    /// This node's name, and the servers that it speaks to.
    pub about: Mutex<(String, Vec<String>)>,
}

/// What is known of a node of the fleet.
#[derive(Clone, Debug)]
pub struct MemberStats {
    /// Its name.
    pub node: String,
    /// What it tells of itself, as JSON.
    pub about: String,
    /// When its heartbeat was seen to change.
    pub heard: Instant,
    /// Its last heartbeat, in milliseconds since 1970 by the clock of Redis.
    pub beat_ms: u64,
}

impl NodeStats {
    /// Says that a stored record cannot be decoded: counts it, logs it with its key, raises the alarm.
    pub fn report_damaged(&self, key: &[u8], error: &dyn std::fmt::Display) {
        let key = key.escape_ascii();
        self.store_damaged.add_shared(1);
        tracing::error!(%key, %error, "a stored record is damaged");
        self.alarms
            .raise(Alarm::StoreDamaged, format!("the record of {key} is damaged ({error}); see the log for others"));
    }
}

/// Quantiles of one core's latencies, in microseconds, from the receipt of a request to its answer being queued.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LatencySummary {
    /// Requests measured.
    pub count: u64,
    /// Half were faster.
    pub p50: f64,
    /// 80 % were faster.
    pub p80: f64,
    /// 99 % were faster.
    pub p99: f64,
    /// 99.9 % were faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
    /// Each latency that the core tells from others, in nanoseconds, and how many requests had it; the shortest first.
    pub steps: Vec<(u64, u64)>,
}

impl LatencySummary {
    /// All of them by buckets.
    pub fn spread(&self) -> Spread {
        let mut spread = Spread::default();
        self.steps.iter().for_each(|(nanos, count)| spread.add(Duration::from_nanos(*nanos), *count));
        spread
    }
}

/// The present instant in nanoseconds since 1970 UTC: a number that is hardly ever given twice.
pub fn unix_nanos() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The present instant in milliseconds since 1970 UTC.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
