//! Purged links in a shared home. This node stores only what Redis may lack, so Redis says which link a code has. Its answers
//! stand beside those of the store, which may be newer.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::Sender;
use std::time::Duration;

use carom_shards::Code;

use crate::services::replication::redis::{CodeChange, Redis, RedisError};
use carom_model::link::LinkIdentity;
use carom_model::link::record::NewerRecord;
use carom_model::purge::{PurgeBounds, PurgedLink};
use carom_model::replication::State;
use carom_model::replication::state::{HEAD_LEN, ReceivedState, StateHead};
use carom_store::links::{Ended, Links};
use carom_telemetry::clock::unix_nanos;

/// Timeout of a request to Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Codes that are asked for at once. A state has up to some KiB.
const ASKED_AT_ONCE: usize = 256;

/// The state of a code in a shared home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HomeState {
    /// Nothing. The home keeps tombstones, so it may have lost the state.
    Missing,
    /// The tombstone of a link.
    Tombstone,
    /// A link.
    Link(LinkIdentity),
    /// A state of a later version that does not show which link it is.
    Unclear,
}

/// The connection to the home of the links, for the thread `purge`.
pub(super) struct PurgeHome {
    redis: RefCell<Redis>,
    /// The channel on which the counting threads learn of ended links.
    ended: Sender<Vec<Ended>>,
}

/// True if this node stores a state of a purged code. After a loss, it sends such states to Redis again, which leaves traces
/// of a link in the stream. A damaged state is never sent.
pub(super) fn may_send(store: &Links, links: &[PurgedLink]) -> bool {
    links.iter().any(|link| store.get(&link.code).is_ok_and(|state| state.is_some()))
}

/// Returns the change that deletes a purged link in the home, unless its code has another link.
pub(super) fn removal_of(link: &PurgedLink, now_ms: u64) -> (Code, CodeChange) {
    (link.code, CodeChange::Remove { claim: link.claim.unwrap_or_default(), now_ms, mine: None })
}

impl HomeState {
    fn of(received: Option<&ReceivedState>) -> HomeState {
        let text = match received {
            None => return HomeState::Missing,
            Some(ReceivedState::Known(State::Gone(_))) => return HomeState::Tombstone,
            Some(ReceivedState::Known(State::Link(link))) => return HomeState::Link(link.identity()),
            Some(ReceivedState::Unread(text)) => text,
        };
        let Some(head) = StateHead::of(text) else { return HomeState::Unclear };
        if head.is_link == Some(false) {
            return HomeState::Tombstone;
        }
        let created_ms = text.get(HEAD_LEN..).and_then(NewerRecord::of).and_then(|record| record.created_ms);
        created_ms.map_or(HomeState::Unclear, |created_ms| {
            HomeState::Link(LinkIdentity { created_ms, claim: head.version.claim })
        })
    }

    /// True if the code may still have a purged link.
    fn may_have(self, link: &PurgedLink) -> bool {
        match self {
            // A deletion leaves a tombstone. A link that ended before the request may have done so before it came here.
            HomeState::Missing => link.ended_ms.is_none(),
            HomeState::Tombstone => false,
            HomeState::Link(present) => link.is(present),
            HomeState::Unclear => true,
        }
    }

    /// True if the code has a purged link again. Only a claim tells this link from one that was imported with its date.
    fn is_back(self, link: &PurgedLink) -> bool {
        let HomeState::Link(present) = self else { return false };
        present.claim != 0 && link.claim == Some(present.claim) && link.is(present)
    }

    /// Returns the link of the code, if it has one; `None` if the state does not show that.
    pub(super) fn link(self) -> Option<Option<LinkIdentity>> {
        match self {
            HomeState::Missing | HomeState::Tombstone => Some(None),
            HomeState::Link(present) => Some(Some(present)),
            HomeState::Unclear => None,
        }
    }
}

impl PurgeHome {
    pub(super) fn new(redis: Redis, ended: Sender<Vec<Ended>>) -> PurgeHome {
        PurgeHome { redis: RefCell::new(redis), ended }
    }

    /// Returns the states of the codes of purged links.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or has a damaged state.
    pub(super) fn states(&self, links: &[PurgedLink]) -> Result<HashMap<Code, HomeState>, RedisError> {
        let codes: HashSet<Code> = links.iter().map(|link| link.code).collect();
        let codes: Vec<Code> = codes.into_iter().collect();
        let (mut redis, mut states) = (self.redis.borrow_mut(), HashMap::new());
        for some in codes.chunks(ASKED_AT_ONCE) {
            for (code, received) in some.iter().zip(redis.states(some, REDIS_TIMEOUT)) {
                states.insert(*code, HomeState::of(received?.as_ref()));
            }
        }
        Ok(states)
    }

    /// Returns the purged links that the home has, or may have.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or has a damaged state.
    pub(super) fn remaining(&self, links: &[PurgedLink]) -> Result<Vec<PurgedLink>, RedisError> {
        let states = self.states(links)?;
        Ok(links.iter().filter(|link| states[&link.code].may_have(link)).copied().collect())
    }

