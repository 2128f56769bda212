//! A link with all its stored properties, owned, as the API, the store and the commands use it.

pub mod creator_links;
pub mod earlier_visits;
pub mod fields;
pub mod history;
pub mod labels;
pub mod patch;
pub mod private_code;
pub mod record;
pub mod rules;
pub mod slugs;
mod target;

use carom_shards::{Code, LinkPhase, Policy, RedirectStatus};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use self::target::is_target;
use crate::link::labels::LinkLabels;
use carom_limits::PRIVATE_CODE_LEN;

/// The origin of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The code was issued from a segment. No other link gets it, even after a deletion. Only codes of expired links
    /// may be recycled, if the node is configured to.
    Issued,
    /// A client chose the slug. After a deletion it is free again.
    Custom,
}

/// A version of the state of a code. A single node leaves it at zero, unless the slug was free in a fleet before. Nodes that
/// share a code space compare it (see [`crate::replication`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    /// Number of times that a link of the code was created or ended.
    pub rev: u32,
    /// A random number drawn at the creation of a link, the same in all states of that link. A link that was created without
    /// Redis has zero, or after a tombstone a number by its date ([`crate::replication::rules::version_after`]).
    pub claim: u64,
    /// Number of changes of one link. It decides neither between two links nor between a link and its end: the author
    /// of a change may not have seen the other link or the end.
    pub edit: u32,
}

impl Version {
    /// Returns the version after a change of the link.
    #[must_use]
    pub fn edited(self) -> Version {
        Version { edit: self.edit.saturating_add(1), ..self }
    }
}

/// The properties that tell a link from the earlier and later links of its code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinkIdentity {
    /// The creation time, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The claim within a fleet, as in [`Version::claim`].
    pub claim: u64,
}

/// A link with all its properties.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The code, the last part of the short URL.
    pub code: Code,
    /// The redirect policy: status, validity and so on.
    pub policy: Policy,
    /// The destination: a URL as the `url` crate serialises it, 1 to [`carom_limits::DESTINATION_LEN_MAX`] bytes.
    pub target: String,
    /// The creation time, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The origin of the code.
    pub origin: Origin,
    /// The version of this state of the code.
    pub version: Version,
    /// Properties that redirects do not need.
    pub labels: LinkLabels,
}

impl Link {
    /// Returns the properties that tell the link from others of its code.
    pub fn identity(&self) -> LinkIdentity {
        LinkIdentity { created_ms: self.created_ms, claim: self.version.claim }
    }

    /// Returns the hash of the properties that equivalent links share.
    pub fn url_key(&self) -> UrlKey {
        let key = UrlKey::of(&self.target, &self.policy, &self.labels);
        if self.is_private() { key.of_private() } else { key }
    }

    /// True if the code is a random one, too long to be guessed. Other issued codes are shorter.
    pub fn is_private(&self) -> bool {
        self.origin == Origin::Issued && self.code.len() == PRIVATE_CODE_LEN
    }

    /// Returns the link's entry in the index of destinations.
    pub fn url_entry(&self) -> UrlEntry {
        UrlEntry { key: self.url_key(), created_ms: self.created_ms, code: self.code }
    }

    /// True if both are states of one link, and not of two links that have had one code. Links from before a fleet have the
    /// same claim, and differ in their dates.
    pub fn is_same_link(&self, other: &Link) -> bool {
        self.code == other.code && self.identity() == other.identity()
    }

    /// True if a create may return the other link instead of this one. Both have the same destination, policy, tags,
    /// redirect rules, `crawlable`, app and domain, and neither is private: a private link is never given to another
    /// client.
    pub fn is_like(&self, other: &Link) -> bool {
        let is_same = self.target == other.target && self.requested_policy() == other.requested_policy();
        let (mine, theirs) = (&self.labels, &other.labels);
        let is_found_alike = mine.tags == theirs.tags && mine.crawlable == theirs.crawlable && mine.app == theirs.app;
        let is_found_alike = is_found_alike && mine.rules == theirs.rules;
        let is_same = is_same && self.code.domain() == other.code.domain();
        is_same && is_found_alike && !self.is_private() && !other.is_private()
    }

