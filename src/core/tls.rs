//! TLS connections: received bytes are decrypted before the connection's HTTP machine sees them, and sent bytes are
//! encrypted last.
//!
//! A handshake costs as much as a hundred redirects. So handshakes wait in a queue, and each turn of the core continues
//! a few of them. Their number is bounded, so that new clients do not slow established connections down.

use std::time::Instant;

use super::connection::{Conn, ConnState};
use super::work::Work;
use carom_http::Rejection;
use carom_http::connection::Expects;
use carom_http::tls::{ReceiveState, Session, is_plain_request};
use carom_limits::{HANDSHAKE_TICKS, HANDSHAKE_TIME_PER_TURN, HANDSHAKES_PER_TURN};

/// Capacity in bytes up to which a buffer is kept for the next connection.
const KEPT_CAPACITY: usize = 64 * 1024;

impl Work {
    /// Makes a new connection speak TLS.
    pub(super) fn begin_handshake(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        match self.tls.identity.as_ref().and_then(Session::new) {
            Some(session) => conn.tls = Some(Box::new(session)),
            None => self.break_off(slot),
        }
    }

    /// Takes bytes that a TLS connection received.
    pub(super) fn receive_sealed(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot).filter(|conn| conn.state.is_live()) else { return };
        if conn.machine.awaits_proxy() {
            self.take(slot, bytes);
            let Some(conn) = self.conns.get(slot) else { return };
            if conn.machine.awaits_proxy() || conn.unconsumed.is_empty() {
                return;
            }
            // The bytes behind the PROXY header begin the handshake.
            return self.await_turn(slot);
        }
        if conn.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            conn.unconsumed.extend_from_slice(bytes);
            Self::touch(&mut self.dirty, conn);
            return self.await_turn(slot);
        }
        self.unseal(slot, bytes);
    }

    fn await_turn(&mut self, slot: u32) {
        self.note_handshake(slot);
        let Some(conn) = self.conns.get(slot) else { return };
        if let ConnState::Handshaking { is_queued } = &mut conn.state
            && !std::mem::replace(is_queued, true)
        {
            self.tls.waiting.push_back(conn.tag);
        }
    }

    /// Counts a handshake of which something has come. Over the limit, the handshake that has waited longest for its
    /// client is evicted if it is old enough. Otherwise the new connection is closed.
    fn note_handshake(&mut self, slot: u32) {
        let tick = self.now.tick;
        if self.conns.get(slot).is_none_or(|conn| !matches!(conn.state, ConnState::Open)) {
            return;
        }
        if self.tls.under_way >= self.limits.handshakes && !self.evict_handshake() {
            self.stats.shed.add(1);
            return self.break_off(slot);
        }
        let Some(conn) = self.conns.get(slot) else { return };
        conn.enter(ConnState::Handshaking { is_queued: false });
        conn.wait.since = tick;
        self.tls.under_way += 1;
        self.tls.begun.push_back(conn.tag);
        if self.tls.begun.len() > 2 * self.limits.handshakes + HANDSHAKES_PER_TURN {
            let conns = &mut self.conns;
            self.tls.begun.retain(|tag| conns.of(*tag).is_some_and(|conn| conn.is_handshaking()));
        }
    }

    /// Ends the oldest handshake that waits for its client, if it is old enough. Returns true if there was one.
    fn evict_handshake(&mut self) -> bool {
        let tick = self.now.tick;
        while let Some(&tag) = self.tls.begun.front() {
            let Some(Conn { state: ConnState::Handshaking { is_queued }, wait, .. }) = self.conns.of(tag) else {
                self.tls.begun.pop_front();
                continue;
            };
            if *is_queued || tick.wrapping_sub(wait.since) < HANDSHAKE_TICKS {
                return false;
            }
            self.tls.begun.pop_front();
            self.stats.shed.add(1);
            self.break_off(tag.slot);
            return true;
        }
        false
    }

    /// Continues some handshakes. Returns true if others still wait.
    pub(super) fn serve_handshakes(&mut self) -> bool {
        if self.tls.waiting.is_empty() {
            return false;
        }
        let mut left = HANDSHAKES_PER_TURN;
        let begin = Instant::now();
        while left > 0 {
            let Some(tag) = self.tls.waiting.pop_front() else { return false };
            let Some(conn) = self.conns.of(tag) else { continue };
            let ConnState::Handshaking { is_queued } = &mut conn.state else { continue };
            *is_queued = false;
            let bytes = std::mem::take(&mut conn.unconsumed);
            left -= 1;
            if is_plain_request(&bytes) && !conn.tls.as_ref().is_some_and(|tls| tls.has_begun()) {
                self.refuse_plain(tag.slot);
            } else {
                self.unseal(tag.slot, &bytes);
            }
            if let Some(conn) = self.conns.of(tag)
                && conn.peer_ended
            {
                self.peer_ended(tag.slot);
            }
            if begin.elapsed() >= HANDSHAKE_TIME_PER_TURN {
                break;
            }
        }
        !self.tls.waiting.is_empty()
    }

    /// Answers a plain HTTP request on a TLS port with a plain HTTP error, which its client understands.
    fn refuse_plain(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        conn.tls = None;
        self.end_handshake(slot);
        self.reject(slot, Rejection::NotEncrypted, &[]);
    }

    fn end_handshake(&mut self, slot: u32) {
        let tick = self.now.tick;
        let Some(conn) = self.conns.get(slot) else { return };
        if conn.is_handshaking() {
            self.tls.uncount_handshake(conn);
            conn.enter(ConnState::Open);
            (conn.wait.since, conn.wait.expects) = (tick, Expects::Request);
        }
    }

    fn unseal(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        let Some(tls) = conn.tls.as_mut().filter(|_| conn.state.is_live()) else { return };
        let mut plain = std::mem::take(&mut self.tls.plain);
        let had_part = tls.has_part();
        debug_assert!(plain.is_empty(), "the bytes of one connection reach no other");
        let heard = tls.receive(bytes, &mut plain);
        if !had_part || !plain.is_empty() {
            conn.part_since = self.now.tick;
        }
        if matches!(conn.state, ConnState::Handshaking { .. }) && !tls.is_handshaking() {
            let (is_http2, is_resumed) = (tls.is_http2(), tls.is_resumed());
            self.stats.handshakes.add(1);
            self.stats.resumptions.add(u64::from(is_resumed));
            self.end_handshake(slot);
            if is_http2 && let Some(conn) = self.conns.get(slot) {
                conn.machine.pass_all();
                self.stats.handed_over.add(1);
                self.start_stream(slot);
                if self.draining {
                    self.close_idle(slot);
                }
            }
        }
        if !plain.is_empty() {
            self.take(slot, &plain);
        }
        plain.clear();
        plain.shrink_to(KEPT_CAPACITY);
        self.tls.plain = plain;
        match heard {
            ReceiveState::Open => {}
            ReceiveState::Closed => self.peer_ended(slot),
            ReceiveState::Broken => self.give_up_tls(slot),
        }
    }

    /// Ends a connection whose bytes are not valid TLS. The client gets a TLS alert and nothing else.
    fn give_up_tls(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot).filter(|conn| !conn.state.is_closed()) else { return };
        if conn.is_handshaking() {
            self.stats.handshake_failures.add(1);
        }
        self.stats.bad_requests.add(1);
        if let Some(stream) = conn.hyper.take() {
            stream.break_off();
        }
        conn.out.clear();
        conn.machine.end();
        self.tls.uncount_handshake(conn);
        conn.enter(ConnState::Draining { said_last: false });
    }

    /// Returns the bytes to send next on a connection, encrypted if it speaks TLS. Empty if there are none.
    pub(super) fn take_sendable(&mut self, slot: u32) -> Vec<u8> {
        let Some(conn) = self.conns.get(slot) else { return Vec::new() };
        let Some(tls) = &mut conn.tls else { return std::mem::take(&mut conn.out) };
        let is_last = matches!(conn.state, ConnState::Draining { .. }) && !tls.is_closed();
        if conn.out.is_empty() && !tls.has_to_say() && !is_last {
            return Vec::new();
        }
        let mut sealed = std::mem::take(&mut self.tls.spare);
        debug_assert!(sealed.is_empty(), "each record is sent once");
        tls.seal(&conn.out, is_last, &mut sealed);
        // The buffers rotate: this one becomes the next one to encrypt into, and the sent one comes back for answers.
        let mut plain = std::mem::take(&mut conn.out);
        plain.clear();
        if plain.capacity() <= KEPT_CAPACITY {
            self.tls.spare = plain;
        }
        sealed
    }
}
