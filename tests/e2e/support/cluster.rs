//! A real Redis Cluster of six servers, which loses nodes, moves its masters and recovers.

use std::time::{Duration, Instant};

use crate::support::node::{wait_for, wait_until};
use crate::support::redis::{Reply, Server, Setup, value_of};

/// A manual failover gives up by itself after five seconds; then it is asked for once more.
const FAILOVER_AGAIN: Duration = Duration::from_secs(6);

/// Time for which a server counts the votes of an election: twice the node timeout, and at least this.
const VOTES_HOLD: Duration = Duration::from_millis(2_200);

/// A node of a cluster as another one sees it: a line of `CLUSTER NODES`.
#[derive(Clone, Debug)]
struct Known {
    id: String,
    port: u16,
    flags: Vec<String>,
    master: String,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Known {
    fn parse(line: &str) -> Option<Known> {
        let words: Vec<&str> = line.split(' ').collect();
        let port = words.get(1)?.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        let slots = words.get(8..)?.iter().filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            // Slots that are on the move stand in brackets, and are no numbers.
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        Some(Known {
            id: words[0].to_owned(),
            port,
            flags: words[2].split(',').map(str::to_owned).collect(),
            master: words[3].to_owned(),
            epoch: words[6].parse().ok()?,
            slots: slots.collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// True if nobody believes that it is gone, or has yet to hear of it.
    fn is_sound(&self) -> bool {
        !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| self.is(flag))
    }

    fn has_slot(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// A Redis Cluster of six servers, each with an AOF. At first 0, 1 and 2 are masters, and 3, 4 and 5 their replicas.
pub(crate) struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    /// Starts one and waits until it is whole.
    pub(crate) fn start() -> Cluster {
        Cluster::start_with(Setup::new().append_only(true))
    }

    /// Starts a cluster of other servers. A master that returns at once and empty also empties its replica.
    pub(crate) fn start_with(setup: Setup) -> Cluster {
        let setup = setup.in_cluster();
        let cluster = Cluster { servers: (0..6).map(|_| setup.start()).collect() };
        for (index, slots) in [("0", "5460"), ("5461", "10922"), ("10923", "16383")].iter().enumerate() {
            cluster.order(index, &["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]);
        }
        for (index, server) in cluster.servers.iter().enumerate() {
            cluster.order(index, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            for other in &cluster.servers[..index] {
                let (port, bus_port) = (other.port().to_string(), other.bus_port().to_string());
                assert_eq!(server.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]), "OK");
            }
        }
        let is_met = |nodes: &[Known]| nodes.len() == 6 && nodes.iter().all(Known::is_sound);
        wait_until("nodes that know each other", || {
            cluster.servers.iter().all(|server| view(server).is_some_and(|nodes| is_met(&nodes)))
        });
        for index in 3..6 {
            let master = cluster.servers[index - 3].command(&["CLUSTER", "MYID"]).text();
            cluster.order(index, &["CLUSTER", "REPLICATE", &master]);
        }
        cluster.wait_until_whole();
        cluster
    }

    /// The URLs of all servers, also of those that do not run.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// One of the servers, for what is not done to it here.
    pub(crate) fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The reply of one server to a command. Redirections are replies.
    pub(crate) fn command(&self, index: usize, command: &[&str]) -> Reply {
        self.servers[index].command(command)
    }

    /// Returns the server that is now the master for a key. Waits for a failover that is needed first.
    pub(crate) fn master_of(&self, key: &str) -> usize {
        let slot = wait_for("a server that answers", || {
            let server = self.servers.iter().find(|server| server.is_up())?;
            let Reply::Int(slot) = server.look(&["CLUSTER", "KEYSLOT", key])? else { return None };
            u16::try_from(slot).ok()
        });
        wait_for("a master for a key", || {
            let own = self.up().filter_map(|(index, server)| Some((index, myself(server)?)));
            let masters = own.filter(|(_, node)| node.is("master") && node.has_slot(slot));
            masters.max_by_key(|(_, node)| node.epoch).map(|(index, _)| index)
        })
    }

    /// Returns a server that is up and now a replica of that one. Waits until there is one.
    pub(crate) fn replica_of(&self, master: usize) -> usize {
        wait_for("a replica", || {
            let id = myself(&self.servers[master])?.id;
            self.up().find(|(_, server)| myself(server).is_some_and(|node| node.master == id)).map(|(index, _)| index)
        })
    }

    /// Makes a replica the master, without any loss, and waits until all agree on that.
    ///
    /// If its master was elected before, this takes two seconds more: Redis 7.0 does not forget the votes by which a
    /// master that is now a replica won (redis/redis#8753). If its new master fails while they hold, it takes itself
    /// for elected, in an epoch that has passed, and its slots stay without a master.
    pub(crate) fn failover(&self, replica: usize) {
        let master = wait_for("the master of a replica", || {
            let id = myself(&self.servers[replica])?.master;
            self.up().find(|(_, server)| myself(server).is_some_and(|node| node.id == id)).map(|(_, server)| server)
        });
        if master.log().contains("Failover election won") {
            let start = Instant::now();
            wait_until("votes that no longer hold", || start.elapsed() > VOTES_HOLD);
        }
        let mut asked: Option<Instant> = None;
        wait_until("a replica that has become a master", || {
            if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_AGAIN) {
                let is_accepted = self.command(replica, &["CLUSTER", "FAILOVER"]) == "OK";
                asked = is_accepted.then(Instant::now);
            }
            myself(&self.servers[replica]).is_some_and(|node| node.is("master"))
        });
        self.wait_until_whole();
    }

    /// The slot of a key.
    pub(crate) fn slot_of(&self, key: &str) -> String {
        self.command(0, &["CLUSTER", "KEYSLOT", key]).to_number().to_string()
    }

    /// Begins to move a slot from one master to another: a server that lacks a key of it sends clients on.
    pub(crate) fn begin_to_move(&self, slot: &str, from: usize, to: usize) {
        let [from_id, to_id] = [from, to].map(|index| self.command(index, &["CLUSTER", "MYID"]).text());
        self.order(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", &from_id]);
        self.order(from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", &to_id]);
    }

    /// Keys of a slot that are at a server, at most so many.
    pub(crate) fn keys_in(&self, slot: &str, at: usize, count: usize) -> Vec<String> {
        let keys = self.command(at, &["CLUSTER", "GETKEYSINSLOT", slot, &count.to_string()]);
        keys.list().iter().map(Reply::text).collect()
    }

    /// Moves keys of a slot that is on the move.
    pub(crate) fn move_keys(&self, keys: &[String], from: usize, to: usize) {
        let port = self.servers[to].port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        self.order(from, &command);
    }

    /// Moves the keys of a slot that is being moved, until it has none.
    pub(crate) fn empty_slot(&self, slot: &str, from: usize, to: usize) {
        wait_until("a slot that is empty", || {
            let keys = self.keys_in(slot, from, 10);
            if !keys.is_empty() {
                self.move_keys(&keys, from, to);
            }
            keys.is_empty()
        });
    }

    /// Ends the move: the slot belongs to its new master.
    pub(crate) fn end_move(&self, slot: &str, from: usize, to: usize) {
        let id = self.command(to, &["CLUSTER", "MYID"]).text();
        for index in [to, from] {
            self.order(index, &["CLUSTER", "SETSLOT", slot, "NODE", &id]);
        }
        self.wait_until_whole();
    }

    /// Stops a replica, which then misses all later writes of its master.
    pub(crate) fn cut_off(&self, master: usize, replica: usize) {
        self.server(replica).pause();
        self.server(master).close_replicas();
    }

    /// Ends a server with SIGKILL. If it was a master, its replica takes over by itself after a second or two.
    pub(crate) fn kill(&self, index: usize) {
        self.servers[index].kill();
    }

    /// Starts a server that has ended. It has its place in the cluster after [`Cluster::wait_until_whole`].
    pub(crate) fn start_again(&self, index: usize) {
        self.servers[index].start_again();
    }

    /// Waits until all servers that are up say that the cluster is, agree on who is what, and each slot has a master
    /// and each replica its link among them.
    pub(crate) fn wait_until_whole(&self) {
        wait_until("a cluster that is whole", || self.is_whole().unwrap_or(false));
    }

    fn is_whole(&self) -> Option<bool> {
        let ports: Vec<u16> = self.up().map(|(_, server)| server.port()).collect();
        let mut agreed = None;
        for (_, server) in self.up() {
            let state = value_of(&server.look(&["CLUSTER", "INFO"])?, "cluster_state")?;
            let link = server.info("master_link_status");
            if state != "ok" || link.is_some_and(|link| link != "up") {
                return Some(false);
            }
            let mut nodes = view(server)?;
            nodes.retain(|node| ports.contains(&node.port));
            nodes.sort_by_key(|node| node.port);
            let slots: u32 = nodes.iter().flat_map(|node| &node.slots).map(|(a, b)| u32::from(b - a) + 1).sum();
            let has_master = |node: &Known| node.is("master") || nodes.iter().any(|other| other.id == node.master);
            if nodes.len() != ports.len() || slots != 16_384 || !nodes.iter().all(|n| n.is_sound() && has_master(n)) {
                return Some(false);
            }
            let says: Vec<_> = nodes.into_iter().map(|node| (node.id, node.master, node.epoch, node.slots)).collect();
            if *agreed.get_or_insert_with(|| says.clone()) != says {
                return Some(false);
            }
        }
        Some(agreed.is_some())
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.servers.iter().enumerate().filter(|(_, server)| server.is_up())
    }

    fn order(&self, index: usize, command: &[&str]) {
        assert_eq!(self.command(index, command), "OK", "{command:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (index, server) in self.servers.iter().enumerate() {
                let says = server.look(&["CLUSTER", "NODES"]).map_or_else(|| "nothing".to_owned(), |says| says.text());
                eprintln!("server {index} on port {} says:\n{says}", server.port());
            }
        }
    }
}

/// All nodes of a cluster, as one of its servers sees them.
fn view(server: &Server) -> Option<Vec<Known>> {
    let Reply::Text(text) = server.look(&["CLUSTER", "NODES"])? else { return None };
    String::from_utf8_lossy(&text).lines().map(Known::parse).collect()
}

/// A server, as it sees itself.
fn myself(server: &Server) -> Option<Known> {
    view(server)?.into_iter().find(|node| node.is("myself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_and_masters_move() {
        let cluster = Cluster::start();
        let keys: Vec<String> = (0..60).map(|at| format!("key-{at}")).collect();
        let mut counts = [0; 6];
        for key in &keys {
            let master = cluster.master_of(key);
            counts[master] += 1;
            assert_eq!(cluster.command(master, &["SET", key, "1"]), "OK");
        }
        assert!(counts[..3].iter().all(|count| *count > 0), "{counts:?}");
        assert!(counts[3..] == [0; 3], "{counts:?}");
        let master = cluster.master_of(&keys[0]);
        let elsewhere = cluster.command((master + 1) % 3, &["GET", &keys[0]]);
        assert!(matches!(&elsewhere, Reply::Error(text) if text.starts_with("MOVED ")
            && cluster.urls()[master].contains(text.rsplit(' ').next().unwrap())));
        // By hand, and back.
        let replica = cluster.replica_of(master);
        assert_eq!(replica, master + 3);
        for (next, last) in [(replica, master), (master, replica)] {
            cluster.failover(next);
            assert_eq!(cluster.master_of(&keys[0]), next);
            assert_eq!(cluster.replica_of(next), last);
            assert_eq!(cluster.command(next, &["GET", &keys[0]]), "1");
        }
        // By itself.
        cluster.kill(master);
        assert_eq!(cluster.master_of(&keys[0]), replica);
        cluster.wait_until_whole();
        for key in &keys {
            assert_eq!(cluster.command(cluster.master_of(key), &["GET", key]), "1");
        }
        assert_eq!(cluster.command(replica, &["SET", &keys[0], "2"]), "OK");
        cluster.start_again(master);
        cluster.wait_until_whole();
        assert_eq!(cluster.replica_of(replica), master);
        // A master that stands still loses its place, too.
        let dump = cluster.server(replica).copy_dump();
        assert!(dump.starts_with(b"REDIS"));
        cluster.server(replica).pause();
        assert_eq!(cluster.master_of(&keys[0]), master);
        cluster.wait_until_whole();
        assert_eq!(cluster.command(master, &["GET", &keys[0]]), "2");
        cluster.server(replica).resume();
        cluster.wait_until_whole();
        assert_eq!(cluster.replica_of(master), replica);
    }

    #[test]
    fn node_returns_empty_or_old() {
        let cluster = Cluster::start();
        let master = cluster.master_of("a");
        cluster.command(master, &["SET", "a", "old"]);
        let dump = cluster.server(master).copy_dump();
        cluster.command(master, &["SET", "a", "new"]);
        cluster.kill(cluster.replica_of(master));
        cluster.server(master).restore_dump(&dump);
        wait_until("a node with slots", || cluster.command(master, &["GET", "a"]) == "old");
        cluster.kill(master);
        cluster.server(master).start_again_empty();
        wait_until("a node with slots", || cluster.command(master, &["GET", "a"]) == Reply::Nil);
    }
}
