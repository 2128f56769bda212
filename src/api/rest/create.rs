//! Reads and checks a request that creates a link. Reports every invalid field at once, by name.

use std::ops::RangeInclusive;

use carom_shards::{Code, CodeLength, Policy};
use serde_json::{Map, Value};

use crate::api::problem::Invalid;
use carom_model::access::KeyDomains;
use carom_model::destination::hosts::HostSet;
use carom_model::destination::long_url::{Authority, LongUrl};
use carom_model::domains::{DomainName, Domains};
use carom_model::link::fields::{FieldFault, LONG_URL, LinkField, app_version, destination, flag, text, whole_number};
use carom_model::link::labels::LinkLabels;
use carom_model::link::patch::{Patch, starts_after_expiry};
use carom_model::link::private_code::RandomSlug;
use carom_model::link::slugs::SlugRules;
use carom_model::link::{Criteria, Criterion};

/// Lengths that a client may ask for with `shortCodeLength`, in characters. Shlink has the same minimum.
const RANDOM_LEN: RangeInclusive<usize> = 4..=32;

/// Fields of Shlink's API that this version does not support. A request may send them with the value that asks for
/// nothing; any other value is refused rather than ignored.
const NEUTRAL: &[(&str, &[&str])] = &[("validateUrl", &["null", "false"])];

/// Fields of a create that a change may send with `null`, which changes nothing. Any other value is refused there.
const NULL_IN_CHANGES: &[&str] = &["shortCodeLength", "pathPrefix"];

/// Fields of a request that only a node with all links can carry out.
const OF_ALL_LINKS: [&str; 3] = ["maxVisits", "crawlable", "findIfExists"];

/// The fault of a field of [`OF_ALL_LINKS`] on a node with a shared home of links.
const NOT_IN_SHARED_HOME: &str =
    "is not available on a node with links.home = \"shared\", which does not store all links";

/// Optional fields that a create has and a change lacks. For all optional fields, `null` means the same as absence.
const CREATE_FIELDS: &[&str] = &["customSlug", "shortCodeLength", "pathPrefix", "private", "findIfExists", APP_VERSION];

/// The field with the version of the app that creates the link.
const APP_VERSION: &str = "appVersion";

/// Limits and lists against which a request is checked.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api) struct RequestLimits<'a> {
    /// Hosts and ports of the service itself, which are forbidden as destinations.
    pub(in crate::api) own: &'a [Authority],
    /// Hosts that are allowed as destinations; `None`: all.
    pub(in crate::api) allowed: Option<&'a HostSet>,
    /// Hosts that are blocked as destinations; `None`: no host.
    pub(in crate::api) blocked: Option<&'a HostSet>,
    /// All domains of the service.
    pub(in crate::api) domains: Option<&'a Domains>,
    /// Domains that the caller may use; `None`: all.
    pub(in crate::api) limited: Option<&'a KeyDomains>,
    /// Domain of a request that names none; `None`: the default domain.
    pub(in crate::api) implied_domain: Option<&'a DomainName>,
    /// Rules for slugs.
    pub(in crate::api) slugs: SlugRules,
    /// True if this node does not store all links, because their home is shared.
    pub(in crate::api) home_is_shared: bool,
}

impl RequestLimits<'_> {
    /// Returns the fields of a request that need all links, if this node does not store them.
    pub(super) fn refused_by_shared_home(&self, fields: &Map<String, Value>) -> Vec<Invalid> {
        let asks = |name: &&&str| match fields.get(**name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(value) => value != "",
        };
        let wrong = OF_ALL_LINKS.iter().filter(|_| self.home_is_shared).filter(asks);
        wrong.map(|name| Invalid::new(*name, NOT_IN_SHARED_HOME)).collect()
    }
}

/// A slug that a client determines, in whole or in part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) enum RequestedSlug {
    /// The client chose it.
    Chosen(Code),
    /// The client chose its length or its prefix; the rest is random.
    Random(RandomSlug),
}

