//! The search for subjects with many rows, which merges them and finds the most visited links on its way.

use std::ops::Bound;

use super::super::stored_rows::add_stored;
use super::VisitAggregator;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::OriginSlot;
use carom_store::links::{RowPlace, StoreError, VisitRow, VisitRowPage};

/// Number of rows of one subject from which they are merged.
pub(super) const ROWS_MANY: usize = 32;

/// Number of rows that one step of the search for such subjects reads.
const COMPACTION_STEP: usize = 4_000;

/// Time from the end of one search for subjects with many rows to the start of the next, in milliseconds.
const COMPACT_EVERY_MS: u64 = 3_600_000;

impl VisitAggregator {
    /// Searches for subjects with many rows, one step at a time, and merges them.
    pub(super) fn compact_some(&mut self) -> Result<(), StoreError> {
        if self.now_ms < self.search.from_ms {
            return Ok(());
        }
        let from = self.begin_step();
        let page = self.links.visits_page(&from, COMPACTION_STEP)?;
        self.compact_page(page)
    }

    /// Begins a search unless one is under way. Returns the position of its next step.
    pub(super) fn begin_step(&mut self) -> Bound<Vec<u8>> {
        if self.search.next.is_none() {
            self.fleet.begin_search(self.folded);
            self.search.has_gap = false;
        }
        self.search.next.get_or_insert(Bound::Unbounded).clone()
    }

    /// Does one step of the search with the rows at its position. A damaged block is left out: its rows stay as they are,
    /// and the search goes on behind it.
    pub(super) fn compact_page(&mut self, page: VisitRowPage) -> Result<(), StoreError> {
        let VisitRowPage { rows, damage, next } = page;
        if let Some(what) = damage {
            self.damaged(&what);
            self.search.has_gap = true;
        }
        let counted: Vec<&VisitRow> = rows.iter().filter(|row| self.is_live(row.place)).collect();
        counted.iter().for_each(|row| self.top_links.add_row(&row.name, row.place.is_merged(), &row.value));
        let mut batch = self.links.batch();
        let disused = rows.iter().filter(|row| self.is_disused(row));
        disused.for_each(|row| batch.remove_visits(&row.key));
        if !batch.is_empty() {
            self.links.commit(batch)?;
        }
        for of_one in rows.chunk_by(|a, b| a.name == b.name) {
            if of_one.iter().filter(|row| !row.place.is_merged()).count() >= ROWS_MANY {
                self.merge_rows(&of_one[0].name)?;
            }
        }
        self.search.next = next;
        if self.search.next.is_none() { self.end_search() } else { Ok(()) }
    }

    fn merge_rows(&mut self, name: &[u8]) -> Result<(), StoreError> {
        let may_merge = |row: &VisitRow| !row.place.is_earlier() && self.is_live(row.place);
        let rows = match self.links.visits_of(name) {
            // The others are in a damaged block: this subject stays as it is.
            Err(StoreError::Damaged(_)) => return Ok(()),
            rows => rows?,
        };
        let mut rows: Vec<VisitRow> = rows.into_iter().filter(may_merge).collect();
        rows.sort_by_key(|row| row.place.slot);
        let mut batch = self.links.batch();
        for of_slot in rows.chunk_by(|a, b| a.place.slot == b.place.slot) {
            let mut history = VisitHistory::default();
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
            batch.put_visits(name, self.merged_place(of_slot[0].place.slot), &value);
        }
        self.links.commit(batch)
    }

    /// Returns the position of merged histories of the origin that has a slot.
    pub(super) fn merged_place(&self, slot: OriginSlot) -> RowPlace {
        RowPlace::merged(slot, self.fleet.table().since(slot))
    }

    /// Ends a search. Frees the slots whose rows it has removed, unless it left out a damaged block, which may have rows
    /// of any slot. These slots are reused with a note on the last log of such rows, once no other slot is free.
    fn end_search(&mut self) -> Result<(), StoreError> {
        self.top_links.end_search();
        if self.fleet.end_search(!self.search.has_gap) {
            let mut batch = self.links.batch();
            batch.set_visit_origins(self.fleet.table());
            self.links.commit(batch)?;
        }
        self.search.from_ms = self.now_ms + COMPACT_EVERY_MS;
        Ok(())
    }
}
