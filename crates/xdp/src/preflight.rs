//! Checks before bypass starts: whether this process may use it, whether this machine and interface can, and what to
//! type when not.
//!
//! [`read_machine`] asks the kernel; [`findings`] compares the answers with what is wanted, and does no I/O. Texts are
//! for operators: [`Finding`] prints as one line.

use std::fmt;
use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};

use crate::config::ZeroCopy;
use crate::interface::InterfaceFacts;
use crate::program::{AttachMode, QUEUES_MAX};
use crate::socket::FRAME_LEN;

/// The oldest kernel with everything that carom uses.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// Longest packet that fits a frame behind the headroom that XDP keeps in front of it and the Ethernet header with a
/// tag.
const MTU_MAX: u32 = FRAME_LEN as u32 - 256 - 18;

/// Shortest packet that every host of IPv6 must take.
const MTU_MIN: u32 = 1_280;

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingSeverity {
    /// Bypass works.
    Note,
    /// Bypass works, but slower or not for all traffic.
    Warning,
    /// Bypass cannot start.
    Error,
}

/// The subject of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingSubject {
    /// The process that asks: its capabilities and limits. Another process may have others.
    Process,
    /// An attached XDP program. It may be that of a running carom.
    Program,
    /// The kernel or the interface.
    Machine,
}

/// A fact that stands in the way of bypass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The severity of the finding.
    pub severity: FindingSeverity,
    /// The subject of the finding.
    pub subject: FindingSubject,
    /// The fact, and its consequence.
    pub problem: String,
    /// Commands to type or lines to add; empty if nothing can be done.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            FindingSeverity::Note => "note",
            FindingSeverity::Warning => "warning",
            FindingSeverity::Error => "error",
        };
        write!(f, "{severity}: {}", self.problem)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// The settings that the checks compare with the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BypassPlan {
    /// The name of the interface.
    pub interface: String,
    /// The place where the program is to run.
    pub mode: AttachMode,
    /// Zero copy or copies.
    pub zero_copy: ZeroCopy,
    /// Number of cores, and so of sockets.
    pub cores: u32,
    /// The receive queue of each core; `None` for queue n of core n.
    pub queues: Option<Vec<u32>>,
    /// Frames of each socket.
    pub frames: u32,
}

/// Facts about the process, the kernel and the interface.
#[derive(Debug)]
pub struct Machine {
    /// Capabilities in effect.
    pub capabilities: CapabilitySet,
    /// Version of the kernel, as `uname -r` has it.
    pub kernel: String,
    /// Limit of locked memory in bytes; `None` for no limit.
    pub locked_max: Option<u64>,
    /// Policy rules (`ip rule`) that bypass does not follow.
    pub ignored_rules: usize,
    /// The interface, or the reason why it could not be read.
    pub interface: io::Result<InterfaceFacts>,
}

/// Asks the kernel about this process and an interface.
///
/// # Errors
/// If the kernel does not tell the capabilities of the process.
pub fn read_machine(interface: &str) -> io::Result<Machine> {
    Ok(Machine {
        capabilities: capabilities(None)?.effective,
        kernel: uname().release().to_string_lossy().into_owned(),
        locked_max: getrlimit(Resource::Memlock).current,
        ignored_rules: crate::interface::ignored_rules().unwrap_or(0),
        interface: InterfaceFacts::read(interface),
    })
}

/// Returns everything that stands in the way of a plan, the most serious first.
pub fn findings(plan: &BypassPlan, machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    check_process(plan, machine, &mut found);
    check_kernel(machine, &mut found);
    check_rules(machine, &mut found);
    match &machine.interface {
        Ok(facts) => {
            check_queues(plan, facts, &mut found);
            check_link(plan, facts, &mut found);
            check_driver(plan, facts, &mut found);
            check_offloads(facts, &mut found);
            check_veth(facts, &mut found);
        }
        Err(error) => found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Machine,
            problem: format!("cannot read interface {}: {error}", plan.interface),
            remedy: "set bypass.interface to one that `ip link` shows".to_owned(),
        }),
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

