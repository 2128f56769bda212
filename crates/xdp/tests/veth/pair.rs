//! Two network namespaces with a pair of virtual interfaces between them: `c0` for the client, `s0` for the server.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use carom_xdp::config::{SocketConfig, ZeroCopy};
use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::{ReceivedFrame, XdpSocket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

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

/// A network namespace. It goes with its interfaces when this value does, and when the test ends.
pub(crate) struct Namespace {
    file: File,
    holder: Child,
}

impl Namespace {
    fn new() -> Namespace {
        // `cat` ends with the pipe, and the pipe with this process.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let mut line = String::new();
        let output = holder.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "ready\n", "root can make a namespace");
        let file = File::open(format!("/proc/{}/ns/net", holder.id())).expect("the holder runs");
        Namespace { file, holder }
    }

    /// Runs a function on a thread in the namespace.
    pub(crate) fn run<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let run = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root can enter");
            function()
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        self.run(|| command("ip", arguments));
    }

    /// Returns the number of an interface.
    pub(crate) fn interface(&self, name: &str) -> u32 {
        let any = || rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
        self.run(|| rustix::net::netdevice::name_to_index(any().unwrap(), name)).expect("there is the interface")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn command(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("the program is installed");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// True if this user may make network namespaces. Otherwise prints why the test is skipped; where `E2E_NAMESPACES` is
/// `required`, as in CI, the test fails instead.
fn may_make_namespaces() -> bool {
    let made = Command::new("unshare").args(["--net", "true"]).output().expect("util-linux is installed");
    if made.status.success() {
        return true;
    }
    let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    let is_required = std::env::var_os("E2E_NAMESPACES").is_some_and(|value| value == "required");
    assert!(!is_required, "network namespaces are required here: {reason}");
    println!("skipped: this user cannot make network namespaces: {reason}");
    false
}

/// A client and a server with a link between them.
pub(crate) struct Pair {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
}

impl Pair {
    /// Makes a pair; `None` for users who may not.
    pub(crate) fn new() -> Option<Pair> {
        if !may_make_namespaces() {
            return None;
        }
        let pair = Pair { client: Namespace::new(), server: Namespace::new() };
        let of_server = pair.server.holder.id();
        let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        pair.client.ip(&format!(
            "link add c0 address {} numtxqueues 1 numrxqueues 1 type veth peer name s0 address {} numtxqueues 1 \
             numrxqueues 1 netns {of_server}",
            mac(CLIENT_MAC),
            mac(SERVER_MAC)
        ));
        for (namespace, name, v4, v6) in
            [(&pair.client, "c0", CLIENT, CLIENT_V6), (&pair.server, "s0", SERVER, SERVER_V6)]
        {
            namespace.ip("link set lo up");
            namespace.ip(&format!("link set {name} up"));
            namespace.ip(&format!("addr add {v4}/24 dev {name}"));
            namespace.ip(&format!("addr add {v6}/64 dev {name} nodad"));
        }
        Some(pair)
    }

    /// Attaches the program to the server's interface for [`PORT`] of both its addresses.
    pub(crate) fn attach(&self, mode: AttachMode, decapsulation: Decapsulation) -> XdpProgram {
        let destinations = [SocketAddr::new(SERVER.into(), PORT), SocketAddr::new(SERVER_V6.into(), PORT)];
        let interface = self.server.interface("s0");
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
    let interface = namespace.interface(name);
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
