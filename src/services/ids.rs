//! The replenisher thread supplies every core with fresh codes, so that no core waits for a counter, a disk or a
//! shuffle.
//!
//! Before a code reaches a core, this thread writes three things, in this order: the high-water mark in the store of
//! links, which it syncs; the row with the segment; and the cursor of that row, moved past the code. No counter may
//! fall below the high-water mark. A crash between any two loses unused codes and nothing else. A power failure may set
//! the cursor back, because a flush of the id table is less than an fsync. The writer refuses codes that have a link or
//! a tombstone, and a create then tries further ones. `carom_shards::segment` decides which values come next, and how
//! many.

mod setup;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};

use carom_shards::{CodeLength, CounterValue, GeneratedCode, Issuer, SegmentSizer};
use heapless::spsc::{Consumer, Queue};

use self::setup::failed;
pub use self::setup::{FleetSource, ReplenishError, ReplenisherSetup};
use self::worker::{ReplenishWorker, Supply};
use super::threads;
use super::threads::priority::Priority;
use carom_limits::{CODES_LOW, CODES_QUEUE_LEN};
use carom_store::ids::SegmentRow;

/// The receiving end of a core's codes. Belongs to that core alone.
pub struct CodeSource {
    codes: Consumer<'static, u64>,
    low: Arc<AtomicUsize>,
    bell: RefillBell,
}

impl CodeSource {
    /// Takes a fresh code, and asks for more in time. If it returns `None`, wait for
    /// [`ToCore::CodesReady`](crate::bridge::ToCore::CodesReady).
    #[inline]
    pub fn take(&mut self) -> Option<GeneratedCode> {
        let code = self.codes.dequeue();
        if self.codes.len() < self.low.load(Ordering::Relaxed) {
            self.bell.ask();
        }
        let generated = code.and_then(GeneratedCode::from_bits);
        debug_assert_eq!(
            generated.is_some(),
            code.is_some(),
            "the queue has a number that stands for none of its codes"
        );
        generated
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

/// Starts the replenisher with the segments of the id table. Cores may start at once, because the thread itself fills
/// their queues.
///
/// # Errors
/// If the marks or the id table cannot be read, or the operating system cannot start a thread.
pub fn start(setup: ReplenisherSetup) -> Result<Replenisher, ReplenishError> {
    assert_eq!(setup.core_stats.len(), setup.cores.get(), "a core that uses codes has no counters");
    let (issuer, rows) = resume(&setup)?;
    debug_assert!(rows.is_sorted_by(|one, next| one.id < next.id), "a new row would replace one of these");
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
    if setup.fleet.is_some() {
        // Recycled codes first: the reserve of a fleet lasts for long.
        supplies.iter_mut().for_each(|supply| supply.rows.make_contiguous().sort_by_key(|row| row.run.len > 0));
    }
    let worker = ReplenishWorker {
        setup,
        issuer,
        supplies,
        next_id,
        asked: Arc::clone(&asked),
        stop: Arc::clone(&stop),
        given_up: 0,
    };
    let thread = threads::start(Priority::Awaited, "replenish", move || worker.run()).map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_shards::CodeSecret;
    use carom_shards::CodeSpace;
    use carom_shards::CoreId;
    use carom_shards::Segment;
    use carom_store::ids::IdTable;
    use carom_telemetry::alarms::Alarm;
    use std::collections::HashSet;
    use std::path::Path;
    use std::time::Duration;
    use std::time::Instant;

    fn begin(node: &TestNode, dir: &Path, length: usize) -> Replenisher {
        let (ids, _) = IdTable::open(&dir.join("ids")).unwrap();
        start(ReplenisherSetup {
            links: node.links.clone(),
            ids,
            space: CodeSpace::new(&CodeSecret::from_bytes([5; 32])),
            length: CodeLength::new(length).unwrap(),
            mailboxes: node.mailboxes.clone(),
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
            // The counters are published after the alarm that they cause.
            let (length, remaining) = (node.stats.issuer_length.get(), node.stats.issuer_remaining.get());
            let (raised, over) = ending(&node);
            assert!(raised || remaining > ALL / 10, "no alarm with {remaining} codes left");
            assert!(length == 3 || over, "the alarm is still on with longer codes");
        }
        assert_eq!(ending(&node), (true, true));
        let text = node.stats.alarms.list()[0].text.clone();
        assert!(text.starts_with("9"), "{text}");
        assert!(text.contains("% of the codes of 3 characters"), "{text}");
        assert!(taken.iter().all(|code| seen.insert(*code)), "a code came twice");
        // All short codes are used before the first longer one, except `api`, which no link may have.
        let short = taken.iter().filter(|code| code.to_code().len() == 3).count() as u64;
        let reserved_in_any_case = 8;
        assert_eq!(short, ALL - reserved_in_any_case);
        replenisher.stop();
    }
}
