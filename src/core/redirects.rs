//! The redirects of a core: look-ups of short codes for connections and tasks, and the responses to them.
//!
//! A look-up begins in memory, here or on the core that owns the code, and may continue in the store, in Redis or with
//! the visit allowances. [`decide`] turns the result into a response, wherever it came from.

mod by_rules;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use carom_shards::{Code, CodeHash};

use super::access;
use super::answers::Answers;
use super::connection::{Awaits, Conn, ConnState, PendingLookup};
use super::late_answers::{LookupQueues, LookupTimes};
use super::latencies::CoreLatencies;
use super::link_sources::{LinkSources, Remote};
use super::mesh::Question;
use super::now::Now;
use super::request_rules::{ConnClient, block_or_continue, end_or_wait, record_visit};
use super::vhosts::HostRouter;
use crate::bridge::Absence;
use crate::bridge::handle::{ServiceHandle, count_response};
use crate::bridge::visit_log::{LoggedPart, LoggedRequest};
use carom_http::RedirectRequest;
use carom_http::head::all_of;
use carom_model::clients::forwarded::{Field, Trust};
use carom_model::domains::redirects::DomainRedirects;
use carom_model::link::Link;
use carom_model::redirect::{BorrowedLookup, Decision, Lookup, MissLimit, ResponseRules, decide};
use carom_telemetry::stats::CoreStats;

/// Bit that marks the token of a question from a task of the core. Tokens without it are tags of connections.
const TASK_TOKEN: u64 = 1 << 63;

/// True if the token of a question is one of a task, not of a connection.
pub(super) fn is_of_task(token: u64) -> bool {
    token & TASK_TOKEN != 0
}

/// Sets the client of a request to the one that the proxies name, if the node trusts any.
#[inline]
fn set_forwarded_client(trust: &Trust, conn: &mut Conn, request: &RedirectRequest, head: &[u8]) {
    match trust.field {
        Field::Off => {}
        field if request.is_split => conn.apply_forwarded(trust, &all_of(head, field.as_str())),
        Field::Forwarded => conn.apply_forwarded(trust, request.forwarded.of(head)),
        Field::XForwardedFor => conn.apply_forwarded(trust, request.x_forwarded_for.of(head)),
    }
}

/// True if the link of a code, or of one of its fallback codes, may have redirect rules. `next` returns the fallback
/// code of a code.
#[inline]
fn may_have_rules(data: &LinkSources, hash: CodeHash, code: &Code, next: impl Fn(&Code) -> Option<Code>) -> bool {
    let codes = data.shard.ruled_codes();
    let mut others = std::iter::successors(next(code), next);
    codes.may_hold(hash) || others.any(|code| codes.may_hold(data.shard.resolve(&code).0))
}

/// The progress of a connection after a late answer to its look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LateOutcome {
    /// The store, Redis or the visit allowance was asked as well.
    Waits,
    /// No link has the code: its fallback code is looked up next, with [`Redirects::look_up_fallback`].
    Fallback,
    /// The response is written. The code is given if this core should keep a copy of the link.
    Answered(Option<Code>),
}

/// The links that a core can look up, and the writers of its responses.
pub(super) struct Redirects {
    /// The links of the core, and the mesh to those of others; `None` for the core of the admin listener.
    pub(super) data: Option<Box<LinkSources>>,
    /// Look-ups in the store and in Redis; `None` without a shard.
    lookup_queues: Option<LookupQueues>,
    /// Codes that tasks of the core have asked other cores for, by token.
    forwarded: HashMap<u64, (Code, LookupTimes)>,
    /// Response writers: the first for plain connections, the second for TLS (see [`Conn::scheme_index`]).
    pub(super) answers: [Answers; 2],
    pub(super) hosts: HostRouter,
    /// The redirects of domains for requests that find no link.
    pub(super) domain_redirects: Arc<DomainRedirects>,
    pub(super) latencies: CoreLatencies,
    services: Rc<ServiceHandle>,
    pub(super) stats: Arc<CoreStats>,
    /// Proxies that may name the client.
    trust: Arc<Trust>,
}

