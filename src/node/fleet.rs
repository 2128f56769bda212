//! A node's part in a fleet: the conditions for taking part, and the threads that do.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_shards::CodeLength;

use super::base::Base;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::bridge::{JobQueues, LookupQueue, WriterQueue};
use crate::services::allowances::SharedVisits;
use crate::services::ids::FleetSource;
use crate::services::joins::server::{self, SnapshotTerms};
use crate::services::purges::{HomeConnections, PurgeSites};
use crate::services::replication::counter::FleetCounter;
use crate::services::replication::expiry::FleetExpiry;
use crate::services::replication::heartbeat::boot_id;
use crate::services::replication::redis::{Redis, RedisSettings};
use crate::services::replication::{
    self, FleetContext, FleetSetup, FleetThreads, KnownNodes, RedisSiteOrders, Retention, SharedHome, SiteSetup,
    StateHome, agreement,
};
use crate::services::visits::{FleetVisits, VisitReader};
use crate::startup::code_secret;
use crate::startup::data_dir::store_exit;
use crate::startup::redis::client_settings;
use carom_model::replication::absence::GENERATED_LEN_MIN;
use carom_model::replication::members::Lease;
use carom_model::replication::outbox::Delivery;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{KeySource, RedisUrl, Settings, SiteSettings, is_name};
use carom_store::lock::lock_file_id;

/// Name of the file in a data directory that keeps the name of the node.
const NAME_FILE: &str = "node.id";

/// Timeout of Redis at the start.
const START_TIME: Duration = Duration::from_secs(2);

