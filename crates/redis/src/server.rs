//! The state of one server: its connection, and the requests that wait for its replies.
//!
//! An expired request is dropped, and so is its reply when it arrives: replies come in order, so each one matches its
//! request. A silent server gets no further requests until it answers. After a while its connection is replaced.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use redis::Value;
use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::dial::Dialer;
use super::error::{RedisError, ServerAddress};
use super::request::Asked;
use super::role::ServerRole;
use super::scripts::Scripts;
use super::topology::MapQuestion;

/// Time for which a server that did not answer is avoided.
const REST: Duration = Duration::from_millis(250);

/// Silence below which an expired request does not count against the server: the request may have been late itself.
const FAIR: Duration = Duration::from_millis(10);

/// Silence after which a connection is replaced.
const SILENT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Server {
    link: Link,
    is_sentinel: bool,
    /// True once a connection was established.
    was_up: bool,
}

enum Link {
    /// Disconnected. A request connects again, but not before that instant if one is given, with the reason.
    Down(Option<(Instant, RedisError)>),
    /// Connecting. After a request has expired meanwhile (`is_slow`), further ones fail at once.
    Dialing {
        attempt: u64,
        is_slow: bool,
    },
    Up(Box<Talk>),
}

impl Default for Link {
    fn default() -> Link {
        Link::Down(None)
    }
}

/// The state of an open connection.
struct Talk {
    connection: Connection,
    /// The form in which this connection asks for the role.
    map: MapQuestion,
    /// Requests without a reply, the oldest first.
    awaited: VecDeque<Awaited>,
    /// The instant of the last reply.
    heard: Instant,
    /// The instant from which the server has been silent although a request waited.
    silent_since: Option<Instant>,
    /// The end of the time for which the server is avoided.
    rests_until: Option<Instant>,
}

/// Commands that were sent in one batch.
struct Awaited {
    what: What,
    sent: Instant,
    /// Number of expected replies.
    replies: usize,
    /// True if each command is preceded by `ASKING`, whose reply is ignored.
    moving: bool,
    values: Vec<Value>,
}

enum What {
    Asked(Asked),
    Map,
    /// An expired request, whose reply is ignored.
    Nothing,
}

/// A complete response of a server.
pub(super) enum ServerReply {
    Answer(Asked, Vec<Value>),
    Map(Result<ServerRole, RedisError>),
}

/// A request that failed without a response.
pub(super) enum FailedRequest {
    Asked(Asked),
    Map,
}

/// The readiness of a server for a request.
pub(super) enum Readiness {
    Ready,
    /// After the connection is established.
    Soon,
}

impl Server {
    pub(super) fn new(is_sentinel: bool) -> Server {
        Server { link: Link::Down(None), is_sentinel, was_up: false }
    }

