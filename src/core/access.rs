//! What the access log is told of requests that are answered here, and not by a handler. Nothing of this runs where there is none.

use std::time::Instant;

use hyper::Version;
use hyper::header::{HOST, HeaderValue, REFERER, USER_AGENT};

use super::conn::Conn;
use crate::access_log::{Noted, Protocol, Request};
use crate::desk::Desk;
use crate::guard::Source;
use crate::redirect::Response;
use crate::visits::host_of;
use crate::wire::RedirectRequest;

/// What is known of a request that hyper has read, if it is one that the access log is to have.
pub(super) fn note_read<B>(desk: &Desk, request: &hyper::Request<B>, is_secure: bool) -> Option<Noted> {
    if !desk.picks() {
        return None;
    }
    let field = |name| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let host = request.uri().authority().map_or(field(HOST), |authority| authority.as_str().as_bytes());
    Some(Noted::new(&Request {
        address: request.extensions().get::<Source>().map(|source| source.address),
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

/// What is known of a request by its head.
fn request_of<'a>(desk: &Desk, conn: &mut Conn, request: &RedirectRequest, head: &'a [u8]) -> Request<'a> {
    let RedirectRequest { host, referer, user_agent, .. } = request;
    let request = Request::of_head(head, host.of(head), referer.of(head), user_agent.of(head));
    let address = if desk.wants_addresses() { conn.known_address() } else { None };
    Request { address, is_secure: conn.tls.is_some(), ..request }
}

/// Tells of a request that was answered on the spot.
#[cold]
pub(super) fn tell(
    desk: &Desk,
    conn: &mut Conn,
    (request, head): (&RedirectRequest, &[u8]),
    response: &Response<'_>,
    since: Instant,
) {
    desk.tell_request(request_of(desk, conn, request, head), response.status(), since.elapsed());
}

/// Keeps what is known of a request until there is an answer.
#[cold]
pub(super) fn note(desk: &Desk, conn: &mut Conn, request: &RedirectRequest, head: &[u8]) -> Noted {
    Noted::new(&request_of(desk, conn, request, head))
}

/// Keeps what is known of a request that is refused until it is told so: its line, where what came begins with one. Who sent it is
/// whom the connection is of: the fields that might say more are not read.
#[cold]
pub(super) fn note_rejected(desk: &Desk, conn: &mut Conn, head: &[u8]) -> Noted {
    let address = if desk.wants_addresses() { conn.known_peer() } else { None };
    let request = Request::of_head(head, b"", b"", b"");
    Noted::new(&Request { address, is_secure: conn.tls.is_some(), ..request })
}