fn check_process(plan: &BypassPlan, machine: &Machine, found: &mut Vec<Finding>) {
    let wanted = [
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_BPF", CapabilitySet::BPF),
    ];
    let missing: Vec<&str> =
        wanted.iter().filter(|(_, set)| !machine.capabilities.contains(*set)).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Process,
            problem: format!("the process lacks {}", missing.join(", ")),
            remedy: "run `install -D -m 644 /usr/share/carom/systemd/bypass.conf \
                     /etc/systemd/system/carom.service.d/bypass.conf && systemctl daemon-reload`, or start carom \
                     with `AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF` and the same \
                     `CapabilityBoundingSet=`"
                .to_owned(),
        });
    }
    let needed = u64::from(plan.cores) * u64::from(plan.frames) * FRAME_LEN as u64;
    // The kernel does not count frames of a process that may lock any amount.
    let is_counted = !machine.capabilities.contains(CapabilitySet::IPC_LOCK);
    if let Some(limit) = machine.locked_max.filter(|limit| is_counted && *limit < needed) {
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Process,
            problem: format!(
                "{limit} bytes may be locked; the frames of {} need {needed}",
                counted(plan.cores, "core")
            ),
            remedy: "add `LimitMEMLOCK=infinity` in `systemctl edit carom`, or run `ulimit -l unlimited` before carom"
                .to_owned(),
        });
    }
}

fn check_kernel(machine: &Machine, found: &mut Vec<Finding>) {
    if version(&machine.kernel).is_some_and(|version| version < KERNEL_MIN) {
        let (major, minor) = KERNEL_MIN;
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Machine,
            problem: format!("kernel {} is too old; expected {major}.{minor} or newer", machine.kernel),
            remedy: "upgrade the kernel".to_owned(),
        });
    }
}

/// Reports rules that the kernel follows, and bypass does not.
fn check_rules(machine: &Machine, found: &mut Vec<Finding>) {
    if machine.ignored_rules > 0 {
        let rules = counted(machine.ignored_rules as u32, "policy rule");
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!("bypass ignores {rules} of this machine, by ports, users, interface groups or a jump"),
            remedy: "look for `sport`, `dport`, `uidrange`, `suppress_ifgroup` and `goto` in `ip rule`; select answers by their source address".to_owned(),
        });
    }
}

/// Compares the queues that the settings name with those of the interface.
fn check_chosen(chosen: &[u32], plan: &BypassPlan, facts: &InterfaceFacts, queues: u32, found: &mut Vec<Finding>) {
    let name = &facts.name;
    if let Some(missing) = chosen.iter().find(|queue| **queue >= queues) {
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Machine,
            problem: format!("bypass.queues has queue {missing}, and {name} has queues 0 to {}", queues - 1),
            remedy: "name queues that `ethtool -l` shows".to_owned(),
        });
    }
    if chosen.len() != plan.cores as usize {
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!(
                "bypass.queues has {} for {}",
                counted(chosen.len() as u32, "queue"),
                counted(plan.cores, "core")
            ),
            remedy: "name one queue for each core".to_owned(),
        });
    }
}

fn check_queues(plan: &BypassPlan, facts: &InterfaceFacts, found: &mut Vec<Finding>) {
    let (name, cores) = (&facts.name, plan.cores);
    let Some(queues) = facts.queues else {
        found.push(Finding {
            severity: FindingSeverity::Note,
            subject: FindingSubject::Machine,
            problem: format!(
                "the driver of {name} does not tell its number of queues; carom uses queue 0 to {}",
                cores - 1
            ),
            remedy: String::new(),
        });
        return;
    };
    if let Some(chosen) = &plan.queues {
        return check_chosen(chosen, plan, facts, queues, found);
    }
    if queues != cores {
        let limit = facts.queues_max.unwrap_or(queues).min(QUEUES_MAX);
        let consequence =
            if queues > cores { "the kernel serves the queues without a core" } else { "some cores get no frames" };
        let kind = if facts.has_combined_queues { "combined" } else { "rx" };
        let remedy = if limit >= cores {
            format!("run `ethtool -L {name} {kind} {cores}`, or start {}", counted(queues, "core"))
        } else {
            format!("start {} at most: the interface has no more queues", counted(limit, "core"))
        };
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!(
                "{name} has {} for {}: {consequence}",
                counted(queues, "receive queue"),
                counted(cores, "core")
            ),
            remedy,
        });
    }
    if let Some(used) = facts.rss_queues.as_ref().filter(|used| used.len() as u32 != queues) {
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!("RSS of {name} sends flows to {} of {queues} queues", used.len()),
            remedy: format!("run `ethtool -X {name} equal {queues}`"),
        });
    }
}

