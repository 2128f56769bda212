//! The check of raw settings: each value is parsed, then related values are compared.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::cpus::{self, Cores};
use super::keys::{Key, SETTINGS};
use super::problem::{InvalidValue, Problem, ValueSource, Warning};
use super::raw::Raw;
use super::redis_url;
use super::value::{self, Chosen, Written};
use super::{
    BaseUrl, DomainSettings, ExpirySettings, FleetSettings, HostListSettings, KeySource, Limits, ListSource, Residency,
    Settings, Tls,
};
use crate::exit::Reason;
use carom_limits::{APP_CREATES_MAX, CONNECTIONS_PER_ADDRESS, ConnectionLimits};
use carom_model::clients::forwarded::{Field, Trust};
use carom_model::clients::networks::{Network, Networks};
use carom_model::destination::hosts::host_of;
use carom_model::domains::{DOMAINS_MAX, UnknownHost};
use carom_telemetry::readable;

/// Minimum memory for links that one core can work with, in bytes.
const MEMORY_LIMIT_MIN: u64 = 512 << 10;

/// Maximum memory for links that one core can address, in bytes.
const MEMORY_LIMIT_MAX: u64 = 32 << 30;

/// Parses the raw settings and collects their mistakes.
pub(super) struct Checker<'a> {
    pub(super) raw: &'a Raw,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Warning>,
    sources: [ValueSource; SETTINGS.len()],
}

