//! Retention in Redis: tells whether this node has every state that Redis has expired, so that it is current.
//!
//! The rule is [`carom_model::replication::retention`]. The heartbeat thread measures the lag, since it hears the clock of
//! Redis, and stores how far the node has followed. The other threads read the result.
//!
//! A comparison offers the states that have changed on this node within the retention. The store has a log of changed
//! codes, and this module notes the positions of that log over time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bridge::fleet_view::since_boot;
use carom_model::replication::formats;
use carom_model::replication::members::NodeId;
use carom_model::replication::retention::{FollowedSpan, millis};
use carom_store::links::{Batch, Links, LogPosition, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// Longest time between two records of how far the node has followed.
const WRITE_DOWN_EVERY: Duration = Duration::from_secs(10);

/// Number of noted positions of the change log within the retention.
const LOG_TIMES: u64 = 64;

/// Reason that clients get whose request a node that is behind refuses.
pub(super) const BEHIND: &str =
    "this node has missed changes of the fleet; it accepts writes once it has caught up (alarm fleet_behind)";

/// The retention of a node, as its last heartbeat says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeRetention {
    pub kept: Duration,
    /// The time of the heartbeat, in milliseconds by the clock of Redis; `u64::MAX` if unknown.
    pub beat_ms: u64,
}

/// The status of this node as a replica: current, behind, or in need of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplicaStatus {
    /// The shortest retention of the nodes that count; `None` if all keep states forever.
    pub retention: Option<Duration>,
    /// The time for which this node may lack changes, in milliseconds by the clock of Redis.
    pub lag_ms: u64,
    /// True if Redis may no longer have these changes.
    pub is_behind: bool,
    /// True if only a copy of another node can help.
    pub needs_copy: bool,
    /// True if Redis is the shared home of the links, which must not expire.
    pub is_home: bool,
}

impl ReplicaStatus {
    /// Describes the problem of a node that is behind, and its remedy. It may await an upgrade to read some changes.
    pub(super) fn describe(&self, awaits_upgrade: bool) -> String {
        if self.is_home {
            return "another node has a fleet.retention, or links have expired in Redis, which alone stores them (links.home = \"shared\"); set fleet.retention = \"forever\" on all nodes, and if this alarm stays, move the links to another fleet.prefix, as the runbook describes".to_owned();
        }
        let remedy = if self.needs_copy {
            "Redis no longer has all of them; stop this node, move its data away, and copy a current node with `carom join --from URL`"
        } else if awaits_upgrade {
            "upgrade this node, which cannot read all changes"
        } else {
            "check its connection to Redis, from which it then reads what it missed"
        };
        let lag = readable::duration(self.lag_ms / 1_000);
        let kept = readable::duration(self.retention.unwrap_or_default().as_secs());
        format!(
            "this node refuses writes, because it may lack the changes of {lag}, more than half of fleet.retention ({kept}); {remedy}"
        )
    }
}

/// The retention as this node measures it. Shared by the threads of the fleet.
#[derive(Debug)]
pub struct Retention {
    /// The setting; `None` for forever.
    own: Option<Duration>,
    /// The shortest retention of the nodes that count, in milliseconds; 0 if all keep states forever.
    shortest_ms: AtomicU64,
    /// The time for which this node lets Redis keep states, in milliseconds: the longest of the retentions of all live nodes;
    /// 0 for forever.
    state_ms: Arc<AtomicU64>,
    measured: Mutex<Measured>,
}

/// The measurements of the heartbeat thread.
#[derive(Debug)]
struct Measured {
    span: FollowedSpan,
    /// A time of the clock of Redis in milliseconds since 1970, and an instant since boot that was not earlier.
    clock: Option<(u64, Duration)>,
    /// The last instant since boot that has counted as followed.
    followed: Option<Duration>,
    /// The noted positions of the change log, by the clock of Redis.
    log_times: Vec<(u64, LogPosition)>,
    /// The retentions of the other live nodes, `None` for forever, and the last instant since boot at which each was heard.
    live: BTreeMap<NodeId, (Option<Duration>, Duration)>,
    /// The last record on disk, and the instant since boot at which it was written.
    written: (FollowedSpan, Duration),
}

impl Measured {
    /// Returns the time by the clock of Redis or, before the first heartbeat, of this machine.
    fn now_ms(&self) -> u64 {
        self.clock.map_or_else(unix_ms, |(at_ms, read)| at_ms + millis(since_boot().saturating_sub(read)))
    }

