//! The search for the highest rate that meets the objectives.
//!
//! The rate doubles until an objective is missed. Then the search halves the gap between the highest rate that held
//! and the lowest that did not, until the gap is small. At the end it confirms the result with another run, since
//! one run may be lucky. A rate must also be reached: at most one planned request in a thousand may be unanswered.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use carom_telemetry::readable;

use crate::command_line::options::RunOptions;
use crate::command_line::values::RATE_MAX;
use crate::console::{ProgressOutput, say};
use crate::failure::Failure;
use crate::measurement::{finish, measure};
use crate::plan::Loop;
use crate::report::{FoundRate, RateStep, Report};
use crate::results::check::Fault;
use crate::results::verdict::{self, RunVerdict};
use crate::run::RunOutcome;
use crate::workload::links::LinkTable;

/// Share of the rate that the gap may have at the end of the search.
const GAP_SHARE: f64 = 0.05;

/// Maximum number of runs; doubling from one request per second to a hundred million takes 27.
const RUNS_MAX: usize = 48;

/// Maximum number of confirmation runs, each a little slower than the one before.
const CONFIRMATIONS_MAX: usize = 16;

/// Share by which a rate is lowered if a confirmation run fails.
const STEP_BACK: f64 = 0.05;

struct RateSearch<'a> {
    options: &'a RunOptions,
    links: &'a Arc<LinkTable>,
    stop: &'a Arc<AtomicBool>,
    console: &'a ProgressOutput,
    steps: Vec<RateStep>,
    /// Lowest rate that missed, and the reason.
    limit: Option<(f64, String)>,
}

/// A run at one rate.
struct RateTrial {
    rate: f64,
    held: bool,
    report: Report,
    outcome: RunOutcome,
}

/// Runs the search. Returns the exit code.
pub(crate) fn search(
    options: &RunOptions,
    links: &Arc<LinkTable>,
    stop: &Arc<AtomicBool>,
    console: &ProgressOutput,
) -> Result<u8, Failure> {
    let mut search = RateSearch { options, links, stop, console, steps: Vec::new(), limit: None };
    let (mut held, mut missed): (Option<RateTrial>, Option<RateTrial>) = (None, None);
    let mut rate = options.plan.rate().unwrap_or(1.0);
    while search.steps.len() < RUNS_MAX {
        let run = search.run(rate)?;
        match run.report.verdict {
            RunVerdict::Interrupted => return search.end(run),
            // Wrong at any rate. A status alone may be how a server reports overload.
            RunVerdict::WrongAnswers if is_wrong_at_any_rate(&run.outcome) => return search.end(run),
            _ if run.held => held = Some(run),
            _ => missed = Some(run),
        }
        rate = match (&held, &missed) {
            (Some(held), None) if held.rate * 2.0 > RATE_MAX => break,
            (Some(held), None) => held.rate * 2.0,
            (None, Some(missed)) if missed.rate <= 1.0 => break,
            (None, Some(missed)) => missed.rate / 2.0,
            (Some(held), Some(missed))
                if missed.rate / held.rate <= 1.0 + GAP_SHARE || missed.rate - held.rate <= 1.0 =>
            {
                break;
            }
            (Some(held), Some(missed)) => (held.rate + missed.rate) / 2.0,
            (None, None) => break,
        };
    }
    let limit = missed.as_ref().and_then(|run| run.report.bottleneck.clone().map(|why| (run.rate, why)));
    match (held, missed) {
        (Some(best), _) => search.confirm(best.rate, limit.as_ref()),
        (None, Some(worst)) => search.end(worst),
        (None, None) => Err(Failure::usage("the search ended before its first run")),
    }
}

/// True if the wrong responses cannot come from overload.
fn is_wrong_at_any_rate(outcome: &RunOutcome) -> bool {
    outcome.record.wrong_answers() > outcome.record.fault(Fault::Status)
}

