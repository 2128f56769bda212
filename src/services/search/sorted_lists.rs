//! Lists that no index and no scan can order in time: each is sorted in the background, and kept in a file for a while.
//!
//! One thread sorts one list after the other ([`super::sort_job`]), with an external merge sort ([`external_sort`]). A kept
//! list ([`sorted_file`]) has the positions of the links as of the start of its sort, in ascending order, so it serves both
//! directions. Any page is one read ([`super::sorted_page`]). The files have no names ([`scratch`]), so a crash leaves
//! nothing. A purge drops all lists, and begins the running sort again.

mod external_sort;
mod scratch;
mod sorted_file;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) use self::external_sort::ExternalSorter;
use self::scratch::ScratchFolder;
pub(super) use self::sorted_file::SortedFile;
use carom_limits::{
    SORTED_BYTES_MAX, SORTED_FRESH_TIME, SORTED_KEPT_TIME, SORTED_LISTS_MAX, SORTED_LISTS_OF_APP_MAX, SORTS_OF_APP_MAX,
    SORTS_WAITING_MAX,
};
use carom_model::access::AppName;
use carom_model::query::{Behind, LinkPosition, ListFailure, ListQuery, SortOrder};

/// A list is sorted again only after this many times as long as its sort took, so that the thread rests.
const RESTS: u32 = 4;

/// Time for which a list that could not be sorted is not tried again.
const FAILED_TIME: Duration = Duration::from_secs(60);

/// Least and greatest number of seconds after which clients ask again for a list that is being sorted.
const RETRY_S: (u64, u64) = (1, 30);

/// The lists of a node: those that are kept, and those that wait to be sorted.
#[derive(Debug)]
pub(super) struct SortedLists {
    folder: ScratchFolder,
    state: Mutex<SortedState>,
    /// Wakes the thread that sorts.
    wake: Condvar,
    /// Number of purges, and of stops. A sort of an earlier epoch ends.
    epoch: AtomicU64,
}

#[derive(Debug, Default)]
struct SortedState {
    kept: Vec<KeptList>,
    waiting: VecDeque<SortTask>,
    running: Option<RunningSort>,
    /// Lists that could not be sorted, and when.
    failed: Vec<(Arc<str>, Instant)>,
    is_stopping: bool,
}

/// A list that is to be sorted.
#[derive(Clone, Debug)]
struct SortTask {
    /// The filter and the field, as a text. Both directions are the same list.
    identity: Arc<str>,
    asker: Option<AppName>,
    query: Arc<ListQuery>,
}

/// A list that is being sorted.
#[derive(Clone, Debug)]
pub(super) struct RunningSort {
    task: SortTask,
    epoch: u64,
    start: Instant,
    percent: Arc<AtomicU8>,
}

/// The end of a sort.
pub(super) enum SortOutcome {
    /// The list is sorted.
    Sorted(SortedFile),
    /// The node stops, or a purge has begun.
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
}

#[derive(Debug)]
struct KeptList {
    task: SortTask,
    list: Arc<SortedList>,
    /// The start of its sort, and how long it took.
    start: Instant,
    took: Duration,
    used: Instant,
}

impl SortedLists {
    /// Returns no lists, with a folder for their files in a data directory.
    pub(super) fn new(dir: &Path) -> SortedLists {
        SortedLists {
            folder: ScratchFolder::new(dir),
            state: Mutex::default(),
            wake: Condvar::new(),
            epoch: AtomicU64::new(0),
        }
    }

    /// Returns the kept list of a query. If it has aged, it is to be sorted again. The cursor of a query may name an earlier
    /// list, whose pages then stay as they were.
    pub(super) fn kept(&self, query: &ListQuery, now: Instant) -> Option<Arc<SortedList>> {
        let identity = identity(query);
        let mut state = self.lock();
        state.drop_unused(now);
        let named = query.cursor.as_ref().and_then(|cursor| match cursor.behind {
            Behind::Sorted(sorted_ms) => Some(sorted_ms),
            _ => None,
        });
        let of_list = |kept: &&mut KeptList| kept.task.identity == identity;
        let exact = state.kept.iter_mut().filter(of_list).find(|kept| Some(kept.list.sorted_ms) == named);
        if let Some(kept) = exact {
            kept.used = now;
            return Some(Arc::clone(&kept.list));
        }
        let kept = state.kept.iter_mut().filter(of_list).max_by_key(|kept| kept.start)?;
        kept.used = now;
        let list = Arc::clone(&kept.list);
        let has_aged = now.saturating_duration_since(kept.start) > SORTED_FRESH_TIME.max(kept.took * RESTS);
        if has_aged && state.wait_of(&identity, now).is_none() && state.has_failed(&identity, now).is_none() {
            // If others wait, the next use asks again.
            let _ = self.add(&mut state, SortTask::of(identity, query));
        }
        Some(list)
    }

    /// Asks for a list. Returns the answer for its client.
    pub(super) fn request(&self, query: &ListQuery, now: Instant) -> ListFailure {
        let identity = identity(query);
        let mut state = self.lock();
        if let Some(wait) = state.wait_of(&identity, now) {
            return wait;
        }
        if let Some(failure) = state.has_failed(&identity, now) {
            return failure;
        }
        match self.add(&mut state, SortTask::of(Arc::clone(&identity), query)) {
            Ok(()) => state.wait_of(&identity, now).unwrap_or(ListFailure::SortsWaiting),
            Err(failure) => failure,
        }
    }

