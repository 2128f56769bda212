//! Tests of lists by descending visits, whose first pages come from a ranking of the most visited links.

use std::cmp::Reverse;
use std::time::Duration;

use carom_shards::Code;

use super::counted;
use super::model::{CatalogModel, DamagedAt, Ranked, Tied, codes, numbered, query};
use crate::services::search::list::Finder;
use crate::services::search::sort_job::sort_once;
use crate::services::search::visits::VisitSource;
use carom_limits::LIST_SORTED_MAX;
use carom_model::query::{Filter, ListFailure, ListPage, ListQuery, OrderField, SortOrder};

const MOST_VISITED: SortOrder = SortOrder { field: OrderField::Visits, descending: true };

/// Finds a page. If the list has to be sorted in the background, does that first.
fn page_of(model: &CatalogModel, visits: &dyn VisitSource, query: &ListQuery) -> ListPage {
    let finder = Finder::within(&model.catalog, visits, query, 50, Duration::from_secs(60));
    let found = finder.find().unwrap();
    if !matches!(found, Err(ListFailure::Sorting { .. })) {
        return found.unwrap();
    }
    assert!(sort_once(&model.catalog, visits, 50));
    finder.find().unwrap().unwrap()
}

/// Reads six pages of 490 links by descending visits. Returns the links by page number, and those by cursor.
fn most_visited_first(model: &CatalogModel, visits: &dyn VisitSource) -> (Vec<Code>, Vec<Code>) {
    let all = model.links.borrow().len() as u64;
    let first = ListQuery { per_page: 490, ..query(Filter::default(), OrderField::Visits) };
    let (mut by_number, mut by_cursor, mut cursor) = (Vec::new(), Vec::new(), None);
    for page in 1..=6 {
        let of_number = page_of(model, visits, &ListQuery { page, ..first.clone() });
        assert_eq!((of_number.total, of_number.complete), (all, true));
        assert_eq!(of_number.next.is_some(), page < 6);
        by_number.extend(codes(&of_number));
        let of_cursor = page_of(model, visits, &ListQuery { cursor: cursor.take(), ..first.clone() });
        assert_eq!((of_cursor.total, of_cursor.page), (all, page));
        by_cursor.extend(codes(&of_cursor));
        cursor = of_cursor.next;
    }
    assert_eq!(cursor, None);
    (by_number, by_cursor)
}

#[test]
fn lists_by_visits_go_on_behind_the_ranking() {
    // A scan finds each page of the first list; the ranking has the first pages of the others. The last one is too long for
    // a scan.
    for all in [2_550, 2_700, 2_900] {
        let model = counted(all);
        let expected = model.expected(&Filter::default(), MOST_VISITED);
        let found = most_visited_first(&model, &Ranked(expected.clone()));
        assert_eq!(found, (expected.clone(), expected));
    }
}

#[test]
fn links_with_equal_visits_are_listed_once() {
    // While the ranking has few links, it is not used.
    for (links, ranks_all) in [(2_700, true), (2_700, false), (2_900, true), (2_900, false)] {
        let mut numbers: Vec<u64> = (0..links).collect();
        numbers.sort_by_key(|number| Reverse((Tied::visits_of(*number), *number)));
        let expected: Vec<Code> = numbers.into_iter().map(|number| numbered(number).0).collect();
        let found = most_visited_first(&counted(links as usize), &Tied { links, ranks_all });
        assert_eq!(found, (expected.clone(), expected), "{links} {ranks_all}");
    }
}

#[test]
fn filtered_lists_go_on_behind_the_ranking() {
    let links = 2 * LIST_SORTED_MAX as u64 + 700;
    let (model, visits) = (counted(links as usize), Tied { links, ranks_all: true });
    let odd = Filter { tags: vec!["odd".to_owned()], ..Filter::default() };
    let term = Filter { term: Some("c00".to_owned()), ..Filter::default() };
    // Nobody knows how many links have the term, until the list is sorted.
    for (filter, is_counted) in [(odd, true), (term, false)] {
        let mut numbers: Vec<u64> = (0..links).filter(|number| !is_counted || number % 2 == 1).collect();
        numbers.sort_by_key(|number| Reverse((Tied::visits_of(*number), *number)));
        let expected: Vec<Code> = numbers.into_iter().map(|number| numbered(number).0).collect();
        let (mut found, mut next) = (Vec::new(), ListQuery { per_page: 100, ..query(filter, OrderField::Visits) });
        loop {
            let page = page_of(&model, &visits, &next);
            assert_eq!(page.complete, is_counted || page.sorted_ms.is_some());
            assert!(!page.complete || page.total == expected.len() as u64, "{}", page.total);
            assert_eq!(page.sorted_ms.is_some(), found.len() >= 1_400, "the ranking has the first pages");
            found.extend(codes(&page));
            next.cursor = page.next;
            if next.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn damaged_visits_of_a_link_leave_other_pages() {
    // A scan finds the page of the first list, the ranking that of the second one.
    for all in [2_550, 2_700] {
        let model = counted(all);
        let mut expected = model.expected(&Filter::default(), MOST_VISITED);
        let ranking = Ranked(expected.clone());
        // The link comes last, as one without visits.
        let visits = &DamagedAt { code: expected.remove(0), ranking };
        let page = page_of(&model, visits, &query(Filter::default(), OrderField::Visits));
        assert_eq!((page.total, codes(&page)), (all as u64, expected[..10].to_vec()));
    }
}
