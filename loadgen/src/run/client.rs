//! The state of one connection of a thread.

use std::collections::VecDeque;

use crate::protocol::http2::Http2;
use crate::protocol::tls::TlsClientSession;
use crate::workload::traffic::Call;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The request.
    pub(crate) call: Call,
    /// Planned instant of sending.
    pub(crate) intended_ns: u64,
    /// Actual instant of sending.
    pub(crate) sent_ns: u64,
}

/// Stage in the life of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The connection is opened at this instant.
    Due { at_ns: u64 },
    /// The handshakes are in progress.
    Opening,
    /// The connection carries requests.
    Open,
    /// The connection ends, and its input is ignored.
    Ending,
}

/// State of one connection.
#[derive(Debug)]
pub(crate) struct ClientState {
    /// Stage in the life of the connection.
    pub(crate) stage: Stage,
    /// Bytes to send next.
    pub(crate) out: Vec<u8>,
    /// True if the connection is in the list of slots to settle.
    pub(crate) is_dirty: bool,
    /// Requests without a response yet, in the order of sending.
    pub(crate) in_flight: VecDeque<Sent>,
    /// Received bytes of an incomplete response.
    pub(crate) inbox: Vec<u8>,
    /// State of TLS; `None` for plain HTTP.
    pub(crate) tls: Option<TlsClientSession>,
    /// State of HTTP/2 on an open connection; `None` for HTTP/1.1.
    pub(crate) http2: Option<Http2>,
    /// Requests sent since the connection was opened.
    pub(crate) requests: u64,
    /// Responses on this connection.
    pub(crate) answered: u64,
    /// True once the connection takes no further requests.
    pub(crate) is_last_sent: bool,
    /// True if the connection is in the queue of those with room.
    pub(crate) is_free: bool,
    /// Instant at which the connection last got room for a request.
    pub(crate) freed_ns: u64,
    /// Instant at which the connection began to open.
    pub(crate) opening_ns: u64,
}

impl ClientState {
    /// Returns a connection to open at once.
    pub(crate) fn new() -> ClientState {
        ClientState {
            stage: Stage::Due { at_ns: 0 },
            out: Vec::new(),
            is_dirty: false,
            in_flight: VecDeque::new(),
            inbox: Vec::new(),
            tls: None,
            http2: None,
            requests: 0,
            answered: 0,
            is_last_sent: false,
            is_free: false,
            freed_ns: 0,
            opening_ns: 0,
        }
    }

    /// Passes bytes of HTTP to the socket, through TLS if the connection has it.
    pub(crate) fn say(&mut self, plain: &[u8]) {
        match &mut self.tls {
            None => self.out.extend_from_slice(plain),
            Some(session) => {
                session.say(plain);
                session.take(&mut self.out);
            }
        }
    }

    /// True if the last request has been answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_last_sent && self.in_flight.is_empty()
    }
}
