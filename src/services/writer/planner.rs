//! The rules for codes: what each order in a group commit leads to, without a disk.
//!
//! Orders are decided as they arrive. Each is decided against what is stored and what earlier orders of the same commit
//! will have changed. A deleted link with a generated code leaves a tombstone, so that its code is never issued again;
//! only codes of expired links may be reused (see `ends`). A custom slug is free again after a delete, but in a fleet
//! its tombstone remains as well, to keep the order of its states. In a fleet, Redis was asked first
//! ([`FleetDecision`]), or changes of other nodes come in through the streams, and [`carom_model::replication`]
//! resolves conflicts. Nothing here writes or answers; see [`super::writer`].

mod answers;
mod deletes;
mod ends;
mod events;
mod fleet;
mod home;
mod reuse;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use carom_shards::Code;

pub(super) use self::answers::refused;
use self::answers::{AcceptedAnswer, NEWER, NOT_IN_REDIS, UNEXPECTED, change_of};
pub use self::home::SettleTimes;
pub use self::writes::{CodeState, CommitEffect, Conflict, EarlierChange, Writes};
use super::similar_urls::{ReuseCandidates, ReuseQuery};
use crate::bridge::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, STORE_UNREADABLE, StoreRequest, Ticket, WriteFailure,
    WriterAnswer, WriterOrder, WriterReply,
};
use crate::services::search::IndexedChange;
use carom_model::access::Scope;
use carom_model::access::idempotency::{IdempotencyHash, WINDOW};
use carom_model::events::LinkEvent;
use carom_model::link::history::{Author, Edit};
use carom_model::link::patch::{Patch, StartNotBeforeEnd};
use carom_model::link::{Link, Origin, Reuse, UrlEntry, UrlKey, Version};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::Outbox;
use carom_model::replication::{Partition, State, rules};
use carom_store::links::UrlUse;

/// A code that a commit has looked up.
#[derive(Debug)]
struct LookedUpCode {
    /// The stored state.
    before: CodeState,
    /// The state after the commit.
    after: CodeState,
    /// The entry in the index of destinations, for a link that this commit puts.
    entry: Option<UrlEntry>,
    /// True if the commit writes the state after it.
    must_write: bool,
    /// True if the code was without a link at some point of this commit.
    ended: bool,
}

/// A group commit that is being decided, on the writer's thread.
#[derive(Debug)]
pub struct CommitPlanner<'o> {
    outbox: &'o mut Outbox,
    /// The time of this commit, in milliseconds since 1970 UTC.
    now_ms: u64,
    /// Time since its last use for which an existing link answers a create of the same kind, in milliseconds.
    window_ms: Option<u64>,
    codes: HashMap<Code, LookedUpCode>,
    /// The links that this commit puts, by destination ([`UrlKey::destination`]). Some of them may be gone again.
    puts: HashMap<u64, Vec<UrlEntry>>,
    /// The links that answer a request, and whose window this renews.
    used: HashSet<Code>,
    /// True if this commit confirms an existing link to a client.
    confirms_existing: bool,
    positions: HashMap<Partition, StreamPosition>,
    compare: HashMap<Partition, bool>,
    compare_later: HashSet<Partition>,
    removals: writes::Removals,
    effects: Vec<CommitEffect>,
    edits: Vec<(Code, Edit)>,
    conflicts: Vec<Conflict>,
    /// The events of the commit; `None` if events are off.
    events: Option<Vec<LinkEvent>>,
    /// True if states expire in Redis.
    states_expire: bool,
    /// Time for which expired links are kept, in milliseconds, in a fleet that recycles their codes; `None` otherwise.
    keep_expired_ms: Option<u64>,
    /// The times by which states settle in a shared home of links; `None` if this node stores all links.
    settle_times: Option<SettleTimes>,
    /// True if this commit tells a client that a change is durable.
    needs_sync: bool,
}

