//! Compares all codes of some partitions with Redis, in both directions: on a new node, and after the position in a
//! stream was lost.
//!
//! The first pass goes down: it adopts every code of Redis that differs here. The second goes up: it offers every code
//! of the store that Redis lacks or has in an older state. While Redis keeps only recent states, it does not lack the
//! others: then only codes that have changed on this node within the retention are offered. A comparison runs in pieces
//! beside the streams, without a time limit. The need for it is on disk, so it starts over after a crash. The
//! comparison of a partition is complete once every stream entry it has made was read back. If Redis loses one before,
//! everything is compared again.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::super::context::note_error;
use super::progress::{Compare, ComparePhase};
use super::{Follower, REDIS_TIMEOUT, Stopped};
use crate::bridge::WriterOrder;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{CodeChange, RedisError, Scan};
use carom_model::replication::follow::{StreamEntry, StreamPosition};
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::{ReceivedState, StateHead};
use carom_model::replication::{Partition, State};
use carom_store::links::{LogPosition, StoreError};
use carom_telemetry::alarms::Alarm;

/// Number of codes in one piece.
const PIECE: usize = 512;

/// Interval between two progress messages in the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

impl Follower {
    /// Continues the comparison. Returns true if more is left.
    pub(super) fn compare(&mut self) -> Result<bool, Stopped> {
        self.publish_comparing();
        if !self.fleet.home.stores_all_links() {
            // This node has no copy to compare.
            return self.learn_slugs();
        }
        if self.fleet.view.is_behind() {
            // Redis no longer has all that this node lacks.
            self.compare = None;
            return Ok(false);
        }
        if self.awaits_lag() || self.awaits_introduction() {
            return Ok(false);
        }
        let Some(compare) = self.compare.take() else { return self.begin_to_compare() };
        let Compare { which, phase, mut compared, mut logged } = compare;
        let next = match phase {
            ComparePhase::Down(scan) => self.down(&which, scan, &mut compared),
            ComparePhase::Up(behind) => self.up(&which, &behind, &mut compared),
            ComparePhase::Recent(since, until) => self.recent(&which, (since, until), &mut compared),
        };
        // After an error the walk starts over: a cluster may have moved codes that it had not seen.
        let Some(phase) = next? else {
            self.end_comparing(&which)?;
            return Ok(false);
        };
        if logged.elapsed() >= LOG_EVERY {
            let way = if matches!(phase, ComparePhase::Down(_)) { "from Redis" } else { "to Redis" };
            tracing::info!(codes = compared, way, "comparing links");
            logged = Instant::now();
        }
        self.compare = Some(Compare { which, phase, compared, logged });
        Ok(true)
    }

    /// True if the lag of this node must be measured before it goes on: no measurement is newer than the loss of its
    /// position, or than its reading of all codes of Redis. The process may have been suspended for so long that it is
    /// behind. A process that gives way sends no heartbeats, and proves no code missing.
    fn awaits_lag(&self) -> bool {
        let fleet = &self.fleet;
        fleet.retention.may_have_expired()
            && !fleet.stats.fleet.gives_way.load(Ordering::Acquire)
            && !fleet.view.has_heartbeat_since(self.measure_after)
    }

    /// True if this node must not bring links to Redis yet: nodes of which it has heard since its pass down have not heard of
    /// it. They would take the links, and the next master could grant them visits of these without the report of this node
    /// ([`carom_model::visits::grants`]). The introduction ends after some seconds at the latest. A process that gives way is
    /// not introduced.
    fn awaits_introduction(&self) -> bool {
        let goes_up = self.compare.as_ref().is_some_and(|compare| !matches!(compare.phase, ComparePhase::Down(_)));
        goes_up && self.lacks_introduction()
    }

    /// True if this process is not introduced to all nodes of which it has heard since it lost a position, or read all codes of
    /// Redis.
    pub(super) fn lacks_introduction(&self) -> bool {
        let stats = &self.fleet.stats.fleet;
        let is_introduced = || {
            self.fleet.view.has_heartbeat_since(self.measure_after)
                && stats.grants.is_introduced.load(Ordering::Acquire)
        };
        !stats.gives_way.load(Ordering::Acquire) && !is_introduced()
    }

