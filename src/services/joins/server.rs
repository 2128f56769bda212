//! The snapshots that this node serves to joining nodes, on a thread of their own that runs in the background.
//!
//! A snapshot keeps what the store replaces, so few are open at once, and one that is no longer read is closed. Pieces
//! leave at a bounded rate.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::open_snapshot::OpenSnapshot;
use crate::bridge::{Job, JobDone, JoinSnapshot, Mailboxes, SnapshotProvider, SnapshotQueue, SnapshotRefusal};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{SNAPSHOT_IDLE_IF_WANTED, SNAPSHOT_IDLE_MAX, SNAPSHOT_QUEUE_LEN, SNAPSHOTS_MAX};
use carom_store::links::Links;
use carom_telemetry::clock::unix_ms;

/// Interval between two searches for snapshots that are no longer read.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The terms of the snapshots of a node.
pub struct SnapshotTerms {
    /// The store.
    pub links: Links,
    /// The data directory, for counts of visits that the store lacks.
    pub data_dir: PathBuf,
    /// The name of this node.
    pub node: String,
    /// The fingerprint of the code secret.
    pub fingerprint: String,
    /// Bytes per second of all snapshots together.
    pub rate: u64,
}

/// A snapshot, and the instant of its last request.
struct Served {
    snapshot: OpenSnapshot,
    used: Instant,
}

struct Serving {
    open: Vec<Served>,
    /// The instant from which the next piece may leave.
    due: Instant,
}

/// The snapshots of this node.
struct SnapshotServer {
    terms: SnapshotTerms,
    state: Mutex<Serving>,
}

impl fmt::Debug for SnapshotServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshots(of {})", self.terms.node)
    }
}

impl SnapshotServer {
    fn new(terms: SnapshotTerms) -> SnapshotServer {
        SnapshotServer { terms, state: Mutex::new(Serving { open: Vec::new(), due: Instant::now() }) }
    }

    fn state(&self) -> MutexGuard<'_, Serving> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the snapshots that nobody has read for a while.
    fn close_idle(&self) {
        let mut state = self.state();
        for idle in state.open.extract_if(.., |served| served.used.elapsed() > SNAPSHOT_IDLE_MAX) {
            tracing::info!(snapshot = %name(idle.snapshot.about.id), "closed a snapshot that was no longer read");
        }
    }

    /// Makes room for one more snapshot. Returns false if all are in use.
    fn make_room(&self) -> bool {
        let mut state = self.state();
        if state.open.len() < SNAPSHOTS_MAX {
            return true;
        }
        let longest = state.open.iter().enumerate().min_by_key(|(_, served)| served.used).map(|(at, _)| at);
        let longest = longest.filter(|at| state.open[*at].used.elapsed() > SNAPSHOT_IDLE_IF_WANTED);
        longest.is_some_and(|at| {
            state.open.swap_remove(at);
            true
        })
    }

    /// Waits until the next piece may leave.
    fn wait_for_turn(&self) {
        let wait = self.state().due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    /// Writes the next piece of every snapshot that is read, while the client takes the last one and the rate lets no
    /// other leave.
    fn write_ahead(&self) {
        self.state().open.iter_mut().for_each(|served| served.snapshot.write_ahead());
    }

    /// Runs `work` on an open snapshot.
    fn with<T>(&self, id: u64, work: impl FnOnce(&mut OpenSnapshot) -> T) -> Result<T, SnapshotRefusal> {
        let mut state = self.state();
        let served = state.open.iter_mut().find(|served| served.snapshot.about.id == id);
        let served = served.ok_or(SnapshotRefusal::Gone)?;
        let done = work(&mut served.snapshot);
        served.used = Instant::now();
        Ok(done)
    }
}

impl SnapshotProvider for SnapshotServer {
    fn begin(&self) -> Result<JoinSnapshot, SnapshotRefusal> {
        if !self.make_room() {
            return Err(SnapshotRefusal::TooMany);
        }
        let failed = |error: io::Error| SnapshotRefusal::Failed(error.to_string());
        let id = getrandom::u64().map_err(|error| failed(io::Error::other(error)))?;
        let SnapshotTerms { links, data_dir, node, fingerprint, .. } = &self.terms;
        let (node, fingerprint) = (node.clone(), fingerprint.clone());
        let about = JoinSnapshot { id, node, fingerprint, taken_ms: unix_ms(), links: 0, records: 0, bytes: 0 };
        let snapshot = OpenSnapshot::open(links, data_dir, about).map_err(failed)?;
        let about = snapshot.about.clone();
        tracing::info!(snapshot = %name(id), "opened a snapshot for a node that joins the fleet");
        self.state().open.push(Served { snapshot, used: Instant::now() });
        Ok(about)
    }

