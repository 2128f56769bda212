//! What each write in a group commit leads to: the rules for codes, without a disk.
//!
//! Orders are decided as they arrive, each against what is stored and what those before it in the same commit will have
//! changed. A code that was issued once is never given again: a tombstone stays of it. A slug that somebody chose is free
//! again after a delete; in a fleet a tombstone stays of it, too, to keep the order of its states. In a fleet, Redis was asked before ([`Ground`]), or what
//! others did comes in through the streams, and [`crate::fleet`] says who is right. Nothing here writes or answers; see
//! [`super::writer`].

use std::collections::HashMap;
use std::sync::Arc;

use carom_shards::Code;

use crate::fleet::follow::Position;
use crate::fleet::outbox::{Outbox, OutboxWrites};
use crate::fleet::rules::{self, Verdict};
use crate::fleet::{Echo, Partition, State};
use crate::link::{Link, Origin, Version};
use crate::mail::{Change, Delivered, Followed, Ground, Order, StoreAnswer, StoreRequest, Ticket};
use crate::record::Tombstone;

/// What is under a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Nothing, and nothing ever was.
    Absent,
    /// A link, or what is left of one.
    Held(State),
    /// Something that cannot be decoded or read.
    Damaged,
    /// Nobody can say now: the read failed for a reason that may pass.
    Unknown,
}

impl Stored {
    /// The state, if there is one that can be read.
    pub fn state(&self) -> Option<&State> {
        match self {
            Stored::Held(state) => Some(state),
            Stored::Absent | Stored::Damaged | Stored::Unknown => None,
        }
    }
}

/// What to tell whom, once everything is durable.
#[derive(Debug)]
pub enum Outcome {
    /// The owner of the code applies the change, then gives the answer to the ticket of who asked for it, if anybody did.
    Apply {
        /// The code.
        code: Code,
        /// The change.
        change: Change,
        /// Whom to tell what.
        notify: Option<(Ticket, StoreAnswer)>,
    },
    /// Nothing changes for the owner.
    Answer {
        /// Whom to tell.
        ticket: Ticket,
        /// What to tell.
        answer: StoreAnswer,
    },
}

impl Outcome {
    /// Whom it is for in the end.
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Outcome::Apply { notify, .. } => notify.as_ref().map(|(ticket, _)| *ticket),
            Outcome::Answer { ticket, .. } => Some(*ticket),
        }
    }
}

/// Two links that cannot both have their code; the one that Redis has stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The code.
    pub code: Code,
    /// What this node had, and gives up.
    pub ours: State,
    /// What stays.
    pub theirs: State,
}

/// What a commit must write.
#[derive(Debug, Default)]
pub struct Writes {
    /// The last state of each code that changes; `None` where nothing of it is to stay.
    pub states: Vec<(Code, Option<State>)>,
    /// The outbox.
    pub outbox: OutboxWrites,
    /// New places in the streams.
    pub positions: Vec<(Partition, Position)>,
    /// Partitions that must be compared as a whole, or need it no more.
    pub compare: Vec<(Partition, bool)>,
}

impl Writes {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.outbox == OutboxWrites::default()
            && self.positions.is_empty()
            && self.compare.is_empty()
    }
}

/// A group commit in the making.
#[derive(Debug)]
pub struct Plan<'o> {
    outbox: &'o mut Outbox,
    /// When this commit happens, in milliseconds since 1970 UTC.
    now_ms: u64,
    /// What each code that this commit has looked at will be, and whether that is to be written.
    codes: HashMap<Code, (Stored, bool)>,
    positions: HashMap<Partition, Position>,
    compare: HashMap<Partition, bool>,
    outcomes: Vec<Outcome>,
    conflicts: Vec<Conflict>,
    /// Whether somebody is told that something is durable.
    acknowledges: bool,
}

