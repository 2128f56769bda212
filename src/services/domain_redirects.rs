//! The worker of the redirects of domains. One thread merges the changes of the data directory ([`file`]), those of the
//! API, and in a fleet those of other nodes. It sends each core the redirects in effect.
//!
//! Copies of the changes merge without conflicts (see [`carom_model::domains::redirects`]). Redis is one more copy: a node
//! that was away, or a Redis that has lost its data, catches up within two seconds.

pub mod file;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bridge::{
    DomainRedirectsAnswer, DomainRedirectsOrder, DomainRedirectsQueue, Mailboxes, PublishedRedirects, Ticket, ToCore,
};
use crate::services::replication::redis::{FieldUpdate, Redis, RedisError, repeat_until_stored};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_model::domains::redirects::{DomainRedirects, RedirectChanges};
use carom_model::domains::{Domains, Targets};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Interval between two exchanges with Redis.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// Timeout of a request to Redis.
const SHARE_TIME_MAX: Duration = Duration::from_secs(2);

/// Capacity of the request queue.
const QUEUE_LEN: usize = 16;

/// Inputs of the thread.
pub struct DomainRedirectsSetup {
    /// The data directory, which has the file.
    pub data_dir: PathBuf,
    /// The domains, with the redirects of the settings.
    pub domains: Arc<Domains>,
    /// The changes that the file had at the start.
    pub changes: RedirectChanges,
    /// The Redis that the fleet shares; `None` for a single node.
    pub redis: Option<Redis>,
    /// The mailboxes of all cores.
    pub mailboxes: Mailboxes,
    /// The counters of the node.
    pub stats: Arc<NodeStats>,
}

/// Sends the redirects to the cores, and starts the thread that keeps them up to date. It ends when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: DomainRedirectsSetup) -> io::Result<(DomainRedirectsQueue, JoinHandle<()>)> {
    let (queue, orders) = sync_channel(QUEUE_LEN);
    let mut worker = RedirectsWorker::new(setup);
    // Also without changes: each core drops the table that it has made itself before it serves, and frees none later.
    worker.publish(None);
    let thread = threads::start(Priority::Awaited, "domains", move || worker.run(&orders))?;
    Ok((queue, thread))
}

struct RedirectsWorker {
    setup: DomainRedirectsSetup,
    /// The time of the last exchange with Redis; `None` makes the next one due at once.
    shared: Option<Instant>,
    /// True if Redis has rejected the last exchange.
    is_refused: bool,
    versions: Versions<DomainRedirects>,
}

impl RedirectsWorker {
    fn new(setup: DomainRedirectsSetup) -> RedirectsWorker {
        RedirectsWorker { setup, shared: None, is_refused: false, versions: Versions::default() }
    }

