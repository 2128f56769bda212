//! The index: from the hash of a code to references of records, by linear hashing.
//!
//! A bucket is one line of 64 bytes: ten tags of 16 bits, ten references of 32, and the number of an overflow line. The
//! entries of a chain are packed: every line but the last is full. There are six entries to a bucket after an insertion
//! and at least four after a removal. One bucket is split or merged at a time, so nothing is ever rehashed as a whole.
//! Overflow lines are packed too: the last one takes the place of one that is freed, so they need no list of free ones
//! and shrink with the map.

use super::memory::{CacheLine, CacheLines};
use super::outcome::MapFull;
use crate::code::CodeHash;

/// Entries of a line.
const SLOTS: usize = 10;
const REFERENCES_AT: usize = 2 * SLOTS;
const NEXT_AT: usize = 6 * SLOTS;

/// A bucket is split when there are more entries than this per bucket. Six leave one bucket in twenty with an overflow
/// line; eight would save 2 bytes a link and cost every fourth look-up a line more.
const SPLIT_ABOVE: usize = 6;

/// Two buckets are merged when there are fewer entries than this per bucket.
const MERGE_BELOW: usize = 4;

/// The location of a record; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference(u32);

impl Reference {
    pub(super) fn new(number: u32) -> Reference {
        assert!(number != 0, "zero marks an empty slot");
        Reference(number)
    }

    #[inline]
    pub(super) fn get(self) -> u32 {
        self.0
    }
}

/// A line of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineId {
    Bucket(u32),
    Overflow(u32),
}

/// The place of an entry; it stays valid until the next change of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexSlot {
    line: LineId,
    slot: usize,
}

/// The index of a map.
#[derive(Debug)]
pub(super) struct MapIndex {
    buckets: CacheLines,
    overflow: CacheLines,
    entries: usize,
    /// Entries of the buckets that are being split or merged; empty between operations.
    moving: Vec<(u16, Reference)>,
}

/// Returns the tag of a hash: its bits 32 to 47. The bucket comes from bits 0 to 31. The owner comes from bits 32 to 63
/// as a number, by the range that it is in. There are at most 65,535 ranges, so each is wider than 2^16: within a
/// range, the lower 16 of these bits still take every value equally often.
#[inline]
pub(super) fn tag(hash: CodeHash) -> u16 {
    (hash.0 >> 32) as u16
}

