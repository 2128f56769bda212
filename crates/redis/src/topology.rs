//! The topology: one server with all keys, or the masters of a cluster by the slots of our few hash tags.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::sentinel::{self, told_of_sentinel};
use super::server::Server;
use super::{Client, RedisError, Reply, ServerAddress};

/// Time for the answer of one server, after which the next one is asked as well.
const SERVER_TIME: Duration = Duration::from_millis(50);

/// Shortest interval of searches while a server is unavailable and no other server redirects us.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// The servers of all keys.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// A single server with all keys, or the master of a service.
    Single(ServerAddress),
    /// The masters of a cluster, each with the first and last slot of a range that it serves.
    Cluster { ranges: Vec<(u16, u16, ServerAddress)> },
}

impl Topology {
    pub(super) fn server_of(&self, slot: u16) -> Option<&ServerAddress> {
        match self {
            Topology::Single(address) => Some(address),
            Topology::Cluster { ranges } => {
                ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, master)| master)
            }
        }
    }

    pub(super) fn masters(&self) -> Vec<ServerAddress> {
        match self {
            Topology::Single(address) => vec![address.clone()],
            Topology::Cluster { ranges } => {
                let mut masters: Vec<ServerAddress> = ranges.iter().map(|(_, _, master)| master.clone()).collect();
                masters.sort();
                masters.dedup();
                masters
            }
        }
    }
}

/// The role of a server, as it reports itself.
pub(super) enum ServerRole {
    /// A standalone master.
    Alone,
    /// A replica of another server.
    Replica,
    /// A server of a cluster: first and last slot, and master, of each range.
    Cluster(Vec<(u16, u16, ServerAddress)>),
    /// A sentinel, which names this master.
    Named(ServerAddress),
}

/// The question by which a connected server reports its role again.
pub(super) enum MapQuestion {
    /// For a server outside a cluster.
    Role,
    /// For a server of a cluster.
    Slots,
    /// For a sentinel: the master of this service.
    Master(String),
}

impl MapQuestion {
    pub(super) fn to_command(&self) -> Cmd {
        match self {
            MapQuestion::Role => redis::cmd("ROLE"),
            MapQuestion::Slots => redis::cmd("CLUSTER").arg("SLOTS").to_owned(),
            MapQuestion::Master(service) => sentinel::question(service),
        }
    }

    /// Interprets the answer.
    pub(super) fn told(&self, address: &ServerAddress, answer: &Value) -> Result<ServerRole, RedisError> {
        match self {
            MapQuestion::Role => told_of_one(address, answer),
            MapQuestion::Slots => told_of_cluster(address, answer),
            MapQuestion::Master(service) => told_of_sentinel(address, service, answer),
        }
    }
}

/// Returns the role of a server, from its answers to `INFO cluster` and `ROLE`, and in a cluster to `CLUSTER SLOTS`.
pub(super) fn told(
    address: &ServerAddress,
    info: &Value,
    role: &Value,
    slots: impl FnOnce() -> Result<Value, RedisError>,
) -> Result<ServerRole, RedisError> {
    if text(answered(address, info)?).contains("cluster_enabled:1") {
        told_of_cluster(address, &slots()?)
    } else {
        told_of_one(address, role)
    }
}

/// Returns the role of a server outside a cluster, from its answer to `ROLE`.
fn told_of_one(address: &ServerAddress, role: &Value) -> Result<ServerRole, RedisError> {
    let role = answered(address, role)?;
    let is_replica = matches!(role, Value::Array(parts) if parts.first().is_some_and(|role| text(role) == "slave"));
    Ok(if is_replica { ServerRole::Replica } else { ServerRole::Alone })
}

/// Returns the slots of a cluster, from an answer to `CLUSTER SLOTS`.
fn told_of_cluster(address: &ServerAddress, slots: &Value) -> Result<ServerRole, RedisError> {
    Ok(ServerRole::Cluster(ranges(address, answered(address, slots)?)))
}

fn answered<'v>(address: &ServerAddress, value: &'v Value) -> Result<&'v Value, RedisError> {
    let Value::ServerError(error) = value else { return Ok(value) };
    let details = error.details().unwrap_or_default();
    Err(RedisError::Away { what: format!("{address}: {} {details}", error.code()), asked: false })
}

/// A search for the topology. It asks one server after another, and accepts the first answer. A wrong one shows later,
/// when a server redirects a request.
pub(super) struct Search {
    /// Servers that were not asked yet, the next one first.
    pub(super) left: VecDeque<ServerAddress>,
    /// Servers that have not answered yet.
    pub(super) asked: Vec<ServerAddress>,
    /// The instant at which the next server is asked although earlier ones have not answered.
    pub(super) next_at: Instant,
    /// The last failure.
    trouble: RedisError,
    /// True if a request has expired during the search; then further ones fail at once.
    pub(super) is_slow: bool,
}