    fn begin_to_compare(&mut self) -> Result<bool, Stopped> {
        // Partitions that only wait for their entries are left out.
        let which: BTreeSet<Partition> =
            self.must_compare.iter().copied().filter(|of| !self.ending.contains_key(of)).collect();
        if which.is_empty() {
            return Ok(false);
        }
        // The entries of an earlier, unfinished comparison no longer matter.
        self.expected.retain(|partition, _| self.ending.contains_key(partition));
        let scan = self.redis.scan(REDIS_TIMEOUT)?;
        tracing::info!(partitions = which.len(), "comparing links with Redis");
        self.compare = Some(Compare { which, phase: ComparePhase::Down(scan), compared: 0, logged: Instant::now() });
        Ok(true)
    }

    /// Adopts some codes that Redis has and that differ here.
    fn down(
        &mut self,
        which: &BTreeSet<Partition>,
        mut scan: Scan,
        compared: &mut u64,
    ) -> Result<Option<ComparePhase>, Stopped> {
        let Some(mut codes) = self.redis.scan_on(&mut scan, PIECE, REDIS_TIMEOUT)? else {
            return Ok(Some(self.end_scan()));
        };
        codes.retain(|code| which.contains(&Partition::of(code)));
        *compared += codes.len() as u64;
        let (known, mut wanted): (Vec<Code>, Vec<Code>) =
            codes.into_iter().partition(|code| self.fleet.links.get(code).is_ok_and(|value| value.is_some()));
        // For a code that is here already the head of its state decides, which is much shorter than the state.
        for (code, head) in known.iter().zip(self.redis.heads(&known, REDIS_TIMEOUT)) {
            let Some(head) = self.skip_refused(head)? else { continue };
            if self.fleet.stored_state(code).is_none_or(|state| differs(code, &state, &head)) {
                wanted.push(*code);
            }
        }
        let mut found = Vec::new();
        for (code, state) in wanted.iter().zip(self.redis.states(&wanted, REDIS_TIMEOUT)) {
            found.extend(self.skip_refused(state)?.flatten().map(|state| (*code, state)));
        }
        self.send_found(found)?;
        Ok(Some(ComparePhase::Down(scan)))
    }

    /// Ends the pass down, and returns the next one. The process may have been suspended before it had read all codes, for so long
    /// that some states expired. So the lag is measured before the pass up, which ends the comparison. The heartbeat also tells which
    /// nodes must hear of this one before that.
    fn end_scan(&mut self) -> ComparePhase {
        self.measure_after = since_boot();
        self.fleet.view.wake_heartbeat();
        let until = self.fleet.links.log_position();
        let recent = self.fleet.retention.recent_changes().map(|since| ComparePhase::Recent(since, until));
        recent.unwrap_or_else(|| ComparePhase::Up(Vec::new()))
    }

    /// Offers some codes that this node has and Redis lacks.
    fn up(
        &mut self,
        which: &BTreeSet<Partition>,
        behind: &[u8],
        compared: &mut u64,
    ) -> Result<Option<ComparePhase>, Stopped> {
        let page = self.fleet.links.page(behind, PIECE).map_err(|error| self.cannot_compare(&error))?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        let last = last.clone();
        let values = page.into_iter().filter_map(|(key, value)| Some((Code::from_key(&key).ok()?, value)));
        let states = self.decode_all(values.filter(|(code, _)| which.contains(&Partition::of(code))))?;
        *compared += states.len() as u64;
        self.offer_those_lacking(states)?;
        Ok(Some(ComparePhase::Up(last)))
    }

