//! Links with redirect rules. Their owner keeps them whole beside its map, so that the memory and the look-ups of all
//! other links stay as they are.
//!
//! The map has a marker in place of such a link. A core that gets a request for a link of another core must keep the
//! head of the request until the owner answers, if the link may have rules: [`RuledCodes`] tells which ones may.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carom_shards::{Code, CodeHash, MapEntry};

use crate::bridge::{RULED_WORDS, RuledBits, ruled_place};
use carom_model::link::Link;

/// The entry of the map for a link that is kept here: neither a destination nor missing.
pub(super) const MARKER: MapEntry<'static> = MapEntry::Damaged;

/// Estimated bytes of a link beside its texts.
const LINK_BYTES: u64 = 512;

/// Estimated factor by which parsed rules exceed their stored form.
const PARSED_FACTOR: u64 = 4;

/// A filter of the codes of all cores whose links have, or had, redirect rules. A node that has not read all links at its
/// start begins with every code in it, until the codes of the store are known.
#[derive(Debug)]
pub(super) struct RuledCodes {
    /// The bits that requests read.
    shown: Box<[AtomicU64]>,
    /// The bits of links that this process has seen.
    marked: Box<[AtomicU64]>,
}

impl Default for RuledCodes {
    fn default() -> RuledCodes {
        let empty = || (0..RULED_WORDS).map(|_| AtomicU64::new(0)).collect();
        RuledCodes { shown: empty(), marked: empty() }
    }
}

impl RuledCodes {
    /// Adds a code, before its link becomes visible. The acknowledgement of the change orders this before every request
    /// of a client that knows of it.
    pub(super) fn mark(&self, hash: CodeHash) {
        let (word, bit) = ruled_place(hash);
        // In this order, and in one order with those of `restrict_to`: either that function sees the mark, or this one
        // sees that the bit was cleared.
        for words in [&self.marked, &self.shown] {
            if words[word].load(Ordering::SeqCst) & bit == 0 {
                words[word].fetch_or(bit, Ordering::SeqCst);
            }
        }
    }

