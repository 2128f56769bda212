//! Counts and latencies of a run, recorded by thread and merged at the end. Pure.

use std::collections::HashSet;

use hdrhistogram::Histogram;

use crate::results::check::Fault;
use crate::workload::traffic::RequestKind;

/// Longest latency that histograms distinguish, in nanoseconds: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Significant decimal digits of histograms.
const DIGITS: u8 = 3;

/// Returns an empty histogram of nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("bounds that fit each other")
}

/// Latencies of one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// From the intended instant of sending, in nanoseconds: the latency that clients of an open system would see.
    pub(crate) intended: Histogram<u64>,
    /// From the actual instant of sending, in nanoseconds: the latency that a closed loop would see.
    pub(crate) actual: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { intended: histogram(), actual: histogram() }
    }
}

impl Latencies {
    /// Adds the latencies of `other`.
    pub(crate) fn add(&mut self, other: &Latencies) {
        let fits = "histograms of the same bounds";
        self.intended.add(&other.intended).expect(fits);
        self.actual.add(&other.actual).expect(fits);
    }
}

/// Counts of requests in the measured time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RequestCounts {
    /// Requests planned for the measured time.
    pub(crate) planned: u64,
    /// Planned requests that were sent.
    pub(crate) sent: u64,
    /// Requests with a correct response.
    pub(crate) completed: u64,
    /// Requests with a correct response before the end of the measured time: the base of the throughput.
    pub(crate) in_time: u64,
    /// Requests sent more than a millisecond late because no connection was free.
    pub(crate) late_for_server: u64,
    /// Requests sent more than a millisecond late because of the generator.
    pub(crate) late_for_generator: u64,
    /// Planned requests that were never sent.
    pub(crate) unsent: u64,
}

/// One second of the run.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Number of the second, counted from the start of the measured time.
    pub(crate) second: u64,
    /// Requests with a correct response.
    pub(crate) completed: u64,
    /// Errors of all kinds.
    pub(crate) errors: u64,
    /// Latencies from the intended instant, of all kinds, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Interval {
    /// Returns an empty second.
    pub(crate) fn new(second: u64) -> Interval {
        Interval { second, completed: 0, errors: 0, latency: histogram() }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Interval) {
        self.completed += other.completed;
        self.errors += other.errors;
        self.latency.add(&other.latency).expect("histograms of the same bounds");
    }
}

/// CPU time of threads, in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CpuTime {
    /// CPU time in user mode.
    pub(crate) user: f64,
    /// CPU time in the kernel.
    pub(crate) system: f64,
}

impl CpuTime {
    /// Returns the CPU time in both modes.
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }
}

/// Results of a run, of one thread or of all.
#[derive(Clone, Debug)]
pub(crate) struct RunRecord {
    /// Latencies by kind, in the order of [`RequestKind::ALL`].
    pub(crate) kinds: [Latencies; RequestKind::COUNT],
    /// Delays of requests that the generator caused, in nanoseconds.
    pub(crate) lag: Histogram<u64>,
    /// Counts of requests.
    pub(crate) counts: RequestCounts,
    /// Errors by kind, in the order of [`Fault::ALL`].
    pub(crate) faults: [u64; Fault::ALL.len()],
    /// CPU time used in the measured time.
    pub(crate) cpu: CpuTime,
    /// Highest share of a CPU that a thread used in the measured time.
    pub(crate) busiest: f64,
    /// Highest share of the measured time that a runnable thread did not run because others had its CPU.
    pub(crate) displaced: f64,
    /// CPU time of the whole machine in the measured time, in seconds: of all processes and of interrupts.
    pub(crate) machine: f64,
    /// Length of the measured time, in seconds.
    pub(crate) seconds: f64,
    /// Hashes of the codes of created links, to detect a code that is issued twice.
    pub(crate) codes: HashSet<u64>,
    /// Code and destination of created links, if they are collected.
    pub(crate) created: Vec<(String, String)>,
}

impl Default for RunRecord {
    fn default() -> RunRecord {
        RunRecord {
            kinds: Default::default(),
            lag: histogram(),
            counts: RequestCounts::default(),
            faults: Default::default(),
            cpu: CpuTime::default(),
            busiest: 0.0,
            displaced: 0.0,
            machine: 0.0,
            seconds: 0.0,
            codes: HashSet::new(),
            created: Vec::new(),
        }
    }
}

