//! The index of destinations: the codes of its links, equivalent ones side by side, each with the time of its last use.
//!
//! The commit that changes a link also writes and removes its entry. A result is nevertheless a hint: a key is a hash,
//! and a damaged link leaves its entry behind. The caller compares the links themselves.

use std::cmp::Reverse;
use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, KeyspaceCreateOptions, Slice};

use super::handles::{Batch, Links};
use super::indexes::Index;
use super::keyspace_options::range_options;
use crate::error::StoreError;
use carom_model::link::{UrlEntry, UrlKey};

/// Bytes of a key before the code: the hash, and the creation time.
const HEAD_LEN: usize = 16;

/// Size of a memtable, in bytes. An entry takes a third of the space of a link.
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;

/// Size of a data block, in bytes. Each look-up reads one or two, at random positions.
const BLOCK_BYTES: u32 = 4 * 1024;

pub(super) fn options() -> KeyspaceCreateOptions {
    // Hashes cannot be compressed.
    range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::all(CompressionType::None))
}

/// Entries that one commit removes while the index is cleared.
const CLEAR_BATCH: usize = 4_096;

/// An entry, and the last use of its link, in milliseconds since 1970 UTC.
pub type UrlUse = (UrlEntry, u64);

impl Batch {
    /// Sets the last use of a link; its creation is a use.
    pub fn set_url(&mut self, entry: &UrlEntry, used_ms: u64) {
        let (key, len) = key_of(entry);
        self.inner.insert(&self.urls, &key[..len], used_ms.to_le_bytes());
    }

    /// Removes the entry of a link.
    pub fn remove_url(&mut self, entry: &UrlEntry) {
        let (key, len) = key_of(entry);
        self.inner.remove(&self.urls, Slice::from(&key[..len]));
    }
}

impl Links {
    /// Returns up to `count` entries of a key, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn newest_urls(&self, key: UrlKey, count: usize) -> Result<Vec<UrlUse>, StoreError> {
        self.urls.prefix(key.0.to_be_bytes()).rev().take(count).filter_map(|guard| read(guard).transpose()).collect()
    }

    /// Returns entries of all links of the destination and app of a key, the newest first: up to `count` of the key itself,
    /// and up to `count` others. The others are the newest ones, unless their keys are so many that `scanned` entries do not
    /// reach all of them.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn newest_of_destination(&self, key: UrlKey, count: usize, scanned: usize) -> Result<Vec<UrlUse>, StoreError> {
        let newest_first = |(entry, _): &UrlUse| Reverse((entry.created_ms, entry.code));
        let mut found = self.newest_of_others(key, count, scanned)?;
        found.sort_unstable_by_key(newest_first);
        found.truncate(count);
        found.extend(self.newest_urls(key, count)?);
        found.sort_unstable_by_key(newest_first);
        Ok(found)
    }

    /// Returns the newest entries of each other key with the destination and app of a key: up to `count` of each, and up to
    /// `scanned` in total.
    fn newest_of_others(&self, key: UrlKey, count: usize, scanned: usize) -> Result<Vec<UrlUse>, StoreError> {
        let bytes = key.0.to_be_bytes();
        let start = Bound::Included(&bytes[..UrlKey::DESTINATION_LEN]);
        let mut end = key.behind_destination();
        let mut found: Vec<UrlUse> = Vec::new();
        let mut left = scanned;
        loop {
            let end_bytes = end.map(|end| end.0.to_be_bytes());
            let range = (start, end_bytes.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(&end[..])));
            // The key of the last entry, and the number of its entries; then the key whose other entries are skipped.
            let (mut same, mut skipped) = ((key, 0), None);
            for guard in self.urls.range::<&[u8], _>(range).rev().take(left) {
                let Some(one) = read(guard)? else {
                    left -= 1;
                    continue;
                };
                let of = one.0.key;
                same = (of, if same.0 == of { same.1 + 1 } else { 1 });
                if of == key || same.1 > count {
                    skipped = Some(of);
                    break;
                }
                left -= 1;
                found.push(one);
            }
            match skipped {
                Some(of) if left > 0 => end = Some(of),
                _ => return Ok(found),
            }
        }
    }

    /// Removes all entries, which are in another format, and the mark that the index is complete. With the mark, a
    /// version of that format would take the rest of the entries for all of them.
    ///
    /// # Errors
    /// [`StoreError`]; some entries may be left.
    pub fn clear_urls(&self) -> Result<(), StoreError> {
        let mut batch = self.batch();
        batch.unset_index(Index::Urls);
        for (number, guard) in self.urls.iter().enumerate() {
            batch.inner.remove(&self.urls, guard.key()?);
            if number % CLEAR_BATCH == CLEAR_BATCH - 1 {
                self.commit(std::mem::replace(&mut batch, self.batch()))?;
            }
        }
        self.commit(batch)
    }

    /// Adds many entries durably and without the journal, for an import before it adds the links. Some may exist
    /// already, if an import was interrupted between the two. No other thread may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; the store has none of the entries then.
    pub fn ingest_urls(&self, mut entries: Vec<UrlUse>) -> Result<(), StoreError> {
        // Entries and their keys sort differently, because codes compare in another way.
        let mut keys: Vec<_> = entries.drain(..).map(|(entry, used_ms)| (key_of(&entry), used_ms)).collect();
        keys.sort_unstable();
        keys.dedup_by(|(a, _), (b, _)| a == b);
        let mut ingestion = self.urls.start_ingestion()?;
        for ((key, len), used_ms) in keys {
            ingestion.write(&key[..len], used_ms.to_le_bytes())?;
        }
        Ok(ingestion.finish()?)
    }
}

