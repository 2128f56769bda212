//! The file format of an image: a header, and pages of one size, each with a checksum. No threads, no policy.
//!
//! A page has the same form as in memory ([`carom_shards::map::sealed`]); its checksum is in bytes that a map does not
//! read. So a page is read straight into its place and checked by itself, and pages are read in parallel. All records
//! of a page have one owner. The checksum covers the number of the page, the position of the image, and its assignment
//! of owners. A page at a wrong place, or from an older image, therefore counts as damaged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use carom_shards::map::sealed::{PAGE_BYTES, PAGE_HEAD_BYTES, PageWriter, Sealed};
use carom_shards::{CodeHasher, CoreCount, PageBuffer, SealedPage};

use crate::services::derived::sealed_file::{FileKind, NewFile, OpenFile, SUM_LEN, SealKey, Unusable};
use carom_store::links::LogPosition;

/// Name of the file in a data directory.
pub const FILE_NAME: &str = "links.image";

/// The format. Images of other versions are not read.
const KIND: FileKind = FileKind { magic: b"caromimg", version: 2, page_bytes: PAGE_BYTES };

/// Bytes of the shortest record: 8 for its head and at least one for its code, rounded up to a multiple of eight.
const RECORD_BYTES_MIN: u64 = 16;

const _: () = assert!(PAGE_HEAD_BYTES == SUM_LEN, "a page in memory has no other room for the checksum");

/// An image that is open for reading.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    /// The position of the change log up to which the image has every change of links, the hasher by which the records
    /// are sorted, and the cores among which they have owners. Each page has records of one owner.
    pub(in crate::services) key: SealKey,
    /// Number of records.
    pub(crate) records: u64,
    /// Number of pages.
    pub(crate) pages: u64,
}

impl Image {
    /// Opens an image and checks its header and length. Returns `None` if the file does not exist.
    pub(crate) fn open(path: &Path) -> Result<Option<Image>, Unusable> {
        let Some(OpenFile { file, len, numbers }) = KIND.open::<5>(path)? else { return Ok(None) };
        let [position, records, pages, seed, cores] = numbers;
        KIND.check_len(len, pages)?;
        // A core reserves memory for this many records.
        if records > len / RECORD_BYTES_MIN {
            let what = format!("its header claims {records} records, more than fit into the file");
            return Err(Unusable::Damaged(what));
        }
        Ok(Some(Image { file, key: SealKey::of_header(position, seed, cores)?, records, pages }))
    }

    /// Reads a page and checks it.
    pub(crate) fn read(&self, number: u64) -> Result<SealedPage, Unusable> {
        let no_memory = |_| Unusable::Io(io::ErrorKind::OutOfMemory.into());
        let mut page = PageBuffer::new().map_err(no_memory)?;
        let bytes = page.bytes_mut();
        self.file.read_exact_at(bytes, KIND.offset(number)).map_err(Unusable::Io)?;
        self.key.check(bytes, number)?;
        page.seal().ok_or_else(|| Unusable::of_page(number))
    }
}

/// A writer of an image, under a temporary name until it is whole.
#[derive(Debug)]
pub(super) struct ImageWriter {
    file: NewFile,
    key: SealKey,
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
        let (file, key) = (NewFile::begin(path)?, SealKey { position, hasher, cores });
        Ok(ImageWriter { file, key, page: PageWriter::default(), records: 0, pages: 0 })
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
        debug_assert!(self.records > self.pages, "a page has no record");
        self.key.seal(self.page.bytes_mut(), self.pages);
        self.file.write_at(self.page.bytes_mut(), KIND.offset(self.pages))?;
        self.pages += 1;
        self.page.clear();
        Ok(())
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Ends the image and renames it over the old one, durably. Returns its size in bytes.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.end_page()?;
        assert!(self.page.is_empty(), "the last page is not in the image");
        let (LogPosition(position), seed) = (self.key.position, self.key.hasher.seed());
        self.file.finish(KIND, &[position, self.records, self.pages, seed, self.key.cores.get() as u64])?;
        Ok(KIND.offset(self.pages))
    }

    /// Removes the unfinished image.
    pub(super) fn abandon(&self) {
        self.file.abandon();
    }
}