/// A checked request to create a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) struct Create {
    pub(in crate::api) target: LongUrl,
    /// The slug that the client chose; `None` for a generated code.
    pub(in crate::api) slug: Option<RequestedSlug>,
    pub(in crate::api) policy: Policy,
    pub(in crate::api) labels: LinkLabels,
    /// True if the link gets a long random code that cannot be guessed.
    pub(in crate::api) private: bool,
    /// Properties of an existing link with the same destination that may be returned (`findIfExists`); `None` if only a
    /// new link may be.
    pub(in crate::api) find: Option<Criteria>,
}

impl Create {
    /// Reads the fields of the body.
    ///
    /// # Errors
    /// Every field that is invalid, with the reason.
    pub(in crate::api) fn read(
        fields: &Map<String, Value>,
        bounds: &RequestLimits<'_>,
    ) -> Result<Create, Vec<Invalid>> {
        let mut invalid = Vec::new();
        let target = long_url(fields.get(LONG_URL), bounds);
        let target = target.map_err(|fault| invalid.push(Invalid::fault(LONG_URL, fault))).ok();
        let (mut served, mut version) = (None, None);
        let mut slug = SlugFields::default();
        let mut patch = Patch::default();
        let (mut find, mut private) = (false, false);
        let mut take = |field: &str, result: Result<(), String>| {
            if let Err(reason) = result {
                let value = fields.get(field).filter(|value| is_known(field) && !value.is_null());
                invalid.push(match value {
                    Some(value) => Invalid::value(field, &reason, value),
                    None => Invalid::new(field, reason),
                });
            }
        };
        take("domain", domain(fields.get("domain"), bounds).map(|domain| served = domain));
        for (name, value) in fields {
            match name.as_str() {
                LONG_URL | "domain" => {}
                _ if value.is_null() && is_known(name) => {}
                // The forms of Shlink's clients send an empty string for a field that was left empty.
                "customSlug" | "pathPrefix" if value == "" => {}
                "customSlug" => take(name, text(value).map(|chosen| slug.chosen = Some(chosen))),
                "pathPrefix" => take(name, text(value).map(|prefix| slug.prefix = Some(prefix))),
                "shortCodeLength" => take(name, code_len(value).map(|len| slug.len = Some(len))),
                "private" => take(name, flag(value).map(|wanted| private = wanted)),
                "findIfExists" => take(name, flag(value).map(|wanted| find = wanted)),
                APP_VERSION => take(name, app_version(value).map(|known| version = Some(known))),
                _ => take(
                    name,
                    LinkField::named(name)
                        .map_or_else(|| require_neutral(name, value), |field| field.read(value, &mut patch)),
                ),
            }
        }
        let mut policy = Policy { forward_query: true, ..Policy::default() };
        let mut labels = LinkLabels { domain: served, app_version: version, ..LinkLabels::default() };
        patch.set_fields(&mut policy, &mut labels);
        let (of_slug, slug) = (slug.named(), slug.into_slug(bounds.slugs));
        if let (true, Some(name)) = (private, of_slug) {
            invalid.push(Invalid::new(
                "private",
                format!("generates a random code, so it cannot be combined with {name}"),
            ));
        }
        let slug = slug.unwrap_or_else(|(name, reason)| {
            invalid.push(match fields.get(name) {
                Some(value) => Invalid::value(name, &reason, value),
                None => Invalid::new(name, reason),
            });
            None
        });
        invalid.extend(bounds.refused_by_shared_home(fields));
        if starts_after_expiry(&policy) {
            invalid.push(Invalid::new("validSince", "must be before validUntil"));
        }
        match target {
            Some(target) if invalid.is_empty() => {
                let find = find.then(|| criteria(fields, bounds));
                Ok(Create { target, slug, policy, labels, private, find })
            }
            _ => Err(invalid),
        }
    }
}

/// Returns the properties that a create names, for the search of an existing link. As in Shlink, a title does not count. A
/// caller with a domain of its own always names one.
fn criteria(fields: &Map<String, Value>, bounds: &RequestLimits<'_>) -> Criteria {
    let is_empty =
        |value: &Value| value.is_null() || value == "" || value.as_array().is_some_and(|list| list.is_empty());
    let named = fields.iter().filter(|(_, value)| !is_empty(value)).map(|(name, _)| name.as_str());
    let has_domain = bounds.limited.is_some() || bounds.implied_domain.is_some();
    let of_caller = has_domain.then_some(Criterion::Domain);
    named.filter_map(criterion).chain(of_caller).fold(Criteria::NONE, Criteria::with)
}

