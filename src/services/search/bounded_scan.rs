//! Scans candidates one by one, up to a bound, and collects a page of those that match.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::services::threads::priority::PacedLoop;
use carom_limits::{LIST_COUNTED_MAX, LIST_LOOKED_MAX};
use carom_model::link::Link;
use carom_model::query::{Behind, Filter, LinkPosition, ms_bytes};
use carom_store::links::catalog::{IndexKind, Marks, View, place_of, tag_key};
use carom_store::links::{StoreError, Value};

/// Number of candidates between two looks at the clock.
const LOOKS_PER_CLOCK: u64 = 64;

/// Number of entries that are skipped one by one before a seek: about as many as take the same time.
const STEPS_MAX: usize = if cfg!(test) { 2 } else { 16 };

/// A range of adjacent entries in an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexRun {
    pub(super) kind: IndexKind,
    /// Bytes of tag before the place in a key.
    pub(super) tag_len: usize,
    /// The first key of the run.
    pub(super) from: Vec<u8>,
    /// The key at which the run ends, which is not part of it; empty at the end of the index.
    pub(super) to: Vec<u8>,
}

impl IndexRun {
    /// Returns the run of all links created in the time span of a filter.
    pub(super) fn of_dates(filter: &Filter) -> IndexRun {
        let from = filter.since_ms.map_or(Vec::new(), |ms| ms_bytes(ms).to_vec());
        let to = filter.until_ms.map_or(Vec::new(), |ms| ms_bytes(ms.saturating_add(1)).to_vec());
        IndexRun { kind: IndexKind::Dates, tag_len: 0, from, to }
    }

    /// Returns the run of the links with a tag, created in the time span of a filter.
    pub(super) fn of_tag(tag: &str, filter: &Filter) -> IndexRun {
        IndexRun::of_dates(filter).with_tag(tag)
    }

    /// Returns the run of the links with a tag that are in a run by date.
    pub(super) fn with_tag(self, tag: &str) -> IndexRun {
        let IndexRun { kind, from, mut to, .. } = self;
        assert_eq!(kind, IndexKind::Dates, "a run of another tag has other keys");
        if to.is_empty() {
            // After every time.
            to = ms_bytes(u64::MAX).to_vec();
            to.push(u8::MAX);
        }
        let (from, to) = (tag_key(tag, &from), tag_key(tag, &to));
        IndexRun { kind: IndexKind::Tags, tag_len: tag.len() + 1, from, to }
    }

    /// Returns the part of the run after a place, in the given direction.
    pub(super) fn behind(self, place: LinkPosition, descending: bool) -> IndexRun {
        self.cut(place, descending, descending)
    }

    /// Returns the part of the run from a place on, in the given direction.
    fn at(&self, place: LinkPosition, descending: bool) -> IndexRun {
        self.clone().cut(place, descending, !descending)
    }

    /// Returns the part of the run after a cut, in the given direction. The cut is before the place, or after it in the
    /// order of the index.
    fn cut(mut self, place: LinkPosition, descending: bool, before: bool) -> IndexRun {
        let mut key = self.from[..self.tag_len].to_vec();
        key.extend_from_slice(&place.to_bytes());
        if !before {
            key.push(0);
        }
        if !descending {
            self.from = key.max(self.from);
        } else if self.to.is_empty() || key < self.to {
            self.to = key;
        }
        self
    }

    /// Iterates over the places of the entries.
    pub(super) fn places(
        &self,
        view: &View,
        descending: bool,
    ) -> impl Iterator<Item = Result<LinkPosition, StoreError>> + use<> {
        let (keys, tag_len) = (view.keys(self.kind, &self.from, &self.to), self.tag_len);
        // A key without a valid place was not written by this program.
        in_direction(keys, descending).filter_map(move |key| key.map(|key| place_of(&key, tag_len)).transpose())
    }

