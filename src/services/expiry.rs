//! The expiry thread: it removes expired links, and collects their codes for reuse after a quarantine.
//!
//! Redirects check the expiry themselves; this thread only cleans up. A link answers 410 from its expiry until it is
//! removed, and 404 from then on. The thread reads the index of ends from its beginning, a few entries at a time. It
//! has the writer remove the links, and the writer checks each link once more (see [`super::writer::planner`]). The
//! rate limit is `links.expire_per_second`. In a fleet, Redis is asked instead, and the removals that it accepts reach
//! all nodes through the streams (see [`super::replication::expiry`]).
//!
//! **Reuse of codes.** When an expired link with a generated code is removed, its code gets an entry for its quarantine
//! in the index of ends. Once the quarantine of enough codes has ended, four steps follow:
//!
//! 1. The writer removes the tombstones and entries of those codes whose tombstone is unchanged, in one commit, and
//!    syncs.
//! 2. The writer reports these codes.
//! 3. The codes are shuffled and written to the id table as a segment.
//! 4. The segment is used like any other, with its cursor on disk ahead of each code.
//!
//! Between the first and the third step, the codes are only in memory. So a crash loses up to a segment of them, but no
//! code can be in two places. A power failure may undo steps. The check of every code covers that: a code with a link
//! or a tombstone is never given to another link, whatever the id table says.
//!
//! In a fleet, the tombstone stays until every node has passed it, and gives way to another one that leaves the code free
//! (see `replication::expiry::recycling`). The third and the fourth step are the same.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeLength, GeneratedCode};

use super::replication::expiry::{FleetExpiry, RecycledCodes, Removed};
use crate::bridge::{RemovalResult, WriterOrder, WriterQueue};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{
    EDITS_KEPT_FOR, EXPIRE_BATCH, EXPIRY_COUNT_MAX, IDEMPOTENCY_FORGET_BATCH, RECYCLE_BATCH, RECYCLE_LEN,
    RECYCLE_WHILE_BELOW,
};
use carom_model::link::DueEvent;
use carom_store::links::{EndKind, Links, StoreError};
use carom_telemetry::clock::{unix_ms, unix_nanos};
use carom_telemetry::stats::NodeStats;

/// Interval between two reads of the index of ends while nothing is due.
const READ_DUE_EVERY: Duration = Duration::from_millis(250);

/// Pause after work that could not be done.
const REST: Duration = Duration::from_secs(1);

/// Interval at which links that could not be removed are tried again: another node had changed them, or a record was
/// unreadable.
const LEFT_EVERY: Duration = Duration::from_secs(10);

/// Interval at which everything that is due is looked at again, in any case.
const ALL_EVERY: Duration = Duration::from_secs(3_600);

/// Interval at which due links are counted while there are some.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Longest time for which fewer codes than a segment wait for more.
const GATHER_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Shortest interval between two looks for enough quarantine entries.
const QUARANTINE_EVERY: Duration = Duration::from_secs(10);

/// Interval between two looks at a part of the history of links, during a pass over it.
const EDITS_EVERY: Duration = Duration::from_secs(1);

/// Interval between two passes over the history of links.
const EDITS_REST: Duration = Duration::from_secs(60);

/// Time of one look at the history: some 20,000 entries.
const EDITS_TIME: Duration = Duration::from_millis(20);

/// Interval between two removals of old idempotency keys.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// Number of history entries that are read at once: a millisecond or two.
const EDITS_LOOKED_AT: usize = 2_000;

/// Largest number of batches per second, at a high rate limit.
const BATCHES_PER_SECOND: u32 = 100;

/// Inputs of the thread.
pub struct ExpirySetup {
    /// The store, to read from.
    pub links: Links,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The queue of the store's writer.
    pub writer: WriterQueue,
    /// The writer's reports on orders of this thread.
    pub removals: Receiver<RemovalResult>,
    /// Time after its end until a link is removed; `None` keeps it forever.
    pub keep: Option<Duration>,
    /// Largest number of links removed per second, at least 1.
    pub per_second: u32,
    /// Time for which the code of a removed link stays unused; `None` means forever.
    pub recycle_after: Option<Duration>,
    /// The configured length of new codes. Shorter codes are not reused.
    pub length: CodeLength,
    /// The receiver of codes to reuse, which makes segments of them.
    pub segments: Sender<Vec<GeneratedCode>>,
    /// The connection to the fleet's Redis; `None` for a single node.
    pub fleet: Option<FleetExpiry>,
}

