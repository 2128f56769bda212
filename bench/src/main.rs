//! `carom-bench`: compares carom with its peers in one run, and measures its growth. One command reproduces every
//! figure.

mod client;
mod data;
mod instructions;
mod machine;
mod measurements;
mod micro;
mod report;
mod results;
mod servers;
mod terminal;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::machine::cpus::Cpus;
use crate::machine::namespaces;
use crate::measurements::growth::GrowthPart;
use crate::measurements::{bypass, compare, fleet, growth, join, shared_home};
use crate::results::{BenchMachine, Results};
use crate::servers::floors;
use crate::servers::peers::BenchDirs;
use crate::terminal::say;

/// Measures carom beside nginx, HAProxy and others on this machine, in turn, with the same client.
#[derive(Parser, Debug)]
#[command(name = "carom-bench", version, max_term_width = 100)]
struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Throughput, CPU per request and latencies of carom and its peers.
    Compare(CompareServersArguments),
    /// Growth of carom's costs with links, cores and connections; creates, memory, and time to ready.
    Growth(GrowthArguments),
    /// carom over bypass, over kernel sockets, and nginx, over virtual interfaces. Needs root.
    Bypass(BypassArguments),
    /// Three nodes beside one: creates and redirects per second, and what each costs Redis. Needs redis-server.
    Fleet(FleetArguments),
    /// A node whose links are in Redis, with a tenth of them in memory. Needs redis-server.
    SharedHome(SharedArguments),
    /// The join of a new node beside redirects of its peer, memory of Redis and disk of a node. Needs redis-server.
    Join(JoinArguments),
    /// Instructions of the small functions, counted by callgrind, compared with the saved counts.
    Instructions {
        /// File with the saved counts.
        #[arg(long, value_name = "FILE", default_value = "bench/instructions.json")]
        file: PathBuf,
        /// Keep the new counts.
        #[arg(long)]
        save: bool,
    },
    /// Repeat a piece of work. Used by `instructions`.
    #[command(hide = true)]
    Repeat { name: String, times: u64 },
    /// Render the page and its plots again from a file of results.
    Report {
        /// File that `compare` and `growth` have written.
        #[arg(default_value = "bench/results/results.json")]
        results: PathBuf,
    },
    /// A bare io_uring loop that sends a constant response. Used by `compare`.
    #[command(hide = true)]
    FloorRing { address: SocketAddr },
    /// A bare epoll loop that sends a constant response. Used by `compare`.
    #[command(hide = true)]
    FloorEpoll { address: SocketAddr },
}

#[derive(Args, Clone, Debug)]
struct CommonArguments {
    /// Runs of each measurement; medians are shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each run.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// A run of some minutes: fewer rounds, shorter, and a million links instead of ten.
    #[arg(long)]
    quick: bool,
    /// Folder for data sets, which are kept: 10 million links take 4 GB.
    #[arg(long, value_name = "DIR", default_value = "target/bench-data")]
    data: PathBuf,
    /// File of results. Results of other measurements in it are kept.
    #[arg(long, value_name = "FILE", default_value = "bench/results/results.json")]
    json: PathBuf,
}

#[derive(Args, Clone, Debug)]
struct GrowthArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Numbers of links with which starts are measured with only the links in use in memory and, up to 10 million, with all
    /// links in memory, separated by commas [default: that of the largest node]. 100 million take up to 45 GB of disk space
    /// and about an hour.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hot_links: Vec<u64>,
    /// Keep data sets of more than 10 million links.
    #[arg(long)]
    keep_large: bool,
    /// Measure only these parts, separated by commas, and keep the other results [default: all parts].
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<GrowthPart>,
}

#[derive(Args, Clone, Debug)]
struct BypassArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Number of links of carom [default: 10 million; with --quick one million]
    #[arg(long, value_name = "N")]
    links: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct FleetArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Another build of carom to measure, such as one from before a change
    #[arg(long, value_name = "PATH")]
    carom: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct SharedArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Number of links in Redis [default: 10 million, which take 5 GB of its memory; with --quick 200,000]
    #[arg(long, value_name = "N")]
    links: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct JoinArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Numbers of links, separated by commas [default: 1 and 10 million; with --quick 200,000]. 10 million take 12 GB of disk
    /// space and, once their data set is there, about five minutes.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    links: Vec<u64>,
}

