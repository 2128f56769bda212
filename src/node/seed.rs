//! Random bytes of the operating system.

use carom_settings::exit::{Exit, Reason};

/// Returns 64 random bits.
///
/// # Errors
/// If the operating system cannot provide random bytes.
pub(super) fn random_seed() -> Result<u64, Exit> {
    getrandom::u64().map_err(|error| {
        Exit::new(Reason::Incomplete, format!("the operating system cannot provide random bytes: {error}"))
    })
}
