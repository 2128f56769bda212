//! Parsers of addresses and networks, and of the choice of listeners.

use std::net::SocketAddr;

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};
use carom_model::clients::forwarded::Field;
use carom_model::clients::networks::Network;

/// Reads an IP address and a port. Names are not resolved: a name server could change the networks that can reach the
/// node.
pub(crate) fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    let (reason, right) = if text.is_empty() {
        ("is empty".to_owned(), "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
    } else if port.parse::<u16>().is_ok() {
        (
            format!("{} has no IP address", quoted(text)),
            format!("write 127.0.0.1:{port}, or 0.0.0.0:{port} for all addresses"),
        )
    } else if let Ok(ip) = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        (format!("{} has no port", quoted(text)), format!("write {}", SocketAddr::new(ip, 8080)))
    } else if let Some(port) = text.strip_prefix("localhost:").filter(|port| port.parse::<u16>().is_ok()) {
        (format!("{} is a name", quoted(text)), format!("write 127.0.0.1:{port} or [::1]:{port}"))
    } else {
        (
            format!("{} is not an address", quoted(text)),
            "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
        )
    };
    Err(InvalidValue::new(reason, right))
}

/// Reads a network of addresses.
pub(crate) fn network(text: &str) -> Result<Network, InvalidValue> {
    let right = "write an IP address, or a network such as 10.0.0.0/8";
    Network::parse(text).map_err(|error| InvalidValue::new(format!("{} {error}", quoted(text)), right))
}

/// Reads the field in which proxies name the client.
pub(crate) fn forwarded_field(written: &Written) -> Result<Field, InvalidValue> {
    let text = text(written)?.trim();
    Field::ALL.into_iter().find(|field| field.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let reason = format!("{} is not off, x-forwarded-for or forwarded", quoted(text));
        InvalidValue::new(reason, "write the header that your proxies set")
    })
}

/// A selection of listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chosen {
    /// No listener.
    Off,
    /// All listeners.
    All,
    /// The listener with this address.
    At(SocketAddr),
}

/// Reads an item of the listeners that require a PROXY header.
pub(crate) fn proxied(text: &str) -> Result<Chosen, InvalidValue> {
    match text {
        "off" => Ok(Chosen::Off),
        "require" => Ok(Chosen::All),
        text => text.parse().map(Chosen::At).map_err(|_| {
            let reason = format!("{} is neither off, require, nor an address", quoted(text));
            InvalidValue::new(reason, "write \"off\", \"require\", or addresses of listen")
        }),
    }
}

/// Reads an item of the listeners that use TLS.
pub(crate) fn secure(text: &str) -> Result<Chosen, InvalidValue> {
    if text == "all" {
        return Ok(Chosen::All);
    }
    text.parse().map(Chosen::At).map_err(|_| {
        let reason = format!("{} is neither all nor an address", quoted(text));
        InvalidValue::new(reason, "write \"all\" or addresses of listen")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read() {
        assert_eq!(address("127.0.0.1:0").unwrap(), SocketAddr::from(([127, 0, 0, 1], 0)));
        assert!(address(" [::1]:8080 ").unwrap().is_ipv6());
    }

    #[test]
    fn a_wrong_address_is_answered_with_the_right_one() {
        for (wrong, right) in [
            ("8080", "write 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses"),
            (":80", "write 127.0.0.1:80, or 0.0.0.0:80 for all addresses"),
            ("10.0.0.1", "write 10.0.0.1:8080"),
            ("::1", "write [::1]:8080"),
            ("[::1]", "write [::1]:8080"),
            ("localhost:99", "write 127.0.0.1:99 or [::1]:99"),
            ("localhost:99999", "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
            ("", "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
        ] {
            assert_eq!(address(wrong).unwrap_err().right, right, "{wrong}");
        }
    }
}
