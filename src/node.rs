//! The life of a node. It starts its parts in the order of their dependencies, runs until a signal, and stops them in
//! the opposite order. The order ensures that acknowledged changes reach the disk before the exit.

mod announce;
mod background;
mod base;
mod bypass;
mod cores;
mod event_log;
mod fleet;
mod listeners;
mod lists;
mod loading;
mod recorders;
mod seed;
mod signals;
mod store_services;
mod supervisor;
mod supply;
mod watchdog;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use carom_limits::{ADMIN_DRAIN_TIME_MAX, ConnectionLimits, DRAIN_TIME_MAX};
use carom_model::access::idempotency::PendingCreates;
use carom_model::access::registry::Registry;
use carom_model::domains::Domains;
use carom_model::link::creator_links::CreatorLinks;
use carom_settings::Settings;
use carom_settings::access_log::terms::LogPlace;
use carom_settings::check::RulesInForce;
use carom_settings::exit::{Exit, Reason};
use carom_shards::{CoreCount, CoreId};
use carom_telemetry::clock::{Clock, unix_ms};
use carom_telemetry::stats::NodeStats;

use self::announce::{Announcement, log_shutdown, notify_manager};
use self::background::ExpiryChannels;
use self::base::Base;
use self::bypass::NodeBypass;
use self::cores::{CoreEnds, CorePlan};
use self::recorders::Rings;
pub use self::signals::{Hangup, SignalInbox, SignalSender};
use self::signals::{ProcessEvent, next_event};
use self::supervisor::{StopPhase, Supervisor};
use crate::api::{self, MercureHub, Sessions, Site};
use crate::bridge::handle::{NodeContext, miss_limiter};
use crate::bridge::{Mailboxes, ToCore};
use crate::core::CoreEvent;
use crate::services::api_keys;
use crate::services::api_keys::file;
use crate::services::certificates::{Certificates, Reload};
use crate::services::loader::LoadPace;
use crate::services::replication::redis::{Redis, RedisError};
use crate::services::threads::priority;
use crate::startup::data_dir::lock;
use crate::startup::domains::own_authorities;
use crate::startup::joining::{self, JoinAtStart};
use crate::startup::{files, home, preflight};

/// Runs a node until SIGTERM or SIGINT stops it; SIGHUP reloads certificates. It receives signals once it has locked its
/// data directory. Blocks the calling thread.
///
/// # Errors
/// The reason why the node could not start, or had to stop.
pub fn serve(settings: &Settings) -> Result<(), Exit> {
    run(settings, || SignalInbox::open(Hangup::Reload))
}

/// Runs a node until a signal stops it, which may have arrived earlier. Blocks the calling thread.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(settings: &Settings, signals: SignalInbox) -> Result<(), Exit> {
    run(settings, || Ok(signals))
}

fn run(settings: &Settings, receive: impl FnOnce() -> Result<SignalInbox, Exit>) -> Result<(), Exit> {
    api::start_clock();
    // First, so that a node that may not run has written nothing.
    let keys = keys(settings)?;
    let ready = preflight::check(settings.cores.cpus.len(), &settings.data_dir)?;
    // Held until the process ends.
    let _lock = lock(&settings.data_dir)?;
    home::check(settings)?;
    let SignalInbox { events, inbox } = receive()?;
    let certificates = files::certificates(settings)?;
    fleet::check_code_secret(settings)?;
    let pace = match joining::at_start(settings, &|| matches!(inbox.try_recv(), Ok(ProcessEvent::Stop(_))))? {
        JoinAtStart::Unneeded => LoadPace::Full,
        JoinAtStart::Done => LoadPace::BesidePeer,
        JoinAtStart::Stopped => {
            tracing::info!("stopped during the join; the next start continues");
            return Ok(());
        }
    };
    home::mark(settings)?;
    let limits = connection_limits(settings, ready.open_files);
    let node = Node::start((settings, pace), keys, certificates, limits, events)?;
    node.run(&inbox)
}

