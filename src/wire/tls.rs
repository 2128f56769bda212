//! TLS as a layer of bytes: what a client sent goes in, what it meant comes out, and the other way round. Where the bytes come
//! from and go to is nothing of its concern.

use std::io::{BufRead, Write};

use rustls::HandshakeKind;
use rustls::server::ServerConnection;

use carom_tls::identity::{HTTP2, Identity};

/// The TLS of one connection.
#[derive(Debug)]
pub struct Session {
    connection: ServerConnection,
    /// Something was received.
    has_begun: bool,
    /// Where the received bytes end in their records.
    place: RecordPlace,
    /// We have said that nothing more comes from us.
    is_closed: bool,
}

/// What a client has said, besides what it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It may go on.
    Open,
    /// It sends nothing more.
    Closed,
    /// What it sent is not TLS, or not to be trusted. It is told why; nothing else may be.
    Broken,
}

impl Session {
    /// The beginning of a connection; `None` where there is no memory for it.
    pub fn new(identity: &Identity) -> Option<Session> {
        let mut connection = ServerConnection::new(identity.config()).ok()?;
        // What waits to be sent is bounded by who gives it to us.
        connection.set_buffer_limit(None);
        Some(Session { connection, has_begun: false, place: RecordPlace::default(), is_closed: false })
    }

    /// Whether anything has been received.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether a part of a record has come whose rest has not.
    pub fn has_part(&self) -> bool {
        self.place.is_inside()
    }

    /// Whether it has not been agreed yet how to speak.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether it was agreed to speak HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Whether it goes on with a session of before, without a certificate.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Takes what was received, and appends what it holds for the layer above.
    pub fn receive(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> Heard {
        self.has_begun |= !sealed.is_empty();
        self.place.pass(sealed);
        while !sealed.is_empty() {
            match self.connection.read_tls(&mut sealed) {
                // Behind its last word a client says nothing that counts.
                Ok(0) => return Heard::Closed,
                Ok(_) => {}
                Err(_) => return Heard::Broken,
            }
            let Ok(state) = self.connection.process_new_packets() else { return Heard::Broken };
            let has_closed = state.peer_has_closed();
            self.take(state.plaintext_bytes_to_read(), plain);
            if has_closed {
                return Heard::Closed;
            }
        }
        Heard::Open
    }

    /// Appends what has been understood, so many bytes.
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

    /// Whether it has something to say of its own: its part of the handshake, tickets, or why it ends.
    pub fn has_to_say(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether it has said that nothing more comes.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Appends what it has to say, and what the layer above has, to what is to be sent; where that is the last, it says so
    /// behind it.
    pub fn seal(&mut self, plain: &[u8], is_last: bool, sealed: &mut Vec<u8>) {
        // Neither buffer ever refuses anything; keys that have sealed too much do, and that ends the connection.
        let _ = self.connection.writer().write_all(plain);
        if is_last && !std::mem::replace(&mut self.is_closed, true) {
            self.connection.send_close_notify();
        }
        while self.connection.wants_write() && self.connection.write_tls(sealed).is_ok_and(|len| len > 0) {}
    }
}

/// A place in a stream of records (RFC 8446, section 5.1): five bytes, of which the last two are the length of what follows.
#[derive(Clone, Copy, Debug, Default)]
struct RecordPlace {
    /// Bytes of the header that have passed.
    header: u8,
    /// The length, as far as it has passed; then what is left of it.
    left: u16,
}

impl RecordPlace {
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
                *self = RecordPlace::default();
            }
        }
    }

    fn is_inside(self) -> bool {
        self.header > 0
    }
}

/// Whether these are the first bytes of a request that is not encrypted, rather than of a handshake.
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
        let mut place = RecordPlace::default();
        for (at, byte) in records.iter().enumerate() {
            place.pass(&[*byte]);
            assert_eq!(place.is_inside(), !ends.contains(&(at + 1)), "{at}");
        }
        for cut in 0..records.len() {
            let mut place = RecordPlace::default();
            place.pass(&records[..cut]);
            assert_eq!(place.is_inside(), cut > 0 && !ends.contains(&cut), "{cut}");
            place.pass(&records[cut..]);
            assert!(!place.is_inside());
        }
    }
}