/// Returns the stored key of an entry.
pub fn stored_url(entry: &UrlEntry) -> Vec<u8> {
    let (key, len) = key_of(entry);
    key[..len].to_vec()
}

/// Returns the stored key of an entry and its length. The rest of the array is zero.
fn key_of(entry: &UrlEntry) -> ([u8; HEAD_LEN + CODE_KEY_LEN_MAX], usize) {
    let mut key = [0; HEAD_LEN + CODE_KEY_LEN_MAX];
    key[..8].copy_from_slice(&entry.key.0.to_be_bytes());
    key[8..HEAD_LEN].copy_from_slice(&entry.created_ms.to_be_bytes());
    let mut ascii = [0; CODE_KEY_LEN_MAX];
    let code = entry.code.key(&mut ascii);
    let len = HEAD_LEN + code.len();
    key[HEAD_LEN..len].copy_from_slice(code);
    (key, len)
}

/// Decodes an entry; `None` if it is malformed.
fn read(guard: fjall::Guard) -> Result<Option<UrlUse>, StoreError> {
    let (key, value) = guard.into_inner()?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    let entry = |key: &[u8]| {
        let (head, code) = key.split_at_checked(HEAD_LEN)?;
        let key = UrlKey(number(&head[..8])?);
        Some(UrlEntry { key, created_ms: number(&head[8..])?, code: Code::from_key(code).ok()? })
    };
    Ok(entry(&key).zip((*value).try_into().ok().map(u64::from_le_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u64, created_ms: u64, code: &str) -> UrlEntry {
        UrlEntry { key: UrlKey(key), created_ms, code: Code::parse(code.as_bytes()).unwrap() }
    }

    fn codes(found: Vec<UrlUse>) -> Vec<String> {
        found.into_iter().map(|(entry, _)| entry.code.to_string()).collect()
    }

    /// Returns the key of links with this part for the destination and this one for the properties.
    fn key(destination: u64, properties: u64) -> u64 {
        (destination << 24) | properties
    }

    /// Returns the codes that a create for the destination 7 with these properties tries, in their order.
    fn newest_of_7(links: &Links, properties: u64, count: usize, scanned: usize) -> Vec<String> {
        codes(links.newest_of_destination(UrlKey(key(7, properties)), count, scanned).unwrap())
    }

    #[test]
    fn links_of_a_key_stand_in_the_order_of_their_age() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        for (number, name) in ["b", "a", "ab"].iter().enumerate() {
            batch.set_url(&entry(7, 300 - 100 * (number as u64 / 2), name), number as u64);
        }
        batch.set_url(&entry(8, 1, "other"), 1);
        batch.set_url(&entry(6, 1, "other"), 1);
        links.commit(batch).unwrap();
        assert_eq!(codes(links.newest_urls(UrlKey(7), 9).unwrap()), ["b", "a", "ab"]);
        assert_eq!(codes(links.newest_urls(UrlKey(7), 2).unwrap()), ["b", "a"]);
        assert_eq!(links.newest_urls(UrlKey(7), 1).unwrap(), [(entry(7, 300, "b"), 0)]);
        let mut batch = links.batch();
        batch.remove_url(&entry(7, 300, "a"));
        batch.set_url(&entry(7, 300, "b"), 99);
        links.commit(batch).unwrap();
        assert_eq!(links.newest_urls(UrlKey(7), 9).unwrap(), [(entry(7, 300, "b"), 99), (entry(7, 200, "ab"), 2)]);
        assert_eq!(links.newest_urls(UrlKey(9), 9).unwrap(), []);
    }

    #[test]
    fn links_of_a_destination_are_read_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        for (key, created_ms, code) in [
            (key(7, 1), 10, "old"),
            (key(7, 1), 40, "newest"),
            (key(7, 2), 30, "newer"),
            (key(7, 0xff_ffff), 20, "new"),
            (key(6, 0xff_ffff), 50, "before"),
            (key(8, 0), 60, "after"),
        ] {
            batch.set_url(&entry(key, created_ms, code), 1);
        }
        links.commit(batch).unwrap();
        let of = |properties, count, scanned| newest_of_7(&links, properties, count, scanned);
        assert_eq!(of(1, 9, 9), ["newest", "newer", "new", "old"]);
        assert_eq!(of(0, 9, 9), ["newest", "newer", "new", "old"], "no link has these properties");
        assert_eq!(of(0, 2, 9), ["newest", "newer"]);
        assert_eq!(of(0xff_ffff, 1, 9), ["newest", "new"], "the link with these properties is always among them");
        assert_eq!(of(0xff_ffff, 9, 1), ["newer", "new"], "one entry of another key is read");
        links.clear_urls().unwrap();
        assert!(of(1, 9, 9).is_empty());
        assert!(!links.has_index(Index::Urls).unwrap(), "the index is no longer complete");
    }

    #[test]
    fn newest_links_of_a_popular_destination_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let mut batch = links.batch();
        for number in 0..20_u64 {
            for (properties, name) in [(1, "a"), (2, "b"), (3, "asked")] {
                let created_ms = 10 * properties + 100 * number;
                batch.set_url(&entry(key(7, properties), created_ms, &format!("{name}{number}")), 1);
            }
        }
        links.commit(batch).unwrap();
        let of = |properties, count, scanned| newest_of_7(&links, properties, count, scanned);
        assert_eq!(of(3, 2, 6), ["asked19", "b19", "a19", "asked18"], "older entries of a key are skipped");
        assert_eq!(of(9, 2, 6), ["asked19", "b19"]);
        assert_eq!(of(9, 2, 3), ["asked19", "b19"], "one entry of the second key is read");
        let last = UrlKey(u64::MAX);
        let mut batch = links.batch();
        batch.set_url(&entry(last.0 - 1, 1, "last"), 1);
        links.commit(batch).unwrap();
        assert_eq!(codes(links.newest_of_destination(last, 9, 9).unwrap()), ["last"]);
    }

    #[test]
    fn entries_can_be_taken_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let some = |used: u64| vec![(entry(2, 5, "z"), used), (entry(2, 5, "B"), used), (entry(1, 9, "abc"), used)];
        links.ingest_urls(some(1)).unwrap();
        links.ingest_urls(some(2)).unwrap();
        assert_eq!(links.newest_urls(UrlKey(2), 9).unwrap(), [(entry(2, 5, "z"), 2), (entry(2, 5, "B"), 2)]);
        drop(links);
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        assert_eq!(links.newest_urls(UrlKey(1), 9).unwrap(), [(entry(1, 9, "abc"), 2)]);
    }
}