/// Returns the API keys, and true if the fleet may have others that could not be read. Without keys, only this machine
/// may reach the node, unless the settings permit more.
///
/// # Errors
/// If the keys cannot be read, or the settings require keys and there are none.
fn keys(settings: &Settings) -> Result<(Registry, bool), Exit> {
    let mut keys = crate::startup::data_dir::api_keys(&settings.data_dir)?.pruned(unix_ms());
    let mut failure = None;
    // A node that has synchronised with its fleet has a file, even if that has no keys.
    if !file::exists(&settings.data_dir)
        && let Some((mut redis, _)) = fleet::redis(settings)?
    {
        let time = if settings.may_go_without_keys().is_ok() { Duration::ZERO } else { KEYS_TIME_MAX };
        match await_keys(&mut redis, &keys, time) {
            Ok(theirs) => _ = keys.merge(&theirs),
            Err(error) => failure = Some(error),
        }
    }
    if !keys.had_keys() {
        let why = failure.as_ref();
        settings.may_go_without_keys().map_err(|errors| why.map_or_else(|| errors.into(), keys_unknown))?;
    }
    Ok((keys, failure.is_some()))
}

/// Returns the keys that Redis has. Asks again for some time while Redis does not answer.
fn await_keys(redis: &mut Redis, mine: &Registry, time: Duration) -> Result<Registry, RedisError> {
    let until = Instant::now() + time;
    loop {
        match api_keys::share(redis, mine) {
            Err(RedisError::Unavailable { what, .. }) if Instant::now() < until => {
                tracing::info!(%what, "waiting for the API keys of the fleet");
                std::thread::sleep(KEYS_PAUSE);
            }
            shared => return shared.map(|shared| shared.theirs),
        }
    }
}

/// Returns the end of a public node that cannot ask Redis for keys. Unlike [`Reason::PublicWithoutOpen`], it may pass by
/// itself, so the service manager starts the node again.
fn keys_unknown(error: &RedisError) -> Exit {
    let what = format!("other machines reach this node, and it cannot ask its fleet for API keys: {error}");
    let remedy = match error {
        RedisError::Unavailable { .. } => "start it again once Redis answers",
        RedisError::Refused(_) => "correct the user and password of the setting redis, or the rights of this user",
    };
    Exit::new(Reason::Incomplete, what).with_remedy(remedy)
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

/// Longest time for which the start of a public node without keys waits for those of its fleet. Five such starts in a row, after
/// which systemd gives up if they take less than a minute (carom.service), take longer.
const KEYS_TIME_MAX: Duration = Duration::from_secs(12);

/// Pause between two questions for these keys.
const KEYS_PAUSE: Duration = Duration::from_secs(1);

/// Interval between two looks whether the node has the changes that it had missed, to tell the service manager.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Node {
    cores: CoreCount,
    mailboxes: Mailboxes,
    stats: Arc<NodeStats>,
    supervisor: Supervisor,
    certificates: Option<Reload>,
    drain_delay: Duration,
    /// The message that is printed once clients are accepted.
    announcement: Announcement,
    /// True if standard output is for the announcement, and not for the access log.
    keeps_stdout: bool,
}

