//! The marks of complete indexes. The next start builds an index that an earlier version of the program did not know
//! (`services::maintenance::index_builder`).

use super::handles::{Batch, Links, sealed, unsealed};
use crate::error::StoreError;

/// An index whose entries belong to links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// Links by destination ([`super::urls`]).
    Urls,
    /// Links by expiry ([`super::ends`]).
    Ends,
    /// Links by creation time and by tag ([`super::catalog`]).
    Lists,
}

impl Index {
    /// All indexes.
    pub const ALL: [Index; 3] = [Index::Urls, Index::Ends, Index::Lists];

    /// Returns the format version of the entries. An index in another format counts as missing.
    fn format(self) -> u64 {
        match self {
            // In version 1, links of a destination were not adjacent.
            Index::Urls => 2,
            // The entries are the same in versions 1 and 2. Programs with a change log write the mark 2. A program
            // without one rebuilds this index and writes the mark 1, which shows that it may have changed links.
            Index::Ends => 2,
            // Version 1 had entries without marks.
            Index::Lists => 2,
        }
    }

    /// Returns the key of the mark that every link has its entries.
    fn mark(self) -> &'static str {
        match self {
            Index::Urls => "urls",
            Index::Ends => "ends",
            Index::Lists => "catalog",
        }
    }
}

/// The format version of the index of ends in programs without a change log.
const ENDS_WITHOUT_LOG: u64 = 1;

/// Returns the index that a mark in the store declares complete; `None` for another key, or a mark in another format.
pub fn complete_index(key: &[u8], value: &[u8]) -> Option<Index> {
    let index = Index::ALL.into_iter().find(|index| index.mark().as_bytes() == key)?;
    let is_complete = |format| format == index.format() || index == Index::Ends && format == ENDS_WITHOUT_LOG;
    unsealed(index.mark(), value).is_ok_and(is_complete).then_some(index)
}

impl Batch {
    /// Marks an index as possibly incomplete.
    pub(super) fn unset_index(&mut self, index: Index) {
        self.inner.remove(&self.meta, index.mark());
    }

    /// Marks an index as complete: every link has its entries.
    pub fn set_index(&mut self, index: Index) {
        self.inner.insert(&self.meta, index.mark(), sealed(index.mark(), index.format()));
    }
}

impl Links {
    /// True if an index is complete.
    ///
    /// # Errors
    /// [`StoreError`] if the mark cannot be read.
    pub fn has_index(&self, index: Index) -> Result<bool, StoreError> {
        let stored = self.meta.get(index.mark())?;
        Ok(stored.is_some_and(|stored| complete_index(index.mark().as_bytes(), &stored) == Some(index)))
    }

    /// Marks the store as one whose commits are in the change log. Returns true if a version without a log wrote the
    /// store last.
    pub(super) fn marks_log_writer(&self) -> Result<bool, StoreError> {
        let mark = Index::Ends.mark();
        let Some(stored) = self.meta.get(mark)? else { return Ok(false) };
        if unsealed(mark, &stored).ok() != Some(ENDS_WITHOUT_LOG) {
            return Ok(false);
        }
        let mut batch = self.batch();
        batch.set_index(Index::Ends);
        self.commit(batch)?;
        Ok(true)
    }

    /// Makes the store look like one of an earlier version, for tests.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    #[doc(hidden)]
    pub fn forget_index(&self, index: Index) -> Result<(), StoreError> {
        let keyspaces = match index {
            Index::Urls => vec![&self.urls],
            Index::Ends => vec![&self.ends],
            Index::Lists => vec![&self.dates, &self.tags],
        };
        let mut batch = self.batch();
        for keyspace in keyspaces {
            for guard in keyspace.iter() {
                batch.inner.remove(keyspace, guard.key()?);
            }
        }
        batch.inner.remove(&self.meta, index.mark());
        self.commit(batch)?;
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_store_has_nothing_to_index_and_what_is_forgotten_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        for index in Index::ALL {
            assert!(links.has_index(index).unwrap());
            links.forget_index(index).unwrap();
            assert!(!links.has_index(index).unwrap());
        }
        let mut batch = links.batch();
        batch.set_index(Index::Ends);
        links.commit(batch).unwrap();
        assert_eq!(Index::ALL.map(|index| links.has_index(index).unwrap()), [false, true, false]);
    }
}
