//! Facts of an interface, and what the checks make of them.

use carom_xdp::config::ZeroCopy;
use carom_xdp::features::DriverFeatures;
use carom_xdp::interface::{InterfaceFacts, InterfaceState};
use carom_xdp::preflight::{BypassPlan, FindingSeverity, findings, read_machine};
use carom_xdp::program::{AttachMode, Decapsulation};

use crate::pair::{Pair, SERVER_MAC, interface, ip};

#[test]
fn veth_is_described() {
    let Some(pair) = Pair::new() else { return };
    let read = || pair.server.run(|| InterfaceFacts::read("s0").unwrap());
    let facts = read();
    assert_eq!((facts.index, facts.mac, facts.mtu), (interface(&pair.server, "s0"), SERVER_MAC, 1_500));
    assert!(facts.is_veth(), "{facts:?}");
    assert!(facts.is_up, "{facts:?}");
    assert!(!facts.has_program, "{facts:?}");
    assert_eq!((facts.driver.as_deref(), facts.queues), (Some("veth"), Some(1)));
    assert_eq!((facts.offloads.tx_checksum, facts.offloads.lro), (Some(true), Some(false)));
    // A kernel before 6.3 does not tell them.
    let of_veth = DriverFeatures { native: true, redirect: true, zero_copy: false };
    assert!(facts.features.is_none_or(|features| features == of_veth), "{facts:?}");
    let state = || pair.server.run(|| InterfaceState::read(facts.index).unwrap());
    assert_eq!(state(), Some(InterfaceState { is_up: true, program: None }));
    let program = pair.attach(AttachMode::Native, Decapsulation::None);
    assert_eq!(state(), Some(InterfaceState { is_up: true, program: Some(program.id()) }));
    ip(&pair.server, "link set s0 down");
    assert_eq!(state(), Some(InterfaceState { is_up: false, program: Some(program.id()) }));
    let changed = read();
    assert!(changed.has_program, "{changed:?}");
    assert!(!changed.is_up, "{changed:?}");
    assert!(pair.server.run(|| InterfaceFacts::read("s1").is_err()));
    ip(&pair.server, "link del s0");
    assert_eq!(state(), None);
}

#[test]
fn second_program_is_refused_and_found() {
    let Some(pair) = Pair::new() else { return };
    let _program = pair.attach(AttachMode::Native, Decapsulation::None);
    let (mode, zero_copy) = (AttachMode::Auto, ZeroCopy::Auto);
    let plan = BypassPlan { interface: "s0".to_owned(), mode, zero_copy, cores: 2, queues: None, frames: 4_096 };
    let found = pair.server.run(|| findings(&plan, &read_machine("s0").unwrap()));
    assert_eq!(found[0].severity, FindingSeverity::Error);
    assert!(found[0].problem.contains("is attached to s0"), "{found:?}");
    assert!(found.iter().any(|finding| finding.problem.contains("1 receive queue for 2 cores")), "{found:?}");
    let again = || {
        let interface = InterfaceFacts::read("s0").unwrap().index;
        carom_xdp::program::XdpProgram::attach(interface, AttachMode::Auto, &[], Decapsulation::None).unwrap_err()
    };
    let error = pair.server.run(again).to_string();
    assert!(error.contains("another XDP program is attached"), "{error}");
}
