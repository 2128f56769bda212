//! The NDJSON form of a link: one line of JSON with the fields of the API, for import and export.
//!
//! The parser accepts any bytes and reports what is wrong. It skips unknown fields, so that exports of other shorteners
//! can be read. Nothing here reads files or knows the store.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use carom_shards::code::CODE_LEN_MAX;
use carom_shards::{Code, CodeError, Policy, RedirectStatus};
use serde::{Deserialize, Serialize};

use carom_model::access::{APP_VERSION_LEN_MAX, AppName, NameError, is_app_version};
use carom_model::dates::{self, DateError};
use carom_model::destination::long_url::{Authority, LongUrl, LongUrlError};
use carom_model::domains::{DomainName, DomainNameError, Domains};
use carom_model::link::Origin;
use carom_model::link::earlier_visits::EARLIER_VISITS_MAX;
use carom_model::link::labels::{self, LabelError, LinkLabels, Tags};
use carom_model::link::record::LinkRef;
use carom_model::link::record::unknown::UnknownFields;
use carom_model::link::rules::{ConditionType, RedirectCondition, RedirectRule, RedirectRules};
use carom_model::visits::tally::VisitCounts;

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
    /// The line is no JSON object with the fields of a link.
    Json(serde_json::Error),
    /// `shortCode` is not a valid code.
    Code(CodeError),
    /// `shortCode` is reserved by the service.
    Reserved,
    /// `longUrl` is not a valid destination.
    LongUrl(LongUrlError),
    /// A field is not a valid date.
    Date(&'static str, DateError),
    /// `redirectStatus` is not a redirect.
    Status(u64),
    /// `origin` is neither "issued" nor "custom".
    Origin,
    /// `title` or `tags` is not valid.
    Label(&'static str, LabelError),
    /// `app` is not a valid name.
    App(NameError),
    /// `appVersion` is not valid.
    AppVersion,
    /// A redirect rule is not valid.
    Rules(String),
    /// `domain` is not a valid domain name.
    Domain(DomainNameError),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Json(error) => write!(f, "not a JSON object with the fields of a link: {error}"),
            LineError::Code(error) => write!(f, "shortCode {error}"),
            LineError::Reserved => f.write_str("shortCode is reserved by the service"),
            LineError::LongUrl(error) => write!(f, "longUrl {error}"),
            LineError::Date(field, error) => write!(f, "{field} {error}"),
            LineError::Status(number) => {
                write!(f, "redirectStatus is {number}; expected 301, 302, 303, 307 or 308")
            }
            LineError::Origin => f.write_str("origin is neither \"issued\" nor \"custom\""),
            LineError::Label(field, error) => write!(f, "{field} {error}"),
            LineError::App(error) => write!(f, "app {error}"),
            LineError::Rules(error) => write!(f, "redirectRules {error}"),
            LineError::Domain(error) => write!(f, "domain {error}"),
            LineError::AppVersion => {
                write!(f, "appVersion must be 1 to {APP_VERSION_LEN_MAX} printable ASCII characters")
            }
        }
    }
}

impl std::error::Error for LineError {}

/// A text that is borrowed unless it has escapes. Inside an `Option`, a bare `Cow` would always be copied.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    #[serde(borrow, default)]
    short_code: Option<Text<'a>>,
    #[serde(borrow)]
    long_url: Text<'a>,
    #[serde(borrow, default)]
    date_created: Option<Text<'a>>,
    #[serde(borrow, default)]
    valid_since: Option<Text<'a>>,
    #[serde(borrow, default)]
    valid_until: Option<Text<'a>>,
    #[serde(default)]
    redirect_status: Option<u64>,
    #[serde(default)]
    cache_seconds: Option<u32>,
    #[serde(default)]
    forward_query: Option<bool>,
    #[serde(default)]
    archived: Option<bool>,
    #[serde(default)]
    max_visits: Option<NonZeroU32>,
    #[serde(default)]
    crawlable: Option<bool>,
    #[serde(default)]
    default_end: Option<bool>,
    #[serde(borrow, default)]
    title: Option<Text<'a>>,
    #[serde(borrow, default)]
    tags: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    origin: Option<Text<'a>>,
    #[serde(borrow, default)]
    app: Option<Text<'a>>,
    #[serde(borrow, default)]
    app_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    #[serde(borrow, default)]
    redirect_rules: Option<Vec<RawRule<'a>>>,
    #[serde(borrow, default)]
    meta: Option<RawMeta<'a>>,
    #[serde(default)]
    visits_summary: Option<RawVisits>,
}

