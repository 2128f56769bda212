//! The worker of API keys. One thread merges the keys of the data directory ([`file`]), the requests of the admin
//! listener, and the keys that other nodes of a fleet know. It sends each core the whole set of keys.
//!
//! Registries of keys only grow (see [`carom_model::access::registry`]), so a merge adds what each side lacks. Redis is
//! one more registry: a node that was away, or a Redis that has lost its data, catches up within two seconds.

pub mod file;
mod rates;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::file::{FileError, Stamp};
use self::rates::RateShares;
use crate::bridge::{AppsAnswer, AppsOrder, AppsQueue, AppsRequest, Mailboxes, ToCore};
use crate::services::exchanges::{self, ExchangeReports, ExchangingWorker, SHARE_TIME_MAX};
use crate::services::replication::redis::{FieldUpdate, Redis, RedisError, repeat_until_stored};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_model::access::AppName;
use carom_model::access::registry::{KeyEntry, Keyring, Registry};
use carom_model::access::usage::App;
use carom_model::formats::json_file;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Interval between two checks of the file.
const CHECK_FILE_EVERY: Duration = Duration::from_millis(250);

/// Interval at which keys that ended long ago are dropped if nothing else changes.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// Capacity of the request queue.
const QUEUE_LEN: usize = 64;

/// Inputs of the thread.
pub struct AppsSetup {
    /// The data directory, which has the file.
    pub data_dir: PathBuf,
    /// The keys that the file had at the start.
    pub registry: Registry,
    /// True if the fleet may have keys that this node does not know yet.
    pub is_unsure: bool,
    /// The Redis that the fleet shares; `None` for a single node.
    pub redis: Option<Redis>,
    /// The mailboxes of all cores.
    pub mailboxes: Mailboxes,
    /// The alarms and counters of the node.
    pub stats: Arc<NodeStats>,
}

/// Sends the keys to the cores, and starts the thread that keeps them up to date. It ends when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: AppsSetup) -> io::Result<(AppsQueue, JoinHandle<()>)> {
    let (queue, orders) = sync_channel(QUEUE_LEN);
    // No stamp, and not stored: the file may have changed since it was read, and the fleet may have known more.
    let mut worker = KeyWorker::new(setup);
    worker.publish();
    let thread = threads::start(Priority::Awaited, "apps", move || exchanges::run(worker, &orders))?;
    Ok((queue, thread))
}

struct KeyWorker {
    setup: AppsSetup,
    /// The apps with their counters, which survive a change of keys.
    apps: HashMap<AppName, Arc<App>>,
    /// The stamp of the file when it was last read or written.
    stamp: Option<Stamp>,
    /// True if the file has all keys that this node knows.
    is_stored: bool,
    /// True if an order or the file has brought keys that Redis may lack. The next exchange with it is due at once then.
    has_news: bool,
    /// The time when keys that ended long ago were last dropped.
    pruned: Instant,
    /// The report of keys in Redis that cannot be read.
    reports: ExchangeReports,
    rates: RateShares,
    versions: Versions<Keyring<App>>,
}

impl ExchangingWorker for KeyWorker {
    type Order = AppsOrder;

    const REFRESH_EVERY: Option<Duration> = Some(CHECK_FILE_EVERY);

    fn sweep(&mut self) {
        self.versions.sweep();
    }

    fn is_in_fleet(&self) -> bool {
        self.setup.redis.is_some()
    }

    fn refresh(&mut self) -> bool {
        self.doubt_file(Instant::now());
        self.look();
        std::mem::take(&mut self.has_news)
    }

    fn share(&mut self) -> bool {
        let Some(redis) = &mut self.setup.redis else { return false };
        let fleet = &self.setup.stats.fleet;
        if !fleet.may_exchange(&fleet.has_keys) {
            return false;
        }
        let alarms = &self.setup.stats.alarms;
        match share(redis, &self.setup.registry) {
            Ok(KeyExchange { theirs, pruned, unread }) => {
                self.reports.take_unread(unread.as_deref());
                match redis.remove_keys(&pruned, SHARE_TIME_MAX) {
                    Err(RedisError::Refused(what)) => alarms.raise(Alarm::AppsUnshared, refused(&what)),
                    Ok(()) | Err(RedisError::Unavailable { .. }) => alarms.clear(Alarm::AppsUnshared),
                }
                let was_unsure = std::mem::take(&mut self.setup.is_unsure);
                let is_more = self.setup.registry.merge(&theirs);
                if is_more || was_unsure {
                    self.is_stored = false;
                    self.publish();
                    self.look();
                }
            }
            // An unreachable Redis has alarms of its own in the fleet's threads.
            Err(RedisError::Unavailable { what, .. }) => {
                tracing::debug!(%what, "the API keys of the fleet cannot be read");
            }
            Err(RedisError::Refused(what)) => alarms.raise(Alarm::AppsUnshared, refused(&what)),
        }
        let stats = &self.setup.stats;
        // Also after a failure: a Redis that fails must not keep a node from being ready.
        self.setup.mailboxes.post_exchange_fence(stats, |fleet| &fleet.has_keys);
        let Some(redis) = &mut self.setup.redis else { return false };
        if let Err(error) = self.rates.exchange(redis, &self.apps, stats, SHARE_TIME_MAX) {
            tracing::debug!(%error, "the rate limits of the fleet cannot be divided again");
        }
        true
    }

