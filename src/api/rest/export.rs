//! The export of all links, one a line. It reads them from the store page by page while it sends them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::{Method, StatusCode};
use serde_json::json;

use super::bulk::body::NDJSON;
use super::list::{filter_within, named_in};
use super::streaming::{Outlet, stream};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, answer, answer_with};
use crate::bridge::handle::LongKind;
use crate::bridge::handle::long::LongRequest;
use crate::bridge::{Page, STORE_UNREADABLE};
use carom_limits::EXPORT_REPORTS_MAX;
use carom_model::query::Filter;

/// Records that an export had to omit.
#[derive(Default)]
struct Missing {
    count: u64,
    first: Vec<String>,
}

impl Missing {
    fn add(&mut self, damaged: Vec<String>) {
        self.count += damaged.len() as u64;
        self.first.extend(damaged.into_iter().take(EXPORT_REPORTS_MAX - self.first.len()));
    }
}

impl Context {
    /// Handles `GET /rest/v3/short-urls/export`: streams all links that the caller may see.
    pub(in crate::api) fn export(&self, method: &Method, query: Option<&str>) -> ApiResponse {
        let mut params = Params::of(query);
        let (filter, has_any) =
            filter_within(&mut params, &self.caller.scope(), |name, scope| self.narrowed(scope, name), self.domains());
        let named = named_in(&params, |term| self.codes_named(term)).unwrap_or_default();
        if let Err(invalid) = params.finish() {
            return Problem::invalid(&invalid).into_answer();
        }
        if !has_any || *method == Method::HEAD {
            return answer(StatusCode::OK, NDJSON, "");
        }
        let request = match self.services.begin_long(LongKind::Export, self.caller.name()) {
            Ok(request) => request,
            Err(too_many) => return Problem::too_many_long("exports", too_many).into_answer(),
        };
        let filter = Arc::new(Filter { named, ..filter });
        let context = self.clone();
        answer_with(
            StatusCode::OK,
            NDJSON,
            stream(|outlet| async move { context.send_all(&filter, &request, &outlet).await }),
        )
    }

    async fn send_all(&self, filter: &Arc<Filter>, request: &LongRequest, outlet: &Outlet) {
        let mut missing = Missing::default();
        let mut behind = Vec::new();
        loop {
            if !self.still_holds() {
                return send_problem(Problem::wrong_key(), outlet).await;
            }
            let early = match self.next_page(request, filter, behind).await {
                Some(page) => {
                    missing.add(page.damaged);
                    outlet.send(page.lines).await;
                    match page.last {
                        Some(last) => {
                            behind = last;
                            continue;
                        }
                        None => page.failed.then_some(STORE_UNREADABLE),
                    }
                }
                None if self.is_ending() => Some("the node is shutting down"),
                None => Some("the store did not answer in time"),
            };
            if missing.count > 0 {
                send_problem(Problem::incomplete(missing.count, &missing.first), outlet).await;
            }
            if let Some(why) = early {
                let detail = format!("The export is incomplete: {why}.");
                send_problem(Problem::unavailable(detail), outlet).await;
            }
            return;
        }
    }

    /// Returns the next page; `None` if the store cannot deliver it, or the node shuts down.
    async fn next_page(&self, request: &LongRequest, filter: &Arc<Filter>, behind: Vec<u8>) -> Option<Page> {
        let mut page = pin!(self.services.page(behind, Arc::clone(filter)));
        poll_fn(|context| if request.must_end(context) { Poll::Ready(None) } else { page.as_mut().poll(context) }).await
    }

    fn is_ending(&self) -> bool {
        self.services.context().node.draining.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Reports at the end that the export is incomplete, as a line that imports do not take for a link.
async fn send_problem(problem: Problem, outlet: &Outlet) {
    let (status, members) = problem.into_parts();
    let mut line = json!({"status": status.as_u16(), "error": members}).to_string().into_bytes();
    line.push(b'\n');
    outlet.send(line).await;
}
