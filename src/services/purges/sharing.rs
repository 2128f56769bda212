//! The exchange of purges with the other nodes of a fleet, once a second.
//!
//! A hash in Redis has a field for each purge, and one for each node that has carried the purge out. A list of links
//! has a key of its own. For 30 days, a node that was away finds the purge when it returns. Nodes put back what Redis
//! has lost.
//!
//! Once all nodes of the fleet have carried a purge out, each of them folds its count log, which may have batches of
//! other nodes from before. It also removes the entries that the streams of visits in Redis had by then. In a fleet of
//! two sites, this waits for both sites. Each notes in its Redis that all of its nodes have carried the purge out, and
//! `sites` exchanges the notes. A second note says that the streams of a site are trimmed. Each site then trims its own
//! streams once more, because it may have got visits from the untrimmed streams of the other site. After that, the
//! purge is complete.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::reader::{PurgeReader, SharedList};
use super::registry::{PurgeRegistry, PurgeStage, kept_since_ms, locked};
use crate::bridge::{PurgeNode, PurgeProgress, PurgeSite, PurgeStep};
use crate::services::replication::redis::{PurgeNote, Redis, RedisError, VisitStreamEnd};
use crate::services::visits::VisitReader;
use carom_model::purge::{PurgeId, PurgeList};
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Timeout of a request to Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Time within which all nodes read the entries of the streams of visits. They look for new ones once a second.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Time within which visits of the other site, which were in its streams when it had carried a purge out, reach the streams of
/// this one.
const CROSS_WITHIN: Duration = Duration::from_secs(10);

/// Lists of new purges that are read at once. A node that was away for weeks finds up to 50,000 of them, each with up to
/// 1,000 links. Requests wait while this thread reads.
const TAKEN_AT_ONCE: usize = 100;

/// Purges that are put back at once in a Redis that has lost them. Each is a request of up to some 50 KB.
const PUT_AT_ONCE: usize = 100;

/// Notes of a node or of a site that are stored at once, and purges that are removed at once. Each is a request.
const NOTES_AT_ONCE: usize = 1_000;

/// Time without a heartbeat after which a node counts as silent. Nodes send one a second.
const SILENT_TIME: Duration = Duration::from_secs(10);

/// The reason why an exchange was not finished.
#[derive(Debug)]
enum NotShared {
    Redis(RedisError),
    Other(String),
}

impl From<RedisError> for NotShared {
    fn from(error: RedisError) -> NotShared {
        NotShared::Redis(error)
    }
}

impl From<io::Error> for NotShared {
    fn from(error: io::Error) -> NotShared {
        NotShared::Other(error.to_string())
    }
}

impl From<StoreError> for NotShared {
    fn from(error: StoreError) -> NotShared {
        NotShared::Other(error.to_string())
    }
}

/// The exchange of a node.
pub(super) struct PurgeSharing {
    node: String,
    redis: Redis,
    links: Links,
    stats: Arc<NodeStats>,
    visits: VisitReader,
    /// The purges in Redis.
    reader: PurgeReader,
    /// The names of the site of this node and of the other one; `None` for a fleet of one site.
    sites: Option<(String, String)>,
    clock: SharedClock,
    /// The purges that all nodes have carried out, until the streams of visits are trimmed.
    trimming: HashMap<PurgeId, Trimming>,
    /// The last purge whose list was read; the next ones follow it.
    taken: Option<PurgeId>,
}

/// The last step of a purge that all nodes have carried out: the trim of the streams of visits.
#[derive(Debug)]
struct Trimming {
    stage: TrimStage,
    /// The instant at which this stage began.
    since: Instant,
    /// True if this is the last trim of the purge: the other site has trimmed its streams, or the fleet has one site.
    is_last: bool,
}

/// The progress of a trim. The stages follow each other in this order.
#[derive(Debug)]
enum TrimStage {
    /// Visits of the other site may still arrive. An entry that arrives after the ends of the streams are read is not trimmed.
    Crossing,
    /// Nodes read the streams up to these ends.
    Reading { ends: Vec<VisitStreamEnd> },
    /// This node folds the count log of that number, which may have batches of other nodes from before these ends.
    Folding { log: u32, ends: Vec<VisitStreamEnd> },
    /// The entries up to the ends are removed.
    Trimmed,
}

impl Trimming {
    fn begin(is_last: bool, now: Instant) -> Trimming {
        Trimming { stage: TrimStage::Crossing, since: now, is_last }
    }

