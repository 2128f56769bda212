//! The address of a client behind HTTP proxies, from a field of each request: `X-Forwarded-For`, or `Forwarded` (RFC
//! 7239).
//!
//! Each proxy appends the address of its own peer. An address counts if a trusted proxy wrote it, read from the end.
//! The first address that is not itself trusted is the client. The client may have forged everything before it.

use std::net::{IpAddr, SocketAddr};

use crate::clients::networks::Networks;

/// Maximum number of proxies that are followed for a request.
const HOPS_MAX: usize = 16;

/// The field that is trusted. There is only one: a proxy passes fields that it does not write on from its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Field {
    /// No field.
    #[default]
    Off,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `Forwarded`
    Forwarded,
}

impl Field {
    /// All fields.
    pub const ALL: [Field; 3] = [Field::Off, Field::XForwardedFor, Field::Forwarded];

    /// Returns the spelling in settings and in requests, whose field names are lower-case here.
    pub fn as_str(self) -> &'static str {
        match self {
            Field::Off => "off",
            Field::XForwardedFor => "x-forwarded-for",
            Field::Forwarded => "forwarded",
        }
    }
}

/// The proxies of a service, and the field that they write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// The trusted proxies.
    pub proxies: Networks,
    /// The field in which they name the client.
    pub field: Field,
}

impl Trust {
    /// Returns the client of a request, given its peer and the value of the field.
    pub fn client(&self, peer: IpAddr, value: &[u8]) -> IpAddr {
        let mut client = peer.to_canonical();
        let mut rest = Some(value);
        for _ in 0..HOPS_MAX {
            let Some(elements) = rest.filter(|_| self.proxies.has(client)) else { break };
            let (before, node) = match self.field {
                Field::Off => break,
                // Quotes have no meaning in this field.
                Field::XForwardedFor => match memchr::memrchr(b',', elements) {
                    Some(comma) => (Some(&elements[..comma]), Some(&elements[comma + 1..])),
                    None => (None, Some(elements)),
                },
                Field::Forwarded => {
                    let (before, element) = last_of(elements, b',');
                    (before, for_of(element))
                }
            };
            rest = before;
            match node.and_then(address) {
                Some(before) => client = before.to_canonical(),
                // An obfuscated or unknown address: the proxy that passed it on is the last known one.
                None => break,
            }
        }
        client
    }
}

/// Splits at the last `mark` outside quotes, and returns the text after it and the text before it. Quoted strings may
/// contain text of a client, such as its host. The scan runs from the end, so that no text farther in front can shift
/// the quotes.
fn last_of(text: &[u8], mark: u8) -> (Option<&[u8]>, &[u8]) {
    let mut is_quoted = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        let is_escaped = || text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
        if byte == b'"' && !is_escaped() {
            is_quoted = !is_quoted;
        } else if byte == mark && !is_quoted {
            return (Some(&text[..at]), &text[at + 1..]);
        }
    }
    (None, text)
}

/// Returns the value of `for` in an element of `Forwarded`, without its quotes; `None` unless there is exactly one.
fn for_of(element: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let (before, pair) = last_of(pairs, b';');
        rest = before;
        let Some((name, value)) = pair.trim_ascii().split_at_checked(4) else { continue };
        if name.eq_ignore_ascii_case(b"for=") && found.replace(value).is_some() {
            return None;
        }
    }
    found.map(|value| value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

/// Parses an address with an optional port. An IPv6 address may be in brackets.
fn address(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node.trim_ascii()).ok()?;
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let plain = text.parse::<IpAddr>().ok().or_else(in_brackets);
    plain.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::networks::Network;
    use proptest::prelude::*;

    fn client(field: Field, peer: &str, value: &str) -> String {
        let proxies = ["10.0.0.0/8", "fd00::/8"].map(|text| Network::parse(text).unwrap());
        let trust = Trust { proxies: Networks(proxies.to_vec()), field };
        trust.client(peer.parse().unwrap(), value.as_bytes()).to_string()
    }

    #[test]
    fn the_last_address_that_is_not_trusted_is_the_client() {
        for (peer, value, found) in [
            ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
            ("10.0.0.1", " 203.0.113.7 ", "203.0.113.7"),
            ("::ffff:10.0.0.1", "203.0.113.7:4711", "203.0.113.7"),
            ("fd00::1", "2001:db8::1", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]:80", "2001:db8::1"),
            ("10.0.0.1", "198.51.100.1, 203.0.113.7, 10.9.9.9,10.0.0.2", "203.0.113.7"),
            ("10.0.0.1", "10.0.0.3", "10.0.0.3"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "203.0.113.7, unknown", "10.0.0.1"),
            ("10.0.0.1", "203.0.113.7, unknown, 10.0.0.2", "10.0.0.2"),
            // An untrusted peer cannot name another client.
            ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ] {
            assert_eq!(client(Field::XForwardedFor, peer, value), found, "{peer} {value}");
        }
        let long = ["203.0.113.7", &vec!["10.0.0.1"; 100].join(",")].join(",");
        assert_eq!(client(Field::XForwardedFor, "10.0.0.1", &long), "10.0.0.1");
        assert_eq!(client(Field::Off, "10.0.0.1", "203.0.113.7"), "10.0.0.1");
    }

    #[test]
    fn the_standard_field_names_its_parameters() {
        for (value, found) in [
            ("for=203.0.113.7", "203.0.113.7"),
            ("For=\"203.0.113.7:4711\";proto=https;by=10.0.0.1", "203.0.113.7"),
            ("proto=http; FOR=\"[2001:db8::1]:80\"", "2001:db8::1"),
            ("for=198.51.100.1, for=203.0.113.7;host=a, for=10.0.0.2", "203.0.113.7"),
            // Text that a client has sent is quoted.
            ("for=203.0.113.7;host=\"x,for=198.51.100.1;y\"", "203.0.113.7"),
            ("host=\"x;for=198.51.100.1;y\";for=203.0.113.7", "203.0.113.7"),
            ("host=\"a,b\";for=203.0.113.7", "203.0.113.7"),
            ("for=203.0.113.7;host=\"x\\\",for=198.51.100.1\"", "203.0.113.7"),
            ("\", for=198.51.100.1, for=203.0.113.7", "203.0.113.7"),
            ("for=198.51.100.1;for=203.0.113.7", "10.0.0.1"),
            ("for=_hidden", "10.0.0.1"),
            ("for=unknown", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
            ("203.0.113.7", "10.0.0.1"),
        ] {
            assert_eq!(client(Field::Forwarded, "10.0.0.1", value), found, "{value}");
        }
    }

    proptest! {
        #[test]
        fn reading_is_total(value in proptest::collection::vec(any::<u8>(), 0..100), near in "[fF]or=[\"\\[0-9a-f.:\\],; ]{0,60}") {
            for field in Field::ALL {
                let trust = Trust { proxies: Networks(vec![Network::parse("0.0.0.0/0").unwrap()]), field };
                trust.client(IpAddr::from([10, 0, 0, 1]), &value);
                trust.client(IpAddr::from([10, 0, 0, 1]), near.as_bytes());
            }
        }
    }
}
