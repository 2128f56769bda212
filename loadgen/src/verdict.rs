//! Objectives of a run, and the verdict on its figures. Pure.

use crate::record::{QUANTILES, Record, Summary};
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
    /// Text of the objective as the user wrote it.
    pub(crate) text: String,
}

/// An objective with its measured value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Judged {
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
    /// Parses objectives such as `p80=5ms,p99=20ms,mean=10ms,errors=0`.
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
        let (name, bound) =
            text.split_once('=').ok_or_else(|| format!("invalid objective `{text}`; expected one such as p99=20ms"))?;
        let micros = || units::duration(bound).map(|time| time.as_secs_f64() * 1e6);
        let (figure, bound) = match name {
            "mean" => (Figure::Mean, micros()?),
            "max" => (Figure::Max, micros()?),
            "errors" => (Figure::Errors, if bound == "0" { 0.0 } else { units::count(bound)? as f64 }),
            "rate" => (Figure::Rate, units::number(bound)?),
            _ => match quantile(name) {
                Some(index) => (Figure::Quantile(index), micros()?),
                None => {
                    let known = "mean, p50, p80, p90, p99, p99.9, p99.99, max, errors, rate";
                    return Err(format!("unknown measure `{name}`; expected one of {known}"));
                }
            },
        };
        Ok(Objective { figure, bound, text: text.to_owned() })
    }

    /// Compares the objective with the results of a run.
    pub(crate) fn judge(&self, record: &Record, latency: &Summary) -> Judged {
        let (value, held, shown) = match self.figure {
            Figure::Errors => {
                let value = record.errors() as f64 + record.counts.unsent as f64;
                (value, value <= self.bound, units::show_count(value as u64))
            }
            Figure::Rate => {
                let value = record.throughput();
                (value, value >= self.bound, format!("{}/s", units::show_count(value as u64)))
            }
            Figure::Mean => latency_held(latency.mean, self.bound, latency),
            Figure::Max => latency_held(latency.max, self.bound, latency),
            Figure::Quantile(index) => latency_held(latency.quantiles[index], self.bound, latency),
        };
        Judged { text: self.text.clone(), value, shown, held, figure: self.figure }
    }
}

/// Returns the index of a quantile in [`QUANTILES`]; p99.9 may be written as p999.
fn quantile(name: &str) -> Option<usize> {
    let name = name.replace('.', "");
    QUANTILES.iter().position(|(known, _)| *known == name)
}

/// Compares a latency with its bound. Without a measured value, the objective is missed.
fn latency_held(micros: f64, bound: f64, latency: &Summary) -> (f64, bool, String) {
    (micros, latency.count > 0 && micros <= bound, units::show_micros(micros))
}

/// Verdict on a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
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

impl Verdict {
    /// Returns the verdict on a run. Findings that invalidate others come first.
    pub(crate) fn of(record: &Record, is_open: bool, interrupted: bool, judged: &[Judged]) -> Verdict {
        if record.wrong_answers() > 0 || (record.counts.completed == 0 && !interrupted) {
            Verdict::WrongAnswers
        } else if interrupted {
            Verdict::Interrupted
        } else if bottleneck(record, is_open, judged).is_some() {
            Verdict::Bottleneck
        } else if judged.iter().any(|judged| !judged.held) {
            Verdict::Missed
        } else {
            Verdict::Ok
        }
    }

    /// Returns the verdict in words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::WrongAnswers => "wrong answers",
            Verdict::Bottleneck => "the generator was the bottleneck",
            Verdict::Missed => "objective missed",
            Verdict::Interrupted => "interrupted; the results cover the time until then",
        }
    }

    /// Returns the exit code for the verdict.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::WrongAnswers | Verdict::Missed => 1,
            Verdict::Bottleneck => 3,
            // The code that shells use for a program that Ctrl-C has ended.
            Verdict::Interrupted => 130,
        }
    }
}

