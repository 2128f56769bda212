//! What there is to know of a setting, and how one is found by its names. The settings themselves are in the table of `registry`.
//!
//! Help texts, messages, the effective settings and the documentation are made from that table. How a value is read is
//! in `value`; which source wins is in `raw`.

pub use super::registry::SETTINGS;

/// One setting, by the place of its row in [`SETTINGS`].
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
    SpaceKey,
    LinksCodeLength,
    LinksResidency,
    LinksMemoryLimit,
    LinksSearchMemory,
    LinksDedupe,
    LinksDefaultTtl,
    LinksKeepExpired,
    LinksExpirePerSecond,
    LinksRecycleAfter,
    AllowHosts,
    AllowSource,
    BlockHosts,
    BlockSource,
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
}

/// What a user can know of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Which one.
    pub key: Key,
    /// Its name in the TOML file; a dot stands between table and key.
    pub name: &'static str,
    /// Its environment variable.
    pub env: &'static str,
    /// Its flag of `carom serve`.
    pub flag: Option<&'static str>,
    /// What values look like, for people.
    pub kind: &'static str,
    /// The value that holds when no source gives one, written as in the environment.
    pub default: Option<&'static str>,
    /// Whether the value must not be shown, and so comes neither from the file nor from a flag.
    pub secret: bool,
    /// What it does.
    pub doc: &'static str,
}

/// Names the settings file; it has no key in the file itself.
pub const CONFIG_ENV: &str = "CAROM_CONFIG";

impl Key {
    /// The row of this setting.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

/// The setting of that name in the file.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting of that environment variable.
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