    /// Iterates over the entries.
    pub(super) fn entries(&self, view: &View, descending: bool) -> EntryIter<'static> {
        let (entries, tag_len) = (view.entries(self.kind, &self.from, &self.to), self.tag_len);
        let listed = move |(key, marks): (Value, Marks)| {
            Some(ListedCode { place: place_of(&key, tag_len)?, marks, has_all: true })
        };
        Box::new(in_direction(entries, descending).filter_map(move |entry| entry.map(listed).transpose()))
    }
}

fn in_direction<'i, T: 'i>(
    items: impl DoubleEndedIterator<Item = T> + 'i,
    descending: bool,
) -> Box<dyn Iterator<Item = T> + 'i> {
    if descending { Box::new(items.rev()) } else { Box::new(items) }
}

/// An index entry: a link as far as the index knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListedCode {
    pub(super) place: LinkPosition,
    pub(super) marks: Marks,
    /// True if the link has all required tags.
    pub(super) has_all: bool,
}

/// The result of testing a link with a filter.
#[derive(Debug)]
pub(super) enum FilterResult {
    /// No match, or no link.
    Other,
    /// A match, whose link the caller did not want.
    One,
    /// A match.
    Link(Arc<Link>),
}

/// A sequence of index entries.
pub(super) type EntryIter<'v> = Box<dyn Iterator<Item = Result<ListedCode, StoreError>> + 'v>;

/// A sequence of index entries whose next one can be peeked at.
type Ahead<'v> = Peekable<EntryIter<'v>>;

/// Returns the candidates for a list. If a link must have all tags, these are the entries of the first run, each with
/// the result for the other runs. Otherwise they are the union of all runs, each link once.
pub(super) fn candidates<'v>(filter: &Filter, runs: &[IndexRun], view: &'v View, descending: bool) -> EntryIter<'v> {
    if filter.has_all() {
        Box::new(Common::of(runs, view, descending))
    } else {
        union(runs.iter().map(|run| run.entries(view, descending)).collect(), descending)
    }
}

/// Returns the union of sequences that have the same order. A place has all tags if it does in one of them.
pub(super) fn union<'v>(mut sequences: Vec<EntryIter<'v>>, descending: bool) -> EntryIter<'v> {
    if sequences.len() == 1
        && let Some(alone) = sequences.pop()
    {
        return alone;
    }
    Box::new(Merged { runs: sequences.into_iter().map(Iterator::peekable).collect(), descending })
}

/// The union of several runs, each place once, in their common order.
struct Merged<'v> {
    runs: Vec<Ahead<'v>>,
    descending: bool,
}

impl Iterator for Merged<'_> {
    type Item = Result<ListedCode, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut first: Option<(Vec<u8>, usize)> = None;
        for (number, run) in self.runs.iter_mut().enumerate() {
            match run.peek() {
                None => {}
                Some(Err(_)) => return run.next(),
                Some(Ok(listed)) => {
                    let key = listed.place.to_bytes();
                    let comes_before = |first: &Vec<u8>| if self.descending { key > *first } else { key < *first };
                    if first.as_ref().is_none_or(|(first, _)| comes_before(first)) {
                        first = Some((key, number));
                    }
                }
            }
        }
        let mut next = self.runs[first?.1].next()?;
        if let Ok(listed) = &mut next {
            for run in &mut self.runs {
                let same = run.next_if(|other| other.as_ref().is_ok_and(|other| other.place == listed.place));
                listed.has_all |= matches!(same, Some(Ok(ListedCode { has_all: true, .. })));
            }
        }
        Some(next)
    }
}

/// The intersection of several runs: the entries of the first one, each with true if all other runs have its place. The
/// others follow by single steps over a short distance, and by a seek over a longer one.
struct Common<'v> {
    first: Ahead<'static>,
    others: Vec<(IndexRun, Ahead<'static>)>,
    view: &'v View,
    descending: bool,
}

