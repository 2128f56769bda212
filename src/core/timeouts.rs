//! The timeouts of a core's connections.

use super::connection::{Awaits, Conn, ConnState, PendingLookup};
use super::hyper_bridge::stream::TimeoutAction;
use super::now::{Now, TICKS_PER_SECOND};
use super::request_rules::may_step;
use carom_http::connection::Expects;
use carom_limits::{ConnectionLimits, FETCH_TIME_MAX, SEND_TIME_MAX};

/// Ticks that a client has to read the last answer.
const LINGER_TICKS: u32 = 2 * TICKS_PER_SECOND;

/// The action that a timeout demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overdue {
    /// No action: no timeout is over.
    Nothing,
    /// Break the connection off.
    BreakOff,
    /// Answer the look-up that timed out with 503.
    LookUp,
    /// Reject the request whose rest did not come in time.
    Request,
    /// Accept no further request.
    Idle,
    /// End an HTTP/2 connection that has had all its answers.
    Http2,
}

/// The timeouts of a core.
#[derive(Debug)]
pub(super) struct Timeouts {
    limits: ConnectionLimits,
}

impl Timeouts {
    pub(super) fn new(limits: ConnectionLimits) -> Timeouts {
        Timeouts { limits }
    }

    /// Returns the slots to check in a tick, a quarter of all, so that each is checked once per second.
    pub(super) fn due_slots(tick: u32, slots: usize) -> impl Iterator<Item = u32> {
        let quarter = (tick % TICKS_PER_SECOND) as usize;
        (quarter..slots).step_by(TICKS_PER_SECOND as usize).map(|slot| slot as u32)
    }

    /// Checks a connection. The wait for a body begins again while the core itself does not read.
    pub(super) fn check(&self, conn: &mut Conn, now: &Now) -> Overdue {
        let tick = now.tick;
        let waited = tick.wrapping_sub(conn.wait.since);
        if matches!(conn.state, ConnState::Lingering) {
            // A client that reads gets the rest at its own pace.
            let is_stuck = conn.unread_for(tick) >= ticks(SEND_TIME_MAX);
            let is_over = conn.peer_ended || waited >= LINGER_TICKS;
            return if is_stuck || is_over && !conn.has_unread() { Overdue::BreakOff } else { Overdue::Nothing };
        }
        if !conn.transport.is_sending() && conn.unread_for(tick) >= ticks(SEND_TIME_MAX) {
            // The client does not read, and the kernel has taken everything.
            return Overdue::BreakOff;
        }
        if conn.transport.is_sending() && tick.wrapping_sub(conn.sends.since) >= ticks(SEND_TIME_MAX) {
            // The client does not read.
            return Overdue::BreakOff;
        }
        match &conn.state {
            ConnState::Open => {}
            ConnState::LookingUp(PendingLookup { awaits: Awaits::Storage, since, .. })
                if now.instant - *since >= FETCH_TIME_MAX =>
            {
                return Overdue::LookUp;
            }
            ConnState::Handshaking { .. } if waited >= ticks(self.limits.head_time) => return Overdue::BreakOff,
            _ => return Overdue::Nothing,
        }
        let has_part = conn.tls.as_ref().is_some_and(|tls| tls.has_part());
        let part_waited = tick.wrapping_sub(conn.tls_record_since);
        if has_part && !conn.is_busy() && conn.awaits_nothing() && part_waited >= ticks(self.limits.head_time) {
            // The timeout of a head is over, for the head that this record may hold. A body has its own timeout.
            return Overdue::BreakOff;
        }
        if let Some(stream) = conn.hyper.as_ref().filter(|stream| stream.is_http2()) {
            return match stream.check_timeouts(now.instant, &self.limits) {
                TimeoutAction::Wait => Overdue::Nothing,
                TimeoutAction::GoAway => {
                    stream.go_away();
                    Overdue::Nothing
                }
                TimeoutAction::End => Overdue::Http2,
                TimeoutAction::Cut => Overdue::BreakOff,
            };
        }
        match conn.machine.expects(conn.unconsumed.len()) {
            Expects::Head if may_step(conn) && waited >= ticks(self.limits.head_time) => Overdue::Request,
            // While the core does not read, the client's timeout does not run.
            Expects::UnboundedBody if !may_step(conn) => {
                conn.wait.since = tick;
                Overdue::Nothing
            }
            Expects::UnboundedBody if waited >= ticks(self.limits.body_time) => Overdue::Request,
            Expects::Body if may_step(conn) && waited >= ticks(self.limits.body_time) => Overdue::Request,
            Expects::Request if !conn.is_busy() && waited >= ticks(self.limits.idle_time) => Overdue::Idle,
            _ => Overdue::Nothing,
        }
    }
}

fn ticks(time: std::time::Duration) -> u32 {
    (time.as_millis() as u64 * u64::from(TICKS_PER_SECOND)).div_ceil(1_000) as u32
}
