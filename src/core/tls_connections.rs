//! The certificate of a core, its TLS handshakes in progress, and the buffers of TLS. [`super::tls`] serves them.

use std::collections::VecDeque;
use std::time::Duration;

use hyper::header::HeaderValue;

use super::connection::{Conn, ConnState, Conns};
use super::driver::Tag;
use carom_http::answer::max_age;
use carom_http::connection::Expects;
use carom_http::tls::{ReceiveState, TlsSession};
use carom_limits::{HANDSHAKE_TICKS, HANDSHAKES_PER_TURN};
use carom_tls::identity::TlsIdentity;

/// Capacity in bytes up to which a buffer is kept for the next connection.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The result of decrypting received bytes.
pub(super) struct Decrypted {
    /// The plain bytes. [`TlsConnections::give_back`] takes the buffer.
    pub(super) plain: Vec<u8>,
    /// The state of the session.
    pub(super) state: ReceiveState,
    /// True if the handshake has ended with these bytes.
    pub(super) is_established: bool,
}

/// State of a core's TLS connections.
#[derive(Debug, Default)]
pub(super) struct TlsConnections {
    /// Certificate and key of the service; `None` without TLS.
    identity: Option<TlsIdentity>,
    /// The value of `Strict-Transport-Security`, if it is sent.
    hsts: Option<HeaderValue>,
    /// Connections whose handshake has bytes that wait for their turn.
    waiting: VecDeque<Tag>,
    /// Number of handshakes whose first bytes have come.
    handshakes_in_progress: usize,
    /// Connections with such a handshake, and some whose handshake is over, oldest first.
    started_handshakes: VecDeque<Tag>,
    /// The decrypted bytes of the connection that is being served; otherwise empty.
    plain: Vec<u8>,
    /// An empty buffer to encrypt into.
    spare: Vec<u8>,
}

impl TlsConnections {
    pub(super) fn new(identity: Option<TlsIdentity>, hsts: Option<Duration>) -> TlsConnections {
        let hsts = hsts.map(|time| HeaderValue::from_str(&max_age(time)).expect("letters and digits"));
        TlsConnections { identity, hsts, ..TlsConnections::default() }
    }

    /// Sets the certificate for connections from now on.
    pub(super) fn set_identity(&mut self, identity: TlsIdentity) {
        self.identity = Some(identity);
    }

    /// Returns the value of `Strict-Transport-Security`, if it is sent.
    pub(super) fn hsts(&self) -> Option<&HeaderValue> {
        self.hsts.as_ref()
    }

    /// Counts out the handshake of a connection that enters another state, if it has one.
    pub(super) fn uncount_handshake(&mut self, conn: &Conn) {
        debug_assert!(!conn.is_handshaking() || self.handshakes_in_progress > 0, "each handshake was counted");
        self.handshakes_in_progress -= usize::from(conn.is_handshaking());
    }

    /// Makes a new connection speak TLS. Returns false without a usable certificate.
    pub(super) fn begin(&self, conn: &mut Conn) -> bool {
        conn.tls = self.identity.as_ref().and_then(TlsSession::new).map(Box::new);
        conn.tls.is_some()
    }

    /// True if `most` handshakes are under way.
    pub(super) fn is_full(&self, most: usize) -> bool {
        self.handshakes_in_progress >= most
    }

    /// Counts a handshake whose first bytes have come.
    pub(super) fn count_handshake(&mut self, slot: u32, conns: &mut Conns, (tick, most): (u32, usize)) {
        let Some(conn) = conns.get(slot) else { return };
        conn.enter(ConnState::Handshaking { is_queued: false });
        conn.wait.since = tick;
        self.handshakes_in_progress += 1;
        self.started_handshakes.push_back(conn.tag);
        if self.started_handshakes.len() > 2 * most + HANDSHAKES_PER_TURN {
            self.started_handshakes.retain(|tag| conns.find(*tag).is_some_and(|conn| conn.is_handshaking()));
        }
    }

