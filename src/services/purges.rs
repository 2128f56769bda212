//! Purges: the removal of everything about deleted links, except their codes, from the files of all nodes and from Redis.
//!
//! * `registry`: the purges that the node knows, and their stages;
//! * `folder`: the files of the purges and the selections;
//! * `selections`: the requests to purge links of a shared home by domain, app, tag or destination;
//! * `naming`: begins purges of the links of a selection;
//! * `selecting`: looks for the links of a selection, on the thread `purge-select`;
//! * `erasure`: carries purges out on this node, on a thread of its own;
//! * `home`: purged links in a shared home, about which the store of this node knows nothing;
//! * `losses`: the signs that Redis may have purged links again;
//! * `sharing`: the purges of the fleet, through Redis;
//! * `reader`: the purges that Redis has, and when they are read again;
//! * `sites`: the exchange with the other site of the fleet, on the thread `purge-sites`.
//!
//! A request begins a purge before it deletes the links, and runs it afterwards. So a crash in between leaves a purge of
//! the links that were deleted. The thread `purges` answers requests and asks Redis; the thread `purge` waits for
//! everything else.

mod erasure;
mod folder;
mod home;
mod losses;
mod naming;
mod reader;
mod registry;
mod selecting;
mod selections;
mod sharing;
mod sites;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use self::erasure::Eraser;
use self::home::PurgeHome;
use self::losses::RedisLosses;
use self::registry::{ABANDONED_AFTER, PurgeRegistry, PurgeStage, locked, new_id};
use self::selecting::{Attempts, Searcher};
use self::selections::SelectionRegistry;
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
use carom_model::purge::selection::PurgeSelection;
use carom_model::purge::{PurgeId, PurgeList, PurgedLink};
use carom_store::links::{Ended, Links};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Longest wait for a request. Then the thread looks whether an exchange is due.
const TURN: Duration = Duration::from_millis(500);

/// Interval between two exchanges with Redis.
const SHARE_EVERY: Duration = Duration::from_secs(1);

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
    /// The channel on which the counting threads learn of ended links.
    pub ended: Sender<Vec<Ended>>,
}

/// The part of purges that concerns a fleet.
pub struct PurgeFleet {
    /// The name of this node.
    pub node: String,
    /// The connection of the thread `purges`.
    pub sharing: Redis,
    /// The connection of the thread `purge`.
    pub erasing: Redis,
    /// The connections to the shared home of the links; `None` if this node stores all links.
    pub home: Option<HomeConnections>,
    /// The knowledge about the fleet.
    pub view: Arc<FleetView>,
    /// The sites of the fleet; `None` if it has one.
    pub sites: Option<PurgeSites>,
}

/// The connections to a shared home of links.
pub struct HomeConnections {
    /// The connection of the thread `purge`.
    pub erasing: Redis,
    /// The connection of the thread `purge-select`.
    pub selecting: Redis,
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
    let PurgeSources { orders, queue, visits, visit_log, ended } = sources;
    let (sharing, redis, home, view, sites) = match fleet {
        Some(PurgeFleet { node, sharing, erasing, home, view, sites }) => {
            let (stats, visits) = (Arc::clone(&stats), visits.clone());
            let names = sites.as_ref().map(|sites| (sites.name.clone(), sites.other_name.clone()));
            let sharing = PurgeSharing::new((node, sharing), names, links.clone(), stats, visits);
            (Some(sharing), Some(erasing), home, Some(view), sites)
        }
        None => (None, None, None, None, None),
    };
    let exchange = sites.map(|sites| SiteExchange::new(sites, Arc::clone(&stats), Arc::clone(&stop)));
    let (home, selecting) = home.map(|home| (home.erasing, home.selecting)).unzip();
    let selecting = selecting.zip(view.clone()).map(|(redis, view)| (redis, view, links.clone()));
    let eraser = Eraser {
        registry: Arc::clone(&registry),
        data_dir: data_dir.clone(),
        links,
        catalog,
        image,
        visits,
        visit_log,
        redis,
        home: home.map(|home| PurgeHome::new(home, ended)),
        view,
        losses: RedisLosses::default(),
        stats: Arc::clone(&stats),
        stop: Arc::clone(&stop),
    };
    let erasing = threads::start(Priority::Background, "purge", move || eraser.run())?;
    let eraser = erasing.thread().clone();
    let mut started = vec![erasing];
    let mut selections = None;
    if let Some((redis, view, links)) = selecting {
        let known = Arc::new(Mutex::new(SelectionRegistry::open(&data_dir)?));
        let (registry, eraser) = (Arc::clone(&registry), eraser.clone());
        let (selections_here, stop) = (Arc::clone(&known), Arc::clone(&stop));
        let searcher = Searcher {
            selections: selections_here,
            registry,
            redis,
            links,
            view,
            stats,
            eraser,
            stop,
            attempts: Attempts::default(),
        };
        let searching = threads::start(Priority::Long, "purge-select", move || searcher.run())?;
        selections = Some(Selections { known, searcher: searching.thread().clone() });
        started.push(searching);
    }
    let service = PurgeService { registry, mailboxes, sharing, selections, eraser, stop: Arc::clone(&stop) };
    started.push(threads::start(Priority::Awaited, "purges", move || service.run(&orders))?);
    if let Some(exchange) = exchange {
        started.push(threads::start(Priority::Long, "purge-sites", move || exchange.run())?);
    }
    Ok(PurgeThreads { stop, queue, threads: started })
}

