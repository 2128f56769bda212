//! Settings of a stack.

use crate::headers::tunnel::Decapsulate;

/// Shortest retransmission timeout by default, in milliseconds: that of Linux (`TCP_RTO_MIN`). A frame that was sent
/// again has waited at least that long.
pub(crate) const RTO_MIN_MS: u32 = 200;

/// Retransmission timeout before the first sample of a round trip, in milliseconds (RFC 6298, 2.1). It applies to an
/// answer to a SYN, and to a connection without a sample.
pub(crate) const RTO_INITIAL_MS: u32 = 1_000;

/// Settings of a stack. Times are in milliseconds, lengths in bytes.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Maximum number of connections, those in TIME-WAIT included.
    pub connections_max: u32,
    /// Maximum number of half-open connections; further ones get SYN cookies.
    pub half_open_max: u32,
    /// Maximum number of frames that wait for their acknowledgement. The pool needs some more, for segments without data.
    pub frames_held_max: u32,
    /// Maximum number of frames of one connection among them.
    pub frames_per_connection_max: u32,
    /// Receive window: the bytes that a driver must be able to take after [`pause`](crate::Stack::pause).
    pub receive_window: u32,
    /// Maximum number of blocks of 1,536 bytes for out-of-order data of one connection.
    pub out_of_order_blocks_per_connection: u16,
    /// Maximum number of such blocks of all connections.
    pub out_of_order_blocks_max: u32,
    /// Bytes of the largest IP packet, where no next hop says otherwise.
    pub mtu: u16,
    /// Segments of the initial congestion window.
    pub initial_window_segments: u32,
    /// Shortest retransmission timeout.
    pub rto_min_ms: u32,
    /// Longest retransmission timeout, backoff included.
    pub rto_max_ms: u32,
    /// Timeouts in a row after which a connection ends.
    pub retransmissions_max: u8,
    /// Longest time for which an acknowledgement waits for an answer to carry it.
    pub delayed_ack_ms: u32,
    /// Longest delay of the peer's acknowledgements that a tail-loss probe waits for.
    pub peer_ack_delay_ms: u32,
    /// Length of TIME-WAIT.
    pub time_wait_ms: u32,
    /// Longest wait for the peer's FIN after [`close`](crate::Stack::close).
    pub fin_wait_ms: u32,
    /// Longest time without a window while there is something to send.
    pub zero_window_max_ms: u32,
    /// Resets for unknown connections in a second.
    pub resets_per_second: u32,
    /// The tunnel of packets from a balancer.
    pub decapsulate: Decapsulate,
    /// True if checksums of received frames are verified here, false if the NIC has done it.
    pub verifies_checksums: bool,
    /// True if the NIC fills in TCP checksums of sent frames.
    pub offloads_checksums: bool,
    /// Rules that are switched off.
    #[cfg(feature = "faults")]
    pub faults: NetFaults,
}

/// Rules that a test switches off, to see that it notices; only with the feature `faults`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetFaults {
    /// No frame is sent again.
    pub never_retransmits: bool,
    /// Old bytes are delivered again.
    pub keeps_duplicates: bool,
    /// Out-of-order data is delivered as it comes.
    pub ignores_order: bool,
    /// Frames stay taken after their acknowledgement.
    pub leaks_frames: bool,
    /// A FIN counts before the data in front of it.
    pub takes_early_fin: bool,
    /// A SYN without room in the SYN cache is dropped.
    pub sends_no_cookies: bool,
}

impl StackConfig {
    /// Returns the rules that are switched off: none without the feature `faults`.
    pub(crate) fn faults(&self) -> NetFaults {
        #[cfg(feature = "faults")]
        return self.faults;
        #[cfg(not(feature = "faults"))]
        NetFaults::default()
    }
}

impl Default for StackConfig {
    fn default() -> StackConfig {
        StackConfig {
            connections_max: 65_536,
            half_open_max: 4_096,
            frames_held_max: 3_072,
            frames_per_connection_max: 256,
            receive_window: 256 * 1024,
            out_of_order_blocks_per_connection: 64,
            out_of_order_blocks_max: 2_048,
            mtu: 1_500,
            initial_window_segments: 10,
            rto_min_ms: RTO_MIN_MS,
            rto_max_ms: 60_000,
            retransmissions_max: 8,
            delayed_ack_ms: 20,
            peer_ack_delay_ms: 40,
            time_wait_ms: 60_000,
            fin_wait_ms: 60_000,
            zero_window_max_ms: 60_000,
            resets_per_second: 1_000,
            decapsulate: Decapsulate::None,
            verifies_checksums: true,
            offloads_checksums: false,
            #[cfg(feature = "faults")]
            faults: NetFaults::default(),
        }
    }
}
