//! A wire that treats frames badly, and the wrappings that frames have on it.

use carom_net::{Decapsulate, NextHop, NextHops};
use rand_pcg::Pcg64Mcg;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr};

use crate::plan::{below, chance};

pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
pub(crate) const GUE_PORT: u16 = 6080;

/// Chances in a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    pub(crate) loss: u32,
    pub(crate) double: u32,
    pub(crate) late: u32,
    pub(crate) cut: u32,
    pub(crate) damage: u32,
    pub(crate) delay_us: u32,
    /// Milliseconds out of [`FULL_EVERY_MS`] in which the receive rings of the server are full.
    pub(crate) full_ms: u32,
}

/// Time between two moments at which the rings of the server fill up. Timeouts of whole seconds are no multiples of it,
/// so a segment that is sent again meets the rings at another moment.
const FULL_EVERY_MS: u64 = 730;

impl Quality {
    /// Returns the quality of a world: some are clean, some are terrible.
    pub(crate) fn of_world(random: &mut Pcg64Mcg) -> Quality {
        let delay_us = 50 + below(random, 20_000);
        match below(random, 4) {
            0 => Quality { loss: 0, double: 0, late: 0, cut: 0, damage: 0, delay_us, full_ms: 0 },
            1 => Quality { loss: 10, double: 10, late: 50, cut: 2, damage: 2, delay_us, full_ms: 0 },
            2 => Quality { loss: 50, double: 50, late: 200, cut: 10, damage: 10, delay_us, full_ms: 0 },
            _ => Quality { loss: 120, double: 100, late: 300, cut: 30, damage: 30, delay_us, full_ms: 0 },
        }
    }

    /// Returns the times and forms in which a frame arrives, if it does.
    pub(crate) fn pass(&self, frame: Vec<u8>, random: &mut Pcg64Mcg, mut arrives: impl FnMut(u64, Vec<u8>)) {
        if chance(random, self.double) {
            arrives(self.delay(random), frame.clone());
        }
        if chance(random, self.loss) {
            return;
        }
        let mut frame = frame;
        if chance(random, self.cut) {
            frame.truncate(below(random, frame.len() as u32) as usize);
        }
        // A NIC checks what is in front of the IP header.
        if chance(random, self.damage) && frame.len() > 18 {
            let at = 18 + below(random, frame.len() as u32 - 18) as usize;
            frame[at] ^= 1 << below(random, 8);
        }
        arrives(self.delay(random), frame);
    }

    /// Returns true while the server gets no frame.
    pub(crate) fn is_server_full(&self, now_us: u64) -> bool {
        now_us / 1000 % FULL_EVERY_MS < u64::from(self.full_ms)
    }

    fn delay(&self, random: &mut Pcg64Mcg) -> u64 {
        let late = if chance(random, self.late) { below(random, 4 * self.delay_us) } else { 0 };
        u64::from(self.delay_us + late)
    }
}

/// The way in which packets of clients come to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrapping {
    Bare,
    Tagged(u16),
    Ipip,
    Gue,
}

impl Wrapping {
    pub(crate) fn decapsulate(self) -> Decapsulate {
        match self {
            Wrapping::Bare | Wrapping::Tagged(_) => Decapsulate::None,
            Wrapping::Ipip => Decapsulate::Ipip,
            Wrapping::Gue => Decapsulate::Gue { port: GUE_PORT },
        }
    }

    fn is_direct(self) -> bool {
        matches!(self, Wrapping::Bare | Wrapping::Tagged(_))
    }

    /// Returns the frame of a client's packet.
    pub(crate) fn frame(self, packet: &[u8]) -> Vec<u8> {
        let is_v4 = packet[0] >> 4 == 4;
        let mut frame = Vec::with_capacity(packet.len() + 64);
        frame.extend(SERVER_MAC);
        frame.extend(CLIENT_MAC);
        if let Wrapping::Tagged(tag) = self {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        let is_v4_outside = is_v4 || !self.is_direct();
        frame.extend(if is_v4_outside { [8, 0] } else { [0x86, 0xdd] });
        match self {
            Wrapping::Bare | Wrapping::Tagged(_) => {}
            Wrapping::Ipip => {
                let protocol = if is_v4 { IpProtocol::Unknown(4) } else { IpProtocol::Unknown(41) };
                frame.extend(outer(protocol, packet.len()));
            }
            Wrapping::Gue => {
                frame.extend(outer(IpProtocol::Udp, packet.len() + 8));
                frame.extend([0x30, 0x39]);
                frame.extend(GUE_PORT.to_be_bytes());
                frame.extend((packet.len() as u16 + 8).to_be_bytes());
                frame.extend([0, 0]);
            }
        }
        frame.extend(packet);
        frame
    }

    /// Returns the packet of a frame of the server, after a look at its way.
    pub(crate) fn packet(self, frame: &[u8]) -> &[u8] {
        let hop = if self.is_direct() { CLIENT_MAC } else { GATEWAY_MAC };
        assert_eq!((&frame[..6], &frame[6..12]), (&hop[..], &SERVER_MAC[..]), "the frame goes to its next hop");
        match self {
            Wrapping::Tagged(tag) => {
                assert_eq!(frame[12..16], [0x81, 0, (tag >> 8) as u8, tag as u8], "the tag is the client's");
                &frame[18..]
            }
            _ => &frame[14..],
        }
    }
}

/// Returns the header that a balancer puts in front.
fn outer(protocol: IpProtocol, payload_len: usize) -> Vec<u8> {
    let repr = Ipv4Repr {
        src_addr: [192, 0, 2, 1].into(),
        dst_addr: [192, 0, 2, 2].into(),
        next_header: protocol,
        payload_len,
        hop_limit: 64,
    };
    let mut bytes = vec![0; 20];
    repr.emit(&mut Ipv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
    bytes
}

impl NextHops for Wrapping {
    fn next_hop(&mut self, _: std::net::IpAddr, _: std::net::IpAddr) -> Option<NextHop> {
        let hop = NextHop { mac: GATEWAY_MAC, source_mac: SERVER_MAC, vlan: None, mtu: 1500 };
        (!self.is_direct()).then_some(hop)
    }
}

/// Returns the address of a client.
pub(crate) fn client_address(is_v4: bool, client: u32) -> IpAddress {
    let [_, a, b, c] = (client + 2).to_be_bytes();
    if is_v4 {
        IpAddress::v4(10, a, b, c)
    } else {
        IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, u16::from(a), u16::from_be_bytes([b, c]))
    }
}

/// Returns the address of the server.
pub(crate) fn server_address(is_v4: bool) -> IpAddress {
    client_address(is_v4, 1_000_000)
}
