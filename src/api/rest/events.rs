//! The API of events: reads of the event log from a cursor on (`GET /rest/v3/events`), the dead letters of the sinks, and
//! `GET /rest/v3/mercure-info`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::describe::describe;
use super::visit_lists::described;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer, json_text};
use crate::bridge::events::{EventQuery, EventRequest, EventsFound};
use carom_limits::{EVENTS_PER_PAGE, EVENTS_PER_PAGE_MAX};
use carom_model::access::Role;
use carom_model::domains::Domains;
use carom_model::events::{EventId, EventType};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::visits::record::VisitRecord;
use carom_model::visits::tally::VisitCounts;
use carom_tls::json_web_token;

/// Lifetime of the token for a Mercure hub, in seconds: a day, as in Shlink.
const TOKEN_SECONDS: u64 = 86_400;

/// Describes a link in an event. Whether its destination is on a block list depends on the instant, so an event does
/// not say it.
pub fn describe_link(link: &Link, visits: VisitCounts, domains: &Domains) -> Value {
    let mut shown = json!(describe(link, visits, domains, false));
    if let Some(members) = shown.as_object_mut() {
        members.remove("blocked");
    }
    shown
}

/// Describes a visit in an event.
pub fn describe_visit(visit: &VisitRecord<'_>, domains: &Domains) -> Value {
    described(visit, domains)
}

impl Context {
    /// Handles `GET /rest/v3/events`: returns events after a cursor.
    ///
    /// # Errors
    /// 400 for an invalid parameter, 403 without rights on all links, 404 if the node keeps no events, 410 if the
    /// events after the cursor are gone, and 503 if the log cannot be read now.
    pub(in crate::api) async fn events(&self, query: Option<&str>) -> Result<ApiResponse, Problem> {
        // Events name the links of all apps and domains, and orphan visits.
        self.caller.require_on_all_domains(Role::ReadAll)?;
        let query = read(query).map_err(|invalid| Problem::invalid(&invalid))?;
        let answer = self.services.ask_events(|ticket| EventRequest::Page(query, ticket)).await;
        match answer.map_err(unreadable)? {
            None => Err(Problem::no_events()),
            Some(EventsFound::Document(text)) => Ok(json_text(StatusCode::OK, text)),
            Some(EventsFound::Gone { restart, latest }) => {
                Err(Problem::events_gone(&restart.to_string(), &latest.to_string()))
            }
            Some(EventsFound::Ahead { latest }) => {
                let why = format!("is ahead of the last event, {latest}");
                Err(Problem::invalid(&[Invalid::new("after", why)]))
            }
        }
    }

    /// Handles `GET /rest/v3/events/dead-letters`: returns the events that a sink's receiver refuses for good.
    ///
    /// # Errors
    /// 403 without rights on all links, 404 if the node keeps no events, and 503 if they cannot be read now.
    pub(in crate::api) async fn dead_letters(&self) -> Result<ApiResponse, Problem> {
        self.caller.require_on_all_domains(Role::ReadAll)?;
        match self.services.ask_events(EventRequest::DeadLetters).await.map_err(unreadable)? {
            Some(EventsFound::Document(text)) => Ok(json_text(StatusCode::OK, text)),
            _ => Err(Problem::no_events()),
        }
    }

    /// Handles `GET /rest/v3/mercure-info`: returns the hub, and a token that lets a client subscribe to it.
    pub(in crate::api) fn mercure_info(&self) -> ApiResponse {
        let Some(hub) = &self.site.mercure else { return Problem::no_mercure().into_answer() };
        // The hub has events of all links.
        if let Err(problem) = self.caller.require_on_all_domains(Role::ReadAll) {
            return problem.into_answer();
        }
        let now = self.services.unix_ms() / 1_000;
        let until = now + TOKEN_SECONDS;
        let claims = json!({ "iss": "carom", "iat": now, "exp": until, "mercure": { "subscribe": ["*"] } });
        let shown = json!({
            "mercureHubUrl": hub.public_url,
            "token": json_web_token(hub.secret.as_bytes(), &claims.to_string()),
            "jwtExpiration": dates::format(until * 1_000),
        });
        json_answer(StatusCode::OK, &shown)
    }
}

fn unreadable(reason: &str) -> Problem {
    Problem::unavailable(format!("Events cannot be read: {reason}."))
}

fn read(query: Option<&str>) -> Result<EventQuery, Vec<Invalid>> {
    let mut params = Params::of(query);
    let asked = EventQuery {
        after: params.read("after", |text| {
            EventId::parse(text).ok_or_else(|| "must be the id of an event, or next of an earlier answer".to_owned())
        }),
        limit: params.number("limit", 1, EVENTS_PER_PAGE_MAX).unwrap_or(EVENTS_PER_PAGE) as usize,
        of: params.read("type", |text| {
            let known = EventType::ALL.into_iter().find(|of| of.as_str() == text);
            known.ok_or_else(|| format!("must be one of {}", EventType::ALL.map(EventType::as_str).join(", ")))
        }),
    };
    params.finish()?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read() {
        let asked = read(Some("after=0000002a-7&limit=5&type=link.deleted")).unwrap();
        let (after, of) = (Some(EventId { log: 42, seq: 7 }), Some(EventType::LinkDeleted));
        assert_eq!(asked, EventQuery { after, limit: 5, of });
        assert_eq!(read(None).unwrap(), EventQuery { after: None, limit: 100, of: None });
        let wrong = read(Some("after=7&limit=1001&type=links")).unwrap_err();
        let wrong: Vec<String> = wrong.into_iter().map(|one| one.field).collect();
        assert_eq!(wrong, ["after", "limit", "type"]);
    }
}
