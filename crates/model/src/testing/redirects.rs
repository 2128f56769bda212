//! Fixtures for decisions on redirects, shared by the tests of the decision and of everything that calls it.

use std::net::IpAddr;

use carom_shards::{Policy, RedirectStatus};
use proptest::prelude::*;

use crate::access::miss_limiter::MissLimiter;
use crate::destination::hosts::{HostPattern, HostSet};
use crate::domains::redirects::{DomainRedirects, RedirectChanges};
use crate::domains::{Domain, DomainIndex, DomainName, Domains, Targets, UnknownHost};
use crate::redirect::{
    Decision, Destination, Lookup, MissLimit, OwnedLookup, Response, ResponseRules, VisitKind, decide,
};
use crate::visits::VisitReceiver;

/// A client whose misses are counted.
#[derive(Clone, Copy, Default, Debug)]
pub struct TestClient {
    /// True if every request of the client gets 429.
    pub is_limited: bool,
    /// True if a further miss is one too many.
    pub has_no_misses_left: bool,
    /// Misses that were counted.
    pub misses: u32,
}

impl TestClient {
    /// The address of a client like this one.
    pub fn address(self) -> IpAddr {
        // Of an address of a private network only the misses are refused.
        let is_public = self.is_limited || !self.has_no_misses_left;
        IpAddr::from(if is_public { [8, 8, 8, 8] } else { [10, 0, 0, 1] })
    }

    /// Uses up the misses of that address, as far as this client has.
    pub fn guess(self, limiter: &MissLimiter) {
        if self.is_limited || self.has_no_misses_left {
            (0..20).for_each(|_| _ = limiter.miss(limiter.client_key(self.address())));
        }
    }
}

impl MissLimit for TestClient {
    fn is_limited(&mut self) -> bool {
        self.is_limited
    }

    fn misses_too_often(&mut self) -> bool {
        self.misses += 1;
        self.has_no_misses_left
    }
}

/// Everything that a decision depends on.
#[derive(Clone, Debug)]
pub struct Case {
    /// The result of the look-up.
    pub lookup: OwnedLookup,
    /// True if the destination is on the block list.
    pub is_blocked: bool,
    /// True for HEAD, false for GET.
    pub is_head: bool,
    /// The client that sends the request.
    pub client: TestClient,
    /// The domain of the request; `None` for an unknown host.
    pub domain: Option<DomainIndex>,
    /// The domains of the service.
    pub domains: Domains,
}

/// The destination of the link.
pub const TARGET: &str = "https://target.test/a";

impl Case {
    /// The block list.
    pub fn blocked(&self) -> HostSet {
        let mut hosts = HostSet::default();
        hosts.extend(self.is_blocked.then(|| HostPattern::parse("target.test").expect("a fixture")));
        hosts
    }

    /// The host of the request.
    pub fn host(&self) -> &str {
        self.domain.map_or("other.test", |domain| self.domains.at(domain).name.as_str())
    }

    /// The status of the decision, its destination, its visit, and how many misses were counted.
    pub fn outcome(&self) -> (u16, String, VisitKind, u32) {
        let (blocked, mut client) = (self.blocked(), self.client);
        let redirects = DomainRedirects::of(&self.domains, &RedirectChanges::default());
        let response_rules = ResponseRules { blocked: Some(&blocked), redirects: &redirects };
        let lookup = self.lookup.borrowed();
        let Decision { response, visit } = decide(&response_rules, self.domain, self.is_head, lookup, &mut client);
        let location = match response {
            Response::Redirect(Destination { target, .. }) => String::from_utf8(target.to_vec()).expect("a fixture"),
            Response::DomainRedirect(target) => target.to_owned(),
            Response::Notice(_) => String::new(),
        };
        (response.status(), location, visit, client.misses)
    }
}

/// The kind of visit that these are, each with the code that it is of.
pub fn kind_of(visits: &mut VisitReceiver) -> VisitKind {
    let mut codes = Vec::new();
    visits.drain(|visit| codes.push(visit.code));
    match codes[..] {
        [] => VisitKind::None,
        [Some(_)] => VisitKind::Link,
        [None] => VisitKind::Orphan,
        _ => panic!("one request recorded {} visits", codes.len()),
    }
}

/// Results of a look-up.
pub fn any_lookup() -> impl Strategy<Value = OwnedLookup> {
    let policy =
        proptest::sample::select(&RedirectStatus::ALL[..]).prop_map(|status| Policy { status, ..Policy::default() });
    prop_oneof![
        6 => policy.prop_map(|policy| Lookup::Live(Destination { policy, target: TARGET.as_bytes().into() })),
        1 => Just(Lookup::NotYetValid),
        1 => Just(Lookup::Expired),
        1 => Just(Lookup::Missing),
        1 => Just(Lookup::Damaged),
        1 => Just(Lookup::NotResident),
        1 => Just(Lookup::Unconfirmed),
    ]
}

/// Two domains with every choice of fallbacks.
pub fn any_domains() -> impl Strategy<Value = Domains> {
    let targets = (any::<bool>(), any::<bool>()).prop_map(|(not_found, expired)| Targets {
        home: None,
        regular_404: None,
        invalid_short_url: not_found.then(|| "https://none.test/".to_owned()),
        expired: expired.then(|| "https://expired.test/".to_owned()),
    });
    let unknown_host = proptest::sample::select(vec![UnknownHost::NotFound, UnknownHost::Misdirected]);
    (targets, unknown_host, any::<bool>()).prop_map(|(targets, unknown_host, fallback)| {
        let (name, base_url) = (DomainName::parse("go.test").expect("a fixture"), "https://go.test".to_owned());
        Domains::new("https://s.test", &[Domain { name, base_url, targets }], fallback, unknown_host)
    })
}

/// Everything that a decision depends on, in every combination.
pub fn any_case() -> impl Strategy<Value = Case> {
    let client = (any::<bool>(), any::<bool>()).prop_map(|(is_limited, has_no_misses_left)| TestClient {
        is_limited,
        has_no_misses_left,
        misses: 0,
    });
    (any_lookup(), any::<bool>(), any::<bool>(), client, 0..3usize, any_domains()).prop_map(
        |(lookup, is_blocked, is_head, client, domain, domains)| {
            let domain = [None, domains.of_host(b"s.test"), domains.of_host(b"go.test")][domain];
            let lookup = if domain.is_none() { Lookup::Missing } else { lookup };
            Case { lookup, is_blocked, is_head, client, domain, domains }
        },
    )
}
