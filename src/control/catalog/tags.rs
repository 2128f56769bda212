//! How many links each tag has, and lists of tags.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use carom_shards::{Code, DomainId};

use super::visits::Visits;
use super::walk::Run;
use crate::apps::{AppName, Scope};
use crate::limits::{
    LIST_LOOKED_MAX, LIST_SORTED_MAX, TAGS_COUNTED_MAX, TAGS_OF_APP_COUNTED_MAX, TAGS_OF_APPS_COUNTED_MAX,
};
use crate::listing::{
    Filter, TagField, TagPage, TagQuery, app_shelf, domain_shelf, is_domain_shelf, owner_and_tag, with_tag,
};
use crate::store::links::StoreError;
use crate::store::links::catalog::{Shelf, View, place_of, shelf_of};
use crate::visits::tally::Counts;

/// Tags, and how many links each has.
type Counted = Vec<(Arc<str>, u64)>;

/// Most tags of apps and domains that are gone through to tell those of the default domain.
const TAGS_MERGED_MAX: usize = 50_000;

/// How many links each tag has: of all links, and of those of each app and of each domain that is not the default one.
#[derive(Debug, Default)]
pub(super) struct TagCounts {
    of_all: Tags,
    /// By their shelves.
    of_owners: HashMap<Box<str>, Tags>,
    /// Tags of all apps and domains together.
    owned: usize,
}

/// How many links each of some tags has.
#[derive(Debug)]
enum Tags {
    /// These many, in the order of the tags.
    Known(BTreeMap<Arc<str>, u64>),
    /// There were more tags than are counted.
    TooMany,
}

impl Default for Tags {
    fn default() -> Tags {
        Tags::Known(BTreeMap::new())
    }
}

impl Tags {
    /// Takes a link more or less into account.
    fn change(&mut self, tag: &str, added: bool, most: usize) {
        let Tags::Known(counts) = self else { return };
        if let Some(count) = counts.get_mut(tag) {
            *count = if added { *count + 1 } else { *count - 1 };
            if *count == 0 {
                counts.remove(tag);
            }
        } else if added && counts.len() >= most {
            *self = Tags::TooMany;
        } else if added && let Entry::Vacant(vacant) = counts.entry(tag.into()) {
            vacant.insert(1);
        }
    }

    fn len(&self) -> usize {
        if let Tags::Known(counts) = self { counts.len() } else { 0 }
    }

    fn all(&self) -> Option<Counted> {
        match self {
            Tags::Known(counts) => Some(counts.iter().map(|(tag, count)| (Arc::clone(tag), *count)).collect()),
            Tags::TooMany => None,
        }
    }
}

impl TagCounts {
    /// Takes an entry of the index of tags into account. An app or domain with too many tags takes nothing from the others.
    pub(super) fn change(&mut self, key: &[u8], added: bool) {
        let Some(shelf) = shelf_of(key) else { return };
        let Some((owner, tag)) = owner_and_tag(shelf) else {
            return self.of_all.change(shelf, added, TAGS_COUNTED_MAX);
        };
        let most = if self.owned >= TAGS_OF_APPS_COUNTED_MAX { 0 } else { TAGS_OF_APP_COUNTED_MAX };
        if let Some(tags) = self.of_owners.get_mut(owner) {
            let before = tags.len();
            tags.change(tag, added, most);
            self.owned = self.owned + tags.len() - before;
        } else {
            let mut tags = Tags::default();
            tags.change(tag, added, most);
            self.owned += tags.len();
            self.of_owners.insert(owner.into(), tags);
        }
    }

    /// All tags that links have which are within; `None` where there are too many. Those of an app are of all domains: see
    /// [`of_app_within`].
    pub(super) fn all(&self, scope: &Scope) -> Option<Counted> {
        match (scope.app(), scope.domains()) {
            (None, None) => self.of_all.all(),
            (Some(app), _) => self.of_owner(&app_shelf(app.as_str())),
            (None, Some(domains)) => self.of_domains(domains),
        }
    }

    fn of_owner(&self, shelf: &str) -> Option<Counted> {
        self.of_owners.get(shelf).map_or(Some(Vec::new()), Tags::all)
    }

