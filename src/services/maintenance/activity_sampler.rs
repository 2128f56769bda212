//! The pulse thread: it samples the counters each second and keeps their rates. It raises an alarm when visits are not
//! counted, and watches kernel bypass.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bypass_watch::BypassWatch;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_telemetry::activity::{ActivitySample, CoreSample};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{CoreStats, NodeStats};

const EVERY: Duration = Duration::from_secs(1);

/// Time without a dropped visit after which the alarm clears.
const CALM: Duration = Duration::from_secs(60);

/// A handle on the pulse thread.
pub struct PulseThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl PulseThread {
    /// Stops the thread and waits for it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread that samples the counters of these cores.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(cores: Vec<Arc<CoreStats>>, stats: Arc<NodeStats>) -> io::Result<PulseThread> {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let run = move || {
        let (mut before, mut at) = (CounterTotals::of(&cores, &stats), Instant::now());
        let (mut dropped, mut bypass) = (Dropped::default(), BypassWatch::default());
        loop {
            std::thread::park_timeout(EVERY.saturating_sub(at.elapsed()));
            if until.load(Ordering::Acquire) {
                return;
            }
            // The thread may have woken up early.
            if at.elapsed() < EVERY {
                continue;
            }
            let (now, time) = (CounterTotals::of(&cores, &stats), at.elapsed());
            at = Instant::now();
            stats.activity.add(now.since(&before, time));
            dropped.look(&stats, at);
            bypass.look(&stats, &cores, at);
            before = now;
        }
    };
    let thread = threads::start(Priority::Long, "pulse", run)?;
    Ok(PulseThread { stop, thread })
}

/// A watch on visits that were not counted.
#[derive(Default)]
struct Dropped {
    seen: u64,
    last: Option<Instant>,
}

impl Dropped {
    /// Raises the alarm if more visits were dropped, and clears it after [`CALM`] without any.
    fn look(&mut self, stats: &NodeStats, now: Instant) {
        let dropped = stats.visits_dropped.get();
        if dropped > self.seen {
            (self.seen, self.last) = (dropped, Some(now));
            let text = format!("visits not counted since the start: {dropped}; the visit counts of links are too low");
            stats.alarms.raise(Alarm::VisitsDropped, text);
        } else if self.last.is_some_and(|last| now.duration_since(last) >= CALM) {
            self.last = None;
            stats.alarms.clear(Alarm::VisitsDropped);
        }
    }
}

/// Sums of the counters since the start.
struct CounterTotals {
    cores: Vec<(u64, u64)>,
    changes: u64,
    issued: u64,
    accepted: u64,
}

impl CounterTotals {
    fn of(cores: &[Arc<CoreStats>], stats: &NodeStats) -> CounterTotals {
        CounterTotals {
            cores: cores.iter().map(|core| (core.redirects.get(), core.misses.get())).collect(),
            changes: stats.store_updates.get(),
            issued: stats.links_issued.get(),
            accepted: cores.iter().map(|core| core.accepted.get()).sum(),
        }
    }

    /// Returns the rates per second since `before`. A thread that was delayed has covered more than one second.
    fn since(&self, before: &CounterTotals, time: Duration) -> ActivitySample {
        let rate = |now: u64, before: u64| (now.wrapping_sub(before) as f64 / time.as_secs_f64()).round() as u32;
        let cores = self.cores.iter().zip(&before.cores);
        ActivitySample {
            cores: cores
                .map(|(now, before)| CoreSample { redirects: rate(now.0, before.0), misses: rate(now.1, before.1) })
                .collect(),
            changes: rate(self.changes, before.changes),
            issued: rate(self.issued, before.issued),
            accepted: rate(self.accepted, before.accepted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_visits_raise_an_alarm_until_it_is_calm() {
        let (stats, mut dropped, start) = (NodeStats::default(), Dropped::default(), Instant::now());
        let is_on = || stats.alarms.is_on(Alarm::VisitsDropped);
        dropped.look(&stats, start);
        assert!(!is_on());
        stats.visits_dropped.add_shared(3);
        dropped.look(&stats, start);
        assert!(is_on());
        dropped.look(&stats, start + CALM - Duration::from_secs(1));
        assert!(is_on());
        dropped.look(&stats, start + CALM);
        assert!(!is_on());
    }

    #[test]
    fn a_late_look_is_no_burst() {
        let before = CounterTotals { cores: vec![(100, 5), (0, 0)], changes: 10, issued: 4, accepted: 7 };
        let now = CounterTotals { cores: vec![(700, 5), (30, 3)], changes: 40, issued: 10, accepted: 7 };
        let beat = now.since(&before, Duration::from_secs(3));
        let cores = vec![CoreSample { redirects: 200, misses: 0 }, CoreSample { redirects: 10, misses: 1 }];
        assert_eq!(beat, ActivitySample { cores, changes: 10, issued: 2, accepted: 0 });
    }
}
