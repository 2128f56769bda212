//! One connection after its handshake: states, send and receive variables (RFC 9293, 3.3.1).
//!
//! * `connection/receive.rs`: the checks of an arriving segment, its data and its FIN.
//! * `connection/acknowledge.rs`: acknowledgements, loss detection and recovery.
//! * `connection/transmit.rs`: segments with data, FIN or neither; transmissions of lost ones.
//! * `connection/timers.rs`: what happens when time passes.
//! * `connection/held.rs` has the frames that wait for their acknowledgement, `connection/sack.rs` marks those that the
//!   peer has, `connection/reassembly.rs` keeps data that came out of order.
//! * `connection/congestion.rs` and `connection/rtt.rs`: how much to send, and how long to wait.

mod acknowledge;
mod congestion;
pub(crate) mod held;
pub(crate) mod reassembly;
mod receive;
mod rtt;
mod sack;
mod timers;
mod transmit;

use crate::config::StackConfig;
use crate::connection::congestion::Congestion;
use crate::connection::held::{HeldFrames, HeldQueue, RETRANSMITTED};
use crate::connection::reassembly::{OutOfOrder, Reassembly};
use crate::connection::rtt::RoundTrip;
use crate::counters::StackCounters;
use crate::events::{CloseReason, ConnectionId};
use crate::headers::address::Flow;
use crate::headers::options::{TIMESTAMPS_LEN, Timestamps};
use crate::headers::segment::{self, PAYLOAD_AT, SegmentHeader};
use crate::next_hop::NextHop;
use crate::pool::{FRAME_LEN, FramePool};

/// Smallest segment size that a peer can ask for: below it headers would be most of what is sent.
const MSS_MIN: u16 = 88;

/// The shortest timeout in microseconds, as far as the age of a frame counts it.
const TIMEOUT_LEAST_US: u32 = crate::config::RTO_MIN_MS * 1_000;

/// Most doublings of the timeout that outlast an acknowledgement.
const DOUBLINGS_KEPT_MAX: u8 = 3;

/// States of a connection (RFC 9293, 3.3.2). SYN-RECEIVED is an entry of the SYN cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpState {
    Established,
    FinWait1,
    FinWait2,
    Closing,
    TimeWait,
    CloseWait,
    LastAck,
    Closed,
}

/// The purpose of the timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerKind {
    None,
    Retransmit,
    TailProbe,
    /// Something waits for window, a frame or room: probes a window of zero.
    Persist,
    FinWait,
    TimeWait,
}

/// Facts about a connection, one bit each.
pub(crate) mod fact {
    /// Both sides send timestamps.
    pub(crate) const TIMESTAMPS: u16 = 1 << 0;
    /// The peer understands selective acknowledgements.
    pub(crate) const SACK: u16 = 1 << 1;
    /// An acknowledgement waits for data to carry it.
    pub(crate) const ACK_DELAYED: u16 = 1 << 2;
    /// An acknowledgement is due at the end of this turn.
    pub(crate) const ACK_NOW: u16 = 1 << 3;
    /// The connection is in the list of acknowledgements that are due.
    pub(crate) const IS_LISTED: u16 = 1 << 4;
    /// `send` has taken less than it was given.
    pub(crate) const BLOCKED: u16 = 1 << 5;
    /// The driver has closed the connection and hears no more of it.
    pub(crate) const ORPHAN: u16 = 1 << 6;
    /// Our FIN is to be sent once there is a frame for it.
    pub(crate) const FIN_PENDING: u16 = 1 << 7;
    /// The place of the peer's FIN is known.
    pub(crate) const FIN_KNOWN: u16 = 1 << 8;
    /// Fast recovery.
    pub(crate) const RECOVERY: u16 = 1 << 9;
    /// Recovery after a timeout.
    pub(crate) const TIMED_OUT: u16 = 1 << 10;
    /// A tail-loss probe is in flight.
    pub(crate) const PROBING: u16 = 1 << 11;
    /// The driver takes no more than what was announced.
    pub(crate) const PAUSED: u16 = 1 << 12;
    /// Frames come from the next hop directly, and answers follow them.
    pub(crate) const REFLECTS: u16 = 1 << 13;
    /// The window is zero, or has opened without progress. `stalled_ms` is the time of the last progress, or of the
    /// first zero since then.
    pub(crate) const STALLED: u16 = 1 << 14;
}

