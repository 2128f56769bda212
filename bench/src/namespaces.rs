//! Two network namespaces with a pair of virtual interfaces (veth) between them. Needs root.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Address of the servers, in their namespace.
pub(crate) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);

/// Interface of the servers.
pub(crate) const SERVER_INTERFACE: &str = "s0";

/// Offloads that must be off: frames would carry no checksums, and would be larger than the MTU.
const OFFLOADS: [&str; 4] = ["tx", "gso", "tso", "gro"];

/// A network namespace. It disappears with this value, or with this process.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
    holder: Child,
}

/// The two namespaces.
#[derive(Debug)]
pub(crate) struct VethPair {
    /// Namespace of the client.
    pub(crate) client: Namespace,
    /// Namespace of the servers.
    pub(crate) server: Namespace,
}

/// Returns the reason why this process cannot make namespaces; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make network namespaces".to_owned());
    }
    let is_missing = |program: &str| Command::new(program).arg("-V").output().is_err();
    let programs = [("unshare", "util-linux"), ("ip", "iproute2"), ("ethtool", "ethtool"), ("taskset", "util-linux")];
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Some(format!("not installed: {}", missing.join(" ")));
    }
    Namespace::new().err().map(|error| format!("the kernel makes no network namespace: {error:#}"))
}

impl Namespace {
    fn new() -> Result<Namespace> {
        // `cat` ends with the pipe, and the pipe with this process.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("unshare cannot be started")?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("it is piped")?).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("unshare ended with {}", holder.wait()?);
        }
        let file = File::open(format!("/proc/{}/ns/net", holder.id()))?;
        Ok(Namespace { file, holder })
    }

    /// Runs a function on a thread in the namespace. Processes that it starts are in the namespace, too.
    pub(crate) fn run<T: Send>(&self, function: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let run = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .context("the namespace cannot be entered")?;
            function()
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns a command that runs another one in the namespace, in the same process.
    pub(crate) fn command(&self, command: Vec<String>) -> Vec<String> {
        let prefix = ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id())];
        prefix.into_iter().chain(command).collect()
    }

    fn call(&self, program: &str, arguments: &str) -> Result<()> {
        self.run(|| {
            let output = Command::new(program).args(arguments.split_whitespace()).output()?;
            if !output.status.success() {
                bail!("{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
            }
            Ok(())
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl VethPair {
    /// Makes the namespaces and the interfaces.
    pub(crate) fn new() -> Result<VethPair> {
        let pair = VethPair { client: Namespace::new()?, server: Namespace::new()? };
        let peer = format!("link add c0 type veth peer name {SERVER_INTERFACE} netns {}", pair.server.holder.id());
        pair.client.call("ip", &peer)?;
        let ends = [(&pair.client, "c0", Ipv4Addr::new(10, 79, 0, 1)), (&pair.server, SERVER_INTERFACE, SERVER_IP)];
        for (namespace, name, address) in ends {
            namespace.call("ip", "link set lo up")?;
            namespace.call("ip", &format!("addr add {address}/24 dev {name}"))?;
            namespace.call("ip", &format!("link set {name} up"))?;
            for offload in OFFLOADS {
                namespace.call("ethtool", &format!("-K {name} {offload} off"))?;
            }
        }
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn client_reaches_server_over_the_pair() {
        if let Some(reason) = obstacle() {
            println!("skipped: {reason}");
            return;
        }
        let pair = VethPair::new().unwrap();
        let listener = pair.server.run(|| Ok(TcpListener::bind((SERVER_IP, 80))?)).unwrap();
        let mut client = pair.client.run(|| Ok(TcpStream::connect((SERVER_IP, 80))?)).unwrap();
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert!(pair.server.command(vec!["true".to_owned()])[1].starts_with("--net=/proc/"));
    }
}
