//! The contact of this node to the other site, as the notes of the relay show it.

use std::time::Instant;

use carom_model::replication::sites::{Hearing, LastRead};

/// The contact of this node to the other site, as the notes of the relay show it. Used by the relay thread.
#[derive(Debug, Default)]
pub(super) struct SiteContact {
    pub(super) hearing: Hearing,
    /// The time at which a relay of this site last read everything of the other one.
    pub(super) read: LastRead,
    /// The time of the first contact, in case Redis loses it; 0 if it is not known.
    pub(super) met_ms: u64,
    /// The time of the last look at the notes of the relay.
    pub(super) looked: Option<Instant>,
    /// The time since which this site has had no contact to the other one; `None` while it has.
    pub(super) silent_since: Option<Instant>,
    /// True if this site may lack states that the other Redis no longer has.
    pub(super) may_lack: bool,
    /// The name of a site that an operator has given up; `None` if no site was given up.
    pub(super) given_up: Option<String>,
    /// The notes of the relay that were damaged at the last look.
    pub(super) damaged: Vec<String>,
    /// The last reason why a turn was not finished.
    pub(super) failure: Option<String>,
}
