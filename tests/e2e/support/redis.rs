//! Real Redis servers for tests, each on a port and in a folder of its own.
//!
//! A stand-in would only show what its author believes of Redis. These are killed, stand still, come back empty or with
//! an old dump, as real ones do. A server goes with the value that stands for it.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::bypass;
use crate::support::node::{free_address, stands_still, wait_for, wait_until};
pub(crate) use crate::support::resp::{Client, Reply};

/// Longest wait for the answer to a command of a test.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Longest wait for an answer while something is waited for, so that a server that stands still does not take all the
/// time.
const LOOK_WITHIN: Duration = Duration::from_millis(500);

/// Number of pairs of ports that are tried when others are quicker to take them.
const PORT_TRIES: usize = 20;

/// The setup of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    append_only: bool,
    in_cluster: bool,
    /// The port of the master that this sentinel watches.
    watched: Option<u16>,
    /// The certificate with which it speaks TLS on a second port.
    certificate: Option<RedisCertificate>,
    arguments: Vec<String>,
}

/// A certificate for loopback that trusts itself, in files.
#[derive(Clone, Debug)]
pub(crate) struct RedisCertificate {
    file: String,
    key: String,
}

impl RedisCertificate {
    /// Creates one in a folder.
    pub(crate) fn create(folder: &Path) -> RedisCertificate {
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let certificate = RedisCertificate { file: file("cert.pem"), key: file("key.pem") };
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &certificate.key, "-out", &certificate.file])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        certificate
    }

    /// The file of the certificate, which clients are to trust.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The options of a server or sentinel that speaks TLS on that port, also with its master and other sentinels.
    fn options(&self, port: u16) -> [(&'static str, String); 6] {
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.file.clone()),
            ("tls-key-file", self.key.clone()),
            ("tls-ca-cert-file", self.file.clone()),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
        ]
    }
}

impl Setup {
    /// A server that keeps nothing on disk unless it is told to.
    pub(crate) fn new() -> Setup {
        Setup::default()
    }

    /// Has each write go to a log on disk, the AOF, from which it comes back after a kill.
    pub(crate) fn append_only(mut self, append_only: bool) -> Setup {
        self.append_only = append_only;
        self
    }

    /// One more argument of `redis-server`. The last one of a kind wins.
    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Setup {
        self.arguments.push(argument.into());
        self
    }

    /// Makes it the replica of the server on that port. See [`Server::wait_until_linked`].
    pub(crate) fn replica_of(self, port: u16) -> Setup {
        self.argument("--replicaof").argument("127.0.0.1").argument(port.to_string())
    }

    /// Makes it a node that is to be part of a cluster. See [`crate::support::cluster::Cluster`].
    pub(crate) fn in_cluster(mut self) -> Setup {
        self.in_cluster = true;
        self
    }

    /// Makes it a sentinel for the master on that port. See [`crate::support::sentinel::Sentinels`].
    pub(crate) fn sentinel_of(mut self, port: u16) -> Setup {
        self.watched = Some(port);
        self
    }

    /// Makes it speak TLS, too, on a port of its own ([`Server::peer_port`]).
    pub(crate) fn secured(mut self, certificate: &RedisCertificate) -> Setup {
        self.certificate = Some(certificate.clone());
        self
    }

    /// Starts a server on a free port and waits until it answers.
    pub(crate) fn start(&self) -> Server {
        bypass::enter();
        for _ in 0..PORT_TRIES {
            let folder = tempfile::tempdir().expect("a folder can be made");
            std::fs::create_dir(folder.path().join("data")).expect("a folder can be made");
            let process = Mutex::new(Process { child: None, paused: false });
            let server = Server {
                setup: self.clone(),
                port: free_address().port(),
                bus_port: free_address().port(),
                tls_port: self.certificate.is_some().then(|| free_address().port()),
                folder,
                process,
            };
            if server.launch() {
                return server;
            }
        }
        panic!("others were quicker to take {PORT_TRIES} free ports");
    }
}

/// A real server. It is killed when this is dropped.
pub(crate) struct Server {
    setup: Setup,
    port: u16,
    bus_port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
    process: Mutex<Process>,
}

struct Process {
    child: Option<Child>,
    paused: bool,
}

impl Process {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("the server runs"));
        kill_process(pid, signal).expect("it has not been waited for");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.paused = false;
    }
}

impl Server {
    /// A server alone that keeps nothing on disk.
    pub(crate) fn start() -> Server {
        Setup::new().start()
    }

