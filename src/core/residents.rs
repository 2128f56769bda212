//! Which of its links a core has in memory: all of them, or those in use under a limit, while the others are in the store.
//!
//! With the latter a core must still know what there may be: a filter holds every code of the core, so that codes which
//! exist nowhere cost no read. What is read from the store comes back over threads and mailboxes, and may be older by
//! then than a change that has overtaken it. So every change has the number of its commit, and every read the number of
//! commits that had ended when it began; a link that was read before the last change of its code, or of any other of the
//! same slot of a small table, is not taken.

use carom_shards::{CachedLinks, Code, CodeFilter, CodeHash, CodeHasher, Entry, LinkMap, MapFull, Put};

/// What a core may keep in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Every link.
    All,
    /// Those in use, and what is needed to find the others, in so many bytes.
    Bytes(u64),
    /// Every one, in memory for hardly any.
    #[cfg(any(test, feature = "faults"))]
    Little,
}

/// Slots that remember when a code was changed. Each link that is read finds its slot changed meanwhile about as often
/// as this many changes are made in the time of a read: next to never.
const SLOTS: usize = 4_096;

/// Bytes of the share for each code that the filter is prepared for at least: a link and its place take twice as much.
const BYTES_PER_CODE: u64 = 64;

/// The filter takes at most this part of the share.
const FILTER_SHARE: u64 = 2;

/// The links of a core that are in memory.
#[derive(Debug)]
pub(super) enum Residents {
    /// All that there are.
    All(LinkMap),
    /// Those in use.
    Hot(HotSet),
}

/// The links in use, and which others there may be.
#[derive(Debug)]
pub(super) struct HotSet {
    hasher: CodeHasher,
    share: u64,
    links: CachedLinks,
    /// Every code of the core; none where it would not fit, so that every code may be in the store.
    codes: Option<CodeFilter>,
    /// The number of the last commit that changed a code of each slot.
    changed: Box<[u64]>,
}

/// What is in memory for a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resident<'a> {
    /// This.
    Entry(Entry<'a>),
    /// Nothing, and the store has nothing either.
    Nothing,
    /// Nothing, but the store may have it.
    Elsewhere,
}

impl Residents {
    pub(super) fn new(hasher: CodeHasher, share: Share) -> Residents {
        match share {
            Share::All => Residents::All(LinkMap::new(hasher)),
            Share::Bytes(bytes) => Residents::Hot(HotSet::new(hasher, bytes, 0)),
            #[cfg(any(test, feature = "faults"))]
            Share::Little => Residents::All(LinkMap::with_room(hasher, 1)),
        }
    }

    #[inline]
    pub(super) fn get(&mut self, code: &Code, hash: CodeHash) -> Resident<'_> {
        match self {
            Residents::All(map) => map.get(code, hash).map_or(Resident::Nothing, Resident::Entry),
            Residents::Hot(hot) => hot.get(code, hash),
        }
    }

    /// Brings what the look-ups of these hashes read into the cache of the processor.
    #[inline]
    pub(super) fn foresee(&self, hashes: impl Iterator<Item = CodeHash> + Clone) {
        match self {
            Residents::All(map) => {
                hashes.clone().for_each(|hash| map.touch_index(hash));
                hashes.for_each(|hash| map.touch_record(hash));
            }
            Residents::Hot(hot) => {
                hashes.clone().for_each(|hash| hot.links.touch_index(hash));
                hashes.for_each(|hash| hot.links.touch_record(hash));
            }
        }
    }

    /// Sets the entry of a code as a commit has. Returns whether there was one before, here or in the store.
    ///
    /// # Errors
    /// [`MapFull`] where every link must be in memory and this one finds no room.
    pub(super) fn put(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>, commit: u64) -> Result<bool, MapFull> {
        match self {
            Residents::All(map) => Ok(map.put(code, hash, entry)? == Put::Replaced),
            Residents::Hot(hot) => Ok(hot.put(code, hash, entry, commit)),
        }
    }

    /// Removes the entry of a code as a commit has. Returns whether there was one before, here or in the store.
    pub(super) fn remove(&mut self, code: &Code, hash: CodeHash, commit: u64) -> bool {
        match self {
            Residents::All(map) => map.remove(code, hash),
            Residents::Hot(hot) => hot.remove(code, hash, commit),
        }
    }

    /// Keeps a link that was read from the store when so many commits had ended.
    pub(super) fn keep(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>, as_of: u64) {
        if let Residents::Hot(hot) = self {
            hot.keep(code, hash, entry, as_of);
        }
    }

    /// Prepares for about so many links to be read back at start.
    pub(super) fn expect(&mut self, links: usize) {
        match self {
            Residents::All(map) => map.expect(links),
            Residents::Hot(hot) => *hot = HotSet::new(hot.hasher, hot.share, links),
        }
    }

    /// Whether it is known which codes exist nowhere.
    pub(super) fn knows_codes(&self) -> bool {
        match self {
            Residents::All(_) => true,
            Residents::Hot(hot) => hot.codes.is_some(),
        }
    }

    /// Takes note of a link that is read back at start. Returns whether its entry is wanted as well.
    pub(super) fn announce(&mut self, hash: CodeHash) -> bool {
        match self {
            Residents::All(map) => {
                map.touch_index(hash);
                true
            }
            Residents::Hot(hot) => {
                hot.add_code(hash);
                hot.links.has_room()
            }
        }
    }

    /// All links have been read back.
    pub(super) fn fit(&mut self) {
        if let Residents::All(map) = self {
            map.fit();
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Residents::All(map) => map.len(),
            Residents::Hot(hot) => hot.links.len(),
        }
    }

    pub(super) fn link_bytes(&self) -> u64 {
        match self {
            Residents::All(map) => map.link_bytes(),
            Residents::Hot(hot) => hot.links.link_bytes(),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Residents::All(map) => map.memory_bytes(),
            Residents::Hot(hot) => hot.memory_bytes(),
        }
    }
}

