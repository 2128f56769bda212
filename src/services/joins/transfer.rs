//! The transfer of a snapshot from a peer into an empty data directory.
//!
//! One thread fetches pieces, checks them and keeps them on disk. Another fills a new store from them while more arrive,
//! in the order of the keys and without the journal, as a restore does. This process has no cores yet, but others on the
//! same machine may: both threads have the priority of long work. The caller's thread reports the progress.

use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

pub use super::kept::JOIN_FOLDER;
use super::kept::KeptPieces;
use super::peer::{PeerClient, PeerFault};
use crate::bridge::JoinSnapshot;
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::maintenance::restore::{RestoreError, restore};
use crate::services::threads;
use crate::services::threads::priority::{Priority, pause_if_due};
use carom_limits::JOIN_RETRY_TIME;
use carom_store::backup::pieces::{PIECE_HEAD_LEN, PieceChain, read_piece};
use carom_store::backup::{RecordCounts, Section};
use carom_store::links::{Links, StoreError};

/// Pieces that wait for the store.
const PIECES_WAITING: usize = 2;

/// Requests for the first response of a peer.
const FIRST_TRIES: u32 = 4;

/// Time before the second request; it doubles with each further one.
const WAIT: Duration = Duration::from_millis(250);

/// The longest time between two requests.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Times that a piece may arrive damaged.
const DAMAGED_MAX: u32 = 3;

/// Interval between two checks whether the join is to stop, and between two reports of progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes of one write to the kept pieces.
const WRITE_LEN: usize = 256 * 1024;

/// Bytes of one read of the kept pieces.
const BUFFER_LEN: usize = 1024 * 1024;

/// The peer and the new node.
#[derive(Clone, Copy, Debug)]
pub struct JoinPlan<'p> {
    /// The URL of the admin listener of the peer.
    pub peer: &'p str,
    /// The API key for the peer, if it requires one.
    pub key: Option<&'p str>,
    /// The data directory of the new node, which this process has locked.
    pub data_dir: &'p Path,
    /// The fingerprint of the code secret of the new node.
    pub fingerprint: &'p str,
    /// The name of the new node, if the settings name one.
    pub node: Option<&'p str>,
}

/// The progress of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinProgress {
    /// Links in the new store.
    pub links: u64,
    /// Records of all kinds in the new store.
    pub records: u64,
    /// The approximate number of all records.
    pub total_records: u64,
    /// Bytes of the pieces, those of earlier attempts included.
    pub bytes: u64,
}

/// The result of a join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinSummary {
    /// The name of the peer.
    pub node: String,
    /// The instant of the snapshot, in milliseconds since 1970 UTC.
    pub taken_ms: u64,
    /// The records of the store, by section. Tombstones count as links.
    pub counts: RecordCounts,
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Bytes of the pieces that an earlier attempt had kept.
    pub kept_bytes: u64,
}

