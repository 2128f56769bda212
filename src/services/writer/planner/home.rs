//! Commits of a node whose links have a shared home: Redis stores them, and this node only what Redis may not have.
//!
//! Orders are decided like those of any node of a fleet. Only the result of the commit differs. The store keeps the states
//! of codes with an entry in the outbox, and for some seconds after that: Redis could still lose them. Memory gets no link
//! from a commit. The owner of a code drops its link, and the next request fetches the present one, so a change that
//! arrives late replaces no later one.
//!
//! The node neither lists nor searches links, so the indexes of the store stay empty.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_shards::Code;

use super::writes::{CommitEffect, Writes};
use crate::bridge::LinkChange;
use carom_model::replication::State;
use carom_model::replication::outbox::Outbox;

/// The times by which states settle, since the boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettleTimes {
    /// The time of the commit.
    pub now: Duration,
    /// States without an entry in the outbox since before this instant are no longer stored.
    pub until: Duration,
}

/// True if a node with a shared home stores the state of a code: Redis may not have it, or could still lose it.
pub(super) fn is_kept(outbox: &Outbox, code: &Code) -> bool {
    outbox.has(code) || outbox.is_settling(code)
}

/// Reduces a commit to what a node with a shared home stores and sends. `settled` has the codes whose states are no longer
/// stored.
pub(super) fn keep_unsettled(
    writes: &mut Writes,
    effects: &mut [CommitEffect],
    outbox: &mut Outbox,
    settled: Vec<Code>,
) {
    let mut states: BTreeMap<Code, Option<State>> = settled.into_iter().map(|code| (code, None)).collect();
    for (code, state) in std::mem::take(&mut writes.states) {
        let kept = state.filter(|_| is_kept(outbox, &code));
        if kept.is_none() {
            outbox.stop_settling(&code);
        }
        states.insert(code, kept);
    }
    writes.states.extend(states);
    for effect in effects {
        if let CommitEffect::Apply { code, change, .. } = effect {
            *change = LinkChange::Remove(*code);
        }
    }
    writes.urls.clear();
    writes.ends.clear();
    writes.relisted.clear();
    writes.limited.clear();
    writes.earlier.clear();
    writes.created_with.clear();
    writes.edits.clear();
    writes.unread.clear();
    writes.unread_change = 0;
    // Without a copy of the links, there is nothing to compare after an upgrade.
    writes.compare_later.clear();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{HashMap, VecDeque};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{CodeState, CommitPlanner};
    use super::*;
    use crate::bridge::{
        CreateAnswer, DeleteAnswer, FleetDecision, StoreRequest, StreamBatch, StreamChange, Ticket, WriteFailure,
        WriterOrder,
    };
    use crate::services::testing::TestAnswer;
    use carom_model::access::Scope;
    use carom_model::link::history::Author;
    use carom_model::link::{Link, Origin, Reuse, Version};
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::state::ReceivedState;
    use carom_model::replication::{Echo, EntryId, Partition};
    use carom_shards::CoreId;

    /// The store of a node, by code.
    #[derive(Default)]
    struct Stored(RefCell<HashMap<Code, State>>);

    impl Stored {
        /// Commits some orders at that second. States settle ten seconds later. Returns the codes that memory drops.
        fn commit(&self, outbox: &mut Outbox, second: u64, orders: Vec<WriterOrder>) -> Vec<Code> {
            let now = Duration::from_secs(second);
            let times = SettleTimes { now, until: now.saturating_sub(Duration::from_secs(10)) };
            let mut plan = CommitPlanner::new(outbox, 1).with_shared_home(Some(times));
            let look_up = |code: &Code| self.0.borrow().get(code).cloned().map_or(CodeState::Absent, CodeState::Held);
            orders.into_iter().for_each(|order| plan.add(order, look_up));
            let (writes, effects) = plan.finish();
            assert!(writes.urls.is_empty(), "the node answers no create with another link");
            assert!(writes.relisted.is_empty(), "the node lists no link");
            assert!(writes.compare.is_empty(), "the node has no copy to compare");
            assert!(writes.compare_later.is_empty(), "no upgrade would end the wait for a comparison");
            for (code, state) in writes.states {
                match state {
                    Some(state) => _ = self.0.borrow_mut().insert(code, state),
                    None => _ = self.0.borrow_mut().remove(&code),
                }
            }
            let dropped = effects.into_iter().filter_map(|effect| match effect {
                CommitEffect::Apply { change: LinkChange::Remove(code), .. } => Some(code),
                CommitEffect::Apply { change: LinkChange::Put(link), .. } => panic!("{link:?} is put into memory"),
                CommitEffect::Answer(_) => None,
            });
            dropped.collect()
        }

        fn len(&self) -> usize {
            self.0.borrow().len()
        }
    }

    fn state(edit: u32) -> State {
        let version = Version { rev: 1, claim: 7, edit };
        State::Link(Arc::new(Link { version, ..carom_model::testing::link("abc", Origin::Custom) }))
    }

    fn abc() -> Code {
        Code::parse(b"abc").unwrap()
    }

    fn echo(seq: u64) -> Echo {
        Echo { partition: Partition::of(&abc()), id: EntryId { ms: 1, seq }, check: seq }
    }

    fn create(seq: u64) -> WriterOrder {
        accepted(seq, 0)
    }

    /// A change of this node that Redis has accepted with that stream entry.
    fn accepted(seq: u64, edit: u32) -> WriterOrder {
        let State::Link(link) = state(edit) else { panic!("a link") };
        let ticket: Ticket<CreateAnswer> = Ticket::new(CoreId(0), 1);
        let decision = FleetDecision::Accepted { state: state(edit), echo: echo(seq) };
        WriterOrder::Client(StoreRequest::Create { link, reuse: Reuse::Never, ticket }, decision)
    }

    fn followed(seq: u64, state: State) -> WriterOrder {
        let Echo { partition, id, check } = echo(seq);
        let to = StreamPosition { id, check };
        let change = StreamChange { code: abc(), state: ReceivedState::Known(state), displaced: None };
        WriterOrder::Followed(StreamBatch { partition, entries: vec![(to, Some(change))], is_newer: false, to })
    }

    #[test]
    fn a_link_is_stored_until_redis_has_kept_it() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        assert_eq!(stored.commit(&mut outbox, 1, vec![create(5)]), [abc()]);
        assert_eq!(stored.len(), 1, "Redis may lose it");
        stored.commit(&mut outbox, 2, vec![followed(5, state(0))]);
        assert_eq!((stored.len(), outbox.len()), (1, 0), "a failover may take it back");
        stored.commit(&mut outbox, 11, vec![WriterOrder::Tick]);
        assert_eq!(stored.len(), 1);
        stored.commit(&mut outbox, 12, vec![WriterOrder::Tick]);
        assert_eq!(stored.len(), 0);
    }

    #[test]
    fn without_redis_no_delete_is_confirmed() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![create(5)]);
        let times = SettleTimes { now: Duration::from_secs(2), until: Duration::ZERO };
        let known = [CodeState::Held(state(0)), CodeState::Held(state(0).deleted(1)), CodeState::Absent];
        for (before, was_sent) in known.into_iter().flat_map(|before| [(before.clone(), false), (before, true)]) {
            let ticket: Ticket<DeleteAnswer> = Ticket::new(CoreId(0), 1);
            let delete = StoreRequest::Delete { code: abc(), by: Scope::ALL, author: Author::default(), ticket };
            let mut plan = CommitPlanner::new(&mut outbox, 1).with_shared_home(Some(times));
            let decision = FleetDecision::NoReply { was_sent, may_decide_alone: true };
            plan.add(WriterOrder::Client(delete, decision), |_| before.clone());
            let (writes, effects) = plan.finish();
            let answers: Vec<TestAnswer> =
                effects.iter().filter_map(CommitEffect::answer).map(|reply| TestAnswer::with_token(reply).1).collect();
            assert_eq!(answers, [DeleteAnswer::from(WriteFailure::NeedsRedis { was_sent })], "{before:?}");
            assert!(writes.states.is_empty(), "another node may have changed the link: {before:?}");
        }
    }

    #[test]
    fn a_change_of_another_node_drops_the_link_from_memory() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        assert_eq!(stored.commit(&mut outbox, 1, vec![followed(5, state(3))]), [abc()]);
        assert_eq!((stored.len(), outbox.len()), (0, 0));
    }

    #[test]
    fn a_tombstone_after_another_one_drops_what_was_fetched() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![create(5)]);
        let gone = state(0).deleted(1);
        stored.commit(&mut outbox, 2, vec![followed(5, state(0)), followed(6, gone.clone())]);
        assert_eq!(stored.0.borrow().get(&abc()), Some(&gone), "Redis may lose the deletion");
        // A look-up has found the next link of the slug. Then a purge deletes it, and removes its entry from the stream.
        let later = gone.with_version(Version { rev: gone.version().rev + 2, claim: 8, edit: 0 });
        assert_eq!(stored.commit(&mut outbox, 3, vec![followed(8, later)]), [abc()]);
    }

    #[test]
    fn a_change_that_the_stream_shows_early_is_stored_as_long() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![followed(5, state(0))]);
        assert_eq!(stored.commit(&mut outbox, 2, vec![create(5)]), [abc()]);
        assert_eq!((stored.len(), outbox.len()), (1, 0), "a failover may take it back");
        stored.commit(&mut outbox, 12, vec![WriterOrder::Tick]);
        assert_eq!(stored.len(), 0);
        stored.commit(&mut outbox, 20, vec![followed(6, state(1)), accepted(6, 1)]);
        assert_eq!((stored.len(), outbox.len()), (1, 0), "both came with one commit");
        stored.commit(&mut outbox, 30, vec![WriterOrder::Tick]);
        stored.commit(&mut outbox, 31, vec![followed(7, state(2)), followed(8, state(3))]);
        stored.commit(&mut outbox, 32, vec![accepted(7, 2)]);
        assert_eq!((stored.len(), outbox.len()), (0, 0), "another change has replaced it");
    }

    #[test]
    fn the_last_change_of_a_link_is_sent_again_after_a_failover() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![create(5)]);
        stored.commit(&mut outbox, 2, vec![followed(5, state(0))]);
        stored.commit(&mut outbox, 3, vec![followed(6, state(1))]);
        assert_eq!(stored.0.borrow().get(&abc()), Some(&state(1)), "another node has changed it");
        let Echo { partition, id, check } = echo(4);
        stored.commit(&mut outbox, 4, vec![WriterOrder::PositionLost { partition, at: StreamPosition { id, check } }]);
        assert!(outbox.is_undelivered(&abc()));
        assert_eq!(stored.len(), 1, "an entry without a state would never be delivered");
    }

    #[test]
    fn a_state_of_a_later_version_is_not_sent_again() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![create(5)]);
        stored.commit(&mut outbox, 2, vec![followed(5, state(0))]);
        let Echo { partition, id, check } = echo(6);
        let to = StreamPosition { id, check };
        let change = StreamChange { code: abc(), state: ReceivedState::Unread((*b"later").into()), displaced: None };
        let batch = StreamBatch { partition, entries: vec![(to, Some(change))], is_newer: true, to };
        stored.commit(&mut outbox, 3, vec![WriterOrder::Followed(batch)]);
        assert_eq!(stored.len(), 0, "the link is asked for in Redis");
        let Echo { id, check, .. } = echo(4);
        stored.commit(&mut outbox, 4, vec![WriterOrder::PositionLost { partition, at: StreamPosition { id, check } }]);
        assert_eq!(outbox.len(), 0, "this node has nothing to send");
    }

    #[test]
    fn a_lost_position_asks_for_no_comparison() {
        let (stored, mut outbox) = (Stored::default(), Outbox::default().with_settling());
        stored.commit(&mut outbox, 1, vec![create(5)]);
        stored.commit(&mut outbox, 2, vec![followed(5, state(0))]);
        let Echo { partition, id, check } = echo(4);
        let lost = WriterOrder::PositionLost { partition, at: StreamPosition { id, check } };
        let mut plan = CommitPlanner::new(&mut outbox, 1)
            .with_shared_home(Some(SettleTimes { now: Duration::from_secs(3), until: Duration::ZERO }));
        plan.add(lost, |_| CodeState::Absent);
        let (writes, _) = plan.finish();
        assert!(writes.compare.is_empty());
        assert!(outbox.is_undelivered(&abc()), "the state is sent again");
        assert_eq!(stored.len(), 1);
    }

    /// An event of a node and of the Redis that has its link.
    #[derive(Clone, Copy, Debug)]
    enum HomeStep {
        /// A node besides this one changes the link in Redis.
        Other,
        /// Redis accepts a change of this node, whose writer hears of it later.
        Own,
        /// The writer commits the oldest of these changes.
        Commit,
        /// The node follows the stream to its end.
        Follow,
        /// A look-up asks Redis.
        Ask,
        /// The owner gets the answer to a look-up.
        Answer(usize),
    }

    fn any_step() -> impl Strategy<Value = HomeStep> {
        prop_oneof![
            2 => Just(HomeStep::Other),
            2 => Just(HomeStep::Own),
            3 => Just(HomeStep::Commit),
            3 => Just(HomeStep::Follow),
            3 => Just(HomeStep::Ask),
            3 => (0..3usize).prop_map(HomeStep::Answer),
        ]
    }

    /// A link by the number of its changes: in Redis, in its stream, and in the memory of the node.
    #[derive(Default)]
    struct World {
        stored: Stored,
        outbox: Outbox,
        redis: u32,
        /// Number of stream entries, the n-th of which has the n-th change, and of those that were followed.
        followed: u32,
        undelivered: VecDeque<u32>,
        commits: u64,
        /// The number of the last commit that made memory drop the link.
        changed: u64,
        memory: Option<u32>,
        asked: Vec<(u64, u32)>,
    }

    impl World {
        fn new() -> World {
            World { outbox: Outbox::default().with_settling(), ..World::default() }
        }

        fn take(&mut self, step: HomeStep) {
            match step {
                HomeStep::Other => self.redis += 1,
                HomeStep::Own => {
                    self.redis += 1;
                    self.undelivered.push_back(self.redis);
                }
                HomeStep::Commit => {
                    if let Some(edit) = self.undelivered.pop_front() {
                        self.commit(vec![accepted(u64::from(edit), edit)]);
                    }
                }
                HomeStep::Follow => {
                    let entries = self.followed + 1..=self.redis;
                    self.followed = self.redis;
                    self.commit(entries.map(|edit| followed(u64::from(edit), state(edit))).collect());
                }
                HomeStep::Ask => self.asked.push((self.commits, self.redis)),
                HomeStep::Answer(at) if at < self.asked.len() => {
                    let (as_of, edit) = self.asked.remove(at);
                    if self.changed <= as_of && self.memory.is_none() {
                        self.memory = Some(edit);
                    }
                }
                HomeStep::Answer(_) => {}
            }
            let is_current = self.memory.is_none_or(|edit| edit >= self.followed);
            assert!(is_current, "{:?} is served, and the stream has shown {}", self.memory, self.followed);
        }

        fn commit(&mut self, orders: Vec<WriterOrder>) {
            self.commits += 1;
            if !self.stored.commit(&mut self.outbox, 1, orders).is_empty() {
                (self.changed, self.memory) = (self.commits, None);
            }
        }
    }

    proptest! {
        #[test]
        fn memory_never_serves_what_the_stream_has_replaced(steps in proptest::collection::vec(any_step(), 1..200)) {
            let mut world = World::new();
            steps.into_iter().for_each(|step| world.take(step));
            while !world.undelivered.is_empty() {
                world.take(HomeStep::Commit);
            }
            world.take(HomeStep::Follow);
            prop_assert_eq!(world.outbox.len(), 0, "Redis has every change");
            for second in [2, 20] {
                world.stored.commit(&mut world.outbox, second, vec![WriterOrder::Tick]);
            }
            prop_assert_eq!(world.stored.len(), 0, "the node stores what Redis has kept");
        }
    }
}
