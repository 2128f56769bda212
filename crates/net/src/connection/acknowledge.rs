//! Acknowledgements: what they release, what they show as lost, and how fast sending continues.

use super::{ConnectionContext, DOUBLINGS_KEPT_MAX, TcpConnection, TcpState, fact};
use crate::connection::held::RETRANSMITTED;
use crate::connection::sack::{self, DUPLICATES};
use crate::headers::segment::{TcpFlags, TcpSegment};
use crate::pool::FramePool;
use crate::seq::{is_after, is_before};

/// Age of the oldest echoed timestamp that gives a round trip.
const ECHO_AGE_MAX_MS: u32 = 60_000;
/// Most timeouts in a row that count for a peer that answers without a window.
const STALLED_TIMEOUTS_MAX: u8 = 4;

impl TcpConnection {
    /// Returns true if an acknowledgement is neither ahead of what was sent nor of long ago (RFC 5961, 5.2).
    pub(super) fn is_acceptable_ack(&self, ack: u32) -> bool {
        let oldest = self.snd_una.wrapping_sub(self.snd_wnd_max);
        !is_after(ack, self.snd_nxt) && !is_before(ack, oldest)
    }

    /// Takes an acceptable acknowledgement (RFC 9293, 3.10.7.4, fifth).
    pub(super) fn take_ack<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, segment: &TcpSegment<'_>) {
        let window = u32::from(segment.window) << self.snd_scale;
        let blocks = segment.options.sack();
        let received = if blocks.is_empty() || !self.has(fact::SACK) {
            0
        } else {
            sack::mark_received(&mut context.shared.held, &self.held, blocks, self.snd_una, self.snd_nxt)
        };
        let advances = is_after(segment.ack, self.snd_una);
        if advances {
            self.advance(context, segment);
        } else if segment.ack == self.snd_una && !self.held.is_empty() {
            // A duplicate (RFC 5681, 2; RFC 6675, 2).
            let is_empty = segment.payload.is_empty() && !segment.flags.has(TcpFlags::FIN);
            if is_empty && (received > 0 || window == self.snd_wnd && !self.has(fact::SACK)) {
                self.duplicates = self.duplicates.saturating_add(1);
            }
        }
        self.update_window(context, segment, window, advances);
        if !self.held.is_empty() && (self.duplicates > 0 || received > 0 || self.has(fact::RECOVERY | fact::TIMED_OUT))
        {
            // A partial acknowledgement shows the next loss (RFC 6582, 3.2; RFC 6675, 5).
            let is_partial = advances && self.has(fact::RECOVERY);
            // So does one within a frame that was sent again in parts.
            let first = context.shared.held.first(&self.held);
            let is_within = advances
                && self.has(fact::TIMED_OUT)
                && first.is_some_and(|first| is_after(self.snd_una, first.seq) && first.payload_len > self.mss);
            if is_partial || is_within {
                sack::mark_first_lost(&mut context.shared.held, &self.held, is_within || !self.has(fact::SACK));
            }
            self.recover_losses(context, is_partial || is_within);
        }
        self.arm(context, advances);
        debug_assert_eq!(
            self.held.is_empty(),
            self.snd_una == self.snd_nxt,
            "frames are held while bytes are in flight"
        );
    }

    /// Releases what is acknowledged.
    fn advance<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, segment: &TcpSegment<'_>) {
        let ack = segment.ack;
        let acked = ack.wrapping_sub(self.snd_una);
        let was_limiting = 2 * u64::from(self.in_flight()) >= u64::from(self.congestion.window());
        self.snd_una = ack;
        if self.has(fact::STALLED) {
            // A peer may drop what no longer fits into its memory, and take it piece by piece later.
            self.stalled_ms = context.now_ms();
        }
        let mut sample_us = None;
        while let Some(first) = context.shared.held.first(&self.held) {
            if is_after(first.end(), ack) {
                break;
            }
            let record = context.shared.held.pop(&mut self.held).expect("there is a first frame");
            if !record.has(RETRANSMITTED) {
                sample_us = Some((context.now_us as u32).wrapping_sub(record.sent_us));
            }
            if !context.shared.config.faults().leaks_frames {
                context.pool.release(record.frame);
            }
        }
        if let Some(sample_us) = sample_us {
            self.round_trip.sample(sample_us);
            self.backoff = 0;
        } else if self.backoff > 0 {
            self.sample_echo(context.now_ms(), segment);
        }
        self.duplicates = 0;
        self.end_probe(segment);
        if self.has(fact::RECOVERY | fact::TIMED_OUT) && !is_before(ack, self.recover) {
            self.set(fact::RECOVERY | fact::TIMED_OUT, false);
        }
        if !self.has(fact::RECOVERY) {
            self.congestion.acknowledged(acked, u32::from(self.mss), was_limiting);
        }
    }

    /// Measures the round trip of retransmitted bytes with the timestamp that the peer echoes (RFC 7323, 4.1). Without an
    /// echo, the timeout stays longer until bytes arrive that were sent only once (Karn; RFC 6298, 3 and 5). Otherwise a
    /// path that has become slower than the timeout would never be measured.
    #[cold]
    fn sample_echo(&mut self, now_ms: u32, segment: &TcpSegment<'_>) {
        let echo = segment.options.timestamps.filter(|_| self.has(fact::TIMESTAMPS)).map(|timestamps| timestamps.echo);
        let passed_ms = echo.map(|echo| self.timestamp(now_ms).wrapping_sub(echo));
        match passed_ms.filter(|passed_ms| *passed_ms <= ECHO_AGE_MAX_MS) {
            Some(passed_ms) => {
                self.round_trip.sample(passed_ms * 1000);
                self.backoff = 0;
            }
            None => self.backoff = self.backoff.min(DOUBLINGS_KEPT_MAX),
        }
    }

    /// Ends a tail-loss probe whose bytes have arrived. If the peer echoes the probe, the probe has repaired a loss,
    /// and the congestion window reacts (RFC 8985, 7.4).
    fn end_probe(&mut self, segment: &TcpSegment<'_>) {
        if !self.has(fact::PROBING) || is_before(self.snd_una, self.recover) {
            return;
        }
        self.set(fact::PROBING, false);
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        if echo.is_none_or(|echo| !is_before(echo, self.probe_ts)) {
            let window = self.congestion.window();
            self.congestion.lost(window, u32::from(self.mss));
        }
    }

    /// Takes the window of a segment that is newer than the last one (RFC 9293, 3.10.7.4).
    fn update_window<P>(
        &mut self,
        context: &ConnectionContext<'_, P>,
        segment: &TcpSegment<'_>,
        window: u32,
        advances: bool,
    ) {
        let is_newer =
            is_before(self.snd_wl1, segment.seq) || self.snd_wl1 == segment.seq && !is_after(self.snd_wl2, segment.ack);
        if is_after(self.snd_una, segment.ack) || !is_newer {
            return;
        }
        self.snd_wnd = window;
        self.snd_wnd_max = self.snd_wnd_max.max(window);
        (self.snd_wl1, self.snd_wl2) = (segment.seq, segment.ack);
        if window == 0 {
            self.note_stall(context);
        } else if self.has(fact::STALLED) && (advances || self.held.is_empty()) {
            // A window that opens while the same bytes stay in flight proves nothing.
            self.set(fact::STALLED, false);
            self.backoff = 0;
        }
    }

    /// Notes that there is no window. A peer that says so is there, so the time without a window is what counts, not
    /// timeouts. Progress begins that time again; a window that opens and closes without progress does not. A connection
    /// that is given up stays so.
    #[cold]
    fn note_stall<P>(&mut self, context: &ConnectionContext<'_, P>) {
        let now_ms = (context.now_us / 1000) as u32;
        if !self.has(fact::STALLED) {
            self.set(fact::STALLED, true);
            self.stalled_ms = now_ms;
        }
        if !self.is_expired() && !self.is_stalled_for_long(now_ms, &context.shared.config) {
            self.backoff = self.backoff.min(STALLED_TIMEOUTS_MAX);
            self.timeouts = self.timeouts.min(STALLED_TIMEOUTS_MAX);
        }
    }

    /// Looks for losses, and sends what is lost (RFC 6675, 5; without selective acknowledgements RFC 6582).
    fn recover_losses<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, is_partial: bool) {
        let mss = u32::from(self.mss);
        let held = &mut context.shared.held;
        let is_first_lost = self.duplicates >= DUPLICATES && sack::mark_first_lost(held, &self.held, false);
        let are_more_lost = self.has(fact::SACK) && sack::mark_lost(held, &self.held, mss);
        let mut force = is_partial;
        if (is_first_lost || are_more_lost) && !self.has(fact::RECOVERY | fact::TIMED_OUT) {
            self.congestion.lost(self.in_flight(), mss);
            self.set(fact::RECOVERY, true);
            self.set(fact::PROBING, false);
            self.recover = self.snd_nxt;
            force = true;
        }
        let before = context.shared.counters.retransmissions;
        self.send_lost(context, force);
        if self.has(fact::RECOVERY) {
            context.shared.counters.fast_retransmissions += context.shared.counters.retransmissions - before;
        }
    }

    /// Returns true if our FIN is acknowledged.
    pub(super) fn is_fin_acknowledged(&self) -> bool {
        let has_sent = matches!(self.state, TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck);
        has_sent && self.snd_una == self.snd_nxt
    }
}
