//! Requests of clients: a node asks Redis, and gives its writer the request with the decision.

use std::sync::Arc;

use carom::bridge::{FleetDecision, StoreRequest, Ticket, WriterOrder};
use carom_model::access::Scope;
use carom_model::link::history::Author;
use carom_model::link::patch::Patch;
use carom_model::link::{Link, Reuse, Version};
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{State, rules};
use carom_shards::CoreId;

use crate::adapter;
use crate::codes::{Index, SLUGS, code_at, issued, new_link, part_of};
use crate::ledger::{What, number_of};
use crate::redis::{Answer, Command};
use crate::trace::{brief, note};
use crate::world::{Heard, World};

/// Requests in one schedule.
const REQUESTS_MAX: usize = 24;

/// The state, if the version that received it can decode it.
pub(crate) fn known(received: ReceivedState) -> Option<State> {
    if let ReceivedState::Known(state) = received { Some(state) } else { None }
}

impl World {
    pub(crate) fn create_issued(&mut self, node: usize) -> bool {
        if self.ledger.requests.len() >= REQUESTS_MAX {
            return false;
        }
        let Some(value) = self.nodes[node].values.pop_front() else { return false };
        self.create(node, issued(value))
    }

    pub(crate) fn create_slug(&mut self, node: usize) -> bool {
        let slug = self.rng.below(SLUGS) as Index;
        self.ledger.requests.len() < REQUESTS_MAX && self.create(node, slug)
    }

    /// A client asks a node for a link under this code.
    pub(crate) fn create(&mut self, node: usize, index: Index) -> bool {
        self.claims += 1;
        let claim = self.claims;
        let free = self.nodes[node].store.now.states.get(index).filter(|state| state.is_free());
        // Redis may have forgotten what was there before.
        let version = Version { rev: free.map_or(1, |free| free.version().rev + 1), claim, edit: 0 };
        let link = Arc::new(Link { version, ..new_link(index, claim, self.now) });
        let token = self.ledger.begin(node, index, What::Create(claim));
        let state = State::Link(Arc::clone(&link));
        // The gateway asks for no code that is marked.
        let heard = match self.nodes[node].store.now.unread.get(&index) {
            Some(text) => Heard::unread(text),
            None => self.call(node, &Command::Claim(index, state.clone())),
        };
        note!(self, "request {token}: node {node} creates code {index}, claim {claim:x}: {}", brief(&heard));
        let decision = self.decision_on(index, Some(state), heard);
        let request = StoreRequest::Create { link, reuse: Reuse::Never, ticket: Ticket::new(CoreId(0), token) };
        self.nodes[node].gateway.push_back(WriterOrder::Client(request, decision));
        true
    }

    pub(crate) fn delete(&mut self, node: usize) -> bool {
        let requests = &self.ledger.requests;
        if requests.is_empty() || requests.len() >= REQUESTS_MAX {
            return false;
        }
        let index = requests[self.rng.below(requests.len())].code;
        let token = self.ledger.begin(node, index, What::Delete(None, None));
        let at = self.now.saturating_add_signed(self.nodes[node].clock);
        // The gateway asks first which link there is, and deletes that one.
        let heard = match (self.lost_mark(node, index), self.redis.received(index, self.versions.reads(node))) {
            _ if !self.reaches(node) => Heard::Nothing { asked: false },
            (Some(text), _) | (None, Some(ReceivedState::Unread(text))) => Heard::unread(&text),
            (None, Some(ReceivedState::Known(state))) if state.is_link() => {
                self.call(node, &Command::Remove(index, state.version().claim, at))
            }
            (None, Some(ReceivedState::Known(state))) => {
                Heard::Answer(Answer { verdict: Verdict::Held(state), echo: None })
            }
            (None, None) => Heard::Answer(Answer { verdict: Verdict::Absent, echo: None }),
        };
        note!(self, "request {token}: node {node} deletes code {index}: {}", brief(&heard));
        let decision = self.decision_on(index, None, heard);
        let request = StoreRequest::Delete {
            code: code_at(index),
            by: Scope::ALL,
            author: Author::default(),
            ticket: Ticket::new(CoreId(0), token),
        };
        self.nodes[node].gateway.push_back(WriterOrder::Client(request, decision));
        true
    }

