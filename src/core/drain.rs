//! The end of a core's connections: one by one once they are idle, all of them in a drain.

use super::connection::{Conn, ConnState};
use super::hyper_bridge::stream::Ending;
use super::work::Work;

impl Work {
    /// Accepts no further request on a connection, which ends after the answers to its earlier requests.
    pub(super) fn close_idle(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        match &conn.hyper {
            Some(stream) if stream.is_http2() => stream.leave(),
            Some(stream) => {
                conn.machine.end();
                stream.end(Ending::Last);
            }
            None => conn.enter(ConnState::Draining { said_last: false }),
        }
    }

    /// Begins a drain: every connection ends after its next answer, or the one in progress.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for slot in 0..self.conns.slots() as u32 {
            let Some(conn) = self.conns.get(slot) else { continue };
            conn.machine.close_after_next();
            if conn.is_http2() || conn.hyper.is_some() && conn.is_busy() && conn.awaits_request() {
                self.close_idle(slot);
            }
        }
    }

    /// Ends the connections that wait for a request of which nothing has arrived.
    pub(super) fn close_all_idle(&mut self) {
        for slot in 0..self.conns.slots() as u32 {
            if self.conns.get(slot).is_some_and(|conn| !conn.is_busy() && conn.awaits_request()) {
                self.close_idle(slot);
            }
        }
    }

    /// Breaks every remaining connection. Clients that only have to read their last answer may do so: the kernel keeps
    /// it for a while.
    pub(super) fn break_all(&mut self) {
        for slot in 0..self.conns.slots() as u32 {
            let was_lingering = self.conns.get(slot).is_some_and(|conn| matches!(conn.state, ConnState::Lingering));
            self.break_off(slot);
            if let Some(Conn { state: ConnState::Closed { is_cut, .. }, .. }) = self.conns.get(slot) {
                *is_cut &= !was_lingering;
            }
        }
    }
}