    fn serve(&mut self, order: AppsOrder) {
        let AppsOrder { request, ticket } = order;
        let answer = self.carry_out(request);
        self.setup.mailboxes.answer(ticket, answer);
    }
}

impl KeyWorker {
    fn new(setup: AppsSetup) -> KeyWorker {
        KeyWorker {
            setup,
            apps: HashMap::new(),
            stamp: None,
            is_stored: false,
            has_news: false,
            pruned: Instant::now(),
            reports: ExchangeReports::new("API keys", "apps"),
            rates: RateShares::default(),
            versions: Versions::default(),
        }
    }

    /// Marks the file as due for a rewrite every [`PRUNE_EVERY`], because keys in it may have ended long ago since it
    /// was written.
    fn doubt_file(&mut self, now: Instant) {
        if now.duration_since(self.pruned) >= PRUNE_EVERY {
            self.pruned = now;
            self.is_stored = false;
        }
    }

    /// Carries out a request. The result is in the file when this returns.
    fn carry_out(&mut self, request: AppsRequest) -> AppsAnswer {
        let now_ms = unix_ms();
        let done = self.update(|registry| request.apply(registry, now_ms));
        match done {
            Ok(answer) => answer,
            Err(error) => AppsAnswer::Failed(format!("{} cannot be written: {error}", file::FILE_NAME)),
        }
    }

    /// Merges the known keys into the file, applies `change`, and adopts the result.
    fn update<T>(&mut self, change: impl FnOnce(&mut Registry) -> T) -> Result<T, FileError> {
        let known = self.setup.registry.clone().pruned(unix_ms());
        // A file without keys records that the fleet was reached and has none.
        let must_exist = self.setup.redis.is_some() && !self.setup.is_unsure;
        let ((done, all), stamp) = file::update(&self.setup.data_dir, must_exist, |registry| {
            registry.merge(&known);
            let done = change(registry);
            (done, registry.clone())
        })?;
        (self.stamp, self.is_stored) = (stamp, true);
        self.setup.stats.alarms.clear(Alarm::AppsUnreadable);
        self.take(&all);
        Ok(done)
    }

    /// Adopts a registry that has all keys this node knows, except pruned ones.
    fn take(&mut self, all: &Registry) {
        self.setup.registry.prune(unix_ms());
        if self.setup.registry.merge(all) {
            self.publish();
            self.has_news = true;
        }
    }

    /// Reads the file again if another process has changed it.
    fn look(&mut self) {
        let stamp = file::stamp(&self.setup.data_dir);
        if stamp == self.stamp && self.is_stored {
            return;
        }
        match self.update(|_| ()) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, FileError::Malformed(_)) {
                    // A malformed file is read again only once its stamp changes.
                    (self.stamp, self.is_stored) = (stamp, true);
                }
                let text = format!(
                    "the API keys in {} cannot be read or written ({error}); the known keys stay valid",
                    file::FILE_NAME
                );
                self.setup.stats.alarms.raise(Alarm::AppsUnreadable, text);
            }
        }
    }

    fn publish(&mut self) {
        let apps = &mut self.apps;
        let about =
            |name: &AppName| Arc::clone(apps.entry(name.clone()).or_insert_with(|| Arc::new(App::new(name.clone()))));
        let keys = if self.setup.is_unsure && !self.setup.registry.had_keys() {
            Arc::new(Keyring::unsure())
        } else {
            Arc::new(Keyring::of(&self.setup.registry, about))
        };
        self.versions.hold(&keys);
        for mailbox in self.setup.mailboxes.all() {
            mailbox.post(ToCore::Keys(Arc::clone(&keys)));
        }
    }
}

fn refused(what: &str) -> String {
    format!(
        "Redis rejects a command on the API keys ({what}); keys created or revoked on one node may not reach the others; allow the Redis user of the node HGETALL, HGET, HSET and HDEL on the key PREFIX:apps (see fleet.prefix)"
    )
}

