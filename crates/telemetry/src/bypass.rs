//! The counters of kernel bypass: those of a core's datapath, and the state of the node's.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use crate::counter::Counter;

/// Number of reasons for which the stack drops frames.
pub const BYPASS_DROP_REASONS: usize = 23;

/// The counters of a core's datapath past the kernel's TCP, as of the last tick.
#[derive(Debug, Default)]
pub struct BypassStats {
    /// True if the core has such a datapath. Written once, when the core starts.
    pub is_on: AtomicBool,
    /// True if the device reads and writes frames itself. Written once, when the core starts.
    pub is_zero_copy: AtomicBool,
    /// True if the XDP program runs in the driver. Written once, before the core starts.
    pub is_native: AtomicBool,
    /// The receive queue of the core. Written once, before the core starts.
    pub queue: Counter,
    /// Frames received.
    pub frames_in: Counter,
    /// Frames sent, retransmissions included.
    pub frames_out: Counter,
    /// Payload bytes received in order.
    pub bytes_in: Counter,
    /// Payload bytes sent for the first time.
    pub bytes_out: Counter,
    /// Connections opened.
    pub opened: Counter,
    /// Open connections.
    pub open: Counter,
    /// Half-open connections.
    pub half_open: Counter,
    /// Connections in TIME-WAIT.
    pub time_wait: Counter,
    /// Frames that wait for their acknowledgement.
    pub frames_held: Counter,
    /// Segments sent again.
    pub retransmissions: Counter,
    /// Retransmission timeouts.
    pub timeouts: Counter,
    /// Connections given up, because the client did not answer.
    pub timed_out: Counter,
    /// Connections reset, because they held frames for long while frames were short.
    pub shed: Counter,
    /// SYN cookies sent.
    pub cookies_sent: Counter,
    /// Connections opened by a SYN cookie.
    pub cookies_accepted: Counter,
    /// Resets sent, because a segment belongs to no connection.
    pub resets_unknown: Counter,
    /// Resets sent, because carom ended a connection.
    pub resets_abort: Counter,
    /// Connections reset by the client.
    pub resets_received: Counter,
    /// Segments that arrived out of order.
    pub out_of_order: Counter,
    /// Received frames that the stack dropped, by reason, in the order of `carom_net::DropReason::ALL`.
    pub dropped: [Counter; BYPASS_DROP_REASONS],
    /// Times that no frame was free to send.
    pub no_frame: Counter,
    /// Times that the ring of frames to send was full.
    pub ring_full: Counter,
    /// Received frames that the kernel dropped for any reason, at most: it counts some of them twice.
    pub kernel_drops: Counter,
    /// Received frames that the kernel dropped, because the ring of received frames was full: the core was too slow.
    pub receive_ring_full: Counter,
    /// Received frames that the kernel dropped, because it had no frame to receive into: the core was too slow.
    pub fill_ring_empty: Counter,
}

impl BypassStats {
    /// Returns how many frames the stack dropped, for any reason.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().map(Counter::get).sum()
    }
}

/// The state of kernel bypass on a node whose settings name an interface.
#[derive(Debug)]
pub struct BypassState {
    /// The name of the interface.
    pub interface: String,
    /// The number of the interface, and that of the XDP program; `None` if bypass could not start.
    pub attached: Option<(u32, u32)>,
    /// The reason why no frame takes the way past the kernel; `None` while bypass is in use. Written by the watch of
    /// bypass.
    pub obstacle: Mutex<Option<String>>,
}

impl BypassState {
    /// Returns the state of bypass that runs a program on an interface, both by name or number.
    pub fn attached(interface: &str, index: u32, program: u32) -> BypassState {
        let attached = Some((index, program));
        BypassState { interface: interface.to_owned(), attached, obstacle: Mutex::default() }
    }

    /// Returns the state of bypass that could not start, with the reason.
    pub fn refused(interface: &str, obstacle: &str) -> BypassState {
        let obstacle = Mutex::new(Some(obstacle.to_owned()));
        BypassState { interface: interface.to_owned(), attached: None, obstacle }
    }

    /// Returns the reason why no frame takes the way past the kernel; `None` while bypass is in use.
    pub fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the reason why no frame takes the way past the kernel.
    pub fn set_obstacle(&self, obstacle: Option<String>) {
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = obstacle;
    }
}
