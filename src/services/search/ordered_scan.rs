//! Pages of long lists in an order that no index has: by destination, title or visits.
//!
//! A scan reads all links in the order of the store, or the few that an index names, and keeps the first ones behind the
//! cursor, no more than a page needs. So each page costs a scan, whose time is bounded. A cursor has the sort key of the
//! last link of its page, so the next page begins there even if links were created or deleted meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Instant;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::bounded_scan::{FilterResult, IndexRun, ListedCode, candidates};
use super::catalog::Tallies;
use super::filter::LinkFilter;
use super::list::{Finder, len_max, runs};
use crate::bridge::LinksAnswer;
use crate::services::threads::priority::PacedLoop;
use carom_limits::LIST_SORTED_MAX;
use carom_model::link::record::{self, LinkRef, RecordRef};
use carom_model::query::{Behind, Cursor, Filter, LinkPosition, ListFailure, ListPage, OrderField, SORT_KEY_LEN_MAX};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::catalog::View;
use carom_store::links::{StoreError, Value};

/// Number of links between two looks at the clock.
const LOOKS_PER_CLOCK: usize = 64;

/// Number of links whose visits are read at once.
const COUNTED_AT_ONCE: usize = 256;

/// Most links that a scan keeps: pages that begin later need a cursor.
const KEPT_MAX: usize = 2 * LIST_SORTED_MAX;

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

    /// Iterates over the records of the links. Has a `None` for each entry without one, so that the caller sees how much was
    /// read.
    fn records<'v>(&self, view: &'v View, filter: &Filter) -> Box<dyn Iterator<Item = ScannedRecord> + 'v> {
        match self {
            // The reader of links reports a key that is no valid code.
            ScanSource::Store => Box::new(view.records(&[], &[]).map(|record| -> ScannedRecord {
                let (key, value) = record?;
                Ok(Code::from_key(&key).ok().map(|code| (code, value, None)))
            })),
            ScanSource::Runs(runs) => {
                let listed = candidates(filter, runs, view, false);
                Box::new(listed.map(|listed| -> ScannedRecord { listed_record(view, &listed?) }))
            }
        }
    }
}

/// A link's code, its record, and its place in an index if it was found there; `None` if there is no record; or why it cannot
/// be read.
type ScannedRecord = Result<Option<(Code, Value, Option<LinkPosition>)>, StoreError>;

