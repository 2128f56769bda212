//! Deletes that can be undone for a while, of the console and the API: the link is archived at once, and deleted after a
//! delay.

use std::sync::Arc;
use std::time::Duration;

use super::short_urls::changed;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::ApiResponse;
use crate::bridge::StoreRequest;
use carom_limits::DELETION_WAIT_MAX;
use carom_model::access::Role;
use carom_model::link::Link;
use carom_model::link::patch::Patch;

impl Context {
    /// Handles `DELETE /admin/api/links/{shortCode}?after=SECONDS`, and the same below `/rest/v3/short-urls`: archives a
    /// link now, and schedules its deletion. A change of `archived` meanwhile cancels the deletion. The link's record
    /// holds the time, so it survives a restart.
    pub(in crate::api) async fn delete_later(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.try_delete_later(code, query).await {
            Ok(link) => self.show(&link, None).await,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_delete_later(&self, code: &str, query: Option<&str>) -> Result<Arc<Link>, Problem> {
        self.caller.require(Role::WriteOwn)?;
        self.require_all_links("Deletes that can be undone")?;
        let after = after_in(query).map_err(|invalid| Problem::invalid(&invalid))?;
        let parsed = self.code_in(code, query).await?;
        let delete_at_ms = Some(self.services.unix_ms() + after.as_millis() as u64);
        let patch = Box::new(Patch { archived: Some(true), delete_at_ms, ..Patch::default() });
        let (by, author) = (self.caller.scope(), self.author());
        let answer =
            self.services.store(|ticket| StoreRequest::Change { code: parsed, patch, by, author, ticket }).await;
        changed(answer, code).map_err(|problem| problem.on_domain(Params::of(query).text("domain")))
    }
}

/// Parses the delay of the deletion.
///
/// # Errors
/// A delay that is missing, empty or out of range.
fn after_in(query: Option<&str>) -> Result<Duration, Vec<Invalid>> {
    let most = DELETION_WAIT_MAX.as_secs();
    let mut params = Params::of(query);
    let seconds = params.number("after", 1, most);
    params.finish()?;
    let missing = || vec![Invalid::new("after", format!("must be a whole number from 1 to {most}, in seconds"))];
    seconds.map(Duration::from_secs).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seconds_and_the_last_one_counts() {
        let after = |query: &str| after_in(Some(query)).map_err(|invalid| invalid[0].reason.clone());
        assert_eq!(after("after=1"), Ok(Duration::from_secs(1)));
        assert_eq!(after("domain=a&after=5&after=3600"), Ok(Duration::from_secs(3_600)));
        for wrong in ["0", "3601", "1.5", "%2B5", "-5", "soon", "18446744073709551616"] {
            let reason = after(&format!("after={wrong}")).unwrap_err();
            let got = format!("must be a whole number from 1 to 3600 (got \"{}\")", wrong.replace("%2B", "+"));
            assert_eq!(reason, got);
        }
        // An empty delay is missing, and the link stays.
        for missing in ["", "after=", "after=5&after="] {
            assert!(after(missing).unwrap_err().contains("in seconds"), "{missing}");
        }
    }
}
