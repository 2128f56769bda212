//! Clocks, for threads that are not given the time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The instant of the first look at the monotonic clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A source of the time of day, which its owner is given: the system's, or one of a test.
#[derive(Clone, Copy, Debug)]
pub struct Clock(fn() -> u64);

impl Clock {
    /// The clock of the operating system.
    pub const SYSTEM: Clock = Clock(unix_ms);

    /// Returns a clock that reads the time from a function, in milliseconds since 1970 UTC.
    pub const fn new(unix_ms: fn() -> u64) -> Clock {
        Clock(unix_ms)
    }

    /// Returns the present instant in milliseconds since 1970 UTC.
    pub fn unix_ms(self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::SYSTEM
    }
}

/// Returns the microseconds since the first call in this process. Never goes back.
pub fn monotonic_micros() -> u64 {
    START.elapsed().as_micros() as u64
}

/// Returns the present instant in nanoseconds since 1970 UTC, a number that hardly ever repeats.
pub fn unix_nanos() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the present instant in milliseconds since 1970 UTC.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The latest of the instants that threads have noted, without a lock.
#[derive(Debug)]
pub struct LatestInstant {
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
    pub fn note(&self, at: Instant) {
        if let Some(after) = at.checked_duration_since(self.origin) {
            self.noted.fetch_max((after.as_nanos() as u64).saturating_add(1), Ordering::AcqRel);
        }
    }

    /// Returns the latest instant; `None` before the first one.
    pub fn get(&self) -> Option<Instant> {
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
}
