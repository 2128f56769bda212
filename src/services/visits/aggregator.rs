//! The aggregator of visits: all counts of a node, and the way they take to the disk.
//!
//! Visits are first counted in `fresh`. Twice a second these go to the log, and into the tallies of their hour. A
//! *fold* begins when an hour is over, or when the tallies or the log are large. It begins a new log, and writes the
//! tallies of the old one to the store: as rows under the number of that log, some at a time. Once all rows are synced,
//! a mark says so, and the log is removed. Rows of a log without a mark do not count; its tallies do, from memory or
//! read back from the log. So a crash at any point counts each visit once.
//!
//! Subjects with many rows have them merged into one.
//!
//! The end of a link is in the store before this module hears of it, and stays there until the log has it.
//!
//! In a fleet, the batches of other nodes take the same way, with a number each (`fleet`). Tallies and rows of different
//! nodes stay apart, and readers add them up.

mod compaction;
pub(super) mod fleet;
mod progress;
mod recovery;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use carom_shards::Code;

use self::progress::SubjectSearch;
use self::recovery::{Recovered, recover};
use super::fleet_counts::{self, FleetFolds};
use super::fold::{FOLD_STEP, Fold, Period};
use super::groups::{Apps, Unstored};
use super::intake::{Intake, locked, tally_of};
use super::log::{self, Log};
use super::stored_rows::{add_stored, damaged};
use super::top_links::TopLinks;
use carom_limits::{VISITS_LOG_BYTES, VISITS_TALLIED_BYTES};
use carom_model::visits::VisitReceiver;
use carom_model::visits::batches::{FleetCounts, OriginBatches};
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::OriginSlot;
use carom_model::visits::tally::{Subject, Tally, VisitCounts, name_of_day};
use carom_store::links::{Ended, Links, RowPlace, StoreError, VisitRow};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Time for which a ranking by visits stays valid, in milliseconds: to make one, all candidates are looked up.
const RANKED_FOR_MS: u64 = 5_000;

/// The part of the log that a power failure could take.
pub(super) struct Unsynced {
    file: Arc<File>,
    links: Links,
    /// Links whose end it notes.
    ended: Vec<Ended>,
    /// The batches that it has for other nodes.
    batches: OriginBatches,
}

impl Unsynced {
    /// Syncs it, and returns its batches for other nodes. Then the store may forget which links have ended; if it forgot
    /// too late, the next process would take that for another end.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn sync(self) -> Result<OriginBatches, StoreError> {
        self.file.sync_data().map_err(|error| StoreError::Failed(error.to_string()))?;
        if !self.ended.is_empty() {
            let mut batch = self.links.batch();
            self.ended.iter().for_each(|ended| batch.forget_ended(ended));
            self.links.commit(batch)?;
            self.links.sync()?;
        }
        Ok(self.batches)
    }
}

pub(super) struct VisitAggregator {
    dir: PathBuf,
    links: Links,
    stats: Arc<NodeStats>,
    intake: Arc<Mutex<Intake>>,
    ended: Receiver<Vec<Ended>>,
    hour: u32,
    now_ms: u64,
    /// Visits of the current hour since the last write to the log, and links that have ended since.
    fresh: Tally,
    fresh_ended: Vec<Ended>,
    /// The time since which they could not be written.
    unlogged_since_ms: Option<u64>,
    /// True if rows of these links could not be removed, because there was no room.
    has_rows_left: bool,
    /// Links whose end is in the log, but not synced.
    logged_ended: Vec<Ended>,
    /// Visits since the last fold, by origin and hour. The log has them.
    tallies: Vec<(Period, Tally)>,
    log: Log,
    /// The origins of counts in a fleet, and the batches for other nodes.
    fleet: FleetCounts,
    folding: FleetFolds,
    /// The tallies of earlier logs that are being folded, oldest first.
    folds: VecDeque<Fold>,
    /// The number of the last log whose rows are all stored.
    folded: u32,
    /// The search for subjects with many rows.
    search: SubjectSearch,
    /// The names of the subjects in the snapshot being received; `None` if no snapshot is, or it has more of them than
    /// [`SNAPSHOT_NAMES_NOTED`](carom_limits::SNAPSHOT_NAMES_NOTED).
    snapshot_names: Option<Vec<Vec<u8>>>,
    top_links: TopLinks,
    /// The counts of the candidates when a ranking was last asked for, and that time.
    ranked: Vec<(Code, VisitCounts)>,
    ranked_ms: u64,
    /// True if the candidates were those of all links when they were last asked for.
    takes_all: bool,
    /// True if the ranking was made of such candidates.
    ranks_all: bool,
    /// True once a write has failed: from then on nothing is stored.
    failed: bool,
}

