//! An approximate set of a core's codes, for a core that keeps only the links in use. It saves the read for most codes
//! that do not exist.
//!
//! A Bloom filter cannot remove codes, so it fills with codes of removed links. The filter is therefore rebuilt once
//! half of its codes are gone and it would have to grow. A thread (`services::maintenance::code_filter`) sends the
//! codes of the store, and the core builds the next filter from them beside the present one.
//!
//! A link added during the rebuild goes into both filters. A link added before it is in the store, because the thread
//! begins to read only after it has asked the core to begin. So the next filter has every existing code when it takes
//! over. It may also have the code of a link that was removed during the rebuild, which costs a read.
//!
//! A start with many links takes the filter from a file, block by block ([`KnownCodes::wait_for`]). Until it is whole,
//! any code may exist. A link added meanwhile goes into the awaited filter, and so do the codes that changed since the
//! file was written.

use carom_shards::{CodeFilter, CodeHash};

/// An approximate set of the codes of a core. It may report codes that do not exist.
#[derive(Debug)]
pub(super) struct KnownCodes {
    /// `None` if it would take more than `bytes_max`: then any code may exist.
    filter: Option<CodeFilter>,
    /// The filter under construction, or the awaited one.
    next: Option<CodeFilter>,
    /// True while there is no filter because one of the store's file is awaited, and will fit.
    is_awaited: bool,
    /// Bytes that both filters together may take.
    bytes_max: u64,
    /// The smallest number of codes that a filter is sized for.
    len_min: usize,
    /// Number of codes that the filter held when it was given up.
    abandoned_len: usize,
    /// Links removed since the filter was begun.
    removed: usize,
}

impl KnownCodes {
    /// Returns an empty set for about `codes` codes, with filters of at most `bytes_max` bytes.
    pub(super) fn with_capacity(codes: usize, len_min: usize, bytes_max: u64) -> KnownCodes {
        let filter =
            (bytes_for(codes, len_min) <= bytes_max).then(|| CodeFilter::with_capacity(capacity_for(codes, len_min)));
        let abandoned_len = if filter.is_none() { codes } else { 0 };
        KnownCodes { filter, next: None, is_awaited: false, bytes_max, len_min, abandoned_len, removed: 0 }
    }

    /// Returns the set of a core whose links have a shared home: any code may exist, and no filter will come.
    pub(super) fn of_shared_home() -> KnownCodes {
        KnownCodes {
            filter: None,
            next: None,
            is_awaited: true,
            bytes_max: 0,
            len_min: 0,
            abandoned_len: 0,
            removed: 0,
        }
    }

    /// Drops all filters and begins one for about `codes` codes, of which blocks or codes will come. It is not known
    /// until [`KnownCodes::finish`] which codes exist. Codes that are inserted from now on will be in that filter.
    pub(super) fn wait_for(&mut self, codes: usize) {
        self.is_awaited = CodeFilter::bytes_for(codes) <= self.bytes_max;
        self.filter = None;
        self.next = self.is_awaited.then(|| CodeFilter::with_capacity(codes));
        self.removed = 0;
        self.keep_within_bounds();
        self.abandoned_len = if self.is_awaited { 0 } else { codes };
    }

    /// True while a filter is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Adds blocks of the awaited filter, with the number of codes in them.
    pub(super) fn merge_next(&mut self, first: usize, blocks: &[u8], codes: usize) {
        if let Some(next) = self.next.as_mut().filter(|_| self.is_awaited) {
            next.merge(first, blocks, codes);
            self.keep_within_bounds();
        }
    }

