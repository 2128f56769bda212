//! Goes through candidates one by one, up to a bound, and collects a page of those that are asked for.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::filter::Sifted;
use carom_limits::{LIST_COUNTED_MAX, LIST_LOOKED_MAX};
use carom_model::link::Link;
use carom_model::query::{Behind, Filter, Place, ms_bytes};
use carom_store::links::catalog::{Marks, Shelf, View, place_of, tag_key};
use carom_store::links::{StoreError, Value};

/// How many candidates are looked at between two looks at the clock.
const LOOKS_PER_CLOCK: u64 = 64;

/// Entries that are passed one by one before the next one is looked up: about as many as take the same time.
const STEPS_MAX: usize = if cfg!(test) { 2 } else { 16 };

/// Entries that stand side by side in an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) shelf: Shelf,
    /// Bytes of tag before the place.
    pub(super) tag_len: usize,
    /// Where it begins.
    pub(super) from: Vec<u8>,
    /// Where it is over; empty at the end of the index.
    pub(super) to: Vec<u8>,
}

impl Run {
    /// All links of the time that is asked for.
    pub(super) fn of_dates(filter: &Filter) -> Run {
        let from = filter.since_ms.map_or(Vec::new(), |ms| ms_bytes(ms).to_vec());
        let to = filter.until_ms.map_or(Vec::new(), |ms| ms_bytes(ms.saturating_add(1)).to_vec());
        Run { shelf: Shelf::Dates, tag_len: 0, from, to }
    }

    /// Those of them that have a tag.
    pub(super) fn of_tag(tag: &str, filter: &Filter) -> Run {
        let Run { from, mut to, .. } = Run::of_dates(filter);
        if to.is_empty() {
            // Behind every time.
            to = ms_bytes(u64::MAX).to_vec();
            to.push(u8::MAX);
        }
        let (from, to) = (tag_key(tag, &from), tag_key(tag, &to));
        Run { shelf: Shelf::Tags, tag_len: tag.len() + 1, from, to }
    }

    /// What of it comes behind a place, in that direction.
    pub(super) fn behind(self, place: Place, descending: bool) -> Run {
        self.cut(place, descending, descending)
    }

    /// What of it comes at a place or behind it.
    fn at(&self, place: Place, descending: bool) -> Run {
        self.clone().cut(place, descending, !descending)
    }

    /// What of it comes behind a cut, which is before a place or, in the order of the index, right behind it.
    fn cut(mut self, place: Place, descending: bool, before: bool) -> Run {
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

    /// The places of its entries.
    pub(super) fn places(
        &self,
        view: &View,
        descending: bool,
    ) -> impl Iterator<Item = Result<Place, StoreError>> + use<> {
        let (keys, tag_len) = (view.keys(self.shelf, &self.from, &self.to), self.tag_len);
        // What is no place was not written by this program.
        in_direction(keys, descending).filter_map(move |key| key.map(|key| place_of(&key, tag_len)).transpose())
    }

    /// Its entries.
    pub(super) fn entries(&self, view: &View, descending: bool) -> Entries<'static> {
        let (entries, tag_len) = (view.entries(self.shelf, &self.from, &self.to), self.tag_len);
        let listed =
            move |(key, marks): (Value, Marks)| Some(Listed { place: place_of(&key, tag_len)?, marks, has_all: true });
        Box::new(in_direction(entries, descending).filter_map(move |entry| entry.map(listed).transpose()))
    }
}

fn in_direction<'i, T: 'i>(
    items: impl DoubleEndedIterator<Item = T> + 'i,
    descending: bool,
) -> Box<dyn Iterator<Item = T> + 'i> {
    if descending { Box::new(items.rev()) } else { Box::new(items) }
}

/// A link as an index has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) place: Place,
    pub(super) marks: Marks,
    /// Whether it has all tags that it must have.
    pub(super) has_all: bool,
}

/// Entries of an index, one after the other.
pub(super) type Entries<'v> = Box<dyn Iterator<Item = Result<Listed, StoreError>> + 'v>;

/// The same, the next one of which can be looked at before it is taken.
type Ahead = Peekable<Entries<'static>>;

/// Candidates for a list: those of the runs, each once; or those of the first run, and whether the others have them as
/// well.
pub(super) fn candidates<'v>(filter: &Filter, runs: &[Run], view: &'v View, descending: bool) -> Entries<'v> {
    match filter.has_all() {
        true => Box::new(Common::of(runs, view, descending)),
        false => Box::new(Merged::of(runs, view, descending)),
    }
}