impl<'o> CommitPlanner<'o> {
    /// Returns an empty commit.
    pub fn new(outbox: &'o mut Outbox, now_ms: u64) -> CommitPlanner<'o> {
        CommitPlanner {
            outbox,
            now_ms,
            window_ms: None,
            codes: HashMap::new(),
            puts: HashMap::new(),
            used: HashSet::new(),
            confirms_existing: false,
            positions: HashMap::new(),
            compare: HashMap::new(),
            compare_later: HashSet::new(),
            removals: writes::Removals::default(),
            effects: Vec::new(),
            edits: Vec::new(),
            conflicts: Vec::new(),
            events: None,
            states_expire: false,
            keep_expired_ms: None,
            settle_times: None,
            needs_sync: false,
        }
    }

    /// Turns on reuse: a link that was used within the window answers a create of the same kind.
    #[must_use]
    pub fn with_window(self, window_ms: Option<u64>) -> CommitPlanner<'o> {
        CommitPlanner { window_ms, ..self }
    }

    /// Plans for a Redis in which states may have expired, if `states_expire` is true.
    #[must_use]
    pub fn with_retention(self, states_expire: bool) -> CommitPlanner<'o> {
        CommitPlanner { states_expire, ..self }
    }

    /// Plans for a fleet that keeps expired links for this time, and then recycles their codes; `None` if no codes are
    /// recycled through Redis.
    #[must_use]
    pub fn with_recycling(self, keep_expired_ms: Option<u64>) -> CommitPlanner<'o> {
        CommitPlanner { keep_expired_ms, ..self }
    }

    /// Looks up the codes of new links before they are decided, in the order in which that costs least. The results
    /// stay valid, because this commit has not written yet.
    pub fn prefetch(&mut self, orders: &[WriterOrder], look_up: impl Fn(&Code) -> CodeState) {
        assert!(self.effects.is_empty(), "a decision was made before the states were looked up");
        let code = |order: &WriterOrder| match order {
            WriterOrder::Client(StoreRequest::Create { link, reuse: Reuse::Never | Reuse::Recent, .. }, _) => {
                Some(link.code)
            }
            _ => None,
        };
        let mut codes: Vec<Code> = orders.iter().filter_map(code).collect();
        codes.sort_unstable();
        self.codes.reserve(codes.len());
        for code in codes {
            self.current_state(&code, &look_up);
        }
    }

    /// Decides one order, without an index of destinations.
    pub fn add(&mut self, order: WriterOrder, look_up: impl Fn(&Code) -> CodeState) {
        self.decide(order, look_up, |_, _| Vec::new());
    }

    /// Decides one order. `look_up` returns the stored state of a code, and is called once for each code. `similar`
    /// returns the entries of links with the same destination.
    pub fn decide(
        &mut self,
        order: WriterOrder,
        look_up: impl Fn(&Code) -> CodeState,
        similar: impl Fn(UrlKey, ReuseCandidates) -> Vec<UrlUse>,
    ) {
        let (is_of_client, decided) = (matches!(order, WriterOrder::Client(..)), self.effects.len());
        self.dispatch(order, look_up, similar);
        let answers = self.effects[decided..].iter().filter(|effect| effect.answer().is_some()).count();
        assert_eq!(answers, usize::from(is_of_client), "each request of a client gets exactly one answer");
    }

    fn dispatch(
        &mut self,
        order: WriterOrder,
        look_up: impl Fn(&Code) -> CodeState,
        similar: impl Fn(UrlKey, ReuseCandidates) -> Vec<UrlUse>,
    ) {
        match order {
            WriterOrder::Client(StoreRequest::Create { link, reuse, ticket }, decision) => {
                if !self.answer_existing(ReuseQuery { link: &link, reuse }, ticket, &decision, &look_up, similar) {
                    let (code, before) = (link.code, self.current_state(&link.code, look_up));
                    self.create(link, ticket, decision, &before);
                    self.note_event(code, &before);
                }
            }
            WriterOrder::Client(StoreRequest::Change { code, patch, by, author, ticket }, decision) => {
                let before = self.current_state(&code, look_up);
                if is_in_scope(&by, &before, &decision) {
                    self.change(code, &patch, ticket, decision, &before);
                    self.note_edit(code, &before, &author);
                    self.note_event(code, &before);
                } else {
                    self.answer_not_found(code, decision, &before, ticket, ChangeAnswer::NotFound);
                }
            }
            WriterOrder::Client(StoreRequest::Delete { code, by, author, ticket }, decision) => {
                let before = self.current_state(&code, look_up);
                if is_in_scope(&by, &before, &decision) {
                    self.delete(code, &by, ticket, decision, &before);
                    self.note_edit(code, &before, &author);
                    self.note_event(code, &before);
                } else {
                    self.answer_not_found(code, decision, &before, ticket, DeleteAnswer::NotFound);
                }
            }
            WriterOrder::Followed(followed) => self.follow(followed, look_up),
            WriterOrder::ComparedStates(states) => {
                for (code, state) in states {
                    self.adopt(code, state, &look_up);
                }
            }
            WriterOrder::Unread(states) => {
                for (code, text) in states {
                    self.note_earlier_unread(code, &text, &look_up);
                    self.adopt_unread(code, text, &look_up);
                }
            }
            WriterOrder::LookedUpStates(states) => self.handle_looked_up(states, look_up),
            WriterOrder::NotInRedis(codes) => codes.iter().for_each(|code| self.outbox.note_none_left_out(code)),
            WriterOrder::Delivered(delivered) => self.handle_delivered(delivered, look_up),
            WriterOrder::PositionLost { partition, at } => {
                self.outbox.note_lost_position(partition, at);
                if self.stores_all_links() {
                    self.compare.insert(partition, true);
                }
                self.positions.insert(partition, at);
            }
            WriterOrder::Expire { ends, until_ms, recycles } => self.expire(ends, until_ms, recycles, look_up),
            WriterOrder::DeleteScheduled { deletions, until_ms } => self.delete_scheduled(deletions, until_ms, look_up),
            WriterOrder::ReleaseCodes { quarantined, until_ms } => self.release_codes(quarantined, until_ms, look_up),
            WriterOrder::Compared(partition) => _ = self.compare.insert(partition, false),
            WriterOrder::CompareAfterUpgrade(partitions) => self.compare_later.extend(partitions),
            WriterOrder::Tick => self.outbox.tick(),
            // The writer itself carries these out.
            WriterOrder::Resumed | WriterOrder::Fence(_) | WriterOrder::ForgetLinks => {}
        }
    }

    /// True if this commit tells a client that a change is durable, so it must be synced.
    pub fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// True if this commit confirms an existing link to a client. That link must be synced first, by this commit or
    /// another.
    pub fn confirms_existing(&self) -> bool {
        self.confirms_existing
    }

    /// Returns the conflicts that were found, for the log and the operator.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// True if this commit has looked at a code, and leaves it to the link of a claim.
    pub fn leaves_link(&self, code: &Code, claim: u64) -> bool {
        let head = self.codes.get(code).and_then(|looked| looked.after.head());
        head.is_some_and(|head| head.is_link == Some(true) && head.version.claim == claim)
    }

    /// Returns the writes of the commit, and its effects in the order in which the orders came.
    pub fn finish(mut self) -> (Writes, Vec<CommitEffect>) {
        let (urls, ends) = (self.url_writes(), self.end_writes());
        let (outbox, edits) = (self.outbox.take_writes(), self.edits);
        let events = self.events.unwrap_or_default();
        let mut writes = Writes { urls, ends, outbox, edits, events, ..Writes::default() };
        let settled = self.settle_times.map(|times| self.outbox.settle(times.now, times.until));
        for (code, LookedUpCode { before, after, entry, must_write, ended }) in self.codes {
            if must_write {
                debug_assert_eq!(entry, writes::entry_of(&after), "the index of destinations would name another link");
                if ended && before.state().is_none_or(State::is_link) {
                    writes.ended.push(code);
                }
                if before.is_limited() {
                    writes.limited.push((code, ended));
                }
                writes.relisted.extend(if before.state().is_none() && before != CodeState::Absent {
                    Some(IndexedChange::over(code, link_of(&after)))
                } else {
                    IndexedChange::of(link_of(&before), link_of(&after))
                });
                writes.created_with.extend(idempotency_entry(link_of(&before), link_of(&after), self.now_ms));
                writes.note_unread(code, &before, &after);
                writes.note_issued(&before, &after);
                writes.note_earlier_visits(code, &before, &after, ended);
                let state = if let CodeState::Held(state) = after { Some(state) } else { None };
                // In a shared home of links, most codes that change have never been stored here.
                if settled.is_none() || before != CodeState::Absent || home::is_kept(self.outbox, &code) {
                    writes.states.push((code, state));
                }
            }
        }
        // Neighbours share most of the path through the store's memtables.
        writes.states.sort_unstable_by_key(|(code, _)| *code);
        writes.urls.sort_unstable_by_key(|(entry, _)| *entry);
        debug_assert!(
            writes.urls.is_sorted_by(|(one, _), (next, _)| one < next),
            "an entry of the index of destinations is both set and removed"
        );
        writes.positions.extend(self.positions);
        writes.compare.extend(self.compare);
        writes.compare_later.extend(self.compare_later);
        if let Some(settled) = settled {
            home::keep_unsettled(&mut writes, &mut self.effects, self.outbox, settled);
        }
        (writes, self.effects)
    }

    fn current_state(&mut self, code: &Code, look_up: impl FnOnce(&Code) -> CodeState) -> CodeState {
        let looked = || {
            let stored = look_up(code);
            LookedUpCode { before: stored.clone(), after: stored, entry: None, must_write: false, ended: false }
        };
        self.codes.entry(*code).or_insert_with(looked).after.clone()
    }

    /// Sets the state of a code that was looked up before.
    fn set(&mut self, code: Code, after: CodeState) {
        assert!(
            matches!(after, CodeState::Absent | CodeState::Held(_) | CodeState::Unread(_)),
            "a state that could not be read would be written, which removes the record"
        );
        if let Some(link) = link_of(&after) {
            assert_eq!(link.code, code, "the link would be stored under another code");
        }
        let entry = writes::entry_of(&after);
        if let Some(entry) = entry {
            self.puts.entry(entry.key.destination()).or_default().push(entry);
        }
        let looked = self.codes.get_mut(&code);
        let looked = looked.expect("a code is looked up before it is set: the indexes follow from its state before");
        // A link with a state that only a later version can decode still exists, and keeps its visits.
        looked.ended |= entry.is_none() && !matches!(after, CodeState::Unread(_));
        (looked.after, looked.entry, looked.must_write) = (after, entry, true);
    }

    fn create(&mut self, link: Arc<Link>, ticket: Ticket<CreateAnswer>, decision: FleetDecision, before: &CodeState) {
        debug_assert_eq!(self.codes.get(&link.code).map(|looked| &looked.after), Some(before), "the state is outdated");
        match decision {
            FleetDecision::Alone | FleetDecision::NoReply { .. } if *before == CodeState::Unknown => {
                self.fail(ticket, refused(&decision, STORE_UNREADABLE));
            }
            FleetDecision::Alone | FleetDecision::NoReply { .. } if before.is_newer() => {
                self.fail(ticket, refused(&decision, NEWER));
            }
            FleetDecision::Alone => match next_version(&link, before) {
                Some(version) => self.put(link.code, &State::Link(link), version, CreateAnswer::Created.to(ticket)),
                None => self.answer(ticket, CreateAnswer::Taken),
            },
            FleetDecision::Accepted { state, echo } => {
                self.handle_accepted(link.code, &state, echo, before, ticket);
            }
            FleetDecision::Held(state) => {
                self.handle_held(link.code, state, before);
                self.answer(ticket, CreateAnswer::Taken);
            }
            // Redis never answers a create like this, so it is unknown whether it has the link.
            FleetDecision::Absent => self.fail(ticket, WriteFailure::Unconfirmed(UNEXPECTED)),
            // The link that was to be the answer is gone.
            FleetDecision::Existing { .. } => self.answer(ticket, CreateAnswer::Taken),
            // Redis has accepted the link: the stream has shown it, although the answer of Redis was lost.
            FleetDecision::NoReply { .. }
                if before.state().is_some_and(|mine| mine.version().claim == link.version.claim) =>
            {
                self.confirm(link.code, before, CreateAnswer::Created.to(ticket));
            }
            FleetDecision::NoReply { was_sent, may_decide_alone } => match next_version(&link, before) {
                None => {
                    if was_sent {
                        self.outbox.withdraw(link.code, link.version.claim);
                    }
                    self.answer(ticket, CreateAnswer::Taken);
                }
                Some(version) if may_decide_alone && link.origin == Origin::Issued => {
                    let code = link.code;
                    self.put(code, &State::Link(link), version, CreateAnswer::Created.to(ticket));
                    self.outbox.note(code, None);
                }
                Some(_) => {
                    if was_sent {
                        self.outbox.withdraw(link.code, link.version.claim);
                    }
                    self.fail(ticket, WriteFailure::NeedsRedis { was_sent });
                }
            },
        }
    }

    /// Answers a client that may not see the link of a code as if it did not exist. Adopts the state of Redis.
    fn answer_not_found<A: WriterAnswer>(
        &mut self,
        code: Code,
        decision: FleetDecision,
        before: &CodeState,
        ticket: Ticket<A>,
        not_found: A,
    ) {
        if let FleetDecision::Held(state) = decision {
            self.handle_held(code, state, before);
        }
        self.answer(ticket, not_found);
    }

    fn change(
        &mut self,
        code: Code,
        patch: &Patch,
        ticket: Ticket<ChangeAnswer>,
        decision: FleetDecision,
        before: &CodeState,
    ) {
        match decision {
            // The client that created this link got an error, so the link is deleted.
            FleetDecision::Accepted { state, .. } if self.outbox.is_withdrawn(&code, &state) => {
                self.handle_held(code, state, before);
                self.answer(ticket, ChangeAnswer::NotFound);
            }
            FleetDecision::Accepted { state, echo } => self.handle_accepted(code, &state, echo, before, ticket),
            FleetDecision::Held(state) => {
                let answer = match &state {
                    State::Gone(_) => ChangeAnswer::NotFound,
                    State::Link(link) if patch.apply(link).is_err() => ChangeAnswer::StartsTooLate,
                    State::Link(_) => WriteFailure::Refused("another request changed the link at the same time").into(),
                };
                self.handle_held(code, state, before);
                self.answer(ticket, answer);
            }
            // Without Redis, two nodes that change one link would undo each other's change. If Redis has accepted this
            // one, the stream will show it.
            FleetDecision::NoReply { was_sent, .. } => self.fail(ticket, WriteFailure::NeedsRedis { was_sent }),
            FleetDecision::Absent | FleetDecision::Existing { .. } if before.state().is_some_and(State::is_link) => {
                self.fail(ticket, WriteFailure::Refused(NOT_IN_REDIS));
            }
            FleetDecision::Alone | FleetDecision::Absent | FleetDecision::Existing { .. } => match before {
                CodeState::Held(State::Link(link)) => match patch.apply(link) {
                    Ok(link) => {
                        let state = State::Link(Arc::new(link));
                        self.put(code, &state, state.version(), ChangeAnswer::done(&state).to(ticket));
                    }
                    Err(StartNotBeforeEnd) => self.answer(ticket, ChangeAnswer::StartsTooLate),
                },
                CodeState::Absent | CodeState::Held(State::Gone(_)) => self.answer(ticket, ChangeAnswer::NotFound),
                CodeState::Damaged => self.answer(ticket, ChangeAnswer::Damaged),
                CodeState::Unknown => self.fail(ticket, WriteFailure::Refused(STORE_UNREADABLE)),
                CodeState::Unread(_) | CodeState::Newer(_) => self.fail(ticket, WriteFailure::Refused(NEWER)),
            },
        }
    }

    /// Confirms a change that this node has applied already. The client gets its answer once the change is synced and
    /// the owner has it.
    fn confirm(&mut self, code: Code, before: &CodeState, answer: WriterReply) {
        self.needs_sync = true;
        match before.state() {
            Some(state) => {
                let change = change_of(code, state);
                self.effects.push(CommitEffect::Apply { code, change, answer: Some(answer) });
            }
            None => self.effects.push(CommitEffect::Answer(answer)),
        }
    }

    /// Adds the change of a link to its edit history, if the commit has changed it. If another link has taken its
    /// place, the history says that this one has ended: it must not have the destination of another link.
    fn note_edit(&mut self, code: Code, before: &CodeState, author: &Author) {
        let after = self.codes.get(&code).map(|looked| &looked.after);
        let edit = link_of(before).and_then(|before| {
            let after = after.and_then(link_of).filter(|after| after.is_same_link(before));
            Edit::between(before, after.map(|link| &**link), self.now_ms, author)
        });
        self.edits.extend(edit.map(|edit| (code, edit)));
    }

    fn put(&mut self, code: Code, state: &State, version: Version, answer: WriterReply) {
        let state = state.with_version(version);
        let change = change_of(code, &state);
        self.set(code, CodeState::Held(state));
        self.needs_sync = true;
        self.effects.push(CommitEffect::Apply { code, change, answer: Some(answer) });
    }

    /// Answers a request with what an earlier one has stored, without a decision on its code.
    pub fn answer_repeated<A: WriterAnswer>(&mut self, ticket: Ticket<A>, answer: A) {
        self.confirms_existing = true;
        self.answer(ticket, answer);
    }

    fn answer<A: WriterAnswer>(&mut self, ticket: Ticket<A>, answer: A) {
        self.effects.push(CommitEffect::Answer(answer.to(ticket)));
    }

    fn fail<A: WriterAnswer>(&mut self, ticket: Ticket<A>, failure: WriteFailure) {
        self.answer(ticket, A::from(failure));
    }
}

