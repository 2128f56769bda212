//! An external merge sort of links by their sort keys, in bounded memory.
//!
//! Links fill a buffer. A full buffer is sorted and appended to a file as a *run*. At the end, one pass merges all runs
//! into a [`SortedFile`]. All runs are in one file, whose size is bounded, so their number is bounded as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::scratch::{ScratchFile, ScratchFolder};
use super::sorted_file::{SortedFile, SortedFileWriter};
use crate::services::threads::priority::PacedLoop;
use carom_limits::{SORT_AHEAD_BYTES, SORT_RUN_BYTES};
use carom_model::query::{LinkPosition, PLACE_MS_LEN, SORT_KEY_LEN_MAX};
use carom_shards::CODE_KEY_LEN_MAX;

/// Bytes of a run.
const RUN_BYTES: usize = if cfg!(test) { 2_048 } else { SORT_RUN_BYTES };

/// Bytes that a merge reads ahead from all runs together.
const AHEAD_BYTES: usize = if cfg!(test) { 1_024 } else { SORT_AHEAD_BYTES };

/// Bytes before the key of a record: the lengths of its key and of its position.
const HEAD_BYTES: usize = 3;

/// Longest record.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + SORT_KEY_LEN_MAX + PLACE_MS_LEN + CODE_KEY_LEN_MAX;

/// Most bytes that a merge reads ahead from one run.
const AHEAD_OF_RUN_MAX: usize = 1 << 20;

/// The links of a list that is being sorted.
#[derive(Debug)]
pub(in crate::services::search) struct ExternalSorter<'d> {
    folder: &'d ScratchFolder,
    /// The records of the next run, and where each of them begins.
    records: Vec<u8>,
    starts: Vec<u32>,
    runs: ScratchFile<'d>,
    ranges: Vec<Range<u64>>,
    count: u64,
}

impl<'d> ExternalSorter<'d> {
    /// Begins a sort with files in a folder.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn new(folder: &'d ScratchFolder) -> io::Result<ExternalSorter<'d>> {
        let runs = folder.create()?;
        Ok(ExternalSorter { folder, records: Vec::new(), starts: Vec::new(), runs, ranges: Vec::new(), count: 0 })
    }

    /// Adds a link. Of the key, only the first [`SORT_KEY_LEN_MAX`] bytes count.
    ///
    /// # Errors
    /// As for [`ScratchFile::write`].
    pub(in crate::services::search) fn push(&mut self, key: &[u8], place: LinkPosition) -> io::Result<()> {
        let (key, place) = (&key[..key.len().min(SORT_KEY_LEN_MAX)], place.to_bytes());
        if self.records.len() + RECORD_BYTES_MAX > RUN_BYTES {
            self.write_run()?;
        }
        self.starts.push(self.records.len() as u32);
        self.records.extend_from_slice(&(key.len() as u16).to_be_bytes());
        self.records.push(place.len() as u8);
        self.records.extend_from_slice(key);
        self.records.extend_from_slice(&place);
        self.count += 1;
        Ok(())
    }

    /// Sorts the buffer, and appends it to the runs.
    fn write_run(&mut self) -> io::Result<()> {
        let (from, mut paced, records) = (self.runs.len(), PacedLoop::default(), &self.records);
        self.starts.sort_unstable_by(|one, other| {
            paced.step();
            sort_fields(records, *one).cmp(&sort_fields(records, *other))
        });
        for start in &self.starts {
            paced.step();
            let (key, place) = sort_fields(records, *start);
            let start = *start as usize;
            self.runs.write(&records[start..start + HEAD_BYTES + key.len() + place.len()])?;
        }
        self.ranges.push(from..self.runs.len());
        self.records.clear();
        self.starts.clear();
        Ok(())
    }

    /// Merges the runs. Calls `goes_on` with the share of the links that are merged, now and then, and returns `None` if it
    /// returns false.
    ///
    /// # Errors
    /// As for [`ScratchFile::write`], or if a run cannot be read back.
    pub(in crate::services::search) fn merge(
        mut self,
        mut goes_on: impl FnMut(f64) -> bool,
    ) -> io::Result<Option<SortedFile>> {
        self.write_run()?;
        let ExternalSorter { folder, records, starts, runs, ranges, count } = self;
        drop((records, starts));
        let (file, ahead) = (runs.finish()?, (AHEAD_BYTES / ranges.len()).clamp(RECORD_BYTES_MAX, AHEAD_OF_RUN_MAX));
        let mut readers: Vec<RunReader> = ranges.into_iter().map(|range| RunReader::new(range, ahead)).collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (run, reader) in readers.iter_mut().enumerate() {
            heads.extend(reader.next(&file)?.map(|(key, place)| Reverse(MergeHead { key, place, run })));
        }
        let (mut sorted, mut paced) = (SortedFileWriter::new(folder)?, PacedLoop::default());
        let mut merged: u64 = 0;
        while let Some(Reverse(MergeHead { place, run, .. })) = heads.pop() {
            paced.step();
            sorted.push(&place)?;
            heads.extend(readers[run].next(&file)?.map(|(key, place)| Reverse(MergeHead { key, place, run })));
            merged += 1;
            if merged.is_multiple_of(LINKS_PER_LOOK) && !goes_on(merged as f64 / count as f64) {
                return Ok(None);
            }
        }
        sorted.finish().map(Some)
    }

    /// Lets the runs have at most `bytes`, as on a disk without more room.
    #[cfg(test)]
    pub(super) fn limited(self, bytes: u64) -> Self {
        ExternalSorter { runs: self.runs.limited(bytes), ..self }
    }
}