/// The entries of several runs, each place once, in the order of all.
struct Merged {
    runs: Vec<Ahead>,
    descending: bool,
}

impl Merged {
    fn of(runs: &[Run], view: &View, descending: bool) -> Merged {
        Merged { runs: runs.iter().map(|run| run.entries(view, descending).peekable()).collect(), descending }
    }
}

impl Iterator for Merged {
    type Item = Result<Listed, StoreError>;

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
        let next = self.runs[first?.1].next()?;
        if let Ok(listed) = &next {
            for run in &mut self.runs {
                run.next_if(|other| other.as_ref().is_ok_and(|other| other.place == listed.place));
            }
        }
        Some(next)
    }
}

/// The entries of one run, each with whether other runs have its place. The others keep up with it: by single steps
/// while they are near, else by a look-up.
struct Common<'v> {
    first: Ahead,
    others: Vec<(Run, Ahead)>,
    view: &'v View,
    descending: bool,
}

impl<'v> Common<'v> {
    fn of(runs: &[Run], view: &'v View, descending: bool) -> Common<'v> {
        let mut entries = runs.iter().map(|run| (run.clone(), run.entries(view, descending).peekable()));
        let first: Option<(Run, Ahead)> = entries.next();
        let none = || -> Entries<'static> { Box::new(std::iter::empty()) };
        let first = first.map_or_else(|| none().peekable(), |(_, first)| first);
        let others = entries.collect();
        Common { first, others, view, descending }
    }

    /// Whether a run has that place. It is not asked for an earlier one again.
    fn has(&mut self, number: usize, place: Place) -> Result<bool, StoreError> {
        let (run, entries) = &mut self.others[number];
        let wanted = place.to_bytes();
        for step in 0.. {
            let key = match entries.peek() {
                None => return Ok(false),
                Some(Ok(listed)) => listed.place.to_bytes(),
                Some(Err(_)) => return entries.next().map_or(Ok(false), |failed| failed.map(|_| false)),
            };
            let is_before = if self.descending { key > wanted } else { key < wanted };
            match is_before {
                false => return Ok(key == wanted),
                true if step == STEPS_MAX => {
                    *entries = run.at(place, self.descending).entries(self.view, self.descending).peekable();
                }
                true => _ = entries.next(),
            }
        }
        Ok(false)
    }
}

impl Iterator for Common<'_> {
    type Item = Result<Listed, StoreError>;

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

/// What is to be collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// So many of those that are asked for are passed over.
    pub(super) skip: u64,
    /// So many are collected.
    pub(super) count: usize,
    /// For so long candidates are looked at.
    pub(super) time_max: Duration,
}

/// What a walk has come to.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) links: Vec<Arc<Link>>,
    /// How many of the candidates are asked for that were looked at.
    pub(super) matched: u64,
    /// Whether all candidates were looked at.
    pub(super) complete: bool,
    /// Behind what the next page begins, if there may be one.
    pub(super) next: Option<Behind>,
}

/// Looks at candidates until the page is full and the rest is counted, or the bound is reached. `sift` says of each whether
/// it is asked for, and gives the link if it is wanted.
///
/// # Errors
/// Where candidates or links cannot be read.
pub(super) fn walk<T>(
    candidates: impl Iterator<Item = Result<T, StoreError>>,
    wanted: Wanted,
    behind: impl Fn(&T) -> Behind,
    mut sift: impl FnMut(&T, bool) -> Result<Sifted, StoreError>,
) -> Result<Walked, StoreError> {
    let start = Instant::now();
    let mut walked = Walked { links: Vec::new(), matched: 0, complete: true, next: None };
    let mut last = None;
    for (looked, candidate) in (0..).zip(candidates) {
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
        let is_asked_for = match sift(&candidate, is_wanted)? {
            Sifted::Other => false,
            Sifted::One => true,
            Sifted::Link(link) => {
                walked.links.push(link);
                true
            }
        };
        walked.matched += u64::from(is_asked_for);
        if !is_full {
            last = Some(behind(&candidate));
        } else if is_asked_for && walked.next.is_none() {
            walked.next = last;
        }
    }
    Ok(walked)
}
