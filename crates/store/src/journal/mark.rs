//! The synced mark: a small file beside the journals that records how much of them has been synced.
//!
//! Before a sync begins, it notes the end of the whole batches in the youngest journal. After the sync has succeeded,
//! it moves the mark there. So the mark covers synced bytes only. Bytes below it belong to writes that may have been
//! acknowledged: if they are unreadable, they are damaged. Bytes above it were never acknowledged while the mark was
//! current, so a broken batch there is a write that a crash cut off.
//!
//! Moving the mark costs a write of a few bytes to the page cache, without a sync. After a crash of the process alone,
//! the mark is exact. After a power failure, the disk may hold a mark that is some moments old. An old mark covers less
//! than it could, and never too much. [`SyncedMark::flush`] keeps it fresh.
//!
//! A rotation needs no special care: the library syncs a journal whole before it creates the next one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::{numbered, path_of, whole_batches_from};

/// The name of the file in the directory of the store.
const NAME: &str = "synced.mark";

const MAGIC: &[u8; 8] = b"crmsync1";

/// Length of the file in bytes: magic, journal, length, sequence number, and a checksum over these.
const LEN: usize = 8 + 8 + 8 + 8 + 8;

/// Scratch space above this size is released, in bytes.
const BUFFER_MAX: usize = 1024 * 1024;

/// A position in the journals. Everything before it is on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct JournalPosition {
    /// The number of a journal. All journals with lower numbers are synced whole.
    pub journal: u64,
    /// The offset in that journal, in bytes.
    pub len: u64,
    /// The sequence number of the last batch before the position; 0 if unknown.
    pub seqno: u64,
}

impl JournalPosition {
    fn encode(self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..8].copy_from_slice(MAGIC);
        for (field, number) in out[8..].chunks_exact_mut(8).zip([self.journal, self.len, self.seqno]) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let sum = xxh3_64(&out[..LEN - 8]);
        out[LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        debug_assert_eq!(JournalPosition::decode(&out), Some(self), "a restart would take the mark for damaged");
        out
    }

    fn decode(bytes: &[u8]) -> Option<JournalPosition> {
        let (body, sum) = bytes.split_at_checked(LEN - 8)?;
        let number = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let is_whole = body.starts_with(MAGIC) && *sum == xxh3_64(body).to_le_bytes();
        is_whole.then_some(JournalPosition { journal: number(8)?, len: number(16)?, seqno: number(24)? })
    }
}

/// Reads the mark of a store; `None` if it is missing or damaged, which has the same effect as an old mark.
///
/// # Errors
/// The error of reading an existing file.
pub fn read(dir: &Path) -> io::Result<Option<JournalPosition>> {
    let path = dir.join(NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mark = JournalPosition::decode(&bytes);
    if mark.is_none() {
        tracing::warn!(
            "the sync position in {} is damaged; damage at the end of the journal would be taken for an unfinished write",
            path.display()
        );
    }
    Ok(mark)
}

/// Replaces the mark durably.
///
/// # Errors
/// The error of writing it.
pub(super) fn write(dir: &Path, position: JournalPosition) -> io::Result<()> {
    let fresh = dir.join(NAME).with_extension("fresh");
    let mut file = File::create(&fresh)?;
    file.write_all(&position.encode())?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(NAME))?;
    File::open(dir)?.sync_all()
}

/// The synced mark of an open store, shared by the threads that sync.
#[derive(Debug)]
pub struct SyncedMark {
    dir: PathBuf,
    file: File,
    state: Mutex<MarkState>,
}

#[derive(Debug)]
struct MarkState {
    /// The end of the whole batches seen in the youngest journal.
    seen: JournalPosition,
    journal: File,
    buffer: Vec<u8>,
    marked: JournalPosition,
    is_flushed: bool,
    /// True if the mark could not be moved, and stays at its position.
    failed: bool,
}

impl SyncedMark {
    /// Returns the directory of the journals.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the mark of a store whose journals were checked, or creates it.
    ///
    /// # Errors
    /// The error of opening the mark or the youngest journal.
    pub fn open(dir: &Path) -> io::Result<SyncedMark> {
        let (number, path) = numbered(dir)?.pop().ok_or_else(|| io::Error::other("the store has no journal"))?;
        let mark = match read(dir)? {
            Some(mark) => mark,
            None => {
                write(dir, JournalPosition::default())?;
                JournalPosition::default()
            }
        };
        let start = JournalPosition { journal: number, ..JournalPosition::default() };
        let state = MarkState {
            seen: if mark.journal == number { mark } else { start },
            journal: File::open(path)?,
            buffer: Vec::new(),
            marked: mark,
            is_flushed: true,
            failed: false,
        };
        let file = File::options().write(true).open(dir.join(NAME))?;
        Ok(SyncedMark { dir: dir.to_owned(), file, state: Mutex::new(state) })
    }

    /// Runs a sync of the journals. If it succeeds, moves the mark to the end of what was written before it began.
    ///
    /// # Errors
    /// The error of the sync. If the mark itself cannot be moved, it stays at its position.
    pub fn run_sync<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let seen = self.written_position();
        sync()?;
        if let Some(seen) = seen {
            self.move_to(seen);
        }
        Ok(())
    }

    /// Makes the mark durable, if it has moved since the last call.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn flush(&self) -> io::Result<()> {
        if std::mem::replace(&mut self.lock().is_flushed, true) {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn lock(&self) -> MutexGuard<'_, MarkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current end of the whole batches of the youngest journal.
    fn written_position(&self) -> Option<JournalPosition> {
        let mut state = self.lock();
        if state.failed {
            return None;
        }
        match state.advance(&self.dir) {
            Ok(()) => Some(state.seen),
            Err(error) => {
                state.fail(&error);
                None
            }
        }
    }

    fn move_to(&self, position: JournalPosition) {
        let mut state = self.lock();
        // A sync of another thread may have begun later and ended earlier.
        if position <= state.marked || state.failed {
            return;
        }
        match self.file.write_all_at(&position.encode(), 0) {
            Ok(()) => {
                assert!(position <= state.seen, "the mark covers bytes that were not seen whole before the sync");
                (state.marked, state.is_flushed) = (position, false);
            }
            Err(error) => state.fail(&error),
        }
    }
}

impl MarkState {
    /// Advances to the end of the whole batches of the youngest journal.
    fn advance(&mut self, dir: &Path) -> io::Result<()> {
        loop {
            if let Some(whole) = whole_batches_from(&self.journal, self.seen.len, &mut self.buffer)? {
                assert!(whole.end > self.seen.len, "the mark would move back");
                (self.seen.len, self.seen.seqno) = (whole.end, whole.seqno);
            }
            if self.buffer.len() > BUFFER_MAX {
                self.buffer = Vec::new();
            }
            let next = self.seen.journal + 1;
            self.journal = match File::open(path_of(dir, next)) {
                Ok(journal) => journal,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            self.seen = JournalPosition { journal: next, len: 0, seqno: self.seen.seqno };
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = true;
        tracing::warn!("the sync position of the journal can no longer be updated ({error}); check the disk");
    }
}

impl Drop for SyncedMark {
    fn drop(&mut self) {
        // On failure the mark on disk is an old one, which is safe.
        let _ = self.flush();
    }
}
