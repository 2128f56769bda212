//! A catalog with a model of the links in it, which says what each list must hold; and random links, filters and
//! orders.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId};
use proptest::prelude::*;

use crate::bridge::LinksAnswer;
use crate::services::search::filter_builder::work_once;
use crate::services::search::list::Finder;
use crate::services::search::section::SIGNATURE_BYTES;
use crate::services::search::section_store::save;
use crate::services::search::visits::VisitSource;
use crate::services::search::{Catalog, IndexedChange};
use crate::services::testing::{KEY, sleeps_of};
use crate::services::threads::priority::Priority;
use carom_model::access::{AppName, Scope};
use carom_model::domains::DomainName;
use carom_model::link::labels::Tags;
use carom_model::link::record;
use carom_model::link::{Link, Origin};
use carom_model::query::{Condition, Cursor, Filter, LinkPosition, ListPage, ListQuery, OrderField, SortOrder};
use carom_model::testing::link;
use carom_model::visits::tally::VisitCounts;
use carom_store::links::{Links, StoreError};

/// Visits whose numbers follow from the code of a link.
pub(in crate::services::search) struct ByCode;

impl VisitSource for ByCode {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        Ok(codes.iter().map(ByCode::of).collect())
    }
}

impl ByCode {
    /// Returns the visits of a link. The more it has, the larger is the share of bots.
    pub(in crate::services::search) fn of(code: &Code) -> VisitCounts {
        let total = u64::from(code.packed()[0] & 7);
        VisitCounts { total: total + 7, bots: 2 * total }
    }
}

/// Visits by code, with a ranking of the most visited links.
pub(super) struct Ranked(pub(super) Vec<Code>);

impl VisitSource for Ranked {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        ByCode.counts(codes)
    }

    fn most_visited(&self, count: usize, _without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        Ok(Some(self.0.iter().take(count).copied().collect()))
    }
}

/// Visits of so many links of [`many`], each of which has as many as others. The ranking orders those by their codes.
pub(super) struct Tied {
    pub(super) links: u64,
    /// False if the ranking lacks the most visited links, as soon after a start.
    pub(super) ranks_all: bool,
}

impl Tied {
    pub(super) fn visits_of(number: u64) -> u64 {
        number % 4 + 1
    }
}

impl VisitSource for Tied {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        let number = |code: &Code| code.to_string()[1..].parse().expect("a number follows the first letter");
        Ok(codes.iter().map(|code| VisitCounts { total: Tied::visits_of(number(code)), bots: 0 }).collect())
    }

    fn most_visited(&self, count: usize, _without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        let is_ranked = |number: &u64| self.ranks_all || Tied::visits_of(*number) < 4;
        let mut numbers: Vec<u64> = (0..self.links).filter(is_ranked).collect();
        numbers.sort_by_key(|number| (Reverse(Tied::visits_of(*number)), *number));
        Ok(Some(numbers.into_iter().take(count).map(|number| numbered(number).0).collect()))
    }

    fn ranks_all(&self) -> bool {
        self.ranks_all
    }
}

/// Visits by code, with a ranking, except for a link whose visits are damaged.
pub(super) struct DamagedAt {
    pub(super) code: Code,
    pub(super) ranking: Ranked,
}

impl VisitSource for DamagedAt {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        if codes.contains(&self.code) { Err(StoreError::Damaged("a block".to_owned())) } else { ByCode.counts(codes) }
    }

    fn most_visited(&self, count: usize, without_bots: bool) -> Result<Option<Vec<Code>>, StoreError> {
        self.ranking.most_visited(count, without_bots)
    }
}

/// A catalog, and a model of the links in it.
pub(in crate::services::search) struct CatalogModel {
    pub(in crate::services::search) catalog: Arc<Catalog>,
    pub(super) links: RefCell<BTreeMap<Code, Arc<Link>>>,
    pub(super) dir: tempfile::TempDir,
    pub(in crate::services::search) memory: u64,
}

impl CatalogModel {
    pub(super) fn new() -> CatalogModel {
        CatalogModel::with_signatures(0)
    }

    /// Returns an empty catalog with memory for so many signed sections.
    pub(in crate::services::search) fn with_signatures(sections: usize) -> CatalogModel {
        let dir = tempfile::tempdir().unwrap();
        CatalogModel::open(dir, (sections * SIGNATURE_BYTES) as u64, RefCell::default())
    }

    pub(super) fn open(dir: tempfile::TempDir, memory: u64, links: RefCell<BTreeMap<Code, Arc<Link>>>) -> CatalogModel {
        let (store, _) = Links::open(dir.path(), KEY).unwrap();
        let catalog = Catalog::new(store, memory, dir.path()).unwrap().into();
        CatalogModel { catalog, links, dir, memory }
    }

