//! Background connections: a slow name server, handshake or server delays requests no longer than their own timeouts.
//!
//! A thread of its own resolves the name, connects, logs in, loads the scripts and asks the server for its role, in one
//! piece. A sentinel is asked for the master instead. The last addresses of a name are kept, so that an unreachable
//! name server does not cut the node off from a working Redis.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use rustix::event::{EventfdFlags, eventfd};

use crate::address::ServerAddress;
use crate::error::RedisError;
use crate::scripts::Scripts;
use crate::server::connection::{RedisConnection, timed_out};
use crate::settings::{Login, SentinelSettings};
use crate::topology::role::ServerRole;
use crate::topology::role_of;
use crate::topology::sentinel::{self, role_of_sentinel};

/// Timeout of a new connection, until it can be used.
const DIAL_TIME: Duration = Duration::from_secs(1);

/// Timeout of a name server, after which the last known addresses are used.
const NAME_TIME: Duration = Duration::from_millis(250);

/// The result of an attempt to connect.
pub(crate) struct Dialed {
    pub(crate) address: ServerAddress,
    /// The number of the attempt.
    pub(crate) attempt: u64,
    pub(crate) result: Result<(RedisConnection, ServerRole), RedisError>,
}

/// Opens connections on threads of their own.
pub(crate) struct Dialer {
    login: Arc<Login>,
    scripts: Arc<Scripts>,
    names: HashMap<ServerAddress, Arc<Name>>,
    attempts: u64,
    sender: Sender<Dialed>,
    receiver: Receiver<Dialed>,
    /// Readable when a result may have arrived.
    bell: Arc<OwnedFd>,
}

impl Dialer {
    pub(crate) fn new(login: Login, scripts: Arc<Scripts>) -> io::Result<Dialer> {
        let (sender, receiver) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        Ok(Dialer { login: Arc::new(login), scripts, names: HashMap::new(), attempts: 0, sender, receiver, bell })
    }

    /// Begins to connect. Returns the number of the attempt.
    pub(crate) fn start(&mut self, address: &ServerAddress, is_sentinel: bool) -> io::Result<u64> {
        self.attempts += 1;
        let attempt = self.attempts;
        let name = self.names.entry(address.clone()).or_insert_with(|| Arc::new(Name::new(address.clone())));
        let (name, login, scripts) = (Arc::clone(name), Arc::clone(&self.login), Arc::clone(&self.scripts));
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        std::thread::Builder::new().name("redis-dial".to_owned()).spawn(move || {
            let result = match &login.sentinel {
                Some(sentinel) if is_sentinel => dial_sentinel(&name, &login, sentinel),
                _ => dial(&name, &login, &scripts),
            };
            // The receiver may be gone already.
            let _ = sender.send(Dialed { address: name.address.clone(), attempt, result });
            let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        })?;
        Ok(attempt)
    }

    /// Returns a descriptor to poll for results.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Returns the results that have arrived.
    pub(crate) fn take(&self) -> Vec<Dialed> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.receiver.try_iter().collect()
    }
}

fn dial(name: &Arc<Name>, login: &Login, scripts: &Scripts) -> Result<(RedisConnection, ServerRole), RedisError> {
    let address = &name.address;
    let unavailable = |error: io::Error| RedisError::unavailable(address, &error, false);
    let (mut connection, deadline) = open(name, login)?;
    let mut greeting: Vec<Cmd> = auth(login.username.as_ref(), login.password.as_ref()).into_iter().collect();
    if login.database != 0 {
        greeting.push(redis::cmd("SELECT").arg(login.database).to_owned());
    }
    let logins = greeting.len();
    greeting.extend(scripts.load_commands());
    greeting.extend([redis::cmd("INFO").arg("cluster").to_owned(), redis::cmd("ROLE")]);
    let mut values = connection.ask(&greeting, deadline).map_err(unavailable)?.into_iter();
    check_login(address, values.by_ref().take(logins))?;
    scripts.store_names(address, values.by_ref().take(scripts.count()))?;
    let (info, role) = (values.next().unwrap_or(Value::Nil), values.next().unwrap_or(Value::Nil));
    let reported = role_of(address, &info, &role, || {
        let slots = connection.ask(&[redis::cmd("CLUSTER").arg("SLOTS").to_owned()], deadline).map_err(unavailable)?;
        Ok(slots.into_iter().next().unwrap_or(Value::Nil))
    })?;
    Ok((connection, reported))
}

