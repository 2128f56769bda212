//! The start of kernel bypass: checks, the XDP program, and a socket for each core that has a receive queue.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use carom_limits::ConnectionLimits;
use carom_net::Decapsulate;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{BypassSettings, BypassTunnel, Settings};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::BypassState;
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

/// Most connections of a stack, those in TIME-WAIT included. It reserves 256 bytes for each.
const CONNECTIONS_MAX: usize = 262_144;

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
    check(&plan)?;
    let facts = InterfaceFacts::read(name).map_err(|error| error.to_string())?;
    let destinations = destinations(&bound.listening, facts.index)?;
    let (decapsulation, decapsulate) = match settings.bypass.tunnel {
        BypassTunnel::None => (Decapsulation::None, Decapsulate::None),
        BypassTunnel::Ipip => (Decapsulation::Ipip, Decapsulate::Ipip),
        BypassTunnel::Gue(port) => (Decapsulation::Gue(port), Decapsulate::Gue { port }),
    };
    let mut program =
        XdpProgram::attach(facts.index, plan.mode, &destinations, decapsulation).map_err(|error| error.to_string())?;
    let mut parts = Vec::new();
    let queues = facts.queues.unwrap_or(plan.cores).min(plan.cores);
    for ((queue, secret), listeners) in (0..queues).zip(secrets).zip(&bound.public) {
        let mut config = socket_config(facts.index, queue);
        config.zero_copy = plan.zero_copy;
        let socket = XdpSocket::open(&config).map_err(|error| error.to_string())?;
        program.register(&socket).map_err(|error| error.to_string())?;
        parts.push(BypassParts {
            socket,
            routes: RouteTables::open().map_err(|error| format!("routes cannot be read: {error}"))?,
            interface: facts.index,
            mtu: facts.mtu as u16,
            decapsulate,
            connections_max: limits.connections.clamp(1_024, CONNECTIONS_MAX) as u32,
            secret: *secret,
            listeners: addresses(listeners),
        });
    }
    let place = if program.is_native() { "native" } else { "generic" };
    let copies = if parts.iter().all(|part| part.socket.is_zero_copy()) { "zero copy" } else { "copies" };
    tracing::info!("kernel bypass on {name}: {place}, {copies}, {queues} queues, {} addresses", destinations.len());
    Ok(NodeBypass { program: Some(program), parts })
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

/// Returns the addresses and ports whose frames go past the kernel's TCP. A wildcard address means every address of the
/// interface.
fn destinations(listening: &[SocketAddr], interface: u32) -> Result<Vec<SocketAddr>, String> {
    let own = interface::addresses(interface).map_err(|error| format!("addresses cannot be read: {error}"))?;
    let mut found = Vec::new();
    for address in listening {
        if address.ip().is_unspecified() {
            let of_family = own.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
            found.extend(of_family.map(|ip| SocketAddr::new(*ip, address.port())));
        } else if !address.ip().is_loopback() {
            found.push(*address);
        }
    }
    if found.is_empty() {
        return Err("no address of listen can be reached through it".to_owned());
    }
    Ok(found)
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
