//! Kernel bypass: the interface, and how its frames reach the cores.

use super::check::Checker;
use super::keys::Key;
use super::problem::{InvalidValue, quoted};
use super::value::{self, Written};

/// Longest name of an interface in bytes (`IFNAMSIZ` less the zero byte).
const NAME_LEN_MAX: usize = 15;

/// The UDP port that IANA assigned to GUE.
const GUE_PORT: u16 = 6_080;

/// The settings of kernel bypass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BypassSettings {
    /// The name of the interface; `None` to serve over the kernel's TCP only.
    pub interface: Option<String>,
    /// The place where the XDP program runs.
    pub mode: BypassMode,
    /// True for zero copy, false for copies; `None` for zero copy if the driver has it.
    pub zero_copy: Option<bool>,
    /// The tunnel header in front of the packets of a balancer.
    pub tunnel: BypassTunnel,
    /// True if the node ends where bypass cannot be had, rather than serve over the kernel's TCP.
    pub is_required: bool,
}

/// The place where the XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BypassMode {
    /// In the driver if it can, or else in the network stack.
    Auto,
    /// In the driver.
    Native,
    /// In the network stack.
    Generic,
}

/// The tunnel header in front of the packets of a balancer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BypassTunnel {
    /// None: packets come as clients sent them.
    None,
    /// IP in IP.
    Ipip,
    /// Generic UDP Encapsulation to this port.
    Gue(u16),
}

impl BypassMode {
    /// Returns the name in the settings.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            BypassMode::Auto => "auto",
            BypassMode::Native => "native",
            BypassMode::Generic => "generic",
        }
    }
}

impl BypassTunnel {
    /// Returns the text in the settings.
    pub(crate) fn text(self) -> String {
        match self {
            BypassTunnel::None => "none".to_owned(),
            BypassTunnel::Ipip => "ipip".to_owned(),
            BypassTunnel::Gue(GUE_PORT) => "gue".to_owned(),
            BypassTunnel::Gue(port) => format!("gue:{port}"),
        }
    }
}

impl Checker<'_> {
    /// Returns the settings of kernel bypass; `None` if one is invalid.
    pub(super) fn bypass(&mut self) -> Option<BypassSettings> {
        let interface = self.one(Key::BypassInterface, interface);
        let mode = self.one(Key::BypassMode, mode);
        let zero_copy = self.one(Key::BypassZeroCopy, zero_copy);
        let tunnel = self.one(Key::BypassDecapsulate, tunnel);
        let is_required = self.one(Key::BypassRequired, value::boolean);
        Some(BypassSettings {
            interface,
            mode: mode?,
            zero_copy: zero_copy?,
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

fn tunnel(written: &Written) -> Result<BypassTunnel, InvalidValue> {
    let name = value::text(written)?.trim();
    let port = name.strip_prefix("gue:").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    match (name, port) {
        ("none", _) => Ok(BypassTunnel::None),
        ("ipip", _) => Ok(BypassTunnel::Ipip),
        ("gue", _) => Ok(BypassTunnel::Gue(GUE_PORT)),
        (_, Some(port)) => Ok(BypassTunnel::Gue(port)),
        _ => Err(InvalidValue::new(
            format!("{} is not an encapsulation", quoted(name)),
            "write \"none\", \"ipip\", \"gue\", or \"gue:PORT\"",
        )),
    }
}
