//! The writer: the one thread that writes links. It does group commits, inserts a link only if its code is free, and
//! acknowledges only after a sync.
//!
//! All orders that arrived during the last sync go into one commit with one sync. Then each owner gets its changes in
//! one bundle, and answers the clients that wait. A failed write or sync is never retried, because it is unknown what
//! reached the disk. The node then refuses writes and continues to redirect. A full disk is detected before it causes a
//! failed write (see [`super::maintenance::disk_guard`]), and writes resume once there is space.
//!
//! [`planner`] decides conflicts over a code. The writer reaches cores only through mailboxes.

mod batch;
mod conflicts;
mod earlier_visits;
pub(super) mod idempotency;
pub mod planner;
mod read_state;
pub mod similar_urls;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeHasher, CoreCount, owner};

use self::batch::BatchBuilder;
use self::conflicts::ConflictReports;
use self::planner::{CommitEffect, CommitPlanner, SettleTimes, Writes, refused};
use self::read_state::look_up;
use super::maintenance::disk_guard::DiskGuard;
use super::search::Catalog;
use super::threads;
use super::threads::priority::Priority;
use crate::bridge::fleet_view::{FleetView, FollowFence, since_boot};
use crate::bridge::{AllowanceQueue, Mailboxes, RemovalResult, ToCore, WriterOrder, WriterQueue, WriterReply};
use carom_limits::{COMMIT_WRITES_MAX, HOME_SETTLE_TIME, WRITE_QUEUE_LEN};
use carom_model::replication::Partition;
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_store::links::{Ended, Links, StoreError};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::{unix_ms, unix_nanos};
use carom_telemetry::stats::NodeStats;

/// Interval between two checks for free space while the disk is full.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Interval between two checks while there is no work.
const LOOK_IDLE: Duration = Duration::from_secs(1);

/// Number of stored states that are read at once at the start.
const STORED_PAGE: usize = 512;

/// The error text for clients while the disk is full.
pub const DISK_FULL: &str = "the disk is full";

/// The error text for clients after a failed write.
pub const FAILED: &str = "the store failed and accepts no writes until the node is restarted";

/// Inputs of the writer.
#[derive(Clone, Debug)]
pub struct WriterSetup {
    /// The store of links.
    pub links: Links,
    /// The indexes of the store, for lists.
    pub catalog: Arc<Catalog>,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The hasher of the process, which finds the owner of a code.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The data directory, whose free disk space is watched.
    pub data_dir: PathBuf,
    /// Time after its last use for which an equivalent link still answers a create; `None` turns that off.
    pub dedupe: Option<Duration>,
    /// The queue of changes to deliver to Redis; `None` for a single node.
    pub deliveries: Option<Sender<Delivery>>,
    /// The knowledge about the fleet, which is the shared home of the links; `None` if this node stores all links.
    pub home: Option<Arc<FleetView>>,
    /// The queue of the thread that grants visits of links with `maxVisits`.
    pub allowances: AllowanceQueue,
    /// The channel on which the counting threads learn of ended links.
    pub ended: Sender<Vec<Ended>>,
    /// The channel on which the expiry thread waits for reports on its orders.
    pub expiry: Sender<RemovalResult>,
    /// The promises to break, for tests.
    #[cfg(feature = "faults")]
    pub faults: super::faults::Faults,
}

/// Starts the writer. It ends, after a last sync, when all senders are gone.
///
/// # Errors
/// If the outbox cannot be read, or the operating system cannot start a thread.
pub fn start(setup: WriterSetup) -> io::Result<(WriterQueue, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(WRITE_QUEUE_LEN);
    let writer = Writer::new(setup)?;
    let thread = threads::start(Priority::Urgent, "store-write", move || writer.run(&receiver))?;
    Ok((sender, thread))
}

/// The state of the store: accepts writes, is full, or has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoreHealth {
    Good,
    Full,
    Failed,
}

struct Writer {
    setup: WriterSetup,
    disk: DiskGuard,
    health: StoreHealth,
    /// A bundle of messages for each mailbox, kept for its capacity.
    bundles: Vec<Vec<ToCore>>,
    batches: BatchBuilder,
    outbox: Outbox,
    conflicts: ConflictReports,
    /// True if states may be committed but not synced. True at the start, because the last process may have left some.
    unsynced: bool,
    /// True once an order from the streams was dropped. All further ones are dropped too, until the follower reads the
    /// streams again.
    skips_stream: bool,
    #[cfg(feature = "faults")]
    synced: super::faults::SyncedLog,
}

