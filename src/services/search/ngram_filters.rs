//! An n-gram filter over the index of links by date. It says which sections may contain a term, and where the texts of
//! each section are. So a search skips most sections, and reads the texts of the others in one piece instead of their
//! links.
//!
//! A section is a thousand or so consecutive links. Its signature is a Bloom filter with one hash (Bloom 1970) of all
//! sequences of four bytes in their texts. A text has a term only if it has all sequences of the term. The signature
//! says nothing of shorter terms. The filters take about 10 bytes per link; the texts are in a file
//! ([`super::text_file`]).
//!
//! Sections are adjacent and reach to the end of the index. Links before the first section are read one by one: they
//! are not signed yet ([`super::filter_builder`]), or there is no memory for them. Old texts of a changed link stay in
//! its section, which does no harm: a search reads the link of each hit.

mod copies;
pub(super) mod skip;

use std::collections::VecDeque;
use std::sync::Arc;

use super::recent_texts::TextsInMemory;
use super::section::{IndexSection, SIGNATURE_BYTES, Source};
use super::text_chunk::{TextPart, key_of};
use super::text_file::Extent;
use crate::services::threads::priority::pause_if_due;
use carom_limits::SEARCH_HELD_BYTES;
use carom_model::query::PLACE_MS_LEN;

/// The part of the search memory for texts of links that were created or changed lately, as a divisor: one in so many
/// bytes. The filters get the rest.
const HELD_SHARE: usize = 4;

/// A range of keys: from the first one, up to but excluding the second. An empty second key means the end of the index.
pub(super) type Range = (Vec<u8>, Vec<u8>);

/// The next work that makes searches faster.
#[derive(Debug)]
pub(super) enum FilterWork {
    /// A section that took new links is to be divided; these are its texts.
    Divide(Range, Vec<Arc<TextPart>>),
    /// The last links of a range are to be made into a section.
    Sign(Range),
}

/// Makes the sections of a range from all its texts.
pub(super) fn divided((from, _): &Range, parts: &[Arc<TextPart>]) -> Vec<IndexSection> {
    let mut entries: Vec<&[u8]> = parts.iter().flat_map(|part| part.entries()).collect();
    // The sort is stable, so the newest of the entries of one link is the last.
    entries.sort_by_key(|entry| key_of(entry));
    let mut sections = vec![IndexSection::new(from)];
    for of_link in entries.chunk_by(|a, b| key_of(a) == key_of(b)) {
        pause_if_due();
        let entry = of_link[of_link.len() - 1];
        if sections.last().is_some_and(|section| section.is_full(usize::MAX)) {
            sections.push(IndexSection::new(key_of(entry)));
        }
        let section = sections.last_mut().expect("there is one from the beginning");
        section.add(entry);
    }
    sections
}

/// The links that are added or changed while a range is being signed.
#[derive(Debug, Default)]
struct PendingLinks {
    /// The range that is being signed, if any.
    range: Option<Range>,
    entries: TextsInMemory,
    /// True if too many links changed to keep: the sections that are being made will be discarded.
    is_overflowed: bool,
}

impl PendingLinks {
    fn add(&mut self, entry: &[u8], bytes_max: usize) {
        let Some((from, to)) = &self.range else { return };
        let key = key_of(entry);
        if self.is_overflowed || *key < **from || !to.is_empty() && *key >= **to {
            return;
        }
        self.entries.push(entry);
        if self.entries.memory_bytes() > bytes_max {
            self.entries = TextsInMemory::default();
            self.is_overflowed = true;
        }
    }
}

/// The signatures of an index. The newest links get theirs first.
#[derive(Debug)]
pub(super) struct NgramFilters {
    /// The sections in the order of their keys. The last one reaches to the end of the index and takes new links.
    sections: VecDeque<IndexSection>,
    sections_max: usize,
    /// Bytes of texts and keys in memory, besides signatures.
    held_bytes: usize,
    held_bytes_max: usize,
    /// The last key that was added to the last section.
    last: Vec<u8>,
    pending: PendingLinks,
    /// True if a section has become overfull or was closed since the last search for work.
    is_any_undone: bool,
}

