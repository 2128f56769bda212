//! Sorts the records of an image by owner, and within an owner in the order of its index. No threads, no policy.
//!
//! Each part is a range of that order. Records go to their part, through a small buffer, into a file without a name.
//! Then one part after the other is read back and sorted in memory. So the size of a part and the number of buffers
//! bound the memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use carom_shards::map::sealed::{self, Sealed, index_order, index_order_max};
use carom_shards::{Code, CodeHasher, CoreCount, CoreId, MapEntry, owner};

use xxhash_rust::xxh3::xxh3_64;

use carom_limits::{IMAGE_BUFFER_BYTES, IMAGE_PART_BYTES, IMAGE_PARTS_MAX};

/// The records of an image, before and while they are sorted.
#[derive(Debug)]
pub(super) struct Sorter {
    file: File,
    /// Offset in the file at which the next buffer is written.
    end: u64,
    hasher: CodeHasher,
    cores: CoreCount,
    /// Approximate number of links of a core.
    links: usize,
    /// Number of parts of a core.
    per_core: usize,
    parts: Vec<Unsorted>,
    /// The number of the next part to sort.
    next: usize,
}

/// An unsorted part: its buffer in memory, and the places of its other records in the file.
#[derive(Debug, Default)]
struct Unsorted {
    buffer: Vec<u8>,
    extents: Vec<Extent>,
}

/// Some records of a part in the file.
#[derive(Debug)]
struct Extent {
    at: u64,
    len: usize,
    /// Checksum of the bytes, because the disk may return others than were written.
    sum: u64,
}

/// A sorted part.
#[derive(Debug)]
pub(super) struct Part {
    bytes: Vec<u8>,
    /// The records in order: the place of each in the index order, and its start and end in `bytes`.
    order: Vec<(u32, u32, u32)>,
    /// True if its records are the first ones of a core.
    pub(super) begins_core: bool,
}

/// Returns the path of the file of records, until it is unlinked.
pub(super) fn unsorted(path: &Path) -> PathBuf {
    path.with_extension("image.sort")
}

impl Sorter {
    /// Begins to sort about `links` records of about `record_bytes` bytes each. The file is created beside `path` and
    /// unlinked at once.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn new(
        path: &Path,
        hasher: CodeHasher,
        cores: CoreCount,
        links: usize,
        record_bytes: u64,
    ) -> io::Result<Sorter> {
        let name = unsorted(path);
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(&name)?;
        std::fs::remove_file(&name)?;
        let wanted = (links as u64 * record_bytes).div_ceil(IMAGE_PART_BYTES).min(IMAGE_PARTS_MAX) as usize;
        let per_core = wanted.div_ceil(cores.get()).max(1);
        let parts = (0..per_core * cores.get()).map(|_| Unsorted::default()).collect();
        Ok(Sorter { file, end: 0, hasher, cores, links: links / cores.get(), per_core, parts, next: 0 })
    }

    fn place(&self, code: &Code) -> (CoreId, u32) {
        let hash = self.hasher.hash(code);
        (owner(hash, self.cores), index_order(hash, self.links))
    }

    /// Adds an entry. Returns the number of bytes written to the file for it.
    pub(super) fn push(&mut self, code: &Code, entry: &MapEntry<'_>) -> io::Result<usize> {
        let (core, order) = self.place(code);
        let orders = u64::from(index_order_max(self.links)) + 1;
        let within = (u64::from(order) * self.per_core as u64 / orders) as usize;
        assert!(within < self.per_core, "the record would go to another core");
        assert_eq!(self.next, 0, "the part of the record may have been written already");
        let part = &mut self.parts[core.index() * self.per_core + within];
        if part.buffer.capacity() == 0 {
            // By itself, a buffer would grow to twice the size.
            part.buffer.reserve_exact(IMAGE_BUFFER_BYTES + sealed::RECORD_BYTES_MAX);
        }
        sealed::append(&mut part.buffer, code, entry);
        if part.buffer.len() < IMAGE_BUFFER_BYTES {
            return Ok(0);
        }
        let len = part.buffer.len();
        self.file.write_all_at(&part.buffer, self.end)?;
        part.extents.push(Extent { at: self.end, len, sum: xxh3_64(&part.buffer) });
        part.buffer.clear();
        self.end += len as u64;
        Ok(len)
    }

    /// Syncs what was written so far, so that the disk never gets much at once.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Returns the next part in order; `None` after the last one.
    pub(super) fn next_part(&mut self) -> io::Result<Option<Part>> {
        let Some(unsorted) = self.parts.get_mut(self.next).map(std::mem::take) else { return Ok(None) };
        let stored: usize = unsorted.extents.iter().map(|extent| extent.len).sum();
        let mut bytes = Vec::with_capacity(stored + unsorted.buffer.len());
        let damaged = || io::Error::other("records that were being sorted cannot be read back as they were written");
        for Extent { at, len, sum } in unsorted.extents {
            let from = bytes.len();
            bytes.resize(from + len, 0);
            self.file.read_exact_at(&mut bytes[from..], at)?;
            if xxh3_64(&bytes[from..]) != sum {
                return Err(damaged());
            }
        }
        bytes.extend_from_slice(&unsorted.buffer);
        if u32::try_from(bytes.len()).is_err() {
            return Err(io::Error::other(format!("{} bytes are too many to be sorted at once", bytes.len())));
        }
        let (mut order, mut at) = (Vec::new(), 0);
        for record in sealed::records_in(&bytes) {
            let code = record.code().ok_or_else(damaged)?;
            let end = at + record.bytes().len();
            order.push((self.place(&code).1, at as u32, end as u32));
            at = end;
        }
        order.sort_unstable();
        let begins_core = self.next.is_multiple_of(self.per_core);
        self.next += 1;
        Ok(Some(Part { bytes, order, begins_core }))
    }
}

impl Part {
    /// Iterates over the records of the part, in index order.
    pub(super) fn records(&self) -> impl Iterator<Item = Sealed<'_>> {
        let bytes = |at: &(u32, u32, u32)| &self.bytes[at.1 as usize..at.2 as usize];
        self.order.iter().filter_map(move |at| sealed::records_in(bytes(at)).next())
    }
}

#[cfg(test)]
mod tests {
    use carom_shards::Policy;

    use super::*;

    #[test]
    fn records_that_the_disk_has_changed_are_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cores) = (dir.path().join("links.image"), CoreCount::new(1).unwrap());
        let sorted = |change: bool| {
            let mut sorter = Sorter::new(&path, CodeHasher::new(3), cores, 1_000, 128).unwrap();
            let entry = MapEntry::Link { policy: Policy::default(), target: b"https://example.org/target" };
            let mut codes = (0..).map(|number| Code::parse(format!("c{number}").as_bytes()).unwrap());
            while sorter.push(&codes.next().unwrap(), &entry).unwrap() == 0 {}
            // Changes a letter in a target: the record stays valid and keeps its code.
            let mut bytes = vec![0; sorter.end as usize];
            sorter.file.read_exact_at(&mut bytes, 0).unwrap();
            let at = memchr::memmem::find(&bytes, b"target").expect("a target is in the file");
            sorter.file.write_all_at(if change { b"T" } else { b"t" }, at as u64).unwrap();
            sorter.next_part().map(|part| part.expect("there is one").records().count())
        };
        assert!(sorted(false).unwrap() > 100);
        assert!(sorted(true).unwrap_err().to_string().contains("cannot be read back as they were written"));
    }
}
