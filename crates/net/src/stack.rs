//! The stack of one receive queue: from a frame to its connection, and back.
//!
//! * `stack/handshake.rs`: SYNs, the SYN cache, cookies, TIME-WAIT that a SYN ends.
//! * `stack/calls.rs`: what a driver asks of a connection.
//! * `stack/shortage.rs`: what happens when clients hold most frames.
//! * `stack/flow_table.rs`: finding a connection; `stack/syn_cache.rs` and `stack/cookies.rs`: half-open connections.
//! * `stack/keys.rs`: keyed hashes of flows; `stack/wheel.rs`: timers of all connections.

mod calls;
mod cookies;
mod flow_table;
mod handshake;
mod keys;
mod shortage;
mod syn_cache;
mod wheel;

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::config::StackConfig;
use crate::connection::held::HeldFrames;
use crate::connection::reassembly::Reassembly;
use crate::connection::{ConnectionContext, SegmentOutcome, Shared, TcpConnection, TcpState, fact};
use crate::counters::{DropReason, StackCounters};
use crate::events::{CloseReason, ConnectionId, Events};
use crate::headers::address::{Flow, MappedAddress};
use crate::headers::segment::{self, TcpFlags, TcpSegment};
use crate::headers::{ethernet, ipv4, ipv6, tunnel};
use crate::next_hop::{NextHop, NextHops};
use crate::pool::FramePool;
use crate::seq::is_before;
use crate::stack::flow_table::FlowTable;
use crate::stack::keys::{KeyUse, StackKeys};
use crate::stack::syn_cache::SynCache;
use crate::stack::wheel::Wheel;

/// A received segment with its surroundings.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    flow: Flow,
    hash: u64,
    /// The way back of the frame.
    reflected: NextHop,
    is_wrapped: bool,
    segment: TcpSegment<'a>,
}

/// A bucket of tokens: so many in a second, and as many at once.
struct RateLimit {
    per_second: u32,
    /// Thousandths of a token.
    tokens: u64,
    filled_ms: u32,
}

impl RateLimit {
    fn take(&mut self, now_ms: u32) -> bool {
        let passed = u64::from(now_ms.wrapping_sub(self.filled_ms));
        self.filled_ms = now_ms;
        self.tokens = (self.tokens + passed * u64::from(self.per_second)).min(u64::from(self.per_second) * 1000);
        let has_token = self.tokens >= 1000;
        self.tokens -= if has_token { 1000 } else { 0 };
        has_token
    }
}

/// The TCP/IP stack of one receive queue. The thread that owns the queue calls it.
pub struct Stack {
    shared: Shared,
    keys: StackKeys,
    listeners: Vec<(Option<MappedAddress>, u16)>,
    /// Places below `half_open_max` are of the SYN cache, those from there of `connections`. Timers have the same
    /// numbers.
    flows: FlowTable,
    half_open: SynCache,
    connections: Vec<TcpConnection>,
    free: Vec<u32>,
    /// Connections in TIME-WAIT, from the oldest; some may have ended.
    time_waits: VecDeque<ConnectionId>,
    wheel: Wheel,
    /// Connections whose acknowledgement is due at the end of the turn.
    due: Vec<u32>,
    resets: RateLimit,
    /// Time of the last SYN cookie.
    cookie_ms: Option<u32>,
    /// The connection that the last search for old frames examined last.
    examined: usize,
}

