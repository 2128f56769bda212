//! Counts of links by tag, and lists of tags.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use carom_shards::{Code, DomainId};

use super::bounded_scan::IndexRun;
use super::visits::VisitSource;
use crate::services::threads::priority::PacedLoop;
use carom_limits::{
    LIST_LOOKED_MAX, LIST_SORTED_MAX, TAGS_COUNTED_MAX, TAGS_OF_APP_COUNTED_MAX, TAGS_OF_APPS_COUNTED_MAX,
    TAGS_SORTED_LINKS_MAX,
};
use carom_model::access::{AppName, Scope};
use carom_model::query::{
    Filter, TagField, TagPage, TagQuery, app_index_key, domain_index_key, index_key_with_tag, is_domain_index_key,
    owner_and_tag,
};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::catalog::{IndexKind, View, index_key_of, place_of};
use carom_store::links::{StoreError, Value};

/// Tags, each with its number of links, in the order of the tags.
type CountedTags = Vec<(Arc<str>, u64)>;

/// Divisor of the largest number of tags. A group with too many tags is counted again once more entries than the
/// quotient were removed.
const RECOUNT_SHARE: u64 = 10;

/// Largest number of tags of apps and domains that are merged to get those of the default domain.
const TAGS_MERGED_MAX: usize = 50_000;

/// The number of links by tag: of all links, of each app, and of each domain except the default one.
#[derive(Debug, Default)]
pub(super) struct TagCounts {
    of_all: TagGroup,
    /// The groups of apps and domains, by their index keys.
    of_owners: HashMap<Box<str>, TagGroup>,
    /// Number of tags in all groups of apps and domains.
    owned: usize,
    /// Groups to count again, because they may have few enough tags by now.
    uncounted: BTreeSet<GroupName>,
}

/// The name of a group of tags: the index key of an app or domain, or `None` for all links.
pub(super) type GroupName = Option<Box<str>>;

/// The tags of some links.
#[derive(Debug, Default)]
struct TagGroup {
    tags: GroupTags,
    /// Number of index entries, which is at least the number of tags.
    entries: u64,
}

/// The number of links by tag in a group.
#[derive(Debug)]
enum GroupTags {
    /// The number of links of each tag.
    Known(BTreeMap<Arc<str>, u64>),
    /// More tags than are counted, and the number of entries removed since.
    TooMany { removed: u64 },
    /// A recount is in progress. The changes of each tag since it began.
    Counting(HashMap<Box<str>, i64>),
}

impl Default for GroupTags {
    fn default() -> GroupTags {
        GroupTags::Known(BTreeMap::new())
    }
}

impl TagGroup {
    /// Counts an added or a removed entry. `most` is the largest number of tags.
    fn change(&mut self, tag: &str, added: bool, most: usize) {
        self.entries = if added { self.entries + 1 } else { self.entries.saturating_sub(1) };
        match &mut self.tags {
            GroupTags::Known(counts) => {
                if let Some(count) = counts.get_mut(tag) {
                    *count = if added { *count + 1 } else { count.saturating_sub(1) };
                    if *count == 0 {
                        counts.remove(tag);
                    }
                } else if added && counts.len() >= most {
                    self.tags = GroupTags::TooMany { removed: 0 };
                } else if added {
                    counts.insert(tag.into(), 1);
                }
            }
            GroupTags::TooMany { removed } if !added => *removed += 1,
            GroupTags::TooMany { .. } => {}
            GroupTags::Counting(changes) => {
                *changes.entry(tag.into()).or_default() += if added { 1 } else { -1 };
                if changes.len() > most {
                    self.tags = GroupTags::TooMany { removed: 0 };
                }
            }
        }
        if self.entries == 0 && !matches!(self.tags, GroupTags::Counting(_)) {
            self.tags = GroupTags::default();
        }
    }

    fn len(&self) -> usize {
        if let GroupTags::Known(counts) = &self.tags { counts.len() } else { 0 }
    }

