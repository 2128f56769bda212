//! Repairs journals before the store opens them.
//!
//! A batch in which a single byte is wrong is put right: its checksum says when that has succeeded. A journal with any
//! other broken batch is written anew without it. Records of the batch whose own checksum holds are kept. Below the
//! synced mark the batch may have been acknowledged: records of which only the code can be read are kept as damaged
//! ones, so that a read names them and nobody else gets the code. Above the mark nothing was acknowledged: there such a
//! record is left out, because it would hide the version that the tables have.
//!
//! What is left out stays beside the journal: the whole old file after damage, the cut bytes after a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use super::mark::{self, Position};
use super::{
    Batch, Item, KIND_VALUE, SEQNO_STEP_MAX, START_LEN, TAG_END, TAG_ITEM, TAG_START, TRAILER, UNCOMPRESSED, Walk,
    item, number, numbered, path_of, walk, whole_batch,
};
use crate::limits::{CORRECTION_WORK_MAX, TORN_WRITES_KEPT};
use crate::readable;
use crate::record;

/// The keyspace of records, where no whole batch shows it: the first that a new store creates.
pub(super) const LINKS_KEYSPACE: u64 = 1;

/// Codes that the text of a repair names at most; the file that is kept has all.
const CODES_NAMED_MAX: usize = 20;

/// Sequence numbers are smaller: at a million writes a second for a century.
const SEQNO_MAX: u64 = 1 << 56;

/// The ending of files with the bytes of unfinished writes, before the time.
const TORN: &str = "torn-";

/// Damage found in one journal, and how it was repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repair {
    /// The journal.
    pub path: PathBuf,
    /// Where whole batches should have been, in bytes from the start of the file.
    pub broken: Vec<Range<usize>>,
    /// True if writes that may have been acknowledged were damaged; false if a crash cut off unfinished writes.
    pub is_damage: bool,
    /// Broken batches in which a single byte was wrong, and is right again.
    pub corrected: usize,
    /// Bytes that were synced and that the file lacks at its end.
    pub missing: u64,
    /// Records in broken batches that were kept.
    pub salvaged: usize,
    /// Their codes: nothing else of what was written with them is known to be there.
    pub codes: Vec<Code>,
    /// Codes of records that cannot be read and were kept as damaged ones.
    pub unreadable: Vec<Code>,
    /// Codes of unfinished writes that were left out.
    pub left_out: Vec<Code>,
    /// Path of the file that keeps the bytes left out.
    pub kept: Option<PathBuf>,
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        if self.is_damage {
            let bytes: usize = self.broken.iter().map(Range::len).sum();
            let places = readable::count(self.broken.len() as u64, "place");
            write!(f, "the journal {path} was damaged in {places} ({})", readable::count(bytes as u64, "byte"))?;
            if self.missing > 0 {
                write!(f, ", and {} at its end were missing", readable::count(self.missing, "byte"))?;
            }
            if self.corrected > 0 {
                write!(f, "; {} of them had one wrong byte, which was corrected", self.corrected)?;
            }
            if self.broken.len() > self.corrected {
                let (kept, unreadable) = (self.salvaged, self.unreadable.len());
                write!(f, "; {kept} records of the others were recovered, and {unreadable} cannot be read")?;
            }
            name_codes(f, &self.unreadable)?;
        } else {
            write!(
                f,
                "the journal {path} ended in the middle of a write, as after a crash; the unfinished write was removed"
            )?;
            name_codes(f, &self.left_out)?;
        }
        match &self.kept {
            Some(kept) if self.is_damage => write!(f, "; the damaged journal is kept as {}", kept.display()),
            Some(kept) => write!(f, "; the removed bytes are kept as {}", kept.display()),
            None => Ok(()),
        }
    }
}

fn name_codes(f: &mut std::fmt::Formatter<'_>, codes: &[Code]) -> std::fmt::Result {
    for (at, code) in codes.iter().take(CODES_NAMED_MAX).enumerate() {
        write!(f, "{}{code}", if at == 0 { " (" } else { ", " })?;
    }
    match codes.len() {
        0 => Ok(()),
        len if len > CODES_NAMED_MAX => write!(f, " and {} more)", len - CODES_NAMED_MAX),
        _ => f.write_str(")"),
    }
}