/// Checks that this node may take part: its code secret must be the fleet's. A node without one may create it only if
/// the fleet has none.
///
/// # Errors
/// [`Reason::CodeSecret`] if the secrets differ, or this node has none and the fleet's is unknown.
pub(super) fn check_code_secret(settings: &Settings) -> Result<(), Exit> {
    let Some(redis) = redis_settings(settings) else { return Ok(()) };
    let path = settings.data_dir.join(code_secret::FILE_NAME);
    let ours = match &settings.space_key {
        KeySource::Given(key) => Some(key.fingerprint()),
        KeySource::File(path) => code_secret::read(path)?.map(|key| key.fingerprint()),
        KeySource::DataDir => code_secret::read(&path)?.map(|key| key.fingerprint()),
    };
    let mut redis = Redis::new(redis).map_err(|error| Exit::new(Reason::Usage, format!("fleet.ca_file: {error}")))?;
    match (redis.fingerprint(START_TIME), ours) {
        (Ok(None), _) => Ok(()),
        (Ok(Some(theirs)), Some(ours)) if theirs == ours => Ok(()),
        (Ok(Some(theirs)), Some(ours)) => Err(other_code_secret(&theirs, &ours)),
        (Ok(Some(theirs)), None) => {
            let what = format!("the code secret of the fleet has the fingerprint {theirs}, but this node has none yet");
            let remedy =
                format!("copy {} of another node to {} with mode 0600", code_secret::FILE_NAME, path.display());
            Err(Exit::new(Reason::CodeSecret, what).with_remedy(remedy))
        }
        // A node that has a code secret starts without Redis. The first answered heartbeat checks it.
        (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => {
            let what = format!(
                "this node has no code secret yet, and Redis cannot be asked whether the fleet has one: {error}"
            );
            let remedy = format!(
                "start Redis and check its password, or copy {} of another node to {}",
                code_secret::FILE_NAME,
                path.display()
            );
            Err(Exit::new(Reason::CodeSecret, what).with_remedy(remedy))
        }
    }
}

/// Returns the exit of a node whose code secret is not the fleet's.
fn other_code_secret(theirs: &str, ours: &str) -> Exit {
    let what = format!("the code secret of this node has the fingerprint {ours}, but the fleet uses {theirs}");
    let remedy = format!(
        "use the code secret of the fleet ({} of another node; `carom key show-fingerprint` identifies it), or another Redis or fleet.prefix",
        code_secret::FILE_NAME
    );
    Exit::new(Reason::CodeSecret, what).with_remedy(remedy)
}

/// Returns the connection settings of Redis, if there is one.
fn redis_settings(settings: &Settings) -> Option<Arc<RedisSettings>> {
    settings.fleet.redis.as_ref().map(|url| redis_at(url, settings))
}

/// Returns the connection settings of the Redis servers of a URL.
fn redis_at(url: &RedisUrl, settings: &Settings) -> Arc<RedisSettings> {
    let client = client_settings(url, settings.fleet.password.as_ref(), settings.fleet.ca_file.clone());
    let (prefix, stream_len) = (settings.fleet.prefix.clone(), settings.fleet.stream_entries);
    Arc::new(RedisSettings { client, prefix, stream_len })
}

/// Returns the sites of the fleet, if there are two.
fn site(settings: &Settings) -> Option<SiteSetup> {
    let SiteSettings { name, other, other_redis } = settings.fleet.site.as_ref()?;
    Some(SiteSetup { name: name.clone(), other: other.clone(), redis: redis_at(other_redis, settings) })
}

/// Returns the handle that shares the visits of limited links among all nodes; `None` without Redis.
///
/// # Errors
/// If the certificates cannot be used, or the node's name cannot be stored.
pub(super) fn shared_visits(settings: &Settings) -> Result<Option<SharedVisits>, Exit> {
    let Some((redis, _)) = redis(settings)? else { return Ok(None) };
    Ok(Some(SharedVisits { redis, node: name(settings)?, answer_time: settings.fleet.answer_time }))
}

/// Returns the handle that exchanges visit counts with other nodes; `None` without Redis.
///
/// # Errors
/// If the certificates cannot be used, or the node's name cannot be stored.
pub(super) fn visits(settings: &Settings) -> Result<Option<FleetVisits>, Exit> {
    let Some((redis, _)) = redis(settings)? else { return Ok(None) };
    Ok(Some(FleetVisits { redis, node: name(settings)? }))
}

/// Returns a Redis client, and a text that identifies its servers and key prefix; `None` without Redis.
///
/// # Errors
/// If the certificates cannot be used.
pub(super) fn redis(settings: &Settings) -> Result<Option<(Redis, String)>, Exit> {
    let Some(redis) = redis_settings(settings) else { return Ok(None) };
    let whole = format!("{redis:?}");
    let redis = Redis::new(redis).map_err(|error| Exit::new(Reason::Usage, format!("fleet.ca_file: {error}")))?;
    Ok(Some((redis, whole)))
}

/// Returns the connections that exchange purges with the other site; `None` if the fleet has one.
///
/// # Errors
/// If the certificates cannot be used.
pub(super) fn purge_sites(settings: &Settings) -> Result<Option<PurgeSites>, Exit> {
    let (Some(SiteSetup { name, other, redis: other_redis }), Some((own, _))) = (site(settings), redis(settings)?)
    else {
        return Ok(None);
    };
    let made = Redis::new(other_redis);
    let other_redis = made.map_err(|error| Exit::new(Reason::Usage, format!("fleet.ca_file: {error}")))?;
    Ok(Some(PurgeSites { name, other_name: other, own, other: other_redis }))
}

/// Returns the connections with which purges reach a shared home of links; `None` without Redis.
///
/// # Errors
/// If the certificates cannot be used.
pub(super) fn home_connections(settings: &Settings) -> Result<Option<HomeConnections>, Exit> {
    let (erasing, selecting) = (redis(settings)?, redis(settings)?);
    let both = erasing.zip(selecting);
    Ok(both.map(|((erasing, _), (selecting, _))| HomeConnections { erasing, selecting }))
}

/// The handles of a node that is in a fleet.
pub(super) struct FleetHandles {
    pub(super) fleet: Option<FleetThreads>,
    /// Queue to which cores send changes.
    pub(super) gateway: WriterQueue,
    /// Queue to which cores send codes that they do not know.
    pub(super) look_ups: Option<LookupQueue>,
    /// Queue to which cores send codes of bulk requests, in a shared home of links.
    pub(super) bulk_look_ups: Option<LookupQueue>,
    /// The knowledge about the fleet.
    pub(super) view: Option<Arc<FleetView>>,
    /// Handle by which the expiry thread asks Redis to remove links.
    pub(super) expiry: Option<FleetExpiry>,
    /// The replenisher's source of counter values.
    pub(super) source: Option<FleetSource>,
}

/// Starts a node's part in a fleet; `None` without Redis.
///
/// # Errors
/// If a thread cannot be started, or the node's name cannot be stored.
pub(super) fn join(
    settings: &Settings,
    base: &Base,
    (writer, visits): (&WriterQueue, &VisitReader),
    deliveries: Receiver<Delivery>,
) -> Result<FleetHandles, Exit> {
    let Some(redis) = redis_settings(settings) else {
        if base.links.has_joined_fleet().map_err(|error| store_exit(&error))? {
            let what = "this data directory belongs to a node of a fleet, but redis is not set";
            let remedy = "set --redis, CAROM_REDIS or redis; without it, the node could issue codes of other nodes";
            return Err(Exit::new(Reason::Usage, what).with_remedy(remedy));
        }
        let (gateway, look_ups, bulk_look_ups) = (writer.clone(), None, None);
        return Ok(FleetHandles {
            fleet: None,
            gateway,
            look_ups,
            bulk_look_ups,
            view: None,
            expiry: None,
            source: None,
        });
    };
    let failed = |what: &dyn std::fmt::Display| {
        Exit::new(Reason::ThreadEnded, format!("the fleet threads could not be started: {what}"))
    };
    let reclaim_after = settings.fleet.reclaim_after;
    let last_contact = base.links.last_contact(&boot_id()).map_err(|error| store_exit(&error))?;
    let lease = Lease::resume(last_contact, since_boot(), reclaim_after);
    let retention = Retention::new(settings.fleet.retention, &base.links).map_err(|error| store_exit(&error))?;
    base.stats.fleet.configured.store(true, Ordering::Release);
    let shared = FleetContext {
        settings: Arc::new(fleet_setup(settings, base, redis)?),
        links: base.links.clone(),
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
        lease: Arc::new(Mutex::new(lease)),
        view: Arc::clone(&base.fleet_view),
        home: state_home(base, visits),
        retention: Arc::new(retention),
        is_resumed: Arc::new(AtomicBool::new(false)),
        stop: Arc::new(AtomicBool::new(false)),
    };
    if let (Some(_), Some(keep)) = (settings.expiry.recycle_after, settings.expiry.keep) {
        base.stats.fleet.keep_expired_ms.set(keep.as_millis() as u64);
        base.stats.fleet.recycles.store(true, Ordering::Release);
        shared.view.set_recycling();
    }
    // Other nodes may generate codes of another length.
    let shortest = CodeLength::new(GENERATED_LEN_MIN).expect("codes have that length");
    let lengths: Vec<CodeLength> = settings.code_length.min(shortest).and_longer().collect();
    // Before the first heartbeat records that this node is part of the fleet.
    let counter = FleetCounter::new(&shared).map_err(|error| failed(&error))?;
    let known = KnownNodes::open(&settings.data_dir, shared.settings.node.clone(), since_boot());
    let started = known.and_then(|known| replication::start(&shared, known, writer.clone(), deliveries, lengths));
    let started = started.map_err(|error| failed(&error))?;
    Ok(FleetHandles {
        fleet: Some(started.fleet),
        gateway: started.gateway,
        look_ups: Some(started.look_ups.single),
        bulk_look_ups: started.look_ups.bulk,
        view: Some(shared.view),
        expiry: Some(started.expiry),
        source: Some(FleetSource { counter, reclaimed: started.reclaimed, keeps_rows: lease.has_begun() }),
    })
}

/// Returns what the threads of a fleet need of the settings.
fn fleet_setup(settings: &Settings, base: &Base, redis: Arc<RedisSettings>) -> Result<FleetSetup, Exit> {
    let fingerprint = base.code_secret.fingerprint();
    Ok(FleetSetup {
        redis,
        node: name(settings)?,
        admin_listen: settings.admin_listen,
        lock_file: lock_file(&settings.data_dir),
        answer_time: settings.fleet.answer_time,
        look_up_time: settings.fleet.look_up_time,
        accept_without_redis: settings.fleet.accept_without_redis,
        reclaim_after: settings.fleet.reclaim_after,
        dedupe: settings.dedupe,
        retention: settings.fleet.retention,
        agreed: agreement::fingerprints(settings, &fingerprint),
        fingerprint,
        site: site(settings),
    })
}

/// Names the lock file of a data directory, in this boot of the machine; `None` if the boot or the file is unknown.
fn lock_file(data_dir: &Path) -> Option<String> {
    let boot = Some(boot_id()).filter(|boot| !boot.is_empty())?;
    let (device, inode) = lock_file_id(data_dir).ok()?;
    Some(format!("{boot}/{device}/{inode}"))
}

/// Returns the home of the states of links, with what this node needs to answer for a shared one.
fn state_home(base: &Base, visits: &VisitReader) -> StateHome {
    if base.fleet_view.stores_all_links() {
        return StateHome::Node;
    }
    StateHome::Shared(SharedHome { hasher: base.hasher, cores: base.cores, visits: visits.clone() })
}

/// Starts the thread that serves snapshots to joining nodes, and adds its queue. Without Redis, or if this node does not
/// store all links, nothing starts.
///
/// # Errors
/// If the thread cannot be started, or the node's name cannot be stored.
pub(super) fn with_snapshots(
    jobs: JobQueues,
    settings: &Settings,
    base: &Base,
    supervisor: &mut Supervisor,
) -> Result<JobQueues, Exit> {
    if settings.fleet.redis.is_none() || settings.home.is_shared() {
        return Ok(jobs);
    }
    let terms = SnapshotTerms {
        links: base.links.clone(),
        data_dir: settings.data_dir.clone(),
        node: name(settings)?,
        fingerprint: base.code_secret.fingerprint(),
        rate: settings.fleet.join_rate,
    };
    let started = server::start(terms, &base.mailboxes);
    let (queue, thread) = started.map_err(|error| thread_exit("the thread for snapshots", &error))?;
    supervisor.register_threads(StopPhase::Queues, "snapshots", vec![thread]);
    Ok(JobQueues { snapshots: Some(queue), ..jobs })
}

/// Adds the mark of this site and its tie to the other one, which an operator can remove through the API. A fleet of one
/// site has none.
///
/// # Errors
/// If the certificates for Redis cannot be used.
pub(super) fn with_site(jobs: JobQueues, settings: &Settings) -> Result<JobQueues, Exit> {
    let Some(site) = site(settings) else { return Ok(jobs) };
    let Some((redis, _)) = redis(settings)? else { return Ok(jobs) };
    let other = Redis::new(site.redis).map_err(|error| Exit::new(Reason::Usage, format!("fleet.ca_file: {error}")))?;
    Ok(JobQueues { site: Some(Arc::new(RedisSiteOrders::new(redis, other, (site.name, site.other)))), ..jobs })
}

/// Returns the name of this node: as configured, or as generated at the first start.
fn name(settings: &Settings) -> Result<String, Exit> {
    if let Some(name) = &settings.fleet.node {
        return Ok(name.clone());
    }
    let path = settings.data_dir.join(NAME_FILE);
    let failed = |error: std::io::Error| {
        Exit::new(
            Reason::DataNotWritable,
            format!("the name of the node cannot be stored in {}: {error}", path.display()),
        )
    };
    match std::fs::read_to_string(&path) {
        Ok(name) if is_name(name.trim()) => return Ok(name.trim().to_owned()),
        Ok(_) => {
            let what = format!("{} does not contain a valid node name", path.display());
            return Err(Exit::new(Reason::Usage, what).with_remedy("remove the file, or set fleet.node"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let drawn = format!("node-{:08x}", super::seed::random_seed()? as u32);
    keep(&path, &drawn).map_err(failed)?;
    Ok(drawn)
}

fn keep(path: &Path, name: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    writeln!(file, "{name}")?;
    file.sync_all()
}