    /// Ends the catalog, lets `happens` change its directory, and opens it as the next process would.
    pub(in crate::services::search) fn restarted(self, happens: impl FnOnce(&Path)) -> CatalogModel {
        let CatalogModel { catalog, links, dir, memory } = self;
        drop(catalog);
        happens(dir.path());
        CatalogModel::open(dir, memory, links)
    }

    pub(in crate::services::search) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Commits changes as the writer does.
    pub(in crate::services::search) fn commit(&self, changes: impl IntoIterator<Item = (Code, Option<Link>)>) {
        let (mut batch, mut relisted, mut record) = (self.catalog.links.batch(), Vec::new(), Vec::new());
        let mut links = self.links.borrow_mut();
        for (code, after) in changes.into_iter().collect::<BTreeMap<_, _>>() {
            let after = after.map(Arc::new);
            record.clear();
            match &after {
                Some(link) => {
                    record::encode_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), link, &mut record);
                    batch.put(&code, &record);
                }
                // A tombstone, as of an issued code.
                None => {
                    record::encode_tombstone(
                        code.key(&mut [0; CODE_KEY_LEN_MAX]),
                        &carom_model::testing::tombstone(),
                        &mut record,
                    );
                    batch.put(&code, &record);
                }
            }
            let before = match &after {
                Some(link) => links.insert(code, Arc::clone(link)),
                None => links.remove(&code),
            };
            relisted.extend(IndexedChange::of(before.as_ref(), after.as_ref()));
        }
        self.catalog.commit(batch, &relisted).unwrap();
    }

    pub(in crate::services::search) fn find(&self, query: &ListQuery) -> LinksAnswer {
        // A long timeout, because machines that run tests are busy.
        self.find_within(query, Duration::from_secs(60))
    }

    pub(in crate::services::search) fn find_within(&self, query: &ListQuery, time_max: Duration) -> LinksAnswer {
        Finder::within(&self.catalog, &ByCode, query, 50, time_max).find().unwrap()
    }

    /// Answers a query on a thread of this priority, by a scan of all links if `scans`. Returns how often the thread slept.
    pub(super) fn sleeps_of_find(&self, priority: Priority, query: ListQuery, scans: bool) -> u64 {
        let (catalog, time_max) = (Arc::clone(&self.catalog), Duration::from_secs(60));
        sleeps_of(priority, move || {
            let finder = Finder::within(&catalog, &ByCode, &query, 50, time_max);
            let found = if scans { finder.scanned().map(Option::unwrap) } else { finder.find() };
            assert!(found.unwrap().is_ok());
        })
    }

    pub(in crate::services::search) fn page(&self, query: &ListQuery) -> ListPage {
        match self.find(query) {
            Ok(page) => page,
            other => panic!("{query:?}: {other:?}"),
        }
    }

    /// Returns the expected list, computed from the definition.
    pub(in crate::services::search) fn expected(&self, filter: &Filter, order: SortOrder) -> Vec<Code> {
        let links = self.links.borrow();
        let has_term = |link: &Link, term: &str| {
            let texts =
                [link.target.clone(), link.code.as_slug().to_string(), link.labels.title.clone().unwrap_or_default()];
            texts.iter().any(|text| text.to_lowercase().contains(term))
                || link.labels.tags.iter().any(|tag| tag.contains(term))
        };
        let has = |link: &Link, wanted: &String| link.labels.tags.iter().any(|tag| tag == wanted);
        let mut found: Vec<&Arc<Link>> = links
            .values()
            .filter(|link| {
                let has_term =
                    |term: &String| has_term(link, term) || filter.term_domains.contains(&link.code.domain());
                filter.term.as_ref().is_none_or(has_term)
            })
            .filter(|link| {
                let mut excluded = filter.excluded_tags.iter();
                filter.excluded_tags.is_empty()
                    || if filter.excludes_all {
                        !excluded.all(|tag| has(link, tag))
                    } else {
                        !excluded.any(|tag| has(link, tag))
                    }
            })
            .filter(|link| {
                if filter.all_tags {
                    filter.tags.iter().all(|tag| has(link, tag))
                } else {
                    filter.tags.is_empty() || filter.tags.iter().any(|tag| has(link, tag))
                }
            })
            .filter(|link| filter.scope.has(link))
            .filter(|link| filter.since_ms.is_none_or(|ms| link.created_ms >= ms))
            .filter(|link| filter.until_ms.is_none_or(|ms| link.created_ms <= ms))
            .filter(|link| !(filter.without_expired && link.policy.valid_until_ms.is_some_and(|ms| ms <= 50)))
            .filter(|link| {
                let has_ended = !link.policy.archived && link.policy.valid_until_ms.is_some_and(|ms| ms <= 50);
                filter.condition.is_none() || has_ended
            })
            .collect();
        found.sort_by_key(|link| LinkPosition::new(link.created_ms, link.code).to_bytes());
        let visits = |link: &Link| ByCode::of(&link.code).total;
        match order.field {
            OrderField::DateCreated => {}
            OrderField::ShortCode => found.sort_by_key(|link| link.code.to_string()),
            OrderField::LongUrl => found.sort_by_key(|link| link.target.clone()),
            OrderField::Title => found.sort_by_key(|link| link.labels.title.clone().unwrap_or_default().to_lowercase()),
            OrderField::Visits => found.sort_by_key(|link| visits(link)),
            OrderField::NonBotVisits => found.sort_by_key(|link| Reverse(visits(link))),
        }
        if order.descending {
            found.reverse();
        }
        found.into_iter().map(|link| link.code).collect()
    }

    /// Checks every page, by its number and by the cursor of the page before.
    pub(in crate::services::search) fn check(&self, filter: &Filter, order: SortOrder, per_page: usize) {
        let expected = self.expected(filter, order);
        let total = expected.len() as u64;
        let mut cursor: Option<Cursor> = None;
        let mut pages = expected.chunks(per_page);
        for page in 1..=(total / per_page as u64 + 2) {
            let wanted = pages.next().unwrap_or_default();
            let query = ListQuery { filter: filter.clone(), order, page, per_page, cursor: None, asker: None };
            let by_number = self.page(&query);
            assert_eq!(codes(&by_number), wanted, "page {page} of {filter:?} by {order:?}");
            assert_eq!((by_number.page, by_number.total, by_number.complete), (page, total, true), "{query:?}");
            assert_eq!(by_number.visits, wanted.iter().map(ByCode::of).collect::<Vec<_>>());
            assert_eq!(by_number.next.is_some(), page * (per_page as u64) < total, "{query:?}");
            if page == 1 || cursor.is_some() {
                let query = ListQuery { page: 1, cursor: cursor.clone(), ..query };
                let by_cursor = self.page(&query);
                assert_eq!(codes(&by_cursor), wanted, "page {page} of {filter:?} by {order:?} behind {cursor:?}");
                assert_eq!((by_cursor.page, by_cursor.total), (page, total), "{query:?}");
                let text = by_cursor.next.as_ref().map(|next| next.to_text(query.key()));
                cursor = text.and_then(|text| Cursor::from_text(&text, query.key(), order.field));
                assert_eq!(cursor, by_cursor.next);
            }
        }
        assert_eq!(cursor, None, "the last page has no next one");
    }
}

