//! Quantiles of latencies over a time, from the histograms of all cores.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use carom_telemetry::stats::LatencySummary;

/// Time that the quantiles of [`LatencyWindow`] cover, if the console was open before.
const WINDOW: Duration = Duration::from_secs(120);

/// Pause between two kept reports. The window is longer than [`WINDOW`] by up to this time.
const STEP: Duration = Duration::from_secs(5);

/// The reports of the cores at one time, each `None` for a core that failed to report.
type Reports = Vec<Option<LatencySummary>>;

/// Earlier reports of the cores, as far as the console was open. With a report from the start of the window, the
/// histograms of now give its quantiles.
#[derive(Debug, Default)]
pub(super) struct LatencyWindow {
    /// The oldest first, each with the uptime of the node at which it came.
    kept: VecDeque<(Duration, Reports)>,
}

impl LatencyWindow {
    /// Describes the latencies from the start of the window until now, an uptime of the node, and keeps the reports.
    /// `null` if there is no earlier report.
    pub(super) fn describe(&mut self, now: Duration, reports: &[Option<LatencySummary>]) -> Value {
        while self.kept.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW + STEP) {
            self.kept.pop_front();
        }
        let described = self.kept.front().map(|(at, before)| {
            let mut described = describe(&steps_since(reports, before));
            described["seconds"] = json!(now.saturating_sub(*at).as_secs());
            described
        });
        if self.kept.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= STEP) {
            self.kept.push_back((now, reports.to_vec()));
        }
        described.into()
    }
}

/// Describes requests: their number, and their latencies by quantile in microseconds, `null` without requests.
pub(super) fn describe(steps: &[(u64, u64)]) -> Value {
    let quantile = |share| quantile(steps, share).map(|nanos| nanos as f64 / 1_000.0);
    json!({
        "count": steps.iter().map(|(_, count)| count).sum::<u64>(),
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "p999": quantile(0.999),
    })
}

/// Returns latencies and their counts since the start of the node, in nanoseconds, of all cores together; the shortest
/// first.
pub(super) fn steps_since_start(now: &[Option<LatencySummary>]) -> Vec<(u64, u64)> {
    let none: Reports = now.iter().map(|_| Some(LatencySummary::default())).collect();
    steps_since(now, &none)
}

/// Returns latencies and their counts since `before`, in nanoseconds, of all cores together; the shortest first.
pub(super) fn steps_since(now: &[Option<LatencySummary>], before: &[Option<LatencySummary>]) -> Vec<(u64, u64)> {
    let mut all: HashMap<u64, u64> = HashMap::new();
    // A core that failed to report at either time contributes nothing.
    for (now, before) in now.iter().zip(before).filter_map(|(now, before)| now.as_ref().zip(before.as_ref())) {
        let known: HashMap<u64, u64> = before.steps.iter().copied().collect();
        for (nanos, count) in &now.steps {
            let more = count.saturating_sub(known.get(nanos).copied().unwrap_or(0));
            *all.entry(*nanos).or_default() += more;
        }
    }
    let mut steps: Vec<(u64, u64)> = all.into_iter().filter(|(_, count)| *count > 0).collect();
    steps.sort_unstable();
    steps
}

/// Returns the latency that this share of the requests did not exceed; `None` without requests.
fn quantile(steps: &[(u64, u64)], share: f64) -> Option<u64> {
    let total: u64 = steps.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    steps.iter().find_map(|(nanos, count)| {
        seen += count;
        (seen >= wanted.max(1)).then_some(*nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(steps: &[(u64, u64)]) -> Option<LatencySummary> {
        Some(LatencySummary { steps: steps.to_vec(), ..LatencySummary::default() })
    }

    #[test]
    fn quantiles_are_those_of_the_time_in_between() {
        let before = [summary(&[(10, 1_000)]), None, summary(&[])];
        let now = [summary(&[(10, 1_090), (500, 9)]), summary(&[(1, 1)]), summary(&[(9_000, 1)])];
        let steps = steps_since(&now, &before);
        assert_eq!(steps, [(10, 90), (500, 9), (9_000, 1)]);
        let of = |share| quantile(&steps, share);
        assert_eq!((of(0.5), of(0.9), of(0.99), of(0.999)), (Some(10), Some(10), Some(500), Some(9_000)));
        assert_eq!(quantile(&[], 0.5), None);
        let ever = describe(&steps_since_start(&now));
        assert_eq!(ever, json!({"count": 1_101, "p50": 0.01, "p90": 0.01, "p99": 0.01, "p999": 0.5}));
        assert_eq!(describe(&[])["p99"], Value::Null);
    }

    #[test]
    fn window_forgets_what_is_older() {
        let mut window = LatencyWindow::default();
        let at = |window: &mut LatencyWindow, seconds: u64, steps: &[(u64, u64)]| {
            window.describe(Duration::from_secs(seconds), &[summary(steps)])
        };
        assert_eq!(at(&mut window, 0, &[(1_000, 7)]), Value::Null);
        // Slow requests of the first seconds count as long as they are in the window.
        let slow = [(1_000, 7), (9_000, 3)];
        assert_eq!(at(&mut window, 1, &slow)["count"], 3);
        for second in (5..=120).step_by(5) {
            let window_now = at(&mut window, second, &slow);
            assert_eq!((&window_now["count"], &window_now["p99"]), (&json!(3), &json!(9.0)), "second {second}");
        }
        let later = at(&mut window, 126, &[(1_000, 8), (9_000, 3)]);
        assert_eq!(later, json!({"count": 1, "p50": 1.0, "p90": 1.0, "p99": 1.0, "p999": 1.0, "seconds": 121}));
        assert!(window.kept.len() <= 26, "{} reports", window.kept.len());
        // Nobody looked for an hour.
        assert_eq!(at(&mut window, 4_000, &[(1_000, 900)]), Value::Null);
    }
}
