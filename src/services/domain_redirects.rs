//! The worker of the redirects of domains. One thread merges the changes of the data directory ([`file`]), those of the
//! API, and in a fleet those of other nodes. It sends each core the redirects in effect.
//!
//! Copies of the changes merge without conflicts (see [`carom_model::domains::redirects`]). Redis is one more copy: a node
//! that was away, or a Redis that has lost its data, catches up within two seconds.

pub mod file;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use serde_json::Value;

use crate::bridge::{
    AnswerOfLastCore, DomainRedirectsAnswer, DomainRedirectsOrder, DomainRedirectsQueue, Mailboxes, PublishedRedirects,
    Ticket, ToCore,
};
use crate::services::exchanges::{self, ExchangeReports, ExchangingWorker, SHARE_TIME_MAX};
use crate::services::replication::redis::{FieldUpdate, Redis, RedisError, repeat_until_stored};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_model::domains::redirects::{DomainRedirects, RedirectChanges};
use carom_model::domains::{Domains, Targets};
use carom_model::formats::json_file;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

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
    let thread = threads::start(Priority::Awaited, "domains", move || exchanges::run(worker, &orders))?;
    Ok((queue, thread))
}

struct RedirectsWorker {
    setup: DomainRedirectsSetup,
    reports: ExchangeReports,
    versions: Versions<DomainRedirects>,
}

/// The changes of redirects in Redis.
pub(in crate::services) struct HeldRedirects {
    /// The changes of all domains whose entries this version can read.
    pub(in crate::services) changes: RedirectChanges,
    /// One of the domains whose entries this version cannot read. `None` if it can read all.
    unread: Option<String>,
}

impl ExchangingWorker for RedirectsWorker {
    type Order = DomainRedirectsOrder;

    fn sweep(&mut self) {
        self.versions.sweep();
    }

    fn is_in_fleet(&self) -> bool {
        self.setup.redis.is_some()
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

    fn share(&mut self) -> bool {
        let Some(redis) = &mut self.setup.redis else { return false };
        if !self.setup.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            // It may be the Redis of another fleet.
            return false;
        }
        let exchanged = exchange(redis, &self.setup.changes);
        if let Some(HeldRedirects { changes, unread }) = self.reports.take(exchanged) {
            self.reports.take_unread(unread.as_deref());
            self.take(&changes);
        }
        true
    }
}

impl RedirectsWorker {
    fn new(setup: DomainRedirectsSetup) -> RedirectsWorker {
        let reports = ExchangeReports::new("domain redirects", "domains");
        RedirectsWorker { setup, reports, versions: Versions::default() }
    }

    fn redirects(&self) -> DomainRedirects {
        DomainRedirects::of(&self.setup.domains, &self.setup.changes)
    }

    /// Sends the redirects to the cores. The last of them sends the answer.
    fn publish(&mut self, answer: Option<(Ticket<DomainRedirectsAnswer>, Targets)>) {
        let redirects = Arc::new(self.redirects());
        self.versions.hold(&redirects);
        let mailboxes = self.setup.mailboxes.all();
        let answer = answer.map(|(ticket, targets)| (ticket, DomainRedirectsAnswer::Changed(targets)));
        let published = PublishedRedirects { redirects, answer: AnswerOfLastCore::new(answer, mailboxes.len()) };
        let published = Arc::new(published);
        for mailbox in mailboxes {
            mailbox.post(ToCore::DomainRedirects(Arc::clone(&published)));
        }
    }

    /// Adopts changes of other nodes.
    fn take(&mut self, theirs: &RedirectChanges) {
        let mut all = self.setup.changes.clone();
        if !all.merge(theirs) {
            return;
        }
        let written = file::write(&self.setup.data_dir, &all);
        self.reports.take_write(file::FILE_NAME, &written);
        if written.is_ok() {
            self.setup.changes = all;
            self.publish(None);
        }
    }
}

/// Gives Redis the changes that it lacks, and returns those that it has. An entry that this version cannot read may have later
/// changes, so it stays.
///
/// # Errors
/// If Redis cannot be reached or refuses a request.
pub(in crate::services) fn exchange(redis: &mut Redis, mine: &RedirectChanges) -> Result<HeldRedirects, RedisError> {
    repeat_until_stored(|| exchange_once(redis, mine))
}

/// Makes one exchange. Returns false beside its result if another node has changed a domain meanwhile, so that Redis may lack
/// the changes of this node there.
fn exchange_once(redis: &mut Redis, mine: &RedirectChanges) -> Result<(HeldRedirects, bool), RedisError> {
    let (mut theirs, mut unread) = (RedirectChanges::default(), BTreeSet::new());
    let held: HashMap<String, Vec<u8>> = redis.domain_redirects(SHARE_TIME_MAX)?.into_iter().collect();
    for (domain, text) in &held {
        if let Err(what) = theirs.add_entry(domain, &json_file::entry(text)) {
            tracing::debug!(%what, "domain redirects in Redis cannot be read and are ignored");
            unread.insert(domain.clone());
        }
    }
    let update = |(field, entry): (String, Value)| {
        let before = held.get(&field).cloned().unwrap_or_default();
        FieldUpdate { field, before, after: entry.to_string().into_bytes() }
    };
    let lacking = theirs.lacking(mine).to_entries().into_iter().filter(|(domain, _)| !unread.contains(domain));
    let lacks: Vec<FieldUpdate> = lacking.map(update).collect();
    let is_stored = lacks.is_empty() || redis.update_domain_redirects(&lacks, SHARE_TIME_MAX)?;
    Ok((HeldRedirects { changes: theirs, unread: unread.into_iter().next() }, is_stored))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

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
        assert!(published(first).answer.pass().is_none(), "the other core does not have it yet");
        let (ticket, answer) = published(second).answer.pass().unwrap();
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
        assert!(node.mail.iter().all(|mail| published(mail).answer.pass().is_none()));
        worker.take(&theirs);
        assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "nothing has changed");
    }
}
