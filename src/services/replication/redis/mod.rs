//! Redis, or a Redis Cluster: who is asked what, and what may have become of a question that got no answer.
//!
//! A [`Redis`] belongs to one thread. It finds out by itself whether it speaks to a cluster, keeps one connection to each
//! master that it needs, and waits for all of them at once: each question has an end of its own, and no server, name server
//! or handshake that stands still makes another one's answers late. Connections are made in the background. After a
//! failover it asks for the new map of slots and goes on. A master that does not answer costs time once, then nothing until
//! it speaks: what is for it fails at once.
//!
//! This is the one room that names the `redis` crate. What the scripts mean is said in [`carom_model::replication`].

mod allow;
mod ask;
mod connection;
mod dial;
mod script;
mod server;
mod topology;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use rustix::event::{PollFd, PollFlags};

use self::dial::{Dialed, Dialer, Login};
use self::script::Script;
use self::server::{Approach, Said, Server, Unsaid};
use self::topology::{Search, Told, Topology};
use carom_model::replication::Partition;
use carom_tls::trust;

pub use self::allow::Allowance;
pub use self::ask::{Answer, Beat, Change, Changed, Heard, Recent, Scan};

/// Times that a question is put within its time, because another server has what it is about.
const ROUNDS: usize = 4;

/// How long to wait before a question is put anew: a cluster that moves a slot takes some milliseconds.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(5);

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// Name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How to reach Redis. Its `Debug` form holds no password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Servers to begin with: one, or some of a cluster.
    pub seeds: Vec<Address>,
    /// The user; none for the default one.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The database of a single server.
    pub database: i64,
    /// Whether to speak TLS.
    pub tls: bool,
    /// Whom to trust then, as a PEM file; what the system trusts if none is named.
    pub ca_file: Option<PathBuf>,
    /// What all keys begin with.
    pub prefix: String,
    /// About how many changes the streams keep, all together.
    pub stream_len: u64,
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.seeds.iter().map(Address::to_string).collect();
        write!(f, "RedisSettings({}, prefix {})", servers.join(", "), self.prefix)
    }
}

/// Why a question got no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The server could not be reached or did not answer in time. Helps once it is back.
    Away {
        /// What happened.
        what: String,
        /// Whether the question was sent, so that it may have been carried out or still be.
        asked: bool,
    },
    /// The server is there and does not do it: wrong password, no memory, something else under the key. Somebody must do
    /// something about it.
    Refused(String),
}

impl Trouble {
    fn away(address: &Address, error: &io::Error, asked: bool) -> Trouble {
        Trouble::Away { what: format!("{address}: {error}"), asked }
    }

