//! The NDJSON form of a link: one line of JSON with the fields of the API, for import and export.
//!
//! The parser accepts any bytes and reports what is wrong. It skips unknown fields, so that exports of other shorteners
//! can be read. It shares the readers of fields with the API ([`carom_model::link::fields`]). Unlike the API, it takes
//! any domain, any date of creation, and codes that were generated. Nothing here reads files or knows the store.

use std::borrow::Cow;
use std::fmt;

use carom_shards::code::CODE_LEN_MAX;
use carom_shards::{Code, Policy};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use carom_model::destination::long_url::{Authority, LongUrl};
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates;
use carom_model::link::Origin;
use carom_model::link::fields::{
    CACHE_SECONDS_MAX, LINK_FIELDS, LONG_URL, LinkField, REDIRECT_RULES, app_name, app_version, destination,
    earlier_visits, flag, instant, text, unfold_meta, with_value,
};
use carom_model::link::labels::{self, LinkLabels};
use carom_model::link::patch::Patch;
use carom_model::link::record::LinkRef;
use carom_model::link::rules::RedirectRules;
use carom_model::link::rules::json::{self as rules_json, RuleFault, UnknownRuleFields};
use carom_model::visits::tally::VisitCounts;

/// The name of the field with the time for which clients may cache a redirect.
const CACHE_SECONDS: &str = "cacheSeconds";

/// Fields of a line besides [`LINK_FIELDS`]. `meta` has some of those again, in lists of links.
const LINE_FIELDS: [&str; 11] = [
    "shortCode",
    LONG_URL,
    "dateCreated",
    "origin",
    "app",
    "appVersion",
    "domain",
    "defaultEnd",
    REDIRECT_RULES,
    "visitsSummary",
    "meta",
];

/// The valid content of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The code; `None` if the link needs a new one.
    pub code: Option<Code>,
    /// The destination.
    pub target: LongUrl,
    /// The rules for its redirects.
    pub policy: Policy,
    /// The creation time in milliseconds since 1970 UTC; `None` means now.
    pub created_ms: Option<u64>,
    /// The origin of the code, if the line has it.
    pub origin: Option<Origin>,
    /// The labels: title, tags, app and so on.
    pub labels: LinkLabels,
    /// The visits so far, as another shortener or the API of carom tells them.
    pub visits: VisitCounts,
}

/// Reasons why a line is refused. The input is at fault, not the service.
#[derive(Debug)]
pub enum LineError {
    /// The line is no JSON object, or has a field twice.
    Json(serde_json::Error),
    /// The field at a path is invalid, for a reason.
    Field(String, String),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Json(error) => write!(f, "not a JSON object with the fields of a link: {error}"),
            LineError::Field(name, reason) => write!(f, "{name} {reason}"),
        }
    }
}

impl std::error::Error for LineError {}

/// The name of a field, which is borrowed unless it has escapes. A bare `Cow` would always be copied.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The known fields of a line. Each occurs at most once.
struct KnownFields(Map<String, Value>);

impl<'de> Deserialize<'de> for KnownFields {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<KnownFields, D::Error> {
        reader.deserialize_map(KnownFieldsVisitor)
    }
}

/// Collects the known fields of a line, and skips all others.
struct KnownFieldsVisitor;

impl<'de> Visitor<'de> for KnownFieldsVisitor {
    type Value = KnownFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KnownFields, A::Error> {
        let mut fields = Map::new();
        while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
            if !LINE_FIELDS.contains(&&*name) && LinkField::named(&name).is_none() {
                map.next_value::<IgnoredAny>()?;
            } else if fields.contains_key(&*name) {
                return Err(A::Error::custom(format_args!("{name} occurs twice")));
            } else {
                fields.insert(name.into_owned(), map.next_value()?);
            }
        }
        Ok(KnownFields(fields))
    }
}

