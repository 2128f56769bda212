//! The count log: all visit counts since the last fold, so that a crash loses the visits of one interval at most.
//!
//! A file is a sequence of pieces: length and checksum, then the counts of an interval within one hour. A piece that a
//! crash cut off ends the file. In a fleet, each piece is a numbered batch of one origin ([`BatchId`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use carom_model::visits::batches::{BatchId, LoggedPiece};
use carom_model::visits::origins::OriginSlot;
use carom_model::visits::tally::{Subject, Tally, TallyRow, push_number, take_bytes, take_number};

const ROW: u8 = 1;
const FORGET: u8 = 2;
const BATCH: u8 = 3;

/// Bytes of length and checksum of a piece.
const HEAD_LEN: usize = 12;

/// Longest piece that is read, in bytes: far more than an interval produces. A longer one counts as damage.
const PIECE_LEN_MAX: usize = 1 << 30;

/// The content of a piece.
#[derive(Debug)]
pub(super) struct Piece {
    /// The batch; `None` for counts from before the node was in a fleet.
    pub(super) batch: Option<BatchId>,
    /// The hour, counted from 1970 UTC.
    pub(super) hour: u32,
    /// Links that had ended by then. They apply before the rows.
    pub(super) ended: Vec<Code>,
    /// The counts.
    pub(super) rows: Vec<(Subject, TallyRow)>,
    /// The content as it was written; empty without a batch.
    pub(super) content: Vec<u8>,
}

impl Piece {
    /// Returns the piece without its counts.
    pub(super) fn logged(&self) -> LoggedPiece<'_> {
        LoggedPiece { batch: self.batch, hour: self.hour, content: &self.content }
    }
}

/// The log that is being written.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    file: Arc<File>,
    /// True if bytes were written since the last sync.
    is_dirty: bool,
    /// The number of the log, under which its rows are stored.
    pub(super) seq: u32,
    /// The length in bytes.
    pub(super) len: u64,
    piece: Vec<u8>,
}

fn path(dir: &Path, seq: u32) -> PathBuf {
    dir.join(format!("log-{seq:010}"))
}

/// Returns the numbers of the logs in a directory, in order.
pub(super) fn seqs(dir: &Path) -> io::Result<Vec<u32>> {
    let mut seqs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        seqs.extend(name.to_str().and_then(|name| name.strip_prefix("log-")).and_then(|seq| seq.parse::<u32>().ok()));
    }
    seqs.sort_unstable();
    // A file with fewer digits in its name has the number of another one.
    seqs.dedup();
    Ok(seqs)
}

/// Removes a log whose rows are stored.
pub(super) fn remove(dir: &Path, seq: u32) -> io::Result<()> {
    fs::remove_file(path(dir, seq))
}

/// Syncs a log that a previous process wrote. Its batches may be published after that: a power failure would take those
/// that only the kernel has, and their numbers would be used again.
pub(super) fn sync(dir: &Path, seq: u32) -> io::Result<()> {
    File::open(path(dir, seq))?.sync_data()
}

/// Passes the pieces of a log to `take`, up to its end or to damage.
pub(super) fn read(dir: &Path, seq: u32, take: impl FnMut(Piece)) -> io::Result<()> {
    let bytes = fs::read(path(dir, seq))?;
    let mut rest = &bytes[..];
    std::iter::from_fn(|| take_piece(&mut rest)).for_each(take);
    if !rest.is_empty() {
        // Most likely a piece that a crash cut off.
        tracing::warn!(log = seq, bytes = rest.len(), "cannot read the end of a visit log");
    }
    Ok(())
}

/// Returns the whole pieces of a log as bytes, up to its end or to damage. The last piece of a log that is being
/// written may be incomplete.
pub(super) fn whole_pieces(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    let mut rest = &bytes[..];
    while take_piece(&mut rest).is_some() {}
    let len = bytes.len() - rest.len();
    bytes.truncate(len);
    Ok(bytes)
}

