//! Settings: read from flags, environment and file, and checked all at once.
//!
//! [`Flags`], the environment and the file give raw settings (`raw`, `file`). `check` turns them into checked [`Settings`],
//! or reports every mistake at once, each with its place. Nothing here prints, opens a socket or reads the code secret: a
//! caller gets what it asked for, and nothing else happens.
//!
//! This crate knows what a setting means for the domain (`carom-model`), and nothing of cores, stores or HTTP. The numbered
//! reasons to end the process live here too ([`exit`]), since a wrong setting is one of them.
//!
//! Read first:
//!
//! 1. [`keys`], the name of every setting;
//! 2. `registry`, its description, default and example: one row a setting;
//! 3. [`Settings`], what the server gets;
//! 4. [`check`], from raw to checked;
//! 5. [`help`], the reference that `--help` and the docs show;
//! 6. [`exit`], why the process ends.

pub mod access_log;
mod api;
pub mod check;
pub mod colour;
mod cpus;
mod describe;
pub mod exit;
mod file;
pub mod help;
pub mod keys;
mod pages;
mod problem;
mod raw;
mod redis_url;
mod registry;
mod suggest;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carom_shards::{CodeLength, SpaceKey};

pub use api::Api;
pub use cpus::{Cores, CpuChoice};
pub use describe::ShownSetting;
pub use pages::Pages;
pub use problem::{ConfigErrors, Problem, Source, Warning};
pub use raw::Flags;
pub use redis_url::{RedisUrl, is_name};
pub use value::{BaseUrl, LogFormat, LogLevel};

use check::Checker;
use keys::{Key, SETTINGS};
use raw::Raw;

use crate::access_log::terms::AccessLog;
use carom_model::clients::forwarded::Trust;
use carom_model::destination::hosts::HostPattern;
use carom_model::domains::{Domain, UnknownHost};

/// The settings of a node, each value checked, and all fitting together.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Where the links and the secret key are kept. It may not exist yet.
    pub data_dir: PathBuf,
    /// Public addresses, at least one, none twice. Port 0 stands for any free port.
    pub listen: Vec<SocketAddr>,
    /// Which of them require a PROXY header, in the same order.
    pub proxied: Vec<bool>,
    /// Who is believed about clients.
    pub trust: Trust,
    /// The address for health and status.
    pub admin_listen: SocketAddr,
    /// The cores and their CPUs.
    pub cores: Cores,
    /// What a node does that shares its code space with others.
    pub fleet: Fleet,
    /// What short URLs start with; `None`: `http://` and the first public address as it was bound.
    pub base_url: Option<BaseUrl>,
    /// Whether listeners may be reachable from other machines although no key is asked for.
    pub open: bool,
    /// Where the secret key of the code space comes from.
    pub space_key: KeySource,
    /// Characters of a new code, 6 to 10.
    pub code_length: CodeLength,
    /// Which links are kept in memory.
    pub residency: Residency,
    /// Bytes that signatures for searches may take; none: there are none.
    pub search_memory: u64,
    /// For how long the same long URL gets the same code; `None`: always another one.
    pub dedupe: Option<Duration>,
    /// How long a link lives that was made without an end.
    pub default_ttl: Option<Duration>,
    /// What becomes of links whose time is over.
    pub expiry: Expiry,
    /// What new links may lead to.
    pub allow: Hosts,
    /// What no link leads to.
    pub block: Hosts,
    /// The domains besides the default one.
    pub domains: Domains,
    /// How TLS is spoken.
    pub tls: Tls,
    /// What an operator may bound.
    pub limits: Limits,
    /// How long new connections are taken after the signal to end.
    pub drain_delay: Duration,
    /// Names by which the admin listener is reached, in small letters.
    pub admin_hosts: Vec<String>,
    /// Whether it asks for a key on loopback, too.
    pub admin_requires_key: bool,
    /// How much is logged.
    pub log_level: LogLevel,
    /// How lines of the log look.
    pub log_format: LogFormat,
    /// How the service shows itself to people.
    pub pages: Pages,
    /// How requests are written down.
    pub access_log: AccessLog,
    /// Which programming interfaces are served.
    pub api: Api,
    /// Listeners that others than this machine can reach.
    exposed: Vec<Problem>,
    sources: [Source; SETTINGS.len()],
}

/// Which links are kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residency {
    /// Every one.
    All,
    /// Those in use.
    Hot {
        /// Bytes that they may take, on all cores together.
        memory_limit: u64,
    },
}

