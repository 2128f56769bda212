//! Live status: one update a second, as server-sent events (WHATWG HTML, section 9.2).

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::admission::{Admitted, Console};
use crate::api::admin::status;
use crate::api::response::{ApiResponse, answer_with};
use crate::api::rest::streaming::stream;
use carom_telemetry::stats::LatencySummary;

/// Pause between two events.
const EVERY: Duration = Duration::from_millis(900);

/// Time within which a core reports its latencies.
const REPORT_TIME_MAX: Duration = Duration::from_millis(500);

impl Admitted {
    /// Handles `GET /admin/api/events`: streams the status about once a second.
    pub(super) fn events(self, console: &Rc<Console>) -> ApiResponse {
        let watcher = console.watchers.join();
        let content = stream(|outlet| async move {
            let services = Rc::clone(&self.context.services);
            let mut before = None;
            // The last event reports the shutdown; then the stream ends, so that it does not delay the shutdown.
            loop {
                let latencies = services.latencies(REPORT_TIME_MAX).await;
                let mut told = status::describe(&services, &latencies);
                told["now"] = now(&told["pulse"], &latencies, before.as_deref());
                before = Some(latencies);
                outlet.send(format!("event: status\ndata: {told}\n\n").into_bytes()).await;
                let is_over = services.context().node.draining.load(Ordering::Relaxed) || !watcher.is_in();
                if is_over || !self.context.still_holds() {
                    return;
                }
                services.rest(EVERY).await;
            }
        });
        answer_with(StatusCode::OK, "text/event-stream", content)
    }
}

/// Describes the last second of all cores, and the latencies of requests since the previous event.
fn now(pulse: &Value, latencies: &[Option<LatencySummary>], before: Option<&[Option<LatencySummary>]>) -> Value {
    let last = |numbers: &Value| numbers.as_array().and_then(|all| all.last()?.as_u64()).unwrap_or(0);
    let of_cores = |name: &str| pulse[name].as_array().into_iter().flatten().map(last).sum::<u64>();
    let steps = before.map(|before| steps_since(latencies, before)).unwrap_or_default();
    let quantile = |share| quantile(&steps, share).map(|nanos| nanos as f64 / 1_000.0);
    json!({
        "redirects": of_cores("redirects"),
        "misses": of_cores("misses"),
        "changes": last(&pulse["changes"]),
        "accepted": last(&pulse["accepted"]),
        "latencyMicros": {"p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99), "p999": quantile(0.999)},
    })
}

/// Returns latencies and their counts since `before`, in nanoseconds, of all cores together; the shortest first.
fn steps_since(now: &[Option<LatencySummary>], before: &[Option<LatencySummary>]) -> Vec<(u64, u64)> {
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
    }
}
