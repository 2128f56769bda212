//! A change of some fields of a link.

use std::num::NonZeroU32;

use carom_shards::{Policy, RedirectStatus};

use crate::formats::dates::INSTANT_MS_MAX;
use crate::link::Link;
use crate::link::labels::{LinkLabels, Tags};
use crate::link::rules::RedirectRules;

/// The fields to change. `None` keeps a field; `Some(None)` clears an optional one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Patch {
    /// The destination, as in [`Link::target`].
    pub target: Option<String>,
    /// The redirect status.
    pub status: Option<RedirectStatus>,
    /// The time for which clients may cache the redirect, in seconds.
    pub cache_seconds: Option<Option<u32>>,
    /// The start of the validity, in milliseconds since 1970 UTC.
    pub valid_since_ms: Option<Option<u64>>,
    /// The end of the validity, in milliseconds since 1970 UTC.
    pub valid_until_ms: Option<Option<u64>>,
    /// True to forward the query of a request to the destination.
    pub forward_query: Option<bool>,
    /// True to archive the link, false to restore it.
    pub archived: Option<bool>,
    /// The maximum number of visits.
    pub max_visits: Option<Option<NonZeroU32>>,
    /// True to allow crawlers to follow the link.
    pub crawlable: Option<bool>,
    /// The title for people.
    pub title: Option<Option<String>>,
    /// The new set of tags, complete.
    pub tags: Option<Tags>,
    /// The new redirect rules, complete.
    pub rules: Option<RedirectRules>,
    /// A change of single tags of the current set.
    pub retag: Option<Retag>,
    /// Tags to add to the current set, and tags to remove from it.
    pub tag_edit: Option<TagEdit>,
    /// The instant of a scheduled deletion, in milliseconds since 1970 UTC. A change of `archived` alone cancels it.
    pub delete_at_ms: Option<u64>,
}

/// A rename or removal of tags. A link without any of the removed tags stays as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retag {
    /// The tags to remove, normalised.
    pub removed: Vec<String>,
    /// The tag that replaces them, normalised.
    pub added: Option<String>,
}

/// An addition and removal of tags, whatever the current set is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TagEdit {
    /// The tags to add, normalised.
    pub added: Vec<String>,
    /// The tags to remove, normalised.
    pub removed: Vec<String>,
}

impl TagEdit {
    /// Returns the changed set; `None` if the added tags do not fit into it.
    pub fn apply(&self, tags: &Tags) -> Option<Tags> {
        let kept = tags.iter().filter(|tag| !self.removed.iter().any(|removed| removed == tag));
        Tags::of(kept.chain(self.added.iter().map(String::as_str))).ok()
    }
}

impl Retag {
    /// True if a set has one of the tags to remove.
    pub fn affects(&self, tags: &Tags) -> bool {
        tags.iter().any(|tag| self.removed.iter().any(|removed| removed == tag))
    }

    /// Returns the changed set; `None` if it stays the same, or the new tag does not fit into it.
    pub fn apply(&self, tags: &Tags) -> Option<Tags> {
        let kept = tags.iter().filter(|tag| !self.removed.iter().any(|removed| removed == tag));
        let changed = Tags::of(kept.chain(self.added.as_deref())).ok();
        changed.filter(|_| self.affects(tags))
    }
}

/// The start of a link would not be before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartNotBeforeEnd;

impl Patch {
    /// Returns the changed link.
    ///
    /// # Errors
    /// [`StartNotBeforeEnd`] if its start would not be before its end.
    pub fn apply(&self, link: &Link) -> Result<Link, StartNotBeforeEnd> {
        let mut changed = link.clone();
        self.set_fields(&mut changed.policy, &mut changed.labels);
        changed.policy.valid_until_ms = self.changed_expiry(link, &changed.policy);
        // A link that was imported with such a policy may keep it.
        if (self.valid_since_ms.is_some() || self.valid_until_ms.is_some()) && starts_after_expiry(&changed.policy) {
            return Err(StartNotBeforeEnd);
        }
        if let Some(target) = &self.target {
            changed.target.clone_from(target);
        }
        changed.labels.default_expiry &= self.valid_until_ms.is_none();
        if self.archived.is_some() {
            changed.labels.delete_at_ms = self.delete_at_ms;
        }
        if let Some(tags) = self.retag.as_ref().and_then(|retag| retag.apply(&changed.labels.tags)) {
            changed.labels.tags = tags;
        }
        if let Some(tags) = self.tag_edit.as_ref().and_then(|edit| edit.apply(&changed.labels.tags)) {
            changed.labels.tags = tags;
        }
        Ok(changed)
    }

    /// Sets the fields that depend on no other field of the link. [`Patch::apply`] adds the others: the destination, single
    /// tags, a default expiry and a scheduled deletion.
    pub fn set_fields(&self, policy: &mut Policy, labels: &mut LinkLabels) {
        *policy = Policy {
            status: self.status.unwrap_or(policy.status),
            cache_seconds: self.cache_seconds.unwrap_or(policy.cache_seconds),
            valid_since_ms: self.valid_since_ms.unwrap_or(policy.valid_since_ms),
            valid_until_ms: self.valid_until_ms.unwrap_or(policy.valid_until_ms),
            forward_query: self.forward_query.unwrap_or(policy.forward_query),
            archived: self.archived.unwrap_or(policy.archived),
            max_visits: self.max_visits.unwrap_or(policy.max_visits),
        };
        labels.crawlable = self.crawlable.unwrap_or(labels.crawlable);
        if let Some(title) = &self.title {
            labels.title.clone_from(title);
        }
        if let Some(tags) = &self.tags {
            labels.tags.clone_from(tags);
        }
        if let Some(rules) = &self.rules {
            labels.rules.clone_from(rules);
        }
    }