impl NgramFilters {
    /// Returns signatures for new links, whose keys begin at `end`, within `bytes_max` bytes. If that is too few,
    /// signatures are off. Links before `end` are not signed yet.
    pub(super) fn new(end: &[u8], bytes_max: u64) -> NgramFilters {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let held_bytes_max = SEARCH_HELD_BYTES.min(bytes_max / HELD_SHARE);
        let sections_max = (bytes_max - held_bytes_max) / SIGNATURE_BYTES;
        let sections = if sections_max == 0 { VecDeque::new() } else { VecDeque::from([IndexSection::open(end)]) };
        NgramFilters {
            sections,
            sections_max,
            held_bytes: 0,
            held_bytes_max,
            last: end.to_vec(),
            pending: PendingLinks::default(),
            is_any_undone: false,
        }
    }

    /// Returns the bytes of texts with which the last section is full.
    fn open_bytes_max(&self) -> usize {
        self.held_bytes_max / 4
    }

    /// Returns the numbers of links and sections, and true if all links are in sections.
    pub(super) fn coverage(&self) -> (u64, usize, bool) {
        let links = self.sections.iter().map(|section| u64::from(section.len)).sum();
        (links, self.sections.len(), self.sections.front().is_some_and(|first| first.first.is_empty()))
    }

    /// Returns the range before the first section; `None` if sections cover the whole index or are off.
    pub(super) fn unsigned_range(&self) -> Option<Range> {
        let first = self.sections.front().filter(|first| !first.first.is_empty())?;
        Some((Vec::new(), first.first.to_vec()))
    }

    /// Returns the largest number of bytes of texts and keys in memory, besides signatures.
    pub(super) fn held_bytes_max(&self) -> usize {
        self.held_bytes_max
    }

    /// True if so many texts are in memory that they should be written soon.
    pub(super) fn is_pressed(&self) -> bool {
        self.held_bytes > self.held_bytes_max / 2
    }

    /// Schedules the section of a key for a new signature, if it still has these texts, which cannot be read.
    pub(super) fn forget_texts(&mut self, key: &[u8], texts: &Arc<Extent>) {
        let Some(at) = self.section_of(key) else { return };
        let section = &mut self.sections[at];
        if matches!(&section.texts, Source::Stored(extent) if Arc::ptr_eq(extent, texts)) {
            self.held_bytes -= section.held_bytes();
            section.forget();
            self.is_any_undone = true;
        }
    }

    /// Drops the texts of links by their keys, with those of their whole sections, which are signed again. A section that
    /// is being made may have the texts, so it will be discarded.
    pub(super) fn purge(&mut self, keys: &[Vec<u8>]) {
        self.pending.entries = TextsInMemory::default();
        self.pending.is_overflowed = self.pending.range.is_some();
        for key in keys {
            let Some(at) = self.section_of(key) else { continue };
            let is_last = at + 1 == self.sections.len();
            let section = &mut self.sections[at];
            let before = section.held_bytes();
            if is_last {
                section.drop_link(key);
            } else {
                section.forget();
            }
            self.held_bytes = self.held_bytes + section.held_bytes() - before;
            self.is_any_undone = true;
        }
    }

