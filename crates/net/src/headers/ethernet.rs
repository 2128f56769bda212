//! Ethernet with at most one VLAN tag (IEEE 802.1Q).

use crate::counters::DropReason;

/// Length of the header without a tag.
const HEADER_LEN: usize = 14;
/// Length of a tag.
const TAG_LEN: usize = 4;
/// EtherType of a tagged frame.
const TAGGED: u16 = 0x8100;
/// Bits of a tag that name the VLAN.
const VLAN_MASK: u16 = 0xfff;
/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

/// The header of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EthernetHeader {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    /// Tag control information: priority and VLAN. `None` for a frame without a tag, or whose tag names no VLAN.
    pub(crate) vlan: Option<u16>,
    pub(crate) ether_type: u16,
}

/// Returns the header and the rest of a frame.
pub(crate) fn parse(frame: &[u8]) -> Result<(EthernetHeader, &[u8]), DropReason> {
    let (head, mut rest) = frame.split_first_chunk::<HEADER_LEN>().ok_or(DropReason::Truncated)?;
    let mut destination = [0; 6];
    let mut source = [0; 6];
    destination.copy_from_slice(&head[..6]);
    source.copy_from_slice(&head[6..12]);
    let mut ether_type = u16::from_be_bytes([head[12], head[13]]);
    let mut vlan = None;
    if ether_type == TAGGED {
        let (tag, inner) = rest.split_first_chunk::<TAG_LEN>().ok_or(DropReason::Truncated)?;
        // A tag with VLAN 0 has a priority and names no VLAN (IEEE 802.1Q, 9.6).
        vlan = Some(u16::from_be_bytes([tag[0], tag[1]])).filter(|tag| tag & VLAN_MASK != 0);
        ether_type = u16::from_be_bytes([tag[2], tag[3]]);
        rest = inner;
    }
    match ether_type {
        IPV4 | IPV6 => Ok((EthernetHeader { destination, source, vlan, ether_type }, rest)),
        _ => Err(DropReason::EtherType),
    }
}

/// Returns the length of the header for a frame with or without a tag.
pub(crate) const fn header_len(vlan: Option<u16>) -> usize {
    if vlan.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
}

/// Writes a header into a slice of exactly its length.
pub(crate) fn write(to: &mut [u8], destination: [u8; 6], source: [u8; 6], vlan: Option<u16>, ether_type: u16) {
    to[..6].copy_from_slice(&destination);
    to[6..12].copy_from_slice(&source);
    let mut at = 12;
    if let Some(vlan) = vlan {
        to[12..14].copy_from_slice(&TAGGED.to_be_bytes());
        to[14..16].copy_from_slice(&vlan.to_be_bytes());
        at = 16;
    }
    to[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
    debug_assert_eq!(at + 2, to.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(vlan: Option<u16>, ether_type: u16) -> Vec<u8> {
        let mut frame = vec![0; header_len(vlan)];
        write(&mut frame, [1; 6], [2; 6], vlan, ether_type);
        frame
    }

    #[test]
    fn header_survives_the_round() {
        for vlan in [None, Some(1), Some(0x6005)] {
            let mut frame = written(vlan, IPV6);
            frame.push(9);
            let (header, rest) = parse(&frame).unwrap();
            assert_eq!(header, EthernetHeader { destination: [1; 6], source: [2; 6], vlan, ether_type: IPV6 });
            assert_eq!(rest, [9]);
        }
    }

    #[test]
    fn priority_without_a_vlan_is_no_tag() {
        let frame = written(Some(0xe000), IPV4);
        let (header, rest) = parse(&frame).unwrap();
        assert_eq!((header.vlan, header.ether_type), (None, IPV4));
        assert!(rest.is_empty());
    }

    #[test]
    fn second_tag_and_other_protocols_are_refused() {
        assert_eq!(parse(&written(None, 0x0806)), Err(DropReason::EtherType));
        let mut twice = written(Some(1), TAGGED);
        twice.extend([0, 2, 8, 0]);
        assert_eq!(parse(&twice), Err(DropReason::EtherType));
    }

    #[test]
    fn short_frames_are_refused() {
        let frame = written(Some(1), IPV4);
        for len in 0..frame.len() {
            assert_eq!(parse(&frame[..len]), Err(DropReason::Truncated), "{len}");
        }
    }
}
