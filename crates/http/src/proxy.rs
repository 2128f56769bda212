//! The PROXY protocol, versions 1 and 2: the bytes by which a balancer names the client before anything else
//! (haproxy.org/download/3.0/doc/proxy-protocol.txt).
//!
//! The parser is total, keeps no state and does no I/O: the caller shows it all bytes that have come so far. Whether
//! their sender is trusted is decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest line of version 1 in bytes, including its end (section 2.1).
const LINE_LEN_MAX: usize = 107;

/// The first bytes of version 2 (section 2.2): no HTTP method, no TLS record, and not version 1.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of a header of version 2 before its addresses.
const FIXED_LEN: usize = 16;

/// Longest rest of a header of version 2 that is accepted, in bytes. Addresses take 12 to 36 bytes, and the extensions
/// of balancers, client certificates included, some hundreds.
const REST_LEN_MAX: usize = 4_096;

/// The type of an extension with a checksum over the whole header (section 2.2.4).
const CRC32C: u8 = 0x03;

/// The result of parsing the bytes so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParsedHeader {
    /// The beginning of a header.
    Part,
    /// A complete header, with the client if it names one. A balancer names none for requests of its own.
    Header {
        /// Length of the header in bytes.
        len: usize,
        /// The address of the client.
        client: Option<IpAddr>,
    },
    /// The bytes are not a PROXY header.
    Other,
}

/// Parses all bytes that a connection has sent.
pub(super) fn parse(bytes: &[u8]) -> ParsedHeader {
    let is_beginning_of = |whole: &[u8]| bytes.len() < whole.len() && whole.starts_with(bytes);
    if bytes.starts_with(SIGNATURE) {
        return parse_v2(bytes).unwrap_or(ParsedHeader::Other);
    }
    if bytes.starts_with(b"PROXY ") {
        return parse_v1(bytes);
    }
    if is_beginning_of(SIGNATURE) || is_beginning_of(b"PROXY ") { ParsedHeader::Part } else { ParsedHeader::Other }
}

fn parse_v1(bytes: &[u8]) -> ParsedHeader {
    let seen = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    let Some(end) = memchr::memmem::find(seen, b"\r\n") else {
        return if seen.len() < LINE_LEN_MAX { ParsedHeader::Part } else { ParsedHeader::Other };
    };
    let len = end + 2;
    let words: Vec<&str> = match std::str::from_utf8(&bytes[..end]) {
        Ok(line) => line.split(' ').collect(),
        Err(_) => return ParsedHeader::Other,
    };
    match words[..] {
        // The rest of the line is ignored.
        ["PROXY", "UNKNOWN", ..] => ParsedHeader::Header { len, client: None },
        ["PROXY", family @ ("TCP4" | "TCP6"), from, to, from_port, to_port] => {
            let address = |text: &str| -> Option<IpAddr> {
                match family {
                    "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
                    _ => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
                }
            };
            let ports_are_good = [from_port, to_port].iter().all(|port| is_port(port));
            match (address(from), address(to)) {
                (Some(client), Some(_)) if ports_are_good => ParsedHeader::Header { len, client: Some(client) },
                _ => ParsedHeader::Other,
            }
        }
        _ => ParsedHeader::Other,
    }
}

/// True for a number up to 65,535, without a sign and without leading zeros.
fn is_port(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_plain && text.parse::<u16>().is_ok()
}

