//! The log of visits: one record for each visit, in segments on disk. The counts of visits are in `services::visits`.
//!
//! * `segment`: the form of the files;
//! * `query`: selects and sorts visits;
//! * `statistics`: counts visits by what they tell of their clients;
//! * `events`: adds visits to the log of events;
//! * `deletions`: visits that are deleted and still on disk;
//! * `upkeep`: removes old and deleted visits from the disk;
//! * [`copies`]: the log in backups;
//! * `threads`: starts the threads.
//!
//! Cores put records into rings of bytes and never wait. The thread `visit-log` drains the rings, writes twice a second
//! and seals segments. The thread `visit-query` answers queries at low priority, and does the upkeep in between.

pub mod copies;
mod deletions;
mod events;
mod query;
mod segment;
mod statistics;
#[cfg(test)]
mod tests;
pub mod threads;
mod upkeep;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use memchr::memmem;

use self::deletions::Deletions;
use self::segment::{Sealed, active_path, push_block, sealed_path, take_block, write_whole};
use crate::bridge::Mailboxes;
use crate::bridge::geo::{GeoSlot, source};
use crate::bridge::visit_log::{VisitLogQueue, VisitLogReceiver};
use carom_limits::VISIT_SEGMENT_BYTES;
use carom_model::access::key;
use carom_model::clients::locations::GeoSource;
use carom_model::visits::record::{RequestPart, VisitAddresses, VisitRecord};
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Interval between two drains of the rings while they hold less than [`BUSY`] bytes, and while one holds more.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
const COLLECT_BUSY: Duration = Duration::from_millis(20);

/// Bytes in one ring that count as busy: a sixteenth of a ring.
const BUSY: usize = carom_limits::VISIT_LOG_RING_LEN / 16;

/// Interval between two writes. A crash loses the visits of less than a second.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// The folder of the log in a data directory.
const FOLDER: &str = "visit-log";

/// Longest time that a segment is active, in milliseconds: older visits leave the disk by whole segments.
const ACTIVE_MS_MAX: u64 = 24 * 3_600_000;

/// Time without an error after which the alarm clears.
const QUIET_BEFORE_CLEAR: Duration = Duration::from_secs(5);

/// The parts of the log that its settings decide.
#[derive(Clone, Copy, Debug)]
pub struct VisitLogTerms {
    /// The stored part of client addresses.
    pub addresses: VisitAddresses,
    /// Time for which visits are kept; `None`: until the log is too large.
    pub keep: Option<Duration>,
    /// Bytes of the log on disk above which the oldest visits are removed.
    pub keep_bytes: u64,
    /// True if visits are events.
    pub are_events: bool,
}

/// The parts of a node that the log needs.
#[derive(Debug)]
pub struct VisitLogSetup {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The settings of the log.
    pub terms: VisitLogTerms,
    /// The links, which decide whose visits a query shows.
    pub links: Links,
    /// The locations of addresses.
    pub geo: GeoSlot,
    /// The ring of each core.
    pub receivers: Vec<VisitLogReceiver>,
    /// The mailboxes of the cores, for answers.
    pub mailboxes: Mailboxes,
    /// Counters and alarms of the node.
    pub stats: Arc<NodeStats>,
}

