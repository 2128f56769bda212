//! A link map under a limit in bytes: it keeps the links in use and evicts others, by S3-FIFO (Yang, Zhang, Qiu, Yue,
//! Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023).
//!
//! New entries go to a small queue, a tenth of all. At its end, entries that were requested more than once move to the
//! main queue, and the others are evicted. So entries that are requested only once do not fill the cache. Their hashes
//! stay in a ghost queue (`ghosts`) for a while, and a code that comes back from there goes to the main queue at once.
//! At the end of the main queue an entry that was used since gets another round. Before the cache is full, the oldest
//! entries of the small queue pass to the main one as they are. Use is counted in two bits of the record's header,
//! whose cache line a look-up has read anyway. So a hit stores one byte, and nothing if the link is hot.
//!
//! There are no queues of hashes or references beside the records: a queue is a log of pages (`queues`), and the place
//! of a record in it is where it lies. That takes no memory for each link. A removed entry leaves a hole, which the
//! sweep passes over. Evicting a page's worth of records frees exactly that page. So there is no compaction, and the
//! limit counts the memory that the kernel has given. Caches of this kind: Rumble, Kejriwal, Ousterhout,
//! "Log-structured memory for DRAM-based storage" (FAST 2014), and Yang, Yue, Rashmi, "Segcache" (NSDI 2021).
//!
//! The oldest page is swept ahead of need, some of it with each put, so that no put waits for a whole page. The rounds
//! that S3-FIFO would grant to an entry in use are bounded for the same reason. If everything in the cache is in use,
//! sweeps in a row give no room: then the next ones keep only entries that were used more often.
//!
//! The limit is on everything: pages, index, ghosts and tables.

use super::geometry::Geometry;
use super::ghosts::Ghosts;
use super::index::{IndexSlot, MapIndex, Reference};
use super::outcome::{MapFull, Put};
use super::page_table::{PageTable, PageWalk};
use super::queues::{Queue, Queues};
use super::record::{self, FREQUENCY_MAX, Record, UNIT_BYTES};
use crate::code::{Code, CodeHash, CodeHasher};
use crate::link::MapEntry;

/// Minimum number of pages of a cache, unless its limit is small: the room kept free and the room being swept are
/// pages.
const PAGES_MIN: u64 = 256;

/// Units of the smallest page, as a power of two: 8 KiB.
const UNIT_BITS_MIN: u32 = 10;

/// The share of the limit that ghosts take. A link takes about 130 bytes and a ghost two, so there are about as many of
/// these as of those.
const GHOST_SHARE: u64 = 64;

/// Pages that are kept free: one for the entries that a sweep keeps, one for each queue, and one for a chunk of the
/// index.
const ROOM_PAGES: u64 = 4;

/// Entries in the small queue stay when they were used more often than this.
const PROMOTE_ABOVE: u32 = 1;

/// Units that are swept for each unit that is put, when one page is missing; twice as many for each other one. So there
/// are 24 sweeps before a third is missing, and the 13th in a row that would give none evicts everything.
const SWEEP_FACTOR: u32 = 8;

/// Units by which a limit is lowered with each unit that is put: half of the units swept meanwhile.
const LOWER_FACTOR: u32 = SWEEP_FACTOR / 2;

/// Sweeps in a row that gave no page, after which the next ones keep less.
const SWEEPS_PER_LEVEL: u32 = 4;

/// A sweep of the oldest page of a queue.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    queue: Queue,
    walk: PageWalk,
    /// The sweep keeps entries that were used more often than this.
    keep_above: u32,
    /// True if the kept entries have taken a page already, so that the sweep gives none.
    fruitless: bool,
}

/// The links in use of one core, under a limit. See the module for how it chooses them.
#[derive(Debug)]
pub struct CachedLinks {
    hasher: CodeHasher,
    index: MapIndex,
    queues: Queues,
    ghosts: Ghosts,
    sweep: Option<Sweep>,
    /// Sweeps since the last one that gave a page.
    fruitless: u32,
    limit_bytes: u64,
    /// The target to which the limit is being lowered.
    limit_ahead: u64,
    /// Characters of codes and bytes of targets of all entries.
    link_bytes: u64,
}

impl CachedLinks {
    /// The smallest limit: 256 KiB.
    pub const LIMIT_BYTES_MIN: u64 = 256 << 10;

