//! The thread that carries purges out on this node, one after another or several at once. It takes purged links out of
//!
//! 1. the streams of changes in Redis, and the numbers of granted visits there,
//! 2. the visit log and the count log,
//! 3. the image of the map and the files of the search index,
//! 4. the edits, events, dead letters and idempotency keys of the store,
//! 5. the files of the store, which still contain what commits have removed.
//!
//! Each step can be repeated, so a purge that failed or was interrupted starts over.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::registry::{PurgeRegistry, PurgeStage, locked};
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::bridge::visit_log::{VisitLogQueue, VisitLogRequest, VisitPurge};
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::map_image::ImageHold;
use crate::services::replication::redis::{DataIdentity, Redis, RedisError};
use crate::services::search::Catalog;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::visit_log::purges::has_files;
use crate::services::visits::VisitReader;
use carom_limits::{PURGE_LINKS_MAX, VISIT_DELETIONS_MAX};
use carom_model::purge::{PurgeId, PurgeList, PurgedLink, visits_until};
use carom_model::replication::Partition;
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Links that are purged at once. The visit log has room for the deletions of twice as many.
const LINKS_AT_ONCE: usize = VISIT_DELETIONS_MAX / 2;

const _: () = assert!(PURGE_LINKS_MAX <= LINKS_AT_ONCE, "a purge would never be carried out");

/// Bytes that a new journal takes beside a compaction.
const WIPE_BYTES: u64 = 128 << 20;

/// Interval between two looks at whether a step is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval between two looks for purges. A request wakes the thread earlier.
const REST: Duration = Duration::from_secs(1);

/// Pause after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Time within which the writer carries out a delete. A purge leaves out the links that still exist then; in a fleet, once
/// Redis answers.
const SETTLE_TIME: Duration = Duration::from_secs(15);

/// Time after which no search reads the texts of a purged link that it had found before their removal.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// Timeout of a request to Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why an attempt ended early.
#[derive(Debug)]
enum NotErased {
    /// The node is shutting down.
    Stopping,
    Failed(String),
}

impl From<StoreError> for NotErased {
    fn from(error: StoreError) -> NotErased {
        NotErased::Failed(error.to_string())
    }
}

impl From<RedisError> for NotErased {
    fn from(error: RedisError) -> NotErased {
        NotErased::Failed(error.to_string())
    }
}

impl From<std::io::Error> for NotErased {
    fn from(error: std::io::Error) -> NotErased {
        NotErased::Failed(error.to_string())
    }
}

/// Holds back images of the map until it is dropped.
struct HeldImage<'h>(&'h ImageHold);

impl<'h> HeldImage<'h> {
    fn hold(image: &'h ImageHold) -> HeldImage<'h> {
        image.hold();
        HeldImage(image)
    }
}

impl Drop for HeldImage<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Signs that Redis may be back with older data, and so with purged links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LossSigns {
    /// The number of positions in the streams that this node has lost.
    gaps: u64,
    /// The time of the last disturbance that other threads have noticed, in milliseconds since boot.
    disturbed_ms: u64,
    /// The time of the last disturbance of the connection of this thread.
    own: Option<Instant>,
}

/// The knowledge of whether ended purges have to be carried out again in Redis.
#[derive(Debug, Default)]
pub(super) struct RedisLosses {
    /// The signs at the last look. A comparison that they cause may not be counted yet.
    seen: LossSigns,
    /// The signs after which ended purges were carried out again.
    purged: LossSigns,
    /// The identity of the data in which ended purges were carried out; `None` while unknown.
    data: Option<DataIdentity>,
    /// True if this node has asked for the identity of the data since its start.
    was_asked: bool,
}

impl RedisLosses {
    /// Takes the present signs, and the number of partitions that are still compared. Returns true if ended purges may have
    /// to be carried out again: by then, Redis has all deletions.
    fn is_due(&mut self, signs: LossSigns, comparing: u64) -> bool {
        let is_new = std::mem::replace(&mut self.seen, signs) != signs;
        !is_new && signs != self.purged && comparing == 0
    }

    /// True if Redis has the data from before in spite of these signs, so that ended purges need not be carried out again.
    fn is_intact(&self, signs: LossSigns, present: Option<&DataIdentity>) -> bool {
        signs.gaps == self.purged.gaps && present.is_some() && present == self.data.as_ref()
    }

