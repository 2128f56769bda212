//! Listening sockets: one for each address and core, opened late and closed without a reset for any client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use socket2::Socket;
use socket2::{Domain, Protocol, SockFilter, Type};

use carom_limits::{SEND_BUFFER_LEN, SEND_TIME_MAX, UNSENT_LEN};

/// Connections that may wait to be accepted. The kernel caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Interval between two tries of an address that is in use.
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// Number of further tries of an address in use: two seconds. The kernel still closes the sockets of a process that was killed
/// after the process is gone, because it ends the requests of the process's rings first.
const RETRIES: u32 = 200;

/// A socket of a listener.
#[derive(Debug)]
pub struct Listener {
    /// The socket, bound and not yet listening.
    pub socket: Socket,
    /// Protocol layers before HTTP.
    pub layers: Layers,
    /// True if the service manager also holds it, for the next process. Clients in its queue stay there when this
    /// process ends.
    pub is_inherited: bool,
}

/// Protocol layers before HTTP on the connections of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layers {
    /// True if a PROXY header comes first.
    pub proxied: bool,
    /// True if TLS follows, after any PROXY header.
    pub tls: bool,
}

/// Returns the listening sockets that a service manager has handed over (`sd_listen_fds(3)`), each with its address.
///
/// # Errors
/// If one of them is not a listening TCP socket.
pub fn inherited_sockets() -> io::Result<Vec<(SocketAddr, Socket)>> {
    let mut inherited = listenfd::ListenFd::from_env();
    let mut sockets = Vec::new();
    for number in 0..inherited.len() {
        let Some(listener) = inherited.take_tcp_listener(number)? else { continue };
        let address = listener.local_addr()?;
        let socket = Socket::from(listener);
        socket.set_nonblocking(true)?;
        prepare(&socket)?;
        sockets.push((address, socket));
    }
    Ok(sockets)
}

/// Removes the inherited sockets of one address from `inherited`, and returns at least one for each of `count` cores.
///
/// With fewer sockets than cores, several cores accept from one. Returns an empty list if none of the sockets has that
/// address.
///
/// # Errors
/// If the process has no file descriptors left.
pub fn take_inherited(
    inherited: &mut Vec<(SocketAddr, Socket)>,
    address: SocketAddr,
    count: usize,
) -> io::Result<Vec<Socket>> {
    let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(inherited).into_iter().partition(|(of, _)| *of == address);
    *inherited = others;
    // The kernel spreads clients over all sockets, so every socket needs a core that accepts from it.
    let count = if ours.is_empty() { 0 } else { count.max(ours.len()) };
    (0..count).map(|number| ours[number % ours.len()].1.try_clone()).collect()
}

/// Reserves an address: one socket for each of `count` cores, bound but not listening yet, so that no client gets in
/// before the links are in memory. Port 0 becomes a free port, common to all of them. Waits up to two seconds for an
/// address that is in use.
///
/// # Errors
/// If the address is in use, not of this machine, or not permitted.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<Socket>)> {
    bind_after(address, count, || std::thread::sleep(RETRY_EVERY))
}

