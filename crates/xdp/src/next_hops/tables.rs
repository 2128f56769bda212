//! The tables of links, routes, neighbours and policy rules, as notifications change them. No I/O.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VlanProtocol};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::prefix::{bits_of, masked};
use super::rules::{PolicyRules, RuleEffect};
use crate::netlink::FlaggedMessage;

/// Most neighbours: 16 times the kernel's own limit.
const NEIGHBOURS_MAX: usize = 16_384;

/// Most prefixes of all tables beside default routes. A server with the routes of the whole Internet has a million, and
/// needs none of them.
const PREFIXES_MAX: usize = 65_536;

/// An interface as its last notification describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// The MAC address.
    pub mac: [u8; 6],
    /// Longest packet in bytes.
    pub mtu: u32,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    /// The interface below a VLAN (802.1Q), and the number of the VLAN.
    pub vlan: Option<(u32, u16)>,
}

/// A resolved neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbour {
    pub(super) mac: [u8; 6],
    /// True if the kernel has not heard from it for long.
    pub(super) is_stale: bool,
}

/// The way to a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Route {
    /// The smaller one wins.
    metric: u32,
    mtu: Option<u32>,
    /// Interfaces and gateways to choose from; none for a route that refuses packets.
    ways: Vec<(u32, Option<IpAddr>)>,
    /// True for a route that ends the search in its table (`throw`).
    throws: bool,
}

/// A table of one family: prefixes by their length.
type RouteTable = BTreeMap<u8, Prefixes>;

/// Prefixes of one length, by their first bits.
type Prefixes = HashMap<u128, Vec<Route>>;

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    links: BTreeMap<u32, LinkState>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    rules: PolicyRules,
    /// By the number of the table and address family (true for IPv6).
    routes: HashMap<(u32, bool), RouteTable>,
    prefixes: usize,
    must_read_routes: bool,
}

