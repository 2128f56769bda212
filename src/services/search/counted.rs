//! The counts of an index while its entries are read part by part.
//!
//! A change after the last counted part needs no note, because the count will meet it. A change within the part that is
//! being read is kept until that part is counted: the part was read from an earlier view.

use super::rank_index::{Fences, RUN_LEN_MAX};
use carom_store::links::catalog::{IndexKind, View};
use carom_store::links::{StoreError, Value};

/// The counts of an index, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct CountedIndex {
    fences: Fences,
    progress: CountProgress,
    /// Changes after the counted part, since the part now being read was begun; true for an added entry.
    pending: Vec<(Vec<u8>, bool)>,
}

#[derive(Debug, Default)]
enum CountProgress {
    /// Counting has not begun.
    #[default]
    None,
    /// Everything up to and including this key is counted; the part after it may be being read.
    UpTo(Vec<u8>),
    /// Everything is counted.
    Whole,
}

impl CountedIndex {
    /// Returns the counts once everything is counted.
    pub(super) fn whole(&self) -> Option<&Fences> {
        matches!(self.progress, CountProgress::Whole).then_some(&self.fences)
    }

    /// Applies a change, if it is in the counted part. Then returns its key, and true if the key's run is too long now.
    pub(super) fn change(&mut self, key: Vec<u8>, added: bool) -> Option<(Vec<u8>, bool)> {
        match &self.progress {
            CountProgress::None => return None,
            CountProgress::UpTo(last) if key > *last => {
                self.pending.push((key, added));
                return None;
            }
            CountProgress::UpTo(_) | CountProgress::Whole => {}
        }
        if !added {
            self.fences.remove(&key);
            return Some((key, false));
        }
        let is_long = self.fences.add(&key);
        Some((key, is_long))
    }

    /// Splits the run of a key in the middle, if it is too long.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub(super) fn shorten(&mut self, view: &View, kind: IndexKind, key: &[u8]) -> Result<(), StoreError> {
        let (first, next, len) = self.fences.run(key);
        if len <= RUN_LEN_MAX {
            return Ok(());
        }
        let middle = len / 2;
        let to = match (&self.progress, next) {
            (_, Some(next)) => next.to_vec(),
            (CountProgress::UpTo(last), None) => just_behind(last),
            (_, None) => Vec::new(),
        };
        if let Some(key) = view.keys(kind, first, &to).nth(middle as usize) {
            self.fences.split(&key?, middle);
        }
        Ok(())
    }

    /// Returns the first key of the next part. From now on, changes after the counted part are kept.
    pub(super) fn begin_part(&mut self) -> Vec<u8> {
        self.pending.clear();
        if matches!(self.progress, CountProgress::None) {
            self.progress = CountProgress::UpTo(Vec::new());
        }
        match &self.progress {
            CountProgress::UpTo(last) if !last.is_empty() => just_behind(last),
            _ => Vec::new(),
        }
    }

    /// Counts a part that was read, and returns the changes that came in while it was read.
    pub(super) fn end_part(&mut self, part: &[Value], is_last: bool) -> Vec<(Vec<u8>, bool)> {
        debug_assert!(part.is_sorted_by(|one, next| **one < **next), "the fences would be out of order");
        for run in part.chunks(RUN_LEN_MAX as usize / 2) {
            self.fences.append(&run[0], run.len() as u32);
        }
        self.progress = if is_last {
            CountProgress::Whole
        } else {
            CountProgress::UpTo(part.last().map(|last| last.to_vec()).unwrap_or_default())
        };
        std::mem::take(&mut self.pending)
    }

    /// Drops the kept changes: all of them come after the counted part, so the next part has them.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }
}

/// Returns the first key after `key`.
pub(super) fn just_behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
