//! The link map of one core: code to target and policy, compact, and without pauses.
//!
//! It is a hash index over records in pages. The index (`index`) is one 64-byte line of tags and references per bucket
//! and grows or shrinks by one bucket at a time (linear hashing: Litwin 1980, "Linear hashing: a new tool for file and
//! table addressing"). The records (`record`) lie one after the other in pages of 512 KiB (`pages`), and a removed one
//! leaves a hole. When holes are a fifth of everything, the pages with many of them are emptied, a few records with
//! each change, and given back. So no operation ever waits for a copy of the whole, and a look-up touches the line of
//! its bucket and the record. Memory comes from the kernel and goes back to it (`memory`).
//!
//! [`CachedLinks`] has the same index and records, but keeps only the links in use, under a limit (`cached`).
//!
//! The map knows nothing of time, cores or durability: the caller decides whether a link has expired.

mod cached;
mod geometry;
mod ghosts;
mod index;
pub(crate) mod memory;
mod outcome;
mod page_table;
mod pages;
mod queues;
mod record;
pub mod sealed;
#[cfg(test)]
mod tests;

use self::geometry::Geometry;
use self::index::{MapIndex, Reference};
use self::pages::RecordPages;
use self::record::Record;
use self::sealed::SealedPage;
use crate::code::{Code, CodeHash, CodeHasher};
use crate::link::MapEntry;

pub use self::cached::CachedLinks;
pub use self::outcome::{MapFull, Put};
pub use self::record::{DESTINATION_LEN_MAX, INSTANT_MS_MAX};

/// Bytes of a page that one change may walk while it empties it. A change leaves at most 2.2 KiB of hole, and at least
/// a seventh of a page that is emptied is holes. So the walk keeps ahead of any sequence of changes of large records.
const EVACUATE_BYTES: usize = 16 * 1024;

/// Live records that one change may move: each costs two or three cache misses, so this is about 10 microseconds.
const EVACUATE_RECORDS: usize = 64;

/// The links of one core. See the module for how it is built.
#[derive(Debug)]
pub struct LinkMap {
    hasher: CodeHasher,
    index: MapIndex,
    pages: RecordPages,
    /// Characters of codes and bytes of targets of all entries.
    link_bytes: u64,
}

impl LinkMap {
    /// Returns an empty map. Every [`CodeHash`] that its functions get must come from `hasher`.
    ///
    /// # Panics
    /// If the kernel does not give the memory of an empty index, 256 KiB.
    pub fn new(hasher: CodeHasher) -> LinkMap {
        LinkMap::with_geometry(hasher, Geometry::STANDARD)
    }

    /// Returns an empty map for at most `bytes` bytes of records, rounded up to whole pages of 512 KiB.
    pub fn with_room(hasher: CodeHasher, bytes: u64) -> LinkMap {
        let pages = bytes.div_ceil(Geometry::STANDARD.page_bytes() as u64);
        // One more is kept for moving records.
        let pages_max = u32::try_from(pages + 1).unwrap_or(u32::MAX).min(Geometry::STANDARD.pages_max);
        LinkMap::with_geometry(hasher, Geometry { pages_max, ..Geometry::STANDARD })
    }

    fn with_geometry(hasher: CodeHasher, geometry: Geometry) -> LinkMap {
        let index = MapIndex::new(geometry.page_bytes()).expect("a process that gets no 256 KiB can serve nothing");
        LinkMap { hasher, index, pages: RecordPages::new(geometry), link_bytes: 0 }
    }

    /// Prepares an empty map for `links` entries that are about to be put. Otherwise its index would grow bucket by
    /// bucket: each split reads the codes of a bucket's records again, which is a third of the time of filling a map.
    /// [`LinkMap::fit`] corrects a number that was too large.
    ///
    /// # Panics
    /// If the map has entries.
    pub fn reserve(&mut self, links: usize) {
        self.index.grow_for(links);
    }

