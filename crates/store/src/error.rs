//! What can go wrong with the store of links, by whose fault it is.

use std::{error, fmt};

/// Why the store did not do what it was asked.
#[derive(Debug)]
pub enum StoreError {
    /// Something read back is not what was written. The disk's fault; trying again does not help.
    Damaged(String),
    /// The operating system refused. The machine's fault; helps once its cause is gone, and for writes after a restart.
    Failed(String),
    /// A write or a sync failed before, so that nobody knows what is on disk: a restart reads it back.
    Halted,
    /// Another process has the store. The operator's fault; helps to stop that one.
    InUse,
    /// Another program's form of directory. The operator's fault; helps to run the program that wrote it.
    OtherFormat(String),
    /// The codes here were made under another secret key. The operator's fault; helps to give the right one.
    OtherKey,
}

impl StoreError {
    /// Whether the same request may succeed later without a person doing something.
    pub fn may_pass(&self) -> bool {
        matches!(self, StoreError::Failed(_))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Damaged(what) => write!(f, "the store is damaged: {what}"),
            StoreError::Failed(what) => write!(f, "the store failed: {what}"),
            StoreError::Halted => f.write_str("the store accepts no writes because an earlier write failed; restart the node"),
            StoreError::InUse => f.write_str("the store is in use by another process"),
            StoreError::OtherFormat(what) => write!(f, "the store has an unsupported format: {what}"),
            StoreError::OtherKey => f.write_str(
                "the codes in the store were created with another code secret; with this one, codes could be issued twice",
            ),
        }
    }
}

impl error::Error for StoreError {}