/// Reserves an address, and pauses before each further try.
fn bind_after(address: SocketAddr, count: usize, mut pause: impl FnMut()) -> io::Result<(SocketAddr, Vec<Socket>)> {
    // SO_REUSEPORT would silently share a port with another process of the same user. This first bind, without that
    // option, fails if anything listens on the port.
    let probe = socket(address)?;
    let mut retries = 0..RETRIES;
    while let Err(error) = probe.bind(&address.into()) {
        if error.kind() != io::ErrorKind::AddrInUse || retries.next().is_none() {
            return Err(error);
        }
        pause();
    }
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    let sockets = (0..count)
        .map(|_| {
            let socket = socket(address)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            Ok(socket)
        })
        .collect::<io::Result<Vec<Socket>>>()?;
    Ok((address, sockets))
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    prepare(&socket)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Sets the options that accepted sockets inherit.
fn prepare(socket: &Socket) -> io::Result<()> {
    // All answers to one receive go out in one send, so there is nothing to coalesce.
    socket.set_tcp_nodelay(true)?;
    // A client that does not read leaves little in the kernel, and not for long.
    socket.set_send_buffer_size(SEND_BUFFER_LEN)?;
    socket.set_tcp_notsent_lowat(UNSENT_LEN)?;
    socket.set_tcp_user_timeout(Some(SEND_TIME_MAX))
}

/// Starts to listen.
///
/// # Errors
/// If another process has taken the port in the meantime.
pub(super) fn open(socket: &Socket) -> io::Result<()> {
    socket.listen(BACKLOG)
}

/// Refuses new clients, while clients whose TCP handshake is in progress still get in and can be accepted.
///
/// Closing a listener resets every client in its queue. So first a filter drops every SYN: the client retries, and a
/// balancer goes elsewhere. Then the queue is emptied, and then the socket can be closed.
///
/// # Errors
/// If the kernel rejects the filter. Then the queue can still be emptied as it is.
pub(super) fn refuse_new(socket: &Socket) -> io::Result<()> {
    // Classic BPF on the TCP header: A = flags; A &= SYN|ACK; drop if A == SYN, else keep.
    let load_flags = SockFilter::new(0x30, 0, 0, 13);
    let mask = SockFilter::new(0x54, 0, 0, 0x12);
    let is_syn = SockFilter::new(0x15, 0, 1, 0x02);
    let (drop_it, keep_it) = (SockFilter::new(0x06, 0, 0, 0), SockFilter::new(0x06, 0, 0, u32::MAX));
    socket.attach_filter(&[load_flags, mask, is_syn, drop_it, keep_it])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream};

    fn loopback() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_shared() {
        let (address, sockets) = bind(loopback(), 3).unwrap();
        assert_ne!(address.port(), 0);
        open(&sockets[0]).unwrap();
        assert_eq!(bind(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_that_becomes_free_is_waited_for() {
        let (address, held) = bind(loopback(), 1).unwrap();
        open(&held[0]).unwrap();
        // The port becomes free after the first try.
        let (mut held, mut pauses) = (Some(held), 0);
        let (bound, _) = bind_after(address, 1, || {
            drop(held.take());
            pauses += 1;
        })
        .unwrap();
        assert_eq!((bound, pauses), (address, 1));
    }

    #[test]
    fn a_port_that_stays_in_use_is_given_up() {
        let (address, held) = bind(loopback(), 1).unwrap();
        open(&held[0]).unwrap();
        let mut pauses = 0;
        let error = bind_after(address, 1, || pauses += 1).unwrap_err();
        assert_eq!((error.kind(), pauses), (io::ErrorKind::AddrInUse, RETRIES));
    }

    #[test]
    fn what_bounds_unread_answers_is_inherited() {
        let (address, sockets) = bind(loopback(), 1).unwrap();
        open(&sockets[0]).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        sockets[0].set_nonblocking(false).unwrap();
        let (accepted, _) = sockets[0].accept().unwrap();
        assert_eq!(accepted.tcp_notsent_lowat().unwrap(), UNSENT_LEN);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(SEND_TIME_MAX));
        // The kernel doubles the requested size.
        assert!(accepted.send_buffer_size().unwrap() <= 2 * SEND_BUFFER_LEN);
    }

    #[test]
    fn refusing_new_clients_keeps_those_in_the_queue() {
        let (address, sockets) = bind(loopback(), 1).unwrap();
        open(&sockets[0]).unwrap();
        let queued = TcpStream::connect(address).unwrap();
        refuse_new(&sockets[0]).unwrap();
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err());
        let (accepted, _) = sockets[0].accept().expect("the waiting client is still there");
        assert_eq!(accepted.peer_addr().unwrap().as_socket(), Some(queued.local_addr().unwrap()));
    }
}
