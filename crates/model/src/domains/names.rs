//! The names of domains, as searches compare them: in Punycode and, where that differs, in Unicode.

use carom_shards::DomainId;

use crate::destination::hosts::unicode_of;

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
}