/// Connects to a sentinel and asks it for the master.
fn dial_sentinel(
    name: &Arc<Name>,
    login: &Login,
    sentinel: &SentinelSettings,
) -> Result<(RedisConnection, ServerRole), RedisError> {
    let address = &name.address;
    let (mut connection, deadline) = open(name, login)?;
    let mut greeting: Vec<Cmd> = auth(sentinel.username.as_ref(), sentinel.password.as_ref()).into_iter().collect();
    let logins = greeting.len();
    greeting.push(sentinel::question(&sentinel.service));
    let values =
        connection.ask(&greeting, deadline).map_err(|error| RedisError::unavailable(address, &error, false))?;
    let mut values = values.into_iter();
    check_login(address, values.by_ref().take(logins))?;
    let reported = role_of_sentinel(address, &sentinel.service, &values.next().unwrap_or(Value::Nil))?;
    Ok((connection, reported))
}

/// Opens a connection, and returns the instant at which its greeting must be over.
fn open(name: &Arc<Name>, login: &Login) -> Result<(RedisConnection, Instant), RedisError> {
    let sockets = name.sockets().map_err(|error| RedisError::unavailable(&name.address, &error, false))?;
    let deadline = Instant::now() + DIAL_TIME;
    Ok((RedisConnection::open(&name.address, &sockets, login, deadline)?, deadline))
}

/// Builds the command that logs in, if there is a password.
fn auth(username: Option<&String>, password: Option<&String>) -> Option<Cmd> {
    let password = password?;
    let mut auth = redis::cmd("AUTH");
    if let Some(username) = username {
        auth.arg(username);
    }
    Some(auth.arg(password).to_owned())
}

/// Checks the replies to the commands that log in.
fn check_login(address: &ServerAddress, mut replies: impl Iterator<Item = Value>) -> Result<(), RedisError> {
    if let Some(Value::ServerError(error)) = replies.find(|reply| matches!(reply, Value::ServerError(_))) {
        // Only the code: a server that does not know the command repeats its arguments in the text.
        return Err(RedisError::Refused(format!("{address} rejects the login: {}", error.code())));
    }
    Ok(())
}

/// A host name, and its last known addresses.
struct Name {
    address: ServerAddress,
    known_addresses: Mutex<Vec<SocketAddr>>,
    /// True while a thread asks the name server, which may take long.
    is_resolving: AtomicBool,
}

impl Name {
    fn new(address: ServerAddress) -> Name {
        Name { address, known_addresses: Mutex::new(Vec::new()), is_resolving: AtomicBool::new(false) }
    }

    /// Returns the current addresses, or the last known ones if the name server does not answer in time.
    fn sockets(self: &Arc<Name>) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.address.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.address.port)]);
        }
        let timeout = if self.known_addresses().is_empty() { DIAL_TIME } else { NAME_TIME };
        let answer = self.ask()?.recv_timeout(timeout).unwrap_or_else(|_| Err(timed_out()));
        let known_addresses = self.known_addresses().clone();
        if known_addresses.is_empty() { answer } else { Ok(known_addresses) }
    }

    fn known_addresses(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.known_addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the name server on a thread of its own, unless such a thread is running. It also stores the answer.
    fn ask(self: &Arc<Name>) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
        let (sender, receiver) = channel();
        if !self.is_resolving.swap(true, Ordering::AcqRel) {
            let name = Arc::clone(self);
            let asking = std::thread::Builder::new().name("redis-name".to_owned()).spawn(move || {
                let found = (name.address.host.as_str(), name.address.port).to_socket_addrs().map(Vec::from_iter);
                if let Ok(found) = &found
                    && !found.is_empty()
                {
                    name.known_addresses().clone_from(found);
                }
                name.is_resolving.store(false, Ordering::Release);
                let _ = sender.send(found);
            });
            if let Err(error) = asking {
                self.is_resolving.store(false, Ordering::Release);
                return Err(error);
            }
        }
        Ok(receiver)
    }
}
