//! An approximate set of the codes that exist, by their hashes, for cores that do not keep all links in memory.
//!
//! A code that is not in the set exists nowhere, so nothing need be read from a disk for it. The set is a blocked Bloom
//! filter (Putze, Sanders, Singler 2007, "Cache-, hash- and space-efficient Bloom filters"). The hash chooses a block
//! of eight words and one bit in each of them, so a look-up reads one cache line. When it is full, a second filter of
//! twice the size is added (Almeida, Baquero, Preguiça, Hutchison 2007, "Scalable Bloom filters"), with a bit more for
//! each code. So all layers together are wrong about one in a hundred codes that do not exist. The number of layers
//! depends on how far the number of codes was underestimated: with a good estimate it is one.

use crate::code::CodeHash;
use crate::map::memory::{CacheLine, LINE_BYTES, MemoryChunk};
use crate::mix::{mix, place};

/// Bits that the first layer has for each code. Every other layer has one bit more than the one below it.
const BITS_PER_CODE: usize = 12;

/// Codes of the smallest layer.
const CODES_MIN: usize = 4_096;

/// Bytes of a block: a look-up reads one of them.
pub const BLOCK_BYTES: usize = LINE_BYTES;

/// Words of a block.
const WORDS: usize = LINE_BYTES / size_of::<u64>();

/// Odd numbers that draw the bit of each word from the same half of the hash, from the fractional digits of pi.
const SALTS: [u32; WORDS] =
    [0x243f_6a89, 0x85a3_08d3, 0x1319_8a2f, 0x0370_7345, 0xa409_3823, 0x299f_31d1, 0x082e_fa99, 0xec4e_6c89];

/// An approximate set of codes: it holds every code that was inserted, and reports about one in a hundred others as
/// well.
#[derive(Debug)]
pub struct CodeFilter {
    /// Layers from the oldest to the one that is being filled; never empty.
    layers: Vec<Layer>,
    len: usize,
}

/// A blocked Bloom filter of a fixed size.
#[derive(Debug)]
struct Layer {
    blocks: MemoryChunk,
    block_count: u32,
    /// Number of codes that it can still take.
    room: usize,
    capacity: usize,
}

impl CodeFilter {
    /// Returns an empty set for about `codes` codes. It can grow to any number.
    ///
    /// # Panics
    /// If the kernel does not give 12 bits for each.
    pub fn with_capacity(codes: usize) -> CodeFilter {
        let layer = Layer::new(codes.max(CODES_MIN), BITS_PER_CODE);
        CodeFilter { layers: vec![layer.expect("the kernel refuses memory for the filter of codes")], len: 0 }
    }

    /// Returns the bytes that an empty set for about `codes` codes takes.
    pub fn bytes_for(codes: usize) -> u64 {
        (codes.max(CODES_MIN) * BITS_PER_CODE / 8) as u64
    }

    /// Returns the number of blocks of the first layer of a set for about `codes` codes.
    pub fn blocks_for(codes: usize) -> usize {
        (codes.max(CODES_MIN) * BITS_PER_CODE).div_ceil(8 * LINE_BYTES)
    }

    /// Adds the codes in blocks that were filled outside of the set ([`insert_into`]). The blocks are those at `first`
    /// and behind it, of a set for the same number of codes. `codes` codes were inserted into them.
    ///
    /// # Panics
    /// If the first layer has fewer blocks.
    pub fn merge(&mut self, first: usize, blocks: &[u8], codes: usize) {
        let layer = self.layers.first_mut().expect("there is a layer from the start");
        let start = first * BLOCK_BYTES;
        assert!(start + blocks.len() <= layer.blocks.bytes().len(), "the blocks are those of a larger set");
        let into = &mut layer.blocks.bytes_mut()[start..start + blocks.len()];
        for (word, more) in into.as_chunks_mut().0.iter_mut().zip(blocks.as_chunks().0) {
            *word = (u64::from_le_bytes(*word) | u64::from_le_bytes(*more)).to_le_bytes();
        }
        layer.room = layer.room.saturating_sub(codes);
        self.len += codes;
    }

    /// Returns the bytes that the next layer will take, once the present one is three quarters full; before that 0.
    pub fn bytes_ahead(&self) -> u64 {
        let last = self.layers.last().expect("there is a layer from the start");
        let bits = (BITS_PER_CODE + self.layers.len()) as u64;
        if last.room < last.capacity / 4 { 2 * last.capacity as u64 * bits / 8 } else { 0 }
    }

