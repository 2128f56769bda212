//! How long things took, counted in buckets: what histograms of metrics are made of.

use std::time::Duration;

use crate::counter::Counter;

/// Buckets, the one without an upper bound left out.
const BOUNDED: usize = 14;

/// The upper bounds of the buckets. They hold the objectives (1, 5 and 20 ms), what a core needs for one request (tens of
/// microseconds), and what a slow disk needs for a sync.
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

/// Nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// Durations by buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    /// How many fell into each bucket and not into the one before; the last has no bound.
    counts: [u64; BOUNDED + 1],
    /// All of them together.
    sum: Duration,
}

impl Spread {
    /// Counts so many durations.
    pub fn add(&mut self, time: Duration, count: u64) {
        self.counts[bucket(time)] += count;
        let nanos = time.as_nanos() * u128::from(count);
        // Too much for the type would be centuries of them.
        self.sum += Duration::new((nanos / NANOS) as u64, (nanos % NANOS) as u32);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How many were longer than one of [`BOUNDS`].
    pub fn above(&self, bound: Duration) -> u64 {
        let below = BOUNDS.iter().position(|known| *known == bound).map_or(0, |bucket| self.up_to()[bucket]);
        self.count() - below
    }

    /// How many were not longer than each of [`BOUNDS`].
    pub fn up_to(&self) -> [u64; BOUNDED] {
        let mut below = 0;
        std::array::from_fn(|bucket| {
            below += self.counts[bucket];
            below
        })
    }
}

/// Durations that one thread counts and others read.
#[derive(Debug, Default)]
pub struct DurationStats {
    counts: [Counter; BOUNDED + 1],
    nanos: Counter,
    longest_nanos: Counter,
}

impl DurationStats {
    /// Counts one. Only the one owning thread may call this.
    pub fn record(&self, time: Duration) {
        self.counts[bucket(time)].add(1);
        self.nanos.add(time.as_nanos() as u64);
        self.longest_nanos.set(self.longest_nanos.get().max(time.as_nanos() as u64));
    }

    /// The longest one since the start; zero if there are none.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.get())
    }

    /// What was counted.
    pub fn spread(&self) -> Spread {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].get());
        Spread { counts, sum: Duration::from_nanos(self.nanos.get()) }
    }
}

/// The bucket that a duration falls into.
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
