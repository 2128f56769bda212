//! Granted visits of limited links. A single thread writes them.

use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::Slice;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::handles::{Batch, Links};
use crate::error::StoreError;
use carom_model::link::LinkIdentity;
use carom_model::visits::allowance::StoredAllowance;

/// Seed that separates the checksum of these entries from others.
const SEED: u64 = 0x616c_6c6f_7761_6e63;

/// Length of an entry in bytes: four numbers, and a checksum over them and the key.
const LEN: usize = 40;

/// Some links with granted visits, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllowancePage {
    /// The links, without those whose entry is damaged.
    pub rows: Vec<(Code, StoredAllowance)>,
    /// The key of the last entry; `None` if there are no more.
    pub next: Option<Vec<u8>>,
}

impl Batch {
    /// Stores the visits of a link that were granted.
    pub fn set_allowance(&mut self, code: &Code, stored: &StoredAllowance) {
        let mut ascii = [0; CODE_KEY_LEN_MAX];
        let key = code.key(&mut ascii);
        self.inner.insert(&self.allowances, key, encode(key, stored));
    }

    /// Removes the entry of a link that has ended.
    pub fn remove_allowance(&mut self, code: &Code) {
        self.inner.remove(&self.allowances, Slice::from(code.key(&mut [0; CODE_KEY_LEN_MAX])));
    }
}

impl Links {
    /// Returns the granted visits of the link with a code; `None` before the first grant.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the entry cannot be read.
    pub fn allowance(&self, code: &Code) -> Result<Option<StoredAllowance>, StoreError> {
        let mut ascii = [0; CODE_KEY_LEN_MAX];
        let key = code.key(&mut ascii);
        let damaged = || StoreError::Damaged(format!("the number of visits of {code} is damaged"));
        self.allowances.get(key)?.map(|value| decode(key, &value).ok_or_else(damaged)).transpose()
    }

    /// Returns up to `count` links with granted visits behind a key, or from the first one on.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn allowances_after(&self, key: Option<&[u8]>, count: usize) -> Result<AllowancePage, StoreError> {
        let from = key.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
        let (mut page, mut found) = (AllowancePage::default(), 0);
        for guard in self.allowances.range::<Vec<u8>, _>((from, Bound::Unbounded)).take(count) {
            let (key, value) = guard.into_inner()?;
            found += 1;
            page.next = Some(key.to_vec());
            page.rows.extend(Code::from_key(&key).ok().zip(decode(&key, &value)));
        }
        if found < count {
            page.next = None;
        }
        Ok(page)
    }
}

/// True if an entry has a correct checksum.
pub(super) fn is_sound(key: &[u8], value: &[u8]) -> bool {
    decode(key, value).is_some()
}

fn encode(key: &[u8], stored: &StoredAllowance) -> [u8; LEN] {
    let StoredAllowance { of: LinkIdentity { created_ms, claim }, taken, parked } = *stored;
    let mut out = [0; LEN];
    for (place, number) in out.chunks_exact_mut(8).zip([created_ms, claim, taken, parked]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = seal(key, &out[..LEN - 8]);
    out[LEN - 8..].copy_from_slice(&sum.to_le_bytes());
    out
}

fn decode(key: &[u8], value: &[u8]) -> Option<StoredAllowance> {
    let value: &[u8; LEN] = value.try_into().ok()?;
    let mut numbers = value.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    let mut next = || numbers.next();
    let of = LinkIdentity { created_ms: next()?, claim: next()? };
    let stored = StoredAllowance { of, taken: next()?, parked: next()? };
    (next()? == seal(key, &value[..LEN - 8])).then_some(stored)
}

fn seal(key: &[u8], numbers: &[u8]) -> u64 {
    xxh3_64_with_seed(numbers, xxh3_64_with_seed(key, SEED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let (one, other) = (Code::parse(b"one").unwrap(), Code::parse(b"other").unwrap());
        let stored = StoredAllowance { of: LinkIdentity { created_ms: 1, claim: 2 }, taken: 30, parked: 4 };
        let mut batch = links.batch();
        batch.set_allowance(&one, &stored);
        batch.inner.insert(&links.allowances, "other", encode(b"one", &stored));
        links.commit(batch).unwrap();
        assert_eq!(links.allowance(&one).unwrap(), Some(stored));
        assert!(matches!(links.allowance(&other), Err(StoreError::Damaged(_))), "it is another link's");
        assert_eq!(links.allowance(&Code::parse(b"none").unwrap()).unwrap(), None);
    }

    #[test]
    fn pages_skip_damaged_entries() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let code = |name: &str| Code::parse(name.as_bytes()).unwrap();
        let stored = |taken: u64| StoredAllowance { of: LinkIdentity { created_ms: 1, claim: 2 }, taken, parked: 0 };
        let mut batch = links.batch();
        [("a", 1), ("b", 2), ("d", 4)]
            .iter()
            .for_each(|(name, taken)| batch.set_allowance(&code(name), &stored(*taken)));
        batch.inner.insert(&links.allowances, code("c").key(&mut [0; CODE_KEY_LEN_MAX]), encode(b"a", &stored(3)));
        links.commit(batch).unwrap();
        let first = links.allowances_after(None, 3).unwrap();
        assert_eq!(first.rows, [(code("a"), stored(1)), (code("b"), stored(2))]);
        let last = links.allowances_after(first.next.as_deref(), 3).unwrap();
        assert_eq!(last, AllowancePage { rows: vec![(code("d"), stored(4))], next: None });
    }
}