impl VisitAggregator {
    pub(super) fn open(
        dir: &Path,
        links: Links,
        receivers: Vec<VisitReceiver>,
        ended: Receiver<Vec<Ended>>,
        stats: Arc<NodeStats>,
    ) -> io::Result<VisitAggregator> {
        std::fs::create_dir_all(dir)?;
        let folded = links.visits_folded().map_err(io::Error::other)?;
        // Links that ended so shortly before a crash that the log may lack them.
        let ended_last = links.visits_ended().map_err(io::Error::other)?;
        let mut fleet = FleetCounts::new(links.visit_origins().map_err(io::Error::other)?);
        let Recovered { folds, gone, last } = recover(dir, folded, &mut fleet)?;
        // A log that a crash may have torn is never appended to.
        let log = Log::begin(dir, last + 1)?;
        fleet.end_recovery(last);
        let mut aggregator = VisitAggregator {
            dir: dir.to_owned(),
            links,
            intake: Arc::new(Mutex::new(Intake::new(receivers, Arc::clone(&stats)))),
            stats,
            ended,
            hour: 0,
            now_ms: 0,
            fresh: Tally::default(),
            fresh_ended: Vec::new(),
            unlogged_since_ms: None,
            has_rows_left: false,
            logged_ended: Vec::new(),
            tallies: Vec::new(),
            log,
            fleet,
            folding: FleetFolds::default(),
            folds,
            folded,
            search: SubjectSearch::default(),
            snapshot_names: None,
            top_links: TopLinks::default(),
            ranked: Vec::new(),
            ranked_ms: 0,
            takes_all: false,
            ranks_all: false,
            failed: false,
        };
        for (slot, codes) in gone {
            aggregator.forget_stored(&codes, |aggregator, of| aggregator.fleet.ends(slot, of));
        }
        aggregator.forget(ended_last);
        Ok(aggregator)
    }

    /// Returns the intake, which another thread uses to empty the rings.
    pub(super) fn intake(&self) -> Arc<Mutex<Intake>> {
        Arc::clone(&self.intake)
    }

    /// Empties the rings, and takes over what the intake has counted.
    pub(super) fn collect(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        // Ended links are taken first: visits that come after may belong to another link of the same code.
        let ended: Vec<Ended> = self.ended.try_iter().flatten().collect();
        let weight = self.weight();
        let taken = {
            let mut intake = locked(&self.intake);
            intake.drain(now_ms);
            intake.take(weight)
        };
        for (hour, tally) in taken {
            self.turn_to(hour);
            if self.fresh.is_empty() {
                self.fresh = tally;
            } else {
                self.fresh.add(&tally);
            }
        }
        self.turn_to((now_ms / 3_600_000) as u32);
        if !ended.is_empty() {
            self.forget(ended);
        }
    }

    /// Begins an hour, if it is a new one.
    fn turn_to(&mut self, hour: u32) {
        if hour == self.hour {
            return;
        }
        self.write_log();
        // Visits that could not be written belong to the last hour, and so do those that are added to them.
        if self.fresh.is_empty() {
            self.hour = hour;
        }
    }

    /// Returns the memory for visits that are not in the store, in bytes.
    fn weight(&self) -> usize {
        self.not_stored().map(|(_, tally)| tally.weight()).sum()
    }

