//! The pages that records lie in, and the records that are written in each.
//!
//! Records are written one after the other into a page, and a removed one stays as a hole until its whole page goes.
//! Which page is written to and which one goes is decided outside: by [`super::pages`] for a map of all links, by
//! [`super::queues`] for a cache.

use super::geometry::{FIRST_UNIT, Geometry};
use super::index::Reference;
use super::memory::MemoryChunk;
use super::outcome::MapFull;
use super::record::{self, Record, UNIT_BYTES, UNITS_MAX};
use super::sealed::SealedPage;

#[derive(Debug)]
struct RecordPage {
    /// `None` while the page's number is free.
    chunk: Option<MemoryChunk>,
    /// Units that were allocated, which is also the position of the next one.
    used: u32,
    /// Number of those units that are holes.
    holes: u32,
}

/// All pages of a map.
#[derive(Debug)]
pub(super) struct PageTable {
    geometry: Geometry,
    pages: Vec<RecordPage>,
    /// Numbers of pages without a chunk.
    free: Vec<u32>,
    /// Chunks in reserve, so that steady change does not map and unmap one for each page that is filled.
    spares: Vec<MemoryChunk>,
    /// Units that were allocated in all pages, and how many of them are holes.
    used: u64,
    holes: u64,
}

/// A walk over the records of a page, with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageWalk {
    page: u32,
    unit: u32,
}

impl PageWalk {
    /// Returns a walk at the first record of a page.
    pub(super) fn over(page: u32) -> PageWalk {
        PageWalk { page, unit: FIRST_UNIT }
    }

    pub(super) fn page(self) -> u32 {
        self.page
    }

    /// Returns the unit that it is at.
    pub(super) fn unit(self) -> u32 {
        self.unit
    }

    /// Returns the offset of the walk in its page, in bytes.
    pub(super) fn position(self) -> usize {
        self.unit as usize * UNIT_BYTES
    }

    /// Passes a record of `units` units.
    pub(super) fn pass(&mut self, units: u32) {
        self.unit += units;
    }
}

impl PageTable {
    pub(super) fn new(geometry: Geometry) -> PageTable {
        assert!(geometry.page_units() as usize > UNITS_MAX, "a page holds the longest record");
        assert!(u64::from(geometry.pages_max) << geometry.unit_bits <= 1 << 32, "references have 32 bits");
        PageTable { geometry, pages: Vec::new(), free: Vec::new(), spares: Vec::new(), used: 0, holes: 0 }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn place(&self, reference: Reference) -> (usize, usize) {
        let unit = reference.get() & (self.geometry.page_units() - 1);
        ((reference.get() >> self.geometry.unit_bits) as usize, unit as usize * UNIT_BYTES)
    }

    fn reference(&self, page: u32, unit: u32) -> Reference {
        Reference::new(page << self.geometry.unit_bits | unit)
    }

    /// Returns the page that a record lies in.
    pub(super) fn page_of(&self, reference: Reference) -> u32 {
        self.place(reference).0 as u32
    }

    /// Returns the record of a reference.
    #[inline]
    pub(super) fn record(&self, reference: Reference) -> Record<'_> {
        let (page, at) = self.place(reference);
        Record::at(&self.pages[page].bytes()[at..])
    }

    /// Reads from the first two cache lines of a record, which hold most of them.
    #[inline]
    pub(super) fn touch(&self, reference: Reference) {
        const LINE_BYTES: usize = 64;
        let (page, at) = self.place(reference);
        let bytes = self.pages[page].bytes();
        std::hint::black_box((bytes[at], bytes.get(at + LINE_BYTES).copied()));
    }

    /// Returns the bytes from the start of a record to the end of its page, to be written.
    #[inline]
    pub(super) fn bytes_mut(&mut self, reference: Reference) -> &mut [u8] {
        let (page, at) = self.place(reference);
        &mut self.pages[page].bytes_mut()[at..]
    }

