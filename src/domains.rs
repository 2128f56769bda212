//! The short domains of a service: their names, what stands for them in codes, and which of them a request means.
//!
//! A link belongs to one domain. Those of the default domain, the host of the base URL, are all that there is until others are
//! configured; from then on the `Host` of a request decides what it can reach.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use carom_shards::{Code, DomainId};
use xxhash_rust::xxh3::xxh3_64;

use crate::hosts::{HostPattern, authority_of, host_of, without_port};

/// Longest name of a domain, in characters (RFC 1035, section 2.3.4).
pub const DOMAIN_NAME_LEN_MAX: usize = 253;

/// What stands for the default domain where a domain is named, as in Shlink. No host has a capital letter.
pub const DEFAULT_DOMAIN: &str = "DEFAULT";

/// The name of a domain: a host in small letters and Punycode, without a port. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DomainName(Arc<str>);

/// Why a text is no name of a domain. Whoever wrote it must do so anew.
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

    /// Takes a name that was read before; `None` for anything else.
    pub fn from_normal(text: &str) -> Option<DomainName> {
        let is_normal = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        let is_name = (1..=DOMAIN_NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(is_normal);
        is_name.then(|| DomainName(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands for it in codes, on every node and for good: 48 bits of a hash. Two of a thousand domains have the same by a
    /// chance of one in 500 million; such a pair is refused when it is configured.
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

/// Where people are led who find nothing: long URLs, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Targets {
    /// Who asks for `/`.
    pub home: Option<String>,
    /// Who asks for a link that there is not.
    pub not_found: Option<String>,
    /// Who asks for one whose time is over.
    pub expired: Option<String>,
}

/// A domain that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domain {
    /// Its name.
    pub name: DomainName,
    /// What its short URLs start with, without a slash at the end.
    pub base_url: String,
    /// Where people are led who find nothing.
    pub targets: Targets,
}

/// What is answered where the host of a request is none that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnknownHost {
    /// What is answered for a link that there is not: 404.
    #[default]
    NotFound,
    /// A page that says why: 421.
    Misdirected,
}

/// Which of the domains of a service. The first is the default one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(u16);

impl Place {
    /// Its number, from 0.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Most domains of a service.
pub const DOMAINS_MAX: usize = 10_000;

/// All domains of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domains {
    /// The default one first.
    all: Vec<Domain>,
    /// What stands for each in codes.
    ids: Vec<Option<DomainId>>,
    /// Each by its name, in the order of names.
    by_name: Vec<(DomainName, Place)>,
    fallback: bool,
    unknown_host: UnknownHost,
    is_strict: bool,
}

impl Domains {
    /// The default domain, which is that of the base URL, and others. Among these the default one may be once more, to say where it
    /// leads who find nothing.
    pub fn new(base_url: &str, serve: &[Domain], fallback: bool, unknown_host: UnknownHost) -> Domains {
        let name = DomainName::parse(host_of(base_url.as_bytes())).unwrap_or_else(|_| DomainName("localhost".into()));
        let own = serve.iter().find(|domain| domain.name == name);
        let targets = own.map(|domain| domain.targets.clone()).unwrap_or_default();
        let mut all = vec![Domain { name: name.clone(), base_url: base_url.to_owned(), targets }];
        all.extend(serve.iter().filter(|domain| domain.name != name).take(DOMAINS_MAX).cloned());
        let places = all.iter().enumerate().map(|(at, domain)| (domain.name.clone(), Place(at as u16)));
        let mut by_name: Vec<(DomainName, Place)> = places.collect();
        by_name.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let others = all.iter().skip(1).map(|domain| Some(domain.name.id()));
        let ids = std::iter::once(None).chain(others).collect();
        Domains { all, ids, by_name, fallback, unknown_host, is_strict: !serve.is_empty() }
    }

    /// All of them, the default one first.
    pub fn all(&self) -> &[Domain] {
        &self.all
    }

    /// The names of some of them, for whoever wrote another.
    pub fn names(&self) -> String {
        const SHOWN_MAX: usize = 10;
        let names = self.all.iter().take(SHOWN_MAX).map(|domain| domain.name.as_str());
        let rest = if self.all.len() > SHOWN_MAX { Some("and others") } else { None };
        names.chain(rest).collect::<Vec<_>>().join(", ")
    }

    /// Whether the host of a request says what it can reach: as soon as any domain is configured.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// What is answered where the host is none of these.
    pub fn unknown_host(&self) -> UnknownHost {
        self.unknown_host
    }

    /// The domain at a place.
    #[inline]
    pub fn at(&self, place: Place) -> &Domain {
        &self.all[place.index()]
    }

    /// What stands for it in codes; `None` for the default one.
    #[inline]
    pub fn id_at(&self, place: Place) -> Option<DomainId> {
        self.ids[place.index()]
    }

    /// The domain of a request, by what its field `Host` says. Nothing is allocated.
    pub fn of_host(&self, host: &[u8]) -> Option<Place> {
        let host = without_port(host);
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.eq_ignore_ascii_case(self.all[0].name.0.as_bytes()) {
            return Some(Place::default());
        }
        let mut small = [0; DOMAIN_NAME_LEN_MAX];
        let small = small.get_mut(..host.len())?;
        small.copy_from_slice(host);
        small.make_ascii_lowercase();
        let at = self.by_name.binary_search_by(|(name, _)| name.0.as_bytes().cmp(small)).ok()?;
        Some(self.by_name[at].1)
    }

    /// Whether an origin, as browsers name theirs, is that of a base URL.
    pub fn is_origin(&self, origin: &str) -> bool {
        self.all.iter().any(|domain| domain.base_url.eq_ignore_ascii_case(origin))
    }

    /// The domain of that name, however it is written. [`DEFAULT_DOMAIN`] is the default one.
    pub fn named(&self, text: &str) -> Option<Place> {
        // The default one may be called with the port that it has, too.
        if text == DEFAULT_DOMAIN || text.eq_ignore_ascii_case(authority_of(&self.all[0].base_url)) {
            return Some(Place::default());
        }
        self.place_of(&DomainName::parse(text).ok()?)
    }

    /// The place of a domain.
    pub fn place_of(&self, name: &DomainName) -> Option<Place> {
        let at = self.by_name.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
        Some(self.by_name[at].1)
    }

    /// The name that links of a place bear; those of the default domain bear none.
    pub fn label_at(&self, place: Place) -> Option<DomainName> {
        (place.0 > 0).then(|| self.at(place).name.clone())
    }

    /// The same name, if links that bear it answer somewhere: not that of the default domain, whose links bear none.
    pub fn label_of(&self, name: &DomainName) -> Option<DomainName> {
        self.place_of(name).and_then(|place| self.label_at(place))
    }

    /// What else may be meant where a domain has no link of that code: that of the default domain, if it is a fallback.
    #[inline]
    pub fn fallback_of(&self, code: &Code) -> Option<Code> {
        (self.fallback && code.domain().is_some()).then(|| code.within(None))
    }

    /// What short URLs of a link start with that bears the name of that domain. One that is served no more keeps its name.
    pub fn base_url_of(&self, label: Option<&DomainName>) -> Cow<'_, str> {
        let Some(name) = label else { return Cow::Borrowed(&self.all[0].base_url) };
        match self.place_of(name) {
            Some(place) => Cow::Borrowed(&self.at(place).base_url),
            None => Cow::Owned(format!("http://{name}")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_domain() -> impl Strategy<Value = Option<DomainName>> {
        proptest::option::of("[a-z]{1,5}[.][a-z]{2}")
            .prop_map(|text| text.map(|text| DomainName::parse(&text).unwrap()))
    }

    fn domain(base_url: &str) -> Domain {
        let name = DomainName::parse(host_of(base_url.as_bytes())).unwrap();
        Domain { name, base_url: base_url.into(), targets: Targets::default() }
    }

    pub(crate) fn some_domains() -> Domains {
        domains(false)
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
        // They are on disk, and nodes of several versions meet in Redis.
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
