//! Statistics of the visit log: by day, link, country, city, browser, operating system, device, language, referring
//! host, destination, and UTM parameters.

use std::sync::Arc;

use carom_shards::Code;
use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::short_urls::refused;
use super::visit_filters;
use super::visits::{HOUR_MS, TimeRange, entry};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::LinkAnswer;
use crate::bridge::visit_log::{VisitFilter, VisitSelection, VisitStatistics};
use carom_limits::{VISIT_VALUES_SHOWN, VISIT_VALUES_SHOWN_MAX, VISIT_VALUES_WRITTEN_AT_ONCE};
use carom_model::access::AppName;
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::link::labels::Tags;
use carom_model::visits::breakdown::{ValueCount, VisitCondition, VisitProperty};
use carom_model::visits::tally::VisitCounts;

const DAY_MS: u64 = 24 * HOUR_MS;

/// The visits that a request asks for.
struct StatsRequest {
    code: Option<String>,
    /// In the form in which links have it.
    tag: Option<String>,
    domain: Option<String>,
    /// The app whose links count; `None` for all.
    app: Option<AppName>,
    span: TimeRange,
    without_bots: bool,
    conditions: Vec<VisitCondition>,
    limit: usize,
}

impl StatsRequest {
    fn read(query: Option<&str>) -> Result<StatsRequest, Vec<Invalid>> {
        let mut params = Params::of(query);
        let text = |params: &Params, name| params.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let (code, tag) = (text(&params, "shortCode"), text(&params, "tag"));
        let tag = tag.and_then(|tag| match Tags::of([tag.as_str()]) {
            Ok(tags) => Some(tags.joined().to_owned()),
            Err(error) => {
                params.refuse("tag", error.to_string());
                None
            }
        });
        let app = visit_filters::app(&mut params);
        for (name, is_there) in [("tag", tag.is_some()), ("app", app.is_some())] {
            if code.is_some() && is_there {
                params.refuse(name, "cannot be combined with shortCode; expected one of them");
            }
        }
        let request = StatsRequest {
            code,
            tag,
            domain: text(&params, "domain"),
            app,
            span: TimeRange::read(&mut params),
            without_bots: params.switch("excludeBots"),
            conditions: visit_filters::conditions(&params),
            limit: params.number("limit", 1, VISIT_VALUES_SHOWN_MAX).unwrap_or(VISIT_VALUES_SHOWN) as usize,
        };
        params.finish()?;
        Ok(request)
    }
}

impl Context {
    /// Handles `GET /rest/v3/visits/stats`: counts the visits of a link, a tag, a domain, or of all links that the caller may
    /// see.
    pub(in crate::api) async fn visit_stats(&self, query: Option<&str>) -> ApiResponse {
        match self.try_visit_stats(query).await {
            Ok(text) => json_text(StatusCode::OK, text),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_visit_stats(&self, query: Option<&str>) -> Result<Vec<u8>, Problem> {
        let request = StatsRequest::read(query).map_err(|invalid| Problem::invalid(&invalid))?;
        let selection = self.counted(&request, query).await?;
        let (TimeRange { start_ms, end_ms }, without_bots) = (request.span, request.without_bots);
        let conditions = request.conditions.clone();
        let filter = VisitFilter { selection, start_ms, end_ms, without_bots, conditions };
        let statistics = self.services.count_logged_visits(filter).await.map_err(refused)?;
        let (count, limit) = (statistics.breakdown.len(), request.limit);
        let links = self.visited_links(&statistics.top_links[..statistics.top_links.len().min(limit)]).await?;
        let domains = Arc::clone(&self.services.context().domains);
        // Dropping the values takes about as long as sorting them, and the thread does both.
        let write = move || {
            let links = links.iter().map(|(link, counts)| described_link(link, *counts, &domains)).collect();
            to_json(&json!({ "visitStats": described(&statistics, links, limit) }))
        };
        self.services.write_document(count, VISIT_VALUES_WRITTEN_AT_ONCE, write).await.map_err(refused)
    }

    async fn counted(&self, request: &StatsRequest, query: Option<&str>) -> Result<VisitSelection, Problem> {
        if let Some(code) = &request.code {
            let (link, _) = self.find_in(code, query).await?;
            return Ok(VisitSelection::Link { code: link.code, since_ms: link.created_ms });
        }
        let scope = match &request.domain {
            Some(name) => {
                let place = self.domains().named(name).ok_or_else(|| Problem::no_domain(name))?;
                self.caller.scope().within([self.domains().id_at(place)])
            }
            None => self.caller.scope(),
        };
        let (scope, tag) = (visit_filters::of_app(scope, request.app.clone()), request.tag.clone());
        Ok(VisitSelection::Links { scope, tag })
    }

    /// Reads links, and returns them with these visits. Links that were deleted meanwhile are left out, and so are damaged
    /// ones, as in lists.
    async fn visited_links(&self, counted: &[(Code, VisitCounts)]) -> Result<Vec<(Arc<Link>, VisitCounts)>, Problem> {
        let answers = self.services.read_all(counted.len(), |at| counted[at].0).await;
        let scope = self.caller.scope();
        let mut links = Vec::with_capacity(answers.len());
        for (answer, (_, counts)) in answers.into_iter().zip(counted) {
            match answer {
                LinkAnswer::Found(link, _) if scope.has(&link) => links.push((link, *counts)),
                LinkAnswer::Found(..) | LinkAnswer::NotFound | LinkAnswer::Damaged => {}
                LinkAnswer::Refused(reason) => return Err(refused(reason)),
            }
        }
        Ok(links)
    }
}

fn described_link(link: &Link, VisitCounts { total, bots }: VisitCounts, domains: &Domains) -> Value {
    let (short_code, domain) = (link.code.as_slug().to_string(), link.labels.domain.as_ref());
    let short_url = format!("{}/{short_code}", domains.base_url_of(domain));
    json!({
        "shortUrl": short_url,
        "shortCode": short_code,
        "domain": domain.map(DomainName::as_str),
        "longUrl": link.target,
        "title": link.labels.title,
        "visits": total,
        "bots": bots,
    })
}

fn described(statistics: &VisitStatistics, links: Vec<Value>, limit: usize) -> Value {
    let (total, bots) = statistics.breakdown.totals();
    let mut shown = Map::new();
    shown.insert("enabled".to_owned(), statistics.is_enabled.into());
    shown.insert("total".to_owned(), total.into());
    shown.insert("bots".to_owned(), bots.into());
    shown.insert("complete".to_owned(), statistics.complete.into());
    shown.insert("since".to_owned(), statistics.since_ms.map(dates::format).into());
    let days = statistics.breakdown.days().iter();
    let per_day = days.map(|(day, counts)| entry(&dates::format(day * DAY_MS)[..10], *counts));
    shown.insert("perDay".to_owned(), per_day.collect());
    shown.insert("links".to_owned(), links.into());
    for (property, name) in VisitProperty::ALL {
        let counts = statistics.breakdown.top(property, limit);
        let entries = counts.iter().map(|count| described_value(property, count));
        shown.insert(name.to_owned(), entries.collect());
    }
    shown.into()
}

fn described_value(property: VisitProperty, count: &ValueCount) -> Value {
    let ValueCount { value, detail, visits } = count;
    match property {
        VisitProperty::Country => json!({ "value": value, "label": detail, "visits": visits }),
        VisitProperty::City => json!({ "value": value, "country": detail, "visits": visits }),
        _ => json!({ "value": value, "visits": visits }),
    }
}