/// Opens a log for reading; `None` if it is gone.
pub(super) fn open(dir: &Path, seq: u32) -> io::Result<Option<File>> {
    match File::open(path(dir, seq)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Appends to a log in a directory that no node has open.
pub(super) fn put(dir: &Path, seq: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path(dir, seq))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn take_piece(rest: &mut &[u8]) -> Option<Piece> {
    let (head, behind) = rest.split_at_checked(HEAD_LEN)?;
    let len = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(head[4..].try_into().ok()?);
    let (mut payload, behind) = behind.split_at_checked(len.min(PIECE_LEN_MAX))?;
    if xxh3_64(payload) != sum {
        return None;
    }
    *rest = behind;
    let hour = u32::try_from(take_number(&mut payload)?).ok()?;
    let batch = match payload.split_first() {
        Some((&BATCH, mut behind)) => {
            let slot = OriginSlot::try_from(take_number(&mut behind)?).ok()?;
            let number = take_number(&mut behind)?;
            payload = behind;
            Some(BatchId { slot, number })
        }
        _ => None,
    };
    let PieceCounts { ended, rows } = parse_content(payload)?;
    let content = if batch.is_some() { payload.to_vec() } else { Vec::new() };
    Some(Piece { batch, hour, ended, rows, content })
}

/// The counts of a piece, without their hour.
#[derive(Debug, Default)]
pub(super) struct PieceCounts {
    /// Links that had ended by then. They apply before the rows.
    pub(super) ended: Vec<Code>,
    /// The counts.
    pub(super) rows: Vec<(Subject, TallyRow)>,
}

/// Parses the counts of a piece; `None` if they are malformed.
pub(super) fn parse_content(mut payload: &[u8]) -> Option<PieceCounts> {
    let mut piece = PieceCounts::default();
    while let Some((&kind, behind)) = payload.split_first() {
        payload = behind;
        let subject = Subject::of_name(take_bytes(&mut payload)?)?;
        match (kind, subject) {
            (ROW, subject) => piece.rows.push((subject, TallyRow::decode(&mut payload)?)),
            (FORGET, Subject::Link(code)) => piece.ended.push(code),
            _ => return None,
        }
    }
    Some(piece)
}

/// Encodes the counts of a piece.
pub(super) fn encode_content(ended: &[Code], tally: &Tally) -> Vec<u8> {
    let mut content = Vec::new();
    let begin = |kind: u8, subject: &Subject, content: &mut Vec<u8>| {
        let name = subject.name();
        content.push(kind);
        push_number(name.len() as u64, content);
        content.extend_from_slice(&name);
    };
    for code in ended {
        begin(FORGET, &Subject::Link(*code), &mut content);
    }
    tally.each(|subject, row| {
        begin(ROW, &subject, &mut content);
        row.encode(&mut content);
    });
    content
}

impl Log {
    /// Begins the log with the number `seq`.
    pub(super) fn begin(dir: &Path, seq: u32) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path(dir, seq))?;
        // The directory is synced, so that a power failure does not take the whole file.
        File::open(dir)?.sync_all()?;
        let len = file.metadata()?.len();
        Ok(Log { dir: dir.to_owned(), file: Arc::new(file), is_dirty: false, seq, len, piece: Vec::new() })
    }

    /// Syncs this log and begins the next one.
    pub(super) fn next(&mut self) -> io::Result<Log> {
        if let Some(file) = self.take_unsynced() {
            file.sync_data()?;
        }
        Log::begin(&self.dir, self.seq + 1)
    }

    /// Writes the counts of an hour, as [`encode_content`] returns them. They are durable after a sync.
    ///
    /// # Errors
    /// If the file cannot be written. The log then ends where it ended before, unless that failed too: such an error has
    /// the kind [`io::ErrorKind::Other`].
    pub(super) fn write(&mut self, batch: Option<BatchId>, hour: u32, content: &[u8]) -> io::Result<()> {
        self.piece.clear();
        self.piece.resize(HEAD_LEN, 0);
        push_number(u64::from(hour), &mut self.piece);
        if let Some(BatchId { slot, number }) = batch {
            self.piece.push(BATCH);
            push_number(u64::from(slot), &mut self.piece);
            push_number(number, &mut self.piece);
        }
        self.piece.extend_from_slice(content);
        debug_assert!(self.piece.len() - HEAD_LEN <= PIECE_LEN_MAX, "a restart would take the piece for damaged");
        let len = (self.piece.len() - HEAD_LEN) as u32;
        let sum = xxh3_64(&self.piece[HEAD_LEN..]);
        self.piece[..4].copy_from_slice(&len.to_le_bytes());
        self.piece[4..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
        debug_assert!(
            take_piece(&mut &self.piece[..]).is_some_and(|piece| piece.hour == hour && piece.batch == batch),
            "a restart would read other counts"
        );
        if let Err(error) = (&*self.file).write_all(&self.piece) {
            // A piece cut in the middle would hide every piece that is appended after it.
            self.file.set_len(self.len).map_err(io::Error::other)?;
            return Err(error);
        }
        self.len += self.piece.len() as u64;
        self.is_dirty = true;
        Ok(())
    }

    /// Takes the file to sync, if it was written to since the last call. The sync needs no lock of the aggregator.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.is_dirty).then(|| Arc::clone(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dir: &Path, seq: u32) -> io::Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        super::read(dir, seq, |piece| pieces.push(piece)).map(|()| pieces)
    }

    #[test]
    fn what_was_written_whole_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let subject = |name: &str| Subject::of_name(name.as_bytes()).unwrap();
        let code = Code::parse(b"gone").unwrap();
        let mut log = Log::begin(dir.path(), 7).unwrap();
        let batch = Some(BatchId { slot: 3, number: 1 << 40 });
        for (hour, batch) in [(490_000, None), (490_001, batch)] {
            let mut tally = Tally::default();
            tally.add_visit(subject("abc"), true, b"");
            tally.add_visit(subject("abc"), false, b"a.example");
            tally.add_visit(Subject::All, false, b"");
            log.write(batch, hour, &encode_content(&[code], &tally)).unwrap();
        }
        assert_eq!(seqs(dir.path()).unwrap(), [7]);
        let whole = fs::read(path(dir.path(), 7)).unwrap();
        let first = HEAD_LEN + u32::from_le_bytes(whole[..4].try_into().unwrap()) as usize;
        let pieces = read(dir.path(), 7).unwrap();
        assert_eq!(pieces.iter().map(|piece| piece.hour).collect::<Vec<_>>(), [490_000, 490_001]);
        assert_eq!((pieces[0].batch, pieces[1].batch), (None, batch));
        assert_eq!(pieces[1].ended, [code]);
        let row = &pieces[1].rows.iter().find(|(of, _)| *of == subject("abc")).unwrap().1;
        assert_eq!((row.counts.total, row.counts.bots, row.hosts.len()), (2, 1, 1));
        // Cut off anywhere, all pieces before the cut are read; damaged anywhere, no wrong piece is read.
        for cut in 0..whole.len() {
            fs::write(path(dir.path(), 8), &whole[..cut]).unwrap();
            assert_eq!(read(dir.path(), 8).unwrap().len(), usize::from(cut >= first));
            let mut damaged = whole.clone();
            damaged[cut] ^= 4;
            fs::write(path(dir.path(), 8), damaged).unwrap();
            assert!(read(dir.path(), 8).unwrap().len() < 2);
        }
    }
}
