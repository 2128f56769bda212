//! The work of a core with the bytes of its connections, and with the messages of other cores.
//!
//! Nothing here touches the ring. The loop (`run_loop`) brings events in, and afterwards settles what each touched
//! connection needs from the driver.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use carom_shards::Code;

use super::admission::Admission;
use super::connection::{CloseKind, Conn, ConnState, Conns};
use super::driver::Transport;
use super::hyper_bridge::stream::{InputEnd, Stream};
use super::hyper_bridge::{ConnectionInfo, HttpService};
use super::link_sources::LinkSources;
use super::listen::Layers;
use super::mesh::ReceivedMessage;
use super::now::Now;
use super::redirects::{LateOutcome, Redirects, is_of_task};
use super::request_rules::may_step;
use super::tasks::Tasks;
use super::timeouts::{Overdue, Timeouts};
use super::tls_connections::TlsConnections;
use crate::bridge::handle::ServiceHandle;
use crate::bridge::{STREAM_PATHS, ToCore};
use carom_http::connection::Expects;
use carom_http::{Action, Bounds, Connection, Rejection};
use carom_limits::ConnectionLimits;
use carom_model::clients::forwarded::Trust;
use carom_model::link::Link;
use carom_model::redirect::{BorrowedLookup, Lookup};
use carom_telemetry::stats::CoreStats;

/// The whole state of a core except its ring.
pub(super) struct CoreState {
    pub(super) now: Now,
    pub(super) conns: Conns,
    /// Slots to settle in this turn.
    pub(super) dirty: Vec<u32>,
    pub(super) redirects: Redirects,
    pub(super) tls: TlsConnections,
    pub(super) admission: Admission,
    timeouts: Timeouts,
    pub(super) services: Rc<ServiceHandle>,
    pub(super) service: HttpService,
    pub(super) stats: Arc<CoreStats>,
    pub(super) limits: ConnectionLimits,
    /// Proxies that may name the client.
    pub(super) trust: Arc<Trust>,
    pub(super) draining: bool,
    /// Tasks that answer all other requests.
    pub(super) tasks: Tasks,
    /// An empty list of slots, kept for its capacity: of streams that asked for attention, or of resumed connections.
    notified: Vec<u32>,
}

impl CoreState {
    pub(super) fn new(
        now: Now,
        data: Option<Box<LinkSources>>,
        services: Rc<ServiceHandle>,
        service: HttpService,
        stats: Arc<CoreStats>,
        (limits, trust): (ConnectionLimits, Arc<Trust>),
        tls: TlsConnections,
    ) -> CoreState {
        let hsts = tls.hsts().and_then(|hsts| hsts.to_str().ok());
        let redirects = Redirects::new(data, &services, hsts, &trust, now.unix_ms);
        CoreState {
            now,
            conns: Conns::default(),
            dirty: Vec::new(),
            redirects,
            tls,
            admission: Admission::new(limits, Arc::clone(&trust)),
            timeouts: Timeouts::new(limits),
            services,
            service,
            stats,
            limits,
            trust,
            draining: false,
            tasks: Tasks::default(),
            notified: Vec::new(),
        }
    }

