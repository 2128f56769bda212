//! The connections of one thread: plans requests, checks responses and records results. It uses neither the ring nor
//! the clock: the worker passes bytes and instants in, and afterwards applies the changes to each touched connection.
//! `streams` has what differs with HTTP/2.

mod streams;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use crate::console::live_counters::LiveCounters;
use crate::plan::{Loop, Plan, Target};
use crate::protocol::request::{self, Requests};
use crate::protocol::response::{self, ParsedResponse};
use crate::results::check::{self, Fault};
use crate::results::record::{Interval, RunRecord};
use crate::run::client::{ClientState, Sent, Stage};
use crate::workload::links::LinkTable;
use crate::workload::popularity::Popularity;
use crate::workload::random;
use crate::workload::schedule::Schedule;
use crate::workload::traffic::{Call, RequestKind, TrafficGenerator};

/// Delay from which a request counts as late, in nanoseconds.
pub(crate) const LATE_NS: u64 = 1_000_000;

/// Delay before a retry of a connection that failed to open or broke before its first response, in nanoseconds.
const RETRY_NS: u64 = 100_000_000;

/// A span in which the thread should have run but did not.
#[derive(Clone, Copy, Default, Debug)]
struct Stall {
    from_ns: u64,
    to_ns: u64,
}

/// The connections of one thread, with their requests and results.
pub(crate) struct Crew {
    /// Connections by slot.
    pub(crate) clients: Vec<ClientState>,
    /// Slots whose connections the worker must settle.
    pub(crate) dirty: Vec<u32>,
    /// Counts and latencies of the run.
    pub(crate) record: RunRecord,
    /// Counts and latencies of the current second.
    pub(crate) interval: Interval,
    /// Figures for the live view; `None` without one.
    counters: Option<Arc<LiveCounters>>,
    /// Most recent reason why a connection failed to open.
    pub(crate) last_failure: Option<String>,
    plan: Arc<Plan>,
    links: Arc<LinkTable>,
    requests: Vec<Requests>,
    traffic: TrafficGenerator,
    /// Schedule of the requests; `None` in a closed loop.
    schedule: Option<Schedule>,
    /// Index of this thread's first connection among those of all threads.
    first: usize,
    /// Slots with room for a request, in the order in which they got it.
    free: VecDeque<u32>,
    stall: Stall,
    /// Start of the measurement: requests planned from here on count.
    begin_ns: u64,
    /// End of the plan: no request is planned from here on.
    end_ns: u64,
    /// Measured requests that may still be sent, if their number is limited.
    left: Option<u64>,
    in_flight: usize,
    /// Instant of the last response.
    last_response_ns: u64,
}

impl Crew {
    /// Returns the connections of thread `thread`, which publishes its figures in `counters`.
    pub(crate) fn new(
        plan: &Arc<Plan>,
        links: &Arc<LinkTable>,
        thread: usize,
        counters: Option<Arc<LiveCounters>>,
    ) -> Crew {
        let threads = plan.cpus.len();
        let share_of = |thread: usize, whole: usize| whole / threads + usize::from(thread < whole % threads);
        let share = |whole: usize| share_of(thread, whole);
        let mut layout = random::stream(plan.seed, 0);
        let popularity = Popularity::new(links.len().max(1) as u64, plan.zipf, &mut layout);
        let stream = |purpose: u64| random::stream(plan.seed, (thread as u64 + 1) << 1 | purpose);
        let begin_ns = plan.warmup.as_nanos() as u64;
        let key = plan.api_key.as_ref().map(|key| key.0.as_str());
        let requests_of =
            |target: &Target| Requests::new(&target.host, &target.path, plan.headers, &plan.extra, key, plan.seed);
        Crew {
            clients: (0..share(plan.connections)).map(|_| ClientState::new()).collect(),
            dirty: Vec::new(),
            record: RunRecord::default(),
            interval: Interval::new(0),
            counters,
            last_failure: None,
            requests: plan.targets.iter().map(requests_of).collect(),
            traffic: TrafficGenerator::new(plan.mix, popularity, thread, stream(0)),
            schedule: match plan.pace {
                Loop::Open { arrival, rate } => Some(Schedule::new(arrival, rate, thread, threads, stream(1))),
                Loop::Closed => None,
            },
            first: (0..thread).map(|before| share_of(before, plan.connections)).sum(),
            free: VecDeque::new(),
            stall: Stall::default(),
            begin_ns,
            end_ns: begin_ns.saturating_add(plan.duration.as_nanos() as u64),
            left: plan.requests.map(|count| share(count as usize) as u64),
            in_flight: 0,
            last_response_ns: 0,
            plan: Arc::clone(plan),
            links: Arc::clone(links),
        }
    }

