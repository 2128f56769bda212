//! The result of looking up a short code, and the response that follows from it.
//!
//! [`decide`] is the only place that turns a result into a response. A core calls it for a request that it answers at
//! once, and for a request that hyper has read. A core also calls it for an answer that comes late from another core,
//! the store or Redis. This module is pure: it does no I/O and reads no clock.

pub mod notice;

use std::sync::Arc;

use carom_shards::{LinkPhase, MapEntry, Policy, RedirectStatus};

use crate::destination::hosts::{HostSet, host_of};
use crate::domains::redirects::{DomainRedirects, TargetKind};
use crate::domains::{DomainIndex, UnknownHost};
use crate::link::Link;
use crate::link::rules::RuleVisitor;

pub use self::notice::Notice;

/// A link as redirects need it: its destination, and how it redirects there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination<T> {
    /// Status, caching and validity period of the redirect.
    pub policy: Policy,
    /// The serialised destination, 1 to 2,048 bytes.
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
    /// A link with redirect rules, which the owner of the code keeps beside its map. Only look-ups in memory have this
    /// result: [`decide`] needs the destination of this visitor.
    Ruled,
    /// The record of the link cannot be read.
    Damaged,
    /// Memory has no entry, but the code may have a link. As a final result: no answer came in time.
    NotResident,
    /// Missing on this node, while the fleet gave no answer: another node may have created the link a moment ago.
    Unconfirmed,
}

/// A look-up result that borrows the destination from the memory of a core or from a message.
pub type BorrowedLookup<'a> = Lookup<Destination<&'a [u8]>>;

/// A look-up result that owns the destination, for tasks that wait for it.
pub type OwnedLookup = Lookup<Destination<Box<[u8]>>>;

impl<T> Destination<T> {
    /// Returns the state of the link at the instant `now_ms`, in milliseconds since 1970 UTC.
    #[inline]
    pub fn at(self, now_ms: u64) -> Lookup<Destination<T>> {
        match self.policy.phase(now_ms) {
            LinkPhase::Live => Lookup::Live(self),
            LinkPhase::NotYetValid => Lookup::NotYetValid,
            LinkPhase::Expired => Lookup::Expired,
        }
    }
}

impl<T> Lookup<T> {
    /// Returns this result with the link replaced by `f` of it.
    #[inline]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Live(link) => Lookup::Live(f(link)),
            Lookup::NotYetValid => Lookup::NotYetValid,
            Lookup::Expired => Lookup::Expired,
            Lookup::Missing => Lookup::Missing,
            Lookup::Ruled => Lookup::Ruled,
            Lookup::Damaged => Lookup::Damaged,
            Lookup::NotResident => Lookup::NotResident,
            Lookup::Unconfirmed => Lookup::Unconfirmed,
        }
    }

    /// Returns this result with the link borrowed.
    #[inline]
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Lookup::Live(link) => Lookup::Live(link),
            Lookup::NotYetValid => Lookup::NotYetValid,
            Lookup::Expired => Lookup::Expired,
            Lookup::Missing => Lookup::Missing,
            Lookup::Ruled => Lookup::Ruled,
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

    /// Returns the result of a look-up in the default domain, which stands in for another one. If the first look-up was
    /// unconfirmed, the absence of this link is unconfirmed, too.
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
    /// Returns the result for a link without redirect rules at the instant `now_ms`, in milliseconds since 1970 UTC.
    pub fn at(&self, now_ms: u64) -> BorrowedLookup<'_> {
        match self.as_ref() {
            Lookup::Live(link) => Destination { policy: link.policy, target: link.target.as_bytes() }.at(now_ms),
            other => other.map(|link| Destination { policy: link.policy, target: link.target.as_bytes() }),
        }
    }
}

impl Link {
    /// Returns the result of looking up this link for a visitor: the destination that its redirect rules choose, at the
    /// instant of the visit.
    pub fn for_visitor(&self, visitor: &RuleVisitor<'_>) -> BorrowedLookup<'_> {
        let target = self.labels.rules.destination(&self.target, visitor).as_bytes();
        Destination { policy: self.policy, target }.at(visitor.now_ms)
    }
}

impl<'a> From<MapEntry<'a>> for BorrowedLookup<'a> {
    #[inline]
    fn from(entry: MapEntry<'a>) -> BorrowedLookup<'a> {
        match entry {
            MapEntry::Link { policy, target } => Lookup::Live(Destination { policy, target }),
            MapEntry::Damaged => Lookup::Damaged,
        }
    }
}

/// The response to a request for a short code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response<'a> {
    /// A redirect to the destination of the link.
    Redirect(Destination<&'a [u8]>),
    /// A redirect of the domain for clients that find no link there. No client caches it.
    DomainRedirect(&'a str),
    /// A page that says why there is no redirect.
    Notice(Notice),
}

impl Response<'_> {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Response::Redirect(Destination { policy, .. }) => policy.status.number(),
            Response::DomainRedirect(_) => RedirectStatus::Found.number(),
            Response::Notice(notice) => notice.number(),
        }
    }
}