impl Redirects {
    /// Prepares the redirects of a core with this data. `hsts` is the value of `Strict-Transport-Security`, if it is
    /// sent; `unix_ms` the time in milliseconds since 1970 UTC.
    pub(super) fn new(
        data: Option<Box<LinkSources>>,
        services: &Rc<ServiceHandle>,
        hsts: Option<&str>,
        trust: &Arc<Trust>,
        unix_ms: u64,
    ) -> Redirects {
        let context = services.context();
        let answers = [None, hsts]
            .map(|hsts| Answers::new(&context.pages, unix_ms / 1_000, context.miss_limiter.misses_per_second(), hsts));
        Redirects {
            lookup_queues: data.as_ref().map(|data| LookupQueues::new(services.core(), data.shard.hasher(), context)),
            data,
            forwarded: HashMap::new(),
            answers,
            hosts: HostRouter::new(&context.domains),
            domain_redirects: services.domain_redirects(),
            latencies: CoreLatencies::new(),
            services: Rc::clone(services),
            stats: Arc::clone(&context.cores[services.core().index()]),
            trust: Arc::clone(trust),
        }
    }

    /// True if the core answers redirects itself. The core of the admin listener does not.
    pub(super) fn is_served(&self) -> bool {
        self.data.is_some()
    }

    /// Answers a request for a short code, or lets it wait for an answer. `is_last` is true if no input follows its
    /// head. Returns true if the connection may handle further input now.
    #[inline]
    pub(super) fn redirect(
        &mut self,
        conn: &mut Conn,
        now: &Now,
        request: &RedirectRequest,
        (head, is_last): (&[u8], bool),
    ) -> bool {
        debug_assert!(matches!(conn.state, ConnState::Open), "one request at a time");
        let data = self.data.as_mut().expect("only cores with a shard have redirects");
        set_forwarded_client(&self.trust, conn, request, head);
        let blocked = self.services.blocked();
        let response_rules = ResponseRules { blocked: blocked.as_deref(), redirects: &self.domain_redirects };
        let (decision, code) = if (ConnClient { conn, services: &self.services }).is_limited() {
            (Decision::limited(), request.code)
        } else {
            let (domain, mut code) = self.hosts.resolve(request, head);
            let (mut found, mut unconfirmed) = (Lookup::Missing, false);
            while let Some(domain) = domain {
                let pending = || PendingLookup::new(&self.services, request, head, (domain, code), now);
                found = match data.find(&code, now.unix_ms) {
                    Ok(found) => found,
                    Err(Remote { owner, hash, keeps_copy }) => {
                        let question = Question { token: conn.token(), hash, code };
                        let awaits = Awaits::Owner { keeps_copy };
                        let next = |code: &Code| self.hosts.fallback_of(code, domain);
                        let keeps_head = may_have_rules(data, hash, &code, next);
                        let pending = PendingLookup { awaits, unconfirmed, ..pending() }.with_head_if(keeps_head, head);
                        conn.look_up(&self.services, pending, head);
                        self.stats.forwarded_out.add(1);
                        data.mesh.ask(owner, question);
                        return false;
                    }
                };
                let lookup_queues = self.lookup_queues.as_mut().expect("a core with a shard has these");
                let Poll::Ready(result) = block_or_continue(
                    &self.services,
                    lookup_queues,
                    found,
                    code,
                    conn.token(),
                    LookupTimes::this_turn(now),
                ) else {
                    let pending = PendingLookup { unconfirmed, ..pending() }.for_storage(&found, head);
                    if found == Lookup::Ruled {
                        drop(blocked);
                        return self.redirect_by_rules(conn, now, pending, (head, is_last));
                    }
                    conn.look_up(&self.services, pending, head);
                    return false;
                };
                found = result.as_fallback(unconfirmed);
                if !found.allows_fallback() {
                    break;
                }
                let Some(next) = self.hosts.fallback_of(&code, domain) else { break };
                (code, unconfirmed) = (next, found == Lookup::Unconfirmed);
            }
            self.latencies.note_answered();
            let mut client = ConnClient { conn, services: &self.services };
            (decide(&response_rules, domain, request.head_only, found, &mut client), code)
        };
        let response = &decision.response;
        count_response(&self.stats, response);
        record_visit(&self.services, conn, (request, head), (&decision, code), now.unix_ms);
        self.answers[conn.scheme_index()].write(&mut conn.out, request, request.query.of(head), response, now.unix_ms);
        if self.services.samples_request() {
            access::log(&self.services, conn, (request, head), response, now.instant);
        }
        !end_or_wait(conn, request, is_last)
    }

