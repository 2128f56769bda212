//! The timeouts of a core's connections, and how connections end in a drain.

use super::connection::{Awaits, Conn, ConnState, PendingLookup};
use super::hyper_bridge::stream::{Ending, Verdict};
use super::request_rules::may_step;
use super::turn::TICKS_PER_SECOND;
use super::work::Work;
use carom_http::Rejection;
use carom_http::connection::Expects;
use carom_limits::{FETCH_TIME_MAX, SEND_TIME_MAX};

/// Ticks that a client has to read our last answer.
const LINGER_TICKS: u32 = 2 * TICKS_PER_SECOND;

impl Work {
    /// Applies the timeouts to a quarter of the connections, so that each is checked once per second.
    pub(super) fn sweep(&mut self) {
        let quarter = (self.now.tick % TICKS_PER_SECOND) as usize;
        for slot in (quarter..self.conns.slots()).step_by(TICKS_PER_SECOND as usize) {
            self.check_time(slot as u32);
        }
    }

    fn check_time(&mut self, slot: u32) {
        let tick = self.now.tick;
        let Some(conn) = self.conns.get(slot) else { return };
        let waited = tick.wrapping_sub(conn.wait.since);
        if matches!(conn.state, ConnState::Lingering) {
            // A client that reads gets the rest at its own pace.
            let is_stuck = conn.unread_for(tick) >= ticks(SEND_TIME_MAX);
            let is_over = conn.peer_ended || waited >= LINGER_TICKS;
            if is_stuck || is_over && !conn.has_unread() {
                self.break_off(slot);
            }
            return;
        }
        if !conn.transport.is_sending() && conn.unread_for(tick) >= ticks(SEND_TIME_MAX) {
            // The client does not read, and the kernel has taken everything.
            return self.break_off(slot);
        }
        if conn.transport.is_sending() && tick.wrapping_sub(conn.sends.since) >= ticks(SEND_TIME_MAX) {
            // The client does not read.
            return self.break_off(slot);
        }
        match &conn.state {
            ConnState::Open => {}
            ConnState::LookingUp(PendingLookup { awaits: Awaits::Storage, since, .. })
                if self.now.instant - *since >= FETCH_TIME_MAX =>
            {
                return self.give_up(slot);
            }
            ConnState::Handshaking { .. } if waited >= ticks(self.limits.head_time) => return self.break_off(slot),
            _ => return,
        }
        let has_part = conn.tls.as_ref().is_some_and(|tls| tls.has_part());
        let part_waited = tick.wrapping_sub(conn.part_since);
        if has_part && !conn.is_busy() && conn.awaits_nothing() && part_waited >= ticks(self.limits.head_time) {
            // The timeout of a head is over, for the head that this record may hold. A body has its own timeout.
            return self.break_off(slot);
        }
        if let Some(stream) = conn.hyper.as_ref().filter(|stream| stream.is_http2()) {
            return match stream.judge(self.now.instant, &self.limits) {
                Verdict::Wait => {}
                Verdict::Leave => stream.leave(),
                Verdict::End => self.end_frames(slot),
                Verdict::Cut => self.break_off(slot),
            };
        }
        match conn.machine.expects(conn.unconsumed.len()) {
            Expects::Head if may_step(conn) && waited >= ticks(self.limits.head_time) => {
                self.reject(slot, Rejection::Timeout, &[]);
            }
            // While we do not read, the client's timeout does not run.
            Expects::Stream if !may_step(conn) => conn.wait.since = tick,
            Expects::Stream if waited >= ticks(self.limits.body_time) => self.reject(slot, Rejection::Timeout, &[]),
            Expects::Body if may_step(conn) && waited >= ticks(self.limits.body_time) => {
                self.reject(slot, Rejection::Timeout, &[]);
            }
            Expects::Request if !conn.is_busy() && waited >= ticks(self.limits.idle_time) => self.close_idle(slot),
            _ => {}
        }
    }

    /// Answers 503 to a look-up that timed out, and ends the connection so that a later answer reaches nothing.
    fn give_up(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        if self.redirects.give_up(conn, &self.now) {
            Self::touch(&mut self.dirty, conn);
        }
    }

    /// Accepts no further request on a connection. It ends after the answers to those that it has.
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

    /// Ends an HTTP/2 connection that has had all its answers, once their remaining bytes are sent.
    fn end_frames(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        conn.enter(ConnState::Draining { said_last: false });
        if let Some(stream) = conn.hyper.take() {
            stream.take(&mut conn.out);
            stream.break_off();
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

fn ticks(time: std::time::Duration) -> u32 {
    (time.as_millis() as u64 * u64::from(TICKS_PER_SECOND)).div_ceil(1_000) as u32
}
