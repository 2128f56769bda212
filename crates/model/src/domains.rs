//! The short domains of a service: their names, their IDs in codes, and the domain that a request addresses.
//!
//! A link belongs to one domain. The default domain is the host of the base URL. Until other domains are configured, it
//! serves every request. From then on the `Host` of a request decides which links it reaches.

mod names;
pub mod redirects;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use carom_shards::{Code, DomainId};
use xxhash_rust::xxh3::xxh3_64;

use crate::destination::hosts::{HostPattern, authority_of, host_of, without_port};
pub use names::LinkedDomains;
use names::SearchedNames;

/// Longest name of a domain, in characters (RFC 1035, section 2.3.4).
pub const DOMAIN_NAME_LEN_MAX: usize = 253;

/// Alias of the default domain in requests and settings, as in Shlink. A host has no capital letters, so they never
/// clash.
pub const DEFAULT_DOMAIN: &str = "DEFAULT";

/// The name of a domain: a host in lower case and Punycode, without a port. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DomainName(Arc<str>);

/// The text is not the name of a domain. A retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainNameError;

impl fmt::Display for DomainNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "is not a domain; write a host name of letters, digits, hyphens and dots, such as go.example, without scheme, \
             port and path",
        )
    }
}

impl std::error::Error for DomainNameError {}

impl DomainName {
    /// Parses a host name or an IP address, in either case of letters and in Unicode or Punycode.
    ///
    /// The URL standard, which [`HostPattern`] follows, also accepts hosts such as `it's.example`. No such name can be
    /// registered, so a domain has letters, digits, hyphens, dots, and the underscores that private networks use.
    ///
    /// # Errors
    /// [`DomainNameError`] for anything but a host name or an IP address.
    pub fn parse(text: &str) -> Result<DomainName, DomainNameError> {
        let pattern = HostPattern::parse(text).map_err(|_| DomainNameError)?;
        let host = pattern.alone().filter(|host| host.len() <= DOMAIN_NAME_LEN_MAX).ok_or(DomainNameError)?;
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = host.starts_with('[') || host.bytes().all(is_name_byte);
        is_name.then(|| DomainName(host.into())).ok_or(DomainNameError)
    }

