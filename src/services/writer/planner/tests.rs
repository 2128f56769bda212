//! Tests of the decision on every kind of order.

mod newer_records;
mod other_links;

use super::*;
use crate::bridge::{LinkChange, OutboxReply, StreamBatch, StreamChange};
use crate::services::testing::TestAnswer;
use carom_model::access::Scope;
use carom_model::link::Reuse;
use carom_model::link::history::Author;
use carom_model::link::record::Tombstone;
use carom_model::replication::outbox::Delivery;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Echo, EntryId};
use carom_model::testing::link;
use carom_shards::{CoreId, Policy};
use proptest::prelude::*;

const NOW: u64 = 1_700_000_000_000;
const HERE: Partition = Partition(1);

fn ticket<A>(token: u64) -> Ticket<A> {
    Ticket::new(CoreId(0), token)
}

fn state(origin: Origin, rev: u32, claim: u64) -> State {
    let target = format!("https://example.org/abc/{claim}");
    State::Link(Arc::new(Link { target, version: Version { rev, claim, edit: 0 }, ..link("abc", origin) }))
}

fn code() -> Code {
    Code::parse(b"abc").unwrap()
}

fn create(code: &str, origin: Origin, token: u64) -> WriterOrder {
    let request =
        StoreRequest::Create { link: Arc::new(link(code, origin)), reuse: Reuse::Never, ticket: ticket(token) };
    WriterOrder::Client(request, FleetDecision::Alone)
}

fn delete(code: &str, token: u64) -> WriterOrder {
    let code = Code::parse(code.as_bytes()).unwrap();
    WriterOrder::Client(
        StoreRequest::Delete { code, by: Scope::ALL, author: Author::default(), ticket: ticket(token) },
        FleetDecision::Alone,
    )
}

fn create_on(decision: FleetDecision, of: &State) -> WriterOrder {
    let State::Link(link) = of else { panic!("only links are made") };
    WriterOrder::Client(
        StoreRequest::Create { link: Arc::clone(link), reuse: Reuse::Never, ticket: ticket(1) },
        decision,
    )
}

fn delete_on(decision: FleetDecision) -> WriterOrder {
    WriterOrder::Client(
        StoreRequest::Delete { code: code(), by: Scope::ALL, author: Author::default(), ticket: ticket(1) },
        decision,
    )
}

fn echo(seq: u64) -> Echo {
    Echo { partition: HERE, id: EntryId { ms: 1, seq }, check: 0 }
}

fn answer_of(effect: &CommitEffect) -> Option<TestAnswer> {
    effect.answer().map(|reply| TestAnswer::with_token(reply).1)
}

/// Decides one order. Returns the first answer, and the new state of its code if that changes.
fn decide(outbox: &mut Outbox, stored: &CodeState, order: WriterOrder) -> (Option<TestAnswer>, Option<Option<State>>) {
    let mut plan = CommitPlanner::new(outbox, NOW);
    plan.add(order, |_| stored.clone());
    let (writes, effects) = plan.finish();
    (effects.first().and_then(answer_of), writes.states.into_iter().next().map(|(_, state)| state))
}

#[test]
fn every_state_decides_every_request_of_a_node_alone() {
    use CreateAnswer::{Created, Taken};
    use DeleteAnswer::{Deleted, NotFound};
    let unreadable = || WriteFailure::Refused(STORE_UNREADABLE);
    let fresh = State::Link(Arc::new(link("abc", Origin::Custom)));
    let (custom, issued) = (state(Origin::Custom, 0, 0), state(Origin::Issued, 0, 0));
    let buried = issued.deleted(NOW);
    let damaged = Tombstone { deleted_ms: NOW, ..carom_model::testing::tombstone() };
    for (stored, on_create, on_delete) in [
        (CodeState::Absent, (Created, Some(Some(fresh))), (NotFound, None)),
        (CodeState::Held(custom), (Taken, None), (Deleted, Some(None))),
        (CodeState::Held(issued), (Taken, None), (Deleted, Some(Some(buried.clone())))),
        (CodeState::Held(buried), (Taken, None), (NotFound, None)),
        (CodeState::Damaged, (Taken, None), (Deleted, Some(Some(State::Gone(damaged))))),
        (CodeState::Unknown, (unreadable().into(), None), (unreadable().into(), None)),
    ] {
        let mut outbox = Outbox::default();
        let (answer, write) = decide(&mut outbox, &stored, create("abc", Origin::Custom, 1));
        assert_eq!((answer, write), (Some(on_create.0.into()), on_create.1), "{stored:?}");
        let (answer, write) = decide(&mut outbox, &stored, delete("abc", 1));
        assert_eq!((answer, write), (Some(on_delete.0.into()), on_delete.1), "{stored:?}");
        assert!(outbox.is_empty(), "a node alone has nobody to tell");
    }
}

