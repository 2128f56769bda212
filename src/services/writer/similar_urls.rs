//! Finds existing links by their destination, for the writer and for the fleet's reuse thread. All functions block for
//! the store.

use carom_shards::Code;

use carom_limits::ALIKE_LOOKED_AT;
use carom_model::link::{Link, Origin, UrlKey};
use carom_model::replication::State;
use carom_store::links::{Links, UrlUse};
use carom_telemetry::stats::NodeStats;

/// The order in which links of one destination are tried, and which of them count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReuseCandidates {
    /// All links, the newest first.
    All,
    /// Links used at this instant or later, in milliseconds since 1970 UTC; the newest first.
    UsedSince(u64),
}

impl ReuseCandidates {
    /// True if a link with a code of this origin may be the answer. Within a window a URL has one code, whatever slugs
    /// are chosen for it meanwhile.
    pub fn admits(self, origin: Origin) -> bool {
        self == ReuseCandidates::All || origin == Origin::Issued
    }
}

/// Returns the index entries of the links of a destination, in the order to try them. If the index cannot be read there
/// are none, so that a new link is created, which is always correct.
pub fn find_entries(links: &Links, stats: &NodeStats, key: UrlKey, which: ReuseCandidates) -> Vec<UrlUse> {
    let mut uses = links.newest_urls(key, ALIKE_LOOKED_AT).unwrap_or_else(|error| {
        stats.store_errors.add_shared(1);
        tracing::error!(%error, "the index of destinations could not be read");
        Vec::new()
    });
    if let ReuseCandidates::UsedSince(since_ms) = which {
        uses.retain(|(_, used_ms)| *used_ms >= since_ms);
    }
    uses
}

/// Returns the first stored link that is like `link` and has not expired.
pub fn find(links: &Links, stats: &NodeStats, link: &Link, which: ReuseCandidates, now_ms: u64) -> Option<Code> {
    let codes = find_entries(links, stats, link.url_key(), which).into_iter().map(|(entry, _)| entry.code);
    codes.into_iter().find(|code| {
        let stored = links.get(code).ok().flatten();
        stored
            .and_then(|value| State::from_value(*code, &value))
            .is_some_and(|state| is_live_match(&state, link, now_ms) && which.admits(state.origin()))
    })
}

/// True if a state is a link that is like `link` and has not expired.
pub fn is_live_match(state: &State, link: &Link, now_ms: u64) -> bool {
    matches!(state, State::Link(found) if found.is_like(link) && !found.is_expired(now_ms))
}