impl Node {
    fn start(
        (settings, pace): (&Settings, LoadPace),
        (keys, is_unsure): (Registry, bool),
        certificates: Option<Certificates>,
        limits: [ConnectionLimits; 2],
        events: Sender<ProcessEvent>,
    ) -> Result<Node, Exit> {
        let (mut supervisor, (base, ends)) = (Supervisor::default(), base::open(settings, pace)?);
        let Rings { senders, visits, access, visit_log } = Rings::new(settings, base.cores)?;
        let mut store = store_services::start(settings, &base, (visits, visit_log), access, &mut supervisor)?;
        let joined = fleet::join(settings, &base, (&store.writer, &store.visits), store.deliveries)?;
        let fleet::FleetHandles { fleet, gateway, look_ups, bulk_look_ups, view, expiry, source } = joined;
        let (sources, segments) = supply::start_replenisher(settings, &base, source, &mut supervisor)?;
        let (apps, has_keys) = supply::start_api_keys(settings, &base, keys, is_unsure, &mut supervisor)?;
        let (domains, has_others, domain_redirects) = supply::start_domains(settings, &base, &ends, &mut supervisor)?;
        let hub = event_log::start(settings, &base, &domains, (&mut store.lists, &store.visits), &mut supervisor)?;
        let announcement = Announcement::new(settings, &ends.bound, &domains, has_keys);
        background::start_upkeep(settings, &base, &mut supervisor)?;
        let (identity, reload) = background::start_certificates(certificates, &base, &mut supervisor)?;
        let context = NodeContext {
            domains: Arc::clone(&domains),
            writer: gateway,
            store_look_ups: supply::start_fetchers(settings, &base, look_ups.clone(), &mut supervisor)?,
            redis_look_ups: look_ups,
            bulk_look_ups,
            fleet_view: view,
            allowances: store.allowances,
            apps,
            domain_redirects,
            destination_rules: supply::start_destination_rules(settings, &base, &mut supervisor)?,
            miss_limiter: miss_limiter(settings.limits.misses_per_second),
            reader: store.reader,
            pages: Arc::clone(&base.pages),
            page_reader: store.page_reader,
            lists: store.lists,
            jobs: fleet::with_site(fleet::with_snapshots(store.jobs, settings, &base, &mut supervisor)?, settings)?,
            mailboxes: base.mailboxes.clone(),
            clock: Clock::SYSTEM,
            pending_creates: PendingCreates::default(),
            nostat: nostat_of(settings),
            cores: Arc::clone(&base.core_stats),
            node: Arc::clone(&base.stats),
        };
        let plan = CorePlan {
            limits: limits[0],
            admin_limits: limits[1],
            identity,
            settings,
            events,
            context,
            site: Arc::new(site(settings, &base, (&domains, has_others), &ends.bound.listening, hub)),
            hasher: base.hasher,
            cores: base.cores,
            trust: Arc::new(settings.trust.clone()),
            recorders: senders,
        };
        start_cores(plan, ends, sources, &base, &mut supervisor)?;
        let ends = ExpiryChannels { writer: store.writer, store: store.channels, segments, fleet: expiry };
        background::load_and_start(settings, &base, fleet, ends, &mut supervisor)?;
        Ok(Node {
            cores: base.cores,
            mailboxes: base.mailboxes,
            stats: base.stats,
            supervisor,
            certificates: reload,
            drain_delay: settings.drain_delay,
            announcement,
            keeps_stdout: settings.access_log.place != Some(LogPlace::StandardOutput),
        })
    }

    /// Accepts clients once all links are in memory, waits for the signal to stop, and stops the node.
    fn run(self, inbox: &Receiver<ProcessEvent>) -> Result<(), Exit> {
        let mut loading = self.cores.get();
        // The cores and the admin listener.
        let mut opening = self.cores.get() + 1;
        let mut ended = 0;
        let mut failure = None;
        let (mut drains_at, mut looks_at): (Option<Instant>, Option<Instant>) = (None, None);
        while ended < self.cores.get() {
            let Some(event) = next_event(inbox, drains_at.into_iter().chain(looks_at).min()) else {
                let is_over = |at: &mut Instant| *at <= Instant::now();
                if drains_at.take_if(is_over).is_some() {
                    self.drain();
                }
                if looks_at.take_if(is_over).is_some() {
                    looks_at = self.notify_once_ready();
                }
                continue;
            };
            match event {
                ProcessEvent::Core(CoreEvent::Loaded(core)) if core.index() < self.cores.get() => {
                    loading -= 1;
                    if loading == 0 && !self.stats.draining.load(Ordering::Relaxed) {
                        self.cores.cores().for_each(|core| self.mailboxes.to(core).post(ToCore::Open));
                    }
                }
                ProcessEvent::Core(CoreEvent::Loaded(_)) => {}
                ProcessEvent::Core(CoreEvent::Opened(_)) => {
                    opening -= 1;
                    if opening == 0 {
                        self.announce();
                        looks_at = self.notify_once_ready();
                    }
                }
                ProcessEvent::Stop(signal) => {
                    let is_first = !self.stats.draining.swap(true, Ordering::AcqRel);
                    // A second signal skips the drain delay.
                    let delay = if is_first && opening == 0 { self.drain_delay } else { Duration::ZERO };
                    log_shutdown(signal, delay);
                    if is_first {
                        notify_manager(false);
                    }
                    drains_at = (is_first || drains_at.is_some()).then(|| Instant::now() + delay);
                }
                ProcessEvent::Reload => match &self.certificates {
                    Some(reload) => reload.now(),
                    None => tracing::info!("SIGHUP: no certificates to reload"),
                },
                ProcessEvent::Core(CoreEvent::Ended(core, Err(error))) => {
                    let what = format!("core {core} ended: {error}");
                    tracing::error!("{what}");
                    return Err(Exit::new(Reason::ThreadEnded, what));
                }
                ProcessEvent::Core(CoreEvent::Ended(core, Ok(()))) if core.index() < self.cores.get() => ended += 1,
                ProcessEvent::Core(CoreEvent::Ended(..)) => {
                    failure = Some(Exit::new(Reason::ThreadEnded, "the admin listener ended unexpectedly"));
                    self.stats.draining.store(true, Ordering::Release);
                    self.drain();
                }
            }
        }
        self.supervisor.stop_all();
        tracing::info!("stopped");
        failure.map_or(Ok(()), Err)
    }

