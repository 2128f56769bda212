//! The part of a link that a core needs to answer a redirect: the target and the policy, nothing more.

use std::fmt;
use std::num::NonZeroU32;

/// The HTTP status of a redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u16)]
pub enum RedirectStatus {
    /// 301
    MovedPermanently = 301,
    /// 302, the default: browsers ask again each time, so a change is seen at once.
    #[default]
    Found = 302,
    /// 303
    SeeOther = 303,
    /// 307
    TemporaryRedirect = 307,
    /// 308
    PermanentRedirect = 308,
}

impl RedirectStatus {
    /// All statuses, in the order of their numbers.
    pub const ALL: [RedirectStatus; 5] = [
        RedirectStatus::MovedPermanently,
        RedirectStatus::Found,
        RedirectStatus::SeeOther,
        RedirectStatus::TemporaryRedirect,
        RedirectStatus::PermanentRedirect,
    ];

    /// Returns the status of a number; `None` if it is not one of these redirects.
    pub fn from_number(number: u64) -> Option<RedirectStatus> {
        Self::ALL.into_iter().find(|status| u64::from(status.number()) == number)
    }

    /// Returns the number, 301 to 308.
    pub fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for RedirectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// The way in which a link redirects, and its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Status of the answer.
    pub status: RedirectStatus,
    /// Seconds for which a client may cache the answer; `None` means not at all.
    pub cache_seconds: Option<u32>,
    /// Before this instant the link answers 404, in milliseconds since 1970 UTC; at most 2^48 - 1.
    pub valid_since_ms: Option<u64>,
    /// From this instant on the link is gone, in milliseconds since 1970 UTC; at most 2^48 - 1.
    pub valid_until_ms: Option<u64>,
    /// True if the query string of a request is added to the target's.
    pub forward_query: bool,
    /// True if the link is archived: it is gone until it is restored.
    pub archived: bool,
    /// Total number of visits that are allowed; `None` means no limit. The count itself is kept elsewhere.
    pub max_visits: Option<NonZeroU32>,
}

/// A phase in the life of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkPhase {
    /// Before its start date.
    NotYetValid,
    /// The link redirects.
    Live,
    /// Expired or archived.
    Expired,
}

impl Policy {
    /// Returns the phase of a link at the instant `now_ms`, in milliseconds since 1970 UTC.
    #[inline]
    pub fn phase(&self, now_ms: u64) -> LinkPhase {
        if self.archived || self.valid_until_ms.is_some_and(|until| until <= now_ms) {
            LinkPhase::Expired
        } else if self.valid_since_ms.is_some_and(|since| now_ms < since) {
            LinkPhase::NotYetValid
        } else {
            LinkPhase::Live
        }
    }
}

/// An entry of a core's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapEntry<'a> {
    /// A link that can be visited.
    Link {
        /// Status, caching and lifetime of the redirect.
        policy: Policy,
        /// The serialised destination, 1 to 2,048 bytes.
        target: &'a [u8],
    },
    /// The store has this code but could not decode its record. It is neither missing nor followable.
    Damaged,
}
