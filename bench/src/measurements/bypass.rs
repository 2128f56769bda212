//! The comparison of kernel bypass with kernel sockets and with nginx, over a veth pair between two network namespaces.
//!
//! The servers run one after the other at the same address, since each frame would otherwise pass the XDP program of an
//! idle server.

mod figures;
mod scenarios;
mod servers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::scenarios::{SATURATED, SCENARIOS, WITH_TLS};
use self::servers::{ADMIN, Candidate, OVER_BYPASS, OVER_KERNEL, PLAIN, REFERENCE, SECURE, carom, nginx};
use crate::client::{self, Load, Scenario};
use crate::data;
use crate::machine::cpus::Cpus;
use crate::machine::namespaces::VethPair;
use crate::measurements::growth;
use crate::results::{BypassResults, MeasuredRun, MeasuredServer, Sample, median};
use crate::servers::peers::{self, BenchDirs};
use crate::servers::process::{Server, ServerCpu, softirq_thread};
use crate::terminal::say;

/// Links that the client requests, evenly spread over all links of a server. With more, the counts of their visits would
/// be folded into the store during one run or another. The runs of `growth` request all links, and include folds.
const REQUESTED_MAX: u64 = 100_000;

/// Seconds of load on a server before its first run, so that none pays for its start. carom reads the stored visits of a
/// link when the link is visited for the first time after a start, so the load must have reached most links.
const WARM_UP: f64 = 12.0;

/// Groups of idle connections: while a group opens, the server may free memory of its start.
const IDLE_GROUPS: usize = 5;

/// Bytes that are read of an export: some seconds.
const EXPORT_LEN: u64 = 256 << 20;

/// Runs of the measurement of a frame's cost, and the seconds of each.
const FRAME_RUNS: usize = 3;
const FRAME_SECONDS: &str = "2";

/// Extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BypassOptions {
    /// Rounds: in each, every server starts once and runs all scenarios.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
    /// Number of links of carom.
    pub(crate) links: u64,
}

/// Runs the comparison, and writes its results to `results`.
pub(crate) fn run(
    order: &BypassOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut BypassResults,
) -> Result<()> {
    let data = peers::carom_data(place, order.links)?;
    let codes = data::sample(&place.data, order.links, REQUESTED_MAX)?;
    let mut candidates =
        vec![carom(OVER_BYPASS, place, &data, cpus.server)?, carom(OVER_KERNEL, place, &data, cpus.server)?];
    match nginx(place)? {
        Some(candidate) => candidates.push(candidate),
        None => results.notes.push(format!("{REFERENCE} was left out: nginx-light is not installed.")),
    }
    results.links = order.links;
    results.scenarios = SCENARIOS.iter().map(|scenario| scenario.name.to_owned()).collect();
    match cost_of_frame(place) {
        Ok(cost) => (results.reflector_micros, results.reflector_machine_micros) = cost,
        Err(error) => results.notes.push(format!("The cost of a frame in the veth was not measured: {error:#}")),
    }
    let pair = VethPair::new()?;
    let mut session = BypassSession {
        order: *order,
        place,
        cpus: *cpus,
        pair: &pair,
        codes,
        softirq: softirq_thread(cpus.server),
        results,
    };
    let outcome = pair.client.run(|| session.run(&candidates, stop));
    if let Ok(control) = pair.client.run(|| std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")) {
        results.notes.push(format!("Congestion control of the kernel's TCP: {}.", control.trim()));
    }
    let retransmissions = results.retransmissions;
    if retransmissions > 0 {
        results.notes.push(format!("Over bypass, carom sent {retransmissions} segments again, in all runs together."));
    }
    // Also after an interruption, with the rounds so far.
    results.figures = figures::of(results);
    outcome
}

/// A comparison under way. Its methods run on a thread in the client's namespace.
struct BypassSession<'a> {
    order: BypassOptions,
    place: &'a BenchDirs,
    cpus: Cpus,
    pair: &'a VethPair,
    /// File with the links to request.
    codes: PathBuf,
    /// Kernel thread that handles packets on the servers' CPU when they are too many for interrupts.
    softirq: Option<u32>,
    results: &'a mut BypassResults,
}

