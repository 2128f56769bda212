//! Next hops: the Ethernet addresses of a connection's answers.

use std::net::IpAddr;

use crate::headers::ethernet::EthernetHeader;

/// The way of an answer's frame to its first hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// MAC address of the next hop.
    pub mac: [u8; 6],
    /// MAC address of our interface.
    pub source_mac: [u8; 6],
    /// Tag control information of the VLAN, or none for a frame without a tag.
    pub vlan: Option<u16>,
    /// Bytes of the largest IP packet on this way.
    pub mtu: u16,
}

impl NextHop {
    /// Returns the way back of a received frame.
    pub(crate) const fn reflected(header: &EthernetHeader, mtu: u16) -> NextHop {
        NextHop { mac: header.source, source_mac: header.destination, vlan: header.vlan, mtu }
    }
}

/// A look-up of next hops, such as a copy of the kernel's routes and neighbours.
///
/// The stack asks once for each connection. Without a next hop, the stack sends to the MAC address that the client's
/// frames come from. It refuses a connection from a tunnel then: that address is the balancer's.
pub trait NextHops {
    /// Returns the next hop for packets from `local` to `remote`.
    fn next_hop(&mut self, local: IpAddr, remote: IpAddr) -> Option<NextHop>;

    /// Returns true if frames to a MAC address are for this machine. The stack asks for segments of unknown flows. A
    /// switch may flood frames for another node with the same service address, and an interface in promiscuous mode
    /// passes them on.
    fn is_own(&self, mac: [u8; 6]) -> bool {
        // The bit of group addresses: broadcast and multicast (RFC 1122, 3.3.6).
        mac[0] & 1 == 0
    }
}

/// No table: answers go to where the client's frames come from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reflect;

impl NextHops for Reflect {
    fn next_hop(&mut self, _: IpAddr, _: IpAddr) -> Option<NextHop> {
        None
    }
}
