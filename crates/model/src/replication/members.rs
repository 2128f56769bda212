//! Watches the other nodes of a fleet, and decides which of them are gone, so that their leases may be taken over.
//!
//! A node counts as gone when its heartbeat has not changed for a time that the observer itself has measured. No clock
//! is compared with another, and a clock that jumps proves nothing. The observer's own clock must include the time that
//! the machine sleeps, and may start anywhere.
//!
//! The other side of the rule: a node that was cut off stops using its leases well before other nodes may take them
//! over ([`Lease`]).

use std::collections::HashMap;
use std::time::Duration;

use super::silence::SilenceClock;

/// The name of a node, unique in its fleet.
pub type NodeId = String;

/// For each node, the mark of the last heartbeat that was seen, and the time at which it was first seen. No two
/// heartbeats of a node have the same mark. The observer reads nothing else of a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct Members {
    seen: HashMap<NodeId, (u64, Duration)>,
    clock: SilenceClock,
}

impl Members {
    /// Records the marks of the last heartbeats of all nodes, from a reply that arrived at `now` to a request that was
    /// sent at `sent`. `after` is the time after which a silent node counts as gone. After an outage ([`SilenceClock`]), the
    /// silence of all nodes is measured from now.
    pub fn observe(&mut self, beats: &[(NodeId, u64)], (sent, now): (Duration, Duration), after: Duration) {
        if self.clock.record_reply((sent, now), after) {
            self.seen.clear();
        }
        self.seen.retain(|node, _| beats.iter().any(|(name, _)| name == node));
        for (node, beat) in beats {
            let seen = self.seen.entry(node.clone()).or_insert((*beat, now));
            if seen.0 != *beat {
                *seen = (*beat, now);
            }
        }
    }

    /// Returns the nodes that have been silent for `after`, each with the mark of its last heartbeat. Before the caller
    /// acts, it must check that the mark is still the same.
    pub fn gone(&self, now: Duration, after: Duration) -> Vec<(NodeId, u64)> {
        let silent = |since: &Duration| now.saturating_sub(*since) >= after;
        let gone = self.seen.iter().filter(|(_, (_, since))| silent(since));
        gone.map(|(node, (beat, _))| (node.clone(), *beat)).collect()
    }

    /// Returns all nodes, and how long each has been silent.
    pub fn list(&self, now: Duration) -> Vec<(NodeId, Duration)> {
        let mut list: Vec<_> =
            self.seen.iter().map(|(node, (_, since))| (node.clone(), now.saturating_sub(*since))).collect();
        list.sort();
        list
    }
}

/// The right of a node to use counter values that it has leased. Other nodes take them over once it has been silent for
/// `after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The time at which the last confirmed heartbeat was sent; `None` if none was confirmed since the host's start.
    confirmed: Option<Duration>,
    /// Silence after which other nodes may take the values over.
    after: Duration,
    /// Number of times that the node was silent for too long, so that it lost its earlier leases.
    losses: u32,
}

impl Lease {
    /// Returns the lease of a process that has sent no heartbeat yet. `confirmed` is the time of a confirmed heartbeat
    /// of an earlier process in the same boot, if there is one.
    pub fn new(confirmed: Option<Duration>, after: Duration) -> Lease {
        Lease { confirmed, after, losses: 0 }
    }

    /// Returns the lease of a process at its start. `heard` is the time of an earlier process's last heartbeat in the
    /// same boot, if known.
    ///
    /// The values that the earlier process had leased still belong to this node only if the lease [has
    /// begun](Lease::has_begun). Otherwise the caller must drop them before the first heartbeat.
    pub fn resume(heard: Option<Duration>, now: Duration, after: Duration) -> Lease {
        let earlier = Lease::new(heard.filter(|heard| *heard <= now), after);
        if earlier.holds(now) { earlier } else { Lease::new(None, after) }
    }

    /// True once a heartbeat was confirmed. Before that, another node that has long watched the silence of an earlier
    /// process may take the values over at once.
    pub fn has_begun(&self) -> bool {
        self.confirmed.is_some()
    }

    /// Records that Redis has confirmed a heartbeat. It was sent at `sent`, and the confirmation came at `now`.
    ///
    /// The time at which Redis received the heartbeat is unknown: the process may have been suspended after `sent`. So
    /// for the other nodes, the silence before this heartbeat may have lasted until `now`, and the silence after it may
    /// have begun at `sent`.
    pub fn confirm(&mut self, sent: Duration, now: Duration) {
        self.losses += u32::from(self.confirmed.is_some() && !self.is_fresh(now));
        self.confirmed = self.confirmed.max(Some(sent));
    }