impl RateSearch<'_> {
    /// Confirms the result with another run, at lower rates if it does not hold again. `limit` is the rate at which
    /// the generator was the bottleneck, and the reason.
    fn confirm(mut self, mut rate: f64, limit: Option<&(f64, String)>) -> Result<u8, Failure> {
        let last = self.steps.len() + CONFIRMATIONS_MAX;
        loop {
            let mut run = self.run(rate)?;
            if run.held
                && let Some((beyond, why)) = limit
            {
                let beyond = readable::grouped(*beyond as u64);
                run.report.verdict = RunVerdict::Bottleneck;
                run.report.bottleneck =
                    Some(format!("at {beyond}/s, {why}. The server may sustain a higher rate than the one found"));
            }
            if run.held || run.report.verdict == RunVerdict::Interrupted || self.steps.len() >= last || rate <= 1.0 {
                return self.end(run);
            }
            rate = (rate * (1.0 - STEP_BACK)).max(1.0);
        }
    }

    fn end(self, mut run: RateTrial) -> Result<u8, Failure> {
        if !run.held && run.report.verdict == RunVerdict::Ok {
            // The answered requests met the objectives, but too many were unanswered.
            run.report.verdict = RunVerdict::Missed;
        }
        run.report.found_rate = Some(self.found_rate(&run));
        run.report.found = self.steps;
        finish(self.options, &run.report, &run.outcome)
    }

    /// Says which rate the search has found, given its last run.
    fn found_rate(&self, run: &RateTrial) -> FoundRate {
        let objectives: Vec<&str> = self.options.objectives.iter().map(|objective| objective.text.as_str()).collect();
        let (objectives, rate) = (objectives.join(","), readable::grouped(run.rate as u64));
        if !run.held {
            let why = run.report.verdict.text();
            let best = self.steps.iter().filter(|step| step.held).map(|step| step.rate).reduce(f64::max);
            let text = match best.map(|best| readable::grouped(best as u64)) {
                Some(best) => format!("{best}/s was within {objectives}, but is unconfirmed (at {rate}/s: {why})"),
                None => format!("no rate found within {objectives} (at {rate}/s: {why})"),
            };
            return FoundRate { rate: None, text };
        }
        let limit = self.limit.as_ref().map_or("the highest rate that can be set", |(_, why)| why.as_str());
        let text = format!("max rate {rate}/s within {objectives} (limited by: {limit})");
        FoundRate { rate: Some(run.rate), text }
    }

    /// Notes why a rate missed, if no lower one did.
    fn note_limit(&mut self, rate: f64, report: &Report) {
        if self.limit.as_ref().is_some_and(|(lowest, _)| *lowest < rate) {
            return;
        }
        let shown = readable::grouped(rate as u64);
        let why = match (report.verdict, report.objectives.iter().find(|objective| !objective.held)) {
            (RunVerdict::Bottleneck, _) => format!("the generator, at {shown}/s"),
            (RunVerdict::Missed, Some(objective)) => {
                format!("{} of {} at {shown}/s", objective.measure(), objective.shown)
            }
            (RunVerdict::Ok, _) => format!("requests without an answer at {shown}/s"),
            (verdict, _) => format!("{} at {shown}/s", verdict.text()),
        };
        self.limit = Some((rate, why));
    }

    fn run(&mut self, rate: f64) -> Result<RateTrial, Failure> {
        let mut plan = self.options.plan.clone();
        let rate = rate.round().max(1.0);
        if let Loop::Open { rate: planned, .. } = &mut plan.pace {
            *planned = rate;
        }
        let outcome = measure(&plan, self.links, self.stop, self.console)?;
        let report = Report::new(&plan, &outcome, &self.options.objectives, self.links.len());
        let reached = verdict::is_reached(&outcome.record);
        let held = report.verdict == RunVerdict::Ok && reached;
        let mut figures: Vec<String> =
            report.objectives.iter().map(|objective| format!("{} ({})", objective.shown, objective.text)).collect();
        if !reached {
            let without = outcome.record.errors() + outcome.record.counts.unsent;
            figures.push(format!("{} without an answer", readable::grouped(without)));
        }
        let word = if report.verdict == RunVerdict::Ok && !reached { "not reached" } else { report.verdict.text() };
        if !held {
            self.note_limit(rate, &report);
        }
        let step = RateStep { rate, held, text: format!("{word}: {}", figures.join(", ")) };
        if !self.options.quiet {
            say(&step.to_string());
        }
        self.steps.push(step);
        Ok(RateTrial { rate, held, report, outcome })
    }
}
