//! A link of another shortener in carom's terms, and the domain that it gets here.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use carom_model::domains::Domains;
use carom_model::formats::dates;

/// A link to move. Texts are as the other shortener has them; the import checks them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MovedLink {
    /// The path of the short URL, without the first slash.
    pub slug: String,
    /// The host of the short URL; `None` means the default domain.
    pub domain: Option<String>,
    /// The destination.
    pub long_url: String,
    /// The creation time, in milliseconds since 1970 UTC.
    pub created_ms: Option<u64>,
    /// The start of the validity, in milliseconds since 1970 UTC.
    pub since_ms: Option<u64>,
    /// The end of the validity, in milliseconds since 1970 UTC.
    pub until_ms: Option<u64>,
    /// The maximum number of visits.
    pub max_visits: Option<u64>,
    /// The title at the other shortener, unchecked.
    pub title: Option<String>,
    /// The tags at the other shortener, unchecked.
    pub tags: Vec<String>,
    /// True if crawlers may follow the link.
    pub crawlable: bool,
    /// True if the query of a request is forwarded; `None` means the default.
    pub forward_query: Option<bool>,
    /// True if the link no longer redirects.
    pub archived: bool,
    /// The visits so far, and the bots among them.
    pub visits: Option<(u64, u64)>,
    /// Redirect rules, as Shlink's API returns them.
    pub rules: Vec<Value>,
    /// A part of the link that is lost with the move.
    pub lost: Option<&'static str>,
}

impl MovedLink {
    /// Returns the name of the short URL for reports.
    pub fn name(&self) -> String {
        match &self.domain {
            Some(domain) => format!("{domain}/{}", self.slug),
            None => self.slug.clone(),
        }
    }

    /// Returns the line of the link for the import, without its line end.
    ///
    /// # Errors
    /// The reason why this node cannot have the link.
    pub fn to_line(&self, domains: &MovedDomains) -> Result<String, String> {
        if self.slug.is_empty() {
            return Err("has no slug".to_owned());
        }
        let domain = self.domain.as_deref().map(|name| domains.resolve(name)).transpose()?.flatten();
        let date = |ms: Option<u64>| ms.map(dates::format);
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| _ = (!value.is_null()).then(|| line.insert(name.to_owned(), value));
        put("shortCode", json!(self.slug));
        put("longUrl", json!(self.long_url));
        put("domain", json!(domain));
        put("dateCreated", json!(date(self.created_ms)));
        put("validSince", json!(date(self.since_ms)));
        put("validUntil", json!(date(self.until_ms)));
        put("maxVisits", json!(self.max_visits));
        put("title", json!(self.title));
        put("tags", json!(self.tags));
        put("crawlable", json!(self.crawlable));
        put("forwardQuery", json!(self.forward_query));
        put("archived", json!(self.archived));
        if let Some((total, bots)) = self.visits {
            put("visitsSummary", json!({"total": total, "bots": bots}));
        }
        if !self.rules.is_empty() {
            put("redirectRules", json!(self.rules));
        }
        Ok(Value::Object(line).to_string())
    }
}

/// The domains of the node that gets the links, and the domains of the other shortener that become them.
#[derive(Clone, Debug)]
pub struct MovedDomains {
    /// `None` if the node itself says which domains it serves.
    domains: Option<Domains>,
    renamed: BTreeMap<String, String>,
}

impl MovedDomains {
    /// Returns the domains of this node with renamed ones, each a host of the other shortener and a domain of this node.
    ///
    /// # Errors
    /// A description of a rename to a domain that this node does not serve.
    pub fn new(domains: Domains, renamed: &[(String, String)]) -> Result<MovedDomains, String> {
        for (from, to) in renamed {
            if domains.named(to).is_none() {
                return Err(format!(
                    "invalid value for --map-domain: {from}={to}; this node does not serve {to}, but {}",
                    domains.names()
                ));
            }
        }
        Ok(MovedDomains { domains: Some(domains), ..MovedDomains::of_running_node(renamed) })
    }

    /// Returns renamed domains for a node that checks itself whether it serves them.
    pub fn of_running_node(renamed: &[(String, String)]) -> MovedDomains {
        let renamed = renamed.iter().map(|(from, to)| (from.to_ascii_lowercase(), to.clone())).collect();
        MovedDomains { domains: None, renamed }
    }

    /// Returns the domain of this node that a host becomes; `None` is the default one.
    fn resolve(&self, host: &str) -> Result<Option<String>, String> {
        let name = self.renamed.get(&host.to_ascii_lowercase()).map_or(host, String::as_str);
        let Some(domains) = &self.domains else {
            return Ok((!name.eq_ignore_ascii_case("DEFAULT")).then(|| name.to_owned()));
        };
        match domains.named(name) {
            Some(place) => Ok(domains.label_at(place).map(|name| name.as_str().to_owned())),
            None => Err(format!(
                "the domain {host} is not served by this node; add it to domains.serve, or pass --map-domain {host}=DOMAIN"
            )),
        }
    }
}

