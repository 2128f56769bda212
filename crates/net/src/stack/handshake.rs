//! New connections: SYN cache, SYN cookies, and the end of TIME-WAIT by a new SYN.

use super::{Arrival, Stack};
use crate::config::RTO_INITIAL_MS;
use crate::connection::{ConnectionContext, Handshake, TcpConnection, TcpState, scale_for};
use crate::counters::DropReason;
use crate::events::{ConnectionId, Events};
use crate::headers::options::{OptionBytes, Timestamps};
use crate::headers::segment::{SegmentHeader, TcpFlags, TcpSegment};
use crate::next_hop::{NextHop, NextHops};
use crate::pool::FramePool;
use crate::seq::{is_after, is_before};
use crate::stack::cookies;
use crate::stack::syn_cache::{ATTEMPTS_MAX, HalfOpen};

/// Time after the last cookie for which acknowledgements may answer one: its lifetime, and two seconds more.
const COOKIES_VALID_MS: u32 = cookies::LIFETIME_MAX_MS + 2_000;

/// Time after the last cookie for which a client's first segments may arrive in another order: a round trip, with one
/// transmission again.
const OVERTAKEN_MS: u32 = 3000;

/// Checks the segment that completes a handshake.
fn check_last_segment(handshake: &Handshake, segment: &TcpSegment<'_>) -> Result<(), DropReason> {
    let next_seq = handshake.irs.wrapping_add(1);
    if is_old(segment, handshake) {
        return Err(DropReason::Paws);
    }
    let is_outside =
        is_before(segment.seq, next_seq) || is_after(segment.seq, next_seq.wrapping_add(u32::from(u16::MAX)));
    if is_outside { Err(DropReason::OutOfWindow) } else { Ok(()) }
}

/// Returns the segment size of a peer that has not said it (RFC 9293, 3.7.1).
fn default_mss(is_v4: bool) -> u16 {
    if is_v4 { 536 } else { 1220 }
}

impl Stack {
    fn is_listening(&self, arrival: &Arrival<'_>) -> bool {
        let flow = &arrival.flow;
        self.listeners.iter().any(|(address, port)| {
            *port == flow.local_port && address.as_ref().is_none_or(|address| *address == flow.local)
        })
    }

    /// Returns the next hop of answers, and whether it is where the client's frames come from.
    fn hop<H: NextHops>(&self, arrival: &Arrival<'_>, hops: &mut H) -> Option<(NextHop, bool)> {
        let found = hops.next_hop(arrival.flow.local.ip(), arrival.flow.remote.ip());
        // A route without a VLAN does not lead to a client whose frames have a tag.
        let leads = |hop: &NextHop| arrival.is_wrapped || hop.vlan.is_some() || arrival.reflected.vlan.is_none();
        match found.filter(leads) {
            Some(hop) => Some((hop, false)),
            None => (!arrival.is_wrapped).then_some((arrival.reflected, true)),
        }
    }

    /// Handles a segment of no connection: a SYN, the answer to a cookie, or one that is astray (RFC 9293, 3.10.7.2).
    pub(super) fn receive_unknown<P: FramePool, H: NextHops, E: Events>(
        &mut self,
        now_us: u64,
        arrival: &Arrival<'_>,
        pool: &mut P,
        hops: &mut H,
        events: &mut E,
    ) -> Option<ConnectionId> {
        let flags = arrival.segment.flags;
        let outcome = if !hops.is_own(arrival.reflected.source_mac) {
            Err(DropReason::Martian)
        } else if flags.has(TcpFlags::RST) {
            Err(DropReason::UnknownFlow)
        } else if flags.has(TcpFlags::SYN) {
            self.receive_syn(now_us, arrival, None, pool, hops).map(|()| None)
        } else if flags.has(TcpFlags::ACK) {
            self.receive_astray(now_us, arrival, pool, hops, events)
        } else {
            Err(DropReason::UnexpectedFlags)
        };
        outcome.unwrap_or_else(|reason| {
            self.shared.counters.drop(reason);
            None
        })
    }

