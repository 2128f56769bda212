//! Visits as they are stored: rows of subjects, each of an hour and the log that it came from. Row zero of a subject holds
//! what was put together of others. What a row means is not known here; one thread writes them.
//!
//! Beside them stand the codes of links that have ended, written in the commit that ends the link: until that thread has
//! made sure that their rows go, no crash lets it forget.

use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, KeyspaceCreateOptions, Readable, Slice};

use super::catalog::View;
use super::{Batch, Links, StoreError, sealed, unsealed};
use carom_model::visits::history::History;
use carom_model::visits::tally::Row;

/// Which log was the last whose rows are all stored.
const FOLDED: &str = "visits_folded";

/// Before the codes of links that have ended. No name begins so.
const ENDED: u8 = 3;

/// Stands between the name of a subject and the rest of a key.
const END: u8 = 0;

/// Hour and log.
const TAIL_LEN: usize = 8;

/// A data block, bytes: what one link's page needs is together.
const BLOCK_BYTES: u32 = 4 * 1024;

/// The place of a row: the hour, counted from 1970 UTC, and the number of the log.
pub(super) type RowPlace = (u32, u32);

/// The place of what was put together of other rows.
pub const TOGETHER: (u32, u32) = (0, 0);

/// A row with its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitRow {
    /// Its key.
    pub key: Vec<u8>,
    /// The subject's name.
    pub name: Vec<u8>,
    /// Its place.
    pub place: (u32, u32),
    /// What was written.
    pub value: Vec<u8>,
}

pub(super) fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(16 * 1024 * 1024)
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
}

fn key(name: &[u8], (hour, log): RowPlace) -> Vec<u8> {
    [name, &[END], &hour.to_be_bytes(), &log.to_be_bytes()].concat()
}

/// The end of a link, and of its visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its code.
    pub code: Code,
    /// A number that no other end of a link of this code has.
    pub number: u64,
}

impl Ended {
    /// Where it stands.
    fn key(&self) -> Vec<u8> {
        [&[ENDED], self.code.key(&mut [0; CODE_KEY_LEN_MAX]), &[END], &self.number.to_be_bytes()].concat()
    }

    /// What stands there; `None` for what is none.
    fn of_key(key: &[u8]) -> Option<Ended> {
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

/// The name and the place in the key of a row; `None` where it is of none.
fn parts_of(key: &[u8]) -> Option<(&[u8], RowPlace)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
    let end = key.len().checked_sub(TAIL_LEN + 1).filter(|_| key.first() != Some(&ENDED))?;
    let tail = &key[end + 1..];
    Some((&key[..end], (number(&tail[..4])?, number(&tail[4..])?)))
}

/// Whether an entry is what is written: the end of a link, a row, or rows that were put together.
pub(super) fn is_sound(key: &[u8], value: &[u8]) -> bool {
    match parts_of(key) {
        Some((_, TOGETHER)) => History::decode(value).is_some(),
        Some(_) => {
            let mut rest = value;
            Row::decode(&mut rest).is_some() && rest.is_empty()
        }
        None => Ended::of_key(key).is_some(),
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

    /// Notes that a link has ended, and its visits with it.
    pub fn end_visits(&mut self, ended: &Ended) {
        self.inner.insert(&self.visits, ended.key(), []);
    }

    /// Forgets that: its visits are gone for good.
    pub fn forget_ended(&mut self, ended: &Ended) {
        self.inner.remove(&self.visits, ended.key());
    }

    /// Notes that all rows of a log are stored.
    pub fn set_visits_folded(&mut self, log: u32) {
        self.inner.insert(&self.meta, FOLDED, sealed(FOLDED, u64::from(log)));
    }
}

impl Links {
    /// The last log whose rows are all stored; 0 where there is none.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn visits_folded(&self) -> Result<u32, StoreError> {
        let folded = self.meta.get(FOLDED)?.map_or(Ok(0), |value| unsealed(FOLDED, &value))?;
        Ok(folded as u32)
    }

    /// The same, as it was at the moment of a view.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn visits_folded_in(&self, view: &View) -> Result<u32, StoreError> {
        let folded = view.snapshot().get(&self.meta, FOLDED)?.map_or(Ok(0), |value| unsealed(FOLDED, &value))?;
        Ok(folded as u32)
    }

    /// The links that have ended, whose visits may still be there.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn visits_ended(&self) -> Result<Vec<Ended>, StoreError> {
        let mut all = Vec::new();
        for guard in self.visits.prefix([ENDED]) {
            all.extend(Ended::of_key(&guard.key()?));
        }
        Ok(all)
    }

    /// All rows of a subject.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn visits_of(&self, name: &[u8]) -> Result<Vec<VisitRow>, StoreError> {
        let prefix = [name, &[END]].concat();
        self.visits.prefix(prefix).filter_map(|guard| read(guard).transpose()).collect()
    }

    /// The rows of all subjects from one name to another one of the same length, both meant.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn visits_between(&self, first: &[u8], last: &[u8]) -> Result<Vec<VisitRow>, StoreError> {
        let behind = [last, &[END + 1]].concat();
        let range = (Bound::Included(first), Bound::Excluded(behind.as_slice()));
        self.visits.range::<&[u8], _>(range).filter_map(|guard| read(guard).transpose()).collect()
    }

    /// So many rows behind a key at most, of any subjects.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn visits_behind(&self, key: &[u8], count: usize) -> Result<Vec<VisitRow>, StoreError> {
        let range = (Bound::Excluded(key), Bound::<&[u8]>::Unbounded);
        self.visits.range::<&[u8], _>(range).filter_map(|guard| read(guard).transpose()).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_subject_stand_together() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        for (name, place) in [("ab", (2, 1)), ("a", (9, 1)), ("a", (8, 300)), ("a", (0, 0)), ("b", (1, 1))] {
            batch.put_visits(name.as_bytes(), place, name.as_bytes());
        }
        batch.set_visits_folded(3);
        let ended = [("a", 1), ("a", 2), ("gone", 1)];
        let ended = ended.map(|(name, number)| Ended { code: Code::parse(name.as_bytes()).unwrap(), number });
        ended.iter().for_each(|code| batch.end_visits(code));
        links.commit(batch).unwrap();
        let places = |rows: Vec<VisitRow>| rows.into_iter().map(|row| row.place).collect::<Vec<_>>();
        assert_eq!(places(links.visits_of(b"a").unwrap()), [(0, 0), (8, 300), (9, 1)]);
        assert_eq!(places(links.visits_of(b"c").unwrap()), []);
        assert_eq!(links.visits_folded().unwrap(), 3);
        let all = links.visits_behind(b"", 10).unwrap();
        assert_eq!(all.iter().map(|row| &*row.name).collect::<Vec<_>>(), [b"a", b"a", b"a", &b"ab"[..], b"b"]);
        let mut batch = links.batch();
        batch.remove_visits(&all[1].key);
        batch.forget_ended(&ended[0]);
        assert_eq!(links.visits_ended().unwrap(), ended);
        links.commit(batch).unwrap();
        assert_eq!(links.visits_ended().unwrap(), ended[1..]);
        assert_eq!(places(links.visits_of(b"a").unwrap()), [(0, 0), (9, 1)]);
    }
}
