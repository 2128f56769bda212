//! Tests of sorted lists: the sort against one in memory, and pages against a model of the links.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carom_shards::{CODE_KEY_LEN_MAX, Code};
use proptest::prelude::*;

use super::external_sort::ExternalSorter;
use super::scratch::ScratchFolder;
use super::{SortedList, SortedLists, identity};
use crate::bridge::LinksAnswer;
use crate::services::search::catalog::{Catalog, IndexedChange};
use crate::services::search::counting::count_part;
use crate::services::search::link_scan::{LinkSink, ScanStep};
use crate::services::search::list::Finder;
use crate::services::search::sort_job::{sort, sort_once, start};
use crate::services::search::tests::{ByCode, CatalogModel, SORTING, any_change, any_filter, any_order, numbered};
use crate::services::search::visits::VisitSource;
use carom_limits::{SORTED_LISTS_MAX, SORTED_LISTS_OF_APP_MAX, SORTS_OF_APP_MAX, SORTS_WAITING_MAX};
use carom_model::access::AppName;
use carom_model::link::labels::Tags;
use carom_model::link::{Link, Origin, record};
use carom_model::purge::PurgedLink;
use carom_model::query::{
    Behind, Cursor, Filter, LinkPosition, ListFailure, ListPage, ListQuery, OrderField, SortOrder,
};
use carom_model::testing::link;
use carom_model::visits::tally::VisitCounts;
use carom_store::links::StoreError;
use carom_store::links::catalog::IndexKind;

fn by_title(filter: Filter) -> ListQuery {
    let order = SortOrder { field: OrderField::Title, descending: false };
    ListQuery { filter, order, page: 1, per_page: 10, cursor: None, asker: None }
}

/// Returns a catalog of `count` links.
fn links(count: u64) -> CatalogModel {
    let model = CatalogModel::with_signatures(0);
    model.commit((0..count).map(numbered));
    model
}

fn find(model: &CatalogModel, query: &ListQuery) -> LinksAnswer {
    Finder::within(&model.catalog, &ByCode, query, 50, Duration::ZERO).sorted_in_background().unwrap()
}

fn page(model: &CatalogModel, query: &ListQuery) -> ListPage {
    find(model, query).unwrap_or_else(|failure| panic!("{query:?}: {failure:?}"))
}

fn sorted(model: &CatalogModel) -> bool {
    sort_once(&model.catalog, &ByCode, 50)
}

/// Returns the numbers of the links of a page.
fn numbers(page: &ListPage) -> Vec<u64> {
    page.links.iter().map(|link| link.created_ms).collect()
}

/// Returns the kept list as of an instant.
fn kept(model: &CatalogModel, query: &ListQuery, now: Instant) -> Option<Arc<SortedList>> {
    model.catalog.sorted_lists.kept(query, now)
}

