//! The store of links on disk. The only module that names fjall.
//!
//! The store has twelve keyspaces, and two more for events ([`events`]):
//!
//! * `links`: one record for each code, by its ASCII form.
//! * `urls`: the codes of a destination.
//! * `ends`: the links by expiry.
//! * `dates` and `tags`: the indexes for lists.
//! * `allowances`: the visits that limited links have left.
//! * `visits`: visit counts.
//! * `history`: edits of links and their authors.
//! * `idempotency`: the link that was created with an idempotency key.
//! * `meta`: the format, the fingerprint of the code secret, and for each code length the high-water mark of its
//!   counter.
//! * `fleet`: the replication state of a fleet node: its outbox, its position in each stream, and the codes whose state
//!   it cannot decode.
//! * `changes`: the codes that each commit changed.
//!
//! Readers see a commit at once; it is durable after [`Links::sync`]. The meaning of a record is in
//! [`carom_model::link::record`]. All methods may block on the disk: services call them, and cores never do. The caller
//! must ensure that a single thread writes the records of links.

mod allowances;
pub mod catalog;
mod changes;
pub mod dump;
mod ends;
mod errors;
mod event_log;
pub mod events;
mod fleet;
mod handles;
mod history;
mod idempotency;
mod indexes;
mod keyspace_options;
mod log_entry;
mod manifests;
mod merging;
mod open_views;
mod purging;
mod rewriting;
mod unread;
mod urls;
mod visits;

use std::cell::Cell;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carom_shards::Code;
use carom_shards::code::{ALPHABET, CODE_KEY_LEN_MAX};
use fjall::config::{BlockSizePolicy, BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice};

pub use self::allowances::AllowancePage;
pub use self::changes::{ChangesSince, LogPosition};
pub use self::ends::{EndKind, is_quarantine_entry, stored_end};
use self::event_log::EventLog;
pub use self::fleet::value_for_joining_node;
pub use self::handles::{Batch, Links, Value};
use self::handles::{sealed, unsealed};
pub use self::indexes::{Index, complete_index};
use self::keyspace_options::{deep_compression, partitioned_options};
use self::log_entry::LoggedCodes;
pub use self::purging::LinksInEvents;
pub use self::unread::UnreadState;
pub use self::urls::{UrlUse, stored_url};
pub use self::visits::{Ended, RowPlace, VisitRow, VisitRowPage};
pub use super::error::StoreError;
use super::journal::mark::SyncedMark;
use super::journal::repair::{Repair, repair_all};
use super::search::{bisect, from_position, gallop, position};
use carom_limits::store_files;
pub use carom_model::link::record::DamagedRange;

/// The format version of the directory.
const FORMAT: u64 = 1;

/// Cache for blocks, in bytes. Blocks are rarely read twice: redirects come from memory, and filters answer look-ups of
/// new codes. So the cache holds little more than parts of filters and indexes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// Size of a memtable, in bytes. A crash leaves about two of these to replay, which takes half a second.
const MEMTABLE_BYTES: u64 = 32 * 1024 * 1024;

/// Size of all journals together, in bytes: the least that the library accepts.
const JOURNALS_BYTES: u64 = 64 * 1024 * 1024;

/// Size of a data block, in bytes. A scan costs time for each block, a look-up for each byte of a block. Users wait for
/// scans.
const BLOCK_BYTES: u32 = 16 * 1024;

/// Bits of the filter for each code. Of 1,000 new codes, about 8 cause a read.
const FILTER_BITS: f32 = 10.0;

/// A key and a record, owned.
pub type StoredRecord = (Vec<u8>, Vec<u8>);

impl Batch {
    /// Sets the record of a code. A batch may contain at most one write for each code.
    pub fn put(&mut self, code: &Code, record: &[u8]) {
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        let key = code.key(&mut buffer);
        self.inner.insert(&self.links, key, record);
        self.changed.push(key);
    }

    /// Removes the record of a code.
    pub fn remove(&mut self, code: &Code) {
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        let key = code.key(&mut buffer);
        self.inner.remove(&self.links, Slice::from(key));
        self.changed.push(key);
    }

    /// Sets the high-water mark of the counter for codes of this length.
    pub fn set_high_water(&mut self, code_len: usize, value: u64) {
        let key = high_water_key(code_len);
        self.inner.insert(&self.meta, key.as_str(), sealed(&key, value));
    }

