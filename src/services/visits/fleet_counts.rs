//! The origins of the counts of a fleet, and how far the batches of each have come: in the log, in the store, and on
//! their way to other nodes.

use std::collections::{HashMap, HashSet, VecDeque};

use carom_shards::Code;

use super::log::{BatchId, Piece};
use carom_limits::VISITS_UNSENT_BYTES;
use carom_model::visits::origins::{OriginSlot, OriginTable};
use carom_store::links::Batch;

/// Shortest time between two folds because of hours that are over, in milliseconds. Batches of other nodes may belong to
/// an hour that is over here, and one fold takes many of them.
const HOUR_FOLD_MS: u64 = 60_000;

/// A batch of counts of one origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct VisitBatch {
    /// The number, from 1 and without gaps.
    pub(super) number: u64,
    /// The hour, counted from 1970 UTC.
    pub(super) hour: u32,
    /// The counts, in the form of the log.
    pub(super) content: Vec<u8>,
}

/// Batches of this node, with the slot of its origin when they were written.
pub(super) type OriginBatches = (OriginSlot, Vec<VisitBatch>);

/// The origins of the counts, and how far the batches of each have come.
pub(super) struct FleetCounts {
    pub(super) table: OriginTable,
    /// The number of the last batch of each slot in a log or the store.
    pub(super) logged: HashMap<OriginSlot, u64>,
    /// The number of the last batch of each slot in the log that is being written.
    pub(super) reached: HashMap<OriginSlot, u64>,
    /// Batches of this node that are in the log but not synced.
    pub(super) unsynced: Vec<VisitBatch>,
    /// Synced batches of this node, for other nodes.
    pub(super) ready: VecDeque<VisitBatch>,
    pub(super) ready_bytes: usize,
    /// The number of the last synced batch of this node.
    pub(super) synced: u64,
    pub(super) fold_begun_ms: u64,
    pub(super) is_fold_asked: bool,
    /// Dropped slots whose rows the search under way removes.
    pub(super) searched: HashSet<OriginSlot>,
    /// The number of the log in which a dropped slot may still have pieces.
    pub(super) dropped_in: HashMap<OriginSlot, u32>,
    /// Links that have ended since a snapshot was begun.
    pub(super) ended: Vec<Code>,
    pub(super) building: Option<OriginSlot>,
}

impl FleetCounts {
    /// Resumes from the stored table; `None` for a node that has never been in a fleet.
    pub(super) fn new(stored: Option<OriginTable>) -> FleetCounts {
        let mut table = stored.unwrap_or_default();
        table.drop_unfinished();
        let logged: HashMap<OriginSlot, u64> = table.counted().map(|(slot, origin)| (slot, origin.applied)).collect();
        let synced = table.own().applied;
        FleetCounts {
            table,
            logged,
            reached: HashMap::new(),
            unsynced: Vec::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            synced,
            fold_begun_ms: 0,
            is_fold_asked: false,
            searched: HashSet::new(),
            dropped_in: HashMap::new(),
            ended: Vec::new(),
            building: None,
        }
    }

    /// Takes a piece of a log that a previous process wrote. Returns its slot; `None` if its counts are not needed.
    pub(super) fn recover(&mut self, piece: &Piece) -> Option<OriginSlot> {
        // Counts from before the fleet are the first batch of a node.
        let first = self.table.has_identity().then_some(BatchId { slot: 0, number: 1 });
        let Some(batch) = piece.batch.or(first) else { return Some(self.own_slot()) };
        if !self.table.is_counted(batch.slot) {
            return None;
        }
        self.note(batch);
        if batch.slot == self.own_slot() {
            self.synced = self.synced.max(batch.number);
            if piece.batch.is_some() {
                let content = piece.content.clone();
                self.add_synced((batch.slot, vec![VisitBatch { number: batch.number, hour: piece.hour, content }]));
            }
        }
        Some(batch.slot)
    }

    /// Ends the recovery: the logs up to this one may have pieces of slots that were dropped.
    pub(super) fn end_recovery(&mut self, log: u32) {
        self.dropped_in = self.table.dropped().map(|slot| (slot, log)).collect();
    }

    pub(super) fn note(&mut self, batch: BatchId) {
        for numbers in [&mut self.logged, &mut self.reached] {
            let number = numbers.entry(batch.slot).or_default();
            *number = batch.number.max(*number);
        }
    }

