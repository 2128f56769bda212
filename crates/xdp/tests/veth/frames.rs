//! Frames made by hand.

use std::net::{IpAddr, Ipv4Addr};

use crate::pair::{CLIENT, CLIENT_MAC, PORT, SERVER, SERVER_MAC};

pub(crate) const IPIP: u8 = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const IPV6: u8 = 41;

/// Puts an Ethernet header from the client to the server in front of a packet.
pub(crate) fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&SERVER_MAC[..], &CLIENT_MAC, ethertype(packet), packet].concat()
}

/// Puts an Ethernet header with VLAN tags in front of a packet.
pub(crate) fn tagged(tags: &[u16], packet: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|tag| [0x81, 0, (tag >> 8) as u8, *tag as u8]).collect();
    [&SERVER_MAC[..], &CLIENT_MAC, &tags, ethertype(packet), packet].concat()
}

fn ethertype(packet: &[u8]) -> &'static [u8] {
    if packet[0] >> 4 == 6 { &[0x86, 0xdd] } else { &[8, 0] }
}

/// An IPv4 packet. `fragment` is the field of flags and offset.
pub(crate) fn ipv4(to: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    packet(CLIENT, to, protocol, fragment, payload)
}

/// An IPv4 packet with its source.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let mut header = [0x45, 0, len[0], len[1], 0, 7, (fragment >> 8) as u8, fragment as u8, 64, protocol].to_vec();
    header.extend([0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    [&header, payload].concat()
}

/// An IPv6 packet from the client to the server.
pub(crate) fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    use crate::pair::{CLIENT_V6, SERVER_V6};
    let len = (payload.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, len[0], len[1], protocol, 64];
    [&head[..], &CLIENT_V6.octets(), &SERVER_V6.octets(), payload].concat()
}

/// A SYN without options, to a port.
pub(crate) fn syn(port: u16) -> Vec<u8> {
    let mut segment = vec![0_u8; 20];
    segment[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    segment[2..4].copy_from_slice(&port.to_be_bytes());
    segment[12..14].copy_from_slice(&[0x50, 2]);
    segment
}

/// The packet that the program is made for.
pub(crate) fn matching() -> Vec<u8> {
    ipv4(SERVER, TCP, 0, &syn(PORT))
}

/// A UDP datagram without a checksum, which IPv4 allows.
pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x9c, 0x40];
    datagram.extend(port.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// True for a TCP segment to [`PORT`] of an address, straight after Ethernet.
pub(crate) fn is_to_port(frame: &[u8], to: IpAddr) -> bool {
    match to {
        IpAddr::V4(to) => {
            frame.len() >= 38 && frame[23] == TCP && frame[30..34] == to.octets() && frame[36..38] == PORT.to_be_bytes()
        }
        IpAddr::V6(to) => {
            frame.len() >= 58 && frame[20] == TCP && frame[38..54] == to.octets() && frame[56..58] == PORT.to_be_bytes()
        }
    }
}

pub(crate) fn checksum(header: &[u8]) -> [u8; 2] {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!(folded as u16 + (folded >> 16) as u16)).to_be_bytes()
}
