//! The registry of all API keys, which merges with other copies of itself.
//!
//! Keys are added, and afterwards only lose validity: an expiry comes nearer, or the key is revoked. So concurrent
//! writers converge in whatever order their copies merge. Writers are the command line, nodes of a partitioned fleet,
//! and a Redis that has lost data. A revoked key stays as a tombstone.
//!
//! [`Registry::prune`] drops keys that ended long ago. The registry still records that it has had keys. So an API that
//! has required a key once stays closed after its last key was pruned.

mod entry;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::{Value, json};

pub use entry::KeyEntry;
use entry::earliest;

use super::key::{ApiKey, ApiKeyHash};
use super::{AppName, KeyDomains, KeyName, Role};
use crate::formats::json_file::{self, Malformed};
use crate::formats::later_members::LaterMembers;
use carom_limits::{ENDED_KEY_TIME_MAX_MS, ENDED_KEYS_MAX, VALID_KEYS_MAX};

/// The properties of a new key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The app that will own the key.
    pub app: AppName,
    /// The name by which people recognise the key; `None` for none.
    pub name: Option<KeyName>,
    /// The role of the key.
    pub role: Role,
    /// The expiry, in milliseconds since 1970 UTC; `None` for none.
    pub expires_ms: Option<u64>,
    /// Creates per second that the app is limited to; `None` for the limit of the settings.
    pub creates: Option<NonZeroU32>,
    /// The domains that the key is limited to; `None` for all.
    pub domains: Option<KeyDomains>,
}

/// The reason for which a change of the registry was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The registry has [`VALID_KEYS_MAX`] valid keys.
    Full,
    /// The app does not exist, or has no valid key.
    NoApp(AppName),
    /// The app has no valid key with this ID.
    NoKey(AppName, String),
    /// The app has several valid keys, and the request names none of them.
    Which(AppName, Vec<String>),
    /// The system provides no random bytes.
    NoRandom,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Full => write!(f, "the maximum of {VALID_KEYS_MAX} valid keys is reached; revoke one first"),
            Refusal::NoApp(app) => write!(f, "the app {app} has no valid key"),
            Refusal::NoKey(app, id) => write!(f, "the app {app} has no valid key {id}"),
            Refusal::Which(app, ids) => {
                write!(f, "the app {app} has {} valid keys; choose one of {}", ids.len(), ids.join(", "))
            }
            Refusal::NoRandom => f.write_str("the operating system cannot provide random bytes for a key"),
        }
    }
}

/// All API keys, valid or ended.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// The keys by the hexadecimal form of their hashes.
    entries: BTreeMap<String, KeyEntry>,
    /// True once a key was added, even if it has been pruned since.
    had_keys: bool,
}

impl Registry {
    /// Returns all keys, grouped by app, the oldest of each app first.
    pub fn entries(&self) -> Vec<&KeyEntry> {
        let mut entries: Vec<&KeyEntry> = self.entries.values().collect();
        entries.sort_by_key(|entry| (entry.app.clone(), entry.created_ms, entry.id()));
        entries
    }

    /// True once a key was added. From then on the API requires a key, even if all of them have ended.
    pub fn had_keys(&self) -> bool {
        self.had_keys
    }

    /// True if the registry has no key, valid or ended.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if the registry has the key with that hash, in its hexadecimal form.
    pub fn has(&self, hash: &str) -> bool {
        self.entries.contains_key(hash)
    }

    /// Returns the number of keys, valid or ended.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Merges another copy of the registry. Returns true if anything changed.
    pub fn merge(&mut self, other: &Registry) -> bool {
        let mut is_more = other.had_keys && !self.had_keys;
        self.had_keys |= other.had_keys;
        for (hash, entry) in &other.entries {
            is_more |= match self.entries.get_mut(hash) {
                Some(mine) => mine.merge(entry),
                None => self.entries.insert(hash.clone(), entry.clone()).is_none(),
            };
        }
        is_more
    }

