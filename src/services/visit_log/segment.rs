//! Segments of the visit log: files of compressed blocks with checksums.
//!
//! The *active* segment is appended to, block by block, in the order of time. A full segment is *sealed*: its records
//! are sorted by the hash of their code, and written to a new file with an index of its blocks. A query for one link
//! then reads a block or two. Sealed files do not change, except that a rewrite leaves out deleted visits.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::xxh3_64;

use carom_limits::{VISIT_BLOCK_BYTES, VISIT_SEGMENT_BYTES};
use carom_model::visits::record::VisitRecord;

/// Bytes before the content of a block: both lengths and the checksum.
const BLOCK_HEAD: usize = 16;

/// Bytes of an entry of the index: the hashes of the first and last record, the offset and the length of a block.
const ENTRY: usize = 28;

/// Bytes at the end of a sealed segment. They hold the checksum, the offset and the number of entries of its index, the
/// instants of its first and last visit, a checksum of all these, and [`MAGIC`].
const TRAILER: usize = 52;

/// The last bytes of a sealed segment.
const MAGIC: &[u8; 8] = b"carom-v1";

/// The beginning of the name of a sealed segment, and of an active one. The number follows.
pub(super) const SEALED: &str = "segment-";
pub(super) const ACTIVE: &str = "active-";

/// Digits of the number in a name.
pub(super) const DIGITS: usize = 10;

/// The hash of orphan visits. No code has it.
pub(super) const ORPHAN_HASH: u64 = 0;

/// Returns the hash by which the visits of a link are sorted.
pub(super) fn hash_of(code: Option<&Code>) -> u64 {
    code.map_or(ORPHAN_HASH, |code| xxh3_64(code.key(&mut [0; CODE_KEY_LEN_MAX])).max(1))
}

/// A sealed segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SealedSegment {
    pub(super) path: PathBuf,
    pub(super) seq: u64,
    /// The instants of its first and last visit, in milliseconds since 1970 UTC.
    pub(super) min_ms: u64,
    pub(super) max_ms: u64,
    /// The length of the file in bytes.
    pub(super) bytes: u64,
    index_at: u64,
    entries: u32,
    /// False if the file is damaged: it is never read, and removed once it is too old.
    pub(super) is_readable: bool,
}

/// A block in the index of a segment.
struct BlockEntry {
    first: u64,
    last: u64,
    at: u64,
    len: u32,
}

/// Compresses records and appends them as a block.
pub(super) fn push_block(raw: &[u8], into: &mut Vec<u8>) {
    let content = lz4_flex::block::compress(raw);
    into.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    into.extend_from_slice(&(content.len() as u32).to_le_bytes());
    into.extend_from_slice(&xxh3_64(&content).to_le_bytes());
    into.extend_from_slice(&content);
}

/// Takes the records of the first block; `None` at the end or at damage.
pub(super) fn take_block(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let (head, behind) = rest.split_at_checked(BLOCK_HEAD)?;
    let raw_len = u32::from_le_bytes(*head.first_chunk()?) as usize;
    let len = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
    let sum = u64::from_le_bytes(*head[8..].first_chunk()?);
    let (content, behind) = behind.split_at_checked(len)?;
    if raw_len > 4 * VISIT_SEGMENT_BYTES || xxh3_64(content) != sum {
        return None;
    }
    let raw = lz4_flex::block::decompress(content, raw_len).ok()?;
    *rest = behind;
    Some(raw)
}

/// Returns the length of the whole blocks at the beginning of an active segment with this length.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn whole_blocks(file: &File, len: u64) -> io::Result<u64> {
    let (mut at, mut head) = (0, [0; BLOCK_HEAD]);
    while at + BLOCK_HEAD as u64 <= len {
        file.read_exact_at(&mut head, at)?;
        let content = u32::from_le_bytes(*head[4..].first_chunk().expect("a head is long enough"));
        let end = at + BLOCK_HEAD as u64 + u64::from(content);
        if end > len {
            break;
        }
        at = end;
    }
    Ok(at)
}

/// Passes the encoded and the decoded form of each record to `each`.
pub(super) fn each_record<'a>(mut raw: &'a [u8], mut each: impl FnMut(&'a [u8], &VisitRecord<'a>)) {
    loop {
        let before = raw;
        let Some(record) = VisitRecord::take(&mut raw) else { return };
        each(&before[..before.len() - raw.len()], &record);
    }
}

