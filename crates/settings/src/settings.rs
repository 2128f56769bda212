//! The settings of a node, valid and consistent. The types of larger tables are in files of this folder.

pub mod access_log;
pub(crate) mod api;
pub(crate) mod bypass;
pub mod events;
pub(crate) mod pages;
pub mod visits;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use carom_shards::{CodeLength, CodeSecret};

use crate::problem::{ConfigErrors, SettingsProblem, ValueSource};
use crate::registry::key::Key;
use crate::settings::access_log::terms::AccessLog;
use crate::settings::api::Api;
use crate::settings::bypass::BypassSettings;
use crate::settings::events::EventSettings;
use crate::settings::pages::PageSettings;
use crate::settings::visits::VisitSettings;
use crate::value::cpus::Cores;
use crate::value::domains::BaseUrl;
use crate::value::logs::{LogFormat, LogLevel};
use crate::value::redis_url::RedisUrl;
use crate::value::secret::Secret;
use carom_model::clients::forwarded::Trust;
use carom_model::destination::extra_path::ExtraPath;
use carom_model::destination::hosts::HostPattern;
use carom_model::domains::{Domain, UnknownHost};
use carom_model::link::slugs::SlugRules;
use carom_model::replication::round_trips::RedisTimeout;

/// The treatment of requests with more than a code in their path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkPaths {
    /// True if links redirect with a slash behind their code.
    pub trailing_slash: bool,
    /// The treatment of a path behind a code.
    pub extra_path: ExtraPath,
}

/// The settings of a node, valid and consistent.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The directory for links, code secret and all other data. It may not exist yet.
    pub data_dir: PathBuf,
    /// Public addresses, at least one, without duplicates. Port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// True for each public address that requires a PROXY header, in the same order.
    pub proxied: Vec<bool>,
    /// The trusted proxies.
    pub trust: Trust,
    /// The address of the admin listener.
    pub admin_listen: SocketAddr,
    /// The cores and their CPUs.
    pub cores: Cores,
    /// The settings of a node that shares its code space with others.
    pub fleet: FleetSettings,
    /// The beginning of short URLs; `None` for `http://` and the first public address as it was bound.
    pub base_url: Option<BaseUrl>,
    /// True if other machines may reach the listeners even if no API key exists.
    pub open: bool,
    /// The source of the code secret.
    pub space_key: KeySource,
    /// Length of new codes, 6 to 10 characters.
    pub code_length: CodeLength,
    /// The place where the links are stored.
    pub home: LinkHome,
    /// The links that are kept in memory.
    pub residency: Residency,
    /// Memory for search signatures, in bytes; 0 for none.
    pub search_memory: u64,
    /// Time for which the same destination gets the same code; `None` to create a new code each time.
    pub dedupe: Option<Duration>,
    /// Default lifetime of a link without an explicit expiry; `None` for no expiry.
    pub default_ttl: Option<Duration>,
    /// The treatment of requests with more than a code in their path.
    pub paths: LinkPaths,
    /// The slugs that clients may choose.
    pub slugs: SlugRules,
    /// The treatment of expired links.
    pub expiry: ExpirySettings,
    /// The allow list of destination hosts, for new links.
    pub allow: HostListSettings,
    /// The block list of destination hosts, for all links.
    pub block: HostListSettings,
    /// The domains besides the default one.
    pub domains: DomainSettings,
    /// The TLS settings of the public listeners.
    pub tls: Tls,
    /// The configurable limits.
    pub limits: Limits,
    /// Time for which a draining node still accepts new connections.
    pub drain_delay: Duration,
    /// Host names of the admin listener, in lower case.
    pub admin_hosts: Vec<String>,
    /// True if the admin listener requires a key on loopback, too.
    pub admin_requires_key: bool,
    /// The least severe level of messages that the log has.
    pub log_level: LogLevel,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The branding of the pages.
    pub pages: PageSettings,
    /// The settings of the access log.
    pub access_log: AccessLog,
    /// The served APIs.
    pub api: Api,
    /// The settings of kernel bypass.
    pub bypass: BypassSettings,
    /// The settings of the visit log.
    pub visits: VisitSettings,
    /// The settings of events.
    pub events: EventSettings,
    /// The file with locations of addresses.
    pub geo_file: Option<PathBuf>,
    /// The query parameter of requests that are no visits; empty for none.
    pub nostat: String,
    /// Mistakes to report if no API key exists: listeners that other machines can reach.
    pub(crate) exposed: Vec<SettingsProblem>,
    /// The source of each value, in the order of keys.
    pub(crate) sources: [ValueSource; Key::COUNT],
}

/// The place where the links of a node are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkHome {
    /// The node stores every link.
    Node,
    /// The servers of the setting `redis` store the links. The node stores only changes that they may not have.
    Shared,
}

impl LinkHome {
    /// All values.
    pub(crate) const ALL: [LinkHome; 2] = [LinkHome::Node, LinkHome::Shared];

    /// Returns the name of the value in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            LinkHome::Node => "node",
            LinkHome::Shared => "shared",
        }
    }

    /// True if the servers of the setting `redis` store the links.
    pub fn is_shared(self) -> bool {
        self == LinkHome::Shared
    }
}

