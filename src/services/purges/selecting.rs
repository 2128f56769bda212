//! The thread that looks for the links of selections in a shared home. No node has an index of these links, so the thread
//! reads the states of all codes in Redis, and compares each link with the selection. First, it waits until Redis has the links
//! that nodes have acknowledged without it, and looks for links that were deleted before (`deleted`).
//!
//! The thread reads some codes at a time, with a pause after each piece, so that redirects wait for at most a fraction of a
//! millisecond. It deletes the links that it finds, about a thousand together, with a purge that begins before their
//! deletion. Then it stores its place. After a crash, a search waits until the interrupted purge has settled, counts the links
//! that this purge has deleted, and continues at the last place. There, it finds the others again.
//!
//! `SCAN` shows each key that exists from the beginning of a scan to its end. That holds only if no key moves to another
//! master meanwhile, and no replica takes the place of a master. So the search compares the servers, their processes and
//! their slots now and then and at the end, and begins again if they have changed.

mod deleted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::home::removal_of;
use super::naming::{begin_named, count_interrupted};
use super::registry::{ABANDONED_AFTER, PurgeRegistry, PurgeStage, locked, new_id};
use super::selections::{SearchPlace, SelectionCounts, SelectionRegistry, UncountedPurge};
use crate::bridge::fleet_view::{FleetView, since_boot};
use crate::services::replication::redis::{DataIdentity, Redis, RedisError, Scan, SlotLayout};
use carom_limits::{PURGE_LINKS_MAX, SELECTED_OPEN_MAX};
use carom_model::link::Link;
use carom_model::purge::selection::PurgeSelection;
use carom_model::purge::{PurgeId, PurgeList, PurgedLink};
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::{ReceivedState, StateHead};
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Timeout of a request to Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Codes that are read at once, approximately. Redis takes a quarter of a millisecond for their states, in which it does
/// nothing else.
const PIECE: usize = 128;

/// Codes that are read in a second at most.
const READ_PER_SECOND: u64 = 50_000;

/// Links that are deleted at once. Redis takes a quarter of a millisecond for them, too.
const DELETED_AT_ONCE: usize = 8;

/// Links that are deleted in a second at most.
const DELETED_PER_SECOND: u64 = 2_000;

/// Longest time for the deletion of the links of one purge. Later, the purge would count as abandoned, and leave out those that
/// are not deleted yet.
const DELETE_TIME: Duration = Duration::from_secs(60);

const _: () = assert!(DELETE_TIME.as_secs() < ABANDONED_AFTER.as_secs(), "deleted links would leave traces");

/// Interval between two comparisons of the home with that at the beginning of a scan, and between two stored places if few
/// links match.
const STORE_EVERY: Duration = Duration::from_secs(10);

/// Time within which all nodes usually confirm that Redis has their links: some heartbeats.
const DELIVERY_TIME: Duration = Duration::from_secs(5);

/// The reason why a search waits while nodes have not confirmed that Redis has their links.
const LACKS_LINKS: &str =
    "a node may have links that Redis lacks; if a node is away, start it, or wait until it has left the fleet";

/// Interval between two checks of whether all nodes have confirmed that Redis has their links.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval between two checks for selections. A request wakes the thread earlier.
const REST: Duration = Duration::from_secs(1);

/// Pause after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The reason why an attempt ended early.
#[derive(Debug)]
enum NotSelected {
    /// The node is shutting down.
    Stopping,
    /// The search has to wait. Meanwhile, the thread works at others.
    Waiting(String),
    Failed(String),
}

impl From<RedisError> for NotSelected {
    fn from(error: RedisError) -> NotSelected {
        NotSelected::Failed(error.to_string())
    }
}

impl From<StoreError> for NotSelected {
    fn from(error: StoreError) -> NotSelected {
        NotSelected::Failed(error.to_string())
    }
}

impl From<std::io::Error> for NotSelected {
    fn from(error: std::io::Error) -> NotSelected {
        NotSelected::Failed(format!("the progress cannot be stored: {error}"))
    }
}

/// The servers of the home at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
struct HomeLayout {
    /// The processes of the masters and the histories of their data; `None` if the servers do not tell.
    data: Option<DataIdentity>,
    slots: SlotLayout,
}

impl HomeLayout {
    /// Returns the text with which a place is stored; `None` if the servers do not tell who they are, so that no place of an
    /// earlier process can be trusted.
    fn to_text(&self) -> Option<String> {
        self.data.as_ref().map(|data| format!("{data:?} {:?}", self.slots))
    }
}

