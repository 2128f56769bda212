//! The visits of one link by day, by hour and by referring host. They need no visit log, so a page that draws them does
//! not wait for a search of it, as it would with `GET /rest/v3/short-urls/{shortCode}/visits`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::api::admin::status;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::visits::{self, Span};
use carom_model::visits::tally::Subject;

impl Context {
    /// Handles `GET /admin/api/visits/CODE`: returns the counts of a link in a period, and which nodes are in them.
    pub(super) async fn counts_of_link(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_counts(code, query).await {
            Ok(told) => json_answer(StatusCode::OK, &told),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_counts(&self, code: &str, query: Option<&str>) -> Result<Value, Problem> {
        let mut params = Params::of(query);
        let span = Span::read(&mut params);
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        let (link, _) = self.find_in(code, query).await?;
        let history = self.history(Subject::Link(link.code), code).await?;
        let sources = status::sources(&self.services.context().node, self.services.unix_ms());
        Ok(json!({"visits": visits::describe(&history, &span), "sources": sources}))
    }
}