/// Checks all journals of a store that is not open, and repairs what can be.
///
/// # Errors
/// When a journal cannot be read or written anew.
pub fn repair_all(dir: &Path) -> io::Result<Vec<Repair>> {
    let journals = numbered(dir)?;
    let youngest = journals.last().map(|(number, _)| *number);
    let mark = mark::read(dir)?;
    let mut repairs = Vec::new();
    let mut least_seqno = 0;
    for (number, path) in &journals {
        let bytes = fs::read(path)?;
        let synced = Synced::of(*number, youngest, mark);
        let walk = walk(&bytes, synced.written);
        let last_seqno = walk.batches.last().map(|batch| batch.seqno);
        let missing = synced.written.saturating_sub(bytes.len()) as u64;
        if !walk.broken.is_empty() || missing > 0 {
            let is_misnumbered = synced.is_misnumbered(&walk.batches);
            let fresh = rebuild(&bytes, walk, &synced, least_seqno);
            let position = Position { journal: *number, len: fresh.bytes.len() as u64, seqno: fresh.last_seqno };
            let repair = put(path, &bytes, fresh, missing)?;
            repairs.push(Repair { is_damage: repair.is_damage || is_misnumbered, ..repair });
            // The mark is about bytes that were dropped. A crash before this line means that the damage is reported again.
            if repairs.last().is_some_and(|repair| repair.is_damage) && mark.is_some_and(|mark| mark.journal == *number)
            {
                mark::write(dir, position)?;
            }
        }
        least_seqno = last_seqno.map_or(least_seqno, |last| least_seqno.max(last + 1));
    }
    // The store never removes the journal that it writes to.
    if let Some(mark) = mark.filter(|mark| mark.len > 0 && youngest.is_none_or(|youngest| youngest < mark.journal)) {
        let path = path_of(dir, mark.journal);
        repairs.push(Repair { path, is_damage: true, missing: mark.len, ..Repair::default() });
        mark::write(dir, Position { journal: youngest.unwrap_or_default(), ..Position::default() })?;
    }
    Ok(repairs)
}

/// The known extent of the synced part of a journal.
struct Synced {
    /// Bytes that were written for certain.
    written: usize,
    /// What stands before it may have been acknowledged, and nothing behind it; `None` where that is unknown.
    until: Option<usize>,
    /// The sequence number of the last batch before it, 0 where that is unknown.
    seqno: u64,
}

impl Synced {
    fn of(journal: u64, youngest: Option<u64>, mark: Option<Position>) -> Synced {
        let here = mark.filter(|mark| mark.journal == journal);
        let written = here.map_or(0, |mark| usize::try_from(mark.len).unwrap_or(usize::MAX));
        let until = match mark {
            // The store syncs a journal whole before it begins the next one.
            _ if youngest != Some(journal) => Some(usize::MAX),
            Some(mark) if mark.journal > journal => Some(usize::MAX),
            Some(_) => Some(written),
            None => None,
        };
        Synced { written, until, seqno: here.map_or(0, |mark| mark.seqno) }
    }

    /// Whether the last batch before the mark has another sequence number than the mark says. Such a number can make the
    /// batches behind the mark look wrong, so that they are taken for a torn write.
    fn is_misnumbered(&self, batches: &[Batch]) -> bool {
        let last = batches.iter().rev().find(|batch| batch.bytes.end <= self.written);
        self.seqno > 0 && last.is_some_and(|batch| batch.seqno != self.seqno)
    }

    /// The broken ranges, none of which goes across the mark, each with whether it may have been acknowledged.
    fn judge(&self, broken: Vec<Range<usize>>, whole_end: usize) -> Vec<(Range<usize>, bool)> {
        let Some(until) = self.until else {
            // Without a mark, a broken end is taken for what a crash leaves, and anything else for damage.
            return broken.into_iter().map(|range| (range.clone(), range.start < whole_end)).collect();
        };
        let split = |range: Range<usize>| {
            let middle = until.clamp(range.start, range.end);
            [(range.start..middle, true), (middle..range.end, false)]
        };
        broken.into_iter().flat_map(split).filter(|(range, _)| !range.is_empty()).collect()
    }
}

/// Items recovered from a broken batch.
#[derive(Default)]
pub(super) struct Salvage {
    /// Those whose record says by itself that it is whole.
    pub(super) whole: Vec<Vec<u8>>,
    /// Their codes.
    codes: Vec<Code>,
    /// Those with a code, and a value that is not what was written.
    unreadable: Vec<Vec<u8>>,
    /// Their codes.
    unreadable_codes: Vec<Code>,
}

