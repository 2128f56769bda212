//! The ghost queue: the codes that a cache has evicted lately, without their links.
//!
//! It is a set-associative queue. The hash of a code has a line of 64 bytes, with 32 fingerprints of 16 bits, the
//! newest first. A new fingerprint pushes the oldest out of the line. So a ghost takes two bytes and one cache miss,
//! and there is nothing to expire. How many evictions a ghost outlives varies by a fifth from line to line (32 arrivals
//! of a Poisson process). One code in 2,000 is taken for a ghost by mistake: it gets into the main queue at once, which
//! is harmless.

use super::memory::{LINE_BYTES, MemoryChunk};
use super::outcome::MapFull;
use crate::code::CodeHash;
use crate::mix::{mix, place};

const FINGERPRINT_BYTES: usize = 2;

/// The ghost queue of a cache.
#[derive(Debug)]
pub(super) struct Ghosts {
    lines: MemoryChunk,
    line_count: u32,
}

/// Returns the fingerprint of a hash. It is never zero, which stands for no ghost.
fn fingerprint(mixed: u64) -> [u8; FINGERPRINT_BYTES] {
    (mixed as u16).max(1).to_le_bytes()
}

impl Ghosts {
    /// Returns an empty queue of `bytes` bytes, rounded down to lines.
    pub(super) fn new(bytes: usize) -> Result<Ghosts, MapFull> {
        let line_count = u32::try_from(bytes / LINE_BYTES).unwrap_or(u32::MAX);
        Ok(Ghosts { lines: MemoryChunk::new(line_count as usize * LINE_BYTES)?, line_count })
    }

    fn line_mut(&mut self, mixed: u64) -> &mut [u8; LINE_BYTES] {
        &mut self.lines.bytes_mut().as_chunks_mut().0[place(mixed, self.line_count)]
    }

    /// Remembers a code that is evicted.
    pub(super) fn insert(&mut self, hash: CodeHash) {
        let mixed = mix(hash);
        let line = self.line_mut(mixed);
        line.copy_within(..LINE_BYTES - FINGERPRINT_BYTES, FINGERPRINT_BYTES);
        line[..FINGERPRINT_BYTES].copy_from_slice(&fingerprint(mixed));
    }

    /// True if a code was evicted lately. The call forgets it.
    pub(super) fn take(&mut self, hash: CodeHash) -> bool {
        let mixed = mix(hash);
        let line = self.line_mut(mixed);
        let Some(at) = line.as_chunks().0.iter().position(|&ghost| ghost == fingerprint(mixed)) else { return false };
        line.copy_within((at + 1) * FINGERPRINT_BYTES.., at * FINGERPRINT_BYTES);
        line[LINE_BYTES - FINGERPRINT_BYTES..].fill(0);
        true
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.lines.bytes().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHOSTS: u64 = 32 * 1024;

    fn full() -> Ghosts {
        let mut ghosts = Ghosts::new(GHOSTS as usize * FINGERPRINT_BYTES).unwrap();
        (0..4 * GHOSTS).for_each(|number| ghosts.insert(CodeHash(number)));
        ghosts
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let mut ghosts = full();
        let last = CodeHash(4 * GHOSTS - 1);
        assert!(ghosts.take(last));
        assert!(!ghosts.take(last));
    }

    #[test]
    fn ghosts_last_for_about_as_many_as_there_are() {
        let mut ghosts = full();
        let mut taken = |from: u64| (from..from + GHOSTS / 2).filter(|&number| ghosts.take(CodeHash(number))).count();
        let (recent, old, never) = (taken(4 * GHOSTS - GHOSTS / 2), taken(GHOSTS), taken(8 * GHOSTS));
        assert!(recent > GHOSTS as usize / 2 * 99 / 100, "{recent} of the newest half");
        assert!(old < GHOSTS as usize / 2 / 50, "{old} that should be gone long since");
        assert!(never < GHOSTS as usize / 2 / 500, "{never} that never were");
    }
}
