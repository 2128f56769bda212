//! API keys: their text, and what is kept of them.
//!
//! A key is `carom_ak_`, 27 characters of `0-9A-Za-z` for 160 random bits, and 6 for the CRC-32 of what stands before: so
//! programs that look for secrets in code and logs can tell a key from what only looks like one, without asking anybody.
//! What is kept is the SHA-256 of the text. The bits are random and many, so nothing is gained by a slow hash or a salt.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What every key begins with.
pub const PREFIX: &str = "carom_ak_";

const RANDOM_BYTES: usize = 20;
const BODY_LEN: usize = 27;
const CHECK_LEN: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key. It is shown once, to whoever asked for it, and kept nowhere.
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn draw() -> Result<Key, getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        Ok(Key::of(random))
    }

    fn of(random: [u8; RANDOM_BYTES]) -> Key {
        let text = [PREFIX.as_bytes(), &digits::<BODY_LEN>(random.to_vec())].concat();
        let check = digits::<CHECK_LEN>(crc32fast::hash(&text).to_be_bytes().to_vec());
        Key(String::from_utf8([&text[..], &check].concat()).expect("digits are ASCII"))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.as_bytes())
    }
}

/// Whether a text has the form of a key, as a program that looks for secrets would find out. Nobody here asks: what has the
/// form and is no key takes as long as anything else.
#[cfg(test)]
fn is_well_formed(text: &str) -> bool {
    let Some(body) = text.strip_prefix(PREFIX) else { return false };
    let is_long = body.len() == BODY_LEN + CHECK_LEN && body.bytes().all(|byte| DIGITS.contains(&byte));
    is_long && {
        let (said, check) = text.split_at(text.len() - CHECK_LEN);
        digits::<CHECK_LEN>(crc32fast::hash(said.as_bytes()).to_be_bytes().to_vec()) == check.as_bytes()
    }
}

/// The SHA-256 of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// That of any bytes.
    pub fn of(text: &[u8]) -> KeyHash {
        KeyHash(Sha256::digest(text).into())
    }

    /// What [`KeyHash::to_hex`] gave.
    pub fn from_hex(text: &str) -> Option<KeyHash> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(KeyHash)
    }

    /// As text.
    pub fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// What the key is called where people speak of it: 12 hexadecimal digits, which say nothing of its text.
    pub fn id(self) -> String {
        self.to_hex()[..12].to_owned()
    }

    /// Where to look for it.
    pub(super) fn place(self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// Whether it is the same, in a time that does not depend on how much of it is.
    pub fn is(self, other: KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A number, its highest byte first, as that many digits to the base 62.
fn digits<const N: usize>(mut number: Vec<u8>) -> [u8; N] {
    let mut out = [b'0'; N];
    for digit in out.iter_mut().rev() {
        let mut rest = 0;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            (*byte, rest) = ((value / 62) as u8, value % 62);
        }
        *digit = DIGITS[rest as usize];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_have_one_form() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926, "the check value of the standard");
        assert_eq!(Key::of([0; 20]).as_str().len(), PREFIX.len() + 33);
        assert_eq!(&Key::of([0xff; 20]).as_str()[9..36], "aWgEPTl1tmebfsQzFP4bxwgy80V", "the largest number has room");
        let (a, b) = (Key::draw().unwrap(), Key::draw().unwrap());
        assert!(a.as_str() != b.as_str() && is_well_formed(a.as_str()));
        assert!(!format!("{a:?}").contains(a.as_str()), "nobody logs one by accident");
        assert_eq!(a.hash().id().len(), 12);
        let hash = a.hash().to_hex();
        assert!(KeyHash::from_hex(&hash.to_ascii_uppercase()).is_some_and(|read| read.is(a.hash())));
        for wrong in [&hash[1..], &hash[2..], &format!("{hash}00"), &format!("+f{}", &hash[2..])] {
            assert!(KeyHash::from_hex(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_not_a_key_is_told(random in any::<[u8; 20]>(), at in 0..42usize, digit in 0..62usize) {
            let key = Key::of(random);
            prop_assert!(is_well_formed(key.as_str()));
            let mut other = key.as_str().as_bytes().to_vec();
            other[at] = DIGITS[digit];
            let other = String::from_utf8(other).unwrap();
            prop_assert_eq!(is_well_formed(&other), other == key.as_str());
            prop_assert_eq!(KeyHash::of(other.as_bytes()).is(key.hash()), other == key.as_str());
            let hash = key.hash();
            prop_assert!(KeyHash::from_hex(&hash.to_hex()).unwrap().is(hash));
        }

        #[test]
        fn reading_is_total(text in any::<String>()) {
            prop_assert!(!is_well_formed(&text) && KeyHash::from_hex(&text).is_none());
        }
    }
}