impl<'a> Checker<'a> {
    pub(super) fn new(raw: &'a Raw, problems: Vec<Problem>, warnings: Vec<Warning>) -> Checker<'a> {
        Checker { raw, problems, warnings, sources: [const { ValueSource::Default }; SETTINGS.len()] }
    }

    /// Returns the checked settings; `None` if there are mistakes.
    pub(super) fn settings(&mut self, allowed: &[usize]) -> Option<Settings> {
        let data_dir = self.one(Key::DataDir, value::path);
        let listen = self.listen();
        let admin_listen = self.one(Key::AdminListen, |written| value::address(value::text(written)?));
        let (proxied, trust) = self.proxies(listen.as_deref().unwrap_or_default());
        let cores = self.cores(allowed);
        let fleet = self.fleet();
        let base_url = self.one(Key::BaseUrl, value::base_url);
        let open = self.one(Key::Open, value::boolean);
        let space_key = self.space_key();
        let code_length = self.one(Key::LinksCodeLength, value::code_length);
        let residency = self.residency(cores.as_ref());
        let search_memory = self.one(Key::LinksSearchMemory, value::search_memory);
        let dedupe = self.one(Key::LinksDedupe, value::window);
        let default_ttl = self.one(Key::LinksDefaultTtl, value::window);
        let expiry = self.expiry(fleet.as_ref().is_some_and(|fleet| fleet.redis.is_some()));
        let has_redis = fleet.as_ref().is_some_and(|fleet| fleet.redis.is_some());
        let allow = self.hosts((Key::AllowHosts, Key::AllowSource), has_redis);
        let block = self.hosts((Key::BlockHosts, Key::BlockSource), has_redis);
        let domains = self.domains(base_url.as_ref());
        let tls = self.tls(listen.as_deref().unwrap_or_default());
        let connections = self.connection_limits();
        let most = u64::from(APP_CREATES_MAX);
        let creates = self.one(Key::LimitsCreatesPerSecond, |written| value::integer(written, 0, most));
        let misses = self.one(Key::LimitsMissesPerSecond, |written| value::integer(written, 0, most));
        let drain_delay = self.one(Key::DrainDelay, value::delay);
        let admin_hosts = self.list(Key::AdminHosts, "write at least one, or remove the setting", value::host_name);
        let admin_requires_key = self.one(Key::AdminRequireKey, value::boolean);
        let log_level = self.one(Key::LogLevel, value::log_level);
        let log_format = self.one(Key::LogFormat, value::log_format);
        let access_log = self.access_log();
        let pages = self.pages();
        let api = self.api();
        let mut exposed = Vec::new();
        if let (Some(listen), Some(admin)) = (&listen, admin_listen) {
            self.listeners_apart(listen, admin);
            exposed = self.listeners_exposed(listen, admin);
            self.admin_in_clear(admin);
        }
        if !self.problems.is_empty() {
            return None;
        }
        Some(Settings {
            data_dir: data_dir?,
            listen: listen?.into_iter().map(|(address, _)| address).collect(),
            proxied,
            trust,
            admin_listen: admin_listen?,
            cores: cores?,
            fleet: fleet?,
            base_url,
            open: open?,
            space_key,
            code_length: code_length?,
            residency: residency?,
            search_memory: search_memory?,
            dedupe: dedupe?,
            default_ttl: default_ttl?,
            expiry: expiry?,
            allow,
            block,
            domains: domains?,
            tls: tls?,
            limits: Limits {
                connections: connections?,
                creates_per_second: u32::try_from(creates?).ok()?,
                misses_per_second: u32::try_from(misses?).ok()?,
            },
            drain_delay: drain_delay?,
            admin_hosts: admin_hosts.unwrap_or_default().into_iter().map(|(name, _)| name).collect(),
            admin_requires_key: admin_requires_key?,
            log_level: log_level?,
            log_format: log_format?,
            access_log: access_log?,
            pages: pages?,
            api: api?,
            exposed,
            sources: self.sources.clone(),
        })
    }

    /// True if any source sets the value.
    pub(super) fn is_set(&self, key: Key) -> bool {
        !self.raw.of(key).is_empty()
    }

    /// Returns the value of the strongest source, or the default. Values of weaker sources are parsed, too, so that
    /// their mistakes are reported although they have no effect today.
    pub(super) fn one<T>(&mut self, key: Key, read: impl Fn(&Written) -> Result<T, InvalidValue>) -> Option<T> {
        let mut best = None;
        for found in self.raw.of(key) {
            match read(&found.written) {
                Ok(value) if best.is_none() => best = Some((value, found.source.clone())),
                Ok(_) => {}
                Err(wrong) => self.problems.push(Problem::of(found.source.clone(), key, wrong)),
            }
        }
        if let Some((value, source)) = best {
            self.sources[key as usize] = source;
            return Some(value);
        }
        let default = Written::Word(key.setting().default?.to_owned());
        read(&default).ok()
    }

    /// Returns the items of a list from the strongest source, each with its source; `None` if no source sets it.
    /// `right` says what to write instead of an empty list.
    pub(super) fn list<T>(
        &mut self,
        key: Key,
        right: &str,
        read: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Option<Vec<(T, ValueSource)>> {
        let mut best = None;
        for found in self.raw.of(key) {
            let items = value::items(found);
            if items.is_empty() {
                self.problems.push(Problem::of(
                    found.source.clone(),
                    key,
                    InvalidValue::new("is an empty list", right),
                ));
            }
            let mut values = Vec::new();
            for item in items {
                match item.and_then(|(text, source)| {
                    read(&text).map_err(|wrong| (wrong, source.clone())).map(|value| (value, source))
                }) {
                    Ok(value) => values.push(value),
                    Err((wrong, source)) => self.problems.push(Problem::of(source, key, wrong)),
                }
            }
            if best.is_none() {
                self.sources[key as usize] = found.source.clone();
                best = Some(values);
            }
        }
        best
    }

    /// Returns the public addresses, each with its source.
    fn listen(&mut self) -> Option<Vec<(SocketAddr, ValueSource)>> {
        self.list(Key::Listen, "name at least one IP:PORT", value::address).or_else(|| {
            let default = Key::Listen.setting().default?;
            Some(vec![(value::address(default).ok()?, ValueSource::Default)])
        })
    }

    /// Returns the listeners that require a PROXY header, and the trusted proxies.
    fn proxies(&mut self, listen: &[(SocketAddr, ValueSource)]) -> (Vec<bool>, Trust) {
        let named = self.list(Key::ProxyProtocol, "write off, require, or addresses of listen", value::proxied);
        let trusted = self.list(Key::TrustedProxies, "write at least one, or remove the setting", value::network);
        let trusted: Vec<Network> = trusted.unwrap_or_default().into_iter().map(|(network, _)| network).collect();
        let named = named.unwrap_or_default();
        let alone =
            ("off and require cannot be combined with other values", "write \"off\", \"require\", or only addresses");
        let proxied = self.chosen(Key::ProxyProtocol, &named, listen, alone);
        let asks = named.iter().find(|(chosen, _)| *chosen != Chosen::Off);
        if let Some((_, source)) = asks.filter(|_| trusted.is_empty()) {
            let right = "list your load balancers in trusted_proxies, as in 10.0.0.0/8";
            let wrong = InvalidValue::new("requires trusted proxies", right);
            self.problems.push(Problem::of(source.clone(), Key::ProxyProtocol, wrong));
        }
        let field = self.one(Key::ForwardedField, value::forwarded_field).unwrap_or_default();
        if field != Field::Off && trusted.is_empty() {
            let wrong = InvalidValue::new("requires trusted proxies", "list your proxies in trusted_proxies");
            self.problems.push(Problem::of(
                self.sources[Key::ForwardedField as usize].clone(),
                Key::ForwardedField,
                wrong,
            ));
        }
        (proxied, Trust { proxies: Networks(trusted), field })
    }

    /// Returns the listeners that `named` selects, as a list of booleans. `alone` is the error for a word that means
    /// all or none and is not alone.
    fn chosen(
        &mut self,
        key: Key,
        named: &[(Chosen, ValueSource)],
        listen: &[(SocketAddr, ValueSource)],
        alone: (&str, &str),
    ) -> Vec<bool> {
        for (chosen, source) in named {
            let (reason, right) = match chosen {
                Chosen::At(address) if !listen.iter().any(|(listener, _)| listener == address) => {
                    (format!("{address} is not an address of listen"), "write an address of listen")
                }
                Chosen::Off | Chosen::All if named.len() > 1 => (alone.0.to_owned(), alone.1),
                _ => continue,
            };
            self.problems.push(Problem::of(source.clone(), key, InvalidValue::new(reason, right)));
        }
        let is_meant = |address| named.iter().any(|(chosen, _)| [Chosen::All, Chosen::At(address)].contains(chosen));
        listen.iter().map(|(address, _)| is_meant(*address)).collect()
    }

    /// Returns the TLS settings; `None` if one of them is invalid.
    fn tls(&mut self, listen: &[(SocketAddr, ValueSource)]) -> Option<Tls> {
        let right = "write at least one file, or remove the setting";
        let certificates = self.list(Key::TlsCert, right, value::file).unwrap_or_default();
        let keys = self.list(Key::TlsKey, right, value::file).unwrap_or_default();
        let named = self.list(Key::TlsListen, "write all, or addresses of listen", value::secure);
        let http2 = self.one(Key::TlsHttp2, value::boolean);
        let hsts = self.one(Key::TlsHsts, value::window);
        let has_problems = !self.problems.is_empty();
        let mut wrong = |key: Key, reason: &str, right: &str| {
            let source = self.sources[key as usize].clone();
            self.problems.push(Problem::of(source, key, InvalidValue::new(reason, right)));
        };
        match (certificates.len(), keys.len()) {
            // The lists may only differ because an invalid item is missing.
            (certificates, keys) if certificates == keys || has_problems => {}
            (_, 0) => wrong(Key::TlsCert, "has no private key", "set tls.key"),
            (0, _) => wrong(Key::TlsKey, "has no certificate", "set tls.cert"),
            (certificates, keys) => {
                let [keys, certificates] = [(keys, "key"), (certificates, "certificate")]
                    .map(|(count, one)| readable::count(count as u64, one));
                let reason = format!("has {keys} for {certificates}");
                wrong(Key::TlsKey, &reason, "write one key per certificate, in the same order");
            }
        }
        let is_limited = named.as_ref().is_some_and(|named| named.iter().any(|(chosen, _)| *chosen != Chosen::All));
        for (key, is_set) in [(Key::TlsListen, is_limited), (Key::TlsHsts, hsts.flatten().is_some())] {
            if is_set && certificates.is_empty() && keys.is_empty() && !has_problems {
                let right = "set tls.cert and tls.key";
                wrong(key, "has no effect without a certificate", right);
            }
        }
        let named = named.unwrap_or_else(|| vec![(Chosen::All, ValueSource::Default)]);
        let alone = ("all cannot be combined with addresses", "write \"all\", or only addresses");
        let mut secure = self.chosen(Key::TlsListen, &named, listen, alone);
        let pairs: Vec<_> = certificates.into_iter().zip(keys).map(|((file, _), (key, _))| (file, key)).collect();
        secure.iter_mut().for_each(|is_secure| *is_secure &= !pairs.is_empty());
        Some(Tls { pairs, secure, http2: http2?, hsts: hsts? })
    }

    /// Returns the limits on the connections of one core.
    fn connection_limits(&mut self) -> Option<ConnectionLimits> {
        let mut number =
            |key: Key, least: u64, most: u64| self.one(key, |written| value::integer(written, least, most));
        let connections = number(Key::LimitsConnections, 1, 4_000_000);
        let handshakes = number(Key::LimitsHandshakes, 1, 1_000_000);
        let requests = number(Key::LimitsRequestsPerConnection, 0, 1_000_000_000);
        let idle = number(Key::LimitsIdleSeconds, 1, 86_400);
        let head = number(Key::LimitsHeadSeconds, 1, 600);
        let body = number(Key::LimitsBodySeconds, 1, 3_600);
        let body_rate = number(Key::LimitsBodyRate, 1, 1_000_000);
        let per_address = self.one(Key::LimitsConnectionsPerAddress, per_address);
        let mut size =
            |key: Key, least: u64, most: u64| self.one(key, |written| value::size_within(written, least, most));
        let head_len = size(Key::LimitsHeadBytes, 4 << 10, 32 << 10);
        let body_len = size(Key::LimitsBodyBytes, 16 << 10, 64 << 20);
        let queued_len = size(Key::LimitsQueuedBytes, 64 << 10, 16 << 20);
        let per_address = per_address?;
        Some(ConnectionLimits {
            connections: usize::try_from(connections?).ok()?,
            per_address: per_address.map_or(Some(CONNECTIONS_PER_ADDRESS), |most| usize::try_from(most).ok())?,
            counts_private: per_address.is_some(),
            handshakes: usize::try_from(handshakes?).ok()?,
            requests: u32::try_from(requests?).ok()?,
            idle_time: Duration::from_secs(idle?),
            head_time: Duration::from_secs(head?),
            head_len: u32::try_from(head_len?).ok()?,
            body_time: Duration::from_secs(body?),
            body_len: u32::try_from(body_len?).ok()?,
            body_rate: u32::try_from(body_rate?).ok()?,
            queued_len: usize::try_from(queued_len?).ok()?,
        })
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
                self.problems.push(Problem::of(source, Key::Cores, wrong));
                None
            }
        }
    }

