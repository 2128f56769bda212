//! Objectives of a run, and the verdict on its figures. Pure.

use carom_telemetry::readable;

use crate::results::record::{QUANTILES, RunRecord, Summary};
use crate::units;

/// Share of the measured latency that a lag above [`LAG_MICROS`] may have.
const LAG_SHARE: f64 = 0.1;

/// Share of the measured latency that a lag below [`LAG_MICROS`] may have: it may not be most of the figures.
const SHORT_LAG_SHARE: f64 = 0.5;

/// Boundary between short and long lags, in microseconds.
const LAG_MICROS: f64 = 1_000.0;

/// Lag that never makes a run doubtful, in microseconds.
const LAG_MICROS_MIN: f64 = 100.0;

/// Share of its CPU above which a thread was at its limit.
const BUSY_SHARE: f64 = 0.95;

/// Share of the time above which a closed loop is doubtful because other threads kept one of its threads from its
/// CPU.
const DISPLACED_SHARE: f64 = 0.1;

/// Index of p99 among [`QUANTILES`].
const P99: usize = 3;

/// One in so many planned requests may be unanswered at a rate that a search accepts.
const UNANSWERED_MAX: u64 = 1_000;

/// Figure that an objective limits.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Figure {
    Mean,
    Quantile(usize),
    Max,
    Errors,
    Rate,
}

/// A bound on a figure of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Objective {
    figure: Figure,
    /// Microseconds for latencies, else a number.
    bound: f64,
    /// True if the bound itself misses the objective: with `<` and `>`.
    is_strict: bool,
    /// Text of the objective as the user wrote it.
    pub(crate) text: String,
}

/// An objective with its measured value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ObjectiveResult {
    /// Text of the objective as the user wrote it.
    pub(crate) text: String,
    /// Microseconds for latencies, else a number.
    pub(crate) value: f64,
    /// Formatted value for people.
    pub(crate) shown: String,
    /// True if the run met the objective.
    pub(crate) held: bool,
    /// Figure that the objective limits.
    figure: Figure,
}

impl Objective {
    /// Parses objectives such as `p80<5ms,p99<20ms,mean<=10ms,errors=0,rate>40k`. `=` stands for `<=`, or for `>=` of a
    /// rate.
    ///
    /// # Errors
    /// Every mistake in them.
    pub(crate) fn read_all(text: &str) -> Result<Vec<Objective>, Vec<String>> {
        let (mut objectives, mut wrong) = (Vec::new(), Vec::new());
        for part in text.split(',') {
            match Objective::read(part.trim()) {
                Ok(objective) => objectives.push(objective),
                Err(reason) => wrong.push(reason),
            }
        }
        if wrong.is_empty() { Ok(objectives) } else { Err(wrong) }
    }

    fn read(text: &str) -> Result<Objective, String> {
        let wrong = |why: &str| format!("invalid objective `{text}`{why}; expected e.g. p99<20ms");
        let (name, rest) = text.split_at(text.find(['<', '=', '>']).ok_or_else(|| wrong(""))?);
        let bound = rest.trim_start_matches(['<', '=', '>']);
        let (name, sign, bound) = (name.trim(), &rest[..rest.len() - bound.len()], bound.trim());
        let figure = figure(name).ok_or_else(|| {
            let known = "mean, p50, p80, p90, p99, p99.9, p99.99, max, errors, rate";
            format!("invalid objective `{text}`: unknown measure `{name}`; expected one of {known}")
        })?;
        match (sign, figure) {
            ("=", _) | (">" | ">=", Figure::Rate) => {}
            (_, Figure::Rate) => {
                return Err(format!("invalid objective `{text}`: a rate has a lower bound; expected e.g. rate>40k"));
            }
            ("<" | "<=", _) => {}
            (">" | ">=", _) => return Err(wrong(&format!(": {name} has an upper bound"))),
            _ => return Err(wrong(&format!(": unknown sign `{sign}`"))),
        }
        let value = match figure {
            Figure::Errors if bound == "0" => Ok(0.0),
            Figure::Errors => units::count(bound).map(|count| count as f64),
            Figure::Rate => units::number(bound),
            Figure::Mean | Figure::Max | Figure::Quantile(_) => {
                units::duration(bound).map(|time| time.as_secs_f64() * 1e6)
            }
        };
        let bound = value.map_err(|reason| format!("invalid objective `{text}`: {reason}"))?;
        Ok(Objective { figure, bound, is_strict: matches!(sign, "<" | ">"), text: text.to_owned() })
    }