    /// Offers some codes that changed between two positions of the change log, and that Redis lacks.
    fn recent(
        &mut self,
        which: &BTreeSet<Partition>,
        (since, until): (LogPosition, LogPosition),
        compared: &mut u64,
    ) -> Result<Option<ComparePhase>, Stopped> {
        if since >= until {
            return Ok(None);
        }
        let page = self.fleet.links.changes_page(since, PIECE).map_err(|error| self.cannot_compare(&error))?;
        // The log lacks some changes, as after an import: then any state may be a recent one.
        let Some((codes, next)) = page else { return Ok(Some(ComparePhase::Up(Vec::new()))) };
        let codes: BTreeSet<Code> = codes.into_iter().filter(|code| which.contains(&Partition::of(code))).collect();
        let links = &self.fleet.links;
        let states = self.decode_all(codes.into_iter().filter_map(|code| Some((code, links.get(&code).ok()??))))?;
        *compared += states.len() as u64;
        self.offer_those_lacking(states)?;
        Ok(Some(ComparePhase::Recent(next, until)))
    }

    /// Returns the states of some values of the store. If only a later version can decode a value, this node cannot offer
    /// its state, and compares the partition again after an upgrade.
    fn decode_all<V: Deref<Target = [u8]>>(
        &self,
        values: impl Iterator<Item = (Code, V)>,
    ) -> Result<Vec<(Code, State)>, Stopped> {
        let (mut states, mut newer) = (Vec::new(), BTreeSet::new());
        for (code, value) in values {
            match State::from_value(code, &value) {
                Some(state) => states.push((code, state)),
                None if StateHead::if_newer(&code, &value).is_some() => _ = newer.insert(Partition::of(&code)),
                None => {}
            }
        }
        if !newer.is_empty() {
            self.send_to_writer(WriterOrder::CompareAfterUpgrade(newer))?;
        }
        Ok(states)
    }

    /// Reports that the store cannot be read.
    fn cannot_compare(&self, error: &StoreError) -> Stopped {
        let text = format!("{error}; links cannot be compared with Redis while the store cannot be read");
        self.fleet.stats.alarms.raise(Alarm::CompareFailed, text.clone());
        Stopped::RedisError(RedisError::Refused(text))
    }

    /// Offers those of some states that Redis lacks or has in another form.
    fn offer_those_lacking(&mut self, states: Vec<(Code, State)>) -> Result<(), Stopped> {
        let codes: Vec<Code> = states.iter().map(|(code, _)| *code).collect();
        let mut offers = Vec::new();
        for ((code, state), head) in states.into_iter().zip(self.redis.heads(&codes, REDIS_TIMEOUT)) {
            let Some(head) = self.skip_refused(head)? else { continue };
            if head.is_empty() || differs(&code, &state, &head) {
                offers.push((code, CodeChange::Offer(state)));
            }
        }
        self.offer(&offers)
    }

