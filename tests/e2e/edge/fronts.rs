//! Proxies that terminate TLS in front of a node, and the deploy hook of certbot: the files of `deploy/` that
//! `docs/src/deploy/tls.md` describes.
//!
//! No authority of the Internet issues certificates to a test, so the files get those of an authority of the test.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustls::pki_types::CertificateDer;
use serde_json::Value;

use crate::support::balancer::check;
use crate::support::http::{Reply, Wire, curl};
use crate::support::node::{Node, Setup, free_address, wait_until};
use crate::support::scripts::run;
use crate::support::tls::{Ca, NAME, open};

const NGINX: &str = include_str!("../../../deploy/nginx/https.conf");
const CADDY: &str = include_str!("../../../deploy/caddy/Caddyfile");
const HOOK: &str = include_str!("../../../deploy/certbot/carom");
const PAGE: &str = include_str!("../../../docs/src/deploy/tls.md");

const TARGET: &str = "https://example.org/";

/// The address in the files at which the node listens.
const NODE: &str = "127.0.0.1:8080";

/// A proxy in front of a node.
struct Front {
    child: Child,
    http: SocketAddr,
    https: SocketAddr,
    /// The certificate of the authority.
    ca: String,
}

impl Front {
    /// Starts a proxy and waits until it answers.
    fn start(command: &mut Command, http: SocketAddr, https: SocketAddr, ca: String) -> Front {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let front = Front { child: child.expect("a proxy, which `make test` installs"), http, https, ca };
        for address in [http, https] {
            wait_until("a proxy that listens", || Wire::try_open(address).is_ok());
        }
        front
    }

