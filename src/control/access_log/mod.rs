//! Writes the access log: what cores tell of requests goes to a file, on a thread of its own.
//!
//! Nobody waits for it. Where the disk is slow, rings fill and lines are dropped; where it fails, what was to be written is dropped,
//! an alarm says so, and the next lines try again. All of that is counted.

mod target;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::target::Target;
use crate::access_log::AccessReceiver;
use crate::access_log::line::Lines;
use crate::access_log::terms::AccessLog;
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

/// The thread that writes.
pub struct Writing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writing {
    /// Ends the thread, after a last write. Only after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts to write what comes from these rings: those of the cores, and the admin listener's as the last.
///
/// # Errors
/// When the operating system gives no thread. A file that cannot be written raises an alarm.
pub fn start(log: &AccessLog, receivers: Vec<AccessReceiver>, stats: &Arc<NodeStats>) -> io::Result<Writing> {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = receivers.len() - 1;
    let names = (0..cores).map(|core| core.to_string()).chain(["admin".to_owned()]);
    let mut writer = Writer {
        rings: receivers.into_iter().zip(names).collect(),
        lines: Lines::new(log.format, log.addresses),
        target: Target::new(log.place.clone()),
        written: Vec::new(),
        count: 0,
        stats: Arc::clone(stats),
    };
    stats.access_log.is_on.store(true, Ordering::Relaxed);
    writer.flush();
    let until = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(&until))?;
    Ok(Writing { stop, thread })
}

struct Writer {
    /// With the names of their cores.
    rings: Vec<(AccessReceiver, String)>,
    lines: Lines,
    target: Target,
    /// Lines that are to be written, and how many.
    written: Vec<u8>,
    count: u64,
    stats: Arc<NodeStats>,
}

impl Writer {
    fn run(&mut self, until: &AtomicBool) {
        let mut looked = Instant::now();
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
                self.count += 1;
                if self.written.len() >= WRITTEN_AT_ONCE {
                    self.flush();
                }
            });
            most = most.max(found);
        }
        self.rings = rings;
        if self.count > 0 {
            self.flush();
        }
        most
    }

    /// Writes the lines that are there; what cannot be written is dropped. Without lines it only sees to it that the file is there.
    fn flush(&mut self) {
        let (count, log) = (std::mem::take(&mut self.count), &self.stats.access_log);
        match self.target.write(&self.written) {
            Ok(()) => {
                log.lines.add(count);
                if count > 0 {
                    self.stats.alarms.clear(Alarm::AccessLogFailed);
                }
            }
            Err(error) => {
                log.dropped.add_shared(count);
                let text = format!("{} cannot be written: {error}; lines of the access log are dropped", self.target);
                self.stats.alarms.raise(Alarm::AccessLogFailed, text);
            }
        }
        self.written.clear();
    }
}
