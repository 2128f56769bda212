//! Where a node stands in the stream of a partition, and whether that place still exists.
//!
//! A node reads from its own place on, that entry included. When the entry is not what it was, the stream has lost what
//! the node has seen (a failover, an old dump, an empty server), or what it has not seen was trimmed away; both are a
//! **gap**, and both are mended alike: the node takes its place at the end and compares everything, in both directions.

use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use super::EntryId;
use crate::link::Version;

/// An entry of a stream as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub id: EntryId,
    /// The code that changed; `None` in an entry that only marks a place.
    pub code: Option<Code>,
    /// Its state from then on, in the form of [`super::State::to_text`]. May be anything: it comes from outside.
    pub text: Vec<u8>,
    /// The link that lost the code to it: see [`super::rules::displaced`].
    pub displaced: Option<Version>,
}

/// A place in a stream: the last entry that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Its name.
    pub id: EntryId,
    /// A hash of what it says: after a loss another entry may get the same name.
    pub check: u64,
}

impl Position {
    /// The place of this entry.
    pub fn of(entry: &Entry) -> Position {
        Position { id: entry.id, check: xxh3_64(&entry.text) }
    }
}

/// What reading from a place on has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// These entries are new; after them the node stands there.
    Next(Vec<Entry>, Position),
    /// Nothing is new.
    Quiet,
    /// The place is gone.
    Gap,
}

/// Judges the entries that were read from a place on, the first of which should be the place itself.
pub fn judge(position: Option<Position>, mut entries: Vec<Entry>) -> Read {
    let Some(position) = position else { return Read::Gap };
    if entries.first().map(Position::of) != Some(position) {
        return Read::Gap;
    }
    entries.remove(0);
    match entries.last() {
        None => Read::Quiet,
        Some(last) => {
            let to = Position::of(last);
            Read::Next(entries, to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, text: &str) -> Entry {
        Entry { id: EntryId { ms: 1, seq }, code: None, text: text.as_bytes().to_vec(), displaced: None }
    }

    #[test]
    fn a_place_that_is_not_there_is_a_gap() {
        let place = Position::of(&entry(1, "a"));
        assert_eq!(judge(None, vec![entry(1, "a")]), Read::Gap);
        assert_eq!(judge(Some(place), vec![]), Read::Gap);
        assert_eq!(judge(Some(place), vec![entry(2, "b")]), Read::Gap, "trimmed away, or lost");
        assert_eq!(judge(Some(place), vec![entry(1, "c"), entry(2, "b")]), Read::Gap, "another entry of the same name");
        assert_eq!(judge(Some(place), vec![entry(1, "a")]), Read::Quiet);
        let next = Read::Next(vec![entry(2, "b")], Position::of(&entry(2, "b")));
        assert_eq!(judge(Some(place), vec![entry(1, "a"), entry(2, "b")]), next);
    }
}
