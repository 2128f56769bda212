//! The characters of a slug and their six-bit values.

/// The characters of a code in the order of their six-bit values. The first 62 are those of generated codes.
pub const ALPHABET: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// Six-bit value of each byte, or `NO_SEXTET` if the byte is no code character.
pub(super) const SEXTETS: [u8; 256] = sextets();

/// The value of a byte that is no code character.
pub(super) const NO_SEXTET: u8 = 0xff;

/// The separator between the segments of a slug.
pub(super) const SLASH: u8 = b'/';

const fn sextets() -> [u8; 256] {
    let mut table = [NO_SEXTET; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        table[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    table
}
