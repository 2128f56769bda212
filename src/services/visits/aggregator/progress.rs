//! The progress of the search for subjects with many rows.

use std::ops::Bound;

/// The search under way, and the time of the next one.
#[derive(Debug, Default)]
pub(super) struct SubjectSearch {
    /// The position of the next step; `None` between two searches.
    pub(super) next: Option<Bound<Vec<u8>>>,
    /// True once the search has left out a damaged block.
    pub(super) has_gap: bool,
    /// The time from which the next search may start, in milliseconds since 1970 UTC.
    pub(super) from_ms: u64,
}
