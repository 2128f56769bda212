//! What a commit begins with and what it leads to: states, writes, and what to tell whom.

use carom_shards::Code;

use crate::bridge::{Change, StoreAnswer, Ticket};
use crate::services::search::Relisted;
use carom_model::access::idempotency::KeyHash;
use carom_model::link::history::Edit;
use carom_model::link::{Due, UrlEntry, Version};
use carom_model::replication::follow::Position;
use carom_model::replication::outbox::OutboxWrites;
use carom_model::replication::{Partition, State};
use carom_store::links::Of;

/// What is under a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Nothing, and nothing ever was.
    Absent,
    /// A link, or what is left of one.
    Held(State),
    /// Something that cannot be decoded or read.
    Damaged,
    /// Nobody can say now: the read failed for a reason that may pass.
    Unknown,
}

impl Stored {
    /// The state, if there is one that can be read.
    pub fn state(&self) -> Option<&State> {
        match self {
            Stored::Held(state) => Some(state),
            Stored::Absent | Stored::Damaged | Stored::Unknown => None,
        }
    }

    /// Whether it is a link that may be followed only so often, or may have been one.
    pub(super) fn is_limited(&self) -> bool {
        match self {
            Stored::Held(State::Link(link)) => link.policy.max_visits.is_some(),
            Stored::Absent | Stored::Held(State::Gone(_)) => false,
            Stored::Damaged | Stored::Unknown => true,
        }
    }
}

/// What to tell whom, once everything is durable.
#[derive(Debug)]
pub enum Outcome {
    /// The owner of the code applies the change, then gives the answer to the ticket of who asked for it, if anybody did.
    Apply {
        /// The code.
        code: Code,
        /// The change.
        change: Change,
        /// Whom to tell what.
        notify: Option<(Ticket, StoreAnswer)>,
    },
    /// Nothing changes for the owner.
    Answer {
        /// Whom to tell.
        ticket: Ticket,
        /// What to tell.
        answer: StoreAnswer,
    },
}

impl Outcome {
    /// Whom it is for in the end, and what they are told.
    pub fn answer(&self) -> Option<(Ticket, &StoreAnswer)> {
        match self {
            Outcome::Apply { notify, .. } => notify.as_ref().map(|(ticket, answer)| (*ticket, answer)),
            Outcome::Answer { ticket, answer } => Some((*ticket, answer)),
        }
    }
}

/// Two links that cannot both have their code; the one that Redis has stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The code.
    pub code: Code,
    /// What is given up.
    pub lost: Version,
    /// What stays.
    pub kept: Version,
}

/// What a commit must write.
#[derive(Debug, Default)]
pub struct Writes {
    /// The last state of each code that changes; `None` where nothing of it is to stay.
    pub states: Vec<(Code, Option<State>)>,
    /// The index of long URLs: when the link of an entry was last used; `None` where the entry is to go.
    pub urls: Vec<(UrlEntry, Option<u64>)>,
    /// The index of ends: an entry, and whether it is to be there.
    pub ends: Vec<(Of, Due, bool)>,
    /// Links that lists have in another place now, or no more, or as new.
    pub relisted: Vec<Relisted>,
    /// The outbox.
    pub outbox: OutboxWrites,
    /// New places in the streams.
    pub positions: Vec<(Partition, Position)>,
    /// Partitions that must be compared as a whole, or need it no more.
    pub compare: Vec<(Partition, bool)>,
    /// Codes that change whose link could be followed only so often, and whether that link has ended.
    pub limited: Vec<(Code, bool)>,
    /// Codes whose link has ended, and its visits with it.
    pub ended: Vec<Code>,
    /// Links that were created with an idempotency key: its hash, when, and their code.
    pub created_with: Vec<(KeyHash, u64, Code)>,
    /// What was done to links, for those who ask later.
    pub edits: Vec<(Code, Edit)>,
}

impl Writes {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.urls.is_empty()
            && self.ends.is_empty()
            && self.relisted.is_empty()
            && self.outbox == OutboxWrites::default()
            && self.positions.is_empty()
            && self.compare.is_empty()
    }
}
