//! The exchange of visit logs in a fleet: one thread publishes the blocks of this node in Redis, and takes those of all
//! other nodes (`follow`). So each log has the visits of all nodes.
//!
//! Once a second it appends the new blocks of its own log to the stream of this node. It reads them from the disk after
//! a sync, so no power failure takes back a block that Redis has. Redis keeps a bounded window of each stream.
//! Deletions of visits are in a list that all nodes read when it changes.
//!
//! [`carom_model::visits::shared_log`] decides, and this asks Redis.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::outgoing::{OwnBlock, open_blocks};
use super::sharing::random_id;
use super::{VisitLogState, locked};
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{FieldUpdate, Redis, RedisError, VisitLogNotes};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::visits::FleetVisits;
use carom_limits::{VISIT_DELETIONS_MAX, VISIT_LOG_LAG_MAX, VISIT_LOG_ORIGINS_MAX};
use carom_model::visits::count_exchange::OtherOrigins;
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::{LogEntry, LogNote, LogSpan, OriginPosition, OwnLogStream};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::LogOriginStats;

/// Interval between two turns.
const EVERY: Duration = Duration::from_secs(1);

/// Timeout of one request.
pub(super) const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of Redis at the start, for which the first block of the process waits.
const START_TIME: Duration = Duration::from_secs(2);

/// Time without a heartbeat after which a node may have visits that this one lacks. Nodes send one each second.
const SILENT_TIME: Duration = Duration::from_secs(5);

/// Time for which a file of own blocks is kept after Redis has received all of them, in case it loses some.
const OUTGOING_KEPT: Duration = Duration::from_secs(60);

/// The reason why a turn was not finished.
#[derive(Debug)]
pub(super) enum Interrupted {
    Redis(RedisError),
    Disk(io::Error),
}

impl From<RedisError> for Interrupted {
    fn from(error: RedisError) -> Interrupted {
        Interrupted::Redis(error)
    }
}

impl From<io::Error> for Interrupted {
    fn from(error: io::Error) -> Interrupted {
        Interrupted::Disk(error)
    }
}

/// The state of the thread.
pub(super) struct LogExchange {
    pub(super) shared: Arc<VisitLogState>,
    pub(super) redis: Redis,
    node: String,
    /// The blocks of this node on their way to Redis.
    own: OwnLogStream,
    pub(super) others: OtherOrigins,
    /// The last own block of which Redis has no other version.
    common: OriginPosition,
    /// The revisions of the deletions here and in Redis that both have.
    deletions: Option<(u64, String)>,
    unpublished_since: Option<Instant>,
    outgoing_since: Option<Instant>,
    /// True once the other nodes can find the log.
    is_found: bool,
}

/// Starts the thread, which first checks the identity of the log against Redis. It ends after `until`, with a last turn.
///
/// # Errors
/// If the operating system cannot start a thread.
pub(super) fn start(
    shared: Arc<VisitLogState>,
    fleet: FleetVisits,
    until: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let exchange = LogExchange::new(shared, fleet);
    threads::start(Priority::Locking, "redis-visit-log", move || exchange.run(&until))
}

impl LogExchange {
    fn new(shared: Arc<VisitLogState>, fleet: FleetVisits) -> LogExchange {
        let common = own_of(&shared).1;
        LogExchange {
            shared,
            redis: fleet.redis,
            node: fleet.node,
            own: OwnLogStream::default(),
            others: OtherOrigins::default(),
            common,
            deletions: None,
            unpublished_since: None,
            outgoing_since: None,
            is_found: false,
        }
    }

    fn run(mut self, until: &AtomicBool) {
        // Before the first block of this process, whose number another directory may have used.
        let compared = self.compare(START_TIME);
        self.note(compared);
        self.shared.sharing.check();
        while !until.load(Ordering::Acquire) {
            let begun = Instant::now();
            if self.may_share() {
                let done = self.turn();
                self.is_found |= done.is_ok();
                self.note(done);
            }
            self.show();
            std::thread::park_timeout(EVERY.saturating_sub(begun.elapsed()));
        }
        if self.may_share() {
            // The last blocks, and their number: after a quiet time, nobody reads a stream without a new number.
            let done = self.publish().and_then(|()| self.read_notes()).map(drop);
            self.note(done);
        }
    }

