//! The replenisher thread: it supplies every core with fresh codes, so that no core waits for a counter, a disk or a
//! shuffle.
//!
//! Before a code reaches a core, three things are on disk, in this order: the high-water mark in the store of links,
//! the row with the segment, and the row's cursor after the code. No counter may fall below the high-water mark. A
//! crash between any two loses unused codes and nothing else. `carom_shards::segment` decides which values come next,
//! and how many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use carom_shards::{
    Code, CodeLength, CodeSpace, CoreCount, CoreId, CounterValue, GeneratedCode, Issuer, Offer, Run, Segment,
    SegmentSizer,
};
use heapless::spsc::{Consumer, Producer, Queue};

use super::replication::counter::FleetCounter;
use crate::bridge::{Mailboxes, ToCore};
use carom_limits::{CODES_LOW, CODES_QUEUE_LEN, FLEET_RESERVE, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN};
use carom_store::ids::{IdTable, SegmentRow};
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{CoreStats, NodeStats};

/// Interval between two looks at the queues without being asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pause after an error, so that hungry cores do not cause constant retries.
const REST_AFTER_ERROR: Duration = Duration::from_millis(250);

/// Smallest number of codes that are moved to a core at once: each move is a write to disk.
const MOVE_MIN: usize = 1_024;

/// The receiving end of a core's codes. Belongs to that core alone.
pub struct CodeSource {
    codes: Consumer<'static, u64>,
    low: Arc<AtomicUsize>,
    bell: RefillBell,
}

impl CodeSource {
    /// Takes a fresh code, and asks for more in time. If it returns `None`, wait for [`ToCore::CodesReady`].
    #[inline]
    pub fn take(&mut self) -> Option<GeneratedCode> {
        let code = self.codes.dequeue();
        if self.codes.len() < self.low.load(Ordering::Relaxed) {
            self.bell.ask();
        }
        code.and_then(GeneratedCode::from_bits)
    }

    /// Returns the number of codes in the queue.
    pub fn remaining(&self) -> usize {
        self.codes.len()
    }

    /// Returns the capacity of the queue.
    pub fn capacity(&self) -> usize {
        self.codes.capacity()
    }
}

/// Wakes the replenisher. Cheap to clone. Costs a system call only for the first request after the replenisher has
/// looked.
#[derive(Clone, Debug)]
pub struct RefillBell {
    asked: Arc<AtomicBool>,
    thread: Thread,
}