/// A handle on the expiry thread.
pub struct ExpiryThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ExpiryThread {
    /// Stops the thread and waits for it. The writer must still be running.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread. All links must have been read back before, or a link that was read earlier and removed since
/// would get back into memory.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: ExpirySetup) -> io::Result<ExpiryThread> {
    assert!(setup.per_second > 0, "the pause after a batch would have no end");
    let stop = Arc::new(AtomicBool::new(false));
    let worker = ExpiryWorker::new(setup, Arc::clone(&stop));
    let thread = threads::start(Priority::Locking, "expire", move || worker.run())?;
    Ok(ExpiryThread { stop, thread })
}

struct ExpiryWorker {
    setup: ExpirySetup,
    stop: Arc<AtomicBool>,
    /// The entry that was looked at last.
    behind: Option<DueEvent>,
    /// The time when the current pass began at the start of the index.
    began: Instant,
    /// True if this pass has left a due link behind.
    has_left: bool,
    /// The time when due links were last counted.
    counted: Option<Instant>,
    /// The quarantine entry that was opened last.
    quarantine_behind: Option<DueEvent>,
    /// The time of the last look for quarantine entries.
    quarantine_looked: Option<Instant>,
    /// The history entry that was looked at last; empty between two passes.
    edits_behind: Vec<u8>,
    /// The time of the last look at the history.
    edits_looked: Option<Instant>,
    /// The time of the last removal of old idempotency keys.
    keys_looked: Option<Instant>,
    /// The time when Redis last left scheduled deletions undone.
    discard_looked: Option<Instant>,
    /// The scheduled deletion that was looked at last, if more may follow it.
    discard_behind: Option<DueEvent>,
}

impl ExpiryWorker {
    fn new(setup: ExpirySetup, stop: Arc<AtomicBool>) -> ExpiryWorker {
        ExpiryWorker {
            setup,
            stop,
            behind: None,
            began: Instant::now(),
            has_left: false,
            counted: None,
            quarantine_behind: None,
            quarantine_looked: None,
            edits_behind: Vec::new(),
            edits_looked: None,
            keys_looked: None,
            discard_looked: None,
            discard_behind: None,
        }
    }

