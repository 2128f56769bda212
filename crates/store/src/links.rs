//! The links on disk: the one module that names fjall.
//!
//! Twelve keyspaces: `links` holds one record for each code under its ASCII form, `urls` finds the codes of a long URL, `ends`
//! says which links end when, `dates` and `tags` are what lists are made of, `allowances` holds how often limited links may
//! still be followed, `visits` how often links were, `history` who changed what of them, `idempotency` which link was created with which key of a client, `meta` holds the format, the fingerprint of the secret key and, for
//! each length of code, the mark that no counter may fall below; `fleet` what a node of several must remember of the
//! others: the outbox, and its place in each stream; `changes` which codes each commit changed. A commit is visible to readers at once and durable after
//! [`Links::sync`]. What a record means is not known here (see [`carom_model::link::record`]); who may write is the caller's business:
//! there is one writer.

mod allowances;
pub mod catalog;
mod changes;
pub mod dump;
mod ends;
mod errors;
mod fleet;
mod history;
mod idempotency;
mod indexes;
mod urls;
mod visits;

use std::cell::Cell;
use std::ops::{Bound, Deref};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use carom_shards::Code;
use carom_shards::code::{ALPHABET, CODE_KEY_LEN_MAX};
use fjall::config::{BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice};
use xxhash_rust::xxh3::xxh3_64;

use self::changes::{ChangedCodes, LogEnd};
pub use self::changes::{ChangesSince, LogPosition};
pub use self::ends::{Of, is_grave, stored_end};
pub use self::indexes::{Index, complete_index};
pub use self::urls::{UrlUse, stored_url};
pub use self::visits::{Ended, TOGETHER, VisitRow};
pub use super::error::StoreError;
use super::journal::mark::SyncedMark;
use super::journal::{self, Repair};
use super::search::{bisect, from_position, gallop, position};
use carom_limits::store_files;
pub use carom_model::link::record::DamagedRange;

/// The form of this directory.
const FORMAT: u64 = 1;

/// Blocks that a look-up of an existing code or a scan has read, bytes. Nothing reads the store twice: redirects come
/// from memory, new codes are answered by the filters. So this holds little more than filters and indexes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// A memtable, bytes. What a crash leaves to replay is about two of these, half a second.
const MEMTABLE_BYTES: u64 = 32 * 1024 * 1024;

/// All journals together, bytes: the least that the library accepts.
const JOURNALS_BYTES: u64 = 64 * 1024 * 1024;

/// A data block, bytes. A scan pays for each block, a look-up for each byte of one; scans are what people wait for.
const BLOCK_BYTES: u32 = 16 * 1024;

/// Filter bits for a code: of 1,000 new codes about 8 cost a read.
const FILTER_BITS: f32 = 10.0;

/// A stored record's bytes. Keeps a part of the store's memory alive: for short use.
#[derive(Clone, Debug)]
pub struct Value(Slice);

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A key and a record, owned.
pub type StoredRecord = (Vec<u8>, Vec<u8>);

/// Writes that become visible together.
pub struct Batch {
    inner: fjall::OwnedWriteBatch,
    links: Keyspace,
    urls: Keyspace,
    allowances: Keyspace,
    visits: Keyspace,
    ends: Keyspace,
    dates: Keyspace,
    tags: Keyspace,
    meta: Keyspace,
    fleet: Keyspace,
    /// The codes whose records it changes.
    changed: ChangedCodes,
    idempotency: Keyspace,
    /// The earliest end of a link that it writes, in milliseconds since 1970 UTC.
    first_end_ms: u64,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} writes)", self.inner.len())
    }
}

impl Batch {
    /// Puts a record in the place of any other of its code. At most one write for each code may stand in a batch.
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

