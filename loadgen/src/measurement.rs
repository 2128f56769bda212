//! A measurement as the user sees it: a run with its progress, then its reports.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::command_line::options::RunOptions;
use crate::console::{ProgressOutput, print};
use crate::failure::{Failure, INTERRUPTED, UNREACHABLE};
use crate::plan::Plan;
use crate::report::Report;
use crate::run::{self, RunError, RunOutcome};
use crate::workload::links::LinkTable;

/// Runs a plan and shows its progress.
pub(crate) fn measure(
    plan: &Plan,
    links: &Arc<LinkTable>,
    stop: &Arc<AtomicBool>,
    console: &ProgressOutput,
) -> Result<RunOutcome, Failure> {
    let mut progress = console.progress(plan);
    let outcome = run::run(&Arc::new(plan.clone()), links, stop, &mut progress);
    progress.end();
    outcome.map_err(|error| match error {
        RunError::Unreachable(reason) => {
            let targets: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
            Failure { code: UNREACHABLE, text: format!("{} cannot be reached: {reason}", targets.join(", ")) }
        }
        RunError::Interrupted => Failure { code: INTERRUPTED, text: "interrupted".to_owned() },
        RunError::Failed(error) => Failure::usage(format!("the generator failed: {error}")),
    })
}

/// Writes the requested reports, and returns the exit code of the verdict.
pub(crate) fn finish(order: &RunOptions, report: &Report, outcome: &RunOutcome) -> Result<u8, Failure> {
    // The files first: they are not lost with standard output.
    report.write_files(&order.files, outcome).map_err(Failure::usage)?;
    if !order.quiet {
        print(&report.table())?;
    }
    Ok(report.verdict.exit_code())
}