    /// True if a fold is in progress and should end soon, because many visits were counted since it began.
    pub(super) fn is_pressed(&self) -> bool {
        !self.folds.is_empty() && self.weight() > VISITS_TALLIED_BYTES / 2
    }

    /// Drops the visits of links that have ended.
    fn forget(&mut self, ended: Vec<Ended>) {
        let codes: Vec<Code> = ended.iter().map(|ended| ended.code).collect();
        for code in &codes {
            let subject = Subject::Link(*code);
            let folding = self.folds.iter_mut().flat_map(|fold| &mut fold.tallies);
            folding.chain(&mut self.tallies).for_each(|(_, tally)| tally.remove(&subject));
            self.fresh.remove(&subject);
        }
        self.forget_stored(&codes, |_, _| true);
        self.fleet.note_ended(&codes);
        // The store keeps the ends for the next process.
        if !self.failed {
            self.fresh_ended.extend(ended);
        }
    }

    /// Removes the rows of links in those slots for which `is_of` is true.
    fn forget_stored(&mut self, codes: &[Code], is_of: impl Fn(&VisitAggregator, OriginSlot) -> bool) {
        if self.failed {
            return;
        }
        if !self.may_write() {
            self.has_rows_left = true;
            return;
        }
        self.remove_rows(codes, is_of).unwrap_or_else(|error| self.fail(&error));
    }

    fn remove_rows(
        &self,
        codes: &[Code],
        is_of: impl Fn(&VisitAggregator, OriginSlot) -> bool,
    ) -> Result<(), StoreError> {
        let mut batch = self.links.batch();
        for code in codes {
            let rows = match self.links.visits_of(&Subject::Link(*code).name()) {
                // Damaged rows are never shown, so they may stay. The others are removed.
                Err(StoreError::Damaged(what)) => {
                    self.damaged(&what);
                    continue;
                }
                rows => rows?,
            };
            // The writer removes visits from before an import, in the commit that ends the link.
            let rows = rows.iter().filter(|row| !row.place.is_of_writer() && is_of(self, row.place.slot));
            rows.for_each(|row| batch.remove_visits(&row.key));
        }
        if batch.is_empty() { Ok(()) } else { self.links.commit(batch) }
    }

    /// Writes the visits since the last call to the log.
    pub(super) fn write_log(&mut self) {
        // Without room, they stay in memory until there is some again.
        if self.may_write() && !(self.fresh.is_empty() && self.fresh_ended.is_empty()) {
            self.log_fresh();
        }
        self.unlogged_since_ms = (!self.fresh.is_empty()).then(|| self.unlogged_since_ms.unwrap_or(self.now_ms));
    }

    fn log_fresh(&mut self) {
        let ended: Vec<Code> = self.fresh_ended.iter().map(|ended| ended.code).collect();
        if std::mem::take(&mut self.has_rows_left) {
            self.forget_stored(&ended, |_, _| true);
        }
        let content = log::encode_content(&ended, &self.fresh);
        match self.log.write(self.fleet.next_own(), self.hour, &content) {
            Ok(()) => {
                self.fleet.add_own(self.hour, content);
                self.enter_fresh();
            }
            // The disk has become full since the writer last looked: they stay in memory until there is room again.
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {}
            Err(error) => self.fail(&error),
        }
    }

    /// Takes the part of the log written since the last call, to be synced without a lock.
    pub(super) fn take_unsynced(&mut self) -> Option<Unsynced> {
        let file = self.log.take_unsynced()?;
        let (ended, batches) = (std::mem::take(&mut self.logged_ended), self.fleet.take_unsynced());
        Some(Unsynced { file, links: self.links.clone(), ended, batches })
    }

    /// Notes the result of a sync.
    pub(super) fn synced(&mut self, synced: Result<OriginBatches, StoreError>) {
        match synced {
            Ok(batches) => self.fleet.add_synced(batches),
            Err(error) => self.fail(&error),
        }
    }

