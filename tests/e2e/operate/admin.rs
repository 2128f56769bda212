//! The admin listener: the hosts and keys that it accepts, the status commands, and the JSON log.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::api_client;
use crate::support::http::Wire;
use crate::support::node::{CAROM, Node, Setup, wait_for, wait_until};

/// The status of an answer to a request with these fields and no others.
fn ask(node: &Node, method: &str, path: &str, fields: &str) -> u16 {
    let mut wire = Wire::open(node.admin);
    wire.send(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n").as_bytes());
    wire.reply().status
}

#[test]
fn foreign_hosts_and_sites_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).env("CAROM_ADMIN_HOSTS", "Carom1.example, ops.example").start();
    let port = node.admin.port();
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "10.1.2.3", "carom1.example", "OPS.example", &machine];
    let foreign =
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[evil]", "[::1", "", "::1:2:3", "a b"];
    for path in ["/status", "/metrics", "/apps", "/", "/status.css", "/none"] {
        for host in own {
            for host in [host.to_owned(), format!("{host}:{port}")] {
                assert_ne!(ask(&node, "GET", path, &format!("Host: {host}\r\n")), 403, "{host} {path}");
            }
        }
        for host in foreign {
            assert!([400, 403].contains(&ask(&node, "GET", path, &format!("Host: {host}\r\n"))), "{host} {path}");
        }
        let host = format!("Host: 127.0.0.1:{port}\r\n");
        assert_ne!(ask(&node, "GET", path, &format!("{host}Origin: http://127.0.0.1:{port}\r\n")), 403, "{path}");
        // What a page of somebody else has in it, and not who follows a link there.
        let sites = ["cross-site", "same-site", "same-origin", "none"];
        for (site, mode) in sites.iter().flat_map(|site| [(*site, "no-cors"), (*site, "navigate")]) {
            let fields = format!("{host}Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: {mode}\r\n");
            let is_foreign = site.ends_with("-site") && mode == "no-cors";
            assert_eq!(ask(&node, "GET", path, &fields) == 403, is_foreign, "{path} {site} {mode}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:1",
            "https://127.0.0.1",
            "",
            "http://127.0.0.1:8081.evil.example",
        ] {
            assert_eq!(ask(&node, "GET", path, &format!("{host}Origin: {origin}\r\n")), 403, "{origin} {path}");
        }
    }
    // Nothing was made in another's name.
    let body = r#"{"app": "evil"}"#;
    let mut wire = Wire::open(node.admin);
    let head = format!(
        "POST /apps HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    wire.send(format!("{head}{body}").as_bytes());
    assert_eq!(wire.reply().status, 403);
    assert_eq!(Wire::open(node.admin).get_at("localhost", "/apps").json()["apps"], Value::Array(vec![]));
    // A balancer may call it what it likes.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&node, "GET", path, "Host: health.invalid\r\n"), 200);
    }
    node.terminate();
}

#[test]
fn key_is_required_off_loopback() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (admin, reader) = (api_client::new_key(&setup, "ops", "admin"), api_client::new_key(&setup, "shop", "read"));
    let node = setup.start();
    let status = |node: &Node, path: &str, key: &str| {
        let fields = if key.is_empty() { String::new() } else { format!("X-Api-Key: {key}\r\n") };
        ask(node, "GET", path, &format!("Host: 127.0.0.1\r\n{fields}"))
    };
    wait_until("keys", || node.wire().get("/rest/v3/short-urls").status == 401);
    let paths = ["/status", "/shorturl_status", "/metrics", "/apps"];
    assert!(paths.iter().all(|path| status(&node, path, "") == 200));
    let node = node.terminate().env("CAROM_ADMIN_REQUIRE_KEY", "true").start();
    for path in paths {
        let told = ["", "wrong", &reader, &admin].map(|key| status(&node, path, key));
        assert_eq!(told, [401, 401, 403, 200], "{path}");
        // As Prometheus sends it.
        assert_eq!(ask(&node, "GET", path, &format!("Host: 127.0.0.1\r\nAuthorization: Bearer {admin}\r\n")), 200);
    }
    assert_eq!(status(&node, "/readyz", ""), 200);
    node.terminate();
}

