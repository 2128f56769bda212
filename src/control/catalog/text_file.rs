//! Where texts are kept that are looked through in searches: a file in the data directory that goes with the process. It is made of
//! what the store has, so nothing in it must outlive anything.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::part::Part;
use crate::limits::{DISK_FREE_MIN, DISK_FREE_MIN_SHARE};

/// Its name, for the moment in which it has one.
const NAME: &str = "search.texts";

/// The rest of the disk is for the store: a file system must have so many times the space free that stops creates.
const RESERVES: u64 = 4;

/// The file.
#[derive(Debug)]
pub(super) struct TextFile {
    file: File,
    /// Where the next texts go.
    end: AtomicU64,
}

/// Some texts in the file. Their space is given back when nobody needs them any more.
#[derive(Debug)]
pub(super) struct Extent {
    of: Arc<TextFile>,
    at: u64,
    len: usize,
    count: usize,
}

impl TextFile {
    /// Makes it, in a directory.
    ///
    /// # Errors
    /// Where the operating system does not.
    pub(super) fn new(dir: &Path) -> io::Result<TextFile> {
        let path = dir.join(NAME);
        let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(TextFile { file, end: AtomicU64::new(0) })
    }

    /// Writes texts.
    ///
    /// # Errors
    /// Where the disk fails, or has too little room for what is more important.
    pub(super) fn write(self: &Arc<TextFile>, part: &Part) -> io::Result<Extent> {
        let bytes = part.to_bytes();
        let stat = fstatvfs(&self.file)?;
        let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        if free < RESERVES * DISK_FREE_MIN.min(total / DISK_FREE_MIN_SHARE) + bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let extent = Extent { of: Arc::clone(self), at, len: bytes.len(), count: part.count() };
        self.file.write_all_at(&bytes, at)?;
        Ok(extent)
    }
}

impl Extent {
    /// Reads the texts.
    ///
    /// # Errors
    /// Where the disk fails.
    pub(super) fn read(&self, part: &mut Part) -> io::Result<()> {
        part.fill(self.len, self.count, |room| self.of.file.read_exact_at(room, self.at))
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // Where a file system has no holes, the space comes back with the end of the process.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.of.file, flags, self.at, self.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "left by a process that was killed").unwrap();
        let file = Arc::new(TextFile::new(dir.path()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let parts = ["a", "bb"].map(|text| {
            let mut part = Part::default();
            (0..1_000).for_each(|_| part.push(text.as_bytes()));
            part
        });
        let extents = parts.each_ref().map(|part| file.write(part).unwrap());
        let [first, second] = extents;
        let mut read = Part::default();
        for (part, extent) in parts.iter().zip([&first, &second]) {
            extent.read(&mut read).unwrap();
            assert_eq!(read, *part);
        }
        drop(first);
        second.read(&mut read).unwrap();
        assert_eq!(read, parts[1], "only what nobody needs goes");
    }
}
