//! Redis, or a Redis Cluster: who is asked what, and what may have become of a question that got no answer.
//!
//! A [`Redis`] belongs to one thread. It finds out by itself whether it speaks to a cluster, keeps one connection to each
//! master that it needs, sends what is for one master in one piece, to all masters before it reads from the first, and
//! never takes longer than it was told to. After a failover it asks for the new map of slots and goes on. A master that
//! does not answer costs time once, then nothing for a while: what is for it fails at once.
//!
//! This is the one room that names the `redis` crate. What the scripts mean is said in [`crate::fleet`].

mod ask;
mod connection;
mod script;
mod topology;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use self::connection::{Connection, Login};
use self::script::Script;
use self::topology::Topology;
use crate::fleet::Partition;

pub use self::ask::{Beat, Change, Changed, Heard, Recent, Scan};

/// How long a server that did not answer is left alone.
const REST: Duration = Duration::from_millis(250);

/// Times that a question is sent anew within its time, because another server has what it is about.
const ROUNDS: usize = 4;

/// How long to wait before a question is sent anew: a cluster that moves a slot takes some milliseconds.
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

/// What is asked.
enum Question {
    Plain(Cmd),
    Script(Script, Vec<String>, Vec<Vec<u8>>),
}

/// A server that is spoken to.
#[derive(Default)]
struct Server {
    connection: Option<Connection>,
    /// Left alone until then.
    rests_until: Option<Instant>,
}

/// Redis as one thread speaks to it.
pub struct Redis {
    settings: Arc<RedisSettings>,
    login: Login,
    topology: Option<Topology>,
    servers: HashMap<Address, Server>,
    /// Whether the master of the counters had replicas when it was last asked.
    has_replicas: bool,
}

/// What became of one question in one round.
enum Reply {
    Is(Value),
    /// Another server has it: this one, or whoever the new map of slots names. It was not carried out.
    Elsewhere(Option<Address>),
    /// The server has forgotten the scripts.
    Unloaded,
    Failed(Trouble),
}

impl Redis {
    /// Makes ready to speak; connects with the first question.
    ///
    /// # Errors
    /// When the file of certificates cannot be used.
    pub fn new(settings: Arc<RedisSettings>) -> Result<Redis, String> {
        let login = Login {
            username: settings.username.clone(),
            password: settings.password.clone(),
            database: settings.database,
            tls: if settings.tls { Some(topology::tls(settings.ca_file.as_deref())?) } else { None },
        };
        Ok(Redis { settings, login, topology: None, servers: HashMap::new(), has_replicas: false })
    }

