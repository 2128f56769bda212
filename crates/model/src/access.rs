//! Who may do what: apps, their API keys, and what a key allows.
//!
//! An *app* is a caller with a name; its links bear it. A *key* ([`key`]) is what an app shows to prove who it is; only
//! its hash is kept. The [`registry`] is the set of all keys, which several writers may change apart from each other: two
//! of them are merged without asking anybody. [`usage`] is what an app has done. Nothing here does I/O.

pub mod idempotency;
pub mod key;
pub mod miss_limiter;
pub mod registry;
pub mod usage;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use carom_shards::{Code, DomainId};

use crate::domains::{DEFAULT_DOMAIN, DomainName, Domains};
use crate::link::Link;

/// Longest name of an app, in characters.
pub const APP_NAME_LEN_MAX: usize = 64;

/// Longest version that an app may tell of itself, in characters.
pub const APP_VERSION_LEN_MAX: usize = 64;

/// Most domains that a key is limited to.
pub const KEY_DOMAINS_MAX: usize = 100;

/// The name of an app: 1 to 64 characters of `a-z0-9`, and `.`, `_` and `-` after the first. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AppName(Arc<str>);

/// Why a text is no name. Whoever wrote it must choose another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "is not a valid app name: 1 to {APP_NAME_LEN_MAX} characters of a-z and 0-9, and . _ - after the first"
        )
    }
}

impl std::error::Error for NameError {}

impl AppName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`NameError`] for anything else than a name.
    pub fn parse(text: &str) -> Result<AppName, NameError> {
        if AppName::is_name(text) { Ok(AppName(text.into())) } else { Err(NameError) }
    }

    /// Whether a text is a name.
    pub fn is_name(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.len() <= APP_NAME_LEN_MAX
            && text.bytes().next().is_some_and(is_plain)
            && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a version that an app tells of itself may be: 1 to 64 printable ASCII characters.
pub fn is_app_version(text: &str) -> bool {
    (1..=APP_VERSION_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

/// What a key allows. Each role allows what the one before does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// To read the app's own links.
    Read,
    /// To make links, and to change and delete the app's own.
    WriteOwn,
    /// To read, change and delete the links of all apps.
    WriteAll,
    /// To manage apps and keys, too.
    Admin,
}

impl Role {
    /// Every role, the one that allows least first.
    pub const ALL: [Role; 4] = [Role::Read, Role::WriteOwn, Role::WriteAll, Role::Admin];

    /// How people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::WriteOwn => "write-own",
            Role::WriteAll => "write-all",
            Role::Admin => "admin",
        }
    }

    /// What [`Role::as_str`] gave; `None` for anything else.
    pub fn parse(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The names of all roles, for whoever wrote another.
    pub fn names() -> String {
        Role::ALL.map(Role::as_str).join(", ")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The domains that a key is limited to: at least one, each once; `None` stands for the default one. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyDomains(Arc<[Option<DomainName>]>);

impl KeyDomains {
    /// Those domains; `None` where there are none, or more than [`KEY_DOMAINS_MAX`].
    pub fn of(domains: impl IntoIterator<Item = Option<DomainName>>) -> Option<KeyDomains> {
        let all: BTreeSet<Option<DomainName>> = domains.into_iter().collect();
        (1..=KEY_DOMAINS_MAX).contains(&all.len()).then(|| KeyDomains(all.into_iter().collect()))
    }

    /// Reads the names of domains that are served.
    ///
    /// # Errors
    /// What is wrong with which.
    pub fn read<'t>(texts: impl IntoIterator<Item = &'t str>, served: &Domains) -> Result<KeyDomains, String> {
        let read = |text: &str| match served.named(text) {
            Some(place) => Ok(served.label_at(place)),
            None => Err(format!("{:?} is not one of the served domains: {}", shown(text), served.names())),
        };
        let domains = texts.into_iter().map(read).collect::<Result<Vec<_>, String>>()?;
        KeyDomains::of(domains).ok_or_else(|| format!("must list 1 to {KEY_DOMAINS_MAX} domains"))
    }

    /// What [`KeyDomains::names`] gave.
    pub fn from_names<'t>(names: impl IntoIterator<Item = &'t str>) -> Option<KeyDomains> {
        let read = |name| if name == DEFAULT_DOMAIN { Some(None) } else { DomainName::from_normal(name).map(Some) };
        KeyDomains::of(names.into_iter().map(read).collect::<Option<Vec<_>>>()?)
    }

    /// Their names, the default one's as [`DEFAULT_DOMAIN`].
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|domain| domain.as_ref().map_or(DEFAULT_DOMAIN, DomainName::as_str)).collect()
    }

    /// Whether one is among them.
    pub fn has(&self, domain: Option<&DomainName>) -> bool {
        self.0.iter().any(|of_key| of_key.as_ref() == domain)
    }

    /// The one that is meant where none is named: the default one, if it is among them, else the first.
    pub fn meant(&self) -> Option<&DomainName> {
        self.0.first().and_then(Option::as_ref)
    }
}