    /// Announces that every listener accepts clients.
    fn announce(&self) {
        self.stats.ready.store(true, Ordering::Release);
        // The parent process may have closed the pipe, which is no reason to stop.
        let mut out = io::stdout().lock();
        if self.keeps_stdout {
            let text = if out.is_terminal() { self.announcement.page() } else { self.announcement.line() };
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        } else {
            tracing::info!("{}", self.announcement.line());
        }
    }

    /// Tells the service manager that the node is ready, by the rule of `/readyz`. Returns the time of the next look if it is
    /// not ready yet; `None` once the service manager knows, or the node drains.
    fn notify_once_ready(&self) -> Option<Instant> {
        if self.stats.is_ready() {
            notify_manager(true);
            return None;
        }
        let is_draining = self.stats.draining.load(Ordering::Acquire);
        (!is_draining).then(|| Instant::now() + LOOK_EVERY)
    }

    fn drain(&self) {
        for core in self.cores.cores() {
            self.mailboxes.to(core).post(ToCore::Drain { within: DRAIN_TIME_MAX });
        }
    }
}

/// Returns the query parameter of requests that are no visits, for as long as the process lives: every connection
/// compares it.
fn nostat_of(settings: &Settings) -> &'static str {
    settings.nostat.clone().leak()
}

/// Builds the description of the service that the API works with. `has_others`: domains other than the default one may have
/// links.
fn site(
    settings: &Settings,
    base: &Base,
    (domains, has_others): (&Domains, bool),
    listening: &[SocketAddr],
    mercure: Option<MercureHub>,
) -> Site {
    let is_on_loopback = carom_settings::check::on_loopback(settings.admin_listen);
    Site {
        own: own_authorities(domains, listening),
        default_ttl: settings.default_ttl,
        trailing_slash: settings.paths.trailing_slash,
        extra_path: settings.paths.extra_path,
        slugs: settings.slugs,
        app_creates: settings.limits.creates_per_second,
        creator_links: CreatorLinks::new(base.code_secret.clone()),
        has_other_domains: has_others,
        has_form: settings.pages.has_form,
        interfaces: listeners::interfaces(&settings.api),
        cors: settings.api.cors.clone(),
        mercure,
        trusts_admin: is_on_loopback && !settings.admin_requires_key,
        admin_hosts: listeners::names_of_admin(settings),
        sessions: Sessions::default(),
        settings: serde_json::json!(settings.shown()),
        rules: RulesInForce::of(settings),
    }
}

/// Starts the cores and their watchdog, and opens the admin listener. Public listeners open when every core has its
/// links. The XDP program of bypass stays attached until they have ended.
fn start_cores(
    plan: CorePlan<'_>,
    ends: CoreEnds,
    sources: Vec<crate::services::ids::CodeSource>,
    base: &Base,
    supervisor: &mut Supervisor,
) -> Result<(), Exit> {
    let NodeBypass { program, parts } = bypass::start(plan.settings, &ends.bound, &plan.limits, base)?;
    let running = plan.start_all(ends, sources, parts)?;
    watchdog::start(base, supervisor)?;
    let (mailboxes, admin) = (base.mailboxes.clone(), CoreId(base.cores.get() as u16));
    mailboxes.to(admin).post(ToCore::Open);
    supervisor.register(StopPhase::Cores, "cores", move || {
        mailboxes.to(admin).post(ToCore::Drain { within: ADMIN_DRAIN_TIME_MAX });
        for core in running {
            // A core that failed has said so itself.
            let _ = core.join();
        }
        priority::end_pauses();
        drop(program);
    });
    Ok(())
}
