//! The blocks of this node that other nodes may lack: their places on disk. A sealed segment is sorted, so its blocks stay
//! in the file from which it was made, until Redis has them.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::mark::BlockContent;
use super::segment::{DIGITS, active_path, take_block};
use carom_limits::{VISIT_LOG_ENTRY_BYTES, VISIT_LOG_UNSENT_BYTES};
use carom_model::visits::shared_log::{LogSpan, SharedLogState};

/// The beginning of the name of a file with blocks of a segment that is sealed. The number of the segment follows.
pub(super) const OUTGOING: &str = "outgoing-";

/// A block of this node on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnBlock {
    pub(super) number: u64,
    /// The segment whose file has the block, its offset and its length there.
    pub(super) seq: u64,
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) span: LogSpan,
}

/// The blocks of this node, and the files that are kept for them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    blocks: VecDeque<OwnBlock>,
    /// The length of each kept file, by the number of its segment.
    files: BTreeMap<u64, u64>,
    /// The number of the last block that Redis is known to have.
    published: u64,
}

/// Returns the path of a kept file.
pub(super) fn outgoing_path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{OUTGOING}{seq:0DIGITS$}"))
}

/// Opens the file with the blocks of a segment, sealed or not.
///
/// # Errors
/// If the segment has neither file, or the file cannot be opened.
pub(super) fn open_blocks(dir: &Path, seq: u64) -> io::Result<File> {
    match File::open(active_path(dir, seq)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(outgoing_path(dir, seq)),
        opened => opened,
    }
}

/// Takes the marks of all blocks of a segment's file into the state and the list of own blocks, and passes their records
/// to `each`. Returns the length of the whole blocks at the beginning of the file.
pub(super) fn read_marks(
    (seq, bytes): (u64, &[u8]),
    mut state: Option<&mut SharedLogState>,
    outgoing: &mut Outgoing,
    mut each: impl FnMut(Vec<u8>, &BlockContent),
) -> u64 {
    let mut rest = bytes;
    loop {
        let at = (bytes.len() - rest.len()) as u64;
        let Some(raw) = take_block(&mut rest) else { return at };
        let content = BlockContent::of(&raw);
        if let (Some(state), Some(mark)) = (&mut state, content.mark) {
            let span = content.span.unwrap_or(LogSpan { from_ms: 0, to_ms: 0 });
            state.reach(mark.origin, mark.number, span.to_ms);
            if mark.origin == state.own() {
                let len = ((bytes.len() - rest.len()) as u64 - at) as u32;
                outgoing.push(OwnBlock { number: mark.number, seq, at, len, span });
            }
        }
        each(raw, &content);
    }
}

impl OwnBlock {
    /// Reads the block from the file of its segment.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        file.read_exact_at(&mut bytes, self.at)?;
        Ok(bytes)
    }
}

impl Outgoing {
    /// Adds a block, whose number is higher than all others.
    pub(super) fn push(&mut self, block: OwnBlock) {
        debug_assert!(self.blocks.back().is_none_or(|last| last.number < block.number), "two blocks have one number");
        self.blocks.push_back(block);
    }

    /// Forgets all blocks, which belong to a former identity.
    pub(super) fn clear(&mut self) {
        (self.blocks, self.published) = (VecDeque::new(), 0);
    }

    /// Notes the number of the last block that Redis has.
    pub(super) fn note_published(&mut self, number: u64) {
        self.published = number;
    }

    /// Returns blocks with consecutive numbers behind `published`, as many as fit into an entry of a stream.
    pub(super) fn next(&self, published: u64) -> Vec<OwnBlock> {
        let first = self.blocks.partition_point(|block| block.number <= published);
        let (mut found, mut bytes) = (Vec::<OwnBlock>::new(), 0);
        for block in self.blocks.range(first..) {
            bytes += block.len as usize;
            let follows = found.last().is_none_or(|last| last.number + 1 == block.number);
            if !follows || (!found.is_empty() && bytes > VISIT_LOG_ENTRY_BYTES) {
                break;
            }
            found.push(*block);
        }
        found
    }

