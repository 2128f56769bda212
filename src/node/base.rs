//! The state of a node before its first thread: the store, bound listeners, statistics, and a mailbox for each core.

use std::sync::Arc;

use carom_settings::exit::Exit;
use carom_settings::{Residency, Settings};
use carom_shards::{CodeHasher, CodeSecret, CodeSpace, CoreCount};
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{CoreStats, NodeStats};

use super::cores::{CoreEnds, core_count, make_mailboxes};
use super::listeners;
use super::seed::random_seed;
use crate::bridge::Mailboxes;
use crate::bridge::fleet_view::FleetView;
use crate::bridge::geo::GeoSlot;
use crate::pages::Pages;
use crate::services::first_start;
use crate::services::loader::LoadPace;
use crate::services::maintenance::index_builder;
use crate::services::search::Catalog;
use crate::services::threads::priority;
use crate::startup::brand;
use crate::startup::data_dir::{OpenStore, open_store, store_exit};

/// The input of every later stage. A stage borrows it, and clones what it keeps.
pub(super) struct Base {
    pub(super) cores: CoreCount,
    pub(super) pages: Arc<Pages>,
    pub(super) links: Links,
    pub(super) code_secret: CodeSecret,
    pub(super) catalog: Arc<Catalog>,
    pub(super) hasher: CodeHasher,
    pub(super) stats: Arc<NodeStats>,
    /// Counters of each core, the admin listener's last.
    pub(super) core_stats: Arc<[Arc<CoreStats>]>,
    pub(super) mailboxes: Mailboxes,
    /// The speed at which this start loads the links.
    pub(super) load_pace: LoadPace,
    /// The locations of addresses, once they are read.
    pub(super) geo: GeoSlot,
    /// The knowledge about the fleet, which is empty on a single node.
    pub(super) fleet_view: Arc<FleetView>,
}

impl Base {
    /// Returns the knowledge about the fleet if it is the shared home of the links; `None` if this node stores all links.
    pub(super) fn home(&self) -> Option<Arc<FleetView>> {
        (!self.fleet_view.stores_all_links()).then(|| Arc::clone(&self.fleet_view))
    }
}

/// Opens the store, binds the listeners and makes the mailboxes.
///
/// # Errors
/// If the store, an address or a file that the settings name cannot be used.
pub(super) fn open(settings: &Settings, load_pace: LoadPace) -> Result<(Base, CoreEnds), Exit> {
    let cores = core_count(settings);
    priority::set_core_cpus(&settings.cores.cpus);
    let pages = Arc::new(brand::pages(settings)?);
    let OpenStore { links, code_secret, damage } = open_store(settings)?;
    if settings.events.is_on {
        // Before the first commit, which would drop its events.
        links.open_events().map_err(|error| store_exit(&error))?;
    } else {
        links.suspend_events().map_err(|error| store_exit(&error))?;
    }
    index_builder::ensure(&links).map_err(|error| store_exit(&error))?;
    let catalog = Catalog::new(links.clone(), settings.search_memory, &settings.data_dir);
    let catalog = Arc::new(catalog.map_err(|error| store_exit(&error))?);
    let bound = listeners::bind(settings, cores.get())?;
    let is_hot = matches!(settings.residency, Residency::Hot { .. });
    let hasher = match first_start::stored_hasher(&settings.data_dir, is_hot) {
        Some(hasher) => hasher,
        None => CodeHasher::new(random_seed()?),
    };
    let stats = Arc::new(NodeStats::default());
    if let Some(damage) = damage {
        stats.alarms.raise(Alarm::StoreDamaged, damage);
    }
    let fleet_view = FleetView::new(CodeSpace::new(&code_secret)).with_other_site(settings.fleet.site.is_some());
    let fleet_view = if settings.home.is_shared() { fleet_view.with_shared_home() } else { fleet_view };
    let core_stats = (0..=cores.get()).map(|_| Arc::default()).collect();
    let (mailboxes, bells, mail) = make_mailboxes(cores)?;
    let base = Base {
        cores,
        pages,
        links,
        code_secret,
        catalog,
        hasher,
        stats,
        core_stats,
        mailboxes,
        load_pace,
        geo: GeoSlot::default(),
        fleet_view: Arc::new(fleet_view),
    };
    Ok((base, CoreEnds { bound, bells, mail }))
}