    /// Takes a name that [`DomainName::parse`] has normalised before; `None` for anything else.
    pub fn from_normal(text: &str) -> Option<DomainName> {
        let is_normal = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        let is_name = (1..=DOMAIN_NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(is_normal);
        is_name.then(|| DomainName(text.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the ID of the domain in codes, which is the same on every node and forever: 48 bits of a hash. Among a
    /// thousand domains, two share an ID with a probability of one in 500 million. Such a pair is refused when it is
    /// configured.
    pub fn id(&self) -> DomainId {
        let [a, b, c, d, e, f, ..] = xxh3_64(self.0.as_bytes()).to_be_bytes();
        DomainId::from_bytes([a, b, c, d, e, f])
            .unwrap_or_else(|| DomainId::from_bytes([1; 6]).expect("ones are no zeros"))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Redirect targets for requests that find no link: checked destinations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Targets {
    /// The target of `/`.
    pub home: Option<String>,
    /// The target of paths that cannot be short URLs.
    pub regular_404: Option<String>,
    /// The target of codes that do not exist.
    pub invalid_short_url: Option<String>,
    /// The target of expired links.
    pub expired: Option<String>,
}

/// A domain that the service serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domain {
    /// The name of the domain.
    pub name: DomainName,
    /// The beginning of its short URLs, without a trailing slash.
    pub base_url: String,
    /// Redirect targets for requests that find no link.
    pub targets: Targets,
}

/// The response to a request for a host that the service does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnknownHost {
    /// 404, as for an unknown code.
    #[default]
    NotFound,
    /// 421, with a page that names the problem.
    Misdirected,
}

/// The index of a domain among those of a service. The first is the default domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DomainIndex(u16);

impl DomainIndex {
    /// Returns the index, from 0.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Maximum number of domains of a service.
pub const DOMAINS_MAX: usize = 10_000;

/// All domains of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domains {
    /// The domains, the default one first.
    all: Vec<Domain>,
    /// The IDs of the domains in codes, in the same order.
    ids: Vec<Option<DomainId>>,
    /// The domains by name, sorted.
    by_name: Vec<(DomainName, DomainIndex)>,
    /// The domains that searches find by their names, served or not.
    searched: SearchedNames,
    /// Domains that have got links since the start; `None` without a store.
    linked: Option<Arc<LinkedDomains>>,
    fallback: bool,
    unknown_host: UnknownHost,
    is_strict: bool,
    hides_expired: bool,
    inherits_redirects: bool,
    ignores_case: bool,
}

impl Domains {
    /// Combines the default domain, the host of the base URL, with others. The default domain may also be among those
    /// in `serve`, which then gives its redirect targets.
    pub fn new(base_url: &str, serve: &[Domain], fallback: bool, unknown_host: UnknownHost) -> Domains {
        let name = DomainName::parse(host_of(base_url.as_bytes())).unwrap_or_else(|_| DomainName("localhost".into()));
        let own = serve.iter().find(|domain| domain.name == name);
        let targets = own.map(|domain| domain.targets.clone()).unwrap_or_default();
        let mut all = vec![Domain { name: name.clone(), base_url: base_url.to_owned(), targets }];
        all.extend(serve.iter().filter(|domain| domain.name != name).take(DOMAINS_MAX).cloned());
        let places = all.iter().enumerate().map(|(at, domain)| (domain.name.clone(), DomainIndex(at as u16)));
        let mut by_name: Vec<(DomainName, DomainIndex)> = places.collect();
        by_name.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let others = all.iter().skip(1).map(|domain| Some(domain.name.id()));
        let ids: Vec<Option<DomainId>> = std::iter::once(None).chain(others).collect();
        let mut searched = SearchedNames::default();
        all.iter().zip(&ids).for_each(|(domain, id)| searched.add(domain.name.as_str(), *id));
        let is_strict = !serve.is_empty();
        let (hides_expired, inherits_redirects, ignores_case) = (false, false, false);
        Domains {
            all,
            ids,
            by_name,
            searched,
            linked: None,
            fallback,
            unknown_host,
            is_strict,
            hides_expired,
            inherits_redirects,
            ignores_case,
        }
    }

    /// Adds the domains among `with_links` that are not served, so that searches find their links by name.
    #[must_use]
    pub fn finding_former(self, with_links: &[DomainName]) -> Domains {
        let mut searched = self.searched.clone();
        let former = with_links.iter().filter(|name| self.label_of(name).is_none());
        former.for_each(|name| searched.add(name.as_str(), Some(name.id())));
        Domains { searched, ..self }
    }

    /// Lets searches also find the domains that get links from now on.
    #[must_use]
    pub fn finding_linked(self, linked: Arc<LinkedDomains>) -> Domains {
        linked.leave_out(&self.searched);
        Domains { linked: Some(linked), ..self }
    }

    /// True if a domain that is not served has got its first link since the start.
    pub fn has_linked(&self) -> bool {
        self.linked.as_ref().is_some_and(|linked| !linked.is_empty())
    }

    /// Sets whether expired links get the response of missing ones.
    #[must_use]
    pub fn hiding_expired(self, hides_expired: bool) -> Domains {
        Domains { hides_expired, ..self }
    }

    /// Sets whether a domain without a redirect for missing links uses that of the default domain.
    #[must_use]
    pub fn inheriting_redirects(self, inherits_redirects: bool) -> Domains {
        Domains { inherits_redirects, ..self }
    }

    /// Sets whether a slug that has no link leads to the link with its form in lower case.
    #[must_use]
    pub fn ignoring_case(self, ignores_case: bool) -> Domains {
        Domains { ignores_case, ..self }
    }

    /// True if a slug that has no link leads to the link with its form in lower case.
    #[inline]
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// True if expired links get the response of missing ones.
    pub fn hides_expired(&self) -> bool {
        self.hides_expired
    }

    /// True if a domain without a redirect for missing links uses that of the default domain.
    fn inherits_redirects(&self) -> bool {
        self.inherits_redirects
    }

    /// Returns all domains, the default one first.
    pub fn all(&self) -> &[Domain] {
        &self.all
    }

    /// Returns the names of the first ten domains, for an error about an unknown one.
    pub fn names(&self) -> String {
        const SHOWN_MAX: usize = 10;
        let names = self.all.iter().take(SHOWN_MAX).map(|domain| domain.name.as_str());
        let rest = if self.all.len() > SHOWN_MAX { Some("and others") } else { None };
        names.chain(rest).collect::<Vec<_>>().join(", ")
    }

    /// True if the host of a request decides which links it reaches: as soon as any domain is configured.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the response to requests for other hosts.
    pub fn unknown_host(&self) -> UnknownHost {
        self.unknown_host
    }

    /// Returns the domain at an index.
    #[inline]
    pub fn at(&self, place: DomainIndex) -> &Domain {
        &self.all[place.index()]
    }

    /// Returns the ID of a domain in codes; `None` for the default one.
    #[inline]
    pub fn id_at(&self, place: DomainIndex) -> Option<DomainId> {
        self.ids[place.index()]
    }

    /// Returns the domain that a `Host` field addresses. Allocates nothing.
    pub fn of_host(&self, host: &[u8]) -> Option<DomainIndex> {
        let host = without_port(host);
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.eq_ignore_ascii_case(self.all[0].name.0.as_bytes()) {
            return Some(DomainIndex::default());
        }
        let mut small = [0; DOMAIN_NAME_LEN_MAX];
        let small = small.get_mut(..host.len())?;
        small.copy_from_slice(host);
        small.make_ascii_lowercase();
        let at = self.by_name.binary_search_by(|(name, _)| name.0.as_bytes().cmp(small)).ok()?;
        Some(self.by_name[at].1)
    }

    /// True if an `Origin` field, as browsers write it, matches a base URL.
    pub fn is_origin(&self, origin: &str) -> bool {
        self.all.iter().any(|domain| domain.base_url.eq_ignore_ascii_case(origin))
    }

    /// Returns the IDs of the domains whose names contain a text in lower case, in Punycode or in Unicode, sorted.
    /// `None` is the default domain.
    pub fn ids_containing(&self, text: &str) -> Vec<Option<DomainId>> {
        // A whole name may be typed in characters that Unicode names do not keep, such as a letter and its accent.
        let punycode = DomainName::parse(text).ok().filter(|_| !text.is_ascii());
        let punycode = punycode.as_ref().map(DomainName::as_str);
        let mut ids = self.searched.ids_containing(text, punycode);
        if let Some(linked) = &self.linked {
            linked.extend(&mut ids, text, punycode);
        }
        ids
    }

    /// Returns the domain with that name, in upper or lower case. [`DEFAULT_DOMAIN`] names the default one.
    pub fn named(&self, text: &str) -> Option<DomainIndex> {
        // The name of the default domain may include the port of the base URL.
        if text == DEFAULT_DOMAIN || text.eq_ignore_ascii_case(authority_of(&self.all[0].base_url)) {
            return Some(DomainIndex::default());
        }
        self.place_of(&DomainName::parse(text).ok()?)
    }

    /// Returns the index of a domain.
    pub fn place_of(&self, name: &DomainName) -> Option<DomainIndex> {
        let at = self.by_name.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
        Some(self.by_name[at].1)
    }

    /// Returns the domain name that links of a domain carry; `None` for the default one, whose links carry no name.
    pub fn label_at(&self, place: DomainIndex) -> Option<DomainName> {
        (place.0 > 0).then(|| self.at(place).name.clone())
    }

    /// Returns the name that links of a served domain carry; `None` for the default domain, or one that is not served.
    pub fn label_of(&self, name: &DomainName) -> Option<DomainName> {
        self.place_of(name).and_then(|place| self.label_at(place))
    }

    /// Returns the code of the default domain to try after a miss in another one, if the fallback is enabled.
    #[inline]
    pub fn fallback_of(&self, code: &Code) -> Option<Code> {
        (self.fallback && code.domain().is_some()).then(|| code.within(None))
    }

    /// Returns the code to look up after `code` was missing, for a request on the domain with the ID `at`. The code of
    /// the request comes first, on its domain and then on the default one if the fallback is enabled. If the case of
    /// letters does not matter, its form in lower case follows in the same way.
    #[inline]
    pub fn next_of(&self, code: &Code, at: Option<DomainId>) -> Option<Code> {
        match self.fallback_of(code) {
            None if self.ignores_case => code.in_lower_case().map(|code| code.within(at)),
            next => next,
        }
    }

    /// Returns the beginning of the short URLs of codes with a domain. A domain that is no longer served has lost its name
    /// there, and counts as the default one.
    pub fn base_url_of_id(&self, id: Option<DomainId>) -> &str {
        let place = self.ids.iter().position(|of_place| *of_place == id).unwrap_or_default();
        &self.all[place].base_url
    }

    /// Returns the beginning of the short URLs of links that carry a name. A domain that is no longer served keeps its
    /// name.
    pub fn base_url_of(&self, label: Option<&DomainName>) -> Cow<'_, str> {
        let Some(name) = label else { return Cow::Borrowed(&self.all[0].base_url) };
        match self.place_of(name) {
            Some(place) => Cow::Borrowed(&self.at(place).base_url),
            None => Cow::Owned(format!("http://{name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn domain(base_url: &str) -> Domain {
        let name = DomainName::parse(host_of(base_url.as_bytes())).unwrap();
        Domain { name, base_url: base_url.into(), targets: Targets::default() }
    }

    fn domains(fallback: bool) -> Domains {
        let serve = ["https://go.test", "http://b\u{fc}cher.test:8080", "https://s.test"].map(domain);
        Domains::new("https://s.test", &serve, fallback, UnknownHost::NotFound)
    }

    #[test]
    fn names_have_one_form() {
        for (text, name) in [
            ("Go.Example", "go.example"),
            ("go.example.", "go.example"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("localhost", "localhost"),
            ("my_host.internal", "my_host.internal"),
        ] {
            assert_eq!(DomainName::parse(text).unwrap().as_str(), name);
            assert_eq!(DomainName::from_normal(name), DomainName::parse(text).ok());
        }
        assert_eq!(DomainName::from_normal("Go.example"), None);
    }

    #[test]
    fn name_refuses_anything_but_a_host() {
        let long = format!("{}.test", "a.".repeat(130));
        for text in ["", "*.go.example", "go.example:80", "https://go.example", "go.example/x", "a b", "a\r\nb", &long]
        {
            assert_eq!(DomainName::parse(text), Err(DomainNameError), "{text:?}");
        }
        // The URL standard accepts each of these in a host.
        for text in
            ["'", "it's.example", "it%27s.example", "a!b.example", "a$b", "a&b", "(a)", "a,b", "a;b", "a=b", "a~b"]
        {
            assert!(HostPattern::parse(text).is_ok(), "{text:?}");
            assert_eq!(DomainName::parse(text), Err(DomainNameError), "{text:?}");
        }
    }

    #[test]
    fn ids_never_change() {
        // The IDs are on disk, and nodes of different versions share them in Redis.
        let id = DomainName::parse("go.example").unwrap().id();
        assert_eq!(id.to_bytes(), xxh3_64(b"go.example").to_be_bytes()[..6]);
        assert_ne!(id, DomainName::parse("go2.example").unwrap().id());
    }

    #[test]
    fn the_host_says_which_domain_is_meant() {
        let domains = domains(false);
        let name = |host: &str| domains.of_host(host.as_bytes()).map(|place| domains.at(place).name.to_string());
        for (host, found) in [
            ("s.test", Some("s.test")),
            ("S.Test:8080", Some("s.test")),
            ("s.test.:1", Some("s.test")),
            ("go.test", Some("go.test")),
            ("GO.TEST.", Some("go.test")),
            ("xn--bcher-ehz.test", None),
            ("xn--bcher-kva.test:80", Some("xn--bcher-kva.test")),
            ("other.test", None),
            ("x.go.test", None),
            ("go.test%3a80", None),
            ("", None),
            (":", None),
            (&"g".repeat(300), None),
        ] {
            assert_eq!(name(host).as_deref(), found, "{host}");
        }
        assert_eq!(without_port(b"[::1]"), b"[::1]");
        assert_eq!(without_port(b"[::1]:80"), b"[::1]");
        assert_eq!(domains.id_at(domains.of_host(b"s.test").unwrap()), None);
    }

    #[test]
    fn the_default_domain_may_stand_in() {
        let code = Code::parse(b"abc").unwrap();
        let within = code.within(Some(DomainName::parse("go.test").unwrap().id()));
        assert_eq!(domains(true).fallback_of(&within), Some(code));
        assert_eq!(domains(true).fallback_of(&code), None);
        assert_eq!(domains(false).fallback_of(&within), None);
    }

    #[test]
    fn exact_codes_come_before_those_in_lower_case() {
        let go = Some(DomainName::parse("go.test").unwrap().id());
        let code = |text: &str| Code::parse(text.as_bytes()).unwrap();
        let all = |domains: &Domains, asked: &str, at| {
            let first = code(asked).within(at);
            std::iter::successors(Some(first), |code| domains.next_of(code, at)).collect::<Vec<Code>>()
        };
        let (plain, falling) = (domains(false).ignoring_case(true), domains(true).ignoring_case(true));
        assert_eq!(all(&plain, "aBc", None), [code("aBc"), code("abc")]);
        assert_eq!(all(&plain, "aBc", go), [code("aBc").within(go), code("abc").within(go)]);
        let both = [code("aBc").within(go), code("aBc"), code("abc").within(go), code("abc")];
        assert_eq!(all(&falling, "aBc", go), both);
        assert_eq!(all(&falling, "abc", go), [code("abc").within(go), code("abc")]);
        assert_eq!(all(&falling, "a-1", None), [code("a-1")]);
        assert_eq!(all(&domains(true), "aBc", go), [code("aBc").within(go), code("aBc")]);
    }

    #[test]
    fn a_domain_that_is_served_no_more_keeps_its_name() {
        let domains = domains(false);
        let gone = DomainName::parse("gone.test").ok();
        assert_eq!(domains.base_url_of(gone.as_ref()), "http://gone.test");
        assert_eq!(domains.base_url_of(None), "https://s.test");
        let place = domains.named("B\u{dc}CHER.test").unwrap();
        assert_eq!(domains.base_url_of(domains.label_at(place).as_ref()), "http://b\u{fc}cher.test:8080");
        assert_eq!(domains.named("DEFAULT"), domains.named("s.test"));
        assert_eq!(domains.label_at(domains.named("DEFAULT").unwrap()), None);
    }

    #[test]
    fn a_part_of_its_name_finds_a_domain() {
        let domains = domains(false);
        let id = |name: &str| domains.id_at(domains.named(name).unwrap());
        let mut all = [None, id("go.test"), id("b\u{fc}cher.test")];
        all.sort_unstable();
        assert_eq!(domains.ids_containing("test"), all);
        assert_eq!(domains.ids_containing("o.te"), [id("go.test")]);
        assert_eq!(domains.ids_containing("s.test"), [None]);
        for part in ["b\u{fc}cher.test", "b\u{fc}ch", "\u{fc}cher.t", "xn--bch", "bu\u{308}cher.test"] {
            assert_eq!(domains.ids_containing(part), [id("b\u{fc}cher.test")], "{part}");
        }
        assert!(domains.ids_containing("https://go.test").is_empty());
        assert!(domains.ids_containing("go.tests").is_empty());
    }

    #[test]
    fn searches_find_domains_with_links_since_the_start() {
        let [late, go] = ["sp\u{e4}t.test", "go.test"].map(|name| DomainName::parse(name).unwrap());
        let linked = Arc::new(LinkedDomains::default());
        linked.note(go.id(), go.as_str());
        let with = |linked: Arc<LinkedDomains>| domains(false).finding_linked(linked);
        let domains = with(Arc::clone(&linked));
        assert_eq!(domains.ids_containing("go.t"), [Some(go.id())], "a served domain is there once");
        assert!(domains.ids_containing("sp\u{e4}t").is_empty());
        linked.note(late.id(), late.as_str());
        linked.note(late.id(), late.as_str());
        assert_eq!(domains.ids_containing("sp\u{e4}t"), [Some(late.id())]);
        assert!(domains.has_linked());
        assert!(domains.ids_containing("test").is_sorted());
        let quiet = with(Arc::default());
        assert!(!quiet.has_linked());
        assert!(quiet != domains);
    }

    #[test]
    fn searches_find_domains_that_are_no_longer_served() {
        let [gone, go, own] = ["g\u{e4}ne.test", "go.test", "s.test"].map(|name| DomainName::parse(name).unwrap());
        let domains = domains(false).finding_former(&[gone.clone(), go.clone(), own.clone()]);
        assert_eq!(domains.ids_containing("g\u{e4}n"), [Some(gone.id())]);
        assert_eq!(domains.ids_containing("go.t"), [Some(go.id())], "a served domain is there once");
        // Links that the default domain had before it became the default one.
        assert_eq!(domains.ids_containing("s.test"), [None, Some(own.id())]);
        assert_eq!(domains.place_of(&gone), None);
    }

    proptest! {
        #[test]
        fn reading_is_total(host in proptest::collection::vec(any::<u8>(), 0..300), text in any::<String>()) {
            domains(true).of_host(&host);
            if let Ok(name) = DomainName::parse(&text) {
                prop_assert_eq!(DomainName::parse(name.as_str()), Ok(name.clone()));
                prop_assert_eq!(DomainName::from_normal(name.as_str()), Some(name));
            }
        }
    }
}
