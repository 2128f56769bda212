//! The report of a run, in formats for people and for programs.

mod hgrm;
mod hlog;
mod html;
mod json;
mod plot;
mod table;

use std::time::SystemTime;

use carom_telemetry::readable;

use crate::command_line::output::{OutputFile, OutputFormat};
use crate::plan::{Loop, Plan};
use crate::results::check::Fault;
use crate::results::record::{RunRecord, Summary};
use crate::results::verdict::{self, Objective, ObjectiveResult, RunVerdict};
use crate::run::RunOutcome;
use crate::workload::traffic::RequestKind;

/// Latencies of one kind of request, or of all.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRow {
    /// `all`, or the name of the kind.
    pub(crate) name: &'static str,
    /// Latencies from the intended instant of sending.
    pub(crate) intended: Summary,
    /// Latencies from the actual instant of sending.
    pub(crate) actual: Summary,
}

/// One run of a search for the highest rate.
#[derive(Clone, Debug)]
pub(crate) struct RateStep {
    /// Rate in requests per second.
    pub(crate) rate: f64,
    /// True if the run met the objectives.
    pub(crate) held: bool,
    /// Result of the run, in words.
    pub(crate) text: String,
}

impl std::fmt::Display for RateStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>11}/s  {}", readable::grouped(self.rate as u64), self.text)
    }
}

/// Result of a search for the highest rate.
#[derive(Clone, Debug)]
pub(crate) struct FoundRate {
    /// Highest rate that met the objectives; `None` if no rate did.
    pub(crate) rate: Option<f64>,
    /// Result in one line.
    pub(crate) text: String,
}

/// All figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Verdict on the run.
    pub(crate) verdict: RunVerdict,
    /// Objectives with their measured values.
    pub(crate) objectives: Vec<ObjectiveResult>,
    /// Steps of a search for the highest rate.
    pub(crate) found: Vec<RateStep>,
    /// Result of a search; `None` for a single run.
    pub(crate) found_rate: Option<FoundRate>,
    /// True if the user ended the run early.
    interrupted: bool,
    plan: Plan,
    links: usize,
    record: RunRecord,
    rows: Vec<LatencyRow>,
    lag: Summary,
    /// Reason why the generator was the bottleneck; `None` if it was not.
    pub(crate) bottleneck: Option<String>,
    began: SystemTime,
}

impl Report {
    /// Builds the report of a run.
    pub(crate) fn new(plan: &Plan, outcome: &RunOutcome, objectives: &[Objective], links: usize) -> Report {
        let record = &outcome.record;
        let all = record.all();
        let row = |name, latencies: &crate::results::record::Latencies| LatencyRow {
            name,
            intended: Summary::of(&latencies.intended),
            actual: Summary::of(&latencies.actual),
        };
        let mut rows = vec![row("all", &all)];
        rows.extend(
            RequestKind::ALL
                .into_iter()
                .filter(|&kind| plan.mix.has(kind))
                .map(|kind| row(kind.name(), record.kind(kind))),
        );
        let objectives: Vec<ObjectiveResult> =
            objectives.iter().map(|objective| objective.evaluate(record, &rows[0].intended)).collect();
        let is_open = plan.rate().is_some();
        Report {
            verdict: RunVerdict::of(record, is_open, outcome.interrupted, &objectives),
            bottleneck: verdict::bottleneck(record, is_open, &objectives),
            objectives,
            found: Vec::new(),
            found_rate: None,
            interrupted: outcome.interrupted,
            plan: plan.clone(),
            links,
            record: record.clone(),
            rows,
            lag: Summary::of(&record.lag),
            began: outcome.began,
        }
    }

    /// Writes the requested files.
    ///
    /// # Errors
    /// Each file that cannot be written, with the reason. The others are written.
    pub(crate) fn write_files(&self, files: &[OutputFile], outcome: &RunOutcome) -> Result<(), String> {
        // The warm-up comes before the measured time, whose first second is number 0.
        let measured = self.began + self.plan.warmup;
        let mut wrong = Vec::new();
        for OutputFile { format, path } in files {
            let bytes = match format {
                OutputFormat::Json => self.json(&outcome.series).into_bytes(),
                OutputFormat::Html => self.html(&outcome.series).into_bytes(),
                OutputFormat::Text => self.table().into_bytes(),
                OutputFormat::Hgrm => self.hgrm().into_bytes(),
                OutputFormat::Hlog => hlog::write(measured, &outcome.series),
            };
            if let Err(error) = std::fs::write(path, bytes) {
                wrong.push(format!("{} cannot be written: {error}", path.display()));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// True if intended and actual instants differ: in an open loop.
    fn is_open(&self) -> bool {
        self.plan.rate().is_some()
    }

    /// Returns the requests per second that the generator's threads could send, given the CPU time of each request.
    fn ceiling(&self) -> f64 {
        let micros = self.record.cpu_micros_per_request();
        if micros > 0.0 { 1e6 / micros * self.plan.cpus.len() as f64 } else { 0.0 }
    }

    /// Returns the targets as the user wrote them.
    fn targets(&self) -> String {
        let names: Vec<&str> = self.plan.targets.iter().map(|target| target.name.as_str()).collect();
        names.join(", ")
    }

    /// Describes the settings of the run in one line.
    fn settings(&self) -> String {
        let plan = &self.plan;
        let pace = match plan.pace {
            Loop::Open { arrival, rate } => {
                format!("open loop, {} arrivals at {}/s", arrival.name(), readable::grouped(rate as u64))
            }
            Loop::Closed => "closed loop".to_owned(),
        };
        let http2 = if plan.http2 { ", HTTP/2" } else { "" };
        let pipeline = if plan.pipeline > 1 { format!(", {} in flight on each", plan.pipeline) } else { String::new() };
        let renew = plan
            .renew
            .map(|renew| format!(", each replaced after {}", readable::count(renew, "request")))
            .unwrap_or_default();
        let popularity = match plan.zipf {
            Some(exponent) if exponent > 0.0 => format!("Zipf {exponent}"),
            _ => "uniform".to_owned(),
        };
        let cpus: Vec<String> = plan.cpus.iter().map(usize::to_string).collect();
        let content = if plan.mix.has(RequestKind::Url) {
            "the URL as given".to_owned()
        } else {
            format!("{}, {popularity}, {}", readable::count(self.links as u64, "link"), plan.mix)
        };
        format!(
            "{pace} to {}{http2}; {}{pipeline}{renew}; {content}; {} headers; {} {}; seed {}",
            self.targets(),
            readable::count(plan.connections as u64, "connection"),
            plan.headers.name(),
            if cpus.len() == 1 { "CPU" } else { "CPUs" },
            cpus.join(","),
            plan.seed,
        )
    }

    /// Returns the kinds of errors that occurred, with their counts.
    fn faults(&self) -> Vec<(&'static str, u64)> {
        let all = Fault::ALL.into_iter().map(|fault| (fault.name(), self.record.fault(fault)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}
