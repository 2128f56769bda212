//! Property tests of lists against a plain vector. Links come and go, and every list is read by page number and by
//! cursor, before, during and after the count.

mod model;
mod ranking;

use std::sync::Arc;
use std::time::Duration;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use proptest::prelude::*;

use super::catalog::Tallies;
use super::counting::{count_first, count_part};
use super::filter_builder::work_once;
use super::ranked_page::count;
use super::{IndexedChange, start_signing};
use crate::services::testing::sleeps_of;
use crate::services::threads::priority::Priority;
use carom_limits::{LIST_COUNTED_MAX, LIST_SORTED_MAX};
use carom_model::access::{AppName, Scope};
use carom_model::domains::DomainName;
use carom_model::link::labels::Tags;
use carom_model::link::{Link, Origin, record};
use carom_model::query::{Filter, LinkPosition, ListFailure, ListQuery, OrderField, SortOrder};
use carom_model::testing::{link, newer_record};
use carom_store::links::catalog::{IndexEntry, IndexKind, Marks};

pub(super) use model::{ByCode, CatalogModel, any_change, any_filter, any_order, numbered, saved};
use model::{DOMAINS, code, codes, domain_id, many, query};

/// The answer for a list that waits to be sorted in the background.
pub(super) const SORTING: ListFailure = ListFailure::Sorting { percent: 0, retry_s: 1 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn lists_are_what_was_written(
        before in proptest::collection::vec(any_change(), 0..120),
        during in proptest::collection::vec(proptest::collection::vec(any_change(), 0..20), 1..12),
        after in proptest::collection::vec(any_change(), 0..120),
        asked in proptest::collection::vec((any_filter(), any_order(), 1..9usize), 1..12),
        at_once in 1..40usize,
        sections in prop_oneof![Just(0), Just(3), Just(1_000)],
    ) {
        let model = CatalogModel::with_signatures(sections);
        model.commit(before);
        let check = || asked.iter().for_each(|(filter, order, per_page)| model.check(filter, *order, *per_page));
        check();
        // Links change before each part is read, and again between its read and its count.
        let mut changes = during.into_iter().cycle();
        let (mut next, mut parts) = (|| changes.next().unwrap(), 0);
        for _ in 0..5 {
            model.commit(next());
            work_once(&model.catalog, || model.commit(next())).unwrap();
        }
        check();
        for kind in [IndexKind::Dates, IndexKind::Tags] {
            model.commit(next());
            while count_part(&model.catalog, kind, at_once, || model.commit(next())).unwrap() {
                parts += 1;
                // Changes before the last part could keep the count from ending.
                if parts < 20 {
                    model.commit(next());
                }
            }
        }
        check();
        for changes in after.chunks(7) {
            model.commit(changes.to_vec());
            work_once(&model.catalog, || ()).unwrap();
        }
        check();
        while work_once(&model.catalog, || ()).unwrap() {}
        check();
        check_counts(&model, &asked);
    }
}

/// Checks that the counts of the catalog, of filters and of tags are those of the model.
fn check_counts(model: &CatalogModel, asked: &[(Filter, SortOrder, usize)]) {
    let (view, (dates, tags, of_tags)) = model.catalog.view_with_counts(|counts| {
        (
            counts.dates.whole().unwrap().total(),
            counts.tags.whole().unwrap().total(),
            counts.of_tags.all(&Scope::ALL).unwrap(),
        )
    });
    assert_eq!(dates, model.links.borrow().len() as u64);
    assert_eq!(view.keys(IndexKind::Dates, b"", b"").count() as u64, dates);
    assert_eq!(view.keys(IndexKind::Tags, b"", b"").count() as u64, tags);
    let order = SortOrder { field: OrderField::DateCreated, descending: true };
    let len = |filter: &Filter| model.expected(filter, order).len() as u64;
    for (filter, ..) in asked {
        if let Some(counted) = count(&model.catalog, filter).unwrap() {
            assert_eq!(len(filter), counted, "{filter:?}");
        }
    }
    for (tag, count) in of_tags {
        assert_eq!(len(&Filter { tags: vec![tag.to_string()], ..Filter::default() }), count);
    }
    for domains in [vec![0], vec![1], vec![2], vec![0, 1], vec![1, 2], vec![0, 1, 2]] {
        let scope = Scope::ALL.within(domains.into_iter().map(domain_id));
        let (_, of_domains) = model.catalog.view_with_counts(|counts| counts.of_tags.all(&scope).unwrap());
        for tag in ["a", "b"] {
            let count = of_domains.iter().find(|(known, _)| **known == *tag).map_or(0, |(_, count)| *count);
            assert_eq!(len(&Filter { tags: vec![tag.to_owned()], scope: scope.clone(), ..Filter::default() }), count);
        }
    }
    for app in ["a", "ab", "b", "bb", "none"] {
        let scope = Scope::of_app(AppName::parse(app).unwrap());
        let (_, of_app) = model.catalog.view_with_counts(|counts| counts.of_tags.all(&scope).unwrap());
        for tag in ["a", "b"] {
            let count = of_app.iter().find(|(known, _)| **known == *tag).map_or(0, |(_, count)| *count);
            assert_eq!(len(&Filter { tags: vec![tag.to_owned()], scope: scope.clone(), ..Filter::default() }), count);
        }
        assert!(of_app.iter().all(|(tag, _)| ["a", "b"].contains(&&**tag)));
    }
}

