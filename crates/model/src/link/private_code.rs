//! Codes that nobody can come upon: random ones, for links that only those find who were given them.

use std::io;

use carom_shards::Code;
use carom_shards::code::ALPHABET;

use carom_limits::PRIVATE_CODE_LEN;

/// Characters of issued codes: all but the two that only slugs have.
const CHARACTERS: u8 = 62;

/// Draws one: [`PRIVATE_CODE_LEN`] characters from the operating system's generator, each as likely as any other.
///
/// # Errors
/// Where the system gives no random bytes.
pub fn draw() -> io::Result<Code> {
    draw_from(|bytes| getrandom::fill(bytes).map_err(io::Error::other))
}

fn draw_from(mut fill: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<Code> {
    let mut drawn = [0; PRIVATE_CODE_LEN];
    let mut count = 0;
    while count < PRIVATE_CODE_LEN {
        let mut bytes = [0; 2 * PRIVATE_CODE_LEN];
        fill(&mut bytes)?;
        // What is left of six bits beyond the characters is thrown away, so that none is more likely.
        for index in bytes.into_iter().map(|byte| byte & 0x3f).filter(|index| *index < CHARACTERS) {
            if count < PRIVATE_CODE_LEN {
                drawn[count] = ALPHABET[usize::from(index)];
                count += 1;
            }
        }
    }
    Code::parse(&drawn).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn codes_are_long_different_and_even() {
        let codes: HashSet<String> = (0..10_000).map(|_| draw().unwrap().to_string()).collect();
        assert_eq!(codes.len(), 10_000);
        let mut counts: HashMap<char, u32> = HashMap::new();
        codes.iter().flat_map(|code| code.chars()).for_each(|character| *counts.entry(character).or_default() += 1);
        assert_eq!(counts.len(), usize::from(CHARACTERS));
        // 160,000 characters, 2,581 of each to be expected; five standard deviations are 252.
        assert!(counts.values().all(|count| (2_300..2_860).contains(count)), "{counts:?}");
        assert!(
            codes.iter().all(|code| code.len() == PRIVATE_CODE_LEN && code.chars().all(|c| c.is_ascii_alphanumeric()))
        );
    }

    #[test]
    fn bytes_that_stand_for_no_character_are_thrown_away() {
        let mut calls = 0;
        let code = draw_from(|bytes| {
            calls += 1;
            bytes.fill(if calls < 3 { 63 } else { 0 });
            Ok(())
        });
        assert_eq!((code.unwrap().to_string(), calls), ("0".repeat(16), 3));
    }
}
