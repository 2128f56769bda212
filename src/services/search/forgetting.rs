//! The removal of purged links from the files of the search index.
//!
//! Texts of a deleted link stay in their section, which does no harm to searches. For a purge, the section forgets its
//! texts and is signed again. The thread that signs then writes the section file without them, and frees their ranges of
//! the text file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::catalog::Catalog;
use super::section_file;
use carom_model::purge::PurgedLink;

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

    /// True if the files of the index may have texts of links that were to be forgotten.
    pub(super) fn is_due(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.asked()
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

impl Catalog {
    /// True if [`Catalog::forget_links`] may be called: the sections of the last process are read.
    pub fn can_forget(&self) -> bool {
        self.forgetting.is_restored.load(Ordering::Acquire) || !self.signatures().is_on()
    }

    /// Forgets the texts of links that are gone. Returns the number of the request.
    pub fn forget_links(&self, links: &[PurgedLink]) -> u64 {
        let keys: Vec<Vec<u8>> = links.iter().map(|link| link.position().to_bytes()).collect();
        // The signing thread looks at the number under this lock, before it waits.
        let mut signatures = self.signatures();
        signatures.purge(&keys);
        let number = self.forgetting.asked.fetch_add(1, Ordering::AcqRel) + 1;
        drop(signatures);
        self.unsigned.notify_one();
        number
    }

    /// True once the files of the search index have followed a request. Ranges that a search is reading are freed with the
    /// next request.
    pub fn has_forgotten(&self, number: u64) -> bool {
        if !self.signatures().is_on() {
            // No thread writes the files.
            if let Some(texts) = &self.texts {
                section_file::remove(texts.dir());
                texts.keep_only(Vec::new());
            }
            return true;
        }
        self.forgetting.done.load(Ordering::Acquire) >= number
    }
}
