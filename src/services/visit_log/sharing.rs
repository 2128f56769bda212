//! The log as a part of its fleet: blocks of other nodes on their way to the disk, and the stored knowledge about
//! the logs of all nodes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mark::BlockMark;
use super::outgoing::OUTGOING;
use crate::services::whole_file::write_whole;
use carom_limits::VISIT_LOG_LAG_MAX;
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::{LogSpan, SharedLogState};

/// The name of the file in the folder of the log.
pub(super) const FILE: &str = "exchange";

/// Time by which the clocks of nodes may differ, in milliseconds.
const CLOCKS_APART_MS: u64 = 60_000;

/// The part of a log in a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogSharing {
    /// The node is in no fleet.
    Alone,
    /// The node is in a fleet and keeps its log for itself.
    Apart,
    /// All nodes of the fleet get the log.
    Shared,
}

/// A block of another node, whose checksum and mark are right.
#[derive(Clone, Debug)]
pub(super) struct ReceivedBlock {
    pub(super) mark: BlockMark,
    /// The block as it was read, and its records.
    pub(super) block: Vec<u8>,
    pub(super) raw: Arc<[u8]>,
    pub(super) visits: u64,
    pub(super) last_ms: u64,
}

/// Blocks of other nodes that wait for the thread that writes.
#[derive(Debug, Default)]
pub(super) struct BlockInbox {
    pub(super) blocks: Vec<ReceivedBlock>,
    /// True while the thread that writes has taken them and is not done.
    pub(super) is_busy: bool,
}

/// The state of the exchange that the threads of the log share.
#[derive(Debug)]
pub(super) struct Sharing {
    mode: LogSharing,
    inbox: Mutex<BlockInbox>,
    /// True once Redis was asked whether this directory is an older copy of a newer one.
    is_checked: AtomicBool,
    /// The last instant at which the log had those of all live nodes, in milliseconds since 1970 UTC; 0 if never.
    current_ms: AtomicU64,
}

impl Sharing {
    pub(super) fn new(mode: LogSharing) -> Sharing {
        let (is_checked, current_ms) = (AtomicBool::new(mode != LogSharing::Shared), AtomicU64::new(0));
        Sharing { mode, inbox: Mutex::default(), is_checked, current_ms }
    }

    /// Returns the part of the log in a fleet.
    pub(super) fn mode(&self) -> LogSharing {
        self.mode
    }

    /// Returns the blocks of other nodes.
    pub(super) fn inbox(&self) -> MutexGuard<'_, BlockInbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if own blocks may get their numbers.
    pub(super) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Acquire)
    }

    /// Lets own blocks get their numbers.
    pub(super) fn check(&self) {
        self.is_checked.store(true, Ordering::Release);
    }

    /// Notes that the log has those of all live nodes, up to some seconds before this instant.
    pub(super) fn set_current(&self, now_ms: u64) {
        self.current_ms.store(now_ms, Ordering::Release);
    }

    /// True if the log had those of all live nodes lately, or up to the end of a span that ended before.
    pub(super) fn is_current(&self, span: LogSpan, now_ms: u64) -> bool {
        let lag_ms = VISIT_LOG_LAG_MAX.as_millis() as u64;
        let current_ms = self.current_ms.load(Ordering::Acquire);
        let is_fresh = now_ms.saturating_sub(current_ms) <= lag_ms;
        // A node whose clock is behind logs visits of a span that is over by the clock of this one.
        current_ms > 0 && (is_fresh || span.to_ms < current_ms.saturating_sub(lag_ms + CLOCKS_APART_MS))
    }
}

/// Returns the knowledge of a log about those of all nodes. A shared log gets an identity at its first start;
/// `is_empty` says that it has no visits yet. `sealed` is the number of the last sealed segment whose marks are gone. A log
/// that is not shared loses its identity.
///
/// # Errors
/// If the file cannot be read or written, or the operating system has no random bytes.
pub(super) fn open(
    dir: &Path,
    mode: LogSharing,
    (is_empty, sealed): (bool, u64),
    now_ms: u64,
) -> io::Result<Option<SharedLogState>> {
    let path = path_in(dir);
    let read = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(None),
        read => Some(SharedLogState::decode(&read?)),
    };
    let is_new = read.is_none();
    let mut state = match read {
        None => SharedLogState::default(),
        Some(Some(state)) => state,
        Some(None) => {
            let path = path.display();
            tracing::error!("{path} is damaged and will be rewritten; lists of visits up to now are incomplete");
            lost(dir, now_ms)?
        }
    };
    if mode != LogSharing::Shared {
        if !is_new && state.has_identity() {
            state.leave();
            write(dir, &state)?;
        }
        return Ok(None);
    }
    if state.has_identity() && sealed > state.sealed() {
        tracing::warn!("an older version has sealed visits of other nodes; lists of visits up to now are incomplete");
        state = lost(dir, now_ms)?;
    }
    if !state.has_identity() {
        state.note_sealed(sealed);
        // Other nodes cannot get the visits from before.
        let lacking = (!is_empty).then_some(LogSpan { from_ms: 0, to_ms: now_ms });
        state.identify(random_id()?, lacking);
        write(dir, &state)?;
    }
    Ok(Some(state))
}