    /// True if this link may answer the create of `asked`, which names these properties. Both have the same destination
    /// and app, and the named properties; others may differ. Neither is private: a private link is never given to another
    /// client. An archived link answers visitors with 410, so it answers only the create of an archived link.
    pub fn meets(&self, asked: &Link, criteria: Criteria) -> bool {
        let (mine, theirs) = (&self.policy, &asked.policy);
        let is_same = self.target == asked.target && self.labels.app == asked.labels.app;
        let is_same = is_same && !self.is_private() && !asked.is_private() && mine.archived == theirs.archived;
        let is_met = |criterion| match criterion {
            Criterion::Domain => self.code.domain() == asked.code.domain(),
            Criterion::Tags => self.labels.tags == asked.labels.tags,
            Criterion::ValidSince => mine.valid_since_ms == theirs.valid_since_ms,
            Criterion::ValidUntil => mine.valid_until_ms == theirs.valid_until_ms,
            Criterion::MaxVisits => mine.max_visits == theirs.max_visits,
            Criterion::RedirectStatus => mine.status == theirs.status,
            Criterion::CacheSeconds => mine.cache_seconds == theirs.cache_seconds,
            Criterion::ForwardQuery => mine.forward_query == theirs.forward_query,
            Criterion::Crawlable => self.labels.crawlable == asked.labels.crawlable,
        };
        is_same && criteria.iter().all(is_met)
    }

    /// Returns the policy as the client requested it, without a default expiry.
    fn requested_policy(&self) -> Policy {
        let valid_until_ms = self.policy.valid_until_ms.filter(|_| !self.labels.default_expiry);
        Policy { valid_until_ms, ..self.policy }
    }

    /// Returns the link's scheduled deletion as an entry of the index of ends.
    pub fn deletion(&self) -> Option<DueEvent> {
        self.labels.delete_at_ms.map(|at_ms| DueEvent { at_ms, code: self.code })
    }

    /// Returns the link's expiry as an entry of the index of ends.
    pub fn expiry(&self) -> Option<DueEvent> {
        self.policy.valid_until_ms.map(|at_ms| DueEvent { at_ms, code: self.code })
    }

    /// Returns the time at which the link is removed because it has expired; `None` if it never is. Expired links are kept for
    /// `keep_ms`, or forever. All times are in milliseconds since 1970 UTC.
    pub fn removal_ms(&self, keep_ms: Option<u64>) -> Option<u64> {
        self.policy.valid_until_ms.zip(keep_ms).map(|(until_ms, keep_ms)| until_ms.saturating_add(keep_ms))
    }

    /// Returns the time to note for a deletion that a person wants at `now_ms`: one before [`Link::removal_ms`]. A later time
    /// would say that the link has expired, so a fleet would recycle its code. `keep_ms` is `None` if no codes are recycled.
    pub fn deletion_ms(&self, now_ms: u64, keep_ms: Option<u64>) -> u64 {
        self.removal_ms(keep_ms).map_or(now_ms, |removal_ms| now_ms.min(removal_ms.saturating_sub(1)))
    }

    /// True if the destination depends on the visitor.
    #[inline]
    pub fn has_rules(&self) -> bool {
        !self.labels.rules.is_empty()
    }

    /// True if the link has expired.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.policy.phase(now_ms) == LinkPhase::Expired
    }
}

/// Bits of a [`UrlKey`] that depend on more than the destination and the app.
const PROPERTY_BITS: u32 = 24;

/// A hash of the destination, policy, redirect rules, tags, `crawlable`, app and domain of a link, the same in every
/// process and on every node. The upper 40 bits depend on the destination and the app alone. Links that differ may
/// share a hash, so a look-up by it compares the links. Of the pairs of links with one destination that differ
/// elsewhere, one in 16 million shares a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UrlKey(pub u64);

impl UrlKey {
    /// Number of leading bytes of a key, in big-endian order, that all links of one destination and app share.
    pub const DESTINATION_LEN: usize = 5;