    /// Adds an empty page and returns its number.
    ///
    /// # Errors
    /// [`MapFull`] when the table has its maximum of pages, or the kernel gives no chunk.
    pub(super) fn add(&mut self) -> Result<u32, MapFull> {
        if self.mapped() >= self.geometry.pages_max {
            return Err(MapFull);
        }
        let chunk = self.spares.pop().map_or_else(|| MemoryChunk::new(self.geometry.page_bytes()), Ok)?;
        Ok(self.number(RecordPage { chunk: Some(chunk), used: FIRST_UNIT, holes: 0 }))
    }

    /// Adds a page of sound records and returns its number.
    ///
    /// # Errors
    /// The page, when the table has its maximum of pages.
    ///
    /// # Panics
    /// If this table has pages of another size.
    pub(super) fn adopt(&mut self, page: SealedPage) -> Result<u32, SealedPage> {
        assert_eq!(self.geometry.unit_bits, Geometry::STANDARD.unit_bits, "sealed pages have the standard size");
        if self.mapped() >= self.geometry.pages_max {
            return Err(page);
        }
        let (chunk, used) = page.into_parts();
        assert!((FIRST_UNIT..=self.geometry.page_units()).contains(&used), "records end beyond the page");
        self.used += u64::from(used - FIRST_UNIT);
        Ok(self.number(RecordPage { chunk: Some(chunk), used, holes: 0 }))
    }

    fn number(&mut self, page: RecordPage) -> u32 {
        match self.free.pop() {
            Some(number) => {
                assert!(self.pages[number as usize].chunk.is_none(), "another page has the number");
                self.pages[number as usize] = page;
                number
            }
            None => {
                self.pages.push(page);
                self.pages.len() as u32 - 1
            }
        }
    }

    /// Returns room for a record of `units` units behind the last one of a page, which the caller writes at once.
    /// `None` if the page has none.
    pub(super) fn append(&mut self, number: u32, units: u32) -> Option<Reference> {
        let page = &mut self.pages[number as usize];
        let unit = page.used;
        if unit + units > self.geometry.page_units() {
            return None;
        }
        debug_assert!(page.chunk.is_some(), "the page was released");
        debug_assert!((1..=UNITS_MAX as u32).contains(&units), "no record has this size");
        page.used += units;
        self.used += u64::from(units);
        Some(self.reference(number, unit))
    }

    /// Turns a record into a hole.
    pub(super) fn kill(&mut self, reference: Reference) {
        debug_assert!(!self.record(reference).is_dead(), "the hole would count twice");
        let units = self.record(reference).units();
        record::kill(self.bytes_mut(reference));
        let (number, _) = self.place(reference);
        let page = &mut self.pages[number];
        page.holes += units;
        self.holes += u64::from(units);
        debug_assert!(page.holes + FIRST_UNIT <= page.used, "more holes than records in the page");
        debug_assert!(self.holes <= self.used, "more holes than records");
    }

    /// Copies a record to another place, in another page.
    pub(super) fn copy(&mut self, from: Reference, to: Reference) {
        let len = self.record(from).units() as usize * UNIT_BYTES;
        let ((old_page, old_at), (new_page, new_at)) = (self.place(from), self.place(to));
        let pages = self.pages.get_disjoint_mut([old_page, new_page]);
        let [from, to] = pages.expect("a record is copied to another page");
        debug_assert!(new_at + len <= to.used as usize * UNIT_BYTES, "the copy is beyond the room that was allocated");
        to.bytes_mut()[new_at..][..len].copy_from_slice(&from.bytes()[old_at..][..len]);
    }

    /// True if a page has no record.
    pub(super) fn is_empty(&self, number: u32) -> bool {
        let page = &self.pages[number as usize];
        page.used == page.holes + FIRST_UNIT
    }

    /// Returns the units of a page that are holes; zero for a number without a page.
    pub(super) fn holes_of(&self, number: u32) -> u32 {
        self.pages[number as usize].holes
    }

