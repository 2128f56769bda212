//! Lists of links in Shlink's shape (`GET /rest/v3/short-urls`), with their filters and orders.

use carom_shards::Code;
use hyper::StatusCode;
use serde::Serialize;

use super::describe::{Describer, ShortUrl};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::ListRequest;
use carom_limits::{
    LINKS_WRITTEN_AT_ONCE, LIST_LOOKED_MAX, LIST_PER_PAGE, LIST_PER_PAGE_MAX, LIST_TIME_MAX, SEARCH_TERM_MAX,
    SEARCH_TIME_MAX,
};
use carom_model::access::{AppName, Scope};
use carom_model::destination::long_url::url_terms;
use carom_model::domains::Domains;
use carom_model::formats::dates;
use carom_model::link::labels::Tags;
use carom_model::query::{Condition, Cursor, Filter, ListFailure, ListPage, ListQuery, OrderField, SortOrder};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShortUrls<'a> {
    short_urls: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    data: Vec<ShortUrl<'a>>,
    pagination: Pagination,
}

/// Position of a page in its list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Pagination {
    current_page: u64,
    pages_count: u64,
    items_per_page: usize,
    items_in_current_page: usize,
    total_items: u64,
    /// Cursor of the next page; `Some(None)` on the last page. An extension of Shlink's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<Option<String>>,
    /// True if the list examined every link that may match. An extension of Shlink's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    /// The date at which the list was sorted in the background. An extension of Shlink's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    sorted_at: Option<String>,
}

impl Pagination {
    /// Returns the position of a page in a list of known length.
    pub(in crate::api) fn of(page: u64, per_page: usize, here: usize, total: u64) -> Pagination {
        Pagination {
            current_page: page,
            // Shlink also says 1 for an empty list.
            pages_count: total.div_ceil(per_page as u64).max(1),
            items_per_page: per_page,
            items_in_current_page: here,
            total_items: total,
            cursor: None,
            complete: None,
            sorted_at: None,
        }
    }
}