    /// Skips a code that Redis refuses: it must not keep the others from being compared. The alarm names it.
    pub(super) fn skip_refused<T>(&self, answer: Result<T, RedisError>) -> Result<Option<T>, Stopped> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error @ RedisError::Refused(_)) => {
                note_error(&self.fleet.stats, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn offer(&mut self, offers: &[(Code, CodeChange)]) -> Result<(), Stopped> {
        let mut held = Vec::new();
        for ((code, _), answer) in offers.iter().zip(self.redis.change(offers, REDIS_TIMEOUT)) {
            let Some(changed) = self.skip_refused(answer)? else { continue };
            match (changed.verdict, changed.echo) {
                (Verdict::Accepted(_), Some(echo)) => {
                    self.expected.entry(echo.partition).or_default().insert(echo.id);
                }
                (Verdict::Held(state), _) => held.push((*code, ReceivedState::Known(state))),
                (Verdict::HeldUnread(text), _) => held.push((*code, ReceivedState::Unread(text))),
                _ => {}
            }
        }
        self.send_found(held)
    }

    /// Sends the writer states of Redis that it lacks or has in another form.
    pub(super) fn send_found(&self, found: Vec<(Code, ReceivedState)>) -> Result<(), Stopped> {
        let (mut known, mut unread) = (Vec::new(), Vec::new());
        for (code, state) in found {
            match state {
                ReceivedState::Known(state) => known.push((code, state)),
                ReceivedState::Unread(text) => unread.push((code, text)),
            }
        }
        if !known.is_empty() {
            self.send_to_writer(WriterOrder::ComparedStates(known))?;
        }
        if unread.is_empty() {
            return Ok(());
        }
        self.note_marks();
        self.send_to_writer(WriterOrder::Unread(unread))
    }

    fn end_comparing(&mut self, which: &BTreeSet<Partition>) -> Result<(), Stopped> {
        assert!(self.compare.is_none(), "the comparison would begin again at its end");
        debug_assert!(self.expected.values().all(|ids| !ids.is_empty()), "a comparison would wait for no entry");
        tracing::info!("all links have been compared with Redis");
        for partition in which {
            if self.expected.contains_key(partition) {
                // The comparison is complete once all entries it has made were read back.
                self.ending.insert(*partition, Instant::now());
            } else {
                self.end_partition(*partition)?;
            }
        }
        Ok(())
    }

    fn end_partition(&mut self, partition: Partition) -> Result<(), Stopped> {
        self.must_compare.retain(|of| *of != partition);
        self.expected.remove(&partition);
        self.ending.remove(&partition);
        self.send_to_writer(WriterOrder::Compared(partition))
    }

    /// Checks off the entries that a comparison has made, as they are read back.
    pub(super) fn check_off(
        &mut self,
        partition: Partition,
        entries: &[StreamEntry],
        to: StreamPosition,
    ) -> Result<(), Stopped> {
        let Some(expected) = self.expected.get_mut(&partition) else { return Ok(()) };
        entries.iter().for_each(|entry| _ = expected.remove(&entry.id));
        let is_lost = expected.first().is_some_and(|id| *id <= to.id);
        if !is_lost && !expected.is_empty() {
            return Ok(());
        }
        self.expected.remove(&partition);
        match (self.ending.remove(&partition).is_some(), is_lost) {
            (true, false) => self.end_partition(partition),
            // Redis has lost an entry: the partition is compared from the start.
            (_, true) => {
                self.compare.iter_mut().for_each(|compare| compare.drop_partition(partition));
                Ok(())
            }
            // A comparison in progress may make more entries; its end will find none missing.
            (false, false) => Ok(()),
        }
    }
}

/// True if Redis has another state. After a loss of data, two changes may have given a link the same version, so the
/// records must be equal too. The head has the checksum of the record.
fn differs(code: &Code, state: &State, head: &[u8]) -> bool {
    !state.to_text(code).starts_with(head)
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use crate::services::replication::testing::context;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn comparison_ends_after_a_heartbeat_behind_its_scan() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        follower.must_compare.push(Partition(0));
        // States expire, and the lag was known when the scan began.
        fleet.retention.hear(&[], (5, Some(10)), None);
        fleet.stats.fleet.grants.is_introduced.store(true, Ordering::Release);
        fleet.view.note_heartbeat([], false, since_boot());
        let (which, phase) = (BTreeSet::from([Partition(0)]), follower.end_scan());
        follower.compare = Some(Compare { which, phase, compared: 0, logged: Instant::now() });
        assert!(matches!(follower.compare(), Ok(false)));
        assert!(follower.compare.is_some(), "the process may have been suspended for a week during the scan");
        fleet.view.note_heartbeat([], false, follower.measure_after + Duration::from_millis(2));
        assert!(matches!(follower.compare(), Ok(false)));
        assert!(follower.compare.is_none());
        assert!(follower.must_compare.is_empty(), "the lag is known");
    }

    #[test]
    fn links_wait_until_other_nodes_have_heard_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        follower.must_compare.push(Partition(0));
        let (which, phase) = (BTreeSet::from([Partition(0)]), follower.end_scan());
        follower.compare = Some(Compare { which, phase, compared: 0, logged: Instant::now() });
        let grants = &fleet.stats.fleet.grants;
        // The last heartbeat before the position was lost may have found no other node.
        for (is_introduced, beats) in [(true, false), (false, true)] {
            grants.is_introduced.store(is_introduced, Ordering::Release);
            if beats {
                fleet.view.note_heartbeat([], false, follower.measure_after + Duration::from_millis(2));
            }
            assert!(matches!(follower.compare(), Ok(false)));
            assert!(follower.compare.is_some(), "a node that is not introduced brings no links");
        }
        grants.is_introduced.store(true, Ordering::Release);
        assert!(matches!(follower.compare(), Ok(false)));
        assert!(follower.compare.is_none());
    }
}
