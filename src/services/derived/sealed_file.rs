//! The frame of a file that is derived from the store: a header, pages with checksums, and a temporary name until it is
//! whole. No threads, no policy.
//!
//! The writer of such a file syncs the store before it calls [`NewFile::finish`]. Otherwise a power failure could undo
//! commits that the file has.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use carom_shards::{CodeHasher, CoreCount};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::services::maintenance::disk_guard::DiskGuard;
use carom_limits::{IMAGE_SYNC_BYTES, IMAGE_SYNC_PAUSE};
use carom_store::links::{LogPosition, StoreError};

/// Bytes of the header, at the start of the file.
const HEADER_LEN: usize = 4096;

/// Bytes of a checksum, at the start of each page.
pub(in crate::services) const SUM_LEN: usize = 8;

/// Reasons why a file cannot be used. No data is lost then, because the store has everything.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The operating system cannot read it.
    Io(io::Error),
    /// The file was written by another version of the program.
    OtherVersion {
        /// The version of the file.
        found: u64,
        /// The version that this program reads.
        expected: u64,
    },
    /// A checksum or a number is wrong.
    Damaged(String),
}

impl Unusable {
    /// Returns the reason for a page that is not as it was written.
    pub(in crate::services) fn of_page(number: u64) -> Unusable {
        Unusable::Damaged(format!("its page {number} is damaged"))
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Io(error) => write!(f, "it cannot be read: {error}"),
            Unusable::OtherVersion { found, expected } => write!(f, "found version {found}, expected {expected}"),
            Unusable::Damaged(what) => f.write_str(what),
        }
    }
}

/// Reasons why no file was written.
#[derive(Debug)]
pub(in crate::services) enum NotWritten {
    /// The thread is stopping.
    Stopped,
    /// The store is damaged. The start has reported it, and files follow once it is repaired.
    Damaged,
    /// The disk or the store failed.
    Failed(String),
}

impl std::fmt::Display for NotWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotWritten::Stopped => "it was stopped",
            NotWritten::Damaged => "parts of the store cannot be read",
            NotWritten::Failed(error) => error,
        })
    }
}

impl From<io::Error> for NotWritten {
    fn from(error: io::Error) -> NotWritten {
        NotWritten::Failed(error.to_string())
    }
}

impl From<StoreError> for NotWritten {
    fn from(error: StoreError) -> NotWritten {
        NotWritten::Failed(error.to_string())
    }
}

/// A kind of file: a header, and pages of one size. Files of other versions are not read.
#[derive(Clone, Copy, Debug)]
pub(in crate::services) struct FileKind {
    /// The mark at the start of the file.
    pub(in crate::services) magic: &'static [u8; 8],
    /// The version of the format.
    pub(in crate::services) version: u64,
    /// Bytes of a page.
    pub(in crate::services) page_bytes: usize,
}

/// A file that is open for reading, with its header.
#[derive(Debug)]
pub(in crate::services) struct OpenFile<const N: usize> {
    /// The file, open for reading.
    pub(in crate::services) file: File,
    /// Bytes of the file.
    pub(in crate::services) len: u64,
    /// The numbers in the header.
    pub(in crate::services) numbers: [u64; N],
}

impl FileKind {
    /// Returns the offset of a page in the file, which is also the length of a file with so many pages.
    pub(in crate::services) fn offset(self, page: u64) -> u64 {
        HEADER_LEN as u64 + page * self.page_bytes as u64
    }

    /// Checks that a file of `len` bytes has as many pages as its header says.
    ///
    /// # Errors
    /// If it has more or fewer.
    pub(in crate::services) fn check_len(self, len: u64, pages: u64) -> Result<(), Unusable> {
        let wanted = pages.checked_mul(self.page_bytes as u64).and_then(|bytes| bytes.checked_add(HEADER_LEN as u64));
        if wanted == Some(len) {
            Ok(())
        } else {
            Err(Unusable::Damaged(format!("its length of {len} bytes does not match {pages} pages")))
        }
    }

    /// Opens a file and reads its header. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read, or its header is wrong.
    pub(in crate::services) fn open<const N: usize>(self, path: &Path) -> Result<Option<OpenFile<N>>, Unusable> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Unusable::Io(error)),
        };
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0).map_err(Unusable::Io)?;
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("it is inside the header"));
        if &header[..8] != self.magic || number(HEADER_LEN - 8) != xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0) {
            return Err(Unusable::Damaged("its header is damaged".to_owned()));
        }
        if number(8) != self.version {
            return Err(Unusable::OtherVersion { found: number(8), expected: self.version });
        }
        let numbers = std::array::from_fn(|index| number(16 + 8 * index));
        let len = file.metadata().map_err(Unusable::Io)?.len();
        Ok(Some(OpenFile { file, len, numbers }))
    }

    /// Returns a header with these numbers.
    fn header(self, numbers: &[u64]) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(self.magic);
        let numbers = std::iter::once(&self.version).chain(numbers);
        for (place, number) in header[8..].chunks_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0);
        header[HEADER_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        header
    }
}

/// The values that every page checksum of a file covers, besides the number of the page. So a page at a wrong place, or
/// from an older file, counts as damaged.
#[derive(Clone, Copy, Debug)]
pub(in crate::services) struct SealKey {
    /// The position of the change log up to which the file has every change of links.
    pub(in crate::services) position: LogPosition,
    /// The hasher that decides the owners of codes.
    pub(in crate::services) hasher: CodeHasher,
    /// Number of cores among which codes have owners.
    pub(in crate::services) cores: CoreCount,
}

