//! Restarts without lost requests: the balancer is told in time, the service manager is notified, and inherited sockets
//! stay open.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::http::Wire;
use crate::support::node::{Setup, wait_until};
use crate::support::steady_client::{TARGET, ask_until};
use crate::support::stop::StopOnDrop;

#[test]
fn drain_delay_keeps_serving() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than any stall of the machine.
    let node = Setup::new(dir.path()).cores(2).env("CAROM_DRAIN_DELAY", "1h").start();
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    let since = Instant::now();
    node.signal(Signal::TERM);
    wait_until("a node that is not ready", || Wire::open(node.admin).get("/readyz").status == 503);
    // It says so, and does everything as before.
    assert_eq!(node.wire().get("/rest/health").status, 503);
    while since.elapsed() < Duration::from_millis(1_500) {
        let mut new = node.wire();
        for wire in [&mut new, &mut wire] {
            let reply = wire.get(&format!("/{code}"));
            assert_eq!(reply.location(), TARGET);
            assert_eq!(reply.field("connection"), None);
        }
        assert_eq!(new.shorten(TARGET).len(), 7);
    }
    drop(wire);
    // A second signal ends the wait.
    node.signal(Signal::TERM);
    let setup = node.drained();
    // Without one, the wait ends in time.
    let node = setup.env("CAROM_DRAIN_DELAY", "2s").start();
    let since = Instant::now();
    node.signal(Signal::TERM);
    let _ = node.drained();
    assert!(since.elapsed() >= Duration::from_secs(2));
}

#[test]
fn service_manager_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let said = || {
        let mut text = [0; 256];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..len].to_vec()).unwrap()
    };
    let node = Setup::new(&dir.path().join("data")).env("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    assert_eq!(said().trim(), "READY=1");
    assert_eq!(node.wire().get("/none").status, 404);
    node.terminate();
    assert_eq!(said().trim(), "STOPPING=1");
}

/// A supervisor that keeps the sockets of a service open, and restarts the service when it has ended.
struct Supervisor {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Supervisor {
    fn start(dir: &std::path::Path, sockets: usize, cores: usize) -> Supervisor {
        let mut child = Command::new("perl")
            .args([
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/support/supervisor.pl"),
                &sockets.to_string(),
                "127.0.0.1",
                "0",
            ])
            .args([
                env!("CARGO_BIN_EXE_carom"),
                "serve",
                "--listen",
                "127.0.0.1:@PORT@",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .args(["--cores", &cores.to_string(), "--data-dir"])
            .arg(dir)
            .env("CAROM_LOG_LEVEL", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .expect("perl");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        Supervisor { child, lines, address }
    }

    /// Waits until the service says that it serves.
    fn wait_for_service(&mut self) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("serves http://{}", self.address)), "{line}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn inherited_sockets_lose_no_connection() {
    // One socket for each core, one for all of them, and more than there are cores.
    for (sockets, cores, restarts) in [(2, 2, 20), (1, 2, 3), (3, 1, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let mut supervisor = Supervisor::start(dir.path(), sockets, cores);
        supervisor.wait_for_service();
        let address = supervisor.address;
        let code = Wire::open(address).shorten(TARGET);
        let path = format!("/{code}");
        let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&is_over);
            let clients: Vec<_> =
                (0..4).map(|_| scope.spawn(|| ask_until(|| Wire::open(address), &path, &is_over, &answered))).collect();
            for _ in 0..restarts {
                let before = answered.load(Ordering::Relaxed);
                supervisor.signal(Signal::HUP);
                supervisor.wait_for_service();
                wait_until("answers of the new process", || answered.load(Ordering::Relaxed) > before + 20);
            }
            drop(stop);
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        drop(supervisor);
    }
}

#[test]
fn unconfigured_socket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("perl")
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/support/supervisor.pl"), "1", "127.0.0.1", "0"])
        .args([env!("CARGO_BIN_EXE_carom"), "serve", "--listen", "127.0.0.2:0", "--admin-listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(dir.path())
        .output()
        .expect("perl");
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(said.contains("which is not in listen or admin_listen"), "{said}");
    assert!(said.contains("exit code: 14"), "{said}");
}
