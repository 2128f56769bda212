//! The requests to remove purged links from the files of the search index, and how far the files have followed them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The requests to forget links.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// True once the sections of the last process are in use, or are known to be unusable.
    is_restored: AtomicBool,
    asked: AtomicU64,
    done: AtomicU64,
}

impl Forgetting {
    /// Notes that no more sections are read from the disk.
    pub(super) fn note_restored(&self) {
        self.is_restored.store(true, Ordering::Release);
    }

    /// True once no more sections are read from the disk.
    pub(super) fn is_restored(&self) -> bool {
        self.is_restored.load(Ordering::Acquire)
    }

    /// Adds a request, and returns its number.
    pub(super) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// True once the files have followed a request.
    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// True if the files of the index may have texts of links that were to be forgotten.
    pub(super) fn is_due(&self) -> bool {
        !self.is_done(self.asked())
    }

    /// Returns the number of requests.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Notes that the files have followed these requests.
    pub(super) fn note_done(&self, asked: u64) {
        self.done.fetch_max(asked, Ordering::AcqRel);
    }
}