    fn all(&self) -> Option<CountedTags> {
        match &self.tags {
            GroupTags::Known(counts) => Some(counts.iter().map(|(tag, count)| (Arc::clone(tag), *count)).collect()),
            GroupTags::TooMany { .. } | GroupTags::Counting(_) => None,
        }
    }

    /// True if a recount may find at most `most` tags.
    fn may_be_known(&self, most: usize) -> bool {
        let most = most as u64;
        matches!(self.tags, GroupTags::TooMany { removed } if self.entries <= most || removed > most / RECOUNT_SHARE)
    }
}

impl TagCounts {
    /// Counts an added or a removed entry of the index of tags. A group with too many tags leaves the counts of other
    /// groups alone. Returns true if a group is due for a recount.
    pub(super) fn change(&mut self, key: &[u8], added: bool) -> bool {
        let Some(index_key) = index_key_of(key) else { return false };
        let Some((owner, tag)) = owner_and_tag(index_key) else {
            self.of_all.change(index_key, added, TAGS_COUNTED_MAX);
            return !added && self.of_all.may_be_known(TAGS_COUNTED_MAX) && self.uncounted.insert(None);
        };
        let most = self.most_of_owner();
        let group = match self.of_owners.get_mut(owner) {
            Some(group) => group,
            None => self.of_owners.entry(owner.into()).or_default(),
        };
        let before = group.len();
        group.change(tag, added, most);
        self.owned = self.owned + group.len() - before;
        let may_be_known = !added && group.may_be_known(most);
        if group.entries == 0 && matches!(group.tags, GroupTags::Known(_)) {
            self.of_owners.remove(owner);
        }
        self.assert_summed();
        may_be_known && self.uncounted.insert(Some(owner.into()))
    }

    /// Returns the largest number of tags of one more app or domain.
    fn most_of_owner(&self) -> usize {
        if self.owned >= TAGS_OF_APPS_COUNTED_MAX { 0 } else { TAGS_OF_APP_COUNTED_MAX }
    }

    /// Notes that a client asked for tags of which there were too many. Returns true if a group is due for a recount.
    pub(super) fn ask_again(&mut self, scope: &Scope) -> bool {
        let names: Vec<GroupName> = match (scope.app(), scope.domains()) {
            (None, None) => vec![None],
            (Some(app), _) => vec![Some(app_index_key(app.as_str()).into())],
            (None, Some(domains)) => {
                domains.iter().map(|domain| domain.map(|domain| domain_index_key(domain).into())).collect()
            }
        };
        let has_room = self.owned < TAGS_OF_APPS_COUNTED_MAX;
        for name in names {
            let may_be_known = match (&name, self.group(&name).map(|group| &group.tags)) {
                (None, Some(GroupTags::TooMany { removed })) => *removed > 0,
                // Other apps may have left it no room before.
                (Some(_), Some(GroupTags::TooMany { .. })) => has_room,
                _ => false,
            };
            if may_be_known {
                self.uncounted.insert(name);
            }
        }
        !self.uncounted.is_empty()
    }

    fn group(&self, name: &GroupName) -> Option<&TagGroup> {
        name.as_ref().map_or(Some(&self.of_all), |owner| self.of_owners.get(owner))
    }

    /// Begins the recount of the next group: from now on its changes are kept. Returns its name.
    pub(super) fn begin(&mut self) -> Option<GroupName> {
        while let Some(name) = self.uncounted.pop_first() {
            if let Some(group @ TagGroup { tags: GroupTags::TooMany { .. }, .. }) = self.group_mut(&name) {
                group.tags = GroupTags::Counting(HashMap::new());
                return Some(name);
            }
        }
        None
    }

    fn group_mut(&mut self, name: &GroupName) -> Option<&mut TagGroup> {
        match name {
            None => Some(&mut self.of_all),
            Some(owner) => self.of_owners.get_mut(owner),
        }
    }

