//! Timeouts of Redis that follow from measured round trips: the further away Redis is, the longer a client waits for it.

use std::collections::VecDeque;
use std::time::Duration;

use carom_limits::REDIS_TIME_MAX;

/// Number of round trips that are remembered: those of half a minute of heartbeats.
const REMEMBERED: usize = 31;

/// Number of median round trips that fit into a derived timeout. A connection that was lost takes two.
const TRIPS: u32 = 4;

/// A timeout of requests to Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedisTimeout {
    /// A fixed time.
    Fixed(Duration),
    /// Four median round trips, at least this time and at most [`REDIS_TIME_MAX`].
    Derived(Duration),
}

impl RedisTimeout {
    /// Returns the timeout, given the median round trip; zero before the first.
    pub fn at(self, median: Duration) -> Duration {
        match self {
            RedisTimeout::Fixed(time) => time,
            RedisTimeout::Derived(least) => median.saturating_mul(TRIPS).min(REDIS_TIME_MAX).max(least),
        }
    }
}

/// The last round trips to Redis.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    last: VecDeque<Duration>,
}

impl RoundTrips {
    /// Adds a round trip. Returns the median of the last ones, so that a single slow answer changes little.
    pub fn add(&mut self, took: Duration) -> Duration {
        self.last.push_back(took);
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
        let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAST: Duration = Duration::from_millis(20);

    #[test]
    fn a_distant_redis_gets_more_time() {
        let timeout = RedisTimeout::Derived(LEAST);
        for (median, expected) in [(0, 20), (1, 20), (5, 20), (6, 24), (75, 300), (400, 1_000)] {
            assert_eq!(timeout.at(Duration::from_millis(median)), Duration::from_millis(expected), "{median} ms");
        }
        assert_eq!(RedisTimeout::Fixed(LEAST).at(Duration::from_secs(9)), LEAST);
    }

    #[test]
    fn one_slow_answer_changes_nothing() {
        let mut trips = RoundTrips::default();
        let millis = Duration::from_millis;
        for _ in 0..5 {
            assert_eq!(trips.add(millis(3)), millis(3));
        }
        assert_eq!(trips.add(millis(900)), millis(3));
    }

    proptest! {
        /// A derived timeout grows with the round trips, and stays within its bounds.
        #[test]
        fn derived_timeouts_are_bounded(trips in proptest::collection::vec(0..5_000u64, 1..80), longer in 0..1_000u64) {
            let mut round_trips = RoundTrips::default();
            let mut median = Duration::ZERO;
            for trip in &trips {
                median = round_trips.add(Duration::from_millis(*trip));
            }
            let recent = &trips[trips.len().saturating_sub(REMEMBERED)..];
            prop_assert!(recent.iter().any(|trip| Duration::from_millis(*trip) == median));
            prop_assert!(recent.iter().filter(|trip| Duration::from_millis(**trip) < median).count() <= recent.len() / 2);
            prop_assert!(recent.iter().filter(|trip| Duration::from_millis(**trip) > median).count() <= recent.len() / 2);
            let timeout = RedisTimeout::Derived(LEAST);
            prop_assert!((LEAST..=REDIS_TIME_MAX).contains(&timeout.at(median)));
            prop_assert!(timeout.at(median + Duration::from_millis(longer)) >= timeout.at(median));
        }
    }
}
