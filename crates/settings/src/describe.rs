//! The effective settings as TOML that can be read back, each with its source.

use serde::Serialize;

use super::access_log::STANDARD_OUTPUT;
use super::cpus::{self, CpuChoice};
use super::file::table_of;
use super::keys::{Key, SETTINGS, Setting};
use super::{HostListSettings, KeySource, ListSource, Residency, Settings, value};
use crate::access_log::terms::LogPlace;
use carom_limits::ConnectionLimits;
use carom_model::domains::UnknownHost;

/// A setting as it may be shown to people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShownSetting {
    /// The name, with its table.
    pub name: &'static str,
    /// The value as TOML; `None` if it is not set, or hidden.
    pub value: Option<String>,
    /// True if the setting has a value, which is a secret.
    pub hidden: bool,
    /// A remark about the value.
    pub note: Option<String>,
    /// The source of the value.
    pub source: String,
    /// A description of the setting.
    pub doc: &'static str,
    /// A description of valid values.
    pub kind: &'static str,
}

/// Returns all settings, in the order of the registry.
pub(super) fn shown(settings: &Settings) -> Vec<ShownSetting> {
    let of = |setting: &Setting| {
        let (value, hidden, note) = match value(settings, setting.key) {
            Shown::Value(value) => (Some(value), false, None),
            Shown::Note(value, note) => (Some(value), false, Some(note)),
            Shown::Hidden => (None, true, None),
            Shown::Unset => (None, false, None),
        };
        let source = comment(&settings.source(setting.key).to_string());
        ShownSetting { name: setting.name, value, hidden, note, source, doc: setting.doc, kind: setting.kind }
    };
    SETTINGS.iter().map(of).collect()
}

pub(super) fn describe(settings: &Settings) -> String {
    let mut text = String::from("# Effective settings, each with its source.\n");
    let mut table = None;
    for setting in shown(settings) {
        if table_of(setting.name) != table {
            table = table_of(setting.name);
            text.push_str(&format!("\n[{}]\n", table.unwrap_or_default()));
        }
        describe_one(&setting, &mut text);
    }
    text
}

fn describe_one(setting: &ShownSetting, text: &mut String) {
    let ShownSetting { name, value, hidden, note, source, doc, kind } = setting;
    let key = name.rsplit('.').next().unwrap_or(name);
    let line = match (value, note) {
        (Some(value), None) => format!("{key} = {value}  # {source}"),
        (Some(value), Some(note)) => format!("{key} = {value}  # {source}; {note}"),
        (None, _) if *hidden => format!("# {key} is set (hidden)  # {source}"),
        (None, _) => format!("# {key} is not set"),
    };
    text.push_str(&format!("\n# {doc} ({kind})\n{line}\n"));
}

enum Shown {
    Value(String),
    Note(String, String),
    Hidden,
    Unset,
}

