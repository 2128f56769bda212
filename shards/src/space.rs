//! The code space: the secret key, the lengths of codes, and the way from a counter value to a code and back.
//!
//! Each length has its own counter, from 0 to 62^length - 1, and its own permutation of these numbers under the key. So
//! codes never collide, and without the key their order reveals nothing. [`crate::segment`] decides which counter
//! values are used next; where they are stored is not known here.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::code::GeneratedCode;
use crate::permutation::{Halves, Permutation};

/// Characters that a generated code can have at each place.
const RADIX: u64 = 62;

/// Bytes of a [`CodeSecret`].
pub const SPACE_KEY_BYTES: usize = 32;

/// The secret key of a code space: with it one can list all codes in the order of their creation.
///
/// The bytes are overwritten with zeros when the key is dropped. Copies that the compiler made while moving it are out
/// of reach.
#[derive(Clone, PartialEq, Eq)]
pub struct CodeSecret([u8; SPACE_KEY_BYTES]);

/// The reason why a text is no key. It never holds a character of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeSecretError {
    /// The text does not have 64 characters.
    WrongLength {
        /// Length of the text in bytes, without surrounding white space.
        len: usize,
    },
    /// A character of the text is no hex digit.
    BadDigit {
        /// Position of the character, from 0, without leading white space.
        at: usize,
    },
}

impl fmt::Display for CodeSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeSecretError::WrongLength { len } => {
                write!(f, "a code secret has {} hexadecimal digits, not {len} characters", 2 * SPACE_KEY_BYTES)
            }
            CodeSecretError::BadDigit { at } => {
                write!(f, "character {} of the code secret is not a hexadecimal digit", at + 1)
            }
        }
    }
}

impl std::error::Error for CodeSecretError {}

impl CodeSecret {
    /// Returns the key of these bytes, which should come from the operating system's random generator.
    pub fn from_bytes(bytes: [u8; SPACE_KEY_BYTES]) -> CodeSecret {
        CodeSecret(bytes)
    }

    /// Parses a key from 64 hex digits of either case. White space around them is ignored.
    ///
    /// # Errors
    /// [`CodeSecretError`] for anything else.
    pub fn from_hex(text: &str) -> Result<CodeSecret, CodeSecretError> {
        let text = text.trim().as_bytes();
        // The first wrong character is the better message if both are wrong: a copied quote, say.
        if let Some(at) = text.iter().position(|byte| !byte.is_ascii_hexdigit()) {
            return Err(CodeSecretError::BadDigit { at });
        }
        if text.len() != 2 * SPACE_KEY_BYTES {
            return Err(CodeSecretError::WrongLength { len: text.len() });
        }
        let mut key = CodeSecret([0; SPACE_KEY_BYTES]);
        let decoded = HEXLOWER_PERMISSIVE.decode_mut(text, &mut key.0);
        assert!(decoded.is_ok(), "length and digits were checked");
        Ok(key)
    }

    /// Returns the key as 64 small hex digits. The caller keeps them secret.
    pub fn to_hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns a public fingerprint of the key, 16 hex digits: the start of SHA-256 of a label and the key. Nodes
    /// compare it to notice different keys.
    ///
    /// The fingerprint does not help to find the key. The key is 256 random bits, too many to try, and SHA-256 cannot
    /// be inverted. The label, used for nothing else, separates it from the tags of [`CodeSecret::mark`].
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::new().chain_update(b"carom code space key v1").chain_update(self.0).finalize();
        HEXLOWER.encode(&digest[..8])
    }

    /// Returns a tag of a message that only the key can produce: 32 hex digits, the first half of its HMAC-SHA-256 (RFC
    /// 2104). Tags for one purpose reveal nothing about those for another.
    pub fn mark(&self, purpose: &str, message: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length is one");
        mac.update(&(purpose.len() as u64).to_le_bytes());
        mac.update(purpose.as_bytes());
        mac.update(message);
        HEXLOWER.encode(&mac.finalize().into_bytes()[..16])
    }
}

impl Drop for CodeSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for CodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeSecret(fingerprint {})", self.fingerprint())
    }
}

/// The number of characters of generated codes, 2 to 10. The configuration allows 6 to 10; tests walk shorter ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CodeLength(u8);

impl CodeLength {
    /// The shortest length: FF1 needs two halves.
    pub const MIN: CodeLength = CodeLength(2);
    /// The longest length that a [`GeneratedCode`] holds.
    pub const MAX: CodeLength = CodeLength(GeneratedCode::LEN_MAX as u8);
    /// Seven characters, 3.5e12 codes.
    pub const DEFAULT: CodeLength = CodeLength(7);

    /// Returns a length; `None` outside 2 to 10.
    pub fn new(characters: usize) -> Option<CodeLength> {
        let length = CodeLength(u8::try_from(characters).ok()?);
        (Self::MIN..=Self::MAX).contains(&length).then_some(length)
    }