    fn run(mut self, orders: &Receiver<DomainRedirectsOrder>) {
        loop {
            self.versions.sweep();
            if self.setup.redis.is_some() && self.shared.is_none_or(|then| then.elapsed() >= SHARE_EVERY) {
                self.share();
                self.shared = Some(Instant::now());
            }
            let order = match self.shared {
                Some(then) => orders.recv_timeout((then + SHARE_EVERY).saturating_duration_since(Instant::now())),
                None => orders.recv().map_err(RecvTimeoutError::from),
            };
            match order {
                Ok(order) => self.serve(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Carries out a change. It is in the file, and in a fleet in Redis if that answers, before the cores get it.
    fn serve(&mut self, order: DomainRedirectsOrder) {
        // The stamps of other nodes must be known, so that the change is later than theirs.
        self.share();
        let DomainRedirectsOrder { domain, changes, ticket } = order;
        let mut all = self.setup.changes.clone();
        let now_ms = unix_ms();
        for (kind, target) in changes {
            all.set(&domain, kind, target, now_ms);
        }
        if let Err(error) = file::write(&self.setup.data_dir, &all) {
            let what = format!("{} cannot be written: {error}", file::FILE_NAME);
            return self.setup.mailboxes.answer(ticket, DomainRedirectsAnswer::Failed(what));
        }
        self.setup.changes = all;
        self.share();
        let place = self.setup.domains.place_of(&domain).expect("the handler has found the domain");
        let targets = self.redirects().own_at(place).clone();
        self.publish(Some((ticket, targets)));
    }

    fn redirects(&self) -> DomainRedirects {
        DomainRedirects::of(&self.setup.domains, &self.setup.changes)
    }

    /// Sends the redirects to the cores. The last of them sends the answer.
    fn publish(&mut self, answer: Option<(Ticket<DomainRedirectsAnswer>, Targets)>) {
        let redirects = Arc::new(self.redirects());
        self.versions.hold(&redirects);
        let mailboxes = self.setup.mailboxes.all();
        let published = Arc::new(PublishedRedirects::new(redirects, answer, mailboxes.len()));
        for mailbox in mailboxes {
            mailbox.post(ToCore::DomainRedirects(Arc::clone(&published)));
        }
    }

    /// Merges the changes of this node and those of Redis, both ways.
    fn share(&mut self) {
        let Some(redis) = &mut self.setup.redis else { return };
        if !self.setup.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            // It may be the Redis of another fleet.
            return;
        }
        let was_refused = std::mem::take(&mut self.is_refused);
        match exchange(redis, &self.setup.changes) {
            Ok(theirs) => self.take(&theirs),
            // An unreachable Redis has alarms of its own in the fleet's threads.
            Err(RedisError::Away { what, .. }) => {
                tracing::debug!(%what, "the domain redirects of the fleet cannot be read");
            }
            Err(RedisError::Refused(what)) => {
                self.is_refused = true;
                if !was_refused {
                    tracing::warn!(
                        "Redis rejects a command on the domain redirects ({what}); changes on one node may not reach the others; allow the Redis user of the node HGETALL, HGET and HSET on the key PREFIX:domains (see fleet.prefix)"
                    );
                }
            }
        }
    }

    /// Adopts changes of other nodes.
    fn take(&mut self, theirs: &RedirectChanges) {
        let mut all = self.setup.changes.clone();
        if !all.merge(theirs) {
            return;
        }
        match file::write(&self.setup.data_dir, &all) {
            Ok(()) => {
                self.setup.changes = all;
                self.publish(None);
            }
            Err(error) => tracing::warn!("{} cannot be written ({error}); carom retries", file::FILE_NAME),
        }
    }
}

/// Gives Redis the changes that it lacks, and returns those that it has.
///
/// # Errors
/// If Redis cannot be reached or refuses a request.
pub(in crate::services) fn exchange(redis: &mut Redis, mine: &RedirectChanges) -> Result<RedirectChanges, RedisError> {
    repeat_until_stored(|| exchange_once(redis, mine))
}

/// Makes one exchange. Returns false beside its result if another node has changed a domain meanwhile, so that Redis may lack
/// the changes of this node there.
fn exchange_once(redis: &mut Redis, mine: &RedirectChanges) -> Result<(RedirectChanges, bool), RedisError> {
    let mut theirs = RedirectChanges::default();
    let held: HashMap<String, Vec<u8>> = redis.domain_redirects(SHARE_TIME_MAX)?.into_iter().collect();
    for (domain, text) in &held {
        let entry = serde_json::from_slice(text).unwrap_or_default();
        if let Err(what) = theirs.add_entry(domain, &entry) {
            // A newer version of the program wrote it; this version can do without.
            tracing::debug!(%what, "domain redirects in Redis cannot be read and are ignored");
        }
    }
    let update = |(field, entry): (String, Value)| {
        let before = held.get(&field).cloned().unwrap_or_default();
        FieldUpdate { field, before, after: entry.to_string().into_bytes() }
    };
    let lacks: Vec<FieldUpdate> = theirs.lacking(mine).to_entries().into_iter().map(update).collect();
    let is_stored = lacks.is_empty() || redis.update_domain_redirects(&lacks, SHARE_TIME_MAX)?;
    Ok((theirs, is_stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Reply;
    use crate::services::testing::TestNode;
    use carom_model::destination::long_url::LongUrl;
    use carom_model::domains::redirects::TargetKind;
    use carom_model::testing::three_domains;
    use carom_shards::CoreId;

    fn worker(dir: &std::path::Path) -> (RedirectsWorker, TestNode) {
        let node = TestNode::new(dir, 1);
        let setup = DomainRedirectsSetup {
            data_dir: dir.to_owned(),
            domains: Arc::new(three_domains()),
            changes: file::read(dir).unwrap(),
            redis: None,
            mailboxes: node.mailboxes.clone(),
            stats: Arc::clone(&node.stats),
        };
        (RedirectsWorker::new(setup), node)
    }

    fn order(target: &str) -> DomainRedirectsOrder {
        let domain = three_domains().all()[1].name.clone();
        let changes = vec![(TargetKind::Home, Some(LongUrl::parse(target, &[]).unwrap()))];
        DomainRedirectsOrder { domain, changes, ticket: Ticket::new(CoreId(0), 7) }
    }

    fn published(mail: &Receiver<ToCore>) -> Arc<PublishedRedirects> {
        match mail.try_recv() {
            Ok(ToCore::DomainRedirects(published)) => published,
            other => panic!("unexpected mail {other:?}"),
        }
    }

    #[test]
    fn a_change_is_answered_once_all_cores_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.serve(order("https://a.example/"));
        let stored = file::read(dir.path()).unwrap();
        assert_eq!(stored, worker.setup.changes);
        let [first, second] = &node.mail[..] else { panic!("a core and the admin core") };
        assert!(published(first).pass().is_none(), "the other core does not have it yet");
        let (ticket, answer) = published(second).pass().unwrap();
        assert_eq!(ticket, Ticket::new(CoreId(0), 7));
        let home = Some("https://a.example/".to_owned());
        assert_eq!(answer, DomainRedirectsAnswer::Changed(Targets { home, ..Targets::default() }));
    }

    #[test]
    fn replaced_redirects_are_freed_by_the_thread() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.serve(order("https://a.example/"));
        // Both cores replace the redirects.
        let of_cores: Vec<_> = node.mail.iter().map(|mail| Arc::downgrade(&published(mail).redirects)).collect();
        assert!(of_cores.iter().all(|redirects| redirects.strong_count() > 0), "a core has freed them");
        worker.serve(order("https://b.example/"));
        worker.versions.sweep();
        assert!(of_cores.iter().all(|redirects| redirects.strong_count() == 0));
        assert_eq!(worker.versions.held(), 1, "the new ones are on their way");
    }

    #[test]
    fn a_start_sends_the_redirects_to_every_core() {
        let dir = tempfile::tempdir().unwrap();
        let (worker, node) = worker(dir.path());
        let (queue, thread) = start(worker.setup).unwrap();
        node.mail.iter().for_each(|mail| _ = published(mail));
        drop(queue);
        thread.join().unwrap();
    }

    #[test]
    fn a_change_that_cannot_be_stored_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.setup.data_dir = dir.path().join("missing");
        worker.serve(order("https://a.example/"));
        assert!(worker.setup.changes.is_empty());
        match node.mail[0].try_recv() {
            Ok(ToCore::Reply { reply: Reply::DomainRedirects(DomainRedirectsAnswer::Failed(what)), .. }) => {
                assert!(what.contains(file::FILE_NAME), "{what}");
            }
            other => panic!("unexpected mail {other:?}"),
        }
    }

    #[test]
    fn changes_of_other_nodes_are_stored_and_published() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let mut theirs = RedirectChanges::default();
        let other = order("https://b.example/");
        for (kind, target) in other.changes {
            theirs.set(&other.domain, kind, target, 9);
        }
        worker.take(&theirs);
        assert_eq!(file::read(dir.path()).unwrap(), theirs);
        assert!(node.mail.iter().all(|mail| published(mail).pass().is_none()));
        worker.take(&theirs);
        assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "nothing has changed");
    }
}
