//! Threads that make lists. Slow searches have threads of their own, so that a page that is found at once waits neither
//! for them nor for readers of single links.

use std::cmp::Reverse;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::DomainId;
use dashmap::{DashMap, Entry};

use super::bounded_scan::{FilterResult, IndexRun};
use super::catalog::Catalog;
use super::filter::LinkFilter;
use super::list::Finder;
use super::ranked_page;
use super::tags;
use super::visits::VisitSource;
use crate::bridge::{Answer, HostCounts, LinksAnswer, ListQueues, ListRequest, Mailboxes, TagsAnswer, Ticket};
use crate::services::threads::pool;
use crate::services::threads::priority::{Priority, pause_if_due};
use carom_limits::{
    ANSWER_TIME_MAX, LIST_ORDER_TIME_MAX, LIST_QUEUE_LEN, LIST_SORTED_MAX, LIST_TIME_MAX, LISTERS, ORDER_QUEUE_LEN,
    ORDERERS, PURGE_LINKS_MAX, ROBOTS_LEN_MAX, SEARCH_QUEUE_LEN, SEARCH_TIME_MAX, SEARCHERS,
};
use carom_model::purge::{EndedPage, EndedPlace, EndedSelector};
use carom_model::query::{
    Filter, ListPage, ListQuery, TagQuery, TagsFailure, UnreadableIndex, domain_index_key, index_key_with_tag,
};
use carom_store::links::StoreError;
use carom_store::links::catalog::CRAWLABLE;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;
use std::sync::atomic::Ordering;

/// Edits that are read at once: some 100 µs of work.
const ENDED_AT_ONCE: usize = 64;

/// Events that are read at once: less than a millisecond of work.
const EVENTS_AT_ONCE: usize = 256;

/// Longest time in which the texts of ended links are looked for: the texts of some hundred thousand links that may match.
const TEXTS_TIME_MAX: Duration = Duration::from_secs(2);

/// Inputs of the threads.
#[derive(Clone)]
pub struct ListerSetup {
    /// The indexes of links.
    pub catalog: Arc<Catalog>,
    /// The counts of visits.
    pub visits: Arc<dyn VisitSource>,
    /// The mailboxes of the cores, which receive the answers.
    pub mailboxes: Mailboxes,
    /// The counters of the node.
    pub stats: Arc<NodeStats>,
}

/// Starts the threads. They end when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: &ListerSetup) -> io::Result<(ListQueues, Vec<JoinHandle<()>>)> {
    let lister = Lister { setup: setup.clone(), robots: Arc::default() };
    let [searcher, orderer] = [lister.clone(), lister.clone()];
    let (pages, mut threads) =
        pool::start(Priority::Urgent, "list", LISTERS, LIST_QUEUE_LEN, move |request| lister.answer(request))?;
    let (searches, more) =
        pool::start(Priority::Long, "search", SEARCHERS, SEARCH_QUEUE_LEN, move |request| searcher.answer(request))?;
    threads.extend(more);
    let order = move |(asked, request): (Instant, ListRequest)| {
        // Otherwise the client has its answer already, and the next ones would wait for nothing.
        if asked.elapsed() < ANSWER_TIME_MAX {
            orderer.answer(request);
        }
    };
    let (orders, more) = pool::start(Priority::Long, "order", ORDERERS, ORDER_QUEUE_LEN, order)?;
    threads.extend(more);
    Ok((ListQueues { pages, searches, orders, visits: None, events: None }, threads))
}

/// Lines of a `robots.txt`, and the number of changes of crawlable links when they were made.
type Robots = (u64, Arc<str>);

#[derive(Clone)]
struct Lister {
    setup: ListerSetup,
    /// The newest lines of each domain. A thread that makes them holds the entry of that domain, and no other one.
    robots: Arc<DashMap<Option<DomainId>, Robots>>,
}