    fn may_share(&self) -> bool {
        self.shared.stats.fleet.same_code_secret.load(Ordering::Acquire)
    }

    fn note(&self, done: Result<(), Interrupted>) {
        match done {
            Ok(()) => {}
            Err(Interrupted::Redis(error)) => {
                self.shared.stats.fleet.errors.add_shared(1);
                tracing::debug!(%error, "visit logs cannot be exchanged with other nodes");
            }
            Err(Interrupted::Disk(error)) => {
                tracing::error!(%error, "the disk fails, so visit logs cannot be exchanged with other nodes");
            }
        }
    }

    fn turn(&mut self) -> Result<(), Interrupted> {
        let published = self.publish();
        let notes = self.read_notes()?;
        self.exchange_deletions(&notes.revision)?;
        let has_all = self.follow(&notes)?;
        if has_all && self.hears_all() {
            self.shared.sharing.set_current(unix_ms());
        }
        self.remove_published();
        self.show_origins(&notes);
        published
    }

    /// Finds out what Redis has of this node. If that is more than this node has logged, another directory has the same
    /// identity, or this directory is an older copy. Either way, the log gets another identity.
    fn compare(&mut self, within: Duration) -> Result<(), Interrupted> {
        let (id, logged) = own_of(&self.shared);
        let ends = self.redis.log_ends(id, within)?;
        let notes = self.redis.log_notes(within)?;
        let noted = note_of(&notes, id).map_or(0, |note| note.number);
        if !self.own.compare(logged.number, &ends, noted, (since_boot(), unix_ms())) {
            tracing::warn!(
                "the fleet has newer logged visits of this data directory than the directory itself; its log continues under a new identity"
            );
            self.shared.renew_log(random_id()?, self.common)?;
            self.common = OriginPosition::default();
        }
        Ok(())
    }

    /// Appends the blocks of this node that Redis lacks to its stream.
    fn publish(&mut self) -> Result<(), Interrupted> {
        let is_compared = self.own.is_unsure();
        if is_compared {
            self.compare(REDIS_TIMEOUT)?;
        }
        let id = own_of(&self.shared).0;
        loop {
            let blocks = locked(&self.shared.state).outgoing.next(self.own.published());
            if blocks.is_empty() {
                self.unpublished_since = None;
                return Ok(());
            }
            self.unpublished_since.get_or_insert_with(Instant::now);
            let entry = self.read_blocks(&blocks)?;
            let (last, bytes) = (entry.last(), entry.encode());
            let oldest = self.own.make_room(bytes.len(), since_boot());
            match self.redis.publish_log(id, last, &bytes, oldest, REDIS_TIMEOUT) {
                // The stream has had this entry and lost it. Nodes that miss it note a gap.
                Err(RedisError::Refused(what)) if is_compared && what.contains("equal or smaller") => {}
                Err(error) => {
                    self.own.doubt();
                    return Err(error.into());
                }
                Ok(()) => self.shared.stats.visit_log.published.add(blocks.len() as u64),
            }
            self.own.sent(last, bytes.len(), since_boot());
            if last > self.common.number {
                self.common = OriginPosition { number: last, last_ms: entry.span.to_ms };
            }
        }
    }

    /// Reads blocks from the disk, and makes them durable before.
    fn read_blocks(&self, blocks: &[OwnBlock]) -> io::Result<LogEntry> {
        let span = blocks.iter().map(|block| block.span).reduce(LogSpan::with);
        let (Some(first), Some(span)) = (blocks.first(), span) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut entry = LogEntry { first: first.number, span, published: self.own.total(), blocks: Vec::new() };
        let mut opened: Option<(u64, File)> = None;
        for block in blocks {
            if opened.as_ref().is_none_or(|(seq, _)| *seq != block.seq) {
                let file = open_blocks(&self.shared.dir, block.seq).inspect_err(|error| self.lose(block, error))?;
                file.sync_data()?;
                opened = Some((block.seq, file));
            }
            let Some((_, file)) = &opened else { continue };
            entry.blocks.push(block.read(file)?);
        }
        Ok(entry)
    }