    /// Returns the part of the key that all links of one destination and app share.
    pub fn destination(self) -> u64 {
        self.0 >> PROPERTY_BITS
    }

    /// Returns the key behind all links of this destination and app; `None` if it is the last one.
    pub fn behind_destination(self) -> Option<UrlKey> {
        (self.0 | ((1 << PROPERTY_BITS) - 1)).checked_add(1).map(UrlKey)
    }

    /// Hashes the properties that equivalent links share: all but titles, app versions, scheduled deletions,
    /// idempotency keys, earlier visits and unknown fields.
    pub fn of(target: &str, policy: &Policy, labels: &LinkLabels) -> UrlKey {
        // Destructured without `..`, so that a new property causes a compile error here. A property at its default adds
        // no bytes, which keeps the keys of existing links stable.
        let Policy { status, cache_seconds, valid_since_ms, valid_until_ms, forward_query, archived, max_visits } =
            policy;
        let LinkLabels {
            title: _,
            tags,
            crawlable,
            default_expiry,
            app,
            app_version: _,
            domain,
            delete_at_ms: _,
            idempotency: _,
            rules,
            earlier_visits: _,
            unknown: _,
        } = labels;
        let app = app.as_ref().map_or("", |app| app.as_str());
        let mut bytes = Vec::with_capacity(app.len() + target.len() + 24);
        bytes.extend_from_slice(app.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(target.as_bytes());
        let destination = xxh3_64(&bytes);
        if *status != RedirectStatus::default() {
            bytes.extend_from_slice(&[0, 1]);
            bytes.extend_from_slice(&status.number().to_le_bytes());
        }
        if let Some(seconds) = cache_seconds {
            bytes.extend_from_slice(&[0, 2]);
            bytes.extend_from_slice(&seconds.to_le_bytes());
        }
        if let Some(until_ms) = valid_until_ms.filter(|_| !default_expiry) {
            bytes.extend_from_slice(&[0, 3]);
            bytes.extend_from_slice(&until_ms.to_le_bytes());
        }
        if let Some(since_ms) = valid_since_ms {
            bytes.extend_from_slice(&[0, 4]);
            bytes.extend_from_slice(&since_ms.to_le_bytes());
        }
        if *forward_query {
            bytes.extend_from_slice(&[0, 5]);
        }
        if *archived {
            bytes.extend_from_slice(&[0, 6]);
        }
        if !tags.is_empty() {
            bytes.extend_from_slice(&[0, 7]);
            bytes.extend_from_slice(tags.joined().as_bytes());
        }
        if let Some(visits) = max_visits {
            bytes.extend_from_slice(&[0, 8]);
            bytes.extend_from_slice(&visits.get().to_le_bytes());
        }
        if *crawlable {
            bytes.extend_from_slice(&[0, 9]);
        }
        if let Some(domain) = domain {
            bytes.extend_from_slice(&[0, 10]);
            bytes.extend_from_slice(&domain.id().to_bytes());
        }
        if !rules.is_empty() {
            bytes.extend_from_slice(&[0, 11]);
            bytes.extend_from_slice(rules.encoded());
        }
        let properties = xxh3_64(&bytes) & ((1 << PROPERTY_BITS) - 1);
        UrlKey((destination >> PROPERTY_BITS << PROPERTY_BITS) | properties)
    }

    /// Returns the key of a private link. It differs from that of public links, so that look-ups for those never meet
    /// it.
    #[must_use]
    fn of_private(self) -> UrlKey {
        UrlKey(xxh3_64(&self.0.to_le_bytes()))
    }
}

/// An entry of the index of destinations. The links of a destination are adjacent, and among them equivalent ones, the
/// oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UrlEntry {
    /// The hash of the properties that equivalent links share.
    pub key: UrlKey,
    /// The creation time of the link, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The code of the link.
    pub code: Code,
}

/// An event that is due for a code, as an entry of the index of ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DueEvent {
    /// The instant at which it is due, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The code of the link.
    pub code: Code,
}

