//! TLS connections: received bytes are decrypted before the connection's HTTP machine sees them, and sent bytes are
//! encrypted last.
//!
//! A handshake costs as much as a hundred redirects. So handshakes wait in a queue, and each turn of the core continues
//! a few of them. Their number is bounded, so that new clients do not slow established connections down.

use std::time::Instant;

use super::connection::ConnState;
use super::tls_connections::Decrypted;
use super::work::CoreState;
use carom_http::Rejection;
use carom_http::tls::{ReceiveState, is_plain_request};
use carom_limits::{HANDSHAKE_TIME_PER_TURN, HANDSHAKES_PER_TURN};

impl CoreState {
    /// Makes a new connection speak TLS.
    pub(super) fn begin_handshake(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        if !self.tls.begin(conn) {
            self.break_off(slot);
        }
    }

    /// Takes bytes that a TLS connection received.
    pub(super) fn receive_tls(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot).filter(|conn| conn.state.is_live()) else { return };
        if conn.machine.awaits_proxy() {
            self.receive_plain(slot, bytes);
            let Some(conn) = self.conns.get(slot) else { return };
            if conn.machine.awaits_proxy() || conn.unconsumed.is_empty() {
                return;
            }
            // The bytes behind the PROXY header begin the handshake.
            return self.await_turn(slot);
        }
        if conn.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            conn.unconsumed.extend_from_slice(bytes);
            Self::mark_dirty(&mut self.dirty, conn);
            return self.await_turn(slot);
        }
        self.decrypt(slot, bytes);
    }

    fn await_turn(&mut self, slot: u32) {
        self.note_handshake(slot);
        if let Some(conn) = self.conns.get(slot) {
            self.tls.queue(conn);
        }
    }

    /// Counts a handshake whose first bytes have come. Over the limit, the handshake that has waited longest for its
    /// client is evicted if it is old enough. Otherwise the new connection is closed.
    fn note_handshake(&mut self, slot: u32) {
        let (tick, most) = (self.now.tick, self.limits.handshakes);
        if self.conns.get(slot).is_none_or(|conn| !matches!(conn.state, ConnState::Open)) {
            return;
        }
        if self.tls.is_full(most) {
            self.stats.shed.add(1);
            let Some(evicted) = self.tls.take_oldest(&mut self.conns, tick) else { return self.break_off(slot) };
            self.break_off(evicted.slot);
        }
        self.tls.count_handshake(slot, &mut self.conns, (tick, most));
    }

    /// Continues some handshakes. Returns true if others still wait.
    pub(super) fn serve_handshakes(&mut self) -> bool {
        if !self.tls.has_waiting() {
            return false;
        }
        let begin = Instant::now();
        for _ in 0..HANDSHAKES_PER_TURN {
            let Some((tag, bytes)) = self.tls.next_waiting(&mut self.conns) else { return false };
            let has_begun = self.conns.find(tag).and_then(|conn| conn.tls.as_ref()).is_some_and(|tls| tls.has_begun());
            if is_plain_request(&bytes) && !has_begun {
                self.refuse_plain(tag.slot);
            } else {
                self.decrypt(tag.slot, &bytes);
            }
            if let Some(conn) = self.conns.find(tag)
                && conn.peer_ended
            {
                self.peer_ended(tag.slot);
            }
            if begin.elapsed() >= HANDSHAKE_TIME_PER_TURN {
                break;
            }
        }
        self.tls.has_waiting()
    }

    /// Answers a plain HTTP request on a TLS port with a plain HTTP error, which its client understands.
    fn refuse_plain(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        conn.tls = None;
        self.tls.end_handshake(conn, self.now.tick);
        self.reject(slot, Rejection::NotEncrypted, &[]);
    }

    fn decrypt(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        let Some(decrypted) = self.tls.decrypt(conn, bytes, self.now.tick) else { return };
        let Decrypted { plain, state, is_established } = decrypted;
        if is_established {
            self.establish(slot);
        }
        if !plain.is_empty() {
            self.receive_plain(slot, &plain);
        }
        self.tls.give_back(plain);
        match state {
            ReceiveState::Open => {}
            ReceiveState::Closed => self.peer_ended(slot),
            ReceiveState::Broken => self.give_up_tls(slot),
        }
    }

    /// Lets a connection take requests after its handshake.
    fn establish(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let (is_http2, is_resumed) = conn.tls.as_ref().map_or((false, false), |tls| (tls.is_http2(), tls.is_resumed()));
        self.stats.handshakes.add(1);
        self.stats.resumptions.add(u64::from(is_resumed));
        self.tls.end_handshake(conn, self.now.tick);
        if is_http2 {
            conn.machine.pass_all();
            self.stats.handed_over.add(1);
            self.start_stream(slot);
            if self.draining {
                self.close_idle(slot);
            }
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
        conn.enter(ConnState::Flushing { client_is_done: false });
    }
}
