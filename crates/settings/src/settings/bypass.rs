//! Kernel bypass: the interface, and how its frames reach the cores.

use std::net::IpAddr;

/// The UDP port that IANA assigned to GUE.
pub(crate) const GUE_PORT: u16 = 6_080;

/// The settings of kernel bypass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BypassSettings {
    /// The name of the interface; `None` to serve over the kernel's TCP only.
    pub interface: Option<String>,
    /// The addresses to serve past the kernel's TCP; empty for those of the listeners.
    pub addresses: Vec<IpAddr>,
    /// The receive queue of each core, without duplicates; `None` for queue n of core n.
    pub queues: Option<Vec<u32>>,
    /// The place where the XDP program runs.
    pub mode: BypassMode,
    /// True for zero copy, false for copies; `None` for zero copy if the driver has it.
    pub zero_copy: Option<bool>,
    /// Microseconds of preferred busy polling; `None` for interrupts only.
    pub busy_poll: Option<u32>,
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
    /// No tunnel: packets come as clients sent them.
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
