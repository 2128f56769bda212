//! The latencies of a core's requests.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use carom_telemetry::stats::LatencySummary;

/// The longest latency that is told apart from longer ones, in nanoseconds.
const NANOS_MAX: u64 = 60_000_000_000;

/// Latency histogram of a core, since its start.
#[derive(Debug)]
pub(super) struct CoreLatencies {
    /// In nanoseconds.
    all: Histogram<u64>,
    /// Requests answered on the spot in this turn; their latency is recorded at its end.
    answered: u64,
}

impl CoreLatencies {
    pub(super) fn new() -> CoreLatencies {
        let all = Histogram::new_with_bounds(1, NANOS_MAX, 2).expect("bounds that fit each other");
        CoreLatencies { all, answered: 0 }
    }

    /// Records one latency.
    pub(super) fn record(&mut self, time: Duration) {
        self.all.saturating_record(time.as_nanos() as u64);
    }

    /// Notes a request that was answered on the spot.
    #[inline]
    pub(super) fn note_answered(&mut self) {
        self.answered += 1;
    }

    /// Records the latency of all requests that were answered on the spot in the turn that began at that instant.
    pub(super) fn end_turn(&mut self, begin: Instant) {
        if self.answered > 0 {
            let nanos = begin.elapsed().as_nanos() as u64;
            let _ = self.all.record_n(nanos.clamp(1, NANOS_MAX), self.answered);
            self.answered = 0;
        }
    }

    /// Returns the quantiles, and the number of requests of each latency.
    pub(super) fn summary(&self) -> LatencySummary {
        let micros = |quantile| self.all.value_at_quantile(quantile) as f64 / 1_000.0;
        LatencySummary {
            count: self.all.len(),
            p50: micros(0.5),
            p80: micros(0.8),
            p99: micros(0.99),
            p999: micros(0.999),
            max: if self.all.is_empty() { 0.0 } else { self.all.max() as f64 / 1_000.0 },
            steps: self.latency_counts(),
        }
    }

    /// Returns each recorded latency in nanoseconds, as the middle of its bucket, with its number of requests.
    fn latency_counts(&self) -> Vec<(u64, u64)> {
        let middle = |nanos| self.all.median_equivalent(nanos);
        let steps = self.all.iter_recorded();
        steps.map(|step| (middle(step.value_iterated_to()), step.count_at_value())).collect()
    }
}
