//! Counters of a stack: plain numbers of one thread, which the driver copies to where others read them.

/// A reason to drop a received frame or segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// The frame ends before a header or packet does.
    Truncated,
    /// Neither IPv4 nor IPv6, or a second VLAN tag.
    EtherType,
    /// An IPv4 header with impossible lengths or another version.
    Ipv4Header,
    /// A wrong checksum of an IPv4 header.
    Ipv4Checksum,
    /// A fragment of a packet.
    Fragment,
    /// An IPv6 header of another version, or with mapped addresses.
    Ipv6Header,
    /// Extension headers that are too many or broken, or an unfinished source route.
    Extension,
    /// Neither TCP nor a packet of the expected tunnel.
    NotTcp,
    /// A broken header of a tunnel.
    Tunnel,
    /// A TCP header with an impossible data offset.
    TcpHeader,
    /// TCP options whose lengths do not fit.
    TcpOptions,
    /// A wrong checksum of TCP.
    TcpChecksum,
    /// A checksum that covers the pseudo-header only: the sender left it to a NIC that does not exist (veth).
    TcpChecksumPartial,
    /// Addresses or ports that no peer can have, the same ones at both ends (land attack), or the MAC address of another
    /// host.
    Martian,
    /// A port or address without a listener.
    NotListening,
    /// A packet from a tunnel whose client has no known next hop.
    NoNextHop,
    /// A new connection while all places are taken.
    Full,
    /// A segment of no known connection.
    UnknownFlow,
    /// A timestamp older than the last one (PAWS), or none where one was agreed.
    Paws,
    /// A segment outside the receive window.
    OutOfWindow,
    /// An acknowledgement of bytes that were not sent, or of long ago.
    UnacceptableAck,
    /// A SYN, RST or combination of flags that does not fit the state.
    UnexpectedFlags,
    /// Out-of-order data without room in the buffer.
    OutOfOrderFull,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = DropReason::OutOfOrderFull as usize + 1;

    /// All reasons, in the order of [`StackCounters::dropped`].
    pub const ALL: [DropReason; DropReason::COUNT] = [
        DropReason::Truncated,
        DropReason::EtherType,
        DropReason::Ipv4Header,
        DropReason::Ipv4Checksum,
        DropReason::Fragment,
        DropReason::Ipv6Header,
        DropReason::Extension,
        DropReason::NotTcp,
        DropReason::Tunnel,
        DropReason::TcpHeader,
        DropReason::TcpOptions,
        DropReason::TcpChecksum,
        DropReason::TcpChecksumPartial,
        DropReason::Martian,
        DropReason::NotListening,
        DropReason::NoNextHop,
        DropReason::Full,
        DropReason::UnknownFlow,
        DropReason::Paws,
        DropReason::OutOfWindow,
        DropReason::UnacceptableAck,
        DropReason::UnexpectedFlags,
        DropReason::OutOfOrderFull,
    ];

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Truncated => "truncated",
            DropReason::EtherType => "ether_type",
            DropReason::Ipv4Header => "ipv4_header",
            DropReason::Ipv4Checksum => "ipv4_checksum",
            DropReason::Fragment => "fragment",
            DropReason::Ipv6Header => "ipv6_header",
            DropReason::Extension => "extension",
            DropReason::NotTcp => "not_tcp",
            DropReason::Tunnel => "tunnel",
            DropReason::TcpHeader => "tcp_header",
            DropReason::TcpOptions => "tcp_options",
            DropReason::TcpChecksum => "tcp_checksum",
            DropReason::TcpChecksumPartial => "tcp_checksum_partial",
            DropReason::Martian => "martian",
            DropReason::NotListening => "not_listening",
            DropReason::NoNextHop => "no_next_hop",
            DropReason::Full => "table_full",
            DropReason::UnknownFlow => "unknown_flow",
            DropReason::Paws => "paws",
            DropReason::OutOfWindow => "out_of_window",
            DropReason::UnacceptableAck => "unacceptable_ack",
            DropReason::UnexpectedFlags => "unexpected_flags",
            DropReason::OutOfOrderFull => "out_of_order_full",
        }
    }
}

/// Counters of a stack since its creation. Gauges are named so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackCounters {
    /// Frames received.
    pub frames_in: u64,
    /// Frames sent, retransmissions included.
    pub frames_out: u64,
    /// Payload bytes delivered in order.
    pub bytes_in: u64,
    /// Payload bytes sent for the first time.
    pub bytes_out: u64,
    /// Connections opened, by SYN cache or cookie.
    pub opened: u64,
    /// Connections that are open, in any state (gauge).
    pub open: u64,
    /// Entries of the SYN cache (gauge).
    pub half_open: u64,
    /// Connections in TIME-WAIT (gauge).
    pub time_wait: u64,
    /// Frames that the stack holds until they are acknowledged (gauge).
    pub frames_held: u64,
    /// Segments sent again, for any reason.
    pub retransmissions: u64,
    /// Segments sent again after duplicate or selective acknowledgements.
    pub fast_retransmissions: u64,
    /// Tail-loss probes.
    pub tail_probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probes of a window that is zero.
    pub window_probes: u64,
    /// Connections given up after too many timeouts or probes.
    pub timed_out: u64,
    /// Connections reset because they held a frame for long while frames were short; `timed_out` counts them, too.
    pub shed: u64,
    /// Segments without data that only acknowledge.
    pub bare_acks: u64,
    /// Answers to segments of blind attacks (RFC 5961).
    pub challenge_acks: u64,
    /// SYN cookies sent.
    pub cookies_sent: u64,
    /// Connections opened by a cookie.
    pub cookies_accepted: u64,
    /// Acknowledgements without a valid cookie while cookies were in use.
    pub cookies_refused: u64,
    /// Resets sent because a segment belongs to no connection.
    pub resets_sent_unknown: u64,
    /// Resets sent because our side ended a connection.
    pub resets_sent_abort: u64,
    /// Connections that the peer reset.
    pub resets_received: u64,
    /// Segments with data that came out of order.
    pub out_of_order: u64,
    /// TIME-WAIT states that a new SYN replaced.
    pub time_wait_reused: u64,
    /// TIME-WAIT states that ended early to make room.
    pub time_wait_evicted: u64,
    /// Times that the pool had no frame.
    pub no_frame: u64,
    /// Times that the transmit ring was full.
    pub ring_full: u64,
    /// Dropped frames and segments by reason, in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::COUNT],
}

impl StackCounters {
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Returns how many frames and segments were dropped for a reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_in_their_order() {
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