#[derive(Args, Clone, Debug)]
struct CompareServersArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Servers to start, by a part of their names, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Scenarios, by a part of their names; several times for several.
    #[arg(long)]
    scenario: Vec<String>,
}

fn main() -> ExitCode {
    match carry_out(BenchArguments::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("carom-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn carry_out(what: What) -> Result<()> {
    match what {
        What::FloorRing { address } => floors::ring(address),
        What::FloorEpoll { address } => floors::epoll(address),
        What::Instructions { file, save } => {
            refuse_debug()?;
            instructions::run(&file, save)
        }
        What::Repeat { name, times } => {
            instructions::repeat(&name, times);
            Ok(())
        }
        What::Report { results } => {
            let results: Results = serde_json::from_slice(
                &std::fs::read(&results).with_context(|| format!("{} cannot be read", results.display()))?,
            )?;
            finish(&results, None)
        }
        What::Compare(arguments) => {
            let common = &arguments.common;
            let order = compare::CompareOptions {
                rounds: if common.quick { 2 } else { common.rounds },
                seconds: if common.quick { 2 } else { common.seconds },
                only: arguments.only.clone(),
                scenarios: arguments.scenario.clone(),
                many: if common.quick { 1_000_000 } else { 10_000_000 },
            };
            measure(common, order.rounds, order.seconds, |place, cpus, stop, results, machine| {
                results.machine = machine;
                (results.runs, results.subjects, results.notes) = (Vec::new(), Vec::new(), Vec::new());
                if order.many != 10_000_000 {
                    results.notes.push(format!("A quick run: \"10 M links\" were {}.", order.many));
                }
                compare::run(&order, place, cpus, stop, results)
            })
        }
        What::Growth(arguments) => measure_growth(arguments),
        What::Bypass(arguments) => compare_bypass(&arguments),
        What::Fleet(arguments) => measure_fleet(arguments),
        What::SharedHome(arguments) => measure_shared_home(&arguments),
        What::Join(arguments) => measure_join(arguments),
    }
}

/// Measures the growth of costs.
fn measure_growth(arguments: GrowthArguments) -> Result<()> {
    let GrowthArguments { common, hot_links, keep_large: keeps_large, only } = arguments;
    let rounds = if common.quick { 2 } else { common.rounds };
    let seconds = if common.quick { 2 } else { common.seconds };
    let many = if common.quick { 1_000_000 } else { 10_000_000 };
    let hot = if hot_links.is_empty() { vec![many] } else { hot_links };
    let is_whole = only.is_empty();
    let parts = if is_whole { GrowthPart::value_variants().to_vec() } else { only };
    let order = growth::GrowthOptions { rounds, seconds, many, hot, keeps_large, parts };
    measure(&common, rounds, seconds, |place, cpus, stop, results, machine| {
        if is_whole {
            results.growth_machine = machine;
            (results.growth, results.growth_notes) = (Vec::new(), Vec::new());
            if many != 10_000_000 {
                results.growth_notes.push(format!("A quick run, with at most {many} links."));
            }
        } else {
            results.partial_run = Some(machine);
        }
        growth::run(&order, place, cpus, stop, results)
    })
}

/// Measures a fleet, if this machine has Redis.
fn measure_fleet(arguments: FleetArguments) -> Result<()> {
    if let Some(reason) = fleet::obstacle() {
        say(&format!("the measurement of a fleet is skipped: {reason}"));
        return Ok(());
    }
    let common = &arguments.common;
    let order = fleet::FleetOptions {
        rounds: if common.quick { 1 } else { common.rounds },
        seconds: if common.quick { 2 } else { common.seconds },
        carom: arguments.carom,
    };
    measure(common, order.rounds, order.seconds, |place, cpus, stop, results, machine| {
        let new = results::FleetResults { machine, ..results::FleetResults::default() };
        fleet::run(&order, place, cpus, stop, results.fleet.insert(new))
    })
}

/// Measures a node whose links are in Redis, if this machine has Redis.
fn measure_shared_home(arguments: &SharedArguments) -> Result<()> {
    if let Some(reason) = fleet::obstacle() {
        say(&format!("the measurement of a shared home is skipped: {reason}"));
        return Ok(());
    }
    let common = &arguments.common;
    let order = shared_home::SharedOptions {
        rounds: if common.quick { 1 } else { common.rounds },
        seconds: if common.quick { 2 } else { common.seconds },
        links: arguments.links.unwrap_or(if common.quick { 200_000 } else { 10_000_000 }),
    };
    measure(common, order.rounds, order.seconds, |place, cpus, stop, results, machine| {
        results.partial_run = Some(machine);
        shared_home::run(&order, place, cpus, stop, results)
    })
}

/// Measures joins, if this machine has Redis.
fn measure_join(arguments: JoinArguments) -> Result<()> {
    if let Some(reason) = fleet::obstacle() {
        say(&format!("the measurement of joins is skipped: {reason}"));
        return Ok(());
    }
    let JoinArguments { common, links } = arguments;
    let some = if common.quick { vec![200_000] } else { vec![1_000_000, 10_000_000] };
    let order = join::JoinOptions {
        rounds: if common.quick { 1 } else { common.rounds.min(3) },
        seconds: if common.quick { 2 } else { common.seconds },
        links: if links.is_empty() { some } else { links },
    };
    measure(&common, order.rounds, order.seconds, |place, cpus, stop, results, machine| {
        results.partial_run = Some(machine);
        join::run(&order, place, cpus, stop, results)
    })
}

/// Compares kernel bypass, if this machine can.
fn compare_bypass(arguments: &BypassArguments) -> Result<()> {
    if let Some(reason) = namespaces::obstacle() {
        say(&format!("the comparison of kernel bypass is skipped: {reason}"));
        return Ok(());
    }
    let common = &arguments.common;
    let order = bypass::BypassOptions {
        rounds: if common.quick { 2 } else { common.rounds },
        seconds: if common.quick { 2 } else { common.seconds },
        links: arguments.links.unwrap_or(if common.quick { 1_000_000 } else { 10_000_000 }),
    };
    measure(common, order.rounds, order.seconds, |place, cpus, stop, results, machine| {
        let new = results::BypassResults { machine, ..results::BypassResults::default() };
        bypass::run(&order, place, cpus, stop, results.bypass.insert(new))
    })
}

/// Prepares, measures, and writes the results.
fn measure(
    common: &CommonArguments,
    rounds: usize,
    seconds: u64,
    run: impl FnOnce(&BenchDirs, &Cpus, &AtomicBool, &mut Results, BenchMachine) -> Result<()>,
) -> Result<()> {
    refuse_debug()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    raise_open_files()?;
    let programs = build()?;
    std::fs::create_dir_all(&common.data)?;
    let scratch = tempfile::tempdir()?;
    let place = BenchDirs { programs, data: common.data.canonicalize()?, scratch: scratch.path().to_owned() };
    let cpus = Cpus::choose()?;
    let mut results: Results =
        std::fs::read(&common.json).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    if let Err(error) = run(&place, &cpus, &stop, &mut results, machine::here(rounds, seconds)) {
        // Complete results of an earlier run stay unchanged.
        let partial = common.json.with_extension("partial.json");
        write_json(&results, &partial)?;
        // The reader may have closed the pipe.
        let _ = std::io::stdout().write_all(report::table(&results).as_bytes());
        say(&format!("what was measured so far is in {}", partial.display()));
        return Err(error);
    }
    finish(&results, Some(&common.json))
}

fn refuse_debug() -> Result<()> {
    if cfg!(debug_assertions) {
        bail!("a debug build says nothing; use: cargo run --release -p carom-bench -- ...");
    }
    Ok(())
}

/// Builds the programs to measure, and returns their folder.
fn build() -> Result<PathBuf> {
    let words = ["build", "--release", "--locked", "-p", "carom", "-p", "carom-loadgen"];
    let status = Command::new("cargo").args(words).status().context("cargo cannot be started")?;
    if !status.success() {
        bail!("the build ended with {status}");
    }
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a program is in a folder")?.to_owned())
}

fn raise_open_files() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

fn write_json(results: &Results, file: &Path) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(std::fs::write(file, serde_json::to_string_pretty(results)? + "\n")?)
}

/// Writes the results and the page, and shows the table.
fn finish(results: &Results, json: Option<&Path>) -> Result<()> {
    if let Some(json) = json {
        write_json(results, json)?;
    }
    let folder = json.and_then(Path::parent).unwrap_or(Path::new("bench/results"));
    std::fs::create_dir_all(folder)?;
    for (name, svg) in report::plots(results) {
        std::fs::write(folder.join(name), svg)?;
    }
    let page = folder.parent().unwrap_or(Path::new(".")).join("RESULTS.md");
    std::fs::write(&page, report::page(results))?;
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(report::table(results).as_bytes());
    say(&format!("the page is {}", page.display()));
    Ok(())
}
