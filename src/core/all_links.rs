//! Every link of a core in memory, for a node that keeps all of them.
//!
//! Two small sets of codes accompany the map. While links are loaded, `removed` has the codes that were removed since
//! the start: their stored records may have been read before, and must not come back. `unserved` has the codes of links
//! that are on disk but do not fit in memory, or that only a later version can decode. Requests for them get 503, never
//! their previous destination or 404.

use std::collections::HashSet;

use carom_shards::{Code, CodeHash, LinkMap, MapEntry, MapFull, Put, SealedPage};

use carom_limits::UNSERVED_CODES_MAX;
use carom_model::redirect::{BorrowedLookup, Lookup};

/// The links of a core that keeps all of them.
#[derive(Debug)]
pub(super) struct AllLinks {
    map: LinkMap,
    /// Codes removed since the start; `None` once all links are loaded.
    removed: Option<HashSet<Code>>,
    unserved: Unserved,
}

/// Codes whose links are stored, but have no room in memory or cannot be decoded by this version.
#[derive(Debug, Default)]
struct Unserved {
    codes: HashSet<Code>,
    /// True if there were more of them than the set may hold, so that any unknown code may be one.
    is_full: bool,
}

/// The result of setting an entry for a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    /// True if the code may have had an entry before, here or in the store.
    pub(super) replaced: bool,
    /// True if redirects find the entry. False if every link must be in memory and there is no room.
    pub(super) is_served: bool,
}

impl AllLinks {
    /// Returns a map without links, before the load.
    pub(super) fn new(map: LinkMap) -> AllLinks {
        AllLinks { map, removed: Some(HashSet::new()), unserved: Unserved::default() }
    }

    #[inline]
    pub(super) fn get(&self, code: &Code, hash: CodeHash) -> BorrowedLookup<'_> {
        match self.map.get(code, hash) {
            Some(entry) => entry.into(),
            None if self.unserved.may_hold(code) => Lookup::NotResident,
            None => Lookup::Missing,
        }
    }

    /// Sets the entry of a code for a commit. If it finds no room, the code has no entry afterwards.
    pub(super) fn put(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>) -> Placed {
        match self.map.put(code, hash, entry) {
            Ok(put) => {
                self.unserved.remove(code);
                Placed { replaced: put == Put::Replaced, is_served: true }
            }
            Err(MapFull) => {
                let replaced = self.remove(code, hash);
                self.unserved.insert(code);
                Placed { replaced, is_served: false }
            }
        }
    }

    /// Removes the entry of a code for a commit. Returns true if there was one.
    pub(super) fn remove(&mut self, code: &Code, hash: CodeHash) -> bool {
        if let Some(removed) = &mut self.removed {
            removed.insert(*code);
        }
        self.unserved.remove(code);
        let existed = self.map.remove(code, hash);
        debug_assert!(!matches!(self.get(code, hash), Lookup::Live(_)), "a removed link is still served");
        existed
    }

    /// Prepares for about `links` links to be loaded. Does nothing once a change has come.
    pub(super) fn reserve(&mut self, links: usize) {
        if self.map.is_empty() {
            self.map.reserve(links);
        }
    }

    /// True if the stored record of a code is still current: no change since the start has overtaken it. Entries in
    /// memory during the load come from a change, or from the record itself.
    pub(super) fn is_current(&self, code: &Code, hash: CodeHash) -> bool {
        let is_removed = self.removed.as_ref().is_some_and(|removed| removed.contains(code));
        !is_removed && self.map.get(code, hash).is_none()
    }

    /// Takes an entry that was loaded and is current.
    ///
    /// # Errors
    /// [`MapFull`] if there is no room for it.
    pub(super) fn load(&mut self, code: &Code, hash: CodeHash, entry: MapEntry<'_>) -> Result<(), MapFull> {
        debug_assert!(self.is_current(code, hash), "an older record would replace a change");
        self.map.put(code, hash, entry).map(drop).inspect_err(|_| self.unserved.insert(code))
    }

    /// Leaves out the link of a code, although the store has it.
    pub(super) fn withhold(&mut self, code: &Code) {
        self.unserved.insert(code);
    }

    /// Takes those entries of a page that `keep` wants and no change since the start has overtaken. Returns true if all
    /// of them found room.
    pub(super) fn adopt(&mut self, page: SealedPage, mut keep: impl FnMut(&Code, CodeHash) -> bool) -> bool {
        let removed = self.removed.as_ref().filter(|removed| !removed.is_empty());
        let is_removed = |code: &Code| removed.is_some_and(|removed| removed.contains(code));
        let left = self.map.adopt(page, |code, hash| keep(code, hash) && !is_removed(code));
        left.iter().for_each(|code| self.unserved.insert(code));
        left.is_empty()
    }

    /// Ends the load: all links have been loaded.
    pub(super) fn end_load(&mut self) {
        self.map.fit();
        self.removed = None;
    }

    /// Returns how many removed codes are remembered while links are loaded.
    pub(super) fn removed_len(&self) -> usize {
        self.removed.as_ref().map_or(0, HashSet::len)
    }

    /// Returns the map of the entries.
    #[inline]
    pub(super) fn map(&self) -> &LinkMap {
        &self.map
    }
}

