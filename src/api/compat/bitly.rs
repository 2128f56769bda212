//! Bitly's API, version 4: `POST /v4/shorten` and `POST /v4/expand` (dev.bitly.com/api-reference).
//!
//! A destination that the app has shortened before gets its existing link, with 200 instead of 201, as at Bitly. The
//! fields `domain` and `group_guid` are accepted; a group, and a domain that the service does not serve, such as
//! `bit.ly`, are ignored.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::rate_limit::with_quota;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::short_urls::{CreatedLink, read_object};
use carom_model::access::Role;
use carom_model::formats::dates;
use carom_model::link::Link;

impl Context {
    /// Handles `POST /v4/shorten`: creates a link, or returns an existing one.
    pub(in crate::api) async fn bitly_shorten(&self, request: Request<Incoming>) -> ApiResponse {
        match self.try_shorten(request).await {
            Ok(CreatedLink { link, counts, quota }) => {
                let status = if counts.is_some() { StatusCode::CREATED } else { StatusCode::OK };
                with_quota(json_answer(status, &self.bitlink(&link)), quota)
            }
            Err(problem) => bitly_problem(problem),
        }
    }

    async fn try_shorten(&self, request: Request<Incoming>) -> Result<CreatedLink, Problem> {
        let caller = self.admit_to_api(&request)?;
        caller.caller.require(Role::WriteOwn)?;
        let asked = read_object(&self.services, request).await?;
        let mut fields = Map::new();
        for (theirs, ours) in [("long_url", "longUrl"), ("title", "title"), ("tags", "tags")] {
            if let Some(value) = asked.get(theirs) {
                fields.insert(ours.to_owned(), value.clone());
            }
        }
        let domain = asked.get("domain").filter(|it| it.as_str().is_some_and(|it| self.domains().named(it).is_some()));
        if let Some(domain) = domain {
            fields.insert("domain".to_owned(), domain.clone());
        }
        caller.name_domain(&mut fields);
        fields.insert("findIfExists".to_owned(), Value::Bool(self.services.stores_all_links()));
        caller.create_from_fields(&fields).await
    }

    /// Handles `POST /v4/expand`: returns the destination of a link.
    pub(in crate::api) async fn bitly_expand(&self, request: Request<Incoming>) -> ApiResponse {
        match self.try_expand(request).await {
            Ok(body) => json_answer(StatusCode::OK, &body),
            Err(problem) => bitly_problem(problem),
        }
    }

    async fn try_expand(&self, request: Request<Incoming>) -> Result<Value, Problem> {
        let caller = self.admit_to_api(&request)?;
        let asked = read_object(&self.services, request).await?;
        let name = asked.get("bitlink_id").and_then(Value::as_str).unwrap_or_default();
        let (link, _) = caller.find_named(name).await?;
        let mut body = self.bitlink(&link);
        body.as_object_mut()
            .expect("it is one")
            .retain(|name, _| ["created_at", "id", "link", "long_url"].contains(&&**name));
        Ok(body)
    }

    /// Describes a link in Bitly's format.
    fn bitlink(&self, link: &Link) -> Value {
        let short_url = self.short_url(link);
        let id = short_url.split_once("://").map_or(&*short_url, |(_, rest)| rest);
        json!({
            // Bitly writes offsets without a colon.
            "created_at": dates::format(link.created_ms).replace("+00:00", "+0000"),
            "id": id,
            "link": short_url,
            "custom_bitlinks": [],
            "long_url": link.target,
            "title": link.labels.title,
            "archived": link.policy.archived,
            "tags": link.labels.tags.iter().collect::<Vec<_>>(),
            "deeplinks": [],
            "references": {"group": ""},
        })
    }
}

/// Formats a problem as Bitly does. An invalid key is 403 there.
fn bitly_problem(problem: Problem) -> ApiResponse {
    let (number, message, description) = match problem.status().as_u16() {
        400 if problem.names("longUrl") => (400, "INVALID_ARG_LONG_URL", "The value provided is invalid."),
        400 | 413 | 415 => (400, "INVALID_ARG", "The value provided is invalid."),
        401 | 403 => (403, "FORBIDDEN", "You are currently forbidden to access this resource."),
        404 => (404, "NOT_FOUND", "What you are looking for cannot be found."),
        429 => (429, "RATE_LIMIT_EXCEEDED", "Too many, for now."),
        500 => (500, "INTERNAL_ERROR", "The link cannot be read."),
        _ => (503, "TEMPORARILY_UNAVAILABLE", ""),
    };
    let mut body = json!({"message": message, "resource": "bitlinks", "description": description});
    if number == 503 {
        // The detail says whether the link may exist all the same.
        body["description"] = problem.detail().into();
    }
    if number == 400 {
        let fields = problem.fields().into_iter().map(|field| {
            let theirs = if field == "longUrl" { "long_url".to_owned() } else { field };
            json!({"field": theirs, "error_code": "invalid", "message": problem.detail()})
        });
        body["errors"] = fields.collect();
    }
    problem.into_answer_with(
        StatusCode::from_u16(number).expect("it is one of these"),
        "application/json",
        body.to_string(),
    )
}
