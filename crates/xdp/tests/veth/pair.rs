//! Two network namespaces with a pair of virtual interfaces between them: `c0` for the client, `s0` for the server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::Namespace;
use carom_xdp::config::{SocketConfig, ZeroCopy};
use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::{ReceivedFrame, XdpSocket};

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The port that the program sends to the socket.
pub(crate) const PORT: u16 = 8_080;

/// The longest wait for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The wait for something that must not come.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// Runs `ip` in a namespace.
pub(crate) fn ip(namespace: &Namespace, arguments: &str) {
    namespace.command("ip", arguments).expect("iproute2 is installed, and the command is right");
}

/// Returns the number of an interface in a namespace.
pub(crate) fn interface(namespace: &Namespace, name: &str) -> u32 {
    let any = || rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    namespace.run(|| rustix::net::netdevice::name_to_index(any().unwrap(), name)).expect("there is the interface")
}

/// A client and a server with a link between them.
pub(crate) struct Pair {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
}

impl Pair {
    /// Makes a pair; `None` for users who may not.
    pub(crate) fn new() -> Option<Pair> {
        if let Some(reason) = carom_netns::reason_to_skip() {
            println!("skipped: {reason}");
            return None;
        }
        let pair = Pair { client: Namespace::new().unwrap(), server: Namespace::new().unwrap() };
        let of_server = pair.server.pid();
        let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        ip(
            &pair.client,
            &format!(
                "link add c0 address {} numtxqueues 1 numrxqueues 1 type veth peer name s0 address {} numtxqueues 1 \
             numrxqueues 1 netns {of_server}",
                mac(CLIENT_MAC),
                mac(SERVER_MAC)
            ),
        );
        for (namespace, name, v4, v6) in
            [(&pair.client, "c0", CLIENT, CLIENT_V6), (&pair.server, "s0", SERVER, SERVER_V6)]
        {
            ip(namespace, "link set lo up");
            ip(namespace, &format!("link set {name} up"));
            ip(namespace, &format!("addr add {v4}/24 dev {name}"));
            ip(namespace, &format!("addr add {v6}/64 dev {name} nodad"));
        }
        Some(pair)
    }

    /// Attaches the program to the server's interface for [`PORT`] of both its addresses.
    pub(crate) fn attach(&self, mode: AttachMode, decapsulation: Decapsulation) -> XdpProgram {
        let destinations = [SocketAddr::new(SERVER.into(), PORT), SocketAddr::new(SERVER_V6.into(), PORT)];
        let interface = interface(&self.server, "s0");
        let attach = || XdpProgram::attach(interface, mode, &destinations, decapsulation);
        self.server.run(attach).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a socket on the server's queue.
    pub(crate) fn socket(&self) -> XdpSocket {
        self.small_socket(4_096, 1_024)
    }

    /// Opens a socket on the server's queue with other sizes.
    pub(crate) fn small_socket(&self, frames: u32, ring_len: u32) -> XdpSocket {
        open(&self.server, "s0", frames, ring_len)
    }

    /// Opens a socket on the client's queue, to send frames by.
    pub(crate) fn injector(&self) -> XdpSocket {
        open(&self.client, "c0", 4_096, 1_024)
    }
}

fn open(namespace: &Namespace, name: &str, frames: u32, ring_len: u32) -> XdpSocket {
    let interface = interface(namespace, name);
    let config = SocketConfig { frames, ring_len, zero_copy: ZeroCopy::Auto, ..SocketConfig::new(interface, 0) };
    namespace.run(|| XdpSocket::open(&config)).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for something to be there.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "there is no {what} after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the bytes of the next frame that a test is content with, and frees all frames up to it.
pub(crate) fn next_frame(socket: &mut XdpSocket, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    wait_for("frame", || {
        let bytes = received(socket).into_iter().find(|bytes| wanted(bytes));
        socket.refill();
        socket.kick().unwrap();
        bytes
    })
}

/// Returns all frames that have arrived, and frees them.
pub(crate) fn received(socket: &mut XdpSocket) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(ReceivedFrame { frame, offset, len }) = socket.receive() {
        all.push(socket.bytes(frame)[offset as usize..][..len as usize].to_vec());
        socket.free(frame);
    }
    socket.refill();
    all
}

/// Sends a frame.
pub(crate) fn inject(socket: &mut XdpSocket, bytes: &[u8]) {
    let mut done = Vec::new();
    socket.take_completions(&mut done);
    done.into_iter().for_each(|frame| socket.free(frame));
    let frame = socket.take().expect("there are free frames");
    socket.bytes_mut(frame)[..bytes.len()].copy_from_slice(bytes);
    assert!(socket.send(frame, 0, bytes.len() as u32));
    wait_for("room in the kernel", || (socket.kick().unwrap() == carom_xdp::socket::Kick::Done).then_some(()));
}
