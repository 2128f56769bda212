//! The life of a node. It starts its parts in the order of their dependencies, runs until a signal, and stops them in
//! the opposite order. So every acknowledged change is completed.

mod announce;
mod brand;
mod cores;
mod domains;
mod events;
mod fleet;
mod listeners;
mod lists;
mod loading;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeHasher, CodeSpace, CoreCount, CoreId, GeneratedCode, SpaceKey};

use crate::access_log::AccessReceiver;
use crate::access_log::terms::{Addresses, LogPlace};
use crate::alarms::Alarm;
use crate::api::{self, Site};
use crate::apps::registry::Registry;
use crate::config::{self, Residency, Settings};
use crate::control::access_log::{self, Writing};
use crate::control::allowances::{self, AllowanceSetup};
use crate::control::apps::AppsSetup;
use crate::control::apps::file::{self, FILE_NAME, FileError};
use crate::control::backup::{self, Attendant};
use crate::control::catalog::listers::{self, ListerSetup};
use crate::control::catalog::{self, Catalog};
use crate::control::certificates::{self, Certificates, Files, Keeper};
use crate::control::code_filter::{CodeFilterSetup, CodeFilters};
use crate::control::expiry::{self, Expiry, ExpirySetup};
use crate::control::fetchers::{self, FetcherSetup};
use crate::control::fleet::Fleet;
use crate::control::host_lists::{HostList, Kind};
use crate::control::image::{self, ImageMaker};
use crate::control::pulse::{self, Watcher};
use crate::control::replenisher::{self, FleetSource, Replenisher, ReplenisherSetup};
use crate::control::visits::{self, Counting};
use crate::control::{self, indexes, pages, priority, readers, workers, writer};
use crate::core::{self, CoreEvent};
use crate::desk::{Counters, Tellers};
use crate::exit::{Exit, Reason};
use crate::idempotency::PendingCreates;
use crate::limits::{ADMIN_DRAIN_TIME_MAX, ConnectionLimits, DRAIN_TIME_MAX};
use crate::mail::{Post, ToCore};
use crate::receipts::Receipts;
use crate::stats::{CoreStats, NodeStats, unix_ms};
use crate::store::ids::IdTable;
use crate::store::links::{Links, StoreError};
use crate::store::lock::{DataLock, LockError};
use crate::visits::VisitReceiver;
use crate::{logging, preflight, space_key};

use self::announce::{announce, tell_manager, tell_of_end};
use self::cores::{CorePlan, core_count, make_post};
use self::domains::tell_of_hidden;
pub use self::domains::{domains_of, own_authorities};
use self::events::{Event, next_event, watch_signals};
use self::listeners::Bound;

/// Runs a node until a signal stops it. Blocks the calling thread.
///
/// # Errors
/// The reason why the node could not start, or had to stop.
pub fn serve(settings: &Settings) -> Result<(), Exit> {
    api::start_clock();
    // First, so that a node that may not run has written nothing.
    let keys = keys(settings)?;
    let ready = preflight::check(settings.cores.cpus.len(), &settings.data_dir)?;
    // Held until the process ends.
    let _lock = lock(&settings.data_dir)?;
    let (events, inbox) = channel();
    watch_signals(events.clone())?;
    let certificates = certificates(settings)?;
    fleet::check_key(settings)?;
    let limits = connection_limits(settings, ready.open_files);
    let node = Node::start(settings, keys, certificates, limits, events)?;
    node.run(&inbox)
}

/// Reads all API keys of a data directory.
///
/// # Errors
/// When the file of keys cannot be read or is malformed.
pub fn api_keys(data_dir: &Path) -> Result<Registry, Exit> {
    file::read(data_dir).map_err(|error| keys_exit(data_dir, &error))
}