fn value(settings: &Settings, key: Key) -> Shown {
    let value = match key {
        Key::DataDir => quote(&settings.data_dir.to_string_lossy()),
        Key::Listen => {
            let addresses: Vec<String> = settings.listen.iter().map(|address| quote(&address.to_string())).collect();
            format!("[{}]", addresses.join(", "))
        }
        Key::ProxyProtocol => match settings.listen.iter().zip(&settings.proxied).filter(|(_, proxied)| **proxied) {
            proxied if proxied.clone().count() == 0 => quote("off"),
            proxied if proxied.clone().count() == settings.listen.len() => quote("require"),
            proxied => list_of(proxied.map(|(address, _)| address.to_string())),
        },
        Key::TrustedProxies if settings.trust.proxies.0.is_empty() => return Shown::Unset,
        Key::TrustedProxies => list_of(settings.trust.proxies.0.iter().map(ToString::to_string)),
        Key::ForwardedField => quote(settings.trust.field.as_str()),
        Key::AdminListen => quote(&settings.admin_listen.to_string()),
        Key::Cores => {
            let cpus = &settings.cores.cpus;
            let note = cpus::on_cpus(cpus);
            let choice = match &settings.cores.choice {
                CpuChoice::Count(count) => count.to_string(),
                other => quote(&other.to_string()),
            };
            return Shown::Note(choice, note);
        }
        Key::Redis => match &settings.fleet.redis {
            Some(url) if url.password.is_some() => {
                return Shown::Note(quote(&url.to_string()), "password hidden".to_owned());
            }
            Some(url) => quote(&url.to_string()),
            None => return Shown::Unset,
        },
        Key::FleetNode => match &settings.fleet.node {
            Some(node) => quote(node),
            None => return Shown::Unset,
        },
        Key::FleetPassword => match &settings.fleet.password {
            Some(_) => return Shown::Hidden,
            None => return Shown::Unset,
        },
        Key::FleetCaFile => match &settings.fleet.ca_file {
            Some(path) => quote(&path.to_string_lossy()),
            None => return Shown::Unset,
        },
        Key::FleetPrefix => quote(&settings.fleet.prefix),
        Key::FleetAnswerMillis => settings.fleet.answer_time.as_millis().to_string(),
        Key::FleetAcceptWithoutRedis => settings.fleet.accept_without_redis.to_string(),
        Key::FleetReclaimSeconds => settings.fleet.reclaim_after.as_secs().to_string(),
        Key::FleetStreamEntries => settings.fleet.stream_entries.to_string(),
        Key::BaseUrl => match &settings.base_url {
            Some(url) => quote(url.as_str()),
            None => return Shown::Unset,
        },
        Key::Open => settings.open.to_string(),
        Key::SpaceKeyFile => match &settings.space_key {
            KeySource::File(path) => quote(&path.to_string_lossy()),
            KeySource::DataDir | KeySource::Given(_) => return Shown::Unset,
        },
        Key::CodeSecret => match &settings.space_key {
            KeySource::Given(_) => return Shown::Hidden,
            KeySource::DataDir | KeySource::File(_) => return Shown::Unset,
        },
        Key::LinksCodeLength => settings.code_length.to_string(),
        Key::LinksResidency => quote(match settings.residency {
            Residency::All => "all",
            Residency::Hot { .. } => "hot",
        }),
        Key::LinksMemoryLimit => match settings.residency {
            Residency::All => return Shown::Unset,
            Residency::Hot { memory_limit } => quote(&value::show_size(memory_limit)),
        },
        Key::LinksSearchMemory => quote(&match settings.search_memory {
            0 => "off".to_owned(),
            bytes => value::show_size(bytes),
        }),
        Key::LinksDedupe => quote(&settings.dedupe.map_or("off".to_owned(), value::window_text)),
        Key::LinksDefaultTtl => quote(&settings.default_ttl.map_or("off".to_owned(), value::window_text)),
        Key::LinksKeepExpired => quote(&settings.expiry.keep.map_or("forever".to_owned(), value::window_text)),
        Key::LinksExpirePerSecond => settings.expiry.per_second.to_string(),
        Key::LinksRecycleAfter => quote(&settings.expiry.recycle_after.map_or("off".to_owned(), value::window_text)),
        Key::AllowHosts => return list_of_hosts(&settings.allow),
        Key::AllowSource => return source_of_hosts(&settings.allow),
        Key::BlockHosts => return list_of_hosts(&settings.block),
        Key::BlockSource => return source_of_hosts(&settings.block),
        Key::DomainsServe if settings.domains.serve.is_empty() => return Shown::Unset,
        Key::DomainsServe => list_of(settings.domains.serve.iter().map(value::domain_text)),
        Key::DomainsFallback => settings.domains.fallback.to_string(),
        Key::DomainsUnknownHost => quote(match settings.domains.unknown_host {
            UnknownHost::NotFound => "not_found",
            UnknownHost::Misdirected => "misdirected",
        }),
        Key::TlsCert | Key::TlsKey | Key::TlsListen if settings.tls.pairs.is_empty() => return Shown::Unset,
        Key::TlsCert => list_of(settings.tls.pairs.iter().map(|(file, _)| file.to_string_lossy().into_owned())),
        Key::TlsKey => list_of(settings.tls.pairs.iter().map(|(_, file)| file.to_string_lossy().into_owned())),
        Key::TlsListen => match settings.listen.iter().zip(&settings.tls.secure).filter(|(_, secure)| **secure) {
            secure if secure.clone().count() == settings.listen.len() => quote("all"),
            secure => list_of(secure.map(|(address, _)| address.to_string())),
        },
        Key::TlsHttp2 => settings.tls.http2.to_string(),
        Key::TlsHsts => quote(&settings.tls.hsts.map_or("off".to_owned(), value::window_text)),
        Key::LimitsConnections
        | Key::LimitsConnectionsPerAddress
        | Key::LimitsHandshakes
        | Key::LimitsRequestsPerConnection
        | Key::LimitsIdleSeconds
        | Key::LimitsHeadSeconds
        | Key::LimitsHeadBytes
        | Key::LimitsBodySeconds
        | Key::LimitsBodyBytes
        | Key::LimitsBodyRate
        | Key::LimitsQueuedBytes => connection_limit(&settings.limits.connections, key),
        Key::PagesTitle => quote(&settings.pages.title),
        Key::PagesAccent => quote(&settings.pages.accent.to_string()),
        Key::PagesLogo | Key::PagesTemplates => {
            let path = if key == Key::PagesLogo { &settings.pages.logo } else { &settings.pages.templates };
            let Some(path) = path else { return Shown::Unset };
            quote(&path.to_string_lossy())
        }
        Key::PagesHome => quote(if settings.pages.has_form { "form" } else { "off" }),
        Key::DrainDelay if settings.drain_delay.is_zero() => quote("0s"),
        Key::DrainDelay => quote(&value::window_text(settings.drain_delay)),
        Key::LimitsCreatesPerSecond => settings.limits.creates_per_second.to_string(),
        Key::LimitsMissesPerSecond => settings.limits.misses_per_second.to_string(),
        Key::AdminHosts if settings.admin_hosts.is_empty() => return Shown::Unset,
        Key::AdminHosts => list_of(settings.admin_hosts.iter().cloned()),
        Key::AdminRequireKey => settings.admin_requires_key.to_string(),
        Key::LogLevel => quote(settings.log_level.as_str()),
        Key::LogFormat => quote(settings.log_format.as_str()),
        Key::AccessLogFile => match &settings.access_log.place {
            Some(LogPlace::File(path)) => quote(&path.to_string_lossy()),
            Some(LogPlace::StandardOutput) => quote(STANDARD_OUTPUT),
            None => return Shown::Unset,
        },
        Key::AccessLogFormat => quote(settings.access_log.format.as_str()),
        Key::AccessLogOneIn => settings.access_log.one_in.to_string(),
        Key::AccessLogAddresses => quote(settings.access_log.addresses.as_str()),
        Key::ApiCompat => list_of(settings.api.names().into_iter().map(str::to_owned)),
        Key::ApiYourlsJsonp => settings.api.yourls_jsonp.to_string(),
    };
    Shown::Value(value)
}