/// Parses a header of version 2. `None` means that it is malformed.
fn parse_v2(bytes: &[u8]) -> Option<ParsedHeader> {
    let Some(fixed) = bytes.first_chunk::<FIXED_LEN>() else { return Some(ParsedHeader::Part) };
    let rest_len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if fixed[12] >> 4 != 2 || rest_len > REST_LEN_MAX {
        return None;
    }
    let Some(header) = bytes.get(..FIXED_LEN + rest_len) else { return Some(ParsedHeader::Part) };
    let rest = &header[FIXED_LEN..];
    let (client, addresses_len) = match (fixed[12] & 0xf, fixed[13]) {
        // LOCAL: the balancer's own connection, whatever the rest of the header says.
        (0, _) => (None, rest_len),
        // PROXY over IPv4 or IPv6, for a stream or a datagram before the balancer.
        (1, 0x11 | 0x12) => (Some(IpAddr::from(*rest.first_chunk::<4>()?)), 12),
        (1, 0x21 | 0x22) => (Some(IpAddr::from(*rest.first_chunk::<16>()?)), 36),
        // PROXY over another family, which names no client.
        (1, 0x00) => (None, rest_len),
        (1, 0x31 | 0x32) => (None, 216),
        _ => return None,
    };
    checks(header, rest.get(addresses_len..)?).then_some(ParsedHeader::Header { len: header.len(), client })
}

/// True if the extensions of a header are well-formed, and its checksum is right if it has one.
fn checks(header: &[u8], mut extensions: &[u8]) -> bool {
    while let Some((&[kind, high, low], behind)) = extensions.split_first_chunk::<3>() {
        let Some((value, rest)) = behind.split_at_checked(usize::from(u16::from_be_bytes([high, low]))) else {
            return false;
        };
        if kind == CRC32C {
            let at = value.as_ptr().addr() - header.as_ptr().addr();
            let zeroed = header.iter().enumerate().map(|(place, &byte)| {
                // The checksum is computed with zeros in its own place.
                if (at..at + value.len()).contains(&place) { 0 } else { byte }
            });
            if value != crc32c(zeroed).to_be_bytes() {
                return false;
            }
        }
        extensions = rest;
    }
    extensions.is_empty()
}

