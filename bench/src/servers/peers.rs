//! The servers of the comparison: their commands, their settings, and their helpers.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::data;
use crate::servers::process::{Server, free_port};
use crate::terminal::say;

/// Number of links in the maps of servers that are not meant for millions.
pub(crate) const MAP_LINKS: u64 = 100_000;

/// Number of links of a new data directory between two lines that say how many an import has got.
const SAY_EVERY_LINKS: u64 = 10_000_000;

/// Names of all subjects, in the order of reports.
pub(crate) const NAMES: [&str; 10] = [
    "carom, 10 M links",
    "carom, 100 k links",
    "nginx return 302",
    "nginx map, 100 k links",
    "HAProxy map, 100 k links",
    "nginx Lua + Redis, 100 k links",
    "carom with TLS, 100 k links",
    "nginx return 302 with TLS",
    "floor: bare io_uring",
    "floor: bare epoll",
];

/// Subject that the others are compared with.
pub(crate) const REFERENCE: &str = "nginx return 302";

/// Folders of programs and data.
#[derive(Clone, Debug)]
pub(crate) struct BenchDirs {
    /// Folder of the programs of this workspace.
    pub(crate) programs: PathBuf,
    /// Folder of the data sets, kept between runs.
    pub(crate) data: PathBuf,
    /// Folder for this run.
    pub(crate) scratch: PathBuf,
}

impl BenchDirs {
    /// Replaces the folders of this machine in settings.
    pub(crate) fn tidy(&self, settings: &str) -> String {
        let [scratch, data] = [&self.scratch, &self.data].map(|folder| folder.display().to_string());
        settings.replace(&scratch, "SCRATCH").replace(&data, "DATA")
    }
}

/// A server that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Name of the server in reports.
    pub(crate) name: &'static str,
    /// Version of the server.
    pub(crate) version: String,
    /// All settings of the server, as text.
    pub(crate) settings: String,
    /// Number of links that the server has; the client requests these.
    pub(crate) links: u64,
    /// True if the server redirects all requests to one destination.
    pub(crate) is_constant: bool,
    /// True if the server uses TLS.
    is_secure: bool,
    command: Vec<String>,
    address: SocketAddr,
    /// Command and address of another server that this one needs.
    helper: Option<(Vec<String>, SocketAddr)>,
}

/// A running peer with its helpers.
#[derive(Debug)]
pub(crate) struct Running {
    /// The server itself.
    pub(crate) server: Server,
    /// Server that the peer needs; its CPU time counts, too.
    pub(crate) helper: Option<Server>,
    /// Second server that gets half of the connections.
    pub(crate) twin: Option<Server>,
    /// True if the client uses TLS.
    pub(crate) is_secure: bool,
}

impl Peer {
    /// Starts the peer on a CPU.
    pub(crate) fn start(&self, cpu: usize, place: &BenchDirs) -> Result<Running> {
        let cpus = cpu.to_string();
        let log = |part: &str| place.scratch.join(format!("{}-{part}.log", self.name.replace([' ', ':', ','], "-")));
        let helper = match &self.helper {
            Some((command, address)) => {
                let server = Server::start(command, &cpus, *address, &log("helper"))?;
                fill_redis(*address, self.links)?;
                Some(server)
            }
            None => None,
        };
        let server = Server::start(&self.command, &cpus, self.address, &log("server"))?;
        Ok(Running { server, helper, twin: None, is_secure: self.is_secure })
    }

    /// Prepares the subject with that name. `Ok(Err(reason))` if the machine lacks something that it needs.
    pub(crate) fn prepare(
        name: &'static str,
        place: &BenchDirs,
        cpu: usize,
        many: u64,
    ) -> Result<Result<Peer, String>> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        match name {
            "carom, 10 M links" => carom(name, place, cpu, address, many).map(Ok),
            "carom, 100 k links" => carom(name, place, cpu, address, MAP_LINKS).map(Ok),
            "carom with TLS, 100 k links" => {
                carom_with_tls(place, carom(name, place, cpu, address, MAP_LINKS + 1)?).map(Ok)
            }
            "nginx return 302" => nginx(name, place, address, &return_location(), true),
            "nginx return 302 with TLS" => nginx_with_tls(name, place, address),
            "nginx map, 100 k links" => {
                let map = data::map(place.data.join("nginx.map"), MAP_LINKS, ";")?;
                nginx(name, place, address, &map_location(&map), false)
            }
            "HAProxy map, 100 k links" => haproxy(name, place, address),
            "nginx Lua + Redis, 100 k links" => lua(name, place, address),
            "floor: bare io_uring" => Ok(Ok(floor(name, place, address, "floor-ring"))),
            "floor: bare epoll" => Ok(Ok(floor(name, place, address, "floor-epoll"))),
            _ => bail!("`{name}` is not a server that is known here"),
        }
    }
}

