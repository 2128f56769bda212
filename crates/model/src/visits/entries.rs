//! The entries in the stream of an origin, as bytes.
//!
//! An entry of the first format is a sequence of batches, whose numbers begin at 1. An entry of a later format begins with
//! a zero and the number of the format that its reader must know. Nodes write the newest format that all live nodes read
//! ([`formats`]). So a node meets a later one only if it was away for long, or if the other site has it. The batches then
//! wait in the stream until the node is upgraded.

use super::batches::VisitBatch;
use super::tally::{push_number, take_bytes, take_number};
use crate::replication::formats;

/// First byte of an entry that names its format.
const IN_FORMAT: u8 = 0;

/// The reason why the batches of an entry cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBatches {
    /// The format is one of a later version.
    Newer,
    /// The entry was not written by carom, or is damaged.
    Damaged,
}

/// Returns the start of an entry in the format that this process writes.
pub(super) fn begin() -> Vec<u8> {
    #[cfg(feature = "next-format")]
    if formats::next::writes() {
        return in_format(formats::newest());
    }
    Vec::new()
}

/// Returns the start of an entry in a format after the first.
#[cfg(any(test, feature = "next-format"))]
fn in_format(format: u32) -> Vec<u8> {
    let mut entry = vec![IN_FORMAT];
    push_number(u64::from(format), &mut entry);
    entry
}

/// Appends a batch to an entry.
pub(super) fn push_batch(batch: &VisitBatch, entry: &mut Vec<u8>) {
    debug_assert!(batch.number > 0, "the entry would seem to name a format");
    push_number(batch.number, entry);
    push_number(u64::from(batch.hour), entry);
    push_number(batch.content.len() as u64, entry);
    entry.extend_from_slice(&batch.content);
}

/// Returns the batches of an entry, of which the last one has the number `last`: it is the identifier of the entry.
///
/// # Errors
/// The reason, if this version cannot read the entry.
pub fn batches_of(mut entry: &[u8], last: u64) -> Result<Vec<VisitBatch>, NoBatches> {
    if let Some((&IN_FORMAT, mut rest)) = entry.split_first() {
        let format = take_number(&mut rest).ok_or(NoBatches::Damaged)?;
        if format > u64::from(formats::newest()) {
            return Err(NoBatches::Newer);
        }
        entry = rest;
    }
    let mut batches = Vec::new();
    while !entry.is_empty() {
        batches.push(take_batch(&mut entry).ok_or(NoBatches::Damaged)?);
    }
    // A reader of an entry without its last batch would read it again and again.
    let is_whole = batches.last().is_some_and(|batch| batch.number == last);
    is_whole.then_some(batches).ok_or(NoBatches::Damaged)
}

/// Takes a batch from the front; `None` if it is malformed.
fn take_batch(entry: &mut &[u8]) -> Option<VisitBatch> {
    let number = take_number(entry)?;
    let hour = u32::try_from(take_number(entry)?).ok()?;
    Some(VisitBatch { number, hour, content: take_bytes(entry)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_later_format_is_told_from_damage() {
        let batches: Vec<VisitBatch> =
            [1, 200].map(|number| VisitBatch { number, hour: 490_000, content: vec![7; 3] }).to_vec();
        let written = |begin: Vec<u8>| {
            let mut entry = begin;
            batches.iter().for_each(|batch| push_batch(batch, &mut entry));
            entry
        };
        assert_eq!(batches_of(&written(begin()), 200), Ok(batches.clone()));
        assert_eq!(batches_of(&written(in_format(formats::newest())), 200), Ok(batches.clone()));
        assert_eq!(batches_of(&written(in_format(formats::newest() + 1)), 200), Err(NoBatches::Newer));
        let mut unknown = in_format(u32::MAX);
        unknown.extend([0xff; 9]);
        assert_eq!(batches_of(&unknown, 200), Err(NoBatches::Newer), "the rest may have any form");
        let whole = written(begin());
        assert_eq!(batches_of(&whole[..whole.len() - 1], 200), Err(NoBatches::Damaged));
        assert_eq!(batches_of(&[IN_FORMAT], 200), Err(NoBatches::Damaged));
    }

    #[test]
    fn an_entry_without_its_last_batch_is_damaged() {
        let mut entry = begin();
        assert_eq!(batches_of(&entry, 1), Err(NoBatches::Damaged), "it is empty");
        push_batch(&VisitBatch { number: 3, hour: 490_000, content: vec![7; 3] }, &mut entry);
        assert_eq!(batches_of(&entry, 3).map(|batches| batches.len()), Ok(1));
        assert_eq!(batches_of(&entry, 4), Err(NoBatches::Damaged));
    }
}
