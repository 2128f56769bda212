//! The figures of kernel bypass with their budgets. Pure.

use super::scenarios::{MANY, RENEWED, SATURATED, STEADY, WITH_TLS};
use super::servers::{OVER_BYPASS, OVER_KERNEL, REFERENCE};
use crate::results::{
    Budget, BudgetedFigure, BypassResults, ComparedFigure, Sample, median, median_of, ratio_of, rounds_of,
};

/// Figures that are ratios to nginx: name, scenario, figure of a run, and the highest ratio.
type Ratio = (&'static str, &'static str, fn(&Sample) -> f64, f64);

const RATIOS: [Ratio; 6] = [
    ("server CPU per redirect, 64 connections", SATURATED, Sample::cpu_micros, 0.6),
    ("server CPU per redirect, 1,024 connections", MANY, Sample::cpu_micros, 0.6),
    ("CPU of the machine per redirect, 64 connections", SATURATED, |sample| sample.machine_micros, 0.65),
    ("CPU of the machine per redirect, 40,000/s", STEADY, |sample| sample.machine_micros, 0.7),
    ("p99 at 40,000/s", STEADY, |sample| sample.p99, 0.6),
    ("server CPU, a connection for each request", RENEWED, Sample::cpu_micros, 0.6),
];

/// Returns the figures of the results. Figures without a measurement are left out.
pub(super) fn of(results: &BypassResults) -> Vec<ComparedFigure> {
    let mut figures = Vec::new();
    let mut add = |name: &str, value: Option<f64>, kernel: Option<f64>, unit: &str, most: Option<f64>, how: &str| {
        let Some(value) = value else { return };
        let (name, unit, how) = (name.to_owned(), unit.to_owned(), how.to_owned());
        let figure =
            BudgetedFigure { name, value, unit, budget: most.map(Budget::AtMost), how, measured: String::new() };
        figures.push(ComparedFigure { figure, kernel });
    };
    for (name, scenario, pick, most) in RATIOS {
        let ratio = |subject| ratio_of(&results.runs, subject, REFERENCE, scenario, pick);
        let how = "relative to nginx over the same veth; median of the rounds' ratios";
        add(&format!("{name}, relative to nginx"), ratio(OVER_BYPASS), ratio(OVER_KERNEL), "times", Some(most), how);
    }
    let p99 = |subject| median_of(&results.runs, subject, STEADY, |sample| sample.p99 / 1_000.0);
    let how = "from the intended instant";
    add("p99 at 40,000/s", p99(OVER_BYPASS), p99(OVER_KERNEL), "ms", Some(1.0), how);
    let how = "(CPU over bypass with TLS - cipher) / CPU over kernel sockets without TLS; the cipher is the difference that TLS makes over kernel sockets";
    add(
        "server CPU with TLS, without the cipher, relative to kernel sockets",
        without_cipher(results),
        None,
        "times",
        Some(0.6),
        how,
    );
    let stack = Some(results.idle_over_bypass - results.idle_over_kernel).filter(|_| results.idle_over_kernel > 0.0);
    let how =
        "memory per idle connection over bypass, less that over kernel sockets; the kernel's buffers are not counted";
    add("memory per idle connection in the stack", stack, None, "bytes", Some(256.0), how);
    let how = "64 connections, at saturation";
    add("frames received per redirect", median(results.frames_in.clone()), None, "", None, how);
    add("frames sent per redirect", median(results.frames_out.clone()), None, "", None, how);
    let how =
        "a thread that turns frames around with AF_XDP, without TCP: system calls, copies and both ways over the veth";
    add("CPU per frame in the veth itself, receiver", measured(results.reflector_micros), None, "µs", None, how);
    let how = "of the machine, the sender of the frames included";
    add("CPU per frame in the veth itself, machine", measured(results.reflector_machine_micros), None, "µs", None, how);
    figures.extend(export(results));
    figures
}