    /// True if the link of a code may have rules.
    #[inline]
    pub(super) fn may_hold(&self, hash: CodeHash) -> bool {
        let (word, bit) = ruled_place(hash);
        self.shown[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Adds every code, because the links of the store are not known yet. Called before the node serves.
    pub(super) fn add_all(&self) {
        self.shown.iter().for_each(|word| word.store(u64::MAX, Ordering::SeqCst));
    }

    /// Keeps the codes in `stored`, which has those of the store, and those that were marked since the start. A request
    /// in the same instant as the mark of its code may miss the bit, and then gets 503 once.
    pub(super) fn restrict_to(&self, stored: &RuledBits) {
        for ((shown, marked), stored) in self.shown.iter().zip(self.marked.iter()).zip(stored.words()) {
            shown.fetch_and(stored | marked.load(Ordering::SeqCst), Ordering::SeqCst);
            shown.fetch_or(marked.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }
}

/// The links with redirect rules of one core, as far as they are in memory.
#[derive(Debug, Default)]
pub(super) struct RuledLinks {
    links: HashMap<Code, Arc<Link>>,
    /// The codes in the order in which they came. Codes whose links are gone stay until their turn.
    order: VecDeque<Code>,
    bytes: u64,
    /// The filter that all cores share.
    codes: Arc<RuledCodes>,
}

impl RuledLinks {
    /// Shares the filter of the node. Call it before the first link comes.
    pub(super) fn share(&mut self, codes: &Arc<RuledCodes>) {
        assert!(self.links.is_empty(), "other cores would not know of these links");
        self.codes = Arc::clone(codes);
    }

    /// Returns the filter of all cores.
    #[inline]
    pub(super) fn codes(&self) -> &RuledCodes {
        &self.codes
    }

    /// Returns the link of a code, if it is here.
    pub(super) fn get(&self, code: &Code) -> Option<&Arc<Link>> {
        self.links.get(code)
    }

    /// Keeps a link with rules. Evicts the oldest ones, so that at most `bytes_max` are kept, and returns
    /// their codes.
    pub(super) fn insert(&mut self, link: &Arc<Link>, hash: CodeHash, bytes_max: u64) -> Vec<Code> {
        assert!(link.has_rules(), "a link without rules belongs into the map");
        self.codes.mark(hash);
        self.bytes += bytes_of(link);
        match self.links.insert(link.code, Arc::clone(link)) {
            Some(old) => self.bytes -= bytes_of(&old),
            None => self.order.push_back(link.code),
        }
        let mut gone = Vec::new();
        while self.bytes > bytes_max
            && let Some(first) = self.order.pop_front()
        {
            if self.remove(&first) {
                gone.push(first);
            }
        }
        debug_assert!(self.links.len() <= self.order.len(), "a link would never have to go");
        gone
    }

    /// Takes all links out. It may take long to free them.
    pub(super) fn take_all(&mut self) -> RuledLinks {
        let codes = Arc::clone(&self.codes);
        let empty = RuledLinks { links: HashMap::new(), order: VecDeque::new(), bytes: 0, codes };
        std::mem::replace(self, empty)
    }

    /// Drops the link of a code. Returns true if it was here.
    pub(super) fn remove(&mut self, code: &Code) -> bool {
        let removed = if self.links.is_empty() { None } else { self.links.remove(code) };
        if let Some(link) = &removed {
            self.bytes -= bytes_of(link);
        }
        if self.order.len() > 2 * self.links.len() + 64 {
            self.order.retain(|code| self.links.contains_key(code));
        }
        removed.is_some()
    }

    /// Returns the estimated bytes of all links here.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the estimated bytes of a link.
fn bytes_of(link: &Link) -> u64 {
    LINK_BYTES + link.target.len() as u64 + PARSED_FACTOR * link.labels.rules.encoded().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Origin;
    use carom_model::testing::{link, rules};
    use carom_shards::CodeHasher;

    fn ruled(number: usize) -> (Arc<Link>, CodeHash) {
        let mut link = link(&format!("c{number}"), Origin::Custom);
        link.labels.rules = rules("https://ios.test/", "device", "ios");
        let hash = CodeHasher::new(1).hash(&link.code);
        (Arc::new(link), hash)
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let mut links = RuledLinks::default();
        let (first, hash) = ruled(0);
        let bytes = bytes_of(&first);
        assert!(links.insert(&first, hash, bytes).is_empty());
        assert!(links.insert(&first, hash, bytes).is_empty(), "the same link takes its own place");
        let (second, hash) = ruled(1);
        assert_eq!(links.insert(&second, hash, bytes), [first.code]);
        assert!(links.get(&first.code).is_none());
        assert!(links.get(&second.code).is_some());
        assert!(links.codes().may_hold(ruled(0).1), "requests still keep their heads");
        assert!(links.remove(&second.code));
        assert!(!links.remove(&second.code));
        assert_eq!(links.bytes(), 0);
    }

    #[test]
    fn codes_are_all_ruled_until_those_of_the_store_are_known() {
        let codes = RuledCodes::default();
        let hash = |number: usize| ruled(number).1;
        codes.mark(hash(0));
        codes.add_all();
        assert!((0..100).all(|number| codes.may_hold(hash(number))));
        codes.mark(hash(1));
        let mut stored = RuledBits::default();
        stored.mark(hash(2));
        codes.restrict_to(&stored);
        assert!((0..3).all(|number| codes.may_hold(hash(number))));
        assert!((3..100).filter(|&number| codes.may_hold(hash(number))).count() < 10);
        codes.mark(hash(50));
        assert!(codes.may_hold(hash(50)));
        assert_eq!(RuledBits::from_bytes(&stored.to_bytes()), stored);
    }

    #[test]
    fn codes_that_come_and_go_take_no_room() {
        let mut links = RuledLinks::default();
        for number in 0..10_000 {
            let (link, hash) = ruled(number);
            links.insert(&link, hash, u64::MAX);
            links.remove(&link.code);
        }
        assert!(links.order.len() < 100);
        assert!(links.bytes() == 0);
    }
}
