//! How many links each tag has, and lists of tags.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use super::visits::Visits;
use super::walk::Run;
use crate::apps::Scope;
use crate::limits::{LIST_SORTED_MAX, TAGS_COUNTED_MAX};
use crate::listing::{Filter, TagField, TagPage, TagQuery, app_shelf, is_app_shelf};
use crate::store::links::StoreError;
use crate::store::links::catalog::{View, shelf_of};
use crate::visits::tally::Counts;

/// How many links each tag has.
#[derive(Debug)]
pub(super) enum TagCounts {
    /// These many, in the order of the tags.
    Known(BTreeMap<Arc<str>, u64>),
    /// There were more tags than are counted.
    TooMany,
}

impl Default for TagCounts {
    fn default() -> TagCounts {
        TagCounts::Known(BTreeMap::new())
    }
}

impl TagCounts {
    /// Takes an entry of the index of tags into account.
    pub(super) fn change(&mut self, key: &[u8], added: bool) {
        let (TagCounts::Known(counts), Some(tag)) = (&mut *self, shelf_of(key)) else { return };
        if let Some(count) = counts.get_mut(tag) {
            *count = if added { *count + 1 } else { *count - 1 };
            if *count == 0 {
                counts.remove(tag);
            }
        } else if added && counts.len() >= TAGS_COUNTED_MAX {
            *self = TagCounts::TooMany;
        } else if added && let Entry::Vacant(vacant) = counts.entry(tag.into()) {
            vacant.insert(1);
        }
    }

    /// All tags that links have which are within; `None` where there are too many.
    pub(super) fn all(&self, scope: &Scope) -> Option<Vec<(Arc<str>, u64)>> {
        let TagCounts::Known(counts) = self else { return None };
        Some(match scope.app() {
            None => {
                let tags = counts.iter().filter(|(tag, _)| !is_app_shelf(tag));
                tags.map(|(tag, count)| (Arc::clone(tag), *count)).collect()
            }
            Some(app) => {
                let before = app_shelf(app.as_str(), Some(""));
                let of_app = counts.range::<str, _>((Bound::Included(&*before), Bound::Unbounded));
                let tags = of_app.map_while(|(shelf, count)| Some((shelf.strip_prefix(&*before)?.into(), *count)));
                tags.collect()
            }
        })
    }
}

/// A page of tags, of all in their order.
pub(super) fn page(mut tags: Vec<(Arc<str>, u64)>, query: &TagQuery) -> TagPage {
    if let Some(term) = &query.term {
        tags.retain(|(tag, _)| tag.contains(&**term));
    }
    // Those of equal counts stay in the order of the tags.
    match (query.field, query.descending) {
        (TagField::Tag, false) => {}
        (TagField::Tag, true) => tags.reverse(),
        (TagField::Links, false) => tags.sort_by_key(|(_, count)| *count),
        (TagField::Links, true) => tags.sort_by_key(|(_, count)| std::cmp::Reverse(*count)),
    }
    let total = tags.len() as u64;
    let skipped = (query.page - 1).saturating_mul(query.per_page as u64);
    let tags = tags.into_iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).take(query.per_page).collect();
    TagPage { tags, visits: Vec::new(), total }
}

/// How often the links of each tag were followed. So many links are added up at most: tags that have more of them than are left
/// are passed over.
///
/// # Errors
/// Where the store cannot be read.
pub(super) fn add_visits(
    page: &mut TagPage,
    scope: &Scope,
    view: &View,
    visits: &dyn Visits,
) -> Result<(), StoreError> {
    let mut left = LIST_SORTED_MAX as u64;
    for (tag, count) in &page.tags {
        let of_tag = match left.checked_sub(*count) {
            None => None,
            Some(rest) => {
                left = rest;
                let shelf = scope.app().map(|app| app_shelf(app.as_str(), Some(tag)));
                let places = Run::of_tag(shelf.as_deref().unwrap_or(tag), &Filter::default()).places(view, false);
                // There may be some more by now.
                let codes = places
                    .take(LIST_SORTED_MAX)
                    .map(|place| Ok(place?.code))
                    .collect::<Result<Vec<_>, StoreError>>()?;
                let mut sum = Counts::default();
                visits.counts(&codes)?.into_iter().for_each(|counts| sum.add(counts));
                Some(sum)
            }
        };
        page.visits.push(of_tag);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::links::catalog::{CRAWLABLE, tag_key};

    fn counts(tags: &[&str]) -> TagCounts {
        let mut counts = TagCounts::default();
        tags.iter().for_each(|tag| counts.change(&tag_key(tag, b"place"), true));
        counts
    }

    #[test]
    fn tags_are_counted_and_paged() {
        let mut counts = counts(&["b", "a", "b", "ab", CRAWLABLE, "c"]);
        counts.change(&tag_key("c", b"place"), false);
        let asked = |field, descending, term: Option<&str>, page| {
            let term = term.map(str::to_owned);
            let found = super::page(
                counts.all(&Scope::All).unwrap(),
                &TagQuery { scope: Scope::All, term, field, descending, page, per_page: 2, with_visits: false },
            );
            (found.tags.iter().map(|(tag, count)| format!("{tag}{count}")).collect::<Vec<_>>().join(" "), found.total)
        };
        assert_eq!(asked(TagField::Tag, false, None, 1), ("a1 ab1".into(), 3));
        assert_eq!(asked(TagField::Tag, false, None, 2), ("b2".into(), 3));
        assert_eq!(asked(TagField::Tag, true, None, 1), ("b2 ab1".into(), 3));
        assert_eq!(asked(TagField::Links, true, None, 1), ("b2 a1".into(), 3));
        assert_eq!(asked(TagField::Links, false, Some("b"), 1), ("ab1 b2".into(), 2));
        assert_eq!(asked(TagField::Tag, false, None, u64::MAX), (String::new(), 3));
    }

    #[test]
    fn more_tags_than_are_counted_are_not() {
        let mut counts = TagCounts::default();
        (0..TAGS_COUNTED_MAX).for_each(|number| counts.change(&tag_key(&number.to_string(), b""), true));
        counts.change(&tag_key("0", b"x"), true);
        assert_eq!(counts.all(&Scope::All).unwrap().len(), TAGS_COUNTED_MAX);
        counts.change(&tag_key("one more", b""), true);
        counts.change(&tag_key("0", b""), false);
        assert!(counts.all(&Scope::All).is_none());
    }
}
