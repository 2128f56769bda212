//! The index of idempotency keys: the link that was created with each key.
//!
//! The key of an entry is the day of the create, then the hash of the idempotency key. So a look-up reads two points,
//! and expired entries are at the beginning. The commit of a link also writes its entry. The index has at most one
//! entry for each link that was created with a key within two days. If an entry is lost with a damaged file, the client
//! only loses the protection against a second link.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::Slice;

use super::handles::{Batch, Links};
use crate::error::StoreError;
use carom_model::access::idempotency::{IdempotencyHash, WINDOW};

/// A day, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Length of the day in a key, in bytes.
const DAY_LEN: usize = 4;

fn day_of(ms: u64) -> [u8; DAY_LEN] {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX).to_be_bytes()
}

fn key_of(created_ms: u64, key: &IdempotencyHash) -> [u8; DAY_LEN + 16] {
    let mut bytes = [0; DAY_LEN + 16];
    bytes[..DAY_LEN].copy_from_slice(&day_of(created_ms));
    bytes[DAY_LEN..].copy_from_slice(&key.0);
    bytes
}

impl Batch {
    /// Records that a link was created with an idempotency key.
    pub fn note_idempotency(&mut self, key: &IdempotencyHash, created_ms: u64, code: &Code) {
        let value = [&created_ms.to_be_bytes(), code.key(&mut [0; CODE_KEY_LEN_MAX])].concat();
        self.inner.insert(&self.idempotency, key_of(created_ms, key), value);
    }
}

impl Links {
    /// Returns the code of the link that was created with an idempotency key within the window before `now_ms`, in
    /// milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`StoreError`] if the index cannot be read.
    pub fn created_with(&self, key: &IdempotencyHash, now_ms: u64) -> Result<Option<Code>, StoreError> {
        let window_ms = WINDOW.as_millis() as u64;
        for created_ms in [now_ms, now_ms.saturating_sub(DAY_MS)] {
            let Some(value) = self.idempotency.get(key_of(created_ms, key))? else { continue };
            let damaged = || StoreError::Damaged("an entry of the index of idempotency keys".to_owned());
            let (created, code) = value.split_first_chunk::<8>().ok_or_else(damaged)?;
            let code = Code::from_key(code).map_err(|_| damaged())?;
            if u64::from_be_bytes(*created).saturating_add(window_ms) > now_ms {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// Removes up to `count` entries that no look-up at `now_ms` finds. Returns their number.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn forget_idempotency(&self, count: usize, now_ms: u64) -> Result<usize, StoreError> {
        let mut batch = self.batch();
        let mut removed = 0;
        for guard in self.idempotency.range(..day_of(now_ms.saturating_sub(DAY_MS))).take(count) {
            batch.inner.remove(&self.idempotency, Slice::from(&*guard.key()?));
            removed += 1;
        }
        if removed > 0 {
            self.commit(batch)?;
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_for_its_link_for_a_day_and_is_then_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let (key, code) = (IdempotencyHash([7; 16]), Code::parse(b"abc").unwrap());
        let created_ms = 20_000 * DAY_MS + DAY_MS / 2;
        let mut batch = links.batch();
        batch.note_idempotency(&key, created_ms, &code);
        links.commit(batch).unwrap();
        let at = |ms| links.created_with(&key, ms).unwrap();
        assert_eq!(
            (at(created_ms), at(created_ms + DAY_MS - 1), at(created_ms + DAY_MS)),
            (Some(code), Some(code), None)
        );
        assert_eq!(links.created_with(&IdempotencyHash([8; 16]), created_ms).unwrap(), None);
        assert_eq!(links.forget_idempotency(10, created_ms + DAY_MS).unwrap(), 0);
        assert_eq!(links.forget_idempotency(10, created_ms + 2 * DAY_MS).unwrap(), 1);
        assert_eq!(at(created_ms), None);
    }
}
