//! The join of a new node from a running one, which answers redirects meanwhile. Both nodes, Redis and the client share
//! two CPUs. Also what the links take: memory of Redis, and the disk of a node.
//!
//! A node that brings links to Redis asks it twice for each and reads the change back: ten million take more than ten
//! minutes, longer than all other steps. The peer therefore has links that have not changed within the retention, which
//! Redis does not have.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use carom_model::replication::Partition;
use carom_shards::CodeSecret;
use carom_store::links::Links;

use crate::client::long_load::{LongLoad, LongRun};
use crate::client::{self, Load, Scenario};
use crate::data;
use crate::machine::cpus::Cpus;
use crate::measurements::{fleet, growth};
use crate::results::{Budget, BudgetedFigure, Results, Sample, median};
use crate::servers::peers::{self, BenchDirs};
use crate::servers::process::{SAY_EVERY, Server, ServerCpu, free_port};
use crate::terminal::say;

/// Redirects per second of the running node.
const RATE: f64 = 20_000.0;

/// Share of them that must have been sent, for a run to count as one at this rate.
const RATE_KEPT_MIN: f64 = 0.98;

/// Links that the client requests, evenly spread over all. With all of them, the client would read a file of gigabytes
/// beside the join.
const REQUESTED_LINKS: u64 = 100_000;

/// Links with which the memory of Redis is measured. A node brings so many to Redis in much less than a minute.
const REDIS_LINKS: u64 = 200_000;

/// Time within which a node that has its links must be ready.
const READY_TIME_MAX: Duration = Duration::from_secs(180);

/// Time within which a node must have joined.
const JOIN_TIME_MAX: Duration = Duration::from_secs(420);

/// Time of the redirects beside a join, unless the join ends sooner.
const LOAD_TIME_MAX: Duration = Duration::from_secs(480);

/// Time for the joins with one number of links. Another round begins only if it fits.
const JOINS_TIME: Duration = Duration::from_secs(110);

