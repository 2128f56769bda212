//! The thread of a sink: it reads the log from its own place, delivers batches, and moves its place behind what the
//! receiver has accepted.
//!
//! An event is delivered at least once: the place moves after the delivery, so a crash in between repeats the batch
//! with the same IDs. After a failure the sink pauses and tries again, for as long as the event is kept. A receiver
//! that refuses a single event for good does not hold up the others: the event becomes a dead letter.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::render::{RenderedEvent, Renderer};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{
    DEAD_LETTERS_MAX, EVENTS_PAGE_BYTES, SINK_BATCH_MAX, SINK_FAILURES_BEFORE_ALARM, SINK_PAUSE_MAX, SINK_PAUSE_MIN,
    SINK_REFUSALS_MAX,
};
use carom_model::formats::dates;
use carom_store::links::StoreError;
use carom_store::links::events::EventLog;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::{NodeStats, SinkStats};

/// Interval at which an idle sink looks for events, and a paused one whether the node stops.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for which a stopping node waits for a sink that is in the middle of a request.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// The reason why a sink has not delivered an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SinkFailure {
    /// The receiver cannot be reached or does not accept events now. It may have asked for a pause.
    Later(String, Option<Duration>),
    /// The receiver refuses what was sent, and would again.
    Refused(String),
}

/// A receiver of events.
pub(super) trait Sink: Send + 'static {
    /// The name in metrics, in alarms and in the store.
    const NAME: &'static str;

    /// Returns the counters of the sink.
    fn stats(stats: &NodeStats) -> &SinkStats;

    /// Delivers events in their order. Returns the number of those that the receiver has accepted, and why it has not
    /// accepted the next one. Blocks the thread for a bounded time.
    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>);
}

/// The running sinks.
pub struct Sinks {
    log: EventLog,
    renderer: Renderer,
    stats: Arc<NodeStats>,
    failing: Arc<Mutex<BTreeMap<&'static str, String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sinks({})", self.threads.len())
    }
}

impl Sinks {
    pub(super) fn new(log: &EventLog, renderer: &Renderer, stats: &Arc<NodeStats>) -> Sinks {
        Sinks {
            log: log.clone(),
            renderer: renderer.clone(),
            stats: Arc::clone(stats),
            failing: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Starts the thread of a sink. A new sink begins behind the newest event.
    pub(super) fn start<S: Sink>(&mut self, sink: S) -> io::Result<()> {
        let cursor = match self.log.cursor(S::NAME).map_err(io::Error::other)? {
            Some(cursor) => cursor,
            None => {
                let cursor = self.log.synced();
                self.log.move_cursor(S::NAME, cursor, &[], DEAD_LETTERS_MAX).map_err(io::Error::other)?;
                cursor
            }
        };
        S::stats(&self.stats).is_on.store(true, Ordering::Release);
        let mut worker = SinkWorker {
            sink,
            log: self.log.clone(),
            renderer: self.renderer.clone(),
            stats: Arc::clone(&self.stats),
            failing: Arc::clone(&self.failing),
            stop: Arc::clone(&self.stop),
            cursor,
            failures: 0,
            refusals: 0,
            single_until: 0,
        };
        let name = format!("events-{}", S::NAME);
        self.threads.push(threads::start(Priority::Locking, name, move || worker.run())?);
        Ok(())
    }

    /// Stops the sinks. One that waits for its receiver ends with the process; it repeats its batch after the restart.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        let deadline = Instant::now() + STOP_TIME_MAX;
        for thread in self.threads {
            thread.thread().unpark();
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                thread.join().expect("panics abort");
            }
        }
    }
}

/// The state of a sink's thread.
struct SinkWorker<S> {
    sink: S,
    log: EventLog,
    renderer: Renderer,
    stats: Arc<NodeStats>,
    failing: Arc<Mutex<BTreeMap<&'static str, String>>>,
    stop: Arc<AtomicBool>,
    /// The number of the last event that is done with.
    cursor: u64,
    /// Failures since the last success.
    failures: u32,
    /// Refusals of the next event.
    refusals: u32,
    /// The number up to which events are sent one by one, to find the one that the receiver refuses.
    single_until: u64,
}