    /// True if this node was silent for so long that other nodes may have taken over its earlier leases.
    pub fn is_lost(&self) -> bool {
        self.losses > 0
    }

    /// Returns how often this node has lost its leases. After the first loss, the node no longer relies on a lease
    /// while Redis is away. Each further loss also costs the leases that it took since the last one.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// True if the leased values may be used. A tenth of the time is left for clocks that run at different speeds.
    pub fn holds(&self, now: Duration) -> bool {
        !self.is_lost() && self.is_fresh(now)
    }

    fn is_fresh(&self, now: Duration) -> bool {
        self.confirmed.is_some_and(|sent| now.saturating_sub(sent) < self.after / 10 * 9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_gone_when_its_heartbeat_stays_the_same() {
        let mut members = Members::default();
        let beats = |a: u64, b: u64| [("a".to_owned(), a), ("b".to_owned(), b)];
        // The numbers in the heartbeats do not matter, only that they change.
        [0, 20, 40].iter().for_each(|&now| members.observe(&beats(9_000_000, 1), (at(now), at(now)), AFTER));
        [60, 80].iter().for_each(|&now| members.observe(&beats(5, 1), (at(now), at(now)), AFTER));
        assert_eq!(members.gone(at(99), AFTER), []);
        assert_eq!(members.gone(at(100), AFTER), [("b".to_owned(), 1)]);
        members.observe(&beats(5, 2), (at(101), at(101)), AFTER);
        assert_eq!(members.gone(at(159), AFTER), []);
        members.observe(&beats(5, 2), (at(126), at(126)), AFTER);
        assert_eq!(members.gone(at(225), AFTER), [], "who was silent while nobody was heard cannot be told");
        assert_eq!(members.gone(at(226), AFTER).len(), 2);
    }

    #[test]
    fn an_answer_that_is_taken_late_ends_no_outage() {
        let mut members = Members::default();
        let beats = [("a".to_owned(), 1)];
        members.observe(&beats, (at(10), at(10)), AFTER);
        // Redis is away from 11 to 100, and the process is suspended until 80, with an answer of before.
        members.observe(&beats, (at(11), at(80)), AFTER);
        members.observe(&beats, (at(100), at(100)), AFTER);
        assert_eq!(members.gone(at(199), AFTER), []);
        assert_eq!(members.gone(at(200), AFTER), beats);
    }

    #[test]
    fn a_node_gives_up_before_others_may_take() {
        let mut lease = Lease::new(None, AFTER);
        assert!(!lease.holds(at(0)));
        lease.confirm(at(10), at(10));
        assert!(lease.holds(at(99)));
        assert!(!lease.holds(at(100)));
        lease.confirm(at(200), at(200));
        assert!(lease.is_lost(), "what came back late has lost it");
        assert!(!lease.holds(at(201)), "what came back late has lost it");
        lease.confirm(at(202), at(202));
        assert_eq!(lease.losses(), 1);
        lease.confirm(at(300), at(300));
        assert_eq!(lease.losses(), 2, "what was leased since is lost as well");
        let mut lease = Lease::new(Some(at(10)), AFTER);
        lease.confirm(at(60), at(110));
        assert!(lease.is_lost(), "it was begun in time, but may have been sent too late");
        let mut members = Members::default();
        // Redis takes the heartbeat at some moment after it was sent, and the observer sees it later still.
        members.observe(&[("a".to_owned(), 1)], (at(10), at(10)), AFTER);
        assert_eq!(members.gone(at(109), AFTER), []);
    }

    #[test]
    fn a_process_has_what_an_earlier_one_leased_only_while_that_is_fresh() {
        let fresh = Lease::resume(Some(at(10)), at(99), AFTER);
        assert!(fresh.has_begun());
        assert!(fresh.holds(at(99)));
        assert!(!fresh.holds(at(100)));
        for (heard, now) in [(None, 5), (Some(at(10)), 100), (Some(at(10)), 9)] {
            let mut lease = Lease::resume(heard, at(now), AFTER);
            assert!(!lease.has_begun());
            assert!(!lease.holds(at(now)));
            lease.confirm(at(200), at(200));
            assert!(lease.holds(at(201)), "nothing of before is left that could be lost");
        }
    }
}