/// Returns the record of an index entry; `None` if it has none, or not all tags.
fn listed_record(view: &View, listed: &ListedCode) -> ScannedRecord {
    if !listed.has_all {
        return Ok(None);
    }
    let place = listed.place;
    match view.get(&place.code) {
        Ok(stored) => Ok(stored.map(|value| (place.code, value, Some(place)))),
        // The reader of links reports it.
        Err(StoreError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A place in the order: the sort key, and the place by age, which orders links with equal keys.
type Ranked = (Box<[u8]>, Vec<u8>);

/// The first links behind a place, in an order.
struct FirstLinks {
    kept: BTreeSet<Ranked>,
    /// Number of links to keep.
    count: usize,
    descending: bool,
    behind: Option<Ranked>,
    /// Number of links that were offered, and of those before or at `behind`.
    offered: u64,
    passed: u64,
}

impl FirstLinks {
    /// True if a place comes before another one in the order.
    fn is_before(&self, one: (&[u8], &[u8]), other: &Ranked) -> bool {
        let other = (&*other.0, &other.1[..]);
        if self.descending { one > other } else { one < other }
    }

    /// Offers a link by its sort key and its place by age.
    fn offer(&mut self, key: &[u8], place: LinkPosition) {
        let key = &key[..key.len().min(SORT_KEY_LEN_MAX)];
        let place = place.to_bytes();
        self.offered += 1;
        if let Some(behind) = &self.behind
            && (self.is_before((key, &place[..]), behind) || (key, &place[..]) == (&*behind.0, &behind.1[..]))
        {
            self.passed += 1;
            return;
        }
        let last = if self.descending { self.kept.first() } else { self.kept.last() };
        if self.kept.len() >= self.count && last.is_some_and(|last| !self.is_before((key, &place[..]), last)) {
            return;
        }
        self.kept.insert((key.into(), place));
        if self.kept.len() > self.count {
            _ = if self.descending { self.kept.pop_first() } else { self.kept.pop_last() };
        }
        debug_assert!(self.kept.len() <= self.count, "a scan keeps more links than its page needs");
    }

    /// Returns the kept links in the order.
    fn into_ranked(self) -> Vec<Ranked> {
        let mut ranked: Vec<Ranked> = self.kept.into_iter().collect();
        if self.descending {
            ranked.reverse();
        }
        ranked
    }
}

impl Finder<'_> {
    /// Returns a page of a list of any length, in the order of destinations, titles or visits.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn scanned(&self) -> Result<LinksAnswer, StoreError> {
        let query = self.query;
        let (behind, offset, page) = match &query.cursor {
            Some(Cursor { behind: Behind::Key(key, place), page, .. }) => {
                (Some((key.clone(), place.to_bytes())), 0, *page)
            }
            // The list was short enough to sort when the cursor was made.
            Some(Cursor { behind: Behind::Count(count), page, .. }) => (None, *count, *page),
            _ => (None, (query.page - 1).saturating_mul(query.per_page as u64), query.page),
        };
        let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset <= KEPT_MAX - query.per_page) else {
            return Ok(Err(ListFailure::TooDeep));
        };
        let count = offset + query.per_page + 1;
        let descending = query.order.descending;
        let mut first = FirstLinks { kept: BTreeSet::new(), count, descending, behind, offered: 0, passed: 0 };
        if !self.scan(&mut first)? {
            return Ok(Err(ListFailure::TooManyToSort));
        }
        let (total, passed) = (first.offered, first.passed);
        let mut ranked = first.into_ranked();
        let has_more = ranked.len() == count;
        ranked.truncate(offset + query.per_page);
        let shown = ranked.get(offset..).unwrap_or_default();
        let (view, ()) = self.catalog.view_with_counts(|_| ());
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let mut links = Vec::with_capacity(shown.len());
        for (_, place) in shown {
            let Some(place) = LinkPosition::from_bytes(place) else { continue };
            // A link may have been deleted since the scan.
            if let FilterResult::Link(link) = filter.check_place(&view, place, true)? {
                links.push(link);
            }
        }
        let seen = passed.saturating_add((offset + shown.len()) as u64);
        let last = shown.last().filter(|_| has_more);
        let next = last.and_then(|(key, place)| {
            let behind = Behind::Key(key.clone(), LinkPosition::from_bytes(place)?);
            Some(Cursor { behind, page: page.saturating_add(1), seen })
        });
        Ok(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next }))
    }

    /// Returns a page of the list of all `total` links by descending visits, from a ranking of the most visited ones. The page
    /// is what a scan would find, except for links that the ranking lacks. `None` if the page is beyond the ranking.
    pub(super) fn first_of_all(&self, codes: &[Code], total: u64) -> Result<Option<LinksAnswer>, StoreError> {
        let (query, (offset, page)) = (self.query, self.sorted_offset());
        let (view, ()) = self.catalog.view_with_counts(|_| ());
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let (mut ranked, mut paced) = (Vec::with_capacity(codes.len()), PacedLoop::default());
        for (code, counts) in codes.iter().zip(self.readable_counts(codes)?) {
            paced.step();
            // A link may have been deleted since it was ranked. The reader of links reports a damaged record.
            let Some(stored) = view.get(code).ok().flatten() else { continue };
            if let FilterResult::Link(link) = filter.check_record(*code, &stored, true, None) {
                let place = LinkPosition::new(link.created_ms, *code);
                ranked.push((number_of(query.order.field, counts), place, link));
            }
        }
        ranked.sort_by_cached_key(|(number, place, _)| Reverse((*number, place.to_bytes())));
        // Other links may have as few visits as the last ones, and come before some of them.
        let least = ranked.last().map_or(0, |(number, ..)| *number);
        ranked.retain(|(number, ..)| *number > least);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let to = from.saturating_add(query.per_page);
        let Some((number, place, _)) = to.checked_sub(1).and_then(|last| ranked.get(last)) else { return Ok(None) };
        // The scan continues behind the last link of the ranking, whatever the number of links before it is by then.
        let is_last = to.saturating_add(query.per_page) > ranked.len();
        let behind = if is_last { Behind::Key(number.to_be_bytes().into(), *place) } else { Behind::Count(to as u64) };
        let next = Some(Cursor { behind, page: page.saturating_add(1), seen: to as u64 });
        let links = ranked.drain(from..to).map(|(.., link)| link).collect();
        Ok(Some(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next })))
    }

    /// Returns about how many links a scan reads, as a number of those in the order of the store; `None` while nobody
    /// has counted them.
    pub(super) fn scan_len(&self) -> Option<u64> {
        self.catalog.view_with_counts(|counts| ScanSource::of(&self.query.filter, counts).1).1
    }

    /// Offers all matching links. Returns false if the time is over before all links were read.
    fn scan(&self, first: &mut FirstLinks) -> Result<bool, StoreError> {
        let query = self.query;
        let start = Instant::now();
        let (view, (source, _)) = self.catalog.view_with_counts(|counts| ScanSource::of(&query.filter, counts));
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let (mut small, mut ascii) = (String::new(), [0; CODE_KEY_LEN_MAX]);
        let (mut uncounted, mut paced): (Vec<LinkPosition>, _) = (Vec::new(), PacedLoop::default());
        for (looked, record) in source.records(&view, &query.filter).enumerate() {
            paced.step();
            if looked % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1 && start.elapsed() >= self.order_time_max {
                return Ok(false);
            }
            let Some((code, value, listed)) = record? else { continue };
            // The reader of links reports a damaged record.
            let Ok(RecordRef::Link(link)) = record::decode(code.key(&mut ascii), &value) else { continue };
            let place = LinkPosition::new(link.created_ms, code);
            // An index entry may have outlived its link.
            if listed.is_some_and(|listed| listed != place) || !filter.takes(&code, &link) {
                continue;
            }
            match text_of(query.order.field, &link, &mut small) {
                Some(text) => first.offer(text, place),
                None => uncounted.push(place),
            }
            if uncounted.len() == COUNTED_AT_ONCE {
                self.offer_counted(&mut uncounted, first)?;
            }
        }
        self.offer_counted(&mut uncounted, first)?;
        Ok(true)
    }

    /// Returns the visits of links. Those that are damaged count as none, so that pages without such links are found.
    fn readable_counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
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
    fn offer_counted(&self, links: &mut Vec<LinkPosition>, first: &mut FirstLinks) -> Result<(), StoreError> {
        let codes: Vec<Code> = links.iter().map(|place| place.code).collect();
        for (place, counts) in links.drain(..).zip(self.readable_counts(&codes)?) {
            first.offer(&number_of(self.query.order.field, counts).to_be_bytes(), place);
        }
        Ok(())
    }
}

/// Returns the text by which an order sorts a link; `None` for an order by visits. `small` is a buffer.
fn text_of<'t>(field: OrderField, link: &LinkRef<'t>, small: &'t mut String) -> Option<&'t [u8]> {
    match field {
        OrderField::LongUrl => Some(link.target.as_bytes()),
        OrderField::Title => {
            small.clear();
            small.extend(link.title.unwrap_or_default().chars().flat_map(char::to_lowercase));
            Some(small.as_bytes())
        }
        OrderField::DateCreated | OrderField::ShortCode | OrderField::Visits | OrderField::NonBotVisits => None,
    }
}

/// Returns the number by which an order by visits sorts a link.
fn number_of(field: OrderField, counts: VisitCounts) -> u64 {
    match field {
        OrderField::Visits => counts.total,
        OrderField::NonBotVisits => counts.total.saturating_sub(counts.bots),
        // No order by visits: an index has the order of the first two, and [`text_of`] sorts by the others.
        OrderField::DateCreated | OrderField::ShortCode | OrderField::LongUrl | OrderField::Title => counts.total,
    }
}