    /// The port on loopback, which stays the same over restarts.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The port that nodes, replicas and sentinels use: the one with TLS, if there is one.
    pub(crate) fn peer_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// True if the server speaks TLS with its peers.
    pub(crate) fn is_secured(&self) -> bool {
        self.tls_port.is_some()
    }

    /// The port for other nodes of the cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// True if the server has been started and neither ended nor paused.
    pub(crate) fn is_up(&self) -> bool {
        let process = self.process.lock().unwrap();
        process.child.is_some() && !process.paused
    }

    /// The log of all runs.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The reply to a command, on a connection of its own.
    pub(crate) fn command(&self, command: &[&str]) -> Reply {
        let reply = Client::open(self.address(), ANSWER_WITHIN).and_then(|mut client| client.ask(command));
        reply.unwrap_or_else(|error| panic!("{command:?} on port {}: {error}", self.port))
    }

    /// The value of a line of `INFO`.
    pub(crate) fn info(&self, name: &str) -> Option<String> {
        value_of(&self.look(&["INFO"])?, name)
    }

    /// The number of times that it has carried out a command.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).text();
        let of = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&of).map(str::to_owned));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// The number of commands that it has carried out for nodes, those of scripts included.
    pub(crate) fn all_calls(&self) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        // Tests ask for the statistics themselves.
        let of_nodes = calls.filter(|(command, _)| *command != "info");
        of_nodes.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// The reply to a command, if there is one soon.
    pub(crate) fn look(&self, command: &[&str]) -> Option<Reply> {
        Client::open(self.address(), LOOK_WITHIN).and_then(|mut client| client.ask(command)).ok()
    }

    /// Asks it to end, and waits for that. What it has written to its AOF is on disk.
    pub(crate) fn stop(&self) {
        let mut process = self.process.lock().unwrap();
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
        let child = process.child.as_mut().expect("the server runs");
        wait_until("the end of a server", || child.try_wait().expect("a child can be waited for").is_some());
        process.kill();
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        assert!(process.child.is_some(), "the server runs");
        process.kill();
    }

    /// Starts it on the same port with what is on disk: all of it with an AOF, else what [`Server::save`] saved.
    pub(crate) fn start_again(&self) {
        wait_until("a port that is free again", || self.launch());
    }

    /// Restarts the server without its data. A node of a cluster keeps its identity.
    pub(crate) fn start_again_empty(&self) {
        self.forget();
        self.start_again();
    }

    /// Closes the connections to its replicas. A replica that stands still cannot open another one, so it misses what follows;
    /// otherwise it would read what its kernel has received meanwhile.
    pub(crate) fn close_replicas(&self) {
        self.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Stops it with SIGSTOP: the kernel still accepts connections for it, and nothing is answered.
    pub(crate) fn pause(&self) {
        let mut process = self.process.lock().unwrap();
        process.signal(Signal::STOP);
        let pid = process.child.as_ref().expect("the server runs").id();
        wait_until("a server that stands still", || stands_still(pid));
        process.paused = true;
    }

    /// Lets it go on after [`Server::pause`].
    pub(crate) fn resume(&self) {
        let mut process = self.process.lock().unwrap();
        process.signal(Signal::CONT);
        process.paused = false;
    }

    /// Writes all data to a dump, from which a server without an AOF comes back.
    pub(crate) fn save(&self) {
        wait_until("a server that is not about to write a dump for a replica", || match self.command(&["SAVE"]) {
            Reply::Error(text) if text.contains("in progress") => false,
            reply => reply == "OK" || panic!("{reply:?}"),
        });
    }

    /// Saves, and takes a copy of the dump.
    pub(crate) fn copy_dump(&self) -> Vec<u8> {
        self.save();
        std::fs::read(self.data().join("dump.rdb")).expect("it has just been written")
    }

    /// Kills it if it runs, and starts it with what is in a dump and nothing else, as after the restore of an old
    /// backup.
    pub(crate) fn restore_dump(&self, dump: &[u8]) {
        self.process.lock().unwrap().kill();
        self.forget();
        let path = if self.setup.append_only {
            // With an AOF a server does not look at `dump.rdb`; but an AOF may begin with a dump.
            let folder = self.data().join("appendonlydir");
            std::fs::create_dir(&folder).expect("a folder can be made");
            let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n";
            std::fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("a file can be written");
            folder.join("appendonly.aof.1.base.rdb")
        } else {
            self.data().join("dump.rdb")
        };
        std::fs::write(path, dump).expect("a file can be written");
        self.start_again();
    }

    /// Waits until this replica has all data of its master and follows it.
    pub(crate) fn wait_until_linked(&self) {
        wait_until("a replica that is linked", || self.info("master_link_status").as_deref() == Some("up"));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Removes all data from the disk, and not the knowledge of the cluster.
    fn forget(&self) {
        assert!(self.process.lock().unwrap().child.is_none(), "the server still runs");
        let data = self.data();
        let dump = std::fs::remove_file(data.join("dump.rdb"));
        let log = std::fs::remove_dir_all(data.join("appendonlydir"));
        for removed in [dump, log] {
            let is_gone = removed.as_ref().map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true);
            assert!(is_gone, "data can be removed: {removed:?}");
        }
    }

    /// Starts the process and waits until it answers. Returns whether its ports were free.
    fn launch(&self) -> bool {
        let mut process = self.process.lock().unwrap();
        assert!(process.child.is_none(), "the server still runs");
        let seen = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log can be opened");
        let mut command = self.to_command();
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be cloned")).stderr(log);
        let child = process.child.insert(command.spawn().expect("redis-server is installed"));
        let is_ready = wait_for("a server that answers", || {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                let is_taken = self.log()[seen..].contains("Address already in use");
                assert!(is_taken, "redis-server ended by itself: {status}");
                return Some(false);
            }
            self.answers(child.id()).then_some(true)
        });
        if !is_ready {
            process.kill();
        }
        is_ready
    }

    /// True if that process, and not another one that took the port, has loaded its data and answers.
    fn answers(&self, id: u32) -> bool {
        let look = || -> Result<bool> {
            let mut client = Client::open(self.address(), LOOK_WITHIN)?;
            let answers = client.ask(&["PING"])? == "PONG";
            Ok(answers && value_of(&client.ask(&["INFO", "server"])?, "process_id") == Some(id.to_string()))
        };
        look().unwrap_or(false)
    }

    fn to_command(&self) -> Command {
        let mut command = Command::new("redis-server");
        if let Some(master) = self.setup.watched {
            // A sentinel keeps what it knows in its configuration, over restarts too.
            let path = self.data().join("sentinel.conf");
            if !path.exists() {
                std::fs::write(&path, self.sentinel_config(master)).expect("a file can be written");
            }
            command.arg(path).arg("--sentinel");
            return command;
        }
        let port = self.port.to_string();
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(self.data());
        command.args(["--appendonly", if self.setup.append_only { "yes" } else { "no" }]);
        // A kill then loses nothing that was answered. With `everysec`, a slow sync postpones writes by up to two seconds.
        command.args(["--appendfsync", "no"]);
        // A replica that has just been linked would refuse to end for the sake of its first AOF.
        command.args(["--shutdown-on-sigterm", "force", "--repl-diskless-sync-delay", "0"]);
        if self.setup.in_cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
            command.args(["--cluster-port", &self.bus_port.to_string(), "--cluster-announce-ip", "127.0.0.1"]);
            // Failovers are quick, happen whenever they can, and only where the test looks.
            command.args(["--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0"]);
            command.args(["--cluster-allow-replica-migration", "no", "--cluster-require-full-coverage", "no"]);
        }
        for (name, value) in self.tls_options() {
            command.args([format!("--{name}"), value]);
        }
        command.args(&self.setup.arguments);
        command
    }

    fn tls_options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let of = self.setup.certificate.as_ref().zip(self.tls_port);
        of.map(|(certificate, port)| certificate.options(port)).into_iter().flatten()
    }

    /// The configuration of a sentinel that finds a failure and tries again as early as it may.
    fn sentinel_config(&self, master: u16) -> String {
        let (port, data) = (self.port, self.data().display().to_string());
        let tls: String = self.tls_options().map(|(name, value)| format!("{name} {value}\n")).collect();
        format!(
            "port {port}\n{tls}bind 127.0.0.1\ndir {data}\nsentinel monitor main 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n\
             sentinel parallel-syncs main 2\n"
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.get_mut().unwrap_or_else(PoisonError::into_inner).kill();
        if std::thread::panicking() {
            eprintln!("log of redis-server on port {}:\n{}", self.port, self.log());
        }
    }
}

