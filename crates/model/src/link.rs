//! A link as the API, the store and the commands know it: everything that is kept of it, owned.

pub mod creator_links;
pub mod history;
pub mod labels;
pub mod patch;
pub mod private_code;
pub mod record;

use carom_shards::{Code, Phase, Policy, RedirectStatus};
use xxhash_rust::xxh3::xxh3_64;

use crate::link::labels::Labels;
use carom_limits::{PRIVATE_CODE_LEN, TARGET_LEN_MAX};

/// How a link came by its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The code was issued from a segment. It is never given to another link, also not after a delete.
    Issued,
    /// Somebody chose the slug. After a delete anybody may choose it again.
    Custom,
}

/// Which of the states that a code has had this is. A node alone leaves it at zero; nodes that share a code space compare
/// it (see [`crate::replication`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    /// Counts the beginnings and ends of links of the code.
    pub rev: u32,
    /// A random number drawn when the link was made: the same for all states of one link.
    pub claim: u64,
    /// Counts the changes of one link. It never makes a link win against another, nor against its own end: whoever changes
    /// a link may not have heard of either.
    pub edit: u32,
}

impl Version {
    /// That of the link after a change.
    #[must_use]
    pub fn edited(self) -> Version {
        Version { edit: self.edit.saturating_add(1), ..self }
    }
}

/// A link with all its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// What stands behind the slash.
    pub code: Code,
    /// How it redirects.
    pub policy: Policy,
    /// Where it leads: the serialised form of the `url` crate, 1 to [`carom_limits::TARGET_LEN_MAX`] bytes.
    pub target: String,
    /// When it was made, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// How it came by its code.
    pub origin: Origin,
    /// Which state of the code this is.
    pub version: Version,
    /// What people note of it.
    pub labels: Labels,
}

impl Link {
    /// What it has in common with every link that is like it.
    pub fn url_key(&self) -> UrlKey {
        let key = UrlKey::of(&self.target, &self.policy, &self.labels);
        if self.is_private() { key.of_private() } else { key }
    }

    /// Whether its code was drawn at random, so that nobody comes upon it who was not given it. Issued codes are shorter.
    pub fn is_private(&self) -> bool {
        self.origin == Origin::Issued && self.code.len() == PRIVATE_CODE_LEN
    }

    /// Where the index of long URLs has it.
    pub fn url_entry(&self) -> UrlEntry {
        UrlEntry { key: self.url_key(), created_ms: self.created_ms, code: self.code }
    }

    /// Whether it leads to the same place in the same way, is found by the same tags, and is of the same app and domain. Nobody is given
    /// a private link of somebody else.
    pub fn is_like(&self, other: &Link) -> bool {
        let is_same = self.target == other.target && self.way() == other.way();
        let (mine, theirs) = (&self.labels, &other.labels);
        let is_found_alike = mine.tags == theirs.tags && mine.crawlable == theirs.crawlable && mine.app == theirs.app;
        let is_same = is_same && self.code.domain() == other.code.domain();
        is_same && is_found_alike && !self.is_private() && !other.is_private()
    }

    /// How it redirects, as somebody asked for: an end that nobody asked for is left out.
    fn way(&self) -> Policy {
        let valid_until_ms = self.policy.valid_until_ms.filter(|_| !self.labels.default_end);
        Policy { valid_until_ms, ..self.policy }
    }

    /// Where the index of ends has its scheduled deletion, if there is one.
    pub fn deletion(&self) -> Option<Due> {
        self.labels.delete_at_ms.map(|at_ms| Due { at_ms, code: self.code })
    }

    /// Where the index of ends has it, if it has an end.
    pub fn end(&self) -> Option<Due> {
        self.policy.valid_until_ms.map(|at_ms| Due { at_ms, code: self.code })
    }

    /// Whether its time is over.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.policy.phase(now_ms) == Phase::Over
    }
}

/// What stands for an app, a domain, a long URL and the way to redirect there. It is the same in every process and on every node.
/// Two that differ may have the same one, by a chance of one in 10^19: whoever finds a link by it compares the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UrlKey(pub u64);

