//! The inputs of an import, its result, and the reasons why it ends early.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carom_shards::{CodeLength, CodeSpace};

use crate::commands::moving::lines::MovingProgress;
use crate::services::maintenance::progress::rate;
use carom_model::destination::long_url::Authority;
use carom_model::domains::Domains;
use carom_store::links::{Links, StoreError};
use carom_telemetry::readable;

/// Inputs of an import.
#[derive(Debug)]
pub struct ImportSetup {
    /// The store.
    pub links: Links,
    /// The data directory, whose free disk space is watched.
    pub data_dir: PathBuf,
    /// The code space, for lines without a code.
    pub space: CodeSpace,
    /// True if the directory belongs to a node of a fleet. Lines without a code are then refused, since Redis hands out
    /// the counter values; all other links reach the other nodes once this node is started.
    pub of_fleet: bool,
    /// The configured length of generated codes.
    pub length: CodeLength,
    /// True to decide about every line without changing the store.
    pub dry_run: bool,
    /// Results of reading another shortener, if the lines come from one.
    pub moving: Option<Arc<MovingProgress>>,
    /// The authorities under which the service is reached.
    pub own: Vec<Authority>,
    /// The domains of the service.
    pub domains: Domains,
    /// Number of threads that parse.
    pub threads: usize,
    /// Size of the input in bytes, if known.
    pub total_bytes: Option<u64>,
    /// True if the messages go to a terminal, so that progress is drawn.
    pub terminal: bool,
}

/// The result of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportSummary {
    /// Number of links that are new in the store.
    pub taken: u64,
    /// Number of lines that match a stored link.
    pub unchanged: u64,
    /// Number of lines that were refused.
    pub refused: u64,
    /// Number of links that are new without a part of their line.
    pub cut: u64,
    /// Number of visits of the links that are new.
    pub visits: u64,
    /// Duration of the import.
    pub time: Duration,
}

impl ImportSummary {
    /// Returns the summary for people. In a dry run, nothing was changed.
    pub fn to_text(&self, dry_run: bool) -> String {
        let ImportSummary { taken, unchanged, refused, time, visits, .. } = *self;
        let begin = if dry_run { "dry run: would import" } else { "imported" };
        let visits = if visits > 0 { format!(" with {}", readable::count(visits, "visit")) } else { String::new() };
        format!(
            "{begin} {}{visits}, {unchanged} unchanged, {refused} rejected, in {:.1} s ({}/s)",
            readable::count(taken, "link"),
            time.as_secs_f64(),
            rate(taken + unchanged + refused, time)
        )
    }

    /// True if every line is in the store as a whole.
    pub fn is_complete(&self) -> bool {
        self.refused == 0 && self.cut == 0
    }
}

/// Reasons why an import ended early. Links counted as taken up to then may or may not be in the store: repeat the
/// import.
#[derive(Debug)]
pub enum ImportError {
    /// The store failed.
    Store(StoreError),
    /// The input cannot be read.
    Input(io::Error),
    /// The report cannot be written.
    Report(io::Error),
    /// The disk is full. Repeat the import once there is space.
    DiskFull,
    /// All codes of all lengths are used up.
    NoCodes,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Store(error) => write!(f, "{error}"),
            ImportError::Input(error) => write!(f, "the input cannot be read: {error}"),
            ImportError::Report(error) => write!(f, "the report cannot be written: {error}"),
            ImportError::DiskFull => f.write_str("the disk is full; free some space and import the same file again"),
            ImportError::NoCodes => f.write_str("all codes of all lengths are used up"),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<StoreError> for ImportError {
    fn from(error: StoreError) -> ImportError {
        ImportError::Store(error)
    }
}
