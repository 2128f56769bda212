//! The index of ends: the expiry of links, scheduled deletions, and the quarantine of the codes of expired links. The
//! threads that remove links and release codes read it from its beginning.
//!
//! An entry has the instant at which a link expires or is to be deleted. An entry of a quarantine has the instant of
//! the removal, at which the quarantine begins: its end follows from `links.recycle_after`, which may change.
//!
//! The commit that changes a code also writes and removes its entry, so entries and links agree. The exceptions are
//! entries left by a damaged record or an interrupted import. A reader of an entry therefore checks the code itself.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, KeyspaceCreateOptions, Slice};

use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::handles::{Batch, Links};
use super::keyspace_options::range_options;
use crate::error::StoreError;
use carom_model::link::DueEvent;

/// Bytes of a key before the code: the kind of the entry, and the instant.
const HEAD_LEN: usize = 9;

/// Size of a memtable, in bytes. An entry takes a quarter of the space of a link.
const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;

/// Size of a data block, in bytes. The index is read from beginning to end.
const BLOCK_BYTES: u32 = 16 * 1024;

pub(super) fn options() -> KeyspaceCreateOptions {
    // The library writes the tables of an import with the compression of the second level, and then only moves them.
    range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]))
}

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndKind {
    /// A link, at the instant of its expiry.
    Link,
    /// The quarantined code of an expired link, at the instant of its removal.
    Quarantine,
    /// A scheduled deletion of a link, at its instant.
    Deletion,
}

impl EndKind {
    fn letter(self) -> u8 {
        match self {
            EndKind::Link => b'e',
            EndKind::Quarantine => b'g',
            EndKind::Deletion => b'd',
        }
    }
}

impl Batch {
    /// Adds an entry.
    pub fn set_due(&mut self, of: EndKind, due: &DueEvent) {
        if of == EndKind::Link {
            self.first_end_ms = self.first_end_ms.min(due.at_ms);
        }
        let (key, len) = key_of(of, due);
        self.inner.insert(&self.ends, &key[..len], []);
    }

    /// Removes an entry.
    pub fn remove_due(&mut self, of: EndKind, due: &DueEvent) {
        let (key, len) = key_of(of, due);
        self.inner.remove(&self.ends, Slice::from(&key[..len]));
    }
}

impl Links {
    /// Returns up to `count` entries after an entry and up to an instant, the earliest first.
    ///
    /// # Errors
    /// [`StoreError`] if the index cannot be read.
    pub fn due(
        &self,
        of: EndKind,
        behind: Option<&DueEvent>,
        until_ms: u64,
        count: usize,
    ) -> Result<Vec<DueEvent>, StoreError> {
        let mut found = Vec::new();
        self.each_due(of, behind, until_ms, count, |due| found.push(due))?;
        Ok(found)
    }

    /// Counts the entries after an entry and up to an instant, to `most` at the highest.
    ///
    /// # Errors
    /// [`StoreError`] if the index cannot be read.
    pub fn count_due(
        &self,
        of: EndKind,
        behind: Option<&DueEvent>,
        until_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        let mut count = 0;
        self.each_due(of, behind, until_ms, most, |_| count += 1)?;
        Ok(count)
    }

    fn each_due(
        &self,
        of: EndKind,
        behind: Option<&DueEvent>,
        until_ms: u64,
        count: usize,
        mut each: impl FnMut(DueEvent),
    ) -> Result<(), StoreError> {
        let from = match behind {
            Some(due) => {
                let (key, len) = key_of(of, due);
                Bound::Excluded(key[..len].to_vec())
            }
            None => Bound::Included(vec![of.letter()]),
        };
        let mut end = vec![of.letter()];
        match until_ms.checked_add(1) {
            Some(next_ms) => end.extend_from_slice(&next_ms.to_be_bytes()),
            None => end[0] += 1,
        }
        let end = Bound::Excluded(end);
        if matches!((&from, &end), (Bound::Excluded(from), Bound::Excluded(end)) if from >= end) {
            return Ok(());
        }
        for guard in self.ends.range((from, end)).take(count) {
            read(&guard.key()?).into_iter().for_each(&mut each);
        }
        Ok(())
    }

    /// Returns the earliest expiry of a link that was written since the last call, in milliseconds since 1970 UTC. A
    /// reader that has already passed this instant must go back.
    pub fn take_first_end(&self) -> Option<u64> {
        Some(self.first_end_ms.swap(u64::MAX, Ordering::AcqRel)).filter(|at_ms| *at_ms != u64::MAX)
    }