    /// True once the present stage has lasted for long enough. Once the streams of the other site are trimmed, no visits are
    /// on their way.
    fn is_due(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.since);
        match &self.stage {
            TrimStage::Crossing => self.is_last || elapsed >= CROSS_WITHIN,
            TrimStage::Reading { .. } => elapsed >= READ_WITHIN,
            TrimStage::Folding { .. } | TrimStage::Trimmed => true,
        }
    }

    fn enter(&mut self, stage: TrimStage) {
        (self.stage, self.since) = (stage, Instant::now());
    }

    /// Returns the present stage for clients. `now_ms` is the present time, in milliseconds since 1970 UTC.
    fn step(&self, now_ms: u64) -> PurgeStep {
        let what = match &self.stage {
            TrimStage::Crossing => "waiting for visits that cross between the sites",
            TrimStage::Reading { .. } => "waiting until all nodes have read the streams of visits",
            TrimStage::Folding { .. } => "storing the counts of visits",
            TrimStage::Trimmed => "waiting until the other site has trimmed its streams of visits",
        };
        PurgeStep { what, since_ms: now_ms.saturating_sub(self.since.elapsed().as_millis() as u64) }
    }
}

/// Returns the next new purges behind the one that was read last, at most [`TAKEN_AT_ONCE`]. Those before it come last, so
/// that lists that cannot be read hold back no others.
fn next_new(
    at_ms: &BTreeMap<PurgeId, u64>,
    taken: Option<PurgeId>,
    is_new: impl Fn(&PurgeId, u64) -> bool,
) -> Vec<PurgeId> {
    let behind = taken.map_or(Bound::Unbounded, Bound::Excluded);
    let others = taken.map(|taken| at_ms.range(..=taken)).into_iter().flatten();
    let new = at_ms.range((behind, Bound::Unbounded)).chain(others).filter(|(id, at_ms)| is_new(id, **at_ms));
    new.map(|(id, _)| *id).take(TAKEN_AT_ONCE).collect()
}

/// The clock of Redis, by which the nodes of a fleet agree on the age of a purge, whatever their own clocks say.
#[derive(Debug, Default)]
struct SharedClock {
    /// The last time that Redis has told, in milliseconds since 1970 UTC, and the instant of its answer.
    heard: Option<(u64, Instant)>,
}

impl SharedClock {
    /// Returns the present time, in milliseconds since 1970 UTC; `None` before the first answer of Redis.
    fn now_ms(&self, now: Instant) -> Option<u64> {
        let since = |at: Instant| now.saturating_duration_since(at).as_millis() as u64;
        self.heard.map(|(heard_ms, at)| heard_ms.saturating_add(since(at)))
    }

    /// Returns the time up to which purges may be too old to be kept: a clock that is ahead, here or in Redis, removes none.
    fn forget_ms(&self, own_ms: u64, now: Instant) -> u64 {
        own_ms.min(self.now_ms(now).unwrap_or_default())
    }
}

impl PurgeSharing {
    pub(super) fn new(
        (node, redis): (String, Redis),
        sites: Option<(String, String)>,
        links: Links,
        stats: Arc<NodeStats>,
        visits: VisitReader,
    ) -> PurgeSharing {
        let reader = PurgeReader::default();
        let clock = SharedClock::default();
        let trimming = HashMap::new();
        PurgeSharing { node, redis, links, stats, visits, reader, sites, clock, trimming, taken: None }
    }

    /// True if Redis answered the last heartbeat of this node, as the Redis of its fleet.
    pub(super) fn is_connected(&self) -> bool {
        self.stats.fleet.connected.load(Ordering::Acquire)
    }

