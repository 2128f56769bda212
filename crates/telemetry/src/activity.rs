//! What a node did in each second of the last minutes: what its status is drawn from.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seconds that are kept: two minutes.
const KEPT: usize = 120;

/// Seconds that a rate is taken over, where it should not jump.
const SMOOTHED: usize = 60;

/// What one core did in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreBeat {
    /// Redirects.
    pub redirects: u32,
    /// Requests for codes that do not exist or are gone.
    pub misses: u32,
}

/// What a node did in a second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beat {
    /// Its cores, in order.
    pub cores: Vec<CoreBeat>,
    /// Links created, changed and deleted.
    pub changes: u32,
    /// Connections accepted.
    pub accepted: u32,
}

/// The last seconds of a node. One thread adds to it, whoever tells of the node reads it.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<VecDeque<Beat>>);

impl Pulse {
    /// Adds a second.
    pub fn add(&self, beat: Beat) {
        let mut beats = self.lock();
        if beats.len() == KEPT {
            beats.pop_front();
        }
        beats.push_back(beat);
    }

    /// All that are kept, the last one last.
    pub fn beats(&self) -> Vec<Beat> {
        self.lock().iter().cloned().collect()
    }

    /// Changes a second, over the last minute.
    pub fn changes_per_second(&self) -> f64 {
        let beats = self.lock();
        let last = beats.iter().rev().take(SMOOTHED);
        let count = last.len().max(1);
        last.map(|beat| f64::from(beat.changes)).sum::<f64>() / count as f64
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Beat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seconds_are_kept_and_the_rate_is_that_of_a_minute() {
        let pulse = Pulse::default();
        assert_eq!((pulse.beats().len(), pulse.changes_per_second()), (0, 0.0));
        for number in 0..500 {
            pulse.add(Beat { changes: if number >= 470 { 10 } else { 0 }, ..Beat::default() });
        }
        assert_eq!((pulse.beats().len(), pulse.changes_per_second()), (KEPT, 5.0));
    }
}
