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

/// A record of a part: its place in the index order, and its start and end in the part.
type RecordPlace = (u32, u32, u32);

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
    order: Vec<RecordPlace>,
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
        sort_with_pauses(&mut order);
        let begins_core = self.next.is_multiple_of(self.per_core);
        self.next += 1;
        Ok(Some(SortedPart { bytes, order, begins_core }))
    }
}

/// Sorts records. Pauses beside a core.
fn sort_with_pauses(order: &mut [RecordPlace]) {
    pause_if_due();
    if order.len() <= SORTED_AT_ONCE {
        return order.sort_unstable();
    }
    let middle = order.len() / 2;
    let (before, _, behind) = order.select_nth_unstable(middle);
    sort_with_pauses(before);
    sort_with_pauses(behind);
}

impl SortedPart {
    /// Iterates over the records of the part, in index order.
    pub(super) fn records(&self) -> impl Iterator<Item = Sealed<'_>> {
        let bytes = |at: &RecordPlace| &self.bytes[at.1 as usize..at.2 as usize];
        self.order.iter().filter_map(move |at| sealed::records_in(bytes(at)).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_sorted_between_pauses() {
        let mut order: Vec<RecordPlace> = (0..1_000).map(|number| (number * 7_919 % 509, number, number + 1)).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sort_with_pauses(&mut order);
        assert_eq!(order, sorted);
    }
}
