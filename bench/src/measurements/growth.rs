//! The growth of carom's costs: with links, cores and connections; creates beside Redis; memory; time to ready.

mod rules;
mod starts;
mod visit_log;
mod visit_query;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::client::{self, Scenario};
use crate::data;
use crate::machine::cpus::Cpus;
use crate::results::{Budget, BudgetedFigure, Results, Sample, median};
use crate::servers::peers::{self, BenchDirs, Peer, Running};
use crate::servers::process::{Server, ServerCpu, free_port};
use crate::terminal::say;

/// Idle connections whose memory is measured.
const IDLE: usize = 10_000;

/// The beginning of the names of the threads of cores.
const CORE_THREADS: &str = "core-";

/// Connections of creates, at carom and at Redis.
const CREATORS: usize = 64;

/// Time within which a start must finish.
const READY_TIME_MAX: Duration = Duration::from_secs(300);

/// Memory for links of a node that keeps only the links in use in memory.
const HOT_BYTES_PER_LINK: u64 = 16;
const HOT_BYTES_MIN: u64 = 64 << 20;

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct GrowthOptions {
    /// Runs of each measurement.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
    /// Number of links of the largest node.
    pub(crate) many: u64,
    /// Numbers of links of the nodes whose starts are measured with both residencies.
    pub(crate) hot: Vec<u64>,
    /// True to keep data sets that are too large for a node with all links in memory.
    pub(crate) keeps_large: bool,
    /// Parts to measure.
    pub(crate) parts: Vec<GrowthPart>,
}

/// A part of the measurements that can run alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum GrowthPart {
    /// CPU of a redirect with more and more links.
    Links,
    /// CPU of a redirect with more and more connections.
    Connections,
    /// CPU of the visit log.
    VisitLog,
    /// Redirects beside queries of a large visit log.
    VisitQuery,
    /// CPU of a redirect of a link with redirect rules.
    Rules,
    /// CPU of a redirect that another core answers.
    Forwarding,
    /// Durable creates, beside Redis.
    Creates,
    /// CPU of the load generator, beside wrk.
    Client,
    /// Memory of links and connections.
    Memory,
    /// Time until a node is ready after a kill.
    Ready,
    /// Work of a node after its start, and its memory then.
    Settling,
    /// Redirects beside the rebuilding of the search index.
    Rebuild,
    /// Time until a node is ready, its memory and its disk, with all links in memory and with only those in use.
    Hot,
}

struct Growth<'a> {
    order: &'a GrowthOptions,
    place: &'a BenchDirs,
    cpus: &'a Cpus,
    stop: &'a AtomicBool,
    results: &'a mut Results,
}

/// Runs the measurements, and adds their figures to `results`. Figures of earlier runs with the same names are replaced.
pub(crate) fn run(
    order: &GrowthOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut Results,
) -> Result<()> {
    let mut growth = Growth { order, place, cpus, stop, results };
    for part in &order.parts {
        match part {
            GrowthPart::Links => growth.links()?,
            GrowthPart::Connections => growth.connections()?,
            GrowthPart::VisitLog => growth.visit_log()?,
            GrowthPart::VisitQuery => growth.visit_query()?,
            GrowthPart::Rules => growth.rules()?,
            GrowthPart::Forwarding => growth.forwarding()?,
            GrowthPart::Creates => growth.creates()?,
            GrowthPart::Client => growth.client()?,
            GrowthPart::Memory => growth.memory()?,
            GrowthPart::Ready => growth.ready()?,
            GrowthPart::Settling => growth.settling()?,
            GrowthPart::Rebuild => growth.beside_rebuild()?,
            GrowthPart::Hot => growth.hot()?,
        }
    }
    Ok(())
}

fn keep_alive(connections: usize) -> Scenario {
    Scenario { name: "", connections, pipeline: 1, renew: None, rate: None, zipf: None }
}

