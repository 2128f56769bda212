//! The calls into the code under test whose form may change while it is worked on, so that the rest of the simulator need
//! not.

use carom::bridge::{Followed, Order, Told};
use carom_model::replication::follow::Position;
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::{Echo, Partition, State};
use carom_shards::Code;

/// Where a change comes by.
pub(crate) fn echo(part: usize, at: Position) -> Echo {
    Echo { partition: Partition(part as u8), id: at.id, check: at.check }
}

/// What was read from a stream, as the writer is told.
pub(crate) fn followed(part: usize, entries: Vec<(Position, Option<Told>)>, to: Position) -> Order {
    Order::Followed(Followed { partition: Partition(part as u8), entries, to })
}

/// What a look-up has found, as the writer is told.
pub(crate) fn looked_up(states: Vec<(Code, State)>) -> Order {
    Order::LookedUp(states)
}

/// The outbox after a restart.
pub(crate) fn restore(entries: &[Delivery], positions: &[Option<Position>]) -> Outbox {
    let places = positions.iter().zip(0..).filter_map(|(at, part)| Some((Partition(part), (*at)?)));
    Outbox::restore(entries.iter().copied(), places)
}

/// Some time has passed.
pub(crate) fn tick(outbox: &mut Outbox) {
    outbox.tick();
}

/// Tells the outbox that an entry has come by.
pub(crate) fn seen(outbox: &mut Outbox, echo: Echo) {
    outbox.seen(echo);
}

/// What Redis does when it is asked to delete the link with this claim.
pub(crate) fn remove(stored: Option<&State>, claim: u64, now_ms: u64) -> Verdict {
    rules::remove(stored, claim, now_ms)
}
