//! The worker of saved destination rules. One thread stores the saves of admins ([`file`]), and exchanges the last one with
//! the other nodes of a fleet. It gives the hosts that apply to both host lists, and sends each core both lists and the last
//! save in one message.
//!
//! A save names the version that it replaces. In a fleet, Redis decides between two nodes: a script stores a save only in
//! place of the save that this node has read. So a save needs Redis, and of two saves of one version, the second is
//! refused. Copies merge by the latest save (see [`carom_model::destination::rules`]): a node that was away, or a Redis that
//! has lost its data, catches up within two seconds.

pub mod file;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use crate::bridge::{
    AnswerOfLastCore, DestinationRulesAnswer, DestinationRulesOrder, DestinationRulesQueue, Mailboxes, PublishedRules,
    Ticket, ToCore,
};
use crate::services::exchanges::{self, ExchangeReports, ExchangingWorker, SHARE_TIME_MAX};
use crate::services::host_lists::StaticHosts;
use crate::services::replication::redis::{FieldUpdate, Redis, RedisError, repeat_until_stored};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_model::destination::rules::{RuleHosts, SavedRules};
use carom_model::formats::{dates, json_file};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Capacity of the request queue.
const QUEUE_LEN: usize = 16;

/// Name of the field in Redis.
const FIELD: &str = "saved";

/// Inputs of the thread.
pub struct DestinationRulesSetup {
    /// The data directory, which has the file.
    pub data_dir: PathBuf,
    /// The hosts of the settings.
    pub settings: RuleHosts,
    /// The save that the file had at the start. Both lists have its hosts.
    pub saved: SavedRules,
    /// The static parts of both lists.
    pub lists: StaticHosts,
    /// The Redis that the fleet shares; `None` for a single node.
    pub redis: Option<Redis>,
    /// The mailboxes of all cores.
    pub mailboxes: Mailboxes,
    /// The counters of the node.
    pub stats: Arc<NodeStats>,
}

/// Sends the cores the last save, and starts the thread that keeps it up to date. It ends when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: DestinationRulesSetup) -> io::Result<(DestinationRulesQueue, JoinHandle<()>)> {
    let (queue, orders) = sync_channel(QUEUE_LEN);
    let mut worker = RulesWorker::new(setup);
    worker.publish(None);
    if let Some(at) = worker.saved.applied_ms().map(dates::format) {
        tracing::info!("the destination rules saved at {at} apply instead of allow.hosts and block.hosts");
    }
    let thread = threads::start(Priority::Awaited, "rules", move || exchanges::run(worker, &orders))?;
    Ok((queue, thread))
}

struct RulesWorker {
    setup: DestinationRulesSetup,
    saved: Arc<SavedRules>,
    reports: ExchangeReports,
    versions: Versions<SavedRules>,
}

/// The entry of saved rules in Redis.
pub(in crate::services) struct HeldRules {
    /// The bytes in Redis. Empty without an entry.
    text: Vec<u8>,
    /// The save; `None` if only a later version can read it.
    pub(in crate::services) saved: Option<SavedRules>,
}

impl ExchangingWorker for RulesWorker {
    type Order = DestinationRulesOrder;

    fn sweep(&mut self) {
        self.versions.sweep();
    }

    fn is_in_fleet(&self) -> bool {
        self.setup.redis.is_some()
    }

    fn share(&mut self) -> bool {
        let fleet = &self.setup.stats.fleet;
        if !fleet.may_exchange(&fleet.has_rules) {
            return false;
        }
        let Some(redis) = &mut self.setup.redis else { return false };
        let exchanged = exchange(redis, &self.saved);
        if let Some(HeldRules { saved, .. }) = self.reports.take(exchanged) {
            self.reports.take_unread(saved.is_none().then_some(FIELD));
            if let Some(theirs) = saved {
                let written = self.take(&theirs);
                self.reports.take_write(file::FILE_NAME, &written);
            }
        }
        // Also after a failure: a Redis that fails must not keep a node from being ready.
        self.setup.mailboxes.post_exchange_fence(&self.setup.stats, |fleet| &fleet.has_rules);
        true
    }

    fn serve(&mut self, order: DestinationRulesOrder) {
        let DestinationRulesOrder { version, hosts, by, ticket } = order;
        match self.save(&version, hosts, &by) {
            Ok(()) => self.publish(Some(ticket)),
            Err(answer) => self.setup.mailboxes.answer(ticket, answer),
        }
    }
}

impl RulesWorker {
    fn new(setup: DestinationRulesSetup) -> RulesWorker {
        let reports = ExchangeReports::new("saved destination rules", "rules");
        let saved = Arc::new(setup.saved.clone());
        RulesWorker { setup, saved, reports, versions: Versions::default() }
    }