    /// Moves fresh counts to the tallies, once they are in the log.
    fn enter_fresh(&mut self) {
        self.logged_ended.append(&mut self.fresh_ended);
        let fresh = std::mem::take(&mut self.fresh);
        let tally = tally_of(&mut self.tallies, Period { slot: self.fleet.own_slot(), hour: self.hour });
        let visits = |tally: &Tally| tally.row(&Subject::All).counts.total;
        let before = if cfg!(debug_assertions) { visits(tally) } else { 0 };
        tally.add(&fresh);
        debug_assert_eq!(visits(tally), before.saturating_add(visits(&fresh)), "visits were lost or counted twice");
        let (mut links, has_room) = (Vec::new(), self.top_links.has_room());
        fresh.each(|subject, row| match subject {
            Subject::Link(code) if row.counts.total > 1 || has_room => links.push((code, row.counts.total > 1)),
            _ => {}
        });
        self.note_candidates(links.into_iter());
    }

    /// Notes links that were visited as candidates of the ranking, each with true if it was visited more than once. With
    /// a single visit in that time, a link cannot rise far above many others before the next search.
    fn note_candidates(&mut self, links: impl Iterator<Item = (Code, bool)>) {
        for (code, is_repeated) in links {
            if is_repeated || self.top_links.has_room() {
                let subject = Subject::Link(code);
                self.top_links
                    .note_visited(code, self.tallies.iter().map(|(_, tally)| tally.counts(&subject).total).sum());
            }
        }
    }

    /// Returns the links whose apps the next step needs.
    pub(super) fn next_links(&self) -> Vec<Code> {
        self.folds.front().map(Fold::next_links).unwrap_or_default()
    }

    /// Does one step of the work that is not urgent. `apps` must know the links of [`VisitAggregator::next_links`].
    pub(super) fn run_step(&mut self, apps: &Apps) {
        if !self.may_write() {
            // Memory is bounded: visits that cannot be stored are dropped and counted as such.
            if self.fresh.weight() > VISITS_TALLIED_BYTES {
                self.stats.visits_dropped.add_shared(self.fresh.row(&Subject::All).counts.total);
                self.fresh = Tally::default();
            }
            return;
        }
        let done = match self.folds.pop_front() {
            Some(mut fold) => {
                let done = self.fold_some(&mut fold, apps);
                // Until its rows count, the tallies in memory do.
                if self.folded < fold.seq {
                    self.folds.push_front(fold);
                }
                done
            }
            None if self.is_fold_due() => self.begin_fold(),
            None => self.compact_some(),
        };
        done.unwrap_or_else(|error| self.fail(&error));
    }

    fn may_write(&self) -> bool {
        !self.failed && !self.stats.writes_refused.load(Ordering::Acquire)
    }

    fn is_fold_due(&self) -> bool {
        let is_over = self.tallies.iter().any(|(period, _)| fleet_counts::is_over(&self.fleet, period.hour, self.hour));
        let bytes: usize = self.tallies.iter().map(|(_, tally)| tally.weight()).sum();
        // Half, so that visits can be counted while these are written.
        is_over && self.folding.may_end_hour(&self.fleet, self.now_ms)
            || self.folding.is_asked()
            || bytes > VISITS_TALLIED_BYTES / 2
            || self.log.len > VISITS_LOG_BYTES
    }

    /// Asks for a fold. Returns the number of the log that is being written, which is removed once it is folded.
    pub(super) fn ask_fold(&mut self) -> u32 {
        self.folding.ask();
        self.log.seq
    }

    /// True if a log is folded, so that its counts are in the store, and its file is removed.
    pub(super) fn is_folded(&self, log: u32) -> bool {
        self.folded >= log
    }

    fn begin_fold(&mut self) -> Result<(), StoreError> {
        let next = self.log.next().map_err(|error| StoreError::Failed(error.to_string()))?;
        let seq = std::mem::replace(&mut self.log, next).seq;
        // The end of the log was synced just now.
        let unsynced = self.fleet.take_unsynced();
        self.fleet.add_synced(unsynced);
        self.folding.begin(self.now_ms);
        let tallies = std::mem::take(&mut self.tallies);
        assert!(self.log.seq > seq, "the rows of two logs would replace each other");
        assert!(self.folds.back().is_none_or(|last| last.seq < seq), "logs are folded in their order");
        self.folds.push_back(Fold::new(seq, tallies, self.fleet.take_reached()));
        Ok(())
    }