    /// Adds the code of a hash.
    pub fn insert(&mut self, hash: CodeHash) {
        let mixed = mix(hash);
        // A code that is reported already needs no bits. So codes that come again and again do not fill the set.
        if self.holds(mixed) {
            return;
        }
        self.len += 1;
        let last = self.layers.last().expect("there is a layer from the start");
        if last.room == 0 {
            // Without memory the last layer takes more than it should, and is wrong more often.
            let bits = BITS_PER_CODE + self.layers.len();
            self.layers.extend(Layer::new(2 * last.capacity, bits));
        }
        self.layers.last_mut().expect("there is a layer from the start").insert(mixed);
        debug_assert!(self.holds(mixed), "the inserted code would get 404");
    }

    /// True if the code of a hash may have been inserted. False means that it certainly was not.
    #[inline]
    pub fn may_hold(&self, hash: CodeHash) -> bool {
        self.holds(mix(hash))
    }

    #[inline]
    fn holds(&self, mixed: u64) -> bool {
        // The last layers hold the most.
        self.layers.iter().rev().any(|layer| layer.holds(mixed))
    }

    /// Returns how many inserted codes were not reported before: all but about one in a hundred.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no code was inserted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that the set has taken from the kernel and the allocator, including untouched ones.
    pub fn memory_bytes(&self) -> u64 {
        let layers: usize = self.layers.iter().map(|layer| layer.blocks.bytes().len()).sum();
        (layers + self.layers.capacity() * size_of::<Layer>() + size_of::<CodeFilter>()) as u64
    }
}

impl Layer {
    /// Returns a layer for `capacity` codes with `bits_per_code` bits each; `None` when the kernel gives no memory.
    fn new(capacity: usize, bits_per_code: usize) -> Option<Layer> {
        assert!(capacity >= CODES_MIN, "a layer that is full at once would be followed by ever more");
        assert!(bits_per_code >= BITS_PER_CODE, "a higher layer may not be wrong more often than the lowest");
        let blocks = (capacity * bits_per_code).div_ceil(8 * LINE_BYTES);
        debug_assert!(
            bits_per_code > BITS_PER_CODE || blocks == CodeFilter::blocks_for(capacity),
            "blocks that were filled outside would not fit"
        );
        let block_count = u32::try_from(blocks).ok()?;
        let blocks = MemoryChunk::new(blocks * LINE_BYTES).ok()?;
        Some(Layer { blocks, block_count, room: capacity, capacity })
    }

    #[inline]
    fn holds(&self, mixed: u64) -> bool {
        block_holds(&self.blocks.bytes().as_chunks().0[place(mixed, self.block_count)], mixed)
    }

    fn insert(&mut self, mixed: u64) {
        fill(&mut self.blocks.bytes_mut().as_chunks_mut().0[place(mixed, self.block_count)], mixed);
        self.room = self.room.saturating_sub(1);
    }
}

/// Returns the block of the code of a hash, among the `blocks` blocks of a layer.
///
/// # Panics
/// If there are more blocks than a layer can have.
pub fn block_of(hash: CodeHash, blocks: usize) -> usize {
    place(mix(hash), u32::try_from(blocks).expect("a layer counts its blocks in 32 bits"))
}

/// Adds the code of a hash to its block outside of a set. Returns false if the block reports the code already.
pub fn insert_into(block: &mut [u8; BLOCK_BYTES], hash: CodeHash) -> bool {
    let mixed = mix(hash);
    let is_new = !block_holds(block, mixed);
    fill(block, mixed);
    is_new
}

/// True if a block reports the code of a hash.
pub fn is_in(block: &[u8; BLOCK_BYTES], hash: CodeHash) -> bool {
    block_holds(block, mix(hash))
}

#[inline]
fn block_holds(block: &CacheLine, mixed: u64) -> bool {
    let words = block.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
    words.zip(bits(mixed)).all(|(word, bit)| word & bit != 0)
}

/// Sets the bits of a code in its block.
fn fill(block: &mut CacheLine, mixed: u64) {
    for (word, bit) in block.as_chunks_mut().0.iter_mut().zip(bits(mixed)) {
        *word = (u64::from_le_bytes(*word) | bit).to_le_bytes();
    }
}

