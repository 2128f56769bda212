//! Two network namespaces with a link between them: a node in one, clients in the other.

use std::cell::RefCell;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use carom_netns::Namespace;
use serde_json::{Value, json};
use socket2::SockRef;

use crate::support::alarms::alarms;
use crate::support::bulk::{BULK, KIND};
use crate::support::http::Wire;
use crate::support::node::{Node, SLOW, Setup, wait_until};
use crate::support::wire::{ENDS, FrameWire, Treatment};

/// The address of the node.
pub(crate) const SERVER: &str = "10.78.0.2:8080";

/// The variable that has nodes of all tests serve over bypass, with the value `bypass`.
const DATAPATH: &str = "E2E_DATAPATH";

/// Links that [`Pair::fill`] creates beside `abc`: an export of 100 KB, which takes many frames.
pub(crate) const FILLED: usize = 200;

/// Receive queues of a node's interface: as many cores can have one.
const QUEUES: u32 = 4;

thread_local! {
    /// The namespace that this thread was moved into, and the number of its links.
    static OF_THREAD: RefCell<Option<(Arc<Namespace>, u8)>> = const { RefCell::new(None) };
}

/// True if this user cannot make namespaces; the reason is printed.
fn is_skipped() -> bool {
    carom_netns::reason_to_skip().inspect(|reason| println!("skipped: {reason}")).is_some()
}

/// Moves this thread into a namespace of clients, if all tests are to run over bypass.
pub(crate) fn enter() {
    let is_entered = OF_THREAD.with_borrow(|entered| entered.is_some());
    let is_wanted = std::env::var_os(DATAPATH).is_some_and(|datapath| datapath == "bypass");
    if is_entered || !is_wanted || is_skipped() {
        return;
    }
    let client = Namespace::new().unwrap();
    client.command("ip", "link set lo up").unwrap();
    client.enter().unwrap();
    OF_THREAD.set(Some((Arc::new(client), 0)));
}

/// A client and a server with a link between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: Arc<Namespace>,
    pub(crate) server: Namespace,
    subnet: u8,
}

impl Pair {
    /// Makes a pair; `None` for users who may not.
    pub(crate) fn new() -> Option<Pair> {
        if is_skipped() {
            return None;
        }
        let pair = Pair::link(Arc::new(Namespace::new().unwrap()), 0);
        pair.set_queues("1");
        Some(pair)
    }

    /// Links a server with the namespace of this thread, if all tests are to run over bypass.
    pub(crate) fn of_thread() -> Option<Arc<Pair>> {
        enter();
        let (client, links) = OF_THREAD.take()?;
        OF_THREAD.set(Some((Arc::clone(&client), links + 1)));
        Some(Arc::new(Pair::link(client, links + 1)))
    }

    /// Makes a server in a namespace of its own, linked with the client.
    pub(crate) fn link(client: Arc<Namespace>, subnet: u8) -> Pair {
        let pair = Pair { client, server: Namespace::new().unwrap(), subnet };
        let (of_server, here) = (pair.server.pid(), format!("c{subnet}"));
        let queues = format!("numrxqueues {QUEUES} numtxqueues {QUEUES}");
        pair.client
            .command("ip", &format!("link add {here} {queues} type veth peer name s0 {queues} netns {of_server}"))
            .unwrap();
        equip(&pair.client, &here, &format!("10.78.{subnet}.1"));
        equip(&pair.server, "s0", &format!("10.78.{subnet}.2"));
        // RSS of a NIC keeps a connection on its queue. On a veth the sender chooses the queue, and Linux chooses again
        // after each timeout. The core of the new queue would reset the connection, which it does not know.
        pair.client.command("sysctl", "-w net.core.txrehash=0").expect("Linux has it since 5.18");
        // More addresses of the client, for tests that use several of loopback.
        pair.client.command("ip", &format!("route add local 10.78.{subnet}.128/25 dev lo")).unwrap();
        pair
    }