/// The value of a line `name:value` in a reply.
pub(crate) fn value_of(reply: &Reply, name: &str) -> Option<String> {
    let Reply::Text(text) = reply else { return None };
    let text = String::from_utf8_lossy(text);
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().map(str::to_owned)
}

/// A server that also speaks TLS on that port, and the file of its certificate.
pub(crate) fn tls_server(folder: &Path) -> (Server, u16, String) {
    let certificate = RedisCertificate::create(folder);
    let server = Setup::new().secured(&certificate).start();
    let port = server.peer_port();
    (server, port, certificate.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(server: &Server, key: &str) -> Reply {
        server.command(&["GET", key])
    }

    #[test]
    fn client_parses_every_reply_type() {
        let server = Server::start();
        assert!(server.url().ends_with(&format!("127.0.0.1:{}/", server.port())));
        assert_eq!(server.command(&["SET", "a", "1"]), "OK");
        assert_eq!(server.command(&["INCR", "a"]), Reply::Int(2));
        assert_eq!(get(&server, "a").text(), "2");
        assert_eq!(get(&server, "b"), Reply::Nil);
        assert!(matches!(server.command(&["LPUSH", "a", "x"]), Reply::Error(text) if text.starts_with("WRONGTYPE")));
        let list = Reply::List(vec![Reply::Text(b"2".to_vec()), Reply::Nil]);
        assert_eq!(server.command(&["MGET", "a", "b"]), list);
        assert_eq!(server.command(&["MGET", "b", ""]), Reply::List(vec![Reply::Nil, Reply::Nil]));
        assert_eq!(server.info("tcp_port"), Some(server.port().to_string()));
        assert!(server.log().contains("Ready to accept connections"));
    }

    #[test]
    fn aof_survives_a_kill_and_a_stop() {
        let server = Setup::new().append_only(true).argument("--maxmemory").argument("64mb").start();
        assert_eq!(server.info("maxmemory").as_deref(), Some("67108864"));
        server.command(&["SET", "a", "1"]);
        server.kill();
        assert!(!server.is_up());
        server.start_again();
        assert_eq!(get(&server, "a"), "1");
        server.command(&["SET", "a", "2"]);
        server.stop();
        server.start_again();
        assert_eq!(get(&server, "a"), "2");
        server.kill();
        server.start_again_empty();
        assert_eq!(get(&server, "a"), Reply::Nil);
    }

    #[test]
    fn only_the_dump_survives_without_aof() {
        let server = Server::start();
        server.command(&["SET", "a", "1"]);
        server.save();
        server.command(&["SET", "a", "2"]);
        server.stop();
        server.start_again();
        assert_eq!(get(&server, "a"), "1");
    }

    #[test]
    fn server_restarts_from_an_old_dump() {
        for append_only in [false, true] {
            let server = Setup::new().append_only(append_only).start();
            server.command(&["SET", "a", "old"]);
            let dump = server.copy_dump();
            server.command(&["SET", "a", "new"]);
            server.command(&["SET", "b", "new"]);
            server.restore_dump(&dump);
            assert_eq!(get(&server, "a"), Reply::Text(b"old".to_vec()));
            assert_eq!(get(&server, "b"), Reply::Nil);
            server.command(&["SET", "c", "1"]);
            server.stop();
            server.start_again();
            let kept = if append_only { Reply::Text(b"1".to_vec()) } else { Reply::Nil };
            assert_eq!(get(&server, "a"), Reply::Text(b"old".to_vec()));
            assert_eq!(get(&server, "c"), kept);
        }
    }

    #[test]
    fn paused_server_answers_later() {
        let server = Server::start();
        server.pause();
        assert!(!server.is_up());
        let mut client = Client::open(server.address(), ANSWER_WITHIN).expect("the kernel accepts");
        client.send(&["PING"]).unwrap();
        assert!(client.is_silent(Duration::from_millis(200)).unwrap());
        server.resume();
        assert_eq!(client.read().unwrap(), "PONG");
        server.pause();
        server.stop();
        server.start_again();
        assert_eq!(server.command(&["PING"]), "PONG");
    }

    #[test]
    fn replica_follows_its_master() {
        let master = Server::start();
        master.command(&["SET", "a", "1"]);
        let replica = Setup::new().append_only(true).replica_of(master.port()).start();
        replica.wait_until_linked();
        assert_eq!(get(&replica, "a"), "1");
        master.command(&["SET", "a", "2"]);
        wait_until("a write at the replica", || get(&replica, "a") == "2");
        replica.stop();
    }
}
