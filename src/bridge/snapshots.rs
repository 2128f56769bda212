//! Snapshots of the store for nodes that join the fleet: what the API asks of the thread that serves them.

use std::fmt;

/// A snapshot that a joining node reads piece by piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinSnapshot {
    /// The random identity of the snapshot.
    pub id: u64,
    /// The name of the node that serves it.
    pub node: String,
    /// The fingerprint of the code secret of the fleet.
    pub fingerprint: String,
    /// The instant of the snapshot, in milliseconds since 1970 UTC.
    pub taken_ms: u64,
    /// The approximate number of links.
    pub links: u64,
    /// The approximate number of records of all kinds.
    pub records: u64,
    /// The bytes of the store on the disk of the node that serves it.
    pub bytes: u64,
}

/// The reason why a node does not serve a snapshot or a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotRefusal {
    /// As many snapshots are open as a node serves at once.
    TooMany,
    /// There is no such snapshot: it was not read for a while, or the node has restarted.
    Gone,
    /// The snapshot has no such piece, or the pieces before it have not been read.
    NoPiece,
    /// The store cannot be read.
    Failed(String),
}

/// The snapshots of a node. All methods block on the disk, and a piece also waits for its turn within the rate of
/// bytes. So only the thread of [`crate::bridge::SnapshotQueue`] calls them.
pub trait SnapshotProvider: fmt::Debug + Send + Sync {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// [`SnapshotRefusal::TooMany`] or [`SnapshotRefusal::Failed`].
    fn begin(&self) -> Result<JoinSnapshot, SnapshotRefusal>;

    /// Describes an open snapshot, and keeps it open.
    ///
    /// # Errors
    /// [`SnapshotRefusal::Gone`].
    fn describe(&self, id: u64) -> Result<JoinSnapshot, SnapshotRefusal>;

    /// Returns a piece of an open snapshot, as [`carom_store::backup::pieces`] defines it. A piece can be read again.
    ///
    /// # Errors
    /// [`SnapshotRefusal`], except for [`SnapshotRefusal::TooMany`].
    fn piece(&self, id: u64, number: u32) -> Result<Vec<u8>, SnapshotRefusal>;

    /// Closes a snapshot. Returns false if there is no such snapshot.
    fn end(&self, id: u64) -> bool;
}