impl<'o> Plan<'o> {
    /// An empty commit.
    pub fn new(outbox: &'o mut Outbox, now_ms: u64) -> Plan<'o> {
        Plan {
            outbox,
            now_ms,
            codes: HashMap::new(),
            positions: HashMap::new(),
            compare: HashMap::new(),
            outcomes: Vec::new(),
            conflicts: Vec::new(),
            acknowledges: false,
        }
    }

    /// Decides one order. `look_up` says what is stored under a code; it is asked once for each code.
    pub fn add(&mut self, order: Order, look_up: impl Fn(&Code) -> Stored) {
        match order {
            Order::Client(StoreRequest::Create { link, ticket }, ground) => {
                let before = self.stored(&link.code, look_up);
                self.create(link, ticket, ground, &before);
            }
            Order::Client(StoreRequest::Delete { code, ticket }, ground) => {
                let before = self.stored(&code, look_up);
                self.delete(code, ticket, ground, &before);
            }
            Order::Client(StoreRequest::Read { ticket, .. }, _) => {
                // Reads have their own queue. One that comes here all the same gets an answer.
                self.answer(ticket, StoreAnswer::Refused("reads are not served by the writer"));
            }
            Order::Followed(followed) => self.follow(followed, look_up),
            Order::Found(states) => {
                for (code, state) in states {
                    self.adopt(code, state, &look_up);
                }
            }
            Order::Yielded(states) => {
                for (code, state) in states {
                    if !self.outbox.is_undelivered(&code) {
                        let before = self.stored(&code, &look_up);
                        self.adopt_over(code, state, &before);
                    }
                }
            }
            Order::Delivered(delivered) => self.delivered(delivered, look_up),
            Order::Gap { partition, at } => {
                self.outbox.lost_place(partition, at.id);
                self.compare.insert(partition, true);
                self.positions.insert(partition, at);
            }
            Order::Compared(partition) => _ = self.compare.insert(partition, false),
        }
    }

    /// Whether somebody is told that something is durable, so that the commit must be synced.
    pub fn acknowledges(&self) -> bool {
        self.acknowledges
    }

    /// Conflicts that were found, for a person to know.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// What to write, and what to tell whom in the order of the orders.
    pub fn finish(self) -> (Writes, Vec<Outcome>) {
        let mut writes = Writes { outbox: self.outbox.take_writes(), ..Writes::default() };
        for (code, (stored, is_new)) in self.codes {
            if is_new {
                let state = if let Stored::Held(state) = stored { Some(state) } else { None };
                writes.states.push((code, state));
            }
        }
        writes.positions.extend(self.positions);
        writes.compare.extend(self.compare);
        (writes, self.outcomes)
    }

    fn stored(&mut self, code: &Code, look_up: impl FnOnce(&Code) -> Stored) -> Stored {
        self.codes.entry(*code).or_insert_with(|| (look_up(code), false)).0.clone()
    }

    fn create(&mut self, link: Arc<Link>, ticket: Ticket, ground: Ground, before: &Stored) {
        match ground {
            Ground::Alone | Ground::Unheard { .. } if *before == Stored::Unknown => {
                self.answer(ticket, StoreAnswer::Refused(UNREADABLE));
            }
            Ground::Alone => match next_version(&link, before) {
                Some(version) => self.put(link.code, &State::Link(link), version, (ticket, StoreAnswer::Created)),
                None => self.answer(ticket, StoreAnswer::Taken),
            },
            Ground::Accepted { state, echo } => self.accepted(link.code, &state, echo, before, ticket),
            Ground::Held(state) => {
                self.adopt_over(link.code, state, before);
                self.answer(ticket, StoreAnswer::Taken);
            }
            // Redis had nothing to say against it, but nobody knows whether it has it.
            Ground::Absent => self.answer(ticket, StoreAnswer::Refused(NEEDS_REDIS)),
            Ground::Unheard { asked, alone } => match next_version(&link, before) {
                None => self.answer(ticket, StoreAnswer::Taken),
                Some(version) if alone && link.origin == Origin::Issued => {
                    let code = link.code;
                    self.put(code, &State::Link(link), version, (ticket, StoreAnswer::Created));
                    self.outbox.note(code, None);
                }
                Some(version) => {
                    if asked {
                        self.withdraw(&link, version);
                    }
                    self.answer(ticket, StoreAnswer::NeedsRedis);
                }
            },
        }
    }

    /// Redis may or may not have taken a slug for a link whose client is told that it was not made: it is deleted before
    /// it was there.
    fn withdraw(&mut self, link: &Link, version: Version) {
        let gone = Tombstone { deleted_ms: self.now_ms, origin: link.origin, version };
        self.codes.insert(link.code, (Stored::Held(State::Gone(gone)), true));
        self.outbox.note(link.code, None);
        self.acknowledges = true;
    }

    fn delete(&mut self, code: Code, ticket: Ticket, ground: Ground, before: &Stored) {
        match ground {
            Ground::Accepted { state, echo } => self.accepted(code, &state, echo, before, ticket),
            Ground::Held(state) => {
                self.adopt_over(code, state, before);
                self.answer(ticket, StoreAnswer::NotFound);
            }
            // If it was asked and has done it, the stream will tell.
            Ground::Unheard { alone: false, .. } => self.answer(ticket, StoreAnswer::NeedsRedis),
            Ground::Alone | Ground::Absent | Ground::Unheard { .. } => match before {
                Stored::Held(state) if state.is_link() => {
                    let gone = state.deleted(self.now_ms);
                    self.delete_here(code, &gone, ticket, &ground);
                }
                // What a damaged record was cannot be told, so its code may have been issued.
                Stored::Damaged => {
                    let version = Version::default();
                    let gone = Tombstone { deleted_ms: self.now_ms, origin: Origin::Issued, version };
                    self.delete_here(code, &State::Gone(gone), ticket, &ground);
                }
                Stored::Absent | Stored::Held(_) => self.answer(ticket, StoreAnswer::NotFound),
                Stored::Unknown => self.answer(ticket, StoreAnswer::Refused(UNREADABLE)),
            },
        }
    }

    fn delete_here(&mut self, code: Code, gone: &State, ticket: Ticket, ground: &Ground) {
        self.put(code, gone, gone.version(), (ticket, StoreAnswer::Deleted));
        if !matches!(ground, Ground::Alone) {
            self.outbox.note(code, None);
        } else if gone.is_free() {
            // Nobody else has to hear of it.
            self.codes.insert(code, (Stored::Absent, true));
        }
    }

    /// Redis has accepted what a client asked for; it may have come through the stream already, or be over.
    fn accepted(&mut self, code: Code, state: &State, echo: Echo, before: &Stored, ticket: Ticket) {
        let answer = if state.is_link() { StoreAnswer::Created } else { StoreAnswer::Deleted };
        self.acknowledges = true;
        if before.state().is_some_and(|mine| mine == state || mine.version().rev > state.version().rev) {
            self.answer(ticket, answer);
            return;
        }
        self.put(code, state, state.version(), (ticket, answer));
        self.outbox.note(code, Some(echo));
    }

    fn follow(&mut self, followed: Followed, look_up: impl Fn(&Code) -> Stored) {
        let Followed { partition, states, to } = followed;
        for (id, changed) in states {
            self.outbox.seen(partition, id);
            if let Some((code, state)) = changed {
                self.adopt(code, state, &look_up);
            }
        }
        self.outbox.passed(partition, to.id);
        self.positions.insert(partition, to);
    }

    /// Takes over what another node did, unless Redis has yet to hear of something newer from this one.
    fn adopt(&mut self, code: Code, state: State, look_up: impl Fn(&Code) -> Stored) {
        if !self.outbox.is_undelivered(&code) {
            let before = self.stored(&code, look_up);
            if rules::adopts(before.state(), &state) {
                self.adopt_over(code, state, &before);
            }
        }
    }

    fn adopt_over(&mut self, code: Code, state: State, before: &Stored) {
        if before.state() == Some(&state) {
            return;
        }
        if let Some(mine) = before.state().filter(|mine| rules::is_conflict(mine, &state)) {
            self.conflicts.push(Conflict { code, ours: mine.clone(), theirs: state.clone() });
        }
        let change = change_of(code, &state);
        let was_link = before.state().is_none_or(State::is_link);
        self.codes.insert(code, (Stored::Held(state), true));
        if was_link || matches!(change, Change::Put(_)) {
            self.outcomes.push(Outcome::Apply { code, change, notify: None });
        }
    }

    /// Redis has answered what was brought to it.
    fn delivered(&mut self, delivered: Vec<Delivered>, look_up: impl Fn(&Code) -> Stored) {
        for Delivered { delivery, sent, verdict, echo } in delivered {
            if !self.outbox.is_current(delivery) {
                continue;
            }
            let code = delivery.code;
            match (verdict, echo) {
                (Verdict::Accepted(state), Some(echo)) => {
                    let before = self.stored(&code, &look_up);
                    if before.state() == Some(&sent) && state != sent {
                        self.codes.insert(code, (Stored::Held(state), true));
                    }
                    self.outbox.accepted(delivery, echo);
                }
                (Verdict::Same, Some(echo)) => self.outbox.accepted(delivery, echo),
                (Verdict::Held(state), _) => {
                    let before = self.stored(&code, &look_up);
                    self.outbox.forget(&code);
                    self.adopt_over(code, state, &before);
                }
                // Without a place to wait for, there is no proof: it is brought again after a restart or a gap.
                (Verdict::Accepted(_) | Verdict::Same | Verdict::Absent, _) => self.outbox.forget(&code),
            }
        }
    }

    fn put(&mut self, code: Code, state: &State, version: Version, notify: (Ticket, StoreAnswer)) {
        let state = state.with_version(version);
        let change = change_of(code, &state);
        self.codes.insert(code, (Stored::Held(state), true));
        self.acknowledges = true;
        self.outcomes.push(Outcome::Apply { code, change, notify: Some(notify) });
    }

    fn answer(&mut self, ticket: Ticket, answer: StoreAnswer) {
        self.outcomes.push(Outcome::Answer { ticket, answer });
    }
}

/// What a state means for the owner of its code.
fn change_of(code: Code, state: &State) -> Change {
    match state {
        State::Link(link) => Change::Put(Arc::clone(link)),
        State::Gone(_) => Change::Remove(code),
    }
}

/// The version of a new link in the place of what is stored; `None` where the code is taken.
fn next_version(link: &Link, before: &Stored) -> Option<Version> {
    match before {
        Stored::Absent => Some(link.version),
        Stored::Held(state) if state.is_free() => {
            Some(Version { rev: state.version().rev.saturating_add(1), ..link.version })
        }
        Stored::Held(_) | Stored::Damaged | Stored::Unknown => None,
    }
}

const UNREADABLE: &str = "the store cannot be read at present";
const NEEDS_REDIS: &str = "the answer of Redis makes no sense";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fleet::EntryId;
    use crate::fleet::outbox::Delivery;
    use carom_shards::{CoreId, Policy};
    use proptest::prelude::*;