    /// Makes a pair with a program between its two ends; `None` for users who may not make namespaces. The program sees
    /// the VLAN tags of answers to the `tapped` ports of the client.
    pub(crate) fn over_wire(tapped: Range<u16>, treatment: Treatment) -> Option<(Pair, FrameWire)> {
        if is_skipped() {
            return None;
        }
        let [client, between, server] = [(); 3].map(|()| Namespace::new().expect("root may make namespaces"));
        let [to_client, to_server] = ENDS;
        for (end, namespace, name) in [(to_client, &client, "c0"), (to_server, &server, "s0")] {
            let (one, of) = ("numrxqueues 1 numtxqueues 1", namespace.pid());
            between
                .command("ip", &format!("link add {end} {one} type veth peer name {name} {one} netns {of}"))
                .expect("the kernel has veth");
            // Room for the header of a tunnel.
            between.command("ip", &format!("link set {end} mtu 1600 up")).expect("it is there");
            switch_off_offloads(&between, end);
        }
        let pair = Pair { client: Arc::new(client), server, subnet: 0 };
        equip(&pair.client, "c0", &pair.client_address());
        equip(&pair.server, "s0", &pair.address());
        let client = pair.client_address().parse().expect("an address");
        let tapped = tapped.map(|port| SocketAddr::new(client, port)).collect();
        Some((pair, FrameWire::start(between, tapped, treatment)))
    }

    /// Gives the server's interface that many receive queues, one for each core.
    pub(crate) fn set_queues(&self, count: &str) {
        // XDP demands that the other end sends to no queue that is not there, so that end shrinks first and grows last.
        let (client, server) = ((&*self.client, format!("c{}", self.subnet)), (&self.server, "s0".to_owned()));
        for (namespace, name) in [client.clone(), server, client] {
            let ethtool = |arguments: String| {
                let output = namespace.run(|| Command::new("ethtool").args(arguments.split(' ')).output());
                String::from_utf8(output.expect("ethtool is installed").stdout).expect("it prints text")
            };
            // The kernel refuses it while the socket of a node that was killed is on its way out.
            wait_until("receive queues", || {
                ethtool(format!("-L {name} rx {count} tx {count}"));
                let told = ethtool(format!("-l {name}"));
                told.lines().rfind(|line| line.starts_with("RX:")).is_some_and(|line| line[3..].trim() == count)
            });
        }
    }

    /// Connects this thread's loopback with the server's, at the same address if it is free.
    pub(crate) fn relay(self: &Arc<Pair>, address: SocketAddr) -> Relay {
        let listener =
            TcpListener::bind(address).or_else(|_| TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let relay = Relay { listener: listener.try_clone().expect("descriptors are left") };
        let pair = Arc::clone(self);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = pair.server.run(|| TcpStream::connect(address)) else { continue };
                let back = (server.try_clone().expect("descriptors"), client.try_clone().expect("descriptors"));
                thread::spawn(move || pass_on(client, server));
                thread::spawn(move || pass_on(back.0, back.1));
            }
        });
        relay
    }

    /// The address of the client.
    pub(crate) fn client_address(&self) -> String {
        format!("10.78.{}.1", self.subnet)
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> String {
        format!("10.78.{}.2", self.subnet)
    }

    /// Settings of a node that serves over bypass.
    pub(crate) fn setup(&self, data_dir: &std::path::Path) -> Setup {
        let setup = self.setup_over_kernel(data_dir).expect(SLOW);
        setup.env("CAROM_BYPASS_INTERFACE", "s0").env("CAROM_BYPASS_REQUIRED", "true")
    }

    /// Settings of a node at the same address that serves over the kernel.
    pub(crate) fn setup_over_kernel(&self, data_dir: &std::path::Path) -> Setup {
        Setup::new(data_dir).argument("--listen").argument(SERVER).argument("--open")
    }

    /// Starts a node in the namespace of the server.
    pub(crate) fn start(&self, setup: &Setup) -> Node {
        self.server.run(|| setup.start())
    }

    /// The status of a node.
    pub(crate) fn status(&self, node: &Node) -> Value {
        self.server.run(|| node.status())
    }

    /// Timeouts of the kernel's TCP in the namespace of the client, after each of which it has sent a segment again.
    pub(crate) fn client_timeouts(&self) -> u64 {
        self.client.run(|| tcp_counter("netstat", "TcpExt:", "TCPTimeouts"))
    }

    /// Segments that the kernel's TCP in the namespace of the client has sent again.
    pub(crate) fn client_repeats(&self) -> u64 {
        self.client.run(|| tcp_counter("snmp", "Tcp:", "RetransSegs"))
    }

    /// The alarms of a node that are on, without that of frames that the kernel dropped, which a busy machine raises.
    pub(crate) fn alarms(&self, node: &Node) -> Vec<String> {
        let status = self.status(node);
        alarms(&status).into_iter().filter(|alarm| *alarm != "bypass_drops").map(str::to_owned).collect()
    }

    /// Runs a client.
    pub(crate) fn ask<T: Send>(&self, client: impl FnOnce(Wire) -> T + Send) -> T {
        self.client.run(|| client(open()))
    }

    /// Creates the link `abc` to `target`, and [`FILLED`] others. Returns the connection.
    pub(crate) fn fill(&self, target: &str) -> Wire {
        self.ask(|mut wire| {
            wire.shorten_as("abc", target);
            let link = |at| json!({"longUrl": format!("{target}{at}/{}", "x".repeat(400))}).to_string() + "\n";
            let links: String = (0..FILLED).map(link).collect();
            assert_eq!(wire.ask("POST", BULK, KIND, links.as_bytes()).status, 200);
            wire
        })
    }

    /// Segments that the kernel's TCP in the namespace of the server has received over the link. Those of loopback are
    /// left out: a connection of the harness may end at any time.
    pub(crate) fn kernel_segments(&self) -> u64 {
        self.server.run(|| {
            loop {
                let (before, all, after) = (loopback_packets(), segments_received(), loopback_packets());
                if before == after {
                    return all.wrapping_sub(after);
                }
            }
        })
    }
}

