//! Repair of journals before the store opens them.
//!
//! A batch with a single wrong byte is corrected: its checksum confirms the correction. A journal with any other broken
//! batch is rewritten without it. Records of the batch whose own checksum is correct are recovered. Below the synced
//! mark the batch may have been acknowledged. There, records of which only the code is legible are kept as damaged
//! ones. A read then reports them, and no other link gets the code. Above the mark nothing was acknowledged. There,
//! such a record is dropped, because it would hide the version in the tables.
//!
//! Dropped bytes stay beside the journal: the whole old file after damage, the cut bytes after a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use carom_shards::Code;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::mark::{self, JournalPosition};
use super::{
    JournalBatch, JournalItem, JournalWalk, KIND_VALUE, SEQNO_STEP_MAX, START_LEN, TAG_END, TAG_ITEM, TAG_START,
    TRAILER, UNCOMPRESSED, is_zero, item, number, numbered, path_of, read_at, walk, whole_batch,
};
use carom_limits::{CORRECTION_WORK_MAX, TORN_WRITES_KEPT};
use carom_model::link::record;
use carom_telemetry::readable;

/// The keyspace of records if no whole batch shows it: the first that a new store creates.
pub(super) const LINKS_KEYSPACE: u64 = 1;

/// Maximum number of codes in the text of a repair. The file that is kept has all of them.
const CODES_NAMED_MAX: usize = 20;

/// Upper bound of sequence numbers: a million writes a second for two thousand years.
const SEQNO_MAX: u64 = 1 << 56;

/// Extension of files with the bytes of unfinished writes; a timestamp follows.
const TORN: &str = "torn-";

/// Extension of the bytes of an unfinished write before they get a timestamp.
const CUT: &str = "cut";

/// Extension of a repaired journal before it replaces the old one.
const REPAIRED: &str = "repair";

