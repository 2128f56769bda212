//! Checks of the store's journals before the store opens them. The library would cut a journal at the first byte that
//! it does not understand, or refuse to open it. Either loses everything after a single flipped byte.
//!
//! A journal is a sequence of batches. A batch has these parts (fjall 3, `journal/entry.rs`):
//!
//! 1. a start: tag 1, count `u32`, sequence number `u64`;
//! 2. items: tag 2, kind `u8`, compression `u8`, keyspace `u64`, length of the key `u16`, length of the value `u32`,
//!    its length on disk `u32`, key, value; or clears: tag 4, keyspace `u64`;
//! 3. an end: tag 3, XXH3 of the items `u64`, four fixed bytes.
//!
//! All numbers are little-endian. Zeros follow to the end of the preallocated file.
//!
//! [`repair`] drops broken batches and keeps their readable records. [`mark`] records how much has been synced, which
//! distinguishes a write that a crash cut off from damage to an acknowledged one. This module knows the format of the
//! files, and nothing of the library that writes them.

pub mod mark;
pub mod repair;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
const START_LEN: usize = 1 + 4 + 8;
const ITEM_HEAD_LEN: usize = 1 + 1 + 1 + 8 + 2 + 4 + 4;
const END_LEN: usize = 1 + 8 + TRAILER.len();
/// Largest distance between the sequence numbers of two batches in a file. Flushes and compactions use numbers of the
/// same sequence, so gaps occur, but no journal contains a trillion numbers.
const SEQNO_STEP_MAX: u64 = 1 << 40;
/// The kind of an item that stores a value under a key.
const KIND_VALUE: u8 = 0;
/// The compression type of uncompressed values.
const UNCOMPRESSED: u8 = 0;

/// Bytes that the first read of a search for whole batches takes, as much as most commits write.
const CHUNK: usize = 8 * 1024;

/// Returns the paths of a store's journals, oldest first.
///
/// # Errors
/// The error of reading the directory.
pub fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(numbered(dir)?.into_iter().map(|(_, path)| path).collect())
}

/// Returns the journals with their numbers, oldest first.
fn numbered(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number = path.extension().filter(|&extension| extension == "jnl").and(path.file_stem());
        if let Some(number) = number.and_then(|stem| stem.to_str()?.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the path of the journal with this number.
fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.jnl"))
}

/// Returns the end of the last whole batch of a journal, in bytes from its start.
pub fn written_len(bytes: &[u8]) -> usize {
    walk(bytes, 0).batches.last().map_or(0, |batch| batch.bytes.end)
}

/// Returns the end of the consecutive whole batches that begin at `from`. Reads little more than these.
///
/// # Errors
/// The error of reading the journal.
#[cfg(feature = "faults")]
pub fn whole_batches_end(path: &Path, from: u64) -> io::Result<u64> {
    let whole = whole_batches_from(&File::open(path)?, from, &mut Vec::new())?;
    Ok(whole.map_or(from, |whole| whole.end))
}

/// The end of consecutive whole batches, and the sequence number of the last of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Whole {
    end: u64,
    seqno: u64,
}

/// Finds the consecutive whole batches that begin at `from`; `None` if the first one is incomplete. `buffer` is scratch
/// space.
fn whole_batches_from(file: &File, from: u64, buffer: &mut Vec<u8>) -> io::Result<Option<Whole>> {
    let (mut whole, mut at, mut chunk) = (None, from, CHUNK);
    loop {
        buffer.resize(chunk, 0);
        let read = read_at(file, buffer, at)?;
        let bytes = &buffer[..read];
        let mut end = 0;
        let rest = loop {
            match parse(bytes, end) {
                ParsedObject::Whole(batch) => {
                    end = batch.bytes.end;
                    whole = Some(Whole { end: at + end as u64, seqno: batch.seqno });
                }
                other => break other,
            }
        };
        assert!(whole.is_none_or(|whole: Whole| whole.end >= at + end as u64), "the whole batches end before the last");
        match rest {
            // The file ends here, or continues with something other than a batch.
            ParsedObject::Cut if read < chunk => return Ok(whole),
            ParsedObject::Cut if end == 0 => chunk *= 4,
            ParsedObject::Cut => at += end as u64,
            ParsedObject::Broken | ParsedObject::Whole(_) => return Ok(whole),
        }
    }
}

/// Fills `buffer` from the file, as far as the file extends.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], at + read as u64) {
            Ok(0) => break,
            Ok(len) => read += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// A whole batch.
#[derive(Debug)]
struct JournalBatch {
    bytes: Range<usize>,
    seqno: u64,
}

/// The batches and broken ranges of a journal.
struct JournalWalk {
    batches: Vec<JournalBatch>,
    broken: Vec<Range<usize>>,
}