    /// Lets searches read the links of the sections of these keys, until the sections are signed again.
    pub(super) fn forget_sections(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            let Some(at) = self.section_of(key).filter(|_| self.is_on()) else { continue };
            let is_last = at + 1 == self.sections.len();
            let section = &mut self.sections[at];
            self.held_bytes -= section.held_bytes();
            section.forget();
            if is_last {
                // A section without texts counts no new links, so it would never be full.
                self.last.push(0);
                self.sections.push_back(IndexSection::open(&self.last));
            }
            self.is_any_undone = true;
        }
        self.keep_within_bounds();
    }

    /// True if there are signatures at all.
    pub(super) fn is_on(&self) -> bool {
        self.sections_max > 0
    }

    /// Adds the new texts of links, as entries made by [`super::text_chunk::entry_of`].
    pub(super) fn add(&mut self, mut entries: Vec<Vec<u8>>) {
        // In the order of keys, so that few are added to a section after it is closed.
        entries.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)));
        entries.iter().for_each(|entry| self.add_one(entry));
    }

    /// True if a section may be due for work.
    pub(super) fn is_any_undone(&self) -> bool {
        self.is_any_undone
    }

    fn add_one(&mut self, entry: &[u8]) {
        let key = key_of(entry);
        self.begin_section_if_full(key);
        if let Some(at) = self.section_of(key) {
            let (is_last, open_bytes_max) = (at + 1 == self.sections.len(), self.open_bytes_max());
            let section = &mut self.sections[at];
            let before = section.held_bytes();
            section.add(entry);
            // The section may have shrunk by a compaction.
            self.held_bytes = self.held_bytes + section.held_bytes() - before;
            if !is_last {
                self.is_any_undone |= section.is_overfull(open_bytes_max);
            } else if *key > *self.last {
                self.last = key.to_vec();
            }
        }
        self.pending.add(entry, self.open_bytes_max());
        self.keep_within_bounds();
    }

    /// Begins a new section for a key that is later than all others, if the last one is full. Links of one millisecond
    /// come in any order, so they stay together at first. Drops the oldest section if there are too many.
    fn begin_section_if_full(&mut self, key: &[u8]) {
        let open_bytes_max = self.open_bytes_max();
        let Some(open) = self.sections.back().filter(|open| open.is_full(open_bytes_max)) else { return };
        if time_of(key) > time_of(&self.last) {
            self.sections.push_back(IndexSection::open(time_of(key)));
        } else if open.is_overfull(open_bytes_max) {
            // Too many links of one millisecond, as in an import.
            self.last.push(0);
            self.sections.push_back(IndexSection::open(&self.last));
        } else {
            return;
        }
        self.is_any_undone = true;
    }

    /// Turns signatures off.
    pub(super) fn give_up(&mut self) {
        *self = NgramFilters::new(&[], 0);
    }

    fn keep_within_bounds(&mut self) {
        while self.sections.len() > self.sections_max {
            let oldest = self.sections.pop_front().map_or(0, |oldest| oldest.held_bytes());
            self.held_bytes -= oldest;
        }
        // Writers are faster than the thread that signs. It will read these links again.
        while self.held_bytes > self.held_bytes_max {
            let closed = self.sections.iter_mut().rev().skip(1);
            let Some(largest) = closed.max_by_key(|section| section.held_bytes()) else { return };
            match largest.held_bytes() {
                0 => return,
                bytes => self.held_bytes -= bytes,
            }
            largest.forget();
            self.is_any_undone = true;
        }
    }

    /// Returns the number of the section that covers a key, if any.
    fn section_of(&self, key: &[u8]) -> Option<usize> {
        self.sections.partition_point(|section| *section.first <= *key).checked_sub(1)
    }

    /// Returns the end of a section, which is the first key of the next one; empty for the last one.
    fn end_of(&self, at: usize) -> &[u8] {
        self.sections.get(at + 1).map_or(&[], |next| &next.first)
    }

    /// Returns the next work.
    pub(super) fn work(&mut self) -> Option<FilterWork> {
        if self.is_any_undone {
            let closed = self.sections.len().saturating_sub(1);
            // The section before the last one still gets links that other nodes have created a little earlier.
            for (at, section) in self.sections.iter().take(closed).enumerate() {
                let range = || (section.first.to_vec(), self.end_of(at).to_vec());
                let is_overfull = section.is_overfull(self.open_bytes_max());
                match &section.texts {
                    Source::Memory(held) if at + 1 < closed || is_overfull => {
                        return Some(FilterWork::Divide(range(), held.chunks().to_vec()));
                    }
                    Source::Stored(_) | Source::None if is_overfull => return Some(FilterWork::Sign(range())),
                    _ => {}
                }
            }
            self.is_any_undone = false;
        }
        self.unsigned_range().filter(|_| self.sections.len() < self.sections_max).map(FilterWork::Sign)
    }

    /// Starts to keep the links that are added to a range, which is being signed.
    pub(super) fn begin(&mut self, range: &Range) {
        self.pending = PendingLinks { range: Some(range.clone()), ..PendingLinks::default() };
    }

    /// Puts new sections in the place of the last part of a range that [`NgramFilters::work`] returned. They were made
    /// from the links as of [`NgramFilters::begin`]. Returns false if they are discarded, because more links changed
    /// since than are kept.
    pub(super) fn end(&mut self, mut made: Vec<IndexSection>, (from, to): &Range) -> bool {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_overflowed {
            return false;
        }
        for entry in pending.entries.chunks().iter().flat_map(|chunk| chunk.entries()) {
            let before = made.partition_point(|section| *section.first <= *key_of(entry));
            if let Some(section) = before.checked_sub(1).map(|at| &mut made[at]) {
                section.add(entry);
            }
        }
        let behind = match &to[..] {
            [] => self.sections.len(),
            to => self.sections.partition_point(|section| *section.first < *to),
        };
        // The oldest section may have been dropped meanwhile, or the last one divided.
        if self.sections.get(behind).map_or(&[][..], |section| &section.first) != &to[..] {
            return false;
        }
        let (first, len) = (made[0].first.clone(), made.iter().map(|section| section.len).sum());
        let place = match behind.checked_sub(1) {
            None => 0,
            // The section before is a different one by now.
            Some(before) if *self.sections[before].first != **from => return false,
            Some(before) if self.sections[before].first == first => {
                self.sections.remove(before);
                before
            }
            Some(before) => {
                let rest = &mut self.sections[before];
                rest.len = rest.len.saturating_sub(len);
                // Otherwise it would keep texts of links that the new sections have, and a purge would not find them.
                rest.forget();
                behind
            }
        };
        for (number, section) in made.into_iter().enumerate() {
            self.sections.insert(place + number, section);
        }
        debug_assert!(self.sections.iter().is_sorted_by(|a, b| a.first < b.first), "a search would miss links");
        self.held_bytes = self.sections.iter().map(IndexSection::held_bytes).sum();
        self.is_any_undone = true;
        self.keep_within_bounds();
        true
    }
}

