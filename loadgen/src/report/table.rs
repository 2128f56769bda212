//! The report as a table, printed at the end of a run.

use std::fmt::Write as _;

use carom_telemetry::readable;

use super::{LatencyRow, Report};
use crate::results::record::Summary;
use crate::units::show_micros;

impl Report {
    /// Returns the table for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.settings())?;
        if !self.found.is_empty() {
            writeln!(out, "\nsearch")?;
        }
        for step in &self.found {
            writeln!(out, "{step}")?;
        }
        self.write_latency(out)?;
        writeln!(out)?;
        self.write_requests(out)?;
        self.write_generator(out)?;
        self.write_verdict(out)
    }

    /// Writes a row of latencies for each kind of request.
    fn write_latency(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<22}{:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "latency", "mean", "p50", "p80", "p90", "p99", "p99.9", "p99.99", "max"
        )?;
        for LatencyRow { name, intended, actual } in &self.rows {
            if self.is_open() {
                write_summary(out, &format!("{name}, corrected"), intended)?;
                write_summary(out, &format!("{name}, uncorrected"), actual)?;
            } else {
                write_summary(out, name, actual)?;
            }
        }
        if self.is_open() {
            writeln!(out, "(corrected: from the planned send time; uncorrected: from the actual one)")?;
        }
        Ok(())
    }

    /// Writes the numbers of requests: sent, late and failed ones.
    fn write_requests(&self, out: &mut String) -> std::fmt::Result {
        let (record, counts) = (&self.record, &self.record.counts);
        writeln!(
            out,
            "throughput  {}/s successful; {} of {} planned requests sent, {} not sent",
            readable::grouped(record.throughput() as u64),
            readable::grouped(counts.sent),
            readable::grouped(counts.planned),
            readable::grouped(counts.unsent),
        )?;
        if self.is_open() {
            writeln!(
                out,
                "sent late   {} by more than 1 ms: {} had no free connection, {} because of the generator",
                readable::grouped(counts.late_for_server + counts.late_for_generator),
                readable::grouped(counts.late_for_server),
                readable::grouped(counts.late_for_generator),
            )?;
        }
        let faults: Vec<String> =
            self.faults().iter().map(|(name, count)| format!("{name} {}", readable::grouped(*count))).collect();
        writeln!(out, "errors      {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") })
    }

    /// Writes the load of the generator itself, by which people judge whether it was the bottleneck.
    fn write_generator(&self, out: &mut String) -> std::fmt::Result {
        let record = &self.record;
        writeln!(
            out,
            "generator   {:.2} µs of CPU per request (user {:.2} s, system {:.2} s), busiest thread {:.0}%; can send at least {}/s",
            record.cpu_micros_per_request(),
            record.cpu.user,
            record.cpu.system,
            record.busiest * 100.0,
            readable::grouped(self.ceiling() as u64),
        )?;
        if self.is_open() {
            let [p50, .., p99, _, _] = self.lag.quantiles;
            let max = show_micros(self.lag.max);
            writeln!(
                out,
                "lag         p50 {}, p99 {}, max {max} (scheduler lag of the generator)",
                show_micros(p50),
                show_micros(p99)
            )?;
        }
        Ok(())
    }

    /// Writes each objective, the verdict on the run, and the result of a search.
    fn write_verdict(&self, out: &mut String) -> std::fmt::Result {
        for objective in &self.objectives {
            let word = if objective.held { "met" } else { "missed" };
            writeln!(out, "objective   {}: {} {word}", objective.text, objective.shown)?;
        }
        writeln!(out, "verdict     {}", self.verdict.text())?;
        if let Some(why) = &self.bottleneck {
            writeln!(out, "            {why}")?;
        }
        match &self.found_rate {
            Some(found) => writeln!(out, "\n{}", found.text),
            None => Ok(()),
        }
    }
}

fn write_summary(out: &mut String, name: &str, summary: &Summary) -> std::fmt::Result {
    write!(out, "{name:<22}{:>10}", show_micros(summary.mean))?;
    for value in summary.quantiles {
        write!(out, " {:>10}", show_micros(value))?;
    }
    writeln!(out, " {:>10}", show_micros(summary.max))
}
