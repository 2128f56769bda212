//! The stored results, from which the page is rendered.

use serde::{Deserialize, Serialize};

/// All results of one run, or of several that were merged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Results {
    /// Machine and date of the comparison.
    pub(crate) machine: BenchMachine,
    /// Machine and date of the growth measurements.
    #[serde(default)]
    pub(crate) growth_machine: BenchMachine,
    /// Machine and date of the present run, if it replaces only some figures of growth.
    #[serde(skip)]
    pub(crate) partial_run: Option<BenchMachine>,
    /// Subjects of the comparison.
    pub(crate) subjects: Vec<MeasuredServer>,
    /// Scenarios of the comparison, in order.
    pub(crate) scenarios: Vec<String>,
    /// Result of each subject in each scenario and round.
    pub(crate) runs: Vec<MeasuredRun>,
    /// Figures of carom's growth.
    pub(crate) growth: Vec<BudgetedFigure>,
    /// Omissions of the comparison, each with its reason.
    pub(crate) notes: Vec<String>,
    /// Remarks on the growth measurements.
    #[serde(default)]
    pub(crate) growth_notes: Vec<String>,
    /// Comparison of kernel bypass, if it was measured.
    #[serde(default)]
    pub(crate) bypass: Option<BypassResults>,
    /// Measurements of a fleet, if there are any.
    #[serde(default)]
    pub(crate) fleet: Option<FleetResults>,
}

impl Results {
    /// Adds a figure of growth, in place of an earlier one with that name.
    pub(crate) fn set_growth(&mut self, figure: BudgetedFigure) {
        let measured = self.partial_run.as_ref().map_or_else(String::new, |run| {
            let BenchMachine { date, commit, cpu, .. } = run;
            format!("{date}, commit {commit}, {cpu}")
        });
        let figure = BudgetedFigure { measured, ..figure };
        match self.growth.iter_mut().find(|earlier| earlier.name == figure.name) {
            Some(earlier) => *earlier = figure,
            None => self.growth.push(figure),
        }
    }
}

/// Three nodes beside one, and their load on Redis.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetResults {
    /// Machine and date of the measurement.
    pub(crate) machine: BenchMachine,
    /// Version of Redis.
    pub(crate) redis: String,
    /// Names of the fleets, in order.
    pub(crate) subjects: Vec<String>,
    /// Names of the loads, in order.
    pub(crate) scenarios: Vec<String>,
    /// Result of each fleet under each load and in each round.
    pub(crate) runs: Vec<FleetRun>,
}

/// A run of a fleet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetRun {
    /// Name of the fleet.
    pub(crate) subject: String,
    /// Name of the load.
    pub(crate) scenario: String,
    /// Right answers per second.
    pub(crate) throughput: f64,
    /// Work of Redis for each request, beyond that of an idle fleet; `None` without Redis.
    pub(crate) redis: Option<RedisLoad>,
    /// Work of Redis in each second of the idle fleet.
    pub(crate) idle: Option<RedisLoad>,
    /// Errors of any kind.
    pub(crate) errors: u64,
}

/// Work of Redis: for a request, or in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedisLoad {
    /// Commands, those of scripts included.
    pub(crate) commands: f64,
    /// Bytes received and sent.
    pub(crate) bytes: f64,
}

/// Comparison of kernel bypass with kernel sockets and with nginx, over a veth pair.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BypassResults {
    /// Machine and date of the measurement.
    pub(crate) machine: BenchMachine,
    /// Number of links of carom.
    pub(crate) links: u64,
    /// Servers of the comparison.
    pub(crate) subjects: Vec<MeasuredServer>,
    /// Scenarios of the comparison, in order.
    pub(crate) scenarios: Vec<String>,
    /// Result of each subject in each scenario and round.
    pub(crate) runs: Vec<MeasuredRun>,
    /// Frames received for each redirect, round by round.
    pub(crate) frames_in: Vec<f64>,
    /// Frames sent for each redirect, round by round.
    pub(crate) frames_out: Vec<f64>,
    /// Segments that carom sent again, in all runs.
    pub(crate) retransmissions: u64,
    /// CPU time of a thread that turns a frame around without TCP, in microseconds.
    pub(crate) reflector_micros: f64,
    /// CPU time of the machine for such a frame, in microseconds.
    pub(crate) reflector_machine_micros: f64,
    /// Memory of an idle connection over bypass, in bytes.
    pub(crate) idle_over_bypass: f64,
    /// Memory of an idle connection over kernel sockets, in bytes.
    pub(crate) idle_over_kernel: f64,
    /// Bytes of an export in a second over bypass, round by round.
    #[serde(default)]
    pub(crate) export_over_bypass: Vec<f64>,
    /// Bytes of an export in a second over kernel sockets, round by round.
    #[serde(default)]
    pub(crate) export_over_kernel: Vec<f64>,
    /// Figures with their budgets.
    pub(crate) figures: Vec<ComparedFigure>,
    /// Omissions and remarks.
    pub(crate) notes: Vec<String>,
}

/// A figure of carom over bypass, beside that over kernel sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComparedFigure {
    /// Figure of carom over bypass.
    #[serde(flatten)]
    pub(crate) figure: BudgetedFigure,
    /// Value of carom over kernel sockets, if it is comparable.
    pub(crate) kernel: Option<f64>,
}

/// Machine and program of a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BenchMachine {
    /// Model name of the processor.
    pub(crate) cpu: String,
    /// CPUs that the process may use.
    pub(crate) cpus: usize,
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Version of the kernel.
    pub(crate) kernel: String,
    /// True if the machine is virtual.
    pub(crate) is_virtual: bool,
    /// Commit of the working copy, marked if the copy was changed.
    pub(crate) commit: String,
    /// Date of the measurement.
    pub(crate) date: String,
    /// Rounds of each scenario.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
}

