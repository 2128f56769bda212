//! The intake: it empties the rings of the cores into tallies, and never waits for a disk.
//!
//! The aggregator takes over these tallies when it has time. While the aggregator writes or syncs, the intake continues
//! to empty the rings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carom_limits::VISITS_TALLIED_BYTES;
use carom_model::visits::tally::{Subject, Tally};
use carom_model::visits::{Visit, VisitReceiver};
use carom_telemetry::stats::NodeStats;

/// Interval between two drains of the rings while they hold fewer than [`BUSY`] visits.
pub(super) const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Interval between two drains after one of [`BUSY`] visits or more.
pub(super) const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// Number of visits in one drain that counts as busy: a quarter of a ring.
pub(super) const BUSY: usize = 2_048;

/// Visits that were taken out of the rings and are not in the aggregator yet.
pub(super) struct Intake {
    receivers: Vec<VisitReceiver>,
    stats: Arc<NodeStats>,
    /// The tallies by hour, earlier hours first.
    tallies: Vec<(u32, Tally)>,
    /// Memory of the aggregator's counts, in bytes.
    in_aggregator: usize,
    #[cfg(feature = "faults")]
    is_deaf: bool,
}

impl Intake {
    pub(super) fn new(receivers: Vec<VisitReceiver>, stats: Arc<NodeStats>) -> Intake {
        Intake {
            receivers,
            stats,
            tallies: Vec::new(),
            in_aggregator: 0,
            #[cfg(feature = "faults")]
            is_deaf: crate::services::faults::Faults::from_env().deaf_visits,
        }
    }

    /// Empties the rings. Returns the number of visits.
    pub(super) fn drain(&mut self, now_ms: u64) -> usize {
        #[cfg(feature = "faults")]
        if self.is_deaf {
            return 0;
        }
        let held: usize = self.tallies.iter().map(|(_, tally)| tally.weight()).sum();
        let is_full = self.in_aggregator + held > VISITS_TALLIED_BYTES;
        let tally = tally_of(&mut self.tallies, (now_ms / 3_600_000) as u32);
        let (mut found, mut without_referrer) = (0, 0);
        for receiver in &mut self.receivers {
            found += receiver.drain(|visit| {
                without_referrer += u64::from(is_full && !visit.visitor.host().is_empty());
                count(tally, visit, is_full);
            });
        }
        if without_referrer > 0 {
            self.stats.referrers_dropped.add_shared(without_referrer);
        }
        found
    }

    /// Takes the tallies, by hour. `in_aggregator` is the memory of the aggregator's counts, in bytes.
    pub(super) fn take(&mut self, in_aggregator: usize) -> Vec<(u32, Tally)> {
        let taken = std::mem::take(&mut self.tallies);
        self.in_aggregator = in_aggregator + taken.iter().map(|(_, tally)| tally.weight()).sum::<usize>();
        taken
    }
}

fn count(tally: &mut Tally, visit: &Visit, is_full: bool) {
    let is_bot = visit.visitor.is_bot;
    let host = if is_full { b"" } else { visit.visitor.host() };
    match visit.code {
        Some(code) => {
            tally.add_visit(Subject::Link(code), is_bot, host);
            tally.add_visit(Subject::All, is_bot, host);
        }
        None => tally.add_visit(Subject::Orphans, is_bot, b""),
    }
}

/// Locks an intake.
pub(super) fn locked(intake: &Mutex<Intake>) -> MutexGuard<'_, Intake> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the tally with a key.
pub(super) fn tally_of<K: PartialEq>(tallies: &mut Vec<(K, Tally)>, key: K) -> &mut Tally {
    let at = tallies.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
        tallies.push((key, Tally::default()));
        tallies.len() - 1
    });
    &mut tallies[at].1
}
