//! The batches of visit counts that nodes exchange, without a disk: their numbers, and which of them count here.
//!
//! Each batch is a piece of the log with its origin and number. So counts and number reach the disk together: first in
//! one piece, later in the commit that marks a fold. A batch is applied if its number is the next one of its origin,
//! and skipped otherwise. So it counts once, however often it arrives and whenever the process is killed.
//!
//! A snapshot fills a slot whose rows do not count yet. One commit then lets them count and drops the rows before.
//!
//! `services::visits` does what this decides, and so does the simulator of the fleet (`tests/fleet_sim/counts.rs`).
//! Read on in [`super::count_exchange`].

use std::collections::{HashMap, HashSet, VecDeque};

use carom_limits::VISITS_UNSENT_BYTES;
use carom_shards::Code;

use super::origins::{OriginId, OriginSlot, OriginTable, ReusableSlot};

/// Least number of a log that can tell two uses of a slot apart. In the keys of rows, the store uses 1 for visits from
/// before an import.
const SINCE_MIN: u32 = 2;

/// A batch of counts: the slot of its origin, and its number among the batches of that origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchId {
    /// The slot of the origin.
    pub slot: OriginSlot,
    /// The number, from 1 and without gaps.
    pub number: u64,
}

/// A batch of counts of one origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitBatch {
    /// The number, from 1 and without gaps.
    pub number: u64,
    /// The hour, counted from 1970 UTC.
    pub hour: u32,
    /// The counts, in the form of the log.
    pub content: Vec<u8>,
}

/// Batches of this node, with the slot of its origin when they were written.
pub type OriginBatches = (OriginSlot, Vec<VisitBatch>);

/// A piece of a log that a previous process wrote, without its counts.
#[derive(Clone, Copy, Debug)]
pub struct LoggedPiece<'p> {
    /// The batch; `None` for counts from before the node was in a fleet.
    pub batch: Option<BatchId>,
    /// The hour, counted from 1970 UTC.
    pub hour: u32,
    /// The counts, in the form of the log.
    pub content: &'p [u8],
}

/// The decision on a batch of another origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchAdmission {
    /// The batch counts here already, or is of this node.
    Known,
    /// Batches before it are missing.
    Gap,
    /// The batch is the next one of its origin.
    Next,
}

/// The part of the counts of an origin that a node can give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OriginCounts {
    /// The store has all batches up to the number `applied`, in this slot.
    Stored {
        /// The slot of the origin.
        slot: OriginSlot,
        /// The number of the last batch whose rows are all stored.
        applied: u64,
    },
    /// The wanted batches are in a log: a fold comes first.
    Logged,
    /// This node has none of the wanted batches.
    Nothing,
}

/// The origins of the counts, and how far the batches of each have come.
#[derive(Clone, Debug)]
pub struct FleetCounts {
    table: OriginTable,
    /// The number of the last batch of each slot in a log or the store.
    logged: HashMap<OriginSlot, u64>,
    /// The number of the last batch of each slot in the log that is being written.
    reached: HashMap<OriginSlot, u64>,
    /// Batches of this node that are in the log but not synced.
    unsynced: Vec<VisitBatch>,
    /// Synced batches of this node, for other nodes.
    ready: VecDeque<VisitBatch>,
    ready_bytes: usize,
    /// The number of the last synced batch of this node.
    synced: u64,
    /// Dropped slots whose rows the search under way removes.
    searched: HashSet<OriginSlot>,
    /// The number of the log in which a dropped slot may still have pieces. No row of the slot is of a later one.
    dropped_in: HashMap<OriginSlot, u32>,
    /// The number of the last folded log when the last search began.
    folded: u32,
    /// Links that have ended since a snapshot was begun.
    ended: Vec<Code>,
    building: Option<OriginSlot>,
}