    /// Returns the bounds of a purge, given those by the store, which may have links that the home lacks.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer or refused, or if it may have lost the deletion of a link: the next link of the
    /// code may be lost with it.
    pub(super) fn bounds(&self, links: &[PurgedLink], stored: PurgeBounds) -> Result<PurgeBounds, RedisError> {
        let states = self.states(links)?;
        if let Some(link) = links.iter().find(|link| states[&link.code].may_have(link)) {
            return Err(RedisError::Refused(format!("Redis may have lost the deletion of {}", link.code)));
        }
        let bound = |(code, stored_ms): (Code, u64)| match states.get(&code) {
            Some(HomeState::Link(present)) => (code, stored_ms.min(present.created_ms)),
            _ => (code, stored_ms),
        };
        Ok(stored.into_iter().map(bound).collect())
    }

    /// Returns the ends of purged links whose codes have no link now. Without a copy of the links, this node hears of a
    /// deletion only from the stream, and may have been away.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or has a damaged state.
    pub(super) fn ended(&self, links: &[PurgedLink]) -> Result<Vec<Ended>, RedisError> {
        let (states, number) = (self.states(links)?, unix_nanos());
        let gone = states.into_iter().filter(|(_, state)| *state == HomeState::Tombstone);
        Ok(gone.map(|(code, _)| Ended { code, number }).collect())
    }

    /// Lets the counting threads drop the visits of ended links. The store has their ends.
    pub(super) fn drop_visits(&self, ended: Vec<Ended>) {
        // The receiver is gone only when the node stops. The next start finds the ends in the store.
        let _ = self.ended.send(ended);
    }

    /// Deletes the purged links that the home has again, as after the restore of older data. Returns their number.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or has a damaged state.
    pub(super) fn delete_again(&self, links: &[PurgedLink], now_ms: u64) -> Result<usize, RedisError> {
        let states = self.states(links)?;
        let back = links.iter().filter(|link| states[&link.code].is_back(link));
        let removals: Vec<(Code, CodeChange)> = back.map(|link| removal_of(link, now_ms)).collect();
        let mut redis = self.redis.borrow_mut();
        for some in removals.chunks(ASKED_AT_ONCE) {
            for changed in redis.change(some, REDIS_TIMEOUT) {
                changed?;
            }
        }
        Ok(removals.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use carom_model::link::{Link, Origin, Version};
    use carom_model::testing::link;

    /// A state in Redis of the link of a slug with this date and claim.
    fn state(created_ms: u64, claim: u64) -> State {
        let version = Version { rev: 1, claim, edit: 0 };
        State::Link(Arc::new(Link { created_ms, version, ..link("slug", Origin::Custom) }))
    }

    fn known(state: State) -> HomeState {
        HomeState::of(Some(&ReceivedState::Known(state)))
    }

    fn purged(created_ms: u64, claim: u64) -> PurgedLink {
        let code = Code::parse(b"slug").unwrap();
        PurgedLink { code, created_ms, claim: Some(claim), ended_ms: None }
    }

    #[test]
    fn purged_link_is_gone_once_redis_has_a_tombstone() {
        let link = purged(5, 7);
        assert!(known(state(5, 7)).may_have(&link));
        assert!(!known(state(5, 7).deleted(9)).may_have(&link));
        assert!(!known(state(8, 9)).may_have(&link), "the slug has its next link");
        assert!(!known(state(5, 9)).may_have(&link), "an import has given the next link the date");
        assert!(HomeState::Missing.may_have(&link), "Redis may have lost the deletion");
        assert!(!HomeState::Missing.may_have(&PurgedLink { ended_ms: Some(6), ..link }));
        assert!(HomeState::Unclear.may_have(&link));
    }

    #[test]
    fn states_of_a_later_version_show_what_they_can() {
        let unread = |text: Vec<u8>| HomeState::of(Some(&ReceivedState::Unread(text.into())));
        let code = Code::parse(b"slug").unwrap();
        let whole = state(5, 7).to_text(&code);
        assert_eq!(unread(whole.clone()), HomeState::Link(LinkIdentity { created_ms: 5, claim: 7 }));
        assert_eq!(unread(whole[..HEAD_LEN].to_vec()), HomeState::Unclear, "its date is not there");
        assert_eq!(unread(state(5, 7).deleted(9).to_text(&code)), HomeState::Tombstone);
        assert_eq!(unread(b"later".to_vec()), HomeState::Unclear);
    }

    #[test]
    fn only_a_claim_tells_that_a_link_is_back() {
        assert!(known(state(5, 7)).is_back(&purged(5, 7)));
        assert!(!known(state(5, 9)).is_back(&purged(5, 7)), "it was imported again");
        assert!(!known(state(5, 0)).is_back(&purged(5, 0)), "links from outside a fleet share this claim");
        assert!(!known(state(5, 7)).is_back(&PurgedLink { claim: None, ..purged(5, 7) }));
        for gone in [HomeState::Missing, HomeState::Unclear, known(state(5, 7).deleted(9))] {
            assert!(!gone.is_back(&purged(5, 7)), "{gone:?}");
        }
    }

    #[test]
    fn states_show_the_link_of_a_code() {
        assert_eq!(known(state(5, 7)).link(), Some(Some(LinkIdentity { created_ms: 5, claim: 7 })));
        assert_eq!(known(state(5, 7).deleted(9)).link(), Some(None));
        assert_eq!(HomeState::Missing.link(), Some(None));
        assert_eq!(HomeState::Unclear.link(), None, "it may be of the next link");
    }
}
