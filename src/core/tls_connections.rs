//! The certificate of a core, and its TLS handshakes in progress. [`super::tls`] serves them.

use std::collections::VecDeque;
use std::time::Duration;

use hyper::header::HeaderValue;

use super::connection::Conn;
use super::driver::Tag;
use carom_http::answer::max_age;
use carom_tls::identity::TlsIdentity;

/// State of a core's TLS connections.
#[derive(Debug, Default)]
pub(super) struct TlsConnections {
    /// Certificate and key of the service; `None` without TLS.
    pub(super) identity: Option<TlsIdentity>,
    /// The value of `Strict-Transport-Security`, if it is sent.
    hsts: Option<HeaderValue>,
    /// Connections whose handshake has bytes that wait for their turn.
    pub(super) waiting: VecDeque<Tag>,
    /// Number of handshakes of which something has come.
    pub(super) under_way: usize,
    /// Those connections and some whose handshake is over, oldest first.
    pub(super) begun: VecDeque<Tag>,
    /// The decrypted bytes of the connection that is being served; otherwise empty.
    pub(super) plain: Vec<u8>,
    /// An empty buffer to encrypt into.
    pub(super) spare: Vec<u8>,
}

impl TlsConnections {
    pub(super) fn new(identity: Option<TlsIdentity>, hsts: Option<Duration>) -> TlsConnections {
        let hsts = hsts.map(|time| HeaderValue::from_str(&max_age(time)).expect("letters and digits"));
        TlsConnections { identity, hsts, ..TlsConnections::default() }
    }

    /// Sets the certificate for connections from now on.
    pub(super) fn take(&mut self, identity: TlsIdentity) {
        self.identity = Some(identity);
    }

    /// Returns the value of `Strict-Transport-Security`, if it is sent.
    pub(super) fn hsts(&self) -> Option<&HeaderValue> {
        self.hsts.as_ref()
    }

    /// Counts out the handshake of a connection that enters another state, if it has one.
    pub(super) fn uncount_handshake(&mut self, conn: &Conn) {
        debug_assert!(!conn.is_handshaking() || self.under_way > 0, "each handshake was counted");
        self.under_way -= usize::from(conn.is_handshaking());
    }
}