impl Context {
    /// Handles `GET /rest/v3/short-urls`: lists links.
    pub(in crate::api) async fn list(&self, query: Option<&str>) -> ApiResponse {
        let narrowed = |name: &str, scope| self.narrowed(scope, name);
        let codes_named = |term: &str| self.codes_named(term);
        let parsed = match read(query, &self.caller.scope(), narrowed, codes_named, self.domains()) {
            Ok(parsed) => parsed,
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        let Some(query) = parsed.query else {
            // The domain is unknown or hidden from the caller, so the list is empty.
            let nothing = ListPage {
                links: Vec::new(),
                visits: Vec::new(),
                page: parsed.page,
                total: 0,
                complete: true,
                next: None,
                sorted_ms: None,
            };
            return self.show_page(nothing, parsed.per_page, 0).await;
        };
        let key = query.key();
        match self.page_of_links(query).await {
            Ok(page) => self.show_page(page, parsed.per_page, key).await,
            Err(problem) => problem.into_answer(),
        }
    }

    /// Returns a page of links.
    ///
    /// # Errors
    /// 400 if the query asks for too much at once, 503 if the list is unavailable now.
    pub(in crate::api) async fn page_of_links(&self, query: ListQuery) -> Result<ListPage, Problem> {
        let query = ListQuery { asker: self.caller.name().cloned(), ..query };
        match self.services.list(|ticket| ListRequest::Links(Box::new(query), ticket)).await {
            Ok(page) => page.map_err(failed),
            Err(reason) => Err(Problem::no_list(reason)),
        }
    }

    /// Returns links of a filter, the oldest first.
    ///
    /// # Errors
    /// As for [`Context::page_of_links`].
    pub(super) async fn matching(
        &self,
        filter: Filter,
        per_page: usize,
        cursor: Option<Cursor>,
    ) -> Result<ListPage, Problem> {
        let order = SortOrder { field: OrderField::DateCreated, descending: false };
        self.page_of_links(ListQuery { filter, order, page: 1, per_page, cursor, asker: None }).await
    }

    async fn show_page(&self, page: ListPage, per_page: usize, key: u64) -> ApiResponse {
        let (describer, count) = (self.describer(), page.links.len());
        let write = move || written(&page, &describer, per_page, key);
        let text = self.services.write_document(count, LINKS_WRITTEN_AT_ONCE, write).await;
        text.map_or_else(no_list, |text| json_text(StatusCode::OK, text))
    }
}

/// Serialises a page of links as JSON.
fn written(page: &ListPage, describer: &Describer, per_page: usize, key: u64) -> Vec<u8> {
    let data: Vec<ShortUrl<'_>> =
        page.links.iter().zip(&page.visits).map(|(link, visits)| describer.describe(link, *visits)).collect();
    let mut pagination = Pagination::of(page.page, per_page, data.len(), page.total);
    let cursor = page.next.as_ref().map(|next| next.to_text(key));
    if cursor.is_some() {
        // A page with a cursor is followed by another page, so it is never the last.
        pagination.pages_count = pagination.pages_count.max(page.page.saturating_add(1));
    }
    (pagination.cursor, pagination.complete) = (Some(cursor), Some(page.complete));
    pagination.sorted_at = page.sorted_ms.map(|ms| dates::format(dates::whole_second(ms)));
    to_json(&ShortUrls { short_urls: Data { data, pagination } })
}

/// Returns the 503 for a list that is unavailable now.
pub(super) fn no_list(reason: &str) -> ApiResponse {
    Problem::no_list(reason).into_answer()
}

/// Describes the time limits of lists and searches, for error messages.
fn times() -> String {
    let (list, search) = (LIST_TIME_MAX.as_millis(), SEARCH_TIME_MAX.as_millis());
    format!("{list} ms ({search} ms with searchTerm, state, excludeTags[] or an orderBy other than dateCreated)")
}

/// Returns the error for a list that failed.
pub(in crate::api) fn failed(failure: ListFailure) -> Problem {
    match failure {
        ListFailure::Sorting { percent, retry_s } => Problem::sorting(percent, retry_s),
        ListFailure::SortsWaiting => Problem::sorts_waiting(),
        ListFailure::NotSorted { retry_s } => Problem::not_sorted(retry_s),
        ListFailure::TooDeep => {
            let reason = format!(
                "is too deep: a request examines at most {LIST_LOOKED_MAX} links and takes at most {}. Send the cursor of the previous page instead",
                times()
            );
            Problem::invalid(&[Invalid::new("page", reason)])
        }
        ListFailure::Counting => counting(),
        ListFailure::Unreadable => unreadable(),
    }
}

/// Returns the error for a list that is not counted yet.
pub(in crate::api) fn counting() -> Problem {
    Problem::unavailable("The node is still counting links after its start. Try again in a moment.")
}

/// Returns the error for a list that could not be read.
pub(in crate::api) fn unreadable() -> Problem {
    Problem::unavailable("The list could not be read from the store. See the log of the node.")
}

/// A parsed request for a list.
struct ParsedList {
    /// The query; `None` if its result is known to be empty.
    query: Option<ListQuery>,
    page: u64,
    per_page: usize,
}

fn read(
    query: Option<&str>,
    scope: &Scope,
    narrowed: impl Fn(&str, Scope) -> Scope,
    named: impl Fn(&str) -> Vec<Code>,
    domains: &Domains,
) -> Result<ParsedList, Vec<Invalid>> {
    let mut params = Params::of(query);
    let page = params.number("page", 1, u64::MAX).unwrap_or(1);
    let per_page = params.per_page(LIST_PER_PAGE_MAX).unwrap_or(LIST_PER_PAGE);
    let order = params.read("orderBy", order).unwrap_or(SortOrder { field: OrderField::DateCreated, descending: true });
    let (filter, has_any) = filter_within(&mut params, scope, narrowed, domains);
    // The link that the term names comes first only if the request asks for no other order.
    let is_first = params.text("orderBy").is_none();
    let filter = Filter { named: named_in(&params, named).filter(|_| is_first).unwrap_or_default(), ..filter };
    let mut list = ListQuery { filter, order, page, per_page, cursor: None, asker: None };
    let key = list.key();
    list.cursor = params.read("cursor", |text| {
        let no_cursor = "is not a cursor of this list; omit it to start from the first page";
        Cursor::from_text(text, key, order.field).ok_or_else(|| no_cursor.to_owned())
    });
    params.finish()?;
    Ok(ParsedList { query: has_any.then_some(list), page, per_page })
}

/// Reads the filter of a request within the links that the caller may see. The second value is true if any link can
/// match.
pub(in crate::api) fn filter_within(
    params: &mut Params,
    scope: &Scope,
    narrowed: impl Fn(&str, Scope) -> Scope,
    domains: &Domains,
) -> (Filter, bool) {
    let scope = params.text("domain").map_or_else(|| scope.clone(), |name| narrowed(name, scope.clone()));
    let app = params.read("app", |text| AppName::parse(text).map_err(|error| error.to_string()));
    // The name of an API key in Shlink is that of its app. Names that no app can have match no link.
    let of_key = params.text("apiKeyName").map(|name| AppName::parse(name).ok());
    let apps = [scope.app().cloned().map(Some), app.map(Some), of_key];
    let mut apps = apps.into_iter().flatten();
    let first = apps.next();
    let is_other = first.as_ref().is_some_and(|first| first.is_none() || apps.any(|app| app != *first));
    let has_any = scope.domains().is_none_or(|domains| !domains.is_empty()) && !is_other;
    let scope = first.flatten().map_or_else(|| scope.clone(), |app| scope.clone().of(app));
    let filter = filter(params);
    let mut term_domains = filter.term.as_ref().map(|term| domains.ids_containing(term)).unwrap_or_default();
    // As in Shlink, the name of the default domain is not searched in the list of a domain.
    let has_default = params.text("domain").is_none();
    term_domains.retain(|domain| scope.has_domain(*domain) && (has_default || domain.is_some()));
    (Filter { scope, term_domains, ..filter }, has_any)
}

/// Returns the codes that the search term of a request may name.
pub(in crate::api) fn named_in(params: &Params, named: impl Fn(&str) -> Vec<Code>) -> Option<Vec<Code>> {
    params.text("searchTerm").map(|term| named(term.trim()))
}

fn filter(params: &mut Params) -> Filter {
    let term = params.read("searchTerm", search_term);
    let url_terms = params.text("searchTerm").map(url_terms).unwrap_or_default();
    let (tags, all_tags) = tags_in(params, "tags", "tagsMode");
    let (excluded_tags, excludes_all) = tags_in(params, "excludeTags", "excludeTagsMode");
    let condition = params.read("state", |text| {
        let names = || Condition::NAMES.map(|(name, _)| name).join(", ");
        Condition::parse(text).ok_or_else(|| format!("must be one of {}", names()))
    });
    Filter {
        scope: Scope::ALL,
        condition,
        term: term.flatten(),
        url_terms,
        term_domains: Vec::new(),
        named: Vec::new(),
        tags,
        all_tags,
        excluded_tags,
        excludes_all,
        since_ms: params.since_ms("startDate"),
        until_ms: params.until_ms("endDate"),
        without_used_up: params.flag("excludeMaxVisitsReached"),
        without_expired: params.flag("excludePastValidUntil"),
    }
}

/// Reads a list of tags, and whether all of them are meant, by the names of their parameters.
fn tags_in(params: &mut Params, list: &str, mode: &str) -> (Vec<String>, bool) {
    let tags = Tags::of(params.list(list)).map(|tags| tags.iter().map(str::to_owned).collect());
    let tags: Vec<String> = tags.unwrap_or_else(|error| {
        params.refuse(list, error.to_string());
        Vec::new()
    });
    let all = params.read(mode, |mode| match mode {
        "all" => Ok(true),
        "any" => Ok(false),
        _ => Err("must be any or all".to_owned()),
    });
    // With a single tag, "any" and "all" mean the same.
    let all = all.unwrap_or(false) && tags.len() > 1;
    (tags, all)
}

/// Parses a search term into lower case; `None` if it consists of spaces.
pub(in crate::api) fn search_term(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    if text.chars().count() > SEARCH_TERM_MAX {
        return Err(format!("is longer than {SEARCH_TERM_MAX} characters"));
    }
    Ok((!text.is_empty()).then(|| text.to_lowercase()))
}

/// Splits an order in Shlink's notation, such as `title-DESC`, into its field and whether it descends.
pub(in crate::api) fn direction(text: &str) -> (&str, bool) {
    match text.rsplit_once('-') {
        Some((field, direction)) if direction.eq_ignore_ascii_case("DESC") => (field, true),
        Some((field, direction)) if direction.eq_ignore_ascii_case("ASC") => (field, false),
        _ => (text, false),
    }
}

fn order(text: &str) -> Result<SortOrder, String> {
    let (field, descending) = direction(text);
    let field = match field {
        "dateCreated" => OrderField::DateCreated,
        "shortCode" => OrderField::ShortCode,
        "longUrl" => OrderField::LongUrl,
        "title" => OrderField::Title,
        "visits" => OrderField::Visits,
        "nonBotVisits" => OrderField::NonBotVisits,
        _ => {
            let fields = "dateCreated, shortCode, longUrl, title, visits, nonBotVisits";
            return Err(format!("must be one of {fields}, optionally followed by -ASC or -DESC"));
        }
    };
    Ok(SortOrder { field, descending })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::testing::three_domains;

    fn parsed(query: &str) -> Result<ParsedList, Vec<String>> {
        let domains = three_domains();
        let named = |name: &str| domains.named(name).map(|place| domains.id_at(place));
        let codes_named = |term: &str| Code::parse(term.as_bytes()).into_iter().collect();
        read(Some(query), &Scope::ALL, |name, scope| scope.within(named(name)), codes_named, &domains)
            .map_err(|wrong| wrong.into_iter().map(|one| one.field).collect())
    }

    fn list(query: &str) -> ListQuery {
        parsed(query).ok().unwrap().query.unwrap()
    }

    #[test]
    fn everything_is_read_and_defaults_are_those_of_shlink() {
        let plain = list("");
        let newest = SortOrder { field: OrderField::DateCreated, descending: true };
        assert_eq!(
            plain,
            ListQuery { filter: Filter::default(), order: newest, page: 1, per_page: 10, cursor: None, asker: None }
        );
        let full = list(
            "page=3&itemsPerPage=500&searchTerm=+F%C3%9C+x+&tags[]=B&tags%5B%5D=a+c&tags[]=b&tagsMode=all&orderBy=title-DESC\
             &startDate=2026-01-02T03:04:05+00:00&endDate=2026-01-02&excludeMaxVisitsReached=true&excludePastValidUntil=true\
             &domain=GO.test",
        );
        let go = carom_model::domains::DomainName::parse("go.test").unwrap();
        let filter = Filter {
            scope: Scope::ALL.within([Some(go.id())]),
            term: Some("fü x".to_owned()),
            url_terms: vec!["f%c3%9c%20x".to_owned(), "f%c3%bc%20x".to_owned()],
            term_domains: Vec::new(),
            named: Vec::new(),
            tags: vec!["a-c".to_owned(), "b".to_owned()],
            all_tags: true,
            excluded_tags: Vec::new(),
            excludes_all: false,
            since_ms: Some(1_767_323_045_000),
            until_ms: Some(1_767_398_399_999),
            without_used_up: true,
            without_expired: true,
            condition: None,
        };
        let order = SortOrder { field: OrderField::Title, descending: true };
        assert_eq!(full, ListQuery { filter, order, page: 3, per_page: 500, cursor: None, asker: None });
        assert_eq!(list("orderBy=visits").order, SortOrder { field: OrderField::Visits, descending: false });
        assert!(parsed("domain=other.test").ok().unwrap().query.is_none());
        assert!(parsed("domain=DEFAULT").ok().unwrap().query.is_some());
    }

    #[test]
    fn who_searches_for_a_code_means_that_link_unless_another_order_is_wanted() {
        let named = |query: &str| list(query).filter.named.iter().map(Code::to_string).collect::<Vec<_>>();
        assert_eq!(named("searchTerm=+aBc+"), ["aBc"]);
        assert!(named("searchTerm=aBc&orderBy=dateCreated-DESC").is_empty());
        assert!(named("searchTerm=a+b").is_empty());
    }

    #[test]
    fn a_search_covers_the_names_of_domains() {
        let go = carom_model::domains::DomainName::parse("go.test").unwrap().id();
        let found = |query: &str| list(query).filter.term_domains;
        assert_eq!(found("searchTerm=GO.t"), [Some(go)]);
        assert_eq!(found("searchTerm=s.test"), [None]);
        assert_eq!(found("searchTerm=test").len(), 3);
        assert_eq!(found("searchTerm=test&domain=go.test"), [Some(go)]);
        assert!(found("searchTerm=test&domain=DEFAULT").is_empty());
        assert!(found("searchTerm=+&tags[]=test").is_empty());
    }

    #[test]
    fn every_wrong_value_is_named() {
        let wrong = parsed(
            "page=0&itemsPerPage=0&tagsMode=some&orderBy=colour-ASC&startDate=yesterday&endDate=2026-13-01&cursor=xyz\
             &excludeMaxVisitsReached=maybe&excludePastValidUntil=2&tags[]=a%00b",
        );
        let mut wrong = wrong.err().unwrap();
        wrong.sort();
        assert_eq!(
            wrong,
            [
                "cursor",
                "endDate",
                "excludeMaxVisitsReached",
                "excludePastValidUntil",
                "itemsPerPage",
                "orderBy",
                "page",
                "startDate",
                "tags",
                "tagsMode"
            ]
        );
        assert_eq!(parsed(&format!("searchTerm={}", "x".repeat(513))).err().unwrap(), ["searchTerm"]);
        assert_eq!(parsed("itemsPerPage=501").err().unwrap(), ["itemsPerPage"]);
    }

    #[test]
    fn a_cursor_belongs_to_its_list() {
        let (a, b) = (list("searchTerm=a"), list("searchTerm=b"));
        let cursor = Cursor { behind: carom_model::query::Behind::Place(place()), page: 2, seen: 10 };
        let text = cursor.to_text(a.key());
        assert_eq!(list(&format!("searchTerm=a&cursor={text}")).cursor, Some(cursor));
        assert_ne!(a.key(), b.key());
        for query in ["searchTerm=b", "", "searchTerm=a&orderBy=dateCreated-ASC", "searchTerm=a&orderBy=title"] {
            assert_eq!(parsed(&format!("{query}&cursor={text}")).err().unwrap(), ["cursor"], "{query}");
        }
        // A cursor fits any page number and page length.
        assert!(parsed(&format!("searchTerm=a&page=7&itemsPerPage=3&cursor={text}")).is_ok());
    }

    fn place() -> carom_model::query::LinkPosition {
        carom_model::query::LinkPosition::new(5, carom_shards::Code::parse(b"abc").unwrap())
    }
}
