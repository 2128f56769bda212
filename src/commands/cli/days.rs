//! Dates in options, which mean whole days.

/// The time of day at which a date ends that is the end of something, such as an expiry.
pub(super) const DAY_END: &str = "T23:59:59Z";
