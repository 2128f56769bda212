//! The event log of an open store: appends, pages, removal of old events, and the state of sinks. [`super::events`]
//! describes its content.

mod purge;

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fjall::config::CompressionPolicy;
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, Slice};

use super::keyspace_options::range_options;
use crate::error::StoreError;
use carom_limits::EVENTS_PROBED;
use carom_model::events::{EventId, StoredEvent};

/// Size of a memtable, in bytes. Old events leave the disk by whole tables of this size.
const MEMTABLE_BYTES: u64 = 4 * 1024 * 1024;

/// Size of a data block, in bytes. The log is read in order.
const BLOCK_BYTES: u32 = 16 * 1024;

/// The name of the keyspace of sinks.
const SINKS: &str = "sinks";

/// The key of the log's name in the keyspace `sinks`.
const NAME: &str = "log";

/// The event log of an open store. Cheap to clone.
#[derive(Clone)]
pub struct EventLog {
    db: Database,
    events: Keyspace,
    sinks: Keyspace,
    name: u32,
    end: Arc<EventsEnd>,
}

/// The end of the log. The lock orders appends, so that an event is visible before any later one.
#[derive(Debug, Default)]
struct EventsEnd {
    appends: Mutex<()>,
    /// Held while old tables are dropped, and while a purge rewrites all of them.
    tables: Mutex<()>,
    /// Held while a dead letter is made, and while a purge removes some.
    letters: Mutex<()>,
    last: AtomicU64,
    /// The number of the last event that is known to be synced.
    synced: AtomicU64,
}

/// Events that were read from the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventPage {
    /// The events, each with its number.
    pub events: Vec<(u64, Vec<u8>)>,
    /// The number up to which the log was read. It is higher than that of the last event if later ones are unreadable.
    pub up_to: u64,
}

/// An event that a sink could not deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The number of the event.
    pub seq: u64,
    /// The name of the sink.
    pub sink: String,
    /// The reason, and the event as it was sent.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventLog({:08x})", self.name)
    }
}

fn options() -> KeyspaceCreateOptions {
    range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::all(CompressionType::Lz4))
}

fn number_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

fn cursor_key(sink: &str) -> String {
    format!("cursor/{sink}")
}

fn letters_of(sink: &str) -> Vec<u8> {
    format!("dead/{sink}/").into_bytes()
}

/// True if the store has a log.
pub(super) fn exists(db: &Database) -> bool {
    db.keyspace_exists(SINKS)
}

/// Removes the name of the log, so that it gets another one when it is opened.
pub(super) fn remove_name(db: &Database) -> Result<(), StoreError> {
    let sinks = db.keyspace(SINKS, KeyspaceCreateOptions::default)?;
    let mut batch = db.batch();
    batch.remove(&sinks, NAME);
    Ok(batch.commit()?)
}

impl EventLog {
    /// Opens the log of a store, or creates it.
    pub(super) fn open(db: &Database) -> Result<EventLog, StoreError> {
        let events = db.keyspace("events", options)?;
        let sinks = db.keyspace(SINKS, KeyspaceCreateOptions::default)?;
        let stored = sinks.get(NAME)?.and_then(|name| Some(u32::from_be_bytes(name[..].try_into().ok()?)));
        let name = match stored {
            Some(name) => name,
            None => {
                let name = getrandom::u32().map_err(|error| StoreError::Failed(error.to_string()))?;
                let mut batch = db.batch();
                batch.insert(&sinks, NAME, name.to_be_bytes());
                batch.commit()?;
                name
            }
        };
        let last = match events.last_key_value() {
            None => 0,
            Some(guard) => number_of(&guard.key()?)
                .ok_or_else(|| StoreError::Damaged("a number of the event log is damaged".to_owned()))?,
        };
        // The open store was synced.
        let (last, synced) = (AtomicU64::new(last), AtomicU64::new(last));
        let (appends, tables, letters) = (Mutex::default(), Mutex::default(), Mutex::default());
        let end = EventsEnd { appends, tables, letters, last, synced };
        Ok(EventLog { db: db.clone(), events, sinks, name, end: Arc::new(end) })
    }

    /// Replaces an event by bytes that only a later version can read.
    #[cfg(test)]
    pub(super) fn replace(&self, seq: u64, event: &[u8]) {
        let mut batch = self.db.batch();
        batch.insert(&self.events, seq.to_be_bytes(), event);
        batch.commit().expect("the store takes it");
    }