    /// Returns the number of characters.
    #[inline]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Returns how many codes of this length exist, 62^length.
    #[inline]
    pub fn codes(self) -> u64 {
        RADIX.pow(u32::from(self.0))
    }

    /// Returns the length with one more character, for when this one is used up; `None` after the longest.
    pub fn next(self) -> Option<CodeLength> {
        CodeLength::new(self.get() + 1)
    }

    /// Returns every length from this one on.
    pub fn and_longer(self) -> impl Iterator<Item = CodeLength> {
        (self.0..=Self::MAX.0).map(CodeLength)
    }

    /// Number of lengths.
    pub(crate) const COUNT: usize = (Self::MAX.0 - Self::MIN.0) as usize + 1;

    /// Returns the index among all lengths, from 0.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0 - Self::MIN.0)
    }
}

impl fmt::Display for CodeLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A value of the counter of one length: the place of a code in the order of creation, which the key hides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CounterValue(pub u64);

impl fmt::Display for CounterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// All generated codes under one key.
#[derive(Clone, Debug)]
pub struct CodeSpace {
    /// One permutation for each length, from [`CodeLength::MIN`] on. The length is part of what FF1 encrypts with, so
    /// they are independent of each other.
    permutations: Vec<Permutation>,
}

impl CodeSpace {
    /// Returns the code space of a key.
    pub fn new(key: &CodeSecret) -> CodeSpace {
        let permutation = |length: CodeLength| {
            let permutation = Permutation::new(&key.0, RADIX, length.get(), b"");
            assert_eq!(
                permutation.left_size() * permutation.right_size(),
                length.codes(),
                "the permutation has another size than the codes of its length"
            );
            permutation
        };
        CodeSpace { permutations: CodeLength::MIN.and_longer().map(permutation).collect() }
    }

    /// Returns the code of a counter value.
    ///
    /// # Panics
    /// If the counter is not below `length.codes()`: the issuer must stop there.
    pub fn code(&self, length: CodeLength, counter: CounterValue) -> GeneratedCode {
        assert!(counter.0 < length.codes(), "counter {counter} is beyond the codes of {length} characters");
        let permutation = &self.permutations[length.index()];
        code_of(length, permutation.encrypt(halves(permutation, counter)))
    }

    /// Returns the codes of `len` counter values from `start` on, in their order. About ten times as fast as one by
    /// one.
    ///
    /// # Panics
    /// If they go beyond `length.codes()`.
    pub fn codes(&self, length: CodeLength, start: CounterValue, len: u64) -> impl Iterator<Item = GeneratedCode> {
        let end = start.0.checked_add(len).filter(|&end| end <= length.codes());
        let end =
            end.unwrap_or_else(|| panic!("{len} counters from {start} go beyond the codes of {length} characters"));
        let permutation = &self.permutations[length.index()];
        (start.0..end).step_by(BATCH).flat_map(move |first| {
            let batch = first..end.min(first + BATCH as u64);
            let mut strings = [Halves { left: 0, right: 0 }; BATCH];
            let len = batch.clone().count();
            for (string, counter) in strings.iter_mut().zip(batch) {
                *string = halves(permutation, CounterValue(counter));
            }
            permutation.encrypt_all(&mut strings[..len]);
            strings.into_iter().take(len).map(move |image| code_of(length, image))
        })
    }

    /// Returns the length and counter value of a code; `None` for a single character, which no counter makes.
    pub fn counter(&self, code: GeneratedCode) -> Option<(CodeLength, CounterValue)> {
        let length = CodeLength::new(code.len())?;
        let permutation = &self.permutations[length.index()];
        let right_len = length.get() - length.get() / 2;
        let mut image = Halves { left: 0, right: 0 };
        for (place, digit) in code.digits().enumerate() {
            let half = if place < length.get() - right_len { &mut image.left } else { &mut image.right };
            *half = *half * RADIX + u64::from(digit);
        }
        let Halves { left, right } = permutation.decrypt(image);
        let counter = CounterValue(left * permutation.right_size() + right);
        debug_assert!(counter.0 < length.codes(), "the counter value has no code");
        debug_assert_eq!(self.code(length, counter), code, "the permutation does not undo itself");
        Some((length, counter))
    }
}

/// Counter values that are turned into codes together.
const BATCH: usize = 64;

/// Returns a counter value as the string that is permuted.
fn halves(permutation: &Permutation, counter: CounterValue) -> Halves {
    let right_size = permutation.right_size();
    Halves { left: counter.0 / right_size, right: counter.0 % right_size }
}

