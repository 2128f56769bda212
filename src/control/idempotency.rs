//! Creates that repeat an earlier one: which link they are answered with.

use crate::fleet::State;
use crate::mail::{Order, StoreAnswer, StoreRequest, Ticket};
use crate::stats::{NodeStats, unix_ms};
use crate::store::links::Links;

use super::plan::Stored;
use super::writer::look_up;

/// Told to clients where the index of idempotency keys cannot be read.
const UNREADABLE: &str = "the store cannot be read right now";

/// The answer to a create whose idempotency key has made a link already; `None` for any other order. What Redis may have
/// accepted is decided as any other create: it exists by now.
pub(super) fn answer(links: &Links, stats: &NodeStats, order: &Order) -> Option<(Ticket, StoreAnswer)> {
    let Order::Client(StoreRequest::Create { link, ticket, .. }, ground) = order else { return None };
    let asked = link.labels.idempotency?;
    if ground.may_be_done() {
        return None;
    }
    let code = match links.created_with(&asked.key, unix_ms()) {
        Ok(code) => code?,
        Err(error) => {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, "an idempotency key could not be looked up");
            return Some((*ticket, StoreAnswer::Refused(UNREADABLE)));
        }
    };
    let answer = match look_up(links, stats, &code) {
        Stored::Held(State::Link(made)) => match made.labels.idempotency {
            Some(made_with) if made_with == asked => StoreAnswer::Repeated { link: made },
            Some(made_with) if made_with.key == asked.key => StoreAnswer::OtherRequest,
            _ => StoreAnswer::RepeatedGone,
        },
        Stored::Absent | Stored::Held(State::Gone(_)) => StoreAnswer::RepeatedGone,
        Stored::Damaged => StoreAnswer::Damaged,
        Stored::Unknown => StoreAnswer::Refused(UNREADABLE),
    };
    Some((*ticket, answer))
}
