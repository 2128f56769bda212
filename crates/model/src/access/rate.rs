//! A rate limit: the generic cell rate algorithm (GCRA; ITU-T I.371, appendix I), in its form of a virtual schedule.
//! The whole state is the instant at which the next event would be due if all events came evenly.
//!
//! This module is pure arithmetic. The caller passes instants in, as numbers in a unit of its choice. The caller also
//! chooses where the state is kept, and how threads share it.

/// A rate limit: one event in each interval, and several at once after a rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gcra {
    interval: u64,
    burst: u64,
}

impl Gcra {
    /// Returns a limit of one event in each `interval`, and as many at once as fit into `burst`.
    ///
    /// # Panics
    /// If not even one fits.
    pub fn new(interval: u64, burst: u64) -> Gcra {
        assert!(0 < interval && interval <= burst, "a burst of {burst} has no room for an interval of {interval}");
        Gcra { interval, burst }
    }

    /// Admits an event at `now`, when the next one was due at `due`; 0 before the first. Returns when the next one is
    /// due.
    ///
    /// # Errors
    /// The wait until the next one is admitted.
    #[inline]
    pub fn take(self, due: u64, now: u64) -> Result<u64, u64> {
        match self.wait(due, now) {
            0 => Ok(due.max(now).saturating_add(self.interval)),
            wait => Err(wait),
        }
    }

    /// Returns the wait until the next event is admitted; 0 if one is admitted now.
    #[inline]
    pub fn wait(self, due: u64, now: u64) -> u64 {
        due.max(now).saturating_add(self.interval).saturating_sub(now.saturating_add(self.burst))
    }

    /// Returns the number of events that are admitted at once.
    #[inline]
    pub fn remaining(self, due: u64, now: u64) -> u64 {
        now.saturating_add(self.burst).saturating_sub(due.max(now)) / self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_rate() -> impl Strategy<Value = Gcra> {
        (1..1_000u64, 0..20_000u64).prop_map(|(interval, more)| Gcra::new(interval, interval + more))
    }

    proptest! {
        #[test]
        fn a_window_admits_a_burst_and_what_falls_due(
            rate in any_rate(),
            rests in proptest::collection::vec(0..500u64, 1..300),
        ) {
            let (mut now, mut due, mut admitted) = (0, 0, Vec::new());
            for rest in rests {
                now += rest;
                if let Ok(next) = rate.take(due, now) {
                    due = next;
                    admitted.push(now);
                }
            }
            for (index, first) in admitted.iter().enumerate() {
                for (others, last) in admitted[index..].iter().enumerate() {
                    let count = 1 + others as u64;
                    prop_assert!(count <= (last - first + rate.burst) / rate.interval);
                }
            }
        }

        #[test]
        fn the_wait_is_exact(rate in any_rate(), due in 0..100_000u64, now in 0..100_000u64) {
            if let Err(wait) = rate.take(due, now) {
                prop_assert_eq!(rate.wait(due, now), wait);
                prop_assert!(rate.take(due, now + wait).is_ok());
                prop_assert!(rate.take(due, now + wait - 1).is_err());
            }
        }

        #[test]
        fn what_remains_is_admitted_at_once(rate in any_rate(), mut due in 0..100_000u64, now in 0..100_000u64) {
            for _ in 0..rate.remaining(due, now) {
                due = rate.take(due, now).unwrap();
            }
            prop_assert!(rate.take(due, now).is_err());
            prop_assert!(rate.remaining(due, now) == 0);
        }

        #[test]
        fn no_instant_overflows(due in any::<u64>(), now in any::<u64>(), interval in 1..=u64::MAX) {
            let rate = Gcra::new(interval, u64::MAX);
            let _ = (rate.take(due, now), rate.remaining(due, now));
        }
    }
}
