//! `carom-loadgen`: an open-loop load generator for redirect servers.
//!
//! The pure parts are `schedule` (instants), `traffic`, `popularity` and `links` (content), `request` and
//! `response` (bytes), `check` (correctness), `record` (counts and histograms) and `verdict` (objectives). `crew`
//! combines them for the connections of one thread without I/O; `worker` drives it with a ring; `run` starts the
//! workers; `report` shows the results.

mod check;
mod cli;
mod crew;
mod find_rate;
mod links;
mod plan;
mod popularity;
mod random;
mod record;
mod report;
mod request;
mod response;
mod run;
mod schedule;
mod tls;
mod traffic;
mod units;
mod verdict;
mod worker;

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;

use crate::check::Fault;
use crate::cli::{Arguments, LinkSource, RunOptions};
use crate::links::Links;
use crate::plan::{Loop, Plan};
use crate::record::{Interval, Summary};
use crate::report::Report;
use crate::run::{RunError, RunOutcome};
use crate::traffic::RequestKind;

/// Lines of an export between two progress messages: a multiple of the reader's interval.
const PROGRESS_LINES: usize = 1 << 20;

/// Exit code for invalid options or files.
const USAGE: u8 = 2;

/// Exit code for an unreachable target.
const UNREACHABLE: u8 = 4;

/// Exit code for a signal before there was a result.
const INTERRUPTED: u8 = 130;

/// A reason to end, with its exit code.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn usage(text: impl Into<String>) -> Failure {
        Failure { code: USAGE, text: text.into() }
    }
}

fn main() -> ExitCode {
    // clap itself ends with 2 for unknown options.
    let code = match Arguments::parse()
        .check()
        .map_err(|wrong| Failure::usage(wrong.join("\n")))
        .and_then(|order| carry_out(&order))
    {
        Ok(code) => code,
        Err(failure) => {
            say(&failure.text);
            failure.code
        }
    };
    ExitCode::from(code)
}

/// Writes one line to standard error. Ignores a closed stream.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn carry_out(order: &RunOptions) -> Result<u8, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal asks for an orderly end; a second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&stop))
            .map_err(|error| Failure::usage(error.to_string()))?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let console = Console { quiet: order.quiet, is_terminal: io::stderr().is_terminal(), making: None };
    let links = Arc::new(prepare_links(order, &stop, &console)?);
    if order.find_rate {
        return find_rate::search(order, &links, &stop, &console);
    }
    let outcome = measure(&order.plan, &links, &stop, &console)?;
    let report = Report::new(&order.plan, &outcome, &order.objectives, links.len());
    finish(order, &report, &outcome)
}

/// Writes the requested reports, and returns the exit code of the verdict.
fn finish(order: &RunOptions, report: &Report, outcome: &RunOutcome) -> Result<u8, Failure> {
    if !order.quiet {
        // The reader may have closed the pipe.
        let _ = io::stdout().write_all(report.table().as_bytes());
    }
    report.write_files(&order.files, outcome).map_err(Failure::usage)?;
    Ok(report.verdict.exit_code())
}

/// Runs a plan and shows its progress.
fn measure(plan: &Plan, links: &Arc<Links>, stop: &Arc<AtomicBool>, console: &Console) -> Result<RunOutcome, Failure> {
    let seconds = plan.duration.as_secs_f64();
    let outcome = run::run(&Arc::new(plan.clone()), links, stop, |interval| console.show_second(interval, seconds));
    console.end_line();
    outcome.map_err(|error| match error {
        RunError::Unreachable(reason) => {
            let targets: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
            Failure { code: UNREACHABLE, text: format!("{} cannot be reached: {reason}", targets.join(", ")) }
        }
        RunError::Interrupted => Failure { code: INTERRUPTED, text: "interrupted".to_owned() },
        RunError::Failed(error) => Failure::usage(format!("the generator failed: {error}")),
    })
}