    /// Commits a batch together with events, which get the next numbers.
    pub(super) fn commit(&self, mut batch: fjall::OwnedWriteBatch, events: Vec<Vec<u8>>) -> Result<(), StoreError> {
        let _one_at_a_time = self.end.appends.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.last();
        let mut last = before;
        for event in events {
            debug_assert!(StoredEvent::decode(&event).is_some(), "a reader could not decode the event");
            last += 1;
            batch.insert(&self.events, last.to_be_bytes(), event);
        }
        batch.commit()?;
        let replaced = self.end.last.swap(last, Ordering::AcqRel);
        assert_eq!(replaced, before, "two events would have one number");
        Ok(())
    }

    /// Returns the number of the last event, whether it is synced or not; 0 before the first.
    pub fn last(&self) -> u64 {
        self.end.last.load(Ordering::Acquire)
    }

    /// Returns the number of the last event that readers see.
    pub fn synced(&self) -> u64 {
        self.end.synced.load(Ordering::Acquire)
    }

    /// Notes that a sync has made all events up to this number durable.
    pub(super) fn set_synced(&self, seq: u64) {
        self.end.synced.fetch_max(seq, Ordering::AcqRel);
    }

    /// Returns the ID of the event with this number.
    pub fn id(&self, seq: u64) -> EventId {
        EventId { log: self.name, seq }
    }

    /// Returns the number of the oldest event that is kept; one more than that of the last event if none is.
    ///
    /// # Errors
    /// [`StoreError`] if the log cannot be read.
    pub fn first(&self) -> Result<u64, StoreError> {
        match self.events.first_key_value() {
            None => Ok(self.last() + 1),
            Some(guard) => Ok(number_of(&guard.key()?).unwrap_or(1)),
        }
    }

    /// Returns up to `count` events after a number, and at most `bytes_max` bytes of them unless the first is longer.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read. Events that are damaged are left out.
    pub fn page(&self, after: u64, count: usize, bytes_max: usize) -> Result<EventPage, StoreError> {
        self.page_up_to(after, self.synced(), count, bytes_max)
    }

    /// Returns a page like [`EventLog::page`], of events up to the number `end`.
    fn page_up_to(&self, after: u64, end: u64, count: usize, bytes_max: usize) -> Result<EventPage, StoreError> {
        let mut page = EventPage { events: Vec::new(), up_to: after };
        if after >= end {
            return Ok(page);
        }
        let mut bytes = 0;
        let range = (Bound::Excluded(after.to_be_bytes()), Bound::Included(end.to_be_bytes()));
        for guard in self.events.range(range).take(count) {
            let (key, value) = match guard.into_inner().map_err(StoreError::from) {
                Ok(entry) => entry,
                Err(StoreError::Damaged(_)) => return self.probe(page, end),
                Err(error) => return Err(error),
            };
            let Some(seq) = number_of(&key) else { continue };
            bytes += value.len();
            if bytes > bytes_max && !page.events.is_empty() {
                break;
            }
            page.events.push((seq, value.to_vec()));
            page.up_to = seq;
        }
        if page.events.is_empty() {
            // The log has no events there: they were removed, or lost with a damaged table.
            page.up_to = end;
        }
        Ok(page)
    }

