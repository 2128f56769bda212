//! The measurements of a fleet, as a table for the terminal and as a section of the page. Pure.

use super::format::write_machine;
use crate::results::{FleetResults, FleetRun, median};

/// A column: its heading, its value in a run, and its decimal places.
type FleetColumn = (&'static str, fn(&FleetRun) -> Option<f64>, usize);

const COLUMNS: [FleetColumn; 5] = [
    ("right answers/s", |run| Some(run.throughput), 0),
    ("Redis commands each", |run| Some(run.redis?.commands), 3),
    ("Redis bytes each", |run| Some(run.redis?.bytes), 0),
    ("idle commands/s", |run| Some(run.idle?.commands), 0),
    ("idle bytes/s", |run| Some(run.idle?.bytes), 0),
];

/// Returns the median of a figure over the rounds of a subject in a scenario, as text.
fn cell(results: &FleetResults, subject: &str, scenario: &str, (_, pick, digits): FleetColumn) -> String {
    let runs = results.runs.iter().filter(|run| run.subject == subject && run.scenario == scenario);
    median(runs.filter_map(pick).collect()).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Writes the table for a terminal.
pub(super) fn write_table(out: &mut String, results: &FleetResults) -> std::fmt::Result {
    use std::fmt::Write as _;
    for scenario in &results.scenarios {
        write!(out, "\n{scenario:<32}")?;
        COLUMNS.iter().try_for_each(|(name, ..)| write!(out, "{name:>22}"))?;
        writeln!(out)?;
        for subject in &results.subjects {
            write!(out, "{subject:<32}")?;
            COLUMNS.iter().try_for_each(|column| write!(out, "{:>22}", cell(results, subject, scenario, *column)))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Writes the section of the page.
pub(super) fn write_section(out: &mut String, results: &FleetResults) -> std::fmt::Result {
    use std::fmt::Write as _;
    writeln!(out, "\n## A fleet\n")?;
    write_machine(out, "Nodes of one core each and one Redis, together on one CPU", &results.machine)?;
    writeln!(
        out,
        "{}, with `appendonly yes`. Commands include those of scripts; commands and bytes of each request are beyond those of an idle fleet.\n",
        results.redis
    )?;
    write!(out, "| load | fleet |")?;
    COLUMNS.iter().try_for_each(|(name, ..)| write!(out, " {name} |"))?;
    writeln!(out, " errors |\n|---|---|{}", "---|".repeat(COLUMNS.len() + 1))?;
    for scenario in &results.scenarios {
        for subject in &results.subjects {
            write!(out, "| {scenario} | {subject} |")?;
            COLUMNS.iter().try_for_each(|column| write!(out, " {} |", cell(results, subject, scenario, *column)))?;
            let runs = results.runs.iter().filter(|run| run.subject == *subject && run.scenario == *scenario);
            writeln!(out, " {} |", runs.map(|run| run.errors).max().unwrap_or(0))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RedisLoad;

    #[test]
    fn medians_of_each_fleet_are_shown() {
        let run = |throughput: f64, redis: Option<RedisLoad>| FleetRun {
            subject: if redis.is_some() { "three nodes" } else { "one node without Redis" }.to_owned(),
            scenario: "creates".to_owned(),
            throughput,
            redis,
            idle: redis,
            errors: 2,
        };
        let load = |commands: f64| Some(RedisLoad { commands, bytes: 700.0 });
        let results = FleetResults {
            subjects: vec!["one node without Redis".to_owned(), "three nodes".to_owned()],
            scenarios: vec!["creates".to_owned()],
            runs: vec![run(9_000.0, None), run(5_000.0, load(3.0)), run(7_000.0, load(5.0))],
            ..FleetResults::default()
        };
        let (mut page, mut table) = (String::new(), String::new());
        write_section(&mut page, &results).unwrap();
        write_table(&mut table, &results).unwrap();
        assert!(page.contains("| creates | three nodes | 6000 | 4.000 | 700 | 4 | 700 | 2 |"), "{page}");
        assert!(page.contains("| creates | one node without Redis | 9000 | - | - | - | - | 2 |"), "{page}");
        assert!(table.contains("three nodes"), "{table}");
    }
}
