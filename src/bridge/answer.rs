//! The answers of the writer and the readers of the store to the requests of a core.

use std::sync::Arc;

use carom_model::link::Link;
use carom_model::link::history::Edit;
use carom_model::redirect::OwnedLookup;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::VisitCounts;

/// The reason of a refusal while the store cannot be read, in words for the client.
pub const STORE_UNREADABLE: &str = "the store cannot be read right now";

/// The reason why the writer has not carried out a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteFailure {
    /// The store accepts no such request at present, and nothing was changed. The reason is in words for the client.
    Refused(&'static str),
    /// The order reached the store or Redis, and its outcome is unknown. The reason is in words for the client.
    Unconfirmed(&'static str),
    /// Only Redis can decide this, and it does not answer.
    NeedsRedis {
        /// True if the request was sent to Redis, which may have made the change without confirming it.
        was_sent: bool,
    },
}

/// The answer to [`super::StoreRequest::Create`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateAnswer {
    /// The link is synced, and its owner has it in memory.
    Created,
    /// The link is synced, but its owner has no memory for it: it is not served.
    Unserved,
    /// An existing link that the request accepts, so that no link was created. It is synced, and its owner has it in
    /// memory.
    Existing {
        /// The existing link, in full.
        link: Arc<Link>,
        /// True if the code that the request brought may go to another link.
        spare: bool,
    },
    /// The link that an earlier request with this idempotency key created. This request repeats that one, and created
    /// nothing.
    Repeated {
        /// The link as it is now.
        link: Arc<Link>,
    },
    /// The idempotency key belongs to a different request.
    OtherRequest,
    /// The link that was created with this idempotency key is gone.
    RepeatedGone,
    /// The link that was created with this idempotency key has a record that cannot be decoded.
    RepeatedDamaged,
    /// The code belongs to another link, or is used up; or the existing link that should be the answer is gone.
    Taken,
    /// The link was not created, or the outcome is unknown.
    Failed(WriteFailure),
}

impl CreateAnswer {
    /// True if the create has failed for certain, so that its fresh code is free for another link.
    pub fn frees_code(&self) -> bool {
        use CreateAnswer::{Failed, OtherRequest, Repeated, RepeatedGone};
        use WriteFailure::{NeedsRedis, Refused};
        matches!(
            self,
            Failed(Refused(_) | NeedsRedis { was_sent: false }) | Repeated { .. } | OtherRequest | RepeatedGone
        )
    }
}

/// The answer to [`super::StoreRequest::Change`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeAnswer {
    /// The link after its change: synced, and in its owner's memory.
    Changed(Arc<Link>),
    /// The change is synced, but the owner has no memory for the link: it is not served.
    Unserved,
    /// The change was refused: the link would expire before it starts.
    StartsTooLate,
    /// No link has that code.
    NotFound,
    /// A record exists, but it cannot be decoded.
    Damaged,
    /// Redis has changed a link that lost its code to another one on this node.
    Displaced,
    /// The link was not changed, or the outcome is unknown.
    Failed(WriteFailure),
}

/// The answer to [`super::StoreRequest::Delete`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeleteAnswer {
    /// The link is gone from disk and from its owner's memory.
    Deleted,
    /// No link has that code.
    NotFound,
    /// The link was not deleted, or the outcome is unknown.
    Failed(WriteFailure),
}

/// The result of reading the record of a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkAnswer {
    /// The link and its visit counts.
    Found(Arc<Link>, VisitCounts),
    /// No link has that code.
    NotFound,
    /// A record exists, but it cannot be decoded.
    Damaged,
    /// The store cannot be read at present. The reason is in words for the client.
    Refused(&'static str),
}

/// The result of a look-up for a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskLookup {
    /// The result for a link without redirect rules.
    Plain(OwnedLookup),
    /// A link with redirect rules: the task has the request that they read.
    Ruled(Arc<Link>),
}

/// The visit statistics that were asked for; `None` if there is no such link. The reason why they cannot be read is in
/// words for the client.
pub type VisitsAnswer = Result<Option<Box<VisitHistory>>, &'static str>;

/// The edit history of a code, newest first. The reason why it cannot be read is in words for the client.
pub type EditsAnswer = Result<Vec<Edit>, &'static str>;

/// Some links of the store, in the order of their codes.
#[derive(Debug, Default)]
pub struct Page {
    /// The lines of the links.
    pub lines: Vec<u8>,
    /// Descriptions of the records that could not be read.
    pub damaged: Vec<String>,
    /// The last key of the page; `None` if no link follows.
    pub last: Option<Vec<u8>>,
    /// True if the store failed while it was read. The page has the links before that.
    pub failed: bool,
}