    fn residency(&mut self, cores: Option<&Cores>) -> Option<Residency> {
        let is_hot = self.one(Key::LinksResidency, value::is_hot)?;
        let limit = self.one(Key::LinksMemoryLimit, |written| value::size(written, MEMORY_LIMIT_MIN));
        let source = |key: Key| self.sources[key as usize].clone();
        let (key, wrong) = match (is_hot, limit) {
            (false, None) => return Some(Residency::All),
            (true, Some(limit)) => {
                let count = cores.map_or(1, |cores| cores.cpus.len() as u64);
                let (least, most) = (count * MEMORY_LIMIT_MIN, count * MEMORY_LIMIT_MAX);
                if (least..=most).contains(&limit) {
                    return Some(Residency::Hot { memory_limit: limit });
                }
                let right = format!("set at least {}, or run fewer cores", value::show_size(least));
                let too_much = format!("set at most {}, or run more cores", value::show_size(most));
                let shown = value::show_size(limit);
                let cores = readable::count(count, "core");
                let wrong = match limit < least {
                    true => InvalidValue::new(format!("{shown} is too small for {cores}"), right),
                    false => InvalidValue::new(format!("{shown} is too large for {cores}"), too_much),
                };
                (Key::LinksMemoryLimit, wrong)
            }
            (true, None) if !self.raw.of(Key::LinksMemoryLimit).is_empty() => return None,
            (true, None) => {
                let right = "set links.memory_limit to a size such as 8GiB";
                (Key::LinksResidency, InvalidValue::new("hot requires a memory limit", right))
            }
            (false, Some(_)) => {
                let right = "set links.residency = \"hot\", or remove this setting";
                (Key::LinksMemoryLimit, InvalidValue::new("has no effect while all links are kept in memory", right))
            }
        };
        self.problems.push(Problem::of(source(key), key, wrong));
        None
    }