    /// Answers a SYN. `after` is the last sequence number of an earlier connection of the flow.
    fn receive_syn<P: FramePool, H: NextHops>(
        &mut self,
        now_us: u64,
        arrival: &Arrival<'_>,
        after: Option<u32>,
        pool: &mut P,
        hops: &mut H,
    ) -> Result<(), DropReason> {
        let flags = arrival.segment.flags;
        if flags.has(TcpFlags::ACK) || flags.has(TcpFlags::FIN) {
            return Err(DropReason::UnexpectedFlags);
        }
        if !self.is_listening(arrival) {
            return Err(DropReason::NotListening);
        }
        let (hop, reflects) = self.hop(arrival, hops).ok_or(DropReason::NoNextHop)?;
        let (flow, options) = (&arrival.flow, &arrival.segment.options);
        let iss = self.keys.initial_sequence_number(flow, now_us);
        // Beyond all of the earlier connection (RFC 6191).
        let iss = after.map_or(iss, |after| if is_after(iss, after) { iss } else { after });
        let handshake = Handshake {
            flow: *flow,
            hop,
            reflects,
            irs: arrival.segment.seq,
            iss,
            peer_mss: options.mss.unwrap_or(default_mss(flow.local.is_v4())),
            peer_scale: options.window_scale,
            is_sack_permitted: options.is_sack_permitted,
            ts_recent: options.timestamps.map(|timestamps| timestamps.value),
            ts_offset: self.keys.timestamp_offset(flow),
        };
        let entry = HalfOpen { handshake, sent_us: now_us as u32, attempts: 0 };
        match self.half_open.insert(entry) {
            None if self.shared.config.faults().sends_no_cookies => return Err(DropReason::Full),
            Some(place) => {
                self.flows.insert(arrival.hash, place);
                self.wheel.arm(place, ((now_us / 1000) as u32).wrapping_add(RTO_INITIAL_MS));
                self.send_syn_ack(now_us, &handshake, pool);
            }
            None => self.send_cookie(now_us, handshake, pool),
        }
        Ok(())
    }

    /// Answers a SYN whose state has no room here: the answer carries it.
    fn send_cookie<P: FramePool>(&mut self, now_us: u64, handshake: Handshake, pool: &mut P) {
        let Handshake { flow, irs, peer_mss, .. } = handshake;
        let iss = cookies::encode(&self.keys, &flow, irs, peer_mss, now_us);
        // Without timestamps there is no room for the other options.
        let has_timestamps = handshake.ts_recent.is_some();
        let handshake = Handshake {
            iss,
            peer_scale: handshake.peer_scale.filter(|_| has_timestamps),
            is_sack_permitted: handshake.is_sack_permitted && has_timestamps,
            ..handshake
        };
        let now_ms = (now_us / 1000) as u32;
        let stamp = now_ms.wrapping_add(handshake.ts_offset);
        let stamp = cookies::encode_options(stamp, handshake.peer_scale, handshake.is_sack_permitted);
        self.cookie_ms = Some(now_ms);
        self.shared.counters.cookies_sent += 1;
        self.send_stamped_syn_ack(now_us, &handshake, stamp, pool);
    }

    fn send_syn_ack<P: FramePool>(&mut self, now_us: u64, handshake: &Handshake, pool: &mut P) {
        let stamp = ((now_us / 1000) as u32).wrapping_add(handshake.ts_offset);
        self.send_stamped_syn_ack(now_us, handshake, stamp, pool);
    }