impl RunRecord {
    /// Adds the results of another thread.
    pub(crate) fn add(&mut self, other: RunRecord) {
        for (mine, others) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.add(others);
        }
        self.lag.add(&other.lag).expect("histograms of the same bounds");
        self.counts.planned += other.counts.planned;
        self.counts.sent += other.counts.sent;
        self.counts.completed += other.counts.completed;
        self.counts.in_time += other.counts.in_time;
        self.counts.late_for_server += other.counts.late_for_server;
        self.counts.late_for_generator += other.counts.late_for_generator;
        self.counts.unsent += other.counts.unsent;
        self.faults.iter_mut().zip(other.faults).for_each(|(mine, others)| *mine += others);
        self.cpu.user += other.cpu.user;
        self.cpu.system += other.cpu.system;
        self.busiest = self.busiest.max(other.busiest);
        self.displaced = self.displaced.max(other.displaced);
        self.machine = self.machine.max(other.machine);
        self.seconds = self.seconds.max(other.seconds);
        let twice = other.codes.into_iter().filter(|code| !self.codes.insert(*code)).count();
        self.faults[Fault::Created as usize] += twice as u64;
        self.created.extend(other.created);
    }

    /// Returns the latencies of all kinds together.
    pub(crate) fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        self.kinds.iter().for_each(|kind| all.add(kind));
        all
    }

    /// Returns the latencies of one kind.
    pub(crate) fn kind(&self, kind: RequestKind) -> &Latencies {
        &self.kinds[kind as usize]
    }

    /// Returns the number of errors of one kind.
    pub(crate) fn fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// Returns the number of all errors.
    pub(crate) fn errors(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Returns the number of wrong responses.
    pub(crate) fn wrong_answers(&self) -> u64 {
        Fault::ALL.into_iter().filter(|fault| fault.is_wrong_answer()).map(|fault| self.fault(fault)).sum()
    }

    /// Returns correct responses per second.
    pub(crate) fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.counts.in_time as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the CPU time of each answered request, in microseconds.
    pub(crate) fn cpu_micros_per_request(&self) -> f64 {
        let answered = self.counts.completed + self.wrong_answers();
        if answered > 0 { self.cpu.total() * 1e6 / answered as f64 } else { 0.0 }
    }
}

/// Figures of a histogram that reports show, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// Number of values.
    pub(crate) count: u64,
    /// Mean of the values.
    pub(crate) mean: f64,
    /// Values at [`QUANTILES`].
    pub(crate) quantiles: [f64; 6],
    /// Largest value.
    pub(crate) max: f64,
}

/// Quantiles of a [`Summary`] with their names.
pub(crate) const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p80", 0.8), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)];

impl Summary {
    /// Summarises a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Summary {
        let micros = |ns: u64| ns as f64 / 1e3;
        let is_empty = histogram.is_empty();
        Summary {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            quantiles: QUANTILES.map(|(_, q)| if is_empty { 0.0 } else { micros(histogram.value_at_quantile(q)) }),
            max: if is_empty { 0.0 } else { micros(histogram.max()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_was_recorded() {
        let mut histogram = histogram();
        (1..=1_000u64).for_each(|value| histogram.record(value * 1_000).unwrap());
        let summary = Summary::of(&histogram);
        assert_eq!(summary.count, 1_000);
        for (value, expected) in summary.quantiles.into_iter().zip([500.0, 800.0, 900.0, 990.0, 999.0, 1_000.0]) {
            assert!((value / expected - 1.0).abs() < 0.002, "{value} for {expected}");
        }
        assert_eq!(Summary::of(&super::histogram()).max, 0.0);
    }

    #[test]
    fn threads_add_up() {
        let mut one = RunRecord::default();
        one.kinds[0].intended.record(5_000).unwrap();
        (one.counts.completed, one.counts.in_time) = (1, 1);
        one.faults[Fault::Location as usize] = 2;
        one.faults[Fault::Timeout as usize] = 3;
        (one.seconds, one.busiest, one.machine) = (2.0, 0.5, 3.0);
        let mut all = RunRecord::default();
        one.codes.insert(7);
        all.add(one.clone());
        all.add(one);
        assert_eq!((all.counts.completed, all.errors(), all.wrong_answers()), (2, 11, 5));
        assert_eq!(all.fault(Fault::Created), 1, "two threads were given one code");
        assert_eq!((all.throughput(), all.all().intended.len()), (1.0, 2));
        assert_eq!(all.machine, 3.0, "every thread sees the same machine");
    }
}
