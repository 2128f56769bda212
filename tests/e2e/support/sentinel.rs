//! A real master with two replicas and the three sentinels that watch them.

use crate::support::node::{wait_for, wait_until};
use crate::support::redis::{RedisCertificate, Reply, Server, Setup};

/// A master, two replicas and three sentinels of the service `main`. Two sentinels decide.
pub(crate) struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts them and waits until all know each other. Server 0 is the master.
    pub(crate) fn start() -> Sentinels {
        Sentinels::start_with(&Setup::new())
    }

    /// Starts them so that nodes, servers and sentinels speak TLS with each other.
    pub(crate) fn start_secured(certificate: &RedisCertificate) -> Sentinels {
        Sentinels::start_with(&Setup::new().secured(certificate))
    }

    fn start_with(setup: &Setup) -> Sentinels {
        let server = || setup.clone().append_only(true);
        let master = server().start();
        let replica = || server().replica_of(master.peer_port()).start();
        let replicas = [replica(), replica()];
        replicas.iter().for_each(Server::wait_until_linked);
        let sentinels = (0..3).map(|_| setup.clone().sentinel_of(master.peer_port()).start()).collect();
        let servers = [master].into_iter().chain(replicas).collect();
        let all = Sentinels { servers, sentinels };
        all.wait_until_whole();
        all
    }

    /// The URL of all sentinels.
    pub(crate) fn url(&self) -> String {
        let address = |sentinel: &Server| format!("127.0.0.1:{}", sentinel.peer_port());
        let sentinels: Vec<String> = self.sentinels.iter().map(address).collect();
        let scheme = if self.sentinels[0].is_secured() { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}/main", sentinels.join(","))
    }

    /// One of the servers.
    pub(crate) fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// One of the sentinels, in the order of the URL.
    pub(crate) fn sentinel(&self, index: usize) -> &Server {
        &self.sentinels[index]
    }

    /// The master, once all sentinels that are up name it and it agrees.
    pub(crate) fn master(&self) -> usize {
        wait_for("a master", || {
            let named: Vec<u16> = self.up().map(named).collect::<Option<_>>()?;
            let first = *named.first()?;
            let index = self.servers.iter().position(|server| server.peer_port() == first)?;
            let server = &self.servers[index];
            let is_master = server.is_up() && server.info("role").as_deref() == Some("master");
            (is_master && named.iter().all(|port| *port == first)).then_some(index)
        })
    }

    /// The replicas that are up.
    pub(crate) fn replicas(&self) -> Vec<usize> {
        let master = self.master();
        (0..self.servers.len()).filter(|index| *index != master && self.servers[*index].is_up()).collect()
    }

    /// Orders a failover, and returns the new master once all sentinels name it.
    pub(crate) fn failover(&self) -> usize {
        let old = self.master();
        let sentinel = self.up().next().expect("a sentinel is up");
        wait_until("a failover that begins", || sentinel.command(&["SENTINEL", "FAILOVER", "main"]) == "OK");
        self.replacement_of(old)
    }

    /// The master that takes the place of another one, once all sentinels name it.
    pub(crate) fn replacement_of(&self, old: usize) -> usize {
        wait_for("another master", || Some(self.master()).filter(|master| *master != old))
    }

    /// Waits until all sentinels that are up know each other and all servers that are up, and each replica has its
    /// link.
    pub(crate) fn wait_until_whole(&self) {
        wait_until("sentinels that know everything", || {
            let master = self.servers[self.master()].peer_port().to_string();
            let is_replica = |server: &&Server| server.is_up() && server.peer_port().to_string() != master;
            let replicas = self.servers.iter().filter(is_replica);
            let is_linked = |replica: &Server| {
                let link = replica.info("master_link_status");
                replica.info("master_port").as_ref() == Some(&master) && link.as_deref() == Some("up")
            };
            let others = self.sentinels.len() - 1;
            let knows = |sentinel: &Server| {
                let Some(Reply::List(parts)) = sentinel.look(&["SENTINEL", "MASTER", "main"]) else { return false };
                let number = |name: &str| {
                    let field = parts.chunks(2).find(|field| field[0] == name)?;
                    field[1].text().parse::<usize>().ok()
                };
                number("num-slaves") == Some(self.servers.len() - 1) && number("num-other-sentinels") == Some(others)
            };
            replicas.into_iter().all(is_linked) && self.up().all(knows)
        });
    }

    fn up(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_up())
    }
}

/// The port of the master that a sentinel names.
fn named(sentinel: &Server) -> Option<u16> {
    let Reply::List(parts) = sentinel.look(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"])? else { return None };
    parts.get(1)?.text().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_replace_masters() {
        let sentinels = Sentinels::start();
        // The sentinels replace a master that stands still for half a second, as on a busy machine.
        wait_until("a write on a master", || {
            sentinels.server(sentinels.master()).command(&["SET", "a", "1"]) == "OK"
                && sentinels.replicas().iter().all(|replica| sentinels.server(*replica).command(&["GET", "a"]) == "1")
        });
        let second = sentinels.failover();
        sentinels.wait_until_whole();
        assert_eq!(sentinels.server(second).command(&["GET", "a"]), "1");
        sentinels.server(second).kill();
        let third = sentinels.replacement_of(second);
        assert_eq!(sentinels.server(third).command(&["GET", "a"]), "1");
        assert_eq!(sentinels.server(third).command(&["SET", "a", "2"]), "OK");
        sentinels.server(second).start_again();
        sentinels.wait_until_whole();
        assert_eq!(sentinels.server(second).command(&["GET", "a"]), "2");
    }
}