    /// Compares the objective with the results of a run.
    pub(crate) fn evaluate(&self, record: &RunRecord, latency: &Summary) -> ObjectiveResult {
        let (value, shown) = match self.figure {
            Figure::Errors => {
                let value = record.errors() + record.counts.unsent;
                (value as f64, readable::grouped(value))
            }
            Figure::Rate => (record.throughput(), format!("{}/s", readable::grouped(record.throughput() as u64))),
            Figure::Mean => (latency.mean, units::show_micros(latency.mean)),
            Figure::Max => (latency.max, units::show_micros(latency.max)),
            Figure::Quantile(index) => (latency.quantiles[index], units::show_micros(latency.quantiles[index])),
        };
        let is_within = match (self.figure, self.is_strict) {
            (Figure::Rate, true) => value > self.bound,
            (Figure::Rate, false) => value >= self.bound,
            (_, true) => value < self.bound,
            (_, false) => value <= self.bound,
        };
        // Without a measured value, a bound on a latency is missed.
        let is_measured = latency.count > 0 || matches!(self.figure, Figure::Errors | Figure::Rate);
        ObjectiveResult { text: self.text.clone(), value, shown, held: is_within && is_measured, figure: self.figure }
    }
}

impl ObjectiveResult {
    /// Returns the name of the measure, such as `p99`.
    pub(crate) fn measure(&self) -> &str {
        self.text.split(['<', '=', '>']).next().unwrap_or_default().trim()
    }
}

/// Returns the figure with that name.
fn figure(name: &str) -> Option<Figure> {
    match name {
        "mean" => Some(Figure::Mean),
        "max" => Some(Figure::Max),
        "errors" => Some(Figure::Errors),
        "rate" => Some(Figure::Rate),
        _ => quantile(name).map(Figure::Quantile),
    }
}

/// Returns the index of a quantile in [`QUANTILES`]; p99.9 may be written as p999.
fn quantile(name: &str) -> Option<usize> {
    let name = name.replace('.', "");
    QUANTILES.iter().position(|(known, _)| *known == name)
}

/// Verdict on a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunVerdict {
    /// Every objective was met, and every response was correct.
    Ok,
    /// A response was wrong, or no request was answered.
    WrongAnswers,
    /// The generator was the bottleneck: the figures do not describe the server.
    Bottleneck,
    /// An objective was missed.
    Missed,
    /// The user ended the run early.
    Interrupted,
}

impl RunVerdict {
    /// Returns the verdict on a run. Findings that invalidate others come first.
    pub(crate) fn of(
        record: &RunRecord,
        is_open: bool,
        interrupted: bool,
        objectives: &[ObjectiveResult],
    ) -> RunVerdict {
        if record.wrong_answers() > 0 || (record.counts.completed == 0 && !interrupted) {
            RunVerdict::WrongAnswers
        } else if interrupted {
            RunVerdict::Interrupted
        } else if bottleneck(record, is_open, objectives).is_some() {
            RunVerdict::Bottleneck
        } else if objectives.iter().any(|objective| !objective.held) {
            RunVerdict::Missed
        } else {
            RunVerdict::Ok
        }
    }

    /// Returns the verdict in words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            RunVerdict::Ok => "ok",
            RunVerdict::WrongAnswers => "wrong answers",
            RunVerdict::Bottleneck => "the generator was the bottleneck",
            RunVerdict::Missed => "objective missed",
            RunVerdict::Interrupted => "interrupted; the results cover the time until then",
        }
    }

    /// Returns the exit code for the verdict.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            RunVerdict::Ok => 0,
            RunVerdict::WrongAnswers | RunVerdict::Missed => 1,
            RunVerdict::Bottleneck => 3,
            // The code that shells use for a program that Ctrl-C has ended.
            RunVerdict::Interrupted => 130,
        }
    }
}

