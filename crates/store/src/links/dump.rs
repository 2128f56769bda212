//! The whole store, section by section, as a backup has it: out of a running store as it was at one moment, and into a new one.

use std::path::Path;

use fjall::{Database, KeyspaceCreateOptions, PersistMode, Readable};

use super::catalog::{self, View};
use super::{Index, Links, StoreError, StoredRecord, ends, history, link_options, urls, visits};
use crate::backup::Section;

/// How a keyspace is made.
type Options = fn() -> KeyspaceCreateOptions;

/// How the keyspace of a section is made; `None` for what is not in the store.
fn options_of(section: Section) -> Option<Options> {
    Some(match section {
        Section::Links => link_options,
        Section::Urls => urls::options,
        Section::Ends => ends::options,
        Section::Dates | Section::Tags => catalog::options,
        Section::Visits => visits::options,
        Section::Meta | Section::Allowances | Section::Fleet | Section::History => KeyspaceCreateOptions::default,
        Section::VisitLogs => return None,
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
            Section::VisitLogs => return None,
        })
    }
}

impl View {
    /// Gives every record of a section to `each`, in the order of their keys, until it says `false`.
    ///
    /// # Errors
    /// Where one cannot be read: those behind it are not given either.
    pub fn dump(&self, section: Section, mut each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        let keyspace = self.links().keyspace(section);
        for guard in keyspace.into_iter().flat_map(|keyspace| self.snapshot().iter(keyspace)) {
            let (key, value) = guard.into_inner()?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

/// A store that is made of a backup.
pub struct NewStore {
    db: Database,
}

impl std::fmt::Debug for NewStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewStore")
    }
}

impl NewStore {
    /// Begins one in a folder that is not there yet.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn begin(dir: &Path) -> Result<NewStore, StoreError> {
        Ok(NewStore { db: Database::builder(dir).worker_threads(1).open()? })
    }

    /// Adds all records of a section, in the order of their keys, durably. `next` gives one after the other.
    ///
    /// # Errors
    /// What `next` says, or the store.
    ///
    /// # Panics
    /// When a key does not follow the one before it.
    pub fn fill<E: From<StoreError>>(
        &self,
        section: Section,
        mut next: impl FnMut() -> Result<Option<StoredRecord>, E>,
    ) -> Result<(), E> {
        let Some(options) = options_of(section) else { return Ok(()) };
        let keyspace = self.db.keyspace(section.name(), options).map_err(StoreError::from)?;
        let mut ingestion = keyspace.start_ingestion().map_err(StoreError::from)?;
        let mut is_empty = true;
        while let Some((key, value)) = next()? {
            ingestion.write(key, value).map_err(StoreError::from)?;
            is_empty = false;
        }
        // The library takes nothing for a mistake.
        if !is_empty {
            ingestion.finish().map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// Makes all of it durable.
    ///
    /// # Errors
    /// After one, nobody knows what of it is on disk.
    pub fn end(self) -> Result<(), StoreError> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

/// Whether a record of what is neither a link nor an index is what was once written.
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
        // What a node remembers of others is read anew from them where it is not what was written.
        _ => true,
    }
}

/// What a store that is made of a backup must know before it gives out codes.
impl Links {
    /// Raises the marks that no counter may fall below: by so many values each, as far as there are codes of that length.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn raise_high_water(&self, by: u64, lengths: &[(usize, u64)]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        for &(length, codes) in lengths {
            batch.set_high_water(length, self.high_water(length)?.saturating_add(by).min(codes));
        }
        self.commit(batch)?;
        self.sync()
    }

    /// Takes the word back that indexes are complete: the next start makes them.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn doubt_indexes(&self, indexes: &[Index]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        indexes.iter().for_each(|index| batch.unset_index(*index));
        self.commit(batch)?;
        self.sync()
    }
}
