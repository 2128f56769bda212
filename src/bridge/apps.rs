//! What is asked of the keeper of API keys, and what it answers.

use std::time::Duration;

use super::Ticket;
use carom_model::access::AppName;
use carom_model::access::key::Key;
use carom_model::access::registry::{Grant, Refusal, Registry};

/// A change of apps or keys that is asked for.
#[derive(Debug)]
pub struct AppsOrder {
    /// Which.
    pub request: AppsRequest,
    /// Whom to tell.
    pub ticket: Ticket,
}

/// A change of apps or keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppsRequest {
    /// A new key, of an app that there may be already.
    Add(Grant),
    /// The keys of an app, or one of them, are to hold no more.
    Revoke {
        /// Whose.
        app: AppName,
        /// Which; `None`: all.
        id: Option<String>,
    },
    /// A key is to be followed by another one.
    Rotate {
        /// Whose.
        app: AppName,
        /// Which; `None`: the only one.
        id: Option<String>,
        /// For how long the old one still holds.
        grace: Duration,
    },
}

/// What became of an [`AppsRequest`].
#[derive(Clone, PartialEq, Eq)]
pub enum AppsAnswer {
    /// A new key. Nobody will be able to tell it again.
    Key {
        /// Its text.
        key: String,
        /// What it is called.
        id: String,
        /// What the one is called that it follows, if it does.
        follows: Option<String>,
    },
    /// What the keys are called that hold no more.
    Revoked(Vec<String>),
    /// That cannot be done, and why.
    Refused(Refusal),
    /// It may not have been done.
    Failed(String),
}

impl std::fmt::Debug for AppsAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One of them holds a secret.
        f.write_str("AppsAnswer")
    }
}

impl AppsRequest {
    /// Does it.
    pub fn apply(self, registry: &mut Registry, now_ms: u64) -> AppsAnswer {
        let key = |key: Key, follows| AppsAnswer::Key { id: key.hash().id(), key: key.as_str().to_owned(), follows };
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
