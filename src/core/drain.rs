//! The end of a core's connections: one by one once they are idle, all of them in a drain.

use std::time::{Duration, Instant};

use super::connection::{CloseKind, ConnState};
use super::hyper_bridge::stream::InputEnd;
use super::work::CoreState;

/// Least time that the clients that came in last have to send a request: half of that between two ticks. After a stall,
/// a core gets all ticks that it has missed at once.
const LAST_REQUEST_TIME: Duration = Duration::from_millis(125);

/// Returns true if a core that closed its listeners at `since` may close idle connections.
pub(super) fn may_close_idle(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= LAST_REQUEST_TIME
}

/// The work that a draining core has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainRemainder {
    /// Number of connections.
    pub(super) connections: usize,
    /// True if a cancelled accept may still bring one last client.
    pub(super) may_accept: bool,
    /// True once clients of bypass have acknowledged everything that was sent to them.
    pub(super) is_acknowledged: bool,
}

impl DrainRemainder {
    /// Returns true if the core can end. `is_late` is true once the time of the drain is over: then the core no longer
    /// waits for acknowledgements.
    pub(super) fn may_end(self, is_late: bool) -> bool {
        // Until then, only this core can retransmit the last answers of closed connections.
        let needs_no_retransmission = self.is_acknowledged || is_late;
        self.connections == 0 && !self.may_accept && needs_no_retransmission
    }
}

impl CoreState {
    /// Accepts no further request on a connection, which ends after the answers to its earlier requests.
    pub(super) fn close_idle(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        match &conn.hyper {
            Some(stream) if stream.is_http2() => stream.go_away(),
            Some(stream) => {
                conn.machine.end();
                stream.end(InputEnd::Last);
            }
            None => conn.enter(ConnState::Flushing { client_is_done: false }),
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
            self.close(slot, if was_lingering { CloseKind::Finished } else { CloseKind::BrokenOff });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::now::TICKS_PER_SECOND;

    /// Nothing is left to do.
    const NOTHING: DrainRemainder = DrainRemainder { connections: 0, may_accept: false, is_acknowledged: true };

    #[test]
    fn ticks_after_a_stall_close_no_new_client() {
        let (since, tick) = (Instant::now(), Duration::from_secs(1) / TICKS_PER_SECOND);
        // They come in one turn, which has read the clock once.
        assert!(!may_close_idle(since, since));
        // That was before the stall, but the listeners were closed after it.
        assert!(!may_close_idle(since + tick, since));
        assert!(may_close_idle(since, since + tick), "the next tick of a core that did not stall");
    }

    #[test]
    fn drain_ends_once_nothing_is_left() {
        assert!(NOTHING.may_end(false));
        assert!(NOTHING.may_end(true));
    }

    #[test]
    fn drain_waits_for_acknowledgements_in_its_time() {
        let unacknowledged = DrainRemainder { is_acknowledged: false, ..NOTHING };
        assert!(!unacknowledged.may_end(false));
        assert!(unacknowledged.may_end(true), "a client that has left delays nothing");
    }

    #[test]
    fn drain_waits_for_connections_and_accepts() {
        for is_late in [false, true] {
            assert!(!DrainRemainder { connections: 1, ..NOTHING }.may_end(is_late));
            assert!(!DrainRemainder { may_accept: true, ..NOTHING }.may_end(is_late));
        }
    }
}