impl Unserved {
    #[inline]
    fn may_hold(&self, code: &Code) -> bool {
        self.is_full || (!self.codes.is_empty() && self.codes.contains(code))
    }

    fn insert(&mut self, code: &Code) {
        if self.codes.len() < UNSERVED_CODES_MAX {
            self.codes.insert(*code);
        } else {
            self.is_full = true;
        }
    }

    fn remove(&mut self, code: &Code) {
        if !self.codes.is_empty() {
            self.codes.remove(code);
        }
    }
}

#[cfg(test)]
mod tests {
    use carom_shards::map::sealed::{self, PageWriter, records_in};
    use carom_shards::{CodeHasher, PageBuffer, Policy};

    use super::*;

    fn entry(target: &str) -> MapEntry<'_> {
        MapEntry::Link { policy: Policy::default(), target: target.as_bytes() }
    }

    fn code(number: usize) -> (Code, CodeHash) {
        let code = Code::parse(format!("c{number}").as_bytes()).unwrap();
        (code, CodeHasher::new(3).hash(&code))
    }

    /// Returns a map with room for one page of links.
    fn little() -> AllLinks {
        AllLinks::new(LinkMap::with_room(CodeHasher::new(3), 1))
    }

    fn get(links: &AllLinks, number: usize) -> &'static str {
        match links.get(&code(number).0, code(number).1) {
            Lookup::Live(_) => "served",
            Lookup::Missing => "nothing",
            Lookup::NotResident => "unavailable",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn removed_codes_are_forgotten_when_all_links_are_loaded() {
        let mut links = little();
        let (one, hash) = code(1);
        assert!(!links.remove(&one, hash));
        assert!(links.removed_len() == 1);
        assert!(!links.is_current(&one, hash));
        links.end_load();
        assert_eq!(links.removed_len(), 0);
        links.remove(&one, hash);
        assert_eq!(links.removed_len(), 0);
    }

    #[test]
    fn a_withheld_code_is_unavailable_until_it_changes() {
        let mut links = little();
        let [(one, hash), (two, other)] = [code(1), code(2)];
        [one, two].iter().for_each(|code| links.withhold(code));
        links.end_load();
        assert_eq!([1, 2, 3].map(|at| get(&links, at)), ["unavailable", "unavailable", "nothing"]);
        assert!(links.put(&one, hash, entry("later")).is_served);
        links.remove(&two, other);
        assert_eq!([1, 2].map(|at| get(&links, at)), ["served", "nothing"]);
    }

    #[test]
    fn a_code_without_room_is_unavailable_and_never_what_it_was() {
        let mut links = little();
        let long = "x".repeat(2_000);
        let mut number = 0;
        let unserved = loop {
            number += 1;
            let (code, hash) = code(number);
            let placed = match number % 2 {
                0 => links.put(&code, hash, entry(&long)).is_served,
                _ => links.load(&code, hash, entry(&long)).is_ok(),
            };
            if !placed {
                break number;
            }
        };
        assert_eq!([1, unserved, unserved + 1].map(|at| get(&links, at)), ["served", "unavailable", "nothing"]);
        // A change without room removes the link, and one with room restores it.
        let (first, hash) = code(1);
        assert_eq!(links.put(&first, hash, entry(&"x".repeat(2_040))), Placed { replaced: true, is_served: false });
        assert_eq!(get(&links, 1), "unavailable");
        assert!(!links.is_current(&first, hash), "what was stored before must not come back");
        assert!(links.put(&first, hash, entry("http://a/")).is_served);
        assert_eq!(get(&links, 1), "served");
        assert!(!links.unserved.codes.contains(&first));
        let (last, hash) = code(unserved);
        links.remove(&last, hash);
        assert_eq!(get(&links, unserved), "nothing");
    }

    #[test]
    fn a_page_without_room_leaves_its_codes_unavailable() {
        let mut links = little();
        let page = |numbers: std::ops::Range<usize>| {
            let (mut writer, mut records) = (PageWriter::default(), Vec::new());
            numbers.for_each(|number| sealed::append(&mut records, &code(number).0, &entry("http://a/")));
            records_in(&records).for_each(|record| assert!(writer.push(record)));
            let mut buffer = PageBuffer::new().unwrap();
            buffer.bytes_mut().copy_from_slice(writer.bytes_mut());
            buffer.seal().unwrap()
        };
        assert!(links.adopt(page(0..10), |_, _| true));
        let unwanted = code(15).0;
        assert!(!links.adopt(page(10..20), |code, _| *code != unwanted));
        assert_eq!([5, 12, 15].map(|at| get(&links, at)), ["served", "unavailable", "nothing"]);
    }

    #[test]
    fn with_too_many_codes_without_room_any_unknown_one_may_be_one() {
        let mut unserved = Unserved::default();
        (0..=UNSERVED_CODES_MAX).for_each(|number| unserved.insert(&code(number).0));
        assert!(unserved.may_hold(&code(usize::MAX).0));
        assert_eq!(unserved.codes.len(), UNSERVED_CODES_MAX);
    }
}