impl BypassSession<'_> {
    /// Runs all rounds. A server that fails becomes a note, and the others continue.
    fn run(&mut self, candidates: &[Candidate], stop: &AtomicBool) -> Result<()> {
        for round in 0..self.order.rounds {
            // Each round starts with another server, so that none always follows the same one.
            for at in (0..candidates.len()).map(|at| (at + round) % candidates.len()) {
                let outcome = self.serve(&candidates[at], round, stop);
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                self.note(&format!("Round {} of {} ended early", round + 1, candidates[at].name), outcome);
            }
        }
        let outcome = self.idle();
        self.note("The memory of idle connections was not measured", outcome);
        Ok(())
    }

    /// Makes a note of an error.
    fn note(&mut self, what: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            let note = format!("{what}: {error:#}");
            say(&note);
            self.results.notes.push(note);
        }
    }

    /// Starts a server, runs all scenarios against it, and ends it.
    fn serve(&mut self, candidate: &Candidate, round: usize, stop: &AtomicBool) -> Result<()> {
        let server = candidate.start(&self.pair.server, self.cpus.server, self.place)?;
        server.await_idle().context(candidate.name)?;
        let warm_up = self.load(candidate, &SCENARIOS[0], WARM_UP);
        client::ask(&warm_up, &SCENARIOS[0], self.place)?;
        for scenario in &SCENARIOS {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let before = self.counters(candidate)?;
            let sample = self.measure(candidate, &server, scenario);
            self.take_sample(candidate, scenario, round, sample);
            if scenario.name == SATURATED {
                let after = self.counters(candidate)?;
                self.results.frames_in.extend(after.frames_in(before));
                self.results.frames_out.extend(after.frames_out(before));
            }
        }
        match candidate.name {
            OVER_BYPASS => self.results.export_over_bypass.push(export_rate(PLAIN)?),
            OVER_KERNEL => self.results.export_over_kernel.push(export_rate(PLAIN)?),
            _ => {}
        }
        self.results.retransmissions += self.counters(candidate)?.retransmissions;
        if self.results.subjects.iter().all(|subject| subject.name != candidate.name) {
            self.results.subjects.push(MeasuredServer {
                name: candidate.name.to_owned(),
                version: candidate.version.clone(),
                settings: self.place.tidy(&candidate.settings),
                memory: server.memory(),
            });
        }
        Ok(())
    }

    fn load(&self, candidate: &Candidate, scenario: &Scenario, seconds: f64) -> Load {
        let is_secure = scenario.name == WITH_TLS;
        Load {
            targets: vec![if is_secure { SECURE } else { PLAIN }],
            is_secure,
            codes: self.codes.clone(),
            is_constant: candidate.is_constant,
            cpu: self.cpus.client,
            seconds,
        }
    }

    fn measure(&self, candidate: &Candidate, server: &Server, scenario: &Scenario) -> Result<Sample> {
        let load = self.load(candidate, scenario, self.order.seconds as f64);
        let cpu = || server.cpu().and(self.softirq.map_or(ServerCpu::default(), ServerCpu::of_process));
        let before = cpu();
        let json = client::ask(&load, scenario, self.place)?;
        client::sample(&json, cpu().since(before))
    }

    /// Stores the result of a run. A failed run becomes a note, and the others continue.
    fn take_sample(&mut self, candidate: &Candidate, scenario: &Scenario, round: usize, sample: Result<Sample>) {
        match sample {
            Ok(sample) => {
                say(&format!(
                    "round {}  {:<30} {:<26} {:>9.0}/s  {:>6.2} µs CPU  {:>6.2} µs of the machine  p99 {:>7.0} µs",
                    round + 1,
                    scenario.name,
                    candidate.name,
                    sample.throughput,
                    sample.cpu_micros(),
                    sample.machine_micros,
                    sample.p99
                ));
                let (subject, scenario) = (candidate.name.to_owned(), scenario.name.to_owned());
                self.results.runs.push(MeasuredRun { subject, scenario, sample });
            }
            Err(error) => {
                let note = format!("A run of {} with {} failed: {error:#}", candidate.name, scenario.name);
                say(&note);
                self.results.notes.push(note);
            }
        }
    }

    /// Returns the counters of carom's datapath; zeros for a server without one.
    ///
    /// # Errors
    /// If carom should serve over bypass, and the kernel has taken its connections.
    fn counters(&self, candidate: &Candidate) -> Result<DatapathCounters> {
        if candidate.name != OVER_BYPASS {
            return Ok(DatapathCounters::default());
        }
        let status = self.pair.server.run(|| get(ADMIN, "/status"))?;
        let counters = DatapathCounters::of(&status)?;
        if counters.opened == 0 {
            bail!("the kernel has taken the connections that bypass should have: {status}");
        }
        Ok(counters)
    }

    /// Measures the memory of idle connections: with bypass, and with kernel sockets.
    fn idle(&mut self) -> Result<()> {
        self.results.idle_over_bypass = self.idle_of(OVER_BYPASS)?;
        self.results.idle_over_kernel = self.idle_of(OVER_KERNEL)?;
        Ok(())
    }

    fn idle_of(&self, name: &'static str) -> Result<f64> {
        let data = self.place.scratch.join(format!("empty-{}", name.replace(' ', "-")));
        let candidate = carom(name, self.place, &data, self.cpus.server)?;
        let server = candidate.start(&self.pair.server, self.cpus.server, self.place)?;
        let bytes = growth::idle(&server, IDLE_GROUPS)?;
        self.counters(&candidate)?;
        Ok(bytes)
    }
}