/// Damage found in one journal, and how it was repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repair {
    /// The path of the journal.
    pub path: PathBuf,
    /// The ranges of broken batches, in bytes from the start of the file.
    pub broken: Vec<Range<usize>>,
    /// True if writes that may have been acknowledged were damaged; false if a crash cut off unfinished writes.
    pub is_damage: bool,
    /// Number of broken batches with a single wrong byte, which was corrected.
    pub corrected: usize,
    /// Number of synced bytes that are missing at the end of the file.
    pub missing: u64,
    /// Number of records that were recovered from broken batches.
    pub recovered: usize,
    /// The codes of the recovered records. Other writes of their batches may be lost.
    pub recovered_codes: Vec<Code>,
    /// The codes of unreadable records, which were kept as damaged ones.
    pub unreadable: Vec<Code>,
    /// The codes of unfinished writes, which were dropped.
    pub dropped: Vec<Code>,
    /// The path of the file that keeps the old journal or the dropped bytes.
    pub kept_file: Option<PathBuf>,
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
                let (kept, unreadable) = (self.recovered, self.unreadable.len());
                write!(f, "; {kept} records of the others were recovered, and {unreadable} cannot be read")?;
            }
            name_codes(f, &self.unreadable)?;
        } else {
            write!(
                f,
                "the journal {path} ended in the middle of a write, as after a crash; the unfinished write was removed"
            )?;
            name_codes(f, &self.dropped)?;
        }
        match &self.kept_file {
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

/// Checks all journals of a closed store, and repairs them as far as possible.
///
/// # Errors
/// The error of reading or rewriting a journal.
pub(crate) fn repair_all(dir: &Path) -> io::Result<Vec<Repair>> {
    let journals = numbered(dir)?;
    let youngest = journals.last().map(|(number, _)| *number);
    let mark = mark::read(dir)?;
    let mut repairs = Vec::new();
    let mut least_seqno = 0;
    for (number, path) in &journals {
        let bytes = read_sparse(path)?;
        let synced = Synced::of(*number, youngest, mark);
        let walk = walk(&bytes, synced.written);
        let last_seqno = walk.batches.last().map(|batch| batch.seqno);
        let missing = synced.written.saturating_sub(bytes.len()) as u64;
        if !walk.broken.is_empty() || missing > 0 {
            let is_misnumbered = synced.is_misnumbered(&walk.batches);
            let fresh = rebuild(&bytes, walk, &synced, least_seqno);
            let position = JournalPosition { journal: *number, len: fresh.bytes.len() as u64, seqno: fresh.last_seqno };
            let repair = replace_journal(path, &bytes, fresh, missing)?;
            repairs.push(Repair { is_damage: repair.is_damage || is_misnumbered, ..repair });
            // The mark describes bytes that were dropped. A crash before this line only causes a second report of the
            // damage.
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
        mark::write(dir, JournalPosition { journal: youngest.unwrap_or_default(), ..JournalPosition::default() })?;
    }
    Ok(repairs)
}

/// Bytes of a journal that are read at once.
const PIECE_LEN: usize = 1 << 18;

/// Reads a file of which most may be zeros, such as a preallocated journal. They take no memory: the system provides pages
/// of zeros only once something is written to them. This function does not read holes.
///
/// # Errors
/// The error of reading the file.
pub(super) fn read_sparse(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let len = || usize::try_from(file.metadata()?.len()).map_err(io::Error::other);
    let (mut bytes, mut piece, mut behind) = (vec![0; len()?], vec![0; PIECE_LEN], 0);
    while let Some(from) = next_data(&file, behind)? {
        let (read, at) = (read_at(&file, &mut piece, from)?, usize::try_from(from).map_err(io::Error::other)?);
        if read == 0 {
            break;
        }
        let end = at + read;
        // Something else may append to the file meanwhile.
        bytes.resize(end.max(bytes.len()), 0);
        if !is_zero(&piece[..read]) {
            bytes[at..end].copy_from_slice(&piece[..read]);
        }
        behind = end as u64;
    }
    bytes.truncate(len()?);
    Ok(bytes)
}

/// Returns the position of the first data at or after `at`, behind any hole; `None` if only a hole or nothing follows.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        // The file system does not know where holes are.
        Err(Errno::INVAL) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

/// The known extent of the synced part of a journal.
struct Synced {
    /// Number of bytes that were certainly written.
    written: usize,
    /// The end of the bytes that may have been acknowledged; `None` if unknown.
    until: Option<usize>,
    /// The sequence number of the last batch before that end; 0 if unknown.
    seqno: u64,
}

impl Synced {
    fn of(journal: u64, youngest: Option<u64>, mark: Option<JournalPosition>) -> Synced {
        let here = mark.filter(|mark| mark.journal == journal);
        let written = here.map_or(0, |mark| usize::try_from(mark.len).unwrap_or(usize::MAX));
        let until = match mark {
            // The store syncs a journal whole before it begins the next one.
            _ if youngest != Some(journal) => Some(usize::MAX),
            Some(mark) if mark.journal > journal => Some(usize::MAX),
            Some(_) => Some(written),
            None => None,
        };
        assert!(until.is_none_or(|until| until >= written), "a synced write would be dropped as a torn one");
        Synced { written, until, seqno: here.map_or(0, |mark| mark.seqno) }
    }

    /// True if the last batch before the mark has a sequence number other than the mark's. Such a number can make the
    /// batches after the mark look wrong, as if they were a torn write.
    fn is_misnumbered(&self, batches: &[JournalBatch]) -> bool {
        let last = batches.iter().rev().find(|batch| batch.bytes.end <= self.written);
        self.seqno > 0 && last.is_some_and(|batch| batch.seqno != self.seqno)
    }

    /// Splits the broken ranges at the mark. Each comes with true if its bytes may have been acknowledged.
    fn split_at_mark(&self, broken: Vec<Range<usize>>, whole_end: usize) -> Vec<(Range<usize>, bool)> {
        let Some(until) = self.until else {
            // Without a mark, a broken end counts as the result of a crash, and anything else as damage.
            return broken.into_iter().map(|range| (range.clone(), range.start < whole_end)).collect();
        };
        let split = |range: Range<usize>| {
            let middle = until.clamp(range.start, range.end);
            [(range.start..middle, true), (middle..range.end, false)]
        };
        let bytes: usize = broken.iter().map(Range::len).sum();
        let parts: Vec<(Range<usize>, bool)> =
            broken.into_iter().flat_map(split).filter(|(range, _)| !range.is_empty()).collect();
        assert_eq!(
            parts.iter().map(|(range, _)| range.len()).sum::<usize>(),
            bytes,
            "broken bytes are lost or repaired twice"
        );
        parts
    }
}

/// Items recovered from a broken batch.
#[derive(Default)]
pub(super) struct RecoveredItems {
    /// Items whose record has a correct checksum.
    pub(super) whole: Vec<Vec<u8>>,
    /// The codes of the whole items.
    codes: Vec<Code>,
    /// Items with a legible code and a damaged value.
    unreadable: Vec<Vec<u8>>,
    /// The codes of the unreadable items.
    unreadable_codes: Vec<Code>,
}

impl RecoveredItems {
    fn add(&mut self, mut other: RecoveredItems) {
        self.whole.append(&mut other.whole);
        self.codes.append(&mut other.codes);
        self.unreadable.append(&mut other.unreadable);
        self.unreadable_codes.append(&mut other.unreadable_codes);
    }
}

/// Searches a broken batch for items. `links` is the keyspace of records.
pub(super) fn recover_items(bytes: &[u8], broken: &Range<usize>, links: u64) -> RecoveredItems {
    let mut found = RecoveredItems::default();
    let mut at = broken.start;
    while at < broken.end {
        let item = item(bytes, at).filter(|item| item.end <= broken.end);
        at = match item {
            Some(item) if is_record(bytes, &item) => {
                found.whole.push(rewritten(bytes, &item, links));
                found.codes.extend(Code::from_key(&bytes[item.key.clone()]));
                item.end
            }
            Some(item) if item.keyspace == links && is_legible(bytes, &item) => {
                found.unreadable.push(rewritten(bytes, &item, links));
                found.unreadable_codes.extend(Code::from_key(&bytes[item.key.clone()]));
                item.end
            }
            _ => at + 1,
        };
    }
    assert!(at == broken.end, "an item reaches beyond the broken range");
    assert_eq!(found.unreadable.len(), found.unreadable_codes.len(), "an unreadable record would not be reported");
    found
}

/// True if an item has an intact record, perhaps one that only a later version can decode.
fn is_record(bytes: &[u8], item: &JournalItem) -> bool {
    record::is_intact(&bytes[item.key.clone()], &bytes[item.value.clone()])
}

/// True if an item has a valid code, and ends where another item or the end of a batch begins.
fn is_legible(bytes: &[u8], item: &JournalItem) -> bool {
    Code::from_key(&bytes[item.key.clone()]).is_ok()
        && bytes.get(item.end).is_some_and(|next| [TAG_ITEM, TAG_END].contains(next))
}

/// Rewrites an item with a consistent head; the store would fail on an inconsistent one. A removal becomes a damaged
/// record, because nothing confirms its code.
fn rewritten(bytes: &[u8], item: &JournalItem, links: u64) -> Vec<u8> {
    let mut out = vec![TAG_ITEM, KIND_VALUE, UNCOMPRESSED];
    out.extend_from_slice(&links.to_le_bytes());
    out.extend_from_slice(&(item.key.len() as u16).to_le_bytes());
    let value_len = (item.value.len() as u32).to_le_bytes();
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&value_len);
    out.extend_from_slice(&bytes[item.key.start..item.value.end]);
    out
}

/// Returns the keyspace of records, as a whole batch shows it.
pub(super) fn links_keyspace(bytes: &[u8], batches: &[JournalBatch]) -> Option<u64> {
    batches.iter().find_map(|batch| {
        let first = item(bytes, batch.bytes.start + START_LEN)?;
        is_record(bytes, &first).then_some(first.keyspace)
    })
}

/// Appends a whole batch, with a sequence number of at least `least`. A smaller number is damaged, and is replaced:
/// with it, the batches before this one looked misnumbered, and no number was left for the records recovered from them.
/// Returns the least number of the next batch.
fn push_whole(out: &mut Vec<u8>, bytes: &[u8], batch: &JournalBatch, least: u64) -> u64 {
    debug_assert!(whole_batch(bytes, batch.bytes.start).is_some(), "the store would cut the journal at this batch");
    let start = out.len();
    out.extend_from_slice(&bytes[batch.bytes.clone()]);
    let seqno = batch.seqno.max(least);
    out[start + 5..start + START_LEN].copy_from_slice(&seqno.to_le_bytes());
    seqno + 1
}

/// A rewritten journal.
struct RebuiltJournal {
    bytes: Vec<u8>,
    /// The sequence number of its last batch.
    last_seqno: u64,
    /// The broken ranges of the old journal, each with true if its bytes may have been acknowledged.
    broken: Vec<(Range<usize>, bool)>,
    corrected: usize,
    recovered: RecoveredItems,
    /// The codes of unfinished writes.
    dropped: Vec<Code>,
}

/// Rewrites a journal without its broken ranges, but with the records recovered from them. Sequence numbers start at
/// `least_seqno`.
fn rebuild(bytes: &[u8], walk: JournalWalk, synced: &Synced, least_seqno: u64) -> RebuiltJournal {
    let whole_end = walk.batches.last().map_or(0, |batch| batch.bytes.end);
    let broken = synced.split_at_mark(walk.broken, whole_end);
    let links = links_keyspace(bytes, &walk.batches).unwrap_or(LINKS_KEYSPACE);
    let mut fresh = RebuiltJournal {
        bytes: Vec::with_capacity(bytes.len()),
        last_seqno: 0,
        broken: Vec::new(),
        corrected: 0,
        recovered: RecoveredItems::default(),
        dropped: Vec::new(),
    };
    let mut least = least_seqno;
    let mut whole = walk.batches.into_iter().peekable();
    for (range, is_damage) in &broken {
        while let Some(batch) = whole.next_if(|batch| batch.bytes.end <= range.start) {
            least = push_whole(&mut fresh.bytes, bytes, &batch, least);
        }
        assert!(
            whole.peek().is_none_or(|next| next.bytes.start >= range.end),
            "a whole batch begins within a broken range"
        );
        if let Some(batch) = is_damage.then(|| corrected(&bytes[range.clone()])).flatten() {
            let whole = JournalBatch { bytes: 0..batch.bytes.len(), seqno: batch.seqno };
            least = push_whole(&mut fresh.bytes, &batch.bytes, &whole, least);
            fresh.corrected += 1;
            continue;
        }
        let mut found = recover_items(bytes, range, links);
        if !is_damage {
            found.unreadable.clear();
            fresh.dropped.append(&mut found.unreadable_codes);
        }
        let items = [&found.whole[..], &found.unreadable].concat();
        if !items.is_empty() {
            let seqno = seqno_of(bytes, range, least, whole.peek().map(|next| next.seqno), synced);
            push_batch(&mut fresh.bytes, &items, seqno);
            least = seqno + 1;
        }
        fresh.recovered.add(found);
    }
    for batch in whole {
        least = push_whole(&mut fresh.bytes, bytes, &batch, least);
    }
    debug_assert_eq!(whole_len(&fresh.bytes), fresh.bytes.len(), "the store would cut the repaired journal");
    fresh.last_seqno = least.saturating_sub(1);
    fresh.broken = broken;
    fresh
}

/// Returns the length of the consecutive whole batches at the start of a journal.
fn whole_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(batch) = whole_batch(bytes, at) {
        at = batch.bytes.end;
    }
    at
}

