//! The part of granted visits in a fleet that threads of the node tell each other.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Messages between the heartbeat thread and the thread that admits visits of limited links.
#[derive(Debug, Default)]
pub struct GrantStats {
    /// The other nodes that may hold grants, and the time at which the heartbeat was sent that told of them; `None` before
    /// the first heartbeat, and in a shared home of links. Written by the heartbeat thread.
    pub others: Mutex<Option<(Vec<String>, Instant)>>,
    /// True if a visit waited lately for the report of another node. The heartbeat says so.
    pub is_waiting: AtomicBool,
    /// True if a visit waited lately until this node has heard of all live nodes. Heartbeats then come more often.
    pub is_settling: AtomicBool,
    /// True if this process neither knows nor suspects another one with the name of this node. Written by the heartbeat
    /// thread.
    pub is_alone: AtomicBool,
    /// True while the other nodes that this process knows have heard that it runs, or were silent for too long. Written by the
    /// heartbeat thread.
    pub is_introduced: AtomicBool,
    /// True if another node waits for reports. Set by the heartbeat thread, and cleared by the thread that reports.
    pub is_asked: AtomicBool,
    /// The handover of grants when a node stops.
    pub handover: GrantHandover,
}

/// The handover of granted visits by nodes that stop.
#[derive(Debug, Default)]
pub struct GrantHandover {
    /// True once this node stops and is to leave its grants to the others. Set by the heartbeat thread.
    pub is_asked: AtomicBool,
    /// True once the other thread has answered that.
    pub is_answered: AtomicBool,
    /// True if Redis has the grants of this node. The last heartbeat says so.
    pub is_left: AtomicBool,
    /// The grants that other nodes have left, encoded, each with the number of the last heartbeat of its node. Written by
    /// the heartbeat thread, and taken by the other one.
    pub found: Mutex<BTreeMap<String, (u64, Vec<u8>)>>,
    /// The stopped nodes whose grants were looked at, each with the number of its last heartbeat, and true if they are in the
    /// store.
    pub taken: Mutex<BTreeMap<String, (u64, bool)>>,
}