/// True if the scope of a client may touch the state of a code. A damaged record may belong to any app. A change that
/// Redis has accepted was checked before; a delete is checked again if this node stores another link of the code.
fn is_in_scope(by: &Scope, before: &CodeState, decision: &FleetDecision) -> bool {
    let has = |state: &State| if let State::Link(link) = state { by.has(link) } else { true };
    match (before, decision) {
        (_, FleetDecision::Accepted { .. }) => true,
        (_, FleetDecision::Held(theirs)) if !has(theirs) => false,
        (CodeState::Held(mine), _) => has(mine),
        (CodeState::Damaged, _) => by.has_unreadable(),
        (CodeState::Absent | CodeState::Unknown | CodeState::Unread(_) | CodeState::Newer(_), _) => true,
    }
}

/// Returns the link of a stored state, if it is one.
fn link_of(stored: &CodeState) -> Option<&Arc<Link>> {
    match stored {
        CodeState::Held(State::Link(link)) => Some(link),
        _ => None,
    }
}

/// Returns the entry for the index of idempotency keys, for a link that is new to this node.
fn idempotency_entry(
    before: Option<&Arc<Link>>,
    after: Option<&Arc<Link>>,
    now_ms: u64,
) -> Option<(IdempotencyHash, u64, Code)> {
    let link = after?;
    let idempotency = link.labels.idempotency?;
    let is_known = before.is_some_and(|before| before.labels.idempotency == Some(idempotency));
    let is_recent = link.created_ms.saturating_add(WINDOW.as_millis() as u64) > now_ms;
    (!is_known && is_recent).then_some((idempotency.key, link.created_ms, link.code))
}

/// Returns the version of a new link that replaces the stored state; `None` if the code is taken.
fn next_version(link: &Link, before: &CodeState) -> Option<Version> {
    match before {
        CodeState::Absent => Some(link.version),
        CodeState::Held(state) if state.is_free() => Some(rules::version_after(state.version(), link)),
        CodeState::Held(_) | CodeState::Damaged | CodeState::Unknown | CodeState::Unread(_) | CodeState::Newer(_) => {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
