//! Finds one page of a list of links.
//!
//! By age, links are sorted in the indexes. If the indexes alone decide which links match, counting finds any page
//! ([`super::counting`]); otherwise candidates are scanned up to a bound ([`super::bounded_scan`]). By code, links are sorted
//! in the store itself. For any other order, the matching links are sorted for each page if the list is short enough;
//! otherwise, a scan finds them ([`super::ordered_scan`]). A list that no scan finds in time is sorted in the background
//! ([`super::sorted_lists`]).

use std::sync::Arc;
use std::time::Duration;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::bounded_scan::{FilterResult, IndexRun, ScanDemand, ScanResult, candidates, union, walk};
use super::catalog::{Catalog, Tallies};
use super::filter::LinkFilter;
use super::ranked_page::{Around, count, counted_of};
use super::search_scan::CandidateScan;
use super::visits::VisitSource;
use crate::bridge::LinksAnswer;
use carom_limits::{LIST_LOOKED_MAX, LIST_SORTED_MAX};
use carom_model::link::Link;
use carom_model::query::{Behind, Cursor, Filter, LinkPosition, ListFailure, ListPage, ListQuery, OrderField};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::catalog::{IndexKind, View};
use carom_store::links::{StoreError, Value};

/// Largest number of candidates of a search that are sorted by code; with more of them, all links are scanned in the
/// order of their codes.
const CANDIDATES_SORTED_MAX: usize = 25_000;

/// Longest time spent on finding out whether a search has at most [`CANDIDATES_SORTED_MAX`] candidates.
const CANDIDATES_COUNT_TIME_MAX: Duration = Duration::from_millis(100);

/// The most links that are scanned for each page by descending visits: 0.2 to 0.4 s, because reading a link and its visits
/// takes 2 to 4 µs. The first pages of a longer list come from the ranking of the most visited links.
const SCANNED_FIRST_MAX: u64 = if cfg!(test) { 2_600 } else { 100_000 };

/// The most links of which a scan ends in [`carom_limits::LIST_ORDER_TIME_MAX`] also on a slow machine. A longer list is sorted
/// in the background.
const SCANNED_MAX: u64 = if cfg!(test) { 2_800 } else { 2_000_000 };

/// A query for one page, and the data to answer it from.
pub(super) struct Finder<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) visits: &'a dyn VisitSource,
    pub(super) query: &'a ListQuery,
    /// The current time, in milliseconds since 1970 UTC.
    pub(super) now_ms: u64,
    /// Longest time to scan links one by one.
    pub(super) time_max: Duration,
    /// Longest time to scan a list in an order without an index.
    pub(super) order_time_max: Duration,
}

/// Sort keys of links for orders that no index has.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Text(String),
    Bytes(Vec<u8>),
    Number(u64),
}

impl<'a> Finder<'a> {
    /// Returns a finder that scans links for at most `time_max`, in any order.
    pub(super) fn within(
        catalog: &'a Catalog,
        visits: &'a dyn VisitSource,
        query: &'a ListQuery,
        now_ms: u64,
        time_max: Duration,
    ) -> Finder<'a> {
        Finder { catalog, visits, query, now_ms, time_max, order_time_max: time_max }
    }
}

