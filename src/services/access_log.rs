//! Writes the access log: a thread of its own takes the records that cores put into rings, and appends them to a file.
//!
//! No core waits for this thread. If the disk is slow, the rings fill and new lines are dropped. If a write fails, the
//! pending lines are dropped, an alarm is raised, and the next lines try again. All drops are counted.

pub mod line;
mod target;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::target::LogTarget;
use crate::bridge::access_log::AccessReceiver;
use crate::services::access_log::line::LineFormatter;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_settings::access_log::terms::{AccessLog, LogPlace};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Interval between two drains of the rings while they hold less than [`BUSY`] bytes.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Interval between two drains while a ring holds [`BUSY`] bytes or more.
const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// Bytes in one ring that count as busy: a sixteenth of a ring. A ring that fills more slowly cannot overflow within
/// [`COLLECT_EVERY`].
const BUSY: usize = 128 << 10;

/// Bytes of lines that one write collects.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Interval between two checks that the file is still at its path.
const CHECK_PATH_EVERY: Duration = Duration::from_secs(1);

/// Time without an error after which the alarm clears.
const QUIET_BEFORE_CLEAR: Duration = Duration::from_secs(5);

/// Longest time for which a shutdown waits for the last lines.
const END_WITHIN: Duration = Duration::from_secs(3);

/// A handle on the thread that writes the access log.
pub struct AccessLogThread {
    stop: Arc<AtomicBool>,
    /// A channel that carries no message; it disconnects when the thread has ended.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl AccessLogThread {
    /// Stops the thread after a last write, or gives up after three seconds. Call it after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // If the disk has hung, the thread stays blocked in its write; the process must still be able to exit.
        if self.ended.recv_timeout(END_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last lines of the access log were lost, because the file or its reader is too slow");
        }
    }
}

/// Starts the thread that writes the lines of these rings to `place`. `receivers` has one ring for each core, then the
/// admin listener's.
///
/// # Errors
/// If the operating system cannot start a thread. A file that cannot be written raises an alarm instead.
pub fn start(
    place: &LogPlace,
    log: &AccessLog,
    receivers: Vec<AccessReceiver>,
    stats: &Arc<NodeStats>,
) -> io::Result<AccessLogThread> {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = receivers.len() - 1;
    let names = (0..cores).map(|core| core.to_string()).chain(["admin".to_owned()]);
    let mut writer = AccessLogWriter {
        rings: receivers.into_iter().zip(names).collect(),
        lines: LineFormatter::new(log.format, log.addresses),
        target: LogTarget::new(place.clone()),
        written: Vec::new(),
        last_error: None,
        gives_up: false,
        stats: Arc::clone(stats),
    };
    stats.access_log.is_on.store(true, Ordering::Relaxed);
    let until = Arc::clone(&stop);
    let (sender, ended) = channel();
    let thread = threads::start(Priority::Urgent, "access-log", move || {
        let _sender = sender;
        writer.run(&until);
    })?;
    Ok(AccessLogThread { stop, ended, thread })
}

/// The last error.
#[derive(Clone, Copy, Debug)]
struct LastError {
    since: Instant,
    /// True if opening the file failed, rather than writing to it.
    at_opening: bool,
}

struct AccessLogWriter {
    /// The rings, each with the name of its core for the log lines.
    rings: Vec<(AccessReceiver, String)>,
    lines: LineFormatter,
    target: LogTarget,
    /// Formatted lines that the next flush writes.
    written: Vec<u8>,
    last_error: Option<LastError>,
    /// True once a write of this pass has failed: the rest of the pass drops its lines.
    gives_up: bool,
    stats: Arc<NodeStats>,
}

impl AccessLogWriter {
    fn run(&mut self, until: &AtomicBool) {
        let mut looked = Instant::now();
        self.flush();
        while !until.load(Ordering::Acquire) {
            let found = self.collect();
            if looked.elapsed() >= CHECK_PATH_EVERY {
                looked = Instant::now();
                self.target.look();
                self.flush();
            }
            std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.collect();
    }

    /// Writes the lines of all rings. Returns the largest number of bytes that one ring held.
    fn collect(&mut self) -> usize {
        let mut most = 0;
        let mut rings = std::mem::take(&mut self.rings);
        for (ring, core) in &mut rings {
            let found = ring.drain(|entry| {
                self.lines.write(&mut self.written, core, entry);
                if self.written.len() >= WRITTEN_AT_ONCE {
                    self.flush();
                }
            });
            most = most.max(found);
        }
        self.rings = rings;
        if !self.written.is_empty() {
            self.flush();
        }
        self.gives_up = false;
        most
    }

    /// Writes the pending lines. Drops those that cannot be written, and all further lines of this pass. Without
    /// pending lines it only makes sure that the file exists.
    fn flush(&mut self) {
        let lines = count_lines(&self.written);
        let (went_out, done) = if self.gives_up { (0, Ok(())) } else { self.target.write(&self.written) };
        let out = count_lines(&self.written[..went_out]);
        self.stats.access_log.lines.add(out);
        self.stats.access_log.dropped.add_shared(lines - out);
        self.written.clear();
        match done {
            Err(error) => {
                self.gives_up = true;
                self.last_error = Some(LastError { since: Instant::now(), at_opening: !self.target.is_open() });
                let text = format!("the access log {} cannot be written: {error}; its lines are dropped", self.target);
                self.stats.alarms.raise(Alarm::AccessLogFailed, text);
            }
            // A file that accepts only part of the lines must not clear and raise the alarm over and over.
            Ok(()) if !self.gives_up => {
                let is_over = |last_error: &mut LastError| {
                    (out > 0 || last_error.at_opening) && last_error.since.elapsed() >= QUIET_BEFORE_CLEAR
                };
                if self.last_error.take_if(is_over).is_some() {
                    self.stats.alarms.clear(Alarm::AccessLogFailed);
                }
            }
            Ok(()) => {}
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
