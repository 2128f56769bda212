//! Reads and checks a request that creates a link. Reports every invalid field at once, by name.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use carom_shards::{Code, CodeLength, Policy, RedirectStatus};
use serde_json::{Map, Value};

use crate::api::problem::Invalid;
use carom_model::access::{APP_VERSION_LEN_MAX, KeyDomains, is_app_version};
use carom_model::dates;
use carom_model::destination::hosts::HostSet;
use carom_model::destination::long_url::{Authority, LongUrl};
use carom_model::domains::{DomainName, Domains};
use carom_model::link::labels::{self, LinkLabels, Tags};
use carom_model::link::patch::starts_after_expiry;
use carom_model::link::private_code::RandomSlug;
use carom_model::link::slugs::SlugRules;

/// Upper limit of the seconds for which clients may cache a redirect: the largest that HTTP caches understand (RFC
/// 9111, section 1.2.2).
const CACHE_SECONDS_MAX: u64 = 2_147_483_647;

/// Lengths that a client may ask for with `shortCodeLength`, in characters. Shlink has the same minimum.
const RANDOM_LEN: RangeInclusive<usize> = 4..=32;

/// Fields of Shlink's API that this version does not support. A request may send them with the value that asks for
/// nothing; any other value is refused rather than ignored.
const NEUTRAL: &[(&str, &[&str])] = &[("validateUrl", &["null", "false"])];

/// Fields that only a create may have, so that a change may send them with `null` alone.
const OF_CREATE: &[&str] = &["shortCodeLength", "pathPrefix"];

/// Fields that only a node with all links can obey.
const OF_ALL_LINKS: [&str; 3] = ["maxVisits", "crawlable", "findIfExists"];

/// The fault of such a field on other nodes.
const NOT_IN_SHARED_HOME: &str =
    "is not available on a node with links.home = \"shared\", which does not store all links";

/// Optional fields that say how to create a link. For all optional fields, `null` means the same as absence.
const CREATE_FIELDS: &[&str] = &["customSlug", "shortCodeLength", "pathPrefix", "private", "findIfExists"];

/// Optional fields of a link, each with the function that reads it. A line of an import has the same ones.
const LINK_FIELDS: &[(&str, ReadField)] = &[
    ("validSince", |value, link| instant(value).map(|ms| link.policy.valid_since_ms = Some(ms))),
    ("validUntil", |value, link| instant(value).map(|ms| link.policy.valid_until_ms = Some(ms))),
    ("redirectStatus", |value, link| redirect_status(value).map(|status| link.policy.status = status)),
    ("cacheSeconds", |value, link| cache_seconds(value).map(|seconds| link.policy.cache_seconds = Some(seconds))),
    ("title", |value, link| title(value).map(|title| link.labels.title = title)),
    ("tags", |value, link| tags(value).map(|tags| link.labels.tags = tags)),
    ("forwardQuery", |value, link| flag(value).map(|wanted| link.policy.forward_query = wanted)),
    ("archived", |value, link| flag(value).map(|wanted| link.policy.archived = wanted)),
    ("maxVisits", |value, link| max_visits(value).map(|visits| link.policy.max_visits = Some(visits))),
    ("crawlable", |value, link| flag(value).map(|wanted| link.labels.crawlable = wanted)),
    ("appVersion", |value, link| app_version(value).map(|version| link.labels.app_version = Some(version))),
];

/// Reads the value of one field into a link, or returns the reason why it is invalid.
type ReadField = fn(&Value, &mut LinkDraft) -> Result<(), String>;

/// The link that a request describes, without its destination and its slug.
struct LinkDraft {
    policy: Policy,
    labels: LinkLabels,
}

/// Limits and lists against which a request is checked.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api) struct Bounds<'a> {
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

impl Bounds<'_> {
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
pub(in crate::api) enum Slug {
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
    pub(in crate::api) slug: Option<Slug>,
    pub(in crate::api) policy: Policy,
    pub(in crate::api) labels: LinkLabels,
    /// True if the link gets a long random code that cannot be guessed.
    pub(in crate::api) private: bool,
    /// True if an existing link with the same destination may be returned (`findIfExists`).
    pub(in crate::api) find: bool,
}