/// Gives an interface its address, and switches it on.
fn equip(namespace: &Namespace, name: &str, address: &str) {
    for command in
        ["link set lo up".to_owned(), format!("addr add {address}/24 dev {name}"), format!("link set {name} up")]
    {
        namespace.command("ip", &command).expect("it is there");
    }
    switch_off_offloads(namespace, name);
}

/// Has the kernel send whole frames: those of a veth have no checksum otherwise, and may be larger than the MTU.
fn switch_off_offloads(namespace: &Namespace, name: &str) {
    for offload in ["tx", "gso", "tso", "gro"] {
        namespace.command("ethtool", &format!("-K {name} {offload} off")).expect("ethtool is installed");
    }
}

/// Segments that the kernel's TCP in this namespace has received.
fn segments_received() -> u64 {
    tcp_counter("snmp", "Tcp:", "InSegs")
}

/// A counter of the kernel's TCP in this namespace, from a file in `/proc/net` with lines of names and of numbers.
fn tcp_counter(file: &str, group: &str, counter: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("the kernel tells");
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let names = lines.next().expect("a line of names").split_whitespace();
    let numbers = lines.next().expect("a line of numbers").split_whitespace();
    let (_, number) = names.zip(numbers).find(|(name, _)| *name == counter).expect("the kernel counts it");
    number.parse().expect("a number")
}

/// Packets that the loopback interface of this namespace has received.
fn loopback_packets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("the kernel tells");
    let numbers = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).expect("a namespace has loopback");
    numbers.split_whitespace().nth(1).and_then(|packets| packets.parse().ok()).expect("a number of packets")
}

/// Returns the address that a client has instead of one of loopback if the server is behind a link.
pub(crate) fn source_towards(server: SocketAddr, source: IpAddr) -> IpAddr {
    match (server.ip(), source) {
        (IpAddr::V4(server), IpAddr::V4(source)) if source.is_loopback() && !server.is_loopback() => {
            let [a, b, subnet, _] = server.octets();
            IpAddr::from([a, b, subnet, 128 | source.octets()[3]])
        }
        _ => source,
    }
}

/// A listener that leads to another namespace. It is closed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    listener: TcpListener,
}

impl Relay {
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it is bound")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Ends the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

/// Passes bytes on until the end, and the end.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Connects to the node.
pub(crate) fn open() -> Wire {
    Wire::open(SERVER.parse().expect("an address"))
}

/// A counter of the first core's datapath.
pub(crate) fn counter(status: &Value, name: &str) -> u64 {
    status["cores"][0]["bypass"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", status["cores"][0]))
}