/// Returns queries for different lists.
fn queries(count: usize) -> Vec<ListQuery> {
    let of = |number: usize| by_title(Filter { since_ms: Some(number as u64), ..Filter::default() });
    (0..count).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn links_are_sorted_as_in_memory(
        links in proptest::collection::vec(("[ab]{0,2}|[a-c]{500,600}|[a-z]{0,40}", 0..9u64, "[a-c]{1,3}|[a-z]{64}"), 0..400),
        from in 0..400u64,
        count in 0..40u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let folder = ScratchFolder::new(dir.path());
        let mut sorter = ExternalSorter::new(&folder).unwrap();
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (key, created_ms, code) in &links {
            let place = LinkPosition::new(*created_ms, Code::parse(code.as_bytes()).unwrap());
            sorter.push(key.as_bytes(), place).unwrap();
            expected.push((key.as_bytes()[..key.len().min(512)].to_vec(), place.to_bytes()));
        }
        let file = sorter.merge(|_| true).unwrap().unwrap();
        expected.sort();
        let expected: Vec<LinkPosition> =
            expected.iter().map(|(_, place)| LinkPosition::from_bytes(place).unwrap()).collect();
        prop_assert_eq!(file.count(), expected.len() as u64);
        prop_assert_eq!(&file.read(0, u64::MAX).unwrap(), &expected);
        let some: Vec<LinkPosition> = expected.into_iter().skip(from as usize).take(count as usize).collect();
        prop_assert_eq!(file.read(from, count).unwrap(), some);
    }

    #[test]
    fn pages_are_those_of_the_list(
        changes in proptest::collection::vec(any_change(), 0..200),
        asked in proptest::collection::vec((any_filter(), any_order(), 1..9usize), 1..8),
    ) {
        let model = CatalogModel::with_signatures(0);
        model.commit(changes);
        for (filter, order, per_page) in asked {
            if order.field == OrderField::DateCreated {
                continue;
            }
            let expected = model.expected(&filter, order);
            let mut query = ListQuery { order, per_page, ..by_title(filter) };
            if find(&model, &query).is_err() {
                prop_assert!(sorted(&model));
            }
            for (page_number, codes) in (1..).zip(expected.chunks(per_page)) {
                let by_number = page(&model, &ListQuery { page: page_number, cursor: None, ..query.clone() });
                let by_cursor = page(&model, &query);
                for found in [&by_number, &by_cursor] {
                    let found_codes: Vec<_> = found.links.iter().map(|link| link.code).collect();
                    prop_assert_eq!(&found_codes[..], codes, "page {} of {:?}", page_number, query);
                    prop_assert_eq!((found.page, found.total), (page_number, expected.len() as u64));
                }
                prop_assert_eq!(&by_number.next, &by_cursor.next);
                query.cursor = by_cursor.next;
            }
            prop_assert_eq!(&query.cursor, &None);
            let behind = page(&model, &ListQuery { page: 1_000, ..query });
            prop_assert_eq!((behind.links.len(), behind.next), (0, None));
        }
    }
}

#[test]
fn links_that_are_gone_are_left_out() {
    let model = links(30);
    let filter = Filter { excluded_tags: vec!["out".to_owned()], ..Filter::default() };
    let query = by_title(filter);
    assert_eq!(find(&model, &query), Err(SORTING));
    assert_eq!(find(&model, &query), Err(SORTING), "it waits once");
    assert!(sorted(&model));
    assert!(!sorted(&model));
    let before = page(&model, &query);
    assert_eq!(numbers(&before), (0..10).collect::<Vec<u64>>());
    // One is deleted, one no longer matches, one is another link of the same code, and one is new.
    let [(gone, _), (other, again), (code, changed)] = [3, 4, 7].map(numbered);
    let mut changed = changed.unwrap();
    changed.labels.tags = Tags::of(["out"]).unwrap();
    let mut again = again.unwrap();
    again.created_ms = 900;
    let new = numbered(400);
    model.commit([(gone, None), (other, Some(again)), (code, Some(changed)), new]);
    let after = page(&model, &query);
    assert_eq!(numbers(&after), [0, 1, 2, 5, 6, 8, 9]);
    assert_eq!((after.total, after.sorted_ms), (30, before.sorted_ms), "the list is that of its sort");
    let last = page(&model, &ListQuery { page: 3, ..query });
    assert_eq!((numbers(&last).len(), last.next), (10, None));
}

/// Visits during whose reads links come and go.
struct ChangingVisits {
    catalog: Arc<Catalog>,
    next: AtomicU64,
}

impl VisitSource for ChangingVisits {
    fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let mut batch = self.catalog.links.batch();
        // One link is deleted behind the sort and one before it, and new links come between others.
        let gone = [3 * at + 1, 997 - 3 * at].map(|number| numbered(number).1.map(Arc::new));
        let mut changes = Vec::new();
        for link in gone.iter().flatten() {
            batch.remove(&link.code);
            changes.extend(IndexedChange::of(Some(link), None));
        }
        let mut new = link(&format!("c{:06}x", 40 * at), Origin::Issued);
        new.created_ms = 40 * at;
        let (mut record, new) = (Vec::new(), Arc::new(new));
        record::encode_link(new.code.key(&mut [0; CODE_KEY_LEN_MAX]), &new, &mut record);
        batch.put(&new.code, &record);
        changes.extend(IndexedChange::of(None, Some(&new)));
        self.catalog.commit(batch, &changes).unwrap();
        Ok(codes.iter().map(ByCode::of).collect())
    }
}