/// Returns the property that a field of a create names.
fn criterion(field: &str) -> Option<Criterion> {
    Some(match field {
        "domain" => Criterion::Domain,
        "tags" => Criterion::Tags,
        "validSince" => Criterion::ValidSince,
        "validUntil" => Criterion::ValidUntil,
        "maxVisits" => Criterion::MaxVisits,
        "redirectStatus" => Criterion::RedirectStatus,
        "cacheSeconds" => Criterion::CacheSeconds,
        "forwardQuery" => Criterion::ForwardQuery,
        "crawlable" => Criterion::Crawlable,
        _ => return None,
    })
}

/// The fields of a create that determine its slug.
#[derive(Default)]
struct SlugFields<'f> {
    chosen: Option<&'f str>,
    prefix: Option<&'f str>,
    len: Option<usize>,
}

impl SlugFields<'_> {
    /// Returns the name of a field that determines the slug; `None` if no field does.
    fn named(&self) -> Option<&'static str> {
        let named = [
            (self.chosen.is_some(), "customSlug"),
            (self.prefix.is_some(), "pathPrefix"),
            (self.len.is_some(), "shortCodeLength"),
        ];
        named.into_iter().find(|(is_set, _)| *is_set).map(|(_, name)| name)
    }

    /// Returns the slug. As in Shlink, a chosen one makes the length irrelevant, and gets the prefix.
    ///
    /// # Errors
    /// The invalid field, with the reason.
    fn into_slug(self, rules: SlugRules) -> Result<Option<RequestedSlug>, (&'static str, String)> {
        let prefix = self.prefix.unwrap_or_default();
        match (self.chosen, self.len) {
            (Some(chosen), _) => {
                let code = rules.parse(&format!("{prefix}{chosen}"));
                Ok(Some(RequestedSlug::Chosen(code.map_err(|error| ("customSlug", error.to_string()))?)))
            }
            (None, None) if prefix.is_empty() => Ok(None),
            (None, len) => {
                let len = len.unwrap_or(CodeLength::DEFAULT.get());
                let random = RandomSlug::new(prefix, len, rules).map_err(|error| ("pathPrefix", error.to_string()))?;
                Ok(Some(RequestedSlug::Random(random)))
            }
        }
    }
}

/// True if a field describes the link itself, so that a line of an import may have it as well.
pub(super) fn describes_link(name: &str) -> bool {
    matches!(name, LONG_URL | "domain" | APP_VERSION) || LinkField::named(name).is_some()
}

/// True if a create may have an optional field of that name.
pub(super) fn is_known(name: &str) -> bool {
    CREATE_FIELDS.contains(&name) || LinkField::named(name).is_some() || NEUTRAL.iter().any(|(known, _)| *known == name)
}

/// Reads a destination, and compares its host with the lists of hosts.
///
/// # Errors
/// The reason why it is invalid.
pub(in crate::api) fn long_url(value: Option<&Value>, bounds: &RequestLimits<'_>) -> Result<LongUrl, FieldFault> {
    let url = destination(value, bounds.own)?;
    match (bounds.allowed, bounds.blocked) {
        (_, Some(hosts)) if hosts.has(url.host()) => Err("points to a host on the block list".into()),
        (Some(hosts), _) if !hosts.has(url.host()) => Err("points to a host that is not on the allow list".into()),
        _ => Ok(url),
    }
}

