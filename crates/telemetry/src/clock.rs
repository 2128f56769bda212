//! The wall clock, for threads that are not given the time.

/// Returns the present instant in nanoseconds since 1970 UTC, a number that hardly ever repeats.
pub fn unix_nanos() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the present instant in milliseconds since 1970 UTC.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
