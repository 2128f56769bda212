//! The filter of lists: tests whether a link matches a query, by its record.

use std::sync::Arc;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use memchr::memmem::Finder;

use super::bounded_scan::{FilterResult, ListedCode};
use super::texts::Texts;
use super::visits::VisitSource;
use carom_model::link::labels::in_joined;
use carom_model::link::record::{self, LinkRef, RecordRef};
use carom_model::query::{Condition, Filter, LinkPosition};
use carom_store::links::StoreError;
use carom_store::links::catalog::View;

/// A filter with what it needs to test links.
pub(in crate::services) struct LinkFilter<'q> {
    filter: &'q Filter,
    visits: &'q dyn VisitSource,
    now_ms: u64,
    term: Option<Finder<'q>>,
    url_terms: Vec<Finder<'q>>,
    /// A buffer for lower-cased text.
    small: Vec<u8>,
}

impl<'q> LinkFilter<'q> {
    pub(in crate::services) fn new(filter: &'q Filter, visits: &'q dyn VisitSource, now_ms: u64) -> LinkFilter<'q> {
        let (term, url_terms) =
            (filter.term.as_ref().map(Finder::new), filter.url_terms.iter().map(Finder::new).collect());
        LinkFilter { filter, visits, now_ms, term, url_terms, small: Vec::new() }
    }

    /// Checks the link at a place of an index. The entry may have outlived its link. Returns the link if it matches and
    /// is `wanted`.
    ///
    /// # Errors
    /// If the record cannot be read. A damaged record is no match.
    pub(super) fn check_place(
        &mut self,
        view: &View,
        place: LinkPosition,
        wanted: bool,
    ) -> Result<FilterResult, StoreError> {
        let stored = match view.get(&place.code) {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StoreError::Damaged(_)) => return Ok(FilterResult::Other),
            Err(error) => return Err(error),
        };
        Ok(self.check_record(place.code, &stored, wanted, Some(place)))
    }

    /// Checks an index entry, which decides for most links without their record. `has_term` is true if the entry alone
    /// says that the link has the search term.
    ///
    /// # Errors
    /// Any error of [`LinkFilter::check_place`].
    pub(super) fn check_entry(
        &mut self,
        view: &View,
        listed: &ListedCode,
        wanted: bool,
        has_term: bool,
    ) -> Result<FilterResult, StoreError> {
        let ListedCode { place, marks, has_all } = *listed;
        let is_out = !self.filter.scope.has_domain(place.code.domain())
            || self.filter.without_expired && marks.end_ms.is_some_and(|end_ms| end_ms <= self.now_ms);
        let reads_record = if has_term { self.filter.reads_records_beside_term() } else { self.filter.reads_records() };
        let asks_for_more = reads_record || self.filter.without_used_up && marks.limited;
        match (has_all && !is_out, wanted || asks_for_more) {
            (false, _) => Ok(FilterResult::Other),
            (true, false) => Ok(FilterResult::One),
            (true, true) => self.check_place(view, place, wanted),
        }
    }

    /// Checks a record. With a `place`, its link must belong there.
    pub(super) fn check_record(
        &mut self,
        code: Code,
        stored: &[u8],
        wanted: bool,
        place: Option<LinkPosition>,
    ) -> FilterResult {
        let is_there = |link: &LinkRef<'_>| place.is_none_or(|place| LinkPosition::new(link.created_ms, code) == place);
        match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), stored) {
            Ok(RecordRef::Link(link)) if is_there(&link) && self.takes(&code, &link) => {
                if wanted {
                    FilterResult::Link(Arc::new(link.to_link(code)))
                } else {
                    FilterResult::One
                }
            }
            Ok(_) | Err(_) => FilterResult::Other,
        }
    }

    /// Returns the filter of the query, which links are compared with.
    pub(in crate::services) fn filter(&self) -> &Filter {
        self.filter
    }

    /// True if a link matches.
    pub(in crate::services) fn takes(&mut self, code: &Code, link: &LinkRef<'_>) -> bool {
        let filter = self.filter;
        let has = |tag: &String| in_joined(link.tags).any(|of_link| of_link == tag);
        let has_tags = if filter.all_tags {
            filter.tags.iter().all(has)
        } else {
            filter.tags.is_empty() || filter.tags.iter().any(has)
        };
        let is_excluded = if filter.excludes_all {
            !filter.excluded_tags.is_empty() && filter.excluded_tags.iter().all(has)
        } else {
            filter.excluded_tags.iter().any(has)
        };
        has_tags
            && !is_excluded
            && filter.scope.has_link(code, link.app)
            && filter.since_ms.is_none_or(|since_ms| link.created_ms >= since_ms)
            && filter.until_ms.is_none_or(|until_ms| link.created_ms <= until_ms)
            && !(filter.without_expired && link.policy.valid_until_ms.is_some_and(|until_ms| until_ms <= self.now_ms))
            && !(filter.without_used_up && self.is_used_up(code, link))
            && filter.condition.is_none_or(|condition| self.condition(code, link) == condition)
            && self.has_term(code, link)
    }

    /// Returns the condition of a link now: what its visitors get.
    fn condition(&self, code: &Code, link: &LinkRef<'_>) -> Condition {
        let (now_ms, policy) = (self.now_ms, &link.policy);
        if policy.archived {
            Condition::Archived
        } else if policy.valid_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            Condition::Expired
        } else if self.is_used_up(code, link) {
            Condition::UsedUp
        } else if policy.valid_since_ms.is_some_and(|since_ms| since_ms > now_ms) {
            Condition::Scheduled
        } else {
            Condition::Active
        }
    }

    fn is_used_up(&self, code: &Code, link: &LinkRef<'_>) -> bool {
        let Some(most) = link.policy.max_visits else { return false };
        // If the counts cannot be read, the link counts as not used up.
        let counts = self.visits.counts(std::slice::from_ref(code)).unwrap_or_default();
        counts.first().is_some_and(|counts| counts.total >= u64::from(most.get()))
    }

    fn has_term(&mut self, code: &Code, link: &LinkRef<'_>) -> bool {
        let Some(term) = &self.term else { return true };
        if self.filter.named.contains(code) || self.filter.has_term_in_domain(code) {
            return true;
        }
        let url_terms = &self.url_terms;
        Texts::of_record(code, link).any(&mut self.small, |text, is_ascii| {
            term.find(text).is_some() || is_ascii && url_terms.iter().any(|term| term.find(text).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Link;
    use carom_model::link::Origin;
    use carom_model::link::labels::Tags;
    use carom_model::testing::link;
    use carom_model::visits::tally::VisitCounts;
    use carom_shards::DomainId;
    use std::num::NonZeroU32;

    struct Two;

    impl VisitSource for Two {
        fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
            Ok(codes.iter().map(|_| VisitCounts { total: 2, bots: 1 }).collect())
        }
    }

    fn takes(filter: &Filter, link: &Link) -> bool {
        let mut stored = Vec::new();
        record::encode_link(link.code.to_string().as_bytes(), link, &mut stored);
        matches!(LinkFilter::new(filter, &Two, 1_000).check_record(link.code, &stored, false, None), FilterResult::One)
    }

    fn shown() -> Link {
        let mut link = link("MyCode", Origin::Custom);
        link.target = "https://Example.org/A?Long=URL".to_owned();
        link.created_ms = 500;
        link.labels.title = Some("Ein GROSSER Übertitel".to_owned());
        link.labels.tags = Tags::of(["summer-sale", "b"]).unwrap();
        link
    }

    #[test]
    fn terms_are_found_wherever_people_see_them() {
        let found = |term: &str| {
            let filter = Filter { term: Some(term.to_owned()), ..Filter::default() };
            takes(&filter, &shown())
        };
        for term in ["example.org", "long=url", "mycode", "ycod", "grosser", "übertitel", "mer-sa", "b"] {
            assert!(found(term), "{term}");
        }
        for term in ["mycodex", "summer sale", "sale\nb", "ober", "0"] {
            assert!(!found(term), "{term}");
        }
        let of_domains = |domains: &[Option<DomainId>]| {
            let (term, term_domains) = (Some("none".to_owned()), domains.to_vec());
            takes(&Filter { term, term_domains, ..Filter::default() }, &shown())
        };
        assert!(of_domains(&[None]));
        assert!(!of_domains(&[DomainId::from_bytes([1; 6])]));
        let other = |url_term: &str| {
            let (term, url_terms) = (Some("none".to_owned()), vec![url_term.to_owned()]);
            takes(&Filter { term, url_terms, ..Filter::default() }, &shown())
        };
        assert!(other("a?long=url"));
        assert!(!other("grosser"));
    }

    #[test]
    fn links_are_told_by_what_becomes_of_who_follows_them() {
        let condition = |change: fn(&mut Link)| {
            let mut link = shown();
            change(&mut link);
            let is = |condition| takes(&Filter { condition: Some(condition), ..Filter::default() }, &link);
            let found: Vec<&str> = Condition::NAMES.iter().filter(|(_, of)| is(*of)).map(|(name, _)| *name).collect();
            found.join(" ")
        };
        assert_eq!(condition(|_| ()), "active");
        assert_eq!(condition(|link| link.policy.valid_since_ms = Some(1_001)), "scheduled");
        assert_eq!(condition(|link| link.policy.valid_since_ms = Some(1_000)), "active");
        assert_eq!(condition(|link| link.policy.valid_until_ms = Some(1_000)), "ended");
        assert_eq!(condition(|link| link.policy.max_visits = NonZeroU32::new(2)), "usedUp");
        let archived = |link: &mut Link| (link.policy.archived, link.policy.valid_until_ms) = (true, Some(1));
        assert_eq!(condition(archived), "archived");
    }

    #[test]
    fn each_filter_counts() {
        let all = |filter: Filter| takes(&filter, &shown());
        let tags = |tags: &[&str], all_tags| {
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            takes(&Filter { tags, all_tags, ..Filter::default() }, &shown())
        };
        assert!(all(Filter::default()));
        assert!(tags(&["b", "other"], false));
        assert!(!tags(&["other"], false));
        assert!(!tags(&["b", "other"], true));
        assert!(tags(&["b", "summer-sale"], true));
        assert!(tags(&[], true));
        let without = |tags: &[&str], excludes_all| {
            let excluded_tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            takes(&Filter { excluded_tags, excludes_all, ..Filter::default() }, &shown())
        };
        assert!(!without(&["b", "other"], false));
        assert!(without(&["other"], false));
        assert!(without(&["b", "other"], true));
        assert!(!without(&["b", "summer-sale"], true));
        assert!(without(&[], true));
        assert!(without(&[], false));
        for (since_ms, until_ms, taken) in [(500, 500, true), (501, 600, false), (0, 499, false)] {
            assert_eq!(all(Filter { since_ms: Some(since_ms), until_ms: Some(until_ms), ..Filter::default() }), taken);
        }
        let mut link = shown();
        for (until_ms, taken) in [(None, true), (Some(1_001), true), (Some(1_000), false)] {
            link.policy.valid_until_ms = until_ms;
            assert_eq!(takes(&Filter { without_expired: true, ..Filter::default() }, &link), taken);
        }
        for (most, taken) in [(None, true), (NonZeroU32::new(3), true), (NonZeroU32::new(2), false)] {
            link.policy.max_visits = most;
            assert_eq!(takes(&Filter { without_used_up: true, ..Filter::default() }, &link), taken);
        }
    }
}
