//! Makes the indexes for lists where a store has none, and the entries of records for those who write past the writer.

use std::time::{Duration, Instant};

use carom_shards::Code;
use carom_shards::code::CODE_LEN_MAX;

use crate::control::progress::rate;
use crate::limits::INDEX_BATCH;
use crate::link::is_private;
use crate::listing::Place;
use crate::record::{self, RecordRef};
use crate::store::links::catalog::{Entry, Listing};
use crate::store::links::{Links, StoreError, parts};

/// How often the log is told how far the making of the indexes is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The entries of a record; none where it is not that of a link.
pub fn entries_of(key: &[u8], value: &[u8]) -> Vec<Entry> {
    let Ok(code) = Code::parse(key) else { return Vec::new() };
    match record::decode(key, value) {
        Ok(RecordRef::Link(link)) => Listing {
            place: Place::new(link.created_ms, code),
            tags: link.tags,
            crawlable: link.crawlable && !is_private(&code, link.origin),
        }
        .entries(),
        Ok(RecordRef::Tombstone(_)) | Err(_) => Vec::new(),
    }
}

/// Makes the indexes of a store that has none, because an earlier version made it. Cut off, it begins anew with the next
/// start. Nobody else may write meanwhile.
///
/// # Errors
/// Where the store fails.
pub fn ensure(links: &Links) -> Result<(), StoreError> {
    if links.has_catalog()? {
        return Ok(());
    }
    let (start, about) = (Instant::now(), links.approximate_len());
    tracing::info!("making the indexes for lists, of about {about} records; this happens once");
    let (mut told, mut count) = (start, 0u64);
    let mut entries = Vec::with_capacity(INDEX_BATCH);
    let mut written = Ok(());
    for part in parts() {
        // What cannot be read of the store is reported when the links are read back.
        links.scan(part, |key, value| {
            let before = entries.len();
            entries.extend(entries_of(key, value));
            count += u64::from(entries.len() > before);
            if entries.len() >= INDEX_BATCH {
                written = write(links, &mut entries);
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    tracing::info!("{count} of about {about} links are in the indexes for lists");
                }
            }
            written.is_ok()
        })?;
        std::mem::replace(&mut written, Ok(()))?;
    }
    write(links, &mut entries)?;
    let mut mark = links.batch();
    mark.set_catalog();
    links.commit(mark)?;
    links.sync()?;
    let time = start.elapsed();
    tracing::info!(
        "{count} links are in the indexes for lists, after {:.1} s ({}/s)",
        time.as_secs_f64(),
        rate(count, time)
    );
    Ok(())
}

/// Makes the entries of links that were found in a broken journal, where nothing else of their commit may be left.
///
/// # Errors
/// Where the store fails.
pub fn mend(links: &Links, codes: &[Code]) -> Result<(), StoreError> {
    let mut entries = Vec::new();
    for code in codes {
        if let Some(stored) = links.get(code)? {
            entries.extend(entries_of(code.ascii(&mut [0; CODE_LEN_MAX]), &stored));
        }
    }
    write(links, &mut entries)?;
    links.sync()
}

fn write(links: &Links, entries: &mut Vec<Entry>) -> Result<(), StoreError> {
    let mut batch = links.batch();
    entries.drain(..).for_each(|entry| batch.list(&entry));
    links.commit(batch)
}
