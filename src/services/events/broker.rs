//! A connection to a message broker, over TCP or TLS, on which the look-up of the name, each read and each write end at
//! a deadline.
//!
//! The deadline belongs to the socket below TLS. So a server that sends a record or a handshake byte by byte gains no
//! time.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::services::threads;
use crate::services::threads::priority::Priority;

/// Bytes of one read.
const CHUNK_LEN: usize = 16 * 1024;

/// The address of a broker.
#[derive(Clone)]
pub struct BrokerAddress {
    /// The host name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The certificates to trust; `None` for a connection without TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BrokerAddress { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a look-up.
type LookupResult = io::Result<Vec<SocketAddr>>;

/// Opens connections to one broker.
pub(super) struct BrokerDialer {
    address: BrokerAddress,
    /// The result of a look-up that took too long. At most one runs, because nothing ends it.
    lookup: Option<Receiver<LookupResult>>,
}

impl BrokerDialer {
    pub(super) fn new(address: BrokerAddress) -> BrokerDialer {
        BrokerDialer { address, lookup: None }
    }

    pub(super) fn address(&self) -> &BrokerAddress {
        &self.address
    }

    /// Connects. The handshake of TLS follows with the first bytes. Blocks the thread until `deadline` at the latest.
    ///
    /// # Errors
    /// If the name has no address, or none of them accepts a connection in time.
    pub(super) fn connect(&mut self, deadline: Instant) -> io::Result<BrokerStream> {
        let tcp = connect(&self.sockets(deadline)?, deadline)?;
        tcp.set_nodelay(true)?;
        let socket = TimedSocket { tcp, deadline };
        let Some(config) = &self.address.tls else { return Ok(BrokerStream::Plain(socket)) };
        let name = ServerName::try_from(self.address.host.clone())
            .map_err(|_| io::Error::other("the host is not a valid name for a certificate"))?;
        let client = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(BrokerStream::Secure(Box::new(StreamOwned::new(client, socket))))
    }

    /// Returns the addresses of the host.
    fn sockets(&mut self, deadline: Instant) -> LookupResult {
        let BrokerAddress { host, port, .. } = &self.address;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, *port)]);
        }
        // Before the look-up, which must not be lost.
        let left = time_until(deadline)?;
        let lookup = match self.lookup.take() {
            Some(lookup) => lookup,
            None => look_up(host.clone(), *port)?,
        };
        match lookup.recv_timeout(left) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => {
                self.lookup = Some(lookup);
                Err(io::Error::new(ErrorKind::TimedOut, "the name server did not answer in time"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the look-up of the name failed")),
        }
    }
}