    fn expiry(&mut self, of_fleet: bool) -> Option<ExpirySettings> {
        let keep = self.one(Key::LinksKeepExpired, value::kept);
        let per_second = self.one(Key::LinksExpirePerSecond, |written| value::integer(written, 1, 1_000_000));
        let recycle_after = self.one(Key::LinksRecycleAfter, value::window);
        let (reason, right) = match (keep?, recycle_after?) {
            (_, Some(_)) if of_fleet => (
                "cannot be used with redis, because other nodes may still know the codes",
                "remove one of the settings",
            ),
            (None, Some(_)) => (
                "has no effect while links.keep_expired is forever",
                "set links.keep_expired to a time, or remove this setting",
            ),
            (keep, recycle_after) => {
                return Some(ExpirySettings { keep, per_second: u32::try_from(per_second?).ok()?, recycle_after });
            }
        };
        let source = self.sources[Key::LinksRecycleAfter as usize].clone();
        self.problems.push(Problem::of(source, Key::LinksRecycleAfter, InvalidValue::new(reason, right)));
        None
    }

    fn hosts(&mut self, (hosts, source_key): (Key, Key), has_redis: bool) -> HostListSettings {
        let source = self.one(source_key, value::list_source);
        if source == Some(ListSource::Redis) && !has_redis {
            let place = self.sources[source_key as usize].clone();
            let wrong =
                InvalidValue::new("is redis, but the setting redis is not set", "set redis, or write a file or a URL");
            self.problems.push(Problem::of(place, source_key, wrong));
        }
        let hosts = self.list(hosts, "write at least one host, or remove the setting", value::host);
        HostListSettings { hosts: hosts.unwrap_or_default().into_iter().map(|(host, _)| host).collect(), source }
    }