    fn run(mut self) {
        while !self.is_stopping() {
            let pause = self.turn();
            let until = Instant::now() + pause;
            while !self.is_stopping() && Instant::now() < until {
                std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Returns the time by which links are due. In a fleet, a clock that is ahead must not remove links of all nodes early.
    fn now_ms(&self) -> u64 {
        self.setup.fleet.as_ref().map_or_else(unix_ms, FleetExpiry::now_ms)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Does the work that is due, and removes one batch of links. Returns the pause that follows.
    fn turn(&mut self) -> Duration {
        if self.setup.stats.writes_refused.load(Ordering::Acquire) {
            return REST;
        }
        self.recycle();
        self.forget_edits();
        self.forget_idempotency();
        if !self.discard() {
            return REST;
        }
        let Some(keep) = self.setup.keep else { return READ_DUE_EVERY };
        self.look_back();
        let until_ms = self.now_ms().saturating_sub(keep.as_millis() as u64);
        let ExpirySetup { links, per_second, .. } = &self.setup;
        let (batch, per_second) = (batch_len(*per_second), *per_second);
        let ends = match links.due(EndKind::Link, self.behind.as_ref(), until_ms, batch) {
            Ok(ends) => ends,
            Err(error) => return self.cannot_read(&error),
        };
        let late_ms = ends.first().map_or(0, |first| until_ms.saturating_sub(first.at_ms));
        self.setup.stats.expiry.late_ms.set(late_ms);
        let Some(last) = ends.last().copied() else {
            self.setup.stats.expiry.due.set(0);
            self.counted = None;
            return self.pause();
        };
        self.count(until_ms);
        let (begin, count) = (Instant::now(), ends.len() as u32);
        match self.remove(ends, until_ms) {
            Removed::Done { left } => {
                let stats = &self.setup.stats.expiry;
                stats.due.set(stats.due.get().saturating_sub(u64::from(count)));
                self.has_left |= left;
                self.behind = Some(last);
                // From the start of the batch: after a slow batch, the next ones do not catch up in a row.
                (Duration::from_secs(1) * count / per_second).saturating_sub(begin.elapsed())
            }
            Removed::NotNow => REST,
        }
    }

    /// Removes old entries from the history of links, one part at a time.
    fn forget_edits(&mut self) {
        let pause = if self.edits_behind.is_empty() { EDITS_REST } else { EDITS_EVERY };
        if self.edits_looked.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        self.edits_looked = Some(Instant::now());
        let until_nanos = unix_nanos().saturating_sub(EDITS_KEPT_FOR.as_nanos() as u64);
        if let Err(error) = forget_edits_for(EDITS_TIME, &self.setup.links, &mut self.edits_behind, until_nanos) {
            self.setup.stats.store_errors.add_shared(1);
            tracing::error!(%error, "old entries of the history of links could not be removed");
            self.edits_behind.clear();
        }
    }

    /// Removes idempotency keys that have expired, one part at a time.
    fn forget_idempotency(&mut self) {
        if self.keys_looked.is_some_and(|at| at.elapsed() < KEYS_EVERY) {
            return;
        }
        self.keys_looked = Some(Instant::now());
        if let Err(error) = self.setup.links.forget_idempotency(IDEMPOTENCY_FORGET_BATCH, unix_ms()) {
            self.setup.stats.store_errors.add_shared(1);
            tracing::error!(%error, "old idempotency keys could not be removed");
        }
    }

    /// Deletes links whose scheduled deletion is due and was not cancelled. Returns false if that failed.
    fn discard(&mut self) -> bool {
        let until_ms = self.now_ms();
        let links = &self.setup.links;
        let due = match links.due(EndKind::Deletion, self.discard_behind.as_ref(), until_ms, EXPIRE_BATCH as usize) {
            Ok(due) => due,
            Err(error) => {
                self.cannot_read(&error);
                return false;
            }
        };
        // Entries stay if a record cannot be decoded, for example. They must not keep those behind them waiting.
        let next = due.last().copied().filter(|_| due.len() == EXPIRE_BATCH as usize);
        if due.is_empty() {
            self.discard_behind = None;
            return true;
        }
        if self.discard_looked.is_some_and(|at| at.elapsed() < REST) {
            return true;
        }
        let Some(fleet) = &mut self.setup.fleet else {
            // The author of the last change is the one that scheduled the deletion.
            let author =
                |due: &DueEvent| links.edits_of(&due.code).ok().and_then(|edits| Some(edits.first()?.author()));
            let deletions = due.into_iter().map(|due| (due, author(&due).unwrap_or_default())).collect();
            let is_done = self.order(WriterOrder::DeleteScheduled { deletions, until_ms }).is_some();
            if is_done {
                self.discard_behind = next;
            }
            return is_done;
        };
        // Links that are left were changed on other nodes, and the streams will bring these changes.
        let discarded = fleet.discard(&due, until_ms);
        if discarded != Removed::NotNow {
            self.discard_behind = next;
        }
        self.discard_looked = match discarded {
            Removed::Done { left: true } => Some(Instant::now()),
            Removed::Done { left: false } | Removed::NotNow => None,
        };
        true
    }

    /// Moves back to an entry before the current one if one was added, and from time to time to the start.
    fn look_back(&mut self) {
        if let Some(first_ms) = self.setup.links.take_first_end()
            && self.behind.is_some_and(|behind| first_ms <= behind.at_ms)
        {
            self.behind = first_ms.checked_sub(1).map(|at_ms| DueEvent { at_ms, code: Code::FIRST });
        }
        let again = if self.has_left { LEFT_EVERY } else { ALL_EVERY };
        if self.began.elapsed() >= again {
            (self.behind, self.quarantine_behind) = (None, None);
            (self.began, self.has_left) = (Instant::now(), false);
        }
    }

    /// Returns the pause when nothing is due. It is random in a fleet, so that nodes take turns: the others hear of
    /// what one removes.
    fn pause(&self) -> Duration {
        if self.setup.fleet.is_none() {
            return READ_DUE_EVERY;
        }
        READ_DUE_EVERY + READ_DUE_EVERY * (getrandom::u32().unwrap_or(0) % 1_000) / 1_000
    }

    /// Counts due links for the status page.
    fn count(&mut self, until_ms: u64) {
        if self.counted.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        self.counted = Some(Instant::now());
        if let Ok(due) = self.setup.links.count_due(EndKind::Link, self.behind.as_ref(), until_ms, EXPIRY_COUNT_MAX) {
            self.setup.stats.expiry.due.set(due as u64);
        }
    }

    fn remove(&mut self, ends: Vec<DueEvent>, until_ms: u64) -> Removed {
        if let Some(fleet) = &mut self.setup.fleet {
            return fleet.expire(&ends, until_ms);
        }
        let recycles = self.setup.recycle_after.is_some();
        match self.order(WriterOrder::Expire { ends, until_ms, recycles }) {
            Some(RemovalResult { expired, .. }) => {
                self.setup.stats.expiry.expired.add(expired);
                Removed::Done { left: false }
            }
            None => Removed::NotNow,
        }
    }

    /// Sends the writer an order and waits for its report. Returns `None` if it was not done.
    fn order(&self, order: WriterOrder) -> Option<RemovalResult> {
        assert!(
            self.setup.removals.try_recv().is_err(),
            "the report on an earlier order would be taken for this one's"
        );
        self.setup.writer.send(order).ok()?;
        self.setup.removals.recv().ok().filter(|removal| removal.is_done)
    }

    /// Frees codes that have been unused for long enough, if they fill a segment or have waited long enough for one.
    fn recycle(&mut self) {
        let Some(after) = self.setup.recycle_after else { return };
        if let Some(fleet) = &mut self.setup.fleet
            && fleet.is_recycling()
        {
            let RecycledCodes { codes, left } = fleet.continue_recycling();
            self.has_left |= left;
            return self.hand_out(codes);
        }
        let wait_max = after.min(GATHER_TIME_MAX);
        if self.quarantine_looked.is_some_and(|at| at.elapsed() < QUARANTINE_EVERY.min(wait_max / 4)) {
            return;
        }
        self.quarantine_looked = Some(Instant::now());
        if self.setup.stats.expiry.recycled_left.get() >= RECYCLE_WHILE_BELOW {
            return;
        }
        let now_ms = unix_ms();
        let until_ms = now_ms.saturating_sub(after.as_millis() as u64);
        let Ok(oldest) = self.setup.links.due(EndKind::Quarantine, self.quarantine_behind.as_ref(), until_ms, 1) else {
            return;
        };
        let Some(oldest) = oldest.first() else { return };
        let has_waited = until_ms.saturating_sub(oldest.at_ms) >= wait_max.as_millis() as u64;
        let count =
            || self.setup.links.count_due(EndKind::Quarantine, self.quarantine_behind.as_ref(), until_ms, RECYCLE_LEN);
        if has_waited || count().is_ok_and(|count| count == RECYCLE_LEN) {
            if self.setup.fleet.is_some() {
                return self.begin_recycling(until_ms);
            }
            let codes = self.gather(until_ms);
            self.hand_out(codes);
        }
    }

    /// Makes a segment of codes.
    fn hand_out(&self, codes: Vec<GeneratedCode>) {
        if !codes.is_empty() {
            tracing::info!(codes = codes.len(), "codes of expired links become available again");
            // Without a receiver the node is shutting down, and these codes are lost.
            let _ = self.setup.segments.send(codes);
        }
    }

    /// Begins to recycle the codes of a segment in a fleet.
    fn begin_recycling(&mut self, until_ms: u64) {
        let behind = self.quarantine_behind.as_ref();
        let Ok(mut entries) = self.setup.links.due(EndKind::Quarantine, behind, until_ms, RECYCLE_LEN) else { return };
        self.quarantine_behind = entries.last().copied();
        let shortest = self.setup.length.get();
        entries.retain(|entry| entry.code.len() >= shortest);
        if let Some(fleet) = &mut self.setup.fleet {
            fleet.begin_recycling(entries);
        }
    }

    /// Frees the codes of a segment, a few at a time.
    fn gather(&mut self, until_ms: u64) -> Vec<GeneratedCode> {
        let mut codes = Vec::new();
        while codes.len() < RECYCLE_LEN && !self.is_stopping() {
            let quarantined =
                self.setup.links.due(EndKind::Quarantine, self.quarantine_behind.as_ref(), until_ms, RECYCLE_BATCH);
            let Ok(mut quarantined) = quarantined else { break };
            let Some(last) = quarantined.last().copied() else { break };
            let shortest = self.setup.length.get();
            quarantined.retain(|entry| entry.code.len() >= shortest);
            let opened = quarantined.len();
            let Some(removal) = self.order(WriterOrder::ReleaseCodes { quarantined, until_ms }) else { break };
            assert!(removal.codes.len() <= opened, "a code was freed that has no entry");
            self.quarantine_behind = Some(last);
            codes.extend(removal.codes.iter().filter_map(|code| GeneratedCode::from_code(&code.within(None))));
        }
        codes
    }

    fn cannot_read(&self, error: &dyn std::fmt::Display) -> Duration {
        self.setup.stats.store_errors.add_shared(1);
        tracing::error!(%error, "the index of expiry dates could not be read");
        REST
    }
}

/// Removes entries of the history of links from before an instant, for some time: those behind a key. Moves the key, and
/// empties it at the end of the history.
fn forget_edits_for(time: Duration, links: &Links, behind: &mut Vec<u8>, until_nanos: u64) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        *behind = links.forget_edits(behind, EDITS_LOOKED_AT, until_nanos)?.unwrap_or_default();
        if behind.is_empty() || begun.elapsed() >= time {
            return Ok(());
        }
    }
}

/// Returns the number of links in a batch.
fn batch_len(per_second: u32) -> usize {
    (per_second / BATCHES_PER_SECOND).clamp(1, EXPIRE_BATCH) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::link::history::{Author, Edit};
    use carom_model::testing::link;

    #[test]
    fn a_look_at_the_history_has_a_bounded_time() {
        const CODES: usize = 2 * EDITS_LOOKED_AT + 10;
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let codes: Vec<Code> = (0..CODES).map(|at| Code::parse(format!("c{at:06}").as_bytes()).unwrap()).collect();
        let edit = Edit::between(&link("ab", Origin::Issued), None, 1, &Author::default()).unwrap();
        let edits: Vec<(Code, Edit)> = codes.iter().map(|code| (*code, edit.clone())).collect();
        let mut batch = links.batch();
        links.add_edits(&mut batch, 1, &edits).unwrap();
        links.commit(batch).unwrap();
        let left = || codes.iter().filter(|code| !links.edits_of(code).unwrap().is_empty()).count();
        let (mut behind, until_nanos) = (Vec::new(), CODES as u64);
        forget_edits_for(Duration::ZERO, &links, &mut behind, until_nanos).unwrap();
        assert_eq!(left(), CODES - EDITS_LOOKED_AT);
        assert!(!behind.is_empty());
        forget_edits_for(Duration::MAX, &links, &mut behind, until_nanos).unwrap();
        assert_eq!(left(), 1, "the last entry is younger");
        assert!(behind.is_empty(), "the pass is over");
    }

    #[test]
    fn lasting_deletions_delay_no_others() {
        const STAYING: usize = EXPIRE_BATCH as usize;
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let code = |at: usize| Code::parse(format!("c{at:06}").as_bytes()).unwrap();
        let mut batch = node.links.batch();
        let due = (0..=STAYING).map(|at| DueEvent { at_ms: 1 + at as u64, code: code(at) });
        due.for_each(|due| batch.set_due(EndKind::Deletion, &due));
        node.links.commit(batch).unwrap();
        // This writer removes no entry.
        let ((writer, orders), (reports, removals)) = (sync_channel(1), channel());
        let writing = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for order in orders {
                let WriterOrder::DeleteScheduled { deletions, .. } = order else { panic!("another order") };
                seen.push(deletions.into_iter().map(|(due, _)| due.code).collect::<Vec<Code>>());
                reports.send(RemovalResult { is_done: true, ..RemovalResult::default() }).unwrap();
            }
            seen
        });
        let setup = ExpirySetup {
            links: node.links.clone(),
            stats: Arc::clone(&node.stats),
            writer,
            removals,
            keep: None,
            per_second: 1,
            recycle_after: None,
            length: CodeLength::DEFAULT,
            segments: channel().0,
            fleet: None,
        };
        let mut worker = ExpiryWorker::new(setup, Arc::default());
        (0..3).for_each(|_| assert!(worker.discard()));
        drop(worker);
        let seen = writing.join().unwrap();
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<usize>>(), [STAYING, 1, STAYING]);
        assert_eq!(seen[1], [code(STAYING)], "the next pass begins with the first one again");
    }
}
