//! A node whose links are in Redis, with a tenth of them in memory: the share of redirects that memory serves by Zipf's law,
//! the latency of both kinds, and the bytes on the disk of the node.
//!
//! Redis is filled by a node that stores all links. Redis and the measured node share the CPU that the client leaves free.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::client::{self, Scenario};
use crate::machine::cpus::Cpus;
use crate::measurements::fleet;
use crate::measurements::growth;
use crate::results::{BudgetedFigure, Results, Sample, median};
use crate::servers::peers::{self, BenchDirs, Running};
use crate::servers::process::{SAY_EVERY, Server, free_port};
use crate::terminal::say;

/// Memory for a link of the data sets, in bytes.
const BYTES_PER_LINK: u64 = 140;

/// Divisor of the links that are to be in memory.
const SHARE: u64 = 10;

/// Rate of the requests whose latency is measured.
const RATE: f64 = 5_000.0;

/// Links that are all in memory once they have been requested.
const FEW: u64 = 1_000;

/// Time within which a node must have brought all links to Redis.
const FILL_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct SharedOptions {
    /// Runs of each measurement.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
    /// Number of links in Redis.
    pub(crate) links: u64,
}

/// Runs the measurements, and adds their figures to `results`.
pub(crate) fn run(
    order: &SharedOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut Results,
) -> Result<()> {
    let folder = place.data.join("shared-home");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let redis = fleet::start_redis(&folder, &cpus.server.to_string())?;
    let bench = SharedBench { order, place, cpus, stop, folder: &folder, redis: redis.address };
    bench.fill()?;
    let mut figures = Vec::new();
    for round in 0..order.rounds {
        figures.push(bench.round(round)?);
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
    }
    bench.report(&figures, results);
    drop(redis);
    Ok(std::fs::remove_dir_all(&folder)?)
}

struct SharedBench<'a> {
    order: &'a SharedOptions,
    place: &'a BenchDirs,
    cpus: &'a Cpus,
    stop: &'a AtomicBool,
    folder: &'a Path,
    redis: SocketAddr,
}

/// The figures of one round.
struct Round {
    /// Share of redirects that memory served.
    from_memory: f64,
    /// Requests by Zipf's law.
    zipf: Sample,
    /// Requests for links in memory.
    memory: Sample,
    /// Requests for links of which hardly any is in memory.
    fetched: Sample,
    /// Bytes in the data directory at the end.
    disk: u64,
}

