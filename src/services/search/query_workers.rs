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
    ANSWER_TIME_MAX, LIST_ORDER_SPARE_TIME, LIST_ORDER_TIME_MAX, LIST_QUEUE_LEN, LIST_SORTED_MAX, LIST_TIME_MAX,
    LISTERS, ORDER_QUEUE_LEN, ORDERERS, PURGE_LINKS_MAX, ROBOTS_LEN_MAX, SEARCH_QUEUE_LEN, SEARCH_TIME_MAX, SEARCHERS,
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
    let (pages, mut threads) = pool::start(Priority::Urgent, "list", LISTERS, LIST_QUEUE_LEN, move |request| {
        lister.answer(request, Duration::ZERO);
    })?;
    let (searches, more) = pool::start(Priority::Long, "search", SEARCHERS, SEARCH_QUEUE_LEN, move |request| {
        searcher.answer(request, Duration::ZERO);
    })?;
    threads.extend(more);
    let order = move |(asked, request): (Instant, ListRequest)| {
        // Otherwise the client has its answer already, and the next ones would wait for nothing.
        if asked.elapsed() < ANSWER_TIME_MAX {
            orderer.answer(request, order_time(asked.elapsed()));
        }
    };
    let (orders, more) = pool::start(Priority::Long, "order", ORDERERS, ORDER_QUEUE_LEN, order)?;
    threads.extend(more);
    Ok((ListQueues { pages, searches, orders, visits: None, events: None }, threads))
}

/// Returns how long a scan for a request may take that has waited so long: its client gets an answer in time.
fn order_time(waited: Duration) -> Duration {
    #[cfg(feature = "faults")]
    if crate::services::faults::Faults::from_env().short_scans {
        return Duration::ZERO;
    }
    LIST_ORDER_TIME_MAX.min(ANSWER_TIME_MAX.saturating_sub(waited + LIST_ORDER_SPARE_TIME))
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
    /// Answers a request. A scan for a list in an order without an index takes at most `order_time_max`.
    fn answer(&self, request: ListRequest, order_time_max: Duration) {
        self.setup.stats.store_selects.add_shared(1);
        let catalog = &self.setup.catalog;
        match request {
            ListRequest::Links(query, ticket) => self.reply(ticket, self.links(&query, order_time_max)),
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

    fn links(&self, query: &ListQuery, order_time_max: Duration) -> Result<LinksAnswer, StoreError> {
        let time_max = if query.is_by_index() { LIST_TIME_MAX } else { SEARCH_TIME_MAX };
        let ListerSetup { catalog, visits, .. } = &self.setup;
        Finder { order_time_max, ..Finder::within(catalog, &**visits, query, unix_ms(), time_max) }.find()
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
        Ok(ListPage { links, visits, page: 1, total, complete: false, next: None, sorted_ms: None })
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

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::bridge::{Reply, ToCore};
    use crate::services::search::tests::{CatalogModel, numbered};
    use crate::services::testing::TestNode;
    use carom_model::query::{OrderField, SortOrder};
    use carom_model::visits::tally::VisitCounts;
    use carom_shards::{Code, CoreId};

    /// Visits that threads of orders cannot read as long as the lock is held.
    struct HeldVisits(Mutex<()>);

    impl VisitSource for HeldVisits {
        fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
            if std::thread::current().name().is_some_and(|name| name.starts_with("order-")) {
                drop(self.0.lock().unwrap_or_else(PoisonError::into_inner));
            }
            Ok(vec![VisitCounts::default(); codes.len()])
        }
    }

    #[test]
    fn scan_ends_before_its_client_gets_503() {
        let (ms, whole) = (Duration::from_millis, LIST_ORDER_TIME_MAX);
        assert_eq!(order_time(Duration::ZERO), whole);
        assert_eq!(order_time(ms(1_000)), whole);
        assert_eq!(order_time(ANSWER_TIME_MAX - LIST_ORDER_SPARE_TIME - ms(700)), ms(700));
        assert_eq!(order_time(ANSWER_TIME_MAX - ms(1)), Duration::ZERO);
    }

    #[test]
    fn long_orders_delay_no_search() {
        let (model, dir) = (CatalogModel::with_signatures(0), tempfile::tempdir().unwrap());
        model.commit((0..20).map(numbered));
        let (node, visits) = (TestNode::new(dir.path(), 1), Arc::new(HeldVisits(Mutex::default())));
        let held = visits.0.lock().unwrap();
        let setup = ListerSetup {
            catalog: Arc::clone(&model.catalog),
            visits: Arc::clone(&visits) as Arc<_>,
            mailboxes: node.mailboxes.clone(),
            stats: Arc::clone(&node.stats),
        };
        let (queues, threads) = start(&setup).unwrap();
        let request = |field: OrderField, term: Option<&str>, token: u64| {
            let filter = Filter { term: term.map(str::to_owned), ..Filter::default() };
            let order = SortOrder { field, descending: false };
            let query = ListQuery { filter, order, page: 1, per_page: 10, cursor: None, asker: None };
            ListRequest::Links(Box::new(query), Ticket::new(CoreId(0), token))
        };
        let next = || {
            let ToCore::Reply { token, reply: Reply::Links(page) } = node.next_mail() else { panic!("no page") };
            (token, page.unwrap().total)
        };
        for token in 0..2 * ORDERERS as u64 {
            queues.orders.send((Instant::now(), request(OrderField::Visits, None, token))).unwrap();
        }
        queues.searches.send(request(OrderField::DateCreated, Some("c00001"), 100)).unwrap();
        assert_eq!(next(), (100, 10));
        queues.pages.send(request(OrderField::DateCreated, None, 101)).unwrap();
        assert_eq!(next(), (101, 20));
        drop(held);
        let mut ordered: Vec<(u64, u64)> = (0..2 * ORDERERS).map(|_| next()).collect();
        ordered.sort_unstable();
        assert_eq!(ordered, [(0, 20), (1, 20), (2, 20), (3, 20)]);
        drop(queues);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
