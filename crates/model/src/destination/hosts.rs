//! Lists of hosts that links may lead to. An entry is a host, as `shop.example`, or all hosts below one, as
//! `*.shop.example`.
//!
//! Hosts are compared in the form of stored URLs: lower case, Punycode, and IP addresses in their one canonical
//! spelling. This module resolves no names.

use std::collections::HashSet;
use std::fmt;

use url::Url;

/// One entry of a list.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HostPattern {
    /// The host without `*.` and without a trailing dot.
    host: Box<str>,
    /// True if the entry stands for all hosts below this one, and not for this one.
    below: bool,
}

/// The reason for which a text is not an entry. A retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostError {
    /// An empty text.
    Empty,
    /// The text has more than a host: a scheme, a port or a path.
    NotAlone,
    /// A star in another position than the first.
    Star,
    /// A text that is not a host.
    Unreadable,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostError::Empty => "is empty",
            HostError::NotAlone => "contains more than a host, such as a scheme, a port or a path",
            HostError::Star => "has a misplaced star, which is allowed only as in *.shop.example",
            HostError::Unreadable => "is not a valid host",
        })
    }
}

impl std::error::Error for HostError {}

impl HostPattern {
    /// Parses an entry.
    ///
    /// # Errors
    /// [`HostError`] unless the text is a host, or `*.` and a host.
    pub fn parse(text: &str) -> Result<HostPattern, HostError> {
        let text = text.trim();
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if name.contains('*') {
            return Err(HostError::Star);
        }
        let is_ipv6 = name.starts_with('[') && name.ends_with(']');
        if name.contains(['/', '\\', '?', '#', '@']) || name.contains(':') && !is_ipv6 {
            return Err(HostError::NotAlone);
        }
        if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(HostError::Unreadable);
        }
        let url = Url::parse(&format!("http://{name}/")).map_err(|_| HostError::Unreadable)?;
        match (url.host(), below) {
            // An IP address has no hosts below it.
            (None, _) | (Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)), true) => Err(HostError::Unreadable),
            (Some(host), _) => match without_dot(&host.to_string()) {
                // A host may end with at most one dot.
                host if host.is_empty() || host.ends_with('.') => Err(HostError::Unreadable),
                // Normalisation turns some other characters into a star.
                host if host.contains('*') => Err(HostError::Star),
                host => Ok(HostPattern { host: host.into(), below }),
            },
        }
    }
}

impl HostPattern {
    /// Returns the host, if the entry stands for that one alone.
    pub fn alone(&self) -> Option<&str> {
        (!self.below).then_some(&*self.host)
    }

    /// Returns true if the entry covers the host of a URL, as the `url` crate spells it.
    pub fn covers(&self, host: &str) -> bool {
        match without_dot(host).strip_suffix(&*self.host) {
            Some("") => !self.below,
            // A host below this one is a name, a dot and this host.
            Some(left) => self.below && left.len() > 1 && left.ends_with('.'),
            None => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.below { "*." } else { "" })?;
        f.write_str(&self.host)
    }
}

/// Returns the host without a trailing dot: `example.org.` and `example.org` are one host.
fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns the host of a URL that the `url` crate has serialised; empty if it has none.
pub fn host_of(target: &[u8]) -> &str {
    let behind_scheme = memchr::memmem::find(target, b"://").map_or(&[][..], |at| &target[at + 3..]);
    let end = behind_scheme.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(behind_scheme.len());
    let authority = &behind_scheme[..end];
    let host = authority.iter().rposition(|byte| *byte == b'@').map_or(authority, |at| &authority[at + 1..]);
    std::str::from_utf8(without_port(host)).unwrap_or_default()
}

/// Returns a host in Punycode as people write it, in Unicode; `None` if it has no other form.
pub fn unicode_of(host: &str) -> Option<String> {
    let (shown, is_sound) = idna::domain_to_unicode(host);
    (is_sound.is_ok() && shown != host).then_some(shown)
}

/// Returns the host of a host with an optional port.
pub fn without_port(authority: &[u8]) -> &[u8] {
    let end = match authority.first() {
        // An IPv6 address contains colons, too.
        Some(b'[') => memchr::memchr(b']', authority).map(|at| at + 1),
        _ => memchr::memchr(b':', authority),
    };
    &authority[..end.unwrap_or(authority.len())]
}

/// Returns the host and port of a base URL, as spelled there.
pub fn authority_of(base_url: &str) -> &str {
    let behind_scheme = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    behind_scheme.split('/').next().unwrap_or_default()
}

/// A set of hosts, from the entries of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostSet {
    exact: HashSet<Box<str>>,
    below: HashSet<Box<str>>,
    /// Entries of the settings that the source of the list does not have.
    of_settings: HashSet<HostPattern>,
}

impl HostSet {
    /// Returns a list with the entries of the settings and those of its source.
    pub fn of_list(settings: &[HostPattern], source: &[HostPattern]) -> HostSet {
        let mut hosts: HostSet = source.iter().cloned().collect();
        let of_settings = settings.iter().filter(|entry| !hosts.contains(entry)).cloned().collect();
        hosts.extend(settings.iter().cloned());
        HostSet { of_settings, ..hosts }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.exact.len() + self.below.len()
    }

    /// Returns true if the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if an entry covers the host of a URL, as the `url` crate spells it.
    pub fn has(&self, host: &str) -> bool {
        let host = without_dot(host);
        self.exact.contains(host)
            || !self.below.is_empty()
                && host.match_indices('.').any(|(dot, _)| dot > 0 && self.below.contains(&host[dot + 1..]))
    }

