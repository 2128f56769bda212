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
