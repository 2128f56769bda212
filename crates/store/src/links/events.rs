//! The event log, and the state of the sinks that deliver them.
//!
//! The keyspace `events` has one entry for each event: the key is its number, the value is defined in
//! [`carom_model::events`]. Events of links come with the batch that changes the links, so an acknowledged change is in
//! the log. Numbers are consecutive and never used twice. Readers see an event only once it is synced: otherwise a
//! power failure could take it, and another event would get its number.
//!
//! The keyspace `sinks` has the name of the log, and for each sink the number of the last event that it is done with,
//! and its dead letters. A store has both keyspaces once events were on. A backup contains neither, so a restored
//! store begins a log with another name.

use super::event_log;
use super::handles::{Batch, Links};
use crate::error::StoreError;

pub use super::event_log::{DeadLetter, EventLog, EventPage};

impl Batch {
    /// Adds an event to the log. Without a log, the commit drops it.
    pub fn add_event(&mut self, event: Vec<u8>) {
        self.events.push(event);
    }
}

impl Links {
    /// Opens the event log, or creates it. From now on, commits write their events.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read or created.
    pub fn open_events(&self) -> Result<EventLog, StoreError> {
        if let Some(log) = self.events.get() {
            return Ok(log.clone());
        }
        let log = EventLog::open(&self.db)?;
        self.sync()?;
        Ok(self.events.get_or_init(|| log).clone())
    }