impl RefillBell {
    /// Asks the replenisher to look at the queues.
    pub fn ask(&self) {
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

/// Inputs of the replenisher.
pub struct ReplenisherSetup {
    /// The store of links, which has the marks.
    pub links: Links,
    /// The id table, which has the segments.
    pub ids: IdTable,
    /// The code space.
    pub space: CodeSpace,
    /// The configured length of new codes.
    pub length: CodeLength,
    /// The mailboxes of the cores.
    pub post: Mailboxes,
    /// Number of cores that use codes.
    pub cores: CoreCount,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The counters of each core.
    pub core_stats: Vec<Arc<CoreStats>>,
    /// The source of counter values in a fleet; `None` takes them from the marks in the store.
    pub fleet: Option<FleetSource>,
    /// Codes of expired links, to be reused.
    pub recycled: Receiver<Vec<GeneratedCode>>,
}

/// The source of counter values for a node of a fleet.
pub struct FleetSource {
    /// The counter that all nodes share.
    pub counter: FleetCounter,
    /// Runs that were taken over from nodes that are gone.
    pub reclaimed: Receiver<Run>,
    /// True if the leases of the last process still belong to this node.
    pub keeps_rows: bool,
}

/// A running replenisher.
pub struct Replenisher {
    /// The receiving ends for the cores, in their order.
    pub sources: Vec<CodeSource>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Replenisher {
    /// Stops the thread and waits for it. Codes in the queues are lost.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// The reason why the replenisher cannot start, or cannot prepare a segment.
#[derive(Debug)]
pub struct ReplenishError(String);

impl std::fmt::Display for ReplenishError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "new short codes cannot be prepared: {}", self.0)
    }
}

impl std::error::Error for ReplenishError {}

fn failed(error: impl std::fmt::Display) -> ReplenishError {
    ReplenishError(error.to_string())
}

/// Starts the replenisher with the segments of the id table. Cores may start at once, because the thread itself fills
/// their queues.
///
/// # Errors
/// If the marks or the id table cannot be read, or the operating system cannot start a thread.
pub fn start(setup: ReplenisherSetup) -> Result<Replenisher, ReplenishError> {
    let (issuer, rows) = resume(&setup)?;
    let asked = Arc::new(AtomicBool::new(true));
    let stop = Arc::new(AtomicBool::new(false));
    let mut supplies = Vec::new();
    let mut consumers = Vec::new();
    for core in setup.cores.cores() {
        // Queues live as long as the process. Leaking them once gives both ends a lifetime without a lock or a count.
        let (producer, consumer) = Box::leak(Box::new(Queue::<u64, CODES_QUEUE_LEN>::new())).split();
        let low = Arc::new(AtomicUsize::new(CODES_LOW));
        consumers.push((consumer, Arc::clone(&low)));
        supplies.push(Supply {
            core,
            queue: producer,
            low,
            rows: VecDeque::new(),
            sizer: SegmentSizer::default(),
            leased: None,
        });
    }
    let next_id = rows.last().map_or(1, |row| row.id + 1);
    for row in rows {
        // If the node has fewer cores than before, the others share the rows of the missing ones.
        let index = row.core.index() % supplies.len();
        supplies[index].rows.push_back(row);
    }
    let worker =
        Worker { setup, issuer, supplies, next_id, asked: Arc::clone(&asked), stop: Arc::clone(&stop), given_up: 0 };
    let thread =
        std::thread::Builder::new().name("replenish".to_owned()).spawn(move || worker.run()).map_err(failed)?;
    let bell = RefillBell { asked, thread: thread.thread().clone() };
    let sources = consumers.into_iter().map(|(codes, low)| CodeSource { codes, low, bell: bell.clone() }).collect();
    Ok(Replenisher { sources, stop, thread })
}

/// Returns an issuer above every mark, and the rows that may still be used.
fn resume(setup: &ReplenisherSetup) -> Result<(Issuer, Vec<SegmentRow>), ReplenishError> {
    let mut marks = Vec::new();
    for length in CodeLength::MIN.and_longer() {
        let mark = CounterValue(setup.links.high_water(length.get()).map_err(failed)?);
        let counter = setup.ids.counter(length).map_err(failed)?;
        marks.extend([(length, mark), (length, counter)]);
    }
    let issuer = Issuer::new(setup.length, marks);
    let table_is_old = setup.ids.counter(issuer.length()).map_err(failed)? < issuer.mark(issuer.length());
    let (rows, damaged) = setup.ids.rows().map_err(failed)?;
    if damaged > 0 {
        tracing::warn!(damaged, "the code table has damaged entries; their codes stay unused");
    }
    let keeps_rows = setup.fleet.as_ref().is_none_or(|fleet| fleet.keeps_rows);
    let mut kept = Vec::new();
    for row in rows {
        // An id table that missed a lease may also have missed used codes. The store would refuse each of them, but
        // that costs a create many retries.
        if !keeps_rows || table_is_old || row.run.length < setup.length || row.cursor == row.codes.len() {
            setup.ids.remove(row.id).map_err(failed)?;
        } else {
            kept.push(row);
        }
    }
    if let Some(fleet) = &setup.fleet {
        // From here on the time of each heartbeat is stored, and the next process relies on it.
        setup.ids.flush().map_err(failed)?;
        fleet.counter.resumed();
    }
    Ok((issuer, kept))
}

/// The supply of one core.
struct Supply {
    core: CoreId,
    queue: Producer<'static, u64>,
    /// Number of codes in the queue below which the core asks for more.
    low: Arc<AtomicUsize>,
    rows: VecDeque<SegmentRow>,
    sizer: SegmentSizer,
    /// The time of the last lease for this core.
    leased: Option<Instant>,
}

impl Supply {
    /// Returns the number of reused codes that are not in the queue yet.
    fn recycled_left(&self) -> usize {
        let recycled = self.rows.iter().filter(|row| row.run.len == 0);
        recycled.map(|row| row.codes.len() - row.cursor).sum()
    }

