//! Facts about an interface that decide whether and how bypass works on it, from rtnetlink and ethtool.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, XdpAttached};
use netlink_packet_route::rule::RuleMessage;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::features::DriverFeatures;
use crate::netlink::Netlink;
use crate::next_hops::rules::PolicyRule;
use crate::sys::{self, EthtoolFlag};

/// Offloads that change what the program and the socket see. `None` if the driver does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Checksums of sent packets are left to the device.
    pub tx_checksum: Option<bool>,
    /// Large sent packets are cut late, in software.
    pub gso: Option<bool>,
    /// Large sent packets are cut by the device.
    pub tso: Option<bool>,
    /// Received packets are joined in software.
    pub gro: Option<bool>,
    /// Received packets are joined by the device.
    pub lro: Option<bool>,
    /// VLAN tags are removed from received frames, so that the program does not see them.
    pub rx_vlan: Option<bool>,
}

/// Facts about an interface, at the time of the question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceFacts {
    /// The name of the interface, such as `eth0`.
    pub name: String,
    /// The number.
    pub index: u32,
    /// The MAC address.
    pub mac: [u8; 6],
    /// Longest packet in bytes.
    pub mtu: u32,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    /// The kind of a virtual interface (`veth`, `vlan`, `bond`); `None` for a physical one.
    pub kind: Option<String>,
    /// True if an XDP program is attached, whether ours or another.
    pub has_program: bool,
    /// The name of the driver.
    pub driver: Option<String>,
    /// Receive queues in use.
    pub queues: Option<u32>,
    /// Receive queues of the hardware.
    pub queues_max: Option<u32>,
    /// True if a receive queue and a send queue are one channel, and are counted as such.
    pub has_combined_queues: bool,
    /// Receive queues that RSS sends flows to.
    pub rss_queues: Option<Vec<u32>>,
    /// Offloads.
    pub offloads: Offloads,
    /// Features of the driver; `None` if the kernel does not tell them.
    pub features: Option<DriverFeatures>,
}

impl InterfaceFacts {
    /// Asks the kernel about an interface of the current network namespace.
    ///
    /// # Errors
    /// If there is no interface of this name, or the kernel refuses the question.
    pub fn read(name: &str) -> io::Result<InterfaceFacts> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let answer = Netlink::open(0)?.ask(RouteNetlinkMessage::GetLink(message))?;
        let RouteNetlinkMessage::NewLink(link) = answer else { return Err(io::ErrorKind::InvalidData.into()) };
        let mut facts = InterfaceFacts {
            name: name.to_owned(),
            index: link.header.index,
            mac: [0; 6],
            mtu: 0,
            is_up: link.header.flags.contains(LinkFlags::LowerUp),
            kind: None,
            has_program: false,
            features: DriverFeatures::read(link.header.index).ok(),
            driver: None,
            queues: None,
            queues_max: None,
            has_combined_queues: false,
            rss_queues: None,
            offloads: Offloads::default(),
        };
        link.attributes.iter().for_each(|attribute| facts.take_in(attribute));
        facts.ask_ethtool()?;
        Ok(facts)
    }

    /// True for one end of a pair of virtual interfaces, whose other end may be a container.
    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    fn take_in(&mut self, attribute: &LinkAttribute) {
        match attribute {
            LinkAttribute::Address(bytes) => self.mac = bytes.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => self.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => {
                self.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            LinkAttribute::Xdp(facts) => {
                let is_attached =
                    |fact: &LinkXdp| matches!(fact, LinkXdp::Attached(place) if *place != XdpAttached::None);
                self.has_program = facts.iter().any(is_attached);
            }
            _ => {}
        }
    }

    fn ask_ethtool(&mut self) -> io::Result<()> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let fd = socket.as_fd();
        self.driver = sys::driver(fd, &self.name).ok();
        if let Ok(channels) = sys::channels(fd, &self.name) {
            self.queues = Some(channels.rx_count + channels.combined_count);
            self.queues_max = Some(channels.max_rx.max(channels.max_combined));
            self.has_combined_queues = channels.max_combined > 0;
        }
        self.rss_queues = sys::rss_queues(fd, &self.name).ok().filter(|queues| !queues.is_empty());
        let flag = |flag| sys::flag(fd, &self.name, flag).ok();
        self.offloads = Offloads {
            tx_checksum: flag(EthtoolFlag::TxChecksum),
            gso: flag(EthtoolFlag::Gso),
            tso: flag(EthtoolFlag::Tso),
            gro: flag(EthtoolFlag::Gro),
            lro: flag(EthtoolFlag::Lro),
            rx_vlan: flag(EthtoolFlag::RxVlan),
        };
        Ok(())
    }
}

/// The state of an interface that may change while bypass is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceState {
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    /// The number of the attached XDP program.
    pub program: Option<u32>,
}

impl InterfaceState {
    /// Reads the state of the interface with that number from the kernel. Returns `None` if the interface was removed.
    ///
    /// # Errors
    /// If the kernel refuses the question.
    pub fn read(interface: u32) -> io::Result<Option<InterfaceState>> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        let answer = match Netlink::open(0)?.ask(RouteNetlinkMessage::GetLink(message)) {
            Ok(answer) => answer,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(error) => return Err(error),
        };
        let RouteNetlinkMessage::NewLink(link) = answer else { return Err(io::ErrorKind::InvalidData.into()) };
        let program = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Xdp(facts) => facts.iter().find_map(|fact| match fact {
                LinkXdp::ProgId(program) => Some(*program),
                _ => None,
            }),
            _ => None,
        });
        Ok(Some(InterfaceState { is_up: link.header.flags.contains(LinkFlags::LowerUp), program }))
    }
}

/// Returns the addresses of the interface with that number.
///
/// # Errors
/// If the kernel refuses the question.
pub fn addresses(interface: u32) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    Netlink::open(0)?.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), |(message, _)| {
        let RouteNetlinkMessage::NewAddress(message) = message else { return };
        if message.header.index != interface {
            return;
        }
        // On a point-to-point link `Address` is that of the peer, and `Local` ours; IPv6 has `Address` only.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        found.extend(local.or(address));
    })?;
    Ok(found)
}

/// Returns the number of policy rules that bypass does not follow.
///
/// # Errors
/// If the kernel refuses the question.
pub fn ignored_rules() -> io::Result<usize> {
    let mut count = 0;
    for family in [netlink_packet_route::AddressFamily::Inet, netlink_packet_route::AddressFamily::Inet6] {
        let mut message = RuleMessage::default();
        message.header.family = family;
        let outcome = Netlink::open(0)?.dump(RouteNetlinkMessage::GetRule(message), |(message, _)| {
            if let RouteNetlinkMessage::NewRule(rule) = message {
                count += usize::from(PolicyRule::parse(&rule).is_none());
            }
        });
        match outcome {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            result => result?,
        }
    }
    Ok(count)
}
