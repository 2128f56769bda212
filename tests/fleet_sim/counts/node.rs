//! A node that counts: its log, its store, and the process in between.
//!
//! The order of writes and syncs is that of `services::visits::aggregator`. A power loss takes pieces of the log that were
//! not synced, from the end, and commits of the store that were not synced, from the end.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use carom_model::visits::batches::{BatchId, FleetCounts, LoggedPiece, VisitBatch};
use carom_model::visits::count_exchange::{OtherOrigins, OwnStream, STALE_AFTER, SeenRequests, WantedSnapshot};
use carom_model::visits::origins::{OriginId, OriginSlot, OriginTable};

use super::Guard;
use super::redis::Chunk;
use crate::rng::Rng;

/// Links that are visited.
pub(crate) const LINKS: u16 = 2;

/// The place of a row: link, slot, and the log that it came from; 0 for the rows of a snapshot.
type Place = (u16, OriginSlot, u32);

/// A piece of a log.
#[derive(Clone, Debug)]
struct Piece {
    batch: Option<BatchId>,
    content: Vec<u8>,
}

/// A log, and how many of its pieces are synced.
#[derive(Clone, Default, Debug)]
struct Log {
    pieces: Vec<Piece>,
    synced: usize,
}

/// The store after some commits.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rows {
    rows: BTreeMap<Place, Vec<u16>>,
    folded: u32,
    table: Option<Vec<u8>>,
}

/// A change of the store.
#[derive(Clone, Default, Debug)]
struct Commit {
    put: Vec<(Place, Vec<u16>)>,
    removed: Vec<Place>,
    folded: Option<u32>,
    table: Option<Vec<u8>>,
}

impl Rows {
    fn apply(&mut self, commit: &Commit) {
        commit.removed.iter().for_each(|place| _ = self.rows.remove(place));
        self.rows.extend(commit.put.iter().cloned());
        self.folded = commit.folded.unwrap_or(self.folded);
        self.table = commit.table.clone().or(self.table.take());
    }
}

/// The data directory of a node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Disk {
    logs: BTreeMap<u32, Log>,
    now: Rows,
    synced: Rows,
    unsynced: Vec<Commit>,
}

impl Disk {
    fn commit(&mut self, commit: Commit) {
        self.now.apply(&commit);
        self.unsynced.push(commit);
    }

    fn sync(&mut self) {
        self.synced = self.now.clone();
        self.unsynced.clear();
    }

    fn lose_power(&mut self, rng: &mut Rng) {
        let kept = rng.below(self.unsynced.len() + 1);
        for commit in self.unsynced.drain(..).take(kept) {
            self.synced.apply(&commit);
        }
        self.now = self.synced.clone();
        for log in self.logs.values_mut() {
            log.pieces.truncate(log.synced + rng.below(log.pieces.len() - log.synced + 1));
        }
    }

    /// The visits in the logs that are not folded.
    fn unfolded(&self) -> Vec<u16> {
        let logs = self.logs.iter().filter(|(seq, _)| **seq > self.now.folded);
        logs.flat_map(|(_, log)| &log.pieces).flat_map(|piece| visits_of(&piece.content)).collect()
    }

    /// The number of the last batch that the directory has as this origin; `None` if it is another one.
    pub(crate) fn last_batch_as(&self, id: OriginId) -> Option<u64> {
        let table = OriginTable::decode(self.now.table.as_ref()?).unwrap();
        let logged = self.logs.values().flat_map(|log| &log.pieces).filter_map(|piece| piece.batch);
        let own = logged.filter(|batch| batch.slot == table.own_slot()).map(|batch| batch.number);
        (table.own().id == id).then(|| own.max().unwrap_or(0).max(table.own().applied))
    }

    /// The visits in the logs and the store.
    pub(crate) fn everything(&self) -> BTreeSet<u16> {
        self.unfolded().into_iter().chain(self.now.rows.values().flatten().copied()).collect()
    }
}

/// A fold.
#[derive(Clone, Debug)]
struct Fold {
    seq: u32,
    tallies: BTreeMap<OriginSlot, Vec<u16>>,
    reached: HashMap<OriginSlot, u64>,
    is_put: bool,
}

/// A snapshot that is sent.
#[derive(Clone, Debug)]
pub(crate) struct Giving {
    pub(crate) request: String,
    rows: Vec<(u16, Vec<u16>)>,
    applied: u64,
    sent: u64,
    since: Duration,
}