/// A handle on the thread that writes the log.
#[derive(Debug)]
pub struct Logging {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Logging {
    /// Stops the thread after a last write. Call it after the cores have ended.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// The running log.
#[derive(Debug)]
pub struct StartedVisitLog {
    /// The queue of queries.
    pub queue: VisitLogQueue,
    /// The thread that answers them. It ends when all senders are gone.
    pub reader: JoinHandle<()>,
    /// The handle on the thread that writes.
    pub logging: Logging,
}

/// The parts that both threads share.
struct Shared {
    dir: PathBuf,
    terms: VisitLogTerms,
    links: Links,
    geo: GeoSlot,
    stats: Arc<NodeStats>,
    /// Lock this before the state.
    intake: Mutex<Intake>,
    state: Mutex<State>,
    /// True if the active segment is to be sealed at the next write, so that the upkeep sees its visits.
    wants_seal: AtomicBool,
}

/// Visits that were taken out of the rings and are not written yet.
struct Intake {
    receivers: Vec<VisitLogReceiver>,
    pending: Vec<u8>,
    visits: u64,
}

/// The log without what is in the intake.
struct State {
    /// The records of the active segment, by write.
    active: Vec<Arc<[u8]>>,
    active_bytes: usize,
    /// The sealed segments, oldest first.
    sealed: Vec<Arc<Sealed>>,
    deletions: Deletions,
}

/// The log at one instant, as a query reads it.
struct Contents {
    /// The records that no sealed segment has.
    recent: Vec<Arc<[u8]>>,
    sealed: Vec<Arc<Sealed>>,
    deletions: Deletions,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state of the log on disk, and the number of the active segment.
fn read_back(dir: &Path, stats: &NodeStats) -> io::Result<(State, u64)> {
    let (mut sealed, mut actives) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((kind, number)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
        match (kind, number.parse()) {
            ("segment", Ok(seq)) => sealed.push(Arc::new(Sealed::open(dir, seq)?)),
            ("active", Ok(seq)) => actives.push(seq),
            // A crash in the middle of a write.
            _ if number.ends_with(".new") => fs::remove_file(entry.path())?,
            _ => {}
        }
    }
    sealed.sort_by_key(|segment: &Arc<Sealed>| segment.seq);
    for segment in sealed.iter().filter(|segment| !segment.is_readable) {
        note_damage(stats, segment, "its end is missing or has another checksum");
    }
    let next = sealed.last().map_or(1, |segment| segment.seq + 1);
    let seq = actives.iter().copied().max().unwrap_or(next).max(next);
    for old in actives.into_iter().filter(|old| *old != seq) {
        // A crash between the seal of the segment and its removal.
        fs::remove_file(active_path(dir, old))?;
    }
    let path = active_path(dir, seq);
    let bytes = if path.exists() { fs::read(&path)? } else { Vec::new() };
    let (mut rest, mut active) = (&bytes[..], Vec::<Arc<[u8]>>::new());
    while let Some(raw) = take_block(&mut rest) {
        active.push(raw.into());
    }
    if !rest.is_empty() {
        // Most likely a block that a crash cut off.
        tracing::warn!(bytes = rest.len(), "cut off the end of the log of visits, which cannot be read");
        OpenOptions::new().write(true).open(&path)?.set_len((bytes.len() - rest.len()) as u64)?;
    }
    let active_bytes = active.iter().map(|chunk| chunk.len()).sum();
    let deletions = Deletions::open(dir)?;
    Ok((State { active, active_bytes, sealed, deletions }, seq))
}

fn note_damage(stats: &NodeStats, segment: &Sealed, why: &str) {
    let path = segment.path.display();
    let text = format!("{path} cannot be read ({why}); its visits are left out, and it is removed once it is too old");
    stats.alarms.raise(Alarm::VisitLogDamaged, text);
}

impl Shared {
    fn note_damage(&self, segment: &Sealed, error: &io::Error) {
        note_damage(&self.stats, segment, &error.to_string());
    }

    /// Empties the rings. Returns the largest number of bytes that one ring held.
    fn drain(&self) -> usize {
        let geo = self.geo.get();
        let mut intake = locked(&self.intake);
        let Intake { receivers, pending, visits } = &mut *intake;
        if pending.len() > 2 * VISIT_SEGMENT_BYTES {
            // The disk hangs. The rings fill, and cores count what they drop.
            return 0;
        }
        let drained = receivers.iter_mut().map(|receiver| {
            receiver.drain(|visit| {
                *visits += 1;
                stored(visit, self.terms.addresses, source(&geo)).encode(pending);
            })
        });
        drained.max().unwrap_or(0)
    }

    /// Returns everything that a query reads, up to the last visit that was answered.
    fn contents(&self) -> Contents {
        self.drain();
        let intake = locked(&self.intake);
        let state = locked(&self.state);
        let mut recent = state.active.clone();
        recent.push(intake.pending[..].into());
        Contents { recent, sealed: state.sealed.clone(), deletions: state.deletions.clone() }
    }

    /// Takes the visits of the intake into the active segment, and returns them with their number.
    fn take_pending(&self) -> (Arc<[u8]>, u64) {
        let mut intake = locked(&self.intake);
        let mut state = locked(&self.state);
        let chunk: Arc<[u8]> = std::mem::take(&mut intake.pending).into();
        if !chunk.is_empty() {
            state.active.push(Arc::clone(&chunk));
            state.active_bytes += chunk.len();
        }
        (chunk, std::mem::take(&mut intake.visits))
    }

    /// Returns the instant before which visits are too old.
    fn oldest_ms(&self) -> u64 {
        self.terms.keep.map_or(0, |keep| unix_ms().saturating_sub(keep.as_millis() as u64))
    }

    fn count_bytes(&self) {
        self.stats.visit_log.bytes.set(locked(&self.state).sealed.iter().map(|segment| segment.bytes).sum());
    }
}

/// Returns a visit as it is stored, with the location of its address.
fn stored<'a>(visit: &VisitRecord<'a>, addresses: VisitAddresses, geo: Option<&'a dyn GeoSource>) -> VisitRecord<'a> {
    let location = visit.request.address.zip(geo).and_then(|(address, geo)| geo.location_of(address));
    let visit = VisitRecord { location, ..*visit }.without_private(addresses);
    let without_keys =
        |text: &'a [u8]| if memmem::find(text, key::PREFIX.as_bytes()).is_some() { &[][..] } else { text };
    let RequestPart { path, query, referrer, .. } = visit.request;
    // The code says the path of a short URL. The host is that of its domain.
    let is_link = visit.code.is_some();
    let (host, path) = if is_link { (&[][..], &[][..]) } else { (visit.request.host, without_keys(path)) };
    let request =
        RequestPart { host, path, query: without_keys(query), referrer: without_keys(referrer), ..visit.request };
    VisitRecord { request, ..visit }
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    /// The active segment; `None` if it cannot be opened.
    file: Option<File>,
    seq: u64,
    /// The length of the active segment in bytes.
    len: u64,
    block: Vec<u8>,
    failed: Option<Instant>,
    dropped: u64,
}

impl Writer {
    fn open(shared: Arc<Shared>, seq: u64) -> io::Result<Writer> {
        let mut writer = Writer { shared, file: None, seq, len: 0, block: Vec::new(), failed: None, dropped: 0 };
        writer.file()?;
        Ok(writer)
    }

