//! Background services: samples of activity, backups, certificates, and, once all links are loaded, the map
//! image, the search index, the follower of a fleet, expiry and the filter of codes.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use carom_settings::Settings;
use carom_settings::exit::Exit;
use carom_shards::GeneratedCode;
use carom_tls::identity::TlsIdentity;

use super::base::Base;
use super::fleet;
use super::loading::{self, AfterLoad};
use super::store_services::StoreChannels;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use crate::bridge::WriterQueue;
use crate::bridge::fleet_view::FleetView;
use crate::services::certificates::{self, Certificates, Reload};
use crate::services::expiry::{self, ExpirySetup};
use crate::services::geo::{self, GeoSetup};
use crate::services::maintenance::activity_sampler;
use crate::services::maintenance::backup;
use crate::services::maintenance::code_filter;
use crate::services::maintenance::data_dir_watch;
use crate::services::map_image::ImageHold;
use crate::services::purges::{self, PurgeFleet, PurgeSetup, PurgeSources};
use crate::services::replication::FleetThreads;
use crate::services::replication::expiry::FleetExpiry;
use crate::services::search;

/// Starts the samples of activity, the watch of the data directory and the socket for backups, and reads the locations
/// of addresses.
///
/// # Errors
/// If the operating system refuses a thread. A node without its control socket works, and says so.
pub(super) fn start_upkeep(settings: &Settings, base: &Base, supervisor: &mut Supervisor) -> Result<(), Exit> {
    let sampled = base.core_stats.iter().take(base.cores.get()).cloned().collect();
    let sampler = activity_sampler::start(sampled, Arc::clone(&base.stats))
        .map_err(|error| thread_exit("the live statistics", &error))?;
    supervisor.register(StopPhase::Upkeep, "activity sampler", move || sampler.stop());
    let watch = data_dir_watch::start(&settings.data_dir, Arc::clone(&base.stats))
        .map_err(|error| thread_exit("the watch of the data directory", &error))?;
    supervisor.register(StopPhase::Upkeep, "data directory", move || watch.stop());
    if settings.home.is_shared() {
        // A backup of this node would lack nearly all links.
        return start_geo(settings, base, supervisor);
    }
    match backup::start(base.links.clone(), &settings.data_dir) {
        Ok(attendant) => supervisor.register(StopPhase::Upkeep, "backup", move || attendant.stop()),
        Err(error) => {
            tracing::warn!(%error, "cannot create control.sock; `carom backup` cannot reach this node");
        }
    }
    start_geo(settings, base, supervisor)
}

/// Reads the file with locations of addresses, if there is one, and starts the thread that watches it.
///
/// # Errors
/// If the operating system refuses a thread.
fn start_geo(settings: &Settings, base: &Base, supervisor: &mut Supervisor) -> Result<(), Exit> {
    let Some(file) = settings.geo_file.clone() else { return Ok(()) };
    let (slot, mailboxes, stats) = (base.geo.clone(), base.mailboxes.clone(), Arc::clone(&base.stats));
    let watch = geo::start(GeoSetup { file, slot, mailboxes, stats });
    let watch = watch.map_err(|error| thread_exit("the thread for locations", &error))?;
    supervisor.register(StopPhase::Upkeep, "locations", move || watch.stop());
    Ok(())
}

/// Starts the thread that reads renewed certificates. Returns the first identity, and the handle that
/// triggers a reload.
///
/// # Errors
/// If the operating system refuses a thread.
pub(super) fn start_certificates(
    certificates: Option<Certificates>,
    base: &Base,
    supervisor: &mut Supervisor,
) -> Result<(Option<TlsIdentity>, Option<Reload>), Exit> {
    let Some(certificates) = certificates else { return Ok((None, None)) };
    let identity = certificates.identity();
    let thread = certificates::start(certificates, base.mailboxes.clone(), base.cores, Arc::clone(&base.stats))
        .map_err(|error| thread_exit("the certificate thread", &error))?;
    let reload = thread.reload();
    supervisor.register(StopPhase::Upkeep, "certificates", move || thread.stop());
    Ok((Some(identity), Some(reload)))
}