impl Writer {
    fn new(setup: WriterSetup) -> io::Result<Writer> {
        assert!(setup.mailboxes.all().len() >= setup.cores.get(), "a core that owns links has no mailbox");
        let mut outbox = restore_outbox(&setup.links).map_err(io::Error::other)?;
        if setup.home.is_some() {
            outbox = outbox.with_settling();
            note_stored_states(&mut outbox, &setup.links).map_err(io::Error::other)?;
        }
        // Before the first heartbeat: other nodes rely on this number.
        count_outbox(&setup.stats, &outbox);
        Ok(Writer {
            disk: DiskGuard::new(setup.data_dir.clone()),
            health: StoreHealth::Good,
            bundles: setup.mailboxes.all().iter().map(|_| Vec::new()).collect(),
            batches: BatchBuilder::default(),
            outbox,
            conflicts: ConflictReports::default(),
            unsynced: true,
            skips_stream: false,
            #[cfg(feature = "faults")]
            synced: super::faults::SyncedLog::open(&setup.data_dir)?,
            setup,
        })
    }

    fn run(mut self, receiver: &Receiver<WriterOrder>) {
        self.hand_deliveries_over();
        self.setup.stats.fleet.unread.set(self.setup.links.count_unread().unwrap_or_default());
        loop {
            match receiver.recv_timeout(self.wait_time()) {
                Ok(first) => self.take_turn(first, receiver),
                Err(RecvTimeoutError::Timeout) => self.idle(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.health != StoreHealth::Failed {
            self.sync();
        }
        tracing::debug!("the writer stopped");
    }

    /// Makes one group commit of the orders that have arrived, at most [`COMMIT_WRITES_MAX`].
    fn take_turn(&mut self, first: WriterOrder, receiver: &Receiver<WriterOrder>) {
        let mut orders = Vec::with_capacity(64);
        orders.push(first);
        orders.extend(receiver.try_iter().take(COMMIT_WRITES_MAX - 1));
        self.setup.stats.write_queue.set(orders.len() as u64);
        let before = orders.len();
        orders.retain(|order| !matches!(order, WriterOrder::ForgetLinks));
        if orders.len() < before {
            self.forget_links();
        }
        self.check_room();
        match self.health {
            StoreHealth::Good => self.commit(orders),
            StoreHealth::Full => self.refuse(orders, DISK_FULL),
            StoreHealth::Failed => self.refuse(orders, FAILED),
        }
        self.setup.stats.write_queue.set(0);
    }

    fn commit(&mut self, orders: Vec<WriterOrder>) {
        assert_eq!(
            self.health,
            StoreHealth::Good,
            "a commit after a failed write could acknowledge what is not on disk"
        );
        assert!(self.bundles.iter().all(Vec::is_empty), "messages of the last commit would be sent with this one");
        let begun = Instant::now();
        let drops_links = self.setup.home.is_some() && orders.iter().any(is_position_lost);
        let mut plan = new_plan(&self.setup, &mut self.outbox);
        let fences = decide_all(&mut plan, orders, &self.setup, &mut self.skips_stream);
        let (needs_sync, confirms_existing) = (plan.needs_sync(), plan.confirms_existing());
        let removal = plan.take_removal();
        self.conflicts.report(&self.setup.stats, &plan);
        let (writes, effects) = plan.finish();
        self.unsynced |= !writes.states.is_empty();
        let must_sync = needs_sync || confirms_existing && self.unsynced;
        let number = unix_nanos();
        let ended: Vec<Ended> = writes.ended.iter().map(|&code| Ended { code, number }).collect();
        if let Err(error) = self.write(&writes, &ended) {
            self.fail(&error);
        } else if !must_sync || self.make_durable() {
            assert!(
                !must_sync || !self.unsynced || cfg!(feature = "faults"),
                "clients would hear of an unsynced change"
            );
            self.setup.stats.links_issued.add(writes.issued);
            self.setup.stats.store_updates.add(writes.states.len() as u64);
            count_outbox(&self.setup.stats, &self.outbox);
            let unread = &self.setup.stats.fleet.unread;
            unread.set(unread.get().saturating_add_signed(writes.unread_change));
            if !ended.is_empty() {
                // Without a receiver the node is shutting down.
                let _ = self.setup.ended.send(ended);
            }
            if !writes.limited.is_empty() {
                self.setup.allowances.changed(writes.limited);
            }
            self.setup.stats.commits.record(begun.elapsed());
            self.publish(effects, drops_links);
            fences.iter().for_each(|fence| self.send_fence(fence));
            self.reply_to_expiry(removal);
            self.hand_deliveries_over();
            return;
        }
        self.reply_to_expiry(removal.map(|_| RemovalResult::default()));
        self.refuse_effects(&effects, FAILED);
    }

    /// Writes the changes of a commit. Changes from other nodes become durable with the next sync. A power failure
    /// before that loses them together with their position in the stream, so they are read again.
    fn write(&mut self, writes: &Writes, ended: &[Ended]) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        let batch = self.batches.build(&self.setup.links, &self.setup.stats, writes, ended)?;
        self.setup.catalog.commit(batch, &writes.relisted)
    }

    /// Hands changes, which are on disk by now, to the thread that delivers them to Redis.
    fn hand_deliveries_over(&mut self) {
        if let Some(deliveries) = &self.setup.deliveries {
            // Without a receiver the node is shutting down, and everything is delivered after the next start.
            let _ = self.outbox.take_deliveries().into_iter().try_for_each(|delivery| deliveries.send(delivery));
        }
    }

    /// Makes the commit durable before clients get their answers: syncs. A build with faults may answer first, and sync
    /// later.
    fn make_durable(&mut self) -> bool {
        #[cfg(feature = "faults")]
        if self.setup.faults.ack_before_sync && !self.synced.is_due() {
            return true;
        }
        self.sync()
    }

    /// Syncs all commits. A failure is final.
    fn sync(&mut self) -> bool {
        assert_ne!(self.health, StoreHealth::Failed, "a failed sync is never retried: its pages may be gone");
        #[cfg(feature = "faults")]
        self.synced.before_sync(&self.setup.data_dir);
        let start = Instant::now();
        #[cfg(feature = "faults")]
        let result = self.setup.faults.obstruct_sync(&self.setup.data_dir).and_then(|()| self.setup.links.sync());
        #[cfg(not(feature = "faults"))]
        let result = self.setup.links.sync();
        self.setup.stats.syncs.record(start.elapsed());
        #[cfg(feature = "faults")]
        self.synced.after_sync(result.is_ok());
        self.unsynced &= result.is_err();
        result.map_err(|error| self.fail(&error)).is_ok()
    }

    /// Sends every core its messages after a commit, in one bundle. With `drops_links`, all cores then drop
    /// their links.
    fn publish(&mut self, effects: Vec<CommitEffect>, drops_links: bool) {
        let (setup, commit) = (&self.setup, self.setup.links.commits());
        for effect in effects {
            match effect {
                CommitEffect::Apply { code, change, answer } => {
                    debug_assert_eq!(change.code(), &code, "the owner of another code would get the change");
                    let core = owner(setup.hasher.hash(&code), setup.cores);
                    self.bundles[core.index()].push(ToCore::Apply { change, commit, answer });
                }
                CommitEffect::Answer(reply) => bundle(&mut self.bundles, reply),
            }
        }
        self.post_bundles();
        if drops_links {
            self.forget_links();
        }
    }

    /// Makes all cores drop their links: a stream from the shared home has lost changes that concern some of them, or some
    /// were read from an old master.
    fn forget_links(&self) {
        let commit = self.setup.links.commits();
        self.setup.mailboxes.all().iter().for_each(|mailbox| mailbox.post(ToCore::ForgetLinks { commit }));
    }

    /// Sends a fence to all cores, behind the changes that came before it. Refuses it if one of them was left out.
    fn send_fence(&self, fence: &Arc<FollowFence>) {
        if self.outbox.has_left_out() {
            return fence.refuse();
        }
        self.setup.mailboxes.all().iter().for_each(|mailbox| mailbox.post(ToCore::Fence(Arc::clone(fence))));
    }

    fn reply_to_expiry(&self, removal: Option<RemovalResult>) {
        // Without a receiver the node is shutting down.
        let _ = removal.map(|removal| self.setup.expiry.send(removal));
    }

    /// Answers the clients of a failed commit. Its writes may be on disk nevertheless.
    fn refuse_effects(&mut self, effects: &[CommitEffect], reason: &'static str) {
        assert_eq!(
            self.health,
            StoreHealth::Failed,
            "the writer would continue after a commit that it has not confirmed"
        );
        for reply in effects.iter().filter_map(CommitEffect::answer) {
            bundle(&mut self.bundles, reply.after_failed_commit(reason));
        }
        self.post_bundles();
    }

    /// Refuses the requests of clients. Changes of other nodes are dropped and must be read again: the positions in the
    /// streams stay.
    fn refuse(&mut self, orders: Vec<WriterOrder>, reason: &'static str) {
        for order in orders {
            if matches!(
                order,
                WriterOrder::Expire { .. } | WriterOrder::DeleteScheduled { .. } | WriterOrder::ReleaseCodes { .. }
            ) {
                self.reply_to_expiry(Some(RemovalResult::default()));
                continue;
            }
            let WriterOrder::Client(request, decision) = order else {
                self.setup.stats.fleet.orders_taken.add(1);
                self.setup.stats.fleet.orders_dropped.add(1);
                self.skips_stream = true;
                continue;
            };
            bundle(&mut self.bundles, request.failed(refused(&decision, reason)));
        }
        self.post_bundles();
    }

    fn post_bundles(&mut self) {
        assert_eq!(self.bundles.len(), self.setup.mailboxes.all().len(), "the answers of some clients have no mailbox");
        for (mailbox, bundle) in self.setup.mailboxes.all().iter().zip(&mut self.bundles) {
            if !bundle.is_empty() {
                mailbox.post_all(bundle.drain(..));
            }
        }
    }

    fn fail(&mut self, error: &StoreError) {
        self.setup.stats.store_errors.add_shared(1);
        if self.health == StoreHealth::Failed {
            return;
        }
        self.health = StoreHealth::Failed;
        self.setup.stats.writes_refused.store(true, Ordering::Release);
        tracing::error!(%error, "a write to the store failed; writes are refused, redirects continue");
        let text = format!("{error}; writes are refused; check the disk, then restart the node");
        self.setup.stats.alarms.raise(Alarm::StoreFailed, text);
    }

    /// Switches between accepting writes and refusing them for lack of space.
    fn check_room(&mut self) {
        if self.health == StoreHealth::Failed {
            return;
        }
        let room = self.disk.has_room(self.setup.links.unflushed_bytes());
        let health = if room { StoreHealth::Good } else { StoreHealth::Full };
        assert_eq!(
            self.setup.stats.writes_refused.load(Ordering::Acquire),
            self.health == StoreHealth::Full,
            "other threads would write to a full disk, or stop for no reason"
        );
        if health == self.health {
            return;
        }
        self.health = health;
        self.setup.stats.writes_refused.store(!room, Ordering::Release);
        if room {
            self.setup.stats.alarms.clear(Alarm::DiskFull);
        } else {
            let free = self.disk.space().map_or(0, |space| space.free) / (1024 * 1024);
            let text = format!(
                "the disk of {} has {free} MiB left; writes are refused until space is freed",
                self.setup.data_dir.display()
            );
            self.setup.stats.alarms.raise(Alarm::DiskFull, text);
        }
    }

    /// Returns how long to wait for an order before other work is due.
    fn wait_time(&self) -> Duration {
        #[cfg(feature = "faults")]
        if self.setup.faults.ack_before_sync {
            return self.synced.wait_time();
        }
        // Other threads write to the disk, too: visits, for example, while no link is created.
        if self.health == StoreHealth::Full { LOOK_AGAIN } else { LOOK_IDLE }
    }

    fn idle(&mut self) {
        #[cfg(feature = "faults")]
        if self.setup.faults.ack_before_sync && self.health != StoreHealth::Failed && self.synced.is_due() {
            self.sync();
        }
        self.check_room();
    }
}

/// Returns an empty commit with the settings and the fleet of this node.
fn new_plan<'o>(setup: &WriterSetup, outbox: &'o mut Outbox) -> CommitPlanner<'o> {
    let fleet = &setup.stats.fleet;
    let keep_ms = fleet.recycles.load(Ordering::Acquire).then(|| fleet.keep_expired_ms.get());
    CommitPlanner::new(outbox, unix_ms())
        .with_window(setup.dedupe.map(|window| window.as_millis() as u64))
        .with_events(setup.links.events().is_some())
        .with_retention(fleet.may_have_expired.load(Ordering::Acquire))
        .with_recycling(keep_ms)
        .with_shared_home(setup.home.as_deref().map(settle_times))
}

