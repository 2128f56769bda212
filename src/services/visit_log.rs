//! The visit log: one record for each visit, in segments on disk. The counts of visits are in `services::visits`.
//!
//! * `segment`: the form of the files;
//! * `query`: selects and sorts visits;
//! * `statistics`: counts visits by what they tell of their clients;
//! * `events`: adds visits to the event log;
//! * `deletions`: visits that are deleted and still on disk;
//! * `upkeep`: removes old and deleted visits from the disk;
//! * [`copies`]: the log in backups;
//! * [`samples`]: a log of visits that no node has logged;
//! * `threads`: starts the threads.
//!
//! In a fleet, each log has the visits of all nodes:
//!
//! * `mark`: the origin and number of a block;
//! * `sharing`: the state that the threads share, and its file;
//! * `outgoing`: own blocks on their way to the other nodes;
//! * `received`: numbers own blocks, and writes those of other nodes;
//! * `block_exchange`, `follow`: the thread that asks Redis.
//!
//! Cores put records into rings of bytes and never wait. The thread `visit-log` drains the rings, writes twice a second
//! and seals segments. The thread `visit-query` lets the cores go first. It answers queries, and does the upkeep in
//! between. The thread `redis-visit-log` exchanges blocks with the other nodes of a fleet.

mod block_exchange;
pub mod copies;
mod deletions;
mod events;
mod follow;
mod mark;
mod outgoing;
pub mod purges;
mod query;
mod received;
pub mod samples;
mod segment;
mod sharing;
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
use self::mark::BlockMark;
use self::outgoing::{OUTGOING, Outgoing, outgoing_path, read_marks};
use self::segment::{SealedSegment, active_path, push_block, sealed_path};
pub use self::sharing::LogSharing;
use self::sharing::Sharing;
use crate::bridge::Mailboxes;
use crate::bridge::geo::{GeoSlot, source};
use crate::bridge::visit_log::{VisitLogQueue, VisitLogReceiver};
use crate::services::visits::FleetVisits;
use crate::services::whole_file::write_whole;
use carom_limits::VISIT_SEGMENT_BYTES;
use carom_model::access::key;
use carom_model::clients::locations::GeoSource;
use carom_model::visits::record::{RequestPart, VisitAddresses, VisitRecord};
use carom_model::visits::shared_log::SharedLogState;
use carom_store::links::Links;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Interval between two drains of the rings while each holds less than [`BUSY`] bytes.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Interval between two drains of the rings while one holds [`BUSY`] bytes or more.
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
pub struct VisitLogSetup {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The settings of the log.
    pub terms: VisitLogTerms,
    /// The links, which decide whose visits a query shows.
    pub links: Links,
    /// The locations of addresses.
    pub geo: GeoSlot,
    /// The part of the log in a fleet.
    pub sharing: LogSharing,
    /// The connection to the other nodes, for a log that is shared.
    pub fleet: Option<FleetVisits>,
    /// The ring of each core.
    pub receivers: Vec<VisitLogReceiver>,
    /// The mailboxes of the cores, for answers.
    pub mailboxes: Mailboxes,
    /// Counters and alarms of the node.
    pub stats: Arc<NodeStats>,
}

