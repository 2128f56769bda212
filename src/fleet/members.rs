//! Who else is there, and what may be taken from whom has gone.
//!
//! A node counts as gone when its heartbeat has not changed for a time that the observer itself has measured: no clock is
//! compared with another, and a clock that jumps proves nothing. The observer's own time must go on while the machine
//! sleeps, and may begin anywhere.
//!
//! The other side of it: a node that was cut off stops using what others may have taken from it by now, well before they
//! may ([`Lease`]).

use std::collections::HashMap;
use std::time::Duration;

/// The name of a node, unique in its fleet.
pub type NodeId = String;

/// Which heartbeat was seen last of whom, and since when.
#[derive(Clone, Debug, Default)]
pub struct Members {
    seen: HashMap<NodeId, (u64, Duration)>,
}

impl Members {
    /// Takes the heartbeats that are in Redis now.
    pub fn observe(&mut self, beats: &[(NodeId, u64)], now: Duration) {
        self.seen.retain(|node, _| beats.iter().any(|(name, _)| name == node));
        for (node, beat) in beats {
            let seen = self.seen.entry(node.clone()).or_insert((*beat, now));
            if seen.0 != *beat {
                *seen = (*beat, now);
            }
        }
    }

    /// Redis was not heard for a while: who was silent meanwhile cannot be told.
    pub fn begin_anew(&mut self) {
        self.seen.clear();
    }

    /// Nodes whose heartbeat has not changed for so long, with that heartbeat: whoever acts on it makes sure that it is
    /// still the same.
    pub fn gone(&self, now: Duration, after: Duration) -> Vec<(NodeId, u64)> {
        let silent = |since: &Duration| now.saturating_sub(*since) >= after;
        let gone = self.seen.iter().filter(|(_, (_, since))| silent(since));
        gone.map(|(node, (beat, _))| (node.clone(), *beat)).collect()
    }

    /// All nodes, and how long each has been silent.
    pub fn list(&self, now: Duration) -> Vec<(NodeId, Duration)> {
        let mut list: Vec<_> =
            self.seen.iter().map(|(node, (_, since))| (node.clone(), now.saturating_sub(*since))).collect();
        list.sort();
        list
    }
}

/// Whether a node may still use counter values that it has leased: others take them when it has been silent for `after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// When the last heartbeat that Redis confirmed was sent; `None` before the first of this boot.
    confirmed: Option<Duration>,
    /// After how long others may take them.
    after: Duration,
    /// Whether it was silent for too long: what it has leased before is not its own any more.
    lost: bool,
}

impl Lease {
    /// Before the first heartbeat, unless one of an earlier process of the same boot is known.
    pub fn new(confirmed: Option<Duration>, after: Duration) -> Lease {
        Lease { confirmed, after, lost: false }
    }

    /// Redis has confirmed a heartbeat that was sent then.
    pub fn confirm(&mut self, sent: Duration) {
        self.lost |= self.confirmed.is_some() && !self.holds(sent);
        self.confirmed = self.confirmed.max(Some(sent));
    }

    /// Whether this node was silent for so long that others may have taken what it had leased before.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether what was leased may be used. A tenth of the time is left for clocks that do not run alike.
    pub fn holds(&self, now: Duration) -> bool {
        !self.lost && self.confirmed.is_some_and(|sent| now.saturating_sub(sent) < self.after / 10 * 9)
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
        // Whatever the heartbeats say: only that they change matters.
        members.observe(&beats(9_000_000, 1), at(0));
        members.observe(&beats(5, 1), at(60));
        assert_eq!(members.gone(at(99), AFTER), []);
        assert_eq!(members.gone(at(100), AFTER), [("b".to_owned(), 1)]);
        members.observe(&beats(5, 2), at(101));
        assert_eq!(members.gone(at(159), AFTER), []);
        members.begin_anew();
        assert_eq!(members.gone(at(900), AFTER), []);
    }

    #[test]
    fn a_node_gives_up_before_others_may_take() {
        let mut lease = Lease::new(None, AFTER);
        assert!(!lease.holds(at(0)));
        lease.confirm(at(10));
        assert!(lease.holds(at(99)) && !lease.holds(at(100)));
        lease.confirm(at(200));
        assert!(lease.is_lost() && !lease.holds(at(201)), "what came back late has lost it");
        let mut members = Members::default();
        // Redis takes the heartbeat at some moment after it was sent, and the observer sees it later still.
        members.observe(&[("a".to_owned(), 1)], at(10));
        assert_eq!(members.gone(at(109), AFTER), []);
    }
}