/// Returns the first of these programs that exists.
pub(crate) fn find(programs: &[&str]) -> Option<String> {
    programs.iter().find(|program| Path::new(program).exists()).map(|program| (*program).to_owned())
}

/// Returns the first line of a program's version output.
pub(crate) fn version(program: &str, option: &str) -> String {
    let output = Command::new(program).arg(option).output();
    let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").trim().to_owned()
}

/// Writes a file. Returns its path.
pub(crate) fn written(path: &Path, text: &str) -> Result<String> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path.display().to_string())
}

/// Returns a data directory of carom with the first `count` links. Created on first use.
pub(crate) fn carom_data(place: &BenchDirs, count: u64) -> Result<PathBuf> {
    carom_data_for(place, count, &[])
}

/// Returns a data directory as [`carom_data`]. On first use, the import also writes the files that the start of a node with
/// these settings reads. The settings are for the environment.
pub(crate) fn carom_data_for(place: &BenchDirs, count: u64, settings: &[String]) -> Result<PathBuf> {
    let folder = place.data.join(format!("carom-{count}"));
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(folder);
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    import_first(place, &folder, count, settings)?;
    std::fs::write(complete, "")?;
    Ok(folder)
}

/// Imports the first `count` links into a new data directory, through a pipe: a file of 100 million would take 15 GB.
fn import_first(place: &BenchDirs, folder: &Path, count: u64, settings: &[String]) -> Result<()> {
    let mut command = Command::new("env");
    command.args(settings).arg(place.programs.join("carom")).args(["import", "--data-dir"]).arg(folder).arg("-");
    let mut child = command.stdin(Stdio::piped()).spawn().context("carom cannot be started")?;
    let pipe = child.stdin.take().context("the import has a pipe")?;
    let written = write_first(BufWriter::with_capacity(1 << 20, pipe), count);
    let status = child.wait()?;
    // An import that has failed reads no further, and says why.
    if !status.success() {
        bail!("carom import ended with {status}");
    }
    written
}

/// Writes the first `count` links, and closes `out`.
fn write_first(mut out: impl Write, count: u64) -> Result<()> {
    for number in 0..count {
        data::write_link(&mut out, number)?;
        if (number + 1).is_multiple_of(SAY_EVERY_LINKS) {
            say(&format!("{} of {count} links sent to the import", number + 1));
        }
    }
    Ok(out.flush()?)
}

/// Imports a file of links into a new data directory.
pub(crate) fn import(place: &BenchDirs, folder: &Path, links: &Path) -> Result<()> {
    let mut command = Command::new(place.programs.join("carom"));
    let status = command.args(["import", "--data-dir"]).arg(folder).arg(links).status();
    let status = status.context("carom cannot be started")?;
    if !status.success() {
        bail!("carom import ended with {status}");
    }
    Ok(())
}

/// Returns the command that starts carom on some cores.
pub(crate) fn carom_command(
    place: &BenchDirs,
    data: &Path,
    cpus: &str,
    address: SocketAddr,
    admin: u16,
) -> Vec<String> {
    let words = ["serve", "--cores", cpus, "--listen", &address.to_string(), "--admin-listen"];
    let mut command = vec![place.programs.join("carom").display().to_string()];
    command.extend(words.map(str::to_owned));
    command.extend([format!("127.0.0.1:{admin}"), "--data-dir".to_owned(), data.display().to_string()]);
    command
}

fn carom(name: &'static str, place: &BenchDirs, cpu: usize, address: SocketAddr, links: u64) -> Result<Peer> {
    let data = carom_data(place, links)?;
    let command = carom_command(place, &data, &format!("{cpu}-{cpu}"), address, free_port()?);
    Ok(Peer {
        name,
        version: version(&command[0], "--version"),
        settings: "defaults; one core, pinned; control threads share its CPU".to_owned(),
        links,
        is_constant: false,
        is_secure: false,
        command,
        address,
        helper: None,
    })
}