/// Merged links between two calls of `goes_on`.
const LINKS_PER_LOOK: u64 = 64;

/// Returns the key and the position of the record at an offset of the buffer.
fn sort_fields(records: &[u8], start: u32) -> (&[u8], &[u8]) {
    fields(&records[start as usize..]).expect("the buffer has whole records")
}

/// Splits the first record into its key and its position; `None` if it is not whole.
fn fields(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([high, low, place_len], rest) = records.split_first_chunk::<HEAD_BYTES>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    Some((key, rest.get(..usize::from(*place_len))?))
}

/// The next link of a run. Links with equal keys are ordered by age.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct MergeHead {
    key: Vec<u8>,
    place: Vec<u8>,
    run: usize,
}

/// The rest of a run.
#[derive(Debug)]
struct RunReader {
    /// The part of the file that is not in the buffer yet.
    rest: Range<u64>,
    buffer: Vec<u8>,
    /// The offset of the next record in the buffer.
    at: usize,
    /// Bytes that are read at once.
    ahead: usize,
}

impl RunReader {
    fn new(rest: Range<u64>, ahead: usize) -> RunReader {
        RunReader { rest, buffer: Vec::new(), at: 0, ahead }
    }

    /// Returns the key and the position of the next link; `None` at the end.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    fn next(&mut self, file: &File) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.buffer.len() - self.at < RECORD_BYTES_MAX && !self.rest.is_empty() {
            self.buffer.drain(..self.at);
            let had = self.buffer.len();
            let more = (self.rest.end - self.rest.start).min(self.ahead as u64);
            self.buffer.resize(had + more as usize, 0);
            file.read_exact_at(&mut self.buffer[had..], self.rest.start)?;
            (self.rest.start, self.at) = (self.rest.start + more, 0);
        }
        if self.at == self.buffer.len() {
            return Ok(None);
        }
        // The disk may have damaged the lengths.
        let (key, place) = fields(&self.buffer[self.at..]).ok_or(io::ErrorKind::InvalidData)?;
        let next = (key.to_vec(), place.to_vec());
        self.at += HEAD_BYTES + next.0.len() + next.1.len();
        Ok(Some(next))
    }
}

const _: () = assert!(SORT_KEY_LEN_MAX <= u16::MAX as usize);
const _: () = assert!(RECORD_BYTES_MAX <= AHEAD_BYTES);
const _: () = assert!(RUN_BYTES <= u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_run_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        // The record has a key of two bytes, and a position of three.
        let record = [0, 2, 3, b'k', b'k', b'p', b'p', b'p'];
        for (at, damaged) in [(0, 0), (0, 0xff), (1, 0x82), (2, 4), (2, 0xff)] {
            let mut bytes = record;
            bytes[at] = damaged;
            std::io::Write::write_all(&mut file, &bytes).unwrap();
            let end = std::io::Seek::stream_position(&mut file).unwrap();
            let read = RunReader::new(end - 8..end, RECORD_BYTES_MAX).next(&file);
            match read {
                Ok(Some((key, place))) => assert_eq!((&*key, &*place, damaged), (&b"kk"[..], &b"ppp"[..], 0)),
                read => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData),
            }
            assert!(RunReader::new(end - 2..end, RECORD_BYTES_MAX).next(&file).is_err(), "no head");
        }
    }
}
