//! The links that a core has in memory: all of them, or a bounded cache of those in use. The store has the others.
//!
//! With a bounded cache, a core must still know which links exist. A filter holds every code of the core, so that codes
//! which exist nowhere cost no read. A link that is fetched from the store arrives later by mail, and a newer change
//! may have arrived first. So every change has the number of its commit, and every read has the number of commits that
//! had ended when it began. The core refuses a link that was read before the last change of its code, or of any other
//! code in the same slot of a small table.
//!
//! The load at start obeys the same rule in both cases ([`LinkMemory::is_current`]): a record never overwrites a change
//! that was made since it was read.

use carom_shards::{CachedLinks, Code, CodeHash, CodeHasher, LinkMap, MapEntry, MapFull};

use super::all_links::{AllLinks, Placed};
use super::known_codes::KnownCodes;
use carom_model::redirect::{BorrowedLookup, Lookup};

/// The memory that a core has for links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryBudget {
    /// Every link.
    All,
    /// The links in use, and the filter of all codes, within this many bytes.
    Bytes(u64),
    /// The links in use of a shared home, within this many bytes. Any code may exist.
    Shared(u64),
    /// Every link, with memory for hardly any.
    #[cfg(any(test, feature = "faults"))]
    Tiny,
}

/// Slots that remember the last change of a code. A record that was read is not kept if its slot has changed during the
/// read. A change of another code almost never causes that, because few changes happen during a read.
const SLOTS: usize = 4_096;

/// Bytes of the budget for each code that the filter is sized for. A link and its index entry take twice as much.
const BYTES_PER_CODE: u64 = 64;

/// Divisor of the budget that bounds the filter: at most half of it.
const FILTER_SHARE: u64 = 2;

/// Divisor of the budget that bounds the links with redirect rules, which take room only as they come.
const RULED_SHARE: u64 = 8;

/// The links of a core that are in memory.
#[derive(Debug)]
pub(super) enum LinkMemory {
    /// All links.
    All(AllLinks),
    /// The links in use.
    Hot(HotSet),
}

/// The links in use, and a filter of all codes.
#[derive(Debug)]
pub(super) struct HotSet {
    hasher: CodeHasher,
    budget: u64,
    links: CachedLinks,
    /// Every code of the core.
    codes: KnownCodes,
    /// For each slot, the number of the last commit that changed a code of it.
    changed: Box<[u64]>,
    /// Bytes of links with redirect rules, which are kept elsewhere and count for the budget.
    ruled_bytes: u64,
}

impl LinkMemory {
    pub(super) fn new(hasher: CodeHasher, memory_budget: MemoryBudget) -> LinkMemory {
        match memory_budget {
            MemoryBudget::All => LinkMemory::All(AllLinks::new(LinkMap::new(hasher))),
            MemoryBudget::Bytes(bytes) => LinkMemory::Hot(HotSet::new(hasher, bytes, 0)),
            MemoryBudget::Shared(bytes) => LinkMemory::Hot(HotSet::of_shared_home(hasher, bytes)),
            #[cfg(any(test, feature = "faults"))]
            MemoryBudget::Tiny => LinkMemory::All(AllLinks::new(LinkMap::with_room(hasher, 1))),
        }
    }