impl Growth<'_> {
    fn add(&mut self, name: String, value: f64, unit: &str, budget: Option<Budget>, how: &str) -> Result<()> {
        say(&format!("{name}: {value:.2} {unit}"));
        let (unit, how) = (unit.to_owned(), how.to_owned());
        self.results.set_growth(BudgetedFigure { name, value, unit, budget, how, measured: String::new() });
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Starts carom with a data directory on the given CPUs. Measurements that write pass a copy.
    fn carom(&self, data: &Path, cpus: &str) -> Result<Running> {
        self.carom_after(&[], data, cpus)
    }

    /// Starts carom with a data directory of so many links, and with memory for the links in use.
    fn carom_hot(&self, data: &Path, cpus: &str, links: u64) -> Result<Running> {
        let [residency, limit] = hot_settings(links);
        self.carom_after(&["env".to_owned(), residency, limit], data, cpus)
    }

    /// Starts carom, with `words` before its command.
    fn carom_after(&self, words: &[String], data: &Path, cpus: &str) -> Result<Running> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let cores = if cpus.contains(['-', ',']) { cpus.to_owned() } else { format!("{cpus}-{cpus}") };
        let carom = peers::carom_command(self.place, data, &cores, address, free_port()?);
        let command = [words, &carom[..]].concat();
        let server = Server::start(&command, cpus, address, &self.place.scratch.join("carom.log"))?;
        Ok(Running { server, helper: None, twin: None, is_secure: false })
    }

    fn sample(&self, running: &Running, scenario: &Scenario, links: u64) -> Result<Sample> {
        client::measure(running, scenario, links, false, self.cpus.client, self.order.seconds, self.place)
    }

    /// Returns the median CPU time of a redirect in each of some runs, which take turns, in microseconds.
    fn cpu_in_turn(&mut self, what: &str, runs: &[(&Running, Scenario, u64)]) -> Result<Vec<f64>> {
        let mut micros = vec![Vec::new(); runs.len()];
        let (mut limited, mut errors) = (0, 0);
        for _ in 0..self.order.rounds {
            for ((running, scenario, links), micros) in runs.iter().zip(&mut micros) {
                let sample = self.sample(running, scenario, *links)?;
                limited += usize::from(sample.client_limited);
                errors += sample.errors;
                micros.push(sample.cpu_micros());
            }
        }
        if limited > 0 {
            let runs = self.order.rounds * runs.len();
            let note = format!(
                "The client was at its limit in {limited} of {runs} runs with {what}: the server could have done more, and paid less for each in larger batches."
            );
            self.results.growth_notes.push(note);
        }
        if errors > 0 {
            self.results.growth_notes.push(format!("{errors} requests had no right answer in the runs with {what}."));
        }
        Ok(micros.into_iter().map(|micros| median(micros).unwrap_or(0.0)).collect())
    }

    fn links(&mut self) -> Result<()> {
        // A quick run has a tenth of the links, and so other sizes between.
        let sizes = [10_000, self.order.many / 10, self.order.many];
        let cpu = self.cpus.server.to_string();
        let running = sizes
            .iter()
            .map(|&size| self.carom(&peers::carom_data(self.place, size)?, &cpu))
            .collect::<Result<Vec<_>>>()?;
        let runs: Vec<_> = running.iter().zip(sizes).map(|(running, size)| (running, keep_alive(64), size)).collect();
        for (micros, size) in self.cpu_in_turn("more and more links", &runs)?.into_iter().zip(sizes) {
            self.add(
                format!("CPU per redirect, {size} links"),
                micros,
                "µs",
                None,
                "one core, 64 connections, uniform keys, at saturation",
            )?;
        }
        Ok(())
    }

    fn connections(&mut self) -> Result<()> {
        let links = 1_000_000;
        let data = peers::carom_data(self.place, links)?;
        let running = self.carom(&data, &self.cpus.server.to_string())?;
        let counts = [64, 512, 1_024, 4_096, 8_192];
        let runs: Vec<_> = counts.iter().map(|&count| (&running, keep_alive(count), links)).collect();
        let micros = self.cpu_in_turn("more and more connections", &runs)?;
        for (micros, count) in micros.into_iter().zip(counts) {
            self.add(
                format!("CPU per redirect, {count} connections"),
                micros,
                "µs",
                None,
                "one core, 1 M links, at saturation; the cost of accepting the connections is in it",
            )?;
        }
        Ok(())
    }

    /// Measures two cores that forward half of the redirects, beside two nodes of one core each, which forward
    /// nothing. Both use the same two CPUs, one of which the client uses, too.
    fn forwarding(&mut self) -> Result<()> {
        if self.cpus.client == self.cpus.server {
            self.results.growth_notes.push("Forwarding was not measured: there is only one CPU.".to_owned());
            return Ok(());
        }
        let links = 1_000_000;
        let data = peers::carom_data(self.place, links)?;
        // A data directory belongs to one node at a time.
        let copies = [self.fresh("copy-a")?, self.fresh("copy-b")?];
        for copy in &copies {
            copy_folder(&data, copy)?;
        }
        let both = self.carom(&data, &format!("{},{}", self.cpus.server, self.cpus.client))?;
        let mut apart = self.carom(&copies[0], &self.cpus.server.to_string())?;
        apart.twin = Some(self.carom(&copies[1], &self.cpus.client.to_string())?.server);
        let (uniform, zipf) = (keep_alive(256), Scenario { zipf: Some(1.0), ..keep_alive(256) });
        let micros = self.cpu_in_turn(
            "two cores",
            &[
                (&both, uniform.clone(), links),
                (&apart, uniform, links),
                (&both, zipf.clone(), links),
                (&apart, zipf, links),
            ],
        )?;
        drop((both, apart));
        for copy in copies {
            std::fs::remove_dir_all(copy)?;
        }
        let how = "256 connections, 1 M links, at saturation on two CPUs; the client shares the second";
        for (keys, both, apart) in [("uniform keys", micros[0], micros[1]), ("Zipf 1.0", micros[2], micros[3])] {
            self.add(format!("CPU per redirect, two nodes of a core each, {keys}"), apart, "µs", None, how)?;
            self.add(format!("CPU per redirect, one node of two cores, {keys}"), both, "µs", None, how)?;
        }
        // With Zipf's law copies answer a part of the requests that would be forwarded, so the two figures are
        // shown without a ratio.
        let (forwarded, local) = (micros[0], micros[1]);
        let how = "uniform keys, half of them forwarded: (one node - half of two nodes) / half of two nodes";
        let budget = Some(Budget::AtMost(1.25));
        self.add("a forwarded redirect by a local one".to_owned(), 2.0 * forwarded / local - 1.0, "times", budget, how)
    }

    fn creates(&mut self) -> Result<()> {
        let redis = Path::new("/usr/bin/redis-server");
        let benchmark = Path::new("/usr/bin/redis-benchmark");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..self.order.rounds {
            let folder = self.fresh(&format!("creates-{round}"))?;
            let running = self.carom(&folder, &self.cpus.server.to_string())?;
            ours.push(self.create(&running)?);
            drop(running);
            std::fs::remove_dir_all(&folder)?;
            if redis.exists() && benchmark.exists() {
                theirs.push(self.redis_set(redis, benchmark)?);
            }
        }
        let how = format!(
            "{CREATORS} connections, about 100 bytes of URL each, answered after fdatasync; one core, in turn with Redis on the same CPU and disk"
        );
        let ours = median(ours).unwrap_or(0.0);
        self.add("durable creates over HTTP".to_owned(), ours, "a second", None, &how)?;
        let Some(theirs) = median(theirs) else {
            self.results
                .growth_notes
                .push("Creates were not compared: redis-server and redis-tools are not installed.".to_owned());
            return Ok(());
        };
        self.add(
            "SET in redis-server with appendfsync always".to_owned(),
            theirs,
            "a second",
            None,
            "redis-benchmark, as many connections, values of 130 bytes",
        )?;
        self.add(
            "creates by SET of Redis".to_owned(),
            ours / theirs,
            "times",
            Some(Budget::AtLeast(0.8)),
            "of the two figures above",
        )
    }

    /// Measures the cost of a request at the client, beside wrk, against the same server.
    fn client(&mut self) -> Result<()> {
        let wrk = Path::new("/usr/bin/wrk");
        if !wrk.exists() {
            self.results.growth_notes.push("The client was not compared: wrk is not installed.".to_owned());
            return Ok(());
        }
        let Ok(floor) = Peer::prepare("floor: bare io_uring", self.place, self.cpus.server, 1)? else { return Ok(()) };
        let running = floor.start(self.cpus.server, self.place)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.order.rounds {
            let report = self.place.scratch.join("client.json");
            let mut command = Command::new(self.place.programs.join("carom-loadgen"));
            command.args(["--target", &running.server.address.to_string(), "--closed", "--warmup", "0s", "--quiet"]);
            command.args(["--headers", "minimal", "--no-check-location", "--connections", "64"]);
            command.args(["--cpus", &self.cpus.client.to_string(), "--duration", &format!("{}s", self.order.seconds)]);
            command.arg("--codes").arg(data::export(&self.place.data, 10_000)?).arg("--json").arg(&report);
            let before = ServerCpu::of_ended_children();
            let json = client::run(&mut command, &report)?;
            let used = ServerCpu::of_ended_children().since(before);
            let requests = json["requests"]["completed"].as_f64().context("the client's report has requests")?;
            ours.push(requests / (used.user + used.system));

            let before = ServerCpu::of_ended_children();
            let output = Command::new("taskset")
                .args(["-c", &self.cpus.client.to_string()])
                .arg(wrk)
                .args(["-t1", "-c64", &format!("-d{}s", self.order.seconds)])
                .arg(format!("http://{}/c", running.server.address))
                .output()?;
            let used = ServerCpu::of_ended_children().since(before);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let requests = text.lines().find_map(|line| line.split_once(" requests in "));
            let requests = requests.and_then(|(number, _)| number.trim().parse::<f64>().ok());
            theirs.push(requests.with_context(|| format!("wrk said: {text}"))? / (used.user + used.system));
        }
        let how =
            "closed loop, 64 connections, minimal headers, against the bare io_uring loop; all CPU time of the client";
        let (ours, theirs) = (median(ours).unwrap_or(0.0), median(theirs).unwrap_or(1.0));
        self.add("requests of carom-loadgen for a second of its CPU".to_owned(), ours, "", None, how)?;
        self.add("requests of wrk for a second of its CPU".to_owned(), theirs, "", None, how)?;
        let budget = Some(Budget::AtLeast(1.0));
        self.add("carom-loadgen by wrk".to_owned(), ours / theirs, "times", budget, "of the two figures above")
    }

    /// Returns a path on the disk of the data sets, and removes a folder that is already there.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = self.place.data.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(folder)
    }

    fn create(&self, running: &Running) -> Result<f64> {
        let report = self.place.scratch.join("creates.json");
        let mut command = Command::new(self.place.programs.join("carom-loadgen"));
        command.args(["--target", &running.server.address.to_string(), "--closed", "--mix", "create=1", "--quiet"]);
        command.args(["--headers", "minimal", "--warmup", "500ms", "--cpus", &self.cpus.client.to_string()]);
        command.args(["--duration", &format!("{}s", self.order.seconds), "--connections", &CREATORS.to_string()]);
        let json = client::run(command.arg("--json").arg(&report), &report)?;
        json["throughput"].as_f64().context("the client's report has a throughput")
    }

    fn redis_set(&self, redis: &Path, benchmark: &Path) -> Result<f64> {
        let folder = self.fresh("redis")?;
        std::fs::create_dir_all(&folder)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let port = address.port().to_string();
        let words =
            ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"];
        let mut command = vec![redis.display().to_string()];
        command.extend(words.map(str::to_owned));
        command.extend(["--dir".to_owned(), folder.display().to_string()]);
        let server =
            Server::start(&command, &self.cpus.server.to_string(), address, &self.place.scratch.join("redis.log"))?;
        let requests = (self.order.seconds * 20_000).to_string();
        let output = Command::new("taskset")
            .args(["-c", &self.cpus.client.to_string()])
            .arg(benchmark)
            .args([
                "-p",
                &port,
                "-t",
                "set",
                "-d",
                "130",
                "-c",
                &CREATORS.to_string(),
                "-n",
                &requests,
                "-r",
                "100000000",
                "--csv",
            ])
            .output()?;
        drop(server);
        std::fs::remove_dir_all(&folder)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with("\"SET\""))
            .with_context(|| format!("redis-benchmark said: {text}"))?;
        let rate = line.split(',').nth(1).map(|field| field.trim_matches('"')).and_then(|field| field.parse().ok());
        rate.with_context(|| format!("no rate in {line:?}"))
    }

    fn memory(&mut self) -> Result<()> {
        let cpu = self.cpus.server.to_string();
        let empty = self.fresh("empty")?;
        let running = self.carom(&empty, &cpu)?;
        let base = running.server.memory();
        let idle = idle(&running.server, 1)?;
        drop(running);
        std::fs::remove_dir_all(&empty)?;
        let many = self.order.many;
        let running = self.carom(&peers::carom_data(self.place, many)?, &cpu)?;
        await_redirect(running.server.address, many - 1)?;
        let per_link = (running.server.memory() - base) as f64 / many as f64;
        let bytes = (data::code(0).len() + data::target(0).len()) as f64;
        self.add(
            format!("memory per link, {many} links"),
            per_link,
            "bytes",
            None,
            "proportional set size, less that of an empty node",
        )?;
        self.add(
            "memory per link by code and URL".to_owned(),
            per_link / bytes,
            "times",
            Some(Budget::AtMost(1.5)),
            &format!("codes of 7 and URLs of {} bytes", bytes - 7.0),
        )?;
        self.add(
            "memory per idle connection".to_owned(),
            idle,
            "bytes",
            Some(Budget::AtMost(1_024.0)),
            "kept alive after one request; the kernel's own buffers not counted",
        )
    }
}