#[test]
fn record_that_is_not_decoded_is_counted_once() {
    let model = many(3);
    for kind in [IndexKind::Dates, IndexKind::Tags] {
        while count_part(&model.catalog, kind, 999, || {}).unwrap() {}
    }
    let links: Vec<Arc<Link>> = model.links.borrow().values().cloned().collect();
    let mut batch = model.catalog.links.batch();
    links.iter().for_each(|link| batch.put(&link.code, &newer_record(link)));
    model.catalog.links.commit(batch).unwrap();
    let totals = || {
        let of_both = |counts: &Tallies| [&counts.dates, &counts.tags].map(|of| of.whole().unwrap().total());
        model.catalog.view_with_counts(of_both).1
    };
    // The first one keeps its place, the second one moves, and the third one ends.
    let (mut batch, moved) = (model.catalog.links.batch(), Arc::new(Link { created_ms: 900, ..(*links[1]).clone() }));
    batch.put(&moved.code, &newer_record(&moved));
    batch.remove(&links[2].code);
    let changes = [(0, Some(&links[0])), (1, Some(&moved)), (2, None)];
    let relisted = changes.map(|(at, after): (usize, _)| IndexedChange::over(links[at].code, after));
    model.catalog.commit(batch, &relisted).unwrap();
    // Entries of tags that this version does not know stay, and readers pass over them.
    assert_eq!(totals(), [2, 4]);
    let dates = model.catalog.links.view().keys(IndexKind::Dates, b"", b"").count();
    assert_eq!(dates, 2);
}

#[test]
fn links_that_are_meant_by_name_come_first_and_once() {
    let model = many(50);
    let named = vec![Code::parse(b"c000003").unwrap(), Code::parse(b"none").unwrap()];
    let filter = Filter { term: Some("c0000".to_owned()), named, ..Filter::default() };
    let first = ListQuery { per_page: 20, ..query(filter.clone(), OrderField::DateCreated) };
    let (mut by_number, mut by_cursor, mut cursor) = (Vec::new(), Vec::new(), None);
    for page in 1..=3 {
        let of_number = model.page(&ListQuery { page, ..first.clone() });
        assert_eq!((of_number.total, of_number.next.is_some()), (50, page < 3));
        by_number.extend(codes(&of_number));
        let of_cursor = model.page(&ListQuery { cursor: cursor.take(), ..first.clone() });
        assert_eq!(of_cursor.total, 50);
        by_cursor.extend(codes(&of_cursor));
        cursor = of_cursor.next;
    }
    let newest = (0..50).rev().filter(|number| *number != 3).map(|number| format!("c{number:06}"));
    let expected: Vec<String> = std::iter::once("c000003".to_owned()).chain(newest).collect();
    let text = |codes: &[Code]| codes.iter().map(Code::to_string).collect::<Vec<_>>();
    assert_eq!((text(&by_number), text(&by_cursor)), (expected.clone(), expected));
    // A link that is named must meet all other conditions as well.
    let odd = Filter { tags: vec!["even".to_owned()], ..filter };
    let even = model.page(&ListQuery { per_page: 20, ..query(odd, OrderField::DateCreated) });
    assert_eq!((even.total, codes(&even)[0].to_string()), (25, "c000048".to_owned()));
}