    /// Resets a page that has no record.
    pub(super) fn restart(&mut self, number: u32) {
        assert!(self.is_empty(number), "the page has records, which would be lost");
        let page = &mut self.pages[number as usize];
        self.used -= u64::from(page.holes);
        self.holes -= u64::from(page.holes);
        (page.used, page.holes) = (FIRST_UNIT, 0);
    }

    /// Releases a page that has no record. The table keeps its memory in reserve, up to `spares_max` chunks.
    pub(super) fn remove(&mut self, number: u32, spares_max: usize) {
        self.restart(number);
        let chunk = self.pages[number as usize].chunk.take();
        assert!(chunk.is_some(), "the page was released before, and its number may be in use again");
        self.free.push(number);
        self.spares.truncate(spares_max);
        if self.spares.len() < spares_max {
            self.spares.extend(chunk);
        }
    }

    /// Releases a chunk of the reserve. Returns false if it has none.
    pub(super) fn drop_spare(&mut self) -> bool {
        self.spares.pop().is_some()
    }

    /// Returns the bytes of the chunks in reserve.
    pub(super) fn spare_bytes(&self) -> u64 {
        (self.spares.len() * self.geometry.page_bytes()) as u64
    }

    /// Returns the number of pages that have a chunk.
    pub(super) fn mapped(&self) -> u32 {
        (self.pages.len() - self.free.len()) as u32
    }

    /// Returns how many page numbers were ever assigned; some may have no page now.
    pub(super) fn numbers(&self) -> usize {
        self.pages.len()
    }

    /// Returns the units that were allocated in all pages, and how many of them are holes.
    pub(super) fn used_and_holes(&self) -> (u64, u64) {
        (self.used, self.holes)
    }

    /// Returns the next record of the walk, which has passed all holes before it; `None` at the end of the page.
    pub(super) fn next_record(&self, walk: &mut PageWalk) -> Option<(Reference, Record<'_>)> {
        let page = &self.pages[walk.page as usize];
        while walk.unit < page.used {
            let record = Record::at(&page.bytes()[walk.position()..]);
            if !record.is_dead() {
                return Some((self.reference(walk.page, walk.unit), record));
            }
            walk.pass(record.units());
        }
        debug_assert_eq!(walk.unit, page.used, "the walk ended within a record");
        None
    }

    /// Returns every record that is not a hole.
    pub(super) fn live_records(&self) -> impl Iterator<Item = (Reference, Record<'_>)> {
        let mapped = (0u32..).zip(&self.pages).filter(|(_, page)| page.chunk.is_some());
        mapped.flat_map(move |(number, _)| {
            let mut walk = PageWalk::over(number);
            std::iter::from_fn(move || {
                let (reference, record) = self.next_record(&mut walk)?;
                walk.pass(record.units());
                Some((reference, record))
            })
        })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let tables = self.pages.capacity() * size_of::<RecordPage>()
            + self.free.capacity() * size_of::<u32>()
            + self.spares.capacity() * size_of::<MemoryChunk>();
        (self.mapped() as usize * self.geometry.page_bytes() + tables) as u64 + self.spare_bytes()
    }

    /// Counts everything again and compares.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let (mut used, mut holes) = (0, 0);
        for (number, page) in self.pages.iter().enumerate().filter(|(_, page)| page.chunk.is_some()) {
            let (mut unit, mut page_holes) = (FIRST_UNIT, 0);
            while unit < page.used {
                let record = Record::at(&page.bytes()[unit as usize * UNIT_BYTES..]);
                page_holes += if record.is_dead() { record.units() } else { 0 };
                unit += record.units();
            }
            assert_eq!((unit, page_holes), (page.used, page.holes), "page {number}");
            used += u64::from(page.used - FIRST_UNIT);
            holes += u64::from(page.holes);
        }
        assert_eq!((used, holes), (self.used, self.holes));
        assert!(self.free.iter().all(|&number| self.pages[number as usize].chunk.is_none()));
    }
}

impl RecordPage {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.chunk.as_ref().expect("a page with records is mapped").bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.chunk.as_mut().expect("a page with records is mapped").bytes_mut()
    }
}
