//! Memory from the kernel, in chunks that go back to it when they are dropped.
//!
//! The general allocator would keep much of the memory that the map frees. After the first large block is freed, glibc
//! raises the size from which it maps blocks on their own. It takes later blocks from its heaps, which shrink only at
//! their end. A chunk is an anonymous mapping of its own instead. All its bytes are zero, and each 4 KiB of it take
//! memory from the first time that they are touched; so making one costs microseconds at any size. This is the door of
//! `memmap2`.
//!
//! Huge pages were tried and left out. With 3 million links they took a random look-up from 241 to 178 ns, but clearing
//! 2 MiB at the first touch held up more than a hundred insertions for over a millisecond each.

use memmap2::MmapMut;

use super::outcome::MapFull;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// A cache line, of the index or another table.
pub(crate) type CacheLine = [u8; LINE_BYTES];

/// A mapping of zeroed memory.
#[derive(Debug)]
pub(crate) struct MemoryChunk(MmapMut);

impl MemoryChunk {
    /// Returns a chunk of `len` bytes.
    ///
    /// # Errors
    /// [`MapFull`] when the kernel refuses: no memory, or too many mappings (`vm.max_map_count`).
    pub(crate) fn new(len: usize) -> Result<MemoryChunk, MapFull> {
        MmapMut::map_anon(len).map(MemoryChunk).map_err(|_| MapFull)
    }

    /// Lets the kernel give the chunk its memory at once, which costs half of what page faults do. A kernel that
    /// refuses gives it at the first touch.
    pub(crate) fn populate(&self) {
        let _ = self.0.advise(memmap2::Advice::PopulateWrite);
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// An array of lines that grows and shrinks at its end, a chunk at a time and without moving any line.
#[derive(Debug)]
pub(super) struct CacheLines {
    chunks: Vec<MemoryChunk>,
    len: u32,
    /// A chunk has two to the power of this many lines.
    chunk_bits: u32,
}

/// Lines of a chunk, as a power of two: 256 KiB, a small part of any map that is worth measuring.
const CHUNK_BITS: u32 = 12;

impl CacheLines {
    /// Returns an array without lines, which come in chunks of at most `chunk_bytes_max` bytes, a power of two.
    pub(super) fn new(chunk_bytes_max: usize) -> CacheLines {
        assert!(chunk_bytes_max.is_power_of_two(), "lines would straddle two chunks");
        let chunk_bits = (chunk_bytes_max / LINE_BYTES).ilog2().min(CHUNK_BITS);
        CacheLines { chunks: Vec::new(), len: 0, chunk_bits }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    fn chunk_lines(&self) -> usize {
        1 << self.chunk_bits
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &CacheLine {
        debug_assert!(at < self.len, "the line was removed");
        let within = at & ((1 << self.chunk_bits) - 1);
        &self.chunks[(at >> self.chunk_bits) as usize].bytes().as_chunks().0[within as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut CacheLine {
        debug_assert!(at < self.len, "the line was removed");
        let within = at & ((1 << self.chunk_bits) - 1);
        &mut self.chunks[(at >> self.chunk_bits) as usize].bytes_mut().as_chunks_mut().0[within as usize]
    }

    /// Makes sure that the next `more` calls of [`CacheLines::push`] find memory.
    pub(super) fn reserve(&mut self, more: u32) -> Result<(), MapFull> {
        while self.chunks.len() * self.chunk_lines() < (self.len + more) as usize {
            self.chunks.push(MemoryChunk::new(self.chunk_lines() * LINE_BYTES)?);
        }
        Ok(())
    }

    /// Adds a line of zeros, for which there must be room, and returns its place.
    pub(super) fn push(&mut self) -> u32 {
        assert!((self.len as usize) < self.chunks.len() * self.chunk_lines(), "room was reserved before");
        self.len += 1;
        self.len - 1
    }

    /// Removes the last line.
    pub(super) fn pop(&mut self) {
        *self.get_mut(self.len - 1) = [0; LINE_BYTES];
        self.len -= 1;
        // One chunk more than needed is kept, so that a map at the edge of a chunk does not map and unmap it in turns.
        let needed = (self.len as usize).div_ceil(self.chunk_lines());
        self.chunks.truncate(needed + 1);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let lines = self.chunks.len() * self.chunk_lines() * LINE_BYTES;
        (lines + self.chunks.capacity() * size_of::<MemoryChunk>()) as u64
    }
}
