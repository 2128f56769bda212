//! The time for which Redis keeps the state of a code after its last change, and the nodes that may rely on that.
//!
//! Every node has all states on its disk, so Redis lets a state expire that has not changed for the *retention*. A node
//! has every change up to the later of two times. One is the time up to which it has followed the streams. The other is
//! the time at which Redis began to expire states: until then, Redis had everything. The time since the later one is
//! the *lag* of the node. All times are by the clock of Redis, which also decides when a state expires.
//!
//! A node with a lag of at most half the retention is **current**: it has all that Redis no longer has, and it has the
//! other half to compare the rest. A node that is behind must neither change anything nor compare with Redis: it would
//! take a state that has expired in Redis for one that never existed.

use std::time::Duration;

use super::EntryId;
use super::formats::COUNTS_FOR;

/// The share of the retention by which a node may lag behind.
const LAG_SHARE: u64 = 2;

/// The time in which a node has followed the streams. All times are in milliseconds since 1970 by the clock of Redis, and
/// 0 if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowedSpan {
    /// The time at which the node, or the one from which it has its copy, had everything for the first time.
    pub began_ms: u64,
    /// The time up to which the node has followed all streams since.
    pub until_ms: u64,
    /// The time at which Redis began to expire states; 0 if it never did.
    pub expiring_ms: u64,
}

impl FollowedSpan {
    /// Records that the node has followed all streams up to a time.
    pub fn advance(&mut self, until_ms: u64) {
        if self.began_ms == 0 {
            self.began_ms = until_ms;
        }
        self.until_ms = until_ms;
    }

    /// Records the time at which Redis began to expire states, as another node or Redis knows it; 0 if it does not. The
    /// earliest one counts: a Redis that came back empty has lost it.
    pub fn hear_expiring(&mut self, since_ms: u64) {
        if since_ms > 0 && (self.expiring_ms == 0 || since_ms < self.expiring_ms) {
            self.expiring_ms = since_ms;
        }
    }

    /// Records the time by the clock of Redis. If it is before states began to expire, the clock was set back, and states
    /// count as expiring from now on. Otherwise no node would lag until the clock is there again.
    pub fn hear_clock(&mut self, now_ms: u64, retention: Duration) {
        if self.expiring_ms <= now_ms {
            return;
        }
        let has_had_all = self.has_had_all(retention);
        self.expiring_ms = now_ms;
        if has_had_all {
            self.began_ms = self.began_ms.min(now_ms);
        }
    }

    /// Returns the time for which the node may lack changes, in milliseconds; 0 while Redis expires nothing. A time in the
    /// future up to which the node has followed says nothing, since the clock was set back.
    pub fn lag_ms(&self, now_ms: u64, retention: Duration) -> u64 {
        if self.expiring_ms == 0 {
            return 0;
        }
        let is_known = self.until_ms <= now_ms.saturating_add(lag_max_ms(retention)) && self.has_had_all(retention);
        let followed_ms = if is_known { self.until_ms } else { 0 };
        now_ms.saturating_sub(followed_ms.max(self.expiring_ms))
    }

    /// True if the node had everything at some time. A node that began when Redis had expired some states may lack them,
    /// however long it has followed since.
    pub fn has_had_all(&self, retention: Duration) -> bool {
        let latest_ms = self.expiring_ms.saturating_add(lag_max_ms(retention));
        self.began_ms > 0 && (self.expiring_ms == 0 || self.began_ms <= latest_ms)
    }

    /// True if the node has every state that a silent node has written, given the retention of that node and the time of
    /// its last heartbeat. From then on, it does not matter which of them Redis no longer has.
    pub fn has_all_of(&self, beat_ms: u64, retention: Duration) -> bool {
        self.has_had_all(retention) && self.until_ms >= beat_ms.saturating_add(millis(COUNTS_FOR))
    }

    /// True if the node has every change that Redis no longer has, and time to compare the rest.
    pub fn is_current(&self, now_ms: u64, retention: Duration) -> bool {
        self.lag_ms(now_ms, retention) <= lag_max_ms(retention)
    }
}

/// Returns the longest lag of a node that is current, in milliseconds.
pub fn lag_max_ms(retention: Duration) -> u64 {
    millis(retention) / LAG_SHARE
}

