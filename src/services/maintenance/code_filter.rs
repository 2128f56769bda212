//! Keeps the cores' filters of codes, on a node that keeps only the links in use in memory.
//!
//! A start with many links takes the filters from a file ([`load`]). This thread writes the file again once many codes
//! have changed, and builds it from the store if it is missing, unusable, full, or mostly of removed links. So neither a
//! start nor a shutdown reads all links.
//!
//! A core cannot remove codes from its filter, so links that come and go fill it with codes of removed links
//! ([`CoreStats::wants_codes`]). This thread then asks the cores to begin a new filter, and only after that reads the
//! store. Codes that are put later are added by the core itself (see `core::known_codes`).

mod build;
mod delivery;
mod file;
mod loading;
mod update;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{CodeHasher, CoreCount};

use self::build::{BuiltFilter, FilterOrder, build, scan_codes};
use self::delivery::CodeBatches;
pub use self::delivery::FilterNode;
use self::file::{FILE_NAME, FilterSize};
pub use self::loading::{FilterOrigin, hasher_of, is_worthwhile, load, remove_unused};
use self::update::{NotUpdated, later_codes, update};
use crate::bridge::{MEMORY_LIMIT_LOW, RuledBits, StoredCodes, ToCore};
use crate::services::derived::{self, sealed_file::NotWritten};
use crate::services::loader::report_range;
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{CODES_IN_FLIGHT_MAX, FILTER_CHANGES_MAX, FILTER_SENT_MAX, IMAGE_CHANGES_MIN, IMAGE_CHANGES_SHARE};
use carom_store::links::{DamagedRange, Links, key_ranges};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::CoreStats;

/// Interval between two checks whether a core wants the codes, or the file is due.
const CHECK_CORES_EVERY: Duration = Duration::from_secs(1);

/// Time until another attempt to give the cores the filters that they await, after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Inputs of the thread.
#[derive(Clone, Debug)]
pub struct CodeFilterSetup {
    /// The store, the cores and the file.
    pub node: FilterNode,
    /// The statistics of the cores, which include the state of their filters.
    pub core_stats: Arc<[Arc<CoreStats>]>,
    /// The origin of the filters that the cores have.
    pub origin: FilterOrigin,
    /// Number of committed changes ([`Links::changes`]) before the filters were loaded.
    pub changes: u64,
}

/// A handle on the thread that keeps the filters of codes.
pub struct CodeFilterThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl CodeFilterThread {
    /// Stops the thread and waits for it. It abandons an unfinished file.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread. The filters, or all links, must have been loaded before.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: CodeFilterSetup) -> io::Result<CodeFilterThread> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut keeper = Keeper::new(setup, Arc::clone(&stop));
    let run = move || {
        derived::remove_unfinished(&keeper.path, "an unfinished file of the filters of codes");
        while !keeper.stop.load(Ordering::Acquire) {
            keeper.look();
            keeper.keep_file();
            std::thread::park_timeout(CHECK_CORES_EVERY);
        }
    };
    let thread = threads::start(Priority::Long, "code-filter", run)?;
    Ok(CodeFilterThread { stop, thread })
}

/// Writes the file for a store that no node has open. Blocks the calling thread: about a microsecond of CPU per link.
///
/// # Errors
/// The reason why there is no new file.
pub fn write_once(links: &Links, data_dir: &Path, hasher: CodeHasher, cores: CoreCount) -> Result<(), String> {
    let (path, disk, stop) = (data_dir.join(FILE_NAME), DiskGuard::new(data_dir.to_owned()), AtomicBool::new(false));
    let order = FilterOrder { links, path: &path, hasher, disk: &disk, stop: &stop, pauses: false };
    let built = match build(&order, FilterSize::for_links(links.approximate_len(), cores)) {
        Ok(BuiltFilter { damaged, .. }) if !damaged.is_empty() => Err(NotWritten::Damaged),
        built => built.map(drop),
    };
    built.map_err(|why| format!("{}: {why}", path.display()))
}

/// The state of the thread.
struct Keeper {
    node: FilterNode,
    core_stats: Arc<[Arc<CoreStats>]>,
    path: PathBuf,
    disk: DiskGuard,
    stop: Arc<AtomicBool>,
    /// Number of codes that the awaited filters have room for; `None` if the cores have filters.
    awaited: Option<usize>,
    /// True until the cores know which links of the store may have redirect rules.
    owes_ruled: bool,
    /// Value of `Links::changes` at the position of the file, which may be a wrapped number from before the start of the
    /// node. `None` without a usable file.
    written_at: Option<u64>,
    /// True if most codes of the file are of removed links.
    is_worn: bool,
    /// The time before which the file is left alone.
    retry_at: Option<Instant>,
}

