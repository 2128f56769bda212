//! The start of kernel bypass: checks, the XDP program, and a socket for each core that has a receive queue.

use std::net::SocketAddr;

use carom_limits::ConnectionLimits;
use carom_net::Decapsulate;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{BypassMode, BypassSettings, BypassTunnel, Settings};
use carom_xdp::config::ZeroCopy;
use carom_xdp::interface::{self, InterfaceFacts};
use carom_xdp::next_hops::RouteTables;
use carom_xdp::preflight::{self, BypassPlan, FindingSeverity};
use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::XdpSocket;

use super::listeners::Bound;
use super::seed::random_seed;
use crate::core::bypass::{BypassParts, FRAMES, socket_config};
use crate::core::listen::Listener;

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
pub(super) fn start(settings: &Settings, bound: &Bound, limits: &ConnectionLimits) -> Result<NodeBypass, Exit> {
    let BypassSettings { interface: Some(name), is_required, .. } = &settings.bypass else {
        return Ok(NodeBypass::default());
    };
    let secrets: Vec<[u8; 16]> = (0..bound.public.len()).map(|_| secret()).collect::<Result<_, Exit>>()?;
    match attach(settings, name, bound, limits, &secrets) {
        Ok(started) => Ok(started),
        Err(reason) if *is_required => {
            Err(Exit::new(Reason::Bypass, format!("kernel bypass on {name} is not possible: {reason}")))
        }
        Err(reason) => {
            tracing::warn!("kernel bypass on {name} is not possible, serving over the kernel: {reason}");
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
    let cores = bound.public.len() as u32;
    let mode = match settings.bypass.mode {
        BypassMode::Auto => AttachMode::Auto,
        BypassMode::Native => AttachMode::Native,
        BypassMode::Generic => AttachMode::Generic,
    };
    check(&BypassPlan { interface: name.to_owned(), mode, cores, frames: FRAMES })?;
    let facts = InterfaceFacts::read(name).map_err(|error| error.to_string())?;
    let destinations = destinations(&bound.listening, facts.index)?;
    let (decapsulation, decapsulate) = match settings.bypass.tunnel {
        BypassTunnel::None => (Decapsulation::None, Decapsulate::None),
        BypassTunnel::Ipip => (Decapsulation::Ipip, Decapsulate::Ipip),
        BypassTunnel::Gue(port) => (Decapsulation::Gue(port), Decapsulate::Gue { port }),
    };
    let mut program =
        XdpProgram::attach(facts.index, mode, &destinations, decapsulation).map_err(|error| error.to_string())?;
    let mut parts = Vec::new();
    let queues = facts.queues.unwrap_or(cores).min(cores);
    for ((queue, secret), listeners) in (0..queues).zip(secrets).zip(&bound.public) {
        let mut config = socket_config(facts.index, queue);
        config.zero_copy = match settings.bypass.zero_copy {
            None => ZeroCopy::Auto,
            Some(true) => ZeroCopy::On,
            Some(false) => ZeroCopy::Off,
        };
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

/// Compares the plan with the machine. Logs what makes bypass slower.
fn check(plan: &BypassPlan) -> Result<(), String> {
    let machine = preflight::read_machine(&plan.interface).map_err(|error| error.to_string())?;
    let mut obstacle = None;
    for finding in preflight::findings(plan, &machine) {
        match finding.severity {
            FindingSeverity::Error => {
                obstacle.get_or_insert_with(|| format!("{}; {}", finding.problem, finding.remedy));
            }
            FindingSeverity::Warning => tracing::warn!("kernel bypass: {}; {}", finding.problem, finding.remedy),
            FindingSeverity::Note => tracing::info!("kernel bypass: {}", finding.problem),
        }
    }
    obstacle.map_or(Ok(()), Err)
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
