//! What each write in a group commit leads to: the rules for codes, without a disk.
//!
//! Requests are decided in the order of their arrival, each against what is stored and what those before it in the same
//! commit will have changed. A code that was issued once is never given again: its delete leaves a tombstone. A slug
//! that somebody chose is really removed. Nothing here writes or answers; see [`super::writer`].

use std::collections::HashMap;
use std::sync::Arc;

use carom_shards::Code;

use crate::link::{Link, Origin};
use crate::mail::{Change, StoreAnswer, StoreRequest, Ticket};

/// What is under a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Nothing, and nothing issued ever was.
    Absent,
    /// A link.
    Link(Origin),
    /// A deleted link, whose code was issued.
    Tombstone,
    /// Something that cannot be decoded or read.
    Damaged,
    /// Nobody can say now: the read failed for a reason that may pass.
    Unknown,
}

/// What to write under a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// The record of a link.
    Put(Arc<Link>),
    /// A tombstone.
    Bury,
    /// Nothing: the code is free again.
    Remove,
}

/// What to tell whom, once everything is durable.
#[derive(Debug)]
pub enum Outcome {
    /// The owner of the code applies the change, then gives the answer to the ticket.
    Apply {
        /// The code.
        code: Code,
        /// The change.
        change: Change,
        /// Whom to tell.
        ticket: Ticket,
        /// What to tell.
        answer: StoreAnswer,
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
    pub fn ticket(&self) -> Ticket {
        match self {
            Outcome::Apply { ticket, .. } | Outcome::Answer { ticket, .. } => *ticket,
        }
    }
}

/// A group commit in the making.
#[derive(Debug, Default)]
pub struct Plan {
    /// What each code that this commit has looked at will be, and its last write: earlier ones would share its place in
    /// the store's order.
    states: HashMap<Code, (Stored, Option<Write>)>,
    outcomes: Vec<Outcome>,
}

impl Plan {
    /// Decides one request. `look_up` says what is stored under a code; it is asked once for each code.
    pub fn add(&mut self, request: StoreRequest, look_up: impl FnOnce(&Code) -> Stored) {
        match request {
            StoreRequest::Create { link, ticket } => {
                let before = self.state(&link.code, look_up);
                match before {
                    Stored::Absent => self.create(link, ticket),
                    Stored::Unknown => self.answer(ticket, StoreAnswer::Refused(UNREADABLE)),
                    Stored::Link(_) | Stored::Tombstone | Stored::Damaged => self.answer(ticket, StoreAnswer::Taken),
                }
            }
            StoreRequest::Delete { code, ticket } => match self.state(&code, look_up) {
                Stored::Link(Origin::Custom) => self.delete(code, ticket, Write::Remove, Stored::Absent),
                // What a damaged record was cannot be told, so its code may have been issued.
                Stored::Link(Origin::Issued) | Stored::Damaged => {
                    self.delete(code, ticket, Write::Bury, Stored::Tombstone);
                }
                Stored::Absent | Stored::Tombstone => self.answer(ticket, StoreAnswer::NotFound),
                Stored::Unknown => self.answer(ticket, StoreAnswer::Refused(UNREADABLE)),
            },
            StoreRequest::Read { ticket, .. } => {
                // Reads have their own queue. One that comes here all the same gets an answer.
                self.answer(ticket, StoreAnswer::Refused("reads are not served by the writer"));
            }
        }
    }

    /// The last write of each code.
    pub fn writes(&self) -> impl Iterator<Item = (&Code, &Write)> {
        self.states.iter().filter_map(|(code, (_, write))| Some((code, write.as_ref()?)))
    }

    /// Whether nothing is to be written.
    pub fn is_read_only(&self) -> bool {
        self.writes().next().is_none()
    }

    /// What to tell whom, in the order of the requests.
    pub fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }

    fn state(&mut self, code: &Code, look_up: impl FnOnce(&Code) -> Stored) -> Stored {
        self.states.entry(*code).or_insert_with(|| (look_up(code), None)).0
    }

    fn create(&mut self, link: Arc<Link>, ticket: Ticket) {
        let (code, after) = (link.code, Stored::Link(link.origin));
        self.change(code, after, Write::Put(Arc::clone(&link)), Change::Put(link), ticket, StoreAnswer::Created);
    }

    fn delete(&mut self, code: Code, ticket: Ticket, write: Write, after: Stored) {
        self.change(code, after, write, Change::Remove(code), ticket, StoreAnswer::Deleted);
    }

    fn change(&mut self, code: Code, after: Stored, write: Write, change: Change, ticket: Ticket, answer: StoreAnswer) {
        self.states.insert(code, (after, Some(write)));
        self.outcomes.push(Outcome::Apply { code, change, ticket, answer });
    }

