//! The counts of a fleet: numbers for the batches of this node, and the batches and snapshots of other nodes.
//!
//! Each batch is a piece of the log with its origin and number, so counts and number take the same way to the disk:
//! first in one piece, later in the commit of the mark of a fold. A batch is applied if its number is the next one of
//! its origin, and skipped otherwise. So it counts once, however often it arrives and whenever the process is killed.
//!
//! A snapshot fills a slot whose rows do not count yet. One commit then lets them count and drops the rows before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::ErrorKind;

use carom_shards::Code;

use super::super::fold::Period;
use super::super::log::{self, BatchId, Content, Piece};
use super::{VisitAggregator, tally_of};
use carom_limits::{VISITS_TALLIED_BYTES, VISITS_UNSENT_BYTES};
use carom_model::visits::history::History;
use carom_model::visits::origins::{OriginId, OriginSlot, OriginTable};
use carom_model::visits::tally::{Subject, VisitCounts};
use carom_store::links::catalog::View;
use carom_store::links::{Batch, RowPlace, StoreError};
use carom_telemetry::alarms::Alarm;

/// Shortest time between two folds because of hours that are over, in milliseconds. Batches of other nodes may belong to
/// an hour that is over here, and one fold takes many of them.
const HOUR_FOLD_MS: u64 = 60_000;

/// A batch of counts of one origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::services::visits) struct VisitBatch {
    /// The number, from 1 and without gaps.
    pub(in crate::services::visits) number: u64,
    /// The hour, counted from 1970 UTC.
    pub(in crate::services::visits) hour: u32,
    /// The counts, in the form of the log.
    pub(in crate::services::visits) content: Vec<u8>,
}

/// Batches of this node, with the slot of its origin when they were written.
pub(in crate::services::visits) type OriginBatches = (OriginSlot, Vec<VisitBatch>);

/// The origins of the counts, and how far the batches of each have come.
pub(super) struct FleetCounts {
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
    fold_begun_ms: u64,
    is_fold_asked: bool,
    /// Dropped slots whose rows the search under way removes.
    searched: HashSet<OriginSlot>,
    /// The number of the log in which a dropped slot may still have pieces.
    dropped_in: HashMap<OriginSlot, u32>,
    /// Links that have ended since a snapshot was begun.
    ended: Vec<Code>,
    building: Option<OriginSlot>,
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

    fn note(&mut self, batch: BatchId) {
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

    fn logged_of(&self, slot: OriginSlot) -> u64 {
        self.logged.get(&slot).copied().unwrap_or(0)
    }
}

/// The outcome of applying a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::services::visits) enum Application {
    /// It counts, or did before.
    Done,
    /// Batches before it are missing.
    Gap,
    /// It cannot be read.
    Malformed,
    /// The disk or the memory has no room for it now.
    Later,
}

/// A moment of the counts of an origin, to read a snapshot from.
pub(in crate::services::visits) struct OriginView {
    /// The store.
    pub(in crate::services::visits) view: View,
    /// The number of the last log whose rows count.
    pub(in crate::services::visits) folded: u32,
    /// The slot of the origin.
    pub(in crate::services::visits) slot: OriginSlot,
    /// The number of the last batch whose rows are stored.
    pub(in crate::services::visits) applied: u64,
}

/// An origin, with the number of the last batch that counts here.
pub(in crate::services::visits) struct KnownOrigin {
    pub(in crate::services::visits) id: OriginId,
    pub(in crate::services::visits) node: String,
    pub(in crate::services::visits) counted: u64,
}

