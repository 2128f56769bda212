//! Fault injection, in builds with the feature `faults` only: it shows that the test of a guarantee fails when the
//! guarantee is switched off.
//!
//! `CAROM_FAULT` names one fault:
//!
//! * `core-on-order`: core 0 stalls while the file `stall-core` is in the data directory.
//! * `ack-before-sync`: the writer acknowledges before it syncs.
//! * `trust-counter`: a node of a fleet uses whatever the counter in Redis returns.
//! * `recycle-at-once`: a node of a fleet recycles codes without a wait for the other nodes.
//! * `deaf-fetchers`: no core gets what was read from the store, as if the disk hung.
//! * `deaf-visits`: the rings of visits fill up.
//! * `little-memory`: cores have memory for hardly any links.
//! * `short-scans`: scans for lists in an order without an index end at once, so that the lists are sorted in the
//!   background.
//! * `small-queues`: cores have few codes in advance, so that codes to reuse are given again soon.
//! * `sync-on-order`: each sync of the writer waits while the file `stall-sync` is in the data directory, panics if the
//!   file `panic-sync` is, and fails if the file `fail-sync` is.
//!
//! In every such build the writer also keeps `synced.log` in the data directory. After each sync it appends a line with
//! the name of a journal and its number of synced bytes. From that file, [`power_loss`] truncates a copy of the
//! directory as a power failure would.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carom_store::journal::{self, mark};
use carom_store::links::StoreError;

/// Longest time for which acknowledged writes stay unsynced in the faulty mode.
const SYNC_EVERY: Duration = Duration::from_secs(2);

const LOG: &str = "synced.log";

/// The promises to break.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Makes the writer acknowledge first and sync later.
    pub ack_before_sync: bool,
    /// Makes a node take values from the counter with `INCRBY` alone, and assume that they are new.
    pub trust_counter: bool,
    /// Makes a node recycle codes before the other nodes have passed their removal.
    pub recycle_at_once: bool,
    /// Leaves the rings in which cores report visits undrained.
    pub deaf_visits: bool,
    /// Leaves cores that ask for a link from the store without an answer.
    pub deaf_fetchers: bool,
    /// Gives cores memory for hardly any links.
    pub little_memory: bool,
    /// Ends scans for lists in an order without an index at once.
    pub short_scans: bool,
    /// Leaves most of the queues of codes empty.
    pub small_queues: bool,
    /// Stalls core 0 while a certain file is in the data directory.
    pub core_on_order: bool,
    /// Stalls or fails syncs, or has them panic, while certain files are in the data directory.
    pub sync_on_order: bool,
}

impl Faults {
    /// Reads the fault from the environment.
    pub fn from_env() -> Faults {
        let is = |name: &str| std::env::var("CAROM_FAULT").is_ok_and(|fault| fault == name);
        Faults {
            ack_before_sync: is("ack-before-sync"),
            trust_counter: is("trust-counter"),
            recycle_at_once: is("recycle-at-once"),
            deaf_visits: is("deaf-visits"),
            deaf_fetchers: is("deaf-fetchers"),
            little_memory: is("little-memory"),
            short_scans: is("short-scans"),
            small_queues: is("small-queues"),
            core_on_order: is("core-on-order"),
            sync_on_order: is("sync-on-order"),
        }
    }

    /// Returns the file that stalls a core, if it is to stall.
    pub fn stall_file(&self, data_dir: &Path, core: usize) -> Option<PathBuf> {
        (self.core_on_order && core == 0).then(|| data_dir.join("stall-core"))
    }

    /// Blocks while a sync is to stall, and panics if it is to panic.
    ///
    /// # Errors
    /// If the sync is to fail.
    pub fn obstruct_sync(&self, data_dir: &Path) -> Result<(), StoreError> {
        let is_ordered = |name: &str| self.sync_on_order && data_dir.join(name).exists();
        while is_ordered("stall-sync") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_ordered("panic-sync"), "a sync panics by order");
        if is_ordered("fail-sync") {
            Err(StoreError::Failed("Input/output error (by order)".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// The log of synced bytes.
#[derive(Debug)]
pub struct SyncedLog {
    file: File,
    last_sync: Instant,
    /// The youngest journal, and its length in bytes before the sync in progress.
    journal: Option<(PathBuf, u64)>,
}

impl SyncedLog {
    /// Opens the log in a data directory.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(data_dir: &Path) -> io::Result<SyncedLog> {
        let file = File::options().create(true).append(true).open(data_dir.join(LOG))?;
        Ok(SyncedLog { file, last_sync: Instant::now(), journal: None })
    }

    /// Notes what the next sync will cover.
    pub fn before_sync(&mut self, data_dir: &Path) {
        let youngest = journal::journals(&data_dir.join("links")).unwrap_or_default().pop();
        self.journal = youngest.and_then(|path| {
            let known = self.journal.take().filter(|(known, _)| *known == path).map_or(0, |(_, written)| written);
            let written = journal::whole_batches_end(&path, known).ok()?;
            Some((path, written))
        });
    }

    /// Logs the bytes that the sync covered, if it is `done`.
    pub fn after_sync(&mut self, done: bool) {
        self.last_sync = Instant::now();
        let Some((path, written)) = self.journal.as_ref().filter(|_| done) else { return };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{name} {written}\n");
        if let Err(error) = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()) {
            tracing::error!(%error, "{LOG} cannot be written");
        }
    }

    /// True if the faulty mode should sync now.
    pub fn is_due(&self) -> bool {
        self.last_sync.elapsed() >= SYNC_EVERY
    }

    /// Returns how long the faulty mode may wait for requests.
    pub fn wait_time(&self) -> Duration {
        SYNC_EVERY.saturating_sub(self.last_sync.elapsed()).max(Duration::from_millis(1))
    }
}

/// Simulates a loss of power in a data directory that no process uses. The bytes of the youngest journal after its last
/// sync become zeros, as in a preallocated file whose pages were never written. Older journals were synced whole before
/// the youngest was begun. Returns the number of bytes lost.
///
/// # Errors
/// If the directory is not as the writer left it.
pub fn power_loss(data_dir: &Path) -> io::Result<u64> {
    let Some(youngest) = journal::journals(&data_dir.join("links"))?.pop() else { return Ok(0) };
    let name = youngest.file_name().unwrap_or_default().to_string_lossy();
    let log = fs::read_to_string(data_dir.join(LOG))?;
    let synced = log.lines().rev().find_map(|line| {
        let (journal, written) = line.split_once(' ')?;
        (journal == name).then(|| written.parse::<u64>().ok())?
    });
    // The log has only the writer's syncs; the mark has those of other threads, too.
    let marked = mark::read(&data_dir.join("links"))?.filter(|mark| name == format!("{}.jnl", mark.journal));
    let synced = synced.unwrap_or(0).max(marked.map_or(0, |mark| mark.len));
    let written = journal::whole_batches_end(&youngest, 0)?;
    let file = File::options().write(true).open(&youngest)?;
    let len = file.metadata()?.len();
    file.set_len(synced.min(len))?;
    file.set_len(len)?;
    // A byte of the unsynced batch may have reached the disk: whatever follows the last sync must not matter.
    if synced + 1 < len {
        file.write_all_at(&[1], synced)?;
    }
    file.sync_all()?;
    Ok(written.saturating_sub(synced))
}
