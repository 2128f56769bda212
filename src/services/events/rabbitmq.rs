//! The sink that publishes events to a topic exchange of RabbitMQ, with Shlink's payloads.
//!
//! A message counts as delivered once the server has confirmed it: for a queue that is durable, once it is on disk
//! there. `amqp` has the bytes.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::amqp::{self, Message, Method};
use super::render::RenderedEvent;
use super::sink::{Sink, SinkFailure};
use carom_limits::SINK_TIME_MAX;
use carom_telemetry::stats::{NodeStats, SinkStats};

/// An exchange of RabbitMQ. The `Debug` form hides the password.
#[derive(Clone)]
pub struct RabbitTerms {
    /// The host name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
    /// The virtual host.
    pub vhost: String,
    /// The exchange, of the type topic.
    pub exchange: String,
}

impl std::fmt::Debug for RabbitTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RabbitTerms({}:{})", self.host, self.port)
    }
}

/// The connection to an exchange of RabbitMQ.
pub(super) struct Rabbit {
    terms: RabbitTerms,
    session: Option<Session>,
}

/// A connection with an open channel.
struct Session {
    stream: TcpStream,
    received: Vec<u8>,
    frame_max: u32,
    /// The number of the last message.
    last_tag: u64,
}

impl Rabbit {
    pub(super) fn new(terms: RabbitTerms) -> Rabbit {
        Rabbit { terms, session: None }
    }

    /// Publishes events, and returns the number of those that the server has confirmed, in their order.
    fn publish(&mut self, events: &[RenderedEvent], deadline: Instant) -> (usize, io::Result<()>) {
        let session = match self.session.take().map_or_else(|| Session::open(&self.terms, deadline), Ok) {
            Ok(session) => self.session.insert(session),
            Err(error) => return (0, Err(error)),
        };
        let mut bytes = Vec::new();
        for event in events {
            let (id, body) = (event.id.to_string(), event.data.to_string());
            let message = Message {
                exchange: &self.terms.exchange,
                key: event.of.as_str(),
                id: &id,
                of: event.topics.first().map_or("", String::as_str),
                seconds: event.at_ms / 1_000,
                body: body.as_bytes(),
            };
            amqp::publish(&message, session.frame_max, &mut bytes);
        }
        let first_tag = session.last_tag + 1;
        session.last_tag += events.len() as u64;
        let mut confirmed = vec![false; events.len()];
        let result =
            session.send(&bytes, deadline).and_then(|()| session.await_confirms(first_tag, &mut confirmed, deadline));
        if result.is_err() {
            // What the server still confirms belongs to messages that are sent again.
            self.session = None;
        }
        (confirmed.iter().take_while(|is_confirmed| **is_confirmed).count(), result)
    }
}

impl Sink for Rabbit {
    const NAME: &'static str = "rabbitmq";

    fn stats(stats: &NodeStats) -> &SinkStats {
        &stats.events.rabbitmq
    }

    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>) {
        let (count, result) = self.publish(events, Instant::now() + SINK_TIME_MAX);
        let address = format!("{}:{}", self.terms.host, self.terms.port);
        (count, result.map_err(|error| SinkFailure::Later(format!("{address}: {error}"), None)))
    }
}

impl Session {
    /// Connects, logs in, and declares the exchange.
    fn open(terms: &RabbitTerms, deadline: Instant) -> io::Result<Session> {
        let mut failure = io::Error::other("the name has no address");
        let addresses = (terms.host.as_str(), terms.port).to_socket_addrs()?;
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, rest(deadline)?) {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => failure = error,
            }
        }
        let stream = stream.ok_or(failure)?;
        stream.set_nodelay(true)?;
        let mut session = Session { stream, received: Vec::new(), frame_max: amqp::FRAME_MAX, last_tag: 0 };
        session.send(amqp::HEADER, deadline)?;
        match session.method(deadline)? {
            Method::Start(mechanisms) if mechanisms.split(' ').any(|name| name == "PLAIN") => {}
            _ => return Err(io::Error::other("the server offers no login with a password (PLAIN)")),
        }
        session.send(&amqp::start_ok(&terms.user, &terms.password), deadline)?;
        let limits = session.method(deadline).map_err(|error| match error.kind() {
            // Servers close the connection without a word.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                io::Error::other("the server refuses the login")
            }
            _ => error,
        })?;
        let Method::Tune { channels, frame_max } = limits else { return Err(unexpected(&limits)) };
        let (tuned, frame_max) = amqp::tune_ok(channels, frame_max);
        session.frame_max = frame_max;
        session.send(&[tuned, amqp::open(&terms.vhost)].concat(), deadline)?;
        session.expect((10, 41), deadline)?;
        let answers = [(20, 11), (40, 11), (85, 11)];
        for (request, answer) in amqp::open_channel(&terms.exchange).iter().zip(answers) {
            session.send(request, deadline)?;
            session.expect(answer, deadline)?;
        }
        Ok(session)
    }

    /// Waits until all messages from this number on are confirmed.
    fn await_confirms(&mut self, first_tag: u64, confirmed: &mut [bool], deadline: Instant) -> io::Result<()> {
        while !confirmed.iter().all(|is_confirmed| *is_confirmed) {
            match self.method(deadline)? {
                Method::Ack(tag, multiple) => {
                    let place = usize::try_from(tag.wrapping_sub(first_tag)).unwrap_or(usize::MAX);
                    let from = if multiple { 0 } else { place };
                    match confirmed.get_mut(from..=place) {
                        Some(some) => some.fill(true),
                        None => return Err(io::Error::other("the server confirms a message that was not sent")),
                    }
                }
                Method::Nack(..) => return Err(io::Error::other("the server could not store a message")),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }

    fn expect(&mut self, answer: (u16, u16), deadline: Instant) -> io::Result<()> {
        match self.method(deadline)? {
            Method::Ok(class, number) if (class, number) == answer => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            self.stream.set_write_timeout(Some(rest(deadline)?))?;
            match self.stream.write(left) {
                Ok(len) => left = &left[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next method, and skips heartbeats.
    fn method(&mut self, deadline: Instant) -> io::Result<Method> {
        let mut piece = [0; 4_096];
        loop {
            while let Some(frame) = amqp::take_frame(&mut self.received).map_err(io::Error::other)? {
                if let Some(method) = frame.method() {
                    return Ok(method);
                }
            }
            self.stream.set_read_timeout(Some(rest(deadline)?))?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                Ok(len) => self.received.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the time until a deadline.
///
/// # Errors
/// If it has passed.
fn rest(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time");
    (!rest.is_zero()).then_some(rest).ok_or_else(late)
}

fn unexpected(method: &Method) -> io::Error {
    match method {
        Method::Close(why) => io::Error::other(format!("the server refuses: {why}")),
        _ => io::Error::other("the server sent an unexpected answer"),
    }
}
