//! The report as a self-contained HTML page: it loads no script, font or image.

use std::fmt::Write as _;

use carom_telemetry::readable;
use hdrhistogram::Histogram;

use super::Report;
use super::plot::{Curve, Plot, linear_marks, log_marks, second_marks};
use crate::results::record::Summary;
use crate::results::verdict::RunVerdict;
use crate::run::Second;
use crate::units::show_micros;

/// Steps of the percentile curve in each half of the distance to 100 %.
const CURVE_STEPS: u32 = 20;

/// Style sheet of the report: the design tokens of carom's own pages, then the rules.
const STYLE: &str = concat!(include_str!("../../../src/api/console/web/tokens.css"), include_str!("report.css"));

impl Report {
    /// Returns the report as an HTML page.
    pub(crate) fn html(&self, series: &[Second]) -> String {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
        // Writing to a string cannot fail.
        let _ = self.write_page(&mut out, series);
        out
    }

    fn write_page(&self, out: &mut String, series: &[Second]) -> std::fmt::Result {
        writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
        let began = httpdate::fmt_http_date(self.began);
        writeln!(out, "<title>Load test of {}, {began}</title>", escaped(&self.targets()))?;
        writeln!(out, "<style>{}</style></head><body>", STYLE)?;
        writeln!(out, "<h1>Load test</h1><p class=\"soft\">{}</p>", escaped(&self.settings()))?;
        let class = if self.verdict == RunVerdict::Ok { "good" } else { "bad" };
        writeln!(out, "<p class=\"verdict {class}\">{}</p>", self.verdict.text())?;
        if let Some(why) = &self.bottleneck {
            writeln!(out, "<p>{}</p>", escaped(why))?;
        }
        self.write_cards(out)?;
        self.write_objectives(out)?;
        if !self.found.is_empty() {
            let steps: Vec<String> = self.found.iter().map(ToString::to_string).collect();
            writeln!(out, "<h2>Search</h2><pre>{}</pre>", escaped(&steps.join("\n")))?;
        }
        if let Some(found) = &self.found_rate {
            writeln!(out, "<p>{}</p>", escaped(&found.text))?;
        }
        writeln!(out, "<h2>Latency by percentile</h2>{}", self.curve())?;
        if series.len() > 1 {
            writeln!(out, "<h2>Latency over time</h2>{}", latency_plot(series))?;
            writeln!(out, "<h2>Throughput over time</h2>{}", throughput_plot(series))?;
        }
        self.write_table_of_kinds(out)?;
        self.write_notes(out)?;
        writeln!(out, "</body></html>")
    }

    fn write_cards(&self, out: &mut String) -> std::fmt::Result {
        let latency = if self.is_open() { &self.rows[0].intended } else { &self.rows[0].actual };
        let unanswered = self.record.errors() + self.record.counts.unsent;
        let cards = [
            (format!("{}/s", readable::grouped(self.record.throughput() as u64)), "Successful requests"),
            (show_micros(latency.quantiles[0]), "p50"),
            (show_micros(latency.quantiles[3]), "p99"),
            (show_micros(latency.quantiles[4]), "p99.9"),
            (show_micros(latency.max), "Max"),
            (readable::grouped(unanswered), "Failed or not sent"),
        ];
        writeln!(out, "<div class=\"cards\">")?;
        for (value, name) in cards {
            writeln!(out, "<div><b>{value}</b><span>{name}</span></div>")?;
        }
        writeln!(out, "</div>")
    }

