//! What the access log is told of requests that are answered here, and not by a handler. Nothing of this runs where there is none.

use std::time::{Duration, Instant};

use hyper::Version;
use hyper::header::{HOST, HeaderValue, REFERER, USER_AGENT};

use super::conn::Conn;
use crate::access_log::{Noted, Protocol, Request};
use crate::desk::Desk;
use crate::guard::Source;
use crate::visits::host_of;
use crate::wire::answer::Told;
use crate::wire::{Ask, Rejection};

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
fn request_of<'a>(conn: &mut Conn, ask: &Ask, head: &'a [u8]) -> Request<'a> {
    let request = Request::of_head(head, ask.host.of(head), ask.referer.of(head), ask.user_agent.of(head));
    Request { address: conn.known_address(), is_secure: conn.tls.is_some(), ..request }
}

/// Tells of a request that was answered on the spot.
#[cold]
pub(super) fn tell(desk: &Desk, conn: &mut Conn, (ask, head): (&Ask, &[u8]), told: &Told<'_>, since: Instant) {
    desk.tell_request(request_of(conn, ask, head), told.status(), since.elapsed());
}

/// Keeps what is known of a request until there is an answer.
#[cold]
pub(super) fn note(conn: &mut Conn, ask: &Ask, head: &[u8]) {
    conn.noted = Some(Box::new(Noted::new(&request_of(conn, ask, head))));
}

/// Tells of a request that was refused before anybody knew what it asks for.
#[cold]
pub(super) fn tell_rejected(desk: &Desk, conn: &mut Conn, rejection: Rejection) {
    let request = Request { address: conn.known_address(), is_secure: conn.tls.is_some(), ..Request::default() };
    desk.tell_request(request, rejection.number(), Duration::ZERO);
}
