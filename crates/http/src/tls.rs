//! TLS as a layer of bytes: ciphertext of a client goes in and plaintext comes out, and the other way round. This
//! module does no I/O.

use std::io::{BufRead, Write};

use rustls::HandshakeKind;
use rustls::server::ServerConnection;

use carom_tls::identity::{HTTP2, TlsIdentity};

/// The TLS session of one connection.
#[derive(Debug)]
pub struct TlsSession {
    connection: ServerConnection,
    /// True once bytes were received.
    has_begun: bool,
    /// The position of the received bytes within their records.
    place: RecordPosition,
    /// True once our closing alert was sent.
    is_closed: bool,
}

/// The state of the client's side after its bytes were processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveState {
    /// The client may send more.
    Open,
    /// The client has closed its side.
    Closed,
    /// The bytes are not TLS or fail authentication. The client gets an alert, and no other data may be sent.
    Broken,
}

impl TlsSession {
    /// Returns the session of a new connection, or `None` if there is no memory for it.
    pub fn new(identity: &TlsIdentity) -> Option<TlsSession> {
        let mut connection = ServerConnection::new(identity.config()).ok()?;
        // The caller bounds the bytes that wait to be sent.
        connection.set_buffer_limit(None);
        Some(TlsSession { connection, has_begun: false, place: RecordPosition::default(), is_closed: false })
    }

    /// True if bytes were received.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// True if an incomplete record has been received.
    pub fn has_part(&self) -> bool {
        self.place.is_inside()
    }

    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// True if HTTP/2 was negotiated.
    pub fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// True if the handshake resumed an earlier session, without a certificate.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Decrypts received bytes, and appends the plaintext to `plain`.
    pub fn receive(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> ReceiveState {
        self.has_begun |= !sealed.is_empty();
        self.place.pass(sealed);
        while !sealed.is_empty() {
            match self.connection.read_tls(&mut sealed) {
                // Bytes behind a client's closing alert do not count.
                Ok(0) => return ReceiveState::Closed,
                Ok(_) => {}
                Err(_) => return ReceiveState::Broken,
            }
            let Ok(state) = self.connection.process_new_packets() else { return ReceiveState::Broken };
            let has_closed = state.peer_has_closed();
            self.take(state.plaintext_bytes_to_read(), plain);
            if has_closed {
                return ReceiveState::Closed;
            }
        }
        ReceiveState::Open
    }

    /// Appends `left` bytes of plaintext.
    fn take(&mut self, mut left: usize, plain: &mut Vec<u8>) {
        plain.reserve(left);
        let mut reader = self.connection.reader();
        while left > 0
            && let Ok(bytes) = reader.fill_buf()
            && !bytes.is_empty()
        {
            plain.extend_from_slice(bytes);
            let len = bytes.len();
            left -= len;
            reader.consume(len);
        }
    }

    /// True if the session has bytes of its own to send: handshake messages, tickets or an alert.
    pub fn has_to_say(&self) -> bool {
        self.connection.wants_write()
    }

    /// True once our closing alert was sent.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Appends its own messages and the encrypted `plain` to `sealed`. With `is_last` the closing alert follows.
    pub fn seal(&mut self, plain: &[u8], is_last: bool, sealed: &mut Vec<u8>) {
        // Neither buffer refuses anything. Keys that have encrypted too much do, and that ends the connection.
        let _ = self.connection.writer().write_all(plain);
        if is_last && !std::mem::replace(&mut self.is_closed, true) {
            self.connection.send_close_notify();
        }
        while self.connection.wants_write() && self.connection.write_tls(sealed).is_ok_and(|len| len > 0) {}
    }
}

/// A position in a stream of records (RFC 8446, section 5.1). A record has a header of five bytes, and the last two are
/// the length of the rest.
#[derive(Clone, Copy, Debug, Default)]
struct RecordPosition {
    /// Bytes of the header that have passed.
    header: u8,
    /// The length, as far as it has passed; then the bytes that are left of it.
    left: u16,
}

impl RecordPosition {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let [byte, rest @ ..] = bytes {
            if self.header < 5 {
                if self.header >= 3 {
                    self.left = self.left << 8 | u16::from(*byte);
                }
                self.header += 1;
                bytes = rest;
            } else {
                let len = bytes.len().min(usize::from(self.left));
                self.left -= len as u16;
                bytes = &bytes[len..];
            }
            if self.header == 5 && self.left == 0 {
                *self = RecordPosition::default();
            }
        }
    }

    fn is_inside(self) -> bool {
        self.header > 0
    }
}

/// True if these are the first bytes of a plain HTTP request rather than of a handshake.
pub fn is_plain_request(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_inside_until_its_last_byte() {
        let records =
            [&b"\x17\x03\x03\x00\x02ab"[..], b"\x14\x03\x03\x00\x00", b"\x17\x03\x03\x01\x00", &[0; 256]].concat();
        let ends = [7, 12, records.len()];
        let mut place = RecordPosition::default();
        for (at, byte) in records.iter().enumerate() {
            place.pass(&[*byte]);
            assert_eq!(place.is_inside(), !ends.contains(&(at + 1)), "{at}");
        }
        for cut in 0..records.len() {
            let mut place = RecordPosition::default();
            place.pass(&records[..cut]);
            assert_eq!(place.is_inside(), cut > 0 && !ends.contains(&cut), "{cut}");
            place.pass(&records[cut..]);
            assert!(!place.is_inside());
        }
    }
}
