//! Redirects of links with redirect rules: the destination depends on the request.
//!
//! The core of the client decides, because it has the request. The owner of the code brings the link: this core itself,
//! another one through the mesh, or the store. A request that waits has kept its head (`PendingLookup::head`).

use std::task::Poll;

use super::{LateOutcome, Redirects};
use crate::bridge::geo::source;
use crate::bridge::handle::count_response;
use crate::core::access;
use crate::core::connection::{Conn, ConnState, PendingLookup};
use crate::core::late_answers::LookupTimes;
use crate::core::now::Now;
use crate::core::request_rules::{ConnClient, block_or_continue, end_or_wait, record_visit};
use carom_http::RedirectRequest;
use carom_http::redirect::lines_of;
use carom_limits::RULE_LANGUAGES_MAX;
use carom_model::link::Link;
use carom_model::link::rules::{RuleVisitor, VisitorPlace};
use carom_model::redirect::{Lookup, ResponseRules, decide};

/// The lines of a field, before they are found.
const NO_LINES: [&[u8]; RULE_LANGUAGES_MAX] = [&[]; RULE_LANGUAGES_MAX];

/// Returns the visitor that a request describes to the rules of a link.
fn rule_visitor<'h>(
    conn: &mut Conn,
    link: &'h Link,
    (request, head): (&RedirectRequest, &'h [u8]),
    languages: &'h [&'h [u8]],
    place: VisitorPlace<'h>,
    now: &Now,
) -> RuleVisitor<'h> {
    RuleVisitor {
        user_agent: request.user_agent.of(head),
        accept_language: languages,
        query: request.query.of(head),
        address: conn.cached_address(),
        place,
        now_ms: now.unix_ms,
        code: Some(&link.code),
        ..RuleVisitor::default()
    }
}

impl Redirects {
    /// Answers a request for a link of this core that has redirect rules, or lets it wait for the grant of a visit.
    /// Returns true if the connection may handle further input now.
    #[cold]
    pub(super) fn redirect_by_rules(
        &mut self,
        conn: &mut Conn,
        now: &Now,
        pending: PendingLookup,
        (head, is_last): (&[u8], bool),
    ) -> bool {
        let PendingLookup { request, domain, code, .. } = pending;
        let data = self.data.as_ref().expect("only cores with a shard have redirects");
        let link = data.shard.ruled(&code).expect("the look-up has just found it");
        let geo = self.services.geo();
        let place = VisitorPlace::of(source(&geo));
        let mut lines = NO_LINES;
        let languages = lines_of(head, "accept-language", &mut lines);
        let found = link.for_visitor(&rule_visitor(conn, link, (&request, head), languages, place, now));
        drop(geo);
        let lookup_queues = self.lookup_queues.as_mut().expect("a core with a shard has these");
        let times = LookupTimes::this_turn(now);
        let Poll::Ready(found) = block_or_continue(&self.services, lookup_queues, found, code, conn.token(), times)
        else {
            conn.look_up(&self.services, pending, head);
            return false;
        };
        self.latencies.note_answered();
        let blocked = self.services.blocked();
        let response_rules = ResponseRules { blocked: blocked.as_deref(), redirects: &self.domain_redirects };
        let mut client = ConnClient { conn, services: &self.services };
        let decision = decide(&response_rules, Some(domain), request.head_only, found, &mut client);
        let response = &decision.response;
        count_response(&self.stats, response);
        record_visit(&self.services, conn, (&request, head), (&decision, code), now.unix_ms);
        self.answers[conn.scheme_index()].write(&mut conn.out, &request, request.query.of(head), response, now.unix_ms);
        if self.services.samples_request() {
            access::log(&self.services, conn, (&request, head), response, now.instant);
        }
        !end_or_wait(conn, &request, is_last)
    }

    /// Continues the look-up of a connection once the owner has brought its link, which has redirect rules. Applies the
    /// rules, and passes their result to [`Redirects::answer_late`].
    pub(in crate::core) fn answer_by_rules(
        &mut self,
        conn: &mut Conn,
        link: &Link,
        may_look_up: bool,
        now: &Now,
    ) -> Option<LateOutcome> {
        let pending = conn.take_look_up()?;
        let geo = self.services.geo();
        let place = VisitorPlace::of(source(&geo));
        let found = pending.head().map(|head| {
            let mut lines = NO_LINES;
            let languages = lines_of(head, "accept-language", &mut lines);
            link.for_visitor(&rule_visitor(conn, link, (&pending.request, head), languages, place, now))
        });
        drop(geo);
        conn.enter(ConnState::LookingUp(pending));
        match found {
            Some(found) => self.answer_late(conn, found, may_look_up, now),
            // The link got its first rules after the request was forwarded without its head.
            None => {
                self.note_rules(link);
                self.answer_late(conn, Lookup::NotResident, false, now)
            }
        }
    }

    /// Notes that the link of a code has rules, so that the next request for it keeps its head.
    fn note_rules(&self, link: &Link) {
        if let Some(data) = &self.data {
            data.shard.ruled_codes().mark(data.shard.resolve(&link.code).0);
        }
    }
}