/// The beginning of a text that somebody sent.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Which links somebody may see and touch. Others are, to them, not there.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// Those of one app; `None`: everybody's.
    app: Option<AppName>,
    /// Those of some domains; `None`: of all.
    domains: Option<Arc<[Option<DomainId>]>>,
}

impl Scope {
    /// All links.
    pub const ALL: Scope = Scope { app: None, domains: None };

    /// Those of one app.
    pub fn of_app(app: AppName) -> Scope {
        Scope { app: Some(app), domains: None }
    }

    /// Of these links those of some domains; `None` stands for the default one.
    #[must_use]
    pub fn within(self, domains: impl IntoIterator<Item = Option<DomainId>>) -> Scope {
        let within: Arc<[Option<DomainId>]> = domains.into_iter().filter(|domain| self.has_domain(*domain)).collect();
        Scope { domains: Some(within), ..self }
    }

    /// Of these links, which are not those of one app alone, those of an app.
    #[must_use]
    pub fn of(self, app: AppName) -> Scope {
        Scope { app: Some(app), ..self }
    }

    /// Of these links those that a key limited to some domains may see.
    #[must_use]
    pub fn within_key(self, domains: &KeyDomains) -> Scope {
        self.within(domains.0.iter().map(|domain| domain.as_ref().map(DomainName::id)))
    }

    /// Whether all links are within.
    pub fn is_all(&self) -> bool {
        *self == Scope::ALL
    }

    /// Whether a link is within.
    pub fn has(&self, link: &Link) -> bool {
        self.has_link(&link.code, link.labels.app.as_ref().map(AppName::as_str))
    }

    /// Whether a link of an app is within that has this code; `None`: of nobody.
    pub fn has_link(&self, code: &Code, app: Option<&str>) -> bool {
        self.app.as_ref().is_none_or(|own| app == Some(own.as_str())) && self.has_domain(code.domain())
    }

    /// Whether links of a domain may be within.
    pub fn has_domain(&self, domain: Option<DomainId>) -> bool {
        self.domains.as_ref().is_none_or(|domains| domains.contains(&domain))
    }

    /// The app, if it is that of one.
    pub fn app(&self) -> Option<&AppName> {
        self.app.as_ref()
    }

    /// The domains, if not all are within.
    pub fn domains(&self) -> Option<&[Option<DomainId>]> {
        self.domains.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "0", "shop-1.eu_west", &"x".repeat(64)] {
            assert_eq!(AppName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "A", "-a", ".a", "a b", "a/b", "a\"", "a\r\n", "é", "a\u{0}", &"x".repeat(65)] {
            assert_eq!(AppName::parse(bad), Err(NameError), "{bad:?}");
        }
    }

    #[test]
    fn keys_of_some_domains_reach_no_others() {
        let served = crate::testing::three_domains();
        let domains = KeyDomains::read(["GO.test", "DEFAULT", "go.test"], &served).unwrap();
        assert_eq!((domains.names(), domains.meant()), (vec!["DEFAULT", "go.test"], None));
        assert_eq!(KeyDomains::from_names(domains.names()), Some(domains));
        let go = KeyDomains::read(["go.test"], &served).unwrap();
        assert_eq!(go.meant().map(DomainName::as_str), Some("go.test"));
        assert_eq!(KeyDomains::read(["s.test"], &served).unwrap().names(), ["DEFAULT"]);
        let unknown = KeyDomains::read(["other.test"], &served).unwrap_err();
        assert!(unknown.contains("\"other.test\" is not one") && unknown.contains("go.test"), "{unknown}");
        assert!(KeyDomains::read([], &served).is_err());
        assert_eq!(KeyDomains::from_names(["Go.test"]), None);
        let code = Code::parse(b"a").unwrap();
        let (in_go, app) = (code.within(go.meant().map(DomainName::id)), AppName::parse("shop").unwrap());
        let scope = Scope::of_app(app).within_key(&go);
        assert!(scope.has_link(&in_go, Some("shop")) && !scope.has_link(&code, Some("shop")));
        assert!(!scope.has_link(&in_go, None) && !scope.is_all());
        // What is asked for beyond it is not there.
        assert!(!scope.within([None]).has_link(&code, Some("shop")));
    }

    #[test]
    fn roles_are_read_back_and_rise() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("Admin"), None);
        assert!(Role::ALL.is_sorted());
    }
}