impl MapIndex {
    /// Returns an index whose memory comes in chunks of at most `chunk_bytes_max` bytes, a power of two.
    pub(super) fn new(chunk_bytes_max: usize) -> Result<MapIndex, MapFull> {
        let mut buckets = CacheLines::new(chunk_bytes_max);
        buckets.reserve(1)?;
        buckets.push();
        Ok(MapIndex { buckets, overflow: CacheLines::new(chunk_bytes_max), entries: 0, moving: Vec::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Gives an index without entries as many buckets as `entries` entries need, or as there is memory for.
    pub(super) fn grow_for(&mut self, entries: usize) {
        assert_eq!(self.entries, 0, "buckets of an index with entries come from splits");
        let wanted = buckets_for(entries);
        while self.buckets.len() < wanted && self.buckets.reserve(1).is_ok() {
            self.buckets.push();
        }
    }

    /// Returns the bucket of a hash: its lower bits, as many as the bucket numbers have, or one less if that bucket is
    /// yet to be split off.
    #[inline]
    pub(super) fn bucket_of(&self, hash: CodeHash) -> u32 {
        let buckets = self.buckets.len();
        // All ones up to the top bit of the count; the half of it names the buckets of the last full round.
        let mask = u32::MAX >> buckets.leading_zeros();
        let bucket = hash.0 as u32 & mask;
        let bucket = if bucket < buckets { bucket } else { bucket & (mask >> 1) };
        debug_assert!(bucket < buckets, "the bucket does not exist yet");
        bucket
    }

    #[inline]
    fn line(&self, id: LineId) -> &CacheLine {
        match id {
            LineId::Bucket(at) => self.buckets.get(at),
            LineId::Overflow(at) => self.overflow.get(at),
        }
    }

    fn line_mut(&mut self, id: LineId) -> &mut CacheLine {
        match id {
            LineId::Bucket(at) => self.buckets.get_mut(at),
            LineId::Overflow(at) => self.overflow.get_mut(at),
        }
    }

    /// Reads the line that a look-up of this hash begins with.
    #[inline]
    pub(super) fn touch(&self, hash: CodeHash) {
        std::hint::black_box(self.buckets.get(self.bucket_of(hash))[0]);
    }

    /// Returns the first result that `look` gives for an entry with the tag of this hash.
    #[inline]
    pub(super) fn find<T>(&self, hash: CodeHash, look: impl Fn(IndexSlot, Reference) -> Option<T>) -> Option<T> {
        let tag = tag(hash);
        let mut id = LineId::Bucket(self.bucket_of(hash));
        loop {
            let line = self.line(id);
            let mut hits = slots_with_tag(line, tag);
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                hits &= hits - 1;
                // An empty slot has the tag zero, which some codes have too.
                if let Some(found) =
                    reference(line, slot).and_then(|reference| look(IndexSlot { line: id, slot }, reference))
                {
                    return Some(found);
                }
            }
            id = next(line)?;
        }
    }

    /// Changes the reference of an entry.
    pub(super) fn set(&mut self, at: IndexSlot, to: Reference) {
        let line = self.line_mut(at.line);
        debug_assert!(reference(line, at.slot).is_some(), "an empty slot has no reference to change");
        let tag = tag_at(line, at.slot);
        write(line, at.slot, Some((tag, to)));
    }

    /// Makes sure that the next insertion finds memory.
    pub(super) fn reserve_line(&mut self) -> Result<(), MapFull> {
        self.overflow.reserve(1)
    }

    /// Adds an entry; a line must have been reserved.
    pub(super) fn insert(&mut self, hash: CodeHash, reference: Reference) {
        self.append(self.bucket_of(hash), tag(hash), reference);
        self.entries += 1;
    }

    /// Returns the last line of a bucket's chain and the one before it.
    fn chain_end(&self, bucket: u32) -> (Option<LineId>, LineId) {
        let (mut before, mut last) = (None, LineId::Bucket(bucket));
        while let Some(next) = next(self.line(last)) {
            (before, last) = (Some(last), next);
        }
        (before, last)
    }

    fn append(&mut self, bucket: u32, tag: u16, reference: Reference) {
        let (_, mut last) = self.chain_end(bucket);
        let mut slot = filled(self.line(last));
        debug_assert!(
            (slot..SLOTS).all(|slot| entry(self.line(last), slot).is_none()),
            "entries behind an empty slot would be overwritten"
        );
        if slot == SLOTS {
            let added = LineId::Overflow(self.overflow.push());
            set_next(self.line_mut(last), Some(added));
            (last, slot) = (added, 0);
        }
        write(self.line_mut(last), slot, Some((tag, reference)));
    }

    /// Removes an entry of this hash; the last one of the chain takes its place. `hash_of` returns the hash of any
    /// record.
    pub(super) fn remove(&mut self, hash: CodeHash, at: IndexSlot, hash_of: &impl Fn(Reference) -> CodeHash) {
        debug_assert_eq!(tag_at(self.line(at.line), at.slot), tag(hash), "the slot is of another hash");
        let (before, last) = self.chain_end(self.bucket_of(hash));
        let line = self.line_mut(last);
        let slot = filled(line) - 1;
        let entry = entry(line, slot);
        write(line, slot, None);
        if at != (IndexSlot { line: last, slot }) {
            debug_assert!(entry.is_some(), "an empty slot takes the place of the removed entry");
            write(self.line_mut(at.line), at.slot, entry);
        }
        if slot == 0
            && let Some(before) = before
        {
            self.free_line(before, hash_of);
        }
        self.entries -= 1;
    }

    /// Frees the overflow line behind `before`, the last of its chain. The last overflow line of all takes its number:
    /// the line that links to that one is found through the hash of one of its entries.
    fn free_line(&mut self, before: LineId, hash_of: &impl Fn(Reference) -> CodeHash) {
        let Some(LineId::Overflow(freed)) = next(self.line(before)) else {
            panic!("only overflow lines stand behind others");
        };
        set_next(self.line_mut(before), None);
        let last = self.overflow.len() - 1;
        debug_assert!(freed <= last, "the chain leads to a line that does not exist");
        debug_assert!(next(self.overflow.get(freed)).is_none(), "the lines behind the freed one would be lost");
        if freed != last {
            let line = *self.overflow.get(last);
            let member = reference(&line, 0).expect("a linked overflow line is never empty");
            let mut linking = LineId::Bucket(self.bucket_of(hash_of(member)));
            loop {
                let next = next(self.line(linking)).expect("the line is in the chain of its entries");
                if next == LineId::Overflow(last) {
                    break;
                }
                linking = next;
            }
            set_next(self.line_mut(linking), Some(LineId::Overflow(freed)));
            *self.overflow.get_mut(freed) = line;
        }
        self.overflow.pop();
    }

    /// Takes all entries of a bucket into `moving`, and its overflow lines away.
    fn drain_bucket(&mut self, bucket: u32, hash_of: &impl Fn(Reference) -> CodeHash) {
        debug_assert!(self.moving.is_empty(), "entries of another bucket would move along");
        loop {
            let (before, last) = self.chain_end(bucket);
            let line = *self.line(last);
            self.moving.extend((0..SLOTS).map_while(|slot| entry(&line, slot)));
            match before {
                Some(before) => self.free_line(before, hash_of),
                None => break,
            }
        }
        *self.line_mut(LineId::Bucket(bucket)) = [0; size_of::<CacheLine>()];
    }

    /// Splits one bucket when there are too many entries for the buckets. Without memory it is left for the next time.
    pub(super) fn split_if_crowded(&mut self, hash_of: &impl Fn(Reference) -> CodeHash) {
        let buckets = self.buckets.len();
        if self.entries <= buckets as usize * SPLIT_ABOVE {
            return;
        }
        // Two chains need at most one line more than their entries needed in one.
        if self.buckets.reserve(1).is_err() || self.overflow.reserve(1).is_err() {
            return;
        }
        self.drain_bucket(parent(buckets), hash_of);
        self.buckets.push();
        let mut moving = std::mem::take(&mut self.moving);
        for (tag, reference) in moving.drain(..) {
            let bucket = self.bucket_of(hash_of(reference));
            debug_assert!(bucket == parent(buckets) || bucket == buckets, "the entry was in a wrong bucket");
            self.append(bucket, tag, reference);
        }
        self.moving = moving;
    }

    /// Merges the last bucket into the one that it was split from when there are too few entries for the buckets.
    /// Returns true if it has.
    pub(super) fn merge_if_sparse(&mut self, hash_of: &impl Fn(Reference) -> CodeHash) -> bool {
        let buckets = self.buckets.len();
        // Entries that filled up two buckets can need an overflow line when they are in one.
        if buckets == 1 || self.entries >= buckets as usize * MERGE_BELOW || self.overflow.reserve(1).is_err() {
            return false;
        }
        let last = buckets - 1;
        self.drain_bucket(last, hash_of);
        self.buckets.pop();
        let mut moving = std::mem::take(&mut self.moving);
        for (tag, reference) in moving.drain(..) {
            debug_assert_eq!(self.bucket_of(hash_of(reference)), parent(last), "look-ups would miss the entry");
            self.append(parent(last), tag, reference);
        }
        self.moving = moving;
        true
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let moving = self.moving.capacity() * size_of::<(u16, Reference)>();
        self.buckets.memory_bytes() + self.overflow.memory_bytes() + moving as u64
    }

    /// Every reference, after checks of all chains.
    #[cfg(test)]
    pub(super) fn check(&self, hash_of: &impl Fn(Reference) -> CodeHash) -> Vec<Reference> {
        let (mut references, mut overflow_lines) = (Vec::new(), 0);
        for bucket in 0..self.buckets.len() {
            let mut id = LineId::Bucket(bucket);
            // A split or merge touches one or two chains as a whole: short chains bound its time. Twelve entries is the
            // mean of the buckets that are split last, and chance does not make five lines of them.
            for lines in 1.. {
                assert!(lines <= 5, "bucket {bucket} has a chain of {lines} lines");
                let line = self.line(id);
                let filled = filled(line);
                for slot in 0..filled {
                    let (tag_there, reference) = entry(line, slot).expect("entries are packed");
                    let hash = hash_of(reference);
                    assert_eq!((self.bucket_of(hash), tag(hash)), (bucket, tag_there));
                    references.push(reference);
                }
                assert!((filled..SLOTS).all(|slot| entry(line, slot).is_none()));
                let Some(next) = next(line) else { break };
                assert_eq!(filled, SLOTS, "only the last line of a chain may have room");
                (id, overflow_lines) = (next, overflow_lines + 1);
                assert!(reference(self.line(id), 0).is_some(), "no overflow line is empty");
            }
        }
        assert_eq!((references.len(), overflow_lines), (self.entries, self.overflow.len()));
        references
    }
}

/// Returns the number of buckets for `entries` entries.
pub(super) fn buckets_for(entries: usize) -> u32 {
    u32::try_from(entries.div_ceil(SPLIT_ABOVE)).unwrap_or(u32::MAX >> 1).clamp(1, u32::MAX >> 1)
}

/// Returns the bucket that a bucket is split from: the same number without its top bit.
fn parent(bucket: u32) -> u32 {
    bucket ^ 1 << bucket.ilog2()
}

/// Returns one bit for each slot that has this tag.
#[inline]
fn slots_with_tag(line: &CacheLine, tag: u16) -> u32 {
    (0..SLOTS).fold(0, |hits, slot| hits | u32::from(tag_at(line, slot) == tag) << slot)
}

#[inline]
fn tag_at(line: &CacheLine, slot: usize) -> u16 {
    u16::from_le_bytes([line[2 * slot], line[2 * slot + 1]])
}

#[inline]
fn word(line: &CacheLine, at: usize) -> u32 {
    u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]])
}

