//! The answers of the writer to clients and owners.

use std::sync::Arc;

use crate::bridge::{FleetDecision, LinkChange, StoreAnswer};
use carom_model::replication::State;
use carom_shards::Code;

/// Returns the answer to a create or a delete.
pub(super) fn created_or_deleted(state: &State) -> StoreAnswer {
    if state.is_link() { StoreAnswer::Created } else { StoreAnswer::Deleted }
}

/// Returns the answer to a change.
pub(super) fn changed(state: &State) -> StoreAnswer {
    match state {
        State::Link(link) => StoreAnswer::Changed(Arc::clone(link)),
        State::Gone(_) => StoreAnswer::NotFound,
    }
}

/// Returns the answer to a request that the store cannot decide: unconfirmed if Redis may have done it already,
/// otherwise refused.
pub(in crate::services::writer) fn refused(decision: &FleetDecision, reason: &'static str) -> StoreAnswer {
    if decision.may_be_done() { StoreAnswer::Unconfirmed(reason) } else { StoreAnswer::Refused(reason) }
}

/// Returns the message for the owner of a code about its new state.
pub(super) fn change_of(code: Code, state: &State) -> LinkChange {
    match state {
        State::Link(link) => LinkChange::Put(Arc::clone(link)),
        State::Gone(_) => LinkChange::Remove(code),
    }
}
