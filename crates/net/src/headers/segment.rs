//! TCP segments (RFC 9293, 3.1): parsing what comes, and building frames around a payload that is in its place already.

use crate::counters::DropReason;
use crate::headers::address::Flow;
use crate::headers::checksum;
use crate::headers::ethernet;
use crate::headers::ipv4::{self, IpPacket};
use crate::headers::ipv6;
use crate::headers::options::{self, OptionBytes, SegmentOptions};
use crate::next_hop::NextHop;

/// Number of TCP in IP headers.
pub(crate) const PROTOCOL: u8 = 6;
/// Length of a header without options.
pub(crate) const HEADER_LEN: usize = 20;
/// Place of the payload in every frame that the stack builds: Ethernet with a tag, IPv6 and the longest TCP header fit
/// before it.
pub(crate) const PAYLOAD_AT: usize = 128;

/// The flags of a segment, as bits of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TcpFlags(pub(crate) u8);

impl TcpFlags {
    pub(crate) const FIN: TcpFlags = TcpFlags(1);
    pub(crate) const SYN: TcpFlags = TcpFlags(2);
    pub(crate) const RST: TcpFlags = TcpFlags(4);
    pub(crate) const PSH: TcpFlags = TcpFlags(8);
    pub(crate) const ACK: TcpFlags = TcpFlags(16);

    pub(crate) const fn has(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn with(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

/// A received segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcpSegment<'a> {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: TcpFlags,
    /// The window as it is in the header, not scaled.
    pub(crate) window: u16,
    pub(crate) options: SegmentOptions,
    pub(crate) payload: &'a [u8],
}

impl TcpSegment<'_> {
    /// Returns the sequence numbers that the segment takes.
    pub(crate) fn len(&self) -> u32 {
        let marks = u32::from(self.flags.has(TcpFlags::SYN)) + u32::from(self.flags.has(TcpFlags::FIN));
        self.payload.len() as u32 + marks
    }
}

/// Predicts the payload of a frame without a tunnel header. It is only a guess for prefetching: nothing is checked, and
/// the end may have padding.
#[inline]
pub fn peek_payload(frame: &[u8]) -> &[u8] {
    let Ok((ethernet, packet)) = ethernet::parse(frame) else { return &[] };
    let ip_len = match packet.first() {
        Some(first) if ethernet.ether_type == ethernet::IPV4 => usize::from(first & 0xf) * 4,
        _ => ipv6::HEADER_LEN,
    };
    let tcp_len = packet.get(ip_len + 12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    packet.get(ip_len + tcp_len..).unwrap_or_default()
}

/// Checks and parses the segment of a packet.
pub(crate) fn parse<'a>(packet: &IpPacket<'a>, verifies: bool) -> Result<TcpSegment<'a>, DropReason> {
    let bytes = packet.payload;
    let head = bytes.first_chunk::<HEADER_LEN>().ok_or(DropReason::Truncated)?;
    let header_len = usize::from(head[12] >> 4) * 4;
    if header_len < HEADER_LEN || header_len > bytes.len() {
        return Err(DropReason::TcpHeader);
    }
    if verifies {
        verify(packet)?;
    }
    let (header, payload) = bytes.split_at(header_len);
    Ok(TcpSegment {
        source_port: u16::from_be_bytes([head[0], head[1]]),
        destination_port: u16::from_be_bytes([head[2], head[3]]),
        seq: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        ack: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        flags: TcpFlags(head[13] & 0x3f),
        window: u16::from_be_bytes([head[14], head[15]]),
        options: options::parse(&header[HEADER_LEN..])?,
        payload,
    })
}

/// Checks the checksum. A sender that left it to its NIC has summed up the pseudo-header only.
fn verify(packet: &IpPacket<'_>) -> Result<(), DropReason> {
    let bytes = packet.payload;
    let pseudo = checksum::pseudo_header(&packet.source, &packet.destination, PROTOCOL, bytes.len());
    if checksum::fold(checksum::add(pseudo, bytes)) == 0xffff {
        return Ok(());
    }
    let field = u16::from_be_bytes([bytes[16], bytes[17]]);
    if field == checksum::fold(pseudo) { Err(DropReason::TcpChecksumPartial) } else { Err(DropReason::TcpChecksum) }
}

/// The header fields of a segment to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) flow: Flow,
    pub(crate) hop: NextHop,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: TcpFlags,
    pub(crate) window: u16,
    pub(crate) options: OptionBytes,
}