/// Turns an error of the file with the API keys into the reason why the process ends.
pub fn keys_exit(data_dir: &Path, error: &FileError) -> Exit {
    let what = format!("the API keys in {} cannot be used: {error}", data_dir.join(FILE_NAME).display());
    match error {
        FileError::Io(_) => Exit::new(Reason::DataNotWritable, what),
        FileError::Malformed(_) => Exit::new(Reason::StoreDamaged, what)
            .with_remedy(format!("restore {FILE_NAME} from a backup; deleting the file would lose all keys")),
    }
}

/// Returns the API keys, and true if the fleet may have others that could not be read. Without keys, only this machine
/// may reach the node, unless the settings permit more.
///
/// # Errors
/// When the keys cannot be read, or the settings require keys and there are none.
fn keys(settings: &Settings) -> Result<(Registry, bool), Exit> {
    let mut keys = api_keys(&settings.data_dir)?.pruned(unix_ms());
    let mut is_unsure = false;
    // A node that has synchronised with its fleet has a file, even if that has no keys.
    if !file::exists(&settings.data_dir)
        && let Some((mut redis, _)) = fleet::redis(settings)?
    {
        match control::apps::share(&mut redis, &keys) {
            Ok(shared) => _ = keys.merge(&shared.theirs),
            Err(_) => is_unsure = true,
        }
    }
    if !keys.had_keys() {
        settings.may_go_without_keys()?;
    }
    Ok((keys, is_unsure))
}

/// Returns the limits of the cores and of the admin listener, within the limit on open files.
fn connection_limits(settings: &Settings, open_files: u64) -> [ConnectionLimits; 2] {
    let limits = settings.limits.connections;
    let room = preflight::connections(open_files, settings.cores.cpus.len());
    if room.of_core < limits.connections {
        tracing::info!(
            "the limit of {open_files} open files allows {} connections per core instead of the {} of limits.connections",
            room.of_core,
            limits.connections
        );
    }
    [room.of_core, room.of_admin].map(|most| ConnectionLimits { connections: limits.connections.min(most), ..limits })
}

/// Reads the certificates of a node that speaks TLS; `None` without TLS.
///
/// # Errors
/// When they cannot be used.
fn certificates(settings: &Settings) -> Result<Option<Certificates>, Exit> {
    let config::Tls { pairs, http2, .. } = &settings.tls;
    if pairs.is_empty() {
        return Ok(None);
    }
    let files = Files { pairs: pairs.clone(), http2: *http2 };
    Certificates::read(files).map(Some).map_err(|wrong| Exit::new(Reason::Certificate, wrong))
}

/// Returns the errors in files that the settings name, each of which would keep a node from starting.
pub fn mistakes_in_files(settings: &Settings) -> Vec<Exit> {
    brand::mistakes(settings).into_iter().chain(certificates(settings).err()).collect()
}

/// Locks the data directory for this process.
///
/// # Errors
/// When another process has locked it, or the lock file cannot be used.
pub fn lock(data_dir: &Path) -> Result<DataLock, Exit> {
    DataLock::take(data_dir).map_err(|error| {
        let reason = match error {
            LockError::InUse(_) => Reason::DataInUse,
            LockError::Io { .. } => Reason::DataNotWritable,
        };
        Exit::new(reason, error.to_string())
    })
}

/// Turns an error of the store at start into the reason why the process ends.
pub fn store_exit(error: &StoreError) -> Exit {
    let reason = match error {
        StoreError::InUse => Reason::DataInUse,
        StoreError::OtherKey => Reason::SpaceKey,
        StoreError::Damaged(_) | StoreError::OtherFormat(_) => Reason::StoreDamaged,
        StoreError::Failed(_) | StoreError::Halted => Reason::DataNotWritable,
    };
    Exit::new(reason, error.to_string())
}

/// The store and the code space of a data directory.
#[derive(Debug)]
pub struct OpenStore {
    /// The store.
    pub links: Links,
    /// The code secret: the key of the code space.
    pub key: SpaceKey,
    /// Damage in the journals of the store, as text for people.
    pub damage: Option<String>,
}

