//! Orders to the thread that manages API keys, and its answers.

use std::time::Duration;

use super::ticket::Ticket;
use carom_model::access::AppName;
use carom_model::access::key::ApiKey;
use carom_model::access::registry::{Grant, Refusal, Registry};

/// An order to change apps or keys.
#[derive(Debug)]
pub struct AppsOrder {
    /// The change.
    pub request: AppsRequest,
    /// The task that waits for the answer.
    pub ticket: Ticket<AppsAnswer>,
}

/// A change of apps or keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppsRequest {
    /// Create a key of a new or an existing app.
    Add(Grant),
    /// Revoke the keys of an app, or one of them.
    Revoke {
        /// The app whose keys are revoked.
        app: AppName,
        /// The ID of the key; `None` for all keys of the app.
        id: Option<String>,
    },
    /// Replace a key with a new one.
    Rotate {
        /// The app that owns the key.
        app: AppName,
        /// The ID of the old key; `None` for the app's only key.
        id: Option<String>,
        /// Time for which the old key stays valid.
        grace: Duration,
    },
}

/// The result of an [`AppsRequest`].
#[derive(Clone, PartialEq, Eq)]
pub enum AppsAnswer {
    /// A new key. Its text cannot be shown again.
    Key {
        /// The text of the key.
        key: String,
        /// The ID of the key.
        id: String,
        /// The ID of the key that it replaces, if any.
        follows: Option<String>,
    },
    /// The IDs of the revoked keys.
    Revoked(Vec<String>),
    /// The change is not possible, with the reason.
    Refused(Refusal),
    /// The change may not have been stored, with the reason.
    Failed(String),
}

impl std::fmt::Debug for AppsAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One variant has a secret.
        f.write_str("AppsAnswer")
    }
}

impl AppsRequest {
    /// Applies the change to `registry` at `now_ms`, in milliseconds since 1970 UTC.
    pub fn apply(self, registry: &mut Registry, now_ms: u64) -> AppsAnswer {
        let key = |key: ApiKey, follows| AppsAnswer::Key { id: key.hash().id(), key: key.as_str().to_owned(), follows };
        match self {
            AppsRequest::Add(grant) => registry.add(grant, now_ms).map(|added| key(added, None)),
            AppsRequest::Revoke { app, id } => registry.revoke(&app, id.as_deref(), now_ms).map(AppsAnswer::Revoked),
            AppsRequest::Rotate { app, id, grace } => {
                let until_ms = now_ms.saturating_add(grace.as_millis() as u64);
                let rotated = registry.rotate(&app, id.as_deref(), now_ms, until_ms);
                rotated.map(|(new, old)| key(new, Some(old)))
            }
        }
        .unwrap_or_else(AppsAnswer::Refused)
    }
}
