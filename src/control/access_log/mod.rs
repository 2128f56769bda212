//! Writes the access log: what cores tell of requests goes to a file, on a thread of its own.
//!
//! Nobody waits for it. Where the disk is slow, rings fill and lines are dropped; where it fails, what was to be written is dropped,
//! an alarm says so, and the next lines try again. All of that is counted.

mod target;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::target::Target;
use crate::access_log::AccessReceiver;
use crate::access_log::line::Lines;
use crate::access_log::terms::{AccessLog, LogPlace};
use crate::alarms::Alarm;
use crate::stats::NodeStats;

/// How often the rings are emptied while there is little in them.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// How often while there is much.
const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// So many bytes at once are much: a sixteenth of a ring, so that with less of them in the short time a ring is not full after the long one.
const BUSY: usize = 128 << 10;

/// So many bytes of lines are written at once.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// How often it is looked whether the file is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long nothing must have gone wrong before that is over.
const QUIET_BEFORE_CLEAR: Duration = Duration::from_secs(5);

/// How long the process waits for the last lines when it ends.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The thread that writes.
pub struct Writing {
    stop: Arc<AtomicBool>,
    /// Nothing ever comes; it is closed when the thread has ended.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Writing {
    /// Ends the thread, after a last write, unless that takes too long. Only after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A file on a disk that has hung keeps the thread; it must not keep the process.
        if self.ended.recv_timeout(END_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last lines of the access log were lost, because the file or its reader is too slow");
        }
    }
}

/// Starts to write what comes from these rings there: those of the cores, and the admin listener's as the last.
///
/// # Errors
/// When the operating system gives no thread. A file that cannot be written raises an alarm.
pub fn start(
    place: &LogPlace,
    log: &AccessLog,
    receivers: Vec<AccessReceiver>,
    stats: &Arc<NodeStats>,
) -> io::Result<Writing> {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = receivers.len() - 1;
    let names = (0..cores).map(|core| core.to_string()).chain(["admin".to_owned()]);
    let mut writer = Writer {
        rings: receivers.into_iter().zip(names).collect(),
        lines: Lines::new(log.format, log.addresses),
        target: Target::new(place.clone()),
        written: Vec::new(),
        trouble: None,
        gives_up: false,
        stats: Arc::clone(stats),
    };
    stats.access_log.is_on.store(true, Ordering::Relaxed);
    let until = Arc::clone(&stop);
    let (sender, ended) = channel();
    let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
        let _sender = sender;
        writer.run(&until);
    })?;
    Ok(Writing { stop, ended, thread })
}

/// What went wrong last.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: Instant,
    /// Whether the file could not even be opened.
    at_opening: bool,
}

struct Writer {
    /// With the names of their cores.
    rings: Vec<(AccessReceiver, String)>,
    lines: Lines,
    target: Target,
    /// Lines that are to be written.
    written: Vec<u8>,
    trouble: Option<Trouble>,
    /// Nothing more is written in this pass, since something could not be.
    gives_up: bool,
    stats: Arc<NodeStats>,
}

impl Writer {
    fn run(&mut self, until: &AtomicBool) {
        let mut looked = Instant::now();
        self.flush();
        while !until.load(Ordering::Acquire) {
            let found = self.collect();
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.target.look();
                self.flush();
            }
            std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.collect();
    }

    /// Writes what is in the rings. Returns the most that was in one of them, in bytes.
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

    /// Writes the lines that are there; what cannot be written is dropped, and so is all that follows in this pass. Without lines it
    /// only sees to it that the file is there.
    fn flush(&mut self) {
        let lines = count_lines(&self.written);
        let (went_out, done) = match self.gives_up {
            true => (0, Ok(())),
            false => self.target.write(&self.written),
        };
        let out = count_lines(&self.written[..went_out]);
        self.stats.access_log.lines.add(out);
        self.stats.access_log.dropped.add_shared(lines - out);
        self.written.clear();
        match done {
            Err(error) => {
                self.gives_up = true;
                self.trouble = Some(Trouble { since: Instant::now(), at_opening: !self.target.is_open() });
                let text = format!("the access log {} cannot be written: {error}; its lines are dropped", self.target);
                self.stats.alarms.raise(Alarm::AccessLogFailed, text);
            }
            // A file that takes a part of what comes would raise the alarm again and again.
            Ok(()) if !self.gives_up => {
                let is_over = |trouble: &mut Trouble| {
                    (out > 0 || trouble.at_opening) && trouble.since.elapsed() >= QUIET_BEFORE_CLEAR
                };
                if self.trouble.take_if(is_over).is_some() {
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