    pub(crate) fn link(code: &str, origin: Origin) -> Link {
        Link {
            code: Code::parse(code.as_bytes()).unwrap(),
            policy: Policy::default(),
            target: format!("https://example.org/{code}"),
            created_ms: 1_700_000_000_000,
            origin,
            version: Version::default(),
        }
    }

    const NOW: u64 = 1_700_000_000_000;
    const HERE: Partition = Partition(1);

    fn ticket(token: u64) -> Ticket {
        Ticket { core: CoreId(0), token }
    }

    fn state(origin: Origin, rev: u32, claim: u64) -> State {
        let target = format!("https://example.org/abc/{claim}");
        State::Link(Arc::new(Link { target, version: Version { rev, claim }, ..link("abc", origin) }))
    }

    fn code() -> Code {
        Code::parse(b"abc").unwrap()
    }

    fn create(code: &str, origin: Origin, token: u64) -> Order {
        let request = StoreRequest::Create { link: Arc::new(link(code, origin)), ticket: ticket(token) };
        Order::Client(request, Ground::Alone)
    }

    fn delete(code: &str, token: u64) -> Order {
        let code = Code::parse(code.as_bytes()).unwrap();
        Order::Client(StoreRequest::Delete { code, ticket: ticket(token) }, Ground::Alone)
    }

