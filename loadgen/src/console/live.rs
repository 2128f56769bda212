//! The live view of a run on a terminal: a picture that is drawn in place, several times a second.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_telemetry::readable;

use crate::console::live_counters::{LiveCounters, LiveFigures};
use crate::plan::{Loop, Plan};
use crate::results::check::Fault;
use crate::units::show_micros;

/// Time between two pictures.
const REFRESH: Duration = Duration::from_millis(250);

/// Pictures that the column for the last second covers.
const RECENT: usize = 4;

/// Length of the bar that shows how much of the run is over, in characters.
const BAR_LEN: usize = 40;

/// Values of a sparkline.
const SPARK_LEN: usize = 32;

/// Heights of a sparkline, from the lowest.
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Quantiles in the picture.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// The live view of one run.
#[derive(Debug)]
pub(crate) struct Live {
    /// Figures of each thread.
    counters: Vec<Arc<LiveCounters>>,
    view: LiveView,
    /// Start of the run, warm-up included.
    origin: Instant,
    /// Instant of the next picture.
    next: Instant,
    /// Lines of the picture on the terminal.
    lines: usize,
}

impl Live {
    /// Returns the view of a run that has not started.
    pub(crate) fn new(plan: &Plan) -> Live {
        let now = Instant::now();
        let counters = plan.cpus.iter().map(|_| Arc::new(LiveCounters::new())).collect();
        Live { counters, view: LiveView::new(plan), origin: now, next: now, lines: 0 }
    }

    /// Returns the figures that a thread publishes.
    pub(crate) fn counters(&self, thread: usize) -> Arc<LiveCounters> {
        Arc::clone(&self.counters[thread])
    }

    /// Notes that the run starts at `origin`. Failed connections before it do not count.
    pub(crate) fn begin(&mut self, origin: Instant) {
        self.origin = origin;
        let figures = self.figures();
        self.view.take(Duration::ZERO, figures);
    }

    /// Draws the picture if it is time. Returns the time until the next one.
    pub(crate) fn refresh(&mut self) -> Duration {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + REFRESH;
            let figures = self.figures();
            self.view.take(now.saturating_duration_since(self.origin), figures);
            self.draw();
        }
        self.next.saturating_duration_since(now)
    }

    /// Removes the picture.
    pub(crate) fn clear(&mut self) {
        if self.lines > 0 {
            // The terminal may be gone.
            let _ = write!(io::stderr(), "\x1b[{}F\x1b[J", self.lines);
            self.lines = 0;
        }
    }

    fn figures(&self) -> LiveFigures {
        let mut figures = LiveFigures::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut figures));
        figures
    }

    fn draw(&mut self) {
        let picture = self.view.picture();
        let mut out = String::new();
        // Writing to a string cannot fail.
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}F", self.lines);
        }
        // Without automatic line breaks, a narrow terminal cuts lines off, and the picture keeps its height.
        out.push_str("\x1b[?7l");
        for line in &picture {
            let _ = writeln!(out, "{line}\x1b[K");
        }
        out.push_str("\x1b[J\x1b[?7h");
        self.lines = picture.len();
        // The terminal may be gone.
        let _ = io::stderr().write_all(out.as_bytes());
    }
}

/// Content of the picture. It knows neither the terminal nor the clock.
#[derive(Debug)]
struct LiveView {
    title: String,
    warmup: Duration,
    duration: Duration,
    /// Measured requests after which the run ends.
    requests: Option<u64>,
    /// Figures at the start of the run.
    first: Option<LiveFigures>,
    /// The latest figures with their times since the start, from the oldest.
    samples: VecDeque<(Duration, LiveFigures)>,
    /// Successful requests per second, from the oldest.
    rates: VecDeque<f64>,
    /// Values of each of [`QUANTILES`] in microseconds, from the oldest.
    latencies: [VecDeque<f64>; QUANTILES.len()],
}