/// Returns the domain with that name, or the caller's own if the request names none; `None` is the default domain.
/// The service must serve the domain, and the caller must be allowed to use it.
fn domain(value: Option<&Value>, bounds: &RequestLimits<'_>) -> Result<Option<DomainName>, String> {
    let name = match value {
        None | Some(Value::Null) => "",
        Some(value) => value.as_str().ok_or("must be a string such as \"go.example\"")?,
    };
    if name.is_empty() {
        let is_served = |name: &DomainName| bounds.domains.is_some_and(|domains| domains.label_of(name).is_some());
        return match bounds.implied_domain {
            Some(implied) if !is_served(implied) => {
                Err(format!("defaults to {implied}, the domain of this API key, which is currently not served"))
            }
            implied => Ok(implied.cloned()),
        };
    }
    let found = bounds.domains.and_then(|domains| domains.named(name).map(|place| domains.label_at(place)));
    match (found, bounds.limited.map(KeyDomains::names)) {
        (None, Some(names)) if names.iter().any(|of_key| of_key.eq_ignore_ascii_case(name)) => {
            Err("is currently not served".to_owned())
        }
        (Some(domain), _) if bounds.limited.is_none_or(|limited| limited.has(domain.as_ref())) => Ok(domain),
        (_, Some(names)) => Err(format!("is not a domain of this API key: {}", names.join(", "))),
        (_, None) => {
            let served = bounds.domains.map(Domains::names).unwrap_or_default();
            Err(format!("is not a domain of this service: {served}"))
        }
    }
}

fn code_len(value: &Value) -> Result<usize, String> {
    let len = whole_number(value).map(|len| len as usize).filter(|len| RANDOM_LEN.contains(len));
    len.ok_or_else(|| format!("must be a whole number from {} to {}", RANDOM_LEN.start(), RANDOM_LEN.end()))
}

