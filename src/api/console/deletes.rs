//! Deletes that can be undone for a while: the link is archived at once, and deleted after a delay.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::short_urls::changed;
use crate::bridge::StoreRequest;
use carom_limits::DELETION_WAIT_MAX;
use carom_model::access::Role;
use carom_model::link::Link;
use carom_model::link::patch::Patch;
use carom_model::visits::tally::VisitCounts;

impl Context {
    /// Handles `DELETE /admin/api/links/{shortCode}?after=SECONDS`: archives a link now, and schedules its
    /// deletion. A change of `archived` meanwhile cancels the deletion. The link's record holds the time, so it
    /// survives a restart.
    pub(super) async fn delete_later(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_delete_later(code, query).await {
            Ok(link) => json_answer(StatusCode::OK, &self.described(&link, VisitCounts::default())),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_delete_later(&self, code: &str, query: Option<&str>) -> Result<Arc<Link>, Problem> {
        self.caller.require(Role::WriteOwn)?;
        self.require_all_links("Deletes that can be undone")?;
        let after = after_in(query).map_err(|invalid| Problem::invalid(&[invalid]))?;
        let parsed = self.code_in(code, query).await?;
        let delete_at_ms = Some(self.services.unix_ms() + after.as_millis() as u64);
        let patch = Box::new(Patch { archived: Some(true), delete_at_ms, ..Patch::default() });
        let (by, author) = (self.caller.scope(), self.author());
        changed(
            self.services.store(|ticket| StoreRequest::Change { code: parsed, patch, by, author, ticket }).await,
            code,
        )
    }
}

/// Parses the delay of the deletion.
fn after_in(query: Option<&str>) -> Result<Duration, Invalid> {
    let most = DELETION_WAIT_MAX.as_secs();
    let seconds = Params::of(query)
        .text("after")
        .and_then(|text| text.parse().ok())
        .filter(|seconds| (1..=most).contains(seconds));
    let wrong = || Invalid::new("after", format!("must be a whole number of seconds from 1 to {most}"));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}
