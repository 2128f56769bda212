//! Purges: `DELETE /rest/v3/short-urls/{shortCode}?purge=true`, `POST /rest/v3/purges` and
//! `GET /rest/v3/purges/{purgeId}`.
//!
//! A purge begins before its links are deleted, and runs even if some deletes fail: it leaves out links that still exist.
//! So every link that a request deletes is purged, also if the request ends early. In a shared home, a thread of the node
//! looks for the links of `POST /rest/v3/purges` and deletes them, after the response.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::bulk::matching::{CONFIRMED_MAX, SAMPLE_LEN};
use super::describe::ShortUrl;
use super::list::filter_within;
use super::short_urls::{read_object, write_failed};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::bridge::handle::LongKind;
use crate::bridge::{
    DeleteAnswer, EndedAnswer, ListRequest, PurgeAnswer, PurgeFailure, PurgeNode, PurgeOrder, PurgeProgress, PurgeSite,
    PurgeStep, SelectionProgress, StoreRequest, Ticket,
};
use carom_limits::{BULK_CHUNK_LINES, BULK_COUNT_TIME_MAX, LIST_PER_PAGE_MAX, PURGE_LINKS_MAX, SEARCH_TERM_MAX};
use carom_model::access::{AppName, Role};
use carom_model::destination::long_url::LongUrl;
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::link::labels::Tags;
use carom_model::purge::selection::PurgeSelection;
use carom_model::purge::{EndedPage, EndedPlace, EndedSelector, PurgeId, PurgedLink, without_repeats};
use carom_model::query::{Filter, UnreadableIndex};
use carom_model::visits::tally::VisitCounts;
use carom_shards::DomainId;

/// The field with the number of links that the client has seen.
const CONFIRM: &str = "confirm";

/// The links that a request selects.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PurgeSelector {
    /// The links of a domain, also of one that the service no longer serves.
    Domain(String),
    App(AppName),
    Tag(String),
    /// The destinations that begin with one of these texts, which are spellings of one prefix.
    Destination(Vec<String>),
}

/// A checked request to purge links.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PurgeRequest {
    selector: PurgeSelector,
    confirmed: Option<u64>,
}

/// Answer to a request without `confirm`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PurgeMatches<'a> {
    /// Links that match.
    count: u64,
    /// The oldest of them.
    sample: Vec<ShortUrl<'a>>,
    /// Links that were deleted before and match, as many as a purge may have at most.
    deleted_before: u64,
}

/// Answer to a request with `confirm`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PurgeBegun {
    /// Links that were deleted, and are being purged.
    deleted: u64,
    /// Links that could not be deleted.
    failed: u64,
    /// Links that match and wait for another request.
    left: u64,
    /// Links that were deleted before, and are being purged.
    deleted_before: u64,
    /// The purge; null if no link matches.
    purge: Option<ShownPurge>,
}

impl PurgeBegun {
    /// The answer of a request that has deleted no link: none matches, or the node has yet to find them.
    fn with_none_deleted(purge: Option<ShownPurge>) -> PurgeBegun {
        PurgeBegun { deleted: 0, failed: 0, left: 0, deleted_before: 0, purge }
    }
}

/// A purge in the API.
#[derive(Serialize)]
struct ShownPurge {
    id: String,
    date: String,
    links: usize,
    complete: bool,
    nodes: Vec<ShownNode>,
    sites: Vec<ShownSite>,
    step: Option<ShownStep>,
    error: Option<String>,
    selection: Option<ShownSelection>,
}

/// The search for the links of a purge in a shared home, in the API.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownSelection {
    only_counts: bool,
    examined: u64,
    matched: u64,
    unreadable: u64,
    deleted_before: u64,
    ended: bool,
    stopped: Option<String>,
}

/// A node and its part in a purge.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownNode {
    node: String,
    complete: bool,
    silent_since: Option<String>,
}

/// A site and its part in a purge.
#[derive(Serialize)]
struct ShownSite {
    site: String,
    complete: bool,
}

/// The work of the answering node on a purge.
#[derive(Serialize)]
struct ShownStep {
    what: &'static str,
    since: String,
}

