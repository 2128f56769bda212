//! Rejects invalid requests before routing.

use std::time::Duration;

use super::access;
use super::connection::{ConnState, PendingRejection};
use super::hyper_bridge::stream::InputEnd;
use super::now::TICKS_PER_SECOND;
use super::work::CoreState;
use carom_http::Rejection;

impl CoreState {
    /// Rejects what a connection sent, which begins with `head`. The connection ends after the answers to earlier
    /// requests.
    pub(super) fn reject(&mut self, slot: u32, rejection: Rejection, head: &[u8]) {
        let Some(conn) = self.conns.get(slot) else { return };
        self.stats.bad_requests.add(1);
        match rejection {
            Rejection::Timeout => self.stats.timed_out.add(1),
            Rejection::HeadTooLarge | Rejection::BodyTooLarge => self.stats.too_long.add(1),
            _ => {}
        }
        let in_body = conn.machine.expects(0).is_body();
        let unconsumed = std::mem::take(&mut conn.unconsumed);
        let log_entry = self.services.samples_request().then(|| {
            let head = if head.is_empty() { &unconsumed } else { head };
            access::rejection_log_entry(&self.services, conn, if in_body { b"" } else { head })
        });
        Self::mark_dirty(&mut self.dirty, conn);
        match &conn.hyper {
            Some(stream) => {
                stream.end(if in_body { InputEnd::Cut } else { InputEnd::Followed });
                conn.enter(ConnState::Rejecting(PendingRejection { rejection, log_entry }));
            }
            None => {
                self.write_rejection(slot, PendingRejection { rejection, log_entry });
                if let Some(conn) = self.conns.get(slot) {
                    conn.enter(ConnState::Flushing { client_is_done: false });
                }
            }
        }
    }

    /// Writes the response to a rejected request, and its entry in the access log.
    pub(super) fn write_rejection(&mut self, slot: u32, PendingRejection { rejection, log_entry }: PendingRejection) {
        let Some(conn) = self.conns.get(slot) else { return };
        self.redirects.answers[conn.scheme_index()].reject(&mut conn.out, rejection);
        let ticks = self.now.tick.wrapping_sub(conn.wait.since);
        let took = Duration::from_millis(1_000 / u64::from(TICKS_PER_SECOND)) * ticks;
        if let Some(log_entry) = log_entry {
            self.services.log_pending(log_entry, rejection.number(), took);
        }
    }
}
