//! Admission control: too many connections, and connections that take too long. Each limit is reached, and no other
//! client is affected.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::node::{Node, Setup, sum, wait_until};
use crate::support::rest::comes_to_rest;

const TARGET: &str = "https://example.org/";

/// A node that takes twenty connections, and waits for the rest of a request for as long as a test may take.
fn twenty_connections(dir: &Path) -> Node {
    Setup::new(dir).env("CAROM_LIMITS_CONNECTIONS", "20").env("CAROM_LIMITS_HEAD_SECONDS", "120").start()
}

/// True if the node has closed a connection, now.
fn is_closed(wire: &mut Wire) -> bool {
    wire.try_ask("GET", "/none", "", b"").is_err()
}

#[test]
fn longest_idle_connection_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let node = twenty_connections(dir.path());
    let code = node.wire().shorten(TARGET);
    wait_until("nobody", || sum(&node.status(), "/connections") == 0);
    // The first is busy for the rest of the test: its request has begun.
    let mut begun = node.wire();
    begun.send(b"GET /none HTTP/1.1\r\n");
    let mut idle: Vec<Wire> = (0..18).map(|_| node.wire()).collect();
    for wire in &mut idle {
        assert_eq!(wire.get("/none").status, 404);
        std::thread::sleep(Duration::from_millis(20));
    }
    // The order is that of a quarter of a second, by a clock that may be late.
    std::thread::sleep(Duration::from_millis(1_500));
    for wire in &mut idle[..5] {
        assert_eq!(wire.get("/none").status, 404);
    }
    assert_eq!(sum(&node.status(), "/evicted"), 0);
    std::thread::sleep(Duration::from_millis(1_500));
    let mut later: Vec<Wire> = Vec::new();
    for number in 1..=8 {
        let mut wire = node.wire();
        assert_eq!(wire.get(&format!("/{code}")).location(), TARGET, "{number}");
        later.push(wire);
    }
    assert_eq!(sum(&node.status(), "/evicted"), 8);
    assert_eq!(sum(&node.status(), "/shed"), 0);
    let gone: Vec<bool> = idle.iter_mut().map(is_closed).collect();
    assert_eq!(gone.iter().filter(|gone| **gone).count(), 8, "{gone:?}");
    assert!(gone[..5].iter().all(|gone| !gone), "{gone:?}");
    begun.send(b"Host: a\r\n\r\n");
    assert_eq!(begun.reply().status, 404);
    drop((begun, idle, later));
    node.terminate();
}

#[test]
fn new_connections_close_when_none_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    let node = twenty_connections(dir.path());
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    drop(wire);
    let begin = |_| {
        let mut wire = node.wire();
        // The answer to the first request shows that the node has read the start of the second one, which is in the same
        // piece. A connection without it is idle, and would make room for others.
        let begun = format!("GET /{code} HTTP/1.1\r\n");
        wire.send([request("GET", &format!("/{code}"), "", b""), begun.into_bytes()].concat().as_slice());
        assert_eq!(wire.reply().location(), TARGET);
        assert_eq!(sum(&node.status(), "/evicted"), 0);
        wire
    };
    wait_until("nobody", || sum(&node.status(), "/connections") == 0);
    let mut begun: Vec<Wire> = (0..20).map(begin).collect();
    assert_eq!(sum(&node.status(), "/connections"), 20);
    for _ in 0..10 {
        assert_eq!(node.wire().read_until_closed(), b"");
    }
    assert!(sum(&node.status(), "/shed") >= 10);
    for wire in &mut begun {
        wire.send(b"Host: a\r\n\r\n");
        assert_eq!(wire.reply().location(), TARGET);
    }
    drop(begun);
    wait_until("room", || node.wire().try_ask("GET", &format!("/{code}"), "", b"").is_ok());
    node.terminate();
}

#[test]
fn connections_per_address_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).env("CAROM_LIMITS_CONNECTIONS_PER_ADDRESS", "5").start();
    let from = |last: u8| Wire::open_from(IpAddr::from(Ipv4Addr::new(127, 0, 0, last)), node.public);
    let mut many: Vec<Wire> = (0..5).map(|_| from(2)).collect();
    assert!(many.iter_mut().all(|wire| wire.get("/none").status == 404));
    assert!((0..3).all(|_| is_closed(&mut from(2))));
    let mut others: Vec<Wire> = (0..5).map(|_| from(3)).collect();
    assert!(others.iter_mut().chain(&mut many).all(|wire| wire.get("/none").status == 404));
    drop(many);
    wait_until("room for the first address", || !is_closed(&mut from(2)));
    drop(others);
    node.terminate();
}

#[test]
fn descriptor_shortage_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path())
        .shell("exec prlimit --nofile=256 \"$@\"")
        .env("CAROM_LIMITS_HEAD_SECONDS", "120")
        .start();
    let code = node.wire().shorten(TARGET);
    // Requests that have begun cannot be closed for others.
    let begin = |_| {
        let mut wire = node.wire();
        let _ = wire.try_send(format!("GET /{code} HTTP/1.1\r\n").as_bytes());
        wire
    };
    let mut begun = vec![begin(0)];
    // The node has read what came first: until then it would be one of those that wait for nothing.
    assert_eq!(node.wire().get(&format!("/{code}")).location(), TARGET);
    begun.extend((1..2_000).map(begin));
    // Those whose first bytes have not been read yet are idle, and make room; with the others it is the newcomer that
    // goes.
    let turned_away = |status: &serde_json::Value| sum(status, "/shed") + sum(status, "/evicted");
    wait_until("a full node", || sum(&node.status(), "/connections") >= 80 && turned_away(&node.status()) > 0);
    comes_to_rest(&node);
    // Those who were let in are served, and there are descriptors for everything else.
    begun[0].send(b"Host: a\r\n\r\n");
    assert_eq!(begun[0].reply().location(), TARGET);
    assert!(std::fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count() < 220);
    drop(begun);
    wait_until("service", || node.wire().try_ask("GET", &format!("/{code}"), "", b"").is_ok());
    node.terminate();
}