/// A field of the hash in Redis which says that the fleet has had keys; all other fields are hashes of keys.
const HAD_KEYS_FIELD: &str = "had-keys";

/// The result of an exchange of keys with Redis.
pub struct KeyExchange {
    /// The keys that Redis had, without those that ended long ago.
    pub theirs: Registry,
    /// The hashes in Redis of keys that ended long ago.
    pub pruned: Vec<String>,
    /// One of the fields in Redis that this version cannot read. `None` if it can read all.
    pub unread: Option<String>,
}

/// The keys in Redis, as far as this version can read them.
struct HeldKeys {
    all: Registry,
    /// True if Redis says that the fleet has had keys.
    had_mark: bool,
    /// The fields that this version cannot read.
    unread: BTreeSet<String>,
}

/// Gives Redis the keys that it lacks, and returns those that it has. Each of the requests may take up to two seconds.
///
/// # Errors
/// If Redis cannot be reached or refuses a request.
pub fn share(redis: &mut Redis, mine: &Registry) -> Result<KeyExchange, RedisError> {
    repeat_until_stored(|| share_once(redis, mine))
}

/// Makes one exchange. Returns false beside its result if another node has changed a key meanwhile, so that Redis may lack
/// what this node knows of it.
fn share_once(redis: &mut Redis, mine: &Registry) -> Result<(KeyExchange, bool), RedisError> {
    let held: HashMap<String, Vec<u8>> = redis.keys(SHARE_TIME_MAX)?.into_iter().collect();
    let now_ms = unix_ms();
    let keys = HeldKeys::read(&held);
    let hashes: Vec<String> = keys.all.entries().into_iter().map(|entry| entry.hash.to_hex()).collect();
    let mut both = keys.all.clone();
    both.merge(mine);
    both.prune(now_ms);
    let pruned = hashes.into_iter().filter(|hash| !both.has(hash)).collect();
    let update = |field: String, value: &Value| {
        let before = held.get(&field).cloned().unwrap_or_default();
        FieldUpdate { field, before, after: value.to_string().into_bytes() }
    };
    let lacking = keys.lacking(mine, now_ms);
    let mut lacks: Vec<FieldUpdate> =
        lacking.iter().map(|entry| update(entry.hash.to_hex(), &entry.to_json())).collect();
    if both.had_keys() && !keys.had_mark {
        lacks.push(update(HAD_KEYS_FIELD.to_owned(), &json!({"hadKeys": true})));
    }
    let is_stored = lacks.is_empty() || redis.update_keys(&lacks, SHARE_TIME_MAX)?;
    let HeldKeys { all, unread, .. } = keys;
    let exchange = KeyExchange { theirs: all.pruned(now_ms), pruned, unread: unread.into_iter().next() };
    Ok((exchange, is_stored))
}

impl HeldKeys {
    /// Parses the fields of the hash in Redis.
    fn read(held: &HashMap<String, Vec<u8>>) -> HeldKeys {
        let (mut entries, mut had_mark, mut unread) = (Vec::new(), false, BTreeSet::new());
        for (field, text) in held {
            let value = json_file::entry(text);
            if value.get("hadKeys") == Some(&json!(true)) {
                had_mark = true;
                continue;
            }
            match KeyEntry::from_json(&value) {
                Ok(entry) => entries.push(entry),
                Err(what) => {
                    tracing::debug!(%what, "an API key in Redis cannot be read and is ignored");
                    unread.insert(field.clone());
                }
            }
        }
        HeldKeys { all: Registry::of(entries, had_mark), had_mark, unread }
    }

