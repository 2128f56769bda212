//! A visit as a core reports it.

use carom_shards::Code;

/// Longest name of a referring host that is kept, in bytes. Few are longer. They are cut at the front, the less
/// important part of a name.
pub const HOST_LEN_MAX: usize = 60;

/// The counted properties of a visitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visitor {
    /// True if the user agent is not a person's browser.
    pub is_bot: bool,
    pub(super) host_len: u8,
    pub(super) host: [u8; HOST_LEN_MAX],
}

impl Visitor {
    /// Returns the referring host in lower case; empty without one.
    pub fn host(&self) -> &[u8] {
        &self.host[..usize::from(self.host_len)]
    }
}

/// A visit that a core reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The requested code; `None` if no such link exists.
    pub code: Option<Code>,
    /// The counted properties of the visitor.
    pub visitor: Visitor,
}

/// The result of reporting a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// The visit is in the ring.
    Whole,
    /// The visit is in the ring without its referring host, because visits with hosts fill their part of the ring.
    WithoutReferrer,
    /// The ring is full, and the visit is dropped.
    Nothing,
}