/// State that connections share.
pub(crate) struct Shared {
    pub(crate) config: StackConfig,
    pub(crate) counters: StackCounters,
    pub(crate) held: HeldFrames,
    /// Number of held frames above which frames are short.
    pub(crate) short_from: u32,
    pub(crate) reassembly: Reassembly,
}

/// Everything that a connection needs of its surroundings.
pub(crate) struct ConnectionContext<'a, P> {
    pub(crate) now_us: u64,
    pub(crate) pool: &'a mut P,
    pub(crate) shared: &'a mut Shared,
}

impl<P: FramePool> ConnectionContext<'_, P> {
    pub(crate) const fn now_ms(&self) -> u32 {
        (self.now_us / 1000) as u32
    }

    /// Sends a segment without data, and keeps nothing. Returns false if there is no frame or no room in the ring.
    pub(crate) fn send_bare(&mut self, head: &SegmentHeader) -> bool {
        let counters = &mut self.shared.counters;
        let Some(frame) = self.pool.take() else {
            counters.no_frame += 1;
            return false;
        };
        let offloads = self.shared.config.offloads_checksums;
        let (start, len) = segment::build(self.pool.bytes(frame), head, 0, offloads);
        let is_sent = self.pool.send(frame, start, len);
        self.pool.release(frame);
        counters.frames_out += u64::from(is_sent);
        counters.ring_full += u64::from(!is_sent);
        is_sent
    }
}

/// The outcome of a segment or a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentOutcome {
    /// The connection continues.
    Continues,
    /// The connection waits for old segments to die out.
    EntersTimeWait,
    /// The connection is over.
    Ends(CloseReason),
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    pub(crate) flow: Flow,
    pub(crate) hop: NextHop,
    pub(crate) reflects: bool,
    /// Initial sequence number of the client.
    pub(crate) irs: u32,
    /// Our initial sequence number.
    pub(crate) iss: u32,
    pub(crate) peer_mss: u16,
    /// Window scale of the client, if both sides scale.
    pub(crate) peer_scale: Option<u8>,
    pub(crate) is_sack_permitted: bool,
    /// Last timestamp of the client, if both sides send them.
    pub(crate) ts_recent: Option<u32>,
    pub(crate) ts_offset: u32,
}

/// The state of one TCP connection: sequence numbers, windows, timers and held frames.
pub(crate) struct TcpConnection {
    pub(crate) flow: Flow,
    pub(crate) hop: NextHop,
    pub(crate) state: TcpState,
    pub(crate) timer: TimerKind,
    facts: u16,
    pub(crate) generation: u32,

    // Sending.
    iss: u32,
    snd_una: u32,
    snd_nxt: u32,
    snd_wnd: u32,
    /// Largest window that the peer has announced.
    snd_wnd_max: u32,
    snd_wl1: u32,
    snd_wl2: u32,
    /// End of recovery, of either kind.
    recover: u32,
    /// Our timestamp in the tail-loss probe.
    probe_ts: u32,
    last_sent_ms: u32,
    stalled_ms: u32,
    congestion: Congestion,
    round_trip: RoundTrip,
    held: HeldQueue,
    mss: u16,
    duplicates: u8,
    /// Doublings of the timeout: by timeouts and probes, until there is a round trip again.
    backoff: u8,
    /// Timeouts in a row while `timed_out_una` was the oldest byte in flight.
    timeouts: u8,
    timed_out_una: u32,

    // Receiving.
    snd_scale: u8,
    rcv_scale: u8,
    rcv_nxt: u32,
    /// End of the announced window.
    rcv_end: u32,
    last_ack_sent: u32,
    fin_seq: u32,
    ts_recent: u32,
    ts_recent_ms: u32,
    ts_offset: u32,
    last_challenge_ms: u32,
    out_of_order: OutOfOrder,

    /// Time of the timer, unless it is [`TimerKind::None`].
    pub(crate) timer_at_ms: u32,
    /// Time at which a delayed acknowledgement is due.
    pub(crate) ack_at_ms: u32,
}

/// Returns the shift with which a receive window fits into 16 bits.
pub(crate) fn scale_for(window: u32) -> u8 {
    (0..14).find(|scale| window >> scale <= u32::from(u16::MAX)).unwrap_or(14)
}

