//! Tunnel headers of balancers: IPIP (RFC 2003, 4213) and GUE, as Katran, Unimog and IPVS send them to real servers.
//!
//! The answer goes straight to the client, with the inner destination as its source. One level is opened. The checksum
//! of the outer UDP is left alone: the inner headers have checksums of their own.

use crate::counters::DropReason;
use crate::headers::ipv4::{self, IpPacket};
use crate::headers::ipv6;
use crate::headers::segment;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const UDP: u8 = 17;

/// The tunnel header that a balancer puts before packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Decapsulate {
    /// Packets come as clients sent them.
    #[default]
    None,
    /// IPv4 or IPv6 in IPv4 or IPv6.
    Ipip,
    /// Generic UDP encapsulation, with the header of variant 0 or the bare packet of variant 1.
    Gue {
        /// UDP port of the tunnel; Linux uses 6080, Katran 9886.
        port: u16,
    },
}

/// Returns the packet that a client has sent, and whether it came through a tunnel.
pub(crate) fn open(
    packet: IpPacket<'_>,
    mode: Decapsulate,
    verifies: bool,
) -> Result<(IpPacket<'_>, bool), DropReason> {
    let inner = match (packet.protocol, mode) {
        (segment::PROTOCOL, _) => return Ok((packet, false)),
        (protocol @ (IPV4_IN_IP | IPV6_IN_IP), Decapsulate::Ipip) => inner(protocol, packet.payload, verifies)?,
        (UDP, Decapsulate::Gue { port }) => open_gue(packet.payload, port, verifies)?,
        _ => return Err(DropReason::NotTcp),
    };
    if inner.protocol == segment::PROTOCOL { Ok((inner, true)) } else { Err(DropReason::NotTcp) }
}

fn inner(protocol: u8, bytes: &[u8], verifies: bool) -> Result<IpPacket<'_>, DropReason> {
    match protocol {
        IPV4_IN_IP => ipv4::parse(bytes, verifies),
        IPV6_IN_IP => ipv6::parse(bytes),
        _ => Err(DropReason::Tunnel),
    }
}

/// Opens UDP and GUE (draft-ietf-intarea-gue, 3 and 4).
fn open_gue(bytes: &[u8], port: u16, verifies: bool) -> Result<IpPacket<'_>, DropReason> {
    let head = bytes.first_chunk::<8>().ok_or(DropReason::Truncated)?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    if u16::from_be_bytes([head[2], head[3]]) != port {
        return Err(DropReason::NotTcp);
    }
    let body = bytes.get(8..len).ok_or(DropReason::Tunnel)?;
    let first = *body.first().ok_or(DropReason::Tunnel)?;
    match first >> 6 {
        0 => {
            // A control message has the bit 0x20 and carries no packet. Flags and private data are skipped.
            let head = body.first_chunk::<4>().ok_or(DropReason::Tunnel)?;
            let rest = body.get(4 + usize::from(first & 0x1f) * 4..).ok_or(DropReason::Tunnel)?;
            if first & 0x20 != 0 { Err(DropReason::Tunnel) } else { inner(head[1], rest, verifies) }
        }
        1 => inner(if first >> 4 == 4 { IPV4_IN_IP } else { IPV6_IN_IP }, body, verifies),
        _ => Err(DropReason::Tunnel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::address::MappedAddress;

    const PORT: u16 = 6080;
    const GUE: Decapsulate = Decapsulate::Gue { port: PORT };

    fn v4_packet() -> Vec<u8> {
        let mut bytes = vec![0; 24];
        ipv4::write(&mut bytes[..20], &MappedAddress::v4([10, 0, 0, 9]), &MappedAddress::v4([10, 0, 0, 1]), 6, 4);
        bytes
    }

    fn outer(protocol: u8, payload: &[u8]) -> IpPacket<'_> {
        IpPacket { source: MappedAddress::v4([1; 4]), destination: MappedAddress::v4([2; 4]), protocol, payload }
    }

    fn udp(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 1];
        bytes.extend(PORT.to_be_bytes());
        bytes.extend((8 + body.len() as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn ipip_is_opened_where_it_is_expected() {
        let inner = v4_packet();
        let (packet, is_wrapped) = open(outer(4, &inner), Decapsulate::Ipip, true).unwrap();
        assert!(is_wrapped);
        assert!(packet.source == MappedAddress::v4([10, 0, 0, 9]));
        assert_eq!(open(outer(4, &inner), Decapsulate::None, true), Err(DropReason::NotTcp));
        assert_eq!(open(outer(4, &inner), GUE, true), Err(DropReason::NotTcp));
    }

    #[test]
    fn gue_has_two_variants() {
        let bare = udp(&v4_packet());
        assert!(open(outer(UDP, &bare), GUE, true).unwrap().1);
        // Two words of private data, as Unimog sends the second hop.
        let mut body = vec![2, 4, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9];
        body.extend(v4_packet());
        assert!(open(outer(UDP, &udp(&body)), GUE, true).unwrap().1);
        body[0] |= 0x20;
        assert_eq!(open(outer(UDP, &udp(&body)), GUE, true), Err(DropReason::Tunnel));
    }

    #[test]
    fn broken_wrappings_are_refused() {
        for body in [&[][..], &[0x1f, 4, 0, 0], &[0xc0, 4, 0, 0], &[0, 99, 0, 0], &[0x45]] {
            assert!(open(outer(UDP, &udp(body)), GUE, true).is_err(), "{body:?}");
        }
        let mut other_port = udp(&v4_packet());
        other_port[3] ^= 1;
        assert_eq!(open(outer(UDP, &other_port), GUE, true), Err(DropReason::NotTcp));
    }

    #[test]
    fn one_level_is_opened() {
        let mut bytes = vec![0; 20];
        let inner = v4_packet();
        ipv4::write(&mut bytes, &MappedAddress::v4([3; 4]), &MappedAddress::v4([4; 4]), 4, inner.len());
        bytes.extend(inner);
        assert_eq!(open(outer(4, &bytes), Decapsulate::Ipip, true), Err(DropReason::NotTcp));
    }
}