    fn create_on(ground: Ground, of: &State) -> Order {
        let State::Link(link) = of else { panic!("only links are made") };
        Order::Client(StoreRequest::Create { link: Arc::clone(link), ticket: ticket(1) }, ground)
    }

    fn delete_on(ground: Ground) -> Order {
        Order::Client(StoreRequest::Delete { code: code(), ticket: ticket(1) }, ground)
    }

    fn echo(seq: u64) -> Echo {
        Echo { partition: HERE, id: EntryId { ms: 1, seq } }
    }

    fn answer_of(outcome: &Outcome) -> Option<StoreAnswer> {
        match outcome {
            Outcome::Apply { notify, .. } => notify.as_ref().map(|(_, answer)| answer.clone()),
            Outcome::Answer { answer, .. } => Some(answer.clone()),
        }
    }

    /// What one order leads to: the first answer, and what is under its code afterwards if that changes.
    fn decide(outbox: &mut Outbox, stored: &Stored, order: Order) -> (Option<StoreAnswer>, Option<Option<State>>) {
        let mut plan = Plan::new(outbox, NOW);
        plan.add(order, |_| stored.clone());
        let (writes, outcomes) = plan.finish();
        (outcomes.first().and_then(answer_of), writes.states.into_iter().next().map(|(_, state)| state))
    }