impl ShownPurge {
    fn of(progress: PurgeProgress) -> ShownPurge {
        let PurgeProgress { id, at_ms, links, is_complete, nodes, sites, step, error, selection } = progress;
        let shown = |PurgeNode { node, is_complete, silent_since_ms }| ShownNode {
            node,
            complete: is_complete,
            silent_since: silent_since_ms.map(dates::format),
        };
        let nodes = nodes.into_iter().map(shown).collect();
        let shown = |PurgeSite { site, is_complete }| ShownSite { site, complete: is_complete };
        let sites = sites.into_iter().map(shown).collect();
        let step = step.map(|PurgeStep { what, since_ms }| ShownStep { what, since: dates::format(since_ms) });
        let (id, date) = (id.to_string(), dates::format(at_ms));
        let selection = selection.map(ShownSelection::of);
        ShownPurge { id, date, links, complete: is_complete, nodes, sites, step, error, selection }
    }
}

impl ShownSelection {
    fn of(progress: SelectionProgress) -> ShownSelection {
        let SelectionProgress { only_counts, examined, matched, unreadable, deleted_before, has_ended, stopped } =
            progress;
        ShownSelection { only_counts, examined, matched, unreadable, deleted_before, ended: has_ended, stopped }
    }
}

impl PurgeSelector {
    /// The fields of a request, of which it has one.
    const FIELDS: [&str; 4] = ["domain", "app", "tag", "destination"];

    fn read(field: &str, value: &str) -> Result<PurgeSelector, Invalid> {
        let refused = |reason: String| Invalid::value(field, &reason, &value.into());
        match field {
            "domain" => Ok(PurgeSelector::Domain(value.to_owned())),
            "app" => AppName::parse(value).map(PurgeSelector::App).map_err(|error| refused(error.to_string())),
            "tag" => {
                let tag = value.trim();
                Tags::of([tag]).map_err(|error| refused(error.to_string()))?;
                Ok(PurgeSelector::Tag(tag.to_owned()))
            }
            _ => {
                let text = value.trim_matches(' ');
                if !begins_like_destination(text) {
                    let reason = "must be a URL or the beginning of one, such as https://a.example/";
                    return Err(Invalid::new(field, reason));
                }
                let mut spellings = vec![text.to_owned()];
                spellings.extend(LongUrl::parse(text, &[]).ok().map(|url| url.as_str().to_owned()));
                Ok(PurgeSelector::Destination(spellings))
            }
        }
    }

    /// Returns the parameters of a list that has the links.
    fn params(&self) -> Params {
        match self {
            PurgeSelector::Domain(name) => Params::single("domain", name),
            PurgeSelector::App(name) => Params::single("app", name.as_str()),
            PurgeSelector::Tag(tag) => Params::single("tags[]", tag),
            PurgeSelector::Destination(spellings) => {
                let term: String = spellings[0].chars().take(SEARCH_TERM_MAX).collect();
                Params::single("searchTerm", &term)
            }
        }
    }

    /// Returns the selection among links that were deleted before, or that are in a shared home; `None` if it can have none.
    /// `domain_named` returns the ID of a domain.
    fn of_ended(&self, domain_named: impl Fn(&str) -> Option<Option<DomainId>>) -> Option<EndedSelector> {
        Some(match self {
            PurgeSelector::Domain(name) => EndedSelector::Domain(domain_named(name)?),
            PurgeSelector::App(name) => EndedSelector::App(name.clone()),
            PurgeSelector::Tag(tag) => EndedSelector::Tag(Tags::of([tag.as_str()]).ok()?.iter().next()?.to_owned()),
            PurgeSelector::Destination(spellings) => EndedSelector::Destination(spellings.clone()),
        })
    }

    /// True if a link of that list is selected.
    fn has(&self, link: &Link) -> bool {
        let PurgeSelector::Destination(spellings) = self else { return true };
        spellings.iter().any(|prefix| link.target.starts_with(prefix.as_str()))
    }