pub(super) fn codes(page: &ListPage) -> Vec<Code> {
    page.links.iter().map(|link| link.code).collect()
}

pub(super) fn code(text: &str) -> Code {
    Code::parse(text.as_bytes()).unwrap()
}

pub(in crate::services::search) fn any_change() -> impl Strategy<Value = (Code, Option<Link>)> {
    let app = proptest::option::of("[ab]b?");
    let made = (0..60u64, proptest::collection::vec("[ab]", 0..3), "[xX]{0,2}|[xX]{5}y?", 0..3u64, any::<bool>(), app);
    ("[ab1]{1,3}", 0..DOMAINS.len(), proptest::option::weighted(0.8, made)).prop_map(|(name, domain, made)| {
        let code = code(&name).within(domain_id(domain));
        let link = made.map(|(created_ms, tags, title, until, crawlable, app)| {
            let mut link = link(&name, Origin::Issued);
            link.code = code;
            link.labels.domain = DomainName::parse(DOMAINS[domain]).ok();
            link.created_ms = created_ms;
            link.target = format!("https://{}.example/", 9 - created_ms % 10);
            link.labels.tags = Tags::of(tags.iter().map(String::as_str)).unwrap();
            link.labels.title = (!title.is_empty()).then_some(title);
            link.labels.crawlable = crawlable;
            link.labels.app = app.map(|name| AppName::parse(&name).unwrap());
            link.policy.valid_until_ms = [None, Some(50), Some(51)][until as usize];
            link
        });
        (code, link)
    })
}

/// The default domain and two others.
pub(super) const DOMAINS: [&str; 3] = ["", "go.test", "s.test"];

