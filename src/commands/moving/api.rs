//! Links from the APIs of Shlink, YOURLS, Bitly and Kutt, page by page.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

use super::http::{ApiClient, ApiFailure, KeyHeader, escaped};
use super::shorteners::Shortener;
use super::source::{FoundLink, MovingSource};

/// Address of Bitly's API.
const BITLY: &str = "https://api-ssl.bitly.com";

/// Links that a request asks for. Kutt has no longer pages than 50, and Bitly than 100.
const SHLINK_PAGE: u64 = 500;
const YOURLS_PAGE: u64 = 500;
const BITLY_PAGE: u64 = 100;
const KUTT_PAGE: u64 = 50;

/// The paths of the lists of links of Kutt, up to further parameters. The first path exists from Kutt 3 on: it lists the links
/// of all users, for admins only. The second path lists the links of the user; Kutt 2 takes `all` there, and lists the links
/// of all users to admins.
const KUTT_LISTS: [&str; 2] = ["/api/v2/links/admin?", "/api/v2/links?all=true&"];

/// Links of YOURLS that are remembered, to notice those that come twice: about 75 MB.
const YOURLS_SEEN_MAX: usize = 1 << 22;

/// Returns the links of a shortener's API. `url` is the address of the service; Bitly has its own.
///
/// # Errors
/// A description of what is missing.
pub fn source(shortener: Shortener, url: Option<&str>, key: &str) -> Result<Box<dyn MovingSource>, String> {
    let url = match (url, shortener) {
        (Some(url), _) if url.starts_with("http://") || url.starts_with("https://") => url,
        (Some(url), _) => {
            return Err(format!("invalid value for --url: {url}; expected an http:// or https:// address"));
        }
        (None, Shortener::Bitly) => BITLY,
        (None, _) => {
            return Err(format!("--from {} needs a file, or the address of its API with --url", shortener.as_str()));
        }
    };
    let client = |header| ApiClient::new(url, Some((header, key)));
    let counter = LinkCounter { shortener, number: 0, repeated: 0, announced: None };
    Ok(match shortener {
        Shortener::Shlink => Box::new(ShlinkApi {
            client: client(KeyHeader::Named("X-Api-Key")),
            counter,
            page: 1,
            pages: 1,
            previous: HashSet::new(),
        }),
        Shortener::Yourls => {
            let (seen, hasher) = (HashSet::new(), RandomState::new());
            Box::new(YourlsApi {
                client: ApiClient::new(url, None),
                key: key.to_owned(),
                counter,
                start: 0,
                seen,
                hasher,
            })
        }
        Shortener::Bitly => Box::new(BitlyApi {
            client: client(KeyHeader::Bearer),
            counter,
            groups: None,
            after: String::new(),
            has_clicks: true,
        }),
        Shortener::Kutt => {
            let [list, others @ ..] = KUTT_LISTS;
            let others = VecDeque::from(others);
            Box::new(KuttApi { client: client(KeyHeader::Named("X-API-KEY")), counter, list, others, skip: 0 })
        }
        Shortener::Csv => return Err("--from csv needs a file".to_owned()),
    })
}

/// Counts the links of an API, to compare with the number that it announces.
struct LinkCounter {
    shortener: Shortener,
    /// Links so far, with those that came again.
    number: u64,
    repeated: u64,
    announced: Option<u64>,
}

impl LinkCounter {
    fn links_of(&mut self, items: &[Value]) -> Vec<FoundLink> {
        items.iter().flat_map(|item| self.shortener.links_of(item, &mut self.number)).collect()
    }

    fn remark(&self) -> Option<String> {
        let returned = self.number.saturating_sub(self.repeated);
        let announced = self.announced.filter(|announced| *announced > returned)?;
        Some(format!(
            "the API announced {announced} links and returned {returned}; links were deleted or created meanwhile, so run the import again"
        ))
    }
}

fn reason_of(failure: ApiFailure) -> String {
    failure.reason
}

