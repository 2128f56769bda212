//! The stored edits of links, by code and by the instant in nanoseconds since 1970 UTC. [`carom_model::link::history`]
//! defines an edit.

use std::collections::HashMap;
use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::Slice;

use super::handles::{Batch, Links};
use crate::error::StoreError;
use carom_limits::EDITS_KEPT;
use carom_model::link::history::Edit;
use carom_model::purge::{EndedLinks, EndedSelector};

/// Separator of the code and the rest of a key.
const END: u8 = 0;

/// Length of an instant, in bytes.
const INSTANT_LEN: usize = 8;

fn prefix(code: &Code) -> Vec<u8> {
    [code.key(&mut [0; CODE_KEY_LEN_MAX]), &[END]].concat()
}

/// Returns the code in a key; `None` if the key is malformed.
fn code_in(key: &[u8]) -> Option<Code> {
    let (rest, _) = key.split_last_chunk::<INSTANT_LEN>()?;
    Code::from_key(rest.strip_suffix(&[END])?).ok()
}

/// Returns the instant in a key; `None` if the key is malformed.
fn instant_of(key: &[u8]) -> Option<u64> {
    let (rest, instant) = key.split_last_chunk::<INSTANT_LEN>()?;
    let code = rest.strip_suffix(&[END])?;
    Code::from_key(code).ok().map(|_| u64::from_be_bytes(*instant))
}

/// True if an entry is well-formed.
pub(super) fn is_sound(key: &[u8], value: &[u8]) -> bool {
    instant_of(key).is_some() && Edit::decode(value).is_some()
}

impl Links {
    /// Adds edits of links in this order, one nanosecond apart, from an instant on. Drops the oldest edits of a link
    /// that has too many.
    ///
    /// # Errors
    /// [`StoreError`] if the existing edits cannot be read.
    pub fn add_edits(&self, batch: &mut Batch, nanos: u64, edits: &[(Code, Edit)]) -> Result<(), StoreError> {
        let mut of_codes: HashMap<Code, Vec<(u64, &Edit)>> = HashMap::new();
        for (nanos, (code, edit)) in (nanos..).zip(edits) {
            of_codes.entry(*code).or_default().push((nanos, edit));
        }
        for (code, mut fresh) in of_codes {
            fresh.drain(..fresh.len().saturating_sub(EDITS_KEPT));
            let prefix = prefix(&code);
            // The newest first, and at most as many as can exist. Behind them are removed entries that no compaction
            // has dropped yet.
            let there = self.history.prefix(&prefix).rev().take(EDITS_KEPT);
            for guard in there.skip(EDITS_KEPT - fresh.len()) {
                batch.inner.remove(&self.history, guard.key()?);
            }
            for (nanos, edit) in fresh {
                batch.inner.insert(&self.history, [&prefix[..], &nanos.to_be_bytes()].concat(), edit.encode());
            }
        }
        Ok(())
    }

