//! Random codes. A private code is too long to be guessed, so that only those who were given a link can find it. A random
//! slug has the length that a client asks for.

use std::io;

use carom_shards::Code;
use carom_shards::code::ALPHABET;

use super::slugs::{SlugError, SlugRules};
use carom_limits::PRIVATE_CODE_LEN;

/// Number of characters of issued codes: all but the two that are for slugs only.
const CHARACTERS: usize = 62;

/// Number of characters in lower case, digits among them.
const LOWER_CHARACTERS: usize = 36;

/// A slug to generate: a prefix that the client chose, and a number of random characters behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomSlug {
    prefix: String,
    len: usize,
    /// True if the random characters have no letters in upper case.
    is_lower: bool,
}

impl RandomSlug {
    /// Returns the request for `len` random characters behind `prefix`.
    ///
    /// # Errors
    /// The reason why a client cannot have such a slug: a character that slugs cannot have, too many of them, or a first
    /// segment that is reserved.
    pub fn new(prefix: &str, len: usize, rules: SlugRules) -> Result<RandomSlug, SlugError> {
        let prefix = rules.beginning(prefix).into_owned();
        rules.parse(&format!("{prefix}{}", "0".repeat(len)))?;
        Ok(RandomSlug { prefix, len, is_lower: rules.ignores_case() })
    }

    /// Generates a slug from the operating system's random generator, uniformly.
    ///
    /// # Errors
    /// The error of the system if it provides no random bytes.
    pub fn generate(&self) -> io::Result<Code> {
        loop {
            let mut slug = self.prefix.clone().into_bytes();
            slug.extend(random_characters(self.len, self.is_lower, system_bytes)?);
            let code = Code::from_slug(&slug).map_err(io::Error::other)?;
            // Few slugs are reserved, so the next one is free of that with near certainty.
            if !code.is_reserved() {
                return Ok(code);
            }
        }
    }
}

/// Generates a code of [`PRIVATE_CODE_LEN`] characters from the operating system's random generator, uniformly.
///
/// # Errors
/// The error of the system if it provides no random bytes.
pub fn generate() -> io::Result<Code> {
    let drawn = random_characters(PRIVATE_CODE_LEN, false, system_bytes)?;
    Code::parse(&drawn).map_err(io::Error::other)
}

fn system_bytes(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// Generates characters of issued codes, or only those without letters in upper case, each with the same probability.
fn random_characters(
    len: usize,
    is_lower: bool,
    mut fill: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let characters = if is_lower { LOWER_CHARACTERS } else { CHARACTERS };
    let mut drawn = Vec::with_capacity(len);
    while drawn.len() < len {
        let mut bytes = [0; 2 * PRIVATE_CODE_LEN];
        fill(&mut bytes)?;
        // Six bits have 64 values. Those without a character are rejected, which keeps the distribution uniform.
        let indexes = bytes.into_iter().map(|byte| usize::from(byte & 0x3f)).filter(|index| *index < characters);
        let missing = len - drawn.len();
        let character = |index: usize| if is_lower { ALPHABET[index].to_ascii_lowercase() } else { ALPHABET[index] };
        drawn.extend(indexes.take(missing).map(character));
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::slugs::SlugCase;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn codes_are_long_different_and_even() {
        let codes: HashSet<String> = (0..10_000).map(|_| generate().unwrap().to_string()).collect();
        assert_eq!(codes.len(), 10_000);
        let mut counts: HashMap<char, u32> = HashMap::new();
        codes.iter().flat_map(|code| code.chars()).for_each(|character| *counts.entry(character).or_default() += 1);
        assert_eq!(counts.len(), CHARACTERS);
        // 160,000 characters, so 2,581 of each are expected; five standard deviations are 252.
        assert!(counts.values().all(|count| (2_300..2_860).contains(count)), "{counts:?}");
        assert!(
            codes.iter().all(|code| code.len() == PRIVATE_CODE_LEN && code.chars().all(|c| c.is_ascii_alphanumeric()))
        );
    }

    #[test]
    fn bytes_that_stand_for_no_character_are_thrown_away() {
        let mut calls = 0;
        let drawn = random_characters(16, false, |bytes| {
            calls += 1;
            bytes.fill(if calls < 3 { 63 } else { 0 });
            Ok(())
        });
        assert_eq!((drawn.unwrap(), calls), ("0".repeat(16).into_bytes(), 3));
    }

    #[test]
    fn a_random_slug_has_its_prefix_and_length() {
        let plain = SlugRules::default();
        let slug = RandomSlug::new("sale-", 40, plain).unwrap();
        let (one, other) = (slug.generate().unwrap().to_string(), slug.generate().unwrap().to_string());
        assert!(one.starts_with("sale-"), "{one}");
        assert!(one.len() == 45, "{one}");
        assert!(one["sale-".len()..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
        assert_ne!(one, other);
        assert!(RandomSlug::new("a/", 7, plain).is_err());
        assert!(RandomSlug::new(&"a".repeat(60), 5, plain).is_err());
    }

    #[test]
    fn a_random_slug_keeps_the_rules() {
        let loose = SlugRules { multi_segment: true, case: SlugCase::Insensitive };
        let slug = RandomSlug::new("/Docs/", 50, loose).unwrap().generate().unwrap().to_string();
        assert!(slug.starts_with("docs/"), "{slug}");
        assert!(slug.len() == 55, "{slug}");
        assert!(slug["docs/".len()..].bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()), "{slug}");
        // Every slug with this beginning is reserved.
        assert_eq!(RandomSlug::new("rest/", 7, loose), Err(SlugError::Reserved));
    }
}
