//! The slots for event streams of pages: a bounded number, of which the oldest gives way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use carom_limits::WATCHERS_MAX;

/// The open event streams of pages, the newest last.
#[derive(Debug, Default)]
pub(in crate::api) struct Watchers(Rc<RefCell<Joined>>);

#[derive(Debug, Default)]
struct Joined {
    next: u64,
    numbers: VecDeque<u64>,
}

/// A slot for one event stream, held until it is dropped.
pub(super) struct Watcher {
    number: u64,
    joined: Rc<RefCell<Joined>>,
}

impl Watchers {
    /// Adds an event stream. Above the limit it takes the slot of the oldest one. That client may be long gone,
    /// which shows only after several minutes of events have filled the buffers in between.
    pub(super) fn join(&self) -> Watcher {
        let mut joined = self.0.borrow_mut();
        let number = joined.next;
        joined.next += 1;
        if joined.numbers.len() >= WATCHERS_MAX {
            joined.numbers.pop_front();
        }
        joined.numbers.push_back(number);
        Watcher { number, joined: Rc::clone(&self.0) }
    }
}

impl Watcher {
    /// True if the stream still has its slot.
    pub(super) fn is_in(&self) -> bool {
        self.joined.borrow().numbers.contains(&self.number)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.joined.borrow_mut().numbers.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_page_is_told() {
        let watchers = Watchers::default();
        let mut all: Vec<Watcher> = (0..WATCHERS_MAX).map(|_| watchers.join()).collect();
        assert!(all.iter().all(Watcher::is_in));
        let one_more = watchers.join();
        assert!(one_more.is_in());
        assert!(!all[0].is_in());
        assert!(all[1].is_in());
        // A stream that ends frees its slot.
        drop(all.drain(..2));
        let another = watchers.join();
        assert!(another.is_in());
        assert!(all.iter().all(Watcher::is_in));
    }
}
