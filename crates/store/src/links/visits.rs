//! The stored visits: rows of subjects, each for an hour and the count log that it came from. The row of hour zero is
//! the merged history of older rows. [`carom_model::visits::tally`] defines a row; one lock guards all writes.
//!
//! In a fleet, the rows of each origin have a slot of their own ([`carom_model::visits::origins`]). Its lower byte is the
//! highest one of the number of the log, and its higher byte that of the hour. Without a fleet, it is zero. A slot may be
//! used again while rows of its former origin are stored. The new origin has the rows of later logs, and its merged
//! history has the number of the last log before.
//!
//! The visits that a link had before it was imported into a running node have a row of their own
//! ([`RowPlace::EARLIER`]). Every node derives that row from the record of the link. Once the link has ended, another
//! row has them ([`RowPlace::ENDED_EARLIER`]). Only the thread of the writer changes these rows, without that lock; a
//! purge removes the latter.
//!
//! The keyspace also has the codes of ended links, written in the commit that ends the link. They stay until that
//! thread has removed the rows of the link, so that no crash leaves rows behind.

use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, KeyspaceCreateOptions, Readable, Slice};

use super::catalog::View;
use super::handles::{Batch, Links, sealed, unsealed};
use super::keyspace_options::partitioned_options;
use crate::error::StoreError;
use crate::search::{bisect, from_position, gallop, position};
use carom_model::link::earlier_visits::EndedVisits;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::{OriginSlot, OriginTable};
use carom_model::visits::tally::{TallyRow, VisitCounts};

/// Key of the number of the last count log whose rows are all stored.
const FOLDED: &str = "visits_folded";

/// Key of the table of origins, among the replication state.
const ORIGINS: &str = "visit_origins";

/// Bits of the number of a log in a key, below the lower byte of the slot. At a fold a minute, they last for 30 years.
const LOG_BITS: u32 = 24;

/// Bits of the hour in a key, below the higher byte of the slot. They last for 1,900 years.
const HOUR_BITS: u32 = 24;

/// First byte of the keys of ended links. No name begins with it.
const ENDED: u8 = 3;

/// Separator of the name of a subject and the rest of a key.
const END: u8 = 0;

/// Bytes of hour and log in a key.
const TAIL_LEN: usize = 8;

/// The end of all keys.
const END_OF_ROWS: [u8; 16] = [0xff; 16];

/// Rows of other subjects that a pass over some subjects reads before it looks up the next subject instead, which takes
/// about as long.
const ROWS_PASSED_MAX: usize = 16;

/// Size of a data block, in bytes. The rows for the page of a link are adjacent.
const BLOCK_BYTES: u32 = 4 * 1024;

/// The position of a row: the hour, counted from 1970 UTC, the slot and the number of the log. The hour is zero for the
/// merged history of older rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowPlace {
    /// The hour, counted from 1970 UTC.
    pub hour: u32,
    /// The slot of the origin.
    pub slot: OriginSlot,
    /// The number of the log; in a merged history, that of the last log before the origin got the slot, or 0.
    pub log: u32,
}

impl RowPlace {
    /// Returns the position of the merged history of older rows in a slot whose origin has the rows of logs after
    /// `since`.
    pub const fn merged(slot: OriginSlot, since: u32) -> RowPlace {
        RowPlace { hour: 0, slot, log: since }
    }

    /// The position of the visits that a link had before it was imported into a running node, and of their sums. The
    /// writer sets such a row in the commit that stores the link. The row is never merged or sent to another node.
    pub const EARLIER: RowPlace = RowPlace { hour: 0, slot: 0, log: 1 };

    /// The position of the visits that a link had before its import, once it has ended. They do not count for the code.
    /// No log gets this number.
    pub const ENDED_EARLIER: RowPlace = RowPlace { hour: 0, slot: 0, log: (1 << LOG_BITS) - 1 };

    /// True if the row has visits from before an import.
    pub fn is_earlier(self) -> bool {
        self == RowPlace::EARLIER
    }

