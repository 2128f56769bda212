//! The answers of the writer to clients and owners.

use std::sync::Arc;

use crate::bridge::{ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, LinkChange, WriteFailure, WriterAnswer};
use carom_model::replication::State;
use carom_shards::Code;

pub(super) const NEWER: &str = "a newer version of carom has changed the code; upgrade this node";
pub(super) const NOT_IN_REDIS: &str = "Redis does not have the link yet; try again in a moment";
pub(super) const UNEXPECTED: &str = "Redis sent an unexpected answer";

/// An answer to a request that Redis has accepted.
pub(super) trait AcceptedAnswer: WriterAnswer {
    /// Returns the answer once this node keeps the accepted state.
    fn done(accepted: &State) -> Self;

    /// Returns the answer if this node keeps another link.
    fn displaced() -> Self;
}

impl AcceptedAnswer for CreateAnswer {
    fn done(accepted: &State) -> CreateAnswer {
        match accepted {
            State::Link(_) => CreateAnswer::Created,
            State::Gone(_) => WriteFailure::Unconfirmed(UNEXPECTED).into(),
        }
    }

    fn displaced() -> CreateAnswer {
        CreateAnswer::Taken
    }
}

impl AcceptedAnswer for ChangeAnswer {
    fn done(accepted: &State) -> ChangeAnswer {
        match accepted {
            State::Link(link) => ChangeAnswer::Changed(Arc::clone(link)),
            State::Gone(_) => ChangeAnswer::NotFound,
        }
    }

    fn displaced() -> ChangeAnswer {
        ChangeAnswer::Displaced
    }
}

impl AcceptedAnswer for DeleteAnswer {
    fn done(accepted: &State) -> DeleteAnswer {
        match accepted {
            State::Gone(_) => DeleteAnswer::Deleted,
            State::Link(_) => WriteFailure::Unconfirmed(UNEXPECTED).into(),
        }
    }

    fn displaced() -> DeleteAnswer {
        WriteFailure::Unconfirmed(UNEXPECTED).into()
    }
}

/// Returns the failure of a request that the store cannot decide: unconfirmed if Redis may have done it already,
/// otherwise refused.
pub(in crate::services::writer) fn refused(decision: &FleetDecision, reason: &'static str) -> WriteFailure {
    if decision.may_be_done() { WriteFailure::Unconfirmed(reason) } else { WriteFailure::Refused(reason) }
}

/// Returns the message for the owner of a code about its new state.
pub(super) fn change_of(code: Code, state: &State) -> LinkChange {
    match state {
        State::Link(link) => LinkChange::Put(Arc::clone(link)),
        State::Gone(_) => LinkChange::Remove(code),
    }
}
