//! A non-blocking connection to one server.
//!
//! The `redis` crate packs commands and parses replies; the socket is ours and never blocks. So the owner of several
//! connections waits for all at once. No server can hold up a thread, however slowly its bytes arrive, or however many
//! of them a TLS record has. After any failure a connection must not be used again.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::address::ServerAddress;
use crate::error::RedisError;
use crate::settings::Login;

/// Bytes of one read from a socket.
const CHUNK_LEN: usize = 16 * 1024;

/// Maximum number of chunks that are read before another connection gets its turn.
const CHUNKS_MAX: usize = 64;

/// Longest first line of a reply, in bytes: a number, or the text of an error.
const LINE_MAX: usize = 64 * 1024;

/// Largest accepted number in a reply, such as the length of a string, in bytes.
const REPLY_MAX: usize = 512 * 1024 * 1024;

pub(crate) struct RedisConnection {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Bytes to write.
    send_buffer: Vec<u8>,
    /// Bytes that were read; the front of them is already parsed.
    receive_buffer: Vec<u8>,
    consumed: usize,
    /// The progress of the search for the end of the next reply.
    scanner: ReplyScanner,
}

impl RedisConnection {
    /// Connects to the first of these addresses that answers. Blocks the thread until `deadline` at the latest.
    pub(crate) fn open(
        address: &ServerAddress,
        sockets: &[SocketAddr],
        login: &Login,
        deadline: Instant,
    ) -> Result<RedisConnection, RedisError> {
        let tcp = connect(sockets, deadline).map_err(|error| RedisError::unavailable(address, &error, false))?;
        let tls = match &login.tls {
            None => None,
            Some(config) => {
                let name = ServerName::try_from(address.host.clone()).map_err(|_| {
                    RedisError::Refused(format!("{} is not a valid name for a certificate", address.host))
                })?;
                let mut client = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|error| RedisError::Refused(format!("TLS with {address}: {error}")))?;
                client.set_buffer_limit(None);
                Some(Box::new(client))
            }
        };
        let (send_buffer, receive_buffer, scanner) = (Vec::new(), Vec::new(), ReplyScanner::default());
        Ok(RedisConnection { tcp, tls, send_buffer, receive_buffer, consumed: 0, scanner })
    }

    /// Adds a command to the next [`RedisConnection::flush`].
    pub(crate) fn put(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.send_buffer);
    }

    /// Writes and reads as much as possible without blocking. Replies that were read before an error remain available
    /// from [`RedisConnection::next`].
    pub(crate) fn pump(&mut self) -> io::Result<()> {
        self.flush()?;
        self.read()?;
        // TLS records that were read may require an answer.
        self.flush()
    }

    /// Returns the next reply, if it is complete.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        let unread = &self.receive_buffer[self.consumed..];
        let Some(len) = self.scanner.complete_len(unread)? else { return Ok(None) };
        let value = redis::parse_redis_value(&unread[..len]).map_err(|_| protocol_error())?;
        self.consumed += len;
        self.scanner = ReplyScanner::default();
        Ok(Some(value))
    }

    /// Returns the events that [`RedisConnection::pump`] needs to make progress.
    pub(crate) fn awaits(&self) -> PollFlags {
        let writes = !self.send_buffer.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }

    /// Sends commands and waits for their replies. For a thread that does nothing else meanwhile.
    pub(crate) fn ask(&mut self, commands: &[Cmd], deadline: Instant) -> io::Result<Vec<Value>> {
        commands.iter().for_each(|command| self.put(command));
        let mut values = Vec::with_capacity(commands.len());
        loop {
            let pumped = self.pump();
            while values.len() < commands.len()
                && let Some(value) = self.next()?
            {
                values.push(value);
            }
            if values.len() == commands.len() {
                return Ok(values);
            }
            pumped?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out());
            }
            wait(&mut [PollFd::new(&self.tcp, self.awaits())], left)?;
        }
    }

    /// Writes as much as possible without blocking.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(&self.send_buffer)?;
            self.send_buffer.clear();
        }
        loop {
            let written = match &mut self.tls {
                None if self.send_buffer.is_empty() => return Ok(()),
                None => self.tcp.write(&self.send_buffer),
                Some(tls) if !tls.wants_write() => return Ok(()),
                Some(tls) => tls.write_tls(&mut self.tcp),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) if self.tls.is_none() => _ = self.send_buffer.drain(..len),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.receive_buffer.drain(..std::mem::take(&mut self.consumed));
        let mut chunk = [0; CHUNK_LEN];
        for _ in 0..CHUNKS_MAX {
            let read = match &mut self.tls {
                None => self.tcp.read(&mut chunk),
                Some(tls) => tls.read_tls(&mut self.tcp),
            };
            match read {
                Ok(0) => return Err(closed()),
                Ok(len) if self.tls.is_none() => self.receive_buffer.extend_from_slice(&chunk[..len]),
                Ok(_) => self.decrypt(&mut chunk)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn decrypt(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        if let Err(error) = tls.process_new_packets() {
            // Sends the TLS alert, if the server still reads.
            let _ = tls.write_tls(&mut self.tcp);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        loop {
            match tls.reader().read(chunk) {
                Ok(0) => return Err(closed()),
                Ok(len) => self.receive_buffer.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for RedisConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// Waits until one of these is ready, at most `within`.
pub(crate) fn wait(polled: &mut [PollFd<'_>], within: Duration) -> io::Result<()> {
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    match poll(polled, Some(&within)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn connect(sockets: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for (at, socket) in sockets.iter().enumerate() {
        // Each address gets an equal share of the time, so that one that does not answer leaves some to the next.
        let left = deadline.saturating_duration_since(Instant::now()) / (sockets.len() - at) as u32;
        if left.is_zero() {
            return Err(timed_out());
        }
        match TcpStream::connect_timeout(socket, left) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_nonblocking(true)?;
                // Unsent bytes must not be sent after the connection is given up: no thread waits for the reply any
                // more.
                rustix::net::sockopt::set_socket_linger(&tcp, Some(Duration::ZERO))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(crate) fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer in time")
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// The text may contain anything, so it is not repeated.
fn protocol_error() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the server does not speak the Redis protocol")
}

/// Finds the end of a reply that arrives in pieces, reading each part once.
#[derive(Default)]
struct ReplyScanner {
    /// Offset of the next part.
    at: usize,
    /// Number of array elements that remain after the next part.
    more: usize,
}

impl ReplyScanner {
    /// Returns the length of the reply at the front, if it is complete.
    fn complete_len(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            let rest = &bytes[self.at..];
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return if rest.len() > LINE_MAX { Err(protocol_error()) } else { Ok(None) };
            };
            let line = rest[..end].strip_suffix(b"\r").ok_or_else(protocol_error)?;
            let (kind, number) = line.split_first().ok_or_else(protocol_error)?;
            let count = || match std::str::from_utf8(number).ok().and_then(|number| number.parse::<i64>().ok()) {
                Some(-1) => Ok(None),
                Some(number) => {
                    usize::try_from(number).ok().filter(|len| *len <= REPLY_MAX).map(Some).ok_or_else(protocol_error)
                }
                None => Err(protocol_error()),
            };
            let (behind, parts) = match kind {
                b'+' | b'-' | b':' => (0, 0),
                b'$' => (count()?.map_or(0, |len| len + 2), 0),
                b'*' => (0, count()?.unwrap_or(0)),
                _ => return Err(protocol_error()),
            };
            if rest.len() < end + 1 + behind {
                return Ok(None);
            }
            self.at += end + 1 + behind;
            self.more += parts;
            if self.more == 0 {
                return Ok(Some(self.at));
            }
            self.more -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Generates replies of all kinds.
    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-z ]{0,9}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            "[A-Z]{1,9}".prop_map(|text| format!("-{text} x\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(|bytes| { [format!("${}\r\n", bytes.len()).into_bytes(), bytes, b"\r\n".to_vec()].concat() }),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            proptest::collection::vec(inner, 0..5)
                .prop_map(|parts| [format!("*{}\r\n", parts.len()).into_bytes(), parts.concat()].concat())
        })
    }

    proptest! {
        #[test]
        fn a_reply_in_pieces_ends_at_its_end(reply in reply(), next in reply(), step in 1usize..7) {
            let both = [reply.clone(), next].concat();
            let mut scanner = ReplyScanner::default();
            for end in (0..reply.len()).step_by(step) {
                prop_assert_eq!(scanner.complete_len(&both[..end]).unwrap(), None);
            }
            prop_assert_eq!(scanner.complete_len(&both).unwrap(), Some(reply.len()));
            prop_assert!(redis::parse_redis_value(&reply).is_ok());
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = ReplyScanner::default().complete_len(&bytes);
        }
    }

    #[test]
    fn bytes_other_than_a_reply_are_an_error() {
        for wrong in
            ["\u{de}\u{ad}no reply\0\r\n", "HTTP/1.1 200 OK\r\n", "$99999999999999\r\n", "$-2\r\n", "*x\r\n", "\r\n"]
        {
            assert!(ReplyScanner::default().complete_len(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
