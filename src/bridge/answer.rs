//! The answers of the store to what a core asks of it.

use std::sync::Arc;

use super::AppsAnswer;
use carom_model::link::Link;
use carom_model::link::history::Edit;
use carom_model::query::ListAnswer;
use carom_model::visits::history::History;
use carom_model::visits::tally::Counts;

/// What became of a [`super::StoreRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreAnswer {
    /// The link is synced, and its owner has it in memory.
    Created,
    /// The link is synced, but its owner has no memory for it: it is not served.
    Unserved,
    /// This link was there already, and is what was asked for; nothing was made. It is synced, and its owner has it in
    /// memory.
    Existing {
        /// The link.
        link: Arc<Link>,
        /// Whether the code that the request has brought may be given to another link.
        spare: bool,
    },
    /// The link that was created with this idempotency key: this request is a repetition of that one. Nothing was made.
    Repeated {
        /// The link as it is now.
        link: Arc<Link>,
    },
    /// This idempotency key was sent with another request.
    OtherRequest,
    /// The link that was created with this idempotency key is gone.
    RepeatedGone,
    /// The code belongs to another link, or did and may not be given again; or what was to be the answer is gone.
    Taken,
    /// The link is this from now on: synced, and in its owner's memory.
    Changed(Arc<Link>),
    /// The link would not begin before it ends, so nothing was changed.
    Contrary,
    /// The link is gone from disk and from its owner's memory.
    Deleted,
    /// There is no link with that code.
    NotFound,
    /// The record that was asked for, and how often it was followed.
    Found(Arc<Link>, Counts),
    /// The visits that were asked for.
    Visits(Box<History>),
    /// What was done to the links of a code, the last first.
    Edits(Vec<Edit>),
    /// The list that was asked for.
    Listed(Box<ListAnswer>),
    /// There is a record, but it cannot be decoded.
    Damaged,
    /// The store takes no writes at present; the reason is fit for the client's eyes.
    Refused(&'static str),
    /// The order reached the store or Redis, and nobody knows whether it is carried out; the reason is fit for the client's
    /// eyes.
    Unconfirmed(&'static str),
    /// Only Redis can decide this, and it does not answer.
    NeedsRedis {
        /// Whether Redis was asked, so that it may have done what it did not confirm.
        asked: bool,
    },
    /// What became of a change of apps or keys.
    Apps(Box<AppsAnswer>),
}

impl StoreAnswer {
    /// Whether a create has come to nothing, so that its fresh code is free for another link.
    pub fn frees_code(&self) -> bool {
        use StoreAnswer::{NeedsRedis, OtherRequest, Refused, Repeated, RepeatedGone};
        matches!(self, Refused(_) | NeedsRedis { asked: false } | Repeated { .. } | OtherRequest | RepeatedGone)
    }

    /// Whether it says that something was written.
    pub fn is_of_write(&self) -> bool {
        use StoreAnswer::{Changed, Created, Deleted};
        matches!(self, Created | Changed(_) | Deleted)
    }
}