impl SealKey {
    /// Returns the key in the numbers of a header.
    ///
    /// # Errors
    /// If the number of cores is out of range.
    pub(in crate::services) fn of_header(position: u64, seed: u64, cores: u64) -> Result<SealKey, Unusable> {
        let damaged = || Unusable::Damaged(format!("its header names an invalid number of cores: {cores}"));
        let cores = CoreCount::new(cores as usize).ok_or_else(damaged)?;
        Ok(SealKey { position: LogPosition(position), hasher: CodeHasher::new(seed), cores })
    }

    /// Writes the checksum of a page into its first bytes.
    pub(in crate::services) fn seal(self, page: &mut [u8], number: u64) {
        let (sum, content) = page.split_at_mut(SUM_LEN);
        sum.copy_from_slice(&self.checksum(content, number).to_le_bytes());
    }

    /// Checks that a page is as [`SealKey::seal`] left it.
    ///
    /// # Errors
    /// If the checksum is another one.
    pub(in crate::services) fn check(self, page: &[u8], number: u64) -> Result<(), Unusable> {
        let (sum, content) = page.split_at(SUM_LEN);
        if sum == self.checksum(content, number).to_le_bytes() { Ok(()) } else { Err(Unusable::of_page(number)) }
    }

    fn checksum(self, content: &[u8], page: u64) -> u64 {
        let LogPosition(position) = self.position;
        let owners = xxh3_64_with_seed(&(self.cores.get() as u64).to_le_bytes(), self.hasher.seed());
        xxh3_64_with_seed(content, position.rotate_left(32) ^ owners ^ page)
    }
}

/// A file under a temporary name until it is whole.
#[derive(Debug)]
pub(in crate::services) struct NewFile {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
}

/// Returns the path of an unfinished file.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

impl NewFile {
    /// Creates an empty file that [`NewFile::finish`] will rename to `path`. Readable only by the user of the process.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(in crate::services) fn begin(path: &Path) -> io::Result<NewFile> {
        let unfinished = unfinished(path);
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).read(true).write(true).mode(0o600).open(&unfinished)?;
        Ok(NewFile { file, path: path.to_owned(), unfinished })
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(in crate::services) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(in crate::services) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Returns another handle on the file, which can also be read.
    ///
    /// # Errors
    /// If the operating system gives none.
    pub(in crate::services) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Writes the header, and renames the file over the old one, durably.
    ///
    /// # Errors
    /// If the disk refuses. The file may have its name or not.
    pub(in crate::services) fn finish(&self, kind: FileKind, numbers: &[u64]) -> io::Result<()> {
        self.file.write_all_at(&kind.header(numbers), 0)?;
        self.file.sync_all()?;
        std::fs::rename(&self.unfinished, &self.path)?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }

    /// Removes the unfinished file.
    pub(in crate::services) fn abandon(&self) {
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

/// Removes a file that a node does not use, if it exists. Returns true if it did. The log has the reason for a failure.
pub(in crate::services) fn remove_unused(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => return true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("cannot remove {}: {error}", path.display()),
    }
    false
}

/// The pace of a writer. It counts the bytes since the last wait for the disk.
#[derive(Debug)]
pub(in crate::services) struct WritePace<'a> {
    disk: &'a DiskGuard,
    stop: &'a AtomicBool,
    /// A purge that holds the file back.
    held: Option<&'a AtomicBool>,
    /// True if a node serves meanwhile, so that the disk is left to it in between.
    pauses: bool,
    written: usize,
}

impl<'a> WritePace<'a> {
    /// Returns the pace of a writer that ends with `stop`, on the disk of a guard. It `pauses` for a node that serves
    /// meanwhile.
    pub(in crate::services) fn new(disk: &'a DiskGuard, stop: &'a AtomicBool, pauses: bool) -> WritePace<'a> {
        WritePace { disk, stop, held: None, pauses, written: 0 }
    }

    /// Ends the writer also while a purge holds the file back.
    #[must_use]
    pub(in crate::services) fn held_by(self, held: &'a AtomicBool) -> WritePace<'a> {
        WritePace { held: Some(held), ..self }
    }

    /// Notes that bytes were written. Waits for the disk once they are many, so that it never gets much at once.
    ///
    /// # Errors
    /// If the disk is nearly full or refuses, or the thread is stopping.
    pub(in crate::services) fn wrote(
        &mut self,
        bytes: usize,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), NotWritten> {
        self.written += bytes;
        if self.written >= IMAGE_SYNC_BYTES {
            self.written = 0;
            sync()?;
            // Other programs write, too. The reserve is for the store, which does not survive a full disk.
            if self.disk.space().is_ok_and(|space| space.free < space.reserve()) {
                return Err(NotWritten::Failed("the disk is nearly full".to_owned()));
            }
            if self.pauses {
                std::thread::park_timeout(IMAGE_SYNC_PAUSE);
            }
        }
        let must_end = std::iter::once(self.stop).chain(self.held).any(|end| end.load(Ordering::Relaxed));
        if must_end { Err(NotWritten::Stopped) } else { Ok(()) }
    }
}
