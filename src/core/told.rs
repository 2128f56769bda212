//! Small rules that every redirect path shares: the response, its counters, its visit, and the connection afterwards.

use carom_shards::Code;

use super::conn::{Conn, Stage};
use super::look::{Looks, Next};
use crate::bridge::handle::{Desk, Looked};
use crate::wire::Ask;
use crate::wire::answer::{Found, Told};
use carom_model::visits::Visitor;
use carom_telemetry::stats::CoreStats;

/// True if a connection may consume input: it waits for no other core and is not congested.
#[inline]
pub(super) fn may_step(conn: &Conn) -> bool {
    conn.asking.is_none()
        && conn.rejection.is_none()
        && !conn.is_congested()
        && !conn.slow.as_ref().is_some_and(|stream| stream.is_full())
}

#[inline]
pub(super) fn count(stats: &CoreStats, told: &Told<'_>) {
    match told {
        Told::Found(Found::Link { .. }) => stats.redirects.add(1),
        Told::Found(Found::Missing | Found::Early | Found::Gone)
        | Told::Blocked
        | Told::Misdirected
        | Told::Away(_) => {
            stats.misses.add(1);
        }
        Told::TooMany => stats.throttled.add(1),
        Told::Found(Found::Damaged | Found::Elsewhere | Found::Unconfirmed) => stats.unavailable.add(1),
    }
}

/// Returns the visitor that a request's head describes; `None` if this core records no visits.
pub(super) fn visitor_of(desk: &Desk, ask: &Ask, head: &[u8]) -> Option<Visitor> {
    desk.visitor(ask.user_agent.of(head), ask.referer.of(head))
}

/// Records the visit that a response completes, if any. A HEAD request is no visit.
#[inline]
pub(super) fn tell_visit(desk: &Desk, ask: &Ask, told: &Told<'_>, visitor: impl FnOnce() -> Option<Visitor>) {
    match told {
        _ if ask.head_only => {}
        Told::Found(Found::Link { .. }) => desk.tell_visit(Some(ask.code), visitor()),
        Told::Found(Found::Missing | Found::Early) => desk.tell_visit(None, visitor()),
        Told::Found(Found::Gone | Found::Damaged | Found::Elsewhere | Found::Unconfirmed) => {}
        Told::Blocked | Told::TooMany | Told::Misdirected | Told::Away(_) => {}
    }
}

/// Applies `Connection: close` after an answer. Returns true if the connection ends or must wait before its next
/// request.
#[inline]
pub(super) fn end_or_wait(conn: &mut Conn, ask: &Ask, is_last: bool) -> bool {
    if ask.close {
        conn.stage = Stage::Finishing;
        // A TLS client still sends its closing alert, and a closed socket would answer that with a reset.
        conn.said_last = ask.asked_to_close && is_last && conn.tls.is_none();
    }
    ask.close || !may_step(conn)
}

/// Decides what follows from what memory has for a code. A blocked link is answered at once, so that it uses up no
/// visit.
#[inline]
pub(super) fn go_on<'a>(
    desk: &Desk,
    looks: &mut Looks,
    found: Found<'a>,
    code: Code,
    token: u64,
    tick: u32,
) -> Next<'a> {
    match found {
        Found::Link { target, .. } if desk.blocks(target) => Next::Answer(found),
        found => looks.go_on(found, code, token, tick),
    }
}

/// Returns what was found, or `Unconfirmed` in place of a 404 while the code of the first domain is unconfirmed.
#[inline]
pub(super) fn confirmed(found: Found<'_>, unconfirmed: bool) -> Found<'_> {
    if unconfirmed && found == Found::Missing { Found::Unconfirmed } else { found }
}

/// Turns a look-up's result into a response: hides blocked destinations, and applies the rate limit for misses.
#[inline]
pub(super) fn screen<'a>(desk: &Desk, conn: &mut Conn, found: Found<'a>) -> Told<'a> {
    match found {
        Found::Link { target, .. } if desk.blocks(target) => Told::Blocked,
        // A client may send many guesses at once. Those that were under way when the limit was reached get 429 as well.
        Found::Link { .. } if desk.guard().is_alert() && conn.is_barred(desk) => Told::TooMany,
        // A guess counts as one even while nothing can tell whether it has hit.
        Found::Missing | Found::Early | Found::Unconfirmed if conn.misses_too_often(desk) => Told::TooMany,
        found => Told::Found(found),
    }
}

pub(super) fn looked(found: &Found<'_>) -> Looked {
    match *found {
        Found::Link { policy, target } => Looked::Link { policy, target: target.into() },
        Found::Missing => Looked::Missing,
        Found::Early => Looked::Early,
        Found::Gone => Looked::Gone,
        Found::Damaged => Looked::Damaged,
        Found::Elsewhere => Looked::Unavailable,
        Found::Unconfirmed => Looked::Unconfirmed,
    }
}
