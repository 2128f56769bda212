//! The XDP program: its maps, and its attachment to an interface.
//!
//! The program is `bpf/bypass.c`, and its object is part of this crate. It is attached with a `bpf_link`, whose only
//! reference is a descriptor of this process: the kernel detaches the program when the process ends, however it ends.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::socket::XdpSocket;

/// The object that `bpf/build.sh` builds.
pub const OBJECT: &[u8] = include_bytes_aligned!("../bpf/bypass.o");

/// Most receive queues, as `bypass.c` has it.
pub const QUEUES_MAX: u32 = 1_024;

/// The UDP port that IANA assigned to GUE.
pub const GUE_PORT: u16 = 6_080;

/// The place where the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AttachMode {
    /// In the driver if it can, or else in the kernel's network stack.
    #[default]
    Auto,
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the network stack. Works with every interface, and saves less.
    Generic,
}

/// The tunnel header that a balancer puts in front of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Decapsulation {
    /// Packets come as clients sent them.
    #[default]
    None,
    /// IPv4 or IPv6 in IPv4 or IPv6.
    Ipip,
    /// Generic UDP Encapsulation to this port.
    Gue(u16),
}

/// Counts of frames by what the program did with them, since it was attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounts {
    /// Sent to a socket.
    pub redirected: u64,
    /// Passed although they match: the queue has no socket.
    pub no_socket: u64,
    /// Passed: TCP to another address or port.
    pub other_tcp: u64,
    /// Passed: fragments.
    pub fragments: u64,
    /// Passed: everything else.
    pub others: u64,
}

/// The entry of sockets in an attached program, for the thread that owns a socket.
pub struct SocketEntry(XskMap<MapData>);

impl SocketEntry {
    /// Sends the matching frames of the socket's queue to the socket, until it is closed.
    ///
    /// # Errors
    /// If the kernel refuses, for example because the socket is bound to another interface.
    pub fn register(&mut self, socket: &XdpSocket) -> Result<(), AttachError> {
        let set = self.0.set(socket.queue(), socket.as_fd().as_raw_fd(), 0);
        set.map_err(|error| AttachError::new("register a socket", &error))
    }
}

/// The attached program. It is detached when this value is dropped, and when the process ends.
pub struct XdpProgram {
    bpf: Ebpf,
    /// Holds the attachment.
    _link: FdLink,
    is_native: bool,
    id: u32,
}

impl XdpProgram {
    /// Loads the program and attaches it to an interface. Until [`XdpProgram::register`] it passes every frame to the
    /// kernel.
    ///
    /// # Errors
    /// If the kernel refuses; the error says why, and what to do.
    pub fn attach(
        interface: u32,
        mode: AttachMode,
        destinations: &[SocketAddr],
        decapsulation: Decapsulation,
    ) -> Result<XdpProgram, AttachError> {
        let (tunnel, gue_port) = match decapsulation {
            Decapsulation::None => (0_u32, GUE_PORT),
            Decapsulation::Ipip => (1, GUE_PORT),
            Decapsulation::Gue(port) => (2, port),
        };
        let gue_port = u32::from(gue_port);
        let mut bpf = EbpfLoader::new()
            .btf(None)
            .override_global("decapsulate", &tunnel, true)
            .override_global("gue_port", &gue_port, true)
            .load(OBJECT)
            .map_err(|error| AttachError::new("load the maps", &error))?;
        let mut map = HashMap::<_, [u8; 20], u32>::try_from(map(&mut bpf, "destinations"))
            .map_err(|error| AttachError::new("use the map of destinations", &error))?;
        for destination in destinations {
            map.insert(destination_key(*destination), 1, 0)
                .map_err(|error| AttachError::new("add a destination", &error))?;
        }
        let program: &mut Xdp = bpf
            .program_mut("bypass")
            .and_then(|program| program.try_into().ok())
            .expect("the object has an XDP program of this name");
        program.load().map_err(|error| AttachError::new("load the program", &error))?;
        let id = program.info().map_err(|error| AttachError::new("ask for the program", &error))?.id();
        let (link, is_native) = attach(program, interface, mode)?;
        Ok(XdpProgram { bpf, _link: link, is_native, id })
    }