#[test]
fn status_is_read_on_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    node.wire().shorten("https://example.org/");
    let path = "/shorturl_status";
    let status = node.wire().get_at("go.example", path);
    assert_eq!((status.status, &status.json()["links"]), (200, &Wire::open(node.admin).get(path).json()["links"]));
    // As browsers get it, and beside other requests on one connection.
    let mut wire = node.wire();
    assert_eq!(wire.get("/none").status, 404);
    assert!(wire.ask("GET", path, "Accept: text/html\r\n", b"").json()["cores"].is_array());
    assert_eq!(wire.ask("HEAD", path, "", b"").status, 200);
    // For clients behind a proxy on this machine, it is an unknown link.
    for field in ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "Via: 1.1 a"] {
        assert_eq!(node.wire().ask("GET", path, &format!("{field}\r\n"), b"").status, 404, "{field}");
    }
    let node = node.terminate().env("CAROM_ADMIN_REQUIRE_KEY", "true").start();
    assert_eq!(node.wire().get(path).status, 404, "no caller is trusted");
    node.terminate();
}

#[test]
fn json_log_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).env("CAROM_LOG_FORMAT", "json").env("CAROM_LOG_LEVEL", "info");
    let node = setup.start();
    node.wire().shorten("https://example.org/?secret=1");
    let log = node.log();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    assert!(!lines.is_empty(), "{log}");
    assert!(lines.iter().all(|line| line["level"].is_string() && line["message"].is_string()), "{log}");
    assert!(!log.contains("secret=1"));
    let setup = node.terminate();
    // The last word, too.
    let (code, said) = setup.argument("--listen").argument("192.0.2.1:1").env("CAROM_OPEN", "true").fail();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(code, 14, "{said}");
    assert_eq!(last["exit_code"].as_i64(), Some(14), "{said}");
    assert!(last["remedy"].is_string(), "{said}");
}

/// Runs a command that must end by itself within 20 seconds, with the address of the admin listener; its exit code and
/// output.
fn carom(node: &Node, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    let made = command.args(["20", CAROM]).args(arguments).args(["--admin", &node.admin.to_string()]).output();
    let made = made.expect("the command can be run");
    (made.status.code(), String::from_utf8([made.stdout, made.stderr].concat()).unwrap())
}

/// Runs `carom status`.
fn status(node: &Node, arguments: &[&str]) -> (Option<i32>, String) {
    carom(node, &[&["status"], arguments].concat())
}

