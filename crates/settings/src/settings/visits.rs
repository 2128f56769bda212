//! The settings of the visit log.

use std::time::Duration;

use carom_model::visits::record::VisitAddresses;

/// The settings of the visit log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VisitSettings {
    /// True if single visits are logged.
    pub is_on: bool,
    /// True if the nodes of a fleet share their logs.
    pub is_shared: bool,
    /// Time for which visits are kept; `None` means forever.
    pub keep: Option<Duration>,
    /// Bytes on disk above which the oldest visits are removed.
    pub keep_bytes: u64,
    /// The stored part of client addresses.
    pub addresses: VisitAddresses,
}
