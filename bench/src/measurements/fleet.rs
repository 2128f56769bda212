//! A fleet: creates and redirects per second of three nodes beside one, and what each of them costs Redis.
//!
//! All nodes and Redis share the CPUs that the client leaves free. On a machine with two CPUs, three nodes therefore
//! show what sharing costs, and not how a fleet scales.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::client;
use crate::machine::cpus::Cpus;
use crate::results::{FleetResults, FleetRun, RedisLoad};
use crate::servers::peers::{self, BenchDirs};
use crate::servers::process::{Server, free_port};
use crate::terminal::say;

/// Redis, as Debian installs it.
const REDIS: &str = "/usr/bin/redis-server";

/// Connections of the client, over all nodes.
const CONNECTIONS: &str = "48";

/// Links that the client creates before it requests them.
const LINKS: &str = "2000";

/// Nodes of the largest fleet.
const NODES: usize = 3;

/// Time within which all nodes must be ready.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

/// Time within which a node must send its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a fleet rests before its idle load on Redis is measured: a node asks for counts of others once a second.
const REST_TIME: Duration = Duration::from_secs(3);

/// Rate of the requests that follow links in a run for its creates only: a few, so that the run has a result.
const FEW: &str = "20";

/// Secret from which all nodes generate their codes.
const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// The loads: a name, the kind of requests, and the rate of an open loop.
const SCENARIOS: [(&str, &str, Option<&str>); 4] = [
    ("creates, as many as possible", "create", None),
    ("redirects, as many as possible", "redirect", None),
    ("creates, 500/s", "create", Some("500")),
    ("redirects, 5,000/s", "redirect", Some("5000")),
];

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct FleetOptions {
    /// Runs of each measurement.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
    /// Another build of carom to measure.
    pub(crate) carom: Option<PathBuf>,
}

/// Returns why this machine cannot measure a fleet; `None` if it can.
pub(crate) fn obstacle() -> Option<&'static str> {
    (!Path::new(REDIS).exists()).then_some("redis-server is not installed")
}

