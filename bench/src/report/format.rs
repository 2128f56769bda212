//! Figures, budgets and machines, as every part of the report writes them. Pure.

use std::fmt::Write as _;

use crate::results::{BenchMachine, Budget, BudgetedFigure, Sample};

/// A column of a report: its heading, its value in a run, and its decimal places.
pub(super) type ReportColumn = (&'static str, fn(&Sample) -> f64, usize);

/// Formats a figure with as many decimal places as are meaningful.
pub(super) fn number(value: f64) -> String {
    match value {
        value if value >= 1_000.0 => format!("{value:.0}"),
        value if value >= 20.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Returns the budget of a figure and whether the figure reaches it; an empty text without a budget.
pub(super) fn verdict(figure: &BudgetedFigure) -> String {
    let Some(budget) = figure.budget else { return String::new() };
    let bound = match budget {
        Budget::AtMost(bound) => format!("at most {}", number(bound)),
        Budget::AtLeast(bound) => format!("at least {}", number(bound)),
    };
    format!("{bound}: {}", if budget.is_kept(figure.value) { "reached" } else { "not reached" })
}

/// Writes a paragraph about the machine of a measurement.
pub(super) fn write_machine(out: &mut String, what: &str, machine: &BenchMachine) -> std::fmt::Result {
    let kind = if machine.is_virtual { "a virtual machine" } else { "bare metal" };
    let memory = machine.memory as f64 / f64::from(1u32 << 30);
    writeln!(
        out,
        "{what}: {} CPUs of {} ({kind}), {memory:.0} GiB, Linux {}; commit {}, {}; {} runs of {} s each.\n",
        machine.cpus, machine.cpu, machine.kernel, machine.commit, machine.date, machine.rounds, machine.seconds
    )
}
