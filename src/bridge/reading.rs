//! The requests of a core to the threads that read the store: single records, and pages of an export.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use carom_shards::Code;

use super::answer::{EditsAnswer, LinkAnswer, Page, VisitsAnswer};
use super::ticket::Ticket;
use carom_model::query::Filter;
use carom_model::visits::tally::Subject;

/// A request of a core to the readers of the store.
#[derive(Debug)]
pub enum ReadRequest {
    /// Read the whole record of a code, and its visit counts.
    Link {
        /// The code whose record is read.
        code: Code,
        /// The task that waits for the answer.
        ticket: Ticket<LinkAnswer>,
    },
    /// Read all visit statistics of a link, of all links, or of requests for missing codes.
    Visits {
        /// The link, or the group, that the visits are counted for.
        subject: Subject,
        /// True if the link is known to exist, so that the store need not have it.
        exists: bool,
        /// The task that waits for the answer.
        ticket: Ticket<VisitsAnswer>,
    },
    /// Read the edit history of a code.
    Edits {
        /// The code whose edits are read.
        code: Code,
        /// The task that waits for the answer.
        ticket: Ticket<EditsAnswer>,
    },
}

/// A request for a page of an export.
#[derive(Debug)]
pub struct PageRequest {
    /// The key behind which the page begins; empty for the first page.
    pub behind: Vec<u8>,
    /// The links to include.
    pub filter: Arc<Filter>,
    /// The task that waits for the answer.
    pub ticket: Ticket<Page>,
}

/// The queue to the readers, shared by all cores.
pub type ReaderQueue = SyncSender<ReadRequest>;

/// The queue to the thread that reads the store page by page, shared by all cores.
pub type PageQueue = SyncSender<PageRequest>;