    fn fold_some(&mut self, fold: &mut Fold, apps: &Apps) -> Result<(), StoreError> {
        assert!(fold.seq > self.folded, "rows that count already would be replaced");
        let mut batch = self.links.batch();
        let is_done = fold.put_some(&mut batch, apps);
        if !batch.is_empty() {
            self.links.commit(batch)?;
        }
        if !is_done {
            return Ok(());
        }
        assert!(
            self.folds.front().is_none_or(|next| next.seq > fold.seq),
            "the mark would cover a log whose rows are not stored"
        );
        assert!(self.log.seq > fold.seq, "the log that is being written would be removed");
        // The rows are synced before the mark that says so.
        self.links.sync()?;
        let mut batch = self.links.batch();
        batch.set_visits_folded(fold.seq);
        fleet_counts::end_fold(&mut self.fleet, &fold.reached, &mut batch);
        self.links.commit(batch)?;
        self.links.sync()?;
        self.folded = fold.seq;
        for seq in log::seqs(&self.dir).unwrap_or_default() {
            if seq <= self.folded {
                // A log that stays is removed at the next start.
                let _ = log::remove(&self.dir, seq);
            }
        }
        Ok(())
    }

    /// Returns the links that may be among the most visited ones, if the ranking is out of date.
    pub(super) fn take_candidates(&mut self) -> Option<Vec<Code>> {
        if self.now_ms < self.ranked_ms + RANKED_FOR_MS {
            return None;
        }
        (self.ranked_ms, self.takes_all) = (self.now_ms, self.top_links.has_searched());
        let fresh = self.fresh.subjects().filter_map(|subject| match subject {
            Subject::Link(code) => Some(code),
            Subject::All | Subject::Orphans => None,
        });
        let mut codes: Vec<Code> = self.top_links.candidates().into_iter().chain(fresh.take(FOLD_STEP)).collect();
        codes.sort_unstable();
        codes.dedup();
        Some(codes)
    }

    /// Sets the ranking from the counts of the candidates.
    pub(super) fn rank(&mut self, counted: impl Iterator<Item = (Code, VisitCounts)>) {
        self.ranked = counted.filter(|(_, counts)| counts.total > 0).collect();
        self.ranks_all = self.takes_all;
    }

    /// True if the ranking is that of all links. Until a search has ended, it has only those that were visited since the start.
    pub(super) fn ranks_all(&self) -> bool {
        self.ranks_all
    }

    /// Returns the most visited links, as of some seconds ago.
    pub(super) fn most_visited(&self, count: usize, without_bots: bool) -> Vec<Code> {
        let key =
            |counts: &VisitCounts| if without_bots { counts.total.saturating_sub(counts.bots) } else { counts.total };
        let mut ranked: Vec<(Code, u64)> = self.ranked.iter().map(|(code, counts)| (*code, key(counts))).collect();
        ranked.sort_unstable_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
        ranked.into_iter().take(count).map(|(code, _)| code).collect()
    }

    /// Returns the number of visits of each subject, as of the last time the rings were emptied.
    pub(super) fn counts(&self, subjects: &[Subject]) -> Result<Vec<VisitCounts>, StoreError> {
        let wanted: Vec<Vec<u8>> = subjects.iter().map(Subject::name).collect();
        let mut names = wanted.clone();
        names.sort_unstable();
        names.dedup();
        let mut stored = vec![VisitCounts::default(); names.len()];
        self.links.visits_of_each(&names, |at, place, value| {
            if self.is_live(place) {
                // Both forms of a row begin with the counts.
                stored[at].add(VisitCounts::decode(&mut &value[..]).ok_or_else(|| damaged(&names[at]))?);
            }
            Ok(())
        })?;
        let stored_of = |name: &Vec<u8>| names.binary_search(name).map(|at| stored[at]).unwrap_or_default();
        let mut counts: Vec<VisitCounts> = wanted.iter().map(stored_of).collect();
        for (_, tally) in self.not_stored() {
            subjects.iter().zip(&mut counts).for_each(|(subject, counts)| counts.add(tally.counts(subject)));
        }
        Ok(counts)
    }

