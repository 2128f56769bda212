//! Clocks, for threads that are not given the time.

use std::sync::LazyLock;
use std::time::Instant;

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
