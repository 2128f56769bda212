//! The threads that speak to Redis, for a node that shares its code space with others. What they do is decided in
//! [`carom_model::replication`] and in [`super::writer::planner`]; here it is carried out, with bounds on time and memory.
//!
//! * [`gateway`] asks Redis about every change that a client wants, before the writer decides it; `reuse` finds out whether
//!   a link that is there already will do;
//! * [`follower`] reads the streams, brings the outbox to Redis, and compares everything where a place was lost;
//! * [`heartbeat`] says that this node is there, hears of the others, and takes over from those that have gone;
//! * [`expiry`] asks for the end of links whose time is over;
//! * [`code_lookup`] asks for codes that a core does not know;
//! * [`counter`] takes counter values for the replenisher.
//!
//! Each has its own connections. None is waited for by a core.

pub mod code_lookup;
pub mod counter;
pub mod expiry;
pub mod follower;
pub mod gateway;
pub mod heartbeat;
pub mod redis;
mod reuse;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use carom_shards::{CodeLength, Run};

use self::expiry::FleetExpiry;
use self::follower::Follower;
use crate::bridge::{LookUpQueue, Order, Post, WriterQueue};
use crate::services::replication::redis::{Redis, RedisSettings, Trouble};
use carom_model::replication::members::Lease;
use carom_model::replication::outbox::Delivery;
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// What a node of a fleet is told by its operator.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// How to reach Redis.
    pub redis: Arc<RedisSettings>,
    /// The name of this node.
    pub node: String,
    /// How long Redis may take to answer before it counts as away.
    pub answer_time: Duration,
    /// Whether changes are taken that Redis could not be asked about.
    pub accept_without_redis: bool,
    /// After how long of silence a node's counter values are taken over.
    pub reclaim_after: Duration,
    /// For how long a link that was used is the answer to a request for one like it.
    pub dedupe: Option<Duration>,
    /// The fingerprint of the secret key.
    pub fingerprint: String,
}

/// What the threads of a fleet share.
#[derive(Clone)]
pub struct Shared {
    /// The settings.
    pub settings: Arc<FleetSettings>,
    /// The store, to read from.
    pub links: Links,
    /// The mailboxes of the cores.
    pub post: Post,
    /// Where to count.
    pub stats: Arc<NodeStats>,
    /// Whether leased counter values may still be used without asking.
    pub lease: Arc<Mutex<Lease>>,
    /// Set when no code is left of an earlier process that may be another node's by now.
    pub is_resumed: Arc<AtomicBool>,
    /// Set when the node is on its way out.
    pub stop: Arc<AtomicBool>,
}

impl Shared {
    /// Whether the threads should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether leased counter values may be used without asking.
    pub fn lease_holds(&self) -> bool {
        self.lease().holds(heartbeat::since_boot())
    }

    /// The lease as it is now.
    fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the fleet is known to have the same secret key, so that anything may be shared.
    pub fn has_same_key(&self) -> bool {
        self.stats.fleet.same_key.load(Ordering::Acquire)
    }

    /// Whether Redis may be asked for a change that a client wants.
    ///
    /// # Errors
    /// Why not.
    fn may_change(&self) -> Result<(), &'static str> {
        if !self.has_same_key() {
            return Err("the code secret of the fleet is not known yet");
        }
        if self.stats.writes_refused.load(Ordering::Acquire) {
            // The writer says why. Redis must not have what a client is told was not done.
            return Err("the store does not accept writes");
        }
        Ok(())
    }

    fn redis(&self) -> io::Result<Redis> {
        Redis::new(Arc::clone(&self.settings.redis)).map_err(io::Error::other)
    }
}

/// The running threads.
pub struct Fleet {
    threads: Vec<JoinHandle<()>>,
    follower: Option<Follower>,
    stop: Arc<AtomicBool>,
}

impl Fleet {
    /// Begins to follow the others, once all links have been read back.
    ///
    /// # Errors
    /// If the operating system cannot start a thread.
    pub fn follow(&mut self) -> io::Result<()> {
        let threads = self.follower.take().map(Follower::start);
        threads.into_iter().try_for_each(|thread| thread.map(|thread| self.threads.push(thread)))
    }

    /// Ends the threads that do not end with their queues, and waits for all. Only after the cores have ended.
    pub fn stop(self) {
        drop(self.follower);
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// What starting the threads gives.
pub struct Started {
    /// The threads.
    pub fleet: Fleet,
    /// Where cores send changes.
    pub gateway: WriterQueue,
    /// Where cores send codes that they do not know.
    pub look_ups: LookUpQueue,
    /// Who asks for the end of links.
    pub expiry: FleetExpiry,
    /// Runs that were taken over from nodes that have gone, for the replenisher.
    pub reclaimed: Receiver<Run>,
}

/// Starts the threads. `writer` is the queue of the store's writer, `deliveries` what it wants brought to Redis.
///
/// # Errors
/// If the operating system cannot start a thread, or the certificates cannot be used.
pub fn start(
    shared: &Shared,
    writer: SyncSender<Order>,
    deliveries: Receiver<Delivery>,
    lengths: Vec<CodeLength>,
) -> io::Result<Started> {
    let (taken, reclaimed): (Sender<Run>, Receiver<Run>) = channel();
    let (gateway, asking) = gateway::start(shared, writer.clone())?;
    let (look_ups, looking) = code_lookup::start(shared, writer.clone())?;
    let follower = Some(follower::prepare(shared, writer, deliveries)?);
    let beating = heartbeat::start(shared, lengths, taken)?;
    let fleet = Fleet { threads: vec![asking, looking, beating], follower, stop: Arc::clone(&shared.stop) };
    let expiry = FleetExpiry::new(shared)?;
    Ok(Started { fleet, gateway, look_ups, expiry, reclaimed })
}

/// Counts a question that got no answer, and says so once for a while.
fn note_trouble(stats: &NodeStats, trouble: &Trouble) {
    stats.fleet.errors.add_shared(1);
    if let Trouble::Refused(what) = trouble {
        stats.alarms.raise(Alarm::RedisRefuses, format!("Redis answers but rejects commands: {what}"));
    }
}
