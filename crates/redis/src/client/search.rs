//! The search for the servers of all keys: it asks servers or sentinels, and takes the first answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Client;
use crate::address::ServerAddress;
use crate::error::RedisError;
use crate::server::RedisServer;
use crate::topology::role::ServerRole;
use crate::topology::{Topology, TopologySearch};

/// Time for the answer of one server, after which the next one is asked as well.
const SERVER_TIME: Duration = Duration::from_millis(50);

/// Shortest interval of searches while a server is unavailable and no other server redirects us.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// Interval in which a client in use asks for the current master, although its requests succeed.
const CHECK_EVERY: Duration = Duration::from_millis(500);

impl Client {
    /// Begins a search for the topology, unless one is in progress. The old topology stays in use meanwhile. `first` is
    /// a server that has just redirected us, `last` one that cannot help.
    pub(super) fn search(&mut self, first: Option<&ServerAddress>, last: Option<&ServerAddress>) {
        let is_slow = self.search.as_ref().is_some_and(|search| search.is_slow);
        if self.search.as_ref().is_some_and(|search| !self.can_be_replaced(search)) {
            return;
        }
        let failure = RedisError::Unavailable { what: "no Redis server is known".to_owned(), was_sent: false };
        let unasked =
            if self.sentinels.is_empty() { self.candidates(first, last) } else { self.sentinels.clone().into() };
        self.last_search = Some(Instant::now());
        self.search =
            Some(TopologySearch { unasked, unanswered: Vec::new(), next_at: Instant::now(), failure, is_slow });
    }

    /// True for a search that waits only for sentinels, or for servers that they named, and these may never answer.
    /// Then a new search asks the other sentinels again.
    fn can_be_replaced(&self, search: &TopologySearch) -> bool {
        let is_old = self.last_search.is_none_or(|at| at.elapsed() >= SEARCH_EVERY);
        is_old && !self.sentinels.is_empty() && search.unasked.is_empty()
    }

    /// Returns the servers to ask for the topology, the most promising one first.
    fn candidates(&self, first: Option<&ServerAddress>, last: Option<&ServerAddress>) -> VecDeque<ServerAddress> {
        let up = self.servers.iter().filter(|(_, server)| server.can_be_asked()).map(|(address, _)| address);
        let mut candidates: VecDeque<ServerAddress> = VecDeque::new();
        for address in first.into_iter().chain(up).chain(&self.settings.seeds).chain(self.servers.keys()) {
            if !candidates.contains(address) {
                candidates.push_back(address.clone());
            }
        }
        let unusable = candidates.iter().position(|address| Some(address) == last);
        if let Some(address) = unusable.and_then(|at| candidates.remove(at)) {
            candidates.push_back(address);
        }
        candidates
    }

    /// Begins a search if the topology may be right and only a server is unavailable, at most every [`SEARCH_EVERY`].
    pub(super) fn search_if_due(&mut self) {
        if self.last_search.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            self.search(None, None);
        }
    }

    /// Asks the next servers, if it is time. If none is left, fails all requests that wait for the topology.
    pub(super) fn continue_search(&mut self) {
        let Some(mut search) = self.search.take() else { return };
        while search.unanswered.is_empty() || Instant::now() >= search.next_at {
            let Some(address) = search.unasked.pop_front() else { break };
            match self.ask_role(&address) {
                Ok(()) => search.unanswered.push(address),
                Err(failure) => search.failure = failure,
            }
            search.next_at = Instant::now() + SERVER_TIME;
        }
        if search.unanswered.is_empty() && search.unasked.is_empty() {
            if self.topology.is_none() || !self.outdated.is_empty() {
                // The waiting requests themselves have not been sent.
                let failure = match search.failure {
                    RedisError::Unavailable { what, .. } => RedisError::Unavailable { what, was_sent: false },
                    refused @ RedisError::Refused(_) => refused,
                };
                self.fail_unroutable(&failure);
            }
        } else {
            self.search = Some(search);
        }
    }

    fn ask_role(&mut self, address: &ServerAddress) -> Result<(), RedisError> {
        let is_sentinel = self.is_sentinel(address);
        let server = self.servers.entry(address.clone()).or_insert_with(|| RedisServer::new(is_sentinel));
        server.ensure_connected(address, &mut self.dialer)?;
        server.ask_role();
        Ok(())
    }

    /// Takes the role that a server has reported, or its failure to report one.
    pub(super) fn take_role(&mut self, address: &ServerAddress, role: Result<ServerRole, RedisError>) {
        let mut role = role;
        if matches!(role, Ok(ServerRole::Replica)) {
            // The same name may soon point to the new master.
            let failure = RedisError::Unavailable { what: format!("{address} is a replica"), was_sent: false };
            self.disconnect(address, Some(&failure), &failure);
            role = Err(failure);
        }
        let Some(search) = &mut self.search else { return };
        let before = search.unanswered.len();
        search.unanswered.retain(|known| known != address);
        if search.unanswered.len() == before {
            return;
        }
        match role {
            Ok(ServerRole::Named(master)) => self.take_named_master(address, master),
            Ok(ServerRole::Alone) => self.take_topology(address, Topology::Single(address.clone())),
            Ok(ServerRole::Cluster(ranges)) if !ranges.is_empty() => {
                let topology = Topology::Cluster { ranges };
                self.take_topology(address, topology);
            }
            Ok(_) => {}
            Err(failure) => search.failure = failure,
        }
    }

    /// Notes that a server is not the master of all slots that it has in the topology. Requests for these wait for the
    /// next topology.
    pub(super) fn note_outdated(&mut self, address: &ServerAddress) {
        self.last_disturbance = Some(Instant::now());
        if !self.outdated.contains(address) {
            self.outdated.push(address.clone());
        }
    }

    fn take_topology(&mut self, by: &ServerAddress, topology: Topology) {
        let mut masters = topology.masters();
        masters.sort();
        if !self.masters.is_empty() && self.masters != masters {
            self.last_disturbance = Some(Instant::now());
        }
        self.masters.clone_from(&masters);
        // Drops the connections to servers that have left the cluster, or have become replicas.
        // A connection to a sentinel stays for the next check.
        let sentinels = &self.sentinels;
        let is_needed = |known: &ServerAddress| masters.contains(known) || known == by || sentinels.contains(known);
        self.servers.retain(|known, server| is_needed(known) || server.is_busy());
        self.topology = Some(topology);
        self.outdated.clear();
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
                return Err(self.unknown_server());
            }
            self.wait(deadline);
        }
    }

    /// True for the address of a sentinel.
    pub(super) fn is_sentinel(&self, address: &ServerAddress) -> bool {
        self.sentinels.contains(address)
    }

    /// Begins a search for the current master, at most every [`CHECK_EVERY`]. Requests continue meanwhile.
    pub(super) fn check_master(&mut self) {
        let is_due = self.last_search.is_none_or(|at| at.elapsed() >= CHECK_EVERY);
        if is_due && self.topology.is_some() && !self.sentinels.is_empty() {
            self.search(None, None);
        }
    }

    /// Takes the master that a sentinel has named, which is asked for its role next. This sentinel is the first one to
    /// be asked from now on.
    pub(super) fn take_named_master(&mut self, sentinel: &ServerAddress, master: ServerAddress) {
        if let Some(at) = self.sentinels.iter().position(|known| known == sentinel) {
            self.sentinels[..=at].rotate_right(1);
        }
        let Some(search) = &mut self.search else { return };
        if !search.unanswered.contains(&master) && !search.unasked.contains(&master) {
            search.unasked.push_front(master);
            search.next_at = Instant::now();
        }
    }
}
