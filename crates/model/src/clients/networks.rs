//! Networks of IP addresses, for the trusted peers of the settings: `10.0.0.0/8`, `fd00::/8`, or a single address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A network: all addresses with a common prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network {
    /// The first address.
    first: IpAddr,
    /// The length of the prefix, in bits.
    bits: u8,
}

/// The reason for which a text is not a network. The operator must correct it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkError {
    /// The text before the slash is not an address.
    NoAddress,
    /// The prefix length is not a number, or longer than the address.
    Bits,
    /// Bits after the prefix are set: perhaps another network is meant.
    Host,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NetworkError::NoAddress => "is neither an IP address nor a network such as 10.0.0.0/8",
            NetworkError::Bits => "has an invalid prefix length after its slash",
            NetworkError::Host => "has address bits beyond its prefix length",
        })
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Parses a network, or a single address.
    ///
    /// # Errors
    /// [`NetworkError`] if the text has another form.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| NetworkError::NoAddress)?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| NetworkError::Bits)?
            }
            Some(_) => return Err(NetworkError::Bits),
        };
        if bits > most {
            return Err(NetworkError::Bits);
        }
        // An IPv4-mapped IPv6 network counts as an IPv4 network.
        let network = match first.to_canonical() {
            canonical if first.is_ipv6() && canonical.is_ipv4() && bits >= 96 => {
                Network { first: canonical, bits: bits - 96 }
            }
            _ => Network { first, bits },
        };
        let (number, offset) = network.number();
        if number & !mask(network.bits + offset) == 0 { Ok(network) } else { Err(NetworkError::Host) }
    }

    /// Returns the network of an address whose prefix has this length; `None` unless that is a number of its bits.
    pub fn around(address: IpAddr, bits: &str) -> Option<Network> {
        let canonical = address.to_canonical();
        let mapped = if address.is_ipv6() && canonical.is_ipv4() { 96 } else { 0 };
        let bits = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))?;
        let bits = bits.parse::<u8>().ok()?.checked_sub(mapped)?;
        match canonical {
            IpAddr::V4(address) if bits <= 32 => {
                let first = (u128::from(u32::from(address)) & mask(bits + 96)) as u32;
                Some(Network { first: IpAddr::V4(first.into()), bits })
            }
            IpAddr::V6(address) if bits <= 128 => {
                let first = Ipv6Addr::from_bits(address.to_bits() & mask(bits));
                Some(Network { first: first.into(), bits })
            }
            _ => None,
        }
    }

    /// True if an address is in the network. An IPv4-mapped IPv6 address counts as an IPv4 address.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let (number, offset) = self.number();
        address.is_ipv4() == self.first.is_ipv4() && (number ^ as_number(address)) & mask(self.bits + offset) == 0
    }

    /// Returns the first address as a number, and the number of leading bits that an IPv4 address leaves unused.
    fn number(&self) -> (u128, u8) {
        (as_number(self.first), if self.first.is_ipv4() { 96 } else { 0 })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

fn as_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

/// Returns a number with this many leading ones. The bits before an IPv4 address are always zero.
fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

/// A set of networks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks(pub Vec<Network>);

impl Networks {
    /// True if one of the networks contains an address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_have_what_begins_alike() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.4", "192.0.2.4", "192.0.2.5"),
            ("192.0.2.4/31", "192.0.2.5", "192.0.2.6"),
            ("0.0.0.0/0", "203.0.113.7", "2001:db8::1"),
            ("::/0", "2001:db8::1", "203.0.113.7"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3"),
            ("::ffff:10.0.0.5", "10.0.0.5", "10.0.0.6"),
        ] {
            let network = Network::parse(network).unwrap();
            let has = |text: &str| network.has(text.parse().unwrap());
            assert!(has(inside), "{network} {inside} {outside}");
            assert!(!has(outside), "{network} {inside} {outside}");
            assert_eq!(Network::parse(&network.to_string()), Ok(network));
        }
    }

    #[test]
    fn what_is_no_network_is_told() {
        for (text, error) in [
            ("", NetworkError::NoAddress),
            ("10.0.0", NetworkError::NoAddress),
            ("host/8", NetworkError::NoAddress),
            ("10.0.0.0/33", NetworkError::Bits),
            ("10.0.0.0/", NetworkError::Bits),
            ("10.0.0.0/+8", NetworkError::Bits),
            ("10.0.0.0/8/8", NetworkError::Bits),
            ("::/129", NetworkError::Bits),
            ("10.0.0.1/8", NetworkError::Host),
            ("fd00::1/8", NetworkError::Host),
        ] {
            assert_eq!(Network::parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_is_total(text in any::<String>(), near in "[0-9a-f.:]{0,20}/?[0-9]{0,4}") {
            for text in [text, near] {
                let _ = Network::parse(&text);
            }
        }
    }
}