impl Keeper {
    fn new(setup: CodeFilterSetup, stop: Arc<AtomicBool>) -> Keeper {
        let CodeFilterSetup { node, core_stats, origin, changes } = setup;
        let (awaited, written_at) = match origin {
            FilterOrigin::Scan => (None, None),
            FilterOrigin::File { changed } => (None, Some(changes.wrapping_sub(changed))),
            FilterOrigin::Awaited { codes } => (Some(codes), None),
        };
        let (path, disk) = (node.path(), DiskGuard::new(node.data_dir.clone()));
        let owes_ruled = origin != FilterOrigin::Scan;
        Keeper { node, core_stats, path, disk, stop, awaited, owes_ruled, written_at, is_worn: false, retry_at: None }
    }

    /// Sends the cores all codes of the store if one of them wants them, and clears the alarm once no core is in doubt.
    fn look(&mut self) {
        // While filters are awaited, all cores get them from `keep_file`: if these codes could not all be read, the others
        // would drop what they await.
        let is_wanted = self.awaited.is_none() && self.core_stats.iter().any(|core| core.wants_codes.get() > 0);
        if is_wanted && self.send_codes() {
            self.is_worn = true;
        }
        let (alarms, is_in_doubt) =
            (&self.node.stats.alarms, || self.core_stats.iter().any(|core| core.lacks_filter.get() > 0));
        if alarms.is_on(Alarm::MemoryLimitLow) && !is_in_doubt() {
            alarms.clear(Alarm::MemoryLimitLow);
            // A core that raised it meanwhile does so once only.
            if is_in_doubt() {
                alarms.raise(Alarm::MemoryLimitLow, MEMORY_LIMIT_LOW.to_owned());
            }
        }
    }

    /// Writes the file if that is due, and gives the cores what they still need of it.
    fn keep_file(&mut self) {
        let (links, changes) = (self.node.links.approximate_len(), self.node.links.changes());
        let due = (links as u64 / IMAGE_CHANGES_SHARE).clamp(IMAGE_CHANGES_MIN, FILTER_CHANGES_MAX);
        let is_due = self.is_worn || self.written_at.is_none_or(|at| changes.wrapping_sub(at) >= due);
        let is_owed = self.awaited.is_some() || self.owes_ruled;
        let (begin, is_due) = (Instant::now(), is_due && is_worthwhile(&self.node.links));
        if !(is_owed || is_due) || self.retry_at.is_some_and(|at| begin < at) {
            return;
        }
        let awaited = self.awaited;
        let kept = match awaited {
            Some(codes) => {
                if self.retry_at.take().is_some() {
                    // The cores have dropped what they had of the last attempt.
                    self.node.broadcast(|| StoredCodes::Await { codes });
                }
                self.rebuild(FilterSize { cores: self.node.cores, codes })
            }
            None => self.bring_up_to_date(links, is_due),
        };
        match kept {
            Ok(false) | Err(NotWritten::Stopped) => return,
            Ok(true) => {
                let seconds = begin.elapsed().as_secs_f64();
                tracing::info!(seconds, "wrote the filters of codes to their file");
            }
            // The damage is reported.
            Err(NotWritten::Damaged) => {}
            Err(NotWritten::Failed(error)) => {
                tracing::warn!("cannot write the filters of codes to {}: {error}", self.path.display());
            }
        }
        // Without the file, the cores get the codes one by one.
        if (self.awaited.is_some() || self.owes_ruled) && !self.send_codes() {
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
        }
        // After a failure, the next attempt comes after as many changes.
        (self.written_at, self.is_worn) = (Some(changes), false);
    }