#[test]
fn links_that_stay_are_listed_once() {
    let odd = Filter { since_ms: Some(0), until_ms: Some(999), tags: vec!["odd".to_owned()], ..Filter::default() };
    for filter in [Filter::default(), odd] {
        let model = CatalogModel::with_signatures(0);
        model.commit((0..1_000).map(|number| {
            let (code, link) = numbered(number);
            let mut link = link.unwrap();
            link.labels.tags = Tags::of(["odd"]).unwrap();
            (code, Some(link))
        }));
        for kind in [IndexKind::Dates, IndexKind::Tags] {
            while count_part(&model.catalog, kind, 999, || {}).unwrap() {}
        }
        let order = SortOrder { field: OrderField::Visits, descending: false };
        let query = ListQuery { order, per_page: 500, ..by_title(filter) };
        assert_eq!(find(&model, &query), Err(SORTING));
        let visits = ChangingVisits { catalog: Arc::clone(&model.catalog), next: AtomicU64::new(0) };
        assert!(sort_once(&model.catalog, &visits, 50));
        let changes = visits.next.into_inner();
        assert!(changes > 9, "{changes} changes during the sort");
        let places = kept(&model, &query, Instant::now()).unwrap().read(0, u64::MAX).unwrap();
        let codes: BTreeSet<String> = places.iter().map(|place| place.code.to_string()).collect();
        assert_eq!(codes.len(), places.len(), "each link once");
        let is_gone = |number: &u64| (0..changes).any(|at| [3 * at + 1, 997 - 3 * at].contains(number));
        let stay = (0..1_000).filter(|number| !is_gone(number)).map(|number| numbered(number).0.to_string());
        assert_eq!(stay.filter(|code| !codes.contains(code)).count(), 0);
    }
}

/// A sink during whose first look a link with two tags is created, and that wants new snapshots.
struct RenewingSink<'m> {
    model: &'m CatalogModel,
    looks: u64,
    offered: Vec<u64>,
}

/// Returns a numbered link with tags.
fn tagged<const N: usize>(number: u64, tags: [&str; N]) -> (Code, Option<Link>) {
    let (code, link) = numbered(number);
    let mut link = link.unwrap();
    link.labels.tags = Tags::of(tags).unwrap();
    (code, Some(link))
}

impl LinkSink for RenewingSink<'_> {
    fn offer(&mut self, _: &[u8], place: LinkPosition) {
        self.offered.push(place.created_ms);
    }

    fn look(&mut self, _: u64) -> ScanStep {
        self.looks += 1;
        if self.looks == 1 {
            self.model.commit([tagged(5_000, ["one", "other"])]);
        }
        ScanStep::Renew
    }
}

#[test]
fn snapshot_is_renewed_between_other_links() {
    let model = links(1_300);
    model.commit((0..300).map(|number| tagged(number, ["one"])));
    model.commit((300..700).map(|number| tagged(number, ["other"])));
    for kind in [IndexKind::Dates, IndexKind::Tags] {
        while count_part(&model.catalog, kind, 999, || {}).unwrap() {}
    }
    let tags = ["one", "other"].map(str::to_owned).to_vec();
    let query = by_title(Filter { tags, all_tags: true, ..Filter::default() });
    let mut sink = RenewingSink { model: &model, looks: 0, offered: Vec::new() };
    assert!(Finder::within(&model.catalog, &ByCode, &query, 50, Duration::ZERO).scan(&mut sink).unwrap());
    assert!((2..10).contains(&sink.looks), "{} looks: the scan reads the index", sink.looks);
    assert_eq!(sink.offered, [5_000], "a later snapshot has it");
}

