//! Work on a data directory without a node: import and inspection.

pub mod import;
mod import_lines;
pub mod import_report;
pub mod import_setup;
mod import_visits;
pub mod inspect;