/// Parses one line. `own` are the authorities of the service itself. The domain need not be served: it may be
/// configured after the import.
///
/// # Errors
/// [`LineError`] with the first error found.
pub fn read(line: &[u8], own: &[Authority], domains: &Domains) -> Result<Line, LineError> {
    let KnownFields(mut fields) = serde_json::from_slice(line).map_err(LineError::Json)?;
    unfold_meta(&mut fields);
    limit_cache_seconds(&mut fields);
    let fields = &fields;
    let code = optional(fields, "shortCode", code)?;
    let target =
        destination(fields.get(LONG_URL), own).map_err(|fault| LineError::Field(LONG_URL.to_owned(), fault.reason))?;
    let created_ms = optional(fields, "dateCreated", instant)?;
    let origin = optional(fields, "origin", origin)?;
    let mut patch = Patch::default();
    for field in LINK_FIELDS {
        optional(fields, field.name, |value| field.read(value, &mut patch))?;
    }
    let mut labels = LinkLabels {
        app: optional(fields, "app", app_name)?,
        app_version: optional(fields, "appVersion", app_version)?,
        domain: optional(fields, "domain", |value| domain(value, domains))?.flatten(),
        rules: match fields.get(REDIRECT_RULES).filter(|list| !list.is_null()) {
            Some(list) => rules(list, own)?,
            None => RedirectRules::default(),
        },
        // An import into a data directory stores earlier visits beside the link.
        earlier_visits: None,
        ..LinkLabels::default()
    };
    // The default is that of the API, except for an export of carom without the field: links could not forward queries
    // then.
    let mut policy = Policy { forward_query: origin.is_none(), ..Policy::default() };
    patch.set_fields(&mut policy, &mut labels);
    let ends_by_default = optional(fields, "defaultEnd", flag)?.unwrap_or(false);
    labels.default_expiry = ends_by_default && policy.valid_until_ms.is_some();
    let code = code.map(|code| code.within(labels.domain_id()));
    let visits = optional(fields, "visitsSummary", earlier_visits)?.flatten();
    let visits =
        visits.map_or(VisitCounts::default(), |visits| VisitCounts { total: visits.total(), bots: visits.bots() });
    Ok(Line { code, target, policy, created_ms, origin, labels, visits })
}

/// Lowers `cacheSeconds` to the maximum of the API, as HTTP caches do. Earlier versions imported up to [`u32::MAX`], so their
/// exports may have more.
fn limit_cache_seconds(fields: &mut Map<String, Value>) {
    let Some(seconds) = fields.get_mut(CACHE_SECONDS) else { return };
    if seconds.as_u64().is_some_and(|number| number > CACHE_SECONDS_MAX && number <= u64::from(u32::MAX)) {
        *seconds = CACHE_SECONDS_MAX.into();
    }
}

/// Reads a field; `None` if the line lacks it.
fn optional<T>(
    fields: &Map<String, Value>,
    name: &'static str,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> Result<Option<T>, LineError> {
    let Some(value) = fields.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let read = read(value).map_err(|reason| LineError::Field(name.to_owned(), with_value(name, &reason, value)))?;
    Ok(Some(read))
}

fn code(value: &Value) -> Result<Code, String> {
    let code = Code::from_slug(text(value)?.as_bytes()).map_err(|error| error.to_string())?;
    if code.is_reserved() { Err("is reserved by the service".to_owned()) } else { Ok(code) }
}

fn origin(value: &Value) -> Result<Origin, String> {
    match value.as_str() {
        Some("issued") => Ok(Origin::Issued),
        Some("custom") => Ok(Origin::Custom),
        _ => Err("is neither \"issued\" nor \"custom\"".to_owned()),
    }
}

/// Reads the name of a domain; `None` for the default domain.
fn domain(value: &Value, domains: &Domains) -> Result<Option<DomainName>, String> {
    let name = text(value)?;
    if name.is_empty() {
        return Ok(None);
    }
    match domains.named(name) {
        Some(index) => Ok(domains.label_at(index)),
        None => DomainName::parse(name).map(Some).map_err(|error| error.to_string()),
    }
}

