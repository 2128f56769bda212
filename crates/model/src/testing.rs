//! Fixtures of the domain for the tests of every crate: one fixed link and tombstone, proptest strategies, and databases of locations.

pub mod mmdb;
pub mod redirects;

use std::num::NonZeroU32;

use carom_shards::map::INSTANT_MS_MAX;
use carom_shards::{Code, Policy, RedirectStatus};
use proptest::prelude::*;

use crate::access::AppName;
use crate::destination::hosts::host_of;
use crate::domains::{Domain, DomainName, Domains, Targets, UnknownHost};
use crate::link::earlier_visits::{EARLIER_VISITS_MAX, EarlierVisits};
use crate::link::labels::{self, LinkLabels, Tags};
use crate::link::record::unknown::UnknownFields;
use crate::link::record::{self, Tombstone};
use crate::link::rules::{ConditionType, RedirectCondition, RedirectRule, RedirectRules};
use crate::link::{Link, Origin, Version};

/// A link to `https://example.org/{code}`, created at 1,700,000,000,000 ms, with the default policy and no labels.
///
/// # Panics
///
/// If `code` is not a valid code.
pub fn link(code: &str, origin: Origin) -> Link {
    Link {
        code: Code::parse(code.as_bytes()).expect("a valid code"),
        policy: Policy::default(),
        target: format!("https://example.org/{code}"),
        created_ms: 1_700_000_000_000,
        origin,
        version: Version::default(),
        labels: LinkLabels::default(),
    }
}

/// The tombstone of an issued code that was deleted 1 ms after the epoch.
pub fn tombstone() -> Tombstone {
    let unknown = UnknownFields::default();
    Tombstone { deleted_ms: 1, origin: Origin::Issued, version: Version::default(), unknown }
}

/// The record of a link in a version that nobody has: intact, and not to be decoded.
pub fn newer_record(link: &Link) -> Vec<u8> {
    let (key, mut value) = (link.code.to_string(), Vec::new());
    record::encode_link(key.as_bytes(), link, &mut value);
    record::make_newer(key.as_bytes(), &mut value);
    value
}

/// Three domains, `s.test` the default one, that answer unknown hosts with 404.
pub fn three_domains() -> Domains {
    let domain = |base_url: &str| {
        let name = DomainName::parse(host_of(base_url.as_bytes())).expect("a valid domain name");
        Domain { name, base_url: base_url.into(), targets: Targets::default() }
    };
    let serve = ["https://go.test", "http://b\u{fc}cher.test:8080", "https://s.test"].map(domain);
    Domains::new("https://s.test", &serve, false, UnknownHost::NotFound)
}

/// Names of apps, and none.
pub fn any_app() -> impl Strategy<Value = Option<AppName>> {
    proptest::option::of("[a-z0-9][a-z0-9._-]{0,10}")
        .prop_map(|text| text.map(|text| AppName::parse(&text).expect("a valid app name")))
}

/// Names of domains, and none.
pub fn any_domain() -> impl Strategy<Value = Option<DomainName>> {
    proptest::option::of("[a-z]{1,5}[.][a-z]{2}")
        .prop_map(|text| text.map(|text| DomainName::parse(&text).expect("a valid domain name")))
}

/// Returns one rule with one condition without a key.
///
/// # Panics
///
/// If the condition is invalid.
pub fn rules(long_url: &str, kind: &str, value: &str) -> RedirectRules {
    let kind = ConditionType::named(kind).expect("a type of conditions");
    let condition = RedirectCondition::new(kind, None, Some(value)).expect("a valid condition");
    let rule = RedirectRule { long_url: long_url.into(), conditions: [condition].into() };
    RedirectRules::new(vec![rule]).expect("one rule")
}