/// A property that a create can name, and that an existing link must then have to answer it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Criterion {
    /// The domain of the link.
    Domain,
    /// All its tags.
    Tags,
    /// The start date.
    ValidSince,
    /// The expiry date.
    ValidUntil,
    /// The visit limit.
    MaxVisits,
    /// The status of the redirect.
    RedirectStatus,
    /// The time for which clients may cache the redirect.
    CacheSeconds,
    /// The passing of a request's query to the destination.
    ForwardQuery,
    /// The permission of crawlers to follow the link.
    Crawlable,
}

impl Criterion {
    /// All properties.
    const ALL: [Criterion; 9] = [
        Criterion::Domain,
        Criterion::Tags,
        Criterion::ValidSince,
        Criterion::ValidUntil,
        Criterion::MaxVisits,
        Criterion::RedirectStatus,
        Criterion::CacheSeconds,
        Criterion::ForwardQuery,
        Criterion::Crawlable,
    ];
}

/// The properties that a create names, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Criteria(u16);

impl Criteria {
    /// No property: any link of the destination will do.
    pub const NONE: Criteria = Criteria(0);

    /// Returns this set with one more property.
    #[must_use]
    pub fn with(self, criterion: Criterion) -> Criteria {
        Criteria(self.0 | (1 << criterion as u16))
    }

    /// Returns the properties of the set.
    fn iter(self) -> impl Iterator<Item = Criterion> {
        Criterion::ALL.into_iter().filter(move |criterion| self.0 & (1 << *criterion as u16) != 0)
    }
}

/// The existing links that may answer a create.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reuse {
    /// No link: the create makes a new one.
    Never,
    /// An equivalent link that was used within the reuse window. Requires a window in the settings and an issued code.
    Recent,
    /// The newest link with the same destination and these properties, whatever its code.
    Any(Criteria),
    /// The link with the chosen slug, if it has the same destination and these properties.
    OfSlug(Criteria),
}

