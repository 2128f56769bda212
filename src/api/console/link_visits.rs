//! The visits of one link by day, by hour and by referring host. They need no visit log, so a page that draws them does
//! not wait for a search of it, as it would with `GET /rest/v3/short-urls/{shortCode}/visits`.

use hyper::StatusCode;
use serde_json::json;

use crate::api::admin::status;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::api::rest::short_urls::refused;
use crate::api::rest::visits::{self, TimeRange};
use carom_limits::HISTORY_WRITTEN_AT_ONCE;
use carom_model::visits::tally::Subject;

impl Context {
    /// Handles `GET /admin/api/visits/CODE`: returns the counts of a link in a period, and which nodes are in them.
    pub(super) async fn counts_of_link(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_counts(code, query).await {
            Ok(text) => json_text(StatusCode::OK, text),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_counts(&self, code: &str, query: Option<&str>) -> Result<Vec<u8>, Problem> {
        let mut params = Params::of(query);
        let span = TimeRange::read(&mut params);
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        let (link, _) = self.find_in(code, query).await?;
        let history = self.visit_history(Subject::Link(link.code), code).await?;
        let sources = status::sources(&self.services.context().node, self.services.unix_ms());
        let parts = visits::parts_of(&history);
        let write = move || to_json(&json!({"visits": visits::describe(&history, &span), "sources": sources}));
        self.services.write_document(parts, HISTORY_WRITTEN_AT_ONCE, write).await.map_err(refused)
    }
}