impl Search {
    /// Returns the instant of the next step of the search.
    pub(super) fn next_at(&self) -> Option<Instant> {
        (!self.left.is_empty()).then_some(self.next_at)
    }
}

impl Client {
    /// Begins a search for the topology, unless one is in progress. The old topology stays in use meanwhile. `first` is
    /// a server that has just redirected us, `last` one that cannot help.
    pub(super) fn search(&mut self, first: Option<&ServerAddress>, last: Option<&ServerAddress>) {
        let is_slow = self.search.as_ref().is_some_and(|search| search.is_slow);
        if self.search.as_ref().is_some_and(|search| !self.can_be_replaced(search)) {
            return;
        }
        let trouble = RedisError::Away { what: "no Redis server is known".to_owned(), asked: false };
        let left = if self.sentinels.is_empty() { self.candidates(first, last) } else { self.sentinels.clone().into() };
        self.searched = Some(Instant::now());
        self.search = Some(Search { left, asked: Vec::new(), next_at: Instant::now(), trouble, is_slow });
    }

    /// True for a search that only waits for sentinels, or servers that they named, which may never answer. The others
    /// may know more by now.
    fn can_be_replaced(&self, search: &Search) -> bool {
        let is_old = self.searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY);
        is_old && !self.sentinels.is_empty() && search.left.is_empty()
    }

    /// Returns the servers to ask for the topology, the most promising one first.
    fn candidates(&self, first: Option<&ServerAddress>, last: Option<&ServerAddress>) -> VecDeque<ServerAddress> {
        let up = self.servers.iter().filter(|(_, server)| server.can_be_asked()).map(|(address, _)| address);
        let mut left: VecDeque<ServerAddress> = VecDeque::new();
        for address in first.into_iter().chain(up).chain(&self.settings.seeds).chain(self.servers.keys()) {
            if !left.contains(address) {
                left.push_back(address.clone());
            }
        }
        let of_no_use = left.iter().position(|address| Some(address) == last);
        if let Some(address) = of_no_use.and_then(|at| left.remove(at)) {
            left.push_back(address);
        }
        left
    }

    /// Begins a search if the topology may be right and only a server is unavailable, at most every [`SEARCH_EVERY`].
    pub(super) fn search_sometimes(&mut self) {
        if self.searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            self.search(None, None);
        }
    }

    /// Asks the next servers, if it is time. If none is left, fails all requests that wait for the topology.
    pub(super) fn search_on(&mut self) {
        let Some(mut search) = self.search.take() else { return };
        while search.asked.is_empty() || Instant::now() >= search.next_at {
            let Some(address) = search.left.pop_front() else { break };
            match self.ask_for_map(&address) {
                Ok(()) => search.asked.push(address),
                Err(trouble) => search.trouble = trouble,
            }
            search.next_at = Instant::now() + SERVER_TIME;
        }
        if search.asked.is_empty() && search.left.is_empty() {
            if self.topology.is_none() {
                // The waiting requests themselves have not been sent.
                let trouble = match search.trouble {
                    RedisError::Away { what, .. } => RedisError::Away { what, asked: false },
                    refused @ RedisError::Refused(_) => refused,
                };
                self.fail_all_without_place(&trouble);
            }
        } else {
            self.search = Some(search);
        }
    }

    fn ask_for_map(&mut self, address: &ServerAddress) -> Result<(), RedisError> {
        let is_sentinel = self.is_sentinel(address);
        let server = self.servers.entry(address.clone()).or_insert_with(|| Server::new(is_sentinel));
        server.approach(address, &mut self.dialer)?;
        server.ask_for_map();
        Ok(())
    }

    /// Takes the role that a server has reported, or its failure to report one.
    pub(super) fn told(&mut self, address: &ServerAddress, told: Result<ServerRole, RedisError>) {
        let mut told = told;
        if matches!(told, Ok(ServerRole::Replica)) {
            // The same name may soon point to the new master.
            let trouble = RedisError::Away { what: format!("{address} is a replica"), asked: false };
            self.lose(address, Some(&trouble), &trouble);
            told = Err(trouble);
        }
        let Some(search) = &mut self.search else { return };
        let asked = search.asked.len();
        search.asked.retain(|known| known != address);
        if search.asked.len() == asked {
            return;
        }
        match told {
            Ok(ServerRole::Named(master)) => self.named(address, master),
            Ok(ServerRole::Alone) => self.found(address, Topology::Single(address.clone())),
            Ok(ServerRole::Cluster(ranges)) if !ranges.is_empty() => {
                let topology = Topology::Cluster { ranges };
                self.found(address, topology);
            }
            Ok(_) => {}
            Err(trouble) => search.trouble = trouble,
        }
    }

    fn found(&mut self, by: &ServerAddress, topology: Topology) {
        let mut masters = topology.masters();
        masters.sort();
        if !self.masters.is_empty() && self.masters != masters {
            self.disturbed = Some(Instant::now());
        }
        self.masters.clone_from(&masters);
        // Drops the connections to servers that have left the cluster, or have become replicas.
        // A connection to a sentinel stays for the next check.
        let sentinels = &self.sentinels;
        let is_needed = |known: &ServerAddress| masters.contains(known) || known == by || sentinels.contains(known);
        self.servers.retain(|known, server| is_needed(known) || server.is_busy());
        self.topology = Some(topology);
        self.search = None;
    }

    /// Fetches the current topology, and returns all masters. Outside a cluster, there is one.
    ///
    /// # Errors
    /// [`RedisError`] if no server returns the topology in time.
    pub fn find_masters(&mut self, within: Duration) -> Result<Vec<ServerAddress>, RedisError> {
        let deadline = Instant::now() + within;
        self.topology = None;
        self.search = None;
        self.search(None, None);
        loop {
            self.step();
            if let Some(topology) = &self.topology {
                return Ok(topology.masters());
            }
            if self.search.is_none() || Instant::now() >= deadline {
                return Err(self.nobody_knows());
            }
            self.wait(deadline);
        }
    }
}