/// Redirect rules of every type, and none.
pub fn any_rules() -> impl Strategy<Value = RedirectRules> {
    let condition = (0..ConditionType::ALL.len(), "[a-zé&=%+ ]{1,8}", 1u8..=100).prop_map(|(at, text, number)| {
        let (kind, _) = ConditionType::ALL[at];
        let value = match kind {
            ConditionType::Device => "android".to_owned(),
            ConditionType::Language => "fr-CA".to_owned(),
            ConditionType::IpAddress => format!("10.{number}.*.1"),
            ConditionType::CountryCode => "FR".to_owned(),
            ConditionType::BeforeDate | ConditionType::AfterDate => format!("2{number:03}-01-02T03:04:05+00:00"),
            ConditionType::Weight => number.to_string(),
            ConditionType::Browser => "android_browser".to_owned(),
            _ => format!("x{text}"),
        };
        RedirectCondition::new(kind, Some(&text), Some(&value)).expect("a valid condition")
    });
    let conditions = proptest::collection::vec(condition, 1..4);
    let rule = ("https://[a-z]{1,20}/", conditions)
        .prop_map(|(url, conditions)| RedirectRule { long_url: url.into(), conditions: conditions.into() });
    let some = proptest::collection::vec(rule, 0..4).prop_map(|rules| RedirectRules::new(rules).expect("few rules"));
    prop_oneof![3 => Just(RedirectRules::default()), 1 => some]
}

/// Labels with every field set or not.
pub fn any_labels() -> impl Strategy<Value = LinkLabels> {
    let title = proptest::option::of("[ a-zA-Z\"\\\\<é☃\u{202e}]{0,40}");
    let tags = proptest::collection::vec("[ a-zA-Z\"\\\\<é☃\u{202e}]{0,10}x", 0..5);
    let app = (any_app(), proptest::option::of("[ -~]{1,20}"));
    let visits = proptest::option::of((1..EARLIER_VISITS_MAX, any::<u64>()));
    let unknown = proptest::option::of((100u8.., any::<[u8; 3]>()));
    (title, tags, any::<(bool, bool)>(), app, any_domain(), any_rules(), (visits, unknown)).prop_map(
        |(text, tags, (crawlable, default_expiry), (app, app_version), domain, rules, (visits, unknown))| LinkLabels {
            title: text.and_then(|text| labels::title(&text).expect("a valid title")),
            tags: Tags::of(tags.iter().map(String::as_str)).expect("valid tags"),
            crawlable,
            default_expiry,
            app,
            app_version,
            domain,
            rules,
            earlier_visits: visits.and_then(|(total, bots)| EarlierVisits::new(total, bots)),
            unknown: unknown.map(|(tag, value)| UnknownFields::of(tag, &value)).unwrap_or_default(),
            ..LinkLabels::default()
        },
    )
}

/// Every link that the store may be given.
pub fn any_link() -> impl Strategy<Value = Link> {
    let instant = || proptest::option::of(0..=INSTANT_MS_MAX);
    let policy = (0usize..5, any::<Option<u32>>(), instant(), instant(), any::<(bool, bool, u32)>());
    let policy = policy.prop_map(
        |(status, cache_seconds, valid_since_ms, valid_until_ms, (forward_query, archived, visits))| {
            let (status, max_visits) = (RedirectStatus::ALL[status], NonZeroU32::new(visits));
            Policy { status, cache_seconds, valid_since_ms, valid_until_ms, forward_query, archived, max_visits }
        },
    );
    let version = any::<(u32, u64, u32)>().prop_map(|(rev, claim, edit)| Version { rev, claim, edit });
    let version = prop_oneof![Just(Version::default()), version];
    ("[0-9A-Za-z_-]{1,64}", policy, "[!-~]{1,2048}", any::<u64>(), any::<bool>(), version, any_labels()).prop_map(
        |(code, policy, target, created_ms, issued, version, labels)| Link {
            code: Code::parse(code.as_bytes()).expect("a slug").within(labels.domain_id()),
            policy,
            target,
            created_ms,
            origin: if issued { Origin::Issued } else { Origin::Custom },
            version,
            labels,
        },
    )
}