    /// True for a row that only the writer sets and removes: visits from before an import, or those of a link that has
    /// ended.
    pub fn is_of_writer(self) -> bool {
        self == RowPlace::EARLIER || self == RowPlace::ENDED_EARLIER
    }

    /// True if the row is of the origin that has the rows of logs after `since` in its slot, and not of a former one.
    pub fn is_since(self, since: u32) -> bool {
        if self.is_merged() { self.log == since } else { self.log > since }
    }

    /// True if the value of the row is a history.
    pub fn is_merged(self) -> bool {
        self.hour == 0
    }
}

/// A row with its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitRow {
    /// The stored key.
    pub key: Vec<u8>,
    /// The name of the subject.
    pub name: Vec<u8>,
    /// The position among the rows of the subject.
    pub place: RowPlace,
    /// The stored value.
    pub value: Vec<u8>,
}

/// A piece of the rows of all subjects, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitRowPage {
    /// The rows of the page, in the order of their keys.
    pub rows: Vec<VisitRow>,
    /// The error of a damaged block, which the next piece leaves out.
    pub damage: Option<String>,
    /// The position of the next piece; `None` after the last row.
    pub next: Option<Bound<Vec<u8>>>,
}

impl VisitRowPage {
    /// Returns the piece with these rows. `is_last` is true if none follow.
    fn of(rows: Vec<VisitRow>, is_last: bool) -> VisitRowPage {
        let next = rows.last().filter(|_| !is_last).map(|row| Bound::Excluded(row.key.clone()));
        VisitRowPage { rows, damage: None, next }
    }
}

pub(super) fn options() -> KeyspaceCreateOptions {
    partitioned_options()
        .max_memtable_size(16 * 1024 * 1024)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
}

fn key(name: &[u8], place: RowPlace) -> Vec<u8> {
    assert!(place.log < 1 << LOG_BITS, "the row would belong to another origin");
    let [high, low] = place.slot.to_be_bytes().map(u32::from);
    // A later hour is in no counts but those of a broken clock.
    let hour = high << HOUR_BITS | place.hour.min((1 << HOUR_BITS) - 1);
    let log = low << LOG_BITS | place.log;
    [name, &[END], &hour.to_be_bytes(), &log.to_be_bytes()].concat()
}

/// The end of a link, after which its visits are removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The code of the link.
    pub code: Code,
    /// A number that is unique among the ends of links with this code.
    pub number: u64,
}

impl Ended {
    /// Returns the stored key.
    fn key(&self) -> Vec<u8> {
        [&[ENDED], self.code.key(&mut [0; CODE_KEY_LEN_MAX]), &[END], &self.number.to_be_bytes()].concat()
    }

    /// Parses a stored key; `None` if it is malformed.
    fn parse_key(key: &[u8]) -> Option<Ended> {
        let (rest, number) = key.split_last_chunk::<8>()?;
        let code = rest.strip_prefix(&[ENDED])?.strip_suffix(&[END])?;
        Some(Ended { code: Code::from_key(code).ok()?, number: u64::from_be_bytes(*number) })
    }
}

fn read(guard: fjall::Guard) -> Result<Option<VisitRow>, StoreError> {
    let (key, value) = guard.into_inner()?;
    let row = |(name, place): (&[u8], RowPlace)| VisitRow {
        key: key.to_vec(),
        name: name.to_vec(),
        place,
        value: value.to_vec(),
    };
    Ok(parts_of(&key).map(row))
}

/// Splits the key of a row into name and position; `None` for other keys.
fn parts_of(key: &[u8]) -> Option<(&[u8], RowPlace)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
    let end = key.len().checked_sub(TAIL_LEN + 1).filter(|_| key.first() != Some(&ENDED))?;
    let (hour, log) = key[end + 1..].split_at(TAIL_LEN / 2);
    let (hour, log) = (number(hour)?, number(log)?);
    let slot = OriginSlot::from_be_bytes([(hour >> HOUR_BITS) as u8, (log >> LOG_BITS) as u8]);
    let (hour, log) = (hour & ((1 << HOUR_BITS) - 1), log & ((1 << LOG_BITS) - 1));
    Some((&key[..end], RowPlace { hour, slot, log }))
}