    /// Continues the look-up of a connection with an answer from another core, the store or Redis. With `may_look_up`,
    /// the store and Redis may be asked as well. `None` if the connection waits for no look-up.
    pub(super) fn answer_late(
        &mut self,
        conn: &mut Conn,
        mut found: BorrowedLookup<'_>,
        may_look_up: bool,
        now: &Now,
    ) -> Option<LateOutcome> {
        debug_assert!(found != Lookup::Ruled, "no thread would be asked, so the client would wait until its timeout");
        let mut pending = conn.take_look_up()?;
        if may_look_up && let Some(lookup_queues) = &mut self.lookup_queues {
            let times = LookupTimes { tick: now.tick, followed: pending.followed, since: pending.since };
            let Poll::Ready(result) =
                block_or_continue(&self.services, lookup_queues, found, pending.code, conn.token(), times)
            else {
                let waiting = PendingLookup { awaits: Awaits::Storage, asked_storage: true, ..pending };
                conn.enter(ConnState::LookingUp(waiting));
                return Some(LateOutcome::Waits);
            };
            found = result;
        }
        found = found.as_fallback(pending.unconfirmed);
        if found.allows_fallback()
            && let Some(code) = self.hosts.fallback_of(&pending.code, pending.domain)
        {
            pending.unconfirmed = found == Lookup::Unconfirmed;
            (pending.code, pending.awaits) = (code, Awaits::Fallback);
            conn.enter(ConnState::LookingUp(pending));
            return Some(LateOutcome::Fallback);
        }
        let keeps_copy = pending.awaits == Awaits::Owner { keeps_copy: true };
        let kept = keeps_copy.then_some(pending.code);
        let request = pending.request;
        self.respond(conn, pending, found, now);
        if request.close {
            let client_is_done = request.asked_to_close && conn.unconsumed.is_empty() && conn.tls.is_none();
            conn.enter(ConnState::Flushing { client_is_done });
        }
        Some(LateOutcome::Answered(kept))
    }

    /// Looks up the fallback codes for a missing code, if the connection waits for that ([`Awaits::Fallback`]).
    pub(super) fn look_up_fallback(&mut self, conn: &mut Conn, now: &Now) -> Option<LateOutcome> {
        loop {
            match self.look_up_next(conn, now) {
                Some(LateOutcome::Fallback) => {}
                late => return late,
            }
        }
    }

    /// Looks up the next fallback code.
    fn look_up_next(&mut self, conn: &mut Conn, now: &Now) -> Option<LateOutcome> {
        let token = conn.token();
        let ConnState::LookingUp(pending) = &mut conn.state else { return None };
        if pending.awaits != Awaits::Fallback {
            return None;
        }
        let code = pending.code;
        let mut data = self.data.take()?;
        let late = match data.find(&code, now.unix_ms) {
            Ok(Lookup::Ruled) => {
                let link = data.shard.ruled(&code).cloned();
                link.and_then(|link| self.answer_by_rules(conn, &link, true, now))
            }
            Ok(found) => self.answer_late(conn, found, true, now),
            Err(Remote { owner, hash, keeps_copy }) => {
                pending.awaits = Awaits::Owner { keeps_copy };
                self.stats.forwarded_out.add(1);
                data.mesh.ask(owner, Question { token, hash, code });
                None
            }
        };
        self.data = Some(data);
        late
    }