    /// Drops the keys that ended more than [`ENDED_KEY_TIME_MAX_MS`] ago. Of more than [`ENDED_KEYS_MAX`] ended keys,
    /// it drops those that ended first. Valid keys stay. Returns true if it dropped any.
    pub fn prune(&mut self, now_ms: u64) -> bool {
        let mut ended: Vec<(u64, &String)> = self
            .entries
            .iter()
            .filter_map(|(hash, entry)| Some((entry.end_ms().filter(|end| *end <= now_ms)?, hash)))
            .collect();
        // The hash breaks ties, so that every copy of the registry drops the same keys.
        ended.sort_unstable_by(|one, other| other.cmp(one));
        let is_dropped =
            |at: usize, end_ms: u64| at >= ENDED_KEYS_MAX || end_ms.saturating_add(ENDED_KEY_TIME_MAX_MS) <= now_ms;
        let dropped = ended.iter().enumerate().filter(|(at, (end_ms, _))| is_dropped(*at, *end_ms));
        let dropped: Vec<String> = dropped.map(|(_, (_, hash))| (*hash).clone()).collect();
        for hash in &dropped {
            self.entries.remove(hash);
        }
        !dropped.is_empty()
    }

    /// Returns this registry after [`Registry::prune`].
    #[must_use]
    pub fn pruned(mut self, now_ms: u64) -> Registry {
        self.prune(now_ms);
        self
    }

    /// Returns the entries that another copy lacks or has in an older state. Keys that [`Registry::prune`] drops are
    /// not among them.
    pub fn lacking(&self, other: &Registry, now_ms: u64) -> Vec<KeyEntry> {
        let mut both = self.clone();
        both.merge(other);
        both.prune(now_ms);
        let knows = |hash: &String, entry: &KeyEntry| self.entries.get(hash).is_some_and(|mine| mine.is_like(entry));
        both.entries.into_iter().filter(|(hash, entry)| !knows(hash, entry)).map(|(_, entry)| entry).collect()
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`Refusal::Full`] if there are [`VALID_KEYS_MAX`] valid keys (ended ones do not count), or
    /// [`Refusal::NoRandom`] if the system provides no random bytes.
    pub fn add(&mut self, grant: Grant, now_ms: u64) -> Result<ApiKey, Refusal> {
        self.add_beside(grant, now_ms, 0)
    }

    /// Adds a key while `replaced` of the valid ones are about to be revoked.
    fn add_beside(&mut self, grant: Grant, now_ms: u64, replaced: usize) -> Result<ApiKey, Refusal> {
        if self.valid(now_ms) - replaced >= VALID_KEYS_MAX {
            return Err(Refusal::Full);
        }
        let key = ApiKey::generate().map_err(|_| Refusal::NoRandom)?;
        let Grant { app, name, role, expires_ms, creates, domains } = grant;
        let (hash, created_ms, revoked_ms, later) = (key.hash(), now_ms, None, LaterMembers::default());
        let entry = KeyEntry { app, name, role, hash, created_ms, expires_ms, revoked_ms, creates, domains, later };
        self.entries.insert(hash.to_hex(), entry);
        self.had_keys = true;
        Ok(key)
    }