/// A handle on the threads that write the log and exchange it.
#[derive(Debug)]
pub struct VisitLogThreads {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    exchange: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl VisitLogThreads {
    /// Stops the threads after a last write. Call it after the cores have ended.
    pub fn stop(self) {
        // The exchange publishes what the other thread has written.
        for (stop, thread) in [Some((self.stop, self.thread)), self.exchange].into_iter().flatten() {
            stop.store(true, Ordering::Release);
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// The running log.
#[derive(Debug)]
pub struct StartedVisitLog {
    /// The queue of queries.
    pub queue: VisitLogQueue,
    /// The thread that answers them. It ends when all senders are gone.
    pub reader: JoinHandle<()>,
    /// The handle on the threads.
    pub threads: VisitLogThreads,
}

/// The parts that both threads share.
struct VisitLogState {
    dir: PathBuf,
    terms: VisitLogTerms,
    links: Links,
    geo: GeoSlot,
    stats: Arc<NodeStats>,
    sharing: Sharing,
    /// Lock this before the state.
    intake: Mutex<LogIntake>,
    state: Mutex<LogState>,
    /// True if the active segment is to be sealed at the next write, so that the upkeep sees its visits.
    wants_seal: AtomicBool,
    /// True while a purge waits for files of blocks that Redis has received.
    drops_sent: AtomicBool,
}

/// Visits that were taken out of the rings and are not written yet.
struct LogIntake {
    receivers: Vec<VisitLogReceiver>,
    pending: Vec<u8>,
    visits: u64,
}

/// The log without what is in the intake.
struct LogState {
    /// The records of the active segment, by write.
    active: Vec<Arc<[u8]>>,
    active_bytes: usize,
    /// The number of the active segment.
    active_seq: u64,
    /// The instant at which the active segment got its first records, in milliseconds since 1970 UTC.
    begun_ms: u64,
    /// The sealed segments, oldest first.
    sealed: Vec<Arc<SealedSegment>>,
    deletions: Deletions,
    /// The knowledge about the logs of all nodes, if the log is shared.
    shared_log: Option<SharedLogState>,
    outgoing: Outgoing,
}

impl LogState {
    /// Adds records to the active segment.
    fn push(&mut self, chunk: Arc<[u8]>) {
        if self.active.is_empty() {
            self.begun_ms = unix_ms();
        }
        self.active_bytes += chunk.len();
        self.active.push(chunk);
    }
}

/// The log at one instant, as a query reads it.
struct Contents {
    /// The records that no sealed segment has.
    recent: Vec<Arc<[u8]>>,
    sealed: Vec<Arc<SealedSegment>>,
    deletions: Deletions,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state of the log on disk, and the number of the active segment.
fn read_back(dir: &Path, stats: &NodeStats, mode: LogSharing) -> io::Result<(LogState, u64)> {
    let (mut sealed, mut actives, mut kept) = (Vec::new(), Vec::new(), Vec::<u64>::new());
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((kind, number)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
        match (kind, number.parse()) {
            ("segment", Ok(seq)) => sealed.push(Arc::new(SealedSegment::open(dir, seq)?)),
            ("active", Ok(seq)) => actives.push(seq),
            (kind, Ok(seq)) if OUTGOING.strip_suffix('-') == Some(kind) => kept.push(seq),
            // A crash in the middle of a write.
            _ if number.ends_with(".new") => fs::remove_file(entry.path())?,
            _ => {}
        }
    }
    sealed.sort_by_key(|segment: &Arc<SealedSegment>| segment.seq);
    for segment in sealed.iter().filter(|segment| !segment.is_readable) {
        note_damage(stats, segment, "its end is missing or has another checksum");
    }
    let next = sealed.last().map_or(1, |segment| segment.seq + 1);
    // A segment without visits leaves only the file that is kept.
    let next = kept.iter().map(|of| of + 1).max().unwrap_or(next).max(next);
    let seq = actives.iter().copied().max().unwrap_or(next).max(next);
    let has_records = |of: &u64| fs::metadata(active_path(dir, *of)).is_ok_and(|file| file.len() > 0);
    let is_empty = sealed.is_empty() && !actives.iter().any(has_records);
    let has_marks = |of: u64| actives.contains(&of) || kept.contains(&of);
    let unmarked = sealed.iter().rev().find(|segment| !has_marks(segment.seq)).map_or(0, |segment| segment.seq);
    let shared_log = sharing::open(dir, mode, (is_empty, unmarked), unix_ms())?;
    kept.retain(|of| outgoing_path(dir, *of).exists());
    let mut state = LogState {
        active: Vec::new(),
        active_bytes: 0,
        active_seq: seq,
        begun_ms: 0,
        sealed,
        deletions: Deletions::open(dir)?,
        shared_log,
        outgoing: Outgoing::default(),
    };
    actives.retain(|of| *of != seq);
    state.read_kept(dir, kept, actives)?;
    state.read_active(dir, seq)?;
    Ok((state, seq))
}

impl LogState {
    /// Reads the files behind sealed segments: those that are kept for other nodes, and those that a crash has left
    /// between the seal of a segment and their removal.
    fn read_kept(&mut self, dir: &Path, mut kept: Vec<u64>, actives: Vec<u64>) -> io::Result<()> {
        let has_crashed = !actives.is_empty();
        for old in actives {
            if let Some(shared_log) = &mut self.shared_log {
                shared_log.note_sealed(old);
                fs::rename(active_path(dir, old), outgoing_path(dir, old))?;
                kept.push(old);
            } else {
                fs::remove_file(active_path(dir, old))?;
            }
        }
        kept.sort_unstable();
        for old in kept {
            let path = outgoing_path(dir, old);
            if self.shared_log.is_none() {
                fs::remove_file(path)?;
                continue;
            }
            let bytes = fs::read(&path)?;
            read_marks((old, &bytes[..]), self.shared_log.as_mut(), &mut self.outgoing, |_, _| {});
            self.outgoing.add_file(old, bytes.len() as u64);
        }
        // Before one of the files is removed.
        let changed = self.shared_log.as_ref().filter(|_| has_crashed);
        changed.map_or(Ok(()), |shared_log| sharing::write(dir, shared_log))
    }

    /// Reads the active segment, and cuts off a block that a crash has left unfinished.
    fn read_active(&mut self, dir: &Path, seq: u64) -> io::Result<()> {
        let path = active_path(dir, seq);
        let bytes = if path.exists() { fs::read(&path)? } else { Vec::new() };
        let (mut active, mut begun_ms, mut unmarked_ms) = (Vec::<Arc<[u8]>>::new(), None, 0);
        let whole = read_marks((seq, &bytes[..]), self.shared_log.as_mut(), &mut self.outgoing, |raw, content| {
            begun_ms = begun_ms.or(content.span.map(|span| span.from_ms));
            if content.mark.is_none() {
                unmarked_ms = content.span.map_or(0, |span| span.to_ms).max(unmarked_ms);
            }
            active.push(raw.into());
        });
        if whole < bytes.len() as u64 {
            // Most likely a block that a crash cut off.
            let bytes = bytes.len() as u64 - whole;
            tracing::warn!(bytes, "cut off the end of the visit log, which cannot be read");
            OpenOptions::new().write(true).open(&path)?.set_len(whole)?;
        }
        self.active_bytes = active.iter().map(|chunk| chunk.len()).sum();
        (self.active, self.begun_ms) = (active, begun_ms.unwrap_or(0));
        let is_known = |of: &&mut SharedLogState| of.lacking().is_some_and(|span| unmarked_ms <= span.to_ms);
        if unmarked_ms > 0
            && let Some(shared_log) = self.shared_log.as_mut().filter(|of| !is_known(of))
        {
            File::open(&path)?.sync_data()?;
            sharing::identify_again(dir, shared_log, unix_ms().max(unmarked_ms))?;
            self.outgoing.clear();
        }
        Ok(())
    }
}

fn note_damage(stats: &NodeStats, segment: &SealedSegment, why: &str) {
    let path = segment.path.display();
    let text = format!("{path} cannot be read ({why}); its visits are left out, and it is removed once it is too old");
    stats.alarms.raise(Alarm::VisitLogDamaged, text);
}

impl VisitLogState {
    fn note_damage(&self, segment: &SealedSegment, error: &io::Error) {
        note_damage(&self.stats, segment, &error.to_string());
    }

    /// Empties the rings. Returns the largest number of bytes that one ring held.
    fn drain(&self) -> usize {
        let geo = self.geo.get();
        let mut intake = locked(&self.intake);
        let LogIntake { receivers, pending, visits } = &mut *intake;
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
            state.push(Arc::clone(&chunk));
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

/// Compresses the records of a block and its mark, and appends them as a block.
fn push_marked(chunk: &[u8], mark: BlockMark, into: &mut Vec<u8>) {
    let mut raw = Vec::with_capacity(chunk.len() + 32);
    raw.extend_from_slice(chunk);
    mark.push(&mut raw);
    push_block(&raw, into);
}

/// The thread that writes.
struct VisitLogWriter {
    shared: Arc<VisitLogState>,
    /// The active segment; `None` if it cannot be opened.
    file: Option<File>,
    seq: u64,
    /// The length of the active segment in bytes.
    len: u64,
    block: Vec<u8>,
    failed: Option<Instant>,
    dropped: u64,
}

impl VisitLogWriter {
    fn open(shared: Arc<VisitLogState>, seq: u64) -> io::Result<VisitLogWriter> {
        let mut writer =
            VisitLogWriter { shared, file: None, seq, len: 0, block: Vec::new(), failed: None, dropped: 0 };
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

    /// Appends the block to the active segment, and returns its place. After an error the segment ends where it ended
    /// before.
    fn append_block(&mut self) -> io::Result<u64> {
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
        written.map(|()| len)
    }

    fn run(&mut self, until: &AtomicBool) {
        let mut written = Instant::now();
        self.shared.count_bytes();
        while !until.load(Ordering::Acquire) {
            let found = self.shared.drain();
            self.write_received();
            // Until Redis was asked, at most some seconds, own blocks have no numbers.
            if written.elapsed() >= WRITE_EVERY && self.shared.sharing.is_checked() {
                written = Instant::now();
                self.write();
                self.note_drops();
            }
            std::thread::park_timeout(if found >= BUSY { COLLECT_BUSY } else { COLLECT_EVERY });
        }
        self.shared.drain();
        self.write();
        if let Some(Err(error)) = self.file.as_ref().map(File::sync_data) {
            tracing::warn!(%error, "cannot sync the visit log");
        }
    }

    /// Writes the new visits, and seals the active segment if it is due.
    fn write(&mut self) {
        let (chunk, visits) = self.shared.take_pending();
        if self.shared.terms.are_events {
            self.shared.add_events(&chunk);
        }
        if !chunk.is_empty() {
            self.append_chunk(&chunk, visits);
        }
        self.seal_if_due();
    }

    /// Appends own visits to the active segment, in a fleet with the mark of this node.
    fn append_chunk(&mut self, chunk: &[u8], visits: u64) {
        self.block.clear();
        let mark = self.shared.next_mark();
        match mark {
            Some(mark) => push_marked(chunk, mark, &mut self.block),
            None => push_block(chunk, &mut self.block),
        }
        let appended = self.append_block();
        if let Some(mark) = mark {
            let place = appended.as_ref().ok().map(|at| (self.seq, *at, self.block.len() as u32));
            self.shared.note_own(mark, place, chunk);
        }
        match appended {
            Ok(_) => self.shared.stats.visit_log.visits.add(visits),
            Err(error) => {
                self.shared.stats.visit_log.dropped.add_shared(visits);
                self.dropped += visits;
                self.fail(&format!("{visits} visits cannot be written: {error}"));
            }
        }
    }

    /// Seals the active segment if it is long, old, or if that is asked for.
    fn seal_if_due(&mut self) {
        let (bytes, is_empty, begun_ms) = {
            let state = locked(&self.shared.state);
            (state.active_bytes, state.active.is_empty(), state.begun_ms)
        };
        if is_empty {
            self.shared.wants_seal.store(false, Ordering::Release);
            return;
        }
        let is_old = unix_ms().saturating_sub(begun_ms) >= ACTIVE_MS_MAX;
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
                Some(Arc::new(SealedSegment::open(dir, self.seq)?))
            }
            None => None,
        };
        {
            let mut state = locked(&self.shared.state);
            state.sealed.extend(sealed);
            (state.active, state.active_bytes, state.active_seq) = (Vec::new(), 0, self.seq + 1);
        }
        self.shared.wants_seal.store(false, Ordering::Release);
        let old = self.seq;
        (self.file, self.seq) = (None, self.seq + 1);
        self.shared.count_bytes();
        self.shared.leave_active(old)?;
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