/// Runs the measurements, and adds their results to `results`.
pub(crate) fn run(
    order: &FleetOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut FleetResults,
) -> Result<()> {
    results.redis = peers::version(REDIS, "--version");
    results.scenarios = SCENARIOS.map(|(name, ..)| name.to_owned()).to_vec();
    results.subjects = ["one node without Redis", "one node", "three nodes"].map(str::to_owned).to_vec();
    for round in 0..order.rounds {
        for (subject, (nodes, shares)) in results.subjects.clone().iter().zip([(1, false), (1, true), (NODES, true)]) {
            let folder = place.scratch.join(format!("fleet-{round}-{nodes}-{shares}"));
            std::fs::create_dir_all(&folder)?;
            let fleet = BenchFleet::start(order, place, cpus, (nodes, shares), &folder)?;
            let idle = fleet.idle(order.seconds)?;
            for (scenario, kind, rate) in SCENARIOS {
                let run = fleet.measure(order, place, cpus, (kind, rate), idle)?;
                say(&format!(
                    "{subject}, {scenario}: {:.0}/s, {:.2} commands and {:.0} bytes of Redis each",
                    run.0, run.1.commands, run.1.bytes
                ));
                results.runs.push(FleetRun {
                    subject: subject.clone(),
                    scenario: scenario.to_owned(),
                    throughput: run.0,
                    redis: shares.then_some(run.1),
                    idle: shares.then_some(idle),
                    errors: run.2,
                });
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
            }
            drop(fleet);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// Nodes, and the Redis that they share.
struct BenchFleet {
    // Dropped in this order: nodes bring their last changes to Redis.
    nodes: Vec<Server>,
    redis: Option<Server>,
    /// Bytes of the questions of this program to Redis and of their answers, which are no work of the fleet.
    own_bytes: Cell<f64>,
}

/// Work of Redis so far: commands, those of scripts included, and bytes in both directions.
#[derive(Clone, Copy, Debug, Default)]
struct RedisWork {
    commands: f64,
    bytes: f64,
}

impl BenchFleet {
    fn start(
        order: &FleetOptions,
        place: &BenchDirs,
        cpus: &Cpus,
        (nodes, shares): (usize, bool),
        folder: &Path,
    ) -> Result<BenchFleet> {
        let cpu = cpus.server.to_string();
        let redis = shares.then(|| start_redis(folder, &cpu)).transpose()?;
        let mut fleet = BenchFleet { nodes: Vec::new(), redis, own_bytes: Cell::new(0.0) };
        let mut admins = Vec::new();
        for node in 0..nodes {
            let (address, admin) = (SocketAddr::from(([127, 0, 0, 1], free_port()?)), free_port()?);
            let data = folder.join(format!("node{node}"));
            let mut command = peers::carom_command(place, &data, &format!("{cpu}-{cpu}"), address, admin);
            if let Some(carom) = &order.carom {
                command[0] = carom.display().to_string();
            }
            if let Some(redis) = &fleet.redis {
                let secret = folder.join("space.key");
                if !secret.exists() {
                    // A node refuses a secret that other users can read.
                    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret);
                    file?.write_all(SECRET.as_bytes())?;
                }
                let words = ["--redis".to_owned(), format!("redis://{}", redis.address)];
                command.extend(words);
                let secret = format!("CAROM_SPACE_KEY_FILE={}", secret.display());
                let about = ["env".to_owned(), secret, format!("CAROM_FLEET_NODE=node{node}")];
                command.splice(0..0, about);
            }
            fleet.nodes.push(Server::start(&command, &cpu, address, &folder.join(format!("node{node}.log")))?);
            admins.push(admin);
        }
        let begin = Instant::now();
        while !admins.iter().all(|admin| is_ready(*admin)) {
            if begin.elapsed() > READY_TIME_MAX {
                bail!("a node is not ready after {READY_TIME_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(fleet)
    }

    /// Returns what Redis does in a second without requests of clients.
    fn idle(&self, seconds: u64) -> Result<RedisLoad> {
        if self.redis.is_none() {
            return Ok(RedisLoad::default());
        }
        std::thread::sleep(REST_TIME);
        let (begin, before) = (Instant::now(), self.work()?);
        std::thread::sleep(Duration::from_secs(seconds));
        let after = self.work()?;
        let time = begin.elapsed().as_secs_f64();
        Ok(RedisLoad {
            commands: (after.commands - before.commands) / time,
            bytes: (after.bytes - before.bytes) / time,
        })
    }

    /// Returns what Redis has done so far for the nodes; nothing without Redis.
    fn work(&self) -> Result<RedisWork> {
        let Some(redis) = &self.redis else { return Ok(RedisWork::default()) };
        let (calls, own) = info(redis.address, "commandstats")?;
        self.own_bytes.set(self.own_bytes.get() + own);
        let commands = calls.iter().filter(|(name, _)| *name != "cmdstat_info");
        let commands =
            commands.filter_map(|(_, value)| value.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok());
        let (stats, own) = info(redis.address, "stats")?;
        let number =
            |name: &str| stats.get(name).and_then(|value| value.parse::<f64>().ok()).context("no bytes in INFO");
        let bytes = number("total_net_input_bytes")? + number("total_net_output_bytes")? - self.own_bytes.get();
        self.own_bytes.set(self.own_bytes.get() + own);
        Ok(RedisWork { commands: commands.sum(), bytes })
    }

    /// Returns the requests per second, what one costs Redis beyond its idle load, and the errors.
    fn measure(
        &self,
        order: &FleetOptions,
        place: &BenchDirs,
        cpus: &Cpus,
        (kind, rate): (&str, Option<&str>),
        idle: RedisLoad,
    ) -> Result<(f64, RedisLoad, u64)> {
        let ask = |kind: &str, rate: Option<&str>, links: &str, seconds: u64| -> Result<Value> {
            let report = place.scratch.join("fleet.json");
            let mut command = Command::new(place.programs.join("carom-loadgen"));
            for node in &self.nodes {
                command.args(["--target", &node.address.to_string()]);
            }
            command.args(["--headers", "minimal", "--quiet", "--warmup", "0s", "--connections", CONNECTIONS]);
            command.args(["--create", links, "--mix", &format!("{kind}=1"), "--cpus", &cpus.client.to_string()]);
            command.args(["--duration", &format!("{seconds}s")]).arg("--json").arg(&report);
            match rate {
                Some(rate) => command.args(["--rate", rate]),
                None => command.arg("--closed"),
            };
            client::run_with_errors(&mut command, &report)
        };
        // The links that the generator creates first are no part of the measurement: a run without them is subtracted.
        let links = if kind == "redirect" { LINKS } else { "1" };
        let (begin, before) = (Instant::now(), self.work()?);
        let json = ask(kind, rate, links, order.seconds)?;
        std::thread::sleep(REST_TIME);
        let (time, after) = (begin.elapsed().as_secs_f64(), self.work()?);
        let number = |path: &str| json.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"));
        let requests = number("/requests/completed")?.max(1.0);
        let errors = number("/errors/total")? as u64 + number("/requests/unsent")? as u64;
        let made = if kind == "redirect" { self.cost_of_links(idle, &ask)? } else { RedisWork::default() };
        let each = |of: fn(&RedisWork) -> f64, idle: f64| {
            ((of(&after) - of(&before) - idle * time - of(&made)) / requests).max(0.0)
        };
        let load = RedisLoad {
            commands: each(|work| work.commands, idle.commands),
            bytes: each(|work| work.bytes, idle.bytes),
        };
        Ok((number("/throughput")?, load, errors))
    }

    /// Returns what Redis does when the generator creates its links, and requests almost none of them.
    fn cost_of_links(
        &self,
        idle: RedisLoad,
        ask: &impl Fn(&str, Option<&str>, &str, u64) -> Result<Value>,
    ) -> Result<RedisWork> {
        if self.redis.is_none() {
            return Ok(RedisWork::default());
        }
        let (begin, before) = (Instant::now(), self.work()?);
        ask("redirect", Some(FEW), LINKS, 1)?;
        std::thread::sleep(REST_TIME);
        let (time, after) = (begin.elapsed().as_secs_f64(), self.work()?);
        Ok(RedisWork {
            commands: after.commands - before.commands - idle.commands * time,
            bytes: after.bytes - before.bytes - idle.bytes * time,
        })
    }
}

/// Starts a Redis with an append-only file in a folder, on a CPU.
pub(crate) fn start_redis(folder: &Path, cpu: &str) -> Result<Server> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let data = folder.join("redis");
    std::fs::create_dir_all(&data)?;
    let port = address.port().to_string();
    let words = [REDIS, "--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "yes", "--dir"];
    let mut command: Vec<String> = words.map(str::to_owned).to_vec();
    command.push(data.display().to_string());
    Server::start(&command, cpu, address, &folder.join("redis.log"))
}

/// Returns the status of a node, given the port of its admin listener.
pub(crate) fn status(admin: u16) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", admin))?;
    stream.set_read_timeout(Some(STATUS_TIMEOUT))?;
    stream.write_all(
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (_, body) = reply.split_once("\r\n\r\n").context("no body")?;
    Ok(serde_json::from_str(body)?)
}

/// True if a node serves and has compared its links with Redis.
pub(crate) fn is_ready(admin: u16) -> bool {
    status(admin).is_ok_and(|status| {
        let shares = status["redis"]["configured"] == true;
        let agrees = || status["redis"]["connected"] == true && status["fleet"]["comparing"] == 0;
        status["ready"] == true && (!shares || agrees())
    })
}

/// Describes what a node waits for before it is ready, as [`is_ready`] says it.
pub(crate) fn progress(admin: u16) -> String {
    match status(admin) {
        Ok(status) => format!(
            "ready: {}, connected to Redis: {}, partitions to compare: {}",
            status["ready"], status["redis"]["connected"], status["fleet"]["comparing"]
        ),
        Err(error) => format!("no status: {error}"),
    }
}

/// Returns the memory that a Redis uses, in bytes.
pub(crate) fn used_memory(redis: SocketAddr) -> Result<f64> {
    let (memory, _) = info(redis, "memory")?;
    memory.get("used_memory").and_then(|value| value.parse().ok()).context("no memory in INFO")
}

/// Returns a section of `INFO` by name, and the bytes of question and answer.
fn info(redis: SocketAddr, section: &str) -> Result<(BTreeMap<String, String>, f64)> {
    let stream = TcpStream::connect(redis)?;
    let question = format!("INFO {section}\r\n");
    (&stream).write_all(question.as_bytes())?;
    let mut answer = BufReader::new(stream);
    let mut head = String::new();
    answer.read_line(&mut head)?;
    let length: usize =
        head.strip_prefix('$').and_then(|text| text.trim().parse().ok()).context("no answer to INFO")?;
    // The answer ends with a line break.
    let mut text = vec![0; length + 2];
    answer.read_exact(&mut text)?;
    let bytes = (question.len() + head.len() + text.len()) as f64;
    Ok((parsed(&String::from_utf8_lossy(&text)), bytes))
}

fn parsed(info: &str) -> BTreeMap<String, String> {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_info_are_read() {
        let text = "# Commandstats\r\ncmdstat_get:calls=21,usec=175\r\n# Stats\r\ntotal_net_input_bytes:2500\r\n";
        let parsed = parsed(text);
        assert_eq!(parsed["cmdstat_get"], "calls=21,usec=175");
        assert_eq!(parsed["total_net_input_bytes"], "2500");
    }
}
