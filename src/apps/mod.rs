//! Who may do what: apps, their API keys, and what a key allows.
//!
//! An *app* is a caller with a name; its links bear it. A *key* ([`key`]) is what an app shows to prove who it is; only
//! its hash is kept. The [`registry`] is the set of all keys, which several writers may change apart from each other: two
//! of them are merged without asking anybody. [`usage`] is what an app has done. Nothing here does I/O.

pub mod key;
pub mod registry;
pub mod usage;

use std::fmt;
use std::sync::Arc;

use crate::link::Link;

/// Longest name of an app, in characters.
pub const APP_NAME_LEN_MAX: usize = 64;

/// Longest version that an app may tell of itself, in characters.
pub const APP_VERSION_LEN_MAX: usize = 64;

/// The name of an app: 1 to 64 characters of `a-z0-9`, and `.`, `_` and `-` after the first. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AppName(Arc<str>);

/// Why a text is no name. Whoever wrote it must choose another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is no name of an app: 1 to {APP_NAME_LEN_MAX} characters of a-z, 0-9, and . _ - after the first")
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

/// Whose links somebody may see and touch. Others are, to them, not there.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// Everybody's.
    #[default]
    All,
    /// Those of one app.
    App(AppName),
}

impl Scope {
    /// Whether a link is within.
    pub fn has(&self, link: &Link) -> bool {
        self.has_app(link.labels.app.as_ref().map(AppName::as_str))
    }

    /// Whether the links of an app are within; `None`: those of nobody.
    pub fn has_app(&self, app: Option<&str>) -> bool {
        match self {
            Scope::All => true,
            Scope::App(own) => app == Some(own.as_str()),
        }
    }

    /// The app, if it is that of one.
    pub fn app(&self) -> Option<&AppName> {
        match self {
            Scope::All => None,
            Scope::App(app) => Some(app),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_app() -> impl Strategy<Value = Option<AppName>> {
        proptest::option::of("[a-z0-9][a-z0-9._-]{0,10}")
            .prop_map(|text| text.map(|text| AppName::parse(&text).unwrap()))
    }

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
    fn roles_are_read_back_and_rise() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("Admin"), None);
        assert!(Role::ALL.is_sorted());
    }
}
