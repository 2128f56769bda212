//! Timers of a connection: retransmission (RFC 6298), tail-loss probe (RFC 8985), window probe (RFC 9293, 3.8.6.1).

use super::{ConnectionContext, SegmentOutcome, TcpConnection, TcpState, TimerKind, fact};
use crate::config::StackConfig;
use crate::connection::sack;
use crate::counters::StackCounters;
use crate::events::{CloseReason, Events};
use crate::pool::FramePool;

/// Most doublings of a timeout.
const SHIFT_MAX: u8 = 16;

/// Timeouts in a row before segments fit into packets of [`PACKET_SURE`] bytes.
const LONG_TIMEOUTS: u8 = 1;
/// Timeouts in a row before segments over IPv4 fit into packets of [`PACKET_SURE_V4`] bytes.
const LONG_TIMEOUTS_V4: u8 = 3;
/// Bytes of a packet that every path of IPv6 takes (RFC 8200, 5), and nearly every path of IPv4.
const PACKET_SURE: u16 = 1280;
/// Bytes of a packet that every host takes (RFC 791, 3.1).
const PACKET_SURE_V4: u16 = 576;

impl TcpConnection {
    /// Returns the retransmission timeout with its backoff (RFC 6298, 5.5).
    pub(super) fn timeout_ms(&self, config: &StackConfig) -> u32 {
        let timeout_ms = u64::from(self.round_trip.timeout_ms(config.rto_min_ms, config.rto_max_ms));
        (timeout_ms << self.backoff.min(SHIFT_MAX)).min(u64::from(config.rto_max_ms)) as u32
    }

    /// Returns the time of a tail-loss probe (RFC 8985, 7.2), if one is in order.
    pub(super) fn tail_probe_ms(&self, config: &StackConfig) -> Option<u32> {
        if self.backoff > 0 || self.has(fact::RECOVERY | fact::TIMED_OUT | fact::PROBING) || self.snd_wnd == 0 {
            return None;
        }
        // One frame alone may wait for the peer's delayed acknowledgement.
        let delay_ms = if self.held.len() == 1 { config.peer_ack_delay_ms } else { 0 };
        self.round_trip.smoothed_us().map(|smoothed_us| (2 * smoothed_us).div_ceil(1000) + 1 + delay_ms)
    }

    /// Returns the next time at which the connection needs to run, if any.
    pub(crate) fn next_at_ms(&self) -> Option<u32> {
        let timer = (self.timer != TimerKind::None).then_some(self.timer_at_ms);
        let ack = self.has(fact::ACK_DELAYED).then_some(self.ack_at_ms);
        match (timer, ack) {
            (Some(timer), Some(ack)) => Some(crate::seq::earlier(timer, ack)),
            (timer, ack) => timer.or(ack),
        }
    }