    /// Continues a page behind a block that cannot be read, event by event.
    fn probe(&self, mut page: EventPage, end: u64) -> Result<EventPage, StoreError> {
        if !page.events.is_empty() {
            return Ok(page);
        }
        let last = end.min(page.up_to + EVENTS_PROBED);
        for seq in page.up_to + 1..=last {
            match self.events.get(seq.to_be_bytes()).map_err(StoreError::from) {
                Ok(Some(value)) => {
                    page.events.push((seq, value.to_vec()));
                    page.up_to = seq;
                    return Ok(page);
                }
                Ok(None) | Err(StoreError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        page.up_to = last;
        Ok(page)
    }

    /// Removes events that are older than `until_ms`, in milliseconds since 1970 UTC, and the oldest ones if the log
    /// is larger than `bytes_max`. The newest event always stays, so that its number is not used again. Removal is
    /// coarse: a table of some megabytes leaves the disk once all its events may go. While a purge rewrites the tables,
    /// nothing is removed.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn trim(&self, until_ms: u64, bytes_max: u64) -> Result<(), StoreError> {
        let (first, last) = (self.first()?, self.last());
        if first >= last {
            return Ok(());
        }
        let by_time = self.first_since(first, last, until_ms);
        let bytes = self.disk_bytes();
        let surplus = bytes.saturating_sub(bytes_max);
        // This assumes that all events have the same length; the next call removes more if they differ.
        let count = u128::from(last - first) * u128::from(surplus) / u128::from(bytes.max(1));
        let by_size = first + u64::try_from(count).unwrap_or(0);
        let keep_from = by_time.max(by_size).min(last);
        if keep_from > first {
            // During a purge, the library would wait while it holds a lock that the thread of the store needs.
            let Ok(_dropping) = self.end.tables.try_lock() else { return Ok(()) };
            self.events
                .tree
                .drop_range(..keep_from.to_be_bytes())
                .map_err(|error| StoreError::from(fjall::Error::from(error)))?;
        }
        Ok(())
    }

    /// Returns the number of the first event since an instant, or `last`, by bisection. An event that is missing or damaged,
    /// or that only a later version can decode, is as old as the next one that can be decoded.
    pub(super) fn first_since(&self, first: u64, last: u64, since_ms: u64) -> u64 {
        let at_ms = |seq: u64| {
            let event = self.events.get(seq.to_be_bytes()).ok().flatten()?;
            StoredEvent::decode(&event).map(|event| event.at_ms())
        };
        let (mut low, mut high) = (first, last);
        while low < high {
            let middle = low + (high - low) / 2;
            let next = (middle..=last.min(middle + EVENTS_PROBED)).find_map(|seq| Some((seq, at_ms(seq)?)));
            match next {
                Some((seq, at_ms)) if at_ms < since_ms => low = seq + 1,
                _ => high = middle,
            }
        }
        low.min(last)
    }

    /// Writes the log out of memory, so that a test sees its size on disk.
    #[cfg(test)]
    pub(super) fn write_out(&self) {
        self.events.rotate_memtable_and_wait().unwrap();
    }

    /// Returns the size of the log on disk, in bytes, without what is only in the journal.
    pub fn disk_bytes(&self) -> u64 {
        self.events.disk_space()
    }

    /// Returns the number of the last event that a sink has delivered or given up; `None` for a new sink.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn cursor(&self, sink: &str) -> Result<Option<u64>, StoreError> {
        let stored = self.sinks.get(cursor_key(sink))?;
        Ok(stored.and_then(|value| number_of(&value)))
    }

    /// Moves the cursor of a sink behind an event, and stores its dead letters up to there, in one batch. Removes the
    /// oldest dead letters of the sink beyond `keep`. Not synced: after a power failure the sink sends some events
    /// again.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn move_cursor(&self, sink: &str, seq: u64, dead: &[(u64, Vec<u8>)], keep: usize) -> Result<(), StoreError> {
        let mut batch = self.db.batch();
        batch.insert(&self.sinks, cursor_key(sink).as_str(), seq.to_be_bytes());
        if !dead.is_empty() {
            let prefix = letters_of(sink);
            let there: Vec<Slice> = self.sinks.prefix(&prefix).map(|guard| guard.key()).collect::<Result<_, _>>()?;
            let surplus = (there.len() + dead.len()).saturating_sub(keep);
            there.into_iter().take(surplus).for_each(|key| batch.remove(&self.sinks, key));
            for (seq, content) in &dead[dead.len().saturating_sub(keep)..] {
                batch.insert(&self.sinks, [&prefix[..], &seq.to_be_bytes()].concat(), &content[..]);
            }
        }
        Ok(batch.commit()?)
    }

    /// Moves the cursor of a sink behind an event that it gives up. `letter` makes a dead letter of the stored event;
    /// `None` stores none. If the log no longer has the event, there is no letter. A purge first removes the content of
    /// events and then letters, so a letter has nothing that a purge has removed. Limits and durability are those of
    /// [`EventLog::move_cursor`].
    ///
    /// # Errors
    /// [`StoreError`] if the store fails, or the error of `letter`.
    pub fn give_up(
        &self,
        sink: &str,
        seq: u64,
        keep: usize,
        letter: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<(), StoreError> {
        let _no_purge = self.end.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.events.get(seq.to_be_bytes())?;
        let made = stored.map_or(Ok(None), |event| letter(&event))?;
        let dead: Vec<(u64, Vec<u8>)> = made.map(|content| (seq, content)).into_iter().collect();
        self.move_cursor(sink, seq, &dead, keep)
    }

    /// Returns the dead letters of all sinks, by sink and number.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetter>, StoreError> {
        let mut letters = Vec::new();
        for guard in self.sinks.prefix("dead/") {
            let (key, content) = guard.into_inner()?;
            let Some((name, seq)) = key.split_last_chunk::<8>() else { continue };
            let name = String::from_utf8_lossy(name);
            let sink = name.trim_start_matches("dead/").trim_end_matches('/').to_owned();
            letters.push(DeadLetter { seq: u64::from_be_bytes(*seq), sink, content: content.to_vec() });
        }
        Ok(letters)
    }
}