/// The visit to record for a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VisitKind {
    /// No visit.
    None,
    /// A visit of the link.
    Link,
    /// A visit that found no link.
    Orphan,
}

/// A response, and the visit that it counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// The response that the client gets.
    pub response: Response<'a>,
    /// The visit to record.
    pub visit: VisitKind,
}

impl Decision<'_> {
    /// Returns the decision about a client over the miss limit: 429, for any request.
    pub fn limited() -> Decision<'static> {
        Decision { response: Response::Notice(Notice::TooMany), visit: VisitKind::None }
    }
}

/// The miss limit, for the client of one request.
pub trait MissLimit {
    /// True if its address is over the miss limit. Addresses of private networks never are: each may stand for many
    /// clients.
    fn is_limited(&mut self) -> bool;

    /// Counts a request for a link that does not exist. Returns true if it was one too many.
    fn misses_too_often(&mut self) -> bool;
}

/// The settings of the node that responses depend on.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRules<'p> {
    /// The hosts that no link may redirect to; `None` without a block list.
    pub blocked: Option<&'p HostSet>,
    /// The redirects of the domains for requests that find no link.
    pub redirects: &'p DomainRedirects,
}

impl<'p> ResponseRules<'p> {
    /// True if no link may redirect to this destination.
    #[inline]
    fn blocks(&self, target: &[u8]) -> bool {
        self.blocked.is_some_and(|hosts| hosts.has(host_of(target)))
    }

    /// Returns the fallback of a domain for this notice on a short URL, or the notice if the domain has none. `domain`
    /// is `None` if the service does not serve the host of the request.
    pub fn response_at(&self, domain: Option<DomainIndex>, notice: Notice) -> Response<'p> {
        self.response_for(domain, notice, TargetKind::InvalidShortUrl)
    }

    /// Returns the response like [`ResponseRules::response_at`]. `missing` is the kind of redirect that stands in for
    /// 404.
    pub fn response_for(&self, domain: Option<DomainIndex>, notice: Notice, missing: TargetKind) -> Response<'p> {
        let fallback = match (domain, notice) {
            (None, Notice::NotFound) if self.redirects.unknown_host() == UnknownHost::Misdirected => {
                return Response::Notice(Notice::Misdirected);
            }
            (Some(place), Notice::NotFound) => self.redirects.at(place).of(missing),
            (Some(place), Notice::Gone) => self.redirects.at(place).of(TargetKind::Expired),
            _ => None,
        };
        fallback.map_or(Response::Notice(notice), Response::DomainRedirect)
    }
}