impl LiveView {
    fn new(plan: &Plan) -> LiveView {
        let targets: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
        let pace = match plan.pace {
            Loop::Open { rate, .. } => format!("{}/s", readable::grouped(rate as u64)),
            Loop::Closed => "closed loop".to_owned(),
        };
        let connections = readable::count(plan.connections as u64, "connection");
        LiveView {
            title: format!("{}   {pace}, {connections}", targets.join(", ")),
            warmup: plan.warmup,
            duration: plan.duration,
            requests: plan.requests,
            first: None,
            samples: VecDeque::new(),
            rates: VecDeque::new(),
            latencies: Default::default(),
        }
    }

    /// Takes the figures at a time since the start of the run.
    fn take(&mut self, at: Duration, figures: LiveFigures) {
        if self.first.is_none() {
            self.first = Some(figures.clone());
        }
        self.samples.push_back((at, figures));
        if self.samples.len() > RECENT + 1 {
            self.samples.pop_front();
        }
        if at <= self.warmup {
            return;
        }
        let (seconds, recent) = self.recent();
        keep(&mut self.rates, recent.completed as f64 / seconds);
        for (values, (_, quantile)) in self.latencies.iter_mut().zip(QUANTILES) {
            keep(values, recent.quantile(quantile).unwrap_or(0.0));
        }
    }

    /// Returns the time that the samples cover in seconds, and what has changed in it.
    fn recent(&self) -> (f64, LiveFigures) {
        let (Some((from, before)), Some((to, now))) = (self.samples.front(), self.samples.back()) else {
            return (1.0, LiveFigures::default());
        };
        (to.saturating_sub(*from).as_secs_f64().max(1e-3), now.since(before))
    }

    /// Returns the lines of the picture.
    fn picture(&self) -> Vec<String> {
        let (at, whole) = match (&self.first, self.samples.back()) {
            (Some(first), Some((at, now))) => (*at, now.since(first)),
            _ => (Duration::ZERO, LiveFigures::default()),
        };
        let measured = at.saturating_sub(self.warmup).min(self.duration).as_secs_f64();
        let (seconds, recent) = self.recent();
        let rate =
            |count: u64, seconds: f64| format!("{}/s", readable::grouped((count as f64 / seconds.max(1e-3)) as u64));
        let row = |name: &str, recent: &str, whole: &str, values: &VecDeque<f64>| {
            format!("{name:<12}{recent:>14}{whole:>14}   {}", sparkline(values))
        };
        let mut lines = vec![self.title.clone(), self.progress(at, &whole)];
        lines.push(format!("{:<12}{:>14}{:>14}", "", "last second", "run"));
        let rates = (rate(recent.completed, seconds), rate(whole.completed, measured));
        lines.push(row("successful", &rates.0, &rates.1, &self.rates));
        for ((name, quantile), values) in QUANTILES.iter().zip(&self.latencies) {
            let show = |figures: &LiveFigures| figures.quantile(*quantile).map_or("-".to_owned(), show_micros);
            lines.push(row(name, &show(&recent), &show(&whole), values));
        }
        let faults = Fault::ALL.into_iter().filter(|&fault| whole.faults[fault as usize] > 0);
        let faults: Vec<String> = faults
            .map(|fault| format!("{} {}", fault.name(), readable::grouped(whole.faults[fault as usize])))
            .collect();
        let (now, all) = (readable::grouped(recent.errors()), readable::grouped(whole.errors()));
        lines.push(format!("{:<12}{now:>14}{all:>14}   {}", "errors", faults.join(", ")));
        lines
    }

    /// Returns the line that shows how much of the run is over.
    fn progress(&self, at: Duration, whole: &LiveFigures) -> String {
        let (at, warmup) = (at.as_secs_f64(), self.warmup.as_secs_f64());
        let (share, text) = match self.requests {
            _ if at < warmup => (at / warmup, format!("warm-up, {at:.1} s of {warmup:.1} s")),
            Some(count) => {
                let done = whole.completed + whole.errors();
                let text = format!("{} of {}", readable::grouped(done), readable::count(count, "request"));
                (done as f64 / count as f64, format!("{text}, {:.1} s", at - warmup))
            }
            None => {
                let duration = self.duration.as_secs_f64();
                let measured = (at - warmup).min(duration);
                (measured / duration, format!("{measured:.1} s of {duration:.1} s"))
            }
        };
        let full = ((share * BAR_LEN as f64) as usize).min(BAR_LEN);
        format!("{}{}  {text}", "█".repeat(full), "░".repeat(BAR_LEN - full))
    }
}

