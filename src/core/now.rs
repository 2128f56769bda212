//! The time of a turn of the loop.

use std::time::Instant;

use crate::bridge::fleet_view::FollowedMark;

/// Ticks per second: the resolution of every timeout.
pub(super) const TICKS_PER_SECOND: u32 = 4;

/// The time at the beginning of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Milliseconds since 1970 UTC.
    pub(super) unix_ms: u64,
    /// Ticks since the core began.
    pub(super) tick: u32,
    /// The instant up to which the streams of the fleet were followed when the turn began.
    pub(super) followed: FollowedMark,
}
