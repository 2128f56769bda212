//! Tests of the search for existing links, on a node whose Redis does not answer. The answers of Redis are given.

use super::*;
use crate::bridge::Ticket;
use crate::services::replication::testing::context;
use carom_model::link::{Criteria, Version};
use carom_model::testing::link;
use carom_shards::CoreId;

const NOW_MS: u64 = 1_800_000_000_000;

type StateAnswer = Result<Option<ReceivedState>, RedisError>;

fn code() -> Code {
    Code::parse(b"abc").unwrap()
}

/// The link of [`code`] after so many changes.
fn state(edit: u32) -> State {
    let version = Version { rev: 1, claim: 7, edit };
    State::Link(Arc::new(Link { version, ..link("abc", Origin::Issued) }))
}

/// The text of a state in a kind that this version does not know.
fn newer(edit: u32) -> Vec<u8> {
    let mut text = state(edit).to_text(&code());
    text[0] = b'Z';
    text
}

fn known(state: State) -> StateAnswer {
    Ok(Some(ReceivedState::Known(state)))
}

fn store(fleet: &FleetContext, state: &State) {
    let mut record = Vec::new();
    state.to_record(&code(), &mut record);
    let mut batch = fleet.links.batch();
    batch.put(&code(), &record);
    fleet.links.commit(batch).unwrap();
}

fn classified(fleet: &FleetContext, answer: StateAnswer) -> ReuseLookup {
    let mut redis = fleet.redis().unwrap();
    let turn = Turn { fleet, redis: &mut redis, now_ms: NOW_MS, begin: Instant::now() };
    turn.classify(ReuseQuery { link: &link("abc", Origin::Issued), reuse: Reuse::Recent }, code(), answer)
}

#[test]
fn link_that_anyone_knows_to_be_gone_is_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = context(dir.path());
    assert_eq!(classified(&fleet, Ok(None)), ReuseLookup::Missing, "another node may be about to create it");
    assert_eq!(classified(&fleet, known(state(1))), ReuseLookup::Match(Some(state(1))));
    assert_eq!(classified(&fleet, known(state(1).deleted(9))), ReuseLookup::Mismatch);
    store(&fleet, &state(1));
    assert_eq!(classified(&fleet, Ok(None)), ReuseLookup::Match(None), "Redis does not know it yet, or has lost it");
    assert_eq!(classified(&fleet, known(state(2))), ReuseLookup::Match(None));
    assert_eq!(classified(&fleet, known(state(1).deleted(9))), ReuseLookup::Mismatch);
    store(&fleet, &state(1).deleted(9));
    assert_eq!(classified(&fleet, known(state(1))), ReuseLookup::Mismatch, "Redis does not know of the delete");
    assert_eq!(classified(&fleet, Ok(None)), ReuseLookup::Mismatch);
    let away = RedisError::Unavailable { what: "no answer".to_owned(), was_sent: true };
    assert_eq!(classified(&fleet, Err(away)), ReuseLookup::NoReply);
    assert_eq!(fleet.stats.fleet.errors.get(), 1);
}

#[test]
fn link_that_a_later_version_may_have_changed_is_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = context(dir.path());
    assert_eq!(classified(&fleet, Ok(Some(ReceivedState::Unread(newer(1).into())))), ReuseLookup::Mismatch);
    let mut batch = fleet.links.batch();
    batch.mark_unread(&code(), &newer(2));
    fleet.links.commit(batch).unwrap();
    assert_eq!(classified(&fleet, Ok(None)), ReuseLookup::Mismatch, "Redis has lost the state of the mark");
    assert_eq!(classified(&fleet, known(state(1))), ReuseLookup::Mismatch, "that state is earlier");
    assert_eq!(classified(&fleet, known(state(3))), ReuseLookup::Match(Some(state(3))));
}

#[test]
fn rejected_code_is_replaced_where_redis_names_codes() {
    for (has_window, origin, step) in [
        (true, Origin::Issued, ReuseStep::Ask),
        (false, Origin::Issued, ReuseStep::Nothing),
        (true, Origin::Custom, ReuseStep::Nothing),
    ] {
        let link = Arc::new(link("abc", origin));
        let mut search = ReuseSearch {
            here: Some(code()),
            ..ReuseSearch::new(&link, Reuse::Any(Criteria::NONE), link.url_key(), 0)
        };
        search.reject(code(), has_window);
        assert_eq!((&search.step, search.here, &search.wrong[..]), (&step, None, &b"abc"[..]));
        search.decide_here();
        assert_eq!(search.step, ReuseStep::Nothing, "the rejected link would be the answer without Redis");
    }
}

#[test]
fn creates_of_a_turn_share_a_link_without_redis() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = context(dir.path());
    let mut redis = fleet.redis().unwrap();
    let request = |text: &str| {
        let link = Arc::new(Link { target: "https://example.org/".to_owned(), ..link(text, Origin::Issued) });
        StoreRequest::Create { link, reuse: Reuse::Recent, ticket: Ticket::new(CoreId(0), 1) }
    };
    let (requests, mut reuser) = ([request("abc"), request("abd")], LinkReuse::default());
    let decisions = reuser.decisions(&fleet, &mut redis, &requests);
    assert!(matches!(decisions[0], FleetDecision::NoReply { .. }), "{decisions:?}");
    assert_eq!(decisions[1], FleetDecision::Existing { code: code(), found: None, spare: true });
    // A later turn finds the first link, unless it will not be created after all.
    let StoreRequest::Create { link, .. } = &requests[0] else { panic!("it is a create") };
    reuser.forget_uncreated(&fleet, &requests[0], &FleetDecision::NoReply { was_sent: false, may_decide_alone: true });
    assert_eq!(reuser.making.code(link.url_key()), Some(code()));
    fleet.stats.writes_refused.store(true, Ordering::Release);
    reuser.forget_uncreated(&fleet, &requests[0], &FleetDecision::NoReply { was_sent: false, may_decide_alone: true });
    assert_eq!(reuser.making.code(link.url_key()), None);
}
