//! The change log: the codes that each commit changed, in the order of the commits.
//!
//! [`Links::commit`] adds one entry to the log in the same atomic batch as the changes, so the log and the links always
//! agree. A file that is derived from the links (an image of the link map, a search index) records the [`LogPosition`]
//! of its creation. To update it later, only the codes changed since then are looked up.
//!
//! Positions are consecutive. A gap means that changes are missing. Either the store dropped the oldest entries, or a
//! writer bypassed the log: an import, a repaired journal, or a version of carom without a log. A reader that meets a
//! gap must rebuild its file.

use std::ops::Bound;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use carom_shards::Code;
use fjall::compaction::Fifo;
use fjall::config::CompressionPolicy;
use fjall::{AbstractTree, CompressionType, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch};

use super::handles::{Batch, Links};
use super::keyspace_options::range_options;
use super::log_entry::decode;
use crate::error::StoreError;
use carom_limits::CHANGE_LOG_BYTES;
use carom_telemetry::clock::unix_ms;

/// Size of a memtable, in bytes. An entry takes about nine bytes for each changed code.
const MEMTABLE_BYTES: u64 = 4 * 1024 * 1024;

/// Size of a data block, in bytes. The log is read in order.
const BLOCK_BYTES: u32 = 16 * 1024;

/// Fewest positions that a reset skips: more than the commits that a process could have lost.
const RESET_STEP: u64 = 1 << 32;

/// A position in the change log: the number of commits of links before it. The positions of a store only increase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogPosition(pub u64);

/// The result of a read of the changes since a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangesSince {
    /// All changed codes up to this position were passed on.
    UpTo(LogPosition),
    /// The log lacks some of the changes: the reader must derive its file from all links again.
    Unknown,
}

pub(super) fn options() -> KeyspaceCreateOptions {
    range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::all(CompressionType::None))
        // Keys only increase, so the oldest tables are dropped whole, without a compaction.
        .compaction_strategy(std::sync::Arc::new(Fifo::new(CHANGE_LOG_BYTES, None)))
}

fn position_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

impl Links {
    /// Returns the position after the last commit of links. Every commit up to it is visible to a read that starts now.
    ///
    /// A file that is valid for this position may be kept only after [`Links::sync`]. Otherwise a power failure could
    /// undo commits, and later ones would get their positions.
    pub fn log_position(&self) -> LogPosition {
        LogPosition(self.log_end.position.load(Ordering::Acquire))
    }

    /// Passes every code that was changed since a position to `each`, in the order of the commits; a code that was
    /// changed twice comes twice. With the result [`ChangesSince::Unknown`], codes before a gap may have been passed
    /// on. The log has the code and not the change, so look up its current record.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read. A damaged log gives [`ChangesSince::Unknown`].
    pub fn changes_since(&self, since: LogPosition, each: impl FnMut(Code)) -> Result<ChangesSince, StoreError> {
        let reached = self.read_log(since, usize::MAX, each)?;
        Ok(reached.map_or(ChangesSince::Unknown, ChangesSince::UpTo))
    }

    /// Returns about `count` codes that were changed since a position, in the order of the commits, and the position
    /// after them; no codes at the end of the log. A code that was changed twice comes twice. Returns `None` if the log
    /// lacks some of the changes, or is damaged.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read.
    pub fn changes_page(
        &self,
        since: LogPosition,
        count: usize,
    ) -> Result<Option<(Vec<Code>, LogPosition)>, StoreError> {
        let mut codes = Vec::with_capacity(count);
        let reached = self.read_log(since, count, |code| codes.push(code))?;
        Ok(reached.map(|position| (codes, position)))
    }