#[derive(Deserialize)]
struct RawVisits {
    #[serde(default)]
    total: u64,
    #[serde(default)]
    bots: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRule<'a> {
    #[serde(borrow)]
    long_url: Text<'a>,
    #[serde(borrow)]
    conditions: Vec<RawCondition<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    match_key: Option<Text<'a>>,
    #[serde(borrow, default)]
    match_value: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta<'a> {
    #[serde(borrow, default)]
    valid_since: Option<Text<'a>>,
    #[serde(borrow, default)]
    valid_until: Option<Text<'a>>,
    #[serde(default)]
    max_visits: Option<NonZeroU32>,
}

/// Parses one line. `own` are the authorities of the service itself. The domain need not be served: it may be
/// configured after the import.
///
/// # Errors
/// [`LineError`] with the first error found.
pub fn read(line: &[u8], own: &[Authority], domains: &Domains) -> Result<Line, LineError> {
    let raw: Raw<'_> = serde_json::from_slice(line).map_err(LineError::Json)?;
    let code = raw.short_code.map(|text| Code::from_slug(text.0.as_bytes())).transpose().map_err(LineError::Code)?;
    if code.is_some_and(|code| code.is_reserved()) {
        return Err(LineError::Reserved);
    }
    let target = LongUrl::parse(&raw.long_url.0, own).map_err(LineError::LongUrl)?;
    let date = |name, text: Option<Text<'_>>| {
        text.map(|text| dates::parse(&text.0)).transpose().map_err(|error| LineError::Date(name, error))
    };
    let created_ms = date("dateCreated", raw.date_created)?;
    let meta = raw.meta.unwrap_or_default();
    let valid_since_ms = date("validSince", raw.valid_since.or(meta.valid_since))?;
    let valid_until_ms = date("validUntil", raw.valid_until.or(meta.valid_until))?;
    let status = match raw.redirect_status {
        None => RedirectStatus::default(),
        Some(number) => RedirectStatus::from_number(number).ok_or(LineError::Status(number))?,
    };
    let origin = match raw.origin.as_ref().map(|text| &*text.0) {
        None => None,
        Some("issued") => Some(Origin::Issued),
        Some("custom") => Some(Origin::Custom),
        Some(_) => return Err(LineError::Origin),
    };
    let title = raw.title.map(|text| labels::title(&text.0)).transpose();
    let tags = raw.tags.as_ref().map(|tags| Tags::of(tags.iter().map(|tag| &*tag.0))).transpose();
    let labels = LinkLabels {
        title: title.map_err(|error| LineError::Label("title", error))?.flatten(),
        tags: tags.map_err(|error| LineError::Label("tags", error))?.unwrap_or_default(),
        crawlable: raw.crawlable.unwrap_or(false),
        default_expiry: raw.default_end.unwrap_or(false) && valid_until_ms.is_some(),
        app: raw.app.map(|text| AppName::parse(&text.0)).transpose().map_err(LineError::App)?,
        app_version: match raw.app_version.map(|text| text.0.into_owned()) {
            Some(text) if !is_app_version(&text) => return Err(LineError::AppVersion),
            version => version,
        },
        domain: match raw.domain.as_ref().map(|text| &*text.0) {
            None | Some("") => None,
            Some(text) => match domains.named(text) {
                Some(place) => domains.label_at(place),
                None => Some(DomainName::parse(text).map_err(LineError::Domain)?),
            },
        },
        delete_at_ms: None,
        idempotency: None,
        rules: match raw.redirect_rules {
            Some(rules) => read_rules(&rules, own).map_err(LineError::Rules)?,
            None => RedirectRules::default(),
        },
        earlier_visits: None, // An import into a data directory stores visits beside the link.
        unknown: UnknownFields::default(),
    };
    let code = code.map(|code| code.within(labels.domain_id()));
    let policy = Policy {
        status,
        cache_seconds: raw.cache_seconds,
        valid_since_ms,
        valid_until_ms,
        // The default is that of the API, except for an export of carom without the field: links could not forward
        // queries then.
        forward_query: raw.forward_query.unwrap_or(origin.is_none()),
        archived: raw.archived.unwrap_or(false),
        max_visits: raw.max_visits.or(meta.max_visits),
    };
    let visits = raw.visits_summary.map_or(VisitCounts::default(), |RawVisits { total, bots }| {
        let total = total.min(EARLIER_VISITS_MAX);
        VisitCounts { total, bots: bots.min(total) }
    });
    Ok(Line { code, target, policy, created_ms, origin, labels, visits })
}