impl<S: Sink> SinkWorker<S> {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            match self.step() {
                Ok(true) => {}
                Ok(false) => self.pause(LOOK_EVERY),
                Err(error) => {
                    self.stats.store_errors.add_shared(1);
                    self.fail(&format!("the event log failed: {error}"), None);
                }
            }
        }
    }

    fn stats(&self) -> &SinkStats {
        S::stats(&self.stats)
    }

    /// Delivers one batch. Returns false if there is nothing to deliver.
    fn step(&mut self) -> Result<bool, StoreError> {
        self.count_lag();
        if self.cursor >= self.log.synced() {
            return Ok(false);
        }
        self.skip_removed()?;
        let count = if self.cursor < self.single_until { 1 } else { SINK_BATCH_MAX };
        let page = self.log.page(self.cursor, count, EVENTS_PAGE_BYTES)?;
        let events = self.renderer.render(&page.events)?;
        if events.is_empty() {
            self.move_to(page.up_to)?;
            return Ok(true);
        }
        let (delivered, result) = self.sink.deliver(&events);
        assert!(delivered <= events.len(), "a sink cannot deliver more than it got");
        if delivered > 0 {
            let last = if delivered == events.len() { page.up_to } else { events[delivered - 1].id.seq };
            self.stats().delivered.add(delivered as u64);
            self.move_to(last)?;
            self.recover();
        }
        match result {
            Ok(()) => {}
            Err(SinkFailure::Later(why, pause)) => self.fail(&why, pause),
            Err(SinkFailure::Refused(why)) => self.refused(&events[delivered..], &why)?,
        }
        Ok(true)
    }

    /// Moves behind events that were removed before the receiver accepted them.
    fn skip_removed(&mut self) -> Result<(), StoreError> {
        let first = self.log.first()?;
        if first > self.cursor + 1 {
            let lost = first - 1 - self.cursor;
            self.stats().lost.add(lost);
            tracing::error!(sink = S::NAME, lost, "events were removed before the sink has delivered them");
            self.move_to(first - 1)?;
        }
        Ok(())
    }

    fn move_to(&mut self, seq: u64) -> Result<(), StoreError> {
        assert!(seq >= self.cursor, "a sink would deliver events again");
        self.log.move_cursor(S::NAME, seq, &[], DEAD_LETTERS_MAX)?;
        self.cursor = seq;
        self.count_lag();
        Ok(())
    }

    fn count_lag(&self) {
        self.stats().lag.set(self.log.synced().saturating_sub(self.cursor));
    }

    /// Handles a refusal: narrows it down to one event, and gives that one up in the end.
    fn refused(&mut self, events: &[RenderedEvent], why: &str) -> Result<(), StoreError> {
        let [event, rest @ ..] = events else { return Ok(()) };
        if let Some(last) = rest.last() {
            self.single_until = last.id.seq;
            self.stats().failed.add(1);
            return Ok(());
        }
        self.refusals += 1;
        if self.refusals < SINK_REFUSALS_MAX {
            self.fail(why, None);
            return Ok(());
        }
        tracing::error!(sink = S::NAME, event = %event.id, why, "an event became a dead letter");
        self.stats().failed.add(1);
        self.stats().dead.add(1);
        self.store_dead_letter(event.id.seq, why)?;
        self.recover();
        Ok(())
    }

    /// Moves behind an event that the receiver refuses, and stores its dead letter. The letter has what the log has of the
    /// event now: a purge may have removed its content since it was read.
    fn store_dead_letter(&mut self, seq: u64, why: &str) -> Result<(), StoreError> {
        assert!(seq > self.cursor, "a sink would give an event up that it has delivered");
        let date = dates::format(unix_ms());
        self.log.give_up(S::NAME, seq, DEAD_LETTERS_MAX, |stored| {
            let rendered = self.renderer.render(&[(seq, stored.to_vec())])?;
            let letter =
                rendered.first().map(|event| json!({ "reason": why, "date": date, "event": event.envelope() }));
            Ok(letter.map(|letter| letter.to_string().into_bytes()))
        })?;
        self.cursor = seq;
        self.count_lag();
        Ok(())
    }

    /// Notes that the receiver works.
    fn recover(&mut self) {
        (self.failures, self.refusals) = (0, 0);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.remove(S::NAME).is_some() {
            match alarm_text(&failing) {
                Some(text) => self.stats.alarms.raise(Alarm::EventsSinkFailed, text),
                None => self.stats.alarms.clear(Alarm::EventsSinkFailed),
            }
        }
    }

    /// Notes a failure, and pauses: for as long as the receiver has asked for, or twice as long each time.
    fn fail(&mut self, why: &str, pause: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        self.stats().failed.add(1);
        if self.failures >= SINK_FAILURES_BEFORE_ALARM {
            let text = format!("{} ({} attempts): {why}", S::NAME, self.failures);
            let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
            failing.insert(S::NAME, text);
            if let Some(text) = alarm_text(&failing) {
                self.stats.alarms.raise(Alarm::EventsSinkFailed, text);
            }
        }
        let doubled = SINK_PAUSE_MIN.saturating_mul(1 << (self.failures - 1).min(16));
        self.pause(pause.unwrap_or(doubled).min(SINK_PAUSE_MAX));
    }

    /// Waits, unless the node stops.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stop.load(Ordering::Acquire) {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            std::thread::park_timeout(rest.min(LOOK_EVERY));
            self.count_lag();
        }
    }
}

/// Returns the text of the alarm for the sinks that fail; `None` if none does.
fn alarm_text(failing: &BTreeMap<&'static str, String>) -> Option<String> {
    let texts: Vec<&str> = failing.values().map(String::as_str).collect();
    (!texts.is_empty()).then(|| format!("events are not delivered: {}", texts.join("; ")))
}
