//! The epochs of granted visits in a Redis that was emptied. New nodes may have completed an epoch without the grants of
//! this node ([`carom_model::visits::grants`]).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use carom_shards::Code;

use super::{Follower, REDIS_TIMEOUT, Stopped};
use crate::services::replication::redis::{GrantAsker, GrantReport};
use carom_model::replication::{Partition, State};
use carom_model::visits::grants::GrantEpoch;
use carom_store::links::StoreError;
use carom_telemetry::stats::NodeStats;

impl Follower {
    /// Ends the epochs of grants in some partitions that other nodes may have completed without this node, before Redis gets
    /// back any links of them. So nobody gets visits of these links before this node has reported its grants. Returns the
    /// partitions of which that is done. `failure` gets the last error of the others.
    pub(super) fn end_grant_epochs(
        &mut self,
        partitions: &[Partition],
        failure: &mut Option<Stopped>,
    ) -> Vec<Partition> {
        let mut unread = Vec::new();
        let last = with_grants(partitions, |of| self.fleet.links.grant_epoch(of), |error| unread.push(error));
        report_unread_epochs(&self.fleet.stats, &unread);
        let known: Vec<(Partition, GrantEpoch)> =
            last.iter().map(|(of, epoch)| (*of, epoch.unwrap_or_default())).collect();
        // Each loss of positions has one number, so that a repetition does not end the epoch that this node has begun.
        let nonce = self.nonce ^ self.measure_after.as_nanos() as u64;
        let found = self.enter_grant_epochs(&known, nonce);
        let has_reported = self.has_grant_reports(&known);
        let (mut rivals, mut undone) = (Vec::new(), BTreeSet::new());
        for (((of, known), found), has_reported) in last.into_iter().zip(found).zip(has_reported) {
            match (found, has_reported) {
                (Ok(found), Ok(has_reported)) => {
                    let rival = found.and_then(|found| found.rival(known, has_reported, nonce));
                    rivals.extend(rival.map(|rival| (of, rival)));
                }
                (Err(error), _) | (_, Err(error)) => {
                    undone.insert(of);
                    *failure = Some(error);
                }
            }
        }
        for ((of, _), entered) in rivals.iter().zip(self.enter_grant_epochs(&rivals, nonce)) {
            if let Err(error) = entered {
                undone.insert(*of);
                *failure = Some(error);
            }
        }
        if !known.is_empty() {
            // The thread that admits visits has to report.
            self.fleet.stats.fleet.grants.is_asked.store(true, Ordering::Release);
        }
        partitions.iter().copied().filter(|of| !undone.contains(of)).collect()
    }

    /// True if this node has a position in the stream of a code. Without one, Redis may have been emptied, and the epoch of grants
    /// there is not ended yet.
    pub(super) fn has_position(&self, code: &Code) -> bool {
        self.positions.contains_key(&Partition::of(code))
    }

    /// True if the outbox may bring a state to Redis. If the position of this node in the stream was lost, the node first ends the
    /// epoch of grants there. Then a limited link waits for the introduction, like all links of a comparison.
    pub(super) fn may_bring(&self, code: &Code, state: &State) -> bool {
        let of = Partition::of(code);
        let is_limited = matches!(state, State::Link(link) if link.policy.max_visits.is_some());
        // No process with a shared home is introduced.
        let is_compared = self.fleet.home.stores_all_links() && self.must_compare.contains(&of);
        self.has_position(code) && !(is_limited && is_compared && self.lacks_introduction())
    }

    /// Returns for each of these partitions whether Redis has the whole report of this node. The thread that admits visits stores
    /// an epoch first, and reports to it after that.
    fn has_grant_reports(&mut self, epochs: &[(Partition, GrantEpoch)]) -> Vec<Result<bool, Stopped>> {
        if epochs.is_empty() {
            return Vec::new();
        }
        let partitions: Vec<Partition> = epochs.iter().map(|(of, _)| *of).collect();
        let answers = self.redis.has_reports_of(&self.fleet.settings.node, &partitions, REDIS_TIMEOUT);
        answers.into_iter().map(|answer| self.skip_refused(answer).map(|found| found.unwrap_or(false))).collect()
    }

    /// Shows Redis the last known epochs of some partitions, and returns the epochs there; `None` for a partition of which
    /// Redis refuses the request.
    fn enter_grant_epochs(
        &mut self,
        epochs: &[(Partition, GrantEpoch)],
        nonce: u64,
    ) -> Vec<Result<Option<GrantEpoch>, Stopped>> {
        if epochs.is_empty() {
            return Vec::new();
        }
        let looks: Vec<GrantReport> =
            epochs.iter().map(|(of, known)| GrantReport::part(*of, *known, Vec::new())).collect();
        // Under no name, so that no report of this node changes.
        let asker = GrantAsker { node: "", nonce, others: &[] };
        let answers = self.redis.report_grants(&looks, &asker, REDIS_TIMEOUT);
        let epoch = |answer| self.skip_refused(answer).map(|found| found.map(|(epoch, _)| epoch));
        answers.into_iter().map(epoch).collect()
    }
}