/// Parses an answer to `CLUSTER SLOTS` into first and last slot, and master, of each range.
fn ranges(asked: &ServerAddress, slots: &Value) -> Vec<(u16, u16, ServerAddress)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
        let [host, Value::Int(port), ..] = &master[..] else { return None };
        let host =
            Some(text(host)).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.host.clone());
        Some((
            u16::try_from(*first).ok()?,
            u16::try_from(*last).ok()?,
            ServerAddress { host, port: u16::try_from(*port).ok()? },
        ))
    };
    ranges.iter().filter_map(range).collect()
}

/// Returns the slot of a hash tag: CRC-16 (XMODEM) of the text between the braces, as the Redis Cluster specification
/// defines it.
pub fn slot(tag: &str) -> u16 {
    let inner = tag.trim_start_matches('{').trim_end_matches('}');
    let crc = inner.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % 16_384
}

/// Interprets the replies to a request, one for each of its commands.
pub(super) fn sort(address: &ServerAddress, values: Vec<Value>) -> Reply {
    let wrong = values.iter().find_map(|value| if let Value::ServerError(error) = value { Some(error) } else { None });
    let Some(error) = wrong else { return Reply::Is(values) };
    let details = error.details().unwrap_or_default();
    match error.code() {
        "ASK" => {
            let to = details.rsplit(' ').next().and_then(|place| place.rsplit_once(':'));
            let to = to.and_then(|(host, port)| {
                let host = if host.is_empty() { address.host.clone() } else { host.to_owned() };
                Some(ServerAddress { host, port: port.parse().ok()? })
            });
            to.map_or(Reply::Later, Reply::At)
        }
        "NOSCRIPT" => Reply::Unloaded,
        "TRYAGAIN" => Reply::Later,
        "MOVED" => Reply::Moved,
        "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" => Reply::Unfit,
        code => Reply::Failed(RedisError::Refused(format!("{address}: {code} {details}"))),
    }
}

/// Returns the text of a reply; empty for other types.
pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the example of the specification, and `CLUSTER KEYSLOT`.
        assert_eq!(slot("{123456789}"), 0x31c3);
        assert_eq!(slot("{carom}"), slot("carom"));
    }

    #[test]
    fn errors_of_a_cluster_lead_on() {
        let address = ServerAddress { host: "a".to_owned(), port: 1 };
        let value = |text: &str| redis::parse_redis_value(format!("{text}\r\n").as_bytes()).unwrap();
        let reply = |text: &str| sort(&address, vec![value(":1"), value(&format!("-{text}")), value(":2")]);
        assert!(matches!(reply("MOVED 3999 127.0.0.1:6381"), Reply::Moved));
        let Reply::At(to) = reply("ASK 3999 127.0.0.1:6381") else { panic!("an address") };
        assert_eq!(to, ServerAddress { host: "127.0.0.1".to_owned(), port: 6381 });
        assert!(matches!(reply("ASK 3999"), Reply::Later));
        assert!(matches!(reply("TRYAGAIN Multiple keys request during rehashing of slot"), Reply::Later));
        assert!(matches!(reply("NOSCRIPT No matching script."), Reply::Unloaded));
        assert!(matches!(reply("READONLY You can't write against a read only replica."), Reply::Unfit));
        assert!(matches!(reply("OOM command not allowed"), Reply::Failed(RedisError::Refused(_))));
        assert!(matches!(sort(&address, vec![value(":1"), value("$-1")]), Reply::Is(values) if values.len() == 2));
    }
}