    /// Asks the proxy for a URL of the service, as a client with another address that claims to be a third one.
    fn ask(&self, url: &str, more: &[&str]) -> Reply {
        let connect = [format!("{NAME}:80:{}", self.http), format!("{NAME}:443:{}", self.https)];
        let forged = "X-Forwarded-For: 203.0.113.9";
        let mut arguments = vec!["--connect-to", connect[0].as_str(), "--connect-to", connect[1].as_str()];
        arguments.extend(["--cacert", self.ca.as_str(), "--interface", "127.0.0.2", "-H", forged]);
        arguments.extend(more);
        arguments.push(url);
        curl(&arguments)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node with the settings that the files ask for, and an access log.
fn behind(dir: &Path) -> Node {
    for text in [NGINX, CADDY] {
        for setting in ["forwarded_field = \"x-forwarded-for\"", "trusted_proxies = [\"127.0.0.1\"]"] {
            assert!(text.contains(setting), "{setting}");
        }
    }
    let setup = Setup::new(&dir.join("data")).over_kernel().env("CAROM_BASE_URL", &format!("https://{NAME}"));
    let setup = setup.env("CAROM_FORWARDED_FIELD", "x-forwarded-for").env("CAROM_TRUSTED_PROXIES", "127.0.0.1");
    let log = dir.join("access.log").display().to_string();
    setup.env("CAROM_ACCESS_LOG_FILE", &log).env("CAROM_ACCESS_LOG_ADDRESSES", "full").start()
}

/// Checks redirects, creates and addresses of clients behind a proxy, and ends both.
fn serves(dir: &Path, node: Node, front: Front) {
    let body = format!("{{\"longUrl\": \"{TARGET}\"}}");
    let create = ["-H", "Content-Type: application/json", "-d", body.as_str()];
    let created = front.ask(&format!("https://{NAME}/rest/v3/short-urls"), &create);
    let code = created.code();
    // The name and the scheme are those of the service, not those of the connection to the node.
    assert_eq!(created.json()["shortUrl"], format!("https://{NAME}/{code}"));
    for protocol in ["--http1.1", "--http2"] {
        let reply = front.ask(&format!("https://{NAME}/{code}"), &[protocol]);
        assert_eq!((reply.status, reply.location()), (302, TARGET), "{protocol}");
        assert!(protocol == "--http1.1" || reply.line.starts_with("HTTP/2 "), "{}", reply.line);
    }
    assert_eq!(front.ask(&format!("https://{NAME}/none"), &[]).status, 404);
    // A method stays what it was.
    let plain = front.ask(&format!("http://{NAME}/{code}?a=b"), &[]);
    assert_eq!((plain.status, plain.location()), (308, format!("https://{NAME}/{code}?a=b").as_str()));
    drop(front);
    node.terminate();
    let log = fs::read_to_string(dir.join("access.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let clients: Vec<&Value> =
        lines.iter().filter(|line| line["path"] == format!("/{code}")).map(|line| &line["address"]).collect();
    // The client that has connected: neither the proxy, nor what the client has claimed to be.
    assert_eq!(clients, ["127.0.0.2", "127.0.0.2"], "{log}");
}

/// A configuration without its listeners for IPv6, which this machine need not have.
fn ipv4_only(text: &str) -> String {
    text.lines().filter(|line| !line.contains("[::]:")).map(|line| format!("{line}\n")).collect()
}

/// Writes the configuration around `https.conf` in a directory. One process, so that its end ends all.
fn nginx_conf(dir: &Path) -> PathBuf {
    let place = dir.display();
    // nginx creates all of these, and only root can do so in the usual place.
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|name| format!("{name}_temp_path {place}/{name}; ")).concat();
    let http = format!("http {{ access_log off; {temporary}include {place}/https.conf; }}\n");
    let process = format!("daemon off;\nmaster_process off;\nerror_log {place}/error.log;\npid {place}/pid;\n");
    let file = dir.join("nginx.conf");
    fs::write(&file, process + "events { }\n" + &http).unwrap();
    file
}

#[test]
fn nginx_starts_before_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    // The part of the file that the page installs first.
    let command = "sed '/^  listen 443/,$d' /usr/share/carom/nginx/https.conf | sed '$d'";
    assert!(PAGE.contains(command));
    let whole = dir.path().join("whole");
    fs::write(&whole, NGINX).unwrap();
    let here = command.replace("/usr/share/carom/nginx/https.conf", "\"$0\"");
    let made = run(Command::new("sh").arg("-ec").arg(here).arg(&whole));
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.out.contains("acme-challenge"), "{}", made.out);
    assert!(!made.out.contains("ssl_certificate"), "{}", made.out);
    let part = ipv4_only(&made.out).replace("listen 80;", &format!("listen {};", free_address()));
    fs::write(dir.path().join("https.conf"), part).unwrap();
    check("nginx", &["-t", "-c", nginx_conf(dir.path()).to_str().unwrap()]);
}

#[test]
fn nginx_terminates_tls() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let node = behind(dir.path());
    let (http, https) = (free_address(), free_address());
    let live = format!("/etc/letsencrypt/live/{NAME}");
    let own = ipv4_only(NGINX)
        .replace(&format!("{live}/fullchain.pem"), &ca.file("go.pem"))
        .replace(&format!("{live}/privkey.pem"), &ca.file("go.key"))
        .replace("/var/www/letsencrypt", &dir.path().join("www").display().to_string())
        .replace("listen 80;", &format!("listen {http};"))
        .replace("listen 443 ssl", &format!("listen {https} ssl"))
        .replace(NODE, &node.public.to_string());
    fs::write(dir.path().join("https.conf"), own).unwrap();
    let file = nginx_conf(dir.path());
    check("nginx", &["-t", "-c", file.to_str().unwrap()]);
    let front = Front::start(Command::new("nginx").arg("-c").arg(&file), http, https, ca.file("ca.pem"));
    // The answer to a challenge, which certbot writes.
    let challenges = dir.path().join("www/.well-known/acme-challenge");
    fs::create_dir_all(&challenges).unwrap();
    fs::write(challenges.join("a-token"), "a-token.thumbprint").unwrap();
    let answer = front.ask(&format!("http://{NAME}/.well-known/acme-challenge/a-token"), &[]);
    assert_eq!((answer.status, answer.text()), (200, "a-token.thumbprint"));
    serves(dir.path(), node, front);
}

