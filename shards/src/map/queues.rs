//! The two queues of a cache: each is a log of pages, and the order of the records in them is the order of the queue.

use std::collections::VecDeque;

use super::geometry::Geometry;
use super::index::Reference;
use super::outcome::MapFull;
use super::page_table::{PageTable, PageWalk};

/// The small queue is swept while it has at least one page in this many; otherwise the main queue is.
const SMALL_SHARE: u64 = 10;

/// A queue of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// New entries, most of which are never requested again.
    Small,
    /// Entries that were requested more than once.
    Main,
}

/// The pages of a cache.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) table: PageTable,
    /// Pages from the oldest to the open one, to which records are appended.
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// The page that is being swept. It is in neither queue.
    swept: Option<u32>,
    spares_max: usize,
}

impl Queues {
    /// Returns empty queues. They keep up to `spares_max` chunks of released pages for new ones.
    pub(super) fn new(geometry: Geometry, spares_max: usize) -> Queues {
        let table = PageTable::new(geometry);
        Queues { table, small: VecDeque::new(), main: VecDeque::new(), swept: None, spares_max }
    }

    fn pages_mut(&mut self, queue: Queue) -> &mut VecDeque<u32> {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    /// Returns room at the end of a queue for a record of `units` units, which the caller writes at once. `None` if
    /// another page must be added first.
    pub(super) fn append(&mut self, queue: Queue, units: u32) -> Option<Reference> {
        let open = *self.pages_mut(queue).back()?;
        self.table.append(open, units)
    }

    /// Adds a page to the end of a queue.
    pub(super) fn add_page(&mut self, queue: Queue) -> Result<(), MapFull> {
        let page = self.table.add()?;
        debug_assert!(
            !self.small.contains(&page) && !self.main.contains(&page) && self.swept != Some(page),
            "the page is in a queue already"
        );
        self.pages_mut(queue).push_back(page);
        Ok(())
    }

    /// Moves the oldest page of the small queue to the main queue, before the open page there, if the small queue is above
    /// its share. `room` pages that may still be added count as part of the whole.
    pub(super) fn grow_main(&mut self, room: u64) {
        let pages = (self.small.len() + self.main.len()) as u64 + room;
        if self.small.len() as u64 * SMALL_SHARE > pages
            && let Some(oldest) = self.small.pop_front()
        {
            self.main.insert(self.main.len().saturating_sub(1), oldest);
        }
    }

    /// Turns a record into a hole. A page without records is released at once, except the open ones and the one that is
    /// being swept.
    pub(super) fn kill(&mut self, reference: Reference) {
        self.table.kill(reference);
        let page = self.table.page_of(reference);
        if !self.table.is_empty(page) || self.swept == Some(page) {
            return;
        }
        if [self.small.back(), self.main.back()].contains(&Some(&page)) {
            self.table.restart(page);
            return;
        }
        // Rare enough to search for: whole pages of removed links.
        let listed = self.small.len() + self.main.len();
        self.small.retain(|&number| number != page);
        self.main.retain(|&number| number != page);
        assert_eq!(self.small.len() + self.main.len() + 1, listed, "the page was not in exactly one queue");
        self.table.remove(page, self.spares_max);
    }

    /// Takes the oldest page from the queue whose turn it is; `None` if there is no page.
    pub(super) fn begin_sweep(&mut self) -> Option<(Queue, PageWalk)> {
        assert!(self.swept.is_none(), "the page of the last sweep would be lost");
        let pages = (self.small.len() + self.main.len()) as u64;
        let sweeps_small = self.main.is_empty() || self.small.len() as u64 * SMALL_SHARE >= pages;
        let queue = if sweeps_small { Queue::Small } else { Queue::Main };
        let page = self.pages_mut(queue).pop_front()?;
        self.swept = Some(page);
        Some((queue, PageWalk::over(page)))
    }

    /// Releases the page that was swept, which has no records left.
    pub(super) fn end_sweep(&mut self) {
        let page = self.swept.take().expect("a sweep has begun");
        self.table.remove(page, self.spares_max);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let numbers = (self.small.capacity() + self.main.capacity()) * size_of::<u32>();
        self.table.memory_bytes() + numbers as u64
    }

    /// Checks that each page is in one place, and that no page without records waits in a queue.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.table.check();
        let mut pages: Vec<u32> = self.small.iter().chain(&self.main).copied().chain(self.swept).collect();
        pages.sort_unstable();
        pages.dedup();
        let listed = self.small.len() + self.main.len() + usize::from(self.swept.is_some());
        assert_eq!((pages.len(), pages.len() as u32), (listed, self.table.mapped()));
        let closed = [&self.small, &self.main].into_iter().flat_map(|queue| queue.iter().rev().skip(1));
        assert!(closed.into_iter().all(|&page| !self.table.is_empty(page)));
    }
}