/// Opens the store and the code space of a data directory that this process has locked.
///
/// # Errors
/// When the code secret does not match the store, or the store cannot be read.
pub fn open_store(settings: &Settings) -> Result<OpenStore, Exit> {
    let folder = settings.data_dir.join("links");
    let key = space_key::obtain(&settings.space_key, &settings.data_dir, folder.exists())?;
    let open = || Links::open(&folder, &key.fingerprint());
    let (links, repairs) = logging::end_on_panic(Reason::StoreDamaged, open).map_err(|error| store_exit(&error))?;
    for repair in &repairs {
        tracing::warn!("{repair}");
    }
    let damage: Vec<String> = repairs.iter().filter(|repair| repair.is_damage).map(ToString::to_string).collect();
    let damage = (!damage.is_empty()).then(|| damage.join("; "));
    let codes: Vec<Code> = repairs.into_iter().flat_map(|repair| repair.codes).collect();
    if !codes.is_empty() {
        indexes::mend(&links, &codes).map_err(|error| store_exit(&error))?;
    }
    Ok(OpenStore { links, key, damage })
}

struct Node {
    cores: CoreCount,
    post: Post,
    stats: Arc<NodeStats>,
    threads: Threads,
    running: Vec<core::executor::Running>,
    links: Links,
    catalog: Arc<Catalog>,
    drain_delay: Duration,
    /// The line that is printed once clients are accepted.
    announcement: String,
    /// True if standard output is for the announcement, and not for the access log.
    keeps_stdout: bool,
}

/// The control threads.
struct Threads {
    writer: JoinHandle<()>,
    allowances: JoinHandle<()>,
    counting: Counting,
    access_log: Option<Writing>,
    readers: Vec<JoinHandle<()>>,
    listers: Vec<JoinHandle<()>>,
    /// The threads that count links for lists and build the search filters.
    catalog: [JoinHandle<()>; 2],
    fetchers: Vec<JoinHandle<()>>,
    code_filters: Option<CodeFilters>,
    replenisher: Replenisher,
    expiry: Expiry,
    image: ImageMaker,
    host_lists: [HostList; 2],
    apps: JoinHandle<()>,
    certificates: Option<Keeper>,
    attendant: Option<Attendant>,
    watcher: Watcher,
    fleet: Option<Fleet>,
}