impl VisitAggregator {
    /// Gives the node its identity in the fleet, unless it has one for this name. Counts from before are its first batch.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn identify(&mut self, id: OriginId, node: &str) -> Result<(), StoreError> {
        if self.fleet.table.has_identity() {
            // A copy of the directory of another node, or a new name.
            return if self.fleet.table.own().node == node { Ok(()) } else { self.renew(id, node) };
        }
        let is_unfolded = !self.folds.is_empty();
        let has_counts = is_unfolded || !self.links.visits_behind(b"", 1)?.is_empty();
        let slot = self.fleet.own_slot();
        self.fleet.table.identify(id, node, u64::from(has_counts && !is_unfolded));
        if has_counts {
            self.fleet.logged.insert(slot, 1);
            self.fleet.synced = 1;
        }
        if let Some(fold) = self.folds.back_mut() {
            fold.reached.insert(slot, 1);
        }
        self.store_origins()
    }

    /// Gives the node another identity, because the batches of the present one are those of another directory. What it
    /// has counted so far remains under the present one.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn renew(&mut self, id: OriginId, node: &str) -> Result<(), StoreError> {
        if self.fleet.table.renew(id, node) {
            self.fleet.unsynced.clear();
            self.fleet.ready.clear();
            self.fleet.ready_bytes = 0;
            self.fleet.synced = 0;
        }
        self.store_origins()
    }

    fn store_origins(&self) -> Result<(), StoreError> {
        let mut batch = self.links.batch();
        batch.set_visit_origins(&self.fleet.table);
        self.links.commit(batch)?;
        self.links.sync()
    }

    /// Returns this node as an origin, with the number of its last synced batch.
    pub(in crate::services::visits) fn own_origin(&self) -> (OriginId, u64) {
        (self.fleet.table.own().id, self.fleet.synced)
    }

    /// Takes the batches of this node that were synced since the last call.
    pub(in crate::services::visits) fn take_ready(&mut self) -> Vec<VisitBatch> {
        self.fleet.ready_bytes = 0;
        self.fleet.ready.drain(..).collect()
    }

    /// Returns the origins whose counts are known here, this node among them.
    pub(in crate::services::visits) fn known_origins(&self) -> Vec<KnownOrigin> {
        let known = self.fleet.table.counted().map(|(slot, origin)| KnownOrigin {
            id: origin.id,
            node: origin.node.clone(),
            counted: self.fleet.logged_of(slot),
        });
        known.collect()
    }

    /// Returns the number of the last batch of an origin that counts here, or 0 for an unknown origin.
    pub(in crate::services::visits) fn counted_of(&self, id: OriginId) -> u64 {
        self.fleet.table.slot_of(id).map_or(0, |slot| self.fleet.logged_of(slot))
    }

    /// Applies a batch of another origin.
    ///
    /// # Errors
    /// If a new origin cannot be stored.
    pub(in crate::services::visits) fn apply(
        &mut self,
        (id, node): (OriginId, &str),
        batch: &VisitBatch,
    ) -> Result<Application, StoreError> {
        let slot = self.fleet.table.slot_of(id);
        let counted = self.counted_of(id);
        if batch.number <= counted || id == self.fleet.table.own().id {
            return Ok(Application::Done);
        }
        if batch.number > counted + 1 {
            return Ok(Application::Gap);
        }
        // Room is left for the visits of this node.
        if !self.may_write() || self.weight() > VISITS_TALLIED_BYTES / 4 * 3 {
            return Ok(Application::Later);
        }
        let Some(content) = log::parse_content(&batch.content) else { return Ok(Application::Malformed) };
        let slot = match slot.or_else(|| self.fleet.table.adopt(id, node)) {
            Some(slot) => slot,
            None => return Ok(Application::Later),
        };
        if counted == 0 {
            // Its slot is stored before a log uses it.
            self.store_origins()?;
        }
        let of = BatchId { slot, number: batch.number };
        match self.log.write(Some(of), batch.hour, &batch.content) {
            Ok(()) => self.enter(of, batch.hour, &content),
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                return Ok(Application::Later);
            }
            Err(error) => {
                self.fail(&error);
                return Ok(Application::Later);
            }
        }
        Ok(Application::Done)
    }

    /// Counts a batch that the log has.
    fn enter(&mut self, of: BatchId, hour: u32, content: &Content) {
        self.fleet.note(of);
        for code in &content.ended {
            let folding = self.folds.iter_mut().flat_map(|fold| &mut fold.tallies);
            let of_slot = folding.chain(&mut self.tallies).filter(|(period, _)| period.slot == of.slot);
            of_slot.for_each(|(_, tally)| tally.remove(&Subject::Link(*code)));
        }
        self.forget_stored(&content.ended, |_, slot| slot == of.slot);
        let tally = tally_of(&mut self.tallies, Period { slot: of.slot, hour });
        content.rows.iter().for_each(|(subject, row)| tally.add_row(*subject, row));
        self.rise(content.rows.iter().filter_map(|(subject, row)| match subject {
            Subject::Link(code) => Some((*code, row.counts.total > 1)),
            Subject::All | Subject::Orphans => None,
        }));
    }

    /// Returns the visits that this node has counted itself.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(in crate::services::visits) fn own_counts(&self, code: Code) -> Result<VisitCounts, StoreError> {
        let (own, subject) = (self.fleet.own_slot(), Subject::Link(code));
        let mut counts = VisitCounts::default();
        for row in self.links.visits_of(&subject.name())? {
            if row.place.slot == own && self.is_live(&row) {
                counts.add(VisitCounts::decode(&mut &row.value[..]).ok_or_else(|| super::damaged(&row))?);
            }
        }
        let tallies = self.folds.iter().flat_map(|fold| &fold.tallies).chain(&self.tallies);
        let tallies = tallies.filter(|(period, _)| period.slot == own).map(|(_, tally)| tally);
        tallies.chain([&self.fresh]).for_each(|tally| counts.add(tally.counts(&subject)));
        Ok(counts)
    }

    /// Returns the counts of an origin for a snapshot with batches after `after`; `None` if this node has none of those.
    /// If they are not in the store yet, a fold begins soon, and a later call returns them.
    pub(in crate::services::visits) fn origin_view(&mut self, id: OriginId, after: u64) -> Option<OriginView> {
        let slot = self.fleet.table.slot_of(id)?;
        let applied = self.fleet.table.applied(slot);
        if applied > after {
            let (view, folded) = (self.links.view(), self.folded);
            return Some(OriginView { view, folded, slot, applied });
        }
        if self.fleet.logged_of(slot) > after && self.folds.is_empty() {
            self.fleet.is_fold_asked = true;
        }
        None
    }

    /// Begins a snapshot of another origin. Returns the slot for its rows; `None` if no slot is free.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn begin_snapshot(
        &mut self,
        (id, node): (OriginId, &str),
    ) -> Result<Option<OriginSlot>, StoreError> {
        self.fleet.ended.clear();
        self.fleet.building = self.fleet.table.build(id, node);
        self.store_origins()?;
        Ok(self.fleet.building)
    }

    /// Stores rows of a snapshot: names of subjects, each with its history. Returns false if the disk has no room now.
    ///
    /// # Errors
    /// If a row is malformed, or the store fails.
    pub(in crate::services::visits) fn put_snapshot(
        &mut self,
        slot: OriginSlot,
        rows: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<bool, StoreError> {
        if !self.may_write() {
            return Ok(false);
        }
        let mut batch = self.links.batch();
        for (name, value) in rows {
            if History::decode(value).is_none() {
                return Err(StoreError::Damaged("a snapshot of visits".to_owned()));
            }
            batch.put_visits(name, RowPlace::together(slot), value);
        }
        self.links.commit(batch)?;
        Ok(true)
    }

    /// Ends a snapshot that has all batches of its origin up to a number.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn end_snapshot(
        &mut self,
        slot: OriginSlot,
        applied: u64,
    ) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.fleet.ended);
        self.forget_stored(&ended, |_, of| of == slot);
        // The rows are synced before the table that lets them count.
        self.links.sync()?;
        self.fleet.building = None;
        let replaced = self.fleet.table.finish(slot, applied);
        self.fleet.logged.insert(slot, applied);
        self.drop_counts(replaced);
        self.store_origins()
    }

    /// Gives up a snapshot.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn give_up_snapshot(&mut self, slot: OriginSlot) -> Result<(), StoreError> {
        self.fleet.building = None;
        self.fleet.table.drop_slot(slot);
        self.drop_counts(Some(slot));
        self.store_origins()
    }

    /// Drops what is in memory of a slot whose rows do not count any more.
    fn drop_counts(&mut self, slot: Option<OriginSlot>) {
        let Some(slot) = slot else { return };
        self.folds.iter_mut().for_each(|fold| fold.tallies.retain(|(period, _)| period.slot != slot));
        self.tallies.retain(|(period, _)| period.slot != slot);
        self.fleet.logged.remove(&slot);
        self.fleet.dropped_in.insert(slot, self.log.seq);
        // The next search removes its rows.
        self.tidy_at_ms = 0;
    }

    /// Notes that a batch of another node cannot be read.
    pub(in crate::services::visits) fn report_malformed(&self, node: &str, number: u64) {
        let text =
            format!("batch {number} of visits of node {node} was not written by carom or is damaged; it is skipped");
        self.stats.alarms.raise(Alarm::StreamDamaged, text);
    }
}