impl HotSet {
    fn new(hasher: CodeHasher, share: u64, codes: usize) -> HotSet {
        // A quarter more than there are, so that the filter is of one piece for a while.
        let codes = (codes + codes / 4).max((share / BYTES_PER_CODE) as usize);
        let changed = vec![0; SLOTS].into_boxed_slice();
        let filter = CodeFilter::bytes_for(codes);
        let beside = share.saturating_sub(filter + size_of_val(&*changed) as u64);
        let fits = filter <= share / FILTER_SHARE && beside >= CachedLinks::LIMIT_BYTES_MIN;
        let codes = fits.then(|| CodeFilter::for_about(codes));
        let taken = codes.as_ref().map_or(0, CodeFilter::memory_bytes) + size_of_val(&*changed) as u64;
        HotSet { hasher, share, links: CachedLinks::new(hasher, share.saturating_sub(taken)), codes, changed }
    }

    #[inline]
    fn get(&mut self, code: &Code, hash: CodeHash) -> Resident<'_> {
        match self.links.get(code, hash) {
            Some(entry) => Resident::Entry(entry),
            None if self.codes.as_ref().is_none_or(|codes| codes.may_hold(hash)) => Resident::Elsewhere,
            None => Resident::Nothing,
        }
    }

    fn may_exist(&self, hash: CodeHash) -> bool {
        self.codes.as_ref().is_none_or(|codes| codes.may_hold(hash))
    }

    fn put(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>, commit: u64) -> bool {
        let replaced = self.may_exist(hash);
        self.changed[slot(hash)] = commit;
        self.add_code(hash);
        // Without memory it is read from the store like others.
        let _ = self.links.put(code, hash, entry);
        replaced
    }

    fn remove(&mut self, code: &Code, hash: CodeHash, commit: u64) -> bool {
        self.changed[slot(hash)] = commit;
        self.links.remove(code, hash);
        self.may_exist(hash)
    }

    fn keep(&mut self, code: &Code, hash: CodeHash, entry: Entry<'_>, as_of: u64) {
        // A commit may have been told of that had not ended for whoever read.
        if self.changed[slot(hash)] <= as_of && self.links.peek(code, hash).is_none() {
            let _ = self.links.put(code, hash, entry);
        }
    }

    fn add_code(&mut self, hash: CodeHash) {
        let Some(codes) = &mut self.codes else { return };
        codes.insert(hash);
        // Links make room for the next layer of the filter well before it is needed; where it would be too large, all
        // codes may be in the store from now on.
        let ahead = codes.bytes_ahead();
        if ahead == 0 {
            return;
        }
        let wanted = codes.memory_bytes() + ahead;
        let beside = self.share.saturating_sub(wanted + size_of_val(&*self.changed) as u64);
        if wanted > self.share / FILTER_SHARE || beside < CachedLinks::LIMIT_BYTES_MIN {
            self.codes = None;
        } else {
            self.links.lower_limit(beside);
        }
    }

    #[cfg(test)]
    pub(super) fn evict(&mut self, code: &Code, hash: CodeHash) {
        self.links.remove(code, hash);
    }

    fn memory_bytes(&self) -> u64 {
        let codes = self.codes.as_ref().map_or(0, CodeFilter::memory_bytes);
        self.links.memory_bytes() + codes + size_of_val(&*self.changed) as u64
    }
}

