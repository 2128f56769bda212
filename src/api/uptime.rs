//! The start time of the node, which is also the clock of rate limits.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the start time of the node, for its uptime. The first call sets it.
pub(super) fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

/// Returns the uptime of the node, which is also the clock of rate limits.
pub(super) fn uptime() -> Duration {
    started().elapsed()
}