    /// Revokes the valid keys of an app, or only the one with this ID. Returns the IDs of the revoked keys.
    ///
    /// # Errors
    /// [`Refusal::NoApp`] or [`Refusal::NoKey`] if no valid key matches.
    pub fn revoke(&mut self, app: &AppName, id: Option<&str>, now_ms: u64) -> Result<Vec<String>, Refusal> {
        let mut revoked = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.app == *app && entry.is_valid(now_ms)) {
            if id.is_none_or(|id| entry.id() == id) {
                entry.revoked_ms = Some(now_ms);
                revoked.push(entry.id());
            }
        }
        match (revoked.is_empty(), id) {
            (false, _) => Ok(revoked),
            (true, Some(id)) => Err(Refusal::NoKey(app.clone(), id.to_owned())),
            (true, None) => Err(Refusal::NoApp(app.clone())),
        }
    }

    /// Revokes all valid keys. Returns their number.
    pub fn revoke_all(&mut self, now_ms: u64) -> usize {
        let valid = self.entries.values_mut().filter(|entry| entry.is_valid(now_ms));
        valid.map(|entry| entry.revoked_ms = Some(now_ms)).count()
    }

    /// Returns the number of valid keys.
    pub fn valid(&self, now_ms: u64) -> usize {
        self.entries.values().filter(|entry| entry.is_valid(now_ms)).count()
    }

    /// Adds a key that replaces another one, which stays valid until `until_ms` at the latest. Returns the new key and
    /// the ID of the old one.
    ///
    /// # Errors
    /// A [`Refusal`] if no valid key matches, if several match, or if the new key cannot be added.
    pub fn rotate(
        &mut self,
        app: &AppName,
        id: Option<&str>,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<(ApiKey, String), Refusal> {
        let valid: Vec<&KeyEntry> =
            self.entries().into_iter().filter(|it| it.app == *app && it.is_valid(now_ms)).collect();
        // Keys within the grace period of an earlier rotation are excluded.
        let lasting: Vec<&KeyEntry> = valid.iter().copied().filter(|entry| entry.expires_ms.is_none()).collect();
        let meant = match id {
            Some(id) => *valid
                .iter()
                .find(|entry| entry.id() == id)
                .ok_or_else(|| Refusal::NoKey(app.clone(), id.to_owned()))?,
            None => match (&valid[..], &lasting[..]) {
                ([], _) => return Err(Refusal::NoApp(app.clone())),
                ([one], _) | (_, [one]) => one,
                _ => return Err(Refusal::Which(app.clone(), valid.iter().map(|entry| entry.id()).collect())),
            },
        };
        let (old, hash) = (meant.id(), meant.hash.to_hex());
        // If the old key had an expiry, the new one gets the same lifetime.
        let expires_ms = meant.expires_ms.map(|end_ms| now_ms.saturating_add(end_ms.saturating_sub(meant.created_ms)));
        let (name, role, creates, domains) = (meant.name.clone(), meant.role, meant.creates, meant.domains.clone());
        let grant = Grant { app: app.clone(), name, role, expires_ms, creates, domains };
        let key = self.add_beside(grant, now_ms, usize::from(until_ms <= now_ms))?;
        if let Some(entry) = self.entries.get_mut(&hash) {
            if until_ms <= now_ms {
                // Revocation takes effect at once on all nodes, even if their clocks differ.
                entry.revoked_ms = Some(now_ms);
            } else {
                entry.expires_ms = earliest(entry.expires_ms, Some(until_ms));
            }
        }
        Ok((key, old))
    }

    /// Returns the content of the registry file.
    pub fn to_text(&self) -> String {
        let keys: Vec<Value> = self.entries.values().map(KeyEntry::to_json).collect();
        json_file::to_text(&json!({"version": 1, "hadKeys": self.had_keys, "keys": keys}))
    }

    /// Parses text from [`Registry::to_text`].
    ///
    /// # Errors
    /// [`Malformed`] with a description.
    pub fn from_text(text: &[u8]) -> Result<Registry, Malformed> {
        let value = json_file::from_text(text)?;
        let keys = value.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or_else(|| Malformed("the list \"keys\" is missing".to_owned()))?;
        let entries = keys.iter().map(KeyEntry::from_json).collect::<Result<Vec<KeyEntry>, Malformed>>()?;
        // Earlier versions do not write this field.
        let had_keys = match value.get("hadKeys") {
            None => false,
            Some(mark) => mark.as_bool().ok_or_else(|| Malformed("\"hadKeys\" is not true or false".to_owned()))?,
        };
        Ok(Registry::of(entries, had_keys))
    }

    /// Builds a registry from entries; `had_keys` is true if it has had others.
    pub fn of(entries: Vec<KeyEntry>, had_keys: bool) -> Registry {
        let mut registry = Registry { entries: BTreeMap::new(), had_keys };
        for entry in entries {
            let one = Registry { entries: BTreeMap::from([(entry.hash.to_hex(), entry)]), had_keys: true };
            registry.merge(&one);
        }
        registry
    }
}

/// The API keys in the form in which cores look them up. It never changes: cores get a new one by message.
#[derive(Debug)]
pub struct Keyring<A> {
    /// True if unknown keys may exist: the API then answers every request with 503.
    is_unsure: bool,
    /// True once a key was added: the API then requires one.
    had_keys: bool,
    keys: HashMap<u64, Vec<(KeyEntry, Arc<A>)>>,
    /// A dummy entry, compared if nothing else matches, so that a miss takes as long as a hit.
    nobody: Option<(KeyEntry, Arc<A>)>,
}

impl<A> Default for Keyring<A> {
    fn default() -> Keyring<A> {
        Keyring { is_unsure: false, had_keys: false, keys: HashMap::new(), nobody: None }
    }
}