/// Returns the content of a sealed segment with those of these records that `keeps` selects, and its index; `None` if
/// there are none.
pub(super) fn sealed<'a>(
    chunks: impl Iterator<Item = &'a [u8]>,
    mut keeps: impl FnMut(&VisitRecord<'_>) -> bool,
) -> Option<Vec<u8>> {
    let mut records: Vec<(u64, u64, &[u8])> = Vec::new();
    for chunk in chunks {
        each_record(chunk, |bytes, record| {
            if keeps(record) {
                records.push((hash_of(record.code.as_ref()), record.at_ms, bytes));
            }
        });
    }
    // Visits of one millisecond keep their order.
    records.sort_by_key(|(hash, at_ms, _)| (*hash, *at_ms));
    let min_ms = records.iter().map(|(_, at_ms, _)| *at_ms).min()?;
    let max_ms = records.iter().map(|(_, at_ms, _)| *at_ms).max()?;
    let (mut out, mut index, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (place, (hash, _, bytes)) in records.iter().enumerate() {
        raw.extend_from_slice(bytes);
        let first_hash = *first.get_or_insert(*hash);
        if raw.len() >= VISIT_BLOCK_BYTES || place + 1 == records.len() {
            let at = out.len();
            push_block(&raw, &mut out);
            index.extend_from_slice(&first_hash.to_le_bytes());
            index.extend_from_slice(&hash.to_le_bytes());
            index.extend_from_slice(&(at as u64).to_le_bytes());
            index.extend_from_slice(&((out.len() - at) as u32).to_le_bytes());
            raw.clear();
            first = None;
        }
    }
    let index_at = out.len() as u64;
    let entries = (index.len() / ENTRY) as u32;
    out.extend_from_slice(&index);
    let begin = out.len();
    out.extend_from_slice(&xxh3_64(&index).to_le_bytes());
    out.extend_from_slice(&index_at.to_le_bytes());
    out.extend_from_slice(&entries.to_le_bytes());
    out.extend_from_slice(&min_ms.to_le_bytes());
    out.extend_from_slice(&max_ms.to_le_bytes());
    let sum = xxh3_64(&out[begin..]);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(MAGIC);
    debug_assert_eq!(out.len() - begin, TRAILER, "a reader would look elsewhere");
    Some(out)
}

/// Returns the path of a sealed segment.
pub(super) fn sealed_path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{SEALED}{seq:0DIGITS$}"))
}

/// Returns the path of an active segment.
pub(super) fn active_path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{ACTIVE}{seq:0DIGITS$}"))
}

impl SealedSegment {
    /// Opens the segment `seq` of a directory, by its trailer.
    ///
    /// # Errors
    /// If the file cannot be read at all. A file with damage is returned as one that is not readable.
    pub(super) fn open(dir: &Path, seq: u64) -> io::Result<SealedSegment> {
        let path = sealed_path(dir, seq);
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        let bytes = metadata.len();
        let mut trailer = [0; TRAILER];
        let number = |at: usize, trailer: &[u8; TRAILER]| {
            u64::from_le_bytes(*trailer[at..].first_chunk().expect("the trailer is long enough"))
        };
        let is_there = bytes >= TRAILER as u64 && file.read_exact_at(&mut trailer, bytes - TRAILER as u64).is_ok();
        let is_sound = is_there && trailer.ends_with(MAGIC) && number(36, &trailer) == xxh3_64(&trailer[..36]);
        let written_ms = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let written_ms = written_ms.map_or(0, |since| since.as_millis() as u64);
        let entries = u32::from_le_bytes(*trailer[16..].first_chunk().expect("the trailer is long enough"));
        let (index_at, min_ms, max_ms) = (number(8, &trailer), number(20, &trailer), number(28, &trailer));
        let max_ms = if is_sound { max_ms } else { written_ms };
        Ok(SealedSegment { path, seq, min_ms, max_ms, bytes, index_at, entries, is_readable: is_sound })
    }

    /// Passes the blocks that may hold records with this hash to `each`, or all blocks, until it returns false.
    ///
    /// # Errors
    /// If the file cannot be read, or a block of it is damaged. Blocks behind the damage are passed nevertheless.
    pub(super) fn each_block(&self, hash: Option<u64>, mut each: impl FnMut(Vec<u8>) -> bool) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let mut damage = Ok(());
        for BlockEntry { first, last, at, len } in self.index(&file)? {
            if hash.is_some_and(|hash| hash < first || last < hash) {
                continue;
            }
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, at)?;
            match take_block(&mut &bytes[..]) {
                Some(raw) => {
                    if !each(raw) {
                        return damage;
                    }
                }
                None => damage = Err(damaged("a block has another checksum")),
            }
        }
        damage
    }

    fn index(&self, file: &File) -> io::Result<Vec<BlockEntry>> {
        let mut bytes = vec![0; self.entries as usize * ENTRY];
        if self.index_at + (bytes.len() + TRAILER) as u64 != self.bytes {
            return Err(damaged("its index has another length"));
        }
        file.read_exact_at(&mut bytes, self.index_at)?;
        let mut sum = [0; 8];
        file.read_exact_at(&mut sum, self.bytes - TRAILER as u64)?;
        if u64::from_le_bytes(sum) != xxh3_64(&bytes) {
            return Err(damaged("its index has another checksum"));
        }
        let number =
            |entry: &[u8], at: usize| u64::from_le_bytes(*entry[at..].first_chunk().expect("an entry is whole"));
        let entry = |entry: &[u8]| BlockEntry {
            first: number(entry, 0),
            last: number(entry, 8),
            at: number(entry, 16),
            len: u32::from_le_bytes(*entry[24..].first_chunk().expect("an entry is whole")),
        };
        Ok(bytes.chunks_exact(ENTRY).map(entry).collect())
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
