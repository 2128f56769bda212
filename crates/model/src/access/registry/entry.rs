//! An API key in the registry, and its stored form.
//!
//! A later version may give keys further properties, and copies of an entry pass through nodes of this version. A property that
//! restricts a key must not be ignored: the key would allow more on this node. Its name begins with a capital letter. This
//! version does not decode an entry with such a property, so the key is invalid here, and the entry stays as it is. All other
//! unknown properties restrict nothing. An entry keeps them, also when the key expires or is revoked. The key of a rotation gets
//! only properties that this version knows: others may belong to one key, such as a second hash of it.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use crate::access::key::ApiKeyHash;
use crate::access::{AppName, KeyDomains, KeyName, Role};
use crate::formats::dates;
use crate::formats::json_file::Malformed;
use crate::formats::later_members::LaterMembers;

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
    /// Properties that only a later version knows, none of which restricts the key.
    pub(super) later: LaterMembers,
}

/// The members of the stored form that this version knows.
const MEMBERS: [&str; 9] =
    ["app", "name", "role", "hash", "createdMs", "expiresMs", "revokedMs", "createsPerSecond", "domains"];

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

    /// Takes over an earlier expiry or revocation from another copy of the same key, and properties of later versions, which a
    /// node of an earlier version may have dropped. Returns true if anything changed.
    pub(super) fn merge(&mut self, other: &KeyEntry) -> bool {
        let before = (self.expires_ms, self.revoked_ms);
        self.expires_ms = earliest(self.expires_ms, other.expires_ms);
        self.revoked_ms = earliest(self.revoked_ms, other.revoked_ms);
        let has_more = self.later.merge(&other.later);
        has_more || before != (self.expires_ms, self.revoked_ms)
    }

    /// True if another copy of the same key is in the same state.
    pub(super) fn is_like(&self, other: &KeyEntry) -> bool {
        (self.expires_ms, self.revoked_ms, &self.later) == (other.expires_ms, other.revoked_ms, &other.later)
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
        let mut entry = json!({
            "app": self.app.as_str(),
            "name": self.name.as_ref().map(KeyName::as_str),
            "role": self.role.as_str(),
            "hash": self.hash.to_hex(),
            "createdMs": self.created_ms,
            "expiresMs": self.expires_ms,
            "revokedMs": self.revoked_ms,
            "createsPerSecond": self.creates,
            "domains": self.domains.as_ref().map(KeyDomains::names),
        });
        self.later.add_to(&mut entry);
        entry
    }

    /// Parses JSON from [`KeyEntry::to_json`].
    ///
    /// # Errors
    /// [`Malformed`] with the first invalid field, or with an unknown one that must not be ignored.
    pub fn from_json(value: &Value) -> Result<KeyEntry, Malformed> {
        let wrong = |field: &str| Malformed(format!("the field \"{field}\" of a key is malformed"));
        let text = |field: &str| value.get(field).and_then(Value::as_str).ok_or_else(|| wrong(field));
        let number = |field: &str| match value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(number) => number.as_u64().map(Some).ok_or_else(|| wrong(field)),
        };
        let later = value.as_object().map(|members| LaterMembers::of(members, &MEMBERS)).unwrap_or_default();
        if let Some(field) = later.critical() {
            return Err(unknown_restriction(field));
        }
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
            later,
        })
    }
}

/// Describes a role that this version does not know, for the operator who has gone back to it.
fn unknown_role(role: &str) -> Malformed {
    let shown = shown(role);
    Malformed(format!(
        "the field \"role\" of a key is {shown:?}; expected one of {}. A newer carom may have written it",
        Role::names()
    ))
}

/// Describes a restriction that this version does not know, for the operator who has gone back to it.
fn unknown_restriction(field: &str) -> Malformed {
    let shown = shown(field);
    Malformed(format!(
        "the field {shown:?} of a key is unknown, and its capital letter says that it restricts the key. A newer carom may have written it"
    ))
}