#[test]
fn long_lists_say_what_they_do_not_know_and_go_on() {
    let model = many(LIST_SORTED_MAX + 1);
    let all = LIST_SORTED_MAX as u64 + 1;
    // Nothing is counted yet.
    let first = model.page(&query(Filter::default(), OrderField::DateCreated));
    assert_eq!((first.total, first.complete, first.links.len()), (LIST_COUNTED_MAX, false, 10));
    let search = query(Filter { term: Some("c".to_owned()), ..Filter::default() }, OrderField::DateCreated);
    let first = model.page(&search);
    assert_eq!((first.total, first.complete, first.links.len()), (LIST_COUNTED_MAX, false, 10));
    // Following cursors to the end shows each link once, and then the exact total.
    let (mut seen, mut page) = (Vec::new(), first);
    while page.next.is_some() {
        seen.extend(codes(&page));
        page = model.page(&ListQuery { cursor: page.next, per_page: 500, ..search.clone() });
    }
    seen.extend(codes(&page));
    assert_eq!((seen.len() as u64, page.total, page.complete), (all, all, true));
    assert_eq!(seen, model.expected(&search.filter, search.order));
    while count_part(&model.catalog, IndexKind::Dates, 999, || {}).unwrap() {}
    while count_part(&model.catalog, IndexKind::Tags, 999, || {}).unwrap() {}
    let counted = model.page(&query(Filter::default(), OrderField::DateCreated));
    assert_eq!((counted.total, counted.complete), (all, true));
    let last = ListQuery { page: all.div_ceil(10), ..query(Filter::default(), OrderField::DateCreated) };
    assert_eq!(codes(&model.page(&last)), [code("c000000")]);
    // Orders without an index: a scan finds each page.
    for (filter, field) in [(Filter::default(), OrderField::LongUrl), (search.filter, OrderField::Visits)] {
        for descending in [false, true] {
            model.check(&filter, SortOrder { field, descending }, 490);
        }
        // A list that takes too long is sorted in the background.
        let hurried = model.find_within(&query(filter, field), Duration::ZERO);
        assert!(matches!(hurried, Err(ListFailure::Sorting { .. })), "{hurried:?}");
    }
    let deep = model.find(&ListQuery { page: 502, ..query(Filter::default(), OrderField::Title) });
    assert!(matches!(deep, Err(ListFailure::Sorting { .. })), "{deep:?}");
    let half = Filter { tags: vec!["odd".to_owned()], ..Filter::default() };
    assert_eq!(model.page(&query(half.clone(), OrderField::Title)).total, all / 2);
    model.check(&half, SortOrder { field: OrderField::ShortCode, descending: true }, 490);
    model.check(&Filter::default(), SortOrder { field: OrderField::ShortCode, descending: false }, 490);
}

#[test]
fn long_lists_of_a_tag_are_sorted_by_its_entries() {
    let model = counted(2 * LIST_SORTED_MAX + 100);
    let odd = Filter { tags: vec!["odd".to_owned()], ..Filter::default() };
    // These links have left the tag since it was counted.
    model.commit((1..40).step_by(2).map(|number| (code(&format!("c{number:06}")), None)));
    for field in [OrderField::LongUrl, OrderField::Visits] {
        for descending in [false, true] {
            model.check(&odd, SortOrder { field, descending }, 490);
        }
    }
    // Entries that lack another tag take time, too.
    let both = Filter { tags: vec!["odd".to_owned(), "even".to_owned()], all_tags: true, ..Filter::default() };
    let hurried = query(both, OrderField::LongUrl);
    assert_eq!(model.page(&hurried).total, 0);
    assert_eq!(model.find_within(&hurried, Duration::ZERO), Err(SORTING));
}

/// Returns a model of as many links, which have been counted.
fn counted(links: usize) -> CatalogModel {
    let model = many(links);
    for kind in [IndexKind::Dates, IndexKind::Tags] {
        while count_part(&model.catalog, kind, 999, || {}).unwrap() {}
    }
    model
}