    /// Notes that links change without events. A log that the store has gets another name, so that no reader takes it
    /// for complete once it is open again.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn suspend_events(&self) -> Result<(), StoreError> {
        if !event_log::exists(&self.db) {
            return Ok(());
        }
        assert!(self.events.get().is_none(), "an open log would have another name than its readers have seen");
        event_log::remove_name(&self.db)?;
        self.sync()
    }

    /// Returns the event log, if it is open.
    pub fn events(&self) -> Option<&EventLog> {
        self.events.get()
    }

    /// Adds events that come without a change of links. They are readable after the next [`Links::sync`].
    ///
    /// # Errors
    /// [`StoreError`] if the store fails. Without a log nothing happens.
    pub fn append_events(&self, events: Vec<Vec<u8>>) -> Result<(), StoreError> {
        match self.events.get() {
            Some(log) if !events.is_empty() => log.commit(self.db.batch(), events),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::events::{EventCause, EventType, LinkEvent};
    use carom_shards::Code;
    use std::path::Path;

    fn event(at_ms: u64, filler: usize) -> Vec<u8> {
        let (code, changes) = (Code::parse(b"abc").unwrap(), noise(at_ms, filler));
        let (of, cause) = (EventType::LinkDeleted, EventCause::Request);
        LinkEvent { of, at_ms, code, cause, link: None, changes }.encode()
    }

    /// Bytes that no compression shortens.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..len).map(next).collect()
    }

    fn open(dir: &Path) -> (Links, EventLog) {
        let links = Links::open(dir, "key").unwrap().0;
        let log = links.open_events().unwrap();
        (links, log)
    }

    fn numbers(log: &EventLog, after: u64, count: usize) -> Vec<u64> {
        log.page(after, count, usize::MAX).unwrap().events.into_iter().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn events_come_with_their_batch_and_are_seen_once_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (links, log) = open(dir.path());
        let mut batch = links.batch();
        batch.put(&Code::parse(b"abc").unwrap(), b"record");
        batch.add_event(event(1, 0));
        batch.add_event(event(2, 0));
        links.commit(batch).unwrap();
        assert_eq!((log.last(), log.synced(), numbers(&log, 0, 9)), (2, 0, vec![]));
        links.sync().unwrap();
        links.append_events(vec![event(3, 0)]).unwrap();
        assert_eq!((log.last(), numbers(&log, 0, 9), numbers(&log, 0, 1)), (3, vec![1, 2], vec![1]));
        let name = log.id(1);
        drop((links, log));
        // The open store syncs what a killed process has left.
        let (links, log) = open(dir.path());
        assert_eq!((numbers(&log, 1, 9), log.id(1), log.first().unwrap()), (vec![2, 3], name, 1));
        links.append_events(vec![event(4, 0)]).unwrap();
        links.sync().unwrap();
        assert_eq!(numbers(&log, 3, 9), [4]);
        assert_eq!(log.page(0, 9, 1).unwrap().events.len(), 1, "a page has at least one event");
    }

    #[test]
    fn a_store_without_a_log_drops_events() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        links.append_events(vec![event(1, 0)]).unwrap();
        let mut batch = links.batch();
        batch.put(&Code::parse(b"abc").unwrap(), b"record");
        batch.add_event(event(1, 0));
        links.commit(batch).unwrap();
        assert!(links.events().is_none());
        assert_eq!(links.open_events().unwrap().last(), 0);
    }

    #[test]
    fn log_that_lacks_changes_has_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let (links, log) = open(dir.path());
        links.append_events(vec![event(1, 0)]).unwrap();
        let name = log.id(0);
        drop((links, log));
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        links.suspend_events().unwrap();
        drop(links);
        let (_links, log) = open(dir.path());
        assert_ne!(log.id(0), name);
        assert_eq!(numbers(&log, 0, 9), [1]);
    }

    #[test]
    fn old_events_leave_the_disk_and_numbers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let (links, log) = open(dir.path());
        let mut at_ms = 0;
        let mut fill = |megabytes: u64| {
            for _ in 0..megabytes {
                let some = (0..16)
                    .map(|_| {
                        at_ms += 1;
                        event(at_ms, 64 * 1024)
                    })
                    .collect();
                links.append_events(some).unwrap();
            }
            log.write_out();
            links.sync().unwrap();
        };
        (0..6).for_each(|_| fill(4));
        let before = log.disk_bytes();
        assert!(before > 20 << 20, "{before}");
        log.trim(0, before).unwrap();
        assert_eq!(log.first().unwrap(), 1);
        // The first call estimates, and the next ones correct it.
        (0..3).for_each(|_| log.trim(0, 12 << 20).unwrap());
        assert!(log.disk_bytes() <= 17 << 20, "{}", log.disk_bytes());
        let first = log.first().unwrap();
        assert!(first > 64, "{first}");
        assert!(numbers(&log, 0, 1) == [first], "{first}");
        let held = log.hold_tables();
        log.trim(u64::MAX, u64::MAX).unwrap();
        assert_eq!(log.first().unwrap(), first, "a purge rewrites the tables");
        drop(held);
        // Everything is too old, and the newest event stays.
        log.trim(u64::MAX, u64::MAX).unwrap();
        assert!(log.first().unwrap() <= log.last());
        assert!(log.disk_bytes() < 8 << 20);
        let last = log.last();
        drop((links, log));
        let (_links, log) = open(dir.path());
        assert_eq!(log.last(), last);
    }

    #[test]
    fn unknown_event_is_as_old_as_the_next_known_one() {
        let dir = tempfile::tempdir().unwrap();
        let (links, log) = open(dir.path());
        let ages = [1, 2, 3, 4, 5, 6, 7, 9];
        links.append_events(ages.map(|at_ms| event(at_ms, 0)).to_vec()).unwrap();
        (3..=7).for_each(|seq| log.replace(seq, &[u8::MAX; 40]));
        for (since_ms, first) in [(1, 1), (2, 2), (5, 3), (9, 3), (10, 8)] {
            assert_eq!(log.first_since(1, log.last(), since_ms), first, "{since_ms}");
        }
    }

    #[test]
    fn sinks_keep_their_place_and_their_latest_dead_letters() {
        let dir = tempfile::tempdir().unwrap();
        let (links, log) = open(dir.path());
        assert_eq!(log.cursor("webhook").unwrap(), None);
        for seq in 1..=5_u64 {
            log.move_cursor("webhook", seq, &[(seq, seq.to_string().into_bytes())], 3).unwrap();
        }
        log.move_cursor("redis", 9, &[], 3).unwrap();
        drop((links, log));
        let (_links, log) = open(dir.path());
        assert_eq!((log.cursor("webhook").unwrap(), log.cursor("redis").unwrap()), (Some(5), Some(9)));
        let letters: Vec<(String, u64)> =
            log.dead_letters().unwrap().into_iter().map(|letter| (letter.sink, letter.seq)).collect();
        assert_eq!(letters, [3, 4, 5].map(|seq| ("webhook".to_owned(), seq)));
    }
}
