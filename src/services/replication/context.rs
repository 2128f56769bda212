//! The settings and the state that the threads of a fleet share.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bridge::Mailboxes;
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::services::replication::redis::{Redis, RedisError, RedisSettings};
use carom_model::replication::members::Lease;
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// The settings that must be the same on all nodes, by the name of their group, each as a fingerprint.
pub type SettingFingerprints = BTreeMap<&'static str, String>;

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
    pub(super) fn lease(&self) -> Lease {
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
    pub(super) fn may_change(&self) -> Result<(), &'static str> {
        if !self.has_same_key() {
            return Err("the code secret of the fleet is not known yet");
        }
        if self.stats.writes_refused.load(Ordering::Acquire) {
            // The writer tells the client why. Redis must not get a change that a client will hear was refused.
            return Err("the store does not accept writes");
        }
        Ok(())
    }

    /// Returns a connection to Redis for one thread, which is opened on first use.
    ///
    /// # Errors
    /// If the certificates for Redis cannot be used, or the operating system refuses something.
    pub(super) fn redis(&self) -> io::Result<Redis> {
        Redis::new(Arc::clone(&self.settings.redis)).map_err(io::Error::other)
    }
}

/// Counts an error of Redis, and raises an alarm if Redis refused a command.
pub(super) fn note_error(stats: &NodeStats, error: &RedisError) {
    stats.fleet.errors.add_shared(1);
    if let RedisError::Refused(what) = error {
        stats.alarms.raise(Alarm::RedisRefuses, format!("Redis answers but rejects commands: {what}"));
    }
}
