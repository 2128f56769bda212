//! API keys: their text, and the hash that is stored.
//!
//! A key is `carom_ak_`, 27 characters of `0-9A-Za-z` for 160 random bits, and 6 characters for the CRC-32 of the
//! preceding text. Secret scanners for code and logs can thus tell a key from a similar text offline. The stored hash
//! is the SHA-256 of the text. A slow hash or a salt would add nothing, because the key has enough random bits.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Beginning of every key.
pub const PREFIX: &str = "carom_ak_";

const RANDOM_BYTES: usize = 20;
const BODY_LEN: usize = 27;
const CHECK_LEN: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The text of an API key. It is shown once, after its creation, and stored nowhere.
pub struct ApiKey(String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl ApiKey {
    /// Generates a key.
    ///
    /// # Errors
    /// The error of the system if it provides no random bytes.
    pub fn generate() -> Result<ApiKey, getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        Ok(ApiKey::of(random))
    }

    fn of(random: [u8; RANDOM_BYTES]) -> ApiKey {
        let text = [PREFIX.as_bytes(), &digits::<BODY_LEN>(random.to_vec())].concat();
        let check = digits::<CHECK_LEN>(crc32fast::hash(&text).to_be_bytes().to_vec());
        ApiKey(String::from_utf8([&text[..], &check].concat()).expect("digits are ASCII"))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash of the key, which is stored.
    pub fn hash(&self) -> ApiKeyHash {
        ApiKeyHash::of(self.0.as_bytes())
    }
}

/// True for a text in the form of a key, as secret scanners check it. The server does not check the form, so that an
/// invalid key takes as long to reject as any other.
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
pub struct ApiKeyHash([u8; 32]);

impl ApiKeyHash {
    /// Hashes the text of a key, or any bytes.
    pub fn of(text: &[u8]) -> ApiKeyHash {
        ApiKeyHash(Sha256::digest(text).into())
    }

    /// Parses a text from [`ApiKeyHash::to_hex`]; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<ApiKeyHash> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(ApiKeyHash)
    }

    /// Returns the hash as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns the public ID of the key: 12 hexadecimal digits, which reveal nothing of its text.
    pub fn id(self) -> String {
        self.to_hex()[..12].to_owned()
    }

    /// Returns the bucket of the hash in a [`Keyring`](super::registry::Keyring).
    pub(super) fn place(self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// Compares two hashes in constant time.
    pub fn is(self, other: ApiKeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Formats a big-endian number as `N` digits to the base 62.
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
        assert_eq!(ApiKey::of([0; 20]).as_str().len(), PREFIX.len() + 33);
        assert_eq!(
            &ApiKey::of([0xff; 20]).as_str()[9..36],
            "aWgEPTl1tmebfsQzFP4bxwgy80V",
            "the largest number has room"
        );
        let (a, b) = (ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
        assert!(a.as_str() != b.as_str());
        assert!(is_well_formed(a.as_str()));
        assert!(!format!("{a:?}").contains(a.as_str()), "nobody logs one by accident");
        assert_eq!(a.hash().id().len(), 12);
        let hash = a.hash().to_hex();
        assert!(ApiKeyHash::from_hex(&hash.to_ascii_uppercase()).is_some_and(|read| read.is(a.hash())));
        for wrong in [&hash[1..], &hash[2..], &format!("{hash}00"), &format!("+f{}", &hash[2..])] {
            assert!(ApiKeyHash::from_hex(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_not_a_key_is_told(random in any::<[u8; 20]>(), at in 0..42usize, digit in 0..62usize) {
            let key = ApiKey::of(random);
            prop_assert!(is_well_formed(key.as_str()));
            let mut other = key.as_str().as_bytes().to_vec();
            other[at] = DIGITS[digit];
            let other = String::from_utf8(other).unwrap();
            prop_assert_eq!(is_well_formed(&other), other == key.as_str());
            prop_assert_eq!(ApiKeyHash::of(other.as_bytes()).is(key.hash()), other == key.as_str());
            let hash = key.hash();
            prop_assert!(ApiKeyHash::from_hex(&hash.to_hex()).unwrap().is(hash));
        }

        #[test]
        fn reading_is_total(text in any::<String>()) {
            prop_assert!(!is_well_formed(&text));
            prop_assert!(ApiKeyHash::from_hex(&text).is_none());
        }
    }
}
