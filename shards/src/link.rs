//! What a core must know of a link to answer a redirect: the target and the policy, nothing more.

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
    /// All of them, in the order of their numbers.
    pub const ALL: [RedirectStatus; 5] = [
        RedirectStatus::MovedPermanently,
        RedirectStatus::Found,
        RedirectStatus::SeeOther,
        RedirectStatus::TemporaryRedirect,
        RedirectStatus::PermanentRedirect,
    ];

    /// The status of a number; `None` for one that is no redirect of ours.
    pub fn from_number(number: u64) -> Option<RedirectStatus> {
        Self::ALL.into_iter().find(|status| u64::from(status.number()) == number)
    }

    /// The number, 301 to 308.
    pub fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for RedirectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// How and until when a link redirects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Status of the answer.
    pub status: RedirectStatus,
    /// For how long a client may keep the answer, in seconds; `None` means not at all.
    pub cache_seconds: Option<u32>,
    /// Before this instant there is no such link, in milliseconds since 1970 UTC; at most 2^48 - 1.
    pub valid_since_ms: Option<u64>,
    /// From this instant on the link is gone, in milliseconds since 1970 UTC; at most 2^48 - 1.
    pub valid_until_ms: Option<u64>,
    /// Whether the query of a request is added to the target's.
    pub forward_query: bool,
    /// Whether the link was put away: it is gone, until somebody takes it out again.
    pub archived: bool,
    /// How often it may be followed in all. Whether that has happened is not known here.
    pub max_visits: Option<NonZeroU32>,
}

/// Where a link is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its time has not come.
    Early,
    /// It redirects.
    Live,
    /// Its time is over, or it was put away.
    Over,
}

impl Policy {
    /// Where a link is in its life at the instant `now_ms`.
    #[inline]
    pub fn phase(&self, now_ms: u64) -> Phase {
        if self.archived || self.valid_until_ms.is_some_and(|until| until <= now_ms) {
            Phase::Over
        } else if self.valid_since_ms.is_some_and(|since| now_ms < since) {
            Phase::Early
        } else {
            Phase::Live
        }
    }
}

/// What a core holds for a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A link that can be followed.
    Link {
        /// How it redirects.
        policy: Policy,
        /// The serialised long URL, 1 to 2,048 bytes.
        target: &'a [u8],
    },
    /// The store has this code but could not decode its record. It is neither missing nor followable.
    Damaged,
}