    /// Returns an empty cache for codes that are hashed by `hasher`. A limit below [`CachedLinks::LIMIT_BYTES_MIN`] is
    /// raised to that; of one above 32 GiB the rest stays unused.
    ///
    /// # Panics
    /// If the kernel does not give the memory of an empty index and of the ghosts: a 64th of the limit.
    pub fn new(hasher: CodeHasher, limit_bytes: u64) -> CachedLinks {
        let limit_bytes = limit_bytes.max(CachedLinks::LIMIT_BYTES_MIN);
        let page_units = (limit_bytes / PAGES_MIN / UNIT_BYTES as u64).max(1);
        let unit_bits = page_units.ilog2().clamp(UNIT_BITS_MIN, Geometry::STANDARD.unit_bits);
        CachedLinks::with_geometry(hasher, limit_bytes, Geometry { unit_bits, pages_max: 1 << (32 - unit_bits) })
    }

    fn with_geometry(hasher: CodeHasher, limit_bytes: u64, geometry: Geometry) -> CachedLinks {
        let ghosts = Ghosts::new((limit_bytes / GHOST_SHARE) as usize);
        CachedLinks {
            hasher,
            index: MapIndex::new(geometry.page_bytes()).expect("a process that gets no 256 KiB can serve nothing"),
            queues: Queues::new(geometry, ROOM_PAGES as usize),
            ghosts: ghosts.expect("the limit is more than the kernel grants"),
            sweep: None,
            fruitless: 0,
            limit_bytes,
            limit_ahead: limit_bytes,
            link_bytes: 0,
        }
    }