impl<'v> Common<'v> {
    fn of(runs: &[IndexRun], view: &'v View, descending: bool) -> Common<'v> {
        let mut entries = runs.iter().map(|run| (run.clone(), run.entries(view, descending).peekable()));
        let first: Option<(IndexRun, Ahead<'static>)> = entries.next();
        let none = || -> EntryIter<'static> { Box::new(std::iter::empty()) };
        let first = first.map_or_else(|| none().peekable(), |(_, first)| first);
        let others = entries.collect();
        Common { first, others, view, descending }
    }

    /// True if a run has the place. Places must be asked for in order.
    fn has(&mut self, number: usize, place: LinkPosition) -> Result<bool, StoreError> {
        let (run, entries) = &mut self.others[number];
        let wanted = place.to_bytes();
        for step in 0.. {
            let key = match entries.peek() {
                None => return Ok(false),
                Some(Ok(listed)) => listed.place.to_bytes(),
                Some(Err(_)) => return entries.next().map_or(Ok(false), |failed| failed.map(|_| false)),
            };
            let is_before = if self.descending { key > wanted } else { key < wanted };
            if !is_before {
                return Ok(key == wanted);
            }
            if step == STEPS_MAX {
                *entries = run.at(place, self.descending).entries(self.view, self.descending).peekable();
            } else {
                _ = entries.next();
            }
        }
        Ok(false)
    }
}

impl Iterator for Common<'_> {
    type Item = Result<ListedCode, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut listed = match self.first.next()? {
            Ok(listed) => listed,
            Err(error) => return Some(Err(error)),
        };
        for number in 0..self.others.len() {
            match self.has(number, listed.place) {
                Ok(has) => listed.has_all &= has,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(listed))
    }
}

/// The demand of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanDemand {
    /// Number of matches to skip.
    pub(super) skip: u64,
    /// Number of matches to collect.
    pub(super) count: usize,
    /// Longest duration of the scan.
    pub(super) time_max: Duration,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct ScanResult {
    pub(super) links: Vec<Arc<Link>>,
    /// Number of matches so far, including skipped ones.
    pub(super) matched: u64,
    /// True if all candidates were tested.
    pub(super) complete: bool,
    /// The place after which the next page begins, if there may be one.
    pub(super) next: Option<Behind>,
}

/// Tests candidates until the page is full and the rest is counted, or a bound is reached. `test` tests one, and
/// returns its link if it matches and is wanted.
///
/// # Errors
/// If candidates or links cannot be read.
pub(super) fn walk<T>(
    candidates: impl Iterator<Item = Result<T, StoreError>>,
    wanted: ScanDemand,
    behind: impl Fn(&T) -> Behind,
    mut test: impl FnMut(&T, bool) -> Result<FilterResult, StoreError>,
) -> Result<ScanResult, StoreError> {
    let start = Instant::now();
    let mut walked = ScanResult { links: Vec::new(), matched: 0, complete: true, next: None };
    let (mut last, mut paced) = (None, PacedLoop::default());
    for (looked, candidate) in (0..).zip(candidates) {
        paced.step();
        let is_full = walked.links.len() >= wanted.count;
        let is_late = looked % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1 && start.elapsed() >= wanted.time_max;
        if looked >= if is_full { LIST_COUNTED_MAX } else { LIST_LOOKED_MAX } || is_late {
            walked.complete = false;
            if !is_full {
                walked.next = last;
            } else {
                walked.next = walked.next.or(last);
            }
            return Ok(walked);
        }
        let candidate = candidate?;
        let is_wanted = !is_full && walked.matched >= wanted.skip;
        let is_asked_for = match test(&candidate, is_wanted)? {
            FilterResult::Other => false,
            FilterResult::One => true,
            FilterResult::Link(link) => {
                walked.links.push(link);
                true
            }
        };
        walked.matched += u64::from(is_asked_for);
        if !is_full {
            last = Some(behind(&candidate));
        } else if is_asked_for && walked.next.is_none() {
            walked.next = last.clone();
        }
    }
    Ok(walked)
}
