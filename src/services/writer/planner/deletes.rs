//! Deletes of links by clients: which tombstone remains, and when a node alone must not decide.

use carom_shards::Code;

use super::answers::{NEWER, NOT_IN_REDIS, refused};
use super::{CodeState, CommitPlanner};
use crate::bridge::{DeleteAnswer, FleetDecision, STORE_UNREADABLE, Ticket, WriteFailure, WriterAnswer};
use carom_model::access::Scope;
use carom_model::link::record::Tombstone;
use carom_model::link::record::unknown::UnknownFields;
use carom_model::link::{Origin, Version};
use carom_model::replication::{Echo, State, rules};

impl CommitPlanner<'_> {
    /// Deletes the link of a code, as Redis has decided, or else as this node stores it. `by` is the scope of the client.
    pub(super) fn delete(
        &mut self,
        code: Code,
        by: &Scope,
        ticket: Ticket<DeleteAnswer>,
        decision: FleetDecision,
        before: &CodeState,
    ) {
        match decision {
            FleetDecision::Accepted { state, echo } => match self.link_to_spare(by, &state, echo, before) {
                Some(mine) => self.keep_stored(code, mine, &state, ticket),
                None => self.handle_accepted(code, &state, echo, before, ticket),
            },
            FleetDecision::Held(state) => {
                self.handle_held(code, state, before);
                let is_still_here = match (before, self.codes.get(&code).map_or(before, |looked| &looked.after)) {
                    (CodeState::Held(before), CodeState::Held(after)) => after.is_link() && before == after,
                    _ => false,
                };
                let answer =
                    if is_still_here { WriteFailure::Refused(NOT_IN_REDIS).into() } else { DeleteAnswer::NotFound };
                self.answer(ticket, answer);
            }
            // If Redis has deleted the link, the stream will show it. Shared homes have the present link only in Redis.
            FleetDecision::NoReply { may_decide_alone, was_sent }
                if !may_decide_alone || self.settle_times.is_some() =>
            {
                self.fail(ticket, WriteFailure::NeedsRedis { was_sent });
            }
            FleetDecision::Alone
            | FleetDecision::Absent
            | FleetDecision::Existing { .. }
            | FleetDecision::NoReply { .. } => self.delete_stored(code, ticket, &decision, before),
        }
    }

    /// Returns the link that this node stores, if Redis has deleted another link of the code and the client may not delete
    /// this one. The gateway has checked the stored link, but this one may have come since. `None` if the link is over in
    /// any case, because its end and the claim of the other link came before.
    fn link_to_spare<'s>(&self, by: &Scope, gone: &State, echo: Echo, before: &'s CodeState) -> Option<&'s State> {
        let CodeState::Held(mine @ State::Link(link)) = before else { return None };
        let is_other = !gone.is_link() && rules::is_conflict(mine, gone);
        (is_other && !by.has(link) && !self.outbox.was_applied(echo)).then_some(mine)
    }

    /// Keeps the link that this node stores, and brings it to Redis in place of `gone`, another link of the code that a
    /// client has deleted there.
    fn keep_stored(&mut self, code: Code, mine: &State, gone: &State, ticket: Ticket<DeleteAnswer>) {
        let rev = mine.version().rev.max(gone.version().rev.saturating_add(1));
        self.put(code, mine, Version { rev, ..mine.version() }, DeleteAnswer::Deleted.to(ticket));
        self.outbox.note(code, None);
    }

    fn delete_stored(
        &mut self,
        code: Code,
        ticket: Ticket<DeleteAnswer>,
        decision: &FleetDecision,
        before: &CodeState,
    ) {
        match before {
            CodeState::Held(state @ State::Link(link)) => {
                let gone = state.deleted(link.deletion_ms(self.now_ms, self.keep_expired_ms));
                self.put_deleted(code, &gone, ticket, decision);
            }
            // The origin of a damaged record is unknown, so its code counts as issued.
            CodeState::Damaged => {
                let (deleted_ms, unknown) = (self.now_ms, UnknownFields::default());
                let gone = Tombstone { deleted_ms, origin: Origin::Issued, version: Version::default(), unknown };
                self.put_deleted(code, &State::Gone(gone), ticket, decision);
            }
            // Redis was asked to delete a link that was there, and the stream has brought its end before the reply of Redis: this
            // request has deleted it, or another one meanwhile. A 404 would say that there was none.
            CodeState::Held(_) if matches!(decision, FleetDecision::NoReply { was_sent: true, .. }) => {
                self.answer_repeated(ticket, DeleteAnswer::Deleted);
            }
            CodeState::Absent | CodeState::Held(_) => {
                // Another node may have the link, unless this one knows that the code is used up for good.
                let is_used_up = self.keep_expired_ms.is_none() && before.state().is_some_and(|state| !state.is_free());
                let answer = match *decision {
                    FleetDecision::NoReply { was_sent, .. } if !is_used_up => {
                        WriteFailure::NeedsRedis { was_sent }.into()
                    }
                    _ => DeleteAnswer::NotFound,
                };
                self.answer(ticket, answer);
            }
            CodeState::Unknown => self.fail(ticket, refused(decision, STORE_UNREADABLE)),
            CodeState::Unread(_) | CodeState::Newer(_) => self.fail(ticket, refused(decision, NEWER)),
        }
    }

    fn put_deleted(&mut self, code: Code, gone: &State, ticket: Ticket<DeleteAnswer>, decision: &FleetDecision) {
        self.put(code, gone, gone.version(), DeleteAnswer::Deleted.to(ticket));
        if !matches!(decision, FleetDecision::Alone) {
            self.outbox.note(code, None);
        } else if gone.is_free() {
            // On a single node, no other node has to hear of it.
            self.set(code, CodeState::Absent);
        }
    }
}
