//! FF1, the format-preserving encryption of NIST SP 800-38G, made small enough for short codes.
//!
//! FF1 is a Feistel network of ten rounds over the two halves of a numeral string, with AES in CBC-MAC mode as its
//! round function. For the strings of a code every half fits 64 bits, and everything that the MAC reads before the
//! round number is the same for all strings of one length. So that part is computed once, and a round is one AES block
//! and one remainder, without allocation. Many strings at once go through each round together, because AES units work
//! on many blocks in the time that one takes. That makes a code about ten times cheaper. This module knows nothing of
//! codes or counters: see [`crate::space`] for those.
//!
//! NIST asks for domains of at least 1,000,000 strings (SP 800-38G Revision 1). The lengths that can be configured, 6
//! to 10 characters of radix 62, have 5.7e10 and more; shorter ones are accepted because tests walk them completely.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes256Enc, Block};

/// Rounds of the Feistel network (SP 800-38G, algorithm 7).
const ROUNDS: u8 = 10;

/// The largest radix: the characters of generated codes.
pub const RADIX_MAX: u64 = 62;

/// The longest numeral string: halves of ten numerals fit 64 bits at every radix.
pub const NUMERALS_MAX: usize = 20;

/// Strings that go through a round together: as many as the widest AES units take.
const LANES: usize = 64;

/// The two halves of a numeral string, each as a number with its most significant numeral first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halves {
    /// The first `floor(n / 2)` numerals.
    pub left: u64,
    /// The remaining numerals.
    pub right: u64,
}

/// FF1 with AES-256 for the numeral strings of one radix, length and tweak. The round keys are zeroed when it is
/// dropped.
#[derive(Clone)]
pub struct Permutation {
    cipher: Aes256Enc,
    /// The last block that the MAC reads, without the round number and the half: the state that CBC has reached,
    /// exclusive-or the end of the tweak and its padding.
    block: u128,
    /// Position of the round number in that block, in bits from its end: the half takes the bytes behind it.
    round_shift: u32,
    /// Number of strings that the left half can be, `radix^u`.
    left: Modulus,
    /// Number of strings that the right half can be, `radix^v`.
    right: Modulus,
    /// Bits of the MAC that are thrown away: 64 for short halves, 32 for long ones.
    surplus_bits: u32,
}

impl Permutation {
    /// Returns the permutation of the strings of `numerals` numerals below `radix`, under `key` and `tweak`.
    ///
    /// # Panics
    /// If `radix` is not 2 to [`RADIX_MAX`] or `numerals` not 2 to [`NUMERALS_MAX`]: both are fixed by the program.
    pub fn new(key: &[u8; 32], radix: u64, numerals: usize, tweak: &[u8]) -> Permutation {
        assert!((2..=RADIX_MAX).contains(&radix) && (2..=NUMERALS_MAX).contains(&numerals));
        let cipher = Aes256Enc::new(key.into());
        let (left, right) = (numerals / 2, numerals - numerals / 2);
        let right_size = radix.pow(right as u32);
        // b of the standard, ceil(ceil(v * log2(radix)) / 8), without floating point.
        let half_bytes = (u64::BITS - (right_size - 1).leading_zeros()).div_ceil(8) as usize;
        // d of the standard is 8 or 12, so one block of the MAC is always enough for it.
        let mac_bytes = 4 * half_bytes.div_ceil(4) + 4;
        assert!(half_bytes <= 8, "a half does not fit the 64 bits of its number");
        assert!(mac_bytes == 8 || mac_bytes == 12, "the bytes of the MAC are not those of one block");

        let mut header = [1, 2, 1, 0, 0, radix as u8, ROUNDS, left as u8, 0, 0, 0, numerals as u8, 0, 0, 0, 0];
        header[12..].copy_from_slice(&(tweak.len() as u32).to_be_bytes());
        let mut read = header.to_vec();
        read.extend_from_slice(tweak);
        // Zeros up to where round number and half fill the last block exactly; they themselves are zero here.
        read.resize((read.len() + 1 + half_bytes).next_multiple_of(16), 0);
        assert!(read.len().is_multiple_of(16), "the MAC reads whole blocks");
        let (before, last) = read.split_last_chunk::<16>().expect("there is at least the header");
        let mut state = 0u128;
        for block in before.as_chunks::<16>().0 {
            state = encrypt_block(&cipher, state ^ u128::from_be_bytes(*block));
        }
        Permutation {
            cipher,
            block: state ^ u128::from_be_bytes(*last),
            round_shift: 8 * half_bytes as u32,
            left: Modulus::new(radix.pow(left as u32)),
            right: Modulus::new(right_size),
            surplus_bits: 8 * (16 - mac_bytes as u32),
        }
    }

