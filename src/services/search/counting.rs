//! Counts the entries of the indexes after a start: the first part of each before the node serves, and the others in the
//! background, while links come and go.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::catalog::{Catalog, Tallies};
use super::counted::CountedIndex;
use super::tags;
use crate::services::threads;
use crate::services::threads::priority::{PacedLoop, Priority};
use carom_limits::COUNTED_AT_ONCE;
use carom_store::links::catalog::IndexKind;
use carom_store::links::{StoreError, Value};

/// Pause between two parts, about a tenth of the time that a part takes. Client requests on the same CPU need it more.
const PAUSE: Duration = Duration::from_micros(125);

/// Pause between two recounts of tags.
const RECOUNT_PAUSE: Duration = Duration::from_secs(1);

/// The indexes that are counted.
const COUNTED: [IndexKind; 2] = [IndexKind::Dates, IndexKind::Tags];

/// Counts the first part of each index, which is all of it in a small store. Then starts the thread that counts the
/// others, and later recounts groups that had too many tags. It runs in the background, and ends when the catalog is
/// stopped.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(catalog: &Arc<Catalog>) -> io::Result<JoinHandle<()>> {
    let start = Instant::now();
    count_first(catalog);
    let catalog = Arc::clone(catalog);
    threads::start(Priority::Background, "count", move || {
        let counted = count_all(&catalog).map(|is_whole| {
            if is_whole {
                log_completion(&catalog, start);
            }
        });
        if let Err(error) = counted.and_then(|()| keep_counted(&catalog)) {
            tracing::error!(%error, "an index of links cannot be read; lists have no counts until it is repaired");
        }
    })
}

/// Counts the first part of both indexes.
pub(super) fn count_first(catalog: &Catalog) {
    for kind in COUNTED {
        // The thread that counts the others meets the same error, and reports it.
        let _ = count_part(catalog, kind, COUNTED_AT_ONCE, || {});
    }
}

fn log_completion(catalog: &Catalog, start: Instant) {
    let (_, (links, fences)) = catalog.view_with_counts(|counts| {
        let whole = |counted: &CountedIndex| counted.whole().map_or((0, 0), |all| (all.total(), all.len()));
        (whole(&counts.dates).0, whole(&counts.dates).1 + whole(&counts.tags).1)
    });
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!(links, fences, seconds, "counted all links; lists and statistics are complete");
}

/// Recounts tags whenever a group may have few enough of them again.
fn keep_counted(catalog: &Catalog) -> Result<(), StoreError> {
    let is_stopping = || catalog.stopping.load(Ordering::Acquire);
    let mut counts = catalog.lock();
    loop {
        counts = catalog
            .uncounted
            .wait_while(counts, |counts| !counts.is_recount_due && !is_stopping())
            .unwrap_or_else(PoisonError::into_inner);
        drop(counts);
        while !is_stopping() && recount_tags(catalog, || {})? {}
        // Tags that come and go must not keep this thread busy.
        let waited = catalog.uncounted.wait_timeout_while(catalog.lock(), RECOUNT_PAUSE, |_| !is_stopping());
        counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        if is_stopping() {
            return Ok(());
        }
    }
}

/// Recounts the tags of the next group. Calls `between` once they are counted, before the counts are in use. Returns
/// true if a group was due.
pub(super) fn recount_tags(catalog: &Catalog, between: impl FnOnce()) -> Result<bool, StoreError> {
    let (view, name) = {
        let mut counts = catalog.lock();
        let name = counts.of_tags.begin();
        counts.is_recount_due = false;
        (catalog.links.view(), name)
    };
    let Some(name) = name else { return Ok(false) };
    let counted = tags::count_group(&view, &name, || !catalog.stopping.load(Ordering::Acquire))?;
    between();
    catalog.lock().of_tags.end(&name, counted);
    Ok(true)
}

/// Counts what is left of both indexes. Returns false if the catalog was stopped first.
fn count_all(catalog: &Catalog) -> Result<bool, StoreError> {
    for kind in COUNTED {
        if catalog.lock().of(kind).whole().is_some() {
            continue;
        }
        while count_part(catalog, kind, COUNTED_AT_ONCE, || {})? {
            if catalog.stopping.load(Ordering::Acquire) {
                return Ok(false);
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(true)
}

/// Counts the next part, of at most `at_once` entries. Calls `between` once it is read, before it is counted. Returns
/// true if more entries may follow.
pub(super) fn count_part(
    catalog: &Catalog,
    kind: IndexKind,
    at_once: usize,
    between: impl FnOnce(),
) -> Result<bool, StoreError> {
    let (view, from) = {
        let mut counts = catalog.lock();
        let from = counts.of(kind).begin_part();
        (catalog.links.view(), from)
    };
    let mut paced = PacedLoop::default();
    let keys = view.keys(kind, &from, &[]).take(at_once).inspect(|_| paced.step());
    let part: Vec<Value> = keys.collect::<Result<_, _>>()?;
    between();
    let mut counts = catalog.lock();
    let Tallies { of_tags, .. } = &mut *counts;
    if kind == IndexKind::Tags {
        part.iter().for_each(|key| _ = of_tags.change(key, true));
    }
    for (key, added) in counts.of(kind).end_part(&part, part.len() < at_once) {
        // A run that becomes too long by this is split with the next change of it.
        counts.change(kind, key, added);
    }
    // Changes after the part that was read will be met in the next part.
    counts.of(kind).forget_pending();
    Ok(part.len() == at_once)
}