#[test]
fn clients_get_the_progress() {
    let model = links(25);
    let query = by_title(Filter::default());
    let lists: &SortedLists = &model.catalog.sorted_lists;
    assert_eq!(find(&model, &query), Err(SORTING));
    let (running, start) = (lists.next_waiting().unwrap(), Instant::now());
    let after = |seconds: u64| lists.request(&query, start + Duration::from_secs(seconds));
    running.show(0.4);
    assert_eq!(after(8), ListFailure::Sorting { percent: 40, retry_s: 12 });
    assert_eq!(after(1_000), ListFailure::Sorting { percent: 40, retry_s: 30 });
    running.show(1.0);
    assert_eq!(after(8), ListFailure::Sorting { percent: 99, retry_s: 1 });
    sort(&model.catalog, &ByCode, running, 50);
    assert_eq!(page(&model, &query).total, 25);
}

#[test]
fn both_directions_are_one_list() {
    let model = links(25);
    let query = by_title(Filter::default());
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    let order = SortOrder { descending: true, ..query.order };
    let found: Vec<u64> = (1..=3)
        .flat_map(|number| numbers(&page(&model, &ListQuery { order, page: number, ..query.clone() })))
        .collect();
    assert_eq!(found, (0..25).rev().collect::<Vec<u64>>());
}

#[test]
fn aged_list_is_sorted_again() {
    let model = links(25);
    let query = by_title(Filter::default());
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    let (first, now) = (page(&model, &query), Instant::now());
    let walk = ListQuery { cursor: first.next.clone(), ..query.clone() };
    let minutes = |count: u64| now + Duration::from_secs(60 * count);
    for minute in [4, 8] {
        assert!(kept(&model, &query, minutes(minute)).is_some(), "it is valid and in use");
    }
    assert!(kept(&model, &query, minutes(11)).is_none(), "it has aged");
    assert!(kept(&model, &walk, minutes(11)).is_some(), "a walk by cursor stays in its list");
    assert!(!sorted(&model), "nobody has asked for it");
    model.commit([numbered(100)]);
    assert_eq!(model.catalog.sorted_lists.request(&query, minutes(11)), SORTING);
    assert!(sort_once(&model.catalog, &ByCode, 60));
    let second = page(&model, &query);
    assert_eq!((first.total, second.total), (25, 26));
    assert!(second.sorted_ms > first.sorted_ms);
    let next = page(&model, &walk);
    assert_eq!((next.total, next.sorted_ms), (25, first.sorted_ms));
    assert!(model.catalog.sorted_lists.tend(minutes(60)));
    assert!(kept(&model, &query, now).is_none(), "nobody has used it");
    // The walk goes on in a new list, at the number of links that it has seen.
    let rest = ListQuery { cursor: next.next, ..query };
    assert_eq!(find(&model, &rest), Err(SORTING));
    assert!(sorted(&model));
    assert_eq!(numbers(&page(&model, &rest)), [20, 21, 22, 23, 24, 100]);
}

#[test]
fn walk_continues_behind_its_last_link() {
    let model = links(40);
    let query = by_title(Filter::default());
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    let behind = |number: u64, seen: u64, descending: bool| {
        let place = LinkPosition::new(number, numbered(number).0);
        let cursor = Some(Cursor { behind: Behind::Key(Box::default(), place), page: 3, seen });
        let order = SortOrder { descending, ..query.order };
        numbers(&page(&model, &ListQuery { order, cursor, ..query.clone() }))
    };
    // Other links came and went between the last page and the sort.
    for seen in [0, 17, 20, 23, 60] {
        assert_eq!(behind(19, seen, false), (20..30).collect::<Vec<u64>>());
        assert_eq!(behind(19, seen, true), (9..19).rev().collect::<Vec<u64>>());
    }
    // The last link itself is gone.
    assert_eq!(behind(99, 20, false), (20..30).collect::<Vec<u64>>());
    assert_eq!(behind(99, 20, true), (10..20).rev().collect::<Vec<u64>>());
}

#[test]
fn deep_page_leaves_the_first_one_of_now() {
    let model = links(2_600);
    let query = by_title(Filter::default());
    let deep = ListQuery { page: 502, ..query.clone() };
    assert_eq!(model.find(&deep), Err(SORTING));
    assert_eq!(model.page(&query).sorted_ms, None, "a scan need not wait for the sort");
    assert!(sorted(&model));
    model.commit([numbered(2_600)]);
    let first = model.page(&query);
    assert_eq!((first.total, first.sorted_ms), (2_601, None));
    assert!(model.page(&deep).sorted_ms.is_some());
}

