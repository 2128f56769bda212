//! The handover of granted visits: a node that stops leaves what it knows of them in Redis. Once another node has stored
//! that, it no longer counts the stopped node among those whose reports a Redis that has lost grants must await.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BEAT_TIME, HeartbeatThread};
use crate::services::replication::agreement::OtherNode;

/// Longest wait of a node that stops for the thread that knows its grants.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Interval between two looks during that wait.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl HeartbeatThread {
    /// Lets the thread that admits visits leave the grants of this node in Redis, and waits for that.
    pub(super) fn leave_grants(&self) {
        let fleet = &self.fleet.stats.fleet;
        if !self.fleet.home.stores_all_links() || !fleet.connected.load(Ordering::Acquire) {
            return;
        }
        let handover = &fleet.grants.handover;
        handover.is_asked.store(true, Ordering::Release);
        let begun = Instant::now();
        while !handover.is_answered.load(Ordering::Acquire) && begun.elapsed() < LEAVE_TIME_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads the grants that a stopped node has left, if this node has not looked at them yet. The thread that admits visits
    /// stores them.
    pub(super) fn find_left_grants(&mut self, others: &[OtherNode]) {
        let handover = &self.fleet.stats.fleet.grants.handover;
        let is_new = |(other, number): &(&OtherNode, u64)| {
            let taken = handover.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let found = handover.found.lock().unwrap_or_else(PoisonError::into_inner);
            taken.get(&other.node).is_none_or(|(of, _)| of != number)
                && found.get(&other.node).is_none_or(|(of, _)| of != number)
        };
        let left = others.iter().filter(|other| self.departures.has_left(other));
        // One node at a time: the heartbeat goes on.
        let Some((other, number)) = left.filter_map(|other| Some((other, other.number?))).find(is_new) else { return };
        match self.redis.left_grants(&other.node, BEAT_TIME) {
            Ok(Some(grants)) => {
                let mut found = handover.found.lock().unwrap_or_else(PoisonError::into_inner);
                found.insert(other.node.clone(), (number, grants));
            }
            Ok(None) => {
                let mut taken = handover.taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.insert(other.node.clone(), (number, false));
            }
            Err(error) => tracing::debug!(%error, node = other.node, "the grants of a stopped node cannot be read"),
        }
    }
}