/// Returns the reason why the generator was the bottleneck; `None` if it was not.
pub(crate) fn bottleneck(record: &RunRecord, is_open: bool, objectives: &[ObjectiveResult]) -> Option<String> {
    let busy = format!("a thread used {:.0}% of its CPU", record.busiest * 100.0);
    if !is_open {
        // An open loop shows it as lag: a thread that is kept from its CPU is late.
        if record.displaced > DISPLACED_SHARE {
            let share = record.displaced * 100.0;
            return Some(format!(
                "other processes used a thread's CPU for {share:.0}% of the time. Reserve CPUs with --cpus"
            ));
        }
        return (record.busiest > BUSY_SHARE)
            .then(|| format!("{busy}, so the server could do more. Use more --threads"));
    }
    let counts = &record.counts;
    if record.busiest > BUSY_SHARE && counts.late_for_generator + counts.late_for_server + counts.unsent > 0 {
        return Some(busy);
    }
    let (lag, latency) = (Summary::of(&record.lag), Summary::of(&record.all().intended));
    let figures = std::iter::once(Figure::Quantile(P99)).chain(objectives.iter().map(|objective| objective.figure));
    let mut looked_at = figures.filter_map(|figure| match figure {
        Figure::Quantile(index) => Some((QUANTILES[index].0, lag.quantiles[index], latency.quantiles[index])),
        Figure::Max => Some(("max", lag.max, latency.max)),
        Figure::Mean | Figure::Errors | Figure::Rate => None,
    });
    let (name, lag, _) = looked_at.find(|&(_, lag, latency)| is_doubtful(lag, latency))?;
    Some(format!(
        "the generator's scheduler lag at {name} was {}, too large compared with the latency; {busy}",
        units::show_micros(lag)
    ))
}

/// True if the generator's lag is too large for the measured latency, both in microseconds.
fn is_doubtful(lag: f64, latency: f64) -> bool {
    lag > LAG_MICROS.max(latency * LAG_SHARE) || lag > LAG_MICROS_MIN.max(latency * SHORT_LAG_SHARE)
}