    /// Whether what was asked for may have been done all the same.
    pub fn may_be_done(&self) -> bool {
        matches!(self, Trouble::Away { asked: true, .. })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Away { what, .. } | Trouble::Refused(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Trouble {}

/// What a question is about, which decides which server is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// The counters, leases and nodes.
    Space,
    /// Links and stream of a partition.
    Partition(Partition),
    /// A server itself.
    Server(Address),
}

/// A command.
enum Question {
    Plain(Cmd),
    Script(Script, Vec<String>, Vec<Vec<u8>>),
}

impl Question {
    /// As it is sent. Only for a connection that has loaded all scripts.
    fn to_command(&self) -> Cmd {
        match self {
            Question::Plain(command) => command.clone(),
            Question::Script(script, keys, arguments) => script.call(keys, arguments),
        }
    }
}

/// Stands for a question until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// Commands that belong together: one server gets them in one piece and over one connection, and all of them again where
/// that was the wrong one.
struct Asked {
    ticket: Ticket,
    place: Place,
    questions: Vec<Question>,
    deadline: Instant,
    /// How often it has been put in vain.
    round: usize,
    /// Not to be put before.
    not_before: Option<Instant>,
    /// Whom to ask instead of whoever the map of slots names: its slot is on the move.
    at: Option<Address>,
}

/// What became of a question that was put to a server.
enum Reply {
    Is(Vec<Value>),
    /// The slot is moving, and what it is about may be at that server already.
    At(Address),
    /// The server knows that another one has it. It was not carried out.
    Moved,
    /// The server is not, or not now, one that has anything. It was not carried out.
    Unfit,
    /// Nobody has all of what it is about at the moment. It was not carried out.
    Later,
    /// The server has forgotten the scripts.
    Unloaded,
    Failed(Trouble),
}

/// Redis as one thread speaks to it.
pub struct Redis {
    settings: Arc<RedisSettings>,
    dialer: Dialer,
    topology: Option<Topology>,
    search: Option<Search>,
    /// When the last search began.
    searched: Option<Instant>,
    servers: HashMap<Address, Server>,
    /// Questions that wait for a server, or for somebody to say which.
    open: Vec<Asked>,
    answers: Vec<(Ticket, Result<Vec<Value>, Trouble>)>,
    tickets: u64,
    /// Whether the master of the counters had replicas when it was last asked.
    has_replicas: bool,
}

impl Redis {
    /// Makes ready to speak; connects with the first question.
    ///
    /// # Errors
    /// When the file of certificates cannot be used, or the operating system refuses something.
    pub fn new(settings: Arc<RedisSettings>) -> Result<Redis, String> {
        let login = Login {
            username: settings.username.clone(),
            password: settings.password.clone(),
            database: settings.database,
            tls: if settings.tls { Some(trust::client(settings.ca_file.as_deref())?) } else { None },
        };
        Ok(Redis {
            dialer: Dialer::new(login).map_err(|error| error.to_string())?,
            settings,
            topology: None,
            search: None,
            searched: None,
            servers: HashMap::new(),
            open: Vec::new(),
            answers: Vec::new(),
            tickets: 0,
            has_replicas: false,
        })
    }

    /// Goes on with everything that was put, until some of it is answered or that instant has come.
    pub fn turn(&mut self, until: Instant) -> Vec<(Ticket, Answer)> {
        loop {
            self.step();
            if !self.answers.is_empty() || Instant::now() >= until {
                let answers = std::mem::take(&mut self.answers).into_iter();
                return answers.map(|(ticket, answer)| (ticket, Answer(answer))).collect();
            }
            self.wait(until);
        }
    }

    /// Begins to ask. There is an answer when that instant has come, or before.
    fn put(&mut self, place: Place, questions: Vec<Question>, deadline: Instant) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.open.push(Asked { ticket, place, questions, deadline, round: 0, not_before: None, at: None });
        ticket
    }

    /// Asks all of this at once and waits so long at most. The answers stand in the order of the questions.
    fn ask_all(&mut self, questions: Vec<(Place, Question)>, within: Duration) -> Vec<Result<Value, Trouble>> {
        let together = questions.into_iter().map(|(place, question)| (place, vec![question])).collect();
        let answers = self.ask_together(together, within).into_iter();
        answers.map(|answer| Ok(answer?.pop().unwrap_or(Value::Nil))).collect()
    }

    /// The same with commands that belong together.
    fn ask_together(
        &mut self,
        questions: Vec<(Place, Vec<Question>)>,
        within: Duration,
    ) -> Vec<Result<Vec<Value>, Trouble>> {
        let deadline = Instant::now() + within;
        let tickets: Vec<Ticket> =
            questions.into_iter().map(|(place, together)| self.put(place, together, deadline)).collect();
        self.await_all(&tickets, deadline)
    }

    /// Waits for the answers to all of these, which end then at the latest. Answers to others are kept for
    /// [`Redis::turn`].
    fn await_all(&mut self, tickets: &[Ticket], deadline: Instant) -> Vec<Result<Vec<Value>, Trouble>> {
        let (mut ours, mut others) = (HashMap::new(), Vec::new());
        while ours.len() < tickets.len() {
            for (ticket, Answer(answer)) in self.turn(deadline) {
                if tickets.binary_search(&ticket).is_ok() {
                    ours.insert(ticket, answer);
                } else {
                    others.push((ticket, answer));
                }
            }
        }
        self.answers.extend(others);
        tickets.iter().map(|ticket| ours.remove(ticket).expect("each is answered")).collect()
    }

    /// Does what can be done now.
    fn step(&mut self) {
        self.hear();
        self.dispatch();
        self.search_on();
        self.write();
        self.expire(Instant::now());
    }

    /// Waits until somebody says something or time has come for something else, at most until then.
    fn wait(&self, until: Instant) {
        let open = self.open.iter().flat_map(|asked| [Some(asked.deadline), asked.not_before]);
        let servers = self.servers.values().map(Server::deadline);
        let search = self.search.as_ref().map(Search::next_at);
        let until = open.chain(servers).chain(search).flatten().fold(until, Instant::min);
        let mut polled: Vec<PollFd<'_>> = self.servers.values().filter_map(Server::awaits).collect();
        if self.servers.values().any(Server::is_dialing) {
            polled.push(PollFd::new(self.dialer.bell(), PollFlags::IN));
        }
        if connection::wait(&mut polled, until.saturating_duration_since(Instant::now())).is_err() {
            // No memory for it: what is there is looked at all the same.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes what has come.
    fn hear(&mut self) {
        if self.servers.values().any(Server::is_dialing) {
            self.dialer.take().into_iter().for_each(|dialed| self.dialed(dialed));
        }
        let up: Vec<Address> =
            self.servers.iter().filter(|(_, server)| server.is_up()).map(|(address, _)| address.clone()).collect();
        for address in up {
            let Some(server) = self.servers.get_mut(&address) else { continue };
            let (said, result) = server.listen(&address);
            for said in said {
                match said {
                    Said::Answer(asked, values) => self.settle(&address, asked, values),
                    Said::Map(told) => self.told(&address, told),
                }
            }
            if let Err(error) = result {
                self.broken(&address, &error);
            }
        }
    }

    fn dialed(&mut self, dialed: Dialed) {
        let Dialed { address, attempt, result } = dialed;
        let Some(server) = self.servers.get_mut(&address) else { return };
        match result {
            Ok((connection, told)) => {
                if server.dialed(attempt, Ok((connection, matches!(told, Told::Cluster(_))))) {
                    self.told(&address, Ok(told));
                }
            }
            Err(trouble) => {
                if server.dialed(attempt, Err(&trouble)) {
                    self.told(&address, Err(trouble));
                    self.search_sometimes();
                }
            }
        }
    }

    /// A connection has failed.
    fn broken(&mut self, address: &Address, error: &io::Error) {
        self.lose(address, None, &Trouble::away(address, error, true));
        // In a cluster another may take its place.
        self.search_sometimes();
    }

    /// Gives up a connection: whatever was sent there gets no answer. With a rest the server is left alone for a moment.
    fn lose(&mut self, address: &Address, rest: Option<&Trouble>, trouble: &Trouble) {
        let Some(server) = self.servers.get_mut(address) else { return };
        for unsaid in server.lose(rest) {
            self.unsaid(address, unsaid, trouble);
        }
    }

    fn unsaid(&mut self, address: &Address, unsaid: Unsaid, trouble: &Trouble) {
        match unsaid {
            Unsaid::Asked(asked) => self.answers.push((asked.ticket, Err(trouble.clone()))),
            Unsaid::Map => self.told(address, Err(trouble.clone())),
        }
    }

    /// Decides what the replies to a question mean.
    fn settle(&mut self, address: &Address, mut asked: Asked, values: Vec<Value>) {
        let was_moving = asked.at.take().is_some();
        match topology::sort(address, values) {
            Reply::Is(values) => self.answers.push((asked.ticket, Ok(values))),
            Reply::Failed(trouble) => self.answers.push((asked.ticket, Err(trouble))),
            // Two that send us to each other are asked again later.
            Reply::At(to) if !was_moving => {
                asked.at = Some(to);
                self.open.push(asked);
            }
            Reply::At(_) | Reply::Later => self.again(asked, BETWEEN_ROUNDS),
            Reply::Moved => {
                self.topology = None;
                self.search(Some(address), None);
                self.again(asked, BETWEEN_ROUNDS);
            }
            Reply::Unfit => {
                self.topology = None;
                self.search(None, Some(address));
                self.again(asked, BETWEEN_ROUNDS);
            }
            Reply::Unloaded => {
                if let Some(server) = self.servers.get_mut(address) {
                    server.load();
                }
                self.again(asked, Duration::ZERO);
            }
        }
    }

    /// Puts a question once more, after a while; but not for ever.
    fn again(&mut self, mut asked: Asked, wait: Duration) {
        asked.round += 1;
        if asked.round == ROUNDS {
            let what = "the Redis Cluster is changing, and no server serves the slot".to_owned();
            self.answers.push((asked.ticket, Err(Trouble::Away { what, asked: false })));
        } else {
            asked.not_before = Some(Instant::now() + wait);
            self.open.push(asked);
        }
    }

    /// The server that a question is for, as far as that is known.
    fn server_of(&self, asked: &Asked) -> Option<Address> {
        let named = || match &asked.place {
            Place::Server(address) => Some(address),
            place => self.topology.as_ref()?.server_of(place),
        };
        asked.at.as_ref().or_else(named).cloned()
    }

    /// Gives the servers what is for them.
    fn dispatch(&mut self) {
        let now = Instant::now();
        for mut asked in std::mem::take(&mut self.open) {
            if asked.not_before.is_some_and(|at| now < at) {
                self.open.push(asked);
                continue;
            }
            asked.not_before = None;
            match self.server_of(&asked) {
                Some(address) => self.give(&address, asked),
                // A slot that nobody has.
                None if self.topology.is_some() => {
                    self.search(None, None);
                    self.again(asked, BETWEEN_ROUNDS);
                }
                None => {
                    self.search(None, None);
                    if self.search.as_ref().is_some_and(|search| search.is_slow) {
                        self.answers.push((asked.ticket, Err(nobody_knows())));
                    } else {
                        self.open.push(asked);
                    }
                }
            }
        }
    }

    fn give(&mut self, address: &Address, asked: Asked) {
        let server = self.servers.entry(address.clone()).or_default();
        match server.approach(address, &mut self.dialer) {
            Ok(Approach::Ready) => server.ask(asked),
            Ok(Approach::Soon) => self.open.push(asked),
            Err(trouble) => {
                self.answers.push((asked.ticket, Err(trouble)));
                self.search_sometimes();
            }
        }
    }

    /// Nobody says who has what: whatever waits for that fails.
    fn fail_all_without_place(&mut self, trouble: &Trouble) {
        for asked in std::mem::take(&mut self.open) {
            if self.server_of(&asked).is_some() {
                self.open.push(asked);
            } else {
                self.answers.push((asked.ticket, Err(trouble.clone())));
            }
        }
    }

    fn write(&mut self) {
        let failed: Vec<(Address, io::Error)> = self
            .servers
            .iter_mut()
            .filter_map(|(address, server)| Some((address.clone(), server.flush().err()?)))
            .collect();
        for (address, error) in failed {
            self.broken(&address, &error);
        }
    }

    /// Answers what nobody has answered in time.
    fn expire(&mut self, now: Instant) {
        for asked in std::mem::take(&mut self.open) {
            if now < asked.deadline {
                self.open.push(asked);
                continue;
            }
            let trouble = match self.server_of(&asked) {
                Some(address) => {
                    if let Some(server) = self.servers.get_mut(&address) {
                        server.give_up_waiting();
                    }
                    Trouble::away(&address, &connection::late(), false)
                }
                None => {
                    self.search.iter_mut().for_each(|search| search.is_slow = true);
                    nobody_knows()
                }
            };
            self.answers.push((asked.ticket, Err(trouble)));
        }
        let servers = self.servers.iter_mut();
        let unsaid: Vec<(Address, Unsaid)> = servers
            .flat_map(|(address, server)| server.expire(now).into_iter().map(|unsaid| (address.clone(), unsaid)))
            .collect();
        for (address, unsaid) in unsaid {
            let trouble = Trouble::away(&address, &connection::late(), true);
            self.unsaid(&address, unsaid, &trouble);
            self.search_sometimes();
        }
    }
}

fn nobody_knows() -> Trouble {
    Trouble::Away { what: "no Redis server sent the layout of the cluster in time".to_owned(), asked: false }
}
