//! Private codes: random codes that are too long to be guessed, so that only those who were given a link can find it.

use std::io;

use carom_shards::Code;
use carom_shards::code::ALPHABET;

use carom_limits::PRIVATE_CODE_LEN;

/// Number of characters of issued codes: all but the two that are for slugs only.
const CHARACTERS: u8 = 62;

/// Draws a code of [`PRIVATE_CODE_LEN`] characters from the operating system's random generator, uniformly.
///
/// # Errors
/// The error of the system if it provides no random bytes.
pub fn draw() -> io::Result<Code> {
    draw_from(|bytes| getrandom::fill(bytes).map_err(io::Error::other))
}

fn draw_from(mut fill: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<Code> {
    let mut drawn = [0; PRIVATE_CODE_LEN];
    let mut count = 0;
    while count < PRIVATE_CODE_LEN {
        let mut bytes = [0; 2 * PRIVATE_CODE_LEN];
        fill(&mut bytes)?;
        // Six bits have 64 values. The two without a character are rejected, which keeps the distribution uniform.
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
        // 160,000 characters, so 2,581 of each are expected; five standard deviations are 252.
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
