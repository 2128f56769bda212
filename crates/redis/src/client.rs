//! The client: it routes requests to servers, and waits for all of them at once.

mod search;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use rustix::event::{PollFd, PollFlags};

use super::address::ServerAddress;
use super::error::RedisError;
use super::reply::{self, ReplyOutcome};
use super::request::{PendingRequest, RedisCommand, Replies, RequestId, RequestRoute};
use super::scripts::Scripts;
use super::server::connection;
use super::server::dial::{Dialed, Dialer};
use super::server::{FailedRequest, Readiness, RedisServer, ServerReply};
use super::settings::{ClientSettings, Login};
use super::topology::role::ServerRole;
use super::topology::{RoleQuestion, Topology, TopologySearch};
use carom_tls::trust;

/// Maximum number of attempts of a request within its deadline, if other servers have its slot.
const ATTEMPTS_MAX: usize = 4;

/// Pause before a request is retried: a cluster that moves a slot takes some milliseconds.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A client for Redis, a Redis Cluster, or a master that sentinels watch. It belongs to one thread.
pub struct Client {
    settings: ClientSettings,
    scripts: Arc<Scripts>,
    dialer: Dialer,
    /// The sentinels, in the order in which they are asked; empty for other topologies.
    sentinels: Vec<ServerAddress>,
    topology: Option<Topology>,
    /// Servers that have redirected requests, or cannot serve, since the topology was found. Requests for their slots
    /// wait for the next topology; all others continue.
    outdated: Vec<ServerAddress>,
    search: Option<TopologySearch>,
    /// The masters that were found last; empty before the first search has succeeded.
    masters: Vec<ServerAddress>,
    /// The instant at which a connection was last lost or established again, or a master replaced.
    last_disturbance: Option<Instant>,
    /// The instant at which the last topology search began.
    last_search: Option<Instant>,
    servers: HashMap<ServerAddress, RedisServer>,
    /// Requests that wait for a server, or for the topology.
    open: Vec<PendingRequest>,
    answers: Vec<(RequestId, Result<Vec<Value>, RedisError>)>,
    /// The number of the last request.
    last_id: u64,
}

