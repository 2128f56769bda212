//! The file of a sorted list: the positions of its links, in ascending order.
//!
//! An entry is a byte with its length, and the bytes of a [`LinkPosition`]. After the entries come the offsets of every
//! [`ENTRIES_PER_MARK`]th of them, so that two short reads find any entry. A purge overwrites positions with zeros.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::scratch::{ScratchFile, ScratchFolder};
use crate::services::threads::priority::PacedLoop;
use carom_model::query::{LinkPosition, PLACE_MS_LEN};
use carom_shards::CODE_KEY_LEN_MAX;

/// Entries from one offset to the next.
const ENTRIES_PER_MARK: u64 = if cfg!(test) { 3 } else { 256 };

/// Longest entry.
const ENTRY_BYTES_MAX: usize = 1 + u8::MAX as usize;

/// Bytes that an erasure reads at once.
const ERASE_BYTES: u64 = if cfg!(test) { 256 } else { 1 << 20 };

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

    /// Reads the positions from a number on, of at most `count` entries. Leaves out those that were erased.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn read(&self, from: u64, count: u64) -> io::Result<Vec<LinkPosition>> {
        Ok(self.entries(from, count)?.into_iter().flatten().collect())
    }

    /// Reads the entries from a number on, at most `count` of them; `None` for those that were erased.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn entries(&self, from: u64, count: u64) -> io::Result<Vec<Option<LinkPosition>>> {
        let to = from.saturating_add(count).min(self.count);
        if from >= to {
            return Ok(Vec::new());
        }
        let (first, end) = (from / ENTRIES_PER_MARK, to.div_ceil(ENTRIES_PER_MARK));
        let (at, end) = (self.mark(first)?, self.mark(end)?);
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        // The disk may have damaged the offsets.
        let len_max = (to - from + 2 * ENTRIES_PER_MARK) * ENTRY_BYTES_MAX as u64;
        let is_possible = |len: &u64| end <= self.marks_at && *len <= len_max;
        let len = end.checked_sub(at).filter(is_possible).ok_or_else(damaged)?;
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let (mut rest, mut places) = (&bytes[..], Vec::new());
        for number in first * ENTRIES_PER_MARK..to {
            let place = first_place(rest).ok_or_else(damaged)?;
            rest = &rest[1 + place.len()..];
            if number >= from {
                places.push(LinkPosition::from_bytes(place));
            }
        }
        Ok(places)
    }

    /// Overwrites positions with zeros, which are no position. Reads the whole list, while `goes_on` is true.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn erase(&self, positions: &HashSet<Vec<u8>>, goes_on: impl Fn() -> bool) -> io::Result<()> {
        let (mut at, mut bytes, mut has_erased, mut paced) = (0, Vec::new(), false, PacedLoop::default());
        while at < self.marks_at && goes_on() {
            bytes.resize((self.marks_at - at).min(ERASE_BYTES) as usize, 0);
            self.file.read_exact_at(&mut bytes, at)?;
            let mut rest = &bytes[..];
            while let Some(place) = first_place(rest) {
                paced.step();
                if positions.contains(place) {
                    let place_at = at + (bytes.len() - rest.len()) as u64 + 1;
                    self.file.write_all_at(&[0; ENTRY_BYTES_MAX][..place.len()], place_at)?;
                    has_erased = true;
                }
                rest = &rest[1 + place.len()..];
            }
            let read = bytes.len() - rest.len();
            if read == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            at += read as u64;
        }
        if has_erased { self.file.sync_data() } else { Ok(()) }
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

/// Returns the bytes of the first position; `None` if it is not whole.
fn first_place(entries: &[u8]) -> Option<&[u8]> {
    let (len, rest) = entries.split_first()?;
    rest.get(..usize::from(*len))
}

const _: () = assert!(ENTRY_BYTES_MAX as u64 <= ERASE_BYTES);
const _: () = assert!(PLACE_MS_LEN + CODE_KEY_LEN_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::Code;

    #[test]
    fn damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ScratchFolder::new(dir.path());
        let mut writer = SortedFileWriter::new(&folder).unwrap();
        for number in 0..10 {
            writer.push(&LinkPosition::new(number, Code::parse(b"abc").unwrap()).to_bytes()).unwrap();
        }
        let sorted = writer.finish().unwrap();
        assert_eq!(sorted.read(4, 3).unwrap().len(), 3);
        let mark_at = |number: u64| sorted.marks_at + number * MARK_BYTES as u64;
        for damaged in [u64::MAX, sorted.marks_at + 1, 1 << 40] {
            for number in [1, 3] {
                let mut before = [0; MARK_BYTES];
                sorted.file.read_exact_at(&mut before, mark_at(number)).unwrap();
                sorted.file.write_all_at(&damaged.to_be_bytes(), mark_at(number)).unwrap();
                assert_eq!(sorted.read(4, 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
                sorted.file.write_all_at(&before, mark_at(number)).unwrap();
            }
        }
        sorted.file.write_all_at(&[0xff], sorted.marks_at / 2 - 5).unwrap();
        let _ = sorted.read(0, 10);
        assert_eq!(sorted.read(9, 1).unwrap().len(), 1);
    }
}
