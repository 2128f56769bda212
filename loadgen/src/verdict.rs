//! Objectives, and what a run's figures make of them. Pure.

use crate::record::{Record, Summary};
use crate::units;

/// The share of the measured p99 that the generator's own lag may be.
const LAG_SHARE: f64 = 0.1;

/// A lag at p99 up to this is no reason to doubt a run, in microseconds.
const LAG_MICROS: f64 = 1_000.0;

/// A thread that used more of its CPU than this was at its limit.
const BUSY_SHARE: f64 = 0.95;

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
        let (name, bound) = text.split_once('=').ok_or_else(|| format!("`{text}` is no objective such as p99=20ms"))?;
        let micros = || units::duration(bound).map(|time| time.as_secs_f64() * 1e6);
        let (figure, bound) = match name {
            "mean" => (Figure::Mean, micros()?),
            "p50" => (Figure::Quantile(0), micros()?),
            "p80" => (Figure::Quantile(1), micros()?),
            "p90" => (Figure::Quantile(2), micros()?),
            "p99" => (Figure::Quantile(3), micros()?),
            "p99.9" | "p999" => (Figure::Quantile(4), micros()?),
            "p99.99" | "p9999" => (Figure::Quantile(5), micros()?),
            "max" => (Figure::Max, micros()?),
            "errors" => (Figure::Errors, if bound == "0" { 0.0 } else { units::count(bound)? as f64 }),
            "rate" => (Figure::Rate, units::number(bound)?),
            _ => {
                let known = "mean, p50, p80, p90, p99, p99.9, p99.99, max, errors, rate";
                return Err(format!("`{name}` is none of {known}"));
            }
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
        Judged { text: self.text.clone(), value, shown, held }
    }
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
}

impl Verdict {
    /// Of a run. What makes other findings worthless comes first.
    pub(crate) fn of(record: &Record, is_open: bool, judged: &[Judged]) -> Verdict {
        if record.wrong_answers() > 0 || record.counts.completed == 0 {
            Verdict::WrongAnswers
        } else if bottleneck(record, is_open).is_some() {
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
            Verdict::Bottleneck => "generator was the bottleneck",
            Verdict::Missed => "objective missed",
        }
    }

    /// The exit code that says it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::WrongAnswers | Verdict::Missed => 1,
            Verdict::Bottleneck => 3,
        }
    }
}

/// Why the generator was the bottleneck, if it was.
pub(crate) fn bottleneck(record: &Record, is_open: bool) -> Option<String> {
    let busy = format!("a thread used {:.0} % of its CPU", record.busiest * 100.0);
    if !is_open {
        return (record.busiest > BUSY_SHARE)
            .then(|| format!("{busy}: the server could do more. Give it more --threads, or a slower server"));
    }
    let lag = Summary::of(&record.lag).quantiles[3];
    let latency = Summary::of(&record.all().intended).quantiles[3];
    if lag > LAG_MICROS.max(latency * LAG_SHARE) {
        let lag = units::show_micros(lag);
        return Some(format!("1 % of the requests left more than {lag} late for its own reasons; {busy}"));
    }
    (record.busiest > BUSY_SHARE && record.counts.late_for_generator > 0).then_some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(latency_ms: u64, lag_ms: u64) -> Record {
        let mut record = Record { seconds: 1.0, ..Record::default() };
        record.counts.completed = 100;
        record.kinds[0].intended.record_n(latency_ms * 1_000_000, 100).unwrap();
        record.lag.record_n(lag_ms * 1_000_000, 100).unwrap();
        record
    }

    fn verdict(record: &Record, slo: &str) -> Verdict {
        let summary = Summary::of(&record.all().intended);
        let judged: Vec<Judged> =
            Objective::read_all(slo).unwrap().iter().map(|objective| objective.judge(record, &summary)).collect();
        Verdict::of(record, true, &judged)
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
        let closed = Record { busiest: 0.99, ..record(1, 0) };
        assert!(bottleneck(&closed, false).is_some() && bottleneck(&closed, true).is_none());
    }

    #[test]
    fn every_wrong_objective_is_named() {
        let wrong = Objective::read_all("p99,p98=1s,mean=5,errors=-1,p50=1ms").unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
