//! Starts the services that supply the cores: fresh codes, links that are not in memory, destination rules and API keys.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use carom_model::access::registry::Registry;
use carom_model::domains::Domains;
use carom_settings::check::RulesInForce;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Residency, Settings};
use carom_shards::{CodeSpace, GeneratedCode};
use carom_store::ids::IdTable;
use carom_telemetry::alarms::Alarm;

use super::base::Base;
use super::cores::CoreEnds;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use super::{fleet, lists};
use crate::bridge::{AppsQueue, DestinationRulesQueue, DomainRedirectsQueue, LookupQueue};
use crate::services::api_keys::{self, AppsSetup};
use crate::services::destination_rules::{self, DestinationRulesSetup};
use crate::services::domain_redirects::{self, DomainRedirectsSetup};
use crate::services::host_lists::{ListKind, StaticHosts};
use crate::services::ids::{self, CodeSource, FleetSource, ReplenisherSetup};
use crate::services::readers::link_fetchers::{self, FetcherSetup};
use crate::startup::data_dir::{self, store_exit};
use crate::startup::domains::{domains_of, warn_of_hidden_links};

/// Starts the threads that read links for cores that do not hold them; `None` if every link is in memory. Redis answers
/// for the store if it is the shared home of the links.
///
/// # Errors
/// If the operating system refuses a thread.
pub(super) fn start_fetchers(
    settings: &Settings,
    base: &Base,
    redis: Option<LookupQueue>,
    supervisor: &mut Supervisor,
) -> Result<Option<LookupQueue>, Exit> {
    let Residency::Hot { memory_limit } = settings.residency else { return Ok(None) };
    base.stats.memory_limit.set(memory_limit);
    if settings.home.is_shared() {
        return Ok(redis);
    }
    let (queue, threads) = link_fetchers::start(FetcherSetup {
        links: base.links.clone(),
        mailboxes: base.mailboxes.clone(),
        hasher: base.hasher,
        cores: base.cores,
        stats: Arc::clone(&base.stats),
        redis,
    })
    .map_err(|error| thread_exit("the store's fetchers", &error))?;
    supervisor.register_threads(StopPhase::Fetchers, "link fetchers", threads);
    Ok(Some(queue))
}

/// Starts the thread that prepares segments of codes. Returns the source of each core, and the way for codes to reuse.
///
/// # Errors
/// If the id table cannot be opened, or the operating system refuses a thread.
pub(super) fn start_replenisher(
    settings: &Settings,
    base: &Base,
    fleet: Option<FleetSource>,
    supervisor: &mut Supervisor,
) -> Result<(Vec<CodeSource>, Sender<Vec<GeneratedCode>>), Exit> {
    let (segments, recycled) = channel();
    let (ids, moved) = IdTable::open(&settings.data_dir.join("ids"))
        .map_err(|error| Exit::new(Reason::DataNotWritable, error.to_string()))?;
    if let Some(moved) = moved {
        base.stats.alarms.raise(Alarm::IdTableMoved, moved.to_string());
    }
    let mut replenisher = ids::start(ReplenisherSetup {
        links: base.links.clone(),
        ids,
        space: CodeSpace::new(&base.code_secret),
        length: settings.code_length,
        cores: base.cores,
        fleet,
        recycled,
        mailboxes: base.mailboxes.clone(),
        core_stats: base.core_stats.iter().take(base.cores.get()).cloned().collect(),
        stats: Arc::clone(&base.stats),
    })
    .map_err(|error| Exit::new(Reason::ThreadEnded, error.to_string()))?;
    let sources = std::mem::take(&mut replenisher.sources);
    assert_eq!(sources.len(), base.cores.get(), "each core has one source of codes");
    supervisor.register(StopPhase::Upkeep, "replenisher", move || replenisher.stop());
    Ok((sources, segments))
}

