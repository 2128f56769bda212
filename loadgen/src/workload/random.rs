//! Random numbers that a seed reproduces.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Returns an independent stream for each use (a thread's plan, a thread's traffic) of one seed. PCG's streams
/// differ in their increments; the low bits of the seed go into the state.
pub(crate) fn stream(seed: u64, number: u64) -> Pcg64 {
    let mut random = Pcg64::new(u128::from(seed) << 64 | 0x9e37_79b9_7f4a_7c15, u128::from(number) << 1 | 1);
    // The first outputs of neighbouring seeds resemble each other.
    (0..8).for_each(|_| _ = random.next_u64());
    random
}

/// Returns a number above 0 and up to 1, with 53 random bits.
pub(crate) fn open_unit(random: &mut Pcg64) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Returns a number below `bound`, which is above 0. Multiply-shift: the bias is below `bound` / 2^64.
pub(crate) fn below(random: &mut Pcg64, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}