    fn describe(&self, id: u64) -> Result<JoinSnapshot, SnapshotRefusal> {
        self.with(id, |snapshot| snapshot.about.clone())
    }

    fn piece(&self, id: u64, number: u32) -> Result<Vec<u8>, SnapshotRefusal> {
        self.wait_for_turn();
        let (piece, is_charged) =
            self.with(id, |snapshot| snapshot.piece(number).map(|piece| (piece, snapshot.is_charged())))??;
        if is_charged {
            let cost = Duration::from_secs_f64(piece.len() as f64 / self.terms.rate.max(1) as f64);
            let mut state = self.state();
            state.due = state.due.max(Instant::now()) + cost;
        }
        Ok(piece)
    }

    fn end(&self, id: u64) -> bool {
        let mut state = self.state();
        let ended = state.open.extract_if(.., |served| served.snapshot.about.id == id).count() > 0;
        if ended {
            tracing::info!(snapshot = %name(id), "the joining node has closed its snapshot");
        }
        ended
    }
}

/// Returns the name of a snapshot in addresses and logs.
fn name(id: u64) -> String {
    format!("{id:016x}")
}

/// Starts the thread that serves snapshots. It ends when all queues are gone, and closes its snapshots.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(terms: SnapshotTerms, mailboxes: &Mailboxes) -> io::Result<(SnapshotQueue, JoinHandle<()>)> {
    let (jobs, receiver) = sync_channel(SNAPSHOT_QUEUE_LEN);
    let snapshots = Arc::new(SnapshotServer::new(terms));
    let (of_thread, mailboxes) = (Arc::clone(&snapshots), mailboxes.clone());
    let run = move || serve(&of_thread, &receiver, &mailboxes);
    let thread = threads::start(Priority::Background, "snapshots", run)?;
    Ok((SnapshotQueue { provider: snapshots, jobs }, thread))
}