impl UrlKey {
    /// The key of links that lead there in this way and are noted like that. Titles, and versions of apps, do not count.
    pub fn of(target: &str, policy: &Policy, labels: &Labels) -> UrlKey {
        // Without `..`, so that whoever adds a property meets this. One that was not asked for adds no bytes: then the
        // keys of all links from before stay as they are.
        let Policy { status, cache_seconds, valid_since_ms, valid_until_ms, forward_query, archived, max_visits } =
            policy;
        let Labels {
            title: _,
            tags,
            crawlable,
            default_end,
            app,
            app_version: _,
            domain,
            delete_at_ms: _,
            idempotency: _,
        } = labels;
        let app = app.as_ref().map_or("", |app| app.as_str());
        let mut bytes = Vec::with_capacity(app.len() + target.len() + 24);
        bytes.extend_from_slice(app.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(target.as_bytes());
        if *status != RedirectStatus::default() {
            bytes.extend_from_slice(&[0, 1]);
            bytes.extend_from_slice(&status.number().to_le_bytes());
        }
        if let Some(seconds) = cache_seconds {
            bytes.extend_from_slice(&[0, 2]);
            bytes.extend_from_slice(&seconds.to_le_bytes());
        }
        if let Some(until_ms) = valid_until_ms.filter(|_| !default_end) {
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
        UrlKey(xxh3_64(&bytes))
    }

    /// That of private links, which stand apart: nobody who looks for a link has to go through them.
    #[must_use]
    pub fn of_private(self) -> UrlKey {
        UrlKey(xxh3_64(&self.0.to_le_bytes()))
    }
}

/// Where the index of long URLs has a link. Those that are alike stand together, the oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UrlEntry {
    /// What it has in common with those that are like it.
    pub key: UrlKey,
    /// When the link was made, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// Its code.
    pub code: Code,
}

/// Something that is due for a code at an instant: what the index of ends has of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Due {
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The code.
    pub code: Code,
}

/// Which links that are there already may be the answer to a create.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reuse {
    /// None: a new one is wanted.
    Never,
    /// One that was used within the window, where the node has a window and the code is not chosen.
    Recent,
    /// Any that is alike; where the code is chosen, the one of that code.
    Any,
}

/// Whether a link may lead there: 1 to [`TARGET_LEN_MAX`] printable ASCII characters without a space, so that nothing in
/// it can end the `Location` header.
pub fn is_target(target: &[u8]) -> bool {
    // Without `all`, which stops early, the loop becomes vector instructions; targets are nearly always good.
    (1..=TARGET_LEN_MAX).contains(&target.len())
        && target.iter().fold(true, |good, byte| good & (0x21..=0x7e).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AppName;
    use crate::domains::DomainName;
    use crate::link::labels::Tags;
    use std::num::NonZeroU32;

    fn key(target: &str, policy: Policy) -> UrlKey {
        UrlKey::of(target, &policy, &Labels::default())
    }

    #[test]
    fn keys_never_change() {
        // They are on disk, and nodes of several versions meet in Redis.
        let plain = Policy::default();
        assert_eq!(key("https://example.org/", plain), UrlKey(xxh3_64(b"\0https://example.org/")));
        let dated = Policy {
            status: RedirectStatus::PermanentRedirect,
            cache_seconds: Some(7),
            valid_until_ms: Some(1_700_000_000_000),
            ..plain
        };
        let mut bytes =
            b"\0https://example.org/\0\x01\x34\x01\0\x02\x07\0\0\0\0\x03\0\x68\xe5\xcf\x8b\x01\0\0".to_vec();
        assert_eq!(key("https://example.org/", dated), UrlKey(xxh3_64(&bytes)));
        let full = Policy { valid_since_ms: Some(1), forward_query: true, archived: true, ..dated };
        bytes.extend_from_slice(b"\0\x04\x01\0\0\0\0\0\0\0\0\x05\0\x06\0\x07a\nb");
        let mut labels = Labels { tags: Tags::of(["b", "a"]).unwrap(), ..Labels::default() };
        assert_eq!(UrlKey::of("https://example.org/", &full, &labels), UrlKey(xxh3_64(&bytes)));
        let limited = Policy { max_visits: NonZeroU32::new(3), ..full };
        labels.crawlable = true;
        bytes.extend_from_slice(b"\0\x08\x03\0\0\0\0\x09");
        assert_eq!(UrlKey::of("https://example.org/", &limited, &labels), UrlKey(xxh3_64(&bytes)));
        // An end that nobody asked for does not count.
        let (default_end, valid_until_ms) = (Labels { default_end: true, ..Labels::default() }, Some(77));
        let key = UrlKey::of("https://example.org/", &Policy { valid_until_ms, ..plain }, &default_end);
        assert_eq!(key, UrlKey(xxh3_64(b"\0https://example.org/")));
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
            Labels { tags: Tags::of(["t"]).unwrap(), ..Labels::default() },
            Labels { crawlable: true, ..Labels::default() },
            Labels { app: AppName::parse("app").ok(), ..Labels::default() },
            Labels { domain: DomainName::parse("go.test").ok(), ..Labels::default() },
            Labels { domain: DomainName::parse("s.test").ok(), ..Labels::default() },
        ] {
            keys.push(UrlKey::of("https://a/", &plain, &labels));
        }
        let distinct: std::collections::HashSet<&UrlKey> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
