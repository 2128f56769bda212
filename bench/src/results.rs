//! What was measured, as it is stored. The page is drawn from this.

use serde::{Deserialize, Serialize};

/// All results of one run, or of several that were put together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Results {
    /// Where and when the comparison was measured.
    pub(crate) machine: Machine,
    /// Where and when growth was.
    #[serde(default)]
    pub(crate) growth_machine: Machine,
    /// The subjects of the comparison.
    pub(crate) subjects: Vec<Subject>,
    /// The scenarios of the comparison, in order.
    pub(crate) scenarios: Vec<String>,
    /// What each subject did in each scenario, in each round.
    pub(crate) runs: Vec<Run>,
    /// How carom grows.
    pub(crate) growth: Vec<Figure>,
    /// What was left out of the comparison, and why.
    pub(crate) notes: Vec<String>,
    /// What there is to say of growth.
    #[serde(default)]
    pub(crate) growth_notes: Vec<String>,
}

/// The machine and the program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    /// The processor's name for itself.
    pub(crate) cpu: String,
    /// CPUs that the process may use.
    pub(crate) cpus: usize,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// The kernel's version.
    pub(crate) kernel: String,
    /// Whether it is a virtual machine.
    pub(crate) is_virtual: bool,
    /// The commit of the working copy, with a mark when it was changed.
    pub(crate) commit: String,
    /// When.
    pub(crate) date: String,
    /// Rounds of each scenario.
    pub(crate) rounds: usize,
    /// Seconds of each run.
    pub(crate) seconds: u64,
}

/// A server that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Subject {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// All its settings.
    pub(crate) settings: String,
    /// Bytes of memory after all scenarios, shared pages once.
    pub(crate) memory: u64,
}

/// One run of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// Whose.
    pub(crate) subject: String,
    /// In which scenario.
    pub(crate) scenario: String,
    /// What came out.
    pub(crate) sample: Sample,
}

/// What one run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Right answers a second.
    pub(crate) throughput: f64,
    /// The server's CPU time for each request, microseconds in user mode.
    pub(crate) user_micros: f64,
    /// The same in the kernel.
    pub(crate) system_micros: f64,
    /// Microseconds, from the intended instant in an open loop.
    pub(crate) p50: f64,
    /// The same at 80 %.
    pub(crate) p80: f64,
    /// The same at 99 %.
    pub(crate) p99: f64,
    /// The same at 99.9 %.
    pub(crate) p999: f64,
    /// Errors of any kind.
    pub(crate) errors: u64,
    /// Whether the client was at its limit, so that throughput says nothing of the server.
    pub(crate) client_limited: bool,
}

impl Sample {
    /// The server's CPU time for each request, microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.user_micros + self.system_micros
    }
}

/// A figure with its budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    /// What it is.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: f64,
    /// The unit behind the value.
    pub(crate) unit: String,
    /// What it should be at most, or at least.
    pub(crate) budget: Option<Budget>,
    /// How it was measured.
    pub(crate) how: String,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Budget {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

impl Budget {
    /// Whether a value keeps it.
    pub(crate) fn is_kept(self, value: f64) -> bool {
        match self {
            Budget::AtMost(bound) => value <= bound,
            Budget::AtLeast(bound) => value >= bound,
        }
    }
}

impl Results {
    /// The median of a figure over the rounds of a subject in a scenario.
    pub(crate) fn median(&self, subject: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        let of = |run: &&Run| run.subject == subject && run.scenario == scenario;
        median(self.runs.iter().filter(of).map(|run| pick(&run.sample)).collect())
    }

    /// The highest of a figure over the rounds: for what no median may hide.
    pub(crate) fn worst(&self, subject: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        let of = |run: &&Run| run.subject == subject && run.scenario == scenario;
        self.runs.iter().filter(of).map(|run| pick(&run.sample)).max_by(f64::total_cmp)
    }

    /// The median of the ratios of two subjects, round by round: what disturbs one round disturbs both.
    pub(crate) fn ratio(&self, subject: &str, to: &str, scenario: &str, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        let rounds = |name: &str| -> Vec<f64> {
            let of = |run: &&Run| run.subject == name && run.scenario == scenario;
            self.runs.iter().filter(of).map(|run| pick(&run.sample)).collect()
        };
        median(
            rounds(subject).into_iter().zip(rounds(to)).filter(|(_, to)| *to > 0.0).map(|(one, to)| one / to).collect(),
        )
    }
}

/// The middle of some values; the mean of the two middle ones where their number is even.
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
        let run = |subject: &str, micros| Run {
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
        assert!(Budget::AtMost(1.0).is_kept(1.0) && !Budget::AtMost(1.0).is_kept(1.1));
        assert!(Budget::AtLeast(1.0).is_kept(1.0) && !Budget::AtLeast(1.0).is_kept(0.9));
    }
}