impl<A> Keyring<A> {
    /// Builds the keyring of a registry. `about` supplies the state of each app.
    pub fn of(registry: &Registry, mut about: impl FnMut(&AppName) -> Arc<A>) -> Keyring<A> {
        let mut keys: HashMap<u64, Vec<(KeyEntry, Arc<A>)>> = HashMap::new();
        // The rate limit belongs to the app: its newest key with a rate decides.
        let mut rates: HashMap<&AppName, Option<NonZeroU32>> = HashMap::new();
        for entry in registry.entries() {
            if entry.creates.is_some() && entry.revoked_ms.is_none() {
                rates.insert(&entry.app, entry.creates);
            }
        }
        for entry in registry.entries.values() {
            let creates = rates.get(&entry.app).copied().flatten();
            let entry = KeyEntry { creates, ..entry.clone() };
            keys.entry(entry.hash.place()).or_default().push((entry.clone(), about(&entry.app)));
        }
        let nobody = keys.values().next().and_then(|some| some.first()).cloned();
        Keyring { is_unsure: false, had_keys: registry.had_keys, keys, nobody }
    }

    /// Returns the keyring of a node that does not know yet which keys exist.
    pub fn unsure() -> Keyring<A> {
        Keyring { is_unsure: true, ..Keyring::default() }
    }

    /// True if unknown keys may exist: the API then answers every request with 503.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Iterates over all keys, in no order.
    pub fn each(&self) -> impl Iterator<Item = (&KeyEntry, &Arc<A>)> {
        self.keys.values().flatten().map(|(entry, about)| (entry, about))
    }

    /// Returns all keys, the oldest first.
    pub fn all(&self) -> Vec<(&KeyEntry, &Arc<A>)> {
        let mut all: Vec<(&KeyEntry, &Arc<A>)> = self.each().collect();
        all.sort_by_cached_key(|(entry, _)| (entry.created_ms, entry.id()));
        all
    }

    /// True once a key was added. From then on the API requires a key, even if all of them have ended.
    pub fn had_keys(&self) -> bool {
        self.had_keys
    }

    /// Returns the key with this text, if it is valid now. Takes the same time for any text.
    pub fn find(&self, text: &[u8], now_ms: u64) -> Option<(&KeyEntry, &Arc<A>)> {
        self.find_hash(ApiKeyHash::of(text), now_ms)
    }

