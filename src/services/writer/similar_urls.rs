//! Finds existing links by their destination, for the writer and for the fleet's reuse thread. All functions block for
//! the store.

use carom_shards::Code;

use carom_limits::{ALIKE_LOOKED_AT, DESTINATION_ENTRIES_MAX};
use carom_model::link::{Link, Origin, Reuse, UrlKey};
use carom_model::replication::State;
use carom_store::links::{Links, UrlUse};
use carom_telemetry::stats::NodeStats;

/// The order in which links of one destination are tried, and which of them count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReuseCandidates {
    /// All links of the destination, the newest first.
    All,
    /// Equivalent links, used at this instant or later, in milliseconds since 1970 UTC; the newest first.
    UsedSince(u64),
}

impl ReuseCandidates {
    /// True if a link with a code of this origin may be the answer. Within a window a URL has one code, whatever slugs
    /// are chosen for it meanwhile.
    pub fn admits(self, origin: Origin) -> bool {
        self == ReuseCandidates::All || origin == Origin::Issued
    }

    /// True if an entry with the key `found` is a candidate for a link with the key `asked`.
    pub fn covers(self, asked: UrlKey, found: UrlKey) -> bool {
        found == asked || self == ReuseCandidates::All && found.destination() == asked.destination()
    }
}

/// Returns the index entries of the links that may answer a create, in the order to try them. If the index cannot be read there
/// are none, so that a new link is created, which is always correct.
pub fn find_entries(links: &Links, stats: &NodeStats, key: UrlKey, which: ReuseCandidates) -> Vec<UrlUse> {
    let uses = match which {
        ReuseCandidates::All => links.newest_of_destination(key, ALIKE_LOOKED_AT, DESTINATION_ENTRIES_MAX),
        ReuseCandidates::UsedSince(_) => links.newest_urls(key, ALIKE_LOOKED_AT),
    };
    let mut uses = uses.unwrap_or_else(|error| {
        stats.store_errors.add_shared(1);
        tracing::error!(%error, "the index of destinations could not be read");
        Vec::new()
    });
    if let ReuseCandidates::UsedSince(since_ms) = which {
        uses.retain(|(_, used_ms)| *used_ms >= since_ms);
    }
    uses
}

/// A create that an existing link may answer.
#[derive(Clone, Copy, Debug)]
pub struct ReuseQuery<'a> {
    /// The link that the create describes.
    pub link: &'a Link,
    /// The existing links that may answer.
    pub reuse: Reuse,
}

impl ReuseQuery<'_> {
    /// True if a state is a link that may answer the create and has not expired.
    pub fn is_answered_by(self, state: &State, now_ms: u64) -> bool {
        matches!(state, State::Link(found) if self.reuse.admits(self.link, found) && !found.is_expired(now_ms))
    }
}

/// Returns the first stored link that may answer a create and has not expired.
pub fn find(
    links: &Links,
    stats: &NodeStats,
    query: ReuseQuery<'_>,
    which: ReuseCandidates,
    now_ms: u64,
) -> Option<Code> {
    let codes = find_entries(links, stats, query.link.url_key(), which).into_iter().map(|(entry, _)| entry.code);
    codes.into_iter().find(|code| {
        let stored = links.get(code).ok().flatten();
        stored
            .and_then(|value| State::from_value(*code, &value))
            .is_some_and(|state| query.is_answered_by(&state, now_ms) && which.admits(state.origin()))
    })
}
