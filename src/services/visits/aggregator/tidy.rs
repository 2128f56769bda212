//! The search for subjects with many rows, which merges them and finds the most visited links on its way.

use super::{VisitAggregator, add_stored};
use carom_model::visits::history::History;
use carom_store::links::{StoreError, TOGETHER, VisitRow};

/// Number of rows of one subject from which they are merged.
pub(super) const ROWS_MANY: usize = 32;

/// Number of rows that one step of the search for such subjects reads.
const TIDY_STEP: usize = 4_000;

/// Time from the end of one search for subjects with many rows to the start of the next, in milliseconds.
const TIDY_EVERY_MS: u64 = 3_600_000;

impl VisitAggregator {
    /// Searches for subjects with many rows, one step at a time, and merges them.
    pub(super) fn tidy_some(&mut self) -> Result<(), StoreError> {
        if self.now_ms < self.tidy_at_ms {
            return Ok(());
        }
        let rows = match self.links.visits_behind(&self.tidied, TIDY_STEP) {
            // The search ends at the damage; rows after it stay as they are.
            Err(StoreError::Damaged(what)) => {
                self.damaged(&what);
                Vec::new()
            }
            rows => rows?,
        };
        let Some(last) = rows.last() else {
            self.leaders.end_search();
            self.tidied.clear();
            self.tidy_at_ms = self.now_ms + TIDY_EVERY_MS;
            return Ok(());
        };
        self.tidied.clone_from(&last.key);
        let counted = rows.iter().filter(|row| row.place.1 <= self.folded);
        counted.for_each(|row| self.leaders.look_at(&row.name, row.place == TOGETHER, &row.value));
        for of_one in rows.chunk_by(|a, b| a.name == b.name) {
            if of_one.len() >= ROWS_MANY {
                self.merge_rows(&of_one[0].name)?;
            }
        }
        Ok(())
    }

    fn merge_rows(&mut self, name: &[u8]) -> Result<(), StoreError> {
        let rows: Vec<VisitRow> =
            self.links.visits_of(name)?.into_iter().filter(|row| row.place.1 <= self.folded).collect();
        let mut history = History::default();
        let mut batch = self.links.batch();
        for row in &rows {
            if add_stored(&mut history, row).is_err() {
                // Damaged rows stay as they are, and a request for them gets an error.
                return Ok(());
            }
            if row.place != TOGETHER {
                batch.remove_visits(&row.key);
            }
        }
        let mut value = Vec::new();
        history.encode(&mut value);
        batch.put_visits(name, TOGETHER, &value);
        self.links.commit(batch)
    }
}