    /// Returns the key with that hash, if it is valid now.
    pub fn find_hash(&self, hash: ApiKeyHash, now_ms: u64) -> Option<(&KeyEntry, &Arc<A>)> {
        let candidates = self.keys.get(&hash.place()).map_or(&[][..], |some| &some[..]);
        let candidates = candidates.iter().chain(self.nobody.iter().filter(|_| candidates.is_empty()));
        let mut found = None;
        for (entry, about) in candidates {
            if entry.hash.is(hash) && entry.is_valid(now_ms) {
                found = Some((entry, about));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 86_400_000;

    fn app(name: &str) -> AppName {
        AppName::parse(name).unwrap()
    }

    fn grant(name: &str) -> Grant {
        Grant {
            app: app(name),
            name: KeyName::parse("Till 1"),
            role: Role::WriteOwn,
            expires_ms: None,
            creates: NonZeroU32::new(7),
            domains: KeyDomains::from_names(["DEFAULT", "go.test"]),
        }
    }

    fn keyring(registry: &Registry) -> Keyring<String> {
        Keyring::of(registry, |app| Arc::new(app.to_string()))
    }

    fn holds(registry: &Registry, key: &ApiKey, now_ms: u64) -> bool {
        keyring(registry).find(key.as_str().as_bytes(), now_ms).is_some()
    }

    #[test]
    fn a_key_holds_until_it_ends_or_is_revoked() {
        let mut registry = Registry::default();
        let first = registry.add(grant("shop"), 0).unwrap();
        let short = registry.add(Grant { expires_ms: Some(DAY), ..grant("shop") }, 0).unwrap();
        assert!(holds(&registry, &first, 2 * DAY));
        assert!(holds(&registry, &short, DAY - 1));
        assert!(!holds(&registry, &short, DAY));
        let (entry, about) =
            keyring(&registry).find(first.as_str().as_bytes(), 0).map(|(a, b)| (a.clone(), b.clone())).unwrap();
        assert_eq!((entry.role, entry.creates, &**about), (Role::WriteOwn, NonZeroU32::new(7), "shop"));
        assert_eq!(registry.revoke(&app("shop"), Some(&first.hash().id()), 5), Ok(vec![first.hash().id()]));
        assert!(!holds(&registry, &first, 6));
        assert!(holds(&registry, &short, 6));
        assert_eq!(registry.revoke(&app("shop"), None, 7), Ok(vec![short.hash().id()]));
        assert_eq!(registry.revoke(&app("shop"), None, 8), Err(Refusal::NoApp(app("shop"))));
        assert!(keyring(&registry).find(b"", 0).is_none());
        assert!(keyring(&registry).had_keys());
        assert!(keyring(&Registry::default()).find(b"", 0).is_none());
    }

    #[test]
    fn a_key_that_is_rotated_has_some_time_left() {
        let mut registry = Registry::default();
        let old = registry.add(grant("shop"), 0).unwrap();
        let (new, id) = registry.rotate(&app("shop"), None, 10, 20).unwrap();
        assert_eq!(id, old.hash().id());
        assert!(registry.entries().iter().all(|entry| entry.name == KeyName::parse("Till 1")));
        assert!(holds(&registry, &old, 19));
        assert!(!holds(&registry, &old, 20));
        assert!(holds(&registry, &new, DAY));
        // The old key is still valid, but only the newer one qualifies.
        let (newer, id) = registry.rotate(&app("shop"), None, 11, 11).unwrap();
        assert_eq!(id, new.hash().id());
        assert!(!holds(&registry, &new, 11));
        assert!(holds(&registry, &newer, 11));
        registry.add(grant("shop"), 12).unwrap();
        assert!(matches!(registry.rotate(&app("shop"), None, 13, 13), Err(Refusal::Which(_, ids)) if ids.len() == 3));
        assert!(matches!(registry.rotate(&app("none"), None, 13, 13), Err(Refusal::NoApp(_))));
        assert!(matches!(registry.rotate(&app("shop"), Some("x"), 13, 13), Err(Refusal::NoKey(..))));
        // A key with an expiry is replaced by one with the same lifetime.
        let ending = registry.add(Grant { expires_ms: Some(100 + DAY), ..grant("other") }, 100).unwrap();
        let (next, _) = registry.rotate(&app("other"), None, 200, 300).unwrap();
        assert!(!holds(&registry, &ending, 300));
        assert!(holds(&registry, &next, 199 + DAY));
        assert!(!holds(&registry, &next, 200 + DAY));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else() {
        let mut registry = Registry::default();
        registry.add(Grant { expires_ms: Some(DAY), creates: None, ..grant("a") }, 1_500).unwrap();
        registry.add(grant("b"), 2_000).unwrap();
        registry.revoke(&app("b"), None, 3_000).unwrap();
        let text = registry.to_text();
        assert_eq!(Registry::from_text(text.as_bytes()).unwrap().to_text(), text);
        assert!(text.contains("\"name\": \"Till 1\""), "{text}");
        // Earlier versions write no names.
        let nameless = text.replace("\"name\"", "\"other\"");
        assert!(Registry::from_text(nameless.as_bytes()).unwrap().entries().iter().all(|entry| entry.name.is_none()));
        for wrong in
            ["", "[]", "{}", r#"{"version": 2, "keys": []}"#, r#"{"version": 1}"#, r#"{"version": 1, "keys": [1]}"#]
        {
            assert!(Registry::from_text(wrong.as_bytes()).is_err(), "{wrong}");
        }
        for (from, to) in [
            ("write-own", "root"),
            ("Till 1", "Till\\n"),
            ("\"app\": \"a\"", "\"app\": \"A\""),
            ("1500", "\"x\""),
            (": 7", ": 0"),
        ] {
            let broken = text.replacen(from, to, 1);
            assert!(broken != text, "{from}");
            assert!(Registry::from_text(broken.as_bytes()).is_err(), "{from}");
        }
    }

    /// Builds a registry with `count` keys of the app `old`, of which the first ended at 1 ms, the next at 2 ms, and so
    /// on.
    fn ended(count: usize) -> Registry {
        let ended = |at: u64| KeyEntry {
            app: app("old"),
            name: None,
            role: Role::Read,
            hash: ApiKeyHash::of(&at.to_le_bytes()),
            created_ms: 0,
            expires_ms: Some(at),
            revoked_ms: None,
            creates: None,
            domains: None,
            later: LaterMembers::default(),
        };
        Registry::of((1..=count as u64).map(ended).collect(), false)
    }

    #[test]
    fn ended_keys_never_stop_an_add_or_a_rotation() {
        let mut registry = ended(VALID_KEYS_MAX - 1);
        let now_ms = VALID_KEYS_MAX as u64;
        registry.add(grant("shop"), now_ms).unwrap();
        registry.add(grant("other"), now_ms).expect("only one key is valid");
        for _ in 0..3 {
            registry.rotate(&app("shop"), None, now_ms, now_ms).expect("a leaked key can be replaced");
        }
    }

    #[test]
    fn a_full_registry_still_replaces_a_key() {
        let mut registry = ended(VALID_KEYS_MAX);
        registry.entries.values_mut().for_each(|entry| (entry.app, entry.expires_ms) = (app("shop"), None));
        assert_eq!(registry.add(grant("shop"), 1).map(|_| ()), Err(Refusal::Full));
        let id = registry.entries()[0].id();
        // A grace period would need room for both keys.
        assert_eq!(registry.rotate(&app("shop"), Some(&id), 1, 2).map(|_| ()), Err(Refusal::Full));
        assert_eq!(registry.rotate(&app("shop"), Some(&id), 1, 1).map(|(_, old)| old), Ok(id));
    }

    #[test]
    fn pruning_keeps_valid_keys_the_latest_ended_ones_and_the_mark() {
        let mut registry = ended(ENDED_KEYS_MAX + 5);
        let now_ms = ENDED_KEYS_MAX as u64 + 5;
        registry.add(grant("shop"), now_ms).unwrap();
        registry.add(Grant { expires_ms: Some(now_ms + 1), ..grant("soon") }, now_ms).unwrap();
        let before = registry.clone();
        assert!(registry.prune(now_ms));
        assert!(!registry.prune(now_ms));
        assert_eq!(registry.len(), ENDED_KEYS_MAX + 2);
        assert!(registry.entries().iter().all(|entry| entry.end_ms().is_none_or(|end_ms| end_ms > 5)));
        assert_eq!(registry.lacking(&before, now_ms).len(), 0, "an account without the pruned keys lacks nothing");
        // All keys end, and age.
        registry.revoke(&app("shop"), None, now_ms).unwrap();
        let last_ms = now_ms + ENDED_KEY_TIME_MAX_MS;
        assert_eq!(registry.clone().pruned(last_ms - 1).len(), 3);
        registry.prune(last_ms + 1);
        assert!(registry.is_empty());
        assert!(registry.had_keys());
        assert!(keyring(&registry).had_keys());
        let again = Registry::from_text(registry.to_text().as_bytes()).unwrap();
        assert!(again.is_empty());
        assert!(again.had_keys());
        let mut other = Registry::default();
        assert!(other.merge(&again));
        assert!(other.had_keys());
        assert!(!other.merge(&again));
    }

    proptest! {
        /// Several writers that each know some of the keys, and change them.
        #[test]
        fn accounts_agree_in_whatever_order_they_meet(steps in proptest::collection::vec((0..3usize, 0..4u8, 0..4u64), 0..30)) {
            let mut accounts = vec![Registry::default(); 3];
            for (who, what, now_ms) in steps {
                let account = &mut accounts[who];
                match what {
                    0 => drop(account.add(grant("a"), now_ms)),
                    1 => drop(account.revoke(&app("a"), None, now_ms)),
                    2 => drop(account.rotate(&app("a"), None, now_ms, now_ms + 5)),
                    _ => {
                        let other = accounts[(who + 1) % 3].clone();
                        accounts[who].merge(&other);
                    }
                }
            }
            let merged = |order: [usize; 3]| {
                let mut all = Registry::default();
                order.iter().for_each(|at| _ = all.merge(&accounts[*at]));
                all
            };
            let all = merged([0, 1, 2]);
            prop_assert_eq!(all.to_text(), merged([2, 0, 1]).to_text());
            let mut again = all.clone();
            prop_assert!(!again.merge(&accounts[1]), "nothing new");
            // A key that one copy has revoked is invalid in all of them.
            for account in &accounts {
                for entry in account.entries().into_iter().filter(|entry| entry.revoked_ms.is_some()) {
                    prop_assert!(!all.entries().iter().any(|other| other.id() == entry.id() && other.is_valid(0)));
                }
            }
        }
    }
}