/// True if an entry is well-formed: the end of a link, a row, or a merged history.
pub(super) fn is_sound(key: &[u8], value: &[u8]) -> bool {
    match parts_of(key) {
        Some((_, RowPlace::ENDED_EARLIER)) => EndedVisits::from_bytes(value).is_some(),
        Some((_, place)) if place.is_merged() => VisitHistory::decode(value).is_some(),
        Some(_) => {
            let mut rest = value;
            TallyRow::decode(&mut rest).is_some() && rest.is_empty()
        }
        None => Ended::parse_key(key).is_some(),
    }
}

impl Batch {
    /// Sets a row.
    pub fn put_visits(&mut self, name: &[u8], place: RowPlace, value: &[u8]) {
        self.inner.insert(&self.visits, key(name, place), value);
    }

    /// Removes a row by its key.
    pub fn remove_visits(&mut self, key: &[u8]) {
        self.inner.remove(&self.visits, Slice::from(key));
    }

    /// Sets the visits that a link had before its import, or a sum of such visits.
    pub fn put_earlier_visits(&mut self, name: &[u8], counts: VisitCounts) {
        let mut value = Vec::new();
        VisitHistory { all: TallyRow::from(counts), ..VisitHistory::default() }.encode(&mut value);
        self.put_visits(name, RowPlace::EARLIER, &value);
    }

    /// Removes the visits that a link had before its import.
    pub fn remove_earlier_visits(&mut self, name: &[u8]) {
        self.remove_row(name, RowPlace::EARLIER);
    }

    /// Sets the visits that a link had before its import, now that it has ended.
    pub fn put_ended_earlier(&mut self, name: &[u8], ended: &EndedVisits) {
        self.put_visits(name, RowPlace::ENDED_EARLIER, &ended.to_bytes());
    }

    /// Removes the visits of an ended link from before its import.
    pub fn remove_ended_earlier(&mut self, name: &[u8]) {
        self.remove_row(name, RowPlace::ENDED_EARLIER);
    }

    /// Removes a row of a subject.
    pub fn remove_row(&mut self, name: &[u8], place: RowPlace) {
        self.inner.remove(&self.visits, key(name, place));
    }

    /// Notes that a link has ended, so that its visits are removed.
    pub fn end_visits(&mut self, ended: &Ended) {
        self.inner.insert(&self.visits, ended.key(), []);
    }

    /// Removes the note that a link has ended, after its visits were removed.
    pub fn forget_ended(&mut self, ended: &Ended) {
        self.inner.remove(&self.visits, ended.key());
    }

    /// Sets the table of origins.
    pub fn set_visit_origins(&mut self, origins: &OriginTable) {
        self.inner.insert(&self.fleet, ORIGINS, origins.encode());
    }

    /// Records that all rows of a log are stored.
    pub fn set_visits_folded(&mut self, log: u32) {
        self.inner.insert(&self.meta, FOLDED, sealed(FOLDED, u64::from(log)));
    }
}

