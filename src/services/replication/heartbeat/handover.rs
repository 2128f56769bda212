//! The handover of granted visits: a node that stops leaves what it knows of them in Redis. Once another node has stored
//! that, it no longer counts the stopped node among those whose reports a Redis that has lost grants must await. So a process
//! takes no grants before its introduction: the other nodes have heard that it runs. It takes none either while it waits for
//! a further node to hear that.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BEAT_TIME, HeartbeatThread};
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::agreement::OtherNode;
use carom_model::replication::members::NodeId;
use carom_model::visits::grants::GrantIntroduction;

/// Longest wait of a node that stops for the thread that knows its grants.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Interval between two looks during that wait.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl HeartbeatThread {
    /// True if this process waits until other nodes have heard of it.
    pub(super) fn awaits_introduction(&self) -> bool {
        self.fleet.home.stores_all_links() && !self.twins.gives_way() && !self.introduction.is_over()
    }

    /// Begins the introduction of this process, which gives way. The other process may leave the grants of the name,
    /// and the other nodes then no longer count this one.
    pub(super) fn begin_introduction(&mut self) {
        self.introduction = GrantIntroduction::begin(since_boot());
        // Before a heartbeat of this process is answered again, and it counts as alone.
        self.fleet.stats.fleet.grants.is_introduced.store(false, Ordering::Release);
    }

    /// Returns each other node that may hold grants, with the instant at which this process sent the last heartbeat that the
    /// other node has reported as heard; `None` without one. A node that has heard of a heartbeat has stored the name of
    /// this node among those that may hold grants.
    pub(super) fn heard_by_holders(&self, others: &[OtherNode]) -> Vec<(NodeId, Option<Duration>)> {
        let sent = |name: &NodeId| {
            let report = others.iter().find(|other| other.node == *name)?.report?;
            self.confirmations.sent(report.heard)
        };
        let names = self.holders.names().filter(|name| **name != self.fleet.settings.node);
        names.map(|name| (name.clone(), sent(name))).collect()
    }

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
