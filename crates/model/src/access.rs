//! Access control: apps, their API keys, and the permissions of a key.
//!
//! An *app* is a named client, which owns the links that it creates. An API *key* ([`key`]) authenticates an app; only
//! its hash is stored. The [`registry`] is the set of all keys. Several writers may change copies of it concurrently,
//! and copies merge without conflicts. [`usage`] counts the activity of an app, and [`origins`] says which web pages may call
//! the API. This module does no I/O.

pub(crate) mod app_name;
pub mod idempotency;
pub mod key;
pub(crate) mod key_name;
pub mod miss_limiter;
pub mod origins;
pub mod rate;
pub mod registry;
pub mod usage;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use carom_shards::{Code, DomainId};

pub use self::app_name::{APP_NAME_LEN_MAX, APP_VERSION_LEN_MAX, AppName, NameError, is_app_version};
pub use self::key_name::{KEY_NAME_LEN_MAX, KeyName};
use crate::domains::{DEFAULT_DOMAIN, DomainName, Domains};
use crate::link::{Link, LinkIdentity};

/// Maximum number of domains that a key can be limited to.
pub const KEY_DOMAINS_MAX: usize = 100;

/// The permissions of a key. [`Role::includes`] says which roles have those of which others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Read the app's own links.
    Read,
    /// Read the links of all apps.
    ReadAll,
    /// Create links, and change and delete the app's own.
    WriteOwn,
    /// Read, change and delete the links of all apps.
    WriteAll,
    /// Manage apps and keys.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Role; 5] = [Role::Read, Role::ReadAll, Role::WriteOwn, Role::WriteAll, Role::Admin];

    /// True if the role has every permission of another one. Of `read-all` and `write-own`, neither includes the other.
    pub fn includes(self, other: Role) -> bool {
        match other {
            Role::Read => true,
            Role::ReadAll => matches!(self, Role::ReadAll | Role::WriteAll | Role::Admin),
            Role::WriteOwn => matches!(self, Role::WriteOwn | Role::WriteAll | Role::Admin),
            Role::WriteAll => matches!(self, Role::WriteAll | Role::Admin),
            Role::Admin => self == Role::Admin,
        }
    }

    /// Returns the name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::ReadAll => "read-all",
            Role::WriteOwn => "write-own",
            Role::WriteAll => "write-all",
            Role::Admin => "admin",
        }
    }

    /// Parses a name from [`Role::as_str`]; `None` for anything else.
    pub fn parse(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Returns the names of all roles, for an error about an unknown one.
    pub fn names() -> String {
        Role::ALL.map(Role::as_str).join(", ")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The domains that a key is limited to: at least one, each once; `None` is the default domain. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyDomains(Arc<[Option<DomainName>]>);

impl KeyDomains {
    /// Builds a set of domains; `None` if it is empty, or has more than [`KEY_DOMAINS_MAX`].
    pub fn of(domains: impl IntoIterator<Item = Option<DomainName>>) -> Option<KeyDomains> {
        let all: BTreeSet<Option<DomainName>> = domains.into_iter().collect();
        (1..=KEY_DOMAINS_MAX).contains(&all.len()).then(|| KeyDomains(all.into_iter().collect()))
    }

    /// Parses the names of served domains.
    ///
    /// # Errors
    /// A message that names the invalid domain.
    pub fn read<'t>(texts: impl IntoIterator<Item = &'t str>, served: &Domains) -> Result<KeyDomains, String> {
        let read = |text: &str| match served.named(text) {
            Some(place) => Ok(served.label_at(place)),
            None => Err(format!("{:?} is not one of the served domains: {}", shown(text), served.names())),
        };
        let domains = texts.into_iter().map(read).collect::<Result<Vec<_>, String>>()?;
        KeyDomains::of(domains).ok_or_else(|| format!("must list 1 to {KEY_DOMAINS_MAX} domains"))
    }

    /// Parses names from [`KeyDomains::names`]; `None` if one is malformed.
    pub fn from_names<'t>(names: impl IntoIterator<Item = &'t str>) -> Option<KeyDomains> {
        let read = |name| if name == DEFAULT_DOMAIN { Some(None) } else { DomainName::from_normal(name).map(Some) };
        KeyDomains::of(names.into_iter().map(read).collect::<Option<Vec<_>>>()?)
    }

    /// Returns the names; the default domain is [`DEFAULT_DOMAIN`].
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|domain| domain.as_ref().map_or(DEFAULT_DOMAIN, DomainName::as_str)).collect()
    }

    /// True if the set contains a domain.
    pub fn has(&self, domain: Option<&DomainName>) -> bool {
        self.0.iter().any(|of_key| of_key.as_ref() == domain)
    }

    /// Returns the domain for requests that name none: the default one if the set has it, else the first.
    pub fn implied_domain(&self) -> Option<&DomainName> {
        self.0.first().and_then(Option::as_ref)
    }
}

/// Returns the beginning of a client's text, for an error message.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The links that a client may see and change. All others are invisible to the client.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// The app whose links are visible; `None` for all apps.
    app: Option<AppName>,
    /// The domains whose links are visible; `None` for all domains.
    domains: Option<Arc<[Option<DomainId>]>>,
    /// The link that is visible among those that its code has had; `None` for all of them.
    identity: Option<Box<LinkIdentity>>,
}

impl Scope {
    /// The scope of all links.
    pub const ALL: Scope = Scope { app: None, domains: None, identity: None };

    /// Returns the scope of one app's links.
    pub fn of_app(app: AppName) -> Scope {
        Scope { app: Some(app), ..Scope::ALL }
    }