impl Finder<'_> {
    /// Finds the page.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn find(&self) -> Result<LinksAnswer, StoreError> {
        let mut answer = match self.query.order.field {
            OrderField::DateCreated => self.by_date(),
            OrderField::ShortCode => self.by_code(),
            _ => self.by_key(),
        }?;
        if let Ok(page) = &mut answer {
            page.visits = self.visits_of(&page.links)?;
        }
        Ok(answer)
    }

    fn visits_of(&self, links: &[Arc<Link>]) -> Result<Vec<VisitCounts>, StoreError> {
        let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
        self.visits.counts(&codes)
    }

    fn by_date(&self) -> Result<LinksAnswer, StoreError> {
        let (filter, descending) = (&self.query.filter, self.query.order.descending);
        let ask = |counts: &Tallies| {
            let runs = runs(filter, counts);
            let around = match (&runs[..], filter.needs_filtering()) {
                ([run], false) => {
                    counted_of(counts, run).map(|fences| Around::of(fences, run, self.offset(), descending))
                }
                _ => None,
            };
            (runs, around)
        };
        let (view, (mut runs, around)) = self.catalog.view_with_counts(ask);
        match around {
            Some(around) => self.counted(&view, &runs[0], &around),
            None => {
                if let Some(Cursor { behind: Behind::Place(place), .. }) = self.query.cursor {
                    runs = runs.into_iter().map(|run| run.behind(place, descending)).collect();
                }
                // Pages after a cursor come after the named links.
                let named = if self.query.cursor.is_none() { self.named(&view)? } else { Vec::new() };
                let mut walked = self.walk_by_age(&runs, &view, self.wanted_behind(named.len()), descending)?;
                walked.matched += named.len() as u64;
                let offset = usize::try_from(self.offset()).unwrap_or(usize::MAX);
                walked.links.splice(0..0, named.into_iter().skip(offset));
                Ok(self.page_of(walked, !filter.needs_filtering() && runs.len() == 1))
            }
        }
    }

    /// Scans the candidates of some runs in the order of their age.
    fn walk_by_age(
        &self,
        runs: &[IndexRun],
        view: &View,
        wanted: ScanDemand,
        descending: bool,
    ) -> Result<ScanResult, StoreError> {
        let (mut link_filter, mut scan) = (self.link_filter(), self.scan_by_sections());
        let filter = &self.query.filter;
        let of_domains = filter.term_index_keys();
        let (candidates, are_hits) = match (&scan, runs, &of_domains) {
            (Some(found), [run], Some(of_domains)) if run.kind == IndexKind::Dates => {
                let mut sequences = vec![found.entries(run, view, descending)];
                sequences.extend(of_domains.iter().map(|key| run.clone().with_tag(key).entries(view, descending)));
                // The signatures and the domains have already chosen these entries, so each of them must be read.
                scan = None;
                (union(sequences, descending), true)
            }
            _ => (candidates(filter, runs, view, descending), false),
        };
        walk(
            candidates,
            wanted,
            |listed| Behind::Place(listed.place),
            |listed, wanted| {
                // A named link is on the list already.
                let is_listed = self.names().contains(&listed.place.code);
                let is_of_domain = filter.has_term_in_domain(&listed.place.code);
                if is_listed || !is_of_domain && scan.as_mut().is_some_and(|scan| !scan.may_have(&listed.place)) {
                    return Ok(FilterResult::Other);
                }
                link_filter.check_entry(view, listed, wanted, is_of_domain && !are_hits)
            },
        )
    }

    /// Returns the filter that skips candidates by their signatures; `None` if signatures do not help with this search.
    fn scan_by_sections(&self) -> Option<CandidateScan<'_>> {
        let filter = &self.query.filter;
        // Named links that do not come first must turn up during the scan, so it may skip nothing.
        let meets_names = self.names().len() < filter.named.len();
        CandidateScan::of(self.catalog, filter).filter(|_| !meets_names)
    }

    /// Returns the named links that come first on the list. None do if they would fill a page.
    fn names(&self) -> &[Code] {
        let names = &self.query.filter.named[..];
        if names.len() < self.query.per_page { names } else { &[] }
    }

    /// Returns the named links that meet all other conditions.
    fn named(&self, view: &View) -> Result<Vec<Arc<Link>>, StoreError> {
        let mut link_filter = self.link_filter();
        let mut links = Vec::new();
        for code in self.names() {
            let Some(stored) = view.get(code)? else { continue };
            if let FilterResult::Link(link) = link_filter.check_record(*code, &stored, true, None) {
                links.push(link);
            }
        }
        Ok(links)
    }

    /// Returns what the scan must collect if `named` links come first, all of them on the first page.
    fn wanted_behind(&self, named: usize) -> ScanDemand {
        let wanted = self.wanted();
        let here = if wanted.skip == 0 { named } else { 0 };
        ScanDemand { skip: wanted.skip.saturating_sub(named as u64), count: wanted.count - here, ..wanted }
    }

    /// Returns a page of a run whose links all match.
    fn counted(&self, view: &View, run: &IndexRun, around: &Around) -> Result<LinksAnswer, StoreError> {
        let (query, descending) = (self.query, self.query.order.descending);
        let (before, before_end) = around.ranks(view, run)?;
        let total = before_end.saturating_sub(before);
        let (offset, page) = query.cursor.as_ref().map_or((self.offset(), query.page), |it| (it.seen, it.page));
        let places: Box<dyn Iterator<Item = Result<LinkPosition, StoreError>>> = match &query.cursor {
            Some(Cursor { behind: Behind::Place(place), .. }) => {
                Box::new(run.clone().behind(*place, descending).places(view, descending))
            }
            _ if offset >= total => Box::new(std::iter::empty()),
            _ => Box::new(around.places(view, run, (before, before_end), offset, descending)),
        };
        let places: Vec<LinkPosition> = places.take(query.per_page + 1).collect::<Result<_, _>>()?;
        let shown = &places[..places.len().min(query.per_page)];
        let next = shown.last().filter(|_| places.len() > shown.len()).map(|last| Cursor {
            behind: Behind::Place(*last),
            page: page.saturating_add(1),
            seen: offset.saturating_add(shown.len() as u64),
        });
        let mut link_filter = self.link_filter();
        let mut links = Vec::with_capacity(shown.len());
        for place in shown {
            if let FilterResult::Link(link) = link_filter.check_place(view, *place, true)? {
                links.push(link);
            }
        }
        Ok(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next, sorted_ms: None }))
    }

    fn by_code(&self) -> Result<LinksAnswer, StoreError> {
        let (query, filter) = (self.query, &self.query.filter);
        if !filter.scope.is_all() {
            // The cursor of a walk through all records could name a code of another app.
            return self.by_key();
        }
        if let Some(Cursor { behind: Behind::Sorted(_), .. }) = query.cursor {
            return self.sorted_in_background();
        }
        let is_all = *filter == Filter::default();
        let ask = |counts: &Tallies| {
            let total = counts.dates.whole().map(|fences| fences.total());
            let is_short = !is_all
                && len_max(filter, counts, &runs(filter, counts)).is_some_and(|len| len <= LIST_SORTED_MAX as u64);
            (total.filter(|_| is_all), is_short)
        };
        let (view, (total, is_short)) = self.catalog.view_with_counts(ask);
        // The cursor says how its list is made.
        let is_sorted = query.cursor.as_ref().map_or(is_short, |cursor| !matches!(cursor.behind, Behind::Code(_)));
        if is_sorted {
            return self.sorted()?.map_or_else(|| self.sorted_in_background(), Ok);
        }
        // No signature has the names of domains, so an index must have the links of those that match.
        let has_domains = filter.term_index_keys().is_some();
        let are_few = |scan: CandidateScan<'_>| {
            has_domains && scan.are_few(&IndexRun::of_dates(filter), CANDIDATES_SORTED_MAX, CANDIDATES_COUNT_TIME_MAX)
        };
        if query.cursor.is_none()
            && self.scan_by_sections().is_some_and(are_few)
            && let Some(sorted) = self.sorted()?
        {
            return Ok(sorted);
        }
        let descending = query.order.descending;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        if let Some(Cursor { behind: Behind::Code(code), .. }) = &query.cursor {
            let mut ascii = [0; CODE_KEY_LEN_MAX];
            let key = code.key(&mut ascii).to_vec();
            if descending { to = key } else { from = [&key[..], &[0]].concat() }
        }
        let records = view.records(&from, &to);
        let records: Box<dyn Iterator<Item = Result<(Value, Value), StoreError>>> =
            if descending { Box::new(records.rev()) } else { Box::new(records) };
        let coded = records.filter_map(|record| match record {
            // The reader of links reports a key that is no valid code.
            Ok((key, value)) => Code::from_key(&key).ok().map(|code| Ok((code, value))),
            Err(error) => Some(Err(error)),
        });
        let mut link_filter = self.link_filter();
        let walked = walk(
            coded,
            self.wanted(),
            |(code, _)| Behind::Code(*code),
            |(code, stored), wanted| Ok(link_filter.check_record(*code, stored, wanted, None)),
        )?;
        let mut answer = self.page_of(walked, false);
        if let (Ok(page), Some(total)) = (&mut answer, total) {
            (page.total, page.complete) = (total, true);
        }
        Ok(answer)
    }

    /// Returns a page in an order that no index has: of all matching links, sorted, or if they are too many, found by a
    /// scan, or sorted in the background. By descending visits, the most visited links of all replace a scan that would take
    /// long.
    fn by_key(&self) -> Result<LinksAnswer, StoreError> {
        let scan_len = self.scan_len();
        let is_scanned = scan_len.is_none_or(|len| len <= SCANNED_MAX) && !self.is_slow();
        match self.query.cursor.as_ref().map(|cursor| &cursor.behind) {
            Some(Behind::Sorted(_)) => return self.sorted_in_background(),
            Some(Behind::Key(..)) => {
                let page = if is_scanned { self.scanned()? } else { None };
                return page.map_or_else(|| self.sorted_in_background(), Ok);
            }
            _ => {}
        }
        // A page of a list that can be scanned is of now, also if deeper pages come from a sorted list. A cursor of the ranking
        // stays in the ranking.
        if !is_scanned
            && self.query.cursor.is_none()
            && let Some(page) = self.kept_page()?
        {
            return Ok(page);
        }
        let is_ranked = self.is_most_visited();
        // If too many match, or nobody has counted them yet, no scan is tried before the ranking.
        let is_all = self.query.filter == Filter::default();
        if is_ranked
            && is_all
            && scan_len.is_none_or(|len| len > SCANNED_FIRST_MAX)
            && let Some(page) = self.most_visited()?
        {
            return Ok(page);
        }
        // The ranking may not know how long the list of a filter is, so a scan comes first if it is likely to end in time.
        if is_scanned || !self.is_being_sorted() {
            let sorted = self.sorted()?;
            let page = if sorted.is_none() && is_scanned { self.scanned()? } else { sorted };
            if let Some(page) = page {
                return Ok(page);
            }
        }
        let ranked = if is_ranked { self.most_visited()? } else { None };
        ranked.map_or_else(|| self.sorted_in_background(), Ok)
    }

    /// True if the most visited links come first.
    fn is_most_visited(&self) -> bool {
        let order = &self.query.order;
        order.descending && matches!(order.field, OrderField::Visits | OrderField::NonBotVisits)
    }

    /// Returns a page of the matching links among the most visited ones of all; `None` if no such ranking exists or the page
    /// is beyond it. The list goes on after the ranking.
    fn most_visited(&self) -> Result<Option<LinksAnswer>, StoreError> {
        let without_bots = self.query.order.field == OrderField::NonBotVisits;
        if self.sorted_offset().0 >= LIST_SORTED_MAX as u64 {
            return Ok(None);
        }
        let Some(codes) = self.visits.most_visited(LIST_SORTED_MAX, without_bots)? else { return Ok(None) };
        if !self.visits.ranks_all() {
            return Ok(None);
        }
        let total = count(self.catalog, &self.query.filter)?;
        self.first_of_all(&codes, total)
    }

    /// Sorts all matching links and returns the page; `None` if they are too many.
    fn sorted(&self) -> Result<Option<LinksAnswer>, StoreError> {
        let query = self.query;
        let ask = |counts: &Tallies| {
            let runs = runs(&query.filter, counts);
            // Between two fences the number of entries is unknown, hence the factor.
            let is_long = !query.filter.needs_filtering()
                && len_max(&query.filter, counts, &runs)
                    .is_some_and(|len| len > 4 * LIST_SORTED_MAX as u64 && runs.len() == 1);
            (runs, is_long)
        };
        let (view, (runs, is_long)) = self.catalog.view_with_counts(ask);
        if is_long {
            return Ok(None);
        }
        let all = ScanDemand { skip: 0, count: LIST_SORTED_MAX, time_max: self.time_max };
        let walked = self.walk_by_age(&runs, &view, all, false)?;
        if !walked.complete || walked.matched > LIST_SORTED_MAX as u64 {
            return Ok(None);
        }
        let is_by_visits = matches!(query.order.field, OrderField::Visits | OrderField::NonBotVisits);
        let visits = if is_by_visits { self.visits_of(&walked.links)? } else { Vec::new() };
        let visits = visits.into_iter().chain(std::iter::repeat(VisitCounts::default()));
        let mut links: Vec<(SortKey, Arc<Link>)> =
            walked.links.into_iter().zip(visits).map(|(link, visits)| (self.sort_key(&link, visits), link)).collect();
        // The sort is stable: equal links stay in the order of their age.
        links.sort_by(|(a, _), (b, _)| a.cmp(b));
        if query.order.descending {
            links.reverse();
        }
        let (offset, page) = self.sorted_offset();
        let total = links.len() as u64;
        let behind = offset.saturating_add(query.per_page as u64);
        let next = (behind < total).then_some(Cursor {
            behind: Behind::Count(behind),
            page: page.saturating_add(1),
            seen: behind,
        });
        let shown = links.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(query.per_page);
        let links = shown.map(|(_, link)| link).collect();
        Ok(Some(Ok(ListPage { links, visits: Vec::new(), page, total, complete: true, next, sorted_ms: None })))
    }

    fn sort_key(&self, link: &Link, visits: VisitCounts) -> SortKey {
        match self.query.order.field {
            OrderField::LongUrl => SortKey::Text(link.target.clone()),
            OrderField::Title => SortKey::Text(link.labels.title.as_deref().unwrap_or_default().to_lowercase()),
            OrderField::Visits => SortKey::Number(visits.total),
            OrderField::NonBotVisits => SortKey::Number(visits.total.saturating_sub(visits.bots)),
            OrderField::ShortCode => SortKey::Bytes(link.code.key(&mut [0; CODE_KEY_LEN_MAX]).to_vec()),
            OrderField::DateCreated => SortKey::Bytes(LinkPosition::new(link.created_ms, link.code).to_bytes()),
        }
    }

    fn link_filter(&self) -> LinkFilter<'_> {
        LinkFilter::new(&self.query.filter, self.visits, self.now_ms)
    }

    /// Returns the number of links before the page that is asked for by number.
    pub(super) fn offset(&self) -> u64 {
        (self.query.page - 1).saturating_mul(self.query.per_page as u64)
    }

    /// Returns the number of links before the page, and the number of the page, in a list that is sorted for each page.
    pub(super) fn sorted_offset(&self) -> (u64, u64) {
        match &self.query.cursor {
            Some(Cursor { behind: Behind::Count(count), page, .. }) => (*count, *page),
            Some(Cursor { behind: Behind::Sorted(_), page, seen }) => (*seen, *page),
            _ => (self.offset(), self.query.page),
        }
    }

    fn wanted(&self) -> ScanDemand {
        let skip = if self.query.cursor.is_some() { 0 } else { self.offset() };
        ScanDemand { skip, count: self.query.per_page, time_max: self.time_max }
    }

    /// Turns the result of a scan into an answer. `will_count` is true if counting will find such pages soon.
    fn page_of(&self, walked: ScanResult, will_count: bool) -> LinksAnswer {
        let ScanResult { links, matched, complete, next } = walked;
        let ScanDemand { skip, .. } = self.wanted();
        if !complete && links.is_empty() && skip > matched {
            return Err(if will_count { ListFailure::Counting } else { ListFailure::TooDeep });
        }
        let (seen, page) = self.query.cursor.as_ref().map_or((0, self.query.page), |it| (it.seen, it.page));
        let before = seen.saturating_add(skip);
        let next = next.map(|behind| Cursor {
            behind,
            page: page.saturating_add(1),
            seen: before.saturating_add(links.len() as u64),
        });
        Ok(ListPage {
            links,
            visits: Vec::new(),
            page,
            total: seen.saturating_add(matched),
            complete,
            next,
            sorted_ms: None,
        })
    }
}