    /// Returns the entry of a code, and counts a use of it. Allocates nothing.
    #[inline]
    pub fn get(&mut self, code: &Code, hash: CodeHash) -> Option<MapEntry<'_>> {
        debug_assert_eq!(hash, self.hasher.hash(code), "the hash is of another code or seed");
        let (_, reference, record) = self.find(code, hash)?;
        let frequency = record.frequency();
        if frequency < FREQUENCY_MAX {
            record::set_frequency(self.queues.table.bytes_mut(reference), frequency + 1);
        }
        Some(self.queues.table.record(reference).entry())
    }

    /// Returns the entry of a code, without counting a use.
    #[inline]
    pub fn peek(&self, code: &Code, hash: CodeHash) -> Option<MapEntry<'_>> {
        Some(self.find(code, hash)?.2.entry())
    }

    /// Prefetches the line of the index that a look-up of this hash reads; see [`super::LinkMap::touch_index`].
    #[inline]
    pub fn touch_index(&self, hash: CodeHash) {
        self.index.touch(hash);
    }

    /// Prefetches the record that a look-up of this hash reads.
    #[inline]
    pub fn touch_record(&self, hash: CodeHash) {
        self.index.find(hash, |_, reference| {
            self.queues.table.touch(reference);
            Some(())
        });
    }

    #[inline]
    fn find(&self, code: &Code, hash: CodeHash) -> Option<(IndexSlot, Reference, Record<'_>)> {
        self.index.find(hash, |slot, reference| {
            let record = self.queues.table.record(reference);
            record.is_of(code).then_some((slot, reference, record))
        })
    }

    fn find_hash(&self, hash: CodeHash) -> Option<(IndexSlot, Reference)> {
        let hash_of = hash_of(&self.queues.table, self.hasher);
        self.index.find(hash, |slot, reference| (hash_of(reference) == hash).then_some((slot, reference)))
    }

    /// Sets the entry of a code, and evicts others as the limit demands.
    ///
    /// A changed entry keeps its count of uses. If its size changes too, it goes to the end of the small queue.
    ///
    /// # Errors
    /// [`MapFull`] when the kernel gives not even the memory of a few entries. The code then has no entry, not even its
    /// previous one. If the kernel gives less than the limit, that becomes the limit.
    ///
    /// # Panics
    /// If a target has no or more than [`super::DESTINATION_LEN_MAX`] bytes, or an instant is beyond
    /// [`super::INSTANT_MS_MAX`].
    pub fn put(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>) -> Result<Put, MapFull> {
        debug_assert_eq!(hash, self.hasher.hash(code), "the hash is of another code or seed");
        let units = record::units(code, &entry);
        let Some((slot, old, record)) = self.find(code, hash) else {
            self.insert(code, hash, entry, 0)?;
            return Ok(Put::Inserted);
        };
        let frequency = record.frequency();
        if record.units() == units {
            self.link_bytes = self.link_bytes - record.link_bytes() + record::link_bytes(code, &entry);
            self.write(old, code, &entry, frequency);
        } else {
            self.drop_entry(hash, slot, old);
            self.insert(code, hash, entry, frequency)?;
        }
        Ok(Put::Replaced)
    }

    /// Removes the entry of a code. Returns false if it had none.
    pub fn remove(&mut self, code: &Code, hash: CodeHash) -> bool {
        let Some((slot, reference, _)) = self.find(code, hash) else { return false };
        self.drop_entry(hash, slot, reference);
        self.keep_limit();
        debug_assert!(self.find(code, hash).is_none(), "the removed code had two entries");
        true
    }

    /// Removes every entry with this hash: that of its code and, once in very many hashes, that of another code.
    /// Returns false if there was none.
    pub fn forget(&mut self, hash: CodeHash) -> bool {
        let mut found = false;
        while let Some((slot, reference)) = self.find_hash(hash) {
            self.drop_entry(hash, slot, reference);
            found = true;
        }
        self.keep_limit();
        found
    }

    /// Returns the number of codes with an entry.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if the cache has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the characters of codes and bytes of targets of all entries.
    pub fn link_bytes(&self) -> u64 {
        self.link_bytes
    }

    /// Returns the bytes that the cache has taken from the kernel and the allocator, including untouched ones.
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
            + self.queues.memory_bytes()
            + self.ghosts.memory_bytes()
            + size_of::<CachedLinks>() as u64
    }

    /// Returns the limit of [`CachedLinks::memory_bytes`].
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Lowers the limit, a little with each later put, so that none of them waits for many evictions. A limit above the
    /// present one keeps the present one, and one below [`CachedLinks::LIMIT_BYTES_MIN`] counts as that minimum.
    pub fn lower_limit(&mut self, bytes: u64) {
        self.limit_ahead = bytes.clamp(CachedLinks::LIMIT_BYTES_MIN.min(self.limit_bytes), self.limit_bytes);
    }

    /// Sets the limit: at once, if no more than that is in use, and otherwise as [`CachedLinks::lower_limit`] does.
    pub fn set_limit(&mut self, bytes: u64) {
        let bytes = bytes.max(CachedLinks::LIMIT_BYTES_MIN);
        if self.memory_bytes() <= bytes {
            (self.limit_bytes, self.limit_ahead) = (bytes, bytes);
        } else {
            self.lower_limit(bytes);
        }
    }

    /// True if more can be put without evicting anything.
    pub fn has_room(&self) -> bool {
        self.room() > ROOM_PAGES
    }

    fn drop_entry(&mut self, hash: CodeHash, slot: IndexSlot, reference: Reference) {
        self.link_bytes -= self.queues.table.record(reference).link_bytes();
        self.index.remove(hash, slot, &hash_of(&self.queues.table, self.hasher));
        self.index.merge_if_sparse(&hash_of(&self.queues.table, self.hasher));
        // Only now: the index reads codes from records, and this may give the page back.
        self.queues.kill(reference);
        debug_assert!(!self.is_empty() || self.link_bytes == 0, "the bytes of a removed link still count");
    }

    /// Returns the pages that could be added within the limit.
    fn room(&self) -> u64 {
        let table = &self.queues.table;
        (self.limit_bytes + table.spare_bytes()).saturating_sub(self.memory_bytes())
            / table.geometry().page_bytes() as u64
    }

    fn insert(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>, frequency: u32) -> Result<(), MapFull> {
        debug_assert!(self.find(code, hash).is_none(), "the code would have two entries");
        let units = record::units(code, &entry);
        self.approach_limit(units);
        self.sweep_ahead(units);
        let queue = if self.ghosts.take(hash) { Queue::Main } else { Queue::Small };
        while self.index.reserve_line().is_err() {
            self.make_do()?;
        }
        let new = self.allocate(queue, units)?;
        self.write(new, code, &entry, frequency);
        // A sweep for the room may have merged buckets and so used the line.
        if self.index.reserve_line().is_err() {
            self.queues.kill(new);
            return Err(MapFull);
        }
        self.link_bytes += record::link_bytes(code, &entry);
        self.index.insert(hash, new);
        self.index.split_if_crowded(&hash_of(&self.queues.table, self.hasher));
        self.keep_limit();
        Ok(())
    }

    fn write(&mut self, at: Reference, code: &Code, entry: &MapEntry<'_>, frequency: u32) {
        let bytes = self.queues.table.bytes_mut(at);
        record::write(bytes, code, entry);
        record::set_frequency(bytes, frequency);
    }

    fn allocate(&mut self, queue: Queue, units: u32) -> Result<Reference, MapFull> {
        loop {
            if let Some(reference) = self.queues.append(queue, units) {
                return Ok(reference);
            }
            let room = self.room();
            if room > ROOM_PAGES {
                self.queues.grow_main(room);
            }
            // The last page is for the entries that a sweep keeps.
            if room > 1 {
                if self.queues.add_page(queue).is_err() {
                    self.make_do()?;
                }
            } else if self.sweep(u32::MAX).is_none() {
                return Err(MapFull);
            }
        }
    }
}

