//! The links among which those are that a search is for, as far as their sections tell: all others are passed over unread.

use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use super::Catalog;
use super::ngram_filters::{Range, Step};
use super::part::Part;
use super::section::{Needle, Readable, ToRead};
use super::walk::{Entries, Listed, Run};
use carom_model::query::{Filter, Place};
use carom_store::links::catalog::{Marks, Shelf, View, place_of};

/// Places that are looked at, and whether a link there may be searched for; or all in a range, where texts cannot be read.
type Found = Result<Vec<Listed>, Range>;

/// A search for a term.
#[derive(Debug)]
pub(super) struct Passing<'c> {
    catalog: &'c Catalog,
    needle: Needle,
    terms: Vec<Finder<'static>>,
    /// The section that was asked for last, and whether it may have what is searched for.
    known: Option<(Range, bool)>,
}

impl<'c> Passing<'c> {
    /// `None` where every link has to be read.
    pub(super) fn of(catalog: &'c Catalog, filter: &Filter) -> Option<Passing<'c>> {
        filter.term.as_ref()?;
        let terms = || filter.term.iter().chain(&filter.url_terms);
        Some(Passing {
            catalog,
            needle: Needle::of(terms().map(String::as_str)),
            terms: terms().map(|term| Finder::new(term).into_owned()).collect(),
            known: None,
        })
    }

    /// Those of the entries of a run by date that have to be looked at, and one behind the last of each section that was read, so that
    /// whoever goes on from there does not read it again.
    pub(super) fn entries<'v>(&self, run: &Run, view: &'v View, descending: bool) -> Entries<'v>
    where
        'c: 'v,
    {
        let run = run.clone();
        let found = self.found((run.from.clone(), run.to.clone()), descending);
        Box::new(found.flat_map(move |found| -> Entries<'v> {
            match found {
                Ok(listed) => Box::new(listed.into_iter().map(Ok)),
                Err((from, to)) => Run { from, to, ..run.clone() }.entries(view, descending),
            }
        }))
    }

    /// Whether no more than so many links of a run by date have to be looked at, if that can be said within a time.
    pub(super) fn are_few(&self, run: &Run, most: usize, time_max: Duration) -> bool {
        let start = Instant::now();
        assert_eq!(run.shelf, Shelf::Dates, "sections are of the index by date");
        let mut found = self.found((run.from.clone(), run.to.clone()), false);
        let sum = found.try_fold(0, |sum, found| {
            let sum = sum + found.ok()?.len();
            (sum <= most && start.elapsed() < time_max).then_some(sum)
        });
        sum.is_some()
    }

    /// Whether the link at a place may be searched for. Who goes from neighbour to neighbour is answered quickly.
    pub(super) fn may_have(&mut self, place: &Place) -> bool {
        let key = place.to_bytes();
        match &self.known {
            Some(((from, to), may_have)) if key >= *from && (to.is_empty() || key < *to) => *may_have,
            _ => {
                let known = self.catalog.signatures().section_at(&self.needle, &key);
                self.known.insert(known).1
            }
        }
    }

    /// What there is in a range, section by section in that direction. Each is looked for when it is asked for.
    fn found(&self, range: Range, descending: bool) -> impl Iterator<Item = Found> + use<'c> {
        let (catalog, needle, terms) = (self.catalog, self.needle.clone(), self.terms.clone());
        let (mut rest, mut part) = (Some(range), Part::default());
        std::iter::from_fn(move || {
            loop {
                let step = catalog.signatures().step(&needle, rest.as_ref()?, descending);
                let (range, to_read) = match step {
                    Step::End => return None,
                    Step::On(reached) => {
                        rest = rest.take().and_then(|rest| behind(rest, reached, descending));
                        continue;
                    }
                    Step::Read(range, to_read) => (range, to_read),
                };
                let reached = if descending { range.0.clone() } else { range.1.clone() };
                rest = rest.take().and_then(|rest| behind(rest, reached, descending));
                let Some(to_read) = to_read else { return Some(Err(range)) };
                let found = look_through(&to_read, &terms, &range, &mut part, descending);
                if let (None, Readable::Stored(extent)) = (&found, &to_read.texts) {
                    catalog.forget_texts(&range.0, extent);
                }
                return Some(found.ok_or(range));
            }
        })
    }
}

/// The links of a range that have one of the terms, and one that has not behind them all. `None` if the texts cannot be read; `part` is
/// room for them.
fn look_through(
    to_read: &ToRead,
    terms: &[Finder<'_>],
    range: &Range,
    part: &mut Part,
    descending: bool,
) -> Option<Vec<Listed>> {
    let chunks: Vec<&Part> = match &to_read.texts {
        Readable::Memory(chunks) => chunks.iter().map(|chunk| &**chunk).collect(),
        Readable::Stored(extent) => {
            // What the disk does not give is read from the store, and that says what is wrong with it.
            extent.read(part).ok()?;
            vec![&*part]
        }
    };
    let is_within = |key: &&[u8]| **key >= *range.0 && (range.1.is_empty() || **key < *range.1);
    let found = terms.iter().flat_map(|term| chunks.iter().flat_map(|chunk| chunk.keys_with(term)));
    let late = to_read.late.iter().map(|key| &**key);
    let mut keys: Vec<&[u8]> = found.chain(late).filter(is_within).collect();
    keys.sort_unstable();
    keys.dedup();
    if descending {
        keys.reverse();
    }
    let listed = |key: &[u8], has_all| place_of(key, 0).map(|place| Listed { place, marks: Marks::default(), has_all });
    let end = if descending { &to_read.first } else { &to_read.last };
    let end = Some(&**end).filter(is_within).and_then(|key| listed(key, false));
    Some(keys.into_iter().filter_map(|key| listed(key, true)).chain(end).collect())
}

/// What is left of a range when its part up to a key was passed; `None` if nothing is.
fn behind((from, to): Range, reached: Vec<u8>, descending: bool) -> Option<Range> {
    match descending {
        true => (reached > from).then_some((from, reached)),
        false => (!reached.is_empty()).then_some((reached, to)),
    }
}
