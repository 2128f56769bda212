//! Who has changed a link, when, and what.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::super::problem::Problem;
use super::super::short_urls::failed;
use super::super::{Answer, Context, json as json_answer};
use crate::history::Edit;
use crate::mail::{StoreAnswer, StoreRequest};

impl Context {
    /// `GET /admin/api/history/CODE`
    pub(super) async fn history_of_link(&self, code: &str, query: Option<&str>) -> Answer {
        match self.try_history(code, query).await {
            Ok(edits) => json_answer(StatusCode::OK, &json!({"history": edits})),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_history(&self, code: &str, query: Option<&str>) -> Result<Vec<Value>, Problem> {
        let parsed = self.code_in(code, query)?;
        match self.desk.store(|ticket| StoreRequest::ReadEdits { code: parsed, ticket }).await {
            StoreAnswer::Edits(edits) => Ok(edits.into_iter().map(Edit::into_json).collect()),
            other => Err(failed(&other, code)),
        }
    }
}
