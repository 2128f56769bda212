//! One connection to one server, on which nothing takes longer than it may.
//!
//! The `redis` crate packs commands and parses replies; the socket is ours, because its connection bounds each read and
//! not the whole: a server that sends a byte now and then would hold a thread for ever. After any failure the connection
//! must not be used again: a reply that comes late would be taken for that of the next command.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Parser, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Address, Trouble};

/// The least that a socket is ever asked to wait.
const SHORTEST: Duration = Duration::from_millis(1);

/// How to speak to servers.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

pub(super) struct Connection {
    stream: Stream,
    parser: Parser,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`Trouble::Away`] when that fails or takes too long, [`Trouble::Refused`] when the server does not want us.
    pub(super) fn open(address: &Address, login: &Login, deadline: Instant) -> Result<Connection, Trouble> {
        let tcp = connect(address, deadline).map_err(|error| Trouble::away(address, &error, false))?;
        let stream = match &login.tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let name = ServerName::try_from(address.host.clone()).map_err(|_| {
                    Trouble::Refused(format!("{} is no name that a certificate can have", address.host))
                })?;
                let client = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|error| Trouble::Refused(format!("TLS with {address}: {error}")))?;
                Stream::Tls(Box::new(StreamOwned::new(client, tcp)))
            }
        };
        let mut connection = Connection { stream, parser: Parser::new() };
        connection.log_in(address, login, deadline)?;
        Ok(connection)
    }

    fn log_in(&mut self, address: &Address, login: &Login, deadline: Instant) -> Result<(), Trouble> {
        let mut greeting = Vec::new();
        if let Some(password) = &login.password {
            let mut auth = redis::cmd("AUTH");
            login.username.iter().for_each(|name| _ = auth.arg(name));
            greeting.push(auth.arg(password).to_owned());
        }
        if login.database != 0 {
            greeting.push(redis::cmd("SELECT").arg(login.database).to_owned());
        }
        for command in greeting {
            match self.ask(&command, deadline).map_err(|error| Trouble::away(address, &error, false))? {
                Value::ServerError(error) => {
                    // Not the text: a server that does not know the command repeats what it was sent.
                    return Err(Trouble::Refused(format!("{address} does not let us in: {}", error.code())));
                }
                _ => continue,
            }
        }
        Ok(())
    }

    /// Sends one command and waits for its reply.
    pub(super) fn ask(&mut self, command: &Cmd, deadline: Instant) -> io::Result<Value> {
        self.send(&command.get_packed_command(), deadline)?;
        self.receive(deadline)
    }

    /// Sends packed commands.
    pub(super) fn send(&mut self, packed: &[u8], deadline: Instant) -> io::Result<()> {
        let mut timed = Timed { stream: &mut self.stream, deadline };
        timed.write_all(packed)?;
        timed.flush()
    }

    /// Waits for the next reply.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Value> {
        let timed = Timed { stream: &mut self.stream, deadline };
        self.parser.parse_value(timed).map_err(|error| {
            if error.is_timeout() {
                late()
            } else if error.is_io_error() {
                io::Error::other(error.to_string())
            } else {
                // What it said may be anything, so it is not repeated.
                io::Error::new(io::ErrorKind::InvalidData, "it does not speak like Redis")
            }
        })
    }
}

fn connect(address: &Address, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&socket, left(deadline)?) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                // What was not sent when we give up must not be sent later: nobody waits for it any more.
                rustix::net::sockopt::set_socket_linger(&tcp, Some(Duration::ZERO))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// The time until then.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    Ok(left.max(SHORTEST))
}

/// A stream whose every wait ends with the whole.
struct Timed<'s> {
    stream: &'s mut Stream,
    deadline: Instant,
}

impl Timed<'_> {
    fn within(&mut self) -> io::Result<&mut Stream> {
        let left = left(self.deadline)?;
        let socket = match self.stream {
            Stream::Plain(tcp) => &*tcp,
            Stream::Tls(tls) => &tls.sock,
        };
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))?;
        Ok(self.stream)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.within()? {
            Stream::Plain(tcp) => tcp.read(buf),
            Stream::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.within()? {
            Stream::Plain(tcp) => tcp.write(buf),
            Stream::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.within()? {
            Stream::Plain(tcp) => tcp.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}
