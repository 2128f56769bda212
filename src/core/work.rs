//! The work of a core with the bytes of its connections, the messages of other cores, and its mail.
//!
//! Nothing here touches the ring. The loop (`serve`) brings completions in, and afterwards settles what each touched
//! connection needs.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use carom_shards::Code;

use super::access;
use super::accounting::{ConnClient, end_or_wait, go_on, may_step, visitor_of};
use super::admission::ConnectionLimiter;
use super::answers::Answers;
use super::connection::{Awaits, Conn, ConnState, Conns, PendingLookup};
use super::data::{Data, Remote};
use super::hyper_bridge::{ConnectionInfo, Ending, HttpService, Stream};
use super::late_answers::LookupQueues;
use super::latencies::CoreLatencies;
use super::listen::Begins;
use super::mesh::{PeerMessage, Question};
use super::tasks::Tasks;
use super::tls::TlsConnections;
use super::vhosts::HostRouter;
use crate::bridge::handle::ServiceHandle;
use crate::bridge::handle::count_response;
use crate::bridge::{BULK_PATH, StoreAnswer, Ticket, ToCore};
use carom_http::connection::Expects;
use carom_http::head::all_of;
use carom_http::{Action, Bounds, Connection, RedirectRequest};
use carom_limits::ConnectionLimits;
use carom_model::clients::forwarded::{Field, Trust};
use carom_model::link::Link;
use carom_model::redirect::{BorrowedLookup, Decision, Lookup, MissLimit, Policies, decide};
use carom_telemetry::stats::CoreStats;

/// Ticks per second: the resolution of every timeout.
pub(super) const TICKS_PER_SECOND: u32 = 4;

/// Messages of the mailbox handled in one turn. A batch of a starting node takes a core some hundred microseconds.
const MAIL_PER_TURN: usize = 64;

/// Bit that marks the token of a question from a task of the core. Tokens without it are tags of connections.
const DESK_TOKEN: u64 = 1 << 63;

/// The time at the beginning of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Milliseconds since 1970 UTC.
    pub(super) unix_ms: u64,
    /// Ticks since the core began.
    pub(super) tick: u32,
}

/// The whole state of a core except its ring.
pub(super) struct Work {
    pub(super) now: Now,
    pub(super) conns: Conns,
    /// Slots to settle in this turn.
    pub(super) dirty: Vec<u32>,
    pub(super) data: Option<Box<Data>>,
    /// Look-ups in the store and in Redis; `None` without a shard.
    looks: Option<LookupQueues>,
    /// Codes that tasks of the core have asked other cores for, by token.
    forwarded: HashMap<u64, Code>,
    /// Response writers: the first for plain connections, the second for TLS (see [`Conn::scheme_index`]).
    pub(super) answers: [Answers; 2],
    pub(super) secure: TlsConnections,
    pub(super) crowd: ConnectionLimiter,
    pub(super) places: HostRouter,
    pub(super) services: Rc<ServiceHandle>,
    pub(super) service: HttpService,
    pub(super) stats: Arc<CoreStats>,
    pub(super) limits: ConnectionLimits,
    /// Proxies that may name the client.
    pub(super) trust: Arc<Trust>,
    pub(super) latencies: CoreLatencies,
    pub(super) draining: bool,
    /// Tasks that answer all other requests.
    pub(super) tasks: Tasks,
    /// Slots whose streams asked for the loop's attention.
    notified: Vec<u32>,
}

impl Work {
    pub(super) fn new(
        now: Now,
        data: Option<Box<Data>>,
        services: Rc<ServiceHandle>,
        service: HttpService,
        stats: Arc<CoreStats>,
        (limits, trust): (ConnectionLimits, Arc<Trust>),
        secure: TlsConnections,
    ) -> Work {
        let looks =
            data.as_ref().map(|data| LookupQueues::new(services.core(), data.shard.hasher(), services.counters()));
        Work {
            now,
            looks,
            forwarded: HashMap::new(),
            conns: Conns::default(),
            dirty: Vec::new(),
            data,
            answers: [None, secure.hsts().and_then(|hsts| hsts.to_str().ok())].map(|hsts| {
                Answers::new(
                    &services.counters().pages,
                    now.unix_ms / 1_000,
                    services.counters().misses_per_second,
                    hsts,
                )
            }),
            secure,
            crowd: ConnectionLimiter::new(&limits),
            places: HostRouter::new(&services.counters().domains),
            services,
            service,
            stats,
            limits,
            trust,
            latencies: CoreLatencies::new(),
            draining: false,
            tasks: Tasks::default(),
            notified: Vec::new(),
        }
    }