/// Most links for which a join has a budget, of seconds and of microseconds at the 99th percentile.
const BUDGET_LINKS: u64 = 10_000_000;
const JOIN_SECONDS_MAX: f64 = 60.0;
const P99_MICROS_MAX: f64 = 5_000.0;

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct JoinOptions {
    /// Largest number of joins with each number of links.
    pub(crate) rounds: usize,
    /// Seconds of each run of redirects without a join, and of the parts of a join whose worst is reported.
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
    let both = format!("{},{}", cpus.server, cpus.client);
    for &links in &order.links {
        let folder = place.data.join(format!("join-{links}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let few = folder.join("few");
        std::fs::create_dir_all(&few)?;
        let bench_of = |folder, redis: &Server, links| JoinBench {
            order,
            place,
            cpus,
            stop,
            folder,
            both: both.clone(),
            redis: redis.address,
            links,
        };
        let redis = fleet::start_redis(&few, &both)?;
        let memory = bench_of(few, &redis, links.min(REDIS_LINKS)).redis_memory()?;
        drop(redis);
        let redis = fleet::start_redis(&folder, &both)?;
        bench_of(folder.clone(), &redis, links).measure(memory, results)?;
        drop(redis);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

struct JoinBench<'a> {
    order: &'a JoinOptions,
    place: &'a BenchDirs,
    cpus: &'a Cpus,
    stop: &'a AtomicBool,
    folder: PathBuf,
    /// The list of both CPUs.
    both: String,
    redis: SocketAddr,
    links: u64,
}

/// A command that starts a node, and its addresses.
struct NodeCommand {
    name: String,
    words: Vec<String>,
    address: SocketAddr,
    admin: u16,
    log: PathBuf,
}

/// The joins with one number of links.
struct Joins {
    /// Seconds of each.
    seconds: Vec<f64>,
    /// The redirects during each.
    loads: Vec<LongRun>,
    /// The data directory of the last node that has joined.
    data: PathBuf,
}

impl JoinBench<'_> {
    /// Returns the memory of Redis for each link that has changed within the retention, in bytes.
    fn redis_memory(&self) -> Result<f64> {
        say(&format!("bringing {} links to Redis", self.links));
        let before = fleet::used_memory(self.redis)?;
        let data = self.data_set("few")?;
        let node = self.ready(&self.command("few", &data, &[])?, READY_TIME_MAX)?;
        let memory = (fleet::used_memory(self.redis)? - before) / self.links as f64;
        drop(node);
        std::fs::remove_dir_all(&data)?;
        Ok(memory)
    }

    fn measure(&self, memory: f64, results: &mut Results) -> Result<()> {
        let (peer, admin) = self.peer()?;
        let alone = (0..self.order.rounds).map(|_| self.redirects(&peer)).collect::<Result<Vec<Sample>>>()?;
        let joins = self.joins(&peer, admin)?;
        drop(peer);
        say("waiting until a node that has joined is idle, for the disk that it takes");
        drop(self.settled(&self.command("settled", &joins.data, &[])?)?);
        let disk = growth::bytes_below(&joins.data)?;
        drop(self.settled(&self.command("hot", &joins.data, &growth::hot_settings(self.links))?)?);
        let hot_disk = growth::bytes_below(&joins.data)?;
        self.note_missed_rate(&joins.loads, results);
        let parts = joins.loads.iter().map(|load| load.worst_p99(self.order.seconds as usize));
        let worst_part = parts.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
        let links = self.links;
        let of_join = |max: f64| (links <= BUDGET_LINKS).then_some(Budget::AtMost(max));
        let mut add = |name: String, value: f64, unit: &str, budget: Option<Budget>, how: &str| {
            say(&format!("{name}: {value:.2} {unit}"));
            let (unit, how) = (unit.to_owned(), how.to_owned());
            results.set_growth(BudgetedFigure { name, value, unit, budget, how, measured: String::new() });
        };
        let how = "from the start of the process until it has followed Redis; the peer, Redis and a client with 20,000 redirects/s on the same two CPUs";
        let seconds = median(joins.seconds).unwrap_or(0.0);
        add(format!("join, {links} links"), seconds, "s", of_join(JOIN_SECONDS_MAX), how);
        let how = "open loop at 20,000/s, all requests of a join; the median of the joins";
        let p99 = median(joins.loads.iter().map(|load| load.whole.p99).collect()).unwrap_or(0.0);
        add(format!("p99 of the peer during a join, {links} links"), p99, "µs", of_join(P99_MICROS_MAX), how);
        let how = format!("the same load, the worst {} seconds of all joins", self.order.seconds);
        add(format!("p99 of the peer in the worst part of a join, {links} links"), worst_part, "µs", None, &how);
        let how = "the same load just before the joins, the worst of the runs";
        add(format!("p99 of the peer without a join, {links} links"), worst(&alone), "µs", None, how);
        let few = links.min(REDIS_LINKS);
        let how = format!("used_memory of Redis with {few} of the links, which changed within the retention");
        add(format!("Redis memory per link, {links} links"), memory, "bytes", None, &how);
        let how = "the data directory of a node that has joined, once it is idle";
        add(format!("disk of a node, {links} links"), disk as f64, "bytes", None, how);
        add(format!("disk of a node, {links} links, hot residency"), hot_disk as f64, "bytes", None, how);
        Ok(())
    }

    /// Adds a remark for each join in which the peer did not answer the redirects that the figures name.
    fn note_missed_rate(&self, loads: &[LongRun], results: &mut Results) {
        for Sample { throughput, errors, .. } in loads.iter().map(|load| load.whole) {
            if throughput >= RATE_KEPT_MIN * RATE && errors == 0 {
                continue;
            }
            let links = self.links;
            let note = format!(
                "Beside a join with {links} links, the peer answered {throughput:.0} redirects/s; errors: {errors}."
            );
            say(&note);
            results.growth_notes.push(note);
        }
    }

    /// Copies the data set with the links, and writes its code secret to a file for all nodes.
    fn data_set(&self, name: &str) -> Result<PathBuf> {
        let data = self.folder.join(name).join("data");
        growth::copy_folder(&peers::carom_data(self.place, self.links)?, &data)?;
        let secret = std::fs::read(data.join("space.key")).context("the data set has no code secret")?;
        // A node refuses a secret that other users can read.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.secret());
        file?.write_all(&secret)?;
        Ok(data)
    }

    /// Starts the node that has the links, and returns it with its admin port once it has nothing more to do.
    fn peer(&self) -> Result<(Server, u16)> {
        say(&format!("preparing a node of a fleet with {} links", self.links));
        let data = self.data_set("peer")?;
        let empty = self.folder.join("empty");
        drop(self.ready(&self.command("peer", &empty, &[])?, READY_TIME_MAX)?);
        let secret = CodeSecret::from_hex(&std::fs::read_to_string(self.secret())?)?;
        copy_positions(&empty, &data, &secret.fingerprint())?;
        let command = self.command("peer", &data, &[])?;
        Ok((self.settled(&command)?, command.admin))
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
        let log = self.folder.join(format!("{name}.log"));
        Ok(NodeCommand { name: name.to_owned(), words, address, admin, log })
    }

    /// Starts a node, and returns it once it has followed Redis.
    fn ready(&self, command: &NodeCommand, time_max: Duration) -> Result<Server> {
        let (begin, mut said) = (Instant::now(), Instant::now());
        let server = Server::start_within(time_max, &command.words, &self.both, command.address, &command.log)?;
        let name = &command.name;
        while !fleet::is_ready(command.admin) {
            if self.stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if begin.elapsed() > time_max {
                bail!("the node {name} is not ready after {time_max:?}; {}", fleet::progress(command.admin));
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                say(&format!("{} s: the node {name}: {}", begin.elapsed().as_secs(), fleet::progress(command.admin)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Starts a node, and returns it once it has nothing more to do.
    fn settled(&self, command: &NodeCommand) -> Result<Server> {
        let server = self.ready(command, READY_TIME_MAX)?;
        server.await_idle().with_context(|| format!("the node {}", command.name))?;
        Ok(server)
    }

    /// Lets nodes join, one after the other.
    fn joins(&self, peer: &Server, admin: u16) -> Result<Joins> {
        let (begin, mut joins) = (Instant::now(), Joins { seconds: vec![], loads: vec![], data: PathBuf::new() });
        for round in 0..self.order.rounds {
            let longest = joins.seconds.iter().copied().fold(0.0, f64::max);
            if begin.elapsed().as_secs_f64() + longest > JOINS_TIME.as_secs_f64() {
                say(&format!("no time for more than {round} joins with {} links", self.links));
                break;
            }
            if round > 0 {
                std::fs::remove_dir_all(&joins.data)?;
            }
            joins.data = self.folder.join(format!("new{round}"));
            let (seconds, load) = self.join(peer, admin, &joins.data)?;
            let Sample { throughput, p99, .. } = load.whole;
            let (join, joins_max) = (round + 1, self.order.rounds);
            say(&format!("join {join} of {joins_max}: {seconds:.1} s; {throughput:.0} redirects/s, p99 {p99:.0} µs"));
            joins.seconds.push(seconds);
            joins.loads.push(load);
        }
        Ok(joins)
    }

    /// Lets a new node join, and stops it. Returns the seconds of the join, and the redirects of the peer from its beginning
    /// to its end.
    fn join(&self, peer: &Server, admin: u16, data: &Path) -> Result<(f64, LongRun)> {
        let name = data.file_name().and_then(|name| name.to_str()).context("a folder has a name")?;
        let command = self.command(name, data, &[format!("CAROM_FLEET_JOIN_FROM=http://127.0.0.1:{admin}")])?;
        let load = LongLoad::start(&self.load(peer, LOAD_TIME_MAX.as_secs_f64())?, &scenario(), self.place)?;
        let begin = Instant::now();
        let joined = self.ready(&command, JOIN_TIME_MAX);
        let seconds = begin.elapsed().as_secs_f64();
        let load = load.stop();
        // A failed join is the more important error.
        drop(joined?);
        Ok((seconds, load?))
    }

    fn load(&self, peer: &Server, seconds: f64) -> Result<Load> {
        Ok(Load {
            targets: vec![peer.address],
            is_secure: false,
            codes: data::sample(&self.place.data, self.links, REQUESTED_LINKS)?,
            is_constant: false,
            cpu: self.cpus.client,
            seconds,
        })
    }

    fn redirects(&self, peer: &Server) -> Result<Sample> {
        let load = self.load(peer, self.order.seconds as f64)?;
        let sample = client::sample(&client::ask(&load, &scenario(), self.place)?, ServerCpu::default())?;
        say(&format!("{:.0} redirects/s, p50 {:.0} µs, p99 {:.0} µs", sample.throughput, sample.p50, sample.p99));
        Ok(sample)
    }
}

fn scenario() -> Scenario {
    Scenario { name: "", connections: 64, pipeline: 1, renew: None, rate: Some(RATE), zipf: None }
}

/// Returns the largest 99th percentile of some runs, in microseconds.
fn worst(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.p99).fold(0.0, f64::max)
}

/// Gives a store that was in no fleet the positions of a node that has read all streams. With them, that store has nothing
/// to compare with Redis. No process may have either of the data directories open.
fn copy_positions(from: &Path, to: &Path, fingerprint: &str) -> Result<()> {
    let open = |data: &Path| Links::open(&data.join("links"), fingerprint).map(|(links, _)| links);
    let (from, to) = (open(from)?, open(to)?);
    let mut batch = to.batch();
    batch.join_fleet();
    batch.set_followed(&from.followed()?);
    for partition in Partition::all() {
        let position = from.position(partition)?.context("a node that was ready has no position in a stream")?;
        batch.set_position(partition, &position);
    }
    to.commit(batch)?;
    Ok(to.sync()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::replication::EntryId;
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::retention::FollowedSpan;

    #[test]
    fn store_with_copied_positions_has_nothing_to_compare() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        let open = |data: &Path| Links::open(&data.join("links"), "key").unwrap().0;
        let position = |number: u8| {
            let id = EntryId { ms: 7, seq: u64::from(number) };
            StreamPosition { id, check: 9 }
        };
        let span = FollowedSpan { began_ms: 5, until_ms: 6, expiring_ms: 4 };
        [&from, &to].into_iter().for_each(|data| std::fs::create_dir(data).unwrap());
        let links = open(&from);
        let mut batch = links.batch();
        Partition::all().for_each(|partition| batch.set_position(partition, &position(partition.0)));
        batch.set_followed(&span);
        links.commit(batch).unwrap();
        drop(links);
        copy_positions(&from, &to, "key").unwrap();
        let links = open(&to);
        assert!(links.has_joined_fleet().unwrap());
        assert_eq!(links.followed().unwrap(), span);
        for partition in Partition::all() {
            assert_eq!(links.position(partition).unwrap(), Some(position(partition.0)));
            assert!(!links.must_compare(partition).unwrap());
        }
    }
}