/// Returns the checksum of RFC 3720, appendix B.4 (CRC-32C). A header is short, so a bit at a time will do. `crc32fast`
/// has the polynomial of Ethernet only, and another package would cost more than these lines.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    let step = |sum: u32, byte: u8| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 })
    };
    !bytes.fold(!0, step)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a header of version 2 that names a client, with extensions.
    pub(crate) fn v2(client: IpAddr, extensions: &[u8]) -> Vec<u8> {
        let (family, addresses) = match client {
            IpAddr::V4(address) => (0x11, [&address.octets()[..], &[10, 0, 0, 1], &[1, 2, 3, 4]].concat()),
            IpAddr::V6(address) => (0x21, [&address.octets()[..], &[1; 16], &[1, 2, 3, 4]].concat()),
        };
        let len = (addresses.len() + extensions.len()) as u16;
        [&SIGNATURE[..], &[0x21, family], &len.to_be_bytes(), &addresses, extensions].concat()
    }

    fn client(bytes: &[u8]) -> Option<Option<IpAddr>> {
        match parse(bytes) {
            ParsedHeader::Header { len, client } => {
                assert_eq!(len, bytes.len());
                // No prefix is a header, and no byte behind the header counts.
                (0..len).for_each(|end| assert_eq!(parse(&bytes[..end]), ParsedHeader::Part, "{end}"));
                let more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
                assert_eq!(parse(&more), ParsedHeader::Header { len, client });
                Some(client)
            }
            ParsedHeader::Part | ParsedHeader::Other => None,
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
        assert_eq!(crc32c([0; 32].into_iter()), 0x8a91_36aa);
    }

    #[test]
    fn lines_name_a_client_or_nobody() {
        let v4 = Some(Some(IpAddr::from([203, 0, 113, 7])));
        assert_eq!(client(b"PROXY TCP4 203.0.113.7 10.0.0.1 56324 443\r\n"), v4);
        assert_eq!(client(b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n"), Some("2001:db8::1".parse().ok()));
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), Some(None));
        assert_eq!(client(b"PROXY UNKNOWN ffff::1 whatever 1 2 3\r\n"), Some(None));
        for wrong in [
            "PROXY TCP4 203.0.113.7 10.0.0.1 56324\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 56324 443 1\r\n",
            "PROXY TCP4 203.0.113.7  10.0.0.1 56324 443\r\n",
            "PROXY TCP4 203.0.113.07 10.0.0.1 1 1\r\n",
            "PROXY TCP4 2001:db8::1 ::1 1 1\r\n",
            "PROXY TCP6 203.0.113.7 10.0.0.1 1 1\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 65536 443\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 +1 443\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 01 443\r\n",
            "PROXY UDP4 203.0.113.7 10.0.0.1 1 443\r\n",
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 203.0.113.7\u{e9} 10.0.0.1 1 443\r\n",
            "proxy UNKNOWN\r\n",
            "GET / HTTP/1.1\r\n",
            "\r\nx",
        ] {
            assert_eq!(parse(wrong.as_bytes()), ParsedHeader::Other, "{wrong:?}");
        }
        let long = |len: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(len - 16));
        assert_eq!(client(long(LINE_LEN_MAX).as_bytes()), Some(None));
        assert_eq!(parse(long(LINE_LEN_MAX + 1).as_bytes()), ParsedHeader::Other);
    }

    #[test]
    fn the_binary_form_names_a_client_or_nobody() {
        let (four, six): (IpAddr, IpAddr) = ("203.0.113.7".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(client(&v2(four, b"")), Some(Some(four)));
        assert_eq!(client(&v2(six, b"\x02\0\x03abc\x04\0\0")), Some(Some(six)));
        let of = |command: u8, family: u8, rest: &[u8]| {
            [&SIGNATURE[..], &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
        };
        // A balancer's own connection, and sockets without addresses.
        for nobody in [
            of(0x20, 0x00, b""),
            of(0x20, 0x11, &[9; 12]),
            of(0x20, 0xff, b"x"),
            of(0x21, 0x00, b"abc"),
            of(0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(client(&nobody), Some(None), "{nobody:?}");
        }
        for wrong in [
            of(0x11, 0x11, &[9; 12]),
            of(0x22, 0x11, &[9; 12]),
            of(0x21, 0x11, &[9; 11]),
            of(0x21, 0x21, &[9; 35]),
            of(0x21, 0x31, &[9; 215]),
            of(0x21, 0x13, &[9; 12]),
            of(0x21, 0x41, &[9; 12]),
            of(0x21, 0x11, &[9; 14]),
            of(0x21, 0x00, &[0; REST_LEN_MAX + 1]),
            v2(four, b"\x02\0\x04abc"),
            v2(four, b"\x03\0\x04\0\0\0\0"),
            v2(four, b"\x03\0\x02\0\0"),
        ] {
            assert_eq!(parse(&wrong), ParsedHeader::Other, "{wrong:?}");
        }
    }

    #[test]
    fn a_checksum_covers_all_of_a_header() {
        let mut header = v2("203.0.113.7".parse().unwrap(), b"\x04\0\x01x\x03\0\x04\0\0\0\0");
        let at = header.len() - 4;
        let sum = crc32c(header.iter().copied());
        header[at..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(client(&header), Some(Some(IpAddr::from([203, 0, 113, 7]))));
        // The type byte of the checksum extension protects itself in no way.
        for place in (16..header.len()).filter(|&place| place != at - 3) {
            header[place] ^= 1;
            assert!(!matches!(parse(&header), ParsedHeader::Header { client: Some(_), .. }), "{place}");
            header[place] ^= 1;
        }
    }

    proptest! {
        #[test]
        fn looking_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..300), line in "PROXY (TCP[46]|UNKNOWN)?[ 0-9a-f.:]{0,110}(\r\n)?") {
            let near = [&SIGNATURE[..], &[0x21, 0x11, 0, 40], &bytes].concat();
            for bytes in [&bytes[..], line.as_bytes(), &near] {
                if let ParsedHeader::Header { len, .. } = parse(bytes) {
                    prop_assert!(len <= bytes.len());
                }
            }
        }
    }
}