/// The state of the thread.
pub(super) struct Searcher {
    pub(super) selections: Arc<Mutex<SelectionRegistry>>,
    pub(super) registry: Arc<Mutex<PurgeRegistry>>,
    pub(super) redis: Redis,
    /// The store of this node.
    pub(super) links: Links,
    /// The knowledge about the fleet.
    pub(super) view: Arc<FleetView>,
    pub(super) stats: Arc<NodeStats>,
    /// The thread that carries purges out.
    pub(super) eraser: Thread,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) attempts: Attempts,
}

/// The knowledge about the last attempts at searches that have not ended.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The instants at which searches began to wait for the links of other nodes, in time since boot.
    asked: BTreeMap<PurgeId, Duration>,
    /// The reasons why the last attempts failed.
    failed: BTreeMap<PurgeId, String>,
}

/// A search in progress.
struct Search<'t> {
    id: PurgeId,
    terms: &'t PurgeSelection,
    scan: Scan,
    /// True if no earlier attempt has looked for links that were deleted before, or if the scan has begun again since.
    begins: bool,
    /// The text of the layout with which the scan began; `None` if the servers do not tell who they are.
    home: Option<String>,
    counts: SelectionCounts,
    /// The links that match and that are in no purge yet.
    batch: Vec<PurgedLink>,
    /// The instant at which the last place was stored.
    stored: Instant,
    /// The instant at which the home was last compared with that at the beginning of the scan.
    compared: Instant,
}

impl Search<'_> {
    /// Takes a link if it is selected.
    fn add(&mut self, link: &Link) {
        if !self.terms.has(link) {
            return;
        }
        if self.terms.confirmed.is_none() {
            self.counts.matched += 1;
            return;
        }
        let link = PurgedLink::of(link);
        // A scan may show a key twice.
        if !self.batch.contains(&link) {
            self.batch.push(link);
        }
    }

    /// Returns why the search must end if more links match than the client has confirmed.
    fn excess(&self) -> Option<String> {
        let confirmed = self.terms.confirmed?;
        let matched = self.counts.matched + self.batch.len() as u64;
        (matched > confirmed).then(|| format!("more links match than the {confirmed} that the request confirms"))
    }

    /// True if the links that were found should be purged, and the place stored.
    fn is_due(&self) -> bool {
        self.batch.len() + PIECE > PURGE_LINKS_MAX || self.stored.elapsed() >= STORE_EVERY
    }
}

