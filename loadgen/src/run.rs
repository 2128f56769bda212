//! One run: starts the threads, listens to them, and puts together what they measured.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::{Serializer, V2Serializer};

use crate::links::Links;
use crate::plan::Plan;
use crate::record::{Interval, Record, Summary};
use crate::worker::{self, Job, News};

/// Between the word and the beginning, so that all threads have heard it.
const START_DELAY: Duration = Duration::from_millis(20);

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The connections could not be made.
    Unreachable(String),
    /// Somebody ended it before it began.
    Interrupted,
    /// The generator itself failed.
    Failed(io::Error),
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// When it began.
    pub(crate) began: SystemTime,
    /// What all threads recorded.
    pub(crate) record: Record,
    /// The run second by second.
    pub(crate) series: Vec<Second>,
    /// Whether somebody ended it before its time.
    pub(crate) interrupted: bool,
}

/// One second of a run that is over.
#[derive(Clone, Debug)]
pub(crate) struct Second {
    /// Counted from the beginning of the measured time.
    pub(crate) second: u64,
    /// Requests answered rightly.
    pub(crate) completed: u64,
    /// Errors.
    pub(crate) errors: u64,
    /// Its latencies.
    pub(crate) summary: Summary,
    /// Its histogram in HdrHistogram's form V2: a few kilobytes instead of hundreds, so that a run may be long.
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

/// Runs a plan. `each_second` is told of each second when it is over on all threads.
///
/// # Errors
/// When the target cannot be reached, or a thread cannot work.
pub(crate) fn run(
    plan: &Arc<Plan>,
    links: &Arc<Links>,
    stop: &Arc<AtomicBool>,
    each_second: impl FnMut(&Interval),
) -> Result<Outcome, RunError> {
    let (news, inbox) = channel();
    let mut starts = Vec::new();
    let mut threads = Vec::new();
    for thread in 0..plan.cpus.len() {
        let (begin, start) = channel();
        let job = Job {
            thread,
            plan: Arc::clone(plan),
            links: Arc::clone(links),
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
        Listener { inbox, seconds: BTreeMap::new(), series: Vec::new(), threads: threads.len(), each_second };
    match listener.await_ready() {
        Err(RunError::Unreachable(_)) if stop.load(Ordering::Relaxed) => return Err(RunError::Interrupted),
        ready => ready?,
    }
    let began = SystemTime::now() + START_DELAY;
    let origin = Instant::now() + START_DELAY;
    // A thread that has ended says why in its result.
    starts.iter().for_each(|start| _ = start.send(origin));
    let record = listener.await_done()?;
    join(threads);
    // A run that was at its end anyway is whole.
    let interrupted = stop.load(Ordering::Relaxed) && record.seconds + 0.001 < plan.duration.as_secs_f64();
    Ok(Outcome { began, record, series: listener.into_series(), interrupted })
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("panics abort");
    }
}

/// Hears the threads.
struct Listener<F> {
    inbox: Receiver<News>,
    /// Seconds that are over on all threads.
    series: Vec<Second>,
    /// Each other second with the number of threads that have told of it.
    seconds: BTreeMap<u64, (Interval, usize)>,
    threads: usize,
    each_second: F,
}

impl<F: FnMut(&Interval)> Listener<F> {
    fn await_ready(&mut self) -> Result<(), RunError> {
        let mut trouble = None;
        for _ in 0..self.threads {
            match self.inbox.recv().expect("threads tell before they end") {
                News::Ready(Ok(())) => {}
                News::Ready(Err(reason)) => trouble = Some(RunError::Unreachable(reason)),
                News::Done(result) => {
                    return Err(RunError::Failed(result.err().unwrap_or_else(|| io::Error::other("a thread ended"))));
                }
                News::Interval(_) => {}
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    fn await_done(&mut self) -> Result<Record, RunError> {
        let mut all = Record::default();
        let mut running = self.threads;
        while running > 0 {
            match self.inbox.recv().expect("threads tell before they end") {
                News::Ready(_) => {}
                News::Interval(interval) => self.take_interval(interval),
                News::Done(result) => {
                    all.add(result.map_err(RunError::Failed)?);
                    running -= 1;
                }
            }
        }
        Ok(all)
    }

    fn take_interval(&mut self, interval: Interval) {
        let second = interval.second;
        let told = match self.seconds.get_mut(&second) {
            Some((whole, told)) => {
                whole.add(&interval);
                *told += 1;
                *told
            }
            None => {
                self.seconds.insert(second, (interval, 1));
                1
            }
        };
        if told == self.threads
            && let Some((whole, _)) = self.seconds.remove(&second)
        {
            (self.each_second)(&whole);
            self.series.push(Second::of(&whole));
        }
    }

    /// All seconds in order. A thread that was stopped for long may not have told of each.
    fn into_series(mut self) -> Vec<Second> {
        self.series.extend(self.seconds.values().map(|(interval, _)| Second::of(interval)));
        self.series.sort_by_key(|second| second.second);
        self.series
    }
}