/// Reports epochs that cannot be read, and that therefore count as unknown.
fn report_unread_epochs(stats: &NodeStats, errors: &[StoreError]) {
    let (damaged, failed): (Vec<&StoreError>, Vec<&StoreError>) =
        errors.iter().partition(|error| matches!(error, StoreError::Damaged(_)));
    damaged.into_iter().for_each(|error| stats.report_damaged(b"granted visits", error));
    if let Some(error) = failed.first() {
        stats.store_errors.add_shared(failed.len() as u64);
        let partitions = failed.len();
        tracing::error!(%error, partitions, "epochs of grants cannot be read; all nodes report their grants again");
    }
}

/// Returns those of some partitions of which this node may have grants, each with its last epoch; `None` for an epoch that
/// cannot be read, of which `unread` gets the error. A node without an epoch has no grants of a partition. An epoch is not
/// read again later: until then, Redis would get back links whose visits other nodes could be granted once more.
fn with_grants(
    partitions: &[Partition],
    read: impl Fn(Partition) -> Result<GrantEpoch, StoreError>,
    mut unread: impl FnMut(StoreError),
) -> Vec<(Partition, Option<GrantEpoch>)> {
    let known = |of: &Partition| match read(*of) {
        Ok(epoch) => (epoch.number > 0).then_some((*of, Some(epoch))),
        Err(error) => {
            unread(error);
            Some((*of, None))
        }
    };
    partitions.iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Duration;

    use super::super::prepare;
    use super::*;
    use crate::services::replication::testing::context;
    use carom_model::link::{Origin, record};
    use carom_model::replication::EntryId;
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::outbox::Delivery;
    use carom_model::testing::link;
    use carom_telemetry::alarms::Alarm;

    #[test]
    fn outbox_waits_until_grant_epochs_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let (mut batch, mut text) = (fleet.links.batch(), Vec::new());
        let mut limited = link("limited", Origin::Custom);
        limited.policy.max_visits = NonZeroU32::new(5);
        record::encode_link(b"limited", &limited, &mut text);
        batch.put(&limited.code, &text);
        fleet.links.commit(batch).unwrap();
        let (entry, of) = (Delivery { seq: 1, code: limited.code }, Partition::of(&limited.code));
        follower.queue.push_back(entry);
        assert!(matches!(follower.deliver(), Ok(false)), "the position is lost");
        // The node is at the end of the stream, and no node has heard of it.
        follower.positions.insert(of, StreamPosition { id: EntryId { ms: 1, seq: 0 }, check: 1 });
        follower.must_compare.push(of);
        assert!(matches!(follower.deliver(), Ok(false)));
        assert!(follower.may_bring(&limited.code, &State::Link(link("limited", Origin::Custom).into())));
        assert_eq!(follower.queue, [entry]);
        fleet.stats.fleet.grants.is_introduced.store(true, Ordering::Release);
        fleet.view.note_heartbeat([], false, follower.measure_after + Duration::from_millis(2));
        assert!(follower.deliver().is_err(), "Redis does not answer");
        assert_eq!(follower.queue, [entry]);
    }

    #[test]
    fn server_that_is_away_keeps_no_other_partition_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let mut batch = fleet.links.batch();
        batch.set_grant_epoch(Partition(2), &GrantEpoch { number: 1, nonce: 7 });
        fleet.links.commit(batch).unwrap();
        let mut failure = None;
        let ready = follower.end_grant_epochs(&[1, 2, 3].map(Partition), &mut failure);
        assert_eq!(ready, [1, 3].map(Partition), "this node has no grants of the others");
        assert!(failure.is_some(), "Redis does not answer");
    }

    #[test]
    fn epochs_that_cannot_be_read_may_have_grants() {
        let epoch = GrantEpoch { number: 2, nonce: 7 };
        let mut errors = Vec::new();
        let read = |of: Partition| match of.0 {
            0 => Ok(GrantEpoch::default()),
            1 => Ok(epoch),
            2 => Err(StoreError::Damaged("a test".to_owned())),
            _ => Err(StoreError::Failed("a test".to_owned())),
        };
        let known = with_grants(&[0, 1, 2, 3].map(Partition), read, |error| errors.push(error));
        // Redis gets back links of the last two partitions as well.
        assert_eq!(known, [(Partition(1), Some(epoch)), (Partition(2), None), (Partition(3), None)]);
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn only_damage_raises_the_alarm_of_the_store() {
        let stats = NodeStats::default();
        let failed = || StoreError::Failed("a test".to_owned());
        report_unread_epochs(&stats, &[failed(), failed()]);
        assert_eq!((stats.store_errors.get(), stats.alarms.is_on(Alarm::StoreDamaged)), (2, false));
        report_unread_epochs(&stats, &[StoreError::Damaged("a test".to_owned())]);
        assert_eq!((stats.store_errors.get(), stats.alarms.is_on(Alarm::StoreDamaged)), (2, true));
    }
}