impl Searcher {
    /// Looks for the links of selections until the node stops.
    pub(super) fn run(mut self) {
        while !self.is_stopping() {
            let Some(pause) = self.turn() else { return };
            std::thread::park_timeout(pause);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// True if this node has reached Redis, and it is that of its fleet.
    fn is_of_fleet(&self) -> bool {
        self.stats.fleet.same_code_secret.load(Ordering::Acquire)
    }

    /// Works at all selections, one after another. Returns the pause before the next turn; `None` if the node is shutting
    /// down.
    fn turn(&mut self) -> Option<Duration> {
        if !self.is_of_fleet() {
            return Some(REST);
        }
        let open = locked(&self.selections).open_ones();
        let mut pause = REST;
        for (id, terms) in open {
            match self.search(id, &terms) {
                Ok(()) => {
                    self.attempts.failed.remove(&id);
                    tracing::info!(%id, "a search for links to purge has ended");
                }
                Err(NotSelected::Stopping) => return None,
                Err(NotSelected::Waiting(why)) => locked(&self.selections).fail(id, &why),
                Err(NotSelected::Failed(why)) => {
                    locked(&self.selections).fail(id, &why);
                    let last = self.attempts.failed.insert(id, why.clone());
                    if last.as_ref() != Some(&why) {
                        tracing::warn!(%id, %why, "a search for links to purge was interrupted; carom continues it");
                    }
                    pause = RETRY_AFTER;
                }
            }
        }
        Some(pause)
    }

    /// Reads the home to its end, from the place of an earlier attempt on.
    fn search(&mut self, id: PurgeId, terms: &PurgeSelection) -> Result<(), NotSelected> {
        self.check_room(terms)?;
        let layout = self.layout()?;
        if layout.slots.is_moving() {
            return Err(NotSelected::Waiting("slots of the Redis Cluster are moving to other masters".to_owned()));
        }
        let mut search = self.resume(id, terms, &layout)?;
        if search.begins {
            self.find_deleted(&mut search)?;
        }
        while let Some(codes) = self.redis.scan_on(&mut search.scan, PIECE, REDIS_TIMEOUT)? {
            let begun = Instant::now();
            self.examine(&codes, &mut search)?;
            if let Some(why) = search.excess() {
                locked(&self.selections).show(id, search.counts);
                return Ok(locked(&self.selections).end(id, Some(why))?);
            }
            if search.is_due() {
                self.store(&mut search)?;
                if search.compared.elapsed() >= STORE_EVERY {
                    self.compare_home(id, &layout)?;
                    search.compared = Instant::now();
                }
                self.check_room(terms)?;
            }
            locked(&self.selections).show(id, search.counts);
            self.pause(begun, codes.len().max(PIECE), READ_PER_SECOND)?;
        }
        self.store(&mut search)?;
        self.compare_home(id, &layout)?;
        Ok(locked(&self.selections).end(id, None)?)
    }

    /// Restarts a search if the home has changed since the scan began: the scan may have missed keys.
    fn compare_home(&mut self, id: PurgeId, begun: &HomeLayout) -> Result<(), NotSelected> {
        let present = self.layout()?;
        if present.data.is_none() && begun.data.is_some() {
            return Err(NotSelected::Failed("a Redis server does not answer".to_owned()));
        }
        if present != *begun {
            locked(&self.selections).restart(id)?;
            let why = "a Redis server was replaced or started again, or slots have moved; the search begins again";
            return Err(NotSelected::Failed(why.to_owned()));
        }
        Ok(())
    }

    /// Returns the present layout of the home.
    fn layout(&mut self) -> Result<HomeLayout, NotSelected> {
        if !self.is_of_fleet() {
            return Err(NotSelected::Failed("Redis belongs to another fleet, or was not reached yet".to_owned()));
        }
        let slots = self.redis.slot_layout(REDIS_TIMEOUT)?;
        Ok(HomeLayout { data: self.redis.data_identity(REDIS_TIMEOUT), slots })
    }

    /// Continues a search, or begins it again if its place is in another home.
    fn resume<'t>(
        &mut self,
        id: PurgeId,
        terms: &'t PurgeSelection,
        layout: &HomeLayout,
    ) -> Result<Search<'t>, NotSelected> {
        let home = layout.to_text();
        if let Some(purge) = count_interrupted(&self.selections, &self.registry, id)? {
            let why = format!("it is not clear yet which links of the purge {purge} are deleted");
            return Err(NotSelected::Waiting(why));
        }
        let (mut counts, place) = locked(&self.selections).resume(id);
        if place.is_some() && home.is_none() {
            return Err(NotSelected::Failed("a Redis server does not answer".to_owned()));
        }
        let (scan, begins) = match place {
            Some(place) if home.as_ref() == Some(&place.home) => (place.scan, false),
            _ => {
                self.wait_for_links(id)?;
                locked(&self.selections).restart(id)?;
                (counts, _) = locked(&self.selections).resume(id);
                (self.redis.scan(REDIS_TIMEOUT)?, true)
            }
        };
        let now = Instant::now();
        Ok(Search { id, terms, scan, begins, home, counts, batch: Vec::new(), stored: now, compared: now })
    }

    /// Waits until Redis has every link that any node had acknowledged before the first attempt, even while Redis was away.
    /// A node that is away may have such links until it leaves the fleet, so this waits for some heartbeats only.
    fn wait_for_links(&mut self, id: PurgeId) -> Result<(), NotSelected> {
        let asked = *self.attempts.asked.entry(id).or_insert_with(since_boot);
        while !self.view.is_delivered(asked) || self.stats.fleet.undelivered.get() > 0 {
            if since_boot().saturating_sub(asked) >= DELIVERY_TIME {
                return Err(NotSelected::Waiting(LACKS_LINKS.to_owned()));
            }
            std::thread::park_timeout(LOOK_EVERY);
            if self.is_stopping() {
                return Err(NotSelected::Stopping);
            }
        }
        self.attempts.asked.remove(&id);
        Ok(())
    }

    /// Compares the links of some codes with a selection.
    fn examine(&mut self, codes: &[Code], search: &mut Search<'_>) -> Result<(), NotSelected> {
        let terms = search.terms;
        let named: Vec<Code> = codes.iter().filter(|code| terms.may_have(code)).copied().collect();
        for some in named.chunks(PIECE) {
            for received in self.redis.states(some, REDIS_TIMEOUT) {
                // A damaged state may be that of a selected link. So it is an error, which names the code.
                match received? {
                    Some(ReceivedState::Known(State::Link(link))) => search.add(&link),
                    Some(ReceivedState::Unread(text)) => search.counts.unreadable += u64::from(may_be_link(&text)),
                    Some(ReceivedState::Known(State::Gone(_))) | None => {}
                }
            }
        }
        search.counts.examined += codes.len() as u64;
        Ok(())
    }