/// True if a rate was reached: a server that answers some requests quickly and drops the rest has not reached it.
pub(crate) fn is_reached(record: &RunRecord) -> bool {
    (record.errors() + record.counts.unsent) * UNANSWERED_MAX <= record.counts.planned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(latency_ms: u64, lag_ms: u64) -> RunRecord {
        let mut record = RunRecord { seconds: 1.0, ..RunRecord::default() };
        (record.counts.completed, record.counts.in_time, record.counts.planned) = (100, 100, 100);
        record.kinds[0].intended.record_n(latency_ms * 1_000_000, 100).unwrap();
        record.lag.record_n(lag_ms * 1_000_000, 100).unwrap();
        record
    }

    fn verdict(record: &RunRecord, slo: &str) -> RunVerdict {
        let summary = Summary::of(&record.all().intended);
        let objectives: Vec<ObjectiveResult> =
            Objective::read_all(slo).unwrap().iter().map(|objective| objective.evaluate(record, &summary)).collect();
        RunVerdict::of(record, true, false, &objectives)
    }

    #[test]
    fn objectives_hold_or_not() {
        let slow = record(10, 0);
        assert_eq!(verdict(&slow, "p80=11ms,p99=11ms,mean=11ms,max=11ms,errors=0,rate=100"), RunVerdict::Ok);
        for missed in ["p50=9ms", "p99.9=9ms", "mean=9ms", "max=9ms", "rate=101"] {
            assert_eq!(verdict(&slow, missed), RunVerdict::Missed, "{missed}");
        }
        let mut failing = record(10, 0);
        failing.faults[1] = 1;
        assert_eq!(
            (verdict(&failing, "errors=1"), verdict(&failing, "errors=0")),
            (RunVerdict::Ok, RunVerdict::Missed)
        );
    }

    #[test]
    fn wrong_answers_and_silence_fail_whatever_was_asked() {
        let mut wrong = record(1, 0);
        wrong.faults[4] = 1;
        assert_eq!(verdict(&wrong, "p99=1s"), RunVerdict::WrongAnswers);
        assert_eq!(verdict(&RunRecord::default(), "errors=0"), RunVerdict::WrongAnswers);
    }

    #[test]
    fn a_generator_that_was_late_says_so() {
        assert_eq!(verdict(&record(10, 2), "p99=1s"), RunVerdict::Bottleneck);
        assert_eq!(verdict(&record(100, 2), "p99=1s"), RunVerdict::Ok);
        assert!(is_doubtful(950.0, 1_000.0));
        assert!(!is_doubtful(90.0, 100.0));
        assert!(!is_doubtful(300.0, 1_000.0));
        let busy = RunRecord { busiest: 0.99, ..record(1, 0) };
        assert!(bottleneck(&busy, false, &[]).is_some());
        assert!(bottleneck(&busy, true, &[]).is_none());
        let mut behind = busy;
        behind.counts.late_for_server = 1;
        assert!(bottleneck(&behind, true, &[]).is_some(), "who is late with reading blames the server");
        let displaced = RunRecord { displaced: 0.5, ..record(1, 0) };
        assert!(bottleneck(&displaced, false, &[]).is_some());
        assert!(bottleneck(&displaced, true, &[]).is_none());
    }

    #[test]
    fn a_rare_stall_of_the_generator_counts_where_an_objective_sees_it() {
        let mut stalled = record(1, 0);
        stalled.lag.record_n(80_000_000, 1).unwrap();
        stalled.kinds[0].intended.record_n(81_000_000, 1).unwrap();
        assert_eq!(verdict(&stalled, "p90=10ms"), RunVerdict::Ok);
        assert_eq!(verdict(&stalled, "max=10ms"), RunVerdict::Bottleneck);
        assert_eq!(verdict(&stalled, "p99.9=10ms"), RunVerdict::Bottleneck);
    }

    #[test]
    fn an_interrupted_run_says_so() {
        assert_eq!(RunVerdict::of(&RunRecord::default(), true, true, &[]), RunVerdict::Interrupted);
        let mut wrong = record(1, 0);
        wrong.faults[4] = 1;
        assert_eq!(RunVerdict::of(&wrong, true, true, &[]), RunVerdict::WrongAnswers);
    }

    #[test]
    fn a_rate_is_reached_when_nearly_all_was_answered() {
        let mut record = record(1, 0);
        record.counts.planned = 10_000;
        record.counts.unsent = 10;
        assert!(is_reached(&record));
        record.faults[2] = 1;
        assert!(!is_reached(&record));
    }

    #[test]
    fn signs_say_whether_the_bound_itself_will_do() {
        let run = record(10, 0);
        for (objective, expected) in [
            ("p99<11ms", RunVerdict::Ok),
            ("p99 <= 11ms", RunVerdict::Ok),
            ("p99<9ms", RunVerdict::Missed),
            ("errors<1", RunVerdict::Ok),
            ("errors<=0", RunVerdict::Ok),
            ("errors<0", RunVerdict::Missed),
            ("rate>=100", RunVerdict::Ok),
            ("rate=100", RunVerdict::Ok),
            ("rate>100", RunVerdict::Missed),
            ("rate>99,p99<11ms", RunVerdict::Ok),
        ] {
            assert_eq!(verdict(&run, objective), expected, "{objective}");
        }
    }

    #[test]
    fn every_wrong_objective_is_named() {
        let wrong = Objective::read_all("p99,p98=1s,mean=5,errors=-1,p50=1ms").unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert_eq!(wrong[0], "invalid objective `p99`; expected e.g. p99<20ms");
        for (text, words) in [
            ("p99>20ms", "p99 has an upper bound"),
            ("rate<40k", "expected e.g. rate>40k"),
            ("p99==20ms", "unknown sign `==`"),
            ("p98<1s", "unknown measure `p98`"),
            ("p99<20", "is not a time such as"),
        ] {
            let wrong = Objective::read_all(text).unwrap_err().join("\n");
            assert!(wrong.starts_with(&format!("invalid objective `{text}`")), "{wrong}");
            assert!(wrong.contains(words), "{wrong}");
        }
    }
}
