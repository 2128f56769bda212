//! Tests of codes with a record that only a later version can decode.

use super::*;
use carom_model::link::DueEvent;
use carom_model::replication::state::StateHead;

/// The link of [`mine`], in a record of a later version.
fn stored(edit: u32) -> CodeState {
    CodeState::Newer(StateHead { is_link: Some(true), version: mine(edit).version() })
}

/// A link that was changed so many times.
fn mine(edit: u32) -> State {
    let link = state(Origin::Custom, 1, 7);
    link.with_version(Version { edit, ..link.version() })
}

#[test]
fn clients_are_refused() {
    let refused = || WriteFailure::Refused(NEWER);
    let mut outbox = Outbox::default();
    let (answer, written) = decide(&mut outbox, &stored(0), create("abc", Origin::Custom, 1));
    assert_eq!((answer, written), (Some(CreateAnswer::from(refused()).into()), None));
    let (answer, written) = decide(&mut outbox, &stored(0), delete("abc", 1));
    assert_eq!((answer, written), (Some(DeleteAnswer::from(refused()).into()), None));
}

#[test]
fn only_a_later_state_replaces_it() {
    let adopt = |theirs: &State| {
        let order = WriterOrder::ComparedStates(vec![(code(), theirs.clone())]);
        decide(&mut Outbox::default(), &stored(2), order).1
    };
    assert_eq!(adopt(&mine(1)), None);
    assert_eq!(adopt(&mine(3)), Some(Some(mine(3))));
    let gone = mine(1).deleted(NOW);
    assert_eq!(adopt(&gone), Some(Some(gone)));
    let mark = |edit| {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(WriterOrder::Unread(vec![(code(), newer(&mine(0), edit))]), |_| stored(2));
        let writes = plan.finish().0;
        (writes.states.len(), writes.unread_change)
    };
    assert_eq!([1, 2, 3].map(mark), [(0, 0), (0, 0), (1, 1)], "the record may be the state in Redis");
}

#[test]
fn state_of_redis_ends_the_wait_in_the_outbox() {
    // The record cannot be sent to Redis. Nothing that is later than it may be left out for that.
    for (edit, is_later) in [(1, false), (3, true)] {
        for is_unread in [false, true] {
            let mut outbox = Outbox::restore([Delivery { seq: 1, code: code() }], []);
            let order = if is_unread {
                WriterOrder::Unread(vec![(code(), newer(&mine(0), edit))])
            } else {
                WriterOrder::ComparedStates(vec![(code(), mine(edit))])
            };
            let (_, written) = decide(&mut outbox, &stored(2), order);
            assert_eq!((written.is_some(), outbox.has(&code())), (is_later, !is_later), "{edit} {is_unread}");
            assert!(!outbox.has_left_out(), "{edit} {is_unread}");
        }
    }
    let mut outbox = Outbox::restore([Delivery { seq: 1, code: code() }], []);
    let (_, written) = decide(&mut outbox, &stored(2), WriterOrder::NotInRedis(vec![code()]));
    assert!(written.is_none());
    assert!(outbox.has(&code()));
    assert!(!outbox.has_left_out());
}

#[test]
fn end_of_the_link_replaces_it_whatever_its_revision() {
    let version = Version { rev: 9, ..mine(0).version() };
    let mark = |is_link| {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        let gone = WriterOrder::Unread(vec![(code(), mine(0).deleted(NOW).to_text(&code()).into())]);
        plan.add(gone, |_| CodeState::Newer(StateHead { is_link: Some(is_link), version }));
        plan.finish().0.states.len()
    };
    assert_eq!([true, false].map(mark), [1, 0]);
}

#[test]
fn ends_stay_in_the_index() {
    let due = DueEvent { at_ms: 5, code: code() };
    for order in [
        WriterOrder::Expire { ends: vec![due], until_ms: NOW, recycles: false },
        WriterOrder::DeleteScheduled { deletions: vec![(due, Author::default())], until_ms: NOW },
        WriterOrder::ReleaseCodes { quarantined: vec![due], until_ms: NOW },
    ] {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(order, |_| stored(0));
        let writes = plan.finish().0;
        assert!(writes.ends.is_empty(), "an upgraded node would never end the link");
        assert!(writes.states.is_empty(), "an upgraded node would never end the link");
    }
}