    /// Marks a connection as dirty, so that the loop settles it in this turn.
    #[inline]
    pub(super) fn mark_dirty(dirty: &mut Vec<u32>, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            dirty.push(conn.tag.slot);
        }
    }

    /// Opens a new connection. Returns its slot. The caller must mark the connection as dirty: it receives only once it is
    /// settled.
    pub(super) fn open(&mut self, transport: Transport, layers: Layers) -> u32 {
        let is_for_hyper = !self.redirects.is_served();
        let machine = match (is_for_hyper, layers.proxied) {
            (true, _) => Connection::for_hyper(),
            (false, true) => Connection::proxied(),
            (false, false) => Connection::for_redirects(),
        };
        let ConnectionLimits { head_len: head, body_len: body, requests, queued_len, .. } = self.limits;
        let nostat = self.services.context().nostat;
        let mut machine = machine.within(Bounds { head, body, requests, stream_paths: STREAM_PATHS, nostat });
        if self.draining {
            machine.close_after_next();
        }
        let slot = self.conns.insert(transport, machine, self.now.tick, queued_len as u32);
        self.stats.accepted.add(1);
        self.stats.connections.set(self.conns.len() as u64);
        if is_for_hyper {
            self.start_stream(slot);
        }
        if layers.tls {
            self.begin_handshake(slot);
        }
        self.admission.register(slot, &mut self.conns);
        if !layers.proxied {
            self.count_address(slot);
        }
        slot
    }

    /// Returns true if one more connection may open. Evicts an idle connection for it if needed.
    pub(super) fn has_room(&mut self) -> bool {
        if let Some(idle_for) = self.admission.evicts_after(self.conns.len()) {
            self.evict_connection(idle_for);
        }
        let has_room = self.admission.admits(self.conns.len());
        if !has_room {
            self.stats.shed.add(1);
        }
        has_room
    }

    /// Closes the connection that has been idle for longest, if that is at least `idle_for` ticks. Returns true if
    /// there was one.
    pub(super) fn evict_connection(&mut self, idle_for: u32) -> bool {
        let Some(slot) = self.admission.take_idle(&mut self.conns, self.now.tick, idle_for) else { return false };
        self.stats.connections_evicted.add(1);
        self.close(slot, CloseKind::Evicted);
        true
    }

    /// Counts a connection for its address if that is known, and breaks it off if there are too many. Returns true if it
    /// may stay.
    fn count_address(&mut self, slot: u32) -> bool {
        let Some(conn) = self.conns.get(slot) else { return true };
        let may_stay = self.admission.count_address(conn, self.services.miss_limiter());
        if !may_stay {
            self.stats.shed.add(1);
            self.break_off(slot);
        }
        may_stay
    }

    /// Applies the timeouts to a quarter of the connections.
    pub(super) fn sweep(&mut self) {
        for slot in Timeouts::due_slots(self.now.tick, self.conns.slots()) {
            let Some(conn) = self.conns.get(slot) else { continue };
            match self.timeouts.check(conn, &self.now) {
                Overdue::Nothing => {}
                Overdue::BreakOff => self.break_off(slot),
                Overdue::LookUp => self.time_out_look_up(slot),
                Overdue::Request => self.reject(slot, Rejection::Timeout, &[]),
                Overdue::Idle => self.close_idle(slot),
                Overdue::Http2 => self.end_http2(slot),
            }
        }
    }

    /// Answers 503 to a look-up that timed out, and ends the connection so that a later answer reaches nothing.
    fn time_out_look_up(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        if self.redirects.time_out_look_up(conn, &self.now) {
            Self::mark_dirty(&mut self.dirty, conn);
        }
    }

    /// Ends an HTTP/2 connection that has had all its answers, once their remaining bytes are sent.
    fn end_http2(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        conn.enter(ConnState::Flushing { client_is_done: false });
        if let Some(stream) = conn.hyper.take() {
            stream.take(&mut conn.out);
            stream.break_off();
        }
    }

    pub(super) fn start_stream(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let info = ConnectionInfo {
            source: conn.source(),
            trust: Arc::clone(&self.trust),
            is_secure: conn.tls.is_some(),
            is_http2: conn.tls.as_ref().is_some_and(|tls| tls.is_http2()),
            hsts: conn.tls.as_ref().and_then(|_| self.tls.hsts().cloned()),
            limits: self.limits,
            tasks: self.tasks.clone(),
        };
        let (stream, task) =
            Stream::start(slot, conn.machine.heads(), info, Rc::clone(&self.services), Rc::clone(&self.service));
        conn.hyper = Some(stream);
        self.tasks.spawn(task);
    }

    /// Takes bytes that a connection received.
    #[inline]
    pub(super) fn receive(&mut self, slot: u32, bytes: &[u8]) {
        match self.conns.get(slot) {
            Some(conn) if conn.tls.is_some() => self.receive_tls(slot, bytes),
            Some(_) => self.receive_plain(slot, bytes),
            None => {}
        }
    }

    /// Takes plain bytes: HTTP, or a PROXY header before it.
    #[inline]
    pub(super) fn receive_plain(&mut self, slot: u32, bytes: &[u8]) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        match &mut conn.state {
            ConnState::Handshaking { .. } | ConnState::Open | ConnState::LookingUp(_) => {}
            // The client sends more after it has asked to close, so the connection must linger.
            ConnState::Flushing { client_is_done } => return *client_is_done = false,
            ConnState::Rejecting(_) | ConnState::Lingering | ConnState::Closed(_) => return,
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
            self.resume_input(slot);
        }
        self.note_wait(slot, bytes.len());
    }

    /// Continues with the bytes that a connection has not consumed yet.
    fn resume_input(&mut self, slot: u32) {
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
            } else if expects == Expects::UnboundedBody {
                conn.note_progress(len, self.limits.progress_len(), tick);
            }
        }
    }

    /// Runs the connection's HTTP machine over `input` until it needs more input or must wait. Returns the number of
    /// bytes consumed.
    #[inline]
    fn step(&mut self, slot: u32, input: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.conns.get(slot) else { return input.len() };
            let step = conn.machine.step(&input[at..]);
            debug_assert!(step.consumed <= input.len() - at, "the machine consumes what it was given");
            let taken = &input[at..at + step.consumed];
            at += step.consumed;
            match step.action {
                Action::Read => return at,
                Action::Lookup(request) => {
                    if !self.redirects.redirect(conn, &self.now, &request, (taken, at == input.len())) {
                        return at;
                    }
                }
                Action::HandOver => {
                    self.stats.handed_over.add(1);
                    self.start_stream(slot);
                }
                Action::Pass => {
                    conn.pass_to_hyper(taken);
                    if !may_step(conn) {
                        return at;
                    }
                }
                Action::PassAsHttp11 { minor } => {
                    let mut head = taken.to_vec();
                    head[minor] = b'1';
                    conn.pass_to_hyper(&head);
                    if !may_step(conn) {
                        return at;
                    }
                }
                Action::From(client) => {
                    conn.set_proxied_client(client);
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

    /// Notes that the client has ended its side. The core answers the requests that came before, and then ends
    /// its side.
    pub(super) fn peer_ended(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        conn.peer_ended = true;
        // Requests may still wait because too many answers were queued.
        self.resume_input(slot);
        self.finish_input(slot);
    }

    /// Ends the input of hyper, or of a connection without hyper, once the client has ended its side and all its bytes
    /// are consumed.
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
        match &conn.hyper {
            Some(stream) => {
                let in_body = conn.machine.expects(conn.unconsumed.len()).is_body();
                stream.end(if in_body { InputEnd::Cut } else { InputEnd::Last });
            }
            None => {
                self.tls.uncount_handshake(conn);
                conn.enter(ConnState::Flushing { client_is_done: false });
            }
        }
    }

    /// Closes a connection without an answer, with a reset if answers are unread.
    pub(super) fn break_off(&mut self, slot: u32) {
        self.close(slot, CloseKind::BrokenOff);
    }

    /// Closes a connection as soon as nothing is in flight, without an answer.
    pub(super) fn close(&mut self, slot: u32, kind: CloseKind) {
        let Some(conn) = self.conns.get(slot) else { return };
        Self::mark_dirty(&mut self.dirty, conn);
        if !conn.state.is_closed() {
            self.tls.uncount_handshake(conn);
            conn.enter(ConnState::Closed(kind));
        }
        conn.peer_ended = true;
        if let Some(stream) = conn.hyper.take() {
            stream.break_off();
        }
    }

    /// Continues a connection in both directions, after buffers have room again or an answer has come.
    pub(super) fn proceed(&mut self, slot: u32) {
        self.look_up_fallback(slot);
        self.pull_from_hyper(slot);
        self.resume_input(slot);
        self.note_wait(slot, 0);
        self.finish_input(slot);
    }

    /// Looks up the fallback codes for a missing code that a connection has asked for.
    fn look_up_fallback(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        // The caller resumes the connection.
        if let Some(LateOutcome::Answered(_)) = self.redirects.look_up_fallback(conn, &self.now) {
            Self::mark_dirty(&mut self.dirty, conn);
        }
    }

    /// Takes the bytes that hyper has written for a connection, and checks whether hyper has finished.
    fn pull_from_hyper(&mut self, slot: u32) {
        let Some(conn) = self.conns.get(slot) else { return };
        let Some(stream) = conn.hyper.clone() else { return };
        let is_congested = conn.is_congested() && conn.transport.is_sending();
        if is_congested {
            stream.congest();
        } else {
            stream.take(&mut conn.out);
        }
        Self::mark_dirty(&mut self.dirty, conn);
        if stream.is_finished() && conn.state.is_live() && !(conn.is_congested() && conn.transport.is_sending()) {
            let rejection = conn.take_rejection().filter(|_| !stream.answered_before_abort());
            conn.enter(ConnState::Flushing { client_is_done: false });
            if let Some(rejection) = rejection {
                self.write_rejection(slot, rejection);
            }
        }
    }

    /// Serves the tasks: streams that asked for attention, and look-ups. Returns true if there were any.
    pub(super) fn serve_tasks(&mut self) -> bool {
        self.services.clear_loop_work();
        self.services.take_look_up_times(|time, is_absent| {
            if is_absent {
                self.redirects.stats.absent_waits.record(time);
            } else {
                self.redirects.latencies.record(time);
            }
        });
        let services = Rc::clone(&self.services);
        let mut notified = std::mem::take(&mut self.notified);
        services.take_notified(&mut notified);
        let mut worked = !notified.is_empty();
        for slot in notified.drain(..) {
            self.proceed(slot);
        }
        self.notified = notified;
        while let Some((token, code)) = services.next_look_up() {
            worked = true;
            self.redirects.find_for_task(token, code, &self.now);
        }
        while let Some((token, code)) = services.next_visit() {
            worked = true;
            self.redirects.ask_visit_for_task(token, code, &self.now);
        }
        worked
    }

    /// Answers other cores' questions and takes their answers. Returns true if there were any.
    pub(super) fn serve_mesh(&mut self) -> bool {
        let Some(mut data) = self.redirects.data.take() else { return false };
        let mut resumed = std::mem::take(&mut self.notified);
        let (answered, worked) = data.serve(self.now.unix_ms, |message| match message {
            ReceivedMessage::Answer { token, found } => self.deliver_answer(token, &found, true, &mut resumed),
            ReceivedMessage::Ruled { token, link } => {
                self.deliver_ruled_link(token, &link, true, &mut resumed);
                None
            }
            ReceivedMessage::Recall { owner, number, hash } => {
                self.redirects.forget_missing(hash, self.now.tick);
                self.services.context().mailboxes.to(owner).post(ToCore::CopyDropped { number });
                None
            }
        });
        self.stats.forwarded_in.add(answered as u64);
        self.redirects.data = Some(data);
        for slot in resumed.drain(..) {
            self.proceed(slot);
        }
        self.notified = resumed;
        worked
    }

    /// Delivers an answer from another core, the store or Redis to the connection or task that waits for it. Returns
    /// the code if this core should keep a copy of the link.
    pub(super) fn deliver_answer(
        &mut self,
        token: u64,
        found: &BorrowedLookup<'_>,
        may_look_up: bool,
        resumed: &mut Vec<u32>,
    ) -> Option<Code> {
        if is_of_task(token) {
            self.redirects.answer_task(token, *found, may_look_up, &self.now);
            return None;
        }
        let conn = self.conns.get(token as u32).filter(|conn| conn.token() == token)?;
        let late = self.redirects.answer_late(conn, *found, may_look_up, &self.now)?;
        Self::resume_late(&mut self.dirty, conn, late, resumed)
    }

    /// Delivers a link with redirect rules to the connection or task that waits for it.
    fn deliver_ruled_link(&mut self, token: u64, link: &Arc<Link>, may_look_up: bool, resumed: &mut Vec<u32>) {
        if is_of_task(token) {
            return self.redirects.answer_task_by_rules(token, link);
        }
        if let Some(conn) = self.conns.get(token as u32).filter(|conn| conn.token() == token)
            && let Some(late) = self.redirects.answer_by_rules(conn, link, may_look_up, &self.now)
        {
            Self::resume_late(&mut self.dirty, conn, late, resumed);
        }
    }

    /// Continues a connection after a late answer. Returns the code if this core should keep a copy of the link.
    #[inline]
    fn resume_late(dirty: &mut Vec<u32>, conn: &mut Conn, late: LateOutcome, resumed: &mut Vec<u32>) -> Option<Code> {
        match late {
            LateOutcome::Waits => None,
            LateOutcome::Fallback => {
                resumed.push(conn.tag.slot);
                None
            }
            LateOutcome::Answered(kept) => {
                Self::mark_dirty(dirty, conn);
                if conn.state.is_live() {
                    resumed.push(conn.tag.slot);
                }
                kept
            }
        }
    }

    /// Delivers the result of a look-up in the store or in Redis to the connection or task that waits for it.
    pub(super) fn deliver_look_up(&mut self, code: &Code, token: u64, found: &Lookup<Arc<Link>>, is_allowance: bool) {
        if let Lookup::Live(link) = found
            && link.has_rules()
        {
            let mut resumed = std::mem::take(&mut self.notified);
            self.deliver_ruled_link(token, link, !is_allowance, &mut resumed);
            resumed.drain(..).for_each(|slot| self.proceed(slot));
            self.notified = resumed;
            return;
        }
        // A client that has left, or got its answer (timeout), must not use up a visit.
        let conn = self.conns.get(token as u32);
        let Some(since) = self.redirects.waits_since(token, conn.as_deref()) else { return };
        let look_up = (code, token, since);
        let Poll::Ready(found) = self.redirects.continue_from_storage(look_up, found, is_allowance, &self.now) else {
            return;
        };
        let redirects = self.stats.redirects.get();
        let mut resumed = std::mem::take(&mut self.notified);
        self.deliver_answer(token, &found, false, &mut resumed);
        if !is_allowance {
            // Adds nothing if the client has left.
            self.stats.fetched.add(self.stats.redirects.get() - redirects);
        }
        for slot in resumed.drain(..) {
            self.proceed(slot);
        }
        self.notified = resumed;
    }

    /// Runs the tasks for a bounded time.
    pub(super) fn run_tasks(&mut self) {
        let micros = self.tasks.run().as_micros() as u64;
        if micros > self.stats.task_micros_max.get() {
            self.stats.task_micros_max.set(micros);
        }
    }
}
