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

use super::home::{PurgeHome, may_send};
use super::losses::{LossSigns, RedisLosses};
use super::registry::{PurgeRegistry, PurgeStage, locked};
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::bridge::visit_log::{VisitLogQueue, VisitLogRequest, VisitPurge};
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::map_image::ImageHold;
use crate::services::replication::redis::{Redis, RedisError};
use crate::services::search::Catalog;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::visit_log::purges::has_files;
use crate::services::visits::VisitReader;
use carom_limits::{PURGE_LINKS_MAX, PURGES_OPEN_MAX, VISIT_DELETIONS_MAX};
use carom_model::link::LinkIdentity;
use carom_model::purge::{PurgeBounds, PurgeId, PurgeList, PurgedLink, visits_until};
use carom_model::replication::Partition;
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Links that are purged at once with a visit log, which has room for the deletions of twice as many.
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
    /// The shared home of the links; `None` if this node stores all links.
    pub(super) home: Option<PurgeHome>,
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
                    for id in waiting {
                        registry.fail(id, &why);
                    }
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
            let result = self.settle(id, &list);
            self.unless_failed(id, result)?;
        }
        let settled = locked(&self.registry).at_stage(PurgeStage::Settled);
        if settled.is_empty() {
            return Ok(());
        }
        // Before the changes are read: a comparison that ends meanwhile may still be in the queue of the writer.
        let is_compared = self.stats.fleet.comparing.get() == 0;
        self.follow()?;
        let (mut ready, mut links): (Vec<PurgeId>, Vec<PurgedLink>) = (Vec::new(), Vec::new());
        let mut known_until = HashMap::new();
        for (id, list) in settled {
            if links.len() + list.links.len() > self.links_at_once() {
                continue;
            }
            let awaits = self.awaits_deletion(&list, is_compared);
            match self.unless_failed(id, awaits)? {
                Some(false) => {
                    ready.push(id);
                    list.links.iter().for_each(|link| note_known(&mut known_until, link, list.at_ms));
                    links.extend(list.links);
                }
                Some(true) => {
                    locked(&self.registry).forget_failure(id);
                    // A failover may have lost the deletion, which no node sends to a shared home again.
                    let again = self.delete_again(&list.links);
                    self.unless_failed(id, again)?;
                }
                None => {}
            }
        }
        if !links.is_empty() {
            let begun = Instant::now();
            self.erase(&links, &known_until)?;
            tracing::info!(links = links.len(), seconds = begun.elapsed().as_secs_f64(), "purged deleted links");
        }
        for id in ready {
            locked(&self.registry).advance(id, PurgeStage::Erased)?;
        }
        Ok(())
    }

    /// Returns the most links that are purged at once. The visit log bounds them. Otherwise all open purges share one pass over
    /// the streams in Redis and one compaction.
    fn links_at_once(&self) -> usize {
        if self.visit_log.is_some() { LINKS_AT_ONCE } else { PURGES_OPEN_MAX * PURGE_LINKS_MAX }
    }

    /// Returns the result of a step of one purge, or notes why it has failed and returns `None`. Other purges go on: the
    /// reason may be one damaged record.
    ///
    /// # Errors
    /// [`NotErased::Stopping`].
    fn unless_failed<T>(&self, id: PurgeId, result: Result<T, NotErased>) -> Result<Option<T>, NotErased> {
        if self.is_stopping() {
            return Err(NotErased::Stopping);
        }
        match result {
            Ok(done) => Ok(Some(done)),
            Err(NotErased::Failed(why)) => {
                if locked(&self.registry).fail(id, &why) {
                    tracing::warn!(%id, %why, "a purge could not be carried out; carom retries");
                }
                Ok(None)
            }
            Err(NotErased::Stopping) => Err(NotErased::Stopping),
        }
    }

    /// Returns the links of a purge that still exist. `knows_ends` is true if this node has the ends of all links that had
    /// ended before the request.
    fn remaining(&self, list: &PurgeList, knows_ends: bool) -> Result<Vec<PurgedLink>, NotErased> {
        let mut remaining = Vec::new();
        for link in &list.links {
            if !self.links.is_gone(link)? && !self.is_imported_again(link, list.at_ms, knows_ends)? {
                remaining.push(*link);
            }
        }
        if let Some(home) = &self.home {
            let in_home = home.remaining(&list.links)?;
            let more: Vec<PurgedLink> = in_home.into_iter().filter(|link| !remaining.contains(link)).collect();
            remaining.extend(more);
        }
        Ok(remaining)
    }

    /// True if the present link with the code and the date of a purged one is a later link, which an import has given this
    /// date. The claim of the purged link tells the two apart; without one, its end does.
    fn is_imported_again(&self, link: &PurgedLink, at_ms: u64, knows_ends: bool) -> Result<bool, StoreError> {
        if self.is_identified_by_claim(link) {
            return Ok(false);
        }
        // The node of the request had seen the end of such a link, which may have left no trace in the history.
        let has_ended = knows_ends && link.ended_ms.is_some();
        Ok(has_ended || self.links.last_end_ms(&link.code)? >= Some(at_ms))
    }

    /// True if the claim of a purged link identifies it among all links that its code has had.
    fn is_identified_by_claim(&self, link: &PurgedLink) -> bool {
        link.claim.is_some_and(|claim| claim != 0 || self.redis.is_some())
    }

    /// True if a change of another node that deletes a link of a settled purge is on its way. A node that is alone has
    /// settled the purge on the links that were deleted, so what exists there is another link. `is_compared` is true if no
    /// partition has to be compared with Redis.
    fn awaits_deletion(&self, list: &PurgeList, is_compared: bool) -> Result<bool, NotErased> {
        let remaining = self.remaining(list, is_compared)?;
        Ok(remaining.iter().any(|link| self.redis.is_some() || self.is_identified_by_claim(link)))
    }

    /// Leaves out the links of a purge that were not deleted after all.
    fn settle(&self, id: PurgeId, list: &PurgeList) -> Result<(), NotErased> {
        let begun = Instant::now();
        self.step("waiting for the deletion of the links");
        self.wait(|| Ok(begun.elapsed() >= SETTLE_TIME || self.remaining(list, true)?.is_empty()))?;
        if !self.remaining(list, true)?.is_empty() {
            // Redis may yet carry out a delete that it has not answered. A reading of the streams may come just before that
            // delete. The next reading begins after the answer to the first one, and finds it.
            self.follow()?;
            self.follow()?;
        }
        let remaining = self.remaining(list, true)?;
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

    /// Takes links out of everything. `known_until` has the last instant at which a purged link of each code is known.
    fn erase(&mut self, links: &[PurgedLink], known_until: &HashMap<Code, u64>) -> Result<(), NotErased> {
        self.step("removing the links from the streams in Redis");
        self.purge_redis(links)?;
        self.end_visits(links)?;
        let counts = self.visits.ask_fold();
        self.step("waiting for the visit log");
        let logged = self.purge_visits(links, known_until)?;
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
        self.links.purge_entries_before(links, || self.bounds(links))?;
        self.step("compacting the store, after the lists and exports that began before");
        self.wipe()
    }

    /// Returns the instants before which all data of purged codes belongs to deleted links.
    fn bounds(&self, links: &[PurgedLink]) -> Result<PurgeBounds, NotErased> {
        let stored = self.links.purge_bounds(links)?;
        let Some(home) = &self.home else { return Ok(stored) };
        Ok(home.bounds(links, stored)?)
    }

    /// Ends the visits of links in a shared home. Elsewhere, the writer has ended them together with the links.
    fn end_visits(&self, links: &[PurgedLink]) -> Result<(), NotErased> {
        let Some(home) = &self.home else { return Ok(()) };
        let ended = home.ended(links)?;
        let mut batch = self.links.batch();
        ended.iter().for_each(|ended| batch.end_visits(ended));
        self.links.commit(batch)?;
        home.drop_visits(ended);
        Ok(())
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
        let unused = match &self.home {
            None => with_unused_grants(links, |code| self.links.link_identity(code).ok()),
            Some(home) => {
                let states = home.states(links)?;
                with_unused_grants(links, |code| states[code].link())
            }
        };
        Ok(redis.forget_grants(&unused, REDIS_TIMEOUT)?)
    }

    /// Takes the links of ended purges out of Redis once more, if it may be back with data from before. A lost connection
    /// alone does not change the data. After an error, the next turn tries again.
    fn purge_redis_again(&mut self) {
        let (fleet, Some(view), Some(redis)) = (&self.stats.fleet, &self.view, &mut self.redis) else { return };
        if !fleet.connected.load(Ordering::Acquire) {
            return;
        }
        let signs =
            LossSigns { gaps: fleet.gaps.get(), disturbed_ms: view.disturbed_ms(), own: redis.last_disturbance() };
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
            if self.home.is_some() && may_send(&self.links, &links) {
                return;
            }
            self.step("removing purged links from Redis, which may be back with older data");
            match self.delete_again(&links).and_then(|()| self.purge_redis(&links)) {
                Ok(()) => {}
                Err(NotErased::Stopping) => return,
                Err(error) => return tracing::debug!(?error, "Redis may have purged links again"),
            }
        }
        (self.losses.purged, self.losses.data) = (signs, data);
    }

    /// Deletes purged links that are back in a shared home. A node that stores all links compares them with Redis instead.
    fn delete_again(&self, links: &[PurgedLink]) -> Result<(), NotErased> {
        let Some(home) = &self.home else { return Ok(()) };
        let deleted = home.delete_again(links, unix_ms())?;
        if deleted > 0 {
            tracing::warn!(links = deleted, "Redis came back with purged links, which are deleted again");
        }
        Ok(())
    }

    /// Asks the visit log to remove the visits of the links. Returns the channel for the end; `None` without a log.
    fn purge_visits(
        &self,
        links: &[PurgedLink],
        known_until: &HashMap<Code, u64>,
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
            let known_ms = known_until.get(&code).copied().unwrap_or(0);
            let ended_ms = self.links.last_end_ms(&code)?.unwrap_or(0).max(known_ms);
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

/// Notes the last instant at which a purged link is known; the latest of each code counts. A link that the request of
/// `at_ms` has deleted existed at least until then. One that was deleted before has an earlier end, because the visits since
/// then may be those of the next link.
fn note_known(known_until: &mut HashMap<Code, u64>, link: &PurgedLink, at_ms: u64) {
    let known_ms = link.ended_ms.map_or(at_ms, |ended_ms| ended_ms.min(at_ms));
    let latest = known_until.entry(link.code).or_insert(known_ms);
    *latest = known_ms.max(*latest);
}

/// Returns the links whose numbers of granted visits no present link has. Links from outside a fleet all have the
/// claim 0, so a link that was created again shares the number. `present` returns the link of a code, if any; `None` for
/// a state that cannot be read, which may be of such a link.
fn with_unused_grants(
    links: &[PurgedLink],
    present: impl Fn(&Code) -> Option<Option<LinkIdentity>>,
) -> Vec<PurgedLink> {
    let is_unused = |link: &&PurgedLink| {
        present(&link.code).is_some_and(|present| present.is_none_or(|present| link.claim != Some(present.claim)))
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
            PurgedLink { code, created_ms: 5, claim: Some(0), ended_ms: None }
        });
        let present = |code: &Code| match &*code.to_string() {
            "gone" => Some(None),
            "again" => Some(Some(LinkIdentity { created_ms: 9, claim: 0 })),
            "claimed" => Some(Some(LinkIdentity { created_ms: 9, claim: 7 })),
            _ => None,
        };
        assert_eq!(with_unused_grants(&purged, present), [purged[0], purged[2]]);
    }

    #[test]
    fn link_deleted_before_is_known_until_its_end() {
        let [code, other] = ["a", "b"].map(|slug| Code::parse(slug.as_bytes()).unwrap());
        let before = |ended_ms| PurgedLink { code, created_ms: 5, claim: Some(7), ended_ms };
        let mut known = HashMap::new();
        note_known(&mut known, &before(Some(8)), 100);
        assert_eq!(known[&code], 8, "the next link keeps its visits up to the request");
        note_known(&mut known, &before(Some(6)), 100);
        note_known(&mut known, &PurgedLink { code: other, ..before(None) }, 100);
        assert_eq!((known[&code], known[&other]), (8, 100));
        note_known(&mut known, &before(None), 90);
        assert_eq!(known[&code], 90);
        note_known(&mut known, &before(Some(999)), 100);
        assert_eq!(known[&code], 100, "the clock of another node is ahead");
    }
}
