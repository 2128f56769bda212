//! The recorders of a core, and the counters of its responses.

use crate::bridge::access_log::AccessSender;
use crate::bridge::visit_log::VisitLogSender;
use carom_model::redirect::{Notice, Response};
use carom_model::visits::VisitSender;
use carom_telemetry::stats::CoreStats;

/// The recorders of a core's requests.
#[derive(Debug, Default)]
pub struct Recorders {
    /// Ring to the visit counter; `None` for the core of the admin listener.
    pub visits: Option<VisitSender>,
    /// Ring to the writer of the access log, if there is one.
    pub access: Option<AccessSender>,
    /// Ring to the visit log, if there is one.
    pub visit_log: Option<VisitLogSender>,
}

/// Counts the response to a request for a short code. Runs on the thread of the core that owns `stats`.
#[inline]
pub fn count_response(stats: &CoreStats, response: &Response<'_>) {
    match response {
        Response::Redirect(_) => stats.redirects.add(1),
        Response::DomainRedirect(_)
        | Response::Notice(Notice::NotFound | Notice::Gone | Notice::Blocked | Notice::Misdirected) => {
            stats.misses.add(1);
        }
        Response::Notice(Notice::TooMany) => stats.throttled.add(1),
        Response::Notice(Notice::Damaged | Notice::Unavailable) => stats.unavailable.add(1),
    }
}
