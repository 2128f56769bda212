//! The file of a sorted list: the positions of its links, in ascending order.
//!
//! An entry is a byte with its length, and the bytes of a [`LinkPosition`]. After the entries come the offsets of every
//! [`ENTRIES_PER_MARK`]th of them, so that two short reads find any entry.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::scratch::{ScratchFile, ScratchFolder};
use carom_model::query::{LinkPosition, PLACE_MS_LEN};
use carom_shards::CODE_KEY_LEN_MAX;

/// Entries from one offset to the next.
const ENTRIES_PER_MARK: u64 = if cfg!(test) { 3 } else { 256 };

/// Bytes of an offset.
const MARK_BYTES: usize = 8;

/// A sorted list on disk.
#[derive(Debug)]
pub(in crate::services::search) struct SortedFile {
    file: File,
    count: u64,
    /// The end of the entries.
    marks_at: u64,
}

/// A sorted list that is being written.
#[derive(Debug)]
pub(super) struct SortedFileWriter<'d> {
    out: ScratchFile<'d>,
    marks: Vec<u64>,
    count: u64,
}

impl<'d> SortedFileWriter<'d> {
    /// Begins a file in a folder.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn new(folder: &'d ScratchFolder) -> io::Result<SortedFileWriter<'d>> {
        Ok(SortedFileWriter { out: folder.create()?, marks: Vec::new(), count: 0 })
    }

    /// Appends the bytes of a position.
    ///
    /// # Errors
    /// As for [`ScratchFile::write`].
    pub(super) fn push(&mut self, place: &[u8]) -> io::Result<()> {
        if self.count.is_multiple_of(ENTRIES_PER_MARK) {
            self.marks.push(self.out.len());
        }
        self.count += 1;
        self.out.write(&[place.len() as u8])?;
        self.out.write(place)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As for [`ScratchFile::write`].
    pub(super) fn finish(mut self) -> io::Result<SortedFile> {
        let marks_at = self.out.len();
        for mark in &self.marks {
            self.out.write(&mark.to_be_bytes())?;
        }
        Ok(SortedFile { file: self.out.finish()?, count: self.count, marks_at })
    }
}

impl SortedFile {
    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.marks_at + self.count.div_ceil(ENTRIES_PER_MARK) * MARK_BYTES as u64
    }

    /// Reads the entries from a number on, at most `count` of them.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn read(&self, from: u64, count: u64) -> io::Result<Vec<LinkPosition>> {
        let to = from.saturating_add(count).min(self.count);
        if from >= to {
            return Ok(Vec::new());
        }
        let (first, end) = (from / ENTRIES_PER_MARK, to.div_ceil(ENTRIES_PER_MARK));
        let (at, end) = (self.mark(first)?, self.mark(end)?);
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let len = end.checked_sub(at).and_then(|len| usize::try_from(len).ok()).ok_or_else(damaged)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        let (mut rest, mut places) = (&bytes[..], Vec::new());
        for number in first * ENTRIES_PER_MARK..to {
            let (len, behind) = rest.split_first().ok_or_else(damaged)?;
            let (place, behind) = behind.split_at_checked(usize::from(*len)).ok_or_else(damaged)?;
            rest = behind;
            if number >= from {
                places.push(LinkPosition::from_bytes(place).ok_or_else(damaged)?);
            }
        }
        Ok(places)
    }

    /// Reads an offset; that of the end of the entries after the last one.
    fn mark(&self, number: u64) -> io::Result<u64> {
        if number >= self.count.div_ceil(ENTRIES_PER_MARK) {
            return Ok(self.marks_at);
        }
        let mut mark = [0; MARK_BYTES];
        self.file.read_exact_at(&mut mark, self.marks_at + number * MARK_BYTES as u64)?;
        Ok(u64::from_be_bytes(mark))
    }
}

const _: () = assert!(PLACE_MS_LEN + CODE_KEY_LEN_MAX <= u8::MAX as usize);
