//! Lists of single visits, in Shlink's shape: of a link, a tag, a domain, of all links, and of no link. And their
//! deletion.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::list::Pagination;
use super::short_urls::{refused, write_failed};
use super::visit_filters;
use super::visits::{TimeRange, describe, parts_of};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer, json_text, to_json};
use crate::bridge::WriteFailure;
use crate::bridge::visit_log::{VisitDeletion, VisitFilter, VisitLogRequest, VisitPage, VisitQuery, VisitSelection};
use carom_http::forward;
use carom_limits::{HISTORY_WRITTEN_AT_ONCE, VISITS_PER_PAGE, VISITS_PER_PAGE_MAX, VISITS_WRITTEN_AT_ONCE};
use carom_model::access::{Role, Scope};
use carom_model::clients::locations::{Coordinates, GeoLocation};
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates;
use carom_model::link::labels::Tags;
use carom_model::visits::breakdown::{AgentTraits, VisitCondition};
use carom_model::visits::campaign::Campaign;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::record::{LoggedKind, VisitRecord};
use carom_model::visits::tally::Subject;

/// The part of a list that a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct VisitSpan {
    span: TimeRange,
    without_bots: bool,
    conditions: Vec<VisitCondition>,
    page: u64,
    per_page: u64,
    kind: Option<LoggedKind>,
}

impl VisitSpan {
    fn read(query: Option<&str>) -> Result<VisitSpan, Problem> {
        let read = || -> Result<VisitSpan, Vec<Invalid>> {
            let mut params = Params::of(query);
            visit_filters::app(&mut params);
            let span = VisitSpan {
                span: TimeRange::read(&mut params),
                without_bots: params.switch("excludeBots"),
                conditions: visit_filters::conditions(&params),
                page: params.number("page", 1, u64::from(u32::MAX)).unwrap_or(1),
                per_page: params.per_page(VISITS_PER_PAGE_MAX as usize).map_or(VISITS_PER_PAGE, |number| number as u64),
                kind: params.read("type", orphan_kind),
            };
            params.finish()?;
            Ok(span)
        };
        read().map_err(|invalid| Problem::invalid(&invalid))
    }

    fn query(&self, selection: VisitSelection) -> VisitQuery {
        let VisitSpan { span: TimeRange { start_ms, end_ms }, without_bots, page, per_page, .. } = *self;
        let conditions = self.conditions.clone();
        let filter = VisitFilter { selection, start_ms, end_ms, without_bots, conditions };
        VisitQuery { filter, skip: (page - 1) * per_page, take: per_page as usize }
    }
}

fn orphan_kind(text: &str) -> Result<LoggedKind, String> {
    let known = LoggedKind::ORPHANS.into_iter().find(|kind| kind.as_str() == text);
    known.ok_or_else(|| "must be base_url, invalid_short_url or regular_404".to_owned())
}

impl Context {
    /// Handles `GET` and `DELETE` of `/rest/v3/short-urls/{shortCode}/visits`: the visits of a link.
    pub(in crate::api) async fn visits_of(&self, method: &Method, code: &str, query: Option<&str>) -> ApiResponse {
        let answer = match *method {
            Method::DELETE => self.delete_visits_of(code, query).await,
            _ => self.try_visits_of(code, query).await,
        };
        answer.unwrap_or_else(Problem::into_answer)
    }

    async fn try_visits_of(&self, code: &str, query: Option<&str>) -> Result<ApiResponse, Problem> {
        let span = VisitSpan::read(query)?;
        let (link, _) = self.find_in(code, query).await?;
        let history = self.visit_history(Subject::Link(link.code), code).await?;
        let selection = VisitSelection::Link { code: link.code, since_ms: link.created_ms };
        // The totals come from the counts, which exist without a log and for longer.
        self.list_visits(span, selection, Some(history)).await
    }

    async fn delete_visits_of(&self, code: &str, query: Option<&str>) -> Result<ApiResponse, Problem> {
        let (link, _) = self.find_in(code, query).await?;
        self.delete_logged(VisitDeletion::Link(link.code)).await
    }