/// Returns a value that was measured: any but 0.
fn measured(value: f64) -> Option<f64> {
    Some(value).filter(|value| *value > 0.0)
}

/// Compares the export of many links over bypass with that over kernel sockets.
fn export(results: &BypassResults) -> Option<ComparedFigure> {
    let rounds = results.export_over_bypass.iter().zip(&results.export_over_kernel);
    let figure = BudgetedFigure {
        name: "export of links, bytes/s relative to kernel sockets".to_owned(),
        value: median(rounds.map(|(bypass, kernel)| bypass / kernel).collect())?,
        unit: "times".to_owned(),
        budget: Some(Budget::AtLeast(0.5)),
        how: "up to 256 MiB over one connection; median of the rounds' ratios".to_owned(),
        measured: String::new(),
    };
    Some(ComparedFigure { figure, kernel: None })
}

/// Returns the server's CPU over bypass with TLS, less the cost of the cipher, relative to kernel sockets without TLS.
fn without_cipher(results: &BypassResults) -> Option<f64> {
    let rounds = |subject, scenario| rounds_of(&results.runs, subject, scenario, Sample::cpu_micros);
    let (secure, plain) = (rounds(OVER_KERNEL, WITH_TLS), rounds(OVER_KERNEL, SATURATED));
    let kernel = secure.into_iter().zip(plain);
    let ratio = |(bypass, (secure, plain)): (f64, (f64, f64))| (bypass - (secure - plain)) / plain;
    median(rounds(OVER_BYPASS, WITH_TLS).into_iter().zip(kernel).map(ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::MeasuredRun;

    fn results() -> BypassResults {
        let run = |subject: &str, scenario: &str, micros: f64| MeasuredRun {
            subject: subject.to_owned(),
            scenario: scenario.to_owned(),
            sample: Sample {
                user_micros: micros,
                machine_micros: 2.0 * micros,
                p99: 100.0 * micros,
                ..Sample::default()
            },
        };
        let mut runs = Vec::new();
        for scenario in [SATURATED, MANY, STEADY, RENEWED, WITH_TLS] {
            let cipher = if scenario == WITH_TLS { 2.0 } else { 0.0 };
            for (subject, micros) in [(OVER_BYPASS, 3.0), (OVER_KERNEL, 5.0), (REFERENCE, 6.0)] {
                runs.push(run(subject, scenario, micros + cipher));
            }
        }
        BypassResults {
            runs,
            idle_over_bypass: 900.0,
            idle_over_kernel: 700.0,
            export_over_bypass: vec![60.0],
            export_over_kernel: vec![80.0],
            ..BypassResults::default()
        }
    }

    #[test]
    fn ratios_and_the_cipher_are_worked_out() {
        let figures = of(&results());
        let value = |name: &str| {
            let found = figures.iter().find(|figure| figure.figure.name == name);
            found.unwrap_or_else(|| panic!("{name} in {figures:#?}"))
        };
        let saturated = value("server CPU per redirect, 64 connections, relative to nginx");
        assert_eq!((saturated.figure.value, saturated.kernel), (0.5, Some(5.0 / 6.0)));
        assert_eq!(saturated.figure.budget, Some(Budget::AtMost(0.6)));
        let secure = value("server CPU with TLS, without the cipher, relative to kernel sockets");
        assert_eq!(secure.figure.value, 3.0 / 5.0);
        assert_eq!(value("p99 at 40,000/s").figure.value, 0.3);
        assert_eq!(value("export of links, bytes/s relative to kernel sockets").figure.value, 0.75);
        assert_eq!(value("memory per idle connection in the stack").figure.value, 200.0);
    }

    #[test]
    fn figures_without_runs_are_left_out() {
        let mut results = results();
        results.runs.retain(|run| run.subject != REFERENCE);
        assert!(of(&results).iter().all(|figure| !figure.figure.name.contains("nginx")));
    }
}
