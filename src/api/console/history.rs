//! The history of a link: authors, times and contents of its changes.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::short_urls::refused;
use crate::bridge::LinkAnswer;
use carom_model::link::history::Edit;

/// Tolerance for the clocks of the nodes of a fleet.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

impl Context {
    /// Handles `GET /admin/api/history/CODE`: returns the changes of a link.
    pub(super) async fn history_of_link(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_history(code, query).await {
            Ok(edits) => json_answer(StatusCode::OK, &json!({"history": edits})),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_history(&self, code: &str, query: Option<&str>) -> Result<Vec<Value>, Problem> {
        self.require_all_links("Histories of links")?;
        let parsed = self.code_in(code, query).await?;
        if !self.caller.scope().is_all() {
            // Links of others are invisible, and so is what became of a slug before.
            self.find(parsed).await?;
        }
        let edits = self.services.read_edits(parsed).await.map_err(refused)?;
        // A reused slug also has the changes of its previous link.
        let since_ms = match self.services.read_link(parsed).await {
            LinkAnswer::Found(link, _) => Some(link.created_ms.saturating_sub(CLOCKS_DIFFER.as_millis() as u64)),
            LinkAnswer::NotFound | LinkAnswer::Damaged | LinkAnswer::Refused(_) => None,
        };
        let is_of_link = |edit: &Edit| since_ms.is_none_or(|since| edit.at_ms() >= since && !edit.is_end());
        Ok(edits.into_iter().take_while(is_of_link).map(Edit::into_json).collect())
    }
}
