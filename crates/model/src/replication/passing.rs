//! The changes that a node has passed in the streams, in the form in which it tells the other nodes.
//!
//! Each heartbeat of a node has a number. The other nodes hear of it, and then read all streams to their ends. From then
//! on they have *passed* every change that Redis had accepted before the heartbeat was sent, and say so in their own
//! heartbeats. Once every node has said so, none of them still has an earlier state of a code. The rule by which the
//! reports of all nodes count is the one of [`super::confirmations`]: it compares no clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::members::NodeId;

/// The heartbeats of another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Beats {
    /// The last heartbeat since which all streams were read to their ends.
    passed: Option<u64>,
    /// A later heartbeat, and the instant at which this node had heard of it.
    next: Option<(u64, Duration)>,
}

/// The heartbeats of the other nodes since which this node has read all streams to their ends.
#[derive(Clone, Debug, Default)]
pub struct PassedBeats {
    nodes: BTreeMap<NodeId, Beats>,
}

impl PassedBeats {
    /// Records the last heartbeats of all other nodes, of which this node has heard at the instant `now`. Forgets the nodes
    /// that are not among them.
    pub fn hear(&mut self, beats: impl IntoIterator<Item = (NodeId, u64)>, now: Duration) {
        let mut before = std::mem::take(&mut self.nodes);
        for (node, number) in beats {
            let mut beats = before.remove(&node).unwrap_or_default();
            if beats.next.is_none() && beats.passed != Some(number) {
                beats.next = Some((number, now));
            }
            self.nodes.insert(node, beats);
        }
    }

    /// Records that this node has every change that was in the streams at that instant.
    pub fn follow(&mut self, at: Duration) {
        for beats in self.nodes.values_mut() {
            if let Some((number, _)) = beats.next.take_if(|(_, heard)| *heard < at) {
                beats.passed = Some(number);
            }
        }
    }

    /// Returns the numbers for the next heartbeat of this node, by node.
    pub fn numbers(&self) -> BTreeMap<NodeId, u64> {
        self.nodes.iter().filter_map(|(node, beats)| Some((node.clone(), beats.passed?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn beats(all: &[(&str, u64)]) -> Vec<(NodeId, u64)> {
        all.iter().map(|(node, number)| ((*node).to_owned(), *number)).collect()
    }

    #[test]
    fn reading_after_a_heartbeat_passes_it() {
        let mut passed = PassedBeats::default();
        passed.hear(beats(&[("b", 7)]), at(10));
        passed.follow(at(10));
        assert_eq!(passed.numbers(), BTreeMap::new(), "the reading may have begun before");
        passed.follow(at(11));
        assert_eq!(passed.numbers(), BTreeMap::from([("b".to_owned(), 7)]));
        passed.hear(beats(&[("b", 8), ("c", 3)]), at(12));
        passed.hear(beats(&[("b", 9), ("c", 3)]), at(13));
        passed.follow(at(13));
        assert_eq!(passed.numbers(), BTreeMap::from([("b".to_owned(), 8), ("c".to_owned(), 3)]));
        passed.hear(beats(&[("c", 3)]), at(14));
        passed.follow(at(15));
        assert_eq!(passed.numbers(), BTreeMap::from([("c".to_owned(), 3)]));
    }
}
