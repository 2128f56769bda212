//! The n-gram filters, which the writer shares with threads of lower priorities.
//!
//! A background thread on the CPU of a core may hold the lock of the filters for as long as the core keeps the CPU busy.
//! The writer never waits for that: it leaves new texts in a queue, and each thread that takes the lock adds them before
//! it does anything else. So every search that begins after a commit finds the texts of the commit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;

use super::ngram_filters::NgramFilters;
use carom_limits::SEARCH_HELD_BYTES;

/// Bytes of texts in the queue beyond which the writer waits for the lock. This is some tenths of a second of the fastest
/// writers.
const QUEUED_BYTES_MAX: usize = SEARCH_HELD_BYTES / 8;

/// The texts of the links of a commit, as entries made by [`super::text_chunk::entry_of`].
type TextEntries = Vec<Vec<u8>>;

/// The filters, and the texts that are not in them yet.
#[derive(Debug)]
pub(super) struct SharedFilters {
    filters: Mutex<NgramFilters>,
    /// True if there are signatures at all.
    is_on: AtomicBool,
    queue: Sender<TextEntries>,
    /// The other end of the queue. Taken only by the thread that has the lock of the filters, so nobody waits for it.
    arrived: Mutex<Receiver<TextEntries>>,
    queued_bytes: AtomicUsize,
    /// The thread that signs sections, once it runs.
    signer: OnceLock<Thread>,
}

impl SharedFilters {
    pub(super) fn new(filters: NgramFilters) -> SharedFilters {
        let (queue, arrived) = channel();
        SharedFilters {
            is_on: AtomicBool::new(filters.is_on()),
            filters: Mutex::new(filters),
            queue,
            arrived: Mutex::new(arrived),
            queued_bytes: AtomicUsize::new(0),
            signer: OnceLock::new(),
        }
    }

    /// True if there are signatures at all.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Turns signatures off.
    pub(super) fn give_up(&self) {
        self.is_on.store(false, Ordering::Release);
        self.lock().give_up();
    }

    /// Waits for the filters, and returns them with the texts of all commits.
    pub(super) fn lock(&self) -> MutexGuard<'_, NgramFilters> {
        let mut filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        self.add_arrived(&mut filters);
        filters
    }

    /// Adds the texts of a commit. Called by the writer's thread, which waits only if too many texts are in the queue.
    pub(super) fn push(&self, entries: TextEntries) {
        if entries.is_empty() {
            return;
        }
        let bytes = bytes_of(&entries);
        let queued_bytes = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.queue.send(entries).expect("the other end is beside this one");
        let filters = match self.filters.try_lock() {
            Ok(filters) => Some(filters),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if queued_bytes > QUEUED_BYTES_MAX => Some(self.lock()),
            Err(TryLockError::WouldBlock) => None,
        };
        // Another thread that has the lock may have looked at the queue already. Then the signing thread looks again.
        let is_work_due = filters.is_none_or(|mut filters| {
            self.add_arrived(&mut filters);
            filters.is_any_undone()
        });
        if is_work_due {
            self.wake_signer();
        }
    }

    /// Makes the calling thread the one that [`SharedFilters::wake_signer`] wakes.
    pub(super) fn set_signer(&self) {
        // Only the first thread signs.
        _ = self.signer.set(std::thread::current());
    }

    /// Wakes the thread that signs sections from its next or present [`std::thread::park`].
    pub(super) fn wake_signer(&self) {
        if let Some(signer) = self.signer.get() {
            signer.unpark();
        }
    }

    fn add_arrived(&self, filters: &mut NgramFilters) {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        for entries in arrived.try_iter() {
            self.queued_bytes.fetch_sub(bytes_of(&entries), Ordering::Relaxed);
            filters.add(entries);
        }
    }
}

fn bytes_of(entries: &[Vec<u8>]) -> usize {
    entries.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::services::search::section::SIGNATURE_BYTES;

    fn entries(number: u8) -> TextEntries {
        vec![vec![1, number, b't', b'e', b'x', b't', 0xff]]
    }

    #[test]
    fn the_writer_leaves_texts_for_the_next_thread() {
        let filters = SharedFilters::new(NgramFilters::new(b"", 100 * SIGNATURE_BYTES as u64));
        filters.set_signer();
        let held = filters.lock();
        filters.push(entries(1));
        filters.push(entries(2));
        let start = Instant::now();
        std::thread::park_timeout(Duration::from_secs(60));
        assert!(start.elapsed() < Duration::from_secs(60), "the signing thread sleeps on");
        assert_eq!((held.coverage().0, filters.queued_bytes.load(Ordering::Relaxed)), (0, 14));
        drop(held);
        assert_eq!(filters.lock().coverage().0, 2);
        filters.push(entries(3));
        assert_eq!(filters.queued_bytes.load(Ordering::Relaxed), 0, "nobody had the lock");
        assert_eq!(filters.lock().coverage().0, 3);
    }

    #[test]
    fn the_writer_waits_if_too_many_texts_are_left() {
        let filters = SharedFilters::new(NgramFilters::new(b"", 100 * SIGNATURE_BYTES as u64));
        std::thread::scope(|scope| {
            let held = filters.lock();
            let mut long = vec![1, 9];
            long.resize(QUEUED_BYTES_MAX, b'a');
            long.push(0xff);
            let pushing = scope.spawn(|| filters.push(vec![long]));
            while filters.queued_bytes.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(!pushing.is_finished());
            drop(held);
            pushing.join().unwrap();
        });
        assert_eq!(filters.queued_bytes.load(Ordering::Relaxed), 0);
        filters.give_up();
        assert!(!filters.is_on());
        assert!(!filters.lock().is_on());
    }
}
