//! The counters of a node in a fleet of two sites.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crate::counter::Counter;

/// The counters of a node in a fleet of two sites.
#[derive(Debug, Default)]
pub struct SiteStats {
    /// The names of the site of this node and of the other one; unset for a fleet of one site.
    pub names: OnceLock<(String, String)>,
    /// True if this site has read all changes of the other one within three seconds.
    pub is_current: AtomicBool,
    /// True if this site may lack states that the other Redis no longer has.
    pub may_lack: AtomicBool,
    /// True if this node is the relay of its site.
    pub is_relay: AtomicBool,
    /// True if this node is the relay, and `fleet.other_redis` has turned out to belong to the other site of this fleet.
    pub is_linked: AtomicBool,
    /// States of the other site that this node has offered to the Redis of its site.
    pub relayed: Counter,
    /// Links of this site that were replaced by a state of the other site with an equal revision.
    pub replaced: Counter,
    /// Positions in the streams of the other site that were lost.
    pub gaps: Counter,
    /// Entries with batches of visits that this node has copied from the other site. Written by the courier thread.
    pub visits: Counter,
}
