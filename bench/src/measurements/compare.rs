//! The comparison of carom with its peers: on the same core, with the same client, in turn.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

use crate::client::{self, Scenario};
use crate::machine::cpus::Cpus;
use crate::results::{MeasuredRun, MeasuredServer, Results, Sample};
use crate::servers::peers::{BenchDirs, NAMES, Peer, Running};
use crate::terminal::say;

/// Scenarios of the comparison, in the order of reports.
pub(crate) const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "64 connections", connections: 64, pipeline: 1, renew: None, rate: None, zipf: None },
    Scenario { name: "1,024 connections", connections: 1_024, pipeline: 1, renew: None, rate: None, zipf: None },
    Scenario { name: "16 pipelined on each of 64", connections: 64, pipeline: 16, renew: None, rate: None, zipf: None },
    Scenario {
        name: "a connection for each request",
        connections: 64,
        pipeline: 1,
        renew: Some(1),
        rate: None,
        zipf: None,
    },
    Scenario {
        name: "open loop, 40,000/s",
        connections: 64,
        pipeline: 1,
        renew: None,
        rate: Some(40_000.0),
        zipf: None,
    },
];

/// Note on a behaviour of nginx that no setting changes, and that affects its figures.
const NGINX_BODY: &str = "nginx's `return 302` sends a page of about 140 bytes behind the head, which cannot be turned off; carom, HAProxy and the floors send none.";

/// Extent of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct CompareOptions {
    /// Rounds of each scenario.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
    /// Parts of the names of the servers to start; if empty, all.
    pub(crate) only: Vec<String>,
    /// Parts of the names of the scenarios; if empty, all.
    pub(crate) scenarios: Vec<String>,
    /// Number of links of the largest carom.
    pub(crate) many: u64,
}

/// Runs the comparison, and adds its results to `results`.
pub(crate) fn run(
    order: &CompareOptions,
    place: &BenchDirs,
    cpus: &Cpus,
    stop: &AtomicBool,
    results: &mut Results,
) -> Result<()> {
    let is_wanted =
        |parts: &[String], name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()));
    let mut peers = Vec::new();
    let mut missing = Vec::new();
    for name in NAMES.into_iter().filter(|name| is_wanted(&order.only, name)) {
        match Peer::prepare(name, place, cpus.server, order.many)? {
            Ok(peer) => peers.push(peer),
            Err(packages) => {
                results.notes.push(format!("{name} was left out: {packages} is not installed."));
                missing.push(packages);
            }
        }
    }
    if !missing.is_empty() {
        say(&format!("left out for lack of Debian packages; install them with: apt-get install {}", missing.join(" ")));
    }
    let scenarios: Vec<&Scenario> =
        SCENARIOS.iter().filter(|scenario| is_wanted(&order.scenarios, scenario.name)).collect();
    if peers.is_empty() || scenarios.is_empty() {
        bail!("nothing is left to compare; servers: {}", NAMES.join("; "));
    }
    results.scenarios = scenarios.iter().map(|scenario| scenario.name.to_owned()).collect();
    let total = order.rounds * scenarios.len() * peers.len();
    say(&format!(
        "{} servers, {} scenarios, {} rounds: about {} minutes",
        peers.len(),
        scenarios.len(),
        order.rounds,
        (total as u64 * (order.seconds + 2)).div_ceil(60)
    ));
    results.notes.push(NGINX_BODY.to_owned());
    // All servers stay up: an idle one sleeps, and every round finds each in the same state.
    let running = peers.iter().map(|peer| peer.start(cpus.server, place)).collect::<Result<Vec<_>>>()?;
    let mut done = 0;
    for scenario in scenarios {
        for round in 0..order.rounds {
            // Each round starts with another server, so that none always follows the same one.
            for at in (0..peers.len()).map(|at| (at + round) % peers.len()) {
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                done += 1;
                let sample = ask(&peers[at], &running[at], scenario, order, place, cpus);
                take_sample(results, &peers[at], scenario, sample, &format!("{done:>4} of {total}"));
            }
        }
    }
    for (peer, running) in peers.iter().zip(&running) {
        let memory =
            running.server.memory() + running.helper.as_ref().map_or(0, crate::servers::process::Server::memory);
        results.subjects.push(MeasuredServer {
            name: peer.name.to_owned(),
            version: peer.version.clone(),
            settings: place.tidy(&peer.settings),
            memory,
        });
    }
    Ok(())
}

fn ask(
    peer: &Peer,
    running: &Running,
    scenario: &Scenario,
    order: &CompareOptions,
    place: &BenchDirs,
    cpus: &Cpus,
) -> Result<Sample> {
    client::measure(running, scenario, peer.links, peer.is_constant, cpus.client, order.seconds, place)
}

/// Stores the result of a run. A failed run becomes a note, and the others continue.
fn take_sample(results: &mut Results, peer: &Peer, scenario: &Scenario, sample: Result<Sample>, place: &str) {
    match sample {
        Ok(sample) => {
            say(&format!(
                "{place}  {:<30} {:<30} {:>9.0}/s  {:>6.2} µs CPU  p50 {:>6.0} µs  p99 {:>7.0} µs",
                scenario.name,
                peer.name,
                sample.throughput,
                sample.cpu_micros(),
                sample.p50,
                sample.p99
            ));
            results.runs.push(MeasuredRun {
                subject: peer.name.to_owned(),
                scenario: scenario.name.to_owned(),
                sample,
            });
        }
        Err(error) => {
            let note = format!("A run of {} with {} failed: {error:#}", peer.name, scenario.name);
            say(&note);
            results.notes.push(note);
        }
    }
}
