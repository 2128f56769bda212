//! Scans all matching links, for orders that no index has.
//!
//! A scan reads all links in the order of the store, or the few that an index names, and offers those that match to a
//! [`LinkSink`], each with its sort key.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::bounded_scan::{IndexRun, ListedCode, candidates};
use super::catalog::Tallies;
use super::filter::LinkFilter;
use super::list::{Finder, len_max, runs};
use crate::services::threads::priority::PacedLoop;
use carom_model::link::record::{self, LinkRef, RecordRef};
use carom_model::query::{Filter, LinkPosition, OrderField};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::catalog::View;
use carom_store::links::{StoreError, Value};

/// Number of links between two calls of [`LinkSink::look`].
const LINKS_PER_LOOK: u64 = 64;

/// Number of links whose visits are read at once.
const COUNTED_AT_ONCE: usize = 256;

/// A random read of a link takes about as long as this many in the order of the store.
const READS_PER_LISTED: u64 = if cfg!(test) { 1 } else { 10 };

/// The links that a scan reads.
enum ScanSource {
    /// All links, in the order of the store.
    Store,
    /// The entries of an index that together have all matching links.
    Runs(Vec<IndexRun>),
}

impl ScanSource {
    /// Returns the source that takes less time, and the time, as a number of links that are read in the order of the
    /// store; `None` while nobody has counted the links.
    fn of(filter: &Filter, counts: &Tallies) -> (ScanSource, Option<u64>) {
        let all = counts.dates.whole().map(|fences| fences.total());
        let runs = runs(filter, counts);
        let listed = len_max(filter, counts, &runs).map(|len| len.saturating_mul(READS_PER_LISTED));
        match (listed, all) {
            (Some(listed), Some(all)) if listed < all => (ScanSource::Runs(runs), Some(listed)),
            _ => (ScanSource::Store, all),
        }
    }

    /// Iterates over the records of the links behind one of them. Also has the entries without a record, so that the caller sees
    /// how much was read.
    fn records<'v>(
        &self,
        view: &'v View,
        filter: &Filter,
        behind: Option<(Code, Option<LinkPosition>)>,
    ) -> Box<dyn Iterator<Item = ScannedRecord> + 'v> {
        match self {
            ScanSource::Store => {
                let just_behind = |(code, _): (Code, _)| [code.key(&mut [0; CODE_KEY_LEN_MAX]), &[0]].concat();
                let from = behind.map_or(Vec::new(), just_behind);
                // The reader of links reports a key that is no valid code.
                Box::new(view.records(&from, &[]).map(|record| -> ScannedRecord {
                    let (key, value) = record?;
                    Ok(Code::from_key(&key).ok().map(|code| (code, Some(value), None)))
                }))
            }
            ScanSource::Runs(runs) => {
                let place = behind.and_then(|(_, place)| place);
                let rest = |run: &IndexRun| place.map_or(run.clone(), |place| run.clone().behind(place, false));
                let runs: Vec<IndexRun> = runs.iter().map(rest).collect();
                let listed = candidates(filter, &runs, view, false);
                Box::new(listed.map(|listed| -> ScannedRecord { listed_record(view, &listed?) }))
            }
        }
    }
}

/// A link's code, its record if it has one, and its place in an index if it was found there; `None` for a key that is no valid
/// code; or why it cannot be read.
type ScannedRecord = Result<Option<(Code, Option<Value>, Option<LinkPosition>)>, StoreError>;

/// Returns an index entry with its record, unless it lacks a tag.
fn listed_record(view: &View, listed: &ListedCode) -> ScannedRecord {
    let place = listed.place;
    let stored = if listed.has_all { view.get(&place.code) } else { Ok(None) };
    match stored {
        Ok(stored) => Ok(Some((place.code, stored, Some(place)))),
        // The reader of links reports it.
        Err(StoreError::Damaged(_)) => Ok(Some((place.code, None, Some(place)))),
        Err(error) => Err(error),
    }
}

/// A receiver of the links that a scan finds.
pub(super) trait LinkSink {
    /// Takes a link by its sort key and its place by age.
    fn offer(&mut self, key: &[u8], place: LinkPosition);

    /// Says how the scan continues, after `links` more links.
    fn look(&mut self, links: u64) -> ScanStep;
}

/// The continuation of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanStep {
    /// With the next link.
    Continue,
    /// With the next link, from a new snapshot of the store.
    Renew,
    /// Not at all.
    Stop,
}

/// The end of a scan of one snapshot.
enum ScanEnd {
    /// All links were read.
    Whole,
    /// The sink has stopped the scan.
    Stopped,
    /// The scan continues behind this link, from a new snapshot.
    Behind(Code, Option<LinkPosition>),
}

