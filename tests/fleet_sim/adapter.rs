//! The calls into the code under test, so that a change of their form leaves the rest of the simulator alone.

use carom::bridge::{StreamBatch, StreamChange, WriterOrder};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::{Echo, Partition, State};
use carom_shards::Code;

/// The stream position at which a change comes back.
pub(crate) fn echo(part: usize, at: StreamPosition) -> Echo {
    Echo { partition: Partition(part as u8), id: at.id, check: at.check }
}

/// The order for entries that were read from a stream.
pub(crate) fn followed(
    part: usize,
    entries: Vec<(StreamPosition, Option<StreamChange>)>,
    to: StreamPosition,
) -> WriterOrder {
    WriterOrder::Followed(StreamBatch { partition: Partition(part as u8), entries, is_newer: false, to })
}

/// The order for the result of a look-up.
pub(crate) fn looked_up(states: Vec<(Code, State)>) -> WriterOrder {
    WriterOrder::LookedUpStates(states)
}

/// The outbox after a restart.
pub(crate) fn restore(entries: &[Delivery], positions: &[Option<StreamPosition>], compare_later: &[bool]) -> Outbox {
    let places = positions.iter().zip(0..).filter_map(|(at, part)| Some((Partition(part), (*at)?)));
    let mut outbox = Outbox::restore(entries.iter().copied(), places);
    let refused = compare_later.iter().zip(0..).filter(|(is_noted, _)| **is_noted);
    outbox.restore_refused(refused.map(|(_, part)| Partition(part)));
    outbox
}

/// Some time has passed.
pub(crate) fn tick(outbox: &mut Outbox) {
    outbox.tick();
}

/// Tells the outbox that an entry has come by.
pub(crate) fn seen(outbox: &mut Outbox, echo: Echo) {
    outbox.note_seen(echo);
}

/// The verdict of Redis on a delete of the link with this claim.
pub(crate) fn remove(stored: Option<&State>, claim: u64, now_ms: u64) -> Verdict {
    rules::remove(stored, claim, now_ms)
}
