//! The join of a new node from a running one, which answers redirects meanwhile. Both nodes, Redis and the client share
//! two CPUs. Also what the links take: memory of Redis, and the disk of a node.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::{self, Scenario};
use crate::machine::cpus::Cpus;
use crate::measurements::shared_home::bytes_below;
use crate::measurements::{fleet, growth};
use crate::results::{Figure, Results, median};
use crate::servers::peers::{self, BenchDirs, Running};
use crate::servers::process::{Server, free_port};
use crate::terminal::say;

/// Redirects per second of the running node.
const RATE: f64 = 20_000.0;

/// Time within which a node must be ready, also if it joins or has to bring all links to Redis.
const READY_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct JoinOptions {
    /// Joins of each number of links.
    pub(crate) rounds: usize,
    /// Seconds of each run of redirects.
    pub(crate) seconds: u64,
    /// Numbers of links.
    pub(crate) links: Vec<u64>,
}

/// Runs the measurements, and adds their figures to `results`.
pub(crate) fn run(
    order: &JoinOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut Results,
) -> Result<()> {
    for &links in &order.links {
        let folder = place.data.join(format!("join-{links}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let both = format!("{},{}", cpus.server, cpus.client);
        let redis = fleet::start_redis(&folder, &both)?;
        let bench = JoinBench { order, place, cpus, folder: &folder, both, redis: redis.address, links };
        bench.measure(stop, results)?;
        drop(redis);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

struct JoinBench<'a> {
    order: &'a JoinOptions,
    place: &'a BenchDirs,
    cpus: &'a Cpus,
    folder: &'a Path,
    /// Both CPUs.
    both: String,
    redis: SocketAddr,
    links: u64,
}

/// A command that starts a node, and its addresses.
struct NodeCommand {
    words: Vec<String>,
    address: SocketAddr,
    admin: u16,
    log: PathBuf,
}

impl JoinBench<'_> {
    fn measure(&self, stop: &AtomicBool, results: &mut Results) -> Result<()> {
        let before = fleet::used_memory(self.redis)?;
        let (peer, admin) = self.peer()?;
        let memory = (fleet::used_memory(self.redis)? - before) / self.links as f64;
        let (mut seconds, mut p99, mut data) = (Vec::new(), 0.0_f64, self.folder.join("peer"));
        for round in 0..self.order.rounds {
            data = self.folder.join(format!("new{round}"));
            let joined = self.join(&peer, admin, &data)?;
            seconds.push(joined.0);
            p99 = p99.max(joined.1);
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
        }
        drop(peer);
        let disk = bytes_below(&data)?;
        let limit = growth::hot_limit(self.links);
        let hot = ["CAROM_LINKS_RESIDENCY=hot".to_owned(), format!("CAROM_LINKS_MEMORY_LIMIT={limit}")];
        drop(self.settled(&self.command("hot", &data, &hot)?)?);
        let hot_disk = bytes_below(&data)?;
        let links = self.links;
        let mut add = |name: String, value: f64, unit: &str, how: &str| {
            say(&format!("{name}: {value:.2} {unit}"));
            results.growth.retain(|figure| figure.name != name);
            let (unit, how) = (unit.to_owned(), how.to_owned());
            results.growth.push(Figure { name, value, unit, budget: None, how });
        };
        let how = "from the start of the process until it has followed Redis; the peer, Redis and a client with 20,000 redirects/s on the same two CPUs";
        add(format!("join, {links} links"), median(seconds).unwrap_or(0.0), "s", how);
        let how = "open loop at 20,000/s, the worst of the runs during a join";
        add(format!("p99 of the peer during a join, {links} links"), p99, "µs", how);
        let how = "used_memory of Redis with all links, which changed within the retention";
        add(format!("Redis memory per link, {links} links"), memory, "bytes", how);
        let how = "the data directory of a node that has joined, once it is idle";
        add(format!("disk of a node, {links} links"), disk as f64, "bytes", how);
        add(format!("disk of a node, {links} links, hot residency"), hot_disk as f64, "bytes", how);
        Ok(())
    }

    /// Starts the node that has the links, and returns it with its admin port once Redis has them, too.
    fn peer(&self) -> Result<(Running, u16)> {
        let data = self.folder.join("peer");
        growth::copy_folder(&peers::carom_data(self.place, self.links)?, &data)?;
        let secret = std::fs::read(data.join("space.key")).context("the data set has no code secret")?;
        // A node refuses a secret that other users can read.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.secret());
        file?.write_all(&secret)?;
        let command = self.command("peer", &data, &[])?;
        let server = self.settled(&command)?;
        Ok((Running { server, helper: None, twin: None, is_secure: false }, command.admin))
    }

    fn secret(&self) -> PathBuf {
        self.folder.join("space.key")
    }

    /// Returns the command that starts a node of the fleet with further settings from the environment.
    fn command(&self, name: &str, data: &Path, settings: &[String]) -> Result<NodeCommand> {
        let (address, admin) = (SocketAddr::from(([127, 0, 0, 1], free_port()?)), free_port()?);
        let secret = format!("CAROM_SPACE_KEY_FILE={}", self.secret().display());
        let mut words = vec!["env".to_owned(), secret, format!("CAROM_FLEET_NODE={name}")];
        words.extend_from_slice(settings);
        words.extend(peers::carom_command(self.place, data, &self.both, address, admin));
        words.extend(["--redis".to_owned(), format!("redis://{}", self.redis)]);
        Ok(NodeCommand { words, address, admin, log: self.folder.join(format!("{name}.log")) })
    }

    /// Starts a node, and returns it once it has followed Redis.
    fn ready(&self, command: &NodeCommand) -> Result<Server> {
        let begin = Instant::now();
        let server = Server::start_within(READY_TIME_MAX, &command.words, &self.both, command.address, &command.log)?;
        while !fleet::is_ready(command.admin) {
            if begin.elapsed() > READY_TIME_MAX {
                bail!("a node is not ready after {READY_TIME_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Starts a node, and returns it once it has nothing more to do.
    fn settled(&self, command: &NodeCommand) -> Result<Server> {
        let server = self.ready(command)?;
        server.await_idle()?;
        Ok(server)
    }

    /// Lets a new node join, and stops it once it is idle. Returns the seconds of the join, and the worst p99 of
    /// redirects of the peer meanwhile, in microseconds.
    fn join(&self, peer: &Running, admin: u16, data: &Path) -> Result<(f64, f64)> {
        let name = data.file_name().and_then(|name| name.to_str()).context("a folder has a name")?;
        let command = self.command(name, data, &[format!("CAROM_FLEET_JOIN_FROM=http://127.0.0.1:{admin}")])?;
        let is_done = AtomicBool::new(false);
        let (joined, p99) = std::thread::scope(|scope| -> Result<_> {
            let joining = scope.spawn(|| {
                let begin = Instant::now();
                let server = self.ready(&command);
                let seconds = begin.elapsed().as_secs_f64();
                is_done.store(true, Ordering::Release);
                server.map(|server| (server, seconds))
            });
            let mut p99 = 0.0_f64;
            while !is_done.load(Ordering::Acquire) {
                p99 = p99.max(self.p99(peer)?);
            }
            Ok((joining.join().expect("the thread does not panic"), p99))
        })?;
        let (server, seconds) = joined?;
        server.await_idle()?;
        Ok((seconds, p99))
    }

    fn p99(&self, peer: &Running) -> Result<f64> {
        let load = Scenario { name: "", connections: 64, pipeline: 1, renew: None, rate: Some(RATE), zipf: None };
        let (client, seconds) = (self.cpus.client, self.order.seconds);
        Ok(client::measure(peer, &load, self.links, false, client, seconds, self.place)?.p99)
    }
}
