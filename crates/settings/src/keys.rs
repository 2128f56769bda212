//! The description of a setting, and its look-up by name. The settings themselves are in the table of `registry`.
//!
//! Help texts, messages, the effective settings and the documentation are generated from that table. `value` parses
//! values; `raw` decides which source wins.

use super::Settings;
use super::describe::Shown;
pub use super::registry::SETTINGS;

/// A setting, as the index of its row in [`SETTINGS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // The rows of SETTINGS say what each is.
pub enum Key {
    DataDir,
    Listen,
    AdminListen,
    ProxyProtocol,
    TrustedProxies,
    ForwardedField,
    Cores,
    Redis,
    BaseUrl,
    Open,
    SpaceKeyFile,
    CodeSecret,
    LinksCodeLength,
    LinksResidency,
    LinksMemoryLimit,
    LinksSearchMemory,
    LinksDedupe,
    LinksDefaultTtl,
    LinksKeepExpired,
    LinksExpirePerSecond,
    LinksRecycleAfter,
    LinksTrailingSlash,
    LinksExtraPath,
    AllowHosts,
    AllowSource,
    AllowAccessKey,
    BlockHosts,
    BlockSource,
    BlockAccessKey,
    DomainsServe,
    DomainsFallback,
    DomainsUnknownHost,
    FleetNode,
    FleetPassword,
    FleetCaFile,
    FleetPrefix,
    FleetAnswerMillis,
    FleetAcceptWithoutRedis,
    FleetReclaimSeconds,
    FleetStreamEntries,
    TlsCert,
    TlsKey,
    TlsListen,
    TlsHttp2,
    TlsHsts,
    LimitsConnections,
    LimitsConnectionsPerAddress,
    LimitsHandshakes,
    LimitsRequestsPerConnection,
    LimitsIdleSeconds,
    LimitsHeadSeconds,
    LimitsHeadBytes,
    LimitsBodySeconds,
    LimitsBodyBytes,
    LimitsBodyRate,
    LimitsQueuedBytes,
    LimitsCreatesPerSecond,
    LimitsMissesPerSecond,
    AdminHosts,
    AdminRequireKey,
    PagesTitle,
    PagesAccent,
    PagesLogo,
    PagesTemplates,
    PagesHome,
    DrainDelay,
    LogLevel,
    LogFormat,
    AccessLogFile,
    AccessLogFormat,
    AccessLogOneIn,
    AccessLogAddresses,
    ApiCompat,
    ApiYourlsJsonp,
    ApiCorsOrigins,
    ApiShlinkStrict,
    BypassInterface,
    BypassAddresses,
    BypassQueues,
    BypassMode,
    BypassZeroCopy,
    BypassDecapsulate,
    BypassRequired,
    VisitsLog,
    VisitsKeep,
    VisitsKeepBytes,
    VisitsAddresses,
    VisitsNostatParameter,
    EventsLog,
    EventsVisits,
    EventsKeep,
    EventsKeepBytes,
    EventsWebhookUrl,
    EventsWebhookSecret,
    EventsWebhookSecretFile,
    EventsWebhookPrivate,
    EventsRedisUrl,
    EventsRedisPassword,
    EventsRedisStream,
    EventsRedisEntries,
    EventsMercureUrl,
    EventsMercurePublicUrl,
    EventsMercureSecret,
    EventsMercureSecretFile,
    GeoFile,
}

/// The public description of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The setting.
    pub key: Key,
    /// The name in the TOML file, with a dot between table and key.
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// The flag of `carom serve`.
    pub flag: Option<&'static str>,
    /// The form of its values, for people.
    pub kind: &'static str,
    /// The value if no source sets one, written as in the environment.
    pub default: Option<&'static str>,
    /// True if the value is a secret. Secrets are never shown, and are accepted neither in the file nor from a flag.
    pub secret: bool,
    /// The effect of the setting.
    pub doc: &'static str,
    /// Returns the value of checked settings, as it may be shown to people.
    pub(crate) show: fn(&Settings) -> Shown,
}

/// Environment variable with the path of the settings file. The file itself has no such key.
pub const CONFIG_ENV: &str = "CAROM_CONFIG";

/// Environment variable with the key of another shortener's API, for imports. It is no setting.
pub const IMPORT_KEY_ENV: &str = "CAROM_IMPORT_KEY";

impl Key {
    /// Returns the row of the setting.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

/// Returns the setting with that name in the file.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns the setting with that environment variable.
pub fn by_env(env: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.env == env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_the_place_of_its_key() {
        for (place, setting) in SETTINGS.iter().enumerate() {
            assert_eq!(setting.key as usize, place, "{}", setting.name);
            assert_eq!(setting.key.setting().name, setting.name);
        }
    }

    #[test]
    fn names_follow_one_rule() {
        for setting in &SETTINGS {
            assert_eq!(setting.env, format!("CAROM_{}", setting.name.to_uppercase().replace('.', "_")));
            if let Some(flag) = setting.flag {
                assert_eq!(flag, format!("--{}", setting.name.replace('_', "-")));
            }
            assert!(setting.doc.ends_with('.'), "{}", setting.name);
            assert!(!setting.secret || setting.flag.is_none(), "a secret on the command line is seen by `ps`");
        }
    }
}
