//! The result of looking up a short code.
//!
//! Pure: nothing here does I/O or reads a clock.

use std::sync::Arc;

use carom_shards::{Entry, Phase, Policy};

use crate::link::Link;

/// A link as redirects need it: its destination, and how it redirects there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination<T> {
    /// Status, caching and validity period of the redirect.
    pub policy: Policy,
    /// The serialised long URL, 1 to 2,048 bytes.
    pub target: T,
}

/// The result of looking up a short code: in the memory of a core, in the store, in Redis, or in one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<T> {
    /// A link. Once [`Destination::at`] has applied its validity period, a link that redirects now.
    Live(T),
    /// A link before its start date. Clients get the same response as for a missing one.
    NotYetValid,
    /// A link that has expired, is archived, or has no visits left.
    Expired,
    /// No link has this code.
    Missing,
    /// The record of the link cannot be read.
    Damaged,
    /// Memory has no entry, but the code may have a link. As a final result: nobody could say in time.
    NotResident,
    /// Missing on this node, while the fleet gave no answer: another node may have created the link a moment ago.
    Unconfirmed,
}

/// A look-up result that borrows the destination from the memory of a core or from a message.
pub type BorrowedLookup<'a> = Lookup<Destination<&'a [u8]>>;

/// A look-up result that owns the destination, for tasks that wait for it.
pub type OwnedLookup = Lookup<Destination<Box<[u8]>>>;

impl<T> Destination<T> {
    /// The state of the link at the instant `now_ms`, in milliseconds since 1970 UTC.
    #[inline]
    pub fn at(self, now_ms: u64) -> Lookup<Destination<T>> {
        match self.policy.phase(now_ms) {
            Phase::Live => Lookup::Live(self),
            Phase::Early => Lookup::NotYetValid,
            Phase::Over => Lookup::Expired,
        }
    }
}

impl<T> Lookup<T> {
    /// The same result, with what `f` makes of the link.
    #[inline]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Live(link) => Lookup::Live(f(link)),
            Lookup::NotYetValid => Lookup::NotYetValid,
            Lookup::Expired => Lookup::Expired,
            Lookup::Missing => Lookup::Missing,
            Lookup::Damaged => Lookup::Damaged,
            Lookup::NotResident => Lookup::NotResident,
            Lookup::Unconfirmed => Lookup::Unconfirmed,
        }
    }

    /// The same result, with the link borrowed.
    #[inline]
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Lookup::Live(link) => Lookup::Live(link),
            Lookup::NotYetValid => Lookup::NotYetValid,
            Lookup::Expired => Lookup::Expired,
            Lookup::Missing => Lookup::Missing,
            Lookup::Damaged => Lookup::Damaged,
            Lookup::NotResident => Lookup::NotResident,
            Lookup::Unconfirmed => Lookup::Unconfirmed,
        }
    }

    /// True if the link of the default domain may stand in, where it is the fallback of other domains.
    #[inline]
    pub fn allows_fallback(&self) -> bool {
        matches!(self, Lookup::Missing | Lookup::Unconfirmed)
    }

    /// The result of a look-up in the default domain, which stands in for another one. If the look-up before it was
    /// unconfirmed, then so is the absence of this link.
    #[inline]
    #[must_use]
    pub fn as_fallback(self, first_unconfirmed: bool) -> Lookup<T> {
        match self {
            Lookup::Missing if first_unconfirmed => Lookup::Unconfirmed,
            other => other,
        }
    }
}

impl BorrowedLookup<'_> {
    /// Copies the destination.
    pub fn to_owned(&self) -> OwnedLookup {
        self.map(|Destination { policy, target }| Destination { policy, target: target.into() })
    }
}

impl OwnedLookup {
    /// Borrows the destination.
    pub fn borrowed(&self) -> BorrowedLookup<'_> {
        self.as_ref().map(|Destination { policy, target }| Destination { policy: *policy, target: &target[..] })
    }
}

impl Lookup<Arc<Link>> {
    /// The result at the instant `now_ms`, in milliseconds since 1970 UTC.
    pub fn at(&self, now_ms: u64) -> BorrowedLookup<'_> {
        match self.as_ref() {
            Lookup::Live(link) => Destination { policy: link.policy, target: link.target.as_bytes() }.at(now_ms),
            other => other.map(|link| Destination { policy: link.policy, target: link.target.as_bytes() }),
        }
    }
}

impl<'a> From<Entry<'a>> for BorrowedLookup<'a> {
    #[inline]
    fn from(entry: Entry<'a>) -> BorrowedLookup<'a> {
        match entry {
            Entry::Link { policy, target } => Lookup::Live(Destination { policy, target }),
            Entry::Damaged => Lookup::Damaged,
        }
    }
}
