//! Lists that no index and no scan can order in time: each is sorted in the background, and kept in a file for a while.
//!
//! One thread sorts one list after the other ([`super::sort_job`]), with an external merge sort ([`external_sort`]). A kept
//! list ([`sorted_file`]) has the positions of links in ascending order, so it serves both directions. Any page is two short
//! reads ([`super::sorted_page`]). The files have no names ([`scratch`]), so a crash leaves nothing. A purge erases its links
//! from kept lists at once, and from the running sort at its end.

mod external_sort;
mod scratch;
mod sorted_file;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) use self::external_sort::ExternalSorter;
use self::scratch::ScratchFolder;
pub(super) use self::sorted_file::SortedFile;
use carom_limits::{
    SORTED_BYTES_MAX, SORTED_KEPT_TIME, SORTED_LISTS_MAX, SORTED_LISTS_OF_APP_MAX, SORTED_VALID_TIME, SORTS_OF_APP_MAX,
    SORTS_WAITING_MAX,
};
use carom_model::access::AppName;
use carom_model::purge::PurgedLink;
use carom_model::query::{Behind, LinkPosition, ListFailure, ListQuery, SortOrder};
use carom_store::links::Links;

/// A list is sorted again, also after a failure, only after this many times as long as its sort took, so that the thread
/// rests.
const RESTS: u32 = 10;

/// Least time for which a list that could not be sorted is not tried again.
const FAILED_TIME: Duration = Duration::from_secs(60);

/// Time after which a sort that nobody asks for any more ends: three times the longest [`RETRY_S`].
const ABANDONED_TIME: Duration = Duration::from_secs(90);

/// Time between two looks at the disk and at unused lists while no list is being sorted.
const TEND_TIME: Duration = Duration::from_secs(10);

/// The most lists whose scans have run out of time lately. Each such scan took seconds.
const SLOW_SCANS_MAX: usize = 64;

/// Least number of bytes that a sort takes for each link.
const SORT_BYTES_PER_LINK: u64 = 20;

/// Least and greatest number of seconds after which clients ask again for a list that is being sorted.
const RETRY_S: (u64, u64) = (1, 30);

/// The lists of a node: those that are kept, and those that wait to be sorted.
#[derive(Debug)]
pub(super) struct SortedLists {
    folder: ScratchFolder,
    state: Mutex<SortedState>,
    /// The store, whose size says how much space a compaction may need.
    links: Links,
    /// Wakes the thread that sorts.
    wake: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct SortedState {
    kept: Vec<KeptList>,
    waiting: VecDeque<SortTask>,
    running: Option<RunningSort>,
    /// Lists that could not be sorted, and until when they are not tried again.
    failed: Vec<(Arc<str>, Instant)>,
    /// Lists whose scans have run out of time, and when.
    slow: VecDeque<(Arc<str>, Instant)>,
    /// Positions of purged links that the running sort may have read.
    purged: HashSet<Vec<u8>>,
}

/// A list that is to be sorted.
#[derive(Clone, Debug)]
struct SortTask {
    /// The filter and the field, as a text. Both directions are the same list.
    identity: Arc<str>,
    asker: Option<AppName>,
    query: Arc<ListQuery>,
    /// The last request for the list.
    asked: Instant,
}

/// A list that is being sorted.
#[derive(Clone, Debug)]
pub(super) struct RunningSort {
    task: SortTask,
    start: Instant,
    percent: Arc<AtomicU8>,
}

/// The end of a sort.
pub(super) enum SortOutcome {
    /// The list is sorted.
    Sorted(SortedFile),
    /// The node stops, or nobody has asked for the list lately.
    Interrupted,
    /// The disk or the store has failed.
    Failed(String),
}

/// A list on disk.
#[derive(Debug)]
pub(super) struct SortedList {
    file: SortedFile,
    /// The start of its sort, in milliseconds since 1970 UTC.
    sorted_ms: u64,
}

impl SortedList {
    /// Returns the number of links.
    pub(super) fn count(&self) -> u64 {
        self.file.count()
    }

    /// Returns the start of the sort, in milliseconds since 1970 UTC.
    pub(super) fn sorted_ms(&self) -> u64 {
        self.sorted_ms
    }

    /// Reads positions from a number on, in ascending order.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn read(&self, from: u64, count: u64) -> io::Result<Vec<LinkPosition>> {
        self.file.read(from, count)
    }

    /// Returns the number of a link in ascending order, from 0, if it is among `count` entries from a number on.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged.
    pub(super) fn find(&self, place: LinkPosition, from: u64, count: u64) -> io::Result<Option<u64>> {
        let found = self.file.entries(from, count)?.iter().position(|entry| *entry == Some(place));
        Ok(found.map(|at| from + at as u64))
    }
}

