//! The table `visits`: the visit log.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;

pub(super) const VISITS: [Setting; 6] = [
    Setting {
        key: Key::VisitsLog,
        name: "visits.log",
        env: "CAROM_VISITS_LOG",
        flag: None,
        kind: "on or off",
        default: Some("off"),
        secret: false,
        doc: "Keep a log with one record per visit, besides the counts. Lists of visits in the API need it.",
        show: |settings| Shown::text(if settings.visits.is_on { "on" } else { "off" }),
    },
    Setting {
        key: Key::VisitsShareLog,
        name: "visits.share_log",
        env: "CAROM_VISITS_SHARE_LOG",
        flag: None,
        kind: "on or off",
        default: Some("on"),
        secret: false,
        doc: "In a fleet, send the visit log to all nodes through Redis, so that each node lists the visits of all. Must be the same on all nodes.",
        show: |settings| Shown::text(if settings.visits.is_shared { "on" } else { "off" }),
    },
    Setting {
        key: Key::VisitsKeep,
        name: "visits.keep",
        env: "CAROM_VISITS_KEEP",
        flag: None,
        kind: "a time such as 30d, or forever",
        default: Some("90d"),
        secret: false,
        doc: "How long the log keeps a visit. Counts of visits are kept regardless.",
        show: |settings| Shown::time_or("forever", settings.visits.keep),
    },
    Setting {
        key: Key::VisitsKeepBytes,
        name: "visits.keep_bytes",
        env: "CAROM_VISITS_KEEP_BYTES",
        flag: None,
        kind: "a size such as 1GiB",
        default: Some("1GiB"),
        secret: false,
        doc: "Size of the log on disk above which the oldest visits are removed, at least 64 MiB. In a fleet, the log has the visits of all nodes.",
        show: |settings| Shown::size(settings.visits.keep_bytes),
    },
    Setting {
        key: Key::VisitsAddresses,
        name: "visits.addresses",
        env: "CAROM_VISITS_ADDRESSES",
        flag: None,
        kind: "none, network or full",
        default: Some("none"),
        secret: false,
        doc: "Client addresses in the visit log: left out, shortened to their /24 (IPv4) or /48 (IPv6) network, or in full.",
        show: |settings| Shown::text(settings.visits.addresses.as_str()),
    },
    Setting {
        key: Key::VisitsNostatParameter,
        name: "visits.nostat_parameter",
        env: "CAROM_VISITS_NOSTAT_PARAMETER",
        flag: None,
        kind: "off, or a name such as nostat",
        default: Some("off"),
        secret: false,
        doc: "Query parameter that marks requests which are not counted as visits, as in /abc?nostat. It is not forwarded to the destination.",
        show: |settings| Shown::text(if settings.nostat.is_empty() { "off" } else { &settings.nostat }),
    },
];