    /// Returns the number of strings that the right half can be: a number is split into halves by dividing it by this.
    #[inline]
    pub fn right_size(&self) -> u64 {
        self.right.size
    }

    /// Returns the number of strings that the left half can be.
    #[inline]
    pub fn left_size(&self) -> u64 {
        self.left.size
    }

    /// Returns the image of a string.
    ///
    /// # Panics
    /// If a half is out of range.
    pub fn encrypt(&self, Halves { left, right }: Halves) -> Halves {
        self.check(left, right);
        let (mut a, mut b) = (left, right);
        // Two rounds at a time: the halves swap roles, and with them sizes, after each.
        for round in (0..ROUNDS).step_by(2) {
            a = self.left.add(a, self.mac(round, b, self.left));
            b = self.right.add(b, self.mac(round + 1, a, self.right));
        }
        Halves { left: a, right: b }
    }

    /// Replaces each string by its image.
    ///
    /// # Panics
    /// If a half is out of range.
    pub fn encrypt_all(&self, strings: &mut [Halves]) {
        for strings in strings.chunks_mut(LANES) {
            let (mut a, mut b) = ([0; LANES], [0; LANES]);
            let (a, b) = (&mut a[..strings.len()], &mut b[..strings.len()]);
            for ((a, b), string) in a.iter_mut().zip(&mut *b).zip(&*strings) {
                self.check(string.left, string.right);
                (*a, *b) = (string.left, string.right);
            }
            for round in (0..ROUNDS).step_by(2) {
                self.round_of_all(round, b, a, self.left);
                self.round_of_all(round + 1, a, b, self.right);
            }
            for ((left, right), string) in a.iter().zip(&*b).zip(strings) {
                *string = Halves { left: *left, right: *right };
            }
        }
    }

    /// Adds the round function of the halves `of` to the halves `to`.
    fn round_of_all(&self, round: u8, of: &[u64], to: &mut [u64], modulus: Modulus) {
        let mut blocks = [Block::default(); LANES];
        let blocks = &mut blocks[..of.len()];
        for (block, &half) in blocks.iter_mut().zip(of) {
            *block = self.input(round, half).to_be_bytes().into();
        }
        self.cipher.encrypt_blocks(blocks);
        for (half, &block) in to.iter_mut().zip(&*blocks) {
            *half = modulus.add(*half, self.reduce(u128::from_be_bytes(block.into()), modulus));
        }
    }

    /// Returns the string whose image is given.
    ///
    /// # Panics
    /// If a half is out of range.
    pub fn decrypt(&self, Halves { left, right }: Halves) -> Halves {
        self.check(left, right);
        let (mut a, mut b) = (left, right);
        for round in (0..ROUNDS).step_by(2).rev() {
            b = self.right.subtract(b, self.mac(round + 1, a, self.right));
            a = self.left.subtract(a, self.mac(round, b, self.left));
        }
        Halves { left: a, right: b }
    }

    #[inline]
    fn check(&self, left: u64, right: u64) {
        assert!(left < self.left.size && right < self.right.size, "a half is out of the permutation's range");
    }