/// Returns the code that a permuted string stands for.
fn code_of(length: CodeLength, image: Halves) -> GeneratedCode {
    let mut digits = [0u8; GeneratedCode::LEN_MAX];
    let digits = &mut digits[..length.get()];
    let (left, right) = digits.split_at_mut(length.get() / 2);
    for (half, mut number) in [(left, image.left), (right, image.right)] {
        for digit in half.iter_mut().rev() {
            *digit = (number % RADIX) as u8;
            number /= RADIX;
        }
        debug_assert_eq!(number, 0, "the half has more digits than places");
    }
    GeneratedCode::from_digits(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space() -> CodeSpace {
        CodeSpace::new(&CodeSecret::from_bytes(*b"a key of thirty-two bytes, fixed"))
    }

    proptest! {
        #[test]
        fn keys_round_trip(bytes in any::<[u8; 32]>()) {
            let key = CodeSecret::from_bytes(bytes);
            prop_assert_eq!(&CodeSecret::from_hex(&key.to_hex()), &Ok(key.clone()));
            prop_assert_eq!(CodeSecret::from_hex(&format!(" {}\r\n", key.to_hex().to_uppercase())), Ok(key));
        }

        #[test]
        fn reading_a_key_is_total(text in any::<String>()) {
            let _ = CodeSecret::from_hex(&text);
        }

        #[test]
        fn counters_come_back(length in 2usize..=10, seed in any::<u64>()) {
            let length = CodeLength::new(length).unwrap();
            let counter = CounterValue(seed % length.codes());
            let code = space().code(length, counter);
            prop_assert_eq!(code.len(), length.get());
            prop_assert_eq!(space().counter(code), Some((length, counter)));
        }
    }

    #[test]
    fn key_errors_say_what_is_wrong_and_not_the_key() {
        assert_eq!(CodeSecret::from_hex(""), Err(CodeSecretError::WrongLength { len: 0 }));
        assert_eq!(CodeSecret::from_hex(&"0".repeat(63)), Err(CodeSecretError::WrongLength { len: 63 }));
        assert_eq!(CodeSecret::from_hex(&format!("  0x{}", "0".repeat(62))), Err(CodeSecretError::BadDigit { at: 1 }));
        assert_eq!(CodeSecret::from_hex("é"), Err(CodeSecretError::BadDigit { at: 0 }));
        assert_eq!(
            CodeSecretError::WrongLength { len: 63 }.to_string(),
            "a code secret has 64 hexadecimal digits, not 63 characters"
        );
    }

    #[test]
    fn a_key_is_shown_by_its_fingerprint_only() {
        let key = CodeSecret::from_bytes([0; 32]);
        assert_eq!(key.fingerprint().len(), 16);
        assert_eq!(format!("{key:?}"), format!("CodeSecret(fingerprint {})", key.fingerprint()));
        assert_ne!(key.fingerprint(), CodeSecret::from_bytes([1; 32]).fingerprint());
    }

    #[test]
    fn lengths_count_their_codes() {
        assert_eq!(CodeLength::new(2).unwrap().codes(), 3_844);
        assert_eq!(CodeLength::DEFAULT.codes(), 3_521_614_606_208);
        assert_eq!(CodeLength::MAX.codes(), 839_299_365_868_340_224);
        assert_eq!((CodeLength::new(1), CodeLength::new(11), CodeLength::MAX.next()), (None, None, None));
    }

    /// Every code of two and three characters comes from exactly one counter value.
    #[test]
    fn short_lengths_are_walked_completely() {
        let space = space();
        for length in [CodeLength::MIN, CodeLength::new(3).unwrap()] {
            let mut seen = vec![false; length.codes() as usize];
            for counter in (0..length.codes()).map(CounterValue) {
                let code = space.code(length, counter);
                assert_eq!(space.counter(code), Some((length, counter)));
                let number = code.digits().fold(0, |number, digit| number * 62 + usize::from(digit));
                assert!(!std::mem::replace(&mut seen[number], true), "{code:?} came twice");
            }
            assert!(seen.iter().all(|&seen| seen));
        }
    }

    #[test]
    fn many_codes_are_those_of_one_after_the_other() {
        let (space, length) = (space(), CodeLength::DEFAULT);
        for len in [0, 1, 64, 1_000] {
            let one_by_one = (5..5 + len).map(|counter| space.code(length, CounterValue(counter)));
            assert!(space.codes(length, CounterValue(5), len).eq(one_by_one));
        }
        assert_eq!(space.codes(CodeLength::MIN, CounterValue(3_800), 44).count(), 44);
    }

    #[test]
    #[should_panic(expected = "beyond the codes of 2 characters")]
    fn counters_beyond_the_length_are_a_contradiction() {
        let _ = space().codes(CodeLength::MIN, CounterValue(3_800), 45);
    }

    #[test]
    fn another_key_makes_other_codes() {
        let other = CodeSpace::new(&CodeSecret::from_bytes([7; 32]));
        let same = (0..1_000).filter(|&n| {
            other.code(CodeLength::DEFAULT, CounterValue(n)) == space().code(CodeLength::DEFAULT, CounterValue(n))
        });
        assert_eq!(same.count(), 0);
    }

    #[test]
    #[should_panic(expected = "beyond the codes of 2 characters")]
    fn a_counter_beyond_the_length_is_a_contradiction() {
        space().code(CodeLength::MIN, CounterValue(3_844));
    }
}