    /// True if the code of a hash may exist.
    #[inline]
    pub(super) fn may_hold(&self, hash: CodeHash) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_hold(hash))
    }

    /// True if the set can tell that a code does not exist.
    pub(super) fn is_known(&self) -> bool {
        self.filter.is_some()
    }

    /// Adds the code of a link that is put.
    pub(super) fn insert(&mut self, hash: CodeHash) {
        self.filter.iter_mut().chain(&mut self.next).for_each(|filter| filter.insert(hash));
        self.keep_within_bounds();
    }

    /// Adds a code of the store to the filter under construction.
    pub(super) fn insert_next(&mut self, hash: CodeHash) {
        if let Some(next) = &mut self.next {
            next.insert(hash);
            self.keep_within_bounds();
        }
    }

    /// Gives up the present filter if both would exceed the limit, and then the next one if it alone does.
    fn keep_within_bounds(&mut self) {
        if self.bytes_wanted() <= self.bytes_max {
            return;
        }
        if let Some(filter) = self.filter.take() {
            self.abandoned_len = filter.len();
        }
        if let Some(next) = self.next.take_if(|next| bytes_wanted(next) > self.bytes_max) {
            self.abandoned_len = next.len();
            self.is_awaited = false;
        }
        assert!(self.bytes_wanted() <= self.bytes_max, "the filters take more memory than the core may have");
    }

    /// Counts a link that is removed. Its code stays in the filter.
    pub(super) fn note_removed(&mut self) {
        self.removed += 1;
    }

    /// True if another filter should be built: half of the codes are gone, and this one is full or was given up.
    pub(super) fn needs_rebuild(&self) -> bool {
        let is_full = self.filter.as_ref().is_none_or(|filter| filter.bytes_ahead() > 0);
        is_full
            && self.next.is_none()
            && !self.is_awaited
            && self.removed > 0
            && 2 * self.removed >= self.len()
            && self.bytes_of_next().is_some()
    }

    /// Returns the size of the next filter in bytes, or `None` if it would not fit.
    pub(super) fn bytes_of_next(&self) -> Option<u64> {
        let bytes = bytes_for(self.live_len(), self.len_min);
        (self.filter.as_ref().map_or(0, CodeFilter::memory_bytes) + bytes <= self.bytes_max).then_some(bytes)
    }

    /// Begins to build the next filter, if at least a quarter of the codes is gone.
    pub(super) fn begin(&mut self) {
        if self.next.is_some() || self.removed == 0 || 4 * self.removed < self.len() || self.bytes_of_next().is_none() {
            return;
        }
        self.next = Some(CodeFilter::with_capacity(capacity_for(self.live_len(), self.len_min)));
        self.abandoned_len = self.live_len();
        self.removed = 0;
    }

    /// Replaces the present filter with the next one, which has all codes of the store. Returns true if there was one.
    pub(super) fn finish(&mut self) -> bool {
        let is_built = self.next.is_some();
        self.is_awaited &= !is_built;
        self.filter = self.next.take().or(self.filter.take());
        is_built
    }

    /// Gives up the filter under construction: the store's codes cannot all be read, or are too many. An awaited filter
    /// stays awaited.
    pub(super) fn abandon(&mut self) {
        self.next = None;
    }

    /// Returns the memory that the filters take, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.filter.iter().chain(&self.next).map(CodeFilter::memory_bytes).sum()
    }

    /// Returns the memory that the filters will soon take, in bytes. Room must be made for it ahead.
    pub(super) fn bytes_wanted(&self) -> u64 {
        self.filter.iter().chain(&self.next).map(bytes_wanted).sum()
    }

    /// Returns the number of codes in the filter, or of those that it held when it was given up.
    fn len(&self) -> usize {
        self.filter.as_ref().map_or(self.abandoned_len, CodeFilter::len)
    }

    /// Returns the approximate number of codes whose links were not removed.
    fn live_len(&self) -> usize {
        self.len().saturating_sub(self.removed)
    }
}

/// Bytes of a filter and of the layer that it needs next.
fn bytes_wanted(filter: &CodeFilter) -> u64 {
    filter.memory_bytes() + filter.bytes_ahead()
}

/// Returns a quarter more than `codes`, so that the filter stays in one piece for a while.
fn capacity_for(codes: usize, len_min: usize) -> usize {
    (codes + codes / 4).max(len_min)
}