    /// True if the count of the list is the count of the links.
    fn is_list(&self) -> bool {
        !matches!(self, PurgeSelector::Destination(_))
    }
}

impl PurgeRequest {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// Every field that is invalid, with the reason.
    fn read(fields: &Map<String, Value>) -> Result<PurgeRequest, Vec<Invalid>> {
        let is_known = |name: &str| name == CONFIRM || PurgeSelector::FIELDS.contains(&name);
        let unknown = fields.keys().filter(|name| !is_known(name));
        let mut invalid: Vec<Invalid> = unknown.map(|name| Invalid::new(name, "is not a known field")).collect();
        let mut selectors = Vec::new();
        for field in PurgeSelector::FIELDS {
            match fields.get(field) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if !text.is_empty() => selectors.push((field, text)),
                Some(other) => invalid.push(Invalid::value(field, "must be a text that is not empty", other)),
            }
        }
        let confirmed = match fields.get(CONFIRM) {
            None | Some(Value::Null) => None,
            Some(value) => {
                let number = value.as_u64().filter(|number| *number <= CONFIRMED_MAX);
                if number.is_none() {
                    let reason = format!("must be a whole number from 0 to {CONFIRMED_MAX}");
                    invalid.push(Invalid::value(CONFIRM, &reason, value));
                }
                number
            }
        };
        let selector = match selectors[..] {
            [(field, text)] => PurgeSelector::read(field, text).map_err(|wrong| invalid.push(wrong)).ok(),
            [] => {
                let expected = PurgeSelector::FIELDS.join(", ");
                if invalid.is_empty() {
                    invalid.push(Invalid::new("domain", format!("is missing; expected one of {expected}")));
                }
                None
            }
            [(first, _), ..] => {
                let others = selectors[1..].iter();
                invalid.extend(others.map(|(field, _)| Invalid::new(*field, format!("excludes {first}"))));
                None
            }
        };
        match selector {
            Some(selector) if invalid.is_empty() => Ok(PurgeRequest { selector, confirmed }),
            _ => Err(invalid),
        }
    }
}

