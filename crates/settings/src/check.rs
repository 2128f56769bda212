//! The check of raw settings: each value is parsed, then related values are compared.
//!
//! [`Checker`] parses values and collects mistakes. The other files of this folder check settings that belong together.

mod access_log;
mod api;
mod bypass;
pub(super) mod checker;
mod draft;
mod events;
mod home;
mod hosts;
mod limits;
mod links;
mod listeners;
mod pages;
mod visits;

use std::time::Duration;

pub use self::draft::{DraftFault, HostListDraft, RulesDraft, RulesInForce};
pub use self::listeners::on_loopback;

use self::checker::Checker;
use self::visits::parameter;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem};
use crate::settings::api::Api;
use crate::settings::events::EventSettings;
use crate::settings::visits::VisitSettings;
use crate::settings::{FleetSettings, LinkHome, Settings, SiteSettings};
use crate::value::cpus::{self, Cores};
use crate::value::hosts::host_name;
use crate::value::redis_url;
use crate::value::secret::Secret;
use crate::value::{self, domains, logs, quantities, urls};
use carom_limits::{CHANGE_TIME_MIN, LOOK_UP_TIME_MIN, SNAPSHOT_RATE_MIN};

impl Checker<'_> {
    /// Returns the checked settings; `None` if there are mistakes.
    pub(super) fn settings(&mut self, allowed: &[usize]) -> Option<Settings> {
        let data_dir = self.one(Key::DataDir, value::path);
        let listeners = self.listeners();
        let cores = self.cores(allowed);
        let fleet = self.fleet();
        let has_redis = fleet.as_ref().is_some_and(|fleet| fleet.redis.is_some());
        let base_url = self.one(Key::BaseUrl, domains::base_url);
        let open = self.one(Key::Open, value::boolean);
        let (space_key, links) = (self.space_key(), self.links(cores.as_ref(), fleet.as_ref()));
        let allow = self.hosts((Key::AllowHosts, Key::AllowSource, Key::AllowAccessKey), has_redis);
        let block = self.hosts((Key::BlockHosts, Key::BlockSource, Key::BlockAccessKey), has_redis);
        let domains = self.domains(base_url.as_ref());
        let tls = self.tls(listeners.public());
        let limits = self.limits();
        let drain_delay = self.one(Key::DrainDelay, quantities::time_up_to_hour);
        let (admin_hosts, admin_requires_key) = self.admin();
        let (log_level, log_format) = self.logs();
        let access_log = self.access_log();
        let pages = self.pages();
        let api = self.api();
        let bypass = self.bypass();
        let (visits, events) = self.visits_and_events(links.as_ref().map(|links| links.home));
        let (geo_file, nostat) = (self.one(Key::GeoFile, value::path), self.one(Key::VisitsNostatParameter, parameter));
        let exposed = self.listeners_together(&listeners);
        if !self.problems.is_empty() {
            return None;
        }
        let (links, api) = (links?, api?);
        Some(Settings {
            data_dir: data_dir?,
            listen: listeners.public?.into_iter().map(|(address, _)| address).collect(),
            proxied: listeners.proxied,
            trust: listeners.trust,
            admin_listen: listeners.admin?,
            cores: cores?,
            fleet: fleet?,
            base_url,
            open: open?,
            space_key,
            code_length: links.code_length,
            home: links.home,
            residency: links.residency,
            search_memory: links.search_memory,
            dedupe: links.dedupe,
            default_ttl: links.default_ttl.filter(|_| !self.lasts_as_in_shlink(&api)),
            paths: links.paths,
            slugs: links.slugs,
            expiry: links.expiry,
            allow,
            block,
            domains: domains?,
            tls: tls?,
            limits: limits?,
            drain_delay: drain_delay?,
            admin_hosts,
            admin_requires_key: admin_requires_key?,
            log_level: log_level?,
            log_format: log_format?,
            access_log: access_log?,
            pages: pages?,
            api,
            bypass: bypass?,
            visits: visits?,
            events: events?,
            geo_file,
            nostat: nostat?,
            exposed,
            sources: self.sources.clone(),
        })
    }

    /// Returns the level and the format of the log.
    fn logs(&mut self) -> (Option<logs::LogLevel>, Option<logs::LogFormat>) {
        (self.one(Key::LogLevel, logs::log_level), self.one(Key::LogFormat, logs::log_format))
    }

    /// Returns the host names of the admin listener, and whether it requires a key.
    fn admin(&mut self) -> (Vec<String>, Option<bool>) {
        let hosts = self.list(Key::AdminHosts, "write at least one, or remove the setting", host_name);
        let hosts = hosts.unwrap_or_default().into_iter().map(|(name, _)| name).collect();
        (hosts, self.one(Key::AdminRequireKey, value::boolean))
    }

    /// Returns the settings of the visit log and those of events, which may need it.
    fn visits_and_events(&mut self, home: Option<LinkHome>) -> (Option<VisitSettings>, Option<EventSettings>) {
        let (visits, events) = (self.visits(), self.events());
        self.visits_at_home(home, visits.as_ref().is_some_and(|visits| visits.is_on));
        self.events_of_visits(events.as_ref(), visits.map(|visits| visits.is_on));
        (visits, events)
    }

    /// True if links without an expiry date never expire, as in Shlink.
    fn lasts_as_in_shlink(&self, api: &Api) -> bool {
        api.shlink_strict && !self.is_set(Key::LinksDefaultTtl)
    }

    fn cores(&mut self, allowed: &[usize]) -> Option<Cores> {
        let choice = self.one(Key::Cores, cpus::parse)?;
        match cpus::resolve(choice, allowed) {
            Ok((cores, warning)) => {
                self.warnings.extend(warning);
                Some(cores)
            }
            Err(wrong) => {
                let source = self.sources[Key::Cores as usize].clone();
                self.problems.push(SettingsProblem::of(source, Key::Cores, wrong));
                None
            }
        }
    }

    fn fleet(&mut self) -> Option<FleetSettings> {
        let redis = self.one(Key::Redis, redis_url::url);
        let password = self.one(Key::FleetPassword, |written| {
            let wrong = |_| InvalidValue::new("is not text", "write the Redis password as text");
            value::text(written).map(str::to_owned).map_err(wrong)
        });
        if redis.as_ref().is_some_and(|url| url.password.is_some()) && password.is_some() {
            let wrong = InvalidValue::new("is set, but the Redis URL also contains a password", "keep one of the two");
            let source = self.sources[Key::FleetPassword as usize].clone();
            self.problems.push(SettingsProblem::of(source, Key::FleetPassword, wrong));
        }
        let node = self.one(Key::FleetNode, redis_url::name);
        let ca_file = self.one(Key::FleetCaFile, value::path);
        let prefix = self.one(Key::FleetPrefix, redis_url::name);
        let answer_time =
            self.one(Key::FleetAnswerMillis, |written| value::redis_timeout(written, 10, CHANGE_TIME_MIN));
        let look_up_time =
            self.one(Key::FleetLookUpMillis, |written| value::redis_timeout(written, 5, LOOK_UP_TIME_MIN));
        let accept_without_redis = self.one(Key::FleetAcceptWithoutRedis, value::boolean);
        let reclaim = self.one(Key::FleetReclaimSeconds, |written| value::integer(written, 10, 31_536_000));
        let entries = self.one(Key::FleetStreamEntries, |written| value::integer(written, 1_024, 1_000_000_000));
        let join_from = self.one(Key::FleetJoinFrom, urls::http_url);
        let join_key_file = self.one(Key::FleetJoinKeyFile, value::path);
        let join_rate = self.one(Key::FleetJoinRate, |written| quantities::size(written, SNAPSHOT_RATE_MIN));
        let retention = self.one(Key::FleetRetention, quantities::retention);
        let site = self.site(redis.is_some());
        Some(FleetSettings {
            redis,
            password: password.map(Secret),
            node,
            ca_file,
            prefix: prefix?,
            answer_time: answer_time?,
            look_up_time: look_up_time?,
            accept_without_redis: accept_without_redis?,
            reclaim_after: Duration::from_secs(reclaim?),
            stream_entries: entries?,
            join_from,
            join_key_file,
            join_rate: join_rate?,
            retention: retention?,
            site,
        })
    }

    /// Returns the two sites of the fleet; `None` for one site, or after a mistake.
    fn site(&mut self, has_redis: bool) -> Option<SiteSettings> {
        const KEYS: [Key; 3] = [Key::FleetSite, Key::FleetOtherSite, Key::FleetOtherRedis];
        let name = self.one(KEYS[0], redis_url::name);
        let other = self.one(KEYS[1], redis_url::name);
        let other_redis = self.one(KEYS[2], redis_url::url);
        let first = KEYS.into_iter().find(|key| self.is_set(*key))?;
        let wrong = if KEYS.into_iter().any(|key| !self.is_set(key)) {
            let remedy = "set fleet.site, fleet.other_site and fleet.other_redis, or none of them";
            InvalidValue::new("is set without the settings that belong to it", remedy)
        } else if !has_redis {
            InvalidValue::new("is set, but redis is not", "set redis to the Redis of this site")
        } else if name.is_some() && name == other {
            InvalidValue::new("is the name of both sites", "give the sites two names")
        } else {
            return Some(SiteSettings { name: name?, other: other?, other_redis: other_redis? });
        };
        let source = self.source_of(first);
        self.problems.push(SettingsProblem::of(source, first, wrong));
        None
    }
}
