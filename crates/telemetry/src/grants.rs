//! The part of granted visits in a fleet that threads of the node tell each other.

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
    /// True if this process neither knows nor suspects another one with the name of this node. Written by the heartbeat
    /// thread.
    pub is_alone: AtomicBool,
    /// True if another node waits for reports. Set by the heartbeat thread, and cleared by the thread that reports.
    pub is_asked: AtomicBool,
}
