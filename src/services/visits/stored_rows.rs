//! Stored rows of visit counts.

use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::TallyRow;
use carom_store::links::{StoreError, VisitRow};

/// Adds a stored row to a history.
pub(super) fn add_stored(history: &mut VisitHistory, row: &VisitRow) -> Result<(), StoreError> {
    if row.place.is_merged() {
        history.merge(&VisitHistory::decode(&row.value).ok_or_else(|| damaged(&row.name))?);
    } else {
        history.add(row.place.hour, &TallyRow::decode(&mut &row.value[..]).ok_or_else(|| damaged(&row.name))?);
    }
    Ok(())
}

/// Returns the error for a row of a subject that cannot be decoded.
pub(super) fn damaged(name: &[u8]) -> StoreError {
    StoreError::Damaged(format!("visits of {}", name.escape_ascii()))
}