impl Client {
    /// Creates a client, which connects with its first request.
    ///
    /// # Errors
    /// A description of an unusable file of certificates, or of an error of the operating system.
    pub fn new(settings: ClientSettings, scripts: &'static [&'static str]) -> Result<Client, String> {
        let scripts = Arc::new(Scripts::new(scripts));
        let login = Login {
            username: settings.username.clone(),
            password: settings.password.clone(),
            database: settings.database,
            sentinel: settings.sentinel.clone(),
            tls: if settings.tls { Some(trust::client(settings.ca_file.as_deref())?) } else { None },
        };
        Ok(Client {
            dialer: Dialer::new(login, Arc::clone(&scripts)).map_err(|error| error.to_string())?,
            sentinels: if settings.sentinel.is_some() { settings.seeds.clone() } else { Vec::new() },
            settings,
            scripts,
            topology: None,
            outdated: Vec::new(),
            search: None,
            masters: Vec::new(),
            last_disturbance: None,
            last_search: None,
            servers: HashMap::new(),
            open: Vec::new(),
            answers: Vec::new(),
            last_id: 0,
        })
    }

    /// Drives all requests until a response arrives or the instant has come. Returns the responses.
    pub fn turn(&mut self, until: Instant) -> Vec<(RequestId, Replies)> {
        loop {
            self.step();
            if !self.answers.is_empty() || Instant::now() >= until {
                let answers = std::mem::take(&mut self.answers).into_iter();
                return answers.collect();
            }
            self.wait(until);
        }
    }

    /// Begins a request. Its response arrives at `deadline` at the latest.
    pub fn put(&mut self, route: RequestRoute, questions: Vec<RedisCommand>, deadline: Instant) -> RequestId {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        self.open.push(PendingRequest {
            id,
            route,
            questions,
            deadline,
            attempts: 0,
            not_before: None,
            redirected_to: None,
        });
        id
    }

    /// Sends these requests at once and waits at most `within`. Returns the responses in the order of the requests.
    pub fn ask_all(
        &mut self,
        questions: Vec<(RequestRoute, RedisCommand)>,
        within: Duration,
    ) -> Vec<Result<Value, RedisError>> {
        let together = questions.into_iter().map(|(route, question)| (route, vec![question])).collect();
        let answers = self.ask_groups(together, within).into_iter();
        answers.map(|answer| Ok(answer?.pop().unwrap_or(Value::Nil))).collect()
    }

    /// Sends groups of commands that belong together, like [`Client::ask_all`].
    pub fn ask_groups(&mut self, questions: Vec<(RequestRoute, Vec<RedisCommand>)>, within: Duration) -> Vec<Replies> {
        let deadline = Instant::now() + within;
        let ids: Vec<RequestId> =
            questions.into_iter().map(|(route, together)| self.put(route, together, deadline)).collect();
        self.await_all(&ids, deadline)
    }

    /// Waits for the responses to these requests, which arrive at `deadline` at the latest. Keeps responses to other
    /// requests for [`Client::turn`].
    pub fn await_all(&mut self, ids: &[RequestId], deadline: Instant) -> Vec<Replies> {
        assert!(ids.is_sorted(), "a response would be taken for that to an earlier request, and waited for again");
        let (mut ours, mut others) = (HashMap::new(), Vec::new());
        while ours.len() < ids.len() {
            for (id, answer) in self.turn(deadline) {
                if ids.binary_search(&id).is_ok() {
                    ours.insert(id, answer);
                } else {
                    others.push((id, answer));
                }
            }
        }
        self.answers.extend(others);
        ids.iter().map(|id| ours.remove(id).expect("each is answered")).collect()
    }

    /// Does all work that is possible without waiting.
    fn step(&mut self) {
        self.receive();
        self.check_master();
        self.dispatch();
        self.continue_search();
        self.flush();
        self.expire(Instant::now());
    }

    /// Waits until a server sends something, a deadline passes, or `until` has come.
    fn wait(&self, until: Instant) {
        let open = self.open.iter().flat_map(|request| [Some(request.deadline), request.not_before]);
        let servers = self.servers.values().map(RedisServer::deadline);
        let search = self.search.as_ref().map(TopologySearch::next_at);
        let until = open.chain(servers).chain(search).flatten().fold(until, Instant::min);
        let mut polled: Vec<PollFd<'_>> = self.servers.values().filter_map(RedisServer::awaits).collect();
        if self.servers.values().any(RedisServer::is_dialing) {
            polled.push(PollFd::new(self.dialer.bell(), PollFlags::IN));
        }
        if connection::wait(&mut polled, until.saturating_duration_since(Instant::now())).is_err() {
            // On a failure, such as lack of memory, the caller still checks all connections.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Processes all results and replies that have arrived.
    fn receive(&mut self) {
        if self.servers.values().any(RedisServer::is_dialing) {
            self.dialer.take().into_iter().for_each(|dialed| self.dialed(dialed));
        }
        let up: Vec<ServerAddress> =
            self.servers.iter().filter(|(_, server)| server.is_up()).map(|(address, _)| address.clone()).collect();
        for address in up {
            let Some(server) = self.servers.get_mut(&address) else { continue };
            let (arrived, result) = server.receive(&address);
            for reply in arrived {
                match reply {
                    ServerReply::Answer(request, values) => self.handle_reply(&address, request, values),
                    ServerReply::Role(role) => self.take_role(&address, role),
                }
            }
            if let Err(error) = result {
                self.handle_broken(&address, &error);
            }
        }
    }

    fn dialed(&mut self, dialed: Dialed) {
        let Dialed { address, attempt, result } = dialed;
        let Some(server) = self.servers.get_mut(&address) else { return };
        match result {
            Ok((connection, role)) => {
                let map = match &role {
                    ServerRole::Cluster(_) => RoleQuestion::Slots,
                    ServerRole::Named(_) => RoleQuestion::Master(self.settings.service().to_owned()),
                    ServerRole::Alone | ServerRole::Replica => RoleQuestion::Role,
                };
                if server.dialed(attempt, Ok((connection, map))) {
                    // The server may have restarted, and lost writes, long after its connection was lost. If its
                    // machine failed, no packet has closed the connection.
                    if server.note_connected() && !self.sentinels.contains(&address) {
                        self.last_disturbance = Some(Instant::now());
                    }
                    self.take_role(&address, Ok(role));
                }
            }
            Err(failure) => {
                if server.dialed(attempt, Err(&failure)) {
                    self.take_role(&address, Err(failure));
                    self.search_if_due();
                }
            }
        }
    }

    /// Handles a failed connection.
    fn handle_broken(&mut self, address: &ServerAddress, error: &io::Error) {
        if !self.sentinels.contains(address) {
            self.last_disturbance = Some(Instant::now());
        }
        self.disconnect(address, None, &RedisError::unavailable(address, error, true));
        // In a cluster, another server may take its place.
        self.search_if_due();
    }

    /// Closes a connection and fails its requests. With `avoid`, the server is avoided for a moment.
    fn disconnect(&mut self, address: &ServerAddress, avoid: Option<&RedisError>, failure: &RedisError) {
        let Some(server) = self.servers.get_mut(address) else { return };
        for request in server.disconnect(avoid) {
            self.fail_request(address, request, failure);
        }
    }

    fn fail_request(&mut self, address: &ServerAddress, request: FailedRequest, failure: &RedisError) {
        match request {
            FailedRequest::Pending(request) => self.answers.push((request.id, Err(failure.clone()))),
            FailedRequest::Role => self.take_role(address, Err(failure.clone())),
        }
    }

    /// Interprets the replies to a request.
    fn handle_reply(&mut self, address: &ServerAddress, mut request: PendingRequest, values: Vec<Value>) {
        let was_moving = request.redirected_to.take().is_some();
        match reply::interpret(address, values) {
            ReplyOutcome::Values(values) => self.answers.push((request.id, Ok(values))),
            ReplyOutcome::Failed(failure) => self.answers.push((request.id, Err(failure))),
            // Two servers that redirect to each other are asked again later.
            ReplyOutcome::AskAt(to) if !was_moving => {
                request.redirected_to = Some(to);
                self.open.push(request);
            }
            ReplyOutcome::AskAt(_) | ReplyOutcome::TryAgain => self.retry(request, RETRY_PAUSE),
            ReplyOutcome::Moved => {
                self.note_outdated(address);
                self.search(Some(address), None);
                self.retry(request, RETRY_PAUSE);
            }
            ReplyOutcome::CannotServe => {
                self.note_outdated(address);
                self.search(None, Some(address));
                self.retry(request, RETRY_PAUSE);
            }
            ReplyOutcome::NoScript => {
                if let Some(server) = self.servers.get_mut(address) {
                    server.load(&self.scripts);
                }
                self.retry(request, Duration::ZERO);
            }
        }
    }

    /// Retries a request after a pause, up to [`ATTEMPTS_MAX`] attempts.
    fn retry(&mut self, mut request: PendingRequest, wait: Duration) {
        assert!(request.attempts < ATTEMPTS_MAX, "the request would be retried until its deadline");
        request.attempts += 1;
        if request.attempts == ATTEMPTS_MAX {
            let what = if self.sentinels.is_empty() {
                "the Redis Cluster is changing, and no server serves the slot".to_owned()
            } else {
                format!("the master of {} is changing", self.settings.service())
            };
            self.answers.push((request.id, Err(RedisError::Unavailable { what, was_sent: false })));
        } else {
            request.not_before = Some(Instant::now() + wait);
            self.open.push(request);
        }
    }

    /// Returns the server for a request, if it is known.
    fn server_of(&self, request: &PendingRequest) -> Option<ServerAddress> {
        let named = || match &request.route {
            RequestRoute::Server(address) => Some(address),
            RequestRoute::Slot(slot) => {
                self.topology.as_ref()?.server_of(*slot).filter(|of| !self.outdated.contains(of))
            }
        };
        request.redirected_to.as_ref().or_else(named).cloned()
    }

    /// Hands requests to their servers.
    fn dispatch(&mut self) {
        let now = Instant::now();
        for mut request in std::mem::take(&mut self.open) {
            if request.not_before.is_some_and(|at| now < at) {
                self.open.push(request);
                continue;
            }
            request.not_before = None;
            match self.server_of(&request) {
                Some(address) => self.send(&address, request),
                // A slot without a server.
                None if self.topology.is_some() && self.outdated.is_empty() => {
                    self.search(None, None);
                    self.retry(request, RETRY_PAUSE);
                }
                None => {
                    self.search(None, None);
                    if self.search.as_ref().is_some_and(|search| search.is_slow) {
                        self.answers.push((request.id, Err(self.unknown_server())));
                    } else {
                        self.open.push(request);
                    }
                }
            }
        }
    }

    fn send(&mut self, address: &ServerAddress, request: PendingRequest) {
        let server = self.servers.entry(address.clone()).or_default();
        match server.ensure_connected(address, &mut self.dialer) {
            Ok(Readiness::Ready) => server.ask(request, &self.scripts),
            Ok(Readiness::Soon) => self.open.push(request),
            Err(failure) => {
                self.answers.push((request.id, Err(failure)));
                self.search_if_due();
            }
        }
    }

    /// Fails all requests without a known server, because no server returns the topology.
    fn fail_unroutable(&mut self, failure: &RedisError) {
        for request in std::mem::take(&mut self.open) {
            if self.server_of(&request).is_some() {
                self.open.push(request);
            } else {
                self.answers.push((request.id, Err(failure.clone())));
            }
        }
    }

    fn flush(&mut self) {
        let failed: Vec<(ServerAddress, io::Error)> = self
            .servers
            .iter_mut()
            .filter_map(|(address, server)| Some((address.clone(), server.flush().err()?)))
            .collect();
        for (address, error) in failed {
            self.handle_broken(&address, &error);
        }
    }

    /// Fails all requests whose deadline has passed.
    fn expire(&mut self, now: Instant) {
        for request in std::mem::take(&mut self.open) {
            if now < request.deadline {
                self.open.push(request);
                continue;
            }
            let failure = match self.server_of(&request) {
                Some(address) => {
                    if let Some(server) = self.servers.get_mut(&address) {
                        server.fail_fast();
                    }
                    RedisError::unavailable(&address, &connection::timed_out(), false)
                }
                None => {
                    self.search.iter_mut().for_each(|search| search.is_slow = true);
                    self.unknown_server()
                }
            };
            self.answers.push((request.id, Err(failure)));
        }
        let servers = self.servers.iter_mut();
        let failed: Vec<(ServerAddress, FailedRequest)> = servers
            .flat_map(|(address, server)| server.expire(now).into_iter().map(|request| (address.clone(), request)))
            .collect();
        for (address, request) in failed {
            let failure = RedisError::unavailable(&address, &connection::timed_out(), true);
            self.fail_request(&address, request, &failure);
            self.search_if_due();
        }
    }

    /// Returns the instant at which a connection was last lost or established again, or a master replaced; `None` if
    /// never. Since then, the servers may lack writes that they had acknowledged before.
    pub fn last_disturbance(&self) -> Option<Instant> {
        self.last_disturbance
    }

    /// True if one server has all keys, so that a command may name keys of several slots. False until the topology is
    /// known.
    pub fn has_single_server(&self) -> bool {
        matches!(self.topology, Some(Topology::Single(_)))
    }

    /// Returns the known servers, each with true if it is connected. Sentinels are not among them.
    pub fn servers(&self) -> Vec<(ServerAddress, bool)> {
        let servers = self.servers.iter().filter(|(address, _)| !self.is_sentinel(address));
        let mut servers: Vec<_> = servers.map(|(address, server)| (address.clone(), server.is_up())).collect();
        servers.sort();
        servers
    }

    /// Returns the masters that were found last, in order; none before the first request. Outside a cluster, there is one.
    pub fn masters(&self) -> &[ServerAddress] {
        &self.masters
    }

    fn unknown_server(&self) -> RedisError {
        let what = if self.sentinels.is_empty() {
            "no Redis server sent the layout of the cluster in time".to_owned()
        } else {
            format!("no sentinel named a master of {} in time", self.settings.service())
        };
        RedisError::Unavailable { what, was_sent: false }
    }
}

#[cfg(test)]
mod tests;
