//! The watchdog thread: it sends keep-alive pings to the service manager (`WatchdogSec=`) as long as every core makes
//! progress. If a core stalls, the pings end, and the service manager restarts the node.
//!
//! Each core counts the turns of its loop, four a second even without any load. The thread compares these counters, so
//! it costs the cores nothing. It runs from the start of the cores until every other thread has ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_settings::exit::Exit;
use carom_telemetry::stats::CoreStats;

use super::announce::{notify_alive, watchdog_timeout};
use super::base::Base;
use super::supervisor::{Phase, Supervisor, thread_exit};

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
    let watchdog = spawn(Progress::new(Arc::clone(&base.core_stats)), timeout)
        .map_err(|error| thread_exit("the watchdog", &error))?;
    supervisor.register(Phase::Watchdog, "watchdog", move || watchdog.stop());
    Ok(())
}

fn spawn(mut progress: Progress, timeout: Duration) -> io::Result<Watchdog> {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let run = move || {
        let (mut last_sign, mut has_warned) = (Instant::now(), false);
        while !until.load(Ordering::Acquire) {
            match progress.look() {
                Ok(()) => {
                    if has_warned {
                        tracing::info!("every core makes progress again");
                    }
                    (last_sign, has_warned) = (Instant::now(), false);
                    notify_alive();
                }
                // Before the service manager ends the process, which then cannot log anything.
                Err(core) if !has_warned && last_sign.elapsed() >= timeout / 2 => {
                    has_warned = true;
                    let seconds = last_sign.elapsed().as_secs_f64();
                    tracing::error!(
                        "{core} has made no progress for {seconds:.1} s; without progress, the service manager restarts the node"
                    );
                }
                Err(_) => {}
            }
            std::thread::park_timeout(timeout / LOOKS);
        }
    };
    let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(run)?;
    Ok(Watchdog { stop, thread })
}

/// The progress of every core since the last keep-alive ping.
struct Progress {
    /// The counters of each core, the admin listener's last.
    cores: Arc<[Arc<CoreStats>]>,
    /// The turns of each core at the last keep-alive ping.
    turns: Vec<u64>,
}

impl Progress {
    fn new(cores: Arc<[Arc<CoreStats>]>) -> Progress {
        assert!(!cores.is_empty(), "a node without cores would seem alive forever");
        let turns = cores.iter().map(|core| core.turns.get()).collect();
        Progress { cores, turns }
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
        let mut progress = Progress::new(Arc::clone(&cores));
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
    fn a_core_that_has_ended_need_not_turn() {
        let cores: Arc<[Arc<CoreStats>]> = (0..2).map(|_| Arc::default()).collect();
        let mut progress = Progress::new(Arc::clone(&cores));
        cores[0].has_ended.store(true, Ordering::Release);
        assert!(progress.look().is_err());
        cores[1].turns.add(1);
        assert_eq!(progress.look(), Ok(()));
        cores[1].has_ended.store(true, Ordering::Release);
        assert_eq!(progress.look(), Ok(()));
    }
}
