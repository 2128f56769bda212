//! Who may do what, as all cores know it: one thread brings together what stands in the data directory ([`file`]), what
//! the admin listener is asked for, and what the other nodes of a fleet know, and tells each core of the keys as a whole.
//!
//! Accounts of keys only grow (see [`carom_model::access::registry`]), so bringing them together is adding what each lacks. Redis
//! is one more account: a node that was away, or a Redis that has lost its memory, catches up within two seconds.

pub mod file;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::file::{FileError, Stamp};
use crate::bridge::{AppsAnswer, AppsOrder, AppsQueue, AppsRequest, Post, StoreAnswer, ToCore};
use crate::services::replication::redis::{Redis, Trouble};
use carom_model::access::AppName;
use carom_model::access::registry::{Entry, Keyring, Registry};
use carom_model::access::usage::App;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often Redis is asked what the other nodes know.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// How often keys that ended long ago are dropped where nothing else changes.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// How long Redis may take.
const SHARE_TIME_MAX: Duration = Duration::from_secs(2);

/// Orders that may wait.
const QUEUE_LEN: usize = 64;

/// Inputs of the thread.
pub struct AppsSetup {
    /// Where the file is.
    pub data_dir: PathBuf,
    /// What stands there.
    pub registry: Registry,
    /// Whether there may be keys that only the fleet knows of.
    pub is_unsure: bool,
    /// What the nodes of a fleet share.
    pub redis: Option<Redis>,
    /// The mailboxes of all cores.
    pub post: Post,
    /// Alarms.
    pub stats: Arc<NodeStats>,
}

/// Tells the cores of the keys, and begins to keep them up to date.
///
/// The thread ends when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: AppsSetup) -> io::Result<(AppsQueue, JoinHandle<()>)> {
    let (queue, orders) = sync_channel(QUEUE_LEN);
    // What was read may be another file by now, and the fleet may have known more.
    let mut keeper =
        Keeper { setup, apps: HashMap::new(), stamp: None, is_stored: false, shared: None, pruned: Instant::now() };
    keeper.tell();
    let thread = std::thread::Builder::new().name("apps".to_owned()).spawn(move || keeper.run(&orders))?;
    Ok((queue, thread))
}

struct Keeper {
    setup: AppsSetup,
    /// What is counted of each app.
    apps: HashMap<AppName, Arc<App>>,
    /// The file that was last read.
    stamp: Option<Stamp>,
    /// Whether the file has all that is known.
    is_stored: bool,
    /// When Redis was last asked.
    shared: Option<Instant>,
    /// When keys that ended long ago were last dropped.
    pruned: Instant,
}

