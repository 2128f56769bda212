//! The partitions whose positions in the streams of the other site were lost, and the comparison of some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::services::replication::redis::Scan;
use carom_model::replication::Partition;
use carom_model::replication::follow::StreamPosition;

/// Number of partitions that are compared together.
const TOGETHER: usize = 16;

/// Time after which a partition is compared again in which a comparison has met a state of a later version.
const REST_TIME: Duration = Duration::from_secs(30);

/// The partitions whose positions in the streams of the other site were lost.
#[derive(Debug, Default)]
pub(super) struct LostPositions {
    lost: BTreeSet<Partition>,
    /// The partitions in which a comparison has met a state of a later version, and the time of its end.
    rests: BTreeMap<Partition, Instant>,
}

impl LostPositions {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    pub(super) fn contains(&self, partition: Partition) -> bool {
        self.lost.contains(&partition)
    }

    pub(super) fn add(&mut self, partition: Partition) {
        self.lost.insert(partition);
    }

    /// Forgets the lost positions when this node becomes the relay. A partition that rests continues to.
    pub(super) fn clear(&mut self) {
        self.lost.clear();
    }

    /// Returns the partitions that are to be compared next; none if all rest.
    pub(super) fn due(&self, now: Instant) -> Vec<Partition> {
        let rests = |of: &Partition| self.rests.get(of).is_some_and(|at| now.duration_since(*at) < REST_TIME);
        self.lost.iter().copied().filter(|of| !rests(of)).take(TOGETHER).collect()
    }

    /// Ends the comparison of partitions. Those that a state of a later version holds are compared again. Returns the
    /// positions of the others.
    pub(super) fn finish(
        &mut self,
        ends: BTreeMap<Partition, StreamPosition>,
        held: &BTreeSet<Partition>,
        now: Instant,
    ) -> Vec<(Partition, StreamPosition)> {
        let (waiting, done): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(of, _)| held.contains(of));
        self.rests.extend(waiting.into_iter().map(|(of, _)| (of, now)));
        for (of, _) in &done {
            self.lost.remove(of);
            self.rests.remove(of);
        }
        done
    }
}

/// A comparison of some partitions with the states of the other Redis.
pub(super) struct PartitionComparison {
    pub(super) scan: Scan,
    /// The partitions, with the ends of their streams before the comparison.
    pub(super) ends: BTreeMap<Partition, StreamPosition>,
    /// The partitions with a state that could not be decoded, here or there.
    pub(super) held: BTreeSet<Partition>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::replication::EntryId;

    fn ends(partitions: &[Partition]) -> BTreeMap<Partition, StreamPosition> {
        let end = StreamPosition { id: EntryId { ms: 7, seq: 0 }, check: 9 };
        partitions.iter().map(|of| (*of, end)).collect()
    }

    #[test]
    fn compared_partitions_are_not_compared_again() {
        let mut lost = LostPositions::default();
        Partition::all().for_each(|of| lost.add(of));
        let (now, none) = (Instant::now(), BTreeSet::new());
        let first = lost.due(now);
        assert_eq!(first.len(), TOGETHER);
        assert_eq!(lost.finish(ends(&first), &none, now).len(), TOGETHER);
        // After an error, which is not reported here, the next group alone is repeated.
        let second = lost.due(now);
        assert!(second.iter().all(|of| !first.contains(of)), "{second:?}");
        assert_eq!(lost.due(now), second);
        let mut groups = 1;
        while !lost.is_empty() {
            let due = lost.due(now);
            lost.finish(ends(&due), &none, now);
            groups += 1;
        }
        assert_eq!(groups, Partition::all().count() / TOGETHER);
        assert_eq!(lost.due(now), []);
    }

    #[test]
    fn a_later_version_holds_its_own_partition() {
        let mut lost = LostPositions::default();
        Partition::all().for_each(|of| lost.add(of));
        let now = Instant::now();
        let (bad, held) = (Partition(3), BTreeSet::from([Partition(3)]));
        loop {
            let due = lost.due(now);
            if due.is_empty() {
                break;
            }
            let done = lost.finish(ends(&due), &held, now);
            assert!(done.iter().all(|(of, _)| *of != bad));
        }
        assert!(lost.contains(bad));
        assert!(!lost.contains(Partition(4)));
        let later = now + REST_TIME;
        assert_eq!(lost.due(later), [bad]);
        assert_eq!(lost.finish(ends(&[bad]), &BTreeSet::new(), later).len(), 1);
        assert!(lost.is_empty());
    }
}
