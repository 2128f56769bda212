//! The client of all measurements: `carom-loadgen`, on a CPU of its own.

pub(crate) mod long_load;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::data;
use crate::results::Sample;
use crate::servers::peers::{BenchDirs, Running};
use crate::servers::process::{Server, ServerCpu};

/// A load on a server.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Name of the scenario in reports.
    pub(crate) name: &'static str,
    /// Number of connections.
    pub(crate) connections: usize,
    /// Requests in flight on each connection.
    pub(crate) pipeline: usize,
    /// Requests after which a connection is replaced.
    pub(crate) renew: Option<u64>,
    /// Requests per second in an open loop; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    /// Exponent of Zipf's law for the popularity of links; `None` if all are equally popular.
    pub(crate) zipf: Option<f64>,
}

/// Servers and links of a run.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Servers that share the connections.
    pub(crate) targets: Vec<SocketAddr>,
    /// True if the client uses TLS.
    pub(crate) is_secure: bool,
    /// File with the links to request.
    pub(crate) codes: PathBuf,
    /// True if the server redirects all requests to one destination.
    pub(crate) is_constant: bool,
    /// CPU of the client.
    pub(crate) cpu: usize,
    /// Seconds of the run.
    pub(crate) seconds: f64,
}

/// Runs one scenario against a server, and measures its cost at the server.
///
/// The server's CPU time is taken over the whole life of the client, and divided by all its requests: the run has
/// no warm-up, so both cover the same requests.
pub(crate) fn measure(
    running: &Running,
    scenario: &Scenario,
    links: u64,
    is_constant: bool,
    cpu: usize,
    seconds: u64,
    place: &BenchDirs,
) -> Result<Sample> {
    let servers = [Some(&running.server), running.twin.as_ref()];
    let load = Load {
        targets: servers.into_iter().flatten().map(|server| server.address).collect(),
        is_secure: running.is_secure,
        codes: data::export(&place.data, links)?,
        is_constant,
        cpu,
        seconds: seconds as f64,
    };
    let before = cpu_of(running);
    let json = ask(&load, scenario, place)?;
    let used = cpu_of(running).since(before);
    sample(&json, used)
}

fn cpu_of(running: &Running) -> ServerCpu {
    let servers = [Some(&running.server), running.helper.as_ref(), running.twin.as_ref()];
    servers.into_iter().flatten().map(Server::cpu).fold(ServerCpu::default(), ServerCpu::and)
}

/// Runs the generator, without a warm-up. Returns its figures.
pub(crate) fn ask(load: &Load, scenario: &Scenario, place: &BenchDirs) -> Result<Value> {
    let report = place.scratch.join("client.json");
    run(&mut command(load, scenario, place, &report), &report)
}

/// Returns the command of the generator for a load without a warm-up. The generator writes its figures to `report`.
fn command(load: &Load, scenario: &Scenario, place: &BenchDirs, report: &Path) -> Command {
    let mut command = Command::new(place.programs.join("carom-loadgen"));
    for target in &load.targets {
        command.args(["--target", &target.to_string()]);
    }
    command.args(["--headers", "minimal", "--quiet", "--warmup", "0s"]);
    command.arg("--codes").arg(&load.codes).arg("--json").arg(report);
    command.args(["--cpus", &load.cpu.to_string(), "--duration", &format!("{}s", load.seconds)]);
    command.args(["--connections", &scenario.connections.to_string(), "--pipeline", &scenario.pipeline.to_string()]);
    match scenario.rate {
        Some(rate) => command.args(["--rate", &rate.to_string()]),
        None => command.arg("--closed"),
    };
    if let Some(renew) = scenario.renew {
        command.args(["--renew", &renew.to_string()]);
    }
    if let Some(exponent) = scenario.zipf {
        command.args(["--zipf", &exponent.to_string()]);
    }
    if load.is_constant {
        command.arg("--no-check-location");
    }
    if load.is_secure {
        command.args(["--tls", "--tls-insecure"]);
    }
    command
}

/// Runs the generator and reads its figures. Every answer must be right.
pub(crate) fn run(command: &mut Command, report: &Path) -> Result<Value> {
    // Code 3 means that the generator was the bottleneck; its figures say so, too.
    read(command, report, &[0, 3])
}

/// Runs the generator and reads its figures, which say how many answers were wrong.
pub(crate) fn run_with_errors(command: &mut Command, report: &Path) -> Result<Value> {
    read(command, report, &[0, 1, 3])
}

fn read(command: &mut Command, report: &Path, codes: &[i32]) -> Result<Value> {
    // Without a result, the generator leaves the report of the run before.
    if report.exists() {
        std::fs::remove_file(report)?;
    }
    let output = command.output().context("carom-loadgen cannot be started")?;
    match output.status.code() {
        Some(code) if codes.contains(&code) && report.exists() => {}
        code => {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("carom-loadgen ended with {code:?} ({command:?}): {said}");
        }
    }
    Ok(serde_json::from_slice(&std::fs::read(report)?)?)
}

/// Combines the figures of a run with its cost at the server.
pub(crate) fn sample(json: &Value, used: ServerCpu) -> Result<Sample> {
    let number = |path: &str| {
        json.pointer(path).and_then(Value::as_f64).with_context(|| format!("the client's report has no {path}"))
    };
    let requests = number("/requests/completed")?.max(1.0);
    let latency = |name: &str| number(&format!("/latencyMicros/intended/all/{name}"));
    Ok(Sample {
        throughput: number("/throughput")?,
        user_micros: used.user * 1e6 / requests,
        machine_micros: number("/machine/cpuSeconds")? * 1e6 / number("/requests/completedInTime")?.max(1.0),
        system_micros: used.system * 1e6 / requests,
        p50: latency("p50")?,
        p80: latency("p80")?,
        p99: latency("p99")?,
        p999: latency("p999")?,
        errors: number("/errors/total")? as u64 + number("/requests/unsent")? as u64,
        client_limited: json.pointer("/generator/bottleneck").and_then(Value::as_bool).unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_becomes_a_sample() {
        let all = json!({"p50": 50.0, "p80": 80.0, "p99": 99.0, "p999": 999.0});
        let report = json!({
            "requests": {"completed": 1_000, "completedInTime": 500, "unsent": 2}, "machine": {"cpuSeconds": 0.01}, "throughput": 500.0, "errors": {"total": 1},
            "latencyMicros": {"intended": {"all": all}}, "generator": {"bottleneck": true},
        });
        let sample = sample(&report, ServerCpu { user: 0.001, system: 0.006 }).unwrap();
        assert!((sample.cpu_micros() - 7.0).abs() < 1e-9);
        assert!((sample.machine_micros - 20.0).abs() < 1e-9);
        assert_eq!((sample.p99, sample.errors, sample.client_limited), (99.0, 3, true));
        assert!(super::sample(&json!({}), ServerCpu::default()).is_err());
    }
}