#[test]
fn long_lists_of_an_app_are_sorted_by_code() {
    let model = CatalogModel::new();
    let of_app = |number: u64| {
        let (code, link) = numbered(number);
        let mut link = link.unwrap();
        link.labels.app = AppName::parse(if number.is_multiple_of(2) { "a" } else { "b" }).ok();
        // In the opposite order of the codes.
        link.created_ms = 9_000 - number;
        (code, Some(link))
    };
    model.commit((0..2 * LIST_SORTED_MAX as u64 + 100).map(of_app));
    let filter = Filter { scope: Scope::of_app(AppName::parse("a").unwrap()), ..Filter::default() };
    for descending in [false, true] {
        model.check(&filter, SortOrder { field: OrderField::ShortCode, descending }, 490);
    }
}

#[test]
fn counting_pauses_beside_cores_after_some_keys() {
    let model = many(500);
    let catalog = Arc::clone(&model.catalog);
    let count = move || while count_part(&catalog, IndexKind::Dates, 999, || {}).unwrap() {};
    let sleeps = sleeps_of(Priority::Background, count);
    assert!((8..250).contains(&sleeps), "{sleeps} for 500 keys");
}

#[test]
fn first_part_is_all_of_a_small_store() {
    let model = many(500);
    count_first(&model.catalog);
    let are_whole = |counts: &Tallies| counts.dates.whole().is_some() && counts.tags.whole().is_some();
    assert!(model.catalog.view_with_counts(are_whole).1, "lists would get 503 until the thread has counted");
}

#[test]
fn domain_of_a_new_link_is_found_at_once() {
    let model = CatalogModel::new();
    let domains = carom_model::testing::three_domains().finding_linked(model.catalog.linked_domains());
    let late = DomainName::parse("late.example").unwrap();
    let found = || domains.ids_containing("late.ex");
    assert_eq!((found(), domains.has_linked()), (Vec::new(), false));
    let mut of_late = link("a", Origin::Custom);
    of_late.code = of_late.code.within(Some(late.id()));
    of_late.labels.domain = Some(late.clone());
    let mut of_go = link("b", Origin::Custom);
    let go = DomainName::parse("go.test").unwrap();
    (of_go.code, of_go.labels.domain) = (of_go.code.within(Some(go.id())), Some(go.clone()));
    model.commit([(of_go.code, Some(of_go))]);
    assert_eq!((domains.ids_containing("go.test"), domains.has_linked()), (vec![Some(go.id())], false));
    model.commit([(of_late.code, Some(of_late))]);
    assert_eq!((found(), domains.has_linked()), (vec![Some(late.id())], true));
}

#[test]
fn searches_pause_beside_cores() {
    let model = many(500);
    let term = || Filter { term: Some("c0".to_owned()), ..Filter::default() };
    for (field, scans) in [(OrderField::DateCreated, false), (OrderField::ShortCode, false), (OrderField::Title, true)]
    {
        let sleeps = model.sleeps_of_find(Priority::Long, query(term(), field), scans);
        assert!(sleeps >= 10, "{sleeps} for 500 links by {field:?}");
    }
    let sleeps = model.sleeps_of_find(Priority::Urgent, query(term(), OrderField::DateCreated), false);
    assert!(sleeps < 10, "{sleeps}: a thread that requests wait for does not pause");
}

#[test]
fn a_search_that_takes_too_long_goes_on_with_the_next_request() {
    let model = many(300);
    let rare = Filter { term: Some("c00029".to_owned()), ..Filter::default() };
    for field in [OrderField::DateCreated, OrderField::ShortCode] {
        let order = SortOrder { field, descending: false };
        let mut query = ListQuery { order, ..query(rare.clone(), field) };
        let (mut found, mut asked) = (Vec::new(), 0);
        loop {
            let Ok(page) = model.find_within(&query, Duration::ZERO) else { panic!("no page") };
            asked += 1;
            found.extend(codes(&page));
            assert_eq!((page.complete, page.page), (page.next.is_none(), asked));
            query.cursor = page.next;
            if query.cursor.is_none() {
                assert_eq!(page.total, 10, "all that were found on the way count");
                break;
            }
        }
        assert_eq!((found, asked), (model.expected(&rare, order), 5), "63 links are looked at without the clock");
        let beyond = ListQuery { cursor: None, page: 2, ..query };
        assert_eq!(model.find_within(&beyond, Duration::ZERO), Err(ListFailure::TooDeep));
    }
    let sorted = query(rare, OrderField::Title);
    assert_eq!(model.find_within(&sorted, Duration::ZERO), Err(SORTING));
}