    /// Adds many entries of links durably and without the journal, for an import before it adds the links. Some may
    /// exist already, if an import was interrupted between the two. No other thread may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; the store has none of the entries then.
    pub fn ingest_ends(&self, ends: &[DueEvent]) -> Result<(), StoreError> {
        let mut keys: Vec<_> = ends.iter().map(|due| key_of(EndKind::Link, due)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        keys.sort_unstable();
        keys.dedup();
        let mut ingestion = self.ends.start_ingestion()?;
        for (key, len) in keys {
            ingestion.write(&key[..len], [])?;
        }
        Ok(ingestion.finish()?)
    }
}

/// True if a key is that of a quarantined code.
pub fn is_quarantine_entry(key: &[u8]) -> bool {
    key.first() == Some(&EndKind::Quarantine.letter())
}

/// Returns the stored key of an entry.
pub fn stored_end(of: EndKind, due: &DueEvent) -> Vec<u8> {
    let (key, len) = key_of(of, due);
    key[..len].to_vec()
}

/// Returns the stored key of an entry and its length. The rest of the array is zero.
fn key_of(of: EndKind, due: &DueEvent) -> ([u8; HEAD_LEN + CODE_KEY_LEN_MAX], usize) {
    let mut key = [0; HEAD_LEN + CODE_KEY_LEN_MAX];
    key[0] = of.letter();
    key[1..HEAD_LEN].copy_from_slice(&due.at_ms.to_be_bytes());
    let mut ascii = [0; CODE_KEY_LEN_MAX];
    let code = due.code.key(&mut ascii);
    let len = HEAD_LEN + code.len();
    key[HEAD_LEN..len].copy_from_slice(code);
    debug_assert_eq!(read(&key[..len]), Some(*due), "the entry would be read as another");
    (key, len)
}

/// Decodes the key of an entry; `None` if it is malformed.
fn read(key: &[u8]) -> Option<DueEvent> {
    let (head, code) = key.split_at_checked(HEAD_LEN)?;
    let at_ms = u64::from_be_bytes(head[1..].try_into().ok()?);
    Some(DueEvent { at_ms, code: Code::from_key(code).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at_ms: u64, code: &str) -> DueEvent {
        DueEvent { at_ms, code: Code::parse(code.as_bytes()).unwrap() }
    }

    fn open(dir: &std::path::Path) -> Links {
        Links::open(dir, "key").unwrap().0
    }

    #[test]
    fn imported_entries_are_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let ends: Vec<DueEvent> = (0..50_000).map(|number| due(1_000 + number, &format!("c{number:06}"))).collect();
        links.ingest_ends(&ends).unwrap();
        let plain = || range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::all(CompressionType::None));
        let plain = links.db.keyspace("plain", plain).unwrap();
        let mut ingestion = plain.start_ingestion().unwrap();
        for (key, len) in ends.iter().map(|due| key_of(EndKind::Link, due)) {
            ingestion.write(&key[..len], []).unwrap();
        }
        ingestion.finish().unwrap();
        let (compressed, plain) = (links.ends.disk_space(), plain.disk_space());
        assert!(plain > 200_000, "{compressed} of {plain} bytes");
        assert!(compressed < plain * 9 / 10, "{compressed} of {plain} bytes");
        assert_eq!(links.due(EndKind::Link, Some(&ends[49_997]), u64::MAX, 9).unwrap(), ends[49_998..]);
    }

    #[test]
    fn entries_stand_in_the_order_of_their_instants() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let mut batch = links.batch();
        for end in [due(300, "b"), due(200, "z"), due(300, "a"), due(70_000, "far"), due(u64::MAX, "never")] {
            batch.set_due(EndKind::Link, &end);
        }
        batch.set_due(EndKind::Quarantine, &due(1, "grave"));
        links.commit(batch).unwrap();
        let until = |at_ms| links.due(EndKind::Link, None, at_ms, 9).unwrap();
        assert_eq!(until(199), []);
        assert_eq!(until(300), [due(200, "z"), due(300, "a"), due(300, "b")]);
        assert_eq!(until(u64::MAX).len(), 5);
        assert_eq!(
            links.due(EndKind::Link, Some(&due(300, "a")), 70_000, 9).unwrap(),
            [due(300, "b"), due(70_000, "far")]
        );
        assert_eq!(links.due(EndKind::Link, Some(&due(300, "a")), 70_000, 1).unwrap(), [due(300, "b")]);
        assert_eq!(links.due(EndKind::Link, Some(&due(300, "a")), 200, 9).unwrap(), [], "what is behind lies before");
        assert_eq!(links.count_due(EndKind::Link, None, 70_000, 3).unwrap(), 3);
        assert_eq!(links.due(EndKind::Quarantine, None, u64::MAX, 9).unwrap(), [due(1, "grave")]);
        let mut batch = links.batch();
        batch.remove_due(EndKind::Link, &due(300, "a"));
        links.commit(batch).unwrap();
        assert_eq!(links.count_due(EndKind::Link, None, 300, 9).unwrap(), 2);
    }

    #[test]
    fn whoever_has_read_on_hears_of_an_earlier_end() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        assert_eq!(links.take_first_end(), None);
        for at_ms in [500, 200, 300] {
            let mut batch = links.batch();
            batch.set_due(EndKind::Link, &due(at_ms, "a"));
            batch.set_due(EndKind::Quarantine, &due(1, "b"));
            batch.remove_due(EndKind::Link, &due(100, "a"));
            links.commit(batch).unwrap();
        }
        assert_eq!(links.take_first_end(), Some(200));
        assert_eq!(links.take_first_end(), None);
    }

    #[test]
    fn entries_can_be_taken_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        for _ in 0..2 {
            links.ingest_ends(&[due(5, "z"), due(5, "B"), due(1, "abc"), due(5, "z")]).unwrap();
        }
        links.ingest_ends(&[]).unwrap();
        drop(links);
        let links = open(dir.path());
        assert_eq!(links.due(EndKind::Link, None, 9, 9).unwrap(), [due(1, "abc"), due(5, "B"), due(5, "z")]);
    }
}