    fn send_stamped_syn_ack<P: FramePool>(&mut self, now_us: u64, handshake: &Handshake, stamp: u32, pool: &mut P) {
        let window = self.shared.config.receive_window;
        let headers = if handshake.flow.local.is_v4() { 40 } else { 60 };
        let mss = handshake.hop.mtu.saturating_sub(headers);
        let scale = handshake.peer_scale.map(|_| scale_for(window));
        let timestamps = handshake.ts_recent.map(|echo| Timestamps { value: stamp, echo });
        let head = SegmentHeader {
            flow: handshake.flow,
            hop: handshake.hop,
            seq: handshake.iss,
            ack: handshake.irs.wrapping_add(1),
            flags: TcpFlags::SYN.with(TcpFlags::ACK),
            // The window of a SYN is not scaled (RFC 7323, 2.2).
            window: window.min(u32::from(u16::MAX)) as u16,
            options: OptionBytes::handshake(mss, scale, handshake.is_sack_permitted, timestamps),
        };
        ConnectionContext { now_us, pool, shared: &mut self.shared }.send_bare(&head);
    }

    /// Handles a segment for a half-open connection (RFC 9293, 3.10.7.4, in SYN-RECEIVED).
    pub(super) fn receive_half_open<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        place: u32,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Option<ConnectionId> {
        let entry = *self.half_open.get_mut(place).expect("the flow table has places of entries only");
        let (handshake, segment) = (&entry.handshake, &arrival.segment);
        let flags = segment.flags;
        let outcome = if flags.has(TcpFlags::RST) {
            self.reset_half_open(place, handshake, segment).map(|()| None)
        } else if flags.has(TcpFlags::SYN) {
            // The SYN again, or another one: the answer shows a client that has forgotten the first what to reset.
            self.send_syn_ack(now_us, handshake, pool);
            Ok(None)
        } else if !flags.has(TcpFlags::ACK) {
            Err(DropReason::UnexpectedFlags)
        } else if segment.ack != handshake.iss.wrapping_add(1) {
            self.receive_other_ack(now_us, place, handshake, arrival, pool, events)
        } else {
            check_last_segment(handshake, segment).and_then(|()| self.promote(now_us, place, arrival, pool, events))
        };
        outcome.unwrap_or_else(|reason| {
            self.shared.counters.drop(reason);
            None
        })
    }

    /// Ends a half-open connection if a reset is for the next byte.
    fn reset_half_open(
        &mut self,
        place: u32,
        handshake: &Handshake,
        segment: &TcpSegment<'_>,
    ) -> Result<(), DropReason> {
        if segment.seq != handshake.irs.wrapping_add(1) {
            return Err(DropReason::OutOfWindow);
        }
        self.end_half_open(place);
        self.shared.counters.resets_received += 1;
        Ok(())
    }

    /// Handles an acknowledgement of anything but the SYN-ACK of the half-open connection. The client may answer a
    /// cookie, if a copy of its SYN came again when the cache had room.
    fn receive_other_ack<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        place: u32,
        half_open: &Handshake,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Result<Option<ConnectionId>, DropReason> {
        let may_answer = arrival.segment.seq == half_open.irs.wrapping_add(1);
        let cookie = may_answer.then(|| self.redeem(now_us, arrival, half_open.hop, half_open.reflects)).flatten();
        if let Some(handshake) = cookie {
            self.end_half_open(place);
            return self.open_by_cookie(now_us, &handshake, arrival, pool, events);
        }
        self.refuse_unknown(now_us, arrival, half_open.hop, pool);
        Err(DropReason::UnacceptableAck)
    }

    /// Makes a connection of a half-open one.
    fn promote<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        place: u32,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Result<Option<ConnectionId>, DropReason> {
        let index = self.place(now_us, pool).ok_or(DropReason::Full)?;
        let entry = self.half_open.remove(place);
        self.wheel.disarm(place);
        self.flows.replace(arrival.hash, place, self.shared.config.half_open_max + index);
        let sample_us = (entry.attempts == 0).then(|| (now_us as u32).wrapping_sub(entry.sent_us));
        Ok(self.open(now_us, index, &entry.handshake, sample_us, arrival, pool, events))
    }

