//! An API key in the registry, and its stored form.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use crate::access::key::ApiKeyHash;
use crate::access::{AppName, KeyDomains, KeyName, Role};
use crate::formats::dates;
use crate::formats::json_file::Malformed;

/// An API key in the registry, valid or ended.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The app that owns the key.
    pub app: AppName,
    /// The name by which people recognise the key; `None` for none.
    pub name: Option<KeyName>,
    /// The role of the key.
    pub role: Role,
    /// The hash of the key.
    pub hash: ApiKeyHash,
    /// The creation time, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The expiry, in milliseconds since 1970 UTC; `None` for none.
    pub expires_ms: Option<u64>,
    /// The time of the revocation, in milliseconds since 1970 UTC; `None` if not revoked.
    pub revoked_ms: Option<u64>,
    /// Creates per second that the app is limited to; `None` for the limit of the settings.
    pub creates: Option<NonZeroU32>,
    /// The domains that the key is limited to; `None` for all.
    pub domains: Option<KeyDomains>,
}

impl KeyEntry {
    /// True if the key is valid at an instant, in milliseconds since 1970 UTC.
    pub fn is_valid(&self, now_ms: u64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|end_ms| now_ms < end_ms)
    }

    /// Returns the end of the key by expiry or revocation, in milliseconds since 1970 UTC; `None` if it has none.
    pub(super) fn end_ms(&self) -> Option<u64> {
        earliest(self.expires_ms, self.revoked_ms)
    }

    /// Returns the public ID of the key.
    pub fn id(&self) -> String {
        self.hash.id()
    }

    /// Takes over an earlier expiry or revocation from another copy of the same key. Returns true if anything changed.
    pub(super) fn merge(&mut self, other: &KeyEntry) -> bool {
        let before = (self.expires_ms, self.revoked_ms);
        self.expires_ms = earliest(self.expires_ms, other.expires_ms);
        self.revoked_ms = earliest(self.revoked_ms, other.revoked_ms);
        before != (self.expires_ms, self.revoked_ms)
    }

    /// Returns the properties for an API client or operator, without the hash.
    pub fn describe(&self, now_ms: u64) -> Value {
        json!({
            "id": self.id(),
            "name": self.name.as_ref().map(KeyName::as_str),
            "role": self.role.as_str(),
            "valid": self.is_valid(now_ms),
            "created": dates::format(self.created_ms),
            "expires": self.expires_ms.map(dates::format),
            "revoked": self.revoked_ms.map(dates::format),
            "createsPerSecond": self.creates,
            "domains": self.domains.as_ref().map(KeyDomains::names),
        })
    }

    /// Returns the stored form, for a file or for Redis.
    pub fn to_json(&self) -> Value {
        json!({
            "app": self.app.as_str(),
            "name": self.name.as_ref().map(KeyName::as_str),
            "role": self.role.as_str(),
            "hash": self.hash.to_hex(),
            "createdMs": self.created_ms,
            "expiresMs": self.expires_ms,
            "revokedMs": self.revoked_ms,
            "createsPerSecond": self.creates,
            "domains": self.domains.as_ref().map(KeyDomains::names),
        })
    }

    /// Parses JSON from [`KeyEntry::to_json`].
    ///
    /// # Errors
    /// [`Malformed`] with the first invalid field.
    pub fn from_json(value: &Value) -> Result<KeyEntry, Malformed> {
        let wrong = |field: &str| Malformed(format!("the field \"{field}\" of a key is malformed"));
        let text = |field: &str| value.get(field).and_then(Value::as_str).ok_or_else(|| wrong(field));
        let number = |field: &str| match value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(number) => number.as_u64().map(Some).ok_or_else(|| wrong(field)),
        };
        let creates = number("createsPerSecond")?.map(|number| u32::try_from(number).ok().and_then(NonZeroU32::new));
        Ok(KeyEntry {
            app: AppName::parse(text("app")?).map_err(|_| wrong("app"))?,
            // Earlier versions do not write this field.
            name: match value.get("name") {
                None | Some(Value::Null) => None,
                Some(name) => Some(name.as_str().and_then(KeyName::parse).ok_or_else(|| wrong("name"))?),
            },
            role: Role::parse(text("role")?).ok_or_else(|| unknown_role(text("role").unwrap_or_default()))?,
            hash: ApiKeyHash::from_hex(text("hash")?).ok_or_else(|| wrong("hash"))?,
            created_ms: number("createdMs")?.ok_or_else(|| wrong("createdMs"))?,
            expires_ms: number("expiresMs")?,
            revoked_ms: number("revokedMs")?,
            creates: creates.map(|number| number.ok_or_else(|| wrong("createsPerSecond"))).transpose()?,
            domains: match value.get("domains") {
                None | Some(Value::Null) => None,
                Some(domains) => Some(domains_of(domains).ok_or_else(|| wrong("domains"))?),
            },
        })
    }
}

/// Describes a role that this version does not know, for the operator who has gone back to it.
fn unknown_role(role: &str) -> Malformed {
    let shown: String = role.chars().take(64).collect();
    Malformed(format!(
        "the field \"role\" of a key is {shown:?}; expected one of {}. A newer carom may have written it",
        Role::names()
    ))
}

fn domains_of(names: &Value) -> Option<KeyDomains> {
    KeyDomains::from_names(names.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?)
}

/// Returns the earlier of two ends, each of which may be missing.
pub(super) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