    /// Stores a save: in a fleet first in Redis, and then in the file.
    ///
    /// # Errors
    /// The answer to the client, if the save was refused or cannot be confirmed.
    fn save(&mut self, version: &str, hosts: Option<RuleHosts>, by: &str) -> Result<(), DestinationRulesAnswer> {
        let held = self.held().map_err(DestinationRulesAnswer::Refused)?;
        if version != self.saved.version(&self.setup.settings) {
            return Err(DestinationRulesAnswer::Outdated(Arc::clone(&self.saved)));
        }
        let next = self.saved.replaced(hosts, by, unix_ms());
        self.offer(held, &next)?;
        if let Err(error) = file::write(&self.setup.data_dir, &next) {
            let what = format!("{} cannot be written: {error}", file::FILE_NAME);
            return Err(DestinationRulesAnswer::Failed(what));
        }
        match next.hosts() {
            Some(_) => tracing::info!(app = next.by(), "the destination rules were saved"),
            None => tracing::info!(app = next.by(), "the hosts of the settings apply again"),
        }
        self.saved = Arc::new(next);
        Ok(())
    }

    /// Returns the entry in Redis, after this node and Redis have exchanged their saves; empty for a single node.
    ///
    /// # Errors
    /// The reason why a save must wait.
    fn held(&mut self) -> Result<Vec<u8>, String> {
        let Some(redis) = &mut self.setup.redis else { return Ok(Vec::new()) };
        if !self.setup.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            return Err("the node has not reached the Redis of its fleet, which decides between two saves".to_owned());
        }
        let HeldRules { text, saved } = exchange(redis, &self.saved).map_err(|error| unreached(&error))?;
        let Some(theirs) = saved else {
            return Err("this node cannot read the rules that are saved in Redis; its log says what to do".to_owned());
        };
        self.take(&theirs).map_err(|error| format!("{} cannot be written: {error}", file::FILE_NAME))?;
        Ok(text)
    }

    /// Offers a save to Redis, in place of the entry that was read.
    ///
    /// # Errors
    /// The answer to the client, if it is not certain that Redis has stored the save.
    fn offer(&mut self, held: Vec<u8>, next: &SavedRules) -> Result<(), DestinationRulesAnswer> {
        let Some(redis) = &mut self.setup.redis else { return Ok(()) };
        let update = FieldUpdate { field: FIELD.to_owned(), before: held, after: encoded(next) };
        match redis.update_destination_rules(update, SHARE_TIME_MAX) {
            Ok(true) => Ok(()),
            Ok(false) => {
                // Another node was faster.
                let before = Arc::clone(&self.saved);
                self.share();
                if self.saved == before {
                    // The client has seen these rules, so they tell it of no other save.
                    let what = "the rules in Redis have just changed, and this node cannot read or store them yet";
                    return Err(DestinationRulesAnswer::Refused(what.to_owned()));
                }
                Err(DestinationRulesAnswer::Outdated(Arc::clone(&self.saved)))
            }
            Err(error) if error.may_be_done() => Err(DestinationRulesAnswer::Failed(unreached(&error))),
            Err(error) => Err(DestinationRulesAnswer::Refused(unreached(&error))),
        }
    }

    /// Adopts a later save of another node.
    ///
    /// # Errors
    /// If the file cannot be written. Nothing changes then.
    fn take(&mut self, theirs: &SavedRules) -> io::Result<()> {
        let mut all = SavedRules::clone(&self.saved);
        if !all.merge(theirs) {
            return Ok(());
        }
        file::write(&self.setup.data_dir, &all)?;
        self.saved = Arc::new(all);
        self.publish(None);
        Ok(())
    }

    /// Sends the cores both lists with the hosts that apply, and the save. The last core sends the answer.
    fn publish(&mut self, ticket: Option<Ticket<DestinationRulesAnswer>>) {
        self.versions.hold(&self.saved);
        let saved_ms = self.saved.applied_ms();
        self.setup.stats.rules_saved_ms.set(saved_ms.unwrap_or(0));
        let mailboxes = self.setup.mailboxes.all();
        let answer = ticket.map(|ticket| (ticket, DestinationRulesAnswer::Saved(Arc::clone(&self.saved))));
        let answer = AnswerOfLastCore::new(answer, mailboxes.len());
        let hosts = self.saved.or_settings(&self.setup.settings).clone();
        self.setup.lists.replace(hosts, |allow, block| {
            let published = Arc::new(PublishedRules { allow, block, saved: Arc::clone(&self.saved), answer });
            for mailbox in mailboxes {
                mailbox.post(ToCore::DestinationRules(Arc::clone(&published)));
            }
        });
    }
}

