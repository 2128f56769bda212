//! The events of a commit: what its orders did to links.
//!
//! An event belongs to the node whose client asked for the change, or whose thread found the link due: its *origin*.
//! Changes that come through the streams of a fleet, from look-ups or from a comparison are events of their origin, so
//! they give no event here. A change whose stream entry arrived before the answer of Redis is an event when the client
//! gets its answer.

use std::sync::Arc;

use carom_shards::Code;

use super::{CodeState, CommitEffect, CommitPlanner, link_of};
use crate::bridge::{ChangeAnswer, CreateAnswer, DeleteAnswer, WriterReply};
use carom_model::events::{EventCause, EventType, LinkEvent};
use carom_model::link::Link;
use carom_model::link::history::{Author, Edit};

impl<'o> CommitPlanner<'o> {
    /// Turns events on.
    #[must_use]
    pub fn with_events(self, is_on: bool) -> CommitPlanner<'o> {
        CommitPlanner { events: is_on.then(Vec::new), ..self }
    }

    /// Notes the event of the client's request that was decided last, if it was carried out. `before` is the state of
    /// the code before that.
    pub(super) fn note_event(&mut self, code: Code, before: &CodeState) {
        if self.events.is_none() {
            return;
        }
        let of = match self.effects.iter().rev().find_map(CommitEffect::answer) {
            Some(WriterReply::Create(_, CreateAnswer::Created)) => EventType::LinkCreated,
            Some(WriterReply::Change(_, ChangeAnswer::Changed(_))) => EventType::LinkChanged,
            Some(WriterReply::Delete(_, DeleteAnswer::Deleted)) => EventType::LinkDeleted,
            _ => return,
        };
        let before = link_of(before);
        let after = self.codes.get(&code).and_then(|looked| link_of(&looked.after));
        let changes = match (of, before, after) {
            (EventType::LinkChanged, Some(before), Some(after)) => changes_of(before, after),
            _ => Vec::new(),
        };
        let link = match (of, before, after) {
            // Redis has deleted another link of the code, which this node does not have.
            (EventType::LinkDeleted, Some(before), Some(after)) if after.is_same_link(before) => None,
            (EventType::LinkDeleted, ..) => before,
            _ => after,
        }
        .cloned();
        let event = LinkEvent { of, at_ms: self.now_ms, code, cause: EventCause::Request, link, changes };
        self.events.get_or_insert_default().push(event);
    }

    /// Notes the removal of a link that was due.
    pub(super) fn note_removal(&mut self, link: &Arc<Link>, cause: EventCause) {
        if let Some(events) = &mut self.events {
            events.push(LinkEvent::removal(Arc::clone(link), self.now_ms, cause));
        }
    }
}

/// Returns the fields that differ, as JSON; empty if none does.
fn changes_of(before: &Link, after: &Link) -> Vec<u8> {
    let edit = Edit::between(before, Some(after), 0, &Author::default());
    edit.map_or(Vec::new(), |edit| edit.into_json()["changes"].to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{FleetDecision, StoreRequest, StreamBatch, StreamChange, Ticket, WriterOrder};
    use carom_model::access::Scope;
    use carom_model::link::{Origin, Reuse};
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::outbox::Outbox;
    use carom_model::replication::state::ReceivedState;
    use carom_model::replication::{Echo, EntryId, Partition, State};
    use carom_model::testing::link;
    use carom_shards::CoreId;

    fn ticket<A>() -> Ticket<A> {
        Ticket::new(CoreId(0), 1)
    }

    fn state() -> State {
        State::Link(Arc::new(link("abc", Origin::Custom)))
    }

    fn create(decision: FleetDecision) -> WriterOrder {
        let State::Link(link) = state() else { panic!("it is a link") };
        WriterOrder::Client(StoreRequest::Create { link, reuse: Reuse::Never, ticket: ticket() }, decision)
    }

    fn delete() -> WriterOrder {
        let (code, by, author) = (Code::parse(b"abc").unwrap(), Scope::ALL, Author::default());
        WriterOrder::Client(StoreRequest::Delete { code, by, author, ticket: ticket() }, FleetDecision::Alone)
    }

    /// Decides orders in one commit, and returns the types of its events and whether each has a link.
    fn events(outbox: &mut Outbox, stored: &CodeState, orders: Vec<WriterOrder>) -> Vec<(EventType, bool)> {
        let mut plan = CommitPlanner::new(outbox, 1).with_events(true);
        orders.into_iter().for_each(|order| plan.add(order, |_| stored.clone()));
        plan.finish().0.events.iter().map(|event| (event.of, event.link.is_some())).collect()
    }

    #[test]
    fn each_request_that_is_carried_out_is_an_event() {
        let (created, deleted) = ((EventType::LinkCreated, true), (EventType::LinkDeleted, true));
        let outbox = &mut Outbox::default();
        let orders = || vec![create(FleetDecision::Alone), create(FleetDecision::Alone), delete(), delete()];
        assert_eq!(events(outbox, &CodeState::Absent, orders()), [created, deleted]);
        assert_eq!(events(outbox, &CodeState::Damaged, vec![delete()]), [(EventType::LinkDeleted, false)]);
        assert_eq!(events(outbox, &CodeState::Unknown, orders()), []);
        let mut plan = CommitPlanner::new(outbox, 1);
        orders().into_iter().for_each(|order| plan.add(order, |_| CodeState::Absent));
        assert_eq!(plan.finish().0.events, [], "events are off");
    }

    #[test]
    fn own_changes_are_events_and_those_of_others_are_not() {
        let echo = Echo { partition: Partition(1), id: EntryId { ms: 1, seq: 5 }, check: 0 };
        let to = StreamPosition { id: echo.id, check: 0 };
        let code = Code::parse(b"abc").unwrap();
        let change = StreamChange { code, state: ReceivedState::Known(state()), displaced: None };
        let (partition, entries) = (Partition(1), vec![(to, Some(change))]);
        let followed =
            || WriterOrder::Followed(StreamBatch { partition, entries: entries.clone(), is_newer: false, to });
        let outbox = &mut Outbox::default();
        assert_eq!(events(outbox, &CodeState::Absent, vec![followed()]), []);
        let accepted = create(FleetDecision::Accepted { state: state(), echo });
        assert_eq!(events(outbox, &CodeState::Held(state()), vec![accepted]), [(EventType::LinkCreated, true)]);
    }
}
