//! An arriving segment (RFC 9293, 3.10.7.4), with the checks of RFC 5961 and RFC 7323.

use super::{ConnectionContext, SegmentOutcome, TcpConnection, TcpState, fact};
use crate::counters::DropReason;
use crate::events::{CloseReason, Events};
use crate::headers::segment::{TcpFlags, TcpSegment};
use crate::next_hop::NextHop;
use crate::pool::FramePool;
use crate::seq::{distance, is_after, is_before};

/// Shortest time between two challenges, or two answers to empty segments outside the window (RFC 5961, 7).
const CHALLENGE_MS: u32 = 500;
/// Age at which a timestamp says nothing any more: 24 days (RFC 7323, 5.5).
const TIMESTAMP_AGE_MAX_MS: u32 = 24 * 24 * 3600 * 1000;

impl TcpConnection {
    /// Takes a segment of the connection in any state but TIME-WAIT.
    pub(crate) fn receive<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        segment: &TcpSegment<'_>,
        hop: &NextHop,
        events: &mut E,
    ) -> SegmentOutcome {
        debug_assert!(!matches!(self.state, TcpState::TimeWait | TcpState::Closed));
        if let Some(verdict) = self.check(context, segment) {
            return verdict;
        }
        if self.has(fact::REFLECTS) {
            // The client's first hop may change; the segment has proved to be of the connection.
            self.hop = *hop;
        }
        self.note_timestamp(context.now_ms(), segment);
        self.take_ack(context, segment);
        match self.state {
            TcpState::FinWait1 if self.is_fin_acknowledged() => self.state = TcpState::FinWait2,
            TcpState::Closing if self.is_fin_acknowledged() => return SegmentOutcome::EntersTimeWait,
            TcpState::LastAck if self.is_fin_acknowledged() => return SegmentOutcome::Ends(CloseReason::Finished),
            _ => {}
        }
        let verdict = self.take_data(context, index, segment, events);
        if verdict != SegmentOutcome::Continues {
            return verdict;
        }
        if self.has(fact::FIN_PENDING) {
            self.send_fin(context);
        }
        self.arm(context, false);
        if self.has(fact::BLOCKED) && self.has_room(context) {
            self.set(fact::BLOCKED, false);
            self.arm(context, false);
            if self.is_attended() {
                events.writable(self.id(index));
            }
        }
        SegmentOutcome::Continues
    }

    /// Returns the end of a segment that is not to be processed further.
    fn check<P: FramePool>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        segment: &TcpSegment<'_>,
    ) -> Option<SegmentOutcome> {
        let flags = segment.flags;
        let is_reset = flags.has(TcpFlags::RST);
        // First: timestamps, before the sequence number (RFC 7323, 5.3).
        if self.has(fact::TIMESTAMPS) && !is_reset && self.is_too_old(context.now_ms(), segment) {
            return self.refuse(context, segment, DropReason::Paws);
        }
        if !self.is_acceptable(segment) {
            return if is_reset {
                self.dropped(context, DropReason::OutOfWindow)
            } else {
                self.refuse(context, segment, DropReason::OutOfWindow)
            };
        }
        // Second: a reset counts only at the exact place (RFC 5961, 3.2).
        if is_reset {
            return if segment.seq == self.rcv_nxt {
                Some(TcpConnection::reset_by_peer(&mut context.shared.counters))
            } else {
                self.challenge(context, DropReason::UnexpectedFlags)
            };
        }
        // Fourth: a SYN within a connection (RFC 5961, 4.2).
        if flags.has(TcpFlags::SYN) {
            return self.challenge(context, DropReason::UnexpectedFlags);
        }
        // Fifth: the acknowledgement (RFC 5961, 5.2).
        if !flags.has(TcpFlags::ACK) {
            return self.dropped(context, DropReason::UnexpectedFlags);
        }
        if !self.is_acceptable_ack(segment.ack) {
            return self.challenge(context, DropReason::UnacceptableAck);
        }
        None
    }

    fn dropped<P: FramePool>(
        &self,
        context: &mut ConnectionContext<'_, P>,
        reason: DropReason,
    ) -> Option<SegmentOutcome> {
        context.shared.counters.drop(reason);
        Some(SegmentOutcome::Continues)
    }

    /// Drops a segment and answers with the current state. Segments without data get an answer twice a second, so that
    /// two ends never answer each other without end. So do SYNs, which anyone can send (RFC 5961, 4.2 and 7).
    fn refuse<P: FramePool>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        segment: &TcpSegment<'_>,
        reason: DropReason,
    ) -> Option<SegmentOutcome> {
        if segment.len() > 0 && !segment.flags.has(TcpFlags::SYN) {
            self.send_ack(context);
            return self.dropped(context, reason);
        }
        self.challenge(context, reason)
    }

    /// Drops a segment that may be an attacker's, and lets the peer confirm its state (RFC 5961). The limit is kept for
    /// each connection, so that it shows nothing about others (CVE-2016-5696).
    fn challenge<P: FramePool>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        reason: DropReason,
    ) -> Option<SegmentOutcome> {
        let now_ms = context.now_ms();
        if now_ms.wrapping_sub(self.last_challenge_ms) >= CHALLENGE_MS {
            self.last_challenge_ms = now_ms;
            context.shared.counters.challenge_acks += 1;
            self.send_ack(context);
        }
        self.dropped(context, reason)
    }

    /// True if a segment is too old by its timestamp: protection against wrapped sequence numbers (RFC 7323, 5.3). A
    /// segment without the agreed option is too old as well.
    fn is_too_old(&self, now_ms: u32, segment: &TcpSegment<'_>) -> bool {
        segment.options.timestamps.is_none_or(|timestamps| {
            is_before(timestamps.value, self.ts_recent) && now_ms.wrapping_sub(self.ts_recent_ms) < TIMESTAMP_AGE_MAX_MS
        })
    }

    /// Keeps the timestamp to echo (RFC 7323, 4.3).
    fn note_timestamp(&mut self, now_ms: u32, segment: &TcpSegment<'_>) {
        if let Some(timestamps) = segment.options.timestamps
            && self.has(fact::TIMESTAMPS)
            && !is_after(segment.seq, self.last_ack_sent)
        {
            self.ts_recent = timestamps.value;
            self.ts_recent_ms = now_ms;
        }
    }

    /// Returns true if a segment touches the window (RFC 9293, 3.4). With a window of zero, one in its place is
    /// acceptable for its acknowledgement; its data is cut off.
    fn is_acceptable(&self, segment: &TcpSegment<'_>) -> bool {
        let (seq, len) = (segment.seq, segment.len());
        if seq == self.rcv_nxt {
            return true;
        }
        if len == 0 {
            // An empty segment of a peer that has filled the window has the number of its end.
            return !is_before(seq, self.rcv_nxt) && !is_after(seq, self.rcv_end);
        }
        is_before(seq, self.rcv_end) && is_after(seq.wrapping_add(len), self.rcv_nxt)
    }

    /// Takes the data and the FIN of a segment (RFC 9293, 3.10.7.4, seventh and eighth).
    fn take_data<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        segment: &TcpSegment<'_>,
        events: &mut E,
    ) -> SegmentOutcome {
        if segment.len() == 0 || !self.is_receiving() {
            return SegmentOutcome::Continues;
        }
        let faults = context.shared.config.faults();
        let old = if faults.keeps_duplicates { 0 } else { distance(segment.seq, self.rcv_nxt) as usize };
        let open = distance(segment.seq, self.rcv_end) as usize;
        let payload = &segment.payload[..segment.payload.len().min(open)];
        let has_fin = segment.flags.has(TcpFlags::FIN) && payload.len() == segment.payload.len();
        let payload = &payload[old.min(payload.len())..];
        let seq = segment.seq.wrapping_add(old as u32);
        if self.has(fact::ORPHAN) && !payload.is_empty() {
            // Nobody reads this (RFC 9293, 3.6.1).
            self.send_reset(context);
            return SegmentOutcome::Ends(CloseReason::Finished);
        }
        if open < segment.payload.len() {
            // The rest came too early; the answer to a probe of the window.
            self.set(fact::ACK_NOW, true);
        }
        if has_fin && !self.has(fact::FIN_KNOWN) {
            self.set(fact::FIN_KNOWN, true);
            self.fin_seq = segment.seq.wrapping_add(segment.payload.len() as u32);
        }
        if seq == self.rcv_nxt || faults.ignores_order || faults.keeps_duplicates && is_before(seq, self.rcv_nxt) {
            self.deliver(context, index, payload, events);
        } else {
            self.keep(context, seq, payload);
        }
        if self.has(fact::FIN_KNOWN) && (self.rcv_nxt == self.fin_seq || faults.takes_early_fin) {
            return self.take_fin(context, index, events);
        }
        SegmentOutcome::Continues
    }

    fn is_receiving(&self) -> bool {
        matches!(self.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2)
    }

    /// Passes on data that is next, and what follows it in the buffer.
    fn deliver<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        payload: &[u8],
        events: &mut E,
    ) {
        if payload.is_empty() {
            return;
        }
        let id = self.id(index);
        let start = self.rcv_nxt;
        events.received(id, payload);
        self.rcv_nxt = start.wrapping_add(payload.len() as u32);
        let had_gap = !self.out_of_order.is_empty();
        let shared = &mut *context.shared;
        while let Some(len) =
            shared.reassembly.pop(&mut self.out_of_order, self.rcv_nxt, |bytes| events.received(id, bytes))
        {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(len);
        }
        shared.counters.bytes_in += u64::from(self.rcv_nxt.wrapping_sub(start));
        debug_assert!(!is_after(self.rcv_nxt, self.rcv_end), "no more than was announced");
        // Every second segment is acknowledged at the end of the turn, and one that fills a gap (RFC 5681, 4.2).
        if had_gap || self.has(fact::ACK_DELAYED) {
            self.set(fact::ACK_NOW, true);
        } else {
            self.set(fact::ACK_DELAYED, true);
            self.ack_at_ms = context.now_ms().wrapping_add(context.shared.config.delayed_ack_ms);
        }
    }

    /// Keeps data that is not next, and says at once what is missing (RFC 5681, 4.2).
    fn keep<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, seq: u32, payload: &[u8]) {
        if !payload.is_empty() {
            let shared = &mut *context.shared;
            shared.counters.out_of_order += 1;
            let blocks_max = shared.config.out_of_order_blocks_per_connection;
            if !shared.reassembly.insert(&mut self.out_of_order, seq, payload, blocks_max) {
                shared.counters.drop(DropReason::OutOfOrderFull);
            }
        }
        self.send_ack(context);
    }

    /// Takes the peer's FIN, which is next (RFC 9293, 3.10.7.4, eighth).
    fn take_fin<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        events: &mut E,
    ) -> SegmentOutcome {
        self.rcv_nxt = self.fin_seq.wrapping_add(1);
        self.set(fact::ACK_NOW, true);
        context.shared.reassembly.clear(&mut self.out_of_order);
        let is_attended = self.is_attended();
        if is_attended {
            events.peer_finished(self.id(index));
        }
        match self.state {
            TcpState::Established => self.state = TcpState::CloseWait,
            TcpState::FinWait1 => self.state = TcpState::Closing,
            TcpState::FinWait2 => {
                self.send_ack(context);
                return SegmentOutcome::EntersTimeWait;
            }
            state => unreachable!("{state:?} has taken the FIN already"),
        }
        SegmentOutcome::Continues
    }

    /// Returns true if a send that was cut short can go on.
    fn has_room<P: FramePool>(&self, context: &mut ConnectionContext<'_, P>) -> bool {
        let room = self.room(context);
        // Enough for a segment, or for what a small window offers.
        room > 0 && (room >= u32::from(self.mss) || room >= self.snd_wnd_max / 2 || self.in_flight() == 0)
    }
}