/// Starts the threads that keep the allow list and the block list, and the one that keeps the saved rules. Returns the queue
/// to that one.
///
/// # Errors
/// If a source, the saved rules in the data directory or the certificates of Redis cannot be used, or the operating system
/// refuses a thread.
pub(super) fn start_destination_rules(
    settings: &Settings,
    base: &Base,
    supervisor: &mut Supervisor,
) -> Result<DestinationRulesQueue, Exit> {
    let saved = data_dir::saved_rules(&settings.data_dir)?;
    let of_settings = RulesInForce::of(settings).rules.hosts();
    let hosts = saved.or_settings(&of_settings).clone();
    let allow = lists::start(ListKind::Allow, settings, hosts.allow, &base.mailboxes, &base.stats)?;
    let block = lists::start(ListKind::Block, settings, hosts.block, &base.mailboxes, &base.stats)?;
    let static_hosts = StaticHosts::of(&allow, &block);
    supervisor.register(StopPhase::Upkeep, "allow list", move || allow.stop());
    supervisor.register(StopPhase::Upkeep, "block list", move || block.stop());
    let (queue, thread) = destination_rules::start(DestinationRulesSetup {
        data_dir: settings.data_dir.clone(),
        settings: of_settings,
        saved,
        lists: static_hosts,
        redis: fleet::redis(settings)?.map(|(redis, _)| redis),
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
    })
    .map_err(|error| thread_exit("the thread of destination rules", &error))?;
    supervisor.register_threads(StopPhase::Queues, "destination rules", vec![thread]);
    Ok(queue)
}

/// Starts the thread that keeps the redirects of domains. Returns the domains, true if others than the default one may have
/// links, and the queue to the thread.
///
/// # Errors
/// If the store, the changes in the data directory or the certificates of Redis cannot be used, or the operating system
/// refuses a thread.
pub(super) fn start_domains(
    settings: &Settings,
    base: &Base,
    ends: &CoreEnds,
    supervisor: &mut Supervisor,
) -> Result<(Arc<Domains>, bool, DomainRedirectsQueue), Exit> {
    // A node starts with a damaged index too.
    let with_links = base.catalog.domains().inspect_err(|error| {
        tracing::warn!(%error, "cannot read which domains have links; searches do not find former domains by their names");
    });
    let has_others = !with_links.as_ref().is_ok_and(Vec::is_empty);
    let with_links = with_links.unwrap_or_default();
    let domains = domains_of(settings, ends.bound.listening[0]).finding_former(&with_links);
    let domains = Arc::new(domains.finding_linked(base.catalog.linked_domains()));
    warn_of_hidden_links(&domains, &base.links, &base.stats).map_err(|error| store_exit(&error))?;
    let (queue, thread) = domain_redirects::start(DomainRedirectsSetup {
        data_dir: settings.data_dir.clone(),
        domains: Arc::clone(&domains),
        changes: data_dir::domain_redirects(&settings.data_dir)?,
        redis: fleet::redis(settings)?.map(|(redis, _)| redis),
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
    })
    .map_err(|error| thread_exit("the thread of domain redirects", &error))?;
    supervisor.register_threads(StopPhase::Queues, "domain redirects", vec![thread]);
    Ok((domains, has_others, queue))
}

/// Starts the thread that keeps API keys. `is_unsure`: the fleet may know keys that this node has not heard of. Returns
/// its queue, and true if the API requires a key.
///
/// # Errors
/// If the certificates of Redis cannot be used, or the operating system refuses a thread.
pub(super) fn start_api_keys(
    settings: &Settings,
    base: &Base,
    registry: Registry,
    is_unsure: bool,
    supervisor: &mut Supervisor,
) -> Result<(AppsQueue, bool), Exit> {
    let has_keys = registry.had_keys() || is_unsure;
    let (queue, thread) = api_keys::start(AppsSetup {
        data_dir: settings.data_dir.clone(),
        registry,
        is_unsure,
        redis: fleet::redis(settings)?.map(|(redis, _)| redis),
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
    })
    .map_err(|error| thread_exit("the API key thread", &error))?;
    supervisor.register_threads(StopPhase::Queues, "API keys", vec![thread]);
    Ok((queue, has_keys))
}