    fn add(&self, state: &mut SortedState, task: SortTask) -> Result<(), ListFailure> {
        let running = state.running.iter().map(|running| &running.task);
        let is_same = |other: &&SortTask| task.asker.is_some() && other.asker == task.asker;
        let of_app = state.waiting.iter().chain(running).filter(is_same).count();
        if state.is_stopping || state.waiting.len() >= SORTS_WAITING_MAX || of_app >= SORTS_OF_APP_MAX {
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

    /// Drops all lists, because links of theirs are to leave the disk. The running sort begins again.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        state.kept.clear();
    }

    /// True once no file is left of the time before [`SortedLists::forget`].
    pub(super) fn has_forgotten(&self) -> bool {
        let state = self.lock();
        state.running.as_ref().is_none_or(|running| running.epoch == self.epoch.load(Ordering::Acquire))
    }

    /// Ends the thread that sorts, which removes the folder.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_all();
    }

    /// Drops a list whose file cannot be read.
    pub(super) fn drop_unreadable(&self, query: &ListQuery, now: Instant) {
        let identity = identity(query);
        let mut state = self.lock();
        state.kept.retain(|kept| kept.task.identity != identity);
        state.failed.push((identity, now));
    }

    fn lock(&self) -> MutexGuard<'_, SortedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the thread that sorts.
impl SortedLists {
    /// Waits for the next list to sort; `None` once the thread is to end. Meanwhile, drops lists that are not used any more.
    pub(super) fn next_sort(&self) -> Option<RunningSort> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                state.kept.clear();
                return None;
            }
            if let Some(running) = self.begin(&mut state) {
                return Some(running);
            }
            let now = Instant::now();
            state.drop_unused(now);
            state = match state.kept.iter().map(|kept| kept.used + SORTED_KEPT_TIME).min() {
                Some(until) => {
                    let waited = self.wake.wait_timeout(state, until.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn begin(&self, state: &mut SortedState) -> Option<RunningSort> {
        let task = state.waiting.pop_front()?;
        let (epoch, percent) = (self.epoch.load(Ordering::Acquire), Arc::new(AtomicU8::new(0)));
        let running = RunningSort { task, epoch, start: Instant::now(), percent };
        state.running = Some(running.clone());
        Some(running)
    }

    /// Ends a sort that began at `now_ms`, in milliseconds since 1970 UTC.
    pub(super) fn end(&self, running: RunningSort, now_ms: u64, outcome: SortOutcome) {
        let (mut state, now) = (self.lock(), Instant::now());
        state.running = None;
        let is_current = running.epoch == self.epoch.load(Ordering::Acquire);
        let took = now.saturating_duration_since(running.start);
        match outcome {
            SortOutcome::Sorted(file) if is_current => {
                tracing::debug!(links = file.count(), bytes = file.bytes(), ?took, "sorted a list");
                let list = Arc::new(SortedList { file, sorted_ms: now_ms });
                state.keep(KeptList { task: running.task, list, start: running.start, took, used: now });
            }
            SortOutcome::Sorted(_) | SortOutcome::Interrupted => state.waiting.push_front(running.task),
            SortOutcome::Failed(error) => {
                tracing::warn!(%error, "a list could not be sorted");
                state.failed.push((running.task.identity, now));
            }
        }
    }

    /// False for a sort that should end.
    pub(super) fn is_current(&self, running: &RunningSort) -> bool {
        self.epoch.load(Ordering::Acquire) == running.epoch
    }

    /// Begins the sort of the list that waits longest, if one does.
    #[cfg(test)]
    pub(super) fn next_waiting(&self) -> Option<RunningSort> {
        self.begin(&mut self.lock())
    }

    /// Begins to sort a list in files of the folder.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn sorter(&self) -> io::Result<ExternalSorter<'_>> {
        ExternalSorter::new(&self.folder)
    }

    /// Removes the folder.
    pub(super) fn remove_folder(&self) {
        self.folder.remove();
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
    fn has_failed(&mut self, identity: &Arc<str>, now: Instant) -> Option<ListFailure> {
        self.failed.retain(|(_, at)| now.saturating_duration_since(*at) < FAILED_TIME);
        self.failed.iter().any(|(failed, _)| failed == identity).then_some(ListFailure::NotSorted)
    }

    fn drop_unused(&mut self, now: Instant) {
        self.kept.retain(|kept| now.saturating_duration_since(kept.used) < SORTED_KEPT_TIME);
    }

    /// Keeps a list, and drops those that were used least recently if there are too many.
    fn keep(&mut self, new: KeptList) {
        let asker = new.task.asker.clone();
        self.kept.push(new);
        let is_same = |kept: &KeptList| asker.is_some() && kept.task.asker == asker;
        while self.kept.iter().filter(|kept| is_same(kept)).count() > SORTED_LISTS_OF_APP_MAX {
            self.drop_oldest(is_same);
        }
        let bytes = |kept: &[KeptList]| kept.iter().map(|kept| kept.list.file.bytes()).sum::<u64>();
        while self.kept.len() > SORTED_LISTS_MAX || self.kept.len() > 1 && bytes(&self.kept) > SORTED_BYTES_MAX {
            self.drop_oldest(|_| true);
        }
    }

    /// Drops the list that was used least recently among some.
    fn drop_oldest(&mut self, is_among: impl Fn(&KeptList) -> bool) {
        let among = self.kept.iter().enumerate().filter(|(_, kept)| is_among(kept));
        if let Some((at, _)) = among.min_by_key(|(_, kept)| kept.used) {
            self.kept.remove(at);
        }
    }
}

impl SortTask {
    fn of(identity: Arc<str>, query: &ListQuery) -> SortTask {
        let query = ListQuery { cursor: None, page: 1, ..query.clone() };
        SortTask { identity, asker: query.asker.clone(), query: Arc::new(query) }
    }
}

/// Returns a text that identifies the list of a query, in either direction.
fn identity(query: &ListQuery) -> Arc<str> {
    query.identity(SortOrder { descending: false, ..query.order }).into()
}