/// Returns the time in a key. Many links are created within one millisecond, and are in the order of their codes there.
fn time_of(key: &[u8]) -> &[u8] {
    &key[..key.len().min(PLACE_MS_LEN)]
}

#[cfg(test)]
mod tests {
    use super::super::section::Needle;
    use super::skip::SkipStep;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Index = BTreeMap<Vec<u8>, String>;

    fn entry(key: &[u8], text: &str) -> Vec<u8> {
        [&[key.len() as u8], key, text.as_bytes(), &[0xff]].concat()
    }

    /// Returns the memory for so many sections, in bytes.
    fn memory_for(sections: u64) -> u64 {
        let share = HELD_SHARE as u64;
        (sections * SIGNATURE_BYTES as u64 * share).div_ceil(share - 1)
    }

    fn needle(term: &str) -> Needle {
        Needle::of(std::iter::once(term))
    }

    /// Signs as the thread does. `meanwhile` is added after the store was read and before the result is in use.
    fn sign(signatures: &mut NgramFilters, index: &mut Index, meanwhile: Option<(Vec<u8>, String)>) -> bool {
        let range = match signatures.work() {
            None => return false,
            Some(FilterWork::Divide(range, parts)) => {
                signatures.begin(&range);
                let mut made = divided(&range, &parts);
                made.iter_mut().for_each(|section| section.save(|_| Source::None));
                add(signatures, index, meanwhile);
                _ = signatures.end(made, &range);
                return true;
            }
            Some(FilterWork::Sign(range)) => range,
        };
        signatures.begin(&range);
        let mut section = IndexSection::new(&range.0);
        let within = |key: &[u8]| *key >= *range.0 && (range.1.is_empty() || *key < *range.1);
        for (key, text) in index.iter().rev().filter(|(key, _)| within(key)) {
            section.add(&entry(key, text));
            if section.is_full(usize::MAX) {
                section.begin_at(key);
                break;
            }
        }
        section.save(|_| Source::None);
        add(signatures, index, meanwhile);
        _ = signatures.end(vec![section], &range);
        true
    }

    fn add(signatures: &mut NgramFilters, index: &mut Index, entries: impl IntoIterator<Item = (Vec<u8>, String)>) {
        for (key, text) in entries {
            signatures.add(vec![entry(&key, &text)]);
            index.insert(key, text);
        }
    }

    /// Returns the ranges that a search must read, in the given direction.
    fn ranges(signatures: &NgramFilters, term: &str, range: &Range, descending: bool) -> Vec<Range> {
        let (mut rest, mut found) = (range.clone(), Vec::new());
        loop {
            let reached = match signatures.step(&needle(term), &rest, descending) {
                SkipStep::End => return found,
                SkipStep::On(reached) => reached,
                SkipStep::Read(range, _) => {
                    let reached = if descending { range.0.clone() } else { range.1.clone() };
                    found.push(range);
                    reached
                }
            };
            let is_at_end = if descending { reached <= rest.0 } else { reached.is_empty() };
            if is_at_end {
                return found;
            }
            *(if descending { &mut rest.1 } else { &mut rest.0 }) = reached;
        }
    }