/// The selections of a node with a shared home.
struct Selections {
    known: Arc<Mutex<SelectionRegistry>>,
    /// The thread that looks for their links.
    searcher: Thread,
}

/// The thread that answers requests, and exchanges purges with other nodes.
struct PurgeService {
    registry: Arc<Mutex<PurgeRegistry>>,
    mailboxes: Mailboxes,
    /// The exchange with other nodes; `None` for a single node.
    sharing: Option<PurgeSharing>,
    /// The selections; `None` if this node stores all links.
    selections: Option<Selections>,
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
            PurgeOrder::Select { selection, ticket } => (self.select(selection), ticket),
            PurgeOrder::Run { id, ticket } => (self.run_purge(id), ticket),
            PurgeOrder::Read { id, ticket } => (Ok(self.progress(id)), ticket),
            PurgeOrder::Wake => return,
        };
        self.mailboxes.answer(ticket, PurgeAnswer(result));
    }

    fn begin(&mut self, links: Vec<PurgedLink>) -> Result<Option<PurgeProgress>, String> {
        let (id, at_ms) = self.new_purge()?;
        locked(&self.registry).begin(id, PurgeList { at_ms, links })?;
        Ok(self.progress(id))
    }

    fn select(&mut self, selection: PurgeSelection) -> Result<Option<PurgeProgress>, String> {
        let (id, at_ms) = self.new_purge()?;
        let Some(Selections { known, searcher }) = &self.selections else {
            return Err("this node stores all links, and lists those that match".to_owned());
        };
        locked(known).begin(id, at_ms, selection)?;
        searcher.unpark();
        Ok(self.progress(id))
    }

    /// Returns the number of a new purge and its date, in milliseconds since 1970 UTC.
    fn new_purge(&mut self) -> Result<(PurgeId, u64), String> {
        let id = new_id()?;
        // By the clock of Redis, since all nodes measure the age of the purge by it.
        let at_ms = match &mut self.sharing {
            Some(sharing) => sharing.now_ms().map_err(|error| {
                tracing::debug!(%error, "Redis does not tell the time of a purge");
                DATED_BY_REDIS.to_owned()
            })?,
            None => unix_ms(),
        };
        Ok((id, at_ms))
    }

    fn run_purge(&self, id: PurgeId) -> Result<Option<PurgeProgress>, String> {
        let begun = locked(&self.registry).advance(id, PurgeStage::Due);
        begun.map_err(|error| format!("the purge cannot be stored: {error}"))?;
        self.eraser.unpark();
        Ok(self.progress(id))
    }

    /// Returns the progress of a purge or a selection, with the reason if it waits for Redis, and the silent nodes that it
    /// waits for.
    fn progress(&self, id: PurgeId) -> Option<PurgeProgress> {
        let known = locked(&self.registry).progress(id);
        let mut progress = match known {
            Some(progress) => self.with_fleet(progress),
            None => self.progress_of_selection(id)?,
        };
        if !progress.is_complete && self.sharing.as_ref().is_some_and(|sharing| !sharing.is_connected()) {
            let own = progress.error.map_or_else(String::new, |own| format!("; {own}"));
            progress.error = Some(format!("{WAITS_FOR_REDIS}{own}"));
        }
        Some(progress)
    }

    /// Adds what the fleet knows to the progress of a purge.
    fn with_fleet(&self, mut progress: PurgeProgress) -> PurgeProgress {
        if let Some(sharing) = &self.sharing {
            sharing.note_silence(&mut progress.nodes);
            sharing.note_sites(&mut progress);
            sharing.note_trim(&mut progress);
        }
        progress
    }

    /// Returns the progress of a selection: that of its search, and then that of its first purge that is not complete.
    fn progress_of_selection(&self, id: PurgeId) -> Option<PurgeProgress> {
        let (mut progress, purges) = locked(&self.selections.as_ref()?.known).progress(id)?;
        let registry = locked(&self.registry);
        let open = purges.into_iter().find(|purge| registry.is_open(*purge));
        let open = open.and_then(|purge| registry.progress(purge));
        drop(registry);
        if let Some(open) = open {
            let PurgeProgress { nodes, sites, step, error, .. } = self.with_fleet(open);
            progress.is_complete = false;
            (progress.nodes, progress.sites) = (nodes, sites);
            progress.step = progress.step.or(step);
            progress.error = progress.error.or(error);
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
        if let Some(selections) = &self.selections {
            // Redis has dated them.
            let forget_ms = self.sharing.as_ref().map_or_else(unix_ms, PurgeSharing::forget_ms);
            locked(&selections.known).forget_old(forget_ms);
        }
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
    use std::path::Path;
    use std::sync::mpsc::sync_channel;

    use super::selections::UncountedPurge;
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::access::Scope;
    use carom_model::purge::EndedSelector;

    fn service(dir: &Path, stop: &Arc<AtomicBool>) -> PurgeService {
        let known = Arc::new(Mutex::new(SelectionRegistry::open(dir).unwrap()));
        PurgeService {
            registry: Arc::new(Mutex::new(PurgeRegistry::open(dir).unwrap())),
            mailboxes: TestNode::new(dir, 1).mailboxes,
            sharing: None,
            selections: Some(Selections { known, searcher: std::thread::current() }),
            eraser: std::thread::current(),
            stop: Arc::clone(stop),
        }
    }

    #[test]
    fn selection_is_complete_once_its_purges_are() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path(), &Arc::default());
        let selections = Arc::clone(&service.selections.as_ref().unwrap().known);
        let (id, purge) = (PurgeId(1), PurgeId(2));
        let terms = PurgeSelection { selector: EndedSelector::Domain(None), scope: Scope::ALL, confirmed: Some(9) };
        locked(&selections).begin(id, 5, terms).unwrap();
        let added = UncountedPurge { purge, deleted_before: false };
        locked(&selections).add_purge(id, added, 0, |_| true).unwrap();
        locked(&service.registry).begin(purge, PurgeList { at_ms: 5, links: Vec::new() }).unwrap();
        let is_complete = || service.progress(id).unwrap().is_complete;
        assert!(!is_complete(), "the search goes on");
        locked(&selections).end(id, None).unwrap();
        assert!(!is_complete(), "the purge goes on");
        locked(&service.registry).advance(purge, PurgeStage::Complete).unwrap();
        assert!(is_complete());
        assert!(service.progress(id).unwrap().selection.unwrap().has_ended);
        assert_eq!(service.progress(PurgeId(3)), None);
    }

    #[test]
    fn stop_waits_for_no_turn() {
        // A machine may stand still meanwhile.
        let is_soon = (0..3).any(|_| {
            let dir = tempfile::tempdir().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let service = service(dir.path(), &stop);
            let (queue, orders) = sync_channel(1);
            let serving = std::thread::spawn(move || service.run(&orders));
            // The second one has room once the thread has taken the first.
            (0..2).for_each(|_| queue.send(PurgeOrder::Wake).unwrap());
            let threads = PurgeThreads { stop, queue, threads: vec![serving] };
            let begun = Instant::now();
            threads.stop();
            begun.elapsed() < TURN / 2
        });
        assert!(is_soon, "each stop takes longer");
    }
}