    fn left(&self) -> usize {
        self.queue.len() + self.rows.iter().map(|row| row.codes.len() - row.cursor).sum::<usize>()
    }
}

struct Worker {
    setup: ReplenisherSetup,
    issuer: Issuer,
    supplies: Vec<Supply>,
    next_id: u64,
    asked: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// Number of times that codes were discarded because other nodes may have taken them over.
    given_up: u32,
}

impl Worker {
    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            // Cleared before the look, so that a request during it leads to another look.
            self.asked.store(false, Ordering::Release);
            self.publish();
            let mut supplies = std::mem::take(&mut self.supplies);
            let mut worst = None;
            let losses = self.setup.fleet.as_ref().map_or(0, |fleet| fleet.counter.losses());
            let gives_up = losses != std::mem::replace(&mut self.given_up, losses);
            if let Some(fleet) = self.setup.fleet.as_ref().filter(|_| gives_up) {
                fleet.reclaimed.try_iter().for_each(drop);
            }
            for supply in &mut supplies {
                let given_up = if gives_up { self.give_up(supply) } else { Ok(()) };
                if let Err(error) = given_up.and_then(|()| self.supply(supply)) {
                    self.setup.core_stats[supply.core.index()].refill_errors.add(1);
                    worst = Some(error);
                }
            }
            if let Err(error) = self.take_recycled(&mut supplies) {
                worst = Some(error);
            }
            self.supplies = supplies;
            let recycled_left = self.supplies.iter().map(Supply::recycled_left).sum::<usize>();
            self.setup.stats.expiry.recycled_left.set(recycled_left as u64);
            match worst {
                Some(error) => {
                    self.setup.stats.issuer_errors.add(1);
                    self.setup.stats.alarms.raise(Alarm::CodesFailed, error.to_string());
                    std::thread::sleep(REST_AFTER_ERROR);
                }
                None => {
                    self.setup.stats.alarms.clear(Alarm::CodesFailed);
                    if !self.asked.load(Ordering::Acquire) {
                        std::thread::park_timeout(LOOK_EVERY);
                    }
                }
            }
        }
        // Codes that were gathered at the last moment are stored for the next start.
        let mut supplies = std::mem::take(&mut self.supplies);
        if let Err(error) = self.take_recycled(&mut supplies) {
            tracing::warn!(%error, "cannot save the codes of expired links for reuse; these codes stay unused");
        }
    }

    /// Makes segments of codes to reuse, which come after the existing ones. If they cannot be stored they are lost, as
    /// in a crash.
    fn take_recycled(&mut self, supplies: &mut [Supply]) -> Result<(), ReplenishError> {
        while let Ok(codes) = self.setup.recycled.try_recv() {
            let Some(supply) = supplies.iter_mut().min_by_key(|supply| supply.left()) else { return Ok(()) };
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).map_err(failed)?;
            let count = codes.len() as u64;
            // The codes come from many runs, all of them below the marks.
            let run = Run { length: self.setup.length, start: CounterValue(0), len: 0 };
            self.add_row(supply, run, Segment::reshuffle(codes, seed))?;
            self.setup.stats.expiry.recycled.add(count);
        }
        Ok(())
    }

    /// Discards codes that another node may have taken over by now. Without Redis, this node could create links with
    /// them and later lose these to the other node. Codes in the queues of the cores cannot be recalled.
    fn give_up(&self, supply: &mut Supply) -> Result<(), ReplenishError> {
        let rows = std::mem::take(&mut supply.rows);
        rows.iter().try_for_each(|row| self.setup.ids.remove(row.id).map_err(failed))
    }

    /// Supplies one core with what it lacks.
    fn supply(&mut self, supply: &mut Supply) -> Result<(), ReplenishError> {
        // While writes are refused no link needs a code, and a full disk has no room for a row.
        if self.setup.stats.writes_refused.load(Ordering::Acquire) {
            return Ok(());
        }
        self.take_reclaimed(supply)?;
        // The first segment is leased and moved first, so that a core need not wait for its whole reserve.
        if supply.left() < supply.low.load(Ordering::Relaxed) {
            self.lease(supply)?;
        }
        self.move_codes(supply)?;
        if self.setup.fleet.is_some() && supply.left() < FLEET_RESERVE {
            // A failure does no harm: Redis may be away, and the core has enough codes for now.
            match self.lease(supply) {
                Ok(()) => self.asked.store(true, Ordering::Release),
                Err(error) => tracing::debug!(%error, "new short codes cannot be prepared now"),
            }
        }
        Ok(())
    }

    /// Fills a core's queue from its rows.
    fn move_codes(&mut self, supply: &mut Supply) -> Result<(), ReplenishError> {
        let mut moved = false;
        while let Some(row) = supply.rows.front_mut() {
            let room = supply.queue.capacity() - supply.queue.len();
            let count = room.min(row.codes.len() - row.cursor);
            if room < MOVE_MIN {
                break;
            }
            self.setup.ids.set_cursor(row.id, row.cursor + count).map_err(failed)?;
            for code in &row.codes[row.cursor..row.cursor + count] {
                supply.queue.enqueue(code.to_bits()).expect("only this thread fills the queue, and there was room");
            }
            row.cursor += count;
            moved = true;
            if row.cursor == row.codes.len() {
                let (id, run) = (row.id, row.run);
                supply.rows.pop_front();
                self.setup.ids.remove(id).map_err(failed)?;
                if let Some(fleet) = &mut self.setup.fleet {
                    fleet.counter.release(run);
                }
            }
        }
        if moved {
            self.setup.post.to(supply.core).post(ToCore::CodesReady);
        }
        Ok(())
    }

    /// Leases the next segment for a core and makes it durable.
    fn lease(&mut self, supply: &mut Supply) -> Result<(), ReplenishError> {
        let before = self.issuer.length();
        let mut sizer = supply.sizer;
        supply.leased.iter().for_each(|leased| sizer.lasted(leased.elapsed()));
        let run = self.next_run(sizer.next_len(self.issuer.remaining()))?;
        (supply.sizer, supply.leased) = (sizer, Some(Instant::now()));
        let mut batch = self.setup.links.batch();
        batch.set_high_water(run.length.get(), run.end().0);
        self.setup.links.commit(batch).map_err(failed)?;
        self.setup.links.sync().map_err(failed)?;
        let codes = self.codes_of(run)?;
        self.add_row(supply, run, codes)?;
        // Longer segments take longer to make, and belong to cores that use codes faster.
        let low = (run.len as usize / (SEGMENT_LEN_MIN as usize / CODES_LOW)).clamp(CODES_LOW, CODES_QUEUE_LEN / 2);
        supply.low.store(low, Ordering::Relaxed);
        let stats = &self.setup.core_stats[supply.core.index()];
        stats.refills.add(1);
        stats.segment_len.set(run.len);
        self.note_length(before);
        Ok(())
    }

    /// Returns the next counter values, from this node's own counter or the fleet's.
    fn next_run(&mut self, want: u64) -> Result<Run, ReplenishError> {
        let used_up = || failed("all codes of all lengths are used up");
        let Some(fleet) = &mut self.setup.fleet else { return self.issuer.issue(want).ok_or_else(used_up) };
        #[cfg(feature = "faults")]
        if super::faults::Faults::from_env().trust_counter {
            return fleet.counter.lease_unguarded(self.issuer.length(), want).map_err(failed);
        }
        for _ in CodeLength::MIN.and_longer() {
            let length = self.issuer.length();
            let floor = self.setup.links.floor(length.get()).map_err(failed)?;
            let seen = self.issuer.mark(length).0.max(floor);
            let run = fleet.counter.lease(length, want, seen).map_err(failed)?;
            match self.issuer.offer(run) {
                Offer::Accepted(run) => return Ok(run),
                Offer::UsedUp { next: Some(_) } => {}
                Offer::UsedUp { next: None } => return Err(used_up()),
                Offer::Regressed { raise_to } => {
                    return Err(failed(format!(
                        "Redis issued counter values below {}, which this node has already seen",
                        raise_to.0
                    )));
                }
            }
        }
        Err(used_up())
    }

    /// Returns the codes of a run, shuffled.
    fn codes_of(&self, run: Run) -> Result<Vec<GeneratedCode>, ReplenishError> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).map_err(failed)?;
        Ok(Segment::prepare(&self.setup.space, run, seed).into_codes())
    }

    fn add_row(&mut self, supply: &mut Supply, run: Run, codes: Vec<GeneratedCode>) -> Result<(), ReplenishError> {
        let row = SegmentRow { id: self.next_id, core: supply.core, run, codes, cursor: 0 };
        self.next_id += 1;
        self.setup.ids.add(&row).map_err(failed)?;
        supply.rows.push_back(row);
        Ok(())
    }

    /// Adopts a lease of a node that is gone: those of its codes that no link uses, neither here nor in Redis.
    fn take_reclaimed(&mut self, supply: &mut Supply) -> Result<(), ReplenishError> {
        let Some(fleet) = &mut self.setup.fleet else { return Ok(()) };
        let Ok(run) = fleet.reclaimed.try_recv() else { return Ok(()) };
        if run.len > SEGMENT_LEN_MAX || run.start.0.checked_add(run.len).is_none_or(|end| end > run.length.codes()) {
            tracing::warn!(?run, "ignored a lease that is out of range");
            return Ok(());
        }
        let all = self.codes_of(run)?;
        let as_codes: Vec<Code> = all.iter().map(|code| code.to_code()).collect();
        let fleet = self.setup.fleet.as_mut().expect("it was there a moment ago");
        let used = fleet.counter.are_used(&as_codes).map_err(failed)?;
        let mut free = Vec::new();
        for ((generated, code), used) in all.into_iter().zip(&as_codes).zip(used) {
            if !used && self.setup.links.get(code).map_err(failed)?.is_none() {
                free.push(generated);
            }
        }
        tracing::info!(codes = free.len(), of = run.len, "took over codes from a node that left the fleet");
        if free.is_empty() {
            self.setup.fleet.as_mut().expect("it was there a moment ago").counter.release(run);
            return Ok(());
        }
        self.add_row(supply, run, free)
    }

    fn note_length(&self, before: CodeLength) {
        let length = self.issuer.length();
        let alarms = &self.setup.stats.alarms;
        if length != before {
            tracing::warn!("all codes of {before} characters are used; new codes have {length} characters");
            alarms.clear(Alarm::CodesUsedUp);
        }
        if self.issuer.alarm() {
            let percent = self.issuer.used_percent();
            let text = format!(
                "{percent}% of the codes of {length} characters are used; when all are used, new codes get longer"
            );
            alarms.raise(Alarm::CodesUsedUp, text);
        }
        self.publish();
    }

    fn publish(&self) {
        let length = self.issuer.length();
        self.setup.stats.issuer_length.set(length.get() as u64);
        self.setup.stats.issuer_current.set(self.issuer.mark(length).0);
        self.setup.stats.issuer_remaining.set(self.issuer.remaining());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_shards::CodeSecret;
    use std::collections::HashSet;
    use std::path::Path;

    fn begin(node: &TestNode, dir: &Path, length: usize) -> Replenisher {
        let (ids, _) = IdTable::open(&dir.join("ids")).unwrap();
        start(ReplenisherSetup {
            links: node.links.clone(),
            ids,
            space: CodeSpace::new(&CodeSecret::from_bytes([5; 32])),
            length: CodeLength::new(length).unwrap(),
            post: node.post.clone(),
            cores: node.cores,
            stats: Arc::clone(&node.stats),
            core_stats: node.cores.cores().map(|_| Arc::default()).collect(),
            fleet: None,
            recycled: std::sync::mpsc::channel().1,
        })
        .unwrap()
    }

    /// Takes codes as a core does, and waits when there are none.
    fn take(source: &mut CodeSource, count: usize) -> Vec<GeneratedCode> {
        let mut codes = Vec::new();
        let start = Instant::now();
        while codes.len() < count {
            match source.take() {
                Some(code) => codes.push(code),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{} of {count} codes", codes.len());
        }
        codes
    }

    #[test]
    fn cores_never_get_a_code_twice_not_even_after_a_restart_or_without_the_table() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 2);
        let mut seen = HashSet::new();
        for round in 0..4 {
            let mut replenisher = begin(&node, dir.path(), 7);
            for source in &mut replenisher.sources {
                for code in take(source, 25_000) {
                    assert!(seen.insert(code), "{code:?} came twice, in round {round}");
                }
            }
            let mark = node.links.high_water(7).unwrap();
            assert!(mark >= seen.len() as u64, "{mark}");
            replenisher.stop();
            if round == 1 {
                std::fs::remove_dir_all(dir.path().join("ids")).unwrap();
            }
        }
    }

    #[test]
    fn a_restart_goes_on_with_the_row() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let (ids, _) = IdTable::open(&dir.path().join("ids")).unwrap();
        let run = carom_shards::Run { length: CodeLength::DEFAULT, start: CounterValue(0), len: 50_000 };
        let space = CodeSpace::new(&CodeSecret::from_bytes([5; 32]));
        let codes = Segment::prepare(&space, run, [1; 16]).into_codes();
        ids.add(&SegmentRow { id: 1, core: CoreId(0), run, codes: codes.clone(), cursor: 123 }).unwrap();
        let mut batch = node.links.batch();
        batch.set_high_water(7, 50_000);
        node.links.commit(batch).unwrap();
        drop(ids);
        let mut replenisher = begin(&node, dir.path(), 7);
        assert_eq!(take(&mut replenisher.sources[0], 100), codes[123..223]);
        replenisher.stop();
        // The cursor is after all codes that were in the queue.
        let mut replenisher = begin(&node, dir.path(), 7);
        let first = take(&mut replenisher.sources[0], 1)[0];
        let at = codes.iter().position(|&code| code == first).expect("the row goes on");
        assert!(at >= 223 + CODES_LOW, "{at}");
        replenisher.stop();
    }

    /// Returns whether the alarm that codes of a length run out was raised, and whether it has cleared.
    fn ending(node: &TestNode) -> (bool, bool) {
        let alarms = node.stats.alarms.list();
        let alarm = alarms.iter().find(|alarm| alarm.alarm == Alarm::CodesUsedUp);
        (alarm.is_some(), alarm.is_some_and(|alarm| alarm.cleared_ms.is_some()))
    }

    #[test]
    fn a_length_that_ends_is_announced_and_followed() {
        const ALL: u64 = 62 * 62 * 62;
        let dir = tempfile::tempdir().unwrap();
        // Segments double: 10, 10, 20, 20, 40, 40 and 80 thousand are 92 % of all.
        let node = TestNode::new(dir.path(), 2);
        let mut replenisher = begin(&node, dir.path(), 3);
        let mut seen = HashSet::new();
        let mut taken: Vec<GeneratedCode> = Vec::new();
        let longer = |codes: &[GeneratedCode]| codes.last().is_some_and(|code| code.to_code().len() == 4);
        let mut grown = [false; 2];
        while grown != [true; 2] {
            for (source, grown) in replenisher.sources.iter_mut().zip(&mut grown).filter(|(_, grown)| !**grown) {
                taken.extend(take(source, 1_000));
                *grown = longer(&taken);
            }
            // NodeContext are published after the alarm that they cause.
            let (length, remaining) = (node.stats.issuer_length.get(), node.stats.issuer_remaining.get());
            let (raised, over) = ending(&node);
            assert!(raised || remaining > ALL / 10, "no alarm with {remaining} codes left");
            assert!(length == 3 || over, "the alarm is still on with longer codes");
        }
        assert_eq!(ending(&node), (true, true));
        let text = node.stats.alarms.list()[0].text.clone();
        assert!(text.starts_with("9") && text.contains("% of the codes of 3 characters"), "{text}");
        assert!(taken.iter().all(|code| seen.insert(*code)), "a code came twice");
        // All short codes are used before the first longer one, except `api`, which no link may have.
        let short = taken.iter().filter(|code| code.to_code().len() == 3).count() as u64;
        let reserved_in_any_case = 8;
        assert_eq!(short, ALL - reserved_in_any_case);
        replenisher.stop();
    }
}