impl SharedBench<'_> {
    /// Brings the links to Redis, from a node that stores all of them.
    fn fill(&self) -> Result<()> {
        let data = self.folder.join("whole");
        growth::copy_folder(&peers::carom_data(self.place, self.order.links)?, &data)?;
        let secret = std::fs::read(data.join("space.key")).context("the data set has no code secret")?;
        // A node refuses a secret that other users can read.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.secret());
        file?.write_all(&secret)?;
        say(&format!("bringing {} links to Redis, which takes minutes for each million", self.order.links));
        let (_node, admin) = self.start("whole", &data, &[])?;
        let (begin, mut said) = (Instant::now(), Instant::now());
        while !fleet::is_ready(admin) {
            if self.stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if begin.elapsed() > FILL_TIME_MAX {
                bail!("Redis does not have all links after {FILL_TIME_MAX:?}; {}", fleet::progress(admin));
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                let used = fleet::used_memory(self.redis)? / 1e6;
                say(&format!("{} s: Redis uses {used:.0} MB; {}", begin.elapsed().as_secs(), fleet::progress(admin)));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        say(&format!("{} links are in Redis", self.order.links));
        Ok(())
    }

    fn secret(&self) -> PathBuf {
        self.folder.join("space.key")
    }

    /// Starts a node of the fleet with further settings from the environment. Returns it, and its admin port.
    fn start(&self, name: &str, data: &Path, settings: &[String]) -> Result<(Running, u16)> {
        let (address, admin) = (SocketAddr::from(([127, 0, 0, 1], free_port()?)), free_port()?);
        let cpu = self.cpus.server.to_string();
        let mut command = vec![
            "env".to_owned(),
            format!("CAROM_SPACE_KEY_FILE={}", self.secret().display()),
            format!("CAROM_FLEET_NODE={name}"),
            "CAROM_FLEET_RETENTION=forever".to_owned(),
        ];
        command.extend_from_slice(settings);
        command.extend(peers::carom_command(self.place, data, &format!("{cpu}-{cpu}"), address, admin));
        command.extend(["--redis".to_owned(), format!("redis://{}", self.redis)]);
        let server = Server::start(&command, &cpu, address, &self.folder.join(format!("{name}.log")))?;
        Ok((Running { server, helper: None, twin: None, is_secure: false }, admin))
    }

    fn sample(&self, node: &Running, links: u64, zipf: Option<f64>, rate: Option<f64>) -> Result<Sample> {
        let scenario = Scenario { name: "", connections: 64, pipeline: 1, renew: None, rate, zipf };
        client::measure(node, &scenario, links, false, self.cpus.client, self.order.seconds, self.place)
    }

    fn round(&self, round: usize) -> Result<Round> {
        let (name, links) = (format!("shared-{round}"), self.order.links);
        let data = self.folder.join(&name);
        let limit = links / SHARE * BYTES_PER_LINK;
        let settings =
            ["CAROM_LINKS_HOME=shared", "CAROM_FLEET_ANSWER_MS=150", &format!("CAROM_LINKS_MEMORY_LIMIT={limit}")];
        let settings = settings.map(str::to_owned);
        let (node, admin) = self.start(&name, &data, &settings)?;
        // The memory is empty, and equally popular links come rarely twice.
        let fetched = self.sample(&node, links, None, Some(RATE))?;
        // A run to fill the memory, and one to measure.
        self.sample(&node, links, Some(1.0), None)?;
        let before = cache(admin)?;
        let zipf = self.sample(&node, links, Some(1.0), Some(RATE))?;
        let after = cache(admin)?;
        let (hits, misses) = (after.0 - before.0, after.1 - before.1);
        self.sample(&node, FEW, None, None)?;
        let memory = self.sample(&node, FEW, None, Some(RATE))?;
        drop(node);
        let disk = growth::bytes_below(&data)?;
        Ok(Round { from_memory: hits / (hits + misses).max(1.0), zipf, memory, fetched, disk })
    }

    fn report(&self, rounds: &[Round], results: &mut Results) {
        let mut add = |name: &str, unit: &str, how: &str, of: &dyn Fn(&Round) -> f64| {
            let name = format!("shared home, {name}");
            let value = median(rounds.iter().map(of).collect()).unwrap_or(0.0);
            say(&format!("{name}: {value:.2} {unit}"));
            let (unit, how) = (unit.to_owned(), how.to_owned());
            results.set_growth(BudgetedFigure { name, value, unit, budget: None, how, measured: String::new() });
        };
        let how = format!("{} links, memory for a tenth, Zipf 1.0, 5,000 requests/s", self.order.links);
        add("redirects from memory", "%", &how, &|round| 100.0 * round.from_memory);
        add("p99", "µs", &how, &|round| round.zipf.p99);
        add("p99 of links in memory", "µs", "1,000 links, 5,000 requests/s", &|round| round.memory.p99);
        let how = "uniform keys after a start, 5,000 requests/s; Redis on the same CPU";
        add("p99 of fetched links", "µs", how, &|round| round.fetched.p99);
        add("disk of a node", "MB", "the data directory at the end", &|round| round.disk as f64 / 1e6);
    }
}

/// Returns the redirects that memory served so far, and the others.
fn cache(admin: u16) -> Result<(f64, f64)> {
    let status: Value = fleet::status(admin)?;
    let number =
        |path: &str| status.pointer(path).and_then(Value::as_f64).with_context(|| format!("the status has no {path}"));
    Ok((number("/cache/hit")?, number("/cache/miss")?))
}
