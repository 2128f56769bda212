//! The shorteners that links can come from, and the meaning of their JSON.
//!
//! Pure: reads values that others have parsed. The forms are those of Shlink 3 to 5, YOURLS 1.7 to 1.10, version 4 of
//! Bitly's API, and Kutt 2 and 3.

use serde_json::{Map, Value, json};

use super::moved_link::{MovedLink, instant, split_short_url};
use super::source::FoundLink;

/// A shortener, or the form of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortener {
    /// Shlink.
    Shlink,
    /// YOURLS.
    Yourls,
    /// Bitly.
    Bitly,
    /// Kutt.
    Kutt,
    /// A CSV file of any other origin.
    Csv,
}

impl Shortener {
    /// All shorteners.
    pub const ALL: [Shortener; 5] =
        [Shortener::Shlink, Shortener::Yourls, Shortener::Bitly, Shortener::Kutt, Shortener::Csv];

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Shortener::Shlink => "shlink",
            Shortener::Yourls => "yourls",
            Shortener::Bitly => "bitly",
            Shortener::Kutt => "kutt",
            Shortener::Csv => "csv",
        }
    }

    /// Parses a name.
    pub fn parse(text: &str) -> Option<Shortener> {
        Shortener::ALL.into_iter().find(|shortener| shortener.as_str() == text)
    }

    /// Returns the names of all shorteners.
    pub fn names() -> String {
        Shortener::ALL.map(Shortener::as_str).join(", ")
    }

    /// Returns the values that stand for links in a JSON document: a response of the API, an array of links, or a link.
    ///
    /// # Errors
    /// A description of the expected documents.
    pub fn items(self, document: Value) -> Result<Vec<Value>, String> {
        let list = match self {
            Shortener::Shlink => "/shortUrls/data",
            Shortener::Yourls | Shortener::Bitly => "/links",
            Shortener::Kutt => "/data",
            Shortener::Csv => return Err("the file is JSON; expected CSV".to_owned()),
        };
        let listed = document.pointer(list).cloned();
        match (listed, document) {
            (Some(Value::Array(items)), _) | (None, Value::Array(items)) => Ok(items),
            // YOURLS names the links of its list.
            (Some(Value::Object(items)), _) => Ok(items.into_iter().map(|(_, item)| item).collect()),
            (None, item @ Value::Object(_)) => Ok(vec![item]),
            _ => Err(format!("the file has neither links of {} nor a list of them at {list}", self.as_str())),
        }
    }

    /// Translates a value into links. `number` counts the links of the source, and is advanced.
    pub fn links_of(self, item: &Value, number: &mut u64) -> Vec<FoundLink> {
        let Value::Object(fields) = item else {
            *number += 1;
            let link = Err(format!("is {}; expected an object with the fields of a link", kind_of(item)));
            return vec![FoundLink { number: *number, name: String::new(), link }];
        };
        let fields = SourceFields(fields);
        let (name, links) = match self {
            Shortener::Shlink | Shortener::Csv => (shlink_name(&fields), shlink(&fields).map(|link| vec![link])),
            Shortener::Yourls => (yourls_name(&fields), yourls(&fields).map(|link| vec![link])),
            Shortener::Bitly => (fields.text("id").unwrap_or_default().to_owned(), bitly(&fields)),
            Shortener::Kutt => {
                (fields.text("address").unwrap_or_default().to_owned(), kutt(&fields).map(|link| vec![link]))
            }
        };
        let mut found = |name: String, link| {
            *number += 1;
            FoundLink { number: *number, name, link }
        };
        match links {
            Ok(links) => links.into_iter().map(|link| found(link.name(), Ok(link))).collect(),
            Err(reason) => vec![found(name, Err(reason))],
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The fields of a link of another shortener.
struct SourceFields<'v>(&'v Map<String, Value>);

impl<'v> SourceFields<'v> {
    fn of(&self, name: &str) -> Option<&'v Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a text that is not empty.
    fn text(&self, name: &str) -> Option<&'v str> {
        self.of(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn needed(&self, name: &str) -> Result<String, String> {
        self.text(name).map(str::to_owned).ok_or_else(|| format!("{name} is missing"))
    }

    fn date(&self, name: &str) -> Result<Option<u64>, String> {
        match self.of(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => instant(name, text).map(Some),
            Some(Value::Number(number)) => instant(name, &number.to_string()).map(Some),
            Some(other) => Err(format!("{name} is {}; expected a date", kind_of(other))),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.of(name).map(|value| number_of(name, value)).transpose()
    }

    fn flag(&self, name: &str) -> Option<bool> {
        match self.of(name)? {
            Value::Bool(flag) => Some(*flag),
            // SQLite has no booleans.
            Value::Number(number) => Some(number.as_u64() != Some(0)),
            _ => None,
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let Some(value) = self.of(name) else { return Ok(Vec::new()) };
        let texts = value.as_array().map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        texts.flatten().ok_or_else(|| format!("{name} is {}; expected an array of texts", kind_of(value)))
    }

    fn part(&self, name: &str) -> Option<SourceFields<'v>> {
        self.of(name).and_then(Value::as_object).map(SourceFields)
    }
}

/// Parses a number of visits, which some shorteners write as a text.
fn number_of(name: &str, value: &Value) -> Result<u64, String> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    };
    number.ok_or_else(|| format!("{name} is {value}; expected a whole number"))
}

fn shlink_name(fields: &SourceFields<'_>) -> String {
    let slug = fields.text("shortCode").unwrap_or_default();
    fields.text("domain").map_or(slug.to_owned(), |domain| format!("{domain}/{slug}"))
}

/// Translates a short URL of Shlink's REST API, from version 3 on.
fn shlink(fields: &SourceFields<'_>) -> Result<MovedLink, String> {
    let empty = Map::new();
    let meta = fields.part("meta").unwrap_or(SourceFields(&empty));
    let visits = match fields.part("visitsSummary") {
        Some(summary) => match summary.number("total")? {
            Some(total) => Some((total, summary.number("bots")?.unwrap_or_default())),
            None => None,
        },
        None => fields.number("visitsCount")?.map(|total| (total, 0)),
    };
    let rules = match fields.of("redirectRules") {
        Some(Value::Array(rules)) => rules.clone(),
        _ => device_rules(fields),
    };
    let has_rules = fields.flag("hasRedirectRules") == Some(true) && fields.of("redirectRules").is_none();
    Ok(MovedLink {
        slug: fields.needed("shortCode")?,
        domain: fields.text("domain").map(str::to_owned),
        long_url: fields.needed("longUrl")?,
        created_ms: fields.date("dateCreated")?,
        since_ms: meta.date("validSince")?,
        until_ms: meta.date("validUntil")?,
        max_visits: meta.number("maxVisits")?,
        title: fields.text("title").map(str::to_owned),
        tags: fields.texts("tags")?,
        crawlable: fields.flag("crawlable").unwrap_or(false),
        forward_query: fields.flag("forwardQuery"),
        visits,
        rules,
        lost: has_rules.then_some("the file lacks its redirect rules; import them from the API"),
        ..MovedLink::default()
    })
}

/// Returns the destinations for devices, which Shlink 3.5 to 3.7 had instead of redirect rules.
fn device_rules(fields: &SourceFields<'_>) -> Vec<Value> {
    let Some(devices) = fields.part("deviceLongUrls") else { return Vec::new() };
    let rule = |device: &str| {
        let long_url = devices.text(device)?;
        let condition = json!({"type": "device", "matchKey": null, "matchValue": device});
        Some(json!({"longUrl": long_url, "conditions": [condition]}))
    };
    ["android", "ios", "desktop"].into_iter().filter_map(rule).collect()
}

fn yourls_name(fields: &SourceFields<'_>) -> String {
    fields.text("keyword").or(fields.text("shorturl")).unwrap_or_default().to_owned()
}

/// Translates a link of YOURLS: of `action=stats`, or a row of its table of links.
fn yourls(fields: &SourceFields<'_>) -> Result<MovedLink, String> {
    let (domain, slug) = match (fields.text("keyword"), fields.text("shorturl")) {
        (Some(keyword), _) => (None, keyword),
        (None, Some(url)) => match split_short_url(url) {
            Some((host, slug)) => (Some(host.to_owned()), slug),
            None => return Err(format!("shorturl is {url:?}; expected a URL with a keyword")),
        },
        (None, None) => return Err("keyword is missing".to_owned()),
    };
    Ok(MovedLink {
        slug: slug.to_owned(),
        domain,
        long_url: fields.needed("url")?,
        created_ms: fields.date("timestamp")?,
        title: fields.text("title").map(str::to_owned),
        visits: fields.number("clicks")?.map(|clicks| (clicks, 0)),
        ..MovedLink::default()
    })
}

/// Translates a bitlink. Its custom back-halves are short URLs of their own; the first one keeps the count of clicks.
fn bitly(fields: &SourceFields<'_>) -> Result<Vec<MovedLink>, String> {
    let id = fields.text("id").or(fields.text("link")).ok_or("id is missing")?;
    let mut names = fields.texts("custom_bitlinks")?;
    if !names.iter().any(|name| split_short_url(name) == split_short_url(id)) {
        names.push(id.to_owned());
    }
    let mut visits = fields.number("clicks")?.map(|clicks| (clicks, 0));
    let has_deep_links = fields.of("deeplinks").and_then(Value::as_array).is_some_and(|links| !links.is_empty());
    let mut links = Vec::new();
    for name in &names {
        let (host, slug) = split_short_url(name).ok_or_else(|| format!("id is {name:?}; expected a bitlink"))?;
        links.push(MovedLink {
            slug: slug.to_owned(),
            domain: Some(host.to_owned()),
            long_url: fields.needed("long_url")?,
            created_ms: fields.date("created_at")?,
            until_ms: fields.date("expiration_at")?,
            title: fields.text("title").map(str::to_owned),
            tags: fields.texts("tags")?,
            visits: visits.take(),
            lost: has_deep_links.then_some("carom has no deep links into apps"),
            ..MovedLink::default()
        });
    }
    Ok(links)
}

/// Translates a link of Kutt's API, version 2.
fn kutt(fields: &SourceFields<'_>) -> Result<MovedLink, String> {
    if fields.flag("banned") == Some(true) {
        return Err("is banned in Kutt".to_owned());
    }
    if fields.flag("password") == Some(true) || fields.text("password").is_some() {
        return Err("is protected by a password, which carom does not have".to_owned());
    }
    // The list of an admin names the default domain, and separates the thousands of a number.
    let is_of_default = fields.0.get("domain_id").is_some_and(Value::is_null);
    let visits = match fields.text("visit_count") {
        Some(text) => Some(number_of("visit_count", &Value::from(text.replace(',', "")))?),
        None => fields.number("visit_count")?,
    };
    Ok(MovedLink {
        slug: fields.needed("address")?,
        domain: fields.text("domain").filter(|_| !is_of_default).map(str::to_owned),
        long_url: fields.needed("target")?,
        created_ms: fields.date("created_at")?,
        until_ms: fields.date("expire_in")?,
        title: fields.text("description").map(str::to_owned),
        visits: visits.map(|visits| (visits, 0)),
        ..MovedLink::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(shortener: Shortener, document: Value) -> Vec<Result<MovedLink, String>> {
        let mut number = 0;
        let items = shortener.items(document).unwrap();
        items.iter().flat_map(|item| shortener.links_of(item, &mut number)).map(|found| found.link).collect()
    }

    #[test]
    fn shlink_keeps_everything_that_carom_has() {
        let page = json!({"shortUrls": {"data": [
            {"shortCode": "sale", "shortUrl": "https://go.example/sale", "longUrl": "https://example.org/",
             "dateCreated": "2026-01-02T03:04:05+00:00", "visitsSummary": {"total": 12, "nonBots": 9, "bots": 3},
             "tags": ["a", "b"], "meta": {"validSince": null, "validUntil": "2027-01-01T00:00:00+00:00", "maxVisits": 50},
             "domain": "go.example", "title": "Sale", "crawlable": true, "forwardQuery": false},
            {"shortCode": "old", "longUrl": "https://example.org/old", "visitsCount": 4, "hasRedirectRules": true,
             "deviceLongUrls": {"android": "https://example.org/android", "ios": null, "desktop": null}},
            {"shortCode": "none"},
            7
        ], "pagination": {"pagesCount": 1}}});
        let links = links(Shortener::Shlink, page);
        let sale = links[0].clone().unwrap();
        assert_eq!(
            (sale.name(), sale.visits, sale.max_visits),
            ("go.example/sale".to_owned(), Some((12, 3)), Some(50))
        );
        assert_eq!((sale.created_ms, sale.until_ms), (Some(1_767_323_045_000), Some(1_798_761_600_000)));
        assert_eq!((sale.tags, sale.crawlable, sale.forward_query), (vec!["a".into(), "b".into()], true, Some(false)));
        let old = links[1].clone().unwrap();
        assert_eq!((old.visits, old.rules.len(), old.lost.is_some()), (Some((4, 0)), 1, true));
        assert_eq!(links[2], Err("longUrl is missing".to_owned()));
        assert!(links[3].clone().unwrap_err().contains("a number"));
    }

    #[test]
    fn the_others_are_read_from_their_api() {
        let stats = json!({"links": {"link_1": {"shorturl": "http://sho.rt/abc", "url": "http://example.org/",
            "title": "T", "timestamp": "2026-01-02 03:04:05", "ip": "127.0.0.1", "clicks": "7"}},
            "stats": {"total_links": "1", "total_clicks": "7"}, "statusCode": 200, "message": "success"});
        let yourls = links(Shortener::Yourls, stats)[0].clone().unwrap();
        assert_eq!((yourls.name(), yourls.visits), ("sho.rt/abc".to_owned(), Some((7, 0))));
        let page = json!({"links": [{"created_at": "2026-01-02T03:04:05+0000", "id": "bit.ly/3abc",
            "link": "https://bit.ly/3abc", "custom_bitlinks": ["https://go.example/sale"], "clicks": 5,
            "long_url": "https://example.org/", "title": "T", "archived": false, "tags": ["x"], "deeplinks": []}]});
        let bitly: Vec<MovedLink> = links(Shortener::Bitly, page).into_iter().map(Result::unwrap).collect();
        let names: Vec<_> = bitly.iter().map(|link| (link.name(), link.visits)).collect();
        assert_eq!(names, [("go.example/sale".to_owned(), Some((5, 0))), ("bit.ly/3abc".to_owned(), None)]);
        let kutt = |changes: Value| {
            let mut link = json!({"id": "a-b", "address": "abc", "target": "https://example.org/", "password": false,
                "banned": false, "visit_count": 3, "created_at": "2026-01-02T03:04:05.000Z", "domain": null,
                "expire_in": "2027-01-01T00:00:00.000Z", "description": "D", "link": "https://kutt.example/abc"});
            link.as_object_mut().unwrap().append(&mut changes.as_object().unwrap().clone());
            links(Shortener::Kutt, json!({"total": 1, "data": [link]}))[0].clone()
        };
        let plain = kutt(json!({})).unwrap();
        assert_eq!((plain.title.as_deref(), plain.visits, plain.domain), (Some("D"), Some((3, 0)), None));
        let of_admin = |domain_id: Value| {
            let link =
                kutt(json!({"domain_id": domain_id, "domain": "kutt.example", "visit_count": "1,234,567"})).unwrap();
            (link.domain, link.visits)
        };
        assert_eq!(of_admin(json!(null)), (None, Some((1_234_567, 0))));
        assert_eq!(of_admin(json!(7)), (Some("kutt.example".to_owned()), Some((1_234_567, 0))));
        assert!(kutt(json!({"password": true})).unwrap_err().contains("password"));
        assert!(kutt(json!({"banned": true})).unwrap_err().contains("banned"));
        assert!(kutt(json!({"visit_count": -1})).unwrap_err().contains("visit_count is -1"));
    }

    #[test]
    fn documents_of_other_kinds_are_refused() {
        assert!(Shortener::Shlink.items(json!("x")).unwrap_err().contains("/shortUrls/data"));
        assert!(Shortener::Csv.items(json!([])).is_err());
        assert_eq!(Shortener::Kutt.items(json!([{}, {}])).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn any_values_of_known_fields_are_taken_or_refused(
            name in proptest::sample::select(vec!["shortCode", "longUrl", "meta", "tags", "visitsSummary", "deviceLongUrls",
                "redirectRules", "keyword", "shorturl", "clicks", "timestamp", "id", "custom_bitlinks", "address", "expire_in"]),
            value in proptest::sample::select(vec![json!(null), json!(-1), json!(1e300), json!("x"), json!(""), json!([1]),
                json!({"android": 1}), json!(true), json!([{"id": null}]), json!({"total": "9", "bots": {}})]),
        ) {
            let mut item = json!({"shortCode": "a", "longUrl": "b", "keyword": "c", "url": "d", "id": "e/f", "long_url": "g",
                "address": "h", "target": "i"});
            item[name] = value;
            for shortener in Shortener::ALL {
                prop_assert!(!shortener.links_of(&item, &mut 0).is_empty());
            }
        }
    }
}
