//! Stored rows of visit counts.

use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::TallyRow;
use carom_store::links::{StoreError, VisitRow};

/// Adds a stored row to a history.
pub(super) fn add_stored(history: &mut VisitHistory, row: &VisitRow) -> Result<(), StoreError> {
    if row.place.is_merged() {
        history.merge(&VisitHistory::decode(&row.value).ok_or_else(|| damaged(row))?);
    } else {
        history.add(row.place.hour, &TallyRow::decode(&mut &row.value[..]).ok_or_else(|| damaged(row))?);
    }
    Ok(())
}

/// Returns the error for a row that cannot be decoded.
pub(super) fn damaged(row: &VisitRow) -> StoreError {
    StoreError::Damaged(format!("visits of {}", row.name.escape_ascii()))
}