impl Reuse {
    /// True if `found` may answer the create of `asked`. A link that waits for its deletion answers no create, because the
    /// client would lose it.
    pub fn admits(self, asked: &Link, found: &Link) -> bool {
        found.labels.delete_at_ms.is_none()
            && match self {
                Reuse::Never => false,
                Reuse::Recent => found.is_like(asked),
                Reuse::Any(criteria) | Reuse::OfSlug(criteria) => found.meets(asked, criteria),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AppName;
    use crate::domains::DomainName;
    use crate::link::labels::Tags;
    use std::num::NonZeroU32;

    fn key(target: &str, policy: Policy) -> UrlKey {
        UrlKey::of(target, &policy, &LinkLabels::default())
    }

    #[test]
    fn a_late_delete_by_a_person_is_no_expiry() {
        let policy = Policy { valid_until_ms: Some(100), ..Policy::default() };
        let link = Link { policy, ..crate::testing::link("abcdefg", Origin::Issued) };
        assert_eq!([link.removal_ms(Some(50)), link.removal_ms(None)], [Some(150), None]);
        assert_eq!([120, 149, 150, 900].map(|now_ms| link.deletion_ms(now_ms, Some(50))), [120, 149, 149, 149]);
        assert_eq!(link.deletion_ms(900, None), 900);
        let endless = Link { policy: Policy::default(), ..link };
        assert_eq!(endless.deletion_ms(900, Some(50)), 900);
    }

    /// The key of a link to `https://example.org/` whose other properties are encoded like this.
    fn key_with(properties: &[u8]) -> UrlKey {
        let destination = b"\0https://example.org/";
        let low = xxh3_64(&[&destination[..], properties].concat()) & 0xff_ffff;
        UrlKey((xxh3_64(destination) & !0xff_ffff) | low)
    }

    #[test]
    fn keys_never_change() {
        // The keys are on disk, and nodes of different versions share them in Redis.
        let plain = Policy::default();
        assert_eq!(key("https://example.org/", plain), UrlKey(xxh3_64(b"\0https://example.org/")));
        assert_eq!(key("https://example.org/", plain), key_with(b""));
        let dated = Policy {
            status: RedirectStatus::PermanentRedirect,
            cache_seconds: Some(7),
            valid_until_ms: Some(1_700_000_000_000),
            ..plain
        };
        let mut bytes = b"\0\x01\x34\x01\0\x02\x07\0\0\0\0\x03\0\x68\xe5\xcf\x8b\x01\0\0".to_vec();
        assert_eq!(key("https://example.org/", dated), key_with(&bytes));
        let full = Policy { valid_since_ms: Some(1), forward_query: true, archived: true, ..dated };
        bytes.extend_from_slice(b"\0\x04\x01\0\0\0\0\0\0\0\0\x05\0\x06\0\x07a\nb");
        let mut labels = LinkLabels { tags: Tags::of(["b", "a"]).unwrap(), ..LinkLabels::default() };
        assert_eq!(UrlKey::of("https://example.org/", &full, &labels), key_with(&bytes));
        let limited = Policy { max_visits: NonZeroU32::new(3), ..full };
        labels.crawlable = true;
        bytes.extend_from_slice(b"\0\x08\x03\0\0\0\0\x09");
        assert_eq!(UrlKey::of("https://example.org/", &limited, &labels), key_with(&bytes));
        // A default expiry does not count.
        let (default_expiry, valid_until_ms) = (LinkLabels { default_expiry: true, ..LinkLabels::default() }, Some(77));
        let key = UrlKey::of("https://example.org/", &Policy { valid_until_ms, ..plain }, &default_expiry);
        assert_eq!(key, key_with(b""));
    }

    #[test]
    fn keys_of_one_destination_share_their_head() {
        let asked = crate::testing::link("a", Origin::Custom);
        let permanent = Policy { status: RedirectStatus::PermanentRedirect, ..Policy::default() };
        let other = Link { policy: permanent, ..asked.clone() };
        assert_ne!(other.url_key(), asked.url_key());
        assert_eq!(other.url_key().destination(), asked.url_key().destination());
        let head = |link: &Link| link.url_key().0.to_be_bytes()[..UrlKey::DESTINATION_LEN].to_vec();
        assert_eq!(head(&other), head(&asked));
        let behind = asked.url_key().behind_destination().unwrap();
        assert_eq!(behind.destination(), asked.url_key().destination() + 1);
        assert_eq!(UrlKey(u64::MAX).behind_destination(), None);
        let elsewhere = Link { target: "https://example.org/b".to_owned(), ..asked.clone() };
        assert_ne!(elsewhere.url_key().destination(), asked.url_key().destination());
        let labels = LinkLabels { app: AppName::parse("app").ok(), ..LinkLabels::default() };
        let of_app = Link { labels, ..asked.clone() };
        assert_ne!(of_app.url_key().destination(), asked.url_key().destination());
    }

    #[test]
    fn named_properties_must_match_and_no_others() {
        let asked = crate::testing::link("asked", Origin::Issued);
        let found = Link { code: Code::parse(b"found").unwrap(), origin: Origin::Custom, ..asked.clone() };
        let policy = |policy| Link { policy, ..found.clone() };
        let labels = |labels| Link { labels, ..found.clone() };
        let (plain, none) = (found.policy, LinkLabels::default);
        let on_domain = DomainName::parse("go.test").unwrap();
        let elsewhere = Link { code: found.code.within(Some(on_domain.id())), ..found.clone() };
        for (criterion, link) in [
            (Criterion::Domain, elsewhere),
            (Criterion::Tags, labels(LinkLabels { tags: Tags::of(["t"]).unwrap(), ..none() })),
            (Criterion::ValidSince, policy(Policy { valid_since_ms: Some(1), ..plain })),
            (Criterion::ValidUntil, policy(Policy { valid_until_ms: Some(1), ..plain })),
            (Criterion::MaxVisits, policy(Policy { max_visits: NonZeroU32::new(1), ..plain })),
            (Criterion::RedirectStatus, policy(Policy { status: RedirectStatus::SeeOther, ..plain })),
            (Criterion::CacheSeconds, policy(Policy { cache_seconds: Some(1), ..plain })),
            (Criterion::ForwardQuery, policy(Policy { forward_query: !plain.forward_query, ..plain })),
            (Criterion::Crawlable, labels(LinkLabels { crawlable: true, ..none() })),
        ] {
            let named = Criteria::NONE.with(criterion);
            let others = Criterion::ALL.into_iter().filter(|other| *other != criterion);
            let others = others.fold(Criteria::NONE, Criteria::with);
            assert!(Reuse::Any(Criteria::NONE).admits(&asked, &link), "{criterion:?}");
            assert!(Reuse::OfSlug(others).admits(&asked, &link), "{criterion:?}");
            assert!(!Reuse::Any(named).admits(&asked, &link), "{criterion:?}");
            assert!(!Reuse::Recent.admits(&asked, &link), "{criterion:?}");
            assert!(!Reuse::Never.admits(&asked, &link), "{criterion:?}");
            assert!(Reuse::Any(named).admits(&link, &link), "{criterion:?}");
        }
        let any = Reuse::Any(Criteria::NONE);
        assert!(any.admits(&asked, &labels(LinkLabels { title: Some("T".into()), ..none() })));
        assert!(any.admits(
            &asked,
            &labels(LinkLabels { rules: crate::testing::rules("https://b/", "device", "ios"), ..none() })
        ));
        for unlike in [
            Link { target: "https://example.org/other".to_owned(), ..found.clone() },
            Link { code: Code::parse(&[b'a'; PRIVATE_CODE_LEN]).unwrap(), origin: Origin::Issued, ..found.clone() },
            labels(LinkLabels { app: AppName::parse("app").ok(), ..none() }),
            policy(Policy { archived: true, ..plain }),
        ] {
            assert!(!any.admits(&asked, &unlike), "{unlike:?}");
        }
        let archived = policy(Policy { archived: true, ..plain });
        let labels = LinkLabels { delete_at_ms: Some(1), ..none() };
        let waiting = Link { labels, ..archived.clone() };
        for reuse in [any, Reuse::Recent, Reuse::OfSlug(Criteria::NONE)] {
            assert!(reuse.admits(&archived, &archived), "{reuse:?}");
            assert!(!reuse.admits(&archived, &waiting), "{reuse:?} answers with a link that is about to be deleted");
        }
    }

    #[test]
    fn every_property_and_the_app_count() {
        let plain = Policy::default();
        let policies = [
            plain,
            Policy { status: RedirectStatus::SeeOther, ..plain },
            Policy { cache_seconds: Some(0), ..plain },
            Policy { cache_seconds: Some(1), ..plain },
            Policy { valid_until_ms: Some(1), ..plain },
            Policy { valid_since_ms: Some(1), ..plain },
            Policy { forward_query: true, ..plain },
            Policy { archived: true, ..plain },
            Policy { max_visits: NonZeroU32::new(1), ..plain },
        ];
        let mut keys: Vec<UrlKey> = policies.iter().map(|policy| key("https://a/", *policy)).collect();
        keys.push(key("https://a/b", plain));
        for labels in [
            LinkLabels { tags: Tags::of(["t"]).unwrap(), ..LinkLabels::default() },
            LinkLabels { crawlable: true, ..LinkLabels::default() },
            LinkLabels { app: AppName::parse("app").ok(), ..LinkLabels::default() },
            LinkLabels { domain: DomainName::parse("go.test").ok(), ..LinkLabels::default() },
            LinkLabels { domain: DomainName::parse("s.test").ok(), ..LinkLabels::default() },
            LinkLabels { rules: crate::testing::rules("https://b/", "device", "ios"), ..LinkLabels::default() },
            LinkLabels { rules: crate::testing::rules("https://b/", "device", "android"), ..LinkLabels::default() },
        ] {
            keys.push(UrlKey::of("https://a/", &plain, &labels));
        }
        let distinct: std::collections::HashSet<&UrlKey> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