/// Adds TLS to a carom peer. The peer needs data of its own, since both run at the same time.
fn carom_with_tls(place: &BenchDirs, peer: Peer) -> Result<Peer> {
    let (certificate, key) = certificate(place)?;
    let settings = format!("[tls]\ncert = [\"{certificate}\"]\nkey = [\"{key}\"]\n");
    let mut command = peer.command;
    command.extend(["--config".to_owned(), written(&place.scratch.join("tls.toml"), &settings)?]);
    Ok(Peer { settings: format!("{}\n{settings}", peer.settings), command, is_secure: true, ..peer })
}

fn nginx_with_tls(name: &'static str, place: &BenchDirs, address: SocketAddr) -> Result<Result<Peer, String>> {
    let (certificate, key) = certificate(place)?;
    let tls = format!(
        "ADDRESS ssl http2 backlog=4096; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key {key};"
    );
    let server = return_location().replace("ADDRESS backlog=4096;", &tls);
    Ok(nginx(name, place, address, &server, true)?.map(|peer| Peer { is_secure: true, ..peer }))
}

/// Returns the paths of a certificate (ECDSA, P-256) and its key, created once for a run.
pub(crate) fn certificate(place: &BenchDirs) -> Result<(String, String)> {
    let [certificate, key] = ["tls.pem", "tls.key"].map(|name| place.scratch.join(name));
    if !certificate.exists() {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .context("openssl cannot be started")?;
        if !made.status.success() {
            bail!("openssl made no certificate: {}", String::from_utf8_lossy(&made.stderr));
        }
    }
    Ok((certificate.display().to_string(), key.display().to_string()))
}

/// Returns nginx's server block with one redirect for all requests.
pub(crate) fn return_location() -> String {
    format!("server {{ listen ADDRESS backlog=4096; location / {{ return 302 {}; }} }}", data::target(0))
}

fn map_location(map: &Path) -> String {
    format!(
        "map_hash_max_size 262144; map_hash_bucket_size 256;\n  map $uri $to {{ include {}; }}\n  server {{ listen ADDRESS backlog=4096; location / {{ if ($to = \"\") {{ return 404; }} return 302 $to; }} }}",
        map.display()
    )
}

/// Returns nginx's settings around a server block.
pub(crate) fn nginx_settings(scratch: &Path, name: &str, modules: &str, server: &str, address: SocketAddr) -> String {
    let pid = scratch.join(format!("{name}.pid"));
    format!(
        "{modules}daemon off;\nworker_processes 1;\npid {};\nerror_log stderr warn;\nevents {{ worker_connections 16384; multi_accept on; }}\nhttp {{\n  access_log off; server_tokens off; tcp_nodelay on;\n  keepalive_requests 1000000000; keepalive_timeout 75s; absolute_redirect off;\n  client_body_temp_path {scratch}/tmp; proxy_temp_path {scratch}/tmp; fastcgi_temp_path {scratch}/tmp; uwsgi_temp_path {scratch}/tmp; scgi_temp_path {scratch}/tmp;\n  {}\n}}\n",
        pid.display(),
        server.replace("ADDRESS", &address.to_string()),
        scratch = scratch.display(),
    )
}

fn nginx(
    name: &'static str,
    place: &BenchDirs,
    address: SocketAddr,
    server: &str,
    is_constant: bool,
) -> Result<Result<Peer, String>> {
    let Some(program) = find(&["/usr/sbin/nginx"]) else { return Ok(Err("nginx-light".to_owned())) };
    let settings = nginx_settings(&place.scratch, &address.port().to_string(), "", server, address);
    let file = written(&place.scratch.join(format!("nginx-{}.conf", address.port())), &settings)?;
    Ok(Ok(Peer {
        name,
        version: version(&program, "-v"),
        settings,
        links: MAP_LINKS,
        is_constant,
        is_secure: false,
        command: vec![program, "-c".to_owned(), file],
        address,
        helper: None,
    }))
}