    /// Returns the active segment, opening it if necessary.
    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let path = active_path(&self.shared.dir, self.seq);
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                self.len = file.metadata()?.len();
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// Appends the block to the active segment. After an error the segment ends where it ended before.
    fn append_block(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        self.file()?;
        let (len, file) = (self.len, self.file()?);
        let written = file.write_all(&block);
        if written.is_err() {
            // A block cut in the middle would hide every block behind it.
            file.set_len(len)?;
        }
        self.len = if written.is_ok() { len + block.len() as u64 } else { len };
        self.block = block;
        written
    }

    fn run(&mut self, until: &AtomicBool) {
        let mut written = Instant::now();
        self.shared.count_bytes();
        while !until.load(Ordering::Acquire) {
            let found = self.shared.drain();
            if written.elapsed() >= WRITE_EVERY {
                written = Instant::now();
                self.write();
                self.note_drops();
            }
            std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.shared.drain();
        self.write();
        if let Some(Err(error)) = self.file.as_ref().map(File::sync_data) {
            tracing::warn!(%error, "cannot sync the log of visits");
        }
    }

    /// Writes the new visits, and seals the active segment if it is long, old, or asked for.
    fn write(&mut self) {
        let (chunk, visits) = self.shared.take_pending();
        if self.shared.terms.are_events {
            self.shared.add_events(&chunk);
        }
        if !chunk.is_empty() {
            self.block.clear();
            push_block(&chunk, &mut self.block);
            match self.append_block() {
                Ok(()) => self.shared.stats.visit_log.visits.add(visits),
                Err(error) => {
                    self.shared.stats.visit_log.dropped.add_shared(visits);
                    self.dropped += visits;
                    self.fail(&format!("{visits} visits cannot be written: {error}"));
                }
            }
        }
        let (bytes, first_ms) = {
            let state = locked(&self.shared.state);
            let mut first = state.active.first().map_or(&[][..], |chunk| &chunk[..]);
            (state.active_bytes, VisitRecord::take(&mut first).map(|visit| visit.at_ms))
        };
        let Some(first_ms) = first_ms else {
            self.shared.wants_seal.store(false, Ordering::Release);
            return;
        };
        let is_old = unix_ms().saturating_sub(first_ms) >= ACTIVE_MS_MAX;
        let is_wanted = self.shared.wants_seal.load(Ordering::Acquire);
        if (bytes >= VISIT_SEGMENT_BYTES || is_old || is_wanted)
            && let Err(error) = self.seal()
        {
            if bytes >= 2 * VISIT_SEGMENT_BYTES {
                let mut state = locked(&self.shared.state);
                (state.active, state.active_bytes) = (Vec::new(), 0);
            }
            self.fail(&format!("a segment cannot be written: {error}"));
        }
    }

    /// Writes the active segment in its sealed form, and begins the next one.
    fn seal(&mut self) -> io::Result<()> {
        let (active, deletions) = {
            let state = locked(&self.shared.state);
            (state.active.clone(), state.deletions.clone())
        };
        let content = segment::sealed(active.iter().map(|chunk| &chunk[..]), |visit| !deletions.has(visit));
        let dir = &self.shared.dir;
        let sealed = match content {
            Some(content) => {
                write_whole(&sealed_path(dir, self.seq), &content)?;
                Some(Arc::new(Sealed::open(dir, self.seq)?))
            }
            None => None,
        };
        {
            let mut state = locked(&self.shared.state);
            state.sealed.extend(sealed);
            (state.active, state.active_bytes) = (Vec::new(), 0);
        }
        self.shared.wants_seal.store(false, Ordering::Release);
        let old = active_path(dir, self.seq);
        (self.file, self.seq) = (None, self.seq + 1);
        self.shared.count_bytes();
        fs::remove_file(old)?;
        self.file()?;
        Ok(())
    }

    fn fail(&mut self, why: &str) {
        self.failed = Some(Instant::now());
        self.shared.stats.alarms.raise(Alarm::VisitLogFailed, format!("{why}; redirects and counts continue"));
    }

    /// Raises the alarm for visits that cores have dropped, and clears it after a while without.
    fn note_drops(&mut self) {
        let dropped = self.shared.stats.visit_log.dropped.get();
        let new = dropped - std::mem::replace(&mut self.dropped, dropped);
        if new > 0 {
            self.fail(&format!("{new} visits were not logged, because the disk or the CPU is too slow"));
        } else if self.failed.take_if(|at| at.elapsed() >= QUIET_BEFORE_CLEAR).is_some() {
            self.shared.stats.alarms.clear(Alarm::VisitLogFailed);
        }
    }
}