impl Create {
    /// Reads the fields of the body.
    ///
    /// # Errors
    /// Every field that is invalid, with the reason.
    pub(in crate::api) fn read(fields: &Map<String, Value>, bounds: &Bounds<'_>) -> Result<Create, Vec<Invalid>> {
        let mut invalid = Vec::new();
        let mut target = None;
        let mut slug = SlugFields::default();
        let policy = Policy { forward_query: true, ..Policy::default() };
        let mut link = LinkDraft { policy, labels: LinkLabels::default() };
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
        take("longUrl", long_url(fields.get("longUrl"), bounds).map(|url| target = Some(url)));
        take("domain", domain(fields.get("domain"), bounds).map(|domain| link.labels.domain = domain));
        for (name, value) in fields {
            match name.as_str() {
                "longUrl" | "domain" => {}
                _ if value.is_null() && is_known(name) => {}
                // The forms of Shlink's clients send an empty string for a field that was left empty.
                "customSlug" | "pathPrefix" | "validSince" | "validUntil" | "maxVisits" if value == "" => {}
                "customSlug" => take(name, text(value).map(|chosen| slug.chosen = Some(chosen))),
                "pathPrefix" => take(name, text(value).map(|prefix| slug.prefix = Some(prefix))),
                "shortCodeLength" => take(name, code_len(value).map(|len| slug.len = Some(len))),
                "private" => take(name, flag(value).map(|wanted| private = wanted)),
                "findIfExists" => take(name, flag(value).map(|wanted| find = wanted)),
                _ => take(name, link_field(name).map_or_else(|| neutral(name, value), |read| read(value, &mut link))),
            }
        }
        let LinkDraft { policy, labels } = link;
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
            Some(target) if invalid.is_empty() => Ok(Create { target, slug, policy, labels, private, find }),
            _ => Err(invalid),
        }
    }
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
    fn into_slug(self, rules: SlugRules) -> Result<Option<Slug>, (&'static str, String)> {
        let prefix = self.prefix.unwrap_or_default();
        match (self.chosen, self.len) {
            (Some(chosen), _) => {
                let code = rules.parse(&format!("{prefix}{chosen}"));
                Ok(Some(Slug::Chosen(code.map_err(|error| ("customSlug", error.to_string()))?)))
            }
            (None, None) if prefix.is_empty() => Ok(None),
            (None, len) => {
                let len = len.unwrap_or(CodeLength::DEFAULT.get());
                let random = RandomSlug::new(prefix, len, rules).map_err(|error| ("pathPrefix", error.to_string()))?;
                Ok(Some(Slug::Random(random)))
            }
        }
    }
}

/// Returns the function that reads an optional field of a link; `None` if a link has no such field.
fn link_field(name: &str) -> Option<ReadField> {
    LINK_FIELDS.iter().find(|(known, _)| *known == name).map(|(_, read)| *read)
}

/// True if a field describes the link itself, so that a line of an import may have it as well.
pub(super) fn describes_link(name: &str) -> bool {
    matches!(name, "longUrl" | "domain") || link_field(name).is_some()
}

/// True if a create may have an optional field of that name.
pub(super) fn is_known(name: &str) -> bool {
    CREATE_FIELDS.contains(&name) || link_field(name).is_some() || NEUTRAL.iter().any(|(known, _)| *known == name)
}

pub(in crate::api) fn long_url(value: Option<&Value>, bounds: &Bounds<'_>) -> Result<LongUrl, String> {
    match value {
        None | Some(Value::Null) => Err("is missing; expected the URL to shorten".to_owned()),
        Some(Value::String(text)) => {
            let url = LongUrl::parse(text, bounds.own).map_err(|error| error.to_string())?;
            match (bounds.allowed, bounds.blocked) {
                (_, Some(hosts)) if hosts.has(url.host()) => Err("points to a host on the block list".to_owned()),
                (Some(hosts), _) if !hosts.has(url.host()) => {
                    Err("points to a host that is not on the allow list".to_owned())
                }
                _ => Ok(url),
            }
        }
        Some(_) => Err("must be a string".to_owned()),
    }
}

/// Returns the domain with that name, or the caller's own if the request names none; `None` is the default domain.
/// The service must serve the domain, and the caller must be allowed to use it.
fn domain(value: Option<&Value>, bounds: &Bounds<'_>) -> Result<Option<DomainName>, String> {
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

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "must be a string".to_owned())
}