    /// Records a time of the clock of Redis, which was read at `now`. All streams were followed up to the instant
    /// `followed`, unless that is `None`.
    fn hear_clock(&mut self, clock_ms: u64, now: Duration, followed: Option<Duration>) {
        let before = self.clock.replace((clock_ms, now));
        // A new time of the clock must not move a recorded instant: what came after it may have expired by the new time.
        let Some(followed) = followed.filter(|at| self.followed.is_none_or(|last| *at > last)) else { return };
        self.followed = Some(followed);
        let until_ms = time_of(followed, (clock_ms, now));
        // The clock may have been set since the last look, before or after the instant.
        self.span.advance(before.map_or(until_ms, |before| until_ms.min(time_of(followed, before))));
    }

    /// Records the retentions of the other live nodes. A node counts for ten minutes more if Redis has lost its heartbeat.
    fn hear_live(&mut self, nodes: Vec<(NodeId, Option<Duration>)>, now: Duration) {
        self.live.extend(nodes.into_iter().map(|(node, kept)| (node, (kept, now))));
        self.live.retain(|_, (_, heard)| now.saturating_sub(*heard) < formats::COUNTS_FOR);
    }

    /// Returns the longest of the retentions of this node and of the other live ones; `None` if one of them is forever.
    fn longest(&self, own: Option<Duration>) -> Option<Duration> {
        self.live.values().try_fold(own?, |longest, (kept, _)| Some(longest.max((*kept)?)))
    }
}

/// Returns the time at an instant since boot, given the time that a clock had at another one.
fn time_of(at: Duration, (clock_ms, read): (u64, Duration)) -> u64 {
    clock_ms.saturating_add(millis(at.saturating_sub(read))).saturating_sub(millis(read.saturating_sub(at)))
}

