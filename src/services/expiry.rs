//! The thread that removes links whose time is over, and gathers their codes when these have lain unused for long enough.
//!
//! Whether a link redirects is decided at each redirect, by its end, and never here: what is removed has been answered with
//! 410 for a while, and is 404 from then on. The thread reads the index of ends from its beginning, a few entries at a time,
//! and has the writer remove them, which looks at each link once more (see [`super::writer::planner`]); the next few follow when their
//! turn has come by `links.expire_per_second`. In a fleet Redis is asked instead, and what it accepts comes back to all nodes
//! through the streams (see [`super::replication::expiry`]).
//!
//! **Codes that are used again.** A generated code of a link that expired has a grave, an entry in the index of ends, from
//! the moment on in which its link was removed. When enough graves are old enough, four steps follow upon each other: the
//! writer removes tombstones and graves, in one commit, of those codes to which nothing else has happened, and syncs; it tells
//! which these are; they are shuffled and written to the id table as a segment; and that is used like any other, its cursor on
//! disk ahead of each code. Between the first step and the third the codes are nowhere but in memory, so a crash loses up to a
//! segment of them, and none can be in two places. What a loss of power may undo is caught where everything is: a code that
//! has a link or a tombstone is not given to another link, whatever the id table says.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeLength, GeneratedCode};

use super::replication::expiry::FleetExpiry;
use crate::bridge::{Order, Swept, WriterQueue};
use carom_limits::{
    EDITS_KEPT_FOR, EXPIRE_BATCH, EXPIRY_COUNT_MAX, IDEMPOTENCY_FORGET_BATCH, RECYCLE_BATCH, RECYCLE_LEN,
    RECYCLE_WHILE_BELOW,
};
use carom_model::link::Due;
use carom_store::links::{Links, Of};
use carom_telemetry::clock::{unix_ms, unix_nanos};
use carom_telemetry::stats::NodeStats;

/// Between two looks at the index while nothing is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long to rest when a piece of work could not be done.
const REST: Duration = Duration::from_secs(1);

/// After how long what was left is looked at again: another node had changed it, or a record could not be read.
const LEFT_EVERY: Duration = Duration::from_secs(10);

/// How often everything that is due is looked at again, whatever was said of it.
const ALL_EVERY: Duration = Duration::from_secs(3_600);

/// How often links that are due are counted anew while there are some.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// How long fewer codes than a segment wait for more at most.
const GATHER_TIME_MAX: Duration = Duration::from_secs(3_600);

/// How often it is looked whether there are enough graves, at most.
const GRAVES_EVERY: Duration = Duration::from_secs(10);

/// How often some of the history of links is looked at.
const EDITS_EVERY: Duration = Duration::from_secs(10);

/// How often some old idempotency keys are removed.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// Entries of it that are looked at then: a millisecond or two.
const EDITS_LOOKED_AT: usize = 2_000;

/// How many batches a second there are at most, while the rate is high.
const BATCHES_PER_SECOND: u32 = 100;

/// Inputs of the thread.
pub struct ExpirySetup {
    /// The store, to read from.
    pub links: Links,
    /// Where to count.
    pub stats: Arc<NodeStats>,
    /// The store's writer.
    pub writer: WriterQueue,
    /// What the writer tells of its orders.
    pub swept: Receiver<Swept>,
    /// How long after its end a link is kept; `None`: for good.
    pub keep: Option<Duration>,
    /// How many links are removed in a second at most; not 0.
    pub per_second: u32,
    /// How long a code lies unused before it is given again; `None`: for good.
    pub recycle_after: Option<Duration>,
    /// Length of new codes, as configured: shorter ones are not given again.
    pub length: CodeLength,
    /// Who makes segments of codes.
    pub segments: Sender<Vec<GeneratedCode>>,
    /// Who asks Redis; nobody where a node is alone.
    pub fleet: Option<FleetExpiry>,
}

/// The running thread.
pub struct Expiry {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Expiry {
    /// Ends the thread and waits for it. The writer must still be there.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread: not before all links have been read back, or what was read then would put a removed link into memory.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: ExpirySetup) -> io::Result<Expiry> {
    let stop = Arc::new(AtomicBool::new(false));
    let now = Instant::now();
    let sweeper = Sweeper {
        setup,
        stop: Arc::clone(&stop),
        behind: None,
        began: now,
        has_left: false,
        counted: None,
        graves_behind: None,
        graves_looked: None,
        edits_behind: Vec::new(),
        edits_looked: None,
        keys_looked: None,
        discard_looked: None,
    };
    let thread = std::thread::Builder::new().name("expire".to_owned()).spawn(move || sweeper.run())?;
    Ok(Expiry { stop, thread })
}

/// What became of some links that were due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// They were looked at, and those that are over are gone, or will be.
    Done {
        /// Whether some were left that may be due all the same.
        left: bool,
    },
    /// Nothing can be done at present.
    NotNow,
}

