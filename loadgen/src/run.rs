//! One run: starts the threads, collects their messages, and merges their results.
//!
//! `crew` combines the workload, the protocol and the results for the connections of one thread, without I/O; `client` is
//! one of them. `worker` drives a crew with a ring.

mod client;
mod crew;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::{Serializer, V2Serializer};

use crate::console::RunProgress;
use crate::plan::Plan;
use crate::results::record::{Interval, RunRecord, Summary};
use crate::run::worker::{WorkerJob, WorkerMessage};
use crate::workload::links::LinkTable;

/// Delay of the start, so that all threads have received it.
const START_DELAY: Duration = Duration::from_millis(20);

/// The reason why a run has no result.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The connections failed to open.
    Unreachable(String),
    /// The user ended the run before it started.
    Interrupted,
    /// The generator itself failed.
    Failed(io::Error),
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunOutcome {
    /// Start of the run.
    pub(crate) began: SystemTime,
    /// Merged results of all threads.
    pub(crate) record: RunRecord,
    /// The run second by second.
    pub(crate) series: Vec<Second>,
    /// True if the user ended the run early.
    pub(crate) interrupted: bool,
}

/// A completed second of a run.
#[derive(Clone, Debug)]
pub(crate) struct Second {
    /// Number of the second, counted from the start of the measured time.
    pub(crate) second: u64,
    /// Requests with a correct response.
    pub(crate) completed: u64,
    /// Errors of all kinds.
    pub(crate) errors: u64,
    /// Latencies of the second, in microseconds.
    pub(crate) summary: Summary,
    /// Histogram in HdrHistogram's format V2: a few kilobytes instead of hundreds, so that runs can be long.
    pub(crate) packed: Vec<u8>,
}

impl Second {
    fn of(interval: &Interval) -> Second {
        let mut packed = Vec::new();
        V2Serializer::new().serialize(&interval.latency, &mut packed).expect("a vector takes what is written");
        Second {
            second: interval.second,
            completed: interval.completed,
            errors: interval.errors,
            summary: Summary::of(&interval.latency),
            packed,
        }
    }
}

/// Runs a plan. Shows the progress on the calling thread: each second once all threads have completed it, or a live
/// view.
///
/// # Errors
/// If the target is unreachable, or a thread fails.
pub(crate) fn run(
    plan: &Arc<Plan>,
    links: &Arc<LinkTable>,
    stop: &Arc<AtomicBool>,
    progress: &mut RunProgress,
) -> Result<RunOutcome, RunError> {
    let (news, inbox) = channel();
    let mut starts = Vec::new();
    let mut threads = Vec::new();
    for thread in 0..plan.cpus.len() {
        let (begin, start) = channel();
        let job = WorkerJob {
            thread,
            plan: Arc::clone(plan),
            links: Arc::clone(links),
            counters: progress.counters(thread),
            news: news.clone(),
            start,
            stop: Arc::clone(stop),
        };
        starts.push(begin);
        let builder = std::thread::Builder::new().name(format!("load-{thread}"));
        threads.push(builder.spawn(move || worker::run(job)).map_err(RunError::Failed)?);
    }
    drop(news);
    let mut listener =
        MessageReceiver { inbox, seconds: BTreeMap::new(), series: Vec::new(), threads: threads.len(), progress };
    match listener.await_ready() {
        Err(RunError::Unreachable(_)) if stop.load(Ordering::Relaxed) => return Err(RunError::Interrupted),
        ready => ready?,
    }
    let began = SystemTime::now() + START_DELAY;
    let origin = Instant::now() + START_DELAY;
    listener.progress.begin(origin);
    // A thread that has ended reports the reason in its result.
    starts.iter().for_each(|start| _ = start.send(origin));
    let record = listener.await_done()?;
    join(threads);
    // A run that was at its end anyway is complete.
    let interrupted = stop.load(Ordering::Relaxed) && record.seconds + 0.001 < plan.duration.as_secs_f64();
    Ok(RunOutcome { began, record, series: listener.into_series(), interrupted })
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("panics abort");
    }
}

/// Receiver of the threads' messages.
struct MessageReceiver<'a> {
    inbox: Receiver<WorkerMessage>,
    /// Seconds that all threads have completed.
    series: Vec<Second>,
    /// The seconds that some threads have not reported yet, each with the number of threads that have.
    seconds: BTreeMap<u64, (Interval, usize)>,
    threads: usize,
    progress: &'a mut RunProgress,
}

impl MessageReceiver<'_> {
    /// Returns the next message. Keeps the live view up to date until it arrives.
    fn receive(&mut self) -> WorkerMessage {
        loop {
            let received = match self.progress.refresh() {
                Some(wait) => self.inbox.recv_timeout(wait),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(message) => return message,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("each thread reports before it ends"),
            }
        }
    }

    fn await_ready(&mut self) -> Result<(), RunError> {
        let mut unreachable = None;
        for _ in 0..self.threads {
            match self.inbox.recv().expect("each thread sends its last message before it ends") {
                WorkerMessage::Ready(Ok(())) => {}
                WorkerMessage::Ready(Err(reason)) => unreachable = Some(RunError::Unreachable(reason)),
                WorkerMessage::Done(result) => {
                    return Err(RunError::Failed(result.err().unwrap_or_else(|| io::Error::other("a thread ended"))));
                }
                WorkerMessage::Interval(_) => {}
            }
        }
        unreachable.map_or(Ok(()), Err)
    }

    fn await_done(&mut self) -> Result<RunRecord, RunError> {
        let mut all = RunRecord::default();
        let mut running = self.threads;
        while running > 0 {
            match self.receive() {
                WorkerMessage::Ready(_) => {}
                WorkerMessage::Interval(interval) => self.take_interval(interval),
                WorkerMessage::Done(result) => {
                    all.add(result.map_err(RunError::Failed)?);
                    running -= 1;
                }
            }
        }
        Ok(all)
    }

    fn take_interval(&mut self, interval: Interval) {
        let second = interval.second;
        let arrived = match self.seconds.get_mut(&second) {
            Some((whole, arrived)) => {
                whole.add(&interval);
                *arrived += 1;
                *arrived
            }
            None => {
                self.seconds.insert(second, (interval, 1));
                1
            }
        };
        if arrived == self.threads
            && let Some((whole, _)) = self.seconds.remove(&second)
        {
            self.progress.show_second(&whole);
            self.series.push(Second::of(&whole));
        }
    }

    /// Returns all seconds in order. A thread that was stopped for long may have skipped some.
    fn into_series(mut self) -> Vec<Second> {
        self.series.extend(self.seconds.values().map(|(interval, _)| Second::of(interval)));
        self.series.sort_by_key(|second| second.second);
        self.series
    }
}