    /// Returns the round function, modulo the size of the half that it is added to.
    #[inline]
    fn mac(&self, round: u8, half: u64, modulus: Modulus) -> u64 {
        self.reduce(encrypt_block(&self.cipher, self.input(round, half)), modulus)
    }

    /// Returns the last block that the MAC reads.
    #[inline]
    fn input(&self, round: u8, half: u64) -> u128 {
        self.block ^ u128::from(round) << self.round_shift ^ u128::from(half)
    }

    /// Returns the first d bytes of a MAC, as a number, modulo a size.
    #[inline]
    fn reduce(&self, mac: u128, modulus: Modulus) -> u64 {
        if self.surplus_bits == 64 {
            return modulus.reduce((mac >> 64) as u64);
        }
        ((mac >> self.surplus_bits) % u128::from(modulus.size)) as u64
    }
}

/// Arithmetic modulo the size of a half, which is at most 62^10, below 2^60.
#[derive(Clone, Copy)]
struct Modulus {
    size: u64,
    /// 2^64 divided by the size, rounded down (and one less for powers of two).
    reciprocal: u64,
}

impl Modulus {
    fn new(size: u64) -> Modulus {
        assert!((2..1 << 60).contains(&size), "the sum of two numbers could exceed 64 bits");
        Modulus { size, reciprocal: u64::MAX / size }
    }

    /// Returns `number` modulo the size. The product with the reciprocal gives the quotient or one less (Barrett 1986),
    /// and a multiplication takes a fraction of the time of a division.
    #[inline]
    fn reduce(self, number: u64) -> u64 {
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = number - quotient * self.size;
        let rest = if rest >= self.size { rest - self.size } else { rest };
        debug_assert!(rest < self.size, "the quotient was more than one too low");
        rest
    }

    /// Returns `a + b` for numbers below the size.
    #[inline]
    fn add(self, a: u64, b: u64) -> u64 {
        debug_assert!(a < self.size && b < self.size, "one subtraction does not reduce the sum");
        let sum = a + b;
        if sum >= self.size { sum - self.size } else { sum }
    }

    /// Returns `a - b` for numbers below the size.
    #[inline]
    fn subtract(self, a: u64, b: u64) -> u64 {
        debug_assert!(a < self.size && b < self.size, "one addition does not reduce the difference");
        if a >= b { a - b } else { a + self.size - b }
    }
}

impl std::fmt::Debug for Permutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The cipher's state is as secret as the key.
        f.debug_struct("Permutation")
            .field("left_size", &self.left.size)
            .field("right_size", &self.right.size)
            .finish_non_exhaustive()
    }
}