impl Node {
    fn start(
        settings: &Settings,
        (keys, is_unsure): (Registry, bool),
        certificates: Option<Certificates>,
        [limits, admin_limits]: [ConnectionLimits; 2],
        events: Sender<Event>,
    ) -> Result<Node, Exit> {
        let cores = core_count(settings);
        priority::set_core_cpus(&settings.cores.cpus);
        let site_pages = brand::pages(settings)?;
        let OpenStore { links, key, damage } = open_store(settings)?;
        indexes::ensure(&links).map_err(|error| store_exit(&error))?;
        let catalog = Catalog::new(links.clone(), settings.search_memory, &settings.data_dir)
            .map_err(|error| store_exit(&error))?;
        let catalog = Arc::new(catalog);
        let Bound { listening, public, admin_address, admin } = listeners::bind(settings, cores.get())?;
        // An image of the map is in the order of its seed.
        let hasher = match image::hasher_of(&settings.data_dir) {
            Some(hasher) => hasher,
            None => CodeHasher::new(random_seed()?),
        };
        let stats = Arc::new(NodeStats::default());
        damage.into_iter().for_each(|damage| stats.alarms.raise(Alarm::StoreDamaged, damage));
        let (post, bells, mail) = make_post(cores)?;
        let (deliver, deliveries) = channel();
        let Tellings { told, visits, access } = Tellings::new(settings, cores)?;
        let counted = visits::start(&settings.data_dir, &links, visits, &stats)
            .map_err(|error| thread_exit("the visit counter", &error))?;
        let access_log = match &settings.access_log.place {
            Some(place) => {
                let started = access_log::start(place, &settings.access_log, access, &stats);
                Some(started.map_err(|error| thread_exit("the access log", &error))?)
            }
            None => None,
        };
        let (allowance_queue, allowances) = allowances::start(AllowanceSetup {
            links: links.clone(),
            post: post.clone(),
            stats: Arc::clone(&stats),
            visits: counted.visits.clone(),
            shared: fleet::shared_visits(settings)?,
        })
        .map_err(|error| thread_exit("the thread for visit limits", &error))?;
        let (sweeper, swept) = channel();
        let (segments, recycled) = channel();
        let (writer_queue, writer) = writer::start(writer::WriterSetup {
            links: links.clone(),
            catalog: Arc::clone(&catalog),
            post: post.clone(),
            hasher,
            cores,
            stats: Arc::clone(&stats),
            data_dir: settings.data_dir.clone(),
            dedupe: settings.dedupe,
            deliveries: settings.fleet.redis.is_some().then_some(deliver),
            allowances: allowance_queue.clone(),
            ended: counted.ended,
            sweeper,
            #[cfg(feature = "faults")]
            faults: crate::control::faults::Faults::from_env(),
        })
        .map_err(|error| thread_exit("the store's writer", &error))?;
        let (reader_queue, mut readers) = readers::start(&links, &post, &stats, &counted.visits)
            .map_err(|error| thread_exit("the store's readers", &error))?;
        let (pages, page_threads) = pages::start(&links, &post, &stats, Arc::new(counted.visits.clone()))
            .map_err(|error| thread_exit("the export threads", &error))?;
        readers.extend(page_threads);
        let (lists, listers) = listers::start(&ListerSetup {
            catalog: Arc::clone(&catalog),
            visits: Arc::new(counted.visits.clone()),
            post: post.clone(),
            stats: Arc::clone(&stats),
        })
        .map_err(|error| thread_exit("the threads for lists", &error))?;
        let (jobs, workers) = workers::start(&post).map_err(|error| thread_exit("the worker threads", &error))?;
        readers.extend(workers);
        let parts = fleet::Parts {
            links: &links,
            post: &post,
            stats: &stats,
            fingerprint: key.fingerprint(),
            writer: &writer_queue,
            deliveries,
        };
        let joined = fleet::join(settings, parts)?;
        let writer_of_sweeper = writer_queue.clone();
        let (mut fleet, gateway, look_ups, source, fleet_expiry) = match joined {
            Some(joined) => {
                let fleet::Joined { fleet, gateway, look_ups, expiry, source } = joined;
                (Some(fleet), gateway, Some(look_ups), Some(source), Some(expiry))
            }
            None => (None, writer_queue, None, None, None),
        };
        let (fetches, fetchers) = match settings.residency {
            Residency::All => (None, Vec::new()),
            Residency::Hot { memory_limit } => {
                stats.memory_limit.set(memory_limit);
                let redis = look_ups.clone();
                let (links, post, stats) = (links.clone(), post.clone(), Arc::clone(&stats));
                let started = fetchers::start(FetcherSetup { links, post, hasher, cores, stats, redis });
                let (queue, threads) = started.map_err(|error| thread_exit("the store's fetchers", &error))?;
                (Some(queue), threads)
            }
        };
        let core_stats: Arc<[Arc<CoreStats>]> = (0..=cores.get()).map(|_| Arc::default()).collect();
        let supply = Supply { links: &links, space: CodeSpace::new(&key), post: &post, fleet: source, recycled };
        let mut replenisher = start_replenisher(settings, supply, &core_stats, &stats)?;
        let host_lists = [
            lists::start(Kind::Allow, settings, &settings.allow, &post, &stats)?,
            lists::start(Kind::Block, settings, &settings.block, &post, &stats)?,
        ];
        let (apps_queue, apps) = control::apps::start(AppsSetup {
            data_dir: settings.data_dir.clone(),
            registry: keys,
            is_unsure,
            redis: fleet::redis(settings)?.map(|(redis, _)| redis),
            post: post.clone(),
            stats: Arc::clone(&stats),
        })
        .map_err(|error| thread_exit("the API key thread", &error))?;
        let domains = Arc::new(domains_of(settings, listening[0]));
        tell_of_hidden(&domains, &links, &stats).map_err(|error| store_exit(&error))?;
        let counters = Counters {
            domains: Arc::clone(&domains),
            writer: gateway,
            look_ups,
            allowances: allowance_queue,
            apps: apps_queue,
            misses_per_second: settings.limits.misses_per_second,
            fetches,
            reader: reader_queue,
            pages: Arc::new(site_pages),
            page_reader: pages,
            lists,
            jobs,
            post: post.clone(),
            pending_creates: PendingCreates::default(),
            cores: Arc::clone(&core_stats),
            node: Arc::clone(&stats),
        };
        let site = Arc::new(Site {
            own: own_authorities(&domains, &listening),
            default_ttl: settings.default_ttl,
            app_creates: settings.limits.creates_per_second,
            receipts: Receipts::new(key),
            has_other_domains: !catalog.domains().map_err(|error| store_exit(&error))?.is_empty(),
            has_form: settings.pages.has_form,
            interfaces: listeners::interfaces(settings.api),
            trusts_admin: config::check::on_loopback(settings.admin_listen) && !settings.admin_requires_key,
            admin_hosts: listeners::names_of_admin(settings),
            settings: serde_json::json!(settings.shown()),
        });
        let sources = std::mem::take(&mut replenisher.sources);
        let watched = core_stats.iter().take(cores.get()).cloned().collect();
        let watcher =
            pulse::start(watched, Arc::clone(&stats)).map_err(|error| thread_exit("the live statistics", &error))?;
        let attendant = backup::start(links.clone(), &settings.data_dir)
            .inspect_err(
                |error| tracing::warn!(%error, "cannot create control.sock; `carom backup` cannot reach this node"),
            )
            .ok();
        let identity = certificates.as_ref().map(Certificates::identity);
        let certificates = certificates
            .map(|certificates| certificates::start(certificates, post.clone(), cores, Arc::clone(&stats)))
            .transpose()
            .map_err(|error| thread_exit("the certificate thread", &error))?;
        let plan = CorePlan {
            limits,
            admin_limits,
            identity,
            settings,
            events,
            counters,
            site,
            hasher,
            cores,
            trust: Arc::new(settings.trust.clone()),
            told,
        };
        let running = plan.start_all(public, admin, bells, mail, sources)?;
        post.to(CoreId(cores.get() as u16)).post(ToCore::Open);
        let image = loading::load(settings, &links, &post, hasher, &stats)?;
        // Not before: the cores need the links, while lists can do without counts for a while.
        let counting = catalog::start_counting(&catalog).map_err(|error| thread_exit("the list counter", &error))?;
        let signing =
            catalog::start_signing(&catalog).map_err(|error| thread_exit("the search index thread", &error))?;
        let follow = |fleet: &mut Fleet| fleet.follow().map_err(|error| thread_exit("the fleet's follower", &error));
        fleet.as_mut().map_or(Ok(()), follow)?;
        let expiry = expiry::start(ExpirySetup {
            links: links.clone(),
            stats: Arc::clone(&stats),
            writer: writer_of_sweeper,
            swept,
            keep: settings.expiry.keep,
            per_second: settings.expiry.per_second,
            recycle_after: settings.expiry.recycle_after,
            length: settings.code_length,
            segments,
            fleet: fleet_expiry,
        })
        .map_err(|error| thread_exit("the expiry thread", &error))?;
        let (store, office, node) = (links.clone(), post.clone(), Arc::clone(&stats));
        let codes = CodeFilterSetup { links: store, post: office, hasher, cores, core_stats, stats: node };
        let code_filters = cores::start_code_filters(settings, codes)?;
        let announcement = announce(settings, &listening, admin_address, &domains);
        Ok(Node {
            cores,
            post,
            stats,
            threads: Threads {
                writer,
                allowances,
                counting: counted.counting,
                access_log,
                readers,
                listers,
                catalog: [counting, signing],
                fetchers,
                code_filters,
                replenisher,
                expiry,
                image,
                host_lists,
                apps,
                certificates,
                attendant,
                watcher,
                fleet,
            },
            catalog,
            running,
            links,
            drain_delay: settings.drain_delay,
            announcement,
            keeps_stdout: settings.access_log.place != Some(LogPlace::StandardOutput),
        })
    }