impl Stack {
    /// Returns a stack. `secret` is random and the same for no other process; `now_us` is a clock in microseconds that
    /// never goes back. All memory is reserved here.
    pub fn new(config: StackConfig, secret: &[u8; 16], now_us: u64) -> Stack {
        let now_ms = (now_us / 1000) as u32;
        let connections_max = config.connections_max as usize;
        let resets =
            RateLimit { per_second: config.resets_per_second, tokens: 0, filled_ms: now_ms.wrapping_sub(1000) };
        Stack {
            keys: StackKeys::new(secret),
            listeners: Vec::new(),
            flows: FlowTable::new(connections_max + config.half_open_max as usize),
            half_open: SynCache::new(config.half_open_max),
            connections: Vec::with_capacity(connections_max),
            free: Vec::with_capacity(connections_max),
            time_waits: VecDeque::with_capacity(connections_max),
            wheel: Wheel::new(now_ms, connections_max + config.half_open_max as usize),
            due: Vec::with_capacity(1024),
            resets,
            cookie_ms: None,
            examined: 0,
            shared: Shared {
                held: HeldFrames::new(config.frames_held_max),
                short_from: short_from(config.frames_held_max),
                reassembly: Reassembly::new(config.out_of_order_blocks_max as usize),
                counters: StackCounters::default(),
                config,
            },
        }
    }

    /// Accepts connections to a port, of one address or of every address.
    pub fn listen(&mut self, address: Option<IpAddr>, port: u16) {
        self.listeners.push((address.map(MappedAddress::from), port));
    }

    /// Accepts no new connections any more; SYNs are dropped. Open connections continue.
    pub fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Takes a received frame. Returns its connection, if it is of one that is still open.
    pub fn receive<P: FramePool, H: NextHops, E: Events>(
        &mut self,
        now_us: u64,
        frame: &[u8],
        pool: &mut P,
        hops: &mut H,
        events: &mut E,
    ) -> Option<ConnectionId> {
        self.shared.counters.frames_in += 1;
        let arrival = match self.parse(frame) {
            Ok(arrival) => arrival,
            Err(reason) => {
                self.shared.counters.drop(reason);
                return None;
            }
        };
        let flow = &arrival.flow;
        let half_open_max = self.shared.config.half_open_max;
        let place = self.flows.find(arrival.hash, |place| match place.checked_sub(half_open_max) {
            Some(index) => self.connections[index as usize].flow == *flow,
            None => self.half_open.flow(place) == Some(flow),
        });
        match place.map(|place| place.checked_sub(half_open_max).ok_or(place)) {
            Some(Ok(index)) => self.receive_for(now_us, index, &arrival, pool, hops, events),
            Some(Err(place)) => self.receive_half_open(now_us, place, &arrival, pool, events),
            None => self.receive_unknown(now_us, &arrival, pool, hops, events),
        }
    }