fn code_len(value: &Value) -> Result<usize, String> {
    let len = whole_number(value).map(|len| len as usize).filter(|len| RANDOM_LEN.contains(len));
    len.ok_or_else(|| format!("must be a whole number from {} to {}", RANDOM_LEN.start(), RANDOM_LEN.end()))
}

pub(in crate::api) fn instant(value: &Value) -> Result<u64, String> {
    let text = value.as_str().ok_or("must be a string such as \"2027-01-31T12:00:00+00:00\"")?;
    dates::parse(text).map_err(|error| error.to_string())
}

/// Returns the integer that a JSON number stands for, also if it is written as `3.0`: JSON has one kind of numbers.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..=u32::MAX as f64).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as u64))
}

pub(in crate::api) fn redirect_status(value: &Value) -> Result<RedirectStatus, String> {
    let number = whole_number(value).and_then(RedirectStatus::from_number);
    number.ok_or_else(|| "must be one of 301, 302, 303, 307, 308".to_owned())
}

pub(in crate::api) fn cache_seconds(value: &Value) -> Result<u32, String> {
    let seconds = whole_number(value).filter(|&seconds| seconds <= CACHE_SECONDS_MAX).map(|seconds| seconds as u32);
    seconds.ok_or_else(|| format!("must be a whole number from 0 to {CACHE_SECONDS_MAX}"))
}

pub(in crate::api) fn max_visits(value: &Value) -> Result<NonZeroU32, String> {
    let visits = whole_number(value).and_then(|visits| u32::try_from(visits).ok()).and_then(NonZeroU32::new);
    visits.ok_or_else(|| format!("must be a whole number from 1 to {}", u32::MAX))
}

pub(in crate::api) fn title(value: &Value) -> Result<Option<String>, String> {
    labels::title(value.as_str().ok_or("must be a string")?).map_err(|error| error.to_string())
}

pub(in crate::api) fn tags(value: &Value) -> Result<Tags, String> {
    let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
    let list = list.flatten().ok_or("must be a list of strings")?;
    Tags::of(list).map_err(|error| error.to_string())
}

fn app_version(value: &Value) -> Result<String, String> {
    let text = value.as_str().filter(|text| is_app_version(text)).map(str::to_owned);
    text.ok_or_else(|| format!("must be a string of 1 to {APP_VERSION_LEN_MAX} printable ASCII characters"))
}

pub(in crate::api) fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "must be true or false".to_owned())
}

pub(in crate::api) fn neutral(name: &str, value: &Value) -> Result<(), String> {
    if OF_CREATE.contains(&name) {
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
    use serde_json::json;

    fn read(body: &Value) -> Result<Create, Vec<String>> {
        Create::read(body.as_object().unwrap(), &Bounds::default())
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
        assert!(create.find && !create.private);
        let plain = read(&json!({"longUrl": "http://a/", "private": true})).unwrap();
        assert!(plain.policy.forward_query && plain.private, "the query goes along unless that is not wanted");
    }

    fn chosen(slug: &str) -> Slug {
        Slug::Chosen(Code::parse(slug.as_bytes()).unwrap())
    }

    #[test]
    fn a_slug_is_chosen_or_random() {
        let random =
            |prefix: &str, len| Some(Slug::Random(RandomSlug::new(prefix, len, SlugRules::default()).unwrap()));
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
            let create = Create::read(body.as_object().unwrap(), &Bounds { slugs, ..Bounds::default() });
            create.map(|create| create.slug).map_err(|invalid| invalid[0].field.clone())
        };
        let paths = Code::from_slug(b"docs/2026/start").unwrap();
        assert_eq!(read(json!({"customSlug": "/Docs/2026/Start/"})), Ok(Some(Slug::Chosen(paths))));
        assert_eq!(read(json!({"pathPrefix": "/docs/", "customSlug": "2026/start"})), Ok(Some(Slug::Chosen(paths))));
        let random = RandomSlug::new("docs/", 5, slugs).unwrap();
        assert_eq!(read(json!({"pathPrefix": "Docs/", "shortCodeLength": 5})), Ok(Some(Slug::Random(random))));
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
        assert_eq!((create.slug, create.policy.valid_until_ms, create.find), (None, None, false));
        for (asked, find) in [(json!(null), false), (json!(false), false), (json!(true), true)] {
            assert_eq!(read(&json!({"longUrl": "http://a/", "findIfExists": asked})).unwrap().find, find);
        }
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
