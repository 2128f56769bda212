//! The removal of purged links from the event log.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::{MutexGuard, PoisonError};

use carom_shards::Code;
use fjall::Keyspace;

use super::{EventLog, EventPage};
use crate::error::StoreError;
use carom_model::events::{LinkEvent, StoredEvent};
use carom_model::link::LinkIdentity;
use carom_model::purge::{PurgeBounds, PurgedLink};

/// Events that are read at once.
const PAGE_LEN: usize = 1_000;

impl EventLog {
    /// Returns the keyspaces of the log.
    pub(in crate::links) fn keyspaces(&self) -> [Keyspace; 2] {
        [self.events.clone(), self.sinks.clone()]
    }

    /// Returns up to `count` events after a number, also those that are not synced yet.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read. Events that are damaged are left out.
    pub(in crate::links) fn page_of_all(&self, after: u64, count: usize) -> Result<EventPage, StoreError> {
        self.page_up_to(after, self.last(), count, usize::MAX)
    }

    /// Keeps old tables from being dropped, until the guard is dropped. Waits while some are being dropped.
    pub(in crate::links) fn hold_tables(&self) -> MutexGuard<'_, ()> {
        self.end.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the content of events about purged links up to the number `end`, and the dead letters with these events.
    /// An event with the record of such a link loses its content at any date: the next link of its code may come from a
    /// node whose clock is behind. An event with the record of the present link keeps its content, because its date may
    /// be ahead. So does an event with the identity that `kept` has for its code. Numbers, types, codes and instants stay,
    /// so that readers and sinks miss no number. Blocks the thread for a pass over the log.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. Events that are damaged stay as they are.
    pub(in crate::links) fn purge(
        &self,
        bounds: &PurgeBounds,
        links: &[PurgedLink],
        kept: &HashMap<Code, LinkIdentity>,
        end: u64,
    ) -> Result<(), StoreError> {
        let mut of_codes: HashMap<Code, Vec<PurgedLink>> = HashMap::new();
        links.iter().for_each(|link| of_codes.entry(link.code).or_default().push(*link));
        let mut purged = HashSet::new();
        let mut after = 0;
        while after < end {
            let page = self.page_up_to(after, end, PAGE_LEN, usize::MAX)?;
            let mut batch = self.db.batch();
            for (seq, bytes) in &page.events {
                let Some(event) = StoredEvent::decode(bytes) else { continue };
                let until_ms = event.code().and_then(|code| bounds.get(&code));
                let is_earlier =
                    until_ms.is_some_and(|until_ms| event.at_ms() < *until_ms && created_of(&event) != Some(*until_ms));
                if is_earlier || has_record_of(&of_codes, kept, &event) {
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

    /// Removes the dead letters with these events. If the log no longer has the event of a letter, the code in it decides.
    fn purge_letters(&self, bounds: &PurgeBounds, purged: &HashSet<u64>) -> Result<(), StoreError> {
        // A sink may have read an event before its content was removed: it makes the letter of what the log has now.
        let _no_letter = self.end.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let slugs: HashSet<String> = bounds.keys().map(|code| code.as_slug().to_string()).collect();
        let mut batch = self.db.batch();
        let range = (Bound::Included(&b"dead/"[..]), Bound::Excluded(&b"dead0"[..]));
        for guard in self.sinks.range::<&[u8], _>(range) {
            let (key, content) = guard.into_inner()?;
            let seq = key.last_chunk::<8>().map(|seq| u64::from_be_bytes(*seq));
            let is_of_purged = seq.is_some_and(|seq| purged.contains(&seq));
            // An event that is still whole is about the present link of the code, or about another one.
            if is_of_purged || names_one_of(&slugs, &content) && !self.has_event(seq)? {
                batch.remove(&self.sinks, key);
            }
        }
        if batch.is_empty() { Ok(()) } else { Ok(batch.commit()?) }
    }

    /// True if the log has the event of a number.
    fn has_event(&self, seq: Option<u64>) -> Result<bool, StoreError> {
        let Some(seq) = seq else { return Ok(false) };
        Ok(self.events.get(seq.to_be_bytes())?.is_some())
    }
}

/// True if an event has the record of one of these links, by their codes, and not that of a link to keep.
fn has_record_of(
    links: &HashMap<Code, Vec<PurgedLink>>,
    kept: &HashMap<Code, LinkIdentity>,
    event: &StoredEvent<'_>,
) -> bool {
    let StoredEvent::Link(LinkEvent { code, link: Some(link), .. }) = event else { return false };
    let identity = link.identity();
    kept.get(code) != Some(&identity) && links.get(code).into_iter().flatten().any(|purged| purged.is(identity))
}

/// Returns the creation time of the link whose record an event has, in milliseconds since 1970 UTC.
fn created_of(event: &StoredEvent<'_>) -> Option<u64> {
    let StoredEvent::Link(LinkEvent { link: Some(link), .. }) = event else { return None };
    Some(link.created_ms)
}

/// True if a dead letter is about a link with one of these slugs, on whatever domain.
fn names_one_of(slugs: &HashSet<String>, content: &[u8]) -> bool {
    let Ok(letter) = serde_json::from_slice::<serde_json::Value>(content) else { return false };
    let slug = letter["event"]["data"]["shortUrl"]["shortCode"].as_str();
    slug.is_some_and(|slug| slugs.contains(slug))
}