    /// True if this node should ask for the identity of the data, which it does once, before any disturbance.
    fn is_first_look(&mut self, signs: LossSigns) -> bool {
        !std::mem::replace(&mut self.was_asked, true) && signs.disturbed_ms == 0 && signs.own.is_none()
    }
}

/// The state of the thread.
pub(super) struct Eraser {
    pub(super) registry: Arc<Mutex<PurgeRegistry>>,
    pub(super) data_dir: PathBuf,
    pub(super) links: Links,
    pub(super) catalog: Arc<Catalog>,
    pub(super) image: Option<Arc<ImageHold>>,
    pub(super) visits: VisitReader,
    pub(super) visit_log: Option<VisitLogQueue>,
    pub(super) redis: Option<Redis>,
    pub(super) view: Option<Arc<FleetView>>,
    pub(super) losses: RedisLosses,
    pub(super) stats: Arc<NodeStats>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Eraser {
    /// Carries purges out until the node stops.
    pub(super) fn run(mut self) {
        while !self.is_stopping() {
            let done = self.turn();
            locked(&self.registry).set_step(None, unix_ms());
            let pause = match done {
                Ok(()) => REST,
                Err(NotErased::Stopping) => return,
                Err(NotErased::Failed(why)) => {
                    tracing::warn!(%why, "a purge could not be carried out; carom retries");
                    let mut registry = locked(&self.registry);
                    let waiting = registry.ids(|_, entry| matches!(entry.stage, PurgeStage::Due | PurgeStage::Settled));
                    waiting.iter().for_each(|id| registry.fail(*id, &why));
                    RETRY_AFTER
                }
            };
            std::thread::park_timeout(pause);
        }
    }

    /// Notes what this node works at, or waits for.
    fn step(&self, what: &'static str) {
        locked(&self.registry).set_step(Some(what), unix_ms());
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits until `is_done` returns true.
    ///
    /// # Errors
    /// The error of `is_done`, or [`NotErased::Stopping`] if the node shuts down.
    fn wait(&self, mut is_done: impl FnMut() -> Result<bool, NotErased>) -> Result<(), NotErased> {
        while !is_done()? {
            if self.is_stopping() {
                return Err(NotErased::Stopping);
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(())
    }

    /// Carries out the purges whose links are all deleted on this node.
    fn turn(&mut self) -> Result<(), NotErased> {
        self.purge_redis_again();
        let due = locked(&self.registry).at_stage(PurgeStage::Due);
        for (id, list) in due {
            self.settle(id, &list)?;
        }
        let settled = locked(&self.registry).at_stage(PurgeStage::Settled);
        if settled.is_empty() {
            return Ok(());
        }
        self.follow()?;
        let (mut ready, mut links): (Vec<PurgeId>, Vec<PurgedLink>) = (Vec::new(), Vec::new());
        let mut requested = HashMap::new();
        for (id, list) in settled {
            let has_room = links.len() + list.links.len() <= LINKS_AT_ONCE;
            if has_room && !self.awaits_deletion(&list)? {
                ready.push(id);
                list.links.iter().for_each(|link| note_request(&mut requested, link.code, list.at_ms));
                links.extend(list.links);
            }
        }
        if !links.is_empty() {
            let begun = Instant::now();
            self.erase(&links, &requested)?;
            tracing::info!(links = links.len(), seconds = begun.elapsed().as_secs_f64(), "purged deleted links");
        }
        for id in ready {
            locked(&self.registry).advance(id, PurgeStage::Erased)?;
        }
        Ok(())
    }

    /// Returns the links of a purge that still exist. A later link may have the date of a purged one, after an import. Its
    /// claim tells them apart, or the deletion since the request where links have no claims.
    fn remaining(&self, list: &PurgeList) -> Result<Vec<PurgedLink>, NotErased> {
        let mut remaining = Vec::new();
        for link in &list.links {
            let is_gone = self.links.is_gone(link)?
                || (!self.is_identified_by_claim(link) && self.links.last_end_ms(&link.code)? >= Some(list.at_ms));
            if !is_gone {
                remaining.push(*link);
            }
        }
        Ok(remaining)
    }

    /// True if the claim of a purged link identifies it among all links that its code has had.
    fn is_identified_by_claim(&self, link: &PurgedLink) -> bool {
        link.claim.is_some_and(|claim| claim != 0 || self.redis.is_some())
    }

    /// True if a change of another node that deletes a link of a settled purge is on its way. A node that is alone has
    /// settled the purge on the links that were deleted, so what exists there is another link.
    fn awaits_deletion(&self, list: &PurgeList) -> Result<bool, NotErased> {
        let remaining = self.remaining(list)?;
        Ok(remaining.iter().any(|link| self.redis.is_some() || self.is_identified_by_claim(link)))
    }

    /// Leaves out the links of a purge that were not deleted after all.
    fn settle(&self, id: PurgeId, list: &PurgeList) -> Result<(), NotErased> {
        let begun = Instant::now();
        self.step("waiting for the deletion of the links");
        self.wait(|| Ok(begun.elapsed() >= SETTLE_TIME || self.remaining(list)?.is_empty()))?;
        if !self.remaining(list)?.is_empty() {
            // Redis may yet carry out a delete that it has not answered. A reading of the streams may come just before that
            // delete. The next reading begins after the answer to the first one, and finds it.
            self.follow()?;
            self.follow()?;
        }
        let remaining = self.remaining(list)?;
        if !remaining.is_empty() {
            tracing::warn!(%id, links = remaining.len(), "a purge leaves out links that were not deleted");
        }
        let gone = list.links.iter().copied().filter(|link| !remaining.contains(link)).collect();
        Ok(locked(&self.registry).settle(id, gone)?)
    }

    /// Waits until this node has every change that is in the streams now. Otherwise a link that another node has deleted
    /// might reach this node after the purge, and leave traces here.
    fn follow(&self) -> Result<(), NotErased> {
        let Some(view) = &self.view else { return Ok(()) };
        let now = since_boot();
        self.step("reading the changes of the fleet from Redis");
        self.wait(|| Ok(view.has_followed(now)))
    }

    /// Takes links out of everything. `requested` has the instant of the request for each code.
    fn erase(&mut self, links: &[PurgedLink], requested: &HashMap<Code, u64>) -> Result<(), NotErased> {
        self.step("removing the links from the streams in Redis");
        self.purge_redis(links)?;
        let counts = self.visits.ask_fold();
        self.step("waiting for the visit log");
        let logged = self.purge_visits(links, requested)?;
        self.step("waiting for the search index");
        self.wait(|| Ok(self.catalog.can_forget()))?;
        let texts = self.catalog.forget_links(links);
        let held = self.image.as_deref().map(HeldImage::hold);
        self.step("storing the counts of visits");
        self.wait(|| Ok(self.visits.is_folded(counts)))?;
        self.step("removing destinations from the search index");
        self.wait(|| Ok(self.catalog.has_forgotten(texts)))?;
        self.step("removing the image of the links in memory");
        self.wait(|| Ok(held.as_ref().is_none_or(|held| held.0.is_removed())))?;
        self.step("removing visits from the visit log, and sending those that Redis lacks");
        self.wait(|| has_ended(logged.as_ref()))?;
        self.step("waiting for searches that read the destinations");
        self.forget_searched_texts()?;
        self.step("removing changes and events from the store");
        // After the visit log, which may have had events in its queue.
        self.links.purge_entries(links)?;
        self.step("compacting the store, after the lists and exports that began before");
        self.wipe()
    }

    /// Removes entries with the links from the streams of changes, and the numbers of their granted visits.
    fn purge_redis(&mut self, links: &[PurgedLink]) -> Result<(), NotErased> {
        let Some(redis) = &mut self.redis else { return Ok(()) };
        if !self.stats.fleet.same_code_secret.load(Ordering::Acquire) {
            return Err(NotErased::Failed("Redis belongs to another fleet, or was not reached yet".to_owned()));
        }
        let mut codes: HashMap<Partition, HashSet<Code>> = HashMap::new();
        for link in links {
            codes.entry(Partition::of(&link.code)).or_default().insert(link.code);
        }
        for (partition, codes) in codes {
            if self.stop.load(Ordering::Acquire) {
                return Err(NotErased::Stopping);
            }
            redis.purge_stream(partition, &codes, REDIS_TIMEOUT)?;
        }
        let unused = with_unused_grants(links, |code| self.links.date_and_claim(code));
        Ok(redis.forget_grants(&unused, REDIS_TIMEOUT)?)
    }

    /// Takes the links of ended purges out of Redis once more, if it may be back with data from before. A lost connection
    /// alone does not change the data. After an error, the next turn tries again.
    fn purge_redis_again(&mut self) {
        let (fleet, Some(view), Some(redis)) = (&self.stats.fleet, &self.view, &mut self.redis) else { return };
        if !fleet.connected.load(Ordering::Acquire) {
            return;
        }
        let signs = LossSigns { gaps: fleet.gaps.get(), disturbed_ms: view.disturbed_ms(), own: redis.disturbed() };
        if self.losses.is_first_look(signs) {
            self.losses.data = redis.data_identity(REDIS_TIMEOUT);
        }
        if !self.losses.is_due(signs, fleet.comparing.get()) {
            return;
        }
        // Before the removal: another loss meanwhile is one more sign.
        let data = redis.data_identity(REDIS_TIMEOUT);
        if !self.losses.is_intact(signs, data.as_ref()) {
            let links: Vec<PurgedLink> =
                locked(&self.registry).erased().into_iter().flat_map(|list| list.links).collect();
            self.step("removing purged links from Redis, which may be back with older data");
            match self.purge_redis(&links) {
                Ok(()) => {}
                Err(NotErased::Stopping) => return,
                Err(error) => return tracing::debug!(?error, "Redis may have purged links again"),
            }
        }
        (self.losses.purged, self.losses.data) = (signs, data);
    }

    /// Asks the visit log to remove the visits of the links. Returns the channel for the end; `None` without a log.
    fn purge_visits(
        &self,
        links: &[PurgedLink],
        requested: &HashMap<Code, u64>,
    ) -> Result<Option<Receiver<Result<(), &'static str>>>, NotErased> {
        let Some(queue) = &self.visit_log else {
            // The folder may have visits from a time when the log was on.
            if !has_files(&self.data_dir) {
                return Ok(None);
            }
            let what = "the visit log is off, but the folder visit-log of the data directory has visits; remove that folder, or set visits.log";
            return Err(NotErased::Failed(what.to_owned()));
        };
        let (ended, end) = sync_channel(1);
        let mut codes = Vec::new();
        // A later link of the same code keeps its visits.
        for (code, bound_ms) in self.links.purge_bounds(links)? {
            // The purged link existed at least until the request.
            let requested_ms = requested.get(&code).copied().unwrap_or(0);
            let ended_ms = self.links.last_end_ms(&code)?.unwrap_or(0).max(requested_ms);
            codes.push((code, visits_until(bound_ms, ended_ms, unix_ms())));
        }
        let mut request = Some(VisitLogRequest::Purge(VisitPurge { codes, ended }));
        self.wait(|| {
            let Some(unsent) = request.take() else { return Ok(true) };
            match queue.try_send(unsent) {
                Ok(()) => Ok(true),
                Err(TrySendError::Full(unsent)) => {
                    request = Some(unsent);
                    Ok(false)
                }
                Err(TrySendError::Disconnected(_)) => Err(NotErased::Stopping),
            }
        })?;
        Ok(Some(end))
    }

    /// Frees the ranges of the text file that searches were reading.
    fn forget_searched_texts(&self) -> Result<(), NotErased> {
        let begun = Instant::now();
        self.wait(|| Ok(begun.elapsed() >= SEARCH_TIME))?;
        let texts = self.catalog.forget_links(&[]);
        self.wait(|| Ok(self.catalog.has_forgotten(texts)))?;
        if self.catalog.has_texts_left() {
            let what = "the disk refuses to remove texts from search.texts or search.sections in the data directory; repair the disk, and restart the node";
            return Err(NotErased::Failed(what.to_owned()));
        }
        Ok(())
    }

    /// Removes what was deleted from the files of the store. A compaction cannot be interrupted, so it runs on a thread
    /// that a shutdown leaves behind: it loses nothing when the process ends.
    fn wipe(&self) -> Result<(), NotErased> {
        // A full disk would end all writes until a restart.
        let expected = self.links.disk_bytes() + WIPE_BYTES;
        let space = DiskGuard::new(self.data_dir.clone()).space()?;
        if space.free < space.reserve() + expected {
            let what =
                format!("the disk has too little space to compact the store, which takes up to {} MiB", expected >> 20);
            return Err(NotErased::Failed(what));
        }
        let (links, stop) = (self.links.clone(), Arc::clone(&self.stop));
        let run = move || links.wipe_removed(|| stop.load(Ordering::Acquire));
        let wiping = threads::start(Priority::Locking, "purge-store", run)?;
        self.wait(|| Ok(wiping.is_finished()))?;
        let is_done = wiping.join().expect("panics abort")?;
        if is_done { Ok(()) } else { Err(NotErased::Stopping) }
    }
}

/// Notes the instant of a request to purge a link of a code; the latest counts.
fn note_request(requested: &mut HashMap<Code, u64>, code: Code, at_ms: u64) {
    let latest = requested.entry(code).or_insert(at_ms);
    *latest = at_ms.max(*latest);
}

/// Returns the links whose numbers of granted visits no present link has. Links from outside a fleet all have the
/// claim 0, so a link that was created again shares the number. `present` returns the date and the claim of the link of
/// a code.
fn with_unused_grants(
    links: &[PurgedLink],
    present: impl Fn(&Code) -> Result<Option<(u64, u64)>, StoreError>,
) -> Vec<PurgedLink> {
    // A record that cannot be read may be of such a link.
    let is_unused = |link: &&PurgedLink| {
        present(&link.code).is_ok_and(|present| present.is_none_or(|(_, claim)| link.claim != Some(claim)))
    };
    links.iter().filter(is_unused).copied().collect()
}

/// True once the visit log has removed the visits, and always on a node without a visit log.
fn has_ended(end: Option<&Receiver<Result<(), &'static str>>>) -> Result<bool, NotErased> {
    match end.map(Receiver::try_recv) {
        None => Ok(true),
        Some(Ok(result)) => result.map(|()| true).map_err(|why| NotErased::Failed(format!("the visit log: {why}"))),
        Some(Err(TryRecvError::Empty)) => Ok(false),
        Some(Err(TryRecvError::Disconnected)) => Err(NotErased::Stopping),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_were_created_again_keep_their_grants() {
        let purged = ["gone", "again", "claimed", "damaged"].map(|slug| {
            let code = Code::parse(slug.as_bytes()).unwrap();
            PurgedLink { code, created_ms: 5, claim: Some(0) }
        });
        let present = |code: &Code| match &*code.to_string() {
            "gone" => Ok(None),
            "again" => Ok(Some((9, 0))),
            "claimed" => Ok(Some((9, 7))),
            _ => Err(StoreError::Failed("unreadable".to_owned())),
        };
        assert_eq!(with_unused_grants(&purged, present), [purged[0], purged[2]]);
    }

    #[test]
    fn ended_purges_run_again_once_redis_has_all_deletions() {
        let signs = |gaps, disturbed_ms| LossSigns { gaps, disturbed_ms, own: None };
        let mut losses = RedisLosses::default();
        assert!(!losses.is_due(signs(0, 0), 0), "nothing was lost");
        assert!(!losses.is_due(signs(2, 0), 0), "the comparison is about to begin");
        assert!(!losses.is_due(signs(2, 0), 1));
        assert!(losses.is_due(signs(2, 0), 0));
        assert!(losses.is_due(signs(2, 0), 0), "the last attempt failed");
        losses.purged = signs(2, 0);
        assert!(!losses.is_due(signs(2, 0), 0));
        assert!(!losses.is_due(signs(2, 9), 0));
        assert!(losses.is_due(signs(2, 9), 0), "a new master may lack the removal");
        let own = LossSigns { own: Some(Instant::now()), ..signs(2, 9) };
        losses.purged = signs(2, 9);
        assert!(!losses.is_due(own, 0));
        assert!(losses.is_due(own, 0), "this thread may have had a connection to a master that was replaced");
    }

    #[test]
    fn lost_connections_alone_purge_nothing_again() {
        let [known, other] = ["a", "b"].map(|of| Some(DataIdentity::named(of)));
        let calm = LossSigns::default();
        let mut losses = RedisLosses::default();
        assert!(losses.is_first_look(calm), "the identity from before the first loss counts");
        assert!(!losses.is_first_look(calm), "a server that does not tell it is asked once");
        losses.data.clone_from(&known);
        let disturbed = LossSigns { disturbed_ms: 9, ..calm };
        assert!(losses.is_intact(disturbed, known.as_ref()));
        assert!(!losses.is_intact(disturbed, other.as_ref()), "another server answers, or it was started again");
        assert!(!losses.is_intact(disturbed, None), "the server does not tell it");
        assert!(!losses.is_intact(LossSigns { gaps: 1, ..disturbed }, known.as_ref()), "it was emptied");
        let unknown = RedisLosses::default();
        assert!(!unknown.is_intact(disturbed, known.as_ref()) && !unknown.is_intact(disturbed, None));
        let mut late = RedisLosses::default();
        assert!(!late.is_first_look(disturbed), "the data may be other data already");
    }
}
