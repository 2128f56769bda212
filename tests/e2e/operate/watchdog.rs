//! The watchdog of the service manager: it gets keep-alive pings while every core makes progress, and only then.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::node::{PATIENCE, Setup, sum, wait_until};

const SIGN: &str = "WATCHDOG=1";

/// A service manager that gathers notifications. A thread reads them, so that the node never waits for the test.
struct Manager {
    path: PathBuf,
    messages: Receiver<String>,
}

impl Manager {
    fn new(dir: &Path) -> Manager {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut text = [0; 256];
            while let Ok(len) = socket.recv(&mut text) {
                if sender.send(String::from_utf8_lossy(&text[..len]).trim().to_owned()).is_err() {
                    return;
                }
            }
        });
        Manager { path, messages }
    }

    /// A node that is to send keep-alive pings within that time, as the process with that number; `$$` is its own.
    fn setup(&self, dir: &Path, within: Duration, pid: &str) -> Setup {
        Setup::new(&dir.join("data"))
            .env("NOTIFY_SOCKET", self.path.to_str().unwrap())
            .env("WATCHDOG_USEC", &within.as_micros().to_string())
            .shell(format!("export WATCHDOG_PID={pid}; exec \"$@\""))
            // A busy machine may halt a core for half of so short a time.
            .expect("has made no progress")
    }

    /// Waits for a message, whatever comes before it.
    fn wait_for(&self, message: &str) {
        while self.messages.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {message}")) != message {}
    }
}

#[test]
fn live_node_sends_signs_until_its_end() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::new(dir.path());
        let setup = manager.setup(dir.path(), Duration::from_secs(1), "$$").cores(cores);
        let node = setup.env("CAROM_DRAIN_DELAY", "6s").start();
        manager.wait_for("READY=1");
        (0..5).for_each(|_| manager.wait_for(SIGN));
        assert_eq!(node.wire().get("/none").status, 404);
        node.signal(Signal::TERM);
        manager.wait_for("STOPPING=1");
        (0..2).for_each(|_| manager.wait_for(SIGN));
        node.drained();
    }
}

#[test]
fn other_process_is_not_watched() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let node = manager.setup(dir.path(), Duration::from_millis(20), "1").start();
    manager.wait_for("READY=1");
    let turns = || sum(&node.status(), "/turns");
    let before = turns();
    wait_until("some ticks of the core", || turns() > before + 8);
    node.terminate();
    let rest: Vec<String> = manager.messages.try_iter().collect();
    assert!(!rest.iter().any(|message| message == SIGN), "{rest:?}");
}

#[cfg(feature = "faults")]
mod fault_tests {
    use super::*;

    #[test]
    fn halted_core_ends_the_signs() {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::new(dir.path());
        let within = Duration::from_secs(1);
        let setup = manager.setup(dir.path(), within, "$$").cores(2).env("CAROM_FAULT", "core-on-order");
        let node = setup.expect("CAROM_FAULT is not a setting").start();
        manager.wait_for("READY=1");
        manager.wait_for(SIGN);
        let order = dir.path().join("data/stall-core");
        std::fs::write(&order, "").unwrap();
        // A few may be on their way. Then there are none for longer than the manager would wait.
        let late = (0..8).take_while(|_| manager.messages.recv_timeout(3 * within).is_ok()).count();
        assert!(late < 8, "keep-alive pings although a core stalls");
        wait_until("the name of the core in the log", || node.log().contains("core 0 has made no progress"));
        std::fs::remove_file(&order).unwrap();
        manager.wait_for(SIGN);
        wait_until("the end in the log", || node.log().contains("every core makes progress again"));
        node.terminate();
    }
}
