//! The three servers of the comparison, each on a port without and on a port with TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;

use crate::machine::namespaces::{SERVER_INTERFACE, SERVER_IP, command_in};
use crate::servers::peers::{self, BenchDirs};
use crate::servers::process::Server;
use carom_netns::Namespace;

/// Names of the subjects, in the order of reports.
pub(crate) const OVER_BYPASS: &str = "carom over bypass";
pub(crate) const OVER_KERNEL: &str = "carom over kernel sockets";
pub(crate) const REFERENCE: &str = "nginx return 302";

/// Addresses of all servers: only one of them runs at a time.
pub(super) const PLAIN: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER_IP), 8080);
pub(super) const SECURE: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER_IP), 8443);

/// Admin listener of carom, on the loopback interface of its namespace.
pub(super) const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// A server that can be started.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Name of the server in reports.
    pub(super) name: &'static str,
    /// Version of the server.
    pub(super) version: String,
    /// All settings of the server, as text.
    pub(super) settings: String,
    /// True if the server redirects all requests to one destination.
    pub(super) is_constant: bool,
    command: Vec<String>,
}

impl Candidate {
    /// Starts the server in a namespace, on a CPU. The calling thread must be able to reach [`PLAIN`].
    pub(super) fn start(&self, namespace: &Namespace, cpu: usize, place: &BenchDirs) -> Result<Server> {
        let log = place.scratch.join(format!("{}.log", self.name.replace(' ', "-")));
        Server::start(&command_in(namespace, self.command.clone()), &cpu.to_string(), PLAIN, &log)
    }
}

/// Prepares carom on one core, with the links of a data directory.
pub(super) fn carom(name: &'static str, place: &BenchDirs, data: &Path, cpu: usize) -> Result<Candidate> {
    let (certificate, key) = peers::certificate(place)?;
    let mut settings = format!("[tls]\ncert = [\"{certificate}\"]\nkey = [\"{key}\"]\nlisten = [\"{SECURE}\"]\n");
    if name == OVER_BYPASS {
        settings.push_str(&format!("[bypass]\ninterface = \"{SERVER_INTERFACE}\"\nrequired = true\n"));
    }
    let file = peers::written(&place.scratch.join(format!("{}.toml", name.replace(' ', "-"))), &settings)?;
    let mut command = peers::carom_command(place, data, &format!("{cpu}-{cpu}"), PLAIN, ADMIN.port());
    command.extend(["--listen", &SECURE.to_string(), "--open", "--config", &file].map(str::to_owned));
    Ok(Candidate {
        name,
        version: peers::version(&command[0], "--version"),
        settings: format!("one core, pinned; control threads share its CPU\n{settings}"),
        is_constant: false,
        command,
    })
}

/// Prepares nginx with one worker; `None` if it is not installed.
pub(super) fn nginx(place: &BenchDirs) -> Result<Option<Candidate>> {
    let Some(program) = peers::find(&["/usr/sbin/nginx"]) else { return Ok(None) };
    let (certificate, key) = peers::certificate(place)?;
    let secure = format!(
        "ADDRESS backlog=4096; listen {SECURE} ssl http2 backlog=4096; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key {key};"
    );
    let server = peers::return_location().replace("ADDRESS backlog=4096;", &secure);
    let settings = peers::nginx_settings(&place.scratch, "veth", "", &server, PLAIN);
    let file = peers::written(&place.scratch.join("nginx-veth.conf"), &settings)?;
    Ok(Some(Candidate {
        name: REFERENCE,
        version: peers::version(&program, "-v"),
        settings,
        is_constant: true,
        command: vec![program, "-c".to_owned(), file],
    }))
}
