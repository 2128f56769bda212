//! The knowledge of a node about the relay of its site.

use std::time::Instant;

use carom_model::replication::sites::Hearing;

/// The knowledge of this node about the relay of its site.
#[derive(Debug, Default)]
pub(super) struct Ear {
    pub(super) hearing: Hearing,
    /// The time of the last look at the notes of the relay.
    pub(super) looked: Option<Instant>,
    /// The time since which nothing was heard of the other site.
    pub(super) silent: Option<Instant>,
    /// True if this site may lack states that the other Redis no longer has.
    pub(super) may_lack: bool,
    /// The last reason for which a turn was not finished.
    pub(super) trouble: Option<String>,
}
