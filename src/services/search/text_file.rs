//! The file of searchable texts, in the data directory. It is derived from the store, so its loss costs only time. The
//! section file ([`super::section_file`]) has the place and checksum of each piece.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use xxhash_rust::xxh3::xxh3_64;

use super::text_chunk::TextPart;
use crate::services::maintenance::disk_guard::DiskGuard;

/// Name of the file.
const NAME: &str = "search.texts";

/// Zeros that are written at once.
const ZEROS: usize = 64 * 1024;

/// A range of the file: its offset and its length, in bytes.
pub(super) type FileRange = (u64, u64);

/// The open text file. Shared by the threads of the catalog.
#[derive(Debug)]
pub(super) struct TextFile {
    file: File,
    dir: PathBuf,
    disk: DiskGuard,
    /// The offset at which the next texts are written.
    end: AtomicU64,
    /// Ranges that no section uses any more, but that the section file may still name.
    freed: Mutex<Vec<FileRange>>,
    /// True if texts that no section uses may be on disk until the next start, because the disk has refused their removal.
    has_left: AtomicBool,
}

/// The place of some texts in the file. Frees its range when it is dropped.
#[derive(Debug)]
pub(super) struct Extent {
    of: Arc<TextFile>,
    at: u64,
    len: usize,
    count: usize,
    sum: u64,
}

impl TextFile {
    /// Opens the file in a directory, or creates it there.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open(dir: &Path) -> io::Result<TextFile> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(NAME))?;
        let end = AtomicU64::new(file.metadata()?.len());
        let disk = DiskGuard::new(dir.to_owned());
        Ok(TextFile { file, dir: dir.to_owned(), disk, end, freed: Mutex::default(), has_left: AtomicBool::new(false) })
    }

    /// Removes the file from a directory, if it exists.
    pub(super) fn remove(dir: &Path) {
        // An error does no harm: without the file, searches read links.
        let _ = std::fs::remove_file(dir.join(NAME));
    }

    /// Returns the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends texts to the file.
    ///
    /// # Errors
    /// If the disk fails, or has too little space left for the store.
    pub(super) fn write(self: &Arc<TextFile>, part: &TextPart) -> io::Result<Extent> {
        let bytes = part.to_bytes();
        self.check_room(bytes.len() as u64)?;
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let sum = xxh3_64(&bytes);
        let extent = Extent { of: Arc::clone(self), at, len: bytes.len(), count: part.count(), sum };
        self.file.write_all_at(&bytes, at)?;
        Ok(extent)
    }

    /// Checks that `bytes` more leave enough space for the store.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if they do not.
    pub(super) fn check_room(&self, bytes: u64) -> io::Result<()> {
        self.disk.check_room(bytes)
    }

    /// Returns the place of texts that an earlier process wrote, as [`Extent::place`] gave it; `None` if the file
    /// cannot have it.
    pub(super) fn extent(self: &Arc<TextFile>, [at, len, count, sum]: [u64; 4]) -> Option<Extent> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.end.load(Ordering::Relaxed));
        let (len, count) = (usize::try_from(len).ok()?, usize::try_from(count).ok()?);
        (is_within && count <= len / 4).then(|| Extent { of: Arc::clone(self), at, len, count, sum })
    }

    /// Frees the space of everything except these ranges, which sections use.
    pub(super) fn keep_only(&self, mut used: Vec<FileRange>) {
        used.sort_unstable();
        let mut end = 0;
        for (at, len) in used {
            if at > end {
                self.punch(&[(end, at - end)]);
            }
            end = end.max(at + len);
        }
        match self.file.set_len(end) {
            Ok(()) => self.end.store(end, Ordering::Relaxed),
            Err(error) => self.note_left(&error),
        }
    }

    /// Notes that the disk has refused to remove texts from this file or from the section file.
    pub(super) fn note_left(&self, error: &io::Error) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            tracing::warn!(%error, "unused texts of the search index cannot be removed from the disk");
        }
    }

    /// True if texts that no section uses may be on disk until the next start.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Returns the ranges that have become unused since the last call.
    pub(super) fn take_freed(&self) -> Vec<FileRange> {
        std::mem::take(&mut *self.freed())
    }

    /// Frees the disk space of ranges, and removes their content.
    pub(super) fn punch(&self, ranges: &[FileRange]) {
        for (at, len) in ranges {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if fallocate(&self.file, flags, *at, *len).is_err() {
                self.overwrite(*at, *len);
            }
        }
    }

    /// Overwrites a range with zeros. On a file system without holes, its space stays in use until the file is created
    /// again.
    fn overwrite(&self, mut at: u64, len: u64) {
        let (end, zeros) = (at.saturating_add(len), [0; ZEROS]);
        while at < end {
            let some = &zeros[..(end - at).min(ZEROS as u64) as usize];
            if let Err(error) = self.file.write_all_at(some, at) {
                return self.note_left(&error);
            }
            at += some.len() as u64;
        }
    }

    fn freed(&self) -> MutexGuard<'_, Vec<FileRange>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Extent {
    /// Reads the texts.
    ///
    /// # Errors
    /// If the disk fails, or the checksum is wrong.
    pub(super) fn read(&self, part: &mut TextPart) -> io::Result<()> {
        part.fill(self.len, self.count, |room| {
            self.of.file.read_exact_at(room, self.at)?;
            if xxh3_64(room) == self.sum { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        })
    }

    /// Returns offset, length in bytes, number of links, and checksum.
    pub(super) fn place(&self) -> [u64; 4] {
        [self.at, self.len as u64, self.count as u64, self.sum]
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.of.freed().push((self.at, self.len as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_the_disk_keeps_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), [7; 100]).unwrap();
        let mut file = TextFile::open(dir.path()).unwrap();
        file.punch(&[(0, 10)]);
        assert!(!file.has_left());
        // A file that refuses writes, as a failing disk does.
        file.file = File::open(dir.path().join(NAME)).unwrap();
        file.punch(&[(10, 10)]);
        assert!(file.has_left());
    }

    #[test]
    fn texts_are_read_back_and_only_what_nobody_needs_goes() {
        let dir = tempfile::tempdir().unwrap();
        let file = Arc::new(TextFile::open(dir.path()).unwrap());
        let parts = ["a", "bb"].map(|text| {
            let mut part = TextPart::default();
            (0..1_000).for_each(|_| part.push(text.as_bytes()));
            part
        });
        let [first, second] = parts.each_ref().map(|part| file.write(part).unwrap());
        let mut read = TextPart::default();
        for (part, extent) in parts.iter().zip([&first, &second]) {
            extent.read(&mut read).unwrap();
            assert_eq!(read, *part);
        }
        drop(first);
        file.punch(&file.take_freed());
        second.read(&mut read).unwrap();
        assert_eq!(read, parts[1]);
        // The next process finds the texts, and detects damage.
        let place = second.place();
        drop((second, file));
        let file = Arc::new(TextFile::open(dir.path()).unwrap());
        let extent = file.extent(place).unwrap();
        file.keep_only(vec![(place[0], place[1])]);
        extent.read(&mut read).unwrap();
        assert_eq!(read, parts[1]);
        assert!(file.extent([place[0] + 1, place[1], place[2], place[3]]).is_none(), "it ends behind the file");
        file.file.write_all_at(b"x", place[0] + 7).unwrap();
        assert_eq!(extent.read(&mut read).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
