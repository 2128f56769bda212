//! Next hops: the interface and the MAC addresses for a packet, from the kernel's own routes and neighbours.
//!
//! The tables are read once and kept current by notifications. Each core may have its own [`RouteTables`]: it polls the
//! descriptor, calls [`RouteTables::update`], and looks addresses up without a system call. A neighbour that is
//! unknown, or that the kernel has not heard from for long, is resolved by the kernel, which sends the ARP or NDP
//! request.
//!
//! Policy rules choose the table (`next_hops/rules.rs` says which rules are followed); of a route with several next
//! hops, the pair of addresses chooses one.

mod prefix;
pub(crate) mod rules;
mod tables;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::HashMap;

use crate::netlink::Netlink;
use tables::Tables;

pub use tables::LinkState;

/// Requests to resolve neighbours that are remembered, so that they are not repeated: more than the kernel asks at
/// once.
const ASKED_MAX: usize = 1_024;

/// The time between two requests for an unknown neighbour, as long as the kernel takes for three tries.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two requests to confirm a known neighbour.
const STALE_INTERVAL: Duration = Duration::from_secs(5);

/// The group of notifications about policy rules of IPv6, which has no constant of its own (`RTNLGRP_IPV6_RULE`).
const RTMGRP_IPV6_RULE: i32 = 1 << 18;

/// The groups of notifications: links, neighbours, addresses, routes and policy rules.
const GROUPS: i32 = libc::RTMGRP_LINK
    | libc::RTMGRP_NEIGH
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE
    | libc::RTMGRP_IPV4_RULE
    | RTMGRP_IPV6_RULE;

/// The interface and the MAC addresses for packets to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedHop {
    /// The number of the interface; of a VLAN, that of the interface below it.
    pub interface: u32,
    /// The number of the VLAN whose tag the frames need.
    pub vlan: Option<u16>,
    /// The MAC address of the interface.
    pub source_mac: [u8; 6],
    /// The MAC address of the neighbour: the gateway, or the peer itself.
    pub mac: [u8; 6],
    /// Longest packet in bytes, the smaller of interface and route.
    pub mtu: u32,
}

/// The outcome of [`RouteTables::look_up`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteLookup {
    /// Packets can be sent.
    Found(ResolvedHop),
    /// The kernel resolves the neighbour. Look again after the next [`RouteTables::update`].
    Resolving,
    /// There is no route, or its interface is down.
    Unreachable,
}

/// The kernel's links, routes, neighbours and policy rules. It is used on one thread, in the network namespace where it was opened.
#[derive(Debug)]
pub struct RouteTables {
    netlink: Netlink,
    tables: Tables,
    /// The last request for each neighbour.
    asked: HashMap<(u32, IpAddr), Instant>,
}

impl RouteTables {
    /// Reads the tables and listens for changes.
    ///
    /// # Errors
    /// If the kernel refuses the socket (`RestrictAddressFamilies` without `AF_NETLINK`) or a dump.
    pub fn open() -> io::Result<RouteTables> {
        let netlink = Netlink::open(GROUPS as u32)?;
        let mut hops = RouteTables { netlink, tables: Tables::default(), asked: HashMap::new() };
        hops.read_tables()?;
        Ok(hops)
    }

    /// Takes in all changes since the last call. Call it when the descriptor is readable. Reads whole tables again when
    /// the kernel has dropped notifications, or has removed routes without one, as it does when a link goes down.
    ///
    /// # Errors
    /// If the kernel refuses a dump.
    pub fn update(&mut self) -> io::Result<()> {
        let tables = &mut self.tables;
        match self.netlink.receive(|message| tables.apply(message)) {
            Ok(()) if !self.tables.must_read_routes() => Ok(()),
            Ok(()) => self.read_routes(),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.read_tables(),
            Err(error) => Err(error),
        }
    }

    /// Returns the next hop for packets from `local` to `remote`, and asks the kernel to resolve or confirm the
    /// neighbour if need be. Makes no other system call.
    pub fn look_up(&mut self, local: IpAddr, remote: IpAddr, now: Instant) -> RouteLookup {
        let Some((interface, neighbour, mtu)) = self.tables.route(local, remote) else {
            return RouteLookup::Unreachable;
        };
        let Some(link) = self.tables.link(interface).filter(|link| link.is_up) else {
            return RouteLookup::Unreachable;
        };
        let known = self.tables.neighbour(interface, neighbour);
        match known {
            Some(known) if !known.is_stale => {}
            Some(_) => self.resolve(interface, neighbour, STALE_INTERVAL, now),
            None => self.resolve(interface, neighbour, UNKNOWN_INTERVAL, now),
        }
        let mtu = mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
        let (interface, vlan) = link.vlan.map_or((interface, None), |(below, number)| (below, Some(number)));
        known.map_or(RouteLookup::Resolving, |known| {
            RouteLookup::Found(ResolvedHop { interface, vlan, source_mac: link.mac, mac: known.mac, mtu })
        })
    }

    /// Returns the state of the interface with this number, or `None` if no interface has it.
    pub fn link(&self, interface: u32) -> Option<LinkState> {
        self.tables.link(interface)
    }

    /// Returns true if frames to a MAC address that arrive at `interface` are for this machine: the interface or another
    /// link, such as a macvlan above it, has the address. True as well if the interface is unknown.
    pub fn has_mac(&self, interface: u32, mac: [u8; 6]) -> bool {
        self.tables.has_mac(interface, mac)
    }

    /// Asks the kernel to resolve a neighbour, unless it was asked a short time ago.
    fn resolve(&mut self, interface: u32, neighbour: IpAddr, interval: Duration, now: Instant) {
        let is_recent = |asked: &Instant| now.saturating_duration_since(*asked) < interval;
        if self.asked.get(&(interface, neighbour)).is_some_and(is_recent) {
            return;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, asked| now.saturating_duration_since(*asked) < UNKNOWN_INTERVAL);
        }
        if self.asked.len() >= ASKED_MAX {
            return;
        }
        self.asked.insert((interface, neighbour), now);
        let mut message = NeighbourMessage::default();
        let (family, address) = match neighbour {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.header.ifindex = interface;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(address));
        // A request that is lost is repeated by the next look-up after the interval.
        let _ = self.netlink.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE);
    }

    fn read_tables(&mut self) -> io::Result<()> {
        self.tables = Tables::default();
        self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        self.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            self.dump_if_supported(RouteNetlinkMessage::GetRule(message))?;
        }
        self.read_routes()
    }

    fn read_routes(&mut self) -> io::Result<()> {
        self.tables.forget_routes();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            self.dump_if_supported(RouteNetlinkMessage::GetRoute(message))?;
        }
        Ok(())
    }

    /// Reads a table, which a kernel without IPv6 or without policy rules does not have.
    fn dump_if_supported(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        match self.dump(message) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    fn dump(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let tables = &mut self.tables;
        self.netlink.dump(message, |message| tables.apply(message))
    }
}

impl AsFd for RouteTables {
    /// Returns the descriptor, which is readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}
