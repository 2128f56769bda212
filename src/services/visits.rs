//! Visits are counted here: what cores tell of is added up in memory, written to a log twice a second, and folded into the
//! store from time to time.
//!
//! * [`carom_model::visits::tally`]: counts in memory, and the stored form of a row;
//! * [`carom_model::visits::history`]: what is known of one link, by day and hour;
//! * `log`: what a crash would take otherwise;
//! * `fold`: the way from the log to the store;
//! * `parts`: what of it is of which app and domain;
//! * `intake`: what was taken out of the rings, by a thread that waits for nothing;
//! * `book`: all of it together, in order, over crashes;
//! * `copies`: for backups.
//!
//! A redirect pays for a message to a ring and nothing else. Whoever reads counts empties the rings first, so that no visit
//! that was answered before is missing.

mod aggregator;
pub mod copies;
mod fold;
mod intake;
mod log;
mod parts;
mod top_links;

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use self::aggregator::{Book, locked};
use self::intake::Intake;
use self::parts::Apps;
use carom_model::visits::VisitReceiver;
use carom_model::visits::history::History;
use carom_model::visits::tally::{Counts, Subject};
use carom_store::links::{Ended, Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Where the logs are in a data directory.
const FOLDER: &str = "visits";

/// How often the rings are emptied while there is little in them.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// How often while there is much.
const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// So many visits at once are much: a quarter of a ring.
const BUSY: usize = 2_048;

/// How often what was counted is written to the log: with the time of the write, a crash takes less than a second of it.
const LOG_EVERY: Duration = Duration::from_millis(500);

/// So many links are counted before others get their turn: about a millisecond.
const COUNTED_AT_ONCE: usize = 256;

/// Who counts visits, for whoever asks. Cheap to clone.
#[derive(Clone)]
pub struct Visits {
    book: Arc<Mutex<Book>>,
}

impl std::fmt::Debug for Visits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visits")
    }
}

/// The threads that count: one empties the rings, the other writes what they held.
pub struct Counting {
    stop: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

/// What starting to count gives.
pub struct Started {
    /// Who answers questions.
    pub visits: Visits,
    /// Where to say that links have ended, before anybody else hears of it.
    pub ended: Sender<Vec<Ended>>,
    /// The threads.
    pub counting: Counting,
}

/// Reads back what was counted, and starts to count. The logs are in a folder of the data directory.
///
/// # Errors
/// If logs or store cannot be read, or the operating system cannot start a thread.
pub fn start(
    data_dir: &Path,
    links: &Links,
    receivers: Vec<VisitReceiver>,
    stats: &Arc<NodeStats>,
) -> io::Result<Started> {
    let (ended, receiver) = channel();
    let book = Book::open(&data_dir.join(FOLDER), links.clone(), receivers, receiver, Arc::clone(stats))?;
    let intake = book.intake();
    let visits = Visits { book: Arc::new(Mutex::new(book)) };
    let stop = Arc::new(AtomicBool::new(false));
    let (of_thread, until) = (visits.clone(), Arc::clone(&stop));
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let writing = spawn("visits-log").spawn(move || of_thread.write(&until))?;
    let until = Arc::clone(&stop);
    let emptying = spawn("visits").spawn(move || empty(&intake, &until))?;
    Ok(Started { visits, ended, counting: Counting { stop, threads: [emptying, writing] } })
}

impl Counting {
    /// Ends the threads, after a last write. Only after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// Empties the rings until the node ends. This thread never waits for a disk: a ring holds what a core answers in a few
/// syncs of a slow one.
fn empty(intake: &Mutex<Intake>, until: &AtomicBool) {
    while !until.load(Ordering::Acquire) {
        let found = locked(intake).drain(unix_ms());
        std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
    }
}

impl Visits {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, until: &AtomicBool) {
        let mut logged = Instant::now();
        while !until.load(Ordering::Acquire) {
            self.book().collect(unix_ms());
            if logged.elapsed() >= LOG_EVERY {
                logged = Instant::now();
                self.log();
            }
            self.go_on();
            let is_pressed = self.book().is_pressed();
            std::thread::park_timeout(if is_pressed { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.book().collect(unix_ms());
        self.log();
    }

    /// Goes on with what is not urgent. Nobody waits for the store who asks for counts while links are looked up.
    fn go_on(&self) {
        let (links, codes) = {
            let book = self.book();
            (book.links(), book.next_links())
        };
        let apps = Apps::look_up(&links, codes, None).unwrap_or_default();
        self.book().go_on(&apps);
    }

    /// Writes to the log, durably. Nobody waits for the disk who asks for counts meanwhile.
    fn log(&self) {
        let unsynced = {
            let mut book = self.book();
            book.write_log();
            book.take_unsynced()
        };
        if let Some(unsynced) = unsynced {
            let synced = unsynced.sync();
            self.book().synced(synced);
        }
        // An old mark is worse than a new one, and better than none: a disk that fails is noticed elsewhere.
        let links = self.book().links();
        let _ = links.flush_mark();
    }

    /// How often the links of these codes were followed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn counts(&self, codes: &[Code]) -> Result<Vec<Counts>, StoreError> {
        self.book().collect(unix_ms());
        self.counts_so_far(codes)
    }

    fn counts_so_far(&self, codes: &[Code]) -> Result<Vec<Counts>, StoreError> {
        let mut counts = Vec::with_capacity(codes.len());
        for some in codes.chunks(COUNTED_AT_ONCE) {
            let book = self.book();
            for code in some {
                counts.push(book.counts(Subject::Link(*code))?);
            }
        }
        Ok(counts)
    }

    /// The codes of so many links that were followed most, those first that were followed most often.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn most_visited(&self, count: usize, without_bots: bool) -> Result<Vec<Code>, StoreError> {
        let candidates = {
            let mut book = self.book();
            book.collect(unix_ms());
            book.take_candidates()
        };
        if let Some(codes) = candidates {
            let counts = self.counts_so_far(&codes)?;
            self.book().rank(codes.into_iter().zip(counts));
        }
        Ok(self.book().most_visited(count, without_bots))
    }

    /// The hosts that sent visits of any links on those days, counted from 1970 UTC, and how many.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn referrers(&self, days: RangeInclusive<u32>) -> Result<HashMap<Box<[u8]>, u64>, StoreError> {
        let mut book = self.book();
        book.collect(unix_ms());
        book.referrers(days)
    }

    /// Everything that is known of the visits of a subject.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn history(&self, subject: Subject) -> Result<History, StoreError> {
        let mut book = self.book();
        book.collect(unix_ms());
        book.history(subject)
    }
}

#[cfg(test)]
mod tests;