/// What becomes of links whose time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// How long after its end a link is kept; `None`: for good.
    pub keep: Option<Duration>,
    /// How many are removed in a second at most.
    pub per_second: u32,
    /// How long after that a generated code may be given to another link; `None`: never.
    pub recycle_after: Option<Duration>,
}

/// A list of hosts, of which either part may be missing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hosts {
    /// The static part.
    pub hosts: Vec<HostPattern>,
    /// Where the dynamic part is read.
    pub source: Option<ListSource>,
}

/// The domains of a service. None configured: the host of a request says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Domains {
    /// Each with where it leads who find nothing. That of the base URL may be among them.
    pub serve: Vec<Domain>,
    /// Whether links of the default domain answer on the others.
    pub fallback: bool,
    /// What a request for another host is told.
    pub unknown_host: UnknownHost,
}

/// How TLS is spoken. Without certificates it is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// Files with certificates, each with the file of its key.
    pub pairs: Vec<(PathBuf, PathBuf)>,
    /// Which public addresses speak TLS, in their order.
    pub secure: Vec<bool>,
    /// Whether HTTP/2 is spoken with who asks for it.
    pub http2: bool,
    /// For how long browsers must not come without TLS.
    pub hsts: Option<Duration>,
}

/// Where the dynamic part of a list of hosts is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListSource {
    /// A file.
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

/// Where the secret key of the code space comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// From `space.key` in the data directory, made on first start.
    DataDir,
    /// From this file, which must exist.
    File(PathBuf),
    /// From the environment.
    Given(SpaceKey),
}

/// What a node does that shares its code space with others. Without `redis` it is alone, and the rest has no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fleet {
    /// Where Redis is.
    pub redis: Option<RedisUrl>,
    /// Its password, if the URL holds none.
    pub password: Option<Secret>,
    /// The name of this node; `None`: the one in the data directory.
    pub node: Option<String>,
    /// Certificates to trust.
    pub ca_file: Option<PathBuf>,
    /// What all keys begin with.
    pub prefix: String,
    /// How long Redis may take to answer.
    pub answer_time: Duration,
    /// Whether changes are taken while Redis is away.
    pub accept_without_redis: bool,
    /// After how long of silence a node's unused codes are taken over.
    pub reclaim_after: Duration,
    /// About how many changes the streams keep, all together.
    pub stream_entries: u64,
}

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What an operator may bound; every other bound is fixed, in [`carom_limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What one core takes of connections.
    pub connections: carom_limits::ConnectionLimits,
    /// Links that an app may make a second; 0: any number.
    pub creates_per_second: u32,
    /// Links that do not exist that an address may ask a core for a second; 0: any number.
    pub misses_per_second: u32,
}

impl Settings {
    /// The settings to serve with: flags over environment over file over default. `file` is the one named by `--config`;
    /// without it `CAROM_CONFIG` may name one. On success the warnings are for the caller to show.
    ///
    /// # Errors
    /// Every mistake of every source.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: Flags,
    ) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
        load(file, env, flags, &cpus::allowed())
    }

    /// Whether nobody but this machine can reach the node, or that was asked for, where no API key is asked for.
    ///
    /// # Errors
    /// Every listener that others can reach.
    pub fn may_go_without_keys(&self) -> Result<(), ConfigErrors> {
        if self.open || self.exposed.is_empty() { Ok(()) } else { Err(ConfigErrors::new(self.exposed.clone())) }
    }

    /// Where the value of a setting comes from.
    pub fn source(&self, key: Key) -> &Source {
        &self.sources[key as usize]
    }

    /// The settings as they may be shown, each with its source, and without secrets.
    pub fn shown(&self) -> Vec<ShownSetting> {
        describe::shown(self)
    }

    /// The settings as commented TOML, with the source of each and without secrets. Reads back as the same settings, but
    /// for the secret key if it came from the environment.
    pub fn describe(&self) -> String {
        describe::describe(self)
    }
}

/// The environment of this process as [`Settings::load`] takes it. Text that is not UTF-8 is kept as well as it can be, so
/// that a wrong value is reported instead of ignored.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: Flags,
    allowed: &[usize],
) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let raw = Raw::collect(file, env, flags, &mut problems, &mut warnings);
    let mut checker = Checker::new(&raw, problems, warnings);
    match checker.settings(allowed) {
        Some(settings) => Ok((settings, checker.warnings)),
        None => Err(ConfigErrors::new(checker.problems)),
    }
}