/// Returns the longest segment in a packet of `mtu` bytes, with these bytes of IP and TCP headers.
fn segment_max(mtu: u16, headers: u16) -> u16 {
    mtu.saturating_sub(headers).clamp(MSS_MIN, (FRAME_LEN - PAYLOAD_AT) as u16)
}

impl TcpConnection {
    /// Returns an established connection. Its first segment sets the send window.
    pub(crate) fn new(handshake: &Handshake, generation: u32, config: &StackConfig, now_ms: u32) -> TcpConnection {
        let has_timestamps = handshake.ts_recent.is_some();
        let headers = if handshake.flow.local.is_v4() { 40 } else { 60 };
        let options = if has_timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        let mss = handshake.peer_mss.clamp(MSS_MIN, segment_max(handshake.hop.mtu, headers)) - options;
        let facts = [
            (has_timestamps, fact::TIMESTAMPS),
            (handshake.is_sack_permitted, fact::SACK),
            (handshake.reflects, fact::REFLECTS),
        ];
        let rcv_scale = if handshake.peer_scale.is_some() { scale_for(config.receive_window) } else { 0 };
        let (snd_nxt, rcv_nxt) = (handshake.iss.wrapping_add(1), handshake.irs.wrapping_add(1));
        TcpConnection {
            flow: handshake.flow,
            hop: handshake.hop,
            state: TcpState::Established,
            timer: TimerKind::None,
            facts: facts.iter().filter(|(holds, _)| *holds).map(|(_, bit)| bit).sum(),
            generation,
            iss: handshake.iss,
            snd_una: snd_nxt,
            snd_nxt,
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl1: handshake.irs,
            snd_wl2: handshake.iss,
            recover: snd_nxt,
            probe_ts: 0,
            last_sent_ms: now_ms,
            stalled_ms: 0,
            congestion: Congestion::new(u32::from(mss), config.initial_window_segments),
            round_trip: RoundTrip::default(),
            held: HeldQueue::EMPTY,
            mss,
            duplicates: 0,
            backoff: 0,
            timeouts: 0,
            timed_out_una: snd_nxt,
            snd_scale: handshake.peer_scale.unwrap_or(0),
            rcv_scale,
            rcv_nxt,
            // The answer to the SYN has announced this much, not scaled.
            rcv_end: rcv_nxt.wrapping_add(config.receive_window.min(u32::from(u16::MAX))),
            last_ack_sent: rcv_nxt,
            fin_seq: 0,
            ts_recent: handshake.ts_recent.unwrap_or(0),
            ts_recent_ms: now_ms,
            ts_offset: handshake.ts_offset,
            last_challenge_ms: now_ms.wrapping_sub(1 << 20),
            out_of_order: OutOfOrder::EMPTY,
            timer_at_ms: 0,
            ack_at_ms: 0,
        }
    }

    /// Sends to another next hop from now on, unless answers go where frames come from. New segments become shorter if
    /// its packets do; they never become longer.
    pub(crate) fn set_hop(&mut self, hop: NextHop) {
        self.mss = self.mss.min(self.payload_max(hop.mtu));
        if !self.has(fact::REFLECTS) {
            self.hop = hop;
        }
    }

    /// Returns the most bytes of payload in a packet of `mtu` bytes.
    fn payload_max(&self, mtu: u16) -> u16 {
        let headers = if self.flow.local.is_v4() { 40 } else { 60 };
        let options = if self.has(fact::TIMESTAMPS) { TIMESTAMPS_LEN as u16 } else { 0 };
        segment_max(mtu, headers) - options
    }

    /// Takes the round trip of the handshake.
    pub(crate) fn sample_round_trip(&mut self, sample_us: u32) {
        self.round_trip.sample(sample_us);
    }

    pub(crate) const fn has(&self, fact: u16) -> bool {
        self.facts & fact != 0
    }

