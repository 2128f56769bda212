//! Memory from the kernel, in chunks that go back to it when they are dropped.
//!
//! The general allocator would keep much of what the map frees: after the first large block is freed, glibc raises its
//! threshold for mapping blocks on their own and takes later ones from its heaps, which shrink only at their end. A
//! chunk is an anonymous mapping of its own instead. Its bytes are zero, and each 4 KiB of it take memory from the first
//! time that they are touched; so making one costs microseconds at any size. This is the door of `memmap2`.
//!
//! Huge pages were tried and left out: with 3 million links they took a random lookup from 241 to 178 ns, but clearing
//! 2 MiB at the first touch held up more than a hundred insertions for over a millisecond each.

use memmap2::MmapMut;

use super::MapFull;

/// Bytes of a cache line, and of a line of the index.
const LINE_BYTES: usize = 64;

/// A line of the index.
pub(super) type Line = [u8; LINE_BYTES];

/// A mapping of zeroed memory.
#[derive(Debug)]
pub(super) struct Chunk(MmapMut);

impl Chunk {
    /// A chunk of `len` bytes.
    ///
    /// # Errors
    /// [`MapFull`] when the kernel refuses: no memory, or too many mappings (`vm.max_map_count`).
    pub(super) fn new(len: usize) -> Result<Chunk, MapFull> {
        MmapMut::map_anon(len).map(Chunk).map_err(|_| MapFull)
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// An array of lines that grows and shrinks at its end, a chunk at a time and without moving any line.
#[derive(Debug)]
pub(super) struct Lines {
    chunks: Vec<Chunk>,
    len: u32,
}

/// Lines of a chunk: 256 KiB, a small part of any map that is worth measuring.
const CHUNK_LINES: usize = 4096;

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { chunks: Vec::new(), len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Line {
        let at = at as usize;
        &self.chunks[at / CHUNK_LINES].bytes().as_chunks().0[at % CHUNK_LINES]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Line {
        let at = at as usize;
        &mut self.chunks[at / CHUNK_LINES].bytes_mut().as_chunks_mut().0[at % CHUNK_LINES]
    }

    /// Makes sure that the next `more` calls of [`Lines::push`] find memory.
    pub(super) fn reserve(&mut self, more: u32) -> Result<(), MapFull> {
        while self.chunks.len() * CHUNK_LINES < (self.len + more) as usize {
            self.chunks.push(Chunk::new(CHUNK_LINES * LINE_BYTES)?);
        }
        Ok(())
    }

    /// Adds a line of zeros, for which there must be room, and returns its place.
    pub(super) fn push(&mut self) -> u32 {
        assert!((self.len as usize) < self.chunks.len() * CHUNK_LINES, "room was reserved before");
        self.len += 1;
        self.len - 1
    }

    /// Takes the last line away.
    pub(super) fn pop(&mut self) {
        *self.get_mut(self.len - 1) = [0; LINE_BYTES];
        self.len -= 1;
        // One chunk more than needed is kept, so that a map at the edge of a chunk does not map and unmap it in turns.
        let needed = (self.len as usize).div_ceil(CHUNK_LINES);
        self.chunks.truncate(needed + 1);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_LINES * LINE_BYTES + self.chunks.capacity() * size_of::<Chunk>()) as u64
    }
}
