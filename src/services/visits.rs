//! Visit counting. Cores report visits through rings. Two threads sum them up in memory, write them to a log twice a
//! second, and fold them into the store from time to time.
//!
//! * [`carom_model::visits::tally`]: counts in memory, and the stored form of a row;
//! * [`carom_model::visits::history`]: the visits of one link, by day and hour;
//! * `log`: the write-ahead log of counts;
//! * `fold`: the way from the log to the store;
//! * `parts`: visits by app and by domain;
//! * `intake`: visits taken out of the rings, by a thread that never waits for a disk;
//! * `aggregator`: combines the above, and recovers the counts after a crash;
//! * `top_links`: the most visited links;
//! * `exchange`, `snapshots`: the counts of other nodes in a fleet, by a thread of their own;
//! * `copies`: copies for backups.
//!
//! A redirect pays for one message to a ring and nothing else. A reader of counts empties the rings first, so that it
//! sees every visit that was answered before.

mod aggregator;
pub mod copies;
mod exchange;
mod fold;
mod intake;
mod log;
mod parts;
mod snapshots;
mod top_links;

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use carom_shards::Code;

use self::aggregator::{VisitAggregator, locked};
pub use self::exchange::FleetVisits;
use self::intake::Intake;
use self::parts::Apps;
use carom_model::visits::VisitReceiver;
use carom_model::visits::history::History;
use carom_model::visits::tally::{Subject, VisitCounts};
use carom_store::links::{Ended, Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// The folder of the logs in a data directory.
const FOLDER: &str = "visits";

/// Interval between two drains of the rings while they hold fewer than [`BUSY`] visits.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Interval between two drains after one of [`BUSY`] visits or more.
const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// Number of visits in one drain that counts as busy: a quarter of a ring.
const BUSY: usize = 2_048;

/// Interval between two writes to the log. With the time of the write, a crash loses less than a second of visits.
const LOG_EVERY: Duration = Duration::from_millis(500);

/// Number of links counted under one lock, before other threads get their turn: about a millisecond.
const COUNTED_PER_LOCK: usize = 256;

/// The counts of visits, for any thread that needs them. Cheap to clone.
#[derive(Clone)]
pub struct VisitReader {
    aggregator: Arc<Mutex<VisitAggregator>>,
}

impl std::fmt::Debug for VisitReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visits")
    }
}