impl Retention {
    /// Returns the retention of a node with this setting, with what its store has recorded.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub fn new(own: Option<Duration>, links: &Links) -> Result<Retention, StoreError> {
        let (span, log_times) = (links.followed()?, links.log_times()?);
        Ok(Retention {
            own,
            shortest_ms: AtomicU64::new(own.map_or(0, millis)),
            state_ms: Arc::default(),
            measured: Mutex::new(Measured {
                span,
                clock: None,
                followed: None,
                log_times,
                live: BTreeMap::new(),
                written: (span, since_boot()),
            }),
        })
    }

    /// Returns the time for which Redis keeps states, for the connections to Redis: in milliseconds, 0 for forever.
    pub(super) fn state_ms(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.state_ms)
    }

    /// Returns the time for which this node lets Redis keep states and entries; `None` for forever.
    pub(super) fn kept(&self) -> Option<Duration> {
        Some(self.state_ms.load(Ordering::Acquire)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// True if a state that this node has may have expired in Redis, also before all nodes kept states forever.
    pub(super) fn may_have_expired(&self) -> bool {
        self.shortest_ms.load(Ordering::Acquire) > 0 || self.measured().span.expiring_ms > 0
    }

    /// Returns the time since which states expire in Redis, as far as is known, and true if this node lets them expire from
    /// now on, given the format that it writes.
    pub(super) fn expiring(&self, format: u64) -> (u64, bool) {
        let measured = self.measured();
        let expires = measured.longest(self.own).is_some() && format >= u64::from(formats::RETENTION);
        (measured.span.expiring_ms, expires)
    }

    /// Returns the present time by the clock of this machine or by that of Redis, whichever is earlier, in milliseconds since
    /// 1970 UTC. A node whose clock is ahead does nothing too early by it.
    pub(super) fn earlier_now_ms(&self) -> u64 {
        unix_ms().min(self.measured().now_ms())
    }

    /// Returns a position of the change log before all changes within the retention; `None` if all states are to be
    /// offered.
    pub(super) fn recent_changes(&self) -> Option<LogPosition> {
        let kept = self.kept()?;
        let measured = self.measured();
        let oldest_ms = measured.now_ms().saturating_sub(millis(kept));
        latest(&measured.log_times, oldest_ms).map(|(_, position)| position)
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shortest(&self) -> Option<Duration> {
        Some(self.shortest_ms.load(Ordering::Acquire)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Records the answer to a heartbeat: the retentions of all nodes, the time since which states expire, and the time by
    /// the clock of Redis. All streams were followed up to the instant `followed`, unless that is `None`. The retention of
    /// another node counts until this node has all states that the other one has written.
    pub(super) fn hear(
        &self,
        nodes: &[NodeRetention],
        (expiring_ms, beat_ms): (u64, Option<u64>),
        followed: Option<Duration>,
    ) {
        let now = since_boot();
        let mut measured = self.measured();
        let counting = nodes.iter().filter(|node| !measured.span.has_all_of(node.beat_ms, node.kept));
        let shortest = self.own.into_iter().chain(counting.map(|node| node.kept)).min();
        self.shortest_ms.store(shortest.map_or(0, millis), Ordering::Release);
        let retention = shortest.unwrap_or(Duration::MAX);
        if let Some(beat_ms) = beat_ms {
            // Before `hear_expiring`, whose time another node may have corrected already.
            measured.span.hear_clock(beat_ms, retention);
            measured.hear_clock(beat_ms, now, followed);
        }
        measured.span.hear_expiring(expiring_ms);
    }

    /// Lets states expire from now on, or no longer, once it is known which format all nodes read. The longest retention of
    /// this node and of the other `live` ones applies, so that no state expires that one of them is set to keep.
    pub(super) fn agree(&self, format: u64, live: Vec<(NodeId, Option<Duration>)>) {
        let longest = {
            let mut measured = self.measured();
            measured.hear_live(live, since_boot());
            measured.longest(self.own)
        };
        let (expiring_ms, expires) = self.expiring(format);
        let state_ms = longest.filter(|_| expires && expiring_ms > 0).map_or(0, millis);
        self.state_ms.store(state_ms, Ordering::Release);
    }

    /// Returns the status of a node whose links have a shared home. It is behind as soon as states may expire there.
    pub(super) fn shared_home_status(&self) -> ReplicaStatus {
        let (retention, is_behind) = (self.shortest(), self.may_have_expired());
        ReplicaStatus { retention, lag_ms: 0, is_behind, needs_copy: false, is_home: true }
    }

    /// Returns the status of a node that stores all links. It `compares` partitions with Redis, or waits for that.
    pub(super) fn status(&self, compares: bool) -> ReplicaStatus {
        let shortest = self.shortest();
        let (now_ms, span) = {
            let measured = self.measured();
            (measured.now_ms(), measured.span)
        };
        let Some(retention) = shortest else {
            return ReplicaStatus { retention: None, lag_ms: 0, is_behind: false, needs_copy: false, is_home: false };
        };
        let is_behind = !span.is_current(now_ms, retention);
        let needs_copy = is_behind && (compares || !span.has_had_all(retention));
        let lag_ms = span.lag_ms(now_ms, retention);
        ReplicaStatus { retention: shortest, lag_ms, is_behind, needs_copy, is_home: false }
    }

    /// Adds to a batch how far the node has followed, and the position of the change log, if that is due.
    pub(super) fn keep(&self, links: &Links, batch: &mut Batch) {
        // Also while states are kept forever, since an operator may set a retention later.
        let every = self.shortest().map_or(WRITE_DOWN_EVERY, |shortest| WRITE_DOWN_EVERY.min(shortest / 16));
        let now = since_boot();
        let mut measured = self.measured();
        let (last, at) = measured.written;
        let is_due = now.saturating_sub(at) >= every;
        if measured.span != last && (is_due || measured.span.expiring_ms != last.expiring_ms || last.until_ms == 0) {
            batch.set_followed(&measured.span);
            measured.written = (measured.span, now);
        }
        let Some(kept) = self.kept() else { return };
        let now_ms = measured.now_ms();
        // If the clock was set back, positions with later times would keep new ones from being noted.
        retain(&mut measured.log_times, batch, |at_ms| at_ms <= now_ms);
        let noted_ms = measured.log_times.iter().map(|(at_ms, _)| *at_ms).max().unwrap_or(0);
        if now_ms.saturating_sub(noted_ms) < millis(kept) / LOG_TIMES {
            return;
        }
        let position = links.log_position();
        batch.set_log_time(now_ms, position);
        measured.log_times.push((now_ms, position));
        let first_ms = latest(&measured.log_times, now_ms.saturating_sub(millis(kept))).map_or(0, |(at_ms, _)| at_ms);
        retain(&mut measured.log_times, batch, |at_ms| at_ms >= first_ms);
    }
}

/// Removes the noted positions whose times are not needed, also on disk.
fn retain(log_times: &mut Vec<(u64, LogPosition)>, batch: &mut Batch, is_needed: impl Fn(u64) -> bool) {
    for (at_ms, _) in log_times.extract_if(.., |(at_ms, _)| !is_needed(*at_ms)) {
        batch.remove_log_time(at_ms);
    }
}

/// Returns the latest noted position at or before a time.
fn latest(log_times: &[(u64, LogPosition)], at_ms: u64) -> Option<(u64, LogPosition)> {
    log_times.iter().copied().filter(|(noted_ms, _)| *noted_ms <= at_ms).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_position_before_a_time_counts() {
        let times = [(50, 5), (10, 1), (90, 9)].map(|(at_ms, position)| (at_ms, LogPosition(position)));
        assert_eq!(latest(&times, 9), None, "all states are offered");
        assert_eq!(latest(&times, 10), Some((10, LogPosition(1))));
        assert_eq!(latest(&times, 89), Some((50, LogPosition(5))));
    }

    #[test]
    fn earlier_of_both_clocks_counts() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(None, &links).unwrap();
        let hour_ms = 3_600_000;
        let begun_ms = unix_ms();
        assert!(retention.earlier_now_ms() >= begun_ms, "the clock of Redis is not known");
        for (ahead_ms, behind_ms) in [(hour_ms, 0), (0, hour_ms)] {
            retention.measured().clock = Some((begun_ms + ahead_ms - behind_ms, since_boot()));
            let now_ms = retention.earlier_now_ms() + behind_ms;
            assert!((begun_ms..begun_ms + hour_ms / 2).contains(&now_ms), "{now_ms} {begun_ms}");
        }
    }

    #[test]
    fn positions_are_noted_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(Some(Duration::from_millis(640)), &links).unwrap();
        assert_eq!(retention.recent_changes(), None, "nothing expires yet");
        let keep = |at_ms: u64| {
            retention.measured().clock = Some((at_ms, since_boot()));
            let mut batch = links.batch();
            retention.keep(&links, &mut batch);
            if !batch.is_empty() {
                links.commit(batch).unwrap();
            }
            links.log_times().unwrap().len()
        };
        assert_eq!(keep(1_000_000), 0);
        retention.measured().span.hear_expiring(1_000_000);
        retention.agree(u64::from(formats::RETENTION) - 1, Vec::new());
        assert_eq!(retention.kept(), None, "an older node would not ask its own store");
        retention.agree(u64::from(formats::RETENTION), Vec::new());
        assert_eq!(retention.kept(), Some(Duration::from_millis(640)));
        assert_eq!(keep(1_000_000), 1);
        assert_eq!(retention.recent_changes(), None, "the log does not reach back that far");
        assert_eq!(keep(1_100_000), 2);
        assert_eq!(retention.recent_changes(), Some(links.log_position()));
        assert_eq!(keep(1_200_000), 2, "only one position before the retention is needed");
        assert_eq!(Retention::new(None, &links).unwrap().measured().log_times.len(), 2, "they outlive the process");
        assert_eq!(keep(900_000), 1, "the clock was set back");
        assert_eq!(keep(900_001), 1, "one position is enough");
    }

    #[test]
    fn the_longest_retention_of_live_nodes_applies() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let days = |days: u64| Duration::from_secs(days * 86_400);
        let retention = Retention::new(Some(days(7)), &links).unwrap();
        let format = u64::from(formats::RETENTION);
        let kept = |others: &[(&str, Option<Duration>)]| {
            retention.agree(format, others.iter().map(|(node, kept)| ((*node).to_owned(), *kept)).collect());
            retention.kept()
        };
        assert_eq!(kept(&[("n1", None)]), None);
        assert_eq!(retention.expiring(format), (0, false), "its default begins no expiry");
        assert_eq!(kept(&[("n1", Some(days(1)))]), None, "no node has begun");
        assert_eq!(retention.expiring(format), (0, true));
        retention.measured().span.hear_expiring(1_000_000);
        assert_eq!(kept(&[]), Some(days(7)));
        assert_eq!(kept(&[("n2", Some(days(30)))]), Some(days(30)));
        assert_eq!(kept(&[("n3", None)]), None);
        assert_eq!(retention.expiring(format), (1_000_000, false));
        assert_eq!(kept(&[]), None, "Redis may have lost the heartbeat of a live node");
        retention.measured().hear_live(Vec::new(), since_boot() + formats::COUNTS_FOR);
        assert_eq!(kept(&[("n4", Some(days(9)))]), Some(days(9)), "the others have left");
        let forever = Retention::new(None, &links).unwrap();
        forever.measured().span.hear_expiring(1_000_000);
        forever.agree(format, vec![("n1".to_owned(), Some(days(7)))]);
        assert_eq!(forever.kept(), None);
    }

    #[test]
    fn a_node_that_followed_too_little_is_behind() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(None, &links).unwrap();
        let hear = |other: Option<u64>, now_ms: u64, followed: Option<Duration>| {
            let other = other.map(|ms| NodeRetention { kept: Duration::from_millis(ms), beat_ms: now_ms });
            retention.hear(other.as_slice(), (1_000_000, Some(now_ms)), followed);
            retention.status(false)
        };
        assert!(!hear(None, 9_000_000, None).is_behind, "states are kept forever");
        let status = hear(Some(600_000), 9_000_000, None);
        assert_eq!((status.is_behind, status.needs_copy), (true, true), "another node lets them expire");
        assert!(retention.may_have_expired());
        assert!(status.describe(false).contains("carom join"), "{}", status.describe(false));
        assert!(!hear(Some(600_000), 1_000_500, Some(since_boot())).is_behind);
        assert!(hear(Some(600_000), 9_000_000, Some(since_boot())).is_behind, "the clock was set since");
        assert!(!hear(Some(600_000), 9_000_000, Some(since_boot())).is_behind);
        let status = hear(Some(600_000), 9_400_000, None);
        assert_eq!((status.is_behind, status.needs_copy), (true, false), "it can read on");
        assert!(retention.status(true).needs_copy, "its positions are gone");
    }

    #[test]
    fn a_silent_node_counts_until_all_of_it_was_followed() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let own = Duration::from_secs(6_000);
        let retention = Retention::new(Some(own), &links).unwrap();
        let silent = NodeRetention { kept: Duration::from_secs(60), beat_ms: 2_000_000 };
        // The second one finds the clock where the first one has left it, and the third one what was followed by then.
        let shortest = |now_ms: u64| {
            (0..3).for_each(|_| retention.hear(&[silent], (1_000_000, Some(now_ms)), Some(since_boot())));
            retention.shortest()
        };
        assert_eq!(shortest(1_000_500), Some(silent.kept));
        assert_eq!(shortest(2_500_000), Some(silent.kept), "Redis may lack states that it wrote before it fell silent");
        assert_eq!(shortest(2_700_000), Some(own));
        assert!(!retention.status(false).is_behind);
    }

    #[test]
    fn an_earlier_reading_does_not_move_with_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(Some(Duration::from_secs(600)), &links).unwrap();
        let hear = |now_ms: u64, followed: Duration| {
            retention.hear(&[], (1_000_000, Some(now_ms)), Some(followed));
            retention.status(false).is_behind
        };
        let followed = since_boot();
        assert!(!hear(1_000_500, followed));
        assert!(hear(9_000_000, followed), "what came after that reading has expired by this clock");
        assert!(hear(9_000_001, followed));
        assert!(!hear(9_000_002, since_boot()));
        assert!(!hear(1_000_500, since_boot()), "a clock that was set back makes states last longer");
    }

    #[test]
    fn states_stay_expired_once_they_are_kept_forever() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(None, &links).unwrap();
        assert!(!retention.may_have_expired());
        retention.hear(&[], (1_000_000, Some(1_000_001)), None);
        assert!(retention.may_have_expired(), "a claim would give away a slug");
    }

    #[test]
    fn a_shared_home_in_which_states_expire_is_behind() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let retention = Retention::new(None, &links).unwrap();
        assert!(!retention.shared_home_status().is_behind);
        let other = NodeRetention { kept: Duration::from_secs(600), beat_ms: 1_000_000 };
        retention.hear(&[other], (0, None), None);
        let status = retention.shared_home_status();
        assert!(status.is_behind, "another node lets states expire");
        assert!(status.describe(false).contains("links.home"), "{}", status.describe(false));
        let retention = Retention::new(None, &links).unwrap();
        retention.hear(&[], (7, None), None);
        assert!(retention.shared_home_status().is_behind, "they have expired before");
    }
}
