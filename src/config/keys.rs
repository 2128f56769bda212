//! The registry: every setting once, with its names, its default and its meaning.
//!
//! Help texts, messages, the effective settings and the documentation are made from this table. How a value is read is
//! in `value`; which source wins is in `raw`.

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
    LimitsConnections,
    LimitsIdleSeconds,
    LimitsHeadSeconds,
    LimitsCreatesPerSecond,
    LimitsMissesPerSecond,
    LogLevel,
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

/// The settings that stand at the top of the file come first, then those of tables, table by table.
pub static SETTINGS: [Setting; 41] = [
    Setting {
        key: Key::DataDir,
        name: "data_dir",
        env: "CAROM_DATA_DIR",
        flag: Some("--data-dir"),
        kind: "a directory",
        default: Some("./carom-data"),
        secret: false,
        doc: "Where the links and the secret key are kept; made on first start.",
    },
    Setting {
        key: Key::Listen,
        name: "listen",
        env: "CAROM_LISTEN",
        flag: Some("--listen"),
        kind: "one or more of IP:PORT",
        default: Some("127.0.0.1:8080"),
        secret: false,
        doc: "Where redirects and the REST API are served; port 0 takes any free port.",
    },
    Setting {
        key: Key::AdminListen,
        name: "admin_listen",
        env: "CAROM_ADMIN_LISTEN",
        flag: Some("--admin-listen"),
        kind: "one IP:PORT",
        default: Some("127.0.0.1:8081"),
        secret: false,
        doc: "Where health and status are served; not for the public.",
    },
    Setting {
        key: Key::ProxyProtocol,
        name: "proxy_protocol",
        env: "CAROM_PROXY_PROTOCOL",
        flag: None,
        kind: "off, require, or those addresses of listen that require it",
        default: Some("off"),
        secret: false,
        doc: "Whether each connection begins with a PROXY header, version 1 or 2, in which a balancer says who the client is.",
    },
    Setting {
        key: Key::TrustedProxies,
        name: "trusted_proxies",
        env: "CAROM_TRUSTED_PROXIES",
        flag: None,
        kind: "one or more of an address, or a network such as 10.0.0.0/8",
        default: None,
        secret: false,
        doc: "Who is believed about clients; a listener that requires PROXY headers closes connections from elsewhere.",
    },
    Setting {
        key: Key::ForwardedField,
        name: "forwarded_field",
        env: "CAROM_FORWARDED_FIELD",
        flag: None,
        kind: "off, x-forwarded-for or forwarded",
        default: Some("off"),
        secret: false,
        doc: "The field of requests in which trusted proxies that speak HTTP say who the client is; they must write it themselves.",
    },
    Setting {
        key: Key::Cores,
        name: "cores",
        env: "CAROM_CORES",
        flag: Some("--cores"),
        kind: "a count such as 4, CPUs such as 0,2,4-7 (one CPU: 3-3), or all",
        default: Some("all"),
        secret: false,
        doc: "How many cores to run, or on which CPUs; each core owns a share of the links.",
    },
    Setting {
        key: Key::Redis,
        name: "redis",
        env: "CAROM_REDIS",
        flag: Some("--redis"),
        kind: "redis:// or rediss:// and one or more of HOST:PORT",
        default: None,
        secret: false,
        doc: "The Redis, or some servers of the Redis Cluster, that all nodes of a fleet share; if not set, the node is alone.",
    },
    Setting {
        key: Key::BaseUrl,
        name: "base_url",
        env: "CAROM_BASE_URL",
        flag: Some("--base-url"),
        kind: "http:// or https:// and a host",
        default: None,
        secret: false,
        doc: "What short URLs start with; if not set, http:// and the first listen address.",
    },
    Setting {
        key: Key::Open,
        name: "open",
        env: "CAROM_OPEN",
        flag: Some("--open"),
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Lets listeners be reachable from other machines although anybody there may create, change and delete links.",
    },
    Setting {
        key: Key::SpaceKeyFile,
        name: "space_key_file",
        env: "CAROM_SPACE_KEY_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "The file with the secret key that short codes are made with; if not set, space.key in the data directory.",
    },
    Setting {
        key: Key::SpaceKey,
        name: "space_key",
        env: "CAROM_SPACE_KEY",
        flag: None,
        kind: "64 hexadecimal digits",
        default: None,
        secret: true,
        doc: "The secret key itself, for systems that hand out secrets in the environment; `carom key new` prints one.",
    },
    Setting {
        key: Key::LinksCodeLength,
        name: "links.code_length",
        env: "CAROM_LINKS_CODE_LENGTH",
        flag: None,
        kind: "6 to 10",
        default: Some("7"),
        secret: false,
        doc: "How many characters a new short code has; fewer are easier to guess.",
    },
    Setting {
        key: Key::LinksResidency,
        name: "links.residency",
        env: "CAROM_LINKS_RESIDENCY",
        flag: None,
        kind: "all or hot",
        default: Some("all"),
        secret: false,
        doc: "Whether every link is kept in memory, or those in use while the others are read from disk when they are asked for.",
    },
    Setting {
        key: Key::LinksMemoryLimit,
        name: "links.memory_limit",
        env: "CAROM_LINKS_MEMORY_LIMIT",
        flag: None,
        kind: "a size such as 512MiB or 8GiB",
        default: None,
        secret: false,
        doc: "With links.residency = \"hot\": how much memory links may take, on all cores together.",
    },
    Setting {
        key: Key::LinksDedupe,
        name: "links.dedupe",
        env: "CAROM_LINKS_DEDUPE",
        flag: None,
        kind: "off, or a time such as 90s, 30m, 12h or 1d",
        default: Some("off"),
        secret: false,
        doc: "For how long the same long URL gets the same code; each time begins that anew. The same on all nodes.",
    },
    Setting {
        key: Key::LinksDefaultTtl,
        name: "links.default_ttl",
        env: "CAROM_LINKS_DEFAULT_TTL",
        flag: None,
        kind: "off, or a time such as 90s, 30m, 12h or 730d",
        default: Some("730d"),
        secret: false,
        doc: "When a link ends that was made through the API without validUntil, counted from its creation or its validSince; off: never.",
    },
    Setting {
        key: Key::LinksKeepExpired,
        name: "links.keep_expired",
        env: "CAROM_LINKS_KEEP_EXPIRED",
        flag: None,
        kind: "forever, or a time such as 90s, 30m, 12h or 1d",
        default: Some("1d"),
        secret: false,
        doc: "How long after its end a link is kept, answered with 410 and open to a change of its end; then it is removed.",
    },
    Setting {
        key: Key::LinksExpirePerSecond,
        name: "links.expire_per_second",
        env: "CAROM_LINKS_EXPIRE_PER_SECOND",
        flag: None,
        kind: "1 to 1000000",
        default: Some("10000"),
        secret: false,
        doc: "How many such links are removed in a second at most, so that a million that end together disturb nobody.",
    },
    Setting {
        key: Key::LinksRecycleAfter,
        name: "links.recycle_after",
        env: "CAROM_LINKS_RECYCLE_AFTER",
        flag: None,
        kind: "off, or a time such as 90s, 30m, 12h or 1d",
        default: Some("off"),
        secret: false,
        doc: "How long after the removal of an expired link its generated code may be given to another; not in a fleet.",
    },
    Setting {
        key: Key::AllowHosts,
        name: "allow.hosts",
        env: "CAROM_ALLOW_HOSTS",
        flag: None,
        kind: "one or more of shop.example, or *.shop.example for all hosts below it",
        default: None,
        secret: false,
        doc: "Hosts that new links may lead to; if neither this nor allow.source is set, all hosts.",
    },
    Setting {
        key: Key::AllowSource,
        name: "allow.source",
        env: "CAROM_ALLOW_SOURCE",
        flag: None,
        kind: "a file, http:// or https:// and an address, or redis",
        default: None,
        secret: false,
        doc: "Where more such hosts are read every two seconds, as a JSON object {\"id\": \"host\", ...}; in Redis the key {PREFIX}:allow.",
    },
    Setting {
        key: Key::BlockHosts,
        name: "block.hosts",
        env: "CAROM_BLOCK_HOSTS",
        flag: None,
        kind: "one or more of bad.example, or *.bad.example for all hosts below it",
        default: None,
        secret: false,
        doc: "Hosts that no link leads to: new ones are refused, and those that there are answer 410.",
    },
    Setting {
        key: Key::BlockSource,
        name: "block.source",
        env: "CAROM_BLOCK_SOURCE",
        flag: None,
        kind: "a file, http:// or https:// and an address, or redis",
        default: None,
        secret: false,
        doc: "Where more such hosts are read every two seconds, as a JSON object {\"id\": \"host\", ...}; in Redis the key {PREFIX}:block.",
    },
    Setting {
        key: Key::DomainsServe,
        name: "domains.serve",
        env: "CAROM_DOMAINS_SERVE",
        flag: None,
        kind: "one or more of https://go.example, each with any of home=URL, not_found=URL and expired=URL behind it",
        default: None,
        secret: false,
        doc: "Short domains besides that of base_url, and where people are led who find nothing there; for base_url itself name it, too.",
    },
    Setting {
        key: Key::DomainsFallback,
        name: "domains.fallback",
        env: "CAROM_DOMAINS_FALLBACK",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Whether links of the default domain, that of base_url, answer on the other domains, too.",
    },
    Setting {
        key: Key::DomainsUnknownHost,
        name: "domains.unknown_host",
        env: "CAROM_DOMAINS_UNKNOWN_HOST",
        flag: None,
        kind: "not_found or misdirected",
        default: Some("not_found"),
        secret: false,
        doc: "What a request for a host that is no domain is told once there are several: as for an unknown link (404), or why (421).",
    },
    Setting {
        key: Key::FleetNode,
        name: "fleet.node",
        env: "CAROM_FLEET_NODE",
        flag: None,
        kind: "a name",
        default: None,
        secret: false,
        doc: "The name of this node, unique in its fleet; if not set, one is drawn and kept in the data directory.",
    },
    Setting {
        key: Key::FleetPassword,
        name: "fleet.password",
        env: "CAROM_FLEET_PASSWORD",
        flag: None,
        kind: "a text",
        default: None,
        secret: true,
        doc: "The password of Redis, if the URL holds none.",
    },
    Setting {
        key: Key::FleetCaFile,
        name: "fleet.ca_file",
        env: "CAROM_FLEET_CA_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "Certificates to trust with rediss://, in PEM; if not set, those that the system trusts.",
    },
    Setting {
        key: Key::FleetPrefix,
        name: "fleet.prefix",
        env: "CAROM_FLEET_PREFIX",
        flag: None,
        kind: "a name",
        default: Some("carom"),
        secret: false,
        doc: "What all keys in Redis begin with; the same on all nodes of a fleet.",
    },
    Setting {
        key: Key::FleetAnswerMillis,
        name: "fleet.answer_ms",
        env: "CAROM_FLEET_ANSWER_MS",
        flag: None,
        kind: "10 to 150",
        default: Some("100"),
        secret: false,
        doc: "How long Redis may take to answer before it counts as away, in milliseconds.",
    },
    Setting {
        key: Key::FleetAcceptWithoutRedis,
        name: "fleet.accept_without_redis",
        env: "CAROM_FLEET_ACCEPT_WITHOUT_REDIS",
        flag: None,
        kind: "true or false",
        default: Some("true"),
        secret: false,
        doc: "Whether links are made and deleted while Redis is away, and brought to it later; custom slugs never are.",
    },
    Setting {
        key: Key::FleetReclaimSeconds,
        name: "fleet.reclaim_seconds",
        env: "CAROM_FLEET_RECLAIM_SECONDS",
        flag: None,
        kind: "10 to 31536000",
        default: Some("604800"),
        secret: false,
        doc: "After how long of silence the unused codes of a node are taken over by another, in seconds.",
    },
    Setting {
        key: Key::FleetStreamEntries,
        name: "fleet.stream_entries",
        env: "CAROM_FLEET_STREAM_ENTRIES",
        flag: None,
        kind: "1024 to 1000000000",
        default: Some("1000000"),
        secret: false,
        doc: "About how many changes Redis keeps for nodes that were away; one that missed more compares everything.",
    },
    Setting {
        key: Key::LimitsConnections,
        name: "limits.connections",
        env: "CAROM_LIMITS_CONNECTIONS",
        flag: None,
        kind: "1 to 4000000",
        default: Some("100000"),
        secret: false,
        doc: "How many connections one core keeps open; more are closed as they arrive.",
    },
    Setting {
        key: Key::LimitsIdleSeconds,
        name: "limits.idle_seconds",
        env: "CAROM_LIMITS_IDLE_SECONDS",
        flag: None,
        kind: "1 to 86400",
        default: Some("75"),
        secret: false,
        doc: "How long a connection may be silent between two requests, in seconds.",
    },
    Setting {
        key: Key::LimitsHeadSeconds,
        name: "limits.head_seconds",
        env: "CAROM_LIMITS_HEAD_SECONDS",
        flag: None,
        kind: "1 to 600",
        default: Some("10"),
        secret: false,
        doc: "How long a request head may take to arrive, from its first byte to its last, in seconds.",
    },
    Setting {
        key: Key::LimitsCreatesPerSecond,
        name: "limits.creates_per_second",
        env: "CAROM_LIMITS_CREATES_PER_SECOND",
        flag: None,
        kind: "0 to 1000000",
        default: Some("0"),
        secret: false,
        doc: "How many links an app may make a second on this node, where its keys say nothing else; 0: any number.",
    },
    Setting {
        key: Key::LimitsMissesPerSecond,
        name: "limits.misses_per_second",
        env: "CAROM_LIMITS_MISSES_PER_SECOND",
        flag: None,
        kind: "0 to 1000000",
        default: Some("10"),
        secret: false,
        doc: "How many links that do not exist an address may ask a core for a second, ten seconds' worth at once; 0: any number.",
    },
    Setting {
        key: Key::LogLevel,
        name: "log.level",
        env: "CAROM_LOG_LEVEL",
        flag: None,
        kind: "error, warn, info, debug or trace",
        default: Some("info"),
        secret: false,
        doc: "How much is logged to standard error.",
    },
];

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

