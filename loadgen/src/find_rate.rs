//! Looks for the highest rate that keeps the objectives.
//!
//! The rate doubles until an objective is missed; then the gap between the highest that held and the lowest that did not
//! is halved until it is small. What held is run once more at the end: one lucky run is no answer.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::Order;
use crate::links::Links;
use crate::plan::{Loop, Plan};
use crate::report::Report;
use crate::run::Outcome;
use crate::units;
use crate::verdict::Verdict;
use crate::{Console, Failure, finish, measure, say};

/// The search ends when the gap is this share of the rate.
const GAP_SHARE: f64 = 0.05;

/// Runs at most; doubling from one request a second to a hundred million takes 27.
const RUNS_MAX: usize = 48;

/// A rate that did not hold when it was tried again is lowered by this share.
const STEP_BACK: f64 = 0.05;

struct Search<'a> {
    order: &'a Order,
    links: &'a Arc<Links>,
    stop: &'a Arc<AtomicBool>,
    console: &'a Console,
    runs: usize,
    lines: String,
}

/// Searches. Returns the exit code.
pub(crate) fn search(
    order: &Order,
    links: &Arc<Links>,
    stop: &Arc<AtomicBool>,
    console: &Console,
) -> Result<u8, Failure> {
    let mut search = Search { order, links, stop, console, runs: 0, lines: String::new() };
    let (mut held, mut missed) = (None, None);
    let mut rate = order.plan.rate().unwrap_or(1.0);
    while search.may_go_on() {
        let (report, outcome, plan) = search.run(rate)?;
        match report.verdict {
            Verdict::Ok => held = Some((rate, report, outcome, plan)),
            Verdict::WrongAnswers => return finish(order, &report, &outcome),
            Verdict::Missed | Verdict::Bottleneck => missed = Some((rate, report, outcome)),
        }
        rate = match (&held, &missed) {
            (Some((held, ..)), None) => held * 2.0,
            (None, Some((missed, ..))) if *missed <= 1.0 => break,
            (None, Some((missed, ..))) => missed / 2.0,
            (Some((held, ..)), Some((missed, ..))) if missed / held <= 1.0 + GAP_SHARE => break,
            (Some((held, ..)), Some((missed, ..))) => (held + missed) / 2.0,
            (None, None) => break,
        };
    }
    let Some((mut rate, mut report, mut outcome, _)) = held else {
        return match missed {
            Some((_, report, outcome)) => finish(order, &report, &outcome),
            None => Err(Failure::usage("the search was ended before its first run")),
        };
    };
    while search.may_go_on() {
        let (again, its_outcome, _) = search.run(rate)?;
        let is_ok = again.verdict == Verdict::Ok;
        (report, outcome) = (again, its_outcome);
        if is_ok {
            break;
        }
        rate *= 1.0 - STEP_BACK;
    }
    report.found = Some(search.lines);
    finish(order, &report, &outcome)
}

impl Search<'_> {
    fn may_go_on(&self) -> bool {
        self.runs < RUNS_MAX && !self.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self, rate: f64) -> Result<(Report, Outcome, Plan), Failure> {
        self.runs += 1;
        let mut plan = self.order.plan.clone();
        if let Loop::Open { rate: planned, .. } = &mut plan.pace {
            *planned = rate.round().max(1.0);
        }
        let outcome = measure(&plan, self.links, self.stop, self.console)?;
        let report = Report::new(&plan, &outcome, &self.order.objectives, self.links.len());
        let figures: Vec<String> =
            report.judged.iter().map(|judged| format!("{} ({})", judged.shown, judged.text)).collect();
        let line =
            format!("{:>11}/s  {}: {}", units::show_count(rate as u64), report.verdict.text(), figures.join(", "));
        if !self.order.quiet {
            say(&line);
        }
        // A string takes what is written.
        let _ = writeln!(self.lines, "{line}");
        Ok((report, outcome, plan))
    }
}