    /// True if the batch contains no writes.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

/// A partition of the codes: all codes with the same first character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange(u8);

impl KeyRange {
    /// True if the whole partition sorts before a key.
    pub fn is_before(self, key: &[u8]) -> bool {
        key.first().is_some_and(|&first| self.0 < first)
    }
}

/// Returns all partitions, in the order of their keys.
pub fn key_ranges() -> Vec<KeyRange> {
    let mut firsts = *ALPHABET;
    firsts.sort_unstable();
    firsts.map(KeyRange).to_vec()
}

impl Links {
    /// Opens the store in `dir`, or creates it, and returns the repairs that were necessary. `fingerprint` identifies
    /// the code secret; the store keeps it to detect another secret.
    ///
    /// # Errors
    /// [`StoreError`]; apart from repaired journals, nothing is changed then.
    pub fn open(dir: &Path, fingerprint: &str) -> Result<(Links, Vec<Repair>), StoreError> {
        let repairs = repair_all(dir).map_err(|error| {
            StoreError::Failed(format!("a journal in {} cannot be checked: {error}", dir.display()))
        })?;
        manifests::check(dir)?;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let db = Database::builder(dir)
            .max_cached_files(usize::try_from(store_files(files)).ok())
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNALS_BYTES)
            .journal_compression(CompressionType::None)
            // Of two threads, one would spin while the other compacts. A flush may wait for a compaction: writers
            // continue until four memtables are full.
            .worker_threads(1)
            .open()?;
        let links = db.keyspace("links", link_options)?;
        let urls = db.keyspace("urls", urls::options)?;
        let ends = db.keyspace("ends", ends::options)?;
        let (dates, tags) = (db.keyspace("dates", catalog::options)?, db.keyspace("tags", catalog::options)?);
        let allowances = db.keyspace("allowances", KeyspaceCreateOptions::default)?;
        let visits = db.keyspace("visits", visits::options)?;
        let history = db.keyspace("history", KeyspaceCreateOptions::default)?;
        let meta = db.keyspace("meta", KeyspaceCreateOptions::default)?;
        let fleet = db.keyspace("fleet", KeyspaceCreateOptions::default)?;
        let changes = db.keyspace("changes", changes::options)?;
        let idempotency = db.keyspace("idempotency", KeyspaceCreateOptions::default)?;
        let first_end_ms = Arc::new(AtomicU64::new(u64::MAX));
        let (commits, has_marks) = (Arc::default(), Arc::default());
        let mark = SyncedMark::open(dir).map(Arc::new).map_err(|error| {
            StoreError::Failed(format!("the sync position in {} cannot be opened: {error}", dir.display()))
        })?;
        let store = Links {
            db,
            links,
            urls,
            ends,
            dates,
            tags,
            allowances,
            visits,
            history,
            meta,
            fleet,
            changes,
            log_end: Arc::default(),
            mark,
            idempotency,
            events: Arc::default(),
            commits,
            views: Arc::default(),
            has_marks,
            first_end_ms,
        };
        store.has_marks.store(!store.unread_page(None, 1)?.is_empty(), Ordering::Release);
        store.check_meta(fingerprint)?;
        store.open_log(!repairs.is_empty())?;
        // A process that was killed may have left whole batches without a sync.
        store.sync()?;
        Ok((store, repairs))
    }

    fn check_meta(&self, fingerprint: &str) -> Result<(), StoreError> {
        match self.meta.get("format")? {
            None => {
                let mut batch = self.batch();
                batch.inner.insert(&self.meta, "format", sealed("format", FORMAT));
                batch.inner.insert(&self.meta, "key_fingerprint", fingerprint);
                Index::ALL.into_iter().for_each(|index| batch.set_index(index));
                self.commit(batch)?;
                return self.sync();
            }
            Some(value) => match unsealed("format", &value)? {
                FORMAT => {}
                found => {
                    return Err(StoreError::OtherFormat(format!(
                        "found {found}, expected {FORMAT}; use the version of carom that wrote it"
                    )));
                }
            },
        }
        match self.meta.get("key_fingerprint")? {
            Some(stored) if *stored == *fingerprint.as_bytes() => Ok(()),
            _ => Err(StoreError::OtherCodeSecret),
        }
    }

    /// Returns the record of a code.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the block that would contain it cannot be read.
    pub fn get(&self, code: &Code) -> Result<Option<Value>, StoreError> {
        Ok(self.links.get(code.key(&mut [0; CODE_KEY_LEN_MAX]))?.map(Value))
    }

