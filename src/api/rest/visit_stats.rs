//! Statistics of the visit log: by country, city, browser, operating system, device, language, referring host,
//! destination, and UTM parameters.

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::short_urls::refused;
use super::visit_filters;
use super::visits::Span;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::visit_log::{VisitFilter, VisitSelection, VisitStatistics};
use carom_limits::{VISIT_VALUES_SHOWN, VISIT_VALUES_SHOWN_MAX, VISIT_VALUES_WRITTEN_AT_ONCE};
use carom_model::access::AppName;
use carom_model::dates;
use carom_model::link::labels::Tags;
use carom_model::visits::breakdown::{ValueCount, VisitCondition, VisitProperty};

/// The visits that a request asks for.
struct StatsRequest {
    code: Option<String>,
    /// In the form in which links have it.
    tag: Option<String>,
    domain: Option<String>,
    /// Only links of this app.
    app: Option<AppName>,
    span: Span,
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
            span: Span::read(&mut params),
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
        let (Span { start_ms, end_ms }, without_bots) = (request.span, request.without_bots);
        let conditions = request.conditions.clone();
        let filter = VisitFilter { selection, start_ms, end_ms, without_bots, conditions };
        let statistics = self.services.count_logged_visits(filter).await.map_err(refused)?;
        let (count, limit) = (statistics.breakdown.len(), request.limit);
        // Dropping the values takes about as long as sorting them, and the thread does both.
        let write = move || to_json(&json!({ "visitStats": described(&statistics, limit) }));
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
}

fn described(statistics: &VisitStatistics, limit: usize) -> Value {
    let (total, bots) = statistics.breakdown.totals();
    let mut shown = Map::new();
    shown.insert("enabled".to_owned(), statistics.is_enabled.into());
    shown.insert("total".to_owned(), total.into());
    shown.insert("bots".to_owned(), bots.into());
    shown.insert("complete".to_owned(), statistics.complete.into());
    shown.insert("since".to_owned(), statistics.since_ms.map(dates::format).into());
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