    /// Ends the recount that [`TagCounts::begin`] began. `counted` is `None` if there are still too many tags.
    pub(super) fn end(&mut self, name: &GroupName, counted: Option<BTreeMap<Arc<str>, u64>>) {
        let most = if name.is_some() { self.most_of_owner() } else { TAGS_COUNTED_MAX };
        let Some(group) = self.group_mut(name) else { return };
        let GroupTags::Counting(changes) = &mut group.tags else { return };
        let changes = std::mem::take(changes);
        group.tags = GroupTags::TooMany { removed: 0 };
        let Some(mut counts) = counted else { return };
        for (tag, change) in changes {
            let count = counts.get(&*tag).copied().unwrap_or_default().saturating_add_signed(change);
            match count {
                0 => _ = counts.remove(&*tag),
                count => _ = counts.insert(tag.into(), count),
            }
        }
        if counts.len() <= most {
            group.tags = GroupTags::Known(counts);
            if name.is_some() {
                self.owned += group.len();
            }
        }
        self.assert_summed();
    }

    /// Asserts that the bound of all groups counts the tags of each.
    fn assert_summed(&self) {
        debug_assert_eq!(
            self.of_owners.values().map(TagGroup::len).sum::<usize>(),
            self.owned,
            "the memory for tags of apps has another bound than the tags"
        );
    }

    /// Returns all tags in a scope; `None` if there are too many. For an app it ignores the domains of the scope: see
    /// [`of_app_within`].
    pub(super) fn all(&self, scope: &Scope) -> Option<CountedTags> {
        match (scope.app(), scope.domains()) {
            (None, None) => self.of_all.all(),
            (Some(app), _) => self.of_owner(&app_index_key(app.as_str())),
            (None, Some(domains)) => self.of_domains(domains),
        }
    }

    fn of_owner(&self, index_key: &str) -> Option<CountedTags> {
        self.of_owners.get(index_key).map_or(Some(Vec::new()), TagGroup::all)
    }

    /// Returns the tags of some domains. Those of the default domain are all tags, less those of the other domains.
    fn of_domains(&self, domains: &[Option<DomainId>]) -> Option<CountedTags> {
        let mut sum: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        if domains.contains(&None) {
            // Commits wait while this runs.
            if self.owned > TAGS_MERGED_MAX {
                return None;
            }
            sum.extend(self.of_all.all()?);
            for (_, tags) in self.of_owners.iter().filter(|(index_key, _)| is_domain_index_key(index_key)) {
                for (tag, count) in tags.all()? {
                    sum.entry(tag).and_modify(|all| *all = all.saturating_sub(count));
                }
            }
        }
        for domain in domains.iter().flatten() {
            for (tag, count) in self.of_owner(&domain_index_key(*domain))? {
                *sum.entry(tag).or_default() += count;
            }
        }
        sum.retain(|_, count| *count > 0);
        Some(sum.into_iter().collect())
    }
}

/// Counts the tags of a group in the index. Returns `None` if there are too many, or once `is_wanted` returns false.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn count_group(
    view: &View,
    name: &GroupName,
    mut is_wanted: impl FnMut() -> bool,
) -> Result<Option<BTreeMap<Arc<str>, u64>>, StoreError> {
    let (most, keys): (usize, Box<dyn Iterator<Item = _>>) = match name {
        // The index keys of owners and marks begin with control characters, which tags cannot have.
        None => (TAGS_COUNTED_MAX, Box::new(view.keys(IndexKind::Tags, b" ", &[]))),
        Some(owner) => {
            let prefix = index_key_with_tag(owner, "");
            (TAGS_OF_APP_COUNTED_MAX, Box::new(view.keys_with_prefix(IndexKind::Tags, prefix.as_bytes())))
        }
    };
    let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    let mut last: Option<(Arc<str>, u64)> = None;
    let mut paced = PacedLoop::default();
    for key in keys {
        paced.step();
        let key: Value = key?;
        let Some(index_key) = index_key_of(&key) else { continue };
        let tag = owner_and_tag(index_key).map_or(index_key, |(_, tag)| tag);
        // The entries of one tag are adjacent.
        match &mut last {
            Some((known, count)) if **known == *tag => *count += 1,
            _ => {
                counts.extend(last.replace((tag.into(), 1)));
                if counts.len() > most || !is_wanted() {
                    return Ok(None);
                }
            }
        }
    }
    counts.extend(last);
    Ok((counts.len() <= most).then_some(counts))
}

