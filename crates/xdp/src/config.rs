//! Settings and errors of an AF_XDP socket, and what the kernel counts for it.

use std::fmt;
use std::io;

/// Most frames of a socket: a gigabyte.
const FRAMES_MAX: u32 = 1 << 18;

/// Most entries of a ring.
const RING_LEN_MAX: u32 = 1 << 15;

/// The choice between zero copy, where the device reads and writes frames itself, and copies by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZeroCopy {
    /// Zero copy if the driver has it.
    #[default]
    Auto,
    /// Zero copy, or an error.
    On,
    /// Copies.
    Off,
}

/// Preferred busy polling: the core that asks for frames runs the driver, and interrupts stay off while it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyPoll {
    /// Microseconds of a blocking poll; 20 is usual.
    pub micros: u32,
    /// Frames that the driver handles in one call; 64 is usual.
    pub budget: u32,
}

/// Settings of the socket of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketConfig {
    /// The number of the interface.
    pub interface: u32,
    /// The receive queue, from 0.
    pub queue: u32,
    /// Number of frames of 4,096 bytes.
    pub frames: u32,
    /// Entries of each of the four rings, a power of two.
    pub ring_len: u32,
    /// Zero copy or copies.
    pub zero_copy: ZeroCopy,
    /// Preferred busy polling.
    pub busy_poll: Option<BusyPoll>,
}

impl SocketConfig {
    /// Returns settings for a queue: 16 MiB of frames, and rings with a quarter of them.
    pub fn new(interface: u32, queue: u32) -> SocketConfig {
        SocketConfig { interface, queue, frames: 4_096, ring_len: 1_024, zero_copy: ZeroCopy::Auto, busy_poll: None }
    }

    /// Checks the numbers of frames and entries.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let (frames, ring_len) = (self.frames, self.ring_len);
        if !ring_len.is_power_of_two() || ring_len > RING_LEN_MAX || frames < 2 * ring_len || frames > FRAMES_MAX {
            return Err(OpenError::Sizes { frames, ring_len });
        }
        Ok(())
    }
}

/// Counters that the kernel keeps for a socket, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketStatistics {
    /// Frames dropped for other reasons than those below.
    pub dropped: u64,
    /// Frames dropped because the ring of received frames was full: the core is too slow.
    pub rx_ring_full: u64,
    /// Frames dropped because the kernel had no frame to receive into.
    pub fill_ring_empty: u64,
    /// Entries of our rings that the kernel refused: an error in carom.
    pub invalid: u64,
}

impl SocketStatistics {
    /// Returns how many frames were dropped, at most: the kernel counts some of them twice.
    pub fn all_drops(&self) -> u64 {
        self.dropped + self.rx_ring_full + self.fill_ring_empty
    }
}

/// The reason for which a socket could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The numbers of frames and entries do not fit together.
    Sizes {
        /// Number of frames.
        frames: u32,
        /// Entries of a ring.
        ring_len: u32,
    },
    /// The kernel refused a step.
    Refused {
        /// The step that failed.
        step: &'static str,
        /// The number of the receive queue.
        queue: u32,
        /// The error number.
        errno: i32,
    },
}

impl OpenError {
    /// Returns the error number of the kernel, if it refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            OpenError::Sizes { .. } => None,
            OpenError::Refused { errno, .. } => Some(*errno),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OpenError::Sizes { frames, ring_len } => write!(
                f,
                "invalid ring of {ring_len} entries with {frames} frames; expected a power of two up to {RING_LEN_MAX}, \
                 and from twice as many to {FRAMES_MAX} frames"
            ),
            OpenError::Refused { step, queue, errno } => {
                let cause = io::Error::from_raw_os_error(errno);
                write!(f, "the kernel refused an AF_XDP socket for queue {queue} ({step}): {cause}")?;
                remedy(step, errno).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Returns what to do about an error number at a step.
fn remedy(step: &str, errno: i32) -> Option<&'static str> {
    match (step, errno) {
        ("socket", libc::EPERM) | ("bind", libc::EPERM) => Some("give the process CAP_NET_RAW"),
        ("socket", libc::EAFNOSUPPORT) => {
            Some("use a kernel with CONFIG_XDP_SOCKETS, and allow AF_XDP in RestrictAddressFamilies of the service")
        }
        ("frames", libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => {
            Some("raise the limit of locked memory: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service")
        }
        ("bind", libc::EBUSY) => Some("another process has a socket on this queue: stop it, or use another queue"),
        ("bind", libc::EINVAL) => Some("check that the interface has this queue: `ethtool -l`"),
        ("bind", libc::EOPNOTSUPP) => Some("the driver has no zero copy: set bypass.zero_copy to auto or off"),
        ("bind", libc::ENETDOWN) => Some("bring the interface up: `ip link set dev … up`"),
        ("bind", libc::ENODEV) => Some("check the name of the interface: `ip link`"),
        ("busy polling", libc::EPERM) => Some("give the process CAP_NET_ADMIN, or switch busy polling off"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_must_fit() {
        let config = SocketConfig::new(1, 0);
        assert_eq!(config.check(), Ok(()));
        for (frames, ring_len) in [(4_096, 1_000), (1_024, 1_024), (1 << 19, 1_024), (1 << 18, 1 << 16), (0, 0)] {
            assert!(SocketConfig { frames, ring_len, ..config }.check().is_err(), "{frames} {ring_len}");
        }
    }

    #[test]
    fn refusal_names_the_remedy() {
        let refused = |step, errno| OpenError::Refused { step, queue: 3, errno }.to_string();
        assert!(refused("frames", libc::ENOBUFS).contains("LimitMEMLOCK"), "{}", refused("frames", libc::ENOBUFS));
        assert!(refused("bind", libc::EBUSY).contains("queue 3"));
    }
}