    /// Those of the default domain are what the others leave.
    fn of_domains(&self, domains: &[Option<DomainId>]) -> Option<Counted> {
        let mut sum: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        if domains.contains(&None) {
            // Commits wait for this.
            if self.owned > TAGS_MERGED_MAX {
                return None;
            }
            sum.extend(self.of_all.all()?);
            for (_, tags) in self.of_owners.iter().filter(|(shelf, _)| is_domain_shelf(shelf)) {
                for (tag, count) in tags.all()? {
                    sum.entry(tag).and_modify(|all| *all = all.saturating_sub(count));
                }
            }
        }
        for domain in domains.iter().flatten() {
            for (tag, count) in self.of_owner(&domain_shelf(*domain))? {
                *sum.entry(tag).or_default() += count;
            }
        }
        sum.retain(|_, count| *count > 0);
        Some(sum.into_iter().collect())
    }
}

/// The tags of the links of an app that are in some domains: nobody counts those, so they are gone through. `None` where there
/// are too many.
///
/// # Errors
/// Where the store cannot be read.
pub(super) fn of_app_within(view: &View, app: &AppName, scope: &Scope) -> Result<Option<Counted>, StoreError> {
    let shelves = with_tag(&app_shelf(app.as_str()), "");
    let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for (number, key) in view.keys_behind(Shelf::Tags, shelves.as_bytes()).enumerate() {
        let key = key?;
        let Some(shelf) = shelf_of(&key) else { continue };
        let place = place_of(&key, shelf.len() + 1);
        let (Some((_, tag)), Some(place)) = (owner_and_tag(shelf), place) else { continue };
        if scope.has_domain(place.code.domain()) {
            *counts.entry(tag.into()).or_default() += 1;
        }
        if number as u64 >= LIST_LOOKED_MAX || counts.len() > TAGS_OF_APP_COUNTED_MAX {
            return Ok(None);
        }
    }
    Ok(Some(counts.into_iter().collect()))
}

/// A page of tags, of all in their order.
pub(super) fn page(mut tags: Counted, query: &TagQuery) -> TagPage {
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
                let shelf = scope.app().map(|app| with_tag(&app_shelf(app.as_str()), tag));
                let places = Run::of_tag(shelf.as_deref().unwrap_or(tag), &Filter::default()).places(view, false);
                let is_within = |code: &Result<Code, StoreError>| match code {
                    Ok(code) => scope.has_domain(code.domain()),
                    Err(_) => true,
                };
                // There may be some more by now, and those of other domains.
                let codes = places.take(LIST_LOOKED_MAX as usize).map(|place| Ok(place?.code)).filter(is_within);
                let codes = codes.take(LIST_SORTED_MAX).collect::<Result<Vec<_>, StoreError>>()?;
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
                counts.all(&Scope::ALL).unwrap(),
                &TagQuery { scope: Scope::ALL, term, field, descending, page, per_page: 2, with_visits: false },
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
        assert_eq!(counts.all(&Scope::ALL).unwrap().len(), TAGS_COUNTED_MAX);
        counts.change(&tag_key("one more", b""), true);
        counts.change(&tag_key("0", b""), false);
        assert!(counts.all(&Scope::ALL).is_none());
    }

    #[test]
    fn an_app_with_too_many_tags_takes_nothing_from_others() {
        let mut counts = counts(&["mine"]);
        let put = |counts: &mut TagCounts, app: &str, tag: &str| {
            counts.change(&tag_key(&with_tag(&app_shelf(app), tag), b""), true);
        };
        put(&mut counts, "b", "x");
        (0..=TAGS_OF_APP_COUNTED_MAX).for_each(|number| put(&mut counts, "a", &number.to_string()));
        let of = |app: &str| counts.all(&Scope::of_app(AppName::parse(app).unwrap())).map(|tags| tags.len());
        assert_eq!((of("a"), of("b"), of("c")), (None, Some(1), Some(0)));
        assert_eq!(counts.all(&Scope::ALL).unwrap().len(), 1);
    }
}
