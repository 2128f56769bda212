//! The format of a backup: a folder with a manifest (`manifest`), the store as a stream of frames (`frames`), and
//! copies of the small files beside the store. A node that joins a fleet gets the stream in numbered pieces (`pieces`).
//!
//! A checksum covers every byte, so that a changed one is found and named. This module does not depend on any store.

pub mod frames;
pub mod manifest;
pub mod pieces;

use std::fmt;

/// Name of the file with the store.
pub const STORE_FILE: &str = "store.carom";

/// Name of the manifest. It is written last: a folder without it is not a backup.
pub const MANIFEST_FILE: &str = "backup.json";

/// A section of the store, in the order of a backup. The metadata comes first, because it says which indexes exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Section {
    /// Metadata of the store.
    Meta,
    /// Link records, one for each code.
    Links,
    /// The index of destinations.
    Urls,
    /// The index of the times at which links end.
    Ends,
    /// The index of links by creation time.
    Dates,
    /// The index of tags.
    Tags,
    /// Remaining visits of limited links.
    Allowances,
    /// Visit counts of links.
    Visits,
    /// The replication state of a fleet node.
    Fleet,
    /// Visit counts that are not in the store yet: pieces of count logs, keyed by the number of the log
    /// and of the piece.
    CountLogs,
    /// The edit history of links. Backups of older versions lack it.
    History,
    /// The visit log: pieces of its files, keyed by the name of the file, a zero byte and the number of the piece.
    /// Backups of older versions lack it.
    VisitLog,
}

impl Section {
    /// All sections, in their order.
    pub const ALL: [Section; 12] = [
        Section::Meta,
        Section::Links,
        Section::Urls,
        Section::Ends,
        Section::Dates,
        Section::Tags,
        Section::Allowances,
        Section::Visits,
        Section::Fleet,
        Section::CountLogs,
        Section::History,
        Section::VisitLog,
    ];

    /// Returns the name of the section.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Meta => "meta",
            Section::Links => "links",
            Section::Urls => "urls",
            Section::Ends => "ends",
            Section::Dates => "dates",
            Section::Tags => "tags",
            Section::Allowances => "allowances",
            Section::Visits => "visits",
            Section::Fleet => "fleet",
            Section::CountLogs => "visit logs",
            Section::History => "history",
            Section::VisitLog => "logged visits",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of records by section.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordCounts([u64; Section::ALL.len()]);

impl RecordCounts {
    /// Returns the number of records in a section.
    pub fn of(&self, section: Section) -> u64 {
        self.0[section as usize]
    }

    /// Adds records to the count of a section.
    pub fn add(&mut self, section: Section, more: u64) {
        self.0[section as usize] += more;
    }

    /// Returns the number of all records.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
