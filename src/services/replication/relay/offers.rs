//! Offers states of one site to the Redis of the other, and settles conflicts by
//! [`carom_model::replication::sites::settle`].

use carom_shards::Code;

use super::{ANSWER_TIME, Failure, OTHER_TIME, Relay};
use crate::services::replication::redis::CodeChange;
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;
use carom_model::replication::sites::{Settlement, settle};
use carom_model::replication::state::ReceivedState;

/// Number of states that are offered at once.
const OFFER_COUNT: usize = 256;

/// Number of offers of one state whose code keeps changing at this site. A later turn tries again.
const TRIES: usize = 8;

impl Relay {
    /// Offers states of the other site, in their order. Returns true if this site has decided on all of them.
    pub(super) fn offer(&mut self, states: &[(Code, State)]) -> Result<bool, Failure> {
        let mut is_settled = true;
        for some in states.chunks(OFFER_COUNT) {
            is_settled &= self.offer_some(some.to_vec())?;
        }
        Ok(is_settled)
    }

    /// Offers the present states of codes of the other site. Returns true if this site has decided on all of them.
    pub(super) fn offer_states_of(&mut self, codes: &[Code]) -> Result<bool, Failure> {
        let (mut known, mut is_whole) = (Vec::new(), true);
        for (code, state) in codes.iter().zip(self.other.states(codes, OTHER_TIME)) {
            match state.map_err(Failure::Other)? {
                Some(ReceivedState::Known(state)) => known.push((*code, state)),
                Some(ReceivedState::Unread(_)) => is_whole = false,
                // It has expired since the scan.
                None => {}
            }
        }
        Ok(self.offer(&known)? && is_whole)
    }

    fn offer_some(&mut self, mut states: Vec<(Code, State)>) -> Result<bool, Failure> {
        let mut is_settled = true;
        for _ in 0..TRIES {
            if states.is_empty() {
                return Ok(is_settled);
            }
            let offers: Vec<(Code, CodeChange)> =
                states.iter().map(|(code, state)| (*code, CodeChange::Offer(state.clone()))).collect();
            let answers = self.own.change(&offers, ANSWER_TIME);
            let (mut replacements, mut returned) = (Vec::new(), Vec::new());
            for ((code, state), answer) in states.into_iter().zip(answers) {
                let changed = answer.map_err(Failure::Own)?;
                match settle(&code, &state, &changed.verdict) {
                    Settlement::Done => {}
                    Settlement::Wait => is_settled = false,
                    Settlement::Replace(over) => replacements.push((code, CodeChange::Replace { over, state })),
                    Settlement::Return(gone) => returned.push((code, CodeChange::Offer(gone))),
                }
            }
            self.fleet.stats.fleet.site.relayed.add(offers.len() as u64);
            for answer in self.other.change(&returned, OTHER_TIME) {
                answer.map_err(Failure::Other)?;
            }
            states = self.replace(&replacements)?;
        }
        Ok(false)
    }

    /// Replaces states of this site. Returns those of the other site whose codes have changed here meanwhile.
    fn replace(&mut self, replacements: &[(Code, CodeChange)]) -> Result<Vec<(Code, State)>, Failure> {
        let mut again = Vec::new();
        for ((code, change), answer) in replacements.iter().zip(self.own.change(replacements, ANSWER_TIME)) {
            let changed = answer.map_err(Failure::Own)?;
            let CodeChange::Replace { over, state } = change else { continue };
            if !matches!(changed.verdict, Verdict::Accepted(_)) {
                again.push((*code, state.clone()));
            } else if over.is_link() {
                self.fleet.stats.fleet.site.replaced.add(1);
                tracing::warn!(%code, site = self.site.other, "a link was replaced by one of the other site");
            }
        }
        Ok(again)
    }
}
