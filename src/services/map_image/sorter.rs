//! Sorts the records of an image by owner, and within an owner in the order of its index. No threads, no policy.
//!
//! Each part is a range of that order. Records go to their part of a [`Spill`]. Then one part after the other is read
//! back and sorted in memory. So the size of a part and the number of buffers bound the memory.

use std::io;
use std::path::Path;

use carom_shards::map::sealed::{self, Sealed, index_order, index_order_max};
use carom_shards::{Code, CodeHasher, CoreCount, CoreId, MapEntry, owner};

use crate::services::derived::spill::Spill;
use crate::services::threads::priority::{PacedLoop, pause_if_due};
use carom_limits::{IMAGE_PART_BYTES, IMAGE_PARTS_MAX};

/// Number of records that are sorted without a pause: some 100 µs of work.
const SORTED_AT_ONCE: usize = if cfg!(test) { 4 } else { 4_096 };

/// Number of records that are merged without a look at the clock.
const MERGED_AT_ONCE: usize = 32;

/// A record of a part: its place in the index order, and its start and end in the part.
type SortEntry = (u32, u32, u32);

/// The records of an image, before and while they are sorted.
#[derive(Debug)]
pub(super) struct Sorter {
    spill: Spill,
    hasher: CodeHasher,
    cores: CoreCount,
    /// Approximate number of links of a core.
    links: usize,
    /// Number of parts of a core.
    per_core: usize,
    /// The number of the next part to sort.
    next: usize,
}

/// A sorted part.
#[derive(Debug)]
pub(super) struct SortedPart {
    bytes: Vec<u8>,
    /// The records in order.
    order: Vec<SortEntry>,
    /// True if its records are the first ones of a core.
    pub(super) begins_core: bool,
}

impl Sorter {
    /// Begins to sort about `links` records of about `record_bytes` bytes each. The file is created beside `path` and
    /// unlinked at once.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn new(
        path: &Path,
        hasher: CodeHasher,
        cores: CoreCount,
        links: usize,
        record_bytes: u64,
    ) -> io::Result<Sorter> {
        let wanted = (links as u64 * record_bytes).div_ceil(IMAGE_PART_BYTES).min(IMAGE_PARTS_MAX) as usize;
        let per_core = wanted.div_ceil(cores.get()).max(1);
        let spill = Spill::new(path, per_core * cores.get(), sealed::RECORD_BYTES_MAX)?;
        Ok(Sorter { spill, hasher, cores, links: links / cores.get(), per_core, next: 0 })
    }

    fn place(&self, code: &Code) -> (CoreId, u32) {
        let hash = self.hasher.hash(code);
        (owner(hash, self.cores), index_order(hash, self.links))
    }

    /// Adds an entry. Returns the number of bytes written to the file for it.
    pub(super) fn push(&mut self, code: &Code, entry: &MapEntry<'_>) -> io::Result<usize> {
        let (core, order) = self.place(code);
        let orders = u64::from(index_order_max(self.links)) + 1;
        let within = (u64::from(order) * self.per_core as u64 / orders) as usize;
        assert!(within < self.per_core, "the record would go to another core");
        assert_eq!(self.next, 0, "the part of the record may have been written already");
        self.spill.push(core.index() * self.per_core + within, |records| sealed::append(records, code, entry))
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.spill.sync()
    }

    /// Returns the next part in order; `None` after the last one.
    pub(super) fn next_part(&mut self) -> io::Result<Option<SortedPart>> {
        if self.next == self.spill.parts() {
            return Ok(None);
        }
        let bytes = self.spill.take(self.next)?;
        if u32::try_from(bytes.len()).is_err() {
            return Err(io::Error::other(format!("{} bytes are too many to be sorted at once", bytes.len())));
        }
        let (mut order, mut at, mut paced) = (Vec::new(), 0, PacedLoop::default());
        for record in sealed::records_in(&bytes) {
            paced.step();
            let code = record.code().ok_or_else(|| io::Error::other("a record that was sorted has no valid code"))?;
            let end = at + record.bytes().len();
            order.push((self.place(&code).1, at as u32, end as u32));
            at = end;
        }
        sort_with_pauses(&mut order, pause_if_due);
        let begins_core = self.next.is_multiple_of(self.per_core);
        self.next += 1;
        Ok(Some(SortedPart { bytes, order, begins_core }))
    }
}

/// Sorts records: short runs first, which are then merged two by two. Calls `pause` after some 100 µs of work at the
/// latest, so that a core beside the thread need not wait for a pass over all records.
fn sort_with_pauses<T: Ord + Copy>(order: &mut Vec<T>, mut pause: impl FnMut()) {
    for run in order.chunks_mut(SORTED_AT_ONCE) {
        pause();
        run.sort_unstable();
    }
    let (mut run_len, mut merged) = (SORTED_AT_ONCE, Vec::new());
    while run_len < order.len() {
        merged.clear();
        merged.reserve_exact(order.len());
        for runs in order.chunks(run_len * 2) {
            let (mut one, mut other) = runs.split_at(run_len.min(runs.len()));
            while let (Some(first), Some(second)) = (one.first(), other.first()) {
                if merged.len().is_multiple_of(MERGED_AT_ONCE) {
                    pause();
                }
                let from = if first <= second { &mut one } else { &mut other };
                merged.push(from[0]);
                *from = &from[1..];
            }
            for rest in one.chunks(SORTED_AT_ONCE).chain(other.chunks(SORTED_AT_ONCE)) {
                pause();
                merged.extend_from_slice(rest);
            }
        }
        std::mem::swap(order, &mut merged);
        run_len *= 2;
    }
}

impl SortedPart {
    /// Iterates over the records of the part, in index order.
    pub(super) fn records(&self) -> impl Iterator<Item = Sealed<'_>> {
        let bytes = |at: &SortEntry| &self.bytes[at.1 as usize..at.2 as usize];
        self.order.iter().filter_map(move |at| sealed::records_in(bytes(at)).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::cmp::Ordering;

    /// A number that counts its comparisons.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Counted(u32);

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Counted) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Counted) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn records_are_sorted_between_pauses() {
        for len in [0, 1, 3, 4, 5, 8, 9, 1_000] {
            let mut order: Vec<Counted> = (0..len).map(|number| Counted(number * 7_919 % 509)).collect();
            let mut sorted: Vec<u32> = order.iter().map(|of| of.0).collect();
            sorted.sort_unstable();
            let mut most = 0;
            let mut look = || most = COMPARED.replace(0).max(most);
            look();
            sort_with_pauses(&mut order, &mut look);
            look();
            assert!(order.iter().map(|of| of.0).eq(sorted));
            assert!(most <= 2 * MERGED_AT_ONCE, "{most} comparisons without a pause, for {len} records");
        }
    }
}