    fn any_entry() -> impl Strategy<Value = (Vec<u8>, String)> {
        ("[a-e]{1,3}", "[xy]{3,7}").prop_map(|(key, text)| (key.into_bytes(), text))
    }

    proptest! {
        #[test]
        fn whatever_has_a_term_is_read_and_once(
            stored in proptest::collection::btree_map("[a-e]{1,3}".prop_map(String::into_bytes), "[xy]{3,7}", 0..40),
            steps in proptest::collection::vec((any_entry(), any::<bool>(), any::<bool>()), 0..60),
            sections_max in prop_oneof![Just(2u64), Just(5), Just(1_000)],
            term in "[xy]{4,6}",
            (from, to) in ("[a-f]{0,2}", "[a-f]{0,2}"),
            descending in any::<bool>(),
        ) {
            let mut index: Index = stored;
            let end = index.keys().next_back().map_or(Vec::new(), |last| [&last[..], &[0]].concat());
            let mut signatures = NgramFilters::new(&end, memory_for(sections_max));
            for ((key, text), signs, meanwhile) in steps {
                match (signs, meanwhile) {
                    (true, true) => _ = sign(&mut signatures, &mut index, Some((key, text))),
                    (true, false) => _ = sign(&mut signatures, &mut index, None),
                    (false, _) => {
                        signatures.add(vec![entry(&key, &text)]);
                        index.insert(key, text);
                    }
                }
                prop_assert!(signatures.sections.len() as u64 <= sections_max);
                prop_assert!(signatures.sections.iter().zip(signatures.sections.iter().skip(1)).all(|(a, b)| a.first < b.first));
            }
            let range = (from.into_bytes(), to.into_bytes());
            let found = ranges(&signatures, &term, &range, descending);
            let within = |key: &[u8], (from, to): &Range| *key >= **from && (to.is_empty() || *key < **to);
            for (key, text) in index {
                let read = found.iter().filter(|range| within(&key, range)).count();
                prop_assert!(read <= usize::from(within(&key, &range)), "{key:?} is read {read} times of {range:?}");
                prop_assert!(read == 1 || !within(&key, &range) || !text.contains(&term), "{key:?} {text} {found:?}");
            }
            let in_order = |pair: &[Range]| if descending { pair[0].0 >= pair[1].1 } else { pair[0].1 <= pair[1].0 };
            prop_assert!(found.windows(2).all(in_order), "{found:?}");
        }
    }

    #[test]
    fn few_sections_are_read_for_what_few_have() {
        let mut index = Index::new();
        let key = |number: u32| number.to_be_bytes().to_vec();
        (0..400).for_each(|number| _ = index.insert(key(number), format!("link number {number:04}")));
        let mut signatures = NgramFilters::new(&key(400), 1_000 * SIGNATURE_BYTES as u64);
        while sign(&mut signatures, &mut index, None) {}
        let (links, sections, is_whole) = signatures.coverage();
        assert_eq!((links, is_whole), (400, true));
        assert!((100..110).contains(&sections), "{sections}");
        (400..800).for_each(|number| signatures.add(vec![entry(&key(number), &format!("link number {number:04}"))]));
        let all = (Vec::new(), Vec::new());
        let came_lately = ranges(&signatures, "0712", &all, false).len();
        assert!((20..50).contains(&came_lately), "{came_lately} that are not signed yet");
        while sign(&mut signatures, &mut index, None) {}
        for descending in [false, true] {
            let read = |term: &str| ranges(&signatures, term, &all, descending).len();
            // The last two sections have no signature.
            assert_eq!((read("0123"), read("0712"), read("none of them")), (3, 3, 2));
            assert!(read("link number 0") > 190);
        }
    }