fn rules(list: &Value, own: &[Authority]) -> Result<RedirectRules, LineError> {
    let read = rules_json::read(list, UnknownRuleFields::Skipped, &|value| destination(value, own));
    read.map_err(|faults| {
        let RuleFault { field, reason, .. } = faults.into_iter().next().expect("refused rules have a fault");
        LineError::Field(field, reason)
    })
}

/// Appends the line of a link to `out`, with its line end.
pub fn write(code: &Code, link: &LinkRef<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"shortCode\":\"");
    out.extend_from_slice(code.slug(&mut [0; CODE_LEN_MAX]));
    out.extend_from_slice(b"\",\"longUrl\":\"");
    push_escaped(link.target.as_bytes(), out);
    out.extend_from_slice(b"\",\"dateCreated\":\"");
    dates::push(link.created_ms, out);
    out.extend_from_slice(b"\",\"validUntil\":");
    push_instant(link.policy.valid_until_ms, out);
    if link.policy.valid_since_ms.is_some() {
        out.extend_from_slice(b",\"validSince\":");
        push_instant(link.policy.valid_since_ms, out);
    }
    out.extend_from_slice(b",\"redirectStatus\":");
    push_number(u64::from(link.policy.status.number()), out);
    out.extend_from_slice(b",\"cacheSeconds\":");
    match link.policy.cache_seconds {
        Some(seconds) => push_number(u64::from(seconds), out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(if link.policy.forward_query {
        b",\"forwardQuery\":true"
    } else {
        b",\"forwardQuery\":false"
    });
    if link.policy.archived {
        out.extend_from_slice(b",\"archived\":true");
    }
    if let Some(visits) = link.policy.max_visits {
        out.extend_from_slice(b",\"maxVisits\":");
        push_number(u64::from(visits.get()), out);
    }
    if link.crawlable {
        out.extend_from_slice(b",\"crawlable\":true");
    }
    if link.default_expiry {
        out.extend_from_slice(b",\"defaultEnd\":true");
    }
    for (name, text) in [("domain", link.domain), ("app", link.app), ("appVersion", link.app_version)] {
        if let Some(text) = text {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            push_json(&text, out);
        }
    }
    if let Some(title) = link.title {
        out.extend_from_slice(b",\"title\":");
        push_json(&title, out);
    }
    if !link.tags.is_empty() {
        out.extend_from_slice(b",\"tags\":");
        push_json(&labels::in_joined(link.tags).collect::<Vec<_>>(), out);
    }
    if !link.rules.is_empty() {
        out.extend_from_slice(b",\"redirectRules\":");
        push_json(&link.rules().to_json(), out);
    }
    out.extend_from_slice(match link.origin {
        Origin::Issued => b",\"origin\":\"issued\"}\n",
        Origin::Custom => b",\"origin\":\"custom\"}\n",
    });
}

/// Appends a destination. It is printable ASCII, so only two characters need an escape, and hardly any destination has
/// one.
fn push_escaped(mut text: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        out.extend_from_slice(&text[..at]);
        out.extend_from_slice(&[b'\\', text[at]]);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

fn push_instant(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        Some(ms) => {
            out.push(b'"');
            dates::push(ms, out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

fn push_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts are JSON, and a vector takes everything");
}

fn push_number(number: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    write!(out, "{number}").expect("a vector takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::AppName;
    use carom_model::domains::UnknownHost;
    use carom_model::link::record::unknown::{UnknownFields, UnknownRef};
    use carom_model::link::record::{self, RecordRef};
    use carom_model::link::{Link, Version};
    use carom_model::testing::any_link;
    use carom_shards::RedirectStatus;
    use carom_shards::code::CODE_KEY_LEN_MAX;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn line_of(line: &str) -> Result<Line, LineError> {
        read(line.as_bytes(), &[], &domains())
    }

    fn domains() -> Domains {
        Domains::new("https://s.test", &[], false, UnknownHost::NotFound)
    }

    proptest! {
        #[test]
        fn what_is_written_is_json_of_the_same_link(link in any_link()) {
            let readable = |ms: u64| ms % 200_000_000_000_000;
            let policy = Policy {
                valid_since_ms: link.policy.valid_since_ms.map(readable),
                valid_until_ms: link.policy.valid_until_ms.map(readable),
                ..link.policy
            };
            let created_ms = readable(link.created_ms);
            let (title, tags) = (link.labels.title.as_deref(), link.labels.tags.joined());
            let Link { target, origin, version, labels, .. } = &link;
            let LinkLabels { crawlable, default_expiry, .. } = *labels;
            let (origin, version) = (*origin, *version);
            let (app, app_version) = (labels.app.as_ref().map(AppName::as_str), labels.app_version.as_deref());
            let stored = LinkRef {
                delete_at_ms: None,
                idempotency: None,
                rules: labels.rules.encoded(),
                earlier_visits: labels.earlier_visits,
                unknown: UnknownRef::default(),
                policy,
                target,
                created_ms,
                origin,
                version,
                title,
                tags,
                crawlable,
                default_expiry,
                app,
                app_version,
                domain: labels.domain.as_ref().map(DomainName::as_str),
            };
            let mut out = Vec::new();
            write(&link.code, &stored, &mut out);
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(value["longUrl"].as_str(), Some(&*link.target));
            prop_assert_eq!(value["shortCode"].as_str(), Some(&*link.code.as_slug().to_string()));
            prop_assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
            prop_assert_eq!(value["title"].as_str(), title);
        }

        #[test]
        fn every_written_line_reads_back(link in any_link()) {
            prop_assume!(!link.code.is_reserved());
            let readable = |ms: u64| ms % 200_000_000_000_000;
            let policy = Policy {
                valid_since_ms: link.policy.valid_since_ms.map(readable),
                valid_until_ms: link.policy.valid_until_ms.map(readable),
                ..link.policy
            };
            let target = "https://example.org/?a=%22b%22".to_owned();
            let link = Link { target, created_ms: readable(link.created_ms), policy, ..link };
            let (mut buffer, mut stored, mut out) = ([0; CODE_KEY_LEN_MAX], Vec::new(), Vec::new());
            let key = link.code.key(&mut buffer);
            record::encode_link(key, &link, &mut stored);
            let Ok(RecordRef::Link(stored)) = record::decode(key, &stored) else { panic!("the record is of no link") };
            write(&link.code, &stored, &mut out);
            let line = read(&out, &[], &domains()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let cache_seconds = policy.cache_seconds.map(|seconds| seconds.min(CACHE_SECONDS_MAX as u32));
            prop_assert_eq!((line.code, line.policy), (Some(link.code), Policy { cache_seconds, ..policy }));
            prop_assert_eq!((line.created_ms, line.origin), (Some(link.created_ms), Some(link.origin)));
            let default_expiry = link.labels.default_expiry && policy.valid_until_ms.is_some();
            let unknown = UnknownFields::default();
            prop_assert_eq!(line.labels, LinkLabels { default_expiry, earlier_visits: None, unknown, ..link.labels });
        }

        #[test]
        fn reading_is_total(line in any::<Vec<u8>>(), near in "\\{\"(longUrl|shortCode|meta)\":.{0,30}\\}") {
            let _ = read(&line, &[], &domains());
            let _ = line_of(&near);
        }
    }

    #[test]
    fn a_written_line_reads_back() {
        let code =
            Code::from_slug(b"docs/a-b_c").unwrap().within(DomainName::parse("go.test").ok().map(|name| name.id()));
        let policy = Policy {
            status: RedirectStatus::SeeOther,
            cache_seconds: Some(60),
            valid_until_ms: Some(1_800_000_000_123),
            ..Policy::default()
        };
        let stored = LinkRef {
            delete_at_ms: None,
            idempotency: None,
            rules: &[],
            earlier_visits: None,
            unknown: UnknownRef::default(),
            policy,
            target: "https://example.org/?a=%22b%22",
            created_ms: 1_700_000_000_001,
            origin: Origin::Issued,
            version: Version::default(),
            title: Some("\"A\" title"),
            tags: "a\nb",
            crawlable: true,
            default_expiry: true,
            app: Some("shop"),
            app_version: Some("1.0 \"b\""),
            domain: Some("go.test"),
        };
        let mut out = Vec::new();
        write(&code, &stored, &mut out);
        let line = read(&out, &[], &domains()).unwrap();
        assert_eq!(line.labels.domain.as_ref().map(DomainName::as_str), stored.domain);
        assert_eq!((line.code, line.policy, line.origin), (Some(code), policy, Some(Origin::Issued)));
        assert_eq!((line.target.as_str(), line.created_ms), (stored.target, Some(stored.created_ms)));
        assert_eq!((line.labels.title.as_deref(), line.labels.tags.joined()), (stored.title, stored.tags));
        assert!(line.labels.crawlable);
        assert!(line.labels.default_expiry);
        assert_eq!(line.labels.app.as_ref().map(AppName::as_str), stored.app);
        assert_eq!(line.labels.app_version.as_deref(), stored.app_version);
    }

    #[test]
    fn fields_of_another_shortener_are_read_or_skipped() {
        let line = line_of(
            r#"{"shortCode":"abc","shortUrl":"https://s/abc","longUrl":"https://example.org/é","dateCreated":"2026-01-02T03:04:05+01:00",
            "visitsSummary":{"total":3},"tags":["a"],"meta":{"validSince":null,"validUntil":"2027-01-01T00:00:00Z","maxVisits":9},"crawlable":null,"title":"T"}"#,
        )
        .unwrap();
        assert_eq!(line.target.as_str(), "https://example.org/%C3%A9");
        assert_eq!(line.policy.valid_until_ms, Some(1_798_761_600_000));
        assert_eq!((line.origin, line.policy.forward_query), (None, true));
        assert_eq!(line.visits, VisitCounts { total: 3, bots: 0 });
        assert_eq!(line.policy.max_visits, NonZeroU32::new(9));
        assert_eq!((line.labels.title.as_deref(), line.labels.tags.joined()), (Some("T"), "a"));
        assert!(line_of(r#"{"longUrl":"https://example.org/"}"#).unwrap().code.is_none());
    }

    #[test]
    fn each_reason_is_named() {
        for (line, reason) in [
            ("", "not a JSON object with the fields of a link"),
            ("{}", "longUrl"),
            (r#"{"shortCode":"a b","longUrl":"https://example.org/"}"#, "shortCode has a character"),
            (r#"{"shortCode":"rest","longUrl":"https://example.org/"}"#, "is reserved by the service"),
            (r#"{"longUrl":"ftp://example.org/"}"#, "longUrl is neither http"),
            (r#"{"longUrl":"https://example.org/","dateCreated":"x"}"#, "dateCreated is not"),
            (r#"{"longUrl":"https://example.org/","validUntil":"1960-01-01T00:00:00Z"}"#, "validUntil is before"),
            (
                r#"{"longUrl":"https://example.org/","redirectStatus":200}"#,
                "redirectStatus must be one of 301, 302, 303, 307, 308 (got 200)",
            ),
            (r#"{"longUrl":"https://example.org/","cacheSeconds":-1}"#, "cacheSeconds must be a whole number"),
            (r#"{"longUrl":"https://example.org/","cacheSeconds":4294967296}"#, "cacheSeconds must be a whole number"),
            (r#"{"longUrl":"https://example.org/","maxVisits":0}"#, "maxVisits must be a whole number"),
            (r#"{"longUrl":"https://example.org/","origin":"x"}"#, "origin is neither"),
            (r#"{"longUrl":"https://example.org/","title":"a\u0000"}"#, "title has a control character"),
            (r#"{"longUrl":"https://example.org/","tags":[""]}"#, "tags has an empty tag"),
            (r#"{"longUrl":"https://example.org/","tags":"a"}"#, "tags must be a list of strings"),
            (r#"{"longUrl":"https://example.org/","longUrl":"https://example.com/"}"#, "longUrl occurs twice"),
            (r#"{"longUrl":"https://example.org/","redirectRules":[{}]}"#, "redirectRules[0].longUrl is missing"),
        ] {
            let error = line_of(line).unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
