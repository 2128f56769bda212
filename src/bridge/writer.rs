//! The requests of a core to the writer of the store, and the replies of the writer.

use std::sync::Arc;

use carom_shards::{Code, CoreId};

use super::answer::{ChangeAnswer, CreateAnswer, DeleteAnswer, WriteFailure};
use super::reply::{Answer, Reply};
use super::ticket::Ticket;
use carom_model::access::Scope;
use carom_model::link::history::Author;
use carom_model::link::patch::Patch;
use carom_model::link::{Link, Reuse};

/// A request of a core to the writer of the store.
#[derive(Debug)]
pub enum StoreRequest {
    /// Insert a link if its code is free, or answer with an existing link that is like it.
    Create {
        /// The link to insert.
        link: Arc<Link>,
        /// The existing links that may be the answer.
        reuse: Reuse,
        /// The task that waits for the answer.
        ticket: Ticket<CreateAnswer>,
    },
    /// Change some fields of the link of a code.
    Change {
        /// The code of the link to change.
        code: Code,
        /// The fields to change, and their new values.
        patch: Box<Patch>,
        /// The links that the app may change. Any other link counts as missing.
        by: Scope,
        /// The author for the edit history.
        author: Author,
        /// The task that waits for the answer.
        ticket: Ticket<ChangeAnswer>,
    },
    /// Remove the link of a code.
    Delete {
        /// The code of the link to remove.
        code: Code,
        /// The links that the app may delete. Any other link counts as missing.
        by: Scope,
        /// The author for the edit history.
        author: Author,
        /// The task that waits for the answer.
        ticket: Ticket<DeleteAnswer>,
    },
}

/// An answer of the writer to one kind of request.
pub trait WriterAnswer: Answer + From<WriteFailure> {
    /// Returns the message that brings this answer to a task.
    fn to(self, ticket: Ticket<Self>) -> WriterReply;
}

/// An answer of the writer, with the ticket of the task that waits for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriterReply {
    /// The answer to a create.
    Create(Ticket<CreateAnswer>, CreateAnswer),
    /// The answer to a change.
    Change(Ticket<ChangeAnswer>, ChangeAnswer),
    /// The answer to a delete.
    Delete(Ticket<DeleteAnswer>, DeleteAnswer),
}

macro_rules! writer_answers {
    ($($answer:ident, $kind:ident;)*) => {
        $(impl From<WriteFailure> for $answer {
            fn from(failure: WriteFailure) -> $answer {
                $answer::Failed(failure)
            }
        }

        impl WriterAnswer for $answer {
            fn to(self, ticket: Ticket<$answer>) -> WriterReply {
                WriterReply::$kind(ticket, self)
            }
        })*

        impl StoreRequest {
            /// Returns the reply that reports a failure of this request.
            pub fn failed(&self, failure: WriteFailure) -> WriterReply {
                match self {
                    $(StoreRequest::$kind { ticket, .. } => $answer::from(failure).to(*ticket),)*
                }
            }
        }

        impl WriterReply {
            /// Returns the core that waits, its number for the waiting task, and the answer for its mailbox.
            pub fn into_parts(self) -> (CoreId, u64, Reply) {
                match self {
                    $(WriterReply::$kind(ticket, answer) => (ticket.core, ticket.token, answer.into_reply()),)*
                }
            }

            /// Replaces the answer with a failure.
            fn with_failure(&self, failure: WriteFailure) -> WriterReply {
                match self {
                    $(WriterReply::$kind(ticket, _) => $answer::from(failure).to(*ticket),)*
                }
            }
        }
    };
}

writer_answers! {
    CreateAnswer, Create;
    ChangeAnswer, Change;
    DeleteAnswer, Delete;
}

impl WriterReply {
    /// Returns the reply to send in place of this one after its commit has failed. The writes of the commit may be on
    /// disk nevertheless.
    pub fn after_failed_commit(&self, reason: &'static str) -> WriterReply {
        let has_written = matches!(
            self,
            WriterReply::Create(_, CreateAnswer::Created)
                | WriterReply::Change(_, ChangeAnswer::Changed(_))
                | WriterReply::Delete(_, DeleteAnswer::Deleted)
        );
        let failure = if has_written { WriteFailure::Unconfirmed(reason) } else { WriteFailure::Refused(reason) };
        self.with_failure(failure)
    }

    /// Returns the reply to send in place of this one if the owner of the code has no memory for its link. A delete
    /// needs no memory.
    #[must_use]
    pub fn unserved(self) -> WriterReply {
        match self {
            WriterReply::Create(ticket, _) => CreateAnswer::Unserved.to(ticket),
            WriterReply::Change(ticket, _) => ChangeAnswer::Unserved.to(ticket),
            WriterReply::Delete(..) => self,
        }
    }
}