#[derive(Debug)]
struct KeptList {
    task: SortTask,
    list: Arc<SortedList>,
    /// The end of the time for which the list serves requests without a cursor of its own.
    valid_until: Instant,
    used: Instant,
}

impl SortedLists {
    /// Returns no lists, with a folder for their files in the data directory of a store.
    pub(super) fn new(dir: &Path, links: Links) -> SortedLists {
        SortedLists {
            folder: ScratchFolder::new(dir),
            state: Mutex::default(),
            links,
            wake: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Returns the kept list of a query. A cursor continues in the list that it names, for as long as that is kept. All other
    /// queries get the newest list, for as long as it is valid.
    pub(super) fn kept(&self, query: &ListQuery, now: Instant) -> Option<Arc<SortedList>> {
        let identity = identity(query);
        let named = query.cursor.as_ref().and_then(|cursor| match cursor.behind {
            Behind::Sorted(sorted_ms) => Some(sorted_ms),
            _ => None,
        });
        let mut state = self.lock();
        let lists = state.kept.iter_mut().filter(|kept| kept.task.identity == identity && kept.is_in_use(now));
        let is_named = |kept: &KeptList| Some(kept.list.sorted_ms) == named;
        let usable = lists.filter(|kept| is_named(kept) || now < kept.valid_until);
        let kept = usable.max_by_key(|kept| (is_named(kept), kept.valid_until))?;
        kept.used = now;
        Some(Arc::clone(&kept.list))
    }

    /// Asks for a list. Returns the answer for its client.
    pub(super) fn request(&self, query: &ListQuery, now: Instant) -> ListFailure {
        let identity = identity(query);
        let mut state = self.lock();
        state.renew(&identity, now);
        if let Some(wait) = state.wait_of(&identity, now) {
            return wait;
        }
        if let Some(failure) = state.failure_of(&identity, now) {
            return failure;
        }
        match self.add(&mut state, SortTask::of(Arc::clone(&identity), query, now)) {
            Ok(()) => state.wait_of(&identity, now).unwrap_or(ListFailure::SortsWaiting),
            Err(failure) => failure,
        }
    }

    fn add(&self, state: &mut SortedState, task: SortTask) -> Result<(), ListFailure> {
        let running = state.running.iter().map(|running| &running.task);
        let is_same = |other: &&SortTask| task.asker.is_some() && other.asker == task.asker;
        let of_app = state.waiting.iter().chain(running).filter(is_same).count();
        if self.is_stopping() || state.waiting.len() >= SORTS_WAITING_MAX || of_app >= SORTS_OF_APP_MAX {
            return Err(ListFailure::SortsWaiting);
        }
        state.waiting.push_back(task);
        self.wake.notify_all();
        Ok(())
    }

    /// True if a list waits to be sorted, or is being sorted.
    pub(super) fn is_being_sorted(&self, query: &ListQuery, now: Instant) -> bool {
        self.lock().wait_of(&identity(query), now).is_some()
    }

    /// Notes that a scan of a list has run out of time.
    pub(super) fn note_slow(&self, query: &ListQuery, now: Instant) {
        let identity = identity(query);
        let mut state = self.lock();
        state.slow.retain(|(slow, _)| *slow != identity);
        if state.slow.len() == SLOW_SCANS_MAX {
            state.slow.pop_front();
        }
        state.slow.push_back((identity, now));
    }

    /// True if a scan of a list has run out of time lately.
    pub(super) fn is_slow(&self, query: &ListQuery, now: Instant) -> bool {
        let identity = identity(query);
        let is_lately = |at: &Instant| now.saturating_duration_since(*at) < SORTED_VALID_TIME;
        self.lock().slow.iter().any(|(slow, at)| *slow == identity && is_lately(at))
    }

    /// Erases deleted links from all kept lists. The running sort erases them at its end.
    pub(super) fn forget(&self, links: &[PurgedLink]) {
        if links.is_empty() {
            return;
        }
        let positions: HashSet<Vec<u8>> = links.iter().map(|link| link.position().to_bytes()).collect();
        let mut state = self.lock();
        if state.running.is_some() {
            state.purged.extend(positions.iter().cloned());
        }
        let lists: Vec<Arc<SortedList>> = state.kept.iter().map(|kept| Arc::clone(&kept.list)).collect();
        drop(state);
        for list in lists {
            if let Err(error) = list.file.erase(&positions, || !self.is_stopping()) {
                tracing::warn!(%error, "cannot erase purged links from a sorted list, so it is dropped");
                self.lock().kept.retain(|kept| !Arc::ptr_eq(&kept.list, &list));
            }
        }
    }

    /// True once no file has links of earlier calls of [`SortedLists::forget`].
    pub(super) fn has_forgotten(&self) -> bool {
        self.lock().purged.is_empty()
    }

    /// Ends the thread that sorts, which removes the folder.
    pub(super) fn stop(&self) {
        let state = self.lock();
        self.is_stopping.store(true, Ordering::Release);
        self.wake.notify_all();
        drop(state);
    }

    /// Drops a list whose file cannot be read. Returns the answer for its client.
    pub(super) fn drop_unreadable(&self, query: &ListQuery, now: Instant) -> ListFailure {
        let identity = identity(query);
        let mut state = self.lock();
        let dropped = state.take(|kept| kept.task.identity == identity);
        state.failed.push((Arc::clone(&identity), now + FAILED_TIME));
        let failure = state.failure_of(&identity, now);
        drop(state);
        drop(dropped);
        failure.unwrap_or(ListFailure::SortsWaiting)
    }

    /// True once the node stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, SortedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the thread that sorts.
impl SortedLists {
    /// Waits for the next list to sort; `None` once the thread is to end.
    pub(super) fn next_sort(&self) -> Option<RunningSort> {
        loop {
            let now = Instant::now();
            self.tend(now);
            let mut state = self.lock();
            if self.is_stopping() {
                let dropped = state.take(|_| true);
                drop(state);
                drop(dropped);
                return None;
            }
            if let Some(running) = state.begin(now) {
                return Some(running);
            }
            if state.kept.is_empty() {
                drop(self.wake.wait(state));
            } else {
                drop(self.wake.wait_timeout(state, TEND_TIME));
            }
        }
    }

    /// Drops lists that nobody uses any more, and all lists if the disk has too little room for the store. Returns false if
    /// the running sort should end.
    pub(super) fn tend(&self, now: Instant) -> bool {
        self.folder.leave_room(self.links.disk_bytes());
        let has_room = self.folder.check_room(0).is_ok();
        let mut state = self.lock();
        // The files close once the lock is free.
        let dropped = state.take(|kept| !has_room || !kept.is_in_use(now));
        let is_asked_for = state.running.as_ref().is_none_or(|running| running.task.is_asked_for(now));
        drop(state);
        drop(dropped);
        is_asked_for && !self.is_stopping()
    }

    /// Ends a sort that began at `now_ms`, in milliseconds since 1970 UTC.
    pub(super) fn end(&self, running: RunningSort, now_ms: u64, mut outcome: SortOutcome) {
        let mut erased = HashSet::new();
        let mut state = self.lock();
        // Purges may come until the list is kept.
        while let SortOutcome::Sorted(file) = &outcome
            && state.purged.len() > erased.len()
        {
            erased.clone_from(&state.purged);
            drop(state);
            if let Err(error) = file.erase(&erased, || !self.is_stopping()) {
                outcome = SortOutcome::Failed(error.to_string());
            }
            state = self.lock();
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(running.start);
        state.running = None;
        state.purged.clear();
        let mut dropped = Vec::new();
        match outcome {
            SortOutcome::Sorted(file) => {
                tracing::debug!(links = file.count(), bytes = file.bytes(), ?took, "sorted a list");
                let list = Arc::new(SortedList { file, sorted_ms: now_ms });
                let valid_until = now + SORTED_VALID_TIME.max(took * RESTS);
                dropped = state.keep(KeptList { task: running.task, list, valid_until, used: now });
            }
            SortOutcome::Interrupted => {}
            SortOutcome::Failed(error) => {
                tracing::warn!(%error, "a list could not be sorted");
                state.failed.push((running.task.identity, now + FAILED_TIME.max(took * RESTS)));
            }
        }
        drop(state);
        drop(dropped);
    }

    /// Begins the sort of the list that waits longest, if one does.
    #[cfg(test)]
    pub(super) fn next_waiting(&self) -> Option<RunningSort> {
        self.lock().begin(Instant::now())
    }

    /// Starts the sort of a list with at least `links_min` links in files of the folder.
    ///
    /// # Errors
    /// If the disk fails or has too little room.
    pub(super) fn sorter(&self, links_min: u64) -> io::Result<ExternalSorter<'_>> {
        self.folder.leave_room(self.links.disk_bytes());
        self.folder.check_room(links_min.saturating_mul(SORT_BYTES_PER_LINK))?;
        ExternalSorter::new(&self.folder)
    }

    /// Removes the folder.
    pub(super) fn remove_folder(&self) {
        self.folder.remove();
    }
}

impl KeptList {
    /// True if the list was used lately.
    fn is_in_use(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) < SORTED_KEPT_TIME
    }
}

impl RunningSort {
    /// Returns a query for the list.
    pub(super) fn query(&self) -> Arc<ListQuery> {
        Arc::clone(&self.task.query)
    }

    /// Publishes the share of the work that is done.
    pub(super) fn show(&self, share: f64) {
        self.percent.store((100.0 * share) as u8, Ordering::Relaxed);
    }
}

impl SortedState {
    /// Begins the sort of the list that waits longest, of those that somebody still asks for.
    fn begin(&mut self, now: Instant) -> Option<RunningSort> {
        self.waiting.retain(|task| task.is_asked_for(now));
        let task = self.waiting.pop_front()?;
        let running = RunningSort { task, start: now, percent: Arc::new(AtomicU8::new(0)) };
        self.running = Some(running.clone());
        Some(running)
    }

    /// Notes a request for a list that waits to be sorted, or is being sorted. Drops those that nobody asks for any more.
    fn renew(&mut self, identity: &Arc<str>, now: Instant) {
        let running = self.running.iter_mut().map(|running| &mut running.task);
        for task in self.waiting.iter_mut().chain(running).filter(|task| task.identity == *identity) {
            task.asked = now;
        }
        self.waiting.retain(|task| task.is_asked_for(now));
    }

    /// Returns the answer for a list that waits to be sorted, or is being sorted; `None` for other lists.
    fn wait_of(&self, identity: &Arc<str>, now: Instant) -> Option<ListFailure> {
        if let Some(running) = self.running.as_ref().filter(|running| running.task.identity == *identity) {
            let percent = running.percent.load(Ordering::Relaxed).min(99);
            let elapsed = now.saturating_duration_since(running.start).as_secs();
            let rest = elapsed * (100 - u64::from(percent)) / u64::from(percent.max(1));
            return Some(ListFailure::Sorting { percent, retry_s: rest.clamp(RETRY_S.0, RETRY_S.1) as u16 });
        }
        let place = self.waiting.iter().position(|task| task.identity == *identity)?;
        let before = place + usize::from(self.running.is_some());
        let retry_s = (5 * before as u64).clamp(RETRY_S.0, RETRY_S.1) as u16;
        Some(ListFailure::Sorting { percent: 0, retry_s })
    }

    /// Returns the answer for a list that could not be sorted lately; `None` for other lists.
    fn failure_of(&mut self, identity: &Arc<str>, now: Instant) -> Option<ListFailure> {
        self.failed.retain(|(_, until)| now < *until);
        let (_, until) = self.failed.iter().find(|(failed, _)| failed == identity)?;
        let retry_s = until.saturating_duration_since(now).as_secs() + 1;
        Some(ListFailure::NotSorted { retry_s: u32::try_from(retry_s).unwrap_or(u32::MAX) })
    }

    /// Takes some lists out. Their files close when the caller drops them, which is to be without the lock.
    fn take(&mut self, is_taken: impl Fn(&KeptList) -> bool) -> Vec<KeptList> {
        let (taken, rest) = std::mem::take(&mut self.kept).into_iter().partition(is_taken);
        self.kept = rest;
        taken
    }

    /// Keeps a list. If there are too many, takes out those that have a newer version, and then those that were used least
    /// recently.
    fn keep(&mut self, new: KeptList) -> Vec<KeptList> {
        let (asker, mut taken) = (new.task.asker.clone(), Vec::new());
        self.kept.push(new);
        let is_same = |kept: &KeptList| asker.is_some() && kept.task.asker == asker;
        while self.kept.iter().filter(|kept| is_same(kept)).count() > SORTED_LISTS_OF_APP_MAX {
            taken.extend(self.take_oldest(is_same));
        }
        let bytes = |kept: &[KeptList]| kept.iter().map(|kept| kept.list.file.bytes()).sum::<u64>();
        while self.kept.len() > SORTED_LISTS_MAX || self.kept.len() > 1 && bytes(&self.kept) > SORTED_BYTES_MAX {
            taken.extend(self.take_oldest(|_| true));
        }
        taken
    }

    /// Takes one of some lists out: one that has a newer version, or else the one that was used least recently.
    fn take_oldest(&mut self, is_among: impl Fn(&KeptList) -> bool) -> Option<KeptList> {
        // Newer versions come later.
        let has_newer = |at: usize, kept: &KeptList| {
            self.kept[at + 1..].iter().any(|other| other.task.identity == kept.task.identity)
        };
        let among = self.kept.iter().enumerate().filter(|(_, kept)| is_among(kept));
        let (at, _) = among.min_by_key(|(at, kept)| (!has_newer(*at, kept), kept.used))?;
        Some(self.kept.remove(at))
    }
}

impl SortTask {
    fn of(identity: Arc<str>, query: &ListQuery, asked: Instant) -> SortTask {
        let query = ListQuery { cursor: None, page: 1, ..query.clone() };
        SortTask { identity, asker: query.asker.clone(), query: Arc::new(query), asked }
    }

    /// True if a client has asked for the list lately.
    fn is_asked_for(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < ABANDONED_TIME
    }
}

/// Returns a text that identifies the list of a query, in either direction.
fn identity(query: &ListQuery) -> Arc<str> {
    query.identity(SortOrder { descending: false, ..query.order }).into()
}