fn read_rules(rules: &[RawRule<'_>], own: &[Authority]) -> Result<RedirectRules, String> {
    let condition = |raw: &RawCondition<'_>| {
        let kind = ConditionType::named(&raw.kind.0).ok_or_else(|| format!("has an unknown type, {:?}", raw.kind.0))?;
        let (key, value) = (raw.match_key.as_ref(), raw.match_value.as_ref());
        let condition = RedirectCondition::new(kind, key.map(|text| &*text.0), value.map(|text| &*text.0));
        condition.map_err(|error| format!("has an invalid condition {}, which {error}", kind.name()))
    };
    let rule = |raw: &RawRule<'_>| {
        let long_url = LongUrl::parse(&raw.long_url.0, own).map_err(|error| format!("has a longUrl that {error}"))?;
        let conditions = raw.conditions.iter().map(condition).collect::<Result<_, String>>()?;
        Ok(RedirectRule { long_url: String::from(long_url).into(), conditions })
    };
    let rules: Vec<RedirectRule> = rules.iter().map(rule).collect::<Result<_, String>>()?;
    RedirectRules::new(rules).map_err(|error| error.to_string())
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
    use carom_model::domains::UnknownHost;
    use carom_model::link::record::unknown::UnknownRef;
    use carom_model::link::{Link, Version};
    use carom_model::testing::any_link;
    use proptest::prelude::*;

    fn text(line: &str) -> Result<Line, LineError> {
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
            if let Ok(line) = read(&out, &[], &domains()) {
                let default_expiry = default_expiry && policy.valid_until_ms.is_some();
                prop_assert_eq!((line.policy, line.labels), (policy, LinkLabels { default_expiry, earlier_visits: None, unknown: UnknownFields::default(), ..link.labels }));
            }
        }

        #[test]
        fn reading_is_total(line in any::<Vec<u8>>(), near in "\\{\"(longUrl|shortCode|meta)\":.{0,30}\\}") {
            let _ = read(&line, &[], &domains());
            let _ = text(&near);
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
        assert!(line.labels.crawlable && line.labels.default_expiry);
        assert_eq!(line.labels.app.as_ref().map(AppName::as_str), stored.app);
        assert_eq!(line.labels.app_version.as_deref(), stored.app_version);
    }

    #[test]
    fn fields_of_another_shortener_are_read_or_skipped() {
        let line = text(
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
        assert!(text(r#"{"longUrl":"https://example.org/"}"#).unwrap().code.is_none());
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
            (r#"{"longUrl":"https://example.org/","redirectStatus":200}"#, "redirectStatus is 200"),
            (r#"{"longUrl":"https://example.org/","cacheSeconds":-1}"#, "not a JSON object with the fields of a link"),
            (r#"{"longUrl":"https://example.org/","maxVisits":0}"#, "not a JSON object with the fields of a link"),
            (r#"{"longUrl":"https://example.org/","origin":"x"}"#, "origin is neither"),
            (r#"{"longUrl":"https://example.org/","title":"a\u0000"}"#, "title has a control character"),
            (r#"{"longUrl":"https://example.org/","tags":[""]}"#, "tags has an empty tag"),
            (r#"{"longUrl":"https://example.org/","tags":"a"}"#, "not a JSON object with the fields of a link"),
        ] {
            let error = text(line).unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
