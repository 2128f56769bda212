//! Deliveries that wait for their record: it cannot be read at the moment, or only a later version can decode it.
//!
//! The entry of the outbox stays, and the delivery is tried again from time to time. Redis cannot compare its state
//! with a record that it does not get. So the writer hears which version Redis has, and compares. Otherwise it would
//! leave out later changes of other nodes until an upgrade, and this node would not count as one that follows the
//! streams.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{Follower, REDIS_TIMEOUT, Stopped};
use crate::bridge::WriterOrder;
use carom_model::replication::outbox::Delivery;

/// Interval between two attempts.
const AGAIN_EVERY: Duration = Duration::from_secs(5);

/// Number of codes for which Redis is asked at once.
const PIECE: usize = 256;

impl Follower {
    /// Sets a delivery aside whose state cannot be read. A code without a record has nothing to deliver.
    pub(super) fn wait_for_record(&mut self, delivery: Delivery) {
        if !matches!(self.fleet.links.get(&delivery.code), Ok(None)) {
            self.set_aside.deliveries.push(delivery);
        }
    }

    /// Queues the deliveries again whose records can be read by now, and looks up in Redis the codes of some others. Returns
    /// false: the rest waits for the next attempt.
    pub(super) fn try_set_aside(&mut self) -> Result<bool, Stopped> {
        let is_resting = self.set_aside.tried.is_some_and(|tried| tried.elapsed() < AGAIN_EVERY);
        if self.set_aside.deliveries.is_empty() || is_resting {
            return Ok(false);
        }
        self.set_aside.tried = Some(Instant::now());
        let entries: BTreeSet<u64> = match self.fleet.links.outbox() {
            Ok(entries) => entries.iter().map(|entry| entry.seq).collect(),
            Err(error) => {
                tracing::error!(%error, "the outbox cannot be read");
                return Ok(false);
            }
        };
        let mut waiting = std::mem::take(&mut self.set_aside.deliveries);
        waiting.retain(|delivery| entries.contains(&delivery.seq));
        let (readable, mut waiting): (Vec<Delivery>, Vec<Delivery>) =
            waiting.into_iter().partition(|delivery| self.fleet.stored_state(&delivery.code).is_some());
        self.queue.extend(readable);
        let codes: Vec<Code> = waiting.iter().take(PIECE).map(|delivery| delivery.code).collect();
        waiting.rotate_left(codes.len());
        self.set_aside.deliveries = waiting;
        if codes.is_empty() {
            return Ok(false);
        }
        let (mut found, mut absent) = (Vec::new(), Vec::new());
        for (code, answer) in codes.iter().zip(self.redis.states(&codes, REDIS_TIMEOUT)) {
            match self.skip_refused(answer)? {
                Some(Some(state)) => found.push((*code, state)),
                Some(None) => absent.push(*code),
                None => {}
            }
        }
        self.send_found(found)?;
        if !absent.is_empty() {
            self.send_to_writer(WriterOrder::NotInRedis(absent))?;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};

    use super::super::prepare;
    use super::*;
    use crate::services::replication::testing::context;
    use carom_model::link::{Origin, record};
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::{EntryId, Partition};
    use carom_model::testing::{link, newer_record};

    #[test]
    fn delivery_waits_until_its_record_can_be_decoded() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let (waits, gone) = (link("waits", Origin::Custom), link("gone", Origin::Custom));
        let entries = [Delivery { seq: 1, code: gone.code }, Delivery { seq: 2, code: waits.code }];
        let mut batch = fleet.links.batch();
        batch.put(&waits.code, &newer_record(&waits));
        entries.iter().for_each(|entry| batch.add_to_outbox(entry));
        fleet.links.commit(batch).unwrap();
        follower.queue.extend(entries);
        let position = StreamPosition { id: EntryId { ms: 1, seq: 0 }, check: 1 };
        follower.positions.extend(entries.map(|entry| (Partition::of(&entry.code), position)));
        assert!(follower.deliver().is_ok(), "nothing can be sent");
        assert_eq!(follower.set_aside.deliveries, [entries[1]], "the other code has no record");
        // Redis does not answer, and the delivery stays.
        assert!(follower.try_set_aside().is_err());
        assert_eq!(follower.set_aside.deliveries, [entries[1]]);
        let (mut batch, mut text) = (fleet.links.batch(), Vec::new());
        record::encode_link(b"waits", &waits, &mut text);
        batch.put(&waits.code, &text);
        fleet.links.commit(batch).unwrap();
        follower.set_aside.tried = None;
        assert!(follower.try_set_aside().is_ok());
        let queued: Vec<Delivery> = follower.queue.iter().copied().collect();
        assert_eq!((follower.set_aside.deliveries.len(), queued), (0, vec![entries[1]]));
    }
}
