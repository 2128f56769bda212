//! A second hash from the first, for tables that must not depend on which core owns a code.

use crate::code::CodeHash;

/// Spreads all bits of the hash over each bit of the result: the finaliser of SplitMix64 (Steele, Lea, Flood 2014,
/// "Fast splittable pseudorandom number generators"). The codes of one owner share the upper bits of their hash, and
/// those of one bucket of the map the lower ones; the result shows neither.
#[inline]
pub(crate) fn mix(hash: CodeHash) -> u64 {
    let mut bits = hash.0;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Returns a place below `places`, taken from the upper half of the bits (multiply and shift, as for the owner of a
/// code).
#[inline]
pub(crate) fn place(mixed: u64, places: u32) -> usize {
    (((mixed >> 32) * u64::from(places)) >> 32) as usize
}