/// Splits a short URL, with or without a scheme, into its host and its slug.
pub fn split_short_url(url: &str) -> Option<(&str, &str)> {
    let rest = url.trim();
    let rest = rest.split_once("://").map_or(rest, |(_, rest)| rest);
    let (host, slug) = rest.split_once('/')?;
    (!host.is_empty() && !slug.is_empty()).then_some((host, slug))
}

/// Parses a date of another shortener: ISO 8601, SQL's form in UTC, a day, or a Unix time in seconds or milliseconds.
///
/// # Errors
/// The reason, with the text.
pub fn instant(name: &str, text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Ok(ms) = dates::parse(text) {
        return Ok(ms);
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let spelled = match text.len() {
        10 if is_number => text.parse().ok().map(|seconds: u64| dates::format(seconds * 1_000)),
        13 if is_number => text.parse().ok().map(dates::format),
        10 => Some(format!("{text}T00:00:00Z")),
        16 => Some(format!("{}:00Z", text.replacen(' ', "T", 1))),
        // An offset in the form +0000.
        _ if is_short_offset(text) => {
            let (time, minutes) = text.split_at(text.len() - 2);
            Some(format!("{time}:{minutes}"))
        }
        _ => Some(format!("{}Z", text.trim_end_matches(" UTC").replacen(' ', "T", 1))),
    };
    spelled.and_then(|text| dates::parse(&text).ok()).ok_or_else(|| {
        format!("{name} is {text:?}; expected a date such as 2026-01-02T03:04:05+00:00 or 2026-01-02 03:04:05")
    })
}

fn is_short_offset(text: &str) -> bool {
    let Some((_, [sign, digits @ ..])) = text.as_bytes().split_last_chunk::<5>() else { return false };
    text.is_ascii() && (*sign == b'+' || *sign == b'-') && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::testing::three_domains;
    use proptest::prelude::*;

    #[test]
    fn dates_of_all_shorteners_are_read() {
        let ms = 1_767_323_045_000;
        for text in [
            "2026-01-02T03:04:05+00:00",
            "2026-01-02T04:04:05+0100",
            "2026-01-02 03:04:05",
            "2026-01-02 03:04:05 UTC",
            "2026-01-02T03:04:05.000Z",
            "1767323045",
            "1767323045000",
        ] {
            assert_eq!(instant("timestamp", text), Ok(ms), "{text}");
        }
        assert_eq!(instant("created", "2026-01-02"), Ok(1_767_312_000_000));
        assert_eq!(instant("created", "2026-01-02 03:04"), Ok(1_767_323_040_000));
        assert!(instant("created", "yesterday").unwrap_err().contains("created is \"yesterday\""));
    }

    #[test]
    fn short_urls_are_split() {
        assert_eq!(split_short_url("https://go.example/sale"), Some(("go.example", "sale")));
        assert_eq!(split_short_url("bit.ly/3abc"), Some(("bit.ly", "3abc")));
        assert_eq!(split_short_url("https://go.example/a/b"), Some(("go.example", "a/b")));
        for wrong in ["", "sale", "https://go.example/", "https:///x"] {
            assert_eq!(split_short_url(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_domains_of_this_node_are_taken() {
        let names = three_domains().names();
        let own = three_domains();
        let other = own.all()[1].name.as_str().to_owned();
        let domains = MovedDomains::new(own, &[("bit.ly".to_owned(), other.clone())]).unwrap();
        assert_eq!(domains.resolve("BIT.ly"), Ok(Some(other.clone())));
        assert_eq!(domains.resolve(&other.to_uppercase()), Ok(Some(other)));
        assert_eq!(domains.resolve("DEFAULT"), Ok(None));
        assert!(domains.resolve("else.example").unwrap_err().contains("--map-domain else.example=DOMAIN"));
        let unknown = MovedDomains::of_running_node(&[("bit.ly".to_owned(), "default".to_owned())]);
        assert_eq!((unknown.resolve("Bit.ly"), unknown.resolve("x.test")), (Ok(None), Ok(Some("x.test".to_owned()))));
        let wrong = MovedDomains::new(three_domains(), &[("a.example".to_owned(), "no.example".to_owned())]);
        assert!(wrong.unwrap_err().contains(&names));
    }

    proptest! {
        #[test]
        fn any_text_is_a_date_or_refused(text in any::<String>(), near in "[0-9TZ:. +-]{0,30}") {
            let _ = (instant("a", &text), instant("a", &near), split_short_url(&text));
        }
    }
}