impl Lister {
    fn answer(&self, request: ListRequest) {
        self.setup.stats.store_selects.add_shared(1);
        let catalog = &self.setup.catalog;
        match request {
            ListRequest::Links(query, ticket) => self.reply(ticket, self.links(&query)),
            ListRequest::Tags(query, ticket) => self.reply(ticket, self.tags(&query)),
            ListRequest::Crawlable(domain, ticket) => self.reply(ticket, self.crawlable(domain).map(Ok)),
            ListRequest::Counts(filters, ticket) => {
                let counts = filters.iter().map(|filter| ranked_page::count(catalog, filter));
                self.reply(ticket, counts.collect::<Result<_, _>>().map(Ok));
            }
            ListRequest::Top { from_hour, to_hour, count, ticket } => {
                self.reply(ticket, self.top(from_hour..to_hour, count).map(Ok));
            }
            ListRequest::Referrers { from_day, to_day, count, ticket } => {
                self.reply(ticket, self.referrers(from_day..=to_day, count).map(Ok));
            }
            ListRequest::Domains(ticket) => self.reply(ticket, catalog.domains().map(Ok)),
            ListRequest::Ended { selector, from, ticket } => {
                self.reply(ticket, self.ended(&selector, from).map(Ok));
            }
            ListRequest::Groups { groups, hours, ticket } => {
                self.reply(ticket, self.setup.visits.of_groups(&groups, hours).map(Ok));
            }
        }
    }

    /// Sends an answer to its task, and logs an error of the store.
    fn reply<T, F: From<UnreadableIndex>>(&self, ticket: Ticket<Result<T, F>>, found: Result<Result<T, F>, StoreError>)
    where
        Result<T, F>: Answer,
    {
        let answer = found.unwrap_or_else(|error| {
            self.setup.stats.store_errors.add_shared(1);
            tracing::error!(%error, "a list could not be read");
            Err(UnreadableIndex.into())
        });
        self.setup.mailboxes.answer(ticket, answer);
    }

    fn links(&self, query: &ListQuery) -> Result<LinksAnswer, StoreError> {
        let time_max = if query.is_by_index() { LIST_TIME_MAX } else { SEARCH_TIME_MAX };
        let ListerSetup { catalog, visits, .. } = &self.setup;
        Finder { catalog, visits: &**visits, query, now_ms: unix_ms(), time_max, order_time_max: LIST_ORDER_TIME_MAX }
            .find()
    }

    fn tags(&self, query: &TagQuery) -> Result<TagsAnswer, StoreError> {
        let catalog = &self.setup.catalog;
        let app_within = query.scope.app().filter(|_| query.scope.domains().is_some());
        let (view, counts) = catalog.view_with_counts(|counts| {
            let is_counted = counts.tags.whole().is_some() && app_within.is_none();
            is_counted.then(|| counts.of_tags.all(&query.scope))
        });
        let counts = match app_within {
            Some(app) => Some(tags::of_app_within(&view, app, &query.scope)?),
            None => counts,
        };
        Ok(match counts {
            None => Err(TagsFailure::Counting),
            Some(None) => {
                catalog.ask_again_for_tags(&query.scope);
                Err(TagsFailure::TooManyTags)
            }
            Some(Some(all)) => {
                if query.field.is_by_visits() {
                    let page = tags::page_by_visits(all, query, &view, &*self.setup.visits)?;
                    return Ok(page.ok_or(TagsFailure::TooManyToSort));
                }
                let mut page = tags::page(all, query);
                if query.with_visits {
                    tags::add_visits(&mut page, &query.scope, &view, &*self.setup.visits)?;
                }
                Ok(page)
            }
        })
    }