/// Returns the state of a log whose positions are unknown. Files that are kept for other nodes belong to its former
/// identity, and their marks may be lower than the positions were.
fn lost(dir: &Path, now_ms: u64) -> io::Result<SharedLogState> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(OUTGOING)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(SharedLogState::lost(now_ms))
}

/// Gives a log another identity, because an older version has added visits that other nodes cannot get. Its blocks must be
/// durable.
///
/// # Errors
/// If the file cannot be written, or the operating system has no random bytes.
pub(super) fn identify_again(dir: &Path, state: &mut SharedLogState, now_ms: u64) -> io::Result<()> {
    tracing::warn!("an older version has logged visits, which other nodes cannot get; their lists are incomplete");
    state.identify(random_id()?, Some(LogSpan { from_ms: 0, to_ms: now_ms }));
    write(dir, state)
}

/// Stores the knowledge of a log.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(dir: &Path, state: &SharedLogState) -> io::Result<()> {
    write_whole(&path_in(dir), state.encode().as_bytes())
}

/// Returns a random identity.
///
/// # Errors
/// If the operating system has no random bytes.
pub(super) fn random_id() -> io::Result<OriginId> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    Ok(OriginId(number.max(1)))
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_lasts_while_the_log_is_shared() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open(dir.path(), LogSharing::Alone, (true, 0), 50).unwrap(), None);
        assert!(!dir.path().join(FILE).exists());
        let open = |mode, is_empty| open(dir.path(), mode, (is_empty, 0), 50).unwrap();
        let first = open(LogSharing::Shared, true).unwrap();
        assert!(first.has_identity());
        assert!(first.lacking().is_none());
        assert_eq!(open(LogSharing::Shared, false), Some(first.clone()));
        assert_eq!(open(LogSharing::Apart, false), None);
        let second = open(LogSharing::Shared, false).unwrap();
        assert_ne!(second.own(), first.own());
        assert_eq!(second.lacking(), Some(LogSpan { from_ms: 0, to_ms: 50 }));
    }

    #[test]
    fn a_damaged_state_is_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), b"own 0\xff").unwrap();
        let state = open(dir.path(), LogSharing::Shared, (false, 0), 50).unwrap().unwrap();
        assert!(state.has_identity());
        assert!(state.gaps().touch(LogSpan { from_ms: 50, to_ms: 60 }));
    }

    #[test]
    fn segments_of_an_older_version_make_positions_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let open = |sealed| open(dir.path(), LogSharing::Shared, (false, sealed), 50).unwrap().unwrap();
        let first = open(4);
        assert_eq!((first.sealed(), open(4).own()), (4, first.own()));
        let kept = dir.path().join(format!("{OUTGOING}0000000003"));
        fs::write(&kept, b"blocks").unwrap();
        let second = open(5);
        assert!(second.own() != first.own());
        assert!(second.gaps().touch(LogSpan { from_ms: 50, to_ms: 60 }));
        assert!(!kept.exists(), "its marks may be too low");
        assert_eq!(open(5).own(), second.own());
    }

    #[test]
    fn a_log_is_current_for_some_seconds() {
        let sharing = Sharing::new(LogSharing::Shared);
        let lag_ms = VISIT_LOG_LAG_MAX.as_millis() as u64;
        let until = |to_ms| LogSpan { from_ms: 0, to_ms };
        assert!(!sharing.is_current(until(1), 1_000_000));
        sharing.set_current(1_000_000);
        assert!(sharing.is_current(until(u64::MAX), 1_000_000 + lag_ms));
        assert!(!sharing.is_current(until(u64::MAX), 1_000_001 + lag_ms));
        assert!(sharing.is_current(until(939_999 - lag_ms), 9_000_000));
        assert!(!sharing.is_current(until(940_000 - lag_ms), 9_000_000));
    }
}