fn connection_limit(limits: &ConnectionLimits, key: Key) -> String {
    match key {
        Key::LimitsConnections => limits.connections.to_string(),
        Key::LimitsConnectionsPerAddress if limits.counts_private => limits.per_address.to_string(),
        Key::LimitsConnectionsPerAddress => quote("auto"),
        Key::LimitsHandshakes => limits.handshakes.to_string(),
        Key::LimitsRequestsPerConnection => limits.requests.to_string(),
        Key::LimitsIdleSeconds => limits.idle_time.as_secs().to_string(),
        Key::LimitsHeadSeconds => limits.head_time.as_secs().to_string(),
        Key::LimitsHeadBytes => quote(&value::show_size(u64::from(limits.head_len))),
        Key::LimitsBodySeconds => limits.body_time.as_secs().to_string(),
        Key::LimitsBodyBytes => quote(&value::show_size(u64::from(limits.body_len))),
        Key::LimitsBodyRate => limits.body_rate.to_string(),
        _ => quote(&value::show_size(limits.queued_len as u64)),
    }
}

fn list_of(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.map(|text| quote(&text)).collect::<Vec<_>>().join(", "))
}

fn list_of_hosts(list: &HostListSettings) -> Shown {
    let hosts: Vec<String> = list.hosts.iter().map(|host| quote(&host.to_string())).collect();
    if hosts.is_empty() { Shown::Unset } else { Shown::Value(format!("[{}]", hosts.join(", "))) }
}

fn source_of_hosts(list: &HostListSettings) -> Shown {
    match &list.source {
        // The query may contain a secret.
        Some(ListSource::Http(url)) if url.contains('?') => Shown::Hidden,
        Some(source) => Shown::Value(quote(&source.to_string())),
        None => Shown::Unset,
    }
}

fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Removes control characters from a source: the name of the settings file may contain a line break.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