fn check_link(plan: &BypassPlan, facts: &InterfaceFacts, found: &mut Vec<Finding>) {
    let name = &facts.name;
    if !facts.is_up {
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!("{name} is down or has no carrier"),
            remedy: format!("run `ip link set {name} up`, and check the cable"),
        });
    }
    if facts.has_program {
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Program,
            problem: format!("an XDP program is attached to {name} already"),
            remedy: format!("find it with `bpftool net show dev {name}`, and stop its owner"),
        });
    }
    if facts.mtu > MTU_MAX || facts.mtu < MTU_MIN {
        found.push(Finding {
            severity: FindingSeverity::Error,
            subject: FindingSubject::Machine,
            problem: format!("the MTU of {name} is {}; expected {MTU_MIN} to {MTU_MAX}", facts.mtu),
            remedy: format!("run `ip link set {name} mtu 1500`"),
        });
    }
    let is_stacked = facts.kind.as_deref().is_some_and(|kind| ["vlan", "bridge", "bond", "macvlan"].contains(&kind));
    if is_stacked {
        let kind = facts.kind.as_deref().unwrap_or_default();
        found.push(Finding {
            severity: if plan.mode == AttachMode::Native && kind != "bond" {
                FindingSeverity::Error
            } else {
                FindingSeverity::Warning
            },
            subject: FindingSubject::Machine,
            problem: format!("{name} is a {kind}: frames pass the kernel before they reach the program"),
            remedy: "set bypass.interface to the interface below it".to_owned(),
        });
    }
    if plan.mode == AttachMode::Generic {
        found.push(Finding {
            severity: FindingSeverity::Note,
            subject: FindingSubject::Machine,
            problem: "generic mode: the kernel makes a packet of each frame before the program sees it".to_owned(),
            remedy: "set bypass.mode to auto, to use the driver where it can".to_owned(),
        });
    }
}

fn check_offloads(facts: &InterfaceFacts, found: &mut Vec<Finding>) {
    let name = &facts.name;
    let mut report = |severity, what: &str, consequence: &str, feature: &str| {
        found.push(Finding {
            severity,
            subject: FindingSubject::Machine,
            problem: format!("{what} of {name} is on: {consequence}"),
            remedy: format!("run `ethtool -K {name} {feature} off`"),
        });
    };
    if facts.offloads.lro == Some(true) {
        report(FindingSeverity::Error, "LRO", "the driver does not run XDP programs with it", "lro");
    }
    if facts.offloads.rx_vlan == Some(true) && !facts.is_veth() {
        report(FindingSeverity::Note, "VLAN offload", "replies to tagged frames would have no tag", "rxvlan");
    }
}

/// Checks the offloads of a veth, which has no hardware to do the work that the kernel leaves out.
fn check_veth(facts: &InterfaceFacts, found: &mut Vec<Finding>) {
    if !facts.is_veth() {
        return;
    }
    let (name, offloads) = (&facts.name, &facts.offloads);
    let all = [("tx", offloads.tx_checksum), ("gso", offloads.gso), ("tso", offloads.tso)];
    let on: Vec<&str> = all.iter().filter(|(_, is_on)| *is_on == Some(true)).map(|(feature, _)| *feature).collect();
    if !on.is_empty() {
        let off: String = on.iter().map(|feature| format!(" {feature} off")).collect();
        found.push(Finding {
            severity: FindingSeverity::Warning,
            subject: FindingSubject::Machine,
            problem: format!(
                "{name} is a veth with offloads: frames of its other end have no checksum, or are longer than the MTU, \
                 and are dropped"
            ),
            remedy: format!("run `ethtool -K {name}{off}`, and the same at the other end"),
        });
    }
}

