//! Queries of the visit log: the newest visits first, within a time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::segment::{SealedSegment, each_record, hash_of};
use super::sharing::LogSharing;
use super::{Contents, VisitLogState};
use crate::bridge::visit_log::{VisitFilter, VisitPage, VisitQuery, VisitSelection};
use crate::services::threads::priority::pause_if_due;
use carom_limits::{VISIT_LINKS_REMEMBERED, VISIT_QUERY_TIME_MAX};
use carom_model::destination::hosts::without_port;
use carom_model::link::labels::in_joined;
use carom_model::link::record::{self, RecordRef};
use carom_model::visits::record::VisitRecord;
use carom_store::links::Links;

/// Fewest matches at which a query stops to hold more. Beyond them, and twice the visits up to the end of its page, it
/// only counts the oldest ones. Otherwise, segments that overlap in time would be in memory together.
const MATCHES_MIN: usize = 10_000;

/// The creation of links that a query has met; `None` for links that it does not select.
pub(super) struct LinkVerdicts<'l> {
    links: &'l Links,
    known: HashMap<Code, Option<u64>>,
}

impl<'l> LinkVerdicts<'l> {
    pub(super) fn new(links: &'l Links) -> LinkVerdicts<'l> {
        LinkVerdicts { links, known: HashMap::new() }
    }

    /// True if a visit belongs to a link that exists and that `selects` accepts. Visits before the creation of the link
    /// belong to an earlier one. A link that cannot be read keeps its visits if `keeps_unreadable`.
    pub(super) fn has(
        &mut self,
        code: &Code,
        at_ms: u64,
        keeps_unreadable: bool,
        selects: impl FnOnce(&record::LinkRef<'_>) -> bool,
    ) -> bool {
        if self.known.len() >= VISIT_LINKS_REMEMBERED {
            self.known.clear();
        }
        let links = self.links;
        let created_ms = self.known.entry(*code).or_insert_with(|| match links.get(code) {
            Ok(None) => None,
            Err(_) => keeps_unreadable.then_some(0),
            Ok(Some(stored)) => match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored) {
                Ok(RecordRef::Link(link)) => selects(&link).then_some(link.created_ms),
                Ok(RecordRef::Tombstone(_)) => None,
                Err(_) => keeps_unreadable.then_some(0),
            },
        });
        created_ms.is_some_and(|created_ms| at_ms >= created_ms)
    }
}

/// The use of the visits that a search finds.
pub(super) trait Collect {
    /// Takes a visit, in its encoded and decoded form. Visits of one link that one core recorded
    /// come oldest first; other visits come in no particular order.
    fn take(&mut self, bytes: &[u8], visit: &VisitRecord<'_>);

    /// Notes that the next visits are those of the segment `seq`, and that none of the remaining ones is later than
    /// `last_ms`.
    fn begin_segment(&mut self, _seq: u64, _last_ms: u64) {}
}

/// A search in progress.
struct VisitSearch<'s, C> {
    filter: &'s VisitFilter,
    shared: &'s VisitLogState,
    contents: &'s Contents,
    verdicts: LinkVerdicts<'s>,
    until: Instant,
    collector: &'s mut C,
    complete: bool,
}

/// Passes every visit of a filter to a collector. Blocks for the disk. Returns false if a part of the log was left out,
/// because it is damaged or the search takes too long.
pub(super) fn search<C: Collect>(
    shared: &VisitLogState,
    contents: &Contents,
    filter: &VisitFilter,
    collector: &mut C,
) -> bool {
    let until = Instant::now() + VISIT_QUERY_TIME_MAX;
    let verdicts = LinkVerdicts::new(&shared.links);
    let mut search = VisitSearch { filter, shared, contents, verdicts, until, collector, complete: true };
    for chunk in &contents.recent {
        search.search_block(chunk);
    }
    // Visits of other nodes may arrive late, so segments may overlap in time.
    let mut sealed: Vec<&Arc<SealedSegment>> = contents.sealed.iter().collect();
    sealed.sort_by_key(|segment| Reverse((segment.max_ms, segment.seq)));
    for segment in sealed {
        search.collector.begin_segment(segment.seq, segment.max_ms);
        search.look_into(segment);
    }
    search.complete
}

impl<C: Collect> VisitSearch<'_, C> {
    fn look_into(&mut self, segment: &SealedSegment) {
        let VisitFilter { start_ms, end_ms, .. } = *self.filter;
        if !segment.is_readable {
            self.complete = false;
            return;
        }
        if segment.max_ms < start_ms || end_ms < segment.min_ms {
            return;
        }
        let hash = match &self.filter.selection {
            VisitSelection::Link { code, .. } => Some(hash_of(Some(code))),
            VisitSelection::Orphans { .. } => Some(hash_of(None)),
            VisitSelection::Links { .. } => None,
        };
        let read = segment.each_block(hash, |raw| {
            if Instant::now() > self.until {
                self.complete = false;
                return false;
            }
            self.search_block(&raw);
            pause_if_due();
            true
        });
        if let Err(error) = read {
            self.complete = false;
            self.shared.note_damage(segment, &error);
        }
    }

