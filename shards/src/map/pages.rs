//! The pages that records lie in: allocation, holes, and which page to empty next.
//!
//! Records are written one after the other into the open page. A removed record stays as a hole until its page is
//! emptied: its live records are copied to the open page and it goes back to the kernel. Which records those are is
//! found by walking the page, so the walk is driven from outside, where the index is ([`super::LinkMap`]).

use super::MapFull;
use super::index::Reference;
use super::memory::Chunk;
use super::record::{self, Record, UNIT_BYTES, UNITS_MAX};

/// How large pages are and how many there can be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// A page has two to the power of this many units of eight bytes; references have these bits for the unit.
    pub(super) unit_bits: u32,
    /// The last of these is kept for emptying others when the map is full.
    pub(super) pages_max: u32,
}

impl Geometry {
    /// Pages of 512 KiB, 65,536 of them: 32 GiB, all that 32 bits can name in units of eight bytes. Giving a page back
    /// takes the kernel 50 to 100 microseconds, which speaks for small ones. Linux grants a process 65,530 mappings, but
    /// counts neighbours as one; so tens of GiB may be full of gaps before it refuses, which speaks for large ones.
    pub(super) const STANDARD: Geometry = Geometry { unit_bits: 16, pages_max: 1 << 16 };

    pub(super) fn page_bytes(self) -> usize {
        UNIT_BYTES << self.unit_bits
    }

    fn page_units(self) -> u32 {
        1 << self.unit_bits
    }
}

/// Emptying begins when this share of all units in use are holes: one in five.
const HOLES_SHARE: u64 = 5;

/// A page is worth emptying when one in this many of its units is a hole. Where one in five is on average, at least one
/// page in eighteen is such a page, so looking at a few finds one.
const VICTIM_SHARE: u32 = 7;

/// Pages that one change looks at for the next one to empty; the one with the most holes among them is taken.
const VICTIM_CANDIDATES: usize = 32;

/// Below this many pages none is kept in reserve: a small map should be small.
const SPARE_FROM_PAGES: u32 = 8;

/// The first unit of a page is left out, so that no reference is zero.
const FIRST_UNIT: u32 = 1;

#[derive(Debug)]
struct Page {
    /// `None` while the page's number is free.
    chunk: Option<Chunk>,
    /// Units that were given out, and the place of the next one.
    used: u32,
    /// Units of those that are holes.
    holes: u32,
}

/// All pages of a map.
#[derive(Debug)]
pub(super) struct Pages {
    geometry: Geometry,
    pages: Vec<Page>,
    /// Numbers of pages without a chunk.
    free: Vec<u32>,
    /// The page that is written to.
    open: Option<u32>,
    /// A chunk in reserve, so that steady change does not map and unmap one for each page that is filled.
    spare: Option<Chunk>,
    /// Units that were given out in all pages, and how many of them are holes.
    used: u64,
    holes: u64,
    /// The page that is being emptied, and how far.
    evacuation: Option<Walk>,
    /// Where to look for the next page to empty.
    candidate: usize,
}

/// How far the walk over a page that is being emptied has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    page: u32,
    unit: u32,
}

impl Walk {
    /// Bytes of the page that are behind it.
    pub(super) fn position(self) -> usize {
        self.unit as usize * UNIT_BYTES
    }

    /// Passes a record of so many units.
    pub(super) fn pass(&mut self, units: u32) {
        self.unit += units;
    }
}

impl Pages {
    pub(super) fn new(geometry: Geometry) -> Pages {
        assert!(geometry.page_units() as usize > UNITS_MAX, "a page holds the longest record");
        assert!(u64::from(geometry.pages_max) << geometry.unit_bits <= 1 << 32, "references have 32 bits");
        Pages {
            geometry,
            pages: Vec::new(),
            free: Vec::new(),
            open: None,
            spare: None,
            used: 0,
            holes: 0,
            evacuation: None,
            candidate: 0,
        }
    }

    #[inline]
    fn place(&self, reference: Reference) -> (usize, usize) {
        let unit = reference.get() & (self.geometry.page_units() - 1);
        ((reference.get() >> self.geometry.unit_bits) as usize, unit as usize * UNIT_BYTES)
    }

    fn reference(&self, page: u32, unit: u32) -> Reference {
        Reference::new(page << self.geometry.unit_bits | unit)
    }

    /// The record of a reference.
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

    /// From the first byte of a record to the end of its page, to be written.
    pub(super) fn bytes_mut(&mut self, reference: Reference) -> &mut [u8] {
        let (page, at) = self.place(reference);
        &mut self.pages[page].bytes_mut()[at..]
    }

    /// Room for a record of so many units, which the caller writes at once.
    ///
    /// # Errors
    /// [`MapFull`] when all pages but the one for moves are in use, or the kernel gives no chunk.
    pub(super) fn allocate(&mut self, units: u32) -> Result<Reference, MapFull> {
        self.allocate_within(units, self.geometry.pages_max - 1)
    }

    fn allocate_within(&mut self, units: u32, pages_max: u32) -> Result<Reference, MapFull> {
        let fits = |page: &Page| page.used + units <= self.geometry.page_units();
        let open = match self.open.filter(|&open| fits(&self.pages[open as usize])) {
            Some(open) => open,
            None => self.open_page(pages_max)?,
        };
        let page = &mut self.pages[open as usize];
        let unit = page.used;
        page.used += units;
        self.used += u64::from(units);
        Ok(self.reference(open, unit))
    }

