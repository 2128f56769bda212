//! Texts that are in memory because their links were created or changed lately.
//!
//! Each link counts once: what it says later replaces what it said before, so that a link that changes again and again takes
//! no more memory than its texts. Texts are kept in chunks that searches share, so that a commit copies at most one chunk
//! while a search reads it.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::part::{Part, key_of};

/// Bytes of a chunk. A commit copies that much where a search has the last chunk in use.
const CHUNK_BYTES: usize = if cfg!(test) { 4 * 1024 } else { 256 * 1024 };

/// What the map takes for a link besides its texts, in bytes: a hash, a position, and room to grow.
const ENTRY_OVERHEAD: usize = 48;

/// The position of an entry.
#[derive(Clone, Copy, Debug)]
struct Position {
    chunk: u32,
    number: u32,
}

/// Texts in memory, of each link those that it has now.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    chunks: Vec<Arc<Part>>,
    /// By the hash of their keys.
    newest: HashMap<u64, Position>,
    live_len: usize,
    live_bytes: usize,
    /// Bytes of replaced entries that are still in a chunk.
    stale_bytes: usize,
}

impl Held {
    /// Adds an entry of [`super::part::entry_of`], in the place of an earlier one of its link.
    pub(super) fn push(&mut self, entry: &[u8]) {
        let hash = xxh3_64(key_of(entry));
        let replaced = self.newest.get(&hash).map(|at| self.entry(*at));
        match replaced.map(|old| (old.len(), key_of(old) == key_of(entry))) {
            Some((len, true)) => {
                self.live_bytes -= len;
                self.stale_bytes += len;
                let at = self.append(entry);
                self.newest.insert(hash, at);
                if self.stale_bytes > self.live_bytes / 2 + CHUNK_BYTES {
                    self.compact();
                }
            }
            // Two keys with one hash: the second one is never replaced, which costs its bytes.
            Some((_, false)) => {
                self.live_len += 1;
                self.append(entry);
            }
            None => {
                self.live_len += 1;
                let at = self.append(entry);
                self.newest.insert(hash, at);
            }
        }
    }

    /// How many links there are.
    pub(super) fn len(&self) -> usize {
        self.live_len
    }

    /// Bytes of the texts that links have now.
    pub(super) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.live_bytes + self.stale_bytes + self.live_len * ENTRY_OVERHEAD
    }

    /// The chunks, the oldest first. They may have replaced entries as well.
    pub(super) fn chunks(&self) -> &[Arc<Part>] {
        &self.chunks
    }

    fn entry(&self, at: Position) -> &[u8] {
        self.chunks[at.chunk as usize].entry(at.number as usize)
    }

    fn append(&mut self, entry: &[u8]) -> Position {
        if self.chunks.last().is_none_or(|chunk| chunk.len() + entry.len() > CHUNK_BYTES) {
            self.chunks.push(Arc::default());
        }
        let last = self.chunks.last_mut().expect("one was added if there was none");
        let chunk = Arc::make_mut(last);
        chunk.push(entry);
        let number = chunk.count() as u32 - 1;
        self.live_bytes += entry.len();
        Position { chunk: self.chunks.len() as u32 - 1, number }
    }

    /// Drops replaced entries.
    fn compact(&mut self) {
        let old = std::mem::take(self);
        for (chunk, part) in (0..).zip(&old.chunks) {
            for (number, entry) in (0..).zip(part.entries()) {
                let newest = old.newest[&xxh3_64(key_of(entry))];
                let is_newest = (newest.chunk, newest.number) == (chunk, number);
                // One whose hash belongs to another key is not known to be replaced.
                if is_newest || key_of(old.entry(newest)) != key_of(entry) {
                    self.push(entry);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, text: &str) -> Vec<u8> {
        [&[key.len() as u8], key.as_bytes(), text.as_bytes(), &[0xff]].concat()
    }

    #[test]
    fn each_link_counts_once_and_replaced_texts_go() {
        let mut held = Held::default();
        for round in 0..1_000 {
            for key in ["a", "bb", "c"] {
                held.push(&entry(key, &format!("{key}{round:060}")));
            }
            assert_eq!(held.len(), 3);
            assert!(held.memory_bytes() < 3 * CHUNK_BYTES, "{held:?}");
        }
        let in_chunks: usize = held.chunks().iter().map(|chunk| chunk.len()).sum();
        assert_eq!(in_chunks, held.live_bytes + held.stale_bytes);
        let newest =
            held.chunks().iter().flat_map(|chunk| chunk.entries()).filter(|entry| entry.ends_with(b"0999\xff"));
        assert_eq!(newest.count(), 3);
    }
}
