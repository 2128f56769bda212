//! Texts of links that were created or changed lately, held in memory.
//!
//! Each link counts once: a new text replaces the old one, so a link that changes often takes no more memory than its
//! text. Texts are kept in chunks that searches share, so a commit copies at most one chunk while a search reads it.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::text_chunk::{TextPart, key_of};

/// Size of a chunk in bytes. A commit copies that much if a search is reading the last chunk.
const CHUNK_BYTES: usize = if cfg!(test) { 4 * 1024 } else { 256 * 1024 };

/// Memory of the map for each link besides its text, in bytes: a hash, a position, and room to grow.
const ENTRY_OVERHEAD: usize = 48;

/// The position of an entry: its chunk, and its number in that chunk.
#[derive(Clone, Copy, Debug)]
struct Position {
    chunk: u32,
    number: u32,
}

/// The current texts of links in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct TextsInMemory {
    chunks: Vec<Arc<TextPart>>,
    /// The position of the newest entry of each link, by the hash of its key.
    newest: HashMap<u64, Position>,
    live_len: usize,
    live_bytes: usize,
    /// Bytes of replaced entries that are still in a chunk.
    stale_bytes: usize,
}

impl TextsInMemory {
    /// Adds an entry made by [`super::text_chunk::entry_of`], and replaces an earlier one of the same link.
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
            // On a hash collision the second key is never replaced, which costs its bytes.
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

    /// Returns the number of links.
    pub(super) fn len(&self) -> usize {
        self.live_len
    }

    /// Returns the bytes of current texts.
    pub(super) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.live_bytes + self.stale_bytes + self.live_len * ENTRY_OVERHEAD
    }

    /// Returns the chunks, oldest first. They may still have replaced entries.
    pub(super) fn chunks(&self) -> &[Arc<TextPart>] {
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
        debug_assert_eq!(
            self.chunks.iter().map(|chunk| chunk.len()).sum::<usize>(),
            self.live_bytes + self.stale_bytes,
            "the bound of memory does not count all texts"
        );
        Position { chunk: self.chunks.len() as u32 - 1, number }
    }

    /// Drops replaced entries.
    fn compact(&mut self) {
        let old = std::mem::take(self);
        for (chunk, part) in (0..).zip(&old.chunks) {
            for (number, entry) in (0..).zip(part.entries()) {
                let newest = old.newest[&xxh3_64(key_of(entry))];
                let is_newest = (newest.chunk, newest.number) == (chunk, number);
                // An entry whose hash belongs to another key may or may not be replaced, so it stays.
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
        let mut held = TextsInMemory::default();
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