    /// Purges the links that were found, and stores the place after them.
    fn store(&mut self, search: &mut Search<'_>) -> Result<(), NotSelected> {
        for links in std::mem::take(&mut search.batch).chunks(PURGE_LINKS_MAX) {
            self.purge(search, links)?;
        }
        let place = search.home.clone().map(|home| SearchPlace { home, scan: search.scan.clone() });
        locked(&self.selections).store(search.id, search.counts, place)?;
        search.stored = Instant::now();
        Ok(())
    }

    /// Begins a purge of links, and then deletes them.
    fn purge(&mut self, search: &mut Search<'_>, links: &[PurgedLink]) -> Result<(), NotSelected> {
        let (id, purge) = (search.id, self.begin_purge(search, links, false)?);
        let mut deleted = Vec::new();
        let result = self.delete(links, &mut deleted);
        search.counts.matched += deleted.len() as u64;
        locked(&self.selections).show(id, search.counts);
        let mut registry = locked(&self.registry);
        registry.advance(purge, PurgeStage::Due)?;
        if result.is_ok() {
            registry.settle(purge, deleted)?;
        }
        // Otherwise Redis may carry out a deletion that it has not answered, for which the purge waits.
        drop(registry);
        self.eraser.unpark();
        result
    }

    /// Begins a purge of links of a selection, durably. `deleted_before` is true for links that were deleted before the search.
    fn begin_purge(
        &mut self,
        search: &Search<'_>,
        links: &[PurgedLink],
        deleted_before: bool,
    ) -> Result<PurgeId, NotSelected> {
        self.check_room(search.terms)?;
        let added = UncountedPurge { purge: new_id().map_err(NotSelected::Failed)?, deleted_before };
        let (_, at_ms) = self.redis.count_purge_fields(REDIS_TIMEOUT)?;
        let (list, of) = (PurgeList { at_ms, links: links.to_vec() }, (search.id, search.counts.matched));
        begin_named(&self.selections, &self.registry, of, added, list).map_err(NotSelected::Failed)?;
        Ok(added.purge)
    }

    /// Checks whether a purge of links of this selection may begin. A selection that only counts links needs none.
    fn check_room(&self, terms: &PurgeSelection) -> Result<(), NotSelected> {
        if terms.confirmed.is_none() { Ok(()) } else { check_room(&locked(&self.registry)) }
    }

    /// Deletes links in Redis, and collects those that are deleted. The change reaches all nodes through the streams.
    fn delete(&mut self, links: &[PurgedLink], deleted: &mut Vec<PurgedLink>) -> Result<(), NotSelected> {
        let (now_ms, first) = (unix_ms(), Instant::now());
        for some in links.chunks(DELETED_AT_ONCE) {
            if first.elapsed() >= DELETE_TIME {
                return Err(NotSelected::Failed("Redis deletes links too slowly".to_owned()));
            }
            let begun = Instant::now();
            let removals: Vec<_> = some.iter().map(|link| removal_of(link, now_ms)).collect();
            let mut result = Ok(());
            for (link, changed) in some.iter().zip(self.redis.change(&removals, REDIS_TIMEOUT)) {
                match changed {
                    Ok(changed) if is_gone(&changed.verdict, link) => deleted.push(*link),
                    Ok(_) => {}
                    Err(error) => result = Err(error),
                }
            }
            result?;
            self.pause(begun, some.len(), DELETED_PER_SECOND)?;
        }
        Ok(())
    }

    /// Waits until a piece of work that began at this instant has taken as long as its rate allows.
    fn pause(&self, begun: Instant, count: usize, per_second: u64) -> Result<(), NotSelected> {
        let least = Duration::from_micros(count as u64 * 1_000_000 / per_second);
        std::thread::sleep(least.saturating_sub(begun.elapsed()));
        if self.is_stopping() { Err(NotSelected::Stopping) } else { Ok(()) }
    }
}

/// Checks whether a search may begin a purge: only while few are open, so that requests for single links find room.
fn check_room(registry: &PurgeRegistry) -> Result<(), NotSelected> {
    let open = registry.open_len();
    if open >= SELECTED_OPEN_MAX {
        return Err(NotSelected::Waiting(format!("{open} purges have not ended yet")));
    }
    registry.check_known().map_err(NotSelected::Waiting)
}