struct Sweeper {
    setup: ExpirySetup,
    stop: Arc<AtomicBool>,
    /// What was looked at last.
    behind: Option<Due>,
    /// When it was begun at the beginning.
    began: Instant,
    /// Whether something before that was left.
    has_left: bool,
    /// When those that are due were counted.
    counted: Option<Instant>,
    /// The grave that was opened last.
    graves_behind: Option<Due>,
    /// When it was looked for graves.
    graves_looked: Option<Instant>,
    /// The entry of the history that was looked at last.
    edits_behind: Vec<u8>,
    /// When it was looked for old ones.
    edits_looked: Option<Instant>,
    /// When it was looked for old idempotency keys.
    keys_looked: Option<Instant>,
    /// When deletions were left that Redis did not take.
    discard_looked: Option<Instant>,
}

impl Sweeper {
    fn run(mut self) {
        while !self.is_stopping() {
            let until = Instant::now() + self.turn();
            while !self.is_stopping() && Instant::now() < until {
                std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Removes a few links. Returns how long to rest then.
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
        let Some(keep) = self.setup.keep else { return LOOK_EVERY };
        self.look_back();
        let now_ms = unix_ms();
        let until_ms = now_ms.saturating_sub(keep.as_millis() as u64);
        let ExpirySetup { links, per_second, .. } = &self.setup;
        let (batch, per_second) = (batch_len(*per_second), *per_second);
        let ends = match links.due(Of::Link, self.behind.as_ref(), until_ms, batch) {
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
                // From when it began: a batch that took long is not made up for by others in a row.
                (Duration::from_secs(1) * count / per_second).saturating_sub(begin.elapsed())
            }
            Removed::NotNow => REST,
        }
    }

    /// Forgets what was done to links long ago, some of it at a time.
    fn forget_edits(&mut self) {
        if self.edits_looked.is_some_and(|at| at.elapsed() < EDITS_EVERY) {
            return;
        }
        self.edits_looked = Some(Instant::now());
        let until_nanos = unix_nanos().saturating_sub(EDITS_KEPT_FOR.as_nanos() as u64);
        match self.setup.links.forget_edits(&self.edits_behind, EDITS_LOOKED_AT, until_nanos) {
            Ok(last) => self.edits_behind = last.unwrap_or_default(),
            Err(error) => {
                self.setup.stats.store_errors.add_shared(1);
                tracing::error!(%error, "old entries of the history of links could not be removed");
                self.edits_behind.clear();
            }
        }
    }

    /// Forgets idempotency keys that stand for nothing any more, some at a time.
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

    /// Deletes links whose deletion was scheduled and not called off. Returns whether that could be done.
    fn discard(&mut self) -> bool {
        let until_ms = unix_ms();
        let links = &self.setup.links;
        let due = match links.due(Of::Deletion, None, until_ms, EXPIRE_BATCH as usize) {
            Ok(due) => due,
            Err(error) => {
                self.cannot_read(&error);
                return false;
            }
        };
        if due.is_empty() || self.discard_looked.is_some_and(|at| at.elapsed() < REST) {
            return true;
        }
        let Some(fleet) = &mut self.setup.fleet else {
            // Whoever has scheduled it was the last to change it.
            let author = |due: &Due| links.edits_of(&due.code).ok().and_then(|edits| Some(edits.first()?.author()));
            let deletions = due.into_iter().map(|due| (due, author(&due).unwrap_or_default())).collect();
            return self.order(Order::Discard { deletions, until_ms }).is_some();
        };
        // What is left was changed elsewhere, which this node will hear of.
        self.discard_looked = match fleet.discard(&due, until_ms) {
            Removed::Done { left: true } => Some(Instant::now()),
            Removed::Done { left: false } | Removed::NotNow => None,
        };
        true
    }

    /// Goes back where there is something before what was looked at last.
    fn look_back(&mut self) {
        if let Some(first_ms) = self.setup.links.take_first_end()
            && self.behind.is_some_and(|behind| first_ms <= behind.at_ms)
        {
            self.behind = first_ms.checked_sub(1).map(|at_ms| Due { at_ms, code: Code::FIRST });
        }
        let again = if self.has_left { LEFT_EVERY } else { ALL_EVERY };
        if self.began.elapsed() >= again {
            (self.behind, self.graves_behind) = (None, None);
            (self.began, self.has_left) = (Instant::now(), false);
        }
    }

    /// How long to rest when nothing is due. Nodes of a fleet take turns by chance: what one removes the others hear of.
    fn pause(&self) -> Duration {
        if self.setup.fleet.is_none() {
            return LOOK_EVERY;
        }
        LOOK_EVERY + LOOK_EVERY * (getrandom::u32().unwrap_or(0) % 1_000) / 1_000
    }

    /// Counts those that are due, for status.
    fn count(&mut self, until_ms: u64) {
        if self.counted.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        self.counted = Some(Instant::now());
        if let Ok(due) = self.setup.links.count_due(Of::Link, self.behind.as_ref(), until_ms, EXPIRY_COUNT_MAX) {
            self.setup.stats.expiry.due.set(due as u64);
        }
    }

    fn remove(&mut self, ends: Vec<Due>, until_ms: u64) -> Removed {
        if let Some(fleet) = &mut self.setup.fleet {
            return fleet.expire(&ends, until_ms);
        }
        let recycles = self.setup.recycle_after.is_some();
        match self.order(Order::Expire { ends, until_ms, recycles }) {
            Some(Swept { expired, .. }) => {
                self.setup.stats.expiry.expired.add(expired);
                Removed::Done { left: false }
            }
            None => Removed::NotNow,
        }
    }

    /// Has the writer do something, and waits for it.
    fn order(&self, order: Order) -> Option<Swept> {
        self.setup.writer.send(order).ok()?;
        self.setup.swept.recv().ok().filter(|swept| swept.is_done)
    }

    /// Frees codes that have lain unused for long enough, if they make a segment or have waited for one.
    fn recycle(&mut self) {
        let Some(after) = self.setup.recycle_after else { return };
        let patience = after.min(GATHER_TIME_MAX);
        if self.graves_looked.is_some_and(|at| at.elapsed() < GRAVES_EVERY.min(patience / 4)) {
            return;
        }
        self.graves_looked = Some(Instant::now());
        if self.setup.stats.expiry.recycled_left.get() >= RECYCLE_WHILE_BELOW {
            return;
        }
        let now_ms = unix_ms();
        let until_ms = now_ms.saturating_sub(after.as_millis() as u64);
        let Ok(oldest) = self.setup.links.due(Of::Grave, self.graves_behind.as_ref(), until_ms, 1) else { return };
        let Some(oldest) = oldest.first() else { return };
        let has_waited = until_ms.saturating_sub(oldest.at_ms) >= patience.as_millis() as u64;
        let count = || self.setup.links.count_due(Of::Grave, self.graves_behind.as_ref(), until_ms, RECYCLE_LEN);
        if has_waited || count().is_ok_and(|count| count == RECYCLE_LEN) {
            let codes = self.gather(until_ms);
            if !codes.is_empty() {
                tracing::info!(codes = codes.len(), "codes of expired links become available again");
                // Without a receiver the node is on its way out, and they are lost.
                let _ = self.setup.segments.send(codes);
            }
        }
    }

    /// Frees the codes of a segment, a few at a time.
    fn gather(&mut self, until_ms: u64) -> Vec<GeneratedCode> {
        let mut codes = Vec::new();
        while codes.len() < RECYCLE_LEN && !self.is_stopping() {
            let graves = self.setup.links.due(Of::Grave, self.graves_behind.as_ref(), until_ms, RECYCLE_BATCH);
            let Ok(mut graves) = graves else { break };
            let Some(last) = graves.last().copied() else { break };
            let shortest = self.setup.length.get();
            graves.retain(|grave| grave.code.len() >= shortest);
            let Some(swept) = self.order(Order::Unearth { graves, until_ms }) else { break };
            self.graves_behind = Some(last);
            codes.extend(swept.codes.iter().filter_map(|code| GeneratedCode::from_code(&code.within(None))));
        }
        codes
    }

    fn cannot_read(&self, error: &dyn std::fmt::Display) -> Duration {
        self.setup.stats.store_errors.add_shared(1);
        tracing::error!(%error, "the index of expiry dates could not be read");
        REST
    }
}

/// How many links are removed together.
fn batch_len(per_second: u32) -> usize {
    (per_second / BATCHES_PER_SECOND).clamp(1, EXPIRE_BATCH) as usize
}