/// A corrected batch.
struct Corrected {
    bytes: Vec<u8>,
    seqno: u64,
}

/// Corrects a batch with a single wrong byte, by the one change that makes the checksum correct. In a large batch it
/// tries only single bits, and in a still larger one nothing.
fn corrected(broken: &[u8]) -> Option<Corrected> {
    let fits =
        |changes: usize| changes.saturating_mul(broken.len()).saturating_mul(broken.len()) <= CORRECTION_WORK_MAX;
    let changes: Vec<u8> = match broken.len() {
        _ if fits(255) => (1..=255).collect(),
        _ if fits(8) => (0..8).map(|bit| 1 << bit).collect(),
        _ => return None,
    };
    if whole_batch(broken, 0).is_some() {
        // The batch is whole except for its sequence number, which no checksum covers.
        return None;
    }
    let mut bytes = broken.to_vec();
    for at in 0..bytes.len() {
        for change in &changes {
            bytes[at] ^= change;
            if let Some(batch) = whole_batch(&bytes, 0).filter(|batch| batch.bytes.end == bytes.len()) {
                debug_assert_eq!(
                    bytes.iter().zip(broken).filter(|(new, old)| new != old).count(),
                    1,
                    "more than one byte was changed"
                );
                return Some(Corrected { seqno: batch.seqno, bytes });
            }
            bytes[at] ^= change;
        }
    }
    None
}