    /// Answers 503 to a look-up that timed out, and ends the connection. Returns false if it waits for no look-up.
    pub(super) fn time_out_look_up(&mut self, conn: &mut Conn, now: &Now) -> bool {
        let Some(pending) = conn.take_look_up() else { return false };
        let request = RedirectRequest { close: true, ..pending.request };
        let pending = PendingLookup { request, ..pending }.without_query();
        self.respond(conn, pending, Lookup::NotResident, now);
        conn.enter(ConnState::Flushing { client_is_done: false });
        true
    }

    /// Decides on the result of a look-up, writes the response, and records it.
    fn respond(&mut self, conn: &mut Conn, pending: PendingLookup, found: BorrowedLookup<'_>, now: &Now) {
        let blocked = self.services.blocked();
        let response_rules = ResponseRules { blocked: blocked.as_deref(), redirects: &self.domain_redirects };
        let PendingLookup { request, domain, code, since, visitor, ref visit, asked_storage, .. } = pending;
        let is_absent = matches!(found, Lookup::Missing | Lookup::Unconfirmed);
        let mut client = ConnClient { conn, services: &self.services };
        let decision = decide(&response_rules, Some(domain), request.head_only, found, &mut client);
        let response = decision.response;
        count_response(&self.stats, &response);
        self.services.record_visit(decision.visit, code, || visitor);
        if let Some(visit) = visit {
            let is_bot = visitor.is_some_and(|visitor| visitor.is_bot);
            let (at_ms, is_secure, part) = (now.unix_ms, conn.tls.is_some(), LoggedPart::Noted(visit));
            self.services.log_visit(&decision, code, &LoggedRequest { at_ms, is_secure, is_bot, part });
        }
        self.answers[conn.scheme_index()].write(&mut conn.out, &request, pending.query(), &response, now.unix_ms);
        let took = now.instant - since;
        if asked_storage && is_absent {
            // Requests for missing codes must not count as slow redirects.
            self.stats.absent_waits.record(took);
        } else {
            self.latencies.record(took);
        }
        if let Some(log_entry) = pending.log_entry {
            self.services.log_pending(log_entry, response.status(), took);
        }
    }

    /// Returns the instant since when a connection or task waits for the look-up with that token; `None` once
    /// the client has left or has its answer.
    pub(super) fn waits_since(&self, token: u64, conn: Option<&Conn>) -> Option<Instant> {
        if is_of_task(token) {
            return self.services.waits_since(token & !TASK_TOKEN);
        }
        match &conn.filter(|conn| conn.token() == token)?.state {
            ConnState::LookingUp(pending) => Some(pending.since),
            _ => None,
        }
    }

    // For tasks.

    /// Begins the look-up of a code for the task with that token.
    pub(super) fn find_for_task(&mut self, token: u64, code: Code, now: &Now) {
        let (Some(data), Some(lookup_queues)) = (&mut self.data, &mut self.lookup_queues) else {
            return self.services.deliver_lookup(token, Lookup::Missing);
        };
        match data.find(&code, now.unix_ms) {
            Ok(Lookup::Ruled) => {
                let link = data.shard.ruled(&code).cloned().expect("its owner has just found it");
                self.services.deliver_ruled(token, link);
            }
            Ok(found) => {
                let progress = block_or_continue(
                    &self.services,
                    lookup_queues,
                    found,
                    code,
                    token | TASK_TOKEN,
                    LookupTimes::this_turn(now),
                );
                if let Poll::Ready(found) = progress {
                    self.services.deliver_lookup(token, found.to_owned());
                }
            }
            Err(Remote { owner, hash, .. }) => {
                self.stats.forwarded_out.add(1);
                self.forwarded.insert(token, (code, LookupTimes::this_turn(now)));
                data.mesh.ask(owner, Question { token: token | TASK_TOKEN, hash, code });
            }
        }
    }