#[inline]
fn reference(line: &CacheLine, slot: usize) -> Option<Reference> {
    let number = word(line, REFERENCES_AT + 4 * slot);
    (number != 0).then_some(Reference(number))
}

fn entry(line: &CacheLine, slot: usize) -> Option<(u16, Reference)> {
    reference(line, slot).map(|reference| (tag_at(line, slot), reference))
}

fn write(line: &mut CacheLine, slot: usize, entry: Option<(u16, Reference)>) {
    let (tag, number) = entry.map_or((0, 0), |(tag, reference)| (tag, reference.0));
    line[2 * slot..][..2].copy_from_slice(&tag.to_le_bytes());
    line[REFERENCES_AT + 4 * slot..][..4].copy_from_slice(&number.to_le_bytes());
}

/// Returns how many slots of a line are taken: they are the first ones.
fn filled(line: &CacheLine) -> usize {
    (0..SLOTS).take_while(|&slot| reference(line, slot).is_some()).count()
}

/// Returns the overflow line behind a line. Zero stands for none, so numbers are stored with one added.
#[inline]
fn next(line: &CacheLine) -> Option<LineId> {
    word(line, NEXT_AT).checked_sub(1).map(LineId::Overflow)
}

fn set_next(line: &mut CacheLine, next: Option<LineId>) {
    let number = match next {
        Some(LineId::Overflow(at)) => at + 1,
        Some(LineId::Bucket(_)) => panic!("a bucket is never behind another line"),
        None => 0,
    };
    line[NEXT_AT..].copy_from_slice(&number.to_le_bytes());
}