    /// Returns the link of a code as far as memory has it, also before its start and after its expiry.
    #[inline]
    pub(super) fn get(&mut self, code: &Code, hash: CodeHash) -> BorrowedLookup<'_> {
        match self {
            LinkMemory::All(all) => all.get(code, hash),
            LinkMemory::Hot(hot) => hot.get(code, hash),
        }
    }

    /// Prefetches what the look-ups of these hashes read into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self, hashes: impl Iterator<Item = CodeHash> + Clone) {
        match self {
            LinkMemory::All(all) => {
                hashes.clone().for_each(|hash| all.map().touch_index(hash));
                hashes.for_each(|hash| all.map().touch_record(hash));
            }
            LinkMemory::Hot(hot) => {
                hashes.clone().for_each(|hash| hot.links.touch_index(hash));
                hashes.for_each(|hash| hot.links.touch_record(hash));
            }
        }
    }

    /// Sets the entry of a code for a commit. The previous entry is gone in any case.
    pub(super) fn put(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>, commit: u64) -> Placed {
        match self {
            LinkMemory::All(all) => all.put(code, hash, entry),
            LinkMemory::Hot(hot) => Placed { replaced: hot.put(code, hash, entry, commit), is_served: true },
        }
    }

    /// Removes the entry of a code for a commit. Returns true if there may have been one, here or in the store.
    pub(super) fn remove(&mut self, code: &Code, hash: CodeHash, commit: u64) -> bool {
        match self {
            LinkMemory::All(all) => all.remove(code, hash),
            LinkMemory::Hot(hot) => hot.remove(code, hash, commit),
        }
    }

    /// Keeps a link that was read from the store when `as_of` commits had ended.
    pub(super) fn keep(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>, as_of: u64) {
        if let LinkMemory::Hot(hot) = self {
            hot.keep(code, hash, entry, as_of);
        }
    }

    /// True if a link that was read when `as_of` commits had ended is to be kept with [`LinkMemory::keep`].
    pub(super) fn may_keep(&self, code: &Code, hash: CodeHash, as_of: u64) -> bool {
        matches!(self, LinkMemory::Hot(hot) if hot.is_current(code, hash, as_of))
    }

    /// Returns the bytes that links with redirect rules may take.
    pub(super) fn ruled_bytes_max(&self) -> u64 {
        match self {
            LinkMemory::All(_) => u64::MAX,
            LinkMemory::Hot(hot) => hot.budget / RULED_SHARE,
        }
    }

    /// Sets the bytes that links with redirect rules take, so that the others take less.
    pub(super) fn set_ruled_bytes(&mut self, bytes: u64) {
        if let LinkMemory::Hot(hot) = self {
            hot.ruled_bytes = bytes;
            hot.update_links_limit();
        }
    }

    /// Removes the marker of a link with redirect rules that was evicted, so that the link is read from
    /// the store again.
    pub(super) fn drop_marker(&mut self, code: &Code, hash: CodeHash) {
        match self {
            LinkMemory::All(_) => unreachable!("all links stay in memory"),
            LinkMemory::Hot(hot) => _ = hot.links.remove(code, hash),
        }
    }

    /// Takes all links in use out of memory, if there are any. Links that were read before commit number `commit` and
    /// arrive later are not kept.
    pub(super) fn forget_all(&mut self, commit: u64) -> Option<CachedLinks> {
        let LinkMemory::Hot(hot) = self else { return None };
        hot.changed.fill(commit);
        hot.ruled_bytes = 0;
        let forgotten = (!hot.links.is_empty()).then(|| {
            let empty = CachedLinks::new(hot.hasher, hot.room());
            std::mem::replace(&mut hot.links, empty)
        });
        hot.update_links_limit();
        forgotten
    }

    /// Prepares for about `links` links to be loaded at start. Does nothing once a change has come.
    pub(super) fn reserve(&mut self, links: usize) {
        match self {
            LinkMemory::All(all) => all.reserve(links),
            LinkMemory::Hot(hot) if hot.changed.iter().all(|&commit| commit == 0) => {
                *hot = HotSet::new(hot.hasher, hot.budget, links);
            }
            LinkMemory::Hot(_) => {}
        }
    }

    /// True if the core can tell which codes exist nowhere.
    pub(super) fn knows_codes(&self) -> bool {
        match self {
            LinkMemory::All(_) => true,
            LinkMemory::Hot(hot) => hot.codes.is_known(),
        }
    }

    /// True while the core waits for a filter, and does not know which codes exist.
    pub(super) fn awaits_codes(&self) -> bool {
        matches!(self, LinkMemory::Hot(hot) if hot.codes.is_awaited())
    }

    /// Registers a link that is loaded at start. Returns true if there is room for its entry as well.
    pub(super) fn register(&mut self, hash: CodeHash) -> bool {
        match self {
            LinkMemory::All(all) => {
                all.map().touch_index(hash);
                true
            }
            LinkMemory::Hot(hot) => {
                hot.add_code(hash);
                hot.links.has_room()
            }
        }
    }

    /// True if the record of a code, read from the store when `as_of` commits had ended, is still current. Every loaded
    /// record is checked, so that no earlier read overwrites a change.
    pub(super) fn is_current(&self, code: &Code, hash: CodeHash, as_of: u64) -> bool {
        match self {
            LinkMemory::All(all) => all.is_current(code, hash),
            LinkMemory::Hot(hot) => hot.is_current(code, hash, as_of),
        }
    }

    /// Takes an entry that was loaded and is current.
    ///
    /// # Errors
    /// [`MapFull`] if every link must be in memory and this one finds no room.
    pub(super) fn load(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>) -> Result<(), MapFull> {
        match self {
            LinkMemory::All(all) => all.load(code, hash, entry),
            LinkMemory::Hot(hot) => {
                debug_assert!(hot.codes.may_hold(hash), "the link would get 404 once it is evicted");
                // Without memory it is read from the store like others.
                let _ = hot.links.put(code, hash, entry);
                Ok(())
            }
        }
    }

    /// Leaves a stored link out of memory that only a later version can decode. Requests for it get 503.
    pub(super) fn withhold(&mut self, code: &Code) {
        // The links in use are read from the store, which tells the same of each request.
        if let LinkMemory::All(all) = self {
            all.withhold(code);
        }
    }

    /// Ends the load: all links have been loaded.
    pub(super) fn end_load(&mut self) {
        if let LinkMemory::All(all) = self {
            all.end_load();
        }
    }

    /// True if the codes of the store should be sent for another filter: most codes in this one are of removed links,
    /// and both filters fit.
    pub(super) fn wants_codes(&self) -> bool {
        matches!(self, LinkMemory::Hot(hot) if hot.codes.needs_rebuild() && hot.has_room_for_codes())
    }

    /// Drops the filter of codes, and waits for another one, for about `codes` codes.
    pub(super) fn await_filter(&mut self, codes: usize) {
        if let LinkMemory::Hot(hot) = self {
            hot.codes.wait_for(codes);
            hot.update_links_limit();
        }
    }

    /// Adds blocks to the awaited filter, with the number of codes in them.
    pub(super) fn add_filter_blocks(&mut self, first: usize, blocks: &[u8], codes: usize) {
        if let LinkMemory::Hot(hot) = self {
            hot.codes.merge_next(first, blocks, codes);
            hot.update_links_limit();
        }
    }

    /// Begins another filter, to which the codes of the store will be added.
    pub(super) fn begin_filter(&mut self) {
        if let LinkMemory::Hot(hot) = self
            && hot.has_room_for_codes()
        {
            hot.codes.begin();
            hot.update_links_limit();
        }
    }

    /// Takes some codes of the store.
    pub(super) fn add_to_filter(&mut self, hashes: &[CodeHash]) {
        if let LinkMemory::Hot(hot) = self {
            hashes.iter().for_each(|&hash| hot.codes.insert_next(hash));
            hot.update_links_limit();
        }
    }

    /// Ends the transfer of the store's codes: all have come if `is_whole`, or they cannot all be read.
    pub(super) fn end_filter(&mut self, is_whole: bool) {
        if let LinkMemory::Hot(hot) = self {
            if is_whole {
                hot.codes.finish();
            } else {
                hot.codes.abandon();
            }
            hot.update_links_limit();
        }
    }

    /// Returns how many removed codes are remembered while links are loaded.
    pub(super) fn removed_len(&self) -> usize {
        match self {
            LinkMemory::All(all) => all.removed_len(),
            LinkMemory::Hot(_) => 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            LinkMemory::All(all) => all.map().len(),
            LinkMemory::Hot(hot) => hot.links.len(),
        }
    }

    pub(super) fn link_bytes(&self) -> u64 {
        match self {
            LinkMemory::All(all) => all.map().link_bytes(),
            LinkMemory::Hot(hot) => hot.links.link_bytes(),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            LinkMemory::All(all) => all.map().memory_bytes(),
            LinkMemory::Hot(hot) => hot.memory_bytes(),
        }
    }
}

