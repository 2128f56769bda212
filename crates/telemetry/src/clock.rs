//! Clocks, for threads that are not given the time.

use std::sync::LazyLock;
use std::time::Instant;

/// The instant of the first look at the monotonic clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

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