impl Context {
    /// Handles `DELETE /rest/v3/short-urls/{shortCode}?purge=true`: deletes a link and purges it.
    pub(in crate::api) async fn purge_link(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_purge_link(code, query).await {
            Ok(progress) => json_answer(StatusCode::ACCEPTED, &ShownPurge::of(progress)),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_purge_link(&self, code: &str, query: Option<&str>) -> Result<PurgeProgress, Problem> {
        let (link, _) = self.find_in(code, query).await?;
        let links = vec![PurgedLink::of(&link)];
        let begun = self.order_purge(|ticket| PurgeOrder::Begin { links, ticket }).await?;
        // A later link of the code is in no purge.
        let (code, by, author) = (link.code, self.caller.scope().only(link.identity()), self.author());
        let answer = self.services.store(|ticket| StoreRequest::Delete { code, by, author, ticket }).await;
        let run = self.run_purge(begun.id).await;
        match answer {
            DeleteAnswer::Deleted => run,
            DeleteAnswer::NotFound => {
                let slug = code.as_slug().to_string();
                Err(Problem::no_link(&slug).on_domain(Params::of(query).text("domain")))
            }
            DeleteAnswer::Failed(failure) => Err(write_failed(&failure)),
        }
    }

    /// Handles `POST /rest/v3/purges`: counts links, or deletes and purges them.
    pub(in crate::api) async fn create_purge(&self, request: Request<Incoming>) -> ApiResponse {
        self.try_create_purge(request).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_create_purge(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        self.caller.require(Role::WriteAll)?;
        let fields = read_object(&self.services, request).await?;
        let PurgeRequest { selector, confirmed } =
            PurgeRequest::read(&fields).map_err(|invalid| Problem::invalid(&invalid))?;
        if !self.services.stores_all_links() {
            return self.select_in_home(&selector, confirmed).await;
        }
        let (count, links) = self.selected(&selector).await?;
        let ended = self.ended(&selector).await?;
        let Some(confirmed) = confirmed else {
            let describer = self.describer();
            let sample = links.iter().take(SAMPLE_LEN);
            let sample = sample.map(|link| describer.describe(link, VisitCounts::default())).collect();
            let deleted_before = ended.len() as u64;
            return Ok(json_answer(StatusCode::OK, &PurgeMatches { count, sample, deleted_before }));
        };
        if count > confirmed {
            return Err(Problem::more_links_match(confirmed, count));
        }
        if links.is_empty() && ended.is_empty() {
            return Ok(json_answer(StatusCode::OK, &PurgeBegun::with_none_deleted(None)));
        }
        let long = self.services.begin_long(LongKind::Bulk, self.caller.name());
        let _long = long.map_err(|too_many| Problem::too_many_long("bulk requests", too_many))?;
        let mut listed: Vec<PurgedLink> = links.iter().map(|link| PurgedLink::of(link)).collect();
        listed.extend(ended.into_iter().take(PURGE_LINKS_MAX - links.len()));
        let deleted_before = (listed.len() - links.len()) as u64;
        let begun = self.order_purge(|ticket| PurgeOrder::Begin { links: listed, ticket }).await?;
        let deleted = self.delete_all(&links).await;
        let run = self.run_purge(begun.id).await?;
        let purge = Some(ShownPurge::of(run));
        let (failed, left) = (links.len() as u64 - deleted, count.saturating_sub(links.len() as u64));
        Ok(json_answer(StatusCode::ACCEPTED, &PurgeBegun { deleted, failed, left, deleted_before, purge }))
    }

    /// Orders the node to read all links of a shared home, and to purge or count those that a request selects. That may
    /// take hours, so the response does not wait for it.
    async fn select_in_home(&self, selector: &PurgeSelector, confirmed: Option<u64>) -> Result<ApiResponse, Problem> {
        let Some(selector) = selector.of_ended(|name| self.domain_named(name)) else {
            return Ok(json_answer(StatusCode::OK, &PurgeBegun::with_none_deleted(None)));
        };
        let selection = PurgeSelection { selector, scope: self.caller.scope(), confirmed };
        let begun = self.order_purge(|ticket| PurgeOrder::Select { selection, ticket }).await?;
        Ok(json_answer(StatusCode::ACCEPTED, &PurgeBegun::with_none_deleted(Some(ShownPurge::of(begun)))))
    }

    /// Returns the number of links that a request selects, and the oldest of them, as many as a purge may have.
    async fn selected(&self, selector: &PurgeSelector) -> Result<(u64, Vec<Arc<Link>>), Problem> {
        let (filter, has_any) = self.filter_of(selector)?;
        if !has_any {
            return Ok((0, Vec::new()));
        }
        let began_ms = self.services.unix_ms();
        let (mut count, mut links, mut cursor) = (0, Vec::new(), None);
        loop {
            let page = self.matching(filter.clone(), LIST_PER_PAGE_MAX, cursor).await?;
            for link in page.links.iter().filter(|link| selector.has(link)) {
                count += 1;
                if links.len() < PURGE_LINKS_MAX {
                    links.push(Arc::clone(link));
                }
            }
            if selector.is_list() && page.complete && links.len() >= PURGE_LINKS_MAX {
                return Ok((page.total.max(count), links));
            }
            let Some(next) = page.next else { return Ok((count, links)) };
            if self.services.unix_ms().saturating_sub(began_ms) > BULK_COUNT_TIME_MAX.as_millis() as u64 {
                return Err(Problem::unavailable(format!(
                    "The links could not be counted within {} s. Name a longer beginning of their destinations, or purge by tag.",
                    BULK_COUNT_TIME_MAX.as_secs()
                )));
            }
            cursor = Some(next);
        }
    }

    /// Returns the links that a request selects among those that were deleted or have expired before, as far as the node still
    /// has their history, their events, or their texts in the search index: as many as a purge may have, and as can be found
    /// in the time for a count.
    async fn ended(&self, selector: &PurgeSelector) -> Result<Vec<PurgedLink>, Problem> {
        let Some(selector) = selector.of_ended(|name| self.domain_named(name)) else { return Ok(Vec::new()) };
        let (scope, began_ms) = (self.caller.scope(), self.services.unix_ms());
        let (mut links, mut from) = (Vec::new(), EndedPlace::default());
        loop {
            let selector = selector.clone();
            let asked = self.services.list(|ticket| ListRequest::Ended { selector, from, ticket }).await;
            let found: EndedAnswer =
                asked.map_err(|why| Problem::unavailable(format!("No links can be found now: {why}.")))?;
            let unreadable = |UnreadableIndex| Problem::unavailable("The histories of deleted links cannot be read.");
            let EndedPage { links: more, next } = found.map_err(unreadable)?;
            links.extend(more.into_iter().filter(|link| scope.has_domain(link.code.domain())));
            links = without_repeats(links);
            links.truncate(PURGE_LINKS_MAX);
            let is_late = self.services.unix_ms().saturating_sub(began_ms) > BULK_COUNT_TIME_MAX.as_millis() as u64;
            match next {
                Some(next) if links.len() < PURGE_LINKS_MAX && !is_late => from = next,
                _ => return Ok(links),
            }
        }
    }

    /// Returns the filter of a list with the links that a request selects. The second value is true if any can match.
    fn filter_of(&self, selector: &PurgeSelector) -> Result<(Filter, bool), Problem> {
        let mut params = selector.params();
        let narrowed = |name: &str, scope| self.narrowed(scope, name);
        let (filter, has_any) = filter_within(&mut params, &self.caller.scope(), narrowed, self.domains());
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        // The term is the beginning of a destination, so the domains of links do not matter.
        Ok((Filter { term_domains: Vec::new(), ..filter }, has_any))
    }

    /// Deletes links. Returns the number of those that are deleted.
    async fn delete_all(&self, links: &[Arc<Link>]) -> u64 {
        let mut deleted = 0;
        let (scope, author) = (self.caller.scope(), self.author());
        for some in links.chunks(BULK_CHUNK_LINES) {
            let answers = self.services.store_all(some.len(), |at, ticket| StoreRequest::Delete {
                code: some[at].code,
                // Since the links were listed, a code may have got another one, which is in no purge.
                by: scope.clone().only(some[at].identity()),
                author: author.clone(),
                ticket,
            });
            deleted += answers.await.into_iter().filter(|answer| *answer == DeleteAnswer::Deleted).count() as u64;
        }
        deleted
    }

    /// Begins a purge. Returns its progress.
    async fn order_purge(
        &self,
        order: impl FnOnce(Ticket<PurgeAnswer>) -> PurgeOrder,
    ) -> Result<PurgeProgress, Problem> {
        let progress = self.services.purge(order).await.map_err(|failure| not_begun(&failure))?;
        progress.ok_or_else(|| not_begun(&PurgeFailure::Refused("the node no longer knows the purge".to_owned())))
    }

    /// Runs a purge whose links have been deleted. A purge that gets no such order runs later by itself.
    async fn run_purge(&self, id: PurgeId) -> Result<PurgeProgress, Problem> {
        let unconfirmed = |why: &str| {
            Problem::in_doubt(format!(
                "Links were deleted, and the purge {id} cannot be confirmed: {why}. The node repeats it; read the purge for its progress."
            ))
        };
        let progress = self.services.purge(|ticket| PurgeOrder::Run { id, ticket }).await;
        progress.map_err(|why| unconfirmed(&why.to_string()))?.ok_or_else(|| unconfirmed("the node no longer knows it"))
    }

    /// Handles `GET /rest/v3/purges/{purgeId}`: shows how far a purge has come.
    pub(in crate::api) async fn read_purge(&self, id: &str) -> ApiResponse {
        let Some(number) = PurgeId::parse(id) else { return Problem::no_purge(id).into_answer() };
        match self.services.purge(|ticket| PurgeOrder::Read { id: number, ticket }).await {
            Ok(Some(progress)) => json_answer(StatusCode::OK, &ShownPurge::of(progress)),
            Ok(None) => Problem::no_purge(id).into_answer(),
            Err(why) => Problem::unavailable(format!("The purge cannot be read now: {why}.")).into_answer(),
        }
    }
}

/// Returns the response to an order to begin a purge, if the thread has not carried it out.
fn not_begun(failure: &PurgeFailure) -> Problem {
    match failure {
        PurgeFailure::Refused(why) => Problem::unavailable(format!("Links cannot be purged now: {why}.")),
        PurgeFailure::Unconfirmed(why) => Problem::in_doubt(format!(
            "The purge cannot be confirmed: {why}. The node may still purge the links. Look which of them are left before you try again."
        )),
    }
}

/// True if a destination may begin with this text: a scheme of the web, and at least one character of a host.
fn begins_like_destination(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_of_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_of_web && !rest.is_empty() && !rest.starts_with(' ') && !rest.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Origin;
    use carom_model::testing::link;

    fn read(text: &str) -> Result<PurgeRequest, Vec<String>> {
        let fields: Map<String, Value> = serde_json::from_str(text).unwrap();
        PurgeRequest::read(&fields).map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn a_late_purge_may_still_begin() {
        let late = not_begun(&PurgeFailure::Unconfirmed("nobody answered")).detail();
        assert!(late.starts_with("The purge cannot be confirmed: nobody answered. "), "{late}");
        let full = not_begun(&PurgeFailure::Refused("it is full".to_owned())).detail();
        assert_eq!(full, "Links cannot be purged now: it is full.");
    }

    #[test]
    fn requests_have_one_selector() {
        let tag = PurgeSelector::Tag("a b".to_owned());
        assert_eq!(read(r#"{"tag": " a b "}"#), Ok(PurgeRequest { selector: tag.clone(), confirmed: None }));
        assert_eq!(read(r#"{"tag": "a b", "confirm": 7}"#), Ok(PurgeRequest { selector: tag, confirmed: Some(7) }));
        let app = PurgeSelector::App(AppName::parse("shop").unwrap());
        assert_eq!(read(r#"{"app": "shop", "tag": null}"#), Ok(PurgeRequest { selector: app, confirmed: None }));
        for (text, fields) in [
            ("{}", &["domain"][..]),
            (r#"{"confirm": 1}"#, &["domain"]),
            (r#"{"tag": "a", "app": "b"}"#, &["tag"]),
            (r#"{"domain": "a", "app": "b", "tag": "c"}"#, &["app", "tag"]),
            (r#"{"tag": ""}"#, &["tag"]),
            (r#"{"tag": " "}"#, &["tag"]),
            (r#"{"tag": "a\nb"}"#, &["tag"]),
            (r#"{"tag": 7}"#, &["tag"]),
            (r#"{"domain": ""}"#, &["domain"]),
            (r#"{"app": "Shop"}"#, &["app"]),
            (r#"{"app": " shop"}"#, &["app"]),
            (r#"{"tag": "a", "confirm": -1}"#, &["confirm"]),
            (r#"{"tag": "a", "confirm": "1"}"#, &["confirm"]),
            (r#"{"tag": "a", "shortCode": "b"}"#, &["shortCode"]),
            (r#"{"destination": "a.example"}"#, &["destination"]),
            (r#"{"destination": "https://"}"#, &["destination"]),
            (r#"{"destination": "https:// "}"#, &["destination"]),
            (r#"{"destination": "https://a\tb"}"#, &["destination"]),
            (r#"{"destination": "ftp://a.example/"}"#, &["destination"]),
        ] {
            let expected: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn destinations_are_compared_by_their_beginning() {
        let has = |prefix: &str, target: &str| {
            let selector = PurgeSelector::read("destination", prefix).ok().unwrap();
            selector.has(&Link { target: target.to_owned(), ..link("a", Origin::Issued) })
        };
        assert!(has("https://a.example/x", "https://a.example/xy"));
        assert!(has("https://A.example", "https://a.example/"));
        assert!(has(" HTTPS://a.example/x ", "https://a.example/xy"));
        assert!(has("https://a.ex", "https://a.example/"));
        assert!(!has("https://a.example/x", "https://a.example/"));
        assert!(!has("https://a.example/", "https://b.example/?u=https://a.example/"));
    }
}