/// Returns the runs that together have all matching links and as few others as possible.
pub(super) fn runs(filter: &Filter, counts: &Tallies) -> Vec<IndexRun> {
    let index_keys = filter.index_keys();
    if index_keys.is_empty() {
        return vec![IndexRun::of_dates(filter)];
    }
    let mut runs: Vec<IndexRun> = index_keys.iter().map(|index_key| IndexRun::of_tag(index_key, filter)).collect();
    if filter.has_all() {
        // The shortest run drives the intersection.
        runs.sort_by_key(|run| len_of(counts, run));
    }
    runs
}

/// Returns an upper bound for the entries of a run; `None` while its index is not counted yet.
fn len_of(counts: &Tallies, run: &IndexRun) -> Option<u64> {
    counted_of(counts, run).map(|fences| Around::len_max(fences, run))
}

/// Returns an upper bound for the candidates of several runs; `None` while their index is not counted yet.
pub(super) fn len_max(filter: &Filter, counts: &Tallies, runs: &[IndexRun]) -> Option<u64> {
    if filter.has_all() { len_of(counts, runs.first()?) } else { runs.iter().map(|run| len_of(counts, run)).sum() }
}

const _: () = assert!(LIST_SORTED_MAX as u64 * 4 <= LIST_LOOKED_MAX);