/// Every environment variable with its meaning, for the help text.
pub fn environment_help() -> String {
    let width = SETTINGS.iter().map(|setting| setting.env.len()).max().unwrap_or(0);
    let mut help = format!("  {CONFIG_ENV:width$}  The settings file, as --config.\n");
    for setting in &SETTINGS {
        help.push_str(&format!("  {:width$}  {}\n", setting.env, setting.doc));
        let default = setting.default.map_or(String::new(), |default| format!("; default {default}"));
        help.push_str(&format!("  {:width$}  ({}{default})\n", "", setting.kind));
    }
    help
}

/// The table of all settings, for the README.
pub fn markdown_table() -> String {
    let mut table =
        String::from("| key | environment | flag | value | default | meaning |\n|---|---|---|---|---|---|\n");
    for setting in &SETTINGS {
        let code = |text: &str| format!("`{text}`");
        let name = if setting.secret { "not in the file".to_owned() } else { code(setting.name) };
        let flag = setting.flag.map_or(String::new(), code);
        let default = setting.default.map_or(String::new(), code);
        let (env, kind, doc) = (code(setting.env), setting.kind, setting.doc);
        table.push_str(&format!("| {name} | {env} | {flag} | {kind} | {default} | {doc} |\n"));
    }
    table
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

    #[test]
    fn defaults_agree_with_the_limits_of_the_server() {
        let seconds = |key: Key| key.setting().default.unwrap().parse::<u64>().unwrap();
        assert_eq!(seconds(Key::LimitsIdleSeconds), crate::limits::IDLE_TIME_MAX.as_secs());
        assert_eq!(seconds(Key::LimitsHeadSeconds), crate::limits::HEAD_TIME_MAX.as_secs());
    }
}