impl Tables {
    /// Takes in a message of the kernel.
    pub(super) fn apply(&mut self, (message, flags): FlaggedMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.add_link(&link),
            RouteNetlinkMessage::DelLink(link) => {
                self.links.remove(&link.header.index);
                self.neighbours.retain(|(interface, _), _| *interface != link.header.index);
                self.must_read_routes = true;
            }
            // The kernel removes IPv4 routes that used the address, and says nothing of them.
            RouteNetlinkMessage::DelAddress(_) => self.must_read_routes = true,
            RouteNetlinkMessage::NewNeighbour(neighbour) => self.add_neighbour(&neighbour, true),
            RouteNetlinkMessage::DelNeighbour(neighbour) => self.add_neighbour(&neighbour, false),
            RouteNetlinkMessage::NewRoute(route) => self.add_route(&route, flags & NLM_F_REPLACE != 0),
            RouteNetlinkMessage::DelRoute(route) => self.remove_route(&route),
            RouteNetlinkMessage::NewRule(rule) => self.rules.add(&rule),
            RouteNetlinkMessage::DelRule(rule) => self.rules.remove(&rule),
            _ => {}
        }
    }

    pub(super) fn must_read_routes(&self) -> bool {
        self.must_read_routes
    }

    /// Empties the table of routes, before they are read again.
    pub(super) fn forget_routes(&mut self) {
        self.routes.clear();
        self.prefixes = 0;
        self.must_read_routes = false;
    }

    pub(super) fn link(&self, interface: u32) -> Option<LinkState> {
        self.links.get(&interface).copied()
    }

    /// Returns true if an interface or any other link has a MAC address, or if the interface is unknown.
    pub(super) fn has_mac(&self, interface: u32, mac: [u8; 6]) -> bool {
        let is_by = |link: &LinkState| link.mac == mac;
        self.links.get(&interface).is_none_or(is_by) || self.links.values().any(is_by)
    }

    pub(super) fn neighbour(&self, interface: u32, address: IpAddr) -> Option<Neighbour> {
        self.neighbours.get(&(interface, address)).copied()
    }

    /// Returns the interface, the neighbour and the MTU of the route from `local` to `remote`.
    pub(super) fn route(&self, local: IpAddr, remote: IpAddr) -> Option<(u32, IpAddr, Option<u32>)> {
        let found = self.rules.effects(local, remote).find_map(|effect| match effect {
            RuleEffect::LookUp { table, suppressed_len } => {
                let (len, route) = self.route_of(table, remote).filter(|(_, route)| !route.throws)?;
                suppressed_len.is_none_or(|suppressed| u32::from(len) > suppressed).then_some(Some(route))
            }
            RuleEffect::Refuse => Some(None),
            RuleEffect::Nothing => None,
        });
        let route = found.flatten()?;
        let (interface, gateway) = match route.ways.as_slice() {
            [] => return None,
            [way] => *way,
            ways => {
                let mut hasher = DefaultHasher::new();
                (local, remote).hash(&mut hasher);
                ways[(hasher.finish() % ways.len() as u64) as usize]
            }
        };
        Some((interface, gateway.unwrap_or(remote), route.mtu))
    }

    /// Returns the route of a table with the longest prefix of an address, and the length of the prefix.
    fn route_of(&self, table: u32, remote: IpAddr) -> Option<(u8, &Route)> {
        let (is_v6, bits) = bits_of(remote);
        let by_len = self.routes.get(&(table, is_v6))?.iter().rev();
        let (len, routes) =
            by_len.filter_map(|(len, prefixes)| Some((*len, prefixes.get(&masked(bits, *len))?))).next()?;
        Some((len, routes.iter().min_by_key(|route| route.metric)?))
    }

    fn add_link(&mut self, message: &LinkMessage) {
        let is_up = message.header.flags.contains(LinkFlags::LowerUp);
        let mut link = LinkState { mac: [0; 6], mtu: 0, is_up, vlan: vlan_of(&message.attributes) };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                _ => {}
            }
        }
        let before = self.links.insert(message.header.index, link);
        self.must_read_routes |= before.is_some_and(|before| before.is_up != link.is_up);
    }

    fn add_neighbour(&mut self, message: &NeighbourMessage, is_there: bool) {
        let (mut address, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
                _ => {}
            }
        }
        let Some(address) = address else { return };
        let key = (message.header.ifindex, address);
        let is_stale = match message.header.state {
            NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp => Some(false),
            NeighbourState::Delay | NeighbourState::Probe => Some(false),
            NeighbourState::Stale => Some(true),
            _ => None,
        };
        match (mac, is_stale) {
            (Some(mac), Some(is_stale)) if is_there => {
                if self.neighbours.len() < NEIGHBOURS_MAX || self.neighbours.contains_key(&key) {
                    self.neighbours.insert(key, Neighbour { mac, is_stale });
                }
            }
            _ => {
                self.neighbours.remove(&key);
            }
        }
    }

    fn add_route(&mut self, message: &RouteMessage, replaces: bool) {
        let Some((table, len, bits, route)) = parse(message) else { return };
        let is_full = self.prefixes >= PREFIXES_MAX;
        let prefixes = self.routes.entry(table).or_default().entry(len).or_default();
        // A default route is worth more than any other.
        if is_full && len > 0 && !prefixes.contains_key(&bits) {
            return;
        }
        let routes = prefixes.entry(bits).or_default();
        self.prefixes += usize::from(routes.is_empty());
        match routes.iter_mut().find(|known| known.metric == route.metric) {
            Some(known) if replaces => *known = route,
            // IPv6 has a message for each of several next hops.
            Some(known) => {
                for way in route.ways {
                    if !known.ways.contains(&way) {
                        known.ways.push(way);
                    }
                }
            }
            None => routes.push(route),
        }
    }

    fn remove_route(&mut self, message: &RouteMessage) {
        let Some((key, len, bits, route)) = parse(message) else { return };
        let Some(table) = self.routes.get_mut(&key) else { return };
        let Some(prefixes) = table.get_mut(&len) else { return };
        let Some(routes) = prefixes.get_mut(&bits) else { return };
        for known in routes.iter_mut().filter(|known| known.metric == route.metric) {
            known.ways.retain(|way| !route.ways.contains(way));
        }
        routes.retain(|known| known.metric != route.metric || !(known.ways.is_empty() || route.ways.is_empty()));
        if routes.is_empty() {
            prefixes.remove(&bits);
            self.prefixes -= 1;
        }
        if prefixes.is_empty() {
            table.remove(&len);
        }
        if table.is_empty() {
            self.routes.remove(&key);
        }
    }
}