    fn order(&self) -> FilterOrder<'_> {
        let FilterNode { links, hasher, .. } = &self.node;
        FilterOrder { links, path: &self.path, hasher: *hasher, disk: &self.disk, stop: &self.stop, pauses: true }
    }

    /// Tells the cores which links may have redirect rules, and writes the file with all later codes if `is_due`.
    /// Returns true if a file was written.
    fn bring_up_to_date(&mut self, links: usize, is_due: bool) -> Result<bool, NotWritten> {
        let size = FilterSize::for_links(links, self.node.cores);
        let Some(old) = loading::usable_file(&self.node, &self.path) else { return self.rebuild(size) };
        let Some(later) = later_codes(&self.order(), old.head.key.position)? else { return self.rebuild(size) };
        if self.owes_ruled {
            match old.ruled() {
                Ok(mut bits) => {
                    bits.add(&later.ruled);
                    self.settle_ruled(bits);
                }
                Err(why) => {
                    loading::give_up(&self.path, &why);
                    return self.rebuild(size);
                }
            }
        }
        let is_full = old.head.codes > (old.head.codes_of_core * self.node.cores.get()) as u64;
        if self.is_worn || is_full || 2 * old.head.stale > old.head.codes {
            return self.rebuild(size);
        }
        if !is_due {
            return Ok(false);
        }
        let updated = update(&self.order(), &old, later);
        match updated {
            Ok(()) => Ok(true),
            Err(NotUpdated::Unusable(why)) => {
                loading::give_up(&self.path, &why);
                self.rebuild(size)
            }
            Err(NotUpdated::NotWritten(why)) => Err(why),
        }
    }

    /// Tells the cores which links may have redirect rules, if they do not know it yet.
    fn settle_ruled(&mut self, bits: RuledBits) {
        if std::mem::take(&mut self.owes_ruled) {
            self.node.tell_ruled(Some(bits));
        }
    }

    /// Builds the file from the store, and gives the cores what they await of it. Returns true.
    fn rebuild(&mut self, size: FilterSize) -> Result<bool, NotWritten> {
        let BuiltFilter { file, ruled, damaged } = build(&self.order(), size)?;
        damaged.iter().for_each(|range| report_range(&self.node.stats, range));
        self.settle_ruled(ruled);
        if self.awaited.is_some() {
            if !damaged.is_empty() {
                let ranges: Arc<[DamagedRange]> = damaged.as_slice().into();
                let mailboxes = self.node.mailboxes.all();
                mailboxes.iter().for_each(|mailbox| mailbox.post(ToCore::LoadDamaged(Arc::clone(&ranges))));
            }
            match self.node.send_blocks(&file, FILTER_SENT_MAX, &self.stop) {
                Ok(true) => {}
                Ok(false) => return Err(NotWritten::Stopped),
                Err(why) => return Err(NotWritten::Failed(format!("what was written cannot be read back: {why}"))),
            }
            self.node.broadcast(|| StoredCodes::End { is_whole: true });
            self.awaited = None;
        }
        if damaged.is_empty() { Ok(true) } else { Err(NotWritten::Damaged) }
    }

    /// Sends every core its codes, and tells the cores which links may have redirect rules if they do not know it yet.
    /// Returns true if they got all of them.
    fn send_codes(&mut self) -> bool {
        let start = Instant::now();
        // Before the read: a later commit reaches its owner as a change, after this message.
        self.node.broadcast(|| StoredCodes::Begin);
        let read = self.read_codes();
        self.node.broadcast(|| StoredCodes::End { is_whole: read.is_some() });
        let Some((codes, ruled)) = read else {
            if !self.stop.load(Ordering::Acquire) {
                tracing::warn!("cannot rebuild the filters of codes: parts of the store cannot be read");
            }
            return false;
        };
        self.awaited = None;
        self.settle_ruled(ruled);
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(codes, seconds, "rebuilt the filters of codes from the store");
        true
    }

    /// Sends all codes of the store. Returns their number and those whose links may have redirect rules; `None` if some
    /// could not be read, or the thread is stopping.
    fn read_codes(&self) -> Option<(u64, RuledBits)> {
        let mut batches = CodeBatches::new(&self.node, &self.stop, CODES_IN_FLIGHT_MAX);
        let mut ruled = RuledBits::default();
        for part in key_ranges() {
            let unread = scan_codes((&self.node.links, self.node.hasher), part, &mut ruled, |hash| {
                batches.push(hash);
                !self.stop.load(Ordering::Acquire)
            });
            // A filter that lacks an existing code would hide its link.
            if !unread.is_ok_and(|unread| unread.is_empty()) || self.stop.load(Ordering::Acquire) {
                return None;
            }
        }
        batches.send_all();
        Some((batches.sent, ruled))
    }
}

#[cfg(test)]
mod tests;