impl HotSet {
    fn new(hasher: CodeHasher, budget: u64, codes: usize) -> HotSet {
        let changed = vec![0; SLOTS].into_boxed_slice();
        let room = budget.saturating_sub(size_of_val(&*changed) as u64);
        let filter_max = (budget / FILTER_SHARE).min(room.saturating_sub(CachedLinks::LIMIT_BYTES_MIN));
        let codes = KnownCodes::with_capacity(codes, (budget / BYTES_PER_CODE) as usize, filter_max);
        let links = CachedLinks::new(hasher, room.saturating_sub(codes.memory_bytes()));
        HotSet { hasher, budget, links, codes, changed, ruled_bytes: 0 }
    }

    /// Returns the empty memory of a core whose links have a shared home.
    fn of_shared_home(hasher: CodeHasher, budget: u64) -> HotSet {
        let changed = vec![0; SLOTS].into_boxed_slice();
        let links = CachedLinks::new(hasher, budget.saturating_sub(size_of_val(&*changed) as u64));
        HotSet { hasher, budget, links, codes: KnownCodes::of_shared_home(), changed, ruled_bytes: 0 }
    }

    /// Bytes of the budget that links and codes may take.
    fn room(&self) -> u64 {
        self.budget.saturating_sub(size_of_val(&*self.changed) as u64 + self.ruled_bytes)
    }

