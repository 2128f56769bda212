//! The connections of one thread and what they carry: which request goes where and when, what its answer is, and what is
//! recorded of it. No ring and no clock here: the worker brings bytes and instants in, and afterwards settles what each
//! touched connection needs.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::check::{self, Fault};
use crate::links::Links;
use crate::plan::{Loop, Plan};
use crate::popularity::Popularity;
use crate::random;
use crate::record::{Interval, Record};
use crate::request::{self, Requests};
use crate::response;
use crate::schedule::Schedule;
use crate::tls::Session;
use crate::traffic::{Call, Kind, Traffic};

/// From here on a request counts as late.
pub(crate) const LATE_NS: u64 = 1_000_000;

/// A connection that could not be made or broke before its first answer is tried again after this time.
const RETRY_NS: u64 = 100_000_000;

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    call: Call,
    intended_ns: u64,
    sent_ns: u64,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// To be opened when its time has come.
    Due { at_ns: u64 },
    /// Its handshakes are under way.
    Opening,
    /// It carries requests.
    Open,
    /// It ends; nothing more is read of it.
    Ending,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Where it is in its life.
    pub(crate) stage: Stage,
    /// To be sent next.
    pub(crate) out: Vec<u8>,
    /// It is in the list of those to settle.
    pub(crate) is_dirty: bool,
    in_flight: VecDeque<Sent>,
    /// Received bytes of a response that is not whole.
    inbox: Vec<u8>,
    tls: Option<Session>,
    /// Requests sent since it was opened.
    requests: u64,
    answered: u64,
    /// It takes no further requests.
    is_last_sent: bool,
    /// It is in the queue of those with room.
    is_free: bool,
    /// When it last got room.
    freed_ns: u64,
    /// When its opening began.
    opening_ns: u64,
}

impl Client {
    fn new() -> Client {
        Client {
            stage: Stage::Due { at_ns: 0 },
            out: Vec::new(),
            is_dirty: false,
            in_flight: VecDeque::new(),
            inbox: Vec::new(),
            tls: None,
            requests: 0,
            answered: 0,
            is_last_sent: false,
            is_free: false,
            freed_ns: 0,
            opening_ns: 0,
        }
    }
}

/// A span in which the thread did not run although it should have.
#[derive(Clone, Copy, Default, Debug)]
struct Stall {
    from_ns: u64,
    to_ns: u64,
}

/// The connections of one thread.
pub(crate) struct Crew {
    /// Connections by slot.
    pub(crate) clients: Vec<Client>,
    /// Slots to settle.
    pub(crate) dirty: Vec<u32>,
    /// What was counted and measured.
    pub(crate) record: Record,
    /// The present second.
    pub(crate) interval: Interval,
    /// The last reason for which a connection could not be made.
    pub(crate) last_trouble: Option<String>,
    plan: Arc<Plan>,
    links: Arc<Links>,
    requests: Vec<Requests>,
    traffic: Traffic,
    /// None in a closed loop.
    schedule: Option<Schedule>,
    /// The number of the first of its connections among those of all threads.
    first: usize,
    /// Slots with room, in the order in which they got it.
    free: VecDeque<u32>,
    stall: Stall,
    /// Measured are requests that were meant to be sent from here on.
    begin_ns: u64,
    /// No request is meant to be sent from here on.
    end_ns: u64,
    /// Requests that may still be sent, where their number is limited.
    left: Option<u64>,
    in_flight: usize,
    /// When an answer last came.
    heard_ns: u64,
}

impl Crew {
    /// The crew of thread `thread`.
    pub(crate) fn new(plan: &Arc<Plan>, links: &Arc<Links>, thread: usize) -> Crew {
        let threads = plan.cpus.len();
        let share_of = |thread: usize, whole: usize| whole / threads + usize::from(thread < whole % threads);
        let share = |whole: usize| share_of(thread, whole);
        let mut layout = random::stream(plan.seed, 0);
        let popularity = Popularity::new(links.len().max(1) as u64, plan.zipf, &mut layout);
        let stream = |purpose: u64| random::stream(plan.seed, (thread as u64 + 1) << 1 | purpose);
        let begin_ns = plan.warmup.as_nanos() as u64;
        let key = plan.api_key.as_ref().map(|key| key.0.as_str());
        let requests_of = |host: &str| Requests::new(host, plan.headers, &plan.extra, key, plan.seed);
        Crew {
            clients: (0..share(plan.connections)).map(|_| Client::new()).collect(),
            dirty: Vec::new(),
            record: Record::default(),
            interval: Interval::new(0),
            last_trouble: None,
            requests: plan.targets.iter().map(|target| requests_of(&target.host)).collect(),
            traffic: Traffic::new(plan.mix, popularity, thread, stream(0)),
            schedule: match plan.pace {
                Loop::Open { arrival, rate } => Some(Schedule::new(arrival, rate, thread, threads, stream(1))),
                Loop::Closed => None,
            },
            first: (0..thread).map(|before| share_of(before, plan.connections)).sum(),
            free: VecDeque::new(),
            stall: Stall::default(),
            begin_ns,
            end_ns: begin_ns.saturating_add(plan.duration.as_nanos() as u64),
            left: plan.create_only.map(|count| share(count as usize) as u64),
            in_flight: 0,
            heard_ns: 0,
            plan: Arc::clone(plan),
            links: Arc::clone(links),
        }
    }

