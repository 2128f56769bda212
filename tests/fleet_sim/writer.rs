//! The writer of a node that follows one stream, and its store, which is durable at once.
//!
//! The worlds of the retention and of recycled codes share it. A writer of the main world has queues, several streams and a
//! store that may lose its last batches (`node.rs`).

use carom::bridge::{OutboxReply, StreamChange, WriterOrder, WriterReply};
use carom::services::writer::planner::{CodeState, CommitEffect, CommitPlanner};
use carom_model::replication::follow::{StreamEntry, StreamPosition};
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Partition, rules};

use crate::adapter;
use crate::codes::{Index, States, index_of};
use crate::stream::Database;

/// The stream that all codes share.
pub(crate) const STREAM: Partition = Partition(0);

/// The writer of a node, and its store.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) states: States,
    pub(crate) outbox: Outbox,
    deliveries: Vec<Delivery>,
    pub(crate) position: Option<StreamPosition>,
    /// True if all states must be compared with Redis.
    pub(crate) compare: bool,
}

impl Writer {
    /// Returns a writer that begins with the states and the position of another one, and has nothing to deliver.
    pub(crate) fn copy_of(other: &Writer) -> Writer {
        let outbox = Outbox::restore([], other.position.map(|position| (STREAM, position)));
        let Writer { states, position, compare, .. } = other;
        Writer { states: states.clone(), outbox, deliveries: Vec::new(), position: *position, compare: *compare }
    }

    /// Commits an order. `set_up` turns on what the fleet uses. Returns the codes that changed, and the answer to a client.
    pub(crate) fn commit(
        &mut self,
        order: WriterOrder,
        now: u64,
        set_up: impl for<'o> FnOnce(CommitPlanner<'o>) -> CommitPlanner<'o>,
    ) -> (Vec<Index>, Option<WriterReply>) {
        let Writer { states, outbox, deliveries, position, compare } = self;
        let mut plan = set_up(CommitPlanner::new(outbox, now));
        plan.add(order, |code| states.get(index_of(code)).cloned().map_or(CodeState::Absent, CodeState::Held));
        let (writes, effects) = plan.finish();
        let changed = writes.states.iter().map(|(code, _)| index_of(code)).collect();
        for (code, state) in writes.states {
            states.set(index_of(&code), state);
        }
        writes.positions.into_iter().for_each(|(_, at)| *position = Some(at));
        writes.compare.into_iter().for_each(|(_, needed)| *compare = needed);
        deliveries.extend(outbox.take_deliveries());
        (changed, effects.iter().find_map(CommitEffect::answer).cloned())
    }

    /// Returns the changes that are to be delivered now.
    pub(crate) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }

    /// Delivers a change to Redis. Returns the reply, which the writer must commit; `None` if the state is gone.
    pub(crate) fn deliver(&self, delivery: Delivery, redis: &mut Database<1>, now: u64) -> Option<OutboxReply> {
        let index = index_of(&delivery.code);
        let sent = self.states.get(index)?.clone();
        let verdict = rules::offer(redis.states.get(index), &sent);
        let echo = redis.carry_out(index, &verdict, now).map(|at| adapter::echo(STREAM.index(), at));
        Some(OutboxReply { delivery, sent, verdict, echo })
    }

    /// Some time has passed: what waits in vain for its echo is delivered again.
    pub(crate) fn tick(&mut self) {
        adapter::tick(&mut self.outbox);
        self.deliveries.extend(self.outbox.take_deliveries());
    }

    /// True if the node has every change that Redis had accepted when the node read the stream to its end.
    pub(crate) fn has_followed(&self) -> bool {
        !self.compare && !self.outbox.has_left_out()
    }

    /// True if nothing waits to be delivered or compared.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.compare && self.outbox.is_empty()
    }
}

/// Returns the order for entries that were read from the stream.
pub(crate) fn followed(entries: &[StreamEntry], to: StreamPosition) -> WriterOrder {
    adapter::followed(STREAM.index(), entries.iter().map(decode).collect(), to)
}

/// Decodes an entry as the follower does.
fn decode(entry: &StreamEntry) -> (StreamPosition, Option<StreamChange>) {
    let told = entry.code.map(|code| {
        let state = ReceivedState::from_text(code, &entry.text).unwrap();
        StreamChange { code, state, displaced: entry.displaced }
    });
    (StreamPosition::of(entry), told)
}