/// Scans the index for the tags of an app in some domains, because no count exists for that combination. Returns `None`
/// if there are too many.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn of_app_within(view: &View, app: &AppName, scope: &Scope) -> Result<Option<CountedTags>, StoreError> {
    let prefix = index_key_with_tag(&app_index_key(app.as_str()), "");
    let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for (number, key) in view.keys_with_prefix(IndexKind::Tags, prefix.as_bytes()).enumerate() {
        let key = key?;
        let Some(index_key) = index_key_of(&key) else { continue };
        let place = place_of(&key, index_key.len() + 1);
        let (Some((_, tag)), Some(place)) = (owner_and_tag(index_key), place) else { continue };
        if scope.has_domain(place.code.domain()) {
            *counts.entry(tag.into()).or_default() += 1;
        }
        if number as u64 >= LIST_LOOKED_MAX || counts.len() > TAGS_OF_APP_COUNTED_MAX {
            return Ok(None);
        }
    }
    Ok(Some(counts.into_iter().collect()))
}

/// Returns a page of `tags`, which must be all tags in their order.
pub(super) fn page(mut tags: CountedTags, query: &TagQuery) -> TagPage {
    retain(&mut tags, query);
    // The sort is stable: tags with equal counts stay in their order.
    match (query.field, query.descending) {
        (TagField::Tag, false) => {}
        (TagField::Tag, true) => tags.reverse(),
        (TagField::Links, false) => tags.sort_by_key(|(_, count)| *count),
        (TagField::Links, true) => tags.sort_by_key(|(_, count)| std::cmp::Reverse(*count)),
        (TagField::Visits | TagField::NonBotVisits, _) => debug_assert!(false, "page_by_visits knows the visits"),
    }
    let total = tags.len() as u64;
    TagPage { tags: here(tags, query).collect(), visits: Vec::new(), total }
}

/// Drops the tags without the search term of a query.
fn retain(tags: &mut CountedTags, query: &TagQuery) {
    if let Some(term) = &query.term {
        tags.retain(|(tag, _)| tag.contains(&**term));
    }
}

/// Returns the part of a sorted list that is on the page of a query.
fn here<T>(sorted: Vec<T>, query: &TagQuery) -> impl Iterator<Item = T> {
    let skipped = (query.page - 1).saturating_mul(query.per_page as u64);
    sorted.into_iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).take(query.per_page)
}

/// Adds the visits of each tag to a page, as the sum over its links. A page may sum up `LIST_SORTED_MAX` links in
/// total; a tag with more links than are left of that gets no number.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn add_visits(
    page: &mut TagPage,
    scope: &Scope,
    view: &View,
    visits: &dyn VisitSource,
) -> Result<(), StoreError> {
    let mut left = LIST_SORTED_MAX as u64;
    for (tag, count) in &page.tags {
        let of_tag = match left.checked_sub(*count) {
            None => None,
            Some(rest) => {
                left = rest;
                Some(visits_of(tag, LIST_SORTED_MAX, scope, view, visits)?)
            }
        };
        page.visits.push(of_tag);
    }
    Ok(())
}