#[inline]
fn encrypt_block(cipher: &Aes256Enc, block: u128) -> u128 {
    let mut bytes = block.to_be_bytes().into();
    cipher.encrypt_block(&mut bytes);
    u128::from_be_bytes(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpe::ff1::{FF1, FlexibleNumeralString};
    use proptest::prelude::*;

    /// Key of the AES-256 samples 7, 8 and 9 of NIST's "FF1 samples".
    const SAMPLE_KEY: [u8; 32] = [
        0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c, 0xef, 0x43,
        0x59, 0xd8, 0xd5, 0x80, 0xaa, 0x4f, 0x7f, 0x03, 0x6d, 0x6f, 0x04, 0xfc, 0x6a, 0x94,
    ];

    fn number(numerals: &[u16], radix: u64) -> u64 {
        numerals.iter().fold(0, |number, &numeral| number * radix + u64::from(numeral))
    }

    fn halves(numerals: &[u16], radix: u64) -> Halves {
        let (left, right) = numerals.split_at(numerals.len() / 2);
        Halves { left: number(left, radix), right: number(right, radix) }
    }

    /// Numerals of the samples: digits, then small letters.
    fn numerals(text: &str) -> Vec<u16> {
        text.chars().map(|c| c.to_digit(36).unwrap() as u16).collect()
    }

    #[test]
    fn published_samples_hold() {
        let samples: [(u64, &[u8], &str, &str); 3] = [
            (10, b"", "0123456789", "6657667009"),
            (10, b"9876543210", "0123456789", "1001623463"),
            (36, b"7777pqrs777", "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"),
        ];
        for (radix, tweak, plain, cipher) in samples {
            let permutation = Permutation::new(&SAMPLE_KEY, radix, plain.len(), tweak);
            let (plain, cipher) = (halves(&numerals(plain), radix), halves(&numerals(cipher), radix));
            assert_eq!(permutation.encrypt(plain), cipher, "radix {radix}");
            assert_eq!(permutation.decrypt(cipher), plain, "radix {radix}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Another implementation must agree on any key, tweak and string.
        #[test]
        fn agrees_with_fpe(
            key in any::<[u8; 32]>(),
            radix in prop_oneof![Just(10u64), Just(36), Just(62)],
            seeds in proptest::collection::vec(any::<u16>(), 4..=NUMERALS_MAX),
            tweak in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            // fpe refuses domains below a million strings.
            prop_assume!((radix as f64).powi(seeds.len() as i32) >= 1e6);
            let plain: Vec<u16> = seeds.iter().map(|seed| seed % radix as u16).collect();
            let oracle = FF1::<aes::Aes256>::new(&key, radix as u32).unwrap();
            let expected: Vec<u16> =
                oracle.encrypt(&tweak, &FlexibleNumeralString::from(plain.clone())).unwrap().into();
            let permutation = Permutation::new(&key, radix, plain.len(), &tweak);
            let image = permutation.encrypt(halves(&plain, radix));
            prop_assert_eq!(image, halves(&expected, radix));
            prop_assert_eq!(permutation.decrypt(image), halves(&plain, radix));
        }

        /// The strings that are too short for the oracle still come back.
        #[test]
        fn short_strings_come_back(key in any::<[u8; 32]>(), radix in 2..=RADIX_MAX, numerals in 2usize..6, seed in any::<u64>()) {
            let permutation = Permutation::new(&key, radix, numerals, b"");
            let plain = Halves { left: seed % permutation.left_size(), right: (seed >> 32) % permutation.right_size() };
            prop_assert_eq!(permutation.decrypt(permutation.encrypt(plain)), plain);
        }
    }

    /// Many at once are the same as one after the other, also where they do not fill the last lanes.
    #[test]
    fn all_at_once_is_the_same() {
        for (numerals, strings) in [(2, 1), (7, 63), (7, 64), (10, 65), (20, 200)] {
            let permutation = Permutation::new(&SAMPLE_KEY, 62, numerals, b"");
            let (left, right) = (permutation.left_size(), permutation.right_size());
            let string = |seed: u64| Halves { left: seed * 977 % left, right: seed * 65_537 % right };
            let mut all: Vec<Halves> = (0..strings).map(string).collect();
            permutation.encrypt_all(&mut all);
            assert!(all.into_iter().eq((0..strings).map(|seed| permutation.encrypt(string(seed)))));
        }
    }

    proptest! {
        #[test]
        fn remainders_are_exact(size in 2..1u64 << 60, shift in 0u32..59, number in any::<u64>()) {
            for size in [(size >> shift).max(2), 1 << (shift + 1), 62u64.pow(1 + shift % 10)] {
                let modulus = Modulus::new(size);
                for number in [number, u64::MAX, number / size * size, (number / size * size).wrapping_sub(1)] {
                    prop_assert_eq!(modulus.reduce(number), number % size);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of the permutation's range")]
    fn a_half_out_of_range_is_a_contradiction() {
        Permutation::new(&SAMPLE_KEY, 10, 4, b"").encrypt(Halves { left: 0, right: 100 });
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", Permutation::new(&SAMPLE_KEY, 10, 4, b""));
        assert_eq!(shown, "Permutation { left_size: 100, right_size: 100, .. }");
    }
}
