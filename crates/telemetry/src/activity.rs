//! The activity of a node in each second of the last two minutes, for its status.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seconds that are kept.
const KEPT: usize = 120;

/// Seconds that a smoothed rate is averaged over.
const SMOOTHED: usize = 60;

/// The activity of one core in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreSample {
    /// Number of redirects.
    pub redirects: u32,
    /// Number of requests without a redirect to a link.
    pub misses: u32,
}

/// The activity of a node in a second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ActivitySample {
    /// The cores, in order.
    pub cores: Vec<CoreSample>,
    /// Number of links created, changed and deleted.
    pub changes: u32,
    /// Number of links created with generated codes.
    pub issued: u32,
    /// Number of connections accepted.
    pub accepted: u32,
}

/// The activity of the last seconds. One service thread adds to it; any thread may read it.
#[derive(Debug, Default)]
pub struct Activity(Mutex<VecDeque<ActivitySample>>);

impl Activity {
    /// Adds a second, and drops the oldest if the history is full.
    pub fn add(&self, sample: ActivitySample) {
        let mut samples = self.lock();
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns the kept seconds, the latest last.
    pub fn samples(&self) -> Vec<ActivitySample> {
        self.lock().iter().cloned().collect()
    }

    /// Returns the activity of the last second; `None` before the first one.
    pub fn last(&self) -> Option<ActivitySample> {
        self.lock().back().cloned()
    }

    /// Returns the links with generated codes that were created per second, averaged over the last minute.
    pub fn issued_per_second(&self) -> f64 {
        let samples = self.lock();
        let last = samples.iter().rev().take(SMOOTHED);
        let count = last.len().max(1);
        last.map(|sample| f64::from(sample.issued)).sum::<f64>() / count as f64
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ActivitySample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seconds_are_kept_and_the_rate_is_that_of_a_minute() {
        let activity = Activity::default();
        assert_eq!((activity.samples().len(), activity.issued_per_second(), activity.last()), (0, 0.0, None));
        for number in 0..500 {
            let issued = if number >= 470 { 10 } else { 0 };
            activity.add(ActivitySample { changes: 30, issued, ..ActivitySample::default() });
        }
        assert_eq!((activity.samples().len(), activity.issued_per_second()), (KEPT, 5.0));
        assert_eq!(activity.last().map(|last| (last.changes, last.issued)), Some((30, 10)));
    }
}