    fn answer(&mut self, ticket: Ticket, answer: StoreAnswer) {
        self.outcomes.push(Outcome::Answer { ticket, answer });
    }
}

const UNREADABLE: &str = "the store cannot be read at present";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use carom_shards::{CoreId, Policy};
    use proptest::prelude::*;

    pub(crate) fn link(code: &str, origin: Origin) -> Link {
        Link {
            code: Code::parse(code.as_bytes()).unwrap(),
            policy: Policy::default(),
            target: format!("https://example.org/{code}"),
            created_ms: 1_700_000_000_000,
            origin,
        }
    }

    fn ticket(token: u64) -> Ticket {
        Ticket { core: CoreId(0), token }
    }

    fn create(code: &str, origin: Origin, token: u64) -> StoreRequest {
        StoreRequest::Create { link: Arc::new(link(code, origin)), ticket: ticket(token) }
    }

    fn delete(code: &str, token: u64) -> StoreRequest {
        StoreRequest::Delete { code: Code::parse(code.as_bytes()).unwrap(), ticket: ticket(token) }
    }

    fn answer_of(outcome: &Outcome) -> StoreAnswer {
        match outcome {
            Outcome::Apply { answer, .. } | Outcome::Answer { answer, .. } => answer.clone(),
        }
    }

    fn decide(stored: Stored, request: StoreRequest) -> (StoreAnswer, Option<Write>) {
        let mut plan = Plan::default();
        plan.add(request, |_| stored);
        let write = plan.writes().next().map(|(_, write)| write.clone());
        (answer_of(&plan.into_outcomes()[0]), write)
    }

    #[test]
    fn every_state_decides_every_request() {
        use StoreAnswer::{Created, Deleted, NotFound, Refused, Taken};
        let put = Write::Put(Arc::new(link("abc", Origin::Custom)));
        for (stored, on_create, on_delete) in [
            (Stored::Absent, (Created, Some(put)), (NotFound, None)),
            (Stored::Link(Origin::Custom), (Taken, None), (Deleted, Some(Write::Remove))),
            (Stored::Link(Origin::Issued), (Taken, None), (Deleted, Some(Write::Bury))),
            (Stored::Tombstone, (Taken, None), (NotFound, None)),
            (Stored::Damaged, (Taken, None), (Deleted, Some(Write::Bury))),
            (Stored::Unknown, (Refused(UNREADABLE), None), (Refused(UNREADABLE), None)),
        ] {
            assert_eq!(decide(stored, create("abc", Origin::Custom, 1)), on_create, "{stored:?}");
            assert_eq!(decide(stored, delete("abc", 1)), on_delete, "{stored:?}");
        }
    }

    #[test]
    fn of_two_creates_in_one_commit_the_first_wins() {
        let mut plan = Plan::default();
        plan.add(create("abc", Origin::Custom, 1), |_| Stored::Absent);
        plan.add(create("abc", Origin::Custom, 2), |_| panic!("asked twice"));
        let outcomes = plan.into_outcomes();
        assert_eq!(outcomes.iter().map(answer_of).collect::<Vec<_>>(), [StoreAnswer::Created, StoreAnswer::Taken]);
        assert_eq!(outcomes.iter().map(|outcome| outcome.ticket().token).collect::<Vec<_>>(), [1, 2]);
    }

    proptest! {
        /// One commit of many requests does what one commit for each of them does.
        #[test]
        fn grouping_changes_nothing(
            requests in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 0..40),
            split in 1usize..40,
        ) {
            let run = |group: usize| {
                let mut store: HashMap<Code, Stored> = HashMap::new();
                let mut answers = Vec::new();
                for (number, chunk) in requests.chunks(group).enumerate() {
                    let mut plan = Plan::default();
                    for (at, &(code, creates, issued)) in chunk.iter().enumerate() {
                        let code = ["a", "b", "c", "d"][code];
                        let token = (number * group + at) as u64;
                        let origin = if issued { Origin::Issued } else { Origin::Custom };
                        let request = if creates { create(code, origin, token) } else { delete(code, token) };
                        plan.add(request, |code| store.get(code).copied().unwrap_or(Stored::Absent));
                    }
                    for (code, write) in plan.writes() {
                        store.insert(*code, match write {
                            Write::Put(link) => Stored::Link(link.origin),
                            Write::Bury => Stored::Tombstone,
                            Write::Remove => Stored::Absent,
                        });
                    }
                    answers.extend(plan.into_outcomes().iter().map(|outcome| (outcome.ticket().token, answer_of(outcome))));
                }
                store.retain(|_, stored| *stored != Stored::Absent);
                (store, answers)
            };
            prop_assert_eq!(run(1), run(split));
        }
    }
}