#[test]
fn delete_of_one_link_spares_the_next_one() {
    let delete = |of: &Link| {
        let (by, author) = (Scope::ALL.only(of.identity()), Author::default());
        WriterOrder::Client(StoreRequest::Delete { code: code(), by, author, ticket: ticket(1) }, FleetDecision::Alone)
    };
    let first = link("abc", Origin::Custom);
    let next = Link { created_ms: first.created_ms + 1, ..first.clone() };
    let stored = CodeState::Held(State::Link(Arc::new(next.clone())));
    let answer = decide(&mut Outbox::default(), &stored, delete(&first));
    assert_eq!(answer, (Some(DeleteAnswer::NotFound.into()), None));
    assert_eq!(decide(&mut Outbox::default(), &stored, delete(&next)).0, Some(DeleteAnswer::Deleted.into()));
}

#[test]
fn a_delete_without_redis_denies_only_a_code_that_is_used_up() {
    let gone = |origin| CodeState::Held(state(origin, 1, 7).deleted(NOW));
    for (stored, expected) in [
        (CodeState::Absent, WriteFailure::NeedsRedis { was_sent: false }.into()),
        (gone(Origin::Custom), WriteFailure::NeedsRedis { was_sent: false }.into()),
        (gone(Origin::Issued), DeleteAnswer::NotFound),
    ] {
        let order = delete_on(FleetDecision::NoReply { was_sent: false, may_decide_alone: true });
        assert_eq!(decide(&mut Outbox::default(), &stored, order).0, Some(expected.into()), "{stored:?}");
    }
    let mut outbox = Outbox::default();
    let mut plan = CommitPlanner::new(&mut outbox, NOW).with_recycling(Some(0));
    plan.add(delete_on(FleetDecision::NoReply { was_sent: false, may_decide_alone: true }), |_| gone(Origin::Issued));
    let expected: DeleteAnswer = WriteFailure::NeedsRedis { was_sent: false }.into();
    assert_eq!(plan.finish().1.first().and_then(answer_of), Some(expected.into()), "its code may have another link");
}

#[test]
fn an_earlier_state_that_returns_is_answered_with_ours() {
    let (earlier, mine) = (state(Origin::Custom, 1, 7), state(Origin::Custom, 3, 8));
    let follow = |outbox: &mut Outbox, stored: &State, theirs: &State, forgets: bool| {
        let to = StreamPosition { id: EntryId { ms: 1, seq: 9 }, check: 0 };
        let change = StreamChange { code: code(), state: ReceivedState::Known(theirs.clone()), displaced: None };
        let batch = StreamBatch { partition: HERE, entries: vec![(to, Some(change))], is_newer: false, to };
        let mut plan = CommitPlanner::new(outbox, NOW).with_retention(forgets);
        plan.add(WriterOrder::Followed(batch), |_| CodeState::Held(stored.clone()));
        assert!(plan.finish().0.states.is_empty(), "the later state stays");
        outbox.take_deliveries().len()
    };
    for (theirs, stored, forgets, offers) in [
        (&earlier, &mine, true, 1),
        (&earlier, &mine, false, 0),
        (&earlier.deleted(1), &mine, true, 1),
        (&earlier, &earlier.deleted(1), true, 1),
        (&mine, &mine, true, 0),
    ] {
        let mut outbox = Outbox::default();
        assert_eq!(follow(&mut outbox, stored, theirs, forgets), offers, "{theirs:?} over {stored:?}");
        assert_eq!(follow(&mut outbox, stored, theirs, forgets), 0, "once is enough");
    }
}