    /// Continues the look-up of a task with an answer, like [`Redirects::answer_late`].
    pub(super) fn answer_task(&mut self, token: u64, mut found: BorrowedLookup<'_>, may_look_up: bool, now: &Now) {
        debug_assert!(is_of_task(token), "connections have tokens without the bit");
        debug_assert!(found != Lookup::Ruled, "no thread would be asked, so the task would wait until its timeout");
        let forwarded = self.forwarded.remove(&(token & !TASK_TOKEN));
        if let (Some((code, times)), true, Some(lookup_queues)) = (forwarded, may_look_up, &mut self.lookup_queues) {
            let times = LookupTimes { tick: now.tick, ..times };
            let Poll::Ready(result) = block_or_continue(&self.services, lookup_queues, found, code, token, times)
            else {
                return;
            };
            found = result;
        }
        self.services.deliver_lookup(token & !TASK_TOKEN, found.to_owned());
    }

    /// Delivers a link with redirect rules to the task with that token, which has the request.
    pub(super) fn answer_task_by_rules(&mut self, token: u64, link: &Arc<Link>) {
        self.forwarded.remove(&(token & !TASK_TOKEN));
        self.services.deliver_ruled(token & !TASK_TOKEN, Arc::clone(link));
    }

    /// Asks whether the task with that token may visit a link once more.
    pub(super) fn ask_visit_for_task(&mut self, token: u64, code: Code, now: &Now) {
        let queues = self.lookup_queues.as_ref();
        let may_ask = queues.is_some_and(|queues| queues.ask_allowance(code, token | TASK_TOKEN, now.instant));
        if !may_ask {
            self.services.deliver_lookup(token, Lookup::NotResident);
        }
    }

    /// Remembers for a moment that a look-up has found no link for a code.
    pub(super) fn remember_missing(&mut self, code: &Code, absence: Absence, tick: u32) {
        // If there is a fallback code, the core serves its link meanwhile, without a look-up for each request.
        let is_remembered = absence == Absence::Final || self.hosts.has_fallback(code);
        if is_remembered && let Some(lookup_queues) = &mut self.lookup_queues {
            lookup_queues.remember_missing(code, absence, tick);
        }
    }

    /// Forgets that the code with that hash was missing, because it has changed.
    pub(super) fn forget_missing(&mut self, hash: CodeHash, tick: u32) {
        self.lookup_queues.iter_mut().for_each(|queues| queues.forget_missing(hash, tick));
    }

    /// Forgets that a code was missing, because it has changed.
    pub(super) fn forget_missing_code(&mut self, code: &Code, tick: u32) {
        self.lookup_queues.iter_mut().for_each(|queues| queues.forget_missing_code(code, tick));
    }

    /// Takes the result of a look-up in the store or in Redis, for a client that waits since that instant. Returns
    /// `Pending` if a link with a visit limit was found, and its allowance was asked.
    pub(super) fn continue_from_storage<'a>(
        &mut self,
        (code, token, since): (&Code, u64, Instant),
        found: &'a Lookup<Arc<Link>>,
        is_allowance: bool,
        now: &Now,
    ) -> Poll<BorrowedLookup<'a>> {
        let found_now = found.at(now.unix_ms);
        let Some(lookup_queues) = &mut self.lookup_queues else { return Poll::Ready(found_now) };
        match found {
            Lookup::Live(_) if !is_allowance => {
                let times = LookupTimes { since, ..LookupTimes::this_turn(now) };
                return block_or_continue(&self.services, lookup_queues, found_now, *code, token, times);
            }
            Lookup::Live(_)
            | Lookup::NotYetValid
            | Lookup::Expired
            | Lookup::Missing
            | Lookup::Ruled
            | Lookup::Damaged
            | Lookup::NotResident
            | Lookup::Unconfirmed => {}
        }
        Poll::Ready(found_now)
    }
}
