//! Entries for the access log and the visit log, of requests that the core answers itself. Without these logs,
//! nothing here runs.

use std::time::Instant;

use hyper::Version;
use hyper::header::{HOST, HeaderValue, REFERER, USER_AGENT};

use super::connection::{Conn, ConnState, PendingLookup};
use crate::bridge::access_log::{PendingEntry, Protocol, Request};
use crate::bridge::handle::ServiceHandle;
use crate::bridge::visit_log::{LoggedPart, LoggedRequest, PendingVisit};
use carom_http::RedirectRequest;
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::redirect::{Decision, Response, VisitKind};
use carom_model::visits::host_of;
use carom_model::visits::record::RequestPart;
use carom_shards::Code;

/// Returns the access-log entry of a request that hyper has read, if the access log wants it.
pub(super) fn hyper_log_entry<B>(
    services: &ServiceHandle,
    request: &hyper::Request<B>,
    is_secure: bool,
) -> Option<PendingEntry> {
    if !services.samples_request() {
        return None;
    }
    let field = |name| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let host = request.uri().authority().map_or(field(HOST), |authority| authority.as_str().as_bytes());
    Some(PendingEntry::new(&Request {
        address: request.extensions().get::<RequestOrigin>().map(|source| source.address),
        is_secure,
        protocol: match request.version() {
            Version::HTTP_2 => Protocol::Http2,
            Version::HTTP_10 => Protocol::Http10,
            _ => Protocol::Http11,
        },
        method: request.method().as_str().as_bytes(),
        host,
        path: request.uri().path().as_bytes(),
        referrer: host_of(field(REFERER)),
        agent: field(USER_AGENT),
    }))
}

/// Returns the access-log fields of a request by its head.
fn request_of<'a>(services: &ServiceHandle, conn: &mut Conn, request: &RedirectRequest, head: &'a [u8]) -> Request<'a> {
    let RedirectRequest { host, referer, user_agent, .. } = request;
    let request = Request::from_head(head, host.of(head), referer.of(head), user_agent.of(head));
    let address = if services.wants_addresses() { conn.cached_address() } else { None };
    Request { address, is_secure: conn.tls.is_some(), ..request }
}

/// Logs a request that was answered immediately.
#[cold]
pub(super) fn log(
    services: &ServiceHandle,
    conn: &mut Conn,
    (request, head): (&RedirectRequest, &[u8]),
    response: &Response<'_>,
    since: Instant,
) {
    services.log_request(request_of(services, conn, request, head), response.status(), since.elapsed());
}

/// Returns the request part of a visit. Host and path matter for orphan visits only.
fn visit_part<'a>(
    services: &ServiceHandle,
    conn: &mut Conn,
    (request, head): (&RedirectRequest, &'a [u8]),
    may_be_orphan: bool,
) -> RequestPart<'a> {
    let address = if services.logs_visit_addresses() { conn.cached_address() } else { None };
    let (host, path) = if may_be_orphan { (request.host.of(head), path_of(request, head)) } else { Default::default() };
    let RedirectRequest { query, referer, user_agent, accept_language, .. } = request;
    let [query, referrer, agent, language] = [query, referer, user_agent, accept_language].map(|span| span.of(head));
    RequestPart { address, host, path, query, referrer, agent, language }
}

/// Returns the path of a request.
fn path_of<'a>(request: &RedirectRequest, head: &'a [u8]) -> &'a [u8] {
    // The target follows the method and one space, and ends before the next space.
    let target = &head[if request.head_only { "HEAD ".len() } else { "GET ".len() }.min(head.len())..];
    &target[..memchr::memchr2(b' ', b'?', target).unwrap_or(0)]
}

/// Counts and logs the visit of a request that was answered immediately. `head` is that of the request, and `code` that
/// of the link.
#[inline(never)]
pub(super) fn count_and_log_visit(
    services: &ServiceHandle,
    conn: &mut Conn,
    (request, head): (&RedirectRequest, &[u8]),
    (decision, code): (&Decision<'_>, Code),
    at_ms: u64,
) {
    let part = visit_part(services, conn, (request, head), decision.visit == VisitKind::Orphan);
    // Both need the kind of the user agent, which takes a hash of it.
    let visitor = services.visitor(part.agent, request.referer.of(head));
    services.record_visit(decision.visit, code, || visitor);
    let (is_secure, is_bot) = (conn.tls.is_some(), visitor.is_some_and(|visitor| visitor.is_bot));
    services.log_visit(decision, code, &LoggedRequest { at_ms, is_secure, is_bot, part: LoggedPart::Present(part) });
}

/// Returns the request part of a visit, which waits for the answer.
#[inline(never)]
fn pending_visit(services: &ServiceHandle, conn: &mut Conn, request: &RedirectRequest, head: &[u8]) -> PendingVisit {
    // The response is not known yet.
    PendingVisit::new(&visit_part(services, conn, (request, head), true))
}

/// Returns the access-log entry of a request, which waits for the answer.
#[cold]
fn pending_log_entry(
    services: &ServiceHandle,
    conn: &mut Conn,
    request: &RedirectRequest,
    head: &[u8],
) -> PendingEntry {
    PendingEntry::new(&request_of(services, conn, request, head))
}

/// Returns the access-log entry of a rejected request, which waits for the answer. It has the request line, if the bytes
/// begin with one. The address is that of the connection, because fields that might name another are not read.
#[cold]
pub(super) fn rejection_log_entry(services: &ServiceHandle, conn: &mut Conn, head: &[u8]) -> PendingEntry {
    let address = if services.wants_addresses() { conn.cached_peer() } else { None };
    let request = Request::from_head(head, b"", b"", b"");
    PendingEntry::new(&Request { address, is_secure: conn.tls.is_some(), ..request })
}

impl Conn {
    /// Waits for the answer to a look-up, for a request with that head.
    pub(super) fn look_up(&mut self, services: &ServiceHandle, pending: PendingLookup, head: &[u8]) {
        let log_entry = services.samples_request().then(|| pending_log_entry(services, self, &pending.request, head));
        let is_logged = !pending.request.head_only && services.logs_visits();
        let visit = is_logged.then(|| pending_visit(services, self, &pending.request, head));
        self.enter(ConnState::LookingUp(PendingLookup { log_entry, visit, ..pending }));
    }
}
