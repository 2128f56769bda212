//! The store by sections, as in a backup: read from a snapshot of a running store, and written to a new one.

use std::ops::Bound;
use std::path::Path;

use fjall::{Database, KeyspaceCreateOptions, PersistMode, Readable};

use super::catalog::{self, View};
use super::{Index, Links, StoreError, ends, history, link_options, urls, visits};
use crate::backup::Section;

/// A function that returns the options of a keyspace.
type KeyspaceOptions = fn() -> KeyspaceCreateOptions;

/// A function that adds the next record to a section of a [`NewStore`].
pub type AddRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'a;

/// Returns the options of the keyspace of a section; `None` for a section outside the store.
fn options_of(section: Section) -> Option<KeyspaceOptions> {
    Some(match section {
        Section::Links => link_options,
        Section::Urls => urls::options,
        Section::Ends => ends::options,
        Section::Dates | Section::Tags => catalog::options,
        Section::Visits => visits::options,
        Section::Meta | Section::Allowances | Section::Fleet | Section::History => KeyspaceCreateOptions::default,
        Section::CountLogs | Section::VisitLog => return None,
    })
}

impl Links {
    fn keyspace(&self, section: Section) -> Option<&fjall::Keyspace> {
        Some(match section {
            Section::Meta => &self.meta,
            Section::Links => &self.links,
            Section::Urls => &self.urls,
            Section::Ends => &self.ends,
            Section::Dates => &self.dates,
            Section::Tags => &self.tags,
            Section::Allowances => &self.allowances,
            Section::Visits => &self.visits,
            Section::Fleet => &self.fleet,
            Section::History => &self.history,
            Section::CountLogs | Section::VisitLog => return None,
        })
    }
}

impl View {
    /// Passes every record of a section to `each`, in the order of their keys, until it returns false.
    ///
    /// # Errors
    /// [`StoreError`] if a record cannot be read; later records are not passed on then.
    pub fn dump(&self, section: Section, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        self.dump_after(section, b"", each)
    }

    /// Passes the records of a section behind a key to `each`, in the order of their keys, until it returns false. An
    /// empty key means all records.
    ///
    /// # Errors
    /// [`StoreError`] if a record cannot be read; later records are not passed on then.
    pub fn dump_after(
        &self,
        section: Section,
        behind: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let Some(keyspace) = self.links().keyspace(section) else { return Ok(()) };
        let from = if behind.is_empty() { Bound::Unbounded } else { Bound::Excluded(behind) };
        for guard in self.snapshot().range::<&[u8], _>(keyspace, (from, Bound::<&[u8]>::Unbounded)) {
            let (key, value) = guard.into_inner()?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the approximate number of records of a section, without counting them.
    pub fn approximate_records(&self, section: Section) -> u64 {
        self.links().keyspace(section).map_or(0, |keyspace| keyspace.approximate_len() as u64)
    }
}

/// A store that is created from a backup.
pub struct NewStore {
    db: Database,
}

impl std::fmt::Debug for NewStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewStore")
    }
}

impl NewStore {
    /// Creates an empty store in a new folder.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be created.
    pub fn begin(dir: &Path) -> Result<NewStore, StoreError> {
        Ok(NewStore { db: Database::builder(dir).worker_threads(1).open()? })
    }

    /// Adds all records of a section durably. `pass` gets a function that adds a record, and calls it for each of them in
    /// the order of their keys.
    ///
    /// # Errors
    /// The error of `pass` or of the store.
    ///
    /// # Panics
    /// If the keys are not in order.
    pub fn fill<E: From<StoreError>>(
        &self,
        section: Section,
        pass: impl FnOnce(&mut AddRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(options) = options_of(section) else { return Ok(()) };
        let keyspace = self.db.keyspace(section.name(), options).map_err(StoreError::from)?;
        let mut ingestion = keyspace.start_ingestion().map_err(StoreError::from)?;
        let mut is_empty = true;
        pass(&mut |key, value| {
            is_empty = false;
            ingestion.write(key, value).map_err(StoreError::from)
        })?;
        // The library treats an empty ingestion as a mistake.
        if !is_empty {
            ingestion.finish().map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// Makes the whole store durable.
    ///
    /// # Errors
    /// [`StoreError`]; the state on disk is unknown then.
    pub fn end(self) -> Result<(), StoreError> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

/// True if a record outside the links and their indexes is well-formed.
pub fn is_sound(section: Section, key: &[u8], value: &[u8]) -> bool {
    match section {
        Section::Meta => {
            let is_text = |text: &[u8]| std::str::from_utf8(text).is_ok();
            let sealed = std::str::from_utf8(key).map(|key| super::unsealed(key, value).is_ok());
            if key == b"key_fingerprint" { is_text(value) } else { sealed.unwrap_or(false) }
        }
        Section::Allowances => super::allowances::is_sound(key, value),
        Section::Visits => visits::is_sound(key, value),
        Section::History => history::is_sound(key, value),
        // Unreadable replication state is requested from other nodes again.
        _ => true,
    }
}

/// Preparations of a store that was created from a backup, before it issues codes.
impl Links {
    /// Raises the high-water marks of the counters by this many values each, but never above the number of codes of
    /// that length.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn raise_high_water(&self, by: u64, lengths: &[(usize, u64)]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        for &(length, codes) in lengths {
            batch.set_high_water(length, self.high_water(length)?.saturating_add(by).min(codes));
        }
        self.commit(batch)?;
        self.sync()
    }

    /// Marks indexes as incomplete, so that the next start rebuilds them.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn mark_indexes_incomplete(&self, indexes: &[Index]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        indexes.iter().for_each(|index| batch.unset_index(*index));
        self.commit(batch)?;
        self.sync()
    }
}