    /// True if another filter of the codes would fit now.
    fn has_room_for_codes(&self) -> bool {
        let taken = self.links.memory_bytes() + self.codes.memory_bytes();
        self.codes.bytes_of_next().is_some_and(|bytes| taken + bytes <= self.room())
    }

    /// Sets the limit of the links: the budget without the filters of codes.
    fn update_links_limit(&mut self) {
        self.links.set_limit(self.room().saturating_sub(self.codes.bytes_wanted()));
    }

    #[inline]
    fn get(&mut self, code: &Code, hash: CodeHash) -> BorrowedLookup<'_> {
        match self.links.get(code, hash) {
            Some(entry) => entry.into(),
            None if self.codes.may_hold(hash) => Lookup::NotResident,
            None => Lookup::Missing,
        }
    }

    fn put(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>, commit: u64) -> bool {
        let replaced = self.codes.may_hold(hash);
        debug_assert!(self.changed[slot(hash)] <= commit, "an older commit would admit outdated reads");
        self.changed[slot(hash)] = commit;
        self.add_code(hash);
        // Without memory it is read from the store like others.
        let _ = self.links.put(code, hash, entry);
        replaced
    }

    fn remove(&mut self, code: &Code, hash: CodeHash, commit: u64) -> bool {
        debug_assert!(self.changed[slot(hash)] <= commit, "an older commit would admit outdated reads");
        self.changed[slot(hash)] = commit;
        self.links.remove(code, hash);
        let may_exist = self.codes.may_hold(hash);
        if may_exist {
            self.codes.note_removed();
        }
        may_exist
    }

    fn keep(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>, as_of: u64) {
        if self.is_current(code, hash, as_of) {
            let _ = self.links.put(code, hash, entry);
        }
    }

    /// True if a record that was read when `as_of` commits had ended is still current. If the core has a later change
    /// of the slot, the record counts as outdated, although the read may have seen that change.
    fn is_current(&self, code: &Code, hash: CodeHash, as_of: u64) -> bool {
        self.changed[slot(hash)] <= as_of && self.links.peek(code, hash).is_none()
    }

    fn add_code(&mut self, hash: CodeHash) {
        let before = self.codes.bytes_wanted();
        self.codes.insert(hash);
        debug_assert!(self.codes.may_hold(hash), "an existing code would get 404");
        // Links make room for the next layer of the filter well before it is needed.
        if self.codes.bytes_wanted() != before {
            self.update_links_limit();
        }
    }

    #[cfg(test)]
    pub(super) fn evict(&mut self, code: &Code, hash: CodeHash) {
        self.links.remove(code, hash);
    }

    fn memory_bytes(&self) -> u64 {
        self.links.memory_bytes() + self.codes.memory_bytes() + size_of_val(&*self.changed) as u64
    }
}

