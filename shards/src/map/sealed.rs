//! Sealed pages: records outside a map, in the form that they have in one.
//!
//! A program writes sealed pages to a file and reads them back into memory that a map then adopts
//! ([`LinkMap::adopt`](super::LinkMap::adopt)), without a copy of any record. Before that, [`PageBuffer::seal`] checks
//! that the bytes are records, so that a file of any content is refused instead of believed. Its reader brings a
//! checksum; the first [`PAGE_HEAD_BYTES`] of a page are there for it.

use super::geometry::{FIRST_UNIT, Geometry};
use super::memory::MemoryChunk;
use super::outcome::MapFull;
use super::record::{self, Record, UNIT_BYTES, UNITS_MAX};
use crate::code::{Code, CodeHash};
use crate::link::MapEntry;

/// Bytes of a sealed page.
pub const PAGE_BYTES: usize = Geometry::STANDARD.page_bytes();

/// Bytes at the start of a page that hold no record. A map does not read them.
pub const PAGE_HEAD_BYTES: usize = FIRST_UNIT as usize * UNIT_BYTES;

/// Bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = UNITS_MAX * UNIT_BYTES;

/// One record in sealed form.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a>(&'a [u8]);

impl<'a> Sealed<'a> {
    /// Returns the bytes of the record.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the code of the record; `None` if it has no valid one.
    pub fn code(&self) -> Option<Code> {
        Record::at(self.0).checked_code()
    }
}

/// Appends the record of an entry to sealed records.
///
/// # Panics
/// If a target or an instant is out of bounds, as in [`LinkMap::put`](super::LinkMap::put).
pub fn append(records: &mut Vec<u8>, code: &Code, entry: &MapEntry<'_>) {
    let at = records.len();
    records.resize(at + record::units(code, entry) as usize * UNIT_BYTES, 0);
    record::write(&mut records[at..], code, entry);
    debug_assert_eq!(Record::len_at(&records[at..]), Some(records.len() - at), "the next record is not found");
}

/// Returns the sealed records in bytes that [`append`] has made. Ends where no whole record follows.
pub fn records_in(bytes: &[u8]) -> impl Iterator<Item = Sealed<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = Record::len_at(rest)?;
        let (record, behind) = rest.split_at(len);
        rest = behind;
        Some(Sealed(record))
    })
}

/// Returns the sort key that orders codes as the index of a map with about `entries` entries does. Adopting records in
/// this order writes the index from its start to its end.
pub fn index_order(hash: CodeHash, entries: usize) -> u32 {
    hash.0 as u32 & index_order_max(entries)
}

/// Returns the last place in the order of [`index_order`], one less than a power of two.
pub fn index_order_max(entries: usize) -> u32 {
    super::index::buckets_for(entries).next_power_of_two() - 1
}

/// Fills sealed pages.
#[derive(Debug)]
pub struct PageWriter {
    bytes: Box<[u8]>,
    used: usize,
}

impl Default for PageWriter {
    fn default() -> PageWriter {
        PageWriter { bytes: vec![0; PAGE_BYTES].into_boxed_slice(), used: PAGE_HEAD_BYTES }
    }
}

impl PageWriter {
    /// Adds a record. Returns false if the page has no room for it.
    #[must_use]
    pub fn push(&mut self, record: Sealed<'_>) -> bool {
        let end = self.used + record.0.len();
        debug_assert_eq!(Record::len_at(record.0), Some(record.0.len()), "the record behind this one is not found");
        let has_room = end <= PAGE_BYTES;
        if has_room {
            self.bytes[self.used..end].copy_from_slice(record.0);
            self.used = end;
        }
        has_room
    }

    /// True if the page has no record.
    pub fn is_empty(&self) -> bool {
        self.used == PAGE_HEAD_BYTES
    }

    /// Returns the bytes of the page. The caller owns its first [`PAGE_HEAD_BYTES`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Empties the page.
    pub fn clear(&mut self) {
        self.bytes[..self.used].fill(0);
        self.used = PAGE_HEAD_BYTES;
    }
}

/// Memory for one sealed page, which a reader fills.
#[derive(Debug)]
pub struct PageBuffer(MemoryChunk);

