//! Answers creates whose idempotency key was used before, with the link of that earlier create. Runs on the writer's
//! thread.

use crate::bridge::{CreateAnswer, STORE_UNREADABLE, StoreRequest, Ticket, WriteFailure, WriterOrder};
use carom_model::replication::State;
use carom_store::links::Links;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

use super::planner::CodeState;
use super::read_state::look_up;

/// Returns the answer to a create whose idempotency key has created a link already; `None` for any other order. A
/// create that Redis may have accepted is decided like any other, because its link exists by now.
pub(super) fn answer(
    links: &Links,
    stats: &NodeStats,
    order: &WriterOrder,
) -> Option<(Ticket<CreateAnswer>, CreateAnswer)> {
    let WriterOrder::Client(StoreRequest::Create { link, ticket, .. }, decision) = order else { return None };
    let asked = link.labels.idempotency?;
    if decision.may_be_done() {
        return None;
    }
    let code = match links.created_with(&asked.key, unix_ms()) {
        Ok(code) => code?,
        Err(error) => {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, "an idempotency key could not be looked up");
            return Some((*ticket, WriteFailure::Refused(STORE_UNREADABLE).into()));
        }
    };
    let answer = match look_up(links, stats, &code) {
        CodeState::Held(State::Link(made)) => match made.labels.idempotency {
            Some(made_with) if made_with == asked => CreateAnswer::Repeated { link: made },
            Some(made_with) if made_with.key == asked.key => CreateAnswer::OtherRequest,
            _ => CreateAnswer::RepeatedGone,
        },
        CodeState::Absent | CodeState::Held(State::Gone(_)) => CreateAnswer::RepeatedGone,
        CodeState::Damaged => CreateAnswer::RepeatedDamaged,
        CodeState::Unknown | CodeState::Unread(_) | CodeState::Newer(_) => {
            WriteFailure::Refused(STORE_UNREADABLE).into()
        }
    };
    Some((*ticket, answer))
}