#[test]
fn of_two_creates_in_one_commit_the_first_wins() {
    let mut outbox = Outbox::default();
    let mut plan = CommitPlanner::new(&mut outbox, NOW);
    plan.add(create("abc", Origin::Custom, 1), |_| CodeState::Absent);
    plan.add(create("abc", Origin::Custom, 2), |_| panic!("asked twice"));
    assert!(plan.needs_sync());
    let (_, effects) = plan.finish();
    let answers: Vec<_> = effects.iter().filter_map(answer_of).collect();
    assert_eq!(answers, [CreateAnswer::Created, CreateAnswer::Taken]);
    assert_eq!(
        effects.iter().map(|effect| TestAnswer::with_token(effect.answer().unwrap()).0).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn what_redis_accepted_is_kept_until_it_comes_by() {
    let mut outbox = Outbox::default();
    let mine = state(Origin::Custom, 1, 7);
    let order = create_on(FleetDecision::Accepted { state: mine.clone(), echo: echo(5) }, &mine);
    assert_eq!(
        decide(&mut outbox, &CodeState::Absent, order),
        (Some(CreateAnswer::Created.into()), Some(Some(mine.clone())))
    );
    assert!(!outbox.is_empty());
    assert!(outbox.take_deliveries().is_empty());
    let to = StreamPosition { id: echo(5).id, check: 0 };
    let told = StreamChange { code: code(), state: ReceivedState::Known(mine.clone()), displaced: None };
    let entries = vec![(to, Some(told))];
    let followed = WriterOrder::Followed(StreamBatch { partition: HERE, entries, is_newer: false, to });
    let mut plan = CommitPlanner::new(&mut outbox, NOW);
    plan.add(followed, |_| CodeState::Held(mine.clone()));
    assert!(!plan.needs_sync(), "nobody waits for it");
    let (writes, effects) = plan.finish();
    assert!(effects.is_empty());
    assert!(writes.states.is_empty());
    assert_eq!((writes.positions, writes.outbox.removed), (vec![(HERE, to)], vec![0]));
    assert!(outbox.is_empty());
}

#[test]
fn what_came_through_the_stream_before_its_own_create_is_no_surprise() {
    let mut outbox = Outbox::default();
    outbox.note_applied(echo(5), code());
    let mine = state(Origin::Custom, 1, 7);
    for stored in [mine.clone(), mine.deleted(NOW)] {
        let order = create_on(FleetDecision::Accepted { state: mine.clone(), echo: echo(5) }, &mine);
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(order, |_| CodeState::Held(stored.clone()));
        assert!(plan.needs_sync(), "what came through the stream may not be synced yet");
        let (writes, effects) = plan.finish();
        assert_eq!(answer_of(&effects[0]), Some(CreateAnswer::Created.into()));
        assert!(writes.is_empty());
    }
    assert!(outbox.is_empty());
}

#[test]
fn without_redis_issued_codes_go_on_and_slugs_wait() {
    let mut outbox = Outbox::default();
    let no_reply = |asked| FleetDecision::NoReply { was_sent: asked, may_decide_alone: true };
    let (mine, slug) = (state(Origin::Issued, 1, 7), state(Origin::Custom, 1, 8));
    let made = decide(&mut outbox, &CodeState::Absent, create_on(no_reply(true), &mine));
    assert_eq!(made, (Some(CreateAnswer::Created.into()), Some(Some(mine.clone()))));
    assert_eq!(outbox.take_deliveries(), [Delivery { seq: 0, code: code() }]);
    let mut outbox = Outbox::default();
    let refused = decide(&mut outbox, &CodeState::Absent, create_on(no_reply(false), &slug));
    assert_eq!(refused, (Some(CreateAnswer::Failed(WriteFailure::NeedsRedis { was_sent: false }).into()), None));
    assert!(outbox.is_empty());
    let theirs = CodeState::Held(state(Origin::Custom, 1, 9));
    assert_eq!(
        decide(&mut outbox, &theirs, create_on(no_reply(false), &slug)),
        (Some(CreateAnswer::Taken.into()), None)
    );
    let came_by = decide(&mut outbox, &CodeState::Held(slug.clone()), create_on(no_reply(true), &slug));
    assert_eq!(came_by, (Some(CreateAnswer::Created.into()), None), "the stream was faster than the answer");
    // Redis may have accepted it: the link is deleted when it turns up.
    let refused = decide(&mut outbox, &CodeState::Absent, create_on(no_reply(true), &slug));
    assert_eq!(
        (refused, outbox.len()),
        ((Some(CreateAnswer::Failed(WriteFailure::NeedsRedis { was_sent: true }).into()), None), 0)
    );
    let (_, write) = decide(&mut outbox, &CodeState::Absent, WriterOrder::ComparedStates(vec![(code(), slug.clone())]));
    let gone = write.flatten().expect("a tombstone");
    assert_eq!(rules::offer(Some(&slug), &gone), Verdict::Accepted(gone.clone()));
    assert_eq!(outbox.take_deliveries().len(), 1);
    assert_eq!(
        rules::offer(Some(&mine), &slug.deleted(NOW).with_version(Version { rev: 1, claim: 8, edit: 0 })),
        Verdict::Held(mine)
    );
}

#[test]
fn a_delete_goes_to_the_outbox_unless_redis_has_it() {
    let mine = state(Origin::Custom, 1, 7);
    let gone = mine.deleted(NOW);
    for (decision, queued) in [
        (FleetDecision::Accepted { state: gone.clone(), echo: echo(6) }, false),
        (FleetDecision::Absent, true),
        (FleetDecision::NoReply { was_sent: true, may_decide_alone: true }, true),
    ] {
        let mut outbox = Outbox::default();
        let (answer, write) = decide(&mut outbox, &CodeState::Held(mine.clone()), delete_on(decision));
        assert_eq!((answer, write), (Some(DeleteAnswer::Deleted.into()), Some(Some(gone.clone()))));
        assert_eq!((outbox.len(), outbox.take_deliveries().len()), (1, usize::from(queued)));
    }
    let mut outbox = Outbox::default();
    let late = decide(&mut outbox, &CodeState::Held(mine), delete_on(FleetDecision::Held(gone.clone())));
    assert_eq!(late, (None, Some(Some(gone))), "somebody else was faster; the owner hears of it first");
}

#[test]
fn a_delete_never_calls_a_link_missing_that_stays() {
    let mine = state(Origin::Custom, 1, 7);
    let mut outbox = Outbox::default();
    let decision = FleetDecision::NoReply { was_sent: false, may_decide_alone: true };
    decide(&mut outbox, &CodeState::Absent, create_on(decision, &mine));
    // Redis had no link when it was asked which one to delete, and has this one by now.
    let held = decide(&mut outbox, &CodeState::Held(mine.clone()), delete_on(FleetDecision::Held(mine)));
    assert_eq!(held, (Some(DeleteAnswer::Failed(WriteFailure::Refused(NOT_IN_REDIS)).into()), None));
}

#[test]
fn what_redis_holds_is_taken_over_and_a_conflict_reported() {
    let (mine, theirs) = (state(Origin::Issued, 1, 7), state(Origin::Issued, 1, 8));
    let mut outbox = Outbox::default();
    let decision = FleetDecision::NoReply { was_sent: false, may_decide_alone: true };
    decide(&mut outbox, &CodeState::Absent, create_on(decision, &mine));
    let delivery = outbox.take_deliveries()[0];
    let held = OutboxReply { delivery, sent: mine.clone(), verdict: Verdict::Held(theirs.clone()), echo: None };
    let mut plan = CommitPlanner::new(&mut outbox, NOW);
    plan.add(WriterOrder::Delivered(vec![held]), |_| CodeState::Held(mine.clone()));
    let (lost, kept) = (mine.version(), theirs.version());
    assert_eq!(plan.conflicts(), [Conflict { code: code(), lost, kept, is_one_link: false }]);
    let (writes, effects) = plan.finish();
    assert_eq!(writes.states, [(code(), Some(theirs))]);
    assert!(matches!(effects[0], CommitEffect::Apply { change: LinkChange::Put(_), answer: None, .. }));
    assert!(!outbox.is_empty(), "until it was seen in the stream");
    assert!(!outbox.is_undelivered(&code()), "until it was seen in the stream");
}

#[test]
fn nothing_older_is_taken_over_what_redis_has_yet_to_hear() {
    let (mine, theirs) = (state(Origin::Issued, 1, 7), state(Origin::Issued, 2, 7));
    let mut outbox = Outbox::default();
    decide(
        &mut outbox,
        &CodeState::Held(mine.clone()),
        delete_on(FleetDecision::NoReply { was_sent: false, may_decide_alone: true }),
    );
    let gone = CodeState::Held(mine.deleted(NOW));
    assert!(!outbox.has_left_out());
    assert_eq!(decide(&mut outbox, &gone, WriterOrder::ComparedStates(vec![(code(), theirs)])), (None, None));
    assert!(outbox.has_left_out(), "redirects may lack a change that was read");
}

#[test]
fn what_redis_has_forgotten_is_not_forgotten_here() {
    let accepted = |state: &State| FleetDecision::Accepted { state: state.clone(), echo: echo(5) };
    // Redis has granted a slug that is taken on this node.
    let (mine, new) = (state(Origin::Custom, 3, 7), state(Origin::Custom, 1, 8));
    let mut outbox = Outbox::default();
    let (answer, write) = decide(&mut outbox, &CodeState::Held(mine.clone()), create_on(accepted(&new), &new));
    assert_eq!((answer, write), (Some(CreateAnswer::Taken.into()), None));
    assert_eq!(outbox.take_deliveries().len(), 1, "Redis hears of it");
    assert_eq!(rules::offer(Some(&new), &mine), Verdict::Accepted(mine.clone()));
    assert!(outbox.is_withdrawn(&code(), &new));
    // Redis has applied a delete to an older state than the one on this node.
    let gone = state(Origin::Custom, 1, 7).deleted(NOW);
    let (answer, write) = decide(&mut outbox, &CodeState::Held(mine), delete_on(accepted(&gone)));
    let left = write.flatten().expect("a tombstone");
    assert_eq!((answer, left.is_free(), left.version().rev), (Some(DeleteAnswer::Deleted.into()), true, 4));
}

#[test]
fn an_answer_of_redis_that_is_old_undoes_nothing() {
    let mine = state(Origin::Custom, 1, 7);
    let gone = CodeState::Held(mine.deleted(NOW));
    let new = state(Origin::Custom, 1, 8);
    let mut outbox = Outbox::default();
    let late = decide(&mut outbox, &gone, create_on(FleetDecision::Held(mine.clone()), &new));
    assert_eq!(late, (Some(CreateAnswer::Taken.into()), None), "the delete came through the stream meanwhile");
    // Deleted while Redis was away, and not delivered yet.
    decide(
        &mut outbox,
        &CodeState::Held(mine.clone()),
        delete_on(FleetDecision::NoReply { was_sent: false, may_decide_alone: true }),
    );
    let held = decide(&mut outbox, &gone, create_on(FleetDecision::Held(mine), &new));
    assert_eq!(held, (Some(CreateAnswer::Taken.into()), None));
}

#[test]
fn a_gap_brings_everything_of_the_partition_again() {
    let mut outbox = Outbox::default();
    let mine = state(Origin::Custom, 1, 7);
    decide(
        &mut outbox,
        &CodeState::Absent,
        create_on(FleetDecision::Accepted { state: mine.clone(), echo: echo(5) }, &mine),
    );
    let at = StreamPosition { id: EntryId { ms: 9, seq: 0 }, check: 3 };
    let mut plan = CommitPlanner::new(&mut outbox, NOW);
    plan.add(WriterOrder::PositionLost { partition: HERE, at }, |_| panic!("nothing is looked up"));
    let (writes, _) = plan.finish();
    assert_eq!((writes.positions, writes.compare), (vec![(HERE, at)], vec![(HERE, true)]));
    assert_eq!(outbox.take_deliveries().len(), 1);
}

proptest! {
    /// Checks that a commit of many requests does what one commit for each of them does.
    #[test]
    fn grouping_changes_nothing(
        requests in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 0..40),
        split in 1usize..40,
    ) {
        let run = |group: usize| {
            let mut store: HashMap<Code, State> = HashMap::new();
            let mut outbox = Outbox::default();
            let mut answers = Vec::new();
            for (number, chunk) in requests.chunks(group).enumerate() {
                let mut plan = CommitPlanner::new(&mut outbox, NOW);
                for (at, &(code, creates, issued)) in chunk.iter().enumerate() {
                    let code = ["a", "b", "c", "d"][code];
                    let token = (number * group + at) as u64;
                    let origin = if issued { Origin::Issued } else { Origin::Custom };
                    let order = if creates { create(code, origin, token) } else { delete(code, token) };
                    plan.add(order, |code| store.get(code).cloned().map_or(CodeState::Absent, CodeState::Held));
                }
                let (writes, effects) = plan.finish();
                for (code, state) in writes.states {
                    match state {
                        Some(state) => _ = store.insert(code, state),
                        None => _ = store.remove(&code),
                    }
                }
                let ticket_of = |effect: &CommitEffect| effect.answer().map(|reply| TestAnswer::with_token(reply).0);
                answers.extend(effects.iter().map(|effect| (ticket_of(effect), answer_of(effect))));
            }
            (store, answers)
        };
        prop_assert_eq!(run(1), run(split));
    }
}

#[test]
fn what_others_did_is_noted_and_what_time_did_is_not() {
    let State::Link(mine) = state(Origin::Custom, 1, 7) else { panic!("it is a link") };
    let until = |until_ms| {
        let policy = Policy { valid_until_ms: until_ms, ..mine.policy };
        State::Link(Arc::new(Link { policy, ..(*mine).clone() }))
    };
    let noted = |before: &State, after: State| {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(WriterOrder::ComparedStates(vec![(code(), after)]), |_| CodeState::Held(before.clone()));
        let edits = plan.finish().0.edits.into_iter().map(|(_, edit)| edit.into_json());
        edits.map(|edit| format!("{} {}", edit["what"], edit["through"])).collect::<Vec<_>>()
    };
    let before = until(Some(NOW + 1));
    assert_eq!(noted(&before, before.deleted(NOW)), ["\"deleted\" \"fleet\""]);
    assert_eq!(noted(&before, state(Origin::Custom, 2, 7)), ["\"changed\" \"fleet\""]);
    // This node has missed the end of its link, and gets the next one.
    assert_eq!(noted(&before, state(Origin::Custom, 3, 8)), ["\"deleted\" \"fleet\""]);
    assert_eq!(noted(&until(None), until(None).deleted(NOW)).len(), 1);
    let ended = until(Some(NOW));
    assert_eq!(noted(&ended, ended.deleted(NOW)), [""; 0]);
}

/// A state of a link after so many changes, in a kind that this version does not know.
fn newer(mine: &State, edit: u32) -> Arc<[u8]> {
    let mut text = mine.with_version(Version { edit, ..mine.version() }).to_text(&code());
    text[0] = b'Z';
    text.into()
}

#[test]
fn a_state_of_a_later_version_is_set_aside() {
    let mine = state(Origin::Custom, 1, 7);
    let text = newer(&mine, 1);
    let mark = |outbox: &mut Outbox, stored: &CodeState, text: &Arc<[u8]>| {
        let mut plan = CommitPlanner::new(outbox, NOW);
        plan.add(WriterOrder::Unread(vec![(code(), Arc::clone(text))]), |_| stored.clone());
        plan.finish()
    };
    let (writes, effects) = mark(&mut Outbox::default(), &CodeState::Held(mine.clone()), &text);
    assert_eq!((writes.states, writes.unread_change), (vec![(code(), None)], 1));
    assert_eq!(writes.unread, [(code(), Some(Arc::clone(&text)))]);
    assert!(writes.ended.is_empty(), "its visits go on");
    assert!(matches!(effects[..], [CommitEffect::Apply { change: LinkChange::Remove(_), .. }]));
    // A state that this node has yet to deliver, and a newer one, stay.
    let later = CodeState::Held(mine.with_version(Version { edit: 2, ..mine.version() }));
    let (writes, _) = mark(&mut Outbox::default(), &later, &text);
    assert!(writes.states.is_empty());
    assert!(writes.unread.is_empty());
    assert_eq!(writes.compare_later, [Partition::of(&code())], "Redis may refuse the newer one until then");
    let mut outbox = Outbox::default();
    outbox.note(code(), None);
    assert!(mark(&mut outbox, &CodeState::Held(mine.clone()), &text).0.states.is_empty());
    // A mark stays until a state comes that is not older.
    let marked = CodeState::Unread(newer(&mine, 3));
    let adopt = |state: State| {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(WriterOrder::ComparedStates(vec![(code(), state)]), |_| marked.clone());
        plan.finish().0
    };
    assert!(adopt(mine.clone()).is_empty());
    let last = mine.with_version(Version { edit: 4, ..mine.version() });
    let writes = adopt(last.clone());
    assert_eq!(
        (writes.states, writes.unread, writes.unread_change),
        (vec![(code(), Some(last))], vec![(code(), None)], -1)
    );
}

#[test]
fn a_marked_code_is_neither_given_nor_changed_nor_deleted() {
    let mine = state(Origin::Custom, 1, 7);
    let marked = CodeState::Unread(newer(&mine, 3));
    let alone = || FleetDecision::NoReply { was_sent: false, may_decide_alone: true };
    let mut outbox = Outbox::default();
    let (answer, written) = decide(&mut outbox, &marked, create_on(alone(), &mine));
    assert_eq!(
        (answer, written, outbox.len()),
        (Some(CreateAnswer::Failed(WriteFailure::Refused(NEWER)).into()), None, 0)
    );
}

#[test]
fn state_of_a_marked_code_is_delivered_once_it_is_decoded() {
    let mine = state(Origin::Custom, 1, 7);
    let mut outbox = Outbox::default();
    let found = WriterOrder::LookedUpStates(vec![(code(), mine.clone())]);
    let (_, written) = decide(&mut outbox, &CodeState::Unread(newer(&mine, 0)), found);
    assert_eq!(written, Some(Some(mine)));
    assert_eq!(outbox.take_deliveries(), [Delivery { seq: 0, code: code() }], "Redis may have lost it");
}

#[test]
fn conflict_with_a_state_of_a_later_version_is_reported() {
    let (mine, theirs) = (state(Origin::Custom, 1, 7), state(Origin::Custom, 1, 8));
    let conflicts = |stored: CodeState, order: WriterOrder| {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(order, |_| stored.clone());
        plan.conflicts().to_vec()
    };
    let lost = Conflict { code: code(), lost: mine.version(), kept: theirs.version(), is_one_link: false };
    let unread = || WriterOrder::Unread(vec![(code(), newer(&theirs, 0))]);
    let marked = || CodeState::Unread(newer(&mine, 0));
    assert_eq!(conflicts(CodeState::Held(mine.clone()), unread()), [lost]);
    assert_eq!(conflicts(marked(), unread()), [lost]);
    assert_eq!(conflicts(marked(), WriterOrder::ComparedStates(vec![(code(), theirs.clone())])), [lost]);
    let accepted = FleetDecision::Accepted { state: theirs.clone(), echo: echo(5) };
    assert_eq!(conflicts(marked(), create_on(accepted, &theirs)), [lost]);
    // A change or the end of the link, and the next link, are none.
    let next = state(Origin::Custom, 3, 8);
    for after in [mine.with_version(mine.version().edited()), mine.deleted(NOW), next] {
        assert_eq!(conflicts(marked(), WriterOrder::ComparedStates(vec![(code(), after)])), []);
    }
}

#[test]
fn earlier_state_that_redis_cannot_compare_replaces_no_later_one() {
    let first = state(Origin::Custom, 1, 7);
    let mine = first.with_version(Version { edit: 2, ..first.version() });
    let offered = |outbox: &mut Outbox, theirs: Arc<[u8]>| {
        outbox.note(code(), None);
        let delivery = outbox.take_deliveries()[0];
        let reply = OutboxReply { delivery, sent: mine.clone(), verdict: Verdict::HeldUnread(theirs), echo: None };
        let mut plan = CommitPlanner::new(outbox, NOW);
        plan.add(WriterOrder::Delivered(vec![reply]), |_| CodeState::Held(mine.clone()));
        plan.finish()
    };
    let (writes, effects) = offered(&mut Outbox::default(), newer(&first, 3));
    assert_eq!(
        (writes.states, writes.unread_change, effects.len()),
        (vec![(code(), None)], 1, 1),
        "Redis has a later one"
    );

    let mut outbox = Outbox::default();
    let (writes, effects) = offered(&mut outbox, newer(&first, 0));
    assert!(writes.states.is_empty(), "{writes:?}");
    assert!(writes.unread.is_empty(), "{writes:?}");
    assert!(effects.is_empty(), "{writes:?}");
    assert_eq!((writes.compare_later, outbox.len()), (vec![Partition::of(&code())], 0));
    // As soon as Redis has a state that its script knows, it accepts the later one.
    let theirs = first.with_version(Version { edit: 1, ..first.version() });
    let compared = |theirs: &State| WriterOrder::ComparedStates(vec![(code(), theirs.clone())]);
    let stored = CodeState::Held(mine.clone());
    assert_eq!(decide(&mut outbox, &stored, compared(&theirs)), (None, None));
    assert_eq!(outbox.take_deliveries(), [Delivery { seq: 1, code: code() }]);
    outbox.remove(&code());
    decide(&mut outbox, &stored, compared(&theirs));
    assert!(outbox.is_empty(), "it was offered");

    // After a restart, only the partition is known.
    let mut outbox = Outbox::restore([], []);
    decide(&mut outbox, &stored, compared(&theirs));
    assert!(outbox.is_empty(), "Redis refused nothing");
    outbox.restore_refused([Partition::of(&code())]);
    decide(&mut outbox, &stored, compared(&mine));
    assert!(outbox.is_empty(), "Redis has it");
    decide(&mut outbox, &stored, compared(&theirs));
    assert_eq!(outbox.take_deliveries().len(), 1, "this node and Redis would differ until its upgrade");
}

#[test]
fn accepted_change_replaces_no_later_state_of_a_later_version() {
    let first = state(Origin::Custom, 1, 7);
    let mine = first.with_version(Version { edit: 1, ..first.version() });
    let accepted = || create_on(FleetDecision::Accepted { state: mine.clone(), echo: echo(5) }, &mine);
    let mut outbox = Outbox::default();
    // Redis has accepted the later one since, and the stream was faster than the answer.
    let (answer, written) = decide(&mut outbox, &CodeState::Unread(newer(&first, 2)), accepted());
    assert_eq!((answer, written, outbox.len()), (Some(CreateAnswer::Created.into()), None, 0));
    let (_, written) = decide(&mut outbox, &CodeState::Unread(newer(&first, 0)), accepted());
    assert_eq!((written, outbox.len()), (Some(Some(mine.clone())), 1), "that one came before");
    outbox.note_applied(echo(5), code());
    let gone = first.deleted(NOW);
    let deleted = delete_on(FleetDecision::Accepted { state: gone.clone(), echo: echo(5) });
    let (answer, written) = decide(&mut outbox, &CodeState::Unread(newer(&state(Origin::Custom, 4, 7), 2)), deleted);
    assert_eq!((answer, written), (Some(DeleteAnswer::Deleted.into()), Some(Some(gone))), "a delete ends its link");
    let next = CodeState::Unread(newer(&state(Origin::Custom, 3, 9), 0));
    let mut outbox = Outbox::default();
    outbox.note_applied(echo(5), code());
    let (answer, written) = decide(&mut outbox, &next, accepted());
    assert_eq!((answer, written, outbox.len()), (Some(CreateAnswer::Created.into()), None, 0), "the link is over");
}
