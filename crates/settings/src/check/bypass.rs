//! The checks of kernel bypass.

use std::net::IpAddr;

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, quoted};
use crate::settings::bypass::{BypassMode, BypassSettings, BypassTunnel, GUE_PORT};
use crate::value::{self, Written};

/// Longest name of an interface in bytes (`IFNAMSIZ` less the zero byte).
const NAME_LEN_MAX: usize = 15;

/// Highest number of a receive queue: the XDP program knows 1,024.
const QUEUE_MAX: u32 = 1_023;

/// Most microseconds of busy polling: a core has other work as well.
const BUSY_POLL_MAX: u32 = 1_000;

impl Checker<'_> {
    /// Returns the settings of kernel bypass; `None` if one is invalid.
    pub(super) fn bypass(&mut self) -> Option<BypassSettings> {
        let interface = self.one(Key::BypassInterface, interface);
        let addresses = self.list(Key::BypassAddresses, "write at least one address, or remove the setting", address);
        let queues = self.one(Key::BypassQueues, queues);
        let mode = self.one(Key::BypassMode, mode);
        let zero_copy = self.one(Key::BypassZeroCopy, zero_copy);
        let busy_poll = self.one(Key::BypassBusyPoll, busy_poll);
        let tunnel = self.one(Key::BypassDecapsulate, tunnel);
        let is_required = self.one(Key::BypassRequired, value::boolean);
        Some(BypassSettings {
            interface,
            addresses: addresses.unwrap_or_default().into_iter().map(|(address, _)| address).collect(),
            queues: queues?,
            mode: mode?,
            zero_copy: zero_copy?,
            busy_poll: busy_poll?,
            tunnel: tunnel?,
            is_required: is_required?,
        })
    }
}

fn interface(written: &Written) -> Result<String, InvalidValue> {
    let name = value::text(written)?.trim();
    let is_name = (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if !is_name {
        let wrong = format!("{} is not the name of a network interface", quoted(name));
        return Err(InvalidValue::new(wrong, "write a name that `ip link` shows, such as \"eth0\""));
    }
    Ok(name.to_owned())
}

fn address(text: &str) -> Result<IpAddr, InvalidValue> {
    let usable = |address: &IpAddr| !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    text.trim().parse().ok().filter(usable).ok_or_else(|| {
        let wrong = format!("{} is not an address that clients can reach", quoted(text));
        InvalidValue::new(wrong, "write an IP address without a port, such as 192.0.2.10 or 2001:db8::10")
    })
}

fn queues(written: &Written) -> Result<Option<Vec<u32>>, InvalidValue> {
    let text = match written {
        Written::Integer(digits) => digits,
        other => value::text(other)?.trim(),
    };
    if text == "auto" {
        return Ok(None);
    }
    let right = || format!("write \"auto\", or receive queues from 0 to {QUEUE_MAX} such as \"0-3\" or \"0,2,4\"");
    let mut queues = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        // `parse` accepts a sign, which would hide a typo such as `0-+3`.
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|_| !text.contains('+'));
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(InvalidValue::new(format!("{} is neither a receive queue nor a range", quoted(part)), right()));
        };
        if first > last || last > QUEUE_MAX {
            return Err(InvalidValue::new(format!("{} is not a range of receive queues", quoted(part)), right()));
        }
        queues.extend(first..=last);
    }
    let mut distinct = queues.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < queues.len() {
        return Err(InvalidValue::new("lists a receive queue twice", "give each core a queue of its own"));
    }
    Ok(Some(queues))
}

fn mode(written: &Written) -> Result<BypassMode, InvalidValue> {
    match value::text(written)?.trim() {
        "auto" => Ok(BypassMode::Auto),
        "native" => Ok(BypassMode::Native),
        "generic" => Ok(BypassMode::Generic),
        other => Err(InvalidValue::new(
            format!("{} is not a mode of bypass", quoted(other)),
            "write \"auto\", \"native\" or \"generic\"",
        )),
    }
}

fn zero_copy(written: &Written) -> Result<Option<bool>, InvalidValue> {
    match value::text(written)?.trim() {
        "auto" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => Err(InvalidValue::new(
            format!("{} is neither auto, on nor off", quoted(other)),
            "write \"auto\", \"on\" or \"off\"",
        )),
    }
}

fn busy_poll(written: &Written) -> Result<Option<u32>, InvalidValue> {
    let text = match written {
        Written::Integer(digits) => digits,
        other => value::text(other)?.trim(),
    };
    if text == "off" {
        return Ok(None);
    }
    let micros = text.parse::<u32>().ok().filter(|micros| (1..=BUSY_POLL_MAX).contains(micros));
    micros.map(Some).ok_or_else(|| {
        let wrong = format!("{} is neither off nor a time in microseconds", quoted(text));
        InvalidValue::new(wrong, format!("write \"off\", or a whole number from 1 to {BUSY_POLL_MAX}"))
    })
}

fn tunnel(written: &Written) -> Result<BypassTunnel, InvalidValue> {
    let name = value::text(written)?.trim();
    let port = name.strip_prefix("gue:").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    match (name, port) {
        ("none", _) => Ok(BypassTunnel::None),
        ("ipip", _) => Ok(BypassTunnel::Ipip),
        ("gue", _) => Ok(BypassTunnel::Gue(GUE_PORT)),
        (_, Some(port)) => Ok(BypassTunnel::Gue(port)),
        _ => Err(InvalidValue::new(
            format!("{} is not a tunnel", quoted(name)),
            "write \"none\", \"ipip\", \"gue\", or \"gue:PORT\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Written {
        Written::Word(text.to_owned())
    }

    #[test]
    fn queues_are_lists_of_ranges() {
        assert_eq!(queues(&word("auto")), Ok(None));
        assert_eq!(queues(&word("0-2, 5")), Ok(Some(vec![0, 1, 2, 5])));
        assert_eq!(queues(&Written::Integer("3".into())), Ok(Some(vec![3])));
        for wrong in ["", "a", "1-", "2-1", "0,0", "0-2,1", "1024", "0-4294967295", "-1", "+1", "0-+3"] {
            assert!(queues(&word(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn busy_polling_is_off_or_a_time() {
        assert_eq!(busy_poll(&word("off")), Ok(None));
        assert_eq!(busy_poll(&word(" 20 ")), Ok(Some(20)));
        assert_eq!(busy_poll(&Written::Integer("1000".into())), Ok(Some(1_000)));
        for wrong in ["", "on", "0", "1001", "-1", "20us", "4294967296"] {
            assert!(busy_poll(&word(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_those_of_clients() {
        for right in ["192.0.2.10", "2001:db8::10", " 10.0.0.1 "] {
            assert!(address(right).is_ok(), "{right}");
        }
        for wrong in ["", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "192.0.2.10:80", "host"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
