//! Delivers the outbox to Redis.
//!
//! A delivery that cannot be sent now goes to the end of the queue, so that it keeps no other partition waiting. The order
//! does not matter: each code has one current entry, and its state is read when it is sent.

use carom_shards::Code;

use super::{Follower, REDIS_TIMEOUT, Stopped};
use crate::bridge::{OutboxReply, WriterOrder};
use crate::services::replication::redis::CodeChange;
use carom_model::replication::rules::Verdict;

/// Number of states delivered to Redis at once.
const DELIVER_COUNT: usize = 256;

/// Number of deliveries that have to wait after which a turn looks at no further ones.
const HELD_BACK_MAX: usize = 1_024;

impl Follower {
    /// Delivers some of the outbox to Redis. Returns true if more is left.
    pub(super) fn deliver(&mut self) -> Result<bool, Stopped> {
        if self.queue.is_empty() {
            return Ok(false);
        }
        let (mut some, mut held_back) = (Vec::new(), Vec::new());
        while some.len() < DELIVER_COUNT && held_back.len() < HELD_BACK_MAX {
            let Some(delivery) = self.queue.pop_front() else { break };
            self.note_slug(&delivery.code);
            if !self.has_position(&delivery.code) {
                held_back.push(delivery);
                continue;
            }
            match self.fleet.stored_state(&delivery.code) {
                Some(state) if self.may_bring(&delivery.code, &state) => some.push((delivery, state)),
                Some(_) => held_back.push(delivery),
                None => self.wait_for_record(delivery),
            }
        }
        let offers: Vec<(Code, CodeChange)> =
            some.iter().map(|(delivery, state)| (delivery.code, CodeChange::Offer(state.clone()))).collect();
        let answers = self.redis.change(&offers, REDIS_TIMEOUT);
        let is_more = !self.queue.is_empty();
        let (mut delivered, mut again, mut failure) = (Vec::new(), Vec::new(), None);
        for ((delivery, sent), answer) in some.into_iter().zip(answers) {
            match answer {
                Ok(changed) => {
                    if matches!(changed.verdict, Verdict::HeldUnread(_)) {
                        self.note_marks();
                    }
                    delivered.push(OutboxReply { delivery, sent, verdict: changed.verdict, echo: changed.echo });
                }
                Err(error) => {
                    again.push(delivery);
                    failure = Some(error);
                }
            }
        }
        assert_eq!(delivered.len() + again.len(), offers.len(), "a change would stay undelivered until a restart");
        self.queue.extend(again.into_iter().chain(held_back));
        self.fleet.stats.fleet.delivered.add(delivered.len() as u64);
        if !delivered.is_empty() {
            self.send_to_writer(WriterOrder::Delivered(delivered))?;
        }
        match failure {
            Some(error) => Err(Stopped::RedisError(error)),
            None => Ok(is_more && !offers.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::{channel, sync_channel};

    use super::super::prepare;
    use super::*;
    use crate::services::replication::context::FleetContext;
    use crate::services::replication::testing::context;
    use carom_model::link::Origin;
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::outbox::Delivery;
    use carom_model::replication::{EntryId, Partition, State};
    use carom_model::testing::link;

    const POSITION: StreamPosition = StreamPosition { id: EntryId { ms: 1, seq: 0 }, check: 1 };

    /// Stores links with codes of some partitions, and returns their entries.
    fn entries(fleet: &FleetContext, is_in: impl Fn(Partition) -> bool, count: usize) -> Vec<Delivery> {
        let codes = (0..).map(|number| link(&format!("link{number}"), Origin::Custom).code);
        let codes = codes.filter(|code| is_in(Partition::of(code))).take(count);
        let mut batch = fleet.links.batch();
        let store = |(seq, code): (u64, Code)| {
            let mut record = Vec::new();
            State::Link(link(&code.to_string(), Origin::Custom).into()).to_record(&code, &mut record);
            batch.put(&code, &record);
            Delivery { seq, code }
        };
        let entries = (0..).zip(codes).map(store).collect();
        fleet.links.commit(batch).unwrap();
        entries
    }

    fn seqs<'e>(entries: impl IntoIterator<Item = &'e Delivery>) -> BTreeSet<u64> {
        entries.into_iter().map(|entry| entry.seq).collect()
    }

    #[test]
    fn lost_positions_keep_no_other_partition_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let followed = Partition(5);
        let mut all = entries(&fleet, |of| of != followed, 1_100);
        let last = Delivery { seq: 1_100, ..entries(&fleet, |of| of == followed, 1)[0] };
        all.push(last);
        follower.queue.extend(all.iter().copied());
        follower.positions.insert(followed, POSITION);
        assert!(matches!(follower.deliver(), Ok(false)), "no entry of the others may be sent");
        assert!(follower.deliver().is_err(), "Redis does not answer to the last entry");
        assert_eq!((follower.queue.len(), seqs(&follower.queue)), (all.len(), seqs(&all)));
    }

    #[test]
    fn server_that_is_away_keeps_no_later_entry_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let all = entries(&fleet, |_| true, DELIVER_COUNT + 1);
        follower.queue.extend(all.iter().copied());
        follower.positions.extend(Partition::all().map(|of| (of, POSITION)));
        assert!(follower.deliver().is_err(), "Redis does not answer");
        assert_eq!(follower.queue.front(), all.last());
        assert_eq!((follower.queue.len(), seqs(&follower.queue)), (all.len(), seqs(&all)));
    }
}