    /// Parses a frame down to its segment.
    fn parse<'a>(&self, frame: &'a [u8]) -> Result<Arrival<'a>, DropReason> {
        let config = &self.shared.config;
        let verifies = config.verifies_checksums;
        let (ethernet, rest) = ethernet::parse(frame)?;
        let outer =
            if ethernet.ether_type == ethernet::IPV4 { ipv4::parse(rest, verifies)? } else { ipv6::parse(rest)? };
        let (packet, is_wrapped) = tunnel::open(outer, config.decapsulate, verifies)?;
        let segment = segment::parse(&packet, verifies)?;
        let flow = Flow {
            local: packet.destination,
            remote: packet.source,
            local_port: segment.destination_port,
            remote_port: segment.source_port,
        };
        let are_hosts = flow.local.is_unicast() && flow.remote.is_unicast() && flow.local != flow.remote;
        if !are_hosts || flow.local_port == 0 || flow.remote_port == 0 {
            return Err(DropReason::Martian);
        }
        let hash = self.keys.hash(KeyUse::Table, &flow, 0);
        let reflected = NextHop::reflected(&ethernet, config.mtu);
        Ok(Arrival { flow, hash, reflected, is_wrapped, segment })
    }

    fn receive_for<P: FramePool, H: NextHops, E: Events>(
        &mut self,
        now_us: u64,
        index: u32,
        arrival: &Arrival<'_>,
        pool: &mut P,
        hops: &mut H,
        events: &mut E,
    ) -> Option<ConnectionId> {
        if self.connections[index as usize].state == TcpState::TimeWait {
            self.receive_in_time_wait(now_us, index, arrival, pool, hops);
            return None;
        }
        self.deliver(now_us, index, arrival, pool, events)
    }

    /// Gives a connection a segment. Returns the connection if it is still open.
    #[inline]
    fn deliver<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        index: u32,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Option<ConnectionId> {
        let connection = &mut self.connections[index as usize];
        let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
        let verdict = connection.receive(&mut context, index, &arrival.segment, &arrival.reflected, events);
        self.settle(now_us, index, verdict, pool, events)
    }

    /// Acts on the outcome of a segment or a timer. Returns the connection if it is still open.
    fn settle<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        index: u32,
        verdict: SegmentOutcome,
        pool: &mut P,
        events: &mut E,
    ) -> Option<ConnectionId> {
        let connection = &mut self.connections[index as usize];
        let id = connection.id(index);
        let is_attended = connection.is_attended();
        let reason = match verdict {
            SegmentOutcome::Continues => {
                self.rearm(index);
                return is_attended.then_some(id);
            }
            SegmentOutcome::EntersTimeWait => {
                self.enter_time_wait(now_us, index, pool);
                CloseReason::Finished
            }
            SegmentOutcome::Ends(reason) => {
                self.end(now_us, index, pool);
                reason
            }
        };
        if is_attended {
            events.closed(id, reason);
        }
        None
    }

    /// Arms the timer of a connection if it is due earlier than known, and lists an acknowledgement that is due. A
    /// timer that fires too early looks again; so an acknowledgement costs nothing here.
    fn rearm(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let timer = self.shared.config.half_open_max + index;
        if let Some(at_ms) = connection.next_at_ms()
            && self.wheel.armed(timer).is_none_or(|armed| is_before(at_ms, armed))
        {
            self.wheel.arm(timer, at_ms);
        }
        if connection.has(fact::ACK_NOW) && !connection.has(fact::IS_LISTED) {
            connection.set(fact::IS_LISTED, true);
            self.due.push(index);
        }
    }

    fn enter_time_wait<P: FramePool>(&mut self, now_us: u64, index: u32, pool: &mut P) {
        let connection = &mut self.connections[index as usize];
        let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
        connection.release(&mut context);
        connection.wait(context.now_ms(), &context.shared.config);
        connection.generation = connection.generation.wrapping_add(1);
        let id = connection.id(index);
        self.shared.counters.time_wait += 1;
        if self.time_waits.len() == self.shared.config.connections_max as usize {
            self.evict_time_wait(now_us, pool);
        }
        self.time_waits.push_back(id);
        self.rearm(index);
    }

    /// Ends the oldest connection in TIME-WAIT. Returns false if no connection is in that state.
    fn evict_time_wait<P: FramePool>(&mut self, now_us: u64, pool: &mut P) -> bool {
        while let Some(id) = self.time_waits.pop_front() {
            let connection = &self.connections[id.index as usize];
            if connection.state == TcpState::TimeWait && connection.generation == id.generation {
                self.shared.counters.time_wait_evicted += 1;
                self.end(now_us, id.index, pool);
                return true;
            }
        }
        false
    }

    /// Frees the place of a connection.
    fn end<P: FramePool>(&mut self, now_us: u64, index: u32, pool: &mut P) {
        let connection = &mut self.connections[index as usize];
        assert_ne!(connection.state, TcpState::Closed, "a connection ends once");
        let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
        connection.release(&mut context);
        self.shared.counters.time_wait -= u64::from(connection.state == TcpState::TimeWait);
        connection.state = TcpState::Closed;
        connection.generation = connection.generation.wrapping_add(1);
        let timer = self.shared.config.half_open_max + index;
        self.wheel.disarm(timer);
        self.flows.remove(self.keys.hash(KeyUse::Table, &connection.flow, 0), timer);
        self.free.push(index);
        debug_assert!(self.free.len() <= self.connections.len());
    }

    /// Returns the place of a new connection; the oldest TIME-WAIT makes room if need be.
    fn place<P: FramePool>(&mut self, now_us: u64, pool: &mut P) -> Option<u32> {
        let is_full = self.free.is_empty() && self.connections.len() == self.shared.config.connections_max as usize;
        if is_full && !self.evict_time_wait(now_us, pool) {
            return None;
        }
        Some(self.free.pop().unwrap_or(self.connections.len() as u32))
    }

    /// Sends the acknowledgements that no answer has carried. A driver calls this at the end of a turn, after it has
    /// sent its answers to the frames of the turn.
    pub fn flush<P: FramePool>(&mut self, now_us: u64, pool: &mut P) {
        if self.shared.held.len() > self.shared.short_from {
            self.relieve(now_us);
        }
        while let Some(index) = self.due.pop() {
            let connection = &mut self.connections[index as usize];
            connection.set(fact::IS_LISTED, false);
            if connection.has(fact::ACK_NOW) && connection.state != TcpState::Closed {
                connection.send_ack(&mut ConnectionContext { now_us, pool, shared: &mut self.shared });
            }
        }
    }

    /// Runs all timers that are due.
    pub fn poll<P: FramePool, E: Events>(&mut self, now_us: u64, pool: &mut P, events: &mut E) {
        let now_ms = (now_us / 1000) as u32;
        while let Some(timer) = self.wheel.pop(now_ms) {
            let Some(index) = timer.checked_sub(self.shared.config.half_open_max) else {
                self.run_half_open_timer(now_us, timer, pool);
                continue;
            };
            let connection = &mut self.connections[index as usize];
            debug_assert_ne!(connection.state, TcpState::Closed, "the timer of an ended connection is disarmed");
            let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
            let verdict = connection.run_timers(&mut context, index, events);
            let is_later = |at_ms: u32| is_before(now_ms, at_ms);
            // A timer that stays due would repeat this loop for ever.
            debug_assert!(
                verdict != SegmentOutcome::Continues || connection.next_at_ms().is_none_or(is_later),
                "a timer runs at most once"
            );
            self.settle(now_us, index, verdict, pool, events);
        }
    }

    /// Returns the time at which [`Stack::poll`] is to be called next, in microseconds; it may be too early.
    pub fn next_deadline(&self, now_us: u64) -> Option<u64> {
        let now_ms = now_us / 1000;
        let ahead = |at_ms: u32| (at_ms.wrapping_sub(now_ms as u32) as i32).max(0) as u64;
        self.wheel.next_at().map(|at_ms| ((now_ms + ahead(at_ms)) * 1000).max(now_us))
    }

    /// Returns what the stack has counted since its start.
    pub fn counters(&self) -> StackCounters {
        let mut counters = self.shared.counters;
        counters.half_open = self.half_open.len() as u64;
        counters.open = (self.connections.len() - self.free.len()) as u64 - counters.time_wait;
        counters.frames_held = u64::from(self.shared.held.len());
        debug_assert_eq!(self.flows.len() as u64, counters.half_open + counters.open + counters.time_wait);
        counters
    }

    /// Answers a segment of no connection with a reset (RFC 9293, 3.10.7.1), a bounded number in a second.
    fn send_unknown_reset<P: FramePool>(&mut self, now_us: u64, arrival: &Arrival<'_>, hop: NextHop, pool: &mut P) {
        let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
        debug_assert!(arrival.segment.flags.has(TcpFlags::ACK) && !arrival.segment.flags.has(TcpFlags::RST));
        if self.resets.take(context.now_ms()) {
            let head = segment::SegmentHeader {
                flow: arrival.flow,
                hop,
                seq: arrival.segment.ack,
                ack: 0,
                flags: TcpFlags::RST,
                window: 0,
                options: crate::headers::options::OptionBytes::NONE,
            };
            context.send_bare(&head);
            context.shared.counters.resets_sent_unknown += 1;
        }
    }
}

/// Eighths of all frames above which frames are short.
const SHORT_EIGHTHS: u32 = 7;

/// Returns the number of held frames above which frames are short.
const fn short_from(frames_held_max: u32) -> u32 {
    frames_held_max / 8 * SHORT_EIGHTHS
}