/// Returns a time in milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the first entry of a stream that is kept, given the IDs of its entries in their order; `None` if it has none
/// before `oldest_ms`. The last entry before that time stays: it is the position of every node that had read the stream
/// to its end then.
pub fn first_kept(ids: &[EntryId], oldest_ms: u64) -> Option<EntryId> {
    ids.iter().copied().take_while(|id| id.ms <= oldest_ms).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RETENTION: Duration = Duration::from_millis(100);

    fn span(began_ms: u64, until_ms: u64, expiring_ms: u64) -> FollowedSpan {
        FollowedSpan { began_ms, until_ms, expiring_ms }
    }

    #[test]
    fn a_node_lags_behind_what_it_has_followed() {
        let mut span = FollowedSpan::default();
        assert!(span.is_current(1_000_000, RETENTION), "Redis has everything");
        span.hear_expiring(1_000);
        assert!(span.is_current(1_050, RETENTION), "nothing has expired");
        assert!(!span.is_current(1_051, RETENTION), "a new node would not have the time to compare everything");
        span.advance(1_040);
        span.advance(2_000);
        assert_eq!((span.began_ms, span.lag_ms(2_030, RETENTION)), (1_040, 30));
        assert!(span.is_current(2_050, RETENTION));
        assert!(!span.is_current(2_051, RETENTION));
    }

    #[test]
    fn the_earliest_beginning_counts() {
        let mut span = FollowedSpan::default();
        for (heard, expected) in [(0, 0), (500, 500), (700, 500), (0, 500), (300, 300)] {
            span.hear_expiring(heard);
            assert_eq!(span.expiring_ms, expected);
        }
    }

    #[test]
    fn a_node_that_began_too_late_stays_behind() {
        // It began with a Redis that had come back empty, and heard only then that states expire.
        let mut late = span(5_000, 5_000, 0);
        assert!(late.is_current(5_001, RETENTION));
        late.hear_expiring(1_000);
        late.advance(6_000);
        assert!(!late.is_current(6_000, RETENTION));
        assert!(span(1_050, 6_000, 1_000).is_current(6_000, RETENTION));
    }

    #[test]
    fn silent_nodes_count_until_all_of_them_is_here() {
        let counts_for = millis(COUNTS_FOR);
        assert!(!span(1_040, 2_000 + counts_for - 1, 1_000).has_all_of(2_000, RETENTION));
        assert!(span(1_040, 2_000 + counts_for, 1_000).has_all_of(2_000, RETENTION));
        assert!(!span(1_051, 2_000 + counts_for, 1_000).has_all_of(2_000, RETENTION), "it may have begun without some");
        assert!(!span(0, 0, 0).has_all_of(0, RETENTION), "it never had everything");
        assert!(!span(1_040, u64::MAX - 1, 1_000).has_all_of(u64::MAX, RETENTION), "the heartbeat is unknown");
    }

    #[test]
    fn nodes_lag_after_the_clock_was_set_back() {
        // States began to expire while the clock was wrong.
        let mut node = span(900_000, 950_000, 900_010);
        node.hear_clock(1_000, RETENTION);
        assert_eq!((node.began_ms, node.expiring_ms), (1_000, 1_000));
        assert!(node.is_current(1_050, RETENTION), "nothing has expired");
        assert!(!node.is_current(1_051, RETENTION), "it has not followed since");
        node.advance(1_200);
        assert!(node.is_current(1_250, RETENTION));
        // Another node was away longer than states have expired by that clock.
        let mut away = span(900_000, 950_000, 900_010);
        away.hear_clock(2_000, RETENTION);
        away.hear_expiring(1_000);
        assert!(!away.has_had_all(RETENTION));
        let mut late = span(950_000, 950_000, 900_010);
        late.hear_clock(1_000, RETENTION);
        assert!(!late.has_had_all(RETENTION), "a clock brings no states back");
        let before = late;
        late.hear_clock(1_001, RETENTION);
        assert_eq!(late, before);
    }

    #[test]
    fn the_last_entry_before_the_retention_stays() {
        let ids = [5, 9, 9, 20, 40].map(|ms| EntryId { ms, seq: ms % 7 });
        assert_eq!(first_kept(&ids, 4), None);
        assert_eq!(first_kept(&ids, 8), Some(ids[0]));
        assert_eq!(first_kept(&ids, 19), Some(ids[2]));
        assert_eq!(first_kept(&ids, 90), Some(ids[4]), "the end of a quiet stream");
        assert_eq!(first_kept(&[], 90), None);
    }

    proptest! {
        /// A current node had everything at a time after which nothing has expired yet.
        #[test]
        fn current_nodes_have_what_expired(
            began_ms in 1..500u64, followed in 0..500u64, expiring_ms in 1..500u64, now_ms in 0..2_000u64,
            changed_ms in 0..2_000u64,
        ) {
            let span = span(began_ms, began_ms + followed, expiring_ms);
            let has_expired = changed_ms.max(expiring_ms) + millis(RETENTION) <= now_ms;
            if span.is_current(now_ms, RETENTION) && has_expired {
                prop_assert!(span.has_had_all(RETENTION));
                prop_assert!(changed_ms <= span.until_ms);
            }
        }
    }
}