impl PageBuffer {
    /// Returns a page of zeros that the kernel has already given memory for.
    ///
    /// # Errors
    /// [`MapFull`] when the kernel gives none.
    pub fn new() -> Result<PageBuffer, MapFull> {
        let chunk = MemoryChunk::new(PAGE_BYTES)?;
        chunk.populate();
        Ok(PageBuffer(chunk))
    }

    /// Returns all [`PAGE_BYTES`], to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Checks the records of the page. `None` when some bytes are not a record that a map could have.
    pub fn seal(self) -> Option<SealedPage> {
        let bytes = self.0.bytes();
        let (mut at, mut len, mut damaged) = (PAGE_HEAD_BYTES, 0, 0);
        while let Some(record_len) = Record::len_at(&bytes[at..]) {
            let record = Record::at(&bytes[at..at + record_len]);
            if !record.is_sound() {
                return None;
            }
            damaged += u32::from(record.is_damaged());
            len += 1;
            at += record_len;
        }
        // Behind the last record there are zeros, as in a page that a map has not filled yet.
        if bytes[at..].iter().any(|&byte| byte != 0) {
            return None;
        }
        debug_assert!(at.is_multiple_of(UNIT_BYTES), "the page ends within a unit");
        Some(SealedPage { used: (at / UNIT_BYTES) as u32, len, damaged, chunk: self.0 })
    }
}

/// A page of sound records that no map has adopted yet.
#[derive(Debug)]
pub struct SealedPage {
    chunk: MemoryChunk,
    /// Units up to the end of the last record.
    used: u32,
    /// Number of records.
    len: u32,
    /// Number of entries that are [`MapEntry::Damaged`].
    damaged: u32,
}