    /// Accepts clients once all links are in memory, waits for the signal to stop, and stops the node.
    fn run(self, inbox: &Receiver<Event>) -> Result<(), Exit> {
        let mut loading = self.cores.get();
        // The cores and the admin listener.
        let mut opening = self.cores.get() + 1;
        let mut ended = 0;
        let mut failure = None;
        let mut drains_at = None;
        while ended < self.cores.get() {
            let Some(event) = next_event(inbox, drains_at) else {
                drains_at = None;
                self.drain();
                continue;
            };
            match event {
                Event::Core(CoreEvent::Loaded(core)) if core.index() < self.cores.get() => {
                    loading -= 1;
                    if loading == 0 && !self.stats.draining.load(Ordering::Relaxed) {
                        self.cores.cores().for_each(|core| self.post.to(core).post(ToCore::Open));
                    }
                }
                Event::Core(CoreEvent::Loaded(_)) => {}
                Event::Core(CoreEvent::Opened(_)) => {
                    opening -= 1;
                    if opening == 0 {
                        self.announce();
                    }
                }
                Event::Stop(signal) => {
                    let is_first = !self.stats.draining.swap(true, Ordering::AcqRel);
                    // A second signal skips the drain delay.
                    let delay = if is_first && opening == 0 { self.drain_delay } else { Duration::ZERO };
                    tell_of_end(signal, delay);
                    if is_first {
                        tell_manager(false);
                    }
                    drains_at = (is_first || drains_at.is_some()).then(|| Instant::now() + delay);
                }
                Event::Reload => match &self.threads.certificates {
                    Some(keeper) => keeper.look(),
                    None => tracing::info!("SIGHUP: no certificates to reload"),
                },
                Event::Core(CoreEvent::Ended(core, Err(error))) => {
                    let what = format!("core {core} ended: {error}");
                    tracing::error!("{what}");
                    return Err(Exit::new(Reason::ThreadEnded, what));
                }
                Event::Core(CoreEvent::Ended(core, Ok(()))) if core.index() < self.cores.get() => ended += 1,
                Event::Core(CoreEvent::Ended(..)) => {
                    failure = Some(Exit::new(Reason::ThreadEnded, "the admin listener ended unexpectedly"));
                    self.stats.draining.store(true, Ordering::Release);
                    self.drain();
                }
            }
        }
        self.take_down();
        failure.map_or(Ok(()), Err)
    }