    /// Returns the present time by the clock of Redis, in milliseconds since 1970 UTC. Asks Redis if it has not told it since
    /// the start of the process.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub(super) fn now_ms(&mut self) -> Result<u64, RedisError> {
        let now = Instant::now();
        if let Some(now_ms) = self.clock.now_ms(now) {
            return Ok(now_ms);
        }
        let (_, redis_ms) = self.redis.count_purge_fields(REDIS_TIMEOUT)?;
        self.clock.heard = Some((redis_ms, now));
        Ok(redis_ms)
    }

    /// Returns the time up to which purges and selections may be too old to be kept, in milliseconds since 1970 UTC.
    pub(super) fn forget_ms(&self) -> u64 {
        self.clock.forget_ms(unix_ms(), Instant::now())
    }

    /// Exchanges purges. Returns true if there is a new one to carry out.
    pub(super) fn share(&mut self, registry: &Mutex<PurgeRegistry>) -> bool {
        if !self.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            // It may be the Redis of another fleet.
            return false;
        }
        self.try_share(registry).unwrap_or_else(|error| {
            self.reader.restart();
            match error {
                // An unreachable Redis has alarms of its own in the fleet's threads.
                NotShared::Redis(error) => tracing::debug!(%error, "purges cannot be exchanged with other nodes"),
                NotShared::Other(error) => tracing::warn!(%error, "purges cannot be exchanged with other nodes"),
            }
            false
        })
    }

    fn try_share(&mut self, registry: &Mutex<PurgeRegistry>) -> Result<bool, NotShared> {
        if !self.read_on()? {
            // Before the first whole read, this node would put back purges that Redis has.
            return Ok(false);
        }
        let now_ms = self.now_ms()?;
        let has_new = self.take_new(registry, now_ms)?;
        self.put_own(registry, now_ms)?;
        self.confirm(registry)?;
        let members = self.stats.fleet.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        locked(registry).update_fleet(members, &self.reader.shared.done);
        self.confirm_site(registry)?;
        self.complete(registry)?;
        let forget_ms = self.forget_ms();
        locked(registry).forget_old(forget_ms);
        let (old, left) = (self.reader.shared.old(forget_ms), self.reader.left_behind(Instant::now()));
        for id in old.into_iter().chain(left).take(NOTES_AT_ONCE) {
            self.redis.forget_purges(&self.reader.shared.fields_of(id), REDIS_TIMEOUT)?;
            self.reader.forget(id);
        }
        Ok(has_new)
    }

    /// Reads some pieces of the hash of purges, if it may have changed. Returns true if it was read as a whole before.
    fn read_on(&mut self) -> Result<bool, NotShared> {
        let redis_ms = self.reader.read_on(&mut self.redis, REDIS_TIMEOUT)?;
        self.clock.heard = Some((redis_ms, Instant::now()));
        Ok(self.reader.was_read())
    }

    /// Notes which sites have carried a purge out.
    pub(super) fn note_sites(&self, progress: &mut PurgeProgress) {
        let Some((own, other)) = &self.sites else { return };
        let is_done =
            |site: &str| progress.is_complete || self.reader.shared.is_noted(progress.id, PurgeNote::Purged, site);
        let of = |site: &String| PurgeSite { site: site.clone(), is_complete: is_done(site) };
        progress.sites = vec![of(own), of(other)];
    }

    /// Notes the trim of the streams of visits, if it has begun.
    pub(super) fn note_trim(&self, progress: &mut PurgeProgress) {
        progress.step = progress.step.or_else(|| Some(self.trimming.get(&progress.id)?.step(unix_ms())));
    }

    /// Notes the last heartbeat of each silent node that has not carried a purge out.
    pub(super) fn note_silence(&self, nodes: &mut [PurgeNode]) {
        let members = self.stats.fleet.members.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes.iter_mut().filter(|node| !node.is_complete) {
            let member = members.iter().find(|member| member.node == node.node);
            let silent = member.filter(|member| member.heard.elapsed() >= SILENT_TIME && member.beat_ms > 0);
            node.silent_since_ms = silent.map(|member| member.beat_ms);
        }
    }

    /// Takes some of the purges of other nodes, and the next ones with the next exchange.
    fn take_new(&mut self, registry: &Mutex<PurgeRegistry>, now_ms: u64) -> Result<bool, NotShared> {
        let since_ms = kept_since_ms(now_ms);
        let new = {
            let known = locked(registry);
            let is_new = |id: &PurgeId, at_ms: u64| at_ms >= since_ms && !known.all().contains_key(id);
            next_new(&self.reader.shared.at_ms, self.taken, is_new)
        };
        let (mut has_new, mut lost) = (false, Vec::new());
        for id in &new {
            self.taken = Some(*id);
            let list = match SharedList::ask(&mut self.redis, *id, REDIS_TIMEOUT)? {
                SharedList::Readable(list, _) => list,
                SharedList::Lost => {
                    lost.push(*id);
                    continue;
                }
                SharedList::Unreadable => continue,
            };
            tracing::info!(%id, links = list.links.len(), "another node has begun a purge");
            locked(registry).take(*id, list)?;
            has_new = true;
        }
        self.forget_lost(lost)?;
        Ok(has_new)
    }

    /// Removes the numbers of purges whose lists Redis has lost. A list is there before its number, so the nodes that know
    /// such a purge put both back.
    fn forget_lost(&mut self, lost: Vec<PurgeId>) -> Result<(), NotShared> {
        for id in lost {
            self.redis.forget_purges(&[id.to_string()], REDIS_TIMEOUT)?;
            self.reader.shared.at_ms.remove(&id);
        }
        Ok(())
    }

    /// Gives Redis some of the purges that it lacks, once it has the deletions of their links.
    fn put_own(&mut self, registry: &Mutex<PurgeRegistry>, now_ms: u64) -> Result<(), NotShared> {
        let is_lacking = |id: PurgeId| !self.reader.shared.at_ms.contains_key(&id);
        if !locked(registry).has_unshared(is_lacking, now_ms) {
            return Ok(());
        }
        let unsynced: HashSet<Code> = self.links.outbox()?.into_iter().map(|delivery| delivery.code).collect();
        let is_synced = |list: &PurgeList| !list.links.iter().any(|link| unsynced.contains(&link.code));
        let due = locked(registry).unshared(is_lacking, is_synced, now_ms, PUT_AT_ONCE);
        for (id, list) in due {
            self.redis.put_purge(id, list.at_ms, &list.to_json().to_string(), REDIS_TIMEOUT)?;
            self.reader.shared.at_ms.insert(id, list.at_ms);
        }
        Ok(())
    }

    /// Notes in Redis which purges this node has carried out, some at a time.
    fn confirm(&mut self, registry: &Mutex<PurgeRegistry>) -> Result<(), NotShared> {
        let shared = &mut self.reader.shared;
        let is_noted = |id: &PurgeId| shared.done.get(id).is_some_and(|nodes| nodes.contains(&self.node));
        let is_lacking = |id: &PurgeId| shared.at_ms.contains_key(id) && !is_noted(id);
        let erased = locked(registry).ids(|id, entry| entry.stage >= PurgeStage::Erased && is_lacking(&id));
        for id in erased.into_iter().take(NOTES_AT_ONCE) {
            self.redis.note_purged(id, &self.node, REDIS_TIMEOUT)?;
            shared.done.entry(id).or_default().insert(self.node.clone());
        }
        Ok(())
    }

    /// Notes in Redis which purges all nodes of this site have carried out, and which are complete.
    fn confirm_site(&mut self, registry: &Mutex<PurgeRegistry>) -> Result<(), NotShared> {
        if self.sites.is_none() {
            return Ok(());
        }
        let purged = locked(registry).done_everywhere();
        self.note_site(purged, PurgeNote::Purged)?;
        // Redis may have lost a note before the other site has read it.
        let complete = locked(registry).ids(|_, entry| entry.stage == PurgeStage::Complete);
        self.note_site(complete, PurgeNote::Trimmed)
    }

    /// Stores notes of this site that its Redis lacks. Does nothing in a fleet of one site.
    fn note_site(&mut self, ids: Vec<PurgeId>, note: PurgeNote) -> Result<(), NotShared> {
        let Some((own, _)) = &self.sites else { return Ok(()) };
        let shared = &mut self.reader.shared;
        let is_lacking = |id: &PurgeId| shared.at_ms.contains_key(id) && !shared.is_noted(*id, note, own);
        let lacking: Vec<PurgeId> = ids.into_iter().filter(is_lacking).take(NOTES_AT_ONCE).collect();
        for id in lacking {
            self.redis.note_purged_at(id, (note, own.as_str()), REDIS_TIMEOUT)?;
            shared.note(id, note, own);
        }
        Ok(())
    }

    /// True if the other site has this note about a purge, or if there is no other site.
    fn is_noted_elsewhere(&self, id: PurgeId, note: PurgeNote) -> bool {
        self.sites.as_ref().is_none_or(|(_, other)| self.reader.shared.is_noted(id, note, other))
    }

    /// Completes the purges that all nodes have carried out, once the streams of visits are trimmed at both sites.
    fn complete(&mut self, registry: &Mutex<PurgeRegistry>) -> Result<(), NotShared> {
        let erased = locked(registry).ids(|_, entry| entry.stage == PurgeStage::Erased);
        for id in erased {
            if !locked(registry).is_done_everywhere(id) || !self.is_noted_elsewhere(id, PurgeNote::Purged) {
                self.trimming.remove(&id);
                continue;
            }
            let Some(is_last) = self.trim(id)? else { continue };
            if is_last {
                locked(registry).advance(id, PurgeStage::Complete)?;
                self.trimming.remove(&id);
            } else {
                self.note_site(vec![id], PurgeNote::Trimmed)?;
                if self.is_noted_elsewhere(id, PurgeNote::Trimmed) {
                    self.trimming.insert(id, Trimming::begin(true, Instant::now()));
                }
            }
        }
        Ok(())
    }

    /// Works at the trim of the streams of visits for a purge: takes the next step if it is due. Returns
    /// [`Trimming::is_last`] once the entries are removed, and `None` before.
    fn trim(&mut self, id: PurgeId) -> Result<Option<bool>, NotShared> {
        let (is_only, now) = (self.sites.is_none(), Instant::now());
        let trimming = self.trimming.entry(id).or_insert_with(|| Trimming::begin(is_only, now));
        if !trimming.is_due(now) {
            return Ok(None);
        }
        match &mut trimming.stage {
            TrimStage::Crossing => {
                let ends = self.redis.visit_stream_ends(REDIS_TIMEOUT)?;
                trimming.enter(TrimStage::Reading { ends });
                return Ok(None);
            }
            TrimStage::Reading { ends } => {
                let ends = std::mem::take(ends);
                trimming.enter(TrimStage::Folding { log: self.visits.ask_fold(), ends });
                return Ok(None);
            }
            TrimStage::Folding { log, .. } if !self.visits.is_folded(*log) => return Ok(None),
            TrimStage::Folding { ends, .. } => {
                self.redis.trim_visit_streams(ends, REDIS_TIMEOUT)?;
                trimming.enter(TrimStage::Trimmed);
            }
            TrimStage::Trimmed => {}
        }
        Ok(Some(trimming.is_last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_age_by_the_clock_of_redis() {
        let (begun, day_ms) = (Instant::now(), 24 * 3_600 * 1_000);
        let later = begun + Duration::from_secs(2);
        let mut clock = SharedClock::default();
        assert_eq!(
            (clock.now_ms(later), clock.forget_ms(7, later)),
            (None, 0),
            "the clock of this node dates no purge"
        );
        let redis_ms = 100 * day_ms;
        clock.heard = Some((redis_ms, begun));
        let (ahead, behind) = (redis_ms + 30 * day_ms, redis_ms - 30 * day_ms);
        assert_eq!(clock.now_ms(later), Some(redis_ms + 2_000));
        assert_eq!(clock.forget_ms(ahead, later), redis_ms + 2_000, "the clock of this node removes nothing");
        assert_eq!(clock.forget_ms(behind, later), behind, "nor does that of Redis");
    }

    #[test]
    fn new_purges_are_taken_some_at_a_time() {
        let most = TAKEN_AT_ONCE as u64;
        let shared: BTreeMap<PurgeId, u64> = (0..3 * most).map(|number| (PurgeId(number), number)).collect();
        let ids = |numbers: std::ops::Range<u64>| numbers.map(PurgeId).collect::<Vec<PurgeId>>();
        let all = |_: &PurgeId, _: u64| true;
        assert_eq!(next_new(&shared, None, all), ids(0..most));
        assert_eq!(
            next_new(&shared, Some(PurgeId(most - 1)), all),
            ids(most..2 * most),
            "none of the first can be read"
        );
        let around = [ids(3 * most - 2..3 * most), ids(0..most - 2)].concat();
        assert_eq!(next_new(&shared, Some(PurgeId(3 * most - 3)), all), around);
        let are_late = |_: &PurgeId, at_ms: u64| at_ms >= 3 * most - 1;
        for taken in [None, Some(PurgeId(5)), Some(PurgeId(3 * most - 1)), Some(PurgeId(9 * most))] {
            assert_eq!(next_new(&shared, taken, are_late), [PurgeId(3 * most - 1)]);
        }
        assert_eq!(next_new(&shared, None, |_, _| false), []);
    }

    #[test]
    fn ends_of_streams_are_read_once_visits_have_crossed() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut of_sites = Trimming::begin(false, begun);
        assert!(!of_sites.is_due(at(9)), "an entry that arrives later would stay");
        assert!(of_sites.is_due(at(10)));
        (of_sites.stage, of_sites.since) = (TrimStage::Reading { ends: Vec::new() }, at(10));
        assert!(!of_sites.is_due(at(14)), "nodes may not have read them");
        assert!(of_sites.is_due(at(15)));
        assert!(Trimming::begin(true, begun).is_due(begun), "no visits cross any more");
    }

    #[test]
    fn clients_hear_what_a_trim_waits_for() {
        let mut trimming = Trimming::begin(false, Instant::now());
        assert!(trimming.step(9_000).what.contains("cross between the sites"));
        trimming.enter(TrimStage::Trimmed);
        trimming.since = trimming.since.checked_sub(Duration::from_secs(7)).unwrap();
        let PurgeStep { what, since_ms } = trimming.step(9_000);
        assert!(what.contains("the other site has trimmed"), "{what}");
        assert!(since_ms <= 2_000, "{since_ms}");
    }
}