    /// Shrinks the index to the present number of entries. Takes time with the number of buckets that go, so it should
    /// not run while the map serves.
    pub fn fit(&mut self) {
        while self.index.merge_if_sparse(&hash_of(&self.pages, self.hasher)) {}
    }

    /// Returns the entry of a code. Allocates nothing.
    #[inline]
    pub fn get(&self, code: &Code, hash: CodeHash) -> Option<MapEntry<'_>> {
        debug_assert_eq!(hash, self.hasher.hash(code), "the hash is of another code or seed");
        Some(self.find(code, hash)?.2.entry())
    }

    /// Prefetches the line of the index that a look-up of this hash reads.
    ///
    /// For callers with several look-ups ahead: first this for each, then [`LinkMap::touch_record`] for each, then the
    /// look-ups. Their cache misses then overlap.
    #[inline]
    pub fn touch_index(&self, hash: CodeHash) {
        self.index.touch(hash);
    }

    /// Prefetches the record that a look-up of this hash reads.
    #[inline]
    pub fn touch_record(&self, hash: CodeHash) {
        self.index.find(hash, |_, reference| {
            self.pages.touch(reference);
            Some(())
        });
    }

    /// Returns the location of a code's entry: its slot in the index, its reference and its record.
    #[inline]
    fn find(&self, code: &Code, hash: CodeHash) -> Option<(index::IndexSlot, Reference, Record<'_>)> {
        self.index.find(hash, |slot, reference| {
            let record = self.pages.record(reference);
            record.is_of(code).then_some((slot, reference, record))
        })
    }

    /// Sets the entry of a code.
    ///
    /// # Errors
    /// [`MapFull`], with the map unchanged.
    ///
    /// # Panics
    /// If a target has no or more than [`DESTINATION_LEN_MAX`] bytes, or an instant is beyond [`INSTANT_MS_MAX`]: both
    /// are checked where links come in.
    pub fn put(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>) -> Result<Put, MapFull> {
        debug_assert_eq!(hash, self.hasher.hash(code), "the hash is of another code or seed");
        let units = record::units(code, &entry);
        let put = match self
            .find(code, hash)
            .map(|(slot, reference, old)| (slot, reference, old.units(), old.link_bytes()))
        {
            Some((slot, old, old_units, old_link_bytes)) => {
                // A record of the same size takes the place of the old one, so that such changes leave no holes.
                let new = if units == old_units { old } else { self.pages.allocate(units)? };
                record::write(self.pages.bytes_mut(new), code, &entry);
                if new != old {
                    self.index.set(slot, new);
                    self.pages.kill(old);
                }
                self.link_bytes -= old_link_bytes;
                Put::Replaced
            }
            None => {
                self.index.reserve_line()?;
                let new = self.pages.allocate(units)?;
                record::write(self.pages.bytes_mut(new), code, &entry);
                self.index.insert(hash, new);
                self.index.split_if_crowded(&hash_of(&self.pages, self.hasher));
                Put::Inserted
            }
        };
        self.link_bytes += record::link_bytes(code, &entry);
        self.evacuate_some();
        debug_assert!(self.find(code, hash).is_some(), "the entry that was put is not found");
        Ok(put)
    }

    /// Adopts the links of a sealed page. Skips codes that already have an entry, and codes that `keep` refuses. Also
    /// skips [`MapEntry::Damaged`]: it only means that the writer of the page could not read the record. Returns the
    /// codes for which the map had no room.
    ///
    /// The page becomes one of the map, so this writes the index and no record. Records in the order of
    /// [`sealed::index_order`] after [`LinkMap::reserve`] write it from its start to its end.
    pub fn adopt(&mut self, page: SealedPage, mut keep: impl FnMut(&Code, CodeHash) -> bool) -> Vec<Code> {
        let mut walk = match self.pages.adopt(page) {
            Ok(walk) => walk,
            Err(page) => {
                let links = page.records().filter(|(_, entry)| *entry != MapEntry::Damaged);
                let codes = links.map(|(code, _)| (code, self.hasher.hash(&code)));
                let left = codes.filter(|(code, hash)| self.find(code, *hash).is_none() && keep(code, *hash));
                return left.map(|(code, _)| code).collect();
            }
        };
        // Unwanted records are removed only after the walk. Removing the last record frees the page that is being
        // walked.
        let (mut unwanted, mut left) = (Vec::new(), Vec::new());
        while let Some((reference, record)) = self.pages.next_record(&mut walk) {
            let (code, link_bytes, is_damaged) = (record.code(), record.link_bytes(), record.is_damaged());
            walk.pass(record.units());
            let hash = self.hasher.hash(&code);
            if is_damaged || self.find(&code, hash).is_some() || !keep(&code, hash) {
                unwanted.push(reference);
            } else if self.index.reserve_line().is_err() {
                unwanted.push(reference);
                left.push(code);
            } else {
                self.index.insert(hash, reference);
                self.index.split_if_crowded(&hash_of(&self.pages, self.hasher));
                self.link_bytes += link_bytes;
            }
        }
        assert!(left.len() <= unwanted.len(), "a link without room stays a hole");
        unwanted.into_iter().for_each(|reference| self.pages.kill(reference));
        left
    }

    /// Removes the entry of a code. Returns false if it had none.
    pub fn remove(&mut self, code: &Code, hash: CodeHash) -> bool {
        debug_assert_eq!(hash, self.hasher.hash(code), "the hash is of another code or seed");
        let Some((slot, reference, record)) = self.find(code, hash) else { return false };
        self.link_bytes -= record.link_bytes();
        self.index.remove(hash, slot, &hash_of(&self.pages, self.hasher));
        self.index.merge_if_sparse(&hash_of(&self.pages, self.hasher));
        // Only now: the index reads codes from records, and this may give the page back.
        self.pages.kill(reference);
        self.evacuate_some();
        debug_assert!(self.find(code, hash).is_none(), "the removed code had two entries");
        debug_assert!(!self.is_empty() || self.link_bytes == 0, "the bytes of a removed link still count");
        true
    }

    /// Returns the number of codes with an entry.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if the map has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the characters of codes and bytes of targets of all entries: the size of a map without any overhead.
    pub fn link_bytes(&self) -> u64 {
        self.link_bytes
    }

    /// Returns the bytes that the map has taken from the kernel and the allocator, including untouched ones.
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.pages.memory_bytes() + size_of::<LinkMap>() as u64
    }

    /// Returns all entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Code, MapEntry<'_>)> {
        self.pages.live_records().map(|(_, record)| (record.code(), record.entry()))
    }

    /// Continues to empty a page that is full of holes, within the bounds for one change.
    fn evacuate_some(&mut self) {
        let Some(mut walk) = self.pages.evacuation() else { return };
        let mut moved = 0;
        let bytes_end = walk.position() + EVACUATE_BYTES;
        while walk.position() < bytes_end && moved < EVACUATE_RECORDS {
            let Some((old, record)) = self.pages.next_record(&mut walk) else {
                self.pages.end_evacuation(walk);
                return;
            };
            let hash = self.hasher.hash(&record.code());
            let slot = self.index.find(hash, |slot, reference| (reference == old).then_some(slot));
            let slot = slot.expect("every live record is in the index");
            // Without memory for a move the page stays as it is until there is some.
            let Ok(new) = self.pages.move_record(old) else { return };
            self.index.set(slot, new);
            walk.pass(self.pages.record(new).units());
            moved += 1;
        }
        self.pages.pause_evacuation(walk);
    }
}

/// Returns the function by which the index gets the hash of a record that it has a reference to.
fn hash_of(pages: &RecordPages, hasher: CodeHasher) -> impl Fn(Reference) -> CodeHash {
    move |reference| hasher.hash(&pages.record(reference).code())
}