    /// Announces that every listener accepts clients.
    fn announce(&self) {
        self.stats.ready.store(true, Ordering::Release);
        // The parent process may have closed the pipe, which is no reason to stop.
        let mut out = io::stdout().lock();
        if self.keeps_stdout {
            let _ = writeln!(out, "{}", self.announcement).and_then(|()| out.flush());
        } else {
            tracing::info!("{}", self.announcement);
        }
        tell_manager(true);
    }

    fn drain(&self) {
        for core in self.cores.cores() {
            self.post.to(core).post(ToCore::Drain { within: DRAIN_TIME_MAX });
        }
    }

    /// Stops the threads that the cores needed, in the opposite order of their start.
    fn take_down(self) {
        self.threads.certificates.into_iter().for_each(Keeper::stop);
        self.threads.attendant.into_iter().for_each(Attendant::stop);
        self.threads.watcher.stop();
        self.threads.host_lists.into_iter().for_each(HostList::stop);
        self.threads.expiry.stop();
        self.threads.code_filters.into_iter().for_each(CodeFilters::stop);
        self.threads.image.stop();
        self.catalog.stop();
        self.threads.replenisher.stop();
        self.post.to(CoreId(self.cores.get() as u16)).post(ToCore::Drain { within: ADMIN_DRAIN_TIME_MAX });
        for running in self.running {
            let _ = running.join();
        }
        for thread in self.threads.fetchers {
            thread.join().expect("panics abort");
        }
        self.threads.fleet.into_iter().for_each(Fleet::stop);
        // The cores have dropped their ends of the queues: the writer syncs what it has, and ends.
        let readers = self.threads.readers.into_iter().chain(self.threads.listers).chain(self.threads.catalog);
        for thread in readers.chain([self.threads.writer, self.threads.allowances, self.threads.apps]) {
            thread.join().expect("panics abort");
        }
        self.threads.counting.stop();
        if let Err(error) = self.links.sync() {
            tracing::error!("the last sync failed: {error}");
        }
        if let Err(error) = self.links.flush_mark() {
            tracing::warn!("cannot write the sync position of the journal ({error})");
        }
        // Last, because its disk may be another one, and slower.
        self.threads.access_log.into_iter().for_each(Writing::stop);
        tracing::info!("stopped");
    }
}