    /// Returns the links visited most within `hours`. The candidates are the links visited most in total or lately.
    fn top(&self, hours: Range<u32>, count: usize) -> Result<ListPage, StoreError> {
        let visits = &self.setup.visits;
        let candidates = visits.most_visited(LIST_SORTED_MAX, false)?.unwrap_or_default();
        let mut counted = Vec::new();
        for code in candidates {
            let counts = visits.counts_within(&code, hours.clone())?;
            if counts.total > 0 {
                counted.push((counts, code));
            }
        }
        counted.sort_unstable_by_key(|(counts, code)| (Reverse(counts.total), *code));
        let (view, ()) = self.setup.catalog.view_with_counts(|_| ());
        let filter = Filter::default();
        let mut link_filter = LinkFilter::new(&filter, &**visits, unix_ms());
        let (mut links, mut visits) = (Vec::new(), Vec::new());
        for (counts, code) in counted {
            let Some(stored) = view.get(&code)? else { continue };
            if let FilterResult::Link(link) = link_filter.check_record(code, &stored, true, None) {
                links.push(link);
                visits.push(counts);
            }
            if links.len() == count {
                break;
            }
        }
        let total = links.len() as u64;
        Ok(ListPage { links, visits, page: 1, total, complete: false, next: None })
    }

    /// Returns links that have ended before, as many as can be found in the time of a search. The sources come in this
    /// order: the history, the texts that the search index still has, the event log. A link may come several times.
    fn ended(&self, selector: &EndedSelector, from: EndedPlace) -> Result<EndedPage, StoreError> {
        let (start, mut links, mut place) = (Instant::now(), Vec::new(), from);
        let catalog = &self.setup.catalog;
        loop {
            let next = match place {
                EndedPlace::History(behind) => {
                    let found = catalog.links.ended_links(&behind, ENDED_AT_ONCE, selector)?;
                    links.extend(found.links);
                    if found.behind.is_none() {
                        links.extend(catalog.ended_in_texts(selector, PURGE_LINKS_MAX, TEXTS_TIME_MAX)?);
                    }
                    Some(found.behind.map_or(EndedPlace::Events(0), EndedPlace::History))
                }
                EndedPlace::Events(after) => {
                    let (found, last) = catalog.links.ended_in_events(after, EVENTS_AT_ONCE, selector)?;
                    links.extend(found);
                    last.map(EndedPlace::Events)
                }
            };
            match next {
                Some(next) if links.len() < PURGE_LINKS_MAX && start.elapsed() < SEARCH_TIME_MAX => place = next,
                next => return Ok(EndedPage { links, next }),
            }
            pause_if_due();
        }
    }

    /// Returns the hosts that sent the most visits on those days.
    fn referrers(&self, days: RangeInclusive<u32>, count: usize) -> Result<HostCounts, StoreError> {
        let mut hosts: Vec<_> = self.setup.visits.referrers(days)?.into_iter().collect();
        hosts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        hosts.truncate(count);
        Ok(hosts)
    }

    /// Returns the newest links that crawlers may follow. The list is cached until a crawlable link is added or
    /// removed.
    fn crawlable(&self, domain: Option<DomainId>) -> Result<Arc<str>, StoreError> {
        // The lock is held while the list is made, so that concurrent requests find it finished.
        let made = self.robots.entry(domain);
        let changes = self.setup.catalog.crawlable_changes.load(Ordering::Acquire);
        if let Entry::Occupied(made) = &made
            && made.get().0 == changes
        {
            return Ok(Arc::clone(&made.get().1));
        }
        let (view, ()) = self.setup.catalog.view_with_counts(|_| ());
        let mut lines = String::new();
        let index_key =
            domain.map_or(CRAWLABLE.to_owned(), |domain| index_key_with_tag(&domain_index_key(domain), CRAWLABLE));
        for place in IndexRun::of_tag(&index_key, &Filter::default()).places(&view, true) {
            let line = format!("Allow: /{}\n", place?.code.as_slug());
            if lines.len() + line.len() > ROBOTS_LEN_MAX {
                break;
            }
            lines.push_str(&line);
        }
        let lines: Arc<str> = lines.into();
        made.insert((changes, Arc::clone(&lines)));
        Ok(lines)
    }
}