/// Decides the orders of a commit. Returns the fences behind the changes from the streams. `skips_stream` is the field
/// of the writer.
fn decide_all(
    plan: &mut CommitPlanner<'_>,
    orders: Vec<WriterOrder>,
    setup: &WriterSetup,
    skips_stream: &mut bool,
) -> Vec<Arc<FollowFence>> {
    let WriterSetup { links, stats, .. } = setup;
    if setup.dedupe.is_none() {
        plan.prefetch(&orders, |code| look_up(links, stats, code));
    }
    let mut fences = Vec::new();
    for order in orders {
        if is_from_fleet(&order) {
            stats.fleet.orders_taken.add(1);
            *skips_stream &= !matches!(order, WriterOrder::Resumed);
            if *skips_stream {
                continue;
            }
            if let WriterOrder::Fence(fence) = order {
                fences.push(fence);
                continue;
            }
        }
        if let Some((ticket, answer)) = idempotency::answer(links, stats, &order) {
            plan.answer_repeated(ticket, answer);
            continue;
        }
        plan.decide(
            order,
            |code| look_up(links, stats, code),
            |key, which| similar_urls::find_entries(links, stats, key, which),
        );
    }
    fences
}

/// Returns the times by which states settle now, in the home of the links that a node shares.
fn settle_times(view: &FleetView) -> SettleTimes {
    // A node notices a loss in Redis only by reading the streams to their ends.
    let followed = view.followed_at().unwrap_or_default();
    SettleTimes { now: since_boot(), until: followed.saturating_sub(HOME_SETTLE_TIME) }
}

