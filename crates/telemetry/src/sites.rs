//! The counters of a node in a fleet of two sites.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::clock::LatestInstant;
use crate::counter::Counter;

/// The counters of a node in a fleet of two sites.
#[derive(Debug, Default)]
pub struct SiteStats {
    /// The names of the site of this node and of the other one; unset for a fleet of one site.
    pub names: OnceLock<(String, String)>,
    /// True if this site has read all changes of the other one within three seconds.
    pub is_current: AtomicBool,
    /// True if this site may lack states that the other Redis no longer has.
    pub may_lack: AtomicBool,
    /// True if this node is the relay of its site.
    pub is_relay: AtomicBool,
    /// True if this node is the relay, and `fleet.other_redis` has turned out to belong to the other site of this fleet.
    pub is_linked: AtomicBool,
    /// The settings in which the sites differ, for the alarm; `None` if they agree, or this node is not the relay. Written by
    /// the relay thread.
    pub differing: Mutex<Option<String>>,
    /// States of the other site that this node has offered to the Redis of its site.
    pub relayed: Counter,
    /// Links of this site that were replaced by a state of the other site with an equal revision.
    pub replaced: Counter,
    /// Positions in the streams of the other site that were lost.
    pub gaps: Counter,
    /// Entries with batches of visits that this node has copied from the other site. Written by `redis-site-sync`.
    pub visits: Counter,
    /// The latest instant up to which this site has every change of the other one.
    heard: LatestInstant,
}

impl SiteStats {
    /// Records that this site has every change that the other one had made by an instant. Called by the relay thread.
    pub fn hear(&self, at: Instant) {
        self.heard.note(at);
    }

    /// Returns how far this site is behind the other one: changes of the other site that are older than that are here.
    /// `None` before the first contact. Any thread may call this: it takes no lock.
    pub fn lag(&self) -> Option<Duration> {
        self.heard.get().map(|at| at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_that_of_the_latest_contact() {
        let stats = SiteStats::default();
        assert_eq!(stats.lag(), None);
        let (late, apart) = (Instant::now(), Duration::from_millis(20));
        let early = late.checked_sub(apart).unwrap();
        stats.hear(late);
        // A new relay proves less than the last one had.
        stats.hear(early);
        let lag = stats.lag().unwrap();
        assert!(lag + apart <= early.elapsed(), "{lag:?}");
    }
}
