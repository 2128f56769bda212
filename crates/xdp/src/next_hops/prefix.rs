//! Addresses of both families as bits, and their prefixes. No I/O.

use std::net::IpAddr;

/// Returns true for IPv6, and the bits of an address, the first one as the highest of 128.
pub(super) fn bits_of(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

/// Keeps the first `len` bits.
pub(super) fn masked(bits: u128, len: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_any_length_are_masked() {
        assert_eq!(masked(u128::MAX, 0), 0);
        assert_eq!(masked(u128::MAX, 128), u128::MAX);
        assert_eq!(masked(u128::MAX, 1), 1 << 127);
    }
}
