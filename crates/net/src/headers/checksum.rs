//! The Internet checksum (RFC 1071), in software.

use crate::headers::address::MappedAddress;

/// Adds the 16-bit words of `bytes` to `sum`. Every piece except the last must have an even length.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (half, rest) = rest.as_chunks::<4>();
    // Words in the byte order of the machine: only the sum is swapped (RFC 1071, 2 (B)).
    let with_carry = |own: u64, word: u64| {
        let (added, carries) = own.overflowing_add(word);
        added + u64::from(carries)
    };
    let mut own = words.iter().fold(0, |own, word| with_carry(own, u64::from_ne_bytes(*word)));
    own = half.iter().fold(own, |own, half| with_carry(own, u64::from(u32::from_ne_bytes(*half))));
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        own = with_carry(own, u64::from(u32::from_ne_bytes(last)));
    }
    sum + u64::from(u16::from_be(fold(own)))
}

/// Folds a sum into 16 bits, without the complement.
pub(crate) const fn fold(sum: u64) -> u16 {
    let mut sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Returns the sum of the pseudo-header of TCP (RFC 9293, 3.1; RFC 8200, 8.1). Both forms of an IPv4 address sum up
/// alike, once the prefix of the mapped form is left out.
pub(crate) fn pseudo_header(source: &MappedAddress, destination: &MappedAddress, protocol: u8, len: usize) -> u64 {
    u64::from(protocol) + len as u64 + source.sum() + destination.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_rfc_1071_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(add(0, &bytes)), 0xddf2);
    }

    #[test]
    fn odd_byte_counts_as_high_half() {
        assert_eq!(fold(add(0, &[0x12, 0x34, 0x56])), 0x1234 + 0x5600);
    }

    #[test]
    fn large_sums_fold() {
        assert_eq!(fold(add(0, &[0xff; 4096])), 0xffff);
        assert_eq!(fold(u64::MAX), 0xffff);
    }
}