/// Returns the slot of a hash, from other bits than those that choose the owner or a bucket.
fn slot(hash: CodeHash) -> usize {
    (hash.0 >> 40) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::Policy;

    fn entry(target: &str) -> MapEntry<'_> {
        MapEntry::Link { policy: Policy::default(), target: target.as_bytes() }
    }

    fn code(number: usize) -> (Code, CodeHash) {
        let code = Code::parse(format!("c{number}").as_bytes()).unwrap();
        (code, CodeHasher::new(3).hash(&code))
    }

    #[test]
    fn a_shared_home_may_have_any_code() {
        let mut links = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Shared(512 << 10));
        let (code, hash) = code(1);
        let found: BorrowedLookup<'_> = entry("a").into();
        assert_eq!(links.get(&code, hash), Lookup::NotResident);
        links.keep(&code, hash, entry("a"), 0);
        assert_eq!(links.get(&code, hash), found);
        assert!(links.remove(&code, hash, 1), "other cores may have copies");
        links.keep(&code, hash, entry("a"), 0);
        assert_eq!(links.get(&code, hash), Lookup::NotResident, "it was read before the change");
        links.keep(&code, hash, entry("a"), 1);
        assert_eq!(links.get(&code, hash), found);
        let forgotten = links.forget_all(2).expect("a link is in memory");
        assert_eq!((forgotten.len(), links.len()), (1, 0), "the core frees no link");
        links.keep(&code, hash, entry("a"), 1);
        assert_eq!(links.get(&code, hash), Lookup::NotResident, "a change may have been missed since");
        links.keep(&code, hash, entry("a"), 2);
        assert_eq!(links.get(&code, hash), found);
        assert!(!links.wants_codes(), "no filter would be right");
        assert!(links.awaits_codes(), "or the limit would seem too low");
    }

    #[test]
    fn a_code_is_in_memory_or_in_the_store_or_nowhere() {
        let mut links = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(1 << 20));
        links.reserve(20_000);
        let target = "x".repeat(200);
        for number in 0..20_000 {
            let (code, hash) = code(number);
            links.put(&code, hash, entry(&target), 1);
            assert!(links.memory_bytes() <= 1 << 20);
        }
        let kinds = (0..20_000).map(|number| {
            let (code, hash) = code(number);
            match links.get(&code, hash) {
                found @ Lookup::Live(_) => usize::from(found == entry(&target).into()),
                Lookup::NotResident => 0,
                other => panic!("{number} is forgotten: {other:?}"),
            }
        });
        let here: usize = kinds.sum();
        assert!((2_000..6_000).contains(&here), "{here}");
        let nowhere = (20_000..40_000)
            .filter(|&number| {
                let (code, hash) = code(number);
                links.get(&code, hash) == Lookup::Missing
            })
            .count();
        assert!(nowhere > 19_700, "{nowhere}");
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let mut links = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(1 << 20));
        let (code, hash) = code(1);
        links.keep(&code, hash, entry("http://a/1"), 4);
        assert_eq!(links.get(&code, hash), entry("http://a/1").into());
        assert!(!links.remove(&code, hash, 6), "the filter has not heard of it");
        links.keep(&code, hash, entry("http://a/1"), 5);
        assert_eq!(links.get(&code, hash), Lookup::Missing);
        links.put(&code, hash, entry("http://a/2"), 7);
        links.keep(&code, hash, entry("http://a/1"), 7);
        assert_eq!(links.get(&code, hash), entry("http://a/2").into(), "what is here stays");
        assert!(links.remove(&code, hash, 8));
        links.keep(&code, hash, entry("http://a/2"), 7);
        assert_eq!(links.get(&code, hash), Lookup::NotResident);
    }

    #[test]
    fn links_that_come_and_go_leave_no_codes_behind() {
        let mut links = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(1 << 20));
        links.reserve(1_000);
        let lasting = 0..1_000;
        for number in lasting.clone() {
            let (code, hash) = code(number);
            links.put(&code, hash, entry("https://example.org/lasting"), 1);
        }
        let mut built = 0;
        for number in 1_000..1_000_000 {
            let (code, hash) = code(number);
            links.put(&code, hash, entry("https://example.org/"), 2);
            links.remove(&code, hash, 2);
            if links.wants_codes() {
                // As the thread that reads the store does.
                links.begin_filter();
                let stored: Vec<CodeHash> = lasting.clone().map(|number| self::code(number).1).collect();
                links.add_to_filter(&stored);
                links.end_filter(true);
                built += 1;
            }
            assert!(links.memory_bytes() <= 1 << 20);
        }
        assert!(links.knows_codes(), "after {built} filters");
        let is_known = |links: &mut LinkMemory, number| {
            let (code, hash) = code(number);
            links.get(&code, hash) == Lookup::Missing
        };
        let nowhere = (2_000_000..2_010_000).filter(|&number| is_known(&mut links, number)).count();
        assert!(nowhere > 9_800, "{nowhere}");
        for number in lasting {
            assert!(!is_known(&mut links, number), "{number} exists");
        }
        assert!((20..200).contains(&built), "{built} filters for a million links");
    }

    #[test]
    fn more_codes_than_expected_take_room_from_links_and_too_many_are_not_known_at_all() {
        let mut links = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(2 << 20));
        for number in 0..2_000_000 {
            let (code, hash) = code(number);
            links.put(&code, hash, entry("https://example.org/"), 1);
            assert!(links.memory_bytes() <= 2 << 20, "{} after {number}", links.memory_bytes());
            assert!(links.knows_codes() || number > 300_000, "{number}");
        }
        assert!(links.len() > 1_000);
        assert!(!links.knows_codes());
        // The smallest budget that a core can work with.
        let mut small = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(512 << 10));
        for codes in [0, 100_000, 139_000, 1_000_000] {
            small.reserve(codes);
            assert!(small.memory_bytes() <= 512 << 10, "{codes}");
        }
        let mut loaded = LinkMemory::new(CodeHasher::new(3), MemoryBudget::Bytes(2 << 20));
        loaded.reserve(1_000_000);
        assert!(!loaded.knows_codes());
        let (code, hash) = code(5);
        assert_eq!(loaded.get(&code, hash), Lookup::NotResident);
    }
}