/// Checks that the driver can do what the plan wants.
fn check_driver(plan: &BypassPlan, facts: &InterfaceFacts, found: &mut Vec<Finding>) {
    let name = &facts.name;
    let driver = facts.driver.as_deref().unwrap_or("unknown");
    let mut report = |severity, problem: String, remedy: &str| {
        let subject = FindingSubject::Machine;
        found.push(Finding { severity, subject, problem, remedy: remedy.to_owned() });
    };
    let Some(features) = facts.features else { return };
    let is_native = features.native && features.redirect && plan.mode != AttachMode::Generic;
    if !is_native && plan.mode == AttachMode::Native {
        let problem = format!("the driver of {name} ({driver}) does not run XDP programs");
        report(FindingSeverity::Error, problem, "set bypass.mode to auto, or use another network card");
    } else if !is_native && plan.mode == AttachMode::Auto {
        let problem = format!("the driver of {name} ({driver}) does not run XDP programs: bypass uses generic mode");
        report(FindingSeverity::Warning, problem, "use another network card for more speed");
    }
    if features.zero_copy && is_native {
        return;
    }
    match plan.zero_copy {
        ZeroCopy::On => {
            let problem = format!("the driver of {name} ({driver}) has no zero copy, or the mode is generic");
            report(FindingSeverity::Error, problem, "set bypass.zero_copy to auto or off");
        }
        ZeroCopy::Auto => {
            let problem = format!("the driver of {name} ({driver}) has no zero copy: the kernel copies each frame");
            report(FindingSeverity::Note, problem, "");
        }
        ZeroCopy::Off => {}
    }
}