/// The reason why a join failed.
#[derive(Debug)]
pub enum JoinError {
    /// The peer does not answer, or not in time.
    NoAnswer(String),
    /// The peer refuses the API key.
    Key(String),
    /// The peer serves no snapshots.
    Unable(String),
    /// The peer no longer has the snapshot. Everything that was fetched has been removed.
    Gone,
    /// A piece arrives damaged again and again, or the pieces contain no store.
    Damaged(String),
    /// The peer has another code secret, with this fingerprint.
    OtherCodeSecret(String),
    /// The peer has the name of the new node.
    SameNode(String),
    /// The disk has less room than the links need, in bytes.
    DiskFull {
        /// The bytes that the links take on the disk of the peer.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// A file of the data directory cannot be written.
    Disk(io::Error),
    /// The new store cannot be written.
    Store(StoreError),
    /// The join was asked to stop. A later attempt continues.
    Stopped,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::NoAnswer(why) | JoinError::Key(why) | JoinError::Unable(why) => f.write_str(why),
            JoinError::Gone => {
                f.write_str("the peer no longer has the snapshot: it has restarted, or closed it after ten minutes without a request")
            }
            JoinError::Damaged(what) => write!(f, "the transfer is damaged: {what}"),
            JoinError::OtherCodeSecret(theirs) => {
                write!(f, "the code secret of the peer has another fingerprint, {theirs}")
            }
            JoinError::SameNode(name) => write!(f, "the peer has the name of this node, {name}"),
            JoinError::DiskFull { needed, free } => {
                write!(f, "the links take {needed} bytes on the disk of the peer, but only {free} bytes are free here")
            }
            JoinError::Disk(error) => write!(f, "{error}"),
            JoinError::Store(error) => write!(f, "{error}"),
            JoinError::Stopped => f.write_str("stopped; a later attempt continues"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<io::Error> for JoinError {
    fn from(error: io::Error) -> JoinError {
        JoinError::Disk(error)
    }
}

impl From<StoreError> for JoinError {
    fn from(error: StoreError) -> JoinError {
        JoinError::Store(error)
    }
}

impl From<PeerFault> for JoinError {
    fn from(fault: PeerFault) -> JoinError {
        match fault {
            PeerFault::Passing(why) => JoinError::NoAnswer(why),
            PeerFault::Key(why) => JoinError::Key(why),
            PeerFault::Gone => JoinError::Gone,
            PeerFault::Unable(why) => JoinError::Unable(why),
        }
    }
}

/// Fills the data directory with the links of a peer. Blocks until it has all of them, and calls `on_progress` a few
/// times a second. Asks `should_stop` a few times a second, also while the peer does not answer. Once this was true, the join
/// ends.
///
/// # Errors
/// [`JoinError`]; the data directory has no store then. It keeps the pieces that have arrived, unless the peer no longer
/// has the snapshot.
pub fn join(
    plan: &JoinPlan<'_>,
    should_stop: &dyn Fn() -> bool,
    on_progress: &mut dyn FnMut(&JoinProgress),
) -> Result<JoinSummary, JoinError> {
    // The settings write a URL with a slash at its end.
    let plan = &JoinPlan { peer: plan.peer.trim_end_matches('/'), ..*plan };
    let client = PeerClient::new(plan.peer, plan.key.map(str::to_owned));
    let kept = KeptPieces::of(plan.data_dir);
    let snapshot = take_snapshot(&client, &kept, plan, should_stop)?;
    kept.remove_store()?;
    let filled = fill(&client, &kept, &snapshot, should_stop, on_progress);
    if matches!(filled, Err(JoinError::Gone)) {
        kept.remove()?;
    }
    let summary = filled?;
    let (links, _) = Links::open(&kept.store(), plan.fingerprint)?;
    let has_joined_fleet = links.has_joined_fleet()?;
    drop(links);
    if !has_joined_fleet {
        kept.remove()?;
        return Err(JoinError::Damaged("the store has no places in the streams of a fleet".to_owned()));
    }
    kept.install()?;
    client.end(snapshot.id);
    Ok(summary)
}

/// Returns the snapshot that an earlier attempt has read, if the peer still has it, or else a new one.
fn take_snapshot(
    client: &PeerClient,
    kept: &KeptPieces,
    plan: &JoinPlan<'_>,
    should_stop: &dyn Fn() -> bool,
) -> Result<JoinSnapshot, JoinError> {
    if let Some(id) = kept.snapshot_of(plan.peer) {
        match first_answer(client, should_stop, move |client| client.describe(id)) {
            Ok(snapshot) => {
                check(plan, &snapshot)?;
                return Ok(snapshot);
            }
            Err(JoinError::Gone) => tracing::info!("the peer no longer has the last snapshot; starting with a new one"),
            Err(error) => return Err(error),
        }
    }
    let snapshot = first_answer(client, should_stop, PeerClient::begin)?;
    let begun = check(plan, &snapshot).and_then(|()| has_room(plan, &snapshot));
    if let Err(error) = begun.and_then(|()| Ok(kept.begin(plan.peer, snapshot.id)?)) {
        client.end(snapshot.id);
        return Err(error);
    }
    Ok(snapshot)
}

/// Sends a request a few times. A peer that is out of reach at the beginning probably has another address.
fn first_answer(
    client: &PeerClient,
    should_stop: &dyn Fn() -> bool,
    request: impl Fn(&PeerClient) -> Result<JoinSnapshot, PeerFault> + Copy + Send + 'static,
) -> Result<JoinSnapshot, JoinError> {
    let mut wait = WAIT;
    for _ in 1..FIRST_TRIES {
        match ask(client, should_stop, request)? {
            Err(PeerFault::Passing(why)) => tracing::debug!("{why}"),
            answered => return Ok(answered?),
        }
        pause(wait, should_stop)?;
        wait *= 2;
    }
    Ok(ask(client, should_stop, request)??)
}

/// Sends a request on a thread of its own and waits for its response.
///
/// # Errors
/// [`JoinError::Stopped`] once `should_stop` returns true. The thread then ends with its request, after at most a minute.
/// [`JoinError::Disk`] if the operating system cannot start a thread.
fn ask<T: Send + 'static>(
    client: &PeerClient,
    should_stop: &dyn Fn() -> bool,
    request: impl FnOnce(&PeerClient) -> Result<T, PeerFault> + Send + 'static,
) -> Result<Result<T, PeerFault>, JoinError> {
    let (sender, answers) = sync_channel(1);
    let client = client.clone();
    threads::start(Priority::Long, "join-ask", move || {
        let _ = sender.send(request(&client));
    })?;
    loop {
        match answers.recv_timeout(LOOK_EVERY) {
            Ok(answered) => return Ok(answered),
            Err(_) if should_stop() => return Err(JoinError::Stopped),
            Err(error) => assert_eq!(error, RecvTimeoutError::Timeout, "panics abort"),
        }
    }
}

/// Waits before another request.
///
/// # Errors
/// [`JoinError::Stopped`] once `should_stop` returns true.
fn pause(wait: Duration, should_stop: &dyn Fn() -> bool) -> Result<(), JoinError> {
    let begun = Instant::now();
    while !should_stop() {
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
    Err(JoinError::Stopped)
}

/// Checks that a snapshot is that of another node of this fleet.
fn check(plan: &JoinPlan<'_>, snapshot: &JoinSnapshot) -> Result<(), JoinError> {
    if snapshot.fingerprint != plan.fingerprint {
        return Err(JoinError::OtherCodeSecret(snapshot.fingerprint.clone()));
    }
    if plan.node == Some(&*snapshot.node) {
        return Err(JoinError::SameNode(snapshot.node.clone()));
    }
    Ok(())
}

/// Checks that the disk has room for the links. The pieces need about as much again until the end.
fn has_room(plan: &JoinPlan<'_>, snapshot: &JoinSnapshot) -> Result<(), JoinError> {
    // If the space is unknown, a full disk shows as a failed write.
    let free = DiskGuard::new(plan.data_dir.to_owned()).space().map_or(u64::MAX, |space| space.free);
    if free < snapshot.bytes { Err(JoinError::DiskFull { needed: snapshot.bytes, free }) } else { Ok(()) }
}

/// Fills the new store from the kept pieces and the further ones.
fn fill(
    client: &PeerClient,
    kept: &KeptPieces,
    snapshot: &JoinSnapshot,
    should_stop: &dyn Fn() -> bool,
    on_progress: &mut dyn FnMut(&JoinProgress),
) -> Result<JoinSummary, JoinError> {
    let (noted, is_over, is_stopped) = (Noted::default(), AtomicBool::new(false), AtomicBool::new(false));
    let (restored, fetched) = thread::scope(|scope| {
        let (noted, is_stopped) = (&noted, &is_stopped);
        let (sender, pieces) = sync_channel(PIECES_WAITING);
        let fetcher = Fetcher { client, kept, snapshot: snapshot.id, bytes: &noted.bytes, is_over: &is_over };
        let fetching = threads::start_in(scope, Priority::Long, "join-fetch", move || fetcher.run(&sender));
        let (ended, results) = sync_channel(1);
        threads::start_in(scope, Priority::Long, "join-fill", move || {
            let input = PieceStream { pieces, piece: Vec::new(), at: 0, is_stopped };
            // The caller waits until it has the result.
            let _ = ended.send(restore(input, &kept.store(), kept.folder(), |counts| noted.set(counts)));
        });
        let restored = loop {
            let result = results.recv_timeout(LOOK_EVERY);
            // Also asked at the end: only this call receives the order to stop.
            if !is_stopped.load(Ordering::Relaxed) && should_stop() {
                is_stopped.store(true, Ordering::Release);
            }
            on_progress(&noted.progress(snapshot.records));
            match result {
                Ok(restored) => break restored,
                Err(error) => assert_eq!(error, RecvTimeoutError::Timeout, "panics abort"),
            }
        };
        is_over.store(true, Ordering::Release);
        (restored, fetching.join().expect("panics abort"))
    });
    let (counts, kept_bytes) = match (restored, fetched) {
        _ if is_stopped.load(Ordering::Acquire) => return Err(JoinError::Stopped),
        (Err(RestoreError::Store(error)), _) => return Err(error.into()),
        // The stream ended early for this reason.
        (_, Err(error)) => return Err(error),
        (Err(RestoreError::Backup(error)), Ok(_)) => {
            kept.remove()?;
            return Err(JoinError::Damaged(error.to_string()));
        }
        (Ok(counts), Ok(kept_bytes)) => (counts, kept_bytes),
    };
    Ok(JoinSummary {
        node: snapshot.node.clone(),
        taken_ms: snapshot.taken_ms,
        counts,
        bytes: noted.bytes.into_inner(),
        kept_bytes,
    })
}

/// The progress that both threads note.
#[derive(Default)]
struct Noted {
    links: AtomicU64,
    records: AtomicU64,
    /// Bytes of all pieces so far.
    bytes: AtomicU64,
}

impl Noted {
    /// Notes the records in the store.
    fn set(&self, counts: &RecordCounts) {
        self.links.store(counts.of(Section::Links), Ordering::Relaxed);
        self.records.store(counts.total(), Ordering::Relaxed);
    }

    fn progress(&self, total_records: u64) -> JoinProgress {
        let noted = [&self.links, &self.records, &self.bytes];
        let [links, records, bytes] = noted.map(|number| number.load(Ordering::Relaxed));
        JoinProgress { links, records, total_records, bytes }
    }
}

/// The thread that fetches pieces.
struct Fetcher<'f> {
    client: &'f PeerClient,
    kept: &'f KeptPieces,
    snapshot: u64,
    /// Bytes of all pieces so far.
    bytes: &'f AtomicU64,
    /// True once nobody needs more pieces.
    is_over: &'f AtomicBool,
}

impl Fetcher<'_> {
    /// Sends the kept pieces, and then those of the peer, which it keeps. Ends early if nobody takes them. Returns the bytes
    /// of the pieces that were kept before.
    fn run(&self, sender: &SyncSender<Vec<u8>>) -> Result<u64, JoinError> {
        let mut file = self.kept.pieces()?;
        let mut chain = PieceChain::begin(self.snapshot);
        let mut len = 0;
        let mut reader = BufReader::with_capacity(BUFFER_LEN, &file);
        while let Some(piece) = read_piece(&mut reader)? {
            // Everything behind a damaged piece is fetched again.
            if chain.open(&piece).is_err() {
                break;
            }
            len += piece.len() as u64;
            self.bytes.store(len, Ordering::Relaxed);
            if sender.send(piece).is_err() {
                return Ok(len);
            }
        }
        drop(reader);
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len))?;
        while !chain.is_complete() && !self.is_over.load(Ordering::Acquire) {
            let piece = match self.fetch(&mut chain) {
                // The result of the store says why.
                Err(JoinError::Stopped) => break,
                fetched => fetched?,
            };
            for part in piece.chunks(WRITE_LEN) {
                file.write_all(part)?;
                pause_if_due();
            }
            self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if sender.send(piece).is_err() {
                return Ok(len);
            }
        }
        Ok(len)
    }

    /// Returns the next piece, whole and undamaged. Tries again while the peer may answer later.
    ///
    /// # Errors
    /// The fault of the peer; [`JoinError::Stopped`] once nobody needs more pieces.
    fn fetch(&self, chain: &mut PieceChain) -> Result<Vec<u8>, JoinError> {
        let (begun, mut wait, mut damaged) = (Instant::now(), WAIT, 0);
        let is_over = || self.is_over.load(Ordering::Acquire);
        loop {
            let (snapshot, number) = (self.snapshot, chain.next());
            match ask(self.client, &is_over, move |client| client.piece(snapshot, number))? {
                Ok(piece) => match chain.open(&piece).map(|_| ()) {
                    Ok(()) => return Ok(piece),
                    Err(error) => {
                        damaged += 1;
                        tracing::warn!("{error}; fetching it again");
                        if damaged == DAMAGED_MAX {
                            return Err(JoinError::Damaged(error.to_string()));
                        }
                    }
                },
                Err(PeerFault::Passing(why)) if begun.elapsed() < JOIN_RETRY_TIME => {
                    tracing::warn!("{why}; trying again");
                }
                Err(fault) => return Err(fault.into()),
            }
            pause(wait, &is_over)?;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}

/// The payloads of pieces as one stream.
struct PieceStream<'s> {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    /// Bytes of the piece that were read, its head included.
    at: usize,
    /// True once the join is to stop.
    is_stopped: &'s AtomicBool,
}

impl Read for PieceStream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            let next = self.pieces.recv_timeout(LOOK_EVERY);
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(io::Error::other("stopped"));
            }
            match next {
                Ok(piece) => (self.at, self.piece) = (PIECE_HEAD_LEN, piece),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let len = out.len().min(self.piece.len() - self.at);
        out[..len].copy_from_slice(&self.piece[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
