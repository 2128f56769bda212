//! Requests to the thread that keeps purges, and its answers.

use std::fmt;
use std::sync::mpsc::SyncSender;

use super::ticket::Ticket;
use carom_model::purge::selection::PurgeSelection;
use carom_model::purge::{PurgeId, PurgedLink};

/// A request to the thread that keeps purges.
#[derive(Debug)]
pub enum PurgeOrder {
    /// Begins a purge of links that are about to be deleted.
    Begin {
        /// The links to purge.
        links: Vec<PurgedLink>,
        /// The task that waits for the answer.
        ticket: Ticket<PurgeAnswer>,
    },
    /// Begins to look for the links of a selection in a shared home, and to purge or count them.
    Select {
        /// The links.
        selection: PurgeSelection,
        /// The task that waits for the answer.
        ticket: Ticket<PurgeAnswer>,
    },
    /// Carries a purge out, after the deletion of its links. The purge leaves out links that still exist.
    Run {
        /// The number of the purge.
        id: PurgeId,
        /// The task that waits for the answer.
        ticket: Ticket<PurgeAnswer>,
    },
    /// Reads the progress of a purge.
    Read {
        /// The number of the purge.
        id: PurgeId,
        /// The task that waits for the answer.
        ticket: Ticket<PurgeAnswer>,
    },
    /// Wakes the thread, which then sees that it has to stop.
    Wake,
}

/// A node of the fleet and its part in a purge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeNode {
    /// The name of the node.
    pub node: String,
    /// True once it has carried the purge out.
    pub is_complete: bool,
    /// The last heartbeat of a node that has been silent since, in milliseconds since 1970 UTC by the clock of Redis.
    /// `None` for a node that sends heartbeats, and for one that has carried the purge out.
    pub silent_since_ms: Option<u64>,
}

/// A site of a fleet of two, and its part in a purge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeSite {
    /// The name of the site.
    pub site: String,
    /// True once all of its nodes are known to have carried the purge out.
    pub is_complete: bool,
}

/// The work of a node on its purges, or what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeStep {
    /// The work, in words that follow "the node is".
    pub what: &'static str,
    /// The instant at which it began, in milliseconds since 1970 UTC.
    pub since_ms: u64,
}

/// The search for the links of a selection in a shared home, which a node reads from beginning to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectionProgress {
    /// True if the node only counts the links.
    pub only_counts: bool,
    /// The number of states in the home that the node has examined, since the search last began.
    pub examined: u64,
    /// The number of links that were deleted or, if the node only counts them, that match.
    pub matched: u64,
    /// The number of links, existing and deleted ones, that only a later version can decode. They may match.
    pub unreadable: u64,
    /// The number of links that were deleted before and match. They are purged, unless the node only counts.
    pub deleted_before: u64,
    /// True once the search has ended. Its purges may continue.
    pub has_ended: bool,
    /// The reason why the search ended before it had read all links, in words for the client; `None` for no such reason.
    pub stopped: Option<String>,
}

/// The progress of a purge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeProgress {
    /// The number of the purge.
    pub id: PurgeId,
    /// The instant of the request, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The number of its links.
    pub links: usize,
    /// True once all nodes, of both sites if there are two, and Redis have removed everything about the links except their
    /// codes and the times of their creation and deletion.
    pub is_complete: bool,
    /// The nodes of the fleet; in a fleet of two sites, those of the site of this node. None for a single node.
    pub nodes: Vec<PurgeNode>,
    /// The sites of the fleet, that of this node first; none for a fleet of one site.
    pub sites: Vec<PurgeSite>,
    /// The present work of this node on the purge, or what it waits for; `None` while it waits for other nodes, between two
    /// attempts, and once the purge is complete.
    pub step: Option<PurgeStep>,
    /// The reason why the last attempt of this node failed, or that the purge waits for Redis; `None` for neither.
    pub error: Option<String>,
    /// The search for the links in a shared home, whose links are in purges of their own; `None` for a purge that lists its
    /// links.
    pub selection: Option<SelectionProgress>,
}

/// The answer to a [`PurgeOrder`]. `None` if there is no such purge; an error has the reason, in words for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeAnswer(pub Result<Option<PurgeProgress>, String>);

/// The reason why the thread has not carried out a [`PurgeOrder`], in words for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PurgeFailure {
    /// The thread has not taken the order, or has refused it.
    Refused(String),
    /// The thread has got the order, but did not answer in time: it may have carried the order out, or still may.
    Unconfirmed(&'static str),
}

impl fmt::Display for PurgeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PurgeFailure::Refused(why) => f.write_str(why),
            PurgeFailure::Unconfirmed(why) => f.write_str(why),
        }
    }
}

/// The queue to the thread that keeps purges, shared by all cores.
pub type PurgeQueue = SyncSender<PurgeOrder>;