impl Giving {
    /// The next chunk, and true for the last one.
    pub(crate) fn next_chunk(&mut self, now: Duration) -> (Chunk, bool) {
        self.since = now;
        let row = self.rows.pop();
        let is_last = self.rows.is_empty();
        let chunk = Chunk { number: self.sent, row, applied: is_last.then_some(self.applied) };
        self.sent += 1;
        (chunk, is_last)
    }

    /// True if the other node has not taken a chunk for long.
    pub(crate) fn is_stale(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= STALE_AFTER
    }
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) counts: FleetCounts,
    fresh: Vec<u16>,
    tallies: BTreeMap<OriginSlot, Vec<u16>>,
    log: u32,
    folds: VecDeque<Fold>,
    pub(crate) own: OwnStream,
    pub(crate) others: OtherOrigins,
    pub(crate) wanted: SeenRequests,
    pub(crate) taking: Option<WantedSnapshot>,
    pub(crate) giving: Option<Giving>,
    is_fold_asked: bool,
    /// True once the identity was compared with Redis, or that was tried: before, nothing is logged.
    pub(crate) is_checked: bool,
}

impl Process {
    /// True if another node waits for counts that are not in the store.
    pub(crate) fn is_fold_asked(&self) -> bool {
        self.is_fold_asked || !self.folds.is_empty()
    }
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) disk: Disk,
    /// `None` while it is down.
    pub(crate) process: Option<Process>,
    /// True if it is cut off from Redis.
    pub(crate) cut: bool,
    /// True if it is gone for good.
    pub(crate) is_gone: bool,
}

pub(crate) fn content_of(visits: &[u16]) -> Vec<u8> {
    visits.iter().flat_map(|visit| visit.to_le_bytes()).collect()
}

pub(crate) fn visits_of(content: &[u8]) -> Vec<u16> {
    content.chunks(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).collect()
}

impl Node {
    pub(crate) fn new(name: String) -> Node {
        Node { name, disk: Disk::default(), process: None, cut: false, is_gone: false }
    }

    /// Starts a process. `id` is the identity of a directory that has none.
    pub(crate) fn start(&mut self, id: OriginId, guard: Option<Guard>) {
        if guard != Some(Guard::Recovered) {
            self.disk.logs.values_mut().for_each(|log| log.synced = log.pieces.len());
        }
        let stored = self.disk.now.table.as_ref().map(|table| OriginTable::decode(table).unwrap());
        let mut counts = FleetCounts::new(stored);
        let (folded, mut folds, mut last) = (self.disk.now.folded, VecDeque::new(), self.disk.now.folded);
        self.disk.logs.retain(|seq, _| *seq > folded);
        for (seq, log) in &self.disk.logs {
            let mut tallies: BTreeMap<OriginSlot, Vec<u16>> = BTreeMap::new();
            for piece in &log.pieces {
                let logged = LoggedPiece { batch: piece.batch, hour: 1, content: &piece.content };
                if let Some(slot) = counts.recover(logged) {
                    tallies.entry(slot).or_default().extend(visits_of(&piece.content));
                }
            }
            last = *seq;
            folds.push_back(Fold { seq: *seq, tallies, reached: counts.take_reached(), is_put: false });
        }
        self.disk.logs.insert(last + 1, Log::default());
        counts.end_recovery(last);
        let is_new = !counts.table().has_identity();
        if is_new {
            counts.identify(id, &self.name, (false, false));
        }
        self.process = Some(Process {
            counts,
            fresh: Vec::new(),
            tallies: BTreeMap::new(),
            log: last + 1,
            folds,
            own: OwnStream::default(),
            others: OtherOrigins::default(),
            wanted: SeenRequests::default(),
            taking: None,
            giving: None,
            is_fold_asked: false,
            is_checked: false,
        });
        if is_new {
            self.store_origins();
        }
    }

    /// The process ends without warning, perhaps with its machine. Returns the visits that are lost with it.
    pub(crate) fn kill(&mut self, power: Option<&mut Rng>) -> Vec<u16> {
        let Some(process) = self.process.take() else { return Vec::new() };
        let mut lost = process.fresh;
        if let Some(rng) = power {
            let before = self.disk.unfolded();
            self.disk.lose_power(rng);
            let after = self.disk.unfolded();
            // A visit whose fold was lost is in the log again, so only those of the log can be lost.
            lost.extend(before.into_iter().filter(|visit| !after.contains(visit)));
        }
        lost
    }

