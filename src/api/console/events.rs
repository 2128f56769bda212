//! Live status: one update a second, as server-sent events (WHATWG HTML, section 9.2).

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::admission::{Admitted, Console};
use super::latencies::{self, steps_since, steps_since_start};
use crate::api::admin::status;
use crate::api::response::{ApiResponse, answer_with};
use crate::api::rest::streaming::stream;
use crate::api::uptime::uptime;
use carom_telemetry::stats::LatencySummary;

/// Pause between two events.
const EVERY: Duration = Duration::from_millis(900);

/// Time within which a core reports its latencies.
const REPORT_TIME_MAX: Duration = Duration::from_millis(500);

impl Admitted {
    /// Handles `GET /admin/api/events`: streams the status about once a second.
    pub(super) fn events(self, console: &Rc<Console>) -> ApiResponse {
        let (watcher, console) = (console.watchers.join(), Rc::clone(console));
        let content = stream(|outlet| async move {
            let services = Rc::clone(&self.context.services);
            let mut before = None;
            // The last event reports the shutdown; then the stream ends, so that it does not delay the shutdown.
            loop {
                let latencies = services.latencies(REPORT_TIME_MAX).await;
                let mut shown = status::describe(&services, &latencies);
                shown["now"] = now(&shown["pulse"], &latencies, before.as_deref());
                shown["latency"] = json!({
                    "window": console.latencies.borrow_mut().describe(uptime(), &latencies),
                    "sinceStart": latencies::describe(&steps_since_start(&latencies)),
                });
                before = Some(latencies);
                outlet.send(format!("event: status\ndata: {shown}\n\n").into_bytes()).await;
                let is_over = services.context().node.draining.load(Ordering::Relaxed) || !watcher.is_in();
                if is_over || !self.context.still_holds() {
                    return;
                }
                services.sleep(EVERY).await;
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
    json!({
        "redirects": of_cores("redirects"),
        "misses": of_cores("misses"),
        "changes": last(&pulse["changes"]),
        "accepted": last(&pulse["accepted"]),
        "latencyMicros": latencies::describe(&steps),
    })
}