    /// Runs the timers that are due.
    pub(crate) fn run_timers<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        events: &mut E,
    ) -> SegmentOutcome {
        let now_ms = context.now_ms();
        let is_due = |at_ms: u32| now_ms.wrapping_sub(at_ms) as i32 >= 0;
        if self.has(fact::ACK_DELAYED) && is_due(self.ack_at_ms) {
            self.send_ack(context);
        }
        if self.timer == TimerKind::None || !is_due(self.timer_at_ms) {
            return SegmentOutcome::Continues;
        }
        match self.timer {
            TimerKind::Retransmit => self.retransmit(context),
            TimerKind::TailProbe => self.probe_tail(context),
            TimerKind::Persist => self.persist(context, index, events),
            TimerKind::FinWait | TimerKind::TimeWait => SegmentOutcome::Ends(CloseReason::Finished),
            TimerKind::None => SegmentOutcome::Continues,
        }
    }

    /// Ends the connection after too many timeouts. The reset tells a peer that may still be there.
    fn give_up<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) -> SegmentOutcome {
        self.send_reset(context);
        context.shared.counters.timed_out += 1;
        SegmentOutcome::Ends(CloseReason::TimedOut)
    }

    pub(super) fn is_stalled_for_long(&self, now_ms: u32, config: &StackConfig) -> bool {
        self.has(fact::STALLED) && now_ms.wrapping_sub(self.stalled_ms) >= config.zero_window_max_ms
    }

    /// Handles a retransmission timeout: everything in flight counts as lost (RFC 6298, 5.4 to 5.6; RFC 5681, 3.1).
    fn retransmit<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) -> SegmentOutcome {
        assert!(!self.held.is_empty(), "the timer runs for frames in flight");
        let config = &context.shared.config;
        context.shared.counters.shed += u64::from(self.is_expired());
        let timeouts = self.timeouts_in_row();
        let is_stalled = self.snd_wnd == 0 && self.is_stalled_for_long(context.now_ms(), config);
        if timeouts >= config.retransmissions_max || is_stalled {
            return self.give_up(context);
        }
        let is_first = timeouts == 0;
        self.shorten_segments(context);
        self.congestion.timed_out(self.in_flight(), u32::from(self.mss), is_first);
        sack::mark_all_lost(&mut context.shared.held, &self.held);
        self.set(fact::RECOVERY | fact::PROBING, false);
        self.set(fact::TIMED_OUT, true);
        self.recover = self.snd_nxt;
        self.duplicates = 0;
        (self.timeouts, self.timed_out_una) = (timeouts + 1, self.snd_una);
        self.backoff = (self.backoff + 1).min(SHIFT_MAX);
        context.shared.counters.timeouts += 1;
        self.send_lost(context, true);
        self.arm(context, true);
        SegmentOutcome::Continues
    }

    /// Shortens segments if long packets time out again and again. A router on the way may drop them, and its ICMP
    /// message does not reach the stack (RFC 2923, 2.1). Segments stay short.
    fn shorten_segments<P: FramePool>(&mut self, context: &ConnectionContext<'_, P>) {
        let packet_max = match self.timeouts_in_row() {
            LONG_TIMEOUTS_V4.. if self.flow.local.is_v4() => PACKET_SURE_V4,
            LONG_TIMEOUTS.. => PACKET_SURE,
            _ => return,
        };
        let payload_max = self.payload_max(packet_max);
        let Some(first) = context.shared.held.first(&self.held) else { return };
        // A peer without a window may have dropped the segment itself, and a NIC that is down has not sent it.
        if first.payload_len > payload_max && self.snd_wnd > 0 && !context.pool.is_queued(first.frame) {
            self.mss = self.mss.min(payload_max);
        }
    }

    fn probe_tail<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) -> SegmentOutcome {
        self.set(fact::PROBING, true);
        self.probe_ts = self.timestamp(context.now_ms());
        self.recover = self.snd_nxt;
        if self.send_tail(context) {
            context.shared.counters.tail_probes += 1;
        }
        self.arm(context, true);
        debug_assert_eq!(self.timer, TimerKind::Retransmit, "one probe, then the timeout");
        SegmentOutcome::Continues
    }

    /// Handles a timer while no byte is in flight and something waits: for a window, for a frame, or for the driver.
    fn persist<P: FramePool, E: Events>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        index: u32,
        events: &mut E,
    ) -> SegmentOutcome {
        debug_assert!(self.held.is_empty(), "nothing is in flight");
        if self.has(fact::FIN_PENDING) {
            self.send_fin(context);
            // If frames are still missing, the next try waits for the timer.
            self.arm(context, true);
            return SegmentOutcome::Continues;
        }
        if self.snd_wnd > 0 {
            self.set(fact::BLOCKED, false);
            self.arm(context, true);
            if self.is_attended() {
                events.writable(self.id(index));
            }
            return SegmentOutcome::Continues;
        }
        if self.is_stalled_for_long(context.now_ms(), &context.shared.config) {
            return self.give_up(context);
        }
        self.backoff = (self.backoff + 1).min(SHIFT_MAX);
        self.send_probe(context);
        self.arm(context, true);
        SegmentOutcome::Continues
    }

    /// Enters TIME-WAIT, or stays in it for as long again.
    pub(crate) fn wait(&mut self, now_ms: u32, config: &StackConfig) {
        self.state = TcpState::TimeWait;
        self.timer = TimerKind::TimeWait;
        self.timer_at_ms = now_ms.wrapping_add(config.time_wait_ms);
    }

    /// Counts a connection that a peer has reset.
    pub(super) fn reset_by_peer(counters: &mut StackCounters) -> SegmentOutcome {
        counters.resets_received += 1;
        SegmentOutcome::Ends(CloseReason::ResetByPeer)
    }
}