/// Returns the beginning of a stored text for a message.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::registry::{Grant, Registry};

    fn app() -> AppName {
        AppName::parse("shop").unwrap()
    }

    /// A registry with one key of this version.
    fn with_a_key() -> Registry {
        let mut registry = Registry::default();
        let (role, name, creates, domains) = (Role::WriteOwn, KeyName::parse("Till 1"), NonZeroU32::new(7), None);
        registry.add(Grant { app: app(), name, role, expires_ms: None, creates, domains }, 1).unwrap();
        registry
    }

    /// The stored form of the only key.
    fn stored(registry: &Registry) -> Value {
        let entries = registry.entries();
        assert_eq!(entries.len(), 1);
        entries[0].to_json()
    }

    /// A registry whose key is that of another one, with a property that only a later version knows.
    fn with_a_property(registry: &Registry, name: &str, value: Value) -> Result<Registry, Malformed> {
        let mut entry = stored(registry);
        entry[name] = value;
        Ok(Registry::of(vec![KeyEntry::from_json(&entry)?], false))
    }

    /// A registry whose key has a note of a later version, and the same registry without it.
    fn of_a_later_version() -> (Registry, Registry) {
        let without = with_a_key();
        (with_a_property(&without, "note", json!({"text": "by the door"})).unwrap(), without)
    }

    #[test]
    fn all_written_members_are_known() {
        let entry = stored(&with_a_key());
        let written: Vec<&String> = entry.as_object().unwrap().keys().collect();
        assert_eq!(written.len(), MEMBERS.len());
        assert!(written.iter().all(|name| MEMBERS.contains(&name.as_str())), "{written:?}");
    }

    #[test]
    fn properties_of_a_later_version_are_kept() {
        let (later, without) = of_a_later_version();
        assert_eq!(stored(&later)["note"], json!({"text": "by the door"}));
        let of_file = Registry::from_text(later.to_text().as_bytes()).unwrap();
        assert_eq!(stored(&of_file), stored(&later));
        // A node of a version that dropped them has the other copy.
        for (mine, theirs) in [(&without, &later), (&later, &without)] {
            let mut both = mine.clone();
            both.merge(theirs);
            assert_eq!(stored(&both), stored(&later));
            assert!(!both.merge(theirs), "nothing is new");
        }
        let lacking = without.lacking(&later, 2);
        assert_eq!(lacking.iter().map(KeyEntry::to_json).collect::<Vec<_>>(), [stored(&later)]);
        assert!(later.lacking(&without, 2).is_empty());
    }

    #[test]
    fn a_revoked_key_keeps_its_properties_and_stays_revoked() {
        let (later, mut revoked) = of_a_later_version();
        revoked.revoke_all(5);
        for (mine, theirs) in [(&revoked, &later), (&later, &revoked)] {
            let mut both = mine.clone();
            both.merge(theirs);
            assert_eq!(both.valid(6), 0);
            assert_eq!(stored(&both)["note"], stored(&later)["note"]);
        }
    }

    #[test]
    fn the_key_of_a_rotation_has_only_known_properties() {
        let (mut registry, _) = of_a_later_version();
        let old = registry.entries()[0].id();
        registry.rotate(&app(), None, 5, 9).unwrap();
        for entry in registry.entries() {
            let note = entry.to_json()["note"].clone();
            assert_eq!(note.is_null(), entry.id() != old);
        }
    }

    #[test]
    fn a_key_with_an_unknown_restriction_is_refused() {
        let registry = with_a_key();
        let refused = with_a_property(&registry, "Networks", json!(["192.0.2.0/24"])).unwrap_err();
        assert!(refused.0.contains("\"Networks\""), "{refused}");
        let text = registry.to_text().replacen("\"app\"", "\"Networks\": [], \"app\"", 1);
        assert!(Registry::from_text(text.as_bytes()).is_err());
        // A later version also writes the names of restrictions that a key does not have.
        let without = with_a_property(&registry, "Networks", Value::Null).unwrap();
        assert_eq!(without.valid(2), 1);
    }
}
