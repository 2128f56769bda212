//! The meaning of an answer of Redis for the request that asked: the decision that the writer gets.

use super::context::{FleetContext, note_error};
use crate::bridge::FleetDecision;
use crate::services::replication::redis::{Changed, CodeChange, RedisError};
use carom_model::link::Origin;
use carom_model::replication::rules::Verdict;

/// The decision on a request for a code whose state this node does not know. Another node may have the link, or only a
/// later version can decode the state. Nothing was done, and this node must not do anything by itself.
pub(super) const STATE_UNKNOWN: FleetDecision = FleetDecision::NoReply { was_sent: false, may_decide_alone: false };

/// Returns what an answer of Redis means for the request that asked for a change.
pub(super) fn decision_of(
    fleet: &FleetContext,
    answer: Result<Changed, RedisError>,
    change: Option<&CodeChange>,
) -> FleetDecision {
    let may_decide_alone = fleet.settings.accept_without_redis && fleet.lease_holds() && fleet.refusal().is_none();
    match answer {
        Ok(Changed { verdict: Verdict::Accepted(state), echo: Some(echo) }) => FleetDecision::Accepted { state, echo },
        Ok(Changed { verdict: Verdict::Same, echo: Some(echo) }) => match change {
            Some(CodeChange::Claim(state, _) | CodeChange::Offer(state)) => {
                FleetDecision::Accepted { state: state.clone(), echo }
            }
            Some(CodeChange::Remove { .. } | CodeChange::Expire { .. } | CodeChange::Replace { .. }) | None => {
                FleetDecision::NoReply { was_sent: true, may_decide_alone }
            }
        },
        Ok(Changed { verdict: Verdict::Held(state), .. }) => {
            if matches!(change, Some(CodeChange::Claim(mine, _)) if mine.origin() == Origin::Issued) {
                fleet.stats.fleet.collisions.add_shared(1);
            }
            FleetDecision::Held(state)
        }
        Ok(Changed { verdict: Verdict::HeldUnread(_), .. }) => STATE_UNKNOWN,
        Ok(Changed { verdict: Verdict::Absent, .. }) => FleetDecision::Absent,
        Ok(Changed { echo: None, .. }) => FleetDecision::NoReply { was_sent: true, may_decide_alone },
        Err(error) => {
            note_error(&fleet.stats, &error);
            FleetDecision::NoReply { was_sent: error.may_be_done(), may_decide_alone }
        }
    }
}