/// Looks a name up on a thread of its own: the system sets no bound on the time that this takes.
fn look_up(host: String, port: u16) -> io::Result<Receiver<LookupResult>> {
    let (sender, found) = sync_channel(1);
    threads::start(Priority::Long, "events-name", move || {
        // Nobody may wait for the result any more.
        let _ = sender.send((host.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    })?;
    Ok(found)
}

/// Connects to the first of these addresses that answers. Each gets an equal share of the time, so that one that does
/// not answer leaves some to the next.
fn connect(sockets: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for (at, socket) in sockets.iter().enumerate() {
        let share = time_until(deadline)? / (sockets.len() - at) as u32;
        match TcpStream::connect_timeout(socket, share.max(Duration::from_millis(1))) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A socket whose reads and writes end at a deadline.
pub(super) struct TimedSocket {
    tcp: TcpStream,
    deadline: Instant,
}

impl TimedSocket {
    /// Repeats an operation that a signal has interrupted.
    fn timed(&mut self, mut operation: impl FnMut(&mut TcpStream, Duration) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match operation(&mut self.tcp, time_until(self.deadline)?) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The kernel reports the end of the time as this.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(late()),
                done => return done,
            }
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.timed(|tcp, left| {
            tcp.set_read_timeout(Some(left))?;
            tcp.read(bytes)
        })
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.timed(|tcp, left| {
            tcp.set_write_timeout(Some(left))?;
            tcp.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to a broker. After an error it must not be used again.
pub(super) enum BrokerStream {
    /// Without TLS.
    Plain(TimedSocket),
    /// With TLS.
    Secure(Box<StreamOwned<ClientConnection, TimedSocket>>),
}

impl BrokerStream {
    /// Sets the instant at which all reads and writes end.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        match self {
            BrokerStream::Plain(socket) => socket.deadline = deadline,
            BrokerStream::Secure(stream) => stream.sock.deadline = deadline,
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] at the deadline, or that of the connection.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            BrokerStream::Plain(socket) => socket.write_all(bytes),
            BrokerStream::Secure(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Appends the bytes that come next, at least one.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] at the deadline, [`ErrorKind::UnexpectedEof`] at the end of the connection, or that of
    /// the connection.
    pub(super) fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut chunk = [0; CHUNK_LEN];
        let len = match self {
            BrokerStream::Plain(socket) => socket.read(&mut chunk)?,
            BrokerStream::Secure(stream) => stream.read(&mut chunk)?,
        };
        if len == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        into.extend_from_slice(&chunk[..len]);
        Ok(())
    }

    /// Ends the connection after all bytes that were sent.
    pub(super) fn finish(mut self) {
        if let BrokerStream::Secure(stream) = &mut self {
            stream.conn.send_close_notify();
            // The server may be gone already.
            let _ = stream.flush();
        }
    }

    /// Ends the connection, and drops bytes that the server has not received yet. Otherwise the server could get them
    /// after the same bytes have come through another connection, and take them for new ones.
    pub(super) fn abandon(self) {
        let tcp = match &self {
            BrokerStream::Plain(socket) => &socket.tcp,
            BrokerStream::Secure(stream) => &stream.sock.tcp,
        };
        // Without it, the server gets the bytes, and readers know repeated events by their IDs.
        let _ = rustix::net::sockopt::set_socket_linger(tcp, Some(Duration::ZERO));
    }
}

/// Returns the time until a deadline.
///
/// # Errors
/// [`ErrorKind::TimedOut`] if it has passed.
fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the server did not answer in time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// Longer than a busy machine takes for a connection, and short enough to wait for.
    const SOON: Duration = Duration::from_secs(3);

    fn address(host: &str, port: u16) -> BrokerAddress {
        BrokerAddress { host: host.to_owned(), port, tls: None }
    }

    fn secure(port: u16) -> BrokerAddress {
        BrokerAddress { tls: Some(carom_tls::trust::client(None).unwrap()), ..address("127.0.0.1", port) }
    }

    #[test]
    fn silent_server_takes_no_longer_than_the_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in [address("127.0.0.1", port), secure(port)] {
            let deadline = Instant::now() + SOON;
            let mut stream = BrokerDialer::new(address).connect(deadline).unwrap();
            // The kernel accepts the connection and some bytes, and nobody answers.
            let error = stream.send(b"AMQP").and_then(|()| stream.receive(&mut Vec::new())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert!(Instant::now() >= deadline);
            stream.abandon();
        }
    }

    #[test]
    fn slow_handshake_gains_no_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            // The beginning of a record of TLS that is 16 KiB long, byte by byte, until the client gives up.
            let record = [22, 3, 3, 64, 0].into_iter().chain(std::iter::repeat(0));
            for byte in record {
                if tcp.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let deadline = Instant::now() + SOON;
        let mut stream = BrokerDialer::new(secure(port)).connect(deadline).unwrap();
        let error = stream.send(b"AMQP").and_then(|()| stream.receive(&mut Vec::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // All bytes would take more than a minute.
        assert!(Instant::now() < deadline + Duration::from_secs(20));
        stream.abandon();
        server.join().unwrap();
    }

    #[test]
    fn names_and_addresses_are_dialed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let deadline = || Instant::now() + Duration::from_secs(10);
        for host in ["127.0.0.1", "localhost"] {
            let mut dialer = BrokerDialer::new(address(host, port));
            let stream = dialer.connect(deadline()).unwrap();
            let (mut tcp, _) = listener.accept().unwrap();
            stream.finish();
            assert_eq!(tcp.read(&mut [0; 1]).unwrap(), 0);
        }
        assert_eq!(address("::1", 5_672).to_string(), "[::1]:5672");
    }
}