    pub(crate) const fn set(&mut self, fact: u16, holds: bool) {
        if holds {
            self.facts |= fact;
        } else {
            self.facts &= !fact;
        }
    }

    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        ConnectionId { index, generation: self.generation }
    }

    /// Returns true if the driver still hears of the connection.
    pub(crate) fn is_attended(&self) -> bool {
        !self.has(fact::ORPHAN) && !matches!(self.state, TcpState::TimeWait | TcpState::Closed)
    }

    /// Returns true while data may be sent.
    pub(crate) fn can_send(&self) -> bool {
        matches!(self.state, TcpState::Established | TcpState::CloseWait) && !self.has(fact::FIN_PENDING)
    }

    /// Returns bytes and FIN in flight.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }

    /// Returns how many bytes the peer has acknowledged since the start; wraps at 4 GiB.
    pub(crate) fn acknowledged(&self) -> u32 {
        self.snd_una.wrapping_sub(self.iss).wrapping_sub(1)
    }

    pub(crate) fn snd_nxt(&self) -> u32 {
        self.snd_nxt
    }

    pub(crate) fn rcv_nxt(&self) -> u32 {
        self.rcv_nxt
    }

    pub(crate) fn ts_recent(&self) -> Option<u32> {
        self.has(fact::TIMESTAMPS).then_some(self.ts_recent)
    }

    fn timestamp(&self, now_ms: u32) -> u32 {
        now_ms.wrapping_add(self.ts_offset)
    }

    fn timestamps(&self, now_ms: u32) -> Option<Timestamps> {
        let pair = Timestamps { value: self.timestamp(now_ms), echo: self.ts_recent };
        self.has(fact::TIMESTAMPS).then_some(pair)
    }

    /// Returns the number of frames that wait for their acknowledgement.
    pub(crate) const fn held_len(&self) -> u32 {
        self.held.len()
    }

    /// Returns for how many microseconds the oldest frame has waited for its acknowledgement. A frame that was sent
    /// again has waited for a timeout before. Doublings that are kept postpone the first timeout, and that time does not
    /// count: the frame may be lost, and its client waits for it.
    pub(crate) fn oldest_held_us(&self, held: &HeldFrames, now_us: u32) -> Option<u32> {
        let first = held.first(&self.held)?;
        let waited_us = now_us.wrapping_sub(first.sent_us);
        if first.has(RETRANSMITTED) {
            return Some(waited_us.saturating_add(u32::from(self.timeouts_in_row()) * TIMEOUT_LEAST_US));
        }
        let first_timeout_us = TIMEOUT_LEAST_US << self.backoff.min(DOUBLINGS_KEPT_MAX);
        Some(waited_us.saturating_sub(first_timeout_us - TIMEOUT_LEAST_US))
    }

    /// Returns the number of timeouts since the last byte was acknowledged.
    pub(crate) const fn timeouts_in_row(&self) -> u8 {
        if self.timed_out_una == self.snd_una { self.timeouts } else { 0 }
    }

    /// Returns true if the connection is given up at its next timer.
    pub(crate) const fn is_expired(&self) -> bool {
        self.timeouts_in_row() == u8::MAX
    }

    /// Gives the connection up at its next timer, which is due at once. Returns false if that is so already.
    pub(crate) fn expire(&mut self, now_ms: u32) -> bool {
        debug_assert!(!self.held.is_empty(), "the timer runs for frames in flight");
        if self.is_expired() {
            return false;
        }
        (self.timer, self.timer_at_ms) = (TimerKind::Retransmit, now_ms);
        (self.timeouts, self.timed_out_una) = (u8::MAX, self.snd_una);
        true
    }

    /// Gives everything back that the connection holds.
    pub(crate) fn release<P: FramePool>(&mut self, context: &mut ConnectionContext<'_, P>) {
        while let Some(record) = context.shared.held.pop(&mut self.held) {
            context.pool.release(record.frame);
        }
        context.shared.reassembly.clear(&mut self.out_of_order);
        self.timer = TimerKind::None;
        self.facts &= fact::TIMESTAMPS | fact::IS_LISTED | fact::REFLECTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_takes_at_most_256_bytes() {
        // Two slots of the flow table, and a timer.
        let around = 2 * size_of::<u64>() + 16;
        let size = size_of::<TcpConnection>();
        assert!(size + around <= 256, "{size} and {around} bytes");
    }

    #[test]
    fn window_scale_fits() {
        assert_eq!(scale_for(65_535), 0);
        assert_eq!(scale_for(65_536), 1);
        assert_eq!(scale_for(256 * 1024), 3);
        assert_eq!(scale_for(u32::MAX), 14);
    }
}
