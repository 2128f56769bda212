//! The thread that sorts lists, one after the other.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::catalog::Catalog;
use super::link_scan::{LinkSink, ScanStep};
use super::list::Finder;
use super::sorted_lists::{ExternalSorter, RunningSort, SortOutcome, SortedLists};
use super::visits::VisitSource;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::query::LinkPosition;
use carom_store::links::StoreError;
use carom_telemetry::clock::unix_ms;

/// Time after which a sort reads on from another snapshot, because the store keeps what is replaced meanwhile, and after which
/// it looks at the disk and for unused lists.
const VIEW_TIME_MAX: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// The share of a sort that reads links. The rest is the merge.
const READ_SHARE: f64 = 0.8;

/// Starts the thread. It ends soon after [`Catalog::stop_sorting`].
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(catalog: &Arc<Catalog>, visits: Arc<dyn VisitSource>) -> io::Result<JoinHandle<()>> {
    let catalog = Arc::clone(catalog);
    threads::start(Priority::Long, "sort", move || {
        while let Some(running) = catalog.sorted_lists.next_sort() {
            sort(&catalog, &*visits, running, unix_ms());
        }
        catalog.sorted_lists.remove_folder();
    })
}

/// Sorts the list that waits longest, as of `now_ms`. Returns false if none does.
#[cfg(test)]
pub(super) fn sort_once(catalog: &Catalog, visits: &dyn VisitSource, now_ms: u64) -> bool {
    let lists = &catalog.sorted_lists;
    lists.next_waiting().map(|running| sort(catalog, visits, running, now_ms)).is_some()
}

/// Sorts a list as of `now_ms`, in milliseconds since 1970 UTC.
pub(super) fn sort(catalog: &Catalog, visits: &dyn VisitSource, running: RunningSort, now_ms: u64) {
    let lists = &catalog.sorted_lists;
    let query = running.query();
    let finder = Finder::within(catalog, visits, &query, now_ms, Duration::ZERO);
    let scanned = finder.scanned_links();
    // A filter may leave only a few of them.
    let links_min = scanned.filter(|_| !query.filter.needs_filtering()).unwrap_or(0);
    let sorter = match lists.sorter(links_min) {
        Ok(sorter) => sorter,
        Err(error) => return lists.end(running, now_ms, SortOutcome::Failed(error.to_string())),
    };
    let expected = scanned.unwrap_or(u64::MAX);
    let outcome =
        Sorting { lists, running: &running, sorter, expected, looked: 0, failed: None, view_since: Instant::now() };
    let outcome = outcome.run(&finder).unwrap_or_else(|error| SortOutcome::Failed(error.to_string()));
    lists.end(running, now_ms, outcome);
}

/// A list that is being read, to be sorted.
struct Sorting<'s> {
    lists: &'s SortedLists,
    running: &'s RunningSort,
    sorter: ExternalSorter<'s>,
    /// About how many links are to be read, and how many were.
    expected: u64,
    looked: u64,
    failed: Option<io::Error>,
    view_since: Instant,
}

impl Sorting<'_> {
    /// Reads, sorts and writes the list.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn run(mut self, finder: &Finder<'_>) -> Result<SortOutcome, StoreError> {
        let is_whole = finder.scan(&mut self)?;
        if let Some(error) = self.failed {
            return Ok(SortOutcome::Failed(error.to_string()));
        }
        if !is_whole {
            return Ok(SortOutcome::Interrupted);
        }
        let Sorting { lists, running, sorter, mut view_since, .. } = self;
        let merged = sorter.merge(|share| {
            running.show(READ_SHARE + (1.0 - READ_SHARE) * share);
            if view_since.elapsed() <= VIEW_TIME_MAX {
                return !lists.is_stopping();
            }
            view_since = Instant::now();
            lists.tend(view_since)
        });
        Ok(match merged {
            Ok(Some(file)) => SortOutcome::Sorted(file),
            Ok(None) => SortOutcome::Interrupted,
            Err(error) => SortOutcome::Failed(error.to_string()),
        })
    }
}

impl LinkSink for Sorting<'_> {
    fn offer(&mut self, key: &[u8], place: LinkPosition) {
        if self.failed.is_none() {
            self.failed = self.sorter.push(key, place).err();
        }
    }

    fn look(&mut self, links: u64) -> ScanStep {
        self.looked += links;
        self.running.show(READ_SHARE * (self.looked as f64 / self.expected as f64).min(1.0));
        if self.failed.is_some() || self.lists.is_stopping() {
            return ScanStep::Stop;
        }
        if self.view_since.elapsed() <= VIEW_TIME_MAX {
            return ScanStep::Continue;
        }
        self.view_since = Instant::now();
        if self.lists.tend(self.view_since) { ScanStep::Renew } else { ScanStep::Stop }
    }
}
