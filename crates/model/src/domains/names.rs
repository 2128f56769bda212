//! The names of domains, as searches compare them: in Punycode and, where that differs, in Unicode.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

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

/// The domains that searches find by their names. Unicode names are decoded once, when a domain is added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SearchedNames(Vec<SearchedName>);

impl SearchedNames {
    /// Adds a domain: its name in Punycode, and its ID in codes.
    pub(super) fn add(&mut self, name: &str, id: Option<DomainId>) {
        let unicode = unicode_of(name).map(String::into_boxed_str);
        self.0.push(SearchedName { id, punycode: name.into(), unicode });
    }

    /// Returns the IDs of the domains whose names contain a text in lower case, sorted. `punycode` is the text in
    /// Punycode, if it is a host in Unicode.
    pub(super) fn ids_containing(&self, text: &str, punycode: Option<&str>) -> Vec<Option<DomainId>> {
        let is_found = |one: &&SearchedName| {
            one.punycode.contains(text)
                || one.unicode.as_ref().is_some_and(|unicode| unicode.contains(text))
                || punycode.is_some_and(|punycode| one.punycode.contains(punycode))
        };
        let mut ids: Vec<Option<DomainId>> = self.0.iter().filter(is_found).map(|one| one.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Iterates over the IDs of the domains other than the default one.
    fn ids(&self) -> impl Iterator<Item = DomainId> {
        self.0.iter().filter_map(|one| one.id)
    }
}

/// The domains that have got links since the start of the process. The writer adds them, and searches read them.
#[derive(Debug, Default)]
pub struct LinkedDomains(RwLock<Linked>);

#[derive(PartialEq, Eq, Debug, Default)]
struct Linked {
    /// The domains below, and those that searches know without them.
    known: BTreeSet<DomainId>,
    names: SearchedNames,
}

impl PartialEq for LinkedDomains {
    fn eq(&self, other: &LinkedDomains) -> bool {
        std::ptr::eq(self, other) || self.read(|own| other.read(|others| own == others))
    }
}

impl Eq for LinkedDomains {}

impl LinkedDomains {
    /// Adds the domain of a new link, by its ID in codes and its name. Costs a look-up if it is known. Beyond 1,000 domains,
    /// searches find another one after a restart.
    pub fn note(&self, id: DomainId, name: &str) {
        if self.read(|linked| linked.known.contains(&id)) {
            return;
        }
        let mut linked = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if linked.names.0.len() < LINKED_MAX && linked.known.insert(id) {
            linked.names.add(name, Some(id));
        }
    }

    /// Takes note of domains that searches know without these.
    pub(super) fn leave_out(&self, names: &SearchedNames) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).known.extend(names.ids());
    }

    /// True if no domain has links.
    pub(super) fn is_empty(&self) -> bool {
        self.read(|linked| linked.names.0.is_empty())
    }

    /// Adds the IDs of the domains that a search finds, as [`SearchedNames::ids_containing`] does.
    pub(super) fn extend(&self, ids: &mut Vec<Option<DomainId>>, text: &str, punycode: Option<&str>) {
        ids.extend(self.read(|linked| linked.names.ids_containing(text, punycode)));
        ids.sort_unstable();
        ids.dedup();
    }

    fn read<T>(&self, look: impl FnOnce(&Linked) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
