//! The counters of a node in a fleet of two sites.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

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

/// The latest of the instants that threads have noted, without a lock.
#[derive(Debug)]
struct LatestInstant {
    /// The instant from which the others are counted.
    origin: Instant,
    /// One more than the nanoseconds from the origin to the latest instant; 0 before the first one.
    noted: AtomicU64,
}

impl Default for LatestInstant {
    fn default() -> LatestInstant {
        LatestInstant { origin: Instant::now(), noted: AtomicU64::new(0) }
    }
}

impl LatestInstant {
    /// Notes an instant. Leaves out those before the origin, which would count as later than they are.
    fn note(&self, at: Instant) {
        if let Some(after) = at.checked_duration_since(self.origin) {
            self.noted.fetch_max((after.as_nanos() as u64).saturating_add(1), Ordering::AcqRel);
        }
    }

    /// Returns the latest instant; `None` before the first one.
    fn get(&self) -> Option<Instant> {
        let after = self.noted.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.origin + Duration::from_nanos(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_instant_stays() {
        let latest = LatestInstant::default();
        let at = |ms| latest.origin + Duration::from_millis(ms);
        assert_eq!(latest.get(), None);
        latest.note(latest.origin.checked_sub(Duration::from_nanos(1)).unwrap());
        assert_eq!(latest.get(), None, "an earlier instant would count as the origin");
        for (noted, expected) in [(0, 0), (20, 20), (10, 20), (21, 21)] {
            latest.note(at(noted));
            assert_eq!(latest.get(), Some(at(expected)));
        }
    }

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
