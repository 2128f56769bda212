//! Purges: the removal of everything about deleted links, except their codes, from the files of all nodes and from Redis.
//!
//! * `registry`: the purges that the node knows, and their stages;
//! * `erasure`: carries purges out on this node, on a thread of its own;
//! * `sharing`: the purges of the fleet, through Redis;
//! * `reader`: the purges that Redis has, and when they are read again;
//! * `sites`: the exchange with the other site of the fleet, on the thread `purge-sites`.
//!
//! A request begins a purge before it deletes the links, and runs it afterwards. So a crash in between leaves a purge of
//! the links that were deleted. The thread `purges` answers requests and asks Redis; the thread `purge` waits for
//! everything else.

mod erasure;
mod reader;
mod registry;
mod sharing;
mod sites;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use self::erasure::{Eraser, RedisLosses};
use self::registry::{PurgeRegistry, PurgeStage, locked};
use self::sharing::PurgeSharing;
pub use self::sites::PurgeSites;
use self::sites::SiteExchange;
use crate::bridge::fleet_view::FleetView;
use crate::bridge::visit_log::VisitLogQueue;
use crate::bridge::{Mailboxes, PurgeAnswer, PurgeOrder, PurgeProgress, PurgeQueue};
use crate::services::map_image::ImageHold;
use crate::services::replication::redis::Redis;
use crate::services::search::Catalog;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::visits::VisitReader;
use carom_model::purge::{PurgeId, PurgeList, PurgedLink};
use carom_store::links::Links;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Longest wait for a request. Then the thread looks whether an exchange is due.
const TURN: Duration = Duration::from_millis(500);

/// Interval between two exchanges with Redis.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// Time that a request has to delete the links of its purge and to run it. After that, the client has disconnected, and the
/// thread `purges` runs the purge.
const ABANDONED_AFTER: Duration = Duration::from_secs(120);

/// The reason why a purge does not end while the node does not reach Redis.
const WAITS_FOR_REDIS: &str =
    "Redis does not answer this node (alarm redis_away or other_key), and the purge waits for it";

/// The reason why a purge does not begin before the node has reached Redis.
const DATED_BY_REDIS: &str =
    "Redis does not answer this node (alarm redis_away or other_key), and its clock gives a purge its date";

/// The channels and handles that a purge takes over from the services around the store.
pub struct PurgeSources {
    /// The requests.
    pub orders: Receiver<PurgeOrder>,
    /// The queue of the requests.
    pub queue: PurgeQueue,
    /// The counts of visits.
    pub visits: VisitReader,
    /// The queue to the visit log; `None` if it is off.
    pub visit_log: Option<VisitLogQueue>,
}

/// The part of purges that concerns a fleet.
pub struct PurgeFleet {
    /// The name of this node.
    pub node: String,
    /// The connection of the thread `purges`.
    pub sharing: Redis,
    /// The connection of the thread `purge`.
    pub erasing: Redis,
    /// The knowledge about the fleet.
    pub view: Arc<FleetView>,
    /// The sites of the fleet; `None` if it has one.
    pub sites: Option<PurgeSites>,
}

/// Inputs of the threads.
pub struct PurgeSetup {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The store. Only the writer removes links from it.
    pub links: Links,
    /// The search index.
    pub catalog: Arc<Catalog>,
    /// The switch that holds back images of the map; `None` if the node makes none.
    pub image: Option<Arc<ImageHold>>,
    /// The mailboxes of the cores, for answers.
    pub mailboxes: Mailboxes,
    /// Counters of the node.
    pub stats: Arc<NodeStats>,
    /// The channels of the services around the store.
    pub sources: PurgeSources,
    /// The fleet; `None` for a single node.
    pub fleet: Option<PurgeFleet>,
}

/// A handle on the threads.
pub struct PurgeThreads {
    stop: Arc<AtomicBool>,
    queue: PurgeQueue,
    threads: Vec<JoinHandle<()>>,
}

impl PurgeThreads {
    /// Stops the threads and waits for them. A purge that has not ended continues after the next start.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // With a full queue, the thread is awake anyway.
        let _ = self.queue.try_send(PurgeOrder::Wake);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// Starts the threads. All links must have been loaded before.
///
/// # Errors
/// If the purges of the data directory cannot be read, or the operating system cannot start a thread.
pub fn start(setup: PurgeSetup) -> io::Result<PurgeThreads> {
    let stop = Arc::new(AtomicBool::new(false));
    let registry = Arc::new(Mutex::new(PurgeRegistry::open(&setup.data_dir)?));
    let PurgeSetup { data_dir, links, catalog, image, mailboxes, stats, sources, fleet } = setup;
    let PurgeSources { orders, queue, visits, visit_log } = sources;
    let (sharing, redis, view, sites) = match fleet {
        Some(PurgeFleet { node, sharing, erasing, view, sites }) => {
            let (stats, visits) = (Arc::clone(&stats), visits.clone());
            let names = sites.as_ref().map(|sites| (sites.name.clone(), sites.other_name.clone()));
            let sharing = PurgeSharing::new((node, sharing), names, links.clone(), stats, visits);
            (Some(sharing), Some(erasing), Some(view), sites)
        }
        None => (None, None, None, None),
    };
    let exchange = sites.map(|sites| SiteExchange::new(sites, Arc::clone(&stats), Arc::clone(&stop)));
    let eraser = Eraser {
        registry: Arc::clone(&registry),
        data_dir,
        links,
        catalog,
        image,
        visits,
        visit_log,
        redis,
        view,
        losses: RedisLosses::default(),
        stats,
        stop: Arc::clone(&stop),
    };
    let erasing = threads::start(Priority::Background, "purge", move || eraser.run())?;
    let eraser = erasing.thread().clone();
    let service = PurgeService { registry, mailboxes, sharing, eraser, stop: Arc::clone(&stop) };
    let serving = threads::start(Priority::Awaited, "purges", move || service.run(&orders))?;
    let mut started = vec![serving, erasing];
    if let Some(exchange) = exchange {
        started.push(threads::start(Priority::Long, "purge-sites", move || exchange.run())?);
    }
    Ok(PurgeThreads { stop, queue, threads: started })
}

/// The thread that answers requests, and exchanges purges with other nodes.
struct PurgeService {
    registry: Arc<Mutex<PurgeRegistry>>,
    mailboxes: Mailboxes,
    /// The exchange with other nodes; `None` for a single node.
    sharing: Option<PurgeSharing>,
    /// The thread that carries purges out.
    eraser: Thread,
    stop: Arc<AtomicBool>,
}

impl PurgeService {
    fn run(mut self, orders: &Receiver<PurgeOrder>) {
        let mut shared: Option<Instant> = None;
        while !self.stop.load(Ordering::Acquire) {
            match orders.recv_timeout(TURN) {
                Ok(order) => self.serve(order),
                Err(RecvTimeoutError::Timeout) => {}
                // Nobody can ask any more.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if shared.is_none_or(|then| then.elapsed() >= SHARE_EVERY) {
                shared = Some(Instant::now());
                self.run_abandoned();
                self.share();
            }
        }
    }

