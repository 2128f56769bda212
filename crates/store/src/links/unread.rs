//! Codes with a state that this version cannot decode, because a later version wrote it.
//!
//! Such a code is marked: it has no record among the links, and here the text of its state as Redis had it. So no
//! reader meets the old state, also after a restart, and a later version finds what to read again.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::Slice;
use xxhash_rust::xxh3::xxh3_64;

use super::handles::{Batch, Links};
use crate::error::StoreError;
use carom_model::replication::{Partition, formats};

/// First byte of the key of a mark, before the key of its code.
const MARK: u8 = b'u';

/// First byte of the key of a partition to compare after an upgrade.
const LATER: u8 = b'n';

/// A marked code, and the text of its state. The text is empty if it is damaged.
pub type UnreadState = (Code, Vec<u8>);

impl Batch {
    /// Marks a code, and keeps the text of its state.
    pub fn mark_unread(&mut self, code: &Code, text: &[u8]) {
        let sealed = [&xxh3_64(text).to_le_bytes()[..], text].concat();
        self.inner.insert(&self.fleet, mark_key(code), sealed);
        self.marks = true;
    }

    /// Clears the mark of a code.
    pub fn clear_unread(&mut self, code: &Code) {
        self.inner.remove(&self.fleet, Slice::from(mark_key(code)));
    }

    /// Notes that a partition must be compared once the node reads a later format than this one.
    pub fn compare_after(&mut self, partition: Partition, format: u32) {
        self.inner.insert(&self.fleet, [LATER, partition.0], format.to_le_bytes());
    }

    /// Clears the note of [`Batch::compare_after`], unless the comparison needs a later format than this version reads.
    pub(super) fn clear_compare_after(&mut self, partition: Partition) {
        let key = [LATER, partition.0];
        let noted = self.fleet.get(key);
        if noted.is_ok_and(|stored| stored.is_some_and(|stored| format_of(&stored) < formats::newest())) {
            self.inner.remove(&self.fleet, Slice::from(&key[..]));
        }
    }
}

impl Links {
    /// Returns the text of the state of a marked code; `None` if the code is not marked.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be read.
    pub fn unread(&self, code: &Code) -> Result<Option<Vec<u8>>, StoreError> {
        if !self.has_marks.load(Ordering::Acquire) {
            return Ok(None);
        }
        Ok(self.fleet.get(mark_key(code))?.map(|sealed| unsealed_text(&sealed)))
    }

    /// Returns up to `count` marked codes after one, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn unread_page(&self, behind: Option<&Code>, count: usize) -> Result<Vec<UnreadState>, StoreError> {
        let from = behind.map_or(Bound::Included(vec![MARK]), |code| Bound::Excluded(mark_key(code)));
        let range = (from, Bound::Excluded(vec![MARK + 1]));
        let mut page = Vec::new();
        for guard in self.fleet.range::<Vec<u8>, _>(range).take(count) {
            let (key, sealed) = guard.into_inner()?;
            page.extend(Code::from_key(&key[1..]).ok().map(|code| (code, unsealed_text(&sealed))));
        }
        Ok(page)
    }

    /// Returns the number of marked codes. Reads all of them.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn count_unread(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        for guard in self.fleet.prefix([MARK]) {
            guard.key()?;
            count += 1;
        }
        Ok(count)
    }

    /// True if a partition must be compared once the node reads a later format than this version does. Redis may have
    /// refused states of it, or hold some that this version cannot decode.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be read.
    pub fn awaits_upgrade(&self, partition: Partition) -> Result<bool, StoreError> {
        Ok(self.compares_after(partition)?.is_some_and(|format| format >= formats::newest()))
    }

    /// Returns the format that a partition was noted with by [`Batch::compare_after`].
    pub(super) fn compares_after(&self, partition: Partition) -> Result<Option<u32>, StoreError> {
        let stored = self.fleet.get([LATER, partition.0])?;
        Ok(stored.map(|stored| format_of(&stored)))
    }
}

fn format_of(stored: &[u8]) -> u32 {
    <[u8; 4]>::try_from(stored).map_or(0, u32::from_le_bytes)
}

fn mark_key(code: &Code) -> Vec<u8> {
    [&[MARK][..], code.key(&mut [0; CODE_KEY_LEN_MAX])].concat()
}

fn unsealed_text(sealed: &[u8]) -> Vec<u8> {
    let text = sealed.split_first_chunk::<8>().filter(|(sum, text)| u64::from_le_bytes(**sum) == xxh3_64(text));
    text.map_or_else(Vec::new, |(_, text)| text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let code = |text: &str| Code::parse(text.as_bytes()).unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        assert_eq!(links.unread(&code("a")).unwrap(), None);
        let mut batch = links.batch();
        ["a", "b", "c"].iter().for_each(|text| batch.mark_unread(&code(text), text.as_bytes()));
        links.commit(batch).unwrap();
        assert_eq!(links.unread(&code("a")).unwrap().as_deref(), Some(&b"a"[..]));
        let mut batch = links.batch();
        batch.clear_unread(&code("b"));
        links.commit(batch).unwrap();
        links.sync().unwrap();
        drop(links);
        let links = Links::open(dir.path(), "key").unwrap().0;
        assert_eq!((links.unread(&code("a")).unwrap().is_some(), links.unread(&code("b")).unwrap()), (true, None));
        assert_eq!(links.unread_page(None, 9).unwrap().len(), 2);
        assert_eq!(links.unread_page(Some(&code("a")), 9).unwrap(), [(code("c"), b"c".to_vec())]);
        assert_eq!(links.count_unread().unwrap(), 2);
        assert!(links.outbox().unwrap().is_empty());
    }

    #[test]
    fn a_partition_is_compared_once_the_node_reads_more() {
        let dir = tempfile::tempdir().unwrap();
        let links = Links::open(dir.path(), "key").unwrap().0;
        let note = |format: u32| {
            let mut batch = links.batch();
            batch.compare_after(Partition(3), format);
            links.commit(batch).unwrap();
        };
        let end = || {
            let mut batch = links.batch();
            batch.set_compare(Partition(3), false);
            links.commit(batch).unwrap();
        };
        assert!(!links.awaits_upgrade(Partition(3)).unwrap());
        note(formats::newest());
        assert!(!links.must_compare(Partition(3)).unwrap());
        assert!(links.awaits_upgrade(Partition(3)).unwrap());
        end();
        assert_eq!(links.compares_after(Partition(3)).unwrap(), Some(formats::newest()), "that was in vain");
        note(formats::newest() - 1);
        assert!(links.must_compare(Partition(3)).unwrap());
        assert!(!links.awaits_upgrade(Partition(3)).unwrap());
        end();
        assert!(!links.must_compare(Partition(3)).unwrap());
    }
}