/// Decides on the response to a request for a short code, once the look-up has its final result. `domain` is the domain
/// that the request means; without one `lookup` is [`Lookup::Missing`]. `is_head` is true for HEAD, and for every other
/// method that counts as no visit.
///
/// The order of the rules:
///
/// 1. A client over the miss limit gets 429 for every request, so it learns nothing about links.
/// 2. A request is a miss if no link exists, or if the client must not learn of it, as before its start. A miss beyond
///    the limit gets 429.
/// 3. A request for a link to a blocked host gets 410 with [`Notice::Blocked`], and counts as no visit.
/// 4. A redirect is a visit of the link, and 404 a visit without a link. HEAD is no visit.
/// 5. For 404 and 410 the fallback of the domain takes the place of the page.
/// 6. If expired links are hidden, these rules treat an expired link as missing.
#[inline]
pub fn decide<'a>(
    response_rules: &ResponseRules<'a>,
    domain: Option<DomainIndex>,
    is_head: bool,
    lookup: BorrowedLookup<'a>,
    client: &mut impl MissLimit,
) -> Decision<'a> {
    debug_assert!(lookup != Lookup::Ruled, "the redirect rules of the link were not applied");
    debug_assert!(domain.is_some() || lookup == Lookup::Missing, "a host that is not served has no links");
    // A client may have many guesses in flight. Those that it sent before it reached the limit get 429, too.
    if client.is_limited() {
        return Decision::limited();
    }
    let notice = match lookup {
        Lookup::Live(Destination { target, .. }) if response_rules.blocks(target) => Notice::Blocked,
        Lookup::Live(destination) => {
            let visit = if is_head { VisitKind::None } else { VisitKind::Link };
            return Decision { response: Response::Redirect(destination), visit };
        }
        // A request for a code that may not exist counts as a guess, too.
        Lookup::Missing | Lookup::NotYetValid | Lookup::Unconfirmed if client.misses_too_often() => {
            return Decision::limited();
        }
        Lookup::Expired if response_rules.redirects.hides_expired() => {
            if client.misses_too_often() {
                return Decision::limited();
            }
            Notice::NotFound
        }
        Lookup::Missing | Lookup::NotYetValid => Notice::NotFound,
        Lookup::Expired => Notice::Gone,
        Lookup::Damaged => Notice::Damaged,
        Lookup::NotResident | Lookup::Unconfirmed | Lookup::Ruled => Notice::Unavailable,
    };
    let is_orphan = notice == Notice::NotFound && !is_head;
    let visit = if is_orphan { VisitKind::Orphan } else { VisitKind::None };
    Decision { response: response_rules.response_at(domain, notice), visit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::redirects::{Case, TARGET, TestClient, any_case};
    use crate::testing::three_domains;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_limited_client_learns_nothing(case in any_case()) {
            let client = TestClient { is_limited: true, ..case.client };
            prop_assert_eq!(Case { client, ..case }.outcome(), (429, String::new(), VisitKind::None, 0));
        }

        #[test]
        fn a_client_without_misses_left_cannot_tell_guesses_apart(case in any_case()) {
            let client = TestClient { has_no_misses_left: true, ..case.client };
            let case = Case { client, ..case };
            let (status, location, visit, _) = case.outcome();
            match case.lookup {
                Lookup::Missing | Lookup::NotYetValid | Lookup::Unconfirmed => {
                    prop_assert_eq!((status, &location[..], visit), (429, "", VisitKind::None));
                }
                _ => prop_assert_eq!(status == 429, client.is_limited),
            }
        }

        #[test]
        fn a_blocked_link_is_never_a_visit(case in any_case()) {
            let case = Case { is_blocked: true, ..case };
            let (status, location, visit, misses) = case.outcome();
            prop_assert!(visit != VisitKind::Link);
            prop_assert!(!location.starts_with(TARGET));
            if let Lookup::Live(_) = case.lookup {
                prop_assert_eq!((status, visit, misses), (if case.client.is_limited { 429 } else { 410 }, VisitKind::None, 0));
            }
        }

        #[test]
        fn head_gets_the_response_of_get_and_is_no_visit(case in any_case()) {
            let (status, location, visit, misses) = Case { is_head: true, ..case.clone() }.outcome();
            prop_assert_eq!(visit, VisitKind::None);
            let get = Case { is_head: false, ..case }.outcome();
            prop_assert_eq!((status, location, misses), (get.0, get.1, get.3));
        }

        #[test]
        fn a_link_before_its_start_date_is_a_missing_one(case in any_case()) {
            prop_assume!(case.domain.is_some());
            let of = |lookup| Case { lookup, ..case.clone() }.outcome();
            prop_assert_eq!(of(Lookup::NotYetValid), of(Lookup::Missing));
        }

        #[test]
        fn every_miss_counts_once_and_no_link_does(case in any_case()) {
            let is_guess = matches!(case.lookup, Lookup::Missing | Lookup::NotYetValid | Lookup::Unconfirmed);
            prop_assert_eq!(case.outcome().3, u32::from(is_guess && !case.client.is_limited));
        }

        #[test]
        fn visits_are_those_of_the_response(case in any_case()) {
            let client = TestClient::default();
            let case = Case { client, ..case };
            let (status, location, visit, _) = case.outcome();
            let expected = match case.lookup {
                _ if case.is_head => VisitKind::None,
                Lookup::Live(_) if !case.is_blocked => VisitKind::Link,
                Lookup::Missing | Lookup::NotYetValid => VisitKind::Orphan,
                _ => VisitKind::None,
            };
            prop_assert_eq!(visit, expected);
            prop_assert_eq!(!location.is_empty(), (300..400).contains(&status));
        }
    }

    #[test]
    fn hidden_expired_links_are_missing_ones() {
        let domains = three_domains().hiding_expired(true);
        let outcome = |lookup, client: TestClient| {
            let (domain, domains) = (Some(DomainIndex::default()), domains.clone());
            Case { lookup, is_blocked: false, is_head: false, client, domain, domains }.outcome()
        };
        let no_misses_left = TestClient { has_no_misses_left: true, ..TestClient::default() };
        for client in [TestClient::default(), no_misses_left] {
            assert_eq!(outcome(Lookup::Expired, client), outcome(Lookup::Missing, client));
        }
        assert_eq!(outcome(Lookup::Expired, TestClient::default()).0, 404);
    }

    #[test]
    fn every_result_has_its_status() {
        let domains = three_domains();
        let status = |lookup| {
            let (client, domain) = (TestClient::default(), Some(DomainIndex::default()));
            let domains = domains.clone();
            Case { lookup, is_blocked: false, is_head: false, client, domain, domains }.outcome().0
        };
        let live = Lookup::Live(Destination { policy: Policy::default(), target: TARGET.as_bytes().into() });
        let found = [live, Lookup::NotYetValid, Lookup::Expired, Lookup::Missing, Lookup::Damaged, Lookup::NotResident];
        assert_eq!(found.map(status), [302, 404, 410, 404, 500, 503]);
        assert_eq!(status(Lookup::Unconfirmed), 503);
    }
}