/// Divides a journal into batches and broken ranges. The journal is known to be written up to `written` at least, so
/// zeros before that are damage.
fn walk(bytes: &[u8], written: usize) -> JournalWalk {
    let mut walk = JournalWalk { batches: Vec::new(), broken: Vec::new() };
    let mut at = 0;
    while at < bytes.len() {
        if let Some(batch) = whole_batch(bytes, at) {
            at = batch.bytes.end;
            walk.batches.push(batch);
            continue;
        }
        let next = memchr::memchr_iter(TAG_START, &bytes[at + 1..])
            .map(|behind| at + 1 + behind)
            .find(|&start| whole_batch(bytes, start).is_some());
        let end = next.unwrap_or_else(|| (at + filled_len(&bytes[at..])).max(written.min(bytes.len())));
        if end > at {
            walk.broken.push(at..end);
        }
        at = next.unwrap_or(bytes.len());
    }
    reject_misnumbered(&mut walk);
    debug_assert!(
        walk.batches.is_sorted_by(|one, next| one.bytes.end <= next.bytes.start && one.seqno < next.seqno),
        "the store would skip a batch that the walk calls whole"
    );
    debug_assert!(
        walk.broken.is_sorted_by(|one, next| one.end <= next.start),
        "a broken range would be repaired twice"
    );
    debug_assert!(
        walk.batches.iter().all(|batch| walk
            .broken
            .iter()
            .all(|broken| { broken.end <= batch.bytes.start || batch.bytes.end <= broken.start })),
        "a whole batch would be repaired"
    );
    walk
}

/// Moves batches with wrong sequence numbers to the broken ranges; the checksum does not cover the number. A number
/// that does not increase would make the store skip the batch as old, or all later ones.
fn reject_misnumbered(walk: &mut JournalWalk) {
    let rises = |from: u64, to: Option<u64>| to.is_none_or(|to| from < to && to - from < SEQNO_STEP_MAX);
    let mut before = None;
    let mut at = 0;
    while at < walk.batches.len() {
        let number = walk.batches[at].seqno;
        let behind = |steps: usize| walk.batches.get(at + steps).map(|batch| batch.seqno);
        // If this number and the next contradict each other, this one is wrong if the others are consistent without it.
        let odd = !rises(number, behind(1))
            && match before {
                Some(before) => rises(before, behind(1)),
                None => !rises(number, behind(2)),
            };
        if odd || !before.is_none_or(|before| rises(before, Some(number))) {
            walk.broken.push(walk.batches.remove(at).bytes);
        } else {
            before = Some(number);
            at += 1;
        }
    }
    walk.broken.sort_by_key(|range| range.start);
}

/// Zeros to compare others with: a page at a time is much faster than a byte at a time.
const ZEROS: [u8; 4_096] = [0; 4_096];

/// Returns true if all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|page| *page == ZEROS[..page.len()])
}

/// Returns the length without the preallocated zeros at the end, which can be megabytes.
fn filled_len(bytes: &[u8]) -> usize {
    let zeros: usize = bytes.rchunks(ZEROS.len()).take_while(|page| is_zero(page)).map(<[u8]>::len).sum();
    let rest = &bytes[..bytes.len() - zeros];
    rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// The object that starts at some byte of a journal.
enum ParsedObject {
    Whole(JournalBatch),
    /// A batch that extends beyond the end of the bytes, or seems to.
    Cut,
    /// Anything else.
    Broken,
}

fn whole_batch(bytes: &[u8], start: usize) -> Option<JournalBatch> {
    match parse(bytes, start) {
        ParsedObject::Whole(batch) => Some(batch),
        ParsedObject::Cut | ParsedObject::Broken => None,
    }
}

fn parse(bytes: &[u8], start: usize) -> ParsedObject {
    if bytes.get(start).is_some_and(|&tag| tag != TAG_START) {
        return ParsedObject::Broken;
    }
    let first = start + START_LEN;
    let Some(head) = bytes.get(start..first) else { return ParsedObject::Cut };
    let mut at = first;
    for _ in 0..number(&head[1..5]) {
        at = match bytes.get(at) {
            None => return ParsedObject::Cut,
            Some(&TAG_ITEM) => match item(bytes, at) {
                Some(item) => item.end,
                None => return ParsedObject::Cut,
            },
            Some(&TAG_CLEAR) => at + 9,
            Some(_) => return ParsedObject::Broken,
        };
    }
    let Some(end) = bytes.get(at..at + END_LEN) else { return ParsedObject::Cut };
    if end[0] != TAG_END || end[9..] != *TRAILER || number(&end[1..9]) != xxh3_64(&bytes[first..at]) {
        return ParsedObject::Broken;
    }
    ParsedObject::Whole(JournalBatch { bytes: start..at + END_LEN, seqno: number(&head[5..]) })
}

/// Decodes a little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The ranges of the parts of an item.
struct JournalItem {
    keyspace: u64,
    key: Range<usize>,
    value: Range<usize>,
    end: usize,
}

fn item(bytes: &[u8], at: usize) -> Option<JournalItem> {
    let head = bytes.get(at..at + ITEM_HEAD_LEN).filter(|head| head[0] == TAG_ITEM)?;
    let keyspace = u64::from_le_bytes(head[3..11].try_into().ok()?);
    let key_len = usize::from(u16::from_le_bytes(head[11..13].try_into().ok()?));
    let value_len = u32::from_le_bytes(head[17..21].try_into().ok()?) as usize;
    let key = at + ITEM_HEAD_LEN..at + ITEM_HEAD_LEN + key_len;
    let value = key.end..key.end.checked_add(value_len)?;
    let end = value.end;
    (end <= bytes.len()).then_some(JournalItem { keyspace, key, value, end })
}

#[cfg(test)]
mod tests;