/// True if an order tells that a position in a stream is lost.
fn is_position_lost(order: &WriterOrder) -> bool {
    matches!(order, WriterOrder::PositionLost { .. })
}

/// Adds a reply to the messages for the core whose task waits for it.
fn bundle(bundles: &mut [Vec<ToCore>], reply: WriterReply) {
    let (core, token, reply) = reply.into_parts();
    bundles[core.index()].push(ToCore::Reply { token, reply });
}

/// Publishes the sizes of the outbox.
fn count_outbox(stats: &NodeStats, outbox: &Outbox) {
    stats.fleet.undelivered.set(outbox.undelivered() as u64);
    stats.fleet.outbox.set(outbox.len() as u64);
    stats.fleet.settling.set(outbox.settling() as u64);
}

/// Restores the outbox from the store.
fn restore_outbox(links: &Links) -> Result<Outbox, StoreError> {
    let (mut places, mut refused) = (Vec::new(), Vec::new());
    for partition in Partition::all() {
        places.extend(links.position(partition)?.map(|position| (partition, position)));
        refused.extend(links.awaits_upgrade(partition)?.then_some(partition));
    }
    let mut outbox = Outbox::restore(links.outbox()?, places);
    outbox.restore_refused(refused);
    Ok(outbox)
}

/// Adds every stored state to the outbox, which sends it to Redis again. A node whose links have a shared home needs this,
/// since it does not know how long Redis has had them.
fn note_stored_states(outbox: &mut Outbox, links: &Links) -> Result<(), StoreError> {
    let mut behind = Vec::<u8>::new();
    loop {
        let page = links.page(&behind, STORED_PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        behind.clone_from(last);
        for code in page.iter().filter_map(|(key, _)| Code::from_key(key).ok()) {
            if !outbox.has(&code) {
                outbox.note(code, None);
            }
        }
    }
}

/// True if an order comes from the fleet's threads.
fn is_from_fleet(order: &WriterOrder) -> bool {
    !matches!(
        order,
        WriterOrder::Client(..)
            | WriterOrder::Expire { .. }
            | WriterOrder::DeleteScheduled { .. }
            | WriterOrder::ReleaseCodes { .. }
    )
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(feature = "faults")]
mod fault_tests;
