//! The XDP features of a driver, from the kernel's `netdev` family of generic netlink. Linux has it since 6.3.

use std::io;
use std::time::Duration;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// The wait for an answer, which the kernel makes while we ask for it.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of the headers of netlink and generic netlink.
const HEADERS_LEN: usize = 20;

/// Type of a message that reports an error (`NLMSG_ERROR`).
const ERROR_TYPE: u16 = 2;

/// The family that names the others (`GENL_ID_CTRL`).
const CONTROL_FAMILY: u16 = 0x10;

/// Features of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverFeatures {
    /// The driver runs XDP programs.
    pub native: bool,
    /// The driver can send frames to AF_XDP sockets.
    pub redirect: bool,
    /// The driver can read and write the frames of AF_XDP sockets itself.
    pub zero_copy: bool,
}

impl DriverFeatures {
    /// Asks the kernel for the features of an interface.
    ///
    /// # Errors
    /// If the kernel is older than 6.3, or there is no interface of this number.
    pub(crate) fn read(interface: u32) -> io::Result<DriverFeatures> {
        // CTRL_CMD_GETFAMILY with CTRL_ATTR_FAMILY_NAME, answered by CTRL_ATTR_FAMILY_ID.
        let family = ask(CONTROL_FAMILY, 3, (2, b"netdev\0"), 1)?;
        let family = family.first_chunk::<2>().copied().map(u16::from_ne_bytes).ok_or(io::ErrorKind::InvalidData)?;
        // NETDEV_CMD_DEV_GET with NETDEV_A_DEV_IFINDEX, answered by NETDEV_A_DEV_XDP_FEATURES.
        let bits = ask(family, 1, (1, &interface.to_ne_bytes()), 3)?;
        let bits = bits.first_chunk::<8>().copied().map(u64::from_ne_bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(DriverFeatures::of(bits))
    }

    /// Returns the features of `NETDEV_XDP_ACT_…` bits.
    fn of(bits: u64) -> DriverFeatures {
        let has = |bit: u32| bits >> bit & 1 == 1;
        DriverFeatures { native: has(0), redirect: has(1), zero_copy: has(3) }
    }
}

/// Sends a command with one attribute. Returns the value of an attribute of the answer.
fn ask(family: u16, command: u8, (kind, value): (u16, &[u8]), wanted: u16) -> io::Result<Vec<u8>> {
    let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC))?;
    set_socket_timeout(&fd, Timeout::Recv, Some(TIME_MAX))?;
    let mut message = vec![0; HEADERS_LEN];
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    // NLM_F_REQUEST; then the command, and the first version of it.
    message[6..8].copy_from_slice(&1_u16.to_ne_bytes());
    (message[16], message[17]) = (command, 1);
    sendto(&fd, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; 16 << 10];
    let (len, _) = recv(&fd, &mut answer[..], RecvFlags::empty())?;
    attribute(&answer[..len], wanted)
}

/// Returns the value of an attribute of a message.
fn attribute(message: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |at: usize| -> io::Result<u16> {
        let bytes = message.get(at..at + 2).ok_or_else(broken)?;
        Ok(u16::from_ne_bytes([bytes[0], bytes[1]]))
    };
    if number(4)? == ERROR_TYPE {
        let code = message.get(16..20).and_then(|bytes| bytes.first_chunk()).ok_or_else(broken)?;
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(*code).saturating_neg()));
    }
    let mut at = HEADERS_LEN;
    while at + 4 <= message.len() {
        let (len, kind) = (usize::from(number(at)?), number(at + 2)?);
        let value = message.get(at + 4..at + len).ok_or_else(broken)?;
        if kind == wanted {
            return Ok(value.to_vec());
        }
        at += len.next_multiple_of(4);
    }
    Err(broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_bits() {
        assert_eq!(DriverFeatures::of(0), DriverFeatures::default());
        assert_eq!(DriverFeatures::of(0b0111), DriverFeatures { native: true, redirect: true, zero_copy: false });
        assert_eq!(DriverFeatures::of(0b1011), DriverFeatures { native: true, redirect: true, zero_copy: true });
    }

    #[test]
    fn attributes_are_found_behind_others() {
        let mut message = vec![0; HEADERS_LEN];
        message.extend([6, 0, 1, 0, 7, 7, 0, 0]);
        message.extend([8, 0, 3, 0, 1, 2, 3, 4]);
        assert_eq!(attribute(&message, 3).unwrap(), [1, 2, 3, 4]);
        assert_eq!(attribute(&message, 1).unwrap(), [7, 7]);
        assert!(attribute(&message, 2).is_err());
        // Cut off within an attribute.
        assert!(attribute(&message[..HEADERS_LEN + 10], 3).is_err());
        assert!(attribute(&[], 1).is_err());
        message[HEADERS_LEN] = 0;
        assert!(attribute(&message, 3).is_err());
    }

    #[test]
    fn loopback_has_no_driver_for_programs() {
        let mut of_error = vec![0; HEADERS_LEN];
        of_error[4..6].copy_from_slice(&ERROR_TYPE.to_ne_bytes());
        of_error[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        assert_eq!(attribute(&of_error, 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        match DriverFeatures::read(1) {
            Ok(features) => assert!(!features.zero_copy, "{features:?}"),
            // A kernel before 6.3 does not know the family.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
    }
}
