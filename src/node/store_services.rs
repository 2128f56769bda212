//! The services around the store: the writer, the readers, lists, visits, the access log and workers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};

use carom_limits::PURGE_QUEUE_LEN;
use carom_model::replication::outbox::Delivery;
use carom_model::visits::VisitReceiver;
use carom_settings::Settings;
use carom_settings::exit::Exit;
use carom_settings::visits::VisitSettings;
use carom_store::links::Links;

use super::base::Base;
use super::fleet;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use crate::bridge::access_log::AccessReceiver;
use crate::bridge::visit_log::{VisitLogQueue, VisitLogReceiver};
use crate::bridge::{AllowanceQueue, JobQueues, ListQueues, PageQueue, ReaderQueue, RemovalResult, WriterQueue};
use crate::services::allowances::{self, AllowanceSetup};
use crate::services::purges::PurgeSources;
use crate::services::readers::{export_reader, record_readers};
use crate::services::search;
use crate::services::search::query_workers::{self, ListerSetup};
use crate::services::visit_log::{self, LogSharing, StartedVisitLog, VisitLogSetup, VisitLogTerms};
use crate::services::visits::VisitReader;
use crate::services::{access_log, visits, workers, writer};

/// The queues of these services, and what later stages take over from them.
pub(super) struct StoreServices {
    pub(super) writer: WriterQueue,
    /// The counts of visits.
    pub(super) visits: VisitReader,
    pub(super) allowances: AllowanceQueue,
    pub(super) reader: ReaderQueue,
    pub(super) page_reader: PageQueue,
    pub(super) lists: ListQueues,
    pub(super) jobs: JobQueues,
    pub(super) channels: StoreChannels,
    /// States that the writer has committed and that Redis may not have.
    pub(super) deliveries: Receiver<Delivery>,
}

/// The ends of channels that background services take over.
pub(super) struct StoreChannels {
    /// Reports of the writer to the expiry thread.
    pub(super) removals: Receiver<RemovalResult>,
    /// The channels of purges.
    pub(super) purges: PurgeSources,
}

/// Starts the services that own the store.
///
/// # Errors
/// If a log cannot be read back, or the operating system refuses a thread.
pub(super) fn start(
    settings: &Settings,
    base: &Base,
    (visits, visit_log): (Vec<VisitReceiver>, Vec<VisitLogReceiver>),
    access: Vec<AccessReceiver>,
    supervisor: &mut Supervisor,
) -> Result<StoreServices, Exit> {
    let Base { links, mailboxes, stats, .. } = base;
    register_last_sync(links, supervisor);
    start_access_log(settings, base, access, supervisor)?;
    let counted = visits::start(&settings.data_dir, links, visits, stats, fleet::visits(settings)?)
        .map_err(|error| thread_exit("the visit counter", &error))?;
    let threads = counted.threads;
    supervisor.register(StopPhase::Store, "visit counter", move || threads.stop());
    let (allowances, thread) = allowances::start(AllowanceSetup {
        links: links.clone(),
        mailboxes: mailboxes.clone(),
        stats: Arc::clone(stats),
        visits: counted.visits.clone(),
        shared: fleet::shared_visits(settings)?,
    })
    .map_err(|error| thread_exit("the thread for visit limits", &error))?;
    supervisor.register_threads(StopPhase::Queues, "visit limits", vec![thread]);
    let (expiry, removals) = channel();
    let (deliver, deliveries) = channel();
    let (writer, thread) = writer::start(writer::WriterSetup {
        links: links.clone(),
        catalog: Arc::clone(&base.catalog),
        mailboxes: mailboxes.clone(),
        hasher: base.hasher,
        cores: base.cores,
        stats: Arc::clone(stats),
        data_dir: settings.data_dir.clone(),
        dedupe: settings.dedupe,
        deliveries: settings.fleet.redis.is_some().then_some(deliver),
        home: base.home(),
        allowances: allowances.clone(),
        ended: counted.ended.clone(),
        expiry,
        #[cfg(feature = "faults")]
        faults: crate::services::faults::Faults::from_env(),
    })
    .map_err(|error| thread_exit("the store's writer", &error))?;
    supervisor.register_threads(StopPhase::Queues, "writer", vec![thread]);
    let (reader, threads) = record_readers::start(links, mailboxes, stats, &counted.visits)
        .map_err(|error| thread_exit("the store's readers", &error))?;
    supervisor.register_threads(StopPhase::Queues, "record readers", threads);
    let (visits, counts) = (counted.visits.clone(), Arc::new(counted.visits));
    let (page_reader, threads) = export_reader::start(links, mailboxes, stats, Arc::clone(&counts) as Arc<_>)
        .map_err(|error| thread_exit("the export threads", &error))?;
    supervisor.register_threads(StopPhase::Queues, "export readers", threads);
    start_sorting(base, &counts, supervisor)?;
    let (mut lists, threads) = query_workers::start(&ListerSetup {
        catalog: Arc::clone(&base.catalog),
        visits: counts,
        mailboxes: mailboxes.clone(),
        stats: Arc::clone(stats),
    })
    .map_err(|error| thread_exit("the threads for lists", &error))?;
    supervisor.register_threads(StopPhase::Queues, "query workers", threads);
    lists.visits = start_visit_log(settings, base, visit_log, supervisor)?;
    let (queue, orders) = sync_channel(PURGE_QUEUE_LEN);
    let (jobs, threads) =
        workers::start(mailboxes, queue.clone()).map_err(|error| thread_exit("the worker threads", &error))?;
    supervisor.register_threads(StopPhase::Queues, "workers", threads);
    let (visit_log, ended) = (lists.visits.clone(), counted.ended);
    let purges = PurgeSources { orders, queue, visits: visits.clone(), visit_log, ended };
    let channels = StoreChannels { removals, purges };
    Ok(StoreServices { writer, visits, allowances, reader, page_reader, lists, jobs, channels, deliveries })
}

