//! Live figures of a thread. The thread changes them with each response, and the live view reads them meanwhile.
//!
//! Each figure has one writer, so that a relaxed load and a relaxed store suffice to count: neither a lock nor an atomic
//! addition, which would stop the CPU's other memory accesses. A reader may see figures of two instants side by side,
//! which does not matter to a picture that is replaced within a second.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::results::check::Fault;

/// Bits of a latency that tell buckets of the same power of two apart: buckets are at most 7 % wide.
const SUB_BITS: u32 = 4;

/// Buckets of each power of two.
const SUB_BUCKETS: usize = 1 << SUB_BITS;

/// Buckets of latencies. The last one holds an hour and more.
const BUCKETS: usize = 640;

/// Figures that one thread publishes.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LiveCounters {
    completed: AtomicU64,
    faults: [AtomicU64; Fault::ALL.len()],
    buckets: [AtomicU64; BUCKETS],
}

impl LiveCounters {
    /// Returns figures that are all zero.
    pub(crate) fn new() -> LiveCounters {
        LiveCounters {
            completed: AtomicU64::new(0),
            faults: [const { AtomicU64::new(0) }; Fault::ALL.len()],
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts a correct response. Only the thread that owns the figures may call it.
    pub(crate) fn count_completed(&self) {
        increment(&self.completed);
    }

    /// Counts an error. Only the thread that owns the figures may call it.
    pub(crate) fn count_fault(&self, fault: Fault) {
        increment(&self.faults[fault as usize]);
    }

    /// Counts a latency in nanoseconds. Only the thread that owns the figures may call it.
    pub(crate) fn count_latency(&self, ns: u64) {
        increment(&self.buckets[bucket(ns)]);
    }

    /// Adds the figures to those of other threads. Any thread may call it.
    pub(crate) fn add_to(&self, figures: &mut LiveFigures) {
        figures.completed += self.completed.load(Ordering::Relaxed);
        let add = |(sum, figure): (&mut u64, &AtomicU64)| *sum += figure.load(Ordering::Relaxed);
        figures.faults.iter_mut().zip(&self.faults).for_each(add);
        figures.buckets.iter_mut().zip(&self.buckets).for_each(add);
    }
}

fn increment(figure: &AtomicU64) {
    figure.store(figure.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Returns the bucket of a latency in nanoseconds.
fn bucket(ns: u64) -> usize {
    if ns < SUB_BUCKETS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    let sub = (ns >> shift) as usize - SUB_BUCKETS;
    ((shift as usize + 1) * SUB_BUCKETS + sub).min(BUCKETS - 1)
}

/// Returns the middle of a bucket in nanoseconds.
fn middle(bucket: usize) -> f64 {
    if bucket < SUB_BUCKETS {
        return bucket as f64;
    }
    let width = 2f64.powi((bucket / SUB_BUCKETS - 1) as i32);
    ((bucket % SUB_BUCKETS + SUB_BUCKETS) as f64 + 0.5) * width
}

/// The figures of several threads at one instant, or of the time between two.
#[derive(Clone, Debug)]
pub(crate) struct LiveFigures {
    /// Correct responses.
    pub(crate) completed: u64,
    /// Errors, in the order of [`Fault::ALL`].
    pub(crate) faults: [u64; Fault::ALL.len()],
    buckets: Vec<u64>,
}

impl Default for LiveFigures {
    fn default() -> LiveFigures {
        LiveFigures { completed: 0, faults: Default::default(), buckets: vec![0; BUCKETS] }
    }
}

impl LiveFigures {
    /// Returns what has changed since earlier figures.
    pub(crate) fn since(&self, earlier: &LiveFigures) -> LiveFigures {
        let mut change = self.clone();
        change.completed = change.completed.saturating_sub(earlier.completed);
        let subtract = |(mine, theirs): (&mut u64, &u64)| *mine = mine.saturating_sub(*theirs);
        change.faults.iter_mut().zip(&earlier.faults).for_each(subtract);
        change.buckets.iter_mut().zip(&earlier.buckets).for_each(subtract);
        change
    }

    /// Returns the number of errors of all kinds.
    pub(crate) fn errors(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Returns a quantile of the latency in microseconds, within 4 %; `None` without latencies.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let all: u64 = self.buckets.iter().sum();
        let rank = ((all as f64 * quantile).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        found.map(|bucket| middle(bucket) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for ns in (0..100_000).chain((1..1_000).map(|step| step * 3_600_000_000)) {
            let index = bucket(ns);
            assert!(index == last || index == last + 1 || ns > 100_000, "{ns}");
            assert!(ns < 16 || (middle(index) / ns as f64 - 1.0).abs() < 0.04, "{ns}: {}", middle(index));
            last = index;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn figures_of_threads_add_up_and_change() {
        let counters = [LiveCounters::new(), LiveCounters::new()];
        let total = || {
            let mut total = LiveFigures::default();
            counters.iter().for_each(|counters| counters.add_to(&mut total));
            total
        };
        counters[0].count_completed();
        counters[0].count_fault(Fault::Timeout);
        let before = total();
        assert_eq!((before.completed, before.errors(), before.quantile(0.5)), (1, 1, None));
        for ms in 1..=100 {
            counters[ms as usize % 2].count_completed();
            counters[ms as usize % 2].count_latency(ms * 1_000_000);
        }
        let change = total().since(&before);
        assert_eq!((change.completed, change.errors()), (100, 0));
        for (quantile, expected) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let micros = change.quantile(quantile).unwrap();
            assert!((micros / expected - 1.0).abs() < 0.05, "{micros} for {expected}");
        }
    }
}
