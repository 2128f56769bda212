//! The comparison of kernel bypass, as a table for the terminal and as a section of the page. Pure.

use super::format::{ReportColumn, number, verdict, write_machine};
use crate::results::{BypassResults, ComparedFigure, Sample, median_of, rounds_of};

const COLUMNS: [ReportColumn; 6] = [
    ("right answers/s", |sample| sample.throughput, 0),
    ("server CPU µs", Sample::cpu_micros, 2),
    ("machine CPU µs", |sample| sample.machine_micros, 2),
    ("p50 µs", |sample| sample.p50, 0),
    ("p99 µs", |sample| sample.p99, 0),
    ("p99.9 µs", |sample| sample.p999, 0),
];

/// Writes the table for a terminal.
pub(super) fn write_table(out: &mut String, results: &BypassResults) -> std::fmt::Result {
    use std::fmt::Write as _;
    for scenario in &results.scenarios {
        write!(out, "\n{scenario:<32}")?;
        COLUMNS.iter().try_for_each(|(name, ..)| write!(out, "{name:>16}"))?;
        writeln!(out, "{:>10}", "errors")?;
        for subject in &results.subjects {
            write!(out, "{:<32}", subject.name)?;
            for (_, pick, digits) in COLUMNS {
                let value = median_of(&results.runs, &subject.name, scenario, pick).unwrap_or(0.0);
                write!(out, "{value:>16.digits$}")?;
            }
            writeln!(out, "{:>10.0}", errors(results, &subject.name, scenario))?;
        }
    }
    writeln!(out, "\nkernel bypass")?;
    for ComparedFigure { figure, kernel } in &results.figures {
        let kernel = kernel.map_or(String::new(), |value| format!("({} over kernel sockets)", number(value)));
        let (value, verdict) = (number(figure.value), verdict(figure));
        writeln!(out, "  {:<76}{value:>8} {:<6} {verdict} {kernel}", figure.name, figure.unit)?;
    }
    Ok(())
}

/// Writes the section of the page.
pub(super) fn write_section(out: &mut String, results: &BypassResults) -> std::fmt::Result {
    use std::fmt::Write as _;
    writeln!(out, "\n## Kernel bypass\n")?;
    write_machine(out, "Comparison over a veth pair between two network namespaces", &results.machine)?;
    writeln!(out, "carom has {} links and one core; nginx has one worker and returns one redirect.\n", results.links)?;
    writeln!(out, "| what | carom over bypass | over kernel sockets | budget | how |\n|---|---|---|---|---|")?;
    for ComparedFigure { figure, kernel } in &results.figures {
        let kernel = kernel.map_or(String::new(), |value| format!("{} {}", number(value), figure.unit));
        let (name, value, unit) = (&figure.name, number(figure.value), &figure.unit);
        writeln!(out, "| {name} | {value} {unit} | {kernel} | {} | {} |", verdict(figure), figure.how)?;
    }
    for scenario in &results.scenarios {
        write!(out, "\n### Over a veth: {scenario}\n\n| server |")?;
        COLUMNS.iter().try_for_each(|(name, ..)| write!(out, " {name} |"))?;
        writeln!(out, " errors |\n|---|{}", "---|".repeat(COLUMNS.len() + 1))?;
        for subject in &results.subjects {
            let limited =
                rounds_of(&results.runs, &subject.name, scenario, |sample| f64::from(u8::from(sample.client_limited)));
            let mark = if limited.iter().sum::<f64>() * 2.0 >= limited.len().max(1) as f64 { " *" } else { "" };
            write!(out, "| {} |", subject.name)?;
            for (at, (_, pick, digits)) in COLUMNS.into_iter().enumerate() {
                let value = median_of(&results.runs, &subject.name, scenario, pick).unwrap_or(0.0);
                write!(out, " {value:.digits$}{} |", if at == 0 { mark } else { "" })?;
            }
            writeln!(out, " {:.0} |", errors(results, &subject.name, scenario))?;
        }
    }
    results
        .notes
        .iter()
        .enumerate()
        .try_for_each(|(at, note)| writeln!(out, "{}* {note}", if at == 0 { "\n" } else { "" }))?;
    for subject in &results.subjects {
        let (name, version, settings) = (&subject.name, &subject.version, subject.settings.trim());
        writeln!(
            out,
            "\n<details><summary>Over a veth: {name}: {version}</summary>\n\n```\n{settings}\n```\n</details>"
        )?;
    }
    Ok(())
}

/// Returns the errors of the worst round.
fn errors(results: &BypassResults, subject: &str, scenario: &str) -> f64 {
    rounds_of(&results.runs, subject, scenario, |sample| sample.errors as f64).into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Budget, BudgetedFigure, MeasuredRun, MeasuredServer};

    #[test]
    fn budgets_and_both_datapaths_are_shown() {
        let run = |errors| MeasuredRun {
            subject: "carom over bypass".to_owned(),
            scenario: "64 connections".to_owned(),
            sample: Sample {
                user_micros: 3.0,
                machine_micros: 8.0,
                p99: 270.0,
                errors,
                client_limited: true,
                ..Sample::default()
            },
        };
        let figure = BudgetedFigure {
            name: "server CPU".to_owned(),
            value: 0.7,
            unit: "times".to_owned(),
            budget: Some(Budget::AtMost(0.6)),
            how: "a median".to_owned(),
            measured: String::new(),
        };
        let subject = MeasuredServer {
            name: "carom over bypass".to_owned(),
            version: "1".to_owned(),
            settings: "x".to_owned(),
            memory: 1,
        };
        let results = BypassResults {
            links: 7,
            subjects: vec![subject],
            scenarios: vec!["64 connections".to_owned()],
            runs: vec![run(0), run(2)],
            figures: vec![ComparedFigure { figure, kernel: Some(0.95) }],
            notes: vec!["A note.".to_owned()],
            ..BypassResults::default()
        };
        let (mut page, mut table) = (String::new(), String::new());
        write_section(&mut page, &results).unwrap();
        write_table(&mut table, &results).unwrap();
        for words in [
            "| server CPU | 0.70 times | 0.95 times | at most 0.60: not reached | a median |",
            "| carom over bypass | 0 * | 3.00 | 8.00 | 0 | 270 | 0 | 2 |",
            "\n* A note.\n",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
        assert!(table.contains("not reached (0.95 over kernel sockets)"), "{table}");
    }
}
