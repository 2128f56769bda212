//! A look at the store's journals before the store opens them: it would cut a journal at the first byte that it does not
//! understand, or refuse to open at all, and either loses everything behind one flipped byte.
//!
//! A journal is a row of batches: a start (tag 1, count `u32`, sequence number `u64`), items (tag 2, kind `u8`,
//! compression `u8`, keyspace `u64`, lengths of key `u16`, value `u32`, value on disk `u32`, key, value) or clears
//! (tag 4, keyspace `u64`), and an end (tag 3, XXH3 of the items `u64`, four fixed bytes); then zeros to the end of the
//! preallocated file. All numbers are little-endian (fjall 3, `journal/entry.rs`).
//!
//! Where a batch is broken and whole ones follow, or the file ends in one, the journal is written anew without it; its
//! items whose own checksum holds are kept. Of others whose code can still be read, what is left is kept as a damaged
//! record, so that whoever reads it names it and nobody else gets the code. The old file stays beside it. This module knows the form of the files and
//! nothing of the library that writes them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use crate::record;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
const START_LEN: usize = 1 + 4 + 8;
const ITEM_HEAD_LEN: usize = 1 + 1 + 1 + 8 + 2 + 4 + 4;
const END_LEN: usize = 1 + 8 + TRAILER.len();
/// Numbers that may lie between those of two batches in one file. Flushes and compactions draw from the same row, so there
/// are gaps, but no journal sees a trillion of them.
const SEQNO_STEP_MAX: u64 = 1 << 40;
/// Kinds of item that carry a value under a key.
const KIND_VALUE: u8 = 0;
/// Values as they are.
const UNCOMPRESSED: u8 = 0;

/// What was wrong with one journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// The journal.
    pub path: PathBuf,
    /// Where whole batches should have been, in bytes from the start of the file.
    pub broken: Vec<Range<usize>>,
    /// Whether nothing but the end is broken: what a crash in the middle of a write leaves, and no sign of damage.
    pub only_tail: bool,
    /// Records in broken batches that were kept.
    pub salvaged: usize,
    /// Their codes: nothing else of what was written with them is known to be there.
    pub codes: Vec<Code>,
    /// Records in broken batches of which little more than the code could be read: they are kept as damaged ones.
    pub unreadable: usize,
    /// Where the journal as it was is kept, where it was worth keeping.
    pub kept: Option<PathBuf>,
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        if self.only_tail {
            return write!(
                f,
                "the journal {path} ended in the middle of a write, as after a crash; the rest was cut off"
            );
        }
        write!(
            f,
            "the journal {path} was damaged in {} places; {} records in them were kept, and {} that cannot be read are named",
            self.broken.len(),
            self.salvaged,
            self.unreadable
        )?;
        match &self.kept {
            Some(kept) => write!(f, "; the journal as it was is kept as {}", kept.display()),
            None => Ok(()),
        }
    }
}

/// Checks all journals of a store that is not open, and repairs what can be.
///
/// # Errors
/// When a journal cannot be read or written anew.
pub fn repair_all(dir: &Path) -> io::Result<Vec<Repair>> {
    let mut repairs = Vec::new();
    for path in journals(dir)? {
        let bytes = fs::read(&path)?;
        let walk = walk(&bytes);
        if !walk.broken.is_empty() {
            repairs.push(rewrite(&path, &bytes, walk)?);
        }
    }
    Ok(repairs)
}

/// The journals of a store, oldest first.
pub fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
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
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Where the whole batches of a journal end, in bytes: what has been written to it.
pub fn written_len(bytes: &[u8]) -> usize {
    walk(bytes).batches.last().map_or(0, |batch| batch.bytes.end)
}

/// Where the whole batches end that start at `from` and follow each other. Reads little more than these, so that one may
/// ask after each commit.
#[cfg(feature = "faults")]
pub fn whole_until(path: &Path, from: u64) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let (mut at, mut chunk) = (from, 64 * 1024);
    loop {
        let mut bytes = vec![0; chunk];
        let read = file.read_at(&mut bytes, at)?;
        bytes.truncate(read);
        let mut end = 0;
        while let Some(batch) = whole_batch(&bytes, end) {
            end = batch.bytes.end;
        }
        at += end as u64;
        // Nothing whole in a large piece: zeros, or the end.
        match (end, bytes.first()) {
            (0, Some(&TAG_START)) if read == chunk => chunk *= 2,
            (0, _) => return Ok(at),
            _ => {}
        }
    }
}

/// A whole batch.
struct Batch {
    bytes: Range<usize>,
    seqno: u64,
}

/// A journal, taken apart.
struct Walk {
    batches: Vec<Batch>,
    broken: Vec<Range<usize>>,
}

