//! The settings that must be the same on all nodes, in groups, each with a fingerprint for the heartbeat.
//!
//! A setting is in a group if nodes with different values harm data of each other, or answer the same request of a
//! visitor in different ways. Versions before a new group say nothing of it, so a new setting gets a group of its own.
//! In an existing group, it would make nodes of two versions differ.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::services::replication::context::SettingFingerprints;
use carom_model::destination::hosts::HostPattern;
use carom_settings::Settings;

/// The groups of settings that must be the same, with their keys for people.
pub(super) const GROUPS: [(&str, &str); 12] = [
    ("domains", "base_url, domains.serve and domains.fallback"),
    ("dedupe", "links.dedupe"),
    ("expiry", "links.default_ttl, links.keep_expired and links.recycle_after"),
    ("slugs", "links.multi_segment_slugs and links.slug_case"),
    ("requests", "links.trailing_slash, links.extra_path, visits.nostat_parameter and api.shlink_strict"),
    ("hosts", "allow.hosts and block.hosts"),
    ("visitLog", "visits.log, visits.share_log and visits.keep"),
    (RETENTION_GROUP, "fleet.retention"),
    (RECLAIM_GROUP, "fleet.reclaim_seconds"),
    (RATES_GROUP, "limits.creates_per_second"),
    (SITE_GROUP, "fleet.site and fleet.other_site"),
    ("codeSecret", "the code secret"),
];

/// The group of the time for which Redis keeps states.
pub(super) const RETENTION_GROUP: &str = "retention";

/// The group of the time after which a silent node is gone.
const RECLAIM_GROUP: &str = "reclaim";

/// The group of the rate at which an app may create links through all nodes of a site.
const RATES_GROUP: &str = "rates";

/// The group of settings that are the same on all nodes of a site, and differ between two sites.
const SITE_GROUP: &str = "site";

/// True if a group must also be the same at both sites. Each site has its own name, its own members and its own rates.
pub(super) fn crosses_sites(group: &str) -> bool {
    ![SITE_GROUP, RECLAIM_GROUP, RATES_GROUP].contains(&group)
}

/// Returns the fingerprints of the settings that must be the same on all nodes. `secret` is the fingerprint of the code
/// secret, from which the secret cannot be derived (see [`carom_shards::CodeSecret::fingerprint`]).
pub fn fingerprints(settings: &Settings, secret: &str) -> SettingFingerprints {
    let Settings { expiry, visits, fleet, paths, .. } = settings;
    let millis = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), |time| time.as_millis().to_string());
    let domains =
        sorted(settings.domains.serve.iter().map(|domain| format!("{}={}", domain.name.as_str(), domain.base_url)));
    let base_url = settings.base_url.as_ref().map_or("-", |base_url| base_url.as_str());
    let visit_log = match (visits.is_on, visits.is_shared) {
        (true, true) => format!("shared {}", millis(visits.keep)),
        (true, false) => "apart".to_owned(),
        (false, _) => "off".to_owned(),
    };
    let (slash, extra) = (paths.trailing_slash, paths.extra_path.as_str());
    let requests = format!("{slash} {extra} {} {}", settings.nostat, settings.api.shlink_strict);
    let hosts = |hosts: &[HostPattern]| sorted(hosts.iter().map(HostPattern::to_string));
    let texts = [
        ("domains", format!("{base_url} {} {domains}", settings.domains.fallback)),
        ("dedupe", millis(settings.dedupe)),
        ("slugs", format!("{} {}", settings.slugs.multi_segment, settings.slugs.case.as_str())),
        ("expiry", [settings.default_ttl, expiry.keep, expiry.recycle_after].map(millis).join(" ")),
        ("requests", requests),
        ("hosts", format!("{} / {}", hosts(&settings.allow.hosts), hosts(&settings.block.hosts))),
        ("visitLog", visit_log),
        (RETENTION_GROUP, millis(fleet.retention)),
        (RECLAIM_GROUP, fleet.reclaim_after.as_secs().to_string()),
        (RATES_GROUP, settings.limits.creates_per_second.to_string()),
        (SITE_GROUP, fleet.site.as_ref().map_or_else(String::new, |site| format!("{} {}", site.name, site.other))),
    ];
    let hashed = texts.into_iter().map(|(group, text)| (group, format!("{:016x}", xxh3_64(text.as_bytes()))));
    hashed.chain([("codeSecret", secret.to_owned())]).collect()
}

