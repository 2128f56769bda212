//! The results as a table for the terminal, a page, and plots. Pure.

mod bars;
mod bypass;
mod fleet;
mod format;

use std::fmt::Write as _;

use crate::results::{Budget, BudgetedFigure, Results, Sample};
use crate::servers::peers::REFERENCE;

use self::bars::{Bar, bars};
use self::format::{ReportColumn, number, verdict, write_machine};

/// Scenario that represents saturation; the next one represents a steady load.
const SATURATED: &str = "64 connections";
const STEADY: &str = "open loop, 40,000/s";

/// Subject that has budgets.
const CAROM: &str = "carom, 10 M links";
const FLOOR: &str = "floor: bare io_uring";

const COLUMNS: [ReportColumn; 7] = [
    ("right answers/s", |sample| sample.throughput, 0),
    ("CPU µs", Sample::cpu_micros, 2),
    ("user", |sample| sample.user_micros, 2),
    ("system", |sample| sample.system_micros, 2),
    ("p50 µs", |sample| sample.p50, 0),
    ("p99 µs", |sample| sample.p99, 0),
    ("p99.9 µs", |sample| sample.p999, 0),
];

/// Renders the results as a table for a terminal.
pub(crate) fn table(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, results);
    out
}

fn write_table(out: &mut String, results: &Results) -> std::fmt::Result {
    for scenario in &results.scenarios {
        write!(out, "\n{scenario:<32}")?;
        COLUMNS.iter().try_for_each(|(name, ..)| write!(out, "{name:>16}"))?;
        writeln!(out, "{:>16}{:>10}", "CPU by nginx", "errors")?;
        for subject in &results.subjects {
            write!(out, "{:<32}", subject.name)?;
            for (_, pick, digits) in COLUMNS {
                let value = results.median(&subject.name, scenario, pick).unwrap_or(0.0);
                write!(out, "{value:>16.digits$}")?;
            }
            let ratio = results.ratio(&subject.name, REFERENCE, scenario, Sample::cpu_micros);
            let errors = results.worst(&subject.name, scenario, |sample| sample.errors as f64).unwrap_or(0.0);
            writeln!(out, "{:>16}{errors:>10.0}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")))?;
        }
    }
    let figures = budgeted(results);
    if !figures.is_empty() {
        writeln!(out, "\nbudgets and growth")?;
    }
    for figure in figures {
        writeln!(out, "  {:<60}{:>14} {:<9} {}", figure.name, number(figure.value), figure.unit, verdict(&figure))?;
    }
    results.bypass.iter().try_for_each(|results| bypass::write_table(out, results))?;
    results.fleet.iter().try_for_each(|results| fleet::write_table(out, results))
}

/// Returns the budgets of the comparison, then all figures of growth.
fn budgeted(results: &Results) -> Vec<BudgetedFigure> {
    let mut figures = Vec::new();
    let mut add = |name: &str, value: Option<f64>, unit: &str, bound: f64, how: &str| {
        let budget = Some(Budget::AtMost(bound));
        let figure = |value| BudgetedFigure {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            budget,
            how: how.to_owned(),
            measured: String::new(),
        };
        figures.extend(value.map(figure));
    };
    let how = "64 connections, at saturation; median of the rounds' ratios";
    let ratio = |to| results.ratio(CAROM, to, SATURATED, Sample::cpu_micros);
    add("CPU per redirect by nginx return 302", ratio(REFERENCE), "times", 0.85, how);
    add("CPU per redirect by a bare io_uring loop", ratio(FLOOR), "times", 1.2, how);
    let how = "open loop from the intended instant, one core, 10 M links";
    let steady = |pick: fn(&Sample) -> f64| results.median(CAROM, STEADY, pick);
    add("p80 at 40,000/s", steady(|sample| sample.p80), "µs", 1_000.0, how);
    add("p99 at 40,000/s", steady(|sample| sample.p99), "µs", 3_000.0, how);
    add("errors at 40,000/s", results.worst(CAROM, STEADY, |sample| sample.errors as f64), "", 0.0, how);
    figures.extend(results.growth.iter().cloned());
    figures
}

/// Renders the page, in Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut out, results);
    out
}

/// Returns the method of a measurement, with its date if that is not the one of the others.
fn how(figure: &BudgetedFigure) -> String {
    let BudgetedFigure { how, measured, .. } = figure;
    if measured.is_empty() { how.clone() } else { format!("{how}; measured on {measured}") }
}