/// Returns a number with its noun.
fn counted(number: u32, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Returns the first two numbers of a version.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::DriverFeatures;
    use crate::interface::Offloads;

    fn plan() -> BypassPlan {
        BypassPlan {
            interface: "eth0".to_owned(),
            mode: AttachMode::Auto,
            zero_copy: ZeroCopy::Auto,
            cores: 4,
            queues: None,
            frames: 4_096,
        }
    }

    fn good() -> (Machine, InterfaceFacts) {
        let facts = InterfaceFacts {
            name: "eth0".to_owned(),
            index: 2,
            mac: [2; 6],
            mtu: 1_500,
            is_up: true,
            kind: None,
            has_program: false,
            driver: Some("ice".to_owned()),
            queues: Some(4),
            queues_max: Some(64),
            has_combined_queues: true,
            rss_queues: Some(vec![0, 1, 2, 3]),
            offloads: Offloads::default(),
            features: Some(DriverFeatures { native: true, redirect: true, zero_copy: true }),
        };
        let capabilities = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
        let interface = Err(io::ErrorKind::NotFound.into());
        let kernel = "6.12.9-amd64".to_owned();
        (Machine { capabilities, kernel, locked_max: None, ignored_rules: 0, interface }, facts)
    }

    fn text(plan: &BypassPlan, change: impl FnOnce(&mut Machine, &mut InterfaceFacts)) -> String {
        let (mut machine, mut facts) = good();
        change(&mut machine, &mut facts);
        machine.interface = Ok(facts);
        findings(plan, &machine).iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn good_machine_has_no_findings() {
        assert_eq!(text(&plan(), |_, _| {}), "");
    }

    #[test]
    fn each_fault_names_its_remedy() {
        let said = |expected: &[&str], text: String| {
            expected.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
        };
        said(&["error: the process lacks CAP_BPF;", "systemd/bypass.conf", "AmbientCapabilities"], {
            text(&plan(), |machine, _| machine.capabilities.remove(CapabilitySet::BPF))
        });
        said(&["kernel 5.15.0 is too old"], text(&plan(), |machine, _| machine.kernel = "5.15.0".to_owned()));
        said(&["need 67108864", "LimitMEMLOCK"], text(&plan(), |machine, _| machine.locked_max = Some(8 << 20)));
        said(
            &["warning: bypass ignores 2 policy rules", "`ip rule`"],
            text(&plan(), |machine, _| machine.ignored_rules = 2),
        );
        said(&["ethtool -L eth0 combined 4"], text(&plan(), |_, facts| facts.queues = Some(8)));
        said(&["ethtool -L eth0 rx 4"], {
            text(&plan(), |_, facts| (facts.queues, facts.has_combined_queues) = (Some(8), false))
        });
        said(&["start 2 cores at most"], {
            text(&plan(), |_, facts| (facts.queues, facts.queues_max, facts.rss_queues) = (Some(2), Some(2), None))
        });
        let chosen = |queues: &[u32]| BypassPlan { queues: Some(queues.to_vec()), ..plan() };
        assert_eq!(text(&chosen(&[3, 2, 1, 0]), |_, _| {}), "");
        said(&["has queue 4, and eth0 has queues 0 to 3"], text(&chosen(&[0, 1, 2, 4]), |_, _| {}));
        said(&["bypass.queues has 2 queues for 4 cores"], text(&chosen(&[0, 1]), |_, _| {}));
        said(&["ethtool -X eth0 equal 4"], text(&plan(), |_, facts| facts.rss_queues = Some(vec![0])));
        said(&["ethtool -K eth0 lro off"], text(&plan(), |_, facts| facts.offloads.lro = Some(true)));
        said(&["MTU of eth0 is 9000"], text(&plan(), |_, facts| facts.mtu = 9_000));
        said(&["ip link set eth0 up"], text(&plan(), |_, facts| facts.is_up = false));
        said(&["bpftool net show dev eth0"], text(&plan(), |_, facts| facts.has_program = true));
        said(&["is a vlan"], text(&plan(), |_, facts| facts.kind = Some("vlan".to_owned())));
        said(&["ethtool -K eth0 tx off tso off`", "other end"], {
            text(&plan(), |_, facts| {
                let offloads = Offloads { tx_checksum: Some(true), tso: Some(true), ..Offloads::default() };
                (facts.kind, facts.offloads) = (Some("veth".to_owned()), offloads);
            })
        });
    }

    #[test]
    fn driver_is_compared_with_the_settings() {
        let with = |mode, zero_copy, features| {
            let plan = BypassPlan { mode, zero_copy, ..plan() };
            text(&plan, |_, facts| facts.features = features)
        };
        let copies = Some(DriverFeatures { native: true, redirect: true, zero_copy: false });
        let none = Some(DriverFeatures::default());
        assert_eq!(with(AttachMode::Native, ZeroCopy::Off, copies), "");
        assert!(
            with(AttachMode::Auto, ZeroCopy::Auto, copies).starts_with("note: the driver of eth0 (ice) has no zero")
        );
        assert!(
            with(AttachMode::Auto, ZeroCopy::On, copies).contains("error: the driver of eth0 (ice) has no zero copy")
        );
        assert!(
            with(AttachMode::Native, ZeroCopy::Off, none).starts_with("error: the driver of eth0 (ice) does not run")
        );
        assert!(
            with(AttachMode::Auto, ZeroCopy::Off, none).starts_with("warning: the driver of eth0 (ice) does not run")
        );
        // An older kernel does not tell.
        assert_eq!(with(AttachMode::Native, ZeroCopy::On, None), "");
    }

    #[test]
    fn subject_says_what_may_differ_for_another_process() {
        let subjects = |change: fn(&mut Machine, &mut InterfaceFacts)| {
            let (mut machine, mut facts) = good();
            change(&mut machine, &mut facts);
            machine.interface = Ok(facts);
            findings(&plan(), &machine).into_iter().map(|finding| finding.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(|machine, _| machine.locked_max = Some(0)), [FindingSubject::Process]);
        assert_eq!(subjects(|machine, _| machine.capabilities = CapabilitySet::empty()), [FindingSubject::Process]);
        assert_eq!(subjects(|_, facts| facts.has_program = true), [FindingSubject::Program]);
        assert_eq!(subjects(|machine, _| machine.kernel = "5.15.0".to_owned()), [FindingSubject::Machine]);
    }

    #[test]
    fn unknown_interface_is_an_error() {
        let (machine, _) = good();
        let found = findings(&plan(), &machine);
        assert_eq!((found.len(), found[0].severity), (1, FindingSeverity::Error));
    }

    #[test]
    fn own_machine_can_be_read() {
        let machine = read_machine("lo").unwrap();
        assert!(version(&machine.kernel).is_some(), "{}", machine.kernel);
        assert_eq!(machine.interface.unwrap().name, "lo");
    }
}
