//! The threads that speak to Redis, on a node that shares its code space with others. [`carom_model::replication`] and
//! [`super::writer::planner`] decide what to do; this module carries it out, with bounds on time and memory.
//!
//! * [`gateway`] asks Redis about each change that a client wants, before the writer decides it; `reuse` searches for a
//!   reusable link;
//! * [`follower`] reads the streams, delivers the outbox to Redis, and compares everything after a position was lost;
//! * [`heartbeat`] sends heartbeats, hears of other nodes, and takes over the leases of those that are gone;
//!   [`agreement`] compares formats and settings;
//! * [`expiry`] asks Redis to remove expired links;
//! * [`code_lookup`] looks up codes that a core does not know;
//! * [`counter`] leases counter values.
//!
//! [`counter`] runs on the replenisher thread and [`expiry`] on the expiry thread. The others each have a thread of
//! their own. Each has its own connections, and no core waits for any of them.

pub mod agreement;
pub mod code_lookup;
pub mod counter;
pub mod expiry;
pub mod follower;
pub mod gateway;
pub mod heartbeat;
mod held_creates;
pub mod redis;
mod reuse;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use carom_shards::{CodeLength, Run};

use self::agreement::SettingFingerprints;
use self::expiry::FleetExpiry;
use self::follower::Follower;
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::bridge::{LookupQueue, Mailboxes, WriterOrder, WriterQueue};
use crate::services::replication::redis::{Redis, RedisError, RedisSettings};
use carom_model::replication::members::Lease;
use carom_model::replication::outbox::Delivery;
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// The settings of a node of a fleet.
#[derive(Clone, Debug)]
pub struct FleetSetup {
    /// The addresses and credentials of Redis.
    pub redis: Arc<RedisSettings>,
    /// The name of this node.
    pub node: String,
    /// Timeout of Redis, after which it counts as away.
    pub answer_time: Duration,
    /// True if the node accepts changes that Redis could not be asked about.
    pub accept_without_redis: bool,
    /// Time of silence after which another node takes over the counter values of a node.
    pub reclaim_after: Duration,
    /// Time since its last use for which an existing link answers a create of the same kind; `None` turns that off.
    pub dedupe: Option<Duration>,
    /// The fingerprint of the code secret.
    pub fingerprint: String,
    /// The settings that must be the same on all nodes.
    pub agreed: SettingFingerprints,
}

/// The state that the threads of a fleet share.
#[derive(Clone)]
pub struct FleetContext {
    /// The settings.
    pub settings: Arc<FleetSetup>,
    /// The store, to read from.
    pub links: Links,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The lease of this node: while it lasts, leased counter values may be used without asking Redis.
    pub lease: Arc<Mutex<Lease>>,
    /// The knowledge about the fleet that decides between 404 and 503.
    pub view: Arc<FleetView>,
    /// True once no codes of an earlier process are left that may belong to another node.
    pub is_resumed: Arc<AtomicBool>,
    /// True once the node is shutting down.
    pub stop: Arc<AtomicBool>,
}

impl FleetContext {
    /// True if the threads should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// True if leased counter values may be used without asking Redis.
    pub fn lease_holds(&self) -> bool {
        self.lease().holds(since_boot())
    }

    /// Returns a copy of the lease.
    fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the fleet is known to have the same code secret, which is the condition for sharing anything.
    pub fn has_same_key(&self) -> bool {
        self.stats.fleet.same_key.load(Ordering::Acquire)
    }

    /// Checks whether Redis may be asked for a change that a client wants.
    ///
    /// # Errors
    /// The reason why not.
    fn may_change(&self) -> Result<(), &'static str> {
        if !self.has_same_key() {
            return Err("the code secret of the fleet is not known yet");
        }
        if self.stats.writes_refused.load(Ordering::Acquire) {
            // The writer tells the client why. Redis must not get a change that a client will hear was refused.
            return Err("the store does not accept writes");
        }
        Ok(())
    }

    fn redis(&self) -> io::Result<Redis> {
        Redis::new(Arc::clone(&self.settings.redis)).map_err(io::Error::other)
    }
}

/// A handle on the running threads.
pub struct FleetThreads {
    threads: Vec<JoinHandle<()>>,
    follower: Option<Follower>,
    stop: Arc<AtomicBool>,
}

impl FleetThreads {
    /// Starts to follow the other nodes. All links must have been read back before.
    ///
    /// # Errors
    /// If the operating system cannot start a thread.
    pub fn follow(&mut self) -> io::Result<()> {
        let threads = self.follower.take().map(Follower::start);
        threads.into_iter().try_for_each(|thread| thread.map(|thread| self.threads.push(thread)))
    }

    /// Stops the threads and waits for all of them. Call it after the cores have ended.
    pub fn stop(self) {
        drop(self.follower);
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// The running threads, and the ways to reach them.
pub struct StartedFleet {
    /// The handle on the threads.
    pub fleet: FleetThreads,
    /// The queue to which cores send changes.
    pub gateway: WriterQueue,
    /// The queue to which cores send codes that they do not know.
    pub look_ups: LookupQueue,
    /// The connection through which the expiry thread removes links.
    pub expiry: FleetExpiry,
    /// Runs of counter values that were taken over from nodes that are gone, for the replenisher.
    pub reclaimed: Receiver<Run>,
}

/// Starts the threads. `writer` is the queue of the store's writer; `deliveries` brings its changes for Redis.
///
/// # Errors
/// If the operating system cannot start a thread, or the certificates for Redis cannot be used.
pub fn start(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
    deliveries: Receiver<Delivery>,
    lengths: Vec<CodeLength>,
) -> io::Result<StartedFleet> {
    let (sender, reclaimed): (Sender<Run>, Receiver<Run>) = channel();
    let (gateway, asking) = gateway::start(fleet, writer.clone())?;
    let (look_ups, looking) = code_lookup::start(fleet, writer.clone())?;
    let follower = Some(follower::prepare(fleet, writer, deliveries)?);
    let beating = heartbeat::start(fleet, lengths, sender)?;
    let threads = FleetThreads { threads: vec![asking, looking, beating], follower, stop: Arc::clone(&fleet.stop) };
    let expiry = FleetExpiry::new(fleet)?;
    Ok(StartedFleet { fleet: threads, gateway, look_ups, expiry, reclaimed })
}

/// Counts an error of Redis, and raises an alarm if Redis refused a command.
fn note_error(stats: &NodeStats, error: &RedisError) {
    stats.fleet.errors.add_shared(1);
    if let RedisError::Refused(what) = error {
        stats.alarms.raise(Alarm::RedisRefuses, format!("Redis answers but rejects commands: {what}"));
    }
}
