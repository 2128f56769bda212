//! The file format of an image: a header, and pages of one size, each with a checksum. No threads, no policy.
//!
//! A page has the same form as in memory ([`carom_shards::map::sealed`]); its checksum is in bytes that a map does not
//! read. So a page is read straight into its place and checked by itself, and pages are read in parallel. All records
//! of a page have one owner among [`Image::cores`]. The checksum covers the number of the page, the position of the
//! image, and its assignment of owners. A page at a wrong place, or from an older image, therefore counts as damaged.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use carom_shards::map::sealed::{PAGE_BYTES, PAGE_HEAD_BYTES, PageWriter, Sealed};
use carom_shards::{CodeHasher, CoreCount, PageBuffer, SealedPage};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use carom_store::links::LogPosition;

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "links.image";

const MAGIC: &[u8; 8] = b"caromimg";

/// Version of the format. Images of other versions are not read.
const VERSION: u32 = 2;

const HEADER_LEN: usize = 4096;

/// Bytes of the shortest record: 8 for its head and at least one for its code, rounded up to a multiple of eight.
const RECORD_BYTES_MIN: u64 = 16;

/// Reasons why an image cannot be used. No data is lost then, because the store has everything.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The operating system cannot read it.
    Io(io::Error),
    /// The file was written by another version of the program.
    OtherVersion(u32),
    /// A checksum or a number is wrong.
    Damaged(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Io(error) => write!(f, "it cannot be read: {error}"),
            Unusable::OtherVersion(version) => write!(f, "found version {version}, expected {VERSION}"),
            Unusable::Damaged(what) => f.write_str(what),
        }
    }
}

/// An image that is open for reading.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    /// The position of the change log up to which the image has every change of links.
    pub(crate) position: LogPosition,
    /// Number of records.
    pub(crate) records: u64,
    /// Number of pages.
    pub(crate) pages: u64,
    /// The hasher by which the records are sorted.
    pub(crate) hasher: CodeHasher,
    /// Number of cores among which the records have owners. Each page has records of one owner.
    pub(crate) cores: CoreCount,
}

impl Image {
    /// Opens an image and checks its header and length. Returns `None` if the file does not exist.
    pub(crate) fn open(path: &Path) -> Result<Option<Image>, Unusable> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Unusable::Io(error)),
        };
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0).map_err(Unusable::Io)?;
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("it is inside the header"));
        if &header[..8] != MAGIC || number(HEADER_LEN - 8) != xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0) {
            return Err(Unusable::Damaged("its header is damaged".to_owned()));
        }
        if number(8) != u64::from(VERSION) {
            return Err(Unusable::OtherVersion(number(8) as u32));
        }
        let damaged = |what: String| Unusable::Damaged(what);
        let (records, pages) = (number(24), number(32));
        let wanted = pages.checked_mul(PAGE_BYTES as u64).and_then(|bytes| bytes.checked_add(HEADER_LEN as u64));
        let len = file.metadata().map_err(Unusable::Io)?.len();
        if wanted != Some(len) {
            return Err(damaged(format!("its length of {len} bytes does not match {pages} pages")));
        }
        // A core reserves memory for this many records.
        if records > len / RECORD_BYTES_MIN {
            return Err(damaged(format!("its header claims {records} records, more than fit into the file")));
        }
        Ok(Some(Image {
            position: LogPosition(number(16)),
            records,
            pages,
            hasher: CodeHasher::new(number(40)),
            cores: CoreCount::new(number(48) as usize)
                .ok_or_else(|| damaged(format!("its header names an invalid number of cores: {}", number(48))))?,
            file,
        }))
    }

    /// Reads a page and checks it.
    pub(crate) fn read(&self, number: u64) -> Result<SealedPage, Unusable> {
        let no_memory = |_| Unusable::Io(io::ErrorKind::OutOfMemory.into());
        let mut page = PageBuffer::new().map_err(no_memory)?;
        let bytes = page.bytes_mut();
        self.file.read_exact_at(bytes, offset(number)).map_err(Unusable::Io)?;
        let (head, records) = bytes.split_at(PAGE_HEAD_BYTES);
        let owners = owners(self.hasher, self.cores);
        let is_right = head == checksum(records, self.position, owners, number).to_le_bytes();
        let sealed = is_right.then(|| page.seal()).flatten();
        sealed.ok_or_else(|| Unusable::Damaged(format!("its page {number} is damaged")))
    }
}

/// Returns the offset of a page in the file.
fn offset(page: u64) -> u64 {
    HEADER_LEN as u64 + page * PAGE_BYTES as u64
}

/// Returns a hash of what decides the owners in an image: its hash seed and its number of cores.
fn owners(hasher: CodeHasher, cores: CoreCount) -> u64 {
    xxh3_64_with_seed(&(cores.get() as u64).to_le_bytes(), hasher.seed())
}

fn checksum(records: &[u8], LogPosition(position): LogPosition, owners: u64, page: u64) -> u64 {
    xxh3_64_with_seed(records, position.rotate_left(32) ^ owners ^ page)
}

/// Returns the path of an unfinished image.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("image.new")
}

/// A writer of an image, under a temporary name until it is whole.
#[derive(Debug)]
pub(super) struct ImageWriter {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
    position: LogPosition,
    hasher: CodeHasher,
    cores: CoreCount,
    page: PageWriter,
    records: u64,
    pages: u64,
}

impl ImageWriter {
    /// Begins an image that will have every change up to a position.
    pub(super) fn begin(
        path: &Path,
        position: LogPosition,
        hasher: CodeHasher,
        cores: CoreCount,
    ) -> io::Result<ImageWriter> {
        let unfinished = unfinished(path);
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        let (path, page) = (path.to_owned(), PageWriter::default());
        Ok(ImageWriter { file, path, unfinished, position, hasher, cores, page, records: 0, pages: 0 })
    }

    /// Adds a record. Returns the number of bytes written to the file for it.
    pub(super) fn push(&mut self, record: Sealed<'_>) -> io::Result<usize> {
        self.records += 1;
        if self.page.push(record) {
            return Ok(0);
        }
        self.end_page()?;
        if self.page.push(record) { Ok(PAGE_BYTES) } else { Err(io::Error::other("a record is longer than a page")) }
    }

    /// Ends the page, if it has records. The next records may have another owner.
    pub(super) fn end_page(&mut self) -> io::Result<()> {
        if self.page.is_empty() {
            return Ok(());
        }
        let (head, records) = self.page.bytes_mut().split_at_mut(PAGE_HEAD_BYTES);
        let owners = owners(self.hasher, self.cores);
        head.copy_from_slice(&checksum(records, self.position, owners, self.pages).to_le_bytes());
        debug_assert!(self.records > self.pages, "a page has no record");
        self.file.write_all_at(self.page.bytes_mut(), offset(self.pages))?;
        self.pages += 1;
        self.page.clear();
        Ok(())
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.sync_data()
    }

    /// Ends the image and renames it over the old one, durably. Returns its size in bytes.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.end_page()?;
        assert!(self.page.is_empty(), "the last page is not in the image");
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(MAGIC);
        let (seed, cores) = (self.hasher.seed(), self.cores.get() as u64);
        let numbers = [u64::from(VERSION), self.position.0, self.records, self.pages, seed, cores];
        for (place, number) in header[8..].chunks_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0);
        header[HEADER_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&header, 0)?;
        self.file.sync_all()?;
        std::fs::rename(&self.unfinished, &self.path)?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Ok(offset(self.pages))
    }

    /// Removes the unfinished image.
    pub(super) fn abandon(self) {
        let _ = std::fs::remove_file(&self.unfinished);
    }
}