/// Returns the bit of each word, from the lower half of the hash: the upper one has chosen the block.
#[inline]
fn bits(mixed: u64) -> impl Iterator<Item = u64> {
    SALTS.iter().map(move |salt| 1 << ((mixed as u32).wrapping_mul(*salt) >> 26))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::Rng;

    use super::*;
    use crate::owner::{CoreCount, owner};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_was_inserted_is_held(
            hashes in proptest::collection::hash_set(any::<u64>(), 0..20_000),
            codes in 0usize..20_000,
        ) {
            let mut filter = CodeFilter::with_capacity(codes);
            for &hash in &hashes {
                filter.insert(CodeHash(hash));
            }
            prop_assert!(hashes.iter().all(|&hash| filter.may_hold(CodeHash(hash))));
            prop_assert!(filter.len() <= hashes.len());
            prop_assert!(filter.len() >= hashes.len() * 97 / 100);
            prop_assert_eq!(filter.is_empty(), hashes.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Blocks that are filled outside and merged in pieces hold the same as a set that is filled code by code.
        #[test]
        fn merged_blocks_hold_what_was_inserted(
            outside in proptest::collection::vec(any::<u64>(), 0..6_000),
            before in proptest::collection::vec(any::<u64>(), 0..3_000),
            piece in 1usize..200,
        ) {
            let mut filter = CodeFilter::with_capacity(5_000);
            before.iter().for_each(|&hash| filter.insert(CodeHash(hash)));
            let count = CodeFilter::blocks_for(5_000);
            let mut blocks = vec![[0; BLOCK_BYTES]; count];
            let mut inserted = vec![0; count];
            for &hash in &outside {
                let at = block_of(CodeHash(hash), count);
                inserted[at] += usize::from(insert_into(&mut blocks[at], CodeHash(hash)));
                prop_assert!(is_in(&blocks[at], CodeHash(hash)));
            }
            for (number, (piece_of, codes)) in blocks.chunks(piece).zip(inserted.chunks(piece)).enumerate() {
                filter.merge(number * piece, piece_of.as_flattened(), codes.iter().sum());
            }
            prop_assert!(outside.iter().chain(&before).all(|&hash| filter.may_hold(CodeHash(hash))));
            prop_assert!(filter.len() <= outside.len() + before.len());
        }
    }

    /// Hashes of codes that one of 64 cores owns: they share the upper six bits.
    fn owned() -> impl Iterator<Item = CodeHash> {
        let (mut random, cores) = (Pcg64::new(19, 0), CoreCount::new(64).unwrap());
        let hashes = std::iter::repeat_with(move || CodeHash(17 << 58 | random.next_u64() >> 6));
        hashes.inspect(move |&hash| assert_eq!(owner(hash, cores).index(), 17))
    }

    /// Returns the share of missing codes that are reported, after `times` times the estimate.
    fn wrong_share(estimate: usize, times: usize) -> f64 {
        const ASKED: usize = 200_000;
        let mut hashes = owned();
        let mut filter = CodeFilter::with_capacity(estimate);
        for hash in hashes.by_ref().take(times * estimate) {
            filter.insert(hash);
        }
        hashes.take(ASKED).filter(|&hash| filter.may_hold(hash)).count() as f64 / ASKED as f64
    }

    #[test]
    fn few_others_seem_to_be_held() {
        for (times, most) in [(1, 0.005), (3, 0.008), (10, 0.010)] {
            let share = wrong_share(CODES_MIN, times);

            assert!(share < most, "{share} at {times} times the estimate");
        }
    }

    /// Nodes read filled blocks back from files. If this test fails, raise the version of their format.
    #[test]
    fn bits_keep_their_places_in_files() {
        for (hash, block, bits) in [
            (0x0123_4567_89ab_cdef, 6_982, [33, 46, 52, 57, 40, 51, 9, 20]),
            (0xfedc_ba98_7654_3210, 9_299, [2, 22, 48, 45, 58, 33, 7, 0]),
        ] {
            let hash = CodeHash(hash);
            assert_eq!(block_of(hash, 10_000), block);
            let mut filled = [0; BLOCK_BYTES];
            assert!(insert_into(&mut filled, hash));
            let words: Vec<u64> = filled.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
            assert_eq!(words, bits.map(|bit| 1_u64 << bit));
        }
    }

    #[test]
    fn the_same_codes_again_take_no_room() {
        let mut filter = CodeFilter::with_capacity(CODES_MIN);
        let before = filter.memory_bytes();
        for _ in 0..10 {
            owned().take(CODES_MIN).for_each(|hash| filter.insert(hash));
        }
        assert_eq!(filter.memory_bytes(), before);
        assert!(filter.len() <= CODES_MIN);
    }

    #[test]
    fn memory_is_twelve_bits_a_code_and_grows_with_them() {
        const CODES: usize = 1 << 17;
        let mut filter = CodeFilter::with_capacity(CODES);
        let exact = filter.memory_bytes();
        assert!(exact <= CODES as u64 * 12 / 8 + 1024, "{exact} bytes");
        for number in 0..10 * CODES as u64 {
            filter.insert(CodeHash(number));
        }
        let bits = filter.memory_bytes() as f64 * 8.0 / filter.len() as f64;
        assert!(bits < 22.0, "{bits} bits a code after ten times the estimate");
    }
}
