//! What a request is told, what is counted of that, and whether its connection goes on: small rules that several ways to an
//! answer share.

use std::task::Poll;

use carom_shards::Code;

use super::conn::{Conn, Stage};
use super::look::Looks;
use crate::desk::Desk;
use crate::redirect::{BorrowedLookup, Destination, Lookup};
use crate::stats::CoreStats;
use crate::visits::Visitor;
use crate::wire::Ask;
use crate::wire::answer::Told;

/// Whether a connection may go on with its input: it waits for no other core and is not congested.
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
        Told::Found(Lookup::Live(_)) => stats.redirects.add(1),
        Told::Found(Lookup::Missing | Lookup::NotYetValid | Lookup::Expired)
        | Told::Blocked
        | Told::Misdirected
        | Told::Away(_) => {
            stats.misses.add(1);
        }
        Told::TooMany => stats.throttled.add(1),
        Told::Found(Lookup::Damaged | Lookup::NotResident | Lookup::Unconfirmed) => stats.unavailable.add(1),
    }
}

/// Who sent a request, whose head that is.
pub(super) fn visitor_of(desk: &Desk, ask: &Ask, head: &[u8]) -> Option<Visitor> {
    desk.visitor(ask.user_agent.of(head), ask.referer.of(head))
}

/// Tells of the visit that an answer is; who asks for the head alone does not visit.
#[inline]
pub(super) fn tell_visit(desk: &Desk, ask: &Ask, told: &Told<'_>, visitor: impl FnOnce() -> Option<Visitor>) {
    match told {
        _ if ask.head_only => {}
        Told::Found(Lookup::Live(_)) => desk.tell_visit(Some(ask.code), visitor()),
        Told::Found(Lookup::Missing | Lookup::NotYetValid) => desk.tell_visit(None, visitor()),
        Told::Found(Lookup::Expired | Lookup::Damaged | Lookup::NotResident | Lookup::Unconfirmed) => {}
        Told::Blocked | Told::TooMany | Told::Misdirected | Told::Away(_) => {}
    }
}

/// After an answer: whether the connection ends, or must wait before it goes on.
#[inline]
pub(super) fn end_or_wait(conn: &mut Conn, ask: &Ask, is_last: bool) -> bool {
    if ask.close {
        conn.stage = Stage::Finishing;
        // With TLS a client has one more word to say, which would be answered with a reset.
        conn.said_last = ask.asked_to_close && is_last && conn.tls.is_none();
    }
    ask.close || !may_step(conn)
}

/// Goes on with what memory has for a code. Of a link that leads nowhere any more no visit is used up.
#[inline]
pub(super) fn go_on<'a>(
    desk: &Desk,
    looks: &mut Looks,
    found: BorrowedLookup<'a>,
    code: Code,
    token: u64,
    tick: u32,
) -> Poll<BorrowedLookup<'a>> {
    match found {
        Lookup::Live(Destination { target, .. }) if desk.blocks(target) => Poll::Ready(found),
        found => looks.go_on(found, code, token, tick),
    }
}

/// What is told of what was found: not where a blocked link leads, and nothing to who asks for too much that is not there.
#[inline]
pub(super) fn screen<'a>(desk: &Desk, conn: &mut Conn, found: BorrowedLookup<'a>) -> Told<'a> {
    match found {
        Lookup::Live(Destination { target, .. }) if desk.blocks(target) => Told::Blocked,
        // It may have asked before others of the same address were refused, so that all of them were under way at once.
        Lookup::Live(_) if desk.guard().is_alert() && conn.is_barred(desk) => Told::TooMany,
        // A guess is a guess also while nobody can say whether it has hit.
        Lookup::Missing | Lookup::NotYetValid | Lookup::Unconfirmed if conn.misses_too_often(desk) => Told::TooMany,
        found => Told::Found(found),
    }
}
