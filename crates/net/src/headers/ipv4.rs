//! IPv4 (RFC 791): the header of received packets and of our own.

use crate::counters::DropReason;
use crate::headers::address::MappedAddress;
use crate::headers::checksum;

/// Length of a header without options.
pub(crate) const HEADER_LEN: usize = 20;
/// Hops that our packets may take, as Linux has it.
pub(crate) const HOPS: u8 = 64;

/// A packet of either family, without its IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IpPacket<'a> {
    pub(crate) source: MappedAddress,
    pub(crate) destination: MappedAddress,
    pub(crate) protocol: u8,
    pub(crate) payload: &'a [u8],
}

/// Checks a header and returns the packet. Options are skipped; fragments are refused; padding after the packet is cut
/// off.
pub(crate) fn parse(bytes: &[u8], verifies: bool) -> Result<IpPacket<'_>, DropReason> {
    let head = bytes.first_chunk::<HEADER_LEN>().ok_or(DropReason::Truncated)?;
    let header_len = usize::from(head[0] & 0xf) * 4;
    let total_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if head[0] >> 4 != 4 || header_len < HEADER_LEN || total_len < header_len {
        return Err(DropReason::Ipv4Header);
    }
    if total_len > bytes.len() {
        return Err(DropReason::Truncated);
    }
    if verifies && checksum::fold(checksum::add(0, &bytes[..header_len])) != 0xffff {
        return Err(DropReason::Ipv4Checksum);
    }
    // Neither "more fragments" nor an offset.
    if u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0 {
        return Err(DropReason::Fragment);
    }
    Ok(IpPacket {
        source: MappedAddress::v4([head[12], head[13], head[14], head[15]]),
        destination: MappedAddress::v4([head[16], head[17], head[18], head[19]]),
        protocol: head[9],
        payload: &bytes[header_len..total_len],
    })
}

/// Writes a header for `payload_len` bytes of `protocol`. The packet is atomic (RFC 6864), so its identification is 0.
pub(crate) fn write(
    to: &mut [u8],
    source: &MappedAddress,
    destination: &MappedAddress,
    protocol: u8,
    payload_len: usize,
) {
    let total_len = (HEADER_LEN + payload_len) as u16;
    to[..2].copy_from_slice(&[0x45, 0]);
    to[2..4].copy_from_slice(&total_len.to_be_bytes());
    // Identification 0, "don't fragment".
    to[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    to[8..12].copy_from_slice(&[HOPS, protocol, 0, 0]);
    to[12..16].copy_from_slice(source.wire());
    to[16..20].copy_from_slice(destination.wire());
    let sum = !checksum::fold(checksum::add(0, &to[..HEADER_LEN]));
    to[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + 4];
        write(&mut bytes[..HEADER_LEN], &MappedAddress::v4([10, 0, 0, 1]), &MappedAddress::v4([10, 0, 0, 2]), 6, 4);
        bytes
    }

    #[test]
    fn header_survives_the_round() {
        let mut bytes = packet();
        bytes.extend([0; 6]);
        let parsed = parse(&bytes, true).unwrap();
        assert_eq!(
            (parsed.source, parsed.destination),
            (MappedAddress::v4([10, 0, 0, 1]), MappedAddress::v4([10, 0, 0, 2]))
        );
        assert_eq!((parsed.protocol, parsed.payload.len()), (6, 4));
    }

    #[test]
    fn each_damaged_byte_is_found() {
        for at in 0..HEADER_LEN {
            let mut bytes = packet();
            bytes[at] ^= 0x10;
            assert!(parse(&bytes, true).is_err(), "{at}");
        }
    }

    #[test]
    fn fragments_are_refused() {
        for field in [[0x20, 0], [0, 1], [0x1f, 0xff]] {
            let mut bytes = packet();
            bytes[6..8].copy_from_slice(&field);
            assert_eq!(parse(&bytes, false), Err(DropReason::Fragment));
        }
    }

    #[test]
    fn options_are_skipped() {
        let mut bytes = packet();
        bytes.splice(20..20, [1, 1, 1, 0]);
        bytes[0] = 0x46;
        bytes[3] = 28;
        assert_eq!(parse(&bytes, false).unwrap().payload.len(), 4);
        bytes[0] = 0x4f;
        assert_eq!(parse(&bytes, false), Err(DropReason::Ipv4Header));
    }

    #[test]
    fn cut_packets_are_refused() {
        let bytes = packet();
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len], true), Err(DropReason::Truncated));
        }
    }
}