    /// True if the end of a link that a batch of slot `of` notes concerns the counts of a slot. The writer of this node
    /// ends a link for all; another node only says from when on its own counts are those of the next link.
    pub(super) fn ends(&self, of: OriginSlot, slot: OriginSlot) -> bool {
        of == slot || of == self.own_slot()
    }

    /// Takes the numbers of the last batches in the log that is being written.
    pub(super) fn take_reached(&mut self) -> HashMap<OriginSlot, u64> {
        std::mem::take(&mut self.reached)
    }

    pub(super) fn own_slot(&self) -> OriginSlot {
        self.table.own_slot()
    }

    pub(super) fn is_counted(&self, slot: OriginSlot) -> bool {
        self.table.is_counted(slot)
    }

    pub(super) fn is_disused(&self, slot: OriginSlot) -> bool {
        self.table.is_disused(slot)
    }

    pub(super) fn table(&self) -> &OriginTable {
        &self.table
    }

    /// Returns the next batch of this node; `None` outside a fleet.
    pub(super) fn next_own(&self) -> Option<BatchId> {
        let slot = self.own_slot();
        self.table.has_identity().then(|| BatchId { slot, number: self.logged_of(slot) + 1 })
    }

    /// Notes that the log has the next batch of this node.
    pub(super) fn add_own(&mut self, hour: u32, content: Vec<u8>) {
        let Some(batch) = self.next_own() else { return };
        self.note(batch);
        self.unsynced.push(VisitBatch { number: batch.number, hour, content });
    }

    /// Takes the batches of this node that are in the log but not synced.
    pub(super) fn take_unsynced(&mut self) -> OriginBatches {
        (self.own_slot(), std::mem::take(&mut self.unsynced))
    }

    /// Adds synced batches to those for other nodes. If too many wait, the oldest are dropped: other nodes notice the gap
    /// and ask for a snapshot.
    pub(super) fn add_synced(&mut self, (slot, batches): OriginBatches) {
        if slot != self.own_slot() {
            return;
        }
        for batch in batches {
            self.synced = batch.number;
            self.ready_bytes += batch.content.len();
            self.ready.push_back(batch);
        }
        while self.ready_bytes > VISITS_UNSENT_BYTES
            && let Some(batch) = self.ready.pop_front()
        {
            self.ready_bytes -= batch.content.len();
        }
    }

    /// True if a tally of `hour` keeps a fold due when it is `now`.
    pub(super) fn is_over(&self, hour: u32, now: u32) -> bool {
        // The clock of another node may be ahead.
        if self.table.has_identity() { hour < now } else { hour != now }
    }

    /// True if a fold may begin because an hour is over.
    pub(super) fn may_end_hour(&self, now_ms: u64) -> bool {
        !self.table.has_identity() || now_ms >= self.fold_begun_ms + HOUR_FOLD_MS
    }

    pub(super) fn is_fold_asked(&self) -> bool {
        self.is_fold_asked
    }

    pub(super) fn begin_fold(&mut self, now_ms: u64) {
        self.is_fold_asked = false;
        self.fold_begun_ms = now_ms;
    }

    /// Adds to the commit of a fold's mark that these batches are stored.
    pub(super) fn end_fold(&mut self, reached: &HashMap<OriginSlot, u64>, batch: &mut Batch) {
        if self.table.has_identity() {
            reached.iter().for_each(|(slot, number)| self.table.reach(*slot, *number));
            batch.set_visit_origins(&self.table);
        }
    }

    /// Notes links that have ended, for a snapshot that may still have their counts.
    pub(super) fn note_ended(&mut self, codes: &[Code]) {
        if self.building.is_some() {
            self.ended.extend(codes);
        }
    }

    /// Notes that a search of all rows begins, which removes the rows of dropped slots.
    pub(super) fn begin_search(&mut self, folded: u32) {
        for slot in self.table.dropped() {
            if self.dropped_in.get(&slot).is_some_and(|log| *log <= folded) {
                self.searched.insert(slot);
            }
        }
    }

    /// Frees the slots whose rows a whole search has removed. Returns true if there were any.
    pub(super) fn free_searched(&mut self) -> bool {
        let freed: Vec<OriginSlot> = self.table.dropped().filter(|slot| self.searched.contains(slot)).collect();
        freed.iter().for_each(|slot| self.table.free(*slot));
        self.searched.clear();
        !freed.is_empty()
    }

    pub(super) fn logged_of(&self, slot: OriginSlot) -> u64 {
        self.logged.get(&slot).copied().unwrap_or(0)
    }
}