    /// True if a row counts. Then its log has a mark, its slot has had no other origin since, and no snapshot of its
    /// origin has replaced it or is unfinished. Visits from before an import always count.
    fn is_live(&self, place: RowPlace) -> bool {
        let table = self.fleet.table();
        let counts = || table.is_counted(place.slot) && place.is_since(table.since(place.slot));
        place.is_earlier() || place.log <= self.folded && counts()
    }

    /// True if a row can be removed: no origin has its slot, or a later one.
    fn is_disused(&self, row: &VisitRow) -> bool {
        let (place, table) = (row.place, self.fleet.table());
        !place.is_of_writer() && (table.is_disused(place.slot) || !place.is_since(table.since(place.slot)))
    }

    /// Returns the history of a subject, as of the last time the rings were emptied.
    pub(super) fn history(&self, subject: Subject) -> Result<VisitHistory, StoreError> {
        let mut history = self.stored(&subject.name())?;
        self.not_stored().for_each(|(hour, tally)| history.add(hour, &tally.row(&subject)));
        Ok(history)
    }

    /// Returns the stored part of a history.
    pub(super) fn stored(&self, name: &[u8]) -> Result<VisitHistory, StoreError> {
        let mut history = VisitHistory::default();
        for row in self.links.visits_of(name)? {
            if self.is_live(row.place) {
                add_stored(&mut history, &row)?;
            }
        }
        Ok(history)
    }

    /// Iterates over the tallies that are not stored, or whose rows do not count yet, by hour.
    fn not_stored(&self) -> impl Iterator<Item = (u32, &Tally)> {
        let tallies = self.folds.iter().flat_map(|fold| &fold.tallies).chain(&self.tallies);
        tallies.map(|(period, tally)| (period.hour, tally)).chain([(self.hour, &self.fresh)])
    }

    /// Returns the visits of some hours that are not stored, by groups of links.
    pub(super) fn unstored(&self, hours: &Range<u32>) -> Unstored {
        Unstored::of(self.not_stored().filter(|(hour, _)| hours.contains(hour)).map(|(_, tally)| tally))
    }

    /// Returns the store, which can be read without the lock of the aggregator.
    pub(super) fn links(&self) -> Links {
        self.links.clone()
    }

    /// Returns the visits by referring host on `days`, counted from 1970 UTC, summed over all links. Each hour has only
    /// its most frequent hosts.
    pub(super) fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        let mut all = HashMap::new();
        let mut add = |hosts: Vec<(Box<[u8]>, u64)>| {
            hosts.into_iter().for_each(|(host, count)| *all.entry(host).or_default() += count);
        };
        for row in self.links.visits_between(&name_of_day(*days.start()), &name_of_day(*days.end()))? {
            if self.is_live(row.place) {
                let mut history = VisitHistory::default();
                add_stored(&mut history, &row)?;
                add(history.all.hosts);
            }
        }
        self.not_stored()
            .filter(|(hour, _)| days.contains(&(hour / 24)))
            .for_each(|(_, tally)| add(tally.row(&Subject::All).hosts));
        Ok(all)
    }

    fn damaged(&self, what: &str) {
        self.stats.store_damaged.add_shared(1);
        let text = format!("stored visit counts cannot be read ({what}); the affected counts restart at zero");
        self.stats.alarms.raise(Alarm::VisitsDamaged, text);
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.failed, true) {
            self.stats.store_errors.add_shared(1);
            // The store keeps the ends for the next process.
            self.fresh_ended = Vec::new();
            let text = format!(
                "visits cannot be stored ({error}); carom counts in memory, and a restart loses these visits; check the disk, then restart"
            );
            self.stats.alarms.raise(Alarm::VisitsFailed, text);
        }
    }
}

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;