    fn write_objectives(&self, out: &mut String) -> std::fmt::Result {
        if self.objectives.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "<h2>Objectives</h2><div class=\"scroll\"><table><thead><tr><th>Objective</th><th>Measured</th><th>Result</th></tr></thead>"
        )?;
        for objective in &self.objectives {
            let (class, word) = if objective.held { ("good", "Met") } else { ("bad", "Missed") };
            writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
                escaped(&objective.text),
                objective.shown
            )?;
        }
        writeln!(out, "</table></div>")
    }

    /// Renders the distribution over nines: the axis is log10(1 / (1 - percentile)).
    fn curve(&self) -> String {
        let all = self.record.all();
        let mut lines = vec![Curve { name: "Corrected", class: "a", points: points(&all.intended) }];
        if self.is_open() {
            lines.push(Curve { name: "Uncorrected", class: "b", points: points(&all.actual) });
        } else {
            lines[0].name = "Latency";
        }
        let nines = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max).ceil() as u32;
        let label = |nines: u32| match nines {
            0 => "0%".to_owned(),
            1 => "90%".to_owned(),
            2 => "99%".to_owned(),
            more => format!("99.{}%", "9".repeat(more as usize - 2)),
        };
        let x_marks = (0..=nines).map(|at| super::plot::Mark { at: f64::from(at), label: label(at) }).collect();
        let values = || lines.iter().flat_map(|line| &line.points).map(|point| 10f64.powf(point.1));
        let max = values().fold(1.0, f64::max);
        // Without a successful request there is no value.
        let y_marks = log_marks(values().fold(max, f64::min), max, show_micros);
        Plot { title: "Latency by percentile", x_name: "Percentile", x_marks, y_marks, lines }.svg()
    }

    fn write_table_of_kinds(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "<h2>Latency by kind of request</h2><div class=\"scroll\"><table><thead><tr><th>Kind</th><th>Requests</th><th>Mean</th><th>p50</th><th>p80</th><th>p90</th><th>p99</th><th>p99.9</th><th>p99.99</th><th>Max</th></tr></thead>"
        )?;
        for row in &self.rows {
            if self.is_open() {
                write_row(out, &format!("{}, corrected", row.name), &row.intended)?;
                write_row(out, &format!("{}, uncorrected", row.name), &row.actual)?;
            } else {
                write_row(out, row.name, &row.actual)?;
            }
        }
        writeln!(out, "</table></div>")
    }

    fn write_notes(&self, out: &mut String) -> std::fmt::Result {
        let (record, counts) = (&self.record, &self.record.counts);
        let faults: Vec<String> = self.faults().iter().map(|(name, count)| format!("{name} {count}")).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
        let began = httpdate::fmt_http_date(self.began);
        writeln!(out, "<h2>The run</h2><div class=\"scroll\"><table class=\"facts\">")?;
        let rows = [
            ("Started", began),
            ("Measured", format!("{:.1} s, after {:.1} s of warm-up", record.seconds, self.plan.warmup.as_secs_f64())),
            (
                "Requests",
                format!(
                    "{} planned, {} sent, {} successful, {} not sent",
                    readable::grouped(counts.planned),
                    readable::grouped(counts.sent),
                    readable::grouped(counts.completed),
                    readable::grouped(counts.unsent)
                ),
            ),
            (
                "Sent more than 1 ms late",
                format!(
                    "{} had no free connection, {} because of the generator",
                    readable::grouped(counts.late_for_server),
                    readable::grouped(counts.late_for_generator)
                ),
            ),
            ("Errors", faults),
            (
                "Generator",
                format!(
                    "{:.2} µs of CPU per request; busiest thread {:.0}%; can send at least {}/s",
                    record.cpu_micros_per_request(),
                    record.busiest * 100.0,
                    readable::grouped(self.ceiling() as u64)
                ),
            ),
            (
                "Scheduler lag",
                format!(
                    "p50 {}, p99 {}, max {}",
                    show_micros(self.lag.quantiles[0]),
                    show_micros(self.lag.quantiles[3]),
                    show_micros(self.lag.max)
                ),
            ),
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        for (name, value) in rows {
            writeln!(out, "<tr><td>{name}</td><td>{}</td></tr>", escaped(&value))?;
        }
        writeln!(
            out,
            "</table></div>\n<p class=\"soft\">Corrected latency counts from the planned send time, uncorrected latency from the actual one. Requests without an answer, and requests that were not sent, count with the time for which they waited. Scheduler lag is how late the threads of the generator woke up.</p>"
        )
    }
}

fn write_row(out: &mut String, name: &str, summary: &Summary) -> std::fmt::Result {
    write!(
        out,
        "<tr><td>{name}</td><td>{}</td><td>{}</td>",
        readable::grouped(summary.count),
        show_micros(summary.mean)
    )?;
    for value in summary.quantiles {
        write!(out, "<td>{}</td>", show_micros(value))?;
    }
    writeln!(out, "<td>{}</td></tr>", show_micros(summary.max))
}

/// Returns the points of the percentile curve: nines, and the logarithm of microseconds.
fn points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let last = (histogram.len().max(1) as f64).log10();
    histogram
        .iter_quantiles(CURVE_STEPS)
        .map(|step| {
            let left = 1.0 - step.quantile_iterated_to();
            let nines = if left > 0.0 { (1.0 / left).log10().min(last) } else { last };
            (nines, (step.value_iterated_to() as f64 / 1e3).max(1e-3).log10())
        })
        .collect()
}

fn latency_plot(series: &[Second]) -> String {
    let line = |name, class, pick: fn(&Summary) -> f64| {
        let points = series.iter().map(|one| (one.second as f64, pick(&one.summary).max(1e-3).log10())).collect();
        Curve { name, class, points }
    };
    let lines = vec![
        line("p50", "a", |summary| summary.quantiles[0]),
        line("p99", "b", |summary| summary.quantiles[3]),
        line("Max", "c", |summary| summary.max),
    ];
    let seen = || series.iter().filter(|one| one.summary.count > 0);
    let min = seen().map(|one| one.summary.quantiles[0]).fold(f64::INFINITY, f64::min);
    let max = seen().map(|one| one.summary.max).fold(1.0, f64::max);
    let y_marks = log_marks(min.min(max), max, show_micros);
    over_time("Latency over time", series, y_marks, lines)
}

fn throughput_plot(series: &[Second]) -> String {
    let line = |name, class, pick: fn(&Second) -> u64| Curve {
        name,
        class,
        points: series.iter().map(|one| (one.second as f64, pick(one) as f64)).collect(),
    };
    let lines = vec![line("Successful requests/s", "a", |one| one.completed), line("Errors/s", "b", |one| one.errors)];
    let max = series.iter().map(|one| one.completed.max(one.errors)).max().unwrap_or(1);
    let y_marks = linear_marks(max as f64, |value| readable::grouped(value as u64));
    over_time("Throughput over time", series, y_marks, lines)
}

fn over_time(title: &'static str, series: &[Second], y_marks: Vec<super::plot::Mark>, lines: Vec<Curve>) -> String {
    let last = series.last().map_or(1, |one| one.second.max(1));
    Plot { title, x_name: "Seconds", x_marks: second_marks(last), y_marks, lines }.svg()
}

/// Escapes text for the inside of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<a> & b"), "&lt;a&gt; &amp; b");
    }
}