#[test]
fn slow_scan_is_not_repeated() {
    let model = links(2_600);
    let query = by_title(Filter::default());
    assert_eq!(model.find_within(&query, Duration::ZERO), Err(SORTING));
    assert_eq!(model.find(&query), Err(SORTING), "a scan would have the time now");
    assert!(sorted(&model));
    assert!(model.page(&query).sorted_ms.is_some());
}

#[test]
fn sort_ends_when_nobody_asks() {
    let model = links(25);
    let [query, other, third] = <[ListQuery; 3]>::try_from(queries(3)).unwrap();
    let (lists, now): (&SortedLists, _) = (&model.catalog.sorted_lists, Instant::now());
    let seconds = |count: u64| now + Duration::from_secs(count);
    assert_eq!(lists.request(&query, now), SORTING);
    lists.request(&other, now);
    let running = lists.next_waiting().unwrap();
    assert!(lists.tend(seconds(60)));
    lists.request(&query, seconds(60));
    assert!(lists.tend(seconds(120)));
    assert!(!lists.tend(seconds(160)));
    assert_eq!(
        lists.request(&third, seconds(160)),
        ListFailure::Sorting { percent: 0, retry_s: 5 },
        "it is the next one"
    );
    sort(&model.catalog, &ByCode, running, 50);
    assert!(sorted(&model));
    assert!(kept(&model, &third, now).is_some());
    assert!(!sorted(&model), "nobody waits for the other one");
}

#[test]
fn restart_leaves_no_files() {
    let model = links(25);
    let query = by_title(Filter::default());
    let folder = |dir: &std::path::Path| dir.join("sorted-lists");
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    assert_eq!(fs::read_dir(folder(model.dir())).unwrap().count(), 0, "a crash leaves no file");
    let model = model.restarted(|dir| fs::write(folder(dir).join("new"), "half a list").unwrap());
    assert!(!folder(model.dir()).exists());
    assert_eq!(find(&model, &query), Err(SORTING), "the list of the last process is gone");
}

