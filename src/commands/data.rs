//! Work on a data directory without a node: import, inspection and restore.

pub mod import;
mod import_lines;
pub mod import_setup;
pub mod inspect;
pub mod restore;
