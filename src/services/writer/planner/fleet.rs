//! Changes that Redis has decided on, and those of other nodes: which state this node keeps.
//!
//! [`carom_model::replication::rules`] has the rule for conflicts. A state from Redis or a stream may be older or newer
//! than the one of this node, so each is compared with the present one of the commit.

use std::sync::Arc;

use carom_shards::Code;

use super::answers::{AcceptedAnswer, change_of};
use super::home::SettleTimes;
use super::{CodeState, CommitEffect, CommitPlanner, Conflict, link_of};
use crate::bridge::{LinkChange, OutboxReply, StreamBatch, StreamChange, Ticket, WriterReply};
use carom_model::link::Version;
use carom_model::link::history::Author;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::{ReceivedState, StateHead};
use carom_model::replication::{Echo, Partition, State};

impl<'o> CommitPlanner<'o> {
    /// Plans for a shared home of links, unless `times` is `None`.
    #[must_use]
    pub fn with_shared_home(self, times: Option<SettleTimes>) -> CommitPlanner<'o> {
        CommitPlanner { settle_times: times, ..self }
    }

    /// True if this node stores all links; false if Redis is their shared home.
    pub(super) fn stores_all_links(&self) -> bool {
        self.settle_times.is_none()
    }

    /// True if the stream has shown a change that Redis has accepted, and this node does not store its code.
    fn is_followed_at_home(&self, echo: Echo, before: &CodeState) -> bool {
        !self.stores_all_links() && before.state().is_none() && self.outbox.was_applied(echo)
    }

    /// Handles a change in a shared home of links that the stream has shown already. Redis may still lose the change,
    /// so this node stores it meanwhile. If a later change has replaced it, the node of the later one stores that.
    fn handle_accepted_late(&mut self, code: Code, state: &State, echo: Echo, before: &CodeState, done: WriterReply) {
        if *before != CodeState::Absent || self.outbox.was_superseded(echo, &code) {
            return self.confirm(code, before, done);
        }
        self.put(code, state, state.version(), done);
        self.outbox.begin_settling(code);
    }

    /// Deletes a link that Redis has after all, although its client got an error.
    fn delete_withdrawn(&mut self, code: Code, state: &State, before: &CodeState) {
        let is_own = self.outbox.is_undelivered(&code);
        self.outbox.note(code, None);
        let gone = state.deleted(self.now_ms);
        let mine = before.state().filter(|mine| mine.is_link());
        if let Some(mine) = mine.filter(|mine| rules::is_conflict(mine, state)) {
            // Redis has lost a link and accepted that one instead.
            if is_own {
                let version = Version { rev: gone.version().rev, ..mine.version() };
                self.set(code, CodeState::Held(mine.with_version(version)));
                return;
            }
            self.conflict(Conflict { code, lost: mine.version(), kept: state.version(), is_one_link: false });
        }
        self.set(code, CodeState::Held(gone));
        // Memory may have fetched the link from a shared home.
        if mine.is_some() || !self.stores_all_links() {
            self.effects.push(CommitEffect::Apply { code, change: LinkChange::Remove(code), answer: None });
        }
    }

    /// Handles a change that Redis has accepted. It may have come through the stream already, or be outdated; or Redis
    /// may have lost the state that this node has.
    pub(super) fn handle_accepted<A: AcceptedAnswer>(
        &mut self,
        code: Code,
        state: &State,
        echo: Echo,
        before: &CodeState,
        ticket: Ticket<A>,
    ) {
        let done = A::done(state).to(ticket);
        self.needs_sync = true;
        if self.is_followed_at_home(echo, before) {
            return self.handle_accepted_late(code, state, echo, before, done);
        }
        let Some(mine) = before.state() else {
            if self.is_followed_by_mark(state, echo, before) {
                self.confirm(code, before, done);
                return;
            }
            self.report_conflict_by_head(code, before, state.version());
            self.put(code, state, state.version(), done);
            self.outbox.note(code, Some(echo));
            return;
        };
        if self.outbox.was_applied(echo) {
            self.outbox.begin_settling(code);
            self.confirm(code, before, done);
            return;
        }
        if mine == state {
            // The state is known from a look-up, or came through the stream before that. Only the stream proves that
            // Redis has it.
            self.confirm(code, before, done);
            self.outbox.note(code, Some(echo));
            return;
        }
        let raised = state.version().rev.max(mine.version().rev).saturating_add(1);
        // A delete covers the link of this node as well, even if Redis had lost it and held another one. `delete` itself
        // keeps a link that the client may not delete.
        let ends_both = !state.is_link() && rules::is_conflict(mine, state);
        if matches!(rules::offer(Some(state), mine), Verdict::Held(_)) && !ends_both {
            self.report_conflict(code, mine, state);
            let is_behind = state.version().rev < mine.version().rev;
            let rev = if is_behind { raised } else { state.version().rev };
            self.put(code, state, Version { rev, ..state.version() }, done);
            self.outbox.note(code, (!is_behind).then_some(echo));
            return;
        }
        // The state of this node wins: it is newer, or Redis has lost it.
        if mine.version().claim == state.version().claim {
            self.confirm(code, before, done);
        } else if state.is_link() {
            self.outbox.note(code, None);
            self.outbox.withdraw(code, state.version().claim);
            self.answer(ticket, A::displaced());
        } else if mine.is_link() {
            let gone = mine.deleted(self.now_ms);
            self.put(code, &gone, Version { rev: raised, ..gone.version() }, done);
            self.outbox.note(code, None);
        } else {
            self.confirm(code, before, done);
        }
    }

    /// True if a code is marked for a state that came after an accepted one, or has such a record. A delete also ends the
    /// link of that state, if it is the same link.
    fn is_followed_by_mark(&self, accepted: &State, echo: Echo, before: &CodeState) -> bool {
        if !before.is_newer() {
            return false;
        }
        let was_taken = self.outbox.was_applied(echo);
        let is_same_link = before.head().is_some_and(|head| head.version.claim == accepted.version().claim);
        if is_same_link { accepted.is_link() && (was_taken || !before.adopts(accepted)) } else { was_taken }
    }

    /// True if Redis must decide between a state from there and the one of this node, which waits in the outbox. It cannot
    /// if only a later version can decode the record: the record cannot be sent, so the versions of both states decide.
    fn awaits_redis(&self, code: &Code, before: &CodeState) -> bool {
        self.outbox.is_undelivered(code) && !matches!(before, CodeState::Newer(_))
    }

    /// Handles states that look-ups have found in Redis.
    pub(super) fn handle_looked_up(&mut self, states: Vec<(Code, State)>, look_up: impl Fn(&Code) -> CodeState) {
        for (code, state) in states {
            let before = self.current_state(&code, &look_up);
            self.handle_held(code, state, &before);
        }
    }

    /// Handles a state that Redis holds instead of the one that was asked for, or that a look-up has found.
    pub(super) fn handle_held(&mut self, code: Code, state: State, before: &CodeState) {
        if !self.awaits_redis(&code, before) && before.adopts(&state) {
            let is_wanted = !self.outbox.is_withdrawn(&code, &state);
            self.adopt_over(code, state, before);
            if is_wanted {
                self.outbox.note_reported(code);
            }
        }
    }

    pub(super) fn follow(&mut self, followed: StreamBatch, look_up: impl Fn(&Code) -> CodeState) {
        let StreamBatch { partition, entries, is_newer, to } = followed;
        if is_newer {
            self.compare_later.insert(partition);
        }
        for (StreamPosition { id, check }, received) in entries {
            let echo = Echo { partition, id, check };
            self.outbox.note_seen(echo);
            if let Some(StreamChange { code, state, displaced }) = received {
                if !self.outbox.is_undelivered(&code) {
                    self.outbox.note_applied(echo, code);
                }
                let kept = match state {
                    ReceivedState::Known(state) => {
                        let kept = state.version();
                        self.adopt(code, state, &look_up);
                        Some(kept)
                    }
                    ReceivedState::Unread(text) => {
                        let head = StateHead::of(&text);
                        self.adopt_unread(code, text, &look_up);
                        head.map(|head| head.version)
                    }
                };
                if let Some((lost, kept)) = displaced.zip(kept) {
                    self.conflict(Conflict { code, lost, kept, is_one_link: false });
                }
            }
        }
        self.outbox.note_position(partition, to);
        self.positions.insert(partition, to);
    }

    /// Adopts a change of another node, unless this node has a newer one that Redis does not know yet.
    pub(super) fn adopt(&mut self, code: Code, state: State, look_up: impl Fn(&Code) -> CodeState) {
        let before = self.current_state(&code, look_up);
        if self.awaits_redis(&code, &before) {
            self.outbox.leave_out(code);
        } else {
            let was_refused = self.outbox.take_refused(&code);
            let is_newer_record = matches!(before, CodeState::Newer(_));
            if before.adopts(&state) {
                // The removal of an expired link has no author.
                let until_ms = link_of(&before).and_then(|link| link.policy.valid_until_ms);
                let is_expiry = !state.is_link() && until_ms.is_some_and(|until_ms| until_ms <= self.now_ms);
                let is_wanted = !self.outbox.is_withdrawn(&code, &state);
                self.adopt_over(code, state, &before);
                if is_newer_record && is_wanted {
                    self.outbox.remove(&code);
                }
                if !is_expiry {
                    self.note_edit(code, &before, &Author::FLEET);
                }
            } else if is_newer_record {
                self.outbox.note_none_left_out(&code);
            } else if before
                .state()
                .is_some_and(|mine| was_refused && *mine != state || self.has_earlier_state(code, mine, &state))
            {
                // Redis decides between its present state and the one of this node.
                self.outbox.note(code, None);
            }
        }
    }

    /// True if Redis has accepted an earlier state than the one of this node. The later state had expired there when a
    /// node that was away delivered the earlier one.
    fn has_earlier_state(&self, code: Code, mine: &State, theirs: &State) -> bool {
        // The stream may show a change of this node while a later one waits in the outbox.
        let is_on_its_way = self.outbox.has(&code);
        self.states_expire && !is_on_its_way && matches!(rules::offer(Some(theirs), mine), Verdict::Accepted(_))
    }

    /// Marks a code for a state that this version cannot decode, unless this node has a newer one. From then on the
    /// node has no state of the code that it could serve.
    pub(super) fn adopt_unread(&mut self, code: Code, text: Arc<[u8]>, look_up: impl Fn(&Code) -> CodeState) {
        let head = StateHead::of(&text);
        let before = self.current_state(&code, look_up);
        if self.awaits_redis(&code, &before) {
            self.outbox.leave_out(code);
            return;
        }
        // Without a head, nothing tells which state is newer. If this node has one in the outbox, the stream will show
        // it.
        if head.is_none() && self.outbox.has(&code) {
            return;
        }
        let gives_way = match &before {
            CodeState::Unread(mine) => {
                let is_earlier =
                    |(mine, theirs): (StateHead, StateHead)| rules::is_earlier(theirs.version, mine.version);
                *mine != text && !StateHead::of(mine).zip(head).is_some_and(is_earlier)
            }
            // The record may be this state. Then it stays, and an upgraded node reads it from there.
            CodeState::Newer(mine) => head.is_none_or(|theirs| rules::record_gives_way(mine, &theirs)),
            state => rules::gives_way(state.state(), head.as_ref()),
        };
        if gives_way {
            self.mark(code, text, &before);
        } else if matches!(before, CodeState::Newer(_)) {
            self.outbox.note_none_left_out(&code);
        }
    }

    /// Notes that Redis has lost the state of this node, and has an earlier one that this version cannot decode. Redis
    /// may refuse the state of this node until the node is upgraded, so the partition is compared again then.
    pub(super) fn note_earlier_unread(&mut self, code: Code, text: &[u8], look_up: impl Fn(&Code) -> CodeState) {
        let before = self.current_state(&code, look_up);
        if before.state().is_some_and(|mine| is_later_than(mine, text)) {
            self.note_refused(code);
        }
    }

    /// Notes that Redis refuses the state of this node for an earlier one that this version cannot decode. It is offered
    /// again once Redis has a state that this version can decode, and after an upgrade.
    fn note_refused(&mut self, code: Code) {
        self.outbox.note_refused(code);
        self.compare_later.insert(Partition::of(&code));
    }

    fn mark(&mut self, code: Code, text: Arc<[u8]>, before: &CodeState) {
        if let Some(theirs) = StateHead::of(&text) {
            self.report_conflict_by_head(code, before, theirs.version);
        }
        self.outbox.remove(&code);
        self.outbox.stop_settling(&code);
        self.set(code, CodeState::Unread(text));
        if self.may_be_in_memory(before) {
            self.effects.push(CommitEffect::Apply { code, change: LinkChange::Remove(code), answer: None });
        }
    }

    fn adopt_over(&mut self, code: Code, state: State, before: &CodeState) {
        if before.state() == Some(&state) {
            return;
        }
        if before.is_newer() {
            self.report_conflict_by_head(code, before, state.version());
        }
        if self.outbox.is_withdrawn(&code, &state) {
            self.delete_withdrawn(code, &state, before);
            return;
        }
        if let Some(mine) = before.state() {
            self.report_conflict(code, mine, &state);
        }
        let change = change_of(code, &state);
        self.quarantine(code, before, &state);
        self.set(code, CodeState::Held(state));
        if matches!(change, LinkChange::Put(_)) || self.may_be_in_memory(before) {
            self.effects.push(CommitEffect::Apply { code, change, answer: None });
        }
    }

    /// True if memory may have a link of a code, given the state in the store. From a shared home, memory may have
    /// fetched a link that came after the tombstone in the store. This node may have read no stream entry of that link:
    /// a purge has removed the entry, or the outbox was in its way.
    fn may_be_in_memory(&self, stored: &CodeState) -> bool {
        self.settle_times.is_some() || stored.state().is_none_or(State::is_link)
    }

    fn report_conflict(&mut self, code: Code, ours: &State, theirs: &State) {
        let is_other = ours.is_link() && ours.version().claim != theirs.version().claim;
        // Other nodes need not have known a state that is to be delivered again, so a later revision proves nothing.
        if rules::is_conflict(ours, theirs) || (is_other && self.outbox.is_undelivered(&code)) {
            let is_one_link = ours.is_same_link(theirs);
            self.conflict(Conflict { code, lost: ours.version(), kept: theirs.version(), is_one_link });
        }
    }

    /// Reports a link that is given up, if this version can decode at most one of the two states. Redis may have lost it.
    fn report_conflict_by_head(&mut self, code: Code, before: &CodeState, theirs: Version) {
        let Some(ours) = before.head() else { return };
        let is_other = ours.is_link == Some(true) && ours.version.claim != theirs.claim;
        if rules::is_conflict_by_head(&ours, theirs) || (is_other && self.outbox.is_undelivered(&code)) {
            self.conflict(Conflict { code, lost: ours.version, kept: theirs, is_one_link: false });
        }
    }

    /// Notes a conflict once: both this node and Redis may report that a link was displaced.
    fn conflict(&mut self, conflict: Conflict) {
        if !self.conflicts.contains(&conflict) {
            self.conflicts.push(conflict);
        }
    }

    /// Handles the answers of Redis to deliveries.
    pub(super) fn handle_delivered(&mut self, delivered: Vec<OutboxReply>, look_up: impl Fn(&Code) -> CodeState) {
        for OutboxReply { delivery, sent, verdict, echo } in delivered {
            if !self.outbox.is_current(delivery) {
                continue;
            }
            let code = delivery.code;
            let before = self.current_state(&code, &look_up);
            let is_sent = before.state() == Some(&sent);
            match (verdict, echo) {
                // Redis has lost the state of this node, and cannot tell that the state that it has is earlier.
                (Verdict::HeldUnread(text), _) if is_sent && is_later_than(&sent, &text) => {
                    self.outbox.remove(&code);
                    self.note_refused(code);
                }
                (Verdict::HeldUnread(text), _) if is_sent => self.mark(code, text, &before),
                (Verdict::Held(state), _) if is_sent || before.adopts(&state) => {
                    let is_wanted = !self.outbox.is_withdrawn(&code, &state);
                    self.adopt_over(code, state, &before);
                    if is_wanted {
                        self.outbox.note_reported(code);
                    }
                }
                (Verdict::Accepted(_) | Verdict::Same | Verdict::Absent, None) => self.outbox.remove(&code),
                (Verdict::Accepted(state), Some(echo)) if is_sent => {
                    if state != sent {
                        self.set(code, CodeState::Held(state));
                    }
                    self.outbox.note_accepted(delivery, echo);
                }
                (Verdict::Same, Some(echo)) if is_sent => self.outbox.note_accepted(delivery, echo),
                // The state here has changed since, through the stream, and is delivered instead.
                _ => self.outbox.note_reported(code),
            }
        }
    }
}

/// True if a state comes after one that this version cannot decode.
fn is_later_than(mine: &State, text: &[u8]) -> bool {
    !rules::gives_way(Some(mine), StateHead::of(text).as_ref())
}
