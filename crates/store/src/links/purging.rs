//! The removal of purged links from the files of the store.
//!
//! The deletion of a link leaves its edits and its events. [`Links::purge_entries`] removes those. The files of the
//! library still have what a commit has removed: journals, tables that no compaction has merged yet, and tables that a
//! compaction has replaced. [`Links::wipe_removed`] ends that, in this order:
//!
//! 1. It waits until no view is open that sees removed data.
//! 2. It fills the journal, because the library begins another one only when the present one is full, and writes out all
//!    memtables. Then the library deletes the old journals. The bytes of writes that a crash had cut off leave as well.
//! 3. It rewrites the tables of each keyspace with data of links (`rewriting`). The new ones have no removed data.
//! 4. It makes the library delete the replaced tables.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::{Keyspace, PersistMode, Slice};

use super::event_log::{self, EventLog};
use super::handles::Links;
use crate::error::StoreError;
use crate::journal::{journals, repair};
use carom_model::events::{EventType, StoredEvent};
use carom_model::link::record::{self, NewerRecord, RecordRef};
use carom_model::link::{Link, LinkIdentity};
use carom_model::purge::{EndedSelector, PurgeBounds, PurgedLink};
use carom_model::replication::state::{HEAD_LEN, StateHead};
use carom_model::visits::tally::Subject;

/// Interval at which a wait looks whether its condition is met.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The key under which the journal is filled, in the index of idempotency keys: behind all days, so that no look-up and
/// no removal of old entries finds it. A backup does not contain that index.
const FILLER_KEY: [u8; 20] = [0xff; 20];

/// Bytes that are written at once to fill the journal: some milliseconds, for which the writer waits at most.
const FILLER_BYTES: usize = 256 * 1024;

/// Number of such writes after which the memtable with them is replaced.
const FILLERS_IN_MEMORY: usize = 32;

/// Largest number of such writes: 128 MiB, twice the length of a full journal.
const FILLERS_MAX: usize = 512;

/// Number of such looks within which the library deletes old journals: 10 seconds.
const LOOKS_MAX: usize = 500;

/// Number of attempts to move the watermark of the library up to which the interval between attempts grows. Each
/// attempt writes a small table.
const WATERMARK_ATTEMPTS: u32 = 50;

/// Entries that are read at once from an index.
const PAGE_LEN: usize = 1_000;

/// The links of some events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinksInEvents {
    /// The selected links. One may come several times.
    pub links: Vec<PurgedLink>,
    /// The codes and claims of links whose records only a later version can decode. The claim is `None` if the record does not
    /// show it. A link may come several times.
    pub newer: Vec<(Code, Option<u64>)>,
    /// The number of the last event that was read; `None` at the end of the log.
    pub last: Option<u64>,
}

impl Links {
    /// True if a purged link no longer exists: its code has no link, or one with another time of creation or another claim. A
    /// record that cannot be decoded counts as another link.
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be read.
    pub fn is_gone(&self, link: &PurgedLink) -> Result<bool, StoreError> {
        Ok(!self.link_identity(&link.code)?.is_some_and(|present| link.is(present)))
    }

