//! Search by sections: returns the candidates for a term and skips all other links unread, as far as the signatures of
//! their sections allow.

use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use super::bounded_scan::{EntryIter, IndexRun, ListedCode};
use super::catalog::Catalog;
use super::ngram_filters::Range;
use super::ngram_filters::skip::SkipStep;
use super::section::{Needle, Readable, ToRead};
use super::text_chunk::TextPart;
use crate::services::threads::priority::pause_if_due;
use carom_model::query::{Filter, LinkPosition};
use carom_store::links::catalog::{IndexKind, Marks, View, place_of};

/// The candidates in a section; or a range in which every link is a candidate, because its texts cannot be read.
type SectionCandidates = Result<Vec<ListedCode>, Range>;

/// A search for a term, with the state that lets it skip sections.
#[derive(Debug)]
pub(super) struct CandidateScan<'c> {
    catalog: &'c Catalog,
    needle: Needle,
    terms: Vec<Finder<'static>>,
    /// The section that was looked up last, and whether it may have a match.
    known: Option<(Range, bool)>,
}

impl<'c> CandidateScan<'c> {
    /// Returns the search of a filter, or `None` if the filter has no term, so that every link must be read.
    pub(super) fn of(catalog: &'c Catalog, filter: &Filter) -> Option<CandidateScan<'c>> {
        filter.term.as_ref()?;
        let terms = || filter.term.iter().chain(&filter.url_terms);
        Some(CandidateScan {
            catalog,
            needle: Needle::of(terms().map(String::as_str)),
            terms: terms().map(|term| Finder::new(term).into_owned()).collect(),
            known: None,
        })
    }

    /// Returns the candidates among the entries of a run by date. After those of each section comes one that is no
    /// match: a later page that continues from it does not read the section again.
    pub(super) fn entries<'v>(&self, run: &IndexRun, view: &'v View, descending: bool) -> EntryIter<'v>
    where
        'c: 'v,
    {
        let run = run.clone();
        let found = self.found((run.from.clone(), run.to.clone()), descending);
        Box::new(found.flat_map(move |found| -> EntryIter<'v> {
            match found {
                Ok(listed) => Box::new(listed.into_iter().map(Ok)),
                Err((from, to)) => IndexRun { from, to, ..run.clone() }.entries(view, descending),
            }
        }))
    }

    /// True if a run by date has at most `most` candidates, and if that can be found out within `time_max`.
    pub(super) fn are_few(&self, run: &IndexRun, most: usize, time_max: Duration) -> bool {
        let start = Instant::now();
        assert_eq!(run.kind, IndexKind::Dates, "sections are of the index by date");
        let mut found = self.found((run.from.clone(), run.to.clone()), false);
        let sum = found.try_fold(0, |sum, found| {
            let sum = sum + found.ok()?.len();
            (sum <= most && start.elapsed() < time_max).then_some(sum)
        });
        sum.is_some()
    }

    /// True if the link at a place may match. Quick for places in ascending or descending order, because neighbours
    /// share a section.
    pub(super) fn may_have(&mut self, place: &LinkPosition) -> bool {
        let key = place.to_bytes();
        match &self.known {
            Some(((from, to), may_have)) if key >= *from && (to.is_empty() || key < *to) => *may_have,
            _ => {
                let known = self.catalog.signatures().section_at(&self.needle, &key);
                self.known.insert(known).1
            }
        }
    }

    /// Iterates lazily over the candidates of a range, section by section in the given direction.
    fn found(&self, range: Range, descending: bool) -> impl Iterator<Item = SectionCandidates> + use<'c> {
        let (catalog, needle, terms) = (self.catalog, self.needle.clone(), self.terms.clone());
        let (mut rest, mut part) = (Some(range), TextPart::default());
        std::iter::from_fn(move || {
            loop {
                let step = catalog.signatures().step(&needle, rest.as_ref()?, descending);
                let (range, to_read) = match step {
                    SkipStep::End => return None,
                    SkipStep::On(reached) => {
                        rest = rest.take().and_then(|rest| behind(rest, reached, descending));
                        continue;
                    }
                    SkipStep::Read(range, to_read) => (range, to_read),
                };
                let reached = if descending { range.0.clone() } else { range.1.clone() };
                rest = rest.take().and_then(|rest| behind(rest, reached, descending));
                let Some(to_read) = to_read else { return Some(Err(range)) };
                // A section has about a thousand links.
                pause_if_due();
                let found = look_through(&to_read, &terms, &range, &mut part, descending);
                if let (None, Readable::Stored(extent)) = (&found, &to_read.texts) {
                    catalog.forget_texts(&range.0, extent);
                }
                return Some(found.ok_or(range));
            }
        })
    }
}

/// Returns the links of a range that have one of the terms, and after them one that is no match, at the end of the
/// section. Returns `None` if the texts cannot be read. `part` is a buffer for them.
fn look_through(
    to_read: &ToRead,
    terms: &[Finder<'_>],
    range: &Range,
    part: &mut TextPart,
    descending: bool,
) -> Option<Vec<ListedCode>> {
    let chunks: Vec<&TextPart> = match &to_read.texts {
        Readable::Memory(chunks) => chunks.iter().map(|chunk| &**chunk).collect(),
        Readable::Stored(extent) => {
            // If the disk fails, the links are read from the store instead, which reports the error.
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
    let listed =
        |key: &[u8], has_all| place_of(key, 0).map(|place| ListedCode { place, marks: Marks::default(), has_all });
    let end = if descending { &to_read.first } else { &to_read.last };
    let end = Some(&**end).filter(is_within).and_then(|key| listed(key, false));
    Some(keys.into_iter().filter_map(|key| listed(key, true)).chain(end).collect())
}

/// Returns what is left of a range once the part up to `reached` is done; `None` if nothing is.
fn behind((from, to): Range, reached: Vec<u8>, descending: bool) -> Option<Range> {
    if descending {
        (reached > from).then_some((from, reached))
    } else {
        (!reached.is_empty()).then_some((reached, to))
    }
}
