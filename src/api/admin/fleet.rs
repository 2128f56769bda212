//! Orders of an operator about the fleet, on the admin listener.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::parameters::ParameterGroup;
use crate::bridge::{GiveUpOrder, GiveUpOutcome, GiveUpReport, JobKind};

/// Returns the methods that a path below `/fleet` allows; `None` if no such path exists.
pub(super) fn methods_at(segments: &[&str]) -> Option<&'static str> {
    matches!(segments, ["site", "complete" | "give-up"]).then_some("POST")
}

/// Returns the query parameters of a path that [`methods_at`] knows.
pub(super) fn parameters_at(segments: &[&str]) -> &'static [ParameterGroup] {
    match segments {
        ["site", "give-up"] => &[&["confirm", "acceptLoss"]],
        _ => &[],
    }
}

/// Carries out the order at a path that [`methods_at`] knows, with a query of [`parameters_at`].
pub(super) async fn serve(context: &Context, segments: &[&str], query: Option<&str>) -> ApiResponse {
    let done = match segments {
        ["site", "give-up"] => give_up(context, query).await,
        _ => completed(context).await,
    };
    done.unwrap_or_else(Problem::into_answer)
}

/// Answers `POST /fleet/site/complete`: removes the mark that this site may lack links of the other one.
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

/// Answers `POST /fleet/site/give-up`: gives up the other site if `confirm` has its name, and says what that means
/// otherwise.
async fn give_up(context: &Context, query: Option<&str>) -> Result<ApiResponse, Problem> {
    let order = read_order(query).map_err(|invalid| Problem::invalid(&invalid))?;
    let Some(site) = &context.services.context().jobs.site else { return Err(Problem::no_site_to_give_up()) };
    let mark = Arc::clone(site);
    let done = context.services.hand_off(JobKind::Document, move || mark.give_up(&order)).await;
    let report = done.map_err(Problem::give_up_unconfirmed)?.map_err(|why| Problem::give_up_unconfirmed(&why))?;
    outcome(site.site(), &report)
}

/// Reads an order to give up the other site.
fn read_order(query: Option<&str>) -> Result<GiveUpOrder, Vec<Invalid>> {
    let mut params = Params::of(query);
    let confirmed = params.text("confirm").map(str::to_owned);
    let accepts_loss = params.flag("acceptLoss");
    params.finish().map(|()| GiveUpOrder { confirmed, accepts_loss })
}

/// Returns the answer to an order to give up the other site.
fn outcome(site: &str, report: &GiveUpReport) -> Result<ApiResponse, Problem> {
    let GiveUpReport { other, alive, losses, outcome } = report;
    match outcome {
        GiveUpOutcome::OtherName => Err(Problem::other_site_name(other)),
        GiveUpOutcome::Alive => Err(Problem::site_alive(other, alive)),
        GiveUpOutcome::Loss => Err(Problem::site_loss(losses)),
        GiveUpOutcome::DryRun | GiveUpOutcome::Done => {
            let is_done = *outcome == GiveUpOutcome::Done;
            let body = json!({"site": site, "otherSite": other, "givenUp": is_done, "alive": alive, "losses": losses});
            Ok(json_answer(StatusCode::OK, &body))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rest::parameters::check_names;

    #[test]
    fn paths_of_orders_are_known() {
        assert_eq!(methods_at(&["site", "complete"]), Some("POST"));
        assert_eq!(methods_at(&["site", "give-up"]), Some("POST"));
        for wrong in [&["site"][..], &[], &["site", "complete", ""], &["site", "give-up", ""], &["site", "current"]] {
            assert_eq!(methods_at(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn orders_are_read_strictly() {
        let read = |query| {
            let order = read_order(Some(query));
            order.map(|order| (order.confirmed, order.accepts_loss)).map_err(|invalid| invalid[0].field.clone())
        };
        let lisbon = || Some("lisbon".to_owned());
        assert_eq!(read(""), Ok((None, false)));
        assert_eq!(read("confirm=lisbon"), Ok((lisbon(), false)));
        assert_eq!(read("confirm=lisbon&acceptLoss=true"), Ok((lisbon(), true)));
        assert_eq!(read("confirm=lisbon&acceptLoss=yes"), Err("acceptLoss".to_owned()));
        let unknown = |segments: &[&str], query| {
            let refused = check_names(Some(query), parameters_at(segments)).err().unwrap_or_default();
            refused.into_iter().map(|one| one.field).collect::<Vec<_>>()
        };
        assert_eq!(unknown(&["site", "give-up"], "confirm=lisbon&acceptLoss=true"), Vec::<String>::new());
        assert_eq!(unknown(&["site", "give-up"], "confrim=lisbon&loss=1"), ["confrim", "loss"]);
        assert_eq!(unknown(&["site", "complete"], "confirm=lisbon"), ["confirm"]);
    }

    #[test]
    fn refused_orders_are_conflicts() {
        let report = |outcome| GiveUpReport {
            other: "lisbon".to_owned(),
            alive: vec!["n2".to_owned()],
            losses: vec!["links".to_owned()],
            outcome,
        };
        for refused in [GiveUpOutcome::OtherName, GiveUpOutcome::Alive, GiveUpOutcome::Loss] {
            let Err(problem) = outcome("berlin", &report(refused)) else { panic!("{refused:?} was not refused") };
            assert_eq!(problem.into_answer().status(), StatusCode::CONFLICT, "{refused:?}");
        }
        for accepted in [GiveUpOutcome::DryRun, GiveUpOutcome::Done] {
            assert!(outcome("berlin", &report(accepted)).is_ok(), "{accepted:?}");
        }
    }
}
