//! Temporary files in a folder of the data directory. A file loses its name as soon as it is created, so its space is free
//! again once the process closes it or ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::services::maintenance::disk_guard::DiskGuard;
use carom_limits::{IMAGE_SYNC_BYTES, IMAGE_SYNC_PAUSE, SORT_BYTES_MAX};

/// Name of the folder.
const NAME: &str = "sorted-lists";

/// Bytes that are written between two looks at the free space, and at once.
const CHUNK_BYTES: usize = if cfg!(test) { 1_024 } else { 1 << 20 };

/// The folder. It may be missing until the first file is created.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    path: PathBuf,
    disk: DiskGuard,
    /// Bytes to leave free on the disk, beside what all files leave for the store.
    left_free: AtomicU64,
}

/// A file without a name that is written from its beginning to its end.
#[derive(Debug)]
pub(super) struct ScratchFile<'d> {
    file: File,
    folder: &'d ScratchFolder,
    /// Bytes that are still to be written.
    buffer: Vec<u8>,
    len: u64,
    len_max: u64,
    /// Bytes that were written since the last sync.
    unsynced: usize,
}

impl ScratchFolder {
    /// Returns the folder in a data directory, without the files of an earlier process.
    pub(super) fn new(dir: &Path) -> ScratchFolder {
        let folder =
            ScratchFolder { path: dir.join(NAME), disk: DiskGuard::new(dir.to_owned()), left_free: AtomicU64::new(0) };
        folder.remove();
        folder
    }

    /// Removes the folder.
    pub(super) fn remove(&self) {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.path.display(), "cannot remove the folder of sorted lists");
            }
            _ => {}
        }
    }

    /// Lets the files leave `bytes` more free: a compaction of the whole store writes as many as the store has.
    pub(super) fn leave_room(&self, bytes: u64) {
        self.left_free.store(bytes, Ordering::Relaxed);
    }

    /// Checks that `bytes` more in files leave enough space for the store.
    ///
    /// # Errors
    /// As for [`DiskGuard::check_room`].
    pub(super) fn check_room(&self, bytes: u64) -> io::Result<()> {
        self.disk.check_room(self.left_free.load(Ordering::Relaxed).saturating_add(bytes))
    }

    /// Creates a file, which other users cannot read.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn create(&self) -> io::Result<ScratchFile<'_>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let path = self.path.join("new");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(ScratchFile { file, folder: self, buffer: Vec::new(), len: 0, len_max: SORT_BYTES_MAX, unsynced: 0 })
    }
}

impl ScratchFile<'_> {
    /// Appends bytes.
    ///
    /// # Errors
    /// If the disk fails or has too little space left for the store, or the file has become too large.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.buffer.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.len > self.len_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.folder.check_room(self.buffer.len() as u64)?;
        self.file.write_all(&self.buffer)?;
        self.unsynced += self.buffer.len();
        self.buffer.clear();
        if self.unsynced >= IMAGE_SYNC_BYTES {
            // The disk never gets much at once, because the writer of links waits for it, too.
            self.file.sync_data()?;
            self.unsynced = 0;
            std::thread::sleep(IMAGE_SYNC_PAUSE);
        }
        Ok(())
    }

    /// Returns the number of bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Ends the file, and returns it for reads.
    ///
    /// # Errors
    /// As for [`ScratchFile::write`].
    pub(super) fn finish(mut self) -> io::Result<File> {
        self.flush()?;
        Ok(self.file)
    }

    /// Lets the file have at most `bytes`, as on a disk without more room.
    #[cfg(test)]
    pub(super) fn limited(self, bytes: u64) -> Self {
        ScratchFile { len_max: bytes, ..self }
    }
}