/// The channels of the expiry thread.
pub(super) struct ExpiryChannels {
    /// The writer itself, also in a fleet.
    pub(super) writer: WriterQueue,
    /// The ends of channels of the services around the store.
    pub(super) store: StoreChannels,
    pub(super) segments: Sender<Vec<GeneratedCode>>,
    pub(super) fleet: Option<FleetExpiry>,
}

/// Loads all links, and starts what must not run before: nothing that was read earlier may overtake the load.
///
/// # Errors
/// If the store cannot be read, or the operating system refuses a thread.
pub(super) fn load_and_start(
    settings: &Settings,
    base: &Base,
    mut fleet: Option<FleetThreads>,
    ends: ExpiryChannels,
    supervisor: &mut Supervisor,
) -> Result<(), Exit> {
    let Base { links, catalog, stats, .. } = base;
    let (hold, filters) = match loading::load(settings, base)? {
        AfterLoad::All(image) => {
            let hold = image.hold();
            supervisor.register(StopPhase::Upkeep, "map image", move || image.stop());
            (Some(hold), None)
        }
        AfterLoad::Hot(filters) => (None, Some(filters)),
        AfterLoad::Shared => (None, None),
    };
    // The cores need the links first; lists can do without counts for a while.
    let counting = search::start_counting(catalog).map_err(|error| thread_exit("the list counter", &error))?;
    let signing = search::start_signing(catalog).map_err(|error| thread_exit("the search index thread", &error))?;
    supervisor.register_threads(StopPhase::Queues, "search index", vec![counting, signing]);
    let stopped = Arc::clone(catalog);
    supervisor.register(StopPhase::Upkeep, "search", move || stopped.stop());
    if let Some(fleet) = &mut fleet {
        fleet.follow().map_err(|error| thread_exit("the fleet's follower", &error))?;
    }
    if let Some(fleet) = fleet {
        supervisor.register(StopPhase::Fleet, "fleet", move || fleet.stop());
    }
    let StoreChannels { removals, purges } = ends.store;
    start_purges(settings, base, hold, purges, ends.fleet.as_ref().map(FleetExpiry::view), supervisor)?;
    let expiry = expiry::start(ExpirySetup {
        links: links.clone(),
        stats: Arc::clone(stats),
        writer: ends.writer,
        removals,
        keep: settings.expiry.keep,
        per_second: settings.expiry.per_second,
        recycle_after: settings.expiry.recycle_after,
        length: settings.code_length,
        segments: ends.segments,
        fleet: ends.fleet,
    })
    .map_err(|error| thread_exit("the expiry thread", &error))?;
    supervisor.register(StopPhase::Upkeep, "expiry", move || expiry.stop());
    if let Some(filters) = filters {
        let filters = code_filter::start(*filters).map_err(|error| thread_exit("the filter of codes", &error))?;
        supervisor.register(StopPhase::Upkeep, "code filter", move || filters.stop());
    }
    Ok(())
}

/// Starts the threads that carry purges out.
///
/// # Errors
/// If the purges of the data directory or the certificates of Redis cannot be used, or the operating system refuses a
/// thread.
fn start_purges(
    settings: &Settings,
    base: &Base,
    image: Option<Arc<ImageHold>>,
    sources: PurgeSources,
    view: Option<Arc<FleetView>>,
    supervisor: &mut Supervisor,
) -> Result<(), Exit> {
    let fleet = match (view, fleet::visits(settings)?, fleet::redis(settings)?) {
        (Some(view), Some(sharing), Some((erasing, _))) => {
            let (node, sharing) = (sharing.node, sharing.redis);
            let sites = fleet::purge_sites(settings)?;
            let home = if settings.home.is_shared() { fleet::home_connections(settings)? } else { None };
            Some(PurgeFleet { node, sharing, erasing, home, view, sites })
        }
        _ => None,
    };
    let purges = purges::start(PurgeSetup {
        data_dir: settings.data_dir.clone(),
        links: base.links.clone(),
        catalog: Arc::clone(&base.catalog),
        image,
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
        sources,
        fleet,
    })
    .map_err(|error| thread_exit("the threads of purges", &error))?;
    supervisor.register(StopPhase::Upkeep, "purges", move || purges.stop());
    Ok(())
}
