//! The position of a node in the stream of a partition, and the check that this position still exists.
//!
//! A node reads from its own position on, including that entry. If the entry has changed, the stream has lost entries
//! that the node has seen: by a failover, an old dump or an empty server. Or entries that the node has not seen were
//! trimmed. Both are a **gap** with one remedy: the node moves to the end and compares everything, in both directions.

use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use super::EntryId;
use crate::link::Version;

/// An entry of a stream as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEntry {
    /// The ID of the entry.
    pub id: EntryId,
    /// The code that changed; `None` in an entry that only marks a place.
    pub code: Option<Code>,
    /// The state of the code from this entry on, in the form of [`super::State::to_text`]. It comes from outside, so it
    /// may be anything.
    pub text: Vec<u8>,
    /// The link that lost the code to this state: see [`super::rules::displaced`].
    pub displaced: Option<Version>,
    /// True if the entry has a field of a later version that a reader must understand: its name begins with a capital
    /// letter.
    pub is_newer: bool,
}

/// A position in a stream: the last entry that the node has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// The ID of the entry.
    pub id: EntryId,
    /// A hash of the entry's content. After a loss another entry may get the same ID.
    pub check: u64,
}

impl StreamPosition {
    /// Returns the position of this entry.
    pub fn of(entry: &StreamEntry) -> StreamPosition {
        StreamPosition { id: entry.id, check: xxh3_64(&entry.text) }
    }
}

/// The result of reading from a position on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamRead {
    /// New entries, and the position after them.
    Next(Vec<StreamEntry>, StreamPosition),
    /// No entry is new.
    Quiet,
    /// The position is lost.
    Gap,
}

/// Checks that a position still exists, given the entries that were read from it on, and returns the entries after it.
/// The first entry is that of the position, unless the stream has lost it.
pub fn check_position(position: Option<StreamPosition>, mut entries: Vec<StreamEntry>) -> StreamRead {
    let Some(position) = position else { return StreamRead::Gap };
    if entries.first().map(StreamPosition::of) != Some(position) {
        return StreamRead::Gap;
    }
    entries.remove(0);
    match entries.last() {
        None => StreamRead::Quiet,
        Some(last) => {
            let to = StreamPosition::of(last);
            StreamRead::Next(entries, to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, text: &str) -> StreamEntry {
        StreamEntry {
            id: EntryId { ms: 1, seq },
            code: None,
            text: text.as_bytes().to_vec(),
            displaced: None,
            is_newer: false,
        }
    }

    #[test]
    fn nothing_lies_between_an_entry_and_the_id_before() {
        let before = |ms, seq| EntryId { ms, seq }.before();
        assert_eq!(before(7, 2), EntryId { ms: 7, seq: 1 });
        assert_eq!(before(7, 0), EntryId { ms: 6, seq: u64::MAX });
        assert_eq!(before(0, 0), EntryId { ms: 0, seq: 0 });
    }

    #[test]
    fn a_place_that_is_not_there_is_a_gap() {
        let place = StreamPosition::of(&entry(1, "a"));
        assert_eq!(check_position(None, vec![entry(1, "a")]), StreamRead::Gap);
        assert_eq!(check_position(Some(place), vec![]), StreamRead::Gap);
        assert_eq!(check_position(Some(place), vec![entry(2, "b")]), StreamRead::Gap, "trimmed away, or lost");
        assert_eq!(
            check_position(Some(place), vec![entry(1, "c"), entry(2, "b")]),
            StreamRead::Gap,
            "another entry of the same name"
        );
        assert_eq!(check_position(Some(place), vec![entry(1, "a")]), StreamRead::Quiet);
        let next = StreamRead::Next(vec![entry(2, "b")], StreamPosition::of(&entry(2, "b")));
        assert_eq!(check_position(Some(place), vec![entry(1, "a"), entry(2, "b")]), next);
    }
}