/// Counters of a core's datapath.
#[derive(Clone, Copy, Default, Debug)]
struct DatapathCounters {
    redirects: u64,
    opened: u64,
    frames_in: u64,
    frames_out: u64,
    retransmissions: u64,
}

impl DatapathCounters {
    fn of(status: &Value) -> Result<DatapathCounters> {
        let number = |path: &str| {
            let value = status.pointer(&format!("/cores/0/{path}")).and_then(Value::as_u64);
            value.with_context(|| format!("the status has no {path}: {status}"))
        };
        Ok(DatapathCounters {
            redirects: number("redirects")?,
            opened: number("bypass/opened")?,
            frames_in: number("bypass/framesIn")?,
            frames_out: number("bypass/framesOut")?,
            retransmissions: number("bypass/retransmissions")?,
        })
    }

    /// Returns the received frames for each redirect since `before`; `None` without redirects.
    fn frames_in(self, before: DatapathCounters) -> Option<f64> {
        self.per_redirect(before, self.frames_in - before.frames_in)
    }

    /// Returns the sent frames for each redirect since `before`; `None` without redirects.
    fn frames_out(self, before: DatapathCounters) -> Option<f64> {
        self.per_redirect(before, self.frames_out - before.frames_out)
    }

    fn per_redirect(self, before: DatapathCounters, frames: u64) -> Option<f64> {
        let redirects = self.redirects - before.redirects;
        (redirects > 0).then(|| frames as f64 / redirects as f64)
    }
}

/// Reads [`EXPORT_LEN`] bytes of an export, or all of it. Returns the bytes in a second.
fn export_rate(address: SocketAddr) -> Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    let start = Instant::now();
    write!(stream, "GET /rest/v3/short-urls/export HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    if !head.ends_with(b" 200") {
        bail!("the export answered {:?}", String::from_utf8_lossy(&head));
    }
    let len = std::io::copy(&mut stream.take(EXPORT_LEN), &mut std::io::sink())?;
    Ok(len as f64 / start.elapsed().as_secs_f64())
}

/// Requests JSON from a server of this namespace.
fn get(address: SocketAddr, path: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).with_context(|| format!("{path} answered {answer:?}"))
}

/// Returns the CPU time of turning a frame around without TCP, in microseconds: of the thread that turns it around, and
/// of the machine, which includes the thread that sends the frames.
fn cost_of_frame(place: &BenchDirs) -> Result<(f64, f64)> {
    let words = ["build", "--release", "--locked", "-p", "carom-xdp", "--example", "reflect"];
    let status = Command::new("cargo").args(words).status().context("cargo cannot be started")?;
    if !status.success() {
        bail!("the build ended with {status}");
    }
    let program = place.programs.join("examples/reflect");
    let (mut thread, mut machine) = (Vec::new(), Vec::new());
    for _ in 0..FRAME_RUNS {
        let text = text_of(&program, &[FRAME_SECONDS, "64"])?;
        thread.push(micros_of(&text, "CPU of the reflecting thread: ")?);
        machine.push(micros_of(&text, "CPU of the machine: ")?);
    }
    Ok((median(thread).unwrap_or(0.0), median(machine).unwrap_or(0.0)))
}

fn text_of(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the number behind a text.
fn micros_of(text: &str, name: &str) -> Result<f64> {
    let behind = text.split_once(name).and_then(|(_, behind)| behind.split_whitespace().next());
    behind.and_then(|number| number.parse().ok()).with_context(|| format!("no figure `{name}` in {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_are_counted_for_each_redirect() {
        let status = |redirects, frames| {
            let bypass = json!({"opened": 1, "framesIn": frames, "framesOut": 2 * frames, "retransmissions": 0});
            DatapathCounters::of(&json!({"cores": [{"redirects": redirects, "bypass": bypass}]})).unwrap()
        };
        let (before, after) = (status(100, 110), status(200, 215));
        assert_eq!((after.frames_in(before), after.frames_out(before)), (Some(1.05), Some(2.1)));
        assert_eq!(before.frames_in(before), None);
        assert!(DatapathCounters::of(&json!({"cores": [{"redirects": 1}]})).is_err());
    }

    #[test]
    fn figures_of_the_reflector_are_read() {
        let text =
            "CPU of the reflecting thread: 1.65 µs per frame (in and out)\nCPU of the machine: 3.40 µs per frame";
        assert_eq!(micros_of(text, "CPU of the reflecting thread: ").unwrap(), 1.65);
        assert_eq!(micros_of(text, "CPU of the machine: ").unwrap(), 3.4);
        assert!(micros_of(text, "CPU of nothing: ").is_err());
    }
}
