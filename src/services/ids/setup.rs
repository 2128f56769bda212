//! The inputs of the replenisher, and its error.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use carom_shards::{CodeLength, CodeSpace, CoreCount, GeneratedCode, Run};

use crate::bridge::Mailboxes;
use crate::services::replication::counter::FleetCounter;
use carom_store::ids::IdTable;
use carom_store::links::Links;
use carom_telemetry::stats::{CoreStats, NodeStats};

/// Inputs of the replenisher.
pub struct ReplenisherSetup {
    /// The store of links, which has the marks.
    pub links: Links,
    /// The id table, which has the segments.
    pub ids: IdTable,
    /// The code space.
    pub space: CodeSpace,
    /// The configured length of new codes.
    pub length: CodeLength,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// Number of cores that use codes.
    pub cores: CoreCount,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The counters of each core.
    pub core_stats: Vec<Arc<CoreStats>>,
    /// The source of counter values in a fleet; `None` takes them from the marks in the store.
    pub fleet: Option<FleetSource>,
    /// Codes of expired links, to be reused.
    pub recycled: Receiver<Vec<GeneratedCode>>,
}

/// The source of counter values for a node of a fleet.
pub struct FleetSource {
    /// The counter that all nodes share.
    pub counter: FleetCounter,
    /// Runs that were taken over from nodes that are gone.
    pub reclaimed: Receiver<Run>,
    /// True if the leases of the last process still belong to this node.
    pub keeps_rows: bool,
}

/// The reason why the replenisher cannot start, or cannot prepare a segment.
#[derive(Debug)]
pub struct ReplenishError(String);

impl std::fmt::Display for ReplenishError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "new short codes cannot be prepared: {}", self.0)
    }
}

impl std::error::Error for ReplenishError {}

pub(super) fn failed(error: impl std::fmt::Display) -> ReplenishError {
    ReplenishError(error.to_string())
}