    /// Returns the entries that Redis lacks or has in an older state. An entry there that this version cannot read may be later,
    /// so it stays, unless this node knows that the key is revoked. A revocation is final.
    fn lacking(&self, mine: &Registry, now_ms: u64) -> Vec<KeyEntry> {
        let may_write = |entry: &KeyEntry| entry.revoked_ms.is_some() || !self.unread.contains(&entry.hash.to_hex());
        self.all.lacking(mine, now_ms).into_iter().filter(may_write).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::services::testing::{TestNode, unreachable_redis};
    use carom_model::access::Role;
    use carom_model::access::registry::Grant;

    fn worker(dir: &std::path::Path) -> (KeyWorker, TestNode) {
        let node = TestNode::new(dir, 1);
        let setup = AppsSetup {
            data_dir: dir.to_owned(),
            registry: Registry::default(),
            is_unsure: false,
            redis: None,
            mailboxes: node.mailboxes.clone(),
            stats: Arc::clone(&node.stats),
        };
        (KeyWorker::new(setup), node)
    }

    fn add(dir: &std::path::Path) {
        let app = AppName::parse("shop").unwrap();
        let grant = Grant { app, name: None, role: Role::Read, expires_ms: None, creates: None, domains: None };
        file::update(dir, false, |registry| registry.add(grant, unix_ms()).unwrap()).unwrap();
    }

    #[test]
    fn what_a_command_does_while_a_node_starts_is_heard_of() {
        let dir = tempfile::tempdir().unwrap();
        // The registry that the worker starts with is older than this key.
        add(dir.path());
        let (mut worker, node) = worker(dir.path());
        worker.look();
        assert_eq!(worker.setup.registry.len(), 1);
        assert!(node.mail.iter().all(|mail| matches!(mail.try_recv(), Ok(ToCore::Keys(keys)) if keys.had_keys())));
        add(dir.path());
        worker.look();
        assert_eq!(worker.setup.registry.len(), 2);
        assert!(!dir.path().join("apps.json.new").exists());
    }

    fn grant(name: &str) -> Grant {
        let app = AppName::parse(name).unwrap();
        Grant { app, name: None, role: Role::Read, expires_ms: None, creates: None, domains: None }
    }

    #[test]
    fn keys_that_cannot_be_read_stay_in_redis() {
        let mut mine = Registry::default();
        mine.add(grant("shop"), 1).unwrap();
        let field = mine.entries()[0].hash.to_hex();
        let keys = HeldKeys::read(&HashMap::from([(field.clone(), b"of a later version".to_vec())]));
        assert_eq!(keys.unread, BTreeSet::from([field]));
        assert!(keys.lacking(&mine, 2).is_empty(), "the key may be revoked there");
        mine.revoke_all(2);
        assert_eq!(keys.lacking(&mine, 3).len(), 1, "nobody would hear of the revocation");
    }

    /// Returns one key, of the app `gone`, that ended 401 days ago.
    fn ended_long_ago() -> Registry {
        let mut registry = Registry::default();
        let long_ago_ms = unix_ms() - 401 * 86_400_000;
        registry.add(grant("gone"), long_ago_ms).unwrap();
        registry.revoke(&AppName::parse("gone").unwrap(), None, long_ago_ms).unwrap();
        registry
    }

    #[test]
    fn keys_that_become_old_leave_the_file_though_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(file::FILE_NAME), ended_long_ago().to_text()).unwrap();
        let (mut worker, _node) = worker(dir.path());
        let begun = worker.pruned;
        // As if the file had been read and written before the key became old.
        (worker.stamp, worker.is_stored) = (file::stamp(dir.path()), true);
        for (passed, left) in [(PRUNE_EVERY / 2, 1), (PRUNE_EVERY, 0)] {
            worker.doubt_file(begun + passed);
            worker.look();
            assert_eq!(file::read(dir.path()).unwrap().len(), left, "after {passed:?}");
        }
        assert!(file::read(dir.path()).unwrap().had_keys());
    }

    #[test]
    fn keys_that_ended_long_ago_leave_the_file_of_a_running_node() {
        let dir = tempfile::tempdir().unwrap();
        let known = ended_long_ago();
        std::fs::write(dir.path().join(file::FILE_NAME), known.to_text()).unwrap();
        let (mut worker, _node) = worker(dir.path());
        worker.setup.registry = known;
        worker.carry_out(AppsRequest::Add(grant("shop")));
        let names = |registry: &Registry| -> Vec<String> {
            registry.entries().iter().map(|entry| entry.app.to_string()).collect()
        };
        assert_eq!(names(&file::read(dir.path()).unwrap()), ["shop"], "in the file");
        assert_eq!(names(&worker.setup.registry), ["shop"], "in memory");
    }

    #[test]
    fn a_node_of_a_fleet_is_ready_after_its_first_exchange() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.setup.redis = Some(Redis::new(unreachable_redis()).unwrap());
        node.stats.fleet.has_rules.store(true, Ordering::Release);
        node.assert_ready_after_exchange(|| worker.share());
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.look();
        add(dir.path());
        // A directory in the place of the lock makes every write fail.
        let lock = dir.path().join("apps.lock");
        std::fs::remove_file(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        worker.look();
        assert_eq!((worker.setup.registry.len(), node.stats.alarms.list().len()), (0, 1));
        std::fs::remove_dir(&lock).unwrap();
        worker.look();
        assert_eq!(worker.setup.registry.len(), 1);
        assert!(node.stats.alarms.list()[0].cleared_ms.is_some());
    }
}
