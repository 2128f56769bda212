//! The search for subjects with many rows, which merges them and finds the most visited links on its way.

use super::super::stored::add_stored;
use super::VisitAggregator;
use carom_model::visits::history::History;
use carom_model::visits::origins::OriginSlot;
use carom_store::links::{RowPlace, StoreError, VisitRow};

/// Number of rows of one subject from which they are merged.
pub(super) const ROWS_MANY: usize = 32;

/// Number of rows that one step of the search for such subjects reads.
const COMPACTION_STEP: usize = 4_000;

/// Time from the end of one search for subjects with many rows to the start of the next, in milliseconds.
const COMPACT_EVERY_MS: u64 = 3_600_000;

impl VisitAggregator {
    /// Searches for subjects with many rows, one step at a time, and merges them.
    pub(super) fn compact_some(&mut self) -> Result<(), StoreError> {
        if self.now_ms < self.compact_at_ms {
            return Ok(());
        }
        let rows = match self.links.visits_behind(&self.searched, COMPACTION_STEP) {
            // The rows of this step, and those after the damage, stay as they are.
            Err(StoreError::Damaged(what)) => {
                self.damaged(&what);
                return self.end_search(false);
            }
            rows => rows?,
        };
        let Some(last) = rows.last() else { return self.end_search(true) };
        if self.searched.is_empty() {
            self.fleet.begin_search(self.folded);
        }
        self.searched.clone_from(&last.key);
        let counted: Vec<&VisitRow> = rows.iter().filter(|row| self.is_live(row)).collect();
        counted.iter().for_each(|row| self.top_links.look_at(&row.name, row.place.is_merged(), &row.value));
        let mut batch = self.links.batch();
        let disused =
            rows.iter().filter(|row| !row.place.is_earlier() && self.fleet.table().is_disused(row.place.slot));
        disused.for_each(|row| batch.remove_visits(&row.key));
        if !batch.is_empty() {
            self.links.commit(batch)?;
        }
        for of_one in rows.chunk_by(|a, b| a.name == b.name) {
            if of_one.iter().filter(|row| !row.place.is_merged()).count() >= ROWS_MANY {
                self.merge_rows(&of_one[0].name)?;
            }
        }
        Ok(())
    }

    fn merge_rows(&mut self, name: &[u8]) -> Result<(), StoreError> {
        let may_merge = |row: &VisitRow| !row.place.is_earlier() && self.is_live(row);
        let rows: Vec<VisitRow> = self.links.visits_of(name)?.into_iter().filter(may_merge).collect();
        let mut slots: Vec<OriginSlot> = rows.iter().map(|row| row.place.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut batch = self.links.batch();
        for slot in slots {
            let mut history = History::default();
            let of_slot = rows.iter().filter(|row| row.place.slot == slot);
            for row in of_slot {
                if add_stored(&mut history, row).is_err() {
                    // Damaged rows stay as they are, and a request for them gets an error.
                    return Ok(());
                }
                if !row.place.is_merged() {
                    batch.remove_visits(&row.key);
                }
            }
            let mut value = Vec::new();
            history.encode(&mut value);
            batch.put_visits(name, RowPlace::merged(slot), &value);
        }
        self.links.commit(batch)
    }

    /// Ends a search, which read all rows if it is `complete`, and frees the slots whose rows it has removed.
    fn end_search(&mut self, complete: bool) -> Result<(), StoreError> {
        self.top_links.end_search();
        if self.fleet.end_search(complete) {
            let mut batch = self.links.batch();
            batch.set_visit_origins(self.fleet.table());
            self.links.commit(batch)?;
        }
        self.searched.clear();
        self.compact_at_ms = self.now_ms + COMPACT_EVERY_MS;
        Ok(())
    }
}
