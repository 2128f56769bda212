//! Two network namespaces with a link between them: a node in one, clients in the other.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::support::http::Wire;
use crate::support::node::{Node, Setup};

/// The address of the node.
pub(crate) const SERVER: &str = "10.78.0.2:8080";

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

    /// Runs a function on a thread in the namespace. Processes that it starts stay there.
    pub(crate) fn run<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let run = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root can enter");
            function()
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn command(&self, program: &str, arguments: &str) {
        self.run(|| {
            let output = Command::new(program).args(arguments.split_whitespace()).output();
            let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
            assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A client and a server with a link between them.
pub(crate) struct Pair {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
}

impl Pair {
    /// Makes a pair; `None` for users who may not.
    pub(crate) fn new() -> Option<Pair> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make network namespaces");
            return None;
        }
        let pair = Pair { client: Namespace::new(), server: Namespace::new() };
        let of_server = pair.server.holder.id();
        pair.client.command("ip", &format!("link add c0 type veth peer name s0 netns {of_server}"));
        for (namespace, name, address) in [(&pair.client, "c0", "10.78.0.1/24"), (&pair.server, "s0", "10.78.0.2/24")] {
            namespace.command("ip", "link set lo up");
            namespace.command("ip", &format!("addr add {address} dev {name}"));
            namespace.command("ip", &format!("link set {name} up"));
            // Frames of a veth have no checksum otherwise, and may be larger than the MTU.
            for offload in ["tx", "gso", "tso", "gro"] {
                namespace.command("ethtool", &format!("-K {name} {offload} off"));
            }
        }
        Some(pair)
    }

    /// Settings of a node that serves over bypass.
    pub(crate) fn setup(&self, data_dir: &std::path::Path) -> Setup {
        self.setup_over_kernel(data_dir).env("CAROM_BYPASS_INTERFACE", "s0").env("CAROM_BYPASS_REQUIRED", "true")
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

    /// Runs a client.
    pub(crate) fn ask<T: Send>(&self, client: impl FnOnce(Wire) -> T + Send) -> T {
        self.client.run(|| client(open()))
    }

    /// Segments that the kernel's TCP in the namespace of the server has received, those of loopback included.
    pub(crate) fn kernel_segments(&self) -> u64 {
        let text = self.server.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").expect("the kernel tells"));
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let names = lines.next().expect("a line of names").split_whitespace();
        let numbers = lines.next().expect("a line of numbers").split_whitespace();
        let (_, number) = names.zip(numbers).find(|(name, _)| *name == "InSegs").expect("segments are counted");
        number.parse().expect("a number")
    }
}

/// Connects to the node.
pub(crate) fn open() -> Wire {
    Wire::open(SERVER.parse().expect("an address"))
}

/// A counter of the first core's datapath.
pub(crate) fn counter(status: &Value, name: &str) -> u64 {
    status["cores"][0]["bypass"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", status["cores"][0]))
}