/// Accepts a field that sets nothing here only with a value that asks for nothing.
///
/// # Errors
/// The reason why the field or its value is refused.
pub(in crate::api) fn require_neutral(name: &str, value: &Value) -> Result<(), String> {
    if NULL_IN_CHANGES.contains(&name) {
        return if value.is_null() { Ok(()) } else { Err("applies only when a link is created".to_owned()) };
    }
    match NEUTRAL.iter().find(|(known, _)| *known == name) {
        Some((_, values)) if values.contains(&value.to_string().as_str()) => Ok(()),
        Some((_, values)) => Err(format!("is not supported; omit it or send {}", values.join(" or "))),
        None => Err("is not a known field".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::slugs::SlugCase;
    use carom_shards::RedirectStatus;
    use serde_json::json;
    use std::num::NonZeroU32;

    fn read(body: &Value) -> Result<Create, Vec<String>> {
        Create::read(body.as_object().unwrap(), &RequestLimits::default())
            .map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn all_fields_are_taken() {
        let create = read(&json!({
            "longUrl": "HTTP://Example.com", "customSlug": "my-slug_1", "validUntil": "2027-01-31T12:00:00+01:00",
            "redirectStatus": 308, "cacheSeconds": 60, "tags": ["b", "A"], "title": " T ", "findIfExists": true,
            "shortCodeLength": null, "validSince": "2026-01-31T12:00:00+01:00", "forwardQuery": false, "archived": true,
            "private": null, "maxVisits": 7, "crawlable": true,
        }))
        .unwrap();
        assert_eq!(create.target.as_str(), "http://example.com/");
        assert_eq!(create.slug, Some(chosen("my-slug_1")));
        assert_eq!(create.policy.status, RedirectStatus::PermanentRedirect);
        assert_eq!(create.policy.cache_seconds, Some(60));
        assert_eq!(create.policy.valid_until_ms, Some(1_801_393_200_000));
        assert_eq!(create.policy.valid_since_ms, Some(1_769_857_200_000));
        assert_eq!((create.policy.forward_query, create.policy.archived), (false, true));
        assert_eq!((create.labels.title.as_deref(), create.labels.tags.joined()), (Some("T"), "a\nb"));
        assert_eq!((create.policy.max_visits, create.labels.crawlable), (NonZeroU32::new(7), true));
        assert!(create.find.is_some());
        assert!(!create.private);
        let plain = read(&json!({"longUrl": "http://a/", "private": true})).unwrap();
        assert!(plain.policy.forward_query, "the query goes along unless that is not wanted");
        assert!(plain.private, "the query goes along unless that is not wanted");
    }

    fn chosen(slug: &str) -> RequestedSlug {
        RequestedSlug::Chosen(Code::parse(slug.as_bytes()).unwrap())
    }

    #[test]
    fn a_slug_is_chosen_or_random() {
        let random = |prefix: &str, len| {
            Some(RequestedSlug::Random(RandomSlug::new(prefix, len, SlugRules::default()).unwrap()))
        };
        for (fields, slug) in [
            (json!({}), None),
            (json!({"pathPrefix": "", "shortCodeLength": null}), None),
            (json!({"shortCodeLength": 4}), random("", 4)),
            (json!({"shortCodeLength": 5.0, "pathPrefix": "sale-"}), random("sale-", 5)),
            (json!({"pathPrefix": "sale-"}), random("sale-", 7)),
            (json!({"pathPrefix": "sale-", "customSlug": "may", "shortCodeLength": 9}), Some(chosen("sale-may"))),
        ] {
            let mut body = json!({"longUrl": "http://a/"});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(read(&body).unwrap().slug, slug, "{fields}");
        }
        for (fields, wrong) in [
            (json!({"shortCodeLength": 3}), "shortCodeLength"),
            (json!({"shortCodeLength": 33}), "shortCodeLength"),
            (json!({"shortCodeLength": "7"}), "shortCodeLength"),
            (json!({"pathPrefix": 1}), "pathPrefix"),
            (json!({"pathPrefix": "a/"}), "pathPrefix"),
            (json!({"pathPrefix": "x".repeat(60)}), "pathPrefix"),
            (json!({"pathPrefix": "re", "customSlug": "st"}), "customSlug"),
            (json!({"private": true, "shortCodeLength": 7}), "private"),
        ] {
            let mut body = json!({"longUrl": "http://a/"});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(read(&body).unwrap_err(), [wrong], "{fields}");
        }
    }

    #[test]
    fn slugs_follow_the_rules_of_the_service() {
        let slugs = SlugRules { multi_segment: true, case: SlugCase::Insensitive };
        let read = |fields: Value| {
            let mut body = json!({"longUrl": "http://a/"});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let create = Create::read(body.as_object().unwrap(), &RequestLimits { slugs, ..RequestLimits::default() });
            create.map(|create| create.slug).map_err(|invalid| invalid[0].field.clone())
        };
        let paths = Code::from_slug(b"docs/2026/start").unwrap();
        assert_eq!(read(json!({"customSlug": "/Docs/2026/Start/"})), Ok(Some(RequestedSlug::Chosen(paths))));
        assert_eq!(
            read(json!({"pathPrefix": "/docs/", "customSlug": "2026/start"})),
            Ok(Some(RequestedSlug::Chosen(paths)))
        );
        let random = RandomSlug::new("docs/", 5, slugs).unwrap();
        assert_eq!(read(json!({"pathPrefix": "Docs/", "shortCodeLength": 5})), Ok(Some(RequestedSlug::Random(random))));
        for (fields, wrong) in [
            (json!({"customSlug": "a//b"}), "customSlug"),
            (json!({"customSlug": "a/../b"}), "customSlug"),
            (json!({"customSlug": "Rest/v3"}), "customSlug"),
            (json!({"customSlug": "a/qr-code"}), "customSlug"),
            (json!({"pathPrefix": "admin/"}), "pathPrefix"),
        ] {
            assert_eq!(read(fields.clone()), Err(wrong.to_owned()), "{fields}");
        }
    }

    #[test]
    fn fields_that_were_left_empty_ask_for_nothing() {
        let create = read(&json!({"longUrl": "http://a/", "customSlug": "", "validUntil": "", "title": ""})).unwrap();
        assert_eq!((create.slug, create.policy.valid_until_ms, create.find), (None, None, None));
        for (asked, find) in [(json!(null), false), (json!(false), false), (json!(true), true)] {
            assert_eq!(read(&json!({"longUrl": "http://a/", "findIfExists": asked})).unwrap().find.is_some(), find);
        }
    }

    #[test]
    fn existing_link_must_have_what_is_named() {
        let of = |criteria: &[Criterion]| criteria.iter().copied().fold(Criteria::NONE, Criteria::with);
        for (fields, criteria) in [
            (
                json!({"title": "T", "appVersion": "1", "pathPrefix": "a", "tags": [], "maxVisits": null, "validSince": ""}),
                of(&[]),
            ),
            (json!({"tags": ["a"], "maxVisits": 3}), of(&[Criterion::Tags, Criterion::MaxVisits])),
            (
                json!({"validSince": "2026-01-31T12:00:00Z", "validUntil": "2027-01-31T12:00:00Z"}),
                of(&[Criterion::ValidSince, Criterion::ValidUntil]),
            ),
            (
                json!({"redirectStatus": 301, "cacheSeconds": 5}),
                of(&[Criterion::RedirectStatus, Criterion::CacheSeconds]),
            ),
            (json!({"forwardQuery": true, "crawlable": false}), of(&[Criterion::ForwardQuery, Criterion::Crawlable])),
        ] {
            let mut body = json!({"longUrl": "http://a/", "findIfExists": true});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(read(&body).unwrap().find, Some(criteria), "{fields}");
        }
        let domains = carom_model::testing::three_domains();
        let read = |body: &Value, limited| {
            let bounds = RequestLimits { domains: Some(&domains), limited, ..RequestLimits::default() };
            Create::read(body.as_object().unwrap(), &bounds).unwrap().find
        };
        let named = json!({"longUrl": "http://a/", "findIfExists": true, "domain": "go.test"});
        assert_eq!(read(&named, None), Some(of(&[Criterion::Domain])));
        let unnamed = json!({"longUrl": "http://a/", "findIfExists": true});
        assert_eq!(read(&unnamed, None), Some(Criteria::NONE));
        let limited = KeyDomains::from_names(["go.test"]).unwrap();
        assert_eq!(read(&unnamed, Some(&limited)), Some(of(&[Criterion::Domain])));
    }

    #[test]
    fn every_wrong_field_is_named_at_once() {
        let wrong = read(&json!({
            "longUrl": "ftp://a/", "customSlug": "a/b", "validUntil": 5, "redirectStatus": 200, "cacheSeconds": -1,
            "maxVisits": 0, "colour": "red", "crawlable": "yes", "findIfExists": "true", "validSince": "1969-01-01T00:00:00Z",
            "title": "a\nb", "tags": ["a", 1], "forwardQuery": 1, "archived": "no", "private": {},
        }))
        .unwrap_err();
        for field in [
            "longUrl",
            "customSlug",
            "validUntil",
            "redirectStatus",
            "cacheSeconds",
            "maxVisits",
            "crawlable",
            "colour",
            "findIfExists",
            "validSince",
            "title",
            "tags",
            "forwardQuery",
            "archived",
            "private",
        ] {
            assert!(wrong.contains(&field.to_owned()), "{field} in {wrong:?}");
        }
    }

    #[test]
    fn nothing_of_another_type_is_taken() {
        for wrong in [json!(true), json!(1.5), json!([]), json!({}), json!("x"), json!(1e300), json!(u64::MAX)] {
            for field in ["redirectStatus", "cacheSeconds", "validUntil", "validSince", "maxVisits"] {
                let mut body = json!({"longUrl": "http://a/"});
                body[field] = wrong.clone();
                assert_eq!(read(&body).unwrap_err(), [field], "{wrong}");
            }
        }
        assert_eq!(read(&json!({"longUrl": ["http://a/"]})).unwrap_err(), ["longUrl"]);
        assert_eq!(read(&json!({})).unwrap_err(), ["longUrl"]);
        for (field, wrong) in [
            ("title", json!("x".repeat(1 << 16))),
            ("tags", json!(["x".repeat(1 << 16)])),
            ("tags", json!("a")),
            ("tags", json!(["a\u{0}b"])),
            ("private", json!("true")),
        ] {
            let mut body = json!({"longUrl": "http://a/"});
            body[field] = wrong;
            assert_eq!(read(&body).unwrap_err(), [field]);
        }
        let contradictory = json!({"longUrl": "http://a/", "private": true, "customSlug": "a", "validSince": "2027-01-01T00:00:00Z",
            "validUntil": "2027-01-01T00:00:00Z"});
        assert_eq!(read(&contradictory).unwrap_err(), ["private", "validSince"]);
        assert_eq!(read(&json!({"longUrl": "http://a/", "customSlug": "REST"})).unwrap_err(), ["customSlug"]);
    }
}