/// A handle on the threads that count: one empties the rings, the other writes to the log and the store. In a fleet,
/// a third one exchanges counts with other nodes.
pub struct Counting {
    stop: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
    exchange: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// The running counting threads, and the ways to reach them.
pub struct StartedVisits {
    /// The counts of visits.
    pub visits: VisitReader,
    /// The channel on which the writer announces ended links, before any other thread hears of them.
    pub ended: Sender<Vec<Ended>>,
    /// The handle on the threads.
    pub counting: Counting,
}

/// Reads back the counts, and starts to count. The logs are in a folder of the data directory. `fleet` is `None` for a
/// node without Redis.
///
/// # Errors
/// If the logs or the store cannot be read, or the operating system cannot start a thread.
pub fn start(
    data_dir: &Path,
    links: &Links,
    receivers: Vec<VisitReceiver>,
    stats: &Arc<NodeStats>,
    fleet: Option<FleetVisits>,
) -> io::Result<StartedVisits> {
    let (ended, receiver) = channel();
    let aggregator =
        VisitAggregator::open(&data_dir.join(FOLDER), links.clone(), receivers, receiver, Arc::clone(stats))?;
    let intake = aggregator.intake();
    let visits = VisitReader { aggregator: Arc::new(Mutex::new(aggregator)) };
    let (stop, stop_exchange) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (checked, is_checked) = channel();
    let exchange = fleet.map(|fleet| {
        let thread = exchange::start(fleet, visits.clone(), stats, Arc::clone(&stop_exchange), checked)?;
        Ok::<_, io::Error>((stop_exchange, thread))
    });
    let exchange = exchange.transpose()?;
    let (of_thread, until) = (visits.clone(), Arc::clone(&stop));
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let sender = exchange.as_ref().map(|(_, thread)| thread.thread().clone());
    let writing = spawn("visits-log").spawn(move || {
        // The channel ends once the identity of the node is checked, at once without a fleet.
        let _ = is_checked.recv();
        of_thread.write(&until, sender.as_ref());
    })?;
    let until = Arc::clone(&stop);
    let emptying = spawn("visits").spawn(move || empty(&intake, &until))?;
    Ok(StartedVisits { visits, ended, counting: Counting { stop, threads: [emptying, writing], exchange } })
}

impl Counting {
    /// Stops the threads after a last write. Call it after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
        // It publishes what the others have synced.
        if let Some((stop, thread)) = self.exchange {
            stop.store(true, Ordering::Release);
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// Empties the rings until the node ends. This thread never waits for a disk: a ring holds the visits of a core during
/// a few syncs of a slow disk.
fn empty(intake: &Mutex<Intake>, until: &AtomicBool) {
    while !until.load(Ordering::Acquire) {
        let found = locked(intake).drain(unix_ms());
        std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
    }
}

impl VisitReader {
    fn aggregator(&self) -> MutexGuard<'_, VisitAggregator> {
        self.aggregator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes counts to the log and the store until the node ends, and wakes the thread that sends them to other nodes.
    fn write(&self, until: &AtomicBool, sender: Option<&Thread>) {
        let mut logged = Instant::now();
        while !until.load(Ordering::Acquire) {
            self.aggregator().collect(unix_ms());
            if logged.elapsed() >= LOG_EVERY {
                logged = Instant::now();
                self.log();
                sender.into_iter().for_each(Thread::unpark);
            }
            self.go_on();
            let is_pressed = self.aggregator().is_pressed();
            std::thread::park_timeout(if is_pressed { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.aggregator().collect(unix_ms());
        self.log();
    }

    /// Does a step of the work that is not urgent. The links are looked up without the lock of the aggregator, so
    /// readers of counts need not wait for the store.
    fn go_on(&self) {
        let (links, codes) = {
            let aggregator = self.aggregator();
            (aggregator.links(), aggregator.next_links())
        };
        let apps = Apps::look_up(&links, codes, None).unwrap_or_default();
        self.aggregator().go_on(&apps);
    }

    /// Writes to the log and syncs it. The sync runs without the lock of the aggregator, so readers of counts need not
    /// wait for the disk.
    fn log(&self) {
        let unsynced = {
            let mut aggregator = self.aggregator();
            aggregator.write_log();
            aggregator.take_unsynced()
        };
        if let Some(unsynced) = unsynced {
            let synced = unsynced.sync();
            self.aggregator().synced(synced);
        }
        // An error does no harm: an old mark is worse than a new one, but better than none, and a failing disk is
        // noticed elsewhere.
        let links = self.aggregator().links();
        let _ = links.flush_mark();
    }

    /// Returns the visits of the links with these codes, in their order. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        self.aggregator().collect(unix_ms());
        self.counts_so_far(codes)
    }

    /// Returns the visits of a link that this node has counted itself. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn own_counts(&self, code: Code) -> Result<VisitCounts, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.own_counts(code)
    }

    fn counts_so_far(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        let mut counts = Vec::with_capacity(codes.len());
        for some in codes.chunks(COUNTED_PER_LOCK) {
            let aggregator = self.aggregator();
            for code in some {
                counts.push(aggregator.counts(Subject::Link(*code))?);
            }
        }
        Ok(counts)
    }

    /// Returns the codes of the most visited links, at most `count` of them, most visited first. The ranking may be
    /// some seconds old.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn most_visited(&self, count: usize, without_bots: bool) -> Result<Vec<Code>, StoreError> {
        let candidates = {
            let mut aggregator = self.aggregator();
            aggregator.collect(unix_ms());
            aggregator.take_candidates()
        };
        if let Some(codes) = candidates {
            let counts = self.counts_so_far(&codes)?;
            self.aggregator().rank(codes.into_iter().zip(counts));
        }
        Ok(self.aggregator().most_visited(count, without_bots))
    }

    /// Returns the visits by referring host on `days`, counted from 1970 UTC, summed over all links. Blocks for the
    /// store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.referrers(days)
    }

    /// Returns the history of the visits of a subject. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn history(&self, subject: Subject) -> Result<History, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.history(subject)
    }
}

#[cfg(test)]
mod tests;
