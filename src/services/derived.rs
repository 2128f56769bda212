//! Files that a node derives from its store: how they are written, checked and kept small in memory.

pub(super) mod sealed_file;
pub(super) mod spill;
