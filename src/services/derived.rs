//! Files that a node derives from its store: how they are written, checked and kept small in memory.

pub(super) mod sealed_file;
pub(super) mod spill;

use std::path::Path;

/// Removes the unfinished files that a killed process may have left beside a file. `what` describes them in the log.
pub(super) fn remove_unfinished(path: &Path, what: &str) {
    for left in [sealed_file::unfinished(path), spill::unsorted(path)] {
        if sealed_file::remove_unused(&left) {
            tracing::info!("removed {}, {what}", left.display());
        }
    }
}