/// Both ends of the rings by which cores record their requests.
#[derive(Default)]
struct Tellings {
    /// The ends of each core, the admin listener's last.
    told: Vec<Tellers>,
    visits: Vec<VisitReceiver>,
    access: Vec<AccessReceiver>,
}

impl Tellings {
    fn new(settings: &Settings, cores: CoreCount) -> Result<Tellings, Exit> {
        let mut tellings = Tellings::default();
        for core in 0..=cores.get() {
            let mut told = Tellers::default();
            if core < cores.get() {
                let (sender, receiver) = crate::visits::ring();
                told.visits = Some(sender);
                tellings.visits.push(receiver);
            }
            let log = &settings.access_log;
            if log.place.is_some() {
                let wants_addresses = log.addresses != Addresses::Off;
                let (sender, receiver) = crate::access_log::ring(log.one_in, wants_addresses, random_seed()?);
                told.access = Some(sender);
                tellings.access.push(receiver);
            }
            tellings.told.push(told);
        }
        Ok(tellings)
    }
}

fn thread_exit(what: &str, error: &io::Error) -> Exit {
    Exit::new(Reason::ThreadEnded, format!("{what} could not be started: {error}"))
}

/// The inputs of the replenisher.
struct Supply<'a> {
    links: &'a Links,
    space: CodeSpace,
    post: &'a Post,
    fleet: Option<FleetSource>,
    recycled: Receiver<Vec<GeneratedCode>>,
}

fn start_replenisher(
    settings: &Settings,
    supply: Supply<'_>,
    core_stats: &Arc<[Arc<CoreStats>]>,
    stats: &Arc<NodeStats>,
) -> Result<Replenisher, Exit> {
    let (ids, moved) = IdTable::open(&settings.data_dir.join("ids"))
        .map_err(|error| Exit::new(Reason::DataNotWritable, error.to_string()))?;
    if let Some(moved) = moved {
        stats.alarms.raise(Alarm::IdTableMoved, moved.to_string());
    }
    let cores = core_count(settings);
    replenisher::start(ReplenisherSetup {
        links: supply.links.clone(),
        ids,
        space: supply.space,
        length: settings.code_length,
        cores,
        fleet: supply.fleet,
        recycled: supply.recycled,
        post: supply.post.clone(),
        core_stats: core_stats.iter().take(cores.get()).cloned().collect(),
        stats: Arc::clone(stats),
    })
    .map_err(|error| Exit::new(Reason::ThreadEnded, error.to_string()))
}

fn random_seed() -> Result<u64, Exit> {
    getrandom::u64().map_err(|error| {
        Exit::new(Reason::Incomplete, format!("the operating system cannot provide random bytes: {error}"))
    })
}