fn write_page(out: &mut String, results: &Results) -> std::fmt::Result {
    let machine = &results.machine;
    writeln!(out, "# Results\n\nMade by `carom-bench`; to make them again:\n")?;
    writeln!(out, "```sh\nmake bench      # installs the peers (as root), compares, and measures growth\n```\n")?;
    write_machine(out, "Comparison", machine)?;
    if !results.growth.is_empty() {
        write_machine(out, "Growth", &results.growth_machine)?;
    }
    writeln!(
        out,
        "Server on one CPU, client (`carom-loadgen`, minimal headers, every answer checked) on another. Each figure is the median of its runs, which took turns with those of all others; errors are those of the worst run.\n"
    )?;
    writeln!(
        out,
        "CPU is the server's time in user and kernel mode for each request: steadier than throughput, which the client limits where marked *.\n"
    )?;
    let figures = budgeted(results);
    if !figures.is_empty() {
        writeln!(out, "## Budgets and growth\n\n| what | value | budget | how |\n|---|---|---|---|")?;
    }
    for figure in figures {
        writeln!(
            out,
            "| {} | {} {} | {} | {} |",
            figure.name,
            number(figure.value),
            figure.unit,
            verdict(&figure),
            how(&figure)
        )?;
    }
    if !results.runs.is_empty() {
        writeln!(out, "\n## CPU for each redirect\n\n![CPU for each redirect at saturation](results/cpu.svg)\n")?;
        writeln!(out, "## Latency at 40,000 requests a second\n\n![p99 at 40,000 a second](results/p99.svg)\n")?;
    }
    for scenario in &results.scenarios {
        write_scenario(out, results, scenario)?;
    }
    if !results.subjects.is_empty() {
        writeln!(out, "\n## Memory\n\n| server | MiB |\n|---|---|")?;
    }
    for subject in &results.subjects {
        writeln!(out, "| {} | {} |", subject.name, number(subject.memory as f64 / f64::from(1 << 20)))?;
    }
    results.bypass.iter().try_for_each(|results| bypass::write_section(out, results))?;
    results.fleet.iter().try_for_each(|results| fleet::write_section(out, results))?;
    if !(results.notes.is_empty() && results.growth_notes.is_empty()) {
        writeln!(out, "\n## Notes\n")?;
    }
    let notes = results.notes.iter().chain(&results.growth_notes);
    notes.into_iter().try_for_each(|note| writeln!(out, "* {note}"))?;
    if !results.subjects.is_empty() {
        writeln!(out, "\n## Settings\n")?;
    }
    for subject in &results.subjects {
        writeln!(
            out,
            "<details><summary>{}: {}</summary>\n\n```\n{}\n```\n</details>\n",
            subject.name,
            subject.version,
            subject.settings.trim()
        )?;
    }
    Ok(())
}

fn write_scenario(out: &mut String, results: &Results, scenario: &str) -> std::fmt::Result {
    write!(out, "\n## {scenario}\n\n| server |")?;
    COLUMNS.iter().try_for_each(|(name, ..)| write!(out, " {name} |"))?;
    writeln!(out, " CPU by nginx `return 302` | errors |\n|---|{}", "---|".repeat(COLUMNS.len() + 2))?;
    for subject in &results.subjects {
        let limited = results.median(&subject.name, scenario, |sample| f64::from(u8::from(sample.client_limited)));
        let mark = if limited >= Some(0.5) { " *" } else { "" };
        write!(out, "| {} |", subject.name)?;
        for (at, (_, pick, digits)) in COLUMNS.into_iter().enumerate() {
            let value = results.median(&subject.name, scenario, pick).unwrap_or(0.0);
            write!(out, " {value:.digits$}{} |", if at == 0 { mark } else { "" })?;
        }
        let ratio = results.ratio(&subject.name, REFERENCE, scenario, Sample::cpu_micros);
        let errors = results.worst(&subject.name, scenario, |sample| sample.errors as f64).unwrap_or(0.0);
        writeln!(out, " {} | {errors:.0} |", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")))?;
    }
    Ok(())
}

/// Renders the plots, each with its file name.
pub(crate) fn plots(results: &Results) -> Vec<(&'static str, String)> {
    if results.runs.is_empty() {
        return Vec::new();
    }
    let of = |scenario: &str, parts: &[fn(&Sample) -> f64]| -> Vec<Bar> {
        let bar = |name: &String| Bar {
            name: name.clone(),
            parts: parts.iter().map(|pick| results.median(name, scenario, pick).unwrap_or(0.0)).collect(),
            is_ours: name.starts_with("carom"),
        };
        results.subjects.iter().map(|subject| bar(&subject.name)).collect()
    };
    let cpu = of(SATURATED, &[|sample| sample.user_micros, |sample| sample.system_micros]);
    let p99 = of(STEADY, &[|sample| sample.p99]);
    vec![
        ("cpu.svg", bars("Server CPU for each redirect, µs: user and kernel, 64 connections, at saturation", &cpu)),
        ("p99.svg", bars("p99 at 40,000 requests a second, µs", &p99)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{MeasuredRun, MeasuredServer};

    fn results() -> Results {
        let run = |subject: &str, scenario: &str, micros: f64| MeasuredRun {
            subject: subject.to_owned(),
            scenario: scenario.to_owned(),
            sample: Sample { user_micros: micros, p99: 500.0, client_limited: true, ..Sample::default() },
        };
        let subject = |name: &str| MeasuredServer {
            name: name.to_owned(),
            version: "1".to_owned(),
            settings: "x\n".to_owned(),
            memory: 1 << 20,
        };
        Results {
            subjects: vec![subject(CAROM), subject(REFERENCE)],
            scenarios: vec![SATURATED.to_owned(), STEADY.to_owned()],
            runs: vec![
                run(CAROM, SATURATED, 6.0),
                run(REFERENCE, SATURATED, 8.0),
                run(CAROM, STEADY, 6.0),
                run(REFERENCE, STEADY, 8.0),
            ],
            notes: vec!["A note.".to_owned()],
            ..Results::default()
        }
    }

    #[test]
    fn the_page_says_what_was_measured() {
        let page = page(&results());
        for words in [
            "| CPU per redirect by nginx return 302 | 0.75 times | at most 0.85: reached |",
            "| p99 at 40,000/s | 500.0 µs | at most 3000: reached |",
            "| carom, 10 M links | 0 * | 6.00 | 6.00 | 0.00 |",
            "* A note.",
            "<details><summary>nginx return 302: 1</summary>",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
        assert!(table(&results()).contains("0.75"));
    }

    #[test]
    fn plots_are_whole_and_without_markup_of_names() {
        for (name, svg) in plots(&results()) {
            assert!(svg.starts_with("<svg"), "{name}");
            assert!(svg.trim_end().ends_with("</svg>"), "{name}");
        }
        assert!(plots(&Results::default()).is_empty());
    }
}