    /// Passes the codes of whole commits to `each`, until it has got `count` or more. Returns the position after them;
    /// `None` if the log lacks some of the changes, or is damaged.
    fn read_log(
        &self,
        since: LogPosition,
        count: usize,
        mut each: impl FnMut(Code),
    ) -> Result<Option<LogPosition>, StoreError> {
        let (LogPosition(mut last), LogPosition(end)) = (since, self.log_position());
        if last > end {
            return Ok(None);
        }
        let mut passed = 0;
        let range = (Bound::Excluded(last.to_be_bytes()), Bound::Included(end.to_be_bytes()));
        for guard in self.changes.range(range) {
            let (key, entry) = match guard.into_inner().map_err(StoreError::from) {
                Ok(entry) => entry,
                Err(StoreError::Damaged(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let pass = |code| {
                passed += 1;
                each(code);
            };
            if position_of(&key) != Some(last + 1) || !decode(&entry, pass) {
                return Ok(None);
            }
            last += 1;
            if passed >= count {
                break;
            }
        }
        Ok((last == end || passed >= count).then_some(LogPosition(last)))
    }

    /// Commits a batch, with an entry in the log if it changes links.
    pub(super) fn commit_logged(&self, batch: Batch) -> Result<(), StoreError> {
        let Batch { mut inner, changed, events, .. } = batch;
        let commit = |inner: OwnedWriteBatch| match self.events.get() {
            Some(log) if !events.is_empty() => log.commit(inner, events),
            _ => Ok(inner.commit()?),
        };
        if changed.codes == 0 {
            return commit(inner);
        }
        let _one_at_a_time = self.log_end.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.log_end.position.load(Ordering::Relaxed) + 1;
        inner.insert(&self.changes, next.to_be_bytes(), changed.entry);
        commit(inner)?;
        self.log_end.codes.fetch_add(changed.codes, Ordering::Relaxed);
        let before = self.log_end.position.swap(next, Ordering::Release);
        assert_eq!(before + 1, next, "two commits have one position, so readers would miss one of them");
        Ok(())
    }

    /// Returns the number of changes of links since the store was opened.
    pub fn changes(&self) -> u64 {
        self.log_end.codes.load(Ordering::Relaxed)
    }

    /// Invalidates all earlier positions, because links are or were written without the log, as by an import. A file
    /// that is derived after the last such write, for a later position, is also valid at the next start.
    ///
    /// # Errors
    /// [`StoreError`] if the entry cannot be written. Then the next start invalidates all positions.
    pub fn reset_log(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.log_end.commits.lock().unwrap_or_else(PoisonError::into_inner);
        // A random leap, so that a store that replaces another one shares no position with it.
        let leap = RESET_STEP + (getrandom::u64().map_err(|error| StoreError::Failed(error.to_string()))? >> 24);
        let next = self.log_end.position.load(Ordering::Relaxed) + leap;
        let mut inner = self.db.batch();
        inner.insert(&self.changes, next.to_be_bytes(), &[][..]);
        inner.commit()?;
        self.log_end.position.store(next, Ordering::Release);
        Ok(())
    }

    /// Finds the end of the log when the store opens, and resets the log if it may lack commits.
    pub(super) fn open_log(&self, repaired: bool) -> Result<(), StoreError> {
        let last = match self.changes.last_key_value() {
            None => Some(0),
            Some(guard) => guard.key().ok().and_then(|key| position_of(&key)),
        };
        // If the end is unreadable, positions continue above all that the log can have had: no store makes 2^21 commits
        // per millisecond.
        let position = last.unwrap_or_else(|| unix_ms() << 21);
        self.log_end.position.store(position, Ordering::Release);
        let is_new = last == Some(0);
        let newest = |keyspace: &Keyspace| keyspace.tree.get_highest_seqno();
        // The library numbers commits. A commit of links without an entry has a higher number than the log's last
        // entry.
        let is_behind = newest(&self.links) > newest(&self.changes);
        let was_without_log = self.marks_log_writer()?;
        if is_new || repaired || is_behind || last.is_none() || was_without_log {
            self.reset_log()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Index;
    use super::super::log_entry::LoggedCodes;
    use super::*;
    use crate::journal;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const KEY: &str = "0123456789abcdef";

    fn open(dir: &Path) -> Links {
        Links::open(dir, KEY).unwrap().0
    }

    fn code(number: usize) -> Code {
        Code::parse(format!("c{number}").as_bytes()).unwrap()
    }

    fn put(links: &Links, numbers: &[usize]) -> LogPosition {
        let mut batch = links.batch();
        numbers.iter().for_each(|&number| batch.put(&code(number), b"record"));
        links.commit(batch).unwrap();
        links.log_position()
    }

    fn since(links: &Links, position: LogPosition) -> Option<Vec<String>> {
        let mut codes = Vec::new();
        match links.changes_since(position, |code| codes.push(code.to_string())).unwrap() {
            ChangesSince::UpTo(end) => {
                assert_eq!(end, links.log_position());
                Some(codes)
            }
            ChangesSince::Unknown => None,
        }
    }

    #[test]
    fn changed_codes_are_given_in_the_order_of_commits_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let start = links.log_position();
        let first = put(&links, &[1, 2]);
        let mut batch = links.batch();
        batch.remove(&code(1));
        links.commit(batch).unwrap();
        // A commit that changes no link has no entry.
        let mut batch = links.batch();
        batch.set_high_water(7, 5);
        links.commit(batch).unwrap();
        links.sync().unwrap();
        assert_eq!(since(&links, start).unwrap(), ["c1", "c2", "c1"]);
        assert_eq!(since(&links, first).unwrap(), ["c1"]);
        let end = links.log_position();
        drop(links);
        let links = open(dir.path());
        assert_eq!(links.log_position(), end);
        assert_eq!(since(&links, first).unwrap(), ["c1"]);
        assert_eq!(since(&links, end).unwrap(), [""; 0]);
        assert_eq!(since(&links, LogPosition(end.0 + 1)), None, "a file of a later position is not of this store");
    }

    #[test]
    fn changed_codes_are_given_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let start = links.log_position();
        (0..7).for_each(|number| _ = put(&links, &[number, number + 10]));
        let (mut since, mut codes) = (start, Vec::new());
        loop {
            let (page, next) = links.changes_page(since, 3).unwrap().unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 4, "{page:?}");
            codes.extend(page.iter().map(Code::to_string));
            since = next;
        }
        let expected: Vec<String> =
            (0..7).flat_map(|number| [format!("c{number}"), format!("c{}", number + 10)]).collect();
        assert_eq!((codes, since), (expected, links.log_position()));
        assert_eq!(links.changes_page(LogPosition(since.0 + 1), 3).unwrap(), None, "the log ends before that");
        links.ingest([(&b"c2"[..], &b"record"[..])].into_iter()).unwrap();
        assert_eq!(links.changes_page(start, 100).unwrap(), None, "an import is not in the log");
    }

    #[test]
    fn an_import_makes_earlier_positions_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let before = put(&links, &[1]);
        links.ingest([(&b"c2"[..], &b"record"[..])].into_iter()).unwrap();
        assert_eq!(since(&links, before), None);
        drop(links);
        let links = open(dir.path());
        assert_eq!(since(&links, before), None);
        let after = links.log_position();
        put(&links, &[3]);
        assert_eq!(since(&links, after).unwrap(), ["c3"]);
    }

    #[test]
    fn a_log_that_is_restarted_after_an_import_holds_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let before = put(&links, &[1]);
        links.ingest([(&b"c2"[..], &b"record"[..])].into_iter()).unwrap();
        links.merge_tables().unwrap();
        links.reset_log().unwrap();
        let after = links.log_position();
        links.sync().unwrap();
        drop(links);
        let links = open(dir.path());
        assert_eq!(since(&links, before), None);
        assert_eq!(since(&links, after).unwrap(), [""; 0]);
        put(&links, &[3]);
        assert_eq!(since(&links, after).unwrap(), ["c3"]);
    }

