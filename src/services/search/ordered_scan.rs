//! Pages of long lists in an order that no index has: by destination, title or visits.
//!
//! A scan of the matching links ([`super::link_scan`]) keeps the first ones behind the cursor, no more than a page needs. So
//! each page costs a scan, whose time is bounded. A cursor has the sort key of the last link of its page, so the next page
//! begins there even if links were created or deleted meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::bounded_scan::FilterResult;
use super::filter::LinkFilter;
use super::link_scan::{LinkSink, ScanStep, number_of};
use super::list::Finder;
use crate::bridge::LinksAnswer;
use crate::services::threads::priority::PacedLoop;
use carom_limits::LIST_SORTED_MAX;
use carom_model::query::{Behind, Cursor, LinkPosition, ListPage, SORT_KEY_LEN_MAX};
use carom_store::links::StoreError;

/// Most links that a scan keeps: pages that begin later need a cursor, or a list that is sorted in the background.
const KEPT_MAX: usize = 2 * LIST_SORTED_MAX;

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
    start: Instant,
    time_max: Duration,
}

impl FirstLinks {
    /// True if a place comes before another one in the order.
    fn is_before(&self, one: (&[u8], &[u8]), other: &Ranked) -> bool {
        let other = (&*other.0, &other.1[..]);
        if self.descending { one > other } else { one < other }
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

impl LinkSink for FirstLinks {
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

    fn look(&mut self, _: u64) -> ScanStep {
        if self.start.elapsed() < self.time_max { ScanStep::Continue } else { ScanStep::Stop }
    }
}

impl Finder<'_> {
    /// Returns a page of a long list, in an order without an index; `None` if the time is over before all links were read, or
    /// if the page begins too late.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn scanned(&self) -> Result<Option<LinksAnswer>, StoreError> {
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
            return Ok(None);
        };
        let count = offset + query.per_page + 1;
        let descending = query.order.descending;
        let (start, time_max) = (Instant::now(), self.order_time_max);
        let kept = BTreeSet::new();
        let mut first = FirstLinks { kept, count, descending, behind, offered: 0, passed: 0, start, time_max };
        if !self.scan(&mut first)? {
            self.catalog.sorted_lists.note_slow(query, Instant::now());
            return Ok(None);
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
        Ok(Some(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next, sorted_ms: None })))
    }

    /// Returns a page of the list by descending visits, from a ranking of the most visited links of all. The page is what a
    /// scan would find, except for links that the ranking lacks. `total` is the length of the list, if it is known. `None` if
    /// the page is beyond the ranking.
    pub(super) fn first_of_all(&self, codes: &[Code], total: Option<u64>) -> Result<Option<LinksAnswer>, StoreError> {
        let (query, (offset, page)) = (self.query, self.sorted_offset());
        let (view, ()) = self.catalog.view_with_counts(|_| ());
        let mut filter = LinkFilter::new(&query.filter, self.visits, self.now_ms);
        let (mut ranked, mut paced) = (Vec::with_capacity(codes.len()), PacedLoop::default());
        let mut least = u64::MAX;
        for (code, counts) in codes.iter().zip(self.readable_counts(codes)?) {
            paced.step();
            let number = number_of(query.order.field, counts);
            least = least.min(number);
            // A link may have been deleted since it was ranked. The reader of links reports a damaged record.
            let Some(stored) = view.get(code).ok().flatten() else { continue };
            if let FilterResult::Link(link) = filter.check_record(*code, &stored, true, None) {
                let place = LinkPosition::new(link.created_ms, *code);
                ranked.push((number, place, link));
            }
        }
        ranked.sort_by_cached_key(|(number, place, _)| Reverse((*number, place.to_bytes())));
        // Other links may have as few visits as the last ones, and come before some of them.
        ranked.retain(|(number, ..)| *number > least);
        let (from, found) = (usize::try_from(offset).unwrap_or(usize::MAX), ranked.len() as u64);
        let to = from.saturating_add(query.per_page);
        let Some((number, place, _)) = to.checked_sub(1).and_then(|last| ranked.get(last)) else { return Ok(None) };
        // The scan, or the sorted list, continues behind the last link of the ranking, whatever the number of links before it is
        // by then.
        let is_last = to.saturating_add(query.per_page) > ranked.len();
        let behind = if is_last { Behind::Key(number.to_be_bytes().into(), *place) } else { Behind::Count(to as u64) };
        let next = Some(Cursor { behind, page: page.saturating_add(1), seen: to as u64 });
        let links = ranked.drain(from..to).map(|(.., link)| link).collect();
        let (total, complete) = (total.unwrap_or(found), total.is_some());
        Ok(Some(Ok(ListPage { links, visits: Vec::new(), page, total, complete, next, sorted_ms: None })))
    }
}
