//! Submits I/O for the connections that this turn changed: they send, receive, linger, or are closed.
//!
//! This is where the state of a connection meets the driver. [`super::work`] changes the state and fills the buffers;
//! the functions here hand them to the driver, once in a turn for each connection that changed.

use super::connection::{CloseKind, Conn, ConnState};
use super::run_loop::Core;

impl Core {
    /// Settles every connection that became dirty in this turn.
    pub(super) fn settle_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.work.dirty);
        for slot in dirty.drain(..) {
            self.settle(slot);
        }
        // Settling ends connections but marks none as dirty.
        debug_assert!(self.work.dirty.is_empty(), "settling marks nothing as dirty");
        self.work.dirty = dirty;
    }

    /// Gives a connection what it needs from the driver.
    fn settle(&mut self, slot: u32) {
        let Some(conn) = self.work.conns.get(slot) else { return };
        conn.dirty = false;
        if conn.state.is_closed() {
            return self.remove_closed(slot);
        }
        let is_sending = conn.transport.is_sending();
        let out = match conn.tls {
            _ if is_sending => Vec::new(),
            None => std::mem::take(&mut conn.out),
            Some(_) => self.work.tls.take_sendable(conn),
        };
        if !out.is_empty() {
            conn.sends.since = self.work.now.tick;
            let is_last = matches!(conn.state, ConnState::Flushing { .. });
            if let Some(sent) = self.driver.send(conn.tag, &mut conn.transport, out, is_last) {
                conn.keep_buffer(sent);
                if conn.may_resume_after_send() {
                    self.driver.continue_later(conn.tag);
                }
            }
        } else if !is_sending && conn.out.is_empty() {
            // Keeps the memory for the next answer.
            conn.out = out;
        }
        if end_if_sent(conn, self.work.now.tick) {
            return self.remove_closed(slot);
        }
        let is_full = conn.state.is_live() && conn.unconsumed.len() >= conn.queued_max as usize;
        if is_full || !conn.peer_ended {
            self.driver.set_receiving(conn.tag, &mut conn.transport, !is_full);
        }
    }

    /// Closes a connection once no operation of it is in flight.
    fn remove_closed(&mut self, slot: u32) {
        let Some(conn) = self.work.conns.get(slot) else { return };
        if !self.driver.end(conn.tag, &mut conn.transport) {
            return;
        }
        if let Some(mut conn) = self.work.conns.remove(slot) {
            debug_assert!(conn.state.is_closed(), "a connection ends before it is removed");
            if matches!(conn.state, ConnState::Closed(CloseKind::BrokenOff | CloseKind::Evicted)) && conn.has_unread() {
                // Otherwise the kernel would keep the data of a client that does not read, outside of all limits.
                conn.transport.reset_on_close();
            }
            self.work.admission.forget(&conn);
        }
        self.work.stats.connections.set(self.work.conns.len() as u64);
        self.finish_if_empty();
    }
}

/// Ends the sending side of a draining connection once everything has gone out. Returns true if the connection can be
/// closed. `tick` is the time of the core.
#[inline]
fn end_if_sent(conn: &mut Conn, tick: u32) -> bool {
    if let ConnState::Flushing { client_is_done } = conn.state
        && !conn.transport.is_sending()
    {
        let has_unread = conn.has_unread();
        if conn.peer_ended && !has_unread {
            conn.enter(ConnState::Closed(CloseKind::Finished));
            return true;
        }
        // Bytes behind a client's last request would make the kernel answer with a reset, which can overtake the
        // answer. So the core waits for the client's end, unless its last request said that none follows. Unread
        // answers keep the connection too: it counts against the limit until they are read.
        if client_is_done && !has_unread {
            conn.peer_ended |= conn.transport.shut_down();
        } else {
            conn.transport.end_sending();
        }
        conn.enter(ConnState::Lingering);
        conn.wait.since = tick;
        conn.hyper = None;
    }
    if matches!(conn.state, ConnState::Lingering) && conn.peer_ended && !conn.has_unread() {
        conn.enter(ConnState::Closed(CloseKind::Finished));
        return true;
    }
    false
}