    #[test]
    fn a_section_into_which_many_links_come_later_is_divided() {
        let mut index = Index::new();
        let key = |number: u32| number.to_be_bytes().to_vec();
        let mut signatures = NgramFilters::new(&key(1_000), 1_000 * SIGNATURE_BYTES as u64);
        while sign(&mut signatures, &mut index, None) {}
        for number in 0..100 {
            let text = format!("link number {number:04}");
            signatures.add(vec![entry(&key(number), &text)]);
            index.insert(key(number), text);
        }
        let all = (Vec::new(), Vec::new());
        assert_eq!(ranges(&signatures, "0042", &all, true), [(Vec::new(), key(1_000))], "one for all of them");
        for at in 0.. {
            // Signing ends although links keep coming.
            assert!(at < 200);
            let text = format!("link number {at:04}");
            if !sign(&mut signatures, &mut index, Some((key(at * 7 % 100), text))) {
                break;
            }
        }
        assert!(signatures.coverage().1 > 20, "{:?}", signatures.coverage());
        assert!(ranges(&signatures, "0099", &all, true).len() < 5);
    }

    #[test]
    fn links_that_change_for_ever_take_no_memory_for_ever() {
        let mut signatures = NgramFilters::new(b"", 1_000 * SIGNATURE_BYTES as u64);
        let mut index = Index::new();
        let mut held = 0;
        for number in 0..6_000 {
            let key = [b'k', b'a' + number as u8 % 4].to_vec();
            add(&mut signatures, &mut index, [(key, format!("{number:01000}"))]);
            while sign(&mut signatures, &mut index, None) {}
            held = memory_of(&signatures).max(held);
        }
        assert!(held < 16 * 1024, "{held} bytes for texts of 4,000");
        assert_eq!(ranges(&signatures, "00005999", &(Vec::new(), b"l".to_vec()), false).len(), 1);
        signatures.give_up();
        signatures.add(vec![entry(b"k", "once more")]);
        assert!(!signatures.is_on());
        assert!(signatures.coverage() == (0, 0, false));
    }

    #[test]
    fn writers_that_are_faster_than_the_signing_thread_stay_within_the_memory_for_texts() {
        let memory = 64 * 1024 * 1024;
        let mut signatures = NgramFilters::new(b"", memory);
        let mut index = Index::new();
        for number in 0..5_000u32 {
            // All of one time, and larger than a section.
            let key = [&[0; PLACE_MS_LEN][..], &number.wrapping_mul(2_654_435_761).to_be_bytes()].concat();
            add(&mut signatures, &mut index, [(key, format!("{number:08000}"))]);
            assert!(memory_of(&signatures) <= 16 * 1024 * 1024, "{} bytes", memory_of(&signatures));
            assert_eq!(memory_of(&signatures), signatures.held_bytes);
        }
        let all = (Vec::new(), Vec::new());
        let found = ranges(&signatures, "0000001234", &all, true);
        let key = index.iter().find(|(_, text)| text.ends_with("00001234")).unwrap().0;
        assert!(found.iter().any(|(from, to)| from <= key && (to.is_empty() || key < to)));
        while sign(&mut signatures, &mut index, None) {}
        // All sections are signed again; the texts of each are read in one piece.
        assert!((1_250..1_500).contains(&signatures.coverage().1), "{:?}", signatures.coverage());
        assert!(signatures.sections.iter().rev().skip(2).all(|section| section.held_bytes() < 1024 * 1024));
    }

    fn memory_of(signatures: &NgramFilters) -> usize {
        signatures.sections.iter().map(IndexSection::held_bytes).sum()
    }

    #[test]
    fn of_short_terms_nothing_is_said() {
        let mut index = Index::from([(b"a".to_vec(), "nothing of that kind".to_owned())]);
        let mut signatures = NgramFilters::new(b"b", memory_for(2));
        while sign(&mut signatures, &mut index, None) {}
        let all = (Vec::new(), b"b".to_vec());
        let read = |term: &str| ranges(&signatures, term, &all, true).len();
        // Some letters have several bytes.
        assert_eq!((read("xyz"), read("xyzz"), read("Ä"), read("ÄÖ")), (1, 0, 1, 0));
        let either = Needle::of(["long enough", "abc"].into_iter());
        assert!(matches!(signatures.step(&either, &all, true), SkipStep::Read(..)));
        let off = NgramFilters::new(b"", SIGNATURE_BYTES as u64 - 1);
        assert!(!off.is_on());
        assert_eq!(ranges(&off, "anything", &(b"a".to_vec(), Vec::new()), true), [(b"a".to_vec(), Vec::new())]);
    }
}
