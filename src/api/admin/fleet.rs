//! Orders of an operator about the fleet, on the admin listener.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::bridge::JobKind;

/// Returns the methods that a path below `/fleet` allows; `None` if no such path exists.
pub(super) fn methods_at(segments: &[&str]) -> Option<&'static str> {
    matches!(segments, ["site", "complete"]).then_some("POST")
}

/// Answers `POST /fleet/site/complete`: removes the mark that this site may lack links of the other one.
pub(super) async fn complete_site(context: &Context) -> ApiResponse {
    completed(context).await.unwrap_or_else(Problem::into_answer)
}

async fn completed(context: &Context) -> Result<ApiResponse, Problem> {
    let Some(site) = &context.services.context().jobs.site else { return Err(Problem::one_site()) };
    let mark = Arc::clone(site);
    let done = context.services.hand_off(JobKind::Document, move || mark.complete()).await;
    match done.map_err(Problem::site_unconfirmed)? {
        Ok(true) => Ok(json_answer(StatusCode::OK, &json!({"site": site.site(), "mayLack": false}))),
        Ok(false) => Err(Problem::site_not_marked(site.site())),
        Err(why) => Err(Problem::site_unconfirmed(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_orders_are_known() {
        assert_eq!(methods_at(&["site", "complete"]), Some("POST"));
        for wrong in [&["site"][..], &[], &["site", "complete", ""], &["site", "current"]] {
            assert_eq!(methods_at(wrong), None, "{wrong:?}");
        }
    }
}
