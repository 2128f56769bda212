//! A sparse index over a sorted index: it keeps every so-many-th key as a fence, with the number of entries up to the
//! next fence. So the rank of any key, and the entry of any rank, are found by reading one run of entries. Fences take
//! some 70 bytes for each 2,000 to 4,000 entries.
//!
//! Nothing here reads an index. The code that changes an index reports each change, and adds a fence once a run has
//! grown long.

/// Largest number of entries between two fences. A page that is found by counting reads up to four times as many, which
/// takes some milliseconds.
pub(super) const RUN_LEN_MAX: u32 = if cfg!(test) { 8 } else { 4_096 };

/// The fences of one index.
#[derive(Debug)]
pub(super) struct Fences {
    /// The first key of each run. The first of them is empty, and so before all keys.
    firsts: Vec<Box<[u8]>>,
    /// The number of entries of each run.
    lens: Vec<u32>,
    total: u64,
}

/// A fence: a key, and the number of entries before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fence {
    pub(super) key: Box<[u8]>,
    pub(super) rank: u64,
}

impl Default for Fences {
    fn default() -> Fences {
        Fences { firsts: vec![Box::default()], lens: vec![0], total: 0 }
    }
}

impl Fences {
    /// Returns the number of entries.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of fences.
    pub(super) fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Counts an added entry. Returns true if its run is too long now.
    pub(super) fn add(&mut self, key: &[u8]) -> bool {
        let run = self.run_of(key);
        self.lens[run] += 1;
        self.total += 1;
        self.assert_summed();
        self.lens[run] > RUN_LEN_MAX
    }

    /// Counts a removed entry.
    pub(super) fn remove(&mut self, key: &[u8]) {
        let run = self.run_of(key);
        if self.lens[run] > 0 {
            self.lens[run] -= 1;
            self.total -= 1;
        }
        if self.lens[run] == 0 && run > 0 {
            self.firsts.remove(run);
            self.lens.remove(run);
        }
        self.assert_summed();
    }

    /// Asserts that fences and runs belong together.
    fn assert_summed(&self) {
        assert_eq!(self.firsts.len(), self.lens.len(), "a run has no fence");
        debug_assert_eq!(self.lens.iter().map(|len| u64::from(*len)).sum::<u64>(), self.total, "a run was not counted");
    }

    /// Appends a run after all others: its first key and its number of entries.
    pub(super) fn append(&mut self, first: &[u8], len: u32) {
        debug_assert!(self.firsts.last().is_some_and(|last| **last < *first), "look-ups would miss the run");
        self.firsts.push(first.into());
        self.lens.push(len);
        self.total += u64::from(len);
    }

    /// Returns the run that covers a key: its first key, the first key of the next run (`None` for the last run), and
    /// its number of entries.
    pub(super) fn run(&self, key: &[u8]) -> (&[u8], Option<&[u8]>, u32) {
        let run = self.run_of(key);
        (&self.firsts[run], self.firsts.get(run + 1).map(|first| &**first), self.lens[run])
    }

    /// Adds a fence at `key`, which has `before` entries of its run before it.
    pub(super) fn split(&mut self, key: &[u8], before: u32) {
        let run = self.run_of(key);
        if *self.firsts[run] != *key && before <= self.lens[run] {
            let behind = self.lens[run] - before;
            self.lens[run] = before;
            self.firsts.insert(run + 1, key.into());
            self.lens.insert(run + 1, behind);
            self.assert_summed();
        }
    }

    /// Returns the last fence at or before `key`.
    pub(super) fn before(&self, key: &[u8]) -> Fence {
        self.fence(self.run_of(key))
    }

    /// Returns the last fence with at most `rank` entries before it.
    pub(super) fn before_rank(&self, rank: u64) -> Fence {
        let mut before = 0;
        let run = self.lens.iter().position(|&len| {
            before += u64::from(len);
            before > rank
        });
        self.fence(run.unwrap_or(self.lens.len() - 1))
    }

    /// Returns the first fence with more than `rank` entries before it; `None` if that is the end of the index.
    pub(super) fn behind_rank(&self, rank: u64) -> Option<Fence> {
        let mut before = 0;
        let run = self.lens.iter().position(|&len| {
            before += u64::from(len);
            before > rank
        })?;
        (run + 1 < self.lens.len()).then(|| self.fence(run + 1))
    }

    /// Returns the number of entries of the run that covers a key.
    pub(super) fn run_len(&self, key: &[u8]) -> u64 {
        u64::from(self.lens[self.run_of(key)])
    }

    fn fence(&self, run: usize) -> Fence {
        Fence { key: self.firsts[run].clone(), rank: self.lens[..run].iter().map(|&len| u64::from(len)).sum() }
    }

    fn run_of(&self, key: &[u8]) -> usize {
        self.firsts.partition_point(|first| **first <= *key) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Splits a run as the writer does, with runs of three.
    fn split(fences: &mut Fences, index: &BTreeSet<Vec<u8>>, key: &[u8]) {
        let (first, next, len) = fences.run(key);
        let of_run = index.iter().filter(|key| ***key >= *first && next.is_none_or(|next| ***key < *next));
        if len > 3 {
            let middle = of_run.clone().nth(2).unwrap().clone();
            fences.split(&middle, 2);
        }
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_a_sorted_set(steps in proptest::collection::vec((any::<bool>(), "[a-c]{1,3}"), 0..200), asked in "[a-d]{0,4}") {
            let mut fences = Fences::default();
            let mut index = BTreeSet::new();
            for (adds, key) in steps {
                let key = key.into_bytes();
                if adds && index.insert(key.clone()) {
                    fences.add(&key);
                    split(&mut fences, &index, &key);
                } else if !adds && index.remove(&key) {
                    fences.remove(&key);
                }
            }
            let count = |key: &[u8]| index.iter().filter(|one| ***one < *key).count() as u64;
            prop_assert_eq!(fences.total(), index.len() as u64);
            let fence = fences.before(asked.as_bytes());
            prop_assert!(*fence.key <= *asked.as_bytes());
            prop_assert_eq!(fence.rank, count(&fence.key));
            prop_assert!(count(asked.as_bytes()) - fence.rank <= fences.run_len(asked.as_bytes()));
            for (rank, key) in index.iter().enumerate() {
                let fence = fences.before_rank(rank as u64);
                prop_assert_eq!(fence.rank, count(&fence.key));
                prop_assert!(*fence.key <= **key);
                prop_assert!(rank as u64 - fence.rank < 4);
                let behind = fences.behind_rank(rank as u64);
                let (end, end_rank) = behind.map_or((None, index.len() as u64), |fence| (Some(fence.key), fence.rank));
                prop_assert!(end.as_ref().is_none_or(|end| **end > **key && count(end) == end_rank));
                prop_assert!(end_rank > rank as u64);
                prop_assert!(end_rank - rank as u64 <= 4);
            }
        }
    }

    #[test]
    fn empty_runs_go_and_the_first_stays() {
        let mut fences = Fences::default();
        fences.append(b"m", 1);
        fences.remove(b"m");
        fences.remove(b"never");
        assert_eq!((fences.len(), fences.total()), (1, 0));
        fences.add(b"a");
        assert_eq!(fences.before(b"z"), Fence { key: Box::default(), rank: 0 });
    }
}