impl Finder<'_> {
    /// Returns about how many links a scan reads, as a number of those in the order of the store; `None` while nobody
    /// has counted them.
    pub(super) fn scan_len(&self) -> Option<u64> {
        self.catalog.view_with_counts(|counts| ScanSource::of(&self.query.filter, counts).1).1
    }

    /// Returns about how many links a scan reads; `None` while nobody has counted them.
    pub(super) fn scanned_links(&self) -> Option<u64> {
        self.catalog
            .view_with_counts(|counts| match ScanSource::of(&self.query.filter, counts) {
                (ScanSource::Store, len) => len,
                (ScanSource::Runs(_), len) => len.map(|len| len / READS_PER_LISTED),
            })
            .1
    }

    /// Offers all matching links. Returns false if the sink has stopped the scan.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn scan(&self, sink: &mut impl LinkSink) -> Result<bool, StoreError> {
        let (mut view, (source, _)) =
            self.catalog.view_with_counts(|counts| ScanSource::of(&self.query.filter, counts));
        let mut behind = None;
        loop {
            match self.scan_view(&view, &source, behind, sink)? {
                ScanEnd::Whole => return Ok(true),
                ScanEnd::Stopped => return Ok(false),
                ScanEnd::Behind(code, place) => behind = Some((code, place)),
            }
            // The old snapshot is to end first: the store keeps replaced data for it.
            drop(view);
            view = self.catalog.view_with_counts(|_| ()).0;
        }
    }

    /// Offers the matching links of a snapshot behind a link.
    fn scan_view(
        &self,
        view: &View,
        source: &ScanSource,
        behind: Option<(Code, Option<LinkPosition>)>,
        sink: &mut impl LinkSink,
    ) -> Result<ScanEnd, StoreError> {
        let query = self.query;
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let (mut small, mut ascii) = (String::new(), [0; CODE_KEY_LEN_MAX]);
        let (mut uncounted, mut paced): (Vec<LinkPosition>, _) = (Vec::new(), PacedLoop::default());
        let mut is_due = false;
        for (looked, record) in (1_u64..).zip(source.records(view, &query.filter, behind)) {
            paced.step();
            let is_look = looked.is_multiple_of(LINKS_PER_LOOK);
            let step = if is_look { sink.look(LINKS_PER_LOOK) } else { ScanStep::Continue };
            match step {
                ScanStep::Continue => {}
                ScanStep::Renew => is_due = true,
                ScanStep::Stop => return Ok(ScanEnd::Stopped),
            }
            let Some((code, value, listed)) = record? else { continue };
            let key = code.key(&mut ascii);
            // The reader of links reports a damaged record. An index entry may have outlived its link.
            if let Some(value) = value
                && let Ok(RecordRef::Link(link)) = record::decode(key, &value)
                && let place = LinkPosition::new(link.created_ms, code)
                && listed.is_none_or(|listed| listed == place)
                && filter.takes(&code, &link)
            {
                match text_of(query.order.field, key, &link, &mut small) {
                    Some(text) => sink.offer(text, place),
                    None => uncounted.push(place),
                }
            }
            if uncounted.len() == COUNTED_AT_ONCE || is_due {
                self.offer_counted(&mut uncounted, sink)?;
            }
            if is_due {
                return Ok(ScanEnd::Behind(code, listed));
            }
        }
        self.offer_counted(&mut uncounted, sink)?;
        Ok(ScanEnd::Whole)
    }

    /// Returns the visits of links. Those that are damaged count as none, so that pages without such links are found.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn readable_counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        let counts = self.visits.counts(codes);
        if !matches!(counts, Err(StoreError::Damaged(_))) {
            return counts;
        }
        let count_one = |code: &Code| match self.visits.counts(std::slice::from_ref(code)) {
            Err(StoreError::Damaged(_)) => Ok(VisitCounts::default()),
            counts => counts.map(|counts| counts.first().copied().unwrap_or_default()),
        };
        codes.iter().map(count_one).collect()
    }

    /// Offers links by their visits.
    fn offer_counted(&self, links: &mut Vec<LinkPosition>, sink: &mut impl LinkSink) -> Result<(), StoreError> {
        let codes: Vec<Code> = links.iter().map(|place| place.code).collect();
        for (place, counts) in links.drain(..).zip(self.readable_counts(&codes)?) {
            sink.offer(&number_of(self.query.order.field, counts).to_be_bytes(), place);
        }
        Ok(())
    }
}

/// Returns the text by which an order sorts a link with a key in the store; `None` for an order by visits. `small` is a
/// buffer.
fn text_of<'t>(field: OrderField, key: &'t [u8], link: &LinkRef<'t>, small: &'t mut String) -> Option<&'t [u8]> {
    match field {
        OrderField::ShortCode => Some(key),
        OrderField::LongUrl => Some(link.target.as_bytes()),
        OrderField::Title => {
            small.clear();
            small.extend(link.title.unwrap_or_default().chars().flat_map(char::to_lowercase));
            Some(small.as_bytes())
        }
        OrderField::DateCreated | OrderField::Visits | OrderField::NonBotVisits => None,
    }
}

/// Returns the number by which an order by visits sorts a link.
pub(super) fn number_of(field: OrderField, counts: VisitCounts) -> u64 {
    match field {
        OrderField::Visits => counts.total,
        OrderField::NonBotVisits => counts.total.saturating_sub(counts.bots),
        // No order by visits: an index has the order of the first one, and [`text_of`] sorts by the others.
        OrderField::DateCreated | OrderField::ShortCode | OrderField::LongUrl | OrderField::Title => counts.total,
    }
}
