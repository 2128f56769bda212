//! The watchdog thread: it sends keep-alive pings to the service manager (`WatchdogSec=`) as long as every core makes
//! progress. If a core stalls, the pings end, and the service manager restarts the node.
//!
//! Each core counts the turns of its loop, four a second even without any load. The thread compares these counters, so
//! it costs the cores nothing. It runs from the start of the cores until every other thread has ended. Until the node is
//! ready, cores may take long for their first turns, and the service manager does not expect pings yet: its own timeout
//! of starts applies. So the thread reports stalls only from then on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_settings::exit::Exit;
use carom_telemetry::stats::{CoreStats, NodeStats};

use super::announce::{notify_alive, watchdog_timeout};
use super::base::Base;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use crate::services::threads;
use crate::services::threads::priority::Priority;

/// Looks at the cores within the timeout of the service manager. A look between two turns of an idle core sees no
/// progress, so one or two of them must not matter.
const LOOKS: u32 = 4;

/// A handle on the thread.
struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the watchdog, if the service manager has asked this process for keep-alive pings.
///
/// # Errors
/// If the operating system refuses a thread.
pub(super) fn start(base: &Base, supervisor: &mut Supervisor) -> Result<(), Exit> {
    let Some(timeout) = watchdog_timeout() else { return Ok(()) };
    let watchdog = spawn(TurnProgress::new(Arc::clone(&base.core_stats)), Arc::clone(&base.stats), timeout)
        .map_err(|error| thread_exit("the watchdog", &error))?;
    supervisor.register(StopPhase::Watchdog, "watchdog", move || watchdog.stop());
    Ok(())
}

fn spawn(mut progress: TurnProgress, node: Arc<NodeStats>, timeout: Duration) -> io::Result<Watchdog> {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let run = move || {
        let mut reports = StallReports::new(timeout / 2, Instant::now());
        while !until.load(Ordering::Acquire) {
            let looked = progress.look();
            if looked.is_ok() {
                notify_alive();
            }
            match reports.next(&looked, node.ready.load(Ordering::Acquire), Instant::now()) {
                Some(StallReport::Begins { core, seconds }) => tracing::error!(
                    "{core} has made no progress for {seconds:.1} s; without progress, the service manager restarts the node"
                ),
                Some(StallReport::Ends) => tracing::info!("every core makes progress again"),
                None => {}
            }
            std::thread::park_timeout(timeout / LOOKS);
        }
    };
    let thread = threads::start(Priority::Urgent, "watchdog", run)?;
    Ok(Watchdog { stop, thread })
}

/// A line of the log about a core without progress.
#[derive(PartialEq, Debug)]
enum StallReport<'c> {
    /// The core has made no progress for so many seconds.
    Begins { core: &'c str, seconds: f64 },
    /// Every core makes progress again.
    Ends,
}

/// The decision about the lines of the log: one when a stall lasts, and one at its end.
struct StallReports {
    /// Time without progress that is reported, before the service manager ends the process, which then cannot log
    /// anything.
    after: Duration,
    /// The last instant at which every core made progress, or the node was not ready yet.
    last_sign: Instant,
    is_reported: bool,
}

impl StallReports {
    fn new(after: Duration, now: Instant) -> StallReports {
        StallReports { after, last_sign: now, is_reported: false }
    }

    /// Returns the line after a look at the cores.
    fn next<'c>(&mut self, looked: &'c Result<(), String>, is_ready: bool, now: Instant) -> Option<StallReport<'c>> {
        let Err(core) = looked else {
            self.last_sign = now;
            return std::mem::take(&mut self.is_reported).then_some(StallReport::Ends);
        };
        if !is_ready {
            // The service manager counts from the message that the node is ready.
            self.last_sign = now;
            return None;
        }
        let since = now.saturating_duration_since(self.last_sign);
        if self.is_reported || since < self.after {
            return None;
        }
        self.is_reported = true;
        Some(StallReport::Begins { core, seconds: since.as_secs_f64() })
    }
}

/// The progress of every core since the last keep-alive ping.
struct TurnProgress {
    /// The counters of each core, the admin listener's last.
    cores: Arc<[Arc<CoreStats>]>,
    /// The turns of each core at the last keep-alive ping.
    turns: Vec<u64>,
}

impl TurnProgress {
    fn new(cores: Arc<[Arc<CoreStats>]>) -> TurnProgress {
        assert!(!cores.is_empty(), "a node without cores would seem alive forever");
        let turns = cores.iter().map(|core| core.turns.get()).collect();
        TurnProgress { cores, turns }
    }

    /// Checks that every core has turned since the last successful look, or has ended in order.
    ///
    /// # Errors
    /// The name of a core that has not.
    fn look(&mut self) -> Result<(), String> {
        let turns: Vec<u64> = self.cores.iter().map(|core| core.turns.get()).collect();
        let stands_still = |index: &usize| {
            turns[*index] == self.turns[*index] && !self.cores[*index].has_ended.load(Ordering::Acquire)
        };
        match (0..turns.len()).find(stands_still) {
            Some(index) if index + 1 == turns.len() => Err("the core of the admin listener".to_owned()),
            Some(index) => Err(format!("core {index}")),
            None => {
                self.turns = turns;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_takes_progress_of_every_core() {
        let cores: Arc<[Arc<CoreStats>]> = (0..3).map(|_| Arc::default()).collect();
        let mut progress = TurnProgress::new(Arc::clone(&cores));
        let turn = |core: usize| cores[core].turns.add(1);
        assert_eq!(progress.look(), Err("core 0".to_owned()));
        turn(0);
        turn(2);
        assert_eq!(progress.look(), Err("core 1".to_owned()));
        // Progress of the others since the last keep-alive ping still counts.
        turn(1);
        assert_eq!(progress.look(), Ok(()));
        turn(0);
        turn(1);
        assert_eq!(progress.look(), Err("the core of the admin listener".to_owned()));
        turn(2);
        assert_eq!(progress.look(), Ok(()));
    }

    #[test]
    fn stalls_are_reported_once_the_node_is_ready() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut reports = StallReports::new(Duration::from_secs(5), begin);
        let (stall, progress) = (Err("core 0".to_owned()), Ok(()));
        // A slow start is not a stall, however long it takes.
        assert_eq!(reports.next(&stall, false, at(60)), None);
        assert_eq!(reports.next(&stall, true, at(64)), None);
        assert_eq!(reports.next(&stall, true, at(65)), Some(StallReport::Begins { core: "core 0", seconds: 5.0 }));
        assert_eq!(reports.next(&stall, true, at(70)), None);
        assert_eq!(reports.next(&progress, true, at(71)), Some(StallReport::Ends));
        assert_eq!(reports.next(&progress, true, at(72)), None);
        assert_eq!(reports.next(&stall, true, at(76)), None);
        assert_eq!(reports.next(&stall, true, at(77)), Some(StallReport::Begins { core: "core 0", seconds: 5.0 }));
    }

    #[test]
    fn a_core_that_has_ended_need_not_turn() {
        let cores: Arc<[Arc<CoreStats>]> = (0..2).map(|_| Arc::default()).collect();
        let mut progress = TurnProgress::new(Arc::clone(&cores));
        cores[0].has_ended.store(true, Ordering::Release);
        assert!(progress.look().is_err());
        cores[1].turns.add(1);
        assert_eq!(progress.look(), Ok(()));
        cores[1].has_ended.store(true, Ordering::Release);
        assert_eq!(progress.look(), Ok(()));
    }
}