/// Returns the visits of a tag, as the sum over at most `most` of its links.
fn visits_of(
    tag: &str,
    most: usize,
    scope: &Scope,
    view: &View,
    visits: &dyn VisitSource,
) -> Result<VisitCounts, StoreError> {
    let index_key = scope.app().map(|app| index_key_with_tag(&app_index_key(app.as_str()), tag));
    let places = IndexRun::of_tag(index_key.as_deref().unwrap_or(tag), &Filter::default()).places(view, false);
    let is_within = |code: &Result<Code, StoreError>| match code {
        Ok(code) => scope.has_domain(code.domain()),
        Err(_) => true,
    };
    // The index may have more links by now, and those of other domains.
    let codes = places.take(LIST_LOOKED_MAX as usize).map(|place| Ok(place?.code)).filter(is_within);
    let codes = codes.take(most).collect::<Result<Vec<_>, StoreError>>()?;
    let mut sum = VisitCounts::default();
    visits.counts(&codes)?.into_iter().for_each(|counts| sum.add(counts));
    Ok(sum)
}

/// Returns a page of `tags`, which must be all tags in their order, sorted by visits. `None` if they have more than
/// [`TAGS_SORTED_LINKS_MAX`] links together.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn page_by_visits(
    mut tags: CountedTags,
    query: &TagQuery,
    view: &View,
    visits: &dyn VisitSource,
) -> Result<Option<TagPage>, StoreError> {
    retain(&mut tags, query);
    if tags.iter().map(|(_, count)| count).sum::<u64>() > TAGS_SORTED_LINKS_MAX {
        return Ok(None);
    }
    let mut sums = Vec::with_capacity(tags.len());
    for (tag, count) in tags {
        let sum = visits_of(&tag, TAGS_SORTED_LINKS_MAX as usize, &query.scope, view, visits)?;
        let number = if query.field == TagField::NonBotVisits { sum.total.saturating_sub(sum.bots) } else { sum.total };
        sums.push((number, (tag, count), sum));
    }
    // The sort is stable: tags with equal visits stay in their order.
    sums.sort_by(|(one, ..), (other, ..)| if query.descending { other.cmp(one) } else { one.cmp(other) });
    let total = sums.len() as u64;
    let (tags, visits) = here(sums, query).map(|(_, tag, sum)| (tag, Some(sum))).unzip();
    Ok(Some(TagPage { tags, visits, total }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::query::LinkPosition;
    use carom_store::links::Links;
    use carom_store::links::catalog::{CRAWLABLE, IndexEntry, Marks, tag_key};

    fn counts(tags: &[&str]) -> TagCounts {
        let mut counts = TagCounts::default();
        tags.iter().for_each(|tag| _ = counts.change(&tag_key(tag, b"place"), true));
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
        (0..TAGS_COUNTED_MAX).for_each(|number| _ = counts.change(&tag_key(&number.to_string(), b""), true));
        counts.change(&tag_key("0", b"x"), true);
        assert_eq!(counts.all(&Scope::ALL).unwrap().len(), TAGS_COUNTED_MAX);
        counts.change(&tag_key("one more", b""), true);
        counts.change(&tag_key("0", b""), false);
        assert!(counts.all(&Scope::ALL).is_none());
    }

    #[test]
    fn tags_are_counted_again_when_few_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let key = |number: usize| {
            let code = Code::parse(b"code").unwrap();
            tag_key(
                &index_key_with_tag(&app_index_key("a"), &number.to_string()),
                &LinkPosition::new(1, code).to_bytes(),
            )
        };
        let app = Scope::of_app(AppName::parse("a").unwrap());
        let mut counts = TagCounts::default();
        let change = |counts: &mut TagCounts, number, added| {
            let entry = IndexEntry { kind: IndexKind::Tags, key: key(number), marks: Marks::default() };
            let mut batch = links.batch();
            if added {
                batch.put_index_entry(&entry);
            } else {
                batch.remove_index_entry(&entry);
            }
            links.commit(batch).unwrap();
            counts.change(&entry.key, added)
        };
        for number in 0..=TAGS_OF_APP_COUNTED_MAX {
            assert!(!change(&mut counts, number, true));
        }
        assert!(counts.all(&app).is_none());
        assert!(counts.begin().is_none());
        assert!(change(&mut counts, 0, false));
        let name = counts.begin().unwrap();
        let view = links.view();
        // Some entries come and go during the recount.
        change(&mut counts, 1, false);
        change(&mut counts, 0, true);
        let counted = count_group(&view, &name, || true).unwrap();
        counts.end(&name, counted);
        let all = counts.all(&app).unwrap();
        assert_eq!(all.len(), TAGS_OF_APP_COUNTED_MAX);
        assert!(all.iter().all(|(tag, count)| **tag != *"1" && *count == 1));
        assert_eq!(counts.owned, TAGS_OF_APP_COUNTED_MAX);
        // One more tag is too many again, until a client asks after one has gone.
        change(&mut counts, 1, true);
        assert!(counts.all(&app).is_none());
        for number in 0..=TAGS_OF_APP_COUNTED_MAX {
            change(&mut counts, number, false);
        }
        assert_eq!((counts.all(&app).unwrap(), counts.owned, counts.of_owners.len()), (Vec::new(), 0, 0));
    }

    #[test]
    fn tags_are_counted_again_when_somebody_asks_and_some_have_gone() {
        let mut counts = TagCounts::default();
        let key = |number: usize| tag_key(&number.to_string(), b"");
        (0..TAGS_COUNTED_MAX + 2).for_each(|number| _ = counts.change(&key(number), true));
        assert!(counts.all(&Scope::ALL).is_none(), "none has gone");
        assert!(!counts.ask_again(&Scope::ALL), "none has gone");
        assert!(!counts.change(&key(0), false), "one that has gone is no reason by itself");
        assert!(counts.ask_again(&Scope::ALL));
        assert_eq!(counts.begin(), Some(None));
    }

    #[test]
    fn an_app_that_found_no_room_is_counted_when_others_leave_some() {
        let mut counts = TagCounts::default();
        let change = |counts: &mut TagCounts, app: &str, tag: usize, added| {
            counts.change(&tag_key(&index_key_with_tag(&app_index_key(app), &tag.to_string()), b""), added);
        };
        for app in 0..TAGS_OF_APPS_COUNTED_MAX / TAGS_OF_APP_COUNTED_MAX {
            (0..TAGS_OF_APP_COUNTED_MAX).for_each(|tag| change(&mut counts, &format!("app{app}"), tag, true));
        }
        let late = Scope::of_app(AppName::parse("late").unwrap());
        change(&mut counts, "late", 1, true);
        assert!(counts.all(&late).is_none(), "the others take all room");
        assert!(!counts.ask_again(&late), "the others take all room");
        change(&mut counts, "app0", 0, false);
        assert!(counts.ask_again(&late));
        let name = counts.begin().unwrap();
        counts.end(&name, Some(BTreeMap::from([("1".into(), 1)])));
        assert_eq!(counts.all(&late), Some(vec![("1".into(), 1)]));
    }

    #[test]
    fn an_app_with_too_many_tags_takes_nothing_from_others() {
        let mut counts = counts(&["mine"]);
        let put = |counts: &mut TagCounts, app: &str, tag: &str| {
            counts.change(&tag_key(&index_key_with_tag(&app_index_key(app), tag), b""), true);
        };
        put(&mut counts, "b", "x");
        (0..=TAGS_OF_APP_COUNTED_MAX).for_each(|number| put(&mut counts, "a", &number.to_string()));
        let of = |app: &str| counts.all(&Scope::of_app(AppName::parse(app).unwrap())).map(|tags| tags.len());
        assert_eq!((of("a"), of("b"), of("c")), (None, Some(1), Some(0)));
        assert_eq!(counts.all(&Scope::ALL).unwrap().len(), 1);
    }
}
