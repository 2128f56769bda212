//! The tables `admin`, `drain`, `log` and `access_log`, for the people who run a node.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;
use crate::settings::access_log::terms::{LogPlace, STANDARD_OUTPUT};

pub(super) const ADMIN: [Setting; 2] = [
    Setting {
        key: Key::AdminHosts,
        name: "admin.hosts",
        env: "CAROM_ADMIN_HOSTS",
        flag: None,
        kind: "one or more host names",
        default: None,
        secret: false,
        doc: "Host names accepted by the admin listener, besides IP addresses, localhost and the host name of the machine. Requests for other names are refused.",
        show: |settings| Shown::some_list(&settings.admin_hosts),
    },
    Setting {
        key: Key::AdminRequireKey,
        name: "admin.require_key",
        env: "CAROM_ADMIN_REQUIRE_KEY",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Require an admin key even if the admin listener is on loopback. On other addresses, a key is always required.",
        show: |settings| Shown::plain(settings.admin_requires_key),
    },
];

pub(super) const DRAIN: [Setting; 1] = [Setting {
    key: Key::DrainDelay,
    name: "drain.delay",
    env: "CAROM_DRAIN_DELAY",
    flag: None,
    kind: "a time such as 0s or 10s",
    default: Some("0s"),
    secret: false,
    doc: "How long to keep accepting connections after SIGTERM, while /readyz already returns 503. Set it longer than the load balancer takes to notice.",
    show: |settings| Shown::time_or("0s", Some(settings.drain_delay).filter(|delay| !delay.is_zero())),
}];

pub(super) const LOG: [Setting; 2] = [
    Setting {
        key: Key::LogLevel,
        name: "log.level",
        env: "CAROM_LOG_LEVEL",
        flag: None,
        kind: "error, warn, info, debug or trace",
        default: Some("info"),
        secret: false,
        doc: "Verbosity of the log on standard error.",
        show: |settings| Shown::text(settings.log_level.as_str()),
    },
    Setting {
        key: Key::LogFormat,
        name: "log.format",
        env: "CAROM_LOG_FORMAT",
        flag: None,
        kind: "text or json",
        default: Some("text"),
        secret: false,
        doc: "Format of the log: text for people, or JSON with one object per line.",
        show: |settings| Shown::text(settings.log_format.as_str()),
    },
];

pub(super) const ACCESS_LOG: [Setting; 4] = [
    Setting {
        key: Key::AccessLogFile,
        name: "access_log.file",
        env: "CAROM_ACCESS_LOG_FILE",
        flag: None,
        kind: "a file, or - for standard output",
        default: None,
        secret: false,
        doc: "Access log file, with one line per request. If not set, no access log is written. After the file is renamed, as by logrotate, carom creates a new one within a second.",
        show: |settings| match &settings.access_log.place {
            Some(LogPlace::File(path)) => Shown::text(path.display()),
            Some(LogPlace::StandardOutput) => Shown::text(STANDARD_OUTPUT),
            None => Shown::Unset,
        },
    },
    Setting {
        key: Key::AccessLogFormat,
        name: "access_log.format",
        env: "CAROM_ACCESS_LOG_FORMAT",
        flag: None,
        kind: "json or combined",
        default: Some("json"),
        secret: false,
        doc: "Format of the lines: JSON objects, or the combined format of Apache and nginx.",
        show: |settings| Shown::text(settings.access_log.format.as_str()),
    },
    Setting {
        key: Key::AccessLogOneIn,
        name: "access_log.one_in",
        env: "CAROM_ACCESS_LOG_ONE_IN",
        flag: None,
        kind: "1 to 1000000",
        default: Some("1"),
        secret: false,
        doc: "Log only a random sample of 1 in N requests.",
        show: |settings| Shown::plain(settings.access_log.one_in),
    },
    Setting {
        key: Key::AccessLogAddresses,
        name: "access_log.addresses",
        env: "CAROM_ACCESS_LOG_ADDRESSES",
        flag: None,
        kind: "shortened, full or off",
        default: Some("shortened"),
        secret: false,
        doc: "Client addresses in the access log: shortened to their /24 (IPv4) or /48 (IPv6) network, in full, or left out.",
        show: |settings| Shown::text(settings.access_log.addresses.as_str()),
    },
];
