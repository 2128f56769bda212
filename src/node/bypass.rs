//! The start of kernel bypass: checks, the XDP program, and a socket for each core that has a receive queue.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use carom_limits::ConnectionLimits;
use carom_net::Decapsulate;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{BypassSettings, BypassTunnel, Settings};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::bypass::BypassState;
use carom_xdp::config::BusyPoll;
use carom_xdp::interface::{self, InterfaceFacts};
use carom_xdp::next_hops::RouteTables;
use carom_xdp::preflight::{BypassPlan, Finding, FindingSeverity};
use carom_xdp::program::{Decapsulation, XdpProgram};
use carom_xdp::socket::XdpSocket;

use super::base::Base;
use super::listeners::Bound;
use super::seed::random_seed;
use crate::core::bypass::{BypassParts, socket_config};
use crate::core::listen::Listener;
use crate::startup::bypass;

/// Maximum number of connections of a stack, those in TIME-WAIT included. It reserves 256 bytes for each.
const STACK_CONNECTIONS_MAX: usize = 262_144;

/// Frames that the driver handles in one busy poll: as many as in one interrupt (`NAPI_POLL_WEIGHT`).
const BUSY_POLL_BUDGET: u32 = 64;

/// Maximum number of looks at an interface that has a program already: for a second.
const RELEASE_LOOKS_MAX: u32 = 50;

/// The time between two of these looks.
const RELEASE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The datapaths of the cores, and the program that feeds them.
#[derive(Default)]
pub(super) struct NodeBypass {
    /// The program; it is detached when this value is dropped.
    pub(super) program: Option<XdpProgram>,
    /// The datapaths of the first cores, in their order.
    pub(super) parts: Vec<BypassParts>,
}

/// Attaches the program, if the settings name an interface. Without bypass every core serves over the kernel.
///
/// # Errors
/// If bypass is required and cannot be had.
pub(super) fn start(
    settings: &Settings,
    bound: &Bound,
    limits: &ConnectionLimits,
    base: &Base,
) -> Result<NodeBypass, Exit> {
    let BypassSettings { interface: Some(name), is_required, .. } = &settings.bypass else {
        return Ok(NodeBypass::default());
    };
    let secrets: Vec<[u8; 16]> = (0..bound.public.len()).map(|_| secret()).collect::<Result<_, Exit>>()?;
    match attach(settings, name, bound, limits, &secrets) {
        Ok(started) => {
            publish(name, &started, base);
            Ok(started)
        }
        Err(reason) if *is_required => {
            Err(Exit::new(Reason::Bypass, format!("kernel bypass on {name} is not possible: {reason}")))
        }
        Err(reason) => {
            let text = format!("kernel bypass on {name} is not possible, serving over the kernel: {reason}");
            base.stats.alarms.raise(Alarm::BypassOff, text);
            let _ = base.stats.bypass.set(BypassState::refused(name, &reason));
            Ok(NodeBypass::default())
        }
    }
}

fn attach(
    settings: &Settings,
    name: &str,
    bound: &Bound,
    limits: &ConnectionLimits,
    secrets: &[[u8; 16]],
) -> Result<NodeBypass, String> {
    let Some(plan) = bypass::plan(settings) else { return Err("no interface is set".to_owned()) };
    wait_for_release(name);
    check(&plan)?;
    let facts = InterfaceFacts::read(name).map_err(|error| error.to_string())?;
    let destinations = destinations(&bound.listening, &settings.bypass.addresses, facts.index)?;
    let (decapsulation, decapsulate) = match settings.bypass.tunnel {
        BypassTunnel::None => (Decapsulation::None, Decapsulate::None),
        BypassTunnel::Ipip => (Decapsulation::Ipip, Decapsulate::Ipip),
        BypassTunnel::Gue(port) => (Decapsulation::Gue(port), Decapsulate::Gue { port }),
    };
    let mut program =
        XdpProgram::attach(facts.index, plan.mode, &destinations, decapsulation).map_err(|error| error.to_string())?;
    let mut parts = Vec::new();
    let queues = plan.queues.clone().unwrap_or_else(|| (0..facts.queues.unwrap_or(plan.cores)).collect());
    for ((queue, secret), listeners) in queues.into_iter().zip(secrets).zip(&bound.public) {
        let mut config = socket_config(facts.index, queue);
        config.zero_copy = plan.zero_copy;
        config.busy_poll = settings.bypass.busy_poll.map(|micros| BusyPoll { micros, budget: BUSY_POLL_BUDGET });
        let socket = XdpSocket::open(&config).map_err(|error| error.to_string())?;
        parts.push(BypassParts {
            socket,
            entry: program.entry().map_err(|error| error.to_string())?,
            routes: RouteTables::open().map_err(|error| format!("routes cannot be read: {error}"))?,
            interface: facts.index,
            mtu: facts.mtu as u16,
            decapsulate,
            connections_max: limits.connections.clamp(1_024, STACK_CONNECTIONS_MAX) as u32,
            secret: *secret,
            listeners: addresses(listeners),
        });
    }
    let place = if program.is_native() { "native" } else { "generic" };
    let copies = if parts.iter().all(|part| part.socket.is_zero_copy()) { "zero copy" } else { "copies" };
    tracing::info!(
        "kernel bypass on {name}: {place}, {copies}, {} queues, {} addresses",
        parts.len(),
        destinations.len()
    );
    Ok(NodeBypass { program: Some(program), parts })
}