fn haproxy(name: &'static str, place: &BenchDirs, address: SocketAddr) -> Result<Result<Peer, String>> {
    let Some(program) = find(&["/usr/sbin/haproxy"]) else { return Ok(Err("haproxy".to_owned())) };
    let map = data::map(place.data.join("haproxy.map"), MAP_LINKS, "")?;
    let settings = format!(
        "global\n  nbthread 1\n  maxconn 8000\ndefaults\n  mode http\n  timeout client 75s\n  timeout server 75s\n  timeout connect 5s\n  timeout http-keep-alive 75s\nfrontend f\n  bind {address} backlog 4096\n  http-request set-var(txn.to) path,map_str({})\n  http-request redirect code 302 location %[var(txn.to)] if {{ var(txn.to) -m found }}\n  http-request return status 404\n",
        map.display()
    );
    let file = written(&place.scratch.join("haproxy.cfg"), &settings)?;
    Ok(Ok(Peer {
        name,
        version: version(&program, "-v"),
        settings,
        links: MAP_LINKS,
        is_constant: false,
        is_secure: false,
        command: vec![program, "-db".to_owned(), "-f".to_owned(), file],
        address,
        helper: None,
    }))
}

fn lua(name: &'static str, place: &BenchDirs, address: SocketAddr) -> Result<Result<Peer, String>> {
    let parts = [
        ("/usr/sbin/nginx", "nginx-light"),
        ("/usr/lib/nginx/modules/ngx_http_lua_module.so", "libnginx-mod-http-lua"),
        ("/usr/share/lua/5.1/nginx/redis.lua", "lua-nginx-redis"),
        ("/usr/bin/redis-server", "redis-server"),
    ];
    let missing: Vec<&str> =
        parts.iter().filter(|(path, _)| !Path::new(path).exists()).map(|(_, name)| *name).collect();
    if !missing.is_empty() {
        return Ok(Err(missing.join(" ")));
    }
    let redis = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut server = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        server,
        "lua_package_path '/usr/share/lua/5.1/?.lua;;';\n  server {{ listen ADDRESS backlog=4096; location / {{ content_by_lua_block {{\n    local redis = require('nginx.redis'):new()\n    redis:set_timeout(1000)\n    local ok = redis:connect('127.0.0.1', {})\n    if not ok then return ngx.exit(503) end\n    local target = redis:get(ngx.var.uri)\n    redis:set_keepalive(60000, 1024)\n    if not target or target == ngx.null then return ngx.exit(404) end\n    return ngx.redirect(target, 302)\n  }} }} }}",
        redis.port()
    );
    let modules = "load_module /usr/lib/nginx/modules/ndk_http_module.so;\nload_module /usr/lib/nginx/modules/ngx_http_lua_module.so;\n";
    let settings = nginx_settings(&place.scratch, "lua", modules, &server, address);
    let file = written(&place.scratch.join("lua.conf"), &settings)?;
    let dir = place.scratch.display().to_string();
    let port = redis.port().to_string();
    let words = [
        "/usr/bin/redis-server",
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        &dir,
    ];
    Ok(Ok(Peer {
        name,
        version: format!("{}; {}", version("/usr/sbin/nginx", "-v"), version("/usr/bin/redis-server", "--version")),
        settings: format!("{settings}\n{}", words.join(" ")),
        links: MAP_LINKS,
        is_constant: false,
        is_secure: false,
        command: vec!["/usr/sbin/nginx".to_owned(), "-c".to_owned(), file],
        address,
        helper: Some((words.map(str::to_owned).to_vec(), redis)),
    }))
}

fn floor(name: &'static str, place: &BenchDirs, address: SocketAddr, word: &str) -> Peer {
    let program = place.programs.join("carom-bench").display().to_string();
    Peer {
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: "a constant answer for each empty line that ends a head; nothing is parsed".to_owned(),
        links: MAP_LINKS,
        is_constant: true,
        is_secure: false,
        command: vec![program, word.to_owned(), address.to_string()],
        address,
        helper: None,
    }
}

/// Loads the links into Redis, through its own protocol.
fn fill_redis(address: SocketAddr, count: u64) -> Result<()> {
    use std::io::{BufRead, BufReader};
    let stream = std::net::TcpStream::connect(address)?;
    let mut out = BufWriter::new(stream.try_clone()?);
    let mut answers = BufReader::new(stream);
    for first in (0..count).step_by(1_000) {
        for number in first..(first + 1_000).min(count) {
            let (key, value) = (format!("/{}", data::code(number)), data::target(number));
            write!(out, "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len())?;
        }
        out.flush()?;
        for _ in first..(first + 1_000).min(count) {
            let mut line = String::new();
            answers.read_line(&mut line)?;
            if line != "+OK\r\n" {
                bail!("Redis answered {line:?} to SET");
            }
        }
    }
    Ok(())
}
