//! Makes the index of ends where a store has none, and says what an import must add to it.

use std::time::Instant;

use carom_shards::Code;

use super::progress::rate;
use crate::limits::INDEX_BATCH;
use crate::link::Due;
use crate::record::{self, RecordRef};
use crate::store::links::{Links, Of, StoreError, parts};

/// Where the index of ends has the link of a record; `None` where it has no end, or the record is of none.
pub fn entry_of(key: &[u8], value: &[u8]) -> Option<Due> {
    let Ok(RecordRef::Link(link)) = record::decode(key, value) else { return None };
    Some(Due { at_ms: link.policy.valid_until_ms?, code: Code::parse(key).ok()? })
}

/// Makes the index of a store that has none, because an earlier version made it. Cut off, it begins anew with the next
/// start. Nobody else may write meanwhile.
///
/// # Errors
/// Where the store fails.
pub fn ensure_index(links: &Links) -> Result<(), StoreError> {
    if links.has_end_index()? {
        return Ok(());
    }
    let (start, about) = (Instant::now(), links.approximate_len());
    tracing::info!("making the index of ends, of about {about} records; this happens once");
    let (mut count, mut entries, mut written) = (0u64, Vec::with_capacity(INDEX_BATCH), Ok(()));
    for part in parts() {
        // What cannot be read of the store is reported when the links are read back.
        links.scan(part, |key, value| {
            entries.extend(entry_of(key, value));
            if entries.len() >= INDEX_BATCH {
                count += entries.len() as u64;
                written = write(links, &mut entries);
            }
            written.is_ok()
        })?;
        std::mem::replace(&mut written, Ok(()))?;
    }
    count += entries.len() as u64;
    write(links, &mut entries)?;
    let mut mark = links.batch();
    mark.set_end_index();
    links.commit(mark)?;
    links.sync()?;
    let time = start.elapsed();
    tracing::info!(
        "{count} ends of links are in the index, after {:.1} s ({}/s)",
        time.as_secs_f64(),
        rate(count, time)
    );
    Ok(())
}

fn write(links: &Links, entries: &mut Vec<Due>) -> Result<(), StoreError> {
    let mut batch = links.batch();
    entries.drain(..).for_each(|due| batch.set_due(Of::Link, &due));
    links.commit(batch)
}