    #[test]
    fn every_state_decides_every_request_of_a_node_alone() {
        use StoreAnswer::{Created, Deleted, NotFound, Refused, Taken};
        let fresh = State::Link(Arc::new(link("abc", Origin::Custom)));
        let (custom, issued) = (state(Origin::Custom, 0, 0), state(Origin::Issued, 0, 0));
        let buried = issued.deleted(NOW);
        let damaged = Tombstone { deleted_ms: NOW, origin: Origin::Issued, version: Version::default() };
        for (stored, on_create, on_delete) in [
            (Stored::Absent, (Created, Some(Some(fresh))), (NotFound, None)),
            (Stored::Held(custom), (Taken, None), (Deleted, Some(None))),
            (Stored::Held(issued), (Taken, None), (Deleted, Some(Some(buried.clone())))),
            (Stored::Held(buried), (Taken, None), (NotFound, None)),
            (Stored::Damaged, (Taken, None), (Deleted, Some(Some(State::Gone(damaged))))),
            (Stored::Unknown, (Refused(UNREADABLE), None), (Refused(UNREADABLE), None)),
        ] {
            let mut outbox = Outbox::default();
            let (answer, write) = decide(&mut outbox, &stored, create("abc", Origin::Custom, 1));
            assert_eq!((answer, write), (Some(on_create.0), on_create.1), "{stored:?}");
            let (answer, write) = decide(&mut outbox, &stored, delete("abc", 1));
            assert_eq!((answer, write), (Some(on_delete.0), on_delete.1), "{stored:?}");
            assert!(outbox.is_empty(), "a node alone has nobody to tell");
        }
    }