    fn store_origins(&mut self) {
        let table = self.process.as_ref().map(|process| process.counts.table().encode());
        self.disk.commit(Commit { table, ..Commit::default() });
        self.disk.sync();
    }

    /// A visit is counted in memory.
    pub(crate) fn visit(&mut self, visit: u16) {
        self.process.as_mut().unwrap().fresh.push(visit);
    }

    /// Writes the visits since the last time to the log.
    pub(crate) fn write_log(&mut self, guard: Option<Guard>) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.is_checked) else { return false };
        if process.fresh.is_empty() {
            return false;
        }
        let fresh = std::mem::take(&mut process.fresh);
        let content = content_of(&fresh);
        let log = self.disk.logs.get_mut(&process.log).unwrap();
        log.pieces.push(Piece { batch: process.counts.next_own(), content: content.clone() });
        process.counts.add_own(1, content);
        process.tallies.entry(process.counts.own_slot()).or_default().extend(fresh);
        if guard == Some(Guard::Synced) {
            let unsynced = process.counts.take_unsynced();
            process.counts.add_synced(unsynced);
        }
        true
    }

    /// Syncs the log.
    pub(crate) fn sync_log(&mut self) -> bool {
        let Some(process) = self.process.as_mut() else { return false };
        let log = self.disk.logs.get_mut(&process.log).unwrap();
        let is_dirty = log.synced < log.pieces.len();
        log.synced = log.pieces.len();
        let unsynced = process.counts.take_unsynced();
        process.counts.add_synced(unsynced);
        is_dirty
    }

    /// Does a step of a fold, or begins one.
    pub(crate) fn fold(&mut self, guard: Option<Guard>) -> bool {
        let Some(process) = self.process.as_mut() else { return false };
        let Some(fold) = process.folds.front_mut() else { return self.begin_fold() };
        if !fold.is_put {
            fold.is_put = true;
            let mut commit = Commit::default();
            for (slot, visits) in &fold.tallies {
                for link in 0..LINKS {
                    let of_link: Vec<u16> = visits.iter().copied().filter(|visit| visit % LINKS == link).collect();
                    if !of_link.is_empty() {
                        commit.put.push(((link, *slot, fold.seq), of_link));
                    }
                }
            }
            self.disk.commit(commit);
            return true;
        }
        let fold = process.folds.pop_front().unwrap();
        let reached = if guard == Some(Guard::Reached) { HashMap::new() } else { fold.reached };
        let table = process.counts.end_fold(&reached).map(OriginTable::encode);
        self.disk.sync();
        self.disk.commit(Commit { folded: Some(fold.seq), table, ..Commit::default() });
        self.disk.sync();
        self.disk.logs.retain(|seq, _| *seq > fold.seq);
        true
    }

    fn begin_fold(&mut self) -> bool {
        let process = self.process.as_mut().unwrap();
        if process.tallies.is_empty() && !process.is_fold_asked {
            return false;
        }
        process.is_fold_asked = false;
        let log = self.disk.logs.get_mut(&process.log).unwrap();
        log.synced = log.pieces.len();
        let unsynced = process.counts.take_unsynced();
        process.counts.add_synced(unsynced);
        let (tallies, reached) = (std::mem::take(&mut process.tallies), process.counts.take_reached());
        process.folds.push_back(Fold { seq: process.log, tallies, reached, is_put: false });
        process.log += 1;
        self.disk.logs.insert(process.log, Log::default());
        true
    }

    /// Searches all rows: removes those of dropped slots, merges the others, and frees slots.
    pub(crate) fn search(&mut self, guard: Option<Guard>) -> bool {
        let Some(process) = self.process.as_mut() else { return false };
        if process.counts.table().dropped().next().is_none() {
            return false;
        }
        process.counts.begin_search(self.disk.now.folded);
        let table = process.counts.table();
        let leaves_rows = guard == Some(Guard::Emptied);
        let is_disused = |(_, slot, _): &&Place| table.is_disused(*slot) && !leaves_rows;
        let disused = self.disk.now.rows.keys().filter(is_disused).copied();
        let commit = Commit { removed: disused.collect(), ..Commit::default() };
        self.disk.commit(commit);
        if process.counts.end_search(true) {
            let table = Some(process.counts.table().encode());
            self.disk.commit(Commit { table, ..Commit::default() });
        }
        true
    }

    /// Counts a batch of another origin, in that slot.
    pub(crate) fn apply(&mut self, (id, slot): (OriginId, Option<OriginSlot>), batch: &VisitBatch) {
        let process = self.process.as_mut().unwrap();
        let (slot, is_new) = match slot {
            Some(slot) => (slot, false),
            None => process.counts.slot_for(id, "other").unwrap(),
        };
        if is_new {
            self.store_origins();
        }
        let process = self.process.as_mut().unwrap();
        let of = BatchId { slot, number: batch.number };
        let log = self.disk.logs.get_mut(&process.log).unwrap();
        log.pieces.push(Piece { batch: Some(of), content: batch.content.clone() });
        process.counts.note(of);
        process.tallies.entry(slot).or_default().extend(visits_of(&batch.content));
    }

    /// Gives the node another identity.
    pub(crate) fn renew(&mut self, id: OriginId) {
        let name = self.name.clone();
        self.process.as_mut().unwrap().counts.renew(id, &name);
        self.store_origins();
    }

    /// Begins to send what the store has of a slot.
    pub(crate) fn give(&mut self, request: String, (slot, applied): (OriginSlot, u64), since: Duration) {
        let mut by_link: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for ((link, of, log), visits) in &self.disk.now.rows {
            if *of == slot && *log <= self.disk.now.folded {
                by_link.entry(*link).or_default().extend(visits);
            }
        }
        let rows = by_link.into_iter().collect();
        self.process.as_mut().unwrap().giving = Some(Giving { request, rows, applied, sent: 0, since });
    }

    pub(crate) fn ask_for_fold(&mut self) {
        let process = self.process.as_mut().unwrap();
        process.is_fold_asked = process.folds.is_empty();
    }

    /// Begins a snapshot of an origin.
    pub(crate) fn begin_snapshot(&mut self, id: OriginId, guard: Option<Guard>) -> Option<OriginSlot> {
        let counts = &mut self.process.as_mut().unwrap().counts;
        if guard == Some(Guard::Building)
            && let Some((slot, _)) = counts.slot_for(id, "other")
        {
            self.store_origins();
            return Some(slot);
        }
        let slot = counts.begin_snapshot(id, "other");
        self.store_origins();
        slot
    }

    /// Stores a row of a snapshot.
    pub(crate) fn put_snapshot(&mut self, slot: OriginSlot, (link, visits): (u16, Vec<u16>)) {
        self.disk.commit(Commit { put: vec![((link, slot, 0), visits)], ..Commit::default() });
    }

    /// Ends a snapshot.
    pub(crate) fn end_snapshot(&mut self, slot: OriginSlot, applied: u64, guard: Option<Guard>) {
        self.disk.sync();
        let process = self.process.as_mut().unwrap();
        let replaced = match guard {
            Some(Guard::Building) => {
                process.counts.note(BatchId { slot, number: applied });
                None
            }
            _ => process.counts.end_snapshot(slot, applied, process.log),
        };
        if let Some(replaced) = replaced.filter(|_| guard != Some(Guard::Replaced)) {
            self.drop_counts(replaced);
        }
        self.store_origins();
    }

    /// Gives up a snapshot.
    pub(crate) fn give_up_snapshot(&mut self, slot: OriginSlot, guard: Option<Guard>) {
        if guard == Some(Guard::Building) {
            return;
        }
        let process = self.process.as_mut().unwrap();
        process.counts.give_up_snapshot(slot, process.log);
        self.drop_counts(slot);
        self.store_origins();
    }

    fn drop_counts(&mut self, slot: OriginSlot) {
        let process = self.process.as_mut().unwrap();
        process.folds.iter_mut().for_each(|fold| _ = fold.tallies.remove(&slot));
        process.tallies.remove(&slot);
    }

    /// Returns how often each visit counts on this node.
    pub(crate) fn totals(&self, guard: Option<Guard>) -> BTreeMap<u16, u32> {
        let Some(process) = &self.process else { return BTreeMap::new() };
        let table = process.counts.table();
        let is_live = |(_, slot, log): &Place| {
            (*log <= self.disk.now.folded || guard == Some(Guard::Mark)) && table.is_counted(*slot)
        };
        let rows = self.disk.now.rows.iter().filter(|(place, _)| is_live(place)).flat_map(|(_, visits)| visits);
        let folding = process.folds.iter().flat_map(|fold| fold.tallies.values()).flatten();
        let tallied = process.tallies.values().flatten().chain(&process.fresh);
        let mut totals = BTreeMap::new();
        rows.chain(folding).chain(tallied).for_each(|visit| *totals.entry(*visit).or_default() += 1);
        totals
    }
}
