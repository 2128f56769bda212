//! A filter of chosen slugs whose counter values no node has leased, for a node whose links have a shared home.
//!
//! A code whose counter value no node has leased has a link only if a client has chosen it as a slug. A node that stores
//! all links knows these slugs; for a node that does not, the follower adds each one that Redis has or that a stream
//! shows. All threads share the filter without a lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use carom_limits::HOME_SLUG_BITS;
use carom_shards::{Code, CodeHasher};

/// Bits that a slug sets.
const BITS_OF_SLUG: u64 = 7;

/// Bits in a word.
const WORD: usize = u64::BITS as usize;

/// An approximate set of slugs: it may report slugs that it lacks.
pub struct SlugFilter {
    hasher: CodeHasher,
    words: Box<[AtomicU64]>,
    /// True if it has every slug that Redis had when it was last filled.
    is_whole: AtomicBool,
    /// Number of slugs added, some perhaps more than once.
    added: AtomicU64,
}

impl Default for SlugFilter {
    fn default() -> SlugFilter {
        SlugFilter {
            hasher: CodeHasher::new(0),
            words: (0..HOME_SLUG_BITS / WORD).map(|_| AtomicU64::new(0)).collect(),
            is_whole: AtomicBool::new(false),
            added: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for SlugFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.is_whole();
        f.debug_struct("SlugFilter").field("is_whole", &whole).field("added", &self.added()).finish_non_exhaustive()
    }
}

impl SlugFilter {
    /// Adds a slug.
    pub fn add(&self, code: &Code) {
        self.places(code).for_each(|(word, bit)| _ = self.words[word].fetch_or(bit, Ordering::Relaxed));
        self.added.fetch_add(1, Ordering::Relaxed);
    }

    /// True if a code may be one of the slugs. Always true while the filter is not whole.
    pub fn may_have(&self, code: &Code) -> bool {
        !self.is_whole() || self.places(code).all(|(word, bit)| self.words[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// Records whether the filter has every slug.
    pub fn set_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Release);
    }

    /// True if the filter has every slug.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Returns the number of slugs added. Those that came several times count as often.
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    /// Returns the word and the bit of each place of a code.
    fn places(&self, code: &Code) -> impl Iterator<Item = (usize, u64)> {
        let hash = self.hasher.hash(code).0;
        let step = (hash >> 32) | 1;
        (0..BITS_OF_SLUG).map(move |turn| {
            let bit = hash.wrapping_add(turn.wrapping_mul(step)) as usize % HOME_SLUG_BITS;
            (bit / WORD, 1 << (bit % WORD))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slug(number: usize) -> Code {
        Code::parse(format!("slug{number}").as_bytes()).unwrap()
    }

    #[test]
    fn a_whole_filter_has_its_slugs_and_few_others() {
        let filter = SlugFilter::default();
        assert!(filter.may_have(&slug(1)), "nothing is known yet");
        (0..10_000).for_each(|number| filter.add(&slug(number)));
        filter.set_whole(true);
        assert!((0..10_000).all(|number| filter.may_have(&slug(number))));
        let others = (10_000..20_000).filter(|number| filter.may_have(&slug(*number))).count();
        assert!(others < 10, "{others}");
        filter.set_whole(false);
        assert!(filter.may_have(&slug(10_000)));
    }
}
