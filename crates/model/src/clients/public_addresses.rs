//! Tests of addresses for being on the public Internet.
//!
//! A request that carom sends to an address of somebody's choosing must not reach this machine or the network around
//! it. Everything that is not plainly public counts as private, also inside the forms of IPv6 that carry an IPv4
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if an address is on the public Internet, and leads to one host.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private networks, and those between a provider and its customers.
        (0 | 10 | 127, ..) | (100, 64..=127, _) | (172, 16..=31, _) | (192, 168, _) | (169, 254, _) => true,
        // Protocol assignments, documentation, relays of 6to4, and benchmarks.
        (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) | (198, 18 | 19, _) => true,
        // Multicast, reserved, and broadcast.
        (224.., ..) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match (a, b) {
        // NAT64: the gateway may lead into its own network.
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => is_public_v4(v4(g, h)),
        // 6to4, Teredo, benchmarks, ORCHID, and documentation.
        (0x2002, _) => is_public_v4(v4(b, c)),
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // The only block of global unicast addresses.
        _ => (0x2000..=0x3fff).contains(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let is_public = |text: &str| is_public(text.parse().unwrap());
        for public in
            ["1.1.1.1", "8.8.8.8", "100.63.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1", "64:ff9b::808:808"]
        {
            assert!(is_public(public), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!is_public(private), "{private}");
        }
    }
}
