//! The handles on the store that its parts share: the open store, a batch of writes, and a stored value.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use fjall::{Database, Keyspace, Slice};
use xxhash_rust::xxh3::xxh3_64;

use super::event_log::EventLog;
use super::log_entry::{LogEnd, LoggedCodes};
use super::open_views::OpenViews;
use crate::error::StoreError;
use crate::journal::mark::SyncedMark;

/// The bytes of a stored record. They keep memory of the store alive, so hold them briefly.
#[derive(Clone, Debug)]
pub struct Value(pub(super) Slice);

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// An atomic batch of writes.
pub struct Batch {
    pub(super) inner: fjall::OwnedWriteBatch,
    pub(super) links: Keyspace,
    pub(super) urls: Keyspace,
    pub(super) allowances: Keyspace,
    pub(super) visits: Keyspace,
    pub(super) ends: Keyspace,
    pub(super) dates: Keyspace,
    pub(super) tags: Keyspace,
    pub(super) meta: Keyspace,
    pub(super) fleet: Keyspace,
    /// The codes whose records the batch changes.
    pub(super) changed: LoggedCodes,
    /// True if the batch marks a code; see [`Batch::mark_unread`].
    pub(super) marks: bool,
    pub(super) idempotency: Keyspace,
    /// The events that the batch adds to the log.
    pub(super) events: Vec<Vec<u8>>,
    /// The earliest expiry of a link in the batch, in milliseconds since 1970 UTC.
    pub(super) first_end_ms: u64,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} writes)", self.inner.len())
    }
}

/// An open store of links. Cheap to clone; the last clone closes it when dropped.
#[derive(Clone)]
pub struct Links {
    pub(super) db: Database,
    pub(super) links: Keyspace,
    pub(super) urls: Keyspace,
    pub(super) allowances: Keyspace,
    pub(super) visits: Keyspace,
    pub(super) history: Keyspace,
    pub(super) ends: Keyspace,
    pub(super) dates: Keyspace,
    pub(super) tags: Keyspace,
    pub(super) meta: Keyspace,
    pub(super) fleet: Keyspace,
    pub(super) changes: Keyspace,
    pub(super) log_end: Arc<LogEnd>,
    pub(super) mark: Arc<SyncedMark>,
    pub(super) idempotency: Keyspace,
    /// The event log, once it is open.
    pub(super) events: Arc<OnceLock<EventLog>>,
    pub(super) commits: Arc<AtomicU64>,
    /// The views that are open.
    pub(super) views: Arc<OpenViews>,
    /// True if codes may be marked; see [`Links::unread`].
    pub(super) has_marks: Arc<AtomicBool>,
    /// The earliest expiry of a link in all batches, until [`Links::take_first_end`] reads it.
    pub(super) first_end_ms: Arc<AtomicU64>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Links")
    }
}

/// Encodes a number with a checksum over it and its key.
pub(super) fn sealed(key: &str, value: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&value.to_le_bytes());
    out[8..].copy_from_slice(&seal(key, value).to_le_bytes());
    out
}

/// Decodes a number, and checks it.
///
/// # Errors
/// [`StoreError::Damaged`] if the checksum does not match.
pub(super) fn unsealed(key: &str, stored: &[u8]) -> Result<u64, StoreError> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    stored
        .split_at_checked(8)
        .and_then(|(value, sum)| Some((number(value)?, number(sum)?)))
        .filter(|&(value, sum)| seal(key, value) == sum)
        .map(|(value, _)| value)
        .ok_or_else(|| StoreError::Damaged(format!("the mark {key} is damaged")))
}

fn seal(key: &str, value: u64) -> u64 {
    xxh3_64(key.as_bytes()) ^ xxh3_64(&value.to_le_bytes())
}