#[test]
fn a_search_reads_few_of_the_links_that_have_no_such_text() {
    let model = CatalogModel::with_signatures(1_000);
    let number_of = |number: u64| {
        let mut link = link(&format!("c{number:06}"), Origin::Issued);
        link.created_ms = number;
        link.labels.tags = Tags::of(["all"]).unwrap();
        (link.code, Some(link))
    };
    // Some links exist before signing starts, and some are added during it.
    model.commit((0..500).map(number_of));
    while work_once(&model.catalog, || ()).unwrap() {}
    model.commit((500..1_000).map(number_of));
    for tags in [vec![], vec!["all".to_owned()]] {
        let rare = Filter { term: Some("00321".to_owned()), tags, ..Filter::default() };
        for field in [OrderField::DateCreated, OrderField::ShortCode, OrderField::Title] {
            for descending in [false, true] {
                let query = query(rare.clone(), field);
                let query = ListQuery { order: SortOrder { field, descending }, ..query };
                let is_of_tag = !rare.tags.is_empty();
                // With no time, 63 links are read before the clock; entries of a tag are scanned.
                let time_max = if is_of_tag { Duration::from_secs(60) } else { Duration::ZERO };
                let Ok(page) = model.find_within(&query, time_max) else { panic!("{query:?}") };
                assert_eq!((codes(&page), page.complete), (vec![code("c000321")], true), "{query:?}");
            }
        }
    }
    // A search finds the new text of a link at once.
    let (changed, other) = (code("c000007"), number_of(7).1.unwrap());
    model.commit([(changed, Some(Link { target: "https://changed.example/".to_owned(), ..other }))]);
    let search = query(Filter { term: Some("changed".to_owned()), ..Filter::default() }, OrderField::DateCreated);
    let Ok(page) = model.find_within(&search, Duration::ZERO) else { panic!("no page") };
    assert_eq!((codes(&page), page.complete), (vec![changed], true));
}

