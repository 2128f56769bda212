//! Requests to the kernel that take pointers and have no safe function in rustix: socket options of busy polling, and
//! ethtool.
//!
//! This file has `unsafe`. These rules make it safe as a whole:
//!
//! * each call gets a pointer to a value that lives on the stack of its function until the call returns;
//! * the value is plain numbers, and has the length that the kernel reads and writes: the option's length, or the
//!   structure of the ethtool command, with its variable part at its largest.

#![allow(
    unsafe_code,
    reason = "socket options and ethtool requests take pointers; see the module's text for the proof"
)]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::config::BusyPoll;

/// Sets an integer option of a socket.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`, which outlives the call; the descriptor is open.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Switches preferred busy polling on.
pub(crate) fn set_busy_poll(fd: BorrowedFd<'_>, busy_poll: BusyPoll) -> Result<(), Errno> {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, number(busy_poll.micros))?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, number(busy_poll.budget))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `SIOCETHTOOL`.
const ETHTOOL: libc::c_ulong = 0x8946;

/// `struct ifreq` with a pointer to the structure of an ethtool command.
#[repr(C)]
struct EthtoolRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    /// The rest of the union.
    rest: [u8; 16],
}

/// Sends an ethtool command. `T` is the structure of the command: `repr(C)` and plain numbers, the first of them the
/// command.
fn ethtool<T: EthtoolCommand>(fd: BorrowedFd<'_>, interface: &str, command: &mut T) -> Result<(), Errno> {
    let mut name = [0; libc::IFNAMSIZ];
    // The last byte stays zero.
    let place = name[..libc::IFNAMSIZ - 1].get_mut(..interface.len()).ok_or(Errno::NODEV)?;
    place.copy_from_slice(interface.as_bytes());
    let mut request = EthtoolRequest { name, data: (&raw mut *command).cast(), rest: [0; 16] };
    // SAFETY: the kernel reads the request, which has the length of `struct ifreq`, and reads and writes at most the
    // structure that belongs to the command, which `EthtoolCommand` promises `T` to have room for.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ETHTOOL as _, &raw mut request) };
    if result >= 0 { Ok(()) } else { Err(last_error()) }
}

/// The structure of an ethtool command.
///
/// # Safety
/// The type is `repr(C)`, all its bytes may have any value, and it is as large as the kernel's structure for each
/// command that this file puts into it.
unsafe trait EthtoolCommand {}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

// SAFETY: the kernel's structure has these two numbers.
unsafe impl EthtoolCommand for EthtoolValue {}

/// `struct ethtool_drvinfo`: the command, then texts, of which the driver's name is the first.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

// SAFETY: the kernel's structure has 4 + 32 * 5 + 12 + 4 * 5 = 196 bytes.
unsafe impl EthtoolCommand for DriverInfo {}
const _: () = assert!(size_of::<DriverInfo>() == 196);

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Channels {
    command: u32,
    pub(crate) max_rx: u32,
    max_tx: u32,
    max_other: u32,
    pub(crate) max_combined: u32,
    pub(crate) rx_count: u32,
    tx_count: u32,
    other_count: u32,
    pub(crate) combined_count: u32,
}

// SAFETY: the kernel's structure has these nine numbers.
unsafe impl EthtoolCommand for Channels {}

/// Entries of the largest table of RSS that is read.
const RSS_ENTRIES_MAX: usize = 4_096;

/// `struct ethtool_rxfh_indir`: the table of RSS.
#[repr(C)]
struct RssTable {
    command: u32,
    len: u32,
    queues: [u32; RSS_ENTRIES_MAX],
}

// SAFETY: the kernel writes `len` entries, and refuses a `len` other than that of its table.
unsafe impl EthtoolCommand for RssTable {}

/// A setting that ethtool knows by a command or a bit of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EthtoolFlag {
    TxChecksum,
    Tso,
    Gso,
    Gro,
    Lro,
    RxVlan,
}

/// Returns the name of the driver.
pub(crate) fn driver(fd: BorrowedFd<'_>, interface: &str) -> Result<String, Errno> {
    let mut info = DriverInfo { command: 3, driver: [0; 32], rest: [0; 160] };
    ethtool(fd, interface, &mut info)?;
    let len = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..len]).into_owned())
}

/// Returns the numbers of queues.
pub(crate) fn channels(fd: BorrowedFd<'_>, interface: &str) -> Result<Channels, Errno> {
    let mut channels = Channels { command: 0x3c, ..Channels::default() };
    ethtool(fd, interface, &mut channels)?;
    Ok(channels)
}

/// Returns the queues in the table of RSS, each once.
pub(crate) fn rss_queues(fd: BorrowedFd<'_>, interface: &str) -> Result<Vec<u32>, Errno> {
    let mut table = Box::new(RssTable { command: 0x38, len: 0, queues: [0; RSS_ENTRIES_MAX] });
    // With a length of 0 the kernel returns the length.
    ethtool(fd, interface, &mut *table)?;
    let len = table.len as usize;
    if len > RSS_ENTRIES_MAX {
        return Err(Errno::OVERFLOW);
    }
    ethtool(fd, interface, &mut *table)?;
    let mut queues = table.queues[..len].to_vec();
    queues.sort_unstable();
    queues.dedup();
    Ok(queues)
}

/// Returns whether a setting is on.
pub(crate) fn flag(fd: BorrowedFd<'_>, interface: &str, flag: EthtoolFlag) -> Result<bool, Errno> {
    let (command, mask) = match flag {
        EthtoolFlag::TxChecksum => (0x16, 1),
        EthtoolFlag::Tso => (0x1e, 1),
        EthtoolFlag::Gso => (0x23, 1),
        EthtoolFlag::Gro => (0x2b, 1),
        // Bits of ETHTOOL_GFLAGS.
        EthtoolFlag::Lro => (0x25, 1 << 15),
        EthtoolFlag::RxVlan => (0x25, 1 << 8),
    };
    let mut value = EthtoolValue { command, data: 0 };
    ethtool(fd, interface, &mut value)?;
    Ok(value.data & mask != 0)
}
