//! Offers states of one site to the Redis of the other, and settles conflicts by
//! [`carom_model::replication::sites::settle`].

use std::collections::BTreeSet;

use carom_shards::Code;

use super::{OTHER_TIME, REDIS_TIMEOUT, Relay, RelayFailure};
use crate::services::replication::redis::CodeChange;
use carom_model::replication::rules::Verdict;
use carom_model::replication::sites::{Settlement, settle};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Partition, State};

/// Number of states that are offered at once.
const OFFER_COUNT: usize = 256;

/// Number of states that are read at once.
const READ_COUNT: usize = 1_024;

/// Number of offers of one state whose code keeps changing at this site. A later turn tries again.
const TRIES: usize = 8;

impl Relay {
    /// Offers states of the other site, in their order. Returns the partitions of those on which this site has not decided.
    pub(super) fn offer(&mut self, states: &[(Code, State)]) -> Result<BTreeSet<Partition>, RelayFailure> {
        let mut held = BTreeSet::new();
        for some in states.chunks(OFFER_COUNT) {
            self.offer_some(some.to_vec(), &mut held)?;
        }
        Ok(held)
    }

    /// Offers the present states of codes of the other site. Returns the partitions of those on which this site has not
    /// decided, or which this version cannot decode.
    pub(super) fn offer_states_of(&mut self, codes: &[Code]) -> Result<BTreeSet<Partition>, RelayFailure> {
        let mut held = BTreeSet::new();
        for codes in codes.chunks(READ_COUNT) {
            let mut known = Vec::new();
            for (code, state) in codes.iter().zip(self.other.states(codes, OTHER_TIME)) {
                match state.map_err(RelayFailure::Other)? {
                    Some(ReceivedState::Known(state)) => known.push((*code, state)),
                    Some(ReceivedState::Unread(_)) => _ = held.insert(Partition::of(code)),
                    // It has expired since the scan.
                    None => {}
                }
            }
            held.append(&mut self.offer(&known)?);
        }
        Ok(held)
    }

    /// Offers some states. Adds the partitions of those on which this site has not decided to `held`.
    fn offer_some(
        &mut self,
        mut states: Vec<(Code, State)>,
        held: &mut BTreeSet<Partition>,
    ) -> Result<(), RelayFailure> {
        for _ in 0..TRIES {
            if states.is_empty() {
                return Ok(());
            }
            let offers: Vec<(Code, CodeChange)> =
                states.iter().map(|(code, state)| (*code, CodeChange::Offer(state.clone()))).collect();
            let answers = self.own.change(&offers, REDIS_TIMEOUT);
            let (mut replacements, mut returned) = (Vec::new(), Vec::new());
            for ((code, state), answer) in states.into_iter().zip(answers) {
                let changed = answer.map_err(RelayFailure::Own)?;
                match settle(&code, &state, &changed.verdict) {
                    Settlement::Done => {}
                    Settlement::Wait => _ = held.insert(Partition::of(&code)),
                    Settlement::Replace(over) => replacements.push((code, CodeChange::Replace { over, state })),
                    Settlement::Return(gone) => returned.push((code, CodeChange::Offer(gone))),
                }
            }
            self.fleet.stats.fleet.site.relayed.add(offers.len() as u64);
            for answer in self.other.change(&returned, OTHER_TIME) {
                answer.map_err(RelayFailure::Other)?;
            }
            states = self.replace(&replacements)?;
        }
        held.extend(states.iter().map(|(code, _)| Partition::of(code)));
        Ok(())
    }

    /// Replaces states of this site. Returns those of the other site whose codes have changed here meanwhile.
    fn replace(&mut self, replacements: &[(Code, CodeChange)]) -> Result<Vec<(Code, State)>, RelayFailure> {
        let mut again = Vec::new();
        for ((code, change), answer) in replacements.iter().zip(self.own.change(replacements, REDIS_TIMEOUT)) {
            let changed = answer.map_err(RelayFailure::Own)?;
            let CodeChange::Replace { over, state } = change else { continue };
            if !matches!(changed.verdict, Verdict::Accepted(_)) {
                again.push((*code, state.clone()));
            } else if over.is_link() {
                self.fleet.stats.fleet.site.replaced.add(1);
                let site = &self.site.other;
                if over.is_same_link(state) {
                    tracing::warn!(%code, site, "a change of a link was replaced by one of the other site");
                } else {
                    tracing::warn!(%code, site, "a link was replaced by one of the other site");
                }
            }
        }
        Ok(again)
    }
}
