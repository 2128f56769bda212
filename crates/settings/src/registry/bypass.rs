//! The table `bypass`: the datapath past the kernel's TCP.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;

pub(super) const BYPASS: [Setting; 8] = [
    Setting {
        key: Key::BypassInterface,
        name: "bypass.interface",
        env: "CAROM_BYPASS_INTERFACE",
        flag: None,
        kind: "the name of a network interface, such as eth0",
        default: None,
        secret: false,
        doc: "Interface whose frames for the public listeners go past the kernel's TCP (AF_XDP), receive queue 0 to core 0 and so on. If not set, everything is served over the kernel.",
        show: |settings| Shown::optional(settings.bypass.interface.as_ref()),
    },
    Setting {
        key: Key::BypassAddresses,
        name: "bypass.addresses",
        env: "CAROM_BYPASS_ADDRESSES",
        flag: None,
        kind: "one or more IP addresses",
        default: None,
        secret: false,
        doc: "Addresses to serve past the kernel's TCP, at the ports of listen. With direct server return these are the addresses of the load balancer. If not set: the addresses in listen; for a wildcard, those of the interface.",
        show: |settings| Shown::some_list(&settings.bypass.addresses),
    },
    Setting {
        key: Key::BypassQueues,
        name: "bypass.queues",
        env: "CAROM_BYPASS_QUEUES",
        flag: None,
        kind: "auto, or receive queues such as 0-3 or 0,2,4",
        default: Some("auto"),
        secret: false,
        doc: "Receive queues of the cores, the first for core 0. auto: queue 0 for core 0 and so on.",
        show: |settings| match &settings.bypass.queues {
            None => Shown::text("auto"),
            Some(queues) => Shown::text(queues.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        },
    },
    Setting {
        key: Key::BypassMode,
        name: "bypass.mode",
        env: "CAROM_BYPASS_MODE",
        flag: None,
        kind: "auto, native or generic",
        default: Some("auto"),
        secret: false,
        doc: "Where the XDP program runs: in the driver (native), in the kernel's network stack (generic), or in the driver if it can (auto).",
        show: |settings| Shown::text(settings.bypass.mode.as_str()),
    },
    Setting {
        key: Key::BypassZeroCopy,
        name: "bypass.zero_copy",
        env: "CAROM_BYPASS_ZERO_COPY",
        flag: None,
        kind: "auto, on or off",
        default: Some("auto"),
        secret: false,
        doc: "Whether the device reads and writes frames itself: if the driver can (auto), always (on), or never (off).",
        show: |settings| {
            Shown::text(match settings.bypass.zero_copy {
                None => "auto",
                Some(true) => "on",
                Some(false) => "off",
            })
        },
    },
    Setting {
        key: Key::BypassBusyPoll,
        name: "bypass.busy_poll",
        env: "CAROM_BYPASS_BUSY_POLL",
        flag: None,
        kind: "off, or microseconds from 1 to 1000",
        default: Some("off"),
        secret: false,
        doc: "Preferred busy polling: a core runs the driver of its queue itself, with this limit for one poll, and interrupts stay off while it does. 20 is usual. The interface needs napi_defer_hard_irqs and gro_flush_timeout.",
        show: |settings| match settings.bypass.busy_poll {
            None => Shown::text("off"),
            Some(micros) => Shown::plain(micros),
        },
    },
    Setting {
        key: Key::BypassDecapsulate,
        name: "bypass.decapsulate",
        env: "CAROM_BYPASS_DECAPSULATE",
        flag: None,
        kind: "none, ipip, gue or gue:PORT",
        default: Some("none"),
        secret: false,
        doc: "Tunnel header that a load balancer with direct server return puts in front of packets. gue means UDP port 6080.",
        show: |settings| Shown::text(settings.bypass.tunnel.text()),
    },
    Setting {
        key: Key::BypassRequired,
        name: "bypass.required",
        env: "CAROM_BYPASS_REQUIRED",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Whether a node that cannot use bypass refuses to start. If false, it logs a warning and serves over the kernel.",
        show: |settings| Shown::plain(settings.bypass.is_required),
    },
];
