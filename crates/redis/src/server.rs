//! The state of one server: its connection, and the requests that wait for its replies.
//!
//! An expired request is dropped, and so is its reply when it arrives: replies come in order, so each one matches its
//! request. A silent server gets no further requests until it answers. After a while its connection is replaced.
//! `dial` opens a `connection` in the background.

pub(crate) mod connection;
pub(crate) mod dial;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use redis::Value;
use rustix::event::{PollFd, PollFlags};

use self::connection::RedisConnection;
use self::dial::Dialer;
use super::address::ServerAddress;
use super::error::RedisError;
use super::request::PendingRequest;
use super::scripts::Scripts;
use super::topology::RoleQuestion;
use super::topology::role::ServerRole;

/// Time for which a server that did not answer is avoided.
const AVOID_TIME: Duration = Duration::from_millis(250);

/// Silence below which an expired request does not count against the server: the request may have been sent too late.
const SILENCE_MIN: Duration = Duration::from_millis(10);

/// Silence after which a connection is replaced.
const SILENT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct RedisServer {
    state: ConnectionState,
    is_sentinel: bool,
    /// True once a connection was established.
    was_up: bool,
    /// Requests of a connection that was replaced. The next call of [`RedisServer::expire`] returns them.
    given_up: Vec<FailedRequest>,
}

enum ConnectionState {
    /// Disconnected. A request connects again, but not before that instant if one is given, with the reason.
    Down(Option<(Instant, RedisError)>),
    /// Connecting. After a request has expired meanwhile (`is_slow`), further ones fail at once.
    Dialing {
        attempt: u64,
        is_slow: bool,
    },
    Up(Box<OpenConnection>),
}

impl Default for ConnectionState {
    fn default() -> ConnectionState {
        ConnectionState::Down(None)
    }
}

/// The state of an open connection.
struct OpenConnection {
    connection: RedisConnection,
    /// The form in which this connection asks for the role.
    role_question: RoleQuestion,
    /// Requests without a reply, the oldest first.
    awaited: VecDeque<SentBatch>,
    /// The instant of the last reply.
    last_reply_at: Instant,
    /// The instant from which the server has been silent although a request waited.
    silent_since: Option<Instant>,
    /// The end of the time for which the server is avoided.
    avoided_until: Option<Instant>,
}

/// Commands that were sent to the server in one batch.
struct SentBatch {
    purpose: Purpose,
    sent: Instant,
    /// Number of expected replies.
    replies: usize,
    /// True if each command is preceded by `ASKING`, whose reply is ignored.
    moving: bool,
    values: Vec<Value>,
}

enum Purpose {
    Request(PendingRequest),
    /// A question for the role of the server.
    Role,
    /// An expired request, whose reply is ignored.
    Ignored,
}

/// A complete response of a server.
pub(super) enum ServerReply {
    Answer(PendingRequest, Vec<Value>),
    Role(Result<ServerRole, RedisError>),
}

/// A request that failed without a response.
pub(super) enum FailedRequest {
    Pending(PendingRequest),
    Role,
}

/// The readiness of a server for a request.
pub(super) enum Readiness {
    Ready,
    /// After the connection is established.
    Soon,
}

impl RedisServer {
    pub(super) fn new(is_sentinel: bool) -> RedisServer {
        RedisServer { is_sentinel, ..RedisServer::default() }
    }