    /// Asks all of this at once and waits so long at most. The answers stand in the order of the questions.
    fn ask_all(&mut self, questions: &[(Place, Question)], within: Duration) -> Vec<Result<Value, Trouble>> {
        let deadline = Instant::now() + within;
        let mut answers: Vec<Option<Result<Value, Trouble>>> = questions.iter().map(|_| None).collect();
        // Whom to ask instead of whoever the map of slots names.
        let mut elsewhere: HashMap<usize, Address> = HashMap::new();
        for round in 0..ROUNDS {
            let open: Vec<usize> = (0..questions.len()).filter(|&at| answers[at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            if round > 0 {
                std::thread::sleep(BETWEEN_ROUNDS.min(deadline.saturating_duration_since(Instant::now())));
            }
            let last = round + 1 == ROUNDS;
            for (at, reply) in self.round(questions, &open, &elsewhere, deadline) {
                match reply {
                    Reply::Is(value) => answers[at] = Some(Ok(value)),
                    Reply::Failed(trouble) => answers[at] = Some(Err(trouble)),
                    Reply::Elsewhere(address) if !last && Instant::now() < deadline => match address {
                        Some(address) => _ = elsewhere.insert(at, address),
                        None => {
                            elsewhere.remove(&at);
                            self.topology = None;
                        }
                    },
                    Reply::Unloaded if !last => {}
                    Reply::Elsewhere(_) | Reply::Unloaded => {
                        let what = "the cluster is changing, and nobody has the slot".to_owned();
                        answers[at] = Some(Err(Trouble::Away { what, asked: false }));
                    }
                }
            }
        }
        answers.into_iter().map(|answer| answer.expect("the last round leaves nothing open")).collect()
    }

    /// Sends what is open to whom it is for, and reads the replies.
    fn round(
        &mut self,
        questions: &[(Place, Question)],
        open: &[usize],
        elsewhere: &HashMap<usize, Address>,
        deadline: Instant,
    ) -> Vec<(usize, Reply)> {
        if let Err(trouble) = self.find_out(deadline) {
            return open.iter().map(|&at| (at, Reply::Failed(trouble.clone()))).collect();
        }
        let mut replies = Vec::with_capacity(open.len());
        let mut for_server: HashMap<Address, Vec<usize>> = HashMap::new();
        for &at in open {
            let named = self.topology.as_ref().and_then(|topology| topology.server_of(&questions[at].0));
            match elsewhere.get(&at).or(named.as_ref()) {
                Some(address) => for_server.entry(address.clone()).or_default().push(at),
                None => replies.push((at, Reply::Elsewhere(None))),
            }
        }
        // A question that was sent to where a slot is moving says so first.
        let sent: Vec<_> = for_server
            .into_iter()
            .map(|(address, which)| {
                let sent = self.send(&address, questions, &which, elsewhere, deadline);
                (address, which, sent)
            })
            .collect();
        for (address, which, sent) in sent {
            match sent {
                Ok(()) => self.receive(&address, &which, elsewhere, deadline, &mut replies),
                Err(trouble) => {
                    // Nobody there: in a cluster another may have taken its place by now.
                    if !trouble.may_be_done() {
                        self.topology = None;
                    }
                    replies.extend(which.into_iter().map(|at| (at, Reply::Failed(trouble.clone()))));
                }
            }
        }
        replies
    }

    fn send(
        &mut self,
        address: &Address,
        questions: &[(Place, Question)],
        which: &[usize],
        elsewhere: &HashMap<usize, Address>,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        let server = self.servers.entry(address.clone()).or_default();
        let connection = server.connect(address, &self.login, deadline)?;
        let mut packed = Vec::new();
        for &at in which {
            if elsewhere.contains_key(&at) {
                redis::cmd("ASKING").write_packed_command(&mut packed);
            }
            match &questions[at].1 {
                Question::Plain(command) => command.write_packed_command(&mut packed),
                Question::Script(script, keys, arguments) => {
                    script.call(keys, arguments).write_packed_command(&mut packed);
                }
            }
        }
        connection.send(&packed, deadline).map_err(|error| {
            server.fail();
            Trouble::away(address, &error, true)
        })
    }

    fn receive(
        &mut self,
        address: &Address,
        which: &[usize],
        elsewhere: &HashMap<usize, Address>,
        deadline: Instant,
        replies: &mut Vec<(usize, Reply)>,
    ) {
        let server = self.servers.get_mut(address).expect("it was just spoken to");
        let mut failed = None;
        for &at in which {
            let reply =
                failed.clone().map_or_else(|| server.receive(address, elsewhere.contains_key(&at), deadline), Err);
            replies.push((
                at,
                match reply {
                    Ok(value) => topology::sort(address, value),
                    Err(trouble) => {
                        failed = Some(trouble.clone());
                        Reply::Failed(trouble)
                    }
                },
            ));
        }
        if failed.is_some() {
            server.fail();
            self.topology = None;
        } else if replies.iter().any(|(_, reply)| matches!(reply, Reply::Unloaded)) {
            // A new connection loads them.
            server.connection = None;
        }
    }
}

impl Server {
    fn connect(&mut self, address: &Address, login: &Login, deadline: Instant) -> Result<&mut Connection, Trouble> {
        if self.connection.is_none() {
            if self.rests_until.is_some_and(|until| Instant::now() < until) {
                return Err(Trouble::Away { what: format!("{address} did not answer a moment ago"), asked: false });
            }
            let opened = Connection::open(address, login, deadline).and_then(|mut connection| {
                script::load_all(&mut connection, address, deadline)?;
                Ok(connection)
            });
            match opened {
                Ok(connection) => self.connection = Some(connection),
                Err(trouble) => {
                    self.fail();
                    return Err(trouble);
                }
            }
        }
        Ok(self.connection.as_mut().expect("it was just made"))
    }

    fn receive(&mut self, address: &Address, moving: bool, deadline: Instant) -> Result<Value, Trouble> {
        let connection = self.connection.as_mut().expect("it was just sent to");
        let mut next = || connection.receive(deadline).map_err(|error| Trouble::away(address, &error, true));
        if moving {
            next()?;
        }
        next()
    }

    /// The connection is not to be trusted any more, and the server left alone for a moment.
    fn fail(&mut self) {
        self.connection = None;
        self.rests_until = Some(Instant::now() + REST);
    }
}