impl SealedPage {
    /// Iterates over the codes and entries of the page.
    pub fn records(&self) -> impl Iterator<Item = (Code, MapEntry<'_>)> {
        records_in(&self.chunk.bytes()[PAGE_HEAD_BYTES..self.used as usize * UNIT_BYTES]).map(|Sealed(bytes)| {
            let record = Record::at(bytes);
            (record.code(), record.entry())
        })
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true for a page without records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries that are [`MapEntry::Damaged`].
    pub fn damaged(&self) -> usize {
        self.damaged as usize
    }

    /// Splits the page into its memory and the number of units in use.
    pub(super) fn into_parts(self) -> (MemoryChunk, u32) {
        (self.chunk, self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{CodeHasher, DomainId};
    use crate::link::Policy;
    use crate::map::LinkMap;
    use proptest::prelude::*;

    fn code(number: usize) -> Code {
        let code = Code::parse(format!("c{number}").as_bytes()).unwrap();
        if number.is_multiple_of(7) { code.within(DomainId::from_bytes([1, 2, 3, 4, 5, 6])) } else { code }
    }

    fn entry(number: usize, target: &str) -> MapEntry<'_> {
        let valid_until_ms = number.is_multiple_of(3).then_some(1_700_000_000_000 + number as u64);
        match number % 11 {
            10 => MapEntry::Damaged,
            _ => MapEntry::Link { policy: Policy { valid_until_ms, ..Policy::default() }, target: target.as_bytes() },
        }
    }

    fn target(number: usize) -> String {
        format!("https://example.org/{}", "x".repeat(number * 31 % 400))
    }

    /// Pages with the records of these numbers.
    fn pages(numbers: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
        let (mut writer, mut pages, mut records) = (PageWriter::default(), Vec::new(), Vec::new());
        numbers.for_each(|number| append(&mut records, &code(number), &entry(number, &target(number))));
        for record in records_in(&records) {
            if !writer.push(record) {
                pages.push(writer.bytes_mut().to_vec());
                writer.clear();
                assert!(writer.push(record));
            }
        }
        pages.push(writer.bytes_mut().to_vec());
        pages
    }

    fn read(bytes: &[u8]) -> Option<SealedPage> {
        let mut buffer = PageBuffer::new().unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer.seal()
    }

    #[test]
    fn a_map_adopts_what_is_wanted_and_not_there() {
        const LINKS: usize = 12_000;
        let hasher = CodeHasher::new(5);
        let mut map = LinkMap::new(hasher);
        map.reserve(LINKS);
        let newer = MapEntry::Link { policy: Policy::default(), target: b"https://example.org/newer" };
        map.put(&code(1), hasher.hash(&code(1)), newer).unwrap();
        let unwanted = code(2);
        let pages = pages(0..LINKS);
        assert!(pages.len() > 2);
        for bytes in &pages {
            let page = read(bytes).unwrap();
            assert_eq!(page.len(), page.records().count());
            assert_eq!(page.damaged(), page.records().filter(|(_, entry)| *entry == MapEntry::Damaged).count());
            assert_eq!(map.adopt(page, |code, _| *code != unwanted), []);
        }
        map.fit();
        map.check();
        let damaged = (0..LINKS).filter(|number| number % 11 == 10).count();
        assert_eq!(map.len(), LINKS - 1 - damaged);
        for number in 0..LINKS {
            let (code, target) = (code(number), target(number));
            let expected = match number {
                1 => Some(newer),
                2 => None,
                _ if number % 11 == 10 => None,
                _ => Some(entry(number, &target)),
            };
            assert_eq!(map.get(&code, hasher.hash(&code)), expected, "{number}");
        }
        // An adopted record is like any other: it is replaced, removed, and its page given back.
        for number in (0..LINKS).filter(|number| number % 50 != 0) {
            map.remove(&code(number), hasher.hash(&code(number)));
        }
        map.check();
        assert!(map.memory_bytes() < (pages.len() * PAGE_BYTES) as u64);
    }

    #[test]
    fn bytes_that_no_map_writes_make_no_page() {
        let good = pages(1..3).remove(0);
        assert!(read(&good).is_some());
        let is_refused = |at: usize, change: u8| {
            let mut bytes = good.clone();
            bytes[at] ^= change;
            read(&bytes).is_none()
        };
        // In the header of a record: a dead one, one that was used, a bit without meaning, an unknown status, and a
        // damaged one with a target.
        let header = PAGE_HEAD_BYTES;
        for (at, change) in [(3, 1), (3, 2), (3, 0x80), (2, 0x1c), (2, 0x80)] {
            assert!(is_refused(header + at, change), "byte {at}, bits {change:#x}");
        }
        assert!(is_refused(PAGE_BYTES - 1, 1), "a byte behind the last record");
    }

    #[test]
    fn a_full_map_names_the_codes_that_found_no_room() {
        let hasher = CodeHasher::new(5);
        let mut map = LinkMap::with_room(hasher, PAGE_BYTES as u64);
        let pages = pages(0..6_000);
        let left: Vec<Code> = pages.iter().flat_map(|bytes| map.adopt(read(bytes).unwrap(), |_, _| true)).collect();
        assert_eq!(left.len() + map.len(), 6_000 - (0..6_000).filter(|number| number % 11 == 10).count());
        assert!(!left.is_empty());
        assert!(!map.is_empty());
        assert!(left.iter().all(|code| map.get(code, hasher.hash(code)).is_none()));
    }

    #[test]
    fn records_in_index_order_come_bucket_by_bucket() {
        let hasher = CodeHasher::new(5);
        let mut hashes: Vec<_> = (0..1_000).map(|number| hasher.hash(&code(number))).collect();
        hashes.sort_by_key(|&hash| index_order(hash, 1_000));
        let mut map = LinkMap::new(hasher);
        map.reserve(1_000);
        let buckets: Vec<u32> = hashes.iter().map(|&hash| map.index.bucket_of(hash)).collect();
        // Buckets that are yet to be split take two runs.
        assert!(buckets.windows(2).filter(|pair| pair[0] > pair[1]).count() <= 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_map_panic(at in 0..600_usize, change in 1..=255_u8, tail in 0..3_usize) {
            let mut bytes = pages(0..40).remove(0);
            let at = if tail == 0 { PAGE_BYTES - 1 - at } else { at };
            bytes[at] ^= change;
            if let Some(page) = read(&bytes) {
                let mut map = LinkMap::new(CodeHasher::new(5));
                map.adopt(page, |_, _| true);
                map.check();
                map.iter().for_each(|(_, entry)| drop(format!("{entry:?}")));
            }
        }
    }
}
