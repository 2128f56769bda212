//! The listeners of a node: sockets that a service manager has handed over, and those that the node opens itself.

use std::net::SocketAddr;

use crate::api::Interfaces;
use crate::core::listen::{self, Layers, Listener, Socket};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Api, Settings};

/// The sockets of all listeners, bound and not yet listening.
pub(super) struct Bound {
    /// The public addresses, as they were bound.
    pub(super) listening: Vec<SocketAddr>,
    /// The listeners of each core.
    pub(super) public: Vec<Vec<Listener>>,
    pub(super) admin_address: SocketAddr,
    pub(super) admin: Vec<Listener>,
}

/// Gives every address to each core.
///
/// # Errors
/// If an address cannot be bound, or a socket was handed over that no setting names.
pub(super) fn bind(settings: &Settings, cores: usize) -> Result<Bound, Exit> {
    let mut inherited = listen::inherited_sockets().map_err(|error| {
        Exit::new(Reason::Address, format!("a socket from the service manager cannot be used: {error}"))
    })?;
    let mut listening = Vec::new();
    let mut public: Vec<Vec<Listener>> = (0..cores).map(|_| Vec::new()).collect();
    let ports = settings.proxied.iter().zip(&settings.tls.secure);
    for (&address, (&proxied, &secure)) in settings.listen.iter().zip(ports) {
        let (address, sockets, is_inherited) = bind_one(&mut inherited, address, cores)?;
        listening.push(address);
        let layers = Layers { proxied, tls: secure };
        for (number, socket) in sockets.into_iter().enumerate() {
            public[number % cores].push(Listener { socket, layers, is_inherited });
        }
    }
    let (admin_address, sockets, is_inherited) = bind_one(&mut inherited, settings.admin_listen, 1)?;
    let of_admin = |socket| Listener { socket, layers: Layers::default(), is_inherited };
    let admin = sockets.into_iter().map(of_admin).collect();
    if let Some((address, _)) = inherited.first() {
        let what = format!("the service manager passed a socket for {address}, which is not in listen or admin_listen");
        let remedy = "use the same address in the settings and in `ListenStream=` of the socket unit";
        return Err(Exit::new(Reason::Address, what).with_remedy(remedy));
    }
    Ok(Bound { listening, public, admin_address, admin })
}

/// Returns the sockets of an address, and true if they were handed over.
fn bind_one(
    inherited: &mut Vec<(SocketAddr, Socket)>,
    address: SocketAddr,
    count: usize,
) -> Result<(SocketAddr, Vec<Socket>, bool), Exit> {
    let refused = |error: std::io::Error| Exit::new(Reason::Address, format!("cannot listen on {address}: {error}"));
    let sockets = listen::take_inherited(inherited, address, count).map_err(refused)?;
    if !sockets.is_empty() {
        return Ok((address, sockets, true));
    }
    let (address, sockets) = listen::bind(address, count).map_err(refused)?;
    Ok((address, sockets, false))
}

/// Returns the host names of the admin listener: those of the settings, and of the machine.
pub(super) fn names_of_admin(settings: &Settings) -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    settings.admin_hosts.iter().cloned().chain([machine, "localhost".to_owned()]).collect()
}

/// Returns the APIs that the public listeners serve.
pub(super) fn interfaces(api: &Api) -> Interfaces {
    let Api { shlink, bitly, yourls, yourls_jsonp, cors: _, shlink_strict: _ } = *api;
    Interfaces { shlink, bitly, yourls, yourls_jsonp }
}