#[test]
fn caddy_terminates_tls() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let node = behind(dir.path());
    let (http, https) = (free_address(), free_address());
    // HTTP/3 needs the UDP port, which the test reserves.
    let ports = format!(
        "{{\n\tadmin off\n\thttp_port {}\n\thttps_port {}\n\tservers {{\n\t\tprotocols h1 h2\n\t}}\n}}\n",
        http.port(),
        https.port()
    );
    // In place of a certificate by ACME.
    let certificate = format!("{NAME} {{\n\tbind 127.0.0.1\n\ttls {} {}\n", ca.file("go.pem"), ca.file("go.key"));
    // A node of a test may be late with its answer, and would get no request until the next one.
    let (strict, patient) = ("health_timeout 1s\n", "health_timeout 30s\n");
    assert!(CADDY.contains(strict));
    let own = CADDY.replace(&format!("{NAME} {{\n"), &certificate).replace(NODE, &node.public.to_string());
    let own = own.replace(strict, patient);
    let file = dir.path().join("Caddyfile");
    fs::write(&file, ports + &own).unwrap();
    let command = |action: &str| {
        let mut command = Command::new("caddy");
        command.args([action, "--adapter", "caddyfile", "--config"]).arg(&file);
        // It keeps certificates and a copy of its settings below these.
        command.envs([("HOME", dir.path()), ("XDG_DATA_HOME", dir.path()), ("XDG_CONFIG_HOME", dir.path())]);
        command
    };
    let said = run(&mut command("validate"));
    assert_eq!(said.code, 0, "{}", said.err);
    let front = Front::start(&mut command("run"), http, https, ca.file("ca.pem"));
    let ready = || front.ask(&format!("https://{NAME}/rest/health"), &[]).status == 200;
    wait_until("a node that Caddy has found healthy", ready);
    serves(dir.path(), node, front);
}

/// The certificate that a node shows.
fn shown(node: &Node, ca: &Ca) -> CertificateDer<'static> {
    open(node.public, &ca.usual()).tls().peer_certificates().unwrap()[0].clone().into_owned()
}

#[test]
fn certbot_renews_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    let etc = dir.path().join("etc");
    fs::create_dir(&etc).unwrap();
    // This machine need not have the group, and only root can give files away.
    let own = HOOK.replace(" -o root -g carom", "").replace("/etc/carom", etc.to_str().unwrap());
    assert_ne!(own, HOOK);
    let hook = dir.path().join("hook");
    fs::write(&hook, own).unwrap();
    // As certbot runs it, with the files of a certificate in a directory of its own.
    let issue = |name: &str| {
        let lineage = dir.path().join("live").join(name);
        fs::create_dir_all(&lineage).unwrap();
        let issued = ca.write("new", &[name]);
        fs::copy(dir.path().join("new.pem"), lineage.join("fullchain.pem")).unwrap();
        fs::copy(dir.path().join("new.key"), lineage.join("privkey.pem")).unwrap();
        let said = run(Command::new("sh").arg(&hook).env("RENEWED_LINEAGE", &lineage).env("RENEWED_DOMAINS", name));
        assert_eq!(said.code, 0, "{}", said.err);
        issued
    };
    let installed = || fs::read_dir(&etc).unwrap().count();
    issue("other.example");
    assert_eq!(installed(), 0, "a certificate of another service");
    let first = issue(NAME);
    assert_eq!(installed(), 2);
    let (key, chain) = (etc.join(format!("{NAME}.key")), etc.join(format!("{NAME}.crt")));
    for file in [&key, &chain] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let setup = Setup::new(&dir.path().join("data")).env("CAROM_TLS_CERT", chain.to_str().unwrap());
    let node = setup.env("CAROM_TLS_KEY", key.to_str().unwrap()).start();
    assert_eq!(shown(&node, &ca), first);
    let second = issue(NAME);
    wait_until("the new certificate", || shown(&node, &ca) == second);
    node.terminate();
}

#[test]
fn page_has_the_files_as_they_are() {
    for (name, text) in [("caddy/Caddyfile", CADDY), ("certbot/carom", HOOK), ("nginx/https.conf", NGINX)] {
        assert!(PAGE.contains(name), "docs/src/deploy/tls.md does not name {name}");
        assert!(text.contains(NAME), "{name}");
    }
    // What the page shows of them.
    for block in PAGE.split("```").skip(1).step_by(2) {
        let Some((language, shown)) = block.split_once('\n') else { continue };
        let file = match language {
            "caddyfile" => CADDY,
            "nginx" => NGINX,
            _ => continue,
        };
        let code = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        };
        let lines = code(file);
        for line in code(shown) {
            assert!(lines.contains(&line), "{language}: {line} is not in the file");
        }
    }
}
