//! Folds of the counts of a fleet: when they begin, and what they store of the origins.
//!
//! [`carom_model::visits::batches`] decides which batches count.

use std::collections::HashMap;

use carom_model::visits::batches::FleetCounts;
use carom_model::visits::origins::OriginSlot;
use carom_store::links::Batch;

/// Shortest time between two folds because of hours that are over, in milliseconds. Batches of other nodes may belong to
/// an hour that is over here, and one fold takes many of them.
const HOUR_FOLD_MS: u64 = 60_000;

/// The state that decides when folds of the counts of a fleet begin.
#[derive(Debug, Default)]
pub(super) struct FleetFolds {
    begun_ms: u64,
    is_asked: bool,
}

impl FleetFolds {
    /// True if a fold may begin because an hour is over.
    pub(super) fn may_end_hour(&self, counts: &FleetCounts, now_ms: u64) -> bool {
        !counts.table().has_identity() || now_ms >= self.begun_ms + HOUR_FOLD_MS
    }

    /// Notes that another node waits for counts that are not in the store.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// True if another node waits for counts that are not in the store.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Notes that a fold begins.
    pub(super) fn begin(&mut self, now_ms: u64) {
        *self = FleetFolds { begun_ms: now_ms, is_asked: false };
    }
}

/// True if the hour of a tally is over in the hour `now`, so that a fold is due. Both are counted from 1970 UTC.
pub(super) fn is_over(counts: &FleetCounts, hour: u32, now: u32) -> bool {
    // The clock of another node may be ahead.
    if counts.table().has_identity() { hour < now } else { hour != now }
}

/// Adds to the commit of a fold's mark that these batches are stored.
pub(super) fn end_fold(counts: &mut FleetCounts, reached: &HashMap<OriginSlot, u64>, batch: &mut Batch) {
    if let Some(table) = counts.end_fold(reached) {
        batch.set_visit_origins(table);
    }
}
