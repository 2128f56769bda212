//! Requests of cores to the event log, and their answers.

use std::sync::mpsc::SyncSender;

use super::ticket::Ticket;
use carom_model::events::{EventId, EventType};

/// A request to the event log.
#[derive(Debug)]
pub enum EventRequest {
    /// Returns a page of events.
    Page(EventQuery, Ticket<EventAnswer>),
    /// Returns the dead letters of the sinks.
    DeadLetters(Ticket<EventAnswer>),
}

/// The part of the log that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventQuery {
    /// The last event that the client has seen; `None` for the oldest page.
    pub after: Option<EventId>,
    /// The most events to examine.
    pub limit: usize,
    /// The type of the events; `None` for all types.
    pub of: Option<EventType>,
}

/// The result of a request to the event log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventsFound {
    /// A JSON document.
    Document(Vec<u8>),
    /// Events after the cursor are no longer kept, or the cursor belongs to another log. The cursor before the oldest
    /// event, and the last event.
    Gone {
        /// The cursor that begins with the oldest event.
        restart: EventId,
        /// The last event.
        latest: EventId,
    },
    /// The cursor is ahead of the last event.
    Ahead {
        /// The last event.
        latest: EventId,
    },
}

/// The answer to a request, or the reason why it failed, in words for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventAnswer(pub Result<EventsFound, &'static str>);

/// The queue to the thread that reads the log.
pub type EventQueue = SyncSender<EventRequest>;