    /// Returns the edits of the links with a code, the latest first.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn edits_of(&self, code: &Code) -> Result<Vec<Edit>, StoreError> {
        let mut edits = Vec::new();
        for guard in self.history.prefix(prefix(code)).rev().take(EDITS_KEPT) {
            let (key, value) = guard.into_inner()?;
            let edit = Edit::decode(&value).filter(|_| instant_of(&key).is_some());
            edits.push(edit.ok_or_else(|| StoreError::Damaged(format!("history: {}", key.escape_ascii())))?);
        }
        Ok(edits)
    }

    /// Returns the instant of the last known deletion of a link with a code, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`StoreError`] if the edits cannot be read.
    pub fn last_end_ms(&self, code: &Code) -> Result<Option<u64>, StoreError> {
        for guard in self.history.prefix(prefix(code)).rev().take(EDITS_KEPT) {
            let (key, value) = guard.into_inner()?;
            if Edit::decode(&value).is_some_and(|edit| edit.is_end()) {
                return Ok(instant_of(&key).map(|nanos| nanos / 1_000_000));
            }
        }
        Ok(None)
    }

    /// Returns the selected links that were deleted or have expired, from about `count` edits behind a key. Leaves out codes
    /// that may have a link whose date this version cannot decode: a purge would take its visits for those of the deleted
    /// one.
    ///
    /// # Errors
    /// [`StoreError`] if the edits or a record cannot be read. Malformed edits are skipped.
    pub fn ended_links(&self, behind: &[u8], count: usize, selector: &EndedSelector) -> Result<EndedLinks, StoreError> {
        let mut found = EndedLinks::default();
        // The edits of the present code, and the key of the last one.
        let (mut code, mut edits, mut last) = (None, Vec::new(), None);
        let mut read = 0;
        for guard in self.history.range::<&[u8], _>((Bound::Excluded(behind), Bound::Unbounded)) {
            let (key, value) = guard.into_inner()?;
            let (Some(of), Some(edit)) = (code_in(&key), Edit::decode(&value)) else { continue };
            if let Some(before) = code.filter(|before| *before != of) {
                self.add_ended(before, &edits, selector, &mut found)?;
                if read >= count {
                    found.behind = last;
                    return Ok(found);
                }
                edits.clear();
            }
            edits.push(edit);
            (code, last) = (Some(of), Some(key.to_vec()));
            read += 1;
        }
        if let Some(code) = code {
            self.add_ended(code, &edits, selector, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the selected links of a code, except the one that it has now. Adds none if the code may have a link whose date is
    /// unknown.
    fn add_ended(
        &self,
        code: Code,
        edits: &[Edit],
        selector: &EndedSelector,
        found: &mut EndedLinks,
    ) -> Result<(), StoreError> {
        if selector.ended_of(code, edits, None).is_empty() {
            return Ok(());
        }
        let present = match self.link_identity(&code) {
            Err(StoreError::Damaged(_)) => return Ok(()),
            present => present?,
        };
        if present.is_some() || !self.may_have_link(&code)? {
            found.links.extend(selector.ended_of(code, edits, present));
        }
        Ok(())
    }

    /// Removes the edits of a code from before the creation of its present link, and those up to the last deletion. The
    /// present link may have an earlier date of creation than the deletion: by an import, or because the clock of its node
    /// is behind.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub(super) fn purge_edits(&self, code: &Code) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        for guard in self.history.prefix(prefix(code)) {
            entries.push(guard.into_inner()?);
        }
        // After the edits: none of them is of a link that is created later.
        let until_ms = self.link_identity(code)?.map_or(u64::MAX, |present| present.created_ms);
        let until_nanos = until_ms.saturating_mul(1_000_000);
        let (mut batch, mut later) = (self.batch(), Vec::new());
        for (key, value) in entries {
            if instant_of(&key).is_none_or(|nanos| nanos < until_nanos) {
                batch.inner.remove(&self.history, key);
                continue;
            }
            later.push(key);
            if Edit::decode(&value).is_some_and(|edit| edit.is_end()) {
                later.drain(..).for_each(|key| batch.inner.remove(&self.history, key));
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }

    /// Removes the edits before an instant, among `count` entries after a key. Returns the last key that was read;
    /// `None` at the end.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn forget_edits(&self, behind: &[u8], count: usize, until_nanos: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut batch = self.batch();
        let mut last = None;
        for guard in self.history.range::<&[u8], _>((Bound::Excluded(behind), Bound::Unbounded)).take(count) {
            let key = guard.key()?;
            last = Some(key.to_vec());
            if instant_of(&key).is_none_or(|nanos| nanos < until_nanos) {
                batch.inner.remove(&self.history, Slice::from(&*key));
            }
        }
        if !batch.is_empty() {
            self.commit(batch)?;
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Origin;
    use carom_model::link::history::Author;
    use carom_model::testing::link;

    #[test]
    fn edits_are_kept_in_order_and_not_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let edit = |ms| Edit::between(&link("ab", Origin::Issued), None, ms, &Author::default()).unwrap();
        let add = |code: &str, nanos: u64| {
            let mut batch = links.batch();
            let code = Code::parse(code.as_bytes()).unwrap();
            links.add_edits(&mut batch, nanos, &[(code, edit(nanos * 1_000))]).unwrap();
            links.commit(batch).unwrap();
        };
        let of = |code: &str| links.edits_of(&Code::parse(code.as_bytes()).unwrap()).unwrap();
        let most = EDITS_KEPT as u64;
        (0..most + 5).for_each(|nanos| add("ab", nanos));
        add("abc", 1);
        assert_eq!((of("ab").len(), of("abc").len(), of("a").len()), (EDITS_KEPT, 1, 0));
        assert_eq!(of("ab")[0], edit((most + 4) * 1_000));
        // However many are added at once, no more are kept.
        let code = Code::parse(b"b").unwrap();
        for (nanos, at_once) in [(1, 60), (100, 3), (200, 3), (300, 70), (400, 1)] {
            let edits: Vec<_> = (0..at_once).map(|number| (code, edit((nanos + number) * 1_000))).collect();
            let mut batch = links.batch();
            links.add_edits(&mut batch, nanos, &edits).unwrap();
            links.commit(batch).unwrap();
            assert_eq!(
                links.history.prefix(prefix(&code)).count(),
                if nanos == 1 { 60 } else { EDITS_KEPT.min(63 + nanos as usize - 100) }
            );
            assert_eq!(of("b")[0], edits.last().unwrap().1);
        }
        let mut batch = links.batch();
        links.history.prefix(prefix(&code)).for_each(|guard| batch.inner.remove(&links.history, guard.key().unwrap()));
        links.commit(batch).unwrap();
        let (mut behind, mut steps) = (Vec::new(), 0);
        while let Some(last) = links.forget_edits(&behind, 7, most).unwrap() {
            (behind, steps) = (last, steps + 1);
        }
        assert_eq!((of("ab").len(), of("abc").len(), steps), (5, 0, (EDITS_KEPT + 1).div_ceil(7)));
        assert!(is_sound(b"ab\0\0\0\0\0\0\0\0\x01", b"{}"));
        assert!(!is_sound(b"ab", b"{}"));
        assert!(!is_sound(b"ab\0\0\0\0\0\0\0\0\x01", b"x"));
    }
}
