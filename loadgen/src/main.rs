//! `carom-loadgen`: an open-loop load generator for redirect servers.
//!
//! `command_line` reads and checks what the user asks for, and a `plan` is the result. The pure parts are `workload` (which
//! requests, and when), `protocol` (bytes of HTTP and TLS) and `results` (correctness, counts, histograms, objectives).
//! `run` carries out a plan on a few threads, and `console` shows its progress. `report` shows the results. `measurement`
//! does a run with its progress and reports, and `find_rate` many. `compare` compares the results of two runs.

mod command_line;
mod compare;
mod console;
mod failure;
mod find_rate;
mod measurement;
mod plan;
mod protocol;
mod report;
mod results;
mod run;
mod units;
mod workload;

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carom_telemetry::{panics, readable};
use clap::Parser;

use crate::command_line::cli::{Arguments, OtherWork};
use crate::command_line::manual;
use crate::command_line::options::{LinkSource, RunOptions};
use crate::console::{ProgressOutput, say};
use crate::failure::{Failure, INTERRUPTED};
use crate::measurement::{finish, measure};
use crate::plan::{Loop, Plan};
use crate::report::Report;
use crate::results::check::Fault;
use crate::results::record::Summary;
use crate::workload::links::LinkTable;
use crate::workload::traffic::{Mix, RequestKind};

/// Lines of an export between two progress messages: a multiple of the reader's interval.
const PROGRESS_LINES: usize = 1 << 20;

fn main() -> ExitCode {
    panics::abort_on_panic();
    // clap itself ends with 2 for unknown options.
    let mut arguments = Arguments::parse();
    let result = match arguments.work.take() {
        Some(OtherWork::Compare(arguments)) => compare::run(&arguments),
        Some(OtherWork::Man { dir }) => manual::write(&dir).map(|()| 0),
        None => arguments.check().map_err(|wrong| Failure::usage(wrong.join("\n"))).and_then(|order| carry_out(&order)),
    };
    let code = match result {
        Ok(code) => code,
        Err(failure) => {
            say(&failure.text);
            failure.code
        }
    };
    ExitCode::from(code)
}

fn carry_out(order: &RunOptions) -> Result<u8, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal asks for an orderly end; a second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&stop))
            .map_err(|error| Failure::usage(error.to_string()))?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let console = ProgressOutput::new(order.quiet, order.live);
    let links = Arc::new(prepare_links(order, &stop, &console)?);
    if order.find_rate {
        return find_rate::search(order, &links, &stop, &console);
    }
    let outcome = measure(&order.plan, &links, &stop, &console)?;
    let report = Report::new(&order.plan, &outcome, &order.objectives, links.len());
    finish(order, &report, &outcome)
}

/// Reads the links, or creates them.
fn prepare_links(order: &RunOptions, stop: &Arc<AtomicBool>, console: &ProgressOutput) -> Result<LinkTable, Failure> {
    match &order.source {
        LinkSource::None => Ok(LinkTable::default()),
        LinkSource::File(path) => {
            let show = |lines: usize| {
                if !order.quiet && lines.is_multiple_of(PROGRESS_LINES) {
                    say(&format!("{} lines read", readable::grouped(lines as u64)));
                }
                !stop.load(Ordering::Relaxed)
            };
            LinkTable::read(path, show).map_err(|reason| {
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
fn create(
    order: &RunOptions,
    count: u64,
    stop: &Arc<AtomicBool>,
    console: &ProgressOutput,
) -> Result<LinkTable, Failure> {
    let plan = Plan {
        pace: Loop::Closed,
        mix: Mix::only(RequestKind::Create),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(24 * 3_600),
        renew: None,
        pipeline: 1,
        requests: Some(count),
        collects_created: true,
        ..order.plan.clone()
    };
    let console = console.while_creating(count);
    let outcome = measure(&plan, &Arc::new(LinkTable::default()), stop, &console)?;
    if outcome.interrupted {
        return Err(Failure { code: INTERRUPTED, text: "interrupted while creating links".to_owned() });
    }
    let record = outcome.record;
    let distinct: HashSet<&str> = record.created.iter().map(|(code, _)| code.as_str()).collect();
    if distinct.len() != record.created.len() {
        let text = format!(
            "the server created {} with only {}",
            readable::count(record.created.len() as u64, "link"),
            readable::count(distinct.len() as u64, "different code")
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
    let mut links = LinkTable::default();
    for (code, target) in &record.created {
        links.push(code.as_bytes(), target.as_bytes(), None).map_err(Failure::usage)?;
    }
    if !order.quiet {
        let rate = readable::grouped((count as f64 / record.seconds.max(1e-9)) as u64);
        let latency = Summary::of(&record.kind(RequestKind::Create).actual);
        let p99 = units::show_micros(latency.quantiles[3]);
        say(&format!("created {}, {rate}/s, p99 {p99}", readable::count(count, "link")));
    }
    Ok(links)
}
