//! Two network namespaces with a pair of virtual interfaces (veth) between them. Needs root.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Result;
use carom_netns::Namespace;

/// Address of the servers, in their namespace.
pub(crate) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);

/// Interface of the servers.
pub(crate) const SERVER_INTERFACE: &str = "s0";

/// Offloads that must be off: frames would carry no checksums, and would be larger than the MTU.
const OFFLOADS: [&str; 4] = ["tx", "gso", "tso", "gro"];

/// The two namespaces.
#[derive(Debug)]
pub(crate) struct VethPair {
    /// Namespace of the client.
    pub(crate) client: Namespace,
    /// Namespace of the servers.
    pub(crate) server: Namespace,
}

/// Returns the reason why this process cannot make a pair; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    let is_missing = |program: &str| Command::new(program).arg("-V").output().is_err();
    let programs = [("unshare", "util-linux"), ("ip", "iproute2"), ("ethtool", "ethtool"), ("taskset", "util-linux")];
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Some(format!("not installed: {}", missing.join(" ")));
    }
    carom_netns::obstacle()
}

/// Returns a command that runs another one in a namespace, in the same process.
pub(crate) fn command_in(namespace: &Namespace, command: Vec<String>) -> Vec<String> {
    let prefix = ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", namespace.pid())];
    prefix.into_iter().chain(command).collect()
}

impl VethPair {
    /// Makes the namespaces and the interfaces.
    pub(crate) fn new() -> Result<VethPair> {
        let pair = VethPair { client: Namespace::new()?, server: Namespace::new()? };
        let peer = format!("link add c0 type veth peer name {SERVER_INTERFACE} netns {}", pair.server.pid());
        pair.client.command("ip", &peer)?;
        let ends = [(&pair.client, "c0", Ipv4Addr::new(10, 79, 0, 1)), (&pair.server, SERVER_INTERFACE, SERVER_IP)];
        for (namespace, name, address) in ends {
            namespace.command("ip", "link set lo up")?;
            namespace.command("ip", &format!("addr add {address}/24 dev {name}"))?;
            namespace.command("ip", &format!("link set {name} up"))?;
            for offload in OFFLOADS {
                namespace.command("ethtool", &format!("-K {name} {offload} off"))?;
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
        let listener = pair.server.run(|| TcpListener::bind((SERVER_IP, 80))).unwrap();
        let mut client = pair.client.run(|| TcpStream::connect((SERVER_IP, 80))).unwrap();
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert!(command_in(&pair.server, vec!["true".to_owned()])[1].starts_with("--net=/proc/"));
    }
}