/// Returns the items of a response, which must have a list of them.
fn items(shortener: Shortener, pointer: &str, page: &Value) -> Result<Vec<Value>, String> {
    match page.pointer(pointer) {
        Some(_) => shortener.items(page.clone()),
        None => Err(format!("the API answers without {pointer}; check the address of the API")),
    }
}

struct ShlinkApi {
    client: ApiClient,
    counter: LinkCounter,
    page: u64,
    pages: u64,
    /// The short URLs of the previous page, each with its domain and its code.
    previous: HashSet<(String, String)>,
}

impl MovingSource for ShlinkApi {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        if self.page > self.pages {
            return Ok(None);
        }
        // Shlink sorts by one field alone, and many links have the same date. A database may sort them in another way for
        // each page, so some would come twice and others never. Codes differ, but for those of several domains.
        let path = format!("/rest/v3/short-urls?page={}&itemsPerPage={SHLINK_PAGE}&orderBy=shortCode-ASC", self.page);
        let page = self.client.get(&path).map_err(reason_of)?;
        let mut items = items(Shortener::Shlink, "/shortUrls/data", &page)?;
        let number = |name: &str| page.pointer(&format!("/shortUrls/pagination/{name}")).and_then(Value::as_u64);
        self.pages = number("pagesCount").ok_or("the API answers without pagination; check the address of the API")?;
        self.counter.announced = number("totalItems");
        self.page += 1;
        // A link that was created meanwhile moves others to the next page. The counter would count them twice.
        let shown: HashSet<(String, String)> = items.iter().filter_map(short_url_of).collect();
        items.retain(|item| short_url_of(item).is_none_or(|name| !self.previous.contains(&name)));
        self.previous = shown;
        for item in &mut items {
            if item["hasRedirectRules"] == true {
                item["redirectRules"] = self.rules_of(item)?;
            }
        }
        Ok(Some(self.counter.links_of(&items)))
    }

    fn remark(&self) -> Option<String> {
        self.counter.remark()
    }
}

impl ShlinkApi {
    fn rules_of(&self, item: &Value) -> Result<Value, String> {
        let code = escaped(item["shortCode"].as_str().unwrap_or_default());
        let domain = item["domain"].as_str().map_or(String::new(), |domain| format!("?domain={}", escaped(domain)));
        let mut answer =
            self.client.get(&format!("/rest/v3/short-urls/{code}/redirect-rules{domain}")).map_err(reason_of)?;
        Ok(answer["redirectRules"].take())
    }
}

/// Returns the domain and the code of a short URL of Shlink.
fn short_url_of(item: &Value) -> Option<(String, String)> {
    let text = |name: &str| item[name].as_str().map(str::to_owned);
    Some((text("domain").unwrap_or_default(), text("shortCode")?))
}

struct YourlsApi {
    client: ApiClient,
    key: String,
    counter: LinkCounter,
    start: u64,
    /// Hashes of the short URLs so far.
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl MovingSource for YourlsApi {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        let (limit, start) = (YOURLS_PAGE.to_string(), self.start.to_string());
        let form = [
            ("action", "stats"),
            ("filter", "last"),
            ("format", "json"),
            ("limit", &limit),
            ("start", &start),
            ("signature", &self.key),
        ];
        let page = self.client.post_form("/yourls-api.php", &form).map_err(reason_of)?;
        let total = page.pointer("/stats/total_links");
        let total = total.and_then(|total| total.as_u64().or_else(|| total.as_str()?.parse().ok()));
        self.counter.announced = Some(total.ok_or("the API answers without stats; check the address of the API")?);
        // The last page has no list at all.
        let items = if page["links"].is_null() { Vec::new() } else { Shortener::Yourls.items(page)? };
        self.start += items.len() as u64;
        self.count_repeated(&items);
        Ok(if items.is_empty() { None } else { Some(self.counter.links_of(&items)) })
    }

    fn remark(&self) -> Option<String> {
        self.counter.remark()
    }
}