#[test]
fn slow_clients_delay_no_one_else() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    for mode in ["-H", "-B", "-X"] {
        let url = format!("http://{}/{code}", node.public);
        let mut slow = std::process::Command::new("slowhttptest")
            .args(["-c", "500", mode, "-r", "500", "-l", "30", "-i", "1", "-u", &url])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("slowhttptest, which `make test` installs");
        let (begin, mut answered) = (Instant::now(), 0);
        // All slow clients are there after a second. On a busy machine, the answers take longer.
        while (answered <= 100 || begin.elapsed() < Duration::from_secs(3)) && slow.try_wait().unwrap().is_none() {
            assert_eq!(wire.get(&format!("/{code}")).location(), TARGET);
            assert_eq!(node.wire().get(&format!("/{code}")).location(), TARGET);
            answered += 2;
        }
        let _ = slow.kill();
        slow.wait().unwrap();
        assert!(answered > 100, "{mode} {answered}");
    }
    drop(wire);
    node.terminate();
}

#[test]
fn requests_per_connection_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).env("CAROM_LIMITS_REQUESTS_PER_CONNECTION", "3").start();
    let code = node.wire().shorten(TARGET);
    for path in [format!("/{code}"), "/rest/health".to_owned()] {
        let mut wire = node.wire();
        let told: Vec<Option<String>> =
            (0..3).map(|_| wire.get(&path).field("connection").map(str::to_owned)).collect();
        assert_eq!(told, [None, None, Some("close".to_owned())], "{path}");
        assert_eq!(wire.read_until_closed(), b"");
        // What stands behind the last one is no request any more.
        let mut many = node.wire();
        many.send(&request("GET", &path, "", b"").repeat(5));
        assert_eq!((0..3).map(|_| many.reply().status).filter(|status| *status < 400).count(), 3);
        assert_eq!(many.read_until_closed(), b"");
    }
    node.terminate();
}

#[test]
fn head_and_body_sizes_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).env("CAROM_LIMITS_HEAD_BYTES", "4KiB").env("CAROM_LIMITS_BODY_BYTES", "16KiB");
    let node = setup.start();
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    let path = format!("/{code}");
    let padded = |len: usize| format!("X-Padding: {}\r\n", "x".repeat(len));
    assert_eq!(wire.ask("GET", &path, &padded(3_900), b"").status, 302);
    assert_eq!(node.wire().ask("GET", &path, &padded(4_096), b"").status, 431);
    assert_eq!(node.wire().ask("GET", "/rest/health", &padded(4_096), b"").status, 431);
    let create = |len: usize| {
        let body = json!({"longUrl": TARGET}).to_string() + &" ".repeat(len);
        node.wire().ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", body.as_bytes()).status
    };
    assert_eq!(create(15_000), 200);
    assert_eq!(create(17_000), 413);
    drop(wire);
    node.terminate();
    // And the other way: what was too much is not.
    let node =
        Setup::new(dir.path()).env("CAROM_LIMITS_HEAD_BYTES", "32KiB").env("CAROM_LIMITS_BODY_BYTES", "4MiB").start();
    for path in [&*path, "/rest/health"] {
        assert!(node.wire().ask("GET", path, &padded(30_000), b"").status < 400);
    }
    let body = json!({"longUrl": TARGET}).to_string() + &" ".repeat(3 << 20);
    let reply = node.wire().ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    node.terminate();
}

#[test]
fn slow_body_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).env("CAROM_LIMITS_BODY_SECONDS", "1").start();
    let mut kept = node.wire();
    let mut slow = node.wire();
    slow.send(
        format!(
            "POST {SHORT_URLS} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        )
        .as_bytes(),
    );
    assert_eq!(slow.reply().status, 408);
    assert_eq!(kept.get("/none").status, 404);
    drop(kept);
    node.terminate();
    // One without end has no time in all, but must go on.
    for (rate, seconds, is_cut) in [("20000", "1", true), ("10", "5", false)] {
        let setup = Setup::new(dir.path()).env("CAROM_LIMITS_BODY_SECONDS", seconds);
        let node = setup.env("CAROM_LIMITS_BODY_RATE", rate).start();
        let mut wire = node.wire();
        let head = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n";
        wire.send(format!("POST {SHORT_URLS}/bulk HTTP/1.1\r\nHost: a\r\n{head}\r\n").as_bytes());
        let line = json!({"longUrl": TARGET}).to_string() + "\n";
        let piece = format!("{:x}\r\n{line}\r\n", line.len());
        let since = Instant::now();
        let mut was_cut = false;
        let patience = Duration::from_secs(if is_cut { 60 } else { 8 });
        while since.elapsed() < patience && !was_cut {
            was_cut = wire.try_send(piece.as_bytes()).is_err();
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(was_cut, is_cut, "{rate}");
        drop(wire);
        node.terminate();
    }
}