/// Other bits than those that choose the owner or a bucket.
fn slot(hash: CodeHash) -> usize {
    (hash.0 >> 40) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::Policy;

    fn entry(target: &str) -> Entry<'_> {
        Entry::Link { policy: Policy::default(), target: target.as_bytes() }
    }

    fn code(number: usize) -> (Code, CodeHash) {
        let code = Code::parse(format!("c{number}").as_bytes()).unwrap();
        (code, CodeHasher::new(3).hash(&code))
    }

    #[test]
    fn a_code_is_in_memory_or_in_the_store_or_nowhere() {
        let mut residents = Residents::new(CodeHasher::new(3), Share::Bytes(1 << 20));
        residents.expect(20_000);
        let target = "x".repeat(200);
        for number in 0..20_000 {
            let (code, hash) = code(number);
            residents.put(&code, hash, entry(&target), 1).unwrap();
            assert!(residents.memory_bytes() <= 1 << 20);
        }
        let kinds = (0..20_000).map(|number| {
            let (code, hash) = code(number);
            match residents.get(&code, hash) {
                Resident::Entry(found) => usize::from(found == entry(&target)),
                Resident::Elsewhere => 0,
                Resident::Nothing => panic!("{number} is forgotten"),
            }
        });
        let here: usize = kinds.sum();
        assert!((2_000..6_000).contains(&here), "{here}");
        let nowhere = (20_000..40_000)
            .filter(|&number| {
                let (code, hash) = code(number);
                residents.get(&code, hash) == Resident::Nothing
            })
            .count();
        assert!(nowhere > 19_700, "{nowhere}");
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let mut residents = Residents::new(CodeHasher::new(3), Share::Bytes(1 << 20));
        let (code, hash) = code(1);
        residents.keep(&code, hash, entry("http://a/1"), 4);
        assert_eq!(residents.get(&code, hash), Resident::Entry(entry("http://a/1")));
        assert!(!residents.remove(&code, hash, 6), "the filter has not heard of it");
        residents.keep(&code, hash, entry("http://a/1"), 5);
        assert_eq!(residents.get(&code, hash), Resident::Nothing);
        residents.put(&code, hash, entry("http://a/2"), 7).unwrap();
        residents.keep(&code, hash, entry("http://a/1"), 7);
        assert_eq!(residents.get(&code, hash), Resident::Entry(entry("http://a/2")), "what is here stays");
        assert!(residents.remove(&code, hash, 8));
        residents.keep(&code, hash, entry("http://a/2"), 7);
        assert_eq!(residents.get(&code, hash), Resident::Elsewhere);
    }

    #[test]
    fn more_codes_than_expected_take_room_from_links_and_too_many_are_not_known_at_all() {
        let mut residents = Residents::new(CodeHasher::new(3), Share::Bytes(2 << 20));
        for number in 0..2_000_000 {
            let (code, hash) = code(number);
            residents.put(&code, hash, entry("https://example.org/"), 1).unwrap();
            assert!(residents.memory_bytes() <= 2 << 20, "{} after {number}", residents.memory_bytes());
            assert!(residents.knows_codes() || number > 300_000, "{number}");
        }
        assert!(residents.len() > 1_000 && !residents.knows_codes());
        // The least that a core can work with.
        let mut small = Residents::new(CodeHasher::new(3), Share::Bytes(512 << 10));
        for codes in [0, 100_000, 139_000, 1_000_000] {
            small.expect(codes);
            assert!(small.memory_bytes() <= 512 << 10, "{codes}");
        }
        residents.expect(1_000_000);
        assert!(!residents.knows_codes());
        let (code, hash) = code(5);
        assert_eq!(residents.get(&code, hash), Resident::Elsewhere);
    }
}