/// Returns the sequence number for the records recovered from a broken batch. That is the batch's own number if it is
/// plausible, and always one between those of its neighbours. With a smaller number, the store would take the batch for
/// one that its tables have.
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
    let seqno = last.or(own).or(before_next).unwrap_or(least);
    assert!(seqno >= least, "the store would skip the recovered records as old");
    seqno
}

/// Replaces a journal by its rewritten form.
fn replace_journal(path: &Path, old: &[u8], fresh: RebuiltJournal, missing: u64) -> io::Result<Repair> {
    let is_damage = missing > 0 || fresh.broken.iter().any(|(_, is_damage)| *is_damage);
    let broken: Vec<Range<usize>> = fresh.broken.into_iter().map(|(range, _)| range).collect();
    let torn = broken.iter().flat_map(|range| &old[range.clone()]).copied().collect::<Vec<u8>>();
    assert!(is_damage || !torn.is_empty(), "a journal without defects would be replaced");
    let kept = replace(path, &fresh.bytes, (!is_damage).then_some(&torn))?;
    Ok(Repair {
        path: path.to_owned(),
        broken,
        is_damage,
        corrected: fresh.corrected,
        missing,
        recovered: fresh.recovered.whole.len(),
        recovered_codes: fresh.recovered.codes,
        unreadable: fresh.recovered.unreadable_codes,
        dropped: fresh.dropped,
        kept_file: Some(kept),
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

/// Replaces a journal, such that a crash leaves the old or the new one. Keeps the old file, or after a crash only its
/// torn bytes. Returns the path of the kept file.
fn replace(path: &Path, bytes: &[u8], torn: Option<&Vec<u8>>) -> io::Result<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let fresh = path.with_extension(REPAIRED);
    write_durably(&fresh, bytes)?;
    let kept = match torn {
        None => set_aside(path, "damaged-", |old| fs::hard_link(path, old))?,
        Some(torn) => {
            let cut = path.with_extension(CUT);
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

/// Creates a file with an unused name: two repairs can happen within a millisecond.
fn set_aside(path: &Path, ending: &str, link: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let mut stamp = carom_telemetry::clock::unix_ms();
    loop {
        let old = path.with_extension(format!("{ending}{stamp}"));
        match link(&old) {
            Ok(()) => return Ok(old),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => stamp += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the oldest files with torn bytes, so that one more makes at most [`TORN_WRITES_KEPT`].
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

/// Removes the bytes of unfinished writes, and what an interrupted repair has left. Keeps damaged journals: an operator may
/// still compare them with other records.
///
/// # Errors
/// If the directory cannot be read, or a file cannot be removed.
pub fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_unfinished = |ending: &str| ending == REPAIRED || ending == CUT || ending.starts_with(TORN);
        if path.extension().and_then(|ending| ending.to_str()).is_some_and(is_unfinished) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
