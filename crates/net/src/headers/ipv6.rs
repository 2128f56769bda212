//! IPv6 (RFC 8200): the header of received packets and of our own.

use crate::counters::DropReason;
use crate::headers::address::MappedAddress;
use crate::headers::ipv4::{HOPS, IpPacket};

/// Length of a header without extensions.
pub(crate) const HEADER_LEN: usize = 40;
/// Most extension headers of a packet: a chain is read in bounded time.
const EXTENSIONS_MAX: usize = 4;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Checks a header and returns the packet. Extension headers are skipped; fragments are refused.
pub(crate) fn parse(bytes: &[u8]) -> Result<IpPacket<'_>, DropReason> {
    let head = bytes.first_chunk::<HEADER_LEN>().ok_or(DropReason::Truncated)?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    if head[0] >> 4 != 6 {
        return Err(DropReason::Ipv6Header);
    }
    let payload = bytes.get(HEADER_LEN..HEADER_LEN + len).ok_or(DropReason::Truncated)?;
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&head[8..24]);
    destination.copy_from_slice(&head[24..40]);
    let (source, destination) = (MappedAddress::v6(source), MappedAddress::v6(destination));
    // A mapped address on the wire would be taken for IPv4.
    if source.is_v4() || destination.is_v4() {
        return Err(DropReason::Ipv6Header);
    }
    let (protocol, payload) = skip_extensions(head[6], payload)?;
    Ok(IpPacket { source, destination, protocol, payload })
}

/// Returns the protocol after the extension headers, and its bytes (RFC 8200, 4).
fn skip_extensions(first: u8, bytes: &[u8]) -> Result<(u8, &[u8]), DropReason> {
    let (mut protocol, mut rest) = (first, bytes);
    for _ in 0..=EXTENSIONS_MAX {
        match protocol {
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                let head = rest.first_chunk::<8>().ok_or(DropReason::Extension)?;
                // A route that the packet has not finished (RFC 5095).
                if protocol == ROUTING && head[3] != 0 {
                    return Err(DropReason::Extension);
                }
                rest = rest.get(8 + usize::from(head[1]) * 8..).ok_or(DropReason::Extension)?;
                protocol = head[0];
            }
            FRAGMENT => return Err(DropReason::Fragment),
            _ => return Ok((protocol, rest)),
        }
    }
    Err(DropReason::Extension)
}

/// Writes a header for `payload_len` bytes of `protocol`.
pub(crate) fn write(
    to: &mut [u8],
    source: &MappedAddress,
    destination: &MappedAddress,
    protocol: u8,
    payload_len: usize,
) {
    to[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    to[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
    to[6..8].copy_from_slice(&[protocol, HOPS]);
    to[8..24].copy_from_slice(source.bytes());
    to[24..40].copy_from_slice(destination.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (a, b) = (MappedAddress::v6([0x20; 16]), MappedAddress::v6([0x21; 16]));
        let mut bytes = vec![0; HEADER_LEN];
        write(&mut bytes, &a, &b, protocol, payload.len());
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn header_survives_the_round() {
        let bytes = packet(6, &[1, 2, 3]);
        let parsed = parse(&bytes).unwrap();
        assert_eq!((parsed.protocol, parsed.payload), (6, &[1, 2, 3][..]));
        assert_eq!(parsed.source, MappedAddress::v6([0x20; 16]));
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), Err(DropReason::Truncated));
        }
    }

    #[test]
    fn extensions_are_skipped() {
        let chain = [60, 0, 0, 0, 0, 0, 0, 0, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        let bytes = packet(HOP_BY_HOP, &chain);
        assert_eq!(parse(&bytes).unwrap().payload, [7]);
    }

    #[test]
    fn odd_chains_are_refused() {
        let endless: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(20);
        assert_eq!(parse(&packet(60, &endless)), Err(DropReason::Extension));
        assert_eq!(parse(&packet(60, &[6, 9, 0, 0, 0, 0, 0, 0])), Err(DropReason::Extension));
        assert_eq!(parse(&packet(ROUTING, &[6, 0, 0, 1, 0, 0, 0, 0])), Err(DropReason::Extension));
        assert_eq!(parse(&packet(FRAGMENT, &[6, 0, 0, 0, 0, 0, 0, 0])), Err(DropReason::Fragment));
    }
}
