//! The text format of Prometheus, version 0.0.4: families with their help and kind, samples with labels.

use std::fmt::{Display, Write};

use crate::durations::{BOUNDS, Spread};

/// The type of a family of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// A value that only grows until the process ends.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

/// The labels of a sample, as they are written.
#[derive(Clone, Debug)]
pub struct MetricLabels(String);

impl MetricLabels {
    /// No labels.
    pub fn none() -> MetricLabels {
        MetricLabels(String::new())
    }

    /// One label. Its value is escaped.
    pub fn one(name: &str, value: impl Display) -> MetricLabels {
        MetricLabels(format!("{name}=\"{}\"", escaped(&value.to_string())))
    }

    /// Two labels, as names and values. Values are escaped.
    pub fn two(first: (&str, &str), second: (&str, &str)) -> MetricLabels {
        MetricLabels(format!("{},{}", MetricLabels::one(first.0, first.1).0, MetricLabels::one(second.0, second.1).0))
    }
}

/// A text in the making.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    family: &'static str,
}

impl Exposition {
    /// Begins a family.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // Writing to a text cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self.family = name;
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: &MetricLabels, value: impl Display) {
        self.line("", &labels.0, value);
    }

    /// Adds a histogram of seconds to the family.
    pub fn histogram(&mut self, labels: &MetricLabels, spread: &Spread) {
        let comma = if labels.0.is_empty() { "" } else { "," };
        for (bound, count) in BOUNDS.iter().zip(spread.up_to()) {
            self.line("_bucket", &format!("{}{comma}le=\"{}\"", labels.0, bound.as_secs_f64()), count);
        }
        self.line("_bucket", &format!("{}{comma}le=\"+Inf\"", labels.0), spread.count());
        self.line("_sum", &labels.0, spread.sum().as_secs_f64());
        self.line("_count", &labels.0, spread.count());
    }

    /// Returns the text that `/metrics` sends.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.text, "{}{suffix} {value}", self.family),
            labels => writeln!(self.text, "{}{suffix}{{{labels}}} {value}", self.family),
        };
    }
}

/// The value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_are_those_of_the_format() {
        let mut out = Exposition::default();
        out.family("a_total", MetricKind::Counter, "How many.");
        out.sample(&MetricLabels::none(), 5);
        out.sample(&MetricLabels::two(("file", "a\"b\\c\nd"), ("part", "x")), 0.5);
        out.family("b_seconds", MetricKind::Histogram, "How long.");
        let mut spread = Spread::default();
        spread.add(Duration::from_micros(50), 2);
        spread.add(Duration::from_secs(7), 1);
        out.histogram(&MetricLabels::one("core", 3), &spread);
        let text = out.into_text();
        for line in [
            "# HELP a_total How many.\n# TYPE a_total counter\na_total 5\n",
            "a_total{file=\"a\\\"b\\\\c\\nd\",part=\"x\"} 0.5\n",
            "# TYPE b_seconds histogram\nb_seconds_bucket{core=\"3\",le=\"0.000025\"} 0\n",
            "b_seconds_bucket{core=\"3\",le=\"0.00005\"} 2\n",
            "b_seconds_bucket{core=\"3\",le=\"1\"} 2\nb_seconds_bucket{core=\"3\",le=\"+Inf\"} 3\n",
            "b_seconds_sum{core=\"3\"} 7.0001\nb_seconds_count{core=\"3\"} 3\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