    /// Opens a connection whose flow is in the table, and gives it its first segment.
    #[expect(clippy::too_many_arguments, reason = "a handshake, its place, and the surroundings of every segment")]
    fn open<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        index: u32,
        handshake: &Handshake,
        sample_us: Option<u32>,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Option<ConnectionId> {
        let at = index as usize;
        let generation = self.connections.get(at).map_or(0, |connection| connection.generation);
        let now_ms = (now_us / 1000) as u32;
        let mut connection = TcpConnection::new(handshake, generation, &self.shared.config, now_ms);
        if let Some(sample_us) = sample_us {
            connection.sample_round_trip(sample_us);
        }
        let id = connection.id(index);
        if at == self.connections.len() {
            self.connections.push(connection);
        } else {
            assert_eq!(self.connections[at].state, TcpState::Closed, "the place is free");
            self.connections[at] = connection;
        }
        self.shared.counters.opened += 1;
        events.opened(id);
        self.deliver(now_us, index, arrival, pool, events)
    }

    fn end_half_open(&mut self, place: u32) {
        let entry = self.half_open.remove(place);
        self.wheel.disarm(place);
        self.flows.remove(self.keys.hash(crate::stack::keys::KeyUse::Table, &entry.handshake.flow, 0), place);
    }

    /// Sends the answer to a SYN again, or forgets it.
    pub(super) fn run_half_open_timer<P: FramePool>(&mut self, now_us: u64, place: u32, pool: &mut P) {
        let entry = self.half_open.get_mut(place).expect("the timer of an ended entry is disarmed");
        if entry.attempts == ATTEMPTS_MAX {
            self.end_half_open(place);
            return;
        }
        entry.attempts += 1;
        let (attempts, handshake) = (entry.attempts, entry.handshake);
        self.wheel.arm(place, ((now_us / 1000) as u32).wrapping_add(RTO_INITIAL_MS << attempts));
        self.shared.counters.retransmissions += 1;
        self.send_syn_ack(now_us, &handshake, pool);
    }

    /// Handles a segment with an acknowledgement and without a connection. It may answer a cookie; any other gets a
    /// reset.
    fn receive_astray<P: FramePool, H: NextHops, E: Events>(
        &mut self,
        now_us: u64,
        arrival: &Arrival<'_>,
        pool: &mut P,
        hops: &mut H,
        events: &mut E,
    ) -> Result<Option<ConnectionId>, DropReason> {
        let is_listening = self.is_listening(arrival);
        let (hop, reflects) = self.hop(arrival, hops).ok_or(DropReason::NoNextHop)?;
        if is_listening && self.are_cookies_valid(now_us) {
            if let Some(handshake) = self.redeem(now_us, arrival, hop, reflects) {
                return self.open_by_cookie(now_us, &handshake, arrival, pool, events);
            }
            self.shared.counters.cookies_refused += 1;
        }
        self.refuse_unknown(now_us, arrival, hop, pool);
        Err(DropReason::UnknownFlow)
    }

    /// Returns true if a cookie was sent a short time ago.
    fn are_cookies_valid(&self, now_us: u64) -> bool {
        let now_ms = (now_us / 1000) as u32;
        self.cookie_ms.is_some_and(|at| now_ms.wrapping_sub(at) < COOKIES_VALID_MS)
    }

    /// Answers a segment of no connection with a reset. While cookies are sent, the segment may have overtaken the first
    /// one of its client, which has the cookie: then nothing is answered, and the client sends again.
    fn refuse_unknown<P: FramePool>(&mut self, now_us: u64, arrival: &Arrival<'_>, hop: NextHop, pool: &mut P) {
        let now_ms = (now_us / 1000) as u32;
        if self.cookie_ms.is_none_or(|at| now_ms.wrapping_sub(at) >= OVERTAKEN_MS) {
            self.send_unknown_reset(now_us, arrival, hop, pool);
        }
    }

