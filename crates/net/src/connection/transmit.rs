//! Segments of a connection: data, FIN, acknowledgements, and transmissions again.

use super::{ConnectionContext, TcpConnection, TcpState, TimerKind, fact};
use crate::connection::held::{self, HeldFrame};
use crate::connection::sack;
use crate::headers::options::{OptionBytes, Timestamps};
use crate::headers::segment::{self, PAYLOAD_AT, SegmentHeader, TcpFlags};
use crate::pool::FramePool;
use crate::seq::{distance, is_after, later};

impl TcpConnection {
    /// Returns the header of a segment. It carries the acknowledgement, and so settles one that is due.
    fn head(&mut self, now_ms: u32, receive_window: u32, seq: u32, flags: TcpFlags) -> SegmentHeader {
        let options =
            self.timestamps(now_ms).map_or(OptionBytes::NONE, |pair: Timestamps| OptionBytes::NONE.timestamps(pair));
        self.set(fact::ACK_NOW | fact::ACK_DELAYED, false);
        self.last_ack_sent = self.rcv_nxt;
        let window = self.announce(receive_window);
        let flags = flags.with(TcpFlags::ACK);
        SegmentHeader { flow: self.flow, hop: self.hop, seq, ack: self.rcv_nxt, flags, window, options }
    }

    /// Returns the window field, and remembers the end that it announces. The end never moves back (RFC 9293, 3.8.6).
    fn announce(&mut self, receive_window: u32) -> u16 {
        let open = self.rcv_end.wrapping_sub(self.rcv_nxt);
        let wanted = if self.has(fact::PAUSED) { open } else { open.max(receive_window) };
        let field = wanted.div_ceil(1 << self.rcv_scale).min(u32::from(u16::MAX));
        self.rcv_end = later(self.rcv_end, self.rcv_nxt.wrapping_add(field << self.rcv_scale));
        field as u16
    }

    /// Returns how many bytes may be sent now: what window, congestion window and frames leave.
    pub(super) fn room<P: FramePool>(&self, context: &mut ConnectionContext<'_, P>) -> u32 {
        let shared = &*context.shared;
        let held = self.held.len();
        let is_short = shared.held.len() > shared.short_from;
        if held >= shared.config.frames_per_connection_max || is_short && shared.lacks_frames(held) {
            return 0;
        }
        let window = self.snd_wnd.saturating_sub(self.in_flight());
        window.min(self.congestion.window().saturating_sub(self.pipe(context)))
    }

    /// Returns the bytes in the network, as far as acknowledgements tell.
    pub(super) fn pipe<P: FramePool>(&self, context: &mut ConnectionContext<'_, P>) -> u32 {
        if self.duplicates == 0 && !self.has(fact::RECOVERY | fact::TIMED_OUT) {
            return self.in_flight();
        }
        let pipe = sack::pipe(&mut context.shared.held, &self.held);
        // Without selective acknowledgements each duplicate stands for a segment that has arrived.
        let arrived = if self.has(fact::SACK) { 0 } else { u32::from(self.duplicates) * u32::from(self.mss) };
        pipe.saturating_sub(arrived)
    }

    /// Sends as much of `bytes` as there is room for, and the FIN after the last one if `fin` is set. Returns the
    /// number of bytes taken.
    pub(crate) fn send<P: FramePool>(
        &mut self,
        context: &mut ConnectionContext<'_, P>,
        bytes: &[u8],
        fin: bool,
    ) -> usize {
        assert!(self.can_send(), "{:?}", self.state);
        let now_ms = context.now_ms();
        let mss = u32::from(self.mss);
        if self.held.is_empty() && now_ms.wrapping_sub(self.last_sent_ms) > self.timeout_ms(&context.shared.config) {
            self.congestion.restart(mss, context.shared.config.initial_window_segments);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.room(context);
            let len = rest.len().min(mss as usize).min(room as usize);
            // A small piece of more waits for room, unless nothing is in flight (RFC 9293, 3.8.6.2.1).
            let is_small = len < mss as usize && len < rest.len() && len < self.snd_wnd_max as usize / 2;
            if len == 0 || is_small && self.in_flight() > 0 {
                break;
            }
            let Some(frame) = context.pool.take() else {
                context.shared.counters.no_frame += 1;
                break;
            };
            context.pool.bytes(frame)[PAYLOAD_AT..PAYLOAD_AT + len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            let is_last = fin && rest.is_empty();
            self.push(context, frame, len as u16, is_last);
            if is_last {
                self.finish();
            }
            context.shared.counters.bytes_out += len as u64;
        }
        if !rest.is_empty() {
            self.set(fact::BLOCKED, true);
        } else if fin && self.can_send() {
            self.send_fin(context);
        }
        self.arm(context, self.timer == TimerKind::TailProbe);
        bytes.len() - rest.len()
    }

    /// Sends a frame for the first time, and keeps it until it is acknowledged.
    fn push<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, frame: u32, payload_len: u16, fin: bool) {
        let seq = self.snd_nxt;
        let record = HeldFrame::new(frame, seq, payload_len, fin, context.now_us as u32);
        context.shared.held.push(&mut self.held, record);
        self.snd_nxt = record.end();
        self.emit(context, &record);
        self.last_sent_ms = context.now_ms();
    }

