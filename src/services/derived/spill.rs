//! Sorts much into parts with little memory: each part has a small buffer, and the rest of it is in a file without a
//! name. No threads, no policy.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::services::threads::priority::pause_if_due;
use carom_limits::IMAGE_BUFFER_BYTES;

/// Parts that grow piece by piece, and are taken back one by one.
#[derive(Debug)]
pub(in crate::services) struct Spill {
    file: File,
    /// Offset in the file at which the next buffer is written.
    end: u64,
    parts: Vec<SpilledPart>,
    /// Bytes of the longest piece.
    longest: usize,
}

/// A part: its buffer in memory, and the places of its other pieces in the file.
#[derive(Debug, Default)]
struct SpilledPart {
    buffer: Vec<u8>,
    extents: Vec<SpillExtent>,
}

/// Some bytes of a part in the file.
#[derive(Debug)]
struct SpillExtent {
    at: u64,
    len: usize,
    /// Checksum of the bytes, because the disk may return others than were written.
    sum: u64,
}

/// Returns the path of the file of parts that are sorted for the file at `path`, until it is unlinked.
pub(super) fn unsorted(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sort");
    PathBuf::from(name)
}

impl Spill {
    /// Begins with `parts` empty parts, for pieces of at most `longest` bytes. The file is created beside the one at
    /// `path`, and unlinked at once.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(in crate::services) fn new(path: &Path, parts: usize, longest: usize) -> io::Result<Spill> {
        let path = unsorted(path);
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Spill { file, end: 0, parts: (0..parts).map(|_| SpilledPart::default()).collect(), longest })
    }

    /// Returns the number of parts.
    pub(in crate::services) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Adds the piece that `append` appends to a part. Returns the number of bytes written to the file for it.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(in crate::services) fn push(&mut self, part: usize, append: impl FnOnce(&mut Vec<u8>)) -> io::Result<usize> {
        let part = &mut self.parts[part];
        if part.buffer.capacity() == 0 {
            // By itself, a buffer would grow to twice the size.
            part.buffer.reserve_exact(IMAGE_BUFFER_BYTES + self.longest);
        }
        append(&mut part.buffer);
        if part.buffer.len() < IMAGE_BUFFER_BYTES {
            return Ok(0);
        }
        let len = part.buffer.len();
        self.file.write_all_at(&part.buffer, self.end)?;
        part.extents.push(SpillExtent { at: self.end, len, sum: xxh3_64(&part.buffer) });
        part.buffer.clear();
        self.end += len as u64;
        Ok(len)
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(in crate::services) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Takes all pieces of a part, in the order in which they came. The part is empty then, and its memory is freed.
    ///
    /// # Errors
    /// If the disk cannot read them as they were written.
    pub(in crate::services) fn take(&mut self, part: usize) -> io::Result<Vec<u8>> {
        let part = std::mem::take(&mut self.parts[part]);
        let stored: usize = part.extents.iter().map(|extent| extent.len).sum();
        let mut bytes = Vec::with_capacity(stored + part.buffer.len());
        for SpillExtent { at, len, sum } in part.extents {
            pause_if_due();
            let from = bytes.len();
            bytes.resize(from + len, 0);
            self.file.read_exact_at(&mut bytes[from..], at)?;
            if xxh3_64(&bytes[from..]) != sum {
                return Err(io::Error::other("what was being sorted cannot be read back as it was written"));
            }
        }
        bytes.extend_from_slice(&part.buffer);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_in_order_and_the_file_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(&dir.path().join("sort"), 3, 8).unwrap();
        let mut written = 0;
        for number in 0..30_000_u64 {
            written += spill.push((number % 2) as usize, |bytes| bytes.extend(number.to_le_bytes())).unwrap();
        }
        assert!(written > 200_000, "most of it has been in the file");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        for part in 0..2 {
            let expected: Vec<u8> = (part..30_000).step_by(2).flat_map(u64::to_le_bytes).collect();
            assert_eq!(spill.take(part as usize).unwrap(), expected);
            assert!(spill.take(part as usize).unwrap().is_empty());
        }
        assert!(spill.take(2).unwrap().is_empty());
    }

    #[test]
    fn pieces_that_the_disk_has_changed_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(&dir.path().join("sort"), 1, 8).unwrap();
        while spill.push(0, |bytes| bytes.extend([7; 8])).unwrap() == 0 {}
        spill.file.write_all_at(b"x", spill.end / 2).unwrap();
        let error = spill.take(0).unwrap_err();
        assert!(error.to_string().contains("cannot be read back as it was written"), "{error}");
    }
}
