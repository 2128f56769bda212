//! The stored state of a code.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::planner::CodeState;
use carom_model::link::record;
use carom_model::replication::State;
use carom_model::replication::state::StateHead;
use carom_store::links::{Links, StoreError};
use carom_telemetry::stats::NodeStats;

/// Returns the stored state of a code.
pub(super) fn look_up(links: &Links, stats: &NodeStats, code: &Code) -> CodeState {
    match links.get(code) {
        Ok(None) => look_up_mark(links, stats, code),
        Ok(Some(value)) => match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) {
            Ok(record) => CodeState::Held(State::from_record(*code, &record)),
            // The load has reported it.
            Err(error) if error.is_newer() => CodeState::Newer(StateHead::of_newer(&value)),
            Err(error) => {
                stats.report_damaged(code.to_string().as_bytes(), &error);
                CodeState::Damaged
            }
        },
        Err(StoreError::Damaged(_)) => CodeState::Damaged,
        Err(error) => {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "a record could not be read");
            CodeState::Unknown
        }
    }
}

/// Returns the state of a code that has no record: absent, or one that only a later version can decode.
fn look_up_mark(links: &Links, stats: &NodeStats, code: &Code) -> CodeState {
    match links.unread(code) {
        Ok(text) => text.map_or(CodeState::Absent, |text| CodeState::Unread(text.into())),
        Err(error) => {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "the mark of a code could not be read");
            CodeState::Unknown
        }
    }
}
