//! Idempotency keys: a client may repeat a create without making a second link.
//!
//! A client sends a key of its own with a create (`Idempotency-Key`, draft-ietf-httpapi-idempotency-key-header). The
//! new link stores a hash of that key and of the request, so one write has both, and they reach other nodes together.
//! The store finds links by the hash (`store::links::idempotency`). The keys themselves are not stored. No I/O.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashSet;
use sha2::{Digest, Sha256};

use crate::access::app_name::AppName;
use carom_limits::IDEMPOTENCY_KEY_LEN_MAX;

/// Time for which a key stands for the link that was created with it.
pub const WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// Length of the stored form, in bytes.
pub const IDEMPOTENCY_LEN: usize = 24;

/// A hash of an app and the idempotency key that it sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IdempotencyHash(pub [u8; 16]);

/// The request that created a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Idempotency {
    /// A hash of the app and its key.
    pub key: IdempotencyHash,
    /// A hash of the fields of the request.
    pub request: [u8; 8],
}

impl Idempotency {
    /// Hashes a create of an app. `fields` has one form for all requests that mean the same.
    pub fn of(app: Option<&AppName>, key: &IdempotencyKey, fields: &str) -> Idempotency {
        // Names of apps contain no zero bytes.
        let key: [u8; 32] = Sha256::new()
            .chain_update(app.map_or("", AppName::as_str))
            .chain_update([0])
            .chain_update(&key.0)
            .finalize()
            .into();
        let fields: [u8; 32] = Sha256::digest(fields).into();
        Idempotency { key: IdempotencyHash(first(&key)), request: first(&fields) }
    }

    /// Returns the stored form.
    pub fn to_bytes(self) -> [u8; IDEMPOTENCY_LEN] {
        let mut bytes = [0; IDEMPOTENCY_LEN];
        bytes[..16].copy_from_slice(&self.key.0);
        bytes[16..].copy_from_slice(&self.request);
        bytes
    }

    /// Decodes the stored form.
    pub fn from_bytes(bytes: [u8; IDEMPOTENCY_LEN]) -> Idempotency {
        Idempotency { key: IdempotencyHash(first(&bytes)), request: first(&bytes[16..]) }
    }
}

/// Returns the first `LEN` bytes of a longer slice.
fn first<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    *bytes.first_chunk().expect("hashes are longer")
}

/// A key that a client has sent. It may be a secret of the client, so its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey")
    }
}

impl IdempotencyKey {
    /// Returns the key of a line of a request, if this is the key of the request. No client can send such a key.
    pub fn of_line(&self, line: u64) -> IdempotencyKey {
        IdempotencyKey(format!("{} {line}", self.0))
    }

    /// Parses the value of the header field: a string in double quotes, as in the draft, or without them, as most
    /// clients send it. Both are the same key.
    ///
    /// # Errors
    /// A description of valid values.
    pub fn parse(value: &[u8]) -> Result<IdempotencyKey, String> {
        let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let text = quoted.unwrap_or(value);
        let is_fit = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
        match std::str::from_utf8(text) {
            Ok(text)
                if (1..=IDEMPOTENCY_KEY_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| is_fit(&byte)) =>
            {
                Ok(IdempotencyKey(text.to_owned()))
            }
            _ => Err(format!(
                "must have 1 to {IDEMPOTENCY_KEY_LEN_MAX} printable ASCII characters other than spaces, quotes, commas and backslashes, such as a UUID"
            )),
        }
    }
}

/// The keys whose creates are in progress on a node. Shared by all its cores; a part of the set is locked for one
/// look-up, and only by creates that have a key.
#[derive(Clone, Debug, Default)]
pub struct PendingCreates(Arc<DashSet<IdempotencyHash>>);

impl PendingCreates {
    /// Begins a create; `None` while another create with the same key is in progress.
    pub fn begin(&self, key: IdempotencyHash) -> Option<PendingCreate> {
        self.0.insert(key).then(|| PendingCreate { all: self.clone(), key })
    }
}

/// A create that is in progress until this is dropped.
#[derive(Debug)]
pub struct PendingCreate {
    all: PendingCreates,
    key: IdempotencyHash,
}

impl Drop for PendingCreate {
    fn drop(&mut self) {
        self.all.0.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<IdempotencyKey, String> {
        IdempotencyKey::parse(text.as_bytes())
    }

    #[test]
    fn keys_are_strings_with_or_without_quotes() {
        assert_eq!(key("\"8e03978e-40d5\""), key("8e03978e-40d5"));
        assert!(key(&"x".repeat(255)).is_ok());
        for wrong in ["", "\"\"", "a b", "a\"b", "\"a", "a,b", "é", "a\u{7f}", &"x".repeat(256)] {
            assert!(key(wrong).unwrap_err().contains("1 to 255"), "{wrong}");
        }
    }

    #[test]
    fn lines_of_a_request_have_keys_of_their_own() {
        let whole = key("k").unwrap();
        assert!(whole.of_line(1) != whole.of_line(2));
        assert!(whole.of_line(1) != whole);
        assert_ne!(key("k1").unwrap().of_line(1), whole.of_line(11));
        assert!(IdempotencyKey::parse(b"k 1").is_err());
    }

    #[test]
    fn an_app_has_its_keys_for_itself() {
        let (shop, mail) = (AppName::parse("shop").unwrap(), AppName::parse("mail").unwrap());
        let of = |app: Option<&AppName>, text: &str, fields: &str| Idempotency::of(app, &key(text).unwrap(), fields);
        let one = of(Some(&shop), "k", "{}");
        assert_eq!(one, of(Some(&shop), "\"k\"", "{}"));
        for other in [of(Some(&mail), "k", "{}"), of(None, "k", "{}"), of(Some(&shop), "l", "{}")] {
            assert_ne!(one.key, other.key);
        }
        assert_ne!(one.request, of(Some(&shop), "k", "{\"a\":1}").request);
        assert_eq!(Idempotency::from_bytes(one.to_bytes()), one);
    }

    #[test]
    fn a_key_is_under_way_once() {
        let (all, key) = (PendingCreates::default(), IdempotencyHash([1; 16]));
        let first = all.begin(key).unwrap();
        assert!(all.begin(key).is_none());
        assert!(all.begin(IdempotencyHash([2; 16])).is_some());
        drop(first);
        assert!(all.begin(key).is_some());
    }
}