/// A server that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeasuredServer {
    /// Name of the server.
    pub(crate) name: String,
    /// Version of the server.
    pub(crate) version: String,
    /// All settings of the server.
    pub(crate) settings: String,
    /// Memory after all scenarios, in bytes, with shared pages counted once.
    pub(crate) memory: u64,
}

/// One run of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeasuredRun {
    /// Name of the subject.
    pub(crate) subject: String,
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Figures of the run.
    pub(crate) sample: Sample,
}

/// Figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Correct responses per second.
    pub(crate) throughput: f64,
    /// CPU time of the server for each request in user mode, in microseconds.
    pub(crate) user_micros: f64,
    /// CPU time of the server for each request in the kernel, in microseconds.
    pub(crate) system_micros: f64,
    /// CPU time of the whole machine for each request, in microseconds: of client, server and interrupts.
    #[serde(default)]
    pub(crate) machine_micros: f64,
    /// Median latency in microseconds, from the intended instant in an open loop.
    pub(crate) p50: f64,
    /// Latency at 80 %, in microseconds.
    pub(crate) p80: f64,
    /// Latency at 99 %, in microseconds.
    pub(crate) p99: f64,
    /// Latency at 99.9 %, in microseconds.
    pub(crate) p999: f64,
    /// Errors of any kind.
    pub(crate) errors: u64,
    /// True if the client was the bottleneck, so that the throughput does not describe the server.
    pub(crate) client_limited: bool,
}

impl Sample {
    /// Returns the CPU time of the server for each request, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.user_micros + self.system_micros
    }
}

/// A figure with its budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BudgetedFigure {
    /// Name of the figure.
    pub(crate) name: String,
    /// Measured value.
    pub(crate) value: f64,
    /// Unit of the value.
    pub(crate) unit: String,
    /// Bound for the value, if it has one.
    pub(crate) budget: Option<Budget>,
    /// Method of the measurement.
    pub(crate) how: String,
    /// Date, commit and machine, if they are not those of the whole; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) measured: String,
}

/// Bound for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Budget {
    /// The value must not be above this.
    AtMost(f64),
    /// The value must not be below this.
    AtLeast(f64),
}

impl Budget {
    /// True if a value is within the bound.
    pub(crate) fn is_kept(self, value: f64) -> bool {
        match self {
            Budget::AtMost(bound) => value <= bound,
            Budget::AtLeast(bound) => value >= bound,
        }
    }
}

impl Results {
    /// Returns the median of a figure over the rounds of a subject in a scenario.
    pub(crate) fn median(&self, subject: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        median_of(&self.runs, subject, scenario, pick)
    }

    /// Returns the highest value of a figure over the rounds, for figures that a median might hide.
    pub(crate) fn worst(&self, subject: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        rounds_of(&self.runs, subject, scenario, pick).into_iter().max_by(f64::total_cmp)
    }

    /// Returns the median of the ratios of two subjects, round by round.
    pub(crate) fn ratio(&self, subject: &str, to: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        ratio_of(&self.runs, subject, to, scenario, pick)
    }
}

/// Returns a figure of a subject in a scenario, round by round.
pub(crate) fn rounds_of(
    runs: &[MeasuredRun],
    subject: &str,
    scenario: &str,
    pick: impl Fn(&Sample) -> f64,
) -> Vec<f64> {
    let of = |run: &&MeasuredRun| run.subject == subject && run.scenario == scenario;
    runs.iter().filter(of).map(|run| pick(&run.sample)).collect()
}

/// Returns the median of a figure over the rounds of a subject in a scenario.
pub(crate) fn median_of(
    runs: &[MeasuredRun],
    subject: &str,
    scenario: &str,
    pick: impl Fn(&Sample) -> f64,
) -> Option<f64> {
    median(rounds_of(runs, subject, scenario, pick))
}

/// Returns the median of the ratios of two subjects, round by round: a disturbance of a round affects both.
pub(crate) fn ratio_of(
    runs: &[MeasuredRun],
    subject: &str,
    to: &str,
    scenario: &str,
    pick: impl Fn(&Sample) -> f64,
) -> Option<f64> {
    let rounds = |name: &str| rounds_of(runs, name, scenario, &pick);
    median(rounds(subject).into_iter().zip(rounds(to)).filter(|(_, to)| *to > 0.0).map(|(one, to)| one / to).collect())
}

/// Returns the median of some values: with an even number of values, the mean of the two middle ones.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])), (Some(2.0), Some(2.5)));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let run = |subject: &str, micros| MeasuredRun {
            subject: subject.to_owned(),
            scenario: "s".to_owned(),
            sample: Sample { user_micros: micros, ..Sample::default() },
        };
        // The second round was disturbed: both took twice as long.
        let runs = vec![run("a", 5.0), run("b", 10.0), run("a", 10.0), run("b", 20.0), run("a", 5.0), run("b", 10.0)];
        let results = Results { runs, ..Results::default() };
        assert_eq!(results.ratio("a", "b", "s", Sample::cpu_micros), Some(0.5));
        assert_eq!(results.ratio("a", "c", "s", Sample::cpu_micros), None);
    }

    #[test]
    fn budgets_are_kept_or_not() {
        assert!(Budget::AtMost(1.0).is_kept(1.0));
        assert!(!Budget::AtMost(1.0).is_kept(1.1));
        assert!(Budget::AtLeast(1.0).is_kept(1.0));
        assert!(!Budget::AtLeast(1.0).is_kept(0.9));
    }
}