/// Reads the links, or creates them.
fn prepare_links(order: &RunOptions, stop: &Arc<AtomicBool>, console: &Console) -> Result<Links, Failure> {
    match &order.source {
        LinkSource::None => Ok(Links::default()),
        LinkSource::File(path) => {
            let show = |lines: usize| {
                if !order.quiet && lines.is_multiple_of(PROGRESS_LINES) {
                    say(&format!("{} lines read", units::show_count(lines as u64)));
                }
                !stop.load(Ordering::Relaxed)
            };
            Links::read(path, show).map_err(|reason| {
                if stop.load(Ordering::Relaxed) {
                    Failure { code: INTERRUPTED, text: "interrupted".to_owned() }
                } else {
                    Failure::usage(format!("--codes: {reason}"))
                }
            })
        }
        LinkSource::Create(count) => create(order, *count, stop, console),
    }
}

/// Creates links through the API, as fast as the server accepts them.
fn create(order: &RunOptions, count: u64, stop: &Arc<AtomicBool>, console: &Console) -> Result<Links, Failure> {
    let plan = Plan {
        pace: Loop::Closed,
        mix: cli::creating(),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(24 * 3_600),
        renew: None,
        pipeline: 1,
        create_only: Some(count),
        ..order.plan.clone()
    };
    let console = Console { making: Some(count), ..*console };
    let outcome = measure(&plan, &Arc::new(Links::default()), stop, &console)?;
    if outcome.interrupted {
        return Err(Failure { code: INTERRUPTED, text: "interrupted while creating links".to_owned() });
    }
    let record = outcome.record;
    let distinct: HashSet<&str> = record.created.iter().map(|(code, _)| code.as_str()).collect();
    if distinct.len() != record.created.len() {
        let text = format!(
            "the server created {} with only {}",
            units::show_noun(record.created.len() as u64, "link"),
            units::show_noun(distinct.len() as u64, "different code")
        );
        return Err(Failure { code: 1, text: format!("{text}: it issued codes more than once") });
    }
    if record.created.len() as u64 != count {
        let answered = record.created.len();
        let faults = Fault::ALL.into_iter().filter(|&fault| record.fault(fault) > 0);
        let faults: Vec<String> = faults.map(|fault| format!("{} {}", fault.name(), record.fault(fault))).collect();
        let hint = if record.fault(Fault::Status) > 0 {
            ". Does the target serve carom's API, and does it require --api-key?"
        } else {
            ""
        };
        return Err(Failure {
            code: 1,
            text: format!("created only {answered} of {count} links; errors: {}{hint}", faults.join(", ")),
        });
    }
    let mut links = Links::default();
    for (code, target) in &record.created {
        links.push(code.as_bytes(), target.as_bytes(), None).map_err(Failure::usage)?;
    }
    if !order.quiet {
        let rate = units::show_count((count as f64 / record.seconds.max(1e-9)) as u64);
        let latency = Summary::of(&record.kind(RequestKind::Create).actual);
        let p99 = units::show_micros(latency.quantiles[3]);
        say(&format!("created {}, {rate}/s, p99 {p99}", units::show_noun(count, "link")));
    }
    Ok(links)
}

/// Display of the progress, on standard error.
#[derive(Clone, Copy, Debug)]
struct Console {
    quiet: bool,
    is_terminal: bool,
    /// Number of links to create, while links are created.
    making: Option<u64>,
}

impl Console {
    fn show_second(self, interval: &Interval, of: f64) {
        if self.quiet {
            return;
        }
        let summary = Summary::of(&interval.latency);
        let end = match self.making {
            Some(count) => format!(", creating {}", units::show_noun(count, "link")),
            None => format!(" of {of:.0}"),
        };
        let text = format!(
            "{:>4} s{end}: {:>9}/s   p50 {:>8}   p99 {:>8}   max {:>8}   errors {}",
            interval.second + 1,
            units::show_count(interval.completed),
            units::show_micros(summary.quantiles[0]),
            units::show_micros(summary.quantiles[3]),
            units::show_micros(summary.max),
            interval.errors,
        );
        if self.is_terminal {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[2K{text}").and_then(|()| out.flush());
        } else {
            say(&text);
        }
    }

    fn end_line(self) {
        if self.is_terminal && !self.quiet {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