/// Joins texts whose order means nothing.
fn sorted(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_settings::Flags;
    use carom_settings::keys::SETTINGS;

    /// Returns the fingerprints of a node with these settings, as `name=value`.
    fn of(written: &[&str]) -> SettingFingerprints {
        let env = |pair: &&str| {
            let (name, value) = pair.split_once('=').unwrap();
            (carom_settings::keys::by_name(name).unwrap().env.to_owned(), value.to_owned())
        };
        let all = ["redis=redis://127.0.0.1/"].iter().chain(written).map(env);
        fingerprints(&Settings::load(None, all, Flags::default()).unwrap().0, "secret")
    }

    /// Settings that must be the same: a value that is not the default, the settings that it needs, and its group.
    const AGREED: [(&str, &[&str], &str); 24] = [
        ("base_url=https://a.example", &[], "domains"),
        ("domains.serve=https://b.example", &["base_url=https://a.example"], "domains"),
        ("domains.fallback=true", &["base_url=https://a.example", "domains.serve=https://b.example"], "domains"),
        ("links.dedupe=1h", &[], "dedupe"),
        ("links.default_ttl=1h", &[], "expiry"),
        ("links.keep_expired=1h", &[], "expiry"),
        ("links.recycle_after=1h", &[], "expiry"),
        ("links.multi_segment_slugs=true", &[], "slugs"),
        ("links.slug_case=insensitive", &[], "slugs"),
        ("links.trailing_slash=true", &[], "requests"),
        ("links.extra_path=append", &[], "requests"),
        ("links.extra_path=ignore", &[], "requests"),
        ("visits.nostat_parameter=nostat", &[], "requests"),
        ("api.shlink_strict=true", &["links.default_ttl=1h"], "requests"),
        ("allow.hosts=a.example", &[], "hosts"),
        ("block.hosts=a.example", &[], "hosts"),
        ("visits.log=on", &[], "visitLog"),
        ("visits.share_log=off", &["visits.log=on"], "visitLog"),
        ("visits.keep=1h", &["visits.log=on"], "visitLog"),
        ("fleet.retention=1h", &[], RETENTION_GROUP),
        ("fleet.reclaim_seconds=10", &[], RECLAIM_GROUP),
        ("limits.creates_per_second=9", &[], RATES_GROUP),
        ("fleet.site=c", &SITES, SITE_GROUP),
        ("fleet.other_site=c", &SITES, SITE_GROUP),
    ];

    /// The settings of a node of one of two sites.
    const SITES: [&str; 3] = ["fleet.site=a", "fleet.other_site=b", "fleet.other_redis=redis://127.0.0.2/"];

    /// Settings of the same tables that may differ: a value that is not the default, and the settings that it needs. Nodes with
    /// another `fleet.prefix` do not hear of each other.
    const OWN: [(&str, &[&str]); 27] = [
        ("links.code_length=8", &[]),
        ("links.home=shared", &["links.memory_limit=8GiB", "links.residency=hot", "fleet.retention=forever"]),
        ("links.residency=hot links.memory_limit=8GiB", &[]),
        ("links.memory_limit=9GiB", &["links.residency=hot", "links.memory_limit=8GiB"]),
        ("links.search_memory=off", &[]),
        ("links.expire_per_second=9", &[]),
        ("allow.source=redis", &[]),
        ("allow.access_key=a", &["allow.source=http://a.example/configs/a/b/c"]),
        ("block.source=redis", &[]),
        ("block.access_key=a", &["block.source=http://a.example/configs/a/b/c"]),
        ("domains.unknown_host=misdirected", &["base_url=https://a.example", "domains.serve=https://b.example"]),
        ("fleet.node=a", &[]),
        ("fleet.password=a", &[]),
        ("fleet.ca_file=/ca.pem", &[]),
        ("fleet.prefix=a", &[]),
        ("fleet.answer_ms=50", &[]),
        ("fleet.look_up_ms=50", &[]),
        ("fleet.accept_without_redis=false", &[]),
        ("fleet.stream_entries=5000", &[]),
        ("fleet.join_from=http://127.0.0.1:8081", &[]),
        ("fleet.join_key_file=/key", &[]),
        ("fleet.join_rate=32MiB", &[]),
        ("fleet.other_redis=redis://127.0.0.3/", &SITES),
        ("visits.keep_bytes=2GiB", &["visits.log=on"]),
        ("visits.addresses=full", &["visits.log=on"]),
        ("visits.keep=1h", &[]),
        ("visits.share_log=off", &[]),
    ];

    /// Returns the groups whose fingerprints a setting changes on a node that has the settings that it needs. It replaces one
    /// of these if it has its name.
    fn changed(setting: &str, needs: &[&str]) -> Vec<&'static str> {
        let name = setting.split_once('=').unwrap().0;
        let others = needs.iter().copied().filter(|need| need.split_once('=').unwrap().0 != name);
        let (before, after) = (of(needs), of(&others.chain(setting.split(' ')).collect::<Vec<&str>>()));
        let groups = GROUPS.iter().map(|(group, _)| *group);
        groups.filter(|group| before.get(group).unwrap() != after.get(group).unwrap()).collect()
    }

    #[test]
    fn each_setting_changes_its_own_fingerprint() {
        for (setting, needs, group) in AGREED {
            assert_eq!(changed(setting, needs), [group], "{setting}");
            let (_, keys) = GROUPS.iter().find(|(of, _)| *of == group).unwrap();
            let name = setting.split_once('=').unwrap().0;
            assert!(keys.split([' ', ',']).any(|key| key == name), "the alarm does not name {name}: {keys}");
        }
        for (setting, needs) in OWN {
            assert_eq!(changed(setting, needs), [""; 0], "{setting}");
        }
        let secrets = ["a", "b"].map(|secret| fingerprints(&settings(), secret));
        assert!(secrets.iter().all(|all| all.keys().eq(of(&[]).keys())));
        assert_ne!(secrets[0].get("codeSecret"), secrets[1].get("codeSecret"));
    }

    fn settings() -> Settings {
        Settings::load(None, std::iter::empty(), Flags::default()).unwrap().0
    }

    #[test]
    fn order_of_hosts_and_domains_means_nothing() {
        for pair in [
            ["allow.hosts=a.example,*.b.example", "allow.hosts=*.b.example,a.example"],
            ["block.hosts=a.example,*.b.example", "block.hosts=*.b.example,a.example"],
            ["domains.serve=https://b.example,https://c.example", "domains.serve=https://c.example,https://b.example"],
        ] {
            let [one, other] = pair.map(|setting| of(&["base_url=https://a.example", setting]));
            assert_eq!(one, other, "{}", pair[0]);
        }
        assert_ne!(of(&["allow.hosts=a.example"]).get("hosts"), of(&["block.hosts=a.example"]).get("hosts"));
    }

    /// A new setting of these tables must be put into one of the two lists above.
    #[test]
    fn settings_of_links_and_fleet_are_all_decided() {
        let decided = |name: &str| {
            let all = AGREED.iter().map(|(setting, ..)| setting).chain(OWN.iter().map(|(setting, _)| setting));
            all.map(|setting| setting.split_once('=').unwrap().0).any(|of| of == name)
        };
        let tables = ["links.", "allow.", "block.", "domains.", "fleet.", "visits."];
        let names = SETTINGS.iter().map(|setting| setting.name);
        let of_tables = names.filter(|name| tables.iter().any(|table| name.starts_with(table)));
        let undecided: Vec<&str> = of_tables.filter(|name| !decided(name)).collect();
        assert!(undecided.is_empty(), "must all nodes have the same values? {undecided:?}");
    }

    #[test]
    fn sites_share_what_visitors_notice() {
        let apart = GROUPS.iter().map(|(group, _)| *group).filter(|group| !crosses_sites(group));
        assert_eq!(apart.collect::<Vec<&str>>(), [RECLAIM_GROUP, RATES_GROUP, SITE_GROUP]);
    }
}
