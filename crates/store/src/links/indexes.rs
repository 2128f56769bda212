//! Which indexes beside the links are complete. One that an earlier version of the program did not know is made at the next
//! start (`control::indexes`).

use super::{Batch, Links, StoreError, sealed, unsealed};

/// An index with entries for links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// By what links lead to ([`super::urls`]).
    Urls,
    /// By when they end ([`super::ends`]).
    Ends,
    /// By when they were made, and by their tags ([`super::catalog`]).
    Lists,
}

impl Index {
    /// All of them.
    pub const ALL: [Index; 3] = [Index::Urls, Index::Ends, Index::Lists];

    /// The form of its entries. One in another form is missing.
    fn format(self) -> u64 {
        match self {
            Index::Urls => 1,
            // Entries are those of the first. The second is marked by versions that keep a change log: one that does not
            // makes this index anew and marks it as the first, which shows that it may have changed links.
            Index::Ends => 2,
            // The first had entries without marks.
            Index::Lists => 2,
        }
    }

    /// Where it is noted that every link has its entries.
    fn mark(self) -> &'static str {
        match self {
            Index::Urls => "urls",
            Index::Ends => "ends",
            Index::Lists => "catalog",
        }
    }
}

/// The form of the index of ends in versions that keep no change log.
const ENDS_WITHOUT_LOG: u64 = 1;

/// The index that a mark in the store says is complete; none where it is no such mark, or one of another form.
pub fn complete_index(key: &[u8], value: &[u8]) -> Option<Index> {
    let index = Index::ALL.into_iter().find(|index| index.mark().as_bytes() == key)?;
    let is_complete = |format| format == index.format() || index == Index::Ends && format == ENDS_WITHOUT_LOG;
    unsealed(index.mark(), value).is_ok_and(is_complete).then_some(index)
}

impl Batch {
    /// Notes that it is not known whether every link has its entries in an index.
    pub fn unset_index(&mut self, index: Index) {
        self.inner.remove(&self.meta, index.mark());
    }

    /// Notes that every link has its entries in an index.
    pub fn set_index(&mut self, index: Index) {
        self.inner.insert(&self.meta, index.mark(), sealed(index.mark(), index.format()));
    }
}

impl Links {
    /// Whether every link has its entries in an index.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn has_index(&self, index: Index) -> Result<bool, StoreError> {
        let stored = self.meta.get(index.mark())?;
        Ok(stored.is_some_and(|stored| complete_index(index.mark().as_bytes(), &stored) == Some(index)))
    }

    /// Marks the store as one whose commits are in the change log. Returns whether a version without a log had it before.
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

    /// Makes the store like one of an earlier version, for tests.
    ///
    /// # Errors
    /// If the store fails.
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