    /// Builds the headers of a held frame and hands it to the NIC. A full ring is a loss of our own: a timer repairs
    /// it.
    fn emit<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, record: &HeldFrame) {
        let push = if record.payload_len > 0 { TcpFlags::PSH } else { TcpFlags::default() };
        let flags = if record.has(held::FIN) { push.with(TcpFlags::FIN) } else { push };
        let config = &context.shared.config;
        let head = self.head(context.now_ms(), config.receive_window, record.seq, flags);
        let bytes = context.pool.bytes(record.frame);
        let (start, len) = segment::build(bytes, &head, usize::from(record.payload_len), config.offloads_checksums);
        let is_sent = context.pool.send(record.frame, start, len);
        context.shared.counters.frames_out += u64::from(is_sent);
        context.shared.counters.ring_full += u64::from(!is_sent);
    }

    /// Ends our direction. Without a frame the FIN is sent later.
    pub(crate) fn send_fin<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) {
        debug_assert!(matches!(self.state, TcpState::Established | TcpState::CloseWait), "{:?}", self.state);
        let is_full = context.shared.held.is_full();
        let frame = if is_full { None } else { context.pool.take() };
        self.set(fact::FIN_PENDING, frame.is_none());
        if let Some(frame) = frame {
            self.push(context, frame, 0, true);
            self.finish();
        } else {
            context.shared.counters.no_frame += 1;
        }
        self.arm(context, false);
    }

    /// Moves to the state after our FIN (RFC 9293, 3.10.4).
    fn finish(&mut self) {
        self.state = match self.state {
            TcpState::Established => TcpState::FinWait1,
            TcpState::CloseWait => TcpState::LastAck,
            state => unreachable!("{state:?} has sent its FIN already"),
        };
        self.set(fact::BLOCKED | fact::FIN_PENDING, false);
    }

    /// Sends an acknowledgement without data, with what came out of order (RFC 2018, 3).
    pub(crate) fn send_ack<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) {
        let window = context.shared.config.receive_window;
        let mut head = self.head(context.now_ms(), window, self.snd_nxt, TcpFlags::default());
        if self.has(fact::SACK) && !self.out_of_order.is_empty() {
            let mut ranges = [(0, 0); 4];
            let found = context.shared.reassembly.ranges(&self.out_of_order, &mut ranges);
            head.options = head.options.sack(&ranges[..found]);
        }
        context.shared.counters.bare_acks += 1;
        context.send_bare(&head);
    }

    /// Sends a segment with an old sequence number, which the peer must acknowledge: the probe of a window.
    pub(super) fn send_probe<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) {
        let window = context.shared.config.receive_window;
        let head = self.head(context.now_ms(), window, self.snd_una.wrapping_sub(1), TcpFlags::default());
        context.shared.counters.window_probes += 1;
        context.send_bare(&head);
    }

    /// Sends a reset in the place of the next byte.
    pub(crate) fn send_reset<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) {
        let window = context.shared.config.receive_window;
        let head = self.head(context.now_ms(), window, self.snd_nxt, TcpFlags::RST);
        context.shared.counters.resets_sent_abort += 1;
        context.send_bare(&head);
    }

    /// Sends lost frames again as far as the congestion window allows, the first in any case if `force` is set.
    pub(super) fn send_lost<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, force: bool) {
        let mut pipe = self.pipe(context);
        let mut is_forced = force;
        let window = self.congestion.window();
        // Bounded by the frames of a connection: each round clears a mark.
        while is_forced || pipe < window {
            let mut found = None;
            let pool = &*context.pool;
            context.shared.held.visit(&self.held, |record| {
                // A frame that the NIC has not sent yet is not lost.
                if record.has(held::LOST) && !pool.is_queued(record.frame) {
                    record.marks = record.marks & !held::LOST | held::RETRANSMITTED;
                    record.sent_us = context.now_us as u32;
                    found = Some(*record);
                }
                found.is_none()
            });
            let Some(record) = found else { return };
            self.send_again(context, &record);
            pipe += record.len();
            is_forced = false;
        }
    }

    /// Sends the last frame again as a tail-loss probe (RFC 8985, 7.3). Returns false if the NIC still has it.
    pub(super) fn send_tail<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) -> bool {
        let mut last = None;
        context.shared.held.visit(&self.held, |record| {
            last = Some(*record);
            true
        });
        let Some(last) = last.filter(|last| !context.pool.is_queued(last.frame)) else { return false };
        context.shared.held.visit(&self.held, |record| {
            record.marks |= if record.seq == last.seq { held::RETRANSMITTED } else { 0 };
            true
        });
        self.send_again(context, &last);
        true
    }

    fn send_again<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>, record: &HeldFrame) {
        debug_assert!(is_after(record.end(), self.snd_una), "it is not acknowledged");
        context.shared.counters.retransmissions += 1;
        if context.shared.config.faults().never_retransmits {
            return;
        }
        let mut record = self.without_acknowledged(context, record);
        if record.payload_len > self.mss {
            // The next hop takes less than before. What is left follows once this is acknowledged.
            record.payload_len = self.mss;
            record.marks &= !held::FIN;
        }
        self.emit(context, &record);
    }

    /// Cuts off the bytes of the oldest frame that are acknowledged already: some peers take a FIN only from a segment
    /// that begins where their window does.
    fn without_acknowledged<P: FramePool>(
        &self,
        context: &mut ConnectionContext<'_, P>,
        record: &HeldFrame,
    ) -> HeldFrame {
        let old = distance(record.seq, self.snd_una).min(u32::from(record.payload_len)) as u16;
        let mut record = *record;
        if old > 0 {
            let end = PAYLOAD_AT + usize::from(record.payload_len);
            context.pool.bytes(record.frame).copy_within(PAYLOAD_AT + usize::from(old)..end, PAYLOAD_AT);
            record.seq = self.snd_una;
            record.payload_len -= old;
            context.shared.held.visit(&self.held, |first| {
                (first.seq, first.payload_len) = (record.seq, record.payload_len);
                false
            });
        }
        record
    }

    /// Sets the timer for what is in flight, or for what waits; clears it if there is neither. A timer that runs for
    /// this already continues, unless `restarts` is set (RFC 6298, 5.1 and 5.3).
    pub(crate) fn arm<P: FramePool>(&mut self, context: &ConnectionContext<'_, P>, restarts: bool) {
        let is_in_flight = !self.held.is_empty();
        if !restarts && is_in_flight && matches!(self.timer, TimerKind::Retransmit | TimerKind::TailProbe) {
            return;
        }
        let config = &context.shared.config;
        let has_more = is_in_flight || self.has(fact::BLOCKED | fact::FIN_PENDING);
        let timeout_ms = if has_more { self.timeout_ms(config) } else { 0 };
        let (kind, after_ms) = if is_in_flight {
            match self.tail_probe_ms(config).filter(|probe_ms| *probe_ms < timeout_ms) {
                Some(probe_ms) => (TimerKind::TailProbe, probe_ms),
                None => (TimerKind::Retransmit, timeout_ms),
            }
        } else if self.has(fact::BLOCKED | fact::FIN_PENDING) {
            (TimerKind::Persist, timeout_ms)
        } else if self.state == TcpState::FinWait2 && self.has(fact::ORPHAN) {
            (TimerKind::FinWait, config.fin_wait_ms)
        } else {
            (TimerKind::None, 0)
        };
        if restarts || kind != self.timer {
            self.timer = kind;
            self.timer_at_ms = context.now_ms().wrapping_add(after_ms);
        }
    }
}