    /// True if the server is connected.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, ConnectionState::Up(_))
    }

    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.state, ConnectionState::Dialing { .. })
    }

    /// True if the server is connected and answers.
    pub(super) fn can_be_asked(&self) -> bool {
        matches!(&self.state, ConnectionState::Up(open) if !open.is_avoided())
    }

    /// True if a request or an attempt to connect is in progress.
    pub(super) fn is_busy(&self) -> bool {
        match &self.state {
            ConnectionState::Down(_) => !self.given_up.is_empty(),
            ConnectionState::Dialing { .. } => true,
            ConnectionState::Up(open) => {
                open.awaited.iter().any(|awaited| !matches!(awaited.purpose, Purpose::Ignored))
            }
        }
    }

    /// Ensures that a connection exists or is being opened, unless the server does not answer.
    pub(super) fn ensure_connected(
        &mut self,
        address: &ServerAddress,
        dialer: &mut Dialer,
    ) -> Result<Readiness, RedisError> {
        let silent =
            || RedisError::Unavailable { what: format!("{address} did not answer the last request"), was_sent: false };
        if matches!(&self.state, ConnectionState::Up(open) if open.is_lost()) {
            // Requests with a longer timeout may still wait for their replies.
            let unanswered = self.disconnect(None);
            self.given_up.extend(unanswered);
            let _ = self.ensure_connected(address, dialer);
            // A new connection takes its time.
            self.fail_fast();
            return Err(silent());
        }
        match &self.state {
            ConnectionState::Up(open) if open.is_avoided() => Err(silent()),
            ConnectionState::Up(_) => Ok(Readiness::Ready),
            ConnectionState::Dialing { is_slow: false, .. } => Ok(Readiness::Soon),
            ConnectionState::Dialing { .. } => Err(silent()),
            ConnectionState::Down(Some((until, why))) if Instant::now() < *until => Err(why.clone()),
            ConnectionState::Down(_) => {
                let attempt = dialer
                    .start(address, self.is_sentinel)
                    .map_err(|error| RedisError::unavailable(address, &error, false))?;
                self.state = ConnectionState::Dialing { attempt, is_slow: false };
                Ok(Readiness::Soon)
            }
        }
    }

    /// Makes further requests fail at once while the connection is being opened.
    pub(super) fn fail_fast(&mut self) {
        if let ConnectionState::Dialing { is_slow, .. } = &mut self.state {
            *is_slow = true;
        }
    }

    /// Takes the result of an attempt to connect. Returns false if it is obsolete.
    pub(super) fn dialed(
        &mut self,
        attempt: u64,
        result: Result<(RedisConnection, RoleQuestion), &RedisError>,
    ) -> bool {
        if !matches!(self.state, ConnectionState::Dialing { attempt: current, .. } if current == attempt) {
            return false;
        }
        self.state = match result {
            Ok((connection, role_question)) => {
                ConnectionState::Up(Box::new(OpenConnection::new(connection, role_question)))
            }
            Err(why) => ConnectionState::Down(Some((Instant::now() + AVOID_TIME, why.clone()))),
        };
        true
    }

    /// Notes that a connection was established. Returns true if there was one before: the server may have lost writes
    /// since.
    pub(super) fn note_connected(&mut self) -> bool {
        std::mem::replace(&mut self.was_up, true)
    }

    /// Closes the connection. Returns the requests without a response. With a reason, the server is also avoided for a
    /// moment.
    pub(super) fn disconnect(&mut self, why: Option<&RedisError>) -> Vec<FailedRequest> {
        let avoided = why.map(|why| (Instant::now() + AVOID_TIME, why.clone()));
        let ConnectionState::Up(open) = std::mem::replace(&mut self.state, ConnectionState::Down(avoided)) else {
            return Vec::new();
        };
        open.awaited.into_iter().filter_map(|awaited| awaited.purpose.into_failed()).collect()
    }

    /// Sends a request. Only after [`RedisServer::ensure_connected`] has returned [`Readiness::Ready`].
    pub(super) fn ask(&mut self, request: PendingRequest, scripts: &Scripts) {
        let ConnectionState::Up(open) = &mut self.state else { unreachable!("it is ready") };
        let moving = request.redirected_to.is_some();
        let mut replies = 0;
        for question in &request.questions {
            if moving {
                open.connection.put(&redis::cmd("ASKING"));
            }
            open.connection.put(&question.to_command(scripts));
            replies += 1 + usize::from(moving);
        }
        open.awaits(Purpose::Request(request), replies, moving);
    }

    /// Requests the topology, unless the new connection will report it anyway.
    pub(super) fn ask_role(&mut self) {
        let ConnectionState::Up(open) = &mut self.state else { return };
        open.connection.put(&open.role_question.to_command());
        open.awaits(Purpose::Role, 1, false);
    }

    /// Loads all scripts, before any further request.
    pub(super) fn load(&mut self, scripts: &Scripts) {
        let ConnectionState::Up(open) = &mut self.state else { return };
        scripts.load_commands().for_each(|load| open.connection.put(&load));
        open.awaits(Purpose::Ignored, scripts.count(), false);
    }

    /// Writes the commands that were added.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let ConnectionState::Up(open) = &mut self.state { open.connection.flush() } else { Ok(()) }
    }

    /// Returns the responses that have arrived. After an error the connection is lost, but earlier responses are valid.
    pub(super) fn receive(&mut self, address: &ServerAddress) -> (Vec<ServerReply>, io::Result<()>) {
        let mut arrived = Vec::new();
        let ConnectionState::Up(open) = &mut self.state else { return (arrived, Ok(())) };
        let pumped = open.connection.pump();
        let taken = open.take(address, &mut arrived);
        (arrived, taken.and(pumped))
    }

    /// Drops the requests whose deadline has passed, or whose connection was replaced, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<FailedRequest> {
        let mut failed = std::mem::take(&mut self.given_up);
        failed.extend(self.expire_awaited(now));
        failed
    }

    fn expire_awaited(&mut self, now: Instant) -> Vec<FailedRequest> {
        let ConnectionState::Up(open) = &mut self.state else { return Vec::new() };
        let Some(oldest) = open.awaited.front() else { return Vec::new() };
        // Silence counts from the last reply, or from a later request.
        let silent = now.saturating_duration_since(oldest.sent.max(open.last_reply_at));
        let over = |awaited: &&mut SentBatch| awaited.deadline().is_some_and(|deadline| deadline <= now);
        let over = open.awaited.iter_mut().filter(over);
        let failed: Vec<FailedRequest> = over
            .filter_map(|awaited| std::mem::replace(&mut awaited.purpose, Purpose::Ignored).into_failed())
            .collect();
        if !failed.is_empty() && silent >= SILENCE_MIN {
            open.silent_since.get_or_insert(now);
            open.avoided_until = Some(now + AVOID_TIME);
        }
        failed
    }

    /// Returns the earliest deadline of a request.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ConnectionState::Up(open) = &self.state else { return None };
        open.awaited.iter().filter_map(SentBatch::deadline).min()
    }

    /// Returns the events to poll for.
    pub(super) fn awaits(&self) -> Option<PollFd<'_>> {
        let ConnectionState::Up(open) = &self.state else { return None };
        let flags = open.connection.awaits();
        let waits = !open.awaited.is_empty() || flags != PollFlags::IN;
        waits.then(|| PollFd::new(&open.connection, flags))
    }
}