    /// The number of a connection's target.
    pub(crate) fn target(&self, slot: u32) -> usize {
        (self.first + slot as usize) % self.plan.targets.len()
    }

    /// When measuring begins.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// When the last request is sent.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Ends the plan now.
    pub(crate) fn end_early(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_done(&self, now_ns: u64) -> bool {
        self.in_flight == 0 && (now_ns >= self.end_ns || self.left == Some(0))
    }

    /// How many connections are open.
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

    /// The run begins: instants count from now on.
    pub(crate) fn restart_clocks(&mut self) {
        self.clients.iter_mut().for_each(|client| (client.freed_ns, client.opening_ns) = (0, 0));
        self.record.faults = Default::default();
        self.interval = Interval::new(0);
    }

    // The life of a connection.

    /// The socket of a connection is made and connects.
    ///
    /// # Errors
    /// What keeps TLS from beginning.
    pub(crate) fn opening(&mut self, slot: u32, now_ns: u64) -> Result<(), String> {
        let tls = &self.plan.targets[self.target(slot)].tls;
        let session = tls.as_ref().map(crate::tls::Tls::connect).transpose()?;
        let client = &mut self.clients[slot as usize];
        client.tls = session;
        (client.stage, client.requests, client.answered, client.is_last_sent) = (Stage::Opening, 0, 0, false);
        client.opening_ns = now_ns;
        client.out.clear();
        client.inbox.clear();
        Ok(())
    }

    /// The socket is connected.
    pub(crate) fn connected(&mut self, slot: u32, now_ns: u64) {
        self.touch(slot);
        let client = &mut self.clients[slot as usize];
        // It may have been given up on meanwhile.
        if client.stage != Stage::Opening {
            return;
        }
        match &mut client.tls {
            Some(session) => session.take(&mut client.out),
            None => self.open(slot, now_ns),
        }
    }

    fn open(&mut self, slot: u32, now_ns: u64) {
        self.clients[slot as usize].stage = Stage::Open;
        self.set_free(slot, now_ns);
    }

    /// A connection could not be made.
    pub(crate) fn connect_failed(&mut self, slot: u32, reason: &str, now_ns: u64) {
        if self.clients[slot as usize].stage == Stage::Ending {
            return self.touch(slot);
        }
        self.last_trouble = Some(format!("{}: {reason}", self.plan.targets[self.target(slot)].name));
        self.count_fault(Fault::Connect, now_ns >= self.begin_ns);
        self.finish(slot);
    }

    /// Ends a connection: the worker closes its socket and then calls [`Crew::closed`].
    fn finish(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        client.stage = Stage::Ending;
        self.touch(slot);
    }

    /// The socket is closed; another takes its place, at once unless there was trouble.
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

    /// Says that the thread ran again at `now_ns` although it should have at `due_ns`.
    pub(crate) fn note_stall(&mut self, due_ns: u64, now_ns: u64) {
        if now_ns.saturating_sub(due_ns) > LATE_NS {
            self.stall = Stall { from_ns: due_ns, to_ns: now_ns };
        }
    }

    /// Sends what is due. Returns when it wants to be called again if nothing else happens.
    pub(crate) fn dispatch(&mut self, now_ns: u64) -> Option<u64> {
        while let Some(&slot) = self.free.front() {
            if self.left == Some(0) {
                return None;
            }
            let intended_ns = match &self.schedule {
                Some(schedule) => schedule.next_ns(),
                None => now_ns,
            };
            // What could not be sent in its time is not made up for afterwards: a backlog is unsent, not throughput.
            if intended_ns >= self.end_ns || now_ns >= self.end_ns.saturating_add(LATE_NS) {
                return None;
            }
            if intended_ns > now_ns {
                return Some(intended_ns);
            }
            self.free.pop_front();
            self.clients[slot as usize].is_free = false;
            if self.clients[slot as usize].stage == Stage::Open {
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
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        let freed_ns = self.clients[slot as usize].freed_ns;
        if intended_ns >= self.begin_ns {
            self.count_sent(intended_ns, freed_ns, now_ns);
        }
        let target = self.target(slot);
        let client = &mut self.clients[slot as usize];
        client.requests += 1;
        client.is_last_sent = self.plan.renew.is_some_and(|renew| client.requests >= renew);
        client.in_flight.push_back(Sent { call, intended_ns, sent_ns: now_ns });
        self.in_flight += 1;
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
        // The generator's own share of the delay: what it slept through, and what passed since it could have sent.
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

    /// Bytes came.
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
            return match was_handshaking {
                true => self.connect_failed(slot, &reason, now_ns),
                false => self.fail(slot, Fault::Malformed, now_ns),
            };
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

    /// Takes whole responses from the front. Returns how many bytes they are, or all after a fault.
    fn take_responses(&mut self, slot: u32, bytes: &[u8], now_ns: u64, ended: bool) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let Some(sent) = self.clients[slot as usize].in_flight.front().copied() else {
                // Nobody asked for this.
                self.fail(slot, Fault::Malformed, now_ns);
                self.count_fault(Fault::Malformed, true);
                return bytes.len();
            };
            let rest = &bytes[at..];
            match response::parse(rest, sent.call.kind == Kind::Head, ended) {
                Ok(None) => return at,
                Err(response::Malformed) => {
                    self.fail(slot, Fault::Malformed, now_ns);
                    return bytes.len();
                }
                Ok(Some(response)) => {
                    at += response.len;
                    let mut verdict = self.plan.expectation.check(sent.call, &response, rest, &self.links);
                    if sent.call.kind == Kind::Create && verdict.is_ok() {
                        verdict = self.take_created(sent.call, &response.content(rest));
                    }
                    self.answered(slot, sent, verdict, now_ns);
                    if response.close || self.clients[slot as usize].is_finished() {
                        self.end_after_last(slot, response.close, now_ns);
                        return bytes.len();
                    }
                }
            }
        }
        at
    }

    /// Looks at what a create made: a link of the URL that was sent, under a code that nobody else was given.
    fn take_created(&mut self, call: Call, content: &[u8]) -> Result<(), Fault> {
        let (code, url) = check::created(content).ok_or(Fault::Created)?;
        if url != request::made_url(self.plan.seed, call.number) || !self.record.codes.insert(check::hash(&code)) {
            return Err(Fault::Created);
        }
        if self.plan.create_only.is_some() {
            self.record.created.push((code, url));
        }
        Ok(())
    }

    fn answered(&mut self, slot: u32, sent: Sent, verdict: Result<(), Fault>, now_ns: u64) {
        let client = &mut self.clients[slot as usize];
        client.in_flight.pop_front();
        client.answered += 1;
        self.in_flight -= 1;
        self.heard_ns = now_ns;
        match verdict {
            // A wrong answer is wrong before measuring begins, too.
            Err(fault) => self.count_fault(fault, true),
            Ok(()) if sent.intended_ns >= self.begin_ns => {
                self.record.counts.completed += 1;
                self.record.counts.in_time += u64::from(now_ns <= self.end_ns);
                self.interval.completed += 1;
                self.record_latency(sent.call.kind, sent.intended_ns, sent.sent_ns, now_ns);
            }
            Ok(()) => {}
        }
        if self.clients[slot as usize].in_flight.len() < self.plan.pipeline {
            self.set_free(slot, now_ns);
        }
    }

    fn record_latency(&mut self, kind: Kind, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        let since = |then_ns: u64| now_ns.saturating_sub(then_ns).max(1);
        let latencies = &mut self.record.kinds[kind as usize];
        latencies.intended.saturating_record(since(intended_ns));
        latencies.actual.saturating_record(since(sent_ns));
        self.interval.latency.saturating_record(since(intended_ns));
    }

    /// The server or the plan ends the connection after an answer. What is in flight behind it gets none.
    fn end_after_last(&mut self, slot: u32, by_server: bool, now_ns: u64) {
        if by_server && !self.clients[slot as usize].in_flight.is_empty() {
            return self.fail(slot, Fault::Closed, now_ns);
        }
        self.finish(slot);
    }

    /// The server has ended its side.
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

    /// The connection is broken: all its requests get the fault. They enter the histograms with the time they waited in
    /// vain: they must not vanish from them.
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

    /// Counts an error. What was not answered counts while it is measured; what was answered wrongly always does.
    fn count_fault(&mut self, fault: Fault, measured: bool) {
        if measured || fault.is_wrong_answer() {
            self.record.faults[fault as usize] += 1;
            self.interval.errors += 1;
        }
    }

    // Time.

    /// Ends connections whose oldest request has waited too long, and those that take too long to open.
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
        // Links that are to be made, and a server that makes none any more.
        if self.left.is_some_and(|left| left > 0) && now_ns.saturating_sub(self.heard_ns) >= timeout_ns {
            self.end_early(now_ns);
        }
    }

    /// Accounts for what was not answered or not even sent.
    pub(crate) fn close_books(&mut self, now_ns: u64) {
        for slot in 0..self.clients.len() as u32 {
            if !self.clients[slot as usize].in_flight.is_empty() {
                self.fail(slot, Fault::Timeout, now_ns);
            }
        }
        let Some(mut schedule) = self.schedule.take() else { return };
        let (begin_ns, end_ns) = (self.begin_ns, self.end_ns);
        schedule.drain_before(end_ns, |intended_ns, count| {
            if intended_ns >= begin_ns {
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

impl Client {
    /// Whether its last request has been answered.
    fn is_finished(&self) -> bool {
        self.is_last_sent && self.in_flight.is_empty()
    }
}
