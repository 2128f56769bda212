//! Progress of the reports of granted visits ([`GrantReports`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carom_model::replication::Partition;
use carom_model::visits::grants::GrantEpoch;
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

/// Time after the beginning of an epoch in which a node hears of all live nodes: more than a heartbeat of theirs and one of
/// its own. Redis may have lost their names, too.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Time after the beginning of an epoch at which a pass looks whether all nodes have reported: the last heartbeat before
/// that came after [`SETTLE_TIME`].
const SETTLE_LOOK: Duration = Duration::from_millis(3_500);

/// Shortest interval between two passes.
const PASS_EVERY: Duration = Duration::from_secs(1);

/// Interval between two passes, as a multiple of the time in which Redis answers the first requests of a pass.
const RESTS: u32 = 10;

/// Time for which the heartbeat says that a visit waited for the report of another node.
const WAITING_FOR: Duration = Duration::from_secs(10);

/// Time for which heartbeats are sent more often after a visit that waited for an epoch to settle. The heartbeat thread looks
/// once a second whether that is so.
const SETTLING_FOR: Duration = Duration::from_millis(1_500);

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
    epochs: Vec<GrantEpoch>,
    /// The time since which each of them is the last one.
    since: Vec<Instant>,
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
    /// The time at which a pass looks whether all nodes have reported, so that later processes need not wait to hear of them;
    /// `None` after that pass.
    pub(super) settles_at: Option<Instant>,
    /// True if totals were sent without the mark that they are complete.
    pub(super) lacks_mark: bool,
    /// The earliest time at which totals of stopped nodes are taken over.
    pub(super) takes_over_at: Instant,
    /// The time until which this node waits for reports of others.
    pub(super) waits_until: Option<Instant>,
    /// The time since which it waits.
    waits_since: Instant,
    /// The time until which visits wait for an epoch to settle.
    settles_until: Option<Instant>,
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
    /// Returns the reports of a process that has made none yet. A stored epoch that cannot be read counts as unknown: this node
    /// then gets visits of its partition only after another report.
    pub(super) fn read(links: &Links, stats: &NodeStats, now: Instant) -> GrantReports {
        let read = |partition| {
            links.grant_epoch(partition).unwrap_or_else(|error| {
                stats.store_errors.add_shared(1);
                tracing::error!(%error, "an epoch of grants cannot be read; this node reports its grants again");
                GrantEpoch::default()
            })
        };
        GrantReports {
            epochs: Partition::all().map(read).collect(),
            since: Partition::all().map(|_| now).collect(),
            nonce: getrandom::u64().unwrap_or_default(),
            pass: None,
            is_needed: false,
            next: now,
            whole_at: None,
            settles_at: Some(now + SETTLE_LOOK),
            lacks_mark: false,
            takes_over_at: now,
            waits_until: None,
            waits_since: now,
            settles_until: None,
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

    /// True if a report of this node may complete the last epoch of a partition although no visit waits. `heard` is as in
    /// [`GrantReports::is_settled`]. A node that knows no other one may be the first to join after Redis lost everything.
    /// Those that hold grants know each other, so it leaves the epochs of links without visits to them.
    pub(super) fn may_complete(&self, partition: Partition, others: &[String], heard: Instant) -> bool {
        !others.is_empty() && self.is_settled(partition, heard)
    }

    /// Notes that another epoch of a partition is the last one of this node from `now` on.
    pub(super) fn begin_epoch(&mut self, partition: Partition, epoch: GrantEpoch, now: Instant) {
        self.epochs[partition.index()] = epoch;
        self.since[partition.index()] = now;
        self.settles_at = Some(now + SETTLE_LOOK);
    }

    /// Notes a pass that looks whether all nodes have reported. Unless all epochs are settled, another one follows.
    pub(super) fn note_look(&mut self, are_settled: bool, now: Instant) {
        if self.settles_at.is_some_and(|at| now >= at) {
            self.settles_at = (!are_settled).then(|| now + SETTLE_LOOK);
        }
    }

    /// Lets a pass begin at `now`, because earlier ones lacked the mark that the totals are complete.
    pub(super) fn mark_at(&mut self, now: Instant) {
        (self.lacks_mark, self.is_needed, self.next) = (false, true, now);
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

    /// True if a visit waited lately until this node has heard of all live nodes. The next heartbeat should then come soon.
    pub(super) fn is_settling(&self, now: Instant) -> bool {
        self.settles_until.is_some_and(|until| now < until)
    }

    /// Notes that Redis waits for the report of another node; without a name, that the epoch is not settled. If that takes
    /// long, writes a line to the log, at most once a minute.
    pub(super) fn note_waiting(&mut self, node: &str, now: Instant) {
        if node.is_empty() {
            self.settles_until = Some(now + SETTLING_FOR);
        }
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

    /// Returns the longest time for which the thread may wait for visits. A report may be under way or come soon, and a
    /// node that stops waits until its grants are left to the others.
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
        let settles = self.settles_at.is_some_and(|at| now >= at);
        self.pass.is_none() && now >= self.next && (self.is_needed || is_asked || is_whole || settles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Returns the reports of a node without links, and the instant at which they began.
    fn new_reports() -> (TempDir, GrantReports, Instant) {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let now = Instant::now();
        (dir, GrantReports::read(&links, &NodeStats::default(), now), now)
    }

    #[test]
    fn every_epoch_settles_after_heartbeats() {
        let (_dir, mut reports, now) = new_reports();
        let partition = Partition(3);
        for number in [1, 2] {
            reports.begin_epoch(partition, GrantEpoch { number, nonce: 5 }, now);
            assert!(!reports.is_settled(partition, now), "Redis may have lost names before epoch {number}");
            assert!(reports.is_settled(partition, now + SETTLE_TIME));
        }
        reports.begin_epoch(partition, GrantEpoch { number: 3, nonce: 5 }, now + SETTLE_TIME);
        assert!(!reports.is_settled(partition, now + SETTLE_TIME), "another epoch began");
    }

    #[test]
    fn node_without_others_completes_no_epoch_unasked() {
        let (_dir, reports, now) = new_reports();
        let (partition, others) = (Partition(3), ["n1".to_owned()]);
        assert!(!reports.may_complete(partition, &[], now + SETTLE_TIME), "it may have heard of no holder yet");
        assert!(!reports.may_complete(partition, &others, now));
        assert!(reports.may_complete(partition, &others, now + SETTLE_TIME));
    }

    #[test]
    fn reports_are_due_when_somebody_waits() {
        let (_dir, mut reports, now) = new_reports();
        assert!(reports.is_due(false, now), "nothing was reported yet");
        let soon = now + Duration::from_secs(1);
        (reports.whole_at, reports.next) = (Some(now + Duration::from_secs(60)), soon);
        assert!(!reports.is_due(false, soon));
        assert!(!reports.is_due(true, now));
        assert!(reports.is_due(false, now + SETTLE_LOOK), "all nodes may have reported by then");
        reports.settles_at = None;
        assert!(!reports.is_due(false, now + SETTLE_LOOK));
        assert!(reports.is_due(true, soon), "another node waits");
        reports.note_needed();
        assert!(reports.is_due(false, soon));
        assert!(reports.is_due(false, now + Duration::from_secs(60)));
    }

    #[test]
    fn looks_are_repeated_until_all_epochs_are_settled() {
        let (_dir, mut reports, now) = new_reports();
        reports.note_look(true, now);
        assert_eq!(reports.settles_at, Some(now + SETTLE_LOOK), "that pass was too early");
        reports.note_look(false, now + SETTLE_LOOK);
        assert_eq!(reports.settles_at, Some(now + SETTLE_LOOK * 2));
        reports.note_look(true, now + SETTLE_LOOK * 2);
        assert_eq!(reports.settles_at, None);
        reports.begin_epoch(Partition(3), GrantEpoch { number: 1, nonce: 5 }, now + SETTLE_LOOK * 3);
        assert_eq!(reports.settles_at, Some(now + SETTLE_LOOK * 4), "another epoch began");
    }

    #[test]
    fn a_report_without_mark_is_repeated_at_once() {
        let (_dir, mut reports, now) = new_reports();
        (reports.whole_at, reports.lacks_mark) = (Some(now + Duration::from_secs(60)), true);
        reports.rest(now, now);
        assert!(!reports.is_due(true, now));
        reports.mark_at(now);
        assert!(reports.is_due(false, now));
        assert!(!reports.lacks_mark);
    }

    #[test]
    fn heartbeats_come_soon_while_an_epoch_settles() {
        let (_dir, mut reports, now) = new_reports();
        reports.note_waiting("n1", now);
        assert!(!reports.is_settling(now), "another node must report, which may take long");
        reports.note_waiting("", now);
        assert!(reports.is_settling(now));
        assert!(reports.is_settling(now + Duration::from_secs(1)), "the heartbeat thread may look a second later");
        assert!(!reports.is_settling(now + SETTLING_FOR));
    }

    #[test]
    fn late_answers_delay_the_next_report() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let begun = Instant::now();
        let mut reports = GrantReports::read(&links, &NodeStats::default(), begun);
        for (took_ms, pause_ms) in [(2, 1_000), (250, 2_500)] {
            let now = begun + Duration::from_millis(took_ms);
            reports.rest(begun, now);
            let due = now + Duration::from_millis(pause_ms);
            assert!(!reports.is_due(true, due - Duration::from_millis(1)), "{took_ms}");
            assert!(reports.is_due(true, due), "{took_ms}");
        }
    }
}