impl OpenConnection {
    fn new(connection: RedisConnection, role_question: RoleQuestion) -> OpenConnection {
        let awaited = VecDeque::new();
        OpenConnection {
            connection,
            role_question,
            awaited,
            last_reply_at: Instant::now(),
            silent_since: None,
            avoided_until: None,
        }
    }

    fn is_avoided(&self) -> bool {
        self.silent_since.is_some() || self.avoided_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_lost(&self) -> bool {
        self.silent_since.is_some_and(|since| since.elapsed() >= SILENT_MAX)
    }

    fn awaits(&mut self, purpose: Purpose, replies: usize, moving: bool) {
        self.awaited.push_back(SentBatch { purpose, sent: Instant::now(), replies, moving, values: Vec::new() });
    }

    /// Takes the replies that have arrived.
    fn take(&mut self, address: &ServerAddress, arrived: &mut Vec<ServerReply>) -> io::Result<()> {
        while let Some(value) = self.connection.next()? {
            (self.last_reply_at, self.silent_since) = (Instant::now(), None);
            let unasked = || io::Error::new(io::ErrorKind::InvalidData, "the server sent a response without a request");
            let awaited = self.awaited.front_mut().ok_or_else(unasked)?;
            awaited.values.push(value);
            if awaited.values.len() == awaited.replies {
                arrived.extend(
                    self.awaited.pop_front().and_then(|awaited| awaited.into_reply(address, &self.role_question)),
                );
            }
        }
        Ok(())
    }
}

impl SentBatch {
    fn deadline(&self) -> Option<Instant> {
        match &self.purpose {
            Purpose::Request(request) => Some(request.deadline),
            Purpose::Role => Some(self.sent + SILENT_MAX),
            Purpose::Ignored => None,
        }
    }

    fn into_reply(self, address: &ServerAddress, role_question: &RoleQuestion) -> Option<ServerReply> {
        let mut values = self.values;
        if self.moving {
            values = values.into_iter().skip(1).step_by(2).collect();
        }
        match self.purpose {
            Purpose::Request(request) => Some(ServerReply::Answer(request, values)),
            Purpose::Role => {
                let value = values.into_iter().next().unwrap_or(Value::Nil);
                Some(ServerReply::Role(role_question.role_of(address, &value)))
            }
            Purpose::Ignored => None,
        }
    }
}

impl Purpose {
    fn into_failed(self) -> Option<FailedRequest> {
        match self {
            Purpose::Request(request) => Some(FailedRequest::Pending(request)),
            Purpose::Role => Some(FailedRequest::Role),
            Purpose::Ignored => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::super::request::{RequestId, RequestRoute};
    use super::super::settings::Login;
    use super::*;

    #[test]
    fn requests_of_a_replaced_connection_fail() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.local_addr().unwrap();
        let address = ServerAddress { host: "127.0.0.1".to_owned(), port: socket.port() };
        let login = || Login { username: None, password: None, database: 0, sentinel: None, tls: None };
        let (now, scripts) = (Instant::now(), Arc::new(Scripts::new(&[])));
        let long = now + Duration::from_secs(60);
        let connection = RedisConnection::open(&address, &[socket], &login(), long).unwrap();
        let mut open = OpenConnection::new(connection, RoleQuestion::Role);
        // A shorter request has expired a second ago.
        open.silent_since = now.checked_sub(SILENT_MAX);
        let request = PendingRequest {
            id: RequestId(7),
            route: RequestRoute::Slot(0),
            questions: Vec::new(),
            deadline: long,
            attempts: 0,
            not_before: None,
            redirected_to: None,
        };
        open.awaits(Purpose::Request(request), 1, false);
        let mut server = RedisServer { state: ConnectionState::Up(Box::new(open)), ..RedisServer::default() };
        let mut dialer = Dialer::new(login(), scripts).unwrap();
        assert!(server.ensure_connected(&address, &mut dialer).is_err(), "a new connection takes its time");
        assert!(server.is_dialing());
        let failed = server.expire(now);
        assert!(matches!(&failed[..], [FailedRequest::Pending(request)] if request.id == RequestId(7)));
        assert!(server.expire(now).is_empty());
    }
}