    /// Returns the oldest handshake, if it waits for its client and is old enough to be evicted. The caller breaks its
    /// connection off.
    pub(super) fn take_oldest(&mut self, conns: &mut Conns, tick: u32) -> Option<Tag> {
        while let Some(&tag) = self.started_handshakes.front() {
            let Some(Conn { state: ConnState::Handshaking { is_queued }, wait, .. }) = conns.find(tag) else {
                self.started_handshakes.pop_front();
                continue;
            };
            if *is_queued || tick.wrapping_sub(wait.since) < HANDSHAKE_TICKS {
                return None;
            }
            self.started_handshakes.pop_front();
            return Some(tag);
        }
        None
    }

    /// Lets a handshake with received bytes wait for its turn.
    pub(super) fn queue(&mut self, conn: &mut Conn) {
        if let ConnState::Handshaking { is_queued } = &mut conn.state
            && !std::mem::replace(is_queued, true)
        {
            self.waiting.push_back(conn.tag);
        }
    }

    /// True if handshakes wait for their turn.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the next handshake whose turn it is, with its received bytes; `None` if no other waits.
    pub(super) fn next_waiting(&mut self, conns: &mut Conns) -> Option<(Tag, Vec<u8>)> {
        loop {
            let tag = self.waiting.pop_front()?;
            let Some(conn) = conns.find(tag) else { continue };
            let ConnState::Handshaking { is_queued } = &mut conn.state else { continue };
            *is_queued = false;
            return Some((tag, std::mem::take(&mut conn.unconsumed)));
        }
    }

    /// Ends the handshake of a connection, if it has one: it waits for a request.
    pub(super) fn end_handshake(&mut self, conn: &mut Conn, tick: u32) {
        if conn.is_handshaking() {
            self.uncount_handshake(conn);
            conn.enter(ConnState::Open);
            (conn.wait.since, conn.wait.expects) = (tick, Expects::Request);
        }
    }

    /// Decrypts received bytes; `None` for a connection without TLS, or one whose end has begun.
    pub(super) fn decrypt(&mut self, conn: &mut Conn, bytes: &[u8], tick: u32) -> Option<Decrypted> {
        let tls = conn.tls.as_mut().filter(|_| conn.state.is_live())?;
        let mut plain = std::mem::take(&mut self.plain);
        let had_part = tls.has_part();
        debug_assert!(plain.is_empty(), "the bytes of one connection reach no other");
        let state = tls.receive(bytes, &mut plain);
        if !had_part || !plain.is_empty() {
            conn.tls_record_since = tick;
        }
        let is_established = matches!(conn.state, ConnState::Handshaking { .. }) && !tls.is_handshaking();
        Some(Decrypted { plain, state, is_established })
    }

    /// Takes back the buffer of [`Decrypted`], for the next connection.
    pub(super) fn give_back(&mut self, mut plain: Vec<u8>) {
        plain.clear();
        plain.shrink_to(KEPT_CAPACITY);
        self.plain = plain;
    }

    /// Returns the bytes to send next on a connection, encrypted if it speaks TLS. Empty if there are none.
    #[inline]
    pub(super) fn take_sendable(&mut self, conn: &mut Conn) -> Vec<u8> {
        let Some(tls) = &mut conn.tls else { return std::mem::take(&mut conn.out) };
        let is_last = matches!(conn.state, ConnState::Flushing { .. }) && !tls.is_closed();
        if conn.out.is_empty() && !tls.has_to_say() && !is_last {
            return Vec::new();
        }
        let mut sealed = std::mem::take(&mut self.spare);
        debug_assert!(sealed.is_empty(), "each record is sent once");
        tls.seal(&conn.out, is_last, &mut sealed);
        // The buffers rotate: this one becomes the next one to encrypt into, and the sent one comes back for answers.
        let mut plain = std::mem::take(&mut conn.out);
        plain.clear();
        if plain.capacity() <= KEPT_CAPACITY {
            self.spare = plain;
        }
        sealed
    }
}
