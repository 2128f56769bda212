//! The names of domains, as searches compare them: in Punycode and, where that differs, in Unicode.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use carom_shards::DomainId;

use crate::destination::hosts::unicode_of;

/// Largest number of domains that [`LinkedDomains`] adds: as many as the console lists.
const LINKED_MAX: usize = 1_000;

/// A domain that searches find by a part of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SearchedName {
    /// The ID of the domain in codes; `None` for the default one.
    id: Option<DomainId>,
    punycode: Box<str>,
    /// The name in Unicode, if it has another form there.
    unicode: Option<Box<str>>,
}

impl SearchedName {
    /// Returns the domain with this name in Punycode and this ID in codes.
    fn new(name: &str, id: Option<DomainId>) -> SearchedName {
        let unicode = unicode_of(name).map(String::into_boxed_str);
        SearchedName { id, punycode: name.into(), unicode }
    }

    /// True if the name contains a text in lower case. `punycode` is the text in Punycode, if it is a host in Unicode.
    fn contains(&self, text: &str, punycode: Option<&str>) -> bool {
        self.punycode.contains(text)
            || self.unicode.as_ref().is_some_and(|unicode| unicode.contains(text))
            || punycode.is_some_and(|punycode| self.punycode.contains(punycode))
    }
}

/// The domains that searches find by their names. Unicode names are decoded once, when a domain is added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SearchedNames(Vec<SearchedName>);

impl SearchedNames {
    /// Adds a domain: its name in Punycode, and its ID in codes.
    pub(super) fn add(&mut self, name: &str, id: Option<DomainId>) {
        self.0.push(SearchedName::new(name, id));
    }

    /// Returns the IDs of the domains whose names contain a text in lower case, sorted. `punycode` is the text in
    /// Punycode, if it is a host in Unicode.
    pub(super) fn ids_containing(&self, text: &str, punycode: Option<&str>) -> Vec<Option<DomainId>> {
        let found = self.0.iter().filter(|one| one.contains(text, punycode));
        let mut ids: Vec<Option<DomainId>> = found.map(|one| one.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Iterates over the IDs of the domains other than the default one.
    fn ids(&self) -> impl Iterator<Item = DomainId> {
        self.0.iter().filter_map(|one| one.id)
    }
}

/// The domains that have got links since the start of the process. The writer adds them, and searches read them without a
/// lock, because cores search, too.
#[derive(Debug)]
pub struct LinkedDomains {
    /// The domains below, and those that searches know without them. No core locks it.
    known: Mutex<BTreeSet<DomainId>>,
    /// The domains in the order in which they were added, before the free places.
    names: Box<[OnceLock<SearchedName>]>,
}

impl Default for LinkedDomains {
    fn default() -> LinkedDomains {
        LinkedDomains { known: Mutex::default(), names: (0..LINKED_MAX).map(|_| OnceLock::new()).collect() }
    }
}

impl PartialEq for LinkedDomains {
    fn eq(&self, other: &LinkedDomains) -> bool {
        self.names == other.names
    }
}

impl Eq for LinkedDomains {}

impl LinkedDomains {
    /// Adds the domain of a new link, by its ID in codes and its name. Costs a look-up if it is known. Beyond 1,000 domains,
    /// searches find another one after a restart.
    pub fn note(&self, id: DomainId, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&id) {
            return;
        }
        let Some(place) = self.names.iter().find(|place| place.get().is_none()) else { return };
        let is_added = place.set(SearchedName::new(name, Some(id))).is_ok();
        assert!(is_added, "another thread fills a place without the lock");
        known.insert(id);
    }

    /// Takes note of domains that searches know without these.
    pub(super) fn leave_out(&self, names: &SearchedNames) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).extend(names.ids());
    }

    /// True if no domain has links.
    pub(super) fn is_empty(&self) -> bool {
        self.names().next().is_none()
    }

    /// Adds the IDs of the domains that a search finds, as [`SearchedNames::ids_containing`] does.
    pub(super) fn extend(&self, ids: &mut Vec<Option<DomainId>>, text: &str, punycode: Option<&str>) {
        ids.extend(self.names().filter(|one| one.contains(text, punycode)).map(|one| one.id));
        ids.sort_unstable();
        ids.dedup();
    }

    fn names(&self) -> impl Iterator<Item = &SearchedName> {
        self.names.iter().map_while(OnceLock::get)
    }
}