/// The links that are kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residency {
    /// All links.
    All,
    /// Links in use.
    Hot {
        /// Upper limit of their memory, in bytes, on all cores together.
        memory_limit: u64,
    },
}

/// The treatment of expired links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpirySettings {
    /// Time for which an expired link is kept; `None` to keep it forever.
    pub keep: Option<Duration>,
    /// Maximum number of links that are removed in a second.
    pub per_second: u32,
    /// Time after the removal until another link may get a generated code; `None` for never.
    pub recycle_after: Option<Duration>,
}

/// A list of hosts. Both parts are optional.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostListSettings {
    /// The static part.
    pub hosts: Vec<HostPattern>,
    /// The source of the dynamic part.
    pub source: Option<ListSource>,
    /// The key with which requests to Apollo are signed.
    pub access_key: Option<Secret>,
}

/// The domains of a service. Without any, the host of a request is ignored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DomainSettings {
    /// Domains with their redirect targets. The domain of the base URL may be among them.
    pub serve: Vec<Domain>,
    /// True if links of the default domain also answer on the others.
    pub fallback: bool,
    /// The response to a request for another host.
    pub unknown_host: UnknownHost,
}

/// The TLS settings of the public listeners. Without certificates, TLS is disabled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// Files with certificate chains, each with the file of its private key.
    pub pairs: Vec<(PathBuf, PathBuf)>,
    /// True for each public address that uses TLS, in the same order.
    pub secure: Vec<bool>,
    /// True to offer HTTP/2.
    pub http2: bool,
    /// Time for which browsers must use TLS only (HSTS); `None` to send no such header.
    pub hsts: Option<Duration>,
}

/// The source of the dynamic part of a list of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListSource {
    /// A file, by its path.
    File(PathBuf),
    /// A key of the fleet's Redis.
    Redis,
    /// An HTTP address.
    Http(String),
}

impl fmt::Display for ListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListSource::File(path) => write!(f, "{}", path.display()),
            ListSource::Redis => f.write_str("redis"),
            ListSource::Http(url) => f.write_str(url),
        }
    }
}

/// The source of the code secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// `space.key` in the data directory, created on the first start.
    DataDir,
    /// A file, which must exist.
    File(PathBuf),
    /// The environment, with this secret.
    Given(CodeSecret),
}

/// The settings of a node that shares its code space with others. Without `redis` the node is alone, and the rest has
/// no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetSettings {
    /// The Redis servers.
    pub redis: Option<RedisUrl>,
    /// The Redis password, if the URL contains none.
    pub password: Option<Secret>,
    /// The name of this node; `None` for the one in the data directory.
    pub node: Option<String>,
    /// A PEM file with trusted certificates; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The prefix of all keys in Redis.
    pub prefix: String,
    /// Timeout of creates, changes and deletes in Redis.
    pub answer_time: RedisTimeout,
    /// Time for which a request for an unknown code waits for Redis.
    pub look_up_time: RedisTimeout,
    /// True to create links with generated codes and to delete links while Redis is unavailable. Custom slugs and
    /// changes of links always need Redis.
    pub accept_without_redis: bool,
    /// Time without a heartbeat after which other nodes take over a node's unused codes.
    pub reclaim_after: Duration,
    /// Approximate number of changes that the streams keep, in total.
    pub stream_entries: u64,
    /// The URL of the admin listener of a peer, from which a node without links gets them at its start.
    pub join_from: Option<String>,
    /// The file with the API key for that peer.
    pub join_key_file: Option<PathBuf>,
    /// Bytes per second that this node sends to joining nodes.
    pub join_rate: u64,
    /// Time for which Redis keeps a state after its last change; `None` for forever.
    pub retention: Option<Duration>,
    /// The site of this node and the other one; `None` for a fleet of one site.
    pub site: Option<SiteSettings>,
}

/// The two sites of a fleet, from the view of one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteSettings {
    /// The name of this site.
    pub name: String,
    /// The name of the other site.
    pub other: String,
    /// The Redis servers of the other site.
    pub other_redis: RedisUrl,
}

/// The limits that an operator may set. All others are fixed, in [`carom_limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Limits on the connections of one core.
    pub connections: carom_limits::ConnectionLimits,
    /// Creates per second of an app; 0 for no limit.
    pub creates_per_second: u32,
    /// Requests for codes that do not exist, per second and address, on all cores together; 0 for no limit.
    pub misses_per_second: u32,
}

impl Settings {
    /// Checks that a node without API keys is reachable from this machine only, or is open on purpose.
    ///
    /// # Errors
    /// Every listener that other machines can reach.
    pub fn may_go_without_keys(&self) -> Result<(), ConfigErrors> {
        if self.open || self.exposed.is_empty() { Ok(()) } else { Err(ConfigErrors::new(self.exposed.clone())) }
    }

    /// Returns the source of the value of a setting.
    pub fn source(&self, key: Key) -> &ValueSource {
        &self.sources[key as usize]
    }
}
