//! Congestion control: Reno (RFC 5681) with an initial window of ten segments (RFC 6928), counting bytes (RFC 3465).

/// Largest congestion window: no flow of ours needs more.
const WINDOW_MAX: u32 = 4 << 20;

/// Congestion window and slow-start threshold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    /// Acknowledged bytes that have not yet grown the window in congestion avoidance.
    counted: u32,
}

/// Returns the initial window in bytes (RFC 6928, 2), for up to `segments` segments.
fn initial_window(mss: u32, segments: u32) -> u32 {
    (segments * mss).min((2 * mss).max(14_600))
}

impl Congestion {
    pub(crate) fn new(mss: u32, segments: u32) -> Congestion {
        Congestion { window: initial_window(mss, segments), threshold: u32::MAX, counted: 0 }
    }

    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// Grows the window after `acked` new bytes, if the window limited the connection. The growth depends on bytes,
    /// whatever the number of acknowledgements, so a peer gains nothing by dividing them.
    pub(crate) fn acknowledged(&mut self, acked: u32, mss: u32, was_limiting: bool) {
        if !was_limiting {
            return;
        }
        if self.window < self.threshold {
            // RFC 3465, 2.2, with a limit of two segments.
            self.window = self.window.saturating_add(acked.min(2 * mss)).min(WINDOW_MAX);
            return;
        }
        self.counted = self.counted.saturating_add(acked);
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window = (self.window + mss).min(WINDOW_MAX);
        }
    }

    /// Reacts to a loss that acknowledgements have shown (RFC 5681, 3.2; RFC 6675, 5).
    pub(crate) fn lost(&mut self, flight: u32, mss: u32) {
        self.threshold = (flight / 2).max(2 * mss);
        self.window = self.threshold;
        self.counted = 0;
    }

    /// Reacts to a timeout: one segment. Only the first of a row halves the threshold (RFC 5681, 3.1).
    pub(crate) fn timed_out(&mut self, flight: u32, mss: u32, is_first: bool) {
        if is_first {
            self.threshold = (flight / 2).max(2 * mss);
        }
        self.window = mss;
        self.counted = 0;
    }

    /// Begins again after a pause of at least a retransmission timeout (RFC 5681, 4.1).
    pub(crate) fn restart(&mut self, mss: u32, segments: u32) {
        self.window = self.window.min(initial_window(mss, segments));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    #[test]
    fn initial_window_is_ten_segments() {
        assert_eq!(Congestion::new(1460, 10).window(), 14_600);
        assert_eq!(Congestion::new(100, 10).window(), 1000);
        assert_eq!(Congestion::new(8900, 10).window(), 17_800);
    }

    #[test]
    fn slow_start_doubles() {
        let mut congestion = Congestion::new(MSS, 10);
        (0..10).for_each(|_| congestion.acknowledged(MSS, MSS, true));
        assert_eq!(congestion.window(), 20 * MSS);
    }

    #[test]
    fn divided_acknowledgements_gain_nothing() {
        let mut divided = Congestion::new(MSS, 10);
        (0..10 * MSS).for_each(|_| divided.acknowledged(1, MSS, true));
        assert_eq!(divided.window(), 20 * MSS);
        divided.lost(20 * MSS, MSS);
        (0..10 * MSS).for_each(|_| divided.acknowledged(1, MSS, true));
        assert_eq!(divided.window(), 11 * MSS);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut congestion = Congestion::new(MSS, 10);
        congestion.acknowledged(MSS, MSS, false);
        assert_eq!(congestion.window(), 10 * MSS);
    }

    #[test]
    fn losses_halve_and_timeouts_begin_again() {
        let mut congestion = Congestion::new(MSS, 10);
        congestion.lost(10 * MSS, MSS);
        assert_eq!(congestion.window(), 5 * MSS);
        congestion.timed_out(10 * MSS, MSS, true);
        assert_eq!((congestion.window(), congestion.threshold), (MSS, 5 * MSS));
        congestion.timed_out(MSS, MSS, false);
        assert_eq!(congestion.threshold, 5 * MSS);
        congestion.lost(MSS, MSS);
        assert_eq!(congestion.window(), 2 * MSS, "never below two segments");
    }
}
