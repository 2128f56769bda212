//! Objectives, and what a run's figures make of them. Pure.

use crate::record::{QUANTILES, Record, Summary};
use crate::units;

/// A lag of more than a millisecond may be this share of the measured latency.
const LAG_SHARE: f64 = 0.1;

/// A shorter one may be this share: it is in the figures, and must not be most of them.
const SHORT_LAG_SHARE: f64 = 0.5;

/// Between the two, in microseconds.
const LAG_MICROS: f64 = 1_000.0;

/// A lag up to this is no reason to doubt a run, in microseconds.
const LAG_MICROS_MIN: f64 = 100.0;

/// A thread that used more of its CPU than this was at its limit.
const BUSY_SHARE: f64 = 0.95;

/// In a closed loop, a thread that others kept from its CPU for more than this share of the time could have asked for more.
const DISPLACED_SHARE: f64 = 0.1;

/// The index of p99 among [`QUANTILES`].
const P99: usize = 3;

/// One in so many planned requests may be without an answer at a rate that a search takes for good.
const UNANSWERED_MAX: u64 = 1_000;

/// What an objective is about.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Figure {
    Mean,
    Quantile(usize),
    Max,
    Errors,
    Rate,
}

/// Something that must hold.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Objective {
    figure: Figure,
    /// Microseconds for latencies, else a number.
    bound: f64,
    /// As it was written.
    pub(crate) text: String,
}

/// An objective beside what was measured.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Judged {
    /// The objective as it was written.
    pub(crate) text: String,
    /// Microseconds for latencies, else a number.
    pub(crate) value: f64,
    /// The value as people read it.
    pub(crate) shown: String,
    /// Whether it held.
    pub(crate) held: bool,
    /// What it is about.
    figure: Figure,
}

impl Objective {
    /// Reads objectives such as `p80=5ms,p99=20ms,mean=10ms,errors=0`.
    ///
    /// # Errors
    /// All that is wrong with them.
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

    /// Compares it with a run.
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

/// The place of a quantile in [`QUANTILES`]; p99.9 may be written as p999.
fn quantile(name: &str) -> Option<usize> {
    let name = name.replace('.', "");
    QUANTILES.iter().position(|(known, _)| *known == name)
}

/// Nothing measured holds no promise.
fn latency_held(micros: f64, bound: f64, latency: &Summary) -> (f64, bool, String) {
    (micros, latency.count > 0 && micros <= bound, units::show_micros(micros))
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Every objective held, and every answer was right.
    Ok,
    /// An answer was wrong, or there was none at all.
    WrongAnswers,
    /// The generator was the bottleneck: the figures say nothing of the server.
    Bottleneck,
    /// An objective was missed.
    Missed,
    /// Somebody ended the run before its time.
    Interrupted,
}

impl Verdict {
    /// Of a run. What makes other findings worthless comes first.
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

    /// In words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::WrongAnswers => "wrong answers",
            Verdict::Bottleneck => "the generator was the bottleneck",
            Verdict::Missed => "objective missed",
            Verdict::Interrupted => "interrupted; the results cover the time until then",
        }
    }

    /// The exit code that says it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::WrongAnswers | Verdict::Missed => 1,
            Verdict::Bottleneck => 3,
            // As shells tell it of a program that Ctrl-C has ended.
            Verdict::Interrupted => 130,
        }
    }
}

/// Why the generator was the bottleneck, if it was.
pub(crate) fn bottleneck(record: &Record, is_open: bool, judged: &[Judged]) -> Option<String> {
    let busy = format!("a thread used {:.0}% of its CPU", record.busiest * 100.0);
    if !is_open {
        // An open loop sees it in its lag: whoever is kept from the CPU is late.
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

/// Whether a lag of the generator is too much of the latency that was measured, both in microseconds.
fn is_doubtful(lag: f64, latency: f64) -> bool {
    lag > LAG_MICROS.max(latency * LAG_SHARE) || lag > LAG_MICROS_MIN.max(latency * SHORT_LAG_SHARE)
}

/// Whether a rate was really reached: a server that answers some quickly and drops the rest has not.
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