    /// True if the server is connected.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.link, Link::Dialing { .. })
    }

    /// True if the server is connected and answers.
    pub(super) fn can_be_asked(&self) -> bool {
        matches!(&self.link, Link::Up(talk) if !talk.is_left_alone())
    }

    /// True if a request or an attempt to connect is in progress.
    pub(super) fn is_busy(&self) -> bool {
        match &self.link {
            Link::Down(_) => false,
            Link::Dialing { .. } => true,
            Link::Up(talk) => talk.awaited.iter().any(|awaited| !matches!(awaited.what, What::Nothing)),
        }
    }

    /// Ensures that a connection exists or is being opened, unless the server does not answer.
    pub(super) fn approach(&mut self, address: &ServerAddress, dialer: &mut Dialer) -> Result<Readiness, RedisError> {
        let silent = || RedisError::Away { what: format!("{address} did not answer the last request"), asked: false };
        if matches!(&self.link, Link::Up(talk) if talk.is_lost()) {
            self.link = Link::Down(None);
            let _ = self.approach(address, dialer);
            // A new connection takes its time.
            self.give_up_waiting();
            return Err(silent());
        }
        match &self.link {
            Link::Up(talk) if talk.is_left_alone() => Err(silent()),
            Link::Up(_) => Ok(Readiness::Ready),
            Link::Dialing { is_slow: false, .. } => Ok(Readiness::Soon),
            Link::Dialing { .. } => Err(silent()),
            Link::Down(Some((until, why))) if Instant::now() < *until => Err(why.clone()),
            Link::Down(_) => {
                let attempt = dialer
                    .start(address, self.is_sentinel)
                    .map_err(|error| RedisError::away(address, &error, false))?;
                self.link = Link::Dialing { attempt, is_slow: false };
                Ok(Readiness::Soon)
            }
        }
    }

    /// Makes further requests fail at once while the connection is being opened.
    pub(super) fn give_up_waiting(&mut self) {
        if let Link::Dialing { is_slow, .. } = &mut self.link {
            *is_slow = true;
        }
    }

    /// Takes the result of an attempt to connect. Returns false if it is obsolete.
    pub(super) fn dialed(&mut self, attempt: u64, result: Result<(Connection, MapQuestion), &RedisError>) -> bool {
        if !matches!(self.link, Link::Dialing { attempt: current, .. } if current == attempt) {
            return false;
        }
        self.link = match result {
            Ok((connection, map)) => Link::Up(Box::new(Talk::new(connection, map))),
            Err(why) => Link::Down(Some((Instant::now() + REST, why.clone()))),
        };
        true
    }

    /// Notes that a connection was established. Returns true if there was one before: the server may have lost writes
    /// since.
    pub(super) fn comes_back(&mut self) -> bool {
        std::mem::replace(&mut self.was_up, true)
    }

    /// Closes the connection. Returns the requests without a response. With a reason, the server is also avoided for a
    /// moment.
    pub(super) fn lose(&mut self, why: Option<&RedisError>) -> Vec<FailedRequest> {
        let rest = why.map(|why| (Instant::now() + REST, why.clone()));
        let Link::Up(talk) = std::mem::replace(&mut self.link, Link::Down(rest)) else { return Vec::new() };
        talk.awaited.into_iter().filter_map(|awaited| awaited.what.into_failed()).collect()
    }

    /// Sends a request. Only after [`Server::approach`] has returned [`Readiness::Ready`].
    pub(super) fn ask(&mut self, asked: Asked, scripts: &Scripts) {
        let Link::Up(talk) = &mut self.link else { unreachable!("it is ready") };
        let moving = asked.at.is_some();
        let mut replies = 0;
        for question in &asked.questions {
            if moving {
                talk.connection.put(&redis::cmd("ASKING"));
            }
            talk.connection.put(&question.to_command(scripts));
            replies += 1 + usize::from(moving);
        }
        talk.awaits(What::Asked(asked), replies, moving);
    }

    /// Requests the topology, unless the new connection will report it anyway.
    pub(super) fn ask_for_map(&mut self) {
        let Link::Up(talk) = &mut self.link else { return };
        talk.connection.put(&talk.map.to_command());
        talk.awaits(What::Map, 1, false);
    }

    /// Loads all scripts, before any further request.
    pub(super) fn load(&mut self, scripts: &Scripts) {
        let Link::Up(talk) = &mut self.link else { return };
        scripts.loads().for_each(|load| talk.connection.put(&load));
        talk.awaits(What::Nothing, scripts.count(), false);
    }

    /// Writes the commands that were added.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Link::Up(talk) = &mut self.link { talk.connection.flush() } else { Ok(()) }
    }

    /// Returns the responses that have arrived. After an error the connection is lost, but earlier responses are valid.
    pub(super) fn listen(&mut self, address: &ServerAddress) -> (Vec<ServerReply>, io::Result<()>) {
        let mut said = Vec::new();
        let Link::Up(talk) = &mut self.link else { return (said, Ok(())) };
        let pumped = talk.connection.pump();
        let heard = talk.take(address, &mut said);
        (said, heard.and(pumped))
    }

    /// Drops the requests whose deadline has passed, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<FailedRequest> {
        let Link::Up(talk) = &mut self.link else { return Vec::new() };
        let Some(oldest) = talk.awaited.front() else { return Vec::new() };
        // Silence counts from the last reply, or from a later request.
        let silent = now.saturating_duration_since(oldest.sent.max(talk.heard));
        let over = |awaited: &&mut Awaited| awaited.deadline().is_some_and(|deadline| deadline <= now);
        let over = talk.awaited.iter_mut().filter(over);
        let failed: Vec<FailedRequest> =
            over.filter_map(|awaited| std::mem::replace(&mut awaited.what, What::Nothing).into_failed()).collect();
        if !failed.is_empty() && silent >= FAIR {
            talk.silent_since.get_or_insert(now);
            talk.rests_until = Some(now + REST);
        }
        failed
    }

    /// Returns the earliest deadline of a request.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Link::Up(talk) = &self.link else { return None };
        talk.awaited.iter().filter_map(Awaited::deadline).min()
    }

    /// Returns the events to poll for.
    pub(super) fn awaits(&self) -> Option<PollFd<'_>> {
        let Link::Up(talk) = &self.link else { return None };
        let flags = talk.connection.awaits();
        let waits = !talk.awaited.is_empty() || flags != PollFlags::IN;
        waits.then(|| PollFd::new(&talk.connection, flags))
    }
}