impl Links {
    /// Returns the number of the last log whose rows are all stored; 0 before the first.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn visits_folded(&self) -> Result<u32, StoreError> {
        let folded = self.meta.get(FOLDED)?.map_or(Ok(0), |value| unsealed(FOLDED, &value))?;
        Ok(folded as u32)
    }

    /// Returns the number of the last log whose rows are all stored, as of a snapshot.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn visits_folded_in(&self, view: &View) -> Result<u32, StoreError> {
        let folded = view.snapshot().get(&self.meta, FOLDED)?.map_or(Ok(0), |value| unsealed(FOLDED, &value))?;
        Ok(folded as u32)
    }

    /// Returns the table of origins; `None` before the node is in a fleet.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn visit_origins(&self) -> Result<Option<OriginTable>, StoreError> {
        let Some(stored) = self.fleet.get(ORIGINS)? else { return Ok(None) };
        OriginTable::decode(&stored).map(Some).ok_or_else(|| StoreError::Damaged(ORIGINS.to_owned()))
    }

    /// Returns the ended links whose visits may still be stored.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn visits_ended(&self) -> Result<Vec<Ended>, StoreError> {
        let mut all = Vec::new();
        for guard in self.visits.prefix([ENDED]) {
            all.extend(Ended::parse_key(&guard.key()?));
        }
        Ok(all)
    }

    /// Returns all rows of a subject.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn visits_of(&self, name: &[u8]) -> Result<Vec<VisitRow>, StoreError> {
        let prefix = [name, &[END]].concat();
        self.visits.prefix(prefix).filter_map(|guard| read(guard).transpose()).collect()
    }

    /// Reads all rows of subjects in one pass, and passes each on with the index of its subject. The names of the subjects
    /// ascend. Where they are close together in the order of names, a row costs a tenth of what [`Links::visits_of`] does.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read, or that of `found`.
    pub fn visits_of_each(
        &self,
        names: &[Vec<u8>],
        mut found: impl FnMut(usize, RowPlace, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        debug_assert!(names.is_sorted(), "rows of some subjects would be passed over");
        let Some(last) = names.last() else { return Ok(()) };
        let behind = [&last[..], &[END + 1]].concat();
        let rows_from = |name: &[u8]| {
            let range = (Bound::Included([name, &[END]].concat()), Bound::Excluded(behind.clone()));
            self.visits.range(range)
        };
        let (mut at, mut passed, mut rows) = (0, 0, rows_from(&names[0]));
        while let Some(guard) = rows.next() {
            let (key, value) = guard.into_inner()?;
            let Some((name, place)) = parts_of(&key) else { continue };
            while names.get(at).is_some_and(|wanted| wanted[..] < *name) {
                at += 1;
            }
            match names.get(at) {
                Some(wanted) if wanted[..] == *name => {
                    passed = 0;
                    found(at, place, &value)?;
                }
                Some(wanted) => {
                    passed += 1;
                    if passed == ROWS_PASSED_MAX {
                        (passed, rows) = (0, rows_from(wanted));
                    }
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the visits that a link had before its import, or a sum of such visits; `None` without any.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn earlier_visits(&self, name: &[u8]) -> Result<Option<VisitCounts>, StoreError> {
        let Some(value) = self.visits.get(key(name, RowPlace::EARLIER))? else { return Ok(None) };
        let damaged = || StoreError::Damaged(format!("earlier visits of {}", name.escape_ascii()));
        VisitHistory::decode(&value).map(|history| Some(history.all.counts)).ok_or_else(damaged)
    }

    /// Returns the visits that the last ended link with this name had before its import; `None` without any.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn ended_earlier(&self, name: &[u8]) -> Result<Option<EndedVisits>, StoreError> {
        let Some(value) = self.visits.get(key(name, RowPlace::ENDED_EARLIER))? else { return Ok(None) };
        let damaged = || StoreError::Damaged(format!("earlier visits of the former {}", name.escape_ascii()));
        EndedVisits::from_bytes(&value).map(Some).ok_or_else(damaged)
    }

    /// Returns the rows of all subjects from one name to another of the same length, inclusive.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn visits_between(&self, first: &[u8], last: &[u8]) -> Result<Vec<VisitRow>, StoreError> {
        let behind = [last, &[END + 1]].concat();
        let range = (Bound::Included(first), Bound::Excluded(behind.as_slice()));
        self.visits.range::<&[u8], _>(range).filter_map(|guard| read(guard).transpose()).collect()
    }

    /// Returns up to `count` rows after a key, of any subjects.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn visits_after(&self, key: &[u8], count: usize) -> Result<Vec<VisitRow>, StoreError> {
        let range = (Bound::Excluded(key), Bound::<&[u8]>::Unbounded);
        self.visits.range::<&[u8], _>(range).filter_map(|guard| read(guard).transpose()).take(count).collect()
    }

    /// Returns up to `count` rows from a position, of any subjects, and the position of the next ones. If the page
    /// begins with a damaged block, the next position is behind that block.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the operating system refuses to read.
    pub fn visits_page(&self, from: &Bound<Vec<u8>>, count: usize) -> Result<VisitRowPage, StoreError> {
        let (rows, damage) = self.read_rows(from, &Bound::Unbounded, count)?;
        if !rows.is_empty() || damage.is_none() {
            let is_last = damage.is_none() && rows.len() < count;
            return Ok(VisitRowPage::of(rows, is_last));
        }
        // The library reads ahead in each table, so a damaged block also hides rows before it. A range that ends before
        // the table shows them.
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => position(key),
        };
        let is_hidden = |to: u128| {
            let range = (from.clone(), Bound::Included(from_position(to)));
            self.visits.range(range).next().is_some_and(|guard| guard.key().is_err())
        };
        let (good, bad) = gallop(start, position(&END_OF_ROWS), is_hidden);
        let edge = bisect(good, bad, is_hidden);
        if edge > start {
            let (rows, _) = self.read_rows(from, &Bound::Included(from_position(edge)), count)?;
            if !rows.is_empty() {
                return Ok(VisitRowPage::of(rows, false));
            }
        }
        let behind = Links::first_readable(&self.visits, edge + 1, &END_OF_ROWS);
        let next = behind.and_then(|(at, key)| key.map(|_| Bound::Included(from_position(at))));
        Ok(VisitRowPage { rows, damage, next })
    }

    /// Reads up to `count` rows of a range, and returns the error of the damaged block that ends them, if one does.
    fn read_rows(
        &self,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        count: usize,
    ) -> Result<(Vec<VisitRow>, Option<String>), StoreError> {
        let range = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let mut rows = Vec::new();
        for guard in self.visits.range::<&[u8], _>(range) {
            match read(guard) {
                Ok(row) => rows.extend(row),
                Err(StoreError::Damaged(what)) => return Ok((rows, Some(what))),
                Err(error) => return Err(error),
            }
            if rows.len() >= count {
                break;
            }
        }
        Ok((rows, None))
    }

    /// Returns up to `count` rows after a key, of any subjects, as of a snapshot.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn visits_after_in(&self, view: &View, key: &[u8], count: usize) -> Result<Vec<VisitRow>, StoreError> {
        let range = (Bound::Excluded(key), Bound::<&[u8]>::Unbounded);
        let rows = view.snapshot().range::<&[u8], _>(&self.visits, range);
        rows.filter_map(|guard| read(guard).transpose()).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::earlier_visits::EarlierVisits;

    #[test]
    fn rows_of_former_origins_are_told_apart() {
        let row = |log| RowPlace { hour: 490_000, slot: 7, log };
        assert_eq!([1, 4, 5, 6].map(|log| row(log).is_since(5)), [false, false, false, true]);
        assert_eq!([0, 4, 5, 6].map(|since| RowPlace::merged(7, since).is_since(5)), [false, false, true, false]);
        assert!(row(1).is_since(0));
        assert!(RowPlace::merged(7, 0).is_since(0));
    }

    #[test]
    fn slots_of_two_bytes_have_keys_of_their_own() {
        let mut places = Vec::new();
        for hour in [0, 1, 490_000, (1 << HOUR_BITS) - 1] {
            for slot in [0, 255, 256, 4_095] {
                places.extend([0, 1, (1 << LOG_BITS) - 1].map(|log| RowPlace { hour, slot, log }));
            }
        }
        let mut keys = Vec::new();
        for place in places {
            keys.push(key(b"a", place));
            assert_eq!(parts_of(&keys[keys.len() - 1]), Some((&b"a"[..], place)));
        }
        // The form for a slot of one byte is the one of earlier versions.
        assert_eq!(key(b"a", RowPlace { hour: 258, slot: 7, log: 3 }), [b'a', 0, 0, 0, 1, 2, 7, 0, 0, 3]);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4 * 4 * 3);
        let late = RowPlace { hour: u32::MAX, slot: 1, log: 1 };
        assert_eq!(parts_of(&key(b"a", late)).map(|(_, place)| place.slot), Some(1), "another origin would have it");
    }

    #[test]
    fn earlier_visits_of_ended_links_are_kept_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let visits = EarlierVisits::new(5, 1).unwrap();
        let ended = EndedVisits::new(7, "https://a.example/", visits, Some("shop"));
        let mut batch = links.batch();
        batch.put_ended_earlier(b"a", &ended);
        links.commit(batch).unwrap();
        assert_eq!(links.ended_earlier(b"a").unwrap(), Some(ended));
        assert_eq!(links.earlier_visits(b"a").unwrap(), None);
        let rows = links.visits_of(b"a").unwrap();
        assert!(rows[0].place.is_of_writer());
        assert!(!rows[0].place.is_earlier());
        assert!(is_sound(&rows[0].key, &rows[0].value));
        assert!(!is_sound(&rows[0].key, &rows[0].value[..20]));
    }

    #[test]
    fn rows_of_a_subject_stand_together() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        let place = |hour, slot, log| RowPlace { hour, slot, log };
        let of_a = [RowPlace::merged(0, 0), place(8, 0, 300), place(9, 0, 1), place(9, 4_095, 1)];
        of_a.into_iter().rev().for_each(|place| batch.put_visits(b"a", place, b"a"));
        for (name, place) in [("ab", place(2, 0, 1)), ("b", place(1, 0, 1))] {
            batch.put_visits(name.as_bytes(), place, name.as_bytes());
        }
        batch.set_visits_folded(3);
        let ended = [("a", 1), ("a", 2), ("gone", 1)];
        let ended = ended.map(|(name, number)| Ended { code: Code::parse(name.as_bytes()).unwrap(), number });
        ended.iter().for_each(|code| batch.end_visits(code));
        links.commit(batch).unwrap();
        let places = |rows: Vec<VisitRow>| rows.into_iter().map(|row| row.place).collect::<Vec<_>>();
        assert_eq!(places(links.visits_of(b"a").unwrap()), of_a);
        assert_eq!(places(links.visits_of(b"c").unwrap()), []);
        assert_eq!(links.visits_folded().unwrap(), 3);
        let all = links.visits_after(b"", 10).unwrap();
        let names: Vec<&[u8]> = all.iter().map(|row| &*row.name).collect();
        assert_eq!(names, [b"a", b"a", b"a", b"a", &b"ab"[..], b"b"]);
        let mut batch = links.batch();
        batch.remove_visits(&all[1].key);
        batch.forget_ended(&ended[0]);
        assert_eq!(links.visits_ended().unwrap(), ended);
        links.commit(batch).unwrap();
        assert_eq!(links.visits_ended().unwrap(), ended[1..]);
        assert_eq!(places(links.visits_of(b"a").unwrap()), [of_a[0], of_a[2], of_a[3]]);
    }
    #[test]
    fn one_pass_finds_the_rows_of_each_subject() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        // Of every third subject there are no rows, and of every seventh there are many.
        let rows_of = |number: u32| {
            if number.is_multiple_of(3) {
                0
            } else if number.is_multiple_of(7) {
                40
            } else {
                2
            }
        };
        let name = |number: u32| format!("a{number:03}").into_bytes();
        for number in 0..300 {
            for hour in 0..rows_of(number) {
                batch.put_visits(&name(number), RowPlace { hour, slot: 0, log: 1 }, &number.to_be_bytes());
            }
        }
        batch.end_visits(&Ended { code: Code::parse(b"a010").unwrap(), number: 1 });
        links.commit(batch).unwrap();
        for step in [1, 2, 5, 50, 299] {
            let numbers: Vec<u32> = (0..310).step_by(step).collect();
            let names: Vec<Vec<u8>> = numbers.iter().map(|number| name(*number)).collect();
            let mut found = vec![0; names.len()];
            let count = |at: usize, _: RowPlace, value: &[u8]| {
                assert_eq!(value, numbers[at].to_be_bytes());
                found[at] += 1;
                Ok(())
            };
            links.visits_of_each(&names, count).unwrap();
            let expected: Vec<u32> =
                numbers.iter().map(|number| if *number < 300 { rows_of(*number) } else { 0 }).collect();
            assert_eq!(found, expected, "{step}");
        }
        links.visits_of_each(&[], |_, _, _| panic!("no subject has rows")).unwrap();
    }
}