#[test]
fn status_command_prints_the_status() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(3);
    let node = setup.start();
    (0..50).for_each(|number| _ = node.wire().shorten(&format!("https://example.org/{number}")));
    let (code, said) = status(&node, &[]);
    assert_eq!(code, Some(0), "{said}");
    for part in
        ["ready", "links 50", "redirects/s", "store   accepting writes", "with 7 characters left", "alarms  none"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    // One line for each core.
    let is_core =
        |line: &&str| line.split_whitespace().filter(|word| word.replace(',', "").parse::<f64>().is_ok()).count() == 12;
    assert_eq!(said.lines().filter(is_core).count(), 3, "{said}");
    assert_eq!(status(&node, &["--once"]).0, Some(0));
    let (_, json) = status(&node, &["--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["links"], 50);
    // A key where one is asked for.
    let key = dir.path().join("key");
    std::fs::write(&key, api_client::new_key(&setup, "ops", "admin") + "\n").unwrap();
    let node = node.terminate().env("CAROM_ADMIN_REQUIRE_KEY", "true").start();
    let (code, said) = status(&node, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("401"), "{said}");
    assert!(said.contains("--key-file"), "{said}");
    let (code, said) = status(&node, &["--key-file", key.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("links 50"), "{said}");
    let address = node.admin.to_string();
    node.terminate();
    let made = Command::new(CAROM).args(["status", "--admin", &address]).output().unwrap();
    let said = String::from_utf8(made.stderr).unwrap();
    assert_eq!(made.status.code(), Some(1), "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn top_refreshes_until_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut top = Command::new(CAROM)
        .args(["top", "--json", "--admin", &node.admin.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be run");
    let lines = BufReader::new(top.stdout.take().unwrap()).lines().take(2);
    let uptimes: Vec<f64> = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["uptimeSeconds"].as_f64().unwrap())
        .collect();
    assert_eq!(uptimes.len(), 2, "{uptimes:?}");
    assert!(uptimes[0] <= uptimes[1], "{uptimes:?}");
    top.kill().unwrap();
    top.wait().unwrap();
    node.terminate();
}

#[test]
fn health_command_needs_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).env("CAROM_ADMIN_REQUIRE_KEY", "true").env("CAROM_DRAIN_DELAY", "60s");
    api_client::new_key(&setup, "ops", "admin");
    let node = setup.start();
    // As the health check of a container asks: the settings name the listener.
    let from_settings = Command::new(CAROM)
        .args(["health", "--ready"])
        .env("CAROM_ADMIN_LISTEN", node.admin.to_string())
        .output()
        .expect("the command can be run");
    assert_eq!(from_settings.status.code(), Some(0), "{from_settings:?}");
    assert_eq!(carom(&node, &["status"]).0, Some(1), "a status needs the key");
    assert_eq!(carom(&node, &["health"]), (Some(0), "ok\n".to_owned()));
    assert_eq!(carom(&node, &["health", "--ready"]).0, Some(0));
    node.signal(Signal::TERM);
    wait_until("the drain", || Wire::open(node.admin).get("/readyz").status == 503);
    let (code, said) = carom(&node, &["health", "--ready"]);
    assert_eq!(code, Some(1), "{code:?}: {said}");
    assert!(said.contains("503"), "{code:?}: {said}");
    let address = node.admin.to_string();
    node.kill();
    let made = Command::new(CAROM).args(["health", "--admin", &address]).output().unwrap();
    let said = String::from_utf8(made.stderr).unwrap();
    assert_eq!(made.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("http://{address}/healthz")), "{said}");
}

#[test]
fn status_reports_recent_activity() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let code = node.wire().shorten("https://example.org/");
    let of = |status: &Value, name: &str| -> u64 {
        let cores = status["pulse"][name].as_array().unwrap();
        cores.iter().flat_map(|core| core.as_array().unwrap()).map(|number| number.as_u64().unwrap()).sum()
    };
    let mut wires = [node.wire(), node.wire(), node.wire()];
    // What comes before the first sample is in none, and a machine that is busy takes that late.
    let is_there = |changes: &Value| changes.as_u64() > Some(0);
    let status = wait_for("redirects and changes in the pulse", || {
        wires.iter_mut().for_each(|wire| _ = wire.get(&format!("/{code}")));
        node.wire().shorten("https://example.org/");
        let status = node.status();
        let is_changed = status["pulse"]["changes"].as_array().unwrap().iter().any(is_there);
        (of(&status, "redirects") > 0 && is_changed).then_some(status)
    });
    assert_eq!(status["pulse"]["redirects"].as_array().unwrap().len(), 2);
    assert!(status["issuer"]["lastsSeconds"].as_u64() > Some(1_000_000_000), "{status}");
    let page = Wire::open(node.admin).ask("GET", "/status", "Accept: text/html\r\n", b"");
    assert!(page.text().contains("<path class=\"line\" d=\"M"), "{}", page.text());
    assert!(page.text().contains("years at the current rate"), "{}", page.text());
    drop(wires);
    node.terminate();
}