    fn serve(&mut self, order: PurgeOrder) {
        let (result, ticket) = match order {
            PurgeOrder::Begin { links, ticket } => (self.begin(links), ticket),
            PurgeOrder::Run { id, ticket } => (self.run_purge(id), ticket),
            PurgeOrder::Read { id, ticket } => (Ok(self.progress(id)), ticket),
            PurgeOrder::Wake => return,
        };
        self.mailboxes.answer(ticket, PurgeAnswer(result));
    }

    fn begin(&mut self, links: Vec<PurgedLink>) -> Result<Option<PurgeProgress>, String> {
        let number = getrandom::u64().map_err(|error| format!("no random number for the purge: {error}"))?;
        let id = PurgeId(number);
        // By the clock of Redis, since all nodes measure the age of the purge by it.
        let at_ms = match &mut self.sharing {
            Some(sharing) => sharing.now_ms().map_err(|error| {
                tracing::debug!(%error, "Redis does not tell the time of a purge");
                DATED_BY_REDIS.to_owned()
            })?,
            None => unix_ms(),
        };
        locked(&self.registry).begin(id, PurgeList { at_ms, links })?;
        Ok(self.progress(id))
    }

    fn run_purge(&self, id: PurgeId) -> Result<Option<PurgeProgress>, String> {
        let begun = locked(&self.registry).advance(id, PurgeStage::Due);
        begun.map_err(|error| format!("the purge cannot be stored: {error}"))?;
        self.eraser.unpark();
        Ok(self.progress(id))
    }

    /// Returns the progress of a purge, with the reason if it waits for Redis, and the silent nodes that it waits for.
    fn progress(&self, id: PurgeId) -> Option<PurgeProgress> {
        let mut progress = locked(&self.registry).progress(id)?;
        if let Some(sharing) = &self.sharing {
            sharing.note_silence(&mut progress.nodes);
            sharing.note_sites(&mut progress);
            sharing.note_trim(&mut progress);
        }
        if !progress.is_complete && self.sharing.as_ref().is_some_and(|sharing| !sharing.is_connected()) {
            let own = progress.error.map_or_else(String::new, |own| format!("; {own}"));
            progress.error = Some(format!("{WAITS_FOR_REDIS}{own}"));
        }
        Some(progress)
    }

    /// Runs the purges whose request ended between the deletion of the links and the order to run them.
    fn run_abandoned(&self) {
        let mut registry = locked(&self.registry);
        for id in registry.abandoned(ABANDONED_AFTER, Instant::now()) {
            registry
                .advance(id, PurgeStage::Due)
                .unwrap_or_else(|error| tracing::warn!(%error, "cannot store a purge"));
        }
    }

    /// Exchanges purges with other nodes. On a single node, a purge is complete once it is carried out there.
    fn share(&mut self) {
        match &mut self.sharing {
            Some(sharing) => {
                if sharing.share(&self.registry) {
                    self.eraser.unpark();
                }
            }
            None => {
                let mut registry = locked(&self.registry);
                for id in registry.ids(|_, entry| entry.stage == PurgeStage::Erased) {
                    registry
                        .advance(id, PurgeStage::Complete)
                        .unwrap_or_else(|error| tracing::warn!(%error, "cannot store that a purge is complete"));
                }
                registry.forget_old(unix_ms());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::services::testing::TestNode;

    #[test]
    fn stop_waits_for_no_turn() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let service = PurgeService {
            registry: Arc::new(Mutex::new(PurgeRegistry::open(dir.path()).unwrap())),
            mailboxes: TestNode::new(dir.path(), 1).mailboxes,
            sharing: None,
            eraser: std::thread::current(),
            stop: Arc::clone(&stop),
        };
        let (queue, orders) = sync_channel(1);
        let serving = std::thread::spawn(move || service.run(&orders));
        // The second one has room once the thread has taken the first.
        (0..2).for_each(|_| queue.send(PurgeOrder::Wake).unwrap());
        let threads = PurgeThreads { stop, queue, threads: vec![serving] };
        let begun = Instant::now();
        threads.stop();
        assert!(begun.elapsed() < TURN / 2, "{:?}", begun.elapsed());
    }
}