fn bytes_for(codes: usize, len_min: usize) -> u64 {
    CodeFilter::bytes_for(capacity_for(codes, len_min))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use carom_shards::filter::{BLOCK_BYTES, block_of, insert_into};

    /// Number of codes that an awaited filter is sized for.
    const AWAITED: usize = 100;

    fn hash(code: u64) -> CodeHash {
        CodeHash(code.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ code << 32)
    }

    #[derive(Clone, Debug)]
    enum FilterStep {
        /// A commit puts or removes a link, and its message is on its way to the core.
        Commit { code: u64, is_put: bool },
        /// The thread asks the core to begin.
        Begin,
        /// The thread reads the next of three parts of the store.
        Read,
        /// The thread has read all parts, or fails.
        End { is_whole: bool },
        /// The core takes a message.
        Take,
        /// The thread writes a file that has the codes of the store, once it is synced.
        Seal,
        /// The node is killed and starts.
        Restart,
        /// The thread asks the core to await a filter, because the file is damaged.
        Await,
        /// The thread sends the blocks of the file and the codes that changed since, or finds that it is damaged.
        Deliver { is_whole: bool },
    }

    fn any_step() -> impl Strategy<Value = FilterStep> {
        prop_oneof![
            6 => (0..24u64, any::<bool>()).prop_map(|(code, is_put)| FilterStep::Commit { code, is_put }),
            2 => Just(FilterStep::Begin),
            4 => Just(FilterStep::Read),
            2 => prop_oneof![4 => Just(true), 1 => Just(false)].prop_map(|is_whole| FilterStep::End { is_whole }),
            8 => Just(FilterStep::Take),
            2 => Just(FilterStep::Seal),
            1 => Just(FilterStep::Restart),
            1 => Just(FilterStep::Await),
            2 => prop_oneof![4 => Just(true), 1 => Just(false)].prop_map(|is_whole| FilterStep::Deliver { is_whole }),
        ]
    }

    enum Mail {
        Apply { code: u64, is_put: bool },
        Begin,
        Stored(Vec<u64>),
        End { is_whole: bool },
        Await,
        Blocks(Vec<u8>, usize),
    }

    /// Returns the blocks of a filter of these codes.
    fn blocks_of(codes: &HashSet<u64>) -> Vec<u8> {
        let count = CodeFilter::blocks_for(AWAITED);
        let mut blocks = vec![[0; BLOCK_BYTES]; count];
        for &code in codes {
            insert_into(&mut blocks[block_of(hash(code), count)], hash(code));
        }
        blocks.into_flattened()
    }

    /// A core's codes, its mailbox, the store, and the thread that reads it.
    struct World {
        codes: KnownCodes,
        mail: VecDeque<Mail>,
        stored: HashSet<u64>,
        /// Links that the core has received.
        known: HashSet<u64>,
        /// The part that the thread reads next, while it reads.
        part: Option<u64>,
        built: usize,
        /// The codes in the file, and those that were changed since.
        sealed: HashSet<u64>,
        changed: Vec<u64>,
    }

    impl World {
        fn take(&mut self, step: &FilterStep) {
            match *step {
                FilterStep::Commit { code, is_put } => {
                    if is_put && self.stored.insert(code) || !is_put && self.stored.remove(&code) {
                        self.mail.push_back(Mail::Apply { code, is_put });
                        self.changed.push(code);
                    }
                }
                FilterStep::Begin if self.part.is_none() => {
                    self.part = Some(0);
                    self.mail.push_back(Mail::Begin);
                }
                FilterStep::Read => {
                    if let Some(part) = self.part.filter(|&part| part < 3) {
                        self.part = Some(part + 1);
                        self.mail.push_back(Mail::Stored(
                            self.stored.iter().copied().filter(|code| code % 3 == part).collect(),
                        ));
                    }
                }
                FilterStep::End { is_whole } if self.part.is_some_and(|part| part == 3 || !is_whole) => {
                    self.part = None;
                    self.mail.push_back(Mail::End { is_whole });
                }
                FilterStep::Seal => {
                    self.sealed.clone_from(&self.stored);
                    self.changed.clear();
                }
                FilterStep::Restart => {
                    self.mail.clear();
                    self.part = None;
                    self.known.clone_from(&self.stored);
                    self.codes = KnownCodes::with_capacity(0, 0, 1 << 20);
                    // The first message of the load, before the node serves.
                    self.codes.wait_for(AWAITED);
                }
                FilterStep::Await if self.part.is_none() => self.mail.push_back(Mail::Await),
                FilterStep::Deliver { is_whole } if self.part.is_none() => self.deliver(is_whole),
                FilterStep::Begin | FilterStep::End { .. } | FilterStep::Await | FilterStep::Deliver { .. } => {}
                FilterStep::Take => self.take_mail(),
            }
        }

        fn deliver(&mut self, is_whole: bool) {
            self.mail.push_back(Mail::Await);
            let half = CodeFilter::blocks_for(AWAITED) / 2 * BLOCK_BYTES;
            let blocks = blocks_of(&self.sealed);
            self.mail.push_back(Mail::Blocks(blocks[..half].to_vec(), 0));
            if is_whole {
                self.mail.push_back(Mail::Blocks(blocks[half..].to_vec(), half / BLOCK_BYTES));
                self.mail.push_back(Mail::Stored(self.changed.clone()));
            }
            self.mail.push_back(Mail::End { is_whole });
        }

        fn take_mail(&mut self) {
            match self.mail.pop_front() {
                Some(Mail::Apply { code, is_put: true }) => {
                    self.codes.insert(hash(code));
                    self.known.insert(code);
                }
                Some(Mail::Apply { code, .. }) => {
                    self.codes.note_removed();
                    self.known.remove(&code);
                }
                Some(Mail::Begin) => self.codes.begin(),
                Some(Mail::Stored(codes)) => codes.iter().for_each(|&code| self.codes.insert_next(hash(code))),
                Some(Mail::End { is_whole: true }) => self.built += usize::from(self.codes.finish()),
                Some(Mail::End { .. }) => self.codes.abandon(),
                Some(Mail::Await) => self.codes.wait_for(AWAITED),
                Some(Mail::Blocks(blocks, first)) => self.codes.merge_next(first, &blocks, 1),
                None => {}
            }
            for &code in self.known.iter().filter(|code| self.stored.contains(code)) {
                assert!(self.codes.may_hold(hash(code)), "{code} exists");
            }
        }
    }

    proptest! {
        #[test]
        fn a_code_that_exists_is_never_unknown(steps in proptest::collection::vec(any_step(), 1..300)) {
            let codes = KnownCodes::with_capacity(0, 0, 1 << 20);
            let (stored, known) = (HashSet::new(), HashSet::new());
            let (sealed, changed) = (HashSet::new(), Vec::new());
            let mut world =
                World { codes, mail: VecDeque::new(), stored, known, part: None, built: 0, sealed, changed };
            steps.iter().for_each(|step| world.take(step));
            while !world.mail.is_empty() {
                world.take(&FilterStep::Take);
            }
        }
    }

    #[test]
    fn removed_codes_are_forgotten_with_the_next_filter() {
        let mut codes = KnownCodes::with_capacity(0, 0, 1 << 20);
        (0..4_000).for_each(|code| codes.insert(hash(code)));
        assert!(!codes.needs_rebuild(), "all of them exist");
        (0..3_000).for_each(|_| codes.note_removed());
        assert!(codes.needs_rebuild());
        codes.begin();
        assert!(!codes.needs_rebuild(), "the next one is under construction");
        (3_000..4_000).for_each(|code| codes.insert_next(hash(code)));
        codes.insert(hash(5_000));
        assert!(codes.finish());
        assert!(!codes.finish());
        assert!((3_000..4_000).chain([5_000]).all(|code| codes.may_hold(hash(code))));
        assert!((0..3_000).filter(|&code| codes.may_hold(hash(code))).count() < 100);
    }

    #[test]
    fn any_code_may_exist_until_the_awaited_filter_is_whole() {
        let mut codes = KnownCodes::with_capacity(0, 0, 1 << 20);
        codes.insert(hash(1));
        codes.wait_for(AWAITED);
        codes.insert(hash(2));
        codes.note_removed();
        assert!(codes.may_hold(hash(9)));
        assert!(!codes.is_known());
        assert!(codes.is_awaited());
        assert!(!codes.needs_rebuild());
        codes.merge_next(0, &blocks_of(&HashSet::from([3])), 1);
        codes.abandon();
        assert!(codes.is_awaited(), "another try follows");
        assert!(codes.may_hold(hash(9)), "another try follows");
        codes.wait_for(AWAITED);
        codes.insert(hash(4));
        codes.merge_next(0, &blocks_of(&HashSet::from([1, 2, 3])), 3);
        assert!(codes.finish());
        assert!(codes.is_known());
        assert!(!codes.is_awaited());
        assert!((1..5).all(|code| codes.may_hold(hash(code))));
        assert!((10..1_000).filter(|&code| codes.may_hold(hash(code))).count() < 20);
    }

    #[test]
    fn an_awaited_filter_that_does_not_fit_is_given_up() {
        let mut codes = KnownCodes::with_capacity(0, 0, 28 << 10);
        codes.wait_for(1_000_000);
        assert!(!codes.is_awaited());
        assert!(!codes.is_known());
        codes.merge_next(10_000, &[0; BLOCK_BYTES], 1);
        assert!(!codes.finish());
        assert!(codes.may_hold(hash(1)));
        assert!(codes.memory_bytes() == 0);
    }

    #[test]
    fn a_filter_that_was_given_up_comes_back_when_enough_links_are_gone() {
        // Room for some 9,000 codes.
        let mut codes = KnownCodes::with_capacity(0, 0, 28 << 10);
        (0..20_000).for_each(|code| codes.insert(hash(code)));
        assert!(!codes.is_known());
        assert!(codes.may_hold(hash(99_999)));
        let held = codes.len();
        (0..held / 2 - 1).for_each(|_| codes.note_removed());
        assert!(!codes.needs_rebuild());
        (0..held / 2).for_each(|_| codes.note_removed());
        assert!(codes.needs_rebuild());
        codes.begin();
        // There are more links than the number of removals suggests.
        (0..20_000).for_each(|code| codes.insert_next(hash(code)));
        assert!(!codes.finish());
        assert!(!codes.is_known());
        assert!(codes.memory_bytes() == 0, "it is not tried again at once");
        assert!(!codes.needs_rebuild(), "it is not tried again at once");
    }
}