    /// Handles `GET /rest/v3/tags/{tag}/visits`: the visits of the links with a tag.
    pub(in crate::api) async fn visits_of_tag(&self, tag: &str, query: Option<&str>) -> ApiResponse {
        self.try_visits_of_tag(tag, query).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_visits_of_tag(&self, tag: &str, query: Option<&str>) -> Result<ApiResponse, Problem> {
        let span = VisitSpan::read(query)?;
        let tags = Tags::of([tag]).map_err(|_| Problem::no_tag(tag))?;
        let tag = tags.joined().to_owned();
        if span.page == 1 {
            self.require_tag(&tag).await?;
        }
        let selection = VisitSelection::Links { scope: self.scope_in(query), tag: Some(tag.clone()) };
        let page = self.visit_page(&span, selection).await?;
        // A later page with visits shows that the tag exists, without another look into the index of links.
        if span.page > 1 && page.total == 0 {
            self.require_tag(&tag).await?;
        }
        self.show_visits(span, page, None).await
    }

    /// Returns without an error if a link that the caller may see has the tag, or if the links cannot be listed now.
    ///
    /// # Errors
    /// 404 if no such link has it.
    async fn require_tag(&self, tag: &str) -> Result<(), Problem> {
        // A list of links that is unavailable now does not hide the visits.
        if self.services.stores_all_links() && matches!(self.has_tag(tag).await, Ok(false)) {
            return Err(Problem::no_tag(tag));
        }
        Ok(())
    }

    /// Handles `GET /rest/v3/domains/{domain}/visits`: the visits of the links of a domain.
    pub(in crate::api) async fn visits_of_domain(&self, domain: &str, query: Option<&str>) -> ApiResponse {
        let place = self.domains().named(domain).map(|place| self.domains().id_at(place));
        let answer = match (VisitSpan::read(query), place) {
            (Err(problem), _) => Err(problem),
            (Ok(_), None) => Err(Problem::no_domain(domain)),
            (Ok(span), Some(id)) => {
                let selection = VisitSelection::Links { scope: self.caller.scope().within([id]), tag: None };
                self.list_visits(span, selection, None).await
            }
        };
        answer.unwrap_or_else(Problem::into_answer)
    }

    /// Handles `GET /rest/v3/visits/non-orphan`: the visits of all links that the caller may see.
    pub(in crate::api) async fn visits_of_links(&self, query: Option<&str>) -> ApiResponse {
        let selection = VisitSelection::Links { scope: self.scope_in(query), tag: None };
        let answer = match VisitSpan::read(query) {
            Ok(span) => self.list_visits(span, selection, None).await,
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(Problem::into_answer)
    }

    /// Returns the links that the caller may see, on the domain and of the app that the query names, if it names them. A
    /// domain that is unknown has none.
    fn scope_in(&self, query: Option<&str>) -> Scope {
        let mut params = Params::of(query);
        let scope = match params.text("domain") {
            Some(name) => self.narrowed(self.caller.scope(), name),
            None => self.caller.scope(),
        };
        visit_filters::of_app(scope, visit_filters::app(&mut params))
    }

    /// Returns the host of the domain that the query names, if it names one.
    fn host_in(&self, query: Option<&str>) -> Option<Box<str>> {
        let params = Params::of(query);
        let name = params.text("domain")?;
        match self.domains().named(name) {
            Some(place) => Some(self.domains().at(place).name.as_str().into()),
            None => Some(DomainName::parse(name).map_or_else(|_| name.into(), |name| name.as_str().into())),
        }
    }

    /// Handles `GET` and `DELETE` of `/rest/v3/visits/orphan`: visits that found no link.
    pub(in crate::api) async fn orphan_visits(&self, method: &Method, query: Option<&str>) -> ApiResponse {
        self.try_orphan_visits(method, query).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_orphan_visits(&self, method: &Method, query: Option<&str>) -> Result<ApiResponse, Problem> {
        // Orphan visits belong to no app and no domain.
        if *method == Method::DELETE {
            self.caller.require_on_all_domains(Role::WriteAll)?;
            return self.delete_logged(VisitDeletion::Orphans).await;
        }
        self.caller.require_on_all_domains(Role::ReadAll)?;
        let span = VisitSpan::read(query)?;
        let selection = VisitSelection::Orphans { kind: span.kind, host: self.host_in(query) };
        self.list_visits(span, selection, None).await
    }

    async fn delete_logged(&self, deletion: VisitDeletion) -> Result<ApiResponse, Problem> {
        let count = self.services.delete_logged_visits(deletion).await.map_err(|failure| match failure {
            WriteFailure::Unconfirmed(reason) => Problem::in_doubt(format!(
                "The deletion of the visits cannot be confirmed: {reason}. They may be gone already, or may still be deleted. The request can be repeated."
            )),
            failure => write_failed(&failure),
        })?;
        Ok(json_answer(StatusCode::OK, &json!({ "deletedVisits": count })))
    }

    async fn list_visits(
        &self,
        span: VisitSpan,
        selection: VisitSelection,
        totals: Option<Box<VisitHistory>>,
    ) -> Result<ApiResponse, Problem> {
        let page = self.visit_page(&span, selection).await?;
        self.show_visits(span, page, totals).await
    }

    async fn visit_page(&self, span: &VisitSpan, selection: VisitSelection) -> Result<VisitPage, Problem> {
        let query = span.query(selection);
        self.services.ask_visit_log(|ticket| VisitLogRequest::Query(query, ticket)).await.map_err(refused)
    }

    async fn show_visits(
        &self,
        span: VisitSpan,
        page: VisitPage,
        totals: Option<Box<VisitHistory>>,
    ) -> Result<ApiResponse, Problem> {
        let domains = Arc::clone(&self.services.context().domains);
        // A long history takes as long as a long page.
        let is_long = totals.as_ref().is_some_and(|history| parts_of(history) > HISTORY_WRITTEN_AT_ONCE);
        let at_once = if is_long { 0 } else { VISITS_WRITTEN_AT_ONCE };
        let count = page.records.len() + usize::from(is_long);
        let write = move || written(&page, &domains, &span, totals.as_deref());
        let text = self.services.write_document(count, at_once, write).await.map_err(refused)?;
        Ok(json_text(StatusCode::OK, text))
    }
}

/// Serialises a page of visits, with the totals of a link.
fn written(page: &VisitPage, domains: &Domains, span: &VisitSpan, totals: Option<&VisitHistory>) -> Vec<u8> {
    let mut shown = totals.map_or_else(|| json!({}), |history| describe(history, &span.span));
    if totals.is_some() && !span.span.is_everything() {
        // Referrers are counted without their days.
        shown["referrers"] = Value::Null;
    }
    let visits = page.records.iter().filter_map(|bytes| VisitRecord::take(&mut &bytes[..]));
    let data: Vec<Value> = visits.map(|visit| described(&visit, domains)).collect();
    let mut pagination = json!(Pagination::of(span.page, span.per_page as usize, data.len(), page.total));
    pagination["complete"] = json!(page.complete);
    shown["data"] = json!(data);
    shown["pagination"] = pagination;
    to_json(&json!({ "visits": shown }))
}

/// Returns a visit as Shlink's API describes it.
pub(super) fn described(visit: &VisitRecord<'_>, domains: &Domains) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut shown = json!({
        "referer": text(visit.request.referrer),
        // Shlink's importer reads no milliseconds.
        "date": dates::format(dates::whole_second(visit.at_ms)),
        "userAgent": text(visit.request.agent),
        "visitLocation": visit.location.as_ref().map(described_location),
        "potentialBot": visit.is_bot,
        "visitedUrl": visited_url(visit, domains),
        "redirectUrl": redirect_url(visit),
    });
    let known = |text: &str| Some(text).filter(|text| !text.is_empty()).map(str::to_owned);
    let agent = AgentTraits::of(visit.request.agent, visit.is_bot);
    shown["device"] = json!(agent.device.as_str());
    shown["operatingSystem"] = json!(known(agent.system));
    shown["browser"] = json!(known(agent.browser));
    shown["language"] = json!(known(&text(visit.request.language)));
    let Campaign { source, medium, name, term, content } = &Campaign::of(visit.request.query);
    shown["utm"] = json!({
        "source": known(source), "medium": known(medium), "campaign": known(name),
        "term": known(term), "content": known(content),
    });
    if visit.kind != LoggedKind::Link {
        shown["type"] = json!(visit.kind.as_str());
    }
    if let Some(address) = visit.request.address {
        shown["address"] = json!(address);
    }
    shown
}

/// Returns a location as Shlink's API describes it.
fn described_location(location: &GeoLocation<'_>) -> Value {
    let GeoLocation { country, country_name, region, city, time_zone, coordinates } = location;
    let degrees = |of: fn(&Coordinates) -> i32| coordinates.as_ref().map(|spot| f64::from(of(spot)) / 10_000.0);
    json!({
        "countryCode": country,
        "countryName": country_name,
        "regionName": region,
        "cityName": city,
        "latitude": degrees(|spot| spot.latitude),
        "longitude": degrees(|spot| spot.longitude),
        "timezone": time_zone,
        "isEmpty": location.is_empty(),
    })
}

fn visited_url(visit: &VisitRecord<'_>, domains: &Domains) -> String {
    let query = String::from_utf8_lossy(visit.request.query);
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    match &visit.code {
        Some(code) => format!("{}/{}{query}", domains.base_url_of_id(code.domain()), code.as_slug()),
        None => {
            let [host, path] = [visit.request.host, visit.request.path].map(String::from_utf8_lossy);
            let is_secure = visit.is_secure || domains.all()[0].base_url.starts_with("https://");
            format!("{}://{host}{path}{query}", if is_secure { "https" } else { "http" })
        }
    }
}

fn redirect_url(visit: &VisitRecord<'_>) -> Option<String> {
    let query = if visit.forwards { visit.request.query } else { b"" };
    let mut location = Vec::new();
    forward::push(&mut location, visit.target, query);
    (!visit.target.is_empty()).then(|| String::from_utf8_lossy(&location).into_owned())
}