#[test]
fn full_disk_ends_the_sort() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ScratchFolder::new(dir.path());
    let mut sorter = ExternalSorter::new(&folder).unwrap().limited(5_000);
    let mut push = |number: u64| sorter.push(&[7; 100], LinkPosition::new(number, numbered(number).0));
    let failed = (0..200).map(&mut push).find_map(Result::err).expect("it has no more room");
    assert_eq!(failed.kind(), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn list_that_fails_is_tried_again_later() {
    let model = links(25);
    let query = by_title(Filter::default());
    // The folder cannot be created.
    let in_the_way = model.dir().join("sorted-lists");
    fs::write(&in_the_way, "").unwrap();
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    assert_eq!(find(&model, &query), Err(ListFailure::NotSorted { retry_s: 60 }));
    assert!(!sorted(&model), "it is not tried at once");
    fs::remove_file(&in_the_way).unwrap();
    let later = Instant::now() + Duration::from_secs(61);
    assert_eq!(model.catalog.sorted_lists.request(&query, later), SORTING);
    assert!(sorted(&model));
    assert_eq!(page(&model, &query).total, 25);
}

#[test]
fn an_app_leaves_room_for_others() {
    let model = links(25);
    let asked_by =
        |app: &str, query: &ListQuery| find(&model, &ListQuery { asker: AppName::parse(app).ok(), ..query.clone() });
    let all = queries(SORTED_LISTS_MAX + 3);
    for query in &all[..SORTS_OF_APP_MAX] {
        assert!(matches!(asked_by("a", query), Err(ListFailure::Sorting { .. })));
    }
    assert_eq!(asked_by("a", &all[SORTS_OF_APP_MAX]), Err(ListFailure::SortsWaiting));
    for query in &all[SORTS_OF_APP_MAX..SORTS_WAITING_MAX] {
        assert!(matches!(asked_by("b", query), Err(ListFailure::Sorting { .. })));
    }
    assert_eq!(asked_by("c", &all[SORTS_WAITING_MAX]), Err(ListFailure::SortsWaiting));
    while sorted(&model) {}
    // One app asks for more lists than it may have: its own ones end.
    let others = &all[SORTS_OF_APP_MAX..SORTS_WAITING_MAX];
    for query in &all[SORTS_WAITING_MAX..] {
        assert_eq!(asked_by("a", query), Err(SORTING));
        assert!(sorted(&model));
    }
    let are_kept =
        |queries: &[ListQuery]| queries.iter().filter(|query| kept(&model, query, Instant::now()).is_some()).count();
    assert_eq!(are_kept(others), others.len());
    assert_eq!(are_kept(&all), others.len() + SORTED_LISTS_OF_APP_MAX);
}

#[test]
fn lists_used_least_recently_end_first() {
    let model = links(25);
    let all = queries(SORTED_LISTS_MAX + 2);
    for query in &all {
        assert_eq!(find(&model, query), Err(SORTING));
        assert!(sorted(&model));
        page(&model, &all[0]);
    }
    let is_kept = |query: &ListQuery| kept(&model, query, Instant::now()).is_some();
    assert_eq!(all.iter().filter(|query| is_kept(query)).count(), SORTED_LISTS_MAX);
    assert!(is_kept(&all[0]));
}

#[test]
fn newer_version_ends_the_older_one_first() {
    let model = links(25);
    let of_app = |query: ListQuery| ListQuery { asker: AppName::parse("a").ok(), ..query };
    let all: Vec<ListQuery> = queries(SORTED_LISTS_OF_APP_MAX).into_iter().map(of_app).collect();
    for query in &all {
        assert_eq!(find(&model, query), Err(SORTING));
        assert!(sorted(&model));
    }
    page(&model, &all[0]);
    assert_eq!(model.catalog.sorted_lists.request(&all[0], Instant::now()), SORTING);
    assert!(sorted(&model));
    assert!(all.iter().all(|query| kept(&model, query, Instant::now()).is_some()));
}

#[test]
fn purge_erases_links_from_lists() {
    let model = links(25);
    let [query, other] = <[ListQuery; 2]>::try_from(queries(2)).unwrap();
    assert_eq!(find(&model, &query), Err(SORTING));
    assert!(sorted(&model));
    assert_eq!(find(&model, &other), Err(SORTING));
    let running = model.catalog.sorted_lists.next_waiting().unwrap();
    let purged = [5, 24].map(|number| PurgedLink::of(&numbered(number).1.unwrap()));
    let request = model.catalog.forget_links(&purged);
    assert!(!model.catalog.has_forgotten(request), "the running sort may have read the links");
    let rest = |query: &ListQuery| {
        let list = kept(&model, query, Instant::now()).unwrap();
        let places = list.read(0, u64::MAX).unwrap();
        assert!(purged.iter().all(|link| !places.contains(&link.position())));
        (list.count(), places.len())
    };
    assert_eq!(rest(&query), (25, 23));
    // The links are still in the store, so the sort reads them.
    sort(&model.catalog, &ByCode, running, 50);
    assert!(model.catalog.has_forgotten(request));
    assert_eq!(rest(&other), (24, 22));
    assert_eq!(numbers(&page(&model, &query)), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
}

#[test]
fn compaction_has_its_room() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ScratchFolder::new(dir.path());
    folder.check_room(0).unwrap();
    folder.leave_room(u64::MAX);
    assert_eq!(folder.check_room(0).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let mut file = folder.create().unwrap();
    file.write(&[7]).unwrap();
    assert_eq!(file.finish().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn thread_ends_with_its_files() {
    let model = links(3_000);
    let query = by_title(Filter::default());
    let thread = start(&model.catalog, Arc::new(ByCode)).unwrap();
    assert!(find(&model, &query).is_err());
    let begin = Instant::now();
    while find(&model, &query).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    model.catalog.stop_sorting();
    thread.join().unwrap();
    assert!(!model.dir().join("sorted-lists").exists());
    assert_eq!(find(&model, &query), Err(ListFailure::SortsWaiting));
    assert_eq!(identity(&query), identity(&ListQuery { page: 7, ..query.clone() }));
}