fn encoded(saved: &SavedRules) -> Vec<u8> {
    saved.to_entry().to_string().into_bytes()
}

fn unreached(error: &RedisError) -> String {
    let (RedisError::Unavailable { what, .. } | RedisError::Refused(what)) = error;
    format!("Redis, which decides between two saves, does not carry out the request ({what})")
}

/// Gives Redis the save of this node if it is later, and returns what Redis then has.
///
/// # Errors
/// If Redis cannot be reached or refuses a request.
pub(in crate::services) fn exchange(redis: &mut Redis, mine: &SavedRules) -> Result<HeldRules, RedisError> {
    repeat_until_stored(|| exchange_once(redis, mine))
}

/// Makes one exchange. Returns false beside its result if another node has saved meanwhile.
fn exchange_once(redis: &mut Redis, mine: &SavedRules) -> Result<(HeldRules, bool), RedisError> {
    let fields = redis.destination_rules(SHARE_TIME_MAX)?;
    let text = fields.into_iter().find(|(name, _)| name == FIELD).map_or(Vec::new(), |(_, text)| text);
    let own = encoded(mine);
    if text == own || text.is_empty() && mine.saved_ms().is_none() {
        return Ok((HeldRules { text, saved: Some(mine.clone()) }, true));
    }
    let theirs = if text.is_empty() {
        SavedRules::default()
    } else {
        match SavedRules::from_entry(&json_file::entry(&text)) {
            Ok(theirs) => theirs,
            Err(what) => {
                tracing::debug!(%what, "the destination rules in Redis cannot be read and are ignored");
                return Ok((HeldRules { text, saved: None }, true));
            }
        }
    };
    // An equal entry stays: a later version may have written members that this one does not read.
    if theirs >= *mine {
        return Ok((HeldRules { text, saved: Some(theirs) }, true));
    }
    let update = FieldUpdate { field: FIELD.to_owned(), before: text, after: own.clone() };
    let is_stored = redis.update_destination_rules(update, SHARE_TIME_MAX)?;
    Ok((HeldRules { text: own, saved: Some(mine.clone()) }, is_stored))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::bridge::Reply;
    use crate::services::host_lists::tests::empty_lists;
    use crate::services::testing::{TestNode, unreachable_redis};
    use carom_model::destination::hosts::HostPattern;
    use carom_shards::CoreId;

    fn hosts(block: &[&str]) -> RuleHosts {
        let block = block.iter().map(|text| HostPattern::parse(text).unwrap()).collect();
        RuleHosts { allow: Vec::new(), block }
    }

    /// A worker whose settings block `file.example`.
    fn worker(dir: &std::path::Path) -> (RulesWorker, TestNode) {
        let node = TestNode::new(dir, 1);
        let (settings, saved) = (hosts(&["file.example"]), file::read(dir).unwrap());
        let [allow, block] = empty_lists(dir, &node);
        let setup = DestinationRulesSetup {
            data_dir: dir.to_owned(),
            settings,
            saved,
            lists: StaticHosts::of(&allow, &block),
            redis: None,
            mailboxes: node.mailboxes.clone(),
            stats: Arc::clone(&node.stats),
        };
        let mut worker = RulesWorker::new(setup);
        worker.publish(None);
        node.mail.iter().for_each(|mail| _ = received(mail));
        (worker, node)
    }

    fn order(worker: &RulesWorker, hosts: Option<RuleHosts>) -> DestinationRulesOrder {
        let version = worker.saved.version(&worker.setup.settings);
        DestinationRulesOrder { version, hosts, by: "ops".to_owned(), ticket: Ticket::new(CoreId(0), 7) }
    }

    /// Takes what was published out of the mailbox of a core: both lists and the save, in one message.
    fn received(mail: &Receiver<ToCore>) -> Arc<PublishedRules> {
        match mail.try_recv() {
            Ok(ToCore::DestinationRules(published)) => published,
            other => panic!("unexpected mail {other:?}"),
        }
    }

    /// True if a published block list has a host.
    fn blocks(published: &PublishedRules, host: &str) -> bool {
        published.block.as_ref().is_some_and(|hosts| hosts.has(host))
    }

    fn answered(mail: &Receiver<ToCore>) -> DestinationRulesAnswer {
        match mail.try_recv() {
            Ok(ToCore::Reply { reply: Reply::DestinationRules(answer), .. }) => answer,
            other => panic!("unexpected mail {other:?}"),
        }
    }

    #[test]
    fn a_save_is_answered_once_all_cores_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let save = order(&worker, Some(hosts(&["bad.example"])));
        worker.serve(save);
        assert_eq!(file::read(dir.path()).unwrap(), *worker.saved);
        let [first, second] = &node.mail[..] else { panic!("a core and the admin core") };
        for (mail, is_last) in [(first, false), (second, true)] {
            let published = received(mail);
            assert!(blocks(&published, "bad.example"));
            assert!(!blocks(&published, "file.example"));
            let answer = published.answer.pass();
            let saved = DestinationRulesAnswer::Saved(Arc::clone(&worker.saved));
            assert_eq!(answer, is_last.then(|| (Ticket::new(CoreId(0), 7), saved)));
        }
        assert_eq!(node.stats.rules_saved_ms.get(), worker.saved.saved_ms().unwrap());
    }

    #[test]
    fn a_core_gets_both_lists_of_a_save_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let RuleHosts { block, .. } = hosts(&["bad.example"]);
        let RuleHosts { block: allow, .. } = hosts(&["shop.example"]);
        let save = order(&worker, Some(RuleHosts { allow, block }));
        worker.serve(save);
        for mail in &node.mail {
            let published = received(mail);
            assert!(published.allow.as_ref().is_some_and(|hosts| hosts.has("shop.example")));
            assert!(blocks(&published, "bad.example"));
            assert!(mail.try_recv().is_err(), "no list comes alone");
        }
    }

    #[test]
    fn settings_apply_again_once_the_save_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        for saved in [Some(hosts(&["bad.example"])), None] {
            let save = order(&worker, saved);
            worker.serve(save);
        }
        _ = received(&node.mail[0]);
        assert!(blocks(&received(&node.mail[0]), "file.example"));
        assert_eq!(node.stats.rules_saved_ms.get(), 0);
        assert!(file::read(dir.path()).unwrap().saved_ms().is_some(), "a copy from before must not win");
    }

    #[test]
    fn a_save_of_an_outdated_version_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let [first, second] = ["a.example", "b.example"].map(|host| order(&worker, Some(hosts(&[host]))));
        worker.serve(first);
        _ = received(&node.mail[0]);
        let stored = file::read(dir.path()).unwrap();
        worker.serve(second);
        assert_eq!(answered(&node.mail[0]), DestinationRulesAnswer::Outdated(Arc::new(stored.clone())));
        assert_eq!(stored.hosts(), Some(&hosts(&["a.example"])));
        assert_eq!(file::read(dir.path()).unwrap(), stored);
    }

    #[test]
    fn a_save_that_cannot_be_stored_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.setup.data_dir = dir.path().join("missing");
        let save = order(&worker, Some(hosts(&["bad.example"])));
        worker.serve(save);
        match answered(&node.mail[0]) {
            DestinationRulesAnswer::Failed(what) => assert!(what.contains(file::FILE_NAME), "{what}"),
            other => panic!("unexpected answer {other:?}"),
        }
        assert_eq!(*worker.saved, SavedRules::default());
    }

    #[test]
    fn a_later_save_of_another_node_is_stored_and_published() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let theirs = SavedRules::default().replaced(Some(hosts(&["bad.example"])), "ops", 9);
        worker.take(&theirs).unwrap();
        assert_eq!(file::read(dir.path()).unwrap(), theirs);
        let published = received(&node.mail[0]);
        assert!(blocks(&published, "bad.example"));
        assert_eq!(*published.saved, theirs);
        worker.take(&theirs).unwrap();
        assert!(node.mail[0].try_recv().is_err(), "nothing has changed");
    }

    #[test]
    fn a_node_of_a_fleet_is_ready_after_its_first_exchange() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        worker.setup.redis = Some(Redis::new(unreachable_redis()).unwrap());
        let fleet = &node.stats.fleet;
        fleet.has_keys.store(true, Ordering::Release);
        node.assert_ready_after_exchange(|| worker.share());
        // Redis has not answered since the start, so the node waits for no changes.
        fleet.has_rules.store(false, Ordering::Release);
        fleet.same_code_secret.store(false, Ordering::Release);
        assert!(!worker.share());
        assert!(node.stats.is_ready());
    }

    #[test]
    fn replaced_saves_are_freed_by_the_thread() {
        let dir = tempfile::tempdir().unwrap();
        let (mut worker, node) = worker(dir.path());
        let first = order(&worker, Some(hosts(&["a.example"])));
        worker.serve(first);
        let of_core = Arc::downgrade(&received(&node.mail[0]).saved);
        _ = received(&node.mail[1]);
        let second = order(&worker, Some(hosts(&["b.example"])));
        worker.serve(second);
        assert!(of_core.strong_count() > 0, "a core would have freed it");
        worker.sweep();
        assert_eq!(of_core.strong_count(), 0);
    }
}