impl Salvage {
    fn add(&mut self, mut other: Salvage) {
        self.whole.append(&mut other.whole);
        self.codes.append(&mut other.codes);
        self.unreadable.append(&mut other.unreadable);
        self.unreadable_codes.append(&mut other.unreadable_codes);
    }
}

/// Looks for items in a broken batch. `links` is the keyspace of records.
pub(super) fn salvage(bytes: &[u8], broken: &Range<usize>, links: u64) -> Salvage {
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
            Some(item) if item.keyspace == links && is_legible(bytes, &item) => {
                found.unreadable.push(written_anew(bytes, &item, links));
                found.unreadable_codes.extend(Code::from_key(&bytes[item.key.clone()]));
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
fn written_anew(bytes: &[u8], item: &Item, links: u64) -> Vec<u8> {
    let mut out = vec![TAG_ITEM, KIND_VALUE, UNCOMPRESSED];
    out.extend_from_slice(&links.to_le_bytes());
    out.extend_from_slice(&(item.key.len() as u16).to_le_bytes());
    let value_len = (item.value.len() as u32).to_le_bytes();
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&bytes[item.key.start..item.value.end]);
    out
}

/// The keyspace of records, as a whole batch shows it.
pub(super) fn links_keyspace(bytes: &[u8], batches: &[Batch]) -> Option<u64> {
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

/// A journal that was written anew.
struct Fresh {
    bytes: Vec<u8>,
    /// The sequence number of its last batch.
    last_seqno: u64,
    broken: Vec<(Range<usize>, bool)>,
    corrected: usize,
    found: Salvage,
    left_out: Vec<Code>,
}

/// Builds a journal without its broken ranges, with what could be saved of them. Its batches have numbers from `least_seqno`.
fn rebuild(bytes: &[u8], walk: Walk, synced: &Synced, least_seqno: u64) -> Fresh {
    let whole_end = walk.batches.last().map_or(0, |batch| batch.bytes.end);
    let broken = synced.judge(walk.broken, whole_end);
    let links = links_keyspace(bytes, &walk.batches).unwrap_or(LINKS_KEYSPACE);
    let mut fresh = Fresh {
        bytes: Vec::with_capacity(bytes.len()),
        last_seqno: 0,
        broken: Vec::new(),
        corrected: 0,
        found: Salvage::default(),
        left_out: Vec::new(),
    };
    let mut least = least_seqno;
    let mut whole = walk.batches.into_iter().peekable();
    for (range, is_damage) in &broken {
        while let Some(batch) = whole.next_if(|batch| batch.bytes.end <= range.start) {
            least = push_whole(&mut fresh.bytes, bytes, &batch, least);
        }
        if let Some(batch) = is_damage.then(|| corrected(&bytes[range.clone()])).flatten() {
            let whole = Batch { bytes: 0..batch.bytes.len(), seqno: batch.seqno };
            least = push_whole(&mut fresh.bytes, &batch.bytes, &whole, least);
            fresh.corrected += 1;
            continue;
        }
        let mut found = salvage(bytes, range, links);
        if !is_damage {
            found.unreadable.clear();
            fresh.left_out.append(&mut found.unreadable_codes);
        }
        let items = [&found.whole[..], &found.unreadable].concat();
        if !items.is_empty() {
            let seqno = seqno_of(bytes, range, least, whole.peek().map(|next| next.seqno), synced);
            push_batch(&mut fresh.bytes, &items, seqno);
            least = seqno + 1;
        }
        fresh.found.add(found);
    }
    for batch in whole {
        least = push_whole(&mut fresh.bytes, bytes, &batch, least);
    }
    fresh.last_seqno = least.saturating_sub(1);
    fresh.broken = broken;
    fresh
}

/// A batch that was put right.
struct Corrected {
    bytes: Vec<u8>,
    seqno: u64,
}

/// The batch that was written, where the bytes differ from it in one byte: the one change that makes the checksum fit. In a
/// large batch only single bits are tried, in a larger one nothing.
fn corrected(broken: &[u8]) -> Option<Corrected> {
    let fits =
        |changes: usize| changes.saturating_mul(broken.len()).saturating_mul(broken.len()) <= CORRECTION_WORK_MAX;
    let changes: Vec<u8> = match broken.len() {
        _ if fits(255) => (1..=255).collect(),
        _ if fits(8) => (0..8).map(|bit| 1 << bit).collect(),
        _ => return None,
    };
    if whole_batch(broken, 0).is_some() {
        // It is whole but for its number, which no checksum covers.
        return None;
    }
    let mut bytes = broken.to_vec();
    for at in 0..bytes.len() {
        for change in &changes {
            bytes[at] ^= change;
            if let Some(batch) = whole_batch(&bytes, 0).filter(|batch| batch.bytes.end == bytes.len()) {
                return Some(Corrected { seqno: batch.seqno, bytes });
            }
            bytes[at] ^= change;
        }
    }
    None
}

/// The sequence number for what is saved of a broken batch: its own where that can be believed, and in any case one that
/// fits between its neighbours. One that is too small would let the store take the batch for one that the tables have.
fn seqno_of(bytes: &[u8], broken: &Range<usize>, least: u64, next: Option<u64>, synced: &Synced) -> u64 {
    let is_near = |from: u64, to: u64| to - from < SEQNO_STEP_MAX;
    let fits = |seqno: &u64| {
        let behind = if least == 0 { *seqno < SEQNO_MAX } else { *seqno >= least && is_near(least, *seqno) };
        behind && next.is_none_or(|next| *seqno < next && is_near(*seqno, next))
    };
    let head = bytes.get(broken.start..broken.start + START_LEN).filter(|head| head[0] == TAG_START);
    let own = head.map(|head| number(&head[5..])).filter(fits);
    let last = Some(synced.seqno).filter(|_| Some(broken.end) == synced.until).filter(|seqno| *seqno > 0).filter(fits);
    let before_next = next.map(|next| next.saturating_sub(1)).filter(|_| least == 0);
    last.or(own).or(before_next).unwrap_or(least)
}

/// Puts a journal that was written anew in the place of the old one.
fn put(path: &Path, old: &[u8], fresh: Fresh, missing: u64) -> io::Result<Repair> {
    let is_damage = missing > 0 || fresh.broken.iter().any(|(_, is_damage)| *is_damage);
    let broken: Vec<Range<usize>> = fresh.broken.into_iter().map(|(range, _)| range).collect();
    let torn = broken.iter().flat_map(|range| &old[range.clone()]).copied().collect::<Vec<u8>>();
    let kept = replace(path, &fresh.bytes, (!is_damage).then_some(&torn))?;
    Ok(Repair {
        path: path.to_owned(),
        broken,
        is_damage,
        corrected: fresh.corrected,
        missing,
        salvaged: fresh.found.whole.len(),
        codes: fresh.found.codes,
        unreadable: fresh.found.unreadable_codes,
        left_out: fresh.left_out,
        kept: Some(kept),
    })
}

pub(super) fn push_batch(out: &mut Vec<u8>, items: &[Vec<u8>], seqno: u64) {
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

/// Puts the new journal in the place of the old one, so that a crash leaves one or the other. Keeps the old file, or only
/// its torn bytes where there is nothing else. Returns where.
fn replace(path: &Path, bytes: &[u8], torn: Option<&Vec<u8>>) -> io::Result<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let fresh = path.with_extension("repair");
    write_durably(&fresh, bytes)?;
    let kept = match torn {
        None => set_aside(path, "damaged-", |old| fs::hard_link(path, old))?,
        Some(torn) => {
            let cut = path.with_extension("cut");
            write_durably(&cut, torn)?;
            remove_old_torn(dir)?;
            let kept = set_aside(path, TORN, |old| fs::hard_link(&cut, old))?;
            fs::remove_file(&cut)?;
            kept
        }
    };
    fs::rename(&fresh, path)?;
    File::open(dir)?.sync_all()?;
    Ok(kept)
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a file with a name that nothing has yet: two repairs can fall into one millisecond.
fn set_aside(path: &Path, ending: &str, link: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let mut stamp = crate::stats::unix_ms();
    loop {
        let old = path.with_extension(format!("{ending}{stamp}"));
        match link(&old) {
            Ok(()) => return Ok(old),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => stamp += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the oldest files with torn bytes, so that with one more there are at most [`TORN_WRITES_KEPT`].
fn remove_old_torn(dir: &Path) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let stamp = path.extension().and_then(|it| it.to_str()?.strip_prefix(TORN)?.parse::<u64>().ok());
        found.extend(stamp.map(|stamp| (stamp, path)));
    }
    found.sort();
    let surplus = (found.len() + 1).saturating_sub(TORN_WRITES_KEPT);
    found.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}
