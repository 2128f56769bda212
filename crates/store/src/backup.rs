//! The form of a backup: a folder with a list of what is in it (`manifest`), the store as a stream of frames (`frames`), and the
//! small files of a data directory that no store holds.
//!
//! Every byte of it stands under a checksum, so that one that was changed is found and named. Nothing here knows of stores.

pub mod frames;
pub mod manifest;

use std::fmt;

/// The file that holds the store.
pub const STORE_FILE: &str = "store.carom";

/// The file that says what is there. It is written last: a folder without it is no backup.
pub const MANIFEST_FILE: &str = "backup.json";

/// What the store consists of, in the order in which a backup has it. The marks come first: they say which indexes there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Section {
    /// What the store knows of itself.
    Meta,
    /// A record for each code.
    Links,
    /// The index of long URLs.
    Urls,
    /// The index of ends.
    Ends,
    /// The index of links by the time at which they were made.
    Dates,
    /// The index of tags.
    Tags,
    /// How often limited links may still be followed.
    Allowances,
    /// How often links were followed.
    Visits,
    /// What a node of several remembers of the others.
    Fleet,
    /// Visits that are not in the store yet: pieces of files, each under the number of its file and its own.
    VisitLogs,
    /// Who changed what of links. Backups from before have none.
    History,
}

impl Section {
    /// All of them, in their order.
    pub const ALL: [Section; 11] = [
        Section::Meta,
        Section::Links,
        Section::Urls,
        Section::Ends,
        Section::Dates,
        Section::Tags,
        Section::Allowances,
        Section::Visits,
        Section::Fleet,
        Section::VisitLogs,
        Section::History,
    ];

    /// What it is called.
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
            Section::VisitLogs => "visit logs",
            Section::History => "history",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many records of each section there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts([u64; Section::ALL.len()]);

impl Counts {
    /// Those of a section.
    pub fn of(&self, section: Section) -> u64 {
        self.0[section as usize]
    }

    /// Counts some more.
    pub fn add(&mut self, section: Section, more: u64) {
        self.0[section as usize] += more;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