    /// Forgets the blocks of a file that is missing. Other nodes note a gap.
    fn lose(&self, block: &OwnBlock, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            let removed = locked(&self.shared.state).outgoing.remove(&self.shared.dir, block.seq);
            removed.unwrap_or_else(|error| tracing::error!(%error, seq = block.seq, "cannot remove a file of visits"));
        }
    }

    /// Reads how far each origin has come, and tells Redis what it does not know or has lost.
    fn read_notes(&mut self) -> Result<VisitLogNotes, Interrupted> {
        let notes = self.redis.log_notes(REDIS_TIMEOUT)?;
        let (own, logged) = own_of(&self.shared);
        let numbers = notes.origins.iter().filter_map(|(id, text)| Some((*id, LogNote::parse(text)?.number)));
        let now = since_boot();
        self.others.hear(numbers, now);
        let mut set = Vec::new();
        if let Some(number) = self.own.number_to_note(note_of(&notes, own).map(|note| note.number)) {
            let lacking = locked(&self.shared.state).shared_log.as_ref().and_then(|shared_log| shared_log.lacking());
            let note = LogNote { number, last_ms: logged.last_ms, lacking, node: self.node.clone() };
            set.push((own, note.to_text()));
        }
        for (id, OriginPosition { number, last_ms }) in positions(&self.shared) {
            let has_room = notes.origins.len() + set.len() < VISIT_LOG_ORIGINS_MAX / 2;
            // Redis was emptied, and has no blocks of an origin that does not restore its description.
            if id != own && has_room && self.others.must_note(id, number, now) {
                let lacking = Some(LogSpan { from_ms: 0, to_ms: last_ms });
                set.push((id, LogNote { number, last_ms, lacking, node: String::new() }.to_text()));
            }
        }
        self.redis.note_log(&set, REDIS_TIMEOUT)?;
        self.forget_oldest(&notes)?;
        Ok(notes)
    }

    /// Removes the descriptions with the oldest visits beyond the bound.
    fn forget_oldest(&mut self, notes: &VisitLogNotes) -> Result<(), Interrupted> {
        let beyond = notes.origins.len().saturating_sub(VISIT_LOG_ORIGINS_MAX);
        let last_ms = |text: &str| LogNote::parse(text).map_or(0, |note| note.last_ms);
        let mut origins: Vec<(u64, OriginId)> = notes.origins.iter().map(|(id, text)| (last_ms(text), *id)).collect();
        origins.sort_unstable();
        let oldest: Vec<OriginId> = origins.iter().take(beyond).map(|(_, id)| *id).collect();
        Ok(self.redis.forget_log(&oldest, REDIS_TIMEOUT)?)
    }

    /// Takes the deletions of other nodes, and tells Redis those that it lacks, if either has new ones.
    fn exchange_deletions(&mut self, revision: &str) -> Result<(), Interrupted> {
        let here = locked(&self.shared.state).deletions.revision();
        if self.deletions.as_ref().is_some_and(|(ours, theirs)| *ours == here && theirs == revision) {
            return Ok(());
        }
        let since_ms = self.shared.deletions_since_ms();
        let held = self.redis.deleted_visits(REDIS_TIMEOUT)?;
        let mut theirs: Vec<(String, u64)> = held.all().into_iter().collect();
        theirs.sort_unstable_by_key(|(_, until_ms)| Reverse(*until_ms));
        let lasting = theirs.partition_point(|(_, until_ms)| *until_ms >= since_ms);
        let old = theirs.split_off(lasting.min(VISIT_DELETIONS_MAX));
        // Deletions that a full list has no room for must not come back, or nodes would add and remove them in turn.
        let oldest = theirs.last().filter(|_| theirs.len() >= VISIT_DELETIONS_MAX);
        let since_ms = oldest.map_or(since_ms, |(_, until_ms)| since_ms.max(until_ms.saturating_add(1)));
        let (all_fit, here, ours) = {
            let mut state = locked(&self.shared.state);
            let all_fit = state.deletions.merge(&theirs)?;
            (all_fit, state.deletions.revision(), state.deletions.named())
        };
        let theirs: HashMap<String, u64> = theirs.into_iter().collect();
        let is_news = |(name, until_ms): &(String, u64)| {
            *until_ms >= since_ms && theirs.get(name).is_none_or(|theirs| theirs < until_ms)
        };
        let set = ours.into_iter().filter(is_news).map(|(name, until_ms)| held.change(&name, Some(until_ms)));
        let old = old.into_iter().map(|(name, _)| held.change(&name, None));
        let changes: Vec<FieldUpdate> = set.chain(old).collect();
        let (mut is_read, mut known) = (all_fit, revision.to_owned());
        if !changes.is_empty() {
            let (changed, is_whole) = self.redis.change_deleted_visits(&changes, REDIS_TIMEOUT)?;
            known = changed;
            // Another node may have changed the list in between: then it is read again.
            let next = revision.parse().unwrap_or(0_u64).saturating_add(1);
            is_read &= is_whole && known.parse::<u64>().ok() == Some(next);
        }
        self.deletions = is_read.then_some((here, known));
        Ok(())
    }

    /// True if every other node shares its log and has published all but the last seconds of it. A node that has stopped
    /// logs nothing. Of nodes of another site, this one does not hear how far they have published.
    fn hears_all(&self) -> bool {
        let fleet = &self.shared.stats.fleet;
        let members = fleet.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let most_ms = VISIT_LOG_LAG_MAX.as_millis() as u64;
        let is_heard = fleet.connected.load(Ordering::Acquire);
        let is_alone = fleet.site.names.get().is_none();
        is_heard
            && is_alone
            && members.iter().filter(|member| member.node != self.node).all(|member| {
                let about: Value = serde_json::from_str(&member.about).unwrap_or_default();
                let shares = about["visitLog"].as_u64().is_some_and(|lag_ms| lag_ms <= most_ms);
                about["stopped"] == true || (shares && member.heard.elapsed() < SILENT_TIME)
            })
    }

    /// Removes files of sealed segments some time after Redis has received all of their blocks.
    fn remove_published(&mut self) {
        let mut state = locked(&self.shared.state);
        let published = if self.own.is_unsure() { 0 } else { self.own.published() };
        state.outgoing.note_published(published);
        let done = if self.own.is_unsure() { Vec::new() } else { state.outgoing.delivered_segments(published) };
        if done.is_empty() {
            self.outgoing_since = None;
        } else if self.outgoing_since.get_or_insert_with(Instant::now).elapsed() >= OUTGOING_KEPT
            || self.shared.drops_sent.load(Ordering::Acquire)
        {
            for seq in done {
                if let Err(error) = state.outgoing.remove(&self.shared.dir, seq) {
                    tracing::error!(%error, seq, "cannot remove a file of visits that Redis has received");
                }
            }
            self.outgoing_since = None;
        }
    }

    /// Publishes the state for the heartbeat and the metrics.
    fn show(&self) {
        let stats = &self.shared.stats.visit_log;
        let lag = self.unpublished_since.map_or(Duration::ZERO, |since| since.elapsed());
        stats.lag_ms.set(lag.as_millis() as u64);
        let gaps = locked(&self.shared.state).shared_log.as_ref().map_or(0, |of| of.gaps().spans().len());
        stats.gaps.set(gaps as u64);
        stats.is_shared.store(self.is_found, Ordering::Release);
    }

    /// Publishes how far each log has come, for the status.
    fn show_origins(&self, notes: &VisitLogNotes) {
        let origins = positions(&self.shared).into_iter().map(|(id, position)| LogOriginStats {
            origin: id.to_string(),
            node: note_of(notes, id).map_or_else(String::new, |note| note.node),
            logged: position.number,
            published: self.others.known_of(id).max(position.number),
        });
        let origins: Vec<LogOriginStats> = origins.collect();
        *self.shared.stats.visit_log.origins.lock().unwrap_or_else(PoisonError::into_inner) = origins;
    }
}

/// Returns the identity of the own log, and how far it has come.
pub(super) fn own_of(shared: &VisitLogState) -> (OriginId, OriginPosition) {
    let state = locked(&shared.state);
    let own = state.shared_log.as_ref().map(|shared_log| (shared_log.own(), shared_log.position(shared_log.own())));
    own.unwrap_or_default()
}

/// Returns how far the log has that of each node.
fn positions(shared: &VisitLogState) -> Vec<(OriginId, OriginPosition)> {
    let state = locked(&shared.state);
    state.shared_log.iter().flat_map(|shared_log| shared_log.positions()).collect()
}

/// Returns the description of an origin in Redis.
fn note_of(notes: &VisitLogNotes, id: OriginId) -> Option<LogNote> {
    notes.origins.iter().find(|(of, _)| *of == id).and_then(|(_, text)| LogNote::parse(text))
}
