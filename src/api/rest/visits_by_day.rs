//! The visits of several links by day, in one response: what a list of links draws beside each link.

use std::sync::Arc;

use carom_shards::Code;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::short_urls::refused;
use super::visits::{HOUR_MS, entry};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::LinkAnswer;
use carom_limits::{VISIT_DAYS_LINKS_MAX, VISIT_DAYS_MAX, VISIT_DAYS_USUAL, VISIT_DAYS_WRITTEN_AT_ONCE};
use carom_model::domains::DomainName;
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::visits::tally::{Subject, VisitCounts};

const DAY_MS: u64 = 24 * HOUR_MS;

/// The links and the days that a request asks for.
#[derive(PartialEq, Eq, Debug)]
struct DaysRequest {
    codes: Vec<String>,
    domain: Option<String>,
    /// The first and the last day, counted from 1970 UTC.
    first: u32,
    last: u32,
}

impl DaysRequest {
    /// Reads a request. `now_ms` is the present instant, in milliseconds since 1970 UTC.
    fn read(query: Option<&str>, now_ms: u64) -> Result<DaysRequest, Vec<Invalid>> {
        let mut params = Params::of(query);
        if params.list_len("shortCodes") > VISIT_DAYS_LINKS_MAX {
            params.refuse("shortCodes", format!("are too many; expected at most {VISIT_DAYS_LINKS_MAX}"));
        }
        let codes = params.list("shortCodes").into_iter().map(str::to_owned).collect();
        let domain = params.text("domain").map(str::to_owned);
        let day = |ms: u64| u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX);
        let last = day(params.until_ms("endDate").unwrap_or(now_ms).min(now_ms));
        let first = params.since_ms("startDate").map_or(last.saturating_sub(VISIT_DAYS_USUAL - 1), day);
        params.finish()?;
        Ok(DaysRequest { codes, domain, first: first.max(last.saturating_sub(VISIT_DAYS_MAX - 1)), last })
    }
}

/// A link with its visits by day, counted from 1970 UTC.
struct LinkDays {
    link: Arc<Link>,
    days: Vec<(u32, VisitCounts)>,
}

impl LinkDays {
    fn describe(&self) -> Value {
        let days = self.days.iter().map(|(day, counts)| (u64::from(*day) * DAY_MS, *counts));
        json!({
            "shortCode": self.link.code.as_slug().to_string(),
            "domain": self.link.labels.domain.as_ref().map(DomainName::as_str),
            "perDay": days.map(|(ms, counts)| entry(&dates::format(ms)[..10], counts)).collect::<Vec<_>>(),
        })
    }
}

impl Context {
    /// Handles `GET /rest/v3/visits/per-day`: returns the visits of several links by day.
    pub(in crate::api) async fn visits_per_day(&self, query: Option<&str>) -> ApiResponse {
        self.try_visits_per_day(query).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_visits_per_day(&self, query: Option<&str>) -> Result<ApiResponse, Problem> {
        let now_ms = self.services.unix_ms();
        let request = DaysRequest::read(query, now_ms).map_err(|invalid| Problem::invalid(&invalid))?;
        let mut links = Vec::with_capacity(request.codes.len());
        for link in self.visible_links(&request).await? {
            // One read at a time, so that the queue keeps its room for other requests.
            let history = self.services.read_visits(Subject::Link(link.code)).await.map_err(refused)?;
            // A link that was deleted meanwhile has none.
            let Some(history) = history else { continue };
            let days = history.days.range(request.first..).take_while(|(day, _)| **day <= request.last);
            links.push(LinkDays { link, days: days.map(|(day, counts)| (*day, *counts)).collect() });
        }
        let count: usize = links.iter().map(|link| link.days.len()).sum();
        let write = move || written(&links);
        let text = self.services.write_document(count, VISIT_DAYS_WRITTEN_AT_ONCE, write).await.map_err(refused)?;
        Ok(json_text(StatusCode::OK, text))
    }

    /// Returns the requested links that exist and that the caller may see. Damaged ones are left out, as in lists.
    async fn visible_links(&self, request: &DaysRequest) -> Result<Vec<Arc<Link>>, Problem> {
        let domain = match &request.domain {
            Some(name) => match self.domain_named(name) {
                Some(domain) => domain,
                None => return Ok(Vec::new()),
            },
            None => self.caller.implied_domain().map(DomainName::id),
        };
        let mut codes = Vec::with_capacity(request.codes.len());
        // A text that is not a code has no link.
        for code in request.codes.iter().filter_map(|code| Code::from_slug(code.as_bytes()).ok()) {
            codes.push(self.exact_or_lower(code.within(domain)).await);
        }
        let answers = self.services.read_all(codes.len(), |at| codes[at]).await;
        let scope = self.caller.scope();
        let mut links = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer {
                LinkAnswer::Found(link, _) if scope.has(&link) => links.push(link),
                LinkAnswer::Found(..) | LinkAnswer::NotFound | LinkAnswer::Damaged => {}
                LinkAnswer::Refused(reason) => return Err(refused(reason)),
            }
        }
        Ok(links)
    }
}

/// Serialises links with their visits by day.
fn written(links: &[LinkDays]) -> Vec<u8> {
    let data: Vec<Value> = links.iter().map(LinkDays::describe).collect();
    to_json(&json!({ "visits": { "data": data } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first millisecond of 2 January 2026.
    const NOW_MS: u64 = 1_767_312_000_000;
    const TODAY: u32 = (NOW_MS / DAY_MS) as u32;

    fn days(query: &str) -> (u32, u32) {
        let request = DaysRequest::read(Some(query), NOW_MS).unwrap();
        (request.first, request.last)
    }

    #[test]
    fn days_end_today_unless_the_request_names_others() {
        assert_eq!(days(""), (TODAY - 29, TODAY));
        assert_eq!(days("startDate=2026-01-01"), (TODAY - 1, TODAY));
        assert_eq!(days("endDate=2025-12-31"), (TODAY - 31, TODAY - 2));
        assert_eq!(days("startDate=2025-12-24&endDate=2025-12-31T12:00:00Z"), (TODAY - 9, TODAY - 2));
        // Days to come have no visits.
        assert_eq!(days("endDate=9999-12-31"), (TODAY - 29, TODAY));
    }

    #[test]
    fn long_periods_are_cut_to_their_last_days() {
        assert_eq!(days("startDate=1970-01-02"), (TODAY - 99, TODAY));
        assert_eq!(days("startDate=1970-01-02&endDate=1970-01-03"), (1, 2));
        // A period that ends before its start has no day.
        assert_eq!(days("startDate=2026-01-02&endDate=2025-12-31"), (TODAY, TODAY - 2));
    }

    #[test]
    fn codes_come_as_a_list_of_bounded_length() {
        let request = DaysRequest::read(Some("shortCodes[]=a&shortCodes[]=b%2Fc&domain=go.test"), NOW_MS).unwrap();
        assert_eq!(request.codes, ["a", "b/c"]);
        assert_eq!(request.domain.as_deref(), Some("go.test"));
        let of = |count: usize| DaysRequest::read(Some(&"shortCodes[]=&".repeat(count)), NOW_MS);
        assert!(of(100).is_ok());
        let wrong: Vec<String> = of(101).unwrap_err().into_iter().map(|one| one.field).collect();
        assert_eq!(wrong, ["shortCodes"]);
    }
}
