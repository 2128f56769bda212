//! Next hops, as they follow the kernel's tables.

use std::net::IpAddr;
use std::time::Instant;

use carom_xdp::next_hops::{ResolvedHop, RouteLookup, RouteTables};

use crate::pair::{CLIENT, CLIENT_MAC, CLIENT_V6, Pair, SERVER, SERVER_MAC, SERVER_V6, interface, ip, wait_for};

/// Looks up until the answer is as wanted.
fn settles(hops: &mut RouteTables, local: IpAddr, remote: IpAddr, wanted: impl Fn(RouteLookup) -> bool) {
    let mut last = None;
    wait_for(&format!("next hop for {remote}"), || {
        hops.update().unwrap();
        last = Some(hops.look_up(local, remote, Instant::now()));
        last.filter(|found| wanted(*found))
    });
}

fn is_by(mac: [u8; 6]) -> impl Fn(RouteLookup) -> bool {
    move |found| matches!(found, RouteLookup::Found(hop) if hop.mac == mac)
}

#[test]
fn kernel_resolves_unknown_neighbours() {
    let Some(pair) = Pair::new() else { return };
    let mut hops = pair.server.run(|| RouteTables::open().unwrap());
    let interface = interface(&pair.server, "s0");
    for (local, remote) in [(IpAddr::V4(SERVER), IpAddr::V4(CLIENT)), (IpAddr::V6(SERVER_V6), IpAddr::V6(CLIENT_V6))] {
        assert_eq!(hops.look_up(local, remote, Instant::now()), RouteLookup::Resolving);
        let expected = ResolvedHop { interface, vlan: None, source_mac: SERVER_MAC, mac: CLIENT_MAC, mtu: 1_500 };
        settles(&mut hops, local, remote, |found| found == RouteLookup::Found(expected));
    }
    let nowhere = "203.0.113.9".parse().unwrap();
    assert_eq!(hops.look_up(SERVER.into(), nowhere, Instant::now()), RouteLookup::Unreachable);
}

#[test]
fn changed_neighbour_is_followed() {
    let Some(pair) = Pair::new() else { return };
    let mut hops = pair.server.run(|| RouteTables::open().unwrap());
    settles(&mut hops, SERVER.into(), CLIENT.into(), is_by(CLIENT_MAC));
    ip(&pair.server, "neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev s0 nud permanent");
    settles(&mut hops, SERVER.into(), CLIENT.into(), is_by([2, 0, 0, 0, 0, 0x99]));
    ip(&pair.server, "neigh del 10.77.0.1 dev s0");
    settles(&mut hops, SERVER.into(), CLIENT.into(), is_by(CLIENT_MAC));
}

#[test]
fn gateway_and_its_change_are_followed() {
    let Some(pair) = Pair::new() else { return };
    let mut hops = pair.server.run(|| RouteTables::open().unwrap());
    let remote = "203.0.113.9".parse().unwrap();
    ip(&pair.server, "route add default via 10.77.0.1 mtu 1400");
    settles(
        &mut hops,
        SERVER.into(),
        remote,
        |found| matches!(found, RouteLookup::Found(hop) if hop.mac == CLIENT_MAC && hop.mtu == 1_400),
    );
    ip(&pair.server, "neigh add 10.77.0.7 lladdr 02:00:00:00:00:07 dev s0 nud permanent");
    ip(&pair.server, "route replace default via 10.77.0.7");
    settles(&mut hops, SERVER.into(), remote, is_by([2, 0, 0, 0, 0, 7]));
    ip(&pair.server, "route add 203.0.113.0/24 via 10.77.0.1");
    settles(&mut hops, SERVER.into(), remote, is_by(CLIENT_MAC));
    ip(&pair.server, "route del 203.0.113.0/24");
    settles(&mut hops, SERVER.into(), remote, is_by([2, 0, 0, 0, 0, 7]));
    ip(&pair.server, "route del default");
    settles(&mut hops, SERVER.into(), remote, |found| found == RouteLookup::Unreachable);
}

#[test]
fn link_and_mtu_are_followed() {
    let Some(pair) = Pair::new() else { return };
    let mut hops = pair.server.run(|| RouteTables::open().unwrap());
    let interface = interface(&pair.server, "s0");
    settles(&mut hops, SERVER.into(), CLIENT.into(), is_by(CLIENT_MAC));
    ip(&pair.server, "link set s0 mtu 1300");
    settles(
        &mut hops,
        SERVER.into(),
        CLIENT.into(),
        |found| matches!(found, RouteLookup::Found(hop) if hop.mtu == 1_300),
    );
    ip(&pair.server, "link set s0 down");
    settles(&mut hops, SERVER.into(), CLIENT.into(), |found| found == RouteLookup::Unreachable);
    assert!(!hops.link(interface).unwrap().is_up);
    ip(&pair.server, "link set s0 up");
    settles(&mut hops, SERVER.into(), CLIENT.into(), is_by(CLIENT_MAC));
}

#[test]
fn policy_rules_are_followed() {
    let Some(pair) = Pair::new() else { return };
    let mut hops = pair.server.run(|| RouteTables::open().unwrap());
    let remote = "203.0.113.9".parse().unwrap();
    let other = [2, 0, 0, 0, 0, 7];
    ip(&pair.server, "neigh add 10.77.0.7 lladdr 02:00:00:00:00:07 dev s0 nud permanent");
    ip(&pair.server, "route add default via 10.77.0.1");
    ip(&pair.server, "route add default via 10.77.0.7 table 100");
    settles(&mut hops, SERVER.into(), remote, is_by(CLIENT_MAC));
    ip(&pair.server, "rule add from 10.77.0.2 table 100 priority 1000");
    settles(&mut hops, SERVER.into(), remote, is_by(other));
    ip(&pair.server, "rule add to 203.0.113.0/24 table main priority 900");
    settles(&mut hops, SERVER.into(), remote, is_by(CLIENT_MAC));
    ip(&pair.server, "rule del priority 900");
    settles(&mut hops, SERVER.into(), remote, is_by(other));
    // A socket that is opened later reads the same.
    let mut later = pair.server.run(|| RouteTables::open().unwrap());
    settles(&mut later, SERVER.into(), remote, is_by(other));
    ip(&pair.server, "rule add prohibit from 10.77.0.2 priority 800");
    settles(&mut hops, SERVER.into(), remote, |found| found == RouteLookup::Unreachable);
    ip(&pair.server, "rule del priority 800");
    ip(&pair.server, "rule del priority 1000");
    settles(&mut hops, SERVER.into(), remote, is_by(CLIENT_MAC));
    ip(&pair.server, "-6 rule add from 2001:db8::1 table 100 priority 1000");
    settles(&mut hops, SERVER.into(), remote, is_by(CLIENT_MAC));
    assert_eq!(pair.server.run(|| carom_xdp::interface::ignored_rules().unwrap()), 0);
    ip(&pair.server, "rule add sport 8080 table 100 priority 1100");
    assert_eq!(pair.server.run(|| carom_xdp::interface::ignored_rules().unwrap()), 1);
}
