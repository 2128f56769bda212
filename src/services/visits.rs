//! Visit counting. Cores report visits through rings. Two threads sum them up in memory, write them to a log twice a
//! second, and fold them into the store from time to time.
//!
//! * [`carom_model::visits::tally`]: counts in memory, and the stored form of a row;
//! * [`carom_model::visits::history`]: the visits of one link, by day and hour;
//! * `log`: the write-ahead log of counts;
//! * `fold`: the way from the log to the store;
//! * `groups`: visits by app and by domain;
//! * `intake`: visits taken out of the rings, by a thread that never waits for a disk;
//! * `fleet_counts`: in a fleet, how far the batches of each node have come;
//! * `aggregator`: combines the above, and recovers the counts after a crash;
//! * `reader`: the counts for other threads;
//! * `top_links`: the most visited links;
//! * `count_exchange`, `following`, `snapshots`: the counts of other nodes in a fleet, by a thread of their own;
//! * `copies`: copies for backups.
//!
//! A redirect pays for one message to a ring and nothing else. A reader of counts empties the rings first, so that it
//! sees every visit that was answered before.

mod aggregator;
pub mod copies;
mod count_exchange;
mod fleet_counts;
mod fold;
mod following;
mod groups;
mod intake;
mod log;
mod reader;
mod snapshots;
mod stored_rows;
mod top_links;
mod unfinished;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use self::aggregator::VisitAggregator;
pub use self::count_exchange::FleetVisits;
use self::intake::{BUSY, COLLECT_BUSY, COLLECT_EVERY, Intake, locked};
pub use self::reader::VisitReader;
use super::threads;
use super::threads::priority::Priority;
use carom_model::visits::VisitReceiver;
use carom_store::links::{Ended, Links};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// The folder of the logs in a data directory.
const FOLDER: &str = "visits";

/// A handle on the threads that count: one empties the rings, the other writes to the log and the store. In a fleet,
/// a third one exchanges counts with other nodes.
pub struct CountingThreads {
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
    pub threads: CountingThreads,
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
    let (checked_sender, checked_receiver) = channel();
    let exchange = fleet.map(|fleet| {
        let thread = count_exchange::start(fleet, visits.clone(), stats, Arc::clone(&stop_exchange), checked_sender)?;
        Ok::<_, io::Error>((stop_exchange, thread))
    });
    let exchange = exchange.transpose()?;
    let (of_thread, until) = (visits.clone(), Arc::clone(&stop));
    let sender = exchange.as_ref().map(|(_, thread)| thread.thread().clone());
    let writing = threads::start(Priority::Locking, "count-log", move || {
        // The channel ends once the identity of the node is checked, at once without a fleet.
        let _ = checked_receiver.recv();
        of_thread.write(&until, sender.as_ref());
    })?;
    let until = Arc::clone(&stop);
    let emptying = threads::start(Priority::Urgent, "visits", move || empty(&intake, &until))?;
    Ok(StartedVisits { visits, ended, threads: CountingThreads { stop, threads: [emptying, writing], exchange } })
}

impl CountingThreads {
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

#[cfg(test)]
mod tests;
