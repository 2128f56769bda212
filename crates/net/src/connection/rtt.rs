//! The retransmission timeout (RFC 6298).

use crate::config::RTO_INITIAL_MS;

/// Smoothed round-trip time and its deviation, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed_us: u32,
    deviation_us: u32,
}

/// Longest round trip that counts: a minute.
const SAMPLE_MAX_US: u32 = 60_000_000;

impl RoundTrip {
    /// Takes a sample of a segment that was sent once (RFC 6298, 2 and 3).
    pub(crate) fn sample(&mut self, sample_us: u32) {
        let sample_us = sample_us.clamp(1, SAMPLE_MAX_US);
        if self.smoothed_us == 0 {
            self.smoothed_us = sample_us;
            self.deviation_us = sample_us / 2;
            return;
        }
        let error = self.smoothed_us.abs_diff(sample_us);
        self.deviation_us = self.deviation_us - self.deviation_us / 4 + error / 4;
        self.smoothed_us = (self.smoothed_us - self.smoothed_us / 8 + sample_us / 8).max(1);
    }

    /// Returns the smoothed round-trip time, if there was a sample.
    pub(crate) fn smoothed_us(&self) -> Option<u32> {
        (self.smoothed_us > 0).then_some(self.smoothed_us)
    }

    /// Returns the timeout before any backoff, between the bounds; [`RTO_INITIAL_MS`] without a sample.
    pub(crate) fn timeout_ms(&self, min_ms: u32, max_ms: u32) -> u32 {
        let Some(smoothed_us) = self.smoothed_us() else { return RTO_INITIAL_MS.clamp(min_ms, max_ms) };
        // The clock granularity is a millisecond.
        let timeout_us = smoothed_us.saturating_add((4 * self.deviation_us).max(1000));
        timeout_us.div_ceil(1000).clamp(min_ms, max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_timeout_is_a_second() {
        assert_eq!(RTO_INITIAL_MS, 1_000, "RFC 6298, 2.1");
        assert_eq!(RoundTrip::default().timeout_ms(200, 60_000), RTO_INITIAL_MS);
    }

    #[test]
    fn first_sample_counts_three_times() {
        let mut rtt = RoundTrip::default();
        rtt.sample(100_000);
        assert_eq!(rtt.timeout_ms(200, 60_000), 300);
    }

    #[test]
    fn steady_samples_reach_the_floor() {
        let mut rtt = RoundTrip::default();
        (0..100).for_each(|_| rtt.sample(50_000));
        assert_eq!(rtt.timeout_ms(1, 60_000), 51);
        assert_eq!(rtt.timeout_ms(200, 60_000), 200);
    }

    #[test]
    fn jumps_raise_the_timeout() {
        let mut rtt = RoundTrip::default();
        (0..100).for_each(|_| rtt.sample(10_000));
        rtt.sample(500_000);
        assert!(rtt.timeout_ms(200, 60_000) > 500);
        rtt.sample(u32::MAX);
        assert!(rtt.timeout_ms(200, 60_000) <= 60_000);
    }
}
