//! The planned instants of requests, fixed before the run and independent of the server. Pure.
//!
//! This makes the loop open: a server that stalls does not slow the plan down, and each request that waited behind
//! the stall is charged for it. Gil Tene calls the opposite "coordinated omission".

use rand_pcg::Pcg64;

use crate::workload::random;

/// Distribution of arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrivalProcess {
    /// Independent arrivals, as those of many clients: gaps are exponential.
    Poisson,
    /// Equal gaps.
    Constant,
}

impl ArrivalProcess {
    /// Returns the name of the distribution on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ArrivalProcess::Poisson => "poisson",
            ArrivalProcess::Constant => "constant",
        }
    }
}

/// Arrivals that are processed one by one at the end of a plan.
const INSTANTS_MAX: f64 = 2e6;

/// Arrivals of one thread, in nanoseconds since the start of the run, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    arrival: ArrivalProcess,
    gap_ns: f64,
    random: Pcg64,
    /// The next arrival. A float is exact enough for nanoseconds of a day: to 0.02 ns.
    next_ns: f64,
}

impl Schedule {
    /// Returns the arrivals of thread number `thread` of `threads`, which share `rate` arrivals per second.
    pub(crate) fn new(arrival: ArrivalProcess, rate: f64, thread: usize, threads: usize, random: Pcg64) -> Schedule {
        let gap_ns = 1e9 * threads as f64 / rate;
        // Threads with equal gaps take turns.
        let next_ns = match arrival {
            ArrivalProcess::Constant => gap_ns * thread as f64 / threads as f64,
            ArrivalProcess::Poisson => 0.0,
        };
        let mut schedule = Schedule { arrival, gap_ns, random, next_ns };
        if arrival == ArrivalProcess::Poisson {
            schedule.advance();
        }
        schedule
    }

    /// Returns the next arrival, in nanoseconds since the start of the run.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Advances to the following arrival.
    pub(crate) fn advance(&mut self) {
        self.next_ns += match self.arrival {
            ArrivalProcess::Constant => self.gap_ns,
            ArrivalProcess::Poisson => self.gap_ns * -random::open_unit(&mut self.random).ln(),
        };
    }

    /// Passes the arrivals left before `end_ns` to `each`, as an instant and the number of arrivals that it stands
    /// for. Consumes them. Very many arrivals are represented by a sample of instants, enough for the distribution
    /// of their delays.
    pub(crate) fn drain_before(&mut self, end_ns: u64, mut each: impl FnMut(u64, u64)) {
        let expected = (end_ns as f64 - self.next_ns).max(0.0) / self.gap_ns;
        if expected <= INSTANTS_MAX {
            while self.next_ns() < end_ns {
                each(self.next_ns(), 1);
                self.advance();
            }
            return;
        }
        let group = (expected / INSTANTS_MAX).ceil();
        while self.next_ns() < end_ns {
            each(self.next_ns(), group as u64);
            self.next_ns += self.gap_ns * group;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(arrival: ArrivalProcess, thread: usize, threads: usize, seed: u64) -> Vec<u64> {
        let mut all = Vec::new();
        let mut schedule = Schedule::new(arrival, 1_000.0, thread, threads, random::stream(seed, thread as u64));
        schedule.drain_before(10_000_000_000, |ns, count| all.extend((0..count).map(|_| ns)));
        all
    }

    #[test]
    fn equal_gaps_are_equal_over_all_threads() {
        let mut all: Vec<u64> = (0..4).flat_map(|thread| arrivals(ArrivalProcess::Constant, thread, 4, 1)).collect();
        all.sort_unstable();
        assert_eq!(all.len(), 10_000);
        assert!(all.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(1_000_000) <= 1));
    }

    #[test]
    fn independent_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let all = arrivals(ArrivalProcess::Poisson, 0, 1, 7);
        // The count of a Poisson process has the variance of its mean: five standard deviations.
        assert!(all.len().abs_diff(10_000) < 500, "{}", all.len());
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.1, "{mean} {variance}");
    }

    #[test]
    fn a_rest_of_very_many_arrivals_is_counted_in_groups() {
        let mut schedule = Schedule::new(ArrivalProcess::Poisson, 1e9, 0, 1, random::stream(1, 1));
        let (mut instants, mut arrivals) = (0u64, 0);
        schedule.drain_before(10_000_000_000, |_, count| (instants, arrivals) = (instants + 1, arrivals + count));
        assert!(instants <= 2_000_001, "{instants}");
        assert!(arrivals.abs_diff(10_000_000_000) < 100_000, "{arrivals}");
    }

    #[test]
    fn a_seed_gives_the_same_plan_and_another_gives_another() {
        assert_eq!(arrivals(ArrivalProcess::Poisson, 0, 2, 5), arrivals(ArrivalProcess::Poisson, 0, 2, 5));
        assert_ne!(arrivals(ArrivalProcess::Poisson, 0, 2, 5), arrivals(ArrivalProcess::Poisson, 0, 2, 6));
        assert_ne!(arrivals(ArrivalProcess::Poisson, 0, 2, 5), arrivals(ArrivalProcess::Poisson, 1, 2, 5));
    }
}
