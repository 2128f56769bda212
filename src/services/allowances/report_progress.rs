//! Progress of the reports of granted visits ([`GrantReports`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom_model::replication::Partition;
use carom_model::visits::grants::GrantEpoch;
use carom_store::links::Links;

/// Time after the beginning of an epoch in which a node hears of all live nodes: more than a heartbeat of theirs and one of
/// its own. Redis may have lost their names, too.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Shortest interval between two passes.
const PASS_EVERY: Duration = Duration::from_secs(1);

/// Interval between two passes, as a multiple of the time in which Redis answers the first requests of a pass.
const RESTS: u32 = 10;

/// Time for which the heartbeat says that a visit waited for the report of another node.
const WAITING_FOR: Duration = Duration::from_secs(10);

/// Time for which visits must wait before the log says so: nodes that run report within a few seconds.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// Interval between two log lines about missing reports.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Interval between two looks at what other threads ask.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time after the start in which this thread looks often for the first heartbeat, and the interval between these looks.
const FIRST_LOOKS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_millis(20));

/// The reports of this node, and whether it waits for those of others.
#[derive(Debug)]
pub(super) struct GrantReports {
    /// The last epoch of each partition.
    pub(super) epochs: Vec<GrantEpoch>,
    /// The time since which each of them is the last one.
    pub(super) since: Vec<Instant>,
    /// A number that differs for each request.
    nonce: u64,
    /// The report under way.
    pub(super) pass: Option<ReportPass>,
    /// True if Redis refused a visit because the report of this node is missing, or the last pass was incomplete.
    pub(super) is_needed: bool,
    /// The earliest beginning of the next pass.
    pub(super) next: Instant,
    /// The time at which the totals of all partitions are due; `None` before the first pass.
    pub(super) whole_at: Option<Instant>,
    /// The time until which this node waits for reports of others.
    pub(super) waits_until: Option<Instant>,
    /// The time since which it waits.
    waits_since: Instant,
    /// The time of the last line in the log about a missing report.
    warned: Option<Instant>,
    started: Instant,
}

/// A report under way.
#[derive(Debug)]
pub(super) struct ReportPass {
    /// The partitions that get the totals, each with the epoch of its server.
    pub(super) targets: BTreeMap<Partition, GrantEpoch>,
    /// The key of the last total that was sent.
    pub(super) behind: Option<Vec<u8>>,
    /// True if all partitions get the totals.
    pub(super) is_whole: bool,
}

impl GrantReports {
    /// Returns the reports of a process that has made none yet. A stored epoch that cannot be read counts as unknown.
    pub(super) fn read(links: &Links, now: Instant) -> GrantReports {
        let read = |partition| links.grant_epoch(partition).unwrap_or_default();
        GrantReports {
            epochs: Partition::all().map(read).collect(),
            since: Partition::all().map(|_| now).collect(),
            nonce: getrandom::u64().unwrap_or_default(),
            pass: None,
            is_needed: false,
            next: now,
            whole_at: None,
            waits_until: None,
            waits_since: now,
            warned: None,
            started: now,
        }
    }

    /// Returns the last epoch of a partition.
    pub(super) fn epoch(&self, partition: Partition) -> GrantEpoch {
        self.epochs[partition.index()]
    }

    /// True if this node knows all live nodes of the last epoch of a partition, from a heartbeat that it sent at `heard`. The
    /// first epoch of a Redis is no exception: a node that has just joined may begin it in a Redis that was emptied.
    pub(super) fn is_settled(&self, partition: Partition, heard: Instant) -> bool {
        heard.duration_since(self.since[partition.index()]) >= SETTLE_TIME
    }

    /// Returns a number that differs for each request.
    pub(super) fn next_nonce(&mut self) -> u64 {
        self.nonce = self.nonce.wrapping_add(1);
        self.nonce
    }

    /// Notes that Redis waits for the report of this node.
    pub(super) fn note_needed(&mut self) {
        self.is_needed = true;
    }

    /// Notes that Redis waits for the report of another node. If that takes long, writes a line to the log, at most once a
    /// minute.
    pub(super) fn note_waiting(&mut self, node: &str, now: Instant) {
        if self.waits_until.is_none_or(|until| now >= until) {
            self.waits_since = now;
        }
        self.waits_until = Some(now + WAITING_FOR);
        let is_long = !node.is_empty() && now.duration_since(self.waits_since) >= WARN_AFTER;
        if is_long && self.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY) {
            self.warned = Some(now);
            tracing::warn!(
                node,
                "Redis may have lost visits that it granted, so links with maxVisits return 503 until this node has reported those that it knows of; start the node"
            );
        }
    }

    /// Returns the longest time for which the thread may wait for visits: a report may be under way or come soon, and a node
    /// that stops waits for its grants to be left.
    pub(super) fn longest_wait(&self, now: Instant) -> Duration {
        let (time, every) = FIRST_LOOKS;
        if self.pass.is_some() {
            return Duration::ZERO;
        }
        let is_first = self.whole_at.is_none() && now.duration_since(self.started) < time;
        if is_first { every } else { LOOK_EVERY }
    }

    /// Sets the beginning of the next pass, after one that began at `begun`, and whose first requests Redis had answered by
    /// `now`. Visits wait for these answers, so a Redis of which a part is away is asked less often.
    pub(super) fn rest(&mut self, begun: Instant, now: Instant) {
        self.next = now + PASS_EVERY.max(now.duration_since(begun) * RESTS);
    }

    /// True if a report is to begin now. `is_asked` if another node waits for it.
    pub(super) fn is_due(&self, is_asked: bool, now: Instant) -> bool {
        let is_whole = self.whole_at.is_none_or(|at| now >= at);
        self.pass.is_none() && now >= self.next && (self.is_needed || is_asked || is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_settles_after_heartbeats() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let (partition, now) = (Partition(3), Instant::now());
        let mut reports = GrantReports::read(&links, now);
        for number in [1, 2] {
            reports.epochs[3] = GrantEpoch { number, nonce: 5 };
            assert!(!reports.is_settled(partition, now), "Redis may have lost names before epoch {number}");
            assert!(reports.is_settled(partition, now + SETTLE_TIME));
        }
        reports.since[3] = now + SETTLE_TIME;
        assert!(!reports.is_settled(partition, now + SETTLE_TIME), "another epoch began");
    }

    #[test]
    fn reports_are_due_when_somebody_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let now = Instant::now();
        let mut reports = GrantReports::read(&links, now);
        assert!(reports.is_due(false, now), "nothing was reported yet");
        let soon = now + Duration::from_secs(1);
        (reports.whole_at, reports.next) = (Some(now + Duration::from_secs(60)), soon);
        assert!(!reports.is_due(false, soon) && !reports.is_due(true, now));
        assert!(reports.is_due(true, soon), "another node waits");
        reports.note_needed();
        assert!(reports.is_due(false, soon) && reports.is_due(false, now + Duration::from_secs(60)));
    }

    #[test]
    fn late_answers_delay_the_next_report() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let begun = Instant::now();
        let mut reports = GrantReports::read(&links, begun);
        for (took_ms, pause_ms) in [(2, 1_000), (250, 2_500)] {
            let now = begun + Duration::from_millis(took_ms);
            reports.rest(begun, now);
            let due = now + Duration::from_millis(pause_ms);
            assert!(!reports.is_due(true, due - Duration::from_millis(1)) && reports.is_due(true, due), "{took_ms}");
        }
    }
}
