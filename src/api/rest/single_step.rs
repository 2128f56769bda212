//! Creation of a link with one `GET`, as Shlink offers it to programs that can only open a URL: `GET
//! /rest/v3/short-urls/shorten?apiKey=…&longUrl=…&format=txt`. Also the choice that every create has: the new link as
//! JSON, or its short URL as text.

use hyper::{Request, StatusCode, header};
use serde_json::Map;

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::rate_limit::with_quota;
use crate::api::response::{ApiResponse, answer};
use carom_model::access::Role;
use carom_model::link::Link;
use carom_model::visits::tally::VisitCounts;

impl Context {
    /// Handles `GET /rest/v3/short-urls/shorten`: creates a link.
    pub(in crate::api) async fn shorten_in_one_step<B>(&self, request: &Request<B>) -> ApiResponse {
        self.try_single_step(request).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_single_step<B>(&self, request: &Request<B>) -> Result<ApiResponse, Problem> {
        self.caller.require(Role::WriteOwn)?;
        let as_text = wants_text(request)?;
        let mut fields = Map::new();
        if let Some(url) = Params::of(request.uri().query()).text("longUrl") {
            fields.insert("longUrl".to_owned(), url.into());
        }
        let made = self.create_from_fields(&fields).await?;
        Ok(with_quota(self.show_new(&made.link, made.counts, as_text).await, made.quota))
    }

    /// Returns the response that shows a new link: its short URL as text, or the link as JSON.
    pub(super) async fn show_new(&self, link: &Link, counts: Option<VisitCounts>, as_text: bool) -> ApiResponse {
        if as_text {
            answer(StatusCode::OK, "text/plain; charset=utf-8", self.short_url(link))
        } else {
            self.show(link, counts).await
        }
    }
}

/// True if the client wants the short URL of a new link as text: by the parameter `format`, or else by `Accept`.
///
/// # Errors
/// 400 if the format is unknown.
pub(super) fn wants_text<B>(request: &Request<B>) -> Result<bool, Problem> {
    let mut params = Params::of(request.uri().query());
    let format = params.read("format", |text| match text {
        "txt" => Ok(true),
        "json" => Ok(false),
        _ => Err("must be txt or json".to_owned()),
    });
    params.finish().map_err(|wrong| Problem::invalid(&wrong))?;
    Ok(format.unwrap_or_else(|| prefers_text(request)))
}

/// True if the first media type that the client accepts is plain text. Shlink looks at no other.
fn prefers_text<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = accepted.split(',').next().unwrap_or_default();
    first.to_ascii_lowercase().contains("text/plain")
}