    /// Marks a connection as touched, so that the loop settles it in this turn.
    #[inline]
    pub(super) fn touch(dirty: &mut Vec<u32>, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            dirty.push(conn.tag.slot);
        }
    }

    /// Opens a new connection. Returns its slot.
    pub(super) fn open(&mut self, socket: std::os::fd::OwnedFd, begins: Begins) -> u32 {
        let is_slow = self.data.is_none();
        let machine = match (is_slow, begins.proxied) {
            (true, _) => Connection::slow(),
            (false, true) => Connection::proxied(),
            (false, false) => Connection::fast(),
        };
        let ConnectionLimits { head_len: head, body_len: body, requests, queued_len, .. } = self.limits;
        let mut machine = machine.within(Bounds { head, body, requests, stream_path: BULK_PATH });
        if self.draining {
            machine.close_after_next();
        }
        let slot = self.conns.insert(socket, machine, (self.now.tick, queued_len as u32));
        self.stats.accepted.add(1);
        self.stats.connections.set(self.conns.len() as u64);
        if is_slow {
            self.start_stream(slot);
        }
        if begins.secure {
            self.begin_handshake(slot);
        }
        self.meet(slot, begins);
        slot
    }

    pub(super) fn start_stream(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let manner = ConnectionInfo {
            source: conn.source(),
            trust: Arc::clone(&self.trust),
            is_secure: conn.tls.is_some(),
            is_http2: conn.tls.as_ref().is_some_and(|tls| tls.is_http2()),
            hsts: conn.tls.as_ref().and_then(|_| self.secure.hsts().cloned()),
            limits: self.limits,
            tasks: self.tasks.clone(),
        };
        let (stream, task) =
            Stream::start(slot, conn.machine.heads(), manner, Rc::clone(&self.services), Rc::clone(&self.service));
        conn.slow = Some(stream);
        self.tasks.spawn(task);
    }

    /// Takes bytes that a connection received.
    #[inline]
    pub(super) fn receive(&mut self, slot: u32, bytes: &[u8]) {
        match self.conns.get(slot) {
            Some(conn) if conn.tls.is_some() => self.receive_sealed(slot, bytes),
            Some(_) => self.take(slot, bytes),
            None => {}
        }
    }

    /// Takes plain bytes: HTTP, or a PROXY header before it.
    #[inline]
    pub(super) fn take(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        match &mut conn.state {
            ConnState::Handshaking { .. } | ConnState::Open | ConnState::LookingUp(_) => {}
            // The client broke its promise to send nothing more, so the connection must linger.
            ConnState::Draining { said_last } => return *said_last = false,
            ConnState::Rejecting(_) | ConnState::Lingering | ConnState::Closed { .. } => return,
        }
        if conn.unconsumed.is_empty() && may_step(conn) {
            let consumed = self.step(slot, bytes);
            if let Some(conn) = self.conns.get(slot)
                && consumed < bytes.len()
                && conn.state.is_live()
            {
                conn.unconsumed.extend_from_slice(&bytes[consumed..]);
            }
        } else {
            conn.unconsumed.extend_from_slice(bytes);
            self.resume(slot);
        }
        self.note_wait(slot, bytes.len());
    }

    /// Continues with the bytes that a connection has not consumed yet.
    fn resume(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        if !may_step(conn) || conn.unconsumed.is_empty() || conn.holds_handshake() {
            return;
        }
        let mut bytes = std::mem::take(&mut conn.unconsumed);
        let consumed = self.step(slot, &bytes);
        if let Some(conn) = self.conns.get(slot)
            && consumed < bytes.len()
            && conn.state.is_live()
        {
            bytes.drain(..consumed);
            conn.unconsumed = bytes;
        }
    }

    /// Updates the wait of a connection: when the present one began, and that `len` more bytes have come.
    fn note_wait(&mut self, slot: u32, len: usize) {
        let tick = self.now.tick;
        if let Some(conn) = self.conns.get(slot) {
            let (heads, expects) = (conn.machine.heads(), conn.machine.expects(conn.unconsumed.len()));
            if heads != conn.wait.heads || expects != conn.wait.expects {
                (conn.wait.heads, conn.wait.expects, conn.wait.since) = (heads, expects, tick);
            } else if expects == Expects::Stream {
                conn.note_progress(len, self.limits.progress_len(), tick);
            }
        }
    }

    /// Runs the connection's state machine over `input` as far as it gets. Returns the number of bytes consumed.
    #[inline]
    fn step(&mut self, slot: u32, input: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.conns.get(slot) else { return input.len() };
            let step = conn.machine.step(&input[at..]);
            let taken = &input[at..at + step.consumed];
            at += step.consumed;
            match step.action {
                Action::Read => return at,
                Action::Lookup(request) => {
                    if !self.redirect(slot, &request, taken, at == input.len()) {
                        return at;
                    }
                }
                Action::HandOver => {
                    self.stats.handed_over.add(1);
                    self.start_stream(slot);
                }
                Action::Pass => {
                    conn.pass(taken);
                    if !may_step(conn) {
                        return at;
                    }
                }
                Action::PassAsHttp11 { minor } => {
                    let mut head = taken.to_vec();
                    head[minor] = b'1';
                    conn.pass(&head);
                    if !may_step(conn) {
                        return at;
                    }
                }
                Action::From(client) => {
                    conn.come_from(client);
                    let is_secure = conn.tls.is_some();
                    if !self.count_address(slot) || is_secure {
                        return at;
                    }
                }
                Action::HangUp => {
                    self.stats.bad_requests.add(1);
                    self.break_off(slot);
                    return input.len();
                }
                Action::Reject(rejection) => {
                    self.reject(slot, rejection, &input[at..]);
                    return at;
                }
            }
        }
    }

    /// Answers a request for a short code, or lets it wait for an answer. `is_last`: no input is left behind its head.
    /// Returns whether the connection goes on with its input.
    #[inline]
    fn redirect(&mut self, slot: u32, request: &RedirectRequest, head: &[u8], is_last: bool) -> bool {
        let Some(conn) = self.conns.get(slot) else { return false };
        let data = self.data.as_mut().expect("only cores with a shard have fast connections");
        match self.trust.field {
            Field::Off => {}
            field if request.is_split => conn.follow(&self.trust, &all_of(head, field.as_str())),
            Field::Forwarded => conn.follow(&self.trust, request.forwarded.of(head)),
            Field::XForwardedFor => conn.follow(&self.trust, request.x_forwarded_for.of(head)),
        }
        let blocked = self.services.blocked();
        let policies = Policies { blocked: blocked.as_deref(), domains: &self.services.counters().domains };
        let (decision, code) = if (ConnClient { conn, services: &self.services }).is_limited() {
            (Decision::limited(), request.code)
        } else {
            let (domain, mut code) = self.places.resolve(request, head);
            let (mut found, mut unconfirmed) = (Lookup::Missing, false);
            while let Some(domain) = domain {
                let pending = || PendingLookup::new(&self.services, request, head, (domain, code), self.now.instant);
                found = match data.find(&code, self.now.unix_ms) {
                    Ok(found) => found,
                    Err(Remote { owner, hash, wanted }) => {
                        let question = Question { token: conn.token(), hash, code };
                        let awaits = Awaits::Owner { wanted };
                        conn.look_up(&self.services, PendingLookup { awaits, unconfirmed, ..pending() }, head);
                        self.stats.forwarded_out.add(1);
                        data.mesh.ask(owner, question);
                        return false;
                    }
                };
                let looks = self.looks.as_mut().expect("a core with a shard has these");
                let Poll::Ready(then) = go_on(&self.services, looks, found, code, conn.token(), self.now.tick) else {
                    let awaits = Awaits::Storage;
                    conn.look_up(&self.services, PendingLookup { awaits, unconfirmed, ..pending() }, head);
                    return false;
                };
                found = then.as_fallback(unconfirmed);
                match self.places.fallback_of(&code) {
                    Some(other) if found.allows_fallback() => {
                        (code, unconfirmed) = (other, found == Lookup::Unconfirmed);
                    }
                    _ => break,
                }
            }
            self.latencies.note_answered();
            let mut client = ConnClient { conn, services: &self.services };
            (decide(&policies, domain, request.head_only, found, &mut client), code)
        };
        let response = &decision.response;
        count_response(&self.stats, response);
        self.services.record_visit(decision.visit, code, || visitor_of(&self.services, request, head));
        self.answers[conn.scheme_index()].write(
            &mut conn.out,
            request,
            request.query.of(head),
            response,
            self.now.unix_ms,
        );
        if self.services.picks() {
            access::log(&self.services, conn, (request, head), response, self.now.instant);
        }
        !end_or_wait(conn, request, is_last)
    }

    /// Notes that the client has ended its side. Requests it sent before are answered, then we end ours.
    pub(super) fn peer_ended(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        conn.peer_ended = true;
        // Requests that waited while answers were queued are not lost, even if the queue has just been emptied.
        self.resume(slot);
        self.finish_input(slot);
    }

    /// Ends the input once the client has ended its side and all its bytes are consumed: of hyper, or of the
    /// connection.
    fn finish_input(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        // Bytes that wait for their turn in a handshake came before the end.
        let may_end = match conn.state {
            ConnState::Handshaking { is_queued } => !is_queued,
            _ => may_step(conn),
        };
        if !conn.peer_ended || !may_end {
            return;
        }
        match &conn.slow {
            Some(stream) => {
                let in_body = conn.machine.expects(conn.unconsumed.len()).is_body();
                stream.end(if in_body { Ending::Cut } else { Ending::Last });
            }
            None => {
                self.secure.count_out(conn);
                conn.enter(ConnState::Draining { said_last: false });
            }
        }
    }

    /// Breaks a connection off.
    pub(super) fn break_off(&mut self, slot: u32) {
        self.close(slot, false);
    }

    /// Ends a connection without a word, because it is broken or because there are too many.
    pub(super) fn close(&mut self, slot: u32, is_evicted: bool) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::touch(&mut self.dirty, conn);
        if !conn.state.is_closed() {
            self.secure.count_out(conn);
            conn.enter(ConnState::Closed { is_cut: true, is_evicted });
        }
        conn.peer_ended = true;
        if let Some(stream) = conn.slow.take() {
            stream.break_off();
        }
    }

    /// Continues a connection in both directions, after buffers have room again or an answer has come.
    pub(super) fn drained(&mut self, slot: u32) {
        self.ask_again(slot);
        self.pull(slot);
        self.resume(slot);
        self.note_wait(slot, 0);
        self.finish_input(slot);
    }

    /// Takes the bytes that hyper has written for a connection, and checks whether hyper has finished.
    fn pull(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let Some(stream) = conn.slow.clone() else { return };
        let is_congested = conn.is_congested() && conn.in_flight.send;
        if is_congested {
            stream.congest();
        } else {
            stream.take(&mut conn.out);
        }
        Self::touch(&mut self.dirty, conn);
        if stream.is_finished() && conn.state.is_live() && !(conn.is_congested() && conn.in_flight.send) {
            let rejection = conn.take_rejection().filter(|_| !stream.answered_the_cut());
            conn.enter(ConnState::Draining { said_last: false });
            if let Some(rejection) = rejection {
                self.write_rejection(slot, rejection);
            }
        }
    }

    /// Serves the tasks: streams that asked for attention, and look-ups. Returns true if there were any.
    pub(super) fn serve_tasks(&mut self) -> bool {
        self.services.take_calls();
        self.services.take_look_up_times(|time| self.latencies.record(time));
        let services = Rc::clone(&self.services);
        let mut notified = std::mem::take(&mut self.notified);
        services.take_notified(&mut notified);
        let mut worked = !notified.is_empty();
        for slot in notified.drain(..) {
            self.drained(slot);
        }
        self.notified = notified;
        while let Some((token, code)) = services.next_look_up() {
            worked = true;
            let (Some(data), Some(looks)) = (&mut self.data, &mut self.looks) else {
                services.bring_looked(token, Lookup::Missing);
                continue;
            };
            match data.find(&code, self.now.unix_ms) {
                Ok(found) => {
                    if let Poll::Ready(found) =
                        go_on(&self.services, looks, found, code, token | DESK_TOKEN, self.now.tick)
                    {
                        services.bring_looked(token, found.to_owned());
                    }
                }
                Err(Remote { owner, hash, .. }) => {
                    self.stats.forwarded_out.add(1);
                    self.forwarded.insert(token, code);
                    data.mesh.ask(owner, Question { token: token | DESK_TOKEN, hash, code });
                }
            }
        }
        worked
    }

    /// Answers other cores' questions and takes their answers. Returns true if there were any.
    pub(super) fn serve_mesh(&mut self) -> bool {
        let Some(mut data) = self.data.take() else { return false };
        let mut resumed = std::mem::take(&mut self.notified);
        let (answered, worked) = data.serve(self.now.unix_ms, |message| match message {
            PeerMessage::Answer { token, found } => self.take_answer(token, &found, true, &mut resumed),
            PeerMessage::Recall { owner, number, .. } => {
                self.services.counters().post.to(owner).post(ToCore::Dropped { number });
                None
            }
        });
        self.stats.forwarded_in.add(answered as u64);
        self.data = Some(data);
        for slot in resumed.drain(..) {
            self.drained(slot);
        }
        self.notified = resumed;
        worked
    }

    /// Delivers an answer from another core, the store or Redis to the connection or task that waits for it. Returns
    /// the code if this core should keep a copy of the link.
    pub(super) fn take_answer(
        &mut self,
        token: u64,
        found: &BorrowedLookup<'_>,
        may_look_up: bool,
        resumed: &mut Vec<u32>,
    ) -> Option<Code> {
        let mut found = *found;
        if token & DESK_TOKEN != 0 {
            let code = self.forwarded.remove(&(token & !DESK_TOKEN));
            if let (Some(code), true, Some(looks)) = (code, may_look_up, &mut self.looks) {
                let Poll::Ready(then) = go_on(&self.services, looks, found, code, token, self.now.tick) else {
                    return None;
                };
                found = then;
            }
            self.services.bring_looked(token & !DESK_TOKEN, found.to_owned());
            return None;
        }
        let conn = self.conns.get(token as u32).filter(|conn| conn.token() == token)?;
        let mut pending = conn.take_look_up()?;
        if may_look_up && let Some(looks) = &mut self.looks {
            let Poll::Ready(then) = go_on(&self.services, looks, found, pending.code, token, self.now.tick) else {
                conn.enter(ConnState::LookingUp(PendingLookup { awaits: Awaits::Storage, ..pending }));
                return None;
            };
            found = then;
        }
        found = found.as_fallback(pending.unconfirmed);
        if let (true, Some(code)) = (found.allows_fallback(), self.places.fallback_of(&pending.code)) {
            pending.unconfirmed = found == Lookup::Unconfirmed;
            (pending.code, pending.awaits) = (code, Awaits::Turn);
            conn.enter(ConnState::LookingUp(pending));
            resumed.push(conn.tag.slot);
            return None;
        }
        let blocked = self.services.blocked();
        let policies = Policies { blocked: blocked.as_deref(), domains: &self.services.counters().domains };
        let PendingLookup { request, domain, code, since, awaits, visitor, query, noted, .. } = pending;
        let Decision { response, visit } = decide(
            &policies,
            Some(domain),
            request.head_only,
            found,
            &mut ConnClient { conn, services: &self.services },
        );
        count_response(&self.stats, &response);
        self.services.record_visit(visit, code, || visitor);
        self.answers[conn.scheme_index()].write(&mut conn.out, &request, &query, &response, self.now.unix_ms);
        let took = self.now.instant - since;
        self.latencies.record(took);
        if let Some(noted) = noted {
            self.services.log_noted(noted, response.status(), took);
        }
        Self::touch(&mut self.dirty, conn);
        if request.close {
            let said_last = request.asked_to_close && conn.unconsumed.is_empty() && conn.tls.is_none();
            conn.enter(ConnState::Draining { said_last });
        } else {
            resumed.push(conn.tag.slot);
        }
        (awaits == Awaits::Owner { wanted: true }).then_some(code)
    }

    /// Handles one message of the mailbox, except those for listeners, which the loop handles.
    pub(super) fn take_mail(&mut self, message: ToCore) {
        match message {
            ToCore::Apply { change, commit, notify } => {
                let done = match &mut self.data {
                    Some(data) => data.change(&change, commit, notify),
                    None => notify,
                };
                self.acknowledge(done);
            }
            ToCore::Dropped { number } => {
                let done = self.data.as_mut().and_then(|data| data.dropped(number));
                self.acknowledge(done);
            }
            ToCore::Answer { token, answer } => self.services.bring_stored(token, answer),
            ToCore::Page { token, page } => self.services.bring_page(token, page),
            ToCore::Made { token, made } => self.services.bring_made(token, made),
            ToCore::LoadBegin { links } => {
                if let Some(data) = &mut self.data {
                    data.shard.begin_load(links);
                }
            }
            ToCore::Load(batch) => {
                if let Some(data) = &mut self.data {
                    data.shard.load(&batch);
                }
            }
            ToCore::LoadPage(loaded) => {
                if let Some(data) = &mut self.data {
                    data.shard.load_page(*loaded);
                }
            }
            ToCore::LoadShared(loaded) => {
                if let Some(data) = &mut self.data {
                    data.shard.load_own(&loaded);
                }
            }
            ToCore::StoredCodes(codes) => {
                if let Some(data) = &mut self.data {
                    data.shard.take_codes(codes);
                }
            }
            ToCore::LookedUp { code, token, found, is_allowance } => {
                self.take_look_up(&code, token, &found, is_allowance);
            }
            ToCore::Fetched { code, link, as_of } => {
                if let Some(data) = &mut self.data {
                    data.shard.keep(&code, link.as_deref(), as_of);
                }
            }
            ToCore::LoadDamaged(ranges) => {
                if let Some(data) = &mut self.data {
                    data.shard.doubt(ranges);
                }
            }
            ToCore::Hosts(hosts) => self.services.allow(hosts),
            ToCore::Blocked(hosts) => self.services.block(hosts),
            ToCore::Identity(identity) => self.secure.take(identity),
            ToCore::Keys(keys) => self.services.take_keys(keys),
            ToCore::CodesReady => self.services.bring_codes(),
            ToCore::Lend(ticket) => {
                let lent = ToCore::Lent { token: ticket.token, codes: self.services.lend_codes() };
                self.services.counters().post.to(ticket.core).post(lent);
            }
            ToCore::Lent { token, codes } => self.services.bring_lent(token, codes),
            ToCore::Report(ticket) => {
                let report = ToCore::Reported {
                    token: ticket.token,
                    core: self.services.core(),
                    latency: Box::new(self.latencies.summary()),
                };
                self.services.counters().post.to(ticket.core).post(report);
            }
            ToCore::Reported { token, latency, .. } => self.services.bring_latency(token, latency),
            // The loop handles these, because they concern listeners.
            ToCore::LoadDone | ToCore::Open | ToCore::Drain { .. } => {}
        }
    }

    /// Delivers the result of a look-up in the store or in Redis to the connection or task that waits for it.
    fn take_look_up(&mut self, code: &Code, token: u64, found: &Lookup<Arc<Link>>, is_allowance: bool) {
        let mut found_now = found.at(self.now.unix_ms);
        match (found, &mut self.looks) {
            (Lookup::Missing, Some(looks)) => looks.not_found(code, self.now.tick),
            (Lookup::Live(_), Some(looks)) if !is_allowance => {
                match go_on(&self.services, looks, found_now, *code, token, self.now.tick) {
                    Poll::Ready(then) => found_now = then,
                    Poll::Pending => return,
                }
            }
            _ => {}
        }
        let redirects = self.stats.redirects.get();
        let mut resumed = std::mem::take(&mut self.notified);
        self.take_answer(token, &found_now, false, &mut resumed);
        if !is_allowance {
            // Adds nothing if the client has left.
            self.stats.fetched.add(self.stats.redirects.get() - redirects);
        }
        for slot in resumed.drain(..) {
            self.drained(slot);
        }
        self.notified = resumed;
    }

    /// Confirms to the requester of a change that the change is durable and visible on every core.
    fn acknowledge(&mut self, done: Option<(Ticket, StoreAnswer)>) {
        let Some((ticket, answer)) = done else { return };
        if ticket.core == self.services.core() {
            self.services.bring_stored(ticket.token, answer);
        } else {
            self.services.counters().post.answer(ticket, answer);
        }
    }

    /// Ends the load: all links have been read.
    pub(super) fn end_load(&mut self) {
        if let Some(data) = &mut self.data {
            data.shard.end_load();
        }
    }

    /// Runs the tasks for a bounded time.
    pub(super) fn run_tasks(&mut self) {
        let micros = self.tasks.run().as_micros() as u64;
        if micros > self.stats.task_micros_max.get() {
            self.stats.task_micros_max.set(micros);
        }
    }

    /// Returns how many messages to take in one turn.
    pub(super) fn mail_per_turn(&self) -> usize {
        MAIL_PER_TURN
    }
}
