//! Errors of the store of links, classified by their cause.

use std::{error, fmt};

/// The reason for which a request to the store failed.
#[derive(Debug)]
pub enum StoreError {
    /// Data was read back that differs from what was written. The disk is at fault; a retry cannot succeed.
    Damaged(String),
    /// The operating system refused. The machine is at fault; a read succeeds once the cause is gone, a write only
    /// after a restart.
    Failed(String),
    /// An earlier write or sync failed, so the state on disk is unknown. A restart reads it back.
    Halted,
    /// The store is open in another process. The operator must stop it.
    InUse,
    /// The directory has the format of another version. The operator must run the program that wrote it.
    OtherFormat(String),
    /// The codes of the store were created with another code secret. The operator must configure that one.
    OtherCodeSecret,
}

impl StoreError {
    /// True if the same request may succeed later without human intervention.
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
            StoreError::OtherCodeSecret => f.write_str(
                "the codes in the store were created with another code secret; with this one, codes could be issued twice",
            ),
        }
    }
}

impl error::Error for StoreError {}