fn walk(bytes: &[u8]) -> Walk {
    let mut walk = Walk { batches: Vec::new(), broken: Vec::new() };
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
        let end = next.unwrap_or_else(|| at + filled_len(&bytes[at..]));
        if end > at {
            walk.broken.push(at..end);
        }
        at = next.unwrap_or(bytes.len());
    }
    disown_misnumbered(&mut walk);
    walk
}

/// The sequence number stands outside of the checksum. One that does not rise from batch to batch would make the store
/// skip the batch as old, or take all later ones for old.
fn disown_misnumbered(walk: &mut Walk) {
    let rises = |from: u64, to: Option<u64>| to.is_none_or(|to| from < to && to - from < SEQNO_STEP_MAX);
    let mut before = None;
    let mut at = 0;
    while at < walk.batches.len() {
        let number = walk.batches[at].seqno;
        let behind = |steps: usize| walk.batches.get(at + steps).map(|batch| batch.seqno);
        // Where this one and the next do not fit each other, it is this one that is wrong if the others fit without it.
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

/// Bytes up to the zeros that were preallocated and never written.
fn filled_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

fn whole_batch(bytes: &[u8], start: usize) -> Option<Batch> {
    let head = bytes.get(start..start + START_LEN).filter(|head| head[0] == TAG_START)?;
    let count = u32::from_le_bytes(head[1..5].try_into().ok()?);
    let seqno = u64::from_le_bytes(head[5..].try_into().ok()?);
    let first = start + START_LEN;
    let mut at = first;
    for _ in 0..count {
        at = match *bytes.get(at)? {
            TAG_ITEM => item(bytes, at)?.end,
            TAG_CLEAR => at + 9,
            _ => return None,
        };
    }
    let end = bytes.get(at..at + END_LEN).filter(|end| end[0] == TAG_END && end[9..] == *TRAILER)?;
    let sum = u64::from_le_bytes(end[1..9].try_into().ok()?);
    (sum == xxh3_64(&bytes[first..at])).then_some(Batch { bytes: start..at + END_LEN, seqno })
}

/// One item of a batch, where its parts stand.
struct Item {
    keyspace: u64,
    key: Range<usize>,
    value: Range<usize>,
    end: usize,
}

fn item(bytes: &[u8], at: usize) -> Option<Item> {
    let head = bytes.get(at..at + ITEM_HEAD_LEN).filter(|head| head[0] == TAG_ITEM)?;
    let keyspace = u64::from_le_bytes(head[3..11].try_into().ok()?);
    let key_len = usize::from(u16::from_le_bytes(head[11..13].try_into().ok()?));
    let value_len = u32::from_le_bytes(head[17..21].try_into().ok()?) as usize;
    let key = at + ITEM_HEAD_LEN..at + ITEM_HEAD_LEN + key_len;
    let value = key.end..key.end.checked_add(value_len)?;
    let end = value.end;
    (end <= bytes.len()).then_some(Item { keyspace, key, value, end })
}

/// What is left of a broken batch, as items.
#[derive(Default)]
struct Salvage {
    /// Those whose record says by itself that it is whole.
    whole: Vec<Vec<u8>>,
    /// Their codes.
    codes: Vec<Code>,
    /// Those with a code, and a value that is not what was written.
    unreadable: Vec<Vec<u8>>,
}

/// Looks for items in a broken batch. `links` is the keyspace of records, where that is known.
fn salvage(bytes: &[u8], broken: &Range<usize>, links: Option<u64>) -> Salvage {
    let mut found = Salvage::default();
    let mut at = broken.start;
    while at < broken.end {
        let item = item(bytes, at).filter(|item| item.end <= broken.end);
        at = match item {
            Some(item) if is_record(bytes, &item) => {
                found.whole.push(written_anew(bytes, &item, links));
                found.codes.extend(Code::from_key(&bytes[item.key.clone()]));
                item.end
            }
            Some(item) if links == Some(item.keyspace) && is_legible(bytes, &item) => {
                found.unreadable.push(written_anew(bytes, &item, links));
                item.end
            }
            _ => at + 1,
        };
    }
    found
}

fn is_record(bytes: &[u8], item: &Item) -> bool {
    record::decode(&bytes[item.key.clone()], &bytes[item.value.clone()]).is_ok()
}

/// Whether an item has a code, and ends where another item or the end of a batch begins.
fn is_legible(bytes: &[u8], item: &Item) -> bool {
    Code::from_key(&bytes[item.key.clone()]).is_ok()
        && bytes.get(item.end).is_some_and(|next| [TAG_ITEM, TAG_END].contains(next))
}

/// The item with a head that fits it: the store would not survive one that does not. A removal becomes a damaged record,
/// because nothing shows that its code is the right one.
fn written_anew(bytes: &[u8], item: &Item, links: Option<u64>) -> Vec<u8> {
    let mut out = vec![TAG_ITEM, KIND_VALUE, UNCOMPRESSED];
    out.extend_from_slice(&links.unwrap_or(item.keyspace).to_le_bytes());
    out.extend_from_slice(&(item.key.len() as u16).to_le_bytes());
    let value_len = (item.value.len() as u32).to_le_bytes();
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&bytes[item.key.start..item.value.end]);
    out
}

/// The keyspace of records, as a whole batch shows it.
fn links_keyspace(bytes: &[u8], batches: &[Batch]) -> Option<u64> {
    batches.iter().find_map(|batch| {
        let first = item(bytes, batch.bytes.start + START_LEN)?;
        is_record(bytes, &first).then_some(first.keyspace)
    })
}

/// Appends a whole batch. Its number must be `least` at least: where it is not, it is the one that was damaged, and took what came
/// before it for misnumbered, so that nothing was left between them for what was saved of that. Returns the least number of
/// the next one.
fn push_whole(out: &mut Vec<u8>, bytes: &[u8], batch: &Batch, least: u64) -> u64 {
    let start = out.len();
    out.extend_from_slice(&bytes[batch.bytes.clone()]);
    let seqno = batch.seqno.max(least);
    out[start + 5..start + START_LEN].copy_from_slice(&seqno.to_le_bytes());
    seqno + 1
}

fn rewrite(path: &Path, bytes: &[u8], walk: Walk) -> io::Result<Repair> {
    let Walk { batches, broken } = walk;
    let whole_end = batches.last().map_or(0, |batch| batch.bytes.end);
    let only_tail = broken.iter().all(|range| range.start >= whole_end);
    let links = links_keyspace(bytes, &batches);
    let mut out = Vec::with_capacity(bytes.len());
    let (mut salvaged, mut unreadable, mut seqno) = (0, 0, 0);
    let mut codes = Vec::new();
    let mut whole = batches.into_iter().peekable();
    for range in &broken {
        while let Some(batch) = whole.next_if(|batch| batch.bytes.end <= range.start) {
            seqno = push_whole(&mut out, bytes, &batch, seqno);
        }
        let mut found = salvage(bytes, range, links);
        if range.start >= whole_end {
            // What a crash cut off at the end was never acknowledged, and is no damage.
            found.unreadable.clear();
        }
        let items = [&found.whole[..], &found.unreadable].concat();
        if !items.is_empty() {
            salvaged += found.whole.len();
            codes.append(&mut found.codes);
            unreadable += found.unreadable.len();
            push_batch(&mut out, &items, seqno);
            seqno += 1;
        }
    }
    for batch in whole {
        seqno = push_whole(&mut out, bytes, &batch, seqno);
    }
    let kept = replace(path, &out, !only_tail)?;
    Ok(Repair { path: path.to_owned(), broken, only_tail, salvaged, codes, unreadable, kept })
}

fn push_batch(out: &mut Vec<u8>, items: &[Vec<u8>], seqno: u64) {
    out.push(TAG_START);
    out.extend_from_slice(&u32::try_from(items.len()).expect("a journal has fewer items").to_le_bytes());
    out.extend_from_slice(&seqno.to_le_bytes());
    let first = out.len();
    items.iter().for_each(|item| out.extend_from_slice(item));
    let sum = xxh3_64(&out[first..]);
    out.push(TAG_END);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(TRAILER);
}

/// Puts the new journal in the place of the old one, so that a crash leaves one or the other.
fn replace(path: &Path, bytes: &[u8], keep_old: bool) -> io::Result<Option<PathBuf>> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let fresh = path.with_extension("repair");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let mut kept = None;
    if keep_old {
        kept = Some(set_aside(path)?);
    }
    fs::rename(&fresh, path)?;
    File::open(dir)?.sync_all()?;
    Ok(kept)
}