/// Sweeping.
impl CachedLinks {
    /// Sweeps when pages are short, the more the shorter they are, within the bounds for one put.
    fn sweep_ahead(&mut self, units: u32) {
        let missing = ROOM_PAGES.saturating_sub(self.room()) as u32;
        if missing == 0 {
            return;
        }
        let mut left = (units * SWEEP_FACTOR) << (missing - 1);
        while left > 0 && self.room() < ROOM_PAGES {
            let Some(passed) = self.sweep(left) else { return };
            left = left.saturating_sub(passed);
        }
    }

    /// Lowers the limit by a part of what the sweeps of a put can give.
    fn approach_limit(&mut self, units: u32) {
        let step = u64::from(units * LOWER_FACTOR) * UNIT_BYTES as u64;
        self.limit_bytes = self.limit_bytes.min(self.limit_ahead.max(self.limit_bytes.saturating_sub(step)));
    }

    /// Adapts to a kernel that gives no more memory: the present size becomes the limit, and a page of it is swept.
    fn make_do(&mut self) -> Result<(), MapFull> {
        self.limit_bytes = self.memory_bytes().min(self.limit_bytes);
        self.sweep(u32::MAX).map(drop).ok_or(MapFull)
    }

    /// Releases memory above the limit: the index may just have taken a chunk more than there was room for.
    fn keep_limit(&mut self) {
        while self.memory_bytes() > self.limit_bytes {
            if !self.queues.table.drop_spare() && self.sweep(u32::MAX).is_none() {
                return;
            }
        }
    }

    /// Sweeps up to `units` units of the oldest page of a queue. Returns how many it has passed; `None` if there is no
    /// page.
    fn sweep(&mut self, units: u32) -> Option<u32> {
        let mut sweep = match self.sweep.take() {
            Some(sweep) => sweep,
            None => self.begin_sweep()?,
        };
        let start = sweep.walk.unit();
        while sweep.walk.unit() - start < units {
            let Some((reference, record)) = self.queues.table.next_record(&mut sweep.walk) else {
                self.queues.end_sweep();
                self.fruitless = if sweep.fruitless { self.fruitless + 1 } else { 0 };
                return Some(sweep.walk.unit() - start);
            };
            sweep.walk.pass(record.units());
            self.keep_or_evict(&mut sweep, reference);
        }
        self.sweep = Some(sweep);
        Some(sweep.walk.unit() - start)
    }

    fn begin_sweep(&mut self) -> Option<Sweep> {
        let (queue, walk) = self.queues.begin_sweep()?;
        let least = match queue {
            Queue::Small => PROMOTE_ABOVE,
            Queue::Main => 0,
        };
        Some(Sweep { queue, walk, keep_above: least + self.fruitless / SWEEPS_PER_LEVEL, fruitless: false })
    }

    /// Moves a swept record to the end of the main queue, or evicts it.
    fn keep_or_evict(&mut self, sweep: &mut Sweep, old: Reference) {
        let record = self.queues.table.record(old);
        debug_assert!(!record.is_dead(), "the sweep keeps a removed entry");
        let (units, frequency) = (record.units(), record.frequency());
        let hash = self.hasher.hash(&record.code());
        let slot = self.index.find(hash, |slot, reference| (reference == old).then_some(slot));
        let slot = slot.expect("every record is in the index");
        if frequency > sweep.keep_above
            && let Some(new) = self.append_to_main(sweep, units)
        {
            // An entry from the small queue starts with a frequency of zero.
            let left = if sweep.queue == Queue::Main { frequency - 1 } else { 0 };
            self.queues.table.copy(old, new);
            record::set_frequency(self.queues.table.bytes_mut(new), left);
            self.index.set(slot, new);
            self.queues.kill(old);
        } else {
            if sweep.queue == Queue::Small {
                self.ghosts.insert(hash);
            }
            self.drop_entry(hash, slot, old);
        }
    }

    /// Returns room at the end of the main queue for a record that a sweep keeps.
    fn append_to_main(&mut self, sweep: &mut Sweep, units: u32) -> Option<Reference> {
        if let Some(reference) = self.queues.append(Queue::Main, units) {
            return Some(reference);
        }
        if self.room() == 0 || self.queues.add_page(Queue::Main).is_err() {
            return None;
        }
        sweep.fruitless = true;
        self.queues.append(Queue::Main, units)
    }
}

/// Returns the function by which the index gets the hash of a record that it has a reference to.
fn hash_of(table: &PageTable, hasher: CodeHasher) -> impl Fn(Reference) -> CodeHash {
    move |reference| hasher.hash(&table.record(reference).code())
}

#[cfg(test)]
mod tests;
