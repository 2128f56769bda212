//! The time limits of a core's connections, and how these end in a drain.

use super::conn::{Awaits, Conn, ConnState, PendingLookup};
use super::slow::{Ending, Verdict};
use super::told::{ConnClient, may_step};
use super::work::{TICKS_PER_SECOND, Work};
use crate::limits::{FETCH_TIME_MAX, SEND_TIME_MAX};
use crate::redirect::{Decision, Lookup, Policies, decide};
use crate::wire::connection::Expects;
use crate::wire::{RedirectRequest, Rejection};

/// How long we wait for a client to read our last answer.
const LINGER_TICKS: u32 = 2 * TICKS_PER_SECOND;

impl Work {
    /// Applies the time limits to a quarter of the connections: each is seen once a second.
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
            // Those who read get what is left, at their own pace.
            let is_stuck = conn.unread_for(tick) >= ticks(SEND_TIME_MAX);
            let is_over = conn.peer_ended || waited >= LINGER_TICKS;
            if is_stuck || is_over && !conn.has_unread() {
                self.break_off(slot);
            }
            return;
        }
        if !conn.in_flight.send && conn.unread_for(tick) >= ticks(SEND_TIME_MAX) {
            // The client does not read, and the kernel has taken all there is.
            return self.break_off(slot);
        }
        if conn.in_flight.send && tick.wrapping_sub(conn.sends.since) >= ticks(SEND_TIME_MAX) {
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
            // The head that it may hold has had its time. A body has a time of its own.
            return self.break_off(slot);
        }
        if let Some(stream) = conn.slow.as_ref().filter(|stream| stream.is_http2()) {
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
            // While we are the ones who do not read, its time does not run.
            Expects::Stream if !may_step(conn) => conn.wait.since = tick,
            Expects::Stream if waited >= ticks(self.limits.body_time) => self.reject(slot, Rejection::Timeout, &[]),
            Expects::Body if may_step(conn) && waited >= ticks(self.limits.body_time) => {
                self.reject(slot, Rejection::Timeout, &[]);
            }
            Expects::Request if !conn.is_busy() && waited >= ticks(self.limits.idle_time) => self.close_idle(slot),
            _ => {}
        }
    }

    /// Nobody has answered a look-up: the client is told, and the connection ends, so that a later answer finds nobody.
    fn give_up(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let Some(pending) = conn.take_look_up() else { return };
        Self::touch(&mut self.dirty, conn);
        let request = RedirectRequest { close: true, ..pending.request };
        let blocked = self.desk.blocked();
        let policies = Policies { blocked: blocked.as_deref(), domains: &self.desk.counters().domains };
        let mut client = ConnClient { conn, desk: &self.desk };
        let Decision { response, .. } =
            decide(&policies, Some(pending.domain), request.head_only, Lookup::NotResident, &mut client);
        self.stats.count_response(&response);
        self.answers[conn.voice()].write(&mut conn.out, &request, &[], &response, self.now.unix_ms);
        let took = self.now.instant - pending.since;
        self.latencies.record(took);
        if let Some(noted) = pending.noted {
            self.desk.tell_noted(noted, response.status(), took);
        }
        conn.enter(ConnState::Draining { said_last: false });
    }

    /// Takes no further request of a connection: it ends with the answers to those it has.
    pub(super) fn close_idle(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        match &conn.slow {
            Some(stream) if stream.is_http2() => stream.leave(),
            Some(stream) => {
                conn.machine.end();
                stream.end(Ending::Last);
            }
            None => conn.enter(ConnState::Draining { said_last: false }),
        }
    }

    /// Ends a connection of HTTP/2 that has had all its answers, once what is left of them is sent.
    fn end_frames(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        conn.enter(ConnState::Draining { said_last: false });
        if let Some(stream) = conn.slow.take() {
            stream.take(&mut conn.out);
            stream.break_off();
        }
    }

    /// Lets every connection end after its next answer: the one under way where there is one.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for slot in 0..self.conns.slots() as u32 {
            let Some(conn) = self.conns.get(slot) else { continue };
            conn.machine.close_after_next();
            if conn.is_http2() || conn.slow.is_some() && conn.is_busy() && conn.awaits_request() {
                self.close_idle(slot);
            }
        }
    }

    /// Ends the connections that wait for a request that has not begun to arrive.
    pub(super) fn close_all_idle(&mut self) {
        for slot in 0..self.conns.slots() as u32 {
            if self.conns.get(slot).is_some_and(|conn| !conn.is_busy() && conn.awaits_request()) {
                self.close_idle(slot);
            }
        }
    }

    /// Breaks every connection that is left. Those that only have to read what they were sent may do so: the kernel sees to
    /// that for a while.
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