    /// True if a link no longer exists. Unlike with [`Links::is_gone`], a record that cannot be decoded may be that link.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn has_ended(&self, link: &PurgedLink) -> Result<bool, StoreError> {
        match self.link_identity(&link.code) {
            Ok(Some(present)) => Ok(!link.is(present)),
            Ok(None) => Ok(!self.may_have_link(&link.code)?),
            Err(StoreError::Damaged(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the selected links among those whose end is in `count` events after a number, and that no longer exist. Also
    /// returns the number of the last event that was read; `None` at the end of the log. Reads the log of a store whose
    /// events are off as well.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. Events that are damaged are left out.
    pub fn ended_in_events(
        &self,
        after: u64,
        count: usize,
        selector: &EndedSelector,
    ) -> Result<(Vec<PurgedLink>, Option<u64>), StoreError> {
        let is_selected = |of: EventType, link: &Link| of == EventType::LinkDeleted && selector.has_link(link);
        let LinksInEvents { links, last, .. } = self.links_in_events(after, count, is_selected)?;
        let mut found = Vec::new();
        for link in links {
            if self.has_ended(&link)? {
                found.push(link);
            }
        }
        Ok((found, last))
    }

    /// Returns the selected links of `count` events after a number, whether or not they exist, each with the instant of its
    /// event as its end. Reads the log of a store whose events are off as well.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. Events that are damaged are left out.
    pub fn links_in_events(
        &self,
        after: u64,
        count: usize,
        is_selected: impl Fn(EventType, &Link) -> bool,
    ) -> Result<LinksInEvents, StoreError> {
        let mut found = LinksInEvents::default();
        let Some(log) = self.event_log()? else { return Ok(found) };
        let page = log.page_of_all(after, count)?;
        for (_, bytes) in &page.events {
            if let Some((code, newer)) = StoredEvent::newer_record(bytes) {
                found.newer.push((code, newer.map(|newer| newer.version.claim)));
            }
            // A purge takes the link out of its events, so it is not found again.
            let Some(StoredEvent::Link(event)) = StoredEvent::decode(bytes) else { continue };
            let Some(link) = event.link.filter(|link| is_selected(event.of, link)) else { continue };
            found.links.push(PurgedLink { ended_ms: Some(event.at_ms), ..PurgedLink::of(&link) });
        }
        found.last = Some(page.up_to).filter(|up_to| *up_to > after);
        Ok(found)
    }

    /// Returns the identity of the link of a code; `None` without a link.
    ///
    /// # Errors
    /// [`StoreError`] if the record cannot be read.
    pub fn link_identity(&self, code: &Code) -> Result<Option<LinkIdentity>, StoreError> {
        let Some(value) = self.get(code)? else { return self.marked_identity(code) };
        Ok(match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) {
            Ok(RecordRef::Link(link)) => Some(LinkIdentity { created_ms: link.created_ms, claim: link.version.claim }),
            // A purge must not take the data of such a link for that of the one before it.
            Err(error) if error.is_newer() => NewerRecord::of(&value)
                .and_then(|newer| Some(LinkIdentity { created_ms: newer.created_ms?, claim: newer.version.claim })),
            Ok(RecordRef::Tombstone(_)) | Err(_) => None,
        })
    }

    /// Returns the identity of the link of a marked code, whose state only a later version can decode.
    fn marked_identity(&self, code: &Code) -> Result<Option<LinkIdentity>, StoreError> {
        let Some(text) = self.unread(code)? else { return Ok(None) };
        let head = StateHead::of(&text).filter(|head| head.is_link != Some(false));
        let record = text.get(HEAD_LEN..).and_then(NewerRecord::of);
        let identity = |(head, record): (StateHead, NewerRecord)| {
            Some(LinkIdentity { created_ms: record.created_ms?, claim: head.version.claim })
        };
        Ok(head.zip(record).and_then(identity))
    }

    /// True if a code has a link, or if its record or mark cannot be decoded and may be that of a link.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub(super) fn may_have_link(&self, code: &Code) -> Result<bool, StoreError> {
        let value = match self.get(code) {
            Ok(Some(value)) => value,
            Ok(None) => {
                let is_link = |text: Vec<u8>| StateHead::of(&text).is_none_or(|head| head.is_link != Some(false));
                return Ok(self.unread(code)?.is_some_and(is_link));
            }
            Err(StoreError::Damaged(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        Ok(match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) {
            Ok(RecordRef::Tombstone(_)) => false,
            Err(error) if error.is_newer() => NewerRecord::of(&value).is_none_or(|newer| newer.is_link != Some(false)),
            Ok(RecordRef::Link(_)) | Err(_) => true,
        })
    }

    /// Returns the instants before which all data of purged codes belongs to deleted links.
    ///
    /// # Errors
    /// [`StoreError`] if a record cannot be read.
    pub fn purge_bounds(&self, links: &[PurgedLink]) -> Result<PurgeBounds, StoreError> {
        let bound = |link: &PurgedLink| {
            let present = self.link_identity(&link.code)?;
            Ok((link.code, present.map_or(u64::MAX, |present| present.created_ms)))
        };
        links.iter().map(bound).collect()
    }

    /// Removes what is left of deleted links: their edits, their idempotency keys, the rows of their visits from before
    /// an import, the content of their events, and the dead letters about these. Other links that have the codes now
    /// keep theirs. Blocks the thread for a pass over the event log and the index of idempotency keys.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. A repeated call removes the rest.
    pub fn purge_entries(&self, links: &[PurgedLink]) -> Result<(), StoreError> {
        self.purge_entries_before(links, || self.purge_bounds(links))
    }

    /// Removes entries like [`Links::purge_entries`], from a store that need not have the links that the codes have
    /// now. `bounds` returns what [`Links::purge_bounds`] would if the store had them.
    ///
    /// # Errors
    /// The error of `bounds`, or [`StoreError`] if the store fails. A repeated call removes the rest.
    pub fn purge_entries_before<E: From<StoreError>>(
        &self,
        links: &[PurgedLink],
        bounds: impl FnOnce() -> Result<PurgeBounds, E>,
    ) -> Result<(), E> {
        let log = self.event_log()?;
        // Before the bounds: a later event may be about a link that they do not know yet.
        let end = log.as_ref().map_or(0, EventLog::last);
        let bounds = bounds()?;
        Ok(self.purge_within(links, &bounds, log.as_ref(), end)?)
    }

    /// Removes the entries of purged links, given bounds that were read after the event of the number `end`.
    fn purge_within(
        &self,
        links: &[PurgedLink],
        bounds: &PurgeBounds,
        log: Option<&EventLog>,
        end: u64,
    ) -> Result<(), StoreError> {
        for code in bounds.keys() {
            self.purge_edits(code)?;
        }
        self.purge_idempotency(links)?;
        self.purge_earlier_visits(links)?;
        let Some(log) = log else { return Ok(()) };
        log.purge(bounds, links, &self.imported_again(links)?, end)
    }

    /// Returns the present links that an import has created with the code and the date of a purged link, if the claim of
    /// the purged link is not known. Leaves out links without a claim: they cannot be told from the purged ones.
    fn imported_again(&self, links: &[PurgedLink]) -> Result<HashMap<Code, LinkIdentity>, StoreError> {
        let mut again = HashMap::new();
        for link in links.iter().filter(|link| link.claim.is_none()) {
            let present = self.link_identity(&link.code)?;
            if let Some(present) = present.filter(|present| present.claim != 0 && link.is(*present)) {
                again.insert(link.code, present);
            }
        }
        Ok(again)
    }

    /// Removes the idempotency keys with which creates would find the deleted links.
    fn purge_idempotency(&self, links: &[PurgedLink]) -> Result<(), StoreError> {
        let values: HashSet<Vec<u8>> = links
            .iter()
            .map(|link| [&link.created_ms.to_be_bytes(), link.code.key(&mut [0; CODE_KEY_LEN_MAX])].concat())
            .collect();
        let mut behind = Vec::new();
        loop {
            let mut batch = self.db.batch();
            let mut last = None;
            let range = (Bound::Excluded(&behind[..]), Bound::<&[u8]>::Unbounded);
            for guard in self.idempotency.range::<&[u8], _>(range).take(PAGE_LEN) {
                let (key, value) = guard.into_inner()?;
                if values.contains(&value[..]) {
                    batch.remove(&self.idempotency, Slice::from(&*key));
                }
                last = Some(key.to_vec());
            }
            if !batch.is_empty() {
                batch.commit()?;
            }
            match last {
                Some(last) => behind = last,
                None => return Ok(()),
            }
        }
    }

    /// Removes the rows that say which links had visits before their import: each has a hash of the destination, and the
    /// app. The sums stay. A row that cannot be read may be of a purged link, so it is removed as well.
    fn purge_earlier_visits(&self, links: &[PurgedLink]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        for link in links {
            let name = Subject::Link(link.code).name();
            let is_of_link = match self.ended_earlier(&name) {
                Ok(ended) => ended.is_some_and(|ended| ended.created_ms() == link.created_ms),
                Err(StoreError::Damaged(_)) => true,
                Err(error) => return Err(error),
            };
            if is_of_link {
                batch.remove_ended_earlier(&name);
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }

    /// Removes from the files of the store the data that commits have removed before. Blocks the thread: about 1 µs of
    /// CPU for each link of the store, and a write of 64 MiB. Commits continue meanwhile. Needs as much free space as
    /// the largest keyspace takes. Returns false if `is_stopping` has become true before the end.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails, or the library keeps an old journal.
    pub fn wipe_removed(&self, is_stopping: impl Fn() -> bool) -> Result<bool, StoreError> {
        let since = self.note_wipe()?;
        while self.views.oldest().is_some_and(|oldest| oldest < since) {
            if is_stopping() {
                return Ok(false);
            }
            sleep(LOOK_EVERY);
        }
        if !self.move_watermark(&is_stopping)? || !self.replace_journals(&is_stopping)? {
            return Ok(false);
        }
        let failed = |error: io::Error| StoreError::Failed(format!("writes that a crash cut off are left: {error}"));
        repair::remove_unfinished(self.mark.dir()).map_err(failed)?;
        let log = self.event_log()?;
        let _no_drops = log.as_ref().map(EventLog::hold_tables);
        for keyspace in self.keyspaces_of_links()? {
            if is_stopping() || !self.rewrite_tables(&keyspace, &is_stopping)? {
                return Ok(false);
            }
        }
        // The library deletes replaced tables once the watermark is behind the compaction.
        self.move_watermark(&is_stopping)
    }

    /// Commits an entry without a meaning. Returns the sequence number from which on views see all earlier commits.
    fn note_wipe(&self) -> Result<u64, StoreError> {
        let mut batch = self.db.batch();
        batch.insert(&self.idempotency, FILLER_KEY, &b""[..]);
        batch.commit()?;
        Ok(self.db.visible_seqno())
    }

    /// Makes the library move its watermark, below which no reader reads, behind all removed data. The watermark cannot
    /// pass an open iterator, so this waits for the end of each. Returns false if `is_stopping` has become true before
    /// the end.
    fn move_watermark(&self, is_stopping: &impl Fn() -> bool) -> Result<bool, StoreError> {
        let since = self.note_wipe()?;
        for attempt in 1.. {
            // Iterators that were opened later see nothing that was removed. The first of them holds the watermark one
            // number below its own.
            let has_moved = self.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc() + 1 >= since;
            // Once more with the new watermark, by which the library deletes replaced tables.
            self.pull_watermark()?;
            if has_moved {
                break;
            }
            if is_stopping() {
                return Ok(false);
            }
            sleep(LOOK_EVERY * WATERMARK_ATTEMPTS.min(attempt));
        }
        Ok(true)
    }

    /// Replaces a memtable. Then the library moves its watermark behind all removed data, unless an iterator is open, and
    /// deletes the tables that compactions have replaced before.
    pub(super) fn pull_watermark(&self) -> Result<(), StoreError> {
        self.note_wipe()?;
        Ok(self.idempotency.rotate_memtable_and_wait()?)
    }

    /// Replaces the journals, and writes all memtables to tables. Returns false if `is_stopping` has become true before
    /// the end.
    fn replace_journals(&self, is_stopping: &impl Fn() -> bool) -> Result<bool, StoreError> {
        let old = self.journals()?;
        if !self.fill_journal(&old, is_stopping)? {
            return Ok(false);
        }
        let others = [&self.meta, &self.changes].map(Keyspace::clone);
        for keyspace in others.into_iter().chain(self.keyspaces_of_links()?) {
            // Fails once the thread of the store has failed. The next line would wait for it forever.
            self.db.persist(PersistMode::Buffer)?;
            keyspace.rotate_memtable_and_wait()?;
        }
        for _ in 0..LOOKS_MAX {
            if !self.journals()?.iter().any(|journal| old.contains(journal)) {
                return Ok(true);
            }
            if is_stopping() {
                return Ok(false);
            }
            // The library looks for journals that it can delete when it replaces a memtable.
            self.note_wipe()?;
            self.idempotency.rotate_memtable_and_wait()?;
            sleep(LOOK_EVERY);
        }
        Err(StoreError::Failed("an old journal is still in use".to_owned()))
    }

    /// Writes until the library begins another journal, and removes what it wrote.
    fn fill_journal(&self, old: &[PathBuf], is_stopping: &impl Fn() -> bool) -> Result<bool, StoreError> {
        for number in 1..=FILLERS_MAX {
            let mut batch = self.db.batch();
            batch.insert(&self.idempotency, FILLER_KEY, vec![0_u8; FILLER_BYTES]);
            batch.commit()?;
            if number % FILLERS_IN_MEMORY == 0 {
                self.db.persist(PersistMode::Buffer)?;
                self.idempotency.rotate_memtable_and_wait()?;
                if self.journals()?.last() != old.last() {
                    let mut batch = self.db.batch();
                    batch.remove(&self.idempotency, Slice::from(&FILLER_KEY[..]));
                    batch.commit()?;
                    return Ok(true);
                }
            }
            if is_stopping() {
                return Ok(false);
            }
        }
        Err(StoreError::Failed(format!("no new journal after {} bytes", FILLERS_MAX * FILLER_BYTES)))
    }

    fn journals(&self) -> Result<Vec<PathBuf>, StoreError> {
        let failed = |error: io::Error| StoreError::Failed(format!("the journals cannot be listed: {error}"));
        journals(self.mark.dir()).map_err(failed)
    }

    /// Returns the event log, also that of a store whose events are off.
    fn event_log(&self) -> Result<Option<EventLog>, StoreError> {
        match self.events() {
            Some(log) => Ok(Some(log.clone())),
            None if event_log::exists(&self.db) => EventLog::open(&self.db).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the keyspaces that have anything of a link besides its code.
    fn keyspaces_of_links(&self) -> Result<Vec<Keyspace>, StoreError> {
        let of_links = [
            &self.links,
            &self.urls,
            &self.ends,
            &self.dates,
            &self.tags,
            &self.allowances,
            &self.visits,
            &self.history,
            // It has states that only a later version can decode.
            &self.fleet,
            &self.idempotency,
        ];
        let of_events = self.event_log()?.map(|log| log.keyspaces());
        Ok(of_links.into_iter().cloned().chain(of_events.into_iter().flatten()).collect())
    }
}

#[cfg(test)]
mod tests;
