//! The work of the replenisher thread: it leases counter values, turns them into codes, and fills the queues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carom_shards::{
    Code, CodeLength, CoreId, CounterValue, GeneratedCode, Issuer, Offer, Run, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN,
    Segment, SegmentSizer,
};
use heapless::spsc::Producer;

use super::setup::{ReplenishError, ReplenisherSetup, failed};
use crate::bridge::ToCore;
use carom_limits::{CODES_LOW, CODES_QUEUE_LEN, FLEET_RESERVE, RECYCLE_LEN};
use carom_store::ids::SegmentRow;
use carom_telemetry::alarms::Alarm;

/// Interval between two checks of the queues without being asked.
const CHECK_QUEUES_EVERY: Duration = Duration::from_secs(1);

/// Pause after an error, so that hungry cores do not cause constant retries.
const REST_AFTER_ERROR: Duration = Duration::from_millis(250);

/// Smallest number of codes that are moved to a core at once: each move is a write to disk.
const MOVE_MIN: usize = 1_024;

const _: () = {
    assert!(CODES_LOW as u64 * 2 <= SEGMENT_LEN_MIN);
    assert!(RECYCLE_LEN as u64 == SEGMENT_LEN_MIN);
};

/// The supply of one core.
pub(super) struct Supply {
    pub(super) core: CoreId,
    pub(super) queue: Producer<'static, u64>,
    /// Number of codes in the queue below which the core asks for more.
    pub(super) low: Arc<AtomicUsize>,
    pub(super) rows: VecDeque<SegmentRow>,
    pub(super) sizer: SegmentSizer,
    /// The time of the last lease for this core.
    pub(super) leased: Option<Instant>,
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

/// Returns the number of codes that the queue of a core has room for.
fn room_in(queue: &Producer<'static, u64>) -> usize {
    #[cfg(feature = "faults")]
    if crate::services::faults::Faults::from_env().small_queues {
        return (2 * MOVE_MIN).saturating_sub(queue.len());
    }
    queue.capacity() - queue.len()
}

pub(super) struct ReplenishWorker {
    pub(super) setup: ReplenisherSetup,
    pub(super) issuer: Issuer,
    pub(super) supplies: Vec<Supply>,
    pub(super) next_id: u64,
    pub(super) asked: Arc<AtomicBool>,
    pub(super) stop: Arc<AtomicBool>,
    /// Number of times that codes were discarded because other nodes may have taken them over.
    pub(super) given_up: u32,
}

impl ReplenishWorker {
    pub(super) fn run(mut self) {
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
                        std::thread::park_timeout(CHECK_QUEUES_EVERY);
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

    /// Makes segments of codes to reuse, which come after the existing ones or, in a fleet, before them. If they cannot be
    /// stored, they are lost as in a crash.
    fn take_recycled(&mut self, supplies: &mut [Supply]) -> Result<(), ReplenishError> {
        while let Ok(codes) = self.setup.recycled.try_recv() {
            let Some(supply) = supplies.iter_mut().min_by_key(|supply| supply.left()) else { return Ok(()) };
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).map_err(failed)?;
            let count = codes.len() as u64;
            // The codes come from many runs, all of them below the marks.
            let run = Run { length: self.setup.length, start: CounterValue(0), len: 0 };
            self.add_row(supply, run, Segment::reshuffle(codes, seed))?;
            if self.setup.fleet.is_some() {
                // Before the reserve of a fleet, which lasts for long.
                supply.rows.rotate_right(1);
            }
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
            assert!(row.cursor <= row.codes.len(), "codes beyond the row count as used");
            let room = room_in(&supply.queue);
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
                // Recycled codes have no lease.
                if let Some(fleet) = self.setup.fleet.as_mut().filter(|_| run.len > 0) {
                    fleet.counter.release(run);
                }
            }
        }
        if moved {
            self.setup.mailboxes.to(supply.core).post(ToCore::CodesReady);
        }
        Ok(())
    }

    /// Leases the next segment for a core and makes it durable.
    fn lease(&mut self, supply: &mut Supply) -> Result<(), ReplenishError> {
        let before = self.issuer.length();
        let mut sizer = supply.sizer;
        supply.leased.iter().for_each(|leased| sizer.lasted(leased.elapsed()));
        let run = self.next_run(sizer.next_len(self.issuer.remaining()))?;
        assert!(run.len > 0, "a segment without codes would be leased again and again");
        assert!(
            self.issuer.mark(run.length) >= run.end() || cfg!(feature = "faults"),
            "the values of this segment would be issued again"
        );
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
        if crate::services::faults::Faults::from_env().trust_counter {
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
        assert!(
            supply.rows.back().is_none_or(|last| last.id < self.next_id),
            "the row would replace one whose codes are still in use"
        );
        debug_assert!(
            run.len == 0 || codes.iter().all(|code| code.len() == run.length.get()),
            "the row has codes of another length than its counter values"
        );
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
        assert_eq!(used.len(), all.len(), "codes in use would be taken for free ones");
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