    /// Returns the domains besides the default one. A redirect target must not be an address of the service: its
    /// visitors would be led in circles.
    fn domains(&mut self, base_url: Option<&BaseUrl>) -> Option<DomainSettings> {
        let right = "write at least one domain, or remove the setting";
        let listed = self.list(Key::DomainsServe, right, value::domain).unwrap_or_default();
        let fallback = self.one(Key::DomainsFallback, value::boolean);
        let unknown_host = self.one(Key::DomainsUnknownHost, value::unknown_host);
        let urls = listed.iter().map(|(domain, _)| &*domain.base_url).chain(base_url.map(BaseUrl::as_str));
        let own: HashSet<String> = urls.map(|url| host_of(url.as_bytes()).to_owned()).collect();
        let mut wrong = |key: Key, wrong: InvalidValue| {
            self.problems.push(Problem::of(self.sources[key as usize].clone(), key, wrong));
        };
        if !listed.is_empty() && base_url.is_none() {
            let right = "set base_url to the start of short URLs of the default domain";
            wrong(Key::DomainsServe, InvalidValue::new("requires base_url, the default domain", right));
        }
        if listed.is_empty() && fallback == Some(true) {
            let right = "list the domains in domains.serve, or remove this setting";
            wrong(Key::DomainsFallback, InvalidValue::new("has no effect without other domains", right));
        }
        if listed.is_empty() && unknown_host == Some(UnknownHost::Misdirected) {
            let right = "list the domains in domains.serve, or remove this setting";
            wrong(Key::DomainsUnknownHost, InvalidValue::new("has no effect without other domains", right));
        }
        let mut by_id = HashMap::new();
        for (domain, source) in &listed {
            let other = by_id.insert(domain.name.id(), domain);
            for wrong in value::wrong_with_domain(domain, other, base_url, &own) {
                self.problems.push(Problem::of(source.clone(), Key::DomainsServe, wrong));
            }
        }
        if listed.len() > DOMAINS_MAX {
            let wrong =
                InvalidValue::new(format!("has {} domains", listed.len()), format!("list at most {DOMAINS_MAX}"));
            self.problems.push(Problem::of(self.sources[Key::DomainsServe as usize].clone(), Key::DomainsServe, wrong));
        }
        let serve = listed.into_iter().map(|(domain, _)| domain).collect();
        Some(DomainSettings { serve, fallback: fallback?, unknown_host: unknown_host? })
    }

