//! Goes through candidates one by one, up to a bound, and collects a page of those that are asked for.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sift::Sifted;
use crate::limits::{LIST_COUNTED_MAX, LIST_LOOKED_MAX};
use crate::link::Link;
use crate::listing::{Behind, Filter, Place, ms_bytes};
use crate::store::links::catalog::{Shelf, View, place_of, tag_key};
use crate::store::links::{StoreError, Value};

/// How many candidates are looked at between two looks at the clock.
const LOOKS_PER_CLOCK: u64 = 64;

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
    pub(super) fn behind(mut self, place: Place, descending: bool) -> Run {
        let mut key = self.from[..self.tag_len].to_vec();
        key.extend_from_slice(&place.to_bytes());
        if descending {
            if self.to.is_empty() || key < self.to {
                self.to = key;
            }
        } else {
            key.push(0);
            self.from = key.max(self.from);
        }
        self
    }

    /// Its entries.
    pub(super) fn entries(&self, view: &View, descending: bool) -> Entries {
        let keys = view.keys(self.shelf, &self.from, &self.to);
        let keys: Box<dyn Iterator<Item = Result<Value, StoreError>>> =
            if descending { Box::new(keys.rev()) } else { Box::new(keys) };
        Entries { keys, tag_len: self.tag_len }
    }
}

/// The places of a run.
pub(super) struct Entries {
    keys: Box<dyn Iterator<Item = Result<Value, StoreError>>>,
    tag_len: usize,
}

impl Iterator for Entries {
    type Item = Result<Place, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let place = self.keys.next()?.map(|key| place_of(&key, self.tag_len));
            // What is no place was not written by this program.
            if let Some(place) = place.transpose() {
                return Some(place);
            }
        }
    }
}

/// The places of several runs, each once, in the order of all.
pub(super) struct Merged {
    runs: Vec<Peekable<Entries>>,
    descending: bool,
}

impl Merged {
    pub(super) fn of(runs: &[Run], view: &View, descending: bool) -> Merged {
        Merged { runs: runs.iter().map(|run| run.entries(view, descending).peekable()).collect(), descending }
    }
}

impl Iterator for Merged {
    type Item = Result<Place, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut first: Option<(Vec<u8>, usize)> = None;
        for (number, run) in self.runs.iter_mut().enumerate() {
            match run.peek() {
                None => {}
                Some(Err(_)) => return run.next(),
                Some(Ok(place)) => {
                    let key = place.to_bytes();
                    let comes_before = |first: &Vec<u8>| if self.descending { key > *first } else { key < *first };
                    if first.as_ref().is_none_or(|(first, _)| comes_before(first)) {
                        first = Some((key, number));
                    }
                }
            }
        }
        let next = self.runs[first?.1].next()?;
        if let Ok(place) = &next {
            for run in &mut self.runs {
                run.next_if(|other| other.as_ref().is_ok_and(|other| other == place));
            }
        }
        Some(next)
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
