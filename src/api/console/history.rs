//! Who has changed a link, when, and what.

use super::super::{Answer, Context};

impl Context {
    /// `GET /admin/history/CODE`
    pub(super) async fn history_of_link(&self, code: &str, query: Option<&str>) -> Answer {
        let _ = (code, query);
        super::super::empty(hyper::StatusCode::OK)
    }
}