    fn fleet(&mut self) -> Option<FleetSettings> {
        let redis = self.one(Key::Redis, redis_url::url);
        let password = self.one(Key::FleetPassword, |written| {
            let wrong = |_| super::problem::InvalidValue::new("is not text", "write the Redis password as text");
            value::text(written).map(str::to_owned).map_err(wrong)
        });
        if redis.as_ref().is_some_and(|url| url.password.is_some()) && password.is_some() {
            let wrong = InvalidValue::new("is set, but the Redis URL also contains a password", "keep one of the two");
            let source = self.sources[Key::FleetPassword as usize].clone();
            self.problems.push(Problem::of(source, Key::FleetPassword, wrong));
        }
        let node = self.one(Key::FleetNode, redis_url::name);
        let ca_file = self.one(Key::FleetCaFile, value::path);
        let prefix = self.one(Key::FleetPrefix, redis_url::name);
        let answer_ms = self.one(Key::FleetAnswerMillis, |written| value::integer(written, 10, 150));
        let accept_without_redis = self.one(Key::FleetAcceptWithoutRedis, value::boolean);
        let reclaim = self.one(Key::FleetReclaimSeconds, |written| value::integer(written, 10, 31_536_000));
        let entries = self.one(Key::FleetStreamEntries, |written| value::integer(written, 1_024, 1_000_000_000));
        Some(FleetSettings {
            redis,
            password: password.map(super::Secret),
            node,
            ca_file,
            prefix: prefix?,
            answer_time: Duration::from_millis(answer_ms?),
            accept_without_redis: accept_without_redis?,
            reclaim_after: Duration::from_secs(reclaim?),
            stream_entries: entries?,
        })
    }

    fn space_key(&mut self) -> KeySource {
        let file = self.one(Key::SpaceKeyFile, value::path);
        let secret = self.one(Key::CodeSecret, value::space_key);
        match (file, secret) {
            (None, None) => KeySource::DataDir,
            (Some(path), None) => KeySource::File(path),
            (None, Some(secret)) => KeySource::Given(secret),
            (Some(_), Some(secret)) => {
                let other = &self.sources[Key::SpaceKeyFile as usize];
                let wrong =
                    InvalidValue::new(format!("is set together with space_key_file ({other})"), "keep one of the two");
                let source = self.sources[Key::CodeSecret as usize].clone();
                self.problems.push(Problem::of(source, Key::CodeSecret, wrong));
                KeySource::Given(secret)
            }
        }
    }