/// Starts the thread that sorts long lists.
///
/// # Errors
/// If the operating system refuses the thread.
fn start_sorting(base: &Base, visits: &Arc<VisitReader>, supervisor: &mut Supervisor) -> Result<(), Exit> {
    let catalog = Arc::clone(&base.catalog);
    let thread = search::start_sorting(&catalog, Arc::clone(visits) as Arc<_>)
        .map_err(|error| thread_exit("the thread that sorts lists", &error))?;
    supervisor.register(StopPhase::Upkeep, "sorted lists", move || {
        catalog.stop_sorting();
        thread.join().expect("panics abort");
    });
    Ok(())
}

/// Registers the last sync of the store. It is registered first, so that it is the last of its phase.
fn register_last_sync(links: &Links, supervisor: &mut Supervisor) {
    let links = links.clone();
    supervisor.register(StopPhase::Store, "store", move || {
        if let Err(error) = links.sync() {
            tracing::error!("the last sync failed: {error}");
        }
        if let Err(error) = links.flush_mark() {
            tracing::warn!("cannot write the sync position of the journal ({error})");
        }
    });
}

fn start_access_log(
    settings: &Settings,
    base: &Base,
    access: Vec<AccessReceiver>,
    supervisor: &mut Supervisor,
) -> Result<(), Exit> {
    let Some(place) = &settings.access_log.place else { return Ok(()) };
    let writing = access_log::start(place, &settings.access_log, access, &base.stats)
        .map_err(|error| thread_exit("the access log", &error))?;
    supervisor.register(StopPhase::AccessLog, "access log", move || writing.stop());
    Ok(())
}

/// Starts the visit log, unless it is off.
///
/// # Errors
/// If the log cannot be read back, or the operating system refuses a thread.
fn start_visit_log(
    settings: &Settings,
    base: &Base,
    receivers: Vec<VisitLogReceiver>,
    supervisor: &mut Supervisor,
) -> Result<Option<VisitLogQueue>, Exit> {
    let VisitSettings { is_on, is_shared, keep, keep_bytes, addresses } = settings.visits;
    let are_events = settings.events.is_on && settings.events.visits;
    if !is_on {
        return Ok(None);
    }
    let fleet = if is_shared { fleet::visits(settings)? } else { None };
    let sharing = match (&settings.fleet.redis, is_shared) {
        (None, _) => LogSharing::Alone,
        (Some(_), false) => LogSharing::Apart,
        (Some(_), true) => LogSharing::Shared,
    };
    let started = visit_log::threads::start(VisitLogSetup {
        data_dir: settings.data_dir.clone(),
        terms: VisitLogTerms { addresses, keep, keep_bytes, are_events },
        links: base.links.clone(),
        geo: base.geo.clone(),
        sharing,
        fleet,
        receivers,
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
    })
    .map_err(|error| thread_exit("the visit log", &error))?;
    let StartedVisitLog { queue, reader, threads } = started;
    supervisor.register(StopPhase::Store, "visit log", move || threads.stop());
    supervisor.register_threads(StopPhase::Queues, "visit queries", vec![reader]);
    Ok(Some(queue))
}