    /// Sets the mark that no counter for codes of this length may fall below.
    pub fn set_high_water(&mut self, code_len: usize, value: u64) {
        let key = high_water_key(code_len);
        self.inner.insert(&self.meta, key.as_str(), sealed(&key, value));
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

/// A part of all codes: those with one first character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part(u8);

impl Part {
    /// Whether all of it stands before a key.
    pub fn is_before(self, key: &[u8]) -> bool {
        key.first().is_some_and(|&first| self.0 < first)
    }
}

/// All parts, in the order of their keys.
pub fn parts() -> Vec<Part> {
    let mut firsts = *ALPHABET;
    firsts.sort_unstable();
    firsts.map(Part).to_vec()
}

/// An open store of links. Cheap to clone; closed when the last clone is dropped.
#[derive(Clone)]
pub struct Links {
    db: Database,
    links: Keyspace,
    urls: Keyspace,
    allowances: Keyspace,
    visits: Keyspace,
    history: Keyspace,
    ends: Keyspace,
    dates: Keyspace,
    tags: Keyspace,
    meta: Keyspace,
    fleet: Keyspace,
    changes: Keyspace,
    log_end: Arc<LogEnd>,
    mark: Arc<SyncedMark>,
    idempotency: Keyspace,
    commits: Arc<AtomicU64>,
    /// The same of all batches, until somebody asks.
    first_end_ms: Arc<AtomicU64>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Links")
    }
}

impl Links {
    /// Opens the store in `dir`, making it where there is none, and tells what had to be repaired for that. The
    /// fingerprint is that of the secret key, kept to notice that codes were made under another one.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then but journals that were repaired.
    pub fn open(dir: &Path, fingerprint: &str) -> Result<(Links, Vec<Repair>), StoreError> {
        let repairs = journal::repair_all(dir).map_err(|error| {
            StoreError::Failed(format!("a journal in {} cannot be checked: {error}", dir.display()))
        })?;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let db = Database::builder(dir)
            .max_cached_files(usize::try_from(store_files(files)).ok())
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNALS_BYTES)
            .journal_compression(CompressionType::None)
            // With two, one of them spins while the other compacts. A flush that waits for a compaction is no harm:
            // writers go on until four memtables are full.
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
        let commits = Arc::default();
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
            commits,
            first_end_ms,
        };
        store.check_meta(fingerprint)?;
        store.open_log(!repairs.is_empty())?;
        // A process that was killed may have left whole batches that were not synced.
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
            _ => Err(StoreError::OtherKey),
        }
    }

    /// The record of a code.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where the block that would hold it cannot be read.
    pub fn get(&self, code: &Code) -> Result<Option<Value>, StoreError> {
        Ok(self.links.get(code.key(&mut [0; CODE_KEY_LEN_MAX]))?.map(Value))
    }

    /// An empty batch.
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
            changed: ChangedCodes::default(),
            idempotency: self.idempotency.clone(),
            first_end_ms: u64::MAX,
        }
    }

    /// Makes a batch visible to readers. It is durable after the next [`Links::sync`].
    ///
    /// # Errors
    /// After one, nobody knows what of the batch is on disk; the store takes no more writes.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let first_end_ms = batch.first_end_ms;
        self.commit_logged(batch)?;
        // When it is there to be read: whoever is told goes back for it.
        if first_end_ms < self.first_end_ms.load(Ordering::Relaxed) {
            self.first_end_ms.fetch_min(first_end_ms, Ordering::AcqRel);
        }
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How many commits have ended since the store was opened: whoever asks first and reads then has seen them all.
    /// Whoever commits and asks then has a number that is not below that of the own commit.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Adds many records that the store does not have, in the order of their keys, durably and without the journal: an
    /// import's way in. Nobody else may write meanwhile.
    ///
    /// # Errors
    /// After one, none of the records is in the store.
    ///
    /// # Panics
    /// When a key does not follow the one before it.
    pub fn ingest<'a>(&self, sorted: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<(), StoreError> {
        // These records are too many for the change log.
        self.reset_log()?;
        let mut ingestion = self.links.start_ingestion()?;
        for (key, record) in sorted {
            ingestion.write(key, record)?;
        }
        Ok(ingestion.finish()?)
    }

    /// Makes everything committed so far durable (`fdatasync`), and moves the synced mark.
    ///
    /// # Errors
    /// After one, nobody knows what is on disk; the store takes no more writes.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.mark.around(|| Ok(self.db.persist(PersistMode::SyncData)?))
    }

    /// Makes the synced mark itself durable, if it has moved. For threads that nobody waits for.
    ///
    /// # Errors
    /// When the disk fails. The mark is then an old one, which tells less of what was acknowledged.
    pub fn flush_mark(&self) -> io::Result<()> {
        self.mark.flush()
    }

    /// The mark that no counter for codes of this length may fall below; 0 where none was set.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where it cannot be read.
    pub fn high_water(&self, code_len: usize) -> Result<u64, StoreError> {
        let key = high_water_key(code_len);
        self.meta.get(&key)?.map_or(Ok(0), |value| unsealed(&key, &value))
    }

    /// Some records behind a key, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where a block that holds some of them cannot be read.
    pub fn page(&self, behind: &[u8], count: usize) -> Result<Vec<StoredRecord>, StoreError> {
        let range = (Bound::Excluded(behind), Bound::<&[u8]>::Unbounded);
        let mut page = Vec::with_capacity(count);
        for guard in self.links.range::<&[u8], _>(range).take(count) {
            let (key, value) = guard.into_inner()?;
            page.push((key.to_vec(), value.to_vec()));
        }
        Ok(page)
    }

    /// About how many records there are, without counting them: every write since the last compaction counts, and so do
    /// removals.
    pub fn approximate_len(&self) -> usize {
        self.links.approximate_len()
    }

    /// Gives every record of a part to `each`, in the order of their keys, and returns what could not be read. `each`
    /// ends the scan by returning `false`.
    ///
    /// # Errors
    /// [`StoreError::Failed`] where the operating system refused to read.
    pub fn scan(&self, part: Part, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<Vec<DamagedRange>, StoreError> {
        self.scan_behind(part, &[], each)
    }

    /// The same from behind a key on, where that is one of the part.
    ///
    /// # Errors
    /// [`StoreError::Failed`] where the operating system refused to read.
    pub fn scan_behind(
        &self,
        part: Part,
        behind: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<DamagedRange>, StoreError> {
        let end = [part.0 + 1];
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
            // The library's iterator must not be used after an error: it leaves out the rest of the damaged file
            // without a word. So the edges of the damage are searched for, and the scan starts anew behind it.
            if last.len() > 1 {
                from = Bound::Excluded(last.clone());
            }
            let edge = self.last_readable(&from, position(&last), &end);
            self.run(&from, Bound::Included(&from_position(edge)), &mut last, &mut each)?;
            if ended.get() {
                return Ok(damaged);
            }
            // A range that ends with the last key of a block makes the library read the next block too, so this one key
            // is only reached by itself. (By 16 characters: the last of several longer slugs may be missed.)
            let next = from_position(edge + 1);
            if let Ok(Some(value)) = self.links.get(&next) {
                last.clone_from(&next);
                if !each(&next, &value) {
                    return Ok(damaged);
                }
            }
            let behind = self.first_readable(edge + 1, &end);
            let before = behind.as_ref().and_then(|(_, key)| key.as_deref().map(text));
            damaged.push(DamagedRange { after: text(&last), before });
            match behind {
                Some((start, Some(_))) => from = Bound::Included(from_position(start)),
                _ => return Ok(damaged),
            }
        }
    }

    /// Gives the records of a range to `each` until one cannot be read; `last` is the last key given.
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

    /// The largest position up to and with which the range from `from` can be read.
    fn last_readable(&self, from: &Bound<Vec<u8>>, start: u128, end: &[u8]) -> u128 {
        let readable =
            |to: u128| self.run(from, Bound::Included(&from_position(to)), &mut Vec::new(), &mut |_, _| true).is_ok();
        let (good, bad) = gallop(start, position(end), |to| !readable(to));
        bisect(good, bad, |to| !readable(to))
    }

    /// The smallest position behind `start` from which a range can be read, and the first key there.
    fn first_readable(&self, start: u128, end: &[u8]) -> Option<(u128, Option<Vec<u8>>)> {
        let first = |from: u128| -> Result<Option<Vec<u8>>, StoreError> {
            let range = (Bound::Included(from_position(from)), Bound::Excluded(end.to_vec()));
            match self.links.range(range).next() {
                Some(guard) => Ok(Some(guard.into_inner()?.0.to_vec())),
                None => Ok(None),
            }
        };
        let (bad, good) = gallop(start, position(end), |from| first(from).is_ok());
        let edge = bisect(bad, good, |from| first(from).is_ok()) + 1;
        first(edge).ok().map(|key| (edge, key))
    }

    /// Bytes that are only in memory and the journal, and will be written once more, into tables.
    pub fn unflushed_bytes(&self) -> u64 {
        self.db.write_buffer_size()
    }

    /// Bytes that the store takes on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }
}

fn link_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(deep_compression())
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS))))
}

/// What is written often is not compressed; what has come to rest is.
fn deep_compression() -> CompressionPolicy {
    CompressionPolicy::new([CompressionType::None, CompressionType::None, CompressionType::Lz4])
}

fn high_water_key(code_len: usize) -> String {
    format!("high_water/{code_len:02}")
}

/// A number with a checksum over it and its key.
fn sealed(key: &str, value: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&value.to_le_bytes());
    out[8..].copy_from_slice(&seal(key, value).to_le_bytes());
    out
}

fn unsealed(key: &str, stored: &[u8]) -> Result<u64, StoreError> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    stored
        .split_at_checked(8)
        .and_then(|(value, sum)| Some((number(value)?, number(sum)?)))
        .filter(|&(value, sum)| seal(key, value) == sum)
        .map(|(value, _)| value)
        .ok_or_else(|| StoreError::Damaged(format!("the mark {key} is damaged")))
}

fn seal(key: &str, value: u64) -> u64 {
    xxh3_64(key.as_bytes()) ^ xxh3_64(&value.to_le_bytes())
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests;