    /// Returns true if an entry of the source covers the host of a URL, as the `url` crate spells it.
    pub fn source_has(&self, host: &str) -> bool {
        let host = without_dot(host);
        let is_in_source = |host: &str, below: bool| {
            let entry = HostPattern { host: host.into(), below };
            self.contains(&entry) && !self.of_settings.contains(&entry)
        };
        is_in_source(host, false)
            || host.match_indices('.').any(|(dot, _)| dot > 0 && is_in_source(&host[dot + 1..], true))
    }

    /// Returns true if the list has this entry.
    fn contains(&self, entry: &HostPattern) -> bool {
        let entries = if entry.below { &self.below } else { &self.exact };
        entries.contains(&*entry.host)
    }
}

impl Extend<HostPattern> for HostSet {
    fn extend<T: IntoIterator<Item = HostPattern>>(&mut self, patterns: T) {
        for HostPattern { host, below } in patterns {
            if below { &mut self.below } else { &mut self.exact }.insert(host);
        }
    }
}

impl FromIterator<HostPattern> for HostSet {
    fn from_iter<T: IntoIterator<Item = HostPattern>>(patterns: T) -> HostSet {
        let mut hosts = HostSet::default();
        hosts.extend(patterns);
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(patterns: &[&str]) -> HostSet {
        patterns.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    fn has(hosts: &HostSet, url: &str) -> bool {
        hosts.has(Url::parse(url).unwrap().host_str().unwrap())
    }

    #[test]
    fn a_host_is_one_and_a_star_is_all_below() {
        let list =
            hosts(&["Shop.Example", "*.wide.example", "bücher.example", "192.0.2.1", "[2001:db8::1]", "dot.example."]);
        for url in [
            "https://shop.example/a",
            "http://SHOP.EXAMPLE:8080/",
            "https://shop.example./",
            "https://a.wide.example/",
            "https://a.b.wide.example/",
            "https://xn--bcher-kva.example/",
            "https://BÜCHER.example/",
            "http://192.0.2.1/",
            "http://0xc0000201/",
            "http://[2001:DB8:0::1]/",
            "http://dot.example/",
        ] {
            assert!(has(&list, url), "{url}");
        }
        for url in [
            "https://a.shop.example/",
            "https://shop.example.org/",
            "https://notshop.example/",
            "https://wide.example/",
            "https://notwide.example/",
            "https://example/",
            "http://192.0.2.2/",
        ] {
            assert!(!has(&list, url), "{url}");
        }
        assert!(!hosts(&[]).has("shop.example"));
        assert!(hosts(&[]).is_empty());
        assert_eq!(list.len(), 6);
    }

    #[test]
    fn entries_of_the_source_are_told_apart() {
        let entries = |texts: &[&str]| texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect::<Vec<_>>();
        let settings = entries(&["own.example", "both.example", "*.wide.example"]);
        let list = HostSet::of_list(&settings, &entries(&["both.example", "a.wide.example", "*.far.example"]));
        assert_eq!(list.len(), 5);
        for host in ["both.example", "both.example.", "a.wide.example", "b.far.example"] {
            assert!(list.source_has(host), "{host}");
        }
        for host in ["own.example", "b.wide.example", "far.example", "other.example"] {
            assert!(!list.source_has(host), "{host}");
        }
        assert!(list.has("own.example"));
        assert!(list.has("b.wide.example"));
    }

    #[test]
    fn what_is_no_entry_is_said() {
        for (text, error) in [
            ("", HostError::Empty),
            (" ", HostError::Empty),
            ("*.", HostError::Empty),
            ("*", HostError::Star),
            ("a.*.example", HostError::Star),
            ("*.*.example", HostError::Star),
            ("https://shop.example", HostError::NotAlone),
            ("shop.example:80", HostError::NotAlone),
            ("shop.example/a", HostError::NotAlone),
            ("me@shop.example", HostError::NotAlone),
            ("a b", HostError::Unreadable),
            ("a\r\nb", HostError::Unreadable),
            ("%00", HostError::Unreadable),
            (".", HostError::Unreadable),
            ("..", HostError::Unreadable),
            ("shop.example..", HostError::Unreadable),
            ("*.192.0.2.1", HostError::Unreadable),
            ("[::1", HostError::NotAlone),
        ] {
            assert_eq!(HostPattern::parse(text), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_entry_covers_what_its_list_has(
            entry in "(\\*\\.)?[ab]{1,2}(\\.[ab]){0,2}", host in "[ab]{1,2}(\\.[ab]{1,2}){0,3}\\.?",
        ) {
            let entry = HostPattern::parse(&entry).unwrap();
            prop_assert_eq!(entry.covers(&host), HostSet::from_iter([entry]).has(&host));
        }

        #[test]
        fn the_host_of_a_target_is_that_of_its_url(
            scheme in "https?", user in "([a-z%@:]{0,8}@)?", host in "([a-zA-Z0-9-]{1,8}(\\.[a-z]{1,5}){0,3}\\.?|\\[2001:db8::[0-9a-f]{1,3}\\]|[0-9]{1,3}(\\.[0-9]{1,2}){3})",
            port in "(:[0-9]{1,4})?", rest in "([/?#][ -~]{0,20})?",
        ) {
            if let Ok(url) = Url::parse(&format!("{scheme}://{user}{host}{port}{rest}")) {
                prop_assert_eq!(host_of(url.as_str().as_bytes()), url.host_str().unwrap());
            }
        }

        #[test]
        fn reading_is_total(text in any::<String>()) {
            if let Ok(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern));
            }
        }
    }
}
