//! The format of what nodes share through Redis, and the rule by which nodes of several versions agree on one.
//!
//! A format is a number. It stands for the kinds of states, the fields that a reader must not ignore, the fields of
//! stream entries, and the entries of visit counts. Each node says in its heartbeat which format it reads, and every node writes the highest format that
//! all live nodes read. A node that says nothing is of a version before formats had numbers.

#[cfg(feature = "next-format")]
pub mod next;
pub(crate) mod numbers;

use std::time::Duration;

pub use self::numbers::{BROWSERS, EARLIER_VISITS, FIRST, NEWEST, RETENTION, RULES, SLASHES};

/// Silence after which the format of a node no longer counts. If the node comes back with an older version, it marks
/// what it cannot decode, as every node does.
pub const COUNTS_FOR: Duration = Duration::from_secs(600);

/// Returns the newest format that this process reads.
pub fn newest() -> u32 {
    #[cfg(feature = "next-format")]
    if next::is_on() {
        return NEWEST + 1;
    }
    NEWEST
}

/// Returns the format that a node writes, given what each live node reads, if it says so.
pub fn agreed(live: impl IntoIterator<Item = Option<u32>>) -> u32 {
    live.into_iter().map(|reads| reads.unwrap_or(FIRST).max(FIRST)).fold(newest(), u32::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_live_node_decides() {
        assert_eq!(agreed([]), newest());
        assert_eq!(agreed([Some(newest()), Some(newest() + 1)]), newest());
        assert_eq!(agreed([Some(newest() + 1), None]), FIRST);
        assert_eq!(agreed([Some(0)]), FIRST);
    }
}