/// Returns the reason why the generator was the bottleneck; `None` if it was not.
pub(crate) fn bottleneck(record: &Record, is_open: bool, judged: &[Judged]) -> Option<String> {
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
    let figures = std::iter::once(Figure::Quantile(P99)).chain(judged.iter().map(|judged| judged.figure));
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
pub(crate) fn is_reached(record: &Record) -> bool {
    (record.errors() + record.counts.unsent) * UNANSWERED_MAX <= record.counts.planned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(latency_ms: u64, lag_ms: u64) -> Record {
        let mut record = Record { seconds: 1.0, ..Record::default() };
        (record.counts.completed, record.counts.in_time, record.counts.planned) = (100, 100, 100);
        record.kinds[0].intended.record_n(latency_ms * 1_000_000, 100).unwrap();
        record.lag.record_n(lag_ms * 1_000_000, 100).unwrap();
        record
    }

    fn verdict(record: &Record, slo: &str) -> Verdict {
        let summary = Summary::of(&record.all().intended);
        let judged: Vec<Judged> =
            Objective::read_all(slo).unwrap().iter().map(|objective| objective.judge(record, &summary)).collect();
        Verdict::of(record, true, false, &judged)
    }

    #[test]
    fn objectives_hold_or_not() {
        let slow = record(10, 0);
        assert_eq!(verdict(&slow, "p80=11ms,p99=11ms,mean=11ms,max=11ms,errors=0,rate=100"), Verdict::Ok);
        for missed in ["p50=9ms", "p99.9=9ms", "mean=9ms", "max=9ms", "rate=101"] {
            assert_eq!(verdict(&slow, missed), Verdict::Missed, "{missed}");
        }
        let mut failing = record(10, 0);
        failing.faults[1] = 1;
        assert_eq!((verdict(&failing, "errors=1"), verdict(&failing, "errors=0")), (Verdict::Ok, Verdict::Missed));
    }

    #[test]
    fn wrong_answers_and_silence_fail_whatever_was_asked() {
        let mut wrong = record(1, 0);
        wrong.faults[4] = 1;
        assert_eq!(verdict(&wrong, "p99=1s"), Verdict::WrongAnswers);
        assert_eq!(verdict(&Record::default(), "errors=0"), Verdict::WrongAnswers);
    }

    #[test]
    fn a_generator_that_was_late_says_so() {
        assert_eq!(verdict(&record(10, 2), "p99=1s"), Verdict::Bottleneck);
        assert_eq!(verdict(&record(100, 2), "p99=1s"), Verdict::Ok);
        assert!(is_doubtful(950.0, 1_000.0) && !is_doubtful(90.0, 100.0) && !is_doubtful(300.0, 1_000.0));
        let busy = Record { busiest: 0.99, ..record(1, 0) };
        assert!(bottleneck(&busy, false, &[]).is_some() && bottleneck(&busy, true, &[]).is_none());
        let mut behind = busy;
        behind.counts.late_for_server = 1;
        assert!(bottleneck(&behind, true, &[]).is_some(), "who is late with reading blames the server");
        let displaced = Record { displaced: 0.5, ..record(1, 0) };
        assert!(bottleneck(&displaced, false, &[]).is_some() && bottleneck(&displaced, true, &[]).is_none());
    }

    #[test]
    fn a_rare_stall_of_the_generator_counts_where_an_objective_sees_it() {
        let mut stalled = record(1, 0);
        stalled.lag.record_n(80_000_000, 1).unwrap();
        stalled.kinds[0].intended.record_n(81_000_000, 1).unwrap();
        assert_eq!(verdict(&stalled, "p90=10ms"), Verdict::Ok);
        assert_eq!(verdict(&stalled, "max=10ms"), Verdict::Bottleneck);
        assert_eq!(verdict(&stalled, "p99.9=10ms"), Verdict::Bottleneck);
    }

    #[test]
    fn an_interrupted_run_says_so() {
        assert_eq!(Verdict::of(&Record::default(), true, true, &[]), Verdict::Interrupted);
        let mut wrong = record(1, 0);
        wrong.faults[4] = 1;
        assert_eq!(Verdict::of(&wrong, true, true, &[]), Verdict::WrongAnswers);
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
    fn every_wrong_objective_is_named() {
        let wrong = Objective::read_all("p99,p98=1s,mean=5,errors=-1,p50=1ms").unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