/// Writes all headers before the payload, which is at [`PAYLOAD_AT`]. Returns the start and the length of the frame.
///
/// With `offloads`, the field of the TCP checksum gets the sum of the pseudo-header, and the NIC does the rest.
pub(crate) fn build(frame: &mut [u8], head: &SegmentHeader, payload_len: usize, offloads: bool) -> (usize, usize) {
    let options = head.options.bytes();
    let tcp_len = HEADER_LEN + options.len();
    let (flow, hop) = (&head.flow, &head.hop);
    let is_v4 = flow.local.is_v4();
    let (ether_type, ip_len) =
        if is_v4 { (ethernet::IPV4, ipv4::HEADER_LEN) } else { (ethernet::IPV6, ipv6::HEADER_LEN) };
    let tcp_at = PAYLOAD_AT - tcp_len;
    let ip_at = tcp_at - ip_len;
    let start = ip_at - ethernet::header_len(hop.vlan);
    let end = PAYLOAD_AT + payload_len;
    ethernet::write(&mut frame[start..ip_at], hop.mac, hop.source_mac, hop.vlan, ether_type);
    let write_ip = if is_v4 { ipv4::write } else { ipv6::write };
    write_ip(&mut frame[ip_at..tcp_at], &flow.local, &flow.remote, PROTOCOL, tcp_len + payload_len);
    let tcp = &mut frame[tcp_at..end];
    tcp[..2].copy_from_slice(&flow.local_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&flow.remote_port.to_be_bytes());
    tcp[4..8].copy_from_slice(&head.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&head.ack.to_be_bytes());
    tcp[12] = (tcp_len as u8 / 4) << 4;
    tcp[13] = head.flags.0;
    tcp[14..16].copy_from_slice(&head.window.to_be_bytes());
    tcp[16..20].fill(0);
    tcp[HEADER_LEN..tcp_len].copy_from_slice(options);
    let pseudo = checksum::pseudo_header(&flow.local, &flow.remote, PROTOCOL, tcp.len());
    let sum = if offloads { checksum::fold(pseudo) } else { !checksum::fold(checksum::add(pseudo, tcp)) };
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    (start, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::address::MappedAddress;
    use crate::headers::options::Timestamps;

    fn head(flow: Flow, vlan: Option<u16>) -> SegmentHeader {
        SegmentHeader {
            flow,
            hop: NextHop { mac: [1; 6], source_mac: [2; 6], vlan, mtu: 1500 },
            seq: 0x0102_0304,
            ack: 0x0506_0708,
            flags: TcpFlags::ACK.with(TcpFlags::PSH),
            window: 0x0a0b,
            options: OptionBytes::NONE.timestamps(Timestamps { value: 3, echo: 4 }),
        }
    }

    fn flows() -> [Flow; 2] {
        let v4 = Flow {
            local: MappedAddress::v4([10, 0, 0, 1]),
            remote: MappedAddress::v4([10, 0, 0, 2]),
            local_port: 80,
            remote_port: 4321,
        };
        [v4, Flow { local: MappedAddress::v6([0x20; 16]), remote: MappedAddress::v6([0x30; 16]), ..v4 }]
    }

    fn built(head: &SegmentHeader, payload: &[u8], offloads: bool) -> Vec<u8> {
        let mut frame = vec![0xee; 2048];
        frame[PAYLOAD_AT..PAYLOAD_AT + payload.len()].copy_from_slice(payload);
        let (start, len) = build(&mut frame, head, payload.len(), offloads);
        frame[start..start + len].to_vec()
    }

    fn packet(frame: &[u8]) -> IpPacket<'_> {
        let (header, rest) = ethernet::parse(frame).unwrap();
        if header.ether_type == ethernet::IPV4 { ipv4::parse(rest, true).unwrap() } else { ipv6::parse(rest).unwrap() }
    }

    #[test]
    fn built_segments_are_read_back() {
        for flow in flows() {
            for vlan in [None, Some(5)] {
                let head = head(flow, vlan);
                let frame = built(&head, b"hello", false);
                let segment = parse(&packet(&frame), true).unwrap();
                assert_eq!((segment.source_port, segment.destination_port), (80, 4321));
                assert_eq!((segment.seq, segment.ack, segment.window), (head.seq, head.ack, head.window));
                assert_eq!((segment.flags, segment.payload), (head.flags, &b"hello"[..]));
                assert_eq!(segment.options.timestamps, Some(Timestamps { value: 3, echo: 4 }));
                assert!(peek_payload(&frame).starts_with(b"hello"));
            }
        }
    }

    #[test]
    fn payload_of_any_bytes_can_be_guessed() {
        let frame = built(&head(flows()[0], None), b"hello", false);
        for at in 0..frame.len() {
            assert!(peek_payload(&frame[..at]).len() <= at);
            let mut broken = frame.clone();
            broken[at] = 0xff;
            assert!(peek_payload(&broken).len() < frame.len());
        }
    }

    #[test]
    fn each_damaged_byte_is_found() {
        let frame = built(&head(flows()[0], None), b"hello", false);
        for at in 34..frame.len() {
            let mut frame = frame.clone();
            frame[at] ^= 1;
            assert!(parse(&packet(&frame), true).is_err(), "{at}");
        }
    }

    #[test]
    fn partial_checksums_are_told_apart() {
        for flow in flows() {
            let frame = built(&head(flow, None), b"hello", true);
            assert_eq!(parse(&packet(&frame), true), Err(DropReason::TcpChecksumPartial));
            assert!(parse(&packet(&frame), false).is_ok());
        }
    }

    #[test]
    fn data_offset_must_fit() {
        let frame = built(&head(flows()[0], None), b"", false);
        for offset in [0, 4, 0xf] {
            let mut frame = frame.clone();
            frame[14 + 20 + 12] = offset << 4;
            assert_eq!(parse(&packet(&frame), false), Err(DropReason::TcpHeader));
        }
    }
}