#[test]
fn whoever_signs_is_woken_for_what_comes_and_ends_when_it_is_told_to() {
    let model = CatalogModel::with_signatures(1_000);
    let numbered = |number: u64| {
        let mut link = link(&format!("c{number:06}"), Origin::Issued);
        link.created_ms = number;
        (link.code, Some(link))
    };
    model.commit((0..40).map(numbered));
    let signing = start_signing(&model.catalog).unwrap();
    let wait_for = |wanted: usize| {
        let begin = std::time::Instant::now();
        while model.catalog.signatures().coverage().1 < wanted {
            assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", model.catalog.signatures().coverage());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // New links wait in sections of sixteen; dividing makes sections of four.
    wait_for(4);
    // Gives the thread time to fall asleep, so that it must be woken. The result does not depend on it.
    std::thread::sleep(Duration::from_millis(30));
    (40..200).for_each(|number| model.commit([numbered(number)]));
    wait_for(40);
    model.catalog.stop();
    signing.join().unwrap();
}

#[test]
fn a_search_of_texts_goes_on_where_it_was() {
    let model = CatalogModel::with_signatures(1_000);
    let numbered = |number: u64| {
        let mut link = link(&format!("c{number:06}"), Origin::Issued);
        link.created_ms = number / 3;
        (link.code, Some(link))
    };
    model.commit((0..800).map(numbered));
    while work_once(&model.catalog, || ()).unwrap() {}
    // For so short a term every section must be searched, and few links have it.
    let limits = [(None, None), (Some(20), Some(200)), (Some(21), None), (None, Some(199))];
    for ((since_ms, until_ms), descending) in limits.into_iter().zip([false, true].into_iter().cycle()) {
        for (term, per_page) in [("77", 7), ("77", 500), ("c00", 7), ("c00", 500), ("5", 500), ("321", 7)] {
            let filter = Filter { term: Some(term.to_owned()), since_ms, until_ms, ..Filter::default() };
            let order = SortOrder { field: OrderField::DateCreated, descending };
            let mut query = ListQuery { order, per_page, ..query(filter.clone(), OrderField::DateCreated) };
            let (mut found, mut asked) = (Vec::new(), 0);
            loop {
                let Ok(page) = model.find_within(&query, Duration::ZERO) else { panic!("no page") };
                found.extend(codes(&page));
                query.cursor = page.next;
                asked += 1;
                if query.cursor.is_none() {
                    break;
                }
                assert!(asked < 300, "it does not come to an end: {query:?}");
            }
            assert_eq!(found, model.expected(&filter, order), "{query:?}");
            assert!(asked > 1, "{query:?}");
        }
    }
    // More links are named than a page holds: the scan finds them, whatever their texts are.
    let named = vec![code("c000321"), code("c000322")];
    let by_name = Filter { term: Some("none of them".to_owned()), named, ..Filter::default() };
    let page = model.page(&ListQuery { per_page: 1, ..query(by_name, OrderField::DateCreated) });
    assert_eq!((codes(&page), page.total), (vec![code("c000322")], 2));
}

#[test]
fn search_that_names_the_default_domain_reads_few_links() {
    let model = CatalogModel::with_signatures(1_000);
    let numbered = |number: u64| {
        let domain = if number < 10 { 0 } else { 1 };
        let mut link = link(&format!("c{number:06}"), Origin::Issued);
        link.code = link.code.within(domain_id(domain));
        link.labels.domain = DomainName::parse(DOMAINS[domain]).ok();
        link.created_ms = number + 1;
        link
    };
    model.commit((0..200).map(numbered).map(|link| (link.code, Some(link))));
    while work_once(&model.catalog, || ()).unwrap() {}
    let filter = Filter { term: Some("hidden".to_owned()), term_domains: vec![None], ..Filter::default() };
    // A title that the signature of its section lacks: a search that reads the link would find it.
    let mut changed = numbered(20);
    changed.labels.title = Some("hidden".to_owned());
    let (mut batch, mut record) = (model.catalog.links.batch(), Vec::new());
    record::encode_link(changed.code.key(&mut [0; CODE_KEY_LEN_MAX]), &changed, &mut record);
    batch.put(&changed.code, &record);
    model.catalog.links.commit(batch).unwrap();
    for field in [OrderField::DateCreated, OrderField::Title] {
        let query = ListQuery { per_page: 100, ..query(filter.clone(), field) };
        assert_eq!(codes(&model.page(&query)), model.expected(&filter, query.order), "{field:?}");
    }
    // An entry without a link: a search that reads it would not count it.
    let mut batch = model.catalog.links.batch();
    let key = LinkPosition::new(0, code("nothing")).to_bytes();
    batch.put_index_entry(&IndexEntry { kind: IndexKind::Dates, key, marks: Marks::default() });
    model.catalog.links.commit(batch).unwrap();
    assert_eq!(model.page(&query(filter, OrderField::DateCreated)).total, 11);
}

#[test]
fn entries_without_a_link_are_passed_over() {
    let model = many(20);
    let mut batch = model.catalog.links.batch();
    // An entry without a link, as of an import that was cut off, and one whose link has another creation time.
    for (ms, name) in [(3, "nothing"), (4, "c000007")] {
        batch.put_index_entry(&IndexEntry {
            kind: IndexKind::Dates,
            key: LinkPosition::new(ms, code(name)).to_bytes(),
            marks: Marks::default(),
        });
    }
    model.catalog.links.commit(batch).unwrap();
    while count_part(&model.catalog, IndexKind::Dates, 7, || {}).unwrap() {}
    let everything = ListQuery { per_page: 100, ..query(Filter::default(), OrderField::DateCreated) };
    assert_eq!(codes(&model.page(&everything)), model.expected(&everything.filter, everything.order));
    let search = ListQuery { filter: Filter { term: Some("c0".to_owned()), ..Filter::default() }, ..everything };
    let found = model.page(&search);
    assert_eq!((found.total, found.links.len()), (20, 20));
}
