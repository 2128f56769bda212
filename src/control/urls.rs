//! Finds links that are there already by what they lead to, and makes the index for it where a store has none.

use std::time::{Duration, Instant};

use carom_shards::Code;

use super::progress::rate;
use crate::fleet::State;
use crate::limits::{ALIKE_LOOKED_AT, INDEX_BATCH};
use crate::link::{Link, Origin, UrlEntry, UrlKey, is_private};
use crate::record::{self, RecordRef};
use crate::stats::NodeStats;
use crate::store::links::{Links, StoreError, UrlUse, parts};

/// How often the log is told how far the making of an index is.
const TELL_EVERY: Duration = Duration::from_secs(5);

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

/// Where the index has the link of a record; `None` where the record is of none.
pub fn entry_of(key: &[u8], value: &[u8]) -> Option<UrlEntry> {
    let code = Code::parse(key).ok()?;
    match record::decode(key, value) {
        Ok(RecordRef::Link(link)) => {
            let key = UrlKey::of(crate::link::EVERYBODY, link.target, &link.policy, &link.labels());
            let key = if is_private(&code, link.origin) { key.of_private() } else { key };
            Some(UrlEntry { key, created_ms: link.created_ms, code })
        }
        Ok(RecordRef::Tombstone(_)) | Err(_) => None,
    }
}

/// Makes the index of a store that has none, because an earlier version made it. Cut off, it begins anew with the next
/// start. Nobody else may write meanwhile.
///
/// # Errors
/// Where the store fails.
pub fn ensure_index(links: &Links) -> Result<(), StoreError> {
    if links.has_url_index()? {
        return Ok(());
    }
    let (start, about) = (Instant::now(), links.approximate_len());
    tracing::info!("making the index of long URLs, of about {about} records; this happens once");
    let (mut told, mut count) = (start, 0u64);
    let mut entries = Vec::with_capacity(INDEX_BATCH);
    let mut written = Ok(());
    for part in parts() {
        // What cannot be read of the store is reported when the links are read back.
        links.scan(part, |key, value| {
            entries.extend(entry_of(key, value));
            if entries.len() >= INDEX_BATCH {
                count += entries.len() as u64;
                written = write(links, &mut entries);
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    tracing::info!("{count} of about {about} links are in the index of long URLs");
                }
            }
            written.is_ok()
        })?;
        std::mem::replace(&mut written, Ok(()))?;
    }
    count += entries.len() as u64;
    write(links, &mut entries)?;
    let mut mark = links.batch();
    mark.set_url_index();
    links.commit(mark)?;
    links.sync()?;
    let time = start.elapsed();
    tracing::info!(
        "{count} links are in the index of long URLs, after {:.1} s ({}/s)",
        time.as_secs_f64(),
        rate(count, time)
    );
    Ok(())
}

fn write(links: &Links, entries: &mut Vec<UrlEntry>) -> Result<(), StoreError> {
    let mut batch = links.batch();
    entries.drain(..).for_each(|entry| batch.set_url(&entry, entry.created_ms));
    links.commit(batch)
}