fn serve(snapshots: &SnapshotServer, jobs: &Receiver<Job>, mailboxes: &Mailboxes) {
    loop {
        match jobs.recv_timeout(LOOK_EVERY) {
            Ok(Job { ticket, run }) => {
                run();
                mailboxes.answer(ticket, JobDone);
                snapshots.write_ahead();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        snapshots.close_idle();
    }
    snapshots.state().open.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Ticket;
    use crate::services::testing::{KEY, TestNode};
    use carom_shards::{Code, CoreId};
    use carom_store::backup::pieces::PieceChain;
    use std::path::Path;

    fn snapshots(dir: &Path, rate: u64) -> SnapshotServer {
        let (links, _) = Links::open(&dir.join("links"), KEY).unwrap();
        let mut batch = links.batch();
        batch.put(&Code::parse(b"abc").unwrap(), b"record");
        links.commit(batch).unwrap();
        let (data_dir, node, fingerprint) = (dir.to_owned(), "n1".to_owned(), KEY.to_owned());
        SnapshotServer::new(SnapshotTerms { links, data_dir, node, fingerprint, rate })
    }

    /// Moves the last request of a snapshot into the past.
    fn age(snapshots: &SnapshotServer, id: u64, by: Duration) {
        let mut state = snapshots.state();
        let served = state.open.iter_mut().find(|served| served.snapshot.about.id == id).unwrap();
        served.used = served.used.checked_sub(by).unwrap();
    }

    #[test]
    fn few_snapshots_are_open_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = snapshots(dir.path(), u64::MAX);
        let ids: Vec<u64> = (0..SNAPSHOTS_MAX).map(|_| snapshots.begin().unwrap().id).collect();
        assert_eq!(snapshots.begin(), Err(SnapshotRefusal::TooMany));
        assert!(snapshots.end(ids[0]));
        assert!(!snapshots.end(ids[0]));
        assert_eq!(snapshots.piece(ids[0], 0), Err(SnapshotRefusal::Gone));
        assert!(snapshots.begin().is_ok());
        // One that is not read makes room for another node.
        age(&snapshots, ids[1], SNAPSHOT_IDLE_IF_WANTED + Duration::from_secs(1));
        assert!(snapshots.describe(ids[1]).is_ok(), "a description keeps it open");
        assert_eq!(snapshots.begin(), Err(SnapshotRefusal::TooMany));
        age(&snapshots, ids[1], SNAPSHOT_IDLE_IF_WANTED + Duration::from_secs(1));
        assert!(snapshots.begin().is_ok());
        assert_eq!(snapshots.describe(ids[1]), Err(SnapshotRefusal::Gone));
    }

    #[test]
    fn idle_snapshots_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = snapshots(dir.path(), u64::MAX);
        let (idle, read) = (snapshots.begin().unwrap().id, snapshots.begin().unwrap().id);
        age(&snapshots, idle, SNAPSHOT_IDLE_MAX + Duration::from_secs(1));
        snapshots.close_idle();
        assert_eq!(snapshots.describe(idle), Err(SnapshotRefusal::Gone));
        assert_eq!(snapshots.describe(read).unwrap().node, "n1");
    }

    #[test]
    fn pieces_keep_to_the_rate() {
        const RATE: u64 = 2_000;
        let dir = tempfile::tempdir().unwrap();
        let snapshots = snapshots(dir.path(), RATE);
        let about = snapshots.begin().unwrap();
        let begun = Instant::now();
        let piece = snapshots.piece(about.id, 0).unwrap();
        let mut chain = PieceChain::begin(about.id);
        assert!(chain.open(&piece).is_ok());
        assert!(chain.is_complete());
        assert_eq!(snapshots.piece(about.id, 0).unwrap(), piece, "a piece can be read again");
        let least = Duration::from_secs_f64(piece.len() as f64 / RATE as f64);
        assert!(least > Duration::from_millis(40), "otherwise the test proves nothing");
        assert!(begun.elapsed() >= least, "{least:?}");
    }

    #[test]
    fn next_piece_is_read_before_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Arc::new(snapshots(dir.path(), u64::MAX));
        let mut batch = snapshots.terms.links.batch();
        for number in 0..5_000 {
            batch.put(&Code::parse(format!("c{number:06}").as_bytes()).unwrap(), &[7; 1_000]);
        }
        snapshots.terms.links.commit(batch).unwrap();
        let id = snapshots.begin().unwrap().id;
        let (jobs, receiver) = sync_channel(2);
        let (sender, seen) = sync_channel(1);
        let (asking, looking) = (Arc::clone(&snapshots), Arc::clone(&snapshots));
        let ticket = || Ticket::new(CoreId(0), 1);
        jobs.send(Job { ticket: ticket(), run: Box::new(move || drop(asking.piece(id, 0).unwrap())) }).unwrap();
        let look = move || sender.send(looking.state().open[0].snapshot.is_ahead()).unwrap();
        jobs.send(Job { ticket: ticket(), run: Box::new(look) }).unwrap();
        drop(jobs);
        let other = tempfile::tempdir().unwrap();
        let node = TestNode::new(other.path(), 1);
        serve(&snapshots, &receiver, &node.mailboxes);
        assert!(seen.recv().unwrap(), "the client would wait for the store and then for the rate");
    }

    #[test]
    fn a_lost_response_is_charged_once() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = snapshots(dir.path(), 2_000);
        let id = snapshots.begin().unwrap().id;
        let dues: Vec<Instant> = (0..3)
            .map(|_| {
                snapshots.piece(id, 0).unwrap();
                snapshots.state().due
            })
            .collect();
        assert_eq!(dues[0], dues[1], "the client had no response before");
        assert!(dues[2] > dues[1], "the rate holds for a client that asks on and on");
    }
}
