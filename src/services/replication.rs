//! The threads that speak to Redis, on a node that shares its code space with others. [`carom_model::replication`] and
//! [`super::writer::planner`] decide what to do; this module carries it out, with bounds on time and memory.
//!
//! * [`gateway`] asks Redis about each change that a client wants, before the writer decides it; `reuse` searches for a
//!   reusable link;
//! * [`follower`] reads the streams, delivers the outbox to Redis, and compares everything after a position was lost;
//! * [`heartbeat`] sends heartbeats, hears of other nodes, and takes over the leases of those that are gone;
//!   [`agreement`] compares formats and settings, `known_nodes` keeps the names of all nodes, `eviction` watches the
//!   eviction policies of the servers;
//! * [`expiry`] asks Redis to remove expired links;
//! * [`code_lookup`] looks up codes that a core does not know;
//! * [`counter`] leases counter values;
//! * `home` has the differences between nodes that store all links and nodes whose links Redis stores;
//! * `retention` measures whether this node has all that Redis no longer has;
//! * `relay` brings the states of the other site to the Redis of this one, in a fleet of two sites, and
//!   `site_sync` brings visits, API keys and redirects of domains;
//! * `site_orders` removes the mark of a site that may have lacked links, or gives up the other site by the rules of
//!   `giving_up`.
//!
//! All of them share a [`FleetContext`].
//!
//! [`counter`] runs on the replenisher thread and [`expiry`] on the expiry thread. The others each have a thread of
//! their own, and [`code_lookup`] has a second one in a shared home of links. Each thread has its own connections, and no core
//! waits for any of them.

pub mod agreement;
pub mod code_lookup;
mod context;
pub mod counter;
mod decision;
mod eviction;
pub mod expiry;
pub mod follower;
pub mod gateway;
mod giving_up;
pub mod heartbeat;
mod held_creates;
mod home;
mod known_nodes;
pub mod redis;
mod relay;
mod retention;
mod reuse;
mod site_orders;
mod site_sync;
#[cfg(test)]
mod testing;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;

use carom_shards::{CodeLength, Run};

use self::code_lookup::LookupLanes;
pub(in crate::services) use self::context::note_error;
pub use self::context::{FleetContext, FleetSetup, SettingFingerprints, SiteSetup};
use self::expiry::FleetExpiry;
use self::follower::Follower;
pub use self::home::{SharedHome, StateHome};
pub use self::known_nodes::KnownNodes;
pub use self::retention::Retention;
pub use self::site_orders::RedisSiteOrders;
use crate::bridge::{WriterOrder, WriterQueue};
use carom_model::replication::outbox::Delivery;

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
    /// The queues to which cores send codes that they do not know.
    pub look_ups: LookupLanes,
    /// The connection through which the expiry thread removes links.
    pub expiry: FleetExpiry,
    /// Runs of counter values that were taken over from nodes that are gone, for the replenisher.
    pub reclaimed: Receiver<Run>,
}

/// Starts the threads. `writer` is the queue of the store's writer; `deliveries` brings its changes for Redis. `known` are the
/// nodes that an earlier process knew.
///
/// # Errors
/// If the operating system cannot start a thread, or the certificates for Redis cannot be used.
pub fn start(
    fleet: &FleetContext,
    known: KnownNodes,
    writer: SyncSender<WriterOrder>,
    deliveries: Receiver<Delivery>,
    lengths: Vec<CodeLength>,
) -> io::Result<StartedFleet> {
    let (sender, reclaimed): (Sender<Run>, Receiver<Run>) = channel();
    let (gateway, asking) = gateway::start(fleet, writer.clone())?;
    let (look_ups, looking) = code_lookup::start(fleet, &writer)?;
    let follower = Some(follower::prepare(fleet, writer.clone(), deliveries)?);
    let beating = heartbeat::start(fleet, known, lengths, sender, writer)?;
    let mut threads = vec![asking, beating];
    threads.extend(looking);
    threads.extend(relay::start(fleet)?);
    threads.extend(site_sync::start(fleet)?);
    let threads = FleetThreads { threads, follower, stop: Arc::clone(&fleet.stop) };
    let expiry = FleetExpiry::new(fleet)?;
    Ok(StartedFleet { fleet: threads, gateway, look_ups, expiry, reclaimed })
}