/// Waits until the program of a process that was killed a moment ago has left the interface. The kernel frees it after
/// the process has ended.
fn wait_for_release(name: &str) {
    for _ in 0..RELEASE_LOOKS_MAX {
        if !InterfaceFacts::read(name).is_ok_and(|facts| facts.has_program) {
            return;
        }
        thread::sleep(RELEASE_LOOK_INTERVAL);
    }
}

/// Tells the status which program and queues are in use.
fn publish(name: &str, started: &NodeBypass, base: &Base) {
    let (Some(program), Some(first)) = (&started.program, started.parts.first()) else { return };
    for (core, part) in base.core_stats.iter().zip(&started.parts) {
        core.bypass.is_native.store(program.is_native(), Ordering::Relaxed);
        core.bypass.queue.set(u64::from(part.socket.queue()));
    }
    let _ = base.stats.bypass.set(BypassState::attached(name, first.interface, program.id()));
}

/// Compares the plan with the machine. Logs what makes bypass slower.
fn check(plan: &BypassPlan) -> Result<(), String> {
    let mut obstacles = Vec::new();
    for Finding { severity, problem, remedy, .. } in bypass::findings(plan).map_err(|error| error.to_string())? {
        match severity {
            FindingSeverity::Error => obstacles.push(format!("{problem}; {remedy}")),
            FindingSeverity::Warning => tracing::warn!("kernel bypass: {problem}; {remedy}"),
            FindingSeverity::Note if remedy.is_empty() => tracing::info!("kernel bypass: {problem}"),
            FindingSeverity::Note => tracing::info!("kernel bypass: {problem}; {remedy}"),
        }
    }
    if obstacles.is_empty() { Ok(()) } else { Err(obstacles.join(". ")) }
}

/// Returns the addresses and ports whose frames go past the kernel's TCP: those of the listeners, as far as `chosen`
/// has them. A wildcard address means every chosen address, or every address of the interface.
fn destinations(listening: &[SocketAddr], chosen: &[IpAddr], interface: u32) -> Result<Vec<SocketAddr>, String> {
    let of_interface =
        || interface::addresses(interface).map_err(|error| format!("its addresses cannot be read: {error}"));
    let own = if chosen.is_empty() { of_interface()? } else { chosen.to_vec() };
    let found = matching(listening, chosen, &own);
    if found.is_empty() {
        return Err(if chosen.is_empty() {
            "no address of listen can be reached through it; listen on an address of the interface".to_owned()
        } else {
            "no address of bypass.addresses is in listen; add it there, or listen on 0.0.0.0 or [::]".to_owned()
        });
    }
    Ok(found)
}

fn matching(listening: &[SocketAddr], chosen: &[IpAddr], own: &[IpAddr]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for address in listening {
        if address.ip().is_unspecified() {
            let of_family = own.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
            found.extend(of_family.map(|ip| SocketAddr::new(*ip, address.port())));
        } else if !address.ip().is_loopback() && (chosen.is_empty() || chosen.contains(&address.ip())) {
            found.push(*address);
        }
    }
    found
}

/// Returns the addresses of a core's listeners, each with its index.
fn addresses(listeners: &[Listener]) -> Vec<(SocketAddr, usize)> {
    let of = |(index, listener): (usize, &Listener)| Some((listener.socket.local_addr().ok()?.as_socket()?, index));
    listeners.iter().enumerate().filter_map(of).collect()
}

fn secret() -> Result<[u8; 16], Exit> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random_seed()?.to_ne_bytes());
    bytes[8..].copy_from_slice(&random_seed()?.to_ne_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_listeners_at_chosen_addresses() {
        let listening = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let own = addresses(&["192.0.2.1", "fe80::1"]);
        let all = listening(&["0.0.0.0:80", "[::]:443", "127.0.0.1:81", "198.51.100.1:82"]);
        assert_eq!(matching(&all, &[], &own), listening(&["192.0.2.1:80", "[fe80::1]:443", "198.51.100.1:82"]));
        let balanced = addresses(&["203.0.113.7"]);
        assert_eq!(matching(&all, &balanced, &balanced), listening(&["203.0.113.7:80"]));
        assert_eq!(matching(&listening(&["203.0.113.7:8"]), &balanced, &balanced), listening(&["203.0.113.7:8"]));
        assert_eq!(matching(&listening(&["127.0.0.1:8"]), &[], &own), []);
    }
}