/// True if a link no longer exists after a request to delete it.
fn is_gone(verdict: &Verdict, link: &PurgedLink) -> bool {
    match verdict {
        Verdict::Accepted(_) | Verdict::Held(State::Gone(_)) => true,
        Verdict::Held(State::Link(present)) => link.claim != Some(present.version.claim),
        // The first one may be a change of the link by a later version. A code without a state may have lost it.
        Verdict::HeldUnread(_) | Verdict::Absent | Verdict::Same => false,
    }
}

/// True if a state that this version cannot decode may be that of a link.
fn may_be_link(text: &[u8]) -> bool {
    StateHead::of(text).is_none_or(|head| head.is_link != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::Scope;
    use carom_model::link::{Origin, Version};
    use carom_model::purge::EndedSelector;
    use carom_model::testing::link;

    fn claimed(slug: &str, claim: u64) -> Link {
        Link { version: Version { rev: 1, claim, edit: 0 }, ..link(slug, Origin::Custom) }
    }

    fn terms(confirmed: Option<u64>) -> PurgeSelection {
        let selector = EndedSelector::Destination(vec!["https://example.org/".to_owned()]);
        PurgeSelection { selector, scope: Scope::ALL, confirmed }
    }

    fn search(terms: &PurgeSelection) -> Search<'_> {
        let scan = serde_json::json!({"masters": [], "cursor": "0"});
        Search {
            id: PurgeId(1),
            terms,
            scan: Scan::from_json(&scan).unwrap(),
            begins: true,
            home: None,
            counts: SelectionCounts::default(),
            batch: Vec::new(),
            stored: Instant::now(),
            compared: Instant::now(),
        }
    }

    #[test]
    fn key_that_a_scan_shows_twice_is_purged_once() {
        let terms = terms(Some(2));
        let mut search = search(&terms);
        let other = Link { target: "https://other.example/".to_owned(), ..claimed("other", 9) };
        for link in [claimed("a", 7), claimed("b", 8), claimed("a", 7), other] {
            search.add(&link);
        }
        assert_eq!(search.batch, [claimed("a", 7), claimed("b", 8)].map(|link| PurgedLink::of(&link)));
        assert_eq!(search.excess(), None);
        search.add(&claimed("c", 9));
        assert!(search.excess().unwrap().contains("the 2 that"), "{:?}", search.excess());
    }

    #[test]
    fn count_of_links_purges_none() {
        let terms = terms(None);
        let mut search = search(&terms);
        (0..3).for_each(|claim| search.add(&claimed("a", claim)));
        assert_eq!((search.counts.matched, search.batch.len()), (3, 0));
        assert_eq!(search.excess(), None);
    }

    #[test]
    fn searches_leave_room_for_single_links() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        let begin = |registry: &mut PurgeRegistry, number| {
            registry.begin(PurgeId(number), PurgeList { at_ms: 5, links: Vec::new() }).unwrap();
        };
        (1..SELECTED_OPEN_MAX as u64).for_each(|number| begin(&mut registry, number));
        assert!(check_room(&registry).is_ok());
        begin(&mut registry, 0);
        let waits = check_room(&registry).unwrap_err();
        assert!(matches!(&waits, NotSelected::Waiting(why) if why.contains("have not ended")), "{waits:?}");
        registry.advance(PurgeId(0), PurgeStage::Complete).unwrap();
        assert!(check_room(&registry).is_ok());
    }

    #[test]
    fn verdicts_tell_which_links_are_gone() {
        let purged = PurgedLink::of(&claimed("a", 7));
        let held = |claim| Verdict::Held(State::Link(Arc::new(claimed("a", claim))));
        let tombstone = || State::Link(Arc::new(claimed("a", 7))).deleted(9);
        assert!(is_gone(&Verdict::Accepted(tombstone()), &purged));
        assert!(is_gone(&Verdict::Held(tombstone()), &purged), "another request has deleted it");
        assert!(is_gone(&held(8), &purged), "the code has its next link");
        assert!(!is_gone(&held(7), &purged));
        assert!(!is_gone(&Verdict::Absent, &purged), "Redis may have lost it");
    }

    #[test]
    fn place_is_trusted_in_the_same_home_only() {
        let slots = SlotLayout::default();
        let layout = |data: Option<&str>| HomeLayout { data: data.map(DataIdentity::named), slots: slots.clone() };
        assert_eq!(layout(Some("a")).to_text(), layout(Some("a")).to_text());
        assert_ne!(layout(Some("a")).to_text(), layout(Some("b")).to_text());
        assert_eq!(layout(None).to_text(), None);
    }
}
