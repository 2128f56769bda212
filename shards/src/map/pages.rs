//! The pages of a map of all links: the page that is written to, and the choice of the next page to empty.
//!
//! Records are written one after the other into the open page. A removed record stays as a hole until its page is
//! emptied: its live records are copied to the open page and it goes back to the kernel. Which records those are is
//! found by walking the page, so the walk is driven from outside, where the index is ([`super::LinkMap`]).

use super::geometry::Geometry;
use super::index::Reference;
use super::outcome::MapFull;
use super::page_table::{PageTable, PageWalk};
use super::record::Record;
use super::sealed::SealedPage;

/// Emptying begins when this share of all units in use are holes: one in five.
const HOLES_SHARE: u64 = 5;

/// A page is worth emptying when one in this many of its units is a hole. Where one in five is on average, at least one
/// page in eighteen is such a page, so looking at a few finds one.
const VICTIM_SHARE: u32 = 7;

/// Pages that one change looks at for the next one to empty; the one with the most holes among them is taken.
const VICTIM_CANDIDATES: usize = 32;

/// Number of pages below which no chunk is kept in reserve: a small map should be small.
const SPARE_FROM_PAGES: u32 = 8;

/// All pages of a map.
#[derive(Debug)]
pub(super) struct RecordPages {
    table: PageTable,
    /// The page that is written to.
    open: Option<u32>,
    /// The page that is being emptied, and the position of the walk.
    evacuation: Option<PageWalk>,
    /// The page number at which the search for the next page to empty begins.
    candidate: usize,
}

impl RecordPages {
    pub(super) fn new(geometry: Geometry) -> RecordPages {
        RecordPages { table: PageTable::new(geometry), open: None, evacuation: None, candidate: 0 }
    }

    /// Returns the record of a reference.
    #[inline]
    pub(super) fn record(&self, reference: Reference) -> Record<'_> {
        self.table.record(reference)
    }

    /// Reads from the first two cache lines of a record, which hold most of them.
    #[inline]
    pub(super) fn touch(&self, reference: Reference) {
        self.table.touch(reference);
    }

    /// Returns the bytes from the start of a record to the end of its page, to be written.
    pub(super) fn bytes_mut(&mut self, reference: Reference) -> &mut [u8] {
        self.table.bytes_mut(reference)
    }

    /// Returns room for a record of `units` units, which the caller writes at once.
    ///
    /// # Errors
    /// [`MapFull`] when all pages but one, which is kept for moves, are in use, or the kernel gives no chunk.
    pub(super) fn allocate(&mut self, units: u32) -> Result<Reference, MapFull> {
        self.allocate_within(units, self.table.geometry().pages_max - 1)
    }

    fn allocate_within(&mut self, units: u32, pages_max: u32) -> Result<Reference, MapFull> {
        if let Some(reference) = self.open.and_then(|open| self.table.append(open, units)) {
            return Ok(reference);
        }
        let open = self.open_page(pages_max)?;
        Ok(self.table.append(open, units).expect("a page holds the longest record"))
    }

    /// Makes another page the open one; the few units at the end of the old one stay unused.
    fn open_page(&mut self, pages_max: u32) -> Result<u32, MapFull> {
        if self.table.mapped() >= pages_max {
            return Err(MapFull);
        }
        let number = self.table.add()?;
        let closed = self.open.replace(number);
        assert_ne!(closed, Some(number), "the open page was released");
        // The old page could not go while it was open.
        if let Some(closed) = closed {
            self.release_if_empty(closed);
        }
        Ok(number)
    }

    /// Adds a page of sound records and returns a walk over them.
    ///
    /// # Errors
    /// The page, when all pages but the one that is kept for moves are in use.
    pub(super) fn adopt(&mut self, page: SealedPage) -> Result<PageWalk, SealedPage> {
        if self.table.mapped() + 1 >= self.table.geometry().pages_max {
            return Err(page);
        }
        self.table.adopt(page).map(PageWalk::over)
    }

    /// Turns a record into a hole.
    pub(super) fn kill(&mut self, reference: Reference) {
        self.table.kill(reference);
        self.release_if_empty(self.table.page_of(reference));
    }

    /// Releases a page that consists of holes. The open page is reset instead, and one that is being walked goes at the
    /// end of the walk.
    fn release_if_empty(&mut self, number: u32) {
        if !self.table.is_empty(number) || self.evacuation.is_some_and(|walk| walk.page() == number) {
            return;
        }
        if self.open == Some(number) {
            self.table.restart(number);
        } else {
            let spares_max = usize::from(self.table.mapped() > SPARE_FROM_PAGES);
            self.table.remove(number, spares_max);
        }
    }

    /// Returns the walk over the page that is to be emptied, if there are too many holes.
    pub(super) fn evacuation(&mut self) -> Option<PageWalk> {
        let (used, holes) = self.table.used_and_holes();
        if self.evacuation.is_none() && holes * HOLES_SHARE > used && holes > self.page_worth() {
            self.evacuation = self.pick_victim().map(PageWalk::over);
        }
        debug_assert!(
            self.evacuation.is_none_or(|walk| Some(walk.page()) != self.open),
            "records would move to the page that is emptied"
        );
        self.evacuation
    }

    /// Returns the units of one page. Fewer holes than that are not worth any work.
    fn page_worth(&self) -> u64 {
        u64::from(self.table.geometry().page_units())
    }

    /// Returns the page with the most holes among the next few, if any has enough.
    fn pick_victim(&mut self) -> Option<u32> {
        let numbers = self.table.numbers();
        let looked_at = VICTIM_CANDIDATES.min(numbers);
        let holes_worth = self.table.geometry().page_units() / VICTIM_SHARE;
        let victim = (0..looked_at)
            .map(|step| ((self.candidate + step) % numbers) as u32)
            .filter(|&number| Some(number) != self.open && self.table.holes_of(number) > holes_worth)
            .max_by_key(|&number| self.table.holes_of(number));
        self.candidate = (self.candidate + looked_at) % numbers;
        victim
    }

    /// Returns the next live record of the walk, which has passed all holes before it; `None` at the end of the page.
    pub(super) fn next_record(&self, walk: &mut PageWalk) -> Option<(Reference, Record<'_>)> {
        self.table.next_record(walk)
    }

    /// Copies a record to the open page and turns the old one into a hole.
    pub(super) fn move_record(&mut self, old: Reference) -> Result<Reference, MapFull> {
        let units = self.record(old).units();
        let new = self.allocate_within(units, self.table.geometry().pages_max)?;
        self.table.copy(old, new);
        debug_assert_eq!(self.record(new).units(), units, "the copy is of another record");
        self.kill(old);
        Ok(new)
    }

    /// Keeps the walk for the next change.
    pub(super) fn pause_evacuation(&mut self, walk: PageWalk) {
        self.evacuation = Some(walk);
    }

    /// Releases the page whose walk is at its end.
    pub(super) fn end_evacuation(&mut self, walk: PageWalk) {
        assert!(self.evacuation.is_some_and(|begun| begun.page() == walk.page()), "another page is being emptied");
        assert!(self.table.is_empty(walk.page()), "the walk has left records behind");
        self.evacuation = None;
        self.release_if_empty(walk.page());
    }

    /// Returns every record that is not a hole.
    pub(super) fn live_records(&self) -> impl Iterator<Item = (Reference, Record<'_>)> {
        self.table.live_records()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.table.memory_bytes()
    }

    /// Counts everything again and compares.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.table.check();
    }
}
