//! Nodes that were stopped and have left their grants to the others: which last heartbeats count, and whose grants are in
//! the store.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use crate::services::replication::agreement::OtherNode;
use carom_model::replication::members::NodeId;
use carom_telemetry::grants::GrantStats;

/// The heartbeats of other nodes that this process has heard, as far as they tell whether a node has left for good. An old
/// copy of the data of Redis has the last heartbeat of a process whose successor may hold more grants.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The time of the latest heartbeat of each node, by the clock of Redis.
    latest: BTreeMap<NodeId, u64>,
    /// The nodes that an earlier process knew to hold grants, and that this one has not seen run, each with the time of a
    /// heartbeat before the last one. A second one shows that the node runs: the first may be of an old copy.
    unseen: BTreeMap<NodeId, Option<u64>>,
}

impl Departures {
    /// Returns the state of a process that has heard nothing yet. `holders` are the nodes that an earlier one knew.
    pub(super) fn resume(holders: Vec<NodeId>) -> Departures {
        Departures { latest: BTreeMap::new(), unseen: holders.into_iter().map(|node| (node, None)).collect() }
    }

    /// Takes the heartbeats of the other nodes.
    pub(super) fn hear(&mut self, others: &[OtherNode]) {
        for other in others {
            let latest = self.latest.entry(other.node.clone()).or_default();
            *latest = other.beat.max(*latest);
            if other.has_left_grants {
                continue;
            }
            let before = self.unseen.get_mut(&other.node).and_then(|before| before.replace(other.beat));
            if before.is_some_and(|before| before != other.beat) {
                self.unseen.remove(&other.node);
            }
        }
    }

    /// True if the heartbeat of a node is its latest one, and says that the node was stopped and has left its grants.
    pub(super) fn has_left(&self, other: &OtherNode) -> bool {
        other.has_left_grants
            && !self.unseen.contains_key(&other.node)
            && self.latest.get(&other.node).is_some_and(|latest| *latest == other.beat)
    }
}

/// True if the store has all grants that a stopped node has left.
pub(super) fn is_taken(grants: &GrantStats, other: &OtherNode) -> bool {
    let taken = grants.handover.taken.lock().unwrap_or_else(PoisonError::into_inner);
    taken.get(&other.node).is_some_and(|(of, is_stored)| *is_stored && Some(*of) == other.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(beat: u64, has_left_grants: bool) -> [OtherNode; 1] {
        let (node, number) = ("n1".to_owned(), Some(beat));
        let (report, passed, awaits_grants) = (None, None, Some(false));
        let (is_asking, is_restoring) = (false, false);
        [OtherNode { node, beat, number, report, passed, is_asking, is_restoring, awaits_grants, has_left_grants }]
    }

    #[test]
    fn only_the_latest_heartbeat_says_that_a_node_has_left() {
        let mut departures = Departures::default();
        for (beat, is_left, has_left) in [(5, true, true), (6, false, false), (5, true, false), (7, true, true)] {
            departures.hear(&heard(beat, is_left));
            assert_eq!(departures.has_left(&heard(beat, is_left)[0]), has_left, "{beat}");
        }
        let mut resumed = Departures::resume(vec!["n1".to_owned()]);
        let heartbeats = [(5, true, false), (6, false, false), (6, false, false), (7, true, false), (8, false, false)];
        for (beat, is_left, has_left) in heartbeats.into_iter().chain([(9, true, true)]) {
            resumed.hear(&heard(beat, is_left));
            assert_eq!(resumed.has_left(&heard(beat, is_left)[0]), has_left, "{beat}");
        }
    }
}