    /// True if the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.is_native
    }

    /// Returns the number of the program, as `bpftool` shows it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns an entry for sockets, which can be moved to another thread.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn entry(&mut self) -> Result<SocketEntry, AttachError> {
        let data = match map(&mut self.bpf, "sockets") {
            Map::XskMap(data) => data,
            other => unreachable!("the object has a map of sockets, not {other:?}"),
        };
        let descriptor = data.fd().as_fd().try_clone_to_owned();
        let data = descriptor.map_err(MapError::from).and_then(MapData::from_fd);
        let sockets = data.and_then(|data| XskMap::try_from(Map::XskMap(data)));
        sockets.map(SocketEntry).map_err(|error| AttachError::new("use the map of sockets", &error))
    }

    /// Sends the matching frames of the socket's queue to the socket, until it is closed.
    ///
    /// # Errors
    /// If the kernel refuses, for example because the socket is bound to another interface.
    pub fn register(&mut self, socket: &XdpSocket) -> Result<(), AttachError> {
        self.entry()?.register(socket)
    }

    /// Passes the matching frames of a queue to the kernel from now on.
    pub fn unregister(&mut self, queue: u32) {
        // A closed socket has left the map by itself.
        let _ = self.sockets().unset(queue);
    }

    /// Returns the counters of the program, summed over all CPUs.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn counts(&self) -> Result<ProgramCounts, AttachError> {
        let map = self.bpf.map("outcomes").expect("the object has a map of this name");
        let outcomes = PerCpuArray::<_, u64>::try_from(map).expect("the map is of this kind");
        let count = |outcome: u32| -> Result<u64, MapError> { Ok(outcomes.get(&outcome, 0)?.iter().sum()) };
        let counts = || {
            Ok(ProgramCounts {
                redirected: count(0)?,
                no_socket: count(1)?,
                other_tcp: count(2)?,
                fragments: count(3)?,
                others: count(4)?,
            })
        };
        counts().map_err(|error: MapError| AttachError::new("read the counters", &error))
    }

    fn sockets(&mut self) -> XskMap<&mut aya::maps::MapData> {
        XskMap::try_from(map(&mut self.bpf, "sockets")).expect("the map is of this kind")
    }
}

impl fmt::Debug for XdpProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XdpProgram({})", if self.is_native { "native" } else { "generic" })
    }
}

fn map<'a>(bpf: &'a mut Ebpf, name: &str) -> &'a mut aya::maps::Map {
    bpf.map_mut(name).expect("the object has a map of this name")
}

/// Attaches a loaded program, and returns true with the link if it runs in the driver.
fn attach(program: &mut Xdp, interface: u32, mode: AttachMode) -> Result<(FdLink, bool), AttachError> {
    let native = match mode {
        AttachMode::Generic => None,
        AttachMode::Auto | AttachMode::Native => Some(attach_in(program, interface, XdpMode::Driver)),
    };
    match native {
        Some(Ok(link)) => Ok((link, true)),
        Some(Err(error)) if mode == AttachMode::Native || error.errno == Some(libc::EBUSY) => Err(error),
        _ => attach_in(program, interface, XdpMode::Skb).map(|link| (link, false)),
    }
}

fn attach_in(program: &mut Xdp, interface: u32, mode: XdpMode) -> Result<FdLink, AttachError> {
    let step = match mode {
        XdpMode::Driver => "attach the program in the driver",
        _ => "attach the program in the network stack",
    };
    let id = program.attach_to_if_index(interface, mode).map_err(|error| AttachError::new(step, &error))?;
    let link = program.take_link(id).map_err(|error| AttachError::new(step, &error))?;
    // aya falls back to an attachment that outlives the process. Dropping that one detaches it.
    FdLink::try_from(link).map_err(|error| AttachError::new(step, &error))
}

/// Returns the key of a destination, as `struct destination` has it.
fn destination_key(destination: SocketAddr) -> [u8; 20] {
    let address = match destination.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut key = [0; 20];
    key[..16].copy_from_slice(&address.octets());
    key[16..18].copy_from_slice(&destination.port().to_be_bytes());
    key
}

/// The reason for which the program could not be attached or used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachError {
    step: &'static str,
    cause: String,
    errno: Option<i32>,
}

impl AttachError {
    fn new(step: &'static str, error: &(dyn std::error::Error + 'static)) -> AttachError {
        let mut cause = error.to_string();
        let mut errno = None;
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(number) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
                errno = Some(number);
            }
            if let Some(ProgramError::SyscallError(error)) = error.downcast_ref::<ProgramError>() {
                errno = error.io_error.raw_os_error().or(errno);
            }
            next = error.source();
            if let Some(error) = next
                && !cause.contains(&error.to_string())
            {
                cause = format!("{cause}: {error}");
            }
        }
        AttachError { step, cause, errno }
    }

    /// Returns the error number of the kernel, if it gave one.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.step, self.cause)?;
        let remedy = match self.errno {
            Some(libc::EPERM) => "give the process CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW",
            Some(libc::EBUSY | libc::EEXIST) => {
                "another XDP program is attached: remove it (`ip link set dev … xdp off`), or use another interface"
            }
            Some(libc::EOPNOTSUPP | libc::EINVAL) => {
                "the driver has no XDP in this configuration: set bypass.mode to auto or generic, and see \
                 `ip link` for the MTU and `ethtool -k` for LRO"
            }
            Some(libc::ERANGE) => {
                "the MTU is too large for XDP in this driver: lower it, or set bypass.mode to generic"
            }
            Some(libc::ENODEV) => "check the name of the interface: `ip link`",
            _ => return Ok(()),
        };
        write!(f, "; {remedy}")
    }
}

impl std::error::Error for AttachError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_address_and_port_in_network_order() {
        let key = destination_key("192.0.2.7:8080".parse().unwrap());
        assert_eq!(key, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 7, 31, 144, 0, 0]);
    }
}