pub(super) fn domain_id(number: usize) -> Option<DomainId> {
    DomainName::parse(DOMAINS[number]).ok().map(|name| name.id())
}

/// Generates all domains, or some of them.
pub(super) fn any_domains() -> impl Strategy<Value = Option<Vec<usize>>> {
    let some = proptest::sample::subsequence((0..DOMAINS.len()).collect::<Vec<_>>(), 1..=DOMAINS.len());
    proptest::option::weighted(0.3, some)
}

pub(in crate::services::search) fn any_filter() -> impl Strategy<Value = Filter> {
    let term = proptest::option::weighted(
        0.4,
        proptest::sample::select(&["x", "b", "7.ex", "//5.example", "xxxxy", "none"][..]).prop_map(str::to_owned),
    );
    let tags = prop_oneof![4 => Just(vec![]), 1 => Just(vec!["a"]), 1 => Just(vec!["b"]), 1 => Just(vec!["a", "b"]), 1 => Just(vec!["a", "none"])];
    let app = proptest::option::weighted(0.3, "[ab]b?");
    let app = app.prop_map(|app| app.map(|name| AppName::parse(&name).unwrap()));
    let scope = (app, any_domains()).prop_map(|(app, domains)| {
        let scope = app.map_or(Scope::ALL, Scope::of_app);
        domains.map_or(scope.clone(), |domains| scope.within(domains.into_iter().map(domain_id)))
    });
    let within = (proptest::option::of(0..60u64), proptest::option::of(0..60u64));
    let ended = proptest::option::weighted(0.2, Just(Condition::Expired));
    let excluded =
        prop_oneof![4 => Just(vec![]), 1 => Just(vec!["a"]), 1 => Just(vec!["a", "b"]), 1 => Just(vec!["b", "none"])];
    let excluded = (excluded, any::<bool>());
    let term = (term, any_domains()).prop_map(|(term, domains)| {
        let mut ids: Vec<_> = domains.filter(|_| term.is_some()).into_iter().flatten().map(domain_id).collect();
        ids.sort_unstable();
        (term, ids)
    });
    (term, tags, any::<bool>(), within, any::<bool>(), scope, ended, excluded).prop_map(
        |(
            (term, term_domains),
            tags,
            all_tags,
            (since_ms, until_ms),
            without_expired,
            scope,
            condition,
            (excluded, all),
        )| Filter {
            scope,
            term,
            term_domains,
            named: Vec::new(),
            url_terms: Vec::new(),
            all_tags: all_tags && tags.len() > 1,
            tags: tags.into_iter().map(str::to_owned).collect(),
            excludes_all: all && excluded.len() > 1,
            excluded_tags: excluded.into_iter().map(str::to_owned).collect(),
            since_ms,
            until_ms,
            without_used_up: false,
            without_expired,
            condition,
        },
    )
}

pub(in crate::services::search) fn any_order() -> impl Strategy<Value = SortOrder> {
    use OrderField::{DateCreated, LongUrl, NonBotVisits, ShortCode, Title, Visits};
    let field = prop_oneof![4 => Just(DateCreated), 2 => Just(ShortCode), 1 => prop_oneof![Just(LongUrl), Just(Title), Just(Visits), Just(NonBotVisits)]];
    (field, any::<bool>()).prop_map(|(field, descending)| SortOrder { field, descending })
}

/// Returns a catalog of `count` links, each with its number as its creation time.
pub(super) fn many(count: usize) -> CatalogModel {
    let model = CatalogModel::new();
    let made = (0..count).map(|number| {
        let mut link = link(&format!("c{number:06}"), Origin::Issued);
        link.created_ms = number as u64;
        link.labels.tags = Tags::of(if number % 2 == 0 { ["even"] } else { ["odd"] }).unwrap();
        (link.code, Some(link))
    });
    model.commit(made);
    model
}

/// Returns a catalog with 500 links, whose sections are in their file.
pub(in crate::services::search) fn saved() -> CatalogModel {
    let model = CatalogModel::with_signatures(1_000);
    model.commit((0..500).map(numbered));
    while work_once(&model.catalog, || ()).unwrap() {}
    save(&model.catalog, true);
    model
}

/// Returns the link of a number, which is its creation time.
pub(in crate::services::search) fn numbered(number: u64) -> (Code, Option<Link>) {
    let mut link = link(&format!("c{number:06}"), Origin::Issued);
    link.created_ms = number;
    (link.code, Some(link))
}

pub(super) fn query(filter: Filter, field: OrderField) -> ListQuery {
    ListQuery { filter, order: SortOrder { field, descending: true }, page: 1, per_page: 10, cursor: None, asker: None }
}