    /// Returns the index of a connection's target.
    pub(crate) fn target(&self, slot: u32) -> usize {
        (self.first + slot as usize) % self.plan.targets.len()
    }

    /// Returns the client address of a connection; `None` if the kernel chooses it.
    pub(crate) fn client_address(&self, slot: u32) -> Option<IpAddr> {
        self.plan.client_address(self.first + slot as usize)
    }

    /// Returns the start of the measurement.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// Returns the instant at which the plan ends.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Ends the plan now.
    pub(crate) fn end_early(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    /// True if the plan has ended and no request is in flight.
    pub(crate) fn is_done(&self, now_ns: u64) -> bool {
        self.in_flight == 0 && (now_ns >= self.end_ns || self.left == Some(0))
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.clients.iter().filter(|client| client.stage == Stage::Open).count()
    }

    /// Marks a connection as one to settle.
    pub(crate) fn touch(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        if !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Starts the run: instants count from now on.
    pub(crate) fn restart_clocks(&mut self) {
        self.clients.iter_mut().for_each(|client| (client.freed_ns, client.opening_ns) = (0, 0));
        self.record.faults = Default::default();
        self.interval = Interval::new(0);
    }

    // Life of a connection.

    /// Records that the socket of a connection exists and connects.
    ///
    /// # Errors
    /// The reason why TLS cannot start.
    pub(crate) fn opening(&mut self, slot: u32, now_ns: u64) -> Result<(), String> {
        let tls = &self.plan.targets[self.target(slot)].tls;
        let session = tls.as_ref().map(crate::protocol::tls::TargetTls::connect).transpose()?;
        let client = &mut self.clients[slot as usize];
        (client.tls, client.http2) = (session, None);
        (client.stage, client.requests, client.answered, client.is_last_sent) = (Stage::Opening, 0, 0, false);
        client.opening_ns = now_ns;
        client.out.clear();
        client.inbox.clear();
        Ok(())
    }

    /// Records that the socket is connected.
    pub(crate) fn connected(&mut self, slot: u32, now_ns: u64) {
        self.touch(slot);
        let client = &mut self.clients[slot as usize];
        // The connection may have timed out meanwhile.
        if client.stage != Stage::Opening {
            return;
        }
        match &mut client.tls {
            Some(session) => session.take(&mut client.out),
            None => self.open(slot, now_ns),
        }
    }

    fn open(&mut self, slot: u32, now_ns: u64) {
        if self.plan.http2
            && let Err(reason) = self.begin_http2(slot)
        {
            return self.connect_failed(slot, &reason, now_ns);
        }
        self.clients[slot as usize].stage = Stage::Open;
        self.set_free(slot, now_ns);
    }

    /// Records that a connection failed to open.
    pub(crate) fn connect_failed(&mut self, slot: u32, reason: &str, now_ns: u64) {
        if self.clients[slot as usize].stage == Stage::Ending {
            return self.touch(slot);
        }
        self.last_failure = Some(format!("{}: {reason}", self.plan.targets[self.target(slot)].name));
        self.count_fault(Fault::Connect, now_ns >= self.begin_ns);
        self.finish(slot);
    }

    /// Ends a connection: the worker closes its socket and then calls [`Crew::closed`].
    fn finish(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        client.stage = Stage::Ending;
        self.touch(slot);
    }

    /// Records that the socket is closed. A new one replaces it, at once unless the connection failed.
    pub(crate) fn closed(&mut self, slot: u32, now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        let wait_ns = if client.answered > 0 { 0 } else { RETRY_NS };
        client.stage = Stage::Due { at_ns: now_ns + wait_ns };
        self.touch(slot);
    }

    fn set_free(&mut self, slot: u32, now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        client.freed_ns = now_ns;
        if !client.is_free && !client.is_last_sent {
            client.is_free = true;
            self.free.push_back(slot);
        }
    }

    // Sending.

    /// Records that the thread ran again at `now_ns`, although it should have run at `due_ns`.
    pub(crate) fn note_stall(&mut self, due_ns: u64, now_ns: u64) {
        if now_ns.saturating_sub(due_ns) > LATE_NS {
            self.stall = Stall { from_ns: due_ns, to_ns: now_ns };
        }
    }

    /// Sends the requests that are due. Returns the instant of the next call if nothing else happens.
    pub(crate) fn dispatch(&mut self, now_ns: u64) -> Option<u64> {
        while let Some(&slot) = self.free.front() {
            if self.left == Some(0) {
                return None;
            }
            let intended_ns = match &self.schedule {
                Some(schedule) => schedule.next_ns(),
                None => now_ns,
            };
            // Requests that missed their time are not sent afterwards: a backlog is unsent, not throughput.
            if intended_ns >= self.end_ns || now_ns >= self.end_ns.saturating_add(LATE_NS) {
                return None;
            }
            if intended_ns > now_ns {
                return Some(intended_ns);
            }
            self.free.pop_front();
            self.clients[slot as usize].is_free = false;
            // With HTTP/2, the server may have announced meanwhile that it takes no more requests.
            let client = &self.clients[slot as usize];
            if client.stage == Stage::Open && !client.is_last_sent {
                self.send(slot, intended_ns, now_ns);
            }
        }
        None
    }

    fn send(&mut self, slot: u32, intended_ns: u64, now_ns: u64) {
        let call = self.traffic.next();
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        let freed_ns = self.clients[slot as usize].freed_ns;
        if intended_ns >= self.begin_ns {
            self.left = self.left.map(|left| left - 1);
            self.count_sent(intended_ns, freed_ns, now_ns);
        }
        let target = self.target(slot);
        let client = &mut self.clients[slot as usize];
        client.requests += 1;
        client.is_last_sent = self.plan.renew.is_some_and(|renew| client.requests >= renew);
        client.in_flight.push_back(Sent { call, intended_ns, sent_ns: now_ns });
        self.in_flight += 1;
        if client.http2.is_some() {
            return self.send_stream(slot, call, freed_ns, now_ns);
        }
        let requests = &self.requests[target];
        match &mut client.tls {
            None => requests.write(call, &self.links, client.is_last_sent, &mut client.out),
            Some(session) => {
                let mut plain = Vec::with_capacity(1024);
                requests.write(call, &self.links, client.is_last_sent, &mut plain);
                session.say(&plain);
                session.take(&mut client.out);
            }
        }
        if client.in_flight.len() < self.plan.pipeline {
            self.set_free(slot, freed_ns);
        }
        self.touch(slot);
    }

    fn count_sent(&mut self, intended_ns: u64, freed_ns: u64, now_ns: u64) {
        let counts = &mut self.record.counts;
        counts.planned += 1;
        counts.sent += 1;
        if self.schedule.is_none() {
            return;
        }
        // The generator's own share of the delay: the time that it slept, and the time since it could have sent.
        let slept_ns = match self.stall {
            Stall { from_ns, to_ns } if (from_ns..to_ns).contains(&intended_ns) => to_ns - intended_ns,
            _ => 0,
        };
        let lag_ns = slept_ns.max(now_ns - intended_ns.max(freed_ns));
        self.record.lag.saturating_record(lag_ns.max(1));
        if now_ns - intended_ns > LATE_NS {
            if lag_ns > LATE_NS {
                counts.late_for_generator += 1;
            } else {
                counts.late_for_server += 1;
            }
        }
    }

    // Receiving.

    /// Processes received bytes.
    pub(crate) fn receive(&mut self, slot: u32, bytes: &[u8], now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        match (client.stage, &mut client.tls) {
            (Stage::Ending | Stage::Due { .. }, _) => {}
            (_, Some(_)) => self.receive_tls(slot, bytes, now_ns),
            (_, None) if client.inbox.is_empty() => {
                let consumed = self.take_responses(slot, bytes, now_ns, false);
                self.clients[slot as usize].inbox.extend_from_slice(&bytes[consumed..]);
            }
            (_, None) => {
                client.inbox.extend_from_slice(bytes);
                self.take_from_inbox(slot, now_ns, false);
            }
        }
    }

    fn receive_tls(&mut self, slot: u32, bytes: &[u8], now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        let Some(session) = &mut client.tls else { return };
        let was_handshaking = session.is_handshaking();
        let result = session.receive(bytes, &mut client.inbox);
        session.take(&mut client.out);
        let is_handshaking = session.is_handshaking();
        if let Err(reason) = result {
            if was_handshaking {
                self.connect_failed(slot, &reason, now_ns);
            } else {
                self.fail(slot, Fault::Malformed, now_ns);
            }
            return;
        }
        if was_handshaking && !is_handshaking {
            self.open(slot, now_ns);
        }
        self.touch(slot);
        self.take_from_inbox(slot, now_ns, false);
    }

    fn take_from_inbox(&mut self, slot: u32, now_ns: u64, ended: bool) {
        let mut inbox = std::mem::take(&mut self.clients[slot as usize].inbox);
        let consumed = self.take_responses(slot, &inbox, now_ns, ended);
        inbox.drain(..consumed);
        self.clients[slot as usize].inbox = inbox;
    }

    /// Processes complete responses at the front. Returns their length in bytes, or that of all bytes after a
    /// fault.
    fn take_responses(&mut self, slot: u32, bytes: &[u8], now_ns: u64, ended: bool) -> usize {
        if self.clients[slot as usize].http2.is_some() {
            self.take_streams(slot, bytes, now_ns);
            return bytes.len();
        }
        let mut at = 0;
        while at < bytes.len() {
            let Some(sent) = self.clients[slot as usize].in_flight.front().copied() else {
                // The response has no request.
                self.fail(slot, Fault::Malformed, now_ns);
                self.count_fault(Fault::Malformed, true);
                return bytes.len();
            };
            let rest = &bytes[at..];
            match response::parse(rest, sent.call.kind == RequestKind::Head, ended) {
                Ok(None) => return at,
                Err(response::MalformedResponse) => {
                    self.fail(slot, Fault::Malformed, now_ns);
                    return bytes.len();
                }
                Ok(Some(response)) => {
                    at += response.len;
                    let verdict = self.check_response(sent.call, &response, rest);
                    self.answered(slot, 0, sent, verdict, now_ns);
                    if response.close || self.clients[slot as usize].is_finished() {
                        self.end_after_last(slot, response.close, now_ns);
                        return bytes.len();
                    }
                }
            }
        }
        at
    }

    /// Checks a response, whose ranges belong to `bytes`.
    fn check_response(&mut self, call: Call, response: &ParsedResponse, bytes: &[u8]) -> Result<(), Fault> {
        self.plan.expectation.check(call, response, bytes, &self.links)?;
        match call.kind {
            RequestKind::Create => self.take_created(call, &response.content(bytes)),
            _ => Ok(()),
        }
    }

    /// Checks the response to a create: it must name the URL that was sent, and a code that no other create got.
    fn take_created(&mut self, call: Call, content: &[u8]) -> Result<(), Fault> {
        let (code, url) = check::created(content).ok_or(Fault::Created)?;
        if url != request::made_url(self.plan.seed, call.number) || !self.record.codes.insert(check::hash(&code)) {
            return Err(Fault::Created);
        }
        if self.plan.collects_created {
            self.record.created.push((code, url));
        }
        Ok(())
    }

    /// Records the response to the request at `place` among those in flight.
    fn answered(&mut self, slot: u32, place: usize, sent: Sent, verdict: Result<(), Fault>, now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        client.in_flight.remove(place);
        client.answered += 1;
        self.in_flight -= 1;
        self.last_response_ns = now_ns;
        match verdict {
            // A wrong response also counts before the measurement.
            Err(fault) => self.count_fault(fault, true),
            Ok(()) if sent.intended_ns >= self.begin_ns => {
                self.record.counts.completed += 1;
                self.record.counts.in_time += u64::from(now_ns <= self.end_ns);
                self.interval.completed += 1;
                if let Some(counters) = &self.counters {
                    counters.count_completed();
                }
                self.record_latency(sent.call.kind, sent.intended_ns, sent.sent_ns, now_ns);
            }
            Ok(()) => {}
        }
        if self.clients[slot as usize].in_flight.len() < self.plan.pipeline {
            self.set_free(slot, now_ns);
        }
    }

    fn record_latency(&mut self, kind: RequestKind, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        let since = |then_ns: u64| now_ns.saturating_sub(then_ns).max(1);
        let latencies = &mut self.record.kinds[kind as usize];
        latencies.intended.saturating_record(since(intended_ns));
        latencies.actual.saturating_record(since(sent_ns));
        self.interval.latency.saturating_record(since(intended_ns));
        if let Some(counters) = &self.counters {
            counters.count_latency(since(intended_ns));
        }
    }

    /// Ends the connection after a response, as the server or the plan demands. Requests in flight behind it stay
    /// unanswered.
    fn end_after_last(&mut self, slot: u32, by_server: bool, now_ns: u64) {
        if by_server && !self.clients[slot as usize].in_flight.is_empty() {
            return self.fail(slot, Fault::Closed, now_ns);
        }
        self.finish(slot);
    }

    /// Records that the server has closed its side.
    pub(crate) fn peer_ended(&mut self, slot: u32, now_ns: u64) {
        match self.clients[slot as usize].stage {
            Stage::Ending | Stage::Due { .. } => return,
            Stage::Opening => return self.connect_failed(slot, "the server closed the connection", now_ns),
            Stage::Open => self.take_from_inbox(slot, now_ns, true),
        }
        if self.clients[slot as usize].stage == Stage::Open {
            self.fail(slot, Fault::Closed, now_ns);
        }
    }

    /// Records that the connection is broken: all its requests get the fault. They enter the histograms with the
    /// time that they waited, so that the histograms do not hide them.
    fn fail(&mut self, slot: u32, fault: Fault, now_ns: u64) {
        let lost = std::mem::take(&mut self.clients[slot as usize].in_flight);
        self.in_flight -= lost.len();
        for sent in lost {
            let measured = sent.intended_ns >= self.begin_ns;
            if measured {
                self.record_latency(sent.call.kind, sent.intended_ns, sent.sent_ns, now_ns);
            }
            self.count_fault(fault, measured);
        }
        self.finish(slot);
    }

    /// Counts an error. Missing responses count only while measured; wrong responses always count.
    fn count_fault(&mut self, fault: Fault, measured: bool) {
        if measured || fault.is_wrong_answer() {
            self.record.faults[fault as usize] += 1;
            self.interval.errors += 1;
            if let Some(counters) = &self.counters {
                counters.count_fault(fault);
            }
        }
    }

    // Time.

    /// Ends connections whose oldest request has timed out, and those that take too long to open.
    pub(crate) fn check_timeouts(&mut self, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for slot in 0..self.clients.len() as u32 {
            let client = &self.clients[slot as usize];
            let is_over = |then_ns: u64| now_ns.saturating_sub(then_ns) >= timeout_ns;
            if client.in_flight.front().is_some_and(|sent| is_over(sent.sent_ns)) {
                self.fail(slot, Fault::Timeout, now_ns);
            } else if client.stage == Stage::Opening && is_over(client.opening_ns) {
                self.connect_failed(slot, "the connection did not open in time", now_ns);
            }
        }
        // The plan has a number of requests, but the server answers none any more, although some are due.
        let due_ns = self.schedule.as_ref().map_or(0, Schedule::next_ns).max(self.last_response_ns);
        if self.left.is_some_and(|left| left > 0) && now_ns.saturating_sub(due_ns) >= timeout_ns {
            self.end_early(now_ns);
        }
    }

    /// Records the requests that were unanswered or unsent at the end.
    pub(crate) fn close_books(&mut self, now_ns: u64) {
        for slot in 0..self.clients.len() as u32 {
            if !self.clients[slot as usize].in_flight.is_empty() {
                self.fail(slot, Fault::Timeout, now_ns);
            }
        }
        // Nothing was planned beyond the number of requests.
        if self.left == Some(0) {
            return;
        }
        let mut left = self.left.unwrap_or(u64::MAX);
        let Some(mut schedule) = self.schedule.take() else { return };
        let (begin_ns, end_ns) = (self.begin_ns, self.end_ns);
        schedule.drain_before(end_ns, |intended_ns, count| {
            let count = count.min(left);
            if intended_ns >= begin_ns && count > 0 {
                left -= count;
                let kind = self.traffic.next().kind;
                self.record.counts.planned += count;
                self.record.counts.unsent += count;
                let waited_ns = now_ns.saturating_sub(intended_ns).max(1);
                self.record.kinds[kind as usize].intended.saturating_record_n(waited_ns, count);
                self.interval.latency.saturating_record_n(waited_ns, count);
            }
        });
    }
}
