//! The progress of the follower with its long pieces of work.

use std::collections::BTreeSet;
use std::time::Instant;

use carom_shards::Code;

use crate::services::replication::redis::{Scan, SlotLayout};
use carom_model::replication::Partition;
use carom_model::replication::outbox::Delivery;
use carom_store::links::LogPosition;

/// A comparison in progress.
pub(super) struct Compare {
    /// The partitions to compare. Partitions that are added later are compared after it.
    pub(super) which: BTreeSet<Partition>,
    pub(super) phase: ComparePhase,
    /// Number of codes that were compared.
    pub(super) compared: u64,
    /// The time of the last progress message.
    pub(super) logged: Instant,
}

/// The pass of a comparison, and its position.
pub(super) enum ComparePhase {
    /// The pass down from Redis.
    Down(Scan),
    /// The pass up to Redis, after this key of the store.
    Up(Vec<u8>),
    /// The pass up to Redis over the codes that changed between two positions of the change log: within the retention, and
    /// before the pass began. Redis has not lost earlier states, but let them expire.
    Recent(LogPosition, LogPosition),
}

impl Compare {
    /// Takes a partition out of this comparison: its position was lost again, so it must be compared from the start.
    pub(super) fn drop_partition(&mut self, partition: Partition) {
        self.which.remove(&partition);
    }
}

/// A scan of all codes for chosen slugs.
pub(super) struct SlugScan {
    pub(super) codes: Scan,
    /// The slots of the masters before the scan.
    pub(super) slots: SlotLayout,
}

/// Deliveries that wait for their records.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    pub(super) deliveries: Vec<Delivery>,
    /// The time of the last attempt.
    pub(super) tried: Option<Instant>,
}

/// The progress of the work for the retention.
#[derive(Debug, Default)]
pub(super) struct Retaining {
    /// The time at which the streams were last trimmed.
    pub(super) trimmed: Option<Instant>,
    /// The time of the last piece of the pass.
    pub(super) worked: Option<Instant>,
    pub(super) pass: ExpiryPass,
    /// Number of states that the pass has let expire.
    pub(super) expired: u64,
}

/// The pass over the states that were written before states expired.
#[derive(Debug, Default)]
pub(super) enum ExpiryPass {
    #[default]
    Begins,
    Goes(Scan),
    Ended,
}

/// The progress of the passes over marked codes.
#[derive(Debug, Default)]
pub(super) struct Rereading {
    /// The last code that the present pass has asked for.
    pub(super) behind: Option<Code>,
    /// Number of codes with a state of a later version that the present pass has met.
    pub(super) newer: u64,
    /// The end of the last pass.
    pub(super) rested: Option<Instant>,
    /// The time at which the marks were last counted, to find that none is left.
    pub(super) counted: Option<Instant>,
}

impl Rereading {
    /// Begins the next pass at once, at the first marked code.
    pub(super) fn restart(&mut self) {
        (self.behind, self.newer, self.rested) = (None, 0, None);
    }
}