    /// Opens a connection whose client has answered a cookie.
    fn open_by_cookie<P: FramePool, E: Events>(
        &mut self,
        now_us: u64,
        handshake: &Handshake,
        arrival: &Arrival<'_>,
        pool: &mut P,
        events: &mut E,
    ) -> Result<Option<ConnectionId>, DropReason> {
        let index = self.place(now_us, pool).ok_or(DropReason::Full)?;
        self.shared.counters.cookies_accepted += 1;
        self.flows.insert(arrival.hash, self.shared.config.half_open_max + index);
        Ok(self.open(now_us, index, handshake, None, arrival, pool, events))
    }

    /// Returns the handshake that a cookie stands for; none without a valid cookie.
    fn redeem(&self, now_us: u64, arrival: &Arrival<'_>, hop: NextHop, reflects: bool) -> Option<Handshake> {
        if !self.are_cookies_valid(now_us) {
            return None;
        }
        let (flow, segment) = (&arrival.flow, &arrival.segment);
        let (irs, iss) = (segment.seq.wrapping_sub(1), segment.ack.wrapping_sub(1));
        let peer_mss = cookies::decode(&self.keys, flow, iss, irs, now_us)?;
        let timestamps = segment.options.timestamps;
        let options = timestamps.map_or((None, false), |timestamps| cookies::decode_options(timestamps.echo));
        Some(Handshake {
            flow: *flow,
            hop,
            reflects,
            irs,
            iss,
            peer_mss,
            peer_scale: options.0,
            is_sack_permitted: options.1,
            ts_recent: timestamps.map(|timestamps| timestamps.value),
            ts_offset: self.keys.timestamp_offset(flow),
        })
    }

    /// Handles a segment for a connection in TIME-WAIT (RFC 9293, 3.10.7.4; RFC 6191). Ignores resets (RFC 1337).
    pub(super) fn receive_in_time_wait<P: FramePool, H: NextHops>(
        &mut self,
        now_us: u64,
        index: u32,
        arrival: &Arrival<'_>,
        pool: &mut P,
        hops: &mut H,
    ) {
        let segment = &arrival.segment;
        let connection = &mut self.connections[index as usize];
        let is_syn =
            segment.flags.has(TcpFlags::SYN) && !segment.flags.has(TcpFlags::ACK) && !segment.flags.has(TcpFlags::RST);
        let is_later = match (connection.ts_recent(), segment.options.timestamps) {
            (Some(recent), Some(timestamps)) if timestamps.value != recent => is_after(timestamps.value, recent),
            _ => is_after(segment.seq, connection.rcv_nxt()),
        };
        if is_syn && is_later {
            // Linux adds the largest window without scaling.
            let after = connection.snd_nxt().wrapping_add(u32::from(u16::MAX) + 2);
            self.shared.counters.time_wait_reused += 1;
            self.end(now_us, index, pool);
            if let Err(reason) = self.receive_syn(now_us, arrival, Some(after), pool, hops) {
                self.shared.counters.drop(reason);
            }
            return;
        }
        if segment.flags.has(TcpFlags::RST) || segment.len() == 0 {
            self.shared.counters.drop(DropReason::UnexpectedFlags);
            return;
        }
        // The peer's FIN again: our acknowledgement was lost.
        let mut context = ConnectionContext { now_us, pool, shared: &mut self.shared };
        connection.send_ack(&mut context);
        if segment.flags.has(TcpFlags::FIN) {
            connection.wait(context.now_ms(), &context.shared.config);
        }
        self.rearm(index);
    }
}

/// Returns true for a segment that is older than the SYN by its timestamp, or has none though the SYN had one.
fn is_old(segment: &TcpSegment<'_>, handshake: &Handshake) -> bool {
    let is_older = |recent| segment.options.timestamps.is_none_or(|timestamps| is_before(timestamps.value, recent));
    handshake.ts_recent.is_some_and(is_older)
}