    /// Returns the end of the changed link. A default expiry moves with the start, so that the lifetime stays the same.
    fn changed_expiry(&self, link: &Link, policy: &Policy) -> Option<u64> {
        let until_ms = policy.valid_until_ms?;
        let (Some(Some(since_ms)), None, true) = (self.valid_since_ms, self.valid_until_ms, link.labels.default_expiry)
        else {
            return Some(until_ms);
        };
        let begin_ms = link.policy.valid_since_ms.map_or(link.created_ms, |since_ms| since_ms.max(link.created_ms));
        let life_ms = until_ms.saturating_sub(begin_ms);
        Some((since_ms.max(link.created_ms) + life_ms).min(INSTANT_MS_MAX))
    }
}

/// True if a link with this policy would end before it starts.
pub fn starts_after_expiry(policy: &Policy) -> bool {
    policy.valid_since_ms.zip(policy.valid_until_ms).is_some_and(|(since, until)| since >= until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_link;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_changes_nothing_and_everything_changes_all(link in any_link(), other in any_link()) {
            prop_assume!(!starts_after_expiry(&link.policy) && !starts_after_expiry(&other.policy));
            prop_assert_eq!(Patch::default().apply(&link), Ok(link.clone()));
            let Policy { status, cache_seconds, valid_since_ms, valid_until_ms, forward_query, archived, max_visits } =
                other.policy;
            let all = Patch {
                target: Some(other.target.clone()),
                status: Some(status),
                cache_seconds: Some(cache_seconds),
                valid_since_ms: Some(valid_since_ms),
                valid_until_ms: Some(valid_until_ms),
                forward_query: Some(forward_query),
                archived: Some(archived),
                max_visits: Some(max_visits),
                crawlable: Some(other.labels.crawlable),
                title: Some(other.labels.title.clone()),
                tags: Some(other.labels.tags.clone()),
                rules: Some(other.labels.rules.clone()),
                retag: None,
                tag_edit: None,
                delete_at_ms: None,
            };
            let Link { code, created_ms, origin, version, .. } = link;
            let LinkLabels { app, app_version, domain, earlier_visits, unknown, .. } = link.labels.clone();
            let labels = LinkLabels {
                default_expiry: false,
                app,
                app_version,
                domain,
                earlier_visits,
                unknown,
                ..other.labels.clone()
            };
            prop_assert_eq!(all.apply(&link), Ok(Link { code, created_ms, origin, version, labels, ..other }));
        }
    }

    #[test]
    fn single_tags_are_renamed_and_removed() {
        let retag = |removed: &[&str], added: Option<&str>, tags: &[&str]| {
            let removed = removed.iter().map(|tag| (*tag).to_owned()).collect();
            let patch = Patch { retag: Some(Retag { removed, added: added.map(str::to_owned) }), ..Patch::default() };
            let mut link = crate::testing::link("abc", crate::link::Origin::Issued);
            link.labels.tags = Tags::of(tags.iter().copied()).unwrap();
            patch.apply(&link).unwrap().labels.tags.iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(retag(&["b"], Some("d"), &["a", "b"]), "a d");
        assert_eq!(retag(&["b"], Some("a"), &["a", "b"]), "a");
        assert_eq!(retag(&["b"], Some("d"), &["a"]), "a");
        assert_eq!(retag(&["a", "b"], None, &["a", "b", "c"]), "c");
        // A set with the longest tags has no room for a longer one.
        let full: Vec<String> = (0..64).map(|number| format!("{number:064}")).collect();
        let mut tags: Vec<&str> = full.iter().map(String::as_str).collect();
        while Tags::of(tags.iter().copied()).is_err() {
            tags.pop();
        }
        let (first, long) = (tags[0].to_owned(), "x".repeat(255));
        assert_eq!(retag(&[&first], Some(&long), &tags), tags.join(" "));
    }

    #[test]
    fn tags_are_added_and_removed_whatever_the_set_is() {
        let edited = |added: &[&str], removed: &[&str], tags: &[&str]| {
            let all = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
            let edit = TagEdit { added: all(added), removed: all(removed) };
            edit.apply(&Tags::of(tags.iter().copied()).unwrap()).map(|tags| tags.joined().replace('\n', " "))
        };
        assert_eq!(edited(&["d"], &["b"], &["a", "b"]), Some("a d".to_owned()));
        assert_eq!(edited(&["a"], &["x"], &["a"]), Some("a".to_owned()));
        assert_eq!(edited(&[], &["a"], &["a"]), Some(String::new()));
        let long = "x".repeat(100_000);
        assert_eq!(edited(&[&long], &[], &["a"]), None);
    }

    #[test]
    fn a_link_that_would_end_before_it_begins_is_refused() {
        let mut link = crate::testing::link("abc", crate::link::Origin::Issued);
        link.policy.valid_until_ms = Some(10);
        let since = |ms| Patch { valid_since_ms: Some(Some(ms)), ..Patch::default() };
        assert_eq!(since(10).apply(&link), Err(StartNotBeforeEnd));
        assert!(since(9).apply(&link).is_ok());
        assert!(Patch { valid_until_ms: Some(None), ..since(10) }.apply(&link).is_ok());
        // A default expiry never conflicts with a start.
        link.labels.default_expiry = true;
        (link.created_ms, link.policy.valid_until_ms) = (100, Some(300));
        let changed = since(1_000).apply(&link).unwrap();
        assert_eq!((changed.policy.valid_until_ms, changed.labels.default_expiry), (Some(1_200), true));
    }
}
