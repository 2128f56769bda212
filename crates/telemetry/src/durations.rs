//! Durations counted in buckets, for the histograms of the metrics.

use std::time::Duration;

use crate::counter::Counter;

/// Number of buckets with an upper bound.
const BOUNDED: usize = 14;

/// Upper bounds of the buckets. They include the objectives (1, 5 and 20 ms), the time of a core for one request (tens
/// of microseconds), and a sync of a slow disk.
pub const BOUNDS: [Duration; BOUNDED] = [
    Duration::from_micros(25),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Nanoseconds in a second.
const NANOS: u128 = 1_000_000_000;

/// Durations by bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    /// Durations in each bucket alone, not cumulative. The last bucket has no upper bound.
    counts: [u64; BOUNDED + 1],
    /// Sum of all durations.
    sum: Duration,
}

impl Spread {
    /// Counts a duration `count` times.
    pub fn add(&mut self, time: Duration, count: u64) {
        self.counts[bucket(time)] += count;
        let nanos = time.as_nanos() * u128::from(count);
        // Overflow of the type would take centuries of durations.
        self.sum += Duration::new((nanos / NANOS) as u64, (nanos % NANOS) as u32);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the number of durations above a bound, which is one of [`BOUNDS`].
    pub fn above(&self, bound: Duration) -> u64 {
        let below = BOUNDS.iter().position(|known| *known == bound).map_or(0, |bucket| self.up_to()[bucket]);
        self.count() - below
    }

    /// Returns, for each of [`BOUNDS`], the number of durations up to it.
    pub fn up_to(&self) -> [u64; BOUNDED] {
        let mut below = 0;
        std::array::from_fn(|bucket| {
            below += self.counts[bucket];
            below
        })
    }
}

/// Durations by bucket, which one thread counts and others read.
#[derive(Debug, Default)]
pub struct DurationStats {
    counts: [Counter; BOUNDED + 1],
    nanos: Counter,
    longest_nanos: Counter,
}

impl DurationStats {
    /// Counts a duration. Only the owning thread may call this.
    pub fn record(&self, time: Duration) {
        self.counts[bucket(time)].add(1);
        self.nanos.add(time.as_nanos() as u64);
        self.longest_nanos.set(self.longest_nanos.get().max(time.as_nanos() as u64));
    }

    /// Returns the longest duration since the start; zero before the first.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.get())
    }

    /// Returns the durations so far.
    pub fn spread(&self) -> Spread {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].get());
        Spread { counts, sum: Duration::from_nanos(self.nanos.get()) }
    }
}

/// Returns the bucket of a duration.
fn bucket(time: Duration) -> usize {
    BOUNDS.partition_point(|bound| *bound < time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_belongs_to_its_bucket() {
        assert!(BOUNDS.is_sorted());
        let stats = DurationStats::default();
        let mut spread = Spread::default();
        let nano = Duration::from_nanos(1);
        let all: Vec<Duration> = BOUNDS.iter().flat_map(|bound| [*bound, *bound + nano]).collect();
        for time in &all {
            stats.record(*time);
            spread.add(*time, 1);
        }
        assert_eq!((stats.spread(), stats.longest()), (spread, BOUNDS[13] + nano));
        assert_eq!((spread.count(), spread.sum()), (all.len() as u64, all.iter().sum()));
        let expected: Vec<u64> =
            BOUNDS.iter().map(|bound| all.iter().filter(|time| *time <= bound).count() as u64).collect();
        assert_eq!(spread.up_to().to_vec(), expected);
        spread.add(Duration::from_micros(30), 1_000);
        assert_eq!(spread.up_to()[1] - spread.up_to()[0], 1_002);
        assert_eq!((spread.above(BOUNDS[13]), spread.above(BOUNDS[12])), (1, 3));
        let mut many = Spread::default();
        many.add(Duration::from_micros(30), 1 << 40);
        assert_eq!(many.sum(), Duration::from_micros(30 << 40));
    }
}