/// Keeps `path` under a second name that nothing has yet: two repairs can fall into one millisecond.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut stamp = crate::stats::unix_ms();
    loop {
        let old = path.with_extension(format!("damaged-{stamp}"));
        match fs::hard_link(path, &old) {
            Ok(()) => return Ok(old),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => stamp += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn an_item(key: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        record::encode_tombstone(key, &record::tests::a_tombstone(), &mut value);
        let mut out = vec![TAG_ITEM, KIND_VALUE, UNCOMPRESSED];
        out.extend_from_slice(&1u64.to_le_bytes());
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(&value);
        out
    }

    /// Three batches of two items, then zeros.
    fn journal() -> Vec<u8> {
        let mut out = Vec::new();
        for batch in 0..3u64 {
            let items: Vec<_> = (0..2).map(|n| an_item(format!("key{batch}{n}").as_bytes())).collect();
            push_batch(&mut out, &items, 10 + 2 * batch);
        }
        out.resize(out.len() + 5_000, 0);
        out
    }

    fn keys(bytes: &[u8]) -> usize {
        salvage(bytes, &(0..bytes.len()), None).whole.len()
    }

    proptest! {
        #[test]
        fn walking_is_total(bytes in proptest::collection::vec(0u8..5, 0..300)) {
            let walk = walk(&bytes);
            prop_assert!(walk.broken.iter().all(|range| range.end <= bytes.len()));
        }

        #[test]
        fn a_flipped_byte_costs_at_most_its_own_record(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("3.jnl");
            let mut bytes = journal();
            let at = at.index(written_len(&bytes));
            bytes[at] ^= flip;
            fs::write(&path, &bytes).unwrap();
            let repairs = repair_all(dir.path()).unwrap();
            let repaired = fs::read(&path).unwrap();
            // A number that still rises is as good as the right one; any other byte is missed.
            prop_assert!(repairs.len() == 1 || keys(&repaired) == 6);
            prop_assert!(keys(&repaired) >= 5, "{} of 6 at {}", keys(&repaired), at);
            prop_assert!(walk(&repaired).broken.is_empty());
            let numbers: Vec<u64> = walk(&repaired).batches.iter().map(|batch| batch.seqno).collect();
            prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{:?}", numbers);
            prop_assert!(repair_all(dir.path()).unwrap().is_empty());
        }
    }

    #[test]
    fn a_number_that_falls_among_earlier_ones_costs_nothing() {
        let bytes = journal();
        let third = walk(&bytes).batches[2].bytes.start;
        // Its batches have the numbers 10, 12 and 14.
        for number in 0..=20u64 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("3.jnl");
            let mut bytes = bytes.clone();
            bytes[third + 5..third + START_LEN].copy_from_slice(&number.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            repair_all(dir.path()).unwrap();
            let repaired = fs::read(&path).unwrap();
            assert_eq!(keys(&repaired), 6, "{number}");
            let numbers: Vec<u64> = walk(&repaired).batches.iter().map(|batch| batch.seqno).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{number}: {numbers:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_kept_under_its_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        let mut bytes = journal();
        let key = bytes.windows(5).position(|window| window == b"key11").unwrap();
        bytes[key + 5 + 12] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let repair = repair_all(dir.path()).unwrap().remove(0);
        assert_eq!((repair.salvaged, repair.unreadable, repair.only_tail), (1, 1, false));
        let repaired = fs::read(&path).unwrap();
        assert!(walk(&repaired).broken.is_empty());
        let kept = repaired.windows(5).position(|window| window == b"key11").unwrap();
        let value = &bytes[key + 5..][..an_item(b"key11").len() - ITEM_HEAD_LEN - 5];
        assert!(repaired[kept + 5..].starts_with(value), "what is left of it is there");
        assert!(record::decode(b"key11", value).is_err());
        // A head that does not fit what is whole otherwise is put right: what kind of item it
        // is, a length, a keyspace, a kind of compression.
        for at in [1, 2, 3, 13] {
            let mut bytes = journal();
            let key = bytes.windows(5).position(|window| window == b"key11").unwrap();
            bytes[key - ITEM_HEAD_LEN + at] ^= 0x40;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(repair_all(dir.path()).unwrap()[0].salvaged, 2);
            let repaired = fs::read(&path).unwrap();
            assert!(repaired.windows(an_item(b"key11").len()).any(|window| window == an_item(b"key11")), "byte {at}");
        }
        // The same damage behind the last whole batch is what a crash leaves.
        let mut bytes = journal();
        let key = bytes.windows(5).position(|window| window == b"key21").unwrap();
        bytes[key + 5 + 12] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let repair = repair_all(dir.path()).unwrap().remove(0);
        assert_eq!((repair.salvaged, repair.unreadable, repair.only_tail), (1, 0, true));
    }

    #[test]
    fn a_whole_journal_is_left_alone_and_a_torn_end_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        let whole = journal();
        fs::write(&path, &whole).unwrap();
        assert_eq!(repair_all(dir.path()).unwrap(), []);
        assert_eq!(fs::read(&path).unwrap(), whole);
        let torn = &whole[..written_len(&whole) - 1];
        fs::write(&path, torn).unwrap();
        let repairs = repair_all(dir.path()).unwrap();
        assert!(repairs[0].only_tail && repairs[0].kept.is_none());
        assert_eq!(repairs[0].salvaged, 2);
        assert_eq!(keys(&fs::read(&path).unwrap()), 6);
    }
}