    /// Restricts the scope to some domains; `None` is the default domain.
    #[must_use]
    pub fn within(self, domains: impl IntoIterator<Item = Option<DomainId>>) -> Scope {
        let within: Arc<[Option<DomainId>]> = domains.into_iter().filter(|domain| self.has_domain(*domain)).collect();
        Scope { domains: Some(within), ..self }
    }

    /// Restricts a scope without an app to the links of one app.
    #[must_use]
    pub fn of(self, app: AppName) -> Scope {
        Scope { app: Some(app), ..self }
    }

    /// Restricts the scope to the domains of a key.
    #[must_use]
    pub fn within_key(self, domains: &KeyDomains) -> Scope {
        self.within(domains.0.iter().map(|domain| domain.as_ref().map(DomainName::id)))
    }

    /// Restricts the scope to links with this identity, for a request about one code. A later link of the code has another
    /// identity.
    #[must_use]
    pub fn only(self, identity: LinkIdentity) -> Scope {
        Scope { identity: Some(Box::new(identity)), ..self }
    }

    /// True if the scope includes all links.
    pub fn is_all(&self) -> bool {
        *self == Scope::ALL
    }

    /// True if the scope includes a link.
    pub fn has(&self, link: &Link) -> bool {
        let is_named = self.identity.as_ref().is_none_or(|identity| **identity == link.identity());
        is_named && self.has_link(&link.code, link.labels.app.as_ref().map(AppName::as_str))
    }

    /// True if the scope includes links of every app and domain, and so a link that cannot be read.
    pub fn has_unreadable(&self) -> bool {
        self.app.is_none() && self.domains.is_none()
    }

    /// True if the scope includes a link with this code that belongs to this app; `None` for a link without an app.
    pub fn has_link(&self, code: &Code, app: Option<&str>) -> bool {
        self.app.as_ref().is_none_or(|own| app == Some(own.as_str())) && self.has_domain(code.domain())
    }

    /// True if the scope may include links of a domain.
    pub fn has_domain(&self, domain: Option<DomainId>) -> bool {
        self.domains.as_ref().is_none_or(|domains| domains.contains(&domain))
    }

    /// Returns the app that the scope is limited to.
    pub fn app(&self) -> Option<&AppName> {
        self.app.as_ref()
    }

    /// Returns the domains that the scope is limited to.
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
    fn scope_of_one_link_has_no_later_link_of_its_code() {
        let link = crate::testing::link("a", crate::link::Origin::Custom);
        let scope = Scope::ALL.only(link.identity());
        assert!(scope.has(&link));
        assert!(!scope.has(&Link { created_ms: link.created_ms + 1, ..link.clone() }));
        let claimed = crate::link::Version { claim: 7, ..link.version };
        assert!(!scope.has(&Link { version: claimed, ..link.clone() }));
        let changed = crate::link::Version { rev: 9, edit: 9, ..link.version };
        assert!(scope.has(&Link { version: changed, ..link.clone() }), "it is the same link");
        assert!(!scope.is_all());
        assert!(scope.has_unreadable());
        assert!(!Scope::of_app(AppName::parse("shop").unwrap()).only(link.identity()).has(&link));
    }

    #[test]
    fn keys_of_some_domains_reach_no_others() {
        let served = crate::testing::three_domains();
        let domains = KeyDomains::read(["GO.test", "DEFAULT", "go.test"], &served).unwrap();
        assert_eq!((domains.names(), domains.implied_domain()), (vec!["DEFAULT", "go.test"], None));
        assert_eq!(KeyDomains::from_names(domains.names()), Some(domains));
        let go = KeyDomains::read(["go.test"], &served).unwrap();
        assert_eq!(go.implied_domain().map(DomainName::as_str), Some("go.test"));
        assert_eq!(KeyDomains::read(["s.test"], &served).unwrap().names(), ["DEFAULT"]);
        let unknown = KeyDomains::read(["other.test"], &served).unwrap_err();
        assert!(unknown.contains("\"other.test\" is not one"), "{unknown}");
        assert!(unknown.contains("go.test"), "{unknown}");
        assert!(KeyDomains::read([], &served).is_err());
        assert_eq!(KeyDomains::from_names(["Go.test"]), None);
        let code = Code::parse(b"a").unwrap();
        let (in_go, app) = (code.within(go.implied_domain().map(DomainName::id)), AppName::parse("shop").unwrap());
        let scope = Scope::of_app(app).within_key(&go);
        assert!(scope.has_link(&in_go, Some("shop")));
        assert!(!scope.has_link(&code, Some("shop")));
        assert!(!scope.has_link(&in_go, None));
        assert!(!scope.is_all());
        // Domains outside the scope stay invisible.
        assert!(!scope.within([None]).has_link(&code, Some("shop")));
    }

    #[test]
    fn roles_are_read_back() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("Admin"), None);
        assert_eq!(Role::names(), "read, read-all, write-own, write-all, admin");
    }

    #[test]
    fn each_role_includes_its_permissions() {
        for role in Role::ALL {
            let included: Vec<&str> =
                Role::ALL.into_iter().filter(|other| role.includes(*other)).map(Role::as_str).collect();
            let expected: &[&str] = match role {
                Role::Read => &["read"],
                Role::ReadAll => &["read", "read-all"],
                Role::WriteOwn => &["read", "write-own"],
                Role::WriteAll => &["read", "read-all", "write-own", "write-all"],
                Role::Admin => &["read", "read-all", "write-own", "write-all", "admin"],
            };
            assert_eq!(included, expected, "{role}");
        }
    }
}