    /// Makes another page the open one; the few units at the end of the old one stay unused.
    fn open_page(&mut self, pages_max: u32) -> Result<u32, MapFull> {
        if self.mapped() >= pages_max {
            return Err(MapFull);
        }
        let chunk = self.spare.take().map_or_else(|| Chunk::new(self.geometry.page_bytes()), Ok)?;
        let page = Page { chunk: Some(chunk), used: FIRST_UNIT, holes: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.pages[number as usize] = page;
                number
            }
            None => {
                self.pages.push(page);
                self.pages.len() as u32 - 1
            }
        };
        let closed = self.open.replace(number);
        // The old page could not go while it was open.
        if let Some(closed) = closed {
            self.release_if_empty(closed);
        }
        Ok(number)
    }

    /// Makes a hole of a record.
    pub(super) fn kill(&mut self, reference: Reference) {
        let units = self.record(reference).units();
        record::kill(self.bytes_mut(reference));
        let number = self.place(reference).0 as u32;
        self.pages[number as usize].holes += units;
        self.holes += u64::from(units);
        self.release_if_empty(number);
    }

    /// Gives a page back that consists of holes. The open page starts anew instead, and one that is being walked goes at
    /// the end of the walk.
    fn release_if_empty(&mut self, number: u32) {
        let page = &self.pages[number as usize];
        let is_empty = page.used == page.holes + FIRST_UNIT;
        if !is_empty || self.evacuation.is_some_and(|walk| walk.page == number) {
            return;
        }
        if self.open == Some(number) {
            self.forget_units(number);
        } else {
            self.release(number);
        }
    }

    /// Starts a page of nothing but holes anew.
    fn forget_units(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        self.used -= u64::from(page.holes);
        self.holes -= u64::from(page.holes);
        (page.used, page.holes) = (FIRST_UNIT, 0);
    }

    fn release(&mut self, number: u32) {
        self.forget_units(number);
        let chunk = self.pages[number as usize].chunk.take();
        self.free.push(number);
        self.spare = if self.mapped() < SPARE_FROM_PAGES { None } else { self.spare.take().or(chunk) };
    }

    /// Pages that have a chunk.
    fn mapped(&self) -> u32 {
        (self.pages.len() - self.free.len()) as u32
    }

    /// The walk over the page that is to be emptied, if there are too many holes.
    pub(super) fn evacuation(&mut self) -> Option<Walk> {
        if self.evacuation.is_none() && self.holes * HOLES_SHARE > self.used && self.holes > self.page_worth() {
            self.evacuation = self.pick_victim().map(|page| Walk { page, unit: FIRST_UNIT });
        }
        self.evacuation
    }

    /// Holes up to one page are not worth any work.
    fn page_worth(&self) -> u64 {
        u64::from(self.geometry.page_units())
    }

    /// The page with the most holes among the next few, if any has enough.
    fn pick_victim(&mut self) -> Option<u32> {
        let looked_at = VICTIM_CANDIDATES.min(self.pages.len());
        let numbers = (0..looked_at).map(|step| ((self.candidate + step) % self.pages.len()) as u32);
        let worth = |number: &u32| {
            let page = &self.pages[*number as usize];
            Some(*number) != self.open && page.chunk.is_some() && page.holes > self.geometry.page_units() / VICTIM_SHARE
        };
        let victim = numbers.filter(worth).max_by_key(|&number| self.pages[number as usize].holes);
        self.candidate = (self.candidate + looked_at) % self.pages.len();
        victim
    }

    /// The next live record of the walk, which has passed all holes before it; `None` at the end of the page.
    pub(super) fn next_to_evacuate(&self, walk: &mut Walk) -> Option<(Reference, Record<'_>)> {
        let page = &self.pages[walk.page as usize];
        while walk.unit < page.used {
            let record = Record::at(&page.bytes()[walk.position()..]);
            if !record.is_dead() {
                return Some((self.reference(walk.page, walk.unit), record));
            }
            walk.pass(record.units());
        }
        None
    }

    /// Copies a record to the open page and makes a hole of the old one.
    pub(super) fn move_record(&mut self, old: Reference) -> Result<Reference, MapFull> {
        let units = self.record(old).units();
        let new = self.allocate_within(units, self.geometry.pages_max)?;
        let len = units as usize * UNIT_BYTES;
        let ((old_page, old_at), (new_page, new_at)) = (self.place(old), self.place(new));
        let pages = self.pages.get_disjoint_mut([old_page, new_page]);
        let [from, to] = pages.expect("the open page is not the one that is emptied");
        to.bytes_mut()[new_at..][..len].copy_from_slice(&from.bytes()[old_at..][..len]);
        self.kill(old);
        Ok(new)
    }

    /// Keeps the walk for the next change.
    pub(super) fn pause_evacuation(&mut self, walk: Walk) {
        self.evacuation = Some(walk);
    }

    /// Gives back the page whose walk is at its end.
    pub(super) fn end_evacuation(&mut self, walk: Walk) {
        self.evacuation = None;
        self.release_if_empty(walk.page);
    }

    /// Every record that is no hole.
    pub(super) fn live_records(&self) -> impl Iterator<Item = (Reference, Record<'_>)> {
        let mapped = (0u32..).zip(&self.pages).filter(|(_, page)| page.chunk.is_some());
        mapped.flat_map(move |(number, _)| {
            let mut walk = Walk { page: number, unit: FIRST_UNIT };
            std::iter::from_fn(move || {
                let (reference, record) = self.next_to_evacuate(&mut walk)?;
                walk.pass(record.units());
                Some((reference, record))
            })
        })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let chunks = self.mapped() as usize + usize::from(self.spare.is_some());
        let tables = self.pages.capacity() * size_of::<Page>() + self.free.capacity() * size_of::<u32>();
        (chunks * self.geometry.page_bytes() + tables) as u64
    }

    /// Counts everything anew and compares.
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

impl Page {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.chunk.as_ref().expect("a page with records is mapped").bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.chunk.as_mut().expect("a page with records is mapped").bytes_mut()
    }
}