/// Adds a value, and drops the oldest beyond [`SPARK_LEN`].
fn keep(values: &mut VecDeque<f64>, value: f64) {
    values.push_back(value);
    if values.len() > SPARK_LEN {
        values.pop_front();
    }
}

/// Draws values between zero and the highest of them.
fn sparkline(values: &VecDeque<f64>) -> String {
    let max = values.iter().copied().fold(0.0, f64::max);
    let height = |value: &f64| if max > 0.0 { (value / max * 7.0).round() as usize } else { 0 };
    values.iter().map(|value| SPARKS[height(value).min(SPARKS.len() - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(requests: Option<u64>) -> LiveView {
        LiveView {
            title: "http://host/abc".to_owned(),
            warmup: Duration::from_secs(1),
            duration: Duration::from_secs(4),
            requests,
            first: None,
            samples: VecDeque::new(),
            rates: VecDeque::new(),
            latencies: Default::default(),
        }
    }

    /// Takes a sample every quarter of a second, with 100 responses of two milliseconds in each measured one.
    fn watch(view: &mut LiveView, quarters: u32) {
        let counters = LiveCounters::new();
        for quarter in 0..=quarters {
            let mut figures = LiveFigures::default();
            if quarter > 4 {
                (0..100).for_each(|_| counters.count_completed());
                (0..100).for_each(|_| counters.count_latency(2_000_000));
            }
            if quarter == 8 {
                counters.count_fault(Fault::Timeout);
            }
            counters.add_to(&mut figures);
            view.take(REFRESH * quarter, figures);
        }
    }

    #[test]
    fn picture_shows_the_last_second_and_the_run() {
        let mut view = view(None);
        watch(&mut view, 12);
        let picture = view.picture();
        assert_eq!(picture[0], "http://host/abc");
        assert!(picture[1].starts_with(&"█".repeat(20)), "{}", picture[1]);
        assert!(picture[1].ends_with("░  2.0 s of 4.0 s"), "{}", picture[1]);
        assert_eq!(picture[3].matches("400/s").count(), 2, "{}", picture[3]);
        assert_eq!(picture[5].matches(" ms").count(), 2, "{}", picture[5]);
        assert!(picture[7].starts_with("errors"), "{}", picture[7]);
        assert!(picture[7].ends_with("timeout 1"), "{}", picture[7]);
        assert_eq!(view.rates.len(), 8);
    }

    #[test]
    fn picture_knows_the_warm_up_and_a_number_of_requests() {
        let mut warm = view(None);
        assert_eq!(warm.picture().len(), 8, "before the first sample");
        watch(&mut warm, 2);
        let picture = warm.picture();
        assert!(picture[1].ends_with("warm-up, 0.5 s of 1.0 s"), "{picture:?}");
        assert!(picture[5].contains('-'), "{picture:?}");
        let mut counted = view(Some(1_000));
        watch(&mut counted, 7);
        assert!(counted.picture()[1].ends_with("300 of 1,000 requests, 0.8 s"), "{:?}", counted.picture());
    }

    #[test]
    fn sparklines_span_zero_to_the_highest_value() {
        assert_eq!(sparkline(&VecDeque::from([0.0, 3.5, 7.0])), "▁▅█");
        assert_eq!(sparkline(&VecDeque::from([0.0])), "▁");
        let mut values = VecDeque::new();
        (0..100).for_each(|value| keep(&mut values, f64::from(value)));
        assert_eq!((values.len(), values.back()), (SPARK_LEN, Some(&99.0)));
    }
}