/// Returns the memory of an idle connection at the server, in bytes: the median of some groups of connections.
pub(crate) fn idle(server: &Server, groups: usize) -> Result<f64> {
    let connect = || -> Result<TcpStream> {
        let mut stream = TcpStream::connect(server.address)?;
        ask(&mut stream, "none")?;
        Ok(stream)
    };
    let mut all = (0..500).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let mut grown = Vec::new();
    for _ in 0..groups {
        let before = server.memory();
        for _ in 0..IDLE / groups {
            all.push(connect()?);
        }
        grown.push(server.memory().saturating_sub(before) as f64 / (IDLE / groups) as f64);
    }
    Ok(median(grown).unwrap_or(0.0))
}

/// Returns the settings of a node that keeps only the links in use in memory, for its environment.
pub(crate) fn hot_settings(links: u64) -> [String; 2] {
    let limit = HOT_BYTES_MIN.max(links * HOT_BYTES_PER_LINK);
    ["CAROM_LINKS_RESIDENCY=hot".to_owned(), format!("CAROM_LINKS_MEMORY_LIMIT={limit}")]
}

/// Returns the bytes of all files below a folder.
pub(crate) fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let (entry, about) = entry.and_then(|entry| entry.metadata().map(|about| (entry, about)))?;
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// Copies a folder with all its content.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Requests a code and returns the head of the response.
fn ask(stream: &mut TcpStream, code: &str) -> Result<String> {
    stream.write_all(format!("GET /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
    let mut received = Vec::new();
    let mut buffer = [0; 4_096];
    while !received.windows(4).any(|window| window == b"\r\n\r\n") {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            bail!("the server closed the connection");
        }
        received.extend_from_slice(&buffer[..len]);
    }
    Ok(String::from_utf8_lossy(&received).into_owned())
}

/// Waits until a link redirects to its destination.
fn await_redirect(address: SocketAddr, number: u64) -> Result<()> {
    let expected = format!("Location: {}\r\n", data::target(number));
    let begin = Instant::now();
    while begin.elapsed() < READY_TIME_MAX {
        let answer = TcpStream::connect(address)
            .map_err(Into::into)
            .and_then(|mut stream| ask(&mut stream, &data::code(number)));
        match answer {
            Ok(answer) if answer.contains(&expected) => return Ok(()),
            Ok(answer) => bail!("a wrong answer after the start: {answer}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    bail!("no answer within {READY_TIME_MAX:?}")
}
