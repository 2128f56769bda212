//! Finds links that are there already by what they lead to.

use carom_shards::Code;

use carom_limits::ALIKE_LOOKED_AT;
use carom_model::link::{Link, Origin, UrlKey};
use carom_model::replication::State;
use carom_store::links::{Links, UrlUse};
use carom_telemetry::stats::NodeStats;

/// Which of the links that are alike are looked at first, and whether the rest counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alike {
    /// All of them, the oldest first.
    Oldest,
    /// Those that were used at this instant or later, in milliseconds since 1970 UTC; the newest first.
    UsedSince(u64),
}

impl Alike {
    /// Whether a link that came by its code in this way may be the one. Within a window a URL has one code, whatever slugs
    /// are chosen for it meanwhile.
    pub fn admits(self, origin: Origin) -> bool {
        self == Alike::Oldest || origin == Origin::Issued
    }
}

/// What the index says of a key, in the order to look at it. An index that cannot be read says nothing: then a new link is
/// made, which is never wrong.
pub fn alike(links: &Links, stats: &NodeStats, key: UrlKey, which: Alike) -> Vec<UrlUse> {
    let found = match which {
        Alike::Oldest => links.oldest_urls(key, ALIKE_LOOKED_AT),
        Alike::UsedSince(_) => links.newest_urls(key, ALIKE_LOOKED_AT),
    };
    let mut uses = found.unwrap_or_else(|error| {
        stats.store_errors.add_shared(1);
        tracing::error!(%error, "the index of long URLs could not be read");
        Vec::new()
    });
    if let Alike::UsedSince(since_ms) = which {
        uses.retain(|(_, used_ms)| *used_ms >= since_ms);
    }
    uses
}

/// The first link in the store that is like this one and can be followed now.
pub fn find(links: &Links, stats: &NodeStats, link: &Link, which: Alike, now_ms: u64) -> Option<Code> {
    let codes = alike(links, stats, link.url_key(), which).into_iter().map(|(entry, _)| entry.code);
    codes.into_iter().find(|code| {
        let stored = links.get(code).ok().flatten();
        stored
            .and_then(|value| State::from_value(*code, &value))
            .is_some_and(|state| is_live_like(&state, link, now_ms) && which.admits(state.origin()))
    })
}

/// Whether a state is a link that is like this one and can be followed now.
pub fn is_live_like(state: &State, link: &Link, now_ms: u64) -> bool {
    matches!(state, State::Link(found) if found.is_like(link) && !found.is_over(now_ms))
}