impl YourlsApi {
    /// Counts the links that have come before. YOURLS sorts by date alone, so links of one second may be on two pages, and
    /// others on none.
    fn count_repeated(&mut self, items: &[Value]) {
        for url in items.iter().filter_map(|item| item["shorturl"].as_str()) {
            if self.seen.len() < YOURLS_SEEN_MAX && !self.seen.insert(self.hasher.hash_one(url)) {
                self.counter.repeated += 1;
            }
        }
    }
}

struct BitlyApi {
    client: ApiClient,
    counter: LinkCounter,
    groups: Option<VecDeque<String>>,
    /// The place in the current group; empty at its start.
    after: String,
    /// False once the plan of the account turned out to have no counts of clicks.
    has_clicks: bool,
}

impl MovingSource for BitlyApi {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        if self.groups.is_none() {
            let answer = self.client.get("/v4/groups").map_err(reason_of)?;
            let groups =
                answer["groups"].as_array().ok_or("the API answers without groups; check the address of the API")?;
            self.groups = Some(groups.iter().filter_map(|group| group["guid"].as_str().map(str::to_owned)).collect());
        }
        let Some(group) = self.groups.as_ref().and_then(|groups| groups.front()) else { return Ok(None) };
        let after =
            if self.after.is_empty() { String::new() } else { format!("&search_after={}", escaped(&self.after)) };
        let path = format!("/v4/groups/{}/bitlinks?size={BITLY_PAGE}&archived=both{after}", escaped(group));
        let page = self.client.get(&path).map_err(reason_of)?;
        let mut items = items(Shortener::Bitly, "/links", &page)?;
        self.after = page.pointer("/pagination/search_after").and_then(Value::as_str).unwrap_or_default().to_owned();
        if self.after.is_empty() {
            self.groups.as_mut().and_then(VecDeque::pop_front);
        }
        for item in &mut items {
            self.count_clicks(item)?;
        }
        Ok(Some(self.counter.links_of(&items)))
    }

    fn remark(&self) -> Option<String> {
        let what = "the plan of the Bitly account has no counts of clicks in the API, so visits start at zero";
        (!self.has_clicks).then(|| what.to_owned())
    }
}

impl BitlyApi {
    /// Adds the number of clicks to a bitlink.
    fn count_clicks(&mut self, item: &mut Value) -> Result<(), String> {
        let Some(id) = item["id"].as_str().filter(|_| self.has_clicks) else { return Ok(()) };
        match self.client.get(&format!("/v4/bitlinks/{}/clicks/summary?unit=month&units=-1", escaped(id))) {
            Ok(answer) => item["clicks"] = answer["total_clicks"].clone(),
            Err(ApiFailure { status: Some(402 | 403), .. }) => self.has_clicks = false,
            Err(failure) => return Err(reason_of(failure)),
        }
        Ok(())
    }
}

struct KuttApi {
    client: ApiClient,
    counter: LinkCounter,
    /// The current one of [`KUTT_LISTS`], and those to try if the service does not have it.
    list: &'static str,
    others: VecDeque<&'static str>,
    skip: u64,
}

impl MovingSource for KuttApi {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        let page = loop {
            match (
                self.client.get(&format!("{}limit={KUTT_PAGE}&skip={}", self.list, self.skip)),
                self.others.pop_front(),
            ) {
                (Ok(page), _) => break page,
                // A page that is not JSON, or a refusal.
                (Err(ApiFailure { status: Some(200 | 400..=404), .. }), Some(other)) => self.list = other,
                (Err(failure), _) => return Err(reason_of(failure)),
            }
        };
        self.others.clear();
        let items = items(Shortener::Kutt, "/data", &page)?;
        self.counter.announced = page["total"].as_u64();
        self.skip += items.len() as u64;
        Ok(if items.is_empty() { None } else { Some(self.counter.links_of(&items)) })
    }

    fn remark(&self) -> Option<String> {
        self.counter.remark()
    }
}
