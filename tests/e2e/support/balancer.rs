//! HAProxy in front of two nodes, with the configuration that carom ships.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::http::Wire;
use super::node::{free_address, wait_until};

/// The configuration of HAProxy in `deploy/`.
pub(crate) const HAPROXY: &str = include_str!("../../../deploy/haproxy/carom.cfg");

/// Runs a program that must succeed.
pub(crate) fn check(program: &str, arguments: &[&str]) {
    let made = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [made.stdout, made.stderr].concat();
    assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&said));
}

/// HAProxy with the configuration of `deploy/`, on other addresses, with checks ten times as often and more patience.
pub(crate) struct Balancer {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
}

impl Balancer {
    pub(crate) fn start(dir: &Path, nodes: &[(SocketAddr, SocketAddr); 2]) -> Balancer {
        let (http, https) = (free_address(), free_address());
        let mut config =
            HAPROXY.replace("bind :80 ", &format!("bind {http} ")).replace("bind :443 ", &format!("bind {https} "));
        for (number, (plain, secure)) in nodes.iter().enumerate() {
            config = config.replace(&format!("10.0.0.1{}:80", number + 1), &plain.to_string());
            config = config.replace(&format!("10.0.0.1{}:443", number + 1), &secure.to_string());
        }
        config = config.replace("inter 1s", "inter 100ms").replace("maxconn 200000", "maxconn 1000");
        // Nodes of a test share two cores with all other tests.
        for (step, limit) in [("connect", "2s"), ("check", "1s")] {
            let (own, ample) = (format!("timeout {step} {limit} "), format!("timeout {step} 10s "));
            assert!(config.contains(&own), "{own}");
            config = config.replace(&own, &ample);
        }
        assert!(
            !config.contains("10.0.0.1")
                || config.lines().all(|line| line.starts_with('#') || !line.contains("10.0.0.1"))
        );
        let file = dir.join("haproxy.cfg");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("HAProxy, which `make test` installs");
        let answers = || {
            Wire::try_open(http).is_ok_and(|mut wire| {
                wire.try_ask("GET", "/rest/health", "", b"").is_ok_and(|reply| reply.status == 200)
            })
        };
        wait_until("a balancer", answers);
        Balancer { child, http, https }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
