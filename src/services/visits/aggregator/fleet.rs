//! The counts of a fleet: numbers for the batches of this node, and the batches and snapshots of other nodes.
//!
//! [`carom_model::visits::batches`] decides, and this writes to the log and the store.

use std::io::ErrorKind;

use carom_shards::Code;

use super::super::fold::Period;
use super::super::intake::tally_of;
use super::super::log::{self, PieceCounts};
use super::super::stored_rows::damaged;
use super::VisitAggregator;
use carom_limits::{SNAPSHOT_NAMES_NOTED, VISITS_TALLIED_BYTES};
use carom_model::visits::batches::{BatchAdmission, BatchId, OriginCounts, VisitBatch};
use carom_model::visits::count_exchange::CountsLack;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::{OriginId, OriginSlot};
use carom_model::visits::tally::{Subject, VisitCounts};
use carom_store::links::StoreError;
use carom_store::links::catalog::View;
use carom_telemetry::alarms::Alarm;

/// The outcome of applying a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::services::visits) enum Application {
    /// The batch counts, or did before.
    Done,
    /// Batches before it are missing.
    Gap,
    /// The batch cannot be read.
    Malformed,
    /// The batch has to wait, for this reason.
    Later(CountsLack),
}

/// A moment of the counts of an origin, to read a snapshot from.
pub(in crate::services::visits) struct OriginView {
    /// The store.
    pub(in crate::services::visits) view: View,
    /// The number of the last log whose rows count.
    pub(in crate::services::visits) folded: u32,
    /// The slot of the origin.
    pub(in crate::services::visits) slot: OriginSlot,
    /// The number of the log after which the rows in the slot are those of the origin.
    pub(in crate::services::visits) since: u32,
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
    /// Returns false if no slot is free for another identity: then the node keeps the one for another name.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn identify(&mut self, id: OriginId, node: &str) -> Result<bool, StoreError> {
        if self.fleet.table().has_identity() {
            // A copy of the directory of another node, or a new name.
            return if self.fleet.table().own().node == node { Ok(true) } else { self.renew(id, node) };
        }
        let is_logged = !self.folds.is_empty();
        let is_stored = !is_logged && !self.links.visits_after(b"", 1)?.is_empty();
        let slot = self.fleet.own_slot();
        self.fleet.identify(id, node, (is_stored, is_logged));
        if let Some(fold) = self.folds.back_mut() {
            fold.reached.insert(slot, 1);
        }
        self.store_origins().map(|()| true)
    }

    /// Gives the node another identity, because the batches of the present one are those of another directory. What it
    /// has counted so far remains under the present one. Returns false if no slot is free: then the node keeps it for now.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn renew(&mut self, id: OriginId, node: &str) -> Result<bool, StoreError> {
        let has_tried = self.fleet.table().own().node.is_empty();
        let is_renewed = self.fleet.renew(id, node);
        if is_renewed || !has_tried {
            self.store_origins()?;
        }
        Ok(is_renewed)
    }

    /// True if a slot is free for the batches of an origin that is not known, or for a snapshot of a known one.
    pub(in crate::services::visits) fn has_slot_for(&self, id: OriginId) -> bool {
        self.fleet.has_slot_for(id)
    }

    fn store_origins(&self) -> Result<(), StoreError> {
        let mut batch = self.links.batch();
        batch.set_visit_origins(self.fleet.table());
        self.links.commit(batch)?;
        self.links.sync()
    }

    /// Returns this node as an origin, with the number of its last synced batch.
    pub(in crate::services::visits) fn own_origin(&self) -> (OriginId, u64) {
        self.fleet.own_origin()
    }

    /// Returns for how long visits of this node have waited to be logged, in milliseconds; 0 if none wait. They wait while
    /// the disk is full, and once it has failed.
    pub(in crate::services::visits) fn unlogged_ms(&self) -> u64 {
        self.unlogged_since_ms.map_or(0, |since| self.now_ms.saturating_sub(since).max(1))
    }

    /// Takes the batches of this node that were synced since the last call.
    pub(in crate::services::visits) fn take_ready(&mut self) -> Vec<VisitBatch> {
        self.fleet.take_ready()
    }

    /// Returns the origins whose counts are known here, this node among them.
    pub(in crate::services::visits) fn known_origins(&self) -> Vec<KnownOrigin> {
        let known = self.fleet.table().counted().map(|(slot, origin)| KnownOrigin {
            id: origin.id,
            node: origin.node.clone(),
            counted: self.fleet.logged_of(slot),
        });
        known.collect()
    }

    /// Returns the number of the last batch of an origin that counts here, or 0 for an unknown origin.
    pub(in crate::services::visits) fn counted_of(&self, id: OriginId) -> u64 {
        self.fleet.counted_of(id)
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
        match self.fleet.admits(id, batch.number) {
            BatchAdmission::Known => return Ok(Application::Done),
            BatchAdmission::Gap => return Ok(Application::Gap),
            BatchAdmission::Next => {}
        }
        // Room is left for the visits of this node.
        if !self.may_write() || self.weight() > VISITS_TALLIED_BYTES / 4 * 3 {
            return Ok(Application::Later(CountsLack::Unstored));
        }
        let Some(content) = log::parse_content(&batch.content) else { return Ok(Application::Malformed) };
        let Some((slot, is_new)) = self.fleet.slot_for(id, node) else {
            return Ok(Application::Later(CountsLack::NoSlot));
        };
        if is_new {
            // Its slot is stored before a log uses it.
            self.store_origins()?;
        }
        let of = BatchId { slot, number: batch.number };
        match self.log.write(Some(of), batch.hour, &batch.content) {
            Ok(()) => self.enter(of, batch.hour, &content),
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                return Ok(Application::Later(CountsLack::Unstored));
            }
            Err(error) => {
                self.fail(&error);
                return Ok(Application::Later(CountsLack::Unstored));
            }
        }
        Ok(Application::Done)
    }

    /// Counts a batch that the log has.
    fn enter(&mut self, of: BatchId, hour: u32, content: &PieceCounts) {
        self.fleet.note(of);
        for code in &content.ended {
            let folding = self.folds.iter_mut().flat_map(|fold| &mut fold.tallies);
            let of_slot = folding.chain(&mut self.tallies).filter(|(period, _)| period.slot == of.slot);
            of_slot.for_each(|(_, tally)| tally.remove(&Subject::Link(*code)));
        }
        self.forget_stored(&content.ended, |_, slot| slot == of.slot);
        let tally = tally_of(&mut self.tallies, Period { slot: of.slot, hour });
        content.rows.iter().for_each(|(subject, row)| tally.add_row(*subject, row));
        self.note_candidates(content.rows.iter().filter_map(|(subject, row)| match subject {
            Subject::Link(code) => Some((*code, row.counts.total > 1)),
            Subject::All | Subject::Orphans => None,
        }));
    }

    /// Returns the visits that this node has counted itself. It leaves out visits from before an import.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(in crate::services::visits) fn own_counts(&self, code: Code) -> Result<VisitCounts, StoreError> {
        let (own, subject) = (self.fleet.own_slot(), Subject::Link(code));
        let mut counts = VisitCounts::default();
        for row in self.links.visits_of(&subject.name())? {
            if row.place.slot == own && !row.place.is_earlier() && self.is_live(row.place) {
                counts.add(VisitCounts::decode(&mut &row.value[..]).ok_or_else(|| damaged(&row.name))?);
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
        match self.fleet.counts_behind(id, after) {
            OriginCounts::Stored { slot, applied } => {
                let (view, folded, since) = (self.links.view(), self.folded, self.fleet.table().since(slot));
                return Some(OriginView { view, folded, slot, since, applied });
            }
            OriginCounts::Logged if self.folds.is_empty() => self.folding.ask(),
            OriginCounts::Logged | OriginCounts::Nothing => {}
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
        let slot = self.fleet.begin_snapshot(id, node);
        self.snapshot_names = slot.map(|_| Vec::new());
        self.store_origins()?;
        Ok(slot)
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
        // Before the rows: an error leaves it open whether they are stored.
        self.note_names(rows.iter().map(|(name, _)| name));
        let place = self.merged_place(slot);
        let mut batch = self.links.batch();
        for (name, value) in rows {
            if VisitHistory::decode(value).is_none() {
                return Err(StoreError::Damaged("a snapshot of visits".to_owned()));
            }
            batch.put_visits(name, place, value);
        }
        self.links.commit(batch)?;
        Ok(true)
    }

    fn note_names<'n>(&mut self, names: impl ExactSizeIterator<Item = &'n Vec<u8>>) {
        if let Some(noted) = &mut self.snapshot_names {
            if noted.len() + names.len() <= SNAPSHOT_NAMES_NOTED {
                noted.extend(names.cloned());
            } else {
                self.snapshot_names = None;
            }
        }
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
        self.snapshot_names = None;
        let ended = self.fleet.take_ended();
        self.forget_stored(&ended, |_, of| of == slot);
        // The rows are synced before the table that lets them count.
        self.links.sync()?;
        if let Some(replaced) = self.fleet.end_snapshot(slot, applied, self.log.seq) {
            self.drop_counts(replaced);
        }
        self.store_origins()
    }

    /// Gives up a snapshot. Frees its slot at once if its rows are known, and leaves the rest to the next search: an
    /// unlucky node may give up many snapshots until then.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn give_up_snapshot(&mut self, slot: OriginSlot) -> Result<(), StoreError> {
        self.fleet.give_up_snapshot(slot, self.log.seq);
        self.drop_counts(slot);
        if let Some(names) = self.snapshot_names.take().filter(|_| self.may_write()) {
            let place = self.merged_place(slot);
            let mut batch = self.links.batch();
            names.iter().for_each(|name| batch.remove_row(name, place));
            if !batch.is_empty() {
                self.links.commit(batch)?;
            }
            self.fleet.free_given_up(slot);
        }
        self.store_origins()
    }

    /// Gives up the counts of another origin. Returns false if no counts of it are here, or if it is this node; also while the
    /// disk accepts no writes.
    ///
    /// # Errors
    /// If the store fails.
    pub(in crate::services::visits) fn give_up_origin(&mut self, id: OriginId) -> Result<bool, StoreError> {
        if !self.may_write() {
            return Ok(false);
        }
        let Some(slot) = self.fleet.give_up_origin(id, self.log.seq) else { return Ok(false) };
        self.drop_counts(slot);
        self.store_origins().map(|()| true)
    }

    /// Drops what is in memory of a slot whose rows do not count any more.
    fn drop_counts(&mut self, slot: OriginSlot) {
        self.folds.iter_mut().for_each(|fold| fold.tallies.retain(|(period, _)| period.slot != slot));
        self.tallies.retain(|(period, _)| period.slot != slot);
        // The next search removes its rows.
        self.search.from_ms = 0;
    }

    /// Notes that a batch of another node cannot be read.
    pub(in crate::services::visits) fn report_malformed(&self, node: &str, number: u64) {
        let text =
            format!("batch {number} of visits of node {node} was not written by carom or is damaged; it is skipped");
        self.stats.alarms.raise(Alarm::StreamDamaged, text);
    }
}