    /// A node asks for the end of a link that is over, as far as it knows: nobody has changed it.
    pub(crate) fn expire(&mut self, node: usize) -> bool {
        if self.ledger.requests.is_empty() {
            return false;
        }
        let index = self.ledger.requests[self.rng.below(self.ledger.requests.len())].code;
        let at = self.now.saturating_add_signed(self.nodes[node].clock);
        let state = self.nodes[node].store.now.states.get(index).filter(|state| state.is_link()).cloned();
        let Some(state) = state.filter(|state| number_of(Some(state)).is_none()) else { return false };
        self.ledger.expiries.push(state.version().claim);
        // What comes of it is heard through the stream, and no other way.
        let heard = self.call(node, &Command::Expire(index, state, at));
        note!(self, "node {node} expires code {index}: {}", brief(&heard));
        true
    }

    pub(crate) fn change(&mut self, node: usize) -> bool {
        let requests = &self.ledger.requests;
        if requests.is_empty() || requests.len() >= REQUESTS_MAX {
            return false;
        }
        let index = requests[self.rng.below(requests.len())].code;
        self.claims += 1;
        let number = self.claims;
        let token = self.ledger.begin(node, index, What::Change(number, None));
        let patch = Patch { title: Some(Some(number.to_string())), ..Patch::default() };
        // The gateway asks first which link there is, and offers that one with the change.
        let mine = self.nodes[node].store.now.states.get(index).cloned();
        let received = self.redis.received(index, self.versions.reads(node));
        let (heard, asked) = match (self.lost_mark(node, index), received) {
            _ if !self.reaches(node) => (Heard::Nothing { asked: false }, None),
            (Some(text), _) | (None, Some(ReceivedState::Unread(text))) => (Heard::unread(&text), None),
            (None, theirs) => match rules::newest(mine, theirs.and_then(known)) {
                Some(State::Link(link)) => {
                    let changed = patch.apply(&link).expect("a title is contrary to nothing");
                    let changed = State::Link(Arc::new(Link { version: link.version.edited(), ..changed }));
                    // Others may be faster.
                    let faster = if self.rng.permille(100) { self.hasten(node, index) } else { None };
                    let heard = match faster {
                        Some(state) => Heard::Answer(Answer { verdict: Verdict::Held(state), echo: None }),
                        None => self.call(node, &Command::Offer(index, changed.clone())),
                    };
                    (heard, Some(changed))
                }
                Some(gone) => (Heard::Answer(Answer { verdict: Verdict::Held(gone), echo: None }), None),
                None => (Heard::Answer(Answer { verdict: Verdict::Absent, echo: None }), None),
            },
        };
        note!(self, "request {token}: node {node} changes code {index}, number {number}: {}", brief(&heard));
        let decision = self.decision_on(index, asked, heard);
        let ticket = Ticket::new(CoreId(0), token);
        let request = StoreRequest::Change {
            code: code_at(index),
            patch: Box::new(patch),
            by: Scope::ALL,
            author: Author::default(),
            ticket,
        };
        self.nodes[node].gateway.push_back(WriterOrder::Client(request, decision));
        true
    }

    /// The state in Redis that outranks a change which came too late.
    fn hasten(&self, node: usize, index: Index) -> Option<State> {
        self.redis.received(index, self.versions.reads(node)).and_then(known).filter(State::is_link)
    }

    /// The decision of the gateway about an answer.
    fn decision_on(&self, index: Index, asked: Option<State>, heard: Heard) -> FleetDecision {
        let echo = |at| adapter::echo(part_of(index), at);
        match heard {
            Heard::Nothing { asked } => FleetDecision::NoReply { was_sent: asked, may_decide_alone: self.alone },
            Heard::Answer(Answer { verdict: Verdict::Accepted(state), echo: Some(at) }) => {
                FleetDecision::Accepted { state, echo: echo(at) }
            }
            Heard::Answer(Answer { verdict: Verdict::Same, echo: Some(at) }) => {
                FleetDecision::Accepted { state: asked.unwrap(), echo: echo(at) }
            }
            Heard::Answer(Answer { verdict: Verdict::Held(state), .. }) => FleetDecision::Held(state),
            Heard::Answer(Answer { verdict: Verdict::HeldUnread(_), .. }) => {
                FleetDecision::NoReply { was_sent: false, may_decide_alone: false }
            }
            Heard::Answer(Answer { verdict: Verdict::Absent, .. }) => FleetDecision::Absent,
            Heard::Answer(_) => FleetDecision::NoReply { was_sent: true, may_decide_alone: self.alone },
        }
    }
}
