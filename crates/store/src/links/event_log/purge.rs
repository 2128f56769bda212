//! The removal of purged links from the event log.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::{MutexGuard, PoisonError};

use carom_shards::Code;
use fjall::Keyspace;

use super::EventLog;
use crate::error::StoreError;
use carom_model::events::{LinkEvent, StoredEvent};
use carom_model::purge::{PurgeBounds, PurgedLink};

/// Events that are read at once.
const PAGE_LEN: usize = 1_000;

impl EventLog {
    /// Returns the keyspaces of the log.
    pub(in crate::links) fn keyspaces(&self) -> [Keyspace; 2] {
        [self.events.clone(), self.sinks.clone()]
    }

    /// Keeps old tables from being dropped, until the guard is dropped. Waits while some are being dropped.
    pub(in crate::links) fn hold_tables(&self) -> MutexGuard<'_, ()> {
        self.end.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the content of events about purged links, and the dead letters with these events. An event with the record of
    /// such a link loses its content at any date, because the next link of its code may come from a node whose clock is
    /// behind. Numbers, types, codes and instants stay, so that readers and sinks miss no number. Blocks the thread for
    /// a pass over the log.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. Events that are damaged stay as they are.
    pub(in crate::links) fn purge(&self, bounds: &PurgeBounds, links: &[PurgedLink]) -> Result<(), StoreError> {
        let mut of_codes: HashMap<Code, Vec<PurgedLink>> = HashMap::new();
        links.iter().for_each(|link| of_codes.entry(link.code).or_default().push(*link));
        let mut purged = HashSet::new();
        let (mut after, end) = (0, self.last());
        while after < end {
            let page = self.page_up_to(after, end, PAGE_LEN, usize::MAX)?;
            let mut batch = self.db.batch();
            for (seq, bytes) in &page.events {
                let Some(event) = StoredEvent::decode(bytes) else { continue };
                let until_ms = event.code().and_then(|code| bounds.get(&code));
                let is_earlier = until_ms.is_some_and(|until_ms| event.at_ms() < *until_ms);
                if is_earlier || has_record_of(&of_codes, &event) {
                    purged.insert(*seq);
                    batch.insert(&self.events, seq.to_be_bytes(), event.purged());
                }
            }
            if !batch.is_empty() {
                batch.commit()?;
            }
            after = page.up_to;
        }
        self.purge_letters(bounds, &purged)
    }

    /// Removes the dead letters with these events. The log may no longer have the event of a letter, so the code in it
    /// decides as well.
    fn purge_letters(&self, bounds: &PurgeBounds, purged: &HashSet<u64>) -> Result<(), StoreError> {
        // A sink may have read an event before its content was removed: it makes the letter of what the log has now.
        let _no_letter = self.end.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let slugs: HashSet<String> = bounds.keys().map(|code| code.as_slug().to_string()).collect();
        let mut batch = self.db.batch();
        let range = (Bound::Included(&b"dead/"[..]), Bound::Excluded(&b"dead0"[..]));
        for guard in self.sinks.range::<&[u8], _>(range) {
            let (key, content) = guard.into_inner()?;
            let seq = key.last_chunk::<8>().map(|seq| u64::from_be_bytes(*seq));
            if seq.is_some_and(|seq| purged.contains(&seq)) || names_one_of(&slugs, &content) {
                batch.remove(&self.sinks, key);
            }
        }
        if batch.is_empty() { Ok(()) } else { Ok(batch.commit()?) }
    }
}

/// True if an event has the record of one of these links, by their codes.
fn has_record_of(links: &HashMap<Code, Vec<PurgedLink>>, event: &StoredEvent<'_>) -> bool {
    let StoredEvent::Link(LinkEvent { code, link: Some(link), .. }) = event else { return false };
    links.get(code).into_iter().flatten().any(|purged| purged.is(link.created_ms, link.version.claim))
}

/// True if a dead letter is about a link with one of these slugs, on whatever domain.
fn names_one_of(slugs: &HashSet<String>, content: &[u8]) -> bool {
    let Ok(letter) = serde_json::from_slice::<serde_json::Value>(content) else { return false };
    let slug = letter["event"]["data"]["shortUrl"]["shortCode"].as_str();
    slug.is_some_and(|slug| slugs.contains(slug))
}
