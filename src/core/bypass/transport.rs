//! The lower end of a connection of the stack.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use carom_net::ConnectionId;

use super::Datapath;

/// A connection of the stack, with the bytes that the stack has no room for yet. It is closed when this value is
/// dropped.
pub(in crate::core) struct StackTransport {
    datapath: Rc<RefCell<Datapath>>,
    id: ConnectionId,
    peer: IpAddr,
    /// The send under way; empty without one.
    buffer: Vec<u8>,
    /// Bytes of it that the stack has taken.
    taken: usize,
    /// Bytes that the stack has taken since the connection opened.
    total: u64,
    /// True if the end follows the send under way.
    is_last: bool,
    is_paused: bool,
    /// True to close with a reset.
    is_cut: bool,
}

impl StackTransport {
    pub(super) fn new(datapath: &Rc<RefCell<Datapath>>, id: ConnectionId, peer: IpAddr) -> StackTransport {
        StackTransport {
            datapath: Rc::clone(datapath),
            id,
            peer,
            buffer: Vec::new(),
            taken: 0,
            total: 0,
            is_last: false,
            is_paused: false,
            is_cut: false,
        }
    }

    /// Returns the address of the peer.
    pub(in crate::core) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// True if bytes wait for room.
    #[inline]
    pub(in crate::core) fn is_sending(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Returns the number of bytes that the stack has taken.
    #[inline]
    pub(in crate::core) fn taken_len(&self) -> u64 {
        self.total
    }

    /// Returns how many bytes the client has not acknowledged. An end that was sent counts as one byte.
    pub(in crate::core) fn unread_len(&self) -> u64 {
        self.datapath.borrow().stack.in_flight(self.id).unwrap_or(0).into()
    }

    /// Sends bytes, and the end in the same frame if they are the last. Returns the buffer, empty, if the stack has
    /// taken all of them. Otherwise the rest waits for room.
    #[inline]
    pub(in crate::core) fn send(&mut self, bytes: Vec<u8>, is_last: bool) -> Option<Vec<u8>> {
        (self.buffer, self.taken, self.is_last) = (bytes, 0, is_last);
        self.send_rest()
    }

    /// Sends what is left of the send under way. Returns the buffer, empty, once the stack has taken all of it.
    pub(in crate::core) fn send_rest(&mut self) -> Option<Vec<u8>> {
        let mut datapath = self.datapath.borrow_mut();
        let Datapath { stack, frames, now_us, .. } = &mut *datapath;
        let rest = &self.buffer[self.taken..];
        let taken = if self.is_last {
            stack.send_last(*now_us, self.id, rest, frames)
        } else {
            stack.send(*now_us, self.id, rest, frames)
        };
        self.taken += taken;
        self.total += taken as u64;
        if self.taken < self.buffer.len() {
            return None;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        Some(buffer)
    }

    /// Gives up the send under way. The client has not received all of an answer, so the close is a reset.
    pub(in crate::core) fn abort_send(&mut self) {
        if self.is_sending() {
            self.buffer = Vec::new();
            self.is_cut = true;
        }
    }

    /// Opens the receive window if `wanted`, and closes it otherwise.
    #[inline]
    pub(in crate::core) fn set_receiving(&mut self, wanted: bool) {
        if self.is_paused != wanted {
            return;
        }
        self.is_paused = !wanted;
        let mut datapath = self.datapath.borrow_mut();
        let Datapath { stack, frames, now_us, .. } = &mut *datapath;
        if wanted {
            stack.resume(*now_us, self.id, frames);
        } else {
            stack.pause(self.id);
        }
    }

    /// Sends the end after all bytes, and keeps receiving.
    pub(in crate::core) fn end_sending(&self) {
        let mut datapath = self.datapath.borrow_mut();
        let Datapath { stack, frames, now_us, .. } = &mut *datapath;
        stack.shutdown(*now_us, self.id, frames);
    }

    /// Makes the close a reset, so that the stack frees the bytes of a client that does not read.
    pub(in crate::core) fn reset_on_close(&mut self) {
        self.is_cut = true;
    }
}

impl Drop for StackTransport {
    fn drop(&mut self) {
        let mut datapath = self.datapath.borrow_mut();
        let Datapath { stack, frames, now_us, .. } = &mut *datapath;
        // Nothing happens if the connection has ended.
        if self.is_cut {
            stack.reset(*now_us, self.id, frames);
        } else {
            stack.close(*now_us, self.id, frames);
        }
    }
}

impl std::fmt::Debug for StackTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StackTransport({} of {})", self.id.index, self.peer)
    }
}