impl Keeper {
    fn run(mut self, orders: &Receiver<AppsOrder>) {
        loop {
            match orders.recv_timeout(LOOK_EVERY) {
                Ok(AppsOrder { request, ticket }) => {
                    let answer = self.serve(request);
                    self.setup.post.answer(ticket, StoreAnswer::Apps(Box::new(answer)));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.doubt_file(Instant::now());
            self.look();
            if self.shared.is_none_or(|then| then.elapsed() >= SHARE_EVERY) {
                self.share();
                self.shared = Some(Instant::now());
            }
        }
    }

    /// Has the file looked at from time to time: it may hold keys that have become old since it was written.
    fn doubt_file(&mut self, now: Instant) {
        if now.duration_since(self.pruned) >= PRUNE_EVERY {
            self.pruned = now;
            self.is_stored = false;
        }
    }

    /// Does what somebody asked for. What is answered stands in the file.
    fn serve(&mut self, request: AppsRequest) -> AppsAnswer {
        let now_ms = unix_ms();
        let done = self.update(|registry| request.apply(registry, now_ms));
        match done {
            Ok(answer) => answer,
            Err(error) => AppsAnswer::Failed(format!("{} cannot be written: {error}", file::FILE_NAME)),
        }
    }

    /// Changes the file, adding what is known, and takes over what stands there then.
    fn update<T>(&mut self, change: impl FnOnce(&mut Registry) -> T) -> Result<T, FileError> {
        let known = self.setup.registry.clone().pruned(unix_ms());
        // A file without keys says that the fleet was heard of, and has none.
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

    /// Takes over another account that has all that this one knows, but for pruned keys.
    fn take(&mut self, all: &Registry) {
        self.setup.registry.prune(unix_ms());
        if self.setup.registry.merge(all) {
            self.tell();
            self.shared = None;
        }
    }

    /// Looks whether somebody has changed the file.
    fn look(&mut self) {
        let stamp = file::stamp(&self.setup.data_dir);
        if stamp == self.stamp && self.is_stored {
            return;
        }
        match self.update(|_| ()) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, FileError::Malformed(_)) {
                    // It will make no more sense until somebody writes another one.
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

    /// Brings together what this node knows and what Redis has.
    fn share(&mut self) {
        let Some(redis) = &mut self.setup.redis else { return };
        if !self.setup.stats.fleet.same_key.load(Ordering::Acquire) {
            // It may be the Redis of another fleet.
            return;
        }
        let alarms = &self.setup.stats.alarms;
        match share(redis, &self.setup.registry) {
            Ok(Shared { theirs, pruned }) => {
                match redis.remove_keys(&pruned, SHARE_TIME_MAX) {
                    Err(Trouble::Refused(what)) => alarms.raise(Alarm::AppsUnshared, refused(&what)),
                    Ok(()) | Err(Trouble::Away { .. }) => alarms.clear(Alarm::AppsUnshared),
                }
                let was_unsure = std::mem::take(&mut self.setup.is_unsure);
                let is_more = self.setup.registry.merge(&theirs);
                if is_more || was_unsure {
                    self.is_stored = false;
                    self.tell();
                    self.look();
                }
            }
            // The fleet's own alarms say that Redis is away.
            Err(Trouble::Away { what, .. }) => tracing::debug!(%what, "the API keys of the fleet cannot be read"),
            Err(Trouble::Refused(what)) => alarms.raise(Alarm::AppsUnshared, refused(&what)),
        }
    }

    fn tell(&mut self) {
        let apps = &mut self.apps;
        let about =
            |name: &AppName| Arc::clone(apps.entry(name.clone()).or_insert_with(|| Arc::new(App::new(name.clone()))));
        let keys = match self.setup.is_unsure && !self.setup.registry.had_keys() {
            true => Arc::new(Keyring::unsure()),
            false => Arc::new(Keyring::of(&self.setup.registry, about)),
        };
        for mailbox in self.setup.post.all() {
            mailbox.post(ToCore::Keys(Arc::clone(&keys)));
        }
    }
}

fn refused(what: &str) -> String {
    format!(
        "Redis rejects a command on the API keys ({what}); keys created or revoked on one node may not reach the others; allow the Redis user of the node HVALS, HSET and HDEL on the key PREFIX:apps (see fleet.prefix)"
    )
}

/// The field of the hash in Redis which says that the fleet has had keys; the other fields are the hashes of keys.
const HAD_KEYS_FIELD: &str = "had-keys";

/// What a node and Redis have told each other of API keys.
pub struct Shared {
    /// The keys that Redis had, without those that ended long ago.
    pub theirs: Registry,
    /// The hashes of keys in Redis that ended long ago.
    pub pruned: Vec<String>,
}

/// Gives Redis the keys that it lacks, and returns those that it has.
///
/// # Errors
/// Why Redis did not answer as expected.
pub fn share(redis: &mut Redis, mine: &Registry) -> Result<Shared, Trouble> {
    let held = redis.keys(SHARE_TIME_MAX)?;
    let now_ms = unix_ms();
    let (all, had_mark) = read_held(&held);
    let hashes: Vec<String> = all.entries().into_iter().map(|entry| entry.hash.to_hex()).collect();
    let mut both = all.clone();
    both.merge(mine);
    both.prune(now_ms);
    let pruned = hashes.into_iter().filter(|hash| !both.has(hash)).collect();
    let mut lacks: Vec<(String, Vec<u8>)> = all
        .lacking(mine, now_ms)
        .into_iter()
        .map(|entry| (entry.hash.to_hex(), entry.to_json().to_string().into_bytes()))
        .collect();
    if both.had_keys() && !had_mark {
        lacks.push((HAD_KEYS_FIELD.to_owned(), json!({"hadKeys": true}).to_string().into_bytes()));
    }
    if !lacks.is_empty() {
        redis.put_keys(&lacks, SHARE_TIME_MAX)?;
    }
    Ok(Shared { theirs: all.pruned(now_ms), pruned })
}

/// The keys in the values of the hash in Redis, and whether one of the values says that the fleet has had keys.
fn read_held(held: &[Vec<u8>]) -> (Registry, bool) {
    let mut entries = Vec::new();
    let mut had_mark = false;
    for text in held {
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        if value.get("hadKeys") == Some(&json!(true)) {
            had_mark = true;
            continue;
        }
        match Entry::from_json(&value) {
            Ok(entry) => entries.push(entry),
            // A newer program's, which this one can do without.
            Err(what) => tracing::debug!(%what, "an API key in Redis cannot be read and is ignored"),
        }
    }
    (Registry::of(entries, had_mark), had_mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::access::Role;
    use carom_model::access::registry::Grant;

    fn keeper(dir: &std::path::Path) -> (Keeper, TestNode) {
        let node = TestNode::new(dir, 1);
        let setup = AppsSetup {
            data_dir: dir.to_owned(),
            registry: Registry::default(),
            is_unsure: false,
            redis: None,
            post: node.post.clone(),
            stats: Arc::clone(&node.stats),
        };
        (
            Keeper { setup, apps: HashMap::new(), stamp: None, is_stored: false, shared: None, pruned: Instant::now() },
            node,
        )
    }

    fn add(dir: &std::path::Path) {
        let app = AppName::parse("shop").unwrap();
        let grant = Grant { app, role: Role::Read, expires_ms: None, creates: None, domains: None };
        file::update(dir, false, |registry| registry.add(grant, unix_ms()).unwrap()).unwrap();
    }

    #[test]
    fn what_a_command_does_while_a_node_starts_is_heard_of() {
        let dir = tempfile::tempdir().unwrap();
        // What the node has read is older than this.
        add(dir.path());
        let (mut keeper, node) = keeper(dir.path());
        keeper.look();
        assert_eq!(keeper.setup.registry.len(), 1);
        assert!(node.mail.iter().all(|mail| matches!(mail.try_recv(), Ok(ToCore::Keys(keys)) if keys.had_keys())));
        add(dir.path());
        keeper.look();
        assert_eq!(keeper.setup.registry.len(), 2);
        assert!(!dir.path().join("apps.json.new").exists());
    }

    fn grant(name: &str) -> Grant {
        let app = AppName::parse(name).unwrap();
        Grant { app, role: Role::Read, expires_ms: None, creates: None, domains: None }
    }

    /// One key, of the app `gone`, that ended 401 days ago.
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
        let (mut keeper, _node) = keeper(dir.path());
        let begun = keeper.pruned;
        // As it was read and written before the key became old.
        (keeper.stamp, keeper.is_stored) = (file::stamp(dir.path()), true);
        for (passed, left) in [(PRUNE_EVERY / 2, 1), (PRUNE_EVERY, 0)] {
            keeper.doubt_file(begun + passed);
            keeper.look();
            assert_eq!(file::read(dir.path()).unwrap().len(), left, "after {passed:?}");
        }
        assert!(file::read(dir.path()).unwrap().had_keys());
    }

    #[test]
    fn keys_that_ended_long_ago_leave_the_file_of_a_running_node() {
        let dir = tempfile::tempdir().unwrap();
        let known = ended_long_ago();
        std::fs::write(dir.path().join(file::FILE_NAME), known.to_text()).unwrap();
        let (mut keeper, _node) = keeper(dir.path());
        keeper.setup.registry = known;
        keeper.serve(AppsRequest::Add(grant("shop")));
        let names = |registry: &Registry| -> Vec<String> {
            registry.entries().iter().map(|entry| entry.app.to_string()).collect()
        };
        assert_eq!(names(&file::read(dir.path()).unwrap()), ["shop"], "in the file");
        assert_eq!(names(&keeper.setup.registry), ["shop"], "in memory");
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut keeper, node) = keeper(dir.path());
        keeper.look();
        add(dir.path());
        // In the way of the lock.
        let lock = dir.path().join("apps.lock");
        std::fs::remove_file(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        keeper.look();
        assert_eq!((keeper.setup.registry.len(), node.stats.alarms.list().len()), (0, 1));
        std::fs::remove_dir(&lock).unwrap();
        keeper.look();
        assert_eq!(keeper.setup.registry.len(), 1);
        assert!(node.stats.alarms.list()[0].cleared_ms.is_some());
    }
}
