//! Creation of a link with one `GET`, as Shlink offers it to programs that can only open a URL: `GET
//! /rest/v3/short-urls/shorten?apiKey=…&longUrl=…&format=txt`.

use hyper::{Request, StatusCode, header};
use serde_json::Map;

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::rate_limit::with_quota;
use crate::api::response::{ApiResponse, answer};
use carom_model::access::Role;

impl Context {
    /// Handles `GET /rest/v3/short-urls/shorten`: creates a link.
    pub(in crate::api) async fn shorten_in_one_step<B>(&self, request: &Request<B>) -> ApiResponse {
        match self.try_single_step(request).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_single_step<B>(&self, request: &Request<B>) -> Result<ApiResponse, Problem> {
        self.caller.needs(Role::WriteOwn)?;
        let mut params = Params::of(request.uri().query());
        let format = params.read("format", |text| match text {
            "txt" => Ok(true),
            "json" => Ok(false),
            _ => Err("must be txt or json".to_owned()),
        });
        let mut fields = Map::new();
        if let Some(url) = params.text("longUrl") {
            fields.insert("longUrl".to_owned(), url.into());
        }
        params.finish().map_err(|wrong| Problem::invalid(&wrong))?;
        let made = self.create_from_fields(&fields).await?;
        let wants_text = format.unwrap_or_else(|| prefers_text(request));
        let shown = if wants_text {
            answer(StatusCode::OK, "text/plain; charset=utf-8", self.short_url(&made.link))
        } else {
            self.show(&made.link, made.counts).await
        };
        Ok(with_quota(shown, made.quota))
    }
}

/// True if the first media type that the client accepts is plain text. Shlink looks at no other.
fn prefers_text<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = accepted.split(',').next().unwrap_or_default();
    first.to_ascii_lowercase().contains("text/plain")
}
