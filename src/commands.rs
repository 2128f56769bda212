//! The commands that a person can type: one file for each family, and their work on a data directory.
//!
//! Every command opens stores through [`crate::startup`] and `carom-store`, never through a running node.

pub mod app;
pub mod backup;
pub mod cli;
pub mod data;
pub mod import;
pub mod moving;
pub mod offline;
pub mod status;