    /// Keeps the file of a segment that was sealed.
    ///
    /// # Errors
    /// If it cannot be renamed, or an older one beyond the bound cannot be removed.
    pub(super) fn keep(&mut self, dir: &Path, seq: u64) -> io::Result<()> {
        let path = outgoing_path(dir, seq);
        fs::rename(active_path(dir, seq), &path)?;
        self.add_file(seq, fs::metadata(&path)?.len());
        self.remove_surplus(dir)
    }

    /// Adds a kept file that was found at the start.
    pub(super) fn add_file(&mut self, seq: u64, len: u64) {
        self.files.insert(seq, len);
    }

    /// Removes the oldest files beyond the bound. If Redis lacks blocks of them, other nodes will miss these.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub(super) fn remove_surplus(&mut self, dir: &Path) -> io::Result<()> {
        while self.files.values().sum::<u64>() > VISIT_LOG_UNSENT_BYTES {
            let Some(seq) = self.files.keys().next().copied() else { break };
            if self.waits(seq, self.published) {
                tracing::warn!(
                    seq,
                    "visits that wait for Redis take too much space; other nodes will lack some of them"
                );
            }
            self.remove(dir, seq)?;
        }
        Ok(())
    }

    /// True if a file of a segment up to this number is kept.
    pub(super) fn has_up_to(&self, seq: u64) -> bool {
        self.files.range(..=seq).next().is_some()
    }

    /// Returns the numbers of the segments whose files hold only blocks up to `published`.
    pub(super) fn delivered_segments(&self, published: u64) -> Vec<u64> {
        self.files.keys().copied().filter(|seq| !self.waits(*seq, published)).collect()
    }

    /// True if the file of a segment holds blocks behind `published`.
    fn waits(&self, seq: u64, published: u64) -> bool {
        self.blocks.iter().any(|block| block.seq == seq && block.number > published)
    }

    /// Removes a kept file and forgets its blocks.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&mut self, dir: &Path, seq: u64) -> io::Result<()> {
        match fs::remove_file(outgoing_path(dir, seq)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.files.remove(&seq);
        self.blocks.retain(|block| block.seq != seq);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64, seq: u64, len: u32) -> OwnBlock {
        OwnBlock { number, seq, at: 0, len, span: LogSpan { from_ms: 1, to_ms: 2 } }
    }

    #[test]
    fn entries_have_consecutive_blocks() {
        let mut outgoing = Outgoing::default();
        let half = VISIT_LOG_ENTRY_BYTES as u32 / 2;
        for (number, len) in [(1, half), (2, half), (3, 5 * half), (4, 1), (7, 1), (8, 1)] {
            outgoing.push(block(number, 1, len));
        }
        let numbers = |published| outgoing.next(published).iter().map(|block| block.number).collect::<Vec<_>>();
        assert_eq!((numbers(0), numbers(1), numbers(2)), (vec![1, 2], vec![2], vec![3]));
        assert_eq!((numbers(3), numbers(4), numbers(8)), (vec![4], vec![7, 8], vec![]));
    }

    #[test]
    fn files_are_kept_until_redis_has_their_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let mut outgoing = Outgoing::default();
        for (number, seq) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            outgoing.push(block(number, seq, 10));
        }
        for seq in [1, 2] {
            fs::write(active_path(dir.path(), seq), b"blocks").unwrap();
            outgoing.keep(dir.path(), seq).unwrap();
        }
        assert_eq!(
            (outgoing.delivered_segments(1), outgoing.delivered_segments(2), outgoing.delivered_segments(4)),
            (vec![], vec![1], vec![1, 2])
        );
        outgoing.remove(dir.path(), 1).unwrap();
        assert!(!outgoing_path(dir.path(), 1).exists());
        assert!(open_blocks(dir.path(), 2).is_ok());
        assert_eq!(outgoing.next(0)[0].number, 3);
        // A node that Redis has left alone for long.
        outgoing.add_file(2, VISIT_LOG_UNSENT_BYTES + 1);
        outgoing.remove_surplus(dir.path()).unwrap();
        assert!(!outgoing_path(dir.path(), 2).exists());
        assert_eq!(outgoing.next(0)[0].number, 4);
    }
}