    #[test]
    fn a_version_without_a_log_is_noticed_when_it_wrote_links() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let before = put(&links, &[1, 2]);
        // Such a version commits without an entry.
        {
            let mut batch = links.batch();
            batch.put(&code(3), b"record");
            batch.inner.commit().unwrap();
        }
        links.sync().unwrap();
        drop(links);
        assert_eq!(since(&open(dir.path()), before), None);
    }

    #[test]
    fn a_version_without_a_log_is_noticed_by_the_mark_that_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let before = put(&links, &[1, 2]);
        // It does not know the mark, so it rebuilds the index and marks it in its own format.
        let mut batch = links.batch();
        batch.inner.insert(&links.meta, "ends", super::super::sealed("ends", 1));
        links.commit(batch).unwrap();
        links.sync().unwrap();
        drop(links);
        let links = open(dir.path());
        assert!(links.has_index(Index::Ends).unwrap(), "its index is complete");
        assert_eq!(since(&links, before), None);
        let after = put(&links, &[3]);
        drop(links);
        assert_eq!(since(&open(dir.path()), after).unwrap(), [""; 0], "one reset is enough");
    }

    #[test]
    fn a_repaired_journal_makes_earlier_positions_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let before = put(&links, &[0]);
        (1..50).for_each(|number| _ = put(&links, &[number]));
        links.sync().unwrap();
        drop(links);
        let file = journal::journals(dir.path()).unwrap().pop().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let middle = journal::written_len(&bytes) / 2;
        bytes[middle] ^= 0x10;
        fs::write(&file, &bytes).unwrap();
        let (links, repairs) = Links::open(dir.path(), KEY).unwrap();
        assert_eq!(repairs.len(), 1);
        assert_eq!(since(&links, before), None);
    }

    #[test]
    fn entries_that_were_dropped_make_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let start = links.log_position();
        let (first, second) = (put(&links, &[1]), put(&links, &[2]));
        put(&links, &[3]);
        links.changes.remove(first.0.to_be_bytes()).unwrap();
        assert_eq!(since(&links, start), None);
        assert_eq!(since(&links, first).unwrap(), ["c2", "c3"]);
        assert_eq!(since(&links, second).unwrap(), ["c3"]);
    }

    #[test]
    fn the_log_does_not_outgrow_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let links = open(dir.path());
        let start = links.log_position();
        let mut filler = LoggedCodes::default();
        (0..16_000).for_each(|number| filler.push(format!("{number:x<64}").as_bytes()));
        let bytes = filler.entry.len() as u64;
        let fill = || {
            let mut batch = links.batch();
            batch.changed.entry.clone_from(&filler.entry);
            batch.changed.codes = filler.codes;
            links.commit(batch).unwrap();
        };
        (0..CHANGE_LOG_BYTES * 2 / bytes).for_each(|_| fill());
        // The library drops old tables in the background, after a flush. So the test causes flushes as long as it lags.
        let (begin, most) = (Instant::now(), CHANGE_LOG_BYTES + 4 * MEMTABLE_BYTES);
        links.changes.rotate_memtable_and_wait().unwrap();
        while links.changes.disk_space() > most {
            assert!(begin.elapsed() < Duration::from_secs(30), "{} bytes", links.changes.disk_space());
            fill();
            links.changes.rotate_memtable_and_wait().unwrap();
        }
        let recent = put(&links, &[1]);
        put(&links, &[2]);
        assert_eq!(since(&links, start), None);
        assert_eq!(since(&links, recent).unwrap(), ["c2"]);
        drop(links);
        let links = open(dir.path());
        assert_eq!(since(&links, recent).unwrap(), ["c2"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// A copy that is updated from any earlier position equals the store.
        #[test]
        fn a_copy_follows_the_store(steps in proptest::collection::vec((0..12_usize, 0..20_u8), 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let mut links = open(dir.path());
            let mut copies: Vec<(LogPosition, BTreeMap<String, Vec<u8>>)> = vec![(links.log_position(), BTreeMap::new())];
            for (round, (number, kind)) in steps.into_iter().enumerate() {
                let mut batch = links.batch();
                match kind {
                    0 => {
                        drop(batch);
                        drop(links);
                        links = open(dir.path());
                        continue;
                    }
                    1..=5 => batch.remove(&code(number)),
                    _ => batch.put(&code(number), round.to_string().as_bytes()),
                }
                links.commit(batch).unwrap();
                let store: BTreeMap<String, Vec<u8>> = links
                    .page(&[], 100)
                    .unwrap()
                    .into_iter()
                    .map(|(key, value)| (String::from_utf8(key).unwrap(), value))
                    .collect();
                for (position, copy) in &copies {
                    let mut copy = copy.clone();
                    let mut changed = BTreeSet::new();
                    let known = links.changes_since(*position, |code| _ = changed.insert(code)).unwrap();
                    prop_assert_eq!(known, ChangesSince::UpTo(links.log_position()));
                    for code in changed {
                        match links.get(&code).unwrap() {
                            Some(value) => _ = copy.insert(code.to_string(), value.to_vec()),
                            None => _ = copy.remove(&code.to_string()),
                        }
                    }
                    prop_assert_eq!(&copy, &store);
                }
                copies.push((links.log_position(), store));
            }
        }
    }
}
