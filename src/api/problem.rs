//! Errors of the API, as problem details (RFC 9457). They have the types, titles and members that clients of
//! Shlink's REST API v3 expect, and types of carom's own for errors that Shlink lacks.

mod fleet;
mod invalid;
mod rules;
mod sorting;

use std::borrow::Cow;
use std::time::Duration;

use hyper::header;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

pub(super) use self::invalid::Invalid;
use super::rate_limit::{seconds, with_quota};
use super::response::{ApiResponse, answer, with};
use crate::bridge::handle::TooMany;
use carom_http::rejection::TUNNEL;
use carom_limits::{LONG_REQUESTS_MAX, LONG_REQUESTS_OF_APP_MAX, PROBLEM_FIELDS_MAX, PROBLEM_NAME_CHARS_MAX};
use carom_model::access::APP_VERSION_LEN_MAX;
use carom_model::access::usage::Quota;
use carom_model::domains::DomainName;

/// An error response under construction.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    status: StatusCode,
    members: Map<String, Value>,
    /// Seconds after which a retry may succeed.
    retry_after: Option<u64>,
    /// Remainder of a rate limit.
    quota: Option<Quota>,
    /// Allowed methods, for 405.
    allow: Option<Cow<'static, str>>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Problem {
        let mut members = Map::new();
        members.insert("title".to_owned(), title.into());
        members.insert("type".to_owned(), kind.into());
        members.insert("detail".to_owned(), detail.into().into());
        members.insert("status".to_owned(), status.as_u16().into());
        Problem { status, members, retry_after: None, quota: None, allow: None }
    }

    fn shlink(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Problem {
        Problem::new(status, &format!("https://shlink.io/api/error/{kind}"), title, detail)
    }

    fn own(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Problem {
        Problem::new(status, &format!("urn:carom:problem:{kind}"), title, detail)
    }

    fn and(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// 400: these fields are invalid. Names at most [`PROBLEM_FIELDS_MAX`] of them.
    pub(super) fn invalid(invalid: &[Invalid]) -> Problem {
        let named = &invalid[..invalid.len().min(PROBLEM_FIELDS_MAX)];
        let mut said: Vec<String> = named.iter().map(|one| format!("{} {}", shown(&one.field), one.reason)).collect();
        if named.len() < invalid.len() {
            said.push(format!("and {} more", invalid.len() - named.len()));
        }
        let fields: Vec<Cow<'_, str>> = named.iter().map(|one| shown(&one.field)).collect();
        let reason = |one: &Invalid| one.kind.map(|kind| json!({"element": shown(&one.field), "reason": kind.name()}));
        let reasons: Vec<Value> = named.iter().filter_map(reason).collect();
        let title = "Invalid data";
        let problem = Problem::shlink(StatusCode::BAD_REQUEST, "invalid-data", title, said.join("; "));
        let problem = problem.and("invalidElements", fields);
        if reasons.is_empty() { problem } else { problem.and("invalidReasons", reasons) }
    }

    /// 400: the body is not a JSON object.
    pub(super) fn malformed(detail: impl Into<String>) -> Problem {
        Problem::shlink(StatusCode::BAD_REQUEST, "malformed-request-body", "Malformed request body", detail)
    }

    /// 400: the body is not valid JSON at the value of this field.
    pub(super) fn malformed_field(field: &str, error: &str) -> Problem {
        let field = shown(field);
        Problem::malformed(format!("The body is not valid JSON at {field}: {error}."))
            .and("invalidElements", vec![field])
    }

    /// 400: the slug belongs to another link of that domain; `None` is the default domain.
    pub(super) fn slug_taken(slug: &str, domain: Option<&DomainName>) -> Problem {
        let on_domain = domain.map_or_else(String::new, |name| format!(" for domain \"{name}\""));
        let detail = format!("Provided slug \"{slug}\" is already in use{on_domain}.");
        let problem = Problem::shlink(StatusCode::BAD_REQUEST, "non-unique-slug", "Invalid custom slug", detail);
        let problem = problem.and("customSlug", slug);
        match domain {
            Some(name) => problem.and("domain", name.as_str()),
            None => problem,
        }
    }

    /// 404: no link has this code.
    pub(super) fn no_link(code: &str) -> Problem {
        let detail = format!("No URL found with short code \"{code}\"");
        Problem::shlink(StatusCode::NOT_FOUND, "short-url-not-found", "Short URL not found", detail)
            .and("shortCode", code)
    }

    /// Adds to the problem of a missing link the domain that the request has named, if it has.
    pub(super) fn on_domain(self, domain: Option<&str>) -> Problem {
        match domain {
            Some(name) if self.status == StatusCode::NOT_FOUND => {
                let name = shown(name);
                let detail = format!("{} for domain \"{name}\"", self.detail());
                self.because(detail).and("domain", name)
            }
            _ => self,
        }
    }

    /// 503: a list is unavailable now.
    pub(super) fn no_list(reason: &str) -> Problem {
        Problem::unavailable(format!("The list is unavailable: {reason}."))
    }

    /// 404: the API has no such path.
    pub(super) fn no_route() -> Problem {
        Problem::shlink(
            StatusCode::NOT_FOUND,
            "not-found",
            "Not Found",
            "The API does not have this path. /rest/v3/openapi.json lists all paths.",
        )
    }

    /// 501: clients ask for a Mercure hub, from which Shlink pushes updates.
    pub(super) fn no_mercure() -> Problem {
        let detail = "This service is not integrated with a Mercure hub.";
        let title = "Mercure integration not configured";
        Problem::shlink(StatusCode::NOT_IMPLEMENTED, "mercure-not-configured", title, detail)
    }

    /// 501: the request needs all links, and this node does not store them.
    pub(super) fn shared_home(what: &str) -> Problem {
        let detail = format!(
            "{what} need all links, which this node does not store (links.home = \"shared\"). Ask a node of the fleet with links.home = \"node\"."
        );
        Problem::own(StatusCode::NOT_IMPLEMENTED, "shared-home", "Not available on this node", detail)
    }

    /// 404: the node keeps no events.
    pub(super) fn no_events() -> Problem {
        let detail = "This service keeps no events. An operator can turn them on with the setting events.log.";
        Problem::own(StatusCode::NOT_FOUND, "events-off", "Events are off", detail)
    }

    /// 410: events behind the cursor are no longer kept.
    pub(super) fn events_gone(restart: &str, latest: &str) -> Problem {
        let detail = format!(
            "Events after this cursor are no longer kept, or it belongs to another log. To continue with the oldest event that is kept, send after={restart}."
        );
        Problem::own(StatusCode::GONE, "events-gone", "Events are gone", detail)
            .and("restart", restart)
            .and("latest", latest)
    }

    /// 404: this node knows no purge with this number. `carom purge` recognises the beginning of the detail.
    pub(super) fn no_purge(id: &str) -> Problem {
        let detail = format!(
            "No purge \"{}\" is known. Other nodes know a new one after some seconds, but only the node of the request knows a search for links in Redis.",
            shown(id)
        );
        Problem::own(StatusCode::NOT_FOUND, "purge-not-found", "Purge not found", detail)
    }

    /// 404: no link has this tag.
    pub(super) fn no_tag(tag: &str) -> Problem {
        let detail = format!("Tag with name \"{tag}\" could not be found");
        Problem::shlink(StatusCode::NOT_FOUND, "tag-not-found", "Tag not found", detail).and("tag", tag)
    }

    /// 404: the service does not serve this domain.
    pub(super) fn no_domain(domain: &str) -> Problem {
        let detail = format!("Domain with authority \"{domain}\" could not be found");
        Problem::shlink(StatusCode::NOT_FOUND, "domain-not-found", "Domain not found", detail).and("authority", domain)
    }

    /// 409: links already have the new name of a tag.
    pub(super) fn tag_conflict(old: &str, new: &str) -> Problem {
        let detail = format!(
            "You cannot rename tag {old} to {new}, because it already exists. To merge the two tags, or to continue a rename that was interrupted, send \"merge\": true."
        );
        Problem::shlink(StatusCode::CONFLICT, "tag-conflict", "Tag conflict", detail)
            .and("oldName", old)
            .and("newName", new)
    }

    /// 409: the new name of a tag does not fit into these links, which keep the old one.
    pub(super) fn tag_too_long(kept: u64, new: &str) -> Problem {
        let detail = format!("{kept} links have no room for the tag {new} and keep the old one. All others changed.");
        Problem::shlink(StatusCode::CONFLICT, "tag-conflict", "Tag conflict", detail).and("newName", new)
    }

    /// 409: the tags of a link have no room for those to add.
    pub(super) fn no_room_for_tags(code: &str) -> Problem {
        let detail = format!("The link \"{code}\" has no room for the tags to add. Its tags were not changed.");
        Problem::own(StatusCode::CONFLICT, "no-room-for-tags", "No room for tags", detail).and("shortCode", code)
    }

    /// 409: more links match a filter than the client has confirmed.
    pub(super) fn more_links_match(confirmed: u64, count: u64) -> Problem {
        let detail = format!(
            "{count} links match, more than the confirmed {confirmed}. Nothing was changed. Look at the links again, and send confirm={count}."
        );
        Problem::own(StatusCode::CONFLICT, "more-links-match", "More links match", detail).and("count", count)
    }

    /// 503: a change of tags has reached only some links.
    pub(super) fn tags_half_changed(changed: u64, why: &str) -> Problem {
        Problem::unavailable(format!(
            "{changed} links have changed, others have not: {why}. To continue, send the request again; a rename then needs \"merge\": true."
        ))
    }

    /// Turns a 403 into that of a change of tags.
    pub(super) fn of_tags(self) -> Problem {
        self.and("type", "https://shlink.io/api/error/forbidden-tag-operation").and("title", "Forbidden tag operation")
    }

    /// 404: the setting `api.compat` does not name this interface.
    pub(super) fn interface_off(interface: &str, name: &str) -> Problem {
        let detail = format!(
            "{interface} is disabled on this service. To enable it, its operator adds \"{name}\" to the setting api.compat."
        );
        Problem::own(StatusCode::NOT_FOUND, "interface-off", "Interface disabled", detail)
    }

    /// 405: the path does not allow the method. Names the allowed ones.
    pub(super) fn method(method: &Method, allow: impl Into<Cow<'static, str>>) -> Problem {
        let allow = allow.into();
        let detail = format!("{method} is not allowed here. Allowed: {allow}.");
        let mut problem =
            Problem::shlink(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail);
        problem.allow = Some(allow);
        problem
    }

    /// 400: the request target is not a path in ASCII.
    pub(super) fn wrong_target() -> Problem {
        let detail = "The request target must be a path. Characters outside ASCII must be percent-encoded.";
        Problem::new(StatusCode::BAD_REQUEST, "about:blank", "Bad Request", detail)
    }

    /// 501: the request asked for a tunnel (`CONNECT`).
    pub(super) fn tunnel() -> Problem {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "about:blank", "Not Implemented", TUNNEL)
    }

    /// 401: the request has no API key.
    pub(super) fn no_key() -> Problem {
        let detail = "Expected one of the following authentication headers, [\"X-Api-Key\"], but none were provided";
        Problem::shlink(StatusCode::UNAUTHORIZED, "missing-authentication", "Invalid authorization", detail)
            .and("expectedHeaders", vec!["X-Api-Key"])
    }

    /// 401: the API key is invalid, expired or revoked. The response does not reveal which.
    pub(super) fn wrong_key() -> Problem {
        let detail = "Provided API key does not exist or is invalid.";
        Problem::shlink(StatusCode::UNAUTHORIZED, "invalid-api-key", "Invalid API key", detail)
    }

    /// 403: the API key does not allow the request.
    pub(super) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::own(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail)
    }

    /// 400: the header `X-App-Version` is malformed.
    pub(super) fn wrong_version() -> Problem {
        let wrong = format!("must be 1 to {APP_VERSION_LEN_MAX} printable ASCII characters");
        Problem::invalid(&[Invalid::new("X-App-Version", wrong)])
    }

    /// 429: the app has created too many links.
    pub(super) fn too_many_creates(quota: Quota) -> Problem {
        let links = if quota.limit == 1 { "link" } else { "links" };
        let detail = format!("Too many links: this app may create {} {links} per second.", quota.limit);
        let mut problem = Problem::too_many(&detail, quota.wait);
        problem.quota = Some(quota);
        problem
    }

    /// 429: the address sent too many invalid API keys.
    pub(super) fn too_many_failed_keys(wait: Duration) -> Problem {
        Problem::too_many("This address sent too many invalid API keys.", wait)
    }

    fn too_many(detail: &str, wait: Duration) -> Problem {
        let seconds = seconds(wait).max(1);
        let detail = format!("{detail} Try again in {seconds} s.");
        let problem = Problem::own(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests", detail);
        // Also in the body, because a line of a bulk request has no headers.
        let mut problem = problem.and("retryAfter", seconds);
        problem.retry_after = Some(seconds);
        problem
    }

    /// 404: no app with this name has a valid key.
    pub(super) fn no_app(name: &str) -> Problem {
        let detail = format!("No app \"{}\" has a valid key.", shown(name));
        Problem::own(StatusCode::NOT_FOUND, "app-not-found", "App not found", detail)
    }

    /// Replaces the detail of a problem.
    pub(super) fn because(self, detail: impl Into<Value>) -> Problem {
        self.and("detail", detail)
    }

    /// 400: the body did not arrive whole.
    pub(super) fn body_broken() -> Problem {
        Problem::malformed("The request body did not arrive completely. Send it again.")
    }

    /// 413: the request body is too long.
    pub(super) fn body_too_large() -> Problem {
        let detail = "The request body is too large. Send a smaller one, or create many links with POST /rest/v3/short-urls/bulk.";
        Problem::own(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Request body too large", detail)
    }

    /// 415: the request body must be JSON.
    pub(super) fn not_json() -> Problem {
        let detail = "The body must be JSON, with \"Content-Type: application/json\".";
        Problem::own(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unsupported media type", detail)
    }

    /// 415: the body of a bulk request must be one JSON object a line.
    pub(super) fn not_lines() -> Problem {
        let detail = "The body must be one JSON object per line, with \"Content-Type: application/x-ndjson\".";
        Problem::own(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unsupported media type", detail)
    }

    /// 413: a line of a bulk request is too long.
    pub(super) fn line_too_long(len_max: usize) -> Problem {
        let detail = format!("The line is too long; at most {len_max} bytes are allowed.");
        Problem::own(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Line too large", detail)
    }

    /// 500: `count` records or ranges are missing from an export, among them the named ones.
    pub(super) fn incomplete(count: u64, damaged: &[String]) -> Problem {
        let (records, are) =
            if count == 1 { ("record or range of records", "is") } else { ("records or ranges of records", "are") };
        let detail = format!("{count} damaged {records} {are} missing from this export.");
        Problem::own(StatusCode::INTERNAL_SERVER_ERROR, "damaged-record", "Damaged record", detail)
            .and("damaged", damaged)
    }

    /// 500: the stored record cannot be read.
    pub(super) fn damaged(code: &str) -> Problem {
        let detail = format!("The record of \"{code}\" is damaged. See the log of the node.");
        Problem::own(StatusCode::INTERNAL_SERVER_ERROR, "damaged-record", "Damaged record", detail)
            .and("shortCode", code)
    }

    /// 503: the core has no short codes left.
    pub(super) fn no_code() -> Problem {
        Problem::unavailable(
            "No short code is available right now. Try again in a moment; the status of the node shows the cause.",
        )
    }

    /// 503: all slots for exports, or for bulk requests, are taken.
    pub(super) fn too_many_long(what: &str, too_many: TooMany) -> Problem {
        let detail = match too_many {
            TooMany::OfApp => format!(
                "This app already has {LONG_REQUESTS_OF_APP_MAX} {what} in progress, the most that one app may have."
            ),
            TooMany::OfAll => {
                format!("The maximum of {LONG_REQUESTS_MAX} {what} is already in progress.")
            }
        };
        Problem::unavailable(format!("{detail} Try again when one of them has finished."))
    }

    /// 400: more tags exist than a list may have.
    pub(super) fn too_many_tags(most: usize) -> Problem {
        let detail = format!("There are more than {most} tags, too many to list. Links can still be filtered by tag.");
        Problem::own(StatusCode::BAD_REQUEST, "too-many-tags", "Too many tags", detail)
    }

    /// 503: the request cannot be served now, for this reason.
    pub(super) fn unavailable(detail: impl Into<String>) -> Problem {
        let mut problem =
            Problem::own(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable", detail);
        problem.retry_after = Some(1);
        problem
    }

    /// 409: another create with the same idempotency key is still in progress.
    pub(super) fn create_under_way() -> Problem {
        let detail = "Another request with this Idempotency-Key is in progress. Try again when it has finished.";
        let mut problem = Problem::own(StatusCode::CONFLICT, "request-under-way", "Request in progress", detail);
        problem.retry_after = Some(1);
        problem
    }

    /// 422: the idempotency key belongs to a create with other fields.
    pub(super) fn key_of_other_request() -> Problem {
        let detail = "This Idempotency-Key was sent with another request within the last 24 hours. Send a new key with each new request.";
        Problem::own(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", "Idempotency key reused", detail)
    }

    /// 410: the link that was created with the idempotency key was deleted.
    pub(super) fn created_link_gone() -> Problem {
        let detail = "The link created with this Idempotency-Key is gone. To create another link, send a new key.";
        Problem::own(StatusCode::GONE, "created-link-gone", "Created link is gone", detail)
    }

    /// 503: the request may have been carried out, or may still be. It has no `Retry-After`, because clients that
    /// repeat a create automatically would create a second link.
    pub(super) fn unconfirmed(reason: &str) -> Problem {
        let detail = format!(
            "The request cannot be confirmed: {reason}. The change may have been made already, or may still be made. Read the link before you try again, or retry a create with its Idempotency-Key."
        );
        Problem::in_doubt(detail)
    }

    /// 503 like [`Problem::unconfirmed`], with an explanation of its own.
    pub(super) fn in_doubt(detail: impl Into<String>) -> Problem {
        Problem::own(StatusCode::SERVICE_UNAVAILABLE, "unconfirmed", "Cannot be confirmed", detail)
    }

    /// Returns the status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the explanation of this occurrence.
    pub(super) fn detail(&self) -> String {
        self.members.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns the names of the invalid fields.
    pub(super) fn fields(&self) -> Vec<String> {
        let fields = self.members.get("invalidElements").and_then(Value::as_array).into_iter().flatten();
        fields.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// True if that field is invalid.
    pub(super) fn names(&self, field: &str) -> bool {
        self.fields().iter().any(|named| named == field)
    }

    /// True if the problem is a slug that another link has.
    pub(super) fn is_slug_taken(&self) -> bool {
        self.members.contains_key("customSlug")
    }

    /// Adds the remainder of a rate limit, unless the problem has one.
    pub(super) fn with_quota(self, quota: Option<Quota>) -> Problem {
        Problem { quota: self.quota.or(quota), ..self }
    }

    /// Returns the seconds after which a retry may succeed.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Returns the remainder of a rate limit.
    pub(super) fn quota(&self) -> Option<Quota> {
        self.quota
    }

    /// Returns a response with another status and body, and the headers of this problem.
    pub(super) fn into_answer_with(self, status: StatusCode, kind: &'static str, body: String) -> ApiResponse {
        self.add_headers(answer(status, kind, body))
    }

    /// Returns the members of the problem as a JSON object.
    #[cfg(test)]
    pub(super) fn members(&self) -> Value {
        Value::Object(self.members.clone())
    }

    /// Returns the status and the members, for a response that embeds them.
    pub(super) fn into_parts(self) -> (StatusCode, Map<String, Value>) {
        (self.status, self.members)
    }

    /// Returns the response to send.
    pub(super) fn into_answer(mut self) -> ApiResponse {
        let body = Value::Object(std::mem::take(&mut self.members)).to_string();
        let answer = answer(self.status, "application/problem+json", body);
        self.add_headers(answer)
    }

    /// Adds the headers of this problem to a response.
    pub(super) fn add_headers(self, mut answer: ApiResponse) -> ApiResponse {
        if let Some(seconds) = self.retry_after {
            answer = with(answer, header::RETRY_AFTER, &seconds.to_string());
        }
        answer = with_quota(answer, self.quota);
        if answer.status() == StatusCode::UNAUTHORIZED {
            answer = with(answer, header::WWW_AUTHENTICATE, "Bearer realm=\"carom\"");
        }
        if let Some(allow) = self.allow {
            answer = with(answer, header::ALLOW, &allow);
        }
        answer
    }
}

/// Shortens the name of a field for display: a client may send a name of any length.
fn shown(field: &str) -> Cow<'_, str> {
    match field.char_indices().nth(PROBLEM_NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &field[..end]).into(),
        None => field.into(),
    }
}

/// The version of Shlink whose API this one follows. Clients of Shlink compare it to decide which features they offer:
/// with 4.6, filters by domain, excluded tags and API key.
const SHLINK_VERSION: &str = "4.6.0";

/// Returns the result of a health check, in the health check response format for HTTP APIs.
pub(super) fn health(passes: bool) -> ApiResponse {
    let status = if passes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if passes { "pass" } else { "fail" },
        "version": SHLINK_VERSION,
        "releaseId": env!("CARGO_PKG_VERSION"),
        "links": {},
    });
    answer(status, "application/health+json", body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::fields::FaultKind;

    #[test]
    fn domains_are_named_as_in_shlink() {
        let name = DomainName::parse("go.test").unwrap();
        let taken = Problem::slug_taken("summer", Some(&name)).members();
        assert_eq!(taken["detail"], "Provided slug \"summer\" is already in use for domain \"go.test\".");
        assert_eq!((&taken["customSlug"], &taken["domain"]), (&json!("summer"), &json!("go.test")));
        let taken = Problem::slug_taken("summer", None).members();
        assert_eq!(taken["detail"], "Provided slug \"summer\" is already in use.");
        assert_eq!(taken.get("domain"), None);
        let missing = Problem::no_link("abc").on_domain(Some("go.test")).members();
        assert_eq!(missing["detail"], "No URL found with short code \"abc\" for domain \"go.test\"");
        assert_eq!((&missing["shortCode"], &missing["domain"]), (&json!("abc"), &json!("go.test")));
        assert_eq!(Problem::no_link("abc").on_domain(None).members().get("domain"), None);
        assert_eq!(Problem::unavailable("later").on_domain(Some("go.test")).members().get("domain"), None);
    }

    #[test]
    fn an_unconfirmed_change_is_not_repeated_automatically() {
        for problem in [Problem::unconfirmed("late"), Problem::in_doubt("late")] {
            assert_eq!(problem.retry_after, None);
            assert_eq!(problem.members()["type"], "urn:carom:problem:unconfirmed");
        }
    }

    #[test]
    fn what_a_client_sent_comes_back_bounded() {
        let many: Vec<Invalid> = (0..100_000).map(|_| Invalid::new("é".repeat(1_000), "is wrong")).collect();
        let problem = Problem::invalid(&many).members();
        let name = format!("{}…", "é".repeat(PROBLEM_NAME_CHARS_MAX));
        assert_eq!(problem["invalidElements"], json!(vec![name; PROBLEM_FIELDS_MAX]));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.ends_with("; and 99936 more"), "{detail}");
        assert!(problem.to_string().len() < 32 * 1024);
    }

    #[test]
    fn faults_of_a_kind_have_a_reason_for_programs() {
        let kind = Some(FaultKind::RelativeUrl);
        let relative = Invalid { field: "longUrl".to_owned(), reason: "is relative".to_owned(), kind };
        let invalid = [Invalid::new("title", "is long"), relative];
        let problem = Problem::invalid(&invalid).members();
        assert_eq!(problem["detail"], "title is long; longUrl is relative");
        assert_eq!(problem["invalidElements"], json!(["title", "longUrl"]));
        assert_eq!(problem["invalidReasons"], json!([{"element": "longUrl", "reason": "relative-url"}]));
        assert_eq!(Problem::invalid(&invalid[..1]).members().get("invalidReasons"), None);
    }
}