    /// Creates an empty batch.
    pub fn batch(&self) -> Batch {
        Batch {
            inner: self.db.batch(),
            links: self.links.clone(),
            urls: self.urls.clone(),
            allowances: self.allowances.clone(),
            visits: self.visits.clone(),
            ends: self.ends.clone(),
            dates: self.dates.clone(),
            tags: self.tags.clone(),
            meta: self.meta.clone(),
            fleet: self.fleet.clone(),
            changed: LoggedCodes::default(),
            marks: false,
            idempotency: self.idempotency.clone(),
            events: Vec::new(),
            first_end_ms: u64::MAX,
        }
    }

    /// Makes a batch visible to readers. It is durable after the next [`Links::sync`].
    ///
    /// # Errors
    /// [`StoreError`]; the state of the batch on disk is unknown then, and the store refuses all further writes.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let first_end_ms = batch.first_end_ms;
        debug_assert!(batch.changed.is_distinct(), "one of two writes of a code in one batch would be lost");
        if batch.marks {
            // Before the mark is visible, so that no reader misses it.
            self.has_marks.store(true, Ordering::Release);
        }
        self.commit_logged(batch)?;
        // Only after the commit is visible, so that a thread that sees the new value finds the link.
        if first_end_ms < self.first_end_ms.load(Ordering::Relaxed) {
            self.first_end_ms.fetch_min(first_end_ms, Ordering::AcqRel);
        }
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns the number of commits since the store was opened. A thread that reads the number and then the store sees
    /// all of these commits. The number after a commit includes that commit.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Adds many records that the store lacks, in the order of their keys, durably and without the journal, for
    /// imports. No other thread may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; the store has none of the records then.
    ///
    /// # Panics
    /// If the keys are not in order.
    pub fn ingest<'a>(&self, sorted: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<(), StoreError> {
        // The records are too many for the change log, and are no events.
        self.reset_log()?;
        self.suspend_events()?;
        let mut ingestion = self.links.start_ingestion()?;
        for (key, record) in sorted {
            ingestion.write(key, record)?;
        }
        Ok(ingestion.finish()?)
    }

    /// Makes all commits so far durable (`fdatasync`), and moves the synced mark. Blocks the thread for the time of a
    /// sync.
    ///
    /// # Errors
    /// [`StoreError`]; the state on disk is unknown then, and the store refuses all further writes.
    pub fn sync(&self) -> Result<(), StoreError> {
        let appended = self.events.get().map_or(0, EventLog::last);
        self.mark.run_sync(|| Ok::<_, StoreError>(self.db.persist(PersistMode::SyncData)?))?;
        if let Some(log) = self.events.get() {
            log.set_synced(appended);
        }
        Ok(())
    }

    /// Makes the synced mark itself durable, if it has moved. For background threads.
    ///
    /// # Errors
    /// The error of the disk. The mark on disk is then an older one, which covers fewer acknowledged writes.
    pub fn flush_mark(&self) -> io::Result<()> {
        self.mark.flush()
    }

    /// Returns the high-water mark of the counter for codes of this length; 0 before the first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it cannot be read.
    pub fn high_water(&self, code_len: usize) -> Result<u64, StoreError> {
        let key = high_water_key(code_len);
        self.meta.get(&key)?.map_or(Ok(0), |value| unsealed(&key, &value))
    }

    /// Returns up to `count` records after a key, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a block with some of them cannot be read.
    pub fn page(&self, behind: &[u8], count: usize) -> Result<Vec<StoredRecord>, StoreError> {
        let range = (Bound::Excluded(behind), Bound::<&[u8]>::Unbounded);
        let mut page = Vec::with_capacity(count);
        for guard in self.links.range::<&[u8], _>(range).take(count) {
            let (key, value) = guard.into_inner()?;
            page.push((key.to_vec(), value.to_vec()));
        }
        Ok(page)
    }

    /// Returns the approximate number of records, without counting them. It includes every write and every removal
    /// since the last compaction.
    pub fn approximate_len(&self) -> usize {
        self.links.approximate_len()
    }

    /// Passes every record of a partition to `each`, in the order of their keys, and returns the unreadable ranges.
    /// `each` returns false to end the scan.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read.
    pub fn scan(
        &self,
        part: KeyRange,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<DamagedRange>, StoreError> {
        self.scan_after(part, &[], each)
    }

    /// Scans a partition like [`Links::scan`], but starts after a key, if the key is in the partition.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read.
    pub fn scan_after(
        &self,
        part: KeyRange,
        behind: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<DamagedRange>, StoreError> {
        let end = [part.0 + 1];
        // A scan takes long, and its iterator keeps removed data on disk like a view.
        let _open = self.views.open(|| self.db.visible_seqno());
        let mut damaged = Vec::new();
        let (mut last, mut from) = match behind.first() {
            Some(&first) if first == part.0 => (behind.to_vec(), Bound::Excluded(behind.to_vec())),
            _ => (vec![part.0], Bound::Included(vec![part.0])),
        };
        let ended = Cell::new(false);
        let mut each = |key: &[u8], value: &[u8]| {
            ended.set(!each(key, value));
            !ended.get()
        };
        loop {
            match self.run(&from, Bound::Excluded(&end), &mut last, &mut each) {
                Ok(()) => return Ok(damaged),
                Err(StoreError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
            // After an error, the iterator of the library silently skips the rest of the damaged file. So the scan
            // drops it, searches for the end of the damage, and restarts there.
            if last.len() > 1 {
                from = Bound::Excluded(last.clone());
            }
            let edge = self.last_readable(&from, position(&last), &end);
            self.run(&from, Bound::Included(&from_position(edge)), &mut last, &mut each)?;
            if ended.get() {
                return Ok(damaged);
            }
            // A range that ends with the last key of a block makes the library read the next block, too. So a look-up
            // reads this key. Positions have 16 characters, so the last of several longer slugs may be missed.
            let next = from_position(edge + 1);
            if let Ok(Some(value)) = self.links.get(&next) {
                last.clone_from(&next);
                if !each(&next, &value) {
                    return Ok(damaged);
                }
            }
            let behind = Links::first_readable(&self.links, edge + 1, &end);
            let before = behind.as_ref().and_then(|(_, key)| key.as_deref().map(text));
            damaged.push(DamagedRange { after: text(&last), before });
            match behind {
                Some((start, Some(_))) => from = Bound::Included(from_position(start)),
                _ => return Ok(damaged),
            }
        }
    }

    /// Passes the records of a range to `each` until one cannot be read, or `each` returns false. Sets `last` to the
    /// last key that was passed.
    fn run(
        &self,
        from: &Bound<Vec<u8>>,
        to: Bound<&[u8]>,
        last: &mut Vec<u8>,
        each: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        for guard in self.links.range::<&[u8], _>((from.as_ref().map(Vec::as_slice), to)) {
            let (key, value) = guard.into_inner()?;
            last.clear();
            last.extend_from_slice(&key);
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the largest position up to which, inclusively, the range from `from` is readable.
    fn last_readable(&self, from: &Bound<Vec<u8>>, start: u128, end: &[u8]) -> u128 {
        let readable =
            |to: u128| self.run(from, Bound::Included(&from_position(to)), &mut Vec::new(), &mut |_, _| true).is_ok();
        let (good, bad) = gallop(start, position(end), |to| !readable(to));
        bisect(good, bad, |to| !readable(to))
    }

    /// Returns the smallest position after `start` from which a range of a keyspace is readable, and the first key there.
    fn first_readable(of: &Keyspace, start: u128, end: &[u8]) -> Option<(u128, Option<Vec<u8>>)> {
        let first = |from: u128| -> Result<Option<Vec<u8>>, StoreError> {
            let range = (Bound::Included(from_position(from)), Bound::Excluded(end.to_vec()));
            match of.range(range).next() {
                Some(guard) => Ok(Some(guard.into_inner()?.0.to_vec())),
                None => Ok(None),
            }
        };
        let (bad, good) = gallop(start, position(end), |from| first(from).is_ok());
        let edge = bisect(bad, good, |from| first(from).is_ok()).saturating_add(1);
        first(edge).ok().map(|key| (edge, key))
    }

    /// Returns the bytes that are only in memory and the journal, and that a flush will write to tables.
    pub fn unflushed_bytes(&self) -> u64 {
        self.db.write_buffer_size()
    }

    /// Returns the size of the store on disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }
}

fn link_options() -> KeyspaceCreateOptions {
    partitioned_options()
        .max_memtable_size(MEMTABLE_BYTES)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(deep_compression())
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS))))
}

fn high_water_key(code_len: usize) -> String {
    format!("high_water/{code_len:02}")
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests;