impl FleetCounts {
    /// Resumes from the stored table; `None` for a node that has never been in a fleet.
    pub fn new(stored: Option<OriginTable>) -> FleetCounts {
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
            searched: HashSet::new(),
            dropped_in: HashMap::new(),
            folded: 0,
            ended: Vec::new(),
            building: None,
        }
    }

    /// Takes a piece of a log that a previous process wrote. Returns its slot; `None` if its counts are not needed.
    pub fn recover(&mut self, piece: LoggedPiece<'_>) -> Option<OriginSlot> {
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
                let content = piece.content.to_vec();
                self.add_synced((batch.slot, vec![VisitBatch { number: batch.number, hour: piece.hour, content }]));
            }
        }
        Some(batch.slot)
    }

    /// Ends the recovery: the logs up to this one may have pieces of slots that were dropped.
    pub fn end_recovery(&mut self, log: u32) {
        self.dropped_in = self.table.dropped().map(|slot| (slot, log.max(self.table.since(slot) + 1))).collect();
    }

    /// Gives the node its first identity. `is_stored` and `is_logged` say where it has counts from before: they are its
    /// first batch.
    pub fn identify(&mut self, id: OriginId, node: &str, (is_stored, is_logged): (bool, bool)) {
        let slot = self.own_slot();
        self.table.identify(id, node, u64::from(is_stored && !is_logged));
        if is_stored || is_logged {
            self.logged.insert(slot, 1);
            self.synced = 1;
        }
    }

    /// Gives the node another identity. What it has counted so far remains under the present one. Returns false if no slot
    /// is free: then the node keeps the present one.
    pub fn renew(&mut self, id: OriginId, node: &str) -> bool {
        let reusable = self.reusable();
        let is_renewed = self.table.renew(id, node, reusable);
        if is_renewed {
            self.note_taken(self.own_slot());
            self.unsynced.clear();
            self.ready.clear();
            self.ready_bytes = 0;
            self.synced = 0;
        }
        is_renewed
    }

    /// Notes that the log has a batch.
    pub fn note(&mut self, batch: BatchId) {
        for numbers in [&mut self.logged, &mut self.reached] {
            let number = numbers.entry(batch.slot).or_default();
            *number = batch.number.max(*number);
        }
    }

    /// True if the end of a link that a batch of slot `of` notes concerns the counts of a slot. The writer of this node
    /// ends a link for all; another node only says from when on its own counts are those of the next link.
    pub fn ends(&self, of: OriginSlot, slot: OriginSlot) -> bool {
        of == slot || of == self.own_slot()
    }

    /// Takes the numbers of the last batches in the log that is being written.
    pub fn take_reached(&mut self) -> HashMap<OriginSlot, u64> {
        std::mem::take(&mut self.reached)
    }

    /// Returns the slot of the node's own counts.
    pub fn own_slot(&self) -> OriginSlot {
        self.table.own_slot()
    }

    /// Returns the table of origins.
    pub fn table(&self) -> &OriginTable {
        &self.table
    }

    /// Returns this node as an origin, with the number of its last synced batch.
    pub fn own_origin(&self) -> (OriginId, u64) {
        (self.table.own().id, self.synced)
    }

    /// Returns the next batch of this node; `None` outside a fleet.
    pub fn next_own(&self) -> Option<BatchId> {
        let slot = self.own_slot();
        self.table.has_identity().then(|| BatchId { slot, number: self.logged_of(slot) + 1 })
    }

    /// Notes that the log has the next batch of this node.
    pub fn add_own(&mut self, hour: u32, content: Vec<u8>) {
        let Some(batch) = self.next_own() else { return };
        self.note(batch);
        self.unsynced.push(VisitBatch { number: batch.number, hour, content });
    }

    /// Takes the batches of this node that are in the log but not synced.
    pub fn take_unsynced(&mut self) -> OriginBatches {
        (self.own_slot(), std::mem::take(&mut self.unsynced))
    }

    /// Adds synced batches to those for other nodes. If too many wait, the oldest are dropped: other nodes notice the gap
    /// and ask for a snapshot.
    pub fn add_synced(&mut self, (slot, batches): OriginBatches) {
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

    /// Takes the batches of this node that were synced since the last call.
    pub fn take_ready(&mut self) -> Vec<VisitBatch> {
        self.ready_bytes = 0;
        self.ready.drain(..).collect()
    }

    /// Returns the number of the last batch of an origin that counts here, or 0 for an unknown origin.
    pub fn counted_of(&self, id: OriginId) -> u64 {
        self.table.slot_of(id).map_or(0, |slot| self.logged_of(slot))
    }

    /// Returns the number of the last batch of a slot in a log or the store, or 0.
    pub fn logged_of(&self, slot: OriginSlot) -> u64 {
        self.logged.get(&slot).copied().unwrap_or(0)
    }

    /// Decides on the batch with a number of another origin.
    pub fn admits(&self, id: OriginId, number: u64) -> BatchAdmission {
        let counted = self.counted_of(id);
        if number <= counted || id == self.table.own().id {
            BatchAdmission::Known
        } else if number > counted + 1 {
            BatchAdmission::Gap
        } else {
            BatchAdmission::Next
        }
    }

    /// Returns the slot for the next batch of another origin, and true if the table must be stored first, because the
    /// slot is new. Returns `None` if no slot is free for a new origin.
    pub fn slot_for(&mut self, id: OriginId, node: &str) -> Option<(OriginSlot, bool)> {
        let is_new = self.counted_of(id) == 0;
        if let Some(slot) = self.table.slot_of(id) {
            return Some((slot, is_new));
        }
        let reusable = self.reusable();
        let slot = self.table.adopt(id, node, reusable)?;
        self.note_taken(slot);
        Some((slot, is_new))
    }

    /// True if a slot is free for the batches of an origin that is not known, or for a snapshot of a known one.
    pub fn has_slot_for(&self, id: OriginId) -> bool {
        self.table.has_slot(self.table.slot_of(id).is_none(), self.reusable())
    }

    /// Returns the dropped slot whose rows are of the oldest logs, if these are folded. A search need not have removed
    /// the rows: those of the next origin are of later logs, and [`OriginTable::since`] tells them apart.
    fn reusable(&self) -> Option<ReusableSlot> {
        let dropped = self.table.dropped().filter_map(|slot| {
            let since = (*self.dropped_in.get(&slot)?).max(SINCE_MIN);
            Some(ReusableSlot { slot, since })
        });
        dropped.filter(|reusable| reusable.since <= self.folded).min_by_key(|reusable| reusable.since)
    }

    /// Notes that a slot is in use again, also for the search under way, which may have passed rows of it.
    fn note_taken(&mut self, slot: OriginSlot) {
        self.dropped_in.remove(&slot);
        self.searched.remove(&slot);
    }

    /// Notes in the table that the batches up to these numbers are stored. The commit of the mark of a fold stores the
    /// table. Returns `None` outside a fleet.
    pub fn end_fold(&mut self, reached: &HashMap<OriginSlot, u64>) -> Option<&OriginTable> {
        if !self.table.has_identity() {
            return None;
        }
        reached.iter().for_each(|(slot, number)| self.table.reach(*slot, *number));
        Some(&self.table)
    }

    /// Returns what this node can give of the counts of an origin behind the batch `after`.
    pub fn counts_behind(&self, id: OriginId, after: u64) -> OriginCounts {
        let Some(slot) = self.table.slot_of(id) else { return OriginCounts::Nothing };
        let applied = self.table.applied(slot);
        if applied > after {
            OriginCounts::Stored { slot, applied }
        } else if self.logged_of(slot) > after {
            OriginCounts::Logged
        } else {
            OriginCounts::Nothing
        }
    }

    /// Begins a snapshot of another origin. Returns the slot for its rows; `None` if no slot is free. The table must be
    /// stored before the first row.
    pub fn begin_snapshot(&mut self, id: OriginId, node: &str) -> Option<OriginSlot> {
        self.ended.clear();
        let reusable = self.reusable();
        self.building = self.table.build(id, node, reusable);
        self.building.inspect(|slot| self.note_taken(*slot))
    }

    /// Returns the links that have ended since a snapshot was begun: its rows of them do not count.
    pub fn take_ended(&mut self) -> Vec<Code> {
        std::mem::take(&mut self.ended)
    }

    /// Notes links that have ended, for a snapshot that may still have their counts.
    pub fn note_ended(&mut self, codes: &[Code]) {
        if self.building.is_some() {
            self.ended.extend(codes);
        }
    }

    /// Ends a snapshot that has all batches of its origin up to a number. Its rows must be synced, and the table be stored
    /// next. Returns the slot that it replaces, whose counts in memory must be dropped. `log` is the number of the log that
    /// is being written.
    pub fn end_snapshot(&mut self, slot: OriginSlot, applied: u64, log: u32) -> Option<OriginSlot> {
        self.building = None;
        let replaced = self.table.finish(slot, applied);
        self.logged.insert(slot, applied);
        if let Some(replaced) = replaced {
            self.forget(replaced, log);
        }
        replaced
    }

    /// Gives up a snapshot. The table must be stored next. `log` is the number of the log that is being written.
    pub fn give_up_snapshot(&mut self, slot: OriginSlot, log: u32) {
        self.building = None;
        self.table.drop_slot(slot);
        self.forget(slot, log);
    }

    /// Gives up the counts of another origin, so that its slot can be used again. The table must be stored next. Returns the
    /// slot, whose counts in memory must be dropped; `None` if no counts of the origin are here, or if it is this node. `log` is
    /// the number of the log that is being written.
    pub fn give_up_origin(&mut self, id: OriginId, log: u32) -> Option<OriginSlot> {
        let slot = self.table.slot_of(id).filter(|slot| *slot != self.own_slot())?;
        self.table.drop_slot(slot);
        self.forget(slot, log);
        Some(slot)
    }

    /// Frees the slot of a snapshot that was given up, once all its rows are removed. No log has pieces of it. The table
    /// must be stored next. If rows of former origins may be left, the slot can be reused at once, but is not free.
    pub fn free_given_up(&mut self, slot: OriginSlot) {
        self.note_taken(slot);
        match self.table.since(slot) {
            0 => self.table.free(slot),
            since => _ = self.dropped_in.insert(slot, since),
        }
    }

    /// Forgets the numbers of a dropped slot, of which the logs up to `log` may have pieces.
    fn forget(&mut self, slot: OriginSlot, log: u32) {
        self.logged.remove(&slot);
        self.dropped_in.insert(slot, log.max(self.table.since(slot) + 1));
    }

    /// Notes that a search of all rows begins, which removes the rows of dropped slots. `folded` is the number of the
    /// last log whose rows are all stored.
    pub fn begin_search(&mut self, folded: u32) {
        self.folded = folded;
        for slot in self.table.dropped() {
            if self.dropped_in.get(&slot).is_some_and(|log| *log <= folded) {
                self.searched.insert(slot);
            }
        }
    }

    /// Frees the slots whose rows a complete search has removed. An incomplete one frees none: rows that it did not
    /// reach would count for the next origin of the slot. Returns true if a slot was freed: then the table must be
    /// stored.
    pub fn end_search(&mut self, complete: bool) -> bool {
        let searched = std::mem::take(&mut self.searched);
        let freed: Vec<OriginSlot> = self.table.dropped().filter(|slot| complete && searched.contains(slot)).collect();
        freed.iter().for_each(|slot| self.table.free(*slot));
        !freed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visits::origins::ORIGIN_SLOTS;

    #[test]
    fn only_the_next_batch_is_admitted() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        let other = OriginId(2);
        assert_eq!([1, 2].map(|number| counts.admits(other, number)), [BatchAdmission::Next, BatchAdmission::Gap]);
        let (slot, is_new) = counts.slot_for(other, "b").unwrap();
        assert!(is_new);
        counts.note(BatchId { slot, number: 1 });
        let admitted = [1, 2, 3].map(|number| counts.admits(other, number));
        assert_eq!(admitted, [BatchAdmission::Known, BatchAdmission::Next, BatchAdmission::Gap]);
        assert_eq!(counts.admits(OriginId(1), 9), BatchAdmission::Known, "a batch of this node comes from itself");
    }

    #[test]
    fn what_is_logged_is_given_after_a_fold() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        assert_eq!(counts.counts_behind(OriginId(1), 0), OriginCounts::Nothing);
        counts.add_own(490_000, vec![1]);
        assert_eq!(counts.counts_behind(OriginId(1), 0), OriginCounts::Logged);
        let reached = counts.take_reached();
        assert_eq!(counts.end_fold(&reached).map(|table| table.applied(0)), Some(1));
        assert_eq!(counts.counts_behind(OriginId(1), 0), OriginCounts::Stored { slot: 0, applied: 1 });
        assert_eq!(counts.counts_behind(OriginId(1), 1), OriginCounts::Nothing);
    }

    #[test]
    fn incomplete_search_frees_no_slot() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        let slot = counts.begin_snapshot(OriginId(2), "b").unwrap();
        counts.give_up_snapshot(slot, 3);
        counts.begin_search(3);
        assert!(!counts.end_search(false), "rows behind the damage would count for another origin");
        assert!(!counts.end_search(true), "this search did not begin");
        counts.begin_search(2);
        assert!(!counts.end_search(true), "a log may still have counts of the slot");
        counts.begin_search(3);
        assert!(counts.end_search(true));
        assert_eq!(counts.begin_snapshot(OriginId(3), "c"), Some(slot));
    }

    #[test]
    fn search_under_way_frees_no_slot_that_was_taken_again() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        let slot = counts.begin_snapshot(OriginId(2), "b").unwrap();
        counts.give_up_snapshot(slot, 3);
        counts.begin_search(3);
        counts.free_given_up(slot);
        assert_eq!(counts.begin_snapshot(OriginId(2), "b"), Some(slot));
        counts.give_up_snapshot(slot, 4);
        assert!(!counts.end_search(true), "the search may have passed rows of the second snapshot");
    }

    #[test]
    fn full_table_reuses_slots_behind_damage() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        let other = OriginId(2);
        let slot = counts.begin_snapshot(other, "b").unwrap();
        counts.give_up_snapshot(slot, 3);
        let taken = (10..).map_while(|id| counts.slot_for(OriginId(id), "n")).count();
        assert_eq!(taken, usize::from(ORIGIN_SLOTS) - 3);
        assert!(!counts.has_slot_for(other));
        assert!(counts.has_slot_for(OriginId(10)));
        assert!(counts.renew(OriginId(90_000), "a"), "the spare slot is for the node itself");
        assert!(!counts.has_slot_for(OriginId(10)));
        counts.begin_search(2);
        assert_eq!(counts.begin_snapshot(other, "b"), None, "a log may still have counts of the slot");
        counts.begin_search(3);
        assert!(!counts.end_search(false), "a damaged block may have rows of the slot");
        assert_eq!(counts.begin_snapshot(other, "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 3);
        // A snapshot that is given up, without and with rows that stay.
        counts.give_up_snapshot(slot, 4);
        counts.free_given_up(slot);
        assert_eq!(counts.begin_snapshot(other, "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 3, "no row of this use is left");
        counts.give_up_snapshot(slot, 4);
        assert_eq!(counts.begin_snapshot(other, "b"), None, "the next use needs a later log");
        counts.begin_search(4);
        assert_eq!(counts.begin_snapshot(other, "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 4);
        counts.give_up_snapshot(slot, 5);
        assert!(!counts.end_search(true), "the search may have passed rows of the last snapshot");
        counts.begin_search(5);
        assert!(counts.end_search(true));
        assert_eq!(counts.begin_snapshot(other, "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 0, "a search has removed all rows");
    }

    #[test]
    fn restart_does_not_repeat_the_use_of_a_slot() {
        let mut counts = FleetCounts::new(None);
        counts.identify(OriginId(1), "a", (false, false));
        let slot = counts.begin_snapshot(OriginId(2), "b").unwrap();
        counts.give_up_snapshot(slot, 1);
        while counts.slot_for(OriginId(10 + counts.table().counted().count() as u64), "n").is_some() {}
        assert!(counts.renew(OriginId(90_000), "a"));
        counts.begin_search(2);
        assert_eq!(counts.begin_snapshot(OriginId(2), "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 2, "1 is the place of visits from before an import");
        // The process is killed, and the snapshot has left rows.
        let mut counts = FleetCounts::new(OriginTable::decode(&counts.table().encode()));
        counts.end_recovery(2);
        counts.begin_search(2);
        assert_eq!(counts.begin_snapshot(OriginId(2), "b"), None);
        counts.begin_search(3);
        assert_eq!(counts.begin_snapshot(OriginId(2), "b"), Some(slot));
        assert_eq!(counts.table().since(slot), 3);
    }
}
