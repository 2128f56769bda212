//! Who may do what, as all cores know it: one thread brings together what stands in the data directory ([`file`]), what
//! the admin listener is asked for, and what the other nodes of a fleet know, and tells each core of the keys as a whole.
//!
//! Accounts of keys only grow (see [`crate::apps::registry`]), so bringing them together is adding what each lacks. Redis
//! is one more account: a node that was away, or a Redis that has lost its memory, catches up within two seconds.

pub mod file;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::file::{FileError, Stamp};
use crate::apps::AppName;
use crate::apps::registry::{Entry, Keyring, Registry};
use crate::apps::usage::App;
use crate::mail::{AppsAnswer, AppsOrder, AppsQueue, AppsRequest, Post, StoreAnswer, ToCore};
use crate::stats::{NodeStats, unix_ms};
use crate::store::redis::{Redis, Trouble};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often Redis is asked what the other nodes know.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// How long Redis may take.
const SHARE_TIME_MAX: Duration = Duration::from_secs(2);

/// Orders that may wait.
const QUEUE_LEN: usize = 64;

/// What the thread works with.
pub struct AppsSetup {
    /// Where the file is.
    pub data_dir: PathBuf,
    /// What stands there.
    pub registry: Registry,
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
/// Where the operating system gives no thread.
pub fn start(setup: AppsSetup) -> io::Result<(AppsQueue, JoinHandle<()>)> {
    let (queue, orders) = sync_channel(QUEUE_LEN);
    let mut keeper = Keeper { setup, apps: HashMap::new(), stamp: None, is_stored: true, shared: None };
    keeper.stamp = file::stamp(&keeper.setup.data_dir);
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
            self.look();
            if self.shared.is_none_or(|then| then.elapsed() >= SHARE_EVERY) {
                self.share();
                self.shared = Some(Instant::now());
            }
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
        let known = &self.setup.registry;
        let (done, all) = file::update(&self.setup.data_dir, |registry| {
            registry.merge(known);
            let done = change(registry);
            (done, registry.clone())
        })?;
        self.stamp = file::stamp(&self.setup.data_dir);
        self.is_stored = true;
        self.take(&all);
        Ok(done)
    }

    /// Takes over what another account has.
    fn take(&mut self, other: &Registry) {
        if self.setup.registry.merge(other) {
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
            Ok(()) => self.setup.stats.alarms.clear("apps_unreadable"),
            Err(error) => {
                self.stamp = stamp;
                let text = format!(
                    "the keys in {} cannot be read or written ({error}); those that were known hold",
                    file::FILE_NAME
                );
                self.setup.stats.alarms.raise("apps_unreadable", text);
            }
        }
    }

    /// Brings together what this node knows and what Redis has.
    fn share(&mut self) {
        let Some(redis) = &mut self.setup.redis else { return };
        match share(redis, &self.setup.registry) {
            Ok(theirs) => {
                if self.setup.registry.merge(&theirs) {
                    self.is_stored = false;
                    self.tell();
                    self.look();
                }
            }
            // The fleet's own alarms say that Redis is away.
            Err(what) => tracing::debug!(%what, "the keys of the fleet cannot be read"),
        }
    }

    fn tell(&mut self) {
        let apps = &mut self.apps;
        let about =
            |name: &AppName| Arc::clone(apps.entry(name.clone()).or_insert_with(|| Arc::new(App::new(name.clone()))));
        let keys = Arc::new(Keyring::of(&self.setup.registry, about));
        for mailbox in self.setup.post.all() {
            mailbox.post(ToCore::Keys(Arc::clone(&keys)));
        }
    }
}

/// Gives Redis what it lacks, and returns what it has.
///
/// # Errors
/// Why that was not to be had.
pub fn share(redis: &mut Redis, mine: &Registry) -> Result<Registry, String> {
    let said = |trouble: Trouble| match trouble {
        Trouble::Away { what, .. } | Trouble::Refused(what) => what,
    };
    let held = redis.keys(SHARE_TIME_MAX).map_err(said)?;
    let mut theirs = Vec::new();
    for text in &held {
        let entry = serde_json::from_slice(text).map_err(|error| error.to_string());
        match entry.and_then(|value| Entry::from_json(&value).map_err(|what| what.to_string())) {
            Ok(entry) => theirs.push(entry),
            Err(what) => tracing::warn!(%what, "a key that Redis holds cannot be read, and is passed over"),
        }
    }
    let theirs = Registry::of(theirs);
    let lacks: Vec<(String, Vec<u8>)> = theirs
        .lacking(mine)
        .into_iter()
        .map(|entry| (entry.hash.to_hex(), entry.to_json().to_string().into_bytes()))
        .collect();
    if !lacks.is_empty() {
        redis.put_keys(&lacks, SHARE_TIME_MAX).map_err(said)?;
    }
    Ok(theirs)
}