    fn search_block(&mut self, raw: &[u8]) {
        each_record(raw, |bytes, visit| {
            if self.matches(visit) {
                self.collector.take(bytes, visit);
            }
        });
    }

    fn matches(&mut self, visit: &VisitRecord<'_>) -> bool {
        let VisitFilter { selection, start_ms, end_ms, without_bots, conditions } = self.filter;
        if !(*start_ms..=*end_ms).contains(&visit.at_ms) || (*without_bots && visit.is_bot) {
            return false;
        }
        let is_selected = match (selection, &visit.code) {
            (VisitSelection::Link { code, since_ms }, Some(of)) => of == code && visit.at_ms >= *since_ms,
            (VisitSelection::Orphans { kind, host }, None) => {
                let is_there = |host| is_on(visit.request.host, host);
                kind.is_none_or(|kind| kind == visit.kind) && host.as_deref().is_none_or(is_there)
            }
            (VisitSelection::Links { scope, tag }, Some(code)) => self.verdicts.has(code, visit.at_ms, false, |link| {
                let has_tag = |tag: &String| in_joined(link.tags).any(|of_link| of_link == tag);
                scope.has_link(code, link.app) && tag.as_ref().is_none_or(has_tag)
            }),
            (VisitSelection::Link { .. } | VisitSelection::Links { .. }, None) => false,
            (VisitSelection::Orphans { .. }, Some(_)) => false,
        };
        // Conditions parse the visit, so they come last.
        is_selected && !self.contents.deletions.has(visit) && conditions.iter().all(|condition| condition.holds(visit))
    }
}

/// True if a `Host` field names this host, with any port.
fn is_on(field: &[u8], host: &str) -> bool {
    let name = without_port(field);
    name.strip_suffix(b".").unwrap_or(name).eq_ignore_ascii_case(host.as_bytes())
}

/// A visit that matches a query.
struct Match {
    at_ms: u64,
    /// The number of the segment that has the visit.
    segment: u64,
    /// The number of the match among all.
    number: u64,
    bytes: Box<[u8]>,
}

/// A page of visits that is being collected.
struct PageCollector<'q> {
    query: &'q VisitQuery,
    page: VisitPage,
    /// True if every node of a fleet must list visits of one millisecond in the same order: then their content decides. On a
    /// node that is alone, the order of their records does.
    is_shared: bool,
    seq: u64,
    count: u64,
    /// Matches that later segments may have matches between.
    found: Vec<Match>,
    /// The number of matches that are behind the end of the page, whatever later segments have.
    beyond: u64,
}

impl Collect for PageCollector<'_> {
    fn take(&mut self, bytes: &[u8], visit: &VisitRecord<'_>) {
        self.count += 1;
        self.found.push(Match { at_ms: visit.at_ms, segment: self.seq, number: self.count, bytes: bytes.into() });
        if self.found.len() >= MATCHES_MIN.max(self.wanted().saturating_mul(2)) {
            self.sort();
            let kept = self.wanted().min(self.found.len());
            self.beyond += (self.found.len() - kept) as u64;
            self.found.truncate(kept);
        }
    }

    fn begin_segment(&mut self, seq: u64, last_ms: u64) {
        self.settle(Some(last_ms));
        self.seq = seq;
    }
}

impl PageCollector<'_> {
    /// Returns the number of matches up to the end of the page, without those that are counted already.
    fn wanted(&self) -> usize {
        let end = self.query.skip.saturating_add(self.query.take as u64);
        usize::try_from(end.saturating_sub(self.page.total)).unwrap_or(usize::MAX)
    }

    /// Sorts the matches, newest first.
    fn sort(&mut self) {
        let is_shared = self.is_shared;
        self.found.sort_unstable_by(|one, other| {
            let by_place = || (other.segment, other.number).cmp(&(one.segment, one.number));
            let by_content = || if is_shared { other.bytes.cmp(&one.bytes) } else { by_place() };
            other.at_ms.cmp(&one.at_ms).then_with(by_content)
        });
    }

    /// Moves the matches later than an instant to the page, or all.
    fn settle(&mut self, last_ms: Option<u64>) {
        self.sort();
        let end = last_ms.map_or(self.found.len(), |last_ms| self.found.partition_point(|of| of.at_ms > last_ms));
        let VisitQuery { skip, take, .. } = *self.query;
        for of in self.found.drain(..end) {
            if self.page.total >= skip && self.page.records.len() < take {
                self.page.records.push(of.bytes);
            }
            self.page.total += 1;
        }
    }
}

/// Returns a page of visits, newest first. Blocks for the disk.
pub(super) fn run(shared: &VisitLogState, contents: &Contents, query: &VisitQuery) -> VisitPage {
    let is_shared = shared.sharing.mode() == LogSharing::Shared;
    let (page, found) = (VisitPage::default(), Vec::new());
    // The active segment is newer than all others.
    let mut collector = PageCollector { query, page, is_shared, seq: u64::MAX, count: 0, found, beyond: 0 };
    let complete = search(shared, contents, &query.filter, &mut collector);
    collector.settle(None);
    VisitPage { complete, total: collector.page.total + collector.beyond, ..collector.page }
}
