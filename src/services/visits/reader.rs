//! The counts of visits for other threads, and the thread that writes them to the log and the store.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::aggregator::VisitAggregator;
use super::groups::Apps;
use super::intake::{COLLECT_BUSY, COLLECT_EVERY};
use carom_model::query::GroupCounts;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, VisitCounts, VisitGroup};
use carom_store::links::StoreError;
use carom_telemetry::clock::unix_ms;

/// Interval between two writes to the log. With the time of the write, a crash loses less than a second of visits.
const LOG_EVERY: Duration = Duration::from_millis(500);

/// Number of links counted under one lock, before other threads get their turn: about a millisecond.
const COUNTED_PER_LOCK: usize = 256;

/// The counts of visits, for any thread that needs them. Cheap to clone.
#[derive(Clone)]
pub struct VisitReader {
    pub(super) aggregator: Arc<Mutex<VisitAggregator>>,
}

impl std::fmt::Debug for VisitReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visits")
    }
}

impl VisitReader {
    pub(super) fn aggregator(&self) -> MutexGuard<'_, VisitAggregator> {
        self.aggregator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes counts to the log and the store until the node ends, and wakes the thread that sends them to other nodes.
    pub(super) fn write(&self, until: &AtomicBool, sender: Option<&Thread>) {
        let mut logged = Instant::now();
        while !until.load(Ordering::Acquire) {
            self.aggregator().collect(unix_ms());
            if logged.elapsed() >= LOG_EVERY {
                logged = Instant::now();
                self.log();
                if let Some(sender) = sender {
                    sender.unpark();
                }
            }
            self.run_step();
            let is_pressed = self.aggregator().is_pressed();
            std::thread::park_timeout(if is_pressed { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.aggregator().collect(unix_ms());
        self.log();
    }

    /// Does a step of the work that is not urgent. The links are looked up without the lock of the aggregator, so
    /// readers of counts need not wait for the store.
    pub(super) fn run_step(&self) {
        let (links, codes) = {
            let aggregator = self.aggregator();
            (aggregator.links(), aggregator.next_links())
        };
        let apps = Apps::look_up(&links, codes, None).unwrap_or_default();
        self.aggregator().run_step(&apps);
    }

    /// Writes to the log and syncs it. The sync runs without the lock of the aggregator, so readers of counts need not
    /// wait for the disk.
    fn log(&self) {
        let unsynced = {
            let mut aggregator = self.aggregator();
            aggregator.write_log();
            aggregator.take_unsynced()
        };
        if let Some(unsynced) = unsynced {
            let synced = unsynced.sync();
            self.aggregator().synced(synced);
        }
        // An error does no harm: an old mark is worse than a new one, but better than none, and a failing disk is
        // noticed elsewhere.
        let links = self.aggregator().links();
        let _ = links.flush_mark();
    }

    /// Asks for a fold, so that the counts of ended links leave the log. Returns the number of the log.
    pub fn ask_fold(&self) -> u32 {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.ask_fold()
    }

    /// True if a log is folded and removed.
    pub fn is_folded(&self, log: u32) -> bool {
        self.aggregator().is_folded(log)
    }

    /// Returns the visits of the links with these codes, in their order. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        self.aggregator().collect(unix_ms());
        self.counts_so_far(codes)
    }

    /// Returns the visits of a link that this node has counted itself. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn own_counts(&self, code: Code) -> Result<VisitCounts, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.own_counts(code)
    }

    fn counts_so_far(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
        let mut counts = Vec::with_capacity(codes.len());
        for some in codes.chunks(COUNTED_PER_LOCK) {
            let subjects: Vec<Subject> = some.iter().copied().map(Subject::Link).collect();
            counts.extend(self.aggregator().counts(&subjects)?);
        }
        Ok(counts)
    }

    /// Returns the codes of the most visited links, at most `count` of them, most visited first. The ranking may be
    /// some seconds old.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn most_visited(&self, count: usize, without_bots: bool) -> Result<Vec<Code>, StoreError> {
        let candidates = {
            let mut aggregator = self.aggregator();
            aggregator.collect(unix_ms());
            aggregator.take_candidates()
        };
        if let Some(codes) = candidates {
            let counts = self.counts_so_far(&codes)?;
            self.aggregator().rank(codes.into_iter().zip(counts));
        }
        Ok(self.aggregator().most_visited(count, without_bots))
    }

    /// True if the last ranking is that of all links. Soon after a start, it has only links that were visited since.
    pub fn ranks_all(&self) -> bool {
        self.aggregator().ranks_all()
    }

    /// Returns the visits by referring host on `days`, counted from 1970 UTC, summed over all links. Blocks for the
    /// store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.referrers(days)
    }

    /// Returns the history of the visits of a subject. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn history(&self, subject: Subject) -> Result<VisitHistory, StoreError> {
        let mut aggregator = self.aggregator();
        aggregator.collect(unix_ms());
        aggregator.history(subject)
    }

    /// Returns the visits of groups of links within `hours`, counted from 1970 UTC. Without `hours`, returns all visits, also
    /// those from before an import, which have no hour.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn of_groups(&self, groups: &[VisitGroup], hours: Option<Range<u32>>) -> Result<GroupCounts, StoreError> {
        let (mut counts, mut unstored, links) = {
            let mut aggregator = self.aggregator();
            aggregator.collect(unix_ms());
            let stored = groups.iter().map(|group| {
                let history = aggregator.stored(&group.name())?;
                Ok(hours.clone().map_or(history.all.counts, |hours| history.within(hours)))
            });
            let stored = stored.collect::<Result<Vec<VisitCounts>, StoreError>>()?;
            let unstored = aggregator.unstored(&hours.unwrap_or(0..u32::MAX));
            (stored, unstored, aggregator.links())
        };
        let is_of_apps = groups.iter().any(|group| matches!(group, VisitGroup::App(_)));
        let is_whole = !is_of_apps || unstored.look_up_apps(&links);
        for (group, counts) in groups.iter().zip(&mut counts) {
            counts.add(unstored.of_groups.get(group).copied().unwrap_or_default());
        }
        Ok(GroupCounts { counts, is_whole })
    }
}