/// Returns the table and family, the prefix and the way of a route that packets to others may take.
fn parse(message: &RouteMessage) -> Option<((u32, bool), u8, u128, Route)> {
    let header = &message.header;
    let is_v6 = header.address_family == AddressFamily::Inet6;
    let mut route = Route { metric: 0, mtu: None, ways: Vec::new(), throws: false };
    let mut bits = 0;
    let mut table = u32::from(header.table);
    let mut interface = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => bits = bits_of(ip(address)?).1,
            RouteAttribute::Oif(number) => interface = Some(*number),
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            RouteAttribute::MultiPath(hops) => {
                route.ways.extend(hops.iter().map(|hop| (hop.interface_index, gateway_of(&hop.attributes))));
            }
            _ => {}
        }
    }
    match header.kind {
        RouteType::Unicast => {
            let gateway = gateway_of(&message.attributes);
            route.ways.extend(interface.map(|interface| (interface, gateway)));
        }
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit => {}
        RouteType::Throw => route.throws = true,
        _ => return None,
    }
    Some(((table, is_v6), header.destination_prefix_length, bits, route))
}

/// Returns the interface below a VLAN, and the number of the VLAN. A VLAN of 802.1ad has another tag.
fn vlan_of(attributes: &[LinkAttribute]) -> Option<(u32, u16)> {
    let below = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(below) => Some(*below),
        _ => None,
    })?;
    let infos = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    let vlan = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(vlan)) => Some(vlan),
        _ => None,
    })?;
    let is_8021q =
        !vlan.iter().any(|info| matches!(info, InfoVlan::Protocol(protocol) if *protocol != VlanProtocol::Ieee8021Q));
    let number = vlan.iter().find_map(|info| match info {
        InfoVlan::Id(number) => Some(*number),
        _ => None,
    });
    Some(below).zip(number).filter(|_| is_8021q)
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteHeader;
    use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

    use super::*;
    use crate::next_hops::rules::MAIN;

    fn route(to: &str, len: u8, interface: u32, gateway: Option<&str>, metric: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = len;
        let address = |text: &str| RouteAddress::from(text.parse::<IpAddr>().unwrap());
        message.attributes.push(RouteAttribute::Destination(address(to)));
        message.attributes.push(RouteAttribute::Oif(interface));
        message.attributes.push(RouteAttribute::Priority(metric));
        message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(address(gateway))));
        message
    }

    fn found(tables: &Tables, remote: &str) -> Option<(u32, String)> {
        let route = tables.route("192.0.2.1".parse().unwrap(), remote.parse().unwrap());
        route.map(|(interface, neighbour, _)| (interface, neighbour.to_string()))
    }

    #[test]
    fn mac_addresses_of_all_links_count() {
        let mut tables = Tables::default();
        assert!(tables.has_mac(1, [9; 6]), "nothing is known of the interface");
        for index in 1..=2 {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.attributes.push(LinkAttribute::Address(vec![index as u8; 6]));
            tables.add_link(&message);
        }
        assert!(tables.has_mac(1, [1; 6]));
        assert!(tables.has_mac(1, [2; 6]), "of a link above it");
        assert!(!tables.has_mac(1, [9; 6]));
    }

    #[test]
    fn longest_prefix_and_least_metric_win() {
        let mut tables = Tables::default();
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.1"), 100), false);
        tables.add_route(&route("0.0.0.0", 0, 2, Some("10.1.0.1"), 50), false);
        tables.add_route(&route("10.0.0.0", 24, 1, None, 0), false);
        assert_eq!(found(&tables, "8.8.8.8"), Some((2, "10.1.0.1".to_owned())));
        assert_eq!(found(&tables, "10.0.0.9"), Some((1, "10.0.0.9".to_owned())));
        tables.remove_route(&route("0.0.0.0", 0, 2, Some("10.1.0.1"), 50));
        assert_eq!(found(&tables, "8.8.8.8"), Some((1, "10.0.0.1".to_owned())));
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.2"), 100), true);
        assert_eq!(found(&tables, "8.8.8.8"), Some((1, "10.0.0.2".to_owned())));
        tables.remove_route(&route("0.0.0.0", 0, 1, Some("10.0.0.2"), 100));
        assert_eq!(found(&tables, "8.8.8.8"), None);
        assert_eq!(tables.prefixes, 1);
    }

    #[test]
    fn rules_choose_the_table() {
        let rule = |priority: u32, table: u32, source: Option<&str>, suppressed: u32| {
            let mut rule = RuleMessage::default();
            rule.header.family = AddressFamily::Inet;
            rule.header.action = RuleAction::ToTable;
            rule.header.src_len = if source.is_some() { 32 } else { 0 };
            rule.attributes.extend(source.map(|source| RuleAttribute::Source(source.parse().unwrap())));
            rule.attributes.push(RuleAttribute::Priority(priority));
            rule.attributes.push(RuleAttribute::Table(table));
            rule.attributes.push(RuleAttribute::SuppressPrefixLen(suppressed));
            (RouteNetlinkMessage::NewRule(rule), 0)
        };
        let of_table = |number: u32, mut route: RouteMessage| {
            route.header.table = 0;
            route.attributes.push(RouteAttribute::Table(number));
            route
        };
        let mut tables = Tables::default();
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.1"), 0), false);
        tables.add_route(&of_table(100, route("0.0.0.0", 0, 2, Some("10.1.0.1"), 0)), false);
        let by_main = Some((1, "10.0.0.1".to_owned()));
        assert_eq!(found(&tables, "8.8.8.8"), by_main);
        tables.apply(rule(32_766, MAIN, None, u32::MAX));
        tables.apply(rule(1_000, 100, Some("192.0.2.9"), u32::MAX));
        assert_eq!(found(&tables, "8.8.8.8"), by_main, "of another address");
        tables.apply(rule(1_001, 100, Some("192.0.2.1"), 0));
        assert_eq!(found(&tables, "8.8.8.8"), by_main, "a default route is suppressed");
        tables.apply(rule(1_002, 100, Some("192.0.2.1"), u32::MAX));
        assert_eq!(found(&tables, "8.8.8.8"), Some((2, "10.1.0.1".to_owned())));
        let mut thrown = of_table(100, route("8.8.0.0", 16, 2, None, 0));
        thrown.header.kind = RouteType::Throw;
        tables.add_route(&thrown, false);
        assert_eq!(found(&tables, "8.8.8.8"), by_main);
        tables.remove_route(&thrown);
        tables.remove_route(&of_table(100, route("0.0.0.0", 0, 2, Some("10.1.0.1"), 0)));
        assert_eq!(found(&tables, "8.8.8.8"), by_main);
        assert_eq!((tables.prefixes, tables.routes.len()), (1, 1));
    }

    #[test]
    fn several_ways_keep_a_pair_on_one() {
        let mut tables = Tables::default();
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.1"), 0), false);
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.2"), 0), false);
        let ways: std::collections::BTreeSet<_> =
            (0..64).filter_map(|last| found(&tables, &format!("8.8.8.{last}"))).collect();
        assert_eq!(ways.len(), 2);
        assert_eq!(found(&tables, "8.8.8.8"), found(&tables, "8.8.8.8"));
    }

    #[test]
    fn vlan_is_known_by_the_interface_below() {
        let vlan = |infos: &[InfoVlan]| {
            let data = LinkAttribute::LinkInfo(vec![LinkInfo::Data(InfoData::Vlan(infos.to_vec()))]);
            vlan_of(&[LinkAttribute::Link(3), data])
        };
        assert_eq!(vlan(&[InfoVlan::Protocol(VlanProtocol::Ieee8021Q), InfoVlan::Id(5)]), Some((3, 5)));
        assert_eq!(vlan(&[InfoVlan::Protocol(VlanProtocol::Ieee8021Ad), InfoVlan::Id(5)]), None);
        assert_eq!(vlan_of(&[LinkAttribute::Link(3)]), None, "the other end of a veth");
    }

    #[test]
    fn refusing_routes_lead_nowhere() {
        let mut tables = Tables::default();
        tables.add_route(&route("0.0.0.0", 0, 1, Some("10.0.0.1"), 0), false);
        let mut refusing = route("192.0.2.0", 24, 1, None, 0);
        refusing.header.kind = RouteType::BlackHole;
        tables.add_route(&refusing, false);
        assert_eq!(found(&tables, "192.0.2.9"), None);
        tables.remove_route(&refusing);
        assert_eq!(found(&tables, "192.0.2.9"), Some((1, "10.0.0.1".to_owned())));
    }
}