    /// Reports two listeners whose addresses overlap: either could get a connection.
    fn listeners_apart(&mut self, listen: &[(SocketAddr, ValueSource)], admin: SocketAddr) {
        for (place, (address, source)) in listen.iter().enumerate() {
            if let Some((first, _)) = listen[..place].iter().find(|(first, _)| overlap(*first, *address)) {
                let reason = match first == address {
                    true => format!("{address} is listed twice"),
                    false => format!("{address} and {first} overlap"),
                };
                self.problems.push(Problem::of(
                    source.clone(),
                    Key::Listen,
                    InvalidValue::new(reason, "keep one of the two"),
                ));
            }
        }
        if let Some((public, _)) = listen.iter().find(|(public, _)| overlap(*public, admin)) {
            let source = self.sources[Key::AdminListen as usize].clone();
            let wrong = InvalidValue::new(format!("{admin} conflicts with listen ({public})"), "choose another port");
            self.problems.push(Problem::of(source, Key::AdminListen, wrong));
        }
    }

    /// Warns of an admin listener that other machines reach: it does not support TLS.
    fn admin_in_clear(&mut self, admin: SocketAddr) {
        if !on_loopback(admin) {
            self.warnings.push(Warning(format!(
                "admin_listen {admin} is reachable from other machines without TLS: API keys and session cookies cross the network unencrypted; listen on 127.0.0.1 behind a TLS proxy, or use a private network"
            )));
        }
    }

    /// Returns the mistakes of a node without API keys: a listener that other machines reach lets them create, change
    /// and delete links, or read the status.
    fn listeners_exposed(&self, listen: &[(SocketAddr, ValueSource)], admin: SocketAddr) -> Vec<Problem> {
        let admin = (admin, self.sources[Key::AdminListen as usize].clone());
        let all = listen.iter().map(|listener| (Key::Listen, listener)).chain([(Key::AdminListen, &admin)]);
        let exposed = all.filter(|(_, (address, _))| !on_loopback(*address)).map(|(key, (address, source))| {
            let (who, instead) = match key {
                Key::AdminListen => ("read the status of this node", "127.0.0.1:8081"),
                _ => ("create, change and delete links", "127.0.0.1:8080"),
            };
            let wrong = InvalidValue::new(
                format!("{address} is reachable from other machines while no API key exists, so anyone could {who}"),
                format!(
                    "create an API key with `carom app add NAME`, listen on {instead}, or allow it with --open, CAROM_OPEN=true or open = true"
                ),
            );
            let problem = Problem::of(source.clone(), key, wrong);
            Problem { exit: Reason::PublicWithoutOpen, ..problem }
        });
        exposed.collect()
    }
}

/// True if only this machine can reach the address.
pub fn on_loopback(address: SocketAddr) -> bool {
    // `::ffff:127.0.0.1` is an IPv4-mapped loopback address.
    address.ip().to_canonical().is_loopback()
}

/// True if a connection could match both addresses. IPv6 sockets accept IPv6 only.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip =
        a.ip() == b.ip() || a.is_ipv4() == b.is_ipv4() && (a.ip().is_unspecified() || b.ip().is_unspecified());
    // Each listener with port 0 gets a free port of its own.
    a.port() == b.port() && a.port() != 0 && same_ip
}

/// Reads the connection limit of an address: `None` for the default, which carom chooses.
fn per_address(written: &Written) -> Result<Option<u64>, InvalidValue> {
    match written {
        Written::Text(text) | Written::Word(text) if text.trim() == "auto" => Ok(None),
        other => {
            let or_auto =
                |wrong: InvalidValue| InvalidValue { right: format!("{}, or \"auto\"", wrong.right), ..wrong };
            value::integer(other, 0, 4_000_000).map(Some).map_err(or_auto)
        }
    }
}
