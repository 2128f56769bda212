//! The script that starts a whole fleet to try it, `deploy/fleet.sh`: it starts every process and leaves none behind.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::http::Wire;
use crate::support::node::{CAROM, PATIENCE, wait_for, wait_until};

/// The line that the script prints once everything listens.
const READY: &str = "The fleet is ready.";

/// Nodes that it starts by itself.
const NODES: u16 = 3;

/// Servers of its cluster.
const SERVERS: u16 = 6;

/// A running script. However the test ends, it is asked to end, and ends what it has started.
struct Script {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Script {
    /// Starts it, with a place of its own for temporary files.
    fn start(base: u16, temporary: &Path) -> Script {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/fleet.sh"));
        command.args(["--carom", CAROM, "--port", &base.to_string()]).env("TMPDIR", temporary);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the script can be started");
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Script { child, lines, said: Vec::new() }
    }

    /// Reads until it says that all is ready.
    fn wait_until_ready(&mut self) {
        while !self.said.last().is_some_and(|line| line.starts_with(READY)) {
            let line = self.lines.recv_timeout(2 * PATIENCE);
            self.said.push(line.unwrap_or_else(|error| panic!("no further line ({error}) after {:#?}", self.said)));
        }
    }

    /// Asks it to end, and checks that it does so with exit code 0.
    fn terminate(mut self) {
        self.ask_to_end();
        let status = wait_for("the end of the script", || self.child.try_wait().expect("a child can be waited for"));
        assert_eq!(status.code(), Some(0), "{status}");
    }

    fn ask_to_end(&mut self) {
        // While it has not been waited for, its number is its own.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.ask_to_end();
        let _ = self.child.wait();
    }
}

#[test]
fn fleet_starts_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_base();
    let mut script = Script::start(base, folder.path());
    script.wait_until_ready();
    let node = |number: u16| Wire::open(address(base + number));
    let code = node(1).shorten("https://example.org/over-there");
    for number in 2..=NODES {
        // A busy Redis may answer later than the node waits, which is a 503.
        let redirects = || node(number).get(&format!("/{code}")).status == 302;
        wait_until("a redirect by another node", redirects);
        assert_eq!(node(number).get(&format!("/{code}")).location(), "https://example.org/over-there");
        assert_eq!(Wire::open(address(base + 100 + number)).get("/readyz").status, 200);
    }
    for port in (1..=NODES).map(|node| base + node).chain((1..=SERVERS).map(|server| base + 200 + server)) {
        let named = format!("127.0.0.1:{port} ");
        assert!(script.said.iter().any(|line| line.contains(&named)), "{named}is not in {:#?}", script.said);
    }
    let shown: Vec<&str> =
        script.said.iter().filter_map(|line| line.split_once(" shows ")).map(|(_, visits)| visits).collect();
    // 6, 7 and 8 visits, one node each.
    assert_eq!(shown, ["21"; NODES as usize], "{:#?}", script.said);
    // The look for what is left finds what is there.
    let running = processes_in(folder.path());
    // Redis may just have forked to write its log anew.
    assert!(running.len() >= usize::from(NODES + SERVERS), "{running:#?}");
    script.terminate();
    assert_eq!(processes_in(folder.path()), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its directory is still there");
    assert!(ports(base).all(is_free), "something still listens");
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The ports of a fleet from that base on.
fn ports(base: u16) -> impl Iterator<Item = u16> {
    let nodes = (1..=NODES).flat_map(|node| [node, 100 + node]);
    nodes.chain((1..=SERVERS).flat_map(|server| [200 + server, 300 + server])).map(move |distance| base + distance)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(address(port)).is_ok()
}

/// A base whose ports are free, below those that other tests and the kernel choose from.
fn free_base() -> u16 {
    let start = std::process::id() % 20;
    let bases = (0..20).map(|number| 10_000 + 350 * u16::try_from((start + number) % 20).expect("it is below 20"));
    bases.into_iter().find(|&base| ports(base).all(is_free)).expect("one of twenty bases is free")
}

/// Processes that work in a folder or have it among their arguments, with what is known of them.
fn processes_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("/proc can be read").flatten().map(|entry| entry.path()) {
        // Not a process, one that has just ended, or one of somebody else.
        let Ok(arguments) = std::fs::read(process.join("cmdline")) else { continue };
        let works_there = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let folder = folder.as_os_str().as_bytes();
        if works_there || arguments.windows(folder.len()).any(|window| window == folder) {
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            found.push(format!("{}: {}", process.display(), arguments.trim_end()));
        }
    }
    found
}
