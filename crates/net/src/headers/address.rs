//! Addresses and flows, as the flow table keeps them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Prefix of an IPv4 address in its mapped form (RFC 4291, 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// An address of either family in 16 bytes; IPv4 in the mapped form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MappedAddress([u8; 16]);

impl MappedAddress {
    pub(crate) fn v4(octets: [u8; 4]) -> MappedAddress {
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(&MAPPED);
        bytes[12..].copy_from_slice(&octets);
        MappedAddress(bytes)
    }

    pub(crate) const fn v6(octets: [u8; 16]) -> MappedAddress {
        MappedAddress(octets)
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.0[..12] == MAPPED
    }

    /// Returns the bytes of all 16 places.
    pub(crate) const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the sum of the address in a checksum.
    pub(crate) fn sum(&self) -> u64 {
        let (words, _) = self.0.as_chunks::<4>();
        let skipped = if self.is_v4() { 3 } else { 0 };
        words[skipped..].iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum()
    }

    /// Returns the bytes as they are in a header: 4 or 16.
    pub(crate) fn wire(&self) -> &[u8] {
        if self.is_v4() { &self.0[12..] } else { &self.0 }
    }

    pub(crate) fn ip(&self) -> IpAddr {
        if self.is_v4() {
            IpAddr::V4(Ipv4Addr::new(self.0[12], self.0[13], self.0[14], self.0[15]))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.0))
        }
    }

    /// Returns true if one host can have this address: neither unspecified, multicast, broadcast nor loopback.
    pub(crate) fn is_unicast(&self) -> bool {
        match self.ip() {
            IpAddr::V4(ip) => {
                !ip.is_unspecified()
                    && !ip.is_multicast()
                    && !ip.is_broadcast()
                    && !ip.is_loopback()
                    && ip.octets()[0] != 0
            }
            IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback(),
        }
    }
}

impl From<IpAddr> for MappedAddress {
    fn from(ip: IpAddr) -> MappedAddress {
        match ip {
            IpAddr::V4(ip) => MappedAddress::v4(ip.octets()),
            IpAddr::V6(ip) => MappedAddress::v6(ip.octets()),
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) local: MappedAddress,
    pub(crate) remote: MappedAddress,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Flow {
    /// Returns both ends as bytes, for keyed hashes.
    pub(crate) fn bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(self.local.bytes());
        bytes[16..32].copy_from_slice(self.remote.bytes());
        bytes[32..34].copy_from_slice(&self.local_port.to_be_bytes());
        bytes[34..].copy_from_slice(&self.remote_port.to_be_bytes());
        bytes
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local.ip(), self.local_port)
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        SocketAddr::new(self.remote.ip(), self.remote_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_keep_their_bytes() {
        let v4 = MappedAddress::from(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(v4.wire(), [192, 0, 2, 1]);
        assert_eq!(v4.ip(), IpAddr::from([192, 0, 2, 1]));
        let v6 = MappedAddress::from("2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(v6.wire().len(), 16);
        assert_eq!(v6.ip().to_string(), "2001:db8::1");
    }

    #[test]
    fn addresses_of_several_hosts_are_not_unicast() {
        for wrong in ["0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "127.0.0.1", "::", "ff02::1", "::1"] {
            assert!(!MappedAddress::from(wrong.parse::<IpAddr>().unwrap()).is_unicast(), "{wrong}");
        }
        assert!(MappedAddress::v4([10, 0, 0, 1]).is_unicast());
    }
}
