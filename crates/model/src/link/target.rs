//! The text of a destination.

use carom_limits::DESTINATION_LEN_MAX;

/// True if a text can be a destination: 1 to [`DESTINATION_LEN_MAX`] printable ASCII characters without a space, so
/// that nothing in it can end the `Location` header.
pub(crate) fn is_target(target: &[u8]) -> bool {
    // `all` would stop early and prevent vector instructions; nearly all targets are valid.
    (1..=DESTINATION_LEN_MAX).contains(&target.len())
        && target.iter().fold(true, |good, byte| good & (0x21..=0x7e).contains(byte))
}