    #[test]
    fn of_two_creates_in_one_commit_the_first_wins() {
        let mut outbox = Outbox::default();
        let mut plan = Plan::new(&mut outbox, NOW);
        plan.add(create("abc", Origin::Custom, 1), |_| Stored::Absent);
        plan.add(create("abc", Origin::Custom, 2), |_| panic!("asked twice"));
        assert!(plan.acknowledges());
        let (_, outcomes) = plan.finish();
        let answers: Vec<_> = outcomes.iter().filter_map(answer_of).collect();
        assert_eq!(answers, [StoreAnswer::Created, StoreAnswer::Taken]);
        assert_eq!(outcomes.iter().map(|outcome| outcome.ticket().unwrap().token).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_redis_accepted_is_kept_until_it_comes_by() {
        let mut outbox = Outbox::default();
        let mine = state(Origin::Custom, 1, 7);
        let order = create_on(Ground::Accepted { state: mine.clone(), echo: echo(5) }, &mine);
        assert_eq!(decide(&mut outbox, &Stored::Absent, order), (Some(StoreAnswer::Created), Some(Some(mine.clone()))));
        assert!(!outbox.is_empty() && outbox.take_deliveries().is_empty());
        let to = Position { id: echo(5).id, check: 0 };
        let states = vec![(echo(5).id, Some((code(), mine.clone())))];
        let followed = Order::Followed(Followed { partition: HERE, states, to });
        let mut plan = Plan::new(&mut outbox, NOW);
        plan.add(followed, |_| Stored::Held(mine.clone()));
        assert!(!plan.acknowledges(), "nobody waits for it");
        let (writes, outcomes) = plan.finish();
        assert!(outcomes.is_empty() && writes.states.is_empty());
        assert_eq!((writes.positions, writes.outbox.removed), (vec![(HERE, to)], vec![0]));
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_came_through_the_stream_before_its_own_create_is_no_surprise() {
        let mut outbox = Outbox::default();
        let mine = state(Origin::Custom, 1, 7);
        for stored in [mine.clone(), mine.deleted(NOW)] {
            let order = create_on(Ground::Accepted { state: mine.clone(), echo: echo(5) }, &mine);
            let mut plan = Plan::new(&mut outbox, NOW);
            plan.add(order, |_| Stored::Held(stored.clone()));
            assert!(plan.acknowledges(), "what came through the stream may not be synced yet");
            let (writes, outcomes) = plan.finish();
            assert_eq!(answer_of(&outcomes[0]), Some(StoreAnswer::Created));
            assert!(writes.is_empty());
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn without_redis_issued_codes_go_on_and_slugs_wait() {
        let mut outbox = Outbox::default();
        let unheard = |asked| Ground::Unheard { asked, alone: true };
        let (mine, slug) = (state(Origin::Issued, 1, 7), state(Origin::Custom, 1, 8));
        let made = decide(&mut outbox, &Stored::Absent, create_on(unheard(true), &mine));
        assert_eq!(made, (Some(StoreAnswer::Created), Some(Some(mine.clone()))));
        assert_eq!(outbox.take_deliveries(), [Delivery { seq: 0, code: code() }]);
        let mut outbox = Outbox::default();
        let refused = decide(&mut outbox, &Stored::Absent, create_on(unheard(false), &slug));
        assert_eq!(refused, (Some(StoreAnswer::NeedsRedis), None));
        assert!(outbox.is_empty());
        let taken = decide(&mut outbox, &Stored::Held(slug.clone()), create_on(unheard(false), &slug));
        assert_eq!(taken, (Some(StoreAnswer::Taken), None));
        // Redis may have taken it: that is undone.
        let (answer, write) = decide(&mut outbox, &Stored::Absent, create_on(unheard(true), &slug));
        let gone = write.flatten().expect("a tombstone");
        assert_eq!((answer, gone.is_free(), gone.version()), (Some(StoreAnswer::NeedsRedis), true, slug.version()));
        let Verdict::Accepted(freed) = rules::offer(Some(&slug), &gone) else { panic!("it is taken back") };
        assert!(freed.is_free());
        assert_eq!(rules::offer(Some(&mine), &gone), Verdict::Held(mine), "nobody else's link is");
    }

    #[test]
    fn a_delete_goes_to_the_outbox_unless_redis_has_it() {
        let mine = state(Origin::Custom, 1, 7);
        let gone = mine.deleted(NOW);
        for (ground, queued) in [
            (Ground::Accepted { state: gone.clone(), echo: echo(6) }, false),
            (Ground::Absent, true),
            (Ground::Unheard { asked: true, alone: true }, true),
        ] {
            let mut outbox = Outbox::default();
            let (answer, write) = decide(&mut outbox, &Stored::Held(mine.clone()), delete_on(ground));
            assert_eq!((answer, write), (Some(StoreAnswer::Deleted), Some(Some(gone.clone()))));
            assert_eq!((outbox.len(), outbox.take_deliveries().len()), (1, usize::from(queued)));
        }
        let mut outbox = Outbox::default();
        let late = decide(&mut outbox, &Stored::Held(mine), delete_on(Ground::Held(gone.clone())));
        assert_eq!(late, (None, Some(Some(gone))), "somebody else was faster; the owner hears of it first");
    }

    #[test]
    fn what_redis_holds_is_taken_over_and_a_conflict_reported() {
        let (mine, theirs) = (state(Origin::Issued, 1, 7), state(Origin::Issued, 1, 8));
        let mut outbox = Outbox::default();
        decide(&mut outbox, &Stored::Absent, create_on(Ground::Unheard { asked: false, alone: true }, &mine));
        let delivery = outbox.take_deliveries()[0];
        let held = Delivered { delivery, sent: mine.clone(), verdict: Verdict::Held(theirs.clone()), echo: None };
        let mut plan = Plan::new(&mut outbox, NOW);
        plan.add(Order::Delivered(vec![held]), |_| Stored::Held(mine.clone()));
        assert_eq!(plan.conflicts(), [Conflict { code: code(), ours: mine, theirs: theirs.clone() }]);
        let (writes, outcomes) = plan.finish();
        assert_eq!(writes.states, [(code(), Some(theirs))]);
        assert!(matches!(outcomes[0], Outcome::Apply { change: Change::Put(_), notify: None, .. }));
        assert!(outbox.is_empty());
    }

    #[test]
    fn nothing_older_is_taken_over_what_redis_has_yet_to_hear() {
        let (mine, theirs) = (state(Origin::Issued, 1, 7), state(Origin::Issued, 2, 7));
        let mut outbox = Outbox::default();
        decide(&mut outbox, &Stored::Held(mine.clone()), delete_on(Ground::Unheard { asked: false, alone: true }));
        let gone = Stored::Held(mine.deleted(NOW));
        assert_eq!(decide(&mut outbox, &gone, Order::Found(vec![(code(), theirs)])), (None, None));
    }

    #[test]
    fn a_gap_brings_everything_of_the_partition_again() {
        let mut outbox = Outbox::default();
        let mine = state(Origin::Custom, 1, 7);
        decide(&mut outbox, &Stored::Absent, create_on(Ground::Accepted { state: mine.clone(), echo: echo(5) }, &mine));
        let at = Position { id: EntryId { ms: 9, seq: 0 }, check: 3 };
        let mut plan = Plan::new(&mut outbox, NOW);
        plan.add(Order::Gap { partition: HERE, at }, |_| panic!("nothing is looked up"));
        let (writes, _) = plan.finish();
        assert_eq!((writes.positions, writes.compare), (vec![(HERE, at)], vec![(HERE, true)]));
        assert_eq!(outbox.take_deliveries().len(), 1);
    }

    proptest! {
        /// One commit of many requests does what one commit for each of them does.
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
                    let mut plan = Plan::new(&mut outbox, NOW);
                    for (at, &(code, creates, issued)) in chunk.iter().enumerate() {
                        let code = ["a", "b", "c", "d"][code];
                        let token = (number * group + at) as u64;
                        let origin = if issued { Origin::Issued } else { Origin::Custom };
                        let order = if creates { create(code, origin, token) } else { delete(code, token) };
                        plan.add(order, |code| store.get(code).cloned().map_or(Stored::Absent, Stored::Held));
                    }
                    let (writes, outcomes) = plan.finish();
                    for (code, state) in writes.states {
                        match state {
                            Some(state) => _ = store.insert(code, state),
                            None => _ = store.remove(&code),
                        }
                    }
                    answers.extend(outcomes.iter().map(|outcome| (outcome.ticket(), answer_of(outcome))));
                }
                (store, answers)
            };
            prop_assert_eq!(run(1), run(split));
        }
    }
}