impl Talk {
    fn new(connection: Connection, map: MapQuestion) -> Talk {
        let awaited = VecDeque::new();
        Talk { connection, map, awaited, heard: Instant::now(), silent_since: None, rests_until: None }
    }

    fn is_left_alone(&self) -> bool {
        self.silent_since.is_some() || self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_lost(&self) -> bool {
        self.silent_since.is_some_and(|since| since.elapsed() >= SILENT_MAX)
    }

    fn awaits(&mut self, what: What, replies: usize, moving: bool) {
        self.awaited.push_back(Awaited { what, sent: Instant::now(), replies, moving, values: Vec::new() });
    }

    /// Takes the replies that have arrived.
    fn take(&mut self, address: &ServerAddress, said: &mut Vec<ServerReply>) -> io::Result<()> {
        while let Some(value) = self.connection.next()? {
            (self.heard, self.silent_since) = (Instant::now(), None);
            let unasked = || io::Error::new(io::ErrorKind::InvalidData, "the server sent a response without a request");
            let awaited = self.awaited.front_mut().ok_or_else(unasked)?;
            awaited.values.push(value);
            if awaited.values.len() == awaited.replies {
                said.extend(self.awaited.pop_front().and_then(|awaited| awaited.said(address, &self.map)));
            }
        }
        Ok(())
    }
}

impl Awaited {
    fn deadline(&self) -> Option<Instant> {
        match &self.what {
            What::Asked(asked) => Some(asked.deadline),
            What::Map => Some(self.sent + SILENT_MAX),
            What::Nothing => None,
        }
    }

    fn said(self, address: &ServerAddress, map: &MapQuestion) -> Option<ServerReply> {
        let mut values = self.values;
        if self.moving {
            values = values.into_iter().skip(1).step_by(2).collect();
        }
        match self.what {
            What::Asked(asked) => Some(ServerReply::Answer(asked, values)),
            What::Map => {
                let value = values.into_iter().next().unwrap_or(Value::Nil);
                Some(ServerReply::Map(map.role_of(address, &value)))
            }
            What::Nothing => None,
        }
    }
}

impl What {
    fn into_failed(self) -> Option<FailedRequest> {
        match self {
            What::Asked(asked) => Some(FailedRequest::Asked(asked)),
            What::Map => Some(FailedRequest::Map),
            What::Nothing => None,
        }
    }
}
